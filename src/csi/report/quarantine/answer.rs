//! Whether a node in quarantine is clean, from what the daemon says. Pure.
//!
//! In: the quarantine, the daemon's message. Out: one reason, the first of `CleanReason` that holds, and
//! what is left of each pod.
//! A value that only a newer daemon defines, or a pod that the answer lacks, is not clean.

use std::collections::BTreeMap;

use diskvitals_cluster::node_storage::{
    CleanReason, MAX_MESSAGE_LEN, MAX_REMAINING_VOLUMES, Quarantine, RemainingEntry,
};
use diskvitals_text::echo::truncate;
use diskvitals_wire as wire;
use diskvitals_wire::pod_cleaning::State;

/// Beyond this length further pods are counted only.
const MAX_REASONS_LEN: usize = 800;

/// The daemon's answer to one quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuarantineAnswer {
    pub id: String,
    pub reason: CleanReason,
    pub message: String,
    /// The boot of the kernel that it is about.
    pub boot_id: String,
    pub remaining: Vec<RemainingEntry>,
}

pub(crate) fn answer(quarantine: &Quarantine, cleaning: wire::StaleCleaning) -> QuarantineAnswer {
    let node = cleaning.node.clone().unwrap_or_default();
    let (mut reasons, mut remaining) = (Vec::new(), Vec::new());
    let is_same_boot = quarantine.boot_id.is_empty() || quarantine.boot_id == node.boot_id;
    if quarantine.truncated && is_same_boot {
        let why = "the node had more pods than the quarantine lists";
        reasons.push((CleanReason::Truncated, why.to_owned()));
    }
    if !node.settled {
        let why = "diskvitalsd has just started and has no complete snapshot yet";
        reasons.push((CleanReason::NotSettled, why.to_owned()));
    }
    if !cleaning.unreadable.is_empty() {
        reasons.push((CleanReason::Unreadable, cleaning.unreadable.clone()));
    }
    if node.boot_id.is_empty() {
        let why = "diskvitalsd does not know the kernel's boot id";
        reasons.push((CleanReason::Unreadable, why.to_owned()));
    }
    let pods = cleaning.pods.iter();
    let pods: BTreeMap<&str, &wire::PodCleaning> =
        pods.map(|pod| (pod.pod_uid.as_str(), pod)).collect();
    for uid in &quarantine.pod_uids {
        let (reason, detail) = match pods.get(uid.as_str()) {
            Some(pod) => (reason_of(pod.state()), pod.detail.as_str()),
            None => (CleanReason::NoAnswer, "diskvitalsd says nothing about it"),
        };
        if reason != CleanReason::ProvenClean {
            remaining.push((reason, remaining_entry(reason, uid, detail)));
            // Paths below the kubelet's directory name the pod.
            let why = if detail.contains(uid.as_str()) {
                detail.to_owned()
            } else {
                format!("pod {uid}: {detail}")
            };
            reasons.push((reason, why));
        }
    }
    if let Some(first) = cleaning.left.first() {
        let more = match cleaning.left.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        reasons.push((CleanReason::StaleAttachments, format!("{first}{more}")));
    }
    remaining.extend(cleaning.left.iter().map(|left| {
        let reason = CleanReason::StaleAttachments;
        (reason, remaining_entry(reason, "", left))
    }));
    // Stable: of equal reasons the first.
    reasons.sort_by_key(|(reason, _)| *reason);
    remaining.sort_by_key(|(reason, _)| *reason);
    if !cleaning.unreadable.is_empty() {
        // Nothing is known of any pod: the condition says so once.
        remaining.clear();
    }
    let (reason, message) = match reasons.split_first() {
        None => {
            let pods = quarantine.pod_uids.len();
            let message = format!("nothing of {pods} pods is mounted, published or held");
            (CleanReason::ProvenClean, message)
        }
        Some(((reason, why), others)) => (*reason, all_of(why, others)),
    };
    QuarantineAnswer {
        id: quarantine.id.clone(),
        reason,
        message,
        boot_id: node.boot_id,
        remaining: remaining.into_iter().map(|(_, entry)| entry).collect(),
    }
}

fn remaining_entry(reason: CleanReason, uid: &str, detail: &str) -> RemainingEntry {
    let mut volumes: Vec<String> =
        detail.split_whitespace().filter_map(|word| volume_of(word, uid)).collect();
    volumes.sort();
    volumes.dedup();
    volumes.truncate(MAX_REMAINING_VOLUMES);
    RemainingEntry {
        pod_uid: uid.to_owned(),
        persistent_volumes: volumes,
        reason: reason.name().to_owned(),
        message: truncate(detail, MAX_MESSAGE_LEN),
        ..RemainingEntry::default()
    }
}

/// The PersistentVolume in a path of the kubelet for the pod, or for any if `uid` is empty. What
/// follows in the path is named by its user.
fn volume_of(path: &str, uid: &str) -> Option<String> {
    let is_pod = |part: &str| uid.is_empty() || part == uid;
    let parts: Vec<&str> = path.trim_end_matches([':', ',', ';']).split('/').collect();
    let name = (0..parts.len()).find_map(|at| match &parts[at..] {
        ["pods", pod, "volumes" | "volumeDevices", _, name, ..] if is_pod(pod) => Some(*name),
        ["volumeDevices", "publish", name, pod, ..] if is_pod(pod) => Some(*name),
        _ => None,
    })?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// What is left of each pod, as far as it fits.
fn all_of(first: &str, others: &[(CleanReason, String)]) -> String {
    let mut message = truncate(first, MAX_REASONS_LEN);
    for (at, (reason, why)) in others.iter().enumerate() {
        let next = format!("; {}: {why}", reason.name());
        if message.len() + next.len() > MAX_REASONS_LEN {
            message.push_str(&format!(" (and {} more)", others.len() - at));
            break;
        }
        message.push_str(&next);
    }
    message
}

fn reason_of(state: State) -> CleanReason {
    match state {
        State::Absent | State::Cleaned => CleanReason::ProvenClean,
        State::Cleaning => CleanReason::Cleaning,
        State::Held => CleanReason::Held,
        State::Hung => CleanReason::Hung,
        State::Foreign => CleanReason::Foreign,
        State::Unreadable => CleanReason::Unreadable,
        State::InUse => CleanReason::InUse,
        State::Failed => CleanReason::Failed,
        State::OrdersOff => CleanReason::OrdersOff,
        State::Unspecified => CleanReason::NoAnswer,
    }
}
