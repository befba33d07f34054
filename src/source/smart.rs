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

mod ask;
pub mod controllers;
mod hidden;
mod nvme;
mod plan;
mod questions;
mod running;
mod self_test;
mod taken;
#[cfg(test)]
mod tests;
mod tool;
mod world;

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
use crate::model::report::{Report, Request, SmartTarget, Source, SourceStatus};
use crate::model::smart::TestKind;
use crate::source::context::{Context, SmartSettings, SourceError, USUAL_SMARTCTL};
use crate::source::smart::ask::{Read, Reply};
use crate::source::smart::hidden::Hidden;
use crate::source::smart::nvme::Push;
use crate::source::smart::plan::{Doing, Plan};
use crate::source::smart::running::{LOST, Running};
use crate::source::smart::self_test::Begun;
use crate::source::smart::taken::{Hold, Taken};
use crate::source::smart::tool::Checked;
use crate::source::smart::world::{Real, Stamp, World};

/// How often to see whether smartctl is still the same, or has come.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// A smartctl that cannot be started is looked at again after this at the earliest.
const CHECK_AGAIN: Duration = Duration::from_secs(10);
/// Of smartctls that cannot be killed. Beyond, only drives that have answered are asked: each dead
/// drive would add one more.
const MOST_STUCK: usize = 8;

const SUSPENDED: &str = "the drive is suspended, and is not woken for it: read from it first";
const NOT_ASKED: &str = "this drive is not asked for SMART data";

/// Runs until the owner of the state is gone.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let world = Real {
        workers: context.workers.clone(),
        root: context.root.clone(),
    };
    run_in(context, world).await
}

/// Something that was waited for.
#[derive(Debug)]
enum Ended {
    Asked {
        drive: DriveId,
        read: Read,
        since: Timestamp,
        place: Option<Hold>,
        reply: Reply,
    },
    Tested {
        drive: DriveId,
        kind: TestKind,
        since: Timestamp,
        place: Option<Hold>,
        begun: Begun,
    },
    /// The smartctl that was stuck on it.
    Gone {
        drive: DriveId,
    },
    Checked {
        program: PathBuf,
        checked: Checked,
    },
    /// The smartctl that was to tell its version.
    CheckGone,
    Hidden(hidden::Ended),
    Push(nvme::Ended),
}

/// Whether there is a smartctl.
enum Tool {
    Unknown,
    Ready { version: [u32; 2], stamp: Stamp },
    Unusable(String),
}

struct Smart<W> {
    context: Context,
    world: W,
    settings: Arc<SmartSettings>,
    tool: Tool,
    checking: bool,
    check_due: Instant,
    plans: BTreeMap<DriveId, Plan>,
    running: Running,
    /// How many drives are being asked.
    asking: usize,
    taken: Taken,
    hidden: Hidden,
    push: Push,
    told: Option<SourceStatus>,
    /// Drives that the configuration has not asked, and those of them that the owner was told.
    ignored: BTreeSet<DriveId>,
    ignored_told: BTreeSet<DriveId>,
}

async fn run_in<W: World>(context: Context, world: W) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let (mut targets, mut settings) = (context.smart_targets.clone(), context.settings.clone());
    let mut smart = Smart::new(context, world);
    smart.take_targets(&targets.borrow_and_update().clone());
    loop {
        let next = smart.go_on().await?;
        tokio::select! {
            Some(ended) = smart.running.next(), if !smart.running.is_empty() => smart.ended(ended).await?,
            changed = targets.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let targets = targets.borrow_and_update().clone();
                if smart.take_targets(&targets) {
                    smart.hidden.look_soon(Instant::now());
                }
            }
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                settings.mark_unchanged();
                smart.take_settings(&targets.borrow().clone());
            }
            request = requests.recv() => match request {
                Ok(request) => smart.request(request).await?,
                // Whatever it was, more answers do no harm. An admin's self-test would be lost:
                // hence the room for `REQUESTS`.
                Err(RecvError::Lagged(lost)) => {
                    tracing::warn!(lost, "requests came faster than they were taken: all drives are asked");
                    smart.request(Request::All).await?;
                }
                Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
            },
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

impl<W: World> Smart<W> {
    fn new(context: Context, world: W) -> Smart<W> {
        let settings = Arc::new(context.settings.borrow().smart.clone());
        let at = Instant::now();
        Smart {
            context,
            world,
            settings,
            tool: Tool::Unknown,
            checking: false,
            check_due: at,
            plans: BTreeMap::new(),
            running: Running::default(),
            asking: 0,
            taken: Taken::default(),
            hidden: Hidden::new(at),
            push: Push::default(),
            told: None,
            ignored: BTreeSet::new(),
            ignored_told: BTreeSet::new(),
        }
    }

    /// Starts all that is due. Out: when something will be.
    async fn go_on(&mut self) -> Result<Instant, SourceError> {
        let at = Instant::now();
        if self.absent().is_none() && !self.checking && self.check_due <= at {
            self.check(at);
        }
        let mut next = if self.checking || self.absent().is_some() {
            at + CHECK_EVERY
        } else {
            self.check_due
        };
        self.start_tests(at).await?;
        if self.ready() {
            next = next.min(self.start_due(at).unwrap_or(next));
            self.hidden.full = self.stuck() >= MOST_STUCK;
            next = next.min(self.hidden.start_due(
                &self.context,
                &self.world,
                &self.settings,
                &self.taken,
                &mut self.running,
                at,
            ));
            if self.settings.nvme_events {
                next = next.min(
                    self.push
                        .start_due(
                            &self.plans,
                            &self.context,
                            &self.world,
                            &mut self.running,
                            at,
                        )
                        .unwrap_or(next),
                );
            }
        }
        self.tell_ignored().await?;
        self.tell_status().await?;
        Ok(next)
    }

    fn ready(&self) -> bool {
        self.absent().is_none() && matches!(self.tool, Tool::Ready { .. })
    }

    /// Why nobody is to be asked at all.
    fn absent(&self) -> Option<&'static str> {
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

    fn check(&mut self, at: Instant) {
        self.checking = true;
        self.check_due = at + CHECK_EVERY;
        let known = match &self.tool {
            Tool::Ready { stamp, .. } => Some(*stamp),
            Tool::Unknown | Tool::Unusable(_) => None,
        };
        let (world, program) = (self.world.clone(), self.settings.command.clone());
        let lost = Ended::Checked {
            program: program.clone(),
            checked: Checked::Unusable(format!("asking for its version: {LOST}")),
        };
        self.running.spawn(lost, async move {
            let checked = tool::check(world, program.clone(), known).await;
            Ended::Checked { program, checked }
        });
    }

    /// Out: whether there are other drives, or devices, than before.
    fn take_targets(&mut self, targets: &[SmartTarget]) -> bool {
        let at = Instant::now();
        let ways = |plans: &BTreeMap<DriveId, Plan>| {
            let wanted = plans.values().filter(|plan| plan.wanted);
            wanted
                .map(|plan| (plan.target.drive.clone(), plan.target.device.clone()))
                .collect::<BTreeSet<_>>()
        };
        let before = ways(&self.plans);
        self.ignored.clear();
        self.plans.values_mut().for_each(|plan| plan.wanted = false);
        for target in targets {
            let ignored = self.given_type(target) == Some("ignore");
            if ignored || !self.settings.enabled {
                self.ignored.insert(target.drive.clone());
            }
            if ignored {
                continue;
            }
            match self.plans.get_mut(&target.drive) {
                Some(plan) => plan.take(target.clone(), &self.settings, at),
                None => {
                    let plan = Plan::new(target.clone(), &self.settings, now(), at);
                    self.plans.insert(target.drive.clone(), plan);
                }
            }
        }
        self.plans.retain(|_, plan| plan.is_needed());
        before != ways(&self.plans)
    }

    fn take_settings(&mut self, targets: &[SmartTarget]) {
        let settings = self.context.settings.borrow().smart.clone();
        if settings == *self.settings {
            return;
        }
        let at = Instant::now();
        if settings.device_types != self.settings.device_types {
            self.plans
                .values_mut()
                .for_each(|plan| plan.learned.tried = false);
        }
        self.settings = Arc::new(settings);
        // Another command, perhaps.
        self.tool = Tool::Unknown;
        self.check_due = at;
        self.take_targets(targets);
    }

    async fn request(&mut self, request: Request) -> Result<(), SourceError> {
        let at = Instant::now();
        match request {
            Request::All => {
                self.plans.values_mut().for_each(|plan| plan.at_once(at));
                self.hidden.anew(self.settings.shortest_interval, at);
                self.check_due = at;
            }
            Request::Inventory => self.hidden.look_soon(at),
            Request::Smart(drives) => {
                for drive in &drives {
                    if let Some(plan) = self.plans.get_mut(drive) {
                        plan.at_once(at);
                    }
                }
            }
            Request::NvmeEvent { controller } => {
                self.push.again(&controller, at);
                let is_it =
                    |plan: &&mut Plan| nvme::controllers(&plan.target).contains(&controller);
                self.plans
                    .values_mut()
                    .filter(is_it)
                    .for_each(|plan| plan.at_once(at));
            }
            Request::SelfTest { drive, kind } => {
                if let Err(why) = self.accept_test(&drive, kind) {
                    self.context
                        .report(Report::SelfTest {
                            drive,
                            kind,
                            at: now(),
                            result: Err(why),
                        })
                        .await?;
                }
            }
            Request::Kubelet | Request::Mounts | Request::DiskStats | Request::Probe(_) => {}
        }
        Ok(())
    }

    /// The error: why not, for the admin. What waits for its turn is refused when this has changed
    /// meanwhile.
    fn may_test(&self, drive: &DriveId) -> Result<(), String> {
        if let Some(why) = self.absent() {
            return Err(format!("drives are not asked for SMART data here: {why}"));
        }
        if let Tool::Unusable(why) = &self.tool {
            return Err(why.clone());
        }
        let plan = self
            .plans
            .get(drive)
            .filter(|plan| plan.wanted)
            .ok_or(NOT_ASKED)?;
        if let Doing::Stuck { since } = plan.doing {
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
    fn accept_test(&mut self, drive: &DriveId, kind: TestKind) -> Result<(), String> {
        if matches!(self.tool, Tool::Unknown) && self.absent().is_none() {
            return Err("smartctl has not told its version yet: try again".to_owned());
        }
        self.may_test(drive)?;
        let plan = self.plans.get_mut(drive).ok_or(NOT_ASKED)?;
        if plan.test.is_some() {
            return Err("another self-test is about to be started".to_owned());
        }
        plan.test = Some(kind);
        Ok(())
    }

    async fn ended(&mut self, ended: Ended) -> Result<(), SourceError> {
        let at = Instant::now();
        match ended {
            Ended::Asked {
                drive,
                read,
                since,
                place,
                reply,
            } => {
                self.asking = self.asking.saturating_sub(1);
                self.asked(drive, read, since, place, reply, at).await?;
            }
            Ended::Tested {
                drive,
                kind,
                since,
                place,
                begun,
            } => {
                self.asking = self.asking.saturating_sub(1);
                let result = match begun {
                    Begun::Another(why) => {
                        if let Some(plan) = self.plans.get_mut(&drive) {
                            plan.tested(false, at);
                        }
                        self.look_at_hardware();
                        Err(why)
                    }
                    Begun::Said(result) => {
                        if let Some(plan) = self.plans.get_mut(&drive) {
                            plan.tested(result.is_ok(), at);
                        }
                        result
                    }
                    Begun::Stuck(remains) => {
                        self.stuck_on(&drive, since, false, remains, place).await?;
                        Err("smartctl has hung on this drive, and cannot be killed".to_owned())
                    }
                };
                self.context
                    .report(Report::SelfTest {
                        drive,
                        kind,
                        at: now(),
                        result,
                    })
                    .await?;
            }
            Ended::Gone { drive } => {
                tracing::info!(%drive, "a smartctl that could not be killed has gone");
                if let Some(plan) = self.plans.get_mut(&drive) {
                    plan.freed();
                }
                self.context
                    .report(Report::SmartStuck { drive, stuck: None })
                    .await?;
            }
            Ended::Checked { program, checked } => self.checked(&program, checked, at),
            Ended::CheckGone => {
                self.checking = false;
                self.check_due = at;
            }
            Ended::Hidden(mut ended) => {
                if let hidden::Ended::Enumerated { name, enumerated } = &mut ended {
                    self.stuck_at(name, &mut enumerated.stuck).await?;
                }
                for report in self
                    .hidden
                    .ended(ended, &self.settings, &mut self.running, at)
                {
                    self.context.report(report).await?;
                }
            }
            Ended::Push(ended) => self.push.ended(ended, &self.settings, at),
        }
        self.plans.retain(|_, plan| plan.is_needed());
        Ok(())
    }

    fn checked(&mut self, program: &Path, checked: Checked, at: Instant) {
        self.checking = false;
        match checked {
            // The configuration names another one by now.
            Checked::Same | Checked::Ready { .. } | Checked::Unusable(_)
                if program != self.settings.command =>
            {
                self.check_due = at
            }
            Checked::Same => {}
            Checked::Ready { version, stamp } => self.tool = Tool::Ready { version, stamp },
            Checked::Unusable(why) => self.tool = Tool::Unusable(why),
            Checked::Stuck(remains) => {
                self.checking = true;
                self.tool =
                    Tool::Unusable("smartctl --version hangs and cannot be killed: the disk that it lies on may not answer".to_owned());
                self.running.spawn(Ended::CheckGone, async move {
                    remains.gone().await;
                    Ended::CheckGone
                });
            }
        }
    }

    fn stuck(&self) -> usize {
        self.plans
            .values()
            .filter(|plan| matches!(plan.doing, Doing::Stuck { .. }))
            .count()
    }

    async fn tell_ignored(&mut self) -> Result<(), SourceError> {
        if self.ignored == self.ignored_told {
            return Ok(());
        }
        self.ignored_told.clone_from(&self.ignored);
        self.context
            .report(Report::SmartIgnored(self.ignored.iter().cloned().collect()))
            .await
    }

    async fn tell_status(&mut self) -> Result<(), SourceError> {
        let status = match (self.absent(), &self.tool) {
            (Some(why), _) => SourceStatus::Absent(why.to_owned()),
            (None, Tool::Unknown) => return Ok(()),
            (None, Tool::Unusable(why)) => SourceStatus::Down(why.clone()),
            (
                None,
                Tool::Ready {
                    version: [major, minor],
                    ..
                },
            ) => {
                let drives = match self.plans.values().filter(|plan| plan.wanted).count() {
                    1 => "1 drive".to_owned(),
                    number => format!("{number} drives"),
                };
                let text = format!("smartctl {major}.{minor}, {drives}");
                let stuck = match self.stuck() {
                    0 => None,
                    1 => Some("on one of them it hangs and cannot be killed".to_owned()),
                    number => Some(format!("on {number} of them it hangs and cannot be killed")),
                };
                let limits: Vec<String> = stuck.into_iter().chain(self.hidden.troubles()).collect();
                match limits.is_empty() {
                    true => SourceStatus::Active(text),
                    false => SourceStatus::Limited(format!("{text}; {}", limits.join("; "))),
                }
            }
        };
        if self.told.as_ref() == Some(&status) {
            return Ok(());
        }
        self.told = Some(status.clone());
        self.context
            .report(Report::Source {
                source: Source::Smart,
                status,
            })
            .await
    }
}
