//! `Event`: one incident of the kernel log. `Batch`: the events that the reader sends together,
//! with its `Cursor`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use diskvitals_finding::WitnessKind;
use diskvitals_finding::dev::DevNo;

/// The kind of subject that a class or a rule describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    Drive,
    Filesystem,
}

/// The table of classes: each row gives the variant, its name and its domain. `Class::ALL`, `name`
/// and serde's names are generated from it.
macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident = $name:literal, $domain:ident;)*) => {
        /// The kind of an incident. The names are those of `analyze kernel-log`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Class {
            $($(#[$doc])* #[serde(rename = $name)] $class,)*
        }

        impl Class {
            pub const ALL: [Class; [$($name),*].len()] = [$(Class::$class),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Class::$class => $name,)*
                }
            }

            pub fn domain(self) -> Domain {
                match self {
                    $(Class::$class => Domain::$domain,)*
                }
            }
        }
    };
}

classes! {
    /// The drive itself reports that its medium or hardware failed (sense keys 3 and 4, ATA UNC,
    /// NVMe status type 2).
    Medium = "medium", Drive;
    /// A command was not completed in time.
    Timeout = "timeout", Drive;
    /// The path to the drive failed: cable, backplane, adapter, network.
    Transport = "transport", Drive;
    /// The kernel reset the drive, its link or its controller to recover.
    Reset = "reset", Drive;
    /// The kernel gave up on the drive or its controller, took it offline, or lost it.
    Removed = "removed", Drive;
    /// The block layer reports an error without a record of the cause.
    Io = "io", Drive;
    /// A RAID controller reports the state of one of its arrays: members are missing, or are there again.
    ArrayState = "array-state", Drive;
    /// A filesystem or an integrity layer found its own data to be wrong.
    FsCorruption = "fs-corruption", Filesystem;
    /// A filesystem had an error of the underlying device, and continues.
    FsError = "fs-error", Filesystem;
    /// A filesystem stopped itself.
    FsShutdown = "fs-shutdown", Filesystem;
    /// The kernel made a filesystem or a device read-only.
    ReadOnly = "readonly", Filesystem;
}

impl Class {
    /// Whether the class describes a filesystem and not a drive.
    pub fn is_filesystem_class(self) -> bool {
        self.domain() == Domain::Filesystem
    }

    /// Whether the path to the drive can be the cause, and not only the drive.
    pub(crate) fn is_path_class(self) -> bool {
        match self {
            Class::Timeout | Class::Transport | Class::Reset | Class::Removed => true,
            Class::Medium
            | Class::Io
            | Class::ArrayState
            | Class::FsCorruption
            | Class::FsError
            | Class::FsShutdown
            | Class::ReadOnly => false,
        }
    }
}

/// How much an incident blames the drive itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// A known other cause: a cable, a bridge, the host, the network, an operator.
    No,
    /// The drive or the path to it.
    Unclear,
    /// The drive reports the error itself, or only the drive can cause it.
    Yes,
}

/// A name that the kernel gave a device in a record. The kernel reuses names: a name is valid for
/// the time of its record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceName {
    /// A block device by kernel name: `sda`, `sda1`, `nvme0n1`, `nvme0c0n1`, `dm-3`, `md127`,
    /// `mmcblk0p2`. In a record of ZFS also a link below /dev: `disk/by-id/ata-…-part1`.
    Block(String),
    /// A block device by number: `8:16` (dm-multipath), `DEVICE=b8:16`.
    Number(DevNo),
    /// libata: `ata3` (a port: None) or `ata3.01` (Some(1): the master or slave, or the port of a
    /// multiplier).
    Ata { port: u32, device: Option<u32> },
    /// SCSI host:channel:target:lun.
    Hctl(String),
    /// A whole SCSI host.
    ScsiHost(u32),
    /// An NVMe controller: `nvme0`.
    Nvme(String),
    /// A PCI function: `0000:03:00.0`.
    Pci(String),
    /// An array of a RAID adapter, by the adapter's address and the array's number there: VD 0.
    RaidArray { pci: String, number: u32 },
    /// A ZFS pool: `tank`.
    Pool(String),
    /// A btrfs filesystem by UUID, where the record names no device.
    FilesystemId(String),
    /// The record names no device.
    Unnamed,
}

impl std::fmt::Display for DeviceName {
    /// Formats the name as the kernel prints it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceName::Block(name)
            | DeviceName::Hctl(name)
            | DeviceName::Nvme(name)
            | DeviceName::Pci(name)
            | DeviceName::Pool(name)
            | DeviceName::FilesystemId(name) => f.write_str(name),
            DeviceName::Number(dev) => write!(f, "{dev}"),
            DeviceName::Ata { port, device: None } => write!(f, "ata{port}"),
            DeviceName::Ata { port, device: Some(device) } => write!(f, "ata{port}.{device:02}"),
            DeviceName::ScsiHost(host) => write!(f, "host{host}"),
            DeviceName::RaidArray { pci, number } => write!(f, "{pci} VD {number}"),
            DeviceName::Unnamed => f.write_str("unnamed"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Read,
    Write,
    Flush,
    Other,
}

/// A record as evidence. Live records carry the time of their arrival (the kernel's clock stops in
/// suspend), older ones the kernel's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub time: Timestamp,
    /// Verbatim, without the prefix; line breaks inside a record are `\n`. At most `MAX_LINE_BYTES`
    /// bytes.
    pub text: String,
    #[serde(default)]
    pub origin: LineOrigin,
}

/// The source of the line, which the evidence contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineOrigin {
    #[default]
    KernelLog,
    /// A counter file in sysfs.
    Counter,
    /// A notice of fanotify(7).
    #[serde(rename = "notice")]
    Fanotify,
}

impl Line {
    pub(crate) fn of_kernel_log(time: Timestamp, text: String) -> Line {
        Line { time, text, origin: LineOrigin::KernelLog }
    }

    /// Whether a filesystem of this type (mountinfo's) can have printed the line: each fs/*/ prints
    /// its name first. True if the text contains no name of a filesystem.
    pub fn matches_fs_type(&self, fs_type: &str) -> bool {
        const NAMES: [(&str, &[&str]); 7] = [
            ("EXT2-fs", &["ext2", "ext3", "ext4"]),
            ("EXT3-fs", &["ext2", "ext3", "ext4"]),
            ("EXT4-fs", &["ext2", "ext3", "ext4"]),
            ("JBD2", &["ext3", "ext4", "ocfs2"]),
            ("XFS", &["xfs"]),
            ("BTRFS", &["btrfs"]),
            ("F2FS-fs", &["f2fs"]),
        ];
        NAMES
            .iter()
            .find(|(name, _)| self.text.starts_with(name))
            .is_none_or(|(_, types)| types.contains(&fs_type))
    }
}

impl LineOrigin {
    pub fn witness(self) -> WitnessKind {
        match self {
            // The same code of the kernel writes both.
            LineOrigin::KernelLog | LineOrigin::Fanotify => WitnessKind::KernelLog,
            LineOrigin::Counter => WitnessKind::Counter,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            LineOrigin::KernelLog => "kernel log",
            LineOrigin::Counter => "sysfs",
            LineOrigin::Fanotify => "fanotify",
        }
    }
}

/// Longer records are truncated: evidence needs no hexdump. The kernel's own limit is 1 KiB.
pub const MAX_LINE_BYTES: usize = 1024;

/// Distinct sectors that one event keeps; `more_sectors` counts the rest.
pub(crate) const MAX_SECTORS: usize = 32;

/// How many copies of one block were found damaged, at most. Whether a good one is left depends on
/// the profiles of the btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DamagedCopies {
    pub data: u8,
    pub metadata: u8,
}

impl DamagedCopies {
    /// Redundancy or the drive itself corrected the error.
    pub const NONE: DamagedCopies = DamagedCopies { data: 0, metadata: 0 };
    /// No report names a copy, or it says that none is good.
    pub const ALL: DamagedCopies = DamagedCopies { data: u8::MAX, metadata: u8::MAX };

    pub const ONE_OF_DATA: DamagedCopies = DamagedCopies { data: 1, metadata: 0 };
    pub const ONE_OF_METADATA: DamagedCopies = DamagedCopies { data: 0, metadata: 1 };
    /// Of data or metadata.
    pub const ONE: DamagedCopies = DamagedCopies { data: 1, metadata: 1 };

    pub(crate) fn is_all(&self) -> bool {
        *self == DamagedCopies::ALL
    }

    pub fn is_partial(self) -> bool {
        self != DamagedCopies::ALL && self != DamagedCopies::NONE
    }

    pub(crate) fn worst_of(self, other: DamagedCopies) -> DamagedCopies {
        DamagedCopies {
            data: self.data.max(other.data),
            metadata: self.metadata.max(other.metadata),
        }
    }
}

impl Default for DamagedCopies {
    fn default() -> DamagedCopies {
        DamagedCopies::ALL
    }
}

/// One incident, or several of the same kind and device rolled up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the record that decided the incident: /dev/kmsg's sequence number, or the line
    /// number of a text. Increases with each event.
    pub seq: u64,
    pub class: Class,
    pub blame: Blame,
    /// The best name in the incident's records: the block device where there is one.
    pub device: DeviceName,
    /// Other names of the same device in the same incident (`ata3.00`, `2:0:0:0`).
    #[serde(rename = "also")]
    pub other_names: Vec<DeviceName>,
    /// Number of incidents. 0: later records of an incident that was reported already; they only
    /// add sectors and a last line.
    pub count: u64,
    /// Records of these incidents.
    pub records: u64,
    /// Records that the kernel suppressed by its own count: at least this many are missing.
    pub suppressed: u64,
    /// Distinct failed sectors, in units of 512 bytes from the start of `device`; sorted.
    pub sectors: Vec<u64>,
    /// Number of further distinct sectors.
    pub more_sectors: u64,
    pub operation: Option<Operation>,
    #[serde(default, skip_serializing_if = "DamagedCopies::is_all")]
    pub damaged: DamagedCopies,
    /// Name of the rule that decided the incident.
    pub rule: String,
    pub first: Line,
    pub last: Line,
}

impl Event {
    /// An event from another source than a log record: a counter, or a notice of fanotify(7).
    pub fn without_log_record(
        rule: &str,
        class: Class,
        device: DeviceName,
        count: u64,
        line: Line,
    ) -> Event {
        Event {
            seq: 0,
            class,
            blame: Blame::No,
            device,
            other_names: Vec::new(),
            count,
            records: 1,
            suppressed: 0,
            sectors: Vec::new(),
            more_sectors: 0,
            operation: None,
            damaged: DamagedCopies::ALL,
            rule: rule.to_owned(),
            first: line.clone(),
            last: line,
        }
    }
}

/// The kernel assigned a name: `sd 2:0:0:0: [sdb] Attached SCSI disk`, `XFS (dm-3): Mounting V5
/// Filesystem`. From this record on, the name means this device, or the filesystem of this mount.
/// Earlier events of the name were about another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameAssignment {
    pub seq: u64,
    /// `sdb`, `nvme0`, `loop3`: kernel name of a disk or a controller; for a filesystem, of its
    /// device.
    pub name: String,
    pub at: Timestamp,
    /// A filesystem was mounted.
    #[serde(rename = "filesystem")]
    pub is_filesystem: bool,
    /// It was mounted already: only its options changed.
    #[serde(default, rename = "again")]
    pub is_remount: bool,
}

impl NameAssignment {
    /// Whether the earlier event was about the former device of the name.
    pub fn supersedes(&self, event: &Event) -> bool {
        let named = |device: &DeviceName| match device {
            DeviceName::Block(name) => match self.is_filesystem {
                true => *name == self.name,
                false => *name == self.name || is_part_of(name, &self.name),
            },
            DeviceName::Nvme(name) => *name == self.name,
            _ => false,
        };
        self.seq > event.seq
            && self.is_filesystem == event.class.is_filesystem_class()
            && std::iter::once(&event.device).chain(&event.other_names).any(named)
            || self.seq > event.seq
                && !self.is_filesystem
                && event.class.is_filesystem_class()
                && named(&event.device)
    }
}

/// Whether it is a part: `sda1` of `sda`, `nvme0n1p2` of `nvme0n1`, `nvme0n1` of `nvme0`.
fn is_part_of(name: &str, whole: &str) -> bool {
    let Some(rest) = name.strip_prefix(whole) else {
        return false;
    };
    let digits = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    match whole.ends_with(|c: char| c.is_ascii_digit()) {
        true => rest.strip_prefix(['p', 'n', 'c']).is_some_and(digits),
        false => digits(rest),
    }
}

/// The kernel begins to read all of a device, or has come to its end: md's check or repair of an array,
/// a btrfs scrub of what is in use. Whether errors occurred is in the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullRead {
    pub seq: u64,
    /// `md0`; of a btrfs, the device by which it is mounted. `mdX`: an array of dm-raid, without its
    /// name (mdname(), drivers/md/md.h).
    pub device: String,
    /// Of a btrfs, the id of the member that is read.
    pub member: Option<u64>,
    pub at: Timestamp,
    pub is_done: bool,
}

/// Position of the reader in the kernel log; stored together with the events of its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// /proc/sys/kernel/random/boot_id: sequence numbers start over with each boot.
    pub boot_id: String,
    /// Events up to and including this record are counted. A reader that starts before it emits
    /// them again, and they are not counted twice.
    pub counted_to: Option<u64>,
    /// Where a new reader starts: at the first record of the oldest incident that was still open.
    pub reread_from: u64,
    /// Records since boot that the kernel's ring buffer overwrote before they were read.
    pub lost: u64,
}

/// The result of one read. It is applied as a whole: the events and the cursor belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub cursor: Cursor,
    /// In the order of `seq`.
    pub events: Vec<Event>,
    pub name_assignments: Vec<NameAssignment>,
    pub full_reads: Vec<FullRead>,
    /// The kernel wrote these records before the daemon read live.
    pub is_backlog: bool,
}

/// Where the reader starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResumePoint {
    /// The store has not returned the cursor yet.
    #[default]
    Unknown,
    /// After this position; None: at the oldest record in the ring buffer.
    From(Option<Cursor>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, event};

    #[test]
    fn a_name_assignment_supersedes_earlier_events_of_the_name_and_its_partitions() {
        let of = |name: &str, filesystem| NameAssignment {
            seq: 9,
            name: name.into(),
            at: at(0),
            is_filesystem: filesystem,
            is_remount: false,
        };
        let event_of = |class, device: &str| event(class, device, at(0), &[]);
        for (attached, earlier, superseded) in [
            (of("sda", false), event_of(Class::Medium, "sda"), true),
            (of("sda", false), event_of(Class::Io, "sda1"), true),
            (of("sda", false), event_of(Class::FsError, "sda1"), true),
            (of("sda", false), event_of(Class::Io, "sdab"), false),
            (of("nvme0", false), event_of(Class::Io, "nvme0n1"), true),
            (of("nvme0n1", false), event_of(Class::Io, "nvme0n1p3"), true),
            (of("nvme0n1", false), event_of(Class::Io, "nvme0n11"), false),
            (of("sda1", true), event_of(Class::FsShutdown, "sda1"), true),
            (of("sda1", true), event_of(Class::Io, "sda1"), false),
            (of("sda", true), event_of(Class::FsShutdown, "sda1"), false),
        ] {
            assert_eq!(attached.supersedes(&earlier), superseded, "{attached:?} {earlier:?}");
        }
        assert!(
            !NameAssignment { seq: 0, ..of("sda", false) }.supersedes(&event_of(Class::Io, "sda")),
            "what comes later"
        );
    }
}
