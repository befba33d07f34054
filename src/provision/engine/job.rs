//! One operation on one volume, in its own task: it first recovers the volume from an interrupted
//! operation, then executes the request. This module also defines the actor's messages.

use tokio::sync::oneshot;

use crate::engine::request::{
    CreateRequest, ExpandRequest, PublishRequest, Response, StageRequest,
};
use crate::engine::step_context::StepContext;
use crate::engine::volume::Volume;
use crate::engine::{expand, formatting, pool, publish, recover, stage, unrecorded};
use crate::error::ProvisionError;
use crate::step::StepExecutor;

pub enum VolumeJob {
    Recover,
    /// Reads the next part of the device.
    Scan,
    /// True takes an authorization back.
    AuthorizeFormat(bool),
    /// The second field is the smallest possible size.
    Create(CreateRequest, u64),
    Delete,
    Expand(ExpandRequest),
    Stage(StageRequest),
    Unstage(String),
    Publish(PublishRequest),
    Unpublish(String),
}

pub enum Request {
    Create(CreateRequest),
    /// Any job except `Recover`, `Scan` and `Create`.
    Operation(String, VolumeJob),
}

pub type Reply = oneshot::Sender<Result<Response, ProvisionError>>;

/// A message to the actor.
pub enum Message {
    Request(Box<Request>, Reply),
    Rescan(oneshot::Sender<()>),
}

impl VolumeJob {
    /// A description for messages.
    pub fn description(&self) -> &'static str {
        match self {
            VolumeJob::Recover => "comparing its records with the host",
            VolumeJob::Scan => "reading its device for data before it is formatted",
            VolumeJob::AuthorizeFormat(_) => "changing the authorization to format it",
            VolumeJob::Create(..) => "creating it",
            VolumeJob::Delete => "deleting it",
            VolumeJob::Expand(_) => "growing it",
            VolumeJob::Stage(_) => "staging it",
            VolumeJob::Unstage(_) => "unstaging it",
            VolumeJob::Publish(_) => "publishing it",
            VolumeJob::Unpublish(_) => "unpublishing it",
        }
    }

    pub async fn run<S: StepExecutor>(
        self,
        ctx: &StepContext<S>,
        volume: &mut Volume,
    ) -> Result<Response, ProvisionError> {
        if let VolumeJob::Create(request, least) = &self {
            pool::create(ctx, volume, request, *least).await?;
            return Ok(Response::Volume(Box::new(volume.view(None))));
        }
        if self.is_detachment() {
            if volume.is_unrecorded() {
                let mut attached = unrecorded::with_attachments(ctx, volume).await?;
                self.detach(ctx, &mut attached).await?;
                return Ok(Response::Done);
            }
            // No recovery: it needs the pool, whose disk may be dead.
            volume.check_detachable()?;
        } else if matches!(self, VolumeJob::Delete) {
            recover::recover_before_deletion(ctx, volume).await?;
        } else {
            recover::recover(ctx, volume).await?;
        }
        if !volume.exists {
            // An interrupted deletion of the volume is now finished.
            return if matches!(self, VolumeJob::Delete | VolumeJob::Recover) {
                Ok(Response::Done)
            } else {
                Err(ProvisionError::volume_not_found(&volume.handle))
            };
        }
        match self {
            VolumeJob::Recover | VolumeJob::Create(..) => {}
            VolumeJob::Scan => formatting::continue_scan(ctx, volume).await?,
            VolumeJob::AuthorizeFormat(revoke) => {
                formatting::authorize(ctx, volume, revoke).await?
            }
            VolumeJob::Delete => pool::delete(ctx, volume).await?,
            VolumeJob::Expand(request) => {
                let expanded = expand::expand(ctx, volume, &request).await?;
                return Ok(Response::Expanded(expanded));
            }
            VolumeJob::Stage(request) => stage::stage(ctx, volume, &request).await?,
            VolumeJob::Publish(request) => publish::publish(ctx, volume, &request).await?,
            VolumeJob::Unstage(_) | VolumeJob::Unpublish(_) => {
                self.detach(ctx, volume).await?;
                let dropped = recover::drop_detached_orphan(ctx, volume);
                if ctx.with_pool_patience(dropped).await.is_err() {
                    // Recovery drops it, and logs why it cannot.
                    volume.is_reconciled = false;
                }
                return Ok(Response::Done);
            }
        }
        recover::drop_detached_orphan(ctx, volume).await?;
        Ok(Response::Done)
    }

    pub(crate) fn is_detachment(&self) -> bool {
        matches!(self, VolumeJob::Unstage(_) | VolumeJob::Unpublish(_))
    }

    async fn detach<S: StepExecutor>(
        &self,
        ctx: &StepContext<S>,
        volume: &mut Volume,
    ) -> Result<(), ProvisionError> {
        match self {
            VolumeJob::Unstage(path) => stage::unstage(ctx, volume, path).await,
            VolumeJob::Unpublish(path) => publish::unpublish(ctx, volume, path).await,
            _ => Ok(()),
        }
    }
}
