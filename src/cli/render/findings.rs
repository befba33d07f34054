//! Findings: a table in the daemon's order (worst first), each in full with its evidence.

use crate::api::wire;
use crate::cli::render::{heading, wrapped};
use crate::cli::screen::{Screen, Tone, enum_label, escape_control, severity};
use crate::cli::table::{Cells, Column, column, plain, table as layout};
use crate::model::reason::Reason;

const COLUMNS: [Column; 6] = [
    column("FINDING", 0, 0),
    column("SEVERITY", 0, 0),
    column("REASON", 0, 0),
    column("SUBJECT", 16, 2),
    column("SINCE", 0, 3),
    column("MESSAGE", 20, 1),
];

pub(crate) fn table(findings: &[wire::Finding], screen: &Screen) -> String {
    if findings.is_empty() {
        return format!("{}\n", screen.paint(Tone::Good, "no findings"));
    }
    let rows = findings.iter().map(|finding| row(finding, screen));
    layout(&COLUMNS, rows, screen)
}

fn row(finding: &wire::Finding, screen: &Screen) -> Cells {
    let (word_of_severity, tone) = severity(finding);
    vec![
        plain(&finding.id),
        (word_of_severity.to_owned(), tone),
        (finding.reason.clone(), tone),
        plain(subject(finding)),
        plain(screen.ago(finding.since.as_ref())),
        plain(&finding.message),
    ]
}

pub(crate) fn subject(finding: &wire::Finding) -> String {
    let Some(subject) = &finding.subject else {
        return "-".to_owned();
    };
    match subject.kind() {
        wire::SubjectKind::Device => format!("device {}", subject.id),
        _ => subject.id.clone(),
    }
}

/// All findings with their evidence; empty without findings.
pub(crate) fn in_full(findings: &[wire::Finding], screen: &Screen) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let all: String = findings.iter().map(|it| one(it, screen)).collect();
    format!("\n{}{all}", heading("findings", screen))
}

/// The finding, its evidence verbatim, the condition that clears it, and the action.
pub(crate) fn one(finding: &wire::Finding, screen: &Screen) -> String {
    let (word_of_severity, tone) = severity(finding);
    let status = enum_label(finding.status().as_str_name(), "FINDING_STATUS_");
    let mut text = format!(
        "{} {} ({status}), {}, {}\n",
        screen.paint(tone, word_of_severity),
        screen.paint(Tone::Strong, escape_control(&finding.reason)),
        escape_control(&subject(finding)),
        screen.ago(finding.since.as_ref()),
    );
    text.push_str(&wrapped(&finding.message, "    ", screen));
    let count = if finding.count > 1 {
        format!(
            ", seen {} times, last {}",
            finding.count,
            screen.ago(finding.last_seen.as_ref())
        )
    } else {
        String::new()
    };
    text.push_str(&format!(
        "    finding {}, since {}{count}\n",
        finding.id,
        screen.date_time(finding.since.as_ref())
    ));
    for evidence in &finding.evidence {
        text.push_str(&format!(
            "    evidence  {}, {}\n",
            escape_control(&evidence.source),
            screen.date_time(evidence.time.as_ref())
        ));
        // Evidence is verbatim: neither cut nor wrapped.
        for line in evidence.text.lines() {
            text.push_str(&format!("              | {}\n", escape_control(line)));
        }
    }
    if let Some(cleared) = &finding.cleared {
        text.push_str(&format!(
            "    cleared   {}: {}\n",
            screen.ago(cleared.time.as_ref()),
            escape_control(&cleared.why)
        ));
        return text;
    }
    if !finding.clears_when.is_empty() {
        text.push_str(&labelled_text("clears", &finding.clears_when, screen));
    }
    // An older daemon does not send it, a newer one may have reasons that this program lacks.
    let known = finding.reason.parse::<Reason>().map(Reason::action);
    let action = match finding.action.as_str() {
        "" => known.unwrap_or_default(),
        action => action,
    };
    if !action.is_empty() {
        text.push_str(&labelled_text("to do", action, screen));
    }
    if let Some(ack) = &finding.acknowledged {
        text.push_str(&format!(
            "    acked     by {}, {}: {}\n",
            escape_control(&ack.by),
            screen.ago(ack.time.as_ref()),
            escape_control(&ack.note)
        ));
    }
    text
}

fn labelled_text(label: &str, text: &str, screen: &Screen) -> String {
    let indent = " ".repeat(14);
    let wrapped = wrapped(text, &indent, screen);
    format!(
        "    {label:<10}{}",
        wrapped.strip_prefix(&indent).unwrap_or(&wrapped)
    )
}
