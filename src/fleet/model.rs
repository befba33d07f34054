//! What the controller knows of the cluster, and what follows from it. Pure: no clock, no I/O; a
//! time is the time since the start of the process in which the watches worked.
//!
//! In: nodes, reports (`NodeStorage`) and volumes as the API server last showed them. Out: decisions.
//! A failed or missing reading is no statement: it raises nothing and clears nothing.

pub(crate) mod claims;
pub(crate) mod figures;
pub(crate) mod lost_nodes;
pub(crate) mod pin;
pub(crate) mod quarantine;
pub(crate) mod release;
pub(crate) mod retention;
pub(crate) mod shared_drives;
pub(crate) mod unreachable;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::release::check::PolicyObject;
use diskvitals_cluster::current_report::{MAX_AGE, daemon_reachable, is_about, is_answering};
use diskvitals_cluster::node_storage::{NodeStorageStatus, PodEviction};

/// Monotonic time since the start of the process, without that in which a watch failed.
pub(crate) type Elapsed = Duration;

/// Thresholds.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// A node that is not ready, or gone, for this time makes its volumes unavailable.
    pub unavailable_after: Duration,
    /// How long two nodes must list one drive before it is called shared.
    pub shared_after: Duration,
    /// The report of a deleted node is kept for this time after it was last written.
    pub keep_reports: Duration,
    /// A report that was last written before this time is no statement.
    pub stale_after: Duration,
    /// A node must have been absent for this time before its report may be deleted.
    pub absent_before_delete: Duration,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            unavailable_after: Duration::from_secs(300),
            shared_after: Duration::from_secs(120),
            keep_reports: Duration::from_secs(30 * 24 * 3600),
            stale_after: MAX_AGE,
            absent_before_delete: Duration::from_secs(3600),
        }
    }
}

/// A Node object, reduced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub uid: String,
    /// Label `kubernetes.io/hostname`.
    pub hostname: String,
    /// The condition Ready is True.
    pub is_ready: bool,
    /// It is not ready and its condition StorageHealthy is True: when its reporter wrote that, by the
    /// API server's clock.
    pub healthy_report: Option<Timestamp>,
    /// Cordoned.
    pub is_unschedulable: bool,
    /// Values of its taints with the effect NoSchedule, by key.
    pub taints: BTreeMap<String, String>,
    /// `status.nodeInfo.machineID`.
    pub machine_id: String,
}

/// A NodeStorage object, reduced.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    pub uid: String,
    pub resource_version: String,
    /// When the object was last written, by the API server's clock.
    pub last_write: Option<Timestamp>,
    /// None: never reported.
    pub status: Option<NodeStorageStatus>,
    /// Nonce of the challenge that stands in its spec.
    pub challenge: Option<String>,
    /// Its spec has a quarantine.
    pub is_quarantined: bool,
    /// The pod of the node that is being evicted.
    pub eviction: Option<PodEviction>,
}

impl Report {
    /// The status, if the node's daemon answers and it is about this Node object.
    pub(crate) fn current(&self, node: &Node) -> Option<&NodeStorageStatus> {
        let status = self.status.as_ref()?;
        let reachable = daemon_reachable(status).is_some_and(is_answering);
        (reachable && is_about(status, &node.uid)).then_some(status)
    }

    /// `server`: the API server's time, whose clock also stamped the write.
    fn is_fresh(&self, policy: &Policy, server: Option<Timestamp>) -> bool {
        let age = server.zip(self.last_write).map(|(now, written)| now.duration_since(written));
        age.is_some_and(|age| {
            Duration::try_from(age).is_ok_and(|age| age < policy.stale_after) || age.is_negative()
        })
    }
}

/// The claim of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A PersistentVolume, reduced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volume {
    /// Driver and handle of a CSI volume.
    pub csi: Option<(String, String)>,
    pub claim: Option<Claim>,
    /// The requirements of the node affinity, any of which may tie it to one node.
    pub pins: Vec<pin::Pin>,
}

/// Everything known, with the times of what lasts.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub nodes: BTreeMap<String, Node>,
    pub reports: BTreeMap<String, Report>,
    pub volumes: BTreeMap<String, Volume>,
    /// CSI drivers that are registered on a node, by its name; only where a duty needs them.
    pub drivers: BTreeMap<String, BTreeSet<String>>,
    /// Only where a duty needs them.
    pub policies: BTreeMap<String, PolicyObject>,
    /// Names of the nodes with a host name.
    hostnames: BTreeMap<String, BTreeSet<String>>,
    /// Since when a node has not been ready, or has been absent although it has a report.
    unready_since: BTreeMap<String, Elapsed>,
    /// Since when a drive has been listed by these nodes.
    shared_since: BTreeMap<(String, BTreeSet<String>), Elapsed>,
}

impl View {
    /// Notes since when a state has lasted. Called after each change of nodes and reports.
    pub(crate) fn observe(&mut self, now: Elapsed) {
        self.hostnames.clear();
        for (name, node) in &self.nodes {
            let names = self.hostnames.entry(node.hostname.clone()).or_default();
            names.insert(name.clone());
        }
        let mut unready: BTreeSet<&String> =
            self.nodes.iter().filter(|(_, node)| !node.is_ready).map(|(name, _)| name).collect();
        unready.extend(self.reports.keys().filter(|name| !self.nodes.contains_key(*name)));
        self.unready_since.retain(|name, _| unready.contains(name));
        for name in unready {
            self.unready_since.entry(name.clone()).or_insert(now);
        }
        let shared = shared_drives::candidates(&self.nodes, &self.reports);
        self.shared_since.retain(|(id, nodes), _| shared.get(id) == Some(nodes));
        for pair in shared {
            self.shared_since.entry(pair).or_insert(now);
        }
    }

    /// Since when the node has not been ready, or has been gone.
    pub(crate) fn unready_since(&self, node: &str) -> Option<Elapsed> {
        self.unready_since.get(node).copied()
    }

    /// Drives that several nodes have listed for long enough.
    pub(crate) fn shared_drives(
        &self,
        policy: &Policy,
        now: Elapsed,
    ) -> BTreeMap<String, BTreeSet<String>> {
        self.shared_since
            .iter()
            .filter(|(_, since)| now.saturating_sub(**since) >= policy.shared_after)
            .map(|((id, nodes), _)| (id.clone(), nodes.clone()))
            .collect()
    }

    /// When a decision changes by the passing of time alone.
    pub(crate) fn next_deadline(&self, policy: &Policy, now: Elapsed) -> Option<Elapsed> {
        let unready = self.unready_since.values().flat_map(|since| {
            [*since + policy.unavailable_after, *since + policy.absent_before_delete]
        });
        let shared = self.shared_since.values().map(|since| *since + policy.shared_after);
        unready.chain(shared).filter(|at| *at > now).min()
    }

    /// In which time the first fresh report stops being fresh.
    pub(crate) fn next_aging(&self, policy: &Policy, server: Timestamp) -> Option<Duration> {
        let fresh =
            self.nodes.keys().filter(|name| self.fresh(name, policy, Some(server)).is_some());
        let written = fresh.filter_map(|name| self.reports.get(name)?.last_write);
        let left = written.map(|written| {
            let age = Duration::try_from(server.duration_since(written)).unwrap_or_default();
            policy.stale_after.saturating_sub(age)
        });
        left.min()
    }

    /// The status of the node's report if it is current and fresh.
    pub(crate) fn fresh(
        &self,
        name: &str,
        policy: &Policy,
        server: Option<Timestamp>,
    ) -> Option<&NodeStorageStatus> {
        let report = self.reports.get(name)?;
        let status = report.current(self.nodes.get(name)?)?;
        report.is_fresh(policy, server).then_some(status)
    }
}

#[cfg(test)]
mod tests;
