//! State that the CSI services of one shim share: the driver's name and topology, the enabled
//! health APIs, and the connection to the daemon.
//!
//! In: volume ids. Out: the daemon's volumes and their health as CSI messages.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tonic::{Code, Status};

use crate::agent::Agent;
use crate::health::{self, HealthStatus, VolumeHealth};
use crate::health_client::probed_volume;
use crate::options::HealthApi;
use crate::topology::Topology;
use crate::validate::volume_not_found;
use crate::wire;
use crate::withdrawal::{Withdrawal, withdrawn_health};
use diskvitals_wire as daemon;
use diskvitals_wire::client::{Client, ClientError};

/// How long the daemon's snapshot of the node may lag behind the daemon's own actions.
const SNAPSHOT_LAG: Duration = Duration::from_secs(5);

pub(crate) struct Driver {
    pub name: String,
    pub node_id: String,
    pub topology: Topology,
    pub health_api: HealthApi,
    /// Whether ControllerPublishVolume and ControllerExpandVolume are announced.
    pub controller_publish: bool,
    /// Whether ListVolumes lists no volumes.
    pub list_nothing: bool,
    pub agent: Agent,
    pub withdrawal: Arc<Withdrawal>,
}

impl Driver {
    /// Queries the health of one volume of this driver; NOT_FOUND for an unknown volume.
    pub(crate) async fn query_health(&self, id: &str) -> Result<VolumeHealth, Status> {
        if self.withdrawal.is_active() {
            return Ok(withdrawn_health());
        }
        let health =
            self.agent.query(|client| fetch_health(client, self.name.clone(), id.to_owned())).await;
        health.map_err(|status| with_volume_id(id, status))
    }

    /// Queries one volume of this driver; NOT_FOUND for an unknown volume.
    pub(crate) async fn query_provided(&self, id: &str) -> Result<daemon::ProvidedVolume, Status> {
        let provided = self.agent.query(|client| {
            let id = id.to_owned();
            async move { client.provisioned_volume(&id).await }
        });
        provided.await.map_err(|status| with_volume_id(id, status))
    }

    /// UNIMPLEMENTED unless CSI 1.13's health calls are announced.
    pub(crate) fn require_health_api(&self) -> Result<(), Status> {
        if self.health_api.includes_health() {
            Ok(())
        } else {
            Err(Status::unimplemented(
                "the health calls of CSI 1.13 are switched off (--health-api)",
            ))
        }
    }

    /// The answer of CSI 1.13. UNAVAILABLE while health is unknown, so that the caller keeps its
    /// last value.
    pub(crate) fn wire_volume_health(
        &self,
        id: &str,
        health: VolumeHealth,
    ) -> Result<wire::VolumeHealth, Status> {
        match health.statuses {
            Ok(statuses) => Ok(wire::VolumeHealth {
                volume_id: id.to_owned(),
                health_statuses: wire_health_entries(statuses),
            }),
            Err(why) => {
                Err(Status::unavailable(format!("the health of this volume is not known: {why}")))
            }
        }
    }

    /// The answer of CSI 1.12, if it is enabled, known and not withdrawn.
    pub(crate) fn wire_condition(&self, health: VolumeHealth) -> Option<wire::VolumeCondition> {
        let condition = health
            .condition
            .filter(|_| self.health_api.includes_condition() && !self.withdrawal.is_active());
        condition.map(|condition| wire::VolumeCondition {
            abnormal: condition.abnormal,
            message: condition.message,
        })
    }

    /// A volume in the answers of the Controller service.
    pub(crate) fn wire_volume(&self, volume: &daemon::ProvidedVolume) -> wire::Volume {
        wire::Volume {
            volume_id: volume.handle.clone(),
            capacity_bytes: crate::stats::saturating_i64(volume.size_bytes),
            volume_context: self.topology.volume_context(),
            content_source: None,
            accessible_topology: vec![self.topology.to_wire()],
        }
    }

    /// The nodes on which a volume is staged or published: this node or none.
    pub(crate) fn published_node_ids(&self, volume: &daemon::ProvidedVolume) -> Vec<String> {
        if self.controller_publish && !volume.attachments.is_empty() {
            vec![self.node_id.clone()]
        } else {
            Vec::new()
        }
    }
}

/// Returns the health from the daemon's snapshot of the node, or from the volume's own record if
/// the snapshot does not contain the volume yet.
async fn fetch_health(
    client: Client,
    driver: String,
    id: String,
) -> Result<VolumeHealth, ClientError> {
    match probed_volume(&client, &driver, &id).await {
        Ok(volume) => Ok(health::of_volume(&volume)),
        Err(ClientError::Rejected(status)) if status.code() == Code::NotFound => {
            client.provisioned_volume(&id).await.map(|volume| provided_volume_health(&volume))
        }
        Err(error) => Err(error),
    }
}

/// [`health::of_provided`] with the current time.
pub(crate) fn provided_volume_health(volume: &daemon::ProvidedVolume) -> VolumeHealth {
    health::of_provided(volume, volume.attachments.iter().any(is_fresh))
}

/// Whether the attachment is so recent that the daemon's snapshot of the node may not show it yet.
pub(crate) fn is_fresh(attachment: &daemon::Attachment) -> bool {
    let since = attachment.since.and_then(|since| SystemTime::try_from(since).ok());
    // An error means a time in the future: the clock was set back.
    since.is_some_and(|since| since.elapsed().is_ok_and(|age| age < SNAPSHOT_LAG))
}

/// Replaces the handle in the daemon's message by the caller's volume id.
pub(crate) fn with_volume_id(id: &str, status: Status) -> Status {
    if status.code() == Code::NotFound { volume_not_found(id) } else { status }
}

fn wire_health_entries(statuses: Vec<HealthStatus>) -> Vec<wire::volume_health::VolumeHealthEntry> {
    let entry = |status: HealthStatus| wire::volume_health::VolumeHealthEntry {
        status: status.status.number(),
        reason: status.reason,
        message: status.message,
    };
    statuses.into_iter().map(entry).collect()
}
