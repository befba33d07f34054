//! Drives whose sectors did not have the checksum that dm-integrity keeps of them.

use crate::assess::input::{Context, DriveInput};
use crate::assess::text::{SUSPECT, drive_name, evidence, join_limited, raised};
use diskvitals_finding::{Verdict, WitnessKind};

/// dm-integrity has counted more mismatches on the drive. Source: the status of the device-mapper target
/// (dm-integrity.rst, "Status line"). Growth only: the count is never lowered, and what was there at first
/// sight may be of an unfinished initialization. SUSPECT: memory, adapter and cable damage data too. Clears
/// when it has not grown for `quiet_after`.
pub(crate) fn mismatches(input: &DriveInput) -> Option<Verdict> {
    let (Context { facts, policy, now }, known) = (input.context, input.known);
    let quiet_since = now.saturating_sub(policy.errors.quiet_after).unwrap_or(now);
    let (mut found, mut proof) = (Vec::new(), Vec::new());
    for history in facts.integrity_counts(&known.facts.id) {
        for (_, counter) in history.counters() {
            let Some(grew) = counter.last_growth.filter(|at| *at > quiet_since) else {
                continue;
            };
            let (name, count) = (&history.file, counter.total_growth);
            let sectors = if count == 1 { "1 sector" } else { &format!("{count} sectors") };
            found.push(format!("{sectors} of {name}"));
            let status = history.details.get("status").cloned().unwrap_or_default();
            proof.push(evidence(WitnessKind::Layer, format!("dm status of {name}"), grew, status));
        }
    }
    if found.is_empty() {
        return Some(Verdict::Clear);
    }
    let message = format!(
        "{} returned data that is not what was written: {}, by the checksums of dm-integrity",
        drive_name(known),
        join_limited(found)
    );
    let clears = "the count has not grown for `[errors] quiet_after`";
    raised(SUSPECT, message, proof, clears, None)
}
