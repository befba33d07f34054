//! SMART: when which drive is asked for what it says of itself, by smartctl, and which drives a
//! RAID controller hides.
//!
//! In: the owner's targets, requests, a timer. Out: `Report::Smart`, `Report::SmartStuck`,
//! `Report::SelfTest`, `Report::Hidden`, `Report::Controllers`, `Report::SmartIgnored`.
//! May not enter: what an answer means (`model::smart`).
//!
//! `plan` knows when, `questions` starts them, `ask` knows how, `tool` whether there is a smartctl,
//! `self_test` starts a test, `controllers` finds hidden disks, `hidden` keeps them up to date,
//! `taken` where one runs behind a controller, `nvme` has controllers announce events, `running`
//! what is waited for, `world` is the door outside.
//!
//! Manners: one smartctl a drive at most, `at_once` over the node, `shortest_interval` between two
//! questions to a drive. One that cannot be killed holds up nobody: its drive is left alone until
//! it has gone.

mod backend;
mod controller_locks;
pub mod controllers;
mod dispatch;
mod nvme_events;
mod plan;
mod query;
mod raid_members;
mod self_test;
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

use crate::host::clock::now;
use crate::model::ids::DriveId;
use crate::model::smart::SelfTestKind;
use crate::model::source_update::{SmartTarget, Source, SourceRequest, SourceStatus, SourceUpdate};
use crate::source::context::{Context, SmartSettings, SourceError, USUAL_SMARTCTL};
use crate::source::smart::backend::{Backend, FileStamp, HostBackend};
use crate::source::smart::controller_locks::{ControllerLockGuard, ControllerLocks};
use crate::source::smart::nvme_events::NvmeEventSetup;
use crate::source::smart::plan::{Plan, QueryState};
use crate::source::smart::query::{QueryOutcome, ReadScope};
use crate::source::smart::raid_members::RaidMembers;
use crate::source::smart::self_test::SelfTestStartResult;
use crate::source::smart::tasks::{TASK_LOST, TaskSet};
use crate::source::smart::tool::ToolCheck;

/// How often to see whether smartctl is still the same, or has come.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// A smartctl that cannot be started is looked at again after this at the earliest.
const CHECK_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Of smartctls that cannot be killed. Beyond, only drives that have answered are asked: each dead
/// drive would add one more.
const MAX_STUCK: usize = 8;

const SUSPENDED: &str = "the drive is suspended, and is not woken for it: read from it first";
const SUSPEND_UNKNOWN: &str =
    "the drive is left alone: whether the kernel has suspended it could not be read";
const NOT_QUERIED: &str = "this drive is not asked for SMART data";

/// Runs until the owner of the state is gone.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let world = HostBackend {
        workers: context.workers.clone(),
        root: context.root.clone(),
    };
    run_with_backend(context, world).await
}

/// Something that was waited for.
#[derive(Debug)]
enum SmartTaskResult {
    Queried {
        drive: DriveId,
        read: ReadScope,
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
    /// The smartctl that was stuck on it.
    StuckProcessExited {
        drive: DriveId,
    },
    ToolChecked {
        program: PathBuf,
        checked: ToolCheck,
    },
    /// The smartctl that was to tell its version.
    StuckCheckExited,
    RaidMembers(raid_members::RaidTaskResult),
    NvmeEvents(nvme_events::NvmeEventsResult),
}

/// Whether there is a smartctl.
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
    /// How many drives are being asked.
    in_flight: usize,
    locks: ControllerLocks,
    raid_members: RaidMembers,
    nvme_events: NvmeEventSetup,
    reported_status: Option<SourceStatus>,
    /// Drives that the configuration has not asked, and those of them that the owner was told.
    ignored: BTreeSet<DriveId>,
    reported_ignored: BTreeSet<DriveId>,
}

async fn run_with_backend<W: Backend>(
    context: Context,
    world: W,
) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let (mut targets, mut settings) = (context.smart_targets.clone(), context.settings.clone());
    let mut smart = SmartSource::new(context, world);
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
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                settings.mark_unchanged();
                smart.update_settings(&targets.borrow().clone());
            }
            request = requests.recv() => match request {
                Ok(request) => smart.handle_request(request).await?,
                // Whatever it was, more answers do no harm. An admin's self-test would be lost:
                // hence the room for `REQUESTS`.
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
    fn new(context: Context, world: W) -> SmartSource<W> {
        let settings = Arc::new(context.settings.borrow().smart.clone());
        let at = Instant::now();
        SmartSource {
            context,
            backend: world,
            settings,
            tool: ToolState::Unknown,
            checking: false,
            check_due: at,
            plans: BTreeMap::new(),
            tasks: TaskSet::default(),
            in_flight: 0,
            locks: ControllerLocks::default(),
            raid_members: RaidMembers::new(at),
            nvme_events: NvmeEventSetup::default(),
            reported_status: None,
            ignored: BTreeSet::new(),
            reported_ignored: BTreeSet::new(),
        }
    }

    /// Starts all that is due. Out: when something will be.
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
                        .start_due(
                            &self.plans,
                            &self.context,
                            &self.backend,
                            &mut self.tasks,
                            at,
                        )
                        .unwrap_or(next),
                );
            }
        }
        self.report_ignored().await?;
        self.report_status().await?;
        Ok(next)
    }

    fn is_ready(&self) -> bool {
        self.disabled_reason().is_none() && matches!(self.tool, ToolState::Ready { .. })
    }

    /// Why nobody is to be asked at all.
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
        let (world, program) = (self.backend.clone(), self.settings.command.clone());
        let lost = SmartTaskResult::ToolChecked {
            program: program.clone(),
            checked: ToolCheck::Unusable(format!("asking for its version: {TASK_LOST}")),
        };
        self.tasks.spawn(lost, async move {
            let checked = tool::check(world, program.clone(), known).await;
            SmartTaskResult::ToolChecked { program, checked }
        });
    }

    /// Out: whether there are other drives, or devices, than before.
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
            self.plans
                .values_mut()
                .for_each(|plan| plan.hints.fallback_tried = false);
        }
        self.settings = Arc::new(settings);
        // Another command, perhaps.
        self.tool = ToolState::Unknown;
        self.check_due = at;
        self.update_targets(targets);
    }

    async fn handle_request(&mut self, request: SourceRequest) -> Result<(), SourceError> {
        let at = Instant::now();
        match request {
            SourceRequest::All => {
                self.plans.values_mut().for_each(|plan| plan.query_now(at));
                self.raid_members
                    .refresh(self.settings.shortest_interval, at);
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
                self.plans
                    .values_mut()
                    .filter(is_it)
                    .for_each(|plan| plan.query_now(at));
            }
            SourceRequest::SelfTest { drive, kind } => {
                if let Err(why) = self.accept_self_test(&drive, kind) {
                    self.context
                        .report(SourceUpdate::SelfTest {
                            drive,
                            kind,
                            at: now(),
                            result: Err(why),
                        })
                        .await?;
                }
            }
            SourceRequest::Kubelet
            | SourceRequest::Mounts
            | SourceRequest::DiskStats
            | SourceRequest::Probe(_) => {}
        }
        Ok(())
    }

    /// The error: why not, for the admin. What waits for its turn is refused when this has changed
    /// meanwhile.
    fn check_self_test_allowed(&self, drive: &DriveId) -> Result<(), String> {
        if let Some(why) = self.disabled_reason() {
            return Err(format!("drives are not asked for SMART data here: {why}"));
        }
        if let ToolState::Unusable(why) = &self.tool {
            return Err(why.clone());
        }
        let plan = self
            .plans
            .get(drive)
            .filter(|plan| plan.wanted)
            .ok_or(NOT_QUERIED)?;
        if let QueryState::Stuck { since } = plan.state {
            return Err(format!(
                "smartctl has hung on this drive since {since}, and cannot be killed"
            ));
        }
        if plan.target.asleep {
            return Err(SUSPENDED.to_owned());
        }
        Ok(())
    }

    /// The error: why not, for the admin.
    fn accept_self_test(&mut self, drive: &DriveId, kind: SelfTestKind) -> Result<(), String> {
        if matches!(self.tool, ToolState::Unknown) && self.disabled_reason().is_none() {
            return Err("smartctl has not told its version yet: try again".to_owned());
        }
        self.check_self_test_allowed(drive)?;
        let plan = self.plans.get_mut(drive).ok_or(NOT_QUERIED)?;
        if plan.pending_self_test.is_some() {
            return Err("another self-test is about to be started".to_owned());
        }
        plan.pending_self_test = Some(kind);
        Ok(())
    }

    async fn handle_result(&mut self, ended: SmartTaskResult) -> Result<(), SourceError> {
        let at = Instant::now();
        match ended {
            SmartTaskResult::Queried {
                drive,
                read,
                since,
                lock: place,
                outcome: reply,
            } => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.finish_query(drive, read, since, place, reply, at)
                    .await?;
            }
            SmartTaskResult::SelfTestStarted {
                drive,
                kind,
                since,
                lock: place,
                result: begun,
            } => {
                self.in_flight = self.in_flight.saturating_sub(1);
                let result = match begun {
                    SelfTestStartResult::WrongDrive(why) => {
                        if let Some(plan) = self.plans.get_mut(&drive) {
                            plan.record_self_test(false, at);
                        }
                        self.request_inventory();
                        Err(why)
                    }
                    SelfTestStartResult::Response(result) => {
                        if let Some(plan) = self.plans.get_mut(&drive) {
                            plan.record_self_test(result.is_ok(), at);
                        }
                        result
                    }
                    SelfTestStartResult::Stuck(remains) => {
                        self.mark_stuck(&drive, since, false, remains, place)
                            .await?;
                        Err("smartctl has hung on this drive, and cannot be killed".to_owned())
                    }
                };
                self.context
                    .report(SourceUpdate::SelfTest {
                        drive,
                        kind,
                        at: now(),
                        result,
                    })
                    .await?;
            }
            SmartTaskResult::StuckProcessExited { drive } => {
                tracing::info!(%drive, "a smartctl that could not be killed has gone");
                if let Some(plan) = self.plans.get_mut(&drive) {
                    plan.clear_stuck();
                }
                self.context
                    .report(SourceUpdate::SmartStuck { drive, stuck: None })
                    .await?;
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
                    self.raid_members
                        .record_result(ended, &self.settings, &mut self.tasks, at)
                {
                    self.context.report(report).await?;
                }
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
            // The configuration names another one by now.
            ToolCheck::Unchanged | ToolCheck::Ready { .. } | ToolCheck::Unusable(_)
                if program != self.settings.command =>
            {
                self.check_due = at
            }
            ToolCheck::Unchanged => {}
            ToolCheck::Ready { version, stamp } => self.tool = ToolState::Ready { version, stamp },
            ToolCheck::Unusable(why) => self.tool = ToolState::Unusable(why),
            ToolCheck::Stuck(remains) => {
                self.checking = true;
                self.tool =
                    ToolState::Unusable("smartctl --version hangs and cannot be killed: the disk that it lies on may not answer".to_owned());
                self.tasks
                    .spawn(SmartTaskResult::StuckCheckExited, async move {
                        remains.exited().await;
                        SmartTaskResult::StuckCheckExited
                    });
            }
        }
    }

    fn stuck_count(&self) -> usize {
        self.plans
            .values()
            .filter(|plan| matches!(plan.state, QueryState::Stuck { .. }))
            .count()
    }

    async fn report_ignored(&mut self) -> Result<(), SourceError> {
        if self.ignored == self.reported_ignored {
            return Ok(());
        }
        self.reported_ignored.clone_from(&self.ignored);
        self.context
            .report(SourceUpdate::SmartIgnored(
                self.ignored.iter().cloned().collect(),
            ))
            .await
    }

    async fn report_status(&mut self) -> Result<(), SourceError> {
        let status = match (self.disabled_reason(), &self.tool) {
            (Some(why), _) => SourceStatus::Absent(why.to_owned()),
            (None, ToolState::Unknown) => return Ok(()),
            (None, ToolState::Unusable(why)) => SourceStatus::Down(why.clone()),
            (
                None,
                ToolState::Ready {
                    version: [major, minor],
                    ..
                },
            ) => {
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
                let limits: Vec<String> = stuck
                    .into_iter()
                    .chain(self.raid_members.errors())
                    .collect();
                match limits.is_empty() {
                    true => SourceStatus::Active(text),
                    false => SourceStatus::Limited(format!("{text}; {}", limits.join("; "))),
                }
            }
        };
        if self.reported_status.as_ref() == Some(&status) {
            return Ok(());
        }
        self.reported_status = Some(status.clone());
        self.context
            .report(SourceUpdate::Source {
                source: Source::Smart,
                status,
            })
            .await
    }
}
