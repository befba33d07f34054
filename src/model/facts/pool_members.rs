//! What ZFS has counted of the members of its pools, for each drive. Kept over restarts: every import
//! sets the counts to zero, and that is no recovery. Of each pool, the last scrub: ZFS keeps only the last
//! scan, and a resilver is one too.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::counters::{CounterDevice, CounterHistory, CounterReading, recorded_time};
use crate::facts::Facts;
use crate::stack::{PoolScan, PoolStatus, Vdev, ZfsPool, state_file};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;

const PREFIX: &str = "zfs ";
/// The note of a pool's last scrub.
pub(super) const SCRUB: &str = "zfs-scrub";
/// Above this number, only those of imported pools are kept.
const MAX_SCRUBS: usize = 256;

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
        self.record_scrub(device, status);
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

    fn record_scrub(&mut self, device: &str, status: &PoolStatus) {
        let Some(PoolScan { errors, ended: Some(ended), .. }) = status.finished_scrub() else {
            return;
        };
        let details = [
            ("ended", Some(ended.as_second().to_string())),
            ("errors", Some(errors.to_string())),
            ("pool", self.pool_guid(device).map(str::to_owned)),
        ];
        let note = CounterHistory::note(state_file(device), details);
        self.counters.put((Subject::Device(device.to_owned()), SCRUB.to_owned()), note);
        let layers = &self.layers;
        self.counters.limit_notes(
            SCRUB,
            MAX_SCRUBS,
            |(subject, _)| matches!(subject, Subject::Device(name) if layers.contains_key(name)),
        );
    }

    /// As the labels of its members have it. A pool that was created anew may have the same name.
    fn pool_guid(&self, device: &str) -> Option<&str> {
        let devices = &self.inventory()?.devices;
        let mut members = devices.get(device)?.underlying.iter();
        members.find_map(|name| devices.get(name)?.fs_uuid.as_deref())
    }

    /// When the last scrub of the pool ended, by the wall clock, and the errors that it left.
    pub(crate) fn last_scrub(&self, device: &str) -> Option<(Timestamp, u64)> {
        let (_, note) = self.counters.series(Subject::Device(device.to_owned()), SCRUB).next()?;
        let both = note.details.get("pool").zip(self.pool_guid(device));
        if both.is_some_and(|(noted, now)| noted != now) {
            return None;
        }
        let errors = note.details.get("errors")?.parse().ok()?;
        Some((recorded_time(&note.details, "ended")?, errors))
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
