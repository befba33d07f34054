//! Quarantine of nodes that were away: which node is kept from new pods, and when it is let go. Pure.
//!
//! In: what was read of one node for this decision. Out: the next write, or what the node waits for.
//! While a node is away, the pods on it may be deleted and started elsewhere, and their mounts stay
//! where they were. Such a node gets a taint before it can return; it goes when the node has proven
//! that nothing of those pods is left. A reading that failed is no step forward, and no pod counts
//! as deleted because it could not be read.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::model::release::Now;
use crate::model::release::evidence::Reading;
use crate::model::{Elapsed, View};
use diskvitals_cluster::node_storage::{CleanReason, MAX_QUARANTINED, Quarantine};

/// What is read of one node, without a cache. `None` inside a reading: there is no such object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeReadings {
    pub node: Reading<Option<NodeReading>>,
    pub report: Reading<Option<ReportReading>>,
    pub pods: Reading<Vec<PodReading>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeReading {
    pub is_ready: bool,
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// Value of our taint.
    pub taint: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReportReading {
    pub quarantine: Option<Quarantine>,
    /// What the node's daemon says about it now. None: it does not answer, or speaks of another Node
    /// object.
    pub word: Option<Word>,
}

/// The condition `AttachmentsClean`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// The quarantine that it is about.
    pub of: String,
    pub is_clean: bool,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodReading {
    pub uid: String,
    pub is_terminating: bool,
    /// It has a volume that another node can reach, or its volumes could not be read: then the node
    /// has to prove more.
    pub is_movable: bool,
    /// Names of the PersistentVolumes of its claims.
    pub volumes: Vec<String>,
}

impl NodeReadings {
    /// Joins what was read with the volumes that are watched. One that is not known is not tied to a
    /// node, as far as is known.
    pub(crate) fn complete(&mut self, view: &View) {
        let is_pinned = |name: &String| {
            let volume = view.volumes.get(name);
            let mut pins = volume.into_iter().flat_map(|volume| &volume.pins);
            pins.any(|pin| pin.ties(view))
        };
        if let Reading::Read(pods) = &mut self.pods {
            for pod in pods {
                pod.is_movable |= !pod.volumes.iter().all(is_pinned);
            }
        }
    }
}

/// What is remembered of a node between two decisions. After a restart it is learned anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The quarantine that is proven clean, and since when.
    proven: Option<(String, Elapsed)>,
    /// Since when the node has had the taint without a quarantine.
    orphaned: Option<Elapsed>,
}

#[derive(Clone, Copy, Debug)]
pub struct QuarantineLimits {
    /// The taint goes this long after the proof.
    pub proof: Duration,
    /// A taint without a quarantine: a person may be removing both.
    pub orphan: Duration,
}

impl Default for QuarantineLimits {
    fn default() -> QuarantineLimits {
        QuarantineLimits { proof: Duration::from_secs(30), orphan: Duration::from_secs(60) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// The node is as it should be, or gone.
    Nothing,
    /// Why the node stays as it is.
    Wait {
        reason: String,
        text: String,
    },
    Write(Option<Quarantine>),
    /// Set our taint, with this value.
    Taint(String),
    Untaint,
}

impl Order {
    fn wait(reason: &str, text: impl Into<String>) -> Order {
        Order::Wait { reason: reason.to_owned(), text: text.into() }
    }
}

/// `id`: one that no quarantine had before.
pub(crate) fn next(
    readings: &NodeReadings,
    memory: &mut Memory,
    limits: &QuarantineLimits,
    id: &str,
    now: Now,
) -> Order {
    let before = std::mem::take(memory);
    let node = match readings.node.as_ref() {
        Ok(Some(node)) => node,
        Ok(None) => return Order::Nothing,
        Err(why) => return unread(memory, before, "node", why),
    };
    let report = match readings.report.as_ref() {
        Ok(Some(report)) => report,
        Ok(None) if node.taint.is_some() => {
            return Order::wait(
                "NoReport",
                "the node has no NodeStorage, so that nobody can prove it clean",
            );
        }
        Ok(None) => return Order::Nothing,
        Err(why) => return unread(memory, before, "NodeStorage", why),
    };
    let pods = match readings.pods.as_ref() {
        Ok(pods) => pods,
        Err(why) => return unread(memory, before, "pods", why),
    };
    let Some(quarantine) = &report.quarantine else {
        return without_quarantine(node, pods, (memory, before), limits, id, now);
    };
    if !node.is_ready {
        return match joined(quarantine, node, pods, id, now) {
            Some(wider) => Order::Write(Some(wider)),
            None => tainted(node, quarantine, || Order::wait("NotReady", "the node is not ready")),
        };
    }
    if let Some(narrower) = narrowed(quarantine, pods) {
        return Order::Write(Some(narrower));
    }
    if quarantine.pod_uids.is_empty() && !quarantine.truncated {
        // Every pod is where it was.
        return released(node);
    }
    match &report.word {
        Some(word) if word.of == quarantine.id && word.is_clean => {
            let since = match before.proven {
                Some((id, since)) if id == quarantine.id => since,
                _ => now.elapsed,
            };
            memory.proven = Some((quarantine.id.clone(), since));
            if now.elapsed.saturating_sub(since) >= limits.proof {
                return released(node);
            }
            tainted(node, quarantine, || {
                Order::wait(CleanReason::ProvenClean.name(), "it is proven clean")
            })
        }
        Some(word) if word.of == quarantine.id => {
            tainted(node, quarantine, || Order::wait(&word.reason, word.message.clone()))
        }
        Some(_) | None => tainted(node, quarantine, || {
            let reason = CleanReason::NoAnswer;
            let text = format!("the node has not said whether it is clean: {}", reason.advice());
            Order::wait(reason.name(), text)
        }),
    }
}

/// What was known stays.
fn unread(memory: &mut Memory, before: Memory, what: &str, why: &str) -> Order {
    *memory = before;
    Order::wait("Unread", format!("{what} could not be read: {why}"))
}

fn without_quarantine(
    node: &NodeReading,
    pods: &[PodReading],
    (memory, before): (&mut Memory, Memory),
    limits: &QuarantineLimits,
    id: &str,
    now: Now,
) -> Order {
    let movable = movable(pods);
    if !node.is_ready && !movable.is_empty() {
        return Order::Write(Some(quarantine(movable, false, node, id, now)));
    }
    if node.taint.is_none() {
        return Order::Nothing;
    }
    let since = before.orphaned.unwrap_or(now.elapsed);
    memory.orphaned = Some(since);
    if now.elapsed.saturating_sub(since) < limits.orphan {
        let text = "the node has the taint, and no quarantine says why";
        return Order::wait("NoQuarantine", text);
    }
    // The list is lost: until the next boot nothing proves the node clean.
    Order::Write(Some(quarantine(BTreeSet::new(), true, node, id, now)))
}

fn movable(pods: &[PodReading]) -> BTreeSet<&str> {
    let movable = pods.iter().filter(|pod| pod.is_movable);
    movable.map(|pod| pod.uid.as_str()).collect()
}

fn quarantine(
    uids: BTreeSet<&str>,
    is_cut: bool,
    node: &NodeReading,
    id: &str,
    now: Now,
) -> Quarantine {
    Quarantine {
        id: id.to_owned(),
        since: Some(Time(now.wall)),
        truncated: is_cut || uids.len() > MAX_QUARANTINED,
        pod_uids: uids.into_iter().take(MAX_QUARANTINED).map(str::to_owned).collect(),
        boot_id: node.boot_id.clone(),
    }
}

/// The node was lost again, with other pods, before it was clean.
fn joined(
    quarantine_of: &Quarantine,
    node: &NodeReading,
    pods: &[PodReading],
    id: &str,
    now: Now,
) -> Option<Quarantine> {
    let mut uids: BTreeSet<&str> = quarantine_of.pod_uids.iter().map(String::as_str).collect();
    let known = uids.len();
    uids.extend(movable(pods));
    let is_known =
        uids.len() == known || quarantine_of.truncated && quarantine_of.boot_id == node.boot_id;
    if is_known {
        return None;
    }
    let was_cut = quarantine_of.truncated && quarantine_of.boot_id == node.boot_id;
    Some(quarantine(uids, was_cut, node, id, now))
}

/// Pods that are still there are no concern of the quarantine: the kubelet has them. One that is
/// being deleted may be gone before the kubelet has seen it.
fn narrowed(quarantine: &Quarantine, pods: &[PodReading]) -> Option<Quarantine> {
    let alive: BTreeSet<&str> =
        pods.iter().filter(|pod| !pod.is_terminating).map(|pod| pod.uid.as_str()).collect();
    let mut narrower = quarantine.clone();
    narrower.pod_uids.retain(|uid| !alive.contains(uid.as_str()));
    (narrower.pod_uids.len() < quarantine.pod_uids.len()).then_some(narrower)
}

/// First the taint: without its quarantine nobody would remove it.
fn released(node: &NodeReading) -> Order {
    match node.taint {
        Some(_) => Order::Untaint,
        None => Order::Write(None),
    }
}

/// Clouds lose taints when they create a Node anew.
fn tainted(node: &NodeReading, quarantine: &Quarantine, then: impl FnOnce() -> Order) -> Order {
    if node.taint.as_deref() == Some(quarantine.id.as_str()) {
        then()
    } else {
        Order::Taint(quarantine.id.clone())
    }
}

#[cfg(test)]
mod tests;
