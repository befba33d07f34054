//! Present drives that call themselves the same, or have one superblock.

use crate::assess::drive::describe;
use crate::assess::input::DriveInput;
use crate::assess::text::{INFO, evidence, raised, unknown};
use crate::drive::{DriveFacts, DriveKind, Transport};
use crate::facts::KnownDrive;
use crate::facts::drive_use::MemberSignature;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::{Verdict, WitnessKind};

/// Another present drive has an identity of this one, and was known by it before. INFO: a bridge
/// with a fixed serial number does this too, and nothing is wrong with either drive. One finding a
/// pair, about the newer one. So does a copy of a member of an array or a volume group. Source: the
/// inventory. Clears when no other present drive has it.
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
    let shared = |other| {
        let identity = shared_identity(known, other).map(|it| (Shared::Identity, it.as_str()));
        Some((other, identity.or_else(|| shared_superblock(known, other))?))
    };
    let first = others.filter_map(shared).min_by_key(|(it, _)| rank(it));
    let Some((other, (shared, identity))) = first else {
        return Some(Verdict::Clear);
    };
    let (own, first) = (&known.facts, &other.facts);
    let (what, stays) = match shared {
        Shared::Identity => {
            ("reports the same identity", "History and findings of that identity stay with")
        }
        Shared::Superblock => {
            ("has the same superblock", "It is a copy, or the original is: compare")
        }
    };
    let message = format!(
        "{} ({}) {what} as {} ({}): {identity}. {stays} {}",
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

enum Shared {
    Identity,
    /// Of a member of an array or of a volume group.
    Superblock,
}

/// A member's superblock is on one drive. Its paths are one drive; a copy is another one.
fn shared_superblock<'a>(known: &'a KnownDrive, other: &KnownDrive) -> Option<(Shared, &'a str)> {
    let others = || other.signatures.iter().filter_map(MemberSignature::own_uuid);
    let mut own = known.signatures.iter().filter_map(MemberSignature::own_uuid);
    let uuid = own.find(|uuid| others().any(|other| other == *uuid))?;
    Some((Shared::Superblock, uuid))
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
