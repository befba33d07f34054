//! What holds for every sequence of readings.

use proptest::prelude::*;

use crate::fixture::*;
use crate::history::series::MAX_POINTS;
use crate::history::tests::WEEK;
use crate::history::{Metric, SmartHistory};
use crate::report::SmartReport;

fn report(count: u64) -> SmartReport {
    disk().raw(197, &count.to_string()).raw(199, &count.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_series_is_bounded_and_sorted_and_ends_with_the_last_reading(readings in proptest::collection::vec((-50_i64..5000, 0_u64..40), 1..300)) {
        let mut memory = SmartHistory::default();
        for (hours, count) in &readings {
            memory.record(&report(*count), hour(*hours));
            for series in memory.series.values() {
                prop_assert!(series.points.len() <= MAX_POINTS);
                prop_assert!(series.points.is_sorted_by_key(|point| point.at));
            }
            let last = *memory.series[&Metric::Pending].points.last().unwrap();
            prop_assert_eq!((last.at, last.value), (hour(*hours), *count));
        }
    }

    #[test]
    fn the_first_reading_of_a_value_that_comes_and_goes_is_kept(counts in proptest::collection::vec(0_u64..40, 1..300)) {
        let mut memory = SmartHistory::default();
        for (hours, count) in (0..).zip(&counts) {
            memory.record(&report(*count), hour(hours));
        }
        let first = memory.series[&Metric::Pending].points[0];
        prop_assert_eq!((first.at, first.value), (hour(0), counts[0]));
    }

    #[test]
    fn equal_values_are_no_growth(count in 0_u64..1000, steps in proptest::collection::vec(1_i64..100, 1..100)) {
        let mut memory = SmartHistory::default();
        let mut at = 0;
        for step in steps {
            at += step;
            memory.record(&report(count), hour(at));
        }
        for series in memory.series.values() {
            prop_assert_eq!(series.growth(WEEK), None);
            prop_assert!(series.points.len() <= 2);
        }
    }

    #[test]
    fn recording_the_same_response_twice_changes_nothing(readings in proptest::collection::vec((0_i64..500, 0_u64..40), 1..80)) {
        let mut memory = SmartHistory::default();
        for (hours, count) in readings {
            memory.record(&report(count), hour(hours));
            let once = memory.clone();
            memory.record(&report(count), hour(hours));
            prop_assert_eq!(&memory, &once);
        }
    }

    #[test]
    fn growth_is_never_more_than_the_highest_less_the_first(counts in proptest::collection::vec(0_u64..40, 1..200)) {
        let mut memory = SmartHistory::default();
        for (hours, count) in (0..).zip(&counts) {
            memory.record(&report(*count), hour(hours));
        }
        let by = memory.series[&Metric::Pending].growth(WEEK).map_or(0, |growth| growth.by);
        prop_assert!(by <= counts.iter().max().unwrap() - counts[0].min(*counts.iter().max().unwrap()));
    }

    #[test]
    fn a_history_round_trips_through_json(readings in proptest::collection::vec((0_i64..500, 0_u64..40), 1..40)) {
        let mut memory = SmartHistory::default();
        for (hours, count) in readings {
            memory.record(&report(count), hour(hours));
        }
        let text = serde_json::to_string(&memory).unwrap();
        prop_assert_eq!(serde_json::from_str::<SmartHistory>(&text).unwrap(), memory);
    }
}
