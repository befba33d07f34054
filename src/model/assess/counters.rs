//! Counters that count the same errors as the kernel log, shown beside its records. Each has the time of
//! its last change, so that a finding does not change with each reading.
//!
//! ext4 counts each corruption that it logs while it is mounted. Until its count has grown, a record is
//! a suspicion. No other counter lowers a verdict by standing still.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::assess::reason_rules::Context;
use crate::model::assess::smart::SmartAssessment;
use crate::model::assess::text::evidence;
use crate::model::counters::{Counter, CounterHistory};
use crate::model::facts::{Facts, KnownVolume, elapsed};
use crate::model::finding::{Evidence, Verdict, WitnessKind};
use crate::model::kernel_log::error_history::ErrorTally;
use crate::model::kernel_log::event::{Class, Line, LineOrigin};

/// Adds the counters to the evidence, except those that it quotes already.
pub(crate) fn shown_beside(
    verdict: Option<Verdict>,
    counters: impl IntoIterator<Item = Evidence>,
) -> Option<Verdict> {
    let Some(Verdict::Raised(mut raised)) = verdict else {
        return verdict;
    };
    for counter in counters {
        let is_quoted = |quoted: &Evidence| quoted.text.starts_with(&counter.source);
        if !raised.evidence.iter().any(is_quoted) {
            raised.evidence.push(counter);
        }
    }
    Some(Verdict::Raised(raised))
}

/// The drive's own count of unrecovered errors (NVMe Base 2.0 5.16.1.3, Media and Data Integrity
/// Errors), unless the drive has a finding from that count, which quotes it.
pub(crate) fn of_drive(smart: &SmartAssessment<'_>) -> Option<Evidence> {
    let (source, point) = smart.media_errors()?;
    let text = format!("Media and Data Integrity Errors: {}", point.value);
    Some(evidence(WitnessKind::Smart, source, point.at, text))
}

/// `errors_count` of ext4's superblock (fs/ext4/sysfs.c), or the device statistics of each member
/// of a btrfs (fs/btrfs/sysfs.c), as far as they count errors of this class.
pub(crate) fn of_filesystem(facts: &Facts, known: &KnownVolume, class: Class) -> Vec<Evidence> {
    let statistics: &[&str] = match class {
        Class::FsError => &["read_errs", "write_errs", "flush_errs"],
        Class::FsCorruption => &["corruption_errs", "generation_errs"],
        _ => return Vec::new(),
    };
    let ext4 = facts.filesystem_counters(known, "ext4");
    let ext4 = ext4.and_then(|history| quoted(history, &["errors_count"]));
    ext4.into_iter()
        .chain(
            facts
                .btrfs_counters(known)
                .filter_map(|history| quoted(history, statistics)),
        )
        .collect()
}

/// `errors_count 3, …`, at the time of the last change of one of them.
fn quoted(history: &CounterHistory, names: &[&str]) -> Option<Evidence> {
    let counters: Vec<(&str, &Counter)> = history
        .counters()
        .filter(|(name, _)| names.contains(name))
        .collect();
    let at = counters.iter().map(|(_, counter)| changed(counter)).max()?;
    let text: Vec<String> = counters
        .iter()
        .map(|(name, counter)| format!("{name} {}", counter.last))
        .collect();
    Some(evidence(
        WitnessKind::Counter,
        &history.file,
        at,
        text.join(", "),
    ))
}

/// Its last growth, or its first reading.
pub(super) fn changed(counter: &Counter) -> Timestamp {
    counter.last_growth.unwrap_or(counter.since)
}

/// Less is needed for the counter of an error that has been logged; it is read after one second.
const COUNTED_AFTER: Duration = Duration::from_secs(1);
/// The counter does not answer: the record is enough.
const NO_ANSWER_AFTER: Duration = Duration::from_secs(10);

/// Why the records of corruption in this tally are only a suspicion: the superblock's count of errors
/// has not grown since the first of them, or was not read yet. None where ext4 counts nothing: before the
/// mount, on a read-only device (save_error_info(), fs/ext4/super.c); and where fanotify reported it too.
pub(super) fn not_counted_by_ext4(
    context: Context,
    known: &KnownVolume,
    tally: &ErrorTally,
) -> Option<&'static str> {
    let (facts, now) = (context.facts, context.now);
    let history = facts.filesystem_counters(known, "ext4")?;
    let (_, counter) = history
        .counters()
        .find(|(name, _)| *name == "errors_count")?;
    let last = tally.last.time;
    let is_logged =
        |line: &Line| line.origin == LineOrigin::KernelLog && line.text.starts_with("EXT4-fs ");
    let is_writable = |name: &String| facts.device(name).is_some_and(|device| !device.read_only);
    let was_mounted = known
        .mounted_since
        .values()
        .min()
        .is_some_and(|since| *since < last);
    let counts = is_logged(&tally.first)
        && is_logged(&tally.last)
        && was_mounted
        && known.facts.device.as_ref().is_some_and(is_writable);
    if !counts || counter.last > 0 && changed(counter) >= tally.first.time {
        return None;
    }
    let read = facts.counters.read_at()?;
    if read >= last && elapsed(last, read) >= COUNTED_AFTER {
        return Some("its superblock counts no new error, so this is the record in the log alone");
    }
    (elapsed(last, now) < NO_ANSWER_AFTER)
        .then_some("the superblock's count of errors is being read")
}
