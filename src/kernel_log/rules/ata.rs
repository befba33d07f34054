//! Rules for libata: an exception spans many records, ends with `EH complete`, and is one incident.
//!
//! UNC is a medium error; ICRC, link errors and timeouts are not. The number of ataN does not give
//! sdX: `device_map` links them.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::DeviceName;
use crate::parsed_record::{
    AtaRecord, DeviceKind, MatchedText, ParsedRecord, RecordKind, TopologyUpdate,
};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Evidence, RuleAction, RuleFamily, rules};
use crate::rules::ide;

const ATA: RuleFamily = DRIVE.with_prefix("<ata>: ").with_evidence(Evidence::DriveStatus);
/// The first line of a failed command's report, and the second line's blanks.
const COMMAND: RuleFamily = ATA.with_prefix(
    "<ata>: cmd <registers> tag <dec>\
     { <ncq dma|ncq nodata|ncq|dma|pio|nodata|unknown> <dec> <in|out|bidi>}\
     { cdb 0x<hex> data <dec>}{ <in|out|bidi>}\n<blanks>",
);
/// The second line.
const RESULT: &str = "res <registers> Emask 0x<hex> (<host bus error|ATA bus error|timeout\
     |HSM violation|internal error|media error|invalid argument|device error|NCQ error\
     |Polling detection error|unknown error>)";
/// `41/40:00:d0:07:00/00:00:00:00:00/40`
const REGISTERS_BYTES: usize = 35;
/// `cdb_buf` in ata_eh_link_report().
const MAX_CDB_BYTES: usize = 70;
/// ATA_ID_PROD_LEN, a comma and a blank, ATA_ID_FW_REV_LEN.
const MAX_IDENTITY_CHARS: usize = 50;

const STATUS_BITS: [&str; 6] = ["Busy", "DRDY", "DF", "DRQ", "SENSE", "ERR"];
const ERROR_BITS: [&str; 5] = ["ICRC", "UNC", "AMNF", "IDNF", "ABRT"];
/// Errors on the link.
const WIRE_BITS: [&str; 8] =
    ["10B8B", "Dispar", "BadCRC", "Handshk", "LinkSeq", "TrStaTrns", "UnrecFIS", "UnrecovData"];
/// The other bits of SError; hot plugging sets PHYRdyChg, CommWake and DevExch.
const OTHER_SERROR_BITS: [&str; 9] = [
    "RecovData",
    "RecovComm",
    "Persist",
    "Proto",
    "HostInt",
    "PHYRdyChg",
    "PHYInt",
    "CommWake",
    "DevExch",
];

const fn ata(record: AtaRecord) -> RuleAction {
    Record(RecordKind::Ata(record))
}

/// The device does not respond after a reset yet.
const RESET_FAILED: RuleAction = ata(AtaRecord::ResetFailed);

rules! {
    in "drivers/";
    "ata-outcome": COMMAND, RESULT
        => ParseKind(outcome), "ata/libata-eh.c ata_eh_link_report(), ata_err_string(); 3.10-6.18";
    "ata-outcome-packet": COMMAND, ""
        => ParseKind(packet_outcome),
           "ata/libata-eh.c ata_eh_link_report(): with the CDB of a packet command; 3.10-6.18";
    // In a text log whose lines are separate.
    "ata-outcome-line": ATA.with_prefix(""), RESULT
        => ParseKind(outcome), "ata/libata-eh.c ata_eh_link_report(): the second line; 3.10-6.18";
    "ata-outcome-tag": ATA, "tag <dec> cmd 0x<hex> Emask 0x<hex> stat 0x<hex> err 0x<hex> \
         (<host bus error|ATA bus error|timeout|HSM violation|internal error|media error\
         |invalid argument|device error|unknown error>)"
        => ParseKind(outcome_of_tag), "ata/libata-eh.c ata_eh_report(): one line; 2.6.18-2.6.20";
    "ata-command-timeout": ATA, "<DMA|command> {0x<hex> }timeout, stat 0x<hex>"
        => ata(AtaRecord::Error(Timeout, Unclear)),
           "scsi/libata-core.c ata_qc_timeout(), ata_eng_timeout(); up to 2.6.17";
    "ata-translated": ATA,
        "translated ATA stat/err 0x<hex>/<hex> to SCSI SK/ASC/ASCQ 0x<hex>/<hex>/<hex>$"
        => ParseKind(translated), "ata/libata-scsi.c ata_to_sense_error(); 2.6.12-6.18";
    "ata-registers": ATA, "error=0x<hex> <{|{>"
        => ParseKind(error_words), "ata/libata-scsi.c ata_dump_status(); 2.6.12-6.18";
    "ata-exception": ATA, "exception Emask 0x<hex>{ SAct 0x<hex>}"
        => ParseKind(exception), "ata/libata-eh.c ata_eh_link_report(); 3.10-6.18";
    // Precedes the exception that it belongs to.
    "ata-queue-log": ATA, "failed to read log page 10h (errno=<dec>)"
        => ata(AtaRecord::NcqLogUnreadable),
           "ata/libata-eh.c, libata-sata.c ata_eh_analyze_ncq_error(); 3.10-6.18";
    "ata-command": ATA, "failed command: "
        => Continuation, "ata/libata-eh.c ata_eh_link_report(); 3.10-6.18";
    "ata-status": ATA, "status: "
        => ParseKind(status_register), "ata/libata-eh.c ata_eh_link_report(); 3.10-6.18";
    "ata-error": ATA, "error: "
        => ParseKind(error_register), "ata/libata-eh.c ata_eh_link_report(); 3.10-6.18";
    "ata-serror": ATA, "SError: "
        => ParseKind(serror), "ata/libata-eh.c ata_eh_link_report(); 3.10-6.18";
    "ata-interface": ATA,
        "irq_stat 0x<hex>{, unknown FIS <hex> <hex> <hex> <hex>}{, incorrect PMP}\
         {, host bus error}, interface fatal error"
        => ata(AtaRecord::Error(Transport, Unclear)), "ata/libahci.c ahci_error_intr(); 3.10-6.18";
    "ata-host-bus": ATA, "irq_stat 0x<hex>, host bus error$"
        => ata(AtaRecord::Error(Transport, No)), "ata/libahci.c ahci_error_intr(); 2.6.32-6.18";
    "ata-hard-reset": ATA, "hard resetting link"
        => ata(AtaRecord::LinkReset), "ata/libata-eh.c ata_eh_reset(); 3.10-6.18";
    "ata-soft-reset": ATA, "soft resetting link"
        => ata(AtaRecord::LinkReset), "ata/libata-eh.c ata_eh_reset(); 3.10-6.18";
    "ata-slow": ATA, "link is slow to respond, please be patient (ready=<dec>)"
        => RESET_FAILED, "ata/libata-core.c ata_wait_ready(); 3.10-6.18";
    "ata-slow-port": ATA, "port is slow to respond, please be patient (Status 0x<hex>)"
        => RESET_FAILED, "ata/libata-core.c ata_busy_sleep(); 2.6.18-2.6.27";
    "ata-port-silent": ATA, "<port failed to respond (|prereset failed (errno=\
         |failed to resume link for reset (errno=><dec>"
        => RESET_FAILED,
           "ata/libata-sff.c ata_sff_busy_sleep(), libata-eh.c ata_eh_reset(); 2.6.32-6.18";
    "ata-xfermode": ATA, "failed to set xfermode (err_mask=0x<hex>)"
        => RESET_FAILED, "ata/libata-core.c ata_dev_set_mode(); 2.6.18-6.18";
    "ata-comreset": ATA, "COMRESET failed (errno=<dec>)"
        => RESET_FAILED, "ata/libata-core.c sata_link_hardreset(); 3.10-6.18";
    "ata-srst": ATA, "SRST failed (errno=<dec>)"
        => RESET_FAILED, "ata/libata-sff.c ata_sff_softreset(); 3.10-6.18";
    "ata-softreset": ATA, "softreset failed ("
        => RESET_FAILED, "ata/libahci.c ahci_do_softreset(); 3.10-6.18";
    "ata-reset-failed": ATA, "reset failed<, giving up| (errno=>"
        => RESET_FAILED, "ata/libata-eh.c ata_eh_reset(); 3.10-6.18";
    "ata-device-not-ready": ATA,
        "device not ready<, treating as offline| (errno=| after hardreset (errno=>"
        => RESET_FAILED, "ata/libahci.c, libata-core.c; 3.10-6.18";
    "ata-speed": ATA, "limiting SATA link speed to "
        => Continuation, "ata/libata-core.c sata_down_spd_limit(); 3.10-6.18";
    "ata-identify": ATA, "failed to IDENTIFY< (| after ACPI commands>"
        => RESET_FAILED, "ata/libata-core.c ata_dev_read_id(); 3.10-6.18";
    "ata-revalidation": ATA, "revalidation failed (errno=<dec>)"
        => RESET_FAILED, "ata/libata-core.c ata_dev_revalidate(); 3.10-6.18";
    "ata-identify-aborted": ATA, "both IDENTIFYs aborted, assuming NODEV"
        => RESET_FAILED, "ata/libata-core.c ata_dev_read_id(); 3.10-6.18";
    "ata-qc-timeout": ATA, "qc timeout{ after <dec> <msecs|u secs>} (cmd 0x<hex>)"
        => ParseKind(internal_timeout), "ata/libata-core.c ata_exec_internal_sg(); 3.10-6.18";
    "ata-link-down": ATA, "SATA link down (SStatus <hex> SControl <hex>)"
        => ata(AtaRecord::LinkDown), "ata/libata-core.c sata_print_link_status(); 3.10-6.18";
    "ata-works": ATA, "configured for "
        => ata(AtaRecord::Configured), "ata/libata-core.c ata_dev_set_mode(); 3.10-6.18";
    "ata-complete": ATA, "EH complete$"
        => Continuation, "ata/libata-eh.c ata_scsi_port_error_handler(); 3.10-6.18";
    "ata-disabled": ATA, "disabled$"
        => ParseKind(disabled), "ata/libata-eh.c ata_dev_disable(); 3.10-6.11";
    "ata-disable-device": ATA, "disable device$"
        => ParseKind(disabled), "ata/libata-eh.c ata_dev_disable(); 6.1-6.18";
    "ata-standby": ATA, "Entering standby power mode$"
        => ata(AtaRecord::Standby),
           "ata/libata-core.c ata_dev_power_set_standby(); 6.7-6.18, and stable";
    "ata-detaching": ATA, "detaching (SCSI <hctl>)"
        => Parse(detaching), "ata/libata-scsi.c ata_scsi_remove_dev(); 3.10-6.18";
    "ata-atapi": ATA, "ATAPI: "
        => ParseKind(packet_device), "ata/libata-core.c ata_dev_configure(); 3.10-6.18";
    "ata-port": ATA, "<SATA|PATA> max <UDMA/|UDMA|MWDMA|PIO><dec>"
        => ParseKind(port), "ata/libata-core.c ata_host_register(); 3.10-6.18";
    "ata-model": ATA, "ATA-<dec>: "
        => ParseKind(model), "ata/libata-core.c ata_dev_print_features(); 3.10-6.18";
}

/// `res 41/40:… Emask 0x409 (media error) <F>`. The exception's own Emask has no text.
fn outcome(text: &MatchedText<'_>) -> Option<RecordKind> {
    let [registers, _, words] = text.fields else {
        return None;
    };
    let rest = text.after.lines().next().unwrap_or_default().trim();
    (registers.len() == REGISTERS_BYTES && matches!(rest, "" | "<F>")).then(|| error_mask(words))
}

/// `Get event status notification 4a 01 00 00 10 00 00 00 08 00res 40/00:…`; in 3.10 the CDB has a
/// line of its own. All of it is the kernel's text.
fn packet_outcome(text: &MatchedText<'_>) -> Option<RecordKind> {
    let (cdb, result) = text.after.split_once("res ")?;
    let (registers, result) = result.split_once(" Emask 0x")?;
    let (_, words) = result.split_once(" (")?;
    let (words, _) = words.split_once(')')?;
    (cdb.len() <= MAX_CDB_BYTES && registers.len() == REGISTERS_BYTES).then(|| error_mask(words))
}

fn outcome_of_tag(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(error_mask(text.fields.last()?))
}

/// The sense that the SCSI layer gets: 3 and 4 are the drive's own, 0Bh/47h is the link's. Others are
/// a rejected command.
fn translated(text: &MatchedText<'_>) -> Option<RecordKind> {
    let [.., key, code, _] = text.fields else {
        return None;
    };
    Some(RecordKind::Ata(match (*key, *code) {
        ("3" | "4", _) => AtaRecord::Error(Medium, Yes),
        ("b", "47") => AtaRecord::Error(Transport, Unclear),
        _ => AtaRecord::DeviceError,
    }))
}

/// `{ UncorrectableError }`: the names that the IDE drivers used before.
fn error_words(text: &MatchedText<'_>) -> Option<RecordKind> {
    let kind = match ide::error_bits(text.after)? {
        Some((class, blame)) => AtaRecord::Error(class, blame),
        None => AtaRecord::DeviceError,
    };
    Some(RecordKind::Ata(kind))
}

/// A command of the kernel's own was not answered. A packet device may need long to identify itself
/// (A0h and A1h), and a port multiplier to answer (E4h and E8h).
fn internal_timeout(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(RecordKind::Ata(match *text.fields.last()? {
        "a0" | "a1" | "e4" | "e8" => AtaRecord::ResetFailed,
        _ => AtaRecord::InternalTimeout,
    }))
}

fn error_mask(words: &str) -> RecordKind {
    RecordKind::Ata(match words {
        "media error" => AtaRecord::Error(Medium, Yes),
        "timeout" => AtaRecord::Error(Timeout, Unclear),
        "ATA bus error" => AtaRecord::Error(Transport, Unclear),
        "host bus error" | "internal error" => AtaRecord::Error(Transport, No),
        "HSM violation" => AtaRecord::Error(Transport, Unclear),
        // "device error", "invalid argument", "unknown error", "NCQ error"
        _ => AtaRecord::DeviceError,
    })
}

fn exception(text: &MatchedText<'_>) -> Option<RecordKind> {
    // A torn record: the queue is unknown.
    let queued = text
        .fields
        .get(1)
        .and_then(|active| u32::from_str_radix(active, 16).ok())
        .map_or(0, u32::count_ones);
    Some(RecordKind::Ata(AtaRecord::Exception { queued }))
}

/// The names in `{ DRDY ERR }`. None: one of them is no bit of the register.
fn set_bits<'a>(text: &MatchedText<'a>, is_bit: impl Fn(&str) -> bool) -> Option<Vec<&'a str>> {
    let (bits, _) = text.after.strip_prefix("{ ")?.split_once('}')?;
    let bits: Vec<&str> = bits.split_ascii_whitespace().collect();
    bits.iter().all(|bit| is_bit(bit)).then_some(bits)
}

fn status_register(text: &MatchedText<'_>) -> Option<RecordKind> {
    let bits = set_bits(text, |bit| STATUS_BITS.contains(&bit))?;
    // Device Fault (ACS-4): the drive reports that it failed; its sense key is Hardware Error
    // (ata_to_sense_error()). With a request for data too, the register has no valid content.
    Some(if bits.contains(&"DF") && !bits.contains(&"DRQ") {
        RecordKind::Ata(AtaRecord::Error(Medium, Yes))
    } else {
        RecordKind::Continuation
    })
}

/// `error: { UNC }`: the sector cannot be read. `{ ICRC ABRT }`: the cable corrupted the data. A
/// value with all bits set is not the content of a register.
fn error_register(text: &MatchedText<'_>) -> Option<RecordKind> {
    let bits = set_bits(text, |bit| ERROR_BITS.contains(&bit))?;
    let has = |bit: &str| bits.contains(&bit);
    Some(match () {
        () if has("UNC") && has("ICRC") => RecordKind::Continuation,
        () if has("ICRC") => RecordKind::Ata(AtaRecord::Error(Transport, Unclear)),
        () if has("UNC") || has("AMNF") => RecordKind::Ata(AtaRecord::Error(Medium, Yes)),
        // "ID not found": the drive does not find the sector. It returns the same for an address
        // beyond its end.
        () if has("IDNF") => RecordKind::Ata(AtaRecord::Error(Medium, Unclear)),
        () => RecordKind::Continuation,
    })
}

fn serror(text: &MatchedText<'_>) -> Option<RecordKind> {
    let bits = set_bits(text, |bit| WIRE_BITS.contains(&bit) || OTHER_SERROR_BITS.contains(&bit))?;
    Some(if bits.iter().any(|bit| WIRE_BITS.contains(bit)) {
        RecordKind::Ata(AtaRecord::Error(Transport, Unclear))
    } else {
        RecordKind::Continuation
    })
}

/// The kernel names the port and the device. Without the device's number, `ata1: disabled` would be
/// short enough for the name of a program.
fn disabled(text: &MatchedText<'_>) -> Option<RecordKind> {
    matches!(text.device, DeviceName::Ata { device: Some(_), .. })
        .then_some(RecordKind::Ata(AtaRecord::Disabled))
}

fn detaching(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        other_name: text.devices.first().cloned(),
        ..ParsedRecord::from_text(text, RecordKind::Topology(TopologyUpdate::AtaPortOfHost))
    })
}

/// `MODEL, FIRMWARE, max UDMA/133`. What precedes it is short enough for the name of a program:
/// `ata1: ATAPI: `, `ata1: ATA-7: `.
fn identity<'a>(text: &MatchedText<'a>) -> Option<&'a str> {
    let line = text.after.lines().next()?;
    let (names, mode) = line.split_once(", max ")?;
    let is_mode = ["UDMA", "MWDMA", "PIO", "<n/a>"].iter().any(|kind| mode.starts_with(kind));
    (is_mode && names.chars().count() <= MAX_IDENTITY_CHARS).then_some(line)
}

fn packet_device(text: &MatchedText<'_>) -> Option<RecordKind> {
    identity(text)?;
    Some(RecordKind::Topology(TopologyUpdate::Kind(DeviceKind::Other)))
}

fn model(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(RecordKind::Topology(TopologyUpdate::Model(identity(text)?.chars().take(60).collect())))
}

fn port(text: &MatchedText<'_>) -> Option<RecordKind> {
    match text.device {
        DeviceName::Ata { port, .. } => Some(RecordKind::Topology(TopologyUpdate::AtaPort(*port))),
        _ => None,
    }
}
