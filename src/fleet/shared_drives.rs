//! The duty `shared-drives`: events on nodes that list the same drive at the same time.
//!
//! In: drives with the nodes that list them (`model::shared_drives`). Out: announcements, when that
//! begins, changes and ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::duty::{Context, Duty};
use crate::events::{Announcement, regarding};
use crate::model::{Elapsed, Policy, View};
use crate::timing::Timing;
use diskvitals_kubernetes::event::regarding_node;

#[derive(Default)]
pub(crate) struct SharedDrives {
    policy: Policy,
    announced: NodesByDrive,
    announcements: Vec<Announcement>,
}

impl SharedDrives {
    pub(crate) fn new(timing: &Timing) -> SharedDrives {
        SharedDrives { policy: timing.policy, ..SharedDrives::default() }
    }
}

impl Duty for SharedDrives {
    fn observe(&mut self, cx: Context<'_>) {
        if cx.lease_left.is_some() {
            let shared = cx.view.shared_drives(&self.policy, cx.now.elapsed);
            self.announcements.extend(announce(&self.announced, &shared, cx.view));
            self.announced = shared;
        }
    }

    fn reset(&mut self, _now: Elapsed) {
        self.announced.clear();
    }

    fn take_announcements(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements)
    }
}

/// Names of nodes by the id of a drive.
type NodesByDrive = BTreeMap<String, BTreeSet<String>>;

/// What has changed from `before` to `now`, for each node and its report.
fn announce(before: &NodesByDrive, now: &NodesByDrive, view: &View) -> Vec<Announcement> {
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
            let report = view.reports.get(node);
            let report = report.map(|report| regarding("NodeStorage", "", node, &report.uid));
            let objects = std::iter::once(regarding_node(node)).chain(report);
            announcements.extend(objects.map(|of| Announcement::new(of, reason, &*note, holds)));
        }
    }
    announcements
}
