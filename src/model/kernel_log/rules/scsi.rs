//! Rules for the SCSI mid layer and SCSI disks: a failed command has several records, and the sense
//! data decide its meaning.

use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::parsed_record::{
    DeviceKind, MatchedText, RecordKind, ScsiRecord, TopologyUpdate,
};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Evidence, Rule, RuleFamily};
use crate::model::kernel_log::scsi_sense;

const SCSI: RuleFamily = DRIVE.rate_limited();
const SD: RuleFamily = SCSI.with_prefix("sd ");

pub(crate) const RULES: &[Rule] = &[
    SCSI.rule(
        "scsi-cache",
        " failed: Result: hostbyte=",
        ParseKind(cache_sync_failed),
        "drivers/scsi/sd.c sd_sync_cache(), sd_start_stop_device(); 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-result",
        "Result: hostbyte=",
        ParseKind(result),
        "drivers/scsi/scsi_logging.c scsi_print_result(), constants.c; 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-sense-key",
        "Sense Key : ",
        ParseKind(sense_key),
        "drivers/scsi/scsi_logging.c scsi_log_dump_sense(), constants.c; 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-sense",
        "Add. Sense: ",
        ParseKind(additional_sense),
        "drivers/scsi/scsi_logging.c, constants.c scsi_show_extd_sense(); 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-sense-number",
        "ASC=0x",
        ParseKind(numeric_sense),
        "drivers/scsi/scsi_logging.c without CONFIG_SCSI_CONSTANTS; 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-command",
        "CDB: ",
        ParseKind(cdb),
        "drivers/scsi/scsi_logging.c scsi_print_command(), constants.c; 3.10-6.18",
    ),
    SCSI.rule(
        "scsi-unhandled",
        "Unhandled sense code",
        Record(RecordKind::Scsi(ScsiRecord::DeviceContext)),
        "drivers/scsi/scsi_lib.c scsi_io_completion(); up to 3.16",
    ),
    SCSI.rule(
        "scsi-unhandled-error",
        "Unhandled error code",
        Record(RecordKind::Scsi(ScsiRecord::DeviceContext)),
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
        Record(RecordKind::Scsi(ScsiRecord::UnitNotReady)),
        "drivers/scsi/sd.c sd_spinup_disk(): sense data of a drive that starts; 3.10-6.18",
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
        Record(RecordKind::Topology(TopologyUpdate::DiskAttached)),
        "drivers/scsi/sd.c sd_probe(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-tape",
        ": Sequential-Access ",
        Record(RecordKind::Topology(TopologyUpdate::Kind(
            DeviceKind::Other,
        ))),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-cdrom",
        ": CD-ROM ",
        Record(RecordKind::Topology(TopologyUpdate::Kind(
            DeviceKind::Other,
        ))),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-enclosure",
        ": Enclosure ",
        Record(RecordKind::Topology(TopologyUpdate::Kind(
            DeviceKind::Other,
        ))),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-changer",
        ": Medium Changer ",
        Record(RecordKind::Topology(TopologyUpdate::Kind(
            DeviceKind::Other,
        ))),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    SCSI.with_prefix("scsi ").rule(
        "scsi-disk",
        ": Direct-Access ",
        ParseKind(model),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
];

fn result(text: &MatchedText<'_>) -> Option<RecordKind> {
    let host = scsi_sense::parse_host_byte(text.after)?;
    Some(RecordKind::Scsi(ScsiRecord::Result { host }))
}

/// `Synchronize Cache(10) failed: Result: hostbyte=DID_ERROR` during removal: the disk was already
/// removed. It is no error when an empty card reader is probed.
fn cache_sync_failed(text: &MatchedText<'_>) -> Option<RecordKind> {
    let host = scsi_sense::parse_host_byte(text.after)?;
    let ending =
        text.before.contains("Synchronize Cache") || text.before.contains("Start/Stop Unit");
    Some(if host != 0 && ending {
        RecordKind::Effect(Removed, Unclear)
    } else {
        RecordKind::Continuation
    })
}

fn sense_key(text: &MatchedText<'_>) -> Option<RecordKind> {
    let key = scsi_sense::parse_sense_key(text.after)?;
    // A deferred error belongs to an earlier command; it is still an error of the drive.
    Some(RecordKind::Scsi(ScsiRecord::SenseKey(key)))
}

fn additional_sense(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(RecordKind::Scsi(ScsiRecord::AdditionalSense(
        scsi_sense::parse_additional_sense(text.after),
    )))
}

fn numeric_sense(text: &MatchedText<'_>) -> Option<RecordKind> {
    let all = text.all.get(text.before.len()..)?;
    text.after.contains("ASCQ=0x").then(|| {
        RecordKind::Scsi(ScsiRecord::AdditionalSense(
            scsi_sense::parse_additional_sense(all),
        ))
    })
}

/// `CDB: Read(10) 28 00 …`, `CDB: opcode=0x2a 2a 00 …`, `CDB: Read(10): 28 00 …` (3.x),
/// `CDB: \ncdb[0]=0x28: 28 00 …` (3.x, numeric)
fn cdb(text: &MatchedText<'_>) -> Option<RecordKind> {
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
    let block_range = match bytes[0] {
        0x28 | 0x2a => Some((number(2..6), number(7..9))),
        0xa8 | 0xaa => Some((number(2..6), number(6..10))),
        0x88 | 0x8a => Some((number(2..10), number(10..14))),
        _ => None,
    };
    let is_write = match block_range {
        Some(_) => matches!(bytes[0], 0x2a | 0xaa | 0x8a),
        None => text.after.starts_with("Write"),
    };
    Some(RecordKind::Scsi(ScsiRecord::Cdb {
        is_write,
        block_range: block_range.filter(|_| known >= 10),
    }))
}

fn model(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(RecordKind::Topology(TopologyUpdate::Model(
        text.after.trim().chars().take(60).collect(),
    )))
}
