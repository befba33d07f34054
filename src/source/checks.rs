//! Filesystem checks: which of the wanted ones runs now, step by step as `model::check::steps`
//! says, and what came of it.
//!
//! In: what the owner wants checked (`Wanted`, level-triggered: what is not there any more is
//! stopped). Out: `Report::Check`. Everything that touches a device or a mount happens in processes
//! of its own: `runner` (the checker, without any right to write), `freezer` (holds the writers),
//! `snapshot` and `lvm` (copies of logical volumes), workers (syncfs, XFS' sick bits). May not
//! enter: what runs mean (`model::check`).
//!
//! `queue` knows whose turn it is, `conduct` leads one check from run to run, `load` how busy the
//! node is, `tools` where the checkers are, `world` is the door outside.

mod conduct;
pub mod freezer;
pub mod health;
mod load;
pub mod lvm;
mod queue;
pub mod runner;
mod snapshot;
#[cfg(test)]
mod tests;
mod tools;
mod world;

pub use snapshot::PREFIX as SNAPSHOT_PREFIX;

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use crate::host::clock::now;
use crate::model::check::steps::Outcome;
use crate::model::check::{Progress, Run, Signal, State, Stop, Wanted};
use crate::model::ids::CheckId;
use crate::model::report::{Report, Source, SourceStatus};
use crate::source::checks::conduct::{Concluded, Means, Said, Told, conduct, stopped_by};
use crate::source::checks::load::Busy;
use crate::source::checks::queue::{
    Gate, Going, Queue, Stage, Stuck, Turn, devices, failed, only_phase,
};
use crate::source::checks::tools::Found;
use crate::source::checks::world::{Real, World};
use crate::source::context::{CheckSettings, Context, SourceError};

/// A phase is news this often at most.
const PHASES: Duration = Duration::from_secs(1);
/// How often to see whether a checker was installed, or another version of it.
const LOOK_FOR_TOOLS: Duration = Duration::from_secs(60);

const FORGOTTEN: &str = "the check is not wanted any more: what it was of is gone";

/// Runs until the owner of the state is gone.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let world = Real::new(&context);
    run_in(context, world).await
}

/// Something that was waited for.
enum Ended {
    Concluded(CheckId, Box<Concluded>),
    Looked(CheckId, Result<Busy, String>),
    Tools(Found),
    /// What a daemon before left behind is in order.
    Tidy(Vec<String>),
    /// The checker that hung.
    Gone(u64),
}

/// A task of which nothing came (it panicked, say): what waits for it must not wait for ever.
enum Task {
    Conducting(CheckId),
    Looking(CheckId),
    Tools,
    Tidying,
    Watching(u64),
}

struct Checks<W> {
    context: Context,
    world: W,
    settings: CheckSettings,
    queue: Queue,
    tasks: JoinSet<Ended>,
    purposes: HashMap<Id, Task>,
    /// Rung by checks that have something to say.
    bell: Arc<Notify>,
    /// None until somebody has looked.
    tools: Option<Found>,
    looking_for_tools: bool,
    tools_due: Instant,
    /// Before, no check begins.
    tidy: bool,
    next_stuck: u64,
    told: Option<SourceStatus>,
}

async fn run_in<W: World>(context: Context, world: W) -> Result<Infallible, SourceError> {
    let (mut wanted, mut settings) = (context.checks.clone(), context.settings.clone());
    let mut checks = Checks::new(context, world);
    checks.tidy_up();
    let first = wanted.borrow_and_update().clone();
    checks.take(&first).await?;
    loop {
        let next = checks.go_on().await?;
        let bell = checks.bell.clone();
        tokio::select! {
            changed = wanted.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let wanted = wanted.borrow_and_update().clone();
                checks.take(&wanted).await?;
            }
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let new = settings.borrow_and_update().checks.clone();
                checks.take_settings(new);
            }
            Some(ended) = checks.next(), if !checks.tasks.is_empty() => checks.ended(ended).await?,
            () = bell.notified() => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

impl<W: World> Checks<W> {
    fn new(context: Context, world: W) -> Checks<W> {
        let settings = context.settings.borrow().checks.clone();
        Checks {
            context,
            world,
            settings,
            queue: Queue::default(),
            tasks: JoinSet::new(),
            purposes: HashMap::new(),
            bell: Arc::default(),
            tools: None,
            looking_for_tools: false,
            tools_due: Instant::now(),
            tidy: false,
            next_stuck: 0,
            told: None,
        }
    }

    fn spawn(&mut self, purpose: Task, task: impl Future<Output = Ended> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.purposes.insert(id, purpose);
    }

    /// Cancel-safe.
    async fn next(&mut self) -> Option<Result<Ended, Task>> {
        match self.tasks.join_next_with_id().await? {
            Ok((id, ended)) => {
                self.purposes.remove(&id);
                Some(Ok(ended))
            }
            Err(error) => {
                tracing::error!(%error, "a task that checks filesystems was lost");
                self.purposes.remove(&error.id()).map(Err)
            }
        }
    }

    fn tidy_up(&mut self) {
        let (world, tools) = (self.world.clone(), self.settings.tools.clone());
        self.spawn(Task::Tidying, async move {
            Ended::Tidy(world.tidy(tools).await)
        });
    }

    /// Starts all whose turn it is, and tells what is new. Out: when something will be.
    async fn go_on(&mut self) -> Result<Instant, SourceError> {
        let at = Instant::now();
        if !self.looking_for_tools && self.tools_due <= at {
            self.looking_for_tools = true;
            self.tools_due = at + LOOK_FOR_TOOLS;
            let (world, tools, before) = (
                self.world.clone(),
                self.settings.tools.clone(),
                self.tools.clone(),
            );
            self.spawn(Task::Tools, async move {
                Ended::Tools(world.find_tools(tools, before).await)
            });
        }
        let mut next = self.tools_due.max(if self.looking_for_tools {
            at + LOOK_FOR_TOOLS
        } else {
            at
        });
        if let (true, Some(tools)) = (self.tidy, self.tools.clone()) {
            self.end_hung(&tools).await?;
            while let Some(turn) = self.queue.next(self.settings.at_once, at) {
                self.turn(turn, &tools).await?;
            }
            next = next.min(self.queue.due(at).unwrap_or(next));
        }
        next = next.min(self.tell(at).await?.unwrap_or(next));
        self.tell_status().await?;
        Ok(next)
    }

    async fn turn(&mut self, turn: Turn, tools: &Found) -> Result<(), SourceError> {
        match turn {
            Turn::Begin(id) => self.begin(&id, tools).await?,
            Turn::Grant(id) => {
                if let Some(Going {
                    stage: Stage::Conducted { said, told },
                    ..
                }) = self.queue.going.get(&id)
                {
                    let turn = said.borrow().turn;
                    told.send_modify(|told| told.granted = turn);
                }
            }
            Turn::Look(id) => {
                let Some(Going {
                    stage: Stage::Queued { gate, .. },
                    wanted,
                    ..
                }) = self.queue.going.get_mut(&id)
                else {
                    return Ok(());
                };
                *gate = Gate::Asking;
                let (world, of) = (
                    self.world.clone(),
                    devices(&wanted.target).into_iter().collect(),
                );
                self.spawn(Task::Looking(id.clone()), async move {
                    Ended::Looked(id, world.load(of).await)
                });
            }
        }
        Ok(())
    }

    async fn begin(&mut self, id: &CheckId, tools: &Found) -> Result<(), SourceError> {
        let Some(going) = self.queue.going.get_mut(id) else {
            return Ok(());
        };
        let target = &going.wanted.target;
        let checker = match tools.checker(target.filesystem) {
            Ok(path) => path.to_owned(),
            Err(why) => {
                let outcome = failed(why, target.mode);
                return self.end(id, outcome).await;
            }
        };
        let said = Said {
            state: State::Running {
                phase: "beginning".to_owned(),
            },
            runs: Vec::new(),
            signals: Vec::new(),
            turn: Some(0),
        };
        let (said, heard) = watch::channel(said);
        let (told, hears) = watch::channel(Told {
            stop: None,
            signals: going.wanted.signals.clone(),
            granted: Some(0),
        });
        let means = Means {
            checker,
            lvm: tools.lvm.clone(),
            said,
            bell: self.bell.clone(),
            told: hears,
        };
        going.stage = Stage::Conducted { said: heard, told };
        let (world, wanted, id) = (self.world.clone(), going.wanted.clone(), id.clone());
        self.spawn(Task::Conducting(id.clone()), async move {
            Ended::Concluded(id, Box::new(Box::pin(conduct(world, wanted, means)).await))
        });
        Ok(())
    }

    /// What the owner wants now, whole.
    async fn take(&mut self, all: &[Wanted]) -> Result<(), SourceError> {
        let at = Instant::now();
        let ids: BTreeSet<&CheckId> = all.iter().map(|wanted| &wanted.id).collect();
        self.queue.over.retain(|id| ids.contains(id));
        for (place, wanted) in all
            .iter()
            .enumerate()
            .filter(|(_, wanted)| !self.queue.over.contains(&wanted.id))
        {
            match self.queue.going.get_mut(&wanted.id) {
                Some(going) => {
                    going.place = place;
                    going.wanted = wanted.clone();
                    if let Stage::Conducted { told, .. } = &going.stage {
                        told.send_if_modified(|told| {
                            let news = told.signals != wanted.signals
                                || (told.stop.is_none() && wanted.stop.is_some());
                            told.signals.clone_from(&wanted.signals);
                            told.stop = told.stop.take().or_else(|| wanted.stop.clone());
                            news
                        });
                    }
                }
                None => {
                    self.queue
                        .going
                        .insert(wanted.id.clone(), Going::new(wanted.clone(), place, at));
                }
            }
        }
        let mut ending = Vec::new();
        for (id, going) in &mut self.queue.going {
            let stop = if ids.contains(id) {
                going.wanted.stop.clone()
            } else {
                Some(Stop {
                    why: FORGOTTEN.to_owned(),
                })
            };
            let Some(stop) = stop else { continue };
            match &going.stage {
                Stage::Conducted { told, .. } => {
                    told.send_if_modified(|told| {
                        told.stop.is_none() && told.stop.replace(stop).is_none()
                    });
                }
                Stage::Queued { .. } => {
                    ending.push((id.clone(), stopped_by(&stop, going.wanted.target.mode)))
                }
            }
        }
        for (id, outcome) in ending {
            self.end(&id, outcome).await?;
        }
        Ok(())
    }

    fn take_settings(&mut self, new: CheckSettings) {
        if new.tools != self.settings.tools {
            self.tools = None;
            self.tools_due = Instant::now();
        }
        self.settings = new;
    }

    async fn ended(&mut self, ended: Result<Ended, Task>) -> Result<(), SourceError> {
        let at = Instant::now();
        let internal = || "an internal error: the task was lost".to_owned();
        match ended {
            Ok(Ended::Concluded(id, concluded)) => self.concluded(&id, *concluded).await,
            Ok(Ended::Looked(id, load)) => self.looked(&id, load, at).await,
            Ok(Ended::Tools(found)) => {
                self.looking_for_tools = false;
                // Due again already: the settings have changed meanwhile, and these are those from
                // before.
                self.tools = (self.tools_due > at).then_some(found);
                Ok(())
            }
            Ok(Ended::Tidy(lines)) => {
                lines.iter().for_each(|line| tracing::warn!("{line}"));
                self.tidy = true;
                Ok(())
            }
            Ok(Ended::Gone(number)) | Err(Task::Watching(number)) => {
                if let Some(stuck) = self.queue.stuck.remove(&number) {
                    tracing::info!(since = %stuck.since, "a checker that could not be killed has gone");
                }
                Ok(())
            }
            Err(Task::Conducting(id)) => {
                let Some(going) = self.queue.going.get(&id) else {
                    return Ok(());
                };
                let outcome = failed(internal(), going.wanted.target.mode);
                self.end(&id, outcome).await
            }
            Err(Task::Looking(id)) => self.looked(&id, Err(internal()), at).await,
            Err(Task::Tools) => {
                self.looking_for_tools = false;
                Ok(())
            }
            Err(Task::Tidying) => {
                self.tidy = true;
                Ok(())
            }
        }
    }

    async fn looked(
        &mut self,
        id: &CheckId,
        load: Result<Busy, String>,
        at: Instant,
    ) -> Result<(), SourceError> {
        // Unknown is not quiet.
        let why = match load {
            Ok(busy) if busy.percent <= f64::from(self.settings.max_io_pressure) => None,
            Ok(busy) => Some(busy.words()),
            Err(why) => Some(format!("how busy the node is cannot be told ({why})")),
        };
        match self.queue.looked(id, why, at) {
            Ok(()) => Ok(()),
            Err(outcome) => self.end(id, outcome).await,
        }
    }

    async fn concluded(&mut self, id: &CheckId, concluded: Concluded) -> Result<(), SourceError> {
        let Concluded {
            outcome,
            runs,
            signals,
            remains,
        } = concluded;
        let of = self
            .queue
            .going
            .get(id)
            .map(|going| devices(&going.wanted.target))
            .unwrap_or_default();
        for remains in remains {
            let number = self.next_stuck;
            self.next_stuck += 1;
            let stuck = Stuck {
                devices: of.clone(),
                waiting_in: remains.waiting_in.clone(),
                since: now(),
            };
            self.queue.stuck.insert(number, stuck);
            self.spawn(Task::Watching(number), async move {
                remains.gone().await;
                Ended::Gone(number)
            });
        }
        self.end_with(id, outcome, runs, signals).await
    }

    /// One that has made no run, or whose runs were lost with its task.
    async fn end(&mut self, id: &CheckId, outcome: Outcome) -> Result<(), SourceError> {
        let Some(going) = self.queue.going.get(id) else {
            return Ok(());
        };
        let runs = match &going.stage {
            Stage::Queued { .. } => Vec::new(),
            Stage::Conducted { said, .. } => said.borrow().runs.clone(),
        };
        let signals = going.wanted.signals.clone();
        self.end_with(id, outcome, runs, signals).await
    }

    async fn end_with(
        &mut self,
        id: &CheckId,
        outcome: Outcome,
        runs: Vec<Arc<Run>>,
        signals: Vec<Signal>,
    ) -> Result<(), SourceError> {
        self.queue.going.remove(id);
        // Until it is out of the owner's list it must not begin anew.
        if self
            .context
            .checks
            .borrow()
            .iter()
            .any(|wanted| wanted.id == *id)
        {
            self.queue.over.insert(id.clone());
        }
        let progress = Progress {
            id: id.clone(),
            at: now(),
            state: State::Ended,
            runs,
            signals,
            outcome: Some(outcome),
        };
        self.context.report(Report::Check(Box::new(progress))).await
    }

    /// Those that cannot be checked now end at once.
    async fn end_hung(&mut self, tools: &Found) -> Result<(), SourceError> {
        let queued = self
            .queue
            .going
            .iter()
            .filter(|(_, going)| !going.is_conducted());
        let ending: Vec<(CheckId, Outcome)> = queued
            .filter_map(|(id, going)| {
                let target = &going.wanted.target;
                let absent = || {
                    tools
                        .checker(target.filesystem)
                        .err()
                        .map(|why| failed(why, target.mode))
                };
                Some((id.clone(), self.queue.hung(target).or_else(absent)?))
            })
            .collect();
        for (id, outcome) in ending {
            self.end(&id, outcome).await?;
        }
        Ok(())
    }

    /// Tells what is new of each. Out: when what was held back as too soon will be told.
    async fn tell(&mut self, at: Instant) -> Result<Option<Instant>, SourceError> {
        let mut held_back: Option<Instant> = None;
        let mut news = Vec::new();
        for (id, going) in &self.queue.going {
            let now_so = match &going.stage {
                Stage::Queued { .. } => Said {
                    state: State::Queued {
                        why: self
                            .queue
                            .why_queued(id, going, self.tidy && self.tools.is_some()),
                    },
                    runs: Vec::new(),
                    signals: going.wanted.signals.clone(),
                    turn: None,
                },
                Stage::Conducted { said, .. } => said.borrow().clone(),
            };
            match &going.told_owner {
                Some(before)
                    if before.state == now_so.state
                        && before.runs == now_so.runs
                        && before.signals == now_so.signals => {}
                Some(before) if only_phase(before, &now_so) && at < going.told_at + PHASES => {
                    let due = going.told_at + PHASES;
                    held_back = Some(held_back.map_or(due, |other| other.min(due)));
                }
                Some(_) | None => news.push((id.clone(), now_so)),
            }
        }
        for (id, said) in news {
            let Some(going) = self.queue.going.get_mut(&id) else {
                continue;
            };
            (going.told_owner, going.told_at) = (Some(said.clone()), at);
            let Said {
                state,
                runs,
                signals,
                ..
            } = said;
            let progress = Progress {
                id,
                at: now(),
                state,
                runs,
                signals,
                outcome: None,
            };
            self.context
                .report(Report::Check(Box::new(progress)))
                .await?;
        }
        Ok(held_back)
    }

    async fn tell_status(&mut self) -> Result<(), SourceError> {
        let Some(tools) = &self.tools else {
            return Ok(());
        };
        let status = match (tools.status(), self.queue.stuck.len()) {
            (status, 0) => status,
            (SourceStatus::Active(text) | SourceStatus::Limited(text), stuck) => {
                SourceStatus::Limited(format!(
                    "{text}; {stuck} checkers hang and cannot be killed"
                ))
            }
            (status, _) => status,
        };
        if self.told.as_ref() == Some(&status) {
            return Ok(());
        }
        self.told = Some(status.clone());
        self.context
            .report(Report::Source {
                source: Source::Checks,
                status,
            })
            .await
    }
}
