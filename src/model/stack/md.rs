//! md arrays. Read by `source/layers/md.rs`; counters of members: `source/counters/md.rs`.

pub(super) mod members;

use serde::{Deserialize, Serialize};

use crate::block::{Inventory, Layer};
use crate::redundancy::{Array, Member, Scheme};
use crate::stack::md::members::absent_members;
use crate::stack::{Kind, StorageStack, tree_of_array};
use crate::volume::Stack;
use diskvitals_finding::ids::DriveId;

/// More than any metadata format of md allows.
const MAX_SLOTS: usize = 4096;

/// From /sys/block/mdN/md (Documentation/admin-guide/md.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdState {
    pub level: String,
    /// md's layout word: what it means depends on the level.
    #[serde(default)]
    pub layout: Option<u32>,
    pub raid_disks: u32,
    /// Number of devices that the array lacks; 0 when complete.
    pub degraded: u32,
    pub array_state: String,
    pub sync_action: Option<String>,
    /// Sectors done and total during a rebuild or check.
    pub sync_completed: Option<(u64, u64)>,
    /// The whole array has to be synchronized, or is: after a crash, or after its creation.
    #[serde(default)]
    pub is_resync_due: bool,
    pub members: Vec<MdMember>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdMember {
    /// Kernel name of the member (`sda1`).
    pub device: String,
    /// `in_sync`, `faulty`, `spare`, `write_mostly`…, comma-separated.
    pub state: String,
    pub slot: Option<u32>,
    pub errors: u64,
    /// Ranges that it does not hold: first sector, counted from where its data begins, and length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_blocks: Vec<(u64, u64)>,
}

impl StorageStack for MdState {
    fn kind(&self) -> Kind {
        Kind::Array
    }

    fn level(&self) -> String {
        self.level.clone()
    }

    fn figure(&self) -> String {
        let present = self.raid_disks.saturating_sub(self.degraded);
        format!("{}, {present} of {} devices", self.level, self.raid_disks)
    }

    fn members(&self, _: &Inventory, _: &str) -> Vec<String> {
        let in_sync = self.members.iter().filter(|member| member.is("in_sync"));
        in_sync.map(|member| member.device.clone()).collect()
    }

    /// md(4). While its state is not known, all its devices count as members in sync.
    fn tree(
        &self,
        inventory: &Inventory,
        name: &str,
        below: &mut dyn FnMut(&str) -> Stack,
    ) -> Option<Stack> {
        let device = inventory.devices.get(name)?;
        let mut md = self.clone();
        if let (true, Layer::Md { level: Some(level) }) = (md.level.is_empty(), &device.layer) {
            md.level.clone_from(level);
        }
        let level = format!("{} {name}", md.level);
        let has_members = !md.members.is_empty();
        if !has_members {
            let count = u32::try_from(device.underlying.len()).unwrap_or(u32::MAX);
            md.raid_disks = md.raid_disks.max(count);
        }
        let mut parts =
            |names: &[String]| -> Vec<Stack> { names.iter().map(|name| below(name)).collect() };
        let Some(array) = md.array() else {
            return Some(Stack::all_of(parts(&device.underlying)));
        };
        // Which slot a device is in is not known.
        if !has_members {
            return Some(Stack::Redundant {
                level,
                tolerates: array.tolerates().unwrap_or(0),
                parts: parts(&device.underlying),
            });
        }
        let mut legs: Vec<Option<Stack>> = Vec::new();
        let mut filling = Vec::new();
        for member in array.members() {
            let has_copy = |member: &&Member| member.in_sync;
            let devices = match member.devices.is_empty() {
                true => &member.filling,
                false => &member.devices,
            };
            legs.push(Some(member).filter(has_copy).map(|_| Stack::all_of(parts(devices))));
            if !member.devices.is_empty() || !member.in_sync {
                filling.extend(parts(&member.filling));
            }
        }
        Some(tree_of_array(&level, &array, &legs, filling))
    }

    /// Spares, and members that are being filled, hold no current data; a member that is only written
    /// to does, and so does the old member while its replacement is filled (state_show(),
    /// drivers/md/md.c).
    fn array(&self) -> Option<Array> {
        let scheme = Scheme::of(&self.level, self.layout)?;
        let slots = self.members.iter().filter_map(|member| member.slot);
        let slots = slots.map(|slot| slot as usize + 1).max().unwrap_or(0);
        let slots = slots.max(self.raid_disks as usize).min(MAX_SLOTS);
        let mut members = vec![Member::default(); slots];
        for member in &self.members {
            let Some(slot) = member.slot.and_then(|slot| members.get_mut(slot as usize)) else {
                continue;
            };
            if member.is("in_sync") {
                slot.in_sync = true;
                slot.devices.push(member.device.clone());
                slot.bad_blocks.extend(&member.bad_blocks);
            } else if !member.is("faulty") {
                slot.filling.push(member.device.clone());
            }
        }
        // The files are read one after the other. The kernel's own count decides.
        let degraded = self.degraded as usize;
        let listed = members.iter().filter(|member| !member.in_sync).count();
        if self.members.is_empty() || degraded == 0 {
            members.iter_mut().for_each(|member| member.in_sync = true);
        }
        let unlisted = degraded.saturating_sub(if self.members.is_empty() { 0 } else { listed });
        let in_sync = members.iter_mut().rev().filter(|member| member.in_sync);
        in_sync.take(unlisted).for_each(|member| member.in_sync = false);
        Some(Array::new(scheme, members, self.is_resync_due))
    }

    fn is_intact(&self) -> Option<bool> {
        Some(self.degraded == 0)
    }

    fn is_bad(&self) -> bool {
        self.array_state == "inactive"
            || match self.array() {
                Some(array) => array.is_short(),
                None => self.degraded > 0,
            }
    }

    fn action(&self) -> Option<&str> {
        self.sync_action.as_deref()
    }

    fn runs_without(
        &self,
        inventory: &Inventory,
        name: &str,
        drive: &DriveId,
    ) -> Vec<(String, String)> {
        let Some(array) = inventory.devices.get(name) else {
            return Vec::new();
        };
        // A member over several drives blames none of them.
        let is_on_drive = |device: &str| {
            let drives = inventory.drives_below(device);
            drives.len() == 1 && drives.contains(drive)
        };
        let faulty = self.members.iter().filter(|member| member.is("faulty"));
        let faulty = faulty.filter(|member| is_on_drive(&member.device)).map(|member| {
            let file = format!("/sys/block/{name}/md/dev-{}/state", member.device);
            (file, member.state.clone())
        });
        let absent = absent_members(inventory, array, self).into_iter();
        let absent = absent.filter(|device| is_on_drive(&device.name)).map(|device| {
            let uuid = device.fs_uuid.as_deref().unwrap_or_default();
            let text = format!(
                "degraded {} without {}, whose superblock is of this array ({uuid})",
                self.degraded, device.name
            );
            (format!("/sys/block/{name}/md"), text)
        });
        faulty.chain(absent).collect()
    }

    fn clear_usage(&mut self) {
        self.sync_completed = None;
    }
}

impl MdMember {
    /// Whether its state has this word.
    pub fn is(&self, word: &str) -> bool {
        self.state.split(',').any(|part| part.trim() == word)
    }
}
