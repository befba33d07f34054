//! A bridge or controller that answers for the drive: it says "passed" and knows nothing of the
//! drive.
//!
//! SCSI has no command that asks a disk for its health alone: smartctl takes "no error" in answer
//! to REQUEST SENSE for "OK" where the Informational Exceptions page is missing (scsicmds.cpp,
//! scsiCheckIE()), and a USB bridge or a RAID controller answers that for any drive.

use crate::parse::fields::Field;
use crate::report::{Body, Identity, Scsi, SmartReport};

/// Shorter serial numbers are placeholders, not a manufacturer's.
const MIN_SERIAL_LENGTH: usize = 6;

/// Vendors of bridges and controllers in INQUIRY data, with the `-d` types that reach the drive
/// behind them (smartctl(8), -d).
const TYPES_BY_VENDOR: &[(&[&str], &str)] = &[
    (&["asmt", "asmedia", "asm2", "asm1"], "sat, then sntasmedia"),
    (&["jmicron", "jms5", "jmb"], "sat, then sntjmicron, then usbjmicron"),
    (&["realtek", "rtl9"], "sntrealtek, then sat"),
    (&["sunplus"], "usbsunplus"),
    (&["prolific"], "usbprolific"),
    (&["cypress"], "usbcypress"),
    (
        &["perc", "megaraid", "lsi", "avago", "broadcom", "dell", "lenovo"],
        "megaraid,N (smartctl --scan-open lists them)",
    ),
    (&["logical volume", "hp", "hpe", "compaq"], "cciss,N"),
    (&["areca"], "areca,N"),
    (&["adaptec", "microsemi", "smartraid"], "aacraid,H,L,ID"),
    (&["3ware", "amcc"], "3ware,N"),
];
const OTHER_TYPES: &str = "sat, then sntasmedia, sntjmicron and sntrealtek for an NVMe drive; behind a RAID controller megaraid,N or cciss,N";

/// Why the report is not an answer of the drive; None: it is one.
pub(crate) fn answered_for_drive(root: Field<'_>, report: &SmartReport) -> Option<String> {
    let Body::Scsi(scsi) = &report.body else {
        return None;
    };
    let only_passed = report.passed == Some(true) && !has_log_page(root, scsi);
    let measured = report.temperature.is_some()
        || report.power_on_hours.is_some_and(|hours| hours > 0)
        || report.power_cycles.is_some_and(|cycles| cycles > 0);
    // A page of garbage came from what does not know the drive, whatever its serial number is.
    let identified = report.notes.is_empty()
        && report.identity.serial.as_deref().is_some_and(is_plausible_serial);
    (only_passed && !measured && !identified).then(|| {
        let mut why = "a bridge or controller answered for the drive: \u{201c}passed\u{201d}, without a log page, a counter, a temperature or a serial number of a drive".to_owned();
        for note in &report.notes {
            why.push_str(&format!("; {note}"));
        }
        format!(
            "{why}. Ask with smartctl -x -d TYPE, trying {}; set the type that answers as device_type in a [[smart.override]]",
            types_to_try(&report.identity)
        )
    })
}

fn has_log_page(root: Field<'_>, scsi: &Scsi) -> bool {
    *scsi != Scsi::default()
        || root.entries().any(|(key, page)| {
            let is_page = ["scsi_self_test_", "scsi_environmental_reports", "scsi_start_stop"]
                .iter()
                .any(|name| key.starts_with(name));
            is_page && page.is_object()
        })
}

/// Not a placeholder of a bridge: one character or pair repeated (`000000000000`), or counted
/// upwards or downwards (`0123456789ABCDEF`, `DB98765432100`).
fn is_plausible_serial(serial: &str) -> bool {
    let letters: Vec<u8> = serial
        .bytes()
        .filter(u8::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_uppercase())
        .collect();
    let in_a_row = |step: i16| {
        let pairs = letters.windows(2);
        pairs
            .filter(|pair| digit(pair[0]).zip(digit(pair[1])).is_some_and(|(a, b)| a + step == b))
            .count()
    };
    let mut distinct = letters.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let counted = in_a_row(1).max(in_a_row(-1)) * 2 >= letters.len();
    letters.len() >= MIN_SERIAL_LENGTH && distinct.len() > 2 && !counted
}

fn digit(letter: u8) -> Option<i16> {
    char::from(letter).to_digit(16).and_then(|value| i16::try_from(value).ok())
}

fn types_to_try(identity: &Identity) -> &'static str {
    let name = [&identity.vendor, &identity.model]
        .into_iter()
        .flatten()
        .map(|part| part.to_ascii_lowercase())
        .collect::<Vec<_>>()
        .join(" ");
    let named = |part: &&str| {
        name.split_whitespace().any(|word| word.starts_with(*part))
            || part.contains(' ') && name.contains(*part)
    };
    TYPES_BY_VENDOR
        .iter()
        .find(|(vendors, _)| vendors.iter().any(named))
        .map_or(OTHER_TYPES, |(_, types)| types)
}
