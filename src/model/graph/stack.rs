//! From a block device down to the drives: which layers are between them, and how the loss of a
//! drive affects the layers above.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::block::{BlockDevice, Inventory, Layer, LayerState};
use crate::facts::LayerFacts;
use crate::graph::MountedBtrfs;
use crate::graph::mounts::{self, FsKind, MountTree};
use crate::stack::{self, BtrfsFs, StorageStack};
use crate::volume::Stack;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;

/// Maximum number of layers: far more than any real system has; it also ends a damaged graph.
const MAX_DEPTH: usize = 32;
/// A stack with more parts becomes a plain list of its drives. Every drive is then required, which
/// never hides a failure.
const MAX_PARTS: usize = 1024;
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
        if mount.fs_type == "zfs" {
            let dataset = std::str::from_utf8(mount.source.as_bytes()).ok()?;
            return self.backing_device(&stack::device_of_dataset(dataset));
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
        if let Layer::Loop { backing_file: Some(file) } = &device.layer {
            return self.stack_of_all(&self.loop_members(file), above);
        }
        let mut below = |name: &str| self.stack_below(name, above);
        stack::tree(self.inventory, device, self.layer_state(device), &mut below)
            .unwrap_or_else(|| self.stack_of_all(&device.underlying, above))
    }

    pub(super) fn stack_of_all(&self, below: &[String], above: &mut Vec<String>) -> Stack {
        Stack::all_of(below.iter().map(|name| self.stack_below(name, above)).collect())
    }

    fn layer_state(&self, device: &BlockDevice) -> Option<&LayerState> {
        self.layers.get(&device.name)?.state.last_known()
    }

    pub fn btrfs(&self, fs: &BtrfsFs) -> Stack {
        let tree = fs.tree(self.inventory, "", &mut |name| self.stack(name));
        bounded(tree.unwrap_or_default())
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

fn is_source_of(mount: &Mount, fs: &BtrfsFs) -> bool {
    let name = mounts::device_name(&mount.source);
    name.is_some_and(|name| fs.has_member(&name))
}

fn bounded(stack: Stack) -> Stack {
    if count(&stack) <= MAX_PARTS {
        return stack;
    }
    Stack::All(stack.drives().into_iter().cloned().map(Stack::Drive).collect())
}

fn count(stack: &Stack) -> usize {
    match stack {
        Stack::Nothing | Stack::Drive(_) => 1,
        Stack::All(parts) | Stack::Redundant { parts, .. } | Stack::Undetermined { parts, .. } => {
            1 + parts.iter().map(count).sum::<usize>()
        }
    }
}
