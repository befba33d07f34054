//! Makes NVMe controllers announce health events, where the configuration allows it. A reset clears
//! the setting, so it is checked again from time to time.
//!
//! In: the plans. Out: log messages only; the events arrive through `source::events`. Without
//! events, drives are still polled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::context::{Context, SmartSettings};
use crate::jobs::{Job, JobResult};
use crate::smart;
use crate::smart::backend::Backend;
use crate::smart::plan::Plan;
use crate::smart::tasks::{TASK_LOST, TaskSet};
use crate::worker_job::{JobError, answer, late_answer};
use diskvitals_finding::ids::DriveId;
use diskvitals_host::worker_pool::WorkerOutcome;
use diskvitals_model::drive::Transport;
use diskvitals_model::source_update::SmartTarget;

/// The pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct NvmeEventsResult {
    controller: String,
    result: Result<(), NvmeEventsError>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NvmeEventsError {
    #[error("{TASK_LOST}")]
    TaskLost,
    #[error(transparent)]
    Worker(JobError),
}

fn nvme_events_result(result: JobResult) -> Option<()> {
    matches!(result, JobResult::NvmeEvents { .. }).then_some(())
}

#[derive(Default)]
pub struct NvmeEventSetup {
    controllers: BTreeMap<String, ControllerState>,
}

struct ControllerState {
    due: Instant,
    in_flight: bool,
    /// The last result in the log.
    logged: Option<Result<(), NvmeEventsError>>,
}

/// The controllers of a drive (`nvme0`), which is queried through a controller or a namespace; with
/// several paths, all of them.
pub fn controllers(target: &SmartTarget) -> BTreeSet<String> {
    if target.transport != Transport::Nvme {
        return BTreeSet::new();
    }
    target.controllers.iter().cloned().chain(controller_of_device(target)).collect()
}

fn controller_of_device(target: &SmartTarget) -> Option<String> {
    let name = target.device.as_path().file_name()?.to_str()?;
    let number: String =
        name.strip_prefix("nvme")?.chars().take_while(char::is_ascii_digit).collect();
    (!number.is_empty()).then(|| format!("nvme{number}"))
}

impl NvmeEventSetup {
    /// The controller may have been reset.
    pub(crate) fn recheck(&mut self, controller: &str, at: Instant) {
        if let Some(state) = self.controllers.get_mut(controller) {
            state.due = state.due.min(at);
        }
    }

    /// Out: when the next one is due.
    pub fn start_due<W: Backend>(
        &mut self,
        plans: &BTreeMap<DriveId, Plan>,
        context: &Context,
        backend: &W,
        tasks: &mut TaskSet,
        at: Instant,
    ) -> Option<Instant> {
        // A suspended controller is not woken.
        let wanted = plans.values().filter(|plan| plan.wanted && !plan.target.asleep);
        let wanted: BTreeSet<String> = wanted.flat_map(|plan| controllers(&plan.target)).collect();
        self.controllers.retain(|name, state| state.in_flight || wanted.contains(name));
        for name in wanted {
            self.controllers.entry(name).or_insert(ControllerState {
                due: at,
                in_flight: false,
                logged: None,
            });
        }
        let timeout = context.settings.borrow().worker_timeout;
        for (name, state) in
            self.controllers.iter_mut().filter(|(_, state)| !state.in_flight && state.due <= at)
        {
            state.in_flight = true;
            let (backend, controller) = (backend.clone(), name.clone());
            let lost = NvmeEventsResult {
                controller: name.clone(),
                result: Err(NvmeEventsError::TaskLost),
            };
            tasks.spawn(smart::SmartTaskResult::NvmeEvents(lost), async move {
                let job = Job::NvmeEvents { controller: controller.clone() };
                let outcome =
                    backend.run_job(format!("events of {controller}"), job, timeout).await;
                let result = match outcome {
                    // The controller is not queried again until the stuck worker has ended.
                    WorkerOutcome::Stuck { late: Some(late), .. } => {
                        late_answer(late, nvme_events_result).await
                    }
                    outcome => answer(outcome, nvme_events_result),
                };
                let result = result.map_err(NvmeEventsError::Worker);
                smart::SmartTaskResult::NvmeEvents(NvmeEventsResult { controller, result })
            });
        }
        self.controllers.values().filter(|state| !state.in_flight).map(|state| state.due).min()
    }

    pub(crate) fn record_result(
        &mut self,
        finished: NvmeEventsResult,
        settings: &SmartSettings,
        at: Instant,
    ) {
        let Some(state) = self.controllers.get_mut(&finished.controller) else {
            return;
        };
        state.in_flight = false;
        state.due = at + if finished.result.is_ok() { settings.interval } else { RETRY_INTERVAL };
        let result = finished.result;
        if state.logged.as_ref() != Some(&result) {
            match &result {
                Ok(()) => tracing::info!(
                    controller = finished.controller,
                    "the NVMe controller announces health events"
                ),
                Err(error) => {
                    tracing::warn!(
                        controller = finished.controller,
                        %error,
                        "the NVMe controller announces no health events; it is asked from time to time"
                    );
                }
            }
            state.logged = Some(result);
        }
    }
}
