//! Rules for libata: an exception spans many records, ends with `EH complete`, and is one incident.
//!
//! UNC is a medium error; ICRC, link errors and timeouts are not. The number of ataN does not give
//! sdX: `device_map` links them.

use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::DeviceName;
use crate::model::kernel_log::parsed_record::{
    AtaRecord, DeviceKind, MatchedText, ParsedRecord, RecordKind, TopologyUpdate,
};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Evidence, Rule, RuleAction, RuleFamily};

const ATA: RuleFamily = DRIVE
    .with_prefix("ata")
    .with_evidence(Evidence::DriveStatus);

/// The device does not respond after a reset yet.
const RESET_FAILED: RuleAction = Record(RecordKind::Ata(AtaRecord::ResetFailed));

pub(crate) const RULES: &[Rule] = &[
    ATA.with_prefix("").rule(
        "ata-outcome",
        "Emask 0x",
        ParseKind(error_mask),
        "drivers/ata/libata-eh.c ata_eh_link_report(), ata_err_string(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-exception",
        ": exception ",
        ParseKind(exception),
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    // Precedes the exception that it belongs to.
    ATA.rule(
        "ata-queue-log",
        ": failed to read log page 10h",
        Record(RecordKind::Ata(AtaRecord::NcqLogUnreadable)),
        "drivers/ata/libata-eh.c, libata-sata.c ata_eh_analyze_ncq_error(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-command",
        ": failed command: ",
        Continuation,
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-status",
        ": status: {",
        Continuation,
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-error",
        ": error: {",
        ParseKind(error_register),
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-serror",
        ": SError: {",
        ParseKind(serror),
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-interface",
        "interface fatal error",
        Record(RecordKind::Ata(AtaRecord::Error(Transport, Unclear))),
        "drivers/ata/libahci.c ahci_error_intr(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-hard-reset",
        ": hard resetting ",
        Record(RecordKind::Ata(AtaRecord::LinkReset)),
        "drivers/ata/libata-eh.c ata_eh_reset(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-soft-reset",
        ": soft resetting ",
        Record(RecordKind::Ata(AtaRecord::LinkReset)),
        "drivers/ata/libata-eh.c ata_eh_reset(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-slow",
        ": link is slow to respond",
        RESET_FAILED,
        "drivers/ata/libata-core.c ata_wait_ready(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-comreset",
        ": COMRESET failed",
        RESET_FAILED,
        "drivers/ata/libata-core.c sata_link_hardreset(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-srst",
        ": SRST failed",
        RESET_FAILED,
        "drivers/ata/libata-sff.c ata_sff_softreset(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-softreset",
        ": softreset failed",
        RESET_FAILED,
        "drivers/ata/libahci.c ahci_do_softreset(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-reset-failed",
        ": reset failed",
        RESET_FAILED,
        "drivers/ata/libata-eh.c ata_eh_reset(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-device-not-ready",
        ": device not ready",
        RESET_FAILED,
        "drivers/ata/libahci.c, libata-core.c; 3.10-6.18",
    ),
    ATA.rule(
        "ata-speed",
        ": limiting SATA link speed to",
        Continuation,
        "drivers/ata/libata-core.c sata_down_spd_limit(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-identify",
        ": failed to IDENTIFY",
        RESET_FAILED,
        "drivers/ata/libata-core.c ata_dev_read_id(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-revalidation",
        ": revalidation failed",
        RESET_FAILED,
        "drivers/ata/libata-core.c ata_dev_revalidate(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-identify-aborted",
        ": both IDENTIFYs aborted",
        RESET_FAILED,
        "drivers/ata/libata-core.c ata_dev_read_id(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-qc-timeout",
        ": qc timeout",
        RESET_FAILED,
        "drivers/ata/libata-core.c ata_exec_internal_sg(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-link-down",
        ": SATA link down",
        Record(RecordKind::Ata(AtaRecord::LinkDown)),
        "drivers/ata/libata-core.c sata_print_link_status(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-works",
        ": configured for ",
        Record(RecordKind::Ata(AtaRecord::Configured)),
        "drivers/ata/libata-core.c ata_dev_set_mode(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-complete",
        ": EH complete",
        Continuation,
        "drivers/ata/libata-eh.c ata_scsi_port_error_handler(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-disabled",
        ": disabled",
        ParseKind(disabled),
        "drivers/ata/libata-eh.c ata_dev_disable(); 3.10-6.11",
    ),
    ATA.rule(
        "ata-disable-device",
        ": disable device",
        ParseKind(disabled),
        "drivers/ata/libata-eh.c ata_dev_disable(); 6.1-6.18",
    ),
    ATA.rule(
        "ata-standby",
        ": Entering standby power mode",
        Record(RecordKind::Ata(AtaRecord::Standby)),
        "drivers/ata/libata-core.c ata_dev_power_set_standby(); 6.7-6.18, and stable",
    ),
    ATA.rule(
        "ata-detaching",
        ": detaching (SCSI ",
        Parse(detaching),
        "drivers/ata/libata-scsi.c ata_scsi_remove_dev(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-atapi",
        ": ATAPI: ",
        Record(RecordKind::Topology(TopologyUpdate::Kind(
            DeviceKind::Other,
        ))),
        "drivers/ata/libata-core.c ata_dev_configure(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-port",
        "ATA max ",
        Parse(port),
        "drivers/ata/libata-core.c ata_host_register(); 3.10-6.18",
    ),
    ATA.rule(
        "ata-model",
        ": ATA-",
        ParseKind(model),
        "drivers/ata/libata-core.c ata_dev_print_features(); 3.10-6.18",
    ),
];

/// `res 41/40:… Emask 0x409 (media error) <F>`; in texts also with rsyslog's `#012` and torn lines.
/// The exception's own Emask has no text.
fn error_mask(text: &MatchedText<'_>) -> Option<RecordKind> {
    let at = text.before.rfind("res ")?;
    if text.before[at..].len() > 80 {
        return None;
    }
    let words = text.after.split_once('(')?.1.split_once(')')?.0;
    let record = match words {
        "media error" => AtaRecord::Error(Medium, Yes),
        "timeout" => AtaRecord::Error(Timeout, Unclear),
        "ATA bus error" => AtaRecord::Error(Transport, Unclear),
        "host bus error" | "internal error" => AtaRecord::Error(Transport, No),
        "HSM violation" => AtaRecord::Error(Transport, Unclear),
        // "device error", "invalid argument", "unknown error", "NCQ error"
        _ => AtaRecord::DeviceError,
    };
    Some(RecordKind::Ata(record))
}

fn exception(text: &MatchedText<'_>) -> Option<RecordKind> {
    let active = text
        .after
        .split_once("SAct 0x")
        .and_then(|(_, rest)| rest.split_whitespace().next());
    // A torn record: the queue is unknown.
    let queued = active
        .and_then(|bits| u32::from_str_radix(bits, 16).ok())
        .map_or(0, u32::count_ones);
    Some(RecordKind::Ata(AtaRecord::Exception { queued }))
}

/// `error: { UNC }`: the sector cannot be read. `{ ICRC ABRT }`: the cable corrupted the data. A
/// value with all bits set is not the content of a register.
fn error_register(text: &MatchedText<'_>) -> Option<RecordKind> {
    let bits = text.after.split('}').next()?;
    let has = |bit: &str| bits.split(' ').any(|word| word == bit);
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

/// Errors on the link; hot plugging sets other bits (PHYRdyChg, CommWake, DevExch).
fn serror(text: &MatchedText<'_>) -> Option<RecordKind> {
    let bits = text.after.split('}').next()?;
    let wire = [
        "10B8B",
        "Dispar",
        "BadCRC",
        "Handshk",
        "LinkSeq",
        "TrStaTrns",
        "UnrecFIS",
        "UnrecovData",
    ];
    let bad = bits.split(' ').any(|word| wire.contains(&word));
    Some(if bad {
        RecordKind::Ata(AtaRecord::Error(Transport, Unclear))
    } else {
        RecordKind::Continuation
    })
}

fn disabled(text: &MatchedText<'_>) -> Option<RecordKind> {
    let whole = text.after.trim().is_empty();
    whole.then_some(RecordKind::Ata(AtaRecord::Disabled))
}

fn detaching(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let hctl = text.after.split(')').next()?;
    Some(ParsedRecord {
        other_name: Some(DeviceName::Hctl(hctl.to_owned())),
        ..ParsedRecord::from_text(text, RecordKind::Topology(TopologyUpdate::AtaPortOfHost))
    })
}

fn model(text: &MatchedText<'_>) -> Option<RecordKind> {
    let model = text.after.split_once(": ")?.1;
    Some(RecordKind::Topology(TopologyUpdate::Model(
        model.chars().take(60).collect(),
    )))
}

fn port(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let parsed = ParsedRecord::from_text(text, RecordKind::Continuation);
    match parsed.device {
        DeviceName::Ata { port, .. } => Some(ParsedRecord {
            kind: RecordKind::Topology(TopologyUpdate::AtaPort(port)),
            ..parsed
        }),
        _ => None,
    }
}
