//! The pages in docs/ are complete: they name what the tables of the code have.

use std::path::Path;

use diskvitals_cluster::gate::{Effect, Gate};
use diskvitals_cluster::node_storage::CleanReason;
use diskvitals_finding::reason::Reason;

#[test]
fn every_reason_has_a_heading_in_the_page_of_findings() {
    let page = include_str!("../../docs/findings.md");
    for reason in Reason::ALL {
        assert!(
            page.lines().any(|line| line == format!("## {reason}")),
            "docs/findings.md has no heading `## {reason}`"
        );
    }
}

#[test]
fn the_page_of_findings_describes_no_unknown_reason() {
    let page = include_str!("../../docs/findings.md");
    for heading in page.lines().filter_map(|line| line.strip_prefix("## ")) {
        assert!(heading.parse::<Reason>().is_ok(), "`{heading}` is no reason");
    }
}

#[test]
fn every_source_is_explained_to_the_operator() {
    use diskvitals_finding::source::Source;
    let page = include_str!("../../docs/operations.md");
    let sources = [
        Source::Udev,
        Source::Mounts,
        Source::Kubelet,
        Source::Probe,
        Source::DiskStats,
        Source::Layers,
    ];
    for source in sources.into_iter().chain([
        Source::Counters,
        Source::FsErrors,
        Source::Smart,
        Source::Checks,
    ]) {
        assert!(
            page.contains(&format!("`{}`", source.name())),
            "docs/operations.md does not mention the source `{}`",
            source.name()
        );
    }
}

#[test]
fn every_configuration_section_is_named_in_the_operators_page() {
    let page = include_str!("../../docs/operations.md");
    for line in
        include_str!("../../systemd/diskvitals.toml").lines().filter(|line| line.starts_with('['))
    {
        assert!(page.contains(line), "docs/operations.md does not mention {line}");
    }
}

#[test]
fn every_reason_why_a_returned_node_is_not_clean_has_its_row() {
    let page = include_str!("../../docs/fleet.md");
    for reason in CleanReason::ALL {
        let row = format!("| `{}` |", reason.name());
        let has_row = page.lines().any(|line| line.starts_with(&row));
        assert_eq!(has_row, reason != CleanReason::ProvenClean, "{row}");
    }
}

#[test]
fn the_page_of_remediation_names_every_gate_and_says_which_ones_end_an_action() {
    let page = include_str!("../../docs/remediation.md");
    let (_, table) = page.split_once("## Gates").expect("the section");
    for gate in Gate::ALL {
        let named = format!("`{gate}`");
        let row = table.lines().find(|line| line.starts_with('|') && line.contains(&named));
        let row = row.unwrap_or_else(|| panic!("docs/remediation.md does not name {named}"));
        let ends = row.contains(&format!("{named} (ends"));
        assert_eq!(ends, gate.effect() == Effect::Abort, "{named} in: {row}");
    }
}

/// Scripts that try gates on a real API server: lines that begin with one of these words and a gate.
const TRIES: [&str; 2] = [
    include_str!("../../hwtests/kubernetes/check-release"),
    include_str!("../../hwtests/kubernetes/check-restored-etcd"),
];
const TRY_WORDS: [&str; 4] = ["gate", "holds", "takes_back", "refused"];

#[test]
fn each_gate_is_tried_on_a_real_api_server_and_nothing_else_is() {
    let mut tried: Vec<&str> = TRIES
        .iter()
        .flat_map(|script| script.lines())
        .filter_map(|line| {
            let (word, rest) = line.split_once(' ')?;
            let name = rest.split(' ').next()?;
            let is_name = name.starts_with(char::is_uppercase);
            (TRY_WORDS.contains(&word) && is_name).then_some(name)
        })
        .collect();
    tried.sort_unstable();
    tried.dedup();
    let mut gates: Vec<&str> = Gate::ALL.iter().map(|gate| gate.name()).collect();
    gates.sort_unstable();
    assert_eq!(tried, gates);
}

/// The list of attacks is executable: each row names a test of this repository.
#[test]
fn every_attack_in_the_list_has_its_test() {
    let table = include_str!("../../hwtests/attacks/README.md");
    let rows: Vec<&str> = table.lines().filter(|line| line.contains(".rs`")).collect();
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows {
        let names: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let [.., file, test] = names.as_slice() else {
            panic!("no file and test in: {row}");
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let defined = format!("fn {test}(");
        let at = text.find(&defined).unwrap_or_else(|| panic!("{file} has no {test}"));
        let before = text[..at].rsplit("\n\n").next().expect("its attributes");
        assert!(before.contains("test"), "{file}: {test} is no test");
    }
}
