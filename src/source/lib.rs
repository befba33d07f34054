//! Sources: each module turns one external thing (udev, mounts, the kernel log) into
//! `SourceUpdate`s. A pure `parse` comes first, then a thin reader. A source reports observations,
//! never opinions.
//!
//! May import `model`, `host` and `checker` only.

pub mod checks;
pub mod context;
pub mod counters;
pub mod diskstats;
pub mod events;
pub mod fs_errors;
pub mod hardware;
pub mod inventory;
pub mod jobs;
pub mod kmsg;
pub mod kubelet;
mod lamps;
pub mod layers;
pub mod mounts;
pub mod probe;
mod program;
pub mod smart;
mod status_reporter;
pub mod superblock;
pub mod worker_job;
pub mod worker_main;
mod zpool;
