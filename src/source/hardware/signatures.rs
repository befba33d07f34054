//! Signatures of members that udev does not name: which devices are read, when, and what was found.
//!
//! In: an inventory, devices with events. Out: the inventory with `signatures`. Each device is read
//! once, and after each of its events, by a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};

use crate::context::Context;
use crate::hardware::{MAX_SUPERBLOCK_READS, is_usable};
use crate::jobs::{Job, JobResult};
use crate::worker_job::{answer, late_answer};
use diskvitals_finding::dev::DevNo;
use diskvitals_host::worker_pool::WorkerOutcome;
use diskvitals_model::block::{BlockDevice, Inventory, Layer};
use diskvitals_model::signature::Signature;

/// Name, number, size in bytes.
type Target = (String, DevNo, u64);

/// None: it could not be read.
type SignatureRead = (Target, Option<Vec<Signature>>);

#[derive(Default)]
pub(super) struct SignatureReader {
    /// None: it could not be read. It is read again after its next event: reads of bad sectors, again
    /// and again, would be errors that nothing else causes.
    found: BTreeMap<Target, Option<Vec<Signature>>>,
    queue: BTreeSet<Target>,
    in_flight: BTreeSet<Target>,
    /// Those with an event since the reading in flight began.
    outdated: BTreeSet<Target>,
    reads: JoinSet<SignatureRead>,
}

impl SignatureReader {
    /// Adds what was read of the devices, and queues those that were not read since they changed.
    pub(super) fn complete(&mut self, inventory: &mut Inventory, changed: &BTreeSet<String>) {
        let wanted = targets(inventory);
        self.found.retain(|target, _| wanted.contains(target));
        let outdated = std::mem::take(&mut self.outdated);
        let is_known = |target: &Target| {
            self.found.contains_key(target)
                && !changed.contains(&target.0)
                && !outdated.contains(target)
        };
        let can_be_read = |target: &Target| {
            let device = inventory.devices.get(&target.0);
            device.is_some_and(|device| is_usable(inventory, device))
        };
        self.queue = wanted.into_iter().filter(|it| !is_known(it) && can_be_read(it)).collect();
        let found = self.found.iter();
        let found = found.filter_map(|(target, it)| Some((target.0.clone(), it.clone()?)));
        inventory.signatures = found.collect();
    }

    /// A device whose reading hangs is not read again until it has ended.
    pub(super) fn start(&mut self, context: &Arc<Context>) {
        while self.in_flight.len() < MAX_SUPERBLOCK_READS
            && let Some(target) = self.queue.pop_first()
        {
            if self.in_flight.insert(target.clone()) {
                self.reads.spawn(read(context.clone(), target));
            } else {
                self.outdated.insert(target);
            }
        }
    }

    pub(super) async fn next(&mut self) -> Option<Result<SignatureRead, JoinError>> {
        self.reads.join_next().await
    }

    /// Whether it found something new. A failed reading changes nothing: the former one holds.
    pub(super) fn record(&mut self, read: Result<SignatureRead, JoinError>) -> bool {
        match read {
            Ok((target, found)) => {
                self.in_flight.remove(&target);
                let known = self.found.entry(target).or_default();
                let is_news = found.is_some() && *known != found;
                *known = found.or(known.take());
                is_news
            }
            Err(error) => {
                tracing::error!(%error, "the reading of signatures was lost");
                false
            }
        }
    }
}

/// Devices that may be members of something, and udev does not say of what: it names no signature
/// where it finds two, no state of a ZFS label, no number of an OSD. With something on it, the use of a
/// device is known. A zvol of a suspended pool would not answer.
fn targets(inventory: &Inventory) -> BTreeSet<Target> {
    let devices = || inventory.devices.values();
    let below: BTreeSet<&String> = devices().flat_map(|device| &device.underlying).collect();
    let is_drive = |name: &String| inventory.devices.get(name).is_some_and(|it| it.drive.is_some());
    let is_target = |device: &&BlockDevice| {
        let is_own = match &device.layer {
            Layer::Partition { .. } => device.underlying.iter().any(is_drive),
            _ => device.drive.is_some(),
        };
        match device.fs_type.as_deref() {
            Some("ceph_bluestore") => is_own || matches!(device.layer, Layer::Dm { .. }),
            None | Some("zfs_member") => is_own && !below.contains(&device.name),
            Some(_) => false,
        }
    };
    let target = |device: &BlockDevice| (device.name.clone(), device.dev, device.size_bytes);
    devices().filter(|device| device.size_bytes > 0).filter(is_target).map(target).collect()
}

async fn read(context: Arc<Context>, target: Target) -> SignatureRead {
    let timeout = context.settings.borrow().worker_timeout;
    let (device, dev, size) = target.clone();
    let name = format!("signatures {device}");
    let signatures = |result| match result {
        JobResult::Signatures(signatures) => Some(signatures),
        _ => None,
    };
    let job = Job::Signatures { device, dev, size };
    let result = match context.workers.run(&name, job, timeout).await {
        WorkerOutcome::Stuck { late: Some(late), .. } => late_answer(late, signatures).await,
        outcome => answer(outcome, signatures),
    };
    if let Err(error) = &result {
        tracing::warn!(device = target.0, %error, "the signatures of a device could not be read");
    }
    (target, result.ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_finding::ids::DriveId;

    fn device(name: &str, layer: Layer, below: &[&str], fs_type: Option<&str>) -> BlockDevice {
        let drive = matches!(layer, Layer::Disk).then(|| DriveId::new(name));
        BlockDevice {
            name: name.into(),
            dev: DevNo::new(8, u32::from(name.as_bytes()[name.len() - 1])),
            size_bytes: 1 << 30,
            read_only: false,
            layer,
            underlying: below.iter().map(|name| (*name).to_owned()).collect(),
            drive,
            links: Vec::new(),
            has_udev_record: true,
            fs_type: fs_type.map(str::to_owned),
            fs_usage: None,
            fs_uuid: None,
            fs_uuid_sub: None,
            fs_label: None,
            iostats: true,
        }
    }

    fn inventory(devices: Vec<BlockDevice>) -> Inventory {
        let devices = devices.into_iter().map(|device| (device.name.clone(), device)).collect();
        Inventory { devices, ..Inventory::default() }
    }

    fn part() -> Layer {
        Layer::Partition { number: 1, start_bytes: 0 }
    }

    fn lv() -> Layer {
        Layer::Dm { name: "vg-lv".into(), uuid: None, volume_group: None, logical_volume: None }
    }

    fn names(inventory: &Inventory) -> Vec<String> {
        targets(inventory).into_iter().map(|(name, ..)| name).collect()
    }

    fn found(kind: &str) -> Vec<Signature> {
        vec![Signature { fs_type: kind.into(), osd: None, zfs: None }]
    }

    #[test]
    fn silent_drives_zfs_labels_and_osds_are_read_and_nothing_that_is_known_to_be_in_use() {
        let zvol = Layer::Zvol { dataset: None };
        let pool = Layer::ZfsPool { name: "tank".into() };
        let all = inventory(vec![
            device("sda", Layer::Disk, &[], None),
            device("sdb", Layer::Disk, &[], None),
            device("sdb1", part(), &["sdb"], None),
            device("sdb2", part(), &["sdb"], Some("ext4")),
            device("sdb3", part(), &["sdb"], Some("zfs_member")),
            device("sdb4", part(), &["sdb"], Some("zfs_member")),
            device("zfs:tank", pool, &["sdb4"], None),
            device("zd0", zvol, &["zfs:tank"], Some("ceph_bluestore")),
            device("zd0p1", part(), &["zd0"], None),
            device("sdc", Layer::Disk, &[], Some("LVM2_member")),
            device("dm-0", lv(), &["sdc"], Some("ceph_bluestore")),
            device("dm-1", lv(), &["sdc"], None),
            device("loop0", Layer::Loop { backing_file: None }, &[], None),
        ]);
        assert_eq!(names(&all), ["dm-0", "sda", "sdb1", "sdb3"]);
    }

    #[test]
    fn a_device_is_read_once_and_after_its_events_and_a_failure_clears_nothing() {
        let mut reader = SignatureReader::default();
        let mut all = inventory(vec![device("sda", Layer::Disk, &[], None)]);
        let target = targets(&all).pop_first().unwrap();
        let nothing = BTreeSet::new();
        reader.complete(&mut all, &nothing);
        assert!(reader.queue.contains(&target) && all.signatures.is_empty());
        assert!(reader.record(Ok((target.clone(), Some(found("drbd"))))));
        reader.complete(&mut all, &nothing);
        assert!(reader.queue.is_empty());
        assert_eq!(all.signatures["sda"], found("drbd"));
        reader.complete(&mut all, &BTreeSet::from(["sda".to_owned()]));
        assert!(reader.queue.contains(&target));
        assert!(!reader.record(Ok((target.clone(), None))));
        reader.complete(&mut all, &nothing);
        assert_eq!(all.signatures["sda"], found("drbd"));
        assert!(reader.queue.is_empty());
        // Another device under the name, or one with something on it.
        all.devices.get_mut("sda").unwrap().size_bytes = 2 << 30;
        reader.complete(&mut all, &nothing);
        assert!(all.signatures.is_empty() && reader.queue.len() == 1);
    }

    #[test]
    fn a_device_that_could_not_be_read_is_unknown_and_not_read_again_before_its_next_event() {
        let mut reader = SignatureReader::default();
        let mut all = inventory(vec![device("sda", Layer::Disk, &[], None)]);
        let target = targets(&all).pop_first().unwrap();
        assert!(!reader.record(Ok((target, None))));
        reader.complete(&mut all, &BTreeSet::new());
        assert!(all.signatures.is_empty() && reader.queue.is_empty());
    }
}
