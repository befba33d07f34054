//! CSI volumes from the kubelet's records: the expected mounts of each, the actual mounts, and its
//! pods.

use crate::graph::{FsKey, VolumeBuilder, filesystem_key, merge, volume_mount};
use crate::volume::{ExpectedMount, MountRole, PodUse, VolumeFacts};
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::kubelet::{KubeletRecords, KubeletVolume};
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;

impl VolumeBuilder<'_> {
    pub(super) fn csi_volumes(&mut self) {
        let Some(kubelet) = self.kubelet else { return };
        for record in &kubelet.volumes {
            let (facts, whole) = self.csi_volume(record, kubelet);
            self.insert_volume(facts, whole);
        }
    }

    /// `whole`: filesystems that belong to this volume from their root.
    pub(super) fn insert_volume(&mut self, facts: VolumeFacts, whole: Vec<FsKey>) {
        for mount in &facts.mounts {
            self.claimed_paths.insert(mount.path.clone());
        }
        for key in whole {
            self.owners.entry(key).or_insert_with(|| facts.id.clone());
        }
        // Two records with one driver and handle are one volume with a split record: the first has
        // set the id, the second is merged into it.
        match self.volumes.get_mut(&facts.id) {
            Some(first) => merge(first, facts),
            None => {
                self.volumes.insert(facts.id.clone(), facts);
            }
        }
    }

    /// One record's volume, and the filesystems that it has as a whole (mounted from their root).
    fn csi_volume(
        &self,
        record: &KubeletVolume,
        kubelet: &KubeletRecords,
    ) -> (VolumeFacts, Vec<FsKey>) {
        let mut facts = VolumeFacts {
            id: VolumeId::csi(&record.driver, &record.handle),
            driver: Some(record.driver.clone()),
            handle: Some(record.handle.clone()),
            pv: record.pv.clone(),
            block: record.block,
            ephemeral: record.ephemeral,
            ..VolumeFacts::default()
        };
        let expect = |path: &HostPath, role: MountRole, pod_uid: Option<String>| ExpectedMount {
            path: path.clone(),
            role,
            pod_uid,
            record: record_of(record, path),
        };
        let mut expected: Vec<(ExpectedMount, bool)> = Vec::new();
        if let Some(path) = &record.staging {
            // Staging a raw block volume need not mount anything: the driver may only attach the
            // device.
            let must = !record.block
                && !self.settings.stages_without_mount(&record.driver, &record.handle);
            expected.push((expect(path, MountRole::Staging, None), must));
        }
        for publication in &record.publications {
            let path = &publication.path;
            let pod_uid = Some(publication.pod_uid.clone());
            expected.push((expect(path, MountRole::Pod, pod_uid), true));
            facts.pods.push(PodUse {
                uid: publication.pod_uid.clone(),
                name: kubelet.pods.get(&publication.pod_uid).cloned(),
                volume_name: publication.name.clone(),
                path: path.clone(),
            });
        }

        let mut shown: Vec<&Mount> = Vec::new();
        for (expected, must) in expected {
            match self.table.recorded_at(&expected.path) {
                Some(mount) => {
                    let (role, pod_uid) = (expected.role, expected.pod_uid);
                    facts.mounts.push(volume_mount(mount, role, pod_uid));
                    shown.push(mount);
                }
                None if must => facts.missing_mounts.push(expected),
                None => {}
            }
        }
        if let Some(mount) = shown.first() {
            self.describe(&mut facts, mount);
        } else if record.block {
            self.set_loop_device(&mut facts, record);
        }
        let whole = owned_filesystems(&shown, record.block);
        (facts, whole)
    }

    /// The kubelet opens a loop device on a published raw block volume that is a file; its backing
    /// file is below the publish path.
    fn set_loop_device(&self, facts: &mut VolumeFacts, record: &KubeletVolume) {
        let device = record
            .publications
            .iter()
            .find_map(|publication| self.graph.loop_backed_by(&publication.path));
        if let Some(device) = device {
            self.set_device(facts, &device);
        }
    }
}

/// Filesystems that are mounted from their root belong to the volume as a whole; a mounted device
/// node is not one of them.
pub(super) fn owned_filesystems(shown: &[&Mount], block: bool) -> Vec<FsKey> {
    shown
        .iter()
        .filter(|mount| mount.root.as_bytes() == b"/" && !block)
        .map(|mount| filesystem_key(mount))
        .collect()
}

/// The record of `path`: the vol_data.json beside it, otherwise the first record.
fn record_of(record: &KubeletVolume, path: &HostPath) -> Option<HostPath> {
    let folder = |path: &HostPath| path.as_path().parent().map(HostPath::from);
    let beside = record.records.iter().find(|file| folder(file) == folder(path));
    beside.or(record.records.first()).cloned()
}
