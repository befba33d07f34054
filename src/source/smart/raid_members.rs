//! Hidden disks, kept up to date: which controllers there are, and when each is asked anew for its
//! disks.
//!
//! At the start, when the SCSI devices of its host have changed, when one of its disks fails to
//! answer or may have gone, and once a day.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::worker_pool::WorkerOutcome;
use crate::model::drive::Transport;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::source_update::{SmartTarget, SourceUpdate};
use crate::source::context::{Context, SmartSettings};
use crate::source::jobs::{Job, JobResult};
use crate::source::smart::backend::Backend;
use crate::source::smart::controller_locks::ControllerLocks;
use crate::source::smart::controllers::enumerate::{self, Enumeration, KnownDisks, StuckSlot};
use crate::source::smart::controllers::{Controller, ControllerKind};
use crate::source::smart::tasks::{TASK_LOST, TaskSet};
use crate::source::smart::{self, query};

/// Controllers come and go with their PCI slots, and tell so by the drives' list; this is for what
/// tells nothing.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(600);
/// Changes come in bursts.
const SETTLE: Duration = Duration::from_secs(2);
const ENUMERATE_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// A place that had a disk says that nobody is there: asked again after so many of the shortest
/// intervals, a minute.
const CONFIRM_AFTER_INTERVALS: u32 = 2;
/// After a failure, a doubt, or a loss, at the earliest.
const ENUMERATE_RETRY_INTERVAL: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub enum RaidTaskResult {
    ControllersFound(Result<Vec<Controller>, String>),
    Enumerated {
        name: String,
        enumerated: Enumeration,
    },
    /// The smartctl that was stuck at a place.
    StuckProcessExited {
        name: String,
        slot: String,
    },
}

pub struct RaidMembers {
    discovery_due: Instant,
    discovering: bool,
    /// By name.
    controllers: BTreeMap<String, ControllerState>,
    error: Option<String>,
    /// The names that the owner was told.
    reported_names: Option<Vec<String>>,
    /// So many smartctls cannot be killed that no disk is asked who it is.
    pub at_stuck_limit: bool,
}

struct ControllerState {
    controller: Controller,
    due: Instant,
    last_enumerated: Option<Instant>,
    enumerating: bool,
    known: KnownDisks,
    error: Option<String>,
}

impl RaidMembers {
    pub fn new(at: Instant) -> RaidMembers {
        RaidMembers {
            discovery_due: at,
            discovering: false,
            controllers: BTreeMap::new(),
            error: None,
            reported_names: None,
            at_stuck_limit: false,
        }
    }

    /// The drives have changed.
    pub fn discover_soon(&mut self, at: Instant) {
        self.discovery_due = self.discovery_due.min(at + SETTLE);
    }

    /// Somebody wants everything looked at: the kernel does not see disks come and go behind a
    /// controller. Not more often than `shortest`.
    pub fn refresh(&mut self, shortest: Duration, at: Instant) {
        self.discover_soon(at);
        for state in self.controllers.values_mut() {
            let earliest = state.last_enumerated.map_or(at, |asked| asked + shortest);
            state.due = state.due.min(earliest.max(at));
        }
    }

    /// A disk of a controller did not answer: it may be gone.
    pub fn recheck_slot(&mut self, target: &SmartTarget, at: Instant) {
        let Some(place) = &target.device_type else {
            return;
        };
        let is_its = |state: &&mut ControllerState| {
            state.controller.device.as_ref() == Some(&target.device)
                && state.known.disks.contains_key(place)
        };
        for state in self.controllers.values_mut().filter(is_its) {
            let earliest = state
                .last_enumerated
                .map_or(at, |asked| asked + ENUMERATE_RETRY_INTERVAL);
            state.due = state.due.min(earliest.max(at));
        }
    }

    /// The node of a controller.
    pub fn controller_node(&self, name: &str) -> Option<&HostPath> {
        self.controllers.get(name)?.controller.device.as_ref()
    }

    /// What is wrong with controllers, for the source's status.
    pub fn errors(&self) -> Vec<String> {
        let of = |(name, state): (&String, &ControllerState)| {
            state.error.as_ref().map(|why| format!("{name}: {why}"))
        };
        self.error
            .iter()
            .cloned()
            .chain(self.controllers.iter().filter_map(of))
            .collect()
    }

    /// Out: when something will be due.
    pub fn start_due<W: Backend>(
        &mut self,
        context: &Context,
        world: &W,
        settings: &SmartSettings,
        taken: &ControllerLocks,
        running: &mut TaskSet,
        at: Instant,
    ) -> Instant {
        if !self.discovering && self.discovery_due <= at {
            self.discovering = true;
            self.discovery_due = at + DISCOVERY_INTERVAL;
            let (world, timeout) = (world.clone(), context.settings.borrow().worker_timeout);
            let lost = smart::SmartTaskResult::RaidMembers(RaidTaskResult::ControllersFound(Err(
                TASK_LOST.to_owned(),
            )));
            running.spawn(lost, async move {
                smart::SmartTaskResult::RaidMembers(RaidTaskResult::ControllersFound(
                    find_controllers(world, timeout).await,
                ))
            });
        }
        let mut next = if self.discovering {
            at + DISCOVERY_INTERVAL
        } else {
            self.discovery_due
        };
        for (name, state) in self
            .controllers
            .iter_mut()
            .filter(|(_, state)| !state.enumerating && !self.at_stuck_limit)
        {
            if state.due > at {
                next = next.min(state.due);
                continue;
            }
            let Some(device) = &state.controller.device else {
                continue;
            };
            let lane = match state.controller.kind == ControllerKind::Areca {
                true => match taken.lock_controller(device) {
                    // The end of the question goes on.
                    None => continue,
                    lane => lane,
                },
                false => None,
            };
            let (device, _) = query::device_node(&context.root, device, Transport::Raid);
            (state.enumerating, state.last_enumerated) = (true, Some(at));
            let timeout = enumerate::TIMEOUT.min(settings.timeout);
            let (controller, known) = (state.controller.clone(), state.known.clone());
            let lost = Enumeration {
                drives: Err(TASK_LOST.to_owned()),
                disks: known.disks.clone(),
                absent_counts: known.absent_counts.clone(),
                incomplete: false,
                stuck: Vec::new(),
            };
            let lost = smart::SmartTaskResult::RaidMembers(RaidTaskResult::Enumerated {
                name: name.clone(),
                enumerated: lost,
            });
            let (world, program, taken) = (world.clone(), settings.command.clone(), taken.clone());
            let name = name.clone();
            running.spawn(lost, async move {
                let _until_the_end = lane;
                let enumerated =
                    enumerate::enumerate(world, program, device, controller, known, taken, timeout)
                        .await;
                smart::SmartTaskResult::RaidMembers(RaidTaskResult::Enumerated { name, enumerated })
            });
        }
        next
    }

    /// Out: what the owner is to be told.
    pub fn record_result(
        &mut self,
        ended: RaidTaskResult,
        settings: &SmartSettings,
        running: &mut TaskSet,
        at: Instant,
    ) -> Vec<SourceUpdate> {
        match ended {
            RaidTaskResult::ControllersFound(Ok(found)) => {
                self.discovering = false;
                self.error = None;
                self.update_controllers(found, at)
            }
            RaidTaskResult::ControllersFound(Err(why)) => {
                self.discovering = false;
                self.error = Some(format!("looking for RAID controllers: {why}"));
                Vec::new()
            }
            RaidTaskResult::Enumerated { name, enumerated } => {
                let Some(state) = self.controllers.get_mut(&name) else {
                    return Vec::new();
                };
                state.enumerating = false;
                (state.known.disks, state.known.absent_counts) =
                    (enumerated.disks, enumerated.absent_counts);
                for stuck in enumerated.stuck {
                    state.known.stuck.insert(stuck.slot.clone());
                    await_stuck_exit(running, name.clone(), stuck);
                }
                let again = match &enumerated.drives {
                    Err(_) => ENUMERATE_RETRY_INTERVAL,
                    Ok(_) if !state.known.absent_counts.is_empty() => settings
                        .shortest_interval
                        .saturating_mul(CONFIRM_AFTER_INTERVALS),
                    Ok(_) if enumerated.incomplete => ENUMERATE_RETRY_INTERVAL,
                    Ok(_) => ENUMERATE_INTERVAL,
                };
                // A change that came meanwhile has it due already.
                state.due = if state.due > at
                    || state.last_enumerated.is_none_or(|asked| state.due <= asked)
                {
                    at + again
                } else {
                    state.due
                };
                state.error = enumerated.drives.as_ref().err().cloned();
                let drives = match enumerated.drives {
                    Ok(drives) => Observation::ok(now(), drives),
                    Err(why) => Observation::failed(now(), why),
                };
                vec![SourceUpdate::RaidMembers {
                    controller: name,
                    drives,
                }]
            }
            RaidTaskResult::StuckProcessExited { name, slot: place } => {
                if let Some(state) = self.controllers.get_mut(&name) {
                    state.known.stuck.remove(&place);
                    state.due = state.due.min(at);
                }
                Vec::new()
            }
        }
    }

    fn update_controllers(&mut self, found: Vec<Controller>, at: Instant) -> Vec<SourceUpdate> {
        let mut reports = Vec::new();
        let names: BTreeSet<String> = found.iter().map(Controller::name).collect();
        for gone in self
            .controllers
            .keys()
            .filter(|name| !names.contains(*name))
        {
            reports.push(SourceUpdate::RaidMembers {
                controller: gone.clone(),
                drives: Observation::ok(now(), Vec::new()),
            });
        }
        self.controllers.retain(|name, _| names.contains(name));
        for controller in found {
            let name = controller.name();
            let before = self.controllers.remove(&name);
            let mut state = match before {
                Some(mut state) => {
                    if state.controller != controller {
                        state.due = at;
                    }
                    ControllerState {
                        controller,
                        ..state
                    }
                }
                None => ControllerState {
                    controller,
                    due: at,
                    last_enumerated: None,
                    enumerating: false,
                    known: KnownDisks::default(),
                    error: None,
                },
            };
            let missing = state.controller.device_error.clone();
            if missing.is_some() && state.error != missing {
                let why = missing.clone().unwrap_or_default();
                reports.push(SourceUpdate::RaidMembers {
                    controller: name.clone(),
                    drives: Observation::failed(now(), why),
                });
            }
            if missing.is_some() || state.controller.device.is_none() {
                state.error = missing;
            }
            self.controllers.insert(name, state);
        }
        let names: Vec<String> = names.into_iter().collect();
        if self.reported_names.as_ref() != Some(&names) {
            self.reported_names = Some(names.clone());
            reports.push(SourceUpdate::RaidControllers(names));
        }
        reports
    }
}

fn await_stuck_exit(running: &mut TaskSet, name: String, stuck: StuckSlot) {
    let StuckSlot {
        slot: place,
        remains,
        lock: hold,
        ..
    } = stuck;
    tracing::warn!(
        controller = name,
        place,
        waiting_in = remains.waiting_in,
        "smartctl hangs at a disk of a controller and cannot be killed"
    );
    let lost = smart::SmartTaskResult::RaidMembers(RaidTaskResult::StuckProcessExited {
        name: name.clone(),
        slot: place.clone(),
    });
    running.spawn(lost, async move {
        remains.exited().await;
        drop(hold);
        smart::SmartTaskResult::RaidMembers(RaidTaskResult::StuckProcessExited {
            name,
            slot: place,
        })
    });
}

async fn find_controllers<W: Backend>(
    world: W,
    timeout: Duration,
) -> Result<Vec<Controller>, String> {
    match world
        .run_job("raid controllers".to_owned(), Job::Controllers, timeout)
        .await
    {
        WorkerOutcome::Completed(JobResult::Controllers(controllers)) => Ok(controllers),
        WorkerOutcome::Completed(JobResult::Failed { error }) | WorkerOutcome::Failed(error) => {
            Err(error)
        }
        WorkerOutcome::Completed(_) => {
            Err("a worker answered another question than was asked".to_owned())
        }
        WorkerOutcome::Stuck { since, .. } => {
            Err(format!("reading /sys has not returned since {since}"))
        }
    }
}
