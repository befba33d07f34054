//! What is announced: events, and lines in the log.
//!
//! In: decisions and what became of writes. Out: announcements. A driver that is away for too many
//! nodes is announced when that begins and when it ends. Notes name the time: the name of an event
//! is made of its note, and the same may happen again within the hour.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::events::{Announcement, regarding};
use crate::model::unreachable::eviction::Waiting;
use crate::unreachable::UnreachableStorage;
use diskvitals_cluster::node_storage::PodEviction;
use diskvitals_kubernetes::event::{Regarding, regarding_node};

/// Names of nodes in one statement.
const MAX_NAMES: usize = 5;

impl UnreachableStorage {
    pub(super) fn announce_beyond(&mut self, time: Timestamp) {
        let at = clock(time);
        let drivers = self.decision.drivers.iter();
        let beyond: BTreeSet<String> = drivers
            .filter(|(_, state)| state.is_beyond())
            .map(|(driver, _)| driver.clone())
            .collect();
        for driver in beyond.difference(&self.announced) {
            let Some(state) = self.decision.drivers.get(driver) else {
                continue;
            };
            let (affected, nodes, limit) = (state.affected.len(), state.nodes, state.limit);
            let reached = state.reached;
            tracing::warn!(
                driver,
                affected,
                nodes,
                reached,
                limit,
                "the storage of a driver is away for too many nodes: nothing moves"
            );
            let note = format!(
                "{at}: {affected} of the {nodes} nodes with this driver do not reach its storage or are silent ({}), and {reached} prove that they reach it. With more than {limit} of the first, or none of the second, this is the storage and not a node: nothing is tainted or evicted for it",
                names(&state.affected)
            );
            self.announcements.push(Announcement::new(
                driver_of(driver),
                "StorageAway",
                note,
                true,
            ));
        }
        for driver in self.announced.difference(&beyond) {
            tracing::info!(driver, "the storage of a driver is no longer away for too many nodes");
            let note = format!("{at}: its storage is no longer away for too many nodes");
            let of = driver_of(driver);
            self.announcements.push(Announcement::new(of, "StorageAwayCleared", note, false));
        }
        self.announced = beyond;
    }

    /// Without a value, the taint was removed.
    pub(super) fn announce_taint(&mut self, node: &str, value: Option<&str>, time: Timestamp) {
        let (key, at) = (&self.key, clock(time));
        let (reason, note) = match value {
            Some(value) => {
                tracing::warn!(node, value, "a node that does not reach storage gets no new pods");
                let drivers: Vec<String> = self.drivers_of(node);
                (
                    "StorageUnreachable",
                    format!(
                        "{at}: the node does not reach the storage of {}: taint {key}={value}:NoSchedule until it has reached it for some minutes",
                        drivers.join(", ")
                    ),
                )
            }
            None => {
                tracing::info!(node, "a node reaches its storage again");
                (
                    "StorageReachable",
                    format!("{at}: the node reaches its storage again: the taint {key} is removed"),
                )
            }
        };
        let of = regarding_node(node);
        self.announcements.push(Announcement::new(of, reason, note, value.is_some()));
    }

    fn drivers_of(&self, node: &str) -> Vec<String> {
        let drivers = self.decision.drivers.iter();
        let of_node = drivers.filter(|(_, state)| state.unreachable.contains(node));
        of_node.map(|(driver, _)| driver.clone()).collect()
    }

    pub(super) fn announce_evicted(&mut self, node: &str, eviction: &PodEviction) {
        let (namespace, pod) = (&eviction.namespace, &eviction.pod);
        tracing::warn!(
            node,
            namespace,
            pod,
            "a pod is evicted: its node does not reach its storage"
        );
        let note = format!(
            "evicted from node {node}, which does not reach the storage of {}; the next pod follows when this one is replaced",
            eviction.driver
        );
        let of = pod_of(eviction);
        self.announcements.push(Announcement::new(of, "EvictedFromUnreachableStorage", note, true));
    }

    pub(super) fn announce_refused(&mut self, node: &str, eviction: &PodEviction, why: &str) {
        let (namespace, pod) = (&eviction.namespace, &eviction.pod);
        tracing::info!(node, namespace, pod, why, "an eviction is refused");
        let note = format!(
            "node {node} does not reach the storage of {}, and the eviction of the pod is refused: {why}",
            eviction.driver
        );
        let of = pod_of(eviction);
        self.announcements.push(Announcement::new(of, "EvictionRefused", note, true));
    }

    pub(super) fn announce_stuck(&mut self, node: &str, eviction: &PodEviction, what: Waiting) {
        let (namespace, pod) = (&eviction.namespace, &eviction.pod);
        let what_text = what.text();
        tracing::warn!(
            node,
            namespace,
            pod,
            what = what_text,
            "an eviction does not end: no other pod is evicted"
        );
        let advice = match what {
            Waiting::Terminating => {
                "restore its storage, or restart the node: nothing is forced (docs/fleet.md)"
            }
            Waiting::Replacement => "look at the pods of its controller",
            Waiting::Unread => "look at the controller's log",
        };
        let note = format!(
            "the eviction of pod {namespace}/{pod} does not end: {what_text}. No other pod is evicted meanwhile; {advice}"
        );
        for of in [regarding_node(node), pod_of(eviction)] {
            self.announcements.push(Announcement::new(of, "EvictionStuck", note.clone(), true));
        }
    }
}

/// As of a Node, the name stands for the uid.
fn driver_of(driver: &str) -> Regarding {
    regarding("CSIDriver", "", driver, driver)
}

fn clock(time: Timestamp) -> impl std::fmt::Display {
    time.strftime("%H:%M:%S UTC")
}

fn pod_of(eviction: &PodEviction) -> Regarding {
    regarding("Pod", &eviction.namespace, &eviction.pod, &eviction.pod_uid)
}

fn names(nodes: &BTreeSet<String>) -> String {
    let first: Vec<&str> = nodes.iter().take(MAX_NAMES).map(String::as_str).collect();
    match nodes.len().saturating_sub(MAX_NAMES) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
