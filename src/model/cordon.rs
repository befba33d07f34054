//! The cordon of the pool: a failing drive below it, without redundancy, takes no new volumes.
//!
//! In: a snapshot, a kind of the pool's volumes. Out: the cordon with its drive and finding, or
//! none. Pure. An acknowledgement or maintenance lifts no cordon: neither makes the drive better. It
//! ends when the finding clears. An unknown state begins none, and ends none, because it clears no
//! finding.

use jiff::Timestamp;

use crate::advice;
use crate::assess::MAX_MESSAGE;
use crate::label;
use crate::snapshot::{Drive, Snapshot};
use crate::storage::StorageUnknown;
use crate::volume::Impact;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::provision::BackingKind;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Health};
use diskvitals_text::echo::truncate;

/// Why no new volume is placed in a part of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cordon {
    pub kind: BackingKind,
    /// The worst of the failing drives.
    pub drive: DriveId,
    /// `sda (Model, serial S, slot 3)`.
    pub drive_name: String,
    /// The number of further drives that fail below the pool.
    pub others: usize,
    pub reason: Reason,
    pub since: Timestamp,
    /// The finding's message.
    pub finding: String,
    pub action: String,
}

impl Cordon {
    /// At most 1,024 bytes. `since` is the cordon's own, on the wall clock.
    pub fn text(&self, since: Timestamp) -> String {
        let others = match self.others {
            0 => String::new(),
            1 => " (and 1 more drive)".to_owned(),
            more => format!(" (and {more} more drives)"),
        };
        let end = format!(
            ". {} The pool takes new volumes again when the finding clears; an acknowledgement does not lift this.",
            self.action
        );
        let text = format!(
            "no new volume is placed in the pool ({}): drive {}{others} below it is failing and has no redundancy: {} since {since:.0}: {}",
            name(self.kind),
            self.drive_name,
            self.reason,
            self.finding,
        );
        format!("{}{end}", truncate(&text, MAX_MESSAGE.saturating_sub(end.len())))
    }
}

/// The kind's name in a StorageClass.
pub fn name(kind: BackingKind) -> &'static str {
    match kind {
        BackingKind::Loop => "loop",
        BackingKind::Lvm => "lvm",
        BackingKind::StaticDevice => "static-device",
        BackingKind::StaticDirectory => "static-directory",
    }
}

/// The cordon of the pool for new volumes of this kind. An error before the first complete look: a
/// cordon from before a restart may hold.
pub fn of_pool(snapshot: &Snapshot, kind: BackingKind) -> Result<Option<Cordon>, StorageUnknown> {
    let unknown = |why: &str| Err(StorageUnknown(why.to_owned()));
    let Some(stack) = snapshot.node_context.pool.get(&kind) else {
        return unknown("the drives below the pool are not known yet");
    };
    let is_bad = |id: &DriveId| {
        let drive = snapshot.drives.get(id);
        drive.is_some_and(|drive| drive.health == Health::Bad)
    };
    if stack.impact(&is_bad) == Impact::Exposed {
        let failing = stack.drives().into_iter().filter(|id| is_bad(id));
        let mut failing: Vec<(&Drive, &Finding)> = failing
            .filter_map(|id| {
                let drive = snapshot.drives.get(id)?;
                Some((drive.as_ref(), worst_finding(snapshot, drive)?))
            })
            .collect();
        failing.sort_by_key(|(_, finding)| (std::cmp::Reverse(finding.status), finding.since));
        if let Some((drive, finding)) = failing.first() {
            return Ok(Some(Cordon {
                kind,
                drive: drive.facts.id.clone(),
                drive_name: drive_name(drive),
                others: failing.len() - 1,
                reason: finding.reason,
                since: finding.since,
                finding: finding.message.clone(),
                action: advice::advise(snapshot, drive)
                    .map(|advice| advice.to_do)
                    .unwrap_or_else(|| advice::for_finding(snapshot, finding)),
            }));
        }
    }
    if !snapshot.settled {
        return unknown("the state of the drives below the pool is not known yet");
    }
    Ok(None)
}

/// All cordons that hold.
pub fn all(snapshot: &Snapshot) -> impl Iterator<Item = Cordon> + '_ {
    let kinds = snapshot.node_context.pool.keys();
    kinds.filter_map(|kind| of_pool(snapshot, *kind).ok().flatten())
}

fn worst_finding<'a>(snapshot: &'a Snapshot, drive: &Drive) -> Option<&'a Finding> {
    let findings = drive.findings.iter();
    findings
        .filter_map(|id| snapshot.findings.get(id))
        .map(AsRef::as_ref)
        .find(|finding| finding.severity == Severity::Bad)
}

fn drive_name(drive: &Drive) -> String {
    let facts = &drive.facts;
    let text = |prefix: &str, value: &Option<String>| {
        let value = value.as_deref().map(str::trim);
        let value = value.filter(|value| !value.is_empty())?;
        Some(format!("{prefix}{}", truncate(value, 64)))
    };
    let parts = [
        text("", &facts.model),
        text("serial ", &facts.serial),
        text("enclosure ", &facts.location.enclosure),
        text("slot ", &facts.location.slot),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => label::drive(drive),
        false => format!("{} ({})", label::drive(drive), parts.join(", ")),
    }
}

#[cfg(test)]
mod tests;
