//! Configuration: one TOML file, with those that are merged over it, read and checked as a whole.
//! Unknown keys are errors that name file, line and key.
//!
//! In: the files' text. Out: `Config`, plain values with their defaults. It binds no sockets and
//! starts no tasks.

mod check;
mod merge;
mod position;
pub mod provision;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::provision::{CsiConfig, PoolConfig, StaticEntry};
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::policy::CheckPolicy;
use diskvitals_host::listen_address::Address;
use diskvitals_host::trusted_file::read_text;
use diskvitals_model::care::settings::{Care, CareSettings, TaskSchedule};
use diskvitals_model::policy::space::SpacePolicy;
use diskvitals_model::policy::{
    ErrorPolicy, NodeFailurePolicy, Policy, ThinPoolPolicy, VolumeSettings,
};
use diskvitals_smart::advisory::Advisory;
use diskvitals_smart::policy::{DEFAULT_SMARTCTL, SmartLimits, SmartOverride, SmartPolicy};
use diskvitals_text::causes::with_causes;
use diskvitals_text::setting::seconds;

/// The file that is read when none is named; it may be missing.
pub const DEFAULT_FILE: &str = "/etc/diskvitals/diskvitals.toml";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Care that the daemon takes without a `[[schedule]]`.
    pub care: Care,
    pub log: LogConfig,
    pub drives: DrivesConfig,
    pub volumes: VolumesConfig,
    pub probes: ProbesConfig,
    pub io: IoConfig,
    pub counters: CountersConfig,
    pub fs_events: FsEventsConfig,
    pub kernel_log: KernelLogConfig,
    pub space: SpacePolicy,
    pub thin_pool: ThinPoolPolicy,
    pub storage_failed: NodeFailurePolicy,
    pub errors: ErrorPolicy,
    pub smart: SmartConfig,
    pub checks: CheckPolicy,
    pub history: HistoryConfig,
    /// Of earlier builds, whose daemon ran a program itself.
    #[serde(rename = "notify", skip_serializing)]
    pub former_notify: Option<toml::Table>,
    pub metrics: MetricsConfig,
    pub csi: CsiConfig,
    pub cleanup: CleanupConfig,
    pub pool: PoolConfig,
    #[serde(rename = "schedule", skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<TaskSchedule>,
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub statics: Vec<StaticEntry>,
}

impl Config {
    /// What it sets without effect, for `status`: a start that is refused would cost the node its health.
    pub fn warnings(&self) -> Vec<String> {
        let had_program = self.former_notify.as_ref().is_some_and(|it| it.contains_key("exec"));
        let moved = "[notify] exec has no effect: diskvitals-notify runs programs, with a queue that a restart does not lose (a target of kind \"exec\" in /etc/diskvitals/notify.toml); remove the section";
        had_program.then(|| moved.to_owned()).into_iter().collect()
    }
}

/// Orders of the cluster to clean up after pods that were deleted while this node was away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CleanupConfig {
    /// Orders are carried out; otherwise they are only answered.
    pub orders: bool,
    /// Uids that may give them on the agent socket, besides those that may do everything there.
    pub order_uids: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    pub level: LogLevel,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DrivesConfig {
    /// Kernel names (`*` and `?` allowed) that count as drives although they usually do not.
    pub admit: Vec<String>,
    /// Kernel names that are ignored.
    pub ignore: Vec<String>,
    /// Ids or kernel names of drives under maintenance: their findings are shown and not counted.
    pub maintenance: Vec<String>,
    #[serde(with = "seconds")]
    pub forget_missing_after: Duration,
    #[serde(with = "seconds")]
    pub offline_after: Duration,
    /// Interval of full sysfs scans, in addition to events.
    #[serde(with = "seconds")]
    pub reconcile_interval: Duration,
}

impl Default for DrivesConfig {
    fn default() -> Self {
        let policy = Policy::default();
        DrivesConfig {
            admit: Vec::new(),
            ignore: Vec::new(),
            maintenance: Vec::new(),
            forget_missing_after: policy.forget_missing_after,
            offline_after: policy.offline_after,
            reconcile_interval: Duration::from_secs(300),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumesConfig {
    /// Mount points (`*` and `?` allowed) that are not volumes.
    pub ignore_mounts: Vec<String>,
    /// Mount points of FUSE filesystems that are volumes, also of users.
    pub admit_mounts: Vec<String>,
    /// Filesystem types that are not volumes, besides the pseudo filesystems.
    pub ignore_types: Vec<String>,
    /// CSI drivers that stage without mounting anything at the staging path.
    pub stage_without_mount: Vec<String>,
    /// The container runtime's folders, for the node condition StorageFailed.
    pub runtime_directories: Vec<PathBuf>,
    /// Maximum time for a mount that the kubelet's records require to appear.
    #[serde(with = "seconds")]
    pub not_mounted_after: Duration,
    /// Days without a check or a scrub that ended; 0: never too many.
    pub scrub_overdue_days: u32,
}

impl Default for VolumesConfig {
    fn default() -> Self {
        let settings = VolumeSettings::default();
        VolumesConfig {
            ignore_mounts: settings.ignore_mounts,
            admit_mounts: settings.admit_mounts,
            ignore_types: settings.ignore_types,
            stage_without_mount: settings.stage_without_mount,
            runtime_directories: settings
                .runtime_directories
                .iter()
                .map(|directory| directory.as_path().to_owned())
                .collect(),
            not_mounted_after: Policy::default().not_mounted_after,
            scrub_overdue_days: Policy::default().scrub_overdue_days,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbesConfig {
    #[serde(with = "seconds")]
    pub interval: Duration,
    #[serde(with = "seconds")]
    pub timeout: Duration,
    /// Worker processes that may be stuck at a time, of which each failure domain may have a part.
    /// Beyond that, targets are not probed until one returns.
    pub max_stuck: u32,
}

impl Default for ProbesConfig {
    fn default() -> Self {
        ProbesConfig {
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            max_stuck: 32,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IoConfig {
    #[serde(with = "seconds")]
    pub stalled_after: Duration,
    #[serde(with = "seconds")]
    pub interval: Duration,
}

impl Default for IoConfig {
    fn default() -> Self {
        IoConfig {
            stalled_after: Policy::default().io_stalled_after,
            interval: Duration::from_secs(10),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CountersConfig {
    /// Interval of reading the kernel's error counters.
    #[serde(with = "seconds")]
    pub interval: Duration,
}

impl Default for CountersConfig {
    fn default() -> Self {
        CountersConfig { interval: Duration::from_secs(60) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FsEventsConfig {
    /// Whether the kernel reports each filesystem error (fanotify).
    pub enabled: bool,
}

impl Default for FsEventsConfig {
    fn default() -> Self {
        FsEventsConfig { enabled: true }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelLogConfig {
    pub enabled: bool,
    /// The device, below the host's root. A pipe or a file is read like the device.
    pub path: PathBuf,
}

impl Default for KernelLogConfig {
    fn default() -> Self {
        KernelLogConfig { enabled: true, path: "/dev/kmsg".into() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmartConfig {
    /// Whether drives are polled for SMART data.
    pub enabled: bool,
    pub command: PathBuf,
    #[serde(with = "seconds")]
    pub interval: Duration,
    #[serde(with = "seconds")]
    pub suspect_interval: Duration,
    #[serde(with = "seconds")]
    pub shortest_interval: Duration,
    #[serde(with = "seconds")]
    pub slow_interval: Duration,
    #[serde(with = "seconds")]
    pub idle_interval: Duration,
    #[serde(with = "seconds")]
    pub timeout: Duration,
    pub at_once: u32,
    /// Whether to set the feature of NVMe controllers that announces health events.
    pub nvme_events: bool,
    pub limits: SmartLimits,
    #[serde(rename = "override", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<SmartOverride>,
    /// Besides the rows of the package.
    #[serde(rename = "advisory", skip_serializing_if = "Vec::is_empty")]
    pub advisories: Vec<Advisory>,
}

impl Default for SmartConfig {
    fn default() -> Self {
        SmartConfig {
            enabled: true,
            command: DEFAULT_SMARTCTL.into(),
            interval: Duration::from_secs(600),
            suspect_interval: Duration::from_secs(120),
            shortest_interval: Duration::from_secs(30),
            slow_interval: Duration::from_secs(24 * 3600),
            idle_interval: Duration::from_secs(24 * 3600),
            // Longer than smartctl's own time-out for one command (60 s, SCSI_TIMEOUT_DEFAULT in
            // scsicmds.h), so most hangs end by themselves.
            timeout: Duration::from_secs(90),
            at_once: 2,
            nvme_events: false,
            limits: SmartLimits::default(),
            overrides: Vec::new(),
            advisories: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    #[serde(with = "seconds")]
    pub keep: Duration,
    pub max_findings: u32,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        HistoryConfig { keep: Duration::from_secs(90 * 24 * 3600), max_findings: 5000 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// The address for scrapes (`host::listen_address`); empty: none. Read at the start.
    pub listen: String,
}

impl MetricsConfig {
    /// The address, which was checked when the configuration was read; None: no endpoint.
    pub fn address(&self) -> Option<Address> {
        self.listen.parse().ok()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("reading {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The text of toml's error contains the line, the column and the key.
    #[error("{}: {error}", path.display())]
    Parse { path: PathBuf, line: Option<usize>, error: Box<toml::de::Error> },
    #[error("{}: {error}", place(path, *line))]
    Value { path: PathBuf, line: Option<usize>, error: InvalidValue },
}

impl ConfigError {
    /// In one line, with the file's: for `status`.
    pub fn in_one_line(&self) -> String {
        match self {
            ConfigError::Parse { path, line, error } => {
                let text: Vec<&str> = error.message().split_whitespace().collect();
                format!("{}: {}", place(path, *line), text.join(" "))
            }
            ConfigError::Read { .. } | ConfigError::Value { .. } => with_causes(self),
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            ConfigError::Read { path, .. }
            | ConfigError::Parse { path, .. }
            | ConfigError::Value { path, .. } => path,
        }
    }

    /// The file does not exist: its name is wrong.
    pub fn is_missing(&self) -> bool {
        matches!(self, ConfigError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }
}

/// `FILE:LINE`.
fn place(path: &Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    }
}

/// A value that is out of range or contradicts another one.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct InvalidValue {
    key: &'static str,
    problem: String,
}

impl InvalidValue {
    fn new(key: &'static str, problem: impl Into<String>) -> InvalidValue {
        let problem = problem.into();
        InvalidValue { key, problem }
    }
}

/// Reads and checks `path`, and merges `overrides` over it in their order. A missing file is an error,
/// except the default one (without it, the defaults apply) and those of `overrides`.
pub fn load(path: Option<&Path>, overrides: &[PathBuf]) -> Result<Config, ConfigError> {
    merged(&read_files(path, overrides)?)
}

/// As `load`, without the files that are refused, each with its error. One that cannot be read leaves the
/// defaults.
pub fn load_without_refused(
    path: Option<&Path>,
    overrides: &[PathBuf],
) -> (Config, Vec<ConfigError>) {
    let mut refused = Vec::new();
    let mut files = read_files(path, overrides).unwrap_or_else(|error| {
        refused.push(error);
        Vec::new()
    });
    loop {
        match merged(&files) {
            Ok(config) => return (config, refused),
            Err(error) => {
                files.retain(|(path, _)| *path != error.path());
                refused.push(error);
            }
        }
    }
}

/// Each with its text.
fn read_files<'a>(
    path: Option<&'a Path>,
    overrides: &'a [PathBuf],
) -> Result<Vec<(&'a Path, String)>, ConfigError> {
    let (path, optional) = path.map_or((Path::new(DEFAULT_FILE), true), |path| (path, false));
    let overrides = overrides.iter().map(|path| (path.as_path(), true));
    let mut files = Vec::new();
    for (path, optional) in [(path, optional)].into_iter().chain(overrides) {
        match read_text(path) {
            Ok(text) => files.push((path, text)),
            Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
        }
    }
    Ok(files)
}

/// `path` is only for the messages.
pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
    merged(&[(path, text.to_owned())])
}

fn merged(files: &[(&Path, String)]) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    let mut table: Option<toml::Table> = None;
    for (path, text) in files {
        // Each by itself first: the merged table has no lines.
        config = deserialize(path, text)?;
        let over = deserialize(path, text)?;
        match &mut table {
            None => table = Some(over),
            Some(table) => {
                merge::merge(table, over);
                config = table.clone().try_into().map_err(|error| ConfigError::Parse {
                    path: path.to_path_buf(),
                    line: None,
                    error: Box::new(error),
                })?;
            }
        }
    }
    check::check(&config).map_err(|error| invalid(files, error))?;
    Ok(config)
}

fn deserialize<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| ConfigError::Parse {
        path: path.to_owned(),
        line: error.span().map(|span| {
            text.as_bytes()[..span.start.min(text.len())].split(|b| *b == b'\n').count()
        }),
        error: Box::new(error),
    })
}

/// With the last file that sets the key, and the line.
fn invalid(files: &[(&Path, String)], error: InvalidValue) -> ConfigError {
    let lines = files.iter().map(|(path, text)| (*path, position::line_of(text, error.key)));
    let mut lines: Vec<_> = lines.collect();
    let first = lines.first().copied();
    lines.retain(|(_, line)| line.is_some());
    let (path, line) = lines.pop().or(first).unwrap_or((Path::new(DEFAULT_FILE), None));
    ConfigError::Value { path: path.to_owned(), line, error }
}

/// The programs that the configuration names, by key.
pub fn programs(config: &Config) -> [(&'static str, Option<&PathBuf>); 5] {
    let tools = &config.checks.tools;
    [
        ("smart.command", Some(&config.smart.command)),
        ("checks.tools.e2fsck", tools.e2fsck.as_ref()),
        ("checks.tools.xfs_repair", tools.xfs_repair.as_ref()),
        ("checks.tools.btrfs", tools.btrfs.as_ref()),
        ("checks.tools.lvm", tools.lvm.as_ref()),
    ]
}

/// The first program that one of the files sets and that `exists` does not find. The daemon starts
/// without it.
pub fn check_programs(
    path: Option<&Path>,
    overrides: &[PathBuf],
    config: &Config,
    exists: impl Fn(&str, &Path) -> bool,
) -> Result<(), ConfigError> {
    let files = read_files(path, overrides)?;
    let sets = |text: &str, key: &str| {
        let mut value = toml::from_str::<toml::Value>(text).ok();
        for part in key.split('.') {
            value = value.and_then(|value| value.get(part).cloned());
        }
        value.is_some()
    };
    let is_set = |key: &str| files.iter().any(|(_, text)| sets(text, key));
    let missing = programs(config)
        .into_iter()
        .filter_map(|(key, program)| Some((key, program?)))
        .find(|(key, program)| is_set(key) && !exists(key, program));
    match missing {
        None => Ok(()),
        Some((key, program)) => {
            let problem = format!("there is no program `{}`", program.display());
            Err(invalid(&files, InvalidValue::new(key, problem)))
        }
    }
}

/// The advisories of the package, in the format of a configuration file.
fn package_advisories() -> &'static [Advisory] {
    static ROWS: LazyLock<Vec<Advisory>> = LazyLock::new(|| {
        let text = include_str!("../../systemd/advisories.toml");
        let rows: Result<Config, _> = deserialize(Path::new("advisories.toml"), text);
        rows.expect("the package's own table, which a test reads").smart.advisories
    });
    &ROWS
}

impl Config {
    /// The part that assessment needs.
    pub fn policy(&self) -> Policy {
        Policy {
            space: self.space.clone(),
            thin_pool: self.thin_pool.clone(),
            node_failure: self.storage_failed.clone(),
            errors: self.errors.clone(),
            checks: self.checks.clone(),
            care: CareSettings { care: self.care, schedules: self.schedules.clone() },
            smart: SmartPolicy {
                limits: self.smart.limits.clone(),
                overrides: self.smart.overrides.clone(),
                advisories: [package_advisories(), &self.smart.advisories].concat(),
            },
            io_stalled_after: self.io.stalled_after,
            forget_missing_after: self.drives.forget_missing_after,
            offline_after: self.drives.offline_after,
            not_mounted_after: self.volumes.not_mounted_after,
            scrub_overdue_days: self.volumes.scrub_overdue_days,
            smart_answer_valid: Policy::answer_valid(self.smart.interval),
            maintenance: self.drives.maintenance.clone(),
        }
    }

    /// The settings that define volumes.
    pub fn volume_settings(&self, kubelet_root: HostPath) -> VolumeSettings {
        let volumes = self.volumes.clone();
        VolumeSettings {
            kubelet_root,
            ignore_mounts: volumes.ignore_mounts,
            admit_mounts: volumes.admit_mounts,
            ignore_types: volumes.ignore_types,
            stage_without_mount: volumes.stage_without_mount,
            own_driver: Some(self.csi.driver_name.clone()),
            static_directories: provision::directories(&self.statics),
            runtime_directories: volumes
                .runtime_directories
                .iter()
                .map(|directory| HostPath::from(directory.as_path()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
