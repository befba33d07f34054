//! The one task that owns the controller's state: changes of the watches in, decisions out, a few
//! writes at a time.
//!
//! In: changes, whether this process leads. Out: writes through `api`, and the state for metrics and
//! probes. Both replicas watch and note times, so that a standby that takes over knows since when a
//! state has lasted; only the leader writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::csi::report::api::ApiError;
use crate::csi::report::event::{
    CLUSTER_SCOPED_NAMESPACE, Event, Regarding, event_name, regarding_node, reporting_instance,
};
use crate::csi::report::token_bucket::TokenBucket;
use crate::fleet::api::{Api, ClaimWrite, ClusterChange};
use crate::fleet::claim_ledger::{ClaimLedger, Support};
use crate::fleet::listing::Lists;
use crate::fleet::metrics::{Counters, State};
use crate::fleet::model::claims::{Entry, desired};
use crate::fleet::model::retention::{Expired, expired};
use crate::fleet::model::{Claim, View};
use crate::fleet::options::Duty;
use crate::fleet::timing::Timing;
use crate::host::clock;
use crate::model::backoff::Backoff;

/// Writes at the same time, and in one second.
const WRITES_AT_ONCE: usize = 4;
const WRITES_PER_SECOND: u32 = 20;
const MAX_EVENTS: usize = 1000;
/// The state is published at least this often: a probe sees that the loop runs.
const TICK: Duration = Duration::from_secs(5);

enum Done {
    Adopted(Result<Vec<(Claim, Entry)>, ApiError>),
    Claim(Claim, Entry, ClaimWrite),
    Event(Event, Result<(), ApiError>),
    /// Whether the object is gone.
    Report(Expired, Result<bool, ApiError>),
}

pub(crate) struct Owner {
    api: Arc<Api>,
    duties: Vec<Duty>,
    timing: Timing,
    identity: String,
    state: watch::Sender<Arc<State>>,
    start: Instant,
    view: View,
    lists: Lists,
    leads: bool,
    /// None until the claims that this manager wrote before are known.
    ledger: Option<ClaimLedger>,
    is_adopting: bool,
    events: VecDeque<Event>,
    expired: VecDeque<Expired>,
    shared: BTreeMap<String, BTreeSet<String>>,
    jobs: JoinSet<Done>,
    bucket: TokenBucket,
    backoff: Backoff,
    /// No write before this time: the API server failed.
    not_before: Option<Instant>,
    last_error: Option<String>,
    evaluate_at: Option<Instant>,
    retention_at: Instant,
    counters: Counters,
}

impl Owner {
    pub(crate) fn new(
        api: Arc<Api>,
        duties: &[Duty],
        timing: Timing,
        identity: String,
        state: watch::Sender<Arc<State>>,
    ) -> Owner {
        let now = Instant::now();
        Owner {
            api,
            duties: duties.to_vec(),
            backoff: Backoff::new(timing.initial_backoff, timing.max_backoff),
            timing,
            identity,
            state,
            start: now,
            view: View::default(),
            lists: Lists::default(),
            leads: false,
            ledger: None,
            is_adopting: false,
            events: VecDeque::new(),
            expired: VecDeque::new(),
            shared: BTreeMap::new(),
            jobs: JoinSet::new(),
            bucket: TokenBucket::new(
                WRITES_PER_SECOND,
                Duration::from_secs(1) / WRITES_PER_SECOND,
            ),
            not_before: None,
            last_error: None,
            evaluate_at: None,
            retention_at: now,
            counters: Counters::default(),
        }
    }

    pub(crate) async fn run(
        mut self,
        mut changes: mpsc::Receiver<ClusterChange>,
        mut leadership: watch::Receiver<bool>,
    ) -> Infallible {
        loop {
            self.work();
            self.publish();
            let wake = self.next_wake();
            tokio::select! {
                Some(change) = changes.recv() => {
                    self.apply(change);
                    // A list comes in thousands.
                    for _ in 0..1000 {
                        match changes.try_recv() {
                            Ok(change) => self.apply(change),
                            Err(_) => break,
                        }
                    }
                }
                Ok(()) = leadership.changed() => {
                    let leads = *leadership.borrow_and_update();
                    self.set_leads(leads);
                }
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => match done {
                    Ok(done) => self.finish(done),
                    // Aborted with the leadership; a panic ends the process (`panic = "abort"`).
                    Err(error) => tracing::debug!(%error, "a write was cut off"),
                },
                () = sleep_until(wake) => {}
            }
        }
    }

    fn has(&self, duty: Duty) -> bool {
        self.duties.contains(&duty)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn is_synced(&self) -> bool {
        self.lists.nodes.is_complete
            && self.lists.reports.is_complete
            && (self.lists.volumes.is_complete || !self.has(Duty::Claims))
    }

    fn is_watching(&self) -> bool {
        !(self.lists.nodes.is_failing
            || self.lists.reports.is_failing
            || self.lists.volumes.is_failing)
    }

    fn apply(&mut self, change: ClusterChange) {
        let is_changed = match change {
            ClusterChange::Node(change) => self.lists.nodes.apply(change, &mut self.view.nodes),
            ClusterChange::Report(change) => {
                self.lists.reports.apply(change, &mut self.view.reports)
            }
            ClusterChange::Volume(change) => {
                self.lists.volumes.apply(change, &mut self.view.volumes)
            }
        };
        if is_changed {
            let at = Instant::now() + self.timing.debounce;
            self.evaluate_at = Some(self.evaluate_at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    fn set_leads(&mut self, leads: bool) {
        self.leads = leads;
        // Another one may write from here on: what it writes is read anew.
        self.jobs.abort_all();
        self.ledger = None;
        self.is_adopting = false;
        self.events.clear();
        self.expired.clear();
        self.shared.clear();
        self.retention_at = Instant::now();
        self.evaluate_at = Some(Instant::now());
    }

    /// Decides when a decision is due, and starts what may start.
    fn work(&mut self) {
        if !self.is_synced() {
            return;
        }
        let at = Instant::now();
        if self.evaluate_at.is_some_and(|due| due <= at) {
            self.evaluate_at = None;
            self.evaluate();
        }
        if self.leads && self.retention_at <= at {
            self.retention_at = at + self.timing.retention_interval;
            // Without the API server's time nothing is old.
            if let Some(server) = self.api.server_now() {
                let old = expired(&self.view, &self.timing.policy, self.now(), server);
                self.expired = old.into();
            }
        }
        while self.leads
            && self.is_watching()
            && self.jobs.len() < WRITES_AT_ONCE
            && self.not_before.is_none_or(|until| until <= at)
            && self.bucket.next_available(true) <= Instant::now()
        {
            if !self.start_one() {
                break;
            }
            self.bucket.take();
        }
    }

    fn evaluate(&mut self) {
        let now = self.now();
        self.view.observe(now);
        let policy = self.timing.policy;
        if let Some(ledger) = &mut self.ledger {
            ledger.set_desired(desired(&self.view, &ledger.written, &policy, now));
        }
        if self.leads && self.has(Duty::SharedDrives) {
            self.announce_shared_drives(now);
        }
        // Time alone changes a decision too.
        if let Some(due) = self.view.next_deadline(&policy, now) {
            let at = self.start + due;
            self.evaluate_at = Some(self.evaluate_at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    fn announce_shared_drives(&mut self, now: Duration) {
        let shared = self.view.shared_drives(&self.timing.policy, now);
        let news: Vec<_> = shared
            .iter()
            .filter(|(id, nodes)| self.shared.get(*id) != Some(nodes))
            .map(|(id, nodes)| (id.clone(), nodes.clone(), true))
            .collect();
        let over: Vec<_> = self
            .shared
            .iter()
            .filter(|(id, _)| !shared.contains_key(*id))
            .map(|(id, nodes)| (id.clone(), nodes.clone(), false))
            .collect();
        for (id, nodes, holds) in news.into_iter().chain(over) {
            let list = nodes.iter().cloned().collect::<Vec<_>>().join(", ");
            let note = if holds {
                tracing::warn!(
                    drive = id,
                    nodes = list,
                    "several nodes have the same drive"
                );
                format!(
                    "drive {id} is attached to several nodes: {list}. Two writers destroy its filesystems: detach it from all nodes but one"
                )
            } else {
                tracing::info!(
                    drive = id,
                    nodes = list,
                    "the drive is no longer on several nodes"
                );
                format!("drive {id} is no longer attached to several nodes ({list})")
            };
            let reason = if holds {
                "SharedDrive"
            } else {
                "SharedDriveCleared"
            };
            for node in &nodes {
                self.enqueue_event(regarding_node(node), reason, &note, holds);
                if let Some(report) = self.view.reports.get(node) {
                    let regarding = Regarding {
                        kind: "NodeStorage",
                        namespace: String::new(),
                        name: node.clone(),
                        uid: report.uid.clone(),
                    };
                    self.enqueue_event(regarding, reason, &note, holds);
                }
            }
        }
        self.shared = shared;
    }

    fn enqueue_event(&mut self, regarding: Regarding, reason: &str, note: &str, warning: bool) {
        if self.events.len() >= MAX_EVENTS {
            self.counters.count("events", "dropped");
            return;
        }
        let time = clock::wall_now();
        let namespace = if regarding.namespace.is_empty() {
            CLUSTER_SCOPED_NAMESPACE.to_owned()
        } else {
            regarding.namespace.clone()
        };
        // A second leader, or the same one after a restart, repeats it once an hour at most.
        let hour = time.as_second() / 3600;
        self.events.push_back(Event {
            name: event_name(
                &format!("{} {}", regarding.kind, regarding.uid),
                &format!("{reason} {note} {hour}"),
            ),
            namespace,
            regarding,
            reason: reason.to_owned(),
            action: if warning { "Raised" } else { "Cleared" },
            note: crate::model::assess::truncate(note, 1024),
            warning,
            reporting_instance: reporting_instance(&self.identity).to_owned(),
            cause: None,
            time,
        });
    }

    /// Starts one write. False: there is none.
    fn start_one(&mut self) -> bool {
        let (api, now) = (self.api.clone(), self.now());
        if self.has(Duty::Claims) && self.ledger.is_none() {
            if !std::mem::replace(&mut self.is_adopting, true) {
                self.jobs
                    .spawn(async move { Done::Adopted(api.own_claims().await) });
                return true;
            }
        } else if let Some((claim, entry)) =
            self.ledger.as_mut().and_then(|ledger| ledger.next(now))
        {
            self.jobs.spawn(async move {
                let write = api
                    .apply_health(&claim, &entry.conditions, clock::wall_now())
                    .await;
                Done::Claim(claim, entry, write)
            });
            return true;
        }
        if let Some(event) = self.events.pop_front() {
            self.jobs.spawn(async move {
                let published = api.publish(&event).await;
                Done::Event(event, published)
            });
            return true;
        }
        if let Some(report) = self.expired.pop_front() {
            self.jobs.spawn(async move {
                // The watch may be behind: the node may be back.
                let gone = match api.node_exists(&report.name).await {
                    Ok(true) => Ok(false),
                    Ok(false) => api.delete_report(&report).await,
                    Err(error) => Err(error),
                };
                Done::Report(report, gone)
            });
            return true;
        }
        false
    }

    fn finish(&mut self, done: Done) {
        if !self.leads {
            return;
        }
        match done {
            Done::Adopted(Ok(written)) => {
                self.succeed();
                tracing::info!(
                    claims = written.len(),
                    "the health that was written before is known"
                );
                self.ledger = Some(ClaimLedger::new(self.timing.pauses, written));
                self.evaluate_at = Some(Instant::now());
            }
            Done::Adopted(Err(error)) => {
                self.is_adopting = false;
                self.fail("reading claims", error);
            }
            Done::Claim(claim, entry, write) => self.finish_claim(&claim, entry, write),
            Done::Event(_, Ok(())) => {
                self.succeed();
                self.counters.count("events", "ok");
            }
            Done::Event(event, Err(error)) => {
                // An event is news for an hour: one that may not be written now is dropped.
                let is_final = !matches!(error, ApiError::Retryable { .. });
                self.counters
                    .count("events", if is_final { "refused" } else { "error" });
                let error = match error {
                    ApiError::Forbidden(rejection) => ApiError::Rejected(rejection),
                    error => error,
                };
                self.fail("publishing an event", error);
                if !is_final {
                    self.events.push_front(event);
                }
            }
            Done::Report(report, Ok(gone)) => {
                self.succeed();
                self.counters
                    .count("retention", if gone { "ok" } else { "conflict" });
                if gone {
                    tracing::info!(
                        node = report.name,
                        "the report of a node that was deleted long ago is removed"
                    );
                }
            }
            Done::Report(_, Err(error)) => {
                self.counters.count("retention", "error");
                // The next round finds it again.
                self.fail("deleting an old report", error);
            }
        }
    }

    fn finish_claim(&mut self, claim: &Claim, entry: Entry, write: ClaimWrite) {
        let now = self.now();
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        let (namespace, name) = (claim.namespace.as_str(), claim.name.as_str());
        match write {
            ClaimWrite::Done => {
                let reasons: Vec<&str> = entry
                    .conditions
                    .iter()
                    .map(|it| it.reason.as_str())
                    .collect();
                if matches!(ledger.support, Support::Absent(_)) && !reasons.is_empty() {
                    tracing::info!("the API server keeps the health of claims now");
                }
                tracing::info!(
                    namespace,
                    claim = name,
                    health = reasons.join(","),
                    "health of a claim is written"
                );
                ledger.is_done(claim, entry);
                self.counters.count("claims", "ok");
                self.succeed();
            }
            ClaimWrite::NotKept => {
                if ledger.is_not_kept(claim, now) {
                    tracing::warn!(
                        "the API server does not keep the health of claims: it needs Kubernetes 1.37 and the feature gate CSIVolumeHealth"
                    );
                }
                self.counters.count("claims", "unsupported");
                self.succeed();
            }
            ClaimWrite::Gone => {
                ledger.is_gone(claim, now);
                self.counters.count("claims", "gone");
                self.succeed();
            }
            ClaimWrite::Foreign(managers) => {
                let is_news = ledger.refuse(claim, now);
                self.counters.count("claims", "foreign");
                self.succeed();
                if is_news {
                    tracing::warn!(
                        namespace,
                        claim = name,
                        managers,
                        "another manager writes the health of this claim: it is left alone"
                    );
                    let regarding = Regarding {
                        kind: "PersistentVolumeClaim",
                        namespace: namespace.to_owned(),
                        name: name.to_owned(),
                        uid: claim.uid.clone(),
                    };
                    let note = format!(
                        "status.healthStatus is written by another manager, so diskvitals does not write it: {managers}"
                    );
                    self.enqueue_event(regarding, "HealthStatusConflict", &note, true);
                }
            }
            ClaimWrite::Failed(error) => {
                if matches!(error, ApiError::Rejected(_)) {
                    ledger.refuse(claim, now);
                    self.counters.count("claims", "refused");
                } else {
                    ledger.retry(claim);
                    self.counters.count("claims", "error");
                }
                self.fail("writing the health of a claim", error);
            }
        }
    }

    fn succeed(&mut self) {
        self.backoff.reset();
        self.not_before = None;
        if self.last_error.take().is_some() {
            tracing::info!("the API server accepts writes again");
        }
    }

    fn fail(&mut self, operation: &'static str, error: ApiError) {
        self.counters.api_errors += 1;
        let is_final = matches!(error, ApiError::Rejected(_));
        let (why, after) = error.into_message_and_delay();
        if self.last_error.as_ref() != Some(&why) {
            tracing::warn!(
                operation,
                error = why,
                "the API server refuses, or does not answer"
            );
            self.last_error = Some(why);
        }
        if !is_final {
            let delay = self.backoff.next_delay();
            let asked = after.unwrap_or_default().min(self.timing.max_backoff);
            self.not_before = Some(Instant::now() + delay.max(asked));
        }
    }

    fn next_wake(&mut self) -> Instant {
        let at = Instant::now();
        let mut wake = at + TICK;
        let now = self.now();
        let is_ready = self.leads && self.is_synced() && self.is_watching();
        if is_ready && self.jobs.len() < WRITES_AT_ONCE {
            let must_adopt = self.has(Duty::Claims) && self.ledger.is_none() && !self.is_adopting;
            let due = if must_adopt || !self.events.is_empty() || !self.expired.is_empty() {
                Some(now)
            } else {
                self.ledger
                    .as_ref()
                    .and_then(|ledger| ledger.next_time(now))
            };
            if let Some(due) = due {
                let allowed = self.bucket.next_available(true);
                let next = self.not_before.unwrap_or(at).max(allowed);
                wake = wake.min((self.start + due).max(next));
            }
            wake = wake.min(self.retention_at.max(at));
        }
        if let Some(due) = self.evaluate_at {
            wake = wake.min(due.max(at));
        }
        wake
    }

    fn publish(&self) {
        let (policy, server) = (&self.timing.policy, self.api.server_now());
        self.state.send_replace(Arc::new(State {
            at: Some(Instant::now()),
            leads: self.leads,
            is_synced: self.is_synced(),
            is_watching: self.is_watching(),
            nodes_by_health: self.view.nodes_by_health(policy, server),
            reporting: self.view.reporting(policy, server),
            nodes: self.view.nodes.len() as u64,
            reports: self.view.reports.len() as u64,
            volumes: self.view.volumes.len() as u64,
            shared_drives: self
                .view
                .shared_drives(&self.timing.policy, self.now())
                .len() as u64,
            claims_written: self
                .ledger
                .as_ref()
                .map_or(0, |ledger| ledger.written.len() as u64),
            claims_waiting: self
                .ledger
                .as_ref()
                .map_or(0, |ledger| ledger.backlog() as u64),
            is_supported: self
                .ledger
                .as_ref()
                .and_then(|ledger| match ledger.support {
                    Support::Unknown => None,
                    Support::Present => Some(true),
                    Support::Absent(_) => Some(false),
                }),
            models: self.view.models(),
            counters: self.counters.clone(),
        }));
    }
}
