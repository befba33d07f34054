//! When the designed life of a drive's flash is used up, at the rate at which it was used so far.
//!
//! In: the series of the used percent. Out: a forecast, or none. Must not contain: limits.

use jiff::SignedDuration;

use crate::history::{Metric, Point, SmartHistory};

/// The value is in whole percent: over less, the rate is mostly rounding, or one busy month.
const SHORTEST_PERIOD: SignedDuration = SignedDuration::from_hours(30 * 24);
const LEAST_PERCENT: u64 = 5;
/// A value that rose less often has jumped, because it came from another source.
const LEAST_STEPS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endurance {
    /// From the last reading until 100 % is used: the end of what the maker warrants, not of the drive.
    pub days_left: u64,
    /// By how much the used percent has grown, in which time up to the last reading.
    pub grown_percent: u64,
    pub period: SignedDuration,
}

impl SmartHistory {
    /// By the shortest period up to the last reading that is long enough for a rate.
    pub fn endurance(&self) -> Option<Endurance> {
        let points = &self.series.get(&Metric::WearPercent)?.points;
        // A value that falls was reset, or comes from another source: what was before is not compared.
        let is_fall = |pair: &[Point]| pair[1].value < pair[0].value;
        let points = points.get(points.windows(2).rposition(is_fall).map_or(0, |at| at + 1)..)?;
        let (last, used) = (points.last()?.at, points.last()?.value);
        let mut rises: Vec<Point> = points.to_vec();
        rises.dedup_by_key(|point| point.value);
        let starts = rises.iter().rev().skip(LEAST_STEPS);
        let (grown_percent, period) = starts
            .map(|start| (used - start.value, last.duration_since(start.at)))
            .find(|(grown, period)| *grown >= LEAST_PERCENT && *period >= SHORTEST_PERIOD)?;
        let days = u64::try_from(period.as_hours()).ok()? / 24;
        let days_left = 100_u64.saturating_sub(used).saturating_mul(days) / grown_percent;
        Some(Endurance { days_left, grown_percent, period })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{hour, nvme};

    /// After readings of a day and the used percent.
    fn days_left(readings: &[(i64, u8)]) -> Option<u64> {
        let mut history = SmartHistory::default();
        for (day, used) in readings {
            let report = nvme().nvme(|log| log.percentage_used = Some(*used));
            history.record(&report, hour(*day * 24));
        }
        history.endurance().map(|it| it.days_left)
    }

    #[test]
    fn the_rate_of_thirty_days_and_five_percent_points_counts_and_no_shorter_one() {
        assert_eq!(days_left(&[(0, 10), (10, 11), (20, 13), (30, 15)]), Some(85 * 30 / 5));
        assert_eq!(days_left(&[(0, 10), (10, 11), (20, 13), (29, 15)]), None, "29 days");
        assert_eq!(days_left(&[(0, 10), (10, 11), (20, 13), (90, 14)]), None, "4 percent points");
        assert_eq!(days_left(&[(0, 10)]), None);
    }

    #[test]
    fn the_last_rate_counts_and_a_drive_that_is_no_longer_written_lasts_longer() {
        let faster = [(0, 10), (400, 11), (410, 12), (430, 14), (440, 16)];
        assert_eq!(days_left(&faster), Some(84 * 40 / 5), "since day 400");
        assert_eq!(days_left(&[&faster[..], &[(800, 16)]].concat()), Some(84 * 400 / 5));
    }

    #[test]
    fn a_value_that_jumps_or_goes_back_and_forth_has_no_rate() {
        assert_eq!(days_left(&[(0, 3), (40, 10), (80, 10)]), None);
        assert_eq!(days_left(&[(0, 3), (20, 9), (40, 3), (60, 9), (80, 4), (90, 9)]), None);
    }

    #[test]
    fn a_drive_with_all_of_it_used_has_no_days_left() {
        assert_eq!(days_left(&[(0, 90), (10, 94), (20, 98), (40, 104)]), Some(0));
    }

    /// Readings, some days apart, of a value that does not fall.
    fn rising(first_day: i64, first: u8) -> impl Strategy<Value = Vec<(i64, u8)>> {
        let steps = proptest::collection::vec((1_i64..30, 0_u8..5), 1..15);
        steps.prop_map(move |steps| {
            let (mut day, mut used) = (first_day, first);
            let later = steps.into_iter().map(|(days, more)| {
                (day, used) = (day + days, used + more);
                (day, used)
            });
            [(first_day, first)].into_iter().chain(later).collect()
        })
    }

    proptest! {
        #[test]
        fn what_was_before_a_reset_does_not_count(before in rising(0, 60), after in rising(600, 1)) {
            let all = [&before[..], &after[..]].concat();
            prop_assert_eq!(days_left(&all), days_left(&after));
        }

        #[test]
        fn a_value_that_only_falls_has_no_rate(series in rising(0, 1)) {
            let falling: Vec<(i64, u8)> =
                series.iter().map(|(day, used)| (*day, 100 - used)).collect();
            prop_assert_eq!(days_left(&falling), None);
        }

        #[test]
        fn a_rate_covers_thirty_days_and_five_percent_points(series in rising(0, 1)) {
            let ((first_day, first), (last_day, last)) = (series[0], series[series.len() - 1]);
            let is_covered = last_day - first_day >= 30 && last - first >= 5;
            if let Some(left) = days_left(&series) {
                prop_assert!(is_covered);
                // Neither faster than four percent points a day nor slower than all of it.
                let (least, most) = ((100 - last) / 5, 100 * (last_day - first_day) / 5);
                prop_assert!((u64::from(least)..=most.unsigned_abs()).contains(&left), "{left}");
            }
        }
    }
}
