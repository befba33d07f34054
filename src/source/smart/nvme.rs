//! NVMe controllers that announce health events: where the configuration allows it, each is set so,
//! and looked at again, since a reset undoes it.
//!
//! In: the plans. Out: nothing but the log; the events come through `events`. Without them, drives
//! are asked from time to time as ever.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::host::worker::Outcome;
use crate::model::drive::Transport;
use crate::model::ids::DriveId;
use crate::model::report::SmartTarget;
use crate::source::context::{Context, SmartSettings};
use crate::source::jobs::{Answer, Job};
use crate::source::smart;
use crate::source::smart::plan::Plan;
use crate::source::smart::running::{LOST, Running};
use crate::source::smart::world::World;

/// After a refusal.
const SELDOM: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct Ended {
    controller: String,
    result: Result<bool, String>,
}

#[derive(Default)]
pub struct Push {
    controllers: BTreeMap<String, State>,
}

struct State {
    due: Instant,
    asking: bool,
    /// What was said of it in the log.
    told: Option<Result<(), String>>,
}

/// `nvme0`, of a drive that is asked through it or through its namespace; with several paths to it,
/// those of all.
pub fn controllers(target: &SmartTarget) -> BTreeSet<String> {
    if target.transport != Transport::Nvme {
        return BTreeSet::new();
    }
    target
        .controllers
        .iter()
        .cloned()
        .chain(asked_through(target))
        .collect()
}

fn asked_through(target: &SmartTarget) -> Option<String> {
    let name = target.device.as_path().file_name()?.to_str()?;
    let number: String = name
        .strip_prefix("nvme")?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    (!number.is_empty()).then(|| format!("nvme{number}"))
}

impl Push {
    /// It may have been reset.
    pub fn again(&mut self, controller: &str, at: Instant) {
        if let Some(state) = self.controllers.get_mut(controller) {
            state.due = state.due.min(at);
        }
    }

    /// Out: when the next one is due.
    pub fn start_due<W: World>(
        &mut self,
        plans: &BTreeMap<DriveId, Plan>,
        context: &Context,
        world: &W,
        running: &mut Running,
        at: Instant,
    ) -> Option<Instant> {
        // A suspended one is not woken for it.
        let wanted = plans
            .values()
            .filter(|plan| plan.wanted && !plan.target.asleep);
        let wanted: BTreeSet<String> = wanted.flat_map(|plan| controllers(&plan.target)).collect();
        self.controllers
            .retain(|name, state| state.asking || wanted.contains(name));
        for name in wanted {
            self.controllers.entry(name).or_insert(State {
                due: at,
                asking: false,
                told: None,
            });
        }
        let timeout = context.settings.borrow().worker_timeout;
        for (name, state) in self
            .controllers
            .iter_mut()
            .filter(|(_, state)| !state.asking && state.due <= at)
        {
            state.asking = true;
            let (world, controller) = (world.clone(), name.clone());
            let lost = Ended {
                controller: name.clone(),
                result: Err(LOST.to_owned()),
            };
            running.spawn(smart::Ended::Push(lost), async move {
                let job = Job::NvmeEvents {
                    controller: controller.clone(),
                };
                let outcome = match world
                    .ask(format!("events of {controller}"), job, timeout)
                    .await
                {
                    // Until the worker that hangs has ended, the controller is not asked again.
                    Outcome::Stuck {
                        late: Some(late), ..
                    } => match late.await {
                        Ok(Ok(answer)) => Outcome::Answer(answer),
                        Ok(Err(error)) => Outcome::Failed(error),
                        Err(_) => Outcome::Failed("the worker that hung has ended".to_owned()),
                    },
                    outcome => outcome,
                };
                let result = match outcome {
                    Outcome::Answer(Answer::NvmeEvents { set }) => Ok(set),
                    Outcome::Answer(Answer::Failed { error }) | Outcome::Failed(error) => {
                        Err(error)
                    }
                    Outcome::Answer(_) => {
                        Err("a worker answered another question than was asked".to_owned())
                    }
                    Outcome::Stuck { since, .. } => {
                        Err(format!("the controller has not answered since {since}"))
                    }
                };
                smart::Ended::Push(Ended { controller, result })
            });
        }
        self.controllers
            .values()
            .filter(|state| !state.asking)
            .map(|state| state.due)
            .min()
    }

    pub fn ended(&mut self, ended: Ended, settings: &SmartSettings, at: Instant) {
        let Some(state) = self.controllers.get_mut(&ended.controller) else {
            return;
        };
        state.asking = false;
        state.due = at
            + if ended.result.is_ok() {
                settings.interval
            } else {
                SELDOM
            };
        let news = ended.result.map(|_set| ());
        if state.told.as_ref() != Some(&news) {
            match &news {
                Ok(()) => tracing::info!(
                    controller = ended.controller,
                    "the NVMe controller announces health events"
                ),
                Err(why) => {
                    tracing::warn!(
                        controller = ended.controller,
                        why,
                        "the NVMe controller announces no health events; it is asked from time to time"
                    );
                }
            }
            state.told = Some(news);
        }
    }
}
