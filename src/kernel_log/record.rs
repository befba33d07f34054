//! One record of the kernel log, and its format in /dev/kmsg (Documentation/ABI/testing/dev-kmsg).
//!
//! In: the bytes of one read. Out: a `Record` that borrows from them. Does not interpret the text.

use std::borrow::Cow;

/// A record from any source: /dev/kmsg, journald, a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// 0: written by the kernel. Other facilities are written by programs.
    pub facility: u8,
    pub level: Option<u8>,
    /// The text begins with a line of the kernel. Otherwise it continues a line that another record
    /// has cut off (pr_cont()), and may be a name that a user has chosen: it is no evidence.
    pub begins_line: bool,
    /// Since 4.10 `c` is such a continuation. From 3.5 to 4.9 `c` is a piece behind a whole record and
    /// `+` one behind a piece; one that was cut off may have `-` (kernel/printk/printk.c, `LOG_CONT`).
    pub flag: Option<char>,
    /// Increases with each record; in a text, the line number.
    pub seq: u64,
    /// Microseconds of the kernel's clock. Only differences count; without times in the text, the
    /// time is constant.
    pub time_us: u64,
    /// `T123` or `C0`, if the kernel is built with CONFIG_PRINTK_CALLER.
    pub caller: Option<&'a str>,
    pub subsystem: Option<&'a str>,
    /// `b8:0`, `c244:1`, `n3`, `+scsi:6:0:0:0`
    pub device: Option<&'a str>,
    /// Without the prefix; a record may have several lines.
    pub text: Cow<'a, str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("no `;` ends the record's prefix")]
    NoPrefix,
    #[error("the record's prefix is not `priority,sequence,microseconds,flags`")]
    BadPrefix,
}

impl<'a> Record<'a> {
    /// A record of the kernel that contains only a text.
    pub fn from_text(seq: u64, time: u64, text: &'a str) -> Record<'a> {
        Record {
            facility: 0,
            level: None,
            begins_line: true,
            flag: None,
            seq,
            time_us: time,
            caller: None,
            subsystem: None,
            device: None,
            text: Cow::Borrowed(text),
        }
    }
}

/// `prio,seq,usec,flags[,caller=…][,…];text\n KEY=value\n …`
pub fn parse(raw: &[u8]) -> Result<Record<'_>, ParseError> {
    let end = raw.iter().position(|byte| *byte == b';').ok_or(ParseError::NoPrefix)?;
    let head = std::str::from_utf8(&raw[..end]).map_err(|_| ParseError::BadPrefix)?;
    let mut fields = head.split(',');
    let mut number =
        || fields.next().and_then(|field| field.parse::<u64>().ok()).ok_or(ParseError::BadPrefix);
    let (priority, seq, time) = (number()?, number()?, number()?);
    let flag = fields.next().and_then(|flags| flags.chars().next());
    let caller = fields.find_map(|field| field.strip_prefix("caller="));
    let body = &raw[end + 1..];
    let (text, mut rest) = line(body);
    let (mut subsystem, mut device) = (None, None);
    while let [b' ', ..] = rest {
        let (field, after) = line(&rest[1..]);
        rest = after;
        let Ok(field) = std::str::from_utf8(field) else {
            continue;
        };
        match field.split_once('=') {
            Some(("SUBSYSTEM", value)) => subsystem = Some(value),
            Some(("DEVICE", value)) => device = Some(value),
            _ => {}
        }
    }
    let facility = u8::try_from(priority >> 3).unwrap_or(u8::MAX);
    Ok(Record {
        facility,
        level: Some((priority & 7) as u8),
        begins_line: !matches!(flag, Some('c' | '+')),
        flag,
        seq,
        time_us: time,
        caller,
        subsystem,
        device,
        text: unescape(text),
    })
}

fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

/// The kernel writes non-printable bytes and the backslash as `\xNN`.
pub fn unescape(text: &[u8]) -> Cow<'_, str> {
    if !text.contains(&b'\\') {
        return String::from_utf8_lossy(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let escaped = match text.get(at..at + 4) {
            Some([b'\\', b'x', high, low]) => {
                hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low)
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 4 } else { 1 };
    }
    Cow::Owned(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_a_prefix_a_text_and_fields() {
        let raw =
            b"6,492,22048412,-;sd 6:0:0:0: [sda] tag#174 Sense Key : Aborted Command [current] \n SUBSYSTEM=scsi\n DEVICE=+scsi:6:0:0:0\n";
        let record = parse(raw).unwrap();
        assert_eq!(
            (record.facility, record.level, record.seq, record.time_us),
            (0, Some(6), 492, 22_048_412)
        );
        assert_eq!(
            (record.caller, record.subsystem, record.device),
            (None, Some("scsi"), Some("+scsi:6:0:0:0"))
        );
        assert_eq!(record.text, "sd 6:0:0:0: [sda] tag#174 Sense Key : Aborted Command [current] ");
    }

    #[test]
    fn a_record_may_name_its_caller_and_later_kernels_may_add_fields() {
        let record = parse(b"4,1,2,c,caller=T665,later=1;x").unwrap();
        assert_eq!(record.caller, Some("T665"));
    }

    #[test]
    fn escapes_are_bytes() {
        let record = parse(br"3,623,1,-;cmd in\x0a         res 40 \\ \xzz \xc3\xa4").unwrap();
        assert_eq!(record.text, "cmd in\n         res 40 \\\\ \\xzz ä");
        assert_eq!(unescape(br"a\x5cb"), "a\\b");
    }

    #[test]
    fn user_space_has_another_facility() {
        assert_eq!(parse(b"12,339,5140900,-;systemd: x").unwrap().facility, 1);
    }

    #[test]
    fn a_torn_record_is_an_error_or_shorter_and_never_a_panic() {
        let raw = br"6,492,22048412,-,caller=T1;sd 6:0:0:0: \x0aab\xzz
 SUBSYSTEM=scsi
 DEVICE=+scsi:6:0:0:0";
        for end in 0..raw.len() {
            let _ = parse(&raw[..end]);
        }
        for bad in
            [&b""[..], b";", b"x,1,2,-;t", b"1,2;t", b"99999999999999999999,1,1,-;t", b"no prefix"]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
