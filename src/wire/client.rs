//! The client of the daemon: typed calls over its unix socket, each with a time limit. Its errors
//! name the remedy. It uses wire types only.

mod storage;
pub mod tracked_stream;
mod volumes;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};

use crate::admin_client::AdminClient;
use crate::checks_client::ChecksClient;
use crate::client::tracked_stream::TrackedStream;
use crate::inventory_client::InventoryClient;
use crate::storage_client::StorageClient;
use crate::volumes_client::VolumesClient;

pub use crate::client::tracked_stream::ConnectionClosed;

/// Members may connect to the main socket.
pub const SOCKET_GROUP: &str = "diskvitals";
/// The daemon's default socket.
pub const DEFAULT_SOCKET: &str = "/run/diskvitals/diskvitals.sock";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer that is accepted, in bytes. The daemon's pages are far smaller. An explanation of
/// a drive with very many volumes may be larger than a page.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
const PAGE_SIZE: i32 = 1000;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no diskvitalsd at {}: start it (on a host: systemctl start diskvitalsd; in a cluster: its pod) or give --socket", .0.display())]
    NoDaemon(PathBuf),
    #[error("no permission to connect to {}: be root or a member of the group `{SOCKET_GROUP}`", .0.display())]
    NoPermission(PathBuf),
    #[error("{} accepts no connection within {} s: diskvitalsd does not answer", .0.display(), CONNECT_TIMEOUT.as_secs())]
    ConnectTimeout(PathBuf),
    #[error("connecting to {}", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("diskvitalsd at {} has not answered within {} s", path.display(), timeout.as_secs_f32())]
    RequestTimeout { path: PathBuf, timeout: Duration },
    #[error("diskvitalsd at {} broke the connection off: {}", path.display(), status_with_causes(status))]
    ConnectionLost { path: PathBuf, status: Box<Status> },
    /// The daemon's own message.
    #[error("{}", .0.message())]
    Rejected(Box<Status>),
}

impl ClientError {
    fn code(&self) -> Option<Code> {
        match self {
            ClientError::Rejected(status) => Some(status.code()),
            _ => None,
        }
    }

    /// The daemon knows no such thing, or no longer.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// The request does not fit the state of its subject.
    pub fn is_failed_precondition(&self) -> bool {
        self.code() == Some(Code::FailedPrecondition)
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
        let stream = connect_stream(path, timeout).await?;
        Ok(Client {
            channel: channel_over(stream, path.to_owned()),
            path: path.to_owned(),
            timeout,
        })
    }

    /// Like [`Client::connect`], for this one connection only: every call fails after it has ended.
    pub async fn connect_single(
        path: &Path,
        timeout: Duration,
    ) -> Result<(Client, ConnectionClosed), ClientError> {
        let (stream, closed) = TrackedStream::new(connect_stream(path, timeout).await?);
        let mut stream = Some(stream);
        let connector = tower::service_fn(move |_: Uri| {
            let over = || io::Error::new(io::ErrorKind::NotConnected, "the connection is over");
            std::future::ready(stream.take().map(TokioIo::new).ok_or_else(over))
        });
        let client = Client {
            channel: endpoint().connect_with_connector_lazy(connector),
            path: path.to_owned(),
            timeout,
        };
        Ok((client, closed))
    }

    /// The same connection with another time-out for each call.
    pub fn with_timeout(&self, timeout: Duration) -> Client {
        Client { timeout, ..self.clone() }
    }

    fn inventory(&self) -> InventoryClient<Channel> {
        InventoryClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn checks_client(&self) -> ChecksClient<Channel> {
        ChecksClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn storage(&self) -> StorageClient<Channel> {
        StorageClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn volumes_client(&self) -> VolumesClient<Channel> {
        VolumesClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    async fn call<T>(
        &self,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, ClientError> {
        self.call_with_timeout(self.timeout, answer).await
    }

    /// A call whose answer has no content.
    async fn call_unit<T>(
        &self,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<(), ClientError> {
        self.call(answer).await.map(drop)
    }

    async fn call_with_timeout<T>(
        &self,
        timeout: Duration,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, ClientError> {
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.error(status)),
            Err(_) => Err(ClientError::RequestTimeout { path: self.path.clone(), timeout }),
        }
    }

    /// Joins all pages of a list. `page` requests one of them by its token.
    async fn all_pages<P, F>(&self, page: impl Fn(String) -> F) -> Result<P, ClientError>
    where
        P: Page,
        F: Future<Output = Result<tonic::Response<P>, Status>>,
    {
        let mut all = self.call(page(String::new())).await?;
        loop {
            let token = std::mem::take(all.next_page_token());
            if token.is_empty() {
                return Ok(all);
            }
            all.append(self.call(page(token)).await?);
        }
    }

    /// A status without a source comes from the daemon. A status with a source comes from this
    /// client, when the transport failed.
    pub fn error(&self, status: Status) -> ClientError {
        let transport = std::error::Error::source(&status).is_some()
            && matches!(
                status.code(),
                Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
            );
        if transport {
            ClientError::ConnectionLost { path: self.path.clone(), status: Box::new(status) }
        } else {
            ClientError::Rejected(Box::new(status))
        }
    }

    pub async fn node(&self) -> Result<crate::Node, ClientError> {
        let request = crate::GetNodeRequest {};
        self.call(self.inventory().get_node(request)).await
    }

    pub async fn drive(&self, id: &str) -> Result<crate::Drive, ClientError> {
        let id = id.to_owned();
        let request = crate::GetDriveRequest { id };
        self.call(self.inventory().get_drive(request)).await
    }

    /// Whether the drive can be pulled now, and the next step of its replacement; `with`: the new drive, or
    /// empty.
    pub async fn removal(&self, id: &str, with: &str) -> Result<crate::Removal, ClientError> {
        let request = crate::GetRemovalRequest { id: id.to_owned(), with: with.to_owned() };
        self.call(self.inventory().get_removal(request)).await
    }

    pub async fn volume(&self, id: &str) -> Result<crate::Volume, ClientError> {
        let request = crate::GetVolumeRequest { id: id.to_owned(), ..Default::default() };
        self.call(self.inventory().get_volume(request)).await
    }

    pub async fn volume_by_handle(
        &self,
        driver: &str,
        handle: &str,
    ) -> Result<crate::Volume, ClientError> {
        let request = crate::GetVolumeRequest {
            driver: driver.to_owned(),
            handle: handle.to_owned(),
            ..Default::default()
        };
        self.call(self.inventory().get_volume(request)).await
    }

    /// All drives. Like all lists of this client, it joins the pages of the answer.
    pub async fn drives(&self) -> Result<crate::ListDrivesResponse, ClientError> {
        self.all_pages(|page_token| async move {
            let request = crate::ListDrivesRequest { page_size: PAGE_SIZE, page_token };
            self.inventory().list_drives(request).await
        })
        .await
    }

    pub async fn volumes(&self) -> Result<crate::ListVolumesResponse, ClientError> {
        self.all_pages(|page_token| async move {
            let request = crate::ListVolumesRequest { page_size: PAGE_SIZE, page_token };
            self.inventory().list_volumes(request).await
        })
        .await
    }

    pub async fn findings(
        &self,
        include_cleared: bool,
    ) -> Result<crate::ListFindingsResponse, ClientError> {
        self.all_pages(|page_token| async move {
            let request =
                crate::ListFindingsRequest { page_size: PAGE_SIZE, page_token, include_cleared };
            self.inventory().list_findings(request).await
        })
        .await
    }

    /// Worst first. None from a daemon that does not know causes yet.
    pub async fn causes(&self) -> Result<Option<crate::ListCausesResponse>, ClientError> {
        let answer = self
            .all_pages(|page_token| async move {
                let request = crate::ListCausesRequest { page_size: PAGE_SIZE, page_token };
                self.inventory().list_causes(request).await
            })
            .await;
        match answer {
            Err(ClientError::Rejected(status)) if status.code() == Code::Unimplemented => Ok(None),
            answer => answer.map(Some),
        }
    }

    pub async fn explain(&self, query: &str) -> Result<crate::Explanation, ClientError> {
        // `id` would do, but a daemon of before it reads `query` only.
        let request = crate::ExplainRequest { query: query.to_owned(), ..Default::default() };
        self.call(self.inventory().explain(request)).await
    }

    pub async fn smart_history(&self, drive: &str) -> Result<crate::SmartHistory, ClientError> {
        let id = drive.to_owned();
        let request = crate::GetSmartHistoryRequest { id };
        self.call(self.inventory().get_smart_history(request)).await
    }

    /// None from a daemon that does not keep outputs yet.
    pub async fn smart_output(
        &self,
        drive: &str,
    ) -> Result<Option<crate::SmartOutput>, ClientError> {
        let id = drive.to_owned();
        let request = crate::GetSmartOutputRequest { id };
        match self.call(self.inventory().get_smart_output(request)).await {
            Err(ClientError::Rejected(status)) if status.code() == Code::Unimplemented => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// None from a daemon that does not know this call yet.
    pub async fn drive_io(&self) -> Result<Option<crate::ListDriveIoResponse>, ClientError> {
        let request = crate::ListDriveIoRequest {};
        let answer = self.call(self.inventory().list_drive_io(request)).await;
        match answer {
            Err(ClientError::Rejected(status)) if status.code() == Code::Unimplemented => Ok(None),
            answer => answer.map(Some),
        }
    }

    pub async fn config(&self) -> Result<crate::Config, ClientError> {
        let request = crate::GetConfigRequest {};
        self.call(self.inventory().get_config(request)).await
    }

    pub async fn reasons(&self) -> Result<crate::ListReasonsResponse, ClientError> {
        let request = crate::ListReasonsRequest {};
        self.call(self.inventory().list_reasons(request)).await
    }

    /// A revision of 0 requests a full snapshot.
    pub async fn watch(
        &self,
        resume_revision: u64,
    ) -> Result<Streaming<crate::WatchEvent>, ClientError> {
        let request = crate::WatchRequest { resume_revision };
        self.call(self.inventory().watch(request)).await
    }

    /// Acknowledges a finding as it was `seen`; refused if it is worse by now.
    pub async fn acknowledge(
        &self,
        seen: &crate::Finding,
        note: &str,
        repaired: bool,
    ) -> Result<crate::Finding, ClientError> {
        let request = crate::AcknowledgeFindingRequest {
            finding_id: seen.id.clone(),
            note: note.to_owned(),
            seen_severity: seen.severity,
            seen_status: seen.status,
            repaired,
        };
        self.call(self.admin().acknowledge_finding(request)).await
    }

    /// Lights the locate lamp of a drive, or turns it off.
    pub async fn set_lamp(&self, id: &str, on: bool) -> Result<crate::Lamp, ClientError> {
        let request = crate::SetLampRequest { id: id.to_owned(), on };
        self.call(self.admin().set_lamp(request)).await
    }

    /// `length`: None ends it.
    pub async fn maintain(
        &self,
        thing: &str,
        length: Option<std::time::Duration>,
        note: &str,
    ) -> Result<crate::Maintenance, ClientError> {
        let query = thing.to_owned();
        let Some(length) = length else {
            let request = crate::EndMaintenanceRequest { query };
            return self.call(self.admin().end_maintenance(request)).await;
        };
        // A length that is too long for the message is too long for the daemon.
        let length = prost_types::Duration::try_from(length)
            .unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
        let request =
            crate::StartMaintenanceRequest { query, length: Some(length), note: note.to_owned() };
        self.call(self.admin().start_maintenance(request)).await
    }

    pub async fn authorize_format(
        &self,
        handle: &str,
        revoke: bool,
    ) -> Result<crate::FormatAuthorization, ClientError> {
        let handle = handle.to_owned();
        let request = crate::AuthorizeFormatRequest { handle, revoke };
        self.call(self.admin().authorize_format(request)).await
    }

    pub async fn format_authorizations(
        &self,
    ) -> Result<crate::ListFormatAuthorizationsResponse, ClientError> {
        let request = crate::ListFormatAuthorizationsRequest {};
        self.call(self.admin().list_format_authorizations(request)).await
    }

    pub async fn unacknowledge(&self, finding: &str) -> Result<crate::Finding, ClientError> {
        let finding_id = finding.to_owned();
        let request = crate::UnacknowledgeFindingRequest { finding_id };
        self.call(self.admin().unacknowledge_finding(request)).await
    }

    /// Returns once the test is requested: its progress is in the drive's `self_tests`.
    pub async fn start_self_test(
        &self,
        drive: &str,
        kind: crate::SelfTestKind,
    ) -> Result<crate::StartSelfTestResponse, ClientError> {
        let request = crate::StartSelfTestRequest { id: drive.to_owned(), kind: kind.into() };
        self.call(self.admin().start_self_test(request)).await
    }

    pub async fn start_check(
        &self,
        request: crate::StartCheckRequest,
    ) -> Result<crate::Check, ClientError> {
        self.call(self.checks_client().start_check(request)).await
    }

    /// The check, with the output of the checkers.
    pub async fn check(&self, id: &str) -> Result<crate::Check, ClientError> {
        self.get_check(id, false).await
    }

    /// The check, without the output of the checkers.
    pub async fn check_progress(&self, id: &str) -> Result<crate::Check, ClientError> {
        self.get_check(id, true).await
    }

    async fn get_check(&self, id: &str, without_output: bool) -> Result<crate::Check, ClientError> {
        let id = id.to_owned();
        let request = crate::GetCheckRequest { id, without_output };
        self.call(self.checks_client().get_check(request)).await
    }

    pub async fn cancel_check(&self, id: &str) -> Result<crate::Check, ClientError> {
        let id = id.to_owned();
        let request = crate::CancelCheckRequest { id };
        self.call(self.checks_client().cancel_check(request)).await
    }

    /// An empty target requests the checks of all targets.
    pub async fn checks(&self, target: &str) -> Result<crate::ListChecksResponse, ClientError> {
        self.all_pages(|page_token| async move {
            let request = crate::ListChecksRequest {
                page_size: PAGE_SIZE,
                page_token,
                target: target.to_owned(),
            };
            self.checks_client().list_checks(request).await
        })
        .await
    }

    /// An empty driver or handle matches any.
    pub async fn attachments(
        &self,
        driver: &str,
        handle: &str,
        only_stale: bool,
    ) -> Result<crate::ListAttachmentsResponse, ClientError> {
        self.all_pages(|page_token| async move {
            let request = crate::ListAttachmentsRequest {
                page_size: PAGE_SIZE,
                page_token,
                driver: driver.to_owned(),
                handle: handle.to_owned(),
                only_stale,
            };
            self.inventory().list_attachments(request).await
        })
        .await
    }

    /// Without `commit`, the answer lists the steps and nothing is changed.
    pub async fn clean_up(
        &self,
        query: &str,
        commit: bool,
        lazy: bool,
    ) -> Result<crate::ForceCleanupResponse, ClientError> {
        let query = query.to_owned();
        let request = crate::ForceCleanupRequest { query, commit, lazy };
        self.call(self.admin().force_cleanup(request)).await
    }

    /// An empty query requests everything.
    pub async fn refresh(&self, query: &str) -> Result<crate::RefreshResponse, ClientError> {
        let query = query.to_owned();
        let request = crate::RefreshRequest { query };
        self.call(self.admin().refresh(request)).await
    }
}

/// One page of a list.
trait Page {
    fn next_page_token(&mut self) -> &mut String;
    fn append(&mut self, next: Self);
}

macro_rules! page {
    ($response:ident, $entries:ident) => {
        impl Page for crate::$response {
            fn next_page_token(&mut self) -> &mut String {
                &mut self.next_page_token
            }
            fn append(&mut self, next: Self) {
                self.$entries.extend(next.$entries);
                self.next_page_token = next.next_page_token;
            }
        }
    };
}

page!(ListDrivesResponse, drives);
page!(ListVolumesResponse, volumes);
page!(ListFindingsResponse, findings);
page!(ListCausesResponse, causes);
page!(ListChecksResponse, checks);
page!(ListAttachmentsResponse, attachments);
page!(ListProvidedResponse, volumes);

/// Whether a daemon speaks gRPC on this connection. Any status counts, also `permission denied`;
/// only a broken connection does not.
pub async fn is_responding(stream: UnixStream) -> bool {
    let channel = channel_over(stream, PathBuf::new());
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    match health.check(tonic_health::pb::HealthCheckRequest { service: String::new() }).await {
        Ok(_) => true,
        Err(status) => std::error::Error::source(&status).is_none(),
    }
}

async fn connect_stream(path: &Path, timeout: Duration) -> Result<UnixStream, ClientError> {
    match tokio::time::timeout(CONNECT_TIMEOUT.min(timeout), UnixStream::connect(path)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(connect_error(path, source)),
        Err(_) => Err(ClientError::ConnectTimeout(path.to_owned())),
    }
}

/// HTTP/2 requires an authority; the connector ignores it.
fn endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

/// A channel over `stream`. When that breaks, a new connection is made to `path`.
fn channel_over(stream: UnixStream, path: PathBuf) -> Channel {
    let mut first = Some(stream);
    let connector = tower::service_fn(move |_: Uri| {
        let first = first.take();
        let path = path.clone();
        async move {
            match first {
                Some(stream) => Ok(TokioIo::new(stream)),
                None => UnixStream::connect(path).await.map(TokioIo::new),
            }
        }
    });
    endpoint().connect_with_connector_lazy(connector)
}

/// The transport's message reports only that it failed; its causes contain the reason. The model's
/// `with_causes` does not fit: tonic's errors repeat their causes (its ConnectError reads like its
/// source), and a Status prints its source in the debugging form.
fn status_with_causes(status: &Status) -> String {
    let causes = std::iter::successors(std::error::Error::source(status), |cause| cause.source());
    causes.map(ToString::to_string).fold(status.message().to_owned(), |text, cause| {
        match text.ends_with(&cause) {
            true => text,
            false => format!("{text}: {cause}"),
        }
    })
}

fn connect_error(path: &Path, source: io::Error) -> ClientError {
    match source.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::NotADirectory => ClientError::NoDaemon(path.to_owned()),
        io::ErrorKind::PermissionDenied => ClientError::NoPermission(path.to_owned()),
        _ => ClientError::Connect { path: path.to_owned(), source },
    }
}
