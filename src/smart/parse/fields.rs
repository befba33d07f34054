//! Reads fields of a JSON document. A field of an unexpected type counts as absent.

use serde_json::Value;

/// Maximum length of a text: smartctl's longest lines are drivedb's warnings.
const MAX_TEXT_LENGTH: usize = 400;

/// A position in the document, which may be absent.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a>(Option<&'a Value>);

impl<'a> Field<'a> {
    pub(crate) fn of(value: &'a Value) -> Self {
        Field(Some(value))
    }

    pub(crate) fn get(self, key: &str) -> Self {
        Field(self.0.and_then(|value| value.get(key)))
    }

    pub(crate) fn is_object(self) -> bool {
        self.0.is_some_and(Value::is_object)
    }

    /// An empty place in an array, or no value.
    pub(crate) fn is_none(self) -> bool {
        !self.is_some()
    }

    pub(crate) fn is_some(self) -> bool {
        self.0.is_some_and(|value| !value.is_null())
    }

    /// The members of an array; none for any other type.
    pub(crate) fn items(self) -> impl Iterator<Item = Field<'a>> {
        self.0.and_then(Value::as_array).into_iter().flatten().map(|value| Field(Some(value)))
    }

    pub(crate) fn entries(self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        self.0
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), Field(Some(value))))
    }

    pub(crate) fn as_bool(self) -> Option<bool> {
        self.0.and_then(Value::as_bool)
    }

    /// Text without blanks and control characters at its ends; an empty text is absent. A number is
    /// converted to its digits.
    pub(crate) fn as_text(self) -> Option<String> {
        let text = match self.0? {
            Value::String(text) => text
                .trim_matches(|letter: char| letter.is_whitespace() || letter.is_control())
                .to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        (!text.is_empty()).then(|| text.chars().take(MAX_TEXT_LENGTH).collect())
    }

    /// An amount. A 128-bit amount (NVMe) that does not fit becomes the maximum.
    fn as_u64(self) -> Option<u64> {
        match self.0? {
            Value::Number(number) => number.as_u64().or_else(|| {
                number.as_f64().filter(|amount| *amount >= 0.0).map(|amount| amount as u64)
            }),
            Value::String(digits) => digits
                .trim()
                .parse::<u128>()
                .ok()
                .map(|amount| u64::try_from(amount).unwrap_or(u64::MAX)),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// An amount with fewer bits; one that does not fit is absent.
    pub(crate) fn as_unsigned<T: TryFrom<u64>>(self) -> Option<T> {
        self.as_u64().and_then(|amount| T::try_from(amount).ok())
    }

    /// smartctl also writes numbers beyond 2^53 as text, with `_s` after the name (json.cpp,
    /// set_unsafe_uint64).
    pub(crate) fn get_u64(self, key: &str) -> Option<u64> {
        self.get(key).as_u64().or_else(|| self.get(&format!("{key}_s")).as_u64())
    }

    pub(crate) fn as_i64(self) -> Option<i64> {
        match self.0? {
            Value::Number(number) => number.as_i64(),
            Value::String(digits) => digits.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// All bits of a counter are set, in 32, 48, 64 or more bits: an erased or missing page, and no
/// count.
pub(crate) fn is_all_ones(amount: u64) -> bool {
    const BITS_48: u64 = (1 << 48) - 1;
    amount == u64::from(u32::MAX) || amount == BITS_48 || amount == u64::MAX
}

/// The used percent of the designed life: of all protocols, from 7.5 on.
pub(crate) fn endurance_used(root: Field<'_>) -> Option<u8> {
    let endurance = root.get("endurance_used");
    endurance.get("current_percent").as_unsigned()
}
