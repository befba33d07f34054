//! Whether the node as a whole can work with its storage, for the node condition `StorageFailed`.
//!
//! In: a snapshot. Out: what makes the node unfit, and what is not known. Pure. One failed drive of
//! many is no failure of the node. An acknowledgement makes no filesystem writable, so it changes
//! nothing here; a drive under maintenance does not count.

use jiff::Timestamp;

use crate::assess::MAX_MESSAGE;
use crate::label;
use crate::snapshot::{Drive, Snapshot, SystemDirectory, Volume};
use crate::source_update::SourceStatus;
use crate::volume::Impact;
use diskvitals_finding::ids::{DriveId, FindingId};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Finding, Health};
use diskvitals_text::echo::truncate;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeFailureReason {
    FilesystemReadOnly,
    FilesystemGone,
    FilesystemHung,
    DrivesUnreachable,
}

impl NodeFailureReason {
    /// The reason of the node condition.
    pub fn name(self) -> &'static str {
        match self {
            NodeFailureReason::FilesystemReadOnly => "SystemFilesystemReadOnly",
            NodeFailureReason::FilesystemGone => "SystemFilesystemGone",
            NodeFailureReason::FilesystemHung => "SystemFilesystemHung",
            NodeFailureReason::DrivesUnreachable => "DrivesUnreachable",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFailure {
    pub reason: NodeFailureReason,
    /// At most 1,024 bytes.
    pub message: String,
    pub since: Timestamp,
}

/// Without failures the node is fit only if nothing is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFailures {
    pub failures: Vec<NodeFailure>,
    pub unknown: Vec<String>,
}

pub fn assess(snapshot: &Snapshot) -> NodeFailures {
    let mut found = NodeFailures::default();
    found.unknown.extend(incomplete_cause(snapshot));
    let mut seen = Vec::new();
    for directory in &snapshot.node_context.system_directories {
        // A filesystem that the daemon does not watch (an overlay, a read-only image) is no evidence.
        let Some(id) = &directory.volume else {
            continue;
        };
        if seen.contains(&id) {
            continue;
        }
        seen.push(id);
        let Some(volume) = snapshot.volumes.get(id) else {
            let path = &directory.path;
            let unknown = format!("the filesystem of {path} is not known yet");
            found.unknown.push(unknown);
            continue;
        };
        match filesystem_failure(snapshot, directory, volume) {
            Some(failure) => found.failures.push(failure),
            None if volume.health == Health::Unknown => found.unknown.push(format!(
                "the filesystem of {}: {}",
                directory.path, volume.health_unknown_why
            )),
            None => {}
        }
    }
    found.failures.extend(unreachable_drives(snapshot));
    found.failures.sort_by_key(|failure| failure.reason);
    found
}

/// The kubelet's records are not needed here.
fn incomplete_cause(snapshot: &Snapshot) -> Option<String> {
    if !snapshot.settled {
        return Some("the daemon has not finished its first scan yet".to_owned());
    }
    let down = |source: Source| match snapshot.node.sources.get(&source) {
        Some((SourceStatus::Down(why), _)) => Some(format!("{}: {why}", source.name())),
        _ => None,
    };
    [Source::Mounts, Source::Udev].into_iter().find_map(down)
}

fn active<'a>(snapshot: &'a Snapshot, ids: &'a [FindingId]) -> impl Iterator<Item = &'a Finding> {
    let findings = ids.iter().filter_map(|id| snapshot.findings.get(id));
    findings.map(AsRef::as_ref).filter(|finding| finding.severity == Severity::Bad)
}

fn filesystem_failure(
    snapshot: &Snapshot,
    directory: &SystemDirectory,
    volume: &Volume,
) -> Option<NodeFailure> {
    let reason_of = |reason: Reason| {
        if reason.access_fails() {
            Some(NodeFailureReason::FilesystemGone)
        } else if reason.is_hang() {
            Some(NodeFailureReason::FilesystemHung)
        } else {
            (reason == Reason::ReadOnly).then_some(NodeFailureReason::FilesystemReadOnly)
        }
    };
    let worst = active(snapshot, &volume.findings)
        .filter_map(|finding| Some((reason_of(finding.reason)?, finding)))
        .min_by_key(|(reason, _)| *reason);
    worst.map(|(reason, finding)| {
        let message = format!("{}: {}: {}", directory.path, finding.reason, finding.message);
        NodeFailure { reason, message: truncate(&message, MAX_MESSAGE), since: finding.since }
    })
}

/// Of the local drives that carry volumes, `unreachable_percent` are missing or offline, and redundancy
/// does not cover them.
fn unreachable_drives(snapshot: &Snapshot) -> Option<NodeFailure> {
    let counts = |drive: &&Drive| {
        !drive.volumes.is_empty() && !drive.maintenance && !drive.facts.transport.is_remote()
    };
    let drives: Vec<&Drive> = snapshot.drives.values().map(AsRef::as_ref).filter(counts).collect();
    let is_lost = |id: &DriveId| {
        let drive = snapshot.drives.get(id);
        drive.is_some_and(|drive| loss(snapshot, drive).is_some())
    };
    let exposes = |drive: &Drive| {
        let volumes = drive.volumes.iter();
        volumes
            .filter_map(|id| snapshot.volumes.get(id))
            .any(|volume| volume.facts.stack.impact(&is_lost) == Impact::Exposed)
    };
    let lost: Vec<(&Drive, &Finding)> = drives
        .iter()
        .filter_map(|drive| Some((*drive, loss(snapshot, drive)?)))
        .filter(|(drive, _)| exposes(drive))
        .collect();
    let percent = usize::from(snapshot.node.failure_policy.unreachable_percent);
    if lost.is_empty() || lost.len() * 100 < drives.len() * percent {
        return None;
    }
    const MAX_NAMED: usize = 8;
    let names = lost.iter().take(MAX_NAMED);
    let names: Vec<String> = names
        .map(|(drive, finding)| format!("{} ({})", label::drive(drive), finding.reason))
        .collect();
    let more = match lost.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "{} of {} drives that carry volumes are unreachable: {}{more}",
        lost.len(),
        drives.len(),
        names.join(", ")
    );
    Some(NodeFailure {
        reason: NodeFailureReason::DrivesUnreachable,
        message: truncate(&message, MAX_MESSAGE),
        since: lost.iter().map(|(_, finding)| finding.since).max().unwrap_or_default(),
    })
}

/// A drive that was removed while nothing used it is no loss: its finding is not BAD.
fn loss<'a>(snapshot: &'a Snapshot, drive: &'a Drive) -> Option<&'a Finding> {
    active(snapshot, &drive.findings).find(|finding| finding.reason.is_gone())
}

#[cfg(test)]
mod tests;
