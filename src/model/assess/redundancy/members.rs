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

/// In words.
#[derive(Debug, Default)]
pub(super) struct MissingMembers {
    pub missing: Vec<String>,
    /// Those that the array still lists.
    pub faulty: Vec<String>,
}

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

    pub(super) fn is_partition(self, device: &str) -> bool {
        let device = self.facts.inventory().and_then(|it| it.devices.get(device));
        device.is_some_and(|device| matches!(device.layer, Layer::Partition { .. }))
    }

    /// md's raid devices that hold nothing, with what was there if it was seen:
    /// `raid device 1 (was sdb, serial S, last in sync …)`. Members that failed and are still listed
    /// are named instead, if they are as many.
    pub(super) fn missing_members(self, name: &str, md: &MdState, array: &Array) -> MissingMembers {
        let history = self.facts.layers.get(name).map(|layer| &layer.slots);
        let empty: Vec<usize> = array
            .missing_slots()
            .filter(|slot| array.members()[*slot].filling.is_empty())
            .collect();
        let mut former = self.former_members(name, md);
        let mut missing = Vec::new();
        let listed = md.members.iter().filter(|member| member.is("faulty"));
        let listed: Vec<&String> = listed.map(|member| &member.device).collect();
        let are_listed = !listed.is_empty() && listed.len() == empty.len();
        let mut faulty = Vec::new();
        for device in listed {
            let seen = history.and_then(|it| it.values().find(|seen| seen.device == *device));
            let drive = seen.and_then(|seen| self.facts.drives.get(seen.drive.as_ref()?));
            if let Some(known) = drive {
                former.retain(|text| !text.starts_with(&drive_text(known)));
            }
            faulty.push(match seen {
                Some(seen) => {
                    let last = self.facts.wall_text(seen.last_in_sync);
                    match drive.and_then(serial_of) {
                        Some(serial) => format!("{device} (serial {serial}, last in sync {last})"),
                        None => format!("{device} (last in sync {last})"),
                    }
                }
                None => device.clone(),
            });
        }
        for slot in empty.iter().filter(|_| !are_listed) {
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
                    format!("raid device {slot} (was {was}, last in sync {last})")
                }
                None if empty.len() == 1 && former.len() == 1 => {
                    format!("raid device {slot} (was {})", former.remove(0))
                }
                None => format!("raid device {slot}"),
            });
        }
        missing.extend(
            former
                .into_iter()
                .map(|text| format!("once a member: {text}")),
        );
        MissingMembers { missing, faulty }
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
    match serial_of(known) {
        Some(serial) => format!("{}, serial {serial}", known.facts.name),
        None => known.facts.name.clone(),
    }
}

fn serial_of(known: &KnownDrive) -> Option<&str> {
    let serial = known.facts.serial.as_deref().map(str::trim)?;
    Some(serial).filter(|serial| !serial.is_empty())
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
