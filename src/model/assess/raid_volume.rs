//! Arrays of RAID controllers, each of which the kernel has as one drive.

use crate::assess::input::DriveInput;
use crate::assess::text::{INACCESSIBLE, SUSPECT, drive_name, evidence, raised};
use diskvitals_finding::Verdict;
use diskvitals_kernel_log::event::Class;
use diskvitals_kernel_log::raid_array::{ArrayState, state_in};

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
