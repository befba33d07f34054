//! Hidden disks, kept up to date: which controllers there are, and when each is asked anew for its
//! disks.
//!
//! At the start, when the SCSI devices of its host have changed, when one of its disks fails to
//! answer or may have gone, and once a day.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::worker::Outcome;
use crate::model::drive::Transport;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::report::{Report, SmartTarget};
use crate::source::context::{Context, SmartSettings};
use crate::source::jobs::{Answer, Job};
use crate::source::smart::controllers::enumerate::{self, Enumerated, Known, StuckPlace};
use crate::source::smart::controllers::{Controller, Kind};
use crate::source::smart::running::{LOST, Running};
use crate::source::smart::taken::Taken;
use crate::source::smart::world::World;
use crate::source::smart::{self, ask};

/// Controllers come and go with their PCI slots, and tell so by the drives' list; this is for what
/// tells nothing.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// Changes come in bursts.
const SETTLE: Duration = Duration::from_secs(2);
const ENUMERATE_EVERY: Duration = Duration::from_secs(24 * 3600);
/// A place that had a disk says that nobody is there: asked again after so many of the shortest
/// intervals, a minute.
const TO_BE_SURE: u32 = 2;
/// After a failure, a doubt, or a loss, at the earliest.
const ENUMERATE_AGAIN: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub enum Ended {
    Found(Result<Vec<Controller>, String>),
    Enumerated {
        name: String,
        enumerated: Enumerated,
    },
    /// The smartctl that was stuck at a place.
    Gone {
        name: String,
        place: String,
    },
}

pub struct Hidden {
    look_due: Instant,
    looking: bool,
    /// By name.
    controllers: BTreeMap<String, State>,
    trouble: Option<String>,
    /// The names that the owner was told.
    told: Option<Vec<String>>,
    /// So many smartctls cannot be killed that no disk is asked who it is.
    pub full: bool,
}

struct State {
    controller: Controller,
    due: Instant,
    asked: Option<Instant>,
    asking: bool,
    known: Known,
    trouble: Option<String>,
}

impl Hidden {
    pub fn new(at: Instant) -> Hidden {
        Hidden {
            look_due: at,
            looking: false,
            controllers: BTreeMap::new(),
            trouble: None,
            told: None,
            full: false,
        }
    }

    /// The drives have changed.
    pub fn look_soon(&mut self, at: Instant) {
        self.look_due = self.look_due.min(at + SETTLE);
    }

    /// Somebody wants everything looked at: the kernel does not see disks come and go behind a
    /// controller. Not more often than `shortest`.
    pub fn anew(&mut self, shortest: Duration, at: Instant) {
        self.look_soon(at);
        for state in self.controllers.values_mut() {
            let earliest = state.asked.map_or(at, |asked| asked + shortest);
            state.due = state.due.min(earliest.max(at));
        }
    }

    /// A disk of a controller did not answer: it may be gone.
    pub fn doubt(&mut self, target: &SmartTarget, at: Instant) {
        let Some(place) = &target.device_type else {
            return;
        };
        let is_its = |state: &&mut State| {
            state.controller.device.as_ref() == Some(&target.device)
                && state.known.disks.contains_key(place)
        };
        for state in self.controllers.values_mut().filter(is_its) {
            let earliest = state.asked.map_or(at, |asked| asked + ENUMERATE_AGAIN);
            state.due = state.due.min(earliest.max(at));
        }
    }

    /// The node of a controller.
    pub fn device(&self, name: &str) -> Option<&HostPath> {
        self.controllers.get(name)?.controller.device.as_ref()
    }

    /// What is wrong with controllers, for the source's status.
    pub fn troubles(&self) -> Vec<String> {
        let of = |(name, state): (&String, &State)| {
            state.trouble.as_ref().map(|why| format!("{name}: {why}"))
        };
        self.trouble
            .iter()
            .cloned()
            .chain(self.controllers.iter().filter_map(of))
            .collect()
    }

    /// Out: when something will be due.
    pub fn start_due<W: World>(
        &mut self,
        context: &Context,
        world: &W,
        settings: &SmartSettings,
        taken: &Taken,
        running: &mut Running,
        at: Instant,
    ) -> Instant {
        if !self.looking && self.look_due <= at {
            self.looking = true;
            self.look_due = at + LOOK_EVERY;
            let (world, timeout) = (world.clone(), context.settings.borrow().worker_timeout);
            let lost = smart::Ended::Hidden(Ended::Found(Err(LOST.to_owned())));
            running.spawn(lost, async move {
                smart::Ended::Hidden(Ended::Found(find(world, timeout).await))
            });
        }
        let mut next = if self.looking {
            at + LOOK_EVERY
        } else {
            self.look_due
        };
        for (name, state) in self
            .controllers
            .iter_mut()
            .filter(|(_, state)| !state.asking && !self.full)
        {
            if state.due > at {
                next = next.min(state.due);
                continue;
            }
            let Some(device) = &state.controller.device else {
                continue;
            };
            let lane = match state.controller.kind == Kind::Areca {
                true => match taken.lane(device) {
                    // The end of the question goes on.
                    None => continue,
                    lane => lane,
                },
                false => None,
            };
            let (device, _) = ask::node(&context.root, device, Transport::Raid);
            (state.asking, state.asked) = (true, Some(at));
            let timeout = enumerate::TIMEOUT.min(settings.timeout);
            let (controller, known) = (state.controller.clone(), state.known.clone());
            let lost = Enumerated {
                drives: Err(LOST.to_owned()),
                disks: known.disks.clone(),
                doubts: known.doubts.clone(),
                unsure: false,
                stuck: Vec::new(),
            };
            let lost = smart::Ended::Hidden(Ended::Enumerated {
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
                smart::Ended::Hidden(Ended::Enumerated { name, enumerated })
            });
        }
        next
    }

    /// Out: what the owner is to be told.
    pub fn ended(
        &mut self,
        ended: Ended,
        settings: &SmartSettings,
        running: &mut Running,
        at: Instant,
    ) -> Vec<Report> {
        match ended {
            Ended::Found(Ok(found)) => {
                self.looking = false;
                self.trouble = None;
                self.found(found, at)
            }
            Ended::Found(Err(why)) => {
                self.looking = false;
                self.trouble = Some(format!("looking for RAID controllers: {why}"));
                Vec::new()
            }
            Ended::Enumerated { name, enumerated } => {
                let Some(state) = self.controllers.get_mut(&name) else {
                    return Vec::new();
                };
                state.asking = false;
                (state.known.disks, state.known.doubts) = (enumerated.disks, enumerated.doubts);
                for stuck in enumerated.stuck {
                    state.known.stuck.insert(stuck.place.clone());
                    await_end(running, name.clone(), stuck);
                }
                let again = match &enumerated.drives {
                    Err(_) => ENUMERATE_AGAIN,
                    Ok(_) if !state.known.doubts.is_empty() => {
                        settings.shortest_interval.saturating_mul(TO_BE_SURE)
                    }
                    Ok(_) if enumerated.unsure => ENUMERATE_AGAIN,
                    Ok(_) => ENUMERATE_EVERY,
                };
                // A change that came meanwhile has it due already.
                state.due = if state.due > at || state.asked.is_none_or(|asked| state.due <= asked)
                {
                    at + again
                } else {
                    state.due
                };
                state.trouble = enumerated.drives.as_ref().err().cloned();
                let drives = match enumerated.drives {
                    Ok(drives) => Observation::ok(now(), drives),
                    Err(why) => Observation::failed(now(), why),
                };
                vec![Report::Hidden {
                    controller: name,
                    drives,
                }]
            }
            Ended::Gone { name, place } => {
                if let Some(state) = self.controllers.get_mut(&name) {
                    state.known.stuck.remove(&place);
                    state.due = state.due.min(at);
                }
                Vec::new()
            }
        }
    }

    fn found(&mut self, found: Vec<Controller>, at: Instant) -> Vec<Report> {
        let mut reports = Vec::new();
        let names: BTreeSet<String> = found.iter().map(Controller::name).collect();
        for gone in self
            .controllers
            .keys()
            .filter(|name| !names.contains(*name))
        {
            reports.push(Report::Hidden {
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
                    State {
                        controller,
                        ..state
                    }
                }
                None => State {
                    controller,
                    due: at,
                    asked: None,
                    asking: false,
                    known: Known::default(),
                    trouble: None,
                },
            };
            let missing = state.controller.missing.clone();
            if missing.is_some() && state.trouble != missing {
                let why = missing.clone().unwrap_or_default();
                reports.push(Report::Hidden {
                    controller: name.clone(),
                    drives: Observation::failed(now(), why),
                });
            }
            if missing.is_some() || state.controller.device.is_none() {
                state.trouble = missing;
            }
            self.controllers.insert(name, state);
        }
        let names: Vec<String> = names.into_iter().collect();
        if self.told.as_ref() != Some(&names) {
            self.told = Some(names.clone());
            reports.push(Report::Controllers(names));
        }
        reports
    }
}

fn await_end(running: &mut Running, name: String, stuck: StuckPlace) {
    let StuckPlace {
        place,
        remains,
        hold,
        ..
    } = stuck;
    tracing::warn!(
        controller = name,
        place,
        waiting_in = remains.waiting_in,
        "smartctl hangs at a disk of a controller and cannot be killed"
    );
    let lost = smart::Ended::Hidden(Ended::Gone {
        name: name.clone(),
        place: place.clone(),
    });
    running.spawn(lost, async move {
        remains.gone().await;
        drop(hold);
        smart::Ended::Hidden(Ended::Gone { name, place })
    });
}

async fn find<W: World>(world: W, timeout: Duration) -> Result<Vec<Controller>, String> {
    match world
        .ask("raid controllers".to_owned(), Job::Controllers, timeout)
        .await
    {
        Outcome::Answer(Answer::Controllers(controllers)) => Ok(controllers),
        Outcome::Answer(Answer::Failed { error }) | Outcome::Failed(error) => Err(error),
        Outcome::Answer(_) => Err("a worker answered another question than was asked".to_owned()),
        Outcome::Stuck { since, .. } => Err(format!("reading /sys has not returned since {since}")),
    }
}
