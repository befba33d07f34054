//! Sources: each module turns one external thing (udev, mounts, the kernel log) into
//! `SourceUpdate`s. A pure `parse` comes first, then a thin reader. A source reports observations,
//! never opinions.
//!
//! May import `model`, `host` and `checker` only.

pub mod checks;
pub mod context;
pub mod counters;
pub(crate) mod diskstats;
#[cfg(feature = "daemon")]
pub mod events;
pub mod fs_errors;
#[cfg(feature = "daemon")]
pub(crate) mod hardware;
pub mod inventory;
pub mod jobs;
pub(crate) mod kmsg;
pub(crate) mod kubelet;
pub mod layers;
pub(crate) mod mounts;
pub(crate) mod probe;
pub(crate) mod smart;
mod status_reporter;
pub(crate) mod superblock;
mod worker_job;
pub mod worker_main;
