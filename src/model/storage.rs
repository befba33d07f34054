//! The state of the storage below a driver's volumes, for CSI: whether it is broken, and whether it
//! responds. Pure over a snapshot.
//!
//! An unknown state is an error with its reason, never "healthy" and never "not connected": the
//! caller keeps the previous answer.

mod remote;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::assess::MAX_MESSAGE;
use crate::snapshot::{Drive, Presence, Snapshot, Volume};
use crate::source_update::SourceStatus;
use crate::storage::remote::RemoteVolumes;
use crate::volume::{Impact, Stack};
use diskvitals_finding::ids::{DriveId, FindingId};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Finding, Health, Subject};
use diskvitals_text::echo::truncate;

/// One fault of the underlying drives, or of storage on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageFault {
    /// Nothing of the driver's storage can be reached from this node; otherwise a part is gone or
    /// bad.
    pub unreachable: bool,
    /// Of storage on the network.
    pub remote: bool,
    pub reason: Reason,
    /// Names the drives or volumes; at most 1,024 bytes.
    pub message: String,
}

/// Why the state of the storage is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StorageUnknown(pub String);

/// Whether volumes can be reached, with messages for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeConnectivity {
    pub connected: bool,
    pub messages: Vec<String>,
}

/// Why the snapshot may lack volumes: it is not complete yet, or a source that lists objects is
/// down.
pub fn incomplete_cause(snapshot: &Snapshot) -> Option<String> {
    if !snapshot.settled {
        return Some("the daemon has not finished its first scan yet".to_owned());
    }
    let down = |source: Source| match snapshot.node.sources.get(&source) {
        Some((SourceStatus::Down(why), _)) => Some(format!("{}: {why}", source.name())),
        _ => None,
    };
    [Source::Kubelet, Source::Mounts, Source::Udev].into_iter().find_map(down)
}

/// Volumes of a CSI driver.
pub fn volumes_of<'a>(
    snapshot: &'a Snapshot,
    driver: &'a str,
) -> impl Iterator<Item = &'a Arc<Volume>> {
    snapshot.volumes.values().filter(move |volume| volume.facts.driver.as_deref() == Some(driver))
}

/// The drives of this node that the driver's volumes depend on. The pool's drives are included if
/// the pool belongs to the driver.
fn drives_of<'a>(snapshot: &'a Snapshot, driver: &str) -> Vec<&'a Drive> {
    let local = snapshot
        .volumes
        .values()
        .filter(|volume| volume.facts.driver.as_deref() == Some(driver) && !volume.facts.remote);
    let pool = Some(&snapshot.node_context)
        .filter(|node_context| node_context.driver.as_deref() == Some(driver));
    let pool = pool.into_iter().flat_map(|node_context| node_context.pool_drives());
    let ids: BTreeSet<&DriveId> =
        local.flat_map(|volume| &volume.facts.drive_ids).chain(pool).collect();
    let drives = ids.into_iter().filter_map(|id| snapshot.drives.get(id)).map(AsRef::as_ref);
    drives.filter(|drive| !drive.facts.transport.is_remote()).collect()
}

/// The storage below a driver's volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverStorage {
    pub faults: Vec<StorageFault>,
    /// Whether a volume on the network answers; None if there is none, or nothing is known.
    pub is_network_reached: Option<bool>,
}

/// An error if no fault is known and some state is unknown.
pub fn driver_storage(snapshot: &Snapshot, driver: &str) -> Result<DriverStorage, StorageUnknown> {
    let remote = RemoteVolumes::of(snapshot, driver);
    Ok(DriverStorage {
        faults: faults(snapshot, driver, &remote)?,
        is_network_reached: remote.is_reached(),
    })
}

/// Faults of the storage below a driver's volumes: UNREACHABLE when all local drives are missing and
/// no volume on the network answers, otherwise DEGRADED for missing and bad drives and for volumes
/// that do not answer. The medium of a drive on the network is not judged. An error if no fault is
/// known and some state is unknown.
fn faults(
    snapshot: &Snapshot,
    driver: &str,
    remote: &RemoteVolumes,
) -> Result<Vec<StorageFault>, StorageUnknown> {
    let drives = drives_of(snapshot, driver);
    let (gone, here): (Vec<&Drive>, Vec<&Drive>) =
        drives.iter().partition(|drive| drive.presence != Presence::Present);
    let bad: Vec<&Drive> = here.into_iter().filter(|drive| drive.health == Health::Bad).collect();
    let all_gone = !drives.is_empty() && gone.len() == drives.len();
    let mut faults = Vec::new();
    if !gone.is_empty() {
        let which = gone.iter().map(|drive| name(drive)).collect::<Vec<_>>().join(", ");
        let message = match all_gone {
            true => format!("all drives beneath the volumes are gone: {which}"),
            false => format!(
                "{} of {} drives beneath the volumes are gone: {which}",
                gone.len(),
                drives.len()
            ),
        };
        faults.push(StorageFault {
            unreachable: all_gone && remote.are_cut_off(),
            remote: false,
            reason: Reason::DriveMissing,
            message: truncate(&message, MAX_MESSAGE),
        });
    }
    if !bad.is_empty() {
        let which = bad
            .iter()
            .map(|drive| describe_with_finding(snapshot, drive))
            .collect::<Vec<_>>()
            .join("; ");
        let message = format!(
            "{} of {} drives beneath the volumes are failing: {which}",
            bad.len(),
            drives.len()
        );
        faults.push(StorageFault {
            unreachable: false,
            remote: false,
            reason: Reason::DriveFailing,
            message: truncate(&message, MAX_MESSAGE),
        });
    }
    faults.extend(remote.fault(drives.len() == gone.len()));
    if !faults.is_empty() {
        return Ok(faults);
    }
    if let Some(why) = incomplete_cause(snapshot) {
        return Err(StorageUnknown(why));
    }
    match drives.iter().find(|drive| drive.may_hold_back()) {
        Some(drive) => {
            let (name, why) = (name(drive), &drive.health_unknown_why);
            Err(StorageUnknown(format!("how {name} is, is not known: {why}")))
        }
        None => remote.unknown().map_or(Ok(faults), Err),
    }
}

fn name(drive: &Drive) -> String {
    format!("{} ({})", drive.facts.name, drive.facts.id)
}

fn active<'a>(
    snapshot: &'a Snapshot,
    ids: &'a [FindingId],
) -> impl Iterator<Item = &'a Arc<Finding>> {
    ids.iter()
        .filter_map(|id| snapshot.findings.get(id))
        .filter(|finding| finding.severity > Severity::Info)
}

fn describe_with_finding(snapshot: &Snapshot, drive: &Drive) -> String {
    match active(snapshot, &drive.findings).next() {
        Some(finding) => format!("{}: {}: {}", name(drive), finding.reason, finding.message),
        None => name(drive),
    }
}

/// Whether volumes can be reached: they and every drive that they need are present and respond. A
/// failed drive that redundancy covers only adds a message. An error if the state is unknown.
pub fn connectivity(
    snapshot: &Snapshot,
    volumes: &[&Volume],
) -> Result<VolumeConnectivity, StorageUnknown> {
    let mut messages = Vec::new();
    let mut cut_off = false;
    let mut doubt = incomplete_cause(snapshot);
    for volume in volumes {
        let id = &volume.facts.id;
        let broken = disconnect_causes(snapshot, volume);
        cut_off |= !broken.is_empty();
        messages.extend(broken.iter().map(|why| format!("volume {id}: {why}")));
        messages.extend(covered_losses(snapshot, volume).map(|why| format!("volume {id}: {why}")));
        if broken.is_empty() && doubt.is_none() {
            doubt = volume_uncertainty(snapshot, volume).map(|why| format!("volume {id}: {why}"));
        }
    }
    match (cut_off, doubt) {
        (true, _) => Ok(VolumeConnectivity { connected: false, messages }),
        (false, Some(why)) => Err(StorageUnknown(why)),
        (false, None) => Ok(VolumeConnectivity { connected: true, messages }),
    }
}

/// The same for the drives of a driver's new volumes.
pub fn pool_connectivity(
    snapshot: &Snapshot,
    driver: &str,
) -> Result<VolumeConnectivity, StorageUnknown> {
    let node_context = &snapshot.node_context;
    let is_theirs = node_context.driver.as_deref() == Some(driver);
    let (stack, drives) = if is_theirs {
        let stacks = node_context.pool.values().cloned().collect();
        (Stack::All(stacks), node_context.pool_drives())
    } else {
        (Stack::Nothing, Vec::new())
    };
    let lost = |id: &DriveId| loss_cause(snapshot, id);
    let absent: Vec<String> = drives.iter().copied().filter_map(lost).collect();
    if stack.impact(&|id| lost(id).is_some()) == Impact::Exposed {
        return Ok(VolumeConnectivity { connected: false, messages: absent });
    }
    if let Some(why) = incomplete_cause(snapshot).or_else(|| uncertainty(snapshot, &stack, &drives))
    {
        return Err(StorageUnknown(why));
    }
    let mut messages = vec![format!("driver {driver} has no volumes here")];
    messages.extend(absent.iter().map(|why| covered_message(why)));
    Ok(VolumeConnectivity { connected: true, messages })
}

/// Why a drive certainly does not work: it is gone, or the kernel has taken it offline.
fn loss_cause(snapshot: &Snapshot, id: &DriveId) -> Option<String> {
    let Some(drive) = snapshot.drives.get(id) else {
        return Some(format!("drive {id} is gone"));
    };
    let lost = |finding: &&Arc<Finding>| finding.reason.is_gone();
    if let Some(finding) = active(snapshot, &drive.findings).find(lost) {
        return Some(format!("drive {}: {}: {}", name(drive), finding.reason, finding.message));
    }
    (drive.presence != Presence::Present).then(|| format!("drive {} is gone", name(drive)))
}

/// A drive that has not responded to smartctl may still serve reads and writes, for example if its
/// firmware hangs over a log page.
fn unresponsive_cause(snapshot: &Snapshot, id: &DriveId) -> Option<String> {
    let drive = snapshot.drives.get(id)?;
    let finding =
        active(snapshot, &drive.findings).find(|finding| finding.reason == Reason::ProbeTimeout)?;
    Some(format!(
        "whether drive {} serves is not known: {}: {}",
        name(drive),
        finding.reason,
        finding.message
    ))
}

fn unknown_health_cause(snapshot: &Snapshot, id: &DriveId) -> Option<String> {
    let drive = snapshot.drives.get(id).filter(|drive| drive.may_hold_back())?;
    Some(format!("how drive {} is, is not known: {}", name(drive), drive.health_unknown_why))
}

/// An unknown state of the needed drives: unknown health, a drive that does not respond and that
/// redundancy could not replace in addition to the known losses, or losses of which it is not known
/// whether redundancy covers them.
fn uncertainty(snapshot: &Snapshot, stack: &Stack, drives: &[&DriveId]) -> Option<String> {
    let fails = |id: &DriveId| {
        loss_cause(snapshot, id).is_some() || unresponsive_cause(snapshot, id).is_some()
    };
    let first = |of: fn(&Snapshot, &DriveId) -> Option<String>| {
        drives.iter().find_map(|id| of(snapshot, id))
    };
    let is_silent =
        || is_exposed(stack, drives, &fails).then(|| first(unresponsive_cause)).flatten();
    let is_undecided = || {
        let why = first(loss_cause).or_else(|| first(unresponsive_cause))?;
        let undecided = stack.impact(&fails) == Impact::Unknown;
        undecided.then(|| format!("whether redundancy covers it is not known: {why}"))
    };
    first(unknown_health_cause).or_else(is_silent).or_else(is_undecided)
}

/// Also for volumes of which only the names of the drives are known.
fn is_exposed(stack: &Stack, drives: &[&DriveId], fails: &dyn Fn(&DriveId) -> bool) -> bool {
    match stack {
        Stack::Nothing => drives.iter().any(|id| fails(id)),
        stack => stack.impact(fails) == Impact::Exposed,
    }
}

fn covered_message(why: &str) -> String {
    format!("redundancy stands in: {why}")
}

fn disconnect_causes(snapshot: &Snapshot, volume: &Volume) -> Vec<String> {
    let facts = &volume.facts;
    let mut broken: Vec<String> = active(snapshot, &volume.findings)
        .filter(|finding| finding.reason.disconnects())
        .map(|finding| format!("{}: {}", finding.reason, finding.message))
        .collect();
    let of_layer = |finding: &&Arc<Finding>| match &finding.subject {
        Subject::Device(name) => {
            finding.reason == Reason::ProbeTimeout && facts.devices.contains(name)
        }
        _ => false,
    };
    broken
        .extend(snapshot.findings.values().filter(of_layer).map(|finding| finding.message.clone()));
    let drives: Vec<&DriveId> = facts.drive_ids.iter().collect();
    if is_exposed(&facts.stack, &drives, &|id| loss_cause(snapshot, id).is_some()) {
        broken.extend(facts.drive_ids.iter().filter_map(|id| loss_cause(snapshot, id)));
    }
    broken
}

fn covered_losses<'a>(
    snapshot: &'a Snapshot,
    volume: &'a Volume,
) -> impl Iterator<Item = String> + 'a {
    let facts = &volume.facts;
    let fails =
        |id: &DriveId| loss_cause(snapshot, id).or_else(|| unresponsive_cause(snapshot, id));
    let is_covered = facts.stack.impact(&|id| fails(id).is_some()) == Impact::Covered;
    let lost = facts.drive_ids.iter().filter(move |_| is_covered).filter_map(fails);
    lost.map(|why| covered_message(&why))
}

fn volume_uncertainty(snapshot: &Snapshot, volume: &Volume) -> Option<String> {
    let facts = &volume.facts;
    if volume.health == Health::Unknown {
        return Some(volume.health_unknown_why.clone());
    }
    let drives: Vec<&DriveId> = facts.drive_ids.iter().collect();
    let nothing_known =
        facts.device.is_none() && facts.drive_ids.is_empty() && volume.last_probe.is_none();
    uncertainty(snapshot, &facts.stack, &drives)
        .or_else(|| nothing_known.then(|| "what it lies on is not known".to_owned()))
}

#[cfg(test)]
pub mod tests;
