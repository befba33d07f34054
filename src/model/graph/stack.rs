//! From a block device down to the drives: which layers are between them, and how the loss of a
//! drive affects the layers above.

mod redundancy;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::block::{BlockDevice, Inventory, Layer, LayerState};
use crate::facts::LayerFacts;
use crate::graph::MountedBtrfs;
use crate::graph::mounts::{self, FsKind, MountTree};
use crate::graph::stack::redundancy::{bounded, combine, with_rebuild};
use crate::redundancy::{Array, Member, btrfs_tolerance};
use crate::stack::{BtrfsFs, DmRaid};
use crate::volume::Stack;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;

/// Maximum number of layers: far more than any real system has; it also ends a damaged graph.
const MAX_DEPTH: usize = 32;
/// The device below a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingDevice {
    /// Kernel name.
    pub name: String,
    pub uuid: Option<String>,
    /// Index into `Inventory::btrfs` for a btrfs.
    pub btrfs: Option<usize>,
}

pub struct Graph<'a> {
    inventory: &'a Inventory,
    mounted_btrfs: &'a MountedBtrfs<'a>,
    layers: &'a BTreeMap<String, LayerFacts>,
    table: &'a MountTree<'a>,
    by_dev: HashMap<DevNo, &'a BlockDevice>,
    by_link: HashMap<&'a str, &'a str>,
    btrfs_of: HashMap<&'a str, usize>,
    loops: HashMap<&'a str, &'a str>,
    /// Loop devices over our images; they never count as drives, whatever the configuration admits.
    images: BTreeSet<&'a str>,
    stacks: RefCell<HashMap<String, Stack>>,
}

impl<'a> Graph<'a> {
    pub fn new(
        inventory: &'a Inventory,
        mounted_btrfs: &'a MountedBtrfs<'a>,
        layers: &'a BTreeMap<String, LayerFacts>,
        table: &'a MountTree<'a>,
        images: BTreeSet<&'a str>,
    ) -> Graph<'a> {
        let mut by_link = HashMap::new();
        let mut loops = HashMap::new();
        for (name, device) in &inventory.devices {
            for link in &device.links {
                by_link.insert(link.as_str(), name.as_str());
            }
            if let Layer::Loop { backing_file: Some(file) } = &device.layer {
                loops.insert(file.strip_suffix(" (deleted)").unwrap_or(file), name.as_str());
            }
        }
        let by_dev = inventory.devices.values().map(|device| (device.dev, device)).collect();
        let btrfs_of = inventory
            .btrfs
            .iter()
            .enumerate()
            .flat_map(|(at, fs)| fs.devices.iter().map(move |name| (name.as_str(), at)))
            .collect();
        Graph {
            inventory,
            mounted_btrfs,
            layers,
            table,
            by_dev,
            by_link,
            btrfs_of,
            loops,
            images,
            stacks: RefCell::default(),
        }
    }

    /// The device of a mounted filesystem, or the device whose node is bind-mounted (a published
    /// raw block volume).
    pub fn device_of(&self, mount: &Mount) -> Option<BackingDevice> {
        if mount.fs_type == "devtmpfs" {
            let root = mount.root.as_bytes();
            return self.backing_device(self.resolve(root.strip_prefix(b"/").unwrap_or(root))?);
        }
        if !mount.dev.is_anonymous() {
            return self.backing_device(&self.by_dev.get(&mount.dev)?.name);
        }
        // The source of any other filesystem, FUSE above all, is a text that its user chooses.
        if mounts::fs_kind(mount) != FsKind::Local || mounts::is_fuse(mount) {
            return None;
        }
        if let Some(member) = self.member_of_mounted_btrfs(mount) {
            return self.backing_device(member);
        }
        // bcachefs lists all its members: `/dev/sda:/dev/sdb`.
        let first = mount.source.as_bytes().split(|byte| *byte == b':').next()?;
        let resolved = self.resolve(first.strip_prefix(b"/dev/")?);
        let other = || self.other_member(mount, resolved);
        self.backing_device(other().or(resolved)?)
    }

    fn member_of_mounted_btrfs(&self, mount: &Mount) -> Option<&'a str> {
        let known = self.mounted_btrfs.get(&mount.dev);
        let (_, uuid) = known.filter(|(source, _)| **source == mount.source)?;
        self.present_member(self.inventory.btrfs.iter().find(|fs| fs.uuid == *uuid)?)
    }

    fn present_member(&self, fs: &'a BtrfsFs) -> Option<&'a str> {
        let mut members = fs.devices.iter().map(String::as_str);
        members.find(|name| self.inventory.devices.contains_key(*name))
    }

    /// The mount table goes on naming a member of a btrfs that was pulled: by a name that is gone, or
    /// by a link that the drive has again after its return, which is then no member. Another member.
    fn other_member(&self, mount: &Mount, resolved: Option<&str>) -> Option<&'a str> {
        if mount.fs_type != "btrfs" || resolved.is_some_and(|it| self.btrfs_of.contains_key(it)) {
            return None;
        }
        let is_it = |fs: &&BtrfsFs| match resolved.map(|name| self.inventory.devices.get(name)) {
            Some(device) => device.is_some_and(|it| it.fs_uuid.as_ref() == Some(&fs.uuid)),
            None => is_source_of(mount, fs),
        };
        let mut all = self.inventory.btrfs.iter().filter(|fs| !fs.pulled.is_empty());
        self.present_member(all.find(is_it)?)
    }

    fn backing_device(&self, name: &str) -> Option<BackingDevice> {
        let device = self.inventory.devices.get(name)?;
        Some(BackingDevice {
            name: name.to_owned(),
            uuid: device.fs_uuid.clone().filter(|uuid| !uuid.is_empty()),
            btrfs: self.btrfs_of.get(name).copied(),
        })
    }

    /// Resolves a name below /dev: a kernel name (with `!` for `/`), `mapper/NAME`, `VG/LV`, or one
    /// of udev's links.
    pub(super) fn resolve(&self, below_dev: &[u8]) -> Option<&'a str> {
        let name = std::str::from_utf8(below_dev).ok()?;
        let kernel = name.replace('/', "!");
        if let Some((known, _)) = self.inventory.devices.get_key_value(kernel.as_str()) {
            return Some(known);
        }
        if let Some(known) = self.by_link.get(format!("/dev/{name}").as_str()) {
            return Some(known);
        }
        let is_it = |device: &&BlockDevice| match &device.layer {
            Layer::Dm { name: dm, volume_group, logical_volume, .. } => {
                match name.strip_prefix("mapper/") {
                    Some(mapped) => dm == mapped,
                    None => {
                        matches!((volume_group, logical_volume, name.split_once('/')), (Some(vg), Some(lv), Some(asked)) if (vg.as_str(), lv.as_str()) == asked)
                    }
                }
            }
            _ => false,
        };
        self.inventory.devices.values().find(is_it).map(|device| device.name.as_str())
    }

    /// The loop device whose backing file is `path` or a file below it.
    pub(crate) fn loop_backed_by(&self, path: &HostPath) -> Option<String> {
        self.loops
            .iter()
            .filter(|(file, _)| HostPath::from(**file).strip_prefix(path).is_some())
            .map(|(_, name)| (*name).to_owned())
            .min()
    }

    pub fn stack(&self, device: &str) -> Stack {
        self.stack_below(device, &mut Vec::new())
    }

    fn stack_below(&self, name: &str, above: &mut Vec<String>) -> Stack {
        if let Some(known) = self.stacks.borrow().get(name) {
            return known.clone();
        }
        let Some(device) = self.inventory.devices.get(name) else {
            return Stack::Nothing;
        };
        if above.len() >= MAX_DEPTH || above.iter().any(|seen| seen == name) {
            return Stack::Nothing;
        }
        above.push(name.to_owned());
        let stack = bounded(self.stack_of(device, above));
        above.pop();
        self.stacks.borrow_mut().insert(name.to_owned(), stack.clone());
        stack
    }

    fn stack_of(&self, device: &BlockDevice, above: &mut Vec<String>) -> Stack {
        if let Some(drive) = self.drive_of(device) {
            return Stack::Drive(drive.clone());
        }
        match &device.layer {
            Layer::Md { level } => self.md(device, level.as_deref(), above),
            Layer::Dm { .. } => self
                .dm_raid(device, above)
                .unwrap_or_else(|| self.stack_of_all(&device.underlying, above)),
            Layer::Loop { backing_file: Some(file) } => {
                self.stack_of_all(&self.loop_members(file), above)
            }
            _ => self.stack_of_all(&device.underlying, above),
        }
    }

    pub(super) fn stack_of_all(&self, below: &[String], above: &mut Vec<String>) -> Stack {
        combine(below.iter().map(|name| self.stack_below(name, above)).collect())
    }

    fn layer_state(&self, device: &BlockDevice) -> Option<&LayerState> {
        self.layers.get(&device.name)?.state.last_known()
    }

    /// md(4). While its state is not known, all its devices count as members in sync.
    fn md(&self, device: &BlockDevice, level: Option<&str>, above: &mut Vec<String>) -> Stack {
        let known = match self.layer_state(device) {
            Some(LayerState::Md(md)) => Some(md),
            _ => None,
        };
        let mut md = known.cloned().unwrap_or_default();
        if md.level.is_empty() {
            md.level = level.unwrap_or_default().to_owned();
        }
        let level = format!("{} {}", md.level, device.name);
        let has_members = !md.members.is_empty();
        if !has_members {
            let count = u32::try_from(device.underlying.len()).unwrap_or(u32::MAX);
            md.raid_disks = md.raid_disks.max(count);
        }
        let Some(array) = Array::of_md(&md) else {
            return self.stack_of_all(&device.underlying, above);
        };
        let mut parts = |names: &[String]| -> Vec<Stack> {
            let names = names.iter();
            names.map(|name| self.stack_below(name, above)).collect()
        };
        // Which slot a device is in is not known.
        if !has_members {
            return Stack::Redundant {
                level,
                tolerates: array.tolerates().unwrap_or(0),
                parts: parts(&device.underlying),
            };
        }
        let mut legs: Vec<Option<Stack>> = Vec::new();
        let mut filling = Vec::new();
        for member in array.members() {
            let has_copy = |member: &&Member| member.in_sync;
            let devices = match member.devices.is_empty() {
                true => &member.filling,
                false => &member.devices,
            };
            legs.push(Some(member).filter(has_copy).map(|_| combine(parts(devices))));
            if !member.devices.is_empty() || !member.in_sync {
                filling.extend(parts(&member.filling));
            }
        }
        with_rebuild(level.clone(), sets(level, &array, &legs), filling)
    }

    /// LVM's RAID: slaves `LV_rimage_N` and `LV_rmeta_N`, or `LV_mimage_N` of the older mirror; a
    /// leg has both devices with the same number.
    fn dm_raid(&self, device: &BlockDevice, above: &mut Vec<String>) -> Option<Stack> {
        let mut legs: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let mut mirror = false;
        for name in &device.underlying {
            let Some(Layer::Dm { name: dm, .. }) =
                self.inventory.devices.get(name).map(|device| &device.layer)
            else {
                continue;
            };
            let number = |mark: &str| {
                dm.rsplit_once(mark).and_then(|(_, number)| number.parse::<u32>().ok())
            };
            mirror |= number("_mimage_").is_some();
            if let Some(number) = ["_rimage_", "_rmeta_", "_mimage_"].into_iter().find_map(number) {
                legs.entry(number).or_default().push(name.clone());
            }
        }
        if legs.is_empty() {
            return None;
        }
        let stack = |names: &Vec<String>, above: &mut Vec<String>| self.stack_of_all(names, above);
        let Some(LayerState::DmRaid(DmRaid { level, health, .. })) = self.layer_state(device)
        else {
            let parts: Vec<Stack> = legs.values().map(|names| stack(names, above)).collect();
            let (level, tolerates) = if mirror {
                ("mirror".to_owned(), parts.len().saturating_sub(1))
            } else {
                ("RAID of a level not known yet".to_owned(), 1)
            };
            return Some(Stack::Redundant {
                level: format!("{level} {}", device.name),
                tolerates,
                parts,
            });
        };
        let Some(array) = self.layer_state(device).and_then(Array::of) else {
            return Some(self.stack_of_all(&device.underlying, above));
        };
        let mut whole: Vec<Option<Stack>> = vec![None; array.members().len()];
        let mut filling = Vec::new();
        for (number, names) in &legs {
            let at = *number as usize;
            let in_sync = array.members().get(at).is_none_or(|member| member.in_sync);
            match health.chars().nth(at).unwrap_or('A') {
                _ if in_sync => {
                    whole.resize(whole.len().max(at + 1), None);
                    whole[at] = Some(stack(names, above));
                }
                'a' => filling.push(stack(names, above)),
                _ => {}
            }
        }
        let level = format!("{level} {}", device.name);
        Some(with_rebuild(level.clone(), sets(level, &array, &whole), filling))
    }

    /// The weakest profile of a btrfs defines how many members it may lose (btrfs(5), PROFILES),
    /// minus those that are no copy already.
    pub fn btrfs(&self, fs: &BtrfsFs) -> Stack {
        let parts: Vec<Stack> = fs.devices.iter().map(|name| self.stack(name)).collect();
        let profiles: BTreeSet<&str> =
            fs.data_profiles.iter().chain(&fs.metadata_profiles).map(String::as_str).collect();
        let weakest = profiles.iter().map(|profile| btrfs_tolerance(profile)).min().unwrap_or(0);
        if weakest == 0 {
            return bounded(combine(parts));
        }
        let names: Vec<&str> = profiles.into_iter().collect();
        bounded(Stack::Redundant {
            level: format!("btrfs {}", names.join("+")),
            tolerates: weakest.saturating_sub(fs.without_copy()),
            parts,
        })
    }

    /// The devices that contain the file of a loop device.
    fn loop_members(&self, backing_file: &str) -> Vec<String> {
        let device = self.loop_backing_device(backing_file);
        device.map(|found| self.members(&found)).unwrap_or_default()
    }

    fn loop_backing_device(&self, backing_file: &str) -> Option<BackingDevice> {
        let path = HostPath::from(backing_file.strip_suffix(" (deleted)").unwrap_or(backing_file));
        let below_dev = path.as_bytes().strip_prefix(b"/dev/");
        if let Some(device) = below_dev.and_then(|name| self.resolve(name)) {
            return self.backing_device(device);
        }
        self.device_of(self.table.containing(&path)?)
    }

    /// The drive that has this block device.
    fn drive_of(&self, device: &'a BlockDevice) -> Option<&'a DriveId> {
        device.drive.as_ref().filter(|_| !self.images.contains(device.name.as_str()))
    }

    pub(super) fn btrfs_fs(&self, found: &BackingDevice) -> Option<&'a BtrfsFs> {
        self.inventory.btrfs.get(found.btrfs?)
    }

    pub(super) fn members(&self, found: &BackingDevice) -> Vec<String> {
        match self.btrfs_fs(found) {
            Some(fs) => fs.devices.clone(),
            None => vec![found.name.clone()],
        }
    }

    /// The stack below a filesystem.
    pub(super) fn filesystem_stack(&self, found: &BackingDevice) -> Stack {
        match self.btrfs_fs(found) {
            Some(fs) => self.btrfs(fs),
            None => self.stack(&found.name),
        }
    }

    pub(super) fn table(&self) -> &'a MountTree<'a> {
        self.table
    }

    /// The physical volumes below the active logical volumes of a volume group; the kernel reports
    /// no others. Sorted.
    pub(super) fn members_of_group(&self, group: &[u8]) -> Vec<String> {
        let is_in = |device: &BlockDevice| matches!(&device.layer, Layer::Dm { volume_group: Some(name), .. } if name.as_bytes() == group);
        let inside = |name: &&String| self.inventory.devices.get(*name).is_some_and(is_in);
        let volumes = self.inventory.devices.values().filter(|device| is_in(device));
        let below: BTreeSet<&String> =
            volumes.flat_map(|device| &device.underlying).filter(|name| !inside(name)).collect();
        below.into_iter().cloned().collect()
    }

    /// These devices and all devices below them, top first, each once.
    pub(crate) fn devices_below(&self, tops: &[String]) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let mut order = Vec::new();
        let mut next: VecDeque<String> = tops.iter().cloned().collect();
        while let Some(name) = next.pop_front() {
            if !seen.insert(name.clone()) {
                continue;
            }
            if let Some(device) = self.inventory.devices.get(&name) {
                next.extend(device.underlying.iter().cloned());
                if let (Layer::Loop { backing_file: Some(file) }, None) =
                    (&device.layer, self.drive_of(device))
                {
                    next.extend(self.loop_members(file));
                }
                order.push(name);
            }
        }
        order
    }

    pub(crate) fn drives_of(&self, devices: &[String]) -> Vec<DriveId> {
        let drives: BTreeSet<DriveId> = devices
            .iter()
            .filter_map(|name| self.drive_of(self.inventory.devices.get(name)?).cloned())
            .collect();
        drives.into_iter().collect()
    }

    pub(crate) fn all_remote(&self, drives: &[DriveId]) -> bool {
        drives.iter().all(|id| {
            self.inventory.drives.iter().any(|drive| drive.id == *id && drive.transport.is_remote())
        })
    }
}

/// The stack of an array: each set of members that hold the same data. `legs`: by slot, what is below
/// each member that holds current data.
fn sets(level: String, array: &Array, legs: &[Option<Stack>]) -> Vec<Stack> {
    let redundant = |tolerates: usize, parts: Vec<Stack>| Stack::Redundant {
        level: level.clone(),
        tolerates,
        parts,
    };
    match array.copy_sets() {
        Some(sets) => sets
            .into_iter()
            .map(|set| {
                let members = set.members.iter();
                let parts = members.filter_map(|slot| legs.get(*slot)?.clone());
                redundant(set.tolerates, parts.collect())
            })
            .collect(),
        // Some of its data has no copy left: it needs all that is there.
        None => vec![redundant(0, legs.iter().flatten().cloned().collect())],
    }
}

fn is_source_of(mount: &Mount, fs: &BtrfsFs) -> bool {
    let name = mounts::device_name(&mount.source);
    name.is_some_and(|name| fs.has_member(&name))
}
