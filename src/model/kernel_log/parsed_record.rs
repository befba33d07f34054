//! What one record says, before it is known to which incident it belongs.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::{Blame, Class, DeviceName, Operation};

/// A record's text around the needle.
#[derive(Clone, Copy, Debug)]
pub struct MatchedText<'a> {
    pub all: &'a str,
    pub before: &'a str,
    pub after: &'a str,
}

/// What a record says, read.
#[derive(Clone, Debug)]
pub struct ParsedRecord {
    pub device: DeviceName,
    pub other_name: Option<DeviceName>,
    pub kind: RecordKind,
    /// In units of 512 bytes.
    pub sector: Option<u64>,
    pub operation: Option<Operation>,
    pub corrected: bool,
    /// A second class that the same record tells: a timeout that made the kernel reset the
    /// controller.
    pub secondary: Option<(Class, Blame)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordKind {
    Cause(Class, Blame),
    /// A cause, each record an incident of its own.
    SeparateCause(Class, Blame),
    Effect(Class, Blame),
    Continuation,
    /// What follows on this device is not an error: the host asked for something that cannot be.
    /// `medium`: not even what the block layer calls a medium error.
    ExpectedFailure {
        medium: bool,
    },
    Scsi(ScsiRecord),
    Ata(AtaRecord),
    /// The kernel left out this many records; which, the first word says.
    Suppressed(u64),
    Topology(TopologyUpdate),
}

/// A part of a failed SCSI command's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScsiRecord {
    /// `Result: hostbyte=…`: a new command, or in 3.10 the second line of one.
    Result {
        host: u8,
    },
    SenseKey(u8),
    /// Additional sense, by its words or by its numbers.
    AdditionalSense(AdditionalSense),
    /// `place`: first block and number of blocks, in the drive's own unit.
    Cdb {
        is_write: bool,
        block_range: Option<(u64, u64)>,
    },
    /// `[sdX] ` and nothing else, `Unhandled sense code`: the device of the lines to come (3.10).
    DeviceContext,
    /// `Unit Not Ready`: the sense data that follow are of the start.
    UnitNotReady,
    /// `attempting task abort!` and the like, which names the device on the next line or not at
    /// all.
    /// The command's address is kept: it may be named once and told of again.
    UnnamedRecovery(Class, Blame, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdditionalSense {
    Code(u8, u8),
    /// Words that no code was found for.
    Unknown,
}

/// A part of libata's exception report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtaRecord {
    /// How many queued commands were under way (SAct).
    Exception {
        queued: u32,
    },
    /// The log that tells which queued command failed cannot be read: libata calls all of them
    /// failed.
    NcqLogUnreadable,
    /// `res … Emask 0x40 (…)`
    Error(Class, Blame),
    /// The drive refused the command; the `error: { … }` line says more.
    DeviceError,
    /// A link reset; none of an incident of its own.
    LinkReset,
    /// The device did not come back from a reset (yet).
    ResetFailed,
    LinkDown,
    /// `configured for`: it works.
    Configured,
    Disabled,
    /// Stopped on purpose.
    Standby,
}

/// What a record teaches of names and kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyUpdate {
    /// `sd 0:0:0:0: [sda] Attached SCSI disk`
    DiskAttached,
    /// `XFS (sda1): Mounting V5 Filesystem`
    FilesystemMounted,
    /// `scsi host6: usb-storage 1-2:1.0`
    ScsiHost { host: u32, driver: String },
    /// `ata3: SATA max UDMA/133`
    AtaPort(u32),
    /// `scsi 0:0:0:0: Direct-Access     QEMU     QEMU HARDDISK`
    Model(String),
    /// `ata1.00: detaching (SCSI 5:0:0:0)`
    AtaPortOfHost,
    /// This device (or, unnamed, all of them) is reached over a network, a bridge, or is made by
    /// software.
    Kind(DeviceKind),
    /// `usb 2-1: reset SuperSpeed USB device number 2`
    UsbReset(String),
    /// `usb 2-1: USB disconnect`
    UsbDisconnect(String),
    /// `pciehp: Slot(7): Card not present`: what is below has been taken out.
    SlotEmptied,
    /// A guest of a hypervisor: its drives are not drives.
    VirtualMachine,
    /// `Linux version`: everything begins anew.
    Boot,
}

/// What a device is, as far as the log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// Nothing speaks against a drive at a cable.
    Direct,
    /// Behind a USB bridge.
    Usb,
    /// iSCSI, Fibre Channel, NVMe over fabrics.
    Network,
    /// A hypervisor's or a program's.
    Virtual,
    /// Tape, optical, enclosure: no drive of ours.
    Other,
}

impl ParsedRecord {
    pub fn new(device: DeviceName, part: RecordKind) -> ParsedRecord {
        ParsedRecord {
            device,
            other_name: None,
            kind: part,
            sector: None,
            operation: None,
            corrected: false,
            secondary: None,
        }
    }

    pub fn from_text(text: &MatchedText<'_>, part: RecordKind) -> ParsedRecord {
        let (device, also) = device_name::find_in_text(text.all);
        ParsedRecord {
            other_name: also,
            ..ParsedRecord::new(device, part)
        }
    }
}
