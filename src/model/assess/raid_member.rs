//! Drives that md has taken out of an array, and that answer all the same.

use jiff::Timestamp;

use crate::assess::errors::log_evidence;
use crate::assess::input::{Context, DriveInput};
use crate::assess::text::{SUSPECT, drive_name, evidence, join_limited, raised, unknown};
use crate::block::{BlockDevice, Inventory, Layer, LayerState};
use crate::facts::Facts;
use crate::stack::MdState;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::{Evidence, Subject, Verdict, WitnessKind};
use diskvitals_kernel_log::event::Class;

/// An array runs without the drive. Sources: `faulty` in md's sysfs (Documentation/admin-guide/md.rst,
/// dev-XXX/state), or the superblock of an array that runs degraded and has no such member. SUSPECT:
/// md also drops a drive after one failed write, or on request. Clears when the array has the drive
/// again or is complete without it, or neither lists the drive nor is in a superblock on it.
pub(crate) fn failed(input: &DriveInput) -> Option<Verdict> {
    let (Context { facts, .. }, known) = (input.context, input.known);
    if known.missing_since.is_some() {
        // Reported by DriveMissing.
        return Some(Verdict::Clear);
    }
    if let Some(error) = facts.inventory.error() {
        return unknown(error);
    }
    let inventory = facts.inventory.value()?;
    let id = &known.facts.id;
    let (mut arrays, mut proof) = (Vec::new(), Vec::new());
    let mut undecided = None;
    for array in inventory.devices.values().filter(|device| is_md(device)) {
        let Some(layer) = facts.layers.get(&array.name) else {
            continue;
        };
        let Some(LayerState::Md(md)) = layer.state.last_known() else {
            continue;
        };
        let losses = losses(inventory, array, md, id);
        if losses.is_empty() {
            continue;
        }
        match layer.state.observation() {
            Observation::Ok { at, .. } => {
                arrays.push(format!("{} ({})", array.name, md.level));
                proof.extend(losses.iter().map(|loss| loss.evidence(&array.name, md, *at)));
            }
            Observation::Failed { error, .. } => {
                undecided.get_or_insert(format!("state of {}: {error}", array.name));
            }
            Observation::Unavailable => {}
        }
    }
    if arrays.is_empty() {
        return undecided.map_or(Some(Verdict::Clear), unknown);
    }
    proof.extend(md_records(facts, id));
    let message = format!("md has taken {} out of {}", drive_name(known), join_limited(arrays));
    let clears = "the array has the drive again or is complete without it, or the drive is removed from the array and has no md superblock of it";
    raised(SUSPECT, message, proof, clears, None)
}

/// Whether md has taken a device of the drive out of this array.
pub(crate) fn is_taken_out(
    inventory: &Inventory,
    array: &str,
    md: &MdState,
    drive: &DriveId,
) -> bool {
    let array = inventory.devices.get(array);
    array.is_some_and(|array| !losses(inventory, array, md, drive).is_empty())
}

fn is_md(device: &BlockDevice) -> bool {
    matches!(device.layer, Layer::Md { .. })
}

/// How an array runs without a device of the drive.
enum Loss<'a> {
    Faulty { device: &'a str, state: &'a str },
    Absent { device: &'a BlockDevice },
}

impl Loss<'_> {
    fn evidence(&self, array: &str, md: &MdState, at: Timestamp) -> Evidence {
        match self {
            Loss::Faulty { device, state } => {
                let file = format!("/sys/block/{array}/md/dev-{device}/state");
                evidence(WitnessKind::Layer, file, at, state)
            }
            Loss::Absent { device } => {
                let uuid = device.fs_uuid.as_deref().unwrap_or_default();
                let text = format!(
                    "degraded {} without {}, whose superblock is of this array ({uuid})",
                    md.degraded, device.name
                );
                evidence(WitnessKind::Layer, format!("/sys/block/{array}/md"), at, text)
            }
        }
    }
}

fn losses<'a>(
    inventory: &'a Inventory,
    array: &BlockDevice,
    md: &'a MdState,
    drive: &DriveId,
) -> Vec<Loss<'a>> {
    // A member over several drives blames none of them.
    let is_on_drive = |device: &str| {
        let drives = inventory.drives_below(device);
        drives.len() == 1 && drives.contains(drive)
    };
    let is_faulty = |state: &str| state.split(',').any(|word| word.trim() == "faulty");
    let faulty = md
        .members
        .iter()
        .filter(|member| is_faulty(&member.state) && is_on_drive(&member.device))
        .map(|member| Loss::Faulty { device: &member.device, state: &member.state });
    let absent = absent_members(inventory, array, md)
        .into_iter()
        .filter(|device| is_on_drive(&device.name))
        .map(|device| Loss::Absent { device });
    faulty.chain(absent).collect()
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
pub(super) const MEMBER_TYPE: &str = "linux_raid_member";

/// The UUID in the superblocks of the array's members.
pub(super) fn array_uuid<'a>(
    inventory: &'a Inventory,
    array: &BlockDevice,
    md: &MdState,
) -> Option<&'a String> {
    members(inventory)
        .find(|device| is_listed(array, md, &device.name))
        .and_then(|device| device.fs_uuid.as_ref())
}

/// `md/raid1:md0: Disk failure on sdb1, disabling device.`
fn md_records(facts: &Facts, drive: &DriveId) -> Vec<Evidence> {
    let tally = facts.tally(&Subject::Drive(drive.clone()), Class::Removed);
    let records = tally.map(log_evidence).unwrap_or_default();
    records.into_iter().filter(|record| record.text.starts_with("md/")).collect()
}
