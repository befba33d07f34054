//! What ZFS has counted of the members of its pools, for each drive. Kept over restarts: every import
//! sets the counts to zero, and that is no recovery.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::block::{Inventory, LayerState};
use crate::counters::{CounterDevice, CounterHistory, CounterReading};
use crate::facts::{Facts, LayerFacts};
use crate::stack::{Vdev, ZfsPool};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;

const PREFIX: &str = "zfs ";

/// The name of the series of a member of a pool. `device`: of the pool.
pub(crate) fn series_of(device: &str, member: &Vdev) -> String {
    match member.guid {
        Some(guid) => format!("{PREFIX}{device} {guid}"),
        None => format!("{PREFIX}{device} {}", member.name),
    }
}

impl Facts {
    pub(super) fn record_pool_members(&mut self, device: &str, pool: &ZfsPool) {
        let (Some(status), Some(at)) = (&pool.status, pool.status_at) else {
            return;
        };
        self.record_pool_pass(device, status, at);
        let mut readings = Vec::new();
        for (_, member) in status.members() {
            if let Some((drive, on)) = self.drive_of_member(member) {
                let counts = [
                    ("read", member.read_errors),
                    ("write", member.write_errors),
                    ("checksum", member.checksum_errors),
                ];
                let reading = CounterReading {
                    device: CounterDevice::Block(on),
                    source: "zfs".to_owned(),
                    file: format!("zpool status, {}", member.name),
                    values: counts.map(|(name, count)| (name.to_owned(), count)).into(),
                    details: BTreeMap::new(),
                };
                readings.push(((Subject::Drive(drive), series_of(device, member)), reading, at));
            }
        }
        for (key, reading, at) in readings {
            self.counters.record(&key, &reading, at);
        }
    }

    /// Adds to a scan what only `zpool status` says: the label of a spare in use names no pool.
    pub(super) fn note_pool_members(&mut self, scan: &mut Inventory) {
        self.unlabeled_members.clear();
        self.unlabeled_members = self.members_beside(scan);
        for (pool, added) in &self.unlabeled_members {
            if let Some(device) = scan.devices.get_mut(pool) {
                device.underlying.extend(added.iter().cloned());
                device.underlying.sort();
            }
        }
    }

    /// The last scan as it was, if `zpool status` now adds other members to it.
    pub(super) fn scan_with_other_pool_members(&self) -> Option<Observation<Inventory>> {
        let Observation::Ok { at, value } = self.inventory.observation() else { return None };
        if self.members_beside(value) == self.unlabeled_members {
            return None;
        }
        let mut scan = (**value).clone();
        for (pool, added) in &self.unlabeled_members {
            if let Some(device) = scan.devices.get_mut(pool) {
                device.underlying.retain(|name| !added.contains(name));
            }
        }
        Some(Observation::ok(*at, scan))
    }

    /// Of each pool, the working members that the scan without our additions does not have.
    fn members_beside(&self, scan: &Inventory) -> BTreeMap<String, BTreeSet<String>> {
        let of_pool = |(pool, layer): (&String, &LayerFacts)| {
            let LayerState::Zfs(ZfsPool { status, .. }) = layer.state.last_known()? else {
                return None;
            };
            let device = scan.devices.get(pool)?;
            let added = self.unlabeled_members.get(pool);
            let is_scanned = |name: &String| {
                device.underlying.contains(name) && !added.is_some_and(|it| it.contains(name))
            };
            let working = status.as_ref()?.working().filter_map(|member| member.device(scan));
            let working = working.map(|it| it.name.clone());
            Some((pool.clone(), working.filter(|name| !is_scanned(name)).collect()))
        };
        self.layers.iter().filter_map(of_pool).collect()
    }

    /// With the kernel name of the device that is the member.
    fn drive_of_member(&self, member: &Vdev) -> Option<(DriveId, String)> {
        let inventory = self.inventory()?;
        let device = member.device(inventory)?;
        let drive = inventory.drives_below(&device.name).into_iter().next()?;
        Some((drive.clone(), device.name.clone()))
    }

    pub(crate) fn pool_member_counts(
        &self,
        drive: &DriveId,
    ) -> impl Iterator<Item = (&str, &CounterHistory)> {
        self.counters.series(Subject::Drive(drive.clone()), PREFIX)
    }

    /// Whether a member has counts, or had some after this time.
    pub(crate) fn has_counted(history: &CounterHistory, after: Timestamp) -> bool {
        let mut counters = history.counters();
        counters.any(|(_, it)| it.last > 0 || it.last_growth.is_some_and(|at| at > after))
    }
}
