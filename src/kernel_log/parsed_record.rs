//! The parsed form of one record, before the classifier assigns it to an incident.

use crate::event::{Blame, Class, DamagedCopies, DeviceName, Operation};

/// What a rule's patterns found in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedText<'a> {
    /// The record's device by the patterns, and its SCSI address if the record has both.
    pub device: &'a DeviceName,
    pub other_name: Option<&'a DeviceName>,
    /// The devices and the other fields of the row's own pattern, in the order of the text.
    pub devices: &'a [DeviceName],
    pub fields: &'a [&'a str],
    /// The text after the pattern.
    pub after: &'a str,
}

/// One record, as parsed by its rule.
#[derive(Clone, Debug)]
pub(crate) struct ParsedRecord {
    pub device: DeviceName,
    pub other_name: Option<DeviceName>,
    pub kind: RecordKind,
    /// In units of 512 bytes.
    pub sector: Option<u64>,
    pub operation: Option<Operation>,
    pub damaged: DamagedCopies,
    /// The copy of a block that it is about.
    pub copy: Option<BlockCopy>,
    /// A second class of the same record: a timeout that made the kernel reset the controller.
    pub secondary: Option<(Class, Blame)>,
}

/// One copy of a block of a btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockCopy {
    /// The subvolume of the file. A record of a repair does not say it.
    pub root: Option<i64>,
    /// 0 for metadata.
    pub inode: u64,
    /// In the file, or the logical address of metadata.
    pub offset: u64,
    /// From 1.
    pub mirror: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Cause(Class, Blame),
    /// A cause; each record is a separate incident.
    SeparateCause(Class, Blame),
    Effect(Class, Blame),
    Continuation,
    /// The host requested something impossible: the following errors of this device do not count.
    /// `medium`: neither do medium errors of the block layer.
    ExpectedFailure {
        medium: bool,
    },
    /// The host requested a sector beyond the device's end.
    BeyondEnd,
    Scsi(ScsiRecord),
    Ata(AtaRecord),
    /// The kernel suppressed this number of records; the record's first word names the function.
    Suppressed(u64),
    Topology(TopologyUpdate),
}

/// A part of a failed SCSI command's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScsiRecord {
    /// `Result: hostbyte=…`: a new command, or in 3.10 the second line of one.
    Result {
        host: u8,
    },
    SenseKey(u8),
    /// Additional sense, as text or as numbers.
    AdditionalSense(AdditionalSense),
    /// `block_range`: first block and number of blocks, in the drive's own unit.
    Cdb {
        is_write: bool,
        block_range: Option<(u64, u64)>,
    },
    /// `[sdX] ` alone, or `Unhandled sense code`: the device of the following lines (3.10).
    DeviceContext,
    /// `Unit Not Ready`: the sense data that follow belong to the drive's start.
    UnitNotReady,
    /// `attempting task abort!` and similar: the next line contains the device, or no line does.
    /// The command's address is kept, because a later record may repeat it with the device.
    UnnamedRecovery(Class, Blame, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdditionalSense {
    Code(u8, u8),
    /// Text without a known code.
    Unknown,
}

/// A part of libata's exception report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtaRecord {
    /// `queued`: number of queued commands in flight (SAct).
    Exception {
        queued: u32,
    },
    /// The log with the failed queued command cannot be read: libata reports all of them as failed.
    NcqLogUnreadable,
    /// `res … Emask 0x40 (…)`
    Error(Class, Blame),
    /// The drive rejected the command; the `error: { … }` line has the details.
    DeviceError,
    /// A link reset; not a separate incident.
    LinkReset,
    /// The device does not respond after a reset yet.
    ResetFailed,
    /// A command of libata itself was not answered in time.
    InternalTimeout,
    LinkDown,
    /// `configured for`: the device works.
    Configured,
    Disabled,
    /// Stopped on request.
    Standby,
}

/// Information about names and kinds of devices in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopologyUpdate {
    /// `sd 0:0:0:0: [sda] Attached SCSI disk`
    DiskAttached,
    /// `XFS (sda1): Mounting V5 Filesystem`
    FilesystemMounted,
    /// Its options changed.
    FilesystemRemounted,
    /// `XFS (sda1): Unmounting Filesystem`
    FilesystemUnmounted,
    /// `mmc0: new HS400 MMC card at address 0001`
    CardFound,
    /// `sd 6:0:0:0: [sdb] Synchronizing SCSI cache`: the disk is being removed, or the machine stops.
    CacheFlush,
    /// The kernel begins to read all of the device, or of this member of a btrfs.
    ReadBegun(Option<u64>),
    /// It has read to the end.
    ReadDone(Option<u64>),
    /// `scsi host6: usb-storage 1-2:1.0`
    ScsiHost { host: u32, driver: String },
    /// `ata3: SATA max UDMA/133`
    AtaPort(u32),
    /// `scsi 0:0:0:0: Direct-Access     QEMU     QEMU HARDDISK`
    Model(String),
    /// `ata1.00: detaching (SCSI 5:0:0:0)`
    AtaPortOfHost,
    /// This device (all devices if unnamed) is reached over a network or a bridge, or is a software
    /// device.
    Kind(DeviceKind),
    /// `usb 2-1: reset SuperSpeed USB device number 2`
    UsbReset(String),
    /// `usb 2-1: USB disconnect`
    UsbDisconnect(String),
    /// `pciehp: Slot(7): Card not present`: the devices in the slot were removed.
    SlotEmptied,
    /// A virtual machine: its drives are virtual.
    VirtualMachine,
    /// `Linux version`: names and numbers start again.
    Boot,
}

/// The kind of a device, from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A directly attached drive; the default.
    Direct,
    /// Behind a USB bridge.
    Usb,
    /// iSCSI, Fibre Channel, NVMe over fabrics.
    Network,
    /// A virtual device of a hypervisor or a program.
    Virtual,
    /// Tape, optical, enclosure: not a monitored drive.
    Other,
}

impl DeviceKind {
    /// A device behind a bridge, a network or a program is never blamed for a missing response, and
    /// never surely for another error.
    pub fn blame(self, class: Class, blame: Blame) -> Blame {
        match self {
            DeviceKind::Direct => blame,
            _ if class.is_path_class() => Blame::No,
            _ => blame.min(Blame::Unclear),
        }
    }
}

impl ParsedRecord {
    pub(crate) fn new(device: DeviceName, kind: RecordKind) -> ParsedRecord {
        ParsedRecord {
            device,
            other_name: None,
            kind,
            sector: None,
            operation: None,
            damaged: DamagedCopies::ALL,
            copy: None,
            secondary: None,
        }
    }

    pub(crate) fn from_text(text: &MatchedText<'_>, kind: RecordKind) -> ParsedRecord {
        ParsedRecord {
            other_name: text.other_name.cloned(),
            ..ParsedRecord::new(text.device.clone(), kind)
        }
    }
}
