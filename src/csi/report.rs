//! `--report`: publishes the storage health of this node to the Kubernetes API server, as events,
//! as the node conditions `StorageHealthy` and `StorageFailed`, and as the object `NodeStorage`.
//!
//! In: the daemon's Watch on its agent socket. Out: one event for each transition, on the node,
//! pods and claims; conditions; the drives and volumes that are not healthy. There is no leader election: each
//! node has its own reporter, and two reporters on one node write the same objects with the same
//! names. Failures of the API server are logged and retried; they delay nothing else in the
//! process.

pub mod api;
mod attempts;
mod challenge;
mod condition;
mod condition_publisher;
mod daemon_watch;
pub mod event;
mod event_publisher;
mod failed_condition;
mod first_evidence;
mod node_condition;
mod node_failures;
mod node_snapshot;
mod node_storage;
mod object_watch;
mod quarantine;
mod queue;
mod storage_publisher;
mod transitions;
mod withdrawal;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::agent::new_agent;
use crate::report::challenge::AnswerState;
use crate::report::node_condition::{NodeConditionKind, STORAGE_FAILED, STORAGE_HEALTHY};
use crate::report::node_snapshot::NodeSnapshot;
use crate::report::object_watch::{StorageObject, follow_part};
use crate::report::quarantine::QuarantineState;
use diskvitals_cluster::node_condition::HEARTBEAT_INTERVAL;

pub use crate::report::api::ApiServer;

/// Which objects are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledReports {
    pub events: bool,
    /// `StorageHealthy`.
    pub conditions: bool,
    pub storage_failed: bool,
    pub storage: bool,
    /// The answers to challenges, in the NodeStorage object.
    pub challenges: bool,
    /// What is left of the pods of a quarantine, in the same object; the daemon is ordered to remove
    /// it.
    pub clean_stale: bool,
}

/// Intervals, delays and rate limits.
#[derive(Clone, Debug)]
pub struct ReportTiming {
    /// How long an absent daemon, or an incomplete snapshot, is tolerated before it is published.
    /// Replacing a daemon takes less time.
    pub absence_grace: Duration,
    /// How long changes are collected before they are published.
    pub debounce: Duration,
    /// How often to check that the daemon still answers.
    pub poll_interval: Duration,
    /// Interval at which an unchanged condition is written again.
    pub heartbeat_interval: Duration,
    /// Shortest interval between two messages of the same status and reason.
    pub message_interval: Duration,
    /// Number of events published at once, and the interval of further ones.
    pub event_burst: u32,
    pub event_interval: Duration,
    /// Number of changes of the condition written at once, and the interval of further ones.
    pub condition_burst: u32,
    pub condition_interval: Duration,
    /// How long the node must be seen as unfit, or as fit again, before `StorageFailed` changes.
    pub failure_hold: Duration,
    /// Interval of further changes of the NodeStorage object; its burst is that of the condition.
    pub storage_interval: Duration,
    /// Interval at which an unchanged NodeStorage object is written again.
    pub storage_refresh: Duration,
    /// Shortest interval between two answers to challenges.
    pub answer_interval: Duration,
    /// How long the daemon may take to read again for an answer.
    pub answer_patience: Duration,
    /// Interval of the questions to the daemon while the node is in quarantine.
    pub clean_interval: Duration,
    /// How long a node in quarantine may be unclean before that is an event.
    pub unclean_after: Duration,
    /// Delay before the second attempt; it doubles for each further one.
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// Time limit for one answer of the API server.
    pub request_timeout: Duration,
    /// How long a missing permission may be temporary, because API servers cache roles.
    pub rbac_grace: Duration,
    /// An event that has failed for this time is dropped.
    pub max_event_age: Duration,
}

impl Default for ReportTiming {
    fn default() -> Self {
        ReportTiming {
            absence_grace: Duration::from_secs(60),
            debounce: Duration::from_millis(500),
            poll_interval: Duration::from_secs(20),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            message_interval: Duration::from_secs(30),
            event_burst: 50,
            event_interval: Duration::from_secs(5),
            condition_burst: 3,
            condition_interval: Duration::from_secs(10),
            failure_hold: Duration::from_secs(120),
            storage_interval: Duration::from_secs(20),
            storage_refresh: Duration::from_secs(1800),
            answer_interval: Duration::from_secs(10),
            answer_patience: Duration::from_secs(45),
            clean_interval: Duration::from_secs(5),
            unclean_after: Duration::from_secs(900),
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(120),
            request_timeout: Duration::from_secs(15),
            rbac_grace: Duration::from_secs(300),
            max_event_age: Duration::from_secs(3600),
        }
    }
}

/// The reporter's view of the daemon.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaemonView {
    /// The newest complete snapshot; it is kept while the daemon is absent.
    snapshot: Option<Arc<NodeSnapshot>>,
    /// None while the snapshot is up to date.
    outage: Option<Outage>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outage {
    since: Instant,
    why: String,
}

impl DaemonView {
    /// The snapshot, or the outage that is to be published. `in_grace`: a possible outage is not.
    fn current(&self, in_grace: bool) -> Option<Result<&NodeSnapshot, &Outage>> {
        match (&self.outage, &self.snapshot) {
            (Some(_), _) if in_grace => None,
            (Some(outage), _) => Some(Err(outage)),
            (None, Some(snapshot)) => Some(Ok(snapshot)),
            (None, None) => None,
        }
    }

    /// The end of the time in which an outage is not published. None without an outage, and after
    /// that time.
    fn grace_until(&self, patience: Duration) -> Option<Instant> {
        self.outage
            .as_ref()
            .map(|lost| lost.since + patience)
            .filter(|until| *until > Instant::now())
    }
}

pub struct Reporter {
    pub agent: PathBuf,
    /// The name of the Node object.
    pub node: String,
    pub enabled: EnabledReports,
    /// Publish that health is no longer reported, and nothing else.
    pub withdraw: bool,
    pub timing: ReportTiming,
    pub api: ApiServer,
}

impl Reporter {
    pub async fn run(self) -> Infallible {
        let Reporter { agent: path, node, enabled, withdraw, timing, api } = self;
        tracing::info!(
            node,
            events = enabled.events,
            conditions = enabled.conditions,
            storage_failed = enabled.storage_failed,
            storage = enabled.storage,
            challenges = enabled.challenges,
            clean_stale = enabled.clean_stale,
            server = api.server(),
            "reporting to the API server"
        );
        let (agent, reconnector) = new_agent(&path);
        let outage = Outage { since: Instant::now(), why: "it has not been reached yet".into() };
        let (view, views) = watch::channel(DaemonView { snapshot: None, outage: Some(outage) });
        // A node becomes unclean for few reasons.
        let (unclean, unclean_events) = mpsc::channel(8);
        let events = async {
            if enabled.events && withdraw {
                withdrawal::publish_events(views.clone(), &api, &node, &timing).await
            } else if enabled.events {
                event_publisher::run(views.clone(), unclean_events, &api, &node, &timing).await
            } else {
                std::future::pending().await
            }
        };
        let (healthy, failed) = (&STORAGE_HEALTHY, &STORAGE_FAILED);
        let withdraws = withdraw && (enabled.conditions || enabled.storage_failed);
        let condition = async |kind: &'static NodeConditionKind, enabled, other| {
            if withdraws {
                withdrawal::remove_condition(&api, &node, &timing, kind).await
            } else if enabled {
                condition_publisher::run(views.clone(), &api, &node, &timing, kind, other).await
            } else {
                std::future::pending().await
            }
        };
        // A condition that is no longer published would keep its last value for ever.
        let leftover_failed = (!enabled.storage_failed).then_some(failed);
        let leftover_healthy = (!enabled.conditions).then_some(healthy);
        let (answer, answers) = watch::channel(AnswerState::initial(enabled.challenges));
        let is_answering = enabled.storage && !withdraw;
        let (object, objects) = watch::channel(StorageObject::Unknown);
        let object_watch = async {
            if is_answering && (enabled.challenges || enabled.clean_stale) {
                object_watch::run(&api, &node, &timing, &object).await
            } else {
                std::future::pending().await
            }
        };
        let (state, states) = watch::channel(match enabled.clean_stale {
            true => QuarantineState::Unknown,
            false => QuarantineState::Disabled,
        });
        let quarantine = async {
            if is_answering && enabled.clean_stale {
                let objects = objects.clone();
                quarantine::run(agent.clone(), objects, &node, &timing, state, unclean).await
            } else {
                // The publishers wait for them.
                let _unused = (state, unclean);
                std::future::pending().await
            }
        };
        let challenges = async {
            if is_answering && enabled.challenges {
                let (views, objects) = (views.clone(), objects.clone());
                challenge::run(agent.clone(), views, objects, &node, &timing, answer).await
            } else {
                // The publisher waits for it.
                let _unused = answer;
                std::future::pending().await
            }
        };
        let storage = async {
            if enabled.storage && withdraw {
                storage_publisher::withdraw(&api, &node, &timing).await
            } else if enabled.storage {
                let (views, answers, states) = (views.clone(), answers.clone(), states.clone());
                let (sender, absent) = watch::channel(false);
                let is_absent = |object: &StorageObject| matches!(object, StorageObject::Absent);
                let publisher =
                    storage_publisher::run(views, answers, states, absent, &api, &node, &timing);
                tokio::select! {
                    never = publisher => never,
                    never = follow_part(objects.clone(), &sender, is_absent) => never,
                }
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            never = reconnector.run() => never,
            never = daemon_watch::run(agent.clone(), view, &timing, enabled.storage) => never,
            never = storage => never,
            never = object_watch => never,
            never = challenges => never,
            never = quarantine => never,
            never = events => never,
            never = condition(healthy, enabled.conditions, leftover_failed) => never,
            never = condition(failed, enabled.storage_failed, leftover_healthy) => never,
        }
    }
}

fn now() -> Timestamp {
    // Only a clock far beyond the year 9999 fails here.
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX)
}

/// Completes at `time`; never if it is None.
async fn maybe_sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
