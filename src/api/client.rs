//! Asking the daemon: typed calls over its unix socket, each with a time-out, with errors that say what to do. Knows wire types only.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};

use crate::api::wire;
use crate::api::wire::admin_client::AdminClient;
use crate::api::wire::inventory_client::InventoryClient;

/// Members may connect to the main socket.
pub const GROUP: &str = "diskvitals";
/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/diskvitals/diskvitals.sock";

const CONNECT: Duration = Duration::from_secs(2);
/// Largest answer taken, in bytes. The daemon's pages are far below; an explanation of a drive with very many volumes may be larger.
const MESSAGE: usize = 64 << 20;
const PAGE: i32 = 1000;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no diskvitalsd at {}: start it (systemctl start diskvitalsd) or give --socket", .0.display())]
    NoDaemon(PathBuf),
    #[error("no permission to connect to {}: be root or a member of the group `{GROUP}`", .0.display())]
    NoPermission(PathBuf),
    #[error("{} accepts no connection within {} s: diskvitalsd does not answer", .0.display(), CONNECT.as_secs())]
    NoAnswer(PathBuf),
    #[error("connecting to {}", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("diskvitalsd at {} has not answered within {} s", path.display(), timeout.as_secs_f32())]
    TimedOut { path: PathBuf, timeout: Duration },
    #[error("diskvitalsd at {} broke the connection off: {}", path.display(), status.message())]
    Broken { path: PathBuf, status: Box<Status> },
    /// The daemon's own words.
    #[error("{}", .0.message())]
    Refused(Box<Status>),
}

impl ClientError {
    /// The daemon could not be asked at all, in contrast to: it said no.
    pub fn is_unreachable(&self) -> bool {
        !matches!(self, ClientError::Refused(_))
    }
}

#[derive(Clone)]
pub struct Client {
    channel: Channel,
    path: PathBuf,
    timeout: Duration,
}

impl Client {
    /// `timeout` holds for each call; a watch has none once it has begun.
    pub async fn connect(path: &Path, timeout: Duration) -> Result<Client, ClientError> {
        let stream = match tokio::time::timeout(CONNECT.min(timeout), UnixStream::connect(path)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(source)) => return Err(not_connected(path, source)),
            Err(_) => return Err(ClientError::NoAnswer(path.to_owned())),
        };
        Ok(Client { channel: channel(stream, path.to_owned()), path: path.to_owned(), timeout })
    }

    fn inventory(&self) -> InventoryClient<Channel> {
        InventoryClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE)
    }

    fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE)
    }

    async fn call<T>(&self, answer: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, ClientError> {
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.error(status)),
            Err(_) => Err(ClientError::TimedOut { path: self.path.clone(), timeout: self.timeout }),
        }
    }

    /// A status without a source is the daemon's; one with a source was made here, of a transport that failed.
    pub fn error(&self, status: Status) -> ClientError {
        let transport = std::error::Error::source(&status).is_some()
            && matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled);
        if transport {
            ClientError::Broken { path: self.path.clone(), status: Box::new(status) }
        } else {
            ClientError::Refused(Box::new(status))
        }
    }

    pub async fn node(&self) -> Result<wire::Node, ClientError> {
        self.call(self.inventory().get_node(wire::GetNodeRequest {})).await
    }

    pub async fn drive(&self, id: &str) -> Result<wire::Drive, ClientError> {
        self.call(self.inventory().get_drive(wire::GetDriveRequest { id: id.to_owned() })).await
    }

    pub async fn volume(&self, id: &str) -> Result<wire::Volume, ClientError> {
        let request = wire::GetVolumeRequest { id: id.to_owned(), ..Default::default() };
        self.call(self.inventory().get_volume(request)).await
    }

    pub async fn volume_by_handle(&self, driver: &str, handle: &str) -> Result<wire::Volume, ClientError> {
        let request = wire::GetVolumeRequest { id: String::new(), driver: driver.to_owned(), handle: handle.to_owned() };
        self.call(self.inventory().get_volume(request)).await
    }

    /// All pages joined.
    pub async fn drives(&self) -> Result<wire::ListDrivesResponse, ClientError> {
        let mut all = wire::ListDrivesResponse::default();
        loop {
            let request = wire::ListDrivesRequest { page_size: PAGE, page_token: std::mem::take(&mut all.next_page_token) };
            let page = self.call(self.inventory().list_drives(request)).await?;
            all.drives.extend(page.drives);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// All pages joined.
    pub async fn volumes(&self) -> Result<wire::ListVolumesResponse, ClientError> {
        let mut all = wire::ListVolumesResponse::default();
        loop {
            let request = wire::ListVolumesRequest { page_size: PAGE, page_token: std::mem::take(&mut all.next_page_token) };
            let page = self.call(self.inventory().list_volumes(request)).await?;
            all.volumes.extend(page.volumes);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// All pages joined.
    pub async fn findings(&self, include_cleared: bool) -> Result<wire::ListFindingsResponse, ClientError> {
        let mut all = wire::ListFindingsResponse::default();
        loop {
            let page_token = std::mem::take(&mut all.next_page_token);
            let request = wire::ListFindingsRequest { page_size: PAGE, page_token, include_cleared };
            let page = self.call(self.inventory().list_findings(request)).await?;
            all.findings.extend(page.findings);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    pub async fn explain(&self, query: &str) -> Result<wire::Explanation, ClientError> {
        self.call(self.inventory().explain(wire::ExplainRequest { query: query.to_owned() })).await
    }

    pub async fn reasons(&self) -> Result<wire::ListReasonsResponse, ClientError> {
        self.call(self.inventory().list_reasons(wire::ListReasonsRequest {})).await
    }

    /// 0: from a full snapshot.
    pub async fn watch(&self, resume_revision: u64) -> Result<Streaming<wire::WatchEvent>, ClientError> {
        self.call(self.inventory().watch(wire::WatchRequest { resume_revision })).await
    }

    pub async fn acknowledge(&self, finding: &str, note: &str) -> Result<wire::Finding, ClientError> {
        let request = wire::AcknowledgeFindingRequest { finding_id: finding.to_owned(), note: note.to_owned() };
        self.call(self.admin().acknowledge_finding(request)).await
    }

    pub async fn unacknowledge(&self, finding: &str) -> Result<wire::Finding, ClientError> {
        self.call(self.admin().unacknowledge_finding(wire::UnacknowledgeFindingRequest { finding_id: finding.to_owned() })).await
    }

    /// Empty: everything.
    pub async fn refresh(&self, query: &str) -> Result<wire::RefreshResponse, ClientError> {
        self.call(self.admin().refresh(wire::RefreshRequest { query: query.to_owned() })).await
    }
}

/// Whether a daemon speaks gRPC on this connection: any answer but a broken connection is one, also `permission denied`.
pub async fn answers(stream: UnixStream) -> bool {
    let channel = channel(stream, PathBuf::new());
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    match health.check(tonic_health::pb::HealthCheckRequest { service: String::new() }).await {
        Ok(_) => true,
        Err(status) => std::error::Error::source(&status).is_none(),
    }
}

/// A channel over `stream`. When that breaks, a new connection is made to `path`.
fn channel(stream: UnixStream, path: PathBuf) -> Channel {
    let first = Arc::new(Mutex::new(Some(stream)));
    let connector = tower::service_fn(move |_: Uri| {
        let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let path = path.clone();
        async move {
            match first {
                Some(stream) => Ok(TokioIo::new(stream)),
                None => UnixStream::connect(path).await.map(TokioIo::new),
            }
        }
    });
    // The name is only what HTTP/2 wants to see as authority.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

fn not_connected(path: &Path, source: io::Error) -> ClientError {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => ClientError::NoDaemon(path.to_owned()),
        io::ErrorKind::PermissionDenied => ClientError::NoPermission(path.to_owned()),
        _ => ClientError::Connect { path: path.to_owned(), source },
    }
}
