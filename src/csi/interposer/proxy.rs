//! Handles one CSI call in the interposer: forwards it, merges health into the answer, or answers
//! it if the upstream driver cannot.
//!
//! In: requests. Out: answers. Only requests of the calls in `method` are decoded, and of these
//! only volume ids and paths. No part of a request is logged.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use prost::Message;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::interposer::body::{Body, BufferedBody};
use crate::interposer::daemon_notify::DaemonNotifier;
use crate::interposer::health_source::{
    HealthSource, HealthSourceError, LifecycleEvent, ListedVolume, VolumeHealth,
};
use crate::interposer::method::{CsiMethod, EnabledHealthApis, Service};
use crate::interposer::raw::DecodeError;
use crate::interposer::reply::{Reply, SuccessReply};
use crate::interposer::response::{error_response, unary_response};
use crate::interposer::upstream_driver::UpstreamDriver;
use crate::interposer::upstream_error::UpstreamError;
use crate::interposer::volume_tracker::VolumeTracker;
use crate::interposer::{body, grpc, local_replies, merge, raw};
use crate::withdrawal::{WITHDRAW, Withdrawal, withdrawn_health};
use diskvitals_text::causes::with_causes;

/// Larger requests are not decoded, in bytes. CSI's requests are a few KiB.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Time limit for the daemon's answer, from the start of a call.
const DAEMON_TIMEOUT: Duration = Duration::from_millis(900);
/// Time limit for the daemon's answer after the upstream's answer, which must not wait for a daemon
/// that hangs.
const DAEMON_GRACE: Duration = Duration::from_millis(250);

pub(crate) struct Proxy<W> {
    pub driver: UpstreamDriver,
    pub health_source: Arc<W>,
    pub tracker: VolumeTracker,
    pub notifier: DaemonNotifier,
    health_apis: EnabledHealthApis,
    withdrawal: Arc<Withdrawal>,
    /// Methods whose answers could not be decoded, one bit each; each is logged once.
    warned_methods: AtomicU32,
}

pub(crate) type ProxyResult = Result<Response<Body>, hyper::Error>;

impl<W: HealthSource> Proxy<W> {
    pub(crate) fn new(
        driver: UpstreamDriver,
        health_source: Arc<W>,
        health_apis: EnabledHealthApis,
        withdrawal: Arc<Withdrawal>,
        notifier: DaemonNotifier,
    ) -> Proxy<W> {
        Proxy {
            driver,
            health_source,
            tracker: VolumeTracker::default(),
            notifier,
            health_apis,
            withdrawal,
            warned_methods: AtomicU32::new(0),
        }
    }

    /// An error resets the caller's stream, as the upstream reset its own.
    pub(crate) async fn handle_call(&self, request: Request<Incoming>) -> ProxyResult {
        let path = request.uri().path();
        if path == WITHDRAW {
            let progress = self.withdrawal.begin();
            return Ok(local_response(Ok(progress.encode_to_vec())));
        }
        let Some(method) =
            CsiMethod::from_path(path).filter(|method| !method.is_passthrough(self.health_apis))
        else {
            return self.forward(request.map(Body::request)).await;
        };
        let (head, incoming) = request.into_parts();
        let (data, trailers) = match body::buffer_request(incoming, MAX_REQUEST_BYTES).await {
            BufferedBody::Complete(data, trailers) => (data, trailers),
            BufferedBody::Unbuffered(body) => {
                return self.forward(Request::from_parts(head, body)).await;
            }
        };
        let message = grpc::only_message(&data, &head.headers);
        let request = Request::from_parts(head, Body::full(data, trailers));
        match message {
            Some(message) => self.handle_known_method(method, request, &message).await,
            None => self.forward(request).await,
        }
    }

    async fn handle_known_method(
        &self,
        method: CsiMethod,
        request: Request<Body>,
        message: &[u8],
    ) -> ProxyResult {
        match method {
            CsiMethod::NodeGetCapabilities => {
                self.get_capabilities(method, Service::Node, request).await
            }
            CsiMethod::ControllerGetCapabilities => {
                self.get_capabilities(method, Service::Controller, request).await
            }
            CsiMethod::NodeGetVolumeStats => {
                self.node_get_volume_stats(method, request, message).await
            }
            CsiMethod::NodeGetVolumeHealth | CsiMethod::ControllerGetVolumeHealth => {
                self.get_volume_health(method, request, message).await
            }
            CsiMethod::NodeGetStorageHealth => self.get_storage_health(method, request).await,
            CsiMethod::ControllerListVolumeHealth => {
                self.list_health(method, request, message).await
            }
            CsiMethod::ListVolumes => self.list_volumes(method, request).await,
            CsiMethod::ControllerGetVolume => self.get_volume(method, request, message).await,
            CsiMethod::NodeStageVolume
            | CsiMethod::NodePublishVolume
            | CsiMethod::NodeUnpublishVolume
            | CsiMethod::NodeUnstageVolume => self.track_lifecycle(method, request, message).await,
            CsiMethod::CreateVolume => self.create_volume(request).await,
        }
    }

    async fn forward(&self, request: Request<Body>) -> ProxyResult {
        match self.driver.upstream.send(request).await {
            Ok(answer) => Ok(answer.map(Body::response)),
            Err(failure) => failed(failure),
        }
    }

    pub(crate) async fn forward_and_read(
        &self,
        request: Request<Body>,
    ) -> Result<Reply, hyper::Error> {
        match self.driver.upstream.send(request).await {
            Ok(answer) => Ok(Reply::read(answer).await),
            Err(failure) => failed(failure).map(Reply::Opaque),
        }
    }

    /// Capabilities are announced even if the daemon does not answer: the interposer serves these
    /// calls.
    async fn get_capabilities(
        &self,
        method: CsiMethod,
        service: Service,
        request: Request<Body>,
    ) -> ProxyResult {
        let good = match self.forward_and_read(request).await? {
            Reply::Success(good) => good,
            other => return Ok(other.untouched()),
        };
        Ok(self.merge_into(method, good, |message| {
            let upstreams = merge::announced_capabilities(message)?;
            let added = service.added_capabilities(self.health_apis, &upstreams);
            let all = merge::add_capabilities(message, &added);
            self.driver.record_capabilities(service, upstreams);
            all
        }))
    }

    async fn node_get_volume_stats(
        &self,
        method: CsiMethod,
        request: Request<Body>,
        message: &[u8],
    ) -> ProxyResult {
        let handle = raw::string_field(message, 1).unwrap_or_default();
        let (reply, health) =
            join_bounded(self.forward_and_read(request), self.query_health(handle)).await?;
        match reply {
            Reply::ErrorStatus(code, _) if self.is_unimplemented_upstream(method, code).await => {
                Ok(local_response(self.local_stats(message).await))
            }
            Reply::Success(good) if self.health_apis.condition => {
                match health.ok().and_then(|health| health.condition) {
                    Some(condition) => {
                        Ok(self
                            .merge_into(method, good, |message| merge::stats(message, &condition)))
                    }
                    None => Ok(good.untouched()),
                }
            }
            other => Ok(other.untouched()),
        }
    }

    async fn local_stats(&self, message: &[u8]) -> Result<Vec<u8>, Status> {
        let (handle, path) =
            (local_replies::volume_id(message)?, local_replies::volume_path(message)?);
        let usage = self.query(async |name| self.health_source.usage(name, handle, path).await);
        // A missing condition does not make the statistics fail.
        let (usage, health) = tokio::join!(usage, self.query_health(handle));
        let condition =
            health.ok().filter(|_| self.health_apis.condition).and_then(|health| health.condition);
        Ok(local_replies::stats(
            &usage.map_err(|error| local_replies::to_status(&error))?,
            condition,
        ))
    }

    async fn get_volume_health(
        &self,
        method: CsiMethod,
        request: Request<Body>,
        message: &[u8],
    ) -> ProxyResult {
        let handle = raw::string_field(message, 1).unwrap_or_default();
        if method == CsiMethod::NodeGetVolumeHealth {
            self.withdrawal.record_volume_call(handle);
        }
        let health = async {
            let health = self.query_health(handle).await?;
            Ok(if method == CsiMethod::ControllerGetVolumeHealth {
                health.for_controller()
            } else {
                health
            })
        };
        let (reply, health) = join_bounded(self.forward_and_read(request), health).await?;
        match reply {
            Reply::ErrorStatus(code, _) if self.is_unimplemented_upstream(method, code).await => {
                let fresh = self.tracker.is_recently_confirmed(handle, Instant::now());
                Ok(local_response(
                    local_replies::volume_id(message)
                        .and_then(|handle| local_replies::health(handle, health, fresh)),
                ))
            }
            Reply::Success(good) => match health.map(|health| health.statuses) {
                Ok(Ok(statuses)) => Ok(self
                    .merge_into(method, good, |message| merge::health(message, handle, &statuses))),
                Ok(Err(_)) | Err(_) => Ok(good.untouched()),
            },
            other => Ok(other.untouched()),
        }
    }

    async fn get_storage_health(&self, method: CsiMethod, request: Request<Body>) -> ProxyResult {
        self.withdrawal.record_storage_call();
        let storage = async {
            if self.withdrawal.is_active() {
                return Ok(Vec::new());
            }
            self.query(async |name| self.health_source.storage_health(name).await).await
        };
        let (reply, health) = join_bounded(self.forward_and_read(request), storage).await?;
        match (reply, health) {
            (Reply::ErrorStatus(code, _), health)
                if self.is_unimplemented_upstream(method, code).await =>
            {
                Ok(local_response(local_replies::storage(health)))
            }
            (Reply::Success(good), Ok(statuses)) => {
                Ok(self.merge_into(method, good, |message| merge::storage(message, &statuses)))
            }
            (other, _) => Ok(other.untouched()),
        }
    }

    async fn list_volumes(&self, method: CsiMethod, request: Request<Body>) -> ProxyResult {
        let (reply, listed) =
            join_bounded(self.forward_and_read(request), self.query_volumes()).await?;
        match (reply, listed) {
            (Reply::Success(good), Ok(listed)) => {
                let known: HashMap<String, VolumeHealth> =
                    listed.into_iter().map(|volume| (volume.handle, volume.health)).collect();
                Ok(self.merge_into(method, good, |message| merge::volumes(message, &known)))
            }
            (other, _) => Ok(other.untouched()),
        }
    }

    async fn get_volume(
        &self,
        method: CsiMethod,
        request: Request<Body>,
        message: &[u8],
    ) -> ProxyResult {
        let handle = raw::string_field(message, 1).unwrap_or_default();
        match join_bounded(self.forward_and_read(request), self.query_health(handle)).await? {
            (Reply::Success(good), Ok(VolumeHealth { condition: Some(condition), .. })) => {
                Ok(self.merge_into(method, good, |message| merge::volume(message, &condition)))
            }
            (other, _) => Ok(other.untouched()),
        }
    }

    /// Tracks stage, publish and their reversal, and reports them to the daemon on success.
    async fn track_lifecycle(
        &self,
        method: CsiMethod,
        request: Request<Body>,
        message: &[u8],
    ) -> ProxyResult {
        // staging_target_path and target_path have different field numbers in each request.
        let number = match method {
            CsiMethod::NodeStageVolume => 3,
            CsiMethod::NodePublishVolume => 4,
            _ => 2,
        };
        let (handle, path) = (
            raw::string_field(message, 1).unwrap_or_default(),
            raw::string_field(message, number).unwrap_or_default(),
        );
        let comes = matches!(method, CsiMethod::NodeStageVolume | CsiMethod::NodePublishVolume);
        if comes && !handle.is_empty() {
            self.tracker.record_attach(handle, path, Instant::now());
        }
        let reply = self.forward_and_read(request).await?;
        if matches!(reply, Reply::Success(_)) && !handle.is_empty() {
            self.record_success(method, handle, path);
        }
        Ok(reply.untouched())
    }

    fn record_success(&self, method: CsiMethod, handle: &str, path: &str) {
        let (handle, path) = (handle.to_owned(), path.to_owned());
        let event = match method {
            CsiMethod::NodeStageVolume => LifecycleEvent::Staged { handle, path },
            CsiMethod::NodePublishVolume => LifecycleEvent::Published { handle, path },
            CsiMethod::NodeUnpublishVolume => LifecycleEvent::Unpublished { handle, path },
            _ => LifecycleEvent::Unstaged { handle, path },
        };
        match &event {
            LifecycleEvent::Unpublished { handle, path } => {
                self.tracker.record_unpublish(handle, path)
            }
            LifecycleEvent::Unstaged { handle, .. } => self.tracker.record_unstage(handle),
            LifecycleEvent::Staged { handle, .. }
            | LifecycleEvent::Published { handle, .. }
            | LifecycleEvent::Bypassed { handle } => {
                self.tracker.confirm(handle, Instant::now());
            }
        }
        self.notifier.enqueue(event);
    }

    /// CreateVolumeResponse.volume.volume_id: the driver confirms this volume, on whichever node it
    /// will be used.
    async fn create_volume(&self, request: Request<Body>) -> ProxyResult {
        let reply = self.forward_and_read(request).await?;
        if let Reply::Success(good) = &reply {
            let volumes = raw::fields(&good.message).unwrap_or_default();
            let volume =
                volumes.iter().filter_map(|field| field.bytes(1)).next_back().unwrap_or_default();
            match raw::string_field(volume, 2) {
                Ok("") | Err(DecodeError) => {}
                Ok(handle) => self.tracker.confirm(handle, Instant::now()),
            }
        }
        Ok(reply.untouched())
    }

    /// The daemon's health of one volume.
    async fn query_health(&self, handle: &str) -> Result<VolumeHealth, HealthSourceError> {
        if self.withdrawal.is_active() {
            return Ok(withdrawn_health());
        }
        self.query(async |name| self.health_source.health(name, handle).await).await
    }

    pub(crate) async fn query_volumes(&self) -> Result<Vec<ListedVolume>, HealthSourceError> {
        if self.withdrawal.is_active() {
            return Ok(Vec::new());
        }
        self.query(async |name| self.health_source.volumes(name).await).await
    }

    /// Queries the daemon about this driver, for at most [`DAEMON_TIMEOUT`].
    async fn query<T>(
        &self,
        question: impl AsyncFnOnce(&str) -> Result<T, HealthSourceError>,
    ) -> Result<T, HealthSourceError> {
        let answer = async { question(self.driver.name().await?).await };
        tokio::time::timeout(DAEMON_TIMEOUT, answer)
            .await
            .unwrap_or_else(|_| Err(daemon_timeout(DAEMON_TIMEOUT)))
    }

    /// Whether the upstream does not implement the call, so that its error does not count as an
    /// answer. Some drivers announce calls that they do not implement; some return other codes for
    /// calls that they do not announce.
    pub(crate) async fn is_unimplemented_upstream(&self, method: CsiMethod, code: Code) -> bool {
        match (method.capability(), code) {
            (None, _) => false,
            (Some(_), Code::Unimplemented) => true,
            (Some(_), Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded) => false,
            (Some((service, number)), _) => {
                self.driver.announces(service, number).await == Some(false)
            }
        }
    }

    /// The upstream's answer with health merged into it; unchanged if merging fails.
    pub(crate) fn merge_into(
        &self,
        method: CsiMethod,
        good: SuccessReply,
        merge: impl FnOnce(&[u8]) -> Result<Vec<u8>, DecodeError>,
    ) -> Response<Body> {
        match merge(&good.message) {
            Ok(message) => good.with_message(&message),
            Err(junk) => {
                let bit = 1 << (method as u32);
                if self.warned_methods.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                    tracing::warn!(call = ?method, %junk, "an answer of the upstream driver cannot be decoded: such answers pass without health");
                }
                good.untouched()
            }
        }
    }
}

/// Runs both futures at once. After the upstream's answer the daemon gets at most [`DAEMON_GRACE`].
pub(crate) async fn join_bounded<T>(
    theirs: impl Future<Output = Result<Reply, hyper::Error>>,
    ours: impl Future<Output = Result<T, HealthSourceError>>,
) -> Result<(Reply, Result<T, HealthSourceError>), hyper::Error> {
    let (mut theirs, mut ours) = (pin!(theirs), pin!(ours));
    let mut early = None;
    let reply = loop {
        tokio::select! {
            biased;
            reply = &mut theirs => break reply?,
            health = &mut ours, if early.is_none() => early = Some(health),
        }
    };
    let health = match early {
        Some(health) => health,
        None => tokio::time::timeout(DAEMON_GRACE, ours)
            .await
            .unwrap_or_else(|_| Err(daemon_timeout(DAEMON_GRACE))),
    };
    Ok((reply, health))
}

fn daemon_timeout(waited: Duration) -> HealthSourceError {
    HealthSourceError::Unavailable(format!(
        "diskvitalsd has not answered within {} ms",
        waited.as_millis()
    ))
}

/// Builds an answer from a local message or status.
pub(crate) fn local_response(message: Result<Vec<u8>, Status>) -> Response<Body> {
    match message {
        Ok(message) => unary_response(&message),
        Err(status) => error_response(&status),
    }
}

fn failed(failure: UpstreamError) -> ProxyResult {
    match failure {
        UpstreamError::Reset(error) => Err(error),
        other => Ok(error_response(&Status::unavailable(with_causes(&other)))),
    }
}
