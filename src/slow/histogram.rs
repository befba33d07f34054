//! A histogram of service times in constant memory.

const BUCKETS: usize = 64;
/// The upper end of the first bucket; each next one is 2^(1/4) higher, the last at 2.75 s.
const FIRST_US: f32 = 50.0;

/// Counts of windows. Halved when it is full, which takes 45 days of load: what is old counts less.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: [u16; BUCKETS],
    total: u16,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, microseconds: u32) {
        if self.total == u16::MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        let steps = ((microseconds as f32 / FIRST_US).log2() * 4.0).ceil();
        // A float that is out of range or no number becomes the nearest end.
        self.counts[(steps as usize).min(BUCKETS - 1)] += 1;
        self.total += 1;
    }

    pub(crate) fn total(&self) -> u16 {
        self.total
    }

    /// Microseconds: the upper end of the bucket with the 95th percentile.
    pub(crate) fn p95(&self) -> u32 {
        let below = u32::from(self.total) * 95 / 100;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += u32::from(*count);
            seen > below
        });
        (FIRST_US * (bucket.unwrap_or(0) as f32 / 4.0).exp2()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_histogram_is_halved_and_keeps_its_percentile() {
        let mut histogram = Histogram::default();
        for turn in 0..200_000u32 {
            histogram.add(if turn % 10 == 0 { 80_000 } else { 1_000 });
        }
        assert!(histogram.total() > 30_000);
        assert!((80_000..96_000).contains(&histogram.p95()), "{}", histogram.p95());
    }

    proptest! {
        #[test]
        fn the_percentile_is_at_most_a_bucket_above_the_true_one(
            mut values in proptest::collection::vec(50u32..2_700_000, 1..300),
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            let exact = values[values.len() * 95 / 100] as f32;
            let p95 = histogram.p95() as f32;
            prop_assert!(p95 + 1.0 >= exact && p95 <= exact * 1.2 + 1.0, "{} {}", p95, exact);
        }

        #[test]
        fn any_value_is_counted(value: u32) {
            let mut histogram = Histogram::default();
            histogram.add(value);
            prop_assert_eq!(histogram.total(), 1);
        }
    }
}
