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
mod grow;
mod hand;
mod job;
mod look;
mod pool;
mod publish;
mod settle;
mod stage;
mod volume;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

pub use crate::attach::engine::actor::{Actor, EngineError};
use crate::attach::fault::Fault;
use crate::attach::rules::sizes::Range;
use crate::attach::step::{Room, Wipe};
use crate::model::attach::{Access, Kind, PodOf, Provided, default_kind};
use crate::model::path::HostPath;

/// Wishes that wait for the owner of the book.
const QUEUE: usize = 256;

/// What the engine must know. `wipe`, `roots` and `statics` may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The CSI driver that the volumes are of.
    pub driver: String,
    /// The pool's folder, as the host names it: images, and all records.
    pub folder: HostPath,
    /// An administrator has named the folder: it must be there, else its disk is not mounted and
    /// nobody knows what is in it. One that nobody named is made when it is needed.
    pub folder_given: bool,
    /// The pool's volume group, where there is one.
    pub group: Option<String>,
    pub kubelet_root: HostPath,
    /// Folders that static volumes may lie below.
    pub roots: Vec<HostPath>,
    pub wipe: Wipe,
    pub statics: Vec<StaticVolume>,
    /// A caller waits no longer than this; the operation goes on.
    pub patience: Duration,
    /// How often the pool's room is looked at, and what is not settled is tried again.
    pub look_every: Duration,
}

impl Settings {
    /// Of volumes for which none is asked.
    pub fn default_kind(&self) -> Kind {
        default_kind(self.folder_given, self.group.is_some())
    }
}

/// An entry of `[[static]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticVolume {
    pub name: String,
    /// `StaticDevice` or `StaticDirectory`.
    pub kind: Kind,
    pub path: HostPath,
}

#[derive(Clone, Debug)]
pub struct CreateWish {
    pub name: String,
    pub range: Range,
    /// None: an image in the pool's folder.
    pub kind: Option<Kind>,
    pub accesses: Vec<Access>,
    pub mkfs_options: String,
}

#[derive(Clone, Debug)]
pub struct ExpandWish {
    pub handle: String,
    pub range: Range,
    /// Where the caller believes it to be staged or published.
    pub volume_path: Option<String>,
    pub device_only: bool,
}

#[derive(Clone, Debug)]
pub struct StageWish {
    pub handle: String,
    pub staging_path: String,
    pub access: Access,
}

#[derive(Clone, Debug)]
pub struct PublishWish {
    pub handle: String,
    /// None: the volume is made ready at the target itself.
    pub staging_path: Option<String>,
    pub target_path: String,
    pub access: Access,
    pub read_only: bool,
    pub pod: Option<PodOf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expanded {
    pub size: u64,
    /// The filesystem on it has still to be grown.
    pub node_expansion_required: bool,
}

/// One volume, as it is answered.
#[derive(Clone, Debug)]
pub struct Seen {
    pub provided: Provided,
    pub name: String,
    pub created: Option<Timestamp>,
    pub mkfs_options: String,
    pub accesses: Vec<Access>,
    /// What is being done with it, while something is.
    pub busy: Option<watch::Receiver<String>>,
}

impl Seen {
    pub fn doing(&self) -> Option<String> {
        self.busy.as_ref().map(|busy| busy.borrow().clone())
    }
}

/// All that the engine knows, as of its last change.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// None once the records were read; else why nothing is known yet.
    pub unknown: Option<String>,
    /// Why the volume group's volumes are not known.
    pub group_unknown: Option<String>,
    pub volumes: BTreeMap<String, Seen>,
    /// An entry a kind that is configured.
    pub rooms: Vec<(Kind, Result<Room, String>)>,
}

impl View {
    /// Whether `handle` is here. What could not be read may be: then nobody knows.
    pub fn find(&self, handle: &str) -> Result<&Seen, Fault> {
        if let Some(why) = &self.unknown {
            return Err(Fault::Unavailable(why.clone()));
        }
        match (self.volumes.get(handle), &self.group_unknown) {
            (Some(seen), _) => Ok(seen),
            (None, Some(why)) => Err(Fault::Unavailable(why.clone())),
            (None, None) => Err(volume::unknown(handle)),
        }
    }
}

enum Wish {
    Create(CreateWish),
    Delete {
        handle: String,
    },
    Expand(ExpandWish),
    Stage(StageWish),
    Unstage {
        handle: String,
        staging_path: String,
    },
    Publish(PublishWish),
    Unpublish {
        handle: String,
        target_path: String,
    },
}

enum Answer {
    Volume(Box<Seen>),
    Expanded(Expanded),
    Done,
}

type Reply = oneshot::Sender<Result<Answer, Fault>>;

enum Message {
    Wish(Box<Wish>, Reply),
    LookAgain(oneshot::Sender<()>),
}

/// What others hold of it.
#[derive(Clone, Debug)]
pub struct Engine {
    messages: mpsc::Sender<Message>,
    view: watch::Receiver<Arc<View>>,
    patience: Duration,
}

impl Engine {
    /// The newest view; from memory.
    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// To wait for a newer one.
    pub fn views(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    pub async fn create(&self, wish: CreateWish) -> Result<Seen, Fault> {
        match self.ask(None, Wish::Create(wish)).await? {
            Answer::Volume(seen) => Ok(*seen),
            Answer::Expanded(_) | Answer::Done => Err(gone()),
        }
    }

    pub async fn delete(&self, handle: String) -> Result<(), Fault> {
        self.ask(Some(handle.clone()), Wish::Delete { handle })
            .await
            .map(drop)
    }

    pub async fn expand(&self, wish: ExpandWish) -> Result<Expanded, Fault> {
        match self
            .ask(Some(wish.handle.clone()), Wish::Expand(wish))
            .await?
        {
            Answer::Expanded(expanded) => Ok(expanded),
            Answer::Volume(_) | Answer::Done => Err(gone()),
        }
    }

    pub async fn stage(&self, wish: StageWish) -> Result<(), Fault> {
        self.ask(Some(wish.handle.clone()), Wish::Stage(wish))
            .await
            .map(drop)
    }

    pub async fn unstage(&self, handle: String, staging_path: String) -> Result<(), Fault> {
        self.ask(
            Some(handle.clone()),
            Wish::Unstage {
                handle,
                staging_path,
            },
        )
        .await
        .map(drop)
    }

    pub async fn publish(&self, wish: PublishWish) -> Result<(), Fault> {
        self.ask(Some(wish.handle.clone()), Wish::Publish(wish))
            .await
            .map(drop)
    }

    pub async fn unpublish(&self, handle: String, target_path: String) -> Result<(), Fault> {
        self.ask(
            Some(handle.clone()),
            Wish::Unpublish {
                handle,
                target_path,
            },
        )
        .await
        .map(drop)
    }

    /// Somebody else has changed mounts of ours (a clean-up): all records are read and compared
    /// with what is there once more.
    pub async fn look_again(&self) {
        let (reply, done) = oneshot::channel();
        if self.messages.send(Message::LookAgain(reply)).await.is_ok() {
            // An error: the engine has ended, and there is nothing more to look at.
            let _ = done.await;
        }
    }

    /// The operation goes on when the caller's time is over: a later call finds it done, or still
    /// under way.
    async fn ask(&self, handle: Option<String>, wish: Wish) -> Result<Answer, Fault> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.messages
                .send(Message::Wish(Box::new(wish), reply))
                .await
                .map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        };
        tokio::time::timeout(self.patience, asked)
            .await
            .unwrap_or_else(|_| Err(self.late(handle.as_deref())))
    }

    fn late(&self, handle: Option<&str>) -> Fault {
        let view = self.view();
        let doing = handle
            .and_then(|handle| view.volumes.get(handle))
            .and_then(Seen::doing)
            .unwrap_or_else(|| "it waits for the pool".into());
        Fault::Deadline(format!(
            "not done within {} s, it goes on: {doing}",
            self.patience.as_secs()
        ))
    }
}

fn gone() -> Fault {
    Fault::Unavailable("the daemon is shutting down".into())
}
