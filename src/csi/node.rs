//! CSI's Node: what the kubelet asks of this node's volumes. The daemon does the work; health and
//! figures come from its memory.
//!
//! Each call checks its fields first and looks the volume up then (a request without a target path
//! is wrong whatever the volume is).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::{Code, Request, Response, Status};

use crate::api::client::{Client, ClientError};
use crate::api::wire as daemon;
use crate::csi::arguments::{
    capability, in_csi_words, known_form, map, path, patience, place, pod, range, volume_id,
};
use crate::csi::driver::{Driver, is_fresh, named};
use crate::csi::health::{self, HealthStatus, Told};
use crate::csi::wire::node_server::Node;
use crate::csi::wire::node_service_capability::rpc::Type as Can;
use crate::csi::wire::node_service_capability::{Rpc, Type};
use crate::csi::{arguments, stats, wire};

/// How long the first figures of a volume that was attached a moment ago are waited for.
const FIRST_FIGURES: Duration = Duration::from_secs(5);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(25);

pub struct NodeService {
    driver: Arc<Driver>,
}

impl NodeService {
    pub fn new(driver: Arc<Driver>) -> NodeService {
        NodeService { driver }
    }

    /// Usage at `path`, and the volume's health where that was to be had with it. The daemon's
    /// picture is a moment behind what it has done itself: a volume that it has just attached there
    /// is looked at again, and only that one is waited for.
    async fn usage(
        &self,
        id: &str,
        path: &str,
    ) -> Result<(Vec<wire::VolumeUsage>, Option<Told>), Status> {
        let until = Instant::now() + FIRST_FIGURES;
        loop {
            let asked = self.driver.agent.quick(|client| {
                figures(
                    client,
                    self.driver.name.clone(),
                    id.to_owned(),
                    path.to_owned(),
                )
            });
            let (status, volume) = match asked.await.map_err(|status| named(id, status))? {
                Figures::Told(answer) => {
                    return Ok((
                        stats::entries(&stats::told(&answer)),
                        answer.volume.as_ref().map(health::told),
                    ));
                }
                Figures::None(status, volume) => (status, volume),
            };
            let Some(attached) = volume
                .attachments
                .iter()
                .find(|attachment| attachment.path == path)
            else {
                return Err(match status.code() {
                    Code::NotFound => not_there(id, path),
                    _ => status,
                });
            };
            let fresh = is_fresh(attached);
            if !fresh && status.code() == Code::NotFound {
                return Err(not_there(id, path));
            }
            if attached.block {
                return Ok((vec![stats::size(volume.size_bytes)], None));
            }
            if !fresh || Instant::now() >= until {
                return Err(status);
            }
            sleep(LOOK).await;
        }
    }
}

/// What the daemon's picture says of a volume at a path.
enum Figures {
    Told(Box<daemon::VolumeUsageAnswer>),
    /// It is not there, or has none yet; the volume as its keeper knows it.
    None(Status, Box<daemon::ProvidedVolume>),
}

async fn figures(
    client: Client,
    driver: String,
    id: String,
    path: String,
) -> Result<Figures, ClientError> {
    match client.usage_and_volume(&driver, &id, &path).await {
        Ok(answer) => Ok(Figures::Told(Box::new(answer))),
        // Whatever else is wrong does not pass by waiting.
        Err(ClientError::Refused(status))
            if matches!(status.code(), Code::NotFound | Code::Unavailable) =>
        {
            let provided = client.provided(&id).await?;
            Ok(Figures::None(
                Status::new(status.code(), status.message()),
                Box::new(provided),
            ))
        }
        Err(error) => Err(error),
    }
}

/// NOT_FOUND, as CSI wants it of a path where the volume is not (NodeGetVolumeStats,
/// NodeExpandVolume).
fn not_there(id: &str, path: &str) -> Status {
    Status::not_found(format!(
        "volume_path: the volume `{}` is not at `{}`",
        arguments::echo(id),
        arguments::echo(path)
    ))
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<wire::NodeStageVolumeRequest>,
    ) -> Result<Response<wire::NodeStageVolumeResponse>, Status> {
        let limit = patience(&request);
        let request = request.into_inner();
        volume_id(&request.volume_id)?;
        path("staging_target_path", &request.staging_target_path)?;
        let access = capability("volume_capability", request.volume_capability.as_ref())?;
        map("volume_context", &request.volume_context)?;
        pod(&request.volume_context)?;
        known_form(&request.volume_id)?;
        self.driver.topology.has_made(&request.volume_context)?;
        let stage = daemon::StageRequest {
            handle: request.volume_id,
            staging_path: request.staging_target_path,
            access: Some(access),
        };
        let staged = self.driver.agent.long(limit, |client| {
            let stage = stage.clone();
            async move { client.stage(stage).await }
        });
        staged.await.map_err(in_csi_words)?;
        Ok(Response::new(wire::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Result<Response<wire::NodeUnstageVolumeResponse>, Status> {
        let limit = patience(&request);
        let request = request.into_inner();
        volume_id(&request.volume_id)?;
        path("staging_target_path", &request.staging_target_path)?;
        known_form(&request.volume_id)?;
        let unstaged = self.driver.agent.long(limit, |client| {
            let request = request.clone();
            async move {
                client
                    .unstage(&request.volume_id, &request.staging_target_path)
                    .await
            }
        });
        unstaged.await.map_err(in_csi_words)?;
        Ok(Response::new(wire::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Result<Response<wire::NodePublishVolumeResponse>, Status> {
        let limit = patience(&request);
        let request = request.into_inner();
        volume_id(&request.volume_id)?;
        path("target_path", &request.target_path)?;
        let access = capability("volume_capability", request.volume_capability.as_ref())?;
        map("volume_context", &request.volume_context)?;
        let pod = pod(&request.volume_context)?;
        if request.staging_target_path.is_empty() {
            // CSI, NodePublishVolume Errors: staging target path not set.
            return Err(Status::failed_precondition(
                "staging_target_path: is empty; this driver's volumes are staged first",
            ));
        }
        path("staging_target_path", &request.staging_target_path)?;
        known_form(&request.volume_id)?;
        self.driver.topology.has_made(&request.volume_context)?;
        let publish = daemon::PublishRequest {
            handle: request.volume_id,
            staging_path: request.staging_target_path,
            target_path: request.target_path,
            access: Some(access),
            read_only: request.readonly,
            pod_uid: pod.uid,
            pod_name: pod.name,
            pod_namespace: pod.namespace,
        };
        let published = self.driver.agent.long(limit, |client| {
            let publish = publish.clone();
            async move { client.publish(publish).await }
        });
        published.await.map_err(in_csi_words)?;
        Ok(Response::new(wire::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<wire::NodeUnpublishVolumeResponse>, Status> {
        let limit = patience(&request);
        let request = request.into_inner();
        volume_id(&request.volume_id)?;
        path("target_path", &request.target_path)?;
        known_form(&request.volume_id)?;
        let unpublished = self.driver.agent.long(limit, |client| {
            let request = request.clone();
            async move {
                client
                    .unpublish(&request.volume_id, &request.target_path)
                    .await
            }
        });
        unpublished.await.map_err(in_csi_words)?;
        Ok(Response::new(wire::NodeUnpublishVolumeResponse {}))
    }

    /// Never fails for unknown health: the condition says so (`health::Told`), and is left out
    /// where even that cannot be had.
    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<wire::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        volume_id(&request.volume_id)?;
        let can_be_there = place("volume_path", &request.volume_path)?;
        known_form(&request.volume_id)?;
        if !can_be_there {
            return Err(not_there(&request.volume_id, &request.volume_path));
        }
        let (usage, told) = self.usage(&request.volume_id, &request.volume_path).await?;
        let volume_condition = match told {
            Some(told) => self.driver.condition(told),
            None if self.driver.health_api.condition() => {
                match self.driver.told(&request.volume_id).await {
                    Ok(told) => self.driver.condition(told),
                    Err(status) => {
                        tracing::debug!(
                            volume = request.volume_id,
                            why = status.message(),
                            "figures without a condition"
                        );
                        None
                    }
                }
            }
            None => None,
        };
        Ok(Response::new(wire::NodeGetVolumeStatsResponse {
            usage,
            volume_condition,
        }))
    }

    /// By id alone: whether it is mounted where it should be is among the daemon's findings, and a
    /// path says nothing more.
    async fn node_get_volume_health(
        &self,
        request: Request<wire::NodeGetVolumeHealthRequest>,
    ) -> Result<Response<wire::NodeGetVolumeHealthResponse>, Status> {
        let request = request.into_inner();
        self.driver.speaks_health()?;
        volume_id(&request.volume_id)?;
        known_form(&request.volume_id)?;
        let told = self.driver.told(&request.volume_id).await?;
        let volume_health = Some(self.driver.volume_health(&request.volume_id, told)?);
        Ok(Response::new(wire::NodeGetVolumeHealthResponse {
            volume_health,
        }))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<wire::NodeGetStorageHealthRequest>,
    ) -> Result<Response<wire::NodeGetStorageHealthResponse>, Status> {
        self.driver.speaks_health()?;
        let health = self.driver.agent.quick(|client| {
            let driver = self.driver.name.clone();
            async move { client.storage_health(&driver).await }
        });
        let backend_health = health::of_storage(&health.await?)
            .into_iter()
            .map(storage)
            .collect();
        Ok(Response::new(wire::NodeGetStorageHealthResponse {
            backend_health,
        }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<wire::NodeExpandVolumeRequest>,
    ) -> Result<Response<wire::NodeExpandVolumeResponse>, Status> {
        let limit = patience(&request);
        let request = request.into_inner();
        volume_id(&request.volume_id)?;
        let can_be_there = place("volume_path", &request.volume_path)?;
        let (required_bytes, limit_bytes) = range(request.capacity_range.as_ref())?;
        known_form(&request.volume_id)?;
        if !can_be_there {
            return Err(not_there(&request.volume_id, &request.volume_path));
        }
        let expand = daemon::ExpandRequest {
            handle: request.volume_id,
            required_bytes,
            limit_bytes,
            volume_path: request.volume_path,
            device_only: false,
        };
        let expanded = self.driver.agent.long(limit, |client| {
            let expand = expand.clone();
            async move { client.expand(expand).await }
        });
        let capacity_bytes = stats::signed(expanded.await.map_err(in_csi_words)?.size_bytes);
        Ok(Response::new(wire::NodeExpandVolumeResponse {
            capacity_bytes,
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<wire::NodeGetCapabilitiesResponse>, Status> {
        let mut can = vec![
            Can::StageUnstageVolume,
            Can::GetVolumeStats,
            Can::ExpandVolume,
            Can::SingleNodeMultiWriter,
        ];
        if self.driver.health_api.condition() {
            can.push(Can::VolumeCondition);
        }
        if self.driver.health_api.health() {
            can.extend([Can::GetVolumeHealth, Can::GetStorageHealth]);
        }
        let capability = |can: Can| wire::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: can.into() })),
        };
        Ok(Response::new(wire::NodeGetCapabilitiesResponse {
            capabilities: can.into_iter().map(capability).collect(),
        }))
    }

    async fn node_get_info(
        &self,
        _: Request<wire::NodeGetInfoRequest>,
    ) -> Result<Response<wire::NodeGetInfoResponse>, Status> {
        Ok(Response::new(wire::NodeGetInfoResponse {
            node_id: self.driver.node_id.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(self.driver.topology.wire()),
        }))
    }
}

/// Without a capability: of volumes of any use (the kubelet throws a whole answer away for one that
/// is half filled in).
fn storage(status: HealthStatus) -> wire::node_get_storage_health_response::StorageBackendHealth {
    let unreachable = status.status == health::Status::Inaccessible;
    wire::node_get_storage_health_response::StorageBackendHealth {
        status: match unreachable {
            true => wire::StorageHealthErrorType::StorageUnreachable,
            false => wire::StorageHealthErrorType::StorageDegraded,
        }
        .into(),
        reason: status.reason,
        message: status.message,
        volume_capability: None,
    }
}
