//! A fake backend, whose filesystems behave as a test says. Time is tokio's, and stands still while anybody
//! works.

mod fixtures;
mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::checks::backend::Backend;
use crate::checks::freezer::{FreezeError, FreezeRequest, ThawCause, ThawResult};
use crate::checks::load::{IoLoad, LoadError, LoadSource};
use crate::checks::lvm_snapshot::{LvmSnapshotError, LvmSnapshotRequest};
use crate::checks::runner::{Device, OrphanedRuns, ReapedRun, RunRequest};
use crate::checks::tools::AvailableTools;
use crate::checks::xfs_health::{HealthError, HealthScope};
use crate::worker_job::JobError;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::decision::{CheckOutcome, Decision, DecisionInput};
use diskvitals_fscheck::policy::Tools;
use diskvitals_fscheck::{
    CheckVerdict, CheckerOutput, FilesystemSignal, Mode, Run, RunActivity, RunResult, Termination,
};
use diskvitals_host::clock::now;
use diskvitals_host::exec::UnkillableChild;

pub use fixtures::{all_tools, desired, desired_frozen, desired_scheduled, signal, target};
pub use harness::{Harness, harness, harness_at, harness_with};

/// How a filesystem takes what is done to it.
#[derive(Clone, Debug)]
pub struct FakeBehavior {
    pub prepare_takes: Duration,
    /// The checker cannot begin.
    pub unpreparable: bool,
    pub run_takes: Duration,
    /// The checker hangs at its time-out, and cannot be killed until it is let go.
    pub unkillable: bool,
    /// The same, at the moment at which it is stopped.
    pub unstoppable: bool,
    pub panics: bool,
    pub syncfs: Result<Duration, JobError>,
    pub freeze_takes: Duration,
    pub freeze_error: Option<FreezeError>,
    /// It is thawed by somebody else after so long.
    pub thawed_early_after: Option<Duration>,
    /// Whether it is thawed is not known then.
    pub thaw_unconfirmed: bool,
    /// The end of the checker's helper, after its end was heard of.
    pub reap_takes: Duration,
    /// The checker's helper tells of its end so late.
    pub exit_reported_after: Duration,
    pub thaw_takes: Duration,
    pub health: Result<Vec<FilesystemSignal>, String>,
    /// Snapshots: why there is none; how long it takes; whether it ran over.
    pub snapshot_error: Option<fn() -> LvmSnapshotError>,
    pub snapshot_takes: Duration,
    pub snapshot_overflows: bool,
}

pub const RUN_TAKES: Duration = Duration::from_secs(2);

impl Default for FakeBehavior {
    fn default() -> FakeBehavior {
        let moment = Duration::from_millis(100);
        FakeBehavior {
            prepare_takes: moment,
            unpreparable: false,
            run_takes: RUN_TAKES,
            unkillable: false,
            unstoppable: false,
            panics: false,
            syncfs: Ok(moment),
            freeze_takes: moment,
            freeze_error: None,
            thawed_early_after: None,
            thaw_unconfirmed: false,
            reap_takes: Duration::ZERO,
            exit_reported_after: Duration::ZERO,
            thaw_takes: moment,
            health: Ok(Vec::new()),
            snapshot_error: None,
            snapshot_takes: moment,
            snapshot_overflows: false,
        }
    }
}

#[derive(Default)]
pub struct FakeState {
    pub behaviors: BTreeMap<String, FakeBehavior>,
    pub load: Option<Result<IoLoad, String>>,
    pub load_sampled_at: Vec<Duration>,
    pub cleanup_takes: Duration,
    pub cleanups: usize,
    pub tools: Option<AvailableTools>,
    /// Seconds since the beginning, and what was done to whom.
    pub log: Vec<(f64, String)>,
    /// Checkers that run, by device and mode.
    pub running: BTreeSet<(String, Mode)>,
    pub most_running: usize,
    pub frozen: BTreeSet<String>,
    pub snapshots: BTreeSet<String>,
    pub unkillable: Vec<oneshot::Sender<()>>,
    pub violations: Vec<String>,
    pub requests: Vec<RunRequest>,
}

#[derive(Clone)]
pub struct FakeBackend {
    pub state: Arc<Mutex<FakeState>>,
    begun: Instant,
}

impl FakeBackend {
    pub fn with_state<T>(&self, look: impl FnOnce(&mut FakeState) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn behavior(&self, device: &str) -> FakeBehavior {
        self.with_state(|state| state.behaviors.get(device).cloned().unwrap_or_default())
    }

    fn record(&self, what: String) {
        let at = self.begun.elapsed().as_secs_f64();
        self.with_state(|state| state.log.push((at, what)));
    }
}

pub struct FakePreparedRun(RunRequest, OrphanedRuns);

pub struct FakeFreezeGuard {
    backend: FakeBackend,
    device: String,
    at: Instant,
    /// Then the freezer thaws by itself.
    limit: Instant,
    over: bool,
}

impl FakeFreezeGuard {
    fn end(&mut self, how: &str) {
        if !self.over {
            self.over = true;
            self.backend.with_state(|state| state.frozen.remove(&self.device));
            self.backend.record(format!("{how} {}", self.device));
        }
    }
}

impl Drop for FakeFreezeGuard {
    fn drop(&mut self) {
        self.end("dropped, thawed");
    }
}

pub struct FakeSnapshot {
    backend: FakeBackend,
    device: Device,
    over: bool,
}

impl Drop for FakeSnapshot {
    fn drop(&mut self) {
        self.backend.with_state(|state| state.snapshots.remove(&self.device.name));
        if !self.over {
            self.backend.record(format!("dropped, removed {}", self.device.name));
        }
    }
}

struct FakeChecker {
    backend: FakeBackend,
    key: (String, Mode),
    ended: bool,
    strays: OrphanedRuns,
}

impl Drop for FakeChecker {
    fn drop(&mut self) {
        if !self.ended && self.backend.behavior(&self.key.0).unstoppable {
            let (release, held) = oneshot::channel::<()>();
            let (backend, key) = (self.backend.clone(), self.key.clone());
            backend.with_state(|state| state.unkillable.push(release));
            let end = async move {
                held.await.ok();
                backend.with_state(|state| state.running.remove(&key));
            };
            let remains = async {
                Some(UnkillableChild::watch(
                    Some("D (disk sleep) in folio_wait_bit".to_owned()),
                    end,
                ))
            };
            return self.strays.add(async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                remains.await
            });
        }
        self.backend.with_state(|state| state.running.remove(&self.key));
        if !self.ended {
            self.backend.record(format!("killed {}", self.key.0));
        }
    }
}

/// `sda1` of the mount `/mnt/sda1`.
fn device_of(mount: &HostPath) -> String {
    mount.to_string().trim_start_matches("/mnt/").to_owned()
}

/// Live runs as many as the terms say, then two frozen ones where they are allowed; a snapshot in
/// their place where there is one. What the kernel says ends it. Not the real rules: these are
/// tested where they are.
pub fn decide(situation: &DecisionInput<'_>, runs: &[&Run], at: Timestamp) -> Decision {
    let done = |verdict, reason: &str| {
        Decision::Done(CheckOutcome { verdict, reason: reason.to_owned(), mode: situation.mode })
    };
    if !situation.signals.is_empty() {
        return done(CheckVerdict::Corrupted, "the kernel says so");
    }
    let of = |mode| runs.iter().filter(|run| run.mode == mode).count();
    if runs.iter().any(|run| run.result == RunResult::Failed) {
        return done(
            CheckVerdict::Failed,
            &runs.iter().map(|run| run.failure_reason.clone()).collect::<String>(),
        );
    }
    if situation.terms.snapshot && situation.can_snapshot && of(Mode::Snapshot) == 0 {
        return Decision::Run(Mode::Snapshot);
    }
    if of(Mode::Snapshot) > 0 {
        return done(CheckVerdict::Clean, "nothing was found in the snapshot");
    }
    if situation.mode != Mode::Live {
        return if runs.is_empty() {
            Decision::Run(situation.mode)
        } else {
            done(CheckVerdict::Clean, "nothing was found")
        };
    }
    if of(Mode::Live) < situation.terms.runs as usize {
        return Decision::Run(Mode::Live);
    }
    if situation.terms.freeze {
        if let Some(why) = situation.freeze_refusal {
            return done(CheckVerdict::Inconclusive, why);
        }
        match runs.iter().rev().find(|run| run.mode == Mode::Frozen) {
            Some(last) if of(Mode::Frozen) == 1 => {
                let until = last.started.checked_add(last.duration + situation.terms.gap).unwrap();
                return if at < until {
                    Decision::Wait { until }
                } else {
                    Decision::Run(Mode::Frozen)
                };
            }
            None => return Decision::Run(Mode::Frozen),
            Some(_) => {}
        }
    }
    done(CheckVerdict::Clean, "nothing was found")
}

fn run(mode: Mode, duration: Duration, end: Termination) -> Run {
    let result = if end == Termination::Exited(0) { RunResult::Clean } else { RunResult::Failed };
    Run {
        mode,
        started: now(),
        duration,
        active: duration,
        held: None,
        failure_reason: if result == RunResult::Failed {
            format!("{end:?}")
        } else {
            String::new()
        },
        termination: end,
        result,
        checker_error: None,
        problems: Vec::new(),
        more_problems: 0,
        no_error_found: false,
        pending_replay: None,
        bytes_read: 0,
        peak_memory: None,
        command: "e2fsck -fn".to_owned(),
        output: CheckerOutput::default(),
        filesystem_uuid: None,
    }
}

impl Backend for FakeBackend {
    type PreparedRun = FakePreparedRun;
    type FinishedRun = (ReapedRun, Duration);
    type FreezeGuard = FakeFreezeGuard;
    type LvmSnapshot = FakeSnapshot;

    fn decide(&self, situation: &DecisionInput<'_>, runs: &[&Run], now: Timestamp) -> Decision {
        decide(situation, runs, now)
    }

    async fn clean_up(&self, _tools: Tools) -> Vec<String> {
        let long = self.with_state(|state| state.cleanup_takes);
        tokio::time::sleep(long).await;
        self.with_state(|state| state.cleanups += 1);
        Vec::new()
    }

    async fn find_tools(&self, _tools: Tools, _before: Option<AvailableTools>) -> AvailableTools {
        self.with_state(|state| state.tools.clone()).unwrap_or_else(all_tools)
    }

    async fn sample_load(&self, _devices: Vec<DevNo>) -> Result<IoLoad, LoadError> {
        let at = self.begun.elapsed();
        self.with_state(|state| {
            state.load_sampled_at.push(at);
            state.load.clone().unwrap_or(Ok(IoLoad { percent: 0.0, source: LoadSource::Pressure }))
        })
        .map_err(|text| LoadError::Read {
            path: "/proc/pressure/io",
            source: std::io::Error::other(text),
        })
    }

    async fn prepare(
        &self,
        request: RunRequest,
        strays: OrphanedRuns,
    ) -> Result<FakePreparedRun, Box<ReapedRun>> {
        let how = self.behavior(&request.device.name);
        self.with_state(|state| state.requests.push(request.clone()));
        tokio::time::sleep(how.prepare_takes).await;
        if how.unpreparable {
            return Err(Box::new(ReapedRun {
                run: run(
                    request.mode,
                    how.prepare_takes,
                    Termination::NotStarted("no device".to_owned()),
                ),
                unkillable: None,
            }));
        }
        Ok(FakePreparedRun(request, strays))
    }

    async fn reap(&self, (ran, lingers): (ReapedRun, Duration)) -> ReapedRun {
        tokio::time::sleep(lingers).await;
        ran
    }

    async fn run(
        &self,
        FakePreparedRun(request, strays): FakePreparedRun,
        activity: &watch::Sender<RunActivity>,
    ) -> (ReapedRun, Duration) {
        let (device, mode) = (request.device.name.clone(), request.mode);
        let how = self.behavior(&device);
        let key = (device.clone(), mode);
        self.record(format!("{} {device}", mode.name()));
        self.with_state(|state| {
            if mode == Mode::Frozen && !state.frozen.contains(&device) {
                state.violations.push(format!("a frozen run of {device}, which is not frozen"));
            }
            if state.running.iter().any(|(other, _)| *other == device) {
                state.violations.push(format!("two checkers on {device}"));
            }
            state.running.insert(key.clone());
            state.most_running = state.most_running.max(state.running.len());
        });
        let mut running = FakeChecker { backend: self.clone(), key, ended: false, strays };
        assert!(!how.panics, "a task that is lost");
        // Whoever checks says each tenth of a second what it does.
        let (begun, mut number) = (Instant::now(), 0);
        let (long, timed_out) = if how.run_takes < request.timeout {
            (how.run_takes, false)
        } else {
            (request.timeout, true)
        };
        while begun.elapsed() < long {
            tokio::time::sleep(Duration::from_millis(100).min(long - begun.elapsed())).await;
            number += 1;
            activity.send_replace(RunActivity { phase: format!("Pass {number}"), permille: None });
        }
        if timed_out {
            tokio::time::sleep(how.exit_reported_after).await;
        }
        running.ended = true;
        let remains = (timed_out && how.unkillable).then(|| {
            let (release, held) = oneshot::channel::<()>();
            self.with_state(|state| state.unkillable.push(release));
            UnkillableChild::watch(
                Some("D (disk sleep) in folio_wait_bit".to_owned()),
                async move {
                    held.await.ok();
                },
            )
        });
        let end = if remains.is_some() {
            Termination::Stuck(None)
        } else if timed_out {
            Termination::TimedOut
        } else {
            Termination::Exited(0)
        };
        (ReapedRun { run: run(mode, long, end), unkillable: remains }, how.reap_takes)
    }

    async fn syncfs(
        &self,
        mount: HostPath,
        _dev: DevNo,
        limit: Duration,
    ) -> Result<Duration, JobError> {
        let long = self.behavior(&device_of(&mount)).syncfs?;
        tokio::time::sleep(long.min(limit)).await;
        if long > limit {
            Err(JobError::Stuck { since: diskvitals_host::clock::now(), waiting_in: None })
        } else {
            Ok(long)
        }
    }

    async fn query_health(
        &self,
        mount: HostPath,
        _dev: DevNo,
        _extent: HealthScope,
    ) -> Result<Vec<FilesystemSignal>, HealthError> {
        self.behavior(&device_of(&mount)).health.map_err(HealthError::Failed)
    }

    async fn freeze(&self, request: FreezeRequest) -> Result<FakeFreezeGuard, FreezeError> {
        let device = device_of(&request.mount);
        let how = self.behavior(&device);
        let at = Instant::now();
        // As the real one: it may be frozen at any moment from here, and is thawed when this is
        // dropped.
        self.record(format!("freezing {device}"));
        self.with_state(|state| {
            if !state.frozen.insert(device.clone()) {
                state.violations.push(format!("{device} frozen twice"));
            }
        });
        let mut frozen =
            FakeFreezeGuard { backend: self.clone(), device, at, limit: at, over: false };
        tokio::time::sleep(how.freeze_takes).await;
        frozen.limit = Instant::now() + request.limit;
        match how.freeze_error {
            Some(error) => {
                frozen.end("not frozen");
                Err(error)
            }
            None => Ok(frozen),
        }
    }

    async fn wait_thawed_early(&self, frozen: &mut FakeFreezeGuard) -> String {
        match self.behavior(&frozen.device).thawed_early_after {
            Some(early) => {
                tokio::time::sleep_until(frozen.at + early).await;
                frozen.end("early, thawed");
                "the helper was killed".to_owned()
            }
            None => {
                tokio::time::sleep_until(frozen.limit).await;
                frozen.end("limit, thawed");
                "writers may not be held longer".to_owned()
            }
        }
    }

    async fn thaw(&self, mut frozen: FakeFreezeGuard) -> ThawResult {
        let how = self.behavior(&frozen.device);
        let late = how.thawed_early_after.is_none() && frozen.limit <= Instant::now();
        if !frozen.over {
            tokio::time::sleep(how.thaw_takes).await;
        }
        let (early, way) = match how.thawed_early_after {
            Some(early) if frozen.at + early <= Instant::now() => (
                Some("the helper was killed".to_owned()),
                if how.thaw_unconfirmed { ThawCause::Unconfirmed } else { ThawCause::Unexpected },
            ),
            _ if late => (Some("writers may not be held longer".to_owned()), ThawCause::Limit),
            _ => (None, ThawCause::Requested),
        };
        frozen.end("thawed");
        ThawResult {
            held: frozen.at.elapsed(),
            freeze_duration: how.freeze_takes,
            early_reason: early,
            cause: way,
        }
    }

    async fn snapshot(
        &self,
        request: LvmSnapshotRequest,
    ) -> Result<FakeSnapshot, LvmSnapshotError> {
        let how = self.behavior(&request.volume);
        if let Some(why) = how.snapshot_error {
            return Err(why());
        }
        let device = Device { name: format!("dm-{}", request.volume), dev: DevNo::new(253, 7) };
        self.record(format!("snapshot {}", request.volume));
        self.with_state(|state| state.snapshots.insert(device.name.clone()));
        let snapshot = FakeSnapshot { backend: self.clone(), device, over: false };
        tokio::time::sleep(how.snapshot_takes).await;
        Ok(snapshot)
    }

    fn device_of(&self, snapshot: &FakeSnapshot) -> Device {
        snapshot.device.clone()
    }

    async fn overflow_reason(&self, snapshot: &FakeSnapshot) -> Option<String> {
        let of = snapshot.device.name.trim_start_matches("dm-").to_owned();
        self.behavior(&of).snapshot_overflows.then(|| "the snapshot had no more room".to_owned())
    }

    async fn remove(&self, mut snapshot: FakeSnapshot) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        snapshot.over = true;
        self.record(format!("removed {}", snapshot.device.name));
    }
}
