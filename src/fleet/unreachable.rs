//! The duty `unreachable`: a node that does not reach the storage of a CSI driver gets no new pods;
//! with --evict-unreachable its pods move, one at a time in the whole cluster.
//!
//! In: the view, and what jobs have read. Out: one job after the other, events, figures. The judgement
//! is in `model::unreachable`. The taint stands on the Node and the eviction that is under way in the
//! NodeStorage, so that another leader goes on with both; how long something has lasted starts anew.

mod announcements;
mod figures;
mod job;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::calls::{Call, Caller, Calls, Outcome};
use crate::duty::{Context, Duty, DutyFigures};
use crate::events::Announcement;
use crate::listing::List;
use crate::model::release::evidence::Reading;
use crate::model::unreachable::eviction::{Next, PodReading, Waiting, choose, next};
use crate::model::unreachable::{Decision, Memory, Situation, TaintOrder, decide};
use crate::model::{Elapsed, Policy};
use crate::release::job::Acted;
use crate::timing::{Timing, UnreachableTiming};
use crate::unreachable::job::{Done, Job};
use diskvitals_cluster::node_storage::PodEviction;
use diskvitals_kubernetes::api_error::ApiError;

/// A refusal is not announced again for so long.
const REFUSALS_KEPT: Duration = Duration::from_secs(3600);

/// What an eviction waits for, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wait {
    uid: String,
    since: Elapsed,
    what: Waiting,
    what_since: Elapsed,
    is_announced: bool,
}

#[derive(Default)]
pub(crate) struct UnreachableStorage {
    timing: UnreachableTiming,
    policy: Policy,
    key: String,
    evicts: bool,
    memory: Memory,
    decision: Decision,
    queue: VecDeque<Job>,
    calls: Calls<Done>,
    next_round: Elapsed,
    /// Drivers that are away for too many nodes, and that were announced.
    announced: BTreeSet<String>,
    /// An eviction that was written down and that the watch has not shown yet.
    written: Option<(String, PodEviction)>,
    /// Pods whose eviction was refused, by uid: when, and why.
    refused: BTreeMap<String, (Elapsed, String)>,
    wait: Option<(PodEviction, Wait)>,
    evictions: BTreeMap<&'static str, u64>,
    announcements: Vec<Announcement>,
}

impl UnreachableStorage {
    pub(crate) fn new(timing: &Timing, key: &str, evicts: bool) -> UnreachableStorage {
        UnreachableStorage {
            timing: timing.unreachable,
            policy: timing.policy,
            key: key.to_owned(),
            evicts,
            evictions: [("ok", 0), ("refused", 0)].into(),
            ..UnreachableStorage::default()
        }
    }

    /// The next call of the API server. One at a time.
    fn next_job(&mut self, cx: Context<'_>) -> Option<Job> {
        let now = cx.now.elapsed;
        if self.queue.is_empty() && self.next_round <= now {
            self.next_round = now + self.timing.round;
            self.begin_round(cx);
        }
        self.queue.pop_front()
    }

    fn begin_round(&mut self, cx: Context<'_>) {
        self.observe(cx);
        self.announce_beyond(cx.now.wall);
        for (name, order) in &self.decision.taints {
            let uid = cx.view.nodes.get(name).map(|node| node.uid.clone());
            let value = match order {
                TaintOrder::Set(value) => Some(value.clone()),
                TaintOrder::Remove => None,
            };
            self.queue.push_back(Job::Taint {
                node: name.clone(),
                uid: uid.unwrap_or_default(),
                key: self.key.clone(),
                value,
            });
        }
        if self.evicts {
            self.begin_evictions(cx);
        }
    }

    /// Goes on with the eviction that is under way; only without one another is begun.
    fn begin_evictions(&mut self, cx: Context<'_>) {
        let now = cx.now.elapsed;
        self.refused.retain(|_, (at, _)| now.saturating_sub(*at) < REFUSALS_KEPT);
        let mut reports = cx.view.reports.iter();
        let shown =
            reports.find_map(|(name, report)| Some((name.clone(), report.eviction.clone()?)));
        if shown.is_some() {
            self.written = None;
        }
        if let Some((node, eviction)) = shown.or_else(|| self.written.clone()) {
            self.queue.push_back(Job::Look(node, Box::new(eviction)));
            return;
        }
        self.wait = None;
        for (node, driver) in &self.decision.evictable {
            self.queue.push_back(Job::ListPods {
                node: node.clone(),
                driver: driver.clone(),
                key: self.key.clone(),
            });
        }
    }

    fn finish(&mut self, done: Done, cx: Context<'_>) -> Result<(), ApiError> {
        let now = cx.now.elapsed;
        match done {
            // One that was changed meanwhile is decided anew in the next round.
            Done::Tainted { node, value, wrote } => {
                if wrote? {
                    self.announce_taint(&node, value.as_deref(), cx.now.wall);
                }
            }
            Done::Listed { node, driver, pods } => self.begin(&node, &driver, &pods, cx),
            Done::Asked(node, eviction, answer) => match answer? {
                Acted::Done => self.queue.push_front(Job::Record(node, Some(eviction))),
                // The next round reads the pods anew.
                Acted::Changed => {}
                Acted::Refused(why) => {
                    let driver = eviction.driver.clone();
                    self.refuse(&node, &eviction, why, now);
                    self.list_pods(node, driver);
                }
            },
            Done::Recorded(node, Some(eviction), written) => {
                if written? {
                    self.written = Some((node.clone(), (*eviction).clone()));
                    self.queue.push_front(Job::Look(node, eviction));
                }
            }
            Done::Recorded(_, None, written) => {
                if written? {
                    self.written = None;
                    self.wait = None;
                }
            }
            Done::Looked(node, eviction, readings) => {
                let pair = (node.clone(), eviction.driver.clone());
                let is_wanted = self.decision.evictable.contains(&pair);
                let has_waited = self.has_waited_for_replacement(&eviction, now);
                match next(&eviction, &readings, is_wanted, has_waited) {
                    Next::Evict => self.queue.push_front(Job::Evict(node, eviction)),
                    Next::Wait(what) => self.wait_for(&node, &eviction, what, now),
                    Next::Done => {
                        tracing::info!(node, pod = eviction.pod, "an eviction has ended");
                        self.queue.push_front(Job::Record(node, None));
                    }
                }
            }
            Done::Evicted(node, eviction, acted) => match acted? {
                Acted::Done => {
                    self.count("ok");
                    self.announce_evicted(&node, &eviction);
                    self.wait_for(&node, &eviction, Waiting::Terminating, now);
                }
                // The next round reads it anew.
                Acted::Changed => {}
                Acted::Refused(why) => {
                    self.refuse(&node, &eviction, why, now);
                    self.queue.push_front(Job::Record(node, None));
                }
            },
        }
        Ok(())
    }

    fn begin(
        &mut self,
        node: &str,
        driver: &str,
        pods: &Reading<Vec<PodReading>>,
        cx: Context<'_>,
    ) {
        let pods = match pods.as_ref() {
            Ok(pods) => pods,
            Err(why) => {
                tracing::warn!(node, why, "the pods of a node cannot be read");
                return;
            }
        };
        let is_left_alone = |at: Elapsed| cx.now.elapsed.saturating_sub(at) < self.timing.refused;
        let refused = self.refused.iter();
        let refused = refused.filter(|(_, (at, _))| is_left_alone(*at));
        let refused = refused.map(|(uid, _)| uid.as_str()).collect();
        // Without the API server's time it is not known which pod is younger.
        let Some(server) = cx.server else { return };
        if let Some(eviction) = choose(pods, driver, cx.view, &refused, server) {
            self.queue.retain(|job| !matches!(job, Job::ListPods { .. }));
            let job = Job::Ask(node.to_owned(), Box::new(eviction));
            self.queue.push_front(job);
        }
    }

    /// The pod is left alone for some time.
    fn refuse(&mut self, node: &str, eviction: &PodEviction, why: String, now: Elapsed) {
        self.count("refused");
        let before = self.refused.get(&eviction.pod_uid);
        if before.is_none_or(|(_, before)| *before != why) {
            self.announce_refused(node, eviction, &why);
        }
        self.refused.insert(eviction.pod_uid.clone(), (now, why));
    }

    fn list_pods(&mut self, node: String, driver: String) {
        let key = self.key.clone();
        self.queue.push_front(Job::ListPods { node, driver, key });
    }

    fn wait_for(&mut self, node: &str, eviction: &PodEviction, what: Waiting, now: Elapsed) {
        let before = self.wait.take().map(|(_, wait)| wait);
        let before = before.filter(|wait| wait.uid == eviction.pod_uid);
        let mut wait = before.unwrap_or_else(|| Wait {
            uid: eviction.pod_uid.clone(),
            since: now,
            what,
            what_since: now,
            is_announced: false,
        });
        if wait.what != what {
            (wait.what, wait.what_since) = (what, now);
        }
        if !wait.is_announced && now.saturating_sub(wait.since) >= self.timing.limits.patience {
            wait.is_announced = true;
            self.announce_stuck(node, eviction, what);
        }
        self.wait = Some((eviction.clone(), wait));
    }

    fn has_waited_for_replacement(&self, eviction: &PodEviction, now: Elapsed) -> bool {
        let wait = self.wait.as_ref().map(|(_, wait)| wait);
        let wait = wait.filter(|it| it.uid == eviction.pod_uid && it.what == Waiting::Replacement);
        wait.is_some_and(|it| now.saturating_sub(it.what_since) >= self.timing.limits.patience)
    }

    fn count(&mut self, outcome: &'static str) {
        *self.evictions.entry(outcome).or_default() += 1;
    }
}

impl Duty for UnreachableStorage {
    fn lists(&self) -> &'static [List] {
        if self.evicts { &[List::Volumes, List::Drivers] } else { &[List::Drivers] }
    }

    fn observe(&mut self, cx: Context<'_>) {
        let situation = Situation {
            view: cx.view,
            policy: &self.policy,
            limits: &self.timing.limits,
            key: &self.key,
            now: cx.now.elapsed,
            server: cx.server,
        };
        self.decision = decide(&situation, &mut self.memory);
    }

    /// How long something has lasted is known to a standby too.
    fn reset(&mut self, now: Elapsed) {
        self.queue.clear();
        self.calls = Calls::default();
        self.next_round = now;
        self.announced.clear();
        self.written = None;
        self.refused.clear();
        self.wait = None;
    }

    fn is_busy(&self) -> bool {
        self.calls.is_busy()
    }

    fn next_time(&self, now: Elapsed) -> Option<Elapsed> {
        Some(if self.queue.is_empty() { self.next_round } else { now })
    }

    fn next_call(&mut self, cx: Context<'_>, caller: &Caller) -> Option<Call> {
        let job = self.next_job(cx)?;
        Some(self.calls.start(job.run(caller.clone())))
    }

    fn end_call(&mut self, cx: Context<'_>) -> Outcome {
        let finished = self.calls.take().map_or(Ok(()), |done| self.finish(done, cx));
        Outcome::new("tainting a node or moving its pods", finished)
    }

    fn take_announcements(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements)
    }

    fn metrics(&self) -> Option<Arc<dyn DutyFigures>> {
        Some(Arc::new(self.figures()))
    }
}

#[cfg(test)]
mod tests;
