//! Which health the claims of volumes have that are tied to one node.
//!
//! In: the view, and what was written before. Out: for each claim in question the conditions to
//! write; none where the evidence says that the volume is well. Absence of a volume from a report
//! clears nothing by itself: a volume without a pod is not known to the daemon.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::{Claim, Elapsed, Policy, View, Volume};
use diskvitals_cluster::node_storage::{Health, NodeStorageStatus, VolumeEntry, VolumeStatus};

pub(crate) const NODE_UNAVAILABLE: &str = "NodeUnavailable";
pub(crate) const NODE_DELETED: &str = "NodeDeleted";

/// One entry of `healthConditions`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Condition {
    pub status: &'static str,
    pub reason: String,
    pub message: String,
}

impl Condition {
    fn is_of_node(&self) -> bool {
        self.reason == NODE_UNAVAILABLE || self.reason == NODE_DELETED
    }
}

/// What stands in a claim by our hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub conditions: Vec<Condition>,
    /// Drives below the volume when it was last listed. Empty: not known, for example after a
    /// restart.
    pub drives: BTreeSet<String>,
}

/// The entries that claims should have. A claim that is in neither map needs nothing.
pub(crate) fn desired(
    view: &View,
    written: &BTreeMap<Claim, Entry>,
    policy: &Policy,
    now: Elapsed,
) -> BTreeMap<Claim, Entry> {
    let listed = Listed::new(view);
    let mut desired = BTreeMap::new();
    for (name, volume) in &view.volumes {
        let Some(claim) = &volume.claim else { continue };
        let Some(node) = volume.pins.iter().find_map(|pin| pin.node(view)) else {
            // The node cannot be determined: what was written stays.
            if let Some(entry) = written.get(claim) {
                desired.insert(claim.clone(), entry.clone());
            }
            continue;
        };
        let before = written.get(claim);
        let mut entry = reported(view, node, listed.find(node, name, volume), before);
        entry.conditions.extend(of_node(view, node, before, policy, now));
        if !entry.conditions.is_empty() {
            desired.insert(claim.clone(), entry);
        }
    }
    desired
}

/// What the node's own report says of the volume.
fn reported(
    view: &View,
    node: &str,
    listed: Option<&VolumeEntry>,
    before: Option<&Entry>,
) -> Entry {
    let kept = || {
        let mut entry = before.cloned().unwrap_or_default();
        entry.conditions.retain(|condition| !condition.is_of_node());
        entry
    };
    let current = view.nodes.get(node).and_then(|object| view.reports.get(node)?.current(object));
    let Some(status) = current else { return kept() };
    match listed {
        Some(volume) => conditions_of(volume).map_or_else(kept, |conditions| Entry {
            conditions,
            drives: volume.drive_ids.iter().cloned().collect(),
        }),
        None => {
            let entry = kept();
            if entry.conditions.is_empty() || is_proven_well(status, &entry.drives) {
                Entry::default()
            } else {
                entry
            }
        }
    }
}

/// None: the health of the volume is not known, or in words of a newer version.
fn conditions_of(volume: &VolumeEntry) -> Option<Vec<Condition>> {
    let mut seen = BTreeSet::new();
    let mut conditions = Vec::new();
    for condition in &volume.health_conditions {
        let status = match condition.status {
            VolumeStatus::Degraded => "Degraded",
            VolumeStatus::Inaccessible => "Inaccessible",
            VolumeStatus::DataLoss => "DataLoss",
            VolumeStatus::Unknown => return None,
        };
        if is_reason(&condition.reason) && seen.insert((status, &condition.reason)) {
            conditions.push(Condition {
                status,
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            });
        }
    }
    (!conditions.is_empty() && volume.health != Health::Unknown).then_some(conditions)
}

/// The API server refuses a claim's status with another one, and with it all other conditions.
fn is_reason(text: &str) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(is_word)
        && bytes.iter().all(|byte| is_word(byte) || matches!(byte, b',' | b':'))
}

/// The volume is not listed: whether the complete report of a reachable daemon shows its drives in
/// order. Of unknown drives, none of the node may be bad, unknown or missing.
fn is_proven_well(status: &NodeStorageStatus, drives: &BTreeSet<String>) -> bool {
    if status.truncated.volumes || status.truncated.drives || !is_consistent(status) {
        return false;
    }
    let is_doubtful = |health| matches!(health, Health::Bad | Health::Unknown);
    let doubtful: BTreeSet<&str> = status
        .drives
        .iter()
        .filter(|drive| is_doubtful(drive.health))
        .map(|drive| drive.id.as_str())
        .collect();
    if drives.is_empty() {
        return doubtful.is_empty() && status.counts.missing == 0 && status.counts.bad == 0;
    }
    drives.iter().all(|id| status.drive_ids.contains(id) && !doubtful.contains(id.as_str()))
}

/// Whether the lists explain the health and the numbers. Where they do not, something is wrong that
/// is not listed: the daemon may not see all volumes, a newer version may have other lists, or a
/// person wrote the object.
fn is_consistent(status: &NodeStorageStatus) -> bool {
    let drives = status.drives.iter().map(|drive| drive.health);
    let mut listed = drives.chain(status.volumes.iter().map(|volume| volume.health));
    let is_explained = match status.health {
        Health::Good => true,
        Health::Unknown => listed.any(|health| health == Health::Unknown),
        worst @ (Health::Suspect | Health::Bad) => {
            listed.any(|health| health.severity() >= worst.severity())
        }
    };
    let bad = status.drives.iter().filter(|it| it.health == Health::Bad);
    is_explained
        && status.counts.bad as usize <= bad.count()
        && status.counts.affected as usize <= status.volumes.len()
}

/// Of the node itself, for all its volumes. What stands ends when the node is ready, also for a
/// controller that was started a moment ago.
fn of_node(
    view: &View,
    node: &str,
    before: Option<&Entry>,
    policy: &Policy,
    now: Elapsed,
) -> Option<Condition> {
    let since = view.unready_since(node)?;
    let stands = before.is_some_and(|entry| entry.conditions.iter().any(Condition::is_of_node));
    if !stands && now.saturating_sub(since) < policy.unavailable_after {
        return None;
    }
    let (reason, message) = if view.nodes.contains_key(node) {
        (NODE_UNAVAILABLE, format!("node {node} is not ready"))
    } else {
        (NODE_DELETED, format!("node {node} is deleted"))
    };
    Some(Condition { status: "Inaccessible", reason: reason.to_owned(), message })
}

/// The volumes in all current reports, by what names them.
pub(super) struct Listed<'v> {
    by_handle: HashMap<(&'v str, &'v str, &'v str), &'v VolumeEntry>,
    by_name: HashMap<(&'v str, &'v str), &'v VolumeEntry>,
}

impl<'v> Listed<'v> {
    pub(super) fn new(view: &'v View) -> Listed<'v> {
        let mut listed = Listed { by_handle: HashMap::new(), by_name: HashMap::new() };
        for (node, report) in &view.reports {
            for volume in report.status.iter().flat_map(|status| &status.volumes) {
                if volume.driver.is_empty() {
                    listed.by_name.insert((node, &volume.persistent_volume), volume);
                } else {
                    listed.by_handle.insert((node, &volume.driver, &volume.handle), volume);
                }
            }
        }
        listed
    }

    /// A node is believed about volumes that are tied to it: it cannot name those of others.
    pub(super) fn find(&self, node: &str, name: &str, volume: &Volume) -> Option<&'v VolumeEntry> {
        match &volume.csi {
            Some((driver, handle)) => {
                self.by_handle.get(&(node, driver.as_str(), handle.as_str())).copied()
            }
            None => self.by_name.get(&(node, name)).copied(),
        }
    }
}
