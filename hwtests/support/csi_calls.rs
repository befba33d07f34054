//! A client that calls a CSI driver as the kubelet and the sidecars do. It does not depend on the
//! testbed, because the QEMU lab runs it in its guest.

use std::path::Path;
use std::time::Duration;

use diskvitals_csi::wire::controller_client::ControllerClient;
use diskvitals_csi::wire::identity_client::IdentityClient;
use diskvitals_csi::wire::node_client::NodeClient;
use diskvitals_csi::wire::podmon::podmon_client::PodmonClient;
use diskvitals_csi::wire::podmon::{
    ValidateVolumeHostConnectivityRequest, ValidateVolumeHostConnectivityResponse,
};
use diskvitals_csi::wire::volume_capability::access_mode::Mode;
use diskvitals_csi::wire::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use diskvitals_csi::wire::*;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

/// The kubelet's deadline for one call.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A client. Connects with the first call, and again after a restart of the server.
#[derive(Clone, Debug)]
pub struct Csi {
    channel: Channel,
}

impl Csi {
    pub fn new(socket: &Path) -> Csi {
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Csi {
            channel: Endpoint::from_static("http://localhost")
                .timeout(TIME_LIMIT)
                .connect_with_connector_lazy(connector),
        }
    }

    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone())
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    /// podmon's question, with a sample of one second.
    pub async fn connectivity(
        &self,
        handle: &str,
    ) -> Result<ValidateVolumeHostConnectivityResponse, Status> {
        let request = ValidateVolumeHostConnectivityRequest {
            volume_ids: vec![handle.to_owned()],
            io_sample_time_seconds: 1,
            ..Default::default()
        };
        PodmonClient::new(self.channel.clone())
            .validate_volume_host_connectivity(request)
            .await
            .map(Response::into_inner)
    }

    pub async fn create(
        &self,
        name: &str,
        bytes: i64,
        capability: VolumeCapability,
    ) -> Result<String, Status> {
        self.create_with(name, bytes, capability, &[]).await
    }

    /// With the parameters of a StorageClass.
    pub async fn create_with(
        &self,
        name: &str,
        bytes: i64,
        capability: VolumeCapability,
        parameters: &[(&str, &str)],
    ) -> Result<String, Status> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![capability],
            parameters: parameters
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Default::default()
        };
        Ok(self
            .controller()
            .create_volume(request)
            .await?
            .into_inner()
            .volume
            .expect("a volume")
            .volume_id)
    }

    pub async fn delete(&self, handle: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest { volume_id: handle.to_owned(), ..Default::default() };
        self.controller().delete_volume(request).await.map(drop)
    }

    pub async fn stage(
        &self,
        handle: &str,
        at: &Path,
        capability: VolumeCapability,
    ) -> Result<(), Status> {
        let request = NodeStageVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: text(at),
            volume_capability: Some(capability),
            ..Default::default()
        };
        self.node().node_stage_volume(request).await.map(drop)
    }

    pub async fn unstage(&self, handle: &str, at: &Path) -> Result<(), Status> {
        let request = NodeUnstageVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: text(at),
        };
        self.node().node_unstage_volume(request).await.map(drop)
    }

    pub async fn publish(
        &self,
        handle: &str,
        staged: &Path,
        at: &Path,
        capability: VolumeCapability,
        readonly: bool,
    ) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: text(staged),
            target_path: text(at),
            volume_capability: Some(capability),
            readonly,
            ..Default::default()
        };
        self.node().node_publish_volume(request).await.map(drop)
    }

    pub async fn unpublish(&self, handle: &str, at: &Path) -> Result<(), Status> {
        let request =
            NodeUnpublishVolumeRequest { volume_id: handle.to_owned(), target_path: text(at) };
        self.node().node_unpublish_volume(request).await.map(drop)
    }

    pub async fn expand(&self, handle: &str, at: &Path, bytes: i64) -> Result<i64, Status> {
        let request = NodeExpandVolumeRequest {
            volume_id: handle.to_owned(),
            volume_path: text(at),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            ..Default::default()
        };
        self.node()
            .node_expand_volume(request)
            .await
            .map(|answer| answer.into_inner().capacity_bytes)
    }

    pub async fn stats(
        &self,
        handle: &str,
        at: &Path,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: handle.to_owned(),
            volume_path: text(at),
            ..Default::default()
        };
        self.node().node_get_volume_stats(request).await.map(Response::into_inner)
    }

    pub async fn health(
        &self,
        handle: &str,
    ) -> Result<Vec<volume_health::VolumeHealthEntry>, Status> {
        let request =
            NodeGetVolumeHealthRequest { volume_id: handle.to_owned(), ..Default::default() };
        let answer = self.node().node_get_volume_health(request).await?.into_inner();
        Ok(answer.volume_health.expect("the volume's health").health_statuses)
    }

    pub async fn storage(
        &self,
    ) -> Result<Vec<node_get_storage_health_response::StorageBackendHealth>, Status> {
        let answer =
            self.node().node_get_storage_health(NodeGetStorageHealthRequest::default()).await?;
        Ok(answer.into_inner().backend_health)
    }

    /// Handles of all volumes, page by page.
    pub async fn list(&self) -> Vec<String> {
        let (mut all, mut starting_token) = (Vec::new(), String::new());
        loop {
            let request = ListVolumesRequest { max_entries: 0, starting_token };
            let page =
                self.controller().list_volumes(request).await.expect("ListVolumes").into_inner();
            all.extend(
                page.entries
                    .into_iter()
                    .filter_map(|entry| entry.volume)
                    .map(|volume| volume.volume_id),
            );
            if page.next_token.is_empty() {
                return all;
            }
            starting_token = page.next_token;
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of text").to_owned()
}

pub fn mount(mode: Mode, fs_type: &str) -> VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..Default::default() };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(mount)),
    }
}

pub fn block(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}
