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
mod attachment;
mod completion;
mod discover;
mod expand;
mod handle;
mod job;
mod pool;
mod publish;
mod recover;
mod request;
mod settings;
mod stage;
mod step_context;
mod view;
mod volume;

#[cfg(test)]
mod tests;

pub use crate::provision::engine::actor::{Actor, EngineError};
pub use crate::provision::engine::handle::Engine;
pub use crate::provision::engine::request::{
    CreateRequest, ExpandRequest, ExpandResponse, PublishRequest, StageRequest,
};
pub use crate::provision::engine::settings::{Settings, StaticVolume};
pub use crate::provision::engine::view::{EngineView, VolumeView};
