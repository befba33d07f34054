//! All thresholds of judgement, with their defaults. The configuration file sets them; `assess`
//! uses them.

pub mod space;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::care::settings::CareSettings;
use crate::policy::space::SpacePolicy;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::severity::Severity;
use diskvitals_fscheck::policy::CheckPolicy;
use diskvitals_smart::policy::SmartPolicy;
use diskvitals_text::setting::seconds;

/// How long a drive's answer to smartctl counts at least: a daemon that was stopped overnight knows
/// its drives at once.
const MIN_ANSWER_VALID: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    pub space: SpacePolicy,
    pub thin_pool: ThinPoolPolicy,
    pub node_failure: NodeFailurePolicy,
    pub errors: ErrorPolicy,
    pub smart: SmartPolicy,
    pub checks: CheckPolicy,
    pub care: CareSettings,
    /// I/O in flight without any completion for this long is a stall. Longer than a disk's own
    /// error recovery and a controller reset (SCSI's default command time-out is 30 s;
    /// drivers/scsi/sd.h, SD_TIMEOUT).
    #[serde(with = "seconds")]
    pub io_stalled_after: Duration,
    /// A drive that has been missing this long, without volumes on it, is removed.
    #[serde(with = "seconds")]
    pub forget_missing_after: Duration,
    /// A drive counts as offline after this time in a bad kernel state (blocked, resetting,
    /// connecting), because error recovery passes through these states.
    #[serde(with = "seconds")]
    pub offline_after: Duration,
    /// A mount that the kubelet's records require may take this long to appear (attach, mkfs, a
    /// node that boots). One that was mounted before and disappeared is reported after at most ten
    /// seconds.
    #[serde(with = "seconds")]
    pub not_mounted_after: Duration,
    /// Days without a check or a scrub of an array, a pool or a btrfs that ended; 0: never too many. Our
    /// choice: a monthly one that was left out once.
    pub scrub_overdue_days: u32,
    /// A drive's answer to smartctl counts for this long while the drive is awake.
    #[serde(with = "seconds")]
    pub smart_answer_valid: Duration,
    /// Kernel names or ids of drives under maintenance: their findings are shown and do not count.
    pub maintenance: Vec<String>,
}

impl Policy {
    /// A day, or three intervals between queries if that is longer.
    pub fn answer_valid(interval: Duration) -> Duration {
        MIN_ANSWER_VALID.max(interval.saturating_mul(3))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            space: SpacePolicy::default(),
            thin_pool: ThinPoolPolicy::default(),
            node_failure: NodeFailurePolicy::default(),
            errors: ErrorPolicy::default(),
            smart: SmartPolicy::default(),
            checks: CheckPolicy::default(),
            care: CareSettings::default(),
            io_stalled_after: Duration::from_secs(60),
            forget_missing_after: Duration::from_secs(30 * 24 * 3600),
            offline_after: Duration::from_secs(60),
            not_mounted_after: Duration::from_secs(120),
            scrub_overdue_days: 45,
            smart_answer_valid: MIN_ANSWER_VALID,
            maintenance: Vec::new(),
        }
    }
}

/// The definition of a volume. The configuration file's `[volumes]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeSettings {
    /// The kubelet's folder, as the host names it.
    pub kubelet_root: HostPath,
    /// Mount points of the host that are not volumes: `*` matches any characters, `/` included, `?`
    /// matches one.
    pub ignore_mounts: Vec<String>,
    /// Mount points of the host that are volumes although their filesystem type is not (FUSE), or
    /// although a user has mounted it, by the same patterns.
    pub admit_mounts: Vec<String>,
    /// Filesystem types of host mounts that are not volumes, by the same patterns (`fuse.*`).
    pub ignore_types: Vec<String>,
    /// CSI drivers that answer NodeStageVolume without mounting anything at the staging path: no
    /// mount is expected there.
    pub stage_without_mount: Vec<String>,
    /// The CSI driver of the volumes that this node provides.
    pub own_driver: Option<String>,
    /// Those of them that are directories by configuration, whatever the pool's records say.
    pub static_directories: Vec<String>,
    /// The container runtime's folders: without their filesystem the node cannot work.
    pub runtime_directories: Vec<HostPath>,
}

impl VolumeSettings {
    /// Whether a volume is staged without a mount, as far as it is known without its records.
    pub(crate) fn stages_without_mount(&self, driver: &str, handle: &str) -> bool {
        let is = |listed: &String| listed == handle;
        self.stage_without_mount.iter().any(|listed| listed == driver)
            || (self.own_driver.as_deref() == Some(driver)
                && self.static_directories.iter().any(is))
    }
}

impl Default for VolumeSettings {
    fn default() -> Self {
        VolumeSettings {
            kubelet_root: HostPath::from("/var/lib/kubelet"),
            ignore_mounts: Vec::new(),
            admit_mounts: Vec::new(),
            ignore_types: Vec::new(),
            stage_without_mount: vec!["hostpath.csi.k8s.io".to_owned()],
            own_driver: None,
            static_directories: Vec::new(),
            runtime_directories: vec!["/var/lib/containerd".into(), "/var/lib/containers".into()],
        }
    }
}

/// Why a mount of the host is not a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// Its type keeps no data of its own, or only its user knows where.
    Type,
    /// A FUSE filesystem that this user, not root, has mounted.
    User(u32),
    /// `[volumes] ignore_mounts`.
    IgnoredMount,
    /// `[volumes] ignore_types`.
    IgnoredType,
}

/// Used blocks in percent of a thin pool's data or metadata. From `bad`, writes are about to fail
/// for every volume of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThinPoolPolicy {
    pub suspect_percent: u8,
    pub bad_percent: u8,
    pub clear_percent: u8,
}

impl Default for ThinPoolPolicy {
    fn default() -> Self {
        ThinPoolPolicy { suspect_percent: 90, bad_percent: 98, clear_percent: 85 }
    }
}

/// When the node as a whole is unfit, for the node condition StorageFailed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeFailurePolicy {
    /// So many of the drives that carry volumes are unreachable, or more.
    pub unreachable_percent: u8,
}

impl Default for NodeFailurePolicy {
    fn default() -> Self {
        NodeFailurePolicy { unreachable_percent: 50 }
    }
}

/// When kernel errors are more severe than one incident, and when they are over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorPolicy {
    /// Errors that are older than the latest one by more than this do not count.
    #[serde(with = "seconds")]
    pub window: Duration,
    /// A SUSPECT finding is over after this time without another error.
    #[serde(with = "seconds")]
    pub quiet_after: Duration,
    /// A BAD finding is over after this time without another error (and when the drive is
    /// replaced).
    #[serde(with = "seconds")]
    pub bad_quiet_after: Duration,
    /// Distinct sectors within the window that make a drive BAD.
    pub bad_sectors: u32,
    /// Episodes within the window (incidents with ten minutes between them) that make media and I/O
    /// errors BAD.
    pub bad_episodes: u32,
    /// The same for time-outs, which a busy or badly cabled drive also has.
    pub bad_timeouts: u32,
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        let day = 24 * 3600;
        ErrorPolicy {
            window: Duration::from_secs(7 * day),
            quiet_after: Duration::from_secs(day),
            bad_quiet_after: Duration::from_secs(30 * day),
            bad_sectors: 3,
            bad_episodes: 3,
            bad_timeouts: 5,
        }
    }
}

impl ErrorPolicy {
    /// How long no further error must be logged before a finding is over.
    pub fn quiet_period(&self, severity: Severity) -> Duration {
        if severity == Severity::Bad { self.bad_quiet_after } else { self.quiet_after }
    }
}
