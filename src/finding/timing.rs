//! The durations of responses, as a histogram of fixed size. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::source::Source;

/// Upper limits of the buckets, in milliseconds; one more bucket has the longer durations. A
/// healthy volume responds within the first buckets, a query of all of a drive's log pages takes
/// some seconds, and hanging operations are in the last.
pub const BOUNDS: [u64; 11] = [1, 5, 25, 100, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];

/// Durations by source.
pub type Timings = BTreeMap<Source, Timing>;

/// Durations since the daemon's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Responses in each bucket, not cumulative; the last one is above all limits.
    pub counts: [u64; BOUNDS.len() + 1],
    pub sum: Duration,
}

impl Timing {
    pub fn take(&mut self, took: Duration) {
        let bucket = BOUNDS
            .iter()
            .position(|bound| took <= Duration::from_millis(*bound))
            .unwrap_or(BOUNDS.len());
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.sum = self.sum.saturating_add(took);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_in_the_bucket_whose_end_it_reaches() {
        let mut timing = Timing::default();
        for millis in [0, 1, 2, 60_000, 60_001, 86_400_000] {
            timing.take(Duration::from_millis(millis));
        }
        assert_eq!(
            (timing.counts[0], timing.counts[1], timing.counts[10], timing.counts[11]),
            (2, 1, 1, 2)
        );
        assert_eq!((timing.count(), timing.sum), (6, Duration::from_millis(86_520_004)));
    }
}
