//! Checks in a world of filesystems that do as they are told, in virtual time.

mod cancelling;
pub mod fake;
mod freezing;
mod invariants;
mod queueing;
mod snapshots;
