//! The speed of the link between a drive and its controller.

use crate::assess::input::DriveInput;
use crate::assess::text::{SUSPECT, drive_name, evidence, raised, unknown};
use diskvitals_finding::{Verdict, WitnessKind};

/// The kernel has limited the SATA link to a lower speed after errors. Source: libata's limit of the
/// link, below that of its port: never what an old port or drive negotiates, and never a link that saves
/// power. SUSPECT: the cable, not the drive. Clears when the limit is gone: the drive was attached anew.
pub(crate) fn downgraded(input: &DriveInput) -> Option<Verdict> {
    let (known, inventory) = (input.known, &input.context.facts.inventory);
    if let Some(error) = inventory.error() {
        return unknown(error);
    }
    let Some(limit) =
        known.facts.lowered_link_speed.as_ref().filter(|_| known.missing_since.is_none())
    else {
        return Some(Verdict::Clear);
    };
    let port = known.facts.location.ata_port?;
    let message = format!(
        "The kernel has limited the SATA link of {} to {limit} after errors",
        drive_name(known)
    );
    let file = format!("/sys/class/ata_link/link{port}/sata_spd_limit");
    let proof = vec![evidence(WitnessKind::Inventory, file, inventory.at()?, limit)];
    raised(SUSPECT, message, proof, "the limit is gone: the drive is attached anew", None)
}
