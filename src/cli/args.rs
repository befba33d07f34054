//! The arguments of the command line. Help texts, completions and man pages are made from them.

pub mod findings;
pub mod report;
pub mod status;

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};

use crate::args::findings::{FindingsArgs, ReasonNames};
use crate::args::report::{BUNDLE_HELP, BundleArgs, REPORT_HELP, ReportArgs};
use crate::args::status::{StatusArgs, WatchArgs};
use diskvitals_fscheck::{Filesystem, Mode};
use diskvitals_text::duration;
use diskvitals_wire as wire;
use diskvitals_wire::client::DEFAULT_SOCKET;

const ABOUT_HELP: &str = "Shows the health of this node's drives, filesystems and volumes, with the reason and since when, as diskvitalsd (the node's daemon) knows it.

An ID is any name of the thing: an id, a kernel name (sda), a /dev path or by-id link, a serial, a WWN, a mount point, a volume handle, \
a PersistentVolume, a filesystem's UUID, or a pod as namespace/name. A name that fits several things is an error that lists them.";

#[derive(Clone, Debug, Parser)]
#[command(name = "diskvitals", version, about = "Health of this node's drives, filesystems and volumes", long_about = ABOUT_HELP, max_term_width = 120)]
pub struct Args {
    /// The daemon's socket
    #[arg(long, global = true, env = "DISKVITALS_SOCKET", default_value = DEFAULT_SOCKET, value_name = "PATH", value_parser = PathBufValueParser::new().try_map(std::path::absolute::<PathBuf>))]
    pub socket: PathBuf,
    /// Output format: tables for people, or the daemon's answer as canonical protobuf JSON
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Print without colors; also the default when NO_COLOR is set or standard output is not a
    /// terminal
    #[arg(long, global = true)]
    pub no_color: bool,
    /// Time limit for each answer of the daemon: seconds, or a duration (500ms, 2min)
    #[arg(long, global = true, default_value = "10", value_name = "DURATION", value_parser = seconds)]
    pub timeout: Duration,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

/// Length of a drive's self-test.
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

One run of the checker decides for a filesystem that is not mounted or mounted read-only. A filesystem in use changes while the checker reads it: \
a live XFS is inconclusive unless it is clean, a live ext4 is at most suspected. With --freeze, where the policy ([checks] freeze) allows it, the filesystem is \
frozen during a run (5 s at most by default), and two such runs with the same findings decide. Interrupting this command cancels the check and thaws the filesystem.";

#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Volume, mount point or device, by any of its names, or a path on it
    #[arg(value_name = "VOLUME|MOUNTPOINT|DEVICE", required_unless_present_any = ["image", "cancel"])]
    pub target: Option<String>,
    /// Check a file that contains a filesystem; needs no daemon and never changes the file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "freeze", "snapshot", "no_wait", "runs", "force", "cancel", "filesystem"])]
    pub image: Option<PathBuf>,
    /// Configuration file of the daemon: its [checks] limits and tools replace the defaults for the
    /// image
    #[arg(long, value_name = "FILE", requires = "image")]
    pub config: Option<PathBuf>,
    /// Number of live runs, which must all agree: 3 to 20
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=20))]
    pub runs: Option<u32>,
    /// Freeze the filesystem during a run, so that it cannot change while the checker reads it
    #[arg(long)]
    pub freeze: bool,
    /// Check a snapshot of the logical volume (LVM)
    #[arg(long)]
    pub snapshot: bool,
    /// Check even if the drive is failing or stalled
    #[arg(long)]
    pub force: bool,
    /// Filesystem on the device, if the daemon does not know it
    #[arg(long, value_enum)]
    pub filesystem: Option<FilesystemKind>,
    /// Return as soon as the check is queued
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

const WATCH_HELP: &str = "Prints what there is, then one line per change, until interrupted.

A problem with everything that follows from it (a drive and the volumes on it) is one line, as in `diskvitals status`. With a filter, only problems with \
such findings are printed, and the drives, volumes and checks that it names. When the daemon restarts, the command connects again and prints what has changed \
meanwhile. With -o json, each line is one event of the API.";

const SELF_TEST_HELP: &str = "Starts a drive's SMART self-test and waits for its end.

The drive remains usable during the test, at reduced speed. Interrupting this program does not end the test; `diskvitals drive ID` shows the result.";

const CARE_HELP: &str = "Shows the self-tests that the daemon starts by a schedule: when one last came to its end, whoever started it, when the next is due, and \
what holds one back that is due.

`care = \"standard\"` at the top of /etc/diskvitals/diskvitals.toml is the schedule for all drives: a short test each week, a long one each month, begun between 22:00 and \
06:00. [[schedule]] has others. No test starts on a drive that sleeps, is behind USB or a RAID controller, or has a finding that is BAD or endangers data and is new; \
nor beside another test in its array or on its controller, or a rebuild or scrub of its md, LVM or ZFS array. Those of btrfs are not seen.

Exit status: 0 shown, 1 failed.";

const LOCATE_HELP: &str = "Lights the locate lamp of a drive's slot, or turns it off. Never the fault lamp.

The lamp is that of the enclosure (SES), of NPEM, or of a slot below VMD or a port of AHCI; the last two only while nothing else uses them. It is turned off by \
`off`, and by itself after 24 hours, also over a restart. Behind a RAID controller, the vendor's command is printed and not run. Without a lamp, the answer names \
serial, model and port: no drive is read to make it blink.";

const REPLACE_HELP: &str = "Shows what is on a drive, where it is, whether it can be pulled now, and the next step of its replacement: \"no\" while something on it has \
no other sound copy, or a rebuild runs; \"not known\" where a use is not understood. It reads only, and touches no device: the commands are for you to read and type.

Where a bay is free, the new drive is filled first and the old one pulled afterwards. The next step appears when the state of the node shows that the last one is \
done, also after a reboot. A new drive that is not empty gets no command that writes to it. --follow lights the locate lamp (root), prints each step, says within \
seconds if another drive was pulled, and ends when nothing lacks a copy and the drive is out.

Exit status: 0 the drive can be pulled, 1 no or not known.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LampSwitch {
    On,
    Off,
}

/// How long maintenance lasts from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceLength {
    End,
    For(Duration),
}

fn maintenance_length(text: &str) -> Result<MaintenanceLength, String> {
    match text {
        "end" => Ok(MaintenanceLength::End),
        text => {
            duration::parse(text).map(MaintenanceLength::For).map_err(|error| error.to_string())
        }
    }
}

const MAINTENANCE_HELP: &str = "Lists what is under maintenance, or puts a thing under maintenance for a time.

Until it ends, the findings of the thing, and what follows from its absence alone, are shown and do not count: not in the exit status of `status`, not in \
alerts, the node condition and mails. Lost data, a volume that becomes inaccessible, and the failure of anything else count as always. It ends by itself, also \
over a restart; what is left then is announced. The same command again sets a new end.";

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the node and its active findings on one screen, worst first
    Status(StatusArgs),
    /// List all drives, or show one in full
    Drives {
        #[arg(value_name = "ID", hide = true)]
        id: Option<String>,
    },
    /// Show one drive in full
    Drive {
        /// The drive, by any of its names
        #[arg(value_name = "ID")]
        id: String,
        /// History of temperature, latency and the attributes that decide its health, one line each
        #[arg(long, conflicts_with = "attributes")]
        history: bool,
        /// The drive's SMART attributes, with the vendor's normalized values (ATA)
        #[arg(long)]
        attributes: bool,
    },
    /// Start a drive's SMART self-test and wait for its end (root)
    #[command(long_about = SELF_TEST_HELP)]
    SelfTest {
        /// The drive, by any of its names
        #[arg(value_name = "DRIVE")]
        drive: String,
        /// Length of the test
        #[arg(value_enum)]
        kind: TestKind,
        /// Return as soon as the drive has started the test
        #[arg(long)]
        no_wait: bool,
    },
    /// Show the self-tests that the daemon starts by a schedule: the last, the next, what holds one back
    #[command(long_about = CARE_HELP)]
    Care {
        /// Only this drive, by any of its names
        #[arg(value_name = "DRIVE")]
        drive: Option<String>,
    },
    /// Light the locate lamp of a drive, or turn it off (root)
    #[command(long_about = LOCATE_HELP)]
    Locate {
        /// The drive, by any of its names; a serial must be whole
        #[arg(value_name = "DRIVE")]
        drive: String,
        /// Whether it is to be lit
        #[arg(value_enum, value_name = "on|off")]
        lamp: LampSwitch,
    },
    /// Show whether a drive can be pulled now, and the next step of its replacement; changes nothing
    #[command(long_about = REPLACE_HELP)]
    Replace {
        /// The drive, by any of its names; a serial must be whole
        #[arg(value_name = "DRIVE")]
        drive: String,
        /// The new drive, where several could be it
        #[arg(long, value_name = "NEW")]
        with: Option<String>,
        /// Light the locate lamp, and print each step until the replacement is done
        #[arg(long)]
        follow: bool,
    },
    /// List all volumes, or show one in full
    Volumes {
        #[arg(value_name = "ID", hide = true)]
        id: Option<String>,
        /// List stale attachments: paths where a CSI volume is still mounted although no pod uses
        /// it
        #[arg(long, conflicts_with = "id")]
        stale: bool,
    },
    /// Show one volume in full
    Volume {
        /// The volume, by any of its names, or the path of a file or folder on it
        #[arg(value_name = "ID")]
        id: String,
    },
    /// List findings, worst first, or show those of one name in full
    Findings(FindingsArgs),
    /// Show the chain of drive, partition, …, volume and pod that a thing belongs to, with its
    /// findings, their evidence, what clears them and what to do
    Explain {
        /// A drive, device, volume, pod or finding, by any of its names; a path; `slot 05`
        #[arg(value_name = "ID", required = true, num_args = 1..=2)]
        id: Vec<String>,
    },
    /// Print one line per change, until interrupted
    #[command(long_about = WATCH_HELP)]
    Watch(WatchArgs),
    /// Acknowledge a finding: it stays visible but does not count until it clears or worsens (root)
    Ack {
        /// A finding's id, or the unique beginning of one; or a thing by any of its names: its
        /// findings are listed first
        #[arg(value_name = "FINDING|ID")]
        finding: String,
        /// Why the finding needs no further attention
        #[arg(long, value_name = "TEXT")]
        note: String,
        /// The note names a repair of the cause (a cable, a firmware): errors until now no longer
        /// count, the finding clears, and a new error raises it again
        #[arg(long)]
        repaired: bool,
        /// Acknowledge the findings of a thing without a question
        #[arg(short, long)]
        yes: bool,
    },
    /// Withdraw an acknowledgement (root)
    Unack {
        /// A finding's id, or the unique beginning of one; or a thing by any of its names
        #[arg(value_name = "FINDING|ID")]
        finding: String,
        /// Withdraw those of a thing without a question
        #[arg(short, long)]
        yes: bool,
    },
    /// List what is under maintenance, or put a thing under maintenance for a time (root)
    #[command(long_about = MAINTENANCE_HELP)]
    Maintenance {
        /// `node`, an enclosure, or a drive, array, pool or volume by any of its names; without it, list
        /// what is under maintenance
        #[arg(value_name = "ID", requires = "length")]
        id: Option<String>,
        /// For how long (30min, 2h, 3d; at most 30d), or `end` to end it now
        #[arg(value_name = "DURATION|end", value_parser = maintenance_length)]
        length: Option<MaintenanceLength>,
        /// What is done
        #[arg(
            long,
            value_name = "TEXT",
            requires = "id",
            default_value = "",
            hide_default_value = true
        )]
        note: String,
    },
    /// Check the filesystem of a volume, mount point, device or image (root, except for readable
    /// image files)
    #[command(long_about = CHECK_HELP)]
    Check(CheckArgs),
    /// List all checks or those of one volume or device, newest first, or show one check in full
    Checks {
        /// A check's id, or a volume or device by any of its names
        #[arg(value_name = "CHECK|ID")]
        what: Option<String>,
    },
    /// Read the state of everything, or of one thing, again now (root)
    Refresh {
        /// A drive, device, volume or pod, by any of its names
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
    /// Remove stale mounts of a CSI volume whose pods no longer exist (root); without --yes, only
    /// print the steps
    #[command(long_about = CLEANUP_HELP)]
    Cleanup {
        /// The volume by any of its names, or one path where it is still mounted
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// Execute the steps
        #[arg(long)]
        yes: bool,
        /// Unmount lazily (umount -l), for a device that does not respond
        #[arg(long)]
        lazy: bool,
    },
    /// Permit one format of a volume's device that holds unknown data (root); without a volume, list
    /// the permissions
    #[command(long_about = FORMAT_AUTHORIZE_HELP)]
    FormatAuthorize {
        /// The volume's handle: a static volume's name, or dv-…
        #[arg(value_name = "VOLUME")]
        volume: Option<String>,
        /// Withdraw the permission
        #[arg(long, requires = "volume")]
        revoke: bool,
    },
    /// Print the configuration that the daemon runs with, as TOML, with its files and what is wrong with
    /// them
    Config,
    /// List all reasons, or show one: its meaning, the risk for the data, what to do, and what
    /// clears it
    Reasons {
        /// The reason's name, as in findings, metrics and Kubernetes
        #[arg(value_name = "REASON", value_parser = ReasonNames, hide_possible_values = true)]
        reason: Option<String>,
    },
    /// Print a report of the node as text, or write it as one self-contained page
    #[command(long_about = REPORT_HELP)]
    Report(ReportArgs),
    /// Write a support bundle: all answers, the kernel log's storage lines, smartctl's outputs
    #[command(long_about = BUNDLE_HELP)]
    Bundle(BundleArgs),
    /// Analyze files without a daemon: a support bundle, the log of a dead machine
    Analyze {
        #[command(subcommand)]
        what: Analyze,
    },
    /// Record what `analyze` reads, without a daemon
    Record {
        #[command(subcommand)]
        what: Record,
    },
    /// Print shell completions to standard output
    Completions {
        /// The shell to print them for
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the names that fit a command line, for the shells' completions
    #[command(hide = true)]
    Complete {
        /// The words before the cursor, from the program's name on; the last one may be incomplete
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Write the man pages of all commands to a directory
    Man {
        /// The directory to write to
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
    /// Print the versions of this program and of the daemon
    Version,
    /// Show whether each source of the daemon and each program that it needs works, why not, and what
    /// to install
    Doctor,
}

const FORMAT_AUTHORIZE_HELP: &str = "Permits one mkfs on the device of a volume that this node provides. The daemon formats a device by itself only if it \
created it, or if all of it read as zero.

The permission is for the present device (its identity and size), for 24 hours, and for one mkfs, which happens when the volume is staged next. All data on the \
device is then lost. A device with a known signature (a filesystem, a partition table) is not formatted even then: clear it first (wipefs -a).";

const CLEANUP_HELP: &str = "Removes the stale mounts of a CSI volume whose pods no longer exist: mounts of containers and pods, the staging mount, and the empty \
directories under these mounts below the kubelet's directory. For a volume that this node provides, also its loop device.

Without --yes, the steps are printed and nothing is changed. The command is refused while a pod has a record of the volume or a log directory, while a process \
uses a mount, and where either is unknown. `diskvitals volumes --stale` lists stale attachments.

With --lazy, mounts are detached from the tree at once and released when the device responds again (umount -l). Use it for a device that hangs.";

const KERNEL_LOG_HELP: &str = "Finds errors of drives and filesystems in a kernel log. With -o json, one line of JSON per file.

Reads these formats, also compressed with gzip: dmesg with any of its options, journalctl (short and its variants, with-unit, cat, json, export, verbose), syslog, raw /dev/kmsg; also with a prefix of a \
container runtime or a viewer, numbered, quoted in a mail, or wrapped at any column. A file may contain several boots. Lines of user-space programs are \
skipped. The rules are the daemon's.

A file without a record of the kernel, or of which less than half was understood, is unknown (exit status 3): it is no clean log. The number of lines that \
were not understood is printed, with the first of them.";

const SMART_HELP: &str = "Evaluates a drive's smartctl JSON. With -o json, one line of JSON per file.

Reads the output of smartctl -j (--json), version 7.0 or newer, best with -x: smartctl -j -x /dev/sda > sda.json; also compressed with gzip. The rules and \
limits are the daemon's. A single output has no history: levels are evaluated, growth is not.

The health is unknown, with the reason, if the drive was in standby, has no SMART or did not respond.";

const FSCK_HELP: &str = "Evaluates recorded output of a filesystem checker. With -o json, one line of JSON for all files.

Each file is the output of one run of `e2fsck -fn`, `xfs_repair -n` or `btrfs check --readonly`, standard output and standard error together; also \
compressed with gzip. All files are runs on the same filesystem in the same state (--mode). Results and verdict follow the daemon's rules: the exit status alone \
decides nothing, live runs must agree, and frozen runs count as at least 60 s apart, because files do not record when they were made.

Without --exit-status, the exit status is inferred from the output. Give it if it is known: a checker that fails often prints nothing.";

/// State of the filesystem while the checker read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckMode {
    /// Not mounted, or an image
    Unmounted,
    /// Mounted, not writable
    ReadOnly,
    /// Mounted and writable
    Live,
    /// Mounted and frozen (fsfreeze)
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

const IO_HELP: &str = "Judges by recorded counters which drives are slow. With -o json, one line of JSON per file.

Reads a file of `diskvitals record io`, and iostat's JSON of 60 s or less (S_TIME_FORMAT=ISO iostat -d -x -t -o JSON 60); also compressed with gzip. The text of sar -d \
is shown and not judged: it has one time for reads and writes.

Drives are compared with those of their model, of which three more are needed, and after 14 days with their own past. iostat does not tell the models: name with --peers \
the drives that have the same.";

#[derive(Clone, Debug, Subcommand)]
pub enum Record {
    /// Write the drives' I/O counters to standard output, once a minute; needs no rights
    Io {
        /// How long (24h, 14d)
        #[arg(long = "for", value_name = "DURATION", default_value = "24h", value_parser = duration::parse)]
        length: Duration,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub enum Analyze {
    /// Judge by recorded I/O counters which drives are slow
    #[command(long_about = IO_HELP)]
    Io {
        /// Files; `-` or no file reads standard input
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Drives of one model in iostat's output, as sda,sdb,sdc,sdd; again for another model
        #[arg(long, value_name = "NAMES", value_parser = names)]
        peers: Vec<Names>,
    },
    /// Find errors of drives and filesystems in a kernel log
    #[command(long_about = KERNEL_LOG_HELP)]
    KernelLog {
        /// Files; `-` or no file reads standard input
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Evaluate a drive's smartctl JSON
    #[command(long_about = SMART_HELP)]
    Smart {
        /// Files; `-` or no file reads standard input
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Configuration file of the daemon: its [smart] limits replace the defaults
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Evaluate recorded output of a filesystem checker
    #[command(long_about = FSCK_HELP)]
    Fsck {
        /// xfs, ext4 (ext2, ext3) or btrfs
        #[arg(long, value_parser = filesystem)]
        filesystem: Filesystem,
        /// State of the filesystem while the checker read it
        #[arg(long, value_enum)]
        mode: CheckMode,
        /// Exit status of the checker: one for each file in their order, or one for all; above 128,
        /// a signal as shells number it
        #[arg(long = "exit-status", value_name = "N", allow_negative_numbers = true)]
        exit_status: Vec<i32>,
        /// Files, one for each run; `-` or no file reads standard input
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// Names between commas.
#[derive(Clone, Debug)]
pub struct Names(pub Vec<String>);

fn names(text: &str) -> Result<Names, Infallible> {
    Ok(Names(text.split(',').map(|name| name.trim().to_owned()).collect()))
}

fn filesystem(name: &str) -> Result<Filesystem, String> {
    Filesystem::from_name(name).ok_or_else(|| "give xfs, ext4 or btrfs".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 86_400.0;
    let seconds =
        text.parse::<f64>().ok().or_else(|| Some(duration::parse(text).ok()?.as_secs_f64()));
    match seconds {
        Some(seconds) if seconds > 0.0 && seconds <= LONGEST => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(
            "give a number of seconds or a duration (500ms, 2min), more than 0 and at most a day"
                .to_owned(),
        ),
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
        assert_eq!(seconds("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("1d"), Ok(Duration::from_secs(86_400)));
        for wrong in ["0", "-1", "NaN", "inf", "", "x", "1e9", "2d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
