//! Rules about redundancy: md, LVM's RAID, btrfs. What is judged is the copies that are left.

mod array;
mod members;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use crate::assess::DriveFailure;
use crate::assess::input::{Context, VolumeInput};
use crate::assess::layers::{self, Degradation, clear_without_layer, worst_layer};
use crate::assess::text::{BAD, SUSPECT, evidence, join_limited, unknown};
use crate::block::LayerState;
use crate::facts::Facts;
use crate::facts::btrfs_members::member_file;
use crate::stack::{BtrfsMember, PulledMember, ReturnedMember, btrfs_tolerance};
use crate::volume::VolumeFacts;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Verdict, WitnessKind};

use words::{Left, Shown, Tool};

/// An array below the volume lacks members, and still survives a failure; or it does not run, or lacks
/// too many. Sources: md's sysfs, dm-raid's status, btrfs' devinfo. SUSPECT, degraded, while further
/// members may fail; BAD, inaccessible, when some of the data has no copy left or the array does not
/// run. Not raised for slots of a mirror that never held a member. Clears when every array is complete
/// again, and when RedundancyLost takes over.
pub(crate) fn raid_degraded(input: &VolumeInput) -> Option<Verdict> {
    of_volume(input, Reason::RaidDegraded)
}

/// An array below the volume has only one copy left of at least a part of its data: members are
/// missing, being filled, or (btrfs) were away and not scrubbed since; parity waits to be computed, or
/// the other copies lack a range. Same sources. SUSPECT, degraded. An array that never had redundancy
/// is none. Clears when the array survives a failure again.
pub(crate) fn redundancy_lost(input: &VolumeInput) -> Option<Verdict> {
    of_volume(input, Reason::RedundancyLost)
}

fn of_volume(input: &VolumeInput, reason: Reason) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    let context = input.context;
    let view = View { context, facts, failing: input.failing_drives };
    let of_arrays = || of_devices(context, input.failing_drives, &volume.devices, reason);
    match view.btrfs(volume) {
        Some(Ok(loss)) if loss.reason == reason => loss
            .degradation
            .raise("every member of the filesystem is present again, and a scrub without an error has read each one that was away"),
        Some(Ok(_)) => of_arrays().or(Some(Verdict::Clear)),
        Some(Err(verdict)) => of_arrays().or(Some(verdict)),
        None => of_arrays().or_else(|| clear_without_layer(facts, volume)),
    }
}

pub(super) fn of_devices(
    context: Context,
    failing: &BTreeMap<DriveId, DriveFailure>,
    devices: &[String],
    reason: Reason,
) -> Option<Verdict> {
    let facts = context.facts;
    let view = View { context, facts, failing };
    let clears = match reason {
        Reason::RedundancyLost => "the array survives the failure of a member again",
        _ => "every member of the array is present and in sync",
    };
    worst_layer(facts, devices, clears, |name, at, state| {
        let loss = match state {
            LayerState::Md(md) => view.md(name, at, md),
            LayerState::DmRaid(_) => view.dm_raid(name, at, state),
            _ => return None,
        };
        let loss = loss.filter(|loss| loss.reason == reason);
        Some(loss.map(|loss| loss.degradation))
    })
}

/// What an array lacks, under the reason that says it.
struct Loss {
    reason: Reason,
    degradation: Degradation,
}

#[derive(Clone, Copy)]
struct View<'a> {
    context: Context<'a>,
    facts: &'a Facts,
    /// Drives with findings that endanger data.
    failing: &'a BTreeMap<DriveId, DriveFailure>,
}

impl View<'_> {
    fn label(self, device: &str) -> String {
        layers::label(self.facts, device)
    }

    /// The drives below these devices.
    fn drives(self, devices: &[String]) -> BTreeSet<DriveId> {
        let Some(inventory) = self.facts.inventory() else {
            return BTreeSet::new();
        };
        let devices = devices.iter();
        let drives = devices.flat_map(|name| inventory.drives_below(name));
        drives.cloned().collect()
    }

    /// `sda` for a device on one drive; otherwise the device's own name.
    fn drive_names(self, devices: &[String]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for device in devices {
            let one = std::slice::from_ref(device);
            let drives: Vec<DriveId> = self.drives(one).into_iter().collect();
            let known = match drives.as_slice() {
                [drive] => self.facts.drives.get(drive),
                _ => None,
            };
            let name = match known {
                Some(known) if !known.facts.name.is_empty() => known.facts.name.clone(),
                _ => self.label(device),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// `None`: not a btrfs. `Err`: a btrfs with all its members, or one in an unknown state.
    fn btrfs(self, volume: &VolumeFacts) -> Option<Result<Loss, Verdict>> {
        let device = volume.device.as_ref()?;
        let fs = self.facts.inventory()?.btrfs_of(device)?;
        if let Some(error) = self.facts.inventory.error() {
            return unknown(error).map(Err);
        }
        let at = self.facts.inventory.at()?;
        let without_copy = fs.without_copy();
        if without_copy == 0 {
            return Some(Err(Verdict::Clear));
        }
        let profiles: BTreeSet<&String> =
            fs.data_profiles.iter().chain(&fs.metadata_profiles).collect();
        let tolerances = || profiles.iter().map(|profile| btrfs_tolerance(profile));
        // The kernel mounts it read-write only if every chunk has all it needs
        // (btrfs_check_rw_degradable(), fs/btrfs/volumes.c). Then a profile without redundancy is of
        // chunks that were written since.
        let is_writable = !volume.mounts.is_empty()
            && volume.mounts.iter().all(|mount| !mount.is_super_read_only());
        let was_written = is_writable || !fs.returned.is_empty();
        let enough = || tolerances().filter(|it| was_written && *it >= without_copy);
        let weakest = enough().min().or_else(|| tolerances().min());
        let left = match weakest.unwrap_or(0).checked_sub(without_copy) {
            None => Left::TooFew,
            Some(0) => Left::None,
            Some(further) => Left::Some(further),
        };
        let shown = Shown {
            name: format!("the btrfs {}", fs.label.as_ref().unwrap_or(&fs.uuid)),
            level: join_limited(&profiles),
            unit: "devices",
            have: fs.devices.len().saturating_sub(fs.returned.len()),
            missing: self.pulled_members(fs),
            are_back: self.are_back(fs),
            all: fs.devices.len() + fs.missing_devices as usize,
            left,
            is_parity: profiles
                .iter()
                .any(|profile| matches!(profile.to_ascii_lowercase().as_str(), "raid5" | "raid6")),
            // Which of the devices has returned is not known by its name.
            holders: match fs.returned.is_empty() {
                true => self.drive_names(&fs.devices),
                false => Vec::new(),
            },
            not_current: fs.returned.iter().map(|it| self.returned_text(it)).collect(),
            mount: volume.mounts.first().map(|mount| mount.path.to_string()),
            failing: self.failing_among(&fs.devices),
            unknown: self.unknown_among(&fs.devices),
            tool: Some(Tool::Btrfs),
            ..Shown::default()
        };
        let seen = |file, text| evidence(WitnessKind::Inventory, file, at, text);
        let missing = (fs.missing_devices as usize).saturating_sub(fs.pulled.len());
        let mut proof = Vec::new();
        if missing > 0 || fs.pulled.is_empty() {
            let dir = format!("/sys/fs/btrfs/{}/devinfo", fs.uuid);
            proof.push(seen(dir, format!("missing: {missing}")));
        }
        proof.extend(fs.pulled.iter().map(|PulledMember { name, .. }| {
            let file = member_file(&fs.uuid, &BtrfsMember::Name(name.clone()));
            seen(file, format!("the block device {name} is gone"))
        }));
        proof.extend(fs.returned.iter().map(|returned| {
            let file = member_file(&fs.uuid, &returned.member);
            seen(file, self.returned_text(returned))
        }));
        // It is mounted, so its readable data is available; data without a second copy is lost.
        let level = if left == Left::TooFew { BAD } else { SUSPECT };
        Some(Ok(shown.loss(level, proof)))
    }

    fn returned_text(self, returned: &ReturnedMember) -> String {
        let device = match &returned.member {
            BtrfsMember::Id(id) => format!("device {id}"),
            BtrfsMember::Name(name) => format!("the device that was {name}"),
        };
        format!(
            "{device} (was away from {} to {})",
            self.facts.wall_text(returned.since),
            self.facts.wall_text(returned.until)
        )
    }
}
