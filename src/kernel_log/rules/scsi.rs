//! Rules for the SCSI mid layer and SCSI disks: a failed command has several records, and the sense
//! data decide its meaning.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::parsed_record::{
    AdditionalSense, DeviceKind, MatchedText, RecordKind, ScsiRecord, TopologyUpdate,
};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Evidence, Role, RuleAction, RuleFamily, rules};
use crate::scsi_sense;

/// The driver and the device of a command: `sd 2:0:0:0: [sdb] tag#3 `. Up to 3.16,
/// `sd 2:0:0:0: [sdb]  ` is a line of its own. storvsc writes its own name in the disk's place.
pub(super) const COMMAND: &str =
    "s<d|csi|r|t|es|g> <hctl>: {[storvsc] }{[<disk>]}<blanks>{\n}{tag#<dec> }";

/// A line of a command's report that has no device, because the line before it has (up to 3.16):
/// its pattern must be the whole line.
const LINE: RuleFamily = DRIVE.rate_limited();
const SCSI: RuleFamily = LINE.with_prefix(COMMAND);
const SD: RuleFamily = LINE.with_prefix("sd <hctl>: {[<disk>]}<blanks>{\n}{tag#<dec> }");
/// Also of devices that are no drives: the lines without a device that follow are about them.
const ANY_DRIVER: RuleFamily =
    LINE.with_prefix("<sd|scsi|sr|st|ses|sg|ch|osst> <hctl>: {[<disk>] }");
const SCANNED: RuleFamily = LINE.with_prefix("scsi <hctl>: ");

const MIN_COMMAND_BYTES: usize = 6;

const DEVICE_CONTEXT: RuleAction = Record(RecordKind::Scsi(ScsiRecord::DeviceContext));
const NO_DISK: RuleAction = Record(RecordKind::Topology(TopologyUpdate::Kind(DeviceKind::Other)));

rules! {
    in "drivers/scsi/";
    "scsi-cache-flush": SD, "Synchronizing SCSI cache$"
        => Record(RecordKind::Topology(TopologyUpdate::CacheFlush)),
           "sd.c sd_shutdown(), sd_suspend_common(): also when a disk was unplugged; 2.6.32-6.18";
    "scsi-cache": SD.with_role(Role::CacheFlush),
        "<Synchronize Cache(10)|Synchronize Cache(16)|Synchronize Cache|Start/Stop Unit\
         |Test Unit Ready|Read Capacity(16)|Read Capacity(10)> failed: Result: hostbyte=<word>"
        => ParseKind(cache_sync_failed), "sd.c sd_sync_cache(), sd_start_stop_device(); 3.10-6.18";
    "scsi-result": SCSI, "{Done: }{REPORT ZONES: }{<word> }{UNKNOWN(<hex>) }Result: hostbyte=<word>"
        => ParseKind(result), "scsi_logging.c scsi_print_result(), constants.c; 3.10-6.18";
    "scsi-return-code": ANY_DRIVER, "SCSI error: return code = 0x<hex>$"
        => ParseKind(return_code), "scsi_lib.c scsi_io_completion(): all four bytes; up to 2.6.24";
    "scsi-return-code-removed": LINE, "<hctl>: SCSI error: return code = 0x<hex>$"
        => ParseKind(return_code),
           "scsi_lib.c scsi_io_completion(): the driver has been detached; up to 2.6.24";
    "scsi-return-code-old": LINE,
        "SCSI error : <<|<><dec> <dec> <dec> <dec>> return code = 0x<hex>$"
        => ParseKind(return_code),
           "scsi_lib.c scsi_io_completion(): without the driver; up to 2.6.16";
    "scsi-result-line": LINE, "Result: hostbyte=<word> driverbyte=<word>{,<word>}$"
        => ParseKind(result_line), "constants.c scsi_show_result(); up to 3.16";
    "scsi-sense-key": SCSI, "Sense Key : "
        => ParseKind(sense_key), "scsi_logging.c scsi_log_dump_sense(), constants.c; 3.10-6.18";
    "scsi-sense-key-line": LINE, "Sense Key : "
        => ParseKind(sense_key_line), "constants.c scsi_show_sense_hdr(); up to 3.16";
    "scsi-sense-key-old": LINE,
        "<disk>: <Current|Deferred|current|deferred>{ [descriptor]}: sense key: <words>$"
        => ParseKind(sense_key_name), "constants.c scsi_print_sense(); up to 2.6.24";
    "scsi-sense-key-current": LINE, "<Current|Deferred> <disk>: sense key <words>$"
        => ParseKind(sense_key_name), "constants.c scsi_print_sense(); up to 2.6.11";
    "scsi-sense-old": LINE, "Additional sense: "
        => ParseKind(additional_sense_line), "constants.c scsi_show_extd_sense(); up to 2.6.24";
    "scsi-sense": SCSI, "Add. Sense: "
        => ParseKind(additional_sense),
           "scsi_logging.c, constants.c scsi_show_extd_sense(); 3.10-6.18";
    "scsi-sense-line": LINE, "Add. Sense: "
        => ParseKind(additional_sense_line), "constants.c scsi_show_extd_sense(); up to 3.16";
    // `<<<vendor|>{>>}` is an optional `<<vendor>>`.
    "scsi-sense-number": SCSI, "<<<vendor|>{>>}<blanks>ASC=<hex> <<<vendor|>{>>}<blanks>ASCQ=<hex>"
        => ParseKind(numeric_sense), "scsi_logging.c without CONFIG_SCSI_CONSTANTS; 3.10-6.18";
    "scsi-sense-number-line": LINE, "ASC=<hex> <<<vendor|>{>>}<blanks>ASCQ=<hex>$"
        => ParseKind(numeric_sense), "constants.c scsi_show_extd_sense(); up to 3.16";
    // `<<vendor>> ASC=0x85 ASCQ=0x0ASC=0x85 ASCQ=0x0`: printed twice without a blank; the first
    // `<hex>` takes the second `A`.
    "scsi-sense-vendor-line": LINE,
        "<<<vendor|<<vendor>>> ASC=<hex> ASCQ=<hex>SC=<hex> <<<vendor|>{>>}<blanks>ASCQ=<hex>$"
        => ParseKind(numeric_sense), "constants.c scsi_show_extd_sense(); up to 3.16";
    "scsi-command": SCSI, "CDB: "
        => ParseKind(cdb), "scsi_logging.c scsi_print_command(), constants.c; 3.10-6.18";
    "scsi-command-line": LINE, "CDB: "
        => ParseKind(cdb_line), "constants.c scsi_print_command(); up to 3.16";
    "scsi-unhandled": ANY_DRIVER, "Unhandled sense code"
        => DEVICE_CONTEXT, "scsi_lib.c scsi_io_completion(); up to 3.16";
    "scsi-unhandled-error": ANY_DRIVER, "Unhandled error code"
        => DEVICE_CONTEXT, "scsi_lib.c scsi_io_completion(); up to 3.16";
    "scsi-device": SCSI, "$"
        => DEVICE_CONTEXT,
           "constants.c scsi_print_sense(): the lines that follow have no device; up to 3.16";
    "scsi-offlined": SCSI.with_evidence(Evidence::Offlined),
        "{scsi: }Device offlined - not ready after error recovery"
        => Cause(Removed, Unclear),
           "scsi_error.c scsi_eh_offline_sdevs(), up to 2.6.24 with `scsi: `; 2.6.18-6.18";
    "scsi-offlined-old": SCSI.with_evidence(Evidence::Offlined),
        "Device offlined - command error recovery failed"
        => Cause(Removed, Unclear), "scsi_error.c; 2.6 and vendors'";
    "scsi-medium-access": SD, "Medium access timeout failure. Offlining disk!"
        => Cause(Removed, Yes), "sd.c sd_eh_action(); 3.10-6.18";
    "scsi-offline": SCSI, "rejecting I/O to offline device"
        => Effect(Removed, Unclear), "scsi_lib.c scsi_device_state_check(); 3.10-6.18";
    "scsi-offline-host": LINE.with_prefix("scsi<host> (<dec>:<dec>): "),
        "rejecting I/O to <offline|dead> device$"
        => Effect(Removed, Unclear), "scsi_lib.c scsi_prep_fn(); up to 2.6.12";
    "scsi-dead": SCSI, "rejecting I/O to dead device"
        => Effect(Removed, Unclear), "scsi_lib.c scsi_device_state_check(); 3.10-6.18";
    "scsi-changed": SD, "device offline or changed"
        => Effect(Removed, Unclear), "sd.c sd_setup_read_write_cmnd(); 5.0-6.18";
    "scsi-waited": SCSI, "timing out command, waited <dec>s"
        => Cause(Timeout, Unclear), "scsi_lib.c scsi_softirq_done(); 3.10-5.15";
    "scsi-unit-not-ready": SD, "Unit Not Ready"
        => Record(RecordKind::Scsi(ScsiRecord::UnitNotReady)),
           "sd.c sd_spinup_disk(): sense data of a drive that starts; 3.10-6.18";
    // A continued line: the dots are one for each second. `<file>` takes them, and `not`.
    "scsi-spin-up": SD, "Spinning up disk<file> responding..."
        => Cause(Timeout, Unclear),
           "sd.c sd_spinup_disk(): `Spinning up disk....not responding...`; 2.6.32-6.18";
    "scsi-killing": SD, "killing request"
        => Continuation, "scsi_lib.c scsi_kill_request(); up to 4.20";
    "scsi-partial": SD, "Unaligned partial completion"
        => Continuation, "sd.c sd_done(); 3.15-6.18";
    "scsi-stopping": SD, "Stopping disk"
        => Continuation, "sd.c sd_shutdown(); 3.10-6.18";
    "scsi-attached": LINE.with_prefix("sd <hctl>: [<disk>] "), "Attached SCSI <removable disk|disk>"
        => Record(RecordKind::Topology(TopologyUpdate::DiskAttached)), "sd.c sd_probe(); 3.10-6.18";
    "scsi-attached-old": LINE.with_prefix("sd <hctl>: "),
        "Attached scsi <removable disk|disk> <disk>"
        => Record(RecordKind::Topology(TopologyUpdate::DiskAttached)),
           "sd.c sd_probe(); up to 2.6.20";
    "scsi-tape": SCANNED, "Sequential-Access "
        => NO_DISK, "scsi_scan.c scsi_add_lun(); 3.10-6.18";
    "scsi-cdrom": SCANNED, "CD-ROM "
        => NO_DISK, "scsi_scan.c scsi_add_lun(); 3.10-6.18";
    "scsi-enclosure": SCANNED, "Enclosure "
        => NO_DISK, "scsi_scan.c scsi_add_lun(); 3.10-6.18";
    "scsi-changer": SCANNED, "Medium Changer "
        => NO_DISK, "scsi_scan.c scsi_add_lun(); 3.10-6.18";
    "scsi-disk": SCANNED, "Direct-Access "
        => ParseKind(model), "scsi_scan.c scsi_add_lun(); 3.10-6.18";
}

fn result(text: &MatchedText<'_>) -> Option<RecordKind> {
    // A mail may have broken the line between the two words.
    let rest = text.after.trim_ascii_start();
    let rest = rest.strip_prefix("driverbyte=").unwrap_or_default();
    result_of(text.fields.last()?, rest)
}

fn result_line(text: &MatchedText<'_>) -> Option<RecordKind> {
    let [host, driver, ..] = text.fields else {
        return None;
    };
    result_of(host, driver)
}

/// Up to 5.13 the driver byte of a command that timed out contains the time-out, and the host byte
/// may contain nothing (scsi_times_out()).
fn result_of(host: &str, driver: &str) -> Option<RecordKind> {
    let host = match scsi_sense::parse_host_byte(host)? {
        0 if scsi_sense::is_driver_timeout(driver) => scsi_sense::HOST_TIME_OUT,
        host => host,
    };
    Some(RecordKind::Scsi(ScsiRecord::Result { host }))
}

/// Status, message, host and driver byte.
fn return_code(text: &MatchedText<'_>) -> Option<RecordKind> {
    let code = u32::from_str_radix(text.fields.last()?, 16).ok()?;
    let [driver, host, _, _] = code.to_be_bytes();
    result_of(&format!("0x{host:02x}"), &format!("0x{driver:02x}"))
}

fn sense_key_name(text: &MatchedText<'_>) -> Option<RecordKind> {
    let key = scsi_sense::sense_key_of_name(text.fields.last()?.trim_end())?;
    Some(RecordKind::Scsi(ScsiRecord::SenseKey(key)))
}

/// `Synchronize Cache(10) failed: Result: hostbyte=DID_ERROR` during removal: the disk was already
/// removed. It is no error when an empty card reader is probed.
fn cache_sync_failed(text: &MatchedText<'_>) -> Option<RecordKind> {
    let [command, host] = text.fields else {
        return None;
    };
    let host = scsi_sense::parse_host_byte(host)?;
    let ending = command.starts_with("Synchronize Cache") || *command == "Start/Stop Unit";
    Some(if host != 0 && ending {
        RecordKind::Effect(Removed, Unclear)
    } else {
        RecordKind::Continuation
    })
}

fn sense_key(text: &MatchedText<'_>) -> Option<RecordKind> {
    let (key, _) = scsi_sense::parse_sense_key(text.after)?;
    // A deferred error belongs to an earlier command; it is still an error of the drive.
    Some(RecordKind::Scsi(ScsiRecord::SenseKey(key)))
}

fn sense_key_line(text: &MatchedText<'_>) -> Option<RecordKind> {
    let (key, rest) = scsi_sense::parse_sense_key(text.after)?;
    rest.trim_ascii().is_empty().then_some(RecordKind::Scsi(ScsiRecord::SenseKey(key)))
}

fn additional_sense(text: &MatchedText<'_>) -> Option<RecordKind> {
    let line = text.after.lines().next().unwrap_or_default();
    Some(RecordKind::Scsi(ScsiRecord::AdditionalSense(scsi_sense::parse_additional_sense(line))))
}

/// Only a known text: a program can have the name `Add. Sense: x`.
fn additional_sense_line(text: &MatchedText<'_>) -> Option<RecordKind> {
    match scsi_sense::parse_additional_sense(text.after) {
        AdditionalSense::Unknown => None,
        known => Some(RecordKind::Scsi(ScsiRecord::AdditionalSense(known))),
    }
}

fn numeric_sense(text: &MatchedText<'_>) -> Option<RecordKind> {
    let [.., asc, _, ascq] = text.fields else {
        return None;
    };
    // The kernel writes lower-case digits: an `A` begins the same numbers again (up to 3.16).
    let code = AdditionalSense::Code(
        scsi_sense::parse_byte(asc)?,
        scsi_sense::parse_byte(ascq.trim_end_matches('A'))?,
    );
    Some(RecordKind::Scsi(ScsiRecord::AdditionalSense(code)))
}

/// `CDB: Read(10) 28 00 …`, `CDB: opcode=0x2a 2a 00 …`, `CDB: Read(10): 28 00 …` (3.x),
/// `CDB: \ncdb[0]=0x28: 28 00 …` (3.x, numeric), `CDB: ` (3.x: the next line has the bytes),
/// `CDB: Write(32)`, `CDB: opcode=0x7f, sa=0xb` (the bytes have records of their own)
fn cdb(text: &MatchedText<'_>) -> Option<RecordKind> {
    let name = text.after.trim_ascii();
    let command = Command::parse(name, b"/(),-:=[]");
    let is_without_bytes =
        name.is_empty() || name.ends_with("(32)") || name.starts_with("opcode=0x7f, sa=");
    (command.known >= MIN_COMMAND_BYTES || is_without_bytes).then(|| command.record(name))
}

/// The whole line is the name of a command and its bytes.
fn cdb_line(text: &MatchedText<'_>) -> Option<RecordKind> {
    let name = text.after.trim_ascii();
    let command = Command::parse(name, b"/(),-:");
    let is_line = !name.contains('\n') && command.is_whole;
    (command.known >= MIN_COMMAND_BYTES && is_line).then(|| command.record(name))
}

/// The bytes of a SCSI command.
#[derive(Default)]
struct Command {
    bytes: [u8; 16],
    known: usize,
    /// No other text follows the bytes.
    is_whole: bool,
}

impl Command {
    /// `punctuation`: the bytes besides letters and digits that the command's name may have.
    fn parse(text: &str, punctuation: &[u8]) -> Command {
        let byte = |word: &str| {
            let is_byte = word.len() == 2
                && word.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
            is_byte.then(|| u8::from_str_radix(word, 16).ok()).flatten()
        };
        let is_name = |word: &str| {
            word.bytes().all(|byte| byte.is_ascii_alphanumeric() || punctuation.contains(&byte))
        };
        let words =
            text.split_whitespace().skip_while(|word| byte(word).is_none() && is_name(word));
        let mut command = Command { is_whole: true, ..Command::default() };
        for word in words {
            let Some(value) = byte(word) else {
                command.is_whole = false;
                break;
            };
            if let Some(place) = command.bytes.get_mut(command.known) {
                *place = value;
            }
            command.known += 1;
        }
        command
    }

    fn record(&self, name: &str) -> RecordKind {
        let number = |range: std::ops::Range<usize>| {
            self.bytes[range].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let block_range = match self.bytes[0] {
            0x28 | 0x2a => Some((number(2..6), number(7..9))),
            0xa8 | 0xaa => Some((number(2..6), number(6..10))),
            0x88 | 0x8a => Some((number(2..10), number(10..14))),
            _ => None,
        };
        let is_write = match block_range {
            Some(_) => matches!(self.bytes[0], 0x2a | 0xaa | 0x8a),
            None => name.starts_with("Write"),
        };
        RecordKind::Scsi(ScsiRecord::Cdb {
            is_write,
            block_range: block_range.filter(|_| self.known >= 10),
        })
    }
}

fn model(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(RecordKind::Topology(TopologyUpdate::Model(text.after.trim().chars().take(60).collect())))
}
