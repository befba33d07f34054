//! The members of an array by name: those that are missing, those with findings, those of which
//! nothing is known.

use crate::model::assess::health::health_unknown;
use crate::model::assess::raid_member::{MEMBER_TYPE, absent_members, array_uuid};
use crate::model::assess::redundancy::View;
use crate::model::assess::text::join_limited;
use crate::model::block::{Inventory, Layer, MdState};
use crate::model::facts::KnownDrive;
use crate::model::finding::{Subject, UnknownCause};
use crate::model::redundancy::Array;

impl View<'_> {
    /// `sda (PendingSectors)`.
    pub(super) fn failing_among(self, devices: &[String]) -> Vec<String> {
        let drives = self.drives(devices).into_iter();
        drives
            .filter_map(|id| {
                let failure = self.failing.get(&id)?;
                let name = &self.facts.drives.get(&id)?.facts.name;
                Some(format!("{name} ({})", join_limited(&failure.reasons)))
            })
            .collect()
    }

    /// Drives of unknown health. They are named, and count as copies.
    pub(super) fn unknown_among(self, devices: &[String]) -> Vec<String> {
        let drives = self.drives(devices).into_iter();
        drives
            .filter(|id| !self.failing.contains_key(id))
            .filter(|id| {
                // A first answer comes within moments.
                let unknown = health_unknown(
                    self.facts,
                    &Subject::Drive(id.clone()),
                    self.context.policy,
                    self.context.now,
                );
                unknown.is_some_and(|unknown| unknown.cause != UnknownCause::Pending)
            })
            .filter_map(|id| Some(self.facts.drives.get(&id)?.facts.name.clone()))
            .collect()
    }

    /// The slots that hold nothing, with what was there if it was seen:
    /// `slot 1 (was sdb, serial S, last in sync …)`.
    pub(super) fn missing_members(self, name: &str, md: &MdState, array: &Array) -> Vec<String> {
        let history = self.facts.layers.get(name).map(|layer| &layer.slots);
        let empty: Vec<usize> = array
            .missing_slots()
            .filter(|slot| array.members()[*slot].filling.is_empty())
            .collect();
        let mut former = self.former_members(name, md);
        let mut missing = Vec::new();
        for slot in &empty {
            let key = u32::try_from(*slot).unwrap_or(u32::MAX);
            let seen = history.and_then(|history| history.get(&key));
            missing.push(match seen {
                Some(seen) => {
                    let drive = seen.drive.as_ref().and_then(|id| self.facts.drives.get(id));
                    let was = match drive {
                        Some(known) => {
                            former.retain(|text| !text.starts_with(&drive_text(known)));
                            drive_text(known)
                        }
                        None => seen.device.clone(),
                    };
                    let last = self.facts.wall_text(seen.last_in_sync);
                    format!("slot {slot} (was {was}, last in sync {last})")
                }
                None if empty.len() == 1 && former.len() == 1 => {
                    format!("slot {slot} (was {})", former.remove(0))
                }
                None => format!("slot {slot}"),
            });
        }
        missing.extend(
            former
                .into_iter()
                .map(|text| format!("once a member: {text}")),
        );
        missing
    }

    /// Drives with the array's superblock that it does not list, present or not.
    pub(super) fn former_members(self, name: &str, md: &MdState) -> Vec<String> {
        let Some(inventory) = self.facts.inventory() else {
            return Vec::new();
        };
        let Some(device) = inventory.devices.get(name) else {
            return Vec::new();
        };
        let present = absent_members(inventory, device, md).into_iter();
        let mut texts: Vec<String> = present
            .map(|member| {
                let drives = inventory.drives_below(&member.name);
                let known = drives.into_iter().next();
                match known.and_then(|id| self.facts.drives.get(id)) {
                    Some(known) => drive_text(known),
                    None => member.name.clone(),
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
        texts.extend(gone.map(|known| {
            let last = self.facts.wall_text(known.last_seen);
            format!("{}, last seen {last}", drive_text(known))
        }));
        texts
    }
}

/// `sdb, serial S`.
fn drive_text(known: &KnownDrive) -> String {
    match known.facts.serial.as_deref().map(str::trim) {
        Some(serial) if !serial.is_empty() => format!("{}, serial {serial}", known.facts.name),
        _ => known.facts.name.clone(),
    }
}

/// The devices of a leg of LVM's RAID: `LV_rimage_N` and `LV_rmeta_N`.
pub(super) fn leg_devices(inventory: &Inventory, name: &str, leg: usize) -> Vec<String> {
    let Some(device) = inventory.devices.get(name) else {
        return Vec::new();
    };
    let is_of_leg = |name: &&String| {
        let layer = inventory.devices.get(*name).map(|device| &device.layer);
        let Some(Layer::Dm { name: mapped, .. }) = layer else {
            return false;
        };
        ["_rimage_", "_rmeta_"].iter().any(|mark| {
            mapped
                .rsplit_once(mark)
                .is_some_and(|(_, number)| number.parse() == Ok(leg))
        })
    };
    let below = device.underlying.iter().filter(is_of_leg);
    below.cloned().collect()
}
