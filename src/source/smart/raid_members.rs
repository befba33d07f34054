//! Disks behind RAID controllers: which controllers exist, and when each is enumerated.
//!
//! In: results of discovery and enumeration, requests. Out: `SourceUpdate::RaidMembers`,
//! `RaidControllers`. A controller is enumerated at the start, when the SCSI devices of its host
//! have changed, when one of its disks fails or may be removed, and once a day.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::context::{Context, SmartSettings};
use crate::jobs::{Job, JobResult};
use crate::smart::backend::Backend;
use crate::smart::controller_locks::ControllerLocks;
use crate::smart::controllers::enumerate::{
    self, EnumerateError, Enumeration, KnownDisks, StuckSlot,
};
use crate::smart::controllers::{Controller, ControllerKind};
use crate::smart::tasks::{TASK_LOST, TaskSet};
use crate::smart::{self, query};
use crate::worker_job::{JobError, answer};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_host::clock::now;
use diskvitals_model::drive::Transport;
use diskvitals_model::source_update::{SmartTarget, SourceUpdate};

/// The addition of a controller usually changes the list of drives. This interval covers other
/// cases.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(600);
/// Changes come in bursts.
const SETTLE: Duration = Duration::from_secs(2);
const ENUMERATE_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// A slot that had a disk and is empty is checked again after this many of the shortest intervals:
/// a minute.
const CONFIRM_AFTER_INTERVALS: u32 = 2;
/// The earliest enumeration after a failure, an incomplete result or a lost disk.
const ENUMERATE_RETRY_INTERVAL: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    #[error("{TASK_LOST}")]
    TaskLost,
    #[error("/sys: {0}")]
    Worker(JobError),
}

#[derive(Debug)]
pub enum RaidTaskResult {
    ControllersFound(Result<Vec<Controller>, DiscoverError>),
    Enumerated {
        name: String,
        enumerated: Enumeration,
    },
    /// The unkillable smartctl at a slot has exited.
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
    /// The names in the last update.
    reported_names: Option<Vec<String>>,
    /// `MAX_STUCK` smartctl processes cannot be killed: no controller is enumerated.
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

impl ControllerState {
    /// Enumerates now, or `after` the last time.
    fn enumerate_soon(&mut self, after: Duration, at: Instant) {
        let earliest = self.last_enumerated.map_or(at, |last| last + after);
        self.due = self.due.min(earliest.max(at));
    }
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

    /// The set of drives has changed.
    pub(crate) fn discover_soon(&mut self, at: Instant) {
        self.discovery_due = self.discovery_due.min(at + SETTLE);
    }

    /// Enumerates all controllers, but not within `shortest` of the last time. The kernel does not
    /// report changes behind a controller.
    pub fn refresh(&mut self, shortest: Duration, at: Instant) {
        self.discover_soon(at);
        for state in self.controllers.values_mut() {
            state.enumerate_soon(shortest, at);
        }
    }

    /// A disk of a controller did not respond: it may have been removed.
    pub(crate) fn recheck_slot(&mut self, target: &SmartTarget, at: Instant) {
        let Some(slot) = &target.device_type else {
            return;
        };
        let is_its = |state: &&mut ControllerState| {
            state.controller.device.as_ref() == Some(&target.device)
                && state.known.disks.contains_key(slot)
        };
        for state in self.controllers.values_mut().filter(is_its) {
            state.enumerate_soon(ENUMERATE_RETRY_INTERVAL, at);
        }
    }

    pub(crate) fn is_enumerating(&self) -> bool {
        self.controllers.values().any(|state| state.enumerating)
    }

    /// Whether a smartctl at a slot cannot be killed.
    pub(crate) fn is_stuck(&self) -> bool {
        self.controllers.values().any(|state| !state.known.stuck.is_empty())
    }

    /// The device node of a controller.
    pub(crate) fn controller_node(&self, name: &str) -> Option<&HostPath> {
        self.controllers.get(name)?.controller.device.as_ref()
    }

    /// Errors of controllers, for the status of the source.
    pub fn errors(&self) -> Vec<String> {
        let of = |(name, state): (&String, &ControllerState)| {
            state.error.as_ref().map(|why| format!("{name}: {why}"))
        };
        self.error.iter().cloned().chain(self.controllers.iter().filter_map(of)).collect()
    }

    /// Out: when the next work is due.
    pub fn start_due<W: Backend>(
        &mut self,
        context: &Context,
        backend: &W,
        settings: &SmartSettings,
        locks: &ControllerLocks,
        tasks: &mut TaskSet,
        at: Instant,
    ) -> Instant {
        if !self.discovering && self.discovery_due <= at {
            self.discovering = true;
            self.discovery_due = at + DISCOVERY_INTERVAL;
            let (backend, timeout) = (backend.clone(), context.settings.borrow().worker_timeout);
            let lost = smart::SmartTaskResult::RaidMembers(RaidTaskResult::ControllersFound(Err(
                DiscoverError::TaskLost,
            )));
            tasks.spawn(lost, async move {
                smart::SmartTaskResult::RaidMembers(RaidTaskResult::ControllersFound(
                    find_controllers(backend, timeout).await,
                ))
            });
        }
        let mut next = if self.discovering { at + DISCOVERY_INTERVAL } else { self.discovery_due };
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
            let controller_lock = match state.controller.kind == ControllerKind::Areca {
                true => match locks.lock_controller(device) {
                    // It continues when the running query ends.
                    None => continue,
                    controller_lock => controller_lock,
                },
                false => None,
            };
            let (device, _) = query::device_node(&context.root, device, Transport::Raid);
            (state.enumerating, state.last_enumerated) = (true, Some(at));
            let timeout = enumerate::TIMEOUT.min(settings.timeout);
            let (controller, known) = (state.controller.clone(), state.known.clone());
            let lost = Enumeration {
                drives: Err(EnumerateError::TaskLost),
                disks: known.disks.clone(),
                absent_counts: known.absent_counts.clone(),
                incomplete: false,
                stuck: Vec::new(),
            };
            let lost = smart::SmartTaskResult::RaidMembers(RaidTaskResult::Enumerated {
                name: name.clone(),
                enumerated: lost,
            });
            let (backend, program, locks) =
                (backend.clone(), settings.command.clone(), locks.clone());
            let name = name.clone();
            tasks.spawn(lost, async move {
                let _held = controller_lock;
                let enumerated = enumerate::enumerate(
                    backend, program, device, controller, known, locks, timeout,
                )
                .await;
                smart::SmartTaskResult::RaidMembers(RaidTaskResult::Enumerated { name, enumerated })
            });
        }
        next
    }

    /// Out: updates for the owner.
    pub(crate) fn record_result(
        &mut self,
        result: RaidTaskResult,
        settings: &SmartSettings,
        tasks: &mut TaskSet,
        at: Instant,
    ) -> Vec<SourceUpdate> {
        match result {
            RaidTaskResult::ControllersFound(Ok(found)) => {
                self.discovering = false;
                self.error = None;
                self.update_controllers(found, at)
            }
            RaidTaskResult::ControllersFound(Err(error)) => {
                self.discovering = false;
                self.error = Some(format!("looking for RAID controllers: {error}"));
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
                    await_stuck_exit(tasks, name.clone(), stuck);
                }
                let again = match &enumerated.drives {
                    Err(_) => ENUMERATE_RETRY_INTERVAL,
                    Ok(_) if !state.known.absent_counts.is_empty() => {
                        settings.shortest_interval.saturating_mul(CONFIRM_AFTER_INTERVALS)
                    }
                    Ok(_) if enumerated.incomplete => ENUMERATE_RETRY_INTERVAL,
                    Ok(_) => ENUMERATE_INTERVAL,
                };
                // A change during the enumeration has already made it due.
                state.due = if state.due > at
                    || state.last_enumerated.is_none_or(|asked| state.due <= asked)
                {
                    at + again
                } else {
                    state.due
                };
                state.error = enumerated.drives.as_ref().err().map(EnumerateError::to_string);
                vec![SourceUpdate::RaidMembers {
                    controller: name,
                    drives: Observation::from_result(now(), enumerated.drives),
                }]
            }
            RaidTaskResult::StuckProcessExited { name, slot } => {
                if let Some(state) = self.controllers.get_mut(&name) {
                    state.known.stuck.remove(&slot);
                    state.due = state.due.min(at);
                }
                Vec::new()
            }
        }
    }

    fn update_controllers(&mut self, found: Vec<Controller>, at: Instant) -> Vec<SourceUpdate> {
        let mut updates = Vec::new();
        let names: BTreeSet<String> = found.iter().map(Controller::name).collect();
        for (gone, _) in self.controllers.extract_if(.., |name, _| !names.contains(name)) {
            updates.push(SourceUpdate::RaidMembers {
                controller: gone,
                drives: Observation::ok(now(), Vec::new()),
            });
        }
        for controller in found {
            let name = controller.name();
            let state = self.controllers.entry(name.clone()).or_insert_with(|| ControllerState {
                controller: controller.clone(),
                due: at,
                last_enumerated: None,
                enumerating: false,
                known: KnownDisks::default(),
                error: None,
            });
            if state.controller != controller {
                state.due = at;
                state.controller = controller;
            }
            let missing = state.controller.device_error.clone();
            if let Some(why) = missing.as_ref().filter(|why| state.error.as_ref() != Some(why)) {
                updates.push(SourceUpdate::RaidMembers {
                    controller: name,
                    drives: Observation::failed(now(), why),
                });
            }
            if missing.is_some() || state.controller.device.is_none() {
                state.error = missing;
            }
        }
        let names: Vec<String> = names.into_iter().collect();
        if self.reported_names.as_ref() != Some(&names) {
            self.reported_names = Some(names.clone());
            updates.push(SourceUpdate::RaidControllers(names));
        }
        updates
    }
}

fn await_stuck_exit(tasks: &mut TaskSet, name: String, stuck: StuckSlot) {
    let StuckSlot { slot, child, lock, .. } = stuck;
    tracing::warn!(
        controller = name,
        slot,
        waiting_in = child.waiting_in,
        "smartctl hangs at a disk of a controller and cannot be killed"
    );
    let lost = smart::SmartTaskResult::RaidMembers(RaidTaskResult::StuckProcessExited {
        name: name.clone(),
        slot: slot.clone(),
    });
    tasks.spawn(lost, async move {
        child.exited().await;
        drop(lock);
        smart::SmartTaskResult::RaidMembers(RaidTaskResult::StuckProcessExited { name, slot })
    });
}

async fn find_controllers<W: Backend>(
    backend: W,
    timeout: Duration,
) -> Result<Vec<Controller>, DiscoverError> {
    let outcome = backend.run_job("raid controllers".to_owned(), Job::Controllers, timeout).await;
    answer(outcome, |result| match result {
        JobResult::Controllers(controllers) => Some(controllers),
        _ => None,
    })
    .map_err(DiscoverError::Worker)
}
