//! The words that every part has in common: a finding (one problem or notable fact, with its evidence,
//! its start and the condition that clears it), whom it is about, and what an operating system calls
//! its parts (device numbers, paths, mounts). Plain data, pure.

#![warn(unreachable_pub)]

pub mod btrfs_space;
pub mod dev;
pub mod failure_domain;
pub mod ids;
pub mod kubelet;
pub mod mount;
pub mod observation;
pub mod origin;
pub mod path;
pub mod provision;
pub mod reason;
pub mod severity;
pub mod source;
pub mod timing;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{DriveId, FindingId, VolumeId};
use crate::reason::Reason;
use crate::severity::Severity;
use crate::source::Source;

/// The subject of a finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "id", rename_all = "snake_case")]
pub enum Subject {
    Drive(DriveId),
    Volume(VolumeId),
    /// A block device above the drives that carries no volume itself (an md array under LVM, a thin
    /// pool). Kernel name.
    Device(String),
    /// What the daemon reads: it cannot judge the node without it.
    Source(Source),
}

impl std::fmt::Display for Subject {
    /// Unique over the kinds: drive and volume ids cannot start with `dev:` or `source:`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Drive(id) => write!(f, "{id}"),
            Subject::Volume(id) => write!(f, "{id}"),
            Subject::Device(name) => write!(f, "dev:{name}"),
            Subject::Source(source) => write!(f, "source:{}", source.name()),
        }
    }
}

/// The effect on the data, in CSI 1.13's terms. Ordered: the later the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Information,
    Degraded,
    Inaccessible,
    /// Only with proof.
    DataLoss,
}

/// A record that supports a finding, verbatim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The origin of the text: `/proc/1/mountinfo`, `statfs /data`, `/sys/block/md0/md/degraded`.
    pub source: String,
    pub time: Timestamp,
    pub text: String,
    /// What kind of source it is from. Rows of earlier versions do not say it.
    #[serde(default)]
    pub witness: WitnessKind,
    /// It holds now: a record of this boot, or the result of the newest scan, probe or reading. It
    /// is not stored: a finding of an earlier run has no witness before it is judged again.
    #[serde(skip)]
    pub present: bool,
}

/// The kind of source that a piece of evidence is from. Two kinds see a failure independently of
/// each other: the kernel that logged an error, and a later scan that does not find the drive.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum WitnessKind {
    /// The kernel's own record: its log, or a notice of fanotify(7).
    KernelLog,
    /// A scan of sysfs and udev's database.
    Inventory,
    /// A call on the mount, or a query of a device that has not returned.
    Probe,
    /// The drive's answer to smartctl.
    Smart,
    /// Counters of the kernel or of a filesystem.
    Counter,
    /// A filesystem checker.
    Check,
    /// /proc/1/mountinfo.
    MountTable,
    /// The state of an md or device-mapper device.
    Layer,
    /// Records of other programs, conclusions from other findings, past uses; and evidence whose
    /// kind is not known. It never counts as a witness.
    #[default]
    #[serde(other)]
    Other,
}

impl WitnessKind {
    /// Whether its text is about one moment, so that it counts only if that was in this boot. The
    /// others say what is so at the newest reading.
    pub fn is_record(self) -> bool {
        match self {
            WitnessKind::KernelLog
            | WitnessKind::Smart
            | WitnessKind::Counter
            | WitnessKind::Check => true,
            WitnessKind::Inventory
            | WitnessKind::Probe
            | WitnessKind::MountTable
            | WitnessKind::Layer
            | WitnessKind::Other => false,
        }
    }
}

/// The current result of `assess` for one subject and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub subject: Subject,
    pub reason: Reason,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The problem exists.
    Raised(FindingDetails),
    /// Observed to be over: clears an active finding.
    Clear,
    /// Undecidable now: an active finding stays as it is, and no new one is raised.
    Unknown { why: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingDetails {
    pub severity: Severity,
    pub status: Status,
    /// One sentence with the numbers, at most 1,024 bytes.
    pub message: String,
    pub evidence: Vec<Evidence>,
    pub clears_when: String,
    /// What to do in this state, if the reason's own action is not exact enough.
    pub advice: Option<String>,
    /// Its start, if the evidence contains it; otherwise the time at which it was first raised.
    pub since: Option<Timestamp>,
    /// It belongs to the failure of a drive below the volume, which is announced once.
    pub of_drive_failure: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub id: FindingId,
    pub subject: Subject,
    pub reason: Reason,
    pub severity: Severity,
    pub status: Status,
    pub message: String,
    pub since: Timestamp,
    pub last_seen: Timestamp,
    /// How often it appeared or worsened; polls do not count.
    pub count: u64,
    /// The first record and the latest ones, at most `MAX_EVIDENCE`.
    pub evidence: Vec<Evidence>,
    pub clears_when: String,
    /// What to do in this state, if the reason's own action is not exact enough. Not stored: it is
    /// judged anew.
    #[serde(skip)]
    pub advice: Option<String>,
    pub acknowledged: Option<Acknowledgement>,
    /// Maintenance explains it (`model::maintenance`): it is shown and does not count. Not stored: it
    /// is judged anew.
    #[serde(skip)]
    pub maintained: bool,
    pub cleared: Option<Clearance>,
    /// The finding of the same volume that announces their common cause, the failure of a drive.
    /// Notifications, events and `watch` follow that one only.
    #[serde(default)]
    pub follows: Option<FindingId>,
}

pub const MAX_EVIDENCE: usize = 8;

impl Finding {
    pub fn is_active(&self) -> bool {
        self.cleared.is_none()
    }

    /// The order of findings: worst last.
    pub fn weight(&self) -> (Severity, bool, Status) {
        (self.severity, self.reason.leads(), self.status)
    }

    /// What to do.
    pub fn action(&self) -> &str {
        self.advice.as_deref().unwrap_or(self.reason.action_at(self.severity))
    }

    /// It counts in `status` and in alerts: active, adverse, not acknowledged and not explained by
    /// maintenance.
    pub fn is_counted(&self) -> bool {
        self.is_active() && !self.is_set_aside() && self.severity > Severity::Info
    }

    /// A person has acknowledged it, or maintenance explains it.
    pub fn is_set_aside(&self) -> bool {
        self.acknowledged.is_some() || self.maintained
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// `uid 0 (root)`.
    pub by: String,
    pub time: Timestamp,
    pub note: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clearance {
    pub time: Timestamp,
    pub why: String,
    /// An unprivileged user could make it (`finding::origin`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_user_made: bool,
}

/// The level of a finding that a caller has seen, as far as it was given: the finding may have become
/// worse since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenLevel {
    pub severity: Option<Severity>,
    pub status: Option<Status>,
}

impl SeenLevel {
    /// Whether `finding` is worse than what was seen, as an acknowledgement ends when it becomes
    /// worse.
    pub fn is_exceeded_by(self, finding: &Finding) -> bool {
        self.severity.is_some_and(|seen| finding.severity > seen)
            || self.status.is_some_and(|seen| finding.status > seen)
    }
}

/// Health of a drive or a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    Good,
    Suspect,
    Bad,
    /// A source that applies should have reported and did not, or has not reported yet.
    Unknown,
}

/// Why a health is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownHealth {
    pub cause: UnknownCause,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCause {
    /// A source that applies has failed.
    Failed,
    /// The first answer of a source that applies is outstanding.
    Pending,
    /// The drive has been in standby since it is known, and is not woken. Does not count.
    Asleep,
    /// SMART says nothing about the drive now: there is no smartctl, the last answer is too old, or
    /// what lies between passes no commands on. Of an array: nothing reads its state. The volumes on
    /// it are judged by their own evidence.
    NoSmart,
}

impl UnknownHealth {
    pub fn failed(why: impl Into<String>) -> UnknownHealth {
        UnknownHealth { cause: UnknownCause::Failed, why: why.into() }
    }

    pub fn no_smart(why: impl Into<String>) -> UnknownHealth {
        UnknownHealth { cause: UnknownCause::NoSmart, why: why.into() }
    }

    pub fn pending(why: impl Into<String>) -> UnknownHealth {
        UnknownHealth { cause: UnknownCause::Pending, why: why.into() }
    }
}
