//! Drives that md has taken out of an array, and that answer all the same.

use crate::assess::errors::log_evidence;
use crate::assess::input::{Context, DriveInput};
use crate::assess::text::{SUSPECT, drive_name, evidence, join_limited, raised, unknown};
use crate::block::LayerState;
use crate::facts::Facts;
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
    for name in inventory.devices.keys() {
        let Some(layer) = facts.layers.get(name) else {
            continue;
        };
        let Some(stack) = layer.state.last_known().and_then(LayerState::stack) else {
            continue;
        };
        let losses = stack.runs_without(inventory, name, id);
        if losses.is_empty() {
            continue;
        }
        match layer.state.observation() {
            Observation::Ok { at, .. } => {
                arrays.push(stack.label(inventory, name));
                let losses = losses.into_iter();
                proof.extend(
                    losses.map(|(file, text)| evidence(WitnessKind::Layer, file, *at, text)),
                );
            }
            Observation::Failed { error, .. } => {
                undecided.get_or_insert(format!("state of {name}: {error}"));
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

/// `md/raid1:md0: Disk failure on sdb1, disabling device.`
fn md_records(facts: &Facts, drive: &DriveId) -> Vec<Evidence> {
    let tally = facts.tally(&Subject::Drive(drive.clone()), Class::Removed);
    let records = tally.map(log_evidence).unwrap_or_default();
    records.into_iter().filter(|record| record.text.starts_with("md/")).collect()
}
