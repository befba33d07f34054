//! Tracks a self-test that this program requested, from the drive's state in the daemon's
//! snapshots.
//!
//! In: the drive before the request, the drive now. Out: `SelfTestProgress`. It only compares the
//! two states: the daemon starts the test and polls the drive.

use std::time::Duration;

use tokio::time::Instant;

use crate::args::TestKind;
use diskvitals_wire as wire;

/// A poll is cheap: the daemon answers from its snapshot.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the drive is polled. The daemon itself polls a drive at most every 30 s
/// (`smart.shortest_interval`).
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// The daemon's time-out for a drive, plus time for the drives that are polled before it.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Time-out for a drive that does not report the duration of its tests.
const SHORT_TEST_TIMEOUT: Duration = Duration::from_secs(10 * 60);
const LONG_TEST_TIMEOUT: Duration = Duration::from_secs(48 * 3600);

#[derive(Clone, Debug, PartialEq)]
pub enum SelfTestProgress {
    /// The drive has not received the request yet.
    Requested,
    /// The drive or smartctl refused, with its reason.
    Refused(String),
    /// The test runs; remaining percent, if the drive reports it.
    Running(Option<u32>),
    Finished(wire::SelfTest),
    /// The test has ended or was never observed, and the drive's log has no result.
    ResultUnknown,
    /// The daemon has not started the test in time.
    NotStarted,
}

pub struct SelfTestTracker {
    pub started: Instant,
    /// The previous request; `log` is the log from before the new request.
    requested: Option<wire::SelfTestRequest>,
    log: Vec<wire::SelfTest>,
    was_running: bool,
    /// Maximum duration of the test.
    timeout: Duration,
    last_refresh: Instant,
}

impl SelfTestProgress {
    pub fn is_finished(&self) -> bool {
        !matches!(self, SelfTestProgress::Requested | SelfTestProgress::Running(_))
    }

    /// The drive has started the test.
    pub(crate) fn has_started(&self) -> bool {
        matches!(self, SelfTestProgress::Running(_) | SelfTestProgress::Finished(_))
    }

    pub(crate) fn has_failed(&self) -> bool {
        match self {
            SelfTestProgress::Finished(test) => test.outcome != "passed",
            SelfTestProgress::Requested | SelfTestProgress::Running(_) => false,
            SelfTestProgress::Refused(_)
            | SelfTestProgress::ResultUnknown
            | SelfTestProgress::NotStarted => true,
        }
    }
}

impl SelfTestTracker {
    /// A tracker for the state of the drive before the request.
    pub fn new(before: &wire::Drive, kind: TestKind) -> SelfTestTracker {
        let tests = self_tests(before).cloned().unwrap_or_default();
        let expected = Duration::from_secs(60 * u64::from(minutes(&tests, kind)));
        let least = match kind {
            TestKind::Short => SHORT_TEST_TIMEOUT,
            TestKind::Long => LONG_TEST_TIMEOUT,
        };
        let now = Instant::now();
        SelfTestTracker {
            started: now,
            requested: tests.requested,
            log: tests.log,
            was_running: false,
            timeout: least.max(expected * 3),
            last_refresh: now,
        }
    }

    pub fn update(&mut self, now: &wire::Drive, waited: Duration) -> SelfTestProgress {
        let requested = self_tests(now)
            .and_then(|tests| Some((tests, tests.requested.as_ref()?)))
            .filter(|(_, requested)| self.requested.as_ref() != Some(requested));
        let Some((tests, requested)) = requested else {
            return match waited > START_TIMEOUT {
                true => SelfTestProgress::NotStarted,
                false => SelfTestProgress::Requested,
            };
        };
        if !requested.started {
            return SelfTestProgress::Refused(requested.text.clone());
        }
        let running = tests.log.first().filter(|test| test.outcome == "running");
        if tests.running_remaining_percent.is_some() || running.is_some() {
            self.was_running = true;
            return SelfTestProgress::Running(tests.running_remaining_percent);
        }
        // An answer from before the test does not contain it.
        let at = |time: prost_types::Timestamp| (time.seconds, time.nanos);
        let answered = now.smart.as_ref().and_then(|smart| smart.answered);
        let fresh = answered.map(at) > requested.time.map(at);
        match tests.log.first() {
            Some(newest) if fresh && tests.log != self.log => {
                SelfTestProgress::Finished(newest.clone())
            }
            _ if fresh && self.was_running || waited > self.timeout => {
                SelfTestProgress::ResultUnknown
            }
            _ => SelfTestProgress::Running(None),
        }
    }

    /// True once every `REFRESH_INTERVAL`.
    pub(crate) fn take_refresh_due(&mut self) -> bool {
        let due = self.last_refresh.elapsed() >= REFRESH_INTERVAL;
        if due {
            self.last_refresh = Instant::now();
        }
        due
    }
}

/// Duration that the drive reports; 0 if it reports none.
pub fn minutes(tests: &wire::SelfTests, kind: TestKind) -> u32 {
    match kind {
        TestKind::Short => tests.short_minutes,
        TestKind::Long => tests.long_minutes,
    }
}

pub fn self_tests(drive: &wire::Drive) -> Option<&wire::SelfTests> {
    drive.smart.as_ref().and_then(|smart| smart.self_tests.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> Option<prost_types::Timestamp> {
        Some(prost_types::Timestamp { seconds, nanos: 0 })
    }

    fn entry(outcome: &str, hours: u64) -> wire::SelfTest {
        wire::SelfTest {
            kind: "Short offline".into(),
            outcome: outcome.into(),
            hours: Some(hours),
            ..Default::default()
        }
    }

    fn drive(answered: i64, tests: wire::SelfTests) -> wire::Drive {
        wire::Drive {
            smart: Some(wire::Smart {
                answered: time(answered),
                self_tests: Some(tests),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn requested(at: i64, started: bool) -> Option<wire::SelfTestRequest> {
        Some(wire::SelfTestRequest {
            time: time(at),
            started,
            text: "words".into(),
            ..Default::default()
        })
    }

    fn before() -> wire::Drive {
        drive(
            50,
            wire::SelfTests {
                log: vec![entry("passed", 10)],
                requested: requested(40, true),
                ..Default::default()
            },
        )
    }

    const SOON: Duration = Duration::from_secs(1);

    #[test]
    fn a_test_runs_until_a_new_entry_appears_in_the_drives_log() {
        let mut test = SelfTestTracker::new(&before(), TestKind::Short);
        assert_eq!(
            test.update(&before(), SOON),
            SelfTestProgress::Requested,
            "the earlier request is not ours"
        );
        let log = vec![entry("passed", 10)];
        let begun = wire::SelfTests {
            log: log.clone(),
            requested: requested(100, true),
            ..Default::default()
        };
        assert_eq!(
            test.update(&drive(50, begun.clone()), SOON),
            SelfTestProgress::Running(None),
            "the answer is older than the test"
        );
        let runs = wire::SelfTests { running_remaining_percent: Some(90), ..begun.clone() };
        assert_eq!(test.update(&drive(130, runs), SOON), SelfTestProgress::Running(Some(90)));
        let ended = wire::SelfTests { log: [vec![entry("failed", 11)], log].concat(), ..begun };
        let progress = test.update(&drive(160, ended), SOON);
        assert_eq!(progress, SelfTestProgress::Finished(entry("failed", 11)));
        assert!(progress.is_finished() && progress.has_failed());
    }

    #[test]
    fn only_passed_is_good() {
        for (outcome, bad) in [("passed", false), ("failed", true), ("other", true)] {
            assert_eq!(
                SelfTestProgress::Finished(entry(outcome, 1)).has_failed(),
                bad,
                "{outcome}"
            );
        }
        assert!(
            SelfTestProgress::ResultUnknown.has_failed()
                && SelfTestProgress::NotStarted.has_failed()
                && SelfTestProgress::Refused(String::new()).has_failed()
        );
    }

    #[test]
    fn a_refusal_or_a_start_timeout_ends_the_wait() {
        let mut test = SelfTestTracker::new(&before(), TestKind::Long);
        let refused = wire::SelfTests { requested: requested(100, false), ..Default::default() };
        assert_eq!(
            test.update(&drive(50, refused), SOON),
            SelfTestProgress::Refused("words".into())
        );
        assert_eq!(test.update(&before(), START_TIMEOUT + SOON), SelfTestProgress::NotStarted);
    }

    #[test]
    fn an_end_without_a_log_entry_is_no_success() {
        let mut test = SelfTestTracker::new(&before(), TestKind::Short);
        let begun = wire::SelfTests {
            log: vec![entry("passed", 10)],
            requested: requested(100, true),
            ..Default::default()
        };
        assert_eq!(
            test.update(&drive(130, begun.clone()), SOON),
            SelfTestProgress::Running(None),
            "it may not show yet"
        );
        assert_eq!(
            test.update(&drive(130, begun.clone()), SHORT_TEST_TIMEOUT + SOON),
            SelfTestProgress::ResultUnknown
        );
        let runs = wire::SelfTests { running_remaining_percent: Some(10), ..begun.clone() };
        assert_eq!(test.update(&drive(140, runs), SOON), SelfTestProgress::Running(Some(10)));
        assert_eq!(test.update(&drive(170, begun), SOON), SelfTestProgress::ResultUnknown);
    }
}
