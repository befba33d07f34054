//! What follows from the evidence of one candidate or one action. Pure.
//!
//! In: evidence. Out: a proposal, a status, an approval that is taken back, a question to the node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::duty::Context;
use crate::model::Claim;
use crate::model::release::candidate::{Candidate, Sighting, find};
use crate::model::release::check::{ActionState, Case, PolicyState, Refusal, check};
use crate::model::release::evidence::Evidence;
use crate::model::release::proposal::{evidence_update, is_same_intervention, proposal};
use crate::model::release::steps::{self, Progress, Step};
use crate::release::action::{ActionObject, PROPOSED, add_step};
use crate::release::challenge::Outcome;
use crate::release::{Decision, Engine, Job, Key, Question, Subject};
use diskvitals_cluster::gate::{Effect, Gate};
use diskvitals_cluster::storage_action::{Approval, CLAIM_DELETED, StorageActionSpec};
use diskvitals_cluster::storage_policy::Mode;

pub(super) fn claim_of(action: &ActionObject) -> Claim {
    Claim {
        namespace: action.namespace.clone(),
        name: action.spec.claim.name.clone(),
        uid: action.spec.claim.uid.clone(),
    }
}

fn policy_of(cx: Context<'_>, name: &str) -> PolicyState {
    let known = cx.view.policies.get(name).map(|it| it.state.clone());
    known.unwrap_or_else(|| PolicyState::unreadable(name))
}

/// Gates of the controller and the policy: while one refuses, nothing is read.
fn is_global(gate: Gate) -> bool {
    gate < Gate::ReportNotCurrent
}

/// Gates that need nothing but what is watched.
fn is_early(gate: Gate) -> bool {
    gate < Gate::NodeNotReady
}

impl Engine {
    /// What is to be read for the subject. None: it was decided without.
    pub(super) fn begin(&mut self, subject: &Subject, cx: Context<'_>) -> Option<Question> {
        match subject {
            Subject::Action(action) => {
                let policy = policy_of(cx, &action.spec.policy);
                let question = question(
                    &policy,
                    claim_of(action),
                    &action.spec.persistent_volume.name,
                    &action.spec.node.name,
                );
                Some(Question { action: Some(action.clone()), ..question })
            }
            Subject::Candidate(key) => {
                let decision = self.decisions.get(key)?.clone();
                let policy = policy_of(cx, &key.policy);
                let early = self.refusals(&policy, &self.sighting(&decision, cx), None, cx);
                let is_within = |time: Duration| {
                    decision.read_at.is_some_and(|at| cx.now.elapsed.saturating_sub(at) < time)
                };
                let skips = early.iter().any(|it| is_global(it.gate))
                    || !early.is_empty() && is_within(self.timing.reread)
                    // Rounds follow each other quickly while an action goes on.
                    || is_within(self.timing.round / 2)
                    || early
                        .iter()
                        .any(|it| matches!(it.gate, Gate::FindingGone | Gate::ReportNotCurrent));
                if skips {
                    self.decide_candidate(key, None, cx);
                    return None;
                }
                let candidate = &decision.candidate;
                Some(question(&policy, candidate.claim.clone(), &candidate.volume, &candidate.node))
            }
        }
    }

    /// Each candidate under each policy. What was a candidate before and is none now stays until it
    /// is known why.
    pub(super) fn remember_candidates(&mut self, cx: Context<'_>) {
        let policies = &cx.view.policies;
        self.decisions.retain(|key, _| policies.contains_key(&key.policy));
        for policy in policies.keys() {
            for candidate in &self.candidates {
                let decision =
                    self.decisions.entry(Key::new(policy, candidate)).or_insert_with(|| Decision {
                        candidate: candidate.clone(),
                        refusals: Vec::new(),
                        read_at: None,
                    });
                decision.candidate = candidate.clone();
            }
        }
    }

    fn sighting(&self, decision: &Decision, cx: Context<'_>) -> Sighting {
        let mut spec = StorageActionSpec::default();
        let candidate = &decision.candidate;
        spec.claim.uid.clone_from(&candidate.claim.uid);
        spec.persistent_volume.name.clone_from(&candidate.volume);
        spec.node.name.clone_from(&candidate.node);
        spec.drive.id.clone_from(&candidate.drive.id);
        spec.finding.reason.clone_from(&candidate.reason);
        find(cx.view, &self.candidates, &spec)
    }

    /// Without evidence: only of the gates that need none.
    fn refusals(
        &self,
        policy: &PolicyState,
        sighting: &Sighting,
        evidence: Option<&Evidence>,
        cx: Context<'_>,
    ) -> Vec<Refusal> {
        let nothing = Evidence::default();
        let fleet = self.fleet(cx);
        let case = Case {
            policy,
            sighting,
            evidence: evidence.unwrap_or(&nothing),
            fleet: &fleet,
            action: None,
            limits: &self.timing.limits,
        };
        let mut refusals = check(&case, cx.now);
        refusals.retain(|it| evidence.is_some() || is_early(it.gate));
        refusals
    }

    pub(super) fn decide_candidate(
        &mut self,
        key: &Key,
        evidence: Option<&Evidence>,
        cx: Context<'_>,
    ) {
        let Some(mut decision) = self.decisions.remove(key) else {
            return;
        };
        let policy = policy_of(cx, &key.policy);
        let sighting = self.sighting(&decision, cx);
        let mut refusals = self.refusals(&policy, &sighting, evidence, cx);
        let is_gone = matches!(sighting, Sighting::Gone);
        let is_global = refusals.iter().any(|it| is_global(it.gate));
        if evidence.is_none() && !is_gone && !is_global {
            // What the last reading showed still holds it, as far as is known.
            let known = decision.refusals.iter().filter(|it| !is_early(it.gate));
            refusals.extend(known.cloned());
        }
        let gates = |refusals: &[Refusal]| -> BTreeSet<Gate> {
            refusals.iter().map(|it| it.gate).collect()
        };
        let (before, after) = (gates(&decision.refusals), gates(&refusals));
        let is_first = decision.read_at.is_none();
        let is_changed = before != after || is_first && evidence.is_some();
        // The action itself says what holds it back, and its own steps are no refusals.
        let is_of_action = !refusals.is_empty() && self.is_in_action(&decision.candidate.claim);
        if !is_of_action {
            for gate in after.difference(&before) {
                *self.counts.entry(*gate).or_default() += 1;
            }
        }
        // The policy is none of this claim's.
        let is_selected =
            !refusals.iter().any(|it| it.gate == Gate::NotSelected && it.effect == Effect::Abort);
        if is_changed && !is_of_action && is_selected && !(is_global && before.is_empty()) {
            self.announce_candidate(&policy, &decision.candidate, &refusals);
        }
        if is_gone {
            return;
        }
        if evidence.is_some() {
            decision.read_at = Some(cx.now.elapsed);
        }
        let is_free = refusals.is_empty();
        decision.refusals = refusals;
        if let Some(evidence) = evidence.filter(|_| is_free && policy.spec.mode == Mode::Propose) {
            self.propose(&policy, &decision.candidate, evidence);
        }
        self.decisions.insert(key.clone(), decision);
    }

    fn is_in_action(&self, claim: &Claim) -> bool {
        let actions = self.actions.as_ref().map_or(&[][..], Vec::as_slice);
        let mut under_way = actions.iter().filter(|it| !it.status.is_finished());
        under_way.any(|it| it.spec.claim.uid == claim.uid)
    }

    fn propose(&mut self, policy: &PolicyState, candidate: &Candidate, evidence: &Evidence) {
        let Some(proposal) = proposal(&policy.name, candidate, evidence) else {
            return;
        };
        let Ok(actions) = self.actions.as_ref() else {
            return;
        };
        // An intervention is proposed once, whatever became of it; and a claim is in one action at
        // a time.
        let exists = self.is_in_action(&candidate.claim)
            || actions.iter().any(|it| {
                it.namespace == proposal.namespace && is_same_intervention(&it.spec, &proposal.spec)
            });
        let is_queued = self.writes.iter().any(
            |job| matches!(job, Job::Create(other) if other.spec.claim == proposal.spec.claim),
        );
        if !exists && !is_queued {
            self.writes.push_back(Job::Create(Box::new(proposal)));
        }
    }

    pub(super) fn decide_action(
        &mut self,
        action: &ActionObject,
        evidence: &Evidence,
        progress: &Progress,
        cx: Context<'_>,
    ) {
        let policy = policy_of(cx, &action.spec.policy);
        let sighting = find(cx.view, &self.candidates, &action.spec);
        let fleet = self.fleet(cx);
        let state = ActionState {
            namespace: action.namespace.clone(),
            name: action.name.clone(),
            spec: action.spec.clone(),
            status: action.status.clone(),
            answer: self.answer(action, cx),
        };
        let case = Case {
            policy: &policy,
            sighting: &sighting,
            evidence,
            fleet: &fleet,
            action: Some(&state),
            limits: &self.timing.limits,
        };
        // After the deletion of the claim no gate is asked.
        let refusals =
            if action.status.has(CLAIM_DELETED) { Vec::new() } else { check(&case, cx.now) };
        let step = steps::next(&case, &state, progress, &self.timing.steps, cx.now);
        let mut status = action.status.clone();
        status.observed_generation = action.generation;
        if status.step.is_empty() {
            PROPOSED.clone_into(&mut status.step);
            add_step(&mut status, "proposed; nothing is changed", cx.now.wall);
        }
        if let Sighting::Listed(candidate) = &sighting
            && !status.has(CLAIM_DELETED)
            && let Some(update) = evidence_update(&state, candidate, evidence)
        {
            (status.evidence, status.evidence_hash) = (update.lines, update.hash);
            if update.has_changed {
                add_step(&mut status, "the evidence has changed", cx.now.wall);
            }
        }
        if state.answer.as_ref().is_ok()
            && !status.has(CLAIM_DELETED)
            && self.challenges.outcome(action).is_none()
        {
            let outcome = outcome_of(&refusals);
            let line = answer_line(action, &outcome);
            if status.steps.last().is_none_or(|step| step.text != line) {
                add_step(&mut status, &line, cx.now.wall);
            }
            self.challenges.set_outcome(action, outcome);
        }
        if asks(action, &refusals) {
            self.ask(action, cx);
        }
        // A claim that this action deletes is no refusal.
        if matches!(step, Step::MarkClaimDeleted) {
            self.held.remove(&action.uid);
        } else {
            self.count_held(action, &refusals);
        }
        self.take_step(action, status, (step, progress), cx);
    }

    fn count_held(&mut self, action: &ActionObject, refusals: &[Refusal]) {
        let after: BTreeSet<Gate> = refusals.iter().map(|it| it.gate).collect();
        let before = self.held.insert(action.uid.clone(), after.clone()).unwrap_or_default();
        for gate in after.difference(&before) {
            *self.counts.entry(*gate).or_default() += 1;
        }
        if before != after {
            self.announce_held(action, refusals);
        }
    }

    /// Refusals of each policy's candidates.
    pub(super) fn by_policy(&self) -> BTreeMap<&str, Vec<&[Refusal]>> {
        let mut by_policy: BTreeMap<&str, Vec<&[Refusal]>> = BTreeMap::new();
        for (key, decision) in &self.decisions {
            let refusals = by_policy.entry(&key.policy).or_default();
            refusals.push(&decision.refusals);
        }
        by_policy
    }
}

/// Whether nothing but the person's approval and the node's word is missing.
fn asks(action: &ActionObject, refusals: &[Refusal]) -> bool {
    let is_open = |refusal: &Refusal| match refusal.gate {
        Gate::NotApproved => action.spec.approval == Approval::Pending,
        gate => gate == Gate::NoAnswer,
    };
    refusals.iter().any(|it| it.gate == Gate::NoAnswer) && refusals.iter().all(is_open)
}

fn outcome_of(refusals: &[Refusal]) -> Outcome {
    let against = refusals.iter().find(|it| {
        matches!(
            it.gate,
            Gate::BootChanged
                | Gate::FindingAcknowledged
                | Gate::FindingGone
                | Gate::NoAnswer
                | Gate::NotSettled
                | Gate::OneWitness
        )
    });
    match against {
        Some(refusal) => Outcome::Contradicted(refusal.clone()),
        None => Outcome::Confirmed,
    }
}

fn answer_line(action: &ActionObject, outcome: &Outcome) -> String {
    let node = &action.spec.node.name;
    match outcome {
        Outcome::Contradicted(refusal) => format!(
            "node {node} has answered, and does not confirm it: {}: {}",
            refusal.gate, refusal.text
        ),
        Outcome::Confirmed => format!("node {node} has answered, and confirms the failure"),
    }
}

fn question(policy: &PolicyState, claim: Claim, volume: &str, node: &str) -> Question {
    Question {
        claim,
        volume: volume.to_owned(),
        node: node.to_owned(),
        namespace_selector: policy.spec.claims.namespace_selector.clone(),
        label_keys: policy.spec.group.label_keys.clone(),
        action: None,
    }
}
