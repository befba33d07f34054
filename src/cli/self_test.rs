//! Following a self-test: what the daemon's picture of the drive says of the test that was asked
//! for here. Judges the order of things only.
//!
//! In: the drive before, the drive now. Out: `Progress`. The daemon tells the drive to begin and
//! looks at it from time to time.

use std::time::Duration;

use tokio::time::Instant;

use crate::api::wire;
use crate::cli::args::TestKind;

/// The daemon's picture costs nothing to look at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The drive is asked anew so often. The daemon itself asks a drive at most every 30 s
/// (`smart.shortest_interval`).
const ASK_EVERY: Duration = Duration::from_secs(30);
/// The daemon's time-out for a drive, and room for those that are asked before it.
const TAKEN_WITHIN: Duration = Duration::from_secs(180);
/// For a drive that does not tell how long its tests take.
const SHORT: Duration = Duration::from_secs(10 * 60);
const LONG: Duration = Duration::from_secs(48 * 3600);

#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The drive has not been told yet.
    Asked,
    /// Why the drive or smartctl would not.
    Refused(String),
    /// It has begun; percent that remain, where the drive tells.
    Runs(Option<u32>),
    Ended(wire::SelfTest),
    /// It is over or was never seen, and the drive's log does not say how it went.
    Untold,
    /// The daemon did not get to it.
    NotTaken,
}

pub struct SelfTest {
    pub begun: Instant,
    /// What was asked for and logged before.
    requested: Option<wire::SelfTestRequest>,
    log: Vec<wire::SelfTest>,
    seen_running: bool,
    /// How long it may take.
    at_most: Duration,
    asked: Instant,
}

impl Progress {
    pub fn is_over(&self) -> bool {
        !matches!(self, Progress::Asked | Progress::Runs(_))
    }

    /// The drive has begun.
    pub fn is_taken(&self) -> bool {
        matches!(self, Progress::Runs(_) | Progress::Ended(_))
    }

    pub fn is_bad(&self) -> bool {
        match self {
            Progress::Ended(test) => test.outcome != "passed",
            Progress::Asked | Progress::Runs(_) => false,
            Progress::Refused(_) | Progress::Untold | Progress::NotTaken => true,
        }
    }
}

impl SelfTest {
    /// Before it is asked for.
    pub fn new(before: &wire::Drive, kind: TestKind) -> SelfTest {
        let tests = tests(before).cloned().unwrap_or_default();
        let told = Duration::from_secs(60 * u64::from(minutes(&tests, kind)));
        let at_most = match kind {
            TestKind::Short => (told * 3).max(SHORT),
            TestKind::Long => (told * 3).max(LONG),
        };
        let now = Instant::now();
        SelfTest {
            begun: now,
            requested: tests.requested,
            log: tests.log,
            seen_running: false,
            at_most,
            asked: now,
        }
    }

    pub fn look(&mut self, now: &wire::Drive, waited: Duration) -> Progress {
        let Some(tests) = tests(now) else {
            return if waited > TAKEN_WITHIN {
                Progress::NotTaken
            } else {
                Progress::Asked
            };
        };
        let Some(requested) = tests
            .requested
            .as_ref()
            .filter(|requested| self.requested.as_ref() != Some(requested))
        else {
            return if waited > TAKEN_WITHIN {
                Progress::NotTaken
            } else {
                Progress::Asked
            };
        };
        if !requested.started {
            return Progress::Refused(requested.text.clone());
        }
        let running = tests.log.first().filter(|test| test.outcome == "running");
        if tests.running_remaining_percent.is_some() || running.is_some() {
            self.seen_running = true;
            return Progress::Runs(tests.running_remaining_percent);
        }
        // An answer from before the test says nothing of it.
        let answered = now
            .smart
            .as_ref()
            .and_then(|smart| smart.answered)
            .map(|time| (time.seconds, time.nanos));
        let fresh = answered > requested.time.map(|time| (time.seconds, time.nanos));
        match tests.log.first() {
            Some(newest) if fresh && tests.log != self.log => Progress::Ended(newest.clone()),
            _ if fresh && self.seen_running || waited > self.at_most => Progress::Untold,
            _ => Progress::Runs(None),
        }
    }

    /// True once every `ASK_EVERY`.
    pub fn is_due(&mut self) -> bool {
        let due = self.asked.elapsed() >= ASK_EVERY;
        if due {
            self.asked = Instant::now();
        }
        due
    }
}

/// What it takes by the drive's own account; 0: not told.
pub fn minutes(tests: &wire::SelfTests, kind: TestKind) -> u32 {
    match kind {
        TestKind::Short => tests.short_minutes,
        TestKind::Long => tests.long_minutes,
    }
}

pub fn tests(drive: &wire::Drive) -> Option<&wire::SelfTests> {
    drive
        .smart
        .as_ref()
        .and_then(|smart| smart.self_tests.as_ref())
}

#[cfg(test)]
mod tests_of_it {
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
    fn a_test_runs_from_the_drives_word_to_a_new_entry_of_its_log() {
        let mut test = SelfTest::new(&before(), TestKind::Short);
        assert_eq!(
            test.look(&before(), SOON),
            Progress::Asked,
            "the earlier request is not ours"
        );
        let log = vec![entry("passed", 10)];
        let begun = wire::SelfTests {
            log: log.clone(),
            requested: requested(100, true),
            ..Default::default()
        };
        assert_eq!(
            test.look(&drive(50, begun.clone()), SOON),
            Progress::Runs(None),
            "the answer is older than the test"
        );
        let runs = wire::SelfTests {
            running_remaining_percent: Some(90),
            ..begun.clone()
        };
        assert_eq!(test.look(&drive(130, runs), SOON), Progress::Runs(Some(90)));
        let ended = wire::SelfTests {
            log: [vec![entry("failed", 11)], log].concat(),
            ..begun
        };
        let progress = test.look(&drive(160, ended), SOON);
        assert_eq!(progress, Progress::Ended(entry("failed", 11)));
        assert!(progress.is_over() && progress.is_bad());
    }

    #[test]
    fn only_passed_is_good() {
        for (outcome, bad) in [("passed", false), ("failed", true), ("other", true)] {
            assert_eq!(
                Progress::Ended(entry(outcome, 1)).is_bad(),
                bad,
                "{outcome}"
            );
        }
        assert!(
            Progress::Untold.is_bad()
                && Progress::NotTaken.is_bad()
                && Progress::Refused(String::new()).is_bad()
        );
    }

    #[test]
    fn a_refusal_and_a_daemon_that_does_not_get_to_it_end_the_wait() {
        let mut test = SelfTest::new(&before(), TestKind::Long);
        let refused = wire::SelfTests {
            requested: requested(100, false),
            ..Default::default()
        };
        assert_eq!(
            test.look(&drive(50, refused), SOON),
            Progress::Refused("words".into())
        );
        assert_eq!(
            test.look(&before(), TAKEN_WITHIN + SOON),
            Progress::NotTaken
        );
    }

    #[test]
    fn an_end_that_the_log_does_not_tell_is_no_success() {
        let mut test = SelfTest::new(&before(), TestKind::Short);
        let begun = wire::SelfTests {
            log: vec![entry("passed", 10)],
            requested: requested(100, true),
            ..Default::default()
        };
        assert_eq!(
            test.look(&drive(130, begun.clone()), SOON),
            Progress::Runs(None),
            "it may not show yet"
        );
        assert_eq!(
            test.look(&drive(130, begun.clone()), SHORT + SOON),
            Progress::Untold
        );
        let runs = wire::SelfTests {
            running_remaining_percent: Some(10),
            ..begun.clone()
        };
        assert_eq!(test.look(&drive(140, runs), SOON), Progress::Runs(Some(10)));
        assert_eq!(test.look(&drive(170, begun), SOON), Progress::Untold);
    }
}
