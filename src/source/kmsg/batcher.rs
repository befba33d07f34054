//! The reading of the log without its I/O: which records are new, which were lost, what time they
//! have, and when a batch is made of them.
//!
//! In: raw records as they are read, and their time of arrival. Out: `Batch`es, bounded. No clock,
//! no descriptor: a test can stop it anywhere.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::model::kernel_log::classify::{Classifier, ClassifierOptions};
use crate::model::kernel_log::event::{Batch, Cursor, Event, NameAssignment, RejectedSector};
use crate::model::kernel_log::record;
use crate::model::kernel_log::rollup::{MergeBoundaries, rollup};
use crate::source::kmsg::log_epoch::{LogEpoch, StartPosition};

/// From so many events on, a batch in the making is rolled up; four times what it may have at its
/// end.
const ROLLUP_THRESHOLD: usize = 1024;
/// A drive is told of while it is probed, this long before the kernel calls it attached.
const PROBE_LEAD: SignedDuration = SignedDuration::from_secs(30);
/// A batch is cut at so many notices of devices.
const MAX_ATTACHED: usize = 1024;

/// The kernel's clock on the wall: its microseconds stand still in suspend and drift, so they are
/// used for what was before only.
#[derive(Clone, Copy, Debug)]
pub struct KernelClock {
    pub now: Timestamp,
    /// CLOCK_MONOTONIC at that moment.
    pub monotonic: std::time::Duration,
}

impl KernelClock {
    /// Never later than the moment at which the clock was read.
    fn at(&self, microseconds: u64) -> Timestamp {
        let ago = i64::try_from(self.monotonic.as_micros())
            .unwrap_or(i64::MAX)
            .saturating_sub_unsigned(microseconds);
        self.now
            .checked_sub(SignedDuration::from_micros(ago))
            .unwrap_or(self.now)
            .min(self.now)
    }
}

/// What to do when all that was there has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    Live,
    /// The stored cursor is ahead of all that the log has: it is of another log. Read anew.
    CursorAhead,
}

/// What can be concluded from the numbers of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumProperties {
    /// Numbers without a gap are records without a loss.
    pub contiguous: bool,
    /// What was there at the start ends with the newest record there is. Not so for a pipe, and for
    /// a journal that is read from the middle.
    pub has_newest: bool,
}

#[derive(Debug)]
pub struct Batcher {
    epoch: LogEpoch,
    medium: MediumProperties,
    clock: KernelClock,
    classifier: Classifier,
    scope: ClassifierOptions,
    /// Number of the last record that was seen.
    last: Option<u64>,
    /// Records before this one are over and done with.
    skip_before: u64,
    /// Up to here the store has counted, from the runs before and from this one.
    counted_to: Option<u64>,
    /// Up to here the runs before have counted.
    resumed_at: Option<u64>,
    lost: u64,
    in_backlog: bool,
    /// What is history is not told.
    skip_backlog: bool,
    events: Vec<Event>,
    attached: Vec<NameAssignment>,
    /// Names that were given, and those of them that were given anew.
    assigned_names: BTreeSet<(String, bool)>,
    superseding: Vec<(NameAssignment, SignedDuration)>,
    refused: Vec<RejectedSector>,
    ready: Vec<Batch>,
    /// Records since the last batch.
    records_since_batch: u64,
    records_read: u64,
    /// What was no record.
    unreadable: u64,
}

impl Batcher {
    pub fn new(
        start: StartPosition,
        medium: MediumProperties,
        clock: KernelClock,
        scope: ClassifierOptions,
    ) -> Batcher {
        let (numbering, cursor, from_now) = match start {
            StartPosition::Oldest(numbering) => (numbering, Cursor::default(), false),
            StartPosition::Resume(numbering, cursor) => (numbering, cursor, false),
            StartPosition::Now(numbering) => (numbering, Cursor::default(), true),
        };
        Batcher {
            epoch: numbering,
            medium,
            clock,
            classifier: Classifier::new(scope.clone()),
            scope,
            last: None,
            skip_before: cursor.reread_from,
            counted_to: cursor.counted_to,
            resumed_at: cursor.counted_to,
            lost: cursor.lost,
            in_backlog: true,
            skip_backlog: from_now,
            events: Vec::new(),
            attached: Vec::new(),
            assigned_names: BTreeSet::new(),
            superseding: Vec::new(),
            refused: Vec::new(),
            ready: Vec::new(),
            records_since_batch: 0,
            records_read: 0,
            unreadable: 0,
        }
    }

    /// One record. `written`: its time, where the medium tells it better than the kernel's clock
    /// does.
    pub fn push(&mut self, raw: &[u8], arrival: Timestamp, written: Option<Timestamp>) {
        let Ok(record) = record::parse(raw) else {
            self.count_unreadable();
            return;
        };
        self.records_read += 1;
        match self.last {
            // A repetition tells nothing.
            Some(last) if record.seq == last => return,
            Some(last) if record.seq < last => self.start_new_epoch(),
            _ => {}
        }
        if self.medium.contiguous
            && self
                .last
                .max(self.counted_to)
                .is_some_and(|last| record.seq > last.saturating_add(1))
        {
            let expected = self
                .last
                .max(self.counted_to)
                .map_or(0, |last| last.saturating_add(1));
            self.lost = self.lost.saturating_add(record.seq - expected);
        }
        self.last = Some(record.seq);
        if record.seq < self.skip_before {
            return;
        }
        self.counted_to = self.counted_to.max(Some(record.seq));
        self.records_since_batch += 1;
        if record.facility != 0 || (self.in_backlog && self.skip_backlog) {
            return;
        }
        let time = match self.in_backlog {
            true => written
                .unwrap_or_else(|| self.clock.at(record.time_us))
                .min(arrival),
            false => arrival,
        };
        self.classifier.push(&record, time, &mut self.events);
        for attached in self.classifier.take_name_assignments() {
            self.record_attached(attached);
        }
        for excused in self.classifier.take_rejected_requests() {
            if let Some(sector) = excused.sector.filter(|_| self.refused.len() < MAX_ATTACHED) {
                self.refused.push(RejectedSector {
                    device: excused.device,
                    sector,
                    at: time,
                });
            }
        }
        if self.attached.len() >= MAX_ATTACHED {
            self.finish_batch();
        } else if self.events.len() >= ROLLUP_THRESHOLD {
            self.roll_up();
        }
    }

    /// All that was there at the start has been read; from now on, records are live.
    pub fn catch_up(&mut self) -> CatchUp {
        if self.in_backlog && self.medium.has_newest && self.last < self.resumed_at {
            return CatchUp::CursorAhead;
        }
        if self.in_backlog {
            self.finish_batch();
            self.in_backlog = false;
        }
        CatchUp::Live
    }

    pub fn is_in_backlog(&self) -> bool {
        self.in_backlog
    }

    /// Something was said that somebody waits for.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.attached.is_empty()
    }

    /// Records since the last batch.
    pub fn records_since_batch(&self) -> u64 {
        self.records_since_batch
    }

    /// Records that were seen at all.
    pub fn records_read(&self) -> u64 {
        self.records_read
    }

    pub fn has_batches(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn count_unreadable(&mut self) {
        self.records_read += 1;
        self.unreadable += 1;
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }

    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Makes a batch of what there is.
    pub fn finish_batch(&mut self) {
        self.roll_up();
        let (events, attached) = (
            std::mem::take(&mut self.events),
            std::mem::take(&mut self.attached),
        );
        let refused = std::mem::take(&mut self.refused);
        self.ready.push(Batch {
            cursor: self.cursor(),
            events,
            name_assignments: attached,
            rejected_sectors: refused,
            is_backlog: self.in_backlog,
        });
        self.records_since_batch = 0;
    }

    pub fn take_batches(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.ready)
    }

    pub fn cursor(&self) -> Cursor {
        let next = self
            .last
            .map_or(0, |last| last.saturating_add(1))
            .max(self.skip_before);
        Cursor {
            boot_id: self.epoch.to_string(),
            counted_to: self.counted_to,
            // While what is counted already is read again, not all that was open then is open yet.
            reread_from: self
                .classifier
                .oldest_open()
                .map_or(next, |open| open.min(next)),
            lost: self.lost,
        }
    }

    fn record_attached(&mut self, attached: NameAssignment) {
        let name = (attached.name.clone(), attached.is_filesystem);
        // A drive that comes to a free name may have been told of while it was probed, which is
        // before the kernel says that it is attached.
        let first = self.assigned_names.insert(name);
        // Where reading goes on after a run of before, who had the name at its end is not known
        // here.
        if self.in_backlog && (!first || self.resumed_at.is_some()) {
            let lag = if first {
                PROBE_LEAD
            } else {
                SignedDuration::ZERO
            };
            self.superseding.push((attached.clone(), lag));
        }
        if self.assigned_names.len() > MAX_ATTACHED {
            self.assigned_names.pop_first();
        }
        self.attached.push(attached);
    }

    /// What was before is told of those who have their names still: who had them at that time
    /// nobody knows any more.
    fn drop_superseded(&mut self) {
        if self.in_backlog {
            let superseding = std::mem::take(&mut self.superseding);
            let over = |event: &Event, (attached, lag): &(NameAssignment, SignedDuration)| {
                attached.supersedes(event) && attached.at.duration_since(event.last.time) >= *lag
            };
            self.events
                .retain(|event| !superseding.iter().any(|named| over(event, named)));
        }
    }

    fn roll_up(&mut self) {
        self.drop_superseded();
        let events = std::mem::take(&mut self.events);
        self.events = rollup(
            events,
            MergeBoundaries {
                counted_to: self.resumed_at,
                name_assignments: &self.attached,
            },
        );
    }

    /// Numbers grow as long as the kernel runs: this is another log under the same name.
    fn start_new_epoch(&mut self) {
        tracing::warn!(
            last = self.last,
            "the kernel log's sequence numbers have begun anew: read as another log"
        );
        self.finish_batch();
        self.epoch = self.epoch.next();
        self.classifier = Classifier::new(self.scope.clone());
        (
            self.last,
            self.counted_to,
            self.resumed_at,
            self.skip_before,
        ) = (None, None, None, 0);
    }
}

#[cfg(test)]
mod tests;
