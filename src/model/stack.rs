//! Storage stacks: one kind of what lies between drives and filesystems in each file.
//!
//! In: the state that a source has read. Out: which devices below hold the data, how many of them may
//! still fail, what it lacks, and how people call it and its state. How severe that is, `assess` decides.
//!
//! crypt and linear tables are none: they need each device below, and have no state. Counters of bcache
//! are read by `source/counters/bcache.rs`.

mod btrfs;
mod cache;
mod dm_raid;
mod integrity;
mod md;
mod multipath;
mod shortfall;
mod thin;
mod zfs;

pub use btrfs::{BtrfsFs, BtrfsMember, PulledMember, ReturnedMember};
pub use cache::BlockCache;
pub use dm_raid::DmRaid;
pub use integrity::DmIntegrity;
pub use md::{MdMember, MdState};
pub use multipath::{Multipath, MultipathPath};
pub(crate) use shortfall::{Left, Place, Shortfall, action_text, progress_text, progress_words};
pub use thin::ThinPool;
pub use zfs::{
    PoolScan, PoolState, PoolStatus, ScanState, Vdev, VdevClass, VdevState, ZfsPool,
    device_of_dataset, device_of_pool,
};
pub(crate) use zfs::{UNKNOWN_LAYOUT, pool_of_device, state_file};

use crate::block::{BlockDevice, Inventory, Layer, LayerState};
use crate::label;
use crate::redundancy::Array;
use crate::volume::{Stack, VolumeFacts};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::LayerKind;

/// How a device below depends on drives, by its name.
pub(crate) type Below<'a> = &'a mut dyn FnMut(&str) -> Stack;

/// A file that shows something, and its content.
pub(crate) type Proof = (String, String);

/// One kind of storage stack. `name`: the kernel name of its device; a filesystem over its own devices
/// has none, and does not use it.
pub(crate) trait StorageStack {
    fn kind(&self) -> LayerKind;

    /// `raid1`; empty if it has none.
    fn level(&self) -> String {
        String::new()
    }

    fn name(&self, inventory: &Inventory, name: &str) -> String {
        label::device(inventory, name)
    }

    /// Its name and level: `md0 (raid1)`.
    fn label(&self, inventory: &Inventory, name: &str) -> String {
        format!("{} ({})", self.name(inventory, name), self.level())
    }

    /// Its state in short: `raid1, 1 of 2 devices`.
    fn figure(&self) -> String;

    /// The devices below that hold its current data.
    fn members(&self, _inventory: &Inventory, _name: &str) -> Vec<String> {
        Vec::new()
    }

    /// How it depends on the devices below. None: it needs each of them.
    fn tree(&self, _: &Inventory, _name: &str, _: Below) -> Option<Stack> {
        None
    }

    /// What holds the copies, if they are in slots. None: its level has no redundancy.
    fn array(&self) -> Option<Array> {
        None
    }

    /// Whether drive-managed SMR does not suit its members: it rewrites parity in place, or does not fill
    /// a new member in the order of its sectors.
    fn is_hard_on_smr(&self) -> bool {
        self.array().is_some_and(|array| array.is_parity())
    }

    /// How many further members may fail, in the worst case. None: it has no redundancy, or some of
    /// its data has no copy left.
    fn tolerates(&self) -> Option<usize> {
        self.array()?.tolerates()
    }

    /// Whether it has all its members; None where that is not asked.
    fn is_intact(&self) -> Option<bool> {
        None
    }

    /// Whether it is not as it should be.
    fn is_bad(&self) -> bool {
        match self.array() {
            Some(array) => array.is_short(),
            None => self.is_intact() == Some(false),
        }
    }

    /// How many of its members lack current data. None: that is not known.
    fn lacking(&self) -> Option<usize> {
        Some(self.array()?.members().iter().filter(|member| !member.in_sync).count())
    }

    /// What it lacks. None: nothing, or it has no redundancy.
    fn shortfall(&self, _: Place) -> Option<Shortfall> {
        None
    }

    /// md's word for what runs: `idle`, `check`, `recover`…
    fn action(&self) -> Option<&str> {
        None
    }

    /// The same, while anything runs.
    fn running(&self) -> Option<&str> {
        self.action().filter(|action| !matches!(*action, "idle" | "frozen" | "none" | ""))
    }

    /// Of what runs: how much is done, and all of it.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }

    /// Until what runs has ended, at its present speed.
    fn seconds_left(&self) -> Option<u64> {
        None
    }

    /// Sectors that differed at the last check or repair. None: none has ended since it was assembled.
    fn mismatches(&self) -> Option<u64> {
        None
    }

    /// Whether a check or a scrub of it compares copies, parity or checksums.
    fn is_scrubbed(&self) -> bool {
        self.array().is_some_and(|array| array.members().len() > 1)
    }

    /// Bytes or blocks, all and free, if they are of one pool.
    fn space(&self) -> Option<(u64, u64)> {
        None
    }

    /// What shows that it runs without a device of the drive that was its member.
    fn runs_without(&self, _: &Inventory, _name: &str, _: &DriveId) -> Vec<Proof> {
        Vec::new()
    }

    /// Clears what changes with each reading.
    fn clear_usage(&mut self) {}
}

impl LayerState {
    pub(crate) fn stack(&self) -> Option<&dyn StorageStack> {
        match self {
            LayerState::Md(md) => Some(md),
            LayerState::Thin(pool) => Some(pool),
            LayerState::Multipath(multipath) => Some(multipath),
            LayerState::DmRaid(raid) => Some(raid),
            LayerState::Zfs(pool) => Some(pool),
            LayerState::Cache(cache) => Some(cache),
            LayerState::Integrity(_) | LayerState::Linear { .. } | LayerState::Plain => None,
        }
    }

    pub(crate) fn stack_mut(&mut self) -> Option<&mut dyn StorageStack> {
        match self {
            LayerState::Md(md) => Some(md),
            LayerState::Thin(pool) => Some(pool),
            LayerState::Multipath(multipath) => Some(multipath),
            LayerState::DmRaid(raid) => Some(raid),
            LayerState::Zfs(pool) => Some(pool),
            LayerState::Cache(cache) => Some(cache),
            LayerState::Integrity(_) | LayerState::Linear { .. } | LayerState::Plain => None,
        }
    }

    /// Whether a redundant layer has all its members; None for other layers.
    pub(crate) fn is_intact(&self) -> Option<bool> {
        self.stack()?.is_intact()
    }
}

/// A filesystem that is a stack itself, with its UUID.
pub(crate) fn of_volume<'a>(
    inventory: &'a Inventory,
    volume: &VolumeFacts,
) -> Option<(&'a str, &'a dyn StorageStack)> {
    let fs = inventory.btrfs_of(volume.device.as_ref()?)?;
    Some((&fs.uuid, fs))
}

pub(crate) fn of_uuid<'a>(inventory: &'a Inventory, uuid: &str) -> Option<&'a dyn StorageStack> {
    let fs = inventory.btrfs.iter().find(|fs| fs.uuid == uuid)?;
    Some(fs)
}

/// How a device depends on those below it, also while its state is not known.
pub(crate) fn tree(
    inventory: &Inventory,
    device: &BlockDevice,
    state: Option<&LayerState>,
    below: Below,
) -> Option<Stack> {
    let known = state.and_then(LayerState::stack);
    let tree = known.and_then(|stack| stack.tree(inventory, &device.name, below));
    tree.or_else(|| match &device.layer {
        Layer::Md { .. } => MdState::default().tree(inventory, &device.name, below),
        Layer::Dm { .. } => DmRaid::default().tree(inventory, &device.name, below),
        _ => None,
    })
}

/// An array: each set of members that hold the same data. `legs`: by slot, what is below each member
/// that holds current data. Members that are being filled hold none yet: losing one costs the rebuild,
/// not the data.
fn tree_of_array(level: &str, array: &Array, legs: &[Option<Stack>], filling: Vec<Stack>) -> Stack {
    let redundant = |tolerates: usize, parts: Vec<Stack>| Stack::Redundant {
        level: level.to_owned(),
        tolerates,
        parts,
    };
    let mut sets: Vec<Stack> = match array.copy_sets() {
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
    };
    if !filling.is_empty() {
        sets.push(Stack::Redundant {
            level: format!("{level}, rebuilding"),
            tolerates: filling.len(),
            parts: filling,
        });
    }
    Stack::all_of(sets)
}
