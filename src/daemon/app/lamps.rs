//! Finds and switches locate lamps in the workers that are in the host's mount namespace.

use std::time::Duration;

use crate::api::server::LampBackend;
use diskvitals_model::drive::DriveFacts;
use diskvitals_model::lamp::LampPlace;
use diskvitals_source::context::JobWorkers;
use diskvitals_source::jobs::{Job, JobResult};
use diskvitals_source::worker_job::answer;

/// Reads links and attributes in the kernel's memory.
const FIND_TIMEOUT: Duration = Duration::from_secs(2);
/// Three commands to an enclosure. With `FIND_TIMEOUT` shorter than the server's time-out for an answer.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(6);

pub(crate) struct LampWorkers(pub JobWorkers);

#[tonic::async_trait]
impl LampBackend for LampWorkers {
    async fn find(&self, drive: &DriveFacts) -> Result<Option<LampPlace>, String> {
        let devices = drive.devices.iter().map(|it| it.name.clone()).collect();
        let controllers = drive.location.controllers.clone();
        let job = Job::FindLamp { devices, controllers };
        let outcome = self.0.run(&format!("lamp of {}", drive.id), job, FIND_TIMEOUT).await;
        let found = answer(outcome, |result| match result {
            JobResult::Lamp(place) => Some(place),
            _ => None,
        });
        found.map_err(|error| format!("looking for the lamp: {error}"))
    }

    async fn switch(&self, place: &LampPlace, is_on: bool) -> Result<(), String> {
        let job = Job::SwitchLamp { place: place.clone(), is_on };
        let outcome = self.0.run(&format!("lamp at {place}"), job, SWITCH_TIMEOUT).await;
        let switched =
            answer(outcome, |result| matches!(result, JobResult::LampSwitched).then_some(()));
        let word = if is_on { "on" } else { "off" };
        switched.map_err(|error| format!("turning {word} the lamp at {place}: {error}"))
    }
}
