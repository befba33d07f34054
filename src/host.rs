//! The only door to the operating system: files of the host, processes, namespaces, memory. Knows nothing of drives or volumes.
//!
//! Comes in: paths as the host names them. Goes out: bytes, errors, exit statuses.
//! May not enter: judgement, wire types, state.

pub mod btrfs;
pub mod clock;
pub mod dm;
pub mod exec;
pub mod fanotify;
pub mod helper;
pub mod memory;
pub mod namespace;
pub mod process;
pub mod readable;
pub mod root;
mod sys;
pub mod worker;
pub mod xfs;
