//! Rules about drives, and the verdicts that volumes inherit from them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::assess::DriveFailure;
use crate::assess::counters::{changed, failed_probe};
use crate::assess::errors::log_evidence;
use crate::assess::input::{Context, DriveInput, VolumeInput};
use crate::assess::layers::flush_first;
use crate::assess::text::{
    BAD, INACCESSIBLE, INFO, Level, SUSPECT, evidence, join_limited, raised, unknown,
};
use crate::drive::{DriveFacts, Transport};
use crate::facts::drive_use::{LastUse, MemberSignature};
use crate::facts::kernel_log::lost_records::NEAR_FAILURE;
use crate::facts::{Facts, KnownDrive, KnownVolume, drive_use};
use crate::volume::{Impact, Stack};
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Evidence, Subject, Verdict, WitnessKind};
use diskvitals_kernel_log::error_history::ErrorTally;
use diskvitals_kernel_log::event::Class;
use diskvitals_text::duration::elapsed;
use diskvitals_text::naming::slot_name;
use diskvitals_text::size::format_bytes;

/// No scan lists the drive now. Source: the inventory (sysfs, udev). INFO when nothing used it
/// when it was removed, or when all its volumes run complete without it; a ZFS label that says
/// exported, destroyed, spare or L2ARC is no use. SUSPECT when only the signature of a pool, an array
/// or swap was on it: a wiped one may remain, and a pulled member keeps a label that says active.
/// Otherwise BAD, inaccessible: also with active swap (/proc/swaps), or with writes in the last hour
/// that no volume explains (/proc/diskstats). Clears when a scan lists the drive again, under any
/// name; without use also after `forget_missing_after`.
pub(crate) fn missing(input: &DriveInput) -> Option<Verdict> {
    let (Context { facts, policy, now }, known) = (input.context, input.known);
    let Some(since) = known.missing_since else {
        return clear_if_scanned(facts);
    };
    let replaced = known.in_use && volumes_intact_without(facts, known);
    if (!known.in_use || replaced) && elapsed(since, now) >= policy.forget_missing_after {
        return Some(Verdict::Clear);
    }
    let what = describe(&known.facts);
    let (name, id) = (&known.facts.name, &known.facts.id);
    let (last_seen, left) = (facts.wall_text(known.last_seen), facts.wall_text(since));
    let text = format!("{name} ({id}) was last seen at {last_seen} and is in no scan since {left}");
    let mut proof = vec![evidence(WitnessKind::Inventory, "/sys/class/block", since, text)];
    proof.extend(removal_evidence(facts, known, since));
    let clears = "the drive is seen again, under whatever name";
    proof.extend(drive_use::unreleased(known).map(|signature| {
        let text = format!("ID_FS_TYPE={}", signature.fs_type);
        evidence(WitnessKind::Other, format!("signature, {}", signature.device), since, text)
    }));
    let owners = signature_owners(known);
    if !known.in_use && owners.is_empty() {
        let message = format!("{what} was removed while it was not in use");
        return raised(INFO, message, proof, clears, Some(since));
    }
    if !known.in_use {
        let message = format!(
            "{what} was removed; it has the signature of {owners}, and nothing shows whether it was in use"
        );
        return raised(SUSPECT, message, proof, clears, Some(since));
    }
    if replaced {
        let message = format!("{what} was removed; its volumes and arrays are intact without it");
        return raised(INFO, message, proof, clears, Some(since));
    }
    if let Some(controller) = &known.facts.location.raid_controller {
        // A failed member or a pulled hot spare: only the controller can distinguish them.
        let slot = known.facts.location.slot.as_deref().unwrap_or("its place");
        let text = format!(
            "{name} ({id}) was last listed at {last_seen}, and {slot} is empty since {left}"
        );
        let message =
            format!("{what} is no longer listed by {controller}: check the controller's arrays");
        let clears = "its controller lists it again, or another drive in its place";
        let proof =
            vec![evidence(WitnessKind::Other, format!("drives of {controller}"), since, text)];
        return raised(SUSPECT, message, proof, clears, Some(since));
    }
    let load = match (&known.last_use, known.volumes.len()) {
        (Some(LastUse::Swap { path, at }), _) => {
            proof.push(evidence(WitnessKind::Other, "/proc/swaps", *at, path));
            format!("it carried active swap ({path})")
        }
        (Some(LastUse::Writes { at, line }), _) => {
            proof.push(evidence(WitnessKind::Other, "/proc/diskstats", *at, line));
            let last = facts.wall_text(*at);
            match owners.as_str() {
                "" => format!("it was written to until {last}, by an unknown user"),
                owners => {
                    format!("it was written to until {last}; it has the signature of {owners}")
                }
            }
        }
        (None, 0) if !known.member_of.is_empty() => {
            format!("it was a member of {}", join_limited(&known.member_of))
        }
        (None, 0) => "it was part of an array, a volume group or another mapping".to_owned(),
        (None, _) => format!("it carried {}", join_limited(&known.volumes)),
    };
    let message = match known.facts.transport.is_remote() {
        true => format!("{what} can no longer be reached over the network; {load}"),
        false => format!("{what} is missing; {load}"),
    };
    raised(INACCESSIBLE, message, proof, clears, Some(since))
}

/// `ZFS, swap`; empty without a signature.
fn signature_owners(known: &KnownDrive) -> String {
    let owners: BTreeSet<&str> = drive_use::unreleased(known).map(MemberSignature::owner).collect();
    join_limited(owners)
}

/// A drive that the store remembers is not present before a scan has listed it.
pub(super) fn clear_if_scanned(facts: &Facts) -> Option<Verdict> {
    match facts.inventory.error() {
        Some(error) => unknown(error),
        None => facts.inventory.value().map(|_| Verdict::Clear),
    }
}

/// All its volumes are present and on other drives, and their redundancy reports no missing member.
fn volumes_intact_without(facts: &Facts, drive: &KnownDrive) -> bool {
    let intact = |volume: &KnownVolume| {
        let drives = &volume.facts.drive_ids;
        !drives.is_empty()
            && !drives.contains(&drive.facts.id)
            && !volume.retained
            && !volume.facts.device_gone
            && layers_intact(facts, &volume.facts.devices)
    };
    let is_intact = |id: &VolumeId| facts.volumes.get(id).is_some_and(intact);
    !drive.volumes.is_empty() && drive.volumes.iter().all(is_intact)
}

fn layers_intact(facts: &Facts, devices: &[String]) -> bool {
    let mut layers = devices.iter().filter_map(|name| facts.layers.get(name));
    layers.all(|layer| layer.state.value().is_some_and(|state| state.is_intact() != Some(false)))
}

/// The kernel lists the drive and has taken it offline. Source: SCSI `device/state`, NVMe `state`.
/// BAD, inaccessible: at once for `offline`, `transport-offline` and `dead`; for states that error
/// recovery passes through (`blocked`, `quiesce`, `resetting`, `connecting`…) after
/// `offline_after`. With several paths only when every path is offline. Clears when one path works.
pub(crate) fn offline(input: &DriveInput) -> Option<Verdict> {
    let (Context { facts, policy, now }, known) = (input.context, input.known);
    if known.missing_since.is_some() {
        // Reported by DriveMissing.
        return Some(Verdict::Clear);
    }
    if let Some(error) = facts.inventory.error() {
        return unknown(error);
    }
    let at = facts.inventory.value().and(facts.inventory.at())?;
    let since = known.abnormal_state_since;
    let states = path_states(&known.facts);
    let waited = since.is_some_and(|since| elapsed(since, now) >= policy.offline_after);
    match states.iter().map(|(_, state)| classify_state(state)).min()? {
        StateClass::Normal => return Some(Verdict::Clear),
        // Nothing is raised while the drive may still recover, and an older finding stays.
        StateClass::Recovering if !waited => {
            return unknown("the kernel is trying to recover the drive");
        }
        StateClass::Recovering | StateClass::Offline => {}
    }
    let mut proof: Vec<_> = states
        .iter()
        .map(|(name, state)| {
            evidence(WitnessKind::Inventory, state_file(&known.facts, name), at, state)
        })
        .collect();
    proof.extend(removal_evidence(facts, known, since.unwrap_or(at)));
    let detail = match states.as_slice() {
        [(_, state)] => format!("its state is `{state}`"),
        all => format!(
            "all {} paths are off ({})",
            all.len(),
            join_limited(all.iter().map(|(name, state)| format!("{name} {state}")))
        ),
    };
    let what = describe(&known.facts);
    let message = format!("the kernel has taken {what} offline: {detail}");
    let clears = "the kernel calls the drive, or one path to it, running or live";
    raised(INACCESSIBLE, message, proof, clears, since)
}

/// What else shows that the kernel took the drive offline at that time: records of its log, a counter
/// of errors, a probe.
fn removal_evidence(facts: &Facts, known: &KnownDrive, when: Timestamp) -> Vec<Evidence> {
    let (from, until) = (
        when.saturating_sub(NEAR_FAILURE).unwrap_or(when),
        when.saturating_add(NEAR_FAILURE).unwrap_or(when),
    );
    // Whoever still uses it causes more records for as long as he does.
    let is_near = |tally: &&ErrorTally| {
        let began = tally.episodes.last().copied().unwrap_or(tally.first.time);
        let mut starts = tally.episodes.iter();
        starts.any(|start| (from..=until).contains(start))
            || (began <= until && tally.last.time >= from)
    };
    let tally = facts.tally(&Subject::Drive(known.facts.id.clone()), Class::Removed);
    let mut proof = tally.filter(is_near).map(log_evidence).unwrap_or_default();
    proof.extend(facts.grown_counter(known, from).map(|(history, name, counter)| {
        // Without the value: it may grow for as long as something writes.
        let text = format!("{name} has grown");
        evidence(WitnessKind::Counter, &history.file, changed(counter), text)
    }));
    let mut volumes = known.volumes.iter().filter_map(|id| facts.volumes.get(id));
    proof.extend(volumes.find_map(|volume| failed_probe(facts, &volume.facts, from)));
    proof
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StateClass {
    Normal,
    /// Error recovery passes through it.
    Recovering,
    Offline,
}

fn classify_state(state: &str) -> StateClass {
    match state {
        "offline" | "transport-offline" | "dead" => StateClass::Offline,
        "blocked" | "quiesce" | "created-blocked" | "resetting" | "connecting" | "deleting"
        | "deleting (no IO)" | "cancel" | "deleted" => StateClass::Recovering,
        _ => StateClass::Normal,
    }
}

/// Each path with its state in the kernel; the drive's own state if it has no devices, or its
/// devices have no state.
fn path_states(drive: &DriveFacts) -> Vec<(&str, &str)> {
    let devices: Vec<(&str, &str)> = drive
        .devices
        .iter()
        .map(|device| (device.name.as_str(), trimmed(device.state.as_ref())))
        .collect();
    if devices.iter().any(|(_, state)| !state.is_empty()) {
        return devices;
    }
    let own = (drive.name.as_str(), trimmed(drive.state.as_ref()));
    if own.1.is_empty() { Vec::new() } else { vec![own] }
}

fn trimmed(state: Option<&String>) -> &str {
    state.map_or("", |state| state.trim())
}

fn state_file(drive: &DriveFacts, device: &str) -> String {
    match device.starts_with("nvme") && drive.devices.iter().all(|known| known.name != device) {
        true => format!("/sys/class/nvme/{device}/state"),
        false => format!("/sys/block/{device}/device/state"),
    }
}

/// Drives below the volume have findings that endanger data now (`Reason::endangers_data_at`), or
/// findings that explain why reads or writes of the volume fail. Source: this node's judgement of its
/// drives, and the layers between. SUSPECT, degraded, while redundancy covers them, or they are only
/// suspect, or they are behind a RAID controller. BAD when the volume depends on a bad one:
/// inaccessible when that drive is missing or offline, otherwise degraded. Clears when no drive
/// below has such a finding. A drive that md has taken out of the volume's array endangers nothing of
/// it any more.
pub(crate) fn failing(input: &VolumeInput) -> Option<Verdict> {
    let (Context { facts, now, .. }, failing) = (input.context, input.failing_drives);
    let volume = &input.known.facts;
    let own = volume.drive_ids.iter().filter_map(|id| failing.get_key_value(id));
    let shares = |drive: &KnownDrive| {
        let drives = volume.drive_ids.iter();
        shares_controller(&drive.facts, drives.filter_map(|id| Some(&facts.drives.get(id)?.facts)))
    };
    let hidden = failing.iter().filter(|(id, _)| facts.drives.get(*id).is_some_and(shares));
    let mut causes: Vec<(&DriveId, &DriveFailure)> = own.chain(hidden).collect();
    if causes.is_empty() {
        return clear_if_scanned(facts);
    }
    let impact_of = |test: &dyn Fn(Level) -> bool| {
        volume.stack.impact(&|id| failing.get(id).is_some_and(|failing| test(failing.level)))
    };
    let all = impact_of(&|_| true);
    let bad = impact_of(&|(severity, _)| severity == Severity::Bad);
    let gone = impact_of(&|level| level == INACCESSIBLE);
    let level = match (bad, gone) {
        (_, Impact::Exposed) => INACCESSIBLE,
        (Impact::Exposed, _) => BAD,
        _ => SUSPECT,
    };
    causes.sort_by_key(|(_, failing)| std::cmp::Reverse(failing.level));
    let names = join_limited(causes.iter().map(|(id, failing)| {
        format!("{} ({})", name_of(facts, id), join_limited(&failing.reasons))
    }));
    let mut levels = redundancy_levels(&volume.stack);
    // A raid10 is several sets of one level.
    levels.dedup();
    let (uncovered, cover) = (levels.is_empty(), join_limited(levels));
    let message = match all {
        Impact::Exposed if uncovered => format!("the volume is on {names}, without redundancy"),
        Impact::Exposed => {
            format!("the volume is on {names}, more than its redundancy ({cover}) covers")
        }
        Impact::Unknown => {
            format!(
                "drives of the volume: {names}; whether redundancy ({cover}) covers them is not known"
            )
        }
        _ if uncovered => format!("drives of the volume: {names}"),
        // The stack of before the loss is kept while the array lacks the drive.
        _ if input.has_last_copy || volume.stack.least_tolerance() == Some(0) => {
            format!("drives of the volume: {names}; no redundancy is left in {cover}")
        }
        _ => format!("drives of the volume: {names}; covered by {cover}"),
    };
    let began = |id: &DriveId| {
        let known = facts.drives.get(id)?;
        known.missing_since.or(known.abnormal_state_since)
    };
    let proof = causes
        .iter()
        .take(4)
        .map(|(id, failing)| {
            let time = began(id).or(facts.inventory.at()).unwrap_or(now);
            evidence(WitnessKind::Other, format!("findings of drive {id}"), time, &failing.message)
        })
        .collect();
    let since = causes.iter().filter_map(|(id, _)| began(id)).min();
    let clears = "no drive below the volume has a finding that endangers data";
    let mut verdict = raised(level, message, proof, clears, since);
    if let Some(Verdict::Raised(raised)) = &mut verdict {
        raised.advice = flush_first(facts, &volume.devices, |id| failing.contains_key(id));
    }
    verdict
}

/// Whether the drive is behind the RAID controller that provides a logical disk of the volume. The
/// controller does not report which logical disk the drive is part of, nor what redundancy covers,
/// so the drive makes the volume SUSPECT at most.
pub(crate) fn shares_controller<'a>(
    drive: &DriveFacts,
    mut of_volume: impl Iterator<Item = &'a DriveFacts>,
) -> bool {
    let controller = drive.location.raid_controller.as_deref();
    let Some(host) = controller.and_then(|controller| controller.rsplit("host").next()) else {
        return false;
    };
    of_volume.any(|other| {
        let hctl = other.location.hctl.as_deref();
        other.transport == Transport::Raid
            && hctl.and_then(|hctl| hctl.split(':').next()) == Some(host)
    })
}

fn redundancy_levels(stack: &Stack) -> Vec<&str> {
    match stack {
        Stack::Nothing | Stack::Drive(_) => Vec::new(),
        Stack::All(parts) => parts.iter().flat_map(redundancy_levels).collect(),
        Stack::Redundant { level, parts, .. } | Stack::Undetermined { level, parts } => {
            std::iter::once(level.as_str())
                .chain(parts.iter().flat_map(redundancy_levels))
                .collect()
        }
    }
}

fn name_of(facts: &Facts, id: &DriveId) -> String {
    match facts.drives.get(id).filter(|known| known.missing_since.is_none()) {
        Some(KnownDrive { facts, .. }) => match &facts.location.raid_controller {
            Some(controller) => format!("drive {} {id} behind {controller}", facts.name),
            None => format!("drive {} {id}", facts.name),
        },
        None => format!("drive {id}"),
    }
}

pub(super) fn describe(drive: &DriveFacts) -> String {
    let model: Vec<&str> =
        [&drive.vendor, &drive.model].into_iter().flatten().map(|text| text.trim()).collect();
    let mut known = Vec::from_iter(Some(model.join(" ")).filter(|model| !model.is_empty()));
    if drive.size_bytes > 0 {
        known.push(format_bytes(drive.size_bytes));
    }
    if let (Some(enclosure), Some(slot)) = (&drive.location.enclosure, &drive.location.slot) {
        let slot = slot_name(slot);
        known.push(format!("enclosure {enclosure} slot {slot}"));
    }
    if known.is_empty() {
        return format!("drive {}", drive.id);
    }
    format!("drive {} ({})", drive.id, known.join(", "))
}
