//! Executes one check, from its first run to its outcome, in the steps that
//! `fscheck::decision` chooses.
//!
//! In: the desired check, a permit, a cancellation token. Out: its progress (`TaskProgress`) and
//! its final result (`TaskResult`). Waits for nothing else while a filesystem is frozen, and thaws
//! before anything else on every exit.
//!
//! The nested futures are boxed: together they would overflow the stack of our threads.

mod frozen;
mod snapshot;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::checks::backend::Backend;
use crate::checks::progress::{ProgressMap, TaskProgress};
use crate::checks::queue::{Permit, PermitRequest, failed_outcome, in_parentheses};
use crate::checks::runner::{Device, OrphanedRuns, ReapedRun, RunRequest};
use crate::checks::xfs_health::{HealthError, HealthScope};
use diskvitals_fscheck::decision::{CheckOutcome, Decision, DecisionInput};
use diskvitals_fscheck::{
    CheckState, DesiredCheck, Filesystem, FilesystemSignal, Mode, Run, RunActivity, RunProgress,
    Termination,
};
use diskvitals_host::clock;
use diskvitals_host::exec::UnkillableChild;
use diskvitals_text::causes::with_causes;

/// If syncfs takes this long, a freeze would take even longer.
const SYNCFS_TIMEOUT: Duration = Duration::from_secs(5);
/// The checker must end before the freezer's own limit thaws during the run.
const FREEZE_MARGIN: Duration = Duration::from_millis(200);
/// How long the freezer may take to confirm the thaw. Dropping the guard also thaws.
const THAW_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a checker that reached its time-out may take to exit. Killing it takes a second at
/// most.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Far more steps than any check takes: a bound against endless loops.
const MAX_STEPS: usize = 100;
/// Minimum time between two decisions to wait.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// The result of a check.
#[derive(Debug)]
pub struct TaskResult {
    /// None: the check was cancelled.
    pub outcome: Option<CheckOutcome>,
    pub runs: Vec<Arc<Run>>,
    pub signals: Vec<FilesystemSignal>,
    /// Checkers that could not be killed.
    pub unkillable: Vec<UnkillableChild>,
}

/// The inputs of a check.
pub struct TaskInputs {
    pub checker: PathBuf,
    /// Path of lvm; None where snapshots cannot be made.
    pub lvm: Option<PathBuf>,
    pub progress: watch::Sender<ProgressMap>,
    /// Signals from the kernel about the filesystem.
    pub signals: watch::Receiver<Vec<FilesystemSignal>>,
    pub cancel: CancellationToken,
    /// None while the check needs no permit.
    pub permit: Option<Permit>,
    pub permit_requests: mpsc::UnboundedSender<PermitRequest>,
}

pub(crate) async fn run_check<W: Backend>(
    backend: W,
    desired: DesiredCheck,
    inputs: TaskInputs,
) -> TaskResult {
    let mut task = CheckTask {
        backend,
        desired,
        inputs,
        clock: SteadyClock { at: clock::now(), since: Instant::now() },
        runs: Vec::new(),
        own_signals: Vec::new(),
        freeze_refusal: None,
        snapshot_unavailable: false,
        orphans: OrphanedRuns::default(),
        unkillable: Vec::new(),
    };
    let outcome = match Box::pin(task.run_to_outcome()).await {
        Ok(outcome) => Some(outcome),
        Err(Abort::Cancelled) => None,
        Err(Abort::ThawUnconfirmed(why)) => Some(task.thaw_unconfirmed_outcome(&why)),
        Err(Abort::Stuck(waiting_in)) => {
            Some(stuck_outcome(waiting_in.as_deref(), task.strongest_mode()))
        }
    };
    // Runs before the task ends: until then no other check of this filesystem starts.
    task.collect_orphans().await;
    let unkillable = std::mem::take(&mut task.unkillable);
    let signals = task.signals();
    TaskResult { outcome, runs: task.runs, signals, unkillable }
}

fn stuck_outcome(waiting_in: Option<&str>, mode: Mode) -> CheckOutcome {
    let reason = format!(
        "the checker hangs in the kernel{} and cannot be killed: the device does not answer",
        in_parentheses(waiting_in)
    );
    failed_outcome(reason, mode)
}

/// Wall-clock time that never jumps during a check: its differences are true durations.
#[derive(Clone, Copy)]
struct SteadyClock {
    at: Timestamp,
    since: Instant,
}

impl SteadyClock {
    fn now(&self) -> Timestamp {
        self.at.checked_add(self.since.elapsed()).unwrap_or(self.at)
    }
}

/// Why a check ended before its decision.
enum Abort {
    Cancelled,
    /// A checker cannot be killed; the text names the kernel function in which it waits.
    Stuck(Option<String>),
    /// The filesystem may still be frozen; the text explains why that is unknown.
    ThawUnconfirmed(String),
}

struct CheckTask<W> {
    backend: W,
    desired: DesiredCheck,
    inputs: TaskInputs,
    clock: SteadyClock,
    runs: Vec<Arc<Run>>,
    /// Signals that this check has found.
    own_signals: Vec<FilesystemSignal>,
    freeze_refusal: Option<String>,
    snapshot_unavailable: bool,
    /// Runs that were dropped.
    orphans: OrphanedRuns,
    unkillable: Vec<UnkillableChild>,
}

impl<W: Backend> CheckTask<W> {
    async fn run_to_outcome(&mut self) -> Result<CheckOutcome, Abort> {
        // A live run does not need this result; a frozen run queries again.
        if let Err(error) = self.query_xfs_health(HealthScope::Inodes).await? {
            tracing::info!(check = %self.desired.id, error = with_causes(&error), "the health that the kernel tracks for a filesystem is unknown");
        }
        for _ in 0..MAX_STEPS {
            match self.decide() {
                Decision::Done(outcome) => return Ok(outcome),
                Decision::Wait { until } => self.wait(until).await?,
                Decision::Run(mode) => {
                    self.acquire_permit().await?;
                    match mode {
                        Mode::Frozen => Box::pin(self.frozen_run()).await?,
                        Mode::Snapshot => Box::pin(self.snapshot_run()).await?,
                        Mode::Live | Mode::ReadOnly | Mode::Unmounted => {
                            Box::pin(self.run_checker(mode, self.device())).await?
                        }
                    }
                }
            }
        }
        let reason = format!("an internal error: no verdict after {MAX_STEPS} steps");
        Ok(failed_outcome(reason, self.desired.target.mode))
    }

    fn decide(&self) -> Decision {
        let signals = self.signals();
        let device = self.desired.target.device_path();
        let input = DecisionInput {
            filesystem: self.desired.target.filesystem,
            device: &device,
            mode: self.desired.target.mode,
            terms: &self.desired.terms,
            signals: &signals,
            can_snapshot: self.desired.target.logical_volume.is_some()
                && self.inputs.lvm.is_some()
                && !self.snapshot_unavailable,
            freeze_refusal: self.freeze_refusal.as_deref(),
        };
        let runs: Vec<&Run> = self.runs.iter().map(|run| &**run).collect();
        self.backend.decide(&input, &runs, self.clock.now())
    }

    /// The kernel's current signals, and those that this check has found.
    fn signals(&self) -> Vec<FilesystemSignal> {
        let mut signals = self.inputs.signals.borrow().clone();
        for found in &self.own_signals {
            if !signals.contains(found) {
                signals.push(found.clone());
            }
        }
        signals
    }

    /// The strongest mode of the runs so far, or the target's mode.
    fn strongest_mode(&self) -> Mode {
        self.runs.iter().map(|run| run.mode).max().unwrap_or(self.desired.target.mode)
    }

    fn device(&self) -> Device {
        Device { name: self.desired.target.device.clone(), dev: self.desired.target.dev }
    }

    // --- progress and permit

    fn publish(&self, change: impl FnOnce(&mut TaskProgress)) {
        let signals = self.signals();
        self.inputs.progress.send_modify(|all| {
            if let Some(progress) = all.get_mut(&self.desired.id) {
                progress.signals = signals;
                progress.runs.clone_from(&self.runs);
                change(progress);
            }
        });
    }

    fn set_phase(&self, phase: String) {
        self.set_state(phase, None);
    }

    /// What the checker of the run `name` does, which runs since `started`.
    fn set_activity(&self, name: &str, started: Timestamp, activity: &RunActivity) {
        let elapsed = self.clock.now().duration_since(started);
        let elapsed = Duration::try_from(elapsed).unwrap_or_default();
        let progress = RunProgress::new(started, elapsed, activity.permille);
        self.set_state(with_phase(name, &activity.phase), Some(progress));
    }

    fn set_state(&self, phase: String, run: Option<RunProgress>) {
        self.publish(|progress| {
            progress.state = CheckState::Running { phase, progress: run };
        });
    }

    /// Drops the operation when the check is cancelled.
    async fn or_cancelled<T>(&mut self, operation: impl Future<Output = T>) -> Result<T, Abort> {
        tokio::select! {
            biased;
            () = self.inputs.cancel.cancelled() => Err(Abort::Cancelled),
            value = operation => Ok(value),
        }
    }

    async fn acquire_permit(&mut self) -> Result<(), Abort> {
        if self.inputs.permit.is_some() {
            return Ok(());
        }
        let until = self.clock.now();
        self.publish(|progress| {
            progress.state = CheckState::Waiting {
                until,
                why: "it waits for its turn: other checks go on".to_owned(),
            };
        });
        let (reply, issued) = oneshot::channel();
        // An error, here and below: the source is ending, and with it this check.
        let _ = self.inputs.permit_requests.send((self.desired.id.clone(), reply));
        let permit = self.or_cancelled(issued).await?;
        self.inputs.permit = Some(permit.map_err(|_| Abort::Cancelled)?);
        Ok(())
    }

    /// Returns the permit during the wait. Ends early when the kernel reports a new signal.
    async fn wait(&mut self, until: Timestamp) -> Result<(), Abort> {
        self.inputs.permit = None;
        self.publish(|progress| {
            progress.state = CheckState::Waiting {
                until,
                why: "two frozen runs count only with a pause between them".to_owned(),
            };
        });
        let left = Duration::try_from(until.duration_since(self.clock.now()))
            .unwrap_or_default()
            .max(MIN_WAIT);
        let mut signals = self.inputs.signals.clone();
        let known = signals.borrow().len();
        let passed = async move {
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                Ok(_) = signals.wait_for(|signals| signals.len() > known) => {}
            }
        };
        self.or_cancelled(passed).await
    }

    // --- runs

    /// For example `live run 2 of 3`.
    fn run_label(&self, mode: Mode) -> String {
        let number = self.runs.iter().filter(|run| run.mode == mode).count() + 1;
        match mode {
            Mode::Live => format!(
                "live run {number} of {}",
                self.desired.terms.runs.max(u32::try_from(number).unwrap_or(u32::MAX))
            ),
            Mode::Frozen => format!("frozen run {number} of {}", number.max(2)),
            Mode::Snapshot | Mode::ReadOnly | Mode::Unmounted => format!("{} run", mode.name()),
        }
    }

    fn run_request(&self, mode: Mode, device: Device) -> RunRequest {
        let DesiredCheck { target, terms, .. } = &self.desired;
        let frozen = mode == Mode::Frozen;
        RunRequest {
            filesystem: target.filesystem,
            mode,
            device,
            members: target
                .members
                .iter()
                .map(|(name, dev)| Device { name: name.clone(), dev: *dev })
                .collect(),
            command: self.inputs.checker.clone(),
            timeout: if frozen {
                terms.budget.saturating_sub(FREEZE_MARGIN)
            } else {
                terms.timeout
            },
            memory: terms.memory,
            bytes_per_second: if frozen { None } else { terms.bytes_per_second },
        }
    }

    fn record_run(&mut self, run: Run) {
        self.runs.push(Arc::new(run));
        self.publish(|_| {});
    }

    /// Records a run, and aborts when its checker could not be killed.
    fn record_reaped(
        &mut self,
        reaped: ReapedRun,
        started: Timestamp,
        change: impl FnOnce(&mut Run),
    ) -> Result<(), Abort> {
        let ReapedRun { mut run, unkillable } = reaped;
        run.started = started;
        change(&mut run);
        self.record_run(run);
        self.unkillable.extend(unkillable);
        self.ensure_none_stuck()
    }

    fn ensure_none_stuck(&self) -> Result<(), Abort> {
        match self.unkillable.first() {
            Some(unkillable) => Err(Abort::Stuck(unkillable.waiting_in.clone())),
            None => Ok(()),
        }
    }

    async fn collect_orphans(&mut self) {
        let left = self.orphans.collect_unkillable().await;
        self.unkillable.extend(left);
    }

    /// None: preparing failed, which is recorded as a run.
    async fn prepare(&mut self, request: RunRequest) -> Result<Option<W::PreparedRun>, Abort> {
        // A prepared run that was dropped must have exited before another one starts.
        self.collect_orphans().await;
        self.ensure_none_stuck()?;
        let started = self.clock.now();
        self.set_phase(format!("{}: preparing", self.run_label(request.mode)));
        let (backend, orphans) = (self.backend.clone(), self.orphans.clone());
        match self.or_cancelled(Box::pin(backend.prepare(request, orphans))).await? {
            Ok(prepared) => Ok(Some(prepared)),
            Err(reaped) => self.record_reaped(*reaped, started, |_| {}).map(|()| None),
        }
    }

    async fn run_checker(&mut self, mode: Mode, device: Device) -> Result<(), Abort> {
        let Some(prepared) = self.prepare(self.run_request(mode, device)).await? else {
            return Ok(());
        };
        let (started, name) = (self.clock.now(), self.run_label(mode));
        let (activity, mut activities) = watch::channel(RunActivity::default());
        self.set_activity(&name, started, &activities.borrow_and_update());
        let backend = self.backend.clone();
        let finished = {
            let mut run = Box::pin(backend.run(prepared, &activity));
            loop {
                tokio::select! {
                    biased;
                    () = self.inputs.cancel.cancelled() => return Err(Abort::Cancelled),
                    finished = &mut run => break finished,
                    Ok(()) = activities.changed() => self.set_activity(&name, started, &activities.borrow_and_update()),
                }
            }
        };
        let reaped = backend.reap(finished).await;
        self.record_reaped(reaped, started, |_| {})
    }

    /// Signals from the kernel decide the check before any freeze.
    fn has_signals(&self) -> bool {
        !self.signals().is_empty()
    }

    /// The inner error: the query failed.
    async fn query_xfs_health(
        &mut self,
        scope: HealthScope,
    ) -> Result<Result<(), HealthError>, Abort> {
        let target = &self.desired.target;
        let (Filesystem::Xfs, Some(mount)) = (target.filesystem, target.mount.clone()) else {
            return Ok(Ok(()));
        };
        let dev = target.mountinfo_dev();
        self.set_phase("asking XFS for its health".to_owned());
        let backend = self.backend.clone();
        let queried = self.or_cancelled(Box::pin(backend.query_health(mount, dev, scope))).await?;
        Ok(queried.map(|signals| self.own_signals.extend(signals)))
    }
}

fn with_phase(name: &str, phase: &str) -> String {
    if phase.is_empty() { name.to_owned() } else { format!("{name}: {phase}") }
}

/// A run without any output to parse.
fn failed_run(
    mode: Mode,
    started: Timestamp,
    duration: Duration,
    end: Termination,
    why: String,
) -> Run {
    Run { duration, active: duration, ..Run::failed(mode, started, end, why) }
}
