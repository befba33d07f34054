//! Rules about drives, and what volumes inherit from them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::assess::DriveFailure;
use crate::model::assess::errors::log_evidence;
use crate::model::assess::text::{evidence, format_bytes, join_limited, raised, unknown};
use crate::model::block::LayerState;
use crate::model::drive::{DriveFacts, Transport};
use crate::model::facts::{Facts, KnownDrive, KnownVolume, elapsed};
use crate::model::finding::{Evidence, Severity, Status, Subject, Verdict};
use crate::model::ids::DriveId;
use crate::model::kernel_log::error_history::ErrorTally;
use crate::model::kernel_log::event::Class;
use crate::model::policy::Policy;
use crate::model::volume::{Impact, Stack, VolumeFacts};

/// The drive is in no scan any more. Source: the inventory (sysfs, udev).
/// INFO when nothing stood on it when it went, or when all that stood on it runs whole without it;
/// else BAD, inaccessible. Clears when a scan shows the drive again, under whatever name; without a
/// load also after `forget_missing_after`.
pub(crate) fn missing(
    facts: &Facts,
    known: &KnownDrive,
    policy: &Policy,
    now: Timestamp,
) -> Option<Verdict> {
    let Some(since) = known.missing_since else {
        return match facts.inventory.error() {
            Some(error) => unknown(error),
            // A drive that the store remembers is not here before a scan has shown it.
            None => facts.inventory.value().map(|_| Verdict::Clear),
        };
    };
    let replaced = known.in_use && volumes_intact_without(facts, known);
    if (!known.in_use || replaced) && elapsed(since, now) >= policy.forget_missing_after {
        return Some(Verdict::Clear);
    }
    let what = describe(&known.facts);
    let proof = vec![evidence(
        "/sys/class/block",
        since,
        format!(
            "{} ({}) was last seen at {} and is in no scan since {since}",
            known.facts.name, known.facts.id, known.last_seen
        ),
    )];
    let proof: Vec<_> = proof
        .into_iter()
        .chain(removal_records(facts, known, since))
        .collect();
    let clears = "the drive is seen again, under whatever name";
    if !known.in_use {
        return raised(
            Severity::Info,
            Status::Information,
            format!("{what} was removed while it was not in use"),
            proof,
            clears,
            Some(since),
        );
    }
    if replaced {
        let message = format!("{what} was removed; its volumes and arrays are intact without it");
        return raised(
            Severity::Info,
            Status::Information,
            message,
            proof,
            clears,
            Some(since),
        );
    }
    if let Some(controller) = &known.facts.location.raid_controller {
        // A member that went, or a hot spare that was pulled: which, only the controller knows.
        let place = known.facts.location.slot.as_deref().unwrap_or("its place");
        let text = format!(
            "{} ({}) was last listed at {}, and {place} is empty since {since}",
            known.facts.name, known.facts.id, known.last_seen
        );
        let message =
            format!("{what} is no longer listed by {controller}: check the controller's arrays");
        let clears = "its controller lists it again, or another drive in its place";
        let proof = vec![evidence(format!("drives of {controller}"), since, text)];
        return raised(
            Severity::Suspect,
            Status::Degraded,
            message,
            proof,
            clears,
            Some(since),
        );
    }
    let load = match known.volumes.len() {
        0 => "it was part of an array, a volume group or another mapping".to_owned(),
        _ => format!("it carried {}", join_limited(&known.volumes)),
    };
    let message = match known.facts.transport.is_remote() {
        true => format!("{what} can no longer be reached over the network; {load}"),
        false => format!("{what} is missing; {load}"),
    };
    raised(
        Severity::Bad,
        Status::Inaccessible,
        message,
        proof,
        clears,
        Some(since),
    )
}

/// Everything it carried is here, stands on other drives, and its redundancy says that nobody is
/// missing.
fn volumes_intact_without(facts: &Facts, drive: &KnownDrive) -> bool {
    !drive.volumes.is_empty()
        && drive.volumes.iter().all(|id| {
            facts.volumes.get(id).is_some_and(|volume| {
                let elsewhere = !volume.facts.drive_ids.is_empty()
                    && !volume.facts.drive_ids.contains(&drive.facts.id);
                !volume.retained
                    && !volume.facts.device_gone
                    && elsewhere
                    && layers_intact(facts, &volume.facts.devices)
            })
        })
}

fn layers_intact(facts: &Facts, devices: &[String]) -> bool {
    devices
        .iter()
        .filter_map(|name| facts.layers.get(name))
        .all(|layer| match layer.state.value() {
            Some(LayerState::Md(md)) => md.degraded == 0,
            Some(LayerState::DmRaid { health, .. }) => health.chars().all(|leg| leg == 'A'),
            Some(_) => true,
            None => false,
        })
}

/// The kernel knows the drive and does not talk to it. Source: SCSI `device/state`, NVMe `state`.
/// BAD, inaccessible: at once for `offline`, `transport-offline` and `dead`; for states that error
/// recovery passes through (`blocked`, `quiesce`, `resetting`, `connecting`…) after
/// `offline_after`. With several paths only when every one is off. Clears when one path works.
pub(crate) fn offline(
    facts: &Facts,
    known: &KnownDrive,
    policy: &Policy,
    now: Timestamp,
) -> Option<Verdict> {
    if known.missing_since.is_some() {
        // Told by DriveMissing.
        return Some(Verdict::Clear);
    }
    if let Some(error) = facts.inventory.error() {
        return unknown(error);
    }
    let at = facts.inventory.value().and(facts.inventory.at())?;
    let states = path_states(&known.facts);
    let worst = states
        .iter()
        .map(|(_, state)| classify_state(state))
        .min()?;
    let waited = known
        .abnormal_state_since
        .is_some_and(|since| elapsed(since, now) >= policy.offline_after);
    if worst == StateClass::Normal || (worst == StateClass::Recovering && !waited) {
        // While it may still recover nothing is raised, and an older finding is not over.
        let recovering = worst == StateClass::Recovering;
        return if recovering {
            unknown("the kernel is trying to recover the drive")
        } else {
            Some(Verdict::Clear)
        };
    }
    let mut proof: Vec<_> = states
        .iter()
        .map(|(name, state)| evidence(state_file(&known.facts, name), at, state))
        .collect();
    proof.extend(removal_records(
        facts,
        known,
        known.abnormal_state_since.unwrap_or(at),
    ));
    let said = match states.as_slice() {
        [(_, state)] => format!("its state is `{state}`"),
        all => format!(
            "all {} paths are off ({})",
            all.len(),
            join_limited(all.iter().map(|(name, state)| format!("{name} {state}")))
        ),
    };
    let message = format!(
        "the kernel has taken {} offline: {said}",
        describe(&known.facts)
    );
    raised(
        Severity::Bad,
        Status::Inaccessible,
        message,
        proof,
        "the kernel calls the drive, or one path to it, running or live",
        known.abnormal_state_since,
    )
}

/// What the kernel's log said when it gave the drive up, around that time.
fn removal_records(facts: &Facts, known: &KnownDrive, when: Timestamp) -> Vec<Evidence> {
    let near = Duration::from_secs(120);
    let tally = facts
        .errors(&Subject::Drive(known.facts.id.clone()))
        .and_then(|memory| memory.get(Class::Removed));
    let around = |tally: &&ErrorTally| {
        elapsed(tally.last.time, when) <= near && elapsed(when, tally.last.time) <= near
    };
    tally.filter(around).map(log_evidence).unwrap_or_default()
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

/// Each path with the kernel's word for it; a drive without devices, or whose devices say nothing,
/// speaks for itself.
fn path_states(drive: &DriveFacts) -> Vec<(String, String)> {
    let clean = |state: &Option<String>| {
        state
            .as_deref()
            .map(str::trim)
            .filter(|state| !state.is_empty())
            .map(str::to_owned)
    };
    let devices: Vec<(String, String)> = drive
        .devices
        .iter()
        .map(|device| {
            (
                device.name.clone(),
                clean(&device.state).unwrap_or_default(),
            )
        })
        .collect();
    if devices.iter().all(|(_, state)| state.is_empty()) {
        return clean(&drive.state)
            .map(|state| vec![(drive.name.clone(), state)])
            .unwrap_or_default();
    }
    devices
}

fn state_file(drive: &DriveFacts, device: &str) -> String {
    match device.starts_with("nvme") && drive.devices.iter().all(|known| known.name != device) {
        true => format!("/sys/class/nvme/{device}/state"),
        false => format!("/sys/block/{device}/device/state"),
    }
}

/// Drives beneath the volume have findings of their own. Source: this node's judgement of its
/// drives, and the stack between. SUSPECT, degraded, while redundancy covers them, or they are only
/// suspect, or they sit behind a RAID controller; BAD when the volume is on a bad one:
/// inaccessible when that is missing or offline, else degraded. Clears when no drive beneath has an
/// adverse finding.
pub(crate) fn failing(
    facts: &Facts,
    known: &KnownVolume,
    failing: &BTreeMap<DriveId, DriveFailure>,
    now: Timestamp,
) -> Option<Verdict> {
    let volume = &known.facts;
    let own = volume
        .drive_ids
        .iter()
        .filter_map(|id| failing.get_key_value(id));
    let hidden = failing.iter().filter(|(id, _)| {
        facts
            .drives
            .get(*id)
            .is_some_and(|drive| shares_controller_with(facts, drive, volume))
    });
    let beneath: Vec<(&DriveId, &DriveFailure)> = own.chain(hidden).collect();
    if beneath.is_empty() {
        return match facts.inventory.error() {
            Some(error) => unknown(error),
            None => facts.inventory.value().map(|_| Verdict::Clear),
        };
    }
    let holds = |test: &dyn Fn(&DriveFailure) -> bool| {
        volume.stack.impact(&|id| failing.get(id).is_some_and(test))
    };
    let all = holds(&|_| true);
    let bad = holds(&|failing| failing.severity == Severity::Bad);
    let gone = holds(&|failing| {
        failing.severity == Severity::Bad && failing.status == Status::Inaccessible
    });
    let (severity, status) = match (bad, gone) {
        (_, Impact::Exposed) => (Severity::Bad, Status::Inaccessible),
        (Impact::Exposed, _) => (Severity::Bad, Status::Degraded),
        _ => (Severity::Suspect, Status::Degraded),
    };
    let mut causes = beneath.clone();
    causes.sort_by_key(|(_, failing)| std::cmp::Reverse((failing.severity, failing.status)));
    let names = join_limited(causes.iter().map(|(id, failing)| {
        format!(
            "{} ({})",
            name_of(facts, id),
            join_limited(&failing.reasons)
        )
    }));
    let cover = redundancy_levels(&volume.stack);
    let message = match all {
        Impact::Exposed if cover.is_empty() => {
            format!("the volume is on {names}, without redundancy")
        }
        Impact::Exposed => format!(
            "the volume is on {names}, more than its redundancy ({}) covers",
            join_limited(cover)
        ),
        _ if cover.is_empty() => format!("drives of the volume: {names}"),
        _ => format!(
            "drives of the volume: {names}; covered by {}",
            join_limited(cover)
        ),
    };
    let proof = causes
        .iter()
        .take(4)
        .map(|(id, failing)| {
            let time = facts
                .drives
                .get(*id)
                .and_then(|known| known.missing_since.or(known.abnormal_state_since))
                .or(facts.inventory.at())
                .unwrap_or(now);
            evidence(format!("findings of drive {id}"), time, &failing.message)
        })
        .collect();
    let since = causes
        .iter()
        .filter_map(|(id, _)| facts.drives.get(*id))
        .filter_map(|known| known.missing_since.or(known.abnormal_state_since))
        .min();
    raised(
        severity,
        status,
        message,
        proof,
        "no drive below the volume has a finding of its own",
        since,
    )
}

/// It sits behind the RAID controller on one of whose logical disks the volume stands. Which of
/// them it is a part of, and what redundancy covers, the controller does not tell: so it makes the
/// volume suspect and no more.
fn shares_controller_with(facts: &Facts, drive: &KnownDrive, volume: &VolumeFacts) -> bool {
    let Some(host) = drive
        .facts
        .location
        .raid_controller
        .as_deref()
        .and_then(|controller| controller.rsplit("host").next())
    else {
        return false;
    };
    let logical = volume
        .drive_ids
        .iter()
        .filter_map(|id| facts.drives.get(id))
        .filter(|known| known.facts.transport == Transport::Raid);
    logical
        .filter_map(|known| known.facts.location.hctl.as_deref()?.split(':').next())
        .any(|number| number == host)
}

fn redundancy_levels(stack: &Stack) -> Vec<&str> {
    match stack {
        Stack::Nothing | Stack::Drive(_) => Vec::new(),
        Stack::All(parts) => parts.iter().flat_map(redundancy_levels).collect(),
        Stack::Redundant { level, parts, .. } => std::iter::once(level.as_str())
            .chain(parts.iter().flat_map(redundancy_levels))
            .collect(),
    }
}

fn name_of(facts: &Facts, id: &DriveId) -> String {
    match facts.drives.get(id) {
        Some(KnownDrive {
            facts,
            missing_since: None,
            ..
        }) => match &facts.location.raid_controller {
            Some(controller) => format!("drive {} {id} behind {controller}", facts.name),
            None => format!("drive {} {id}", facts.name),
        },
        _ => format!("drive {id}"),
    }
}

fn describe(drive: &DriveFacts) -> String {
    let mut text = format!("drive {}", drive.id);
    let model = [drive.vendor.as_deref(), drive.model.as_deref()]
        .into_iter()
        .flatten()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ");
    let mut known = Vec::new();
    if !model.is_empty() {
        known.push(model);
    }
    if drive.size_bytes > 0 {
        known.push(format_bytes(drive.size_bytes));
    }
    if let (Some(enclosure), Some(slot)) = (&drive.location.enclosure, &drive.location.slot) {
        known.push(format!("enclosure {enclosure} slot {slot}"));
    }
    if !known.is_empty() {
        text.push_str(&format!(" ({})", known.join(", ")));
    }
    text
}
