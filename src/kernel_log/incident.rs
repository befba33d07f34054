//! `Incident`: the records of one failure on one device, and when it has ended.
//!
//! In: the state that the classifier records. Out: whether a class is new, expected or expired.
//! Bounded in time, in records and in number.

use crate::event::{Class, DamagedCopies, Line};
use crate::parsed_record::{AdditionalSense, ParsedRecord};
use crate::scsi_sense;
use crate::scsi_sense::Interpretation;

/// Without a record for this long, an incident has ended: longer than an NVMe abort with the reset
/// after it (30 s each), and than libata's resets.
const QUIET_MICROS: u64 = 65_000_000;
/// The same limit in records of other devices, for texts without times.
const QUIET_RECORDS: u64 = 2_000;
/// A device that fails for hours has a new incident every five minutes.
const MAX_INCIDENT_MICROS: u64 = 300_000_000;
const MAX_INCIDENT_RECORDS: u64 = 8_192;
/// The kernel writes the report of one SCSI command without a pause.
const COMMAND_MICROS: u64 = 2_000_000;
const COMMAND_RECORDS: u64 = 16;
/// The layers above report a rejected request at once too; many requests follow each other.
const EXPECTED_FAILURE_RECORDS: u64 = 64;
/// The copies of one block are read one after the other.
const MAX_DAMAGED_BLOCKS: usize = 16;

/// The open incident of one device.
#[derive(Clone, Debug)]
pub(crate) struct Incident {
    pub key: String,
    started: LogPosition,
    last: LogPosition,
    /// The first record that no event has reported yet.
    pub first_unreported: Option<Line>,
    pub unreported_records: u64,
    pub reported: ClassSet,
    pub latest_class: Class,
    pub command: Option<ScsiCommand>,
    pub ata: AtaException,
    /// The host requested something impossible: the failure is no error.
    pub expected_failure: Option<ExpectedFailure>,
    /// The block layer has reported the sector of the medium error: its next report is another
    /// error.
    pub has_sector: bool,
    /// A record of the drive's own layers is about the failed request, and may contain its sector.
    pub has_request: bool,
    /// libata has reported a medium error that the SCSI layer will repeat.
    pub pending_repeats: u32,
    /// The adapter has reset the device without success.
    pub device_reset: bool,
    /// The most significant record of the undecided command.
    pub decisive_line: Option<Line>,
    /// Blocks with damaged copies that no record says to be repaired, the oldest first.
    damaged_blocks: Vec<DamagedBlock>,
    /// The worst that was reported of the filesystem's blocks.
    pub reported_damage: DamagedCopies,
}

#[derive(Clone, Copy, Debug)]
struct DamagedBlock {
    root: Option<i64>,
    inode: u64,
    offset: u64,
    /// A bit for each mirror.
    mirrors: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogPosition {
    pub seq: u64,
    pub time_us: u64,
}

impl LogPosition {
    /// Whether the distance exceeds either limit. A small step back in time is a difference between
    /// two processors; a large one is another day's log.
    pub(crate) fn is_beyond(self, before: LogPosition, micros: u64, records: u64) -> bool {
        self.time_us.abs_diff(before.time_us) > micros
            || self.seq.saturating_sub(before.seq) > records
    }
}

/// The classes that an incident has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassSet(u16);

const _: () = assert!(Class::ALL.len() <= u16::BITS as usize);

impl ClassSet {
    pub(crate) fn contains(self, class: Class) -> bool {
        self.0 & 1 << class as u16 != 0
    }

    pub(crate) fn insert(&mut self, class: Class) {
        self.0 |= 1 << class as u16;
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A failed SCSI command, with the part of its report that was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScsiCommand {
    pub position: LogPosition,
    pub host_byte: Option<u8>,
    pub sense_key: Option<u8>,
    pub sense: Option<AdditionalSense>,
    pub is_write: Option<bool>,
    /// First block and number of blocks.
    pub block_range: Option<(u64, u64)>,
    /// The command checks whether the drive has started.
    pub is_unit_ready_check: bool,
    pub decided: bool,
}

impl ScsiCommand {
    /// `whole`: no more records of the report will come.
    pub(crate) fn interpret(&self, whole: bool) -> Interpretation {
        if self.is_unit_ready_check {
            return Interpretation::Expected;
        }
        let by_host = self.host_byte.map(scsi_sense::interpret_host_byte);
        if let Some(cause @ Interpretation::Cause(..)) = by_host {
            return cause;
        }
        let additional =
            |sense| scsi_sense::interpret_additional_sense(self.sense_key, sense, self.is_write);
        let by_sense = self.sense.map(additional);
        let Some(key) = self.sense_key else {
            return match by_host {
                Some(Interpretation::Expected) => Interpretation::Expected,
                // A status without sense data, or a torn report: the block layer's record decides.
                _ => by_sense.filter(|_| whole).unwrap_or(Interpretation::Undecided),
            };
        };
        match (scsi_sense::interpret_sense_key(key), by_sense) {
            // A key that blames the drive waits for the command, because the meaning depends on it.
            (Interpretation::Cause(..), _) if !whole => Interpretation::Undecided,
            (Interpretation::Cause(..), Some(decided)) if decided != Interpretation::Undecided => {
                decided
            }
            (Interpretation::Expected, Some(cause @ Interpretation::Cause(..))) => cause,
            (Interpretation::Undecided, Some(decided)) => decided,
            (Interpretation::Undecided, None) if whole => additional(AdditionalSense::Unknown),
            (by_key, _) => by_key,
        }
    }

    /// A medium error at the very start of a large request: the sense data contained no sector
    /// (sd_done() counts the good sectors before it). Drives report this, software targets do not.
    pub(crate) fn lacks_error_location(&self, sector: Option<u64>) -> bool {
        let Some((first, blocks)) = self.block_range else {
            return false;
        };
        blocks >= 1024 && (sector == Some(first) || sector == first.checked_mul(8))
    }

    /// "Unrecovered read error" (11h/00h) for a write: software targets return it for every
    /// failure. libata reports 11h/04h for UNC.
    pub(crate) fn is_software_sense(&self) -> bool {
        matches!(self.sense_key, Some(3) | None)
            && self.sense == Some(AdditionalSense::Code(0x11, 0))
            && self.is_write == Some(true)
    }

    pub(crate) fn is_expired(&self, now: LogPosition) -> bool {
        now.is_beyond(self.position, COMMAND_MICROS, COMMAND_RECORDS)
    }
}

/// A rejection or an operator's request that explains the failures after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedFailure {
    pub position: LogPosition,
    /// Also explains medium errors of the block layer: a locked drive.
    pub medium: bool,
    /// An operator shut down the filesystem: every failure from then on is explained.
    pub filesystem: bool,
    /// The request was beyond the device's end: explains only what the buffer cache reports of it.
    pub beyond_end: bool,
}

impl ExpectedFailure {
    /// The device rejected a request as impossible.
    pub(crate) fn of_request(position: LogPosition) -> ExpectedFailure {
        ExpectedFailure { position, medium: false, filesystem: false, beyond_end: false }
    }

    fn is_expired(&self, now: LogPosition) -> bool {
        now.is_beyond(self.position, COMMAND_MICROS, EXPECTED_FAILURE_RECORDS)
    }
}

/// The state of libata's error handling on one port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AtaException {
    pub reported: ClassSet,
    /// The device did not respond to a reset, or the reset failed.
    pub failed_resets: u32,
    pub link_down: bool,
    pub in_standby: bool,
    /// The log with the failed queued command could not be read; announces the next exception.
    pub ncq_log_unreadable: bool,
    /// Only one of several failed commands failed itself, and it is unknown which: none of their
    /// sectors is known to be bad.
    pub failed_command_unknown: bool,
}

impl Incident {
    pub(crate) fn open(key: String, now: LogPosition) -> Incident {
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
            has_request: false,
            pending_repeats: 0,
            device_reset: false,
            decisive_line: None,
            damaged_blocks: Vec::new(),
            reported_damage: DamagedCopies::NONE,
        }
    }

    /// The copies of its block that are damaged, with those that earlier records reported.
    pub(crate) fn count_copies(&mut self, parsed: &ParsedRecord) -> DamagedCopies {
        let Some(copy) = parsed.copy else {
            return parsed.damaged;
        };
        let place = (copy.inode, copy.offset);
        let is_there = |block: &DamagedBlock| (block.inode, block.offset) == place;
        if parsed.damaged == DamagedCopies::NONE {
            self.damaged_blocks.retain(|block| !is_there(block));
            return parsed.damaged;
        }
        let is_it = |block: &DamagedBlock| is_there(block) && block.root == copy.root;
        let known = self.damaged_blocks.iter().position(is_it);
        let mut block = match known {
            Some(at) => self.damaged_blocks.remove(at),
            None => {
                DamagedBlock { root: copy.root, inode: copy.inode, offset: copy.offset, mirrors: 0 }
            }
        };
        block.mirrors |= 1 << copy.mirror.min(31);
        if self.damaged_blocks.len() >= MAX_DAMAGED_BLOCKS {
            self.damaged_blocks.remove(0);
        }
        self.damaged_blocks.push(block);
        let copies = block.mirrors.count_ones() as u8;
        DamagedCopies {
            data: parsed.damaged.data * copies,
            metadata: parsed.damaged.metadata * copies,
        }
    }

    /// Whether this says more of the filesystem's blocks than was reported.
    pub(crate) fn is_worse(&self, damaged: DamagedCopies) -> bool {
        self.reported_damage.worst_of(damaged) != self.reported_damage
    }

    /// Whether this effect belongs to an impossible or requested operation.
    pub(crate) fn is_expected(&self, class: Class, now: LogPosition) -> bool {
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
            | Class::ArrayState
            | Class::FsCorruption => false,
        }
    }

    pub(crate) fn touch(&mut self, now: LogPosition) {
        self.last = now;
    }

    pub(crate) fn is_expired(&self, now: LogPosition) -> bool {
        now.is_beyond(self.last, QUIET_MICROS, QUIET_RECORDS)
            || now.is_beyond(self.started, MAX_INCIDENT_MICROS, MAX_INCIDENT_RECORDS)
    }
}
