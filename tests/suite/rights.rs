//! Each right of the chart's roles is in the table of docs/security.md with what its thief can do,
//! and the table has no other. A right is one rule of a role: verbs, resources with their group, and
//! whether it holds in one namespace or for one name.

use std::collections::BTreeSet;
use std::path::Path;

/// The role by its template and the end of its name, and one of its rules.
type Right = (String, String);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn list<'a>(rule: &'a str, key: &str) -> Vec<&'a str> {
    let Some((_, rest)) = rule.split_once(&format!("{key}: [")) else {
        return Vec::new();
    };
    let (items, _) = rest.split_once(']').expect("a list on one line");
    items.split(',').map(|it| it.trim().trim_matches('"')).collect()
}

fn rule_text(rule: &str, kind: &str) -> String {
    let [group] = list(rule, "apiGroups")[..] else {
        panic!("not one group: {rule}");
    };
    let resources: Vec<String> = list(rule, "resources")
        .iter()
        .map(|resource| match group {
            "" => (*resource).to_owned(),
            _ => format!("{resource}.{group}"),
        })
        .collect();
    let mut text = format!("{} {}", list(rule, "verbs").join(","), resources.join(","));
    if rule.contains("resourceNames:") {
        text.push_str(" of its own name");
    }
    if kind == "Role" {
        text.push_str(" in a namespace");
    }
    text
}

fn rights_of_template(file: &str, template: &str) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    let (mut kind, mut name) = ("", "");
    for line in template.lines() {
        if let Some(now) = line.strip_prefix("kind: ") {
            (kind, name) = (now.trim(), "");
        }
        if let Some(now) = line.strip_prefix("  name: ")
            && name.is_empty()
        {
            name = now.rsplit("}}").next().unwrap_or_default().trim();
        }
        if !matches!(kind, "Role" | "ClusterRole") {
            continue;
        }
        if line.trim_start().starts_with("- {apiGroups:") {
            let role = format!("{file} {name}").trim_end().to_owned();
            rights.insert((role, rule_text(line, kind)));
        } else {
            assert!(
                !line.contains("apiGroups") && !line.contains("verbs:"),
                "{file}: a rule that is not on one line: {line}"
            );
        }
    }
    rights
}

fn rights_of_chart() -> BTreeSet<Right> {
    let folder = root().join("helm/diskvitals/templates");
    let mut rights = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the chart") {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("text");
        rights.extend(rights_of_template(&name, &text));
    }
    rights
}

fn rights_of_docs(text: &str) -> BTreeSet<Right> {
    let (_, section) = text.split_once("\n## Rights at the API server\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut rights = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [role, rules, harm] = cells[..] else {
            panic!("not three cells: {row}");
        };
        assert!(harm.len() > 20, "not what its thief can do: {row}");
        let rules: Vec<&str> = rules.split('`').skip(1).step_by(2).collect();
        assert!(!rules.is_empty(), "no right: {row}");
        for rule in rules {
            let right = (role.trim_matches('`').to_owned(), rule.to_owned());
            assert!(rights.insert(right), "twice: {role} {rule}");
        }
    }
    rights
}

#[test]
fn each_right_of_the_chart_is_documented_with_what_its_thief_can_do() {
    let chart = rights_of_chart();
    let docs = std::fs::read_to_string(root().join("docs/security.md")).expect("the document");
    let docs = rights_of_docs(&docs);
    assert!(chart.len() > 40, "the chart's roles were not found");
    let missing: Vec<&Right> = chart.difference(&docs).collect();
    let gone: Vec<&Right> = docs.difference(&chart).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/security.md, Rights at the API server\nnot in the table: {missing:#?}\nnot in the chart: {gone:#?}"
    );
}

#[test]
fn a_new_right_and_one_that_is_gone_are_noticed() {
    let template = "kind: Role\nmetadata:\n  name: {{ $name }}-a\n  namespace: x\nrules:\n  - {apiGroups: [\"\"], resources: [pods, pods/log], verbs: [get, list]}\n---\nkind: ClusterRole\nmetadata:\n  name: {{ $name }}\nrules:\n  {{- if x }}\n  - {apiGroups: [apps], resources: [daemonsets], resourceNames: [{{ $name }}], verbs: [get]}\n";
    let right = |role: &str, rule: &str| (role.to_owned(), rule.to_owned());
    assert_eq!(
        rights_of_template("t.yaml", template),
        BTreeSet::from([
            right("t.yaml", "get daemonsets.apps of its own name"),
            right("t.yaml -a", "get,list pods,pods/log in a namespace"),
        ])
    );
    let docs = "\n## Rights at the API server\n\n| `t.yaml` | `get pods`, `list pods` | reads all pods of the cluster |\n\n## Next\n\n| `t.yaml` | `watch pods` | |\n";
    assert_eq!(
        rights_of_docs(docs),
        BTreeSet::from([right("t.yaml", "get pods"), right("t.yaml", "list pods")])
    );
}
