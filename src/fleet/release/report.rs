//! What people read: the status of policies, and events. Pure.
//!
//! In: decisions. Out: a policy's status where it differs, and one event for each change.

use crate::duty::Context;
use crate::events::{Announcement, regarding, regarding_claim};
use crate::model::Claim;
use crate::model::release::breaker::BreakerState;
use crate::model::release::candidate::Candidate;
use crate::model::release::check::{PolicyObject, PolicyState, Refusal};
use crate::model::release::proposal::{Proposal, tally};
use crate::model::release::steps::Progress;
use crate::release::action::{ActionObject, set_condition};
use crate::release::decide::claim_of;
use crate::release::{Engine, Job};
use diskvitals_cluster::storage_action::{
    CLAIM_DELETED, ObjectRef, POD_EVICTED, PREPARED, REPLACED,
};
use diskvitals_cluster::storage_policy::{BREAKER_OPEN, Mode, READY, StoragePolicyStatus};
use diskvitals_kubernetes::event::{Regarding, regarding_node};

impl Engine {
    /// Of each policy whose status differs. Only a complete round has the numbers.
    pub(super) fn write_policies(&mut self, cx: Context<'_>) {
        let by_policy = self.by_policy();
        let mut jobs = Vec::new();
        for (name, policy) in &cx.view.policies {
            let checked = by_policy.get(name.as_str()).into_iter().flatten();
            let (would_act, blocked) = tally(checked.copied());
            let acted = self.actions.as_ref().map_or(&[][..], Vec::as_slice).iter();
            let acted =
                acted.filter(|it| it.spec.policy == *name && it.status.has(REPLACED)).count();
            let mut status = StoragePolicyStatus {
                observed_generation: policy.generation,
                would_act,
                acted: u32::try_from(acted).unwrap_or(u32::MAX),
                blocked,
                conditions: policy.status.conditions.clone(),
            };
            self.set_policy_conditions(&mut status, policy, cx);
            if status != policy.status {
                jobs.push(Job::PolicyStatus(Box::new(policy.clone()), Box::new(status)));
            }
        }
        self.writes.extend(jobs);
    }

    fn set_policy_conditions(
        &self,
        status: &mut StoragePolicyStatus,
        policy: &PolicyObject,
        cx: Context<'_>,
    ) {
        let spec = &policy.state.spec;
        let (is_ready, reason, text) = if spec.hold_time().is_none() {
            (false, "Invalid", "spec cannot be read, or spec.hold is no time of at least 10m")
        } else if spec.suspended {
            (false, "Suspended", "spec.suspended is true")
        } else if spec.mode == Mode::Observe {
            (true, "Observing", "candidates are counted; nothing is proposed")
        } else {
            (true, "Proposing", "actions are proposed, and wait for a person")
        };
        let conditions = &mut status.conditions;
        set_condition(conditions, READY, is_ready, reason, text, cx.now.wall);
        let breaker = self.breaker.state();
        match (&breaker.open, &breaker.pause) {
            (Some(open), _) => {
                let reason = open.opener.name();
                set_condition(conditions, BREAKER_OPEN, true, reason, &open.text, open.at);
            }
            (None, Some(pause)) => {
                set_condition(conditions, BREAKER_OPEN, false, "Paused", pause, cx.now.wall);
            }
            (None, None) => {
                set_condition(conditions, BREAKER_OPEN, false, "Closed", "", cx.now.wall);
            }
        }
    }

    fn announce(&mut self, regarding: Regarding, reason: &'static str, note: &str, warning: bool) {
        self.announcements.push(Announcement::new(regarding, reason, note, warning));
    }

    pub(super) fn announce_breaker(&mut self, before: &BreakerState, cx: Context<'_>) {
        let after = self.breaker.state().clone();
        let mut changes = Vec::new();
        match (&before.open, &after.open) {
            (None, Some(open)) => changes.push((
                "BreakerOpened",
                format!(
                    "{}: {}. Nothing is proposed until a person resets the breaker: kubectl diskvitals breaker reset",
                    open.opener.name(),
                    open.text
                ),
                true,
            )),
            (Some(_), None) => changes.push((
                "BreakerClosed",
                "a person has reset the breaker".to_owned(),
                false,
            )),
            _ => {}
        }
        match (&before.pause, &after.pause) {
            (None, Some(pause)) => changes.push((
                "FleetPaused",
                format!("{pause}. Nothing is proposed meanwhile"),
                true,
            )),
            (Some(_), None) => changes.push((
                "FleetResumed",
                "the nodes have been ready and have reported for long enough".to_owned(),
                false,
            )),
            _ => {}
        }
        for (reason, note, warning) in changes {
            if warning {
                tracing::warn!(reason, note, "proposals stop");
            } else {
                tracing::info!(reason, note, "proposals may go on");
            }
            for policy in cx.view.policies.values() {
                self.announce(of_policy(policy), reason, &note, warning);
            }
        }
    }

    pub(super) fn announce_candidate(
        &mut self,
        policy: &PolicyState,
        candidate: &Candidate,
        refusals: &[Refusal],
    ) {
        let claim = regarding_claim(&candidate.claim);
        if refusals.is_empty() {
            let what = match policy.spec.mode {
                Mode::Observe => "would be proposed for release (mode Observe)",
                Mode::Propose => "is proposed for release",
            };
            let note = format!(
                "claim {}/{} {what} by policy {}: {}",
                candidate.claim.namespace,
                candidate.claim.name,
                policy.name,
                candidate.drive_line()
            );
            self.announce(claim, "ReleaseCandidate", &note, true);
            self.announce(regarding_node(&candidate.node), "ReleaseCandidate", &note, true);
        } else {
            let note = format!("policy {} holds back: {}", policy.name, list(refusals));
            self.announce(claim, "ReleaseHeldBack", &note, false);
        }
    }

    pub(super) fn announce_proposal(&mut self, proposal: &Proposal) {
        let spec = &proposal.spec;
        tracing::info!(
            namespace = proposal.namespace,
            action = proposal.name,
            claim = spec.claim.name,
            drive = spec.drive.id,
            node = spec.node.name,
            "a release is proposed"
        );
        let note = format!(
            "StorageAction {} proposes to release the claim: {} of drive {} on node {}. Read it, then: kubectl diskvitals approve -n {} {}",
            proposal.name,
            spec.finding.reason,
            spec.drive.id,
            spec.node.name,
            proposal.namespace,
            proposal.name
        );
        let claim = Claim {
            namespace: proposal.namespace.clone(),
            name: spec.claim.name.clone(),
            uid: spec.claim.uid.clone(),
        };
        self.announce(regarding_claim(&claim), "ReleaseProposed", &note, true);
        self.announce(regarding_node(&spec.node.name), "ReleaseProposed", &note, true);
    }

    pub(super) fn announce_held(&mut self, action: &ActionObject, refusals: &[Refusal]) {
        if !refusals.is_empty() {
            let note = format!("held back: {}", list(refusals));
            self.announce(of_action(action), "ReleaseHeldBack", &note, false);
        }
    }

    pub(super) fn announce_taken_back(&mut self, action: &ActionObject, why: &str) {
        tracing::warn!(
            namespace = action.namespace,
            action = action.name,
            why,
            "an approval no longer counts"
        );
        let note = format!(
            "the approval by {} no longer counts ({why}); the action waits for another one",
            action.spec.approved_by
        );
        self.announce(of_action(action), "ApprovalTakenBack", &note, true);
    }

    pub(super) fn announce_aborted(&mut self, action: &ActionObject, reason: &str, text: &str) {
        tracing::info!(
            namespace = action.namespace,
            action = action.name,
            reason,
            "an action has ended, nothing was deleted"
        );
        let note = format!(
            "StorageAction {} has ended, nothing was deleted: {reason}: {text}",
            action.name
        );
        self.announce_to_all(action, "ReleaseAborted", &note);
    }

    pub(super) fn announce_not_carried_out(&mut self, action: &ActionObject, text: &str) {
        let note = format!("StorageAction {}: {text}", action.name);
        self.announce_to_all(action, "ReleaseNotCarriedOut", &note);
    }

    /// `step`: the condition that is True now.
    pub(super) fn announce_step(&mut self, action: &ActionObject, step: &str, text: &str) {
        let (namespace, name) = (&action.namespace, &action.name);
        tracing::info!(%namespace, action = %name, step, "a step of an action is done");
        let note = format!("StorageAction {name}: {text}");
        let spec = &action.spec;
        match step {
            CLAIM_DELETED => self.announce_to_all(action, "ReleaseClaimDeleted", &note),
            PREPARED => {
                let volume = &spec.persistent_volume;
                let volume = regarding("PersistentVolume", "", &volume.name, &volume.uid);
                self.announce(volume, "ReleaseVolumeKept", &note, false);
                self.announce(of_action(action), "ReleaseVolumeKept", &note, false);
            }
            POD_EVICTED => {
                let pod = of_pod(namespace, &spec.pod);
                self.announce(pod, "ReleasePodEvicted", &note, false);
                self.announce(of_action(action), "ReleasePodEvicted", &note, false);
            }
            _ => self.announce(of_action(action), "ReleaseConfirmed", &note, false),
        }
    }

    pub(super) fn announce_replaced(
        &mut self,
        action: &ActionObject,
        progress: &Progress,
        text: &str,
    ) {
        let (namespace, name) = (&action.namespace, &action.name);
        tracing::info!(%namespace, action = %name, text, "a claim was replaced");
        let note = format!("StorageAction {name}: {text}");
        let mut about = vec![of_action(action), regarding_node(&action.spec.node.name)];
        if let Ok(Some(claim)) = progress.claim.as_ref() {
            about.push(regarding_claim(&Claim { uid: claim.uid.clone(), ..claim_of(action) }));
        }
        if let Ok(Some(pod)) = progress.pod.as_ref() {
            let pod = ObjectRef { name: action.spec.pod.name.clone(), uid: pod.uid.clone() };
            about.push(of_pod(namespace, &pod));
        }
        for regarding in about {
            self.announce(regarding, "ReleaseReplaced", &note, false);
        }
    }

    pub(super) fn announce_stuck(&mut self, action: &ActionObject, text: &str) {
        let (namespace, name) = (&action.namespace, &action.name);
        tracing::warn!(%namespace, action = %name, text, "an action is stuck");
        let note = format!("StorageAction {name} is stuck, and a person must resolve it: {text}");
        self.announce_to_all(action, "ReleaseStuck", &note);
    }

    fn announce_to_all(&mut self, action: &ActionObject, reason: &'static str, note: &str) {
        self.announce(of_action(action), reason, note, true);
        self.announce(regarding_claim(&claim_of(action)), reason, note, true);
        self.announce(regarding_node(&action.spec.node.name), reason, note, true);
    }
}

fn list(refusals: &[Refusal]) -> String {
    let lines = refusals.iter().map(|it| format!("{}: {}", it.gate, it.text));
    lines.collect::<Vec<_>>().join("; ")
}

fn of_policy(policy: &PolicyObject) -> Regarding {
    regarding("StoragePolicy", "", &policy.state.name, &policy.uid)
}

fn of_action(action: &ActionObject) -> Regarding {
    regarding("StorageAction", &action.namespace, &action.name, &action.uid)
}

fn of_pod(namespace: &str, pod: &ObjectRef) -> Regarding {
    regarding("Pod", namespace, &pod.name, &pod.uid)
}
