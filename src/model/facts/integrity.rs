//! What dm-integrity has counted on each drive. Kept over restarts, and over a device that is activated
//! again, which begins at zero.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::block::Layer;
use crate::counters::{CounterDevice, CounterHistory, CounterReading};
use crate::facts::Facts;
use crate::stack::DmIntegrity;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;

const PREFIX: &str = "integrity ";

impl Facts {
    /// Above several drives, the count is no one's.
    pub(super) fn record_integrity(&mut self, device: &str, seen: &DmIntegrity, at: Timestamp) {
        let Some((drive, reading)) = self.integrity_reading(device, seen) else {
            return;
        };
        let key = (Subject::Drive(drive), format!("{PREFIX}{}", reading.file));
        self.counters.record(&key, &reading, at);
    }

    fn integrity_reading(
        &self,
        device: &str,
        seen: &DmIntegrity,
    ) -> Option<(DriveId, CounterReading)> {
        let inventory = self.inventory()?;
        let mut drives = inventory.drives_below(device).into_iter();
        let (Some(drive), None) = (drives.next(), drives.next()) else {
            return None;
        };
        // Its kernel name is another one after a boot.
        let Layer::Dm { name, .. } = &inventory.devices.get(device)?.layer else {
            return None;
        };
        let reading = CounterReading {
            device: CounterDevice::Block(device.to_owned()),
            source: "integrity".to_owned(),
            file: name.clone(),
            values: BTreeMap::from([("mismatches".to_owned(), seen.mismatches)]),
            details: BTreeMap::from([("status".to_owned(), seen.status_line.clone())]),
        };
        Some((drive.clone(), reading))
    }

    /// By the name of the device below /dev/mapper.
    pub(crate) fn integrity_counts(
        &self,
        drive: &DriveId,
    ) -> impl Iterator<Item = &CounterHistory> {
        self.counters.series(Subject::Drive(drive.clone()), PREFIX).map(|(_, history)| history)
    }
}
