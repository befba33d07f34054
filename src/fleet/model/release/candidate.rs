//! Claims whose volume a node reports as lost with its drive, and how long that has lasted.
//!
//! In: the view (nodes, reports, volumes). Out: candidates. A node is believed only about volumes
//! that are tied to it. All durations are measured here, by the controller's monotonic clock, since
//! it saw a state: after its restart they begin anew, and a report that is not current interrupts
//! them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::claims::Listed;
use crate::model::shared_drives::is_unique;
use crate::model::{Claim, Elapsed, View, Volume};
use diskvitals_cluster::node_storage::{Health, NodeStorageStatus, VolumeEntry, VolumeStatus};
use diskvitals_cluster::storage_action::{DriveRef, StorageActionSpec};
use diskvitals_finding::reason::Reason;
use diskvitals_text::naming::slot_name;

/// A claim may be released only if its drive is gone.
fn is_gone(reason: &str) -> bool {
    reason.parse().is_ok_and(Reason::is_gone)
}

/// A claim whose volume lies on a drive that its node reports as missing or offline.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Candidate {
    pub claim: Claim,
    /// Name of the PersistentVolume.
    pub volume: String,
    pub node: String,
    pub node_uid: String,
    pub boot_id: String,
    pub machine_id: String,
    pub daemon_version: String,
    pub drive: DriveRef,
    pub reason: String,
    /// By the node's clock.
    pub since: Option<Timestamp>,
    /// A condition of the volume says so. A degraded volume, or one with lost data, is not.
    pub is_inaccessible: bool,
    pub is_redundant: bool,
    pub is_acknowledged: bool,
    pub in_maintenance: bool,
    /// The node's lists of drives or volumes are cut.
    pub is_truncated: bool,
    /// Other nodes whose report lists the drive, current or not.
    pub elsewhere: BTreeSet<String>,
    /// Since when all of this has been so, in one boot and under one version of the daemon.
    pub held_since: Option<Elapsed>,
    pub node_ready_since: Option<Elapsed>,
    /// Since when the node's daemon has had this version.
    pub daemon_since: Option<Elapsed>,
}

impl Candidate {
    /// Of the intervention: the same objects, boot, drive and reason have the same ones.
    pub(crate) fn identity<'a>(&'a self, pod_uid: &'a str) -> [&'a str; 7] {
        [
            &self.claim.uid,
            &self.volume,
            pod_uid,
            &self.node_uid,
            &self.boot_id,
            &self.drive.id,
            &self.reason,
        ]
    }

    /// Id of the finding in the action: stable while the finding lasts.
    pub(crate) fn finding_id(&self) -> String {
        format!("{}/{}", self.reason, self.drive.id)
    }

    pub(crate) fn drive_line(&self) -> String {
        let since =
            self.since.map_or_else(|| "an unknown time".to_owned(), |since| since.to_string());
        format!(
            "node {} reports {} of drive {} (model {}, serial {}, slot {}) since {since}",
            self.node,
            self.reason,
            self.drive.id,
            or_unknown(&self.drive.model),
            or_unknown(&self.drive.serial),
            or_unknown(slot_name(&self.drive.slot)),
        )
    }

    pub(crate) fn volume_line(&self) -> String {
        let state =
            if self.is_inaccessible { "inaccessible" } else { "not known to be inaccessible" };
        format!(
            "volume {} of claim {}/{} is {state}, and has {} redundancy",
            self.volume,
            self.claim.namespace,
            self.claim.name,
            if self.is_redundant { "some" } else { "no" }
        )
    }
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// What the node says about the case of an action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sighting {
    Listed(Box<Candidate>),
    /// A current, complete report no longer has it.
    Gone,
    /// No current report: nothing is known.
    Unknown,
}

/// What must stay the same for `hold` to go on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    claim: Claim,
    volume: String,
    drive: String,
    reason: String,
    node_uid: String,
    boot_id: String,
    daemon_version: String,
}

impl Case {
    fn of(candidate: &Candidate) -> Case {
        Case {
            claim: candidate.claim.clone(),
            volume: candidate.volume.clone(),
            drive: candidate.drive.id.clone(),
            reason: candidate.reason.clone(),
            node_uid: candidate.node_uid.clone(),
            boot_id: candidate.boot_id.clone(),
            daemon_version: candidate.daemon_version.clone(),
        }
    }
}

/// Since when states have lasted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    held: BTreeMap<Case, Elapsed>,
    /// By name and uid.
    ready: BTreeMap<(String, String), Elapsed>,
    /// By node uid and version of the daemon.
    daemons: BTreeMap<(String, String), Elapsed>,
}

impl Timers {
    /// Notes since when a state has lasted, and returns all candidates. Called after each change of
    /// the view, so that no interruption is missed.
    pub(crate) fn observe(&mut self, view: &View, now: Elapsed) -> Vec<Candidate> {
        let ready = view
            .nodes
            .iter()
            .filter(|(_, node)| node.is_ready)
            .map(|(name, node)| (name.clone(), node.uid.clone()));
        keep(&mut self.ready, ready, now);
        // A daemon that does not answer for a moment keeps its version.
        let daemons = view.reports.values().filter_map(|report| {
            let status = report.status.as_ref()?;
            Some((status.node_uid.clone(), status.daemon_version.clone()))
        });
        keep(&mut self.daemons, daemons, now);
        let mut candidates = listed(view);
        keep(&mut self.held, candidates.iter().map(Case::of), now);
        for candidate in &mut candidates {
            let node = (candidate.node.clone(), candidate.node_uid.clone());
            let daemon = (candidate.node_uid.clone(), candidate.daemon_version.clone());
            candidate.held_since = self.held.get(&Case::of(candidate)).copied();
            candidate.node_ready_since = self.ready.get(&node).copied();
            candidate.daemon_since = self.daemons.get(&daemon).copied();
        }
        candidates
    }
}

/// Keys that are still there keep their time, new ones begin now.
fn keep<K: Ord>(times: &mut BTreeMap<K, Elapsed>, present: impl Iterator<Item = K>, now: Elapsed) {
    let mut before = std::mem::take(times);
    for key in present {
        let since = before.remove(&key).unwrap_or(now);
        times.entry(key).or_insert(since);
    }
}

/// What has become of the case of an action, among the candidates of now.
pub(crate) fn find(view: &View, candidates: &[Candidate], action: &StorageActionSpec) -> Sighting {
    let same = candidates.iter().find(|candidate| {
        candidate.claim.uid == action.claim.uid
            && candidate.volume == action.persistent_volume.name
            && candidate.node == action.node.name
            && candidate.drive.id == action.drive.id
            && candidate.reason == action.finding.reason
    });
    if let Some(candidate) = same {
        return Sighting::Listed(Box::new(candidate.clone()));
    }
    match current(view, &action.node.name) {
        Some(status) if !is_cut(status) => Sighting::Gone,
        _ => Sighting::Unknown,
    }
}

fn current<'v>(view: &'v View, node: &str) -> Option<&'v NodeStorageStatus> {
    view.reports.get(node)?.current(view.nodes.get(node)?)
}

fn is_cut(status: &NodeStorageStatus) -> bool {
    status.truncated.drives || status.truncated.volumes
}

fn listed(view: &View) -> Vec<Candidate> {
    let has_dead_drive = |status: &NodeStorageStatus| {
        let mut drives = status.drives.iter();
        drives.any(|drive| is_gone(&drive.reason))
    };
    let statuses = view.reports.values().filter_map(|it| it.status.as_ref());
    if !statuses.into_iter().any(has_dead_drive) {
        return Vec::new();
    }
    let listed = Listed::new(view);
    let candidate = |(name, volume): (&String, &Volume)| {
        let claim = volume.claim.as_ref()?;
        let node = volume.pins.iter().find_map(|pin| pin.node(view))?;
        let status = current(view, node)?;
        let entry = listed.find(node, name, volume)?;
        of_entry(view, node, status, entry).map(|candidate| Candidate {
            claim: claim.clone(),
            volume: name.clone(),
            ..candidate
        })
    };
    view.volumes.iter().filter_map(candidate).collect()
}

fn of_entry(
    view: &View,
    node: &str,
    status: &NodeStorageStatus,
    entry: &VolumeEntry,
) -> Option<Candidate> {
    let dead = status
        .drives
        .iter()
        .filter(|drive| is_gone(&drive.reason) && entry.drive_ids.contains(&drive.id));
    // Of several the same one each time: another one would be another case.
    let drive = dead.min_by_key(|drive| &drive.id)?;
    let mut conditions = entry.health_conditions.iter();
    Some(Candidate {
        node: node.to_owned(),
        node_uid: status.node_uid.clone(),
        boot_id: status.boot_id.clone(),
        machine_id: status.machine_id.clone(),
        daemon_version: status.daemon_version.clone(),
        drive: DriveRef {
            id: drive.id.clone(),
            model: drive.model.clone(),
            serial: drive.serial.clone(),
            slot: drive.slot.clone(),
        },
        reason: drive.reason.clone(),
        since: drive.since.as_ref().map(|since| since.0),
        is_inaccessible: conditions.any(|it| it.status == VolumeStatus::Inaccessible),
        is_redundant: entry.redundant,
        is_acknowledged: drive.acknowledged,
        in_maintenance: drive.maintenance,
        is_truncated: is_cut(status),
        elsewhere: elsewhere(view, node, &drive.id),
        ..Candidate::default()
    })
}

/// An id that identifies nothing says nothing about other nodes.
fn elsewhere(view: &View, node: &str, drive: &str) -> BTreeSet<String> {
    if !is_unique(drive) {
        return BTreeSet::new();
    }
    let others = view.reports.iter().filter(|(name, _)| *name != node);
    others
        .filter(|(_, report)| {
            let mut ids = report.status.iter().flat_map(|status| &status.drive_ids);
            ids.any(|id| id == drive)
        })
        .map(|(name, _)| name.clone())
        .collect()
}

/// Worst health of a volume, as the node that it is tied to reports it now. A volume that a current,
/// complete report does not list is in order; of one that is tied to no node nothing is known.
pub(crate) fn volume_health(view: &View, name: &str) -> Health {
    let known = || {
        let volume = view.volumes.get(name)?;
        let node = volume.pins.iter().find_map(|pin| pin.node(view))?;
        let status = current(view, node)?;
        let entry = Listed::new(view).find(node, name, volume);
        match entry {
            Some(entry) => Some(entry.health),
            None => (!is_cut(status)).then_some(Health::Good),
        }
    };
    known().unwrap_or(Health::Unknown)
}
