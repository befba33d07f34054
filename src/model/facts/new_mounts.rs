//! Mounts that are new although no reading of the mount table shows it: an unmount and a mount between
//! two readings. What a failure did to the mount that is gone is over: a read-only state, a shutdown.
//!
//! In: the kernel's records of mounts, the unique ids that probes find, the time of the last mount in
//! ext4's superblock. The filesystem's errors and its corruption stay: a mount repairs nothing.

use jiff::Timestamp;

use crate::facts::kernel_log::ends_with_mount;
use crate::facts::{Facts, KnownVolume};
use crate::volume::VolumeMount;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::path::HostPath;
use diskvitals_kernel_log::event::{Class, DeviceName, Event, NameAssignment};

impl Facts {
    /// The kernel's own record of a mount: the filesystem is neither shut down nor read-only any
    /// more.
    pub(super) fn filesystem_mounted(&mut self, mounted: &NameAssignment) {
        let (device, at) = (&mounted.name, mounted.at);
        let name = DeviceName::Block(device.to_owned());
        let mut subjects = self.volumes_on(None, std::iter::once(&name), None);
        subjects.push(Subject::Device(device.to_owned()));
        for subject in subjects {
            if !mounted.is_remount
                && let Subject::Volume(id) = &subject
                && self.set_mounted_since(&id.clone(), at)
            {
                self.forget_mount_counters(&subject);
                self.request_ext_superblock_of_new_mount(device);
                self.request_scan_of_new_mount(id);
            }
            self.end_mount_errors(&subject, at);
        }
        self.drop_pending(|event| {
            ends_with_mount(event.class) && event.device == name && event.last.time <= at
        });
    }

    /// Another mount is at this path than at `seen`, when the former one was still there. Once that
    /// holds for every mount of the filesystem, it was unmounted in between: the kernel gives such
    /// an id to one mount only (STATX_MNT_ID_UNIQUE, statx(2)).
    pub(super) fn mount_replaced(&mut self, path: &HostPath, seen: Timestamp) {
        let Some(mount) = self.probes.mounts().get(path) else {
            return;
        };
        let (id, dev) = (mount.volume.clone(), mount.dev);
        let Some(known) = self.volumes.get_mut(&id) else {
            return;
        };
        let before = oldest_mount(known);
        if let Some(since) = known.mounted_since.get_mut(path) {
            *since = seen.max(*since);
        }
        let now = oldest_mount(known);
        let known = &self.volumes[&id];
        let mut mounts = self.mount_table().into_iter().flat_map(|table| &table.mounts);
        let is_elsewhere = mounts
            .any(|mount| mount.dev == dev && !known.mounted_since.contains_key(&mount.mount_point));
        let Some(at) = now.filter(|_| now > before && !is_elsewhere) else {
            return;
        };
        let device = known.facts.device.clone();
        self.volumes_revision += 1;
        self.new_mount_proven(&id, at);
        if let Some(device) = device {
            self.request_ext_superblock_of_new_mount(&device);
            self.superblocks.await_mount_time(device);
        }
    }

    /// ext4's superblock has the time of its last mount, by the wall clock: it orders the new mount
    /// and a failure that was reported after the former mount was last seen.
    pub(super) fn apply_mount_time(&mut self, device: &str, read: Timestamp) {
        let Some((_, state)) = self.ext_state(device) else {
            return;
        };
        let at = state.last_mounted.map(|time| self.steady_time(time));
        let Some(at) = at.filter(|at| *at <= read) else {
            return;
        };
        let name = Some(device.to_owned());
        let volumes = self.volumes.values();
        let on_it = volumes.filter(|known| known.facts.device == name);
        let ids: Vec<VolumeId> = on_it.map(|known| known.facts.id.clone()).collect();
        for id in ids {
            if self.set_mounted_since(&id, at) {
                self.volumes_revision += 1;
                self.new_mount_proven(&id, at);
            }
        }
    }

    /// `at`: the mounts are not older than that.
    fn new_mount_proven(&mut self, id: &VolumeId, at: Timestamp) {
        let subject = Subject::Volume(id.clone());
        self.forget_mount_counters(&subject);
        self.request_scan_of_new_mount(id);
        let Some(known) = self.volumes.get_mut(id) else {
            return;
        };
        known.remounted_at = known.remounted_at.max(Some(at));
        let mut mounts = known.facts.mounts.iter();
        if mounts.any(VolumeMount::is_super_read_only) {
            return;
        }
        let device = known.facts.device.clone();
        self.end_mount_errors(&subject, at);
        if let Some(device) = device {
            self.end_mount_errors(&Subject::Device(device.clone()), at);
            let name = DeviceName::Block(device);
            self.drop_pending(|event| {
                ends_with_mount(event.class) && event.device == name && event.last.time <= at
            });
        }
    }

    /// The record of a failure is read after the proof that its mount is gone.
    pub(super) fn is_of_former_mount(&self, subject: &Subject, event: &Event) -> bool {
        let Subject::Volume(id) = subject else {
            return false;
        };
        let remounted = self.volumes.get(id).and_then(|known| known.remounted_at);
        ends_with_mount(event.class) && remounted.is_some_and(|at| event.last.time <= at)
    }

    /// Returns whether one of its mounts was known to be older.
    fn set_mounted_since(&mut self, id: &VolumeId, at: Timestamp) -> bool {
        let Some(known) = self.volumes.get_mut(id) else {
            return false;
        };
        let is_new = known.mounted_since.values().any(|since| *since < at);
        for since in known.mounted_since.values_mut() {
            *since = at.max(*since);
        }
        is_new
    }

    /// Unless they were reported after the mount.
    fn end_mount_errors(&mut self, subject: &Subject, at: Timestamp) {
        let is_later =
            |class: Class| self.tally(subject, class).is_some_and(|tally| tally.last.time > at);
        if !is_later(Class::FsShutdown) && !is_later(Class::ReadOnly) {
            self.clear_mount_errors(subject);
        }
    }
}

fn oldest_mount(known: &KnownVolume) -> Option<Timestamp> {
    known.mounted_since.values().min().copied()
}

#[cfg(test)]
mod tests;
