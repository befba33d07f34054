//! Records that belong together: what is open on one device, and until when.
//!
//! In: what one record says of it. Out: whether that tells something new. Bounded in time, in
//! records and in number.

use crate::model::kernel::event::{Class, Line};
use crate::model::kernel::said::AddSense;
use crate::model::kernel::sense;
use crate::model::kernel::sense::Meaning;

/// Quiet for this long ends an incident: longer than an NVMe abort and the reset after it (30 s
/// each), and than libata's resets.
const QUIET_MICROS: u64 = 65_000_000;
/// … or this many other records, for texts without times.
const QUIET_RECORDS: u64 = 2_000;
/// A device that fails for hours is an incident again every five minutes.
const LONGEST_MICROS: u64 = 300_000_000;
const LONGEST_RECORDS: u64 = 8_192;
/// The report of one SCSI command is written in one go.
const COMMAND_MICROS: u64 = 2_000_000;
const COMMAND_RECORDS: u64 = 16;
/// What is refused is told of at once, by the layers above as well; of many requests one after the
/// other.
const EXCUSE_RECORDS: u64 = 64;

/// What is open on one device.
#[derive(Clone, Debug)]
pub struct Incident {
    pub key: String,
    started: At,
    last: At,
    /// The first record that no event has told of yet.
    pub first: Option<Line>,
    pub untold: u64,
    pub told: Told,
    pub latest: Class,
    pub command: Option<Command>,
    pub ata: Exception,
    /// What the host asked for cannot be, and its failure is none.
    pub excuse: Option<Excuse>,
    /// The block layer's own record of the medium error has been seen: the next one is another's.
    pub sector_seen: bool,
    /// libata has told of a medium error, and the SCSI layer will tell of it again.
    pub credit: u32,
    /// The adapter has reset the device, and that did not help.
    pub device_reset: bool,
    /// The record of the undecided command that says the most.
    pub decisive: Option<Line>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct At {
    pub seq: u64,
    pub time: u64,
}

impl At {
    /// Farther apart than either. A time that goes back a little is of two processors; a lot, of
    /// another day's log.
    pub fn is_beyond(self, before: At, micros: u64, records: u64) -> bool {
        self.time.abs_diff(before.time) > micros || self.seq.saturating_sub(before.seq) > records
    }
}

/// The classes that were told of an incident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told(u16);

impl Told {
    pub fn has(self, class: Class) -> bool {
        self.0 & 1 << class as u16 != 0
    }

    pub fn add(&mut self, class: Class) {
        self.0 |= 1 << class as u16;
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A failed SCSI command, as far as its report has been read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Command {
    pub at: At,
    pub host: Option<u8>,
    pub key: Option<u8>,
    pub sense: Option<AddSense>,
    pub write: Option<bool>,
    /// First block and number of blocks.
    pub place: Option<(u64, u64)>,
    /// It is the one that asks whether the drive has started.
    pub probe: bool,
    pub decided: bool,
}

impl Command {
    /// `whole`: nothing more will be said.
    pub fn meaning(&self, whole: bool) -> Meaning {
        if self.probe {
            return Meaning::Excuse;
        }
        if let Some(Meaning::Cause(class, blame)) = self.host.map(sense::of_host_byte) {
            return Meaning::Cause(class, blame);
        }
        let Some(key) = self.key else {
            return match self.host.map(sense::of_host_byte) {
                Some(Meaning::Excuse) => Meaning::Excuse,
                // A status without sense data, or a torn report: the block layer's word stands.
                _ => self.sense.filter(|_| whole).map_or(Meaning::Open, |code| {
                    sense::of_sense(None, code, self.write)
                }),
            };
        };
        match sense::of_sense_key(key) {
            // A key that says the drive has failed waits for the command: what it was belongs to
            // what it means.
            Meaning::Cause(..) if !whole => Meaning::Open,
            Meaning::Cause(class, blame) => match self
                .sense
                .map(|code| sense::of_sense(Some(key), code, self.write))
            {
                Some(Meaning::Cause(class, blame)) => Meaning::Cause(class, blame),
                Some(Meaning::Excuse) => Meaning::Excuse,
                _ => Meaning::Cause(class, blame),
            },
            Meaning::Excuse => match self
                .sense
                .map(|code| sense::of_sense(Some(key), code, self.write))
            {
                Some(Meaning::Cause(class, blame)) => Meaning::Cause(class, blame),
                _ => Meaning::Excuse,
            },
            Meaning::Open => match self.sense {
                Some(code) => sense::of_sense(Some(key), code, self.write),
                None if whole => sense::of_sense(Some(key), AddSense::Unknown, self.write),
                None => Meaning::Open,
            },
        }
    }

    /// A medium error somewhere in a large request, said to be at its very start: no place was
    /// given with the sense data (sd_done() counts what is good before it), as drives do and
    /// targets in software do not.
    pub fn is_without_place(&self, sector: Option<u64>) -> bool {
        let Some((first, blocks)) = self.place else {
            return false;
        };
        blocks >= 1024 && (sector == Some(first) || sector == first.checked_mul(8))
    }

    /// "Unrecovered read error" (11h/00h) to a write: what targets in software answer to
    /// everything. libata says 11h/04h for UNC.
    pub fn is_by_software(&self) -> bool {
        matches!(self.key, Some(3) | None)
            && self.sense == Some(AddSense::Code(0x11, 0))
            && self.write == Some(true)
    }

    pub fn is_over(&self, now: At) -> bool {
        now.is_beyond(self.at, COMMAND_MICROS, COMMAND_RECORDS)
    }
}

/// A refusal, or somebody's wish, that explains what comes next.
#[derive(Clone, Copy, Debug)]
pub struct Excuse {
    pub at: At,
    /// Also of what the block layer calls a medium error: a locked drive.
    pub medium: bool,
    /// It was shut down by hand: all that it cannot do from then on.
    pub filesystem: bool,
}

impl Excuse {
    fn is_over(&self, now: At) -> bool {
        now.is_beyond(self.at, COMMAND_MICROS, EXCUSE_RECORDS)
    }
}

/// What libata's error handling of one port has told so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exception {
    pub told: Told,
    /// The device did not answer a reset, or the reset did not work.
    pub not_back: u32,
    pub link_down: bool,
    pub stopped: bool,
    /// Which queued command failed could not be read; said of the exception to come.
    pub culprit_unread: bool,
    /// Of several commands that are called failed one has, and it is not known which: no sector of
    /// them is known to be bad.
    pub any_of_many: bool,
}

impl Incident {
    pub fn open(key: String, now: At) -> Incident {
        Incident {
            key,
            started: now,
            last: now,
            first: None,
            untold: 0,
            told: Told::default(),
            latest: Class::Io,
            command: None,
            ata: Exception::default(),
            excuse: None,
            sector_seen: false,
            credit: 0,
            device_reset: false,
            decisive: None,
        }
    }

    /// Whether this effect is of what the host should not have asked for.
    pub fn excuses(&self, class: Class, now: At) -> bool {
        let Some(excuse) = self.excuse else {
            return false;
        };
        match class {
            Class::ReadOnly | Class::FsError | Class::FsShutdown => excuse.filesystem,
            Class::Medium => excuse.medium && !excuse.is_over(now),
            Class::Io => !excuse.filesystem && !excuse.is_over(now),
            _ => false,
        }
    }

    pub fn touch(&mut self, now: At) {
        self.last = now;
    }

    pub fn is_over(&self, now: At) -> bool {
        now.is_beyond(self.last, QUIET_MICROS, QUIET_RECORDS)
            || now.is_beyond(self.started, LONGEST_MICROS, LONGEST_RECORDS)
    }
}
