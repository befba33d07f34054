//! One check from its first run to its verdict: does what `model::check::steps` says comes next.
//!
//! In: what is wanted, a turn, the word to stop. Out: what it is doing (`Said`), at last what came
//! of it (`Concluded`). Never waits for anybody while a filesystem is frozen; on every way out it
//! is thawed before anything else is done.
//!
//! Its parts are boxed: each lies within the other, and what they are together would not fit the
//! stack of one of our threads.

mod frozen;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::host::clock;
use crate::host::exec::Remains;
use crate::model::check::steps::{Outcome, Situation, Step};
use crate::model::check::{
    Ballot, End, Filesystem, Mode, Run, Signal, State, Stop, Verdict, Wanted,
};
use crate::source::checks::health::Extent;
use crate::source::checks::runner::{Device, Ran, RunOrder, Strays};
use crate::source::checks::snapshot::{SnapshotError, SnapshotOrder};
use crate::source::checks::world::World;

/// A syncfs that takes longer says that a freeze would take longer still.
const SYNC: Duration = Duration::from_secs(5);
/// The checker must have ended before the freezer's own limit thaws under it.
const MARGIN: Duration = Duration::from_millis(200);
/// For the freezer's word that it has thawed. Dropping it thaws as well.
const THAW: Duration = Duration::from_secs(30);
/// For the word of a checker that has reached its own time-out. Killing it takes a second at most.
const LAST_WORD: Duration = Duration::from_secs(3);
/// The steps of one check, many times over: a bound for what should not happen.
const MOST_STEPS: usize = 100;
/// Between two questions what comes next when the answer was to wait.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// What a check says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub state: State,
    pub runs: Vec<Arc<Run>>,
    pub signals: Vec<Signal>,
    /// The turn that it wants or has, counted; None while it needs none. It has it when
    /// `Told::granted` is the same.
    pub turn: Option<u64>,
}

/// What a check is told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub stop: Option<Stop>,
    /// What the kernel said of the filesystem.
    pub signals: Vec<Signal>,
    pub granted: Option<u64>,
}

/// What came of a check.
#[derive(Debug)]
pub struct Concluded {
    pub outcome: Outcome,
    pub runs: Vec<Arc<Run>>,
    pub signals: Vec<Signal>,
    /// Of checkers that cannot be killed.
    pub remains: Vec<Remains>,
}

/// With what a check goes.
pub struct Means {
    pub checker: PathBuf,
    /// lvm, where snapshots can be made.
    pub lvm: Option<PathBuf>,
    pub said: watch::Sender<Said>,
    /// Rung when something was said.
    pub bell: Arc<Notify>,
    pub told: watch::Receiver<Told>,
}

pub async fn conduct<W: World>(world: W, wanted: Wanted, means: Means) -> Concluded {
    let turn = means.said.borrow().turn.unwrap_or_default();
    let mode = wanted.target.mode;
    let mut conductor = Conductor {
        world,
        wanted,
        means,
        clock: Clock {
            at: clock::now(),
            since: Instant::now(),
        },
        turn,
        runs: Vec::new(),
        found: Vec::new(),
        no_freeze: None,
        no_snapshot: false,
        strays: Strays::default(),
        remains: Vec::new(),
    };
    let outcome = match Box::pin(conductor.steps()).await {
        Ok(outcome) => outcome,
        Err(Cut::Stopped(stop)) => stopped_by(&stop, mode),
        Err(Cut::Unsure(why)) => conductor.unsure(&why),
        Err(Cut::Stuck(waiting_in)) => stuck(waiting_in, conductor.strongest()),
    };
    // Before it is over: until then no other check of this filesystem begins.
    conductor.look_for_strays().await;
    let remains = std::mem::take(&mut conductor.remains);
    let signals = conductor.signals();
    Concluded {
        outcome,
        runs: conductor.runs,
        signals,
        remains,
    }
}

pub fn stopped_by(stop: &Stop, mode: Mode) -> Outcome {
    Outcome {
        verdict: Verdict::Inconclusive,
        reason: stop.why.clone(),
        mode,
    }
}

fn stuck(waiting_in: Option<String>, mode: Mode) -> Outcome {
    let place = waiting_in
        .map(|place| format!(" ({place})"))
        .unwrap_or_default();
    let reason = format!(
        "the checker hangs in the kernel{place} and cannot be killed: the device does not answer"
    );
    Outcome {
        verdict: Verdict::Failed,
        reason,
        mode,
    }
}

/// Wall-clock time that neither leaps nor goes back for as long as a check lasts: two runs that it
/// calls 60 s apart are.
#[derive(Clone, Copy)]
struct Clock {
    at: Timestamp,
    since: Instant,
}

impl Clock {
    fn now(&self) -> Timestamp {
        self.at.checked_add(self.since.elapsed()).unwrap_or(self.at)
    }
}

/// Why a check does not come to its own end.
enum Cut {
    Stopped(Stop),
    /// A checker does not go; where it waits.
    Stuck(Option<String>),
    /// Its writers may be waiting still; says why that is not known.
    Unsure(String),
}

struct Conductor<W> {
    world: W,
    wanted: Wanted,
    means: Means,
    clock: Clock,
    /// The last turn that it wanted.
    turn: u64,
    runs: Vec<Arc<Run>>,
    /// Signals that the check itself has found.
    found: Vec<Signal>,
    no_freeze: Option<String>,
    no_snapshot: bool,
    /// Of runs that were dropped.
    strays: Strays,
    remains: Vec<Remains>,
}

impl<W: World> Conductor<W> {
    async fn steps(&mut self) -> Result<Outcome, Cut> {
        // Where it cannot be asked, a live run is no worse for it; a frozen one asks again.
        if let Err(why) = self.ask_for_sickness(Extent::Inodes).await? {
            tracing::info!(check = %self.wanted.id, why, "a filesystem's own word of its health is not known");
        }
        for _ in 0..MOST_STEPS {
            let step = self.decide();
            match step {
                Step::Done(outcome) => return Ok(outcome),
                Step::Wait { until } => self.wait(until).await?,
                Step::Run(mode) => {
                    self.take_turn().await?;
                    match mode {
                        Mode::Frozen => Box::pin(self.frozen_run()).await?,
                        Mode::Snapshot => Box::pin(self.snapshot_run()).await?,
                        Mode::Live | Mode::ReadOnly | Mode::Unmounted => {
                            Box::pin(self.run_on(mode, self.device())).await?
                        }
                    }
                }
            }
        }
        let reason = format!("an internal error: no verdict after {MOST_STEPS} steps");
        Ok(Outcome {
            verdict: Verdict::Failed,
            reason,
            mode: self.wanted.target.mode,
        })
    }

    fn decide(&self) -> Step {
        let signals = self.signals();
        let situation = Situation {
            filesystem: self.wanted.target.filesystem,
            mode: self.wanted.target.mode,
            terms: &self.wanted.terms,
            signals: &signals,
            snapshot: self.wanted.target.logical_volume.is_some()
                && self.means.lvm.is_some()
                && !self.no_snapshot,
            no_freeze: self.no_freeze.as_deref(),
        };
        let runs: Vec<&Run> = self.runs.iter().map(|run| &**run).collect();
        self.world.next(&situation, &runs, self.clock.now())
    }

    /// The kernel's, as they are now, and those that were found.
    fn signals(&self) -> Vec<Signal> {
        let mut signals = self.means.told.borrow().signals.clone();
        signals.extend(
            self.found
                .iter()
                .filter(|found| !signals.contains(found))
                .cloned()
                .collect::<Vec<_>>(),
        );
        signals
    }

    /// Of the runs so far the strongest mode; of the target where there was none.
    fn strongest(&self) -> Mode {
        self.runs
            .iter()
            .map(|run| run.mode)
            .max()
            .unwrap_or(self.wanted.target.mode)
    }

    fn device(&self) -> Device {
        Device {
            name: self.wanted.target.device.clone(),
            dev: self.wanted.target.dev,
        }
    }

    // --- what it says, and its turn

    fn say(&self, change: impl FnOnce(&mut Said)) {
        let signals = self.signals();
        self.means.said.send_modify(|said| {
            said.signals = signals;
            said.runs.clone_from(&self.runs);
            change(said);
        });
        self.means.bell.notify_one();
    }

    fn doing(&self, phase: String) {
        self.say(|said| said.state = State::Running { phase });
    }

    /// The words to stop end whatever is waited for: it is dropped.
    async fn unless_stopped<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Cut> {
        tokio::select! {
            biased;
            stop = stopped(&mut self.means.told) => Err(Cut::Stopped(stop)),
            value = what => Ok(value),
        }
    }

    fn has_turn(&self) -> bool {
        let wants = self.means.said.borrow().turn;
        wants.is_some() && wants == self.means.told.borrow().granted
    }

    async fn take_turn(&mut self) -> Result<(), Cut> {
        if self.has_turn() {
            return Ok(());
        }
        let mine = self.turn + 1;
        self.turn = mine;
        let until = self.clock.now();
        self.say(|said| {
            said.turn = Some(mine);
            said.state = State::Waiting {
                until,
                why: "it waits for its turn: other checks go on".to_owned(),
            };
        });
        let mut told = self.means.told.clone();
        let granted = async move {
            let granted = told
                .wait_for(|told| told.granted == Some(mine))
                .await
                .is_ok();
            if !granted {
                // The source itself ends, and this check with it.
                std::future::pending::<()>().await;
            }
        };
        self.unless_stopped(granted).await
    }

    /// Gives the turn back meanwhile. Over as soon as the kernel speaks.
    async fn wait(&mut self, until: Timestamp) -> Result<(), Cut> {
        self.say(|said| {
            said.turn = None;
            said.state = State::Waiting {
                until,
                why: "two frozen runs must lie apart to be two".to_owned(),
            };
        });
        let left = Duration::try_from(until.duration_since(self.clock.now()))
            .unwrap_or_default()
            .max(SHORTEST_WAIT);
        let known = self.means.told.borrow().signals.len();
        let mut told = self.means.told.clone();
        let passed = async move {
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                Ok(_) = told.wait_for(|told| told.signals.len() > known) => {}
            }
        };
        self.unless_stopped(passed).await
    }

    // --- runs

    /// Which of how many.
    fn name_of_run(&self, mode: Mode) -> String {
        let number = self.runs.iter().filter(|run| run.mode == mode).count() + 1;
        match mode {
            Mode::Live => format!(
                "live run {number} of {}",
                self.wanted
                    .terms
                    .runs
                    .max(u32::try_from(number).unwrap_or(u32::MAX))
            ),
            Mode::Frozen => format!("frozen run {number} of {}", number.max(2)),
            Mode::Snapshot | Mode::ReadOnly | Mode::Unmounted => format!("{} run", mode.name()),
        }
    }

    fn order(&self, mode: Mode, device: Device) -> RunOrder {
        let Wanted { target, terms, .. } = &self.wanted;
        let frozen = mode == Mode::Frozen;
        RunOrder {
            filesystem: target.filesystem,
            mode,
            device,
            members: target
                .members
                .iter()
                .map(|(name, dev)| Device {
                    name: name.clone(),
                    dev: *dev,
                })
                .collect(),
            command: self.means.checker.clone(),
            timeout: if frozen {
                terms.budget.saturating_sub(MARGIN)
            } else {
                terms.timeout
            },
            memory: terms.memory,
            bytes_per_second: if frozen { None } else { terms.bytes_per_second },
        }
    }

    fn add(&mut self, run: Run) {
        self.runs.push(Arc::new(run));
        self.say(|_| {});
    }

    /// A run with what is left of it.
    fn took(
        &mut self,
        ran: Ran,
        started: Timestamp,
        change: impl FnOnce(&mut Run),
    ) -> Result<(), Cut> {
        let Ran { mut run, remains } = ran;
        run.started = started;
        change(&mut run);
        self.add(run);
        self.remains.extend(remains);
        self.nothing_hangs()
    }

    fn nothing_hangs(&self) -> Result<(), Cut> {
        self.remains.first().map_or(Ok(()), |remains| {
            Err(Cut::Stuck(remains.waiting_in.clone()))
        })
    }

    async fn look_for_strays(&mut self) {
        let left = self.strays.remains().await;
        self.remains.extend(left);
    }

    /// None: it could not be, which is a run too.
    async fn prepare(&mut self, order: RunOrder) -> Result<Option<W::Prepared>, Cut> {
        // What was prepared before and not run has gone, or nothing else is begun.
        self.look_for_strays().await;
        self.nothing_hangs()?;
        let started = self.clock.now();
        self.doing(format!("{}: preparing", self.name_of_run(order.mode)));
        let (world, strays) = (self.world.clone(), self.strays.clone());
        match self
            .unless_stopped(Box::pin(world.prepare(order, strays)))
            .await?
        {
            Ok(prepared) => Ok(Some(prepared)),
            Err(ran) => self.took(*ran, started, |_| {}).map(|()| None),
        }
    }

    async fn run_on(&mut self, mode: Mode, device: Device) -> Result<(), Cut> {
        let Some(prepared) = self.prepare(self.order(mode, device)).await? else {
            return Ok(());
        };
        let (started, name) = (self.clock.now(), self.name_of_run(mode));
        self.doing(name.clone());
        let (world, mut told) = (self.world.clone(), self.means.told.clone());
        let (phase, mut phases) = watch::channel(String::new());
        let heard = {
            let mut run = Box::pin(world.check(prepared, &phase));
            loop {
                tokio::select! {
                    biased;
                    stop = stopped(&mut told) => return Err(Cut::Stopped(stop)),
                    heard = &mut run => break heard,
                    Ok(()) = phases.changed() => self.doing(with_phase(&name, &phases.borrow_and_update())),
                }
            }
        };
        let ran = world.settle(heard).await;
        self.took(ran, started, |_| {})
    }

    /// Level 0: nothing is frozen when it does.
    fn kernel_speaks(&self) -> bool {
        !self.signals().is_empty()
    }

    /// The error within: it could not be asked.
    async fn ask_for_sickness(&mut self, extent: Extent) -> Result<Result<(), String>, Cut> {
        let target = &self.wanted.target;
        let (Filesystem::Xfs, Some(mount)) = (target.filesystem, target.mount.clone()) else {
            return Ok(Ok(()));
        };
        let dev = target.shown_dev();
        self.doing("asking XFS for its health".to_owned());
        let world = self.world.clone();
        match self
            .unless_stopped(Box::pin(world.sick(mount, dev, extent)))
            .await?
        {
            Ok(signals) => {
                self.found.extend(signals);
                Ok(Ok(()))
            }
            Err(why) => Ok(Err(why)),
        }
    }

    async fn snapshot_run(&mut self) -> Result<(), Cut> {
        let (Some((group, volume)), Some(lvm)) = (
            self.wanted.target.logical_volume.clone(),
            self.means.lvm.clone(),
        ) else {
            self.no_snapshot = true;
            return Ok(());
        };
        let started = self.clock.now();
        let began = Instant::now();
        // LVM has the kernel hold the writers while it makes one: no more than for a freeze of ours
        // may speak against it.
        if let Some(mount) = self.wanted.target.mount.clone() {
            let dev = self.wanted.target.shown_dev();
            if let Err(why) = self.writes_out("snapshot", mount, dev).await? {
                tracing::info!(check = %self.wanted.id, why, "no snapshot is made");
                self.no_snapshot = true;
                return Ok(());
            }
            if self.kernel_speaks() {
                return Ok(());
            }
        }
        self.doing(format!("making a snapshot of {group}/{volume}"));
        let order = SnapshotOrder {
            check: self.wanted.id.clone(),
            group,
            volume,
            filesystem: self.wanted.target.filesystem,
            lvm,
        };
        let world = self.world.clone();
        let snapshot = match self.unless_stopped(Box::pin(world.snapshot(order))).await? {
            Ok(snapshot) => snapshot,
            Err(SnapshotError::Refused(why)) => {
                tracing::info!(check = %self.wanted.id, why, "no snapshot is made");
                self.no_snapshot = true;
                return Ok(());
            }
            Err(SnapshotError::Damaged(signal)) => {
                self.found.push(*signal);
                return Ok(());
            }
            Err(SnapshotError::Failed(why)) => {
                self.no_snapshot = true;
                self.add(not_done(
                    Mode::Snapshot,
                    started,
                    began.elapsed(),
                    End::NotStarted(why.clone()),
                    why,
                ));
                return Ok(());
            }
        };
        let before = self.runs.len();
        let device = world.device_of(&snapshot);
        let ran = Box::pin(self.run_on(Mode::Snapshot, device)).await;
        if ran.is_ok()
            && let Some(why) = Box::pin(world.overflown(&snapshot)).await
        {
            for run in self.runs.iter_mut().skip(before) {
                let run = Arc::make_mut(run);
                run.ballot = Ballot::Failed;
                run.why.clone_from(&why);
            }
        }
        self.doing("removing the snapshot".to_owned());
        // A checker that was stopped still holds it for a moment.
        self.look_for_strays().await;
        Box::pin(world.remove(snapshot)).await;
        ran
    }
}

/// Cancel-safe.
async fn stopped(told: &mut watch::Receiver<Told>) -> Stop {
    let stop = told
        .wait_for(|told| told.stop.is_some())
        .await
        .ok()
        .and_then(|told| told.stop.clone());
    // Whoever could say it is gone, which is the daemon's end.
    stop.unwrap_or_else(|| Stop {
        why: "the daemon ends".to_owned(),
    })
}

fn with_phase(name: &str, phase: &str) -> String {
    if phase.is_empty() {
        name.to_owned()
    } else {
        format!("{name}: {phase}")
    }
}

/// A run of which there is nothing to read.
fn not_done(mode: Mode, started: Timestamp, duration: Duration, end: End, why: String) -> Run {
    Run {
        duration,
        active: duration,
        ..Run::failed(mode, started, end, why)
    }
}
