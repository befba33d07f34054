//! What was in each slot of an md array when it was last in sync.
//!
//! In: states of the array. Out: `LayerFacts::slots`, and a note for each slot that lost its member.
//! Notes are kept across restarts, by the array's UUID: its kernel name may change.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::block::BlockDevice;
use crate::counters::CounterHistory;
use crate::facts::{Facts, SlotHistory};
use crate::stack::MdState;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;

/// The kind of note; its name is followed by the slot.
pub(super) const LOST: &str = "md-slot ";
/// udev's link of an array, without which nothing identifies it (63-md-raid-arrays.rules).
const UUID_LINK: &str = "/dev/disk/by-id/md-uuid-";

impl SlotHistory {
    fn from_note(note: &CounterHistory) -> Option<SlotHistory> {
        Some(SlotHistory {
            device: note.details.get("device")?.clone(),
            drive: note.details.get("drive").map(DriveId::known),
            last_in_sync: note.details.get("last_in_sync")?.parse().ok()?,
        })
    }

    fn to_note(&self, array: &str) -> CounterHistory {
        let details = [
            ("device", Some(self.device.clone())),
            ("drive", self.drive.as_ref().map(DriveId::to_string)),
            ("last_in_sync", Some(self.last_in_sync.to_string())),
        ];
        CounterHistory::note(format!("/sys/block/{array}/md"), details)
    }
}

/// The hexadecimal digits of a UUID: mdadm and blkid write it differently.
pub(super) fn digits(uuid: &str) -> String {
    uuid.chars().filter(char::is_ascii_hexdigit).collect()
}

impl Facts {
    pub(super) fn record_slots(&mut self, array: &str, md: &MdState, at: Timestamp) {
        let Some(owner) = self.array_of_state(array, md) else {
            return;
        };
        let notes: Vec<(u32, SlotHistory)> = owner
            .iter()
            .flat_map(|owner| self.counters.series(owner.clone(), LOST))
            .filter_map(|(series, note)| {
                let slot = series.strip_prefix(LOST)?.parse().ok()?;
                Some((slot, SlotHistory::from_note(note)?))
            })
            .collect();
        let drive_of = |device: &str| {
            let drives = self.inventory.last_known()?.drives_below(device);
            let mut drives = drives.into_iter();
            drives.next().cloned().filter(|_| drives.next().is_none())
        };
        let in_sync = md.members.iter().filter(|member| member.is("in_sync"));
        let seen: Vec<(u32, SlotHistory)> = in_sync
            .filter_map(|member| {
                let history = SlotHistory {
                    device: member.device.clone(),
                    drive: drive_of(&member.device),
                    last_in_sync: at,
                };
                Some((member.slot?, history))
            })
            .collect();
        let known = self.layers.entry(array.to_owned()).or_default();
        if known.slots_of.is_some() && known.slots_of != owner {
            known.slots.clear();
        }
        known.slots_of.clone_from(&owner);
        for (slot, noted) in &notes {
            known.slots.entry(*slot).or_insert_with(|| noted.clone());
        }
        known.slots.extend(seen.iter().cloned());
        known.slots.retain(|slot, _| *slot < md.raid_disks);
        let Some(owner) = owner else { return };
        let is_lost = |slot: &u32| seen.iter().all(|(in_sync, _)| in_sync != slot);
        let lost = known.slots.iter().filter(|(slot, _)| is_lost(slot));
        let key = |slot: &u32| (owner.clone(), format!("{LOST}{slot}"));
        for (slot, history) in lost {
            self.counters.put(key(slot), history.to_note(array));
        }
        for (slot, _) in &notes {
            if !is_lost(slot) || *slot >= md.raid_disks {
                self.counters.remove(&key(slot));
            }
        }
    }

    /// The array that has this state. None: another one had this kernel name in the last scan.
    pub(super) fn array_of_state(&self, array: &str, md: &MdState) -> Option<Option<Subject>> {
        let inventory = self.inventory.last_known();
        let Some(device) = inventory.and_then(|inventory| inventory.devices.get(array)) else {
            return Some(None);
        };
        let is_scanned = |name: &String| device.underlying.contains(name);
        let uuid = self.array_uuid(array);
        let is_it = uuid.is_none() || md.members.iter().all(|member| is_scanned(&member.device));
        is_it.then(|| uuid.map(|uuid| Subject::Device(uuid.to_owned())))
    }

    /// The arrays that are present, and those of whose members one is known, by UUID.
    pub(super) fn known_arrays(&self) -> BTreeSet<String> {
        let devices = self.inventory.last_known().into_iter().flat_map(|it| it.devices.keys());
        let present = devices.filter_map(|name| self.array_uuid(name));
        let signatures = self.drives.values().flat_map(|known| &known.signatures);
        let members = signatures.filter(|signature| signature.fs_type == "linux_raid_member");
        present.chain(members.filter_map(|member| member.uuid.as_deref())).map(digits).collect()
    }

    pub(super) fn array_uuid(&self, array: &str) -> Option<&str> {
        uuid_of(self.inventory.last_known()?.devices.get(array)?)
    }
}

pub(super) fn uuid_of(array: &BlockDevice) -> Option<&str> {
    let mut links = array.links.iter();
    links.find_map(|link| link.strip_prefix(UUID_LINK))
}
