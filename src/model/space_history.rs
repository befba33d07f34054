//! The free space of a filesystem or thin pool over the last days, and the time until it is full at
//! that rate. Pure.
//!
//! In: readings. Out: a forecast, or None: too little history, or space that does not shrink. Both
//! the whole history and its last day must show the same direction, and the slower rate counts, so
//! that neither one import nor one clean-up decides.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// One point in this time; the first reading counts.
const INTERVAL: SignedDuration = SignedDuration::from_hours(2);
/// The history covers this time.
const WINDOW: SignedDuration = SignedDuration::from_hours(72);
/// The shortest history that gives a forecast, and the part of it that must agree.
const LAST_DAY: SignedDuration = SignedDuration::from_hours(24);
/// Without a reading for this time, the forecast is not known.
const STALE_AFTER: SignedDuration = SignedDuration::from_hours(6);
/// A forecast beyond this is of no use.
const HORIZON: SignedDuration = SignedDuration::from_hours(24 * 365);
/// Readings of one window, in points: fewer are too few for a rate.
const MIN_POINTS: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SpacePoint {
    at: Timestamp,
    /// In bytes or blocks.
    available: u64,
}

/// At most 37 points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceHistory {
    /// In bytes or blocks. Another size begins a new history.
    total: u64,
    points: Vec<SpacePoint>,
}

/// The time until a filesystem is full, if it goes on as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    pub full_in: SignedDuration,
    /// The length of the history.
    pub span: SignedDuration,
    /// Bytes or blocks.
    pub per_day: u64,
}

impl SpaceHistory {
    /// Whether a reading at this time becomes a point.
    pub fn is_due(&self, at: Timestamp, total: u64) -> bool {
        self.total != total
            || self.points.last().is_none_or(|last| at.duration_since(last.at) >= INTERVAL)
    }

    pub fn record(&mut self, at: Timestamp, total: u64, available: u64) {
        if self.total != total {
            self.points.clear();
            self.total = total;
        }
        self.points.retain(|point| at.duration_since(point.at) <= WINDOW && point.at <= at);
        self.points.push(SpacePoint { at, available });
    }

    pub fn last_reading(&self) -> Option<Timestamp> {
        self.points.last().map(|point| point.at)
    }

    /// `available`: the newest reading.
    pub fn forecast(&self, available: u64, now: Timestamp) -> Option<Forecast> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let span = last.at.duration_since(first.at);
        if span < LAST_DAY || now.duration_since(last.at) > STALE_AFTER {
            return None;
        }
        let day_begins =
            self.points.partition_point(|point| last.at.duration_since(point.at) > LAST_DAY);
        let per_second = shrinkage(&self.points)?.min(shrinkage(&self.points[day_begins..])?);
        if per_second <= 0.0 {
            return None;
        }
        let seconds = available as f64 / per_second;
        (seconds <= HORIZON.as_secs_f64()).then(|| Forecast {
            full_in: SignedDuration::from_secs(seconds as i64),
            span,
            per_day: (per_second * LAST_DAY.as_secs_f64()) as u64,
        })
    }
}

/// The average loss of space per second between the first and the last third of the points, each by
/// its median: single peaks do not count.
fn shrinkage(points: &[SpacePoint]) -> Option<f64> {
    if points.len() < MIN_POINTS {
        return None;
    }
    let third = points.len() / 3;
    let (early, late) = (&points[..third], &points[points.len() - third..]);
    let seconds = middle_time(late) - middle_time(early);
    (seconds > 0.0).then(|| (median(early) - median(late)) / seconds)
}

fn median(points: &[SpacePoint]) -> f64 {
    let mut values: Vec<u64> = points.iter().map(|point| point.available).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default() as f64
}

fn middle_time(points: &[SpacePoint]) -> f64 {
    let sum: f64 = points.iter().map(|point| point.at.as_second() as f64).sum();
    sum / points.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn hour(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
    }

    /// `available` in GiB by the hour, read every ten minutes.
    fn recorded(hours: i64, available: impl Fn(i64) -> u64) -> SpaceHistory {
        let mut history = SpaceHistory::default();
        for reading in 0..=hours * 6 {
            let at = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(reading * 10);
            if history.is_due(at, 100 * GIB) {
                history.record(at, 100 * GIB, available(reading / 6) * GIB);
            }
        }
        history
    }

    fn hours_left(history: &SpaceHistory, available: u64, now: i64) -> Option<i64> {
        let forecast = history.forecast(available * GIB, hour(now))?;
        Some(forecast.full_in.as_hours())
    }

    #[test]
    fn a_filesystem_that_fills_evenly_is_full_when_its_rate_says_so() {
        // One GiB in two hours: 28 GiB last 56 hours.
        let history = recorded(72, |hour| 64 - hour as u64 / 2);
        assert_eq!(hours_left(&history, 28, 72), Some(56));
        let forecast = history.forecast(28 * GIB, hour(72)).expect("a forecast");
        assert_eq!(forecast.per_day, 12 * GIB);
        assert!(history.points.len() <= 37);
    }

    #[test]
    fn less_than_a_day_gives_no_forecast() {
        let history = recorded(23, |hour| 90 - hour as u64);
        assert_eq!(hours_left(&history, 60, 23), None);
    }

    #[test]
    fn neither_one_import_nor_a_peak_is_a_trend() {
        // 40 GiB were written in one hour, two days ago.
        let import = recorded(72, |hour| if hour < 20 { 60 } else { 20 });
        assert_eq!(hours_left(&import, 20, 72), None);
        // A nightly job takes 15 GiB for two hours.
        let nightly = recorded(72, |hour| if hour % 24 < 2 { 15 } else { 30 });
        assert_eq!(hours_left(&nightly, 30, 72), None);
        // It was cleaned up during the last day.
        let cleaned = recorded(72, |hour| if hour < 60 { 70 - hour as u64 } else { 50 });
        assert_eq!(hours_left(&cleaned, 50, 72), None);
    }

    #[test]
    fn another_size_begins_anew_and_an_old_history_says_nothing() {
        let mut history = recorded(72, |hour| 64 - hour as u64 / 2);
        assert_eq!(hours_left(&history, 28, 79), None, "stale");
        history.record(hour(73), 200 * GIB, 128 * GIB);
        assert_eq!(history.points.len(), 1);
    }

    #[test]
    fn a_clock_that_was_set_back_keeps_no_points_of_the_future() {
        let mut history = recorded(72, |hour| 64 - hour as u64 / 2);
        history.record(hour(10), 100 * GIB, GIB);
        assert!(history.points.iter().all(|point| point.at <= hour(10)));
    }
}
