//! The words of a notification: its title and its text, for people.
//!
//! In: items and the host's name. Out: lines of text, with times of the host's zone. Pure.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::message::{Hit, Item, Kind, Level, Transition};
use crate::node_state::{Counts, NodeCounts};
use diskvitals_finding::reason::NO_REDUNDANCY;
use diskvitals_finding::reason::last_copy_words;
use diskvitals_text::naming::slot_name;

/// Items with all details. The others have one line each.
const FULL_ITEMS: usize = 20;
const MAX_EVIDENCE: usize = 5;
const MAX_HITS: usize = 20;
const MAX_TITLE_NAMES: usize = 3;
/// The longest name, in characters. Names are of others: each is cut alone, so that none displaces
/// another.
const MAX_NAME: usize = 64;
const MAX_SHORT: usize = 32;
/// The longest line of what others wrote: a problem, a warning.
const MAX_LINE: usize = 300;
/// Items in the list at the beginning of a text.
const MAX_LISTED: usize = 8;

/// `[BAD] node7: sda (slot 03): SmartFailing and 1 more`. Of several items the worst that is not over,
/// and the names of the others.
pub(crate) fn title(kind: Kind, host: &str, severity: Level, items: &[Item]) -> String {
    let is_over = |item: &&Item| item.transition == Transition::Cleared;
    let open = items.iter().filter(|item| !is_over(item));
    let worst = open.rev().max_by_key(|item| item.rank());
    let mark = match (kind, worst) {
        (Kind::Test, _) => "test",
        (Kind::Digest, _) => "digest",
        (_, Some(worst)) => worst.severity.word(),
        (_, None) if !items.is_empty() => "cleared",
        _ => severity.word(),
    };
    let what = match (kind, worst.or(items.first())) {
        (Kind::Test, _) => "this is a test of diskvitals-notify".to_owned(),
        (Kind::DaemonSilent, _) => "diskvitalsd does not answer: no health is known".to_owned(),
        (Kind::DaemonBack, _) => "diskvitalsd answers again".to_owned(),
        (_, None) => String::new(),
        (_, Some(first)) => {
            let held = match kind {
                Kind::Summary => "held back: ",
                _ => "",
            };
            format!("{held}{}{}", one(first), others(first, items))
        }
    };
    format!("[{mark}] {}: {what}", cut(host, MAX_NAME))
}

/// Beginning and end of a text that is too long: two paths or names often differ in their ends.
fn cut(text: &str, max: usize) -> String {
    let length = text.chars().count();
    if length <= max {
        return text.to_owned();
    }
    let tail = max / 3;
    let head = text.chars().take(max - tail - 1);
    let end = text.chars().skip(length - tail);
    head.chain(std::iter::once('…')).chain(end).collect()
}

fn cut_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|it| cut(it, MAX_NAME)).collect();
    texts.join(", ")
}

/// `; and 2 more: sdb, sdc`.
fn others(first: &Item, items: &[Item]) -> String {
    let mut known = std::collections::BTreeSet::from([first.name.as_str()]);
    let names = items.iter().map(|item| item.name.as_str());
    let names: Vec<&str> = names.filter(|name| known.insert(name)).collect();
    let shown = cut_all(names.iter().take(MAX_TITLE_NAMES).copied());
    match (items.len() - 1, names.is_empty()) {
        (0, _) => String::new(),
        (more, true) => format!("; and {more} more"),
        (more, false) if names.len() > MAX_TITLE_NAMES => {
            format!("; and {more} more: {shown} …")
        }
        (more, false) => format!("; and {more} more: {shown}"),
    }
}

/// `sda (slot 03) worse: SmartFailing and 1 more`.
fn one(item: &Item) -> String {
    let slot = match slot_name(&item.slot) {
        "" => String::new(),
        slot => format!(" (slot {})", cut(slot, MAX_SHORT)),
    };
    let transition = match item.transition {
        Transition::Raised => String::new(),
        Transition::Cleared if item.good => " is good again".to_owned(),
        other => format!(" {other}"),
    };
    let reasons = match item.reasons.as_slice() {
        [] => String::new(),
        [reason] => format!(": {}", cut(reason, MAX_NAME)),
        [reason, more @ ..] => {
            format!(": {} and {} more", cut(reason, MAX_NAME), more.len())
        }
    };
    let over = match item.transition {
        Transition::Cleared if item.good && !item.reasons.is_empty() => " cleared",
        _ => "",
    };
    let name = cut(&item.name, MAX_NAME);
    format!("{name}{slot}{transition}{reasons}{over}")
}

pub(crate) struct DigestText {
    pub level: Level,
    /// For the title.
    pub summary: String,
    /// The beginning; the problems follow.
    pub text: String,
    /// The end: texts of others may be in it.
    pub remarks: String,
}

pub(crate) struct Writer<'a> {
    pub zone: &'a TimeZone,
    pub host: &'a str,
}

impl Writer<'_> {
    pub(crate) fn items(&self, items: &[Item]) -> String {
        let mut text = String::new();
        // A chat shows only the beginning.
        if items.len() > 1 {
            for item in items.iter().take(MAX_LISTED) {
                let severity = item.severity.word();
                line(&mut text, format_args!("{severity} {}", one(item)));
            }
            let more = items.len().saturating_sub(MAX_LISTED);
            if more > 0 {
                line(&mut text, format_args!("and {more} more"));
            }
            text.push('\n');
        }
        for item in items.iter().take(FULL_ITEMS) {
            self.item(&mut text, item);
            text.push('\n');
        }
        for item in items.iter().skip(FULL_ITEMS) {
            line(&mut text, format_args!("{} {}", item.severity.word(), one(item)));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }

    fn item(&self, text: &mut String, item: &Item) {
        let about: Vec<String> = [&item.model, &item.serial, &item.detail]
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| cut(part, MAX_NAME))
            .collect();
        let slot = match slot_name(&item.slot) {
            "" => String::new(),
            slot => format!("  slot {}", cut(slot, MAX_SHORT)),
        };
        let gap = if about.is_empty() { "" } else { "  " };
        let severity = item.severity.word();
        let state = match (item.transition, item.good) {
            (Transition::Cleared, true) => format!("good again, was {severity}"),
            (Transition::Cleared, false) => format!("cleared, was {severity}"),
            (transition, _) => format!("{severity}, {transition}"),
        };
        line(
            text,
            format_args!("{}{slot}{gap}{}: {state}", cut(&item.name, MAX_NAME), about.join("  ")),
        );
        line(text, format_args!("  host      {}", self.host));
        let mut field = |name: &str, value: &str| {
            if !value.is_empty() {
                line(text, format_args!("  {name:<9} {value}"));
            }
        };
        let (now, problem) = match &item.cleared {
            Some(_) if item.good => ("no finding is left", "was"),
            Some(cleared) => (cleared.why.as_str(), "was"),
            None => ("", "problem"),
        };
        field("now", &self.local_times(now));
        field(problem, &cut(&self.local_times(&item.message), MAX_LINE));
        field("reasons", &cut_all(item.reasons.iter().map(String::as_str)));
        if let Some(since) = item.since {
            field("since", &self.local(since));
        }
        if let Some(acknowledged) = &item.acknowledged {
            field("noted by", &format!("{}: {}", acknowledged.by, acknowledged.note));
        }
        if let Some(cleared) = &item.cleared {
            field(
                "cleared",
                &format!("{}, {}", self.local(cleared.time), self.local_times(&cleared.why)),
            );
            return;
        }
        let names = |covered: bool, last_copy: bool| {
            let hits = item.hits.iter();
            let hits = hits.filter(|hit| (hit.covered, hit.last_copy) == (covered, last_copy));
            let names: Vec<String> = hits.take(MAX_HITS).map(hit_name).collect();
            names.join(", ")
        };
        let first = if item.only_on_it { "on it" } else { "hits" };
        field(first, &names(false, false));
        // In the words of `status`.
        let last_copy = match item.message.contains(NO_REDUNDANCY) {
            true => "on it",
            false => last_copy_words(item.reasons.iter().map(String::as_str)),
        };
        field(last_copy, &names(true, true));
        field("covered", &names(true, false));
        let hidden = item.hits.len().saturating_sub(MAX_HITS) as u64 + item.more_hits;
        if hidden > 0 {
            field("", &format!("and {hidden} more"));
        }
        let more = item.evidence.len().saturating_sub(MAX_EVIDENCE);
        for evidence in item.evidence.iter().take(MAX_EVIDENCE) {
            let time =
                evidence.time.map(|time| format!("{}  ", self.local(time))).unwrap_or_default();
            field("evidence", &format!("{time}{}: {}", evidence.source, evidence.text));
        }
        if more > 0 {
            field("", &format!("and {more} more: `{}`", item.command));
        }
        field("to do", &self.local_times(&item.action));
        field("command", &item.command);
    }

    /// What is known about the whole node.
    pub(crate) fn digest(&self, counts: Option<&NodeCounts>, silent: Option<&str>) -> DigestText {
        let Some(counts) = counts.filter(|_| silent.is_none()) else {
            let why = silent.unwrap_or("diskvitalsd has not been reached yet");
            return DigestText {
                level: Level::Unknown,
                summary: "health is unknown: diskvitalsd does not answer".to_owned(),
                text: format!("The health of the drives is not known: {why}\n"),
                remarks: String::new(),
            };
        };
        let drives = tally("drive", "drives", &counts.drives);
        let volumes = tally("volume", "volumes", &counts.volumes);
        let mut parts = vec![drives.clone()];
        if !counts.near_end_of_life.is_empty() {
            parts.push(format!("{} near the end of life", counts.near_end_of_life.len()));
        }
        let mut text = String::new();
        line(&mut text, format_args!("Drives: {drives}"));
        line(&mut text, format_args!("Volumes: {volumes}"));
        let mut remarks = String::new();
        let lists =
            [("Near the end of life", &counts.near_end_of_life), ("Not read", &counts.unread)];
        for (title, names) in lists {
            for name in names {
                line(&mut remarks, format_args!("{title}: {}", cut(name, MAX_LINE)));
            }
        }
        let level = counts.drives.level().max(counts.volumes.level());
        // An unread source hides what it would report.
        let level = match counts.unread.is_empty() {
            true => level,
            false => level.max(Level::Unknown),
        };
        DigestText { level, summary: parts.join("; "), text, remarks }
    }

    pub(crate) fn local(&self, time: Timestamp) -> String {
        time.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// The daemon writes times as `2026-03-01T12:00:00Z`.
    fn local_times(&self, text: &str) -> String {
        let words = text.split(' ').map(|word| {
            let core = word.trim_end_matches(['.', ',', ':', ';', ')']);
            match core.trim_start_matches('(').parse::<Timestamp>() {
                Ok(time) => word.replacen(core.trim_start_matches('('), &self.local(time), 1),
                Err(_) => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

fn hit_name(hit: &Hit) -> String {
    let name = cut(&hit.name, MAX_NAME);
    match hit.kind.as_str() {
        "mount" | "device" => name,
        kind => format!("{kind} {name}"),
    }
}

/// `all 24 drives well`, `22 of 24 drives well, 1 BAD, 1 unknown`.
fn tally(one: &str, many: &str, counts: &Counts) -> String {
    let name = if counts.total() == 1 { one } else { many };
    if counts.total() == 0 {
        return format!("no {many} known");
    }
    if counts.good == counts.total() {
        return match counts.total() {
            1 => format!("the {name} is well"),
            total => format!("all {total} {name} well"),
        };
    }
    let mut text = format!("{} of {} {name} well", counts.good, counts.total());
    for (count, word) in [
        (counts.bad, "BAD"),
        (counts.suspect, "SUSPECT"),
        (counts.unknown, "unknown"),
        (counts.asleep, "asleep and not read"),
        (counts.maintenance, "under maintenance"),
    ] {
        if count > 0 {
            // Writing to a string does not fail.
            let _ = write!(text, ", {count} {word}");
        }
    }
    text
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests_support::sample;

    #[test]
    fn a_slot_has_its_word_once() {
        let mut items = sample().items;
        for slot in ["03", "Slot 03", "SLOT 03"] {
            items[0].slot = slot.to_owned();
            let title = title(Kind::Changes, "node7", Level::Bad, &items);
            assert!(title.contains("sda (slot 03): "), "{title}");
            let zone = TimeZone::UTC;
            let writer = Writer { zone: &zone, host: "node7" };
            let text = writer.items(&items);
            assert!(text.contains("  slot 03  ") && !text.contains("lot Slot"), "{text}");
        }
    }
}
