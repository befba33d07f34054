//! libata: an exception is told over many records, ends with `EH complete`, and is one incident.
//!
//! UNC is the medium; ICRC, link errors and timeouts are not. ataN is not sdX: `learned` finds out
//! which.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::event::Device;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Ata, Kind, Learn, Part, Rule, Said, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "ata-outcome",
        "",
        "Emask 0x",
        Read(outcome),
        "drivers/ata/libata-eh.c ata_eh_link_report(), ata_err_string(); 3.10-6.18",
    ),
    rule(
        "ata-exception",
        "ata",
        ": exception ",
        Read(exception),
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    rule(
        "ata-queue-log",
        "ata",
        ": failed to read log page 10h",
        Read(culprit_unread),
        "drivers/ata/libata-eh.c, libata-sata.c ata_eh_analyze_ncq_error(); 3.10-6.18",
    ),
    rule(
        "ata-command",
        "ata",
        ": failed command: ",
        Follow,
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    rule(
        "ata-status",
        "ata",
        ": status: {",
        Follow,
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    rule(
        "ata-error",
        "ata",
        ": error: {",
        Read(error),
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    rule(
        "ata-serror",
        "ata",
        ": SError: {",
        Read(serror),
        "drivers/ata/libata-eh.c ata_eh_link_report(); 3.10-6.18",
    ),
    rule(
        "ata-interface",
        "ata",
        "interface fatal error",
        Read(interface),
        "drivers/ata/libahci.c ahci_error_intr(); 3.10-6.18",
    ),
    rule(
        "ata-hard-reset",
        "ata",
        ": hard resetting ",
        Read(reset),
        "drivers/ata/libata-eh.c ata_eh_reset(); 3.10-6.18",
    ),
    rule(
        "ata-soft-reset",
        "ata",
        ": soft resetting ",
        Read(reset),
        "drivers/ata/libata-eh.c ata_eh_reset(); 3.10-6.18",
    ),
    rule(
        "ata-slow",
        "ata",
        ": link is slow to respond",
        Read(not_back),
        "drivers/ata/libata-core.c ata_wait_ready(); 3.10-6.18",
    ),
    rule(
        "ata-comreset",
        "ata",
        ": COMRESET failed",
        Read(not_back),
        "drivers/ata/libata-core.c sata_link_hardreset(); 3.10-6.18",
    ),
    rule(
        "ata-srst",
        "ata",
        ": SRST failed",
        Read(not_back),
        "drivers/ata/libata-sff.c ata_sff_softreset(); 3.10-6.18",
    ),
    rule(
        "ata-softreset",
        "ata",
        ": softreset failed",
        Read(not_back),
        "drivers/ata/libahci.c ahci_do_softreset(); 3.10-6.18",
    ),
    rule(
        "ata-reset-failed",
        "ata",
        ": reset failed",
        Read(not_back),
        "drivers/ata/libata-eh.c ata_eh_reset(); 3.10-6.18",
    ),
    rule(
        "ata-device-not-ready",
        "ata",
        ": device not ready",
        Read(not_back),
        "drivers/ata/libahci.c, libata-core.c; 3.10-6.18",
    ),
    rule(
        "ata-speed",
        "ata",
        ": limiting SATA link speed to",
        Follow,
        "drivers/ata/libata-core.c sata_down_spd_limit(); 3.10-6.18",
    ),
    rule(
        "ata-identify",
        "ata",
        ": failed to IDENTIFY",
        Read(not_back),
        "drivers/ata/libata-core.c ata_dev_read_id(); 3.10-6.18",
    ),
    rule(
        "ata-revalidation",
        "ata",
        ": revalidation failed",
        Read(not_back),
        "drivers/ata/libata-core.c ata_dev_revalidate(); 3.10-6.18",
    ),
    rule(
        "ata-identify-aborted",
        "ata",
        ": both IDENTIFYs aborted",
        Read(not_back),
        "drivers/ata/libata-core.c ata_dev_read_id(); 3.10-6.18",
    ),
    rule(
        "ata-qc-timeout",
        "ata",
        ": qc timeout",
        Read(not_back),
        "drivers/ata/libata-core.c ata_exec_internal_sg(); 3.10-6.18",
    ),
    rule(
        "ata-link-down",
        "ata",
        ": SATA link down",
        Read(link_down),
        "drivers/ata/libata-core.c sata_print_link_status(); 3.10-6.18",
    ),
    rule(
        "ata-works",
        "ata",
        ": configured for ",
        Read(works),
        "drivers/ata/libata-core.c ata_dev_set_mode(); 3.10-6.18",
    ),
    rule(
        "ata-complete",
        "ata",
        ": EH complete",
        Follow,
        "drivers/ata/libata-eh.c ata_scsi_port_error_handler(); 3.10-6.18",
    ),
    rule(
        "ata-disabled",
        "ata",
        ": disabled",
        Read(disabled),
        "drivers/ata/libata-eh.c ata_dev_disable(); 3.10-6.11",
    ),
    rule(
        "ata-disable-device",
        "ata",
        ": disable device",
        Read(disabled),
        "drivers/ata/libata-eh.c ata_dev_disable(); 6.1-6.18",
    ),
    rule(
        "ata-standby",
        "ata",
        ": Entering standby power mode",
        Read(stopped),
        "drivers/ata/libata-core.c ata_dev_power_set_standby(); 6.7-6.18, and stable",
    ),
    rule(
        "ata-detaching",
        "ata",
        ": detaching (SCSI ",
        Read(detaching),
        "drivers/ata/libata-scsi.c ata_scsi_remove_dev(); 3.10-6.18",
    ),
    rule(
        "ata-atapi",
        "ata",
        ": ATAPI: ",
        Read(atapi),
        "drivers/ata/libata-core.c ata_dev_configure(); 3.10-6.18",
    ),
    rule(
        "ata-port",
        "ata",
        "ATA max ",
        Read(port),
        "drivers/ata/libata-core.c ata_host_register(); 3.10-6.18",
    ),
    rule(
        "ata-model",
        "ata",
        ": ATA-",
        Read(model),
        "drivers/ata/libata-core.c ata_dev_print_features(); 3.10-6.18",
    ),
];

/// `res 41/40:… Emask 0x409 (media error) <F>`; in texts, rsyslog's `#012` and torn lines too. The
/// exception's own Emask has no words.
fn outcome(text: &Text<'_>) -> Option<Said> {
    let at = text.before.rfind("res ")?;
    if text.before[at..].len() > 80 {
        return None;
    }
    let words = text.after.split_once('(')?.1.split_once(')')?.0;
    let part = match words {
        "media error" => Ata::Outcome(Medium, Yes),
        "timeout" => Ata::Outcome(Timeout, Unclear),
        "ATA bus error" => Ata::Outcome(Transport, Unclear),
        "host bus error" | "internal error" => Ata::Outcome(Transport, No),
        "HSM violation" => Ata::Outcome(Transport, Unclear),
        // "device error", "invalid argument", "unknown error", "NCQ error"
        _ => Ata::DeviceError,
    };
    Some(Said::of(text, Part::Ata(part)))
}

fn exception(text: &Text<'_>) -> Option<Said> {
    let active = text
        .after
        .split_once("SAct 0x")
        .and_then(|(_, rest)| rest.split_whitespace().next());
    // A torn record: nothing is known of the queue.
    let queued = active
        .and_then(|bits| u32::from_str_radix(bits, 16).ok())
        .map_or(0, u32::count_ones);
    Some(Said::of(text, Part::Ata(Ata::Exception { queued })))
}

/// Comes before the exception that it is about.
fn culprit_unread(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Ata(Ata::CulpritUnread)))
}

/// `error: { UNC }`: the sector cannot be read. `{ ICRC ABRT }`: the data were spoilt on the cable.
/// All bits at once are no register's content.
fn error(text: &Text<'_>) -> Option<Said> {
    let bits = text.after.split('}').next()?;
    let has = |bit: &str| bits.split(' ').any(|word| word == bit);
    let part = match () {
        () if has("UNC") && has("ICRC") => Part::Follow,
        () if has("ICRC") => Part::Ata(Ata::Outcome(Transport, Unclear)),
        () if has("UNC") || has("AMNF") => Part::Ata(Ata::Outcome(Medium, Yes)),
        // "ID not found": the drive does not find the sector's place; so it also answers to an
        // address beyond its end.
        () if has("IDNF") => Part::Ata(Ata::Outcome(Medium, Unclear)),
        () => Part::Follow,
    };
    Some(Said::of(text, part))
}

/// Errors on the wire; a plug that was pulled or put in has others (PHYRdyChg, CommWake, DevExch).
fn serror(text: &Text<'_>) -> Option<Said> {
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
    Some(Said::of(
        text,
        if bad {
            Part::Ata(Ata::Outcome(Transport, Unclear))
        } else {
            Part::Follow
        },
    ))
}

fn interface(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Ata(Ata::Outcome(Transport, Unclear))))
}

fn reset(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Ata(Ata::Reset)))
}

fn not_back(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Ata(Ata::NotBack)))
}

fn link_down(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Ata(Ata::LinkDown)))
}

fn works(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Ata(Ata::Works)))
}

fn disabled(text: &Text<'_>) -> Option<Said> {
    let whole = text.after.trim().is_empty();
    whole.then(|| Said::of(text, Part::Ata(Ata::Disabled)))
}

fn stopped(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Ata(Ata::Stopped)))
}

fn detaching(text: &Text<'_>) -> Option<Said> {
    let hctl = text.after.split(')').next()?;
    Some(Said {
        also: Some(Device::Hctl(hctl.to_owned())),
        ..Said::of(text, Part::Learn(Learn::Same))
    })
}

fn atapi(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Learn(Learn::Kind(Kind::Other))))
}

fn model(text: &Text<'_>) -> Option<Said> {
    let model = text.after.split_once(": ")?.1;
    Some(Said::of(
        text,
        Part::Learn(Learn::Model(model.chars().take(60).collect())),
    ))
}

fn port(text: &Text<'_>) -> Option<Said> {
    let said = Said::of(text, Part::Follow);
    match said.device {
        Device::Ata { port, .. } => Some(Said {
            part: Part::Learn(Learn::Port(port)),
            ..said
        }),
        _ => None,
    }
}
