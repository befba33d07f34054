//! Converts the configuration and the options to the settings of each part of the daemon, and
//! creates the channels that carry them: a reload sends new ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::api::server::{AgentCallers, ConfigInForce, OrderSettings};
use crate::app::options::Options;
use crate::app::provisioning;
use crate::state::settings::{AssessmentSettings, SharedAssessmentSettings};
use diskvitals_config::{Config, ConfigError, SmartConfig};
use diskvitals_finding::path::HostPath;
use diskvitals_model::ledger::RetentionLimits;
use diskvitals_provision::engine::Settings as VolumesSettings;
use diskvitals_smart::policy::SmartOverride;
use diskvitals_source::context::{
    CheckSettings, DeviceType, KernelLogSettings, SmartSettings, SourceSettings,
};

/// Scans of sysfs and of the kubelet's directory take milliseconds.
const SCAN_TIMEOUT: Duration = Duration::from_secs(15);

/// The channels for the settings that a reload can change.
pub(crate) struct ReloadChannels {
    pub assessment: watch::Sender<SharedAssessmentSettings>,
    pub sources: watch::Sender<Arc<SourceSettings>>,
    pub agent_callers: watch::Sender<AgentCallers>,
    pub orders: watch::Sender<OrderSettings>,
    pub volumes: watch::Sender<Arc<VolumesSettings>>,
    /// For people.
    pub in_force: watch::Sender<ConfigInForce>,
    at_start: Config,
    /// What is in force when a file is refused.
    fallback: &'static str,
}

/// Settings that only a start reads, by their keys.
type StartSettings = [(&'static str, String); 5];

fn start_settings(config: &Config) -> StartSettings {
    [
        ("metrics.listen", config.metrics.listen.clone()),
        ("probes.max_stuck", config.probes.max_stuck.to_string()),
        ("csi.driver_name", config.csi.driver_name.clone()),
        ("pool.directory", format!("{:?}", config.pool.directory)),
        ("pool.volume_group", format!("{:?}", config.pool.volume_group)),
    ]
}

/// `config` with what only a start reads as it was then.
fn with_start_settings(config: &Config, at_start: &Config) -> Config {
    let mut config = config.clone();
    config.metrics.listen.clone_from(&at_start.metrics.listen);
    config.probes.max_stuck = at_start.probes.max_stuck;
    config.csi.driver_name.clone_from(&at_start.csi.driver_name);
    config.pool.directory.clone_from(&at_start.pool.directory);
    config.pool.volume_group.clone_from(&at_start.pool.volume_group);
    config
}

impl ReloadChannels {
    pub(crate) fn new(config: &Config, options: &Options) -> ReloadChannels {
        ReloadChannels {
            assessment: watch::Sender::new(assessment_settings(config, options, config.warnings())),
            sources: watch::Sender::new(source_settings(config, options)),
            agent_callers: watch::Sender::new(agent_callers(config)),
            orders: watch::Sender::new(order_settings(config)),
            volumes: watch::Sender::new(Arc::new(provisioning::settings(config, options))),
            in_force: watch::Sender::new(config_in_force(config, options, config.warnings())),
            at_start: config.clone(),
            fallback: "the settings before it stay in force",
        }
    }

    /// Files were refused at the start: the others are in force, or the defaults, with which no storage
    /// is changed.
    pub(crate) fn refuse_at_start(&mut self, refused: &[ConfigError]) {
        let is_refused =
            |file: &String| refused.iter().any(|error| error.path() == Path::new(file));
        self.in_force.send_modify(|config| config.files.retain(|file| !is_refused(file)));
        let nothing_is_good = self.in_force.borrow().files.is_empty()
            || refused.iter().any(|error| matches!(error, ConfigError::Read { .. }));
        self.fallback = match nothing_is_good {
            true => "the defaults are in force",
            false => "the other files are in force",
        };
        self.refuse(refused);
    }

    /// The files are refused: `status` says so until good ones are read.
    pub(crate) fn refuse(&self, refused: &[ConfigError]) {
        let warning = |error: &ConfigError| {
            format!("the configuration is refused, {}: {}", self.fallback, error.in_one_line())
        };
        let warnings: Vec<String> = refused.iter().map(warning).collect();
        for warning in &warnings {
            tracing::error!(warning, "the configuration is refused");
        }
        self.in_force.send_modify(|config| config.warnings.clone_from(&warnings));
        self.assessment.send_modify(|settings| {
            Arc::make_mut(settings).config_warnings = warnings;
        });
    }

    pub(crate) fn update(&mut self, config: &Config, options: &Options) {
        self.fallback = "the settings before it stay in force";
        let now = start_settings(config);
        let at_start = start_settings(&self.at_start);
        let changed = at_start.iter().zip(&now);
        let changed = changed.filter(|(started, now)| started != now);
        let warnings: Vec<String> = changed
            .map(|((key, _), _)| format!("{key} has changed: restart diskvitalsd to apply it"))
            .chain(config.warnings())
            .collect();
        let in_force = with_start_settings(config, &self.at_start);
        self.in_force.send_replace(config_in_force(&in_force, options, warnings.clone()));
        self.assessment.send_replace(assessment_settings(config, options, warnings));
        self.sources.send_replace(source_settings(config, options));
        self.agent_callers.send_replace(agent_callers(config));
        self.orders.send_replace(order_settings(config));
        provisioning::reload(&self.volumes, config, options);
    }
}

fn config_in_force(config: &Config, options: &Options, warnings: Vec<String>) -> ConfigInForce {
    let files = options.config_files().into_iter().filter(|file| file.exists());
    ConfigInForce {
        toml: toml::to_string(config).map_err(|error| error.to_string()),
        files: files.map(|file| file.display().to_string()).collect(),
        warnings,
    }
}

fn agent_callers(config: &Config) -> AgentCallers {
    AgentCallers {
        allow_uids: config.csi.allow_uids.clone(),
        read_uids: config.csi.read_uids.clone(),
        read_gids: config.csi.read_gids.clone(),
    }
}

fn order_settings(config: &Config) -> OrderSettings {
    OrderSettings { allowed: config.cleanup.orders, uids: config.cleanup.order_uids.clone() }
}

fn assessment_settings(
    config: &Config,
    options: &Options,
    config_warnings: Vec<String>,
) -> SharedAssessmentSettings {
    Arc::new(AssessmentSettings {
        policy: config.policy(),
        volumes: config.volume_settings(HostPath::from(options.kubelet_root.as_path())),
        history: RetentionLimits {
            max_age: config.history.keep,
            max_count: config.history.max_findings as usize,
        },
        config_warnings,
    })
}

fn source_settings(config: &Config, options: &Options) -> Arc<SourceSettings> {
    Arc::new(SourceSettings {
        kubelet_root: HostPath::from(options.kubelet_root.as_path()),
        admit: config.drives.admit.clone(),
        ignore: config.drives.ignore.clone(),
        reconcile_interval: config.drives.reconcile_interval,
        probe_interval: config.probes.interval,
        probe_timeout: config.probes.timeout,
        worker_timeout: SCAN_TIMEOUT,
        disk_stats_interval: config.io.interval,
        counters_interval: config.counters.interval,
        fs_events: config.fs_events.enabled,
        kernel_log: KernelLogSettings {
            enabled: config.kernel_log.enabled,
            path: HostPath::from(config.kernel_log.path.as_path()),
            admit: config.drives.admit.clone(),
        },
        smart: smart_settings(&config.smart),
        checks: CheckSettings {
            at_once: config.checks.at_once as usize,
            max_io_pressure: config.checks.max_io_pressure,
            tools: config.checks.tools.clone(),
        },
    })
}

fn smart_settings(smart: &SmartConfig) -> SmartSettings {
    let device_type = |given: &SmartOverride| {
        Some(DeviceType {
            model: given.model.clone(),
            serial: given.serial.clone(),
            device_type: given.device_type.clone()?,
        })
    };
    SmartSettings {
        enabled: smart.enabled,
        command: smart.command.clone(),
        interval: smart.interval,
        suspect_interval: smart.suspect_interval,
        shortest_interval: smart.shortest_interval,
        slow_interval: smart.slow_interval,
        idle_interval: smart.idle_interval,
        timeout: smart.timeout,
        at_once: smart.at_once as usize,
        nvme_events: smart.nvme_events,
        device_types: smart.overrides.iter().filter_map(device_type).collect(),
    }
}
