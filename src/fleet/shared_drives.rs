//! The duty `shared-drives`: events on nodes that list the same drive at the same time.
//!
//! In: drives with the nodes that list them (`model::shared_drives`). Out: announcements, when that
//! begins, changes and ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::duty::{Context, Duty};
use crate::events::{Announcement, regarding};
use crate::model::{Elapsed, Policy};
use crate::timing::Timing;
use diskvitals_kubernetes::event::regarding_node;

#[derive(Default)]
pub(crate) struct SharedDrives {
    policy: Policy,
    /// Names of nodes by the id of a drive.
    announced: BTreeMap<String, BTreeSet<String>>,
    announcements: Vec<Announcement>,
}

impl SharedDrives {
    pub(crate) fn new(timing: &Timing) -> SharedDrives {
        SharedDrives { policy: timing.policy, ..SharedDrives::default() }
    }
}

impl Duty for SharedDrives {
    /// Of what has changed, by the leader, for each node and its report.
    fn observe(&mut self, cx: Context<'_>) {
        if cx.lease_left.is_none() {
            return;
        }
        let shared = cx.view.shared_drives(&self.policy, cx.now.elapsed);
        let raised = shared
            .iter()
            .filter(|(id, nodes)| self.announced.get(*id) != Some(nodes))
            .map(|change| (change, true));
        let cleared = self
            .announced
            .iter()
            .filter(|(id, _)| !shared.contains_key(*id))
            .map(|change| (change, false));
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
                let report = cx.view.reports.get(node);
                let report = report.map(|report| regarding("NodeStorage", "", node, &report.uid));
                let objects = std::iter::once(regarding_node(node)).chain(report);
                self.announcements
                    .extend(objects.map(|of| Announcement::new(of, reason, &*note, holds)));
            }
        }
        self.announced = shared;
    }

    fn reset(&mut self, _now: Elapsed) {
        self.announced.clear();
    }

    fn take_announcements(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements)
    }
}
