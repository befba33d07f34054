//! The service `podmon.v1.Podmon`: is this node connected to its volumes, and is there I/O on them?
//!
//! Dell's resiliency module asks that before it force-deletes the pods of a node that looks dead;
//! another client may ask as well. It goes on with the deletion only when the answer is OK and says
//! neither "connected" nor "I/O in progress". So "not connected" is a statement with consequences,
//! and everything short of certainty is an error here: the daemon that is away, a volume that it
//! does not know, another node's name.
//!
//! In: the module's request; what the daemon knows, through [`Connectivity`]. Out: an answer or a
//! status. Knows nothing of how the daemon is asked.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Request, Response, Status};

use crate::csi::wire::podmon::podmon_server::{Podmon, PodmonServer};
use crate::csi::wire::podmon::{
    ValidateVolumeHostConnectivityRequest, ValidateVolumeHostConnectivityResponse,
};

/// Largest sample. Longer than this a caller's deadline is not, and nothing is learnt that a minute
/// does not tell.
pub const MAX_SAMPLE: Duration = Duration::from_secs(60);
/// Where the caller leaves it to us, as the module always does: ext4 commits every five seconds
/// (ext4(5), commit=), so that a pod that writes through it is seen.
pub const DEFAULT_SAMPLE: Duration = Duration::from_secs(6);
/// For one answer, where the service has a socket of its own: the longest sample, and the rest.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);
/// Volumes in one question.
const MAX_VOLUMES: usize = 1000;
/// Bytes of a volume's id. CSI's own limit is 128, which drivers exceed.
const MAX_ID_LEN: usize = 1024;
/// Messages in an answer, and characters of each.
const MAX_MESSAGES: usize = 1024;
const MAX_MESSAGE_CHARS: usize = 1024;
/// The module takes an error with these words for "not connected" (they are of another driver's
/// vocabulary). An id in an error's text may hold them.
const NOT_CONNECTED_TEXT: &str = "there is no corresponding sdc";

/// What is known for certain of a node's connection to its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectivityStatus {
    /// All drives beneath the volumes (no volumes: beneath all of the driver's) are present and
    /// answer.
    pub connected: bool,
    /// Reads or writes were under way on one of the volumes in the sample.
    pub ios_in_progress: bool,
    /// For people: why not connected, which volume has I/O.
    pub messages: Vec<String>,
}

/// Who knows it: the daemon.
pub trait Connectivity: Send + Sync + 'static {
    /// `handles`: volumes of the driver, none twice; empty: the node as a whole. `sample`: how long
    /// to look for I/O, at most [`LONGEST_SAMPLE`]; zero: I/O is not asked for.
    ///
    /// Any doubt is an error (a volume that is not known, a drive that has not been heard of, a
    /// daemon that is away), never `connected: false`.
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
    /// `node`: as NodeGetInfo gives it.
    pub fn new(node: String, connectivity: Arc<C>) -> PodmonService<C> {
        PodmonService { node, connectivity }
    }

    /// To be served beside CSI, and on a socket of its own.
    pub fn server(self) -> PodmonServer<PodmonService<C>> {
        PodmonServer::new(self).max_decoding_message_size(crate::csi::server::MAX_MESSAGE_BYTES)
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
            // The module's first request asks for nothing but whether the service is there; an
            // error would switch its check off until it is restarted. "Connected" is the answer
            // upon which it does nothing.
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
        let ConnectivityStatus {
            connected,
            ios_in_progress,
            messages,
        } = self
            .evaluate(request.into_inner())
            .await
            .map_err(sanitize_status)?;
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

/// The same status, with a text that the module does not misread.
fn sanitize_status(status: Status) -> Status {
    // An error is an error, whatever the partner made of it.
    let code = if status.code() == Code::Ok {
        Code::Internal
    } else {
        status.code()
    };
    if code == status.code() && !status.message().to_lowercase().contains(NOT_CONNECTED_TEXT) {
        return status;
    }
    Status::new(code, "whether the volumes are connected is not known")
}

#[cfg(test)]
mod tests;
