//! `--report`: what the daemon knows of this node's storage, told to the API server as events and
//! as the node condition `StorageHealthy`.
//!
//! In: the daemon's Watch on its agent's socket. Out: events on the node, pods and claims, one for
//! each transition; a condition that is true, false or unknown. Nobody is elected: each node has
//! its own, and two of them on one node say the same by the same names. It holds up nothing else of
//! the process: trouble with the API server is logged, waited out and tried again.

mod api;
mod condition;
mod condition_publisher;
mod daemon_watch;
mod event;
mod event_publisher;
mod node_snapshot;
mod queue;
mod retry_delay;
mod token_bucket;
mod transitions;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::csi::agent::new_agent;
use crate::csi::report::node_snapshot::NodeSnapshot;

pub use crate::csi::report::api::{ApiServer, ApiSetupError, Config};

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledReports {
    pub events: bool,
    pub conditions: bool,
}

/// How often and how soon.
#[derive(Clone, Debug)]
pub struct ReportTiming {
    /// How long the daemon may be away, or be without a full picture, before that is told. It is
    /// replaced in less.
    pub absence_grace: Duration,
    /// How long changes are gathered.
    pub debounce: Duration,
    /// How often the daemon is asked whether it still answers.
    pub poll_interval: Duration,
    /// A condition that is what it was is told again so often: that it still is.
    pub heartbeat_interval: Duration,
    /// Another message of the same status and reason is told so often.
    pub message_interval: Duration,
    /// Events that are told at once, and how soon another one may follow.
    pub event_burst: u32,
    pub event_interval: Duration,
    /// Changes of the condition that are told at once, and how soon another one may follow.
    pub condition_burst: u32,
    pub condition_interval: Duration,
    /// Before the second attempt at the API server; doubled for each further one.
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// For one answer of the API server.
    pub request_timeout: Duration,
    /// How long a right that is missing may be one that was just given: API servers hold what they
    /// know of roles in caches.
    pub rbac_grace: Duration,
    /// An event that fails for so long is given up.
    pub max_event_age: Duration,
}

impl Default for ReportTiming {
    fn default() -> Self {
        ReportTiming {
            absence_grace: Duration::from_secs(60),
            debounce: Duration::from_millis(500),
            poll_interval: Duration::from_secs(20),
            heartbeat_interval: Duration::from_secs(300),
            message_interval: Duration::from_secs(30),
            event_burst: 50,
            event_interval: Duration::from_secs(5),
            condition_burst: 3,
            condition_interval: Duration::from_secs(10),
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(120),
            request_timeout: Duration::from_secs(15),
            rbac_grace: Duration::from_secs(300),
            max_event_age: Duration::from_secs(3600),
        }
    }
}

/// What is seen of the daemon.
#[derive(Clone, Debug, Default)]
struct DaemonView {
    /// The newest full one, also while the daemon is away.
    snapshot: Option<Arc<NodeSnapshot>>,
    /// Absent while the picture is kept up.
    outage: Option<Outage>,
}

#[derive(Clone, Debug)]
struct Outage {
    since: Instant,
    why: String,
}

impl DaemonView {
    /// Until when its absence is not told; None while it is there, and once it is to be told.
    fn grace_until(&self, patience: Duration) -> Option<Instant> {
        self.outage
            .as_ref()
            .map(|lost| lost.since + patience)
            .filter(|until| *until > Instant::now())
    }
}

pub struct Reporter {
    pub agent: PathBuf,
    /// As the API server knows it.
    pub node: String,
    pub enabled: EnabledReports,
    pub timing: ReportTiming,
    pub api: ApiServer,
}

impl Reporter {
    pub async fn run(self) -> Infallible {
        let Reporter {
            agent: path,
            node,
            enabled,
            timing,
            api,
        } = self;
        tracing::info!(
            node,
            events = enabled.events,
            conditions = enabled.conditions,
            server = api.server(),
            "reporting to the API server"
        );
        let (agent, reconnector) = new_agent(&path);
        let outage = Outage {
            since: Instant::now(),
            why: "it has not been reached yet".into(),
        };
        let (view, views) = watch::channel(DaemonView {
            snapshot: None,
            outage: Some(outage),
        });
        let events = async {
            if enabled.events {
                event_publisher::run(views.clone(), &api, &node, &timing).await
            } else {
                std::future::pending().await
            }
        };
        let conditions = async {
            if enabled.conditions {
                condition_publisher::run(views.clone(), &api, &node, &timing).await
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            never = reconnector.run() => never,
            never = daemon_watch::run(agent, view, &timing) => never,
            never = events => never,
            never = conditions => never,
        }
    }
}

fn now() -> Timestamp {
    // Only a clock far beyond the year 9999 has no such time.
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX)
}

/// Completes at a time; never where there is none.
async fn maybe_sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
