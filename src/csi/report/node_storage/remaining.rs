//! What is left of the pods of the node's quarantine.
//!
//! In: the daemon's answer, its snapshot, and what was written last. Out: an entry for each pod, with the
//! names that the snapshot has.

use crate::report::node_snapshot::NodeSnapshot;
use crate::report::node_storage::{Context, MAX_NAME_LEN, truncated};
use crate::report::quarantine::QuarantineState;
use diskvitals_cluster::node_storage::{MAX_REMAINING_VOLUMES, RemainingEntry};

/// The entries, and whether the list is cut. Without an answer the last one counts.
pub(super) fn remaining(
    snapshot: &NodeSnapshot,
    context: &Context<'_>,
) -> (Vec<RemainingEntry>, bool) {
    match context.quarantine {
        QuarantineState::Disabled | QuarantineState::Absent => (Vec::new(), false),
        QuarantineState::Answered(answer) if answer.boot_id == snapshot.node.boot_id => {
            let stale = snapshot.stale.as_deref().unwrap_or_default();
            let is_listed = |entry: &RemainingEntry| {
                let mut stale = stale.iter();
                entry.pod_uid.is_empty()
                    && stale.any(|it| entry.message.starts_with(&format!("{}: ", it.path)))
            };
            let entries = answer.remaining.iter().filter(|entry| !is_listed(entry));
            (entries.map(|entry| with_names(entry, snapshot)).collect(), false)
        }
        QuarantineState::Answered(_) | QuarantineState::NoAnswer(_) | QuarantineState::Unknown => {
            let last = context.last.map(|last| (last.remaining.clone(), last.truncated.remaining));
            last.unwrap_or_default()
        }
    }
}

/// The pod and its volumes, as far as the snapshot has them.
fn with_names(entry: &RemainingEntry, snapshot: &NodeSnapshot) -> RemainingEntry {
    let mut entry = entry.clone();
    for volume in snapshot.volumes.values() {
        let mut pods = volume.pods.iter();
        let Some(pod) = pods.find(|pod| !pod.uid.is_empty() && pod.uid == entry.pod_uid) else {
            continue;
        };
        entry.namespace = truncated(&pod.namespace, MAX_NAME_LEN);
        entry.pod = truncated(&pod.name, MAX_NAME_LEN);
        let pv = &volume.identity.pv;
        let is_new = !pv.is_empty() && !entry.persistent_volumes.contains(pv);
        if is_new && entry.persistent_volumes.len() < MAX_REMAINING_VOLUMES {
            entry.persistent_volumes.push(pv.clone());
        }
    }
    entry
}
