//! Checks with a fake backend, whose filesystems behave as a test says, in virtual time.

mod cancelling;
pub mod fake;
mod freezing;
mod invariants;
mod queueing;
mod snapshots;
