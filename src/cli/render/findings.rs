//! Findings: a table in the daemon's order (worst first), each in full with its evidence.

use crate::words::severity;
use diskvitals_finding::reason::Reason;
use diskvitals_terminal::layout::{NARROW, Part, heading, wrapped, wrapped_parts};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Column, column, plain, table_rows, toned};
use diskvitals_wire as wire;
use diskvitals_wire::FindingStatus as Status;

/// Of the lines below a finding.
const INDENT: &str = "    ";

const COLUMNS: [Column<wire::Finding>; 6] = [
    column("SEVERITY", 0, 0, |it, _| toned(severity(it))),
    column("REASON", 0, 0, |it, _| toned((&it.reason, severity(it).1))),
    column("SUBJECT", 12, 0, |it, _| plain(subject(it))),
    column("SINCE", 0, 1, |it, screen| plain(screen.ago(it.since.as_ref()))),
    column("FINDING", 0, 2, |it, _| plain(&it.id)),
    column("MESSAGE", 0, 0, |it, screen| plain(message(it, screen))),
];

/// The message stands in its column if all of it fits, otherwise on a line of its own.
pub fn table(findings: &[wire::Finding], screen: &Screen) -> String {
    if findings.is_empty() {
        return format!("{}\n", screen.paint(Tone::Good, "no findings"));
    }
    let unlimited = Screen { width: None, ..screen.clone() };
    let whole = table_rows(&COLUMNS, findings, &unlimited);
    let limit = screen.width.map_or(usize::MAX, usize::from);
    let fits = |row: &String| escaped_width(row) <= limit;
    if whole.iter().all(fits) {
        return whole.concat();
    }
    let (_, columns) = COLUMNS.split_last().unwrap_or((&COLUMNS[0], &COLUMNS));
    let mut lines = table_rows(columns, findings, screen).into_iter();
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

/// The name that people know; the id, if an older daemon sends no name.
pub fn subject(finding: &wire::Finding) -> String {
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

pub fn message(finding: &wire::Finding, screen: &Screen) -> String {
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

/// Active ones first, of these what is below first: it often explains what is above. Otherwise the
/// order is kept, which is the daemon's.
pub(crate) fn sort_lowest_first(findings: &mut [wire::Finding]) {
    findings.sort_by_key(|finding| {
        let group = match (&finding.cleared, finding.is_counted()) {
            (Some(_), _) => 2,
            (None, false) => 1,
            (None, true) => 0,
        };
        let layer = match finding.subject.as_ref().map(|subject| subject.kind()) {
            Some(wire::SubjectKind::Drive) => 0,
            Some(wire::SubjectKind::Device) => 1,
            _ => 2,
        };
        (group, layer)
    });
}

/// All findings with their evidence; empty without findings.
pub(crate) fn in_full(findings: &[wire::Finding], screen: &Screen) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let all: String = findings.iter().map(|it| one(it, screen)).collect();
    format!("\n{}{all}", heading("findings", screen))
}

/// The finding, what to do, its evidence verbatim, and the condition that clears it.
pub fn one(finding: &wire::Finding, screen: &Screen) -> String {
    let (word_of_severity, tone) = severity(finding);
    // The severity says the rest.
    let status = match finding.status() {
        Status::Inaccessible => "(data not accessible), ",
        Status::DataLoss => "(data lost), ",
        Status::Information | Status::Degraded | Status::Unspecified => "",
    };
    let about = format!(
        "{status}{}, {}",
        escape_control(&subject(finding)),
        screen.ago(finding.since.as_ref()),
    );
    let title = [
        Part::new("", word_of_severity.to_owned(), tone),
        Part::new(" ", escape_control(&finding.reason), Tone::Strong),
        Part::new(
            match status.is_empty() {
                true => ", ",
                false => " ",
            },
            about,
            Tone::Plain,
        ),
    ];
    let mut text = wrapped_parts(&title, "", INDENT, screen);
    text.push_str(&wrapped(&screen.local_times(&finding.message), INDENT, screen));
    if let Some(cleared) = &finding.cleared {
        text.push_str(&about_it(finding, screen));
        text.push_str(&evidence(finding, screen));
        let when = screen.ago(cleared.time.as_ref());
        let why = format!("{when}: {}", screen.local_times(&cleared.why));
        return text + &labelled_text("cleared", &why, screen);
    }
    if let Some(ack) = &finding.acknowledged {
        let who = acknowledged(ack, screen);
        text.push_str(&labelled_text("acked", &who, screen));
    }
    let action = action(finding);
    if !action.is_empty() {
        text.push_str(&labelled_text("to do", action, screen));
    }
    text.push_str(&about_it(finding, screen));
    text.push_str(&evidence(finding, screen));
    if !finding.clears_when.is_empty() {
        text.push_str(&labelled_text("clears", &finding.clears_when, screen));
    }
    text
}

/// An older daemon does not send it, a newer one may have reasons that this program lacks.
pub fn action(finding: &wire::Finding) -> &str {
    let known = finding.reason.parse::<Reason>().map(Reason::action);
    match finding.action.as_str() {
        "" => known.unwrap_or_default(),
        action => action,
    }
}

/// `by root, 3 min ago: the replacement is ordered`.
pub fn acknowledged(ack: &wire::Acknowledgement, screen: &Screen) -> String {
    format!("by {}, {}: {}", ack.by, screen.ago(ack.time.as_ref()), ack.note)
}

/// Its id and times.
fn about_it(finding: &wire::Finding, screen: &Screen) -> String {
    let count = if finding.count > 1 {
        format!(", seen {} times, last {}", finding.count, screen.ago(finding.last_seen.as_ref()))
    } else {
        String::new()
    };
    let about = match &finding.subject {
        Some(subject) if !subject.name.is_empty() && subject.name != subject.id => {
            format!(" about {}", escape_control(&subject.id))
        }
        _ => String::new(),
    };
    let line = format!(
        "finding {}{about}, since {}{count}",
        escape_control(&finding.id),
        screen.date_time(finding.since.as_ref())
    );
    wrapped(&line, INDENT, screen)
}

/// Verbatim: nothing is cut, and only spaces become line breaks.
fn evidence(finding: &wire::Finding, screen: &Screen) -> String {
    let mut text = String::new();
    for evidence in &finding.evidence {
        let source = format!("{}, {}", evidence.source, screen.date_time(evidence.time.as_ref()));
        text.push_str(&labelled_text("evidence", &source, screen));
        for line in evidence.text.lines() {
            let line = [Part::new("", escape_control(line), Tone::Plain)];
            let (first, rest) = ("              | ", "                ");
            text.push_str(&wrapped_parts(&line, first, rest, screen));
        }
    }
    text
}

/// A label in a column of its own; on a narrow screen in front of the text.
fn labelled_text(label: &str, text: &str, screen: &Screen) -> String {
    let first = format!("    {label:<10}");
    if screen.width.is_some_and(|width| width < NARROW) {
        return wrapped(&format!("{label}: {text}"), INDENT, screen);
    }
    let line = [
        Part::new("", format!("{label:<9}"), Tone::Plain),
        Part::new(" ", escape_control(text), Tone::Plain),
    ];
    let rest = " ".repeat(first.len());
    wrapped_parts(&line, INDENT, &rest, screen)
}
