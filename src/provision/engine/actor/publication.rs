//! What the actor publishes: the view for callers after each change, and the volumes for the owner of
//! the state.

use std::sync::Arc;

use crate::engine::actor::{Actor, EngineError};
use crate::engine::view::EngineView;
use crate::step::StepExecutor;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::provision::ProvisionState;
use diskvitals_host::clock;
use diskvitals_model::source_update::SourceUpdate;

impl<S: StepExecutor> Actor<S> {
    pub(super) fn publish_view(&self) {
        let volumes = self.volumes.iter().filter(|(_, entry)| entry.volume.exists);
        let volumes = volumes
            .map(|(handle, entry)| (handle.clone(), entry.volume.view(entry.activity.clone())))
            .collect();
        self.view.send_replace(Arc::new(EngineView {
            records_error: self.records_error.clone(),
            volume_group_error: self.volume_group_error.clone(),
            volumes,
            capacities: self.capacities.clone(),
        }));
    }

    /// Publishes the view. If the volumes changed, sends them to the owner of the state.
    pub(super) async fn publish_inventory(&mut self) -> Result<(), EngineError> {
        self.publish_view();
        let settings = self.settings();
        let observation = match &self.records_error {
            Some(error) => Observation::failed(clock::now(), error),
            None => {
                let volumes = self
                    .volumes
                    .values()
                    .filter(|entry| entry.volume.exists)
                    .map(|entry| entry.volume.to_provisioned())
                    .collect();
                let state = ProvisionState {
                    driver: settings.driver.clone(),
                    volumes,
                    directory: Some(settings.directory.clone()),
                    volume_group: settings.volume_group.clone(),
                    physical_volumes: self.physical_volumes.clone(),
                };
                Observation::ok(clock::now(), state)
            }
        };
        let same = self.last_published.as_ref().is_some_and(|last| {
            last.value() == observation.value() && last.error() == observation.error()
        });
        // Before the first discovery ends there is nothing to publish and nothing to retract.
        if same || (self.last_published.is_none() && self.is_discovering) {
            return Ok(());
        }
        self.last_published = Some(observation.clone());
        self.updates
            .send(SourceUpdate::Provision(observation))
            .await
            .map_err(|_| EngineError::OwnerGone)
    }
}
