//! One call on its way: passed on as it is, or with our health in its answer, or answered by us
//! where the upstream cannot.
//!
//! In: requests. Out: answers. Requests are read only for the calls in `method`, and only their
//! volume ids and paths; nothing of a request is logged.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::csi::interposer::body::{Body, Gathered};
use crate::csi::interposer::driver::Driver;
use crate::csi::interposer::failure::Failure;
use crate::csi::interposer::method::{Dialects, Method, Service};
use crate::csi::interposer::raw::Junk;
use crate::csi::interposer::reply::{Good, Reply};
use crate::csi::interposer::seen::Seen;
use crate::csi::interposer::telling::Telling;
use crate::csi::interposer::verdict::{Listed, Passing, Told, Witness, WitnessError};
use crate::csi::interposer::{body, failure, grpc, merge, ours, raw};

/// Larger requests are not looked into, in bytes. CSI's are a few KiB.
const REQUEST: usize = 1 << 20;
/// For the daemon's answer, from the beginning of a call.
const ANSWER: Duration = Duration::from_millis(900);
/// And once the upstream has answered: its answer does not wait for a daemon that hangs.
const PATIENCE: Duration = Duration::from_millis(250);

pub struct Proxy<W> {
    pub driver: Driver,
    pub witness: Arc<W>,
    pub seen: Seen,
    pub telling: Telling,
    dialects: Dialects,
    /// Calls whose answers could not be read, a bit each: said once.
    unreadable: AtomicU32,
}

pub type Answered = Result<Response<Body>, hyper::Error>;

impl<W: Witness> Proxy<W> {
    pub fn new(driver: Driver, witness: Arc<W>, dialects: Dialects, telling: Telling) -> Proxy<W> {
        Proxy {
            driver,
            witness,
            seen: Seen::default(),
            telling,
            dialects,
            unreadable: AtomicU32::new(0),
        }
    }

    /// An error resets the caller's stream, as the upstream reset ours.
    pub async fn call(&self, request: Request<Incoming>) -> Answered {
        let Some(method) =
            Method::of(request.uri().path()).filter(|method| !method.passes(self.dialects))
        else {
            return self.pass(request.map(Body::request)).await;
        };
        let (head, incoming) = request.into_parts();
        let (data, trailers) = match body::request(incoming, REQUEST).await {
            Gathered::Whole(data, trailers) => (data, trailers),
            Gathered::Unread(body) => return self.pass(Request::from_parts(head, body)).await,
        };
        let message = grpc::only_message(&data, &head.headers);
        let request = Request::from_parts(head, Body::whole(data, trailers));
        match message {
            Some(message) => self.understood(method, request, &message).await,
            None => self.pass(request).await,
        }
    }

    async fn understood(&self, method: Method, request: Request<Body>, message: &[u8]) -> Answered {
        match method {
            Method::NodeGetCapabilities => self.capabilities(method, Service::Node, request).await,
            Method::ControllerGetCapabilities => {
                self.capabilities(method, Service::Controller, request)
                    .await
            }
            Method::NodeGetVolumeStats => self.stats(method, request, message).await,
            Method::NodeGetVolumeHealth | Method::ControllerGetVolumeHealth => {
                self.health(method, request, message).await
            }
            Method::NodeGetStorageHealth => self.storage(method, request).await,
            Method::ControllerListVolumeHealth => self.list_health(method, request, message).await,
            Method::ListVolumes => self.list(method, request).await,
            Method::ControllerGetVolume => self.volume(method, request, message).await,
            Method::NodeStageVolume
            | Method::NodePublishVolume
            | Method::NodeUnpublishVolume
            | Method::NodeUnstageVolume => self.watched(method, request, message).await,
            Method::CreateVolume => self.created(request).await,
        }
    }

    async fn pass(&self, request: Request<Body>) -> Answered {
        match self.driver.upstream.send(request).await {
            Ok(answer) => Ok(answer.map(Body::response)),
            Err(failure) => passed(failure),
        }
    }

    pub async fn reply(&self, request: Request<Body>) -> Result<Reply, hyper::Error> {
        match self.driver.upstream.send(request).await {
            Ok(answer) => Ok(Reply::read(answer).await),
            Err(failure) => passed(failure).map(Reply::Other),
        }
    }

    /// What we announce is announced always, whether the daemon is there or not: what serves these
    /// calls is here.
    async fn capabilities(
        &self,
        method: Method,
        service: Service,
        request: Request<Body>,
    ) -> Answered {
        let good = match self.reply(request).await? {
            Reply::Good(good) => good,
            other => return Ok(other.untouched()),
        };
        Ok(self.merged(method, good, |message| {
            let upstreams = merge::announced(message)?;
            let added = service.added(self.dialects, &upstreams);
            let all = merge::capabilities(message, &added);
            self.driver.learn(service, upstreams);
            all
        }))
    }

    async fn stats(&self, method: Method, request: Request<Body>, message: &[u8]) -> Answered {
        let handle = raw::text(message, 1).unwrap_or_default();
        let (reply, told) = both(self.reply(request), self.told(handle)).await?;
        match reply {
            Reply::Refusal(code, _) if self.lacks(method, code).await => {
                Ok(answered(self.own_stats(message).await))
            }
            Reply::Good(good) if self.dialects.condition => match told {
                Ok(told) => Ok(self.merged(method, good, |message| {
                    merge::stats(message, &told.condition)
                })),
                Err(_) => Ok(good.untouched()),
            },
            other => Ok(other.untouched()),
        }
    }

    async fn own_stats(&self, message: &[u8]) -> Result<Vec<u8>, Status> {
        let (handle, path) = (ours::volume_id(message)?, ours::volume_path(message)?);
        let usage = self.asked(async |name| self.witness.usage(name, handle, path).await);
        // Statistics never fail for want of a condition.
        let (usage, told) = tokio::join!(usage, self.told(handle));
        let condition = told
            .ok()
            .filter(|_| self.dialects.condition)
            .map(|told| told.condition);
        Ok(ours::stats(
            &usage.map_err(|error| ours::refused(&error))?,
            condition,
        ))
    }

    async fn health(&self, method: Method, request: Request<Body>, message: &[u8]) -> Answered {
        let handle = raw::text(message, 1).unwrap_or_default();
        let told = async {
            let told = self.told(handle).await?;
            Ok(if method == Method::ControllerGetVolumeHealth {
                told.from_everywhere()
            } else {
                told
            })
        };
        let (reply, told) = both(self.reply(request), told).await?;
        match reply {
            Reply::Refusal(code, _) if self.lacks(method, code).await => {
                let fresh = self.seen.is_fresh(handle, Instant::now());
                Ok(answered(
                    ours::volume_id(message).and_then(|handle| ours::health(handle, told, fresh)),
                ))
            }
            Reply::Good(good) => match told.map(|told| told.statuses) {
                Ok(Ok(statuses)) => Ok(self.merged(method, good, |message| {
                    merge::health(message, handle, &statuses)
                })),
                Ok(Err(_)) | Err(_) => Ok(good.untouched()),
            },
            other => Ok(other.untouched()),
        }
    }

    async fn storage(&self, method: Method, request: Request<Body>) -> Answered {
        let storage = self.asked(async |name| self.witness.storage(name).await);
        let (reply, told) = both(self.reply(request), storage).await?;
        match (reply, told) {
            (Reply::Refusal(code, _), told) if self.lacks(method, code).await => {
                Ok(answered(ours::storage(told)))
            }
            (Reply::Good(good), Ok(statuses)) => {
                Ok(self.merged(method, good, |message| merge::storage(message, &statuses)))
            }
            (other, _) => Ok(other.untouched()),
        }
    }

    async fn list(&self, method: Method, request: Request<Body>) -> Answered {
        let (reply, listed) = both(self.reply(request), self.listed()).await?;
        match (reply, listed) {
            (Reply::Good(good), Ok(listed)) => {
                let known: HashMap<String, Told> = listed
                    .into_iter()
                    .map(|volume| (volume.handle, volume.told))
                    .collect();
                Ok(self.merged(method, good, |message| merge::volumes(message, &known)))
            }
            (other, _) => Ok(other.untouched()),
        }
    }

    async fn volume(&self, method: Method, request: Request<Body>, message: &[u8]) -> Answered {
        let handle = raw::text(message, 1).unwrap_or_default();
        match both(self.reply(request), self.told(handle)).await? {
            (Reply::Good(good), Ok(told)) => Ok(self.merged(method, good, |message| {
                merge::volume(message, &told.condition)
            })),
            (other, _) => Ok(other.untouched()),
        }
    }

    /// Stage and publish, and their undoing: remembered, and told where they succeeded.
    async fn watched(&self, method: Method, request: Request<Body>, message: &[u8]) -> Answered {
        // staging_target_path and target_path have numbers of their own in each request.
        let number = match method {
            Method::NodeStageVolume => 3,
            Method::NodePublishVolume => 4,
            _ => 2,
        };
        let (handle, path) = (
            raw::text(message, 1).unwrap_or_default(),
            raw::text(message, number).unwrap_or_default(),
        );
        let comes = matches!(method, Method::NodeStageVolume | Method::NodePublishVolume);
        if comes && !handle.is_empty() {
            self.seen.begun(handle, path, Instant::now());
        }
        let reply = self.reply(request).await?;
        if matches!(reply, Reply::Good(_)) && !handle.is_empty() {
            self.succeeded(method, handle, path);
        }
        Ok(reply.untouched())
    }

    fn succeeded(&self, method: Method, handle: &str, path: &str) {
        let (handle, path) = (handle.to_owned(), path.to_owned());
        let passing = match method {
            Method::NodeStageVolume => Passing::Staged { handle, path },
            Method::NodePublishVolume => Passing::Published { handle, path },
            Method::NodeUnpublishVolume => Passing::Unpublished { handle, path },
            _ => Passing::Unstaged { handle, path },
        };
        match &passing {
            Passing::Unpublished { handle, path } => self.seen.unpublished(handle, path),
            Passing::Unstaged { handle, .. } => self.seen.unstaged(handle),
            Passing::Staged { handle, .. }
            | Passing::Published { handle, .. }
            | Passing::Bypassed { handle } => {
                self.seen.vouched(handle, Instant::now());
            }
        }
        self.telling.tell(passing);
    }

    /// CreateVolumeResponse.volume.volume_id: a volume that the driver vouches for, wherever it
    /// will be used.
    async fn created(&self, request: Request<Body>) -> Answered {
        let reply = self.reply(request).await?;
        if let Reply::Good(good) = &reply {
            let volumes = raw::fields(&good.message).unwrap_or_default();
            let volume = volumes
                .iter()
                .filter_map(|field| field.bytes(1))
                .next_back()
                .unwrap_or_default();
            match raw::text(volume, 2) {
                Ok("") | Err(Junk) => {}
                Ok(handle) => self.seen.vouched(handle, Instant::now()),
            }
        }
        Ok(reply.untouched())
    }

    /// What the daemon knows of one volume.
    async fn told(&self, handle: &str) -> Result<Told, WitnessError> {
        self.asked(async |name| self.witness.health(name, handle).await)
            .await
    }

    pub async fn listed(&self) -> Result<Vec<Listed>, WitnessError> {
        self.asked(async |name| self.witness.volumes(name).await)
            .await
    }

    /// A question to the daemon about this driver, no longer than [`ANSWER`].
    async fn asked<T>(
        &self,
        question: impl AsyncFnOnce(&str) -> Result<T, WitnessError>,
    ) -> Result<T, WitnessError> {
        let answer = async { question(self.driver.name().await?).await };
        tokio::time::timeout(ANSWER, answer)
            .await
            .unwrap_or_else(|_| Err(silent(ANSWER)))
    }

    /// Whether the upstream does not serve the call, so that its refusal is not its word on the
    /// matter. Some drivers announce what they do not implement, and some answer with other codes
    /// what they do not announce.
    pub async fn lacks(&self, method: Method, code: Code) -> bool {
        match (method.capability(), code) {
            (None, _) => false,
            (Some(_), Code::Unimplemented) => true,
            (Some(_), Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded) => false,
            (Some((service, number)), _) => {
                self.driver.announces(service, number).await == Some(false)
            }
        }
    }

    /// The upstream's answer with our part in it; as it was, where that fails.
    pub fn merged(
        &self,
        method: Method,
        good: Good,
        merge: impl FnOnce(&[u8]) -> Result<Vec<u8>, Junk>,
    ) -> Response<Body> {
        match merge(&good.message) {
            Ok(message) => good.with(&message),
            Err(junk) => {
                let bit = 1 << (method as u32);
                if self.unreadable.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                    tracing::warn!(call = ?method, %junk, "an answer of the upstream driver cannot be read: such answers go on without our health");
                }
                good.untouched()
            }
        }
    }
}

/// Both at once. Ours is waited for no longer than [`PATIENCE`] once theirs is there.
pub async fn both<T>(
    theirs: impl Future<Output = Result<Reply, hyper::Error>>,
    ours: impl Future<Output = Result<T, WitnessError>>,
) -> Result<(Reply, Result<T, WitnessError>), hyper::Error> {
    let (mut theirs, mut ours) = (pin!(theirs), pin!(ours));
    let mut early = None;
    let reply = loop {
        tokio::select! {
            biased;
            reply = &mut theirs => break reply?,
            told = &mut ours, if early.is_none() => early = Some(told),
        }
    };
    let told = match early {
        Some(told) => told,
        None => tokio::time::timeout(PATIENCE, ours)
            .await
            .unwrap_or_else(|_| Err(silent(PATIENCE))),
    };
    Ok((reply, told))
}

fn silent(waited: Duration) -> WitnessError {
    WitnessError::Away(format!(
        "diskvitalsd has not answered within {} ms",
        waited.as_millis()
    ))
}

/// What we say ourselves.
pub fn answered(message: Result<Vec<u8>, Status>) -> Response<Body> {
    match message {
        Ok(message) => grpc::answer(&message),
        Err(status) => grpc::refusal(&status),
    }
}

fn passed(failure: Failure) -> Answered {
    match failure {
        Failure::Reset(error) => Err(error),
        other => Ok(grpc::refusal(&Status::unavailable(failure::line(&other)))),
    }
}
