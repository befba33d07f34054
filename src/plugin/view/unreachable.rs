//! Drivers whose storage a node does not reach, and pods there that do not end. Pure.

use jiff::Timestamp;
use serde::Serialize;

use crate::objects::PodRecord;
use crate::view::nodes::{NodeView, Report};
use crate::view::{Gap, Read, drives};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnreachableRow {
    pub node: String,
    pub driver: String,
    /// Whether it can be reached is not known.
    pub unknown: bool,
    pub volumes: u32,
    pub since: Option<Timestamp>,
    pub reason: String,
    pub report: Report,
}

/// By node. An entry that is not known is listed too: it was unreachable, or nobody can say.
pub(crate) fn unreachable(nodes: &[NodeView<'_>]) -> Vec<UnreachableRow> {
    let mut rows = Vec::new();
    for node in nodes {
        let listed = node.status.and_then(|it| it.unreachable_drivers.as_ref());
        rows.extend(listed.into_iter().flatten().map(|entry| UnreachableRow {
            node: node.name.to_owned(),
            driver: entry.driver.clone(),
            unknown: entry.unknown,
            volumes: entry.volumes,
            since: entry.since.as_ref().map(|time| time.0),
            reason: entry.reason.clone(),
            report: node.report.clone(),
        }));
    }
    rows
}

/// A pod whose time to end has passed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TerminatingRow {
    pub node: String,
    pub namespace: String,
    pub pod: String,
    /// When it should have ended.
    pub since: Option<Timestamp>,
}

pub(crate) fn terminating(pods: &[PodRecord], now: Timestamp) -> Vec<TerminatingRow> {
    let overdue =
        pods.iter().filter(|pod| pod.deleting.is_some_and(|until| until < now) && !pod.has_ended);
    let mut rows: Vec<TerminatingRow> = overdue
        .map(|pod| TerminatingRow {
            node: pod.node.clone(),
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            since: pod.deleting,
        })
        .collect();
    rows.sort_by(|a, b| (&a.node, &a.namespace, &a.pod).cmp(&(&b.node, &b.namespace, &b.pod)));
    rows
}

/// `pods`: of nodes that do not reach storage.
pub(crate) fn gaps(nodes: &[NodeView<'_>], pods: &Read<Vec<PodRecord>>) -> Vec<Gap> {
    let mut gaps =
        drives::cut(nodes, "unreachable drivers", |status| status.truncated.unreachable_drivers);
    if let Err(why) = pods {
        let why = format!("{why}; whether pods do not end there is not known");
        gaps.push(Gap::new("pods of nodes that do not reach storage", why));
    }
    gaps
}
