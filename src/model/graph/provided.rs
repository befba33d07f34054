//! Volumes that this node provisions: from the daemon's own state, merged with the kubelet's
//! records.
//!
//! An attached volume uses its device. Another one uses the storage of its image, its volume group
//! or its configured device. A failed drive below the pool is therefore reported for each volume in
//! it, in use or not.

use crate::graph::csi::owned_filesystems;
use crate::graph::mounts::FsKind;
use crate::graph::stack::Graph;
use crate::graph::{PoolStacks, VolumeBuilder, kube, mounts, volume_mount};
use crate::volume::{ExpectedMount, MountRole, PodUse, VolumeFacts};
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::kubelet::PodName;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{
    BackingKind, ProvidedAttachment, ProvidedVolume, ProvisionState, VolumePresence,
};

impl VolumeBuilder<'_> {
    pub(super) fn provided_volumes(&mut self) {
        let Some(provision) = self.provision else {
            return;
        };
        for volume in &provision.volumes {
            let id = VolumeId::csi(&provision.driver, &volume.handle);
            let recorded = self.volumes.remove(&id);
            if volume.presence == VolumePresence::Absent && recorded.is_none() {
                // Nothing here has it but the configuration.
                continue;
            }
            let mut facts =
                recorded.unwrap_or_else(|| VolumeFacts { id, ..VolumeFacts::default() });
            facts.driver = Some(provision.driver.clone());
            facts.handle = Some(volume.handle.clone());
            let shown = self.add_attachments(&mut facts, volume);
            if facts.device.is_none()
                && let Some(mount) = shown.first()
            {
                self.describe(&mut facts, mount);
            }
            self.set_backing(&mut facts, volume);
            facts.provided = Some(Box::new(volume.clone()));
            let whole = owned_filesystems(&shown, facts.block);
            self.insert_volume(facts, whole);
        }
    }

    /// Adds the staging and publish paths of our own state. Returns the mounts at these paths.
    fn add_attachments(&self, facts: &mut VolumeFacts, volume: &ProvidedVolume) -> Vec<&Mount> {
        let mut shown = Vec::new();
        let is_folder = volume.kind == BackingKind::StaticDirectory;
        facts.block |=
            volume.staged.iter().chain(&volume.published).any(|attachment| attachment.access.block);
        if is_folder {
            // The kubelet writes its record for every staged volume. Only publishing mounts a
            // folder.
            facts.missing_mounts.retain(|missing| missing.role != MountRole::Staging);
        }
        if let Some(staged) = &volume.staged {
            let mounts = !staged.access.block && !is_folder;
            shown.extend(self.add_attachment(facts, staged, MountRole::Staging, mounts));
        }
        for published in &volume.published {
            shown.extend(self.add_attachment(facts, published, MountRole::Pod, true));
            self.add_pod(facts, published);
        }
        shown
    }

    /// `mounts`: a mount is expected at the path.
    fn add_attachment(
        &self,
        facts: &mut VolumeFacts,
        attachment: &ProvidedAttachment,
        role: MountRole,
        mounts: bool,
    ) -> Option<&Mount> {
        let path = &attachment.path;
        let pod_uid = self.pod_and_volume_name(attachment).map(|(uid, _)| uid);
        let Some(mount) = self.table.recorded_at(path) else {
            let known = facts.missing_mounts.iter().any(|missing| missing.path == *path);
            if mounts && !known {
                facts.missing_mounts.push(ExpectedMount {
                    path: path.clone(),
                    role,
                    pod_uid,
                    record: None,
                });
            }
            return None;
        };
        if facts.mount_at(path).is_none() {
            facts.mounts.push(volume_mount(mount, role, pod_uid));
        }
        Some(mount)
    }

    fn add_pod(&self, facts: &mut VolumeFacts, published: &ProvidedAttachment) {
        let Some((uid, volume_name)) = self.pod_and_volume_name(published) else {
            return;
        };
        let is_it = |known: &PodUse| known.uid == uid && known.path == published.path;
        if facts.pods.iter().any(is_it) {
            return;
        }
        let named = published.pod.as_ref().filter(|pod| !pod.name.is_empty());
        let named =
            named.map(|pod| PodName { namespace: pod.namespace.clone(), name: pod.name.clone() });
        let name = named.or_else(|| self.kubelet?.pods.get(&uid).cloned());
        facts.pods.push(PodUse { uid, name, volume_name, path: published.path.clone() });
    }

    /// The pod's uid and the volume's name in it: from the request, otherwise from the path.
    fn pod_and_volume_name(&self, attachment: &ProvidedAttachment) -> Option<(String, String)> {
        let by_path = kube::pod_path(&self.kubelet_root, &attachment.path);
        let requested = attachment.pod.as_ref().map(|pod| pod.uid.clone());
        let (path_uid, volume_name) = by_path.map(|path| (path.uid, path.volume_name)).unzip();
        let uid = requested.filter(|uid| !uid.is_empty()).or(path_uid)?;
        Some((uid, volume_name.unwrap_or_default()))
    }

    /// Sets the backing devices if the mounts do not show them.
    fn set_backing(&self, facts: &mut VolumeFacts, volume: &ProvidedVolume) {
        if !facts.devices.is_empty() {
            return;
        }
        if let Some(device) = &volume.device {
            if self.inventory.devices.contains_key(device) {
                return self.set_device(facts, device);
            }
            // A device in use that no scan lists was removed. The device of an idle volume is no
            // loss until the volume is used again.
            let used = volume.staged.is_some() || !volume.published.is_empty();
            if used || volume.kind == BackingKind::StaticDevice {
                facts.device = Some(device.clone());
                facts.device_gone = true;
            }
        }
        match volume.kind {
            BackingKind::Loop | BackingKind::StaticDirectory => {
                self.set_backing_path(facts, &volume.backing)
            }
            BackingKind::StaticDevice | BackingKind::Lvm => {
                match self.graph.device_at_path(&volume.backing) {
                    Some(device) => self.set_device(facts, device),
                    None => self.set_backing_devices(
                        facts,
                        &self.graph.members_of_group(group_of(&volume.backing)),
                    ),
                }
            }
        }
    }

    /// Sets the devices of the filesystem that contains this file or folder.
    fn set_backing_path(&self, facts: &mut VolumeFacts, path: &HostPath) {
        let Some(mount) = self.table.containing(path) else {
            return;
        };
        facts.remote |= facts.mounts.is_empty() && mounts::fs_kind(mount) == FsKind::Remote;
        let Some(found) = self.graph.device_of(mount) else {
            return;
        };
        self.set_backing_devices(facts, &self.graph.members(&found));
        facts.stack = self.graph.filesystem_stack(&found);
    }

    /// Sets the devices below a volume that has no device itself.
    fn set_backing_devices(&self, facts: &mut VolumeFacts, devices: &[String]) {
        facts.stack = self.graph.stack_of_all(devices, &mut Vec::new());
        facts.devices = self.graph.devices_below(devices);
        facts.drive_ids = self.graph.drives_of(&facts.devices);
        if !facts.drive_ids.is_empty() {
            facts.remote = self.graph.all_remote(&facts.drive_ids);
        }
    }
}

/// Returns `group` for `/dev/group/volume`.
fn group_of(backing: &HostPath) -> &[u8] {
    let below = backing.as_bytes().strip_prefix(b"/dev/").unwrap_or_default();
    below.split(|byte| *byte == b'/').next().unwrap_or_default()
}

impl Graph<'_> {
    /// The device of a path below /dev, resolved by names and udev's links.
    fn device_at_path(&self, path: &HostPath) -> Option<&str> {
        self.resolve(path.as_bytes().strip_prefix(b"/dev/")?)
    }

    /// The stacks of the pool's volumes. Those of a volume group without active logical volumes are
    /// known when lvm has listed its physical volumes.
    pub(super) fn pool_stacks(&self, provision: &ProvisionState) -> PoolStacks {
        let mut pool = PoolStacks::default();
        if let Some(folder) = &provision.directory {
            let mount = self.table().containing(folder);
            let device = mount.and_then(|mount| self.device_of(mount));
            let stack = device.map(|found| self.filesystem_stack(&found));
            pool.stacks.insert(BackingKind::Loop, stack.unwrap_or_default());
        }
        if let Some(group) = &provision.volume_group {
            let listed = &provision.physical_volumes;
            let mut members = self.members_of_group(group.as_bytes());
            for path in listed {
                match self.device_at_path(path) {
                    Some(device) => members.push(device.to_owned()),
                    None => pool.is_group_partial = true,
                }
            }
            members.sort();
            members.dedup();
            if !members.is_empty() || !listed.is_empty() {
                let stack = self.stack_of_all(&members, &mut Vec::new());
                pool.stacks.insert(BackingKind::Lvm, stack);
            }
        }
        pool
    }
}

#[cfg(test)]
mod tests;
