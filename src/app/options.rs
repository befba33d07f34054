//! The daemon's command line.

use std::path::PathBuf;

use clap::Parser;

use crate::logging::LogFormat;

/// Knows how this node's drives, filesystems and volumes are, why, and since when, and says so on a unix socket.
///
/// Sources (udev and sysfs, the mount table, the kubelet's records, probes of the mounted volumes) are read all the time; `diskvitals` shows what
/// came of it. Nothing is ever written to a device or a volume.
///
/// Signals: HUP reads the configuration anew (so does a change of the file); TERM and INT stop it, in 5 s at most, whatever hangs.
///
/// Exit status: 0 stopped, 1 failed, 2 wrong usage or configuration.
#[derive(Clone, Debug, Parser)]
#[command(name = "diskvitalsd", version, max_term_width = 100)]
pub struct Options {
    /// Configuration in TOML [default: /etc/diskvitals/diskvitals.toml, which may be missing]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where admins and tools connect
    #[arg(long, value_name = "PATH", default_value = "/run/diskvitals/diskvitals.sock")]
    pub socket: PathBuf,

    /// Where the CSI shim connects: uid 0 and the uids of [csi] allow_uids
    #[arg(long, value_name = "PATH", default_value = "/run/diskvitals/csi/agent.sock")]
    pub agent_socket: PathBuf,

    /// Where history is kept: findings, acknowledgements, when drives were seen
    #[arg(long, value_name = "DIR", default_value = "/var/lib/diskvitals")]
    pub state_dir: PathBuf,

    /// Where the host's /proc, /sys, /dev, /run, /etc and /var are found: / on a host, a mount of it in a container, or a recorded tree
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,

    /// The kubelet's folder, as the host names it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_root: PathBuf,

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
