//! Findings: a table in the daemon's order (worst first), each in full with its evidence.

use crate::api::wire;
use crate::cli::render::{heading, wrapped};
use crate::cli::screen::{Screen, Tone, enum_label, escape_control, severity};
use crate::cli::table::{Cells, Column, column, plain, table_rows};
use crate::model::reason::Reason;

const COLUMNS: [Column; 6] = [
    column("SEVERITY", 0, 0),
    column("REASON", 0, 0),
    column("SUBJECT", 12, 0),
    column("SINCE", 0, 1),
    column("FINDING", 0, 2),
    column("MESSAGE", 0, 0),
];

/// The message stands in its column if all of it fits, otherwise on a line of its own.
pub(crate) fn table(findings: &[wire::Finding], screen: &Screen) -> String {
    if findings.is_empty() {
        return format!("{}\n", screen.paint(Tone::Good, "no findings"));
    }
    let rows = || findings.iter().map(|finding| row(finding, screen));
    let unlimited = Screen {
        width: None,
        ..screen.clone()
    };
    let whole = table_rows(&COLUMNS, rows(), &unlimited);
    let limit = screen.width.map_or(usize::MAX, usize::from);
    let fits = |row: &String| escaped_width(row) <= limit;
    if whole.iter().all(fits) {
        return whole.concat();
    }
    let (_, columns) = COLUMNS.split_last().unwrap_or((&COLUMNS[0], &COLUMNS));
    let mut lines = table_rows(columns, rows(), screen).into_iter();
    let title = lines.next().unwrap_or_default();
    let with_message = lines.zip(findings).map(|(line, finding)| {
        let message = wrapped(&message(finding, screen), "    ", screen);
        line + &message
    });
    title + &with_message.collect::<String>()
}

/// Characters of a line without its colors.
fn escaped_width(line: &str) -> usize {
    let mut pieces = line.trim_end().split('\u{1b}');
    let first = pieces.next().unwrap_or_default().chars().count();
    let rest = pieces.filter_map(|piece| Some(piece.split_once('m')?.1.chars().count()));
    first + rest.sum::<usize>()
}

fn row(finding: &wire::Finding, screen: &Screen) -> Cells {
    let (word_of_severity, tone) = severity(finding);
    vec![
        (word_of_severity.to_owned(), tone),
        (finding.reason.clone(), tone),
        plain(subject(finding)),
        plain(screen.ago(finding.since.as_ref())),
        plain(&finding.id),
        plain(message(finding, screen)),
    ]
}

/// The name that people know; the id, if an older daemon sends no name.
pub(crate) fn subject(finding: &wire::Finding) -> String {
    let Some(subject) = &finding.subject else {
        return "-".to_owned();
    };
    let name = match subject.name.as_str() {
        "" => &subject.id,
        name => name,
    };
    match subject.kind() {
        wire::SubjectKind::Device => format!("device {name}"),
        _ => name.to_owned(),
    }
}

pub(crate) fn message(finding: &wire::Finding, screen: &Screen) -> String {
    message_about(&finding.message, finding.subject.as_ref(), screen)
}

/// The message with local times. The daemon writes `drive ID (sda)`; people call it sda.
pub(crate) fn message_about(
    message: &str,
    subject: Option<&wire::Subject>,
    screen: &Screen,
) -> String {
    let text = screen.local_times(message);
    match subject {
        Some(it) if it.kind() == wire::SubjectKind::Drive && !it.name.is_empty() => {
            let in_full = format!("drive {} ({})", it.id, it.name);
            text.replacen(&in_full, &it.name, 1)
        }
        _ => text,
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
    text.push_str(&wrapped(
        &screen.local_times(&finding.message),
        "    ",
        screen,
    ));
    let count = if finding.count > 1 {
        format!(
            ", seen {} times, last {}",
            finding.count,
            screen.ago(finding.last_seen.as_ref())
        )
    } else {
        String::new()
    };
    let about = match &finding.subject {
        Some(subject) if !subject.name.is_empty() && subject.name != subject.id => {
            format!(" about {}", escape_control(&subject.id))
        }
        _ => String::new(),
    };
    text.push_str(&format!(
        "    finding {}{about}, since {}{count}\n",
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
            screen.message(&cleared.why)
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
