//! The Explain answer: the chain as an indented tree, from the drives up to the pods, then every
//! finding in full.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::wire;
use crate::cli::render::{checks, findings, heading};
use crate::cli::screen::{Screen, Tone, escape_control, health};

pub(crate) fn tree(explanation: &wire::Explanation, screen: &Screen) -> String {
    let mut text = String::new();
    if let Some(subject) = &explanation.subject {
        let kind = match subject.kind() {
            wire::SubjectKind::Drive => "drive",
            wire::SubjectKind::Volume => "volume",
            _ => "device",
        };
        let title = match subject.name.as_str() {
            "" => format!("{kind} {}", subject.id),
            name if name == subject.id => format!("{kind} {name}"),
            name => format!("{kind} {name} ({})", subject.id),
        };
        text.push_str(&heading(&escape_control(&title), screen));
    }
    for advice in &explanation.advice {
        let (_, tone) = health(advice.health);
        text.push_str(&format!(
            "{}\n",
            screen.paint(tone, screen.message(&advice.sentence))
        ));
    }
    if !explanation.advice.is_empty() {
        text.push('\n');
    }
    let ids: BTreeSet<&str> = explanation
        .chain
        .iter()
        .map(|node| node.id.as_str())
        .collect();
    let mut above: BTreeMap<&str, Vec<&wire::ChainNode>> = BTreeMap::new();
    for node in &explanation.chain {
        for below in &node.stands_on {
            above.entry(below.as_str()).or_default().push(node);
        }
    }
    let roots = explanation.chain.iter().filter(|node| {
        !node
            .stands_on
            .iter()
            .any(|below| ids.contains(below.as_str()))
    });
    let mut printed = BTreeSet::new();
    for root in roots {
        branch(
            root,
            0,
            &above,
            &mut printed,
            explanation.subject.as_ref(),
            screen,
            &mut text,
        );
    }
    if explanation.findings.is_empty() {
        text.push_str(&format!("\n{}\n", screen.paint(Tone::Good, "no findings")));
    } else {
        text.push_str(&findings::in_full(&explanation.findings, screen));
    }
    text.push_str(&checks::checks_of_subject(&explanation.checks, screen));
    text
}

/// Prints each node in full once. A node above several others (an array, a volume on two disks) is
/// named again and marked.
fn branch<'a>(
    node: &'a wire::ChainNode,
    depth: usize,
    above: &BTreeMap<&str, Vec<&'a wire::ChainNode>>,
    printed: &mut BTreeSet<&'a str>,
    subject: Option<&wire::Subject>,
    screen: &Screen,
    text: &mut String,
) {
    let indent = "  ".repeat(depth);
    let first = printed.insert(&node.id);
    let is_subject = subject.is_some_and(|subject| {
        node.id
            .split_once(':')
            .is_some_and(|(_, id)| id == subject.id)
    });
    let name = screen.paint(
        if is_subject {
            Tone::Strong
        } else {
            Tone::Plain
        },
        escape_control(&node.name),
    );
    let (word_of_health, tone) = health(node.health);
    let mut line = format!("{indent}{} {name}", node.kind);
    if word_of_health != "-" {
        line.push_str(&format!("  {}", screen.paint(tone, word_of_health)));
    }
    if !first {
        text.push_str(&format!("{line}  (see above)\n"));
        return;
    }
    if !node.detail.is_empty() {
        line.push_str(&format!(
            "  {}",
            screen.paint(Tone::Faint, screen.message(&node.detail))
        ));
    }
    text.push_str(&line);
    text.push('\n');
    for next in above.get(node.id.as_str()).into_iter().flatten() {
        branch(next, depth + 1, above, printed, subject, screen, text);
    }
}
