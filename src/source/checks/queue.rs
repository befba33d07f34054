//! The queue of checks: one check per filesystem, a limited number per node, the oldest first, and
//! requested checks before scheduled ones. Issues the permits to run a checker.
//!
//! Time is an argument. Runs belong to `task`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::checks::progress::TaskProgress;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::CheckId;
use diskvitals_fscheck::decision::CheckOutcome;
use diskvitals_fscheck::{
    Cancellation, CheckTarget, CheckVerdict, DesiredCheck, FilesystemSignal, Mode,
};

/// How often the load is sampled for a scheduled check, and for how long it waits for a quiet node.
pub(crate) const LOAD_INTERVAL: Duration = Duration::from_secs(60);
const MAX_BUSY_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Whether the load allows a scheduled check to start.
#[derive(Clone, Debug)]
pub enum LoadGate {
    Unsampled,
    Sampling,
    Quiet { until: Instant },
    Busy { retry_at: Instant, why: String },
}

/// The right to run a checker. Only the queue issues it; dropping it returns it.
#[derive(Debug)]
pub struct Permit(#[expect(dead_code, reason = "counted, not read")] Arc<()>);

/// An active check that has returned its permit requests another.
pub type PermitRequest = (CheckId, oneshot::Sender<Permit>);

/// The permit of an active check, from the view of the queue.
pub enum PermitState {
    Requested(oneshot::Sender<Permit>),
    /// Dropped by the check when `strong_count` is 0.
    Issued(Weak<()>),
}

impl PermitState {
    pub fn issue() -> (Permit, PermitState) {
        let permit = Arc::new(());
        let issued = PermitState::Issued(Arc::downgrade(&permit));
        (Permit(permit), issued)
    }

    /// A requester that was cancelled does not receive the permit, which is dropped with the reply.
    fn grant(&mut self) {
        let (permit, issued) = PermitState::issue();
        if let PermitState::Requested(reply) = std::mem::replace(self, issued) {
            let _ = reply.send(permit);
        }
    }
}

pub enum Stage {
    Queued {
        gate: LoadGate,
        busy_since: Option<Instant>,
    },
    Active {
        permit: PermitState,
        signals: watch::Sender<Vec<FilesystemSignal>>,
        cancel: CancellationToken,
    },
}

/// A queued or active check.
pub struct UnfinishedCheck {
    pub desired: DesiredCheck,
    /// Position in the owner's list, which is ordered by age.
    pub position: usize,
    pub stage: Stage,
    /// Why it was cancelled.
    cancellation: Option<Cancellation>,
    /// The last progress reported to the owner, and when.
    pub last_reported: Option<TaskProgress>,
    pub last_reported_at: Instant,
}

impl UnfinishedCheck {
    pub fn new(desired: DesiredCheck, position: usize, at: Instant) -> UnfinishedCheck {
        UnfinishedCheck {
            desired,
            position,
            stage: Stage::Queued { gate: LoadGate::Unsampled, busy_since: None },
            cancellation: None,
            last_reported: None,
            last_reported_at: at,
        }
    }

    /// Requested checks first, each kind by age.
    fn priority(&self) -> (bool, usize) {
        (self.desired.scheduled, self.position)
    }

    pub fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Active { .. })
    }

    /// Sets the reason of the cancellation; the first reason is kept.
    pub fn cancel(&mut self, reason: Cancellation) {
        self.cancellation.get_or_insert(reason);
        if let Stage::Active { cancel, .. } = &self.stage {
            cancel.cancel();
        }
    }

    pub(crate) fn cancelled_outcome(&self) -> CheckOutcome {
        // Only the end of the source cancels without a reason.
        let reason = self.cancellation.as_ref().map_or_else(
            || "the daemon ends".to_owned(),
            |cancellation| cancellation.reason.clone(),
        );
        CheckOutcome { verdict: CheckVerdict::Inconclusive, reason, mode: self.desired.target.mode }
    }

    fn has_permit(&self) -> bool {
        matches!(&self.stage, Stage::Active { permit: PermitState::Issued(permit), .. } if permit.strong_count() > 0)
    }

    fn wants_permit(&self) -> bool {
        matches!(self.stage, Stage::Active { permit: PermitState::Requested(_), .. })
    }
}

/// All block devices of the filesystem: two checks of the same filesystem share one of them.
pub fn devices_of(target: &CheckTarget) -> BTreeSet<DevNo> {
    target.members.iter().map(|(_, dev)| *dev).chain([target.dev]).collect()
}

fn share_devices(one: &CheckTarget, other: &CheckTarget) -> bool {
    !devices_of(one).is_disjoint(&devices_of(other))
}

/// A checker that cannot be killed. Until it exits, its filesystem is not checked again.
pub struct StuckChecker {
    pub devices: BTreeSet<DevNo>,
    pub waiting_in: Option<String>,
    pub since: jiff::Timestamp,
}

/// The next action of the source.
#[derive(Debug, PartialEq, Eq)]
pub enum QueueAction {
    Start(CheckId),
    /// To an active check that requested one.
    GrantPermit(CheckId),
    /// Measure whether the node is quiet enough for this check.
    SampleLoad(CheckId),
}

#[derive(Default)]
pub struct Queue {
    pub checks: BTreeMap<CheckId, UnfinishedCheck>,
    /// Ended, but still in the owner's list.
    pub finished: BTreeSet<CheckId>,
    pub stuck: BTreeMap<u64, StuckChecker>,
}

impl Queue {
    fn by_priority(&self) -> Vec<(&CheckId, &UnfinishedCheck)> {
        let mut order: Vec<_> = self.checks.iter().collect();
        order.sort_by_key(|(id, check)| (check.priority(), *id));
        order
    }

    /// An active check of the same filesystem.
    fn conflicting_check(&self, id: &CheckId, target: &CheckTarget) -> Option<&CheckId> {
        self.checks
            .iter()
            .find(|(other, check)| {
                *other != id && check.is_active() && share_devices(&check.desired.target, target)
            })
            .map(|(id, _)| id)
    }

    /// The first action that is due; called again after each. At most `at_once` checks hold a
    /// permit.
    pub(crate) fn next_action(&self, at_once: usize, at: Instant) -> Option<QueueAction> {
        let mut free = at_once
            .max(1)
            .saturating_sub(self.checks.values().filter(|check| check.has_permit()).count());
        for (id, check) in self.by_priority() {
            if free == 0 {
                return None;
            }
            let Stage::Queued { gate, .. } = &check.stage else {
                if check.wants_permit() {
                    return Some(QueueAction::GrantPermit(id.clone()));
                }
                continue;
            };
            if check.desired.blocked_by.is_some()
                || self.conflicting_check(id, &check.desired.target).is_some()
            {
                continue;
            }
            match gate {
                _ if !check.desired.scheduled => return Some(QueueAction::Start(id.clone())),
                LoadGate::Quiet { until } if at < *until => {
                    return Some(QueueAction::Start(id.clone()));
                }
                LoadGate::Busy { retry_at, .. } if at < *retry_at => {}
                // A check keeps its place while the load is sampled: no later check starts before
                // it.
                LoadGate::Sampling => free -= 1,
                LoadGate::Unsampled | LoadGate::Quiet { .. } | LoadGate::Busy { .. } => {
                    return Some(QueueAction::SampleLoad(id.clone()));
                }
            }
        }
        None
    }

    pub(crate) fn request_permit(&mut self, (id, reply): PermitRequest) {
        if let Some(permit) = self.permit_of(&id) {
            *permit = PermitState::Requested(reply);
        }
    }

    pub(crate) fn grant_permit(&mut self, id: &CheckId) {
        if let Some(permit) = self.permit_of(id) {
            permit.grant();
        }
    }

    fn permit_of(&mut self, id: &CheckId) -> Option<&mut PermitState> {
        match &mut self.checks.get_mut(id)?.stage {
            Stage::Active { permit, .. } => Some(permit),
            Stage::Queued { .. } => None,
        }
    }

    /// When the load of a busy node is next sampled. Overdue samples wait for another event.
    pub(crate) fn next_load_sample(&self, at: Instant) -> Option<Instant> {
        let again = self.checks.values().filter_map(|check| match &check.stage {
            Stage::Queued { gate: LoadGate::Busy { retry_at, .. }, .. } => Some(*retry_at),
            Stage::Queued { .. } | Stage::Active { .. } => None,
        });
        again.filter(|again| *again > at).min()
    }

    /// Why a queued check has not started.
    pub(crate) fn queued_reason(
        &self,
        id: &CheckId,
        check: &UnfinishedCheck,
        begun: bool,
    ) -> String {
        if !begun {
            return "the checkers, and what a daemon before may have left behind, are looked for first".to_owned();
        }
        if let Some(hold) = &check.desired.blocked_by {
            return hold.clone();
        }
        if let Some(other) = self.conflicting_check(id, &check.desired.target) {
            return format!("the check {other} of this filesystem goes on");
        }
        match &check.stage {
            Stage::Queued { gate: LoadGate::Busy { why, .. }, .. } => why.clone(),
            Stage::Queued { gate: LoadGate::Sampling, .. } => {
                "it looks how busy the node is".to_owned()
            }
            Stage::Queued { .. } | Stage::Active { .. } => {
                "it waits for its turn: other checks go on".to_owned()
            }
        }
    }

    /// Applies a load sample; `why`: the node is too busy. The error is the outcome of a check that
    /// has waited for too long.
    pub(crate) fn apply_load(
        &mut self,
        id: &CheckId,
        why: Option<String>,
        at: Instant,
    ) -> Result<(), CheckOutcome> {
        let Some(UnfinishedCheck { stage: Stage::Queued { gate, busy_since }, desired, .. }) =
            self.checks.get_mut(id)
        else {
            return Ok(());
        };
        let Some(why) = why else {
            let until = at + LOAD_INTERVAL;
            (*gate, *busy_since) = (LoadGate::Quiet { until }, None);
            return Ok(());
        };
        let since = *busy_since.get_or_insert(at);
        if at.saturating_duration_since(since) >= MAX_BUSY_WAIT {
            let reason = format!("skipped: for 24 h it could not begin, at last since {why}");
            return Err(CheckOutcome {
                verdict: CheckVerdict::Inconclusive,
                reason,
                mode: desired.target.mode,
            });
        }
        *gate = LoadGate::Busy { retry_at: at + LOAD_INTERVAL, why };
        Ok(())
    }

    /// The outcome of a check whose filesystem has a stuck checker.
    pub(crate) fn stuck_outcome(&self, target: &CheckTarget) -> Option<CheckOutcome> {
        let mine = devices_of(target);
        let stuck = self.stuck.values().find(|stuck| !stuck.devices.is_disjoint(&mine))?;
        let place = in_parentheses(stuck.waiting_in.as_deref());
        let reason = format!(
            "a checker has hung on this filesystem since {:.0} and cannot be killed{place}: the device does not answer, and until it does nothing else checks it",
            stuck.since
        );
        Some(failed_outcome(reason, target.mode))
    }
}

pub fn failed_outcome(reason: String, mode: Mode) -> CheckOutcome {
    CheckOutcome { verdict: CheckVerdict::Failed, reason, mode }
}

/// The kernel function in which a process waits, in parentheses, for a message.
pub(crate) fn in_parentheses(place: Option<&str>) -> String {
    place.map_or_else(String::new, |place| format!(" ({place})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_fscheck::Filesystem;

    #[test]
    fn checks_of_a_btrfs_share_all_of_its_members() {
        let mut target = crate::checks::tests::fake::target("sda1", Filesystem::Btrfs);
        target.members = vec![("sdb1".to_owned(), DevNo::new(8, 17))];
        let mut other = crate::checks::tests::fake::target("sdb1", Filesystem::Btrfs);
        other.dev = DevNo::new(8, 17);
        assert!(share_devices(&target, &other));
        other.dev = DevNo::new(8, 33);
        assert!(!share_devices(&target, &other));
    }
}
