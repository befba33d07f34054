//! Records in journald's export formats: one JSON object per line, or `FIELD=value` lines with an
//! empty line after each record.
//!
//! In: a line, or fields. Out: the fields that a kernel record needs. Device names are not
//! interpreted here.

use serde_json::Value;

/// The relevant fields of one record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalEntry {
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

    pub(crate) fn set(&mut self, name: &str, value: String) {
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

/// None: not a JSON object.
pub(crate) fn parse_json(line: &str) -> Option<JournalEntry> {
    let Value::Object(fields) = serde_json::from_str(line).ok()? else {
        return None;
    };
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
    Some(entry)
}
