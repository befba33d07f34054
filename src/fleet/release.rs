//! The duty `release`: claims on dead drives are counted and proposed for release. What a person has
//! approved is carried out in the namespaces that the options name.
//!
//! In: the view, policies, and what jobs have read. Out: one job after the other, events, figures.
//! A round reads all actions, looks at each action and each candidate, and then writes what changed
//! in the policies. The judgement is in `model::release`; nothing here calls the API server. No
//! proposal rests on an earlier round: each is read and decided anew.

pub(crate) mod action;
mod carry_out;
mod challenge;
mod decide;
mod figures;
pub(crate) mod job;
pub(crate) mod readings;
mod report;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use crate::calls::{Call, Caller, Calls, Outcome};
use crate::duty::{Context, Duty, DutyFigures};
use crate::events::Announcement;
use crate::listing::List;
use crate::model::release::breaker::{Breaker, BreakerLimits, Open, Opener, Sample};
use crate::model::release::budget::ActionSummary;
use crate::model::release::candidate::{Candidate, Timers};
use crate::model::release::check::{FleetState, Refusal};
use crate::model::release::evidence::Reading;
use crate::model::{Elapsed, View};
use crate::release::action::{ActionList, ActionObject};
use crate::release::challenge::Challenges;
use crate::release::job::{Acted, Done, Job};
use crate::release::readings::{Question, Readings};
use crate::timing::ReleaseTiming;
use diskvitals_cluster::gate::Gate;
use diskvitals_kubernetes::api_error::ApiError;

/// A candidate under a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    policy: String,
    claim_uid: String,
    volume: String,
    drive: String,
    reason: String,
}

impl Key {
    fn new(policy: &str, candidate: &Candidate) -> Key {
        Key {
            policy: policy.to_owned(),
            claim_uid: candidate.claim.uid.clone(),
            volume: candidate.volume.clone(),
            drive: candidate.drive.id.clone(),
            reason: candidate.reason.clone(),
        }
    }
}

/// What was decided about a candidate last.
#[derive(Clone, Debug)]
struct Decision {
    candidate: Candidate,
    refusals: Vec<Refusal>,
    read_at: Option<Elapsed>,
}

/// What a round still has to look at.
#[derive(Clone, Debug)]
enum Subject {
    Action(Box<ActionObject>),
    Candidate(Key),
}

#[derive(Default)]
enum Round {
    #[default]
    None,
    Listing,
    Subjects(VecDeque<Subject>),
}

#[derive(Default)]
pub(crate) struct Engine {
    timing: ReleaseTiming,
    /// Namespaces in which approved actions are carried out.
    carry_out: BTreeSet<String>,
    /// When everything that is watched was first known.
    started: Option<Elapsed>,
    timers: Timers,
    candidates: Vec<Candidate>,
    breaker: Breaker,
    actions: Reading<Vec<ActionObject>>,
    /// The highest of the store.
    revision: u64,
    went_back: Option<String>,
    round: Round,
    next_round: Elapsed,
    /// The subject whose readings are awaited.
    reading: Option<Subject>,
    writes: VecDeque<Job>,
    calls: Calls<Done>,
    decisions: BTreeMap<Key, Decision>,
    /// Gates that hold an action, by its uid.
    held: BTreeMap<String, BTreeSet<Gate>>,
    challenges: Challenges,
    counts: BTreeMap<Gate, u64>,
    announcements: Vec<Announcement>,
}

impl Engine {
    pub(crate) fn new(timing: ReleaseTiming, carry_out: &[String]) -> Engine {
        Engine {
            timing,
            carry_out: carry_out.iter().cloned().collect(),
            counts: Gate::ALL.iter().map(|gate| (*gate, 0)).collect(),
            ..Engine::default()
        }
    }

    fn observe_breaker(&mut self, cx: Context<'_>) {
        let reset_at = reset_at(cx.view);
        if self.breaker.state().open.is_none()
            && let Some(open) = recorded_opening(cx.view)
            && !is_reset(reset_at, &open, cx.now.wall, &self.timing.breaker)
        {
            self.breaker.adopt(open);
        }
        let before = self.breaker.state().clone();
        let summaries = self.summaries();
        let went_back = self.went_back.take();
        let sample = Sample {
            view: cx.view,
            actions: summaries.as_ref().ok().map_or(&[], Vec::as_slice),
            went_back: went_back.as_deref(),
            reset_at,
        };
        if self.breaker.observe(&sample, &self.timing.breaker, cx.now) {
            self.announce_breaker(&before, cx);
            self.next_round = self.next_round.min(cx.now.elapsed);
        }
        // The end of a pause comes by time alone.
        let deadline = self.breaker.next_deadline(&self.timing.breaker);
        if let Some(at) = deadline.filter(|at| *at > cx.now.elapsed) {
            self.next_round = self.next_round.min(at);
        }
    }

    fn summaries(&self) -> Reading<Vec<ActionSummary>> {
        match self.actions.as_ref() {
            Ok(actions) => {
                let summary = |it: &ActionObject| {
                    ActionSummary::new(&it.namespace, &it.name, &it.spec, &it.status)
                };
                Reading::Read(actions.iter().map(summary).collect())
            }
            Err(why) => Reading::Failed(why.to_owned()),
        }
    }

    fn fleet(&self, cx: Context<'_>) -> FleetState {
        FleetState {
            started: self.started.unwrap_or(cx.now.elapsed),
            nodes: u32::try_from(cx.view.nodes.len()).unwrap_or(u32::MAX),
            breaker: self.breaker.state().clone(),
            lease_left: cx.lease_left,
            actions: self.summaries(),
        }
    }

    /// The next call of the API server. One at a time.
    fn next_job(&mut self, cx: Context<'_>) -> Option<Job> {
        loop {
            if let Some(write) = self.writes.pop_front() {
                return Some(write);
            }
            match &mut self.round {
                Round::None if self.next_round <= cx.now.elapsed => {
                    self.round = Round::Listing;
                    // What asks for an earlier one meanwhile gets it.
                    self.next_round = Elapsed::MAX;
                    return Some(Job::List);
                }
                Round::None | Round::Listing => return None,
                Round::Subjects(subjects) => match subjects.pop_front() {
                    Some(subject) => {
                        if let Some(question) = self.begin(&subject, cx) {
                            self.reading = Some(subject);
                            return Some(Job::Read(question));
                        }
                    }
                    None => self.end_round(cx),
                },
            }
        }
    }

    /// An error is returned for the owner's log and its pause; the round ends with it.
    fn finish(&mut self, done: Done, cx: Context<'_>) -> Result<(), ApiError> {
        match done {
            Done::Listed(Ok(list)) => self.take_list(list, cx),
            Done::Listed(Err(error)) => {
                let (why, _) = error.clone().into_message_and_delay();
                self.actions = Reading::Failed(why);
                self.stop_round(cx);
                return Err(error);
            }
            Done::Read(readings) => self.take_readings(*readings, cx),
            Done::Created(proposal, Ok(is_new)) => {
                if is_new {
                    self.announce_proposal(&proposal);
                }
                // Its status follows.
                self.next_round = cx.now.elapsed;
            }
            Done::Acted(action, act, Ok(acted)) => match acted {
                Acted::Done => self.take_acted(&action, &act, None, cx),
                Acted::Refused(why) => self.take_acted(&action, &act, Some(&why), cx),
                // It was changed meanwhile: the next round looks again.
                Acted::Changed => self.look_again(cx),
            },
            Done::TakenBack(action, why, Ok(true)) => self.announce_taken_back(&action, &why),
            // One that was changed meanwhile is looked at again in the next round.
            Done::TakenBack(_, _, Ok(false)) | Done::Written(Ok(_)) => {}
            Done::Created(_, Err(error))
            | Done::TakenBack(_, _, Err(error))
            | Done::Acted(_, _, Err(error))
            | Done::Written(Err(error)) => {
                self.stop_round(cx);
                return Err(error);
            }
        }
        Ok(())
    }

    fn stop_round(&mut self, cx: Context<'_>) {
        self.writes.clear();
        self.reading = None;
        self.round = Round::None;
        self.next_round = cx.now.elapsed + self.timing.round;
    }

    fn take_list(&mut self, list: ActionList, cx: Context<'_>) {
        if let Some(revision) = list.revision {
            if revision < self.revision {
                self.went_back = Some(format!(
                    "the API server's resourceVersion is {revision}, and was {} before",
                    self.revision
                ));
            }
            self.revision = revision;
        }
        let uids: BTreeSet<&String> = list.actions.iter().map(|it| &it.uid).collect();
        self.held.retain(|uid, _| uids.contains(uid));
        self.challenges.retain(&uids);
        let unfinished = list.actions.iter().filter(|it| !it.status.is_finished());
        let mut subjects: VecDeque<Subject> =
            unfinished.map(|it| Subject::Action(Box::new(it.clone()))).collect();
        self.writes.extend(
            action::outdated(&list.actions, cx.now.wall)
                .into_iter()
                .map(|it| Job::Delete(Box::new(it.clone()))),
        );
        self.actions = Reading::Read(list.actions);
        self.observe(cx);
        self.remember_candidates(cx);
        subjects.extend(self.decisions.keys().cloned().map(Subject::Candidate));
        self.round = Round::Subjects(subjects);
    }

    fn take_readings(&mut self, mut readings: Readings, cx: Context<'_>) {
        let Some(subject) = self.reading.take() else {
            return;
        };
        let claim = match &subject {
            Subject::Action(action) => decide::claim_of(action),
            Subject::Candidate(key) => match self.decisions.get(key) {
                Some(decision) => decision.candidate.claim.clone(),
                None => return,
            },
        };
        let actions = self.actions.as_ref().map_or(&[][..], Vec::as_slice);
        let present = std::mem::take(&mut readings.action);
        let (evidence, progress) = readings.complete(&claim, cx.view, actions);
        match subject {
            Subject::Action(listed) => match present {
                Reading::Read(Some(action)) if action.uid == listed.uid => {
                    self.decide_action(&action, &evidence, &progress, cx);
                }
                // Deleted meanwhile, by a person.
                Reading::Read(_) => {}
                Reading::Failed(why) => tracing::warn!(
                    namespace = listed.namespace,
                    action = listed.name,
                    why,
                    "the action could not be read: it waits"
                ),
            },
            Subject::Candidate(key) => self.decide_candidate(&key, Some(&evidence), cx),
        }
    }

    fn end_round(&mut self, cx: Context<'_>) {
        self.round = Round::None;
        self.next_round = self.next_round.min(cx.now.elapsed + self.timing.round);
        self.write_policies(cx);
        self.clear_challenges(cx);
    }

    /// A step leads to the next one soon, without a hurry that would burden the API server.
    fn look_again(&mut self, cx: Context<'_>) {
        let soon = cx.now.elapsed + self.timing.round / 10;
        self.next_round = self.next_round.min(soon);
    }
}

impl Duty for Engine {
    fn lists(&self) -> &'static [List] {
        &[List::Volumes, List::Policies]
    }

    fn note_change(&mut self, list: List, now: Elapsed) {
        if list == List::Policies {
            self.next_round = self.next_round.min(now);
        }
    }

    fn observe(&mut self, cx: Context<'_>) {
        self.started.get_or_insert(cx.now.elapsed);
        let before = self.candidates.len();
        self.candidates = self.timers.observe(cx.view, cx.now.elapsed);
        if self.candidates.len() != before {
            let soon = cx.now.elapsed + self.timing.round / 6;
            self.next_round = self.next_round.min(soon);
        }
        self.observe_breaker(cx);
    }

    fn reset(&mut self, now: Elapsed) {
        self.actions = Reading::default();
        self.round = Round::None;
        self.next_round = now;
        self.reading = None;
        self.writes.clear();
        self.calls = Calls::default();
        self.decisions.clear();
        self.held.clear();
        self.challenges = Challenges::default();
    }

    fn is_busy(&self) -> bool {
        self.calls.is_busy()
    }

    fn next_time(&self, now: Elapsed) -> Option<Elapsed> {
        let is_idle = self.writes.is_empty() && matches!(self.round, Round::None);
        Some(if is_idle { self.next_round } else { now })
    }

    fn next_call(&mut self, cx: Context<'_>, caller: &Caller) -> Option<Call> {
        let job = self.next_job(cx)?;
        Some(self.calls.start(job.run(caller.clone())))
    }

    fn end_call(&mut self, cx: Context<'_>) -> Outcome {
        let finished = self.calls.take().map_or(Ok(()), |done| self.finish(done, cx));
        Outcome::new("proposing releases", finished)
    }

    fn take_announcements(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements)
    }

    fn metrics(&self) -> Option<Arc<dyn DutyFigures>> {
        Some(Arc::new(self.figures()))
    }
}

/// The latest reset of all policies.
fn reset_at(view: &View) -> Option<Timestamp> {
    let resets = view.policies.values();
    resets.filter_map(|policy| policy.state.spec.breaker_reset_at.as_ref()).map(|time| time.0).max()
}

/// The breaker of an earlier process: it stands in the policies.
fn recorded_opening(view: &View) -> Option<Open> {
    let conditions = view.policies.values().flat_map(|it| &it.status.conditions);
    conditions
        .filter(|it| {
            it.type_ == diskvitals_cluster::storage_policy::BREAKER_OPEN && it.status == "True"
        })
        .map(|it| Open {
            opener: Opener::from_name(&it.reason),
            text: it.message.clone(),
            at: it.last_transition_time.0,
        })
        .max_by_key(|open| open.at)
}

fn is_reset(
    reset_at: Option<Timestamp>,
    open: &Open,
    wall: Timestamp,
    limits: &BreakerLimits,
) -> bool {
    let latest = jiff::SignedDuration::try_from(limits.clock_skew)
        .ok()
        .and_then(|skew| wall.checked_add(skew).ok());
    reset_at.is_some_and(|at| at > open.at && latest.is_some_and(|latest| at <= latest))
}

#[cfg(test)]
mod tests;
