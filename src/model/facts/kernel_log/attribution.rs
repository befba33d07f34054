//! Attribution of events: to the drive that had the name when the record was written, to the
//! volumes on the device, to the device itself, or to no subject.
//!
//! In: an event, and the known names, devices and volumes. Out: subjects. Does not count or store
//! anything: `kernel_log` does.

use jiff::Timestamp;

use crate::block::{BlockDevice, Layer, LayerState};
use crate::facts::{Facts, KnownVolume};
use crate::graph::extents::may_contain_sector;
use crate::stack::device_of_pool;
use crate::volume::VolumeFacts;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::LayerKind;
use diskvitals_kernel_log::device_name;
use diskvitals_kernel_log::event::{DeviceName, Event, Line};

/// The subjects of an event.
pub(super) enum Attribution {
    Subjects(Vec<Subject>),
    /// The subject is unknown, but may be found soon.
    Deferred,
    Unattributed,
    /// The device belongs to a filesystem check, which reports the event itself, or is no drive and
    /// carries no volume.
    Ignored,
}

impl Facts {
    /// The subjects of an event. For drives: by the name at the time of the record. For layers
    /// above and filesystems: the volumes on that device, otherwise the device itself.
    pub(super) fn attribute(&self, event: &Event, since: Timestamp, now: Timestamp) -> Attribution {
        let Some(inventory) = self.inventory() else {
            return Attribution::Deferred;
        };
        let names = || std::iter::once(&event.device).chain(&event.other_names);
        if self.kernel.names.is_check_device(&event.device, event.first.time) {
            return Attribution::Ignored;
        }
        if !event.class.is_filesystem_class()
            && let Some(drive) = names().find_map(|name| self.drive_by_name(name, event.first.time))
        {
            let mut subjects = vec![Subject::Drive(drive.clone())];
            // A volume inherits the failed sectors of its drive. A software device that the
            // configuration admits as a drive also reports errors without a sector.
            if event.sectors.is_empty()
                && names().any(is_software_device)
                && !names().any(|name| self.is_about_former_device(name, event))
            {
                subjects.extend(self.volumes_depending_on(names(), event));
            }
            return Attribution::Subjects(subjects);
        }
        if self.mount_table().is_none() {
            return Attribution::Deferred;
        }
        let is_drive = |name: &DeviceName| matches!(name, DeviceName::Block(name) if self.is_drive_or_partition(name));
        if !event.class.is_filesystem_class() && names().any(is_drive) {
            // Another drive had the name at that time.
            return Attribution::Unattributed;
        }
        // The event waited for a mount, and another drive has the name now: the filesystem mounted
        // from that drive did not cause the event.
        if names().any(|name| self.kernel.names.was_reassigned(name, event.last.time)) {
            return Attribution::Unattributed;
        }
        let device = names().find_map(|name| match name {
            DeviceName::Block(name) => inventory.devices.get(name),
            DeviceName::Number(dev) => inventory.devices.values().find(|device| device.dev == *dev),
            DeviceName::Pool(pool) => inventory.devices.get(&device_of_pool(pool)),
            _ => None,
        });
        let uuid = names().find_map(|name| match name {
            DeviceName::FilesystemId(uuid) => Some(uuid.as_str()),
            _ => None,
        });
        if names().any(|name| self.is_about_former_device(name, event)) {
            if event.class.is_filesystem_class() {
                return Attribution::Unattributed;
            }
            // The names of loops are reused at once.
            if names().any(is_software_device) {
                return Attribution::Ignored;
            }
        }
        let mut volumes = match device {
            Some(pool) if matches!(pool.layer, Layer::ZfsPool { .. }) => {
                self.volumes_above(&pool.name)
            }
            _ => self.volumes_on(device, names(), uuid),
        };
        if volumes.is_empty() && !event.class.is_filesystem_class() {
            volumes = self.volumes_depending_on(names(), event);
        }
        if names().any(is_software_device) && self.may_be_lost(event.last.time) {
            volumes.retain(|volume| self.was_there(volume, event.last.time));
        }
        let (volumes, others): (Vec<Subject>, Vec<Subject>) =
            volumes.into_iter().partition(|volume| {
                !event.class.is_filesystem_class() || self.may_originate_from(volume, &event.last)
            });
        if volumes.is_empty() && !others.is_empty() {
            // The event is about former content of the device.
            return Attribution::Unattributed;
        }
        // Which copies a btrfs has, the scan after its mount says: a member that was missing may be back.
        let is_before = |at: Timestamp| at < event.last.time;
        let is_unscanned = |volume: &Subject| {
            self.btrfs_of_volume(volume).is_none_or(|fs| {
                fs.missing_devices > 0 && self.inventory.at().is_none_or(is_before)
            })
        };
        if event.damaged.is_partial()
            && volumes.iter().any(is_unscanned)
            && !self.mount_lag_elapsed(since, now)
        {
            return Attribution::Deferred;
        }
        if !volumes.is_empty() {
            return Attribution::Subjects(volumes);
        }
        // Mapped and software devices are created at the moment of their first use: the next scan may
        // find the device, or its volume.
        let is_mapped =
            |name: &DeviceName| matches!(name, DeviceName::Block(name) if name.starts_with("dm-"));
        let is_software = names().any(is_software_device);
        let is_new = is_software || device.is_none() && names().any(is_mapped);
        if (event.class.is_filesystem_class() || is_new) && !self.mount_lag_elapsed(since, now) {
            return Attribution::Deferred;
        }
        match device {
            // Of a pool without volumes, the module's state says the same, until it works again.
            Some(pool) if matches!(pool.layer, Layer::ZfsPool { .. }) => Attribution::Ignored,
            Some(device) if !is_unmonitored(device) || self.carries_volume(&device.name) => {
                Attribution::Subjects(vec![Subject::Device(device.name.clone())])
            }
            _ if is_software && !event.class.is_filesystem_class() => Attribution::Ignored,
            _ => Attribution::Unattributed,
        }
    }

    /// Another device has got the name since the event.
    fn is_about_former_device(&self, name: &DeviceName, event: &Event) -> bool {
        let DeviceName::Block(name) = name else {
            return false;
        };
        let attached = self.kernel.attached_at.get(name);
        attached.is_some_and(|attached| event.last.time < *attached)
    }

    /// The names of loops are reused at once, and the record that says when may be lost.
    fn may_be_lost(&self, at: Timestamp) -> bool {
        let progress = &self.kernel.progress;
        let mut losses = progress.earlier_losses.iter().chain(&progress.lost_records);
        losses.any(|lost| lost.may_include(at))
    }

    fn was_there(&self, volume: &Subject, at: Timestamp) -> bool {
        let Subject::Volume(id) = volume else {
            return true;
        };
        self.volumes.get(id).is_some_and(|known| known.first_seen <= at)
    }

    fn carries_volume(&self, device: &String) -> bool {
        let mut volumes = self.volumes.values();
        volumes.any(|known| known.facts.devices.contains(device))
    }

    /// Volumes that are lost with a device that is no drive: those above it, if no redundancy is in
    /// between and the event's sectors are theirs.
    fn volumes_depending_on<'a>(
        &self,
        names: impl Iterator<Item = &'a DeviceName>,
        event: &Event,
    ) -> Vec<Subject> {
        let Some(inventory) = self.inventory() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for name in names {
            let DeviceName::Block(name) = name else {
                continue;
            };
            let is_hit = |known: &&KnownVolume| {
                let facts = &known.facts;
                let inside = |sector: &u64| {
                    may_contain_sector(inventory, &self.layers, facts, name, *sector)
                };
                facts.devices.contains(name)
                    && !self.has_redundancy(facts)
                    && (event.sectors.is_empty() || event.sectors.iter().any(inside))
            };
            let volumes = self.volumes.values().filter(is_hit);
            found.extend(volumes.map(|known| Subject::Volume(known.facts.id.clone())));
        }
        found.sort();
        found.dedup();
        found
    }

    /// All volumes that are lost with this device, datasets and what is on zvols.
    fn volumes_above(&self, device: &String) -> Vec<Subject> {
        let above = self.volumes.values().filter(|known| known.facts.devices.contains(device));
        above.map(|known| Subject::Volume(known.facts.id.clone())).collect()
    }

    /// Whether an array or a btrfs of several devices is below the volume.
    fn has_redundancy(&self, volume: &VolumeFacts) -> bool {
        let is_array = |name: &String| {
            self.device(name).is_some_and(|device| matches!(device.layer, Layer::Md { .. }))
                || self
                    .layer_state(name)
                    .and_then(LayerState::stack)
                    .is_some_and(|it| matches!(it.kind(), LayerKind::Array | LayerKind::Zpool))
        };
        let btrfs = self.btrfs_below(volume);
        volume.devices.iter().any(is_array)
            || btrfs.is_some_and(|fs| fs.devices.len() + fs.missing_devices as usize > 1)
    }

    /// Whether the name is a drive's device, or a partition of one.
    fn is_drive_or_partition(&self, name: &str) -> bool {
        let Some(found) = self.device(name) else {
            return false;
        };
        let whole = if matches!(found.layer, Layer::Partition { .. }) {
            found.underlying.first().and_then(|below| self.device(below))
        } else {
            Some(found)
        };
        whole.is_some_and(|whole| whole.drive.is_some())
    }

    /// Whether the filesystem type of this volume prints this kind of record.
    pub(super) fn may_originate_from(&self, volume: &Subject, line: &Line) -> bool {
        let Subject::Volume(id) = volume else {
            return true;
        };
        let fs_type = self.volumes.get(id).and_then(|known| known.facts.fs_type.as_deref());
        fs_type.is_none_or(|fs_type| line.matches_fs_type(fs_type))
    }

    pub(in crate::facts) fn drive_by_name(
        &self,
        name: &DeviceName,
        at: Timestamp,
    ) -> Option<&DriveId> {
        let names = &self.kernel.names;
        names.drive_at(name, at).or_else(|| match name {
            DeviceName::Ata { port, device: Some(_) } => {
                names.drive_at(&DeviceName::Ata { port: *port, device: None }, at)
            }
            // `nvme0c1n1` is controller 1's path to a namespace of subsystem 0;
            // drivers/nvme/host/multipath.c.
            DeviceName::Block(path) => {
                names.drive_at(&DeviceName::Nvme(path_controller(path)?), at)
            }
            _ => None,
        })
    }

    /// Volumes whose filesystem is on this device. A removed device is matched with the volumes
    /// that still refer to it.
    pub(in crate::facts) fn volumes_on<'a>(
        &self,
        device: Option<&BlockDevice>,
        names: impl Iterator<Item = &'a DeviceName>,
        uuid: Option<&str>,
    ) -> Vec<Subject> {
        let block = |name: &'a DeviceName| match name {
            DeviceName::Block(name) => Some(name.as_str()),
            _ => None,
        };
        let mut wanted: Vec<&str> = names.filter_map(block).collect();
        wanted.extend(device.map(|device| device.name.as_str()));
        let on = |known: &&crate::facts::KnownVolume| {
            let facts = &known.facts;
            let device = facts.device.as_deref();
            let btrfs = self.btrfs_below(facts);
            device.is_some_and(|name| wanted.contains(&name))
                || btrfs.is_some_and(|fs| wanted.iter().any(|name| fs.has_member(name)))
                || uuid.is_some() && facts.fs_uuid.as_deref() == uuid
        };
        self.volumes
            .values()
            .filter(on)
            .map(|known| Subject::Volume(known.facts.id.clone()))
            .collect()
    }
}

/// Returns `nvme1` for `nvme0c1n1`.
pub(super) fn path_controller(path: &str) -> Option<String> {
    let (subsystem, rest) = path.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    let numbers = [subsystem, controller, namespace]
        .iter()
        .all(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.then(|| format!("nvme{controller}"))
}

/// A loop, nbd, rbd, drbd or zram device: a drive only where the configuration admits it as one.
fn is_software_device(name: &DeviceName) -> bool {
    matches!(name, DeviceName::Block(name) if device_name::is_software_device(name))
}

/// Optical, memory and unsupported devices: nothing is reported under their own names. Errors of a
/// software device that carries a volume are reported for the volume.
fn is_unmonitored(device: &BlockDevice) -> bool {
    matches!(device.layer, Layer::Other | Layer::Loop { .. }) && device.drive.is_none()
}
