//! What can be said on the command line. Help texts, completions and man pages come from here.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Parser, Subcommand, ValueEnum};

use crate::api::client::DEFAULT_SOCKET;
use crate::api::wire;
use crate::model::check::{Filesystem, Mode};
use crate::model::reason::Reason;

const ABOUT_HELP: &str = "Asks diskvitalsd, the daemon of this node, how its drives, filesystems and volumes are, why, and since when.

An ID is what you have at hand: an id, a kernel name (sda), a /dev path or by-id link, a serial, a WWN, a mount point, a volume handle, \
a PersistentVolume, a filesystem's UUID, or a pod as namespace/name. When it names several things, they are listed.";

#[derive(Clone, Debug, Parser)]
#[command(name = "diskvitals", version, about = "How this node's drives, filesystems and volumes are", long_about = ABOUT_HELP, max_term_width = 120)]
pub struct Args {
    /// The daemon's socket
    #[arg(long, global = true, env = "DISKVITALS_SOCKET", default_value = DEFAULT_SOCKET, value_name = "PATH")]
    pub socket: PathBuf,
    /// For people, or the daemon's answer as canonical protobuf JSON
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// No colours; NO_COLOR in the environment does the same, and so does a standard output that is
    /// no terminal
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

/// How much of itself a drive tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TestKind {
    /// A sample: minutes
    Short,
    /// The whole medium: hours
    Long,
}

impl TestKind {
    pub fn wire(self) -> wire::SelfTestKind {
        match self {
            TestKind::Short => wire::SelfTestKind::Short,
            TestKind::Long => wire::SelfTestKind::Long,
        }
    }
}

const CHECK_HELP: &str = "Checks a filesystem without writing to it: ext2 to ext4, XFS and btrfs.

What is not mounted, or mounted read-only, is told by one run of its checker. What is in use moves under the checker: a live XFS cannot be told at all \
unless it is clean, a live ext4 can only be suspected. With --freeze, where the policy ([checks] freeze) allows it, writers are held for the length of a run \
(5 s at most by default), and what two such runs show is so. Interrupting this command cancels the check, and thaws.

Exit status: 0 clean, 1 suspected or corrupted, 2 wrong usage, 3 inconclusive or failed, or it could not be \
begun or followed, 130 interrupted.";

#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// A volume, mount point or device in any form
    #[arg(value_name = "VOLUME|MOUNTPOINT|DEVICE", required_unless_present_any = ["image", "cancel"])]
    pub target: Option<String>,
    /// A file that holds a filesystem; no daemon is needed, and the file is never changed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "freeze", "snapshot", "no_wait", "runs", "force", "cancel", "filesystem"])]
    pub image: Option<PathBuf>,
    /// The daemon's configuration, whose [checks] limits and tools apply to the image instead of
    /// the defaults
    #[arg(long, value_name = "FILE", requires = "image")]
    pub config: Option<PathBuf>,
    /// Live runs, of which all must show the same: 3 to 20
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=20))]
    pub runs: Option<u32>,
    /// Hold the writers for runs that must be told from what moves
    #[arg(long)]
    pub freeze: bool,
    /// Check a snapshot of the logical volume (LVM)
    #[arg(long)]
    pub snapshot: bool,
    /// Also on a drive that is failing or stalled
    #[arg(long)]
    pub force: bool,
    /// What is on the device, where the node does not know
    #[arg(long, value_enum)]
    pub filesystem: Option<FilesystemKind>,
    /// Return as soon as it is queued
    #[arg(long)]
    pub no_wait: bool,
    /// Cancel this check
    #[arg(long, value_name = "CHECK", conflicts_with_all = ["target", "freeze", "snapshot", "no_wait", "runs", "force", "filesystem"])]
    pub cancel: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FilesystemKind {
    /// ext2 and ext3 too
    Ext4,
    Xfs,
    Btrfs,
}

impl FilesystemKind {
    pub fn name(self) -> &'static str {
        match self {
            FilesystemKind::Ext4 => "ext4",
            FilesystemKind::Xfs => "xfs",
            FilesystemKind::Btrfs => "btrfs",
        }
    }
}

const SELF_TEST_HELP: &str = "Has a drive test itself and waits for the end.

The drive works on meanwhile, somewhat slower. The test goes on in the drive when this program is interrupted; how it ended is in \
`diskvitals drive ID`.

Exit status: 0 passed (with --no-wait: begun), 1 failed, refused or ended without a result, 2 wrong usage, 130 interrupted.";

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// One screen: the node, and what is wrong, worst first
    Status {
        /// Exit with 0 good, 1 warning, 2 critical, 3 unknown (no daemon, time-out and wrong usage
        /// too); acknowledged findings do not count
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
        /// How the values that decide over its health have moved: a line each
        #[arg(long, conflicts_with = "attributes")]
        history: bool,
        /// Its SMART attributes as its maker counts them (ATA)
        #[arg(long)]
        attributes: bool,
    },
    /// Have a drive test itself and wait for the end (root)
    #[command(long_about = SELF_TEST_HELP)]
    SelfTest {
        #[arg(value_name = "DRIVE")]
        drive: String,
        #[arg(value_enum)]
        kind: TestKind,
        /// Return as soon as the drive has begun
        #[arg(long)]
        no_wait: bool,
    },
    /// All volumes, or one in full
    Volumes {
        #[arg(value_name = "ID", hide = true)]
        id: Option<String>,
        /// Where CSI volumes are still staged or published although nobody uses them there
        #[arg(long, conflicts_with = "id")]
        stale: bool,
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
    /// The chain drive, partition, …, volume, pod around one thing, with the evidence, what would
    /// clear it and what to do
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
    /// Check the filesystem of a volume, mount point, device or image (root, except for images of
    /// one's own)
    #[command(long_about = CHECK_HELP)]
    Check(CheckArgs),
    /// All checks, newest first; those of one volume or device; or one check in full
    Checks {
        #[arg(value_name = "CHECK|ID")]
        what: Option<String>,
    },
    /// Look again now: at everything, or at one thing (root)
    Refresh {
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
    /// Take away what is left mounted of a CSI volume whose pods are gone (root); without --yes
    /// only say what would be done
    #[command(long_about = CLEANUP_HELP)]
    Cleanup {
        /// The volume in any form, or the path of one place where it is left
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// Do it
        #[arg(long)]
        yes: bool,
        /// Unmount lazily, where a device that does not answer lets no other way
        #[arg(long)]
        lazy: bool,
    },
    /// The table of reasons, or one of them: what it means, also for the data, what to do, and when
    /// it is over
    Reasons {
        /// As findings, metrics and Kubernetes name it
        #[arg(value_name = "REASON", value_parser = ReasonNames, hide_possible_values = true)]
        reason: Option<String>,
    },
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

const CLEANUP_HELP: &str = "Takes away what is left mounted of a CSI volume whose pods are gone: containers' folders, pods' mounts, the staging mount, and the empty \
folders beneath them below the kubelet's folder; of a volume that this node provides also its loop device.

Without --yes nothing is done: the steps are printed. It is refused while a pod has a record of the volume or a folder of logs, while a process holds a \
mount, and where either cannot be told. `diskvitals volumes --stale` lists what is left over.

With --lazy mounts are taken out of the tree at once, and what they used is freed when it answers again (umount -l): the way for a device that hangs.

Exit status: 0 done, or printed; 1 refused, or a step failed; 2 wrong usage.";

const KERNEL_LOG_HELP: &str = "What a kernel log says of drives and filesystems: one line of JSON a file with -o json.

Reads whatever form the log has: dmesg with any of its options, journalctl (short, short-iso, short-precise, cat, json, export), syslog, \
/dev/kmsg as it is; gzip too. A file may hold several boots. What programs wrote is passed over. The rules are those of the daemon.

Exit status: 0 all files were read, whatever they say; 1 one could not be read; 2 wrong usage.";

const SMART_HELP: &str = "What smartctl's JSON says of a drive: one line of JSON a file with -o json.

Reads what smartctl -j (--json) of version 7.0 or newer wrote, best with -x: smartctl -j -x /dev/sda > sda.json; gzip too. The rules and their \
limits are those of the daemon; a single answer has no history, so that only levels are judged and no growth.

The health is unknown where the drive slept, has no SMART or could not be asked; then it says why.

Exit status: 0 all files were read, whatever they say; 1 one could not be read or is not smartctl's JSON of a drive; 2 wrong usage.";

const FSCK_HELP: &str = "What the recorded output of a filesystem's checker says: one line of JSON for all files with -o json.

Each file is what one run of `e2fsck -fn`, `xfs_repair -n` or `btrfs check --readonly` wrote, standard output and standard error together; gzip \
too. All files are runs on the same filesystem, held in the same way (--mode). Ballots and verdict are the daemon's: the exit status alone proves \
nothing, live runs are votes, and frozen runs are taken to be at least 60 s apart, since files do not tell when they were made.

Without --exit-status it is inferred from what was found; give it where it is known: a checker that fails often leaves no words.

Exit status: 0 all files were read, whatever they say; 1 one could not be read; 2 wrong usage.";

/// How the filesystem was while the checker read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckMode {
    /// Not mounted, or an image
    Unmounted,
    /// Mounted, and nobody could write
    ReadOnly,
    /// Mounted and writable
    Live,
    /// Mounted, with all writers held (fsfreeze)
    Frozen,
}

impl CheckMode {
    pub fn model(self) -> Mode {
        match self {
            CheckMode::Unmounted => Mode::Unmounted,
            CheckMode::ReadOnly => Mode::ReadOnly,
            CheckMode::Live => Mode::Live,
            CheckMode::Frozen => Mode::Frozen,
        }
    }
}

/// For completion: a daemon that is newer may know others, so that none is refused here.
#[derive(Clone)]
struct ReasonNames;

impl TypedValueParser for ReasonNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Reason::ALL
                .iter()
                .map(|reason| PossibleValue::new(reason.name())),
        ))
    }
}

#[derive(Clone, Debug, Subcommand)]
pub enum Analyze {
    /// What a kernel log says of drives and filesystems
    #[command(long_about = KERNEL_LOG_HELP)]
    KernelLog {
        /// Files; `-` or none: standard input
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// What smartctl's JSON says of a drive
    #[command(long_about = SMART_HELP)]
    Smart {
        /// Files; `-` or none: standard input
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The daemon's configuration, whose [smart] limits apply instead of the defaults
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// What the recorded output of a filesystem's checker says
    #[command(long_about = FSCK_HELP)]
    Fsck {
        /// xfs, ext4 (ext2, ext3) or btrfs
        #[arg(long, value_parser = filesystem)]
        filesystem: Filesystem,
        /// How it was held while the checker read it
        #[arg(long, value_enum)]
        mode: CheckMode,
        /// How the checker ended: once for each file in their order, or once for all; above 128 a
        /// signal, as a shell tells it
        #[arg(long = "exit-status", value_name = "N", allow_negative_numbers = true)]
        exit_status: Vec<i32>,
        /// Files, one for each run; `-` or none: standard input
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

fn filesystem(name: &str) -> Result<Filesystem, String> {
    Filesystem::from_name(name).ok_or_else(|| "give xfs, ext4 or btrfs".to_owned())
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
