//! What the answers of all tools have in common.

use std::collections::BTreeMap;

use diskvitals_model::raid_report::ReportedArray;

/// Characters of one value in an answer.
const MAX_WORD: usize = 80;

#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    #[error("the answer is no JSON")]
    Json(#[source] serde_json::Error),
    #[error("the answer has no list of controllers")]
    NoControllers,
    #[error("the answer has no end")]
    NoEnd,
    #[error("two arrays have one name")]
    Twice,
    #[error("the tool refused: {0}")]
    Refused(String),
}

/// Nothing is a state of an array that another array could have.
pub(super) fn distinct(arrays: Vec<ReportedArray>) -> Result<Vec<ReportedArray>, ParseError> {
    let mut names: Vec<_> = arrays.iter().map(|array| &array.name).collect();
    names.sort_unstable();
    match names.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(ParseError::Twice),
        false => Ok(arrays),
    }
}

/// The beginning of a value; None if it is empty.
pub(super) fn word(text: &str) -> Option<String> {
    let text: String = text.trim().chars().take(MAX_WORD).collect();
    Some(text).filter(|text| !text.is_empty())
}

/// Of `Recovering, 54.28% complete` and `Degraded, Rebuilding ( Rebuild : 38 % )`.
pub(super) fn percent(text: &str) -> Option<u64> {
    let before = text.split_once('%')?.0.trim();
    let number = before.rsplit([' ', ',', '(']).next()?;
    number.split('.').next()?.parse().ok().filter(|percent| *percent <= 100)
}

/// `KEY: VALUE` of ssacli, `KEY   : VALUE` of arcconf. Keys may contain colons:
/// `PCI Address (Domain:Bus:Device.Function): 0000:04:00.0`.
pub(super) fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(": ")?;
    Some((key.trim(), value.trim()))
}

/// `0000:04:00.0` and `0:4b:0:0`, in hexadecimal, as the kernel writes it.
pub(super) fn pci(text: &str) -> Option<String> {
    let parts: Vec<u32> = text
        .trim()
        .split([':', '.'])
        .map(|part| u32::from_str_radix(part, 16))
        .collect::<Result<_, _>>()
        .ok()?;
    match parts[..] {
        [domain, bus, device, function] => {
            Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
        }
        _ => None,
    }
}

/// The NAA identifier of an array (SPC-4, 7.8.6), which the kernel has too: 32 digits.
pub(super) fn wwn(text: &str) -> Option<String> {
    let text = text.trim();
    let is_naa = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_naa.then(|| format!("naa.{}", text.to_ascii_lowercase()))
}

/// The fields of one block, the first of each key.
#[derive(Default)]
pub(super) struct Block<'a> {
    /// `2I:1:1`
    pub(super) name: &'a str,
    fields: BTreeMap<&'a str, &'a str>,
}

impl<'a> Block<'a> {
    pub(super) fn new(name: &'a str) -> Block<'a> {
        Block { name: name.trim(), fields: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, (key, value): (&'a str, &'a str)) {
        self.fields.entry(key).or_insert(value);
    }

    /// Empty, if there is none.
    pub(super) fn get(&self, key: &str) -> &'a str {
        self.fields.get(key).copied().unwrap_or_default()
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.fields.iter().map(|(key, value)| (*key, *value))
    }

    pub(super) fn words(&self, keys: &[&str]) -> String {
        let words: Vec<String> = keys.iter().filter_map(|key| word(self.get(key))).collect();
        words.join(" ")
    }
}
