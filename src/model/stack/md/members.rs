//! The members of an md array by name: those that are missing, those that failed, and devices with its
//! superblock.

use crate::block::{BlockDevice, Inventory, Layer};
use crate::facts::KnownDrive;
use crate::redundancy::Array;
use crate::stack::shortfall::{drive_text, serial_of};
use crate::stack::{MdState, Place};
use diskvitals_finding::ids::DriveId;

/// Vendors of network storage mirror their system over all bays, also the empty ones. Nobody makes
/// a mirror of so many for its own sake.
const MANY_SLOTS: usize = 4;

/// A member that md still lists and no longer uses.
#[derive(Debug)]
pub(super) struct FaultyMember {
    /// Kernel name.
    pub device: String,
    pub drive: Option<DriveId>,
    /// With what was seen of it while it was in sync: `sdb1 (serial S, last in sync …)`.
    pub text: String,
}

/// A drive with the array's superblock that the array does not list.
pub(super) struct FormerMember {
    drive: Option<DriveId>,
    text: String,
}

impl Place<'_> {
    pub(super) fn is_partition(self, device: &str) -> bool {
        let device = self.facts.inventory().and_then(|it| it.devices.get(device));
        device.is_some_and(|device| matches!(device.layer, Layer::Partition { .. }))
    }

    pub(super) fn faulty_members(self, md: &MdState) -> Vec<FaultyMember> {
        let history = self.facts.layers.get(self.name).map(|layer| &layer.slots);
        let listed = md.members.iter().filter(|member| member.is("faulty"));
        let members = listed.map(|member| {
            let device = member.device.clone();
            let seen = history.and_then(|it| it.values().find(|seen| seen.device == device));
            let drive = seen.and_then(|seen| seen.drive.clone());
            let known = drive.as_ref().and_then(|id| self.facts.drives.get(id));
            let text = match (seen, known.and_then(serial_of)) {
                (Some(seen), serial) => {
                    let last = self.facts.wall_text(seen.last_in_sync);
                    let serial = serial.map(|serial| format!("serial {serial}, "));
                    let serial = serial.unwrap_or_default();
                    format!("{device} ({serial}last in sync {last})")
                }
                (None, _) => device.clone(),
            };
            FaultyMember { device, drive, text }
        });
        members.collect()
    }

    /// md's raid devices that hold nothing, with what was there if it was seen:
    /// `raid device 1 (was sdb, serial S, last in sync …)`. Members that failed and are still listed
    /// are named instead, if they are as many.
    pub(super) fn missing_members(
        self,
        md: &MdState,
        array: &Array,
        faulty: &[FaultyMember],
    ) -> Vec<String> {
        let history = self.facts.layers.get(self.name).map(|layer| &layer.slots);
        let empty: Vec<usize> = array
            .missing_slots()
            .filter(|slot| array.members()[*slot].filling.is_empty())
            .collect();
        let mut former = self.former_members(md);
        let is_other =
            |it: &FormerMember, drive: &Option<DriveId>| drive.is_none() || it.drive != *drive;
        former.retain(|it| faulty.iter().all(|member| is_other(it, &member.drive)));
        let are_listed = !faulty.is_empty() && faulty.len() == empty.len();
        let mut missing = Vec::new();
        for slot in empty.iter().filter(|_| !are_listed) {
            let key = u32::try_from(*slot).unwrap_or(u32::MAX);
            missing.push(match history.and_then(|history| history.get(&key)) {
                Some(seen) => {
                    former.retain(|it| is_other(it, &seen.drive));
                    let drive = seen.drive.as_ref().and_then(|id| self.facts.drives.get(id));
                    let was = drive.map_or_else(|| seen.device.clone(), drive_text);
                    let last = self.facts.wall_text(seen.last_in_sync);
                    format!("raid device {slot} (was {was}, last in sync {last})")
                }
                None if empty.len() == 1 && former.len() == 1 => {
                    format!("raid device {slot} (was {})", former.remove(0).text)
                }
                None => format!("raid device {slot}"),
            });
        }
        let former = former.into_iter();
        missing.extend(former.map(|it| format!("once a member: {}", it.text)));
        missing
    }

    /// Drives with the array's superblock that it does not list, present or not.
    pub(super) fn former_members(self, md: &MdState) -> Vec<FormerMember> {
        let Some(inventory) = self.facts.inventory() else {
            return Vec::new();
        };
        let Some(device) = inventory.devices.get(self.name) else {
            return Vec::new();
        };
        let present = absent_members(inventory, device, md).into_iter();
        let mut former: Vec<FormerMember> = present
            .map(|member| {
                let drives = inventory.drives_below(&member.name);
                let drive = drives.into_iter().next();
                let known = drive.and_then(|id| self.facts.drives.get(id));
                FormerMember {
                    drive: drive.cloned(),
                    text: known.map_or_else(|| member.name.clone(), drive_text),
                }
            })
            .collect();
        let uuid = array_uuid(inventory, device, md);
        let is_of_array = |known: &&KnownDrive| {
            known.missing_since.is_some()
                && known.signatures.iter().any(|signature| {
                    signature.fs_type == MEMBER_TYPE
                        && uuid.is_some()
                        && signature.uuid.as_ref() == uuid
                })
        };
        let gone = self.facts.drives.values().filter(is_of_array);
        former.extend(gone.map(|known| {
            let last = self.facts.wall_text(known.last_seen);
            FormerMember {
                drive: Some(known.facts.id.clone()),
                text: format!("{}, last seen {last}", drive_text(known)),
            }
        }));
        former
    }

    /// A mirror with two copies at least, of which nothing shows that its empty slots ever held a
    /// member.
    pub(super) fn never_had_the_others(self, md: &MdState, array: &Array) -> bool {
        let history = self.facts.layers.get(self.name).map(|layer| &layer.slots);
        let is_new = |slot: usize| {
            let slot = u32::try_from(slot).unwrap_or(u32::MAX);
            history.is_none_or(|history| !history.contains_key(&slot))
        };
        array.is_mirror()
            && array.members().len() >= MANY_SLOTS
            && array.count_in_sync() >= 2
            && array.tolerates().is_some_and(|tolerates| tolerates + 1 == array.count_in_sync())
            && array.members().iter().all(|member| member.filling.is_empty())
            && array.missing_slots().all(is_new)
            && !md.members.iter().any(|member| member.is("faulty"))
            && self.former_members(md).is_empty()
    }
}

/// Devices with the array's superblock that a degraded array does not list, but for copies of members
/// that it lists. All members have the array's UUID as ID_FS_UUID.
pub(super) fn absent_members<'a>(
    inventory: &'a Inventory,
    array: &BlockDevice,
    md: &MdState,
) -> Vec<&'a BlockDevice> {
    if md.degraded == 0 {
        return Vec::new();
    }
    let uuid = array_uuid(inventory, array, md);
    let (listed, others): (Vec<&BlockDevice>, Vec<&BlockDevice>) = members(inventory)
        .filter(|device| uuid.is_some() && device.fs_uuid.as_ref() == uuid)
        .partition(|device| is_listed(array, md, &device.name));
    let is_copy = |device: &BlockDevice| {
        let own = device.fs_uuid_sub.as_ref();
        own.is_some() && listed.iter().any(|it| it.fs_uuid_sub.as_ref() == own)
    };
    others.into_iter().filter(|device| !is_copy(device)).collect()
}

fn is_listed(array: &BlockDevice, md: &MdState, name: &String) -> bool {
    array.underlying.contains(name) || md.members.iter().any(|member| member.device == *name)
}

fn members(inventory: &Inventory) -> impl Iterator<Item = &BlockDevice> {
    let devices = inventory.devices.values();
    devices
        .filter(|device| device.fs_type.as_deref() == Some(MEMBER_TYPE) && device.fs_uuid.is_some())
}

/// udev's name for a member of an md array.
const MEMBER_TYPE: &str = "linux_raid_member";

/// The UUID in the superblocks of the array's members.
fn array_uuid<'a>(
    inventory: &'a Inventory,
    array: &BlockDevice,
    md: &MdState,
) -> Option<&'a String> {
    members(inventory)
        .find(|device| is_listed(array, md, &device.name))
        .and_then(|device| device.fs_uuid.as_ref())
}
