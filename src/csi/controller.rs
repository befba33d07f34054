//! CSI Controller service. The pool, and so every volume, belongs to this node: calls use the local
//! daemon, and requests for another node are refused (in node-deployment mode the
//! external-provisioner calls each node for its own volumes).
//!
//! Each call validates its fields first, then looks up the volume.

mod listing;

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::driver::Driver;
use crate::parameters::parse_parameters;
use crate::stats::saturating_i64;
use crate::validate::{
    call_timeout, invalid, is_possible_id, parse_capabilities, parse_capability,
    parse_capacity_range, validate_id_form, validate_map, validate_name, validate_node_id,
    validate_volume_id, with_csi_field_names,
};
use crate::wire;
use crate::wire::controller_server::Controller;
use crate::wire::controller_service_capability::rpc::Type as Can;
use crate::wire::controller_service_capability::{Rpc, Type};
use diskvitals_finding::provision::AccessMode;
use diskvitals_text::echo::echo;
use diskvitals_wire as daemon;

/// Filesystems of new volumes, and those of static volumes that can be mounted.
const FILESYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

pub(crate) struct ControllerService {
    pub driver: Arc<Driver>,
}

impl ControllerService {
    fn require_controller_publish(&self, call: &str) -> Result<(), Status> {
        if self.driver.controller_publish {
            return Ok(());
        }
        Err(Status::unimplemented(format!(
            "{call} is switched off (--controller-publish): a volume of this driver is where its node is"
        )))
    }
}

/// The reason why a volume does not support this access; None if it does. An unspecified `kind`
/// means any volume of this driver.
fn unsupported_reason(access: &daemon::Access, kind: daemon::ProvidedKind) -> Option<String> {
    if !AccessMode::from_number(access.mode).is_some_and(AccessMode::is_for_one_node) {
        let mode = access.mode().as_str_name();
        let mode = mode.trim_start_matches("ACCESS_MODE_");
        return Some(format!("access_mode: {mode}: a volume of this driver is on one node only"));
    }
    if access.block && kind == daemon::ProvidedKind::StaticDirectory {
        return Some("access_type: a folder is no block device".into());
    }
    if !access.fs_type.is_empty() && !FILESYSTEMS.contains(&access.fs_type.as_str()) {
        return Some(format!(
            "fs_type: `{}` is none of {}",
            echo(&access.fs_type),
            FILESYSTEMS.join(", ")
        ));
    }
    None
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Result<Response<wire::CreateVolumeResponse>, Status> {
        let limit = call_timeout(&request);
        let request = request.into_inner();
        validate_name(&request.name)?;
        let mut accesses = parse_capabilities(&request.volume_capabilities)?;
        let parameters = parse_parameters(&request.parameters)?;
        let (required_bytes, limit_bytes) = parse_capacity_range(request.capacity_range.as_ref())?;
        if request.volume_content_source.is_some() {
            return Err(invalid(
                "volume_content_source",
                "this driver makes empty volumes only: it has no snapshots and no clones",
            ));
        }
        if !request.mutable_parameters.is_empty() {
            return Err(invalid("mutable_parameters", "this driver has none"));
        }
        for access in &mut accesses {
            if !access.block && access.fs_type.is_empty() {
                parameters.fs_type.clone_into(&mut access.fs_type);
            }
            if let Some(why) = unsupported_reason(access, parameters.kind) {
                return Err(invalid("volume_capabilities", why));
            }
        }
        self.driver.topology.require_accessible(request.accessibility_requirements.as_ref())?;
        let create = daemon::CreateRequest {
            name: request.name,
            required_bytes,
            limit_bytes,
            kind: parameters.kind.into(),
            accesses,
            mkfs_options: parameters.mkfs_options,
        };
        let created = self.driver.agent.execute(limit, |client| {
            let create = create.clone();
            async move { client.create(create).await }
        });
        let volume = Some(self.driver.wire_volume(&created.await.map_err(with_csi_field_names)?));
        Ok(Response::new(wire::CreateVolumeResponse { volume }))
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Result<Response<wire::DeleteVolumeResponse>, Status> {
        let limit = call_timeout(&request);
        let id = request.into_inner().volume_id;
        validate_volume_id(&id)?;
        // A volume with an impossible id counts as already deleted.
        if is_possible_id(&id) {
            let deleted = self.driver.agent.execute(limit, |client| {
                let id = id.clone();
                async move { client.delete(&id).await }
            });
            deleted.await?;
        }
        Ok(Response::new(wire::DeleteVolumeResponse {}))
    }

    /// Does not attach anything, because a volume is only available on its node. Checks that the
    /// requested access is possible.
    async fn controller_publish_volume(
        &self,
        request: Request<wire::ControllerPublishVolumeRequest>,
    ) -> Result<Response<wire::ControllerPublishVolumeResponse>, Status> {
        self.require_controller_publish("ControllerPublishVolume")?;
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        validate_node_id(&request.node_id)?;
        let access = parse_capability("volume_capability", request.volume_capability.as_ref())?;
        validate_map("volume_context", &request.volume_context)?;
        if request.readonly {
            return Err(invalid(
                "readonly",
                "this driver cannot attach a volume read-only; it can be published read-only",
            ));
        }
        validate_id_form(&request.volume_id)?;
        let volume = self.driver.query_provided(&request.volume_id).await?;
        if request.node_id != self.driver.node_id {
            return Err(Status::not_found(format!(
                "node_id: this driver serves the node `{}` only",
                self.driver.node_id
            )));
        }
        if let Some(why) = unsupported_reason(&access, volume.kind()) {
            return Err(invalid("volume_capability", why));
        }
        Ok(Response::new(wire::ControllerPublishVolumeResponse::default()))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<wire::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<wire::ControllerUnpublishVolumeResponse>, Status> {
        self.require_controller_publish("ControllerUnpublishVolume")?;
        validate_volume_id(&request.get_ref().volume_id)?;
        // Nothing is attached, for any volume and any node.
        Ok(Response::new(wire::ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<wire::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<wire::ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        let accesses = parse_capabilities(&request.volume_capabilities)?;
        validate_map("volume_context", &request.volume_context)?;
        validate_id_form(&request.volume_id)?;
        let volume = self.driver.query_provided(&request.volume_id).await?;
        let unsupported =
            accesses.iter().find_map(|access| unsupported_reason(access, volume.kind()));
        let check = || {
            let topology = &self.driver.topology;
            topology.require_created_here(&request.volume_context)?;
            parse_parameters(&request.parameters)?;
            match request.mutable_parameters.is_empty() {
                true => Ok(()),
                false => Err(invalid("mutable_parameters", "this driver has none")),
            }
        };
        let unsupported =
            unsupported.or_else(|| check().err().map(|status| status.message().to_owned()));
        Ok(Response::new(match unsupported {
            Some(message) => wire::ValidateVolumeCapabilitiesResponse { confirmed: None, message },
            None => wire::ValidateVolumeCapabilitiesResponse {
                confirmed: Some(wire::validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
        }))
    }

    async fn list_volumes(
        &self,
        request: Request<wire::ListVolumesRequest>,
    ) -> Result<Response<wire::ListVolumesResponse>, Status> {
        if self.driver.list_nothing {
            return Ok(Response::new(wire::ListVolumesResponse::default()));
        }
        listing::list_volumes(&self.driver, request.get_ref()).await.map(Response::new)
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<wire::ControllerListVolumeHealthRequest>,
    ) -> Result<Response<wire::ControllerListVolumeHealthResponse>, Status> {
        self.driver.require_health_api()?;
        listing::list_volume_health(&self.driver, request.get_ref()).await.map(Response::new)
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<wire::ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<wire::ControllerGetVolumeHealthResponse>, Status> {
        self.driver.require_health_api()?;
        let id = request.into_inner().volume_id;
        validate_volume_id(&id)?;
        validate_id_form(&id)?;
        let health = self.driver.query_health(&id).await?;
        let volume_health = Some(self.driver.wire_volume_health(&id, health)?);
        Ok(Response::new(wire::ControllerGetVolumeHealthResponse { volume_health }))
    }

    /// Returns 0 for another node, and for an access that no volume of this driver supports.
    async fn get_capacity(
        &self,
        request: Request<wire::GetCapacityRequest>,
    ) -> Result<Response<wire::GetCapacityResponse>, Status> {
        let request = request.into_inner();
        let parameters = parse_parameters(&request.parameters)?;
        let accesses = request
            .volume_capabilities
            .iter()
            .map(|one| parse_capability("volume_capabilities", Some(one)));
        let accesses = accesses.collect::<Result<Vec<_>, _>>()?;
        let here = request
            .accessible_topology
            .as_ref()
            .is_none_or(|segments| self.driver.topology.is_within(segments));
        let fit =
            accesses.iter().all(|access| unsupported_reason(access, parameters.kind).is_none());
        if !here || !fit {
            return Ok(Response::new(wire::GetCapacityResponse::default()));
        }
        let pool = self.driver.agent.query(|client| async move { client.pool().await }).await?;
        Ok(Response::new(capacity_response(&pool, parameters.kind)))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<wire::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<wire::ControllerGetCapabilitiesResponse>, Status> {
        let mut can = vec![
            Can::CreateDeleteVolume,
            Can::ListVolumes,
            Can::GetCapacity,
            Can::GetVolume,
            Can::SingleNodeMultiWriter,
        ];
        if self.driver.controller_publish {
            can.extend([
                Can::PublishUnpublishVolume,
                Can::ExpandVolume,
                Can::ListVolumesPublishedNodes,
            ]);
        }
        if self.driver.health_api.includes_condition() {
            can.push(Can::VolumeCondition);
        }
        if self.driver.health_api.includes_health() {
            can.extend([Can::GetVolumeHealth, Can::ListVolumeHealth]);
        }
        let capability = |can: Can| wire::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: can.into() })),
        };
        Ok(Response::new(wire::ControllerGetCapabilitiesResponse {
            capabilities: can.into_iter().map(capability).collect(),
        }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<wire::ControllerExpandVolumeRequest>,
    ) -> Result<Response<wire::ControllerExpandVolumeResponse>, Status> {
        self.require_controller_publish("ControllerExpandVolume")?;
        let limit = call_timeout(&request);
        let request = request.into_inner();
        validate_volume_id(&request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(invalid("capacity_range", "is missing"));
        }
        let (required_bytes, limit_bytes) = parse_capacity_range(request.capacity_range.as_ref())?;
        validate_id_form(&request.volume_id)?;
        let expand = daemon::ExpandRequest {
            handle: request.volume_id,
            required_bytes,
            limit_bytes,
            volume_path: String::new(),
            device_only: true,
        };
        let expanded = self.driver.agent.execute(limit, |client| {
            let expand = expand.clone();
            async move { client.expand(expand).await }
        });
        let daemon::ExpandResponse { size_bytes, node_expansion_required } =
            expanded.await.map_err(with_csi_field_names)?;
        Ok(Response::new(wire::ControllerExpandVolumeResponse {
            capacity_bytes: saturating_i64(size_bytes),
            node_expansion_required,
        }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<wire::ControllerGetVolumeRequest>,
    ) -> Result<Response<wire::ControllerGetVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        validate_volume_id(&id)?;
        validate_id_form(&id)?;
        let volume = self.driver.query_provided(&id).await?;
        let volume_condition = match self.driver.health_api.includes_condition() {
            true => self.driver.wire_condition(self.driver.query_health(&id).await?),
            false => None,
        };
        let published_node_ids = self.driver.published_node_ids(&volume);
        Ok(Response::new(wire::ControllerGetVolumeResponse {
            volume: Some(self.driver.wire_volume(&volume)),
            status: Some(wire::controller_get_volume_response::VolumeStatus {
                published_node_ids,
                volume_condition,
            }),
        }))
    }

    async fn create_snapshot(
        &self,
        _: Request<wire::CreateSnapshotRequest>,
    ) -> Result<Response<wire::CreateSnapshotResponse>, Status> {
        Err(no_snapshots())
    }

    async fn delete_snapshot(
        &self,
        _: Request<wire::DeleteSnapshotRequest>,
    ) -> Result<Response<wire::DeleteSnapshotResponse>, Status> {
        Err(no_snapshots())
    }

    async fn list_snapshots(
        &self,
        _: Request<wire::ListSnapshotsRequest>,
    ) -> Result<Response<wire::ListSnapshotsResponse>, Status> {
        Err(no_snapshots())
    }

    async fn get_snapshot(
        &self,
        _: Request<wire::GetSnapshotRequest>,
    ) -> Result<Response<wire::GetSnapshotResponse>, Status> {
        Err(no_snapshots())
    }

    async fn controller_modify_volume(
        &self,
        _: Request<wire::ControllerModifyVolumeRequest>,
    ) -> Result<Response<wire::ControllerModifyVolumeResponse>, Status> {
        Err(Status::unimplemented("this driver's volumes have nothing that could be modified"))
    }
}

/// The capabilities announce no snapshots.
fn no_snapshots() -> Status {
    Status::unimplemented("this driver has no snapshots")
}

/// Returns the capacity of the requested kind; without a requested kind, of the daemon's default
/// kind, which is the first in the daemon's list.
fn capacity_response(pool: &daemon::Pool, kind: daemon::ProvidedKind) -> wire::GetCapacityResponse {
    let pool = pool
        .kinds
        .iter()
        .find(|pool| kind == daemon::ProvidedKind::Unspecified || pool.kind() == kind);
    match pool {
        Some(pool) if pool.problem.is_empty() => wire::GetCapacityResponse {
            available_capacity: saturating_i64(pool.available_bytes),
            maximum_volume_size: Some(saturating_i64(pool.largest_bytes)),
            minimum_volume_size: Some(saturating_i64(pool.smallest_bytes)),
        },
        // The pool does not exist, or no volume can be created in it now.
        _ => wire::GetCapacityResponse::default(),
    }
}

#[cfg(test)]
mod tests;
