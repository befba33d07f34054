//! What follows from the next step of an action: its status, one call of the API server, and what
//! is announced. Pure.
//!
//! In: a step of the model. Out: jobs and announcements. Outside the namespaces in which actions are
//! carried out, nothing of the cluster is changed: the status has the commands for a person.

use jiff::Timestamp;

use crate::duty::Context;
use crate::model::release::steps::{Act, EVICTED_AGAIN, Progress, REFUSED, Step};
use crate::release::action::{ActionObject, add_step, commands, set_condition, set_waiting};
use crate::release::challenge::Outcome;
use crate::release::{Engine, Job};
use diskvitals_cluster::gate::Gate;
use diskvitals_cluster::storage_action::{
    ABORTED, CLAIM_DELETED, CONFIRMED, NOT_CARRIED_OUT, POD_EVICTED, PREPARED, REPLACED, STUCK,
    StorageActionStatus,
};

impl Engine {
    pub(super) fn carries_out(&self, action: &ActionObject) -> bool {
        self.carry_out.contains(&action.namespace)
    }

    /// `status`: what the decision has changed of it so far.
    pub(super) fn take_step(
        &mut self,
        action: &ActionObject,
        mut status: StorageActionStatus,
        (step, progress): (Step, &Progress),
        cx: Context<'_>,
    ) {
        let wall = cx.now.wall;
        let before = status.step.clone();
        let mut act = None;
        match step {
            Step::Nothing => return,
            Step::TakeBackApproval(refusal) => {
                let why = format!("{}: {}", refusal.gate, refusal.text);
                let job = Job::TakeBack(Box::new(action.clone()), why);
                self.writes.push_back(job);
                return;
            }
            Step::MarkAborted { gate, text } => {
                self.set_aborted(action, &mut status, gate, &text, wall)
            }
            Step::Wait { gate, text } => {
                let name = gate.map_or("", Gate::name);
                let reason = if name.is_empty() { "Waiting" } else { name };
                set_waiting(&mut status, name, reason, &text, wall);
            }
            Step::Challenge => self.set_challenged(action, &mut status, cx),
            Step::Act(next) if self.carries_out(action) => act = Some(next),
            Step::Act(next) => self.set_not_carried_out(action, &mut status, Some(&next), cx),
            Step::MarkConfirmed if !self.carries_out(action) => {
                self.set_not_carried_out(action, &mut status, None, cx);
            }
            Step::MarkStuck(text) => {
                set_done(&mut status, STUCK, &text, wall);
                self.announce_stuck(action, &text);
            }
            Step::MarkConfirmed => {
                let text = "the node and every gate confirm it: it is carried out";
                self.set_step_done(action, &mut status, CONFIRMED, text, wall);
            }
            Step::MarkPrepared => {
                let volume = &action.spec.persistent_volume.name;
                let text = format!("volume {volume} is kept: its reclaim policy is Retain");
                self.set_step_done(action, &mut status, PREPARED, &text, wall);
            }
            Step::MarkClaimDeleted => {
                let claim = &action.spec.claim.name;
                let text = format!("claim {claim} is deleted; from here on nothing is undone");
                self.set_step_done(action, &mut status, CLAIM_DELETED, &text, wall);
            }
            Step::MarkPodEvicted => {
                let pod = &action.spec.pod.name;
                let text = format!("pod {pod} is evicted");
                self.set_step_done(action, &mut status, POD_EVICTED, &text, wall);
            }
            Step::MarkReplaced => {
                let text = replaced_text(action, progress);
                if status.has(STUCK) {
                    set_condition(&mut status.conditions, STUCK, false, REPLACED, "", wall);
                }
                set_done(&mut status, REPLACED, &text, wall);
                self.announce_replaced(action, progress, &text);
            }
        }
        if act.is_some() {
            status.blocked_by.clear();
        }
        if status.step != before {
            self.look_again(cx);
        }
        self.push_status(action, status);
        if let Some(act) = act {
            self.writes.push_back(Job::Act(Box::new(action.clone()), act));
        }
    }

    fn set_step_done(
        &mut self,
        action: &ActionObject,
        status: &mut StorageActionStatus,
        step: &str,
        text: &str,
        wall: Timestamp,
    ) {
        set_done(status, step, text, wall);
        self.announce_step(action, step, text);
    }

    fn set_aborted(
        &mut self,
        action: &ActionObject,
        status: &mut StorageActionStatus,
        gate: Option<Gate>,
        text: &str,
        wall: Timestamp,
    ) {
        let reason = gate.map_or("Rejected", Gate::name);
        if status.has(PREPARED) {
            let volume = &action.spec.persistent_volume.name;
            let line = format!("volume {volume} has its reclaim policy of before");
            set_condition(&mut status.conditions, PREPARED, false, "PutBack", &line, wall);
            add_step(status, &line, wall);
        }
        set_condition(&mut status.conditions, ABORTED, true, reason, text, wall);
        ABORTED.clone_into(&mut status.step);
        reason.clone_into(&mut status.blocked_by);
        add_step(status, &format!("ended: {reason}: {text}"), wall);
        self.announce_aborted(action, reason, text);
    }

    fn set_challenged(
        &mut self,
        action: &ActionObject,
        status: &mut StorageActionStatus,
        cx: Context<'_>,
    ) {
        match self.challenges.outcome(action) {
            // The answer to this approval counts where a person goes on.
            Some(Outcome::Confirmed) if !self.carries_out(action) => {
                self.set_not_carried_out(action, status, None, cx);
            }
            Some(Outcome::Contradicted(refusal)) => {
                let gate = refusal.gate.name();
                set_waiting(status, gate, gate, &refusal.text, cx.now.wall);
            }
            Some(Outcome::Confirmed) | None => {
                let gate = Gate::NoAnswer.name();
                let text = "the node has been asked and has not answered";
                set_waiting(status, gate, gate, text, cx.now.wall);
            }
        }
    }

    /// `next`: what was begun here, while the namespace was one in which actions are carried out.
    fn set_not_carried_out(
        &mut self,
        action: &ActionObject,
        status: &mut StorageActionStatus,
        next: Option<&Act>,
        cx: Context<'_>,
    ) {
        let is_new = !status.conditions.iter().any(|it| it.reason == NOT_CARRIED_OUT);
        let text = format!(
            "actions in namespace {} are not carried out (--carry-out-in). By hand: {}",
            action.namespace,
            commands(action, next)
        );
        set_waiting(status, "", NOT_CARRIED_OUT, &text, cx.now.wall);
        if is_new {
            let line = "it goes on by hand: see the condition with the reason NotCarriedOut";
            add_step(status, line, cx.now.wall);
            self.announce_not_carried_out(action, &text);
        }
    }

    pub(super) fn take_acted(
        &mut self,
        action: &ActionObject,
        act: &Act,
        refused: Option<&str>,
        cx: Context<'_>,
    ) {
        self.look_again(cx);
        let mut status = action.status.clone();
        match refused {
            None => {
                tracing::info!(
                    namespace = action.namespace,
                    action = action.name,
                    step = ?act,
                    "a step of an action was carried out"
                );
                if matches!(act, Act::EvictAgain { .. }) {
                    let text = "the new pod waited for a claim that nobody created";
                    let conditions = &mut status.conditions;
                    set_condition(conditions, POD_EVICTED, true, EVICTED_AGAIN, text, cx.now.wall);
                    let line = format!("pod {} is evicted again: {text}", action.spec.pod.name);
                    add_step(&mut status, &line, cx.now.wall);
                }
            }
            Some(why) => {
                let text = format!("the API server refuses it: {why}");
                set_waiting(&mut status, "", REFUSED, &text, cx.now.wall);
                // Once, not in each round.
                if status != action.status {
                    tracing::warn!(
                        namespace = action.namespace,
                        action = action.name,
                        step = ?act,
                        why,
                        "the API server refuses a step of an action; it is tried again"
                    );
                }
                self.next_round = self.next_round.max(cx.now.elapsed + self.timing.round);
            }
        }
        self.push_status(action, status);
    }

    fn push_status(&mut self, action: &ActionObject, status: StorageActionStatus) {
        if status != action.status {
            let job = Job::ActionStatus(Box::new(action.clone()), Box::new(status));
            self.writes.push_back(job);
        }
    }
}

/// A step is done: the condition of its name is True.
fn set_done(status: &mut StorageActionStatus, step: &str, text: &str, wall: Timestamp) {
    set_condition(&mut status.conditions, step, true, step, text, wall);
    step.clone_into(&mut status.step);
    status.blocked_by.clear();
    let line = if step == STUCK { format!("stuck: {text}") } else { text.to_owned() };
    add_step(status, &line, wall);
}

fn replaced_text(action: &ActionObject, progress: &Progress) -> String {
    let claim = progress.claim.as_ref().ok().and_then(Option::as_ref);
    let volume = claim.map_or("", |claim| &claim.volume_name);
    format!(
        "pod {} is Ready with a new volume, {volume}; volume {} is kept until a person deletes it",
        action.spec.pod.name, action.spec.persistent_volume.name
    )
}
