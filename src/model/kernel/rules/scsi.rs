//! The SCSI mid layer and its disks: a failed command is told over several records, and what it
//! means is in the sense data.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Kind, Learn, Part, Rule, Said, Scsi, Text, rule};
use crate::model::kernel::{name, sense};

pub const RULES: &[Rule] = &[
    rule(
        "scsi-cache",
        "",
        " failed: Result: hostbyte=",
        Read(cache),
        "drivers/scsi/sd.c sd_sync_cache(), sd_start_stop_device(); 3.10-6.18",
    ),
    rule(
        "scsi-result",
        "",
        "Result: hostbyte=",
        Read(result),
        "drivers/scsi/scsi_logging.c scsi_print_result(), constants.c; 3.10-6.18",
    ),
    rule(
        "scsi-sense-key",
        "",
        "Sense Key : ",
        Read(key),
        "drivers/scsi/scsi_logging.c scsi_log_dump_sense(), constants.c; 3.10-6.18",
    ),
    rule(
        "scsi-sense",
        "",
        "Add. Sense: ",
        Read(add_sense),
        "drivers/scsi/scsi_logging.c, constants.c scsi_show_extd_sense(); 3.10-6.18",
    ),
    rule(
        "scsi-sense-number",
        "",
        "ASC=0x",
        Read(number_sense),
        "drivers/scsi/scsi_logging.c without CONFIG_SCSI_CONSTANTS; 3.10-6.18",
    ),
    rule(
        "scsi-command",
        "",
        "CDB: ",
        Read(command),
        "drivers/scsi/scsi_logging.c scsi_print_command(), constants.c; 3.10-6.18",
    ),
    rule(
        "scsi-unhandled",
        "",
        "Unhandled sense code",
        Read(names),
        "drivers/scsi/scsi_lib.c scsi_io_completion(); up to 3.16",
    ),
    rule(
        "scsi-unhandled-error",
        "",
        "Unhandled error code",
        Read(names),
        "drivers/scsi/scsi_lib.c scsi_io_completion(); up to 3.16",
    ),
    rule(
        "scsi-offlined",
        "s",
        "Device offlined - not ready after error recovery",
        Cause(Removed, Unclear),
        "drivers/scsi/scsi_error.c scsi_eh_offline_sdevs(); 3.10-6.18",
    ),
    rule(
        "scsi-offlined-old",
        "s",
        "Device offlined - command error recovery failed",
        Cause(Removed, Unclear),
        "drivers/scsi/scsi_error.c; 2.6 and vendors'",
    ),
    rule(
        "scsi-medium-access",
        "sd ",
        "Medium access timeout failure. Offlining disk!",
        Cause(Removed, Yes),
        "drivers/scsi/sd.c sd_eh_action(); 3.10-6.18",
    ),
    rule(
        "scsi-offline",
        "s",
        "rejecting I/O to offline device",
        Effect(Removed, Unclear),
        "drivers/scsi/scsi_lib.c scsi_device_state_check(); 3.10-6.18",
    ),
    rule(
        "scsi-dead",
        "s",
        "rejecting I/O to dead device",
        Effect(Removed, Unclear),
        "drivers/scsi/scsi_lib.c scsi_device_state_check(); 3.10-6.18",
    ),
    rule(
        "scsi-changed",
        "sd ",
        "device offline or changed",
        Effect(Removed, Unclear),
        "drivers/scsi/sd.c sd_setup_read_write_cmnd(); 5.0-6.18",
    ),
    rule(
        "scsi-waited",
        "s",
        "timing out command, waited",
        Cause(Timeout, Unclear),
        "drivers/scsi/scsi_lib.c scsi_softirq_done(); 3.10-5.15",
    ),
    rule(
        "scsi-unit-not-ready",
        "sd ",
        "] Unit Not Ready",
        Read(probe),
        "drivers/scsi/sd.c sd_spinup_disk(): what a drive says while it starts; 3.10-6.18",
    ),
    rule(
        "scsi-killing",
        "sd ",
        "killing request",
        Follow,
        "drivers/scsi/scsi_lib.c scsi_kill_request(); up to 4.20",
    ),
    rule(
        "scsi-partial",
        "sd ",
        "Unaligned partial completion",
        Follow,
        "drivers/scsi/sd.c sd_done(); 3.15-6.18",
    ),
    rule(
        "scsi-stopping",
        "sd ",
        "Stopping disk",
        Follow,
        "drivers/scsi/sd.c sd_shutdown(); 3.10-6.18",
    ),
    rule(
        "scsi-attached",
        "sd ",
        "] Attached SCSI ",
        Read(attached),
        "drivers/scsi/sd.c sd_probe(); 3.10-6.18",
    ),
    rule(
        "scsi-tape",
        "scsi ",
        ": Sequential-Access ",
        Read(not_a_disk),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    rule(
        "scsi-cdrom",
        "scsi ",
        ": CD-ROM ",
        Read(not_a_disk),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    rule(
        "scsi-enclosure",
        "scsi ",
        ": Enclosure ",
        Read(not_a_disk),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    rule(
        "scsi-changer",
        "scsi ",
        ": Medium Changer ",
        Read(not_a_disk),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
    rule(
        "scsi-disk",
        "scsi ",
        ": Direct-Access ",
        Read(model),
        "drivers/scsi/scsi_scan.c scsi_add_lun(); 3.10-6.18",
    ),
];

fn result(text: &Text<'_>) -> Option<Said> {
    let host = sense::host_byte(text.after)?;
    Some(Said::of(text, Part::Scsi(Scsi::Result { host })))
}

/// `Synchronize Cache(10) failed: Result: hostbyte=DID_ERROR`, on the way out: the disk was gone
/// already. Probing an empty reader: nothing.
fn cache(text: &Text<'_>) -> Option<Said> {
    let host = sense::host_byte(text.after)?;
    let ending =
        text.before.contains("Synchronize Cache") || text.before.contains("Start/Stop Unit");
    Some(Said::of(
        text,
        if host != 0 && ending {
            Part::Effect(Removed, Unclear)
        } else {
            Part::Follow
        },
    ))
}

fn key(text: &Text<'_>) -> Option<Said> {
    let key = sense::sense_key(text.after)?;
    // The answer to a deferred error is of an earlier command; the word is the drive's all the
    // same.
    Some(Said::of(text, Part::Scsi(Scsi::Key(key))))
}

fn add_sense(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(
        text,
        Part::Scsi(Scsi::Sense(sense::add_sense(text.after))),
    ))
}

fn number_sense(text: &Text<'_>) -> Option<Said> {
    let all = text.all.get(text.before.len()..)?;
    text.after
        .contains("ASCQ=0x")
        .then(|| Said::of(text, Part::Scsi(Scsi::Sense(sense::add_sense(all)))))
}

/// `CDB: Read(10) 28 00 …`, `CDB: opcode=0x2a 2a 00 …`, `CDB: Read(10): 28 00 …` (3.x),
/// `CDB: \ncdb[0]=0x28: 28 00 …` (3.x, numeric)
fn command(text: &Text<'_>) -> Option<Said> {
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
    Some(Said::of(
        text,
        Part::Scsi(Scsi::Cdb {
            write,
            place: place.filter(|_| known >= 10),
        }),
    ))
}

fn names(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Scsi(Scsi::Names)))
}

fn probe(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Scsi(Scsi::Probe)))
}

fn attached(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Learn(Learn::Attached)))
}

fn not_a_disk(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Learn(Learn::Kind(Kind::Other))))
}

fn model(text: &Text<'_>) -> Option<Said> {
    let (device, _) = name::named(text.all);
    Some(Said::new(
        device,
        Part::Learn(Learn::Model(text.after.trim().chars().take(60).collect())),
    ))
}
