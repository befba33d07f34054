//! The volumes that this node provides itself. The module creates, deletes, expands, stages and
//! publishes them, and reverses each. An intent record precedes every operation but a detachment, so
//! that a daemon that was killed finishes or undoes it at its next start.
//!
//! In: requests of the CSI shim (from `api::server::volumes`). Out: steps, executed in worker
//! processes, and the volumes, sent to the owner of the state. The module itself accesses no device
//! and no mount.

pub mod engine;
pub mod error;
pub mod executor;
pub mod record;
pub mod rules;
pub mod step;
pub mod worker;
