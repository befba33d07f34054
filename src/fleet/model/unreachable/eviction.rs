//! One pod after the other leaves a node that does not reach its storage. Pure.
//!
//! In: what was read of pods for this decision. Out: the pod to evict, and what its eviction waits
//! for. A pod is chosen only if its controller makes another one, which can run on another node. It
//! is replaced when it is gone and all pods of its controller are ready; until then no other pod of
//! the cluster is evicted.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::model::View;
use crate::model::release::evidence::Reading;
use diskvitals_cluster::node_storage::PodEviction;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodReading {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub owner: Option<Owner>,
    pub created: Option<Timestamp>,
    pub is_terminating: bool,
    /// Succeeded or Failed.
    pub has_ended: bool,
    pub is_ready: bool,
    /// It tolerates the taint: it could be started on the same node again.
    pub tolerates: bool,
    /// Drivers of volumes without a PersistentVolume.
    pub inline_drivers: BTreeSet<String>,
    /// Names of the PersistentVolumes of its claims; why one could not be read.
    pub volumes: Reading<Vec<String>>,
}

/// The controller of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub kind: String,
    pub uid: String,
}

/// What is read for an eviction that was begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvictionReadings {
    /// None: there is no pod of this uid.
    pub pod: Reading<Option<PodReading>>,
    /// All pods of its namespace with the same controller.
    pub group: Reading<Vec<PodReading>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask for the eviction.
    Evict,
    Wait(Waiting),
    /// The pod is replaced, or there is nothing to wait for.
    Done,
}

/// What an eviction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiting {
    /// The pod does not end. On a node that is Ready Kubernetes detaches nothing before it has.
    Terminating,
    /// No pod is there instead, or one of its controller's pods is not ready.
    Replacement,
    /// The API server did not say.
    Unread,
}

impl Waiting {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Waiting::Terminating => "end",
            Waiting::Replacement => "replacement",
            Waiting::Unread => "reading",
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Waiting::Terminating => "the pod does not end",
            Waiting::Replacement => "its replacement is not ready",
            Waiting::Unread => "its pods cannot be read",
        }
    }
}

/// The first pod that may move, by namespace and name. `refused`: uids of pods whose eviction was
/// refused a moment ago.
pub(crate) fn choose(
    pods: &[PodReading],
    driver: &str,
    view: &View,
    refused: &BTreeSet<&str>,
    server: Timestamp,
) -> Option<PodEviction> {
    let movable = pods
        .iter()
        .filter(|pod| is_movable(pod, driver, view) && !refused.contains(pod.uid.as_str()));
    let pod = movable.min_by_key(|pod| (&pod.namespace, &pod.name))?;
    Some(PodEviction {
        driver: driver.to_owned(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        pod_uid: pod.uid.clone(),
        owner_uid: pod.owner.as_ref()?.uid.clone(),
        since: Time(server),
    })
}

fn is_movable(pod: &PodReading, driver: &str, view: &View) -> bool {
    // A pod of a DaemonSet belongs to its node, and a mirror pod's controller is the node itself.
    let is_replaced = pod
        .owner
        .as_ref()
        .is_some_and(|owner| !["DaemonSet", "Node"].contains(&owner.kind.as_str()));
    let Ok(volumes) = pod.volumes.as_ref() else {
        return false;
    };
    let mut uses_driver = pod.inline_drivers.contains(driver);
    for name in volumes {
        let Some(volume) = view.volumes.get(name) else {
            return false;
        };
        // On another node it would wait for ever.
        if volume.pins.iter().any(|pin| pin.ties(view)) {
            return false;
        }
        uses_driver |= volume.csi.as_ref().is_some_and(|(of, _)| of == driver);
    }
    is_replaced && uses_driver && !pod.is_terminating && !pod.has_ended && !pod.tolerates
}

/// `is_wanted`: the node still has the taint for the driver, and the driver is not away for too many
/// nodes. `has_waited`: the replacement has been waited for long enough.
pub(crate) fn next(
    eviction: &PodEviction,
    readings: &EvictionReadings,
    is_wanted: bool,
    has_waited: bool,
) -> Next {
    let Ok(pod) = readings.pod.as_ref() else {
        return Next::Wait(Waiting::Unread);
    };
    match pod {
        Some(pod) if !pod.is_terminating && !pod.has_ended => {
            return match is_wanted {
                true => Next::Evict,
                false => Next::Done,
            };
        }
        Some(pod) if pod.is_terminating => return Next::Wait(Waiting::Terminating),
        Some(_) | None => {}
    }
    let Ok(group) = readings.group.as_ref() else {
        return Next::Wait(Waiting::Unread);
    };
    let alive = group.iter().filter(|pod| !pod.has_ended);
    let alive: Vec<&PodReading> = alive.filter(|pod| !pod.is_terminating).collect();
    if alive.is_empty() {
        // A StatefulSet makes the replacement when the pod is gone. One that never comes is not
        // wanted: its controller is gone, or wants no pod.
        return match has_waited {
            true => Next::Done,
            false => Next::Wait(Waiting::Replacement),
        };
    }
    // Both times are of the API server's clock, to the second.
    let is_younger = |pod: &&PodReading| {
        let created = pod.created.map(|created| created.as_second());
        created.is_some_and(|created| created >= eviction.since.0.as_second())
    };
    let is_replaced = alive.iter().any(is_younger) && alive.iter().all(|pod| pod.is_ready);
    // Without the taint nothing more is evicted: what the controller's owner wants is not known.
    match is_replaced || !is_wanted && alive.iter().all(|pod| pod.is_ready) {
        true => Next::Done,
        false => Next::Wait(Waiting::Replacement),
    }
}

#[cfg(test)]
pub(crate) mod tests;
