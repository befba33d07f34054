//! The Explain answer: what to do, the chain as an indented tree from the drives up to the pods, then
//! every finding in full. What a checker printed is only counted.

use std::collections::{BTreeMap, BTreeSet};

use crate::render::status::{unknown_by_reason, unknown_count};
use crate::render::{checks, findings, maintenance};
use crate::words::{health, severity};
use diskvitals_finding::reason::Reason;
use diskvitals_terminal::layout::{Part, wrapped, wrapped_parts};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_wire as wire;

/// Actions at the beginning; each finding has its own.
const MAX_ACTIONS: usize = 4;
/// Names of what one action is about.
const MAX_SUBJECTS: usize = 4;

pub fn tree(explanation: &wire::Explanation, screen: &Screen) -> String {
    let mut text = String::new();
    if let Some(subject) = &explanation.subject {
        let kind = match subject.kind() {
            wire::SubjectKind::Drive => "drive",
            wire::SubjectKind::Volume => "volume",
            wire::SubjectKind::Source => "source",
            _ => "device",
        };
        let title = match subject.name.as_str() {
            "" => format!("{kind} {}", subject.id),
            name if name == subject.id => format!("{kind} {name}"),
            name => format!("{kind} {name} ({})", subject.id),
        };
        let title = [Part::new("", escape_control(&title), Tone::Strong)];
        text.push_str(&wrapped_parts(&title, "", "  ", screen));
    }
    let actions = actions(explanation, screen);
    if !actions.is_empty() {
        text.push_str(&actions);
        text.push('\n');
    }
    for order in explanation.drives.iter().filter_map(|it| it.maintenance_order.as_ref()) {
        text.push_str(&maintenance::one(order, screen));
    }
    let sentences: BTreeSet<&str> =
        explanation.volumes.iter().map(|volume| volume.redundancy.as_str()).collect();
    for sentence in sentences.into_iter().filter(|sentence| !sentence.is_empty()) {
        text.push_str(&wrapped(&screen.message(&format!("redundancy: {sentence}")), "  ", screen));
    }
    let ids: BTreeSet<&str> = explanation.chain.iter().map(|node| node.id.as_str()).collect();
    let mut above: BTreeMap<&str, Vec<&wire::ChainNode>> = BTreeMap::new();
    for node in &explanation.chain {
        for below in &node.stands_on {
            above.entry(below.as_str()).or_default().push(node);
        }
    }
    let roots = explanation
        .chain
        .iter()
        .filter(|node| !node.stands_on.iter().any(|below| ids.contains(below.as_str())));
    let mut printed = BTreeSet::new();
    for root in roots {
        branch(root, 0, &above, &mut printed, explanation.subject.as_ref(), screen, &mut text);
    }
    if explanation.findings.is_empty() {
        let (line, tone) = match unknown_count(&explanation.drives, &explanation.volumes) {
            None => ("no findings".to_owned(), Tone::Good),
            Some(unknown) => (format!("no findings, but {unknown}"), Tone::Warning),
        };
        text.push_str(&format!("\n{}\n", screen.paint(tone, line)));
        for (why, names) in unknown_by_reason(&explanation.drives, &explanation.volumes) {
            text.push_str(&wrapped(
                &format!("{}: {}", names.join(", "), screen.local_times(&why)),
                "    ",
                screen,
            ));
        }
    } else {
        let mut all: Vec<wire::Finding> =
            explanation.findings.iter().map(without_checkers_output).collect();
        // An older daemon lists the worst first.
        findings::sort_lowest_first(&mut all);
        text.push_str(&findings::in_full(&all, screen));
    }
    text.push_str(&checks::checks_of_subject(&explanation.checks, screen));
    text
}

/// The advice about the drives, then what to do about other findings that are not only consequences.
fn actions(explanation: &wire::Explanation, screen: &Screen) -> String {
    let advice = explanation.advice.iter().map(|advice| {
        let (_, tone) = health(advice.health);
        (screen.message(&advice.sentence), tone)
    });
    let mut lines: Vec<(String, Tone)> = advice.collect();
    // What is to be done about a pool stands on each of its volumes.
    let mut by_action: Vec<(&str, BTreeSet<String>, Tone)> = Vec::new();
    for finding in &explanation.findings {
        let is_of_drive =
            finding.subject.as_ref().is_some_and(|it| it.kind() == wire::SubjectKind::Drive);
        let has_advice = !explanation.advice.is_empty();
        let follows = !finding.follows.is_empty()
            || finding.reason.parse() == Ok(Reason::DriveFailing) && has_advice;
        let is_counted = finding.is_counted() && finding.severity() > wire::Severity::Info;
        let action = findings::action(finding);
        if !is_counted || follows || is_of_drive && has_advice || action.is_empty() {
            continue;
        }
        // The advice about a drive has what is to do about the array that lost it.
        if lines.iter().any(|(shown, _)| shown.contains(&screen.message(action))) {
            continue;
        }
        let subject = findings::subject(finding);
        match by_action.iter_mut().find(|(known, ..)| *known == action) {
            Some((_, subjects, _)) => {
                subjects.insert(subject);
            }
            None => by_action.push((action, BTreeSet::from([subject]), severity(finding).1)),
        }
    }
    lines.extend(by_action.into_iter().map(|(action, subjects, tone)| {
        let more = match subjects.len().saturating_sub(MAX_SUBJECTS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown: Vec<String> = subjects.into_iter().take(MAX_SUBJECTS).collect();
        (screen.message(&format!("{}{more}: {action}", shown.join(", "))), tone)
    }));
    let more = lines.len().saturating_sub(MAX_ACTIONS);
    lines.truncate(MAX_ACTIONS);
    if more > 0 {
        lines.push((format!("and {more} more, below"), Tone::Plain));
    }
    lines
        .into_iter()
        .map(|(line, tone)| wrapped_parts(&[Part::new("", line, tone)], "", "  ", screen))
        .collect()
}

/// The lines that a check found are evidence as well: the command that shows them is in their place.
fn without_checkers_output(finding: &wire::Finding) -> wire::Finding {
    let mut finding = finding.clone();
    let mut shown: BTreeSet<String> = BTreeSet::new();
    finding.evidence.retain_mut(|evidence| {
        let Some(check) = check_id(&evidence.source) else {
            return true;
        };
        evidence.text = format!("diskvitals checks {check}");
        shown.insert(evidence.source.clone())
    });
    finding
}

/// Of `e2fsck -fn (live, check 0123456789ab)`.
fn check_id(source: &str) -> Option<&str> {
    let (_, id) = source.strip_suffix(')')?.rsplit_once("check ")?;
    (id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
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
    let first = printed.insert(&node.id);
    let is_subject = subject
        .is_some_and(|subject| node.id.split_once(':').is_some_and(|(_, id)| id == subject.id));
    let name_tone = match is_subject {
        true => Tone::Strong,
        false => Tone::Plain,
    };
    let mut parts = vec![
        Part::new("", escape_control(&node.kind), Tone::Plain),
        Part::new(" ", escape_control(&node.name), name_tone),
    ];
    let (word_of_health, tone) = health(node.health);
    if word_of_health != "-" {
        parts.push(Part::new("  ", word_of_health.to_owned(), tone));
    }
    if !first {
        parts.push(Part::new("  ", "(see above)".to_owned(), Tone::Plain));
    } else if !node.detail.is_empty() {
        let detail = screen.message(&node.detail);
        parts.push(Part::new("  ", detail, Tone::Faint));
    }
    let indent = "  ".repeat(depth);
    let rest = "  ".repeat(depth + 2);
    text.push_str(&wrapped_parts(&parts, &indent, &rest, screen));
    if !first {
        return;
    }
    for next in above.get(node.id.as_str()).into_iter().flatten() {
        branch(next, depth + 1, above, printed, subject, screen, text);
    }
}
