//! The service `podmon.v1.Podmon`: reports whether this node is connected to its volumes, and
//! whether there is I/O on them.
//!
//! Dell's resiliency module calls it before it force-deletes the pods of a node that seems dead;
//! other clients may also call it. The module continues with the deletion only if the answer is OK
//! and reports neither "connected" nor "I/O in progress". A wrong "not connected" is therefore
//! harmful, and every uncertainty is an error: an absent daemon, an unknown volume, another node's
//! name.
//!
//! In: the module's request; the daemon's state, through [`Connectivity`]. Out: an answer or a
//! status. The module does not depend on the protocol of the daemon.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Request, Response, Status};

use crate::wire::podmon::podmon_server::{Podmon, PodmonServer};
use crate::wire::podmon::{
    ValidateVolumeHostConnectivityRequest, ValidateVolumeHostConnectivityResponse,
};

/// Longest sample. No caller waits longer, and a longer sample has no advantage.
pub const MAX_SAMPLE: Duration = Duration::from_secs(60);
/// The sample if the caller gives none, as the module always does. ext4 commits every five seconds
/// (ext4(5), commit=), so a pod that writes has I/O during the sample.
pub(crate) const DEFAULT_SAMPLE: Duration = Duration::from_secs(6);
/// Time limit for one answer on a separate socket: the longest sample and a margin.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);
/// Maximum number of volumes in one request.
const MAX_VOLUMES: usize = 1000;
/// Maximum length of a volume's id in bytes. CSI's own limit is 128, which drivers exceed.
const MAX_ID_LEN: usize = 1024;
/// Maximum number of messages in an answer, and of characters in each.
const MAX_MESSAGES: usize = 1024;
const MAX_MESSAGE_CHARS: usize = 1024;
/// The module interprets an error with this text as "not connected" (the text is from another
/// driver). An id in an error's text may contain it.
const NOT_CONNECTED_TEXT: &str = "there is no corresponding sdc";

/// The certain facts about a node's connection to its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectivityStatus {
    /// All drives below the volumes (no volumes: below all of the driver's) are present and
    /// respond.
    pub connected: bool,
    /// Reads or writes were in progress on one of the volumes during the sample.
    pub ios_in_progress: bool,
    /// Messages for users: why not connected, or which volume has I/O.
    pub messages: Vec<String>,
}

/// The source of these facts: the daemon.
pub trait Connectivity: Send + Sync + 'static {
    /// `handles`: distinct volumes of the driver; empty: the node as a whole. `sample`: how long to
    /// watch for I/O, at most [`MAX_SAMPLE`]; zero: I/O is not checked.
    ///
    /// Any doubt is an error (an unknown volume, a drive without data, an absent daemon), never
    /// `connected: false`.
    fn check(
        &self,
        handles: Vec<String>,
        sample: Duration,
    ) -> impl Future<Output = Result<ConnectivityStatus, Status>> + Send;
}

#[derive(Debug)]
pub struct PodmonService<C> {
    node: String,
    connectivity: Arc<C>,
}

impl<C: Connectivity> PodmonService<C> {
    /// `node` is the node id of NodeGetInfo.
    pub fn new(node: String, connectivity: Arc<C>) -> PodmonService<C> {
        PodmonService { node, connectivity }
    }

    /// The server for the CSI socket or a separate socket.
    pub fn server(self) -> PodmonServer<PodmonService<C>> {
        PodmonServer::new(self).max_decoding_message_size(crate::server::MAX_MESSAGE_BYTES)
    }

    async fn evaluate(
        &self,
        request: ValidateVolumeHostConnectivityRequest,
    ) -> Result<ConnectivityStatus, Status> {
        let presence = request == ValidateVolumeHostConnectivityRequest::default();
        let sample = match parse_sample(request.io_sample_time_seconds)? {
            Duration::ZERO if !presence => DEFAULT_SAMPLE,
            sample => sample,
        };
        let handles = parse_handles(request.volume_ids)?;
        if !request.node_id.is_empty() && request.node_id != self.node {
            return Err(Status::not_found(format!(
                "node_id: this is node {:?}, and nothing is known here of another",
                self.node
            )));
        }
        match self.connectivity.check(handles, sample).await {
            // The module's first request only checks that the service exists; an error would
            // disable its check until it restarts. For "connected" it takes no action.
            Err(status) if presence => Ok(ConnectivityStatus {
                connected: true,
                messages: vec![format!("not known now: {}", status.message())],
                ..ConnectivityStatus::default()
            }),
            known => known,
        }
    }
}

#[tonic::async_trait]
impl<C: Connectivity> Podmon for PodmonService<C> {
    async fn validate_volume_host_connectivity(
        &self,
        request: Request<ValidateVolumeHostConnectivityRequest>,
    ) -> Result<Response<ValidateVolumeHostConnectivityResponse>, Status> {
        let ConnectivityStatus { connected, ios_in_progress, messages } =
            self.evaluate(request.into_inner()).await.map_err(sanitize_status)?;
        let messages = messages
            .into_iter()
            .take(MAX_MESSAGES)
            .map(|message| message.chars().take(MAX_MESSAGE_CHARS).collect())
            .collect();
        Ok(Response::new(ValidateVolumeHostConnectivityResponse {
            connected,
            ios_in_progress,
            messages,
        }))
    }
}

fn parse_sample(seconds: i32) -> Result<Duration, Status> {
    u64::try_from(seconds)
        .map(Duration::from_secs)
        .ok()
        .filter(|sample| *sample <= MAX_SAMPLE)
        .ok_or_else(|| {
            Status::invalid_argument(format!(
                "io_sample_time_seconds: {seconds} is not between 0 and {}",
                MAX_SAMPLE.as_secs()
            ))
        })
}

fn parse_handles(ids: Vec<String>) -> Result<Vec<String>, Status> {
    if ids.len() > MAX_VOLUMES {
        return Err(Status::invalid_argument(format!(
            "volume_ids: {} of them, at most {MAX_VOLUMES} are answered for",
            ids.len()
        )));
    }
    let refused =
        |at: usize, why: &str| Err(Status::invalid_argument(format!("volume_ids[{at}]: {why}")));
    let mut handles = Vec::with_capacity(ids.len());
    let mut seen = std::collections::HashSet::with_capacity(ids.len());
    for (at, id) in ids.into_iter().enumerate() {
        if id.is_empty() {
            return refused(at, "empty");
        }
        if id.len() > MAX_ID_LEN {
            return refused(
                at,
                &format!("{} bytes long, at most {MAX_ID_LEN} are taken", id.len()),
            );
        }
        if id.chars().any(char::is_control) {
            return refused(at, "a control character in it");
        }
        if seen.insert(id.clone()) {
            handles.push(id);
        }
    }
    Ok(handles)
}

/// The same status with a text that the module does not misinterpret.
fn sanitize_status(status: Status) -> Status {
    // An error stays an error, even with the code OK.
    let code = if status.code() == Code::Ok { Code::Internal } else { status.code() };
    if code == status.code() && !status.message().to_lowercase().contains(NOT_CONNECTED_TEXT) {
        return status;
    }
    Status::new(code, "whether the volumes are connected is not known")
}

#[cfg(test)]
mod tests;
