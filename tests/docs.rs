//! The pages in docs/ are complete.

use diskvitals::model::reason::Reason;

#[test]
fn every_reason_has_a_heading_in_the_page_of_findings() {
    let page = include_str!("../docs/findings.md");
    for reason in Reason::ALL {
        assert!(page.lines().any(|line| line == format!("## {reason}")), "docs/findings.md has no heading `## {reason}`");
    }
}

#[test]
fn the_page_of_findings_describes_no_reason_that_is_not_there() {
    let page = include_str!("../docs/findings.md");
    for heading in page.lines().filter_map(|line| line.strip_prefix("## ")) {
        assert!(heading.parse::<Reason>().is_ok(), "`{heading}` is no reason");
    }
}

#[test]
fn every_source_is_explained_to_the_operator() {
    use diskvitals::model::report::Source;
    let page = include_str!("../docs/operations.md");
    let sources = [Source::Udev, Source::Mounts, Source::Kubelet, Source::Probe, Source::DiskStats, Source::Layers];
    for source in sources.into_iter().chain([Source::Counters, Source::FsErrors]) {
        assert!(page.contains(&format!("`{}`", source.name())), "docs/operations.md does not mention the source `{}`", source.name());
    }
}

#[test]
fn every_configuration_section_is_named_in_the_operators_page() {
    let page = include_str!("../docs/operations.md");
    for line in include_str!("../systemd/diskvitals.toml").lines().filter(|line| line.starts_with('[')) {
        assert!(page.contains(line), "docs/operations.md does not mention {line}");
    }
}
