//! Causes: a block each, the names that people know first. BAD takes four lines on a wide screen,
//! others three, and those that do not count two; one more where the message is about redundancy.

use crate::render::findings::{self, acknowledged, message_about};
use crate::words::severity_word;
use diskvitals_finding::reason::NO_REDUNDANCY;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::reason::last_copy_words;
use diskvitals_model::label;
use diskvitals_terminal::layout::{
    NARROW, Part, heading as render_heading, wrapped, wrapped_parts,
};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::width::columns;
use diskvitals_terminal::width::shortened;
use diskvitals_text::naming::slot_name;
use diskvitals_wire as wire;
use diskvitals_wire::cause::Kind;
use diskvitals_wire::cause_hit::Kind as HitKind;

/// A name takes at most this share of a line.
const NAME_SHARE: usize = 2;
const INDENT: &str = "    ";

/// `findings`: who acknowledged it, and why, is in these.
pub fn block(cause: &wire::Cause, findings: &[wire::Finding], screen: &Screen) -> String {
    block_of(cause, findings, screen, Extent::OneLine)
}

/// The same with every line in full.
pub(crate) fn whole_block(
    cause: &wire::Cause,
    findings: &[wire::Finding],
    screen: &Screen,
) -> String {
    block_of(cause, findings, screen, Extent::Whole)
}

/// How much of a message, of the hits and of the advice is shown on a wide screen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// What fits on one line: `explain` has the whole text.
    OneLine,
    Whole,
}

fn block_of(
    cause: &wire::Cause,
    findings: &[wire::Finding],
    screen: &Screen,
    extent: Extent,
) -> String {
    // A notice hits nothing, and a mount hits itself.
    let is_notice = cause.severity() == wire::Severity::Info;
    let has_hits = !is_notice && !matches!(cause.kind(), Kind::Mount | Kind::Source);
    let hits = match extent {
        Extent::OneLine => hits(cause, screen),
        Extent::Whole => whole_hits(cause, screen),
    }
    .filter(|_| has_hits);
    // Where the last copy is decides what may be pulled.
    let has_message = !has_hits || cause.kind() == Kind::Device || leads(cause);
    let (mut text, hidden) = heading(cause, screen);
    if has_message {
        let message = message_about(&cause.message, cause.subject.as_ref(), screen);
        text.push_str(&paragraph(&message, screen, extent));
    }
    let advice = match extent {
        Extent::OneLine => advice(cause, screen),
        Extent::Whole => paragraph(&cause.action, screen, extent),
    };
    let is_bare = !has_message && hits.is_none();
    text.push_str(hits.as_deref().unwrap_or_default());
    if is_bare {
        text.push_str(&advice);
    }
    text.push_str(&acknowledgements(cause, findings, screen));
    if cause.counted && !is_bare {
        text.push_str(&advice);
    }
    if is_urgent(cause) {
        let mut command = format!("  diskvitals explain {}", escape_control(&cause.explain));
        if !hidden.is_empty() {
            // A shell takes the rest as a comment.
            command.push_str("  # also ");
            let limit = screen.width.map_or(usize::MAX, usize::from);
            let room = limit.saturating_sub(columns(&command));
            command.push_str(&fitting(&hidden, room));
        }
        text.push_str(&format!("{}\n", screen.paint(Tone::Faint, command)));
    }
    text
}

/// The cause with nothing cut: what to do, what is on it, and its findings with their evidence.
pub(crate) fn in_full(cause: &wire::Cause, findings: &[wire::Finding], screen: &Screen) -> String {
    let (word, tone) = word(cause);
    let slot = match slot_name(&cause.slot) {
        "" => String::new(),
        slot => format!("slot {slot}"),
    };
    let parts = [
        (&cause.name, Tone::Strong),
        (&slot, Tone::Plain),
        (&cause.model, Tone::Plain),
        (&cause.serial, Tone::Plain),
        (&cause.detail, Tone::Plain),
        (&word.to_owned(), tone),
        (&reasons(cause).join(", "), Tone::Plain),
    ];
    let parts: Vec<Part> = parts
        .into_iter()
        .filter(|(text, _)| !text.is_empty())
        .map(|(text, tone)| Part::new("  ", escape_control(text), tone))
        .collect();
    let mut text = wrapped_parts(&parts, "", INDENT, screen);
    text.push_str(&acknowledgements(cause, findings, screen));
    let message = message_about(&cause.message, cause.subject.as_ref(), screen);
    let since = screen.date_time(cause.since.as_ref());
    for line in [&cause.action, &message, &format!("since {since}")] {
        if !line.is_empty() {
            text.push_str(&wrapped(&screen.local_times(line), "  ", screen));
        }
    }
    text.push_str(&whole_hits(cause, screen).unwrap_or_default());
    let command = format!("  diskvitals explain {}", escape_control(&cause.explain));
    text.push_str(&format!("{}\n", screen.paint(Tone::Faint, command)));
    let of = |list: &[wire::CauseFinding]| -> Vec<wire::Finding> {
        let ids = list.iter().map(|it| &it.finding_id);
        ids.filter_map(|id| findings.iter().find(|it| it.id == *id)).cloned().collect()
    };
    text.push_str(&findings::in_full(&of(&cause.findings), screen));
    let consequences = of(&cause.consequences);
    if !consequences.is_empty() {
        let title = render_heading("what follows from it", screen);
        text.push_str(&format!("\n{title}{}", findings::table(&consequences, screen)));
    }
    text
}

fn acknowledgements(cause: &wire::Cause, findings: &[wire::Finding], screen: &Screen) -> String {
    let lines = acknowledged_by(cause, findings, screen);
    lines.iter().map(|it| wrapped(it, "  ", screen)).collect()
}

/// `acknowledged by root, 3 min ago: the replacement is ordered`, once for each note.
pub(crate) fn acknowledged_by(
    cause: &wire::Cause,
    findings: &[wire::Finding],
    screen: &Screen,
) -> Vec<String> {
    let mut notes: Vec<(&str, &str)> = Vec::new();
    let mut lines = Vec::new();
    for it in cause.findings.iter().filter(|it| it.acknowledged) {
        let finding = findings.iter().find(|finding| finding.id == it.finding_id);
        let Some(ack) = finding.and_then(|finding| finding.acknowledged.as_ref()) else {
            continue;
        };
        if !notes.contains(&(&ack.by, &ack.note)) {
            notes.push((&ack.by, &ack.note));
            lines.push(format!("acknowledged {}", acknowledged(ack, screen)));
        }
    }
    lines
}

/// The order of ListCauses, for causes that are not from its list.
pub fn rank(cause: &wire::Cause) -> impl Ord + use<> {
    let name = match cause.kind() {
        // A missing drive keeps its place.
        Kind::Drive => cause.name.strip_prefix("was ").unwrap_or(&cause.name),
        _ => &cause.name,
    };
    (
        !cause.counted,
        std::cmp::Reverse((cause.severity, leads(cause))),
        cause.kind,
        label::sort_key(name),
        cause.id.clone(),
    )
}

/// Whether it comes first among equally severe ones.
fn leads(cause: &wire::Cause) -> bool {
    let mut findings = cause.findings.iter().chain(&cause.consequences);
    findings.any(|it| it.severity == cause.severity && it.reason.parse().is_ok_and(Reason::leads))
}

pub fn is_urgent(cause: &wire::Cause) -> bool {
    cause.counted && cause.severity() == wire::Severity::Bad
}

/// The severity; of one that does not count, why.
pub fn word(cause: &wire::Cause) -> (&'static str, Tone) {
    match (cause.counted, cause.severity()) {
        (true, severity) => severity_word(severity),
        (false, _) if cause.findings.iter().all(|finding| finding.acknowledged) => {
            ("acked", Tone::Faint)
        }
        (false, _) => ("maintenance", Tone::Faint),
    }
}

/// `sda  slot 00  MODEL  SERIAL  BAD  SmartFailing, PendingSectors (24, +8 today)`. Without enough room
/// the model is left out first, then the last reasons, which are returned; on a narrow screen the line
/// is broken instead.
fn heading(cause: &wire::Cause, screen: &Screen) -> (String, Vec<String>) {
    let (word, tone) = word(cause);
    let limit = screen.width.map_or(usize::MAX, usize::from);
    let short = |text: &str| shortened(text, limit / NAME_SHARE);
    let slot = match slot_name(&cause.slot) {
        "" => String::new(),
        slot => format!("slot {}", short(slot)),
    };
    let mut parts = vec![
        (short(&cause.name), Tone::Strong),
        (slot, Tone::Plain),
        (short(&cause.model), Tone::Plain),
        (short(&cause.serial), Tone::Plain),
        (shortened(&cause.detail, limit.saturating_sub(INDENT.len())), Tone::Plain),
        (word.to_owned(), tone),
    ];
    let reasons = reasons(cause);
    let all_reasons = reasons.join(", ");
    if width(&parts) + 2 + columns(&all_reasons) > limit {
        parts[2].0.clear();
    }
    let mut text = joined(&parts, screen);
    let room = limit.saturating_sub(width(&parts) + 2);
    if columns(&all_reasons) <= room {
        return (format!("{text}  {all_reasons}\n"), Vec::new());
    }
    if limit < usize::from(NARROW) {
        text.push('\n');
        text.push_str(&wrapped(&all_reasons, INDENT, screen));
        return (text, Vec::new());
    }
    let room = match room >= limit / 3 {
        true => {
            text.push_str("  ");
            room
        }
        false => {
            text.push_str(&format!("\n{INDENT}"));
            limit - INDENT.len()
        }
    };
    // The last line of an urgent one has the others.
    let reserved = if is_urgent(cause) { 0 } else { MORE.len() };
    let (shown, hidden) = reasons.split_at(count_fitting(&reasons, room, reserved));
    text.push_str(&shown.join(", "));
    if !hidden.is_empty() && !is_urgent(cause) {
        text.push_str(&format!(", +{} more", hidden.len()));
    }
    (text + "\n", hidden.to_vec())
}

fn width(parts: &[(String, Tone)]) -> usize {
    let shown = parts.iter().filter(|(text, _)| !text.is_empty());
    let widths = shown.map(|(text, _)| columns(text) + 2);
    widths.sum::<usize>().saturating_sub(2)
}

/// The parts on one line; on several, where the screen is too narrow.
fn joined(parts: &[(String, Tone)], screen: &Screen) -> String {
    let limit = screen.width.map_or(usize::MAX, usize::from);
    let (mut lines, mut used) = (String::new(), 0);
    for (text, tone) in parts.iter().filter(|(text, _)| !text.is_empty()) {
        let length = columns(text);
        if used > 0 && used + 2 + length > limit {
            lines.push_str(&format!("\n{INDENT}"));
            used = INDENT.len();
        } else if used > 0 {
            lines.push_str("  ");
            used += 2;
        }
        lines.push_str(&screen.paint(*tone, text));
        used += length;
    }
    lines
}

const MORE: &str = ", +10 more";

/// How many of the reasons fit, with some space after them unless these are all; at least one.
fn count_fitting(reasons: &[String], room: usize, reserved: usize) -> usize {
    let mut used = 0;
    for (at, reason) in reasons.iter().enumerate() {
        used += columns(reason) + if at > 0 { 2 } else { 0 };
        let others = match at + 1 == reasons.len() {
            true => 0,
            false => reserved,
        };
        if at > 0 && used + others > room {
            return at;
        }
    }
    reasons.len()
}

/// The first reasons, and the number of the others.
fn fitting(reasons: &[String], room: usize) -> String {
    let (shown, hidden) = reasons.split_at(count_fitting(reasons, room, MORE.len()));
    match hidden.len() {
        0 => shown.join(", "),
        more => format!("{}, +{more} more", shown.join(", ")),
    }
}

/// Each reason once, with its number; escaped.
pub fn reasons(cause: &wire::Cause) -> Vec<String> {
    let mut shown: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    for finding in &cause.findings {
        if shown.contains(&finding.reason.as_str()) {
            continue;
        }
        shown.push(&finding.reason);
        let grown = (finding.grown_today > 0).then(|| format!("+{} today", finding.grown_today));
        let figures: Vec<String> = Some(finding.figure.clone())
            .filter(|figure| !figure.is_empty())
            .into_iter()
            .chain(grown)
            .collect();
        let reason = escape_control(&finding.reason);
        texts.push(match figures.is_empty() {
            true => reason,
            false => format!("{reason} ({})", escape_control(&figures.join(", "))),
        });
    }
    texts
}

/// What would be lost, what would be lost by the next failure, and what not:
/// `hits /  /srv/bay0  pod db/mysql-0; covered: /home`, as many as fit on the line.
pub(super) fn hits(cause: &wire::Cause, screen: &Screen) -> Option<String> {
    let limit = screen.width.map_or(usize::MAX, usize::from);
    // The message says it.
    let is_said = leads(cause) && cause.message.contains(NO_REDUNDANCY);
    let first = match is_only_on_it(cause) {
        true => "  on it: ",
        false => "  hits ",
    };
    let last_copy = last_copy_of(cause);
    let (mut line, mut shown, mut last) = (String::new(), 0, None);
    for (at, hit) in cause.hits.iter().enumerate() {
        let share = (hit.covered, hit.last_copy);
        let before = match (line.is_empty(), share) {
            _ if last == Some(share) => "  ".to_owned(),
            (true, (false, _)) => first.to_owned(),
            (true, (true, true)) if is_said => "  on it: ".to_owned(),
            (true, (true, true)) => format!("  {last_copy}: "),
            (true, (true, false)) => "  covered by redundancy: ".to_owned(),
            (false, (true, true)) => format!("; {last_copy}: "),
            (false, _) => "; covered: ".to_owned(),
        };
        let name = hit_name(hit, limit);
        // Space for the number of those that do not fit.
        let reserved = match at + 1 == cause.hits.len() && cause.more_hits == 0 {
            true => 0,
            false => "  +1000 more".len(),
        };
        let room = limit.saturating_sub(columns(&line) + reserved);
        if shown > 0 && columns(&before) + columns(&name) > room {
            break;
        }
        line.push_str(&before);
        line.push_str(&name);
        last = Some(share);
        shown += 1;
    }
    let more = cause.hits.len() as u64 - shown + cause.more_hits;
    if more > 0 {
        line.push_str(&format!("  +{more} more"));
    }
    (shown > 0).then(|| line + "\n")
}

fn whole_hits(cause: &wire::Cause, screen: &Screen) -> Option<String> {
    let unlimited = Screen { width: None, ..screen.clone() };
    hits(cause, &unlimited).map(|hits| wrapped(hits.trim(), "  ", screen))
}

fn hit_name(hit: &wire::CauseHit, limit: usize) -> String {
    let name = shortened(&hit.name, limit / NAME_SHARE);
    let kind = match hit.kind() {
        HitKind::Pod => "pod ",
        HitKind::Pv => "pv ",
        HitKind::Swap => "swap on ",
        HitKind::Mount | HitKind::Device | HitKind::Unspecified => "",
    };
    let reasons = hit_reasons(hit).join(", ");
    match reasons.is_empty() {
        true => format!("{kind}{name}"),
        false => format!("{kind}{name} ({})", escape_control(&reasons)),
    }
}

/// Whether the drive's findings have none of its volumes as their consequence: wear, heat and other
/// hints for planning.
pub(crate) fn is_only_on_it(cause: &wire::Cause) -> bool {
    cause.kind() == Kind::Drive && cause.consequences.is_empty()
}

/// What is said of volumes that the next failure takes away.
pub(crate) fn last_copy_of(cause: &wire::Cause) -> &'static str {
    let findings = cause.findings.iter().chain(&cause.consequences);
    last_copy_words(findings.map(|it| it.reason.as_str()))
}

/// Without the reason that `no redundancy left` says.
pub(crate) fn hit_reasons(hit: &wire::CauseHit) -> Vec<String> {
    let is_said = |reason: &str| hit.last_copy && reason.parse().is_ok_and(Reason::leads);
    let reasons = hit.reasons.iter().filter(|reason| !is_said(reason));
    reasons.cloned().collect()
}

/// The action; on a wide screen the sentences of it that fit on one line.
fn advice(cause: &wire::Cause, screen: &Screen) -> String {
    let text = &cause.action;
    let Some(width) = screen.width.filter(|width| *width >= NARROW) else {
        return paragraph(text, screen, Extent::OneLine);
    };
    let room = usize::from(width) - INDENT.len() / 2;
    let ends = text.match_indices(". ").map(|(at, _)| at + 1);
    let fits = |end: &usize| columns(&text[..*end]) <= room;
    let end = ends.chain([text.len()]).take_while(fits).last();
    let end = end.unwrap_or(text.len());
    paragraph(&text[..end], screen, Extent::OneLine)
}

fn paragraph(text: &str, screen: &Screen, extent: Extent) -> String {
    let text = screen.local_times(text);
    match screen.width {
        Some(width) if width >= NARROW && extent == Extent::OneLine => {
            format!("  {}\n", shortened(&text, usize::from(width) - 2))
        }
        Some(_) => wrapped(&text, "  ", screen),
        None => format!("  {}\n", escape_control(&text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_terminal::fixture::screen;

    fn cause(severity: wire::Severity, kind: Kind) -> wire::Cause {
        wire::Cause {
            name: "sda".into(),
            kind: kind.into(),
            severity: severity.into(),
            counted: true,
            message: "sda had something".into(),
            action: "Look at its power, adapter and firmware. This host has no other copy of what is on it: see that there is a backup. After a repair of the cause: `diskvitals ack sda --repaired --note TEXT`.".into(),
            hits: vec![wire::CauseHit {
                name: "/srv".into(),
                ..Default::default()
            }],
            explain: "sda".into(),
            ..Default::default()
        }
    }

    #[test]
    fn every_cause_that_counts_has_one_line_of_advice_made_of_whole_sentences() {
        for severity in [wire::Severity::Suspect, wire::Severity::Bad] {
            for kind in [Kind::Drive, Kind::Mount, Kind::Array, Kind::Device] {
                for (width, expected) in [
                    (80, "  Look at its power, adapter and firmware."),
                    (
                        120,
                        "  Look at its power, adapter and firmware. This host has no other copy of what is on it: see that there is a backup.",
                    ),
                ] {
                    let text = block(&cause(severity, kind), &[], &screen(Some(width)));
                    let lines = text.lines().filter(|line| *line == expected);
                    assert_eq!(lines.count(), 1, "{kind:?} {width}: {text}");
                }
            }
        }
        let noted = wire::Cause { counted: false, ..cause(wire::Severity::Suspect, Kind::Drive) };
        let text = block(&noted, &[], &screen(Some(80)));
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
