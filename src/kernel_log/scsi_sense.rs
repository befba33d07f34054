//! The meaning of SCSI codes: host bytes (include/scsi/scsi_status.h), sense keys and additional
//! sense (SPC-6, drivers/scsi/constants.c).
//!
//! In: numbers, or the kernel's texts for them. Out: an `Interpretation`. Does not depend on
//! devices or on the log.

use crate::event::{Blame, Class};
use crate::parsed_record::AdditionalSense;

/// The meaning of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interpretation {
    Cause(Class, Blame),
    /// An impossible request of the host, or a state that is no failure.
    Expected,
    /// The next line decides.
    Undecided,
}

const HOST_BYTES: [&str; 22] = [
    "DID_OK",
    "DID_NO_CONNECT",
    "DID_BUS_BUSY",
    "DID_TIME_OUT",
    "DID_BAD_TARGET",
    "DID_ABORT",
    "DID_PARITY",
    "DID_ERROR",
    "DID_RESET",
    "DID_BAD_INTR",
    "DID_PASSTHROUGH",
    "DID_SOFT_ERROR",
    "DID_IMM_RETRY",
    "DID_REQUEUE",
    "DID_TRANSPORT_DISRUPTED",
    "DID_TRANSPORT_FAILFAST",
    "DID_TARGET_FAILURE",
    "DID_NEXUS_FAILURE",
    "DID_ALLOC_FAILURE",
    "DID_MEDIUM_ERROR",
    "DID_TRANSPORT_MARGINAL",
    "DID_UNKNOWN",
];

/// `0x3`, `0x03`
pub(crate) fn parse_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("0x")?;
    let is_byte =
        digits.len() <= 2 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_byte.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// DID_TIME_OUT
pub(crate) const HOST_TIME_OUT: u8 = 0x03;

/// `DRIVER_TIMEOUT`, `DRIVER_TIMEOUT,SUGGEST_OK` (up to 2.6.27) or `0x06`: DRIVER_TIMEOUT of
/// include/scsi/scsi.h, whose upper four bits are a suggestion. Text may follow.
pub(crate) fn is_driver_timeout(text: &str) -> bool {
    let word = text.split([' ', ',', '\n']).next().unwrap_or_default();
    word == "DRIVER_TIMEOUT" || parse_byte(word).is_some_and(|byte| byte & 0x0f == 0x06)
}

/// `DID_TIME_OUT` or `0x03`, and nothing else.
pub(crate) fn parse_host_byte(text: &str) -> Option<u8> {
    parse_byte(text).or_else(|| HOST_BYTES.iter().position(|name| *name == text).map(|at| at as u8))
}

pub(crate) fn interpret_host_byte(byte: u8) -> Interpretation {
    match byte {
        // The drive responded: sense data follow, or the response was a status (busy, reservation
        // conflict).
        0x00 => Interpretation::Undecided,
        0x01 | 0x04 => Interpretation::Cause(Class::Removed, Blame::Unclear),
        0x03 | 0x05 => Interpretation::Cause(Class::Timeout, Blame::Unclear),
        0x06 => Interpretation::Cause(Class::Transport, Blame::No),
        0x02 | 0x07 | 0x0b => Interpretation::Cause(Class::Transport, Blame::Unclear),
        0x08 => Interpretation::Cause(Class::Reset, Blame::Unclear),
        0x0e | 0x0f | 0x14 => Interpretation::Cause(Class::Transport, Blame::No),
        0x13 => Interpretation::Cause(Class::Medium, Blame::Yes),
        // Target, nexus and space failures; errors that the SCSI mid layer retries.
        _ => Interpretation::Expected,
    }
}

const SENSE_KEYS: [&str; 16] = [
    "No Sense",
    "Recovered Error",
    "Not Ready",
    "Medium Error",
    "Hardware Error",
    "Illegal Request",
    "Unit Attention",
    "Data Protect",
    "Blank Check",
    "Vendor Specific(9)",
    "Copy Aborted",
    "Aborted Command",
    "Equal",
    "Volume Overflow",
    "Miscompare",
    "Completed",
];

/// `Medium Error [current]` or `0x3 [deferred] [descriptor]`; and the text after it.
pub(crate) fn parse_sense_key(text: &str) -> Option<(u8, &str)> {
    let (name, rest) = text.split_once(" [")?;
    let rest = rest.strip_prefix("current]").or_else(|| rest.strip_prefix("deferred]"))?;
    let key = parse_byte(name)
        .filter(|key| usize::from(*key) < SENSE_KEYS.len())
        .or_else(|| sense_key_of_name(name))?;
    Some((key, rest.strip_prefix(" [descriptor]").unwrap_or(rest)))
}

pub(crate) fn sense_key_of_name(name: &str) -> Option<u8> {
    SENSE_KEYS.iter().position(|key| *key == name).map(|at| at as u8)
}

pub(crate) fn interpret_sense_key(key: u8) -> Interpretation {
    match key {
        0x3 | 0x4 => Interpretation::Cause(Class::Medium, Blame::Yes),
        0x2 | 0xb => Interpretation::Undecided,
        // Recovered errors were corrected; the host causes illegal requests; unit attention reports
        // a change; data protect reports a write-protect switch.
        _ => Interpretation::Expected,
    }
}

/// The meaning of additional sense that decides the meaning of its sense key, or contradicts the
/// key.
pub(crate) fn interpret_additional_sense(
    key: Option<u8>,
    sense: AdditionalSense,
    write: Option<bool>,
) -> Interpretation {
    let AdditionalSense::Code(asc, ascq) = sense else {
        return match key {
            Some(0xb) => Interpretation::Cause(Class::Io, Blame::Unclear),
            _ => Interpretation::Undecided,
        };
    };
    match (key, asc, ascq) {
        // A drive that cannot write reports 0Ch. Software targets report "Unrecovered read error"
        // for every failure, also of a write.
        (Some(0x3), 0x11, 0x00) if write == Some(true) => {
            Interpretation::Cause(Class::Medium, Blame::Unclear)
        }
        (Some(0x3 | 0x4), _, _) => Interpretation::Cause(Class::Medium, Blame::Yes),
        // Becoming ready, stopped by a command, formatting, sanitizing, power-save states, no
        // medium: no failure.
        (
            Some(0x2),
            0x04,
            0x01 | 0x02 | 0x04 | 0x05 | 0x07 | 0x08 | 0x09 | 0x0b | 0x0c | 0x11 | 0x1a | 0x1b
            | 0x1c | 0x1d,
        ) => Interpretation::Expected,
        (_, 0x3a, _) => Interpretation::Expected,
        // Manual intervention, cause not reportable, self-test: the unit does not become ready.
        (Some(0x2), 0x04 | 0x3e, _) => Interpretation::Cause(Class::Removed, Blame::Unclear),
        (Some(0x2), 0x05, _) => Interpretation::Cause(Class::Removed, Blame::Unclear),
        (Some(0x2), 0x08, _) => Interpretation::Cause(Class::Transport, Blame::Unclear),
        (Some(0x2), 0x4c, _) => Interpretation::Cause(Class::Medium, Blame::Yes),
        (Some(0x2), _, _) => Interpretation::Cause(Class::Removed, Blame::Unclear),
        // Incompatible or foreign medium, wrong format: the medium's kind, not a failure.
        (_, 0x30, _) => Interpretation::Expected,
        // Aborted: the link (parity, CRC, ack/nak, initiator), the data's protection, or the
        // drive's internals.
        (Some(0xb), 0x47 | 0x48 | 0x49 | 0x4a | 0x4b | 0x08, _) => {
            Interpretation::Cause(Class::Transport, Blame::Unclear)
        }
        (Some(0xb), 0x10, _) => Interpretation::Cause(Class::Io, Blame::Unclear),
        (Some(0xb), 0x44, _) => Interpretation::Cause(Class::Medium, Blame::Unclear),
        (Some(0xb), 0x11 | 0x14 | 0x0c, _) => Interpretation::Cause(Class::Medium, Blame::Unclear),
        (Some(0xb), 0x29 | 0x2a | 0x2f | 0x3f | 0x55, _) => Interpretation::Expected,
        (Some(0xb), 0x2e, _) => Interpretation::Cause(Class::Timeout, Blame::Unclear),
        (Some(0xb), _, _) => Interpretation::Cause(Class::Io, Blame::Unclear),
        // Without a key (the line was lost): only codes that no other key uses.
        (None, 0x11 | 0x03 | 0x0c, _) => Interpretation::Cause(Class::Medium, Blame::Unclear),
        // A SMART warning: recovered error or no sense with 5Dh "failure prediction threshold
        // exceeded".
        (_, 0x5d, ascq) if ascq != 0xff => Interpretation::Cause(Class::Medium, Blame::Yes),
        _ => Interpretation::Undecided,
    }
}

/// The kernel's texts for additional sense that affects the decision. Texts that are not listed
/// have no effect (drivers/scsi/sense_codes.h).
const ADDITIONAL_SENSE_TEXTS: &[(&str, u8, u8)] = &[
    ("Unrecovered read error", 0x11, 0x00),
    ("Read retries exhausted", 0x11, 0x01),
    ("Error too long to correct", 0x11, 0x02),
    ("Multiple read errors", 0x11, 0x03),
    ("Uncorrectable", 0x11, 0x05),
    ("L-EC uncorrectable error", 0x11, 0x05),
    ("Read error", 0x11, 0x11),
    ("Address mark not found", 0x12, 0x00),
    ("Recorded entity not found", 0x14, 0x00),
    ("Record not found", 0x14, 0x01),
    ("Random positioning error", 0x15, 0x00),
    ("Mechanical positioning error", 0x15, 0x01),
    ("Recovered data", 0x17, 0x00),
    ("Peripheral device write fault", 0x03, 0x00),
    ("Write error", 0x0c, 0x00),
    ("Write append error", 0x50, 0x00),
    ("Defect list", 0x19, 0x00),
    ("Internal target failure", 0x44, 0x00),
    ("Logical unit failure", 0x3e, 0x01),
    ("Timeout on logical unit", 0x3e, 0x02),
    ("Logical unit failed self-test", 0x3e, 0x03),
    ("Logical unit has not self-configured yet", 0x3e, 0x00),
    ("Logical unit failed self-configuration", 0x4c, 0x00),
    ("Logical unit not ready, cause not reportable", 0x04, 0x00),
    ("Logical unit is in process of becoming ready", 0x04, 0x01),
    ("Logical unit not ready, initializing command required", 0x04, 0x02),
    ("Logical unit not ready, manual intervention required", 0x04, 0x03),
    ("Logical unit not ready, format in progress", 0x04, 0x04),
    ("Logical unit not ready, rebuild in progress", 0x04, 0x05),
    ("Logical unit not ready, operation in progress", 0x04, 0x07),
    ("Logical unit not ready, long write in progress", 0x04, 0x08),
    ("Logical unit not ready, self-test in progress", 0x04, 0x09),
    ("Logical unit not accessible, target port in standby state", 0x04, 0x0b),
    ("Logical unit not accessible, target port in unavailable state", 0x04, 0x0c),
    ("Logical unit not accessible, asymmetric access state transition", 0x04, 0x0a),
    ("Logical unit not ready, notify (enable spinup) required", 0x04, 0x11),
    ("Logical unit not ready, start stop unit command in progress", 0x04, 0x1a),
    ("Logical unit not ready, sanitize in progress", 0x04, 0x1b),
    ("Logical unit not ready", 0x04, 0x03),
    ("Logical unit does not respond to selection", 0x05, 0x00),
    ("Logical unit communication failure", 0x08, 0x00),
    ("Logical unit communication time-out", 0x08, 0x01),
    ("Logical unit communication CRC error", 0x08, 0x03),
    ("Medium not present", 0x3a, 0x00),
    ("Incompatible medium installed", 0x30, 0x00),
    ("Cannot read medium", 0x30, 0x00),
    ("Cannot write medium", 0x30, 0x00),
    ("Cannot format medium", 0x30, 0x00),
    ("Scsi parity error", 0x47, 0x00),
    ("SCSI parity error", 0x47, 0x00),
    ("Data phase CRC error", 0x47, 0x01),
    ("Information unit iuCRC error", 0x47, 0x03),
    ("Protocol service CRC error", 0x47, 0x05),
    ("Some commands cleared by iSCSI", 0x47, 0x7f),
    ("Initiator detected error", 0x48, 0x00),
    ("Invalid message error", 0x49, 0x00),
    ("Command phase error", 0x4a, 0x00),
    ("Data phase error", 0x4b, 0x00),
    ("Ack/nak timeout", 0x4b, 0x03),
    ("Nak received", 0x4b, 0x04),
    ("Initiator response timeout", 0x4b, 0x06),
    ("Connection lost", 0x4b, 0x07),
    ("Logical block guard check failed", 0x10, 0x01),
    ("Logical block application tag check failed", 0x10, 0x02),
    ("Logical block reference tag check failed", 0x10, 0x03),
    ("Power on, reset, or bus device reset occurred", 0x29, 0x00),
    ("Commands cleared", 0x2f, 0x00),
    ("Command timeout", 0x2e, 0x01),
    ("Insufficient time for operation", 0x2e, 0x00),
    ("Failure prediction threshold exceeded (false)", 0x5d, 0xff),
    ("Failure prediction threshold exceeded", 0x5d, 0x00),
    ("Logical unit failure prediction threshold exceeded", 0x5d, 0x02),
    ("Hardware impending failure", 0x5d, 0x10),
    ("Media impending failure", 0x5d, 0x43),
    ("Data channel impending failure", 0x5d, 0x30),
    ("Drive calibration retry count", 0x5d, 0x1c),
];

/// `Unrecovered read error - auto reallocate failed`: the whole text, of which only the beginning
/// decides.
pub(crate) fn parse_additional_sense(text: &str) -> AdditionalSense {
    let text = text.trim_ascii();
    let is_text =
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" -,./&()".contains(&byte));
    let found = ADDITIONAL_SENSE_TEXTS.iter().find(|(words, _, _)| {
        is_text && text.get(..words.len()).is_some_and(|head| head.eq_ignore_ascii_case(words))
    });
    found.map_or(AdditionalSense::Unknown, |(_, asc, ascq)| AdditionalSense::Code(*asc, *ascq))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_numeric_codes_are_equivalent() {
        assert_eq!((parse_host_byte("DID_TIME_OUT"), parse_host_byte("0x03")), (Some(3), Some(3)));
        for text in ["Medium Error [current]", "0x3 [current]"] {
            assert_eq!(parse_sense_key(text), Some((3, "")), "{text}");
        }
        assert_eq!(parse_sense_key("Vendor Specific(9) [deferred] [descriptor] "), Some((9, " ")));
        for text in ["Unrecovered read error", "Unrecovered read error - auto reallocate failed "] {
            assert_eq!(parse_additional_sense(text), AdditionalSense::Code(0x11, 0), "{text}");
        }
        assert_eq!(parse_additional_sense("Unaligned write command"), AdditionalSense::Unknown);
    }

    #[test]
    fn a_text_that_only_begins_like_a_code_is_none() {
        for text in ["DID_TIME_OUT driverbyte=x", "DID", "0x", "0x003", "0x0A", "0x+3", ""] {
            assert_eq!(parse_host_byte(text), None, "{text}");
        }
        for text in [
            "0x3[1234]: segfault at 0",
            "0x3 [1234]",
            "0x10 [current]",
            "Medium Error",
            "Medium Errors [current]",
        ] {
            assert_eq!(parse_sense_key(text), None, "{text}");
        }
        assert_eq!(
            parse_additional_sense("Read error[1234]: segfault at 0"),
            AdditionalSense::Unknown
        );
    }

    #[test]
    fn additional_sense_refines_the_sense_key() {
        let code = AdditionalSense::Code;
        for (key, sense, write, meaning) in [
            (Some(3), code(0x11, 0), Some(false), Interpretation::Cause(Class::Medium, Blame::Yes)),
            (
                Some(3),
                code(0x11, 0),
                Some(true),
                Interpretation::Cause(Class::Medium, Blame::Unclear),
            ),
            (Some(4), code(0x3e, 1), None, Interpretation::Cause(Class::Medium, Blame::Yes)),
            (Some(2), code(0x04, 1), None, Interpretation::Expected),
            (Some(2), code(0x3a, 0), None, Interpretation::Expected),
            (Some(2), code(0x04, 0), None, Interpretation::Cause(Class::Removed, Blame::Unclear)),
            (
                Some(0xb),
                code(0x4b, 3),
                None,
                Interpretation::Cause(Class::Transport, Blame::Unclear),
            ),
            (Some(0xb), code(0x30, 0), None, Interpretation::Expected),
            (
                Some(0xb),
                AdditionalSense::Unknown,
                None,
                Interpretation::Cause(Class::Io, Blame::Unclear),
            ),
            (Some(1), code(0x5d, 0), None, Interpretation::Cause(Class::Medium, Blame::Yes)),
        ] {
            assert_eq!(interpret_additional_sense(key, sense, write), meaning, "{key:?} {sense:?}");
        }
    }
}
