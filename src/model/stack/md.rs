//! md arrays. Read by `source/layers/md.rs`; counters of members: `source/counters/md.rs`. What was in
//! each slot: `facts/md_slots.rs`.

mod members;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::assess::join_limited;
use crate::block::{Inventory, Layer};
use crate::redundancy::{Array, Member, Scheme};
use crate::stack::md::members::{FaultyMember, absent_members};
use crate::stack::shortfall::{action_text, progress_text};
use crate::stack::{Below, Left, Place, Proof, Shortfall, StorageStack, tree_of_array};
use crate::volume::Stack;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::LayerKind;

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
    /// KiB/s of what runs, over the last half minute.
    #[serde(default)]
    pub sync_speed: Option<u64>,
    /// What ran last: `check` says nothing of whether it came to its end.
    #[serde(default)]
    pub last_sync_action: Option<String>,
    /// Sectors that differed at the last check or repair. In memory only: 0 after each assembly.
    #[serde(default)]
    pub mismatch_cnt: Option<u64>,
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
    fn kind(&self) -> LayerKind {
        LayerKind::Array
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
    fn tree(&self, inventory: &Inventory, name: &str, below: Below) -> Option<Stack> {
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
            let parts = parts(&device.underlying);
            return Some(match md.level.is_empty() && parts.len() > 1 {
                true => Stack::Undetermined {
                    level: format!("array {name} whose level is not known"),
                    parts,
                },
                false => Stack::all_of(parts),
            });
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

    fn shortfall(&self, place: Place) -> Option<Shortfall> {
        // md.rst, array_state: these do no I/O. `broken` is a raid0 or linear array that has lost a
        // member.
        let is_stopped =
            matches!(self.array_state.as_str(), "inactive" | "clear" | "broken" | "suspended");
        let array = self.array();
        let left = match &array {
            _ if is_stopped => Left::Stopped,
            None if self.degraded > 0 => Left::TooFew,
            None => return None,
            Some(array) => Left::of(array)?,
        };
        if array.as_ref().is_some_and(|array| place.never_had_the_others(self, array)) {
            return None;
        }
        let faulty = place.faulty_members(self);
        let missing = array.as_ref().map(|array| place.missing_members(self, array, &faulty));
        let devices_of = |slot: usize| {
            let members = array.as_ref().map(Array::members).unwrap_or_default();
            members.get(slot).map(|member| member.devices.clone()).unwrap_or_default()
        };
        let all = self.raid_disks as usize;
        let shortfall = Shortfall {
            name: place.device_label(place.name),
            level: self.level(),
            unit: "devices",
            slots: "raid devices",
            have: all.saturating_sub(self.degraded as usize),
            all,
            left,
            state: self.array_state.clone(),
            action: action_text(self.action()),
            progress: progress_text(self),
            is_rebuilding: self.action() == Some("recover"),
            missing: missing.unwrap_or_default(),
            faulty: faulty.iter().map(|member| member.text.clone()).collect(),
            proof: self.proof(place.name),
            ..Shortfall::of_array(place, array.as_ref(), &devices_of)
        };
        Some(Shortfall { repair: self.repair(place, &shortfall, &faulty), ..shortfall })
    }

    fn action(&self) -> Option<&str> {
        self.sync_action.as_deref()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.sync_completed
    }

    fn seconds_left(&self) -> Option<u64> {
        let (done, all) = self.sync_completed?;
        let kibibytes = all.checked_sub(done)? / 2;
        kibibytes.checked_div(self.sync_speed?)
    }

    fn mismatches(&self) -> Option<u64> {
        let was_checked = matches!(self.last_sync_action.as_deref(), Some("check" | "repair"));
        self.mismatch_cnt.filter(|_| was_checked && self.action() == Some("idle"))
    }

    fn runs_without(&self, inventory: &Inventory, name: &str, drive: &DriveId) -> Vec<Proof> {
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
        (self.sync_completed, self.sync_speed) = (None, None);
    }
}

impl MdState {
    /// A member that is still listed keeps its place: md answers `--add` with `busy`.
    fn repair(&self, place: Place, shortfall: &Shortfall, faulty: &[FaultyMember]) -> String {
        let (name, when) = (&shortfall.name, shortfall.left.deadline());
        if shortfall.waits_for_parity {
            return format!(
                "Let the synchronization of {name} run (`mdadm --readwrite /dev/{name}`, or `idle` to /sys/block/{name}/md/sync_action)."
            );
        }
        if !shortfall.lacking.is_empty() && shortfall.have == shortfall.all {
            return format!(
                "Replace the drive that lacks ranges {when}, and leave it in the array until the new one is complete: `mdadm /dev/{name} --add /dev/NEW`, then `mdadm /dev/{name} --replace /dev/OLD`."
            );
        }
        let re_add = match faulty.is_empty() {
            true => {
                "Add the old drive again (`--re-add`, or `--add` if mdadm refuses that) only if it tests healthy."
            }
            false => {
                "Add the old drive again (`--re-add`, or `--add` if mdadm refuses that) only if cable or power was at fault and it tests healthy."
            }
        };
        let first = match faulty {
            [] => format!("Replace the missing device {when}"),
            faulty => {
                let commands = faulty
                    .iter()
                    .map(|it| format!("`mdadm /dev/{name} --remove /dev/{}`", it.device));
                format!(
                    "Remove what is faulty from the array: {}. Replace its drive {when}",
                    join_limited(commands)
                )
            }
        };
        match self.members.iter().any(|member| place.is_partition(&member.device)) {
            true => format!(
                "{first}: partition the new drive like the others and add the partition: `mdadm /dev/{name} --add /dev/NEW_PARTITION`. {re_add}"
            ),
            false => format!("{first}: `mdadm /dev/{name} --add /dev/NEW`. {re_add}"),
        }
    }

    /// What shows the state of the array and its members.
    fn proof(&self, name: &str) -> Vec<Proof> {
        let file = |name_below: &str| format!("/sys/block/{name}/md/{name_below}");
        let mut proof = vec![
            (file("degraded"), self.degraded.to_string()),
            (file("raid_disks"), self.raid_disks.to_string()),
            (file("array_state"), self.array_state.clone()),
        ];
        let mut states: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for member in &self.members {
            states.entry(&member.state).or_default().push(&member.device);
        }
        proof.extend(states.iter().map(|(state, devices)| {
            let devices = devices.join(",");
            let devices = match devices.contains(',') {
                true => format!("{{{devices}}}"),
                false => devices,
            };
            (file(&format!("dev-{devices}/state")), (*state).to_owned())
        }));
        proof
    }
}

impl MdMember {
    /// Whether its state has this word.
    pub fn is(&self, word: &str) -> bool {
        self.state.split(',').any(|part| part.trim() == word)
    }
}
