//! The engine decides which steps run for which volume, and in which order.
//!
//! In: requests (from `api::server::volumes`), settings, and a `StepExecutor`. Out: responses, a
//! view of all volumes, `SourceUpdate::Provision` on each change. One task owns all volumes
//! (`actor`). Each operation runs in its own task on a copy of its volume, and returns the copy. A
//! volume has one operation at a time; other requests for it are refused until the operation ends.
//! An operation that hangs blocks its own volume only. Only steps access files and devices.
//!
//! Every operation writes its intent first and removes it last, except a detachment (unpublishing,
//! unstaging): it must succeed while the pool's disk is dead, so its record follows the mounts. If an
//! error or the end of the daemon interrupts an operation, `recover` completes it before the next
//! operation on its volume: it undoes an operation that creates something, and finishes one that
//! removes or grows something. After an interrupted detachment it drops records without a mount.
//!
//! Modules import downward only: `actor` → `job` → `stage`, `publish`, `expand`, `pool` → `recover` →
//! `completion`, `unrecorded` → `attachment` → `backing` → `step_context` → `volume` → `view`, `settings`.

mod actor;
mod attachment;
mod backing;
mod completion;
mod discover;
mod expand;
mod formatting;
mod handle;
mod job;
mod pool;
mod publish;
mod recover;
mod request;
mod settings;
mod stage;
mod step_context;
mod unrecorded;
mod view;
mod volume;

#[cfg(test)]
mod tests;

pub use crate::engine::actor::EngineError;
pub use crate::engine::handle::Engine;
pub use crate::engine::request::{CreateRequest, ExpandRequest, PublishRequest, StageRequest};
pub use crate::engine::settings::{Settings, StaticVolume};
pub use crate::engine::view::{EngineView, VolumeView};
