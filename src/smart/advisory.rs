//! Advisories: faults of drives' firmware that their makers or users have published. The configuration's
//! `[[smart.advisory]]`; the rows of the package are in systemd/advisories.toml.
//!
//! In: a drive's identity. Out: whether a row is about it. Exact: another firmware, or firmware that is
//! not known, is no match. Who sells a drive gives its firmware numbers of its own.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::SelfTestKind;
use crate::report::Identity;
use diskvitals_text::pattern;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advisory {
    /// Of the drive, for people.
    pub vendor: String,
    /// Patterns with `*` and `?`.
    #[serde(deserialize_with = "at_least_one")]
    pub models: Vec<String>,
    #[serde(deserialize_with = "at_least_one")]
    pub firmware: Vec<FirmwareRule>,
    pub condition: AdvisoryCondition,
    /// What happens, as the rest of a sentence that begins with the condition.
    pub text: String,
    pub source: String,
}

/// When the fault shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvisoryCondition {
    PowerOnHours(u64),
    /// While a self-test of this kind runs, or a longer one: none is started.
    SelfTest(SelfTestKind),
    /// The begin of a sentence.
    When(String),
}

/// `SVT01B6Q`: this firmware. `<HPD8`: the same letters and a lower number at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FirmwareRule {
    Exactly(String),
    Before { series: String, number: u64 },
}

impl TryFrom<String> for FirmwareRule {
    type Error = String;

    fn try_from(text: String) -> Result<FirmwareRule, String> {
        let Some(limit) = text.strip_prefix('<') else {
            return Ok(FirmwareRule::Exactly(text));
        };
        let (series, number) =
            numbered(limit).ok_or_else(|| format!("`{text}` does not end with a number"))?;
        Ok(FirmwareRule::Before { series: series.to_owned(), number })
    }
}

impl From<FirmwareRule> for String {
    fn from(rule: FirmwareRule) -> String {
        match rule {
            FirmwareRule::Exactly(firmware) => firmware,
            FirmwareRule::Before { series, number } => format!("<{series}{number}"),
        }
    }
}

impl FirmwareRule {
    fn matches(&self, firmware: &str) -> bool {
        match self {
            FirmwareRule::Exactly(exactly) => exactly == firmware,
            FirmwareRule::Before { series, number } => {
                numbered(firmware).is_some_and(|(its, at)| its == series && at < *number)
            }
        }
    }
}

impl Advisory {
    pub(crate) fn is_about(&self, identity: &Identity) -> bool {
        let (Some(model), Some(firmware)) = (&identity.model, &identity.firmware) else {
            return false;
        };
        pattern::matches_any(&self.models, model.as_bytes())
            && self.firmware.iter().any(|rule| rule.matches(firmware))
    }
}

/// Why no self-test of this kind is started on a drive with this identity.
pub fn forbidden_test(
    rows: &[Advisory],
    identity: &Identity,
    kind: SelfTestKind,
) -> Option<String> {
    let is_it = |row: &&Advisory| match row.condition {
        AdvisoryCondition::SelfTest(from) => kind >= from && row.is_about(identity),
        AdvisoryCondition::PowerOnHours(_) | AdvisoryCondition::When(_) => false,
    };
    let Advisory { text, source, .. } = rows.iter().find(is_it)?;
    Some(format!("its firmware does not survive one: {text} ({source})"))
}

/// The text before the number at the end, and the number.
fn numbered(firmware: &str) -> Option<(&str, u64)> {
    let series = firmware.trim_end_matches(|letter: char| letter.is_ascii_digit());
    Some((series, firmware[series.len()..].parse().ok()?))
}

/// A row with an empty list would never match.
fn at_least_one<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(deserializer)?;
    if list.is_empty() { Err(D::Error::custom("the list is empty")) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_numbers_of_the_same_letters_are_before_a_firmware() {
        let rule = FirmwareRule::try_from("<HPD8".to_owned()).unwrap();
        let before = |firmware| rule.matches(firmware);
        assert!(["HPD0", "HPD7"].into_iter().all(before));
        assert!(
            !["HPD8", "HPD9", "HPD10", "HPDA", "HPD", "HDP7", "7", "HPG7", ""]
                .into_iter()
                .any(before)
        );
        assert_eq!(String::from(rule), "<HPD8");
        assert!(FirmwareRule::try_from("<HPD".to_owned()).is_err());
    }

    #[test]
    fn a_row_about_short_self_tests_forbids_long_ones_too() {
        let text = "vendor = \"X\"\nmodels = [\"M\"]\nfirmware = [\"1\"]\ncondition.self_test = \"short\"\ntext = \"it hangs\"\nsource = \"S\"\n";
        let row = |kind: &str| [toml::from_str(&text.replace("short", kind)).unwrap()];
        let drive = |model: &str| Identity {
            model: Some(model.to_owned()),
            firmware: Some("1".to_owned()),
            ..Identity::default()
        };
        let is_forbidden = |rows: &[Advisory], kind| forbidden_test(rows, &drive("M"), kind);
        let why = "its firmware does not survive one: it hangs (S)";
        for kind in [SelfTestKind::Short, SelfTestKind::Long] {
            assert_eq!(is_forbidden(&row("short"), kind).as_deref(), Some(why));
            assert_eq!(forbidden_test(&row("short"), &drive("N"), kind), None);
        }
        assert_eq!(is_forbidden(&row("long"), SelfTestKind::Short), None);
        assert_eq!(is_forbidden(&row("long"), SelfTestKind::Long).as_deref(), Some(why));
    }

    #[test]
    fn firmware_that_is_not_known_is_no_match() {
        let text = "vendor = \"X\"\nmodels = [\"*\"]\nfirmware = [\"1\"]\ncondition.when = \"In use\"\ntext = \"x\"\nsource = \"x\"\n";
        let row: Advisory = toml::from_str(text).unwrap();
        let drive = |model: Option<&str>, firmware: Option<&str>| Identity {
            model: model.map(str::to_owned),
            firmware: firmware.map(str::to_owned),
            ..Identity::default()
        };
        assert!(row.is_about(&drive(Some("M"), Some("1"))));
        for (model, firmware) in [(Some("M"), None), (None, Some("1")), (Some("M"), Some("10"))] {
            assert!(!row.is_about(&drive(model, firmware)), "{model:?} {firmware:?}");
        }
    }
}
