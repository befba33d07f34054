//! The engine's handle: sends requests to the actor and reads the newest view.
//!
//! In: requests of `api::server::volumes` and of `app`. Out: responses, each within
//! `Settings::request_timeout`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::engine::job::{Message, Request, VolumeJob};
use crate::engine::request::{
    CreateRequest, ExpandRequest, ExpandResponse, PublishRequest, Response, StageRequest,
};
use crate::engine::view::{EngineView, VolumeView};
use crate::error::ProvisionError;

/// Capacity of the actor's message queue.
pub(crate) const REQUEST_QUEUE: usize = 256;

/// The handle; clones share one actor.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) messages: mpsc::Sender<Message>,
    pub(super) view: watch::Receiver<Arc<EngineView>>,
    pub(super) request_timeout: Duration,
}

impl Engine {
    /// The newest view, from memory.
    pub fn view(&self) -> Arc<EngineView> {
        self.view.borrow().clone()
    }

    /// Subscribes to newer views.
    pub fn subscribe(&self) -> watch::Receiver<Arc<EngineView>> {
        self.view.clone()
    }

    pub async fn create(&self, request: CreateRequest) -> Result<VolumeView, ProvisionError> {
        match self.call(None, Request::Create(request)).await? {
            Response::Volume(view) => Ok(*view),
            Response::Expanded(_) | Response::Done => Err(shutting_down()),
        }
    }

    pub async fn delete(&self, handle: String) -> Result<(), ProvisionError> {
        self.operate(handle, VolumeJob::Delete).await.map(drop)
    }

    pub async fn expand(&self, request: ExpandRequest) -> Result<ExpandResponse, ProvisionError> {
        let handle = request.handle.clone();
        match self.operate(handle, VolumeJob::Expand(request)).await? {
            Response::Expanded(expanded) => Ok(expanded),
            Response::Volume(_) | Response::Done => Err(shutting_down()),
        }
    }

    pub async fn stage(&self, request: StageRequest) -> Result<(), ProvisionError> {
        let handle = request.handle.clone();
        self.operate(handle, VolumeJob::Stage(request)).await.map(drop)
    }

    pub async fn unstage(
        &self,
        handle: String,
        staging_path: String,
    ) -> Result<(), ProvisionError> {
        let job = VolumeJob::Unstage(staging_path);
        self.operate(handle, job).await.map(drop)
    }

    pub async fn publish(&self, request: PublishRequest) -> Result<(), ProvisionError> {
        let handle = request.handle.clone();
        self.operate(handle, VolumeJob::Publish(request)).await.map(drop)
    }

    pub async fn unpublish(
        &self,
        handle: String,
        target_path: String,
    ) -> Result<(), ProvisionError> {
        let job = VolumeJob::Unpublish(target_path);
        self.operate(handle, job).await.map(drop)
    }

    /// Permits one mkfs on the volume's device, or takes the permission back.
    pub async fn authorize_format(
        &self,
        handle: String,
        revoke: bool,
    ) -> Result<(), ProvisionError> {
        let job = VolumeJob::AuthorizeFormat(revoke);
        self.operate(handle, job).await.map(drop)
    }

    /// Compares all records with the host again, after another component changed our mounts (a
    /// clean-up).
    pub async fn rescan(&self) {
        let (reply, done) = oneshot::channel();
        if self.messages.send(Message::Rescan(reply)).await.is_ok() {
            // On an error the engine has ended, and there is nothing to rescan.
            let _ = done.await;
        }
    }

    async fn operate(&self, handle: String, job: VolumeJob) -> Result<Response, ProvisionError> {
        self.call(Some(&handle), Request::Operation(handle.clone(), job)).await
    }

    /// The operation continues after the time limit: a later call finds it done or still running.
    async fn call(
        &self,
        handle: Option<&str>,
        request: Request,
    ) -> Result<Response, ProvisionError> {
        let (reply, answer) = oneshot::channel();
        let answered = async {
            self.messages
                .send(Message::Request(Box::new(request), reply))
                .await
                .map_err(|_| shutting_down())?;
            answer.await.map_err(|_| shutting_down())?
        };
        tokio::time::timeout(self.request_timeout, answered)
            .await
            .unwrap_or_else(|_| Err(self.deadline_exceeded(handle)))
    }

    fn deadline_exceeded(&self, handle: Option<&str>) -> ProvisionError {
        let view = self.view();
        let doing = handle
            .and_then(|handle| view.volumes.get(handle))
            .and_then(VolumeView::current_activity)
            .unwrap_or_else(|| "waiting for the pool".into());
        ProvisionError::DeadlineExceeded(format!(
            "not done within {} s, the operation continues: {doing}",
            self.request_timeout.as_secs()
        ))
    }
}

fn shutting_down() -> ProvisionError {
    ProvisionError::Unavailable("the daemon is shutting down".into())
}
