//! From slow hours to a level, and back.

/// Hours for which a slow hour counts.
const DAYS_7: u32 = 7 * 24;
/// Slow hours that are no accident, if they are not all of one night: a backup, a rebuild or the
/// firmware's own work may last some hours, and ends.
const PERSISTENT: usize = 3;
const PERSISTENT_SPAN: u32 = 12;
/// What clears: so many hours with so many samples, and fewer than one in 20 slow. Idle time does not.
const CALM_HOURS: u32 = 24;
const CALM_SAMPLES: u32 = 60;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Usual,
    /// At least one slow hour.
    Slow,
    /// Three different slow hours in seven days, of which two are at least 12 hours apart.
    Persistent,
}

/// What has been judged since the last slow hour, or since the last attempt to clear.
#[derive(Clone, Copy, Debug, Default)]
struct Calm {
    since: u32,
    judged: u32,
    slow: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    level: Level,
    /// Of the last seven days, in order.
    slow_hours: Vec<u32>,
    calm: Calm,
}

impl History {
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn slow_hours(&self) -> &[u32] {
        &self.slow_hours
    }

    /// The hour had a slow direction, and it was this drive's alone.
    pub(crate) fn slow(&mut self, hour: u32) {
        self.forget(hour);
        self.slow_hours.push(hour);
        let span = hour - self.slow_hours[0];
        let is_persistent = self.slow_hours.len() >= PERSISTENT && span >= PERSISTENT_SPAN;
        let level = if is_persistent { Level::Persistent } else { Level::Slow };
        self.level = self.level.max(level);
        self.calm = Calm { since: hour, ..Calm::default() };
    }

    /// The hour had so many samples that were judged, and of these so many slow ones.
    pub(crate) fn calm(&mut self, hour: u32, judged: u32, slow: u32) {
        self.forget(hour);
        if self.level == Level::Usual {
            return;
        }
        self.calm.judged += judged;
        self.calm.slow += slow;
        if hour.saturating_sub(self.calm.since) >= CALM_HOURS && self.calm.judged >= CALM_SAMPLES {
            if self.calm.slow * 20 < self.calm.judged {
                self.level = Level::Usual;
            }
            self.calm = Calm { since: hour, ..Calm::default() };
        }
    }

    fn forget(&mut self, hour: u32) {
        // After a step of the clock an hour may be counted again.
        self.slow_hours.retain(|slow| *slow < hour && hour - slow < DAYS_7);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_slow_hours_of_a_week_are_persistent_and_a_fourth_week_is_another_one() {
        let mut history = History::default();
        for (hour, level) in [(10, Level::Slow), (50, Level::Slow), (160, Level::Persistent)] {
            history.slow(hour);
            assert_eq!(history.level(), level);
        }
        let mut night = History::default();
        (10..22).for_each(|hour| night.slow(hour));
        assert_eq!(night.level(), Level::Slow, "one night");
        night.slow(22);
        assert_eq!(night.level(), Level::Persistent);
        let mut rare = History::default();
        [10, 100, 200, 300].into_iter().for_each(|hour| rare.slow(hour));
        assert_eq!(rare.level(), Level::Slow);
    }

    #[test]
    fn a_calm_day_with_load_clears_and_the_slow_hours_still_count() {
        let mut history = History::default();
        [10, 11].into_iter().for_each(|hour| history.slow(hour));
        (12..34).for_each(|hour| history.calm(hour, 60, 1));
        assert_eq!(history.level(), Level::Slow);
        (34..36).for_each(|hour| history.calm(hour, 60, 1));
        assert_eq!(history.level(), Level::Usual);
        history.slow(40);
        assert_eq!(history.level(), Level::Persistent);
    }

    proptest! {
        #[test]
        fn idle_time_clears_nothing(hours in 1u32..2_000, judged in 0u32..59) {
            let mut history = History::default();
            history.slow(1);
            history.calm(2, judged, 0);
            (3..3 + hours).for_each(|hour| history.calm(hour, 0, 0));
            prop_assert_eq!(history.level(), Level::Slow);
        }

        #[test]
        fn a_drive_with_one_slow_sample_in_ten_stays(hours in 1u32..500) {
            let mut history = History::default();
            history.slow(1);
            (2..2 + hours).for_each(|hour| history.calm(hour, 60, 6));
            prop_assert_eq!(history.level(), Level::Slow);
        }

        #[test]
        fn the_slow_hours_of_a_week_are_kept_and_no_more(hours in proptest::collection::vec(0u32..3_000, 1..400)) {
            let mut history = History::default();
            for hour in hours {
                history.slow(hour);
                prop_assert!(history.slow_hours().len() <= 168);
            }
        }
    }
}
