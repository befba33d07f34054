//! Replaces serial numbers, WWNs and the host name in a bundle by placeholders.
//!
//! In: the answers and smartctl's outputs, from which the secrets are taken; then any text or JSON of
//! the bundle. Out: the same with placeholders. One secret has the same placeholder everywhere, so that
//! ids still refer to each other. What identifies no hardware stays: mount points, names of pods and
//! volumes, UUIDs of filesystems.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::answers::Answers;
use diskvitals_wire as wire;

/// A shorter serial number is replaced only where a field contains nothing else: it is a part of too
/// many words.
const MIN_SERIAL: usize = 4;
/// Digits of an NAA identifier or an EUI-64.
const WWN_DIGITS: usize = 16;
/// A longer host name is also replaced inside longer words.
const LONG_HOST: usize = 8;
const HOST: &str = "HOST";
/// Fields of the API and of smartctl whose whole content identifies a device.
const SERIAL_FIELDS: [&str; 2] = ["serial", "serial_number"];
const WWN_FIELDS: [&str; 9] = [
    "wwn",
    "logical_unit_id",
    "eui64",
    "nguid",
    "uuid_nvme",
    "sas_address",
    "sasAddress",
    "attached_sas_address",
    "lu_id",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Separators match where the secret has some: udev writes `_` for white space.
    Serial,
    /// Separators match between any two digits: smartctl writes `5 000c50 0a1b2c3d4`.
    Wwn,
    /// Only as a word of its own.
    Host,
}

#[derive(Clone, Debug)]
struct Secret {
    /// Lower case; a run of separators is one `_`.
    text: Vec<u8>,
    kind: Kind,
    placeholder: String,
}

#[derive(Debug, Default)]
pub struct Redactor {
    /// By their first character, the longest first.
    secrets: BTreeMap<u8, Vec<Secret>>,
    serials: BTreeMap<String, String>,
    wwns: BTreeMap<String, String>,
}

impl Redactor {
    /// `outputs`: of smartctl, as far as they are JSON.
    pub fn new<'a>(answers: &Answers, outputs: impl Iterator<Item = &'a Value>) -> Redactor {
        let mut redactor = Redactor::default();
        for drive in &answers.drives {
            redactor.add_serial(&drive.serial);
            redactor.add_wwn(&drive.wwn);
            if let Some(location) = &drive.location {
                redactor.add_wwn(&location.sas_address);
            }
        }
        for output in outputs {
            redactor.add_fields(output);
        }
        let known: Vec<&str> = answers.drives.iter().map(|it| it.id.as_str()).collect();
        for finding in &answers.findings {
            redactor.add_forgotten_drive(finding.subject.as_ref(), &known);
        }
        for drive in &answers.drives {
            redactor.add_id(&drive.id, drive.id_stable);
        }
        let host = answers.node.name.as_str();
        for name in [host, host.split('.').next().unwrap_or_default()] {
            redactor.add_secret(name, Kind::Host, HOST);
        }
        // machine-id(5): it is to be treated as confidential.
        redactor.add_secret(&answers.node.machine_id, Kind::Host, HOST);
        redactor
    }

    /// A cleared finding may be about a drive that has been removed for good: its id ends with its
    /// serial number.
    fn add_forgotten_drive(&mut self, subject: Option<&wire::Subject>, known: &[&str]) {
        let Some(subject) = subject.filter(|it| it.kind() == wire::SubjectKind::Drive) else {
            return;
        };
        if !known.contains(&subject.id.as_str()) {
            self.add_id(&subject.id, !subject.id.starts_with("path:"));
        }
    }

    /// An id consists of a WWN, or of a model and a serial number that may be no more than a part of
    /// the one that the drive reports.
    fn add_id(&mut self, id: &str, stable: bool) {
        let is_wwn = ["naa.", "eui.", "nguid.", "wwn."].iter().any(|prefix| id.starts_with(prefix));
        if is_wwn {
            self.add_wwn(id);
        } else if let Some((_, serial)) = id.rsplit_once('_').filter(|_| stable) {
            self.add_serial(serial);
        }
    }

    fn add_serial(&mut self, serial: &str) {
        let serial = serial.trim();
        if serial.is_empty() || self.serials.contains_key(&serial.to_ascii_lowercase()) {
            return;
        }
        // A part of a known one, or with white space in other places.
        let plain = alphanumeric(serial);
        let known = self
            .serials
            .iter()
            .find(|(known, _)| plain.len() >= MIN_SERIAL && alphanumeric(known).contains(&plain));
        let placeholder = match known {
            Some((_, placeholder)) => placeholder.clone(),
            None => {
                let used = self.serials.values().filter_map(|it| it.strip_prefix("SERIAL-"));
                let last = used.filter_map(|it| it.parse::<usize>().ok()).max();
                format!("SERIAL-{}", last.unwrap_or(0) + 1)
            }
        };
        self.serials.insert(serial.to_ascii_lowercase(), placeholder.clone());
        if plain.len() >= MIN_SERIAL {
            self.add_secret(serial, Kind::Serial, &placeholder);
            // The kernel's name of an NVMe namespace without identifiers: nvme.VENDOR-SERIAL-MODEL-NSID,
            // as hexadecimal digits.
            let hex: String = serial.bytes().map(|byte| format!("{byte:02x}")).collect();
            self.add_secret(&hex, Kind::Serial, &placeholder);
        }
    }

    fn add_wwn(&mut self, wwn: &str) -> Option<String> {
        let lower = wwn.to_ascii_lowercase();
        let prefixes = ["0x", "naa.", "eui.", "nguid.", "wwn-0x", "wwn.0x", "wwn.", "uuid."];
        let digits = prefixes
            .iter()
            .fold(lower.as_str(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
        let digits = alphanumeric(digits);
        if digits.len() < WWN_DIGITS / 2 {
            return None;
        }
        if let Some(placeholder) = self.wwns.get(&digits) {
            return Some(placeholder.clone());
        }
        let placeholder = format!("WWN-{}", self.wwns.len() + 1);
        self.wwns.insert(digits.clone(), placeholder.clone());
        self.add_secret(&digits, Kind::Wwn, &placeholder);
        Some(placeholder)
    }

    fn add_secret(&mut self, text: &str, kind: Kind, placeholder: &str) {
        let text = normalized(text);
        let Some(first) = text.first().copied() else {
            return;
        };
        let secrets = self.secrets.entry(first).or_default();
        if secrets.iter().all(|secret| secret.text != text) {
            secrets.push(Secret { text, kind, placeholder: placeholder.to_owned() });
            secrets.sort_by_key(|secret| std::cmp::Reverse(secret.text.len()));
        }
    }

    /// Collects the identifying fields of smartctl's JSON.
    fn add_fields(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Value::String(text) if SERIAL_FIELDS.contains(&name.as_str()) => {
                            self.add_serial(text);
                        }
                        field if WWN_FIELDS.contains(&name.as_str()) => {
                            if let Some(text) = wwn_text(field) {
                                self.add_wwn(&text);
                            }
                        }
                        field => self.add_fields(field),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_fields(item)),
            _ => {}
        }
    }

    pub fn json(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.field(name, field);
                }
            }
            _ => {}
        }
    }

    fn field(&mut self, name: &str, field: &mut Value) {
        let placeholder = match &*field {
            Value::String(text) if SERIAL_FIELDS.contains(&name) => {
                self.add_serial(text);
                self.serials.get(&text.trim().to_ascii_lowercase()).cloned()
            }
            field if WWN_FIELDS.contains(&name) => {
                wwn_text(field).and_then(|text| self.add_wwn(&text))
            }
            _ => None,
        };
        match placeholder {
            Some(placeholder) => *field = Value::String(placeholder),
            None => self.json(field),
        }
    }

    pub fn text(&mut self, text: &str) -> String {
        let text = self.replace_known(text);
        let text = self.replace_hexadecimal(&text);
        self.replace_announced(&text)
    }

    fn replace_known(&self, text: &str) -> String {
        let bytes = text.as_bytes();
        let has_case = text.bytes().any(|byte| byte.is_ascii_lowercase());
        let (mut shown, mut from, mut at) = (String::with_capacity(text.len()), 0, 0);
        while let Some(byte) = bytes.get(at) {
            let candidates = self.secrets.get(&byte.to_ascii_lowercase());
            let found = candidates.into_iter().flatten().find_map(|secret| {
                // The value of an enum (HEALTH_GOOD) is no place for a host's name.
                if secret.kind == Kind::Host && !has_case {
                    return None;
                }
                Some((secret, matched(secret, bytes, at)?))
            });
            match found {
                Some((secret, end)) => {
                    shown.push_str(&text[from..at]);
                    shown.push_str(&secret.placeholder);
                    (from, at) = (end, end);
                }
                None => at += 1,
            }
        }
        shown.push_str(&text[from..]);
        shown
    }

    /// Addresses that no list of the API contains: of an expander, or of a drive that has been removed.
    fn replace_hexadecimal(&mut self, text: &str) -> String {
        let is_digit = |c: char| c.is_ascii_hexdigit();
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_digit) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|c| !is_digit(c)).unwrap_or(from.len());
            let (digits, after) = from.split_at(end);
            shown.push_str(before);
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            let placeholder = match digits.len() >= WWN_DIGITS && !is_number {
                true => self.add_wwn(digits),
                false => None,
            };
            shown.push_str(placeholder.as_deref().unwrap_or(digits));
            rest = after;
        }
        shown + rest
    }

    /// `SerialNumber: 12345`, as the kernel prints of USB devices.
    fn replace_announced(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        let mut from = 0;
        loop {
            let lower = text.to_ascii_lowercase();
            let found = ["serialnumber", "serial number", "serial no"]
                .iter()
                .filter_map(|words| Some((lower.get(from..)?.find(words)? + from, words.len())))
                .min();
            let Some((at, length)) = found else {
                return text;
            };
            let rest = &text[at + length..];
            let start = at
                + length
                + (rest.len() - rest.trim_start_matches([':', '=', ' ', '.', '\t']).len());
            let word: String = text[start..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
                .collect();
            let is_serial = word.len() >= MIN_SERIAL
                && word.bytes().any(|byte| byte.is_ascii_digit())
                && !word.starts_with("SERIAL-")
                && !word.starts_with("WWN-");
            from = start;
            if is_serial {
                self.add_serial(&word);
                if let Some(placeholder) = self.serials.get(&word.to_ascii_lowercase()) {
                    text.replace_range(start..start + word.len(), placeholder);
                }
            }
        }
    }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'_' | b'-' | b':' | b'.' | b'\t')
}

fn alphanumeric(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn normalized(text: &str) -> Vec<u8> {
    let mut normal: Vec<u8> = Vec::new();
    for byte in text.trim().bytes() {
        match is_separator(byte) {
            true if normal.last() == Some(&b'_') => {}
            true => normal.push(b'_'),
            false => normal.push(byte.to_ascii_lowercase()),
        }
    }
    normal
}

/// The end of the secret in the text, if it begins at `start`.
fn matched(secret: &Secret, text: &[u8], start: usize) -> Option<usize> {
    let is_word = |at: Option<&u8>| at.is_some_and(u8::is_ascii_alphanumeric);
    let bounded = secret.kind == Kind::Host && secret.text.len() < LONG_HOST;
    if bounded && start > 0 && is_word(text.get(start - 1)) {
        return None;
    }
    let mut at = start;
    for (n, wanted) in secret.text.iter().enumerate() {
        let may_separate = *wanted == b'_' || secret.kind == Kind::Wwn && n > 0;
        if may_separate {
            while text.get(at).copied().is_some_and(is_separator) {
                at += 1;
            }
        }
        if *wanted == b'_' {
            continue;
        }
        if text.get(at)?.to_ascii_lowercase() != *wanted {
            return None;
        }
        at += 1;
    }
    (!bounded || !is_word(text.get(at))).then_some(at)
}

/// `{"naa": 5, "oui": 3152, "id": 2685403137}` and `{"oui": 9528, "ext_id": 391956898242}` as digits.
fn wwn_text(field: &Value) -> Option<String> {
    let number = |name: &str| field.get(name).and_then(Value::as_u64);
    match field {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Object(_) => match (number("naa"), number("oui"), number("id"), number("ext_id")) {
            (Some(naa), Some(oui), Some(id), _) => Some(format!("{naa:x}{oui:06x}{id:09x}")),
            (_, Some(oui), _, Some(id)) => Some(format!("{oui:06x}{id:010x}")),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor() -> Redactor {
        let drive = |id: &str, serial: &str, wwn: &str| wire::Drive {
            id: id.to_owned(),
            id_stable: true,
            serial: serial.to_owned(),
            wwn: wwn.to_owned(),
            ..Default::default()
        };
        let answers = Answers {
            node: wire::Node { name: "rack7.example.org".to_owned(), ..Default::default() },
            drives: vec![
                drive("naa.5000c500a1d00001", "ZL2A 0X1Y", "naa.5000c500a1d00001"),
                drive("ACME_X_S1", "S1", ""),
            ],
            ..Answers::default()
        };
        Redactor::new(&answers, std::iter::empty())
    }

    #[test]
    fn a_secret_is_found_in_any_case_inside_words_and_with_other_separators() {
        let mut redactor = redactor();
        for (text, shown) in [
            ("serial ZL2A 0X1Y.", "serial SERIAL-1."),
            ("ata-ACME_zl2a_0x1y-part1", "ata-ACME_SERIAL-1-part1"),
            ("xZL2A 0X1Yx", "xSERIAL-1x"),
            ("LU WWN Device Id: 5 000c50 0a1d00001", "LU WWN Device Id: WWN-1"),
            ("wwn-0x5000C500A1D00001-part2", "wwn-0xWWN-1-part2"),
            ("on rack7: lost", "on HOST: lost"),
            ("on rack7.example.org", "on HOST"),
            ("rack77 and RACK7", "rack77 and HOST"),
            ("expander-0:1 5001438031ab0c3f", "expander-0:1 WWN-2"),
            ("16000900661248 bytes", "16000900661248 bytes"),
            ("usb 1-1: SerialNumber: 0123ABCD", "usb 1-1: SerialNumber: SERIAL-3"),
            ("without a serial number", "without a serial number"),
            ("S1 in S1", "S1 in S1"),
            ("ä\u{202e}盘", "ä\u{202e}盘"),
        ] {
            assert_eq!(redactor.text(text), shown, "{text}");
        }
    }

    #[test]
    fn identifying_fields_of_json_are_replaced_as_a_whole() {
        let mut redactor = redactor();
        let mut value = json!({
            "serial_number": "S1",
            "wwn": {"naa": 5, "oui": 3152, "id": 2_714_763_265_u64},
            "health": "HEALTH_RACK7",
            "output": ["Serial Number:    ZL2A 0X1Y"],
        });
        redactor.json(&mut value);
        assert_eq!(
            value,
            json!({"serial_number": "SERIAL-2", "wwn": "WWN-1", "health": "HEALTH_RACK7", "output": ["Serial Number:    SERIAL-1"]})
        );
    }
}
