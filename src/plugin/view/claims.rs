//! Claims whose volumes are not healthy: the nodes' entries, joined with PersistentVolumes, claims
//! and pods. Mounts without a pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::objects::{ClaimRecord, PodRecord, VolumeRecord};
use crate::view::fence::{Reach, reach};
use crate::view::nodes::{NodeView, Report};
use crate::view::unclean::{VolumeUse, volume_use};
use crate::view::{Base, Read, drives};
use diskvitals_cluster::node_storage::{Health, VolumeEntry, VolumeStatus};

/// What the entries of the nodes name, as far as it was read.
pub(crate) struct Named {
    /// By name; a name that is absent does not exist.
    pub volumes: Read<BTreeMap<String, VolumeRecord>>,
    /// By namespace and name.
    pub claims: BTreeMap<(String, String), Read<Option<ClaimRecord>>>,
    /// By namespace.
    pub pods: BTreeMap<String, Read<Vec<PodRecord>>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimRow {
    /// Empty with `claim`: no claim is known.
    pub namespace: String,
    pub claim: String,
    pub volume: String,
    pub node: String,
    /// Namespace is that of the claim.
    pub pods: Vec<String>,
    pub health: Health,
    /// The worst one.
    pub status: VolumeStatus,
    pub reason: String,
    pub message: String,
    pub redundant: bool,
    /// The next failure may lose its data.
    pub has_last_copy: bool,
    pub drives: Vec<String>,
    pub since: Option<Timestamp>,
    /// What makes the row doubtful, or is not known.
    pub remark: String,
    /// What the controller proposes or does for the claim; empty: nothing.
    pub action: String,
    /// A volume of Kubernetes; otherwise a filesystem of the node itself.
    pub is_of_kubernetes: bool,
    pub report: Report,
}

impl ClaimRow {
    /// A volume of Kubernetes whose claim is not known.
    pub(crate) fn is_unassigned(&self) -> bool {
        self.is_of_kubernetes && self.claim.is_empty()
    }
}

/// CSI volumes first, worst first; filesystems of the nodes themselves have no claim and no driver.
pub(crate) fn claims(base: &Base, nodes: &[NodeView<'_>], named: &Named) -> Vec<ClaimRow> {
    let mut rows = Vec::new();
    for node in nodes {
        let entries = node.status.map(|it| it.volumes.as_slice());
        rows.extend(entries.unwrap_or_default().iter().map(|entry| row(base, node, entry, named)));
    }
    rows.sort_by_cached_key(|row| {
        (
            (!row.report.is_of_a_node(), !row.is_of_kubernetes),
            std::cmp::Reverse((row.health.severity(), severity(row.status), row.has_last_copy)),
            row.namespace.clone(),
            row.claim.clone(),
            row.node.clone(),
            row.volume.clone(),
        )
    });
    rows
}

/// Whether the entry is of a volume of Kubernetes.
pub(crate) fn is_claimable(entry: &VolumeEntry) -> bool {
    !entry.driver.is_empty() || !entry.persistent_volume.is_empty()
}

fn severity(status: VolumeStatus) -> u8 {
    match status {
        VolumeStatus::Unknown => 0,
        VolumeStatus::Degraded => 1,
        VolumeStatus::DataLoss => 2,
        VolumeStatus::Inaccessible => 3,
    }
}

/// The PersistentVolume that an entry names, or the one of its driver and handle.
pub(crate) fn volume_of<'a>(
    driver: &str,
    handle: &str,
    name: &str,
    volumes: &'a BTreeMap<String, VolumeRecord>,
) -> Option<&'a VolumeRecord> {
    if !name.is_empty() {
        return volumes.get(name);
    }
    let mut all = volumes.values();
    all.find(|it| !driver.is_empty() && it.driver == driver && it.handle == handle)
}

fn row(base: &Base, node: &NodeView<'_>, entry: &VolumeEntry, named: &Named) -> ClaimRow {
    // Of equally severe ones the first, which is the worst: `max_by_key` gives the last.
    let worst = entry.health_conditions.iter().rev();
    let worst = worst.max_by_key(|condition| severity(condition.status));
    let mut row = ClaimRow {
        namespace: String::new(),
        claim: String::new(),
        volume: match entry.persistent_volume.as_str() {
            "" => entry.handle.clone(),
            name => name.to_owned(),
        },
        node: node.name.to_owned(),
        pods: Vec::new(),
        health: node.report.judge(entry.health),
        status: worst.map_or(VolumeStatus::Unknown, |it| it.status),
        reason: worst.map(|it| it.reason.clone()).unwrap_or_default(),
        message: worst.map(|it| it.message.clone()).unwrap_or_default(),
        redundant: entry.redundant,
        has_last_copy: entry.has_last_copy(),
        drives: drive_names(node, entry),
        since: entry.since.as_ref().map(|time| time.0),
        remark: String::new(),
        action: String::new(),
        is_of_kubernetes: is_claimable(entry),
        report: node.report.clone(),
    };
    if is_claimable(entry) {
        row.remark = join(base, node, entry, named, &mut row);
    }
    row
}

/// Fills in claim and pods. Out: the remark.
fn join(
    base: &Base,
    node: &NodeView<'_>,
    entry: &VolumeEntry,
    named: &Named,
    row: &mut ClaimRow,
) -> String {
    let volumes = match &named.volumes {
        Ok(volumes) => volumes,
        Err(_) => return "its claim is not known: PersistentVolumes cannot be read".to_owned(),
    };
    let found = volume_of(&entry.driver, &entry.handle, &entry.persistent_volume, volumes);
    let Some(volume) = found else {
        return "there is no such PersistentVolume".to_owned();
    };
    row.volume.clone_from(&volume.name);
    match reach(volume, &base.nodes) {
        Reach::One(other) if other != node.name => {
            return format!("doubtful: the volume is pinned to {other}");
        }
        Reach::Nobody if node.report.is_of_a_node() => {
            return "doubtful: the volume is pinned to a node that does not exist".to_owned();
        }
        _ => {}
    }
    let Some(claim) = &volume.claim else {
        return format!("no claim ({})", volume.phase);
    };
    row.namespace.clone_from(&claim.namespace);
    row.claim.clone_from(&claim.name);
    let key = (claim.namespace.clone(), claim.name.clone());
    let state = match named.claims.get(&key) {
        Some(Ok(Some(present))) if present.uid == claim.uid => None,
        Some(Ok(Some(_))) => Some("its claim is deleted; another one has the name now".to_owned()),
        Some(Ok(None)) => Some(format!("its claim is deleted ({})", volume.phase)),
        Some(Err(_)) | None => Some("whether its claim still exists is not known".to_owned()),
    };
    match named.pods.get(&claim.namespace) {
        Some(Ok(pods)) if state.is_none() => {
            let users = users(pods, &claim.name).filter(|pod| pod.node == node.name);
            row.pods = users.map(|pod| pod.name.clone()).collect();
        }
        Some(Ok(_)) => {}
        Some(Err(_)) | None => {
            let pods = "its pods are not known";
            return state.map_or_else(|| pods.to_owned(), |state| format!("{state}; {pods}"));
        }
    }
    state.unwrap_or_default()
}

/// Pods that have the claim and have not ended.
pub(crate) fn users<'a>(
    pods: &'a [PodRecord],
    claim: &'a str,
) -> impl Iterator<Item = &'a PodRecord> {
    pods.iter().filter(move |pod| !pod.has_ended && pod.claims.iter().any(|it| it == claim))
}

/// Slot and serial number of the drives that are not good; the ids of the others.
fn drive_names(node: &NodeView<'_>, entry: &VolumeEntry) -> Vec<String> {
    let listed = node.status.map(|it| it.drives.as_slice()).unwrap_or_default();
    let names =
        entry.drive_ids.iter().map(|id| match listed.iter().find(|drive| drive.id == *id) {
            Some(drive) if !drive.serial.is_empty() => drive.serial.clone(),
            _ => id.clone(),
        });
    names.collect()
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StaleRow {
    pub node: String,
    #[serde(flatten)]
    pub volume: VolumeUse,
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    pub path: String,
    pub role: String,
    pub since: Option<Timestamp>,
    pub reason: String,
    pub report: Report,
}

/// Mounts without a pod, by node.
pub(crate) fn stale(nodes: &[NodeView<'_>], named: &Named) -> Vec<StaleRow> {
    let mut rows = Vec::new();
    for node in nodes {
        let entries = node.status.map(|it| it.stale.as_slice()).unwrap_or_default();
        rows.extend(entries.iter().map(|entry| StaleRow {
            node: node.name.to_owned(),
            volume: volume_use(
                named,
                (&entry.driver, &entry.handle, &entry.persistent_volume),
                node.name,
            ),
            pod_uid: entry.pod_uid.clone(),
            path: entry.path.clone(),
            role: entry.role.clone(),
            since: entry.since.as_ref().map(|time| time.0),
            reason: entry.reason.clone(),
            report: node.report.clone(),
        }));
    }
    rows
}

pub(crate) fn stale_gaps(nodes: &[NodeView<'_>]) -> Vec<crate::view::Gap> {
    drives::cut(nodes, "stale mounts", |status| status.truncated.stale)
}

pub(crate) fn claim_gaps(nodes: &[NodeView<'_>]) -> Vec<crate::view::Gap> {
    drives::cut(nodes, "volumes", |status| status.truncated.volumes)
}
