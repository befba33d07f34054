//! An order of the cluster to clean up after pods that were deleted while this node was away: what is
//! left of each pod, whether this node may remove it, and whether nothing is left. Pure.
//!
//! Two witnesses are needed before anything is unmounted: the order names the pod, and the rules of
//! `model::stale` say that no pod has the mount. The order replaces the grace period of these rules
//! and nothing else. Only mounts of this node's own driver are removed; others are waited for.
//! Clean is a proof: what cannot be read, or is not known, is not clean.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cleanup::{CleanupPlan, CleanupTarget, Grace, plan};
use crate::graph::kube::parse_csi_path;
use crate::snapshot::{NodeContext, Snapshot};
use crate::source_update::SourceStatus;
use crate::stale::{Attachment, GRACE, UNREADABLE_RECORD};
use crate::volume::MountRole;
use diskvitals_finding::Subject;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;

/// A removal that takes longer is shown as hung; it continues.
const HUNG_AFTER: Duration = Duration::from_secs(20);

/// What holds a pod, read from /proc.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodHold {
    pub pod_uid: String,
    pub kind: HoldKind,
    /// For people: `812 (mysqld) runs in its container`; the path of a mount.
    pub detail: String,
}

/// All that holds some pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodHolds {
    pub holds: Vec<PodHold>,
    /// For people: the mounts of users that were not read, because there are too many.
    pub not_read: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    /// A mount of a volume that another node may reach, in the host's mount namespace.
    Mount,
    /// The same in another mount namespace alone.
    MountElsewhere,
    /// A process in a control group of the pod.
    Process,
    /// Another process that uses one of its mounts: the kubelet's unmount fails.
    Opener,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// Nothing of it is mounted, published or held.
    Absent,
    /// The same, after a removal by this order.
    Cleaned,
    Cleaning,
    Held,
    Hung,
    /// Another driver has something mounted for it.
    Foreign,
    Unreadable,
    /// The kubelet has a record of it.
    InUse,
    Failed,
    /// It would be removed, and the configuration forbids it.
    OrdersOff,
}

#[cfg(test)]
impl PodState {
    pub fn is_clean(self) -> bool {
        matches!(self, PodState::Absent | PodState::Cleaned)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodStatus {
    pub uid: String,
    pub state: PodState,
    /// Which thing, and why; empty if the pod is clean.
    pub detail: String,
    /// This node removes it, or tries again.
    pub is_due: bool,
}

/// The result of the last removal for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanResult {
    Done,
    Held(String),
    Hung(String),
    Failed(String),
}

/// What the order has done for a pod so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodProgress {
    pub last: Option<CleanResult>,
    /// How long the present removal has been under way; None: there is none.
    pub running_for: Option<Duration>,
    /// How long the kubelet has had a record of the pod without a mount.
    pub recorded_for: Option<Duration>,
}

pub struct OrderEvidence<'a> {
    /// It contains readings of the mount table and the kubelet's records that are newer than the
    /// request.
    pub snapshot: &'a Snapshot,
    /// What could not be read.
    pub missing: &'a [String],
    /// What holds the pods, or why that is not known.
    pub holds: Result<&'a [PodHold], &'a str>,
    pub pod_uids: &'a BTreeSet<String>,
    pub progress: &'a BTreeMap<String, PodProgress>,
    /// The configuration permits removals.
    pub is_allowed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    /// Why nothing is known; then no pod is clean.
    pub unreadable: Option<String>,
    pub pods: Vec<PodStatus>,
    /// Mounts for no pod that the order does not name: path and reason.
    pub left: Vec<(HostPath, String)>,
}

impl OrderStatus {
    /// Nothing of the pods is left, and nothing else is without a pod.
    #[cfg(test)]
    pub fn is_clean(&self) -> bool {
        let mut pods = self.pods.iter();
        self.unreadable.is_none() && self.left.is_empty() && pods.all(|pod| pod.state.is_clean())
    }
}

/// Why the present mounts, or their use by pods, are not known.
pub fn unreadable_cause(snapshot: &Snapshot, missing: &[String]) -> Option<String> {
    if let Some(why) = missing.first() {
        return Some(why.clone());
    }
    [Source::Kubelet, Source::Mounts].into_iter().find_map(|source| {
        match snapshot.node.sources.get(&source) {
            Some((SourceStatus::Active(_) | SourceStatus::Limited(_), _)) => None,
            Some((SourceStatus::Down(why) | SourceStatus::Absent(why), _)) => {
                Some(format!("{}: {why}", source.name()))
            }
            None => Some(format!("{}: not read yet", source.name())),
        }
    })
}

/// The state of each pod of the order.
pub fn judge(evidence: &OrderEvidence<'_>) -> OrderStatus {
    let unreadable = unreadable_cause(evidence.snapshot, evidence.missing)
        .or_else(|| evidence.holds.err().map(str::to_owned));
    let pods = evidence.pod_uids.iter().map(|uid| {
        let (state, detail, is_due) = match &unreadable {
            Some(why) => (PodState::Unreadable, why.clone(), false),
            None => match obstacle(uid, evidence) {
                Some((state, detail)) => (state, detail, false),
                None => removal(uid, evidence),
            },
        };
        PodStatus { uid: uid.clone(), state, detail, is_due }
    });
    let pods = pods.collect();
    let left = match unreadable {
        Some(_) => Vec::new(),
        None => left_over(evidence.snapshot, evidence.pod_uids),
    };
    OrderStatus { unreadable, pods, left }
}

/// Why nothing of the pod may be removed by this node now. The first that holds counts.
fn obstacle(uid: &str, evidence: &OrderEvidence<'_>) -> Option<(PodState, String)> {
    let snapshot = evidence.snapshot;
    let nothing = PodProgress::default();
    let progress = evidence.progress.get(uid).unwrap_or(&nothing);
    let attachments: Vec<&Attachment> = attachments_of(snapshot, uid).collect();
    let holds = || {
        let holds = evidence.holds.unwrap_or_default().iter();
        holds.filter(|hold| hold.pod_uid == uid)
    };
    // Where the kubelet's directory is mounted at two places, each mount in it is as well, and both
    // go with one unmount. If another mount is at such a path, it is left afterwards.
    let of_pod = format!("/pods/{uid}/");
    let is_known = |path: &str| {
        let below = path.find(&of_pod).map(|at| &path[at..]);
        let mut known = attachments.iter().map(|it| it.path.to_string());
        known.any(|it| it == path || below.is_some_and(|below| it.ends_with(below)))
    };
    let others: Vec<&str> = holds()
        .filter(|hold| hold.kind == HoldKind::Mount && !is_known(&hold.detail))
        .map(|hold| hold.detail.as_str())
        .collect();
    let paths = attachments.iter().map(|it| it.path.to_string());
    let paths: Vec<String> = paths.chain(others.iter().map(ToString::to_string)).collect();
    // The kubelet's own unmount of it hangs as well: its record stays.
    if let Some(path) = paths.iter().find(|path| is_hung(snapshot, path)) {
        return Some((PodState::Hung, format!("{path} does not respond")));
    }
    // What is known of one mount does not hide what is unknown of another.
    for it in &attachments {
        let why = match &it.used_by {
            Some(by) if by == UNREADABLE_RECORD => format!("{}: {by}", it.path),
            None if it.orphaned.is_none() => {
                format!("whether a pod uses {} is not known", it.path)
            }
            _ => continue,
        };
        return Some((PodState::Unreadable, why));
    }
    let mut used = attachments.iter().filter_map(|it| it.used_by.as_ref().map(|by| (&it.path, by)));
    if let Some((path, by)) = used.next() {
        let openers = holds().filter(|hold| hold.kind == HoldKind::Opener);
        let openers: Vec<&str> = openers.map(|hold| hold.detail.as_str()).collect();
        return Some(match openers.as_slice() {
            [] => (PodState::InUse, format!("{path}: {by}")),
            // The kubelet's unmount fails until they end.
            openers => (PodState::Held, format!("{}; {path}: {by}", openers.join(", "))),
        });
    }
    if let Some(record) = recorded_without_mount(snapshot, uid)
        && progress.recorded_for.is_none_or(|time| time < GRACE)
    {
        let why = format!("the kubelet's record {record} says that the pod has a volume");
        return Some((PodState::InUse, why));
    }
    let processes = holds().filter(|hold| hold.kind != HoldKind::Mount);
    let processes: Vec<&str> = processes.map(|hold| hold.detail.as_str()).collect();
    if !processes.is_empty() {
        return Some((PodState::Held, processes.join(", ")));
    }
    let foreign =
        attachments.iter().filter(|it| !is_own(snapshot, it)).map(|it| match it.driver.as_str() {
            "" => it.path.to_string(),
            driver => format!("{} of {driver}", it.path),
        });
    let foreign: Vec<String> = foreign.chain(others.iter().map(ToString::to_string)).collect();
    let first = foreign.first()?;
    Some((PodState::Foreign, first.clone()))
}

/// What this node's own driver has mounted for a pod without an obstacle.
fn removal(uid: &str, evidence: &OrderEvidence<'_>) -> (PodState, String, bool) {
    let progress = evidence.progress.get(uid);
    let last = progress.and_then(|progress| progress.last.as_ref());
    let running_for = progress.and_then(|progress| progress.running_for);
    let Some(own) = attachments_of(evidence.snapshot, uid).next() else {
        let state = match last {
            Some(CleanResult::Done) => PodState::Cleaned,
            _ => PodState::Absent,
        };
        return (state, String::new(), false);
    };
    let (state, detail) = match last {
        _ if !evidence.is_allowed => (PodState::OrdersOff, own.path.to_string()),
        _ if running_for.is_some_and(|time| time >= HUNG_AFTER) => {
            let why = format!("the unmount of {} has not ended", own.path);
            (PodState::Hung, why)
        }
        Some(CleanResult::Hung(why)) => (PodState::Hung, why.clone()),
        Some(CleanResult::Held(why)) => (PodState::Held, why.clone()),
        Some(CleanResult::Failed(why)) => (PodState::Failed, why.clone()),
        _ => (PodState::Cleaning, own.path.to_string()),
    };
    (state, detail, state != PodState::OrdersOff)
}

/// Also those that only a record of this node gives to the pod.
fn attachments_of<'a>(
    snapshot: &'a Snapshot,
    uid: &'a str,
) -> impl Iterator<Item = &'a Attachment> {
    let root = &snapshot.node_context.kubelet_root;
    let attachments = snapshot.attachments.values().map(AsRef::as_ref);
    attachments.filter(move |it| {
        it.role == MountRole::Pod
            && (path_uid(root, &it.path).as_deref() == Some(uid)
                || it.pod.as_ref().is_some_and(|pod| pod.uid == uid))
    })
}

fn path_uid(root: &HostPath, path: &HostPath) -> Option<String> {
    parse_csi_path(root, path)?.pod.map(|pod| pod.uid)
}

/// A mount of this node's own driver, at the kubelet's own path for a volume of the pod.
fn is_own(snapshot: &Snapshot, attachment: &Attachment) -> bool {
    let NodeContext { kubelet_root, driver, .. } = &*snapshot.node_context;
    let volume = snapshot.volumes.get(&attachment.volume);
    driver.as_ref() == Some(&attachment.driver)
        && volume.is_some_and(|volume| volume.facts.provided.is_some())
        && path_uid(kubelet_root, &attachment.path).is_some()
}

/// The record of a volume of the pod that is not mounted.
fn recorded_without_mount<'a>(snapshot: &'a Snapshot, uid: &str) -> Option<&'a HostPath> {
    let missing = snapshot.volumes.values().flat_map(|volume| &volume.facts.missing_mounts);
    missing
        .filter(|it| it.role == MountRole::Pod && it.pod_uid.as_deref() == Some(uid))
        .find_map(|it| it.record.as_ref())
}

/// The pods of the order of which the kubelet has a record without a mount.
pub fn recorded_pods<'a>(
    snapshot: &Snapshot,
    pod_uids: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a String> {
    pod_uids.iter().filter(|uid| recorded_without_mount(snapshot, uid).is_some())
}

fn is_hung(snapshot: &Snapshot, path: &str) -> bool {
    snapshot.findings.values().any(|finding| {
        let Subject::Volume(id) = &finding.subject else {
            return false;
        };
        let volume = snapshot.volumes.get(id);
        let is_at = || {
            let mounts = volume.iter().flat_map(|volume| &volume.facts.mounts);
            mounts.map(|mount| mount.path.to_string()).any(|at| at == path)
        };
        finding.reason.is_hang() && finding.is_active() && is_at()
    })
}

/// What is stale, or staged for no pod, besides the pods of the order.
fn left_over(snapshot: &Snapshot, pod_uids: &BTreeSet<String>) -> Vec<(HostPath, String)> {
    let is_listed = |it: &Attachment| {
        let root = &snapshot.node_context.kubelet_root;
        let by_path = path_uid(root, &it.path);
        let uid = by_path.as_ref().or(it.pod.as_ref().map(|pod| &pod.uid));
        it.role == MountRole::Pod && uid.is_some_and(|uid| pod_uids.contains(uid))
    };
    let attachments = snapshot.attachments.values();
    let others = attachments.filter(|it| !is_listed(it));
    let left = others.filter_map(|it| {
        let staged = it.orphaned.as_ref().filter(|_| it.role == MountRole::Staging);
        let why = it.stale_cause().or(staged.map(|orphaned| orphaned.why.as_str()))?;
        Some((it.path.clone(), why.to_owned()))
    });
    left.collect()
}

/// What this node removes for the order: each plan with the pods that it is for.
pub fn plans(snapshot: &Snapshot, status: &OrderStatus) -> Vec<(BTreeSet<String>, CleanupPlan)> {
    if status.unreadable.is_some() || !snapshot.settled {
        return Vec::new();
    }
    let due: BTreeSet<String> =
        status.pods.iter().filter(|pod| pod.is_due).map(|pod| pod.uid.clone()).collect();
    let grace = Grace::ReplacedFor(&due);
    let mut plans = Vec::new();
    for volume in snapshot.volumes.values() {
        let of_volume: Vec<&Attachment> = snapshot
            .attachments
            .values()
            .map(AsRef::as_ref)
            .filter(|it| it.volume == volume.facts.id)
            .collect();
        let root = &snapshot.node_context.kubelet_root;
        let uid_of = |it: &Attachment| path_uid(root, &it.path).filter(|uid| due.contains(uid));
        let is_of_listed = |it: &Attachment| it.role != MountRole::Pod || uid_of(it).is_some();
        let listed: Vec<(&Attachment, String)> = of_volume
            .iter()
            .filter(|it| is_own(snapshot, it))
            .filter(|it| it.used_by.is_none() && it.orphaned.is_some())
            .filter_map(|it| Some((*it, uid_of(it)?)))
            .collect();
        if listed.is_empty() {
            continue;
        }
        let uids: BTreeSet<String> = listed.iter().map(|(_, uid)| uid.clone()).collect();
        // The whole volume, if nobody else has it; otherwise the mounts of these pods alone.
        if let Ok(plan) = plan(snapshot, CleanupTarget::Volume(volume), grace) {
            plans.push((uids, plan));
            continue;
        }
        // By their paths the volume is found when what is staged may be unmounted as well.
        if is_still_staged(&of_volume) && of_volume.iter().all(|it| is_of_listed(it)) {
            continue;
        }
        for (attachment, uid) in listed {
            if let Ok(plan) = plan(snapshot, CleanupTarget::Attachment(attachment), grace) {
                plans.push((BTreeSet::from([uid]), plan));
            }
        }
    }
    plans
}

/// The kubelet has a record that the volume is staged, and no pod has it, for less than the grace.
fn is_still_staged(attachments: &[&Attachment]) -> bool {
    let mut staged =
        attachments.iter().filter(|it| it.role == MountRole::Staging && it.orphaned.is_some());
    staged.any(|it| it.used_by.is_some() && !it.is_abandoned())
}

#[cfg(test)]
mod tests;
