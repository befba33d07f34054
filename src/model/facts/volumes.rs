//! Volumes over time: the graph's volumes, with the data that must outlive them. A volume whose
//! drive was removed keeps its name and its drives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::block::{Layer, LayerState};
use crate::facts::drives::REMOVAL_WINDOW;
use crate::facts::probes::ProbedMount;
use crate::facts::{Facts, HidingMount, KnownVolume, MountAbsence};
use crate::graph;
use crate::graph::mounts::MountTree;
use crate::graph::{GraphInput, MountedBtrfs, PoolStacks};
use crate::policy::VolumeSettings;
use crate::snapshot::{MountPoint, NodeContext, SystemDirectory};
use crate::stack;
use crate::volume::{Impact, Stack, VolumeFacts, VolumeMount};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{BackingKind, VolumePresence};
use diskvitals_text::duration::elapsed;

impl Facts {
    fn graph_input<'a>(&'a self, btrfs: &'a MountedBtrfs<'a>) -> Option<GraphInput<'a>> {
        Some(GraphInput {
            inventory: self.inventory()?,
            mounts: self.mount_table()?,
            btrfs,
            kubelet: self.kubelet_records(),
            layers: &self.layers,
            provision: self.provision(),
        })
    }

    /// How a device depends on its drives, also if it carries no volume.
    pub(crate) fn device_stack(&self, device: &str) -> Option<Stack> {
        Some(graph::device_stack(self.graph_input(&self.mounted_btrfs())?, device))
    }

    /// Rebuilds the volumes from the last good values. No volume counts as removed before both the
    /// devices and the mounts have been read once.
    pub(super) fn update_volumes(&mut self, settings: &VolumeSettings, now: Timestamp) {
        if self.inventory().is_none() || self.mount_table().is_none() {
            return;
        }
        self.volumes_revision += 1;
        self.probes.use_restored_mounts();
        let btrfs = self.mounted_btrfs();
        let Some(seen) = self.graph_input(&btrfs) else {
            return;
        };
        let mounts = seen.mounts;
        let mut found = graph::volumes(seen, settings);
        for facts in found.iter_mut().filter(|facts| facts.fs_uuid.is_none()) {
            // Only the UUID: the volume's id does not change when udevd starts or its superblock is
            // read.
            let device = facts.device.as_ref().filter(|_| !facts.block);
            facts.fs_uuid = device.and_then(|name| self.device_uuid(name)).cloned();
        }
        self.separate_copies(&mut found);
        let pool = graph::pool_stacks(seen);
        let is_group_partial = pool.is_group_partial;
        let table = MountTree::new(&mounts.mounts);
        let mut node_context = node_context(seen, settings, pool, &table);
        node_context.absent_volumes = absent_volumes(seen, &found);
        self.keep_lost_pool(&mut node_context, is_group_partial);
        let system_mounts = system_mounts(&table, &node_context.kubelet_root, settings);
        let shown: Vec<(BTreeMap<HostPath, VisibleMount>, Option<HidingMount>)> = found
            .iter()
            .map(|volume| {
                let shown = visible_mounts(volume, &table);
                let hidden_by = shown.is_empty().then(|| hiding_mount(volume, &table));
                (shown, hidden_by.flatten())
            })
            .collect();
        let mut before = std::mem::take(&mut self.volumes);
        // With the UUID of the filesystem that was mounted.
        let mut gone = Vec::new();
        let mut after: BTreeMap<VolumeId, KnownVolume> = BTreeMap::new();
        let mut targets: BTreeMap<HostPath, (ProbedMount, bool)> = BTreeMap::new();
        for (mut facts, (shown, hidden_by)) in found.into_iter().zip(shown) {
            self.keep_id(&mut facts, &shown);
            let departed = self.recent_removals.volumes.remove(&facts.id);
            let known = before.remove(&facts.id).or(departed.map(|(known, _)| known));
            // The kubelet's record outlives the mount.
            if facts.mounts.is_empty()
                && let Some(known) = &known
                && !known.facts.mounts.is_empty()
            {
                gone.push((facts.id.clone(), known.facts.fs_uuid.clone()));
            }
            if let Some(known) = &known {
                self.keep_lost_drives(&mut facts, known, &shown);
            }
            add_probed_mounts(&mut targets, &facts, shown);
            let mut known = update_known(known, facts, now);
            known.hidden_by = hidden_by;
            after.insert(known.facts.id.clone(), known);
        }
        let mut left_at: BTreeMap<VolumeId, Timestamp> = BTreeMap::new();
        for (id, (known, at)) in std::mem::take(&mut self.recent_removals.volumes) {
            if elapsed(at, now) <= REMOVAL_WINDOW && !before.contains_key(&id) {
                left_at.insert(id.clone(), at);
                before.insert(id, known);
            }
        }
        let unreported = self.provision().is_none();
        for (id, mut known) in before {
            if after.contains_key(&id) {
                continue;
            }
            if unreported && known.facts.provided.is_some() {
                // Kept from before a restart: its provider has not reported yet.
                after.insert(id, known);
            } else if known
                .facts
                .drive_ids
                .iter()
                .any(|drive| self.is_drive_missing(drive) && !self.was_detached(drive))
            {
                known.retained = true;
                let facts = Arc::make_mut(&mut known.facts);
                facts.mounts.clear();
                facts.missing_mounts.clear();
                facts.device_gone = true;
                known.absences.clear();
                known.hidden_by = None;
                after.insert(id, known);
            } else if !known.retained {
                gone.push((id.clone(), known.facts.fs_uuid.clone()));
                // A later mount is a new one.
                known.mounted_since.clear();
                let at = left_at.get(&id).copied().unwrap_or(now);
                self.recent_removals.volumes.insert(id, (known, at));
            }
        }
        self.volumes = after;
        self.note_homes();
        node_context.system_directories = self.system_directories(system_mounts);
        if *self.node_context != node_context {
            self.node_context = Arc::new(node_context);
        }
        self.update_attachments(now);
        self.reassign_to_volumes(&gone);
        let targets = targets.into_iter().map(|(path, (target, _))| (path, target));
        self.probes.set_mounts(targets.collect());
        self.update_drive_volumes(now);
        self.note_missing_btrfs_members(now);
    }

    /// A filesystem that was unmounted after its drive was removed still holds its directory.
    fn system_directories(
        &self,
        mounts: Vec<(HostPath, Option<HostPath>)>,
    ) -> Vec<SystemDirectory> {
        let is_retained = |id: &VolumeId| self.volumes.get(id).is_some_and(|it| it.retained);
        let lost = |path: &HostPath| {
            let mut before = self.node_context.system_directories.iter();
            let before = before.find(|directory| directory.path == *path)?;
            before.volume.clone().filter(is_retained)
        };
        let mounted = |mount: &HostPath| {
            let holds =
                |known: &&KnownVolume| known.facts.mounts.iter().any(|it| it.path == *mount);
            let holder = self.volumes.values().find(holds);
            holder.map(|known| known.facts.id.clone())
        };
        let directory = |(path, mount): (HostPath, Option<HostPath>)| SystemDirectory {
            volume: lost(&path).or_else(|| mounted(&mount?)),
            path,
        };
        mounts.into_iter().map(directory).collect()
    }

    /// The path from the pool to a drive is lost with the drive: keeps the former one.
    fn keep_lost_pool(&self, context: &mut NodeContext, is_group_partial: bool) {
        let before = &self.node_context;
        if context.driver != before.driver {
            return;
        }
        for (kind, lost) in &before.pool {
            let is_cut = match context.pool.get(kind) {
                None | Some(Stack::Nothing) => true,
                Some(_) => *kind == BackingKind::Lvm && is_group_partial,
            };
            if is_cut && lost.impact(&|id| self.is_drive_missing(id)) == Impact::Exposed {
                context.pool.insert(*kind, lost.clone());
            }
        }
    }

    /// After the removal of its device, the UUID in the id of a mount cannot be read. The same
    /// mount of the same device is the same volume.
    fn keep_id(&self, facts: &mut VolumeFacts, shown: &BTreeMap<HostPath, VisibleMount>) {
        if !facts.device_gone || facts.driver.is_some() {
            return;
        }
        let same = |path: &HostPath| {
            self.probes
                .mounts()
                .get(path)
                .filter(|target| shown.get(path).is_some_and(|shown| shown.dev == target.dev))
        };
        if let Some(target) = facts.mounts.iter().find_map(|mount| same(&mount.path))
            && !target.volume.as_str().starts_with("csi:")
        {
            // The id of a CSI volume comes from its records.
            facts.id = target.volume.clone();
        }
    }

    /// Keeps the drives and the stack of a volume while a drive of it is missing, unless its
    /// redundancy reports that it is intact again.
    fn keep_lost_drives(
        &self,
        facts: &mut VolumeFacts,
        known: &KnownVolume,
        shown: &BTreeMap<HostPath, VisibleMount>,
    ) {
        let lost: Vec<&DriveId> = known
            .facts
            .drive_ids
            .iter()
            .filter(|id| self.is_drive_missing(id) && !facts.drive_ids.contains(*id))
            .collect();
        let same_mount = facts.mounts.iter().any(|mount| {
            let now = shown.get(&mount.path).map(|shown| shown.dev);
            self.probes
                .mounts()
                .get(&mount.path)
                .is_some_and(|target| target.volume == facts.id && now == Some(target.dev))
        });
        let same_device = same_mount || (facts.block && facts.device == known.facts.device);
        // The device node of a raw block volume can be removed together with its device; its
        // records still name it.
        let vanished = facts.device.is_none() && facts.driver.is_some() && !facts.remote;
        if facts.device_gone && same_mount {
            keep_device_facts(facts, known);
        } else if !lost.is_empty()
            && (vanished
                || (same_device
                    && self.is_layered(facts)
                    && !self.redundancy_is_intact(facts, &lost)))
        {
            facts.stack = match self.works_without_known_layout(facts) {
                true => without_drives(std::mem::take(&mut facts.stack), &lost),
                false => known.facts.stack.clone(),
            };
            facts.drive_ids.extend(lost.into_iter().cloned());
            facts.drive_ids.sort();
            facts.drive_ids.dedup();
            facts.device = facts.device.take().or_else(|| known.facts.device.clone());
            facts.device_gone |= vanished;
        }
    }

    /// Whether there is a layer between the filesystem and its drives; it outlives one of them.
    fn is_layered(&self, facts: &VolumeFacts) -> bool {
        let btrfs = self.btrfs_below(facts);
        let is_layer = |name: &String| {
            let Some(device) = self.device(name) else {
                return true;
            };
            device.drive.is_none() && !matches!(device.layer, Layer::Partition { .. })
        };
        btrfs.is_some_and(|fs| fs.devices.len() > 1 || fs.missing_devices > 0)
            || (self.inventory().is_some() && facts.devices.iter().any(is_layer))
    }

    /// Whether a ZFS pool of unknown layout is below the volume, and works.
    fn works_without_known_layout(&self, facts: &VolumeFacts) -> bool {
        facts.devices.iter().any(|name| match self.layer_state(name) {
            Some(LayerState::Zfs(pool)) => pool.state.works() && !pool.has_layout(),
            _ => false,
        })
    }

    /// Whether no redundancy below the volume misses a member: the lost drive has been replaced.
    fn redundancy_is_intact(&self, facts: &VolumeFacts, lost: &[&DriveId]) -> bool {
        let gone = lost.iter().filter_map(|id| self.drives.get(*id)?.missing_since).max();
        let layers = facts.devices.iter().filter_map(|name| self.layers.get(name));
        let filesystem = self.inventory().and_then(|it| stack::of_volume(it, facts));
        let mut intact = layers
            .filter_map(|layer| {
                let state = layer.state.value()?;
                // A pool lists no member that is missing: only its word of after the loss counts.
                let is_older = matches!(state, LayerState::Zfs(_)) && layer.state.at() < gone;
                Some(state.is_intact()? && !is_older)
            })
            .chain(filesystem.and_then(|(_, stack)| stack.is_intact()))
            .peekable();
        intact.peek().is_some() && intact.all(|intact| intact) && !has_missing_part(&facts.stack)
    }
}

/// A stack that works without these drives, which were part of it.
fn without_drives(stack: Stack, lost: &[&DriveId]) -> Stack {
    let parts = lost.iter().map(|id| Stack::Drive((*id).clone())).collect();
    let level = stack::UNKNOWN_LAYOUT.to_owned();
    let mut all: Vec<Stack> = stack.drives().into_iter().cloned().map(Stack::Drive).collect();
    all.push(Stack::Redundant { level, tolerates: lost.len(), parts });
    Stack::all_of(all)
}

/// A mount of a volume that a lookup of its path ends in.
struct VisibleMount {
    id: u32,
    dev: DevNo,
    /// The source matches too, not only the type, root and options.
    source_matches: bool,
}

/// The mounts of a volume that a path lookup reaches: a filesystem mounted over one of them must
/// not be probed instead.
fn visible_mounts(volume: &VolumeFacts, table: &MountTree) -> BTreeMap<HostPath, VisibleMount> {
    let of = |mount: &VolumeMount| {
        let visible = table.visible_at(&mount.path)?;
        let same_type = volume.fs_type.as_ref().is_none_or(|fs_type| *fs_type == visible.fs_type);
        let alike = same_type
            && visible.root == mount.root
            && visible.options == mount.options
            && visible.super_options == mount.super_options;
        let shown = VisibleMount {
            id: visible.id,
            dev: visible.dev,
            source_matches: volume.source.as_ref() == Some(&visible.source),
        };
        alike.then(|| (mount.path.clone(), shown))
    };
    volume.mounts.iter().filter_map(of).collect()
}

/// Of a volume none of whose mounts a lookup reaches.
fn hiding_mount(volume: &VolumeFacts, table: &MountTree) -> Option<HidingMount> {
    volume.mounts.iter().find_map(|mount| {
        let (above, uid) = table.user_mount_above(&mount.path)?;
        Some(HidingMount {
            hidden: mount.path.clone(),
            mount_point: above.mount_point.clone(),
            uid,
        })
    })
}

/// Two filesystems stacked on one path may look alike; the one with the source of the visible mount
/// is probed.
fn add_probed_mounts(
    targets: &mut BTreeMap<HostPath, (ProbedMount, bool)>,
    facts: &VolumeFacts,
    shown: BTreeMap<HostPath, VisibleMount>,
) {
    if facts.block {
        return;
    }
    let domains = facts.failure_domains();
    for (path, shown) in shown {
        let target = ProbedMount {
            id: shown.id,
            dev: shown.dev,
            volume: facts.id.clone(),
            filesystem: facts.fs_type.clone().unwrap_or_default(),
            is_network: is_network(facts),
            domains: domains.clone(),
        };
        if targets.get(&path).is_none_or(|(_, certain)| shown.source_matches && !certain) {
            targets.insert(path, (target, shown.source_matches));
        }
    }
}

/// A filesystem of a server, not one on a remote drive, which only this node has mounted.
pub(super) fn is_network(facts: &VolumeFacts) -> bool {
    facts.remote && facts.device.is_none()
}

/// A part of a redundancy leads to no drive: md may not have detected a removed member yet.
fn has_missing_part(stack: &Stack) -> bool {
    match stack {
        Stack::Nothing | Stack::Drive(_) => false,
        Stack::All(parts) => parts.iter().any(has_missing_part),
        Stack::Redundant { parts, .. } | Stack::Undetermined { parts, .. } => {
            parts.iter().any(|part| *part == Stack::Nothing || has_missing_part(part))
        }
    }
}

fn node_context(
    seen: GraphInput<'_>,
    settings: &VolumeSettings,
    pool: PoolStacks,
    table: &MountTree<'_>,
) -> NodeContext {
    let mount_point = |mount: &Mount| {
        let what = MountPoint { fs_type: mount.fs_type.clone(), source: mount.source.clone() };
        (mount.mount_point.clone(), what)
    };
    let excluded = graph::excluded_mounts(&seen.mounts.mounts, settings);
    NodeContext {
        configured_kubelet_root: settings.kubelet_root.clone(),
        kubelet_root: graph::kubelet_root(seen.kubelet, settings).clone(),
        driver: seen.provision.map(|provision| provision.driver.clone()),
        configured_driver: settings.own_driver.clone(),
        absent_volumes: BTreeMap::new(),
        pool: pool.stacks,
        system_directories: Vec::new(),
        excluded_mounts: excluded.listed,
        user_mounts: excluded.of_users,
        mount_points: table.visible().map(mount_point).collect(),
    }
}

/// The static volumes of the configuration that are not among those that were found.
fn absent_volumes(seen: GraphInput<'_>, found: &[VolumeFacts]) -> BTreeMap<String, HostPath> {
    let is_known = |handle: &String| {
        let mut own = found.iter().filter(|facts| facts.provided.is_some());
        own.any(|facts| facts.handle.as_ref() == Some(handle))
    };
    let provided = seen.provision.into_iter().flat_map(|provision| &provision.volumes);
    let absent = provided.filter(|volume| volume.presence == VolumePresence::Absent);
    let absent = absent.filter(|volume| !is_known(&volume.handle));
    absent.map(|volume| (volume.handle.clone(), volume.backing.clone())).collect()
}

/// The directories without which the node cannot work, each with the mount that holds it.
fn system_mounts(
    table: &MountTree<'_>,
    kubelet_root: &HostPath,
    settings: &VolumeSettings,
) -> Vec<(HostPath, Option<HostPath>)> {
    let paths = [HostPath::from("/"), kubelet_root.clone()].into_iter();
    let paths = paths.chain(settings.runtime_directories.iter().cloned());
    let mount = |path: &HostPath| Some(table.containing(path)?.mount_point.clone());
    paths.map(|path| (path.clone(), mount(&path))).collect()
}

fn keep_device_facts(facts: &mut VolumeFacts, known: &KnownVolume) {
    facts.device = known.facts.device.clone().or(facts.device.take());
    facts.fs_uuid = known.facts.fs_uuid.clone();
    facts.fs_label = known.facts.fs_label.clone();
    facts.drive_ids = known.facts.drive_ids.clone();
    facts.stack = known.facts.stack.clone();
    facts.devices = known.facts.devices.clone();
    facts.remote = known.facts.remote;
}

fn update_known(known: Option<KnownVolume>, mut facts: VolumeFacts, now: Timestamp) -> KnownVolume {
    // Unchanged facts are shared with the published snapshots.
    let facts = match &known {
        Some(known) if *known.facts == facts => known.facts.clone(),
        _ => {
            facts.shrink_to_fit();
            Arc::new(facts)
        }
    };
    let read_only = facts.mounts.iter().any(VolumeMount::is_super_read_only);
    let mount_read_only = facts.mounts.iter().any(VolumeMount::is_read_only);
    let mut now_known = match known {
        Some(known) => known,
        None => KnownVolume {
            first_seen: now,
            first_super_read_only: read_only,
            first_mount_read_only: mount_read_only,
            retained: false,
            read_only_by_choice: BTreeSet::new(),
            seen_writable: BTreeSet::new(),
            absences: BTreeMap::new(),
            mounted_since: BTreeMap::new(),
            remounted_at: None,
            hidden_by: None,
            facts: facts.clone(),
        },
    };
    let mut absences = BTreeMap::new();
    for missing in &facts.missing_mounts {
        let path = &missing.path;
        let new =
            MountAbsence { since: now, was_mounted: now_known.facts.mount_at(path).is_some() };
        let absence = now_known.absences.get(path).copied().unwrap_or(new);
        absences.insert(path.clone(), absence);
    }
    now_known.absences = absences;
    let paths: BTreeSet<&HostPath> = facts.mounts.iter().map(|mount| &mount.path).collect();
    now_known.mounted_since.retain(|path, _| paths.contains(path));
    for path in &paths {
        now_known.mounted_since.entry((*path).clone()).or_insert(now);
    }
    now_known.read_only_by_choice.retain(|path| paths.contains(path));
    now_known.seen_writable.retain(|path| paths.contains(path));
    for mount in &facts.mounts {
        if !mount.is_read_only() {
            now_known.seen_writable.insert(mount.path.clone());
            now_known.read_only_by_choice.remove(&mount.path);
        } else if !read_only {
            now_known.read_only_by_choice.insert(mount.path.clone());
        }
    }
    // Mounted again: the initial read-only state is recorded again.
    if now_known.facts.mounts.is_empty() && !facts.mounts.is_empty() {
        now_known.first_super_read_only = read_only;
        now_known.first_mount_read_only = mount_read_only;
    }
    now_known.retained = false;
    now_known.facts = facts;
    now_known
}
