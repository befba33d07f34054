//! What ZFS has counted of the members of its pools, for each drive. Kept over restarts: every import
//! sets the counts to zero, and that is no recovery.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::block::{Inventory, LayerState};
use crate::counters::{CounterDevice, CounterHistory, CounterReading};
use crate::facts::Facts;
use crate::stack::{Vdev, ZfsPool};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;

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

    /// The label of a spare names no pool: that one in use is a member, only `zpool status` says. Out:
    /// whether the scan lacked one.
    pub(super) fn note_pool_members(&self, inventory: &mut Inventory) -> bool {
        let mut found = Vec::new();
        for (pool, layer) in &self.layers {
            let Some(LayerState::Zfs(ZfsPool { status: Some(status), .. })) =
                layer.state.last_known()
            else {
                continue;
            };
            let Some(known) = inventory.devices.get(pool) else { continue };
            let members = status.working().filter_map(|member| member.device(inventory));
            let lacks = |name: &String| !known.underlying.contains(name);
            found.extend(
                members.map(|it| it.name.clone()).filter(lacks).map(|it| (pool.clone(), it)),
            );
        }
        for (pool, member) in &found {
            if let Some(device) = inventory.devices.get_mut(pool) {
                device.underlying.push(member.clone());
                device.underlying.sort();
            }
        }
        !found.is_empty()
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
