//! The duty `quarantine`: nodes that were away get no new pods until they have proven that nothing
//! of their deleted pods is left.
//!
//! In: the view, which nodes to look at, and what jobs have read of one node. Out: one job after the
//! other, events. The judgement is in `model::quarantine`; all that must survive a restart stands in
//! the NodeStorage and the Node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::api::core::v1::Taint;

use crate::calls::{Call, Caller, Calls, Outcome};
use crate::duty::{Context, Duty};
use crate::events::Announcement;
use crate::listing::List;
use crate::model::quarantine::{Memory, NodeReadings, Order, next};
use crate::model::{Elapsed, Node, View};
use crate::taint::with_taint;
use crate::timing::QuarantineTiming;
use diskvitals_cluster::node_storage::{CleanReason, Quarantine};
use diskvitals_kubernetes::api_error::ApiError;
use diskvitals_kubernetes::event::regarding_node;
use diskvitals_text::hash::sha256_short;

/// The versions that a write is meant for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Versions {
    /// uid and resourceVersion.
    pub node: (String, String),
    pub report: (String, String),
    /// All of the node: they are one list, which is written as a whole.
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug)]
enum Job {
    /// The node, and the key of our taint.
    Read(String, String),
    /// The quarantine of the node's NodeStorage.
    Write(String, Box<Versions>, Option<Box<Quarantine>>),
    /// The taints of the node.
    Taints(String, Box<Versions>, OwnTaint),
}

enum Done {
    Read(String, Box<(NodeReadings, Versions)>),
    /// False: the object was changed meanwhile.
    Written(String, Result<bool, ApiError>),
    Tainted(String, OwnTaint, Result<bool, ApiError>),
}

/// Its value is the id of the quarantine: events of another quarantine are other events.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnTaint {
    Set(String),
    Removed(String),
}

impl Job {
    async fn run(self, caller: Caller) -> Done {
        let api = &caller.api;
        match self {
            Job::Read(node, key) => {
                let read = api.read_quarantine(&node, &key).await;
                Done::Read(node, Box::new(read))
            }
            Job::Write(node, versions, quarantine) => {
                let (uid, version) = &versions.report;
                let written =
                    api.write_quarantine(&node, (uid, version), quarantine.as_deref()).await;
                Done::Written(node, written)
            }
            Job::Taints(node, versions, own) => {
                let (uid, version) = &versions.node;
                let written = api.write_taints(&node, (uid, version), &versions.taints).await;
                Done::Tainted(node, own, written)
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    memory: Memory,
    /// Why it waited last.
    announced: Option<String>,
    /// Rounds until it is read again.
    pause: u32,
}

#[derive(Default)]
pub(crate) struct Quarantines {
    timing: QuarantineTiming,
    key: String,
    /// Nodes that were looked at.
    seen: BTreeMap<String, Seen>,
    queue: VecDeque<String>,
    writes: VecDeque<Job>,
    calls: Calls<Done>,
    next_round: Elapsed,
    count: u64,
    announcements: Vec<Announcement>,
}

impl Quarantines {
    pub(crate) fn new(timing: QuarantineTiming, key: &str) -> Quarantines {
        Quarantines { timing, key: key.to_owned(), ..Quarantines::default() }
    }

    fn concerned<'v>(&self, view: &'v View) -> BTreeSet<&'v String> {
        let is_concerned = |name: &String, node: &Node| {
            let report = view.reports.get(name);
            !node.is_ready
                || node.taints.contains_key(&self.key)
                || report.is_some_and(|report| report.is_quarantined)
        };
        let nodes = view.nodes.iter();
        nodes.filter(|(name, node)| is_concerned(name, node)).map(|(name, _)| name).collect()
    }

    /// The next call of the API server. One at a time.
    fn next_job(&mut self, cx: Context<'_>) -> Option<Job> {
        if let Some(write) = self.writes.pop_front() {
            return Some(write);
        }
        if self.queue.is_empty() && self.next_round <= cx.now.elapsed {
            self.begin_round(cx);
        }
        let node = self.queue.pop_front()?;
        Some(Job::Read(node, self.key.clone()))
    }

    fn begin_round(&mut self, cx: Context<'_>) {
        self.next_round = cx.now.elapsed + self.timing.round;
        let concerned = self.concerned(cx.view);
        self.seen.retain(|name, _| concerned.contains(name));
        for name in concerned {
            let seen = self.seen.entry(name.clone()).or_default();
            let is_back = cx.view.nodes.get(name).is_some_and(|node| node.is_ready);
            seen.pause = if is_back { 0 } else { seen.pause.saturating_sub(1) };
            if seen.pause == 0 {
                self.queue.push_back(name.clone());
            }
        }
    }

    fn finish(&mut self, done: Done, cx: Context<'_>) -> Result<(), ApiError> {
        match done {
            Done::Read(node, read) => {
                let (mut readings, versions) = *read;
                readings.complete(cx.view);
                self.decide(&node, &readings, versions, cx);
                Ok(())
            }
            Done::Written(node, written) => self.look_again(node, written),
            Done::Tainted(node, own, written) => {
                if let Ok(true) = written {
                    self.announce_taint(&node, &own);
                }
                self.look_again(node, written)
            }
        }
    }

    /// One write leads to the next; what was changed meanwhile is read anew.
    fn look_again(
        &mut self,
        node: String,
        written: Result<bool, ApiError>,
    ) -> Result<(), ApiError> {
        if written? {
            self.queue.push_front(node);
        }
        Ok(())
    }

    fn decide(&mut self, name: &str, readings: &NodeReadings, versions: Versions, cx: Context<'_>) {
        self.count += 1;
        let id = self.new_id(name, cx);
        let seen = self.seen.entry(name.to_owned()).or_default();
        let order = next(readings, &mut seen.memory, &self.timing.limits, &id, cx.now);
        let name = name.to_owned();
        match order {
            Order::Nothing => seen.announced = None,
            Order::Wait { reason, text } => {
                let is_away = reason == "NotReady";
                seen.pause = if is_away { self.timing.rounds_away } else { 0 };
                if seen.announced.as_deref() != Some(reason.as_str()) {
                    tracing::info!(node = name, reason, text, "a node stays in quarantine");
                    // A clean node is announced when its taint goes.
                    if !is_away && reason != CleanReason::ProvenClean.name() {
                        let report = readings.report.as_ref().ok().and_then(Option::as_ref);
                        let quarantine = report.and_then(|it| it.quarantine.as_ref());
                        let id = quarantine.map_or("", |it| it.id.as_str());
                        let note =
                            format!("no new pods (taint {}={id}): {reason}: {text}", self.key);
                        let of = regarding_node(&name);
                        self.announcements.push(Announcement::new(of, "NodeUnclean", note, true));
                    }
                    seen.announced = Some(reason);
                }
            }
            Order::Write(quarantine) => {
                let pods = quarantine.as_ref().map(|it| it.pod_uids.len());
                tracing::info!(node = name, pods, "the quarantine of a node changes");
                let job = Job::Write(name, Box::new(versions), quarantine.map(Box::new));
                self.writes.push_back(job);
            }
            Order::Taint(value) => {
                let taints = with_taint(&versions.taints, &self.key, Some(&value));
                let versions = Versions { taints, ..versions };
                self.writes.push_back(Job::Taints(name, Box::new(versions), OwnTaint::Set(value)));
            }
            Order::Untaint => {
                let taints = with_taint(&versions.taints, &self.key, None);
                let mut ours = versions.taints.into_iter().filter(|taint| taint.key == self.key);
                let own =
                    OwnTaint::Removed(ours.next().and_then(|it| it.value).unwrap_or_default());
                let versions = Versions { taints, ..versions };
                self.writes.push_back(Job::Taints(name, Box::new(versions), own));
            }
        }
    }

    fn new_id(&self, node: &str, cx: Context<'_>) -> String {
        let wall = cx.now.wall.as_nanosecond();
        let text = format!("{node} {wall} {}", self.count);
        format!("q{:.16}", sha256_short(text.as_bytes()))
    }

    fn announce_taint(&mut self, node: &str, own: &OwnTaint) {
        let key = &self.key;
        let (reason, note, is_warning) = match own {
            OwnTaint::Set(id) => {
                tracing::warn!(node, "a node that was lost gets no new pods");
                let note = format!(
                    "the node was lost with pods that may be started elsewhere: taint {key}={id} until it has proven that nothing of them is left"
                );
                ("NodeQuarantined", note, true)
            }
            OwnTaint::Removed(id) => {
                tracing::info!(node, "a node is clean");
                let note =
                    format!("nothing of deleted pods is left: the taint {key}={id} is removed");
                ("NodeClean", note, false)
            }
        };
        self.announcements.push(Announcement::new(regarding_node(node), reason, note, is_warning));
    }
}

impl Duty for Quarantines {
    fn lists(&self) -> &'static [List] {
        &[List::Volumes]
    }

    /// A node that has just been lost is read at once: its pods may be deleted from now on.
    fn observe(&mut self, cx: Context<'_>) {
        let concerned = self.concerned(cx.view);
        let is_new = concerned.iter().any(|name| !self.seen.contains_key(*name));
        if is_new && self.queue.is_empty() {
            self.next_round = self.next_round.min(cx.now.elapsed);
        }
    }

    fn reset(&mut self, now: Elapsed) {
        self.seen.clear();
        self.queue.clear();
        self.writes.clear();
        self.calls = Calls::default();
        self.next_round = now;
    }

    fn is_busy(&self) -> bool {
        self.calls.is_busy()
    }

    fn next_time(&self, now: Elapsed) -> Option<Elapsed> {
        let is_idle = self.writes.is_empty() && self.queue.is_empty();
        Some(if is_idle { self.next_round } else { now })
    }

    fn next_call(&mut self, cx: Context<'_>, caller: &Caller) -> Option<Call> {
        let job = self.next_job(cx)?;
        Some(self.calls.start(job.run(caller.clone())))
    }

    fn end_call(&mut self, cx: Context<'_>) -> Outcome {
        let finished = self.calls.take().map_or(Ok(()), |done| self.finish(done, cx));
        Outcome::new("writing a quarantine", finished)
    }

    fn take_announcements(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements)
    }
}

#[cfg(test)]
mod tests;
