//! `--report`: what the daemon knows of this node's storage, told to the API server as events and
//! as the node condition `StorageHealthy`.
//!
//! In: the daemon's Watch on its agent's socket. Out: events on the node, pods and claims, one for
//! each transition; a condition that is true, false or unknown. Nobody is elected: each node has
//! its own, and two of them on one node say the same by the same names. It holds up nothing else of
//! the process: trouble with the API server is logged, waited out and tried again.

mod api;
mod bucket;
mod condition;
mod event;
mod follow;
mod heart;
mod news;
mod pause;
mod picture;
mod queue;
mod tell;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::csi::agent::agent;
use crate::csi::report::picture::Picture;

pub use crate::csi::report::api::{Api, Config, UnusableError};

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    pub events: bool,
    pub conditions: bool,
}

/// How often and how soon.
#[derive(Clone, Debug)]
pub struct Pace {
    /// How long the daemon may be away, or be without a full picture, before that is told. It is
    /// replaced in less.
    pub patience: Duration,
    /// How long changes are gathered.
    pub gather: Duration,
    /// How often the daemon is asked whether it still answers.
    pub look: Duration,
    /// A condition that is what it was is told again so often: that it still is.
    pub heartbeat: Duration,
    /// Another message of the same status and reason is told so often.
    pub message: Duration,
    /// Events that are told at once, and how soon another one may follow.
    pub burst: u32,
    pub every: Duration,
    /// Changes of the condition that are told at once, and how soon another one may follow.
    pub changes: u32,
    pub change: Duration,
    /// Before the second attempt at the API server; doubled for each further one.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// For one answer of the API server.
    pub answer: Duration,
    /// How long a right that is missing may be one that was just given: API servers hold what they
    /// know of roles in caches.
    pub rights: Duration,
    /// An event that fails for so long is given up.
    pub longest_wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            patience: Duration::from_secs(60),
            gather: Duration::from_millis(500),
            look: Duration::from_secs(20),
            heartbeat: Duration::from_secs(300),
            message: Duration::from_secs(30),
            burst: 50,
            every: Duration::from_secs(5),
            changes: 3,
            change: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(120),
            answer: Duration::from_secs(15),
            rights: Duration::from_secs(300),
            longest_wait: Duration::from_secs(3600),
        }
    }
}

/// What is seen of the daemon.
#[derive(Clone, Debug, Default)]
struct Sight {
    /// The newest full one, also while the daemon is away.
    picture: Option<Arc<Picture>>,
    /// Absent while the picture is kept up.
    lost: Option<Lost>,
}

#[derive(Clone, Debug)]
struct Lost {
    since: Instant,
    why: String,
}

impl Sight {
    /// Until when its absence is not told; None while it is there, and once it is to be told.
    fn patient_until(&self, patience: Duration) -> Option<Instant> {
        self.lost
            .as_ref()
            .map(|lost| lost.since + patience)
            .filter(|until| *until > Instant::now())
    }
}

pub struct Reporter {
    pub agent: PathBuf,
    /// As the API server knows it.
    pub node: String,
    pub what: What,
    pub pace: Pace,
    pub api: Api,
}

impl Reporter {
    pub async fn run(self) -> Infallible {
        let Reporter {
            agent: path,
            node,
            what,
            pace,
            api,
        } = self;
        tracing::info!(
            node,
            events = what.events,
            conditions = what.conditions,
            server = api.server(),
            "reporting to the API server"
        );
        let (agent, keeper) = agent(&path);
        let lost = Lost {
            since: Instant::now(),
            why: "it has not been reached yet".into(),
        };
        let (sight, sights) = watch::channel(Sight {
            picture: None,
            lost: Some(lost),
        });
        let events = async {
            if what.events {
                tell::run(sights.clone(), &api, &node, &pace).await
            } else {
                std::future::pending().await
            }
        };
        let conditions = async {
            if what.conditions {
                heart::run(sights.clone(), &api, &node, &pace).await
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            never = keeper.run() => never,
            never = follow::run(agent, sight, &pace) => never,
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
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
