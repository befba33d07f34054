//! CSI Node service: the kubelet's calls for the volumes of this node. The daemon does the work;
//! health and usage come from its memory.
//!
//! Each call validates its fields first, then looks up the volume (a request without a target path
//! is invalid for every volume).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::{Code, Request, Response, Status};

use crate::driver::{Driver, is_fresh, with_volume_id};
use crate::health::{self, HealthStatus, VolumeHealth};
use crate::validate::{
    call_timeout, is_possible_path, parse_capability, parse_capacity_range, parse_pod,
    validate_id_form, validate_map, validate_path, validate_volume_id, with_csi_field_names,
};
use crate::wire::node_server::Node;
use crate::wire::node_service_capability::rpc::Type as Can;
use crate::wire::node_service_capability::{Rpc, Type};
use crate::{stats, wire};
use diskvitals_text::echo::echo;
use diskvitals_wire as daemon;
use diskvitals_wire::client::{Client, ClientError};

/// How long to wait for the first usage of a volume that was attached a moment ago.
const FIRST_USAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two queries during this wait.
const USAGE_POLL_INTERVAL: Duration = Duration::from_millis(25);

pub(crate) struct NodeService {
    pub driver: Arc<Driver>,
}

impl NodeService {
    /// Returns the usage at `path`, and the volume's health if the same answer contains it. The
    /// daemon's snapshot lags behind its own actions: the query is repeated only for a volume that
    /// the daemon has just attached at `path`.
    async fn usage(
        &self,
        id: &str,
        path: &str,
    ) -> Result<(Vec<wire::VolumeUsage>, Option<VolumeHealth>), Status> {
        let until = Instant::now() + FIRST_USAGE_TIMEOUT;
        loop {
            let answered = self.driver.agent.query(|client| {
                fetch_usage(client, self.driver.name.clone(), id.to_owned(), path.to_owned())
            });
            let (status, volume) =
                match answered.await.map_err(|status| with_volume_id(id, status))? {
                    UsageOutcome::Available(answer) => {
                        return Ok((
                            stats::to_wire(&stats::from_daemon(&answer)),
                            answer.volume.as_ref().map(health::of_volume),
                        ));
                    }
                    UsageOutcome::Unavailable(status, volume) => (status, volume),
                };
            let Some(attached) =
                volume.attachments.iter().find(|attachment| attachment.path == path)
            else {
                return Err(match status.code() {
                    Code::NotFound => not_at_path(id, path),
                    _ => status,
                });
            };
            let fresh = is_fresh(attached);
            if !fresh && status.code() == Code::NotFound {
                return Err(not_at_path(id, path));
            }
            if attached.block {
                return Ok((vec![stats::block_usage(volume.size_bytes)], None));
            }
            if !fresh || Instant::now() >= until {
                return Err(status);
            }
            sleep(USAGE_POLL_INTERVAL).await;
        }
    }
}

/// The daemon's answer about a volume at a path.
enum UsageOutcome {
    Available(Box<daemon::VolumeUsageAnswer>),
    /// The volume is not at the path, or has no usage yet; contains the volume's own record.
    Unavailable(Status, Box<daemon::ProvidedVolume>),
}

async fn fetch_usage(
    client: Client,
    driver: String,
    id: String,
    path: String,
) -> Result<UsageOutcome, ClientError> {
    match client.usage_and_volume(&driver, &id, &path).await {
        Ok(answer) => Ok(UsageOutcome::Available(Box::new(answer))),
        // Waiting does not help against other errors.
        Err(ClientError::Rejected(status))
            if matches!(status.code(), Code::NotFound | Code::Unavailable) =>
        {
            let provided = client.provisioned_volume(&id).await?;
            Ok(UsageOutcome::Unavailable(
                Status::new(status.code(), status.message()),
                Box::new(provided),
            ))
        }
        Err(error) => Err(error),
    }
}

/// NOT_FOUND, as CSI requires if the volume is not at the path (NodeGetVolumeStats,
/// NodeExpandVolume).
fn not_at_path(id: &str, path: &str) -> Status {
    Status::not_found(format!("volume_path: the volume `{}` is not at `{}`", echo(id), echo(path)))
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<wire::NodeStageVolumeRequest>,
    ) -> Result<Response<wire::NodeStageVolumeResponse>, Status> {
        let limit = call_timeout(&request);
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        validate_path("staging_target_path", &request.staging_target_path)?;
        let access = parse_capability("volume_capability", request.volume_capability.as_ref())?;
        validate_map("volume_context", &request.volume_context)?;
        parse_pod(&request.volume_context)?;
        validate_id_form(&request.volume_id)?;
        self.driver.topology.require_created_here(&request.volume_context)?;
        let stage = daemon::StageRequest {
            handle: request.volume_id,
            staging_path: request.staging_target_path,
            access: Some(access),
        };
        let staged = self.driver.agent.execute(limit, |client| {
            let stage = stage.clone();
            async move { client.stage(stage).await }
        });
        staged.await.map_err(with_csi_field_names)?;
        Ok(Response::new(wire::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Result<Response<wire::NodeUnstageVolumeResponse>, Status> {
        let limit = call_timeout(&request);
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        validate_path("staging_target_path", &request.staging_target_path)?;
        validate_id_form(&request.volume_id)?;
        let unstaged = self.driver.agent.execute(limit, |client| {
            let request = request.clone();
            async move { client.unstage(&request.volume_id, &request.staging_target_path).await }
        });
        unstaged.await.map_err(with_csi_field_names)?;
        Ok(Response::new(wire::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Result<Response<wire::NodePublishVolumeResponse>, Status> {
        let limit = call_timeout(&request);
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        validate_path("target_path", &request.target_path)?;
        let access = parse_capability("volume_capability", request.volume_capability.as_ref())?;
        validate_map("volume_context", &request.volume_context)?;
        let pod = parse_pod(&request.volume_context)?;
        if request.staging_target_path.is_empty() {
            // CSI, NodePublishVolume Errors: staging target path not set.
            return Err(Status::failed_precondition(
                "staging_target_path: is empty; this driver's volumes are staged first",
            ));
        }
        validate_path("staging_target_path", &request.staging_target_path)?;
        validate_id_form(&request.volume_id)?;
        self.driver.topology.require_created_here(&request.volume_context)?;
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
        let published = self.driver.agent.execute(limit, |client| {
            let publish = publish.clone();
            async move { client.publish(publish).await }
        });
        published.await.map_err(with_csi_field_names)?;
        Ok(Response::new(wire::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<wire::NodeUnpublishVolumeResponse>, Status> {
        let limit = call_timeout(&request);
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        validate_path("target_path", &request.target_path)?;
        validate_id_form(&request.volume_id)?;
        let unpublished = self.driver.agent.execute(limit, |client| {
            let request = request.clone();
            async move { client.unpublish(&request.volume_id, &request.target_path).await }
        });
        unpublished.await.map_err(with_csi_field_names)?;
        Ok(Response::new(wire::NodeUnpublishVolumeResponse {}))
    }

    /// Unknown health is not an error here: the condition reports it, or is omitted if there is
    /// none.
    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<wire::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        let can_be_there = is_possible_path("volume_path", &request.volume_path)?;
        validate_id_form(&request.volume_id)?;
        if !can_be_there {
            return Err(not_at_path(&request.volume_id, &request.volume_path));
        }
        let (usage, health) = self.usage(&request.volume_id, &request.volume_path).await?;
        let volume_condition = match health {
            Some(health) => self.driver.wire_condition(health),
            None if self.driver.health_api.includes_condition() => {
                match self.driver.query_health(&request.volume_id).await {
                    Ok(health) => self.driver.wire_condition(health),
                    Err(status) => {
                        tracing::debug!(
                            volume = request.volume_id,
                            why = status.message(),
                            "usage without a condition"
                        );
                        None
                    }
                }
            }
            None => None,
        };
        Ok(Response::new(wire::NodeGetVolumeStatsResponse { usage, volume_condition }))
    }

    /// Uses the id alone: a volume without its expected mount has a finding, so the path adds
    /// nothing.
    async fn node_get_volume_health(
        &self,
        request: Request<wire::NodeGetVolumeHealthRequest>,
    ) -> Result<Response<wire::NodeGetVolumeHealthResponse>, Status> {
        let request = request.into_inner();
        self.driver.require_health_api()?;
        validate_volume_id(&request.volume_id)?;
        validate_id_form(&request.volume_id)?;
        self.driver.withdrawal.record_volume_call(&request.volume_id);
        let health = self.driver.query_health(&request.volume_id).await?;
        let volume_health = Some(self.driver.wire_volume_health(&request.volume_id, health)?);
        Ok(Response::new(wire::NodeGetVolumeHealthResponse { volume_health }))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<wire::NodeGetStorageHealthRequest>,
    ) -> Result<Response<wire::NodeGetStorageHealthResponse>, Status> {
        self.driver.require_health_api()?;
        if self.driver.withdrawal.is_active() {
            self.driver.withdrawal.record_storage_call();
            return Ok(Response::new(wire::NodeGetStorageHealthResponse::default()));
        }
        let health = self.driver.agent.query(|client| {
            let driver = self.driver.name.clone();
            async move { client.storage_health(&driver).await }
        });
        let backend_health =
            health::of_storage(&health.await?).into_iter().map(to_backend_health).collect();
        Ok(Response::new(wire::NodeGetStorageHealthResponse { backend_health }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<wire::NodeExpandVolumeRequest>,
    ) -> Result<Response<wire::NodeExpandVolumeResponse>, Status> {
        let limit = call_timeout(&request);
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        let can_be_there = is_possible_path("volume_path", &request.volume_path)?;
        let (required_bytes, limit_bytes) = parse_capacity_range(request.capacity_range.as_ref())?;
        validate_id_form(&request.volume_id)?;
        if !can_be_there {
            return Err(not_at_path(&request.volume_id, &request.volume_path));
        }
        let expand = daemon::ExpandRequest {
            handle: request.volume_id,
            required_bytes,
            limit_bytes,
            volume_path: request.volume_path,
            device_only: false,
        };
        let expanded = self.driver.agent.execute(limit, |client| {
            let expand = expand.clone();
            async move { client.expand(expand).await }
        });
        let capacity_bytes =
            stats::saturating_i64(expanded.await.map_err(with_csi_field_names)?.size_bytes);
        Ok(Response::new(wire::NodeExpandVolumeResponse { capacity_bytes }))
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
        if self.driver.health_api.includes_condition() {
            can.push(Can::VolumeCondition);
        }
        if self.driver.health_api.includes_health() {
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
            accessible_topology: Some(self.driver.topology.to_wire()),
        }))
    }
}

/// The entry has no capability: it applies to volumes of any access type. If an answer contains a
/// partial capability, the kubelet discards the whole answer.
fn to_backend_health(
    status: HealthStatus,
) -> wire::node_get_storage_health_response::StorageBackendHealth {
    wire::node_get_storage_health_response::StorageBackendHealth {
        status: status.status.number(),
        reason: status.reason,
        message: status.message,
        volume_capability: None,
    }
}
