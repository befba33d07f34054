//! Arrays of RAID controllers, each of which the kernel has as one drive.

use crate::assess::input::DriveInput;
use crate::assess::text::{
    INACCESSIBLE, INFO, SUSPECT, drive_name, evidence, join_limited, raised, unknown,
};
use crate::facts::{Facts, KnownDrive};
use crate::raid_report::RaidTool;
use diskvitals_finding::{Subject, UnknownHealth, Verdict, WitnessKind};
use diskvitals_kernel_log::event::Class;
use diskvitals_kernel_log::raid_array::{ArrayState, state_in};

/// Why the state of an array is unknown; None: it is known, or the drive is no array of a controller
/// whose arrays are looked at. What the firmware logged last counts: by default it logs what is worse.
pub(crate) fn unknown_state(facts: &Facts, known: &KnownDrive) -> Option<UnknownHealth> {
    let tool = RaidTool::of_driver(known.facts.location.array_driver.as_deref()?)?;
    let logged = facts.errors(&Subject::Drive(known.facts.id.clone()));
    if logged.is_some_and(|history| history.get(Class::ArrayState).is_some()) {
        return None;
    }
    let why = format!("array state not read: install {}", tool.programs());
    Some(UnknownHealth::no_smart(why))
}

/// Arrays of a controller that nothing reads the state of: one finding for each controller, of its first
/// such array. Clears when the state of all of them is known.
pub(crate) fn state_unknown(input: &DriveInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    let location = &known.facts.location;
    let is_beside = |other: &&KnownDrive| {
        let there = &other.facts.location;
        other.missing_since.is_none()
            && (&there.pci, &there.array_driver) == (&location.pci, &location.array_driver)
    };
    if location.array_driver.is_none() || known.missing_since.is_some() {
        return Some(Verdict::Clear);
    }
    if let Some(unread) = facts.kernel.unread_cause() {
        return unknown(unread.why);
    }
    let beside = facts.drives.values().filter(is_beside);
    let unread: Vec<(&KnownDrive, UnknownHealth)> =
        beside.filter_map(|it| Some((it, unknown_state(facts, it)?))).collect();
    let Some((_, first)) = unread.first().filter(|(it, _)| it.facts.id == known.facts.id) else {
        return Some(Verdict::Clear);
    };
    let names: Vec<&str> = unread.iter().map(|(it, _)| it.facts.name.as_str()).collect();
    let place = location.pci.as_deref().unwrap_or("an unknown address");
    let message =
        format!("{} of the RAID controller at {place}: {}", join_limited(&names), first.why);
    let proof = vec![evidence(WitnessKind::Inventory, "sysfs", known.first_seen, &first.why)];
    raised(INFO, message, proof, "the state of these arrays is read", None)
}

/// The newest state that the controller's firmware reported of the array. Source: the kernel log
/// (megasas_decode_evt(), megaraid_sas_base.c). SUSPECT while members are missing, BAD (inaccessible) when
/// more are missing than it tolerates. Clears when the firmware reports that the array is optimal, or when a
/// repair is acknowledged: by default the kernel does not print the former, and time repairs no array.
pub(crate) fn degraded(input: &DriveInput) -> Option<Verdict> {
    let Some(tally) = input.errors.and_then(|history| history.get(Class::ArrayState)) else {
        return Some(Verdict::Clear);
    };
    let line = &tally.last;
    let (level, state) = match state_in(&line.text) {
        // Reported by DriveMissing.
        _ if input.known.missing_since.is_some() => return Some(Verdict::Clear),
        Some(ArrayState::Optimal) => return Some(Verdict::Clear),
        Some(ArrayState::Offline) => (INACCESSIBLE, "offline"),
        Some(ArrayState::Degraded) | None => (SUSPECT, "degraded"),
    };
    let message =
        format!("the RAID controller reports that {} is {state}", drive_name(input.known));
    let proof = vec![evidence(line.origin.witness(), line.origin.name(), line.time, &line.text)];
    let clears = "the controller logs that the array is optimal, or a repair of the cause is acknowledged (`diskvitals ack --repaired`)";
    raised(level, message, proof, clears, Some(line.time))
}
