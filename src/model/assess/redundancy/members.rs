//! The members of an array by name: those that are missing, those with findings, those of which
//! nothing is known.

use crate::assess::health::health_unknown;
use crate::assess::redundancy::View;
use crate::assess::text::join_limited;
use crate::block::{Inventory, Layer};
use crate::facts::KnownDrive;
use crate::redundancy::Array;
use crate::stack::{BtrfsFs, MEMBER_TYPE, MdState, PulledMember, absent_members, array_uuid};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::{Subject, UnknownCause};

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

impl<'a> View<'a> {
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

    pub(super) fn faulty_members(self, name: &str, md: &MdState) -> Vec<FaultyMember> {
        let history = self.facts.layers.get(name).map(|layer| &layer.slots);
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
        name: &str,
        md: &MdState,
        array: &Array,
        faulty: &[FaultyMember],
    ) -> Vec<String> {
        let history = self.facts.layers.get(name).map(|layer| &layer.slots);
        let empty: Vec<usize> = array
            .missing_slots()
            .filter(|slot| array.members()[*slot].filling.is_empty())
            .collect();
        let mut former = self.former_members(name, md);
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

    /// Members of a btrfs that were pulled: `sdb, serial S, last seen …`.
    pub(super) fn pulled_members(self, fs: &BtrfsFs) -> Vec<String> {
        let text = |pulled: &PulledMember| match self.drive_of_pulled(pulled) {
            Some((serial, known)) if known.missing_since.is_some() => {
                let last = self.facts.wall_text(known.last_seen);
                format!("{}{serial}, last seen {last}", pulled.name)
            }
            Some((serial, known)) => {
                format!("{}{serial} (back as {})", pulled.name, known.facts.name)
            }
            None => pulled.name.clone(),
        };
        fs.pulled.iter().map(text).collect()
    }

    /// Whether all that this btrfs lacks are drives that were pulled and are present again.
    pub(super) fn are_back(self, fs: &BtrfsFs) -> bool {
        let is_back = |pulled: &PulledMember| {
            let drive = self.drive_of_pulled(pulled);
            drive.is_some_and(|(_, known)| known.missing_since.is_none())
        };
        let back = fs.pulled.iter().filter(|it| is_back(it)).count();
        back > 0 && back == fs.without_copy()
    }

    /// The drive with its serial.
    fn drive_of_pulled(self, pulled: &PulledMember) -> Option<(String, &'a KnownDrive)> {
        let known = self.facts.drives.get(pulled.drive.as_ref()?)?;
        let serial = serial_of(known).map(|serial| format!(", serial {serial}"));
        Some((serial.unwrap_or_default(), known))
    }

    /// Drives with the array's superblock that it does not list, present or not.
    pub(super) fn former_members(self, name: &str, md: &MdState) -> Vec<FormerMember> {
        let Some(inventory) = self.facts.inventory() else {
            return Vec::new();
        };
        let Some(device) = inventory.devices.get(name) else {
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
            mapped.rsplit_once(mark).is_some_and(|(_, number)| number.parse() == Ok(leg))
        })
    };
    let below = device.underlying.iter().filter(is_of_leg);
    below.cloned().collect()
}
