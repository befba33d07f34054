//! Nodes that are not proven to be free of what deleted pods had there: nodes in quarantine, and those
//! whose `AttachmentsClean` is not True. What is left, and who else uses it. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::view::claims::{Named, users, volume_of};
use crate::view::nodes::{NodeView, Report};
use crate::view::{Gap, drives};
use diskvitals_cluster::node_storage::{ATTACHMENTS_CLEAN, CleanReason, RemainingEntry};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Clean {
    Yes,
    /// Nobody says so.
    Unknown,
    No,
}

/// Clean only by a current report, and not while the controller waits for a proof.
pub(crate) fn clean(node: &NodeView<'_>) -> Clean {
    let status = node.status.filter(|_| node.report.is_of_a_node());
    let word = condition(node).map(|it| it.status.as_str());
    match (word, status) {
        _ if node.quarantine.is_some() => Clean::No,
        (Some("False"), _) => Clean::No,
        (_, Some(status)) if !status.stale.is_empty() || !status.remaining.is_empty() => Clean::No,
        (Some("True"), _) if node.report == Report::Current => Clean::Yes,
        _ => Clean::Unknown,
    }
}

fn condition<'a>(node: &NodeView<'a>) -> Option<&'a Condition> {
    let status = node.status.filter(|_| node.report.is_of_a_node())?;
    status.conditions.iter().find(|it| it.type_ == ATTACHMENTS_CLEAN)
}

/// A PersistentVolume as people call it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeUse {
    pub volume: String,
    /// `namespace/name`; empty: not known.
    pub claim: String,
    /// Pods that run with it on other nodes, of a volume that is for one writer.
    pub used_by: Vec<String>,
}

pub(crate) fn volume_use(
    named: &Named,
    (driver, handle, name): (&str, &str, &str),
    node: &str,
) -> VolumeUse {
    let volumes = named.volumes.as_ref().ok();
    let record = volumes.and_then(|volumes| volume_of(driver, handle, name, volumes));
    let volume = if name.is_empty() { handle } else { name }.to_owned();
    let Some((record, claim)) = record.and_then(|it| Some((it, it.claim.as_ref()?))) else {
        return VolumeUse { volume, ..VolumeUse::default() };
    };
    let is_shared =
        record.access_modes.iter().any(|it| it == "ReadWriteMany" || it == "ReadOnlyMany");
    let pods = named.pods.get(&claim.namespace).and_then(|pods| pods.as_ref().ok());
    let pods = pods.map(Vec::as_slice).filter(|_| !is_shared).unwrap_or_default();
    let elsewhere = users(pods, &claim.name)
        .filter(|pod| pod.node != node && !pod.node.is_empty() && pod.ready.word == "Running");
    VolumeUse {
        volume: record.name.clone(),
        claim: format!("{}/{}", claim.namespace, claim.name),
        used_by: elsewhere
            .map(|pod| format!("{}/{} on {}", pod.namespace, pod.name, pod.node))
            .collect(),
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UncleanRow {
    pub node: String,
    pub clean: Clean,
    pub is_in_quarantine: bool,
    pub since: Option<Timestamp>,
    /// As in docs/fleet.md.
    pub reason: String,
    /// `namespace/name`, if it is known.
    pub pod: String,
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    pub volumes: Vec<VolumeUse>,
    /// Which mount, process or record.
    pub message: String,
    pub advice: &'static str,
    pub report: Report,
}

impl UncleanRow {
    pub(crate) fn used_by(&self) -> impl Iterator<Item = &String> {
        self.volumes.iter().flat_map(|it| &it.used_by)
    }

    /// A process here can write to what a pod elsewhere uses.
    pub(crate) fn is_second_writer(&self) -> bool {
        let may_write = [CleanReason::Held, CleanReason::Hung].map(CleanReason::name);
        may_write.contains(&self.reason.as_str()) && self.used_by().next().is_some()
    }
}

/// One row for each thing that is left, or for the node. Without the stale mounts and the silent
/// nodes, which have lists of their own.
pub(crate) fn unclean(nodes: &[NodeView<'_>], named: &Named) -> Vec<UncleanRow> {
    let mut rows = Vec::new();
    for node in nodes {
        let state = clean(node);
        let stale = node.status.map(|it| it.stale.as_slice()).unwrap_or_default();
        let remaining = remaining(node);
        let is_listed = match node.quarantine {
            None if remaining.is_empty() => node.report != Report::Current || !stale.is_empty(),
            _ => false,
        };
        if state == Clean::Yes || is_listed {
            continue;
        }
        rows.extend(remaining.iter().map(|entry| left(node, entry, named)));
        if remaining.is_empty() {
            rows.push(whole(node, state));
        }
    }
    rows.sort_by(|a, b| {
        let key = |row: &UncleanRow| {
            (!row.is_second_writer(), std::cmp::Reverse(row.clean), row.node.clone())
        };
        key(a).cmp(&key(b))
    });
    rows
}

/// What the node has said is left of the pods of its quarantine.
pub(crate) fn remaining<'a>(node: &NodeView<'a>) -> &'a [RemainingEntry] {
    node.status.map(|it| it.remaining.as_slice()).unwrap_or_default()
}

fn left(node: &NodeView<'_>, entry: &RemainingEntry, named: &Named) -> UncleanRow {
    let volumes = entry.persistent_volumes.iter();
    let reasons = CleanReason::ALL.into_iter();
    let reason = reasons.into_iter().find(|it| it.name() == entry.reason);
    UncleanRow {
        reason: entry.reason.clone(),
        pod: pod_name(entry),
        pod_uid: entry.pod_uid.clone(),
        volumes: volumes.map(|name| volume_use(named, ("", "", name), node.name)).collect(),
        message: entry.message.clone(),
        advice: reason.map(CleanReason::advice).unwrap_or_default(),
        ..whole(node, Clean::No)
    }
}

pub(crate) fn pod_name(entry: &RemainingEntry) -> String {
    match entry.pod.as_str() {
        "" => String::new(),
        pod => format!("{}/{pod}", entry.namespace),
    }
}

/// The node's answer as a whole.
fn whole(node: &NodeView<'_>, state: Clean) -> UncleanRow {
    let (reason, message) = word(node);
    let since = node.quarantine.map(|it| it.since.as_ref());
    let since = since.unwrap_or_else(|| condition(node).map(|it| &it.last_transition_time));
    UncleanRow {
        node: node.name.to_owned(),
        clean: state,
        is_in_quarantine: node.quarantine.is_some(),
        since: since.map(|time| time.0),
        reason,
        pod: String::new(),
        pod_uid: String::new(),
        volumes: Vec::new(),
        message,
        advice: "",
        report: node.report.clone(),
    }
}

/// Reason and message of the condition, as far as it is about the present question.
pub(crate) fn word(node: &NodeView<'_>) -> (String, String) {
    let no_answer = |why: &str| (CleanReason::NoAnswer.name().to_owned(), why.to_owned());
    let Some(condition) = condition(node) else {
        let why = "the node does not say whether mounts of deleted pods are left";
        return no_answer(why);
    };
    let observed = node.status.map(|it| it.observed_quarantine.as_str()).unwrap_or_default();
    if condition.status == "True" && node.quarantine.is_some_and(|it| it.id != observed) {
        return no_answer("the node has not answered this quarantine");
    }
    (condition.reason.clone(), condition.message.clone())
}

pub(crate) fn gaps(nodes: &[NodeView<'_>]) -> Vec<Gap> {
    drives::cut(nodes, "what is left of pods", |status| status.truncated.remaining)
}

/// The text with the volumes' names for the kubelet's paths of them.
pub(crate) fn without_paths(text: &str, volumes: &[VolumeUse]) -> String {
    let words = text.split(' ').map(|word| without_path(word, volumes).unwrap_or(word.to_owned()));
    words.collect::<Vec<_>>().join(" ")
}

fn without_path(word: &str, volumes: &[VolumeUse]) -> Option<String> {
    if !word.contains("/pods/") && !word.contains("/plugins/kubernetes.io/csi/") {
        return None;
    }
    let name = |it: &VolumeUse| match it.claim.as_str() {
        "" => it.volume.clone(),
        claim => claim.to_owned(),
    };
    let end = word.trim_end_matches([':', ',', ';']);
    let mark = &word[end.len()..];
    if let [only] = volumes
        && let Some((_, below)) = end.split_once("/globalmount")
    {
        return Some(format!("{}{below}{mark}", name(only)));
    }
    volumes.iter().find_map(|it| {
        let (_, below) = end.split_once(&format!("/{}", it.volume))?;
        let is_name = below.is_empty() || below.starts_with('/');
        let below = below.strip_prefix("/mount").unwrap_or(below);
        is_name.then(|| format!("{}{below}{mark}", name(it)))
    })
}
