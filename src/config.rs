//! Configuration: one TOML file, read and checked as a whole. Unknown keys are errors that name
//! file, line and key.
//!
//! In: the file's text. Out: `Config`, plain values with their defaults. Binds nothing, starts
//! nothing.

pub(crate) mod listen;
pub(crate) mod provision;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::listen::Address;
use crate::config::provision::{CsiConfig, PoolConfig, StaticEntry};
use crate::model::path::HostPath;
use crate::model::policy::checks::CheckPolicy;
use crate::model::policy::smart::{SmartLimits, SmartOverride, SmartPolicy};
use crate::model::policy::{
    ErrorPolicy, Policy, SpacePolicy, ThinPoolPolicy, VolumeSettings, seconds,
};

/// The file that is read when none is named; it may be missing.
pub(crate) const DEFAULT_FILE: &str = "/etc/diskvitals/diskvitals.toml";
/// A recorded tree is asked only through another one.
pub(crate) const DEFAULT_SMARTCTL: &str = "/usr/sbin/smartctl";
/// A drive that is asked more rarely is not watched, and sums of such times stay far from what can
/// be counted.
const MAX_SMART_INTERVAL: Duration = Duration::from_secs(30 * 24 * 3600);
const MAX_SMART_TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
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
    pub errors: ErrorPolicy,
    pub smart: SmartConfig,
    pub checks: CheckPolicy,
    pub history: HistoryConfig,
    pub notify: NotifyConfig,
    pub metrics: MetricsConfig,
    pub csi: CsiConfig,
    pub pool: PoolConfig,
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub statics: Vec<StaticEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    pub level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            level: LogLevel::Info,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DrivesConfig {
    /// Kernel names (`*` and `?` allowed) that count as drives although they usually do not.
    pub admit: Vec<String>,
    /// Kernel names that are not looked at.
    pub ignore: Vec<String>,
    /// Drive ids or kernel names whose findings are shown and not counted.
    pub maintenance: Vec<String>,
    #[serde(with = "seconds")]
    pub forget_missing_after: Duration,
    #[serde(with = "seconds")]
    pub offline_after: Duration,
    /// How often all of sysfs is read anew, behind the events.
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
pub(crate) struct VolumesConfig {
    /// Mount points (`*` and `?` allowed) that are no volumes.
    pub ignore_mounts: Vec<String>,
    /// Filesystem types that are no volumes, besides the pseudo filesystems.
    pub ignore_types: Vec<String>,
    /// CSI drivers that stage without mounting anything at the staging path.
    pub stage_without_mount: Vec<String>,
    /// How long a mount that the kubelet's records ask for may be on its way.
    #[serde(with = "seconds")]
    pub not_mounted_after: Duration,
}

impl Default for VolumesConfig {
    fn default() -> Self {
        let settings = VolumeSettings::default();
        VolumesConfig {
            ignore_mounts: settings.ignore_mounts,
            ignore_types: settings.ignore_types,
            stage_without_mount: settings.stage_without_mount,
            not_mounted_after: Policy::default().not_mounted_after,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProbesConfig {
    #[serde(with = "seconds")]
    pub interval: Duration,
    #[serde(with = "seconds")]
    pub timeout: Duration,
    /// Worker processes that may be stuck at a time; further targets are not asked until one
    /// returns.
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
pub(crate) struct IoConfig {
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
pub(crate) struct CountersConfig {
    /// How often the kernel's error counters are read.
    #[serde(with = "seconds")]
    pub interval: Duration,
}

impl Default for CountersConfig {
    fn default() -> Self {
        CountersConfig {
            interval: Duration::from_secs(60),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FsEventsConfig {
    /// Whether the kernel is asked to tell of each filesystem error (fanotify).
    pub enabled: bool,
}

impl Default for FsEventsConfig {
    fn default() -> Self {
        FsEventsConfig { enabled: true }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KernelLogConfig {
    pub enabled: bool,
    /// The device, below the host's root. A pipe or a file in its place is read as the device would
    /// be.
    pub path: PathBuf,
}

impl Default for KernelLogConfig {
    fn default() -> Self {
        KernelLogConfig {
            enabled: true,
            path: "/dev/kmsg".into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SmartConfig {
    /// Whether drives are asked for their SMART data.
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
    pub timeout: Duration,
    pub at_once: u32,
    /// Sets a feature on NVMe controllers: they announce health events by themselves.
    pub nvme_events: bool,
    pub limits: SmartLimits,
    #[serde(rename = "override", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<SmartOverride>,
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
            // Longer than smartctl's own for one command (60 s, SCSI_TIMEOUT_DEFAULT in
            // scsicmds.h): most hangs then end by themselves.
            timeout: Duration::from_secs(90),
            at_once: 2,
            nvme_events: false,
            limits: SmartLimits::default(),
            overrides: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HistoryConfig {
    #[serde(with = "seconds")]
    pub keep: Duration,
    pub max_findings: u32,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        HistoryConfig {
            keep: Duration::from_secs(90 * 24 * 3600),
            max_findings: 5000,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NotifyConfig {
    /// Run on each transition of severity, with the finding as JSON on standard input.
    pub exec: Option<PathBuf>,
    #[serde(with = "seconds")]
    pub timeout: Duration,
}

impl Default for NotifyConfig {
    fn default() -> Self {
        NotifyConfig {
            exec: None,
            timeout: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MetricsConfig {
    /// Where scrapes are answered (`config::listen`); empty: nowhere. Read at the start.
    pub listen: String,
}

impl MetricsConfig {
    /// None: nowhere. It was checked when the configuration was read.
    pub(crate) fn address(&self) -> Option<Address> {
        self.listen.parse().ok()
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("reading {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The text of toml's error shows the line, the column and the key.
    #[error("{}: {error}", path.display())]
    Parse {
        path: PathBuf,
        error: Box<toml::de::Error>,
    },
    #[error("{}: {key}: {problem}", path.display())]
    Value {
        path: PathBuf,
        key: &'static str,
        problem: String,
    },
}

/// Reads and checks `path`. A missing file is an error unless it is the default one, which then
/// means the defaults.
pub(crate) fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
    let (path, optional) = path.map_or((Path::new(DEFAULT_FILE), true), |path| (path, false));
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text),
        Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Config::default())
        }
        Err(source) => Err(ConfigError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// `path` is for the messages.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let config: Config = toml::from_str(text).map_err(|error| ConfigError::Parse {
        path: path.to_owned(),
        error: Box::new(error),
    })?;
    check(&config).map_err(|(key, problem)| ConfigError::Value {
        path: path.to_owned(),
        key,
        problem,
    })?;
    Ok(config)
}

fn check(config: &Config) -> Result<(), (&'static str, String)> {
    let at_least = |key, value: Duration, least: u64| {
        if value < Duration::from_secs(least) {
            return Err((
                key,
                format!("{}s is too short: at least {least}s", value.as_secs()),
            ));
        }
        Ok(())
    };
    let at_most = |key, value: Duration, most: Duration| {
        if value > most {
            return Err((
                key,
                format!(
                    "{}s is too long: at most {}s",
                    value.as_secs(),
                    most.as_secs()
                ),
            ));
        }
        Ok(())
    };
    at_least(
        "drives.reconcile_interval",
        config.drives.reconcile_interval,
        10,
    )?;
    at_least("probes.interval", config.probes.interval, 1)?;
    at_least("probes.timeout", config.probes.timeout, 1)?;
    at_least("io.interval", config.io.interval, 1)?;
    at_least("io.stalled_after", config.io.stalled_after, 1)?;
    at_least("counters.interval", config.counters.interval, 1)?;
    at_least("notify.timeout", config.notify.timeout, 1)?;
    if !(1..=512).contains(&config.probes.max_stuck) {
        return Err((
            "probes.max_stuck",
            format!("{} is not between 1 and 512", config.probes.max_stuck),
        ));
    }
    let percents = [
        ("space.raise_percent", config.space.raise_percent),
        ("space.clear_percent", config.space.clear_percent),
        (
            "space.raise_inodes_percent",
            config.space.raise_inodes_percent,
        ),
        (
            "space.clear_inodes_percent",
            config.space.clear_inodes_percent,
        ),
        (
            "thin_pool.suspect_percent",
            config.thin_pool.suspect_percent,
        ),
        ("thin_pool.bad_percent", config.thin_pool.bad_percent),
        ("thin_pool.clear_percent", config.thin_pool.clear_percent),
    ];
    if let Some((key, value)) = percents.into_iter().find(|(_, value)| *value > 100) {
        return Err((key, format!("{value} is more than 100 %")));
    }
    if config.space.clear_percent < config.space.raise_percent {
        return Err((
            "space.clear_percent",
            "must not be below space.raise_percent: the finding would come and go".into(),
        ));
    }
    if config.space.clear_inodes_percent < config.space.raise_inodes_percent {
        return Err((
            "space.clear_inodes_percent",
            "must not be below space.raise_inodes_percent: the finding would come and go".into(),
        ));
    }
    let pool = &config.thin_pool;
    if pool.clear_percent > pool.suspect_percent || pool.suspect_percent > pool.bad_percent {
        return Err((
            "thin_pool",
            "must be ordered: clear_percent <= suspect_percent <= bad_percent".into(),
        ));
    }
    if !config.kernel_log.path.is_absolute() {
        return Err((
            "kernel_log.path",
            format!(
                "`{}` is not an absolute path",
                config.kernel_log.path.display()
            ),
        ));
    }
    if !config.smart.command.is_absolute() {
        return Err((
            "smart.command",
            format!(
                "`{}` is not an absolute path",
                config.smart.command.display()
            ),
        ));
    }
    if !(1..=16).contains(&config.smart.at_once) {
        return Err((
            "smart.at_once",
            format!("{} is not between 1 and 16", config.smart.at_once),
        ));
    }
    at_least("smart.interval", config.smart.interval, 1)?;
    at_least("smart.suspect_interval", config.smart.suspect_interval, 1)?;
    at_least("smart.shortest_interval", config.smart.shortest_interval, 1)?;
    at_least("smart.slow_interval", config.smart.slow_interval, 1)?;
    at_least("smart.timeout", config.smart.timeout, 1)?;
    at_most("smart.interval", config.smart.interval, MAX_SMART_INTERVAL)?;
    at_most(
        "smart.suspect_interval",
        config.smart.suspect_interval,
        MAX_SMART_INTERVAL,
    )?;
    at_most(
        "smart.shortest_interval",
        config.smart.shortest_interval,
        MAX_SMART_INTERVAL,
    )?;
    at_most(
        "smart.slow_interval",
        config.smart.slow_interval,
        MAX_SMART_INTERVAL,
    )?;
    at_most("smart.timeout", config.smart.timeout, MAX_SMART_TIMEOUT)?;
    let policy = config.policy().smart;
    let limits = policy
        .overrides
        .iter()
        .map(|set| policy.limits.with(&set.limits))
        .chain([policy.limits.clone()]);
    if let Some(contradiction) = limits
        .into_iter()
        .find_map(|limits| limits.validation_error())
    {
        return Err(contradiction);
    }
    check_checks(&config.checks)?;
    provision::check(&config.statics, &config.csi)?;
    if !config.metrics.listen.is_empty()
        && let Err(error) = config.metrics.listen.parse::<Address>()
    {
        return Err(("metrics.listen", error.to_string()));
    }
    if let Some(exec) = &config.notify.exec
        && !exec.is_absolute()
    {
        return Err((
            "notify.exec",
            format!("`{}` is not an absolute path", exec.display()),
        ));
    }
    Ok(())
}

fn check_checks(checks: &CheckPolicy) -> Result<(), (&'static str, String)> {
    let tools = [
        ("checks.tools.e2fsck", &checks.tools.e2fsck),
        ("checks.tools.xfs_repair", &checks.tools.xfs_repair),
        ("checks.tools.btrfs", &checks.tools.btrfs),
        ("checks.tools.lvm", &checks.tools.lvm),
    ];
    if let Some((key, path)) = tools
        .into_iter()
        .find_map(|(key, path)| Some((key, path.as_ref().filter(|path| !path.is_absolute())?)))
    {
        return Err((key, format!("`{}` is not an absolute path", path.display())));
    }
    checks.validation_error().map_or(Ok(()), Err)
}

impl Config {
    /// The part that judgement needs.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            space: self.space.clone(),
            thin_pool: self.thin_pool.clone(),
            errors: self.errors.clone(),
            checks: self.checks.clone(),
            smart: SmartPolicy {
                limits: self.smart.limits.clone(),
                overrides: self.smart.overrides.clone(),
            },
            io_stalled_after: self.io.stalled_after,
            forget_missing_after: self.drives.forget_missing_after,
            offline_after: self.drives.offline_after,
            not_mounted_after: self.volumes.not_mounted_after,
            maintenance: self.drives.maintenance.clone(),
        }
    }

    /// What counts as a volume.
    pub(crate) fn volume_settings(&self, kubelet_root: HostPath) -> VolumeSettings {
        let volumes = self.volumes.clone();
        VolumeSettings {
            kubelet_root,
            ignore_mounts: volumes.ignore_mounts,
            ignore_types: volumes.ignore_types,
            stage_without_mount: volumes.stage_without_mount,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(Path::new("/etc/x.toml"), text)
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_file_line_and_key() {
        let message = error("[drives]\nadmit = []\nadmitt = [\"loop*\"]\n");
        assert!(
            message.contains("/etc/x.toml")
                && message.contains("line 3")
                && message.contains("admitt"),
            "{message}"
        );
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        let config = parse(
            Path::new("x"),
            "[probes]\ninterval = \"2min\"\ntimeout = 5\n",
        )
        .expect("good");
        assert_eq!(
            (config.probes.interval, config.probes.timeout),
            (Duration::from_secs(120), Duration::from_secs(5))
        );
        assert!(error("[probes]\ninterval = \"soon\"\n").contains("`soon` is not a duration"));
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        assert!(
            error("[space]\nraise_percent = 10\nclear_percent = 5\n")
                .contains("space.clear_percent")
        );
        assert!(error("[thin_pool]\nbad_percent = 50\n").contains("thin_pool"));
        assert!(error("[notify]\nexec = \"mail\"\n").contains("absolute"));
        assert!(error("[kernel_log]\npath = \"kmsg\"\n").contains("absolute"));
        assert!(
            error("[metrics]\nlisten = \"0.0.0.0:9961\"\n")
                .contains("metrics.listen: `0.0.0.0:9961` means every address")
        );
        assert!(
            error("[smart.limits]\npending_bad = 5\npending_suspect = 6\n")
                .contains("smart.limits.pending_bad")
        );
        assert!(
            error("[[smart.override]]\nmodel = \"X*\"\nlimits = { pending_suspect = 101 }\n")
                .contains("smart.limits.pending_bad")
        );
        assert!(
            error("[space]\nraise_percent = 101\nclear_percent = 102\n").contains("more than 100")
        );
    }

    #[test]
    fn smart_interval_and_timeout_have_upper_limits() {
        for key in [
            "interval",
            "suspect_interval",
            "shortest_interval",
            "slow_interval",
        ] {
            let with = |value: &str| format!("[smart]\n{key} = \"{value}\"\n");
            assert!(parse(Path::new("x"), &with("2592000s")).is_ok(), "{key}");
            let message = error(&with("2592001s"));
            assert!(
                message.contains(&format!(
                    "smart.{key}: 2592001s is too long: at most 2592000s"
                )),
                "{message}"
            );
        }
        let message = error("[smart]\ntimeout = \"3601s\"\n");
        assert!(
            message.contains("smart.timeout: 3601s is too long: at most 3600s"),
            "{message}"
        );
    }

    #[test]
    fn the_commented_example_holds_every_key_with_its_default() {
        let example = include_str!("../systemd/diskvitals.toml");
        let uncommented: String = example
            .lines()
            .filter_map(|line| {
                line.strip_prefix("#: ")
                    .or((!line.starts_with('#')).then_some(line))
            })
            .fold(String::new(), |text, line| text + line + "\n");
        let config = parse(Path::new("systemd/diskvitals.toml"), &uncommented)
            .expect("the example is valid");
        let mut expected = Config::default();
        expected.notify.exec = config.notify.exec.clone(); // Has no default to show.
        assert_eq!(config, expected);
        for line in toml::to_string(&Config::default())
            .expect("serialises")
            .lines()
            .filter_map(|line| line.split_once(" = "))
        {
            assert!(
                example.contains(&format!("#: {} = ", line.0)),
                "{} is not in the example",
                line.0
            );
        }
    }

    #[test]
    fn effective_settings_read_back_as_themselves() {
        let text = toml::to_string(&Config::default()).expect("serialises");
        assert_eq!(
            parse(Path::new("x"), &text).expect("reads back"),
            Config::default()
        );
    }
}
