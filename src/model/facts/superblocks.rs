//! Superblocks: the identity of filesystems on devices of which udev's database has no record, and
//! what ext2 to ext4 record about their errors and checks.
//!
//! In: readings, scans, mount tables. Out: the UUID of a device's filesystem, the state of an ext4,
//! and which of these to read. A reading holds until the device is mounted anew: without udevd,
//! nothing else shows that a filesystem was made.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::facts::{Facts, Urgency};
use crate::policy::VolumeSettings;
use crate::superblock::{ExtState, Superblock};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::mount::MountTable;
use diskvitals_finding::observation::Observation;

#[derive(Clone, Debug, Default)]
pub struct Superblocks {
    by_device: BTreeMap<String, Reading>,
    /// The mounted ext2 to ext4 of which a reading was requested since they were mounted.
    requested: BTreeMap<String, DevNo>,
    /// Requests that are not sent yet.
    requests: BTreeMap<String, DevNo>,
    /// Devices whose mounts are new ones: when they were made, the next reading shows.
    awaiting_mount_time: BTreeSet<String>,
}

impl Superblocks {
    pub(super) fn is_empty(&self) -> bool {
        self.by_device.is_empty() && self.requested.is_empty()
    }

    pub(super) fn await_mount_time(&mut self, device: String) {
        self.awaiting_mount_time.insert(device);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    dev: DevNo,
    at: Timestamp,
    superblock: Option<Superblock>,
}

impl Facts {
    /// The UUID of the filesystem on a block device.
    pub(crate) fn device_uuid(&self, name: &str) -> Option<&String> {
        let device = self.device(name)?;
        if device.has_udev_record || device.fs_uuid.is_some() {
            return device.fs_uuid.as_ref();
        }
        let reading = self.superblock_reading(name)?;
        Some(&reading.superblock.as_ref()?.uuid)
    }

    /// Whether nothing has named the filesystem on this device yet.
    pub(crate) fn awaits_superblock(&self, name: &str) -> bool {
        self.device(name).is_some_and(|device| {
            !device.has_udev_record && device.fs_uuid.is_none() && device.size_bytes > 0
        }) && self.superblock_reading(name).is_none()
    }

    /// What ext2 to ext4 on this device records about itself, and when it was read: since its last
    /// mount, if it is mounted.
    pub(crate) fn ext_state(&self, name: &str) -> Option<(Timestamp, &ExtState)> {
        let reading = self.superblock_reading(name)?;
        Some((reading.at, reading.superblock.as_ref()?.ext.as_ref()?))
    }

    /// Devices with this filesystem, by name.
    pub(crate) fn devices_with_uuid(&self, uuid: &str) -> Vec<&String> {
        let devices = self.inventory().into_iter();
        devices
            .flat_map(|inventory| inventory.devices.keys())
            .filter(|name| self.device_uuid(name).is_some_and(|found| found == uuid))
            .collect()
    }

    fn superblock_reading(&self, name: &str) -> Option<&Reading> {
        let dev = self.device(name)?.dev;
        let reading = self.superblocks.by_device.get(name);
        reading.filter(|reading| reading.dev == dev)
    }

    /// A failed reading changes nothing: the former one holds.
    pub(super) fn apply_superblock(
        &mut self,
        device: String,
        dev: DevNo,
        seen: Observation<Option<Superblock>>,
        settings: &VolumeSettings,
        now: Timestamp,
    ) -> Urgency {
        let Observation::Ok { at, value: superblock } = seen else {
            return Urgency::Nothing;
        };
        let reading = Reading { dev, at, superblock };
        let known = self.device(&device);
        let has_udev_record = known.is_some_and(|known| known.has_udev_record);
        let is_awaited = self.superblocks.awaiting_mount_time.remove(&device);
        let name = device.clone();
        let old = self.superblocks.by_device.insert(device, reading.clone());
        if is_awaited {
            self.apply_mount_time(&name, at);
        }
        if old.is_some_and(|old| old.dev == dev && old.superblock == reading.superblock) {
            return Urgency::Nothing;
        }
        if !has_udev_record {
            self.update_volumes(settings, now);
        }
        Urgency::Immediate
    }

    /// Whether this device's ext2 to ext4 is to be read: it was mounted, and no reading since then
    /// has arrived.
    pub(crate) fn awaits_ext_state(&self, name: &str) -> bool {
        let is_requested = self.superblocks.requested.contains_key(name);
        (is_requested && self.superblock_reading(name).is_none()) || self.awaits_superblock(name)
    }

    /// Requests the superblock of each mounted ext2 to ext4 that was not read since its mount.
    /// Without a record of udev, the source reads it by itself.
    pub(super) fn request_ext_superblocks(&mut self) {
        let mut due = Vec::new();
        for known in self.volumes.values() {
            if known.facts.mounts.is_empty() || self.is_asleep(&known.facts) {
                continue;
            }
            let device = known.facts.device.as_ref();
            let Some((name, dev)) = device.and_then(|name| self.ext_device(name)) else {
                continue;
            };
            let requested = self.superblocks.requested.get(name) == Some(&dev);
            if !requested {
                due.push((name.to_owned(), dev));
            }
        }
        self.superblocks.requested.extend(due.iter().cloned());
        self.superblocks.requests.extend(due);
    }

    /// The device was mounted anew, without a reading of the mount table that shows it: what was
    /// read before may be older than a repair.
    pub(super) fn request_ext_superblock_of_new_mount(&mut self, device: &str) {
        if let Some((name, dev)) = self.ext_device(device) {
            let name = name.to_owned();
            self.superblocks.by_device.remove(&name);
            self.superblocks.requests.insert(name, dev);
        }
    }

    /// The kernel counts another number of errors than the superblock that was read.
    pub(super) fn request_changed_ext_superblock(&mut self, device: &str, errors: u64) {
        let is_known =
            self.ext_state(device).is_some_and(|(_, state)| u64::from(state.errors) == errors);
        if !is_known && let Some((name, dev)) = self.ext_device(device) {
            let name = name.to_owned();
            self.superblocks.requests.insert(name, dev);
        }
    }

    /// The devices whose superblock is to be read now.
    pub fn take_ext_superblock_requests(&mut self) -> Vec<(String, DevNo)> {
        std::mem::take(&mut self.superblocks.requests).into_iter().collect()
    }

    /// A device with an ext2 to ext4, as udev's database has it, or its superblock.
    fn ext_device(&self, name: &str) -> Option<(&str, DevNo)> {
        let device = self.device(name)?;
        let fs_type = device.fs_type.as_deref();
        let is_ext = match device.has_udev_record {
            true => matches!(fs_type, Some("ext2" | "ext3" | "ext4")),
            false => self.ext_state(name).is_some(),
        };
        is_ext.then_some((device.name.as_str(), device.dev))
    }

    /// A check has read the superblock of an unmounted filesystem.
    pub(super) fn set_superblock_uuid(
        &mut self,
        device: &str,
        dev: DevNo,
        uuid: &str,
        at: Timestamp,
    ) {
        let is_known = self.device_uuid(device).is_some_and(|known| known == uuid);
        if is_known || self.device(device).is_none_or(|device| device.has_udev_record) {
            return;
        }
        let superblock =
            Some(Superblock { fs_type: String::new(), uuid: uuid.to_owned(), ext: None });
        let reading = Reading { dev, at, superblock };
        self.superblocks.by_device.insert(device.to_owned(), reading);
    }

    /// Drops the readings of devices that are gone.
    pub(super) fn forget_superblocks(&mut self) {
        let Some(inventory) = self.inventory.value() else {
            return;
        };
        let devices = &inventory.devices;
        let is_there = |name: &String, dev: DevNo| {
            let device = devices.get(name);
            device.is_some_and(|device| device.dev == dev)
        };
        let superblocks = &mut self.superblocks;
        superblocks.by_device.retain(|name, reading| is_there(name, reading.dev));
        superblocks.requested.retain(|name, dev| is_there(name, *dev));
    }

    /// Drops the readings of devices that were mounted since `before`: the filesystem may be a new
    /// one. They are read again, and so is an ext2 to ext4 that was unmounted: the kernel has
    /// written its state.
    pub(super) fn forget_superblocks_of_new_mounts(&mut self, before: Option<&MountTable>) {
        let devices = |table: &MountTable| -> BTreeSet<DevNo> {
            table.mounts.iter().map(|mount| mount.dev).collect()
        };
        let (Some(before), Some(after)) = (before, self.mounts.value()) else {
            return;
        };
        let (before, after) = (devices(before), devices(after));
        let is_old = |dev: DevNo| before.contains(&dev) || !after.contains(&dev);
        let superblocks = &mut self.superblocks;
        superblocks.by_device.retain(|_, reading| is_old(reading.dev));
        let unmounted = superblocks.requested.extract_if(.., |_, dev| !after.contains(dev));
        superblocks.requests.extend(unmounted);
        superblocks.requested.retain(|_, dev| is_old(*dev));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{CounterDevice, CounterReading};
    use crate::fixture::*;
    use crate::source_update::SourceUpdate;
    use diskvitals_kernel_log::event::{Batch, Cursor, NameAssignment};

    const NONE: [(String, DevNo); 0] = [];

    fn sda() -> [(String, DevNo); 1] {
        [("sda".to_owned(), "8:0".parse().unwrap())]
    }

    fn unmounted(fs_type: &str) -> TestHost {
        let mut host = TestHost::default().disk("sda", "8:0", "A").uuid("sda", "u");
        host.inventory.devices.get_mut("sda").unwrap().fs_type = Some(fs_type.into());
        host.read_all(0);
        host
    }

    fn mount(host: TestHost, second: i64) -> TestHost {
        let mut host = host.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        host.read_mounts(second);
        host
    }

    fn answer(host: &mut TestHost, errors: u32, second: i64) {
        let ext = ExtState { errors, ..ExtState::default() };
        let superblock = Superblock { fs_type: "ext4".into(), uuid: "u".into(), ext: Some(ext) };
        let update = SourceUpdate::Superblock {
            device: "sda".into(),
            dev: "8:0".parse().unwrap(),
            superblock: Observation::ok(at(second), Some(superblock)),
        };
        host.apply(update, second);
    }

    fn count(host: &mut TestHost, errors: u64, second: i64) {
        let reading = CounterReading {
            device: CounterDevice::Block("sda".into()),
            source: "ext4".into(),
            file: "/sys/fs/ext4/sda".into(),
            values: [("errors_count".to_owned(), errors)].into(),
            details: Default::default(),
        };
        host.apply(SourceUpdate::Counters(Observation::ok(at(second), vec![reading])), second);
    }

    #[test]
    fn the_superblock_of_a_mounted_ext4_is_read_once_for_each_mount_and_when_it_counts_errors() {
        let mut host = unmounted("ext4");
        assert_eq!(host.facts.take_ext_superblock_requests(), NONE);
        let mut host = mount(host, 1);
        assert_eq!(host.facts.take_ext_superblock_requests(), sda());
        host.scan(2);
        host.read_mounts(3);
        assert_eq!(host.facts.take_ext_superblock_requests(), NONE);
        answer(&mut host, 3, 4);
        assert_eq!(host.facts.ext_state("sda").unwrap().1.errors, 3);
        count(&mut host, 3, 5);
        assert_eq!(host.facts.take_ext_superblock_requests(), NONE);
        count(&mut host, 4, 6);
        assert_eq!(host.facts.take_ext_superblock_requests(), sda());
        answer(&mut host, 4, 7);
        host.umount("/data");
        host.read_mounts(8);
        assert_eq!(
            host.facts.take_ext_superblock_requests(),
            sda(),
            "the kernel has written its state"
        );
        assert!(host.facts.ext_state("sda").is_some());
        let mut host = mount(host, 9);
        assert_eq!(host.facts.take_ext_superblock_requests(), sda());
        assert_eq!(host.facts.ext_state("sda"), None, "it may have been repaired");
    }

    #[test]
    fn a_mount_that_only_the_kernel_log_shows_is_read_too() {
        let mut host = mount(unmounted("ext4"), 1);
        host.facts.take_ext_superblock_requests();
        answer(&mut host, 3, 2);
        let mounted = NameAssignment {
            seq: 2,
            name: "sda".into(),
            at: at(5),
            is_filesystem: true,
            is_remount: false,
        };
        let cursor = Cursor { boot_id: "b".into(), counted_to: Some(2), reread_from: 0, lost: 0 };
        let batch = Batch {
            cursor,
            events: Vec::new(),
            name_assignments: vec![mounted],
            full_reads: Vec::new(),
            is_backlog: false,
        };
        host.apply(SourceUpdate::KernelLog(batch), 6);
        assert_eq!(host.facts.ext_state("sda"), None);
        assert_eq!(host.facts.take_ext_superblock_requests(), sda());
    }

    #[test]
    fn no_other_filesystem_and_no_sleeping_drive_is_read() {
        let mut host = mount(unmounted("xfs"), 1);
        assert_eq!(host.facts.take_ext_superblock_requests(), NONE);
        let mut host = unmounted("ext4");
        host.inventory.drives[0].asleep = true;
        host.scan(1);
        let mut host = mount(host, 2);
        assert_eq!(host.facts.take_ext_superblock_requests(), NONE);
        host.inventory.drives[0].asleep = false;
        host.scan(3);
        assert_eq!(host.facts.take_ext_superblock_requests(), sda());
    }

    #[test]
    fn a_failed_reading_leaves_the_former_state() {
        let mut host = mount(unmounted("ext4"), 1);
        answer(&mut host, 3, 2);
        let update = SourceUpdate::Superblock {
            device: "sda".into(),
            dev: "8:0".parse().unwrap(),
            superblock: Observation::failed(at(3), "no"),
        };
        host.apply(update, 3);
        assert_eq!(host.facts.ext_state("sda").unwrap().1.errors, 3);
    }
}
