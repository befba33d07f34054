//! The volumes that this node provides itself: made, deleted, grown, staged, published and all of
//! it undone, each behind a record of what is about to be done, so that a daemon which was killed
//! in the middle finishes or undoes it.
//!
//! In: the shim's wishes (through `api::server::volumes`). Out: steps, taken in worker processes;
//! and what there is, told to the owner of the state. It touches no device and no mount itself.

pub mod engine;
pub mod error;
pub mod executor;
pub mod record;
pub mod rules;
pub mod step;
pub mod worker;
