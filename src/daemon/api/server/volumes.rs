//! The Volumes service on the agent's socket: the volumes that the node provides itself.
//!
//! In: requests; this module checks their fields. Out: the engine's responses as wire messages. A
//! changing call waits for the engine up to its time limit. A reading call uses the engine's view
//! and does not wait.

mod convert;

use tonic::{Request, Response, Status};

use crate::api::server::attachments;
use crate::api::server::paging::{self, List};
use crate::api::status::{MAX_QUERY, bounded, invalid, provisioning, required};
use crate::state::handle::Handle;
use diskvitals_finding::provision::PodRef;
use diskvitals_model::storage::StorageUnknown;
use diskvitals_provision::engine::{
    CreateRequest, Engine, EngineView, ExpandRequest, PublishRequest, StageRequest,
};
use diskvitals_provision::error::ProvisionError;
use diskvitals_provision::rules::sizes::CapacityRange;
use diskvitals_wire as wire;

/// Access modes that a request for a new volume may list.
const MAX_ACCESSES: usize = 16;
/// Default page size of a list.
const PAGE_SIZE: i32 = 1000;

pub(crate) struct VolumesService {
    engine: Engine,
    /// The CSI driver's name, for attachments.
    driver: String,
    /// The state has the attachments of all drivers.
    handle: Handle,
}

impl VolumesService {
    pub(crate) fn new(engine: Engine, driver: String, handle: Handle) -> VolumesService {
        VolumesService { engine, driver, handle }
    }
}

#[tonic::async_trait]
impl wire::volumes_server::Volumes for VolumesService {
    async fn get_pool(
        &self,
        _: Request<wire::GetPoolRequest>,
    ) -> Result<Response<wire::Pool>, Status> {
        let view = self.engine.view();
        if let Some(why) = &view.records_error {
            return Err(provisioning(ProvisionError::Unavailable(why.clone())));
        }
        if view.capacities.is_empty() {
            return Err(provisioning(ProvisionError::Unavailable(
                "the pool's room is not known yet".into(),
            )));
        }
        let snapshot = self.handle.snapshot();
        let kinds = view
            .capacities
            .iter()
            .map(|(kind, capacity)| convert::pool_kind(&snapshot, *kind, capacity));
        let kinds = kinds
            .collect::<Result<_, StorageUnknown>>()
            .map_err(|unknown| provisioning(ProvisionError::Unavailable(unknown.to_string())))?;
        Ok(Response::new(wire::Pool { kinds }))
    }

    async fn create(
        &self,
        request: Request<wire::CreateRequest>,
    ) -> Result<Response<wire::ProvidedVolume>, Status> {
        let request = request.into_inner();
        required("name", &request.name, MAX_QUERY)?;
        let kind = convert::kind_of(request.kind)?;
        if request.accesses.is_empty() {
            return Err(invalid("accesses", "are empty"));
        }
        if request.accesses.len() > MAX_ACCESSES {
            return Err(invalid(
                "accesses",
                format_args!("are {}, at most {MAX_ACCESSES} are allowed", request.accesses.len()),
            ));
        }
        let accesses =
            request.accesses.into_iter().map(convert::access_of).collect::<Result<Vec<_>, _>>()?;
        let range = CapacityRange { required: request.required_bytes, limit: request.limit_bytes };
        let validated = CreateRequest {
            name: request.name,
            range,
            kind,
            accesses,
            mkfs_options: request.mkfs_options,
        };
        let volume = self.engine.create(validated).await.map_err(provisioning)?;
        Ok(Response::new(convert::volume(&volume, &self.driver)))
    }

    async fn delete(
        &self,
        request: Request<wire::DeleteRequest>,
    ) -> Result<Response<wire::DeleteResponse>, Status> {
        let handle = check_handle(request.into_inner().handle)?;
        self.engine.delete(handle).await.map_err(provisioning)?;
        Ok(Response::new(wire::DeleteResponse {}))
    }

    async fn get_provided(
        &self,
        request: Request<wire::GetProvidedRequest>,
    ) -> Result<Response<wire::ProvidedVolume>, Status> {
        let handle = check_handle(request.into_inner().handle)?;
        let view = self.engine.view();
        let volume = view.find(&handle).map_err(provisioning)?;
        Ok(Response::new(convert::volume(volume, &self.driver)))
    }

    async fn list_provided(
        &self,
        request: Request<wire::ListProvidedRequest>,
    ) -> Result<Response<wire::ListProvidedResponse>, Status> {
        let request = request.get_ref();
        let size =
            paging::size(if request.page_size == 0 { PAGE_SIZE } else { request.page_size })?;
        let after = paging::key(List::ProvisionedVolumes, &request.page_token)?;
        let view = self.engine.view();
        check_records_read(&view)?;
        let entries = view.volumes.range(paging::range_after(after));
        let (volumes, next_page_token) = paging::fill_page(
            List::ProvisionedVolumes,
            entries,
            size,
            |(_, volume)| convert::volume(volume, &self.driver),
            |(handle, _)| (*handle).clone(),
        );
        Ok(Response::new(wire::ListProvidedResponse { volumes, next_page_token }))
    }

    async fn expand(
        &self,
        request: Request<wire::ExpandRequest>,
    ) -> Result<Response<wire::ExpandResponse>, Status> {
        let request = request.into_inner();
        let handle = check_handle(request.handle)?;
        let range = CapacityRange { required: request.required_bytes, limit: request.limit_bytes };
        let volume_path = Some(request.volume_path).filter(|path| !path.is_empty());
        let validated =
            ExpandRequest { handle, range, volume_path, device_only: request.device_only };
        let expanded = self.engine.expand(validated).await.map_err(provisioning)?;
        let node_expansion_required = expanded.node_expansion_required;
        Ok(Response::new(wire::ExpandResponse {
            size_bytes: expanded.size,
            node_expansion_required,
        }))
    }

    async fn stage(
        &self,
        request: Request<wire::StageRequest>,
    ) -> Result<Response<wire::StageResponse>, Status> {
        let request = request.into_inner();
        let handle = check_handle(request.handle)?;
        let access = convert::required_access(request.access)?;
        self.engine
            .stage(StageRequest { handle, staging_path: request.staging_path, access })
            .await
            .map_err(provisioning)?;
        Ok(Response::new(wire::StageResponse {}))
    }

    async fn unstage(
        &self,
        request: Request<wire::UnstageRequest>,
    ) -> Result<Response<wire::UnstageResponse>, Status> {
        let request = request.into_inner();
        let handle = check_handle(request.handle)?;
        self.engine.unstage(handle, request.staging_path).await.map_err(provisioning)?;
        Ok(Response::new(wire::UnstageResponse {}))
    }

    async fn publish(
        &self,
        request: Request<wire::PublishRequest>,
    ) -> Result<Response<wire::PublishResponse>, Status> {
        let request = request.into_inner();
        let handle = check_handle(request.handle)?;
        let access = convert::required_access(request.access)?;
        for (field, text) in [
            ("pod_uid", &request.pod_uid),
            ("pod_name", &request.pod_name),
            ("pod_namespace", &request.pod_namespace),
        ] {
            bounded(field, text, MAX_POD_NAME)?;
        }
        let pod = PodRef {
            uid: request.pod_uid,
            name: request.pod_name,
            namespace: request.pod_namespace,
        };
        let validated = PublishRequest {
            handle,
            staging_path: Some(request.staging_path).filter(|path| !path.is_empty()),
            target_path: request.target_path,
            access,
            read_only: request.read_only,
            pod: Some(pod).filter(|pod| *pod != PodRef::default()),
        };
        self.engine.publish(validated).await.map_err(provisioning)?;
        Ok(Response::new(wire::PublishResponse {}))
    }

    async fn unpublish(
        &self,
        request: Request<wire::UnpublishRequest>,
    ) -> Result<Response<wire::UnpublishResponse>, Status> {
        let request = request.into_inner();
        let handle = check_handle(request.handle)?;
        self.engine.unpublish(handle, request.target_path).await.map_err(provisioning)?;
        Ok(Response::new(wire::UnpublishResponse {}))
    }

    async fn list_attachments(
        &self,
        request: Request<wire::ListAttachmentsRequest>,
    ) -> Result<Response<wire::ListAttachmentsResponse>, Status> {
        attachments::list(&self.handle.snapshot(), request.get_ref()).map(Response::new)
    }
}

/// Names of pods and namespaces have 253 characters at most (RFC 1123 subdomains).
const MAX_POD_NAME: usize = 253;

/// Accepts any text: a handle that is not ours is reported as not found.
fn check_handle(handle: String) -> Result<String, Status> {
    if handle.is_empty() {
        return Err(invalid("handle", "is empty"));
    }
    Ok(handle)
}

fn check_records_read(view: &EngineView) -> Result<(), Status> {
    match view.records_error.as_ref().or(view.volume_group_error.as_ref()) {
        // A list that lacks volumes would report them as removed.
        Some(why) => Err(provisioning(ProvisionError::Unavailable(why.clone()))),
        None => Ok(()),
    }
}
