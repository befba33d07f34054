//! StorageAction and StoragePolicy objects as the controller reads them, and how an action's status
//! changes. Pure.
//!
//! In: what was decided. Out: the status to write. A text that moves while the decision stays the
//! same changes nothing.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::cluster::storage_action::{
    ABORTED, Approval, CONFIRMED, MAX_LINE_LEN, MAX_STEPS, REPLACED, STUCK, StepRecord,
    StorageActionSpec, StorageActionStatus,
};
use crate::cluster::storage_policy::StoragePolicyStatus;
use crate::fleet::model::release::check::PolicyState;
use crate::model::assess::truncate;

/// Finished actions that are kept, and for how long.
const MAX_FINISHED: usize = 200;
const KEEP_FINISHED: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Reason of the condition Confirmed where every gate is free and the approval is valid: this
/// version goes no further.
pub(crate) const NOT_CARRIED_OUT: &str = "NotCarriedOut";
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

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyObject {
    pub uid: String,
    pub resource_version: String,
    pub generation: Option<i64>,
    pub state: PolicyState,
    pub status: StoragePolicyStatus,
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
    let mut finished: Vec<(Timestamp, &ActionObject)> = actions
        .iter()
        .filter_map(|action| Some((action.ended()?, action)))
        .collect();
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
    status.steps.push(StepRecord {
        time: Time(wall),
        text: truncate(text, MAX_LINE_LEN),
    });
    let surplus = status.steps.len().saturating_sub(MAX_STEPS);
    status.steps.drain(..surplus);
}

/// It waits: for a gate, or because this version goes no further.
pub(crate) fn set_waiting(
    status: &mut StorageActionStatus,
    gate: &str,
    reason: &str,
    text: &str,
    wall: Timestamp,
) {
    gate.clone_into(&mut status.blocked_by);
    set_condition(&mut status.conditions, CONFIRMED, false, reason, text, wall);
}

/// What a person runs to carry the action out by hand, in this order.
pub(crate) fn commands(action: &ActionObject) -> String {
    let spec = &action.spec;
    let (namespace, volume) = (&action.namespace, &spec.persistent_volume.name);
    format!(
        "kubectl patch pv {volume} --type=merge -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}' && kubectl delete pvc -n {namespace} {} --wait=false && kubectl delete pod -n {namespace} {}",
        spec.claim.name, spec.pod.name
    )
}
