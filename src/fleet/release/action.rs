//! StorageAction objects as the controller reads them, and how their status changes. Pure.
//!
//! In: what was decided. Out: the status to write. A text that moves while the decision stays the
//! same changes nothing.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::model::release::steps::Act;
use crate::model::release::{POLICY_ANNOTATION, VOLUME_ANNOTATION};
use diskvitals_cluster::storage_action::{
    ABORTED, Approval, CLAIM_DELETED, CONFIRMED, MAX_LINE_LEN, MAX_STEPS, POD_EVICTED, PREPARED,
    REPLACED, STUCK, StepRecord, StorageActionSpec, StorageActionStatus,
};
use diskvitals_text::echo::truncate;

/// Finished actions that are kept, and for how long.
const MAX_FINISHED: usize = 200;
const KEEP_FINISHED: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The step after the object was created.
pub(crate) const PROPOSED: &str = "Proposed";

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ActionObject {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: Option<i64>,
    pub spec: StorageActionSpec,
    pub status: StorageActionStatus,
}

/// All actions of one consistent read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ActionList {
    /// Of the API server's store. None: not a number.
    pub revision: Option<u64>,
    pub actions: Vec<ActionObject>,
}

impl ActionObject {
    /// One value of the metric's label `state`.
    pub(crate) fn state(&self) -> ActionStateName {
        let status = &self.status;
        if status.has(REPLACED) {
            ActionStateName::Replaced
        } else if status.has(ABORTED) {
            ActionStateName::Aborted
        } else if status.has(STUCK) {
            ActionStateName::Stuck
        } else {
            match self.spec.approval {
                Approval::Pending => ActionStateName::Pending,
                Approval::Approved => ActionStateName::Approved,
                Approval::Rejected => ActionStateName::Rejected,
            }
        }
    }

    fn ended(&self) -> Option<Timestamp> {
        let mut conditions = self.status.conditions.iter();
        conditions
            .find(|it| [REPLACED, ABORTED].contains(&it.type_.as_str()) && it.status == "True")
            .map(|it| it.last_transition_time.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ActionStateName {
    Pending,
    Approved,
    Rejected,
    Stuck,
    Aborted,
    Replaced,
}

impl ActionStateName {
    pub(crate) const ALL: [ActionStateName; 6] = [
        ActionStateName::Pending,
        ActionStateName::Approved,
        ActionStateName::Rejected,
        ActionStateName::Stuck,
        ActionStateName::Aborted,
        ActionStateName::Replaced,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            ActionStateName::Pending => "pending",
            ActionStateName::Approved => "approved",
            ActionStateName::Rejected => "rejected",
            ActionStateName::Stuck => "stuck",
            ActionStateName::Aborted => "aborted",
            ActionStateName::Replaced => "replaced",
        }
    }
}

/// Finished actions that are kept no longer.
pub(crate) fn outdated(actions: &[ActionObject], wall: Timestamp) -> Vec<&ActionObject> {
    let mut finished: Vec<(Timestamp, &ActionObject)> =
        actions.iter().filter_map(|action| Some((action.ended()?, action))).collect();
    finished.sort_by_key(|(ended, _)| std::cmp::Reverse(*ended));
    let is_kept = |(at, (ended, _)): &(usize, (Timestamp, &ActionObject))| {
        *at < MAX_FINISHED && wall.duration_since(*ended) < KEEP_FINISHED
    };
    let outdated = finished.into_iter().enumerate().filter(|it| !is_kept(it));
    outdated.map(|(_, (_, action))| action).collect()
}

/// Sets a condition. Its time, and the text of an unchanged reason, stay.
pub(crate) fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    holds: bool,
    reason: &str,
    message: &str,
    wall: Timestamp,
) {
    let status = if holds { "True" } else { "False" };
    let known = conditions.iter_mut().find(|it| it.type_ == type_);
    let Some(known) = known else {
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(wall),
            observed_generation: None,
        });
        return;
    };
    if known.status != status {
        known.last_transition_time = Time(wall);
    }
    if known.status != status || known.reason != reason {
        status.clone_into(&mut known.status);
        reason.clone_into(&mut known.reason);
        message.clone_into(&mut known.message);
    }
}

/// Adds a line to the audit, and drops the oldest beyond the limit.
pub(crate) fn add_step(status: &mut StorageActionStatus, text: &str, wall: Timestamp) {
    status.steps.push(StepRecord { time: Time(wall), text: truncate(text, MAX_LINE_LEN) });
    let surplus = status.steps.len().saturating_sub(MAX_STEPS);
    status.steps.drain(..surplus);
}

/// It waits: the condition of the next step is False, with the reason. A text without a gate is
/// kept up to date.
pub(crate) fn set_waiting(
    status: &mut StorageActionStatus,
    gate: &str,
    reason: &str,
    text: &str,
    wall: Timestamp,
) {
    gate.clone_into(&mut status.blocked_by);
    let steps = [PREPARED, CLAIM_DELETED, POD_EVICTED];
    let done = steps.iter().rposition(|step| status.has(step));
    let next = match done {
        None => CONFIRMED,
        Some(0) => CLAIM_DELETED,
        Some(1) => POD_EVICTED,
        Some(_) => REPLACED,
    };
    let conditions = &mut status.conditions;
    set_condition(conditions, next, false, reason, text, wall);
    let moved = conditions.iter_mut().find(|it| it.type_ == next && gate.is_empty());
    if let Some(condition) = moved {
        text.clone_into(&mut condition.message);
    }
}

/// What a person runs to carry the action out by hand, in this order. `next`: the step that it is at,
/// where earlier ones were carried out.
pub(crate) fn commands(action: &ActionObject, next: Option<&Act>) -> String {
    let spec = &action.spec;
    let (namespace, volume) = (&action.namespace, &spec.persistent_volume.name);
    let (claim, pod) = (&spec.claim.name, &spec.pod.name);
    let patch = |policy: &str| {
        format!(
            "kubectl patch pv {volume} --type=merge -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"{policy}\"}}}}'"
        )
    };
    let delete_claim = format!("kubectl delete pvc -n {namespace} {claim} --wait=false");
    let delete_pod = format!("kubectl delete pod -n {namespace} {pod}");
    match next {
        Some(Act::RestoreVolume { policy, .. }) => format!(
            "{} && kubectl annotate pv {volume} {VOLUME_ANNOTATION}- {POLICY_ANNOTATION}-",
            patch(policy)
        ),
        Some(Act::EvictPod { .. } | Act::EvictAgain { .. }) => delete_pod,
        Some(Act::DeleteClaim { .. }) => format!("{delete_claim} && {delete_pod}"),
        Some(Act::KeepVolume { .. }) | None => {
            format!("{} && {delete_claim} && {delete_pod}", patch("Retain"))
        }
    }
}
