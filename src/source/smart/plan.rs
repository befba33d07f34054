//! When a drive is queried next. No I/O, no clock: time is an argument.
//!
//! In: the target, requests, the results of queries. Out: when the next query is due, and what it
//! reads.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::context::SmartSettings;
use crate::smart::query::ReadScope;
use diskvitals_model::drive::Transport;
use diskvitals_model::source_update::SmartTarget;
use diskvitals_smart::{SelfTestKind, SmartResponse};
use diskvitals_text::backoff::Backoff;
use diskvitals_text::hash::fnv1a_64;

/// The longest interval between queries of a drive that does not respond.
const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// Failures raise the shortest interval between two queries by this factor at most.
const MAX_FLOOR_FACTOR: u32 = 16;
/// A device without SMART is unlikely to have it ten minutes later.
const NOT_APPLICABLE_INTERVAL: Duration = Duration::from_secs(3600);
/// The first query after a self-test was started: it shows whether the test runs.
const SELF_TEST_FIRST_POLL: Duration = Duration::from_secs(5);
/// The interval while a self-test runs, so that its progress is visible.
const SELF_TEST_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The longest time for which an idle drive with adverse findings is not queried.
const SUSPECT_IDLE_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// The pause after a full reading failed.
const FULL_RETRY_INTERVAL: Duration = Duration::from_secs(3600);
/// Random variation of intervals, in thousandths, so that queries of drives do not coincide.
const JITTER_PERMILLE: u64 = 100;
/// The longest interval between full readings of a drive that hangs at them.
const MAX_FULL_INTERVAL: Duration = Duration::from_secs(30 * 24 * 3600);

/// The process that runs for a drive.
#[derive(Debug)]
pub enum QueryState {
    Idle,
    /// smartctl is running.
    Running,
    /// smartctl cannot be killed: no other one is started until it has exited.
    Stuck {
        since: Timestamp,
    },
}

/// The schedule of one drive.
#[derive(Debug)]
pub struct Plan {
    pub target: SmartTarget,
    /// The drive is a target. A removed drive is kept while smartctl runs for it.
    pub wanted: bool,
    pub state: QueryState,
    /// A self-test of an admin that waits to be started.
    pub pending_self_test: Option<SelfTestKind>,
    /// Results of earlier queries that shape the next one.
    pub hints: QueryHints,
    due: Instant,
    /// When the last query was started.
    started: Option<Instant>,
    /// The next query was requested: it also disturbs an idle drive.
    requested: bool,
    /// A query was requested while one was running, whose result may be too old.
    requery: bool,
    /// Consecutive failed queries.
    consecutive_failures: u32,
    /// The last query timed out: kernel errors that it caused do not trigger another query.
    last_timed_out: bool,
    /// Counts queries; varies the jitter.
    round: u64,
    /// A self-test that was started here runs, or should run.
    self_test_running: bool,
    /// The next query shows whether the self-test runs.
    self_test_started: bool,
}

#[derive(Clone, Debug, Default)]
pub struct QueryHints {
    /// The `-d` that works where smartctl's own guess does not.
    pub device_type: Option<String>,
    /// The scope of a quick query, by the protocol in the last full report.
    pub quick_scope: Option<ReadScope>,
    /// The serial number in the last full report.
    pub serial: Option<String>,
    /// When the next full reading is due. None: now.
    pub full_due: Option<Instant>,
    /// Consecutive full readings that timed out.
    pub full_timeouts: u32,
    /// The fallback device type was tried and did not work.
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
            requested: false,
            requery: false,
            consecutive_failures: 0,
            last_timed_out: false,
            round: 0,
            self_test_running: false,
            self_test_started: false,
        };
        if let Some(answered) = plan.target.last_response {
            // If the clock was set back, the age is zero and the wait is a whole interval.
            let age = Duration::try_from(now.duration_since(answered)).unwrap_or_default();
            plan.due = at + plan.interval(settings).saturating_sub(age);
        }
        plan
    }

    /// A newer version of the target.
    pub(crate) fn update_target(
        &mut self,
        target: SmartTarget,
        settings: &SmartSettings,
        at: Instant,
    ) {
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
            let soon = self.started.map_or(at, |started| started + self.interval(settings));
            self.due = self.due.min(soon);
        }
    }

    /// Requests a query now, or as soon as `shortest_interval` allows.
    pub(crate) fn query_now(&mut self, at: Instant) {
        match self.state {
            QueryState::Idle => (self.due, self.requested) = (self.due.min(at), true),
            QueryState::Running | QueryState::Stuck { .. } => self.requery = true,
        }
    }

    /// When the next query may start. None: no query starts without another event.
    pub fn due(&self, settings: &SmartSettings) -> Option<Instant> {
        if !self.wanted || self.target.asleep || !matches!(self.state, QueryState::Idle) {
            return None;
        }
        let floor = if self.self_test_started {
            SELF_TEST_FIRST_POLL
        } else {
            // The kernel's errors of a drive that does not respond trigger only a limited number of
            // queries.
            let shortest = settings.shortest_interval;
            Backoff::new(shortest, shortest * MAX_FLOOR_FACTOR).delay(self.consecutive_failures)
        };
        let Some(started) = self.started else {
            return Some(self.due);
        };
        let is_idle = self.target.idle && !self.requested && !self.self_test_running;
        let floor = if is_idle { floor.max(self.idle_limit(settings)) } else { floor };
        Some(self.due.max(started + floor))
    }

    /// Whether the plan is still needed: it is a target, or something runs.
    pub fn is_needed(&self) -> bool {
        self.wanted || self.pending_self_test.is_some() || !matches!(self.state, QueryState::Idle)
    }

    /// Whether the last query succeeded.
    pub(crate) fn is_responsive(&self) -> bool {
        self.consecutive_failures == 0
    }

    /// smartctl is being started. `shortest_interval` counts from a query, not from a self-test.
    pub(crate) fn mark_started(&mut self, at: Instant, is_query: bool) {
        self.state = QueryState::Running;
        if is_query {
            self.started = Some(at);
            (self.self_test_started, self.requested) = (false, false);
        }
    }

    /// Whether the next query reads all log pages.
    pub(crate) fn is_full_due(&self, at: Instant) -> bool {
        self.hints.full_due.is_none_or(|due| due <= at)
    }

    /// Records the result of a query. `full`: it read all log pages.
    pub(crate) fn record_response(
        &mut self,
        answer: &SmartResponse,
        full: bool,
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
                if full {
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
                if full {
                    // A single slow page may hang: quick queries continue.
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
        // Requests that arrived during a time-out were caused by it.
        self.requested = std::mem::take(&mut self.requery) && !self.last_timed_out;
        self.due = if self.requested { at } else { self.started.unwrap_or(at) + wait };
    }

    /// A full reading timed out. A quick query follows at once: only if that fails too does the
    /// drive count as not responding.
    pub(crate) fn retry_quick(&mut self, settings: &SmartSettings, at: Instant) {
        self.state = QueryState::Idle;
        self.requery = false;
        self.last_timed_out = true;
        self.defer_full(settings, at);
        (self.due, self.requested) = (at, true);
    }

    /// Defers the next full reading by `slow_interval`, and ever longer while full readings time
    /// out. The kernel counts a time-out each time, which would count against a healthy drive.
    fn defer_full(&mut self, settings: &SmartSettings, at: Instant) {
        let longest = MAX_FULL_INTERVAL.max(settings.slow_interval);
        let wait = Backoff::new(settings.slow_interval, longest).delay(self.hints.full_timeouts);
        self.hints.full_timeouts = self.hints.full_timeouts.saturating_add(1);
        self.hints.full_due = Some(at + wait);
    }

    fn backoff(&self, base: Duration) -> Duration {
        Backoff::new(base, MAX_BACKOFF.max(base)).delay(self.consecutive_failures)
    }

    /// The scope of a query between two full readings; NVMe has no slow pages to leave out.
    pub(crate) fn quick_scope(&self) -> ReadScope {
        match (self.hints.quick_scope, self.target.transport) {
            (Some(read), _) => read,
            (None, Transport::Sata | Transport::Usb) => ReadScope::QuickAta,
            (None, Transport::Sas | Transport::Scsi) => ReadScope::QuickScsi,
            (None, _) => ReadScope::Full,
        }
    }

    /// smartctl hangs and cannot be killed. `full`: it read all log pages.
    pub fn mark_stuck(
        &mut self,
        since: Timestamp,
        full: bool,
        settings: &SmartSettings,
        at: Instant,
    ) {
        self.state = QueryState::Stuck { since };
        self.last_timed_out = true;
        self.round += 1;
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        let quick_is_left = full && self.quick_scope() != ReadScope::Full;
        if full {
            self.defer_full(settings, at);
        }
        // The quick pages may still be readable.
        let wait =
            if quick_is_left { Duration::ZERO } else { self.backoff(self.interval(settings)) };
        self.due = self.started.unwrap_or(at) + wait;
    }

    /// The unkillable smartctl has exited. `mark_stuck` has set the time of the next query.
    pub(crate) fn clear_stuck(&mut self) {
        self.state = QueryState::Idle;
        self.requery = false;
    }

    /// The query failed for a reason outside the drive, and does not count.
    pub(crate) fn reset_query(&mut self, at: Instant) {
        self.state = QueryState::Idle;
        self.started = None;
        self.due = at;
    }

    /// A self-test was started, or refused.
    pub(crate) fn record_self_test(&mut self, begun: bool, at: Instant) {
        self.state = QueryState::Idle;
        self.requery = false;
        self.self_test_running |= begun;
        self.self_test_started = begun;
        self.due = if begun { at + SELF_TEST_FIRST_POLL } else { at };
    }

    fn idle_limit(&self, settings: &SmartSettings) -> Duration {
        match self.target.suspect {
            true => settings.idle_interval.min(SUSPECT_IDLE_INTERVAL),
            false => settings.idle_interval,
        }
    }

    fn interval(&self, settings: &SmartSettings) -> Duration {
        let base = if self.target.suspect { settings.suspect_interval } else { settings.interval };
        jitter(base, self.target.drive.as_str(), self.round)
    }
}

/// Within 10 % of `base`, the same for the same drive and round.
pub fn jitter(base: Duration, drive: &str, round: u64) -> Duration {
    // Folded: the low bits of the hash vary too little.
    let hash = fnv1a_64(drive.bytes().chain(round.to_le_bytes()));
    let thousandths = 1000 - JITTER_PERMILLE + (hash ^ hash >> 32) % (2 * JITTER_PERMILLE + 1);
    base.mul_f64(f64::from(u32::try_from(thousandths).unwrap_or(1000)) / 1000.0)
}
