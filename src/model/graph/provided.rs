//! Volumes that this node provides itself: by the daemon's own account, joined with what the
//! kubelet's records said of them already.
//!
//! A volume that is attached stands on its device; one that is not lies where its image, its group
//! or its configured device is, so that a drive which fails beneath the pool is told of each volume
//! in it, used or not.

use crate::model::attach::{Attachment, Kind, Provided, Provision};
use crate::model::graph::csi::whole;
use crate::model::graph::mounts::FsKind;
use crate::model::graph::stack::{Graph, all_of};
use crate::model::graph::{Builder, empty, kube, mounts, volume_mount};
use crate::model::ids::VolumeId;
use crate::model::kubelet::PodName;
use crate::model::mount::Mount;
use crate::model::path::HostPath;
use crate::model::volume::{ExpectedMount, MountRole, PodUse, Stack, VolumeFacts};

impl Builder<'_> {
    pub(super) fn provided_volumes(&mut self) {
        let Some(provision) = self.provision else {
            return;
        };
        for volume in &provision.volumes {
            let id = VolumeId::csi(&provision.driver, &volume.handle);
            let mut facts = self.found.remove(&id).unwrap_or_else(|| empty(id));
            facts.driver = Some(provision.driver.clone());
            facts.handle = Some(volume.handle.clone());
            let shown = self.places(&mut facts, volume);
            if facts.device.is_none()
                && let Some(mount) = shown.first()
            {
                self.describe(&mut facts, mount);
            }
            self.ground(&mut facts, volume);
            facts.provided = Some(Box::new(volume.clone()));
            let whole = whole(&shown, facts.block);
            self.keep(facts, whole);
        }
    }

    /// Where it is staged and published by our own account. Out: what is mounted there.
    fn places(&self, facts: &mut VolumeFacts, volume: &Provided) -> Vec<&Mount> {
        let mut shown = Vec::new();
        let is_folder = volume.kind == Kind::StaticDirectory;
        facts.block |= volume
            .staged
            .iter()
            .chain(&volume.published)
            .any(|attachment| attachment.access.block);
        if is_folder {
            // The kubelet makes its record for whatever is staged; of a folder nothing is mounted
            // before it is published.
            facts
                .missing_mounts
                .retain(|missing| missing.role != MountRole::Staging);
        }
        if let Some(staged) = &volume.staged {
            let mounts = !staged.access.block && !is_folder;
            shown.extend(self.place(facts, staged, MountRole::Staging, mounts));
        }
        for published in &volume.published {
            shown.extend(self.place(facts, published, MountRole::Pod, true));
            self.pod(facts, published);
        }
        shown
    }

    /// `mounts`: something should be mounted there.
    fn place(
        &self,
        facts: &mut VolumeFacts,
        attachment: &Attachment,
        role: MountRole,
        mounts: bool,
    ) -> Option<&Mount> {
        let path = &attachment.path;
        let pod_uid = self.pod_of(attachment).map(|(uid, _)| uid);
        let Some(mount) = self.table.visible_at(path) else {
            if mounts
                && !facts
                    .missing_mounts
                    .iter()
                    .any(|missing| missing.path == *path)
            {
                facts.missing_mounts.push(ExpectedMount {
                    path: path.clone(),
                    role,
                    pod_uid,
                    record: None,
                });
            }
            return None;
        };
        if !facts.mounts.iter().any(|known| known.path == *path) {
            facts.mounts.push(volume_mount(mount, role, pod_uid));
        }
        Some(mount)
    }

    fn pod(&self, facts: &mut VolumeFacts, published: &Attachment) {
        let Some((uid, volume_name)) = self.pod_of(published) else {
            return;
        };
        if facts
            .pods
            .iter()
            .any(|known| known.uid == uid && known.path == published.path)
        {
            return;
        }
        let told = published.pod.as_ref().filter(|pod| !pod.name.is_empty());
        let told = told.map(|pod| PodName {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
        });
        let name = told.or_else(|| self.kubelet?.pods.get(&uid).cloned());
        facts.pods.push(PodUse {
            uid,
            name,
            volume_name,
            path: published.path.clone(),
        });
    }

    /// The pod's uid and the volume's name in it: as the caller told, else as the path says.
    fn pod_of(&self, attachment: &Attachment) -> Option<(String, String)> {
        let by_path = kube::pod_path(&self.kubelet_root, &attachment.path);
        let told = attachment
            .pod
            .as_ref()
            .map(|pod| pod.uid.clone())
            .filter(|uid| !uid.is_empty());
        match (told, by_path) {
            (Some(uid), path) => Some((uid, path.map(|path| path.volume_name).unwrap_or_default())),
            (None, Some(path)) => Some((path.uid, path.volume_name)),
            (None, None) => None,
        }
    }

    /// What it stands on, where its mounts have not said so.
    fn ground(&self, facts: &mut VolumeFacts, volume: &Provided) {
        if !facts.devices.is_empty() {
            return;
        }
        if let Some(device) = &volume.device {
            if self.inventory.devices.contains_key(device) {
                return self.stand_on(facts, device);
            }
            // A device that is in use and that nobody lists is gone; what an idle volume had is no
            // loss before it is wanted again.
            let used = volume.staged.is_some() || !volume.published.is_empty();
            if used || volume.kind == Kind::StaticDevice {
                facts.device = Some(device.clone());
                facts.device_gone = true;
            }
        }
        match volume.kind {
            Kind::Loop | Kind::StaticDirectory => self.lie_in(facts, &volume.backing),
            Kind::StaticDevice | Kind::Lvm => match self.graph.below_dev(&volume.backing) {
                Some(device) => self.stand_on(facts, device),
                None => self.lie_on(
                    facts,
                    &self.graph.members_of_group(group_of(&volume.backing)),
                ),
            },
        }
    }

    /// On what the filesystem lies that holds this file or folder.
    fn lie_in(&self, facts: &mut VolumeFacts, path: &HostPath) {
        let Some(mount) = self.table.holding(path) else {
            return;
        };
        facts.remote |= facts.mounts.is_empty() && mounts::kind(mount) == FsKind::Remote;
        let Some(found) = self.graph.device_of(mount) else {
            return;
        };
        self.lie_on(facts, &self.graph.members(&found));
        if let Some(fs) = found.btrfs.and_then(|at| self.inventory.btrfs.get(at)) {
            facts.stack = self.graph.btrfs(fs);
        }
    }

    /// Without a device of its own.
    fn lie_on(&self, facts: &mut VolumeFacts, devices: &[String]) {
        facts.stack = self.graph.all(devices, &mut Vec::new());
        facts.devices = self.graph.devices_below(devices);
        facts.drive_ids = self.graph.drives_of(&facts.devices);
        if !facts.drive_ids.is_empty() {
            facts.remote = self.graph.all_remote(&facts.drive_ids);
        }
    }
}

/// `group` of `/dev/group/volume`.
fn group_of(backing: &HostPath) -> &[u8] {
    let below = backing
        .as_bytes()
        .strip_prefix(b"/dev/")
        .unwrap_or_default();
    below.split(|byte| *byte == b'/').next().unwrap_or_default()
}

impl Graph<'_> {
    /// The device that a path below /dev leads to, as far as names and udev's links tell.
    fn below_dev(&self, path: &HostPath) -> Option<&str> {
        self.resolve(path.as_bytes().strip_prefix(b"/dev/")?)
    }

    /// What the pool's volumes will lie on.
    pub(super) fn below_pool(&self, provision: &Provision) -> Stack {
        let folder = provision
            .folder
            .as_ref()
            .and_then(|folder| self.device_of(self.table().holding(folder)?));
        let group = provision
            .group
            .as_ref()
            .map(|group| self.all(&self.members_of_group(group.as_bytes()), &mut Vec::new()));
        all_of(
            folder
                .map(|found| self.below(&found))
                .into_iter()
                .chain(group)
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests;
