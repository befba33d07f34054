//! SMART: reads the health data of each drive with smartctl, and finds drives that are visible only
//! to a RAID controller.
//!
//! In: the targets of the owner, requests, a timer. Out: `SourceUpdate::Smart`, `SmartOutput`,
//! `SmartStuck`, `SelfTest`, `RaidMembers`, `RaidControllers`, `RaidReports`, `SmartIgnored`. May not enter: the meaning of a
//! response (`smart`).
//!
//! `plan` decides when, `dispatch` starts queries, `query` runs one, `kept_output` compresses its output, `tool` checks smartctl itself,
//! `self_test` starts a self-test, `controllers` finds RAID controllers and their disks,
//! `raid_members` keeps them up to date, `raid_tools` reads the state of their arrays,
//! `controller_locks` serializes access to a controller,
//! `nvme_events` makes NVMe controllers announce events, `tasks` holds the running tasks, `backend`
//! is the interface to the system.
//!
//! Limits: one smartctl per drive, `at_once` on the node, `shortest_interval` between two queries
//! of a drive. A smartctl that cannot be killed blocks only its own drive: the drive is not queried
//! until the process has exited.

mod backend;
mod controller_locks;
pub mod controllers;
mod dispatch;
mod kept_output;
mod nvme_events;
mod plan;
mod query;
mod raid_members;
mod raid_tools;
mod self_test;
mod self_test_requests;
mod tasks;
#[cfg(test)]
mod tests;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::context::{Context, SmartSettings, SourceError, USUAL_SMARTCTL};
use crate::smart::backend::{Backend, FileStamp, HostBackend};
use crate::smart::controller_locks::{ControllerLockGuard, ControllerLocks};
use crate::smart::nvme_events::NvmeEventSetup;
use crate::smart::plan::{Plan, QueryState};
use crate::smart::query::{QueryOutcome, ReadScope};
use crate::smart::raid_members::RaidMembers;
use crate::smart::raid_tools::{RaidTools, Smartctl, Step};
use crate::smart::self_test::{SelfTestError, SelfTestStartResult};
use crate::smart::tasks::{TASK_LOST, TaskSet};
use crate::smart::tool::ToolCheck;
use crate::status_reporter::StatusReporter;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::source::Source;
use diskvitals_host::clock::now;
use diskvitals_model::drive::Transport;
use diskvitals_model::source_update::{SmartTarget, SourceRequest, SourceStatus, SourceUpdate};
use diskvitals_smart::SelfTestKind;

/// How often smartctl is checked: whether it was installed, replaced or removed.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The earliest check after smartctl could not be started.
const CHECK_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The limit of unkillable smartctl processes. Beyond it, only responsive drives are queried: each
/// dead drive would add one more process.
const MAX_STUCK: usize = 8;

const SUSPEND_UNKNOWN: &str =
    "the drive was not queried: its runtime power status could not be read";

/// Runs until the owner of the state has ended.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let backend = HostBackend { workers: context.workers.clone(), root: context.root.clone() };
    run_with_backend(context, backend).await
}

/// The result of a task.
#[derive(Debug)]
enum SmartTaskResult {
    Queried {
        drive: DriveId,
        scope: ReadScope,
        since: Timestamp,
        lock: Option<ControllerLockGuard>,
        outcome: QueryOutcome,
    },
    SelfTestStarted {
        drive: DriveId,
        kind: SelfTestKind,
        since: Timestamp,
        lock: Option<ControllerLockGuard>,
        result: SelfTestStartResult,
    },
    /// The unkillable smartctl of the drive has exited.
    StuckProcessExited {
        drive: DriveId,
    },
    ToolChecked {
        program: PathBuf,
        checked: ToolCheck,
    },
    /// The unkillable `smartctl --version` has exited.
    StuckCheckExited,
    RaidMembers(raid_members::RaidTaskResult),
    RaidTool(raid_tools::RaidToolResult),
    NvmeEvents(nvme_events::NvmeEventsResult),
}

/// Whether smartctl can be used.
enum ToolState {
    Unknown,
    Ready { version: [u32; 2], stamp: FileStamp },
    Unusable(String),
}

struct SmartSource<W> {
    context: Context,
    backend: W,
    settings: Arc<SmartSettings>,
    tool: ToolState,
    checking: bool,
    check_due: Instant,
    plans: BTreeMap<DriveId, Plan>,
    tasks: TaskSet,
    /// The number of drives with a running smartctl.
    in_flight: usize,
    locks: ControllerLocks,
    raid_members: RaidMembers,
    raid_tools: RaidTools,
    nvme_events: NvmeEventSetup,
    status_reporter: StatusReporter,
    /// Drives that the configuration excludes; the second set was sent to the owner.
    ignored: BTreeSet<DriveId>,
    reported_ignored: BTreeSet<DriveId>,
}

async fn run_with_backend<W: Backend>(
    context: Context,
    backend: W,
) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let (mut targets, mut settings) = (context.smart_targets.clone(), context.settings.clone());
    let mut raid_tools = context.raid_tools.clone();
    let mut smart = SmartSource::new(context, backend);
    smart.update_targets(&targets.borrow_and_update().clone());
    loop {
        let next = smart.start_all_due().await?;
        tokio::select! {
            Some(ended) = smart.tasks.next(), if !smart.tasks.is_empty() => smart.handle_result(ended).await?,
            changed = targets.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let targets = targets.borrow_and_update().clone();
                if smart.update_targets(&targets) {
                    smart.raid_members.discover_soon(Instant::now());
                }
            }
            changed = raid_tools.changed() => changed.map_err(|_| SourceError::OwnerGone)?,
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                settings.mark_unchanged();
                smart.update_settings(&targets.borrow().clone());
            }
            request = requests.recv() => match request {
                Ok(request) => smart.handle_request(request).await?,
                // Querying all drives covers any lost request, except a self-test of an admin:
                // `REQUEST_QUEUE_CAPACITY` prevents that loss.
                Err(RecvError::Lagged(lost)) => {
                    tracing::warn!(lost, "requests came faster than they were taken: all drives are asked");
                    smart.handle_request(SourceRequest::All).await?;
                }
                Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
            },
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

impl<W: Backend> SmartSource<W> {
    fn new(context: Context, backend: W) -> SmartSource<W> {
        let settings = Arc::new(context.settings.borrow().smart.clone());
        let (at, is_recorded) = (Instant::now(), context.root.is_recorded());
        SmartSource {
            context,
            backend,
            settings,
            tool: ToolState::Unknown,
            checking: false,
            check_due: at,
            plans: BTreeMap::new(),
            tasks: TaskSet::default(),
            in_flight: 0,
            locks: ControllerLocks::default(),
            raid_members: RaidMembers::new(at),
            raid_tools: RaidTools::new(is_recorded, at),
            nvme_events: NvmeEventSetup::default(),
            status_reporter: StatusReporter::new(Source::Smart),
            ignored: BTreeSet::new(),
            reported_ignored: BTreeSet::new(),
        }
    }

    /// Starts all due work. Out: when the next work is due.
    async fn start_all_due(&mut self) -> Result<Instant, SourceError> {
        let at = Instant::now();
        if self.disabled_reason().is_none() && !self.checking && self.check_due <= at {
            self.start_tool_check(at);
        }
        let mut next = if self.checking || self.disabled_reason().is_some() {
            at + CHECK_INTERVAL
        } else {
            self.check_due
        };
        let requests = self.context.raid_tools.borrow().clone();
        match self.raid_tools.step(&requests, self.smartctl(), at, now()) {
            Step::WaitUntil(due) => next = due.map_or(next, |due| next.min(due)),
            step => {
                if let Step::Ask(family) = step {
                    self.raid_tools.start(family, &self.context, &self.backend, &mut self.tasks);
                }
                self.report_status().await?;
                return Ok(next);
            }
        }
        self.start_self_tests(at).await?;
        if self.is_ready() {
            next = next.min(self.start_due(at).unwrap_or(next));
            self.raid_members.at_stuck_limit = self.stuck_count() >= MAX_STUCK;
            next = next.min(self.raid_members.start_due(
                &self.context,
                &self.backend,
                &self.settings,
                &self.locks,
                &mut self.tasks,
                at,
            ));
            if self.settings.nvme_events {
                next = next.min(
                    self.nvme_events
                        .start_due(&self.plans, &self.context, &self.backend, &mut self.tasks, at)
                        .unwrap_or(next),
                );
            }
        }
        self.report_ignored().await?;
        self.report_status().await?;
        Ok(next)
    }

    fn smartctl(&self) -> Smartctl {
        // What hangs at a USB or NVMe drive is beside no RAID controller.
        let may_be_there =
            |plan: &&Plan| !matches!(plan.target.transport, Transport::Usb | Transport::Nvme);
        let mut plans = self.plans.values().filter(may_be_there);
        match () {
            () if self.raid_members.is_stuck() => Smartctl::Stuck,
            () if plans.any(|plan| matches!(plan.state, QueryState::Stuck { .. })) => {
                Smartctl::Stuck
            }
            () if self.in_flight > 0 || self.raid_members.is_enumerating() => Smartctl::Running,
            () => Smartctl::Idle,
        }
    }

    fn is_ready(&self) -> bool {
        self.disabled_reason().is_none() && matches!(self.tool, ToolState::Ready { .. })
    }

    /// Why no drive is queried at all.
    fn disabled_reason(&self) -> Option<&'static str> {
        if !self.settings.enabled {
            Some("switched off (smart.enabled)")
        } else if self.context.root.is_recorded()
            && self.settings.command == Path::new(USUAL_SMARTCTL)
        {
            Some("a recorded tree has no drives to ask")
        } else {
            None
        }
    }

    fn start_tool_check(&mut self, at: Instant) {
        self.checking = true;
        self.check_due = at + CHECK_INTERVAL;
        let known = match &self.tool {
            ToolState::Ready { stamp, .. } => Some(*stamp),
            ToolState::Unknown | ToolState::Unusable(_) => None,
        };
        let (backend, program) = (self.backend.clone(), self.settings.command.clone());
        let lost = SmartTaskResult::ToolChecked {
            program: program.clone(),
            checked: ToolCheck::Unusable(format!("asking for its version: {TASK_LOST}")),
        };
        self.tasks.spawn(lost, async move {
            let checked = tool::check(backend, program.clone(), known).await;
            SmartTaskResult::ToolChecked { program, checked }
        });
    }

    /// Out: whether the set of drives or devices has changed.
    fn update_targets(&mut self, targets: &[SmartTarget]) -> bool {
        let at = Instant::now();
        let wanted_devices = |plans: &BTreeMap<DriveId, Plan>| {
            let wanted = plans.values().filter(|plan| plan.wanted);
            wanted
                .map(|plan| (plan.target.drive.clone(), plan.target.device.clone()))
                .collect::<BTreeSet<_>>()
        };
        let before = wanted_devices(&self.plans);
        self.ignored.clear();
        self.plans.values_mut().for_each(|plan| plan.wanted = false);
        for target in targets {
            let ignored = self.configured_type(target) == Some("ignore");
            if ignored || !self.settings.enabled {
                self.ignored.insert(target.drive.clone());
            }
            if ignored {
                continue;
            }
            match self.plans.get_mut(&target.drive) {
                Some(plan) => plan.update_target(target.clone(), &self.settings, at),
                None => {
                    let plan = Plan::new(target.clone(), &self.settings, now(), at);
                    self.plans.insert(target.drive.clone(), plan);
                }
            }
        }
        self.plans.retain(|_, plan| plan.is_needed());
        before != wanted_devices(&self.plans)
    }

    fn update_settings(&mut self, targets: &[SmartTarget]) {
        let settings = self.context.settings.borrow().smart.clone();
        if settings == *self.settings {
            return;
        }
        let at = Instant::now();
        if settings.device_types != self.settings.device_types {
            self.plans.values_mut().for_each(|plan| plan.hints.fallback_tried = false);
        }
        self.settings = Arc::new(settings);
        // The command may have changed.
        self.tool = ToolState::Unknown;
        self.check_due = at;
        self.update_targets(targets);
    }

    async fn handle_request(&mut self, request: SourceRequest) -> Result<(), SourceError> {
        let at = Instant::now();
        match request {
            SourceRequest::All => {
                self.plans.values_mut().for_each(|plan| plan.query_now(at));
                self.raid_members.refresh(self.settings.shortest_interval, at);
                self.check_due = at;
            }
            SourceRequest::Inventory => self.raid_members.discover_soon(at),
            SourceRequest::Smart(drives) => {
                for drive in &drives {
                    if let Some(plan) = self.plans.get_mut(drive) {
                        plan.query_now(at);
                    }
                }
            }
            SourceRequest::NvmeEvent { controller } => {
                self.nvme_events.recheck(&controller, at);
                let is_it =
                    |plan: &&mut Plan| nvme_events::controllers(&plan.target).contains(&controller);
                self.plans.values_mut().filter(is_it).for_each(|plan| plan.query_now(at));
            }
            SourceRequest::SelfTest { drive, kind } => {
                if let Err(error) = self.accept_self_test(&drive, kind) {
                    self.report_self_test(drive, kind, Err(error)).await?;
                }
            }
            SourceRequest::Kubelet
            | SourceRequest::Mounts
            | SourceRequest::Superblocks
            | SourceRequest::ExtSuperblocks(_)
            | SourceRequest::DiskStats
            | SourceRequest::Counters
            | SourceRequest::Scrub(_)
            | SourceRequest::Probe(_) => {}
        }
        Ok(())
    }

    async fn handle_result(&mut self, ended: SmartTaskResult) -> Result<(), SourceError> {
        let at = Instant::now();
        match ended {
            SmartTaskResult::Queried { drive, scope, since, lock, outcome } => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.finish_query(drive, scope, since, lock, outcome, at).await?;
            }
            SmartTaskResult::SelfTestStarted { drive, kind, since, lock, result } => {
                self.in_flight = self.in_flight.saturating_sub(1);
                let result = match result {
                    SelfTestStartResult::Response(result) => {
                        if let Some(plan) = self.plans.get_mut(&drive) {
                            plan.record_self_test(result.is_ok(), at);
                        }
                        if matches!(result, Err(SelfTestError::WrongDrive { .. })) {
                            self.request_inventory();
                        }
                        result
                    }
                    SelfTestStartResult::Stuck(child) => {
                        self.mark_stuck(&drive, since, false, child, lock).await?;
                        Err(SelfTestError::Stuck)
                    }
                };
                self.report_self_test(drive, kind, result).await?;
            }
            SmartTaskResult::StuckProcessExited { drive } => {
                tracing::info!(%drive, "a smartctl that could not be killed has gone");
                if let Some(plan) = self.plans.get_mut(&drive) {
                    plan.clear_stuck();
                }
                self.context.report(SourceUpdate::SmartStuck { drive, stuck: None }).await?;
            }
            SmartTaskResult::ToolChecked { program, checked } => {
                self.apply_tool_check(&program, checked, at)
            }
            SmartTaskResult::StuckCheckExited => {
                self.checking = false;
                self.check_due = at;
            }
            SmartTaskResult::RaidMembers(mut ended) => {
                if let raid_members::RaidTaskResult::Enumerated { name, enumerated } = &mut ended {
                    self.mark_stuck_slots(name, &mut enumerated.stuck).await?;
                }
                for report in
                    self.raid_members.record_result(ended, &self.settings, &mut self.tasks, at)
                {
                    self.context.report(report).await?;
                }
            }
            SmartTaskResult::RaidTool(ended) => {
                let report = self.raid_tools.record(ended, at);
                self.context.report(report).await?;
            }
            SmartTaskResult::NvmeEvents(ended) => {
                self.nvme_events.record_result(ended, &self.settings, at)
            }
        }
        self.plans.retain(|_, plan| plan.is_needed());
        Ok(())
    }

    fn apply_tool_check(&mut self, program: &Path, checked: ToolCheck, at: Instant) {
        self.checking = false;
        match checked {
            // The configured command has changed since the check was started.
            ToolCheck::Unchanged | ToolCheck::Ready { .. } | ToolCheck::Unusable(_)
                if program != self.settings.command =>
            {
                self.check_due = at
            }
            ToolCheck::Unchanged => {}
            ToolCheck::Ready { version, stamp } => self.tool = ToolState::Ready { version, stamp },
            ToolCheck::Unusable(why) => self.tool = ToolState::Unusable(why),
            ToolCheck::Stuck(child) => {
                self.checking = true;
                self.tool =
                    ToolState::Unusable("smartctl --version hangs and cannot be killed: the disk that it lies on may not answer".to_owned());
                self.tasks.spawn(SmartTaskResult::StuckCheckExited, async move {
                    child.exited().await;
                    SmartTaskResult::StuckCheckExited
                });
            }
        }
    }

    fn stuck_count(&self) -> usize {
        self.plans.values().filter(|plan| matches!(plan.state, QueryState::Stuck { .. })).count()
    }

    async fn report_ignored(&mut self) -> Result<(), SourceError> {
        if self.ignored == self.reported_ignored {
            return Ok(());
        }
        self.reported_ignored.clone_from(&self.ignored);
        self.context
            .report(SourceUpdate::SmartIgnored(self.ignored.iter().cloned().collect()))
            .await
    }

    async fn report_status(&mut self) -> Result<(), SourceError> {
        let status = match (self.disabled_reason(), &self.tool) {
            (Some(why), _) => SourceStatus::Absent(why.to_owned()),
            (None, ToolState::Unknown) => return Ok(()),
            (None, ToolState::Unusable(why)) => SourceStatus::Down(why.clone()),
            (None, ToolState::Ready { version: [major, minor], .. }) => {
                let drives = match self.plans.values().filter(|plan| plan.wanted).count() {
                    1 => "1 drive".to_owned(),
                    number => format!("{number} drives"),
                };
                let text = format!("smartctl {major}.{minor}, {drives}");
                let stuck = match self.stuck_count() {
                    0 => None,
                    1 => Some("on one of them it hangs and cannot be killed".to_owned()),
                    number => Some(format!("on {number} of them it hangs and cannot be killed")),
                };
                let members = stuck.into_iter().chain(self.raid_members.errors());
                let limits: Vec<String> = members.chain(self.raid_tools.errors()).collect();
                match limits.is_empty() {
                    true => SourceStatus::Active(text),
                    false => SourceStatus::Limited(format!("{text}; {}", limits.join("; "))),
                }
            }
        };
        self.status_reporter.report(&self.context, status).await
    }
}
