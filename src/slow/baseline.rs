//! A drive's own usual times, by cell.

use crate::cell::Cell;
use crate::histogram::Histogram;
use crate::sample::Sample;

/// A baseline that is younger is not used: it knows no month's end, and no weekend twice.
const MIN_HOURS: u32 = 14 * 24;
const MIN_WINDOWS: u16 = 60;
/// On how many days a cell had load: one hour of a first day is not what is usual.
const MIN_DAYS: u16 = 5;

#[derive(Clone, Debug, Default)]
struct Usual {
    histogram: Histogram,
    days: u16,
    last_day: u16,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    began: Option<u32>,
    cells: [Usual; Cell::COUNT],
}

impl Baseline {
    pub(crate) fn learn(&mut self, sample: &Sample, hour: u32) {
        self.began.get_or_insert(hour);
        let usual = &mut self.cells[sample.cell.index()];
        usual.histogram.add(sample.service);
        // Only whether it is another day is asked, so that its low bits do.
        let day = (hour / 24) as u16;
        if usual.days == 0 || usual.last_day != day {
            usual.days = usual.days.saturating_add(1);
            usual.last_day = day;
        }
    }

    /// Microseconds that 95 of 100 windows of this cell had at most, or of the nearest lower load.
    pub(crate) fn usual(&self, cell: Cell, hour: u32) -> Option<u32> {
        if hour.saturating_sub(self.began?) < MIN_HOURS {
            return None;
        }
        cell.and_lighter().map(|cell| &self.cells[cell.index()]).find_map(|usual| {
            let is_known = usual.histogram.total() >= MIN_WINDOWS && usual.days >= MIN_DAYS;
            is_known.then(|| usual.histogram.p95())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Direction;
    use proptest::prelude::*;

    fn sample(in_flight: f32, service: u32) -> Sample {
        let cell = Cell::of(Direction::Read, 4096.0, in_flight);
        Sample { service, cell, is_above_floor: true }
    }

    fn learned(days: u32) -> Baseline {
        let mut baseline = Baseline::default();
        for hour in (0..days * 24).step_by(2) {
            baseline.learn(&sample(0.5, 10_000), hour);
        }
        baseline
    }

    #[test]
    fn a_fortnight_with_load_on_five_days_makes_a_baseline() {
        let cell = sample(0.5, 0).cell;
        assert_eq!(learned(13).usual(cell, 13 * 24), None);
        assert_eq!(learned(4).usual(cell, 15 * 24), None, "48 windows on 4 days");
        assert!(learned(15).usual(cell, 15 * 24).is_some_and(|usual| usual >= 10_000));
    }

    #[test]
    fn a_cell_without_a_past_has_that_of_a_lower_load_and_never_of_a_higher_one() {
        let baseline = learned(15);
        assert!(baseline.usual(sample(9.0, 0).cell, 400).is_some());
        let mut busy = Baseline::default();
        (0..400).for_each(|hour| busy.learn(&sample(9.0, 5_000), hour));
        assert_eq!(busy.usual(sample(0.5, 0).cell, 400), None);
    }

    proptest! {
        #[test]
        fn a_clock_that_goes_back_gives_no_baseline_too_early(began in 400u32..1_000_000, back in 0u32..400) {
            let mut baseline = Baseline::default();
            (0..200).for_each(|_| baseline.learn(&sample(0.5, 10_000), began));
            prop_assert_eq!(baseline.usual(sample(0.5, 0).cell, began - back), None);
        }
    }
}
