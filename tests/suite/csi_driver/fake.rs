//! A fake daemon: the services of the agent socket with configured answers, which can hang, vanish
//! and come back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use diskvitals_wire as wire;
use diskvitals_wire::inventory_server::{Inventory, InventoryServer};
use diskvitals_wire::storage_server::{Storage, StorageServer};
use diskvitals_wire::volumes_server::{Volumes, VolumesServer};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

/// The configured answers.
#[derive(Default)]
pub struct State {
    /// Indexed by handle.
    pub provided: BTreeMap<String, wire::ProvidedVolume>,
    /// The snapshot of the node, by driver and handle.
    pub volumes: BTreeMap<(String, String), wire::Volume>,
    /// Indexed by handle and path.
    pub usage: BTreeMap<(String, String), wire::VolumeUsageAnswer>,
    /// How many requests find no usage yet.
    pub late: u32,
    pub pool: wire::Pool,
    pub faults: Vec<wire::StorageFault>,
    /// The number of API revisions that the fake is ahead.
    pub ahead: u32,
    /// The error for every call that changes something.
    pub refusal: Option<Status>,
    /// The received requests, unchanged.
    pub created: Vec<wire::CreateRequest>,
    pub staged: Vec<wire::StageRequest>,
    pub published: Vec<wire::PublishRequest>,
    pub expanded: Vec<wire::ExpandRequest>,
    /// Deleted, unstaged, unpublished: handle and path.
    pub undone: Vec<(String, String)>,
    pub sampled: Vec<wire::CheckConnectivityRequest>,
}

pub struct Fake {
    state: Arc<Mutex<State>>,
    hung: watch::Sender<bool>,
    socket: PathBuf,
    /// A separate runtime: its tasks end with it, as in a killed process.
    process: Option<Runtime>,
}

impl Fake {
    /// Creates the fake without starting it.
    pub fn new(dir: &Path) -> Fake {
        Fake {
            state: Arc::default(),
            hung: watch::channel(false).0,
            socket: dir.join("agent.sock"),
            process: None,
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    pub fn come(&mut self) {
        let process = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let _inside = process.enter();
        let incoming = UnixListenerStream::new(UnixListener::bind(&self.socket).expect("bound"));
        let service = Service { state: self.state.clone(), hung: self.hung.subscribe() };
        let router = tonic::transport::Server::builder()
            .add_service(InventoryServer::new(service.clone()))
            .add_service(VolumesServer::new(service.clone()))
            .add_service(StorageServer::new(service));
        process.spawn(router.serve_with_incoming(incoming));
        drop(_inside);
        self.process = Some(process);
    }

    /// Simulates a kill: closes all connections and removes the socket.
    pub fn vanish(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
        std::fs::remove_file(&self.socket).expect("removed");
    }

    /// Accepts calls and does not answer.
    pub fn hang(&self, hung: bool) {
        self.hung.send_replace(hung);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
    }
}

#[derive(Clone)]
struct Service {
    state: Arc<Mutex<State>>,
    hung: watch::Receiver<bool>,
}

impl Service {
    async fn answer<T>(
        &self,
        answer: impl FnOnce(&mut State) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        // An error means that the test has ended.
        let _ = self.hung.clone().wait_for(|hung| !*hung).await;
        answer(&mut self.state.lock().expect("no panic")).map(Response::new)
    }

    async fn change<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        self.answer(|state| match state.refusal.clone() {
            Some(refusal) => Err(refusal),
            None => change(state),
        })
        .await
    }
}

fn provided(state: &State, handle: &str) -> Result<wire::ProvidedVolume, Status> {
    state
        .provided
        .get(handle)
        .cloned()
        .ok_or_else(|| Status::not_found(format!("handle: no volume `{handle}`")))
}

/// One page of `entries`, by index.
fn page<T>(entries: Vec<T>, size: usize, token: &str) -> (Vec<T>, String) {
    let from: usize = if token.is_empty() { 0 } else { token.parse().expect("ours") };
    let next = if from + size < entries.len() { (from + size).to_string() } else { String::new() };
    (entries.into_iter().skip(from).take(size).collect(), next)
}

#[tonic::async_trait]
impl Inventory for Service {
    async fn get_node(
        &self,
        _: Request<wire::GetNodeRequest>,
    ) -> Result<Response<wire::Node>, Status> {
        self.answer(|state| {
            Ok(wire::Node {
                api_revision: diskvitals_wire::API_REVISION + state.ahead,
                version: "0.0.1".into(),
                ..Default::default()
            })
        })
        .await
    }

    async fn get_volume(
        &self,
        request: Request<wire::GetVolumeRequest>,
    ) -> Result<Response<wire::Volume>, Status> {
        let wire::GetVolumeRequest { driver, handle, .. } = request.into_inner();
        self.answer(|state| {
            state
                .volumes
                .get(&(driver, handle))
                .cloned()
                .ok_or_else(|| Status::not_found("no such volume"))
        })
        .await
    }

    async fn list_volumes(
        &self,
        request: Request<wire::ListVolumesRequest>,
    ) -> Result<Response<wire::ListVolumesResponse>, Status> {
        let token = request.into_inner().page_token;
        self.answer(|state| {
            let (volumes, next_page_token) =
                page(state.volumes.values().cloned().collect(), 7, &token);
            Ok(wire::ListVolumesResponse { volumes, next_page_token, absent: Vec::new() })
        })
        .await
    }

    async fn list_drives(
        &self,
        _: Request<wire::ListDrivesRequest>,
    ) -> Result<Response<wire::ListDrivesResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn get_removal(
        &self,
        _: Request<wire::GetRemovalRequest>,
    ) -> Result<Response<wire::Removal>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn get_drive(
        &self,
        _: Request<wire::GetDriveRequest>,
    ) -> Result<Response<wire::Drive>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn list_findings(
        &self,
        _: Request<wire::ListFindingsRequest>,
    ) -> Result<Response<wire::ListFindingsResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn list_causes(
        &self,
        _: Request<wire::ListCausesRequest>,
    ) -> Result<Response<wire::ListCausesResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn explain(
        &self,
        _: Request<wire::ExplainRequest>,
    ) -> Result<Response<wire::Explanation>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn get_smart_history(
        &self,
        _: Request<wire::GetSmartHistoryRequest>,
    ) -> Result<Response<wire::SmartHistory>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn get_smart_output(
        &self,
        _: Request<wire::GetSmartOutputRequest>,
    ) -> Result<Response<wire::SmartOutput>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn list_attachments(
        &self,
        _: Request<wire::ListAttachmentsRequest>,
    ) -> Result<Response<wire::ListAttachmentsResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn list_drive_io(
        &self,
        _: Request<wire::ListDriveIoRequest>,
    ) -> Result<Response<wire::ListDriveIoResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn get_config(
        &self,
        _: Request<wire::GetConfigRequest>,
    ) -> Result<Response<wire::Config>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn list_reasons(
        &self,
        _: Request<wire::ListReasonsRequest>,
    ) -> Result<Response<wire::ListReasonsResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<wire::WatchEvent, Status>> + Send>>;

    async fn watch(
        &self,
        _: Request<wire::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not asked"))
    }
}

#[tonic::async_trait]
impl Volumes for Service {
    async fn get_pool(
        &self,
        _: Request<wire::GetPoolRequest>,
    ) -> Result<Response<wire::Pool>, Status> {
        self.answer(|state| Ok(state.pool.clone())).await
    }

    async fn create(
        &self,
        request: Request<wire::CreateRequest>,
    ) -> Result<Response<wire::ProvidedVolume>, Status> {
        let request = request.into_inner();
        self.change(|state| {
            state.created.push(request.clone());
            let handle = format!("dv-{}", request.name);
            let volume = wire::ProvidedVolume {
                handle: handle.clone(),
                name: request.name,
                size_bytes: request.required_bytes,
                ..Default::default()
            };
            state.provided.insert(handle, volume.clone());
            Ok(volume)
        })
        .await
    }

    async fn delete(
        &self,
        request: Request<wire::DeleteRequest>,
    ) -> Result<Response<wire::DeleteResponse>, Status> {
        let handle = request.into_inner().handle;
        self.change(|state| {
            state.provided.remove(&handle);
            state.undone.push((handle, String::new()));
            Ok(wire::DeleteResponse {})
        })
        .await
    }

    async fn get_provided(
        &self,
        request: Request<wire::GetProvidedRequest>,
    ) -> Result<Response<wire::ProvidedVolume>, Status> {
        self.answer(|state| provided(state, &request.into_inner().handle)).await
    }

    async fn list_provided(
        &self,
        request: Request<wire::ListProvidedRequest>,
    ) -> Result<Response<wire::ListProvidedResponse>, Status> {
        let token = request.into_inner().page_token;
        self.answer(|state| {
            let (volumes, next_page_token) =
                page(state.provided.values().cloned().collect(), 5, &token);
            Ok(wire::ListProvidedResponse { volumes, next_page_token })
        })
        .await
    }

    async fn expand(
        &self,
        request: Request<wire::ExpandRequest>,
    ) -> Result<Response<wire::ExpandResponse>, Status> {
        let request = request.into_inner();
        self.change(|state| {
            provided(state, &request.handle)?;
            state.expanded.push(request.clone());
            Ok(wire::ExpandResponse {
                size_bytes: request.required_bytes,
                node_expansion_required: request.device_only,
            })
        })
        .await
    }

    async fn stage(
        &self,
        request: Request<wire::StageRequest>,
    ) -> Result<Response<wire::StageResponse>, Status> {
        let request = request.into_inner();
        self.change(|state| {
            provided(state, &request.handle)?;
            state.staged.push(request);
            Ok(wire::StageResponse {})
        })
        .await
    }

    async fn unstage(
        &self,
        request: Request<wire::UnstageRequest>,
    ) -> Result<Response<wire::UnstageResponse>, Status> {
        let request = request.into_inner();
        self.change(|state| {
            provided(state, &request.handle)?;
            state.undone.push((request.handle, request.staging_path));
            Ok(wire::UnstageResponse {})
        })
        .await
    }

    async fn publish(
        &self,
        request: Request<wire::PublishRequest>,
    ) -> Result<Response<wire::PublishResponse>, Status> {
        let request = request.into_inner();
        self.change(|state| {
            provided(state, &request.handle)?;
            state.published.push(request);
            Ok(wire::PublishResponse {})
        })
        .await
    }

    async fn unpublish(
        &self,
        request: Request<wire::UnpublishRequest>,
    ) -> Result<Response<wire::UnpublishResponse>, Status> {
        let request = request.into_inner();
        self.change(|state| {
            provided(state, &request.handle)?;
            state.undone.push((request.handle, request.target_path));
            Ok(wire::UnpublishResponse {})
        })
        .await
    }

    async fn list_attachments(
        &self,
        _: Request<wire::ListAttachmentsRequest>,
    ) -> Result<Response<wire::ListAttachmentsResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }
}

#[tonic::async_trait]
impl Storage for Service {
    async fn get_usage(
        &self,
        request: Request<wire::GetUsageRequest>,
    ) -> Result<Response<wire::VolumeUsageAnswer>, Status> {
        let wire::GetUsageRequest { handle, volume_path, .. } = request.into_inner();
        self.answer(|state| {
            if state.late > 0 {
                state.late -= 1;
                return Err(Status::not_found("volume_path: not mounted there"));
            }
            state
                .usage
                .get(&(handle, volume_path))
                .cloned()
                .ok_or_else(|| Status::not_found("volume_path: not mounted there"))
        })
        .await
    }

    async fn get_storage_health(
        &self,
        _: Request<wire::GetStorageHealthRequest>,
    ) -> Result<Response<wire::StorageHealth>, Status> {
        self.answer(|state| {
            Ok(wire::StorageHealth {
                faults: state.faults.clone(),
                ..wire::StorageHealth::default()
            })
        })
        .await
    }

    async fn check_connectivity(
        &self,
        request: Request<wire::CheckConnectivityRequest>,
    ) -> Result<Response<wire::Connectivity>, Status> {
        let request = request.into_inner();
        self.answer(|state| {
            state.sampled.push(request);
            Ok(wire::Connectivity {
                connected: false,
                io_in_progress: true,
                messages: vec!["sda is missing".into()],
            })
        })
        .await
    }

    async fn confirm(
        &self,
        _: Request<wire::ConfirmRequest>,
    ) -> Result<Response<wire::Confirmation>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn clean_stale(
        &self,
        _: Request<wire::CleanStaleRequest>,
    ) -> Result<Response<wire::StaleCleaning>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn witness(
        &self,
        _: Request<wire::WitnessRequest>,
    ) -> Result<Response<wire::WitnessResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }
}
