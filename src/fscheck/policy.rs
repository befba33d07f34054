//! The policy of filesystem checks: which are allowed on which volume, when, and within which
//! limits. The configuration's `[checks]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::CheckTerms;
use crate::schedule::{Calendar, Schedule};
use diskvitals_finding::path::HostPath;
use diskvitals_text::pattern;
use diskvitals_text::setting::{bytes, optional_seconds, seconds};

/// Two closer frozen runs could show the same temporary state twice (docs/checks.md).
const MIN_FROZEN_GAP: Duration = Duration::from_secs(60);
/// A check reads all metadata, which is expensive.
const MIN_INTERVAL: Duration = Duration::from_secs(3600);

fn interval_too_short(key: &'static str, interval: Duration) -> Option<(&'static str, String)> {
    let seconds = interval.as_secs();
    (!interval.is_zero() && interval < MIN_INTERVAL)
        .then(|| (key, format!("{seconds}s is too often: at least 3600s, or 0 for never")))
}

/// Whether writers may be held during one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    #[default]
    Never,
    /// Only in a check that requests it (`check --freeze`).
    OnDemand,
    /// Also in scheduled checks.
    Scheduled,
}

impl Permission {
    /// `asked`: the request includes it. `scheduled`: the check has no request, it was due.
    pub fn allows(self, asked: bool, scheduled: bool) -> bool {
        match self {
            Permission::Never => false,
            Permission::OnDemand => asked && !scheduled,
            Permission::Scheduled => asked || scheduled,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckPolicy {
    pub freeze: Permission,
    /// Whether snapshots of logical volumes (LVM) may be the source of a check.
    pub snapshot: Permission,
    /// Live runs that must all agree before a live ext4 is suspected; at least 3.
    pub runs: u32,
    /// Maximum time for holding writers; a live run must have needed less before.
    #[serde(with = "seconds")]
    pub budget: Duration,
    /// Minimum time between two frozen runs; at least 60 s (docs/checks.md).
    #[serde(with = "seconds")]
    pub frozen_gap: Duration,
    /// Interval of scheduled checks; None: never.
    #[serde(with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// Scheduled checks are spread over this time.
    #[serde(with = "seconds")]
    pub jitter: Duration,
    /// Time limit of a run that is not frozen.
    #[serde(with = "seconds")]
    pub timeout: Duration,
    /// Address space of a checker, in bytes.
    #[serde(with = "bytes")]
    pub memory_bytes: u64,
    /// Read rate of a live run in bytes per second; 0: no limit.
    #[serde(with = "bytes")]
    pub read_bytes_per_second: u64,
    /// Checks that may run at a time, on the whole node.
    pub at_once: u32,
    /// Checks that may wait; more are refused.
    pub max_queued: u32,
    /// A scheduled check does not start while tasks waited for I/O for more than this percentage of
    /// the last minute (`some avg60` of /proc/pressure/io). If the kernel does not report it, the
    /// busy time of an underlying drive is used.
    pub max_io_pressure: u8,
    /// Number of checks that are stored for each filesystem.
    pub keep: u32,
    pub tools: Tools,
    /// The first match counts.
    #[serde(rename = "policy", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<VolumeCheckPolicy>,
}

impl Default for CheckPolicy {
    fn default() -> Self {
        CheckPolicy {
            freeze: Permission::Never,
            snapshot: Permission::Never,
            runs: 3,
            budget: Duration::from_secs(5),
            frozen_gap: Duration::from_secs(60),
            interval: None,
            jitter: Duration::from_secs(3600),
            timeout: Duration::from_secs(3600),
            memory_bytes: 1 << 30,
            read_bytes_per_second: 20_000_000,
            at_once: 1,
            max_queued: 64,
            max_io_pressure: 20,
            keep: 10,
            tools: Tools::default(),
            policies: Vec::new(),
        }
    }
}

/// Absolute paths of the programs; a missing one is searched in the usual places of distributions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2fsck: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xfs_repair: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub btrfs: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lvm: Option<PathBuf>,
}

/// Differences for some volumes. Missing values are taken from `[checks]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeCheckPolicy {
    /// Ids, mount points, PVs or `driver` names of volumes (`*` and `?` allowed).
    pub volumes: Vec<String>,
    pub freeze: Option<Permission>,
    pub snapshot: Option<Permission>,
    pub runs: Option<u32>,
    #[serde(with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub budget: Option<Duration>,
    /// Either this or `calendar`; `interval = 0` switches the schedule of `[checks]` off.
    #[serde(with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    pub calendar: Option<Calendar>,
}

/// The policy in force for one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveCheckPolicy {
    pub freeze: Permission,
    pub snapshot: Permission,
    pub runs: u32,
    pub budget: Duration,
    pub schedule: Option<Schedule>,
    /// The pattern that matched; `[checks]` if none did.
    pub policy: String,
}

impl CheckPolicy {
    /// The key, and the problem with its value.
    pub fn validation_error(&self) -> Option<(&'static str, String)> {
        let out_of_range = |key, value: u32, least: u32, most: u32| {
            let wrong = !(least..=most).contains(&value);
            wrong.then(|| (key, format!("{value} is not between {least} and {most}")))
        };
        let budget = |key, budget: Duration| {
            let wrong = budget < Duration::from_secs(1) || budget > Duration::from_secs(60);
            let seconds = budget.as_secs();
            wrong.then(|| {
                (key, format!("{seconds}s is not between 1s and 60s: writers wait for so long"))
            })
        };
        let own = self.policies.iter().find_map(|policy| {
            if policy.volumes.is_empty() {
                return Some((
                    "checks.policy.volumes",
                    "names nothing: give patterns of volumes".to_owned(),
                ));
            }
            if policy.interval.is_some() && policy.calendar.is_some() {
                return Some((
                    "checks.policy.calendar",
                    "there is an interval as well: give one of both".to_owned(),
                ));
            }
            let interval = policy.interval;
            interval
                .and_then(|interval| interval_too_short("checks.policy.interval", interval))
                .or_else(|| out_of_range("checks.policy.runs", policy.runs?, 3, 20))
                .or_else(|| budget("checks.policy.budget", policy.budget?))
        });
        let (gap, timeout, memory) = (self.frozen_gap, self.timeout, self.memory_bytes);
        let gap = (gap < MIN_FROZEN_GAP || gap > Duration::from_secs(3600)).then(|| {
            ("checks.frozen_gap", format!("{}s is not between 60s and 3600s", gap.as_secs()))
        });
        let memory = (memory < 64 << 20).then(|| {
            let text = format!("{memory} is too little: at least 67108864 (64 MiB)");
            ("checks.memory_bytes", text)
        });
        let allowed = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
        let timeout = (!allowed.contains(&timeout)).then(|| {
            ("checks.timeout", format!("{}s is not between 10s and 24h", timeout.as_secs()))
        });
        let pressure = (self.max_io_pressure > 100).then(|| {
            ("checks.max_io_pressure", format!("{} is more than 100 %", self.max_io_pressure))
        });
        out_of_range("checks.runs", self.runs, 3, 20)
            .or(budget("checks.budget", self.budget))
            .or(gap)
            .or(out_of_range("checks.at_once", self.at_once, 1, 16))
            .or(out_of_range("checks.max_queued", self.max_queued, 1, 1000))
            .or(out_of_range("checks.keep", self.keep, 1, 100))
            .or(memory)
            .or(timeout)
            .or(pressure)
            .or_else(|| interval_too_short("checks.interval", self.interval?))
            .or(own)
    }

    /// The terms by the policy alone; neither frozen nor forced.
    pub fn terms(&self, rules: &EffectiveCheckPolicy) -> CheckTerms {
        CheckTerms {
            runs: rules.runs,
            freeze: false,
            snapshot: false,
            force: false,
            budget: rules.budget,
            gap: self.frozen_gap,
            timeout: self.timeout,
            memory: self.memory_bytes,
            bytes_per_second: Some(self.read_bytes_per_second).filter(|rate| *rate > 0),
        }
    }

    /// The policy of the first pattern that matches one of the names: of a volume (`VolumeFacts::names`),
    /// or of a device that is none (`/dev/sdb1`).
    pub fn for_names(&self, names: &[HostPath]) -> EffectiveCheckPolicy {
        let fits =
            |pattern: &String| names.iter().any(|name| pattern::matches(pattern, name.as_bytes()));
        let found = self.policies.iter().find_map(|policy| {
            Some((policy, policy.volumes.iter().find(|pattern| fits(pattern))?))
        });
        let given = found.map(|(policy, _)| policy.clone()).unwrap_or_default();
        let every = |interval: Duration| (!interval.is_zero()).then_some(Schedule::Every(interval));
        let schedule = match (given.calendar, given.interval) {
            (Some(calendar), _) => Some(Schedule::At(calendar)),
            (None, Some(interval)) => every(interval),
            (None, None) => self.interval.and_then(every),
        };
        EffectiveCheckPolicy {
            freeze: given.freeze.unwrap_or(self.freeze),
            snapshot: given.snapshot.unwrap_or(self.snapshot),
            runs: given.runs.unwrap_or(self.runs),
            budget: given.budget.unwrap_or(self.budget),
            schedule,
            policy: found.map_or_else(|| "[checks]".to_owned(), |(_, pattern)| pattern.clone()),
        }
    }
}
