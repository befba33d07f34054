//! Rules for the SCSI mid layer and SCSI disks: a failed command spans several records, and the
//! sense data decide its meaning.

use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::parsed_record::{
    DeviceKind, MatchedText, ParsedRecord, RecordKind, ScsiRecord, TopologyUpdate,
};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Evidence, Rule, RuleFamily};
use crate::model::kernel_log::{device_name, scsi_sense};

const SCSI: RuleFamily = DRIVE.rate_limited();
const SD: RuleFamily = SCSI.with_prefix("sd ");

pub(crate) const RULES: &[Rule] = &[
    SCSI.rule(
        "scsi-cache",
        " failed: Result: hostbyte=",
        Parse(cache_sync_failed),
        "drivers/scsi/sd.c sd_sync_cache(), sd_start_stop_device(); 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-result",
        "Result: hostbyte=",
        Parse(result),
        "drivers/scsi/scsi_logging.c scsi_print_result(), constants.c; 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-sense-key",
        "Sense Key : ",
        Parse(sense_key),
        "drivers/scsi/scsi_logging.c scsi_log_dump_sense(), constants.c; 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-sense",
        "Add. Sense: ",
        Parse(additional_sense),
        "drivers/scsi/scsi_logging.c, constants.c scsi_show_extd_sense(); 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-sense-number",
        "ASC=0x",
        Parse(numeric_sense),
        "drivers/scsi/scsi_logging.c without CONFIG_SCSI_CONSTANTS; 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-command",
        "CDB: ",
        Parse(cdb),
        "drivers/scsi/scsi_logging.c scsi_print_command(), constants.c; 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-unhandled",
        "Unhandled sense code",
        Parse(device_context),
        "drivers/scsi/scsi_lib.c scsi_io_completion(); up to 3.16",
    ),
    SCSI.rule(
        "scsi-unhandled-error",
        "Unhandled error code",
        Parse(device_context),
        "drivers/scsi/scsi_lib.c scsi_io_completion(); up to 3.16",
    ),
    SCSI.with_evidence(Evidence::Offlined)
        .with_prefix("s")
        .rule(
            "scsi-offlined",
            "Device offlined - not ready after error recovery",
            Cause(Removed, Unclear),
            "drivers/scsi/scsi_error.c scsi_eh_offline_sdevs(); 3.10-6.18",
        ),
    SCSI.with_evidence(Evidence::Offlined)
        .with_prefix("s")
        .rule(
            "scsi-offlined-old",
            "Device offlined - command error recovery failed",
            Cause(Removed, Unclear),
            "drivers/scsi/scsi_error.c; 2.6 and vendors'",
        ),
    SD.rule(
        "scsi-medium-access",
        "Medium access timeout failure. Offlining disk!",
        Cause(Removed, Yes),
        "drivers/scsi/sd.c sd_eh_action(); 3.10-6.18",
    ),
    SCSI.with_prefix("s").rule(
        "scsi-offline",
        "rejecting I/O to offline device",
        Effect(Removed, Unclear),
        "drivers/scsi/scsi_lib.c scsi_device_state_check(); 3.10-6.18",
    ),
    SCSI.with_prefix("s").rule(
        "scsi-dead",
        "rejecting I/O to dead device",
        Effect(Removed, Unclear),
        "drivers/scsi/scsi_lib.c scsi_device_state_check(); 3.10-6.18",
    ),
    SD.rule(
        "scsi-changed",
        "device offline or changed",
        Effect(Removed, Unclear),
        "drivers/scsi/sd.c sd_setup_read_write_cmnd(); 5.0-6.18",
    ),
    SCSI.with_prefix("s").rule(
        "scsi-waited",
        "timing out command, waited",
        Cause(Timeout, Unclear),
        "drivers/scsi/scsi_lib.c scsi_softirq_done(); 3.10-5.15",
    ),
    SD.rule(
        "scsi-unit-not-ready",
        "] Unit Not Ready",
        Parse(unit_not_ready),
        "drivers/scsi/sd.c sd_spinup_disk(): what a drive says while it starts; 3.10-6.18",
    ),
    SD.rule(
        "scsi-killing",
        "killing request",
        Continuation,
        "drivers/scsi/scsi_lib.c scsi_kill_request(); up to 4.20",
    ),
    SD.rule(
        "scsi-partial",
        "Unaligned partial completion",
        Continuation,
        "drivers/scsi/sd.c sd_done(); 3.15-6.18",
    ),
    SD.rule(
        "scsi-stopping",
        "Stopping disk",
        Continuation,
        "drivers/scsi/sd.c sd_shutdown(); 3.10-6.18",
    ),
    SD.rule(
        "scsi-attached",
        "] Attached SCSI ",
        Parse(attached),
        "drivers/scsi/sd.c sd_probe(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-tape",
        ": Sequential-Access ",
        Parse(not_a_disk),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-cdrom",
        ": CD-ROM ",
        Parse(not_a_disk),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-enclosure",
        ": Enclosure ",
        Parse(not_a_disk),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-changer",
        ": Medium Changer ",
        Parse(not_a_disk),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-disk",
        ": Direct-Access ",
        Parse(model),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
];

fn result(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let host = scsi_sense::parse_host_byte(text.after)?;
    Some(ParsedRecord::from_text(
        text,
        RecordKind::Scsi(ScsiRecord::Result { host }),
    ))
}

/// `Synchronize Cache(10) failed: Result: hostbyte=DID_ERROR` during removal: the disk was already
/// removed. When an empty card reader is probed: no error.
fn cache_sync_failed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let host = scsi_sense::parse_host_byte(text.after)?;
    let ending =
        text.before.contains("Synchronize Cache") || text.before.contains("Start/Stop Unit");
    Some(ParsedRecord::from_text(
        text,
        if host != 0 && ending {
            RecordKind::Effect(Removed, Unclear)
        } else {
            RecordKind::Continuation
        },
    ))
}

fn sense_key(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let key = scsi_sense::parse_sense_key(text.after)?;
    // A deferred error belongs to an earlier command; the drive reports it all the same.
    Some(ParsedRecord::from_text(
        text,
        RecordKind::Scsi(ScsiRecord::SenseKey(key)),
    ))
}

fn additional_sense(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::from_text(
        text,
        RecordKind::Scsi(ScsiRecord::AdditionalSense(
            scsi_sense::parse_additional_sense(text.after),
        )),
    ))
}

fn numeric_sense(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let all = text.all.get(text.before.len()..)?;
    text.after.contains("ASCQ=0x").then(|| {
        ParsedRecord::from_text(
            text,
            RecordKind::Scsi(ScsiRecord::AdditionalSense(
                scsi_sense::parse_additional_sense(all),
            )),
        )
    })
}

/// `CDB: Read(10) 28 00 …`, `CDB: opcode=0x2a 2a 00 …`, `CDB: Read(10): 28 00 …` (3.x),
/// `CDB: \ncdb[0]=0x28: 28 00 …` (3.x, numeric)
fn cdb(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let mut bytes = [0_u8; 16];
    let mut known = 0;
    for word in text.after.split_whitespace().filter(|word| word.len() == 2) {
        match (u8::from_str_radix(word, 16), bytes.get_mut(known)) {
            (Ok(byte), Some(place)) => *place = byte,
            _ => break,
        }
        known += 1;
    }
    let number = |range: std::ops::Range<usize>| {
        bytes[range]
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let (write, place) = match bytes[0] {
        0x28 | 0xa8 => (
            false,
            Some((
                number(2..6),
                if bytes[0] == 0x28 {
                    number(7..9)
                } else {
                    number(6..10)
                },
            )),
        ),
        0x2a | 0xaa => (
            true,
            Some((
                number(2..6),
                if bytes[0] == 0x2a {
                    number(7..9)
                } else {
                    number(6..10)
                },
            )),
        ),
        0x88 => (false, Some((number(2..10), number(10..14)))),
        0x8a => (true, Some((number(2..10), number(10..14)))),
        _ => (text.after.starts_with("Write"), None),
    };
    Some(ParsedRecord::from_text(
        text,
        RecordKind::Scsi(ScsiRecord::Cdb {
            is_write: write,
            block_range: place.filter(|_| known >= 10),
        }),
    ))
}

fn device_context(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::from_text(
        text,
        RecordKind::Scsi(ScsiRecord::DeviceContext),
    ))
}

fn unit_not_ready(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::from_text(
        text,
        RecordKind::Scsi(ScsiRecord::UnitNotReady),
    ))
}

fn attached(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::from_text(
        text,
        RecordKind::Topology(TopologyUpdate::DiskAttached),
    ))
}

fn not_a_disk(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::from_text(
        text,
        RecordKind::Topology(TopologyUpdate::Kind(DeviceKind::Other)),
    ))
}

fn model(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let (device, _) = device_name::find_in_text(text.all);
    Some(ParsedRecord::new(
        device,
        RecordKind::Topology(TopologyUpdate::Model(
            text.after.trim().chars().take(60).collect(),
        )),
    ))
}
