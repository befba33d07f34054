//! The series of one metric: which points are kept, and the growth.
//!
//! In: readings with their times. Out: a bounded list of points, and the growth within a window.

use jiff::{SignedDuration, Timestamp};

use crate::history::{Point, Reset, Series};

/// Maximum number of points of one series. A drive with all series full needs about 20 KiB in the
/// store.
pub(crate) const MAX_POINTS: usize = 64;

/// Number of newest points that thinning never removes.
const RECENT_POINTS: usize = 32;

/// Increases within this time after the first of them are one occasion: a scrub or a backup that
/// reads a damaged area reads its neighbors next.
pub(crate) const OCCASION_GAP: SignedDuration = SignedDuration::from_hours(1);

/// The increase of a value above its earlier maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    pub by: u64,
    /// The times of the first and the last increase.
    pub first: Timestamp,
    pub last: Timestamp,
    /// The last reading.
    pub last_reading: Timestamp,
    /// Number of separate increases.
    pub occasions: u64,
}

impl Series {
    /// Adds a reading. `monotonic`: a lower value restarts the series. `incomparable`: this reading
    /// cannot be compared with the last one.
    pub(super) fn record(
        &mut self,
        value: u64,
        at: Timestamp,
        monotonic: bool,
        incomparable: bool,
    ) {
        let Some(last) = self.points.last().copied() else {
            self.points.push(Point { at, value });
            return;
        };
        // The clock was ahead and was corrected: points later than now are invalid.
        for point in self.points.iter_mut().rev().take_while(|point| point.at > at) {
            point.at = at;
        }
        let is_reset = (monotonic && value < last.value) || (incomparable && value != last.value);
        if is_reset {
            self.reset = Some(Reset { at, from: last.value, to: value });
            self.points.clear();
        }
        self.push_point(Point { at, value });
        self.thin();
    }

    /// Adds a point. Only the first and the last reading of an unchanged value are kept.
    fn push_point(&mut self, point: Point) {
        if let [.., before, last] = self.points.as_mut_slice()
            && before.value == last.value
        {
            *last = point;
            return;
        }
        if self.points.last() != Some(&point) {
            self.points.push(point);
        }
    }

    /// Drops one point between the first and the recent ones: among those that are not the highest,
    /// the one whose neighbors are closest together.
    fn thin(&mut self) {
        while self.points.len() > MAX_POINTS {
            let highest = self
                .points
                .iter()
                .enumerate()
                .max_by_key(|(index, point)| (point.value, std::cmp::Reverse(*index)))
                .map(|(index, _)| index);
            let middle = 1..self.points.len().saturating_sub(RECENT_POINTS);
            let gap = |index: usize| match (
                self.points.get(index.wrapping_sub(1)),
                self.points.get(index + 1),
            ) {
                (Some(before), Some(after)) => after.at.duration_since(before.at),
                _ => SignedDuration::MAX,
            };
            match middle.filter(|index| Some(*index) != highest).min_by_key(|index| gap(*index)) {
                Some(index) => self.points.remove(index),
                None => self.points.remove(0),
            };
        }
    }

    /// The increase above the earlier maximum within `window` before the last reading. The very
    /// first reading is no growth.
    pub fn growth(&self, window: SignedDuration) -> Option<Growth> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let mut highest = first.value;
        let mut growth: Option<Growth> = None;
        let mut occasion = first.at;
        for point in self.points.iter().skip(1) {
            let more = point.value.saturating_sub(highest);
            if more == 0 {
                continue;
            }
            highest = point.value;
            if last.at.duration_since(point.at) > window {
                continue;
            }
            let another = growth.is_none() || point.at.duration_since(occasion) >= OCCASION_GAP;
            if another {
                occasion = point.at;
            }
            let so_far = growth.unwrap_or(Growth {
                by: 0,
                first: point.at,
                last: point.at,
                last_reading: last.at,
                occasions: 0,
            });
            growth = Some(Growth {
                by: so_far.by.saturating_add(more),
                last: point.at,
                occasions: so_far.occasions.saturating_add(u64::from(another)),
                ..so_far
            });
        }
        growth
    }

    /// How long the value is known to be unchanged.
    pub(crate) fn unchanged_for(&self) -> SignedDuration {
        let Some(last) = self.points.last() else {
            return SignedDuration::ZERO;
        };
        let since = self
            .points
            .iter()
            .rev()
            .take_while(|point| point.value == last.value)
            .last()
            .unwrap_or(last);
        last.at.duration_since(since.at)
    }
}
