//! Checks in a world of filesystems that do as they are told, in virtual time.

pub mod fake;
mod freezing;
mod law;
mod order;
mod snapshots;
mod stopping;
