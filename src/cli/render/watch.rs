//! `watch`: one line per change.

use crate::render::{causes, checks, findings, volumes};
use crate::words::{health, severity};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_text::naming::slot_name;
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::{Change, Item};

/// A line of `watch`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub time: Option<prost_types::Timestamp>,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// With its revision.
    ListBegin(u64),
    ListEnd,
    /// Added, modified or removed, and the text about the subject.
    Changed(Change, String),
}

pub fn line(entry: &Entry, screen: &Screen) -> String {
    let time = screen.date_time(entry.time.as_ref());
    let (change, text) = match &entry.what {
        What::ListBegin(revision) => {
            return format!("{time}  everything, at revision {revision}:\n");
        }
        What::ListEnd => return format!("{time}  end of the list; changes follow\n"),
        What::Changed(change, text) => (change, text),
    };
    let (word, tone) = match change {
        Change::Added => ("added", Tone::Plain),
        Change::Modified => ("changed", Tone::Plain),
        Change::Removed => ("removed", Tone::Faint),
        Change::SnapshotBegin | Change::SnapshotEnd | Change::Unspecified => ("?", Tone::Faint),
    };
    format!("{time}  {}  {text}\n", screen.paint(tone, format!("{word:7}")))
}

/// `sda (naa.5000…)`: the name that people know, then the id.
fn named(name: &str, id: &str) -> String {
    match name {
        "" => escape_control(id),
        name if name == id => escape_control(id),
        name => format!("{} ({})", escape_control(name), escape_control(id)),
    }
}

/// What an entry says about its subject.
pub(crate) fn subject_text(item: &Item, screen: &Screen) -> String {
    match item {
        Item::Drive(drive) => {
            let (word, tone) = health(drive.health);
            let missing =
                if drive.presence() == wire::Presence::Missing { ", MISSING" } else { "" };
            format!(
                "drive    {}  {}{missing}",
                screen.paint(tone, word),
                named(&drive.name, &drive.id)
            )
        }
        Item::Volume(volume) => {
            let (word, tone) = health(volume.health);
            let message = volume
                .condition
                .as_ref()
                .filter(|it| it.abnormal)
                .map(|it| format!(": {}", screen.message(&it.message)))
                .unwrap_or_default();
            format!(
                "volume   {}  {}{message}",
                screen.paint(tone, word),
                named(&volumes::place(volume), &volume.id)
            )
        }
        Item::Finding(finding) => {
            let (word, tone) = severity(finding);
            let reason = escape_control(&finding.reason);
            format!(
                "finding  {}  {reason} {}: {} [{}]",
                screen.paint(tone, word),
                escape_control(&findings::subject(finding)),
                escape_control(&findings::message(finding, screen)),
                finding.id
            )
        }
        Item::Check(check) => {
            let (word, tone) = checks::verdict(check);
            let why = if check.reason.is_empty() { &check.phase } else { &check.reason };
            format!(
                "check    {}  {}: {} [{}]",
                screen.paint(tone, word),
                escape_control(&check.target),
                screen.message(why),
                check.id
            )
        }
        Item::Cause(cause) => {
            let (word, tone) = causes::word(cause);
            format!(
                "cause    {}  {}{}: {}{}",
                screen.paint(tone, word),
                escape_control(&cause.name),
                match cause.slot.as_str() {
                    "" => String::new(),
                    slot => format!(" (slot {})", escape_control(slot_name(slot))),
                },
                causes::reasons(cause).join(", "),
                causes::hits(cause, screen)
                    .map(|hits| format!("; {}", hits.trim()))
                    .unwrap_or_default()
            )
        }
    }
}
