//! journald's copy of the kernel log, for hosts on which /dev/kmsg cannot be read: `journalctl
//! --output=json` (systemd.journal-fields(7)).
//!
//! In: a line of JSON. Out: the record in the format of /dev/kmsg, so that one parser serves both.
//! Permissions are checked elsewhere.

use std::path::Path;

use serde::Deserialize;

use diskvitals_host::root::HostRoot;

/// The paths in distributions, in order of preference. They are below the daemon's own root: the
/// program must match the libraries there.
pub const PROGRAMS: [&str; 2] = ["/usr/bin/journalctl", "/bin/journalctl"];
/// journald listens on this socket while it runs. Following a journal without journald would yield
/// nothing for ever.
const JOURNALD_SOCKET: &str = "/run/systemd/journal/socket";
/// The requested fields. Fields with two underscores are always included.
const FIELDS: &str =
    "MESSAGE,PRIORITY,SYSLOG_FACILITY,_SOURCE_MONOTONIC_TIMESTAMP,_KERNEL_SUBSYSTEM,_KERNEL_DEVICE";

/// Whether the host's journald runs.
pub fn is_running(root: &HostRoot) -> bool {
    root.at(JOURNALD_SOCKET).exists()
}

/// Arguments to print the kernel's records of this boot, and then new ones. `after`: the journal's
/// own cursor.
pub fn arguments(root: &HostRoot, boot_id: &str, after: Option<&str>) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--quiet", "--no-pager", "--output=json", "--follow", "--no-tail"]
            .map(str::to_owned)
            .into();
    arguments.push(format!("--output-fields={FIELDS}"));
    if root.dir() != Path::new("/") {
        arguments.push(format!("--root={}", root.dir().display()));
    }
    if let Some(after) = after {
        arguments.push(format!("--after-cursor={after}"));
    }
    arguments.push("_TRANSPORT=kernel".to_owned());
    arguments.push(format!("_BOOT_ID={}", boot_id.replace('-', "")));
    arguments
}

#[derive(Deserialize)]
struct JournalFields {
    #[serde(rename = "MESSAGE")]
    message: Option<Value>,
    #[serde(rename = "PRIORITY")]
    priority: Option<Value>,
    #[serde(rename = "SYSLOG_FACILITY")]
    facility: Option<Value>,
    #[serde(rename = "_SOURCE_MONOTONIC_TIMESTAMP")]
    kernel_time: Option<Value>,
    #[serde(rename = "__MONOTONIC_TIMESTAMP")]
    monotonic: Option<Value>,
    #[serde(rename = "_KERNEL_SUBSYSTEM")]
    subsystem: Option<Value>,
    #[serde(rename = "_KERNEL_DEVICE")]
    device: Option<Value>,
    #[serde(rename = "__SEQNUM")]
    seqnum: Option<Value>,
    #[serde(rename = "__CURSOR")]
    cursor: Option<Value>,
}

/// Text; bytes, if not UTF-8 or not printable; a list, if a field occurs more than once.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
}

impl Value {
    fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Value::Number(number) => Some(number.to_string().into_bytes()),
            Value::Text(text) => Some(text.clone().into_bytes()),
            Value::Bytes(bytes) => Some(bytes.clone()),
            // One level of nesting; deeper lists do not occur.
            Value::List(many) => match many.first() {
                Some(Value::List(_)) | None => None,
                Some(first) => first.bytes(),
            },
        }
    }

    fn text(&self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    fn number(&self) -> Option<u64> {
        self.text()?.parse().ok()
    }
}

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// In the format of /dev/kmsg. Its sequence number is the journal's.
    pub raw: Vec<u8>,
    /// When journald received it: microseconds of CLOCK_MONOTONIC, which no step of the wall clock
    /// changes.
    pub received: Option<u64>,
    /// The journal's cursor at this entry.
    pub cursor: Option<String>,
}

/// None: the line is no record, or lacks a required field.
pub(crate) fn parse_entry(line: &[u8]) -> Option<JournalEntry> {
    let line: JournalFields = serde_json::from_slice(line).ok()?;
    let message = line.message?.bytes()?;
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::number);
    let text = |value: &Option<Value>| value.as_ref().and_then(Value::text);
    let cursor = text(&line.cursor);
    // journald prints the number since systemd 254; the cursor has always contained it, in
    // hexadecimal.
    let in_cursor = || {
        cursor
            .as_deref()?
            .split(';')
            .find_map(|part| u64::from_str_radix(part.strip_prefix("i=")?, 16).ok())
    };
    let seq = number(&line.seqnum).or_else(in_cursor)?;
    // Without a facility, a record does not count as the kernel's: 1 is the facility of user space.
    let facility = number(&line.facility).unwrap_or(1).min(127);
    let priority = facility << 3 | number(&line.priority).unwrap_or(6).min(7);
    let time = number(&line.kernel_time).or_else(|| number(&line.monotonic)).unwrap_or_default();
    let mut raw = format!("{priority},{seq},{time},-;").into_bytes();
    escape(&message, &mut raw);
    for (key, value) in [("SUBSYSTEM", &line.subsystem), ("DEVICE", &line.device)] {
        if let Some(value) = value.as_ref().and_then(Value::bytes) {
            raw.extend_from_slice(format!("\n {key}=").as_bytes());
            escape(&value, &mut raw);
        }
    }
    Some(JournalEntry { raw, received: number(&line.monotonic), cursor })
}

/// Escapes as the kernel does (msg_add_ext_text(), kernel/printk/printk.c); journald has removed
/// the escapes.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'\\' | 0..=31 | 127.. => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            byte => out.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_kernel_log::record;

    const REALTIME: &str =
        r#""__REALTIME_TIMESTAMP":"1700000000123456","__MONOTONIC_TIMESTAMP":"22048500""#;

    #[test]
    fn a_journal_entry_becomes_the_kernel_record() {
        let line = format!(
            r#"{{"__CURSOR":"s=ab;i=4d2;b=ee;m=1;t=2;x=3",{REALTIME},"_BOOT_ID":"ee","_TRANSPORT":"kernel","PRIORITY":"3","SYSLOG_FACILITY":"0","_SOURCE_MONOTONIC_TIMESTAMP":"22048412","_KERNEL_SUBSYSTEM":"scsi","_KERNEL_DEVICE":"+scsi:6:0:0:0","MESSAGE":"cmd a\\b\n  res"}}"#
        );
        let entry = parse_entry(line.as_bytes()).unwrap();
        let record = record::parse(&entry.raw).unwrap();
        assert_eq!(
            (record.facility, record.level, record.seq, record.time_us),
            (0, Some(3), 0x4d2, 22_048_412)
        );
        assert_eq!((record.subsystem, record.device), (Some("scsi"), Some("+scsi:6:0:0:0")));
        assert_eq!(record.text, "cmd a\\b\n  res");
        assert_eq!(entry.received, Some(22_048_500));
        assert_eq!(entry.cursor.as_deref(), Some("s=ab;i=4d2;b=ee;m=1;t=2;x=3"));
    }

    #[test]
    fn a_message_may_be_bytes_or_come_twice_and_the_sequence_number_may_be_a_field() {
        for (message, text) in
            [("[66,255,67]", "B\u{fffd}C"), (r#"["one","two"]"#, "one"), ("[[66,67],\"x\"]", "BC")]
        {
            let line = format!(r#"{{"__SEQNUM":"7","SYSLOG_FACILITY":"0","MESSAGE":{message}}}"#);
            let entry = parse_entry(line.as_bytes()).unwrap();
            let record = record::parse(&entry.raw).unwrap();
            assert_eq!(
                (record.seq, record.text.as_ref(), record.level, entry.received),
                (7, text, Some(6), None)
            );
        }
    }

    #[test]
    fn user_space_messages_do_not_get_the_kernel_facility() {
        for facility in [r#""SYSLOG_FACILITY":"3","#, ""] {
            let line = format!(r#"{{"__SEQNUM":7,{facility}"MESSAGE":"I/O error"}}"#);
            assert_ne!(
                record::parse(&parse_entry(line.as_bytes()).unwrap().raw).unwrap().facility,
                0
            );
        }
    }

    #[test]
    fn junk_is_no_entry() {
        for line in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"__SEQNUM":"7","MESSAGE":null}"#,
            r#"{"MESSAGE":"no number"}"#,
            r#"{"__CURSOR":"i=zz","MESSAGE":"x"}"#,
        ] {
            assert_eq!(parse_entry(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_journal_is_read_below_the_host_root() {
        let all = arguments(&HostRoot::new("/host"), "bc41-5868", Some("s=1;i=2"));
        assert!(
            all.contains(&"--root=/host".to_owned())
                && all.contains(&"--after-cursor=s=1;i=2".to_owned()),
            "{all:?}"
        );
        assert_eq!(all.last().unwrap(), "_BOOT_ID=bc415868");
        assert!(
            !arguments(&HostRoot::new("/"), "b", None)
                .iter()
                .any(|one| one.starts_with("--root") || one.starts_with("--after"))
        );
    }
}
