//! The operations of checks on the host: running checkers, freezing, snapshots, measuring the load.
//! A trait, so that tests can simulate filesystems that hang for a day, and verify that none stays
//! frozen.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::checks::freezer::{FreezeError, FreezeGuard, FreezeRequest, Freezer, ThawResult};
use crate::checks::load::{self, IoLoad, LoadError};
use crate::checks::lvm::HostLvm;
use crate::checks::lvm_snapshot::{self, LvmSnapshot, LvmSnapshotError, LvmSnapshotRequest};
use crate::checks::runner::{
    self, Device, FinishedRun, OrphanedRuns, PreparedRun, ReapedRun, RunRequest,
};
use crate::checks::tools::{self, AvailableTools};
use crate::checks::xfs_health::{self, HealthError, HealthScope};
use crate::context::{Context, JobWorkers};
use crate::jobs::{Job, JobResult};
use crate::worker_job::{JobError, answer};
use crate::worker_main::{WorkerRole, arguments};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::decision::{self, Decision, DecisionInput};
use diskvitals_fscheck::policy::Tools;
use diskvitals_fscheck::{FilesystemSignal, Run, RunActivity};
use diskvitals_host::helper::Program;
use diskvitals_host::root::HostRoot;

pub trait Backend: Clone + Send + Sync + 'static {
    type PreparedRun: Send + 'static;
    type FinishedRun: Send + 'static;
    type FreezeGuard: Send + 'static;
    type LvmSnapshot: Send + Sync + 'static;

    /// The next step: `fscheck::decision`.
    fn decide(&self, input: &DecisionInput<'_>, runs: &[&Run], now: Timestamp) -> Decision;

    /// Removes the leftovers of an earlier daemon. Returns a log line for each.
    fn clean_up(&self, tools: Tools) -> impl Future<Output = Vec<String>> + Send;

    /// `before`: the result of the last lookup.
    fn find_tools(
        &self,
        tools: Tools,
        before: Option<AvailableTools>,
    ) -> impl Future<Output = AvailableTools> + Send;

    /// How busy the node is; without pressure information, how busy the drives below these devices
    /// are.
    fn sample_load(
        &self,
        devices: Vec<DevNo>,
    ) -> impl Future<Output = Result<IoLoad, LoadError>> + Send;

    /// Processes of a dropped run that do not exit are added to the orphans, now and later.
    fn prepare(
        &self,
        request: RunRequest,
        orphans: OrphanedRuns,
    ) -> impl Future<Output = Result<Self::PreparedRun, Box<ReapedRun>>> + Send;

    /// Returns when the checker has ended. Dropping the future kills the checker.
    fn run(
        &self,
        prepared: Self::PreparedRun,
        activity: &watch::Sender<RunActivity>,
    ) -> impl Future<Output = Self::FinishedRun> + Send;

    /// Waits for the helper to exit. Must not be awaited while a filesystem is frozen.
    fn reap(&self, finished: Self::FinishedRun) -> impl Future<Output = ReapedRun> + Send;

    /// syncfs(2). An error: it did not return within `limit`, or could not be called.
    fn syncfs(
        &self,
        mount: HostPath,
        dev: DevNo,
        limit: Duration,
    ) -> impl Future<Output = Result<Duration, JobError>> + Send;

    /// The health that the kernel tracks for an XFS. An error: the query failed.
    fn query_health(
        &self,
        mount: HostPath,
        dev: DevNo,
        scope: HealthScope,
    ) -> impl Future<Output = Result<Vec<FilesystemSignal>, HealthError>> + Send;

    fn freeze(
        &self,
        request: FreezeRequest,
    ) -> impl Future<Output = Result<Self::FreezeGuard, FreezeError>> + Send;

    /// Returns when the filesystem is thawed without a request. Cancel-safe.
    fn wait_thawed_early(
        &self,
        frozen: &mut Self::FreezeGuard,
    ) -> impl Future<Output = String> + Send;

    fn thaw(&self, frozen: Self::FreezeGuard) -> impl Future<Output = ThawResult> + Send;

    /// A snapshot whose log has been replayed. Dropping it, or the future, removes it.
    fn snapshot(
        &self,
        request: LvmSnapshotRequest,
    ) -> impl Future<Output = Result<Self::LvmSnapshot, LvmSnapshotError>> + Send;

    fn device_of(&self, snapshot: &Self::LvmSnapshot) -> Device;

    /// Why the data read from the snapshot is invalid: it ran out of space. None: it is intact.
    fn overflow_reason(
        &self,
        snapshot: &Self::LvmSnapshot,
    ) -> impl Future<Output = Option<String>> + Send;

    fn remove(&self, snapshot: Self::LvmSnapshot) -> impl Future<Output = ()> + Send;
}

#[derive(Clone)]
pub struct HostBackend {
    root: HostRoot,
    /// Its program is our own binary.
    checker_helper: Program,
    freezer: Freezer,
    health_helper: Program,
    /// In the host's mount namespace.
    workers: JobWorkers,
}

impl HostBackend {
    pub fn new(context: &Context) -> HostBackend {
        HostBackend {
            root: context.root.clone(),
            checker_helper: context.checker.clone(),
            freezer: Freezer {
                program: context.freezer.clone(),
                intents: context.freeze_intents.clone(),
            },
            health_helper: Program {
                program: context.checker.program.clone(),
                args: arguments(WorkerRole::XfsHealth, &context.root),
            },
            workers: context.probe_workers.clone(),
        }
    }
}

impl Backend for HostBackend {
    type PreparedRun = PreparedRun;
    type FinishedRun = FinishedRun;
    type FreezeGuard = FreezeGuard;
    type LvmSnapshot = LvmSnapshot<HostLvm>;

    fn decide(&self, input: &DecisionInput<'_>, runs: &[&Run], now: Timestamp) -> Decision {
        decision::decide(input, runs, now)
    }

    async fn clean_up(&self, tools: Tools) -> Vec<String> {
        // Frozen filesystems first: their writers wait.
        let mut lines = self.freezer.thaw_leftovers().await;
        lines.extend(runner::detach_leftover_loops(&self.checker_helper).await);
        let program = &self.checker_helper.program;
        lines.extend(lvm_snapshot::clean_up(&self.root, &tools, program, &self.freezer).await);
        lines
    }

    async fn find_tools(&self, tools: Tools, before: Option<AvailableTools>) -> AvailableTools {
        tools::find_tools(&self.root, tools, before).await
    }

    async fn sample_load(&self, devices: Vec<DevNo>) -> Result<IoLoad, LoadError> {
        load::measure(&self.root, devices).await
    }

    async fn prepare(
        &self,
        request: RunRequest,
        orphans: OrphanedRuns,
    ) -> Result<PreparedRun, Box<ReapedRun>> {
        runner::prepare(&self.checker_helper, &orphans, request).await
    }

    async fn run(
        &self,
        prepared: PreparedRun,
        activity: &watch::Sender<RunActivity>,
    ) -> FinishedRun {
        prepared.run(activity).await
    }

    async fn reap(&self, finished: FinishedRun) -> ReapedRun {
        finished.reap().await
    }

    async fn syncfs(
        &self,
        mount: HostPath,
        dev: DevNo,
        limit: Duration,
    ) -> Result<Duration, JobError> {
        let job = Job::SyncFs { path: mount, dev };
        let target = format!("syncfs {dev}");
        answer(self.workers.run(&target, job, limit).await, |result| match result {
            JobResult::SyncFs { elapsed } => Some(elapsed),
            _ => None,
        })
    }

    async fn query_health(
        &self,
        mount: HostPath,
        dev: DevNo,
        scope: HealthScope,
    ) -> Result<Vec<FilesystemSignal>, HealthError> {
        xfs_health::query(&self.health_helper, mount, dev, scope).await
    }

    async fn freeze(&self, request: FreezeRequest) -> Result<FreezeGuard, FreezeError> {
        self.freezer.freeze(request).await
    }

    async fn wait_thawed_early(&self, frozen: &mut FreezeGuard) -> String {
        frozen.wait_thawed_early().await
    }

    async fn thaw(&self, frozen: FreezeGuard) -> ThawResult {
        frozen.thaw().await
    }

    async fn snapshot(
        &self,
        request: LvmSnapshotRequest,
    ) -> Result<LvmSnapshot<HostLvm>, LvmSnapshotError> {
        let host = HostLvm {
            root: self.root.clone(),
            worker: self.checker_helper.program.clone(),
            lvm: request.lvm.clone(),
            freezer: self.freezer.clone(),
        };
        lvm_snapshot::create(host, request).await
    }

    fn device_of(&self, snapshot: &LvmSnapshot<HostLvm>) -> Device {
        snapshot.device.clone()
    }

    async fn overflow_reason(&self, snapshot: &LvmSnapshot<HostLvm>) -> Option<String> {
        snapshot.overflow_reason().await
    }

    async fn remove(&self, snapshot: LvmSnapshot<HostLvm>) {
        snapshot.remove().await;
    }
}
