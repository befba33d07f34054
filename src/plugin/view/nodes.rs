//! Whether a node reports, and what its report is worth now.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::objects::{NodeRecord, PodRecord, StorageRecord};
use crate::view::Base;
use diskvitals_cluster::current_report::{MAX_AGE, daemon_reachable, is_about, is_answering};
use diskvitals_cluster::node_storage::{Health, NodeStorageStatus, Quarantine, WITHDRAWN};

/// A reporter's pod that is away for so long does not report, however young its last word is.
const REPORTER_GRACE: SignedDuration = SignedDuration::from_mins(10);
/// Clocks of nodes and the API server may differ by so much.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all_fields = "camelCase")]
pub(crate) enum Report {
    /// It says what is so now.
    Current,
    /// What it said last may have changed.
    Silent {
        since: Option<Timestamp>,
        why: String,
    },
    /// It was written for another node that had the same name.
    OtherNode {
        why: String,
    },
    NodeDeleted,
    /// There is no report.
    Never {
        why: String,
    },
}

impl Report {
    /// Of a node that exists.
    pub(crate) fn is_of_a_node(&self) -> bool {
        !matches!(self, Report::OtherNode { .. } | Report::NodeDeleted)
    }

    /// In a few words, for a row; empty: current.
    pub(crate) fn mark(&self) -> &'static str {
        match self {
            Report::Current => "",
            Report::Silent { .. } | Report::Never { .. } => "does not report",
            Report::OtherNode { .. } => "former node",
            Report::NodeDeleted => "node deleted",
        }
    }

    /// For people: why the report does not count, and since when.
    pub(crate) fn why(&self) -> String {
        match self {
            Report::Current => String::new(),
            Report::Silent { why, .. } | Report::OtherNode { why } | Report::Never { why } => {
                why.clone()
            }
            Report::NodeDeleted => "the Node no longer exists".to_owned(),
        }
    }

    pub(crate) fn since(&self) -> Option<Timestamp> {
        match self {
            Report::Silent { since, .. } => *since,
            _ => None,
        }
    }

    /// What a health is worth that the report says: nothing good of one that is not current.
    pub(crate) fn judge(&self, health: Health) -> Health {
        match self {
            Report::Current => health,
            _ if health == Health::Good => Health::Unknown,
            _ => health,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NodeView<'a> {
    pub name: &'a str,
    pub report: Report,
    pub health: Health,
    pub status: Option<&'a NodeStorageStatus>,
    pub quarantine: Option<&'a Quarantine>,
}

/// All nodes that exist or reported, by name.
pub(crate) fn nodes(base: &Base) -> Vec<NodeView<'_>> {
    let existing = base.nodes.as_ref().ok();
    let mut views: BTreeMap<&str, NodeView<'_>> = BTreeMap::new();
    let reporters =
        base.reporters.as_ref().ok().map(|pods| {
            pods.iter().map(|pod| (pod.node.as_str(), pod)).collect::<BTreeMap<_, _>>()
        });
    for record in &base.storages {
        let node = existing.and_then(|nodes| nodes.get(&record.name));
        if base.is_selected && node.is_none() {
            continue;
        }
        let reporter = Reporter::of(reporters.as_ref(), &record.name);
        let node = match &base.nodes {
            Ok(_) => Known::of(node),
            Err(_) => Known::NotRead,
        };
        let report = report(record, node, reporter, base.now);
        let said = record.status.as_ref().map_or(Health::Unknown, NodeStorageStatus::worst_health);
        let health = match report.is_of_a_node() {
            true => report.judge(said),
            false => Health::Unknown,
        };
        views.insert(
            &record.name,
            NodeView {
                name: &record.name,
                health,
                report,
                status: record.status.as_ref(),
                quarantine: record.quarantine.as_ref(),
            },
        );
    }
    for node in existing.into_iter().flat_map(BTreeMap::values) {
        let reporter = Reporter::of(reporters.as_ref(), &node.name);
        views.entry(&node.name).or_insert_with(|| NodeView {
            name: &node.name,
            report: Report::Never {
                why: format!("it has never reported; {}", silence(Known::Is(node), reporter)),
            },
            health: Health::Unknown,
            status: None,
            quarantine: None,
        });
    }
    views.into_values().collect()
}

#[derive(Clone, Copy)]
enum Known<'a> {
    Is(&'a NodeRecord),
    Gone,
    NotRead,
}

impl<'a> Known<'a> {
    fn of(node: Option<&'a NodeRecord>) -> Known<'a> {
        node.map_or(Known::Gone, Known::Is)
    }
}

#[derive(Clone, Copy)]
enum Reporter<'a> {
    Is(&'a PodRecord),
    None,
    NotRead,
}

impl<'a> Reporter<'a> {
    fn of(all: Option<&BTreeMap<&str, &'a PodRecord>>, node: &str) -> Reporter<'a> {
        match all {
            None => Reporter::NotRead,
            Some(all) => all.get(node).map_or(Reporter::None, |pod| Reporter::Is(pod)),
        }
    }
}

fn report(
    record: &StorageRecord,
    node: Known<'_>,
    reporter: Reporter<'_>,
    now: Timestamp,
) -> Report {
    if matches!(node, Known::Gone) {
        return Report::NodeDeleted;
    }
    let unknown = |why: &str| Report::Silent { since: None, why: why.to_owned() };
    if let Some(why) = &record.broken {
        return unknown(&format!("this version cannot read its report: {why}"));
    }
    let Some(status) = &record.status else {
        return Report::Never {
            why: format!("its object has no status; {}", silence(node, reporter)),
        };
    };
    match node {
        Known::Is(_) if status.node_uid.is_empty() => {
            return unknown("the report names no uid of a Node: it may be of another node");
        }
        Known::Is(node) if !is_about(status, &node.uid) => {
            return Report::OtherNode {
                why: format!(
                    "the report is of an earlier node of this name (uid {})",
                    status.node_uid
                ),
            };
        }
        _ => {}
    }
    let Some(reported) = status.reported_at.as_ref().map(|time| time.0) else {
        return unknown("the report has no time");
    };
    let age = now.duration_since(reported);
    if -age > CLOCK_TOLERANCE {
        return unknown(&format!(
            "the report's time is {} ahead of the API server's: a clock is wrong, and whether the report is new is not known",
            span(-age)
        ));
    }
    let silent = |since: Option<Timestamp>, why: String| Report::Silent { since, why };
    match daemon_reachable(status) {
        None => return unknown("the report does not say whether the node's daemon answers"),
        Some(condition) if !is_answering(condition) => {
            let why = match condition.reason.as_str() {
                WITHDRAWN => "diskvitals was withdrawn from it".to_owned(),
                reason => format!("its daemon does not answer ({reason})"),
            };
            return silent(Some(condition.last_transition_time.0), why);
        }
        Some(_) => {}
    }
    let before = |since: Option<Timestamp>| since.is_none_or(|since| reported <= since);
    if let Known::Is(node) = node
        && !node.ready.is_true
        && before(node.ready.since)
    {
        return silent(
            Some(node.ready.since.unwrap_or(reported)),
            silence(Known::Is(node), reporter),
        );
    }
    if let Reporter::Is(pod) = reporter {
        let grace = pod.ready.since.is_none_or(|since| now.duration_since(since) > REPORTER_GRACE);
        if !pod.ready.is_true && grace && before(pod.ready.since) {
            return silent(Some(pod.ready.since.unwrap_or(reported)), silence(node, reporter));
        }
    }
    if age > SignedDuration::try_from(MAX_AGE).unwrap_or(SignedDuration::MAX) {
        return silent(Some(reported), silence(node, reporter));
    }
    Report::Current
}

/// Why a node may be silent, as far as Kubernetes knows.
fn silence(node: Known<'_>, reporter: Reporter<'_>) -> String {
    if let Known::Is(node) = node
        && !node.ready.is_true
    {
        return match node.ready.reason.as_str() {
            "" => format!("the Node is not Ready ({})", node.ready.word),
            reason => format!("the Node is not Ready ({reason})"),
        };
    }
    match reporter {
        Reporter::NotRead => "whether its reporter runs is not known".to_owned(),
        Reporter::None => "no reporter's pod is on it".to_owned(),
        Reporter::Is(pod) if pod.ready.is_true => {
            format!("its reporter's pod {}/{} runs: see its log", pod.namespace, pod.name)
        }
        Reporter::Is(pod) => {
            let reason = match pod.ready.reason.as_str() {
                "" => &pod.ready.word,
                reason => reason,
            };
            format!("its reporter's pod {}/{} is not ready ({reason})", pod.namespace, pod.name)
        }
    }
}

fn span(duration: SignedDuration) -> String {
    diskvitals_terminal::screen::span(duration.unsigned_abs())
}
