//! The source of filesystem checks: starts requested and scheduled checks when their turn comes,
//! and reports their progress and outcome.
//!
//! In: the checks that the owner requests (`DesiredCheck`, level-triggered: a check that leaves the
//! list is cancelled). Out: `SourceUpdate::Check`. Only other processes access a device or a mount:
//! `runner` (runs the checker, without any permission to write), `freezer` (holds the writers),
//! `lvm_snapshot` and `lvm` (snapshots of logical volumes), workers (syncfs, health bits of XFS).
//! `fscheck` interprets the runs.
//!
//! `queue` decides which check starts and issues the permits to run a checker, `task` executes one
//! check, `load` measures how busy the node is, `tools` finds the checkers, `backend` is the
//! interface to the host.

mod backend;
pub mod freezer;
mod load;
pub mod lvm;
pub mod lvm_snapshot;
mod progress;
mod queue;
mod reporting;
pub mod runner;
mod task;
#[cfg(test)]
mod tests;
mod tools;
pub mod xfs_health;

pub use lvm_snapshot::PREFIX as SNAPSHOT_PREFIX;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::checks::backend::{Backend, HostBackend};
use crate::checks::load::{IoLoad, LoadError};
use crate::checks::progress::{ProgressMap, TaskProgress};
use crate::checks::queue::{
    LoadGate, PermitRequest, PermitState, Queue, QueueAction, Stage, StuckChecker, UnfinishedCheck,
    devices_of, failed_outcome,
};
use crate::checks::task::{TaskInputs, TaskResult, run_check};
use crate::checks::tools::AvailableTools;
use crate::context::{CheckSettings, Context, SourceError};
use crate::status_reporter::StatusReporter;
use diskvitals_finding::ids::CheckId;
use diskvitals_finding::source::Source;
use diskvitals_fscheck::{Cancellation, CheckState, DesiredCheck};
use diskvitals_host::clock::now;
use diskvitals_text::causes::with_causes;

/// Minimum time between two reports that differ only in the phase.
const PHASE_INTERVAL: Duration = Duration::from_secs(1);
/// How often the checker programs and their versions are looked up.
const FIND_TOOLS_INTERVAL: Duration = Duration::from_secs(60);

const TARGET_GONE: &str = "the check is no longer wanted: what it was of is gone";

/// Runs until the state's owner has ended.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let backend = HostBackend::new(&context);
    run_with(context, backend).await
}

/// The result of a finished background task.
enum TaskEvent {
    CheckFinished(CheckId, Box<TaskResult>),
    LoadSampled(CheckId, Result<IoLoad, LoadError>),
    Tools(AvailableTools),
    /// Leftovers of an earlier daemon were removed; a line for each.
    CleanedUp(Vec<String>),
    /// The stuck checker of this number has exited.
    StuckCheckerGone(u64),
}

/// Identifies a task that was lost (for example by a panic), so that nothing waits for it for ever.
enum TaskKind {
    RunningCheck(CheckId),
    SamplingLoad(CheckId),
    FindingTools,
    CleaningUp,
    AwaitingStuckChecker(u64),
}

struct CheckSource<W> {
    context: Context,
    backend: W,
    settings: CheckSettings,
    queue: Queue,
    tasks: JoinSet<TaskEvent>,
    task_kinds: HashMap<Id, TaskKind>,
    /// Of the active checks.
    progress: watch::Sender<ProgressMap>,
    /// Permit requests of the tasks; at most one per active check.
    permit_requests: mpsc::UnboundedSender<PermitRequest>,
    /// None until the first lookup.
    tools: Option<AvailableTools>,
    finding_tools: bool,
    tools_due: Instant,
    /// No check starts before the cleanup has ended.
    cleaned_up: bool,
    next_stuck: u64,
    status_reporter: StatusReporter,
}

async fn run_with<W: Backend>(context: Context, backend: W) -> Result<Infallible, SourceError> {
    let (mut wanted, mut settings) = (context.checks.clone(), context.settings.clone());
    let (permit_requests, mut requests) = mpsc::unbounded_channel();
    let mut checks = CheckSource::new(context, backend, permit_requests);
    let mut progress = checks.progress.subscribe();
    checks.start_cleanup();
    let first = wanted.borrow_and_update().clone();
    checks.apply_desired(&first).await?;
    loop {
        let next = checks.advance().await?;
        tokio::select! {
            changed = wanted.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let wanted = wanted.borrow_and_update().clone();
                checks.apply_desired(&wanted).await?;
            }
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let new = settings.borrow_and_update().checks.clone();
                checks.apply_settings(new);
            }
            Some(event) = checks.next_event(), if !checks.tasks.is_empty() => checks.handle_event(event).await?,
            Some(request) = requests.recv() => checks.queue.request_permit(request),
            Ok(()) = progress.changed() => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

impl<W: Backend> CheckSource<W> {
    fn new(
        context: Context,
        backend: W,
        permit_requests: mpsc::UnboundedSender<PermitRequest>,
    ) -> CheckSource<W> {
        let settings = context.settings.borrow().checks.clone();
        CheckSource {
            context,
            backend,
            settings,
            queue: Queue::default(),
            tasks: JoinSet::new(),
            task_kinds: HashMap::new(),
            progress: watch::Sender::new(BTreeMap::new()),
            permit_requests,
            tools: None,
            finding_tools: false,
            tools_due: Instant::now(),
            cleaned_up: false,
            next_stuck: 0,
            status_reporter: StatusReporter::new(Source::Checks),
        }
    }

    fn spawn(&mut self, purpose: TaskKind, task: impl Future<Output = TaskEvent> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.task_kinds.insert(id, purpose);
    }

    /// Cancel-safe.
    async fn next_event(&mut self) -> Option<Result<TaskEvent, TaskKind>> {
        match self.tasks.join_next_with_id().await? {
            Ok((id, event)) => {
                self.task_kinds.remove(&id);
                Some(Ok(event))
            }
            Err(error) => {
                tracing::error!(%error, "a task that checks filesystems was lost");
                self.task_kinds.remove(&error.id()).map(Err)
            }
        }
    }

    fn start_cleanup(&mut self) {
        let (backend, tools) = (self.backend.clone(), self.settings.tools.clone());
        self.spawn(TaskKind::CleaningUp, async move {
            TaskEvent::CleanedUp(backend.clean_up(tools).await)
        });
    }

    /// Starts the checks whose turn has come, and reports progress. Returns the time of the next
    /// change.
    async fn advance(&mut self) -> Result<Instant, SourceError> {
        let at = Instant::now();
        if !self.finding_tools && self.tools_due <= at {
            self.finding_tools = true;
            self.tools_due = self.context.grid.after(FIND_TOOLS_INTERVAL);
            let (backend, tools, before) =
                (self.backend.clone(), self.settings.tools.clone(), self.tools.clone());
            self.spawn(TaskKind::FindingTools, async move {
                TaskEvent::Tools(backend.find_tools(tools, before).await)
            });
        }
        let mut next =
            self.tools_due.max(if self.finding_tools { at + FIND_TOOLS_INTERVAL } else { at });
        if let (true, Some(tools)) = (self.cleaned_up, self.tools.clone()) {
            self.finish_impossible(&tools).await?;
            while let Some(action) = self.queue.next_action(self.settings.at_once, at) {
                self.execute(action, &tools).await?;
            }
            next = next.min(self.queue.next_load_sample(at).unwrap_or(next));
        }
        next = next.min(self.report_progress(at).await?.unwrap_or(next));
        self.report_status().await?;
        Ok(next)
    }

    async fn execute(
        &mut self,
        action: QueueAction,
        tools: &AvailableTools,
    ) -> Result<(), SourceError> {
        match action {
            QueueAction::Start(id) => self.start_check(&id, tools).await?,
            QueueAction::GrantPermit(id) => self.queue.grant_permit(&id),
            QueueAction::SampleLoad(id) => {
                let Some(UnfinishedCheck {
                    stage: Stage::Queued { gate, .. },
                    desired: wanted,
                    ..
                }) = self.queue.checks.get_mut(&id)
                else {
                    return Ok(());
                };
                *gate = LoadGate::Sampling;
                let (backend, of) =
                    (self.backend.clone(), devices_of(&wanted.target).into_iter().collect());
                self.spawn(TaskKind::SamplingLoad(id.clone()), async move {
                    TaskEvent::LoadSampled(id, backend.sample_load(of).await)
                });
            }
        }
        Ok(())
    }

    async fn start_check(
        &mut self,
        id: &CheckId,
        tools: &AvailableTools,
    ) -> Result<(), SourceError> {
        let Some(check) = self.queue.checks.get_mut(id) else {
            return Ok(());
        };
        let target = &check.desired.target;
        let checker = match tools.checker(target.filesystem) {
            Ok(path) => path.to_owned(),
            Err(why) => {
                let outcome = failed_outcome(why, target.mode);
                return self.finish(id, outcome).await;
            }
        };
        let beginning = TaskProgress {
            state: CheckState::Running { phase: "beginning".to_owned(), progress: None },
            runs: Vec::new(),
            signals: Vec::new(),
        };
        self.progress.send_modify(|all| drop(all.insert(id.clone(), beginning)));
        let (permit, issued) = PermitState::issue();
        let (signals, kernel_signals) = watch::channel(check.desired.signals.clone());
        let cancel = CancellationToken::new();
        let inputs = TaskInputs {
            checker,
            lvm: tools.lvm.clone(),
            progress: self.progress.clone(),
            signals: kernel_signals,
            cancel: cancel.clone(),
            permit: Some(permit),
            permit_requests: self.permit_requests.clone(),
        };
        check.stage = Stage::Active { permit: issued, signals, cancel };
        let (backend, wanted, id) = (self.backend.clone(), check.desired.clone(), id.clone());
        self.spawn(TaskKind::RunningCheck(id.clone()), async move {
            TaskEvent::CheckFinished(
                id,
                Box::new(Box::pin(run_check(backend, wanted, inputs)).await),
            )
        });
        Ok(())
    }

    /// Applies the whole list of desired checks.
    async fn apply_desired(&mut self, all: &[DesiredCheck]) -> Result<(), SourceError> {
        let at = Instant::now();
        let ids: BTreeSet<&CheckId> = all.iter().map(|wanted| &wanted.id).collect();
        self.queue.finished.retain(|id| ids.contains(id));
        for (place, wanted) in
            all.iter().enumerate().filter(|(_, wanted)| !self.queue.finished.contains(&wanted.id))
        {
            match self.queue.checks.get_mut(&wanted.id) {
                Some(check) => {
                    check.position = place;
                    check.desired = wanted.clone();
                    if let Stage::Active { signals, .. } = &check.stage {
                        signals.send_if_modified(|signals| {
                            let changed = *signals != wanted.signals;
                            signals.clone_from(&wanted.signals);
                            changed
                        });
                    }
                }
                None => {
                    self.queue
                        .checks
                        .insert(wanted.id.clone(), UnfinishedCheck::new(wanted.clone(), place, at));
                }
            }
        }
        let mut ending = Vec::new();
        for (id, check) in &mut self.queue.checks {
            let cancellation = if ids.contains(id) {
                check.desired.cancellation.clone()
            } else {
                Some(Cancellation { reason: TARGET_GONE.to_owned() })
            };
            let Some(cancellation) = cancellation else {
                continue;
            };
            check.cancel(cancellation);
            if !check.is_active() {
                ending.push((id.clone(), check.cancelled_outcome()));
            }
        }
        for (id, outcome) in ending {
            self.finish(&id, outcome).await?;
        }
        Ok(())
    }

    fn apply_settings(&mut self, new: CheckSettings) {
        if new.tools != self.settings.tools {
            self.tools = None;
            self.tools_due = Instant::now();
        }
        self.settings = new;
    }

    async fn handle_event(
        &mut self,
        event: Result<TaskEvent, TaskKind>,
    ) -> Result<(), SourceError> {
        let at = Instant::now();
        match event {
            Ok(TaskEvent::CheckFinished(id, result)) => self.handle_finished(&id, *result).await,
            Ok(TaskEvent::LoadSampled(id, load)) => self.handle_load(&id, load, at).await,
            Ok(TaskEvent::Tools(found)) => {
                self.finding_tools = false;
                // Due again: the settings have changed since the lookup started, and this result is
                // outdated.
                self.tools = (self.tools_due > at).then_some(found);
                Ok(())
            }
            Ok(TaskEvent::CleanedUp(lines)) => {
                lines.iter().for_each(|line| tracing::warn!("{line}"));
                self.cleaned_up = true;
                Ok(())
            }
            Ok(TaskEvent::StuckCheckerGone(number))
            | Err(TaskKind::AwaitingStuckChecker(number)) => {
                if let Some(stuck) = self.queue.stuck.remove(&number) {
                    tracing::info!(since = %stuck.since, "a checker that could not be killed has gone");
                }
                Ok(())
            }
            Err(TaskKind::RunningCheck(id)) => {
                let Some(check) = self.queue.checks.get(&id) else {
                    return Ok(());
                };
                let lost = "an internal error: the task was lost".to_owned();
                let outcome = failed_outcome(lost, check.desired.target.mode);
                self.finish(&id, outcome).await
            }
            Err(TaskKind::SamplingLoad(id)) => {
                self.handle_load(&id, Err(LoadError::TaskLost), at).await
            }
            Err(TaskKind::FindingTools) => {
                self.finding_tools = false;
                Ok(())
            }
            Err(TaskKind::CleaningUp) => {
                self.cleaned_up = true;
                Ok(())
            }
        }
    }

    async fn handle_load(
        &mut self,
        id: &CheckId,
        load: Result<IoLoad, LoadError>,
        at: Instant,
    ) -> Result<(), SourceError> {
        // An unknown load does not count as quiet.
        let why = match load {
            Ok(busy) if busy.percent <= f64::from(self.settings.max_io_pressure) => None,
            Ok(busy) => Some(busy.describe()),
            Err(error) => {
                Some(format!("how busy the node is cannot be told ({})", with_causes(&error)))
            }
        };
        match self.queue.apply_load(id, why, at) {
            Ok(()) => Ok(()),
            Err(outcome) => self.finish(id, outcome).await,
        }
    }

    async fn handle_finished(
        &mut self,
        id: &CheckId,
        result: TaskResult,
    ) -> Result<(), SourceError> {
        let TaskResult { outcome, runs, signals, unkillable } = result;
        let Some(check) = self.queue.checks.get(id) else {
            return Ok(());
        };
        let of = devices_of(&check.desired.target);
        let outcome = outcome.unwrap_or_else(|| check.cancelled_outcome());
        for unkillable in unkillable {
            let number = self.next_stuck;
            self.next_stuck += 1;
            let stuck = StuckChecker {
                devices: of.clone(),
                waiting_in: unkillable.waiting_in.clone(),
                since: now(),
            };
            self.queue.stuck.insert(number, stuck);
            self.spawn(TaskKind::AwaitingStuckChecker(number), async move {
                unkillable.exited().await;
                TaskEvent::StuckCheckerGone(number)
            });
        }
        self.finish_with(id, outcome, runs, signals).await
    }
}
