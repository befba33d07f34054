//! The reading of the log without its I/O: which records are new, which were lost, what time they
//! have, and when a batch is made of them.
//!
//! In: raw records as they are read, and their time of arrival. Out: `Batch`es, bounded. No clock,
//! no descriptor: a test can stop it anywhere.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::model::kernel::classify::{Classifier, Scope};
use crate::model::kernel::event::{Attached, Batch, Cursor, Event, Refused};
use crate::model::kernel::record;
use crate::model::kernel::rollup::{Fences, rollup};
use crate::source::kmsg::numbering::{Numbering, Start};

/// From so many events on, a batch in the making is rolled up; four times what it may have at its
/// end.
const ROLL_UP_AT: usize = 1024;
/// A drive is told of while it is probed, this long before the kernel calls it attached.
const PROBED_FOR: SignedDuration = SignedDuration::from_secs(30);
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
pub enum CaughtUp {
    Live,
    /// The stored cursor is ahead of all that the log has: it is of another log. Read anew.
    Future,
}

/// What can be concluded from the numbers of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Numbers without a gap are records without a loss.
    pub contiguous: bool,
    /// What was there at the start ends with the newest record there is. Not so for a pipe, and for
    /// a journal that is read from the middle.
    pub has_newest: bool,
}

#[derive(Debug)]
pub struct Reading {
    numbering: Numbering,
    medium: How,
    clock: KernelClock,
    classifier: Classifier,
    scope: Scope,
    /// Number of the last record that was seen.
    last: Option<u64>,
    /// Records before this one are over and done with.
    skip_before: u64,
    /// Up to here the store has counted, from the runs before and from this one.
    counted_to: Option<u64>,
    /// Up to here the runs before have counted.
    resumed_at: Option<u64>,
    lost: u64,
    history: bool,
    /// What is history is not told.
    from_now: bool,
    events: Vec<Event>,
    attached: Vec<Attached>,
    /// Names that were given, and those of them that were given anew.
    named: BTreeSet<(String, bool)>,
    superseding: Vec<(Attached, SignedDuration)>,
    refused: Vec<Refused>,
    ready: Vec<Batch>,
    /// Records since the last batch.
    moved: u64,
    seen: u64,
    /// What was no record.
    unreadable: u64,
}

impl Reading {
    pub fn new(start: Start, medium: How, clock: KernelClock, scope: Scope) -> Reading {
        let (numbering, cursor, from_now) = match start {
            Start::Oldest(numbering) => (numbering, Cursor::default(), false),
            Start::Resume(numbering, cursor) => (numbering, cursor, false),
            Start::Now(numbering) => (numbering, Cursor::default(), true),
        };
        Reading {
            numbering,
            medium,
            clock,
            classifier: Classifier::new(scope.clone()),
            scope,
            last: None,
            skip_before: cursor.reread_from,
            counted_to: cursor.counted_to,
            resumed_at: cursor.counted_to,
            lost: cursor.lost,
            history: true,
            from_now,
            events: Vec::new(),
            attached: Vec::new(),
            named: BTreeSet::new(),
            superseding: Vec::new(),
            refused: Vec::new(),
            ready: Vec::new(),
            moved: 0,
            seen: 0,
            unreadable: 0,
        }
    }

    /// One record. `written`: its time, where the medium tells it better than the kernel's clock
    /// does.
    pub fn take(&mut self, raw: &[u8], arrival: Timestamp, written: Option<Timestamp>) {
        let Ok(record) = record::parse(raw) else {
            self.not_a_record();
            return;
        };
        self.seen += 1;
        match self.last {
            // A repetition tells nothing.
            Some(last) if record.seq == last => return,
            Some(last) if record.seq < last => self.renumber(),
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
        self.moved += 1;
        if record.facility != 0 || (self.history && self.from_now) {
            return;
        }
        let time = match self.history {
            true => written
                .unwrap_or_else(|| self.clock.at(record.time))
                .min(arrival),
            false => arrival,
        };
        self.classifier.push(&record, time, &mut self.events);
        for attached in self.classifier.attached() {
            self.name(attached);
        }
        for excused in self.classifier.excused() {
            if let Some(sector) = excused.sector.filter(|_| self.refused.len() < MAX_ATTACHED) {
                self.refused.push(Refused {
                    device: excused.device,
                    sector,
                    at: time,
                });
            }
        }
        if self.attached.len() >= MAX_ATTACHED {
            self.cut();
        } else if self.events.len() >= ROLL_UP_AT {
            self.roll_up();
        }
    }

    /// All that was there at the start has been read; from now on, records are live.
    pub fn caught_up(&mut self) -> CaughtUp {
        if self.history && self.medium.has_newest && self.last < self.resumed_at {
            return CaughtUp::Future;
        }
        if self.history {
            self.cut();
            self.history = false;
        }
        CaughtUp::Live
    }

    pub fn is_history(&self) -> bool {
        self.history
    }

    /// Something was said that somebody waits for.
    pub fn has_news(&self) -> bool {
        !self.events.is_empty() || !self.attached.is_empty()
    }

    /// Records since the last batch.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Records that were seen at all.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn not_a_record(&mut self) {
        self.seen += 1;
        self.unreadable += 1;
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }

    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Makes a batch of what there is.
    pub fn cut(&mut self) {
        self.roll_up();
        let (events, attached) = (
            std::mem::take(&mut self.events),
            std::mem::take(&mut self.attached),
        );
        let refused = std::mem::take(&mut self.refused);
        self.ready.push(Batch {
            cursor: self.cursor(),
            events,
            attached,
            refused,
            history: self.history,
        });
        self.moved = 0;
    }

    pub fn take_ready(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.ready)
    }

    pub fn cursor(&self) -> Cursor {
        let next = self
            .last
            .map_or(0, |last| last.saturating_add(1))
            .max(self.skip_before);
        Cursor {
            boot_id: self.numbering.to_string(),
            counted_to: self.counted_to,
            // While what is counted already is read again, not all that was open then is open yet.
            reread_from: self
                .classifier
                .oldest_open()
                .map_or(next, |open| open.min(next)),
            lost: self.lost,
        }
    }

    fn name(&mut self, attached: Attached) {
        let name = (attached.name.clone(), attached.filesystem);
        // A drive that comes to a free name may have been told of while it was probed, which is
        // before the kernel says that it is attached.
        let first = self.named.insert(name);
        // Where reading goes on after a run of before, who had the name at its end is not known
        // here.
        if self.history && (!first || self.resumed_at.is_some()) {
            let lag = if first {
                PROBED_FOR
            } else {
                SignedDuration::ZERO
            };
            self.superseding.push((attached.clone(), lag));
        }
        if self.named.len() > MAX_ATTACHED {
            self.named.pop_first();
        }
        self.attached.push(attached);
    }

    /// What was before is told of those who have their names still: who had them at that time
    /// nobody knows any more.
    fn forget_former(&mut self) {
        if self.history {
            let superseding = std::mem::take(&mut self.superseding);
            let over = |event: &Event, (attached, lag): &(Attached, SignedDuration)| {
                attached.supersedes(event) && attached.at.duration_since(event.last.time) >= *lag
            };
            self.events
                .retain(|event| !superseding.iter().any(|named| over(event, named)));
        }
    }

    fn roll_up(&mut self) {
        self.forget_former();
        let events = std::mem::take(&mut self.events);
        self.events = rollup(
            events,
            Fences {
                counted_to: self.resumed_at,
                attached: &self.attached,
            },
        );
    }

    /// Numbers grow as long as the kernel runs: this is another log under the same name.
    fn renumber(&mut self) {
        tracing::warn!(
            last = self.last,
            "the kernel log's sequence numbers have begun anew: read as another log"
        );
        self.cut();
        self.numbering = self.numbering.next();
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
