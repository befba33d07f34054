//! What a probe of a mounted volume brings back: statfs(2) and one readdir(3), made by a worker
//! process.

use serde::{Deserialize, Serialize};

use crate::model::dev::DevNo;
use crate::model::path::HostPath;

/// `f_bavail` semantics as the kubelet shows them: available is what an unprivileged user can still
/// write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// total - f_bfree.
    pub used_bytes: u64,
    /// 0 where the filesystem has no fixed number of inodes (btrfs, vfat).
    pub total_inodes: u64,
    pub available_inodes: u64,
    pub used_inodes: u64,
}

/// An answer. Each part says on its own how it went: statfs works on a filesystem that has shut
/// down, readdir then does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountProbe {
    pub statfs: Result<Usage, ProbeError>,
    pub readdir: Result<(), ProbeError>,
}

/// What the kernel answered to the probe. This is an observation (the volume said no), not a
/// failure to observe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{operation}: {text}")]
pub struct ProbeError {
    /// `statfs`, `open`, `readdir`.
    pub operation: String,
    pub errno: i32,
    /// `Input/output error (EIO)`.
    pub text: String,
}

/// A probe that has not come back in its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckProbe {
    /// When the probe that does not return was sent.
    pub since: jiff::Timestamp,
    /// What it is waiting in, where /proc/PID/stack or wchan can be read; for evidence.
    pub waiting_in: Option<String>,
    /// The path whose probe is stuck: another mount of the same filesystem is not asked meanwhile,
    /// and says so.
    pub path: HostPath,
}

/// A mount that should be asked how it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeTarget {
    pub path: HostPath,
    /// Mounts of one filesystem share it: they hang together, so only one of them is asked while
    /// one is stuck.
    pub dev: DevNo,
    /// Every drive beneath it is runtime-suspended: asking would wake them.
    pub asleep: bool,
    pub filesystem: String,
}
