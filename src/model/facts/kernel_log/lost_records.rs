//! Records that the kernel overwrote before they were read: any user can make it write that fast.
//!
//! In: batches that lost records, and the counters that were read since. Out: requests to read what
//! else counts errors, the drives about which nothing is known of that time, and the losses of this boot.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::counters::Counter;
use crate::facts::Facts;
use crate::facts::readings::Reading;
use crate::source_update::SourceStatus;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Subject, UnknownHealth};
use diskvitals_text::duration::elapsed;

/// For so long a loss matters: a failing drive has had its next error by then, which is recorded.
pub const LOSS_PERIOD: Duration = Duration::from_secs(10 * 60);
/// The reader reports a loss within this time, and counters are read within it after a report.
const DELAY: Duration = Duration::from_secs(15);
/// Records and errors this near belong to the failure of a drive.
pub(crate) const NEAR_FAILURE: Duration = Duration::from_secs(120);
/// Of earlier losses in this boot; the oldest is forgotten first.
const MAX_EARLIER: usize = 32;

/// Losses less than `LOSS_PERIOD` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRecords {
    pub from: Timestamp,
    pub until: Timestamp,
    /// The first loss that no reading of the counters has followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_since: Option<Timestamp>,
}

impl LostRecords {
    /// Whether records of a failure at that time may be among them.
    pub fn may_include(&self, failed: Timestamp) -> bool {
        elapsed(failed, self.from) <= NEAR_FAILURE && elapsed(self.until, failed) <= NEAR_FAILURE
    }
}

impl Facts {
    /// The counters are read each time, the drives' own logs once.
    pub(super) fn note_lost_records(&mut self, now: Timestamp) {
        self.restart_quiet_times(now);
        let lost = self.lost_records(now);
        self.are_counters_due = true;
        self.is_smart_due |= lost.is_none();
        if lost.is_none() {
            let progress = Arc::make_mut(&mut self.kernel.progress);
            progress.earlier_losses.extend(progress.lost_records.take());
            let surplus = progress.earlier_losses.len().saturating_sub(MAX_EARLIER);
            progress.earlier_losses.drain(..surplus);
        }
        let new = LostRecords {
            from: now.saturating_sub(DELAY).unwrap_or(now),
            until: now,
            unread_since: Some(now),
        };
        Arc::make_mut(&mut self.kernel.progress).lost_records = Some(match lost {
            Some(lost) => LostRecords {
                from: lost.from,
                unread_since: lost.unread_since.or(Some(now)),
                ..new
            },
            None => new,
        });
    }

    /// The counters have been read from then on.
    pub(in crate::facts) fn note_counters_read(&mut self, at: Timestamp) {
        let lost = self.kernel.progress.lost_records;
        if lost.and_then(|lost| lost.unread_since).is_some_and(|since| since <= at) {
            let progress = Arc::make_mut(&mut self.kernel.progress);
            progress.lost_records = lost.map(|lost| LostRecords { unread_since: None, ..lost });
        }
    }

    /// In this boot, oldest first.
    pub fn losses_of_boot(&self) -> Vec<LostRecords> {
        let progress = &self.kernel.progress;
        progress.earlier_losses.iter().chain(&progress.lost_records).copied().collect()
    }

    /// The log as it was read until `since`; where records were lost, the error counters and the own
    /// logs of these drives that were read since then.
    pub(in crate::facts) fn log_since(&self, since: Timestamp, drives: &[DriveId]) -> Reading {
        let log = self.sources.get(Source::KernelLog);
        let failing = |why: &str, begun: Option<Timestamp>| {
            let begun = begun.map(|begun| format!(" since {}", self.wall_text(begun)));
            let begun = begun.unwrap_or_default();
            Reading::Impossible(format!("kernel-log is not completely read{begun}: {why}"))
        };
        let lost = self.kernel.progress.lost_records;
        let recent = lost.filter(|lost| elapsed(lost.until, since) < LOSS_PERIOD);
        let lost = match log.map(|log| (&log.status, log.failing_since)) {
            None => return Reading::Outstanding("kernel-log has not been read yet".to_owned()),
            Some((SourceStatus::Down(why) | SourceStatus::Absent(why), begun)) => {
                return failing(why, begun);
            }
            // Only losses limit the log itself. journald's copy has numbers of its own, with which
            // losses are counted anew.
            Some((SourceStatus::Limited(why), begun)) => match lost {
                Some(lost) => lost,
                None => return failing(why, begun),
            },
            Some((SourceStatus::Active(_), _)) => match recent {
                Some(lost) => lost,
                None => return Reading::Made,
            },
        };
        let [from, until] = [lost.from, lost.until].map(|time| self.wall_text(time));
        let why = |what: String| {
            format!("kernel-log has lost records since {from}, until {until}, and {what}")
        };
        let readings = drives.iter().map(|drive| self.smart_since(drive, since));
        for reading in std::iter::once(self.counters.read_since(since)).chain(readings) {
            match reading {
                Reading::Made => {}
                Reading::Outstanding(what) => return Reading::Outstanding(why(what)),
                Reading::Impossible(what) => return Reading::Impossible(why(what)),
            }
        }
        Reading::Made
    }

    fn lost_records(&self, now: Timestamp) -> Option<LostRecords> {
        let lost = self.kernel.progress.lost_records;
        lost.filter(|lost| elapsed(lost.until, now) < LOSS_PERIOD)
    }

    /// The drives whose own logs are to be read now, because the kernel's has a gap.
    /// So are those of drives about which the kernel's log says what they should know better.
    pub fn take_smart_request(&mut self) -> Vec<DriveId> {
        let due = std::mem::take(&mut self.smart_due);
        if !std::mem::take(&mut self.is_smart_due) {
            return due.into_iter().collect();
        }
        let present = self.drives.values();
        let present = present.filter(|known| known.missing_since.is_none());
        let ids = present.map(|known| &known.facts.id);
        // A drive without SMART data refuses the question, and counts that as an error.
        ids.filter(|id| self.has_answered_smart(id)).cloned().collect()
    }

    pub(in crate::facts) fn has_answered_smart(&self, drive: &DriveId) -> bool {
        self.smart.get(drive).is_some_and(|smart| smart.history.last.is_some())
    }

    /// Why nothing is known of a drive without SMART data: records about it may have been lost, and
    /// no counter of errors (ioerr_cnt, iotmo_cnt) stood still meanwhile.
    pub(crate) fn lost_evidence(&self, drive: &DriveId, now: Timestamp) -> Option<UnknownHealth> {
        let lost = self.lost_records(now)?;
        let since = self.wall_text(lost.from);
        let gap = format!("the kernel's log has lost records since {since}");
        let mut counters = self.error_counters(drive).peekable();
        if counters.peek().is_none() {
            let why = format!("{gap}, and this drive has no counters of errors");
            return Some(UnknownHealth::failed(why));
        }
        let has_grown = counters.any(|counter| {
            let changed = counter.last_growth.max(Some(counter.since));
            changed.is_some_and(|changed| changed >= lost.from)
        });
        if has_grown {
            let why = format!("{gap}, and a counter of this drive's errors has changed meanwhile");
            return Some(UnknownHealth::failed(why));
        }
        let unread = lost.unread_since;
        let is_read = unread.is_none_or(|since| elapsed(since, now) < 2 * DELAY);
        (!is_read).then(|| {
            UnknownHealth::failed(format!("{gap}, and the counters of errors are not read"))
        })
    }

    /// Why nothing is known of a drive without SMART data where no kernel log is read either.
    pub(crate) fn without_evidence(&self, drive: &DriveId) -> Option<UnknownHealth> {
        let has_none = self.kernel.is_absent() && self.error_counters(drive).next().is_none();
        has_none.then(|| {
            UnknownHealth::failed(
                "neither its SMART data nor the kernel's log is read, and it has no counters of errors",
            )
        })
    }

    /// Those that the kernel keeps of a SCSI device (ioerr_cnt, iotmo_cnt).
    fn error_counters(&self, drive: &DriveId) -> impl Iterator<Item = &Counter> {
        self.counters
            .series(Subject::Drive(drive.clone()), "scsi ")
            .flat_map(|(_, history)| history.counters())
            .map(|(_, counter)| counter)
    }
}
