//! One line per change.

use crate::api::wire;
use crate::api::wire::watch_event::{Change, Item};
use crate::cli::render::{causes, checks, findings};
use crate::cli::screen::{Screen, Tone, escape_control, health, severity, severity_word};

/// False for a finding whose cause another finding of the same volume announces.
pub(crate) fn is_announced(event: &wire::WatchEvent) -> bool {
    match &event.item {
        Some(Item::Finding(finding)) => finding.follows.is_empty(),
        // Its findings have lines of their own.
        Some(Item::Cause(_)) => false,
        _ => true,
    }
}

pub(crate) fn line(event: &wire::WatchEvent, screen: &Screen) -> String {
    let clock = screen.time_of_day(event.time.as_ref());
    let (word, tone) = match event.change() {
        Change::Added => ("added", Tone::Plain),
        Change::Modified => ("changed", Tone::Plain),
        Change::Removed => ("removed", Tone::Faint),
        Change::SnapshotBegin => {
            return format!("{clock}  everything, at revision {}:\n", event.revision);
        }
        Change::SnapshotEnd => return format!("{clock}  end of the list; changes follow\n"),
        Change::Unspecified => ("?", Tone::Faint),
    };
    let what = match &event.item {
        Some(Item::Drive(drive)) => {
            let (word, tone) = health(drive.health);
            let missing = if drive.presence() == wire::Presence::Missing {
                ", MISSING"
            } else {
                ""
            };
            format!(
                "drive    {}  {} ({}){missing}",
                screen.paint(tone, word),
                escape_control(&drive.id),
                escape_control(&drive.name)
            )
        }
        Some(Item::Volume(volume)) => {
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
                escape_control(&volume.id)
            )
        }
        Some(Item::Finding(finding)) => {
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
        Some(Item::Check(check)) => {
            let (word, tone) = checks::verdict(check);
            let why = if check.reason.is_empty() {
                &check.phase
            } else {
                &check.reason
            };
            format!(
                "check    {}  {}: {} [{}]",
                screen.paint(tone, word),
                escape_control(&check.target),
                screen.message(why),
                check.id
            )
        }
        Some(Item::Cause(cause)) => {
            let (word, tone) = severity_word(cause.severity());
            format!(
                "cause    {}  {}: {}",
                screen.paint(tone, word),
                escape_control(&cause.name),
                causes::reasons(cause).join(", ")
            )
        }
        None => "an item of a kind that this program does not know".to_owned(),
    };
    format!(
        "{clock}  {}  {what}\n",
        screen.paint(tone, format!("{word:7}"))
    )
}
