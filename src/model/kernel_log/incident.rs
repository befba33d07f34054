//! Records that belong together: what is open on one device, and until when.
//!
//! In: what one record says of it. Out: whether that tells something new. Bounded in time, in
//! records and in number.

use crate::model::kernel_log::event::{Class, Line};
use crate::model::kernel_log::parsed_record::AdditionalSense;
use crate::model::kernel_log::scsi_sense;
use crate::model::kernel_log::scsi_sense::Interpretation;

/// Quiet for this long ends an incident: longer than an NVMe abort and the reset after it (30 s
/// each), and than libata's resets.
const QUIET_MICROS: u64 = 65_000_000;
/// … or this many other records, for texts without times.
const QUIET_RECORDS: u64 = 2_000;
/// A device that fails for hours is an incident again every five minutes.
const MAX_INCIDENT_MICROS: u64 = 300_000_000;
const MAX_INCIDENT_RECORDS: u64 = 8_192;
/// The report of one SCSI command is written in one go.
const COMMAND_MICROS: u64 = 2_000_000;
const COMMAND_RECORDS: u64 = 16;
/// What is refused is told of at once, by the layers above as well; of many requests one after the
/// other.
const EXPECTED_FAILURE_RECORDS: u64 = 64;

/// What is open on one device.
#[derive(Clone, Debug)]
pub struct Incident {
    pub key: String,
    started: LogPosition,
    last: LogPosition,
    /// The first record that no event has told of yet.
    pub first_unreported: Option<Line>,
    pub unreported_records: u64,
    pub reported: ClassSet,
    pub latest_class: Class,
    pub command: Option<ScsiCommand>,
    pub ata: AtaException,
    /// What the host asked for cannot be, and its failure is none.
    pub expected_failure: Option<ExpectedFailure>,
    /// The block layer's own record of the medium error has been seen: the next one is another's.
    pub has_sector: bool,
    /// libata has told of a medium error, and the SCSI layer will tell of it again.
    pub pending_repeats: u32,
    /// The adapter has reset the device, and that did not help.
    pub device_reset: bool,
    /// The record of the undecided command that says the most.
    pub decisive_line: Option<Line>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct LogPosition {
    pub seq: u64,
    pub time_us: u64,
}

impl LogPosition {
    /// Farther apart than either. A time that goes back a little is of two processors; a lot, of
    /// another day's log.
    pub fn is_beyond(self, before: LogPosition, micros: u64, records: u64) -> bool {
        self.time_us.abs_diff(before.time_us) > micros
            || self.seq.saturating_sub(before.seq) > records
    }
}

/// The classes that were told of an incident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSet(u16);

const _: () = assert!(Class::ALL.len() <= u16::BITS as usize);

impl ClassSet {
    pub fn contains(self, class: Class) -> bool {
        self.0 & 1 << class as u16 != 0
    }

    pub fn insert(&mut self, class: Class) {
        self.0 |= 1 << class as u16;
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A failed SCSI command, as far as its report has been read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScsiCommand {
    pub position: LogPosition,
    pub host_byte: Option<u8>,
    pub sense_key: Option<u8>,
    pub sense: Option<AdditionalSense>,
    pub is_write: Option<bool>,
    /// First block and number of blocks.
    pub block_range: Option<(u64, u64)>,
    /// It is the one that asks whether the drive has started.
    pub is_unit_ready_check: bool,
    pub decided: bool,
}

impl ScsiCommand {
    /// `whole`: nothing more will be said.
    pub fn interpret(&self, whole: bool) -> Interpretation {
        if self.is_unit_ready_check {
            return Interpretation::Expected;
        }
        if let Some(Interpretation::Cause(class, blame)) =
            self.host_byte.map(scsi_sense::interpret_host_byte)
        {
            return Interpretation::Cause(class, blame);
        }
        let Some(key) = self.sense_key else {
            return match self.host_byte.map(scsi_sense::interpret_host_byte) {
                Some(Interpretation::Expected) => Interpretation::Expected,
                // A status without sense data, or a torn report: the block layer's word stands.
                _ => self
                    .sense
                    .filter(|_| whole)
                    .map_or(Interpretation::Undecided, |code| {
                        scsi_sense::interpret_additional_sense(None, code, self.is_write)
                    }),
            };
        };
        match scsi_sense::interpret_sense_key(key) {
            // A key that says the drive has failed waits for the command: what it was belongs to
            // what it means.
            Interpretation::Cause(..) if !whole => Interpretation::Undecided,
            Interpretation::Cause(class, blame) => match self
                .sense
                .map(|code| scsi_sense::interpret_additional_sense(Some(key), code, self.is_write))
            {
                Some(Interpretation::Cause(class, blame)) => Interpretation::Cause(class, blame),
                Some(Interpretation::Expected) => Interpretation::Expected,
                _ => Interpretation::Cause(class, blame),
            },
            Interpretation::Expected => match self
                .sense
                .map(|code| scsi_sense::interpret_additional_sense(Some(key), code, self.is_write))
            {
                Some(Interpretation::Cause(class, blame)) => Interpretation::Cause(class, blame),
                _ => Interpretation::Expected,
            },
            Interpretation::Undecided => match self.sense {
                Some(code) => {
                    scsi_sense::interpret_additional_sense(Some(key), code, self.is_write)
                }
                None if whole => scsi_sense::interpret_additional_sense(
                    Some(key),
                    AdditionalSense::Unknown,
                    self.is_write,
                ),
                None => Interpretation::Undecided,
            },
        }
    }

    /// A medium error somewhere in a large request, said to be at its very start: no place was
    /// given with the sense data (sd_done() counts what is good before it), as drives do and
    /// targets in software do not.
    pub fn lacks_error_location(&self, sector: Option<u64>) -> bool {
        let Some((first, blocks)) = self.block_range else {
            return false;
        };
        blocks >= 1024 && (sector == Some(first) || sector == first.checked_mul(8))
    }

    /// "Unrecovered read error" (11h/00h) to a write: what targets in software answer to
    /// everything. libata says 11h/04h for UNC.
    pub fn is_software_sense(&self) -> bool {
        matches!(self.sense_key, Some(3) | None)
            && self.sense == Some(AdditionalSense::Code(0x11, 0))
            && self.is_write == Some(true)
    }

    pub fn is_expired(&self, now: LogPosition) -> bool {
        now.is_beyond(self.position, COMMAND_MICROS, COMMAND_RECORDS)
    }
}

/// A refusal, or somebody's wish, that explains what comes next.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedFailure {
    pub position: LogPosition,
    /// Also of what the block layer calls a medium error: a locked drive.
    pub medium: bool,
    /// It was shut down by hand: all that it cannot do from then on.
    pub filesystem: bool,
}

impl ExpectedFailure {
    fn is_expired(&self, now: LogPosition) -> bool {
        now.is_beyond(self.position, COMMAND_MICROS, EXPECTED_FAILURE_RECORDS)
    }
}

/// What libata's error handling of one port has told so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtaException {
    pub reported: ClassSet,
    /// The device did not answer a reset, or the reset did not work.
    pub failed_resets: u32,
    pub link_down: bool,
    pub in_standby: bool,
    /// Which queued command failed could not be read; said of the exception to come.
    pub ncq_log_unreadable: bool,
    /// Of several commands that are called failed one has, and it is not known which: no sector of
    /// them is known to be bad.
    pub failed_command_unknown: bool,
}

impl Incident {
    pub fn open(key: String, now: LogPosition) -> Incident {
        Incident {
            key,
            started: now,
            last: now,
            first_unreported: None,
            unreported_records: 0,
            reported: ClassSet::default(),
            latest_class: Class::Io,
            command: None,
            ata: AtaException::default(),
            expected_failure: None,
            has_sector: false,
            pending_repeats: 0,
            device_reset: false,
            decisive_line: None,
        }
    }

    /// Whether this effect is of what the host should not have asked for.
    pub fn is_expected(&self, class: Class, now: LogPosition) -> bool {
        let Some(excuse) = self.expected_failure else {
            return false;
        };
        match class {
            Class::ReadOnly | Class::FsError | Class::FsShutdown => excuse.filesystem,
            Class::Medium => excuse.medium && !excuse.is_expired(now),
            Class::Io => !excuse.filesystem && !excuse.is_expired(now),
            Class::Timeout
            | Class::Transport
            | Class::Reset
            | Class::Removed
            | Class::FsCorruption => false,
        }
    }

    pub fn touch(&mut self, now: LogPosition) {
        self.last = now;
    }

    pub fn is_expired(&self, now: LogPosition) -> bool {
        now.is_beyond(self.last, QUIET_MICROS, QUIET_RECORDS)
            || now.is_beyond(self.started, MAX_INCIDENT_MICROS, MAX_INCIDENT_RECORDS)
    }
}
