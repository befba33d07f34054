//! When a drive is asked next. No I/O, no clock: time is an argument.
//!
//! In: the owner's target, what was asked for, how the last question ended. Out: when the next one
//! is due, and whether it may be asked at all.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::model::backoff::Backoff;
use crate::model::drive::Transport;
use crate::model::hash::fnv1a_64;
use crate::model::smart::{SelfTestKind, SmartResponse};
use crate::model::source_update::SmartTarget;
use crate::source::context::SmartSettings;
use crate::source::smart::query::ReadScope;

/// A drive that does not answer is asked ever more rarely, up to this.
const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// Failures raise the shortest interval between two queries by this factor at most.
const MAX_FLOOR_FACTOR: u32 = 16;
/// What has no SMART now will hardly have it in ten minutes.
const NOT_APPLICABLE_INTERVAL: Duration = Duration::from_secs(3600);
/// After an admin has started a self-test, to see whether it runs.
const SELF_TEST_FIRST_POLL: Duration = Duration::from_secs(5);
/// While it runs, so that its progress is seen.
const SELF_TEST_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// After the slow log pages were not to be had.
const FULL_RETRY_INTERVAL: Duration = Duration::from_secs(3600);
/// Intervals vary by this much to either side, so that drives do not all answer at once for ever.
/// In parts of a thousand.
const JITTER_PERMILLE: u64 = 100;
/// All log pages of a drive that hangs at them are tried again at least this often.
const MAX_FULL_INTERVAL: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is going on with a drive.
#[derive(Debug)]
pub enum QueryState {
    Idle,
    /// smartctl runs for it.
    Running,
    /// smartctl could not be killed: nobody is started until it has gone.
    Stuck {
        since: Timestamp,
    },
}

/// One drive.
#[derive(Debug)]
pub struct Plan {
    pub target: SmartTarget,
    /// The owner wants it asked. A drive that has gone is kept while smartctl runs for it.
    pub wanted: bool,
    pub state: QueryState,
    /// An admin's self-test that waits for its turn.
    pub pending_self_test: Option<SelfTestKind>,
    /// What was learned of it by asking.
    pub hints: QueryHints,
    due: Instant,
    /// When it was asked last.
    started: Option<Instant>,
    /// Somebody wanted an answer while it was being asked: what has happened since may not be in
    /// it.
    requery: bool,
    /// Questions in a row without an answer.
    consecutive_failures: u32,
    /// The last one hung: the kernel's errors that came of it are no reason to ask.
    last_timed_out: bool,
    /// Makes each interval another one.
    round: u64,
    /// A self-test that we started runs, or should.
    self_test_running: bool,
    /// The next question is to tell whether it does.
    self_test_started: bool,
}

#[derive(Clone, Debug, Default)]
pub struct QueryHints {
    /// The `-d` that works where smartctl's own guess does not.
    pub device_type: Option<String>,
    /// What is read between two whole readings, by the protocol of the last whole answer.
    pub quick_scope: Option<ReadScope>,
    /// The serial number in the last whole answer.
    pub serial: Option<String>,
    /// When all log pages are read next; None: at the next question.
    pub full_due: Option<Instant>,
    /// Readings of all log pages in a row that hung.
    pub full_timeouts: u32,
    /// Other types were tried in vain: not again.
    pub fallback_tried: bool,
}

impl Plan {
    pub fn new(target: SmartTarget, settings: &SmartSettings, now: Timestamp, at: Instant) -> Plan {
        let mut plan = Plan {
            target,
            wanted: true,
            state: QueryState::Idle,
            pending_self_test: None,
            hints: QueryHints::default(),
            due: at,
            started: None,
            requery: false,
            consecutive_failures: 0,
            last_timed_out: false,
            round: 0,
            self_test_running: false,
            self_test_started: false,
        };
        if let Some(answered) = plan.target.last_response {
            // A clock that was set back makes the age zero: then the wait is a whole interval.
            let age = Duration::try_from(now.duration_since(answered)).unwrap_or_default();
            plan.due = at + plan.interval(settings).saturating_sub(age);
        }
        plan
    }

    /// The owner's newer word on it.
    pub fn update_target(&mut self, target: SmartTarget, settings: &SmartSettings, at: Instant) {
        let grew = target.kernel_error_count > self.target.kernel_error_count;
        let worse = target.suspect && !self.target.suspect;
        let moved = target.device != self.target.device;
        self.wanted = true;
        self.target = target;
        if moved {
            self.hints.fallback_tried = false;
        }
        if moved || grew && !self.last_timed_out {
            self.query_now(at);
        } else if worse {
            let soon = self
                .started
                .map_or(at, |started| started + self.interval(settings));
            self.due = self.due.min(soon);
        }
    }

    /// An answer is wanted now, or as soon as manners allow.
    pub fn query_now(&mut self, at: Instant) {
        match self.state {
            QueryState::Idle => self.due = self.due.min(at),
            QueryState::Running | QueryState::Stuck { .. } => self.requery = true,
        }
    }

    /// When it may be asked. None: not now, and not by the mere passing of time.
    pub fn due(&self, settings: &SmartSettings) -> Option<Instant> {
        if !self.wanted || self.target.asleep || !matches!(self.state, QueryState::Idle) {
            return None;
        }
        let floor = if self.self_test_started {
            SELF_TEST_FIRST_POLL
        } else {
            // The kernel's errors of a drive that does not answer trigger queries only so often.
            let shortest = settings.shortest_interval;
            Backoff::new(shortest, shortest * MAX_FLOOR_FACTOR).delay(self.consecutive_failures)
        };
        Some(
            self.started
                .map_or(self.due, |started| self.due.max(started + floor)),
        )
    }

    /// The owner wants it, or something about it has not ended.
    pub fn is_needed(&self) -> bool {
        self.wanted || self.pending_self_test.is_some() || !matches!(self.state, QueryState::Idle)
    }

    /// It has had no trouble answering.
    pub fn is_responsive(&self) -> bool {
        self.consecutive_failures == 0
    }

    /// smartctl is being started for it. A question counts for the shortest interval, an admin's
    /// self-test does not.
    pub fn mark_started(&mut self, at: Instant, is_query: bool) {
        self.state = QueryState::Running;
        if is_query {
            self.started = Some(at);
            self.self_test_started = false;
        }
    }

    /// All log pages are to be read this time.
    pub fn is_full_due(&self, at: Instant) -> bool {
        self.hints.full_due.is_none_or(|due| due <= at)
    }

    /// The question has ended with this. `whole`: with all log pages.
    pub fn record_response(
        &mut self,
        answer: &SmartResponse,
        whole: bool,
        settings: &SmartSettings,
        at: Instant,
    ) {
        self.state = QueryState::Idle;
        self.round += 1;
        self.last_timed_out = matches!(answer, SmartResponse::TimedOut { .. });
        match answer {
            SmartResponse::Report(report) => {
                self.consecutive_failures = 0;
                self.self_test_running &= report.self_tests.running.is_some();
                if whole {
                    self.hints.quick_scope = ReadScope::quick_for(&report.body);
                    self.hints.serial.clone_from(&report.identity.serial);
                    self.hints.full_due = Some(at + settings.slow_interval);
                    self.hints.full_timeouts = 0;
                }
            }
            SmartResponse::Standby { .. } | SmartResponse::NotApplicable { .. } => {
                self.consecutive_failures = 0;
                self.self_test_running = false;
            }
            SmartResponse::Failed { .. } | SmartResponse::TimedOut { .. } => {
                self.consecutive_failures = self.consecutive_failures.saturating_add(1);
                if whole {
                    // Perhaps only one of its slow pages hangs: the others go on being read.
                    self.hints.full_due =
                        Some(at + FULL_RETRY_INTERVAL.min(settings.slow_interval));
                }
            }
        }
        let base = self.interval(settings);
        let wait = match answer {
            SmartResponse::Report(_) if self.self_test_running => SELF_TEST_POLL_INTERVAL.min(base),
            SmartResponse::NotApplicable { .. } => NOT_APPLICABLE_INTERVAL.max(base),
            SmartResponse::Failed { .. } | SmartResponse::TimedOut { .. } => self.backoff(base),
            SmartResponse::Report(_) | SmartResponse::Standby { .. } => base,
        };
        // What came while it hung came of that.
        self.due = if std::mem::take(&mut self.requery) && !self.last_timed_out {
            at
        } else {
            self.started.unwrap_or(at) + wait
        };
    }

    /// All log pages were not read in their time. The drive is asked again at once for the quick
    /// ones alone: only if it does not answer those either does it not answer.
    pub fn retry_quick(&mut self, settings: &SmartSettings, at: Instant) {
        self.state = QueryState::Idle;
        self.requery = false;
        self.last_timed_out = true;
        self.defer_full(settings, at);
        self.due = at;
    }

    /// All log pages have their next turn a `slow_interval` later, and ever later while they hang:
    /// each time the kernel counts a time-out, which would come to stand against a drive that is
    /// well.
    fn defer_full(&mut self, settings: &SmartSettings, at: Instant) {
        let longest = MAX_FULL_INTERVAL.max(settings.slow_interval);
        let wait = Backoff::new(settings.slow_interval, longest).delay(self.hints.full_timeouts);
        self.hints.full_timeouts = self.hints.full_timeouts.saturating_add(1);
        self.hints.full_due = Some(at + wait);
    }

    fn backoff(&self, base: Duration) -> Duration {
        Backoff::new(base, MAX_BACKOFF.max(base)).delay(self.consecutive_failures)
    }

    /// What is read of it between two whole readings; for NVMe there is nothing slow to leave out.
    pub fn quick_scope(&self) -> ReadScope {
        match (self.hints.quick_scope, self.target.transport) {
            (Some(read), _) => read,
            (None, Transport::Sata | Transport::Usb) => ReadScope::QuickAta,
            (None, Transport::Sas | Transport::Scsi) => ReadScope::QuickScsi,
            (None, _) => ReadScope::Full,
        }
    }

    /// smartctl hangs and cannot be killed. `whole`: while it read all log pages.
    pub fn mark_stuck(
        &mut self,
        since: Timestamp,
        whole: bool,
        settings: &SmartSettings,
        at: Instant,
    ) {
        self.state = QueryState::Stuck { since };
        self.last_timed_out = true;
        self.round += 1;
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        let quick_is_left = whole && self.quick_scope() != ReadScope::Full;
        if whole {
            self.defer_full(settings, at);
        }
        // The quick pages may well answer.
        let wait = if quick_is_left {
            Duration::ZERO
        } else {
            self.backoff(self.interval(settings))
        };
        self.due = self.started.unwrap_or(at) + wait;
    }

    /// What was stuck has gone. When the drive is asked again was said when it hung.
    pub fn clear_stuck(&mut self) {
        self.state = QueryState::Idle;
        self.requery = false;
    }

    /// It could not be asked for a reason that is not the drive's: as if nobody had.
    pub fn reset_query(&mut self, at: Instant) {
        self.state = QueryState::Idle;
        self.started = None;
        self.due = at;
    }

    /// A self-test was started, or refused.
    pub fn record_self_test(&mut self, begun: bool, at: Instant) {
        self.state = QueryState::Idle;
        self.requery = false;
        self.self_test_running |= begun;
        self.self_test_started = begun;
        self.due = if begun { at + SELF_TEST_FIRST_POLL } else { at };
    }

    fn interval(&self, settings: &SmartSettings) -> Duration {
        let base = if self.target.suspect {
            settings.suspect_interval
        } else {
            settings.interval
        };
        jitter(base, self.target.drive.as_str(), self.round)
    }
}

/// Within 10 % of `base`, the same for the same drive and round.
pub fn jitter(base: Duration, drive: &str, round: u64) -> Duration {
    // Folded: the hash's low bits alone are poor.
    let hash = fnv1a_64(drive.bytes().chain(round.to_le_bytes()));
    let thousandths = 1000 - JITTER_PERMILLE + (hash ^ hash >> 32) % (2 * JITTER_PERMILLE + 1);
    base.mul_f64(f64::from(u32::try_from(thousandths).unwrap_or(1000)) / 1000.0)
}
