//! The duty `shared-drives`: events on nodes that list the same drive at the same time.
//!
//! In: drives with the nodes that list them (`model::shared_drives`). Out: announcements, when that
//! begins, changes and ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::events::Announcement;
use crate::model::View;
use diskvitals_kubernetes::event::{Regarding, regarding_node};

/// Names of nodes by the id of a drive.
pub(crate) type SharedDrives = BTreeMap<String, BTreeSet<String>>;

/// What has changed from `before` to `now`, for each node and its report.
pub(crate) fn announce_shared_drives(
    before: &SharedDrives,
    now: &SharedDrives,
    view: &View,
) -> Vec<Announcement> {
    let raised = now
        .iter()
        .filter(|(id, nodes)| before.get(*id) != Some(nodes))
        .map(|change| (change, true));
    let cleared =
        before.iter().filter(|(id, _)| !now.contains_key(*id)).map(|change| (change, false));
    let mut announcements = Vec::new();
    for ((drive, nodes), holds) in raised.chain(cleared) {
        let list = nodes.iter().cloned().collect::<Vec<_>>().join(", ");
        let (reason, note) = if holds {
            tracing::warn!(drive, nodes = list, "several nodes have the same drive");
            let note = format!(
                "drive {drive} is attached to several nodes: {list}. Two writers destroy its filesystems: detach it from all nodes but one"
            );
            ("SharedDrive", note)
        } else {
            tracing::info!(drive, nodes = list, "the drive is no longer on several nodes");
            let note = format!("drive {drive} is no longer attached to several nodes ({list})");
            ("SharedDriveCleared", note)
        };
        for node in nodes {
            let of_report = view.reports.get(node).map(|report| Regarding {
                kind: "NodeStorage",
                namespace: String::new(),
                name: node.clone(),
                uid: report.uid.clone(),
            });
            let objects = std::iter::once(regarding_node(node)).chain(of_report);
            announcements.extend(objects.map(|regarding| Announcement {
                regarding,
                reason,
                note: note.clone(),
                is_warning: holds,
            }));
        }
    }
    announcements
}
