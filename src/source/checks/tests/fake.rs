//! A world of filesystems that do as they are told. Time is tokio's, and stands still while anybody
//! works.

mod asked;
mod lab;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::exec::Remains;
use crate::model::check::steps::{Outcome, Situation, Step};
use crate::model::check::{Ballot, End, Mode, Output, Run, Signal, Verdict};
use crate::model::dev::DevNo;
use crate::model::path::HostPath;
use crate::model::policy::checks::Tools;
use crate::source::checks::freezer::{FreezeError, FreezeOrder, Thawed, Way};
use crate::source::checks::health::Extent;
use crate::source::checks::load::{Busy, Of};
use crate::source::checks::runner::{Device, Ran, RunOrder, Strays};
use crate::source::checks::snapshot::{SnapshotError, SnapshotOrder};
use crate::source::checks::tools::Found;
use crate::source::checks::world::World;

pub use asked::{all_tools, frozen, scheduled, signal, target, wanted};
pub use lab::{Lab, lab, lab_at, lab_with};

/// How a filesystem takes what is done to it.
#[derive(Clone, Debug)]
pub struct How {
    pub prepares: Duration,
    /// The checker cannot begin.
    pub unpreparable: bool,
    pub runs: Duration,
    /// The checker hangs at its time-out, and cannot be killed until it is let go.
    pub unkillable: bool,
    /// The same, at the moment at which it is stopped.
    pub unstoppable: bool,
    pub panics: bool,
    pub syncs: Result<Duration, String>,
    pub freezes: Duration,
    pub refuses: Option<FreezeError>,
    /// It is thawed by somebody else after so long.
    pub early: Option<Duration>,
    /// Whether it is thawed is not known then.
    pub unsure: bool,
    /// The end of the checker's helper, after its end was heard of.
    pub lingers: Duration,
    /// The checker's helper tells of its end so late.
    pub tells_late: Duration,
    pub thaws: Duration,
    pub sick: Result<Vec<Signal>, String>,
    /// Snapshots: why there is none; how long it takes; whether it ran over.
    pub no_snapshot: Option<fn() -> SnapshotError>,
    pub snapshots: Duration,
    pub overflown: bool,
}

pub const RUN: Duration = Duration::from_secs(2);

impl Default for How {
    fn default() -> How {
        let moment = Duration::from_millis(100);
        How {
            prepares: moment,
            unpreparable: false,
            runs: RUN,
            unkillable: false,
            unstoppable: false,
            panics: false,
            syncs: Ok(moment),
            freezes: moment,
            refuses: None,
            early: None,
            unsure: false,
            lingers: Duration::ZERO,
            tells_late: Duration::ZERO,
            thaws: moment,
            sick: Ok(Vec::new()),
            no_snapshot: None,
            snapshots: moment,
            overflown: false,
        }
    }
}

#[derive(Default)]
pub struct Played {
    pub how: BTreeMap<String, How>,
    pub busy: Option<Result<Busy, String>>,
    pub looks: Vec<Duration>,
    pub tidies: Duration,
    pub tidied: usize,
    pub tools: Option<Found>,
    /// Seconds since the beginning, and what was done to whom.
    pub done: Vec<(f64, String)>,
    /// Checkers that run, by device and mode.
    pub running: BTreeSet<(String, Mode)>,
    pub most_running: usize,
    pub frozen: BTreeSet<String>,
    pub snapshots: BTreeSet<String>,
    pub held: Vec<oneshot::Sender<()>>,
    pub wrong: Vec<String>,
    pub orders: Vec<RunOrder>,
}

#[derive(Clone)]
pub struct Fake {
    pub state: Arc<Mutex<Played>>,
    begun: Instant,
}

impl Fake {
    pub fn look<T>(&self, look: impl FnOnce(&mut Played) -> T) -> T {
        look(
            &mut self
                .state
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        )
    }

    fn how(&self, device: &str) -> How {
        self.look(|state| state.how.get(device).cloned().unwrap_or_default())
    }

    fn note(&self, what: String) {
        let at = self.begun.elapsed().as_secs_f64();
        self.look(|state| state.done.push((at, what)));
    }
}

pub struct Prepared(RunOrder, Strays);

pub struct Frozen {
    world: Fake,
    device: String,
    at: Instant,
    /// Then the freezer thaws by itself.
    limit: Instant,
    over: bool,
}

impl Frozen {
    fn end(&mut self, how: &str) {
        if !self.over {
            self.over = true;
            self.world.look(|state| state.frozen.remove(&self.device));
            self.world.note(format!("{how} {}", self.device));
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.end("dropped, thawed");
    }
}

pub struct Snapshot {
    world: Fake,
    device: Device,
    over: bool,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.world
            .look(|state| state.snapshots.remove(&self.device.name));
        if !self.over {
            self.world
                .note(format!("dropped, removed {}", self.device.name));
        }
    }
}

struct Running {
    world: Fake,
    key: (String, Mode),
    ended: bool,
    strays: Strays,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended && self.world.how(&self.key.0).unstoppable {
            let (release, held) = oneshot::channel::<()>();
            let (world, key) = (self.world.clone(), self.key.clone());
            world.look(|state| state.held.push(release));
            let end = async move {
                held.await.ok();
                world.look(|state| state.running.remove(&key));
            };
            let remains = async {
                Some(Remains::until(
                    Some("D (disk sleep) in folio_wait_bit".to_owned()),
                    end,
                ))
            };
            return self.strays.add(async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                remains.await
            });
        }
        self.world.look(|state| state.running.remove(&self.key));
        if !self.ended {
            self.world.note(format!("killed {}", self.key.0));
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
pub fn rule(situation: &Situation<'_>, runs: &[&Run], at: Timestamp) -> Step {
    let done = |verdict, reason: &str| {
        Step::Done(Outcome {
            verdict,
            reason: reason.to_owned(),
            mode: situation.mode,
        })
    };
    if !situation.signals.is_empty() {
        return done(Verdict::Corrupted, "the kernel says so");
    }
    let of = |mode| runs.iter().filter(|run| run.mode == mode).count();
    if runs.iter().any(|run| run.ballot == Ballot::Failed) {
        return done(
            Verdict::Failed,
            &runs.iter().map(|run| run.why.clone()).collect::<String>(),
        );
    }
    if situation.terms.snapshot && situation.snapshot && of(Mode::Snapshot) == 0 {
        return Step::Run(Mode::Snapshot);
    }
    if of(Mode::Snapshot) > 0 {
        return done(Verdict::Clean, "nothing was found in the snapshot");
    }
    if situation.mode != Mode::Live {
        return if runs.is_empty() {
            Step::Run(situation.mode)
        } else {
            done(Verdict::Clean, "nothing was found")
        };
    }
    if of(Mode::Live) < situation.terms.runs as usize {
        return Step::Run(Mode::Live);
    }
    if situation.terms.freeze {
        if let Some(why) = situation.no_freeze {
            return done(Verdict::Inconclusive, why);
        }
        match runs.iter().rev().find(|run| run.mode == Mode::Frozen) {
            Some(last) if of(Mode::Frozen) == 1 => {
                let until = last
                    .started
                    .checked_add(last.duration + situation.terms.gap)
                    .unwrap();
                return if at < until {
                    Step::Wait { until }
                } else {
                    Step::Run(Mode::Frozen)
                };
            }
            None => return Step::Run(Mode::Frozen),
            Some(_) => {}
        }
    }
    done(Verdict::Clean, "nothing was found")
}

fn run(mode: Mode, duration: Duration, end: End) -> Run {
    let ballot = if end == End::Exited(0) {
        Ballot::Clean
    } else {
        Ballot::Failed
    };
    Run {
        mode,
        started: now(),
        duration,
        active: duration,
        held: None,
        why: if ballot == Ballot::Failed {
            format!("{end:?}")
        } else {
            String::new()
        },
        end,
        ballot,
        failure: None,
        flaws: Vec::new(),
        more_flaws: 0,
        pending_replay: None,
        bytes_read: 0,
        peak_memory: 0,
        command: "e2fsck -fn".to_owned(),
        output: Output::default(),
    }
}

impl World for Fake {
    type Prepared = Prepared;
    type Heard = (Ran, Duration);
    type Frozen = Frozen;
    type Snapshot = Snapshot;

    fn next(&self, situation: &Situation<'_>, runs: &[&Run], now: Timestamp) -> Step {
        rule(situation, runs, now)
    }

    async fn tidy(&self, _tools: Tools) -> Vec<String> {
        let long = self.look(|state| state.tidies);
        tokio::time::sleep(long).await;
        self.look(|state| state.tidied += 1);
        Vec::new()
    }

    async fn find_tools(&self, _tools: Tools, _before: Option<Found>) -> Found {
        self.look(|state| state.tools.clone())
            .unwrap_or_else(all_tools)
    }

    async fn load(&self, _devices: Vec<DevNo>) -> Result<Busy, String> {
        let at = self.begun.elapsed();
        self.look(|state| {
            state.looks.push(at);
            state.busy.clone().unwrap_or(Ok(Busy {
                percent: 0.0,
                of: Of::Pressure,
            }))
        })
    }

    async fn prepare(&self, order: RunOrder, strays: Strays) -> Result<Prepared, Box<Ran>> {
        let how = self.how(&order.device.name);
        self.look(|state| state.orders.push(order.clone()));
        tokio::time::sleep(how.prepares).await;
        if how.unpreparable {
            return Err(Box::new(Ran {
                run: run(
                    order.mode,
                    how.prepares,
                    End::NotStarted("no device".to_owned()),
                ),
                remains: None,
            }));
        }
        Ok(Prepared(order, strays))
    }

    async fn settle(&self, (ran, lingers): (Ran, Duration)) -> Ran {
        tokio::time::sleep(lingers).await;
        ran
    }

    async fn check(
        &self,
        Prepared(order, strays): Prepared,
        phase: &watch::Sender<String>,
    ) -> (Ran, Duration) {
        let (device, mode) = (order.device.name.clone(), order.mode);
        let how = self.how(&device);
        let key = (device.clone(), mode);
        self.note(format!("{} {device}", mode.name()));
        self.look(|state| {
            if mode == Mode::Frozen && !state.frozen.contains(&device) {
                state
                    .wrong
                    .push(format!("a frozen run of {device}, which is not frozen"));
            }
            if state.running.iter().any(|(other, _)| *other == device) {
                state.wrong.push(format!("two checkers on {device}"));
            }
            state.running.insert(key.clone());
            state.most_running = state.most_running.max(state.running.len());
        });
        let mut running = Running {
            world: self.clone(),
            key,
            ended: false,
            strays,
        };
        assert!(!how.panics, "a task that is lost");
        // Whoever checks says each tenth of a second what it does.
        let (begun, mut number) = (Instant::now(), 0);
        let (long, timed_out) = if how.runs < order.timeout {
            (how.runs, false)
        } else {
            (order.timeout, true)
        };
        while begun.elapsed() < long {
            tokio::time::sleep(Duration::from_millis(100).min(long - begun.elapsed())).await;
            number += 1;
            phase.send_replace(format!("Pass {number}"));
        }
        if timed_out {
            tokio::time::sleep(how.tells_late).await;
        }
        running.ended = true;
        let remains = (timed_out && how.unkillable).then(|| {
            let (release, held) = oneshot::channel::<()>();
            self.look(|state| state.held.push(release));
            Remains::until(
                Some("D (disk sleep) in folio_wait_bit".to_owned()),
                async move {
                    held.await.ok();
                },
            )
        });
        let end = if remains.is_some() {
            End::Stuck(None)
        } else if timed_out {
            End::TimedOut
        } else {
            End::Exited(0)
        };
        (
            Ran {
                run: run(mode, long, end),
                remains,
            },
            how.lingers,
        )
    }

    async fn sync(
        &self,
        mount: HostPath,
        _dev: DevNo,
        limit: Duration,
    ) -> Result<Duration, String> {
        let long = self.how(&device_of(&mount)).syncs?;
        tokio::time::sleep(long.min(limit)).await;
        if long > limit {
            Err(format!("syncfs took longer than {} s", limit.as_secs()))
        } else {
            Ok(long)
        }
    }

    async fn sick(
        &self,
        mount: HostPath,
        _dev: DevNo,
        _extent: Extent,
    ) -> Result<Vec<Signal>, String> {
        self.how(&device_of(&mount)).sick
    }

    async fn freeze(&self, order: FreezeOrder) -> Result<Frozen, FreezeError> {
        let device = device_of(&order.mount);
        let how = self.how(&device);
        let at = Instant::now();
        // As the real one: it may be frozen at any moment from here, and is thawed when this is
        // dropped.
        self.note(format!("freezing {device}"));
        self.look(|state| {
            if !state.frozen.insert(device.clone()) {
                state.wrong.push(format!("{device} frozen twice"));
            }
        });
        let mut frozen = Frozen {
            world: self.clone(),
            device,
            at,
            limit: at,
            over: false,
        };
        tokio::time::sleep(how.freezes).await;
        frozen.limit = Instant::now() + order.limit;
        match how.refuses {
            Some(error) => {
                frozen.end("not frozen");
                Err(error)
            }
            None => Ok(frozen),
        }
    }

    async fn thawed_early(&self, frozen: &mut Frozen) -> String {
        match self.how(&frozen.device).early {
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

    async fn thaw(&self, mut frozen: Frozen) -> Thawed {
        let how = self.how(&frozen.device);
        let late = how.early.is_none() && frozen.limit <= Instant::now();
        if !frozen.over {
            tokio::time::sleep(how.thaws).await;
        }
        let (early, way) = match how.early {
            Some(early) if frozen.at + early <= Instant::now() => (
                Some("the helper was killed".to_owned()),
                if how.unsure {
                    Way::Unsure
                } else {
                    Way::Otherwise
                },
            ),
            _ if late => (
                Some("writers may not be held longer".to_owned()),
                Way::Limit,
            ),
            _ => (None, Way::Asked),
        };
        frozen.end("thawed");
        Thawed {
            held: frozen.at.elapsed(),
            freezing: how.freezes,
            early,
            way,
        }
    }

    async fn snapshot(&self, order: SnapshotOrder) -> Result<Snapshot, SnapshotError> {
        let how = self.how(&order.volume);
        if let Some(why) = how.no_snapshot {
            return Err(why());
        }
        let device = Device {
            name: format!("dm-{}", order.volume),
            dev: DevNo::new(253, 7),
        };
        self.note(format!("snapshot {}", order.volume));
        self.look(|state| state.snapshots.insert(device.name.clone()));
        let snapshot = Snapshot {
            world: self.clone(),
            device,
            over: false,
        };
        tokio::time::sleep(how.snapshots).await;
        Ok(snapshot)
    }

    fn device_of(&self, snapshot: &Snapshot) -> Device {
        snapshot.device.clone()
    }

    async fn overflown(&self, snapshot: &Snapshot) -> Option<String> {
        let of = snapshot.device.name.trim_start_matches("dm-").to_owned();
        self.how(&of)
            .overflown
            .then(|| "the snapshot had no more room".to_owned())
    }

    async fn remove(&self, mut snapshot: Snapshot) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        snapshot.over = true;
        self.note(format!("removed {}", snapshot.device.name));
    }
}
