//! The status of the node's `NodeStorage` object, from the daemon's snapshot of the node.
//!
//! In: the view of the daemon and the last written status. Out: the wanted status within its limits,
//! or nothing while it is unknown; whether two statuses differ enough for a write. No clock, no I/O.
//!
//! A drive that sleeps and has never answered, and a drive or volume whose first evidence is
//! outstanding, is not a deviation by itself: it is listed as Unknown only when the evidence is
//! overdue. Until then an Unknown that comes from it alone leaves the health as it was, because each
//! start of a pod would be two writes otherwise.

mod fit;
mod remaining;
mod unreachable;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::health::HealthErrorType;
use crate::report::condition::ConditionStatus;
use crate::report::node_snapshot::{
    Drive, Health as SnapshotHealth, Issue, NodeSnapshot, Subject, Volume,
};
use crate::report::node_storage::remaining::remaining;
use crate::report::node_storage::unreachable::{reached_drivers, unreachable_drivers};
use crate::report::quarantine::QuarantineState;
use crate::report::{DaemonView, Outage, first_evidence};
use diskvitals_cluster::node_storage::{
    ATTACHMENTS_CLEAN, ChallengeAnswer, CleanReason, Counts, DAEMON_REACHABLE, DriveEntry, Health,
    MAX_CLEAN_MESSAGE_LEN, MAX_MESSAGE_LEN, MAX_VOLUME_CONDITIONS, ModelCount, NodeStorageStatus,
    StaleEntry, Truncated, VolumeCondition, VolumeEntry, VolumeStatus, WITHDRAWN,
};
use diskvitals_text::echo::truncate;

/// Longest text of a drive: models and serials are shorter, a faulty drive's may not be.
const MAX_NAME_LEN: usize = 128;
/// Reason of the condition of a volume whose health is unknown.
const HEALTH_UNKNOWN: &str = "HealthUnknown";

/// What the status depends on besides the daemon.
pub(crate) struct Context<'a> {
    /// uid of the Node object.
    pub node_uid: &'a str,
    /// The last written status of this node.
    pub last: Option<&'a NodeStorageStatus>,
    /// Drives and volumes whose first evidence is overdue.
    pub overdue: &'a BTreeSet<String>,
    /// The answer to the present challenge, or to the last one until there is a newer.
    pub answer: Option<&'a ChallengeAnswer>,
    pub quarantine: &'a QuarantineState,
    pub now: Timestamp,
}

/// `in_grace`: a possible outage of the daemon is not to be published yet.
pub(crate) fn storage_status(
    view: &DaemonView,
    in_grace: bool,
    context: &Context<'_>,
) -> Option<NodeStorageStatus> {
    match view.current(in_grace) {
        None => without_proof(context),
        Some(Ok(snapshot)) => Some(from_snapshot(snapshot, context)),
        Some(Err(Outage { why, .. })) => {
            let message = format!("diskvitalsd on this node does not answer: {why}");
            Some(of_silent_daemon(context, &message))
        }
    }
}

/// The last status without its proof: an outage that is too short to be published takes the proof
/// back all the same.
fn without_proof(context: &Context<'_>) -> Option<NodeStorageStatus> {
    let QuarantineState::NoAnswer(why) = context.quarantine else {
        return None;
    };
    let mut status = context.last?.clone();
    let mut conditions = status.conditions.iter_mut();
    let clean = conditions.find(|it| it.type_ == ATTACHMENTS_CLEAN)?;
    let (state, reason, message) = not_clean(CleanReason::NoAnswer, why);
    if clean.status != state.name() {
        clean.last_transition_time = Time(context.now);
    }
    state.name().clone_into(&mut clean.status);
    reason.clone_into(&mut clean.reason);
    clean.message = message;
    status.observed_quarantine.clear();
    status.challenge = context.answer.cloned();
    status.reported_at = Some(Time(context.now));
    Some(status)
}

/// The lists stay as they were last known, and nothing is called good. Without a last status no list
/// is known.
fn of_silent_daemon(context: &Context<'_>, message: &str) -> NodeStorageStatus {
    let reason = "DaemonNotAnswering";
    let known = context.last.cloned().unwrap_or_else(unknown_lists);
    let clean = match context.quarantine {
        QuarantineState::NoAnswer(_) | QuarantineState::Answered(_) => {
            (ConditionStatus::False, CleanReason::NoAnswer.name())
        }
        QuarantineState::Disabled | QuarantineState::Unknown | QuarantineState::Absent => {
            (ConditionStatus::Unknown, reason)
        }
    };
    finish(
        NodeStorageStatus { health: Health::Unknown, observed_quarantine: String::new(), ..known },
        context,
        [
            (DAEMON_REACHABLE, ConditionStatus::False, reason, message),
            (ATTACHMENTS_CLEAN, clean.0, clean.1, message),
        ],
    )
}

/// Reporting has ended on purpose: the lists would stay wrong for ever.
pub(crate) fn withdrawn_status(context: &Context<'_>) -> NodeStorageStatus {
    let (reason, message) =
        (WITHDRAWN, "health is no longer reported: diskvitals was withdrawn from this node");
    finish(
        unknown_lists(),
        context,
        [
            (DAEMON_REACHABLE, ConditionStatus::False, reason, message),
            (ATTACHMENTS_CLEAN, ConditionStatus::Unknown, reason, message),
        ],
    )
}

fn unknown_lists() -> NodeStorageStatus {
    NodeStorageStatus {
        truncated: Truncated {
            drives: true,
            volumes: true,
            stale: true,
            unreachable_drivers: false,
            remaining: false,
        },
        ..NodeStorageStatus::default()
    }
}

fn from_snapshot(snapshot: &NodeSnapshot, context: &Context<'_>) -> NodeStorageStatus {
    let worst = worst_issues(snapshot);
    let drives: Vec<DriveEntry> = snapshot
        .drives
        .iter()
        .filter(|(id, drive)| is_deviation(health(drive.health), drive.is_pending, id, context))
        .map(|(id, drive)| drive_entry(id, drive, worst.get(&Subject::Drive(id.clone())).copied()))
        .collect();
    let volumes: Vec<VolumeEntry> = snapshot
        .volumes
        .iter()
        .filter(|(id, volume)| is_deviation(volume_health(volume), volume.is_pending, id, context))
        .map(|(id, volume)| {
            let worst = worst.get(&Subject::Volume(id.clone())).copied();
            volume_entry(id, volume, worst, snapshot)
        })
        .collect();
    let stale: Vec<StaleEntry> = snapshot
        .stale
        .iter()
        .flatten()
        .map(|mount| StaleEntry {
            driver: mount.driver.clone(),
            handle: mount.handle.clone(),
            persistent_volume: snapshot
                .volumes
                .get(&mount.volume)
                .map(|volume| volume.identity.pv.clone())
                .unwrap_or_default(),
            pod_uid: mount.pod_uid.clone(),
            path: mount.path.clone(),
            role: mount.role.to_owned(),
            since: mount.since.map(Time),
            reason: truncate(&mount.why, MAX_MESSAGE_LEN),
        })
        .collect();
    let of_health =
        |health| number(snapshot.drives.values().filter(|it| it.health == health).count());
    let (remaining, is_cut) = remaining(snapshot, context);
    let status = NodeStorageStatus {
        machine_id: snapshot.node.machine_id.clone(),
        boot_id: snapshot.node.boot_id.clone(),
        daemon_version: snapshot.node.version.clone(),
        health: node_health(snapshot, context),
        counts: Counts {
            drives: number(snapshot.drives.len()),
            bad: of_health(SnapshotHealth::Bad),
            suspect: of_health(SnapshotHealth::Suspect),
            missing: number(
                snapshot.drives.values().filter(|drive| drive.identity.is_missing).count(),
            ),
            volumes: number(snapshot.volumes.len()),
            affected: number(volumes.len()),
            stale: number(stale.len()),
        },
        drive_ids: snapshot.drives.keys().cloned().collect(),
        models: models(snapshot),
        drives,
        volumes,
        stale,
        unreachable_drivers: Some(unreachable_drivers(snapshot, context)),
        reached_drivers: reached_drivers(snapshot),
        remaining,
        truncated: Truncated {
            stale: snapshot.stale.is_none(),
            remaining: is_cut,
            ..Truncated::default()
        },
        ..NodeStorageStatus::default()
    };
    let (observed, clean) = match quarantine_answer(snapshot, context.quarantine) {
        Some((observed, clean)) => (observed, clean),
        None => (String::new(), attachments_clean(snapshot)),
    };
    finish(
        NodeStorageStatus { observed_quarantine: observed, ..status },
        context,
        [
            (
                DAEMON_REACHABLE,
                ConditionStatus::True,
                "DaemonAnswering",
                "diskvitalsd answers, and what is listed is what it says",
            ),
            (ATTACHMENTS_CLEAN, clean.0, clean.1, &clean.2),
        ],
    )
}

/// Adds what does not depend on the daemon, and makes the lists fit.
fn finish(
    mut status: NodeStorageStatus,
    context: &Context<'_>,
    conditions: [(&str, ConditionStatus, &str, &str); 2],
) -> NodeStorageStatus {
    context.node_uid.clone_into(&mut status.node_uid);
    status.challenge = context.answer.cloned();
    status.reported_at = Some(Time(context.now));
    status.conditions = conditions
        .into_iter()
        .map(|(kind, state, reason, message)| {
            let last = context.last.iter().flat_map(|last| &last.conditions);
            let since = last
                .filter(|last| last.type_ == kind && last.status == state.name())
                .map(|last| last.last_transition_time.0.min(context.now))
                .next();
            Condition {
                type_: kind.to_owned(),
                status: state.name().to_owned(),
                reason: reason.to_owned(),
                message: truncate(message, MAX_CLEAN_MESSAGE_LEN),
                last_transition_time: Time(since.unwrap_or(context.now)),
                observed_generation: None,
            }
        })
        .collect();
    fit::fit(status)
}

type CleanCondition = (ConditionStatus, &'static str, String);

/// The id of the quarantine that is answered, empty without an answer, and the condition; None
/// without a quarantine. Clean are both: the pods of the quarantine, and what the snapshot lists.
fn quarantine_answer(
    snapshot: &NodeSnapshot,
    quarantine: &QuarantineState,
) -> Option<(String, CleanCondition)> {
    match quarantine {
        QuarantineState::Disabled | QuarantineState::Unknown | QuarantineState::Absent => None,
        QuarantineState::NoAnswer(why) => {
            Some((String::new(), not_clean(CleanReason::NoAnswer, why)))
        }
        QuarantineState::Answered(answer) if answer.boot_id != snapshot.node.boot_id => {
            let why = "diskvitalsd answered in another boot";
            Some((String::new(), not_clean(CleanReason::NoAnswer, why)))
        }
        QuarantineState::Answered(answer) => {
            let clean = match (answer.reason, attachments_clean(snapshot)) {
                (CleanReason::ProvenClean, (ConditionStatus::True, ..)) => {
                    (ConditionStatus::True, CleanReason::ProvenClean.name(), answer.message.clone())
                }
                (CleanReason::ProvenClean, (ConditionStatus::False, _, why)) => {
                    not_clean(CleanReason::StaleAttachments, &why)
                }
                (CleanReason::ProvenClean, (ConditionStatus::Unknown, _, why)) => {
                    not_clean(CleanReason::Unreadable, &why)
                }
                (reason, _) => not_clean(reason, &answer.message),
            };
            Some((answer.id.clone(), clean))
        }
    }
}

/// What to do is never cut from the message.
fn not_clean(reason: CleanReason, why: &str) -> CleanCondition {
    let advice = reason.advice();
    let room = MAX_CLEAN_MESSAGE_LEN.saturating_sub(advice.len() + 2);
    let message = format!("{}; {advice}", truncate(why, room));
    (ConditionStatus::False, reason.name(), message)
}

/// Clean only by proof.
fn attachments_clean(snapshot: &NodeSnapshot) -> CleanCondition {
    let unknown = |reason, why: &str| (ConditionStatus::Unknown, reason, why.to_owned());
    if let Some(why) = &snapshot.node.kubelet_unreadable {
        return unknown("KubeletFolderUnreadable", why);
    }
    if snapshot.node.boot_id.is_empty() {
        return unknown("BootUnknown", "diskvitalsd does not know the kernel's boot id");
    }
    match snapshot.stale.as_deref() {
        None => unknown("AttachmentsUnknown", "diskvitalsd does not list the node's attachments"),
        Some([]) => {
            (ConditionStatus::True, "NothingStale", "no mount of a deleted pod is left".to_owned())
        }
        Some(stale) => (
            ConditionStatus::False,
            "StaleAttachments",
            format!("mounts of deleted pods: {}", stale.len()),
        ),
    }
}

fn node_health(snapshot: &NodeSnapshot, context: &Context<'_>) -> Health {
    match (snapshot.counted_health(), context.last) {
        (SnapshotHealth::Unknown, Some(last))
            if first_evidence::is_awaited(snapshot, context.overdue) =>
        {
            last.health
        }
        (counted, _) => health(counted),
    }
}

fn is_deviation(health: Health, is_pending: bool, id: &str, context: &Context<'_>) -> bool {
    health != Health::Good
        && (health != Health::Unknown || !is_pending || context.overdue.contains(id))
}

/// The worst adverse issue of each subject.
fn worst_issues(snapshot: &NodeSnapshot) -> BTreeMap<Subject, &Issue> {
    let mut worst = BTreeMap::new();
    for (_, issue) in snapshot.adverse() {
        worst.entry(issue.subject.clone()).or_insert(issue);
    }
    worst
}

fn drive_entry(id: &str, drive: &Drive, worst: Option<&Issue>) -> DriveEntry {
    let identity = &drive.identity;
    let name = |text: &str| truncated(text, MAX_NAME_LEN);
    DriveEntry {
        id: id.to_owned(),
        name: name(&identity.kernel_name),
        model: name(&identity.model),
        firmware: name(&identity.firmware),
        serial: name(&identity.serial),
        enclosure: name(&identity.enclosure),
        slot: name(&identity.slot),
        health: health(drive.health),
        reason: worst.map_or_else(
            || truncate(&drive.why, MAX_MESSAGE_LEN),
            |issue| truncated(&issue.reason, MAX_MESSAGE_LEN),
        ),
        since: worst.and_then(|issue| issue.since).map(Time),
        acknowledged: worst.is_some_and(|issue| issue.acknowledged),
        maintenance: drive.maintenance,
        maintenance_until: drive.maintenance_until.map(Time),
    }
}

fn volume_entry(
    id: &str,
    volume: &Volume,
    worst: Option<&Issue>,
    snapshot: &NodeSnapshot,
) -> VolumeEntry {
    let identity = &volume.identity;
    let health = volume_health(volume);
    let mut conditions: Vec<VolumeCondition> = identity
        .statuses
        .iter()
        .map(|status| VolumeCondition {
            status: match status.status {
                HealthErrorType::Degraded => VolumeStatus::Degraded,
                HealthErrorType::Inaccessible => VolumeStatus::Inaccessible,
                HealthErrorType::DataLoss => VolumeStatus::DataLoss,
            },
            reason: status.reason.clone(),
            message: truncate(&status.message, MAX_MESSAGE_LEN),
        })
        .take(MAX_VOLUME_CONDITIONS)
        .collect();
    if health == Health::Unknown {
        conditions = vec![VolumeCondition {
            status: VolumeStatus::Unknown,
            reason: HEALTH_UNKNOWN.to_owned(),
            message: truncate(&volume.why, MAX_MESSAGE_LEN),
        }];
    }
    VolumeEntry {
        driver: identity.driver.clone(),
        handle: identity.handle.clone(),
        persistent_volume: identity.pv.clone(),
        health,
        health_conditions: conditions,
        drive_ids: volume.drives.clone(),
        redundant: snapshot.is_redundant(id),
        since: worst.and_then(|issue| issue.since).map(Time),
    }
}

/// A state that is abnormal without a finding makes a volume unhealthy too.
fn volume_health(volume: &Volume) -> Health {
    let statuses = volume.identity.statuses.iter();
    let by_status = statuses.map(|status| match status.status {
        HealthErrorType::Degraded => Health::Suspect,
        HealthErrorType::Inaccessible | HealthErrorType::DataLoss => Health::Bad,
    });
    by_status
        .chain([health(volume.health)])
        .max_by_key(|health| health.severity())
        .unwrap_or_default()
}

fn models(snapshot: &NodeSnapshot) -> Vec<ModelCount> {
    let mut numbers: BTreeMap<[String; 3], u32> = BTreeMap::new();
    for drive in snapshot.drives.values() {
        let it = &drive.identity;
        let key = [&it.model, &it.firmware, &it.kind].map(|text| truncated(text, MAX_NAME_LEN));
        *numbers.entry(key).or_default() += 1;
    }
    let mut models: Vec<ModelCount> = numbers
        .into_iter()
        .map(|([model, firmware, kind], count)| ModelCount { model, firmware, kind, count })
        .collect();
    // Stable: equal numbers stay in the order of their names.
    models.sort_by_key(|model| std::cmp::Reverse(model.count));
    models
}

/// Whether two statuses say the same, so that writing the second would cost the API server as much
/// as a change and tell nobody anything: messages, times, kernel names and the number of volumes are
/// no change.
pub(crate) fn says_the_same(a: &NodeStorageStatus, b: &NodeStorageStatus) -> bool {
    essence(a) == essence(b)
}

fn essence(status: &NodeStorageStatus) -> NodeStorageStatus {
    let mut status = status.clone();
    status.reported_at = None;
    status.counts.volumes = 0;
    for drive in &mut status.drives {
        (drive.name, drive.since) = (String::new(), None);
        if drive.health == Health::Unknown {
            // Text, with numbers.
            drive.reason = String::new();
        }
    }
    for volume in &mut status.volumes {
        volume.since = None;
        for condition in &mut volume.health_conditions {
            condition.message = String::new();
        }
    }
    for mount in &mut status.stale {
        (mount.since, mount.reason) = (None, String::new());
    }
    let is_in_quarantine = !status.observed_quarantine.is_empty();
    for driver in status.unreachable_drivers.iter_mut().flatten() {
        (driver.since, driver.message, driver.volumes) = (None, String::new(), 0);
    }
    for condition in &mut status.conditions {
        // What is left of which pod is the answer to a quarantine.
        if !(is_in_quarantine && condition.type_ == ATTACHMENTS_CLEAN) {
            condition.message = String::new();
        }
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    if let Some(answer) = &mut status.challenge {
        (answer.time, answer.missing) = (None, Vec::new());
        for finding in &mut answer.findings {
            finding.since = None;
        }
    }
    status
}

fn health(health: SnapshotHealth) -> Health {
    match health {
        SnapshotHealth::Good => Health::Good,
        SnapshotHealth::Suspect => Health::Suspect,
        SnapshotHealth::Bad => Health::Bad,
        SnapshotHealth::Unknown => Health::Unknown,
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

pub(crate) fn truncated(text: &str, len: usize) -> String {
    text[..text.floor_char_boundary(len)].to_owned()
}

#[cfg(test)]
mod tests;
