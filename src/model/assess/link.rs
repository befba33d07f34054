//! The link between a drive and its controller, and the paths to it.

use crate::assess::input::DriveInput;
use crate::assess::layers::Degradation;
use crate::assess::merge;
use crate::assess::text::{
    INACCESSIBLE, INFO, Level, SUSPECT, drive_name, evidence, raised, unknown,
};
use crate::facts::{Facts, KnownDrive};
use crate::link::{Compared, DriveLink, LinkKind};
use diskvitals_finding::{Evidence, Verdict, WitnessKind};

/// Readings in a row, with I/O between them, that a PCIe link must have been below its best.
const LOW_ON_PCIE: u64 = 10;
/// Of a SAS link, which has no rest at a lower rate: hourly.
const LOW_ON_SAS: u64 = 2;
/// Of paths: a controller that was only reset is back by then.
const LOW_OF_PATHS: u64 = 3;
/// What the phys of a port may count in a day: none is expected of a good link.
const MOST_PHY_ERRORS: u64 = 10;

/// The link is slower or narrower than it was: the kernel has limited it, or it has negotiated less.
pub(crate) fn downgraded(input: &DriveInput) -> Option<Verdict> {
    merge(limited(input), below_its_best(input))
}

/// The kernel has limited the SATA link to a lower speed after errors. Source: libata's limit of the
/// link, below that of its port: never what an old port or drive negotiates, and never a link that saves
/// power. SUSPECT: the cable, not the drive. Clears when the limit is gone: the drive was attached anew.
fn limited(input: &DriveInput) -> Option<Verdict> {
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

/// Fewer lanes or a lower rate than the same drive had in the same place. Source: sysfs. PCIe: in ten
/// readings in a row, the drive awake and with I/O between them; a lower rate only in readings while I/O
/// ran, so that no link that rests counts. Fewer lanes are SUSPECT, a lower rate of PCIe is INFO. SAS: in
/// two hourly readings; INFO where only the way to its shelf is narrower. Clears at the best again, or in
/// another place.
fn below_its_best(input: &DriveInput) -> Option<Verdict> {
    let known = input.known;
    if known.missing_since.is_some() {
        return Some(Verdict::Clear);
    }
    let links = input.context.facts.links(known);
    let verdicts = links.iter().flat_map(|link| {
        let (bus, readings, of_rate) = match link.kind {
            LinkKind::Pcie => ("PCIe", LOW_ON_PCIE, INFO),
            LinkKind::Sas => ("SAS", LOW_ON_SAS, SUSPECT),
            LinkKind::NvmePaths => return Vec::new(),
        };
        let name = drive_name(known);
        let is_low = |of: &Compared| of.low_readings >= readings;
        let lanes = link.lanes.filter(is_low).map(|of| {
            (
                SUSPECT,
                format!("The {bus} link of {name} has {} instead of {} lanes", of.now, of.best),
            )
        });
        let rate = link.rate.filter(is_low).map(|of| {
            let [now, best] = [of.now, of.best].map(|rate| link.kind.rate_text(rate));
            (of_rate, format!("The {bus} link of {name} runs at {now} instead of {best}"))
        });
        let shelf = link.shelf_lanes.filter(is_low).map(|of| {
            let (now, best) = (of.now, of.best);
            (INFO, format!("The SAS way to the shelf of {name} has {now} instead of {best} lanes"))
        });
        let states = [lanes, rate, shelf].into_iter().flatten();
        states.map(|(level, message)| lowered(link, level, message)).collect()
    });
    verdicts.fold(Some(Verdict::Clear), merge)
}

fn lowered(link: &DriveLink, level: Level, message: String) -> Option<Verdict> {
    let advice = match link.kind {
        LinkKind::Sas => "Reseat the drive; look at its cable, its slot and the expander.",
        _ => {
            "Reseat the drive; look at its slot, its riser or backplane, and at the firmware's settings."
        }
    };
    let degradation = Degradation {
        level,
        message,
        advice: Some(format!("{advice} The drive's medium is not affected.")),
        clears: None,
        evidence: vec![link_evidence(link)],
    };
    degradation.raise("the link is as good as it was", None)
}

/// The phys of a SAS link count damaged transfers. Source: their counters, over a day in which nothing was
/// plugged, if they grew in at least three of its hours. SUSPECT: the cable or the slot, not the drive.
/// Clears after a day with fewer.
pub(crate) fn phy_errors(input: &DriveInput) -> Option<Verdict> {
    let known = input.known;
    if known.missing_since.is_some() {
        return None;
    }
    let links = input.context.facts.links(known);
    let link = links
        .iter()
        .find(|link| link.errors_a_day.iter().any(|(_, grown)| *grown >= MOST_PHY_ERRORS))?;
    let counts = link.errors_a_day.iter().map(|(name, grown)| format!("{name} +{grown}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let message =
        format!("{} had errors on its SAS link within a day: {counts}", drive_name(known));
    let proof = evidence(WitnessKind::Inventory, &link.file, link.changed, counts);
    raised(SUSPECT, message, vec![proof], "the phys of its link count less in a day", None)
}

/// NVMe multipath has fewer paths to a namespace on which the volume is than it had. Source: the states
/// of its controllers and of ANA, in three readings. SUSPECT; BAD, inaccessible, without any. Clears when
/// there are as many as before.
pub(crate) fn paths_lost(facts: &Facts, known: &KnownDrive) -> Option<Verdict> {
    let links = facts.paths(known);
    let states = links.iter().map(|link| {
        let paths = link.lanes?;
        if paths.low_readings < LOW_OF_PATHS {
            return Some(Verdict::Clear);
        }
        let name = drive_name(known);
        let (level, message) = match paths.now {
            0 => (INACCESSIBLE, format!("{name} has no working path left of {}", paths.best)),
            now => (SUSPECT, format!("{name} has {now} of {} working paths", paths.best)),
        };
        let degradation = Degradation {
            level,
            message,
            advice: Some("See which controller is not `live` (`nvme list-subsys`), and check its adapter, cable and switch port.".to_owned()),
            clears: None,
            evidence: vec![link_evidence(link)],
        };
        degradation.raise("there are as many paths as before", None)
    });
    states.reduce(merge).flatten()
}

/// What is reported of it now, beside the best.
fn link_evidence(link: &DriveLink) -> Evidence {
    let text = |what: &str, of: Option<Compared>| {
        of.map(|of| format!("{what} {}, at best {}", of.now, of.best))
    };
    let rate = link.rate.map(|of| {
        let [now, best] = [of.now, of.best].map(|rate| link.kind.rate_text(rate));
        format!("rate {now}, at best {best}")
    });
    let what = match link.kind {
        LinkKind::NvmePaths => "usable paths",
        _ => "lanes",
    };
    let shelf = text("phys to the shelf", link.shelf_lanes);
    let texts = [text(what, link.lanes), rate, shelf].into_iter().flatten();
    let texts = texts.collect::<Vec<_>>().join("; ");
    evidence(WitnessKind::Inventory, &link.file, link.changed, texts)
}
