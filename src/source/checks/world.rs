//! What the source does to the world: runs checkers, holds writers, makes snapshots, looks how busy
//! the node is. A seam, so that tests can play filesystems that hang for a day, and check that none
//! stays frozen.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::host::helper::Program;
use crate::host::root::HostRoot;
use crate::host::worker::Outcome;
use crate::model::check::steps::{self, Situation, Step};
use crate::model::check::{Run, Signal};
use crate::model::dev::DevNo;
use crate::model::path::HostPath;
use crate::model::policy::checks::Tools;
use crate::source::checks::freezer::{FreezeError, FreezeOrder, Freezer, Frozen, Thawed};
use crate::source::checks::health::{self, Extent};
use crate::source::checks::load::{self, Busy};
use crate::source::checks::lvm::Host;
use crate::source::checks::runner::{self, Device, Heard, Prepared, Ran, RunOrder, Strays};
use crate::source::checks::snapshot::{self, Snapshot, SnapshotError, SnapshotOrder};
use crate::source::checks::tools::{self, Found};
use crate::source::context::{Context, JobWorkers};
use crate::source::jobs::{Answer, Job};
use crate::source::worker::{Place, arguments};

const UNASKED: &str = "a worker answers what it was not asked";

pub trait World: Clone + Send + Sync + 'static {
    type Prepared: Send + 'static;
    type Heard: Send + 'static;
    type Frozen: Send + 'static;
    type Snapshot: Send + Sync + 'static;

    /// What comes next: `model::check::steps`.
    fn next(&self, situation: &Situation<'_>, runs: &[&Run], now: Timestamp) -> Step;

    /// Puts in order what a daemon before left behind. Out: a line for each thing, for the log.
    fn tidy(&self, tools: Tools) -> impl Future<Output = Vec<String>> + Send;

    /// `before`: what was found last.
    fn find_tools(&self, tools: Tools, before: Option<Found>)
    -> impl Future<Output = Found> + Send;

    /// How busy the node is, and where it does not say, the drives beneath these devices.
    fn load(&self, devices: Vec<DevNo>) -> impl Future<Output = Result<Busy, String>> + Send;

    /// What is dropped and does not end is among the strays, here and from here on.
    fn prepare(
        &self,
        order: RunOrder,
        strays: Strays,
    ) -> impl Future<Output = Result<Self::Prepared, Box<Ran>>> + Send;

    /// Until its end is heard of. Dropping it kills the checker.
    fn check(
        &self,
        prepared: Self::Prepared,
        phase: &watch::Sender<String>,
    ) -> impl Future<Output = Self::Heard> + Send;

    /// What is left of it, for which nobody may wait while a filesystem is frozen.
    fn settle(&self, heard: Self::Heard) -> impl Future<Output = Ran> + Send;

    /// syncfs(2). The error: it did not come back within `limit`, or could not be made.
    fn sync(
        &self,
        mount: HostPath,
        dev: DevNo,
        limit: Duration,
    ) -> impl Future<Output = Result<Duration, String>> + Send;

    /// What XFS itself says of its health. The error: it could not be asked.
    fn sick(
        &self,
        mount: HostPath,
        dev: DevNo,
        extent: Extent,
    ) -> impl Future<Output = Result<Vec<Signal>, String>> + Send;

    fn freeze(
        &self,
        order: FreezeOrder,
    ) -> impl Future<Output = Result<Self::Frozen, FreezeError>> + Send;

    /// Cancel-safe.
    fn thawed_early(&self, frozen: &mut Self::Frozen) -> impl Future<Output = String> + Send;

    fn thaw(&self, frozen: Self::Frozen) -> impl Future<Output = Thawed> + Send;

    /// A snapshot whose log has been replayed. Dropping it, or the future, has it removed.
    fn snapshot(
        &self,
        order: SnapshotOrder,
    ) -> impl Future<Output = Result<Self::Snapshot, SnapshotError>> + Send;

    fn device_of(&self, snapshot: &Self::Snapshot) -> Device;

    /// Why what was read of it counts for nothing: it had no more room for what changed beneath.
    /// None: it is whole.
    fn overflown(&self, snapshot: &Self::Snapshot) -> impl Future<Output = Option<String>> + Send;

    fn remove(&self, snapshot: Self::Snapshot) -> impl Future<Output = ()> + Send;
}

#[derive(Clone)]
pub struct Real {
    root: HostRoot,
    checker: Program,
    freezer: Freezer,
    health: Program,
    /// In the host's mount namespace.
    workers: JobWorkers,
    /// Our own binary, as which lvm is started in the host's mount namespace.
    program: PathBuf,
}

impl Real {
    pub fn new(context: &Context) -> Real {
        Real {
            root: context.root.clone(),
            checker: context.checker.clone(),
            freezer: Freezer {
                program: context.freezer.clone(),
                intents: context.freeze_intents.clone(),
            },
            health: Program {
                program: context.checker.program.clone(),
                args: arguments(Place::XfsHealth, &context.root),
            },
            workers: context.probe_workers.clone(),
            program: context.checker.program.clone(),
        }
    }
}

impl World for Real {
    type Prepared = Prepared;
    type Heard = Heard;
    type Frozen = Frozen;
    type Snapshot = Snapshot<Host>;

    fn next(&self, situation: &Situation<'_>, runs: &[&Run], now: Timestamp) -> Step {
        steps::next(situation, runs, now)
    }

    async fn tidy(&self, tools: Tools) -> Vec<String> {
        // What is frozen has writers that wait: first.
        let mut lines = self.freezer.recover().await;
        lines.extend(runner::clean_up(&self.checker).await);
        lines.extend(snapshot::tidy(&self.root, &tools, &self.program, &self.freezer).await);
        lines
    }

    async fn find_tools(&self, tools: Tools, before: Option<Found>) -> Found {
        tools::find(&self.root, tools, before).await
    }

    async fn load(&self, devices: Vec<DevNo>) -> Result<Busy, String> {
        load::look(&self.root, devices).await
    }

    async fn prepare(&self, order: RunOrder, strays: Strays) -> Result<Prepared, Box<Ran>> {
        runner::prepare(&self.checker, &strays, order).await
    }

    async fn check(&self, prepared: Prepared, phase: &watch::Sender<String>) -> Heard {
        prepared.run(phase).await
    }

    async fn settle(&self, heard: Heard) -> Ran {
        heard.settle().await
    }

    async fn sync(&self, mount: HostPath, dev: DevNo, limit: Duration) -> Result<Duration, String> {
        match self
            .workers
            .ask(
                &format!("syncfs {dev}"),
                Job::SyncFs { path: mount, dev },
                limit,
            )
            .await
        {
            Outcome::Answer(Answer::SyncFs { took }) => Ok(took),
            Outcome::Answer(Answer::Failed { error }) | Outcome::Failed(error) => Err(error),
            Outcome::Answer(_) => Err(UNASKED.to_owned()),
            Outcome::Stuck { waiting_in, .. } => {
                let place = waiting_in
                    .map(|place| format!(" ({place})"))
                    .unwrap_or_default();
                Err(format!(
                    "syncfs took longer than {} s{place}: a freeze would take longer still",
                    limit.as_secs()
                ))
            }
        }
    }

    async fn sick(
        &self,
        mount: HostPath,
        dev: DevNo,
        extent: Extent,
    ) -> Result<Vec<Signal>, String> {
        health::ask(&self.health, mount, dev, extent).await
    }

    async fn freeze(&self, order: FreezeOrder) -> Result<Frozen, FreezeError> {
        self.freezer.freeze(order).await
    }

    async fn thawed_early(&self, frozen: &mut Frozen) -> String {
        frozen.thawed_early().await
    }

    async fn thaw(&self, frozen: Frozen) -> Thawed {
        frozen.thaw().await
    }

    async fn snapshot(&self, order: SnapshotOrder) -> Result<Snapshot<Host>, SnapshotError> {
        let freezer = self.freezer.clone();
        let host = Host {
            root: self.root.clone(),
            worker: self.program.clone(),
            lvm: order.lvm.clone(),
            freezer,
        };
        snapshot::make(host, order).await
    }

    fn device_of(&self, snapshot: &Snapshot<Host>) -> Device {
        snapshot.device.clone()
    }

    async fn overflown(&self, snapshot: &Snapshot<Host>) -> Option<String> {
        snapshot.overflown().await
    }

    async fn remove(&self, snapshot: Snapshot<Host>) {
        snapshot.remove().await;
    }
}
