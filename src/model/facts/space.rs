//! Free space over time: one history for each volume and each thin pool, from the same readings as
//! the current figures. A failed reading adds nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::space_history::{Forecast, SpaceHistory};
use diskvitals_finding::Subject;

/// A history without a reading for this time belongs to something that is gone.
const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(7 * 24);

/// By volume, and by device for a thin pool. Kept in the store.
#[derive(Clone, Debug, Default)]
pub struct SpaceHistories(BTreeMap<Subject, Arc<SpaceHistory>>);

impl SpaceHistories {
    pub fn iter(&self) -> impl Iterator<Item = (&Subject, &Arc<SpaceHistory>)> + Clone {
        self.0.iter()
    }

    /// Restores the histories from before a restart.
    pub fn restore(&mut self, stored: Vec<(Subject, SpaceHistory)>) {
        for (subject, history) in stored {
            let entry = self.0.entry(subject);
            entry.or_insert_with(|| Arc::new(history));
        }
    }

    pub(super) fn record(&mut self, subject: Subject, at: Timestamp, total: u64, available: u64) {
        let known = self.0.get(&subject);
        if total == 0 || known.is_some_and(|known| !known.is_due(at, total)) {
            return;
        }
        self.0.retain(|_, history| {
            let last = history.last_reading();
            last.is_some_and(|last| at.duration_since(last) < FORGET_AFTER)
        });
        let history = self.0.entry(subject).or_default();
        Arc::make_mut(history).record(at, total, available);
    }

    /// When it is full, at the rate of the last days.
    pub fn forecast(&self, subject: &Subject, available: u64, now: Timestamp) -> Option<Forecast> {
        self.0.get(subject)?.forecast(available, now)
    }
}
