//! Present drives that call themselves the same.

use crate::model::assess::drive::describe;
use crate::model::assess::reason_rules::DriveInput;
use crate::model::assess::text::{INFO, evidence, raised, unknown};
use crate::model::drive::{DriveFacts, DriveKind, Transport};
use crate::model::facts::KnownDrive;
use crate::model::finding::{Verdict, WitnessKind};
use crate::model::ids::DriveId;

/// Another present drive has an identity of this one, and was known by it before. INFO: a bridge
/// with a fixed serial number does this too, and nothing is wrong with either drive. One finding a
/// pair, about the newer one. Source: the inventory. Clears when no other present drive has it.
pub(crate) fn shares_identity(input: &DriveInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    if known.missing_since.is_some() {
        return Some(Verdict::Clear);
    }
    if let Some(error) = facts.inventory.error() {
        return unknown(error);
    }
    let at = facts.inventory.at()?;
    let others = facts.drives.values().filter(|other| {
        other.facts.id != known.facts.id
            && other.missing_since.is_none()
            && rank(other) < rank(known)
    });
    let shared = |other| Some((other, shared_identity(known, other)?));
    let Some((other, identity)) = others.filter_map(shared).min_by_key(|(it, _)| rank(it)) else {
        return Some(Verdict::Clear);
    };
    let (own, first) = (&known.facts, &other.facts);
    let message = format!(
        "{} ({}) reports the same identity as {} ({}): {identity}. History and findings of that identity stay with {}",
        describe(own),
        location(own),
        describe(first),
        location(first),
        first.name,
    );
    let proof = [first, own].map(|drive| {
        let text = format!("{identity} at {}", location(drive));
        evidence(WitnessKind::Inventory, &drive.name, at, text)
    });
    let clears = "no other drive that is present has its identity";
    raised(INFO, message, proof.into(), clears, None)
}

/// Whoever has the identity as its id comes first, then whoever came first.
fn rank(known: &KnownDrive) -> (bool, jiff::Timestamp, &DriveId) {
    let facts = &known.facts;
    (facts.id == facts.place, known.first_seen, &facts.id)
}

/// Logical units of one target share its serial number, and so may disks of one array in a network
/// or of one hypervisor.
fn shared_identity<'a>(known: &'a KnownDrive, other: &KnownDrive) -> Option<&'a DriveId> {
    let (own, other) = (&known.facts, &other.facts);
    let is_independent = |drive: &DriveFacts| {
        !matches!(drive.kind, DriveKind::Virtual | DriveKind::Remote)
            && !matches!(drive.transport, Transport::Loop | Transport::Raid)
    };
    let target = |drive: &DriveFacts| {
        let hctl = drive.location.hctl.clone()?;
        Some(hctl.rsplit_once(':')?.0.to_owned())
    };
    if !is_independent(own) || !is_independent(other) {
        return None;
    }
    if target(own).is_some() && target(own) == target(other) {
        return None;
    }
    let mut identities = own.identities.iter();
    identities.find(|identity| other.identities.contains(identity))
}

fn location(drive: &DriveFacts) -> &str {
    let place = drive.place.as_str();
    place.strip_prefix("path:").unwrap_or(place)
}
