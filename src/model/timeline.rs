//! The timeline of one run of the daemon, and how it continues that of the run before. Pure.
//!
//! Times in the facts and in the store are on a steady timeline (`host::clock`), which begins anew
//! with each run. In: where the last run was when it wrote, and where this run is. Out: `Rebase`,
//! which moves stored times onto this run's timeline.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use diskvitals_text::duration::elapsed;

/// Between two boots, only the wall clock tells how much time has passed, and it may be wrong. More
/// than this is not believed, so that a clock that is years ahead does not make all history old.
const MAX_BREAK: SignedDuration = SignedDuration::from_hours(28 * 24);
/// A person has this long to notice a step.
const SHOWN_FOR: Duration = Duration::from_secs(24 * 3600);
/// After a longer break between two boots, quiet times begin anew: while the machine is off, no
/// error can occur, and the end of the last boot's log was not read.
const MAX_QUIET_BREAK: SignedDuration = SignedDuration::from_hours(1);

/// One moment of a run, by all of its clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub boot_id: String,
    /// On the run's timeline.
    pub time: Timestamp,
    /// CLOCK_BOOTTIME.
    pub boottime: Duration,
    pub wall: Timestamp,
}

/// Moves the times of an earlier run onto this run's timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebase {
    shift: SignedDuration,
    /// No stored time is later than this: now, or the start of this boot if the last run was in
    /// another one. So nothing of an earlier boot passes for evidence of this one, whatever the
    /// wall clock says.
    latest: Timestamp,
    /// By how much the wall clock was found to be wrong, now or then: its step while no daemon ran,
    /// or the part of a break that is not believed.
    pub step: SignedDuration,
    /// Quiet times begin anew.
    pub is_quiet_lost: bool,
}

impl Rebase {
    /// `last`: None when the store was written by a version that did not keep it.
    pub fn new(last: Option<&Moment>, now: &Moment) -> Rebase {
        let Some(last) = last else {
            return Rebase {
                shift: SignedDuration::ZERO,
                latest: now.time,
                step: SignedDuration::ZERO,
                is_quiet_lost: false,
            };
        };
        let by_wall = now.wall.duration_since(last.wall);
        let same_boot = !now.boot_id.is_empty() && last.boot_id == now.boot_id;
        let passed = if same_boot {
            SignedDuration::try_from(now.boottime.saturating_sub(last.boottime)).unwrap_or_default()
        } else {
            by_wall.clamp(SignedDuration::ZERO, MAX_BREAK)
        };
        Rebase {
            shift: now.time.duration_since(last.time) - passed,
            latest: if same_boot {
                now.time
            } else {
                now.time.checked_sub(now.boottime).unwrap_or(now.time)
            },
            step: by_wall - passed,
            is_quiet_lost: !same_boot && by_wall > MAX_QUIET_BREAK,
        }
    }

    pub fn apply(&self, time: Timestamp) -> Timestamp {
        // Two clocks are read one after the other: the same boot gives the same times, not times
        // that differ by microseconds.
        let shift = match self.shift.unsigned_abs() {
            shift if shift < Duration::from_millis(100) => SignedDuration::ZERO,
            _ => self.shift,
        };
        time.checked_add(shift).unwrap_or(time).min(self.latest)
    }

    /// All times in a stored value: the texts that are exactly what `Timestamp` writes.
    pub fn apply_to_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(time) = parse_exact(text) {
                    *text = self.apply(time).to_string();
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.apply_to_json(value)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|value| self.apply_to_json(value))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn parse_exact(text: &str) -> Option<Timestamp> {
    // Most texts are no times: the last byte tells.
    let time: Timestamp = text.ends_with('Z').then(|| text.parse().ok()).flatten()?;
    (time.to_string() == text).then_some(time)
}

/// A step of the wall clock that this run has noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// When it was noticed, on the run's timeline.
    pub at: Timestamp,
    pub by: SignedDuration,
}

impl ClockStep {
    /// The node's warning; None when the step is old. `wall`: the time of notice, for people.
    pub fn warning(&self, wall: Timestamp, now: Timestamp) -> Option<String> {
        (elapsed(self.at, now) < SHOWN_FOR).then(|| {
            format!(
                "the wall clock was stepped by {}, noticed at {wall}: other logs may have times of the former clock",
                describe_step(self.by)
            )
        })
    }
}

/// `2 d 3 h forward`: a step in words.
pub fn describe_step(by: SignedDuration) -> String {
    // The step took some milliseconds itself: 40 d, not 39 d 23 h.
    let seconds = by.unsigned_abs().saturating_add(Duration::from_millis(500)).as_secs();
    let seconds = match seconds {
        0..3600 => seconds,
        _ => seconds.saturating_add(30) / 60 * 60,
    };
    let units = [(365 * 86_400, "y"), (86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(units.len() - 1);
    let (mut rest, mut words) = (seconds, Vec::new());
    for (unit, name) in units.iter().skip(first).take(2) {
        if rest >= *unit || words.is_empty() {
            words.push(format!("{} {name}", rest / unit));
        }
        rest %= unit;
    }
    let direction = if by.is_negative() { "back" } else { "forward" };
    format!("{} {direction}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::fixture::at;

    const DAY: i64 = 86_400;

    fn moment(boot: &str, time: i64, boottime: u64, wall: i64) -> Moment {
        Moment {
            boot_id: boot.to_owned(),
            time: at(time),
            boottime: Duration::from_secs(boottime),
            wall: at(wall),
        }
    }

    #[test]
    fn within_a_boot_a_step_while_no_daemon_ran_ages_nothing() {
        for step in [2 * DAY, -2 * DAY, 20_000 * DAY] {
            let (last, now) =
                (moment("a", 100, 500, 100), moment("a", 160 + step, 560, 160 + step));
            let rebase = Rebase::new(Some(&last), &now);
            assert_eq!(rebase.apply(at(90)), at(90 + step));
            assert_eq!(
                (rebase.step, rebase.is_quiet_lost),
                (SignedDuration::from_secs(step), false)
            );
        }
    }

    #[test]
    fn a_step_during_the_last_run_is_undone_in_its_times() {
        // The last run began with a clock that was a day behind.
        let (last, now) = (moment("a", 100, 500, 100 + DAY), moment("b", 400 + DAY, 10, 400 + DAY));
        let rebase = Rebase::new(Some(&last), &now);
        assert_eq!(rebase.apply(at(90)), at(90 + DAY));
        assert_eq!((rebase.step, rebase.is_quiet_lost), (SignedDuration::ZERO, false));
    }

    #[test]
    fn a_break_between_boots_counts_as_the_wall_clock_has_it_within_limits() {
        let age = |wall: i64| {
            let rebase =
                Rebase::new(Some(&moment("a", 100, 500, 100)), &moment("b", wall, 10, wall));
            let age = at(wall).duration_since(rebase.apply(at(70))).as_secs();
            (age, rebase.step.as_secs(), rebase.is_quiet_lost)
        };
        assert_eq!(age(100 + 600), (630, 0, false));
        assert_eq!(age(100 + 20 * DAY), (20 * DAY + 30, 0, true));
        // The clock is years ahead, behind, or that of a machine without one.
        assert_eq!(age(100 + 3650 * DAY), (28 * DAY + 30, 3622 * DAY, true));
        assert_eq!(age(100 - 2 * DAY), (30, -2 * DAY, false));
        assert_eq!(age(-1_800_000_000), (30, -1_800_000_100, false));
    }

    #[test]
    fn nothing_of_an_earlier_boot_is_later_than_the_start_of_this_one() {
        // The wall clock stands still, or went back, while the machine booted.
        for wall in [100, 90, -1_800_000_000] {
            let (last, now) = (moment("a", 100, 500, 100), moment("b", 100, 20, wall));
            let rebase = Rebase::new(Some(&last), &now);
            assert_eq!(rebase.apply(at(100)), at(80), "{wall}");
        }
    }

    #[test]
    fn without_a_moment_times_in_the_future_become_now() {
        let rebase = Rebase::new(None, &moment("b", 50, 10, 50));
        assert_eq!((rebase.apply(at(49)), rebase.apply(at(9999))), (at(49), at(50)));
    }

    #[test]
    fn the_same_boot_gives_the_same_times() {
        let mut now = moment("a", 160, 560, 160);
        now.time += SignedDuration::from_micros(3);
        let rebase = Rebase::new(Some(&moment("a", 100, 500, 100)), &now);
        assert_eq!(rebase.apply(at(90)), at(90));
    }

    #[test]
    fn only_times_change_in_a_stored_value() {
        let rebase = Rebase::new(Some(&moment("a", 0, 0, 0)), &moment("b", 7200, 0, 0));
        let mut value = json!({"time": at(0), "list": [at(1), null, 7, true], "text": "at 2027-01-15T08:00:00Z",
            "day": "2027-01-15", "local": "2027-01-15T08:00:00+00:00", "empty": ""});
        rebase.apply_to_json(&mut value);
        let moved = json!({"time": at(7200), "list": [at(7200), null, 7, true], "text": "at 2027-01-15T08:00:00Z",
            "day": "2027-01-15", "local": "2027-01-15T08:00:00+00:00", "empty": ""});
        assert_eq!(value, moved);
    }

    #[test]
    fn a_step_has_a_size_and_a_direction() {
        let text = |seconds| describe_step(SignedDuration::from_secs(seconds));
        assert_eq!(text(2 * DAY), "2 d forward");
        assert_eq!(text(-(DAY + 7200 + 59)), "1 d 2 h back");
        let short = SignedDuration::from_hours(40 * 24) - SignedDuration::from_millis(7);
        assert_eq!(describe_step(short), "40 d forward");
        assert_eq!(text(6), "6 s forward");
        assert_eq!(text(56 * 365 * DAY + DAY), "56 y 1 d forward");
    }

    proptest! {
        /// Whatever the clocks were: order is kept, nothing is in the future, and between boots
        /// nothing becomes older by more than the limit, or than this boot.
        #[test]
        fn order_is_kept_and_ages_are_bounded(
            (time, wall, boottime) in (-1_000_000_000i64..1_000_000_000, -1_000_000_000i64..1_000_000_000, 0u64..100_000_000),
            now_wall in -1_000_000_000i64..1_000_000_000, up in 0u64..100_000_000, same in any::<bool>(),
            mut ages in prop::collection::vec(0i64..100_000_000, 1..20),
        ) {
            let last = moment("a", time, boottime, wall);
            let now = moment(if same { "a" } else { "b" }, now_wall, if same { boottime + up } else { up }, now_wall);
            let rebase = Rebase::new(Some(&last), &now);
            ages.sort_unstable();
            let moved: Vec<Timestamp> = ages.iter().map(|age| rebase.apply(at(time - age))).collect();
            prop_assert!(moved.is_sorted_by(|a, b| a >= b));
            for (age, moved) in ages.iter().zip(&moved) {
                let passed = now.time.duration_since(*moved).as_secs() - age;
                let most = if same { up.cast_signed() } else { MAX_BREAK.as_secs().max(up.cast_signed()) };
                prop_assert!((0..=most).contains(&passed), "{passed}");
                let booted = now.time - now.boottime;
                prop_assert!(same || *moved <= booted, "{moved} after {booted}");
                prop_assert!(!same || passed == most);
            }
        }
    }
}
