//! Counters that count the same errors as the kernel log, shown beside its records.
//!
//! They are shown only: the log's records are evidence by themselves, so a counter that stands
//! still lowers no verdict. Each has the time of its last change, so that a finding does not change
//! with each reading.

use jiff::Timestamp;

use crate::model::assess::smart::SmartAssessment;
use crate::model::assess::text::evidence;
use crate::model::counters::{Counter, CounterHistory};
use crate::model::facts::{Facts, KnownVolume};
use crate::model::finding::{Evidence, Verdict, WitnessKind};
use crate::model::kernel_log::event::Class;

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
