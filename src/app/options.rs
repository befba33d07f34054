//! The daemon's command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::app::watchdog::MIN_TIMEOUT;
use crate::config::listen::Address;
use crate::logging::LogFormat;

/// Knows how this node's drives, filesystems and volumes are, why, and since when, and says so on a
/// unix socket.
///
/// Sources (udev and sysfs, the mount table, the kubelet's records, probes of the mounted volumes)
/// are read all the time; `diskvitals` shows what came of it. Nothing is ever written to a device
/// or a volume that is examined; only volumes that it provides itself are made and formatted.
///
/// Signals: HUP reads the configuration anew (so does a change of the file); TERM and INT stop it,
/// in 5 s at most, whatever hangs.
///
/// Exit status: 0 stopped, 1 failed, 2 wrong usage or configuration.
#[derive(Clone, Debug, Parser)]
#[command(name = "diskvitalsd", version, max_term_width = 100)]
pub struct Options {
    /// Configuration in TOML [default: /etc/diskvitals/diskvitals.toml, which may be missing]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where admins and tools connect
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/diskvitals/diskvitals.sock"
    )]
    pub socket: PathBuf,

    /// Where the CSI shim connects: uid 0 and the uids of [csi] allow_uids
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/diskvitals/csi/agent.sock"
    )]
    pub agent_socket: PathBuf,

    /// Where history is kept: findings, acknowledgements, when drives were seen
    #[arg(long, value_name = "DIR", default_value = "/var/lib/diskvitals")]
    pub state_dir: PathBuf,

    /// Where the host's /proc, /sys, /dev, /run, /etc and /var are found: / on a host, a mount of
    /// it in a container, or a recorded tree
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,

    /// The kubelet's folder, as the host names it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_root: PathBuf,

    /// Where metrics are served: 127.0.0.1:9961, a pod's own address, or unix:/PATH [default:
    /// [metrics] listen, which is nowhere]
    #[arg(long, value_name = "ADDR")]
    pub metrics_listen: Option<Address>,

    /// End when the inner loop has stood still for so many seconds, so that the supervisor starts
    /// it anew; 0: never. A hung disk does not stop that loop. Where systemd's watchdog is on, that
    /// one does it
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_watchdog_timeout)]
    pub watchdog: WatchdogTimeout,

    /// Print the settings that would be in force and exit; 2 if the configuration is refused
    #[arg(long)]
    pub check_config: bool,

    /// How to log, on standard error or to journald
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// Print this program's man page and exit
    #[arg(long, hide = true)]
    pub man: bool,
}

/// How long the inner loop may stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogTimeout {
    /// Nobody looks.
    Off,
    After(Duration),
}

fn parse_watchdog_timeout(text: &str) -> Result<WatchdogTimeout, String> {
    match text.parse().map(Duration::from_secs) {
        Ok(Duration::ZERO) => Ok(WatchdogTimeout::Off),
        Ok(long) if long >= MIN_TIMEOUT && long <= Duration::from_secs(3600) => {
            Ok(WatchdogTimeout::After(long))
        }
        Ok(_) => Err(format!("0, or {} to 3600 seconds", MIN_TIMEOUT.as_secs())),
        Err(error) => Err(format!("a number of seconds: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_off_or_has_a_timeout_longer_than_one_tick() {
        let given = |text: &str| {
            Options::try_parse_from(["diskvitalsd", "--watchdog", text])
                .map(|options| options.watchdog)
                .ok()
        };
        assert_eq!(given("0"), Some(WatchdogTimeout::Off));
        assert_eq!(
            given("30"),
            Some(WatchdogTimeout::After(Duration::from_secs(30)))
        );
        assert_eq!(
            [given("1"), given("3601"), given("-1"), given("1m")],
            [None; 4]
        );
        let default = Options::try_parse_from(["diskvitalsd"]).map(|options| options.watchdog);
        assert_eq!(
            default.ok(),
            Some(WatchdogTimeout::After(Duration::from_secs(60)))
        );
    }
}
