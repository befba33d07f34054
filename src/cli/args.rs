//! What can be said on the command line. Help texts, completions and man pages come from here.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::api::client::DEFAULT_SOCKET;

const LONG: &str = "Asks diskvitalsd, the daemon of this node, how its drives, filesystems and volumes are, why, and since when.

An ID is what you have at hand: an id, a kernel name (sda), a /dev path or by-id link, a serial, a WWN, a mount point, a volume handle, \
a PersistentVolume, a filesystem's UUID, or a pod as namespace/name. When it names several things, they are listed.";

#[derive(Clone, Debug, Parser)]
#[command(name = "diskvitals", version, about = "How this node's drives, filesystems and volumes are", long_about = LONG, max_term_width = 120)]
pub struct Args {
    /// The daemon's socket
    #[arg(long, global = true, env = "DISKVITALS_SOCKET", default_value = DEFAULT_SOCKET, value_name = "PATH")]
    pub socket: PathBuf,
    /// For people, or the daemon's answer as canonical protobuf JSON
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// No colours; NO_COLOR in the environment does the same, and so does a standard output that is no terminal
    #[arg(long, global = true)]
    pub no_color: bool,
    /// How long to wait for each answer, in seconds
    #[arg(long, global = true, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Duration,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// One screen: the node, and what is wrong, worst first
    Status {
        /// Exit with 0 good, 1 warning, 2 critical, 3 unknown (no daemon, time-out and wrong usage too); acknowledged findings do not count
        #[arg(long)]
        exit_code: bool,
    },
    /// All drives, or one in full
    Drives {
        #[arg(value_name = "ID", hide = true)]
        id: Option<String>,
    },
    /// One drive in full
    Drive {
        #[arg(value_name = "ID")]
        id: String,
    },
    /// All volumes, or one in full
    Volumes {
        #[arg(value_name = "ID", hide = true)]
        id: Option<String>,
    },
    /// One volume in full
    Volume {
        #[arg(value_name = "ID")]
        id: String,
    },
    /// What is wrong, worst first
    Findings {
        /// Cleared ones too
        #[arg(long)]
        all: bool,
    },
    /// The chain drive, partition, …, volume, pod around one thing, with the evidence, what would clear it and what to do
    Explain {
        #[arg(value_name = "ID")]
        id: String,
    },
    /// One line per change, until interrupted
    Watch,
    /// Acknowledge a finding: it stays visible and stops counting until it clears or worsens (root)
    Ack {
        #[arg(value_name = "FINDING")]
        finding: String,
        /// Why it need not be looked at again
        #[arg(long, value_name = "TEXT")]
        note: String,
    },
    /// Take an acknowledgement back (root)
    Unack {
        #[arg(value_name = "FINDING")]
        finding: String,
    },
    /// Look again now: at everything, or at one thing (root)
    Refresh {
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
    /// The table of reasons: what each means and what to do
    Reasons,
    /// Read files without a daemon: a support bundle, a dead machine's log
    Analyze {
        #[command(subcommand)]
        what: Analyze,
    },
    /// Shell completions on standard output
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands into a folder
    Man {
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
    /// Versions of this program and of the daemon
    Version,
}

const KERNEL_LOG: &str = "What a kernel log says of drives and filesystems: one line of JSON a file with -o json.

Reads whatever form the log has: dmesg with any of its options, journalctl (short, short-iso, short-precise, cat, json, export), syslog, \
/dev/kmsg as it is; gzip too. A file may hold several boots. What programs wrote is passed over. The rules are those of the daemon.

Exit status: 0 all files were read, whatever they say; 1 one could not be read; 2 wrong usage.";

#[derive(Clone, Debug, Subcommand)]
pub enum Analyze {
    /// What a kernel log says of drives and filesystems
    #[command(long_about = KERNEL_LOG)]
    KernelLog {
        /// Files; `-` or none: standard input
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give a number of seconds, more than 0 and at most 86400".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_timeout_is_a_positive_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "NaN", "inf", "", "x", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
