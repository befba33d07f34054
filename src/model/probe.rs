//! The result of probing a mounted volume: statfs(2) and one readdir(3), made by a worker process.

use serde::{Deserialize, Serialize};

use diskvitals_finding::btrfs_space::BtrfsSpace;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::failure_domain::FailureDomains;
use diskvitals_finding::path::HostPath;

/// As the kubelet reports it: available is the space for unprivileged users (`f_bavail`).
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

/// Used space or inodes in percent of those for unprivileged users, rounded up as df(1) does. What is
/// left is rounded down, so that both add up to 100.
pub fn used_percent(used: u64, available: u64) -> Option<u64> {
    let whole = u128::from(used) + u128::from(available);
    (whole > 0).then(|| u64::try_from((u128::from(used) * 100).div_ceil(whole)).unwrap_or(100))
}

/// The same as text. Where something is left, `over 99 %` for what rounds to all of it.
pub fn used_share(used: u64, available: u64) -> Option<String> {
    Some(match used_percent(used, available)? {
        100 if available > 0 => "over 99 %".to_owned(),
        share => format!("{share} %"),
    })
}

/// A response. Each part has its own result: on a filesystem that has shut down, statfs works and
/// readdir does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountProbe {
    pub statfs: Result<Usage, ProbeError>,
    pub readdir: Result<(), ProbeError>,
    /// What a btrfs can still allocate, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub btrfs: Option<Box<BtrfsSpace>>,
    /// The mount's id that no other mount of this boot has (STATX_MNT_ID_UNIQUE, since Linux 6.8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_id: Option<u64>,
}

/// An error that the kernel returned to the probe. This is an observation (the volume answered with
/// an error), not a failure to observe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{operation}: {text}")]
pub struct ProbeError {
    /// `statfs`, `open`, `readdir`.
    pub operation: String,
    pub errno: i32,
    /// `Input/output error (EIO)`.
    pub text: String,
}

/// A probe that has not returned in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckProbe {
    /// When the probe was started.
    pub since: jiff::Timestamp,
    /// The kernel function in which it waits, where /proc/PID/stack or wchan can be read; for
    /// evidence.
    pub waiting_in: Option<String>,
    /// The path of the stuck probe. Other mounts of the same filesystem are not probed until it
    /// returns, and refer to this path.
    pub path: HostPath,
}

/// How often a mount may be probed, besides the load of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbePace {
    #[default]
    Local,
    /// A server answers, which every node probes.
    Network,
    /// A rotating drive below it does nothing, and may stop turning.
    Idle,
}

/// A mount to probe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeTarget {
    pub path: HostPath,
    /// The mount's id in the host's mountinfo.
    pub id: u32,
    /// Mounts of one filesystem share this number: they hang together, so only one of them is
    /// probed while one is stuck.
    pub dev: DevNo,
    /// Every underlying drive is runtime-suspended: a probe would wake it.
    pub asleep: bool,
    /// The drives below have done nothing since the last probe, and may sleep: it is probed on request
    /// only.
    pub at_rest: bool,
    pub filesystem: String,
    pub pace: ProbePace,
    /// The UUID of a btrfs of which the record of the last scrub is needed.
    pub awaited_scrub: Option<String>,
    /// What hangs together with it: limits how many stuck workers it costs.
    pub domains: FailureDomains,
}
