//! The Inventory service: each call reads the newest snapshot and converts only the requested part.
//! No call waits, except that ListDriveIo awaits the next reading of the kernel's counters.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch as signal;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::api::explain;
use crate::api::finding_order::rank;
use crate::api::resolve::{resolve, resolve_drive, resolve_volume, resolve_whole_drive};
use crate::api::server::ConfigInForce;
use crate::api::server::caller::{Caller, refuse};
use crate::api::server::connectivity::read_counters;
use crate::api::server::paging::{self, List};
use crate::api::server::quota::SharedPlaces;
use crate::api::server::{attachments, drive_io, watch};
use crate::api::status::{
    MAX_QUERY, bounded, failed_precondition, invalid, not_found, required, unresolved,
};
use crate::state::handle::Handle;
use diskvitals_convert as convert;
use diskvitals_convert::node_facts::NodeFacts;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_quota::refusals::Refusal;
use diskvitals_text::echo::echo;
use diskvitals_wire as wire;

pub(crate) struct InventoryService {
    handle: Handle,
    node: Arc<NodeFacts>,
    watchers: SharedPlaces,
    stopped: signal::Receiver<bool>,
    stalled_watcher: Duration,
    config: Option<signal::Receiver<ConfigInForce>>,
}

impl InventoryService {
    pub(crate) fn new(
        handle: Handle,
        node: Arc<NodeFacts>,
        watchers: SharedPlaces,
        stopped: signal::Receiver<bool>,
        stalled_watcher: Duration,
        config: Option<signal::Receiver<ConfigInForce>>,
    ) -> InventoryService {
        InventoryService { handle, node, watchers, stopped, stalled_watcher, config }
    }
}

#[tonic::async_trait]
impl wire::inventory_server::Inventory for InventoryService {
    async fn get_node(
        &self,
        _: Request<wire::GetNodeRequest>,
    ) -> Result<Response<wire::Node>, Status> {
        Ok(Response::new(convert::node(&self.handle.snapshot(), &self.node)))
    }

    async fn list_drives(
        &self,
        request: Request<wire::ListDrivesRequest>,
    ) -> Result<Response<wire::ListDrivesResponse>, Status> {
        let request = request.get_ref();
        let size = paging::size(request.page_size)?;
        let key = paging::key(List::Drives, &request.page_token)?.map(DriveId::known);
        let snapshot = self.handle.snapshot();
        let entries = snapshot.drives.range(paging::range_after(key));
        let (drives, next_page_token) = paging::fill_page(
            List::Drives,
            entries,
            size,
            |(_, drive)| convert::drive(&snapshot, drive),
            |(id, _)| id.to_string(),
        );
        Ok(Response::new(wire::ListDrivesResponse { drives, next_page_token }))
    }

    async fn get_drive(
        &self,
        request: Request<wire::GetDriveRequest>,
    ) -> Result<Response<wire::Drive>, Status> {
        let id = &request.get_ref().id;
        required("id", id, MAX_QUERY)?;
        let snapshot = self.handle.snapshot();
        let drive = resolve_drive(&snapshot, id).map_err(unresolved("id"))?;
        Ok(Response::new(convert::drive(&snapshot, drive)))
    }

    async fn get_removal(
        &self,
        request: Request<wire::GetRemovalRequest>,
    ) -> Result<Response<wire::Removal>, Status> {
        let wire::GetRemovalRequest { id, with } = request.get_ref();
        required("id", id, MAX_QUERY)?;
        bounded("with", with, MAX_QUERY)?;
        let snapshot = self.handle.snapshot();
        let drive = resolve_whole_drive(&snapshot, id).map_err(unresolved("id"))?;
        let with = match with.as_str() {
            "" => None,
            with => Some(resolve_whole_drive(&snapshot, with).map_err(unresolved("with"))?),
        };
        let with = with.map(|it| it.facts.id.clone());
        let removal = self.handle.removal(drive.facts.id.clone(), with).await?;
        let (removal, step) = removal.ok_or_else(|| not_found("the drive is no longer known"))?;
        Ok(Response::new(convert::removal(&snapshot, drive, removal, step)))
    }

    async fn list_volumes(
        &self,
        request: Request<wire::ListVolumesRequest>,
    ) -> Result<Response<wire::ListVolumesResponse>, Status> {
        let request = request.get_ref();
        let size = paging::size(request.page_size)?;
        let key = paging::key(List::Volumes, &request.page_token)?.map(VolumeId::known);
        let snapshot = self.handle.snapshot();
        let entries = snapshot.volumes.range(paging::range_after(key));
        let (volumes, next_page_token) = paging::fill_page(
            List::Volumes,
            entries,
            size,
            |(_, volume)| convert::volume(&snapshot, volume),
            |(id, _)| id.to_string(),
        );
        let context = &snapshot.node_context;
        let absent = match request.page_token.is_empty() {
            true => convert::absent_volumes(context),
            false => Vec::new(),
        };
        Ok(Response::new(wire::ListVolumesResponse { volumes, next_page_token, absent }))
    }

    async fn get_volume(
        &self,
        request: Request<wire::GetVolumeRequest>,
    ) -> Result<Response<wire::Volume>, Status> {
        let wire::GetVolumeRequest { id, driver, handle } = request.get_ref();
        let snapshot = self.handle.snapshot();
        if driver.is_empty() && handle.is_empty() {
            required("id", id, MAX_QUERY)?;
            let volume = resolve_volume(&snapshot, id).map_err(unresolved("id"))?;
            return Ok(Response::new(convert::volume(&snapshot, volume)));
        }
        if !id.is_empty() {
            return Err(invalid("id", "give either the id, or driver and handle"));
        }
        required("driver", driver, MAX_QUERY)?;
        required("handle", handle, MAX_QUERY)?;
        let volume = snapshot.csi_volume(driver, handle).ok_or_else(|| {
            not_found(format!(
                "no volume of driver `{}` has the handle `{}`",
                echo(driver),
                echo(handle)
            ))
        })?;
        Ok(Response::new(convert::volume(&snapshot, volume)))
    }

    async fn list_findings(
        &self,
        request: Request<wire::ListFindingsRequest>,
    ) -> Result<Response<wire::ListFindingsResponse>, Status> {
        let request = request.get_ref();
        let size = paging::size(request.page_size)?;
        let list = if request.include_cleared { List::FindingsAndCleared } else { List::Findings };
        let after =
            paging::key(list, &request.page_token)?.map(|key| paging::rank_of(&key)).transpose()?;
        let snapshot = self.handle.snapshot();
        let cleared = snapshot.history.iter().filter(|_| request.include_cleared);
        let mut entries: Vec<_> = snapshot
            .findings
            .values()
            .chain(cleared)
            .map(|finding| (rank(&snapshot, finding), finding))
            .collect();
        entries.retain(|(rank, _)| after.as_ref().is_none_or(|after| rank > after));
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (findings, next_page_token) = paging::fill_page(
            list,
            entries.iter(),
            size,
            |(_, finding)| convert::finding(&snapshot, finding),
            |(rank, _)| paging::rank_key(rank),
        );
        Ok(Response::new(wire::ListFindingsResponse { findings, next_page_token }))
    }

    async fn list_causes(
        &self,
        request: Request<wire::ListCausesRequest>,
    ) -> Result<Response<wire::ListCausesResponse>, Status> {
        let request = request.get_ref();
        let size = paging::size(request.page_size)?;
        let after = paging::key(List::Causes, &request.page_token)?
            .map(|key| paging::cause_rank_of(&key))
            .transpose()?;
        let snapshot = self.handle.snapshot();
        let causes = snapshot.causes.values();
        let mut entries: Vec<_> = causes.map(|cause| (cause.rank(), cause)).collect();
        entries.retain(|(rank, _)| after.as_ref().is_none_or(|after| rank > after));
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (causes, next_page_token) = paging::fill_page(
            List::Causes,
            entries.iter(),
            size,
            |(_, cause)| convert::cause::cause(&snapshot, cause),
            |(rank, _)| paging::cause_key(rank),
        );
        Ok(Response::new(wire::ListCausesResponse { causes, next_page_token }))
    }

    async fn explain(
        &self,
        request: Request<wire::ExplainRequest>,
    ) -> Result<Response<wire::Explanation>, Status> {
        let wire::ExplainRequest { id, query } = request.get_ref();
        let (field, name) = match (id.is_empty(), query.is_empty()) {
            (true, false) => ("query", query),
            (_, true) => ("id", id),
            (false, false) => return Err(invalid("query", "is the former name of id: give one")),
        };
        required(field, name, MAX_QUERY)?;
        let snapshot = self.handle.snapshot();
        let named = resolve(&snapshot, name).map_err(unresolved(field))?;
        Ok(Response::new(explain::explain(&snapshot, &named)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<wire::WatchEvent, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<wire::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = request.extensions().get::<Caller>();
        let share = caller
            .and_then(|it| self.watchers.acquire_in_use(it.standing, &it.id))
            .ok_or_else(|| refuse(caller.map(|it| &it.refusals), Refusal::Watches))?;
        let resume = Some(request.get_ref().resume_revision).filter(|revision| *revision != 0);
        let events = watch::start(
            self.handle.clone(),
            resume,
            self.stopped.clone(),
            self.stalled_watcher,
            share,
        )
        .await?;
        Ok(Response::new(Box::pin(events)))
    }

    async fn get_smart_history(
        &self,
        request: Request<wire::GetSmartHistoryRequest>,
    ) -> Result<Response<wire::SmartHistory>, Status> {
        let id = &request.get_ref().id;
        required("id", id, MAX_QUERY)?;
        let snapshot = self.handle.snapshot();
        let drive = resolve_drive(&snapshot, id).map_err(unresolved("id"))?;
        Ok(Response::new(convert::smart::history(drive)))
    }

    async fn get_smart_output(
        &self,
        request: Request<wire::GetSmartOutputRequest>,
    ) -> Result<Response<wire::SmartOutput>, Status> {
        let id = &request.get_ref().id;
        required("id", id, MAX_QUERY)?;
        let snapshot = self.handle.snapshot();
        let drive = resolve_drive(&snapshot, id).map_err(unresolved("id"))?;
        Ok(Response::new(convert::smart::output(drive)))
    }

    async fn list_attachments(
        &self,
        request: Request<wire::ListAttachmentsRequest>,
    ) -> Result<Response<wire::ListAttachmentsResponse>, Status> {
        attachments::list(&self.handle.snapshot(), request.get_ref()).map(Response::new)
    }

    async fn list_drive_io(
        &self,
        _: Request<wire::ListDriveIoRequest>,
    ) -> Result<Response<wire::ListDriveIoResponse>, Status> {
        let stats = read_counters(&self.handle).await?;
        Ok(Response::new(drive_io::list(&self.handle.snapshot(), &stats)))
    }

    async fn list_reasons(
        &self,
        _: Request<wire::ListReasonsRequest>,
    ) -> Result<Response<wire::ListReasonsResponse>, Status> {
        Ok(Response::new(convert::reasons::all()))
    }

    async fn get_config(
        &self,
        _: Request<wire::GetConfigRequest>,
    ) -> Result<Response<wire::Config>, Status> {
        let missing = || failed_precondition("this server has no configuration");
        let config = self.config.as_ref().ok_or_else(missing)?.borrow().clone();
        let toml = config.toml.map_err(failed_precondition)?;
        Ok(Response::new(wire::Config { toml, files: config.files, warnings: config.warnings }))
    }
}
