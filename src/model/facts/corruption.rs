//! What the kernel reported about a filesystem: it outlives a mount, because an unmount repairs
//! nothing.
//!
//! While a filesystem is mounted, its reports belong to the volume. Afterwards they are kept under
//! its UUID, in the form of the volume's id: a new filesystem has another one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::{Facts, KnownVolume};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::VolumeId;
use diskvitals_kernel_log::error_history::{ErrorHistory, ErrorTally};
use diskvitals_kernel_log::event::Class;

pub(crate) fn of_filesystem(uuid: &str) -> Subject {
    Subject::Volume(VolumeId::filesystem(uuid))
}

impl Facts {
    /// The newest reports about the filesystem of this volume.
    pub fn corruption(&self, known: &KnownVolume) -> Option<&ErrorTally> {
        let own = Some(Subject::Volume(known.facts.id.clone()));
        let kept = known.facts.fs_uuid.as_deref().map(of_filesystem);
        let subjects = own.into_iter().chain(kept);
        subjects
            .filter_map(|subject| self.tally(&subject, Class::FsCorruption))
            .max_by_key(|tally| tally.last.time)
    }

    /// The UUID of the filesystem on a device, or of the one that a volume has or had.
    pub fn filesystem_uuid(&self, subject: &Subject) -> Option<String> {
        match subject {
            Subject::Drive(_) | Subject::Source(_) => None,
            Subject::Device(name) => self.device_uuid(name).cloned(),
            Subject::Volume(id) => match self.volumes.get(id) {
                Some(known) => known.facts.fs_uuid.clone(),
                None => id.filesystem_uuid().map(str::to_owned),
            },
        }
    }

    /// Reports about filesystems that are not mounted, by the device that has them now: the first of
    /// a btrfs. A UUID that several other devices share identifies none of them.
    pub(crate) fn unmounted_errors(&self) -> BTreeMap<String, &ErrorHistory> {
        let mut found = BTreeMap::new();
        for (subject, memory) in &self.kernel.errors {
            let Subject::Volume(id) = subject else {
                continue;
            };
            let Some(uuid) = id.filesystem_uuid() else {
                continue;
            };
            let is_it = |known: &KnownVolume| {
                known.facts.id == *id || known.facts.fs_uuid.as_deref() == Some(uuid)
            };
            if self.volumes.values().any(is_it) {
                continue;
            }
            let devices = self.devices_with_uuid(uuid);
            let is_btrfs = devices.iter().all(|name| {
                self.device(name).is_some_and(|device| device.fs_type.as_deref() == Some("btrfs"))
            });
            if let Some(first) = devices.first()
                && (devices.len() == 1 || is_btrfs)
            {
                found.insert((*first).clone(), memory.as_ref());
            }
        }
        found
    }

    /// The volume is no longer mounted: keeps the reports about its filesystem under the UUID.
    pub(super) fn keep_corruption(&mut self, id: &VolumeId, uuid: &str) {
        let (old, kept) = (Subject::Volume(id.clone()), of_filesystem(uuid));
        if kept == old {
            return;
        }
        let Some(memory) = self.kernel.errors.get_mut(&old) else {
            return;
        };
        let Some(tally) = Arc::make_mut(memory).tallies.remove(&Class::FsCorruption) else {
            return;
        };
        if memory.is_empty() {
            self.kernel.errors.remove(&old);
        }
        let mut moved = ErrorHistory::default();
        moved.tallies.insert(Class::FsCorruption, tally);
        Arc::make_mut(self.kernel.errors.entry(kept).or_default()).merge(moved, false);
    }

    /// A person has acknowledged the finding. If the filesystem was not mounted at some time since
    /// the last report, it may have been repaired unnoticed: the report no longer counts.
    pub fn acknowledge_corruption(&mut self, subject: &Subject) {
        let mut subjects = vec![subject.clone()];
        match subject {
            Subject::Drive(_) | Subject::Source(_) => return,
            Subject::Device(name) => {
                let uuid = self.device_uuid(name);
                subjects.extend(uuid.map(|uuid| of_filesystem(uuid)));
            }
            Subject::Volume(id) => {
                let Some(known) = self.volumes.get(id) else {
                    return;
                };
                let mounted = known.mounted_since.values().min();
                let last = self.corruption(known).map(|tally| tally.last.time);
                if mounted.is_none_or(|mounted| last.is_none_or(|last| *mounted <= last)) {
                    return;
                }
                subjects.extend(known.facts.fs_uuid.as_deref().map(of_filesystem));
            }
        }
        for subject in subjects {
            let Some(memory) = self.kernel.errors.get_mut(&subject) else {
                continue;
            };
            Arc::make_mut(memory).tallies.remove(&Class::FsCorruption);
            if memory.is_empty() {
                self.kernel.errors.remove(&subject);
            }
        }
    }
}
