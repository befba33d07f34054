//! What one record says, before it is known to which incident it belongs.

use crate::model::kernel::event::{Blame, Class, Device, Operation};
use crate::model::kernel::name;

/// The table's row: how one printk is recognised and what it means.
#[derive(Debug)]
pub struct Rule {
    /// Shown in `Event.rule`; `family-what`.
    pub name: &'static str,
    /// The text begins so; "" = anyhow.
    pub under: &'static str,
    /// The text contains this; the prefilter looks for it.
    pub needle: &'static str,
    pub says: Says,
    /// Where the kernel prints it, and since when: file, function, versions.
    pub kernel: &'static str,
}

/// What a record means. The device is what `name::named` finds, unless a reader says otherwise.
#[derive(Clone, Copy, Debug)]
pub enum Says {
    /// Names a cause. Joins an open incident of the same class on the same device, or opens one.
    Cause(Class, Blame),
    /// What becomes of a failure. Joins whatever is open on the device; when nothing is, it is an
    /// incident of this class.
    Effect(Class, Blame),
    /// Belongs to what is open on the device, and says nothing alone.
    Follow,
    /// Says nothing; keeps a broader row below from matching.
    Harmless,
    Read(fn(&Text<'_>) -> Option<Said>),
}

/// A record's text around the needle.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    pub all: &'a str,
    pub before: &'a str,
    pub after: &'a str,
}

/// What a record says, read.
#[derive(Clone, Debug)]
pub struct Said {
    pub device: Device,
    pub also: Option<Device>,
    pub part: Part,
    /// In units of 512 bytes.
    pub sector: Option<u64>,
    pub operation: Option<Operation>,
    pub corrected: bool,
    /// A second class that the same record tells: a timeout that made the kernel reset the
    /// controller.
    pub then: Option<(Class, Blame)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Cause(Class, Blame),
    /// A cause, each record an incident of its own.
    Each(Class, Blame),
    Effect(Class, Blame),
    Follow,
    /// What follows on this device is not an error: the host asked for something that cannot be.
    /// `medium`: not even what the block layer calls a medium error.
    Excuse {
        medium: bool,
    },
    Scsi(Scsi),
    Ata(Ata),
    /// The kernel left out this many records; which, the first word says.
    Suppressed(u64),
    Learn(Learn),
}

/// A part of a failed SCSI command's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scsi {
    /// `Result: hostbyte=…`: a new command, or in 3.10 the second line of one.
    Result {
        host: u8,
    },
    Key(u8),
    /// Additional sense, by its words or by its numbers.
    Sense(AddSense),
    /// `place`: first block and number of blocks, in the drive's own unit.
    Cdb {
        write: bool,
        place: Option<(u64, u64)>,
    },
    /// `[sdX] ` and nothing else, `Unhandled sense code`: the device of the lines to come (3.10).
    Names,
    /// `Unit Not Ready`: the sense data that follow are of the start.
    Probe,
    /// `attempting task abort!` and the like, which names the device on the next line or not at
    /// all.
    /// The command's address is kept: it may be named once and told of again.
    Awaits(Class, Blame, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddSense {
    Code(u8, u8),
    /// Words that no code was found for.
    Unknown,
}

/// A part of libata's exception report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ata {
    /// How many queued commands were under way (SAct).
    Exception {
        queued: u32,
    },
    /// The log that tells which queued command failed cannot be read: libata calls all of them
    /// failed.
    CulpritUnread,
    /// `res … Emask 0x40 (…)`
    Outcome(Class, Blame),
    /// The drive refused the command; the `error: { … }` line says more.
    DeviceError,
    /// A link reset; none of an incident of its own.
    Reset,
    /// The device did not come back from a reset (yet).
    NotBack,
    LinkDown,
    /// `configured for`: it works.
    Works,
    Disabled,
    /// Stopped on purpose.
    Stopped,
}

/// What a record teaches of names and kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learn {
    /// `sd 0:0:0:0: [sda] Attached SCSI disk`
    Attached,
    /// `XFS (sda1): Mounting V5 Filesystem`
    Mounted,
    /// `scsi host6: usb-storage 1-2:1.0`
    Host { host: u32, driver: String },
    /// `ata3: SATA max UDMA/133`
    Port(u32),
    /// `scsi 0:0:0:0: Direct-Access     QEMU     QEMU HARDDISK`
    Model(String),
    /// `ata1.00: detaching (SCSI 5:0:0:0)`
    Same,
    /// This device (or, unnamed, all of them) is reached over a network, a bridge, or is made by
    /// software.
    Kind(Kind),
    /// `usb 2-1: reset SuperSpeed USB device number 2`
    UsbReset(String),
    /// `usb 2-1: USB disconnect`
    Unplugged(String),
    /// `pciehp: Slot(7): Card not present`: what is below has been taken out.
    SlotEmptied,
    /// A guest of a hypervisor: its drives are not drives.
    Guest,
    /// `Linux version`: everything begins anew.
    Boot,
}

/// What a device is, as far as the log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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

impl Said {
    pub fn new(device: Device, part: Part) -> Said {
        Said {
            device,
            also: None,
            part,
            sector: None,
            operation: None,
            corrected: false,
            then: None,
        }
    }

    pub fn of(text: &Text<'_>, part: Part) -> Said {
        let (device, also) = name::named(text.all);
        Said {
            also,
            ..Said::new(device, part)
        }
    }
}

impl Rule {
    /// None: it is not this rule's after all.
    pub fn read(&self, all: &str, at: usize) -> Option<Said> {
        let text = Text {
            all,
            before: all.get(..at)?,
            after: all.get(at + self.needle.len()..)?,
        };
        match self.says {
            Says::Cause(class, blame) => Some(Said::of(&text, Part::Cause(class, blame))),
            Says::Effect(class, blame) => Some(Said::of(&text, Part::Effect(class, blame))),
            Says::Follow => Some(Said::of(&text, Part::Follow)),
            Says::Harmless => None,
            Says::Read(read) => read(&text),
        }
    }
}

/// A row, short enough for one line.
pub const fn rule(
    name: &'static str,
    under: &'static str,
    needle: &'static str,
    says: Says,
    kernel: &'static str,
) -> Rule {
    Rule {
        name,
        under,
        needle,
        says,
        kernel,
    }
}
