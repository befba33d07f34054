//! `Batcher`: log reading without its I/O. Decides which records are new, which were lost, what
//! time they have, and when a batch is complete.
//!
//! In: raw records and their time of arrival. Out: `Batch`es, bounded. No clock, no descriptor: a
//! test can stop it anywhere.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::kmsg::log_epoch::{LogEpoch, StartPosition};
use diskvitals_host::clock;
use diskvitals_kernel_log::classify::{Classifier, ClassifierOptions};
use diskvitals_kernel_log::event::{
    Batch, Cursor, Event, FullRead, MAX_LINE_BYTES, NameAssignment,
};
use diskvitals_kernel_log::record::{self, Record};
use diskvitals_kernel_log::rollup::{MergeBoundaries, rollup};

/// With this many events, an unfinished batch is rolled up: four times the maximum of a finished
/// one.
const ROLLUP_THRESHOLD: usize = 1024;
/// The kernel reports a drive while it is probed, up to this long before the `Attached` record.
const PROBE_LEAD: SignedDuration = SignedDuration::from_secs(30);
/// At 500 ppm, the most by which NTP corrects a clock, they drift by 0.3 s in that time.
const DELAYS_COMPARED: Duration = Duration::from_mins(10);
/// A batch is finished at this many name assignments.
const MAX_ATTACHED: usize = 1024;

/// Converts the kernel's clock to the steady timeline. The kernel's microseconds stop in suspend and
/// drift: for the backlog they are taken as they are, for a live record compared with those of the
/// last minutes. A record from before a suspend appears younger than it is, never older: it clears
/// later, never earlier.
#[derive(Clone, Copy, Debug)]
pub struct KernelClock {
    pub now: Timestamp,
    /// CLOCK_MONOTONIC at that moment.
    pub monotonic: Duration,
}

impl KernelClock {
    pub fn read() -> KernelClock {
        KernelClock { now: clock::now(), monotonic: clock::monotonic() }
    }

    /// Never later than the moment at which the clock was read.
    fn at(&self, microseconds: u64) -> Timestamp {
        self.before(self.microseconds_since(microseconds))
    }

    fn before(&self, microseconds: i64) -> Timestamp {
        self.now
            .checked_sub(SignedDuration::from_micros(microseconds))
            .unwrap_or(self.now)
            .min(self.now)
    }

    fn microseconds_since(&self, microseconds: u64) -> i64 {
        i64::try_from(self.monotonic.as_micros())
            .unwrap_or(i64::MAX)
            .saturating_sub_unsigned(microseconds)
    }
}

/// A line that a kernel before 4.10 has printed in pieces, as far as it has been read: the first piece
/// has the flag `c`, the following ones `+` and the next numbers (kernel/printk/printk.c, `LOG_CONT`).
#[derive(Debug)]
struct JoinedLine {
    facility: u8,
    level: Option<u8>,
    begins_line: bool,
    first_seq: u64,
    last_seq: u64,
    time_us: u64,
    subsystem: Option<String>,
    device: Option<String>,
    text: String,
    time: Timestamp,
}

impl JoinedLine {
    fn begin(first: &Record<'_>, time: Timestamp) -> JoinedLine {
        JoinedLine {
            facility: first.facility,
            level: first.level,
            begins_line: first.begins_line,
            first_seq: first.seq,
            last_seq: first.seq,
            time_us: first.time_us,
            subsystem: first.subsystem.map(str::to_owned),
            device: first.device.map(str::to_owned),
            text: first.text.clone().into_owned(),
            time,
        }
    }

    /// Whether it is the next piece of this line.
    fn add(&mut self, piece: &Record<'_>) -> bool {
        let is_next = piece.flag == Some('+')
            && piece.seq == self.last_seq + 1
            && piece.facility == self.facility
            && self.text.len() + piece.text.len() <= MAX_LINE_BYTES;
        if is_next {
            self.text.push_str(&piece.text);
            self.last_seq = piece.seq;
        }
        is_next
    }

    fn record(&self) -> Record<'_> {
        Record {
            facility: self.facility,
            level: self.level,
            begins_line: self.begins_line,
            flag: None,
            seq: self.first_seq,
            time_us: self.time_us,
            caller: None,
            subsystem: self.subsystem.as_deref(),
            device: self.device.as_deref(),
            text: self.text.as_str().into(),
        }
    }
}

/// How long live records were on their way: a reader that could not run for a while (a stopped or
/// starved daemon) gets them late. The record of the last minutes that came fastest is the measure:
/// the clocks drift little in that time.
#[derive(Debug, Default)]
struct Delays {
    /// The smallest difference between the clocks, and CLOCK_MONOTONIC when it was found.
    least: Option<(i64, Duration)>,
}

impl Delays {
    /// The time of a live record.
    fn time(&mut self, written: u64, arrival: KernelClock) -> Timestamp {
        let difference = arrival.microseconds_since(written);
        let least = self.least.filter(|(least, found)| {
            *least < difference && arrival.monotonic.saturating_sub(*found) < DELAYS_COMPARED
        });
        let (least, _) = *self.least.insert(least.unwrap_or((difference, arrival.monotonic)));
        arrival.before(difference.saturating_sub(least))
    }
}

/// The next step after the backlog was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    Live,
    /// The stored cursor is ahead of all records in the log: it belongs to another log. Read again
    /// from the start.
    CursorAhead,
}

/// The properties of a medium's record numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumProperties {
    /// Numbers without a gap prove that no record was lost.
    pub contiguous: bool,
    /// The backlog includes the newest record. False for a pipe, and for a journal that is read
    /// from the middle.
    pub has_newest: bool,
    pub pieces: Pieces,
}

/// How a medium tells the pieces of a line from whole lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// By their flag: /dev/kmsg since Linux 4.10.
    Flagged,
    /// Following pieces have a flag, unless a record of another CPU came between: /dev/kmsg before.
    FollowingFlagged { default_level: u8 },
    /// Not: journald does not keep the flag.
    Unmarked { default_level: u8 },
}

impl Pieces {
    /// `release`: as `uname -r` prints it.
    pub(crate) fn of_release(release: &str, default_level: u8) -> Pieces {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok());
        match (number(), number()) {
            (Some(major), Some(minor)) if (major, minor) < (4, 10) => {
                Pieces::FollowingFlagged { default_level }
            }
            _ => Pieces::Flagged,
        }
    }

    /// A piece without a flag has the default level, which other records may have too: without a
    /// device that the kernel names beside the text, such a record is no evidence.
    fn begins_line(self, record: &Record<'_>) -> bool {
        let is_told_by_level = |default_level: u8| {
            record.device.is_some() || record.level.is_some_and(|level| level != default_level)
        };
        match self {
            Pieces::Flagged => record.begins_line,
            Pieces::FollowingFlagged { default_level } => {
                record.flag != Some('+') && is_told_by_level(default_level)
            }
            Pieces::Unmarked { default_level } => is_told_by_level(default_level),
        }
    }
}

#[derive(Debug)]
pub struct Batcher {
    epoch: LogEpoch,
    medium: MediumProperties,
    clock: KernelClock,
    delays: Delays,
    classifier: Classifier,
    /// Not yet classified.
    joined: Option<JoinedLine>,
    scope: ClassifierOptions,
    /// Number of the last record that was read.
    last: Option<u64>,
    /// Records before this one are finished and skipped.
    skip_before: u64,
    /// Events up to this record are counted, by earlier runs and by this one.
    counted_to: Option<u64>,
    /// Events up to this record were counted by earlier runs.
    resumed_at: Option<u64>,
    pub lost: u64,
    pub in_backlog: bool,
    /// Events of the backlog are dropped.
    skip_backlog: bool,
    events: Vec<Event>,
    attached: Vec<NameAssignment>,
    full_reads: Vec<FullRead>,
    /// Assigned names, each with `is_filesystem`; then the assignments that may reuse a name.
    assigned_names: BTreeSet<(String, bool)>,
    superseding: Vec<(NameAssignment, SignedDuration)>,
    ready: Vec<Batch>,
    /// Records since the last batch.
    pub records_since_batch: u64,
    /// Number of all records that were read.
    pub records_read: u64,
    /// Entries that could not be parsed as records.
    pub unreadable: u64,
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
            delays: Delays::default(),
            classifier: Classifier::new(scope.clone()),
            joined: None,
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
            full_reads: Vec::new(),
            assigned_names: BTreeSet::new(),
            superseding: Vec::new(),
            ready: Vec::new(),
            records_since_batch: 0,
            records_read: 0,
            unreadable: 0,
        }
    }

    /// Adds one record. `written`: its time in microseconds of CLOCK_MONOTONIC, if the medium has a
    /// better one than the kernel.
    pub fn push(&mut self, raw: &[u8], arrival: KernelClock, written: Option<u64>) {
        let Ok(mut record) = record::parse(raw) else {
            self.count_unreadable();
            return;
        };
        record.begins_line = self.medium.pieces.begins_line(&record);
        self.records_read += 1;
        match self.last {
            // A repeated record has nothing new.
            Some(last) if record.seq == last => return,
            Some(last) if record.seq < last => self.start_new_epoch(),
            _ => {}
        }
        if self.medium.contiguous
            && let Some(last) = self.last.max(self.counted_to)
            && record.seq > last.saturating_add(1)
            && !self.is_from_before_start(&record)
        {
            self.lost = self.lost.saturating_add(record.seq - last - 1);
        }
        self.last = Some(record.seq);
        if record.seq < self.skip_before {
            return;
        }
        self.counted_to = self.counted_to.max(Some(record.seq));
        self.records_since_batch += 1;
        let written = written.unwrap_or(record.time_us);
        let live = self.delays.time(written, arrival);
        if record.facility != 0 || (self.in_backlog && self.skip_backlog) {
            return;
        }
        let time = match self.in_backlog {
            true => self.clock.at(written).min(arrival.now),
            false => live,
        };
        if let Pieces::FollowingFlagged { .. } = self.medium.pieces {
            if self.joined.as_mut().is_some_and(|line| line.add(&record)) {
                return;
            }
            self.classify_joined();
            if record.flag == Some('c') {
                self.joined = Some(JoinedLine::begin(&record, time));
                return;
            }
        }
        self.classify(&record, time);
    }

    /// What is overwritten at the old end of a full ring while it is read for the first time was
    /// never to be had: a start one moment later would not have seen that it was there.
    fn is_from_before_start(&self, record: &Record<'_>) -> bool {
        self.in_backlog
            && self.resumed_at.is_none()
            && Duration::from_micros(record.time_us) < self.clock.monotonic
    }

    /// The line that was read in pieces is complete, or nothing more of it is there.
    fn classify_joined(&mut self) {
        if let Some(line) = self.joined.take() {
            self.classify(&line.record(), line.time);
        }
    }

    fn classify(&mut self, record: &Record<'_>, time: Timestamp) {
        self.classifier.push(record, time, &mut self.events);
        for attached in self.classifier.take_name_assignments() {
            self.record_attached(attached);
        }
        self.full_reads.extend(self.classifier.take_full_reads());
        // Only the analysis of a whole log uses them.
        drop(self.classifier.take_rejected_requests());
        if self.attached.len() >= MAX_ATTACHED {
            self.finish_batch();
        } else if self.events.len() >= ROLLUP_THRESHOLD {
            self.roll_up();
        }
    }

    /// The backlog was read; from now on, records are live.
    pub(crate) fn catch_up(&mut self) -> CatchUp {
        if self.in_backlog && self.medium.has_newest && self.last < self.resumed_at {
            return CatchUp::CursorAhead;
        }
        if self.in_backlog {
            self.finish_batch();
            self.in_backlog = false;
        }
        CatchUp::Live
    }

    /// There are events that the owner waits for.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
            || !self.attached.is_empty()
            || !self.full_reads.is_empty()
            || self.joined.is_some()
    }

    pub(crate) fn has_batches(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn count_unreadable(&mut self) {
        self.records_read += 1;
        self.unreadable += 1;
    }

    /// Finishes the batch with the records read so far.
    pub(crate) fn finish_batch(&mut self) {
        self.classify_joined();
        self.roll_up();
        let (events, attached) =
            (std::mem::take(&mut self.events), std::mem::take(&mut self.attached));
        self.ready.push(Batch {
            cursor: self.cursor(),
            events,
            name_assignments: attached,
            full_reads: std::mem::take(&mut self.full_reads),
            is_backlog: self.in_backlog,
        });
        self.records_since_batch = 0;
    }

    pub(crate) fn take_batches(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.ready)
    }

    pub fn cursor(&self) -> Cursor {
        let next = self.last.map_or(0, |last| last.saturating_add(1)).max(self.skip_before);
        Cursor {
            boot_id: self.epoch.to_string(),
            counted_to: self.counted_to,
            // When counted records are read again, incidents that were open then are not all open
            // yet.
            reread_from: self.classifier.oldest_open().map_or(next, |open| open.min(next)),
            lost: self.lost,
        }
    }

    fn record_attached(&mut self, attached: NameAssignment) {
        let name = (attached.name.clone(), attached.is_filesystem);
        // The kernel may report errors of a drive that gets a free name while it is probed, before
        // its `Attached` record.
        let first = self.assigned_names.insert(name);
        // When reading continues after an earlier run, the device that had the name at that run's
        // end is unknown here.
        if self.in_backlog && (!first || self.resumed_at.is_some()) {
            let lag = if first { PROBE_LEAD } else { SignedDuration::ZERO };
            self.superseding.push((attached.clone(), lag));
        }
        if self.assigned_names.len() > MAX_ATTACHED {
            self.assigned_names.pop_first();
        }
        self.attached.push(attached);
    }

    /// Keeps events of the backlog only for devices that still have their names. Former devices of
    /// a name cannot be identified.
    fn drop_superseded(&mut self) {
        if self.in_backlog {
            let superseding = std::mem::take(&mut self.superseding);
            let over = |event: &Event, (attached, lag): &(NameAssignment, SignedDuration)| {
                attached.supersedes(event) && attached.at.duration_since(event.last.time) >= *lag
            };
            self.events.retain(|event| !superseding.iter().any(|named| over(event, named)));
        }
    }

    fn roll_up(&mut self) {
        self.drop_superseded();
        let events = std::mem::take(&mut self.events);
        self.events = rollup(
            events,
            MergeBoundaries { counted_to: self.resumed_at, name_assignments: &self.attached },
        );
    }

    /// Numbers grow while the kernel runs: a smaller number means another log under the same name.
    fn start_new_epoch(&mut self) {
        tracing::warn!(
            last = self.last,
            "the kernel log's sequence numbers started over: it is read as another log"
        );
        self.finish_batch();
        self.epoch = self.epoch.next();
        self.classifier = Classifier::new(self.scope.clone());
        // The records of another log have another clock.
        self.delays = Delays::default();
        (self.last, self.counted_to, self.resumed_at, self.skip_before) = (None, None, None, 0);
    }
}

#[cfg(test)]
mod tests;
