//! Records in journald's export formats: one JSON object per line, or `FIELD=value` lines with an
//! empty line after each record.
//!
//! In: a line, or fields. Out: the fields that a kernel record needs. Device names are not
//! interpreted here.

use serde_json::Value;

/// The relevant fields of one record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalEntry {
    pub message: Option<String>,
    pub transport: Option<String>,
    pub identifier: Option<String>,
    pub facility: Option<u8>,
    pub boot: Option<String>,
    pub monotonic: Option<u64>,
    pub subsystem: Option<String>,
    pub device: Option<String>,
}

impl JournalEntry {
    /// Decided by the field that journald sets itself. Any program can choose its identifier, but
    /// old exports contain nothing else.
    pub(crate) fn is_from_kernel(&self) -> bool {
        match &self.transport {
            Some(transport) => transport == "kernel" && self.facility.unwrap_or(0) == 0,
            None => self.identifier.as_deref() == Some("kernel"),
        }
    }

    pub fn set(&mut self, name: &str, value: String) {
        match name {
            "MESSAGE" => self.message = Some(value),
            "_TRANSPORT" => self.transport = Some(value),
            "SYSLOG_IDENTIFIER" => self.identifier = Some(value),
            "SYSLOG_FACILITY" => self.facility = value.parse().ok(),
            "_BOOT_ID" => self.boot = Some(value),
            "_SOURCE_MONOTONIC_TIMESTAMP" => self.monotonic = value.parse().ok(),
            "__MONOTONIC_TIMESTAMP" => self.monotonic = self.monotonic.or(value.parse().ok()),
            "_KERNEL_SUBSYSTEM" => self.subsystem = Some(value),
            "_KERNEL_DEVICE" => self.device = Some(value),
            _ => {}
        }
    }
}

/// The first line of a record in the form `verbose`:
/// `Thu 2019-11-07 16:01:25.185075 CET [s=…;i=…;b=…;m=…;t=…;x=…]`
pub(crate) fn is_verbose_header(line: &str) -> bool {
    line.ends_with(']')
        && line.contains(" [s=")
        && line.contains(";i=")
        && line.starts_with(|c: char| c.is_ascii_uppercase())
}

/// A line that is a JSON object.
#[derive(Debug, PartialEq, Eq)]
pub enum JsonLine {
    Entry(JournalEntry),
    /// A container's runtime or a shipper of logs wrote the line: its text, which has any form.
    Text(String),
    Other,
}

/// The fields in which others than journald put a line: docker's json-file, fluentd and the like.
const TEXT_FIELDS: [&str; 4] = ["log", "message", "msg", "line"];

/// None: not a JSON object.
pub(crate) fn parse_json(line: &str) -> Option<JsonLine> {
    let Value::Object(fields) = serde_json::from_str(line).ok()? else {
        return None;
    };
    if !fields.keys().any(|name| name == "MESSAGE" || name == "_TRANSPORT") {
        let text = TEXT_FIELDS.iter().find_map(|name| fields.get(*name)?.as_str());
        return Some(text.map_or(JsonLine::Other, |text| JsonLine::Text(text.to_owned())));
    }
    let mut entry = JournalEntry::default();
    for (name, value) in fields {
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            // journald exports binary content as an array of bytes.
            Value::Array(bytes) => {
                let bytes: Vec<u8> = bytes
                    .iter()
                    .filter_map(Value::as_u64)
                    .filter_map(|byte| u8::try_from(byte).ok())
                    .collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => continue,
        };
        entry.set(&name, text);
    }
    Some(JsonLine::Entry(entry))
}
