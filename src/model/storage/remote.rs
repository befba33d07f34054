//! A driver's volumes whose storage is on the network: whether any of it can be reached from this
//! node. Pure over a snapshot.
//!
//! In: the snapshot, a driver. Out: the fault, or why nothing is known. One volume that answers
//! proves that the node reaches the storage; a volume that does not answer proves nothing about the
//! others.

use crate::assess::MAX_MESSAGE;
use crate::snapshot::{Snapshot, Volume};
use crate::storage::{StorageFault, StorageUnknown, active, disconnect_causes, volumes_of};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Health, UnknownCause};
use diskvitals_text::echo::truncate;

#[derive(Default)]
pub(super) struct RemoteVolumes {
    /// Volumes that do not answer, with the reason of each.
    cut_off: Vec<(Reason, String)>,
    answering: usize,
    /// Volumes of which neither is known, and why the first is not. A volume whose first probe is
    /// outstanding has no reason.
    unknown: usize,
    unknown_why: Option<String>,
}

impl RemoteVolumes {
    pub(super) fn of(snapshot: &Snapshot, driver: &str) -> RemoteVolumes {
        let mut found = RemoteVolumes::default();
        for volume in volumes_of(snapshot, driver).filter(|it| is_remote(snapshot, it)) {
            if let Some(cause) = cause(snapshot, volume) {
                found.cut_off.push(cause);
            } else if volume.health != Health::Unknown {
                found.answering += 1;
            } else {
                found.unknown += 1;
                let is_pending = volume.health_unknown_cause == Some(UnknownCause::Pending);
                if !is_pending && found.unknown_why.is_none() {
                    let (id, why) = (&volume.facts.id, &volume.health_unknown_why);
                    found.unknown_why = Some(format!("volume {id}: {why}"));
                }
            }
        }
        found
    }

    /// No volume answers, as far as is known; also without any volume.
    pub(super) fn are_cut_off(&self) -> bool {
        self.answering == 0
    }

    pub(super) fn is_reached(&self) -> Option<bool> {
        match (self.answering, self.cut_off.len()) {
            (0, 0) => None,
            (answering, _) => Some(answering > 0),
        }
    }

    /// `no_local_drive`: the driver has no drive of this node that is present.
    pub(super) fn fault(&self, no_local_drive: bool) -> Option<StorageFault> {
        let (reason, first) = self.cut_off.first()?;
        let all = self.cut_off.len() + self.answering + self.unknown;
        let message = format!(
            "{} of {all} volumes on the network do not answer: {first}",
            self.cut_off.len()
        );
        Some(StorageFault {
            unreachable: self.are_cut_off() && no_local_drive,
            remote: true,
            reason: *reason,
            message: truncate(&message, MAX_MESSAGE),
        })
    }

    pub(super) fn unknown(&self) -> Option<StorageUnknown> {
        let why = self.unknown_why.clone().filter(|_| self.answering == 0);
        why.map(StorageUnknown)
    }
}

fn is_remote(snapshot: &Snapshot, volume: &Volume) -> bool {
    let mut drives = volume.facts.drive_ids.iter().peekable();
    let is_remote = |id| {
        let drive = snapshot.drives.get(id);
        drive.is_some_and(|drive| drive.facts.transport.is_remote())
    };
    // A filesystem in user space without a drive is a client of something else.
    let is_fuse = volume.facts.drive_ids.is_empty()
        && volume.facts.fs_type.as_deref().is_some_and(|of| of.starts_with("fuse"));
    // A drive that is missing is still listed: its volume stays what it was.
    volume.facts.remote || is_fuse || drives.peek().is_some() && drives.all(is_remote)
}

/// Why a volume certainly does not answer.
fn cause(snapshot: &Snapshot, volume: &Volume) -> Option<(Reason, String)> {
    let id = &volume.facts.id;
    let mut findings = active(snapshot, &volume.findings);
    if let Some(finding) = findings.find(|finding| finding.reason.is_unreachable()) {
        let text = format!("volume {id}: {}: {}", finding.reason, finding.message);
        return Some((finding.reason, text));
    }
    let below = disconnect_causes(snapshot, volume).into_iter().next()?;
    Some((Reason::DriveOffline, format!("volume {id}: {below}")))
}
