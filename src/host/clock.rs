//! The only module that reads the time.
//!
//! `now` is a steady timeline: the wall clock at the first call, plus the CLOCK_BOOTTIME that has
//! passed since. A step of the wall clock does not change it, so ages and quiet times are true. Time
//! in suspend counts. The kernel slews the wall clock and CLOCK_BOOTTIME together; only a step
//! changes their difference (`offs_real`, `offs_boot` in kernel/time/timekeeping.c).
//!
//! What people and other programs read is converted with `wall`. Only the daemon's own process calls
//! `follow`, so times of its helpers are not on its timeline: the daemon takes the time on arrival.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::time::ClockId;

/// A smaller change is the time between reading two clocks.
const MIN_CHANGE: SignedDuration = SignedDuration::from_millis(100);
/// A smaller change is a leap second, or the usual correction by NTP: followed without a word.
pub const MIN_STEP: SignedDuration = SignedDuration::from_secs(5);
/// The clocks are read until the readings are this close together, a few times at most.
const MAX_SPREAD: Duration = Duration::from_millis(1);
const MAX_READS: usize = 4;

static CLOCK: LazyLock<SteadyClock> = LazyLock::new(|| SteadyClock::new(ClockReading::take()));

/// The time on the steady timeline. Intervals use tokio's monotonic clock.
pub fn now() -> Timestamp {
    CLOCK.at(boottime())
}

/// When this boot began, on the steady timeline.
pub fn booted() -> Timestamp {
    CLOCK.booted()
}

/// A time of the steady timeline as the wall clock has it.
pub fn wall(time: Timestamp) -> Timestamp {
    CLOCK.wall(time)
}

/// The wall clock, for names of files and for records that outlive the boot.
pub fn wall_now() -> Timestamp {
    read_wall()
}

/// Compares the clocks. Returns a step of the wall clock since the last call.
pub fn follow() -> Option<SignedDuration> {
    CLOCK.follow(ClockReading::take())
}

/// All clocks at one moment: the steady timeline, CLOCK_BOOTTIME, the wall clock.
pub fn read_all() -> (Timestamp, Duration, Timestamp) {
    let reading = ClockReading::take();
    (CLOCK.at(reading.boottime), reading.boottime, reading.wall)
}

/// By how much the wall clock has moved away from the steady timeline.
pub fn offset() -> SignedDuration {
    CLOCK.offset()
}

/// CLOCK_MONOTONIC, the clock of the kernel log, apart from drift. Zero if it cannot be read, which
/// happens on no Linux.
pub fn monotonic() -> Duration {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME: also counts the time in suspend.
pub fn boottime() -> Duration {
    read(ClockId::CLOCK_BOOTTIME)
}

fn read(clock: ClockId) -> Duration {
    nix::time::clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

#[allow(clippy::disallowed_methods)] // The only reader of the wall clock.
fn read_wall() -> Timestamp {
    Timestamp::now()
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    wall: Timestamp,
    boottime: Duration,
}

impl ClockReading {
    /// The process may lose its processor between two readings: the closest pair counts.
    fn take() -> ClockReading {
        let read_pair = || {
            let (before, wall, after) = (boottime(), read_wall(), boottime());
            let spread = after.saturating_sub(before);
            (spread, ClockReading { wall, boottime: before + spread / 2 })
        };
        let mut best = read_pair();
        for _ in 1..MAX_READS {
            if best.0 <= MAX_SPREAD {
                break;
            }
            let next = read_pair();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }
}

#[derive(Debug)]
struct SteadyClock {
    start: ClockReading,
    /// The wall clock minus the steady timeline, in nanoseconds: ±292 years.
    offset: AtomicI64,
}

impl SteadyClock {
    fn new(start: ClockReading) -> SteadyClock {
        SteadyClock { start, offset: AtomicI64::new(0) }
    }

    fn at(&self, boottime: Duration) -> Timestamp {
        let passed = boottime.saturating_sub(self.start.boottime);
        self.start.wall.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    fn booted(&self) -> Timestamp {
        self.start.wall.checked_sub(self.start.boottime).unwrap_or(Timestamp::MIN)
    }

    fn offset(&self) -> SignedDuration {
        SignedDuration::from_nanos(self.offset.load(Ordering::Relaxed))
    }

    fn wall(&self, time: Timestamp) -> Timestamp {
        time.checked_add(self.offset()).unwrap_or(time)
    }

    fn follow(&self, reading: ClockReading) -> Option<SignedDuration> {
        let offset = reading.wall.duration_since(self.at(reading.boottime));
        let change = offset.checked_sub(self.offset())?;
        if change.unsigned_abs() < MIN_CHANGE.unsigned_abs() {
            return None;
        }
        let nanos = i64::try_from(offset.as_nanos()).ok()?;
        self.offset.store(nanos, Ordering::Relaxed);
        (change.unsigned_abs() >= MIN_STEP.unsigned_abs()).then_some(change)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400;

    fn reading(wall: i64, boottime: u64) -> ClockReading {
        ClockReading {
            wall: Timestamp::from_second(1_800_000_000 + wall).unwrap(),
            boottime: Duration::from_secs(boottime),
        }
    }

    #[test]
    fn a_step_is_reported_once_and_changes_only_what_people_read() {
        for step in [2 * DAY, -2 * DAY, 20_000 * DAY] {
            let clock = SteadyClock::new(reading(0, 1000));
            assert_eq!(clock.follow(reading(10, 1010)), None);
            let by = clock.follow(reading(20 + step, 1020));
            assert_eq!(by, Some(SignedDuration::from_secs(step)));
            assert_eq!(clock.follow(reading(30 + step, 1030)), None);
            let now = clock.at(Duration::from_secs(1030));
            assert_eq!(now, reading(30, 0).wall);
            assert_eq!(clock.wall(now), reading(30 + step, 0).wall);
        }
    }

    #[test]
    fn a_small_correction_is_followed_and_not_reported() {
        let clock = SteadyClock::new(reading(0, 1000));
        assert_eq!(clock.follow(reading(11, 1010)), None);
        assert_eq!(clock.wall(clock.at(Duration::from_secs(1010))), reading(11, 0).wall);
        // Again and again, it is still no step.
        assert_eq!(clock.follow(reading(22, 1020)), None);
        assert_eq!(clock.offset(), SignedDuration::from_secs(2));
    }

    #[test]
    fn the_clocks_are_those_of_this_machine() {
        let apart = wall(now()).duration_since(wall_now()).unsigned_abs();
        assert!(apart < Duration::from_secs(5), "{apart:?}");
        let earlier = monotonic();
        assert!(boottime() >= earlier);
    }

    proptest! {
        /// Whatever the wall clock does, the steady timeline counts CLOCK_BOOTTIME, and what is shown
        /// is right in the newest wall clock.
        #[test]
        fn the_timeline_counts_boottime_whatever_the_wall_clock_does(
            steps in prop::collection::vec((-100_000 * DAY..100_000 * DAY, 0u64..100_000), 1..20)
        ) {
            let clock = SteadyClock::new(reading(0, 50));
            let (mut boottime, mut before) = (50, clock.at(Duration::from_secs(50)));
            for (wall, passed) in steps {
                boottime += passed;
                let reading = reading(wall, boottime);
                clock.follow(reading);
                let now = clock.at(reading.boottime);
                prop_assert_eq!(now.duration_since(before), SignedDuration::from_secs(passed.cast_signed()));
                prop_assert_eq!(clock.wall(now), reading.wall);
                before = now;
            }
        }
    }
}
