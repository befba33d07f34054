//! Questions to nodes and their answers. Pure.
//!
//! In: an action that needs the node's word, reports. Out: a challenge to write, an answer that
//! repeats its nonce. An answer to another question, or none, is no answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::duty::Context;
use crate::model::Elapsed;
use crate::model::release::Now;
use crate::model::release::check::Refusal;
use crate::model::release::evidence::{Answer, Reading};
use crate::release::action::ActionObject;
use crate::release::{Engine, Job};
use diskvitals_cluster::node_storage::{Challenge, ChallengeAnswer};
use diskvitals_text::hash::sha256_short;

/// One question for an action, as it was approved, or not yet.
#[derive(Clone, Debug)]
struct Asked {
    approval: String,
    node: String,
    nonce: String,
    at: Elapsed,
    /// How long a confirmation counts, where each step of the action needs one. None: one is enough.
    valid: Option<Duration>,
    outcome: Option<Outcome>,
}

/// What the answer to a question was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Confirmed,
    Contradicted(Refusal),
}

/// By the action's uid.
#[derive(Clone, Debug, Default)]
pub(super) struct Challenges {
    asked: BTreeMap<String, Asked>,
    count: u64,
}

impl Challenges {
    pub(super) fn retain(&mut self, actions: &BTreeSet<&String>) {
        self.asked.retain(|uid, _| actions.contains(uid));
    }

    /// What the node answered for this action, as it is approved now.
    pub(super) fn outcome(&self, action: &ActionObject) -> Option<Outcome> {
        let asked = self.asked.get(&action.uid)?;
        (asked.approval == approval_of(action)).then(|| asked.outcome.clone())?
    }

    pub(super) fn set_outcome(&mut self, action: &ActionObject, outcome: Outcome) {
        if let Some(asked) = self.asked.get_mut(&action.uid) {
            asked.outcome = Some(outcome);
        }
    }

    /// Once for each approval, and again while the failure is not confirmed, or no longer is.
    fn is_due(&self, action: &ActionObject, now: Elapsed, again: Duration) -> bool {
        // The node has one field for all questions.
        let is_occupied = self.asked.iter().any(|(uid, it)| {
            *uid != action.uid && it.node == action.spec.node.name && it.is_open(now, again)
        });
        let asked = self.asked.get(&action.uid);
        !is_occupied
            && asked.is_none_or(|it| it.approval != approval_of(action) || it.is_over(now, again))
    }
}

impl Asked {
    /// The question stands in the node's object, and its answer counts.
    fn is_open(&self, now: Elapsed, again: Duration) -> bool {
        let age = now.saturating_sub(self.at);
        match self.outcome {
            None => age < again,
            Some(Outcome::Confirmed) => self.valid.is_some_and(|valid| age < valid),
            Some(Outcome::Contradicted(_)) => false,
        }
    }

    /// It may be asked again.
    fn is_over(&self, now: Elapsed, again: Duration) -> bool {
        let lifetime = match self.outcome {
            Some(Outcome::Confirmed) => self.valid,
            Some(Outcome::Contradicted(_)) | None => Some(again),
        };
        lifetime.is_some_and(|lifetime| now.saturating_sub(self.at) >= lifetime)
    }
}

fn approval_of(action: &ActionObject) -> String {
    let at = action.spec.approved_at.as_ref().map(|time| time.0);
    format!("{:?} {at:?}", action.spec.approval)
}

impl Engine {
    /// Writes a question for the action, if one is due. False: the node is not to be asked now.
    pub(super) fn ask(&mut self, action: &ActionObject, cx: Context<'_>) -> bool {
        let again = self.timing.ask_again;
        let node = &action.spec.node.name;
        let Some(report) = cx.view.reports.get(node) else {
            return false;
        };
        if !self.challenges.is_due(action, cx.now.elapsed, again) {
            return false;
        }
        self.challenges.count += 1;
        let nonce = nonce(action, cx.now, self.challenges.count);
        let challenge = Challenge {
            nonce: nonce.clone(),
            time: Some(Time(cx.now.wall)),
            persistent_volumes: vec![action.spec.persistent_volume.name.clone()],
            drive_ids: vec![action.spec.drive.id.clone()],
        };
        let asked = Asked {
            approval: approval_of(action),
            node: node.clone(),
            nonce,
            at: cx.now.elapsed,
            valid: self.carries_out(action).then_some(self.timing.limits.answer_age),
            outcome: None,
        };
        self.challenges.asked.insert(action.uid.clone(), asked);
        let job = Job::Ask(node.clone(), report.uid.clone(), Some(Box::new(challenge)));
        self.writes.push_back(job);
        // The answer takes seconds: the next round looks for it.
        let soon = cx.now.elapsed + self.timing.round / 6;
        self.next_round = self.next_round.min(soon);
        true
    }

    pub(super) fn answer(&self, action: &ActionObject, cx: Context<'_>) -> Reading<Answer> {
        let Some(asked) = self.challenges.asked.get(&action.uid) else {
            return Reading::Failed("it has not been asked".to_owned());
        };
        if asked.approval != approval_of(action) {
            return Reading::Failed("it was asked before the approval".to_owned());
        }
        let report = cx.view.reports.get(&asked.node);
        let answer = report
            .and_then(|report| report.status.as_ref()?.challenge.as_ref())
            .filter(|answer| answer.nonce == asked.nonce);
        match answer {
            Some(answer) => Reading::Read(to_answer(answer, asked.at)),
            None => Reading::Failed("it has not answered".to_owned()),
        }
    }

    /// Questions that nobody waits for, also those of an earlier leader.
    pub(super) fn clear_challenges(&mut self, cx: Context<'_>) {
        let (now, again) = (cx.now.elapsed, self.timing.ask_again);
        let open: BTreeSet<&String> = self
            .challenges
            .asked
            .values()
            .filter(|it| it.is_open(now, again))
            .map(|it| &it.nonce)
            .collect();
        let done = cx.view.reports.iter().filter(|(_, report)| {
            let nonce = report.challenge.as_ref();
            nonce.is_some_and(|nonce| !open.contains(nonce))
        });
        let jobs: Vec<Job> =
            done.map(|(node, report)| Job::Ask(node.clone(), report.uid.clone(), None)).collect();
        self.writes.extend(jobs);
    }
}

fn nonce(action: &ActionObject, now: Now, count: u64) -> String {
    let text =
        format!("{} {} {} {count}", action.uid, now.wall.as_nanosecond(), now.elapsed.as_nanos());
    sha256_short(text.as_bytes())
}

/// A list that is cut says nothing about what is absent from it.
fn to_answer(answer: &ChallengeAnswer, asked_at: Elapsed) -> Answer {
    Answer {
        asked_at,
        boot_id: answer.boot_id.clone(),
        machine_id: answer.machine_id.clone(),
        is_settled: answer.settled && !answer.truncated,
        reads_inventory: answer.inventory,
        reads_kernel_log: answer.kernel_log,
        missing: answer.missing.clone(),
        findings: answer.findings.clone(),
    }
}
