//! The engine decides which steps are taken on which volume, and in which order.
//!
//! In: requests (from `api::server::volumes`), settings, and a `StepExecutor`. Out: responses, a view
//! of all volumes, `SourceUpdate::Provision` on each change. One task owns all volumes (`actor`).
//! Each operation runs in a task of its own with a copy of its volume and returns it. A volume has
//! one operation at a time; another request for it is refused until then. An operation that hangs
//! blocks its own volume only. The engine touches no file and no device: steps do.
//!
//! Every operation writes its intent first and removes it last. An operation that an error or the end
//! of the daemon interrupts is handled by `recover` before anything else is done with its volume: one
//! that creates something is undone, one that removes something is finished.
//!
//! Modules import downward only: `actor` → `job` → `stage`, `publish`, `expand`, `pool` → `recover` →
//! `completion` → `attachment` → `backing` → `step_context` → `volume` → `view`, `settings`.

mod actor;
mod attachment;
mod backing;
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

pub(crate) use crate::provision::engine::actor::EngineError;
pub use crate::provision::engine::handle::Engine;
pub(crate) use crate::provision::engine::request::{
    CreateRequest, ExpandRequest, PublishRequest, StageRequest,
};
pub use crate::provision::engine::settings::{Settings, StaticVolume};
pub(crate) use crate::provision::engine::view::{EngineView, VolumeView};
