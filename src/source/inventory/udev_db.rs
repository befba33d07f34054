//! udev's database, /run/udev/data: one file per device (`b8:0` for block devices), written by
//! systemd's sd-device (`device_update_db`).
//!
//! In: the bytes of one file. Out: links and properties. Lines of other letters (G tags, I
//! initialization time, L priority, V version…) are not needed.

use std::collections::BTreeMap;

/// udev's record of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdevRecord {
    /// `S:` lines as paths: `/dev/disk/by-id/…`. Sorted.
    pub links: Vec<String>,
    pub properties: BTreeMap<String, String>,
    /// Some bytes were no UTF-8 and are shown as U+FFFD.
    pub has_invalid_utf8: bool,
}

pub fn parse(bytes: &[u8]) -> UdevRecord {
    let text = String::from_utf8_lossy(bytes);
    let mut record = UdevRecord {
        has_invalid_utf8: matches!(text, std::borrow::Cow::Owned(_)),
        ..UdevRecord::default()
    };
    for line in text.lines() {
        if let Some(link) = line.strip_prefix("S:") {
            record.links.push(format!("/dev/{link}"));
        } else if let Some((key, value)) =
            line.strip_prefix("E:").and_then(|rest| rest.split_once('='))
        {
            record.properties.insert(key.to_owned(), value.to_owned());
        }
    }
    record.links.sort();
    record.links.dedup();
    record
}

impl UdevRecord {
    /// A property, unchanged; None if absent or empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.properties.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// A property of which udev also keeps an encoded form: `ID_MODEL` has spaces replaced by `_`,
    /// `ID_MODEL_ENC` has them as `\x20`. The encoded form is preferred: it loses nothing.
    pub fn get_decoded(&self, key: &str) -> Option<String> {
        let encoded = self
            .get(&format!("{key}_ENC"))
            .map(unescape)
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty());
        encoded.or_else(|| self.get(key).map(str::to_owned))
    }
}

/// Decodes `\xHH` (udev's `encode_devnode_name`); invalid UTF-8 becomes U+FFFD, and a backslash
/// that starts no escape is kept.
pub fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                bytes.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn links_and_properties_are_read_and_escapes_undone() {
        let record = parse(
            b"S:disk/by-id/ata-X_1\nS:disk/by-path/pci-1\nL:10\nI:123\nE:ID_MODEL=A_B\nE:ID_MODEL_ENC=A\\x20B\\x20\\x20\nE:EMPTY=\nG:systemd\nV:1\n",
        );
        assert_eq!(record.links, ["/dev/disk/by-id/ata-X_1", "/dev/disk/by-path/pci-1"]);
        assert_eq!(record.get_decoded("ID_MODEL").as_deref(), Some("A B"));
        assert_eq!(record.get("EMPTY"), None);
        assert!(!record.has_invalid_utf8);
    }

    #[test]
    fn invalid_utf8_affects_only_its_own_value() {
        let record = parse(b"E:ID_FS_LABEL=\xff\xfe\nE:ID_FS_TYPE=ext4\n");
        assert!(record.has_invalid_utf8);
        assert_eq!(record.get("ID_FS_TYPE"), Some("ext4"));
    }

    #[test]
    fn an_escape_of_several_bytes_is_one_character() {
        assert_eq!(unescape("d\\xc3\\xa4t\\x2fx\\q"), "dät/x\\q");
    }

    proptest! {
        #[test]
        fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let record = parse(&bytes);
            for key in record.properties.keys() {
                let _value = record.get_decoded(key.trim_end_matches("_ENC"));
            }
        }

        #[test]
        fn text_without_backslash_is_left_as_it_is(text in "[^\\\\]{0,40}") {
            prop_assert_eq!(unescape(&text), text);
        }
    }
}
