//! Which step of an action comes next. Each step can be repeated: a step that finds its work done is
//! marked as done. A crash between any two loses nothing, because everything that is remembered
//! stands in the objects.
//!
//! In: the case with its action, and what is read of the objects that the action changes. Out: one
//! step. Up to the deletion of the claim every gate is asked before every step, and everything can
//! be undone. After it nothing can be taken back: the action goes on, or is stuck until a person
//! resolves it. A failed reading is no step forward.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::release::Now;
use crate::model::release::check::{ActionState, Case, Refusal, check};
use crate::model::release::evidence::Reading;
use diskvitals_cluster::gate::{Effect, Gate};
use diskvitals_cluster::node_storage::Health;
use diskvitals_cluster::storage_action::{
    ActionType, Approval, CLAIM_DELETED, CONFIRMED, POD_EVICTED, PREPARED, STUCK,
    StorageActionStatus,
};

/// Reason of the condition PodEvicted after the new pod was evicted as well.
pub(crate) const EVICTED_AGAIN: &str = "EvictedAgain";
/// Reason of the condition of a step that the API server refuses.
pub(crate) const REFUSED: &str = "Refused";

/// What is read of the objects that the action changes, uncached. `None` inside a reading: there is
/// no object of this name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub volume: Reading<Option<VolumeProgress>>,
    pub claim: Reading<Option<ClaimProgress>>,
    pub pod: Reading<Option<PodProgress>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeProgress {
    pub uid: String,
    pub resource_version: String,
    /// `persistentVolumeReclaimPolicy`.
    pub reclaim_policy: String,
    /// Annotation: the action that keeps it.
    pub kept_by: Option<String>,
    /// Annotation: the reclaim policy that it had before.
    pub previous_policy: Option<String>,
}

/// The claim that has the name now: the old one, or its successor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimProgress {
    pub uid: String,
    pub is_terminating: bool,
    /// Empty: not bound.
    pub volume_name: String,
    /// Worst health of the drives below the new volume, as its node reports it now.
    pub drives: Health,
}

/// The pod that has the name now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodProgress {
    pub uid: String,
    pub is_terminating: bool,
    pub is_ready: bool,
    pub is_pending: bool,
    /// By the API server's clock.
    pub created: Option<Timestamp>,
}

/// Durations of the steps.
#[derive(Clone, Copy, Debug)]
pub struct StepLimits {
    /// How long an eviction may be refused.
    pub eviction: Duration,
    /// How long after the eviction the new pod may take.
    pub replacement: Duration,
    /// How long a new pod may wait for a claim that nobody creates (kubernetes issue 83282).
    pub missing_claim: Duration,
}

impl Default for StepLimits {
    fn default() -> StepLimits {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        StepLimits { eviction: minutes(30), replacement: minutes(30), missing_claim: minutes(2) }
    }
}

/// What changes an object of the cluster. After a crash it is repeated, and finds its work done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Set the volume's reclaim policy to Retain, with the annotations.
    KeepVolume { resource_version: String, previous_policy: String },
    /// With the uid as precondition. The point of no return.
    DeleteClaim { uid: String },
    /// By the Eviction API, with the uid as precondition.
    EvictPod { uid: String },
    /// The new pod waits for a claim that nobody creates. Once; then the condition PodEvicted has
    /// the reason `EvictedAgain`.
    EvictAgain { uid: String },
    /// Undo `KeepVolume`.
    RestoreVolume { resource_version: String, policy: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It ended, or its type is unknown.
    Nothing,
    /// Nothing can be done now.
    Wait {
        gate: Option<Gate>,
        text: String,
    },
    /// Set spec.approval to Pending again.
    TakeBackApproval(Refusal),
    /// Ask the node for an answer: nothing else holds the action back.
    Challenge,
    Act(Act),
    /// Set the condition of this name: its step is done.
    MarkConfirmed,
    MarkPrepared,
    MarkClaimDeleted,
    MarkPodEvicted,
    MarkReplaced,
    /// Set the condition Stuck: a person must resolve it.
    MarkStuck(String),
    /// Set the condition Aborted.
    MarkAborted {
        gate: Option<Gate>,
        text: String,
    },
}

impl Step {
    fn wait(text: impl Into<String>) -> Step {
        Step::Wait { gate: None, text: text.into() }
    }
}

pub(crate) fn next(
    case: &Case<'_>,
    action: &ActionState,
    progress: &Progress,
    limits: &StepLimits,
    now: Now,
) -> Step {
    let (spec, status) = (&action.spec, &action.status);
    if status.is_finished() || spec.kind == ActionType::Unknown {
        return Step::Nothing;
    }
    if !status.has(CLAIM_DELETED) {
        return before_deletion(case, action, progress, now);
    }
    let is_stuck = status.has(STUCK);
    // The end of the old pod is marked first, whoever ended it.
    if !status.has(POD_EVICTED) && !is_stuck {
        return evict(action, progress, limits, now.wall);
    }
    if let Some(step) = replaced(action, progress) {
        return step;
    }
    if is_stuck {
        return Step::wait("a person must resolve it");
    }
    wait_for_replacement(action, progress, limits, now.wall)
}

fn before_deletion(case: &Case<'_>, action: &ActionState, progress: &Progress, now: Now) -> Step {
    let (spec, status) = (&action.spec, &action.status);
    if status.has(PREPARED) {
        match progress.claim.as_ref() {
            Err(why) => return Step::wait(format!("the claim could not be read: {why}")),
            // By this action before a crash, or by a person: it cannot be taken back.
            Ok(claim) if is_deleted(claim.as_ref(), &spec.claim.uid) => {
                return Step::MarkClaimDeleted;
            }
            Ok(_) => {}
        }
    }
    if spec.approval == Approval::Rejected {
        return abort(action, progress, None, "a person rejected it".to_owned());
    }
    let refusals = check(case, now);
    let is_final = |refusal: &&Refusal| refusal.effect == Effect::Abort;
    if let Some(refusal) = refusals.iter().find(is_final) {
        return abort(action, progress, Some(refusal.gate), refusal.text.clone());
    }
    let is_invalid =
        |refusal: &&Refusal| matches!(refusal.gate, Gate::EvidenceChanged | Gate::ApprovalExpired);
    if let Some(refusal) = refusals.iter().find(is_invalid) {
        return Step::TakeBackApproval(refusal.clone());
    }
    match refusals.as_slice() {
        [] => {}
        [only] if only.gate == Gate::NoAnswer => return Step::Challenge,
        [first, ..] => {
            return Step::Wait { gate: Some(first.gate), text: first.text.clone() };
        }
    }
    if !status.has(CONFIRMED) {
        return Step::MarkConfirmed;
    }
    prepare(action, progress)
}

fn is_deleted(claim: Option<&ClaimProgress>, uid: &str) -> bool {
    claim.is_none_or(|claim| claim.uid != uid || claim.is_terminating)
}

/// The volume must be kept by this action before the claim is deleted: it is looked at each time.
fn prepare(action: &ActionState, progress: &Progress) -> Step {
    let volume = match own_volume(action, progress) {
        Ok(Some(volume)) => volume,
        Ok(None) => return Step::wait("the volume is another object"),
        Err(why) => return Step::wait(format!("the volume could not be read: {why}")),
    };
    match &volume.kept_by {
        Some(other) if *other != action.full_name() => {
            Step::wait(format!("action {other} keeps the volume"))
        }
        Some(_) if volume.reclaim_policy == "Retain" => {
            if action.status.has(PREPARED) {
                Step::Act(Act::DeleteClaim { uid: action.spec.claim.uid.clone() })
            } else {
                Step::MarkPrepared
            }
        }
        kept_by => Step::Act(Act::KeepVolume {
            resource_version: volume.resource_version.clone(),
            // Where this action has begun, the policy of before stands in the annotation.
            previous_policy: kept_by
                .as_ref()
                .and(volume.previous_policy.clone())
                .unwrap_or_else(|| volume.reclaim_policy.clone()),
        }),
    }
}

fn own_volume<'a>(
    action: &ActionState,
    progress: &'a Progress,
) -> Result<Option<&'a VolumeProgress>, &'a str> {
    let volume = progress.volume.as_ref()?.as_ref();
    Ok(volume.filter(|volume| volume.uid == action.spec.persistent_volume.uid))
}

/// What the action did is undone first.
fn abort(action: &ActionState, progress: &Progress, gate: Option<Gate>, text: String) -> Step {
    let volume = match own_volume(action, progress) {
        Err(why) => return Step::wait(format!("the volume could not be read: {why}")),
        Ok(volume) => volume.filter(|it| it.kept_by.as_ref() == Some(&action.full_name())),
    };
    let Some(volume) = volume else {
        return Step::MarkAborted { gate, text };
    };
    let is_claim_there = match progress.claim.as_ref() {
        Err(why) => return Step::wait(format!("the claim could not be read: {why}")),
        Ok(claim) => !is_deleted(claim.as_ref(), &action.spec.claim.uid),
    };
    // Without its claim, a volume whose policy becomes Delete is wiped. Without the note of the
    // policy of before, keeping is the safe one.
    let before = volume.previous_policy.as_ref().filter(|_| is_claim_there);
    Step::Act(Act::RestoreVolume {
        resource_version: volume.resource_version.clone(),
        policy: before.unwrap_or(&volume.reclaim_policy).clone(),
    })
}

/// Whether a new pod is Ready with a new claim on another volume.
fn replaced(action: &ActionState, progress: &Progress) -> Option<Step> {
    let claim = progress.claim.as_ref().ok()?.as_ref()?;
    let pod = progress.pod.as_ref().ok()?.as_ref()?;
    let spec = &action.spec;
    let is_new_claim = claim.uid != spec.claim.uid && !claim.is_terminating;
    let is_bound =
        !claim.volume_name.is_empty() && claim.volume_name != spec.persistent_volume.name;
    let is_new_pod = pod.uid != spec.pod.uid && !pod.is_terminating && pod.is_ready;
    let is_good = claim.drives == Health::Good;
    (is_new_claim && is_bound && is_new_pod && is_good).then_some(Step::MarkReplaced)
}

fn evict(action: &ActionState, progress: &Progress, limits: &StepLimits, wall: Timestamp) -> Step {
    let pod = match progress.pod.as_ref() {
        Ok(pod) => pod,
        Err(why) => return Step::wait(format!("the pod could not be read: {why}")),
    };
    let old = pod.as_ref().filter(|pod| pod.uid == action.spec.pod.uid && !pod.is_terminating);
    let Some(pod) = old else {
        return Step::MarkPodEvicted;
    };
    if pod.is_ready {
        return Step::MarkStuck(format!(
            "pod {} is Ready although its volume is said to be lost; its claim is being deleted, and volume {} is retained",
            action.spec.pod.name, action.spec.persistent_volume.name
        ));
    }
    // After an outage it is tried first. An answer that is no refusal is recorded nowhere: it gets
    // twice the time.
    let (limit, what) = if was_refused(&action.status) {
        (limits.eviction, "refused")
    } else {
        (limits.eviction * 2, "impossible")
    };
    if has_lasted(&action.status, CLAIM_DELETED, limit, wall) {
        return Step::MarkStuck(format!(
            "the eviction of pod {} has been {what} for {} min",
            action.spec.pod.name,
            limit.as_secs() / 60
        ));
    }
    Step::Act(Act::EvictPod { uid: pod.uid.clone() })
}

fn wait_for_replacement(
    action: &ActionState,
    progress: &Progress,
    limits: &StepLimits,
    wall: Timestamp,
) -> Step {
    let (pod, claim) = match (progress.pod.as_ref(), progress.claim.as_ref()) {
        (Ok(pod), Ok(claim)) => (pod.as_ref(), claim.as_ref()),
        (Err(why), _) => return Step::wait(format!("the pod could not be read: {why}")),
        (_, Err(why)) => return Step::wait(format!("the claim could not be read: {why}")),
    };
    let spec = &action.spec;
    let old_pod = pod.filter(|pod| pod.uid == spec.pod.uid);
    let new_pod = pod.filter(|pod| pod.uid != spec.pod.uid && !pod.is_terminating);
    let new_claim = claim.filter(|claim| claim.uid != spec.claim.uid);
    if let Some(claim) = new_claim
        && !claim.volume_name.is_empty()
        && claim.drives == Health::Bad
    {
        return Step::MarkStuck(format!(
            "the new volume {} is on a drive that is BAD",
            claim.volume_name
        ));
    }
    if has_lasted(&action.status, POD_EVICTED, limits.replacement, wall) {
        return Step::MarkStuck(why_stuck(action, old_pod.is_some(), new_claim, limits));
    }
    if let Some(pod) = new_pod.filter(|pod| pod.is_pending)
        && claim.is_none()
        && !was_evicted_again(&action.status)
        && pod.created.is_some_and(|created| is_older(created, limits.missing_claim, wall))
    {
        return Step::Act(Act::EvictAgain { uid: pod.uid.clone() });
    }
    Step::wait(if old_pod.is_some() {
        format!("pod {} has not ended yet", spec.pod.name)
    } else {
        format!("pod {} is not Ready with a new volume yet", spec.pod.name)
    })
}

fn why_stuck(
    action: &ActionState,
    is_old_pod_there: bool,
    claim: Option<&ClaimProgress>,
    limits: &StepLimits,
) -> String {
    let (spec, minutes) = (&action.spec, limits.replacement.as_secs() / 60);
    if is_old_pod_there {
        return format!(
            "pod {} has not ended for {minutes} min: its processes may hang on the dead drive (state D). Power node {} off, then set the taint node.kubernetes.io/out-of-service",
            spec.pod.name, spec.node.name
        );
    }
    match claim {
        Some(claim) if !claim.volume_name.is_empty() => format!(
            "pod {} has not been Ready on the new volume {} for {minutes} min",
            spec.pod.name, claim.volume_name
        ),
        _ => format!("pod {} has had no new volume for {minutes} min", spec.pod.name),
    }
}

fn was_refused(status: &StorageActionStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|it| it.type_ == POD_EVICTED && it.reason == REFUSED)
}

fn was_evicted_again(status: &StorageActionStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|it| it.type_ == POD_EVICTED && it.reason == EVICTED_AGAIN)
}

fn has_lasted(
    status: &StorageActionStatus,
    condition: &str,
    limit: Duration,
    wall: Timestamp,
) -> bool {
    let mut conditions = status.conditions.iter();
    conditions
        .find(|it| it.type_ == condition && it.status == "True")
        .is_some_and(|it| is_older(it.last_transition_time.0, limit, wall))
}

fn is_older(time: Timestamp, limit: Duration, wall: Timestamp) -> bool {
    Duration::try_from(wall.duration_since(time)).is_ok_and(|age| age >= limit)
}
