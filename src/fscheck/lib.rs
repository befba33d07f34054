//! Filesystem checks: the target of a check, the result of each checker run, and the verdict over
//! all runs.
//!
//! This file defines the types of checks. `parse` reads the output of the checkers, `run_result`
//! classifies one run, `decision` chooses the next step and the verdict, and `schedule` computes
//! when a check is due. Pure: no clock, no process, no device. docs/checks.md has the measurements
//! behind the rules.

#![warn(unreachable_pub)]

pub mod decision;
pub mod parse;
pub mod policy;
pub mod repair;
pub mod run_result;
pub mod schedule;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use diskvitals_finding::Evidence;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::{CheckId, DriveId, VolumeId};
use diskvitals_finding::path::HostPath;

/// Filesystems that can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filesystem {
    /// ext2, ext3 and ext4: one checker.
    Ext4,
    Xfs,
    Btrfs,
}

impl Filesystem {
    /// Parses the name that mountinfo and blkid use.
    pub fn from_name(name: &str) -> Option<Filesystem> {
        match name {
            "ext2" | "ext3" | "ext4" => Some(Filesystem::Ext4),
            "xfs" => Some(Filesystem::Xfs),
            "btrfs" => Some(Filesystem::Btrfs),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
        }
    }

    /// The checker program, and the Debian package that contains it.
    pub fn checker(self) -> (&'static str, &'static str) {
        match self {
            Filesystem::Ext4 => ("e2fsck", "e2fsprogs"),
            Filesystem::Xfs => ("xfs_repair", "xfsprogs"),
            Filesystem::Btrfs => ("btrfs", "btrfs-progs"),
        }
    }
}

/// The state of the filesystem while the checker reads it. Ordered: a later mode gives stronger
/// evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Mounted and writable: the data changes while the checker reads it.
    Live,
    /// Mounted and writable, with all writers held (FIFREEZE).
    Frozen,
    /// An LVM snapshot after its log was replayed: equivalent to an unmounted filesystem.
    Snapshot,
    /// Mounted read-only.
    ReadOnly,
    Unmounted,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Live => "live",
            Mode::Frozen => "frozen",
            Mode::Snapshot => "snapshot",
            Mode::ReadOnly => "read-only",
            Mode::Unmounted => "unmounted",
        }
    }

    /// Whether the data does not change during the run: then a single run is evidence.
    pub fn is_quiescent(self) -> bool {
        matches!(self, Mode::Snapshot | Mode::ReadOnly | Mode::Unmounted)
    }

    /// Whether CLEAN in mode `self` clears a finding of mode `other`. All modes in which the data
    /// does not change are equally strong.
    pub fn at_least(self, other: Mode) -> bool {
        let strength = |mode: Mode| match mode {
            Mode::Live => 0,
            Mode::Frozen => 1,
            Mode::Snapshot | Mode::ReadOnly | Mode::Unmounted => 2,
        };
        strength(self) >= strength(other)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunResult {
    /// The checker did all its work and found nothing.
    Clean,
    /// The checker found something; the mode decides whether it is real.
    Findings,
    /// The checker could not do its work: a signal, a time-out, a device that does not respond, out
    /// of memory. The run is no evidence about the filesystem.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    Clean,
    /// A live ext4 had the same findings in all runs; or a btrfs has damaged copies of blocks
    /// beside good ones.
    Suspected,
    /// Found in data that did not change, or reported by the kernel.
    Corrupted,
    /// The filesystem was checked, and the result is not conclusive.
    Inconclusive,
    /// No run was completed.
    Failed,
}

/// How the checker process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Termination {
    Exited(i32),
    Signal(i32),
    /// Killed at its time-out.
    TimedOut,
    /// Killed because the check was cancelled, or its mount was removed.
    #[serde(rename = "stopped")]
    Cancelled,
    /// Killed, but blocked in this kernel function (from /proc).
    Stuck(Option<String>),
    /// The checker was not started, for this reason.
    NotStarted(String),
}

impl Termination {
    /// None when the checker did not exit by itself.
    pub fn exit_status(&self) -> Option<i32> {
        match self {
            Termination::Exited(status) => Some(*status),
            _ => None,
        }
    }

    /// The signal that ended the checker, unless this program sent it.
    pub fn signal(&self) -> Option<i32> {
        match self {
            Termination::Signal(signal) => Some(*signal),
            _ => None,
        }
    }
}

/// The severity of a problem that a checker found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// A healthy frozen filesystem also has it (open but deleted files, lazily updated totals):
    /// filter F drops it.
    Transient,
    /// Wrong bookkeeping (bitmaps, counts), which endangers later writes.
    Bookkeeping,
    /// A line of the checker whose meaning is not known.
    Unknown,
    /// A copy of a block is damaged, and the checker read another one (btrfs).
    DamagedCopy,
    /// Structures or data are damaged.
    Damage,
}

/// A problem that a checker found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `inode-checksum`: a slug that identifies the kind of problem.
    pub kind: String,
    /// The objects concerned: inode, block and AG numbers, names; no memory addresses. Two runs
    /// found the same problem when kind and ids are equal.
    pub ids: Vec<String>,
    pub weight: Weight,
    /// The line that the checker printed, verbatim, at most `parse::MAX_TEXT_BYTES` bytes.
    pub text: String,
}

impl Problem {
    pub fn new(kind: impl Into<String>, ids: Vec<String>, weight: Weight, text: &str) -> Problem {
        Problem {
            kind: kind.into(),
            ids,
            weight,
            text: parse::truncate(text.trim(), parse::MAX_TEXT_BYTES).to_owned(),
        }
    }

    pub(crate) fn is_same_problem(&self, other: &Problem) -> bool {
        self.kind == other.kind && self.ids == other.ids
    }
}

/// A checker's output, for people to read: bounded and compressed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckerOutput {
    /// gzip (RFC 1952) of the first part of the output, at most `MAX_KEPT_OUTPUT` bytes of it.
    #[serde(with = "base64")]
    pub gzip: Arc<[u8]>,
    /// Total bytes of output.
    pub written: u64,
    /// Bytes kept, before compression.
    pub kept: u64,
}

/// How much of a checker's output is kept, in bytes.
pub const MAX_KEPT_OUTPUT: usize = 64 * 1024;

/// One run of a checker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub mode: Mode,
    pub started: Timestamp,
    pub duration: Duration,
    /// `duration` without the time in which the checker was throttled. It decides whether a frozen
    /// run fits the budget.
    pub active: Duration,
    /// How long writers were held, including the freeze itself. None: nothing was frozen.
    pub held: Option<Duration>,
    #[serde(rename = "end")]
    pub termination: Termination,
    #[serde(rename = "ballot")]
    pub result: RunResult,
    /// Why the result is FAILED; empty otherwise.
    #[serde(rename = "why")]
    pub failure_reason: String,
    /// The checker's own message that it could not do its work (a device error, out of memory),
    /// regardless of how the process ended.
    #[serde(rename = "failure", default, skip_serializing_if = "Option::is_none")]
    pub checker_error: Option<String>,
    /// Distinct problems, worst first, at most `parse::MAX_PROBLEMS`.
    #[serde(rename = "flaws")]
    pub problems: Vec<Problem>,
    /// Number of further problems.
    #[serde(rename = "more_flaws")]
    pub more_problems: u64,
    /// The checker's own closing statement is that it found no error, and its exit status says the
    /// same (btrfs check).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_error_found: bool,
    /// The checker's message that a log or journal must be replayed.
    pub pending_replay: Option<String>,
    /// Number of bytes read from the device.
    pub bytes_read: u64,
    /// Largest resident set, in bytes. None: a run that ends within milliseconds may end before it is
    /// measured. (Records of earlier versions have 0 then.)
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "measured")]
    pub peak_memory: Option<u64>,
    /// The command line, in shell syntax.
    pub command: String,
    pub output: CheckerOutput,
    /// The UUID in the superblock of the device that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem_uuid: Option<String>,
}

fn measured<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::deserialize(value)?.filter(|bytes| *bytes > 0))
}

impl Run {
    /// A run without output: no evidence about the filesystem.
    pub fn failed(mode: Mode, started: Timestamp, end: Termination, why: String) -> Run {
        Run {
            mode,
            started,
            duration: Duration::ZERO,
            active: Duration::ZERO,
            held: None,
            termination: end,
            result: RunResult::Failed,
            failure_reason: why,
            checker_error: None,
            problems: Vec::new(),
            more_problems: 0,
            no_error_found: false,
            pending_replay: None,
            bytes_read: 0,
            peak_memory: None,
            command: String::new(),
            output: CheckerOutput::default(),
            filesystem_uuid: None,
        }
    }
}

/// The target of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckTarget {
    /// The name for people: volume id, or `/dev/sdb1`.
    pub name: String,
    pub volume: Option<VolumeId>,
    pub filesystem: Filesystem,
    /// Distinguishes a new filesystem on the same device from the checked one.
    pub uuid: Option<String>,
    /// Kernel name and number of the block device; for btrfs, of its first member.
    pub device: String,
    pub dev: DevNo,
    /// The other members of a btrfs: a check needs all of them.
    pub members: Vec<(String, DevNo)>,
    /// A mount of the filesystem in the host's mount namespace; None when it is not mounted there.
    pub mount: Option<HostPath>,
    /// The number of the mounted filesystem in mountinfo; differs from `dev` for btrfs.
    pub mounted_dev: Option<DevNo>,
    /// Unmounted, ReadOnly or Live, from the mount table.
    pub mode: Mode,
    pub drives: Vec<DriveId>,
    /// `vg/lv` if the device is a logical volume of LVM.
    pub logical_volume: Option<(String, String)>,
}

impl CheckTarget {
    /// `/dev/sdb1`, `/dev/vg/home`: for the commands of an advice.
    pub fn device_path(&self) -> String {
        match &self.logical_volume {
            Some((group, volume)) => format!("/dev/{group}/{volume}"),
            None => format!("/dev/{}", self.device),
        }
    }

    /// The number of the mounted filesystem in mountinfo.
    pub fn mountinfo_dev(&self) -> DevNo {
        self.mounted_dev.unwrap_or(self.dev)
    }
}

/// A report of the kernel about the filesystem, before any run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemSignal {
    pub kind: SignalKind,
    pub evidence: Evidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalKind {
    /// EUCLEAN, EBADMSG, XFS sick bits or corruption in the kernel log: the filesystem is damaged.
    Corrupted,
    /// EIO, a shutdown, an emergency read-only state or counted errors: there is a fault, and
    /// checking the underlying device would make it worse.
    Fault,
}

/// The origin of a check: a request or a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOrigin {
    /// `uid 0 (root)`.
    #[serde(rename = "asked")]
    Requested(String),
    /// The pattern of the policy.
    Scheduled(String),
}

/// The conditions of a check: the policy for this volume, narrowed by the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckTerms {
    /// Maximum number of live runs.
    pub runs: u32,
    /// Frozen runs are allowed for this check.
    pub freeze: bool,
    /// A snapshot of the logical volume may be made.
    pub snapshot: bool,
    /// The check is also allowed on a drive that is failing or stalled.
    pub force: bool,
    /// Maximum time for which writers may be held. A live run must have fitted it before a freeze.
    pub budget: Duration,
    /// Minimum time between two frozen runs.
    pub gap: Duration,
    /// Time-out of a run that is not frozen.
    pub timeout: Duration,
    /// Limit of the checker's address space, in bytes.
    pub memory: u64,
    /// Maximum rate at which live runs read, in bytes per second; None: no limit.
    pub bytes_per_second: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// Not started. `why`: what the check waits for.
    Queued {
        why: String,
    },
    /// `phase`: the current activity (`live run 2 of 3: Pass 1: Checking inodes, blocks,
    /// and sizes`).
    Running {
        phase: String,
        /// While a checker runs.
        #[serde(default)]
        progress: Option<RunProgress>,
    },
    /// Waiting between two frozen runs.
    Waiting {
        until: Timestamp,
        why: String,
    },
    Ended,
}

/// What a running checker says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunActivity {
    /// The phase that it printed last; empty before the first.
    pub phase: String,
    /// The part of the run that is done, in thousandths; None if the checker does not report it.
    pub permille: Option<u16>,
}

/// How far a run of a checker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    pub started: Timestamp,
    /// As the checker reports it.
    pub permille: Option<u16>,
    /// None while too little is done for an estimate.
    pub remaining: Option<Duration>,
}

impl RunProgress {
    /// `elapsed`: since `started`, on a clock that does not jump.
    pub fn new(started: Timestamp, elapsed: Duration, permille: Option<u16>) -> RunProgress {
        const LEAST_PERMILLE: u16 = 20;
        const LEAST_TIME: Duration = Duration::from_secs(2);
        let done = permille.map(|done| done.min(1000));
        let estimable = |done: &u16| *done >= LEAST_PERMILLE && elapsed >= LEAST_TIME;
        let remaining = |done: u16| {
            let left = elapsed.mul_f64(f64::from(1000 - done) / f64::from(done.max(1)));
            Duration::from_secs(left.as_secs())
        };
        RunProgress { started, permille: done, remaining: done.filter(estimable).map(remaining) }
    }
}

/// One check of one filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub id: CheckId,
    pub target: CheckTarget,
    pub origin: CheckOrigin,
    pub terms: CheckTerms,
    pub asked: Timestamp,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub state: CheckState,
    /// The mode of the deciding run; of the strongest run so far while the check is running.
    pub mode: Mode,
    pub runs: Vec<Arc<Run>>,
    pub signals: Vec<FilesystemSignal>,
    /// Set when the check has ended.
    pub verdict: Option<CheckVerdict>,
    /// The reason for the verdict and the recommended action, in one or two sentences.
    pub reason: String,
    /// The check was cancelled and has not ended yet.
    pub cancelled: bool,
    /// A scrub that began after the check has read every member without an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_scrubbed: bool,
}

impl Check {
    /// It found a good copy of each damaged block, and nothing worse.
    pub fn found_only_damaged_copies(&self) -> bool {
        let problems = self.runs.iter().flat_map(|run| &run.problems);
        self.verdict == Some(CheckVerdict::Suspected)
            && self.target.filesystem == Filesystem::Btrfs
            && problems.map(|problem| problem.weight).max() == Some(Weight::DamagedCopy)
    }

    pub fn is_over(&self) -> bool {
        self.state == CheckState::Ended
    }
}

/// A check that the owner requests. The list has all checks that have not ended, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredCheck {
    pub id: CheckId,
    pub target: CheckTarget,
    pub terms: CheckTerms,
    pub scheduled: bool,
    /// The kernel's reports since the last check with verdict CLEAN. If there is any, no checker is
    /// run.
    pub signals: Vec<FilesystemSignal>,
    /// Why the check must not start now (a RAID rebuild, a failing drive).
    pub blocked_by: Option<String>,
    /// Stop at once and thaw: cancelled by a user, mount removed, or pod being deleted.
    pub cancellation: Option<Cancellation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    /// Why, or by which user, the check was cancelled.
    pub reason: String,
}

/// The complete current state of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    pub id: CheckId,
    pub at: Timestamp,
    pub state: CheckState,
    /// All runs so far.
    pub runs: Vec<Arc<Run>>,
    /// Signals that the check itself found (XFS sick bits beyond the summary), and those of
    /// `DesiredCheck`.
    pub signals: Vec<FilesystemSignal>,
    /// Set together with `CheckState::Ended`.
    pub outcome: Option<decision::CheckOutcome>,
}

/// Serializes bytes as base64 text in JSON (RFC 4648).
mod base64 {
    use std::sync::Arc;

    use ::base64::Engine;
    use ::base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        bytes: &Arc<[u8]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<[u8]>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Arc::from).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
