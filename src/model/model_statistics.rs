//! Time in service and failures of drives by model and firmware, for failure rates over a fleet.
//!
//! In: the known drives, their health before and now. Out: tallies that only grow while the daemon
//! runs. Pure. Each drive's failure counts once, ever: the drive keeps the mark across restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::drive::{DriveFacts, DriveKind, Transport};
use diskvitals_text::duration::elapsed;

/// Models and firmware that are counted by name; drives of further ones are counted together.
const MAX_MODELS: usize = 64;
/// The model and firmware of further ones.
pub const OTHER: &str = "other";

/// Model and firmware.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelKey {
    pub model: String,
    pub firmware: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelTally {
    /// Added up over the drives that were present.
    pub in_service: Duration,
    pub failures: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelStatistics {
    tallies: BTreeMap<ModelKey, ModelTally>,
    /// The time up to which drives are counted.
    pub counted_until: Option<Timestamp>,
}

impl ModelStatistics {
    /// Counts the time since the last call for the drives that are present.
    pub fn count_time<'a>(
        &mut self,
        present: impl Iterator<Item = &'a DriveFacts>,
        now: Timestamp,
    ) {
        let passed = self.counted_until.map(|before| elapsed(before, now));
        for drive in present {
            // A new model has its series from the first moment: its first failure is an increase.
            if let Some(tally) = self.tally_of(drive) {
                tally.in_service += passed.unwrap_or_default();
            }
        }
        self.counted_until = Some(now);
    }

    pub fn count_failure(&mut self, drive: &DriveFacts) {
        if let Some(tally) = self.tally_of(drive) {
            tally.failures += 1;
        }
    }

    pub fn tallies(&self) -> impl Iterator<Item = (&ModelKey, &ModelTally)> {
        self.tallies.iter()
    }

    pub fn failures(&self) -> u64 {
        self.tallies.values().map(|tally| tally.failures).sum()
    }

    fn tally_of(&mut self, drive: &DriveFacts) -> Option<&mut ModelTally> {
        let mut key = key_of(drive)?;
        if !self.tallies.contains_key(&key) && self.tallies.len() >= MAX_MODELS {
            key = ModelKey { model: OTHER.to_owned(), firmware: OTHER.to_owned() };
        }
        Some(self.tallies.entry(key).or_default())
    }
}

/// None for what has no model of its own: virtual and remote drives, and loop devices.
fn key_of(drive: &DriveFacts) -> Option<ModelKey> {
    let is_own = !drive.transport.is_remote()
        && drive.transport != Transport::Loop
        && !matches!(drive.kind, DriveKind::Virtual | DriveKind::Remote);
    let text = |value: &Option<String>| value.as_deref().unwrap_or_default().trim().to_owned();
    let key = ModelKey { model: text(&drive.model), firmware: text(&drive.firmware) };
    (is_own && !key.model.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests;
