//! The engine: decides what is done to which volume in which order, and remembers what there is.
//!
//! In: wishes (from `api::server::volumes`), settings, and whoever takes steps. Out: answers, a
//! view of all volumes, `Report::Provision` on each change. One task owns the book; each operation
//! runs in a task of its own with a copy of its volume and gives it back. One operation a volume:
//! another is refused meanwhile. What hangs keeps its own volume busy and nothing else. It touches
//! no file and no device: steps do.
//!
//! Every operation writes its intent first, and removes it last. Whatever ends in between, an error
//! or the whole daemon, is settled the same way (`settle`): what makes a thing is undone, what
//! unmakes it is finished, before anything else is done with that volume.

mod actor;
mod discover;
mod expand;
mod job;
mod pool;
mod publish;
mod recover;
mod stage;
mod step_context;
mod volume;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use crate::model::path::HostPath;
use crate::model::provision::{BackingKind, PodRef, ProvidedVolume, VolumeAccess, default_kind};
pub use crate::provision::engine::actor::{Actor, EngineError};
use crate::provision::error::ProvisionError;
use crate::provision::rules::sizes::CapacityRange;
use crate::provision::step::{PoolCapacity, Wipe};

/// Wishes that wait for the owner of the book.
const REQUEST_QUEUE: usize = 256;

/// What the engine must know. `wipe`, `roots` and `statics` may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The CSI driver that the volumes are of.
    pub driver: String,
    /// The pool's folder, as the host names it: images, and all records.
    pub directory: HostPath,
    /// An administrator has named the folder: it must be there, else its disk is not mounted and
    /// nobody knows what is in it. One that nobody named is made when it is needed.
    pub directory_configured: bool,
    /// The pool's volume group, where there is one.
    pub volume_group: Option<String>,
    pub kubelet_root: HostPath,
    /// Folders that static volumes may lie below.
    pub static_roots: Vec<HostPath>,
    pub wipe: Wipe,
    pub static_volumes: Vec<StaticVolume>,
    /// A caller waits no longer than this; the operation goes on.
    pub request_timeout: Duration,
    /// How often the pool's room is looked at, and what is not settled is tried again.
    pub rescan_interval: Duration,
}

impl Settings {
    /// Of volumes for which none is asked.
    pub fn default_kind(&self) -> BackingKind {
        default_kind(self.directory_configured, self.volume_group.is_some())
    }
}

/// An entry of `[[static]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticVolume {
    pub name: String,
    /// `StaticDevice` or `StaticDirectory`.
    pub kind: BackingKind,
    pub path: HostPath,
}

#[derive(Clone, Debug)]
pub struct CreateRequest {
    pub name: String,
    pub range: CapacityRange,
    /// None: an image in the pool's folder.
    pub kind: Option<BackingKind>,
    pub accesses: Vec<VolumeAccess>,
    pub mkfs_options: String,
}

#[derive(Clone, Debug)]
pub struct ExpandRequest {
    pub handle: String,
    pub range: CapacityRange,
    /// Where the caller believes it to be staged or published.
    pub volume_path: Option<String>,
    pub device_only: bool,
}

#[derive(Clone, Debug)]
pub struct StageRequest {
    pub handle: String,
    pub staging_path: String,
    pub access: VolumeAccess,
}

#[derive(Clone, Debug)]
pub struct PublishRequest {
    pub handle: String,
    /// None: the volume is made ready at the target itself.
    pub staging_path: Option<String>,
    pub target_path: String,
    pub access: VolumeAccess,
    pub read_only: bool,
    pub pod: Option<PodRef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpandResponse {
    pub size: u64,
    /// The filesystem on it has still to be grown.
    pub node_expansion_required: bool,
}

/// One volume, as it is answered.
#[derive(Clone, Debug)]
pub struct VolumeView {
    pub provided: ProvidedVolume,
    pub name: String,
    pub created: Option<Timestamp>,
    pub mkfs_options: String,
    pub accesses: Vec<VolumeAccess>,
    /// What is being done with it, while something is.
    pub activity: Option<watch::Receiver<String>>,
}

impl VolumeView {
    pub fn current_activity(&self) -> Option<String> {
        self.activity.as_ref().map(|busy| busy.borrow().clone())
    }
}

/// All that the engine knows, as of its last change.
#[derive(Clone, Debug, Default)]
pub struct EngineView {
    /// None once the records were read; else why nothing is known yet.
    pub records_error: Option<String>,
    /// Why the volume group's volumes are not known.
    pub volume_group_error: Option<String>,
    pub volumes: BTreeMap<String, VolumeView>,
    /// An entry a kind that is configured.
    pub capacities: Vec<(BackingKind, Result<PoolCapacity, String>)>,
}

impl EngineView {
    /// Whether `handle` is here. What could not be read may be: then nobody knows.
    pub fn find(&self, handle: &str) -> Result<&VolumeView, ProvisionError> {
        if let Some(why) = &self.records_error {
            return Err(ProvisionError::Unavailable(why.clone()));
        }
        match (self.volumes.get(handle), &self.volume_group_error) {
            (Some(seen), _) => Ok(seen),
            (None, Some(why)) => Err(ProvisionError::Unavailable(why.clone())),
            (None, None) => Err(volume::not_found(handle)),
        }
    }
}

enum Request {
    Create(CreateRequest),
    Delete {
        handle: String,
    },
    Expand(ExpandRequest),
    Stage(StageRequest),
    Unstage {
        handle: String,
        staging_path: String,
    },
    Publish(PublishRequest),
    Unpublish {
        handle: String,
        target_path: String,
    },
}

enum Response {
    Volume(Box<VolumeView>),
    Expanded(ExpandResponse),
    Done,
}

type Reply = oneshot::Sender<Result<Response, ProvisionError>>;

enum Message {
    Request(Box<Request>, Reply),
    Rescan(oneshot::Sender<()>),
}

/// What others hold of it.
#[derive(Clone, Debug)]
pub struct Engine {
    messages: mpsc::Sender<Message>,
    view: watch::Receiver<Arc<EngineView>>,
    request_timeout: Duration,
}

impl Engine {
    /// The newest view; from memory.
    pub fn view(&self) -> Arc<EngineView> {
        self.view.borrow().clone()
    }

    /// To wait for a newer one.
    pub fn subscribe(&self) -> watch::Receiver<Arc<EngineView>> {
        self.view.clone()
    }

    pub async fn create(&self, wish: CreateRequest) -> Result<VolumeView, ProvisionError> {
        match self.call(None, Request::Create(wish)).await? {
            Response::Volume(seen) => Ok(*seen),
            Response::Expanded(_) | Response::Done => Err(shutting_down()),
        }
    }

    pub async fn delete(&self, handle: String) -> Result<(), ProvisionError> {
        self.call(Some(handle.clone()), Request::Delete { handle })
            .await
            .map(drop)
    }

    pub async fn expand(&self, wish: ExpandRequest) -> Result<ExpandResponse, ProvisionError> {
        match self
            .call(Some(wish.handle.clone()), Request::Expand(wish))
            .await?
        {
            Response::Expanded(expanded) => Ok(expanded),
            Response::Volume(_) | Response::Done => Err(shutting_down()),
        }
    }

    pub async fn stage(&self, wish: StageRequest) -> Result<(), ProvisionError> {
        self.call(Some(wish.handle.clone()), Request::Stage(wish))
            .await
            .map(drop)
    }

    pub async fn unstage(
        &self,
        handle: String,
        staging_path: String,
    ) -> Result<(), ProvisionError> {
        self.call(
            Some(handle.clone()),
            Request::Unstage {
                handle,
                staging_path,
            },
        )
        .await
        .map(drop)
    }

    pub async fn publish(&self, wish: PublishRequest) -> Result<(), ProvisionError> {
        self.call(Some(wish.handle.clone()), Request::Publish(wish))
            .await
            .map(drop)
    }

    pub async fn unpublish(
        &self,
        handle: String,
        target_path: String,
    ) -> Result<(), ProvisionError> {
        self.call(
            Some(handle.clone()),
            Request::Unpublish {
                handle,
                target_path,
            },
        )
        .await
        .map(drop)
    }

    /// Somebody else has changed mounts of ours (a clean-up): all records are read and compared
    /// with what is there once more.
    pub async fn rescan(&self) {
        let (reply, done) = oneshot::channel();
        if self.messages.send(Message::Rescan(reply)).await.is_ok() {
            // An error: the engine has ended, and there is nothing more to look at.
            let _ = done.await;
        }
    }

    /// The operation goes on when the caller's time is over: a later call finds it done, or still
    /// under way.
    async fn call(
        &self,
        handle: Option<String>,
        wish: Request,
    ) -> Result<Response, ProvisionError> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.messages
                .send(Message::Request(Box::new(wish), reply))
                .await
                .map_err(|_| shutting_down())?;
            answer.await.map_err(|_| shutting_down())?
        };
        tokio::time::timeout(self.request_timeout, asked)
            .await
            .unwrap_or_else(|_| Err(self.deadline_exceeded(handle.as_deref())))
    }

    fn deadline_exceeded(&self, handle: Option<&str>) -> ProvisionError {
        let view = self.view();
        let doing = handle
            .and_then(|handle| view.volumes.get(handle))
            .and_then(VolumeView::current_activity)
            .unwrap_or_else(|| "it waits for the pool".into());
        ProvisionError::DeadlineExceeded(format!(
            "not done within {} s, it goes on: {doing}",
            self.request_timeout.as_secs()
        ))
    }
}

fn shutting_down() -> ProvisionError {
    ProvisionError::Unavailable("the daemon is shutting down".into())
}
