//! The daemon's command line.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::app::watchdog::MIN_TIMEOUT;
use diskvitals_config::{Config, ConfigError};
use diskvitals_host::listen_address::Address;
use diskvitals_program::ProgramOptions;
use diskvitals_program::manual::DAEMON;
use diskvitals_text::duration;

/// Monitors the health of this node's drives, filesystems and volumes, and serves it on a unix
/// socket.
///
/// It reads its sources (udev and sysfs, the mount table, the kubelet's records, probes of the
/// mounted volumes) all the time; `diskvitals` shows the results. It never writes to a device or a
/// volume that it examines; it creates and formats only volumes that it provides itself.
///
/// Signals: HUP reads the configuration again (so does a change of the file); TERM and INT stop it,
/// in 5 s at most, whatever hangs.
#[derive(Clone, Debug, Parser)]
#[command(name = "diskvitalsd", version, max_term_width = 100, after_long_help = DAEMON.help())]
pub struct Options {
    /// Configuration in TOML [default: /etc/diskvitals/diskvitals.toml, which may be missing]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Merged over --config: tables key by key, [[static]] by name, any other value as a whole. It may
    /// be missing. Of several the last one takes precedence
    #[arg(long, value_name = "FILE")]
    pub config_override: Vec<PathBuf>,

    /// Socket for administrators and tools
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/diskvitals/diskvitals.sock",
        value_parser = absolute_path()
    )]
    pub socket: PathBuf,

    /// Socket for the CSI shim: for uid 0 and the callers of [csi] allow_uids, read_uids and read_gids
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/diskvitals/csi/agent.sock",
        value_parser = absolute_path()
    )]
    pub agent_socket: PathBuf,

    /// Directory of the history: findings, acknowledgements, when drives were present
    #[arg(long, value_name = "DIR", default_value = "/var/lib/diskvitals", value_parser = absolute_path())]
    pub state_dir: PathBuf,

    /// Where the host's /proc, /sys, /dev, /run, /etc and /var are found: / on a host, a mount of
    /// it in a container, or a recorded tree
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,

    /// The kubelet's directory, as the host names it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_root: PathBuf,

    /// Address of the metrics endpoint: 127.0.0.1:9961, a pod's own address, or unix:/PATH [default:
    /// [metrics] listen, which is none]
    #[arg(long, value_name = "ADDR", value_parser = metrics_address)]
    pub metrics_listen: Option<Address>,

    /// Exit when the main loop has stalled for so long (seconds, or 2min), so that the supervisor
    /// restarts the daemon; 0: never. A hung disk does not stall that loop. Not used where systemd's watchdog is
    /// on
    #[arg(long, value_name = "DURATION", default_value = "60", value_parser = parse_watchdog_timeout)]
    pub watchdog: WatchdogTimeout,

    /// Print the settings that would be in force and exit; 2 if the configuration is refused or a
    /// program that it names does not exist
    #[arg(long)]
    pub check_config: bool,

    #[command(flatten)]
    pub program: ProgramOptions,
}

impl Options {
    /// In the order in which they are merged; not all need exist.
    pub(crate) fn config_files(&self) -> Vec<&Path> {
        let file = self.config.as_deref().unwrap_or(Path::new(diskvitals_config::DEFAULT_FILE));
        [file].into_iter().chain(self.config_override.iter().map(PathBuf::as_path)).collect()
    }

    pub(crate) fn load_config(&self) -> Result<Config, ConfigError> {
        diskvitals_config::load(self.config.as_deref(), &self.config_override)
    }

    /// Without the files that are refused.
    pub(crate) fn load_what_is_good(&self) -> (Config, Vec<ConfigError>) {
        diskvitals_config::load_without_refused(self.config.as_deref(), &self.config_override)
    }
}

/// How long the main loop may stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogTimeout {
    Off,
    After(Duration),
}

/// Processes that use the paths have other working directories.
fn absolute_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute::<PathBuf>)
}

/// As `[metrics] listen` has it, and a socket below the working directory.
fn metrics_address(text: &str) -> Result<Address, Box<dyn Error + Send + Sync>> {
    Ok(match text.strip_prefix("unix:") {
        Some(path) => Address::Unix(std::path::absolute(path)?),
        None => text.parse()?,
    })
}

fn parse_watchdog_timeout(text: &str) -> Result<WatchdogTimeout, String> {
    match duration::parse(text) {
        Ok(Duration::ZERO) => Ok(WatchdogTimeout::Off),
        Ok(long) if long >= MIN_TIMEOUT && long <= Duration::from_secs(3600) => {
            Ok(WatchdogTimeout::After(long))
        }
        Ok(_) => Err(format!("0, or {} to 3600 seconds", MIN_TIMEOUT.as_secs())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_of_sockets_are_below_the_working_directory() {
        let words = "diskvitalsd --socket d.sock --agent-socket a/a.sock --state-dir ./state --metrics-listen unix:m.sock";
        let options = Options::try_parse_from(words.split(' ')).expect("right");
        let here = std::env::current_dir().expect("a working directory");
        assert_eq!(options.socket, here.join("d.sock"));
        assert_eq!(options.agent_socket, here.join("a/a.sock"));
        assert_eq!(options.state_dir, here.join("state"));
        assert_eq!(options.metrics_listen, Some(Address::Unix(here.join("m.sock"))));
        assert!(Options::try_parse_from(["diskvitalsd", "--socket", ""]).is_err());
    }

    #[test]
    fn the_watchdog_is_off_or_has_a_timeout_longer_than_one_tick() {
        let given = |text: &str| {
            Options::try_parse_from(["diskvitalsd", "--watchdog", text])
                .map(|options| options.watchdog)
                .ok()
        };
        assert_eq!(given("0"), Some(WatchdogTimeout::Off));
        assert_eq!(given("30"), Some(WatchdogTimeout::After(Duration::from_secs(30))));
        assert_eq!([given("1"), given("3601"), given("-1"), given("2w")], [None; 4]);
        assert_eq!(given("30s"), given("30"));
        let default = Options::try_parse_from(["diskvitalsd"]).map(|options| options.watchdog);
        assert_eq!(default.ok(), Some(WatchdogTimeout::After(Duration::from_secs(60))));
    }
}
