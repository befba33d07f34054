//! Volumes, from the mount table, the kubelet's records and the block graph.
//!
//! In: one scan of each. Out: one `VolumeFacts` for each volume, without any judgement. Must not
//! depend on former states (`facts` has them) or on the time.

mod csi;
pub mod extents;
pub mod kube;
pub mod mounts;
mod provided;
pub mod stack;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::block::Inventory;
use crate::facts::LayerFacts;
use crate::graph::kube::PodPath;
use crate::graph::mounts::{FsKind, MountTree};
use crate::graph::stack::Graph;
use crate::policy::{Exclusion, VolumeSettings};
use crate::snapshot::UserMounts;
use crate::volume::{MountRole, PodUse, Stack, VolumeFacts, VolumeMount};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::kubelet::KubeletRecords;
use diskvitals_finding::mount::{Mount, MountTable};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{BackingKind, ProvisionState};
use diskvitals_text::pattern;

/// The UUID of each mounted btrfs, as far as it is known, by device number, with the source of its
/// mounts when that was found: the kernel uses device numbers again.
pub(crate) type MountedBtrfs<'a> = BTreeMap<DevNo, (&'a HostPath, &'a str)>;

/// The observations, each with its last good value.
#[derive(Clone, Copy)]
pub struct GraphInput<'a> {
    pub inventory: &'a Inventory,
    pub mounts: &'a MountTable,
    pub(crate) btrfs: &'a MountedBtrfs<'a>,
    /// `None` until the records are read: until then, a mount that looks like a CSI volume's is not
    /// a volume of the host either.
    pub kubelet: Option<&'a KubeletRecords>,
    pub layers: &'a BTreeMap<String, LayerFacts>,
    /// The volumes that this node provisions; `None` until they are reported.
    pub provision: Option<&'a ProvisionState>,
}

/// The kubelet's folder, by its path in the mount table.
pub fn kubelet_root<'a>(
    kubelet: Option<&'a KubeletRecords>,
    settings: &'a VolumeSettings,
) -> &'a HostPath {
    let read = kubelet.map(|records| &records.root).filter(|root| !root.as_bytes().is_empty());
    read.unwrap_or(&settings.kubelet_root)
}

/// All volumes of the node, sorted by id, each id once.
pub fn volumes(seen: GraphInput<'_>, settings: &VolumeSettings) -> Vec<VolumeFacts> {
    let table = MountTree::new(&seen.mounts.mounts);
    let mut builder = VolumeBuilder {
        kubelet_root: kubelet_root(seen.kubelet, settings).clone(),
        table: &table,
        graph: block_graph(&seen, &table),
        inventory: seen.inventory,
        kubelet: seen.kubelet,
        provision: seen.provision,
        settings,
        volumes: BTreeMap::new(),
        owners: BTreeMap::new(),
        claimed_paths: BTreeSet::new(),
    };
    builder.csi_volumes();
    builder.provided_volumes();
    builder.host_volumes();
    builder.volumes.into_values().collect()
}

/// What the pool's volumes are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolStacks {
    /// By the kind of the volumes, even if there are none yet. A kind whose devices are not known yet
    /// is absent.
    pub stacks: BTreeMap<BackingKind, Stack>,
    /// A physical volume of the group is no device of this scan.
    pub is_group_partial: bool,
}

pub(crate) fn pool_stacks(seen: GraphInput<'_>) -> PoolStacks {
    let table = MountTree::new(&seen.mounts.mounts);
    let Some(provision) = seen.provision else {
        return PoolStacks::default();
    };
    block_graph(&seen, &table).pool_stacks(provision)
}

/// How a device depends on its drives, also if it carries no volume.
pub(crate) fn device_stack(seen: GraphInput<'_>, device: &str) -> Stack {
    let table = MountTree::new(&seen.mounts.mounts);
    block_graph(&seen, &table).stack(device)
}

/// The block graph. Loop devices over our images are resolved to their backing devices, even if
/// loop devices count as drives in the configuration.
fn block_graph<'a>(seen: &GraphInput<'a>, table: &'a MountTree<'a>) -> Graph<'a> {
    let images = seen
        .provision
        .into_iter()
        .flat_map(|provision| &provision.volumes)
        .filter(|volume| volume.kind == BackingKind::Loop);
    let images = images.filter_map(|volume| volume.device.as_deref()).collect();
    Graph::new(seen.inventory, seen.btrfs, seen.layers, table, images)
}

/// The filesystem of a mount: mounts of one block device share its number. Network filesystems may
/// share one number between exports (NFS shares superblocks by fsid), so there the source counts
/// too.
type FsKey = (DevNo, Option<HostPath>);

fn filesystem_key(mount: &Mount) -> FsKey {
    let by_source = mounts::fs_kind(mount) == FsKind::Remote;
    (mount.dev, by_source.then(|| mount.source.clone()))
}

/// By configuration alone.
fn ignored(mount: &Mount, settings: &VolumeSettings) -> Option<Exclusion> {
    if pattern::matches_any(&settings.ignore_mounts, mount.mount_point.as_bytes()) {
        Some(Exclusion::IgnoredMount)
    } else {
        pattern::matches_any(&settings.ignore_types, mount.fs_type.as_bytes())
            .then_some(Exclusion::IgnoredType)
    }
}

fn exclusion(mount: &Mount, settings: &VolumeSettings) -> Option<Exclusion> {
    ignored(mount, settings).or_else(|| {
        let why = match (mounts::user_of(mount), mounts::fs_kind(mount)) {
            (Some(uid), _) => Exclusion::User(uid),
            (None, FsKind::Transient) => Exclusion::Type,
            (None, FsKind::Local | FsKind::Remote) => return None,
        };
        let path = mount.mount_point.as_bytes();
        (!pattern::matches_any(&settings.admit_mounts, path)).then_some(why)
    })
}

/// The mounts that could be volumes by configuration: FUSE filesystems, and what is ignored by it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ExcludedMounts {
    /// Type and reason.
    pub listed: BTreeMap<HostPath, (String, Exclusion)>,
    /// Those of users, by uid.
    pub of_users: BTreeMap<u32, UserMounts>,
}

/// Pseudo filesystems are not listed, and with thousands of mounts not looked into.
pub fn excluded_mounts(table: &[Mount], settings: &VolumeSettings) -> ExcludedMounts {
    let mut found = ExcludedMounts::default();
    let mut of_host = 0;
    for mount in table {
        let user = mounts::user_of(mount);
        let why = match user.is_some() || mounts::is_fuse(mount) {
            true => exclusion(mount, settings),
            false => ignored(mount, settings),
        };
        let Some(why) = why else { continue };
        let (listed, limit) = match user {
            Some(uid) => {
                let of_user = found.of_users.entry(uid).or_default();
                if of_user.listed == MAX_MOUNTS_OF_A_USER {
                    of_user.not_listed += 1;
                }
                (&mut of_user.listed, MAX_MOUNTS_OF_A_USER)
            }
            None => (&mut of_host, MAX_EXCLUDED_MOUNTS),
        };
        if *listed < limit {
            *listed += 1;
            let what = (mount.fs_type.clone(), why);
            found.listed.insert(mount.mount_point.clone(), what);
        }
    }
    found
}

/// Of root. Those of users do not count: they would hide root's.
const MAX_EXCLUDED_MOUNTS: usize = 1000;
/// A user can mount any number of FUSE filesystems.
const MAX_MOUNTS_OF_A_USER: usize = 64;

struct VolumeBuilder<'a> {
    table: &'a MountTree<'a>,
    graph: Graph<'a>,
    inventory: &'a Inventory,
    kubelet: Option<&'a KubeletRecords>,
    provision: Option<&'a ProvisionState>,
    settings: &'a VolumeSettings,
    /// By its path in the mount table.
    kubelet_root: HostPath,
    volumes: BTreeMap<VolumeId, VolumeFacts>,
    /// Filesystems that belong to a CSI volume as a whole.
    owners: BTreeMap<FsKey, VolumeId>,
    /// Mount points that belong to CSI volumes.
    claimed_paths: BTreeSet<HostPath>,
}

impl VolumeBuilder<'_> {
    fn host_volumes(&mut self) {
        let mut groups: BTreeMap<FsKey, Vec<&Mount>> = BTreeMap::new();
        for mount in self.table.all() {
            if self.is_of_host(mount) {
                groups.entry(filesystem_key(mount)).or_default().push(mount);
            }
        }
        let uuids = self.mounted_uuids(&groups);
        for (key, group) in groups {
            let (ours, elsewhere): (Vec<&Mount>, Vec<&Mount>) =
                group.into_iter().partition(|mount| {
                    self.table.is_visible(mount) && !self.claimed_paths.contains(&mount.mount_point)
                });
            if let Some(owner) = self.owners.get(&key).cloned() {
                if let Some(mut facts) = self.volumes.remove(&owner) {
                    self.add_mounts(&mut facts, &ours);
                    self.volumes.insert(owner, facts);
                }
                continue;
            }
            // A filesystem is still in use if other mounts hide all of its mounts. CSI volumes that
            // mount only folders of it do not own it.
            let hidden: Vec<&Mount> =
                elsewhere.into_iter().filter(|mount| !self.table.is_visible(mount)).collect();
            let group = if ours.is_empty() { hidden } else { ours };
            if group.is_empty() || self.awaits_kubelet_records(&group) {
                continue;
            }
            let facts = self.host_volume(&group, &uuids);
            match self.volumes.get_mut(&facts.id) {
                Some(first) => merge(first, facts),
                None => {
                    self.volumes.insert(facts.id.clone(), facts);
                }
            }
        }
    }

    fn is_of_host(&self, mount: &Mount) -> bool {
        exclusion(mount, self.settings).is_none()
    }

    /// Before the kubelet's records are read, a mount at a path of CSI volumes does not count as a
    /// volume of the host.
    fn awaits_kubelet_records(&self, group: &[&Mount]) -> bool {
        self.kubelet.is_none()
            && group.iter().all(|mount| kube::is_csi_path(&self.kubelet_root, &mount.mount_point))
    }

    fn host_volume(&self, group: &[&Mount], uuids: &BTreeMap<String, usize>) -> VolumeFacts {
        // `group` is never empty: the caller has checked it.
        let primary = group.iter().copied().min_by_key(|mount| {
            let path = mount.mount_point.as_bytes();
            (
                kube::pod_path(&self.kubelet_root, &mount.mount_point).is_some(),
                mount.root.as_bytes() != b"/",
                path.len(),
                path,
            )
        });
        let mut facts = VolumeFacts::default();
        if let Some(primary) = primary {
            self.describe(&mut facts, primary);
            facts.id = match &facts.fs_uuid {
                Some(uuid) if uuids.get(uuid) == Some(&1) => VolumeId::filesystem(uuid),
                _ => VolumeId::mount(&primary.mount_point),
            };
            self.add_mounts(&mut facts, &[primary]);
        }
        let others: Vec<&Mount> = group
            .iter()
            .copied()
            .filter(|mount| primary.is_none_or(|primary| !std::ptr::eq(*mount, primary)))
            .collect();
        self.add_mounts(&mut facts, &others);
        facts
    }

    /// How many mounted filesystems have each UUID: clones and snapshots share a UUID, which then
    /// identifies none of them.
    fn mounted_uuids(&self, groups: &BTreeMap<FsKey, Vec<&Mount>>) -> BTreeMap<String, usize> {
        let mut uuids = BTreeMap::new();
        for mount in groups.values().filter_map(|group| group.first()) {
            if let Some(uuid) = self.graph.device_of(mount).and_then(|found| found.uuid) {
                *uuids.entry(uuid).or_insert(0) += 1;
            }
        }
        uuids
    }

    fn add_mounts(&self, facts: &mut VolumeFacts, mounts: &[&Mount]) {
        let mut known: HashSet<HostPath> =
            facts.mounts.iter().map(|mount| mount.path.clone()).collect();
        for mount in mounts {
            if !known.insert(mount.mount_point.clone()) {
                continue;
            }
            let pod = kube::pod_path(&self.kubelet_root, &mount.mount_point);
            let role = match &pod {
                Some(_) => MountRole::Pod,
                None if kube::is_plugin_path(&self.kubelet_root, &mount.mount_point) => {
                    MountRole::Staging
                }
                None => MountRole::Host,
            };
            facts.mounts.push(volume_mount(mount, role, pod.as_ref().map(|pod| pod.uid.clone())));
            if let Some(PodPath { uid, volume_name }) = pod {
                let is_it = |known: &PodUse| known.uid == uid && known.volume_name == volume_name;
                if facts.pods.iter().any(is_it) {
                    continue;
                }
                let name = self.kubelet.and_then(|kubelet| kubelet.pods.get(&uid)).cloned();
                facts.pods.push(PodUse { uid, name, volume_name, path: mount.mount_point.clone() });
            }
        }
    }

    fn describe(&self, facts: &mut VolumeFacts, mount: &Mount) {
        if !facts.block {
            facts.fs_type = Some(mount.fs_type.clone());
        }
        facts.source = Some(mount.source.clone());
        facts.remote = mounts::has_remote_type(mount) || mounts::is_remote_view(mount);
        let Some(found) = self.graph.device_of(mount) else {
            // Anonymous number without a device: the filesystem has none. Real number that no scan
            // lists: the device was removed.
            facts.device_gone = !mount.dev.is_anonymous() && !facts.block;
            if facts.device_gone {
                facts.device = mounts::device_name(&mount.source);
            }
            return;
        };
        if let Some(fs) = self.graph.btrfs_fs(&found) {
            facts.fs_uuid = Some(fs.uuid.clone()).filter(|uuid| !uuid.is_empty());
            facts.fs_label = fs.label.clone();
            facts.device = Some(found.name);
            facts.stack = self.graph.btrfs(fs);
            facts.devices = self.graph.devices_below(&fs.devices);
        } else {
            self.set_device(facts, &found.name);
            facts.fs_uuid = found.uuid;
        }
        facts.drive_ids = self.graph.drives_of(&facts.devices);
        if !facts.remote && !facts.drive_ids.is_empty() {
            facts.remote = self.graph.all_remote(&facts.drive_ids);
        }
    }

    fn set_device(&self, facts: &mut VolumeFacts, device: &str) {
        facts.device = Some(device.to_owned());
        facts.stack = self.graph.stack(device);
        facts.devices = self.graph.devices_below(&[device.to_owned()]);
        facts.drive_ids = self.graph.drives_of(&facts.devices);
        if let Some(block) = self.inventory.devices.get(device) {
            facts.fs_label = block.fs_label.clone();
        }
    }
}

fn volume_mount(mount: &Mount, role: MountRole, pod_uid: Option<String>) -> VolumeMount {
    VolumeMount {
        path: mount.mount_point.clone(),
        role,
        options: mount.options.clone(),
        super_options: mount.super_options.clone(),
        root: mount.root.clone(),
        pod_uid,
    }
}

fn merge(into: &mut VolumeFacts, other: VolumeFacts) {
    for mount in other.mounts {
        if !into.mounts.iter().any(|known| known.path == mount.path) {
            into.mounts.push(mount);
        }
    }
    for missing in other.missing_mounts {
        if !into.missing_mounts.contains(&missing) {
            into.missing_mounts.push(missing);
        }
    }
    for pod in other.pods {
        if !into.pods.contains(&pod) {
            into.pods.push(pod);
        }
    }
    if into.device.is_none() {
        into.device = other.device;
        into.stack = other.stack;
        into.devices = other.devices;
        into.drive_ids = other.drive_ids;
        into.fs_type = into.fs_type.take().or(other.fs_type);
        into.fs_uuid = into.fs_uuid.take().or(other.fs_uuid);
        into.source = into.source.take().or(other.source);
        into.device_gone |= other.device_gone;
    }
}

#[cfg(test)]
mod tests;
