//! A volume: a filesystem or device that Kubernetes or the host's mount table uses, with its
//! mounts, drives, users and state.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use diskvitals_finding::failure_domain::{FailureDomain, FailureDomains};
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::kubelet::PodName;
use diskvitals_finding::mount::MountOptions;
use diskvitals_finding::origin;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::ProvidedVolume;

/// The data of one volume from the mount table, the kubelet's records and the block graph, before
/// any judgement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    pub id: VolumeId,
    /// CSI driver and handle; None for a filesystem of the host.
    pub driver: Option<String>,
    pub handle: Option<String>,
    pub pv: Option<String>,
    pub block: bool,
    pub ephemeral: bool,
    /// Kernel name of its block device; None for network filesystems, and if it cannot be
    /// determined.
    pub device: Option<String>,
    /// mountinfo's source (`/dev/mapper/vg-data`, `server:/export`).
    pub source: Option<HostPath>,
    pub fs_type: Option<String>,
    pub fs_uuid: Option<String>,
    pub fs_label: Option<String>,
    /// Its mounts in the host's mount namespace, with the roles from the records.
    pub mounts: Vec<VolumeMount>,
    /// Mounts that the records require and that do not exist.
    pub missing_mounts: Vec<ExpectedMount>,
    pub pods: Vec<PodUse>,
    /// All underlying drives, sorted.
    pub drive_ids: Vec<DriveId>,
    /// How the volume depends on the drives.
    pub stack: Stack,
    /// Every block device between the volume and its drives, drives' devices included; top first.
    /// Kernel names.
    pub devices: Vec<String>,
    /// True when the mount's block device is no longer in the inventory.
    pub device_gone: bool,
    /// Accessed over a network: it has no drive of this node.
    pub remote: bool,
    /// The daemon's own record of it, if this node provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provided: Option<Box<ProvidedVolume>>,
}

impl VolumeFacts {
    /// Storage first, then pods. Every pod counts, so that sharing a volume evades no limit.
    pub(crate) fn failure_domains(&self) -> FailureDomains {
        let mut domains = Vec::new();
        if !self.drive_ids.is_empty() {
            domains.push(FailureDomain::Drives(self.drive_ids.clone()));
        }
        if self.drive_ids.is_empty() || self.remote {
            match (&self.driver, &self.fs_type) {
                (Some(driver), _) => domains.push(FailureDomain::Driver(driver.clone())),
                // A user of the host who may mount FUSE chooses the subtype.
                (None, Some(fs_type)) if self.device.is_none() => {
                    let kind = fs_type.split('.').next().unwrap_or_default();
                    domains.push(FailureDomain::Filesystem(kind.to_owned()));
                }
                // A device of unknown drives is a domain by itself: one job per filesystem is in flight.
                _ => {}
            }
        }
        let pods: BTreeSet<&String> = self.pods.iter().map(|pod| &pod.uid).collect();
        domains.extend(pods.into_iter().cloned().map(FailureDomain::Pod));
        domains.into()
    }

    /// The names that patterns of the configuration can match: its id, PersistentVolume, CSI driver
    /// and mount points.
    pub fn names(&self) -> Vec<HostPath> {
        let names = [&self.pv, &self.driver].into_iter().flatten();
        let mut all = vec![HostPath::from(self.id.as_str())];
        all.extend(names.map(|name| HostPath::from(name.as_str())));
        all.extend(self.mounts.iter().map(|mount| mount.path.clone()));
        all
    }

    pub fn mount_at(&self, path: &HostPath) -> Option<&VolumeMount> {
        self.mounts.iter().find(|mount| mount.path == *path)
    }

    pub(crate) fn has_mount_of(&self, role: MountRole) -> bool {
        self.mounts.iter().any(|mount| mount.role == role)
    }

    /// Gives back what its lists have reserved: most have one entry, and room for four.
    pub fn shrink_to_fit(&mut self) {
        self.mounts.shrink_to_fit();
        self.missing_mounts.shrink_to_fit();
        self.pods.shrink_to_fit();
        self.drive_ids.shrink_to_fit();
        self.devices.shrink_to_fit();
    }

    /// The device's name, or that it is unknown, for messages.
    pub fn device_name(&self) -> &str {
        self.device.as_deref().unwrap_or("an unknown device")
    }

    /// The filesystem type, for messages.
    pub(crate) fn filesystem_name(&self) -> &str {
        self.fs_type.as_deref().unwrap_or("filesystem")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    pub path: HostPath,
    pub role: MountRole,
    pub options: MountOptions,
    pub super_options: MountOptions,
    /// The path within the filesystem (`/` or a bind mount's or subvolume's).
    pub root: HostPath,
    pub pod_uid: Option<String>,
}

impl VolumeMount {
    /// The mount itself is read-only.
    pub fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }

    /// The superblock has this option.
    pub(crate) fn has_super_option(&self, name: &str) -> bool {
        self.super_options.iter().any(|option| option == name)
    }

    /// The filesystem itself refuses writes.
    pub fn is_super_read_only(&self) -> bool {
        diskvitals_finding::mount::is_super_read_only(&self.super_options)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountRole {
    /// Mounted by the host itself.
    Host,
    /// The kubelet's global mount.
    Staging,
    /// A pod's mount.
    Pod,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedMount {
    pub path: HostPath,
    pub role: MountRole,
    pub pod_uid: Option<String>,
    /// The kubelet's record of it; None: this node has staged or published it itself.
    pub record: Option<HostPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUse {
    pub uid: String,
    /// Unknown when the pod has no log folder.
    pub name: Option<PodName>,
    /// The volume's name in the pod's folder: the PV's name, or the pod spec's.
    pub volume_name: String,
    pub path: HostPath,
}

/// How a volume depends on drives: enough to decide whether losing some of them loses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stack {
    /// Nothing local below it, or unknown.
    #[default]
    Nothing,
    Drive(DriveId),
    /// Lost when any part is lost (partition, linear, striped, LVM over several drives).
    All(Vec<Stack>),
    /// Survives the loss of `tolerates` parts. `level` names the redundancy (`raid1 md0`).
    Redundant {
        level: String,
        tolerates: usize,
        parts: Vec<Stack>,
    },
    /// Which parts hold the same data is not known: it survives the loss of some of them, or of none.
    Undetermined {
        level: String,
        parts: Vec<Stack>,
    },
}

/// The effect that the loss or failure of some drives has on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Impact {
    /// None of them is below it.
    None,
    /// Redundancy still covers it.
    Covered,
    /// Whether redundancy covers it is not known.
    Unknown,
    /// It depends on a failing drive.
    Exposed,
}

impl Stack {
    /// Needs each of these. Duplicates count once (paths of a drive), empty parts are dropped.
    pub(crate) fn all_of(parts: Vec<Stack>) -> Stack {
        let mut kept: Vec<Stack> = Vec::new();
        for part in parts {
            if part != Stack::Nothing && !kept.contains(&part) {
                kept.push(part);
            }
        }
        match kept.len() {
            0 => Stack::Nothing,
            1 => kept.remove(0),
            _ => Stack::All(kept),
        }
    }

    pub fn drives(&self) -> Vec<&DriveId> {
        let mut drives = Vec::new();
        self.collect(&mut drives);
        drives.sort();
        drives.dedup();
        drives
    }

    fn collect<'a>(&'a self, into: &mut Vec<&'a DriveId>) {
        match self {
            Stack::Nothing => {}
            Stack::Drive(id) => into.push(id),
            Stack::All(parts)
            | Stack::Redundant { parts, .. }
            | Stack::Undetermined { parts, .. } => parts.iter().for_each(|part| part.collect(into)),
        }
    }

    /// The redundancy that the drive is a part of, or what may be one.
    pub(crate) fn redundancy_of(&self, drive: &DriveId) -> Option<&Stack> {
        match self {
            Stack::Nothing | Stack::Drive(_) => None,
            Stack::All(parts) => parts.iter().find_map(|part| part.redundancy_of(drive)),
            Stack::Redundant { .. } | Stack::Undetermined { .. } => {
                self.drives().contains(&drive).then_some(self)
            }
        }
    }

    /// How many parts of its weakest redundancy may fail; None without any.
    pub(crate) fn least_tolerance(&self) -> Option<usize> {
        match self {
            Stack::Nothing | Stack::Drive(_) => None,
            Stack::All(parts) | Stack::Undetermined { parts, .. } => {
                parts.iter().filter_map(Stack::least_tolerance).min()
            }
            Stack::Redundant { tolerates, parts, .. } => {
                let below = parts.iter().filter_map(Stack::least_tolerance);
                below.chain([*tolerates]).min()
            }
        }
    }

    /// Also where it may have some.
    pub(crate) fn has_redundancy(&self) -> bool {
        match self {
            Stack::Nothing | Stack::Drive(_) => false,
            Stack::All(parts) => parts.iter().any(Stack::has_redundancy),
            Stack::Redundant { .. } | Stack::Undetermined { .. } => true,
        }
    }

    pub(crate) fn is_undetermined(&self) -> bool {
        match self {
            Stack::Nothing | Stack::Drive(_) => false,
            Stack::All(parts) | Stack::Redundant { parts, .. } => {
                parts.iter().any(Stack::is_undetermined)
            }
            Stack::Undetermined { .. } => true,
        }
    }

    /// How many drives have to fail for a loss of data, besides those for which `fails` returns true; in
    /// the worst case. A drive below two members counts as two. None: no drive's failure loses any.
    pub(crate) fn margin(&self, fails: &dyn Fn(&DriveId) -> bool) -> Option<usize> {
        match self {
            Stack::Nothing => None,
            Stack::Drive(id) => Some(usize::from(!fails(id))),
            // In the worst case each part holds something that no other holds.
            Stack::All(parts) | Stack::Undetermined { parts, .. } => {
                parts.iter().filter_map(|part| part.margin(fails)).min()
            }
            Stack::Redundant { tolerates, parts, .. } => {
                let mut margins: Vec<usize> =
                    parts.iter().filter_map(|part| part.margin(fails)).collect();
                margins.sort_unstable();
                Some(margins.get(..=*tolerates)?.iter().sum())
            }
        }
    }

    /// The effect on this stack if the drives for which `fails` returns true fail.
    pub(crate) fn impact(&self, fails: &dyn Fn(&DriveId) -> bool) -> Impact {
        match self {
            Stack::Nothing => Impact::None,
            Stack::Drive(id) if fails(id) => Impact::Exposed,
            Stack::Drive(_) => Impact::None,
            Stack::All(parts) => {
                parts.iter().map(|part| part.impact(fails)).max().unwrap_or(Impact::None)
            }
            Stack::Redundant { tolerates, parts, .. } => {
                let impacts: Vec<Impact> = parts.iter().map(|part| part.impact(fails)).collect();
                let at_least =
                    |impact| impacts.iter().filter(|it| **it >= impact).count() > *tolerates;
                if at_least(Impact::Exposed) {
                    Impact::Exposed
                } else if at_least(Impact::Unknown) {
                    Impact::Unknown
                } else if impacts.iter().any(|impact| *impact != Impact::None) {
                    Impact::Covered
                } else {
                    Impact::None
                }
            }
            Stack::Undetermined { parts, .. } => {
                let impacts = || parts.iter().map(|part| part.impact(fails));
                if impacts().all(|impact| impact == Impact::Exposed) {
                    Impact::Exposed
                } else if impacts().any(|impact| impact >= Impact::Unknown) {
                    Impact::Unknown
                } else {
                    impacts().max().unwrap_or(Impact::None)
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CsiStatus {
    Published,
    Staged,
    Created,
    Failed,
    Removed,
    /// Not a CSI volume.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationalStatus {
    Operative,
    Inoperative,
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageStatus {
    InUse,
    Idle,
    Released,
    Failed,
}

/// CSI's old VolumeCondition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    pub abnormal: bool,
    /// Names all problems, worst first; at most 1,024 bytes.
    pub message: String,
}

impl<'a> From<&'a VolumeFacts> for origin::Volume<'a> {
    fn from(facts: &'a VolumeFacts) -> origin::Volume<'a> {
        let mounts = facts.mounts.iter().map(|mount| origin::Mount {
            path: mount.path.as_path().to_string_lossy(),
            is_on_host: mount.role == MountRole::Host,
            options: &mount.options,
            super_options: &mount.super_options,
        });
        origin::Volume {
            id: facts.id.as_str(),
            has_driver: facts.driver.is_some(),
            has_pv: facts.pv.is_some(),
            has_pods: !facts.pods.is_empty(),
            is_remote: facts.remote,
            fs_type: facts.fs_type.as_deref().unwrap_or_default(),
            devices: &facts.devices,
            drives: facts.drive_ids.iter().map(|id| id.as_str()).collect(),
            mounts: mounts.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(name: &str) -> FailureDomain {
        FailureDomain::Drives(vec![DriveId::new(name)])
    }

    fn driver(name: &str) -> FailureDomain {
        FailureDomain::Driver(name.into())
    }

    fn pod(uid: &str) -> FailureDomain {
        FailureDomain::Pod(uid.into())
    }

    #[test]
    fn the_domains_of_a_volume_are_facts_that_its_user_cannot_choose() {
        let used_by = |uid: &str| PodUse {
            uid: uid.into(),
            name: None,
            volume_name: "v".into(),
            path: "/p".into(),
        };
        let mut volume = VolumeFacts {
            driver: Some("d".into()),
            drive_ids: vec![DriveId::new("A")],
            pods: vec![used_by("b"), used_by("a"), used_by("b")],
            ..VolumeFacts::default()
        };
        assert_eq!(volume.failure_domains()[..], [drive("A"), pod("a"), pod("b")]);
        volume.remote = true;
        assert_eq!(volume.failure_domains()[..], [drive("A"), driver("d"), pod("a"), pod("b")]);
        volume.drive_ids.clear();
        volume.source = Some("/dev/sda".into());
        assert_eq!(volume.failure_domains()[..], [driver("d"), pod("a"), pod("b")]);
        let host = VolumeFacts {
            fs_type: Some("fuse.s3fs".into()),
            remote: true,
            ..VolumeFacts::default()
        };
        assert_eq!(host.failure_domains()[..], [FailureDomain::Filesystem("fuse".into())]);
    }
}
