//! Rules about redundancy: md, LVM's RAID, btrfs. What is judged is the copies that are left.

mod words;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::assess::DriveFailure;
use crate::assess::health::health_unknown;
use crate::assess::input::{Context, VolumeInput};
use crate::assess::layers::{Degradation, clear_without_layer, worst_layer};
use crate::assess::redundancy::words::Words;
use crate::assess::text::{BAD, INACCESSIBLE, SUSPECT, evidence, join_limited, unknown};
use crate::block::LayerState;
use crate::facts::Facts;
use crate::redundancy::Array;
use crate::stack::{self, Left, Place, StorageStack};
use crate::volume::VolumeFacts;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::{LayerKind, Reason};
use diskvitals_finding::{Subject, UnknownCause, Verdict, WitnessKind};

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

/// The last check or repair of an array found places where its parity does not match its data. Source:
/// md's mismatch_cnt (md.rst), dm-raid's status, as noted at the end of the check. SUSPECT: a fault of
/// drive, memory, bus or power leaves this, or a creation with --assume-clean. Never for mirrors, where a
/// page that is rewritten while it is being written (swap, mmap) differs. Clears when a later check in one
/// run finds none; an assembly, which sets the count to 0, clears nothing.
pub(crate) fn array_mismatch(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    mismatches(facts, &volume.devices).or_else(|| clear_without_layer(facts, volume))
}

pub(super) fn mismatches(facts: &Facts, devices: &[String]) -> Option<Verdict> {
    let parity = |state: &LayerState| state.stack()?.array().filter(Array::is_parity);
    let clears = "a later check of the array, in one run, finds no difference";
    let found = worst_layer(facts, devices, clears, |name, at, state| {
        parity(state)?;
        let pass = facts.last_pass(name);
        let Some(count) = pass.found.filter(|count| *count > 0) else {
            return Some(None);
        };
        let stack = state.stack()?;
        let witness = match stack.mismatches() == Some(count) {
            true => WitnessKind::Layer,
            false => WitnessKind::Other,
        };
        Some(Some(Degradation {
            level: SUSPECT,
            message: format!(
                "the last check of {} found {count} sectors whose data and parity do not match",
                stack.label(facts.inventory()?, name)
            ),
            advice: None,
            clears: None,
            evidence: vec![evidence(
                witness,
                format!("mismatch_cnt of {name}"),
                pass.ended.unwrap_or(at),
                count.to_string(),
            )],
        }))
    });
    let is_unchecked = |name: &&String| {
        facts.layer_state(name).and_then(parity).is_some() && facts.last_pass(name).found.is_none()
    };
    match (&found, devices.iter().find(is_unchecked)) {
        (None | Some(Verdict::Clear), Some(name)) => {
            unknown(format!("{name} has not been checked in one run"))
        }
        _ => found,
    }
}

fn of_volume(input: &VolumeInput, reason: Reason) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    let context = input.context;
    let view = View { context, facts, failing: input.failing_drives };
    let of_arrays = || of_devices(context, input.failing_drives, &volume.devices, reason);
    match view.filesystem(volume) {
        Some(Ok(loss)) if loss.reason == reason => loss.degradation.raise(clears(reason), None),
        Some(Ok(_)) => of_arrays().or(Some(Verdict::Clear)),
        Some(Err(verdict)) => of_arrays().or(Some(verdict)),
        None => of_arrays().or_else(|| clear_without_layer(facts, volume)),
    }
}

fn clears(reason: Reason) -> &'static str {
    match reason {
        Reason::RedundancyLost => "the array survives the failure of a member again",
        _ => "every member of the array is present and in sync",
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
    worst_layer(facts, devices, clears(reason), |name, at, state| {
        let stack = state.stack().filter(|stack| stack.kind() == LayerKind::Array)?;
        let place = Place { facts, name, volume: None };
        let loss = view.loss(stack, place, (WitnessKind::Layer, at));
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
    /// `None`: the filesystem is no stack itself. `Err`: it has all its members, or its state is unknown.
    fn filesystem(self, volume: &VolumeFacts) -> Option<Result<Loss, Verdict>> {
        let (_, stack) = stack::of_volume(self.facts.inventory()?, volume)?;
        if let Some(error) = self.facts.inventory.error() {
            return unknown(error).map(Err);
        }
        let at = self.facts.inventory.at()?;
        let place = Place { facts: self.facts, name: "", volume: Some(volume) };
        Some(self.loss(stack, place, (WitnessKind::Inventory, at)).ok_or(Verdict::Clear))
    }

    /// `None`: it lacks nothing.
    fn loss(
        self,
        stack: &dyn StorageStack,
        place: Place,
        (witness, at): (WitnessKind, Timestamp),
    ) -> Option<Loss> {
        let shortfall = stack.shortfall(place)?;
        let reason = match shortfall.left {
            Left::None => Reason::RedundancyLost,
            Left::Stopped | Left::TooFew | Left::Some(_) => Reason::RaidDegraded,
        };
        let level = match shortfall.left {
            // What can be read of it is available; data without a second copy is lost.
            Left::Stopped | Left::TooFew if shortfall.is_mounted => BAD,
            Left::Stopped | Left::TooFew => INACCESSIBLE,
            Left::None | Left::Some(_) => SUSPECT,
        };
        let proof = shortfall.proof.iter();
        let proof = proof.map(|(file, text)| evidence(witness, file, at, text)).collect();
        let words = Words {
            shortfall: &shortfall,
            holders: match shortfall.not_current.is_empty() {
                true => place.drive_names(&shortfall.holders),
                false => Vec::new(),
            },
            filling: place.drive_names(&shortfall.filling),
            failing: self.failing_among(place, &shortfall.holders),
            unknown: self.unknown_among(place, &shortfall.holders),
        };
        let degradation = Degradation {
            level,
            message: words.message(),
            advice: Some(words.advice()),
            clears: words.clears(),
            evidence: proof,
        };
        Some(Loss { reason, degradation })
    }

    /// `sda (PendingSectors)`.
    fn failing_among(self, place: Place, devices: &[String]) -> Vec<String> {
        let drives = place.drives(devices).into_iter();
        drives
            .filter_map(|id| {
                let failure = self.failing.get(id)?;
                let name = &self.facts.drives.get(id)?.facts.name;
                Some(format!("{name} ({})", join_limited(&failure.reasons)))
            })
            .collect()
    }

    /// Drives of unknown health. They are named, and count as copies.
    fn unknown_among(self, place: Place, devices: &[String]) -> Vec<String> {
        let drives = place.drives(devices).into_iter();
        drives
            .filter(|id| !self.failing.contains_key(*id))
            .filter(|id| {
                // A first answer comes within moments.
                let unknown = health_unknown(
                    self.facts,
                    &Subject::Drive((*id).clone()),
                    self.context.policy,
                    self.context.now,
                );
                unknown.is_some_and(|unknown| unknown.cause != UnknownCause::Pending)
            })
            .filter_map(|id| Some(self.facts.drives.get(id)?.facts.name.clone()))
            .collect()
    }
}
