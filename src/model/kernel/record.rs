//! One record of the kernel's log, and how /dev/kmsg writes it (Documentation/ABI/testing/dev-kmsg).
//!
//! In: the bytes of one read. Out: a `Record` that borrows from them. Judges nothing.

use std::borrow::Cow;

/// A record, wherever it was read: from /dev/kmsg, from journald, from a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// 0: the kernel's own word. Anything else was written by a program.
    pub facility: u8,
    pub level: Option<u8>,
    /// Grows from record to record; in a text, the line's number.
    pub seq: u64,
    /// Microseconds of the kernel's clock. They only say what is near to what; a text without times has the same time throughout.
    pub time: u64,
    /// `T123` or `C0`, where the kernel is built to tell (CONFIG_PRINTK_CALLER).
    pub caller: Option<&'a str>,
    pub subsystem: Option<&'a str>,
    /// `b8:0`, `c244:1`, `n3`, `+scsi:6:0:0:0`
    pub device: Option<&'a str>,
    /// Without prefix; a record may have several lines.
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
    /// The kernel's own word, without anything but its text.
    pub fn plain(seq: u64, time: u64, text: &'a str) -> Record<'a> {
        Record { facility: 0, level: None, seq, time, caller: None, subsystem: None, device: None, text: Cow::Borrowed(text) }
    }
}

/// `prio,seq,usec,flags[,caller=…][,…];text\n KEY=value\n …`
pub fn parse(raw: &[u8]) -> Result<Record<'_>, ParseError> {
    let end = raw.iter().position(|byte| *byte == b';').ok_or(ParseError::NoPrefix)?;
    let head = std::str::from_utf8(&raw[..end]).map_err(|_| ParseError::BadPrefix)?;
    let mut fields = head.split(',');
    let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok()).ok_or(ParseError::BadPrefix);
    let (priority, seq, time) = (number()?, number()?, number()?);
    let _flags = fields.next();
    let caller = fields.find_map(|field| field.strip_prefix("caller="));
    let body = &raw[end + 1..];
    let (text, mut rest) = line(body);
    let (mut subsystem, mut device) = (None, None);
    while let [b' ', ..] = rest {
        let (field, after) = line(&rest[1..]);
        rest = after;
        let Ok(field) = std::str::from_utf8(field) else { continue };
        match field.split_once('=') {
            Some(("SUBSYSTEM", value)) => subsystem = Some(value),
            Some(("DEVICE", value)) => device = Some(value),
            _ => {}
        }
    }
    let facility = u8::try_from(priority >> 3).unwrap_or(u8::MAX);
    Ok(Record { facility, level: Some((priority & 7) as u8), seq, time, caller, subsystem, device, text: unescape(text) })
}

fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

/// The kernel writes what is not printable ASCII, and the backslash, as `\xNN`.
pub fn unescape(text: &[u8]) -> Cow<'_, str> {
    if !text.contains(&b'\\') {
        return String::from_utf8_lossy(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let escaped = match text.get(at..at + 4) {
            Some([b'\\', b'x', high, low]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 4 } else { 1 };
    }
    Cow::Owned(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}
