//! A value that changes all the time, over years: least, mean and greatest of each hour of the last
//! days, of each day before, then of each week, then of four weeks.
//!
//! In: readings with their times. Out: a bounded list of spans. Must not contain: limits, clocks.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The length of a level's spans in hours, and how many of them are kept. What leaves a level is
/// added to the next; what leaves the last is forgotten. Together more than ten years.
const LEVELS: [(u32, usize); 4] = [(1, 48), (24, 62), (7 * 24, 104), (28 * 24, 130)];
const HOUR: i64 = 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrendKind {
    /// In degrees Celsius.
    Temperature,
    /// The time of a read or write as the kernel counts it, in microseconds.
    Latency,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trend {
    /// Spans count hours from here, so that the store moves all of them when a clock was wrong.
    begin: Timestamp,
    /// Of each level, oldest first.
    levels: [Vec<Span>; LEVELS.len()],
}

/// Hours after the beginning, least, greatest, sum, number of readings: short in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Span(u32, u32, u32, u64, u32);

/// The readings from `at` on, until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrendPoint {
    pub at: Timestamp,
    pub least: u32,
    pub mean: u32,
    pub greatest: u32,
}

impl Trend {
    pub fn record(&mut self, value: u32, at: Timestamp) {
        self.add(at, (value, value, u64::from(value), 1));
    }

    /// Adds later readings.
    pub(super) fn append(&mut self, later: &Trend) {
        for Span(hour, least, greatest, sum, count) in later.spans() {
            self.add(later.time(*hour), (*least, *greatest, *sum, *count));
        }
    }

    /// Oldest first, at increasing times.
    pub fn points(&self) -> impl Iterator<Item = TrendPoint> {
        self.spans().map(|Span(hour, least, greatest, sum, count)| TrendPoint {
            at: self.time(*hour),
            least: *least,
            mean: u32::try_from(sum / u64::from(*count).max(1)).unwrap_or(*greatest),
            greatest: *greatest,
        })
    }

    fn spans(&self) -> impl DoubleEndedIterator<Item = &Span> {
        self.levels.iter().rev().flatten()
    }

    fn time(&self, hour: u32) -> Timestamp {
        let after = SignedDuration::from_hours(i64::from(hour));
        self.begin.checked_add(after).unwrap_or(Timestamp::MAX)
    }

    fn add(&mut self, at: Timestamp, (least, greatest, sum, count): (u32, u32, u64, u32)) {
        let last = self.spans().next_back().map(|span| span.0);
        let hours = at.duration_since(self.begin).as_secs().div_euclid(HOUR);
        let hour = match last {
            // A clock was ahead: what is known is as much older.
            Some(last) if hours < i64::from(last) => {
                let ahead = SignedDuration::from_hours(i64::from(last) - hours);
                self.begin = self.begin.checked_sub(ahead).unwrap_or(Timestamp::MIN);
                last
            }
            Some(_) => u32::try_from(hours).unwrap_or(u32::MAX),
            None => {
                self.begin = at;
                0
            }
        };
        self.put(0, Span(hour, least, greatest, sum, count));
    }

    fn put(&mut self, level: usize, span: Span) {
        let (Some(spans), Some((length, most))) = (self.levels.get_mut(level), LEVELS.get(level))
        else {
            return;
        };
        match spans.last_mut() {
            Some(last) if last.0 / length == span.0 / length => {
                let Span(_, least, greatest, sum, count) = last;
                (*least, *greatest) = (span.1.min(*least), span.2.max(*greatest));
                (*sum, *count) = (sum.saturating_add(span.3), count.saturating_add(span.4));
            }
            _ => spans.push(span),
        }
        if spans.len() > *most {
            let oldest = spans.remove(0);
            self.put(level + 1, oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{disk, hour};
    use crate::history::SmartHistory;
    use proptest::prelude::*;

    const DECADE: i64 = 10 * 365 * 24;

    fn check(trend: &Trend, latest: Timestamp) -> Result<(), TestCaseError> {
        let points: Vec<TrendPoint> = trend.points().collect();
        prop_assert!(points.len() <= LEVELS.iter().map(|(_, most)| most).sum::<usize>());
        prop_assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at), "{points:?}");
        prop_assert!(points.iter().all(|it| it.at <= latest), "{points:?}");
        prop_assert!(points.iter().all(|it| it.least <= it.mean && it.mean <= it.greatest));
        Ok(())
    }

    fn readings(trend: &Trend) -> u32 {
        trend.spans().map(|span| span.4).sum()
    }

    proptest! {
        #[test]
        fn whatever_the_clock_does_times_increase_and_no_reading_is_lost(
            readings in prop::collection::vec((-100_i64..4000, 0_u32..100), 1..300),
        ) {
            let mut trend = Trend::default();
            let mut at = hour(0);
            for (minutes, value) in &readings {
                at += SignedDuration::from_mins(*minutes);
                trend.record(*value, at);
                check(&trend, at)?;
            }
            prop_assert_eq!(self::readings(&trend), readings.len() as u32);
            let points: Vec<TrendPoint> = trend.points().collect();
            prop_assert_eq!(points.iter().map(|it| it.greatest).max(), readings.iter().map(|it| it.1).max());
            prop_assert_eq!(points.iter().map(|it| it.least).min(), readings.iter().map(|it| it.1).min());
        }

        #[test]
        fn a_restart_keeps_it_and_what_was_read_before_the_store_answered_is_appended(
            before in prop::collection::vec((0_i64..4000, 0_u32..100), 1..100),
            after in prop::collection::vec((0_i64..4000, 0_u32..100), 1..100),
        ) {
            let record = |readings: &[(i64, u32)], mut at: Timestamp| {
                let mut trend = Trend::default();
                for (minutes, value) in readings {
                    at += SignedDuration::from_mins(*minutes);
                    trend.record(*value, at);
                }
                (trend, at)
            };
            let (stored, end) = record(&before, hour(0));
            let text = serde_json::to_string(&stored).expect("written");
            let mut trend: Trend = serde_json::from_str(&text).expect("read");
            prop_assert_eq!(&trend, &stored);
            let (later, end) = record(&after, end);
            trend.append(&later);
            check(&trend, end)?;
            prop_assert_eq!(readings(&trend), (before.len() + after.len()) as u32);
        }
    }

    #[test]
    fn a_decade_is_shown_from_its_beginning_with_its_extremes() {
        let mut trend = Trend::default();
        for at in 0..DECADE {
            let value = if at == 1000 { 61 } else { 30 + (at % 24 / 6) as u32 };
            trend.record(value, hour(at));
        }
        let points: Vec<TrendPoint> = trend.points().collect();
        assert_eq!(points.first().map(|it| it.at), Some(hour(0)));
        assert_eq!(points.last().map(|it| it.at), Some(hour(DECADE - 1)));
        assert_eq!(points.iter().map(|it| it.greatest).max(), Some(61));
        let last_day: Vec<u32> = points.iter().rev().take(24).map(|it| it.greatest).collect();
        assert!(last_day.contains(&30) && last_day.contains(&33), "hours of the last day");
    }

    #[test]
    fn a_decade_of_a_drive_takes_less_than_64_kib_in_the_store() {
        let mut history = SmartHistory::default();
        for at in 0..DECADE {
            history.record_trend(TrendKind::Latency, 60_000_000 - at as u32, hour(at));
            history.record_trend(TrendKind::Temperature, 20 + at as u32 % 40, hour(at));
            if at % 24 == 0 {
                let count = at.to_string();
                let counters = [5, 10, 187, 197, 198, 199];
                let mut report = counters.iter().fold(disk(), |disk, id| disk.raw(*id, &count));
                (report.temperature, report.power_on_hours) = (Some(20 + at % 7), Some(at as u64));
                history.record(&report, hour(at));
            }
        }
        let full = history.series.values().filter(|it| it.points.len() == 64).count();
        assert_eq!(full, 8, "each counter, temperature and hours");
        let stored = serde_json::to_string(&history).expect("written").len();
        // All 19 metrics at once are of no one protocol; 14 are the most of an ATA drive.
        let point = r#"{"at":"2036-01-15T08:00:00Z","value":87600},"#.len();
        assert!(stored + (14 - full) * 64 * point < 64 << 10, "{stored} bytes");
    }
}
