//! Finds smartctl's JSON in its output.
//!
//! smartctl 7.0 to 7.2 print some lines of text also with `--json` (scsiprint.cpp: `  Pending
//! defect count:` of SAS drives), before the JSON, which they print at their end. Files also have
//! the prompt of a shell, or what a program wrote to standard error.

use serde_json::Value;

use crate::parse::ParseError;

/// Positions at which a document is tried, each at the cost of parsing it.
const MAX_ATTEMPTS: usize = 32;
/// Maximum length of a quotation.
const MAX_QUOTED_CHARS: usize = 60;
/// The first version that prints no text of its own beside its JSON.
const FIRST_VERSION_WITHOUT_TEXT: [u32; 2] = [7, 3];

/// Text before or after the document.
pub(crate) struct StrayText(String);

impl StrayText {
    pub(crate) fn note(&self, smartctl: [u32; 2]) -> String {
        let [major, minor] = smartctl;
        let advice = if smartctl < FIRST_VERSION_WITHOUT_TEXT {
            format!(
                "; smartctl {major}.{minor} prints such text for some drives: update smartmontools to 7.3 or later"
            )
        } else {
            String::new()
        };
        format!("text beside smartctl's JSON: \u{201c}{}\u{201d}{advice}", self.0)
    }
}

/// The first document of smartctl in the text. Outer error: there is more than one. Inner error:
/// there is none.
pub(crate) fn find(
    text: &str,
) -> Result<Result<(Value, Option<StrayText>), serde_json::Error>, ParseError> {
    let start = text.find('{').unwrap_or(0);
    let (first, end) = match parse_at(text, start) {
        Ok(found) => found,
        Err(error) => match smartctl_document(text, start + 1) {
            Some((start, end, document)) => return with_stray_text(text, start, end, document),
            None => return Ok(Err(error)),
        },
    };
    if first.get("smartctl").is_some() {
        return with_stray_text(text, start, end, first);
    }
    match smartctl_document(text, end) {
        Some((start, end, document)) => with_stray_text(text, start, end, document),
        None => Ok(Ok((first, None))),
    }
}

type Found = Result<Result<(Value, Option<StrayText>), serde_json::Error>, ParseError>;

fn with_stray_text(text: &str, start: usize, end: usize, document: Value) -> Found {
    if smartctl_document(text, end).is_some() {
        return Err(ParseError::SeveralOutputs);
    }
    Ok(Ok((document, stray_text(&text[..start], &text[end..]))))
}

/// The next document of smartctl from this position on, with its start and end.
fn smartctl_document(text: &str, from: usize) -> Option<(usize, usize, Value)> {
    text.get(from..)?.match_indices('{').take(MAX_ATTEMPTS).find_map(|(offset, _)| {
        let start = from + offset;
        let (value, end) = parse_at(text, start).ok()?;
        value.get("smartctl").is_some_and(Value::is_object).then_some((start, end, value))
    })
}

/// The value that begins here, and the position after it.
fn parse_at(text: &str, start: usize) -> Result<(Value, usize), serde_json::Error> {
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    match values.next() {
        Some(value) => Ok((value?, start + values.byte_offset())),
        None => serde_json::from_str::<Value>(&text[start..]).map(|value| (value, text.len())),
    }
}

fn stray_text(before: &str, after: &str) -> Option<StrayText> {
    // A byte order mark is no text.
    let words: Vec<&str> = [before, after]
        .into_iter()
        .flat_map(|part| part.trim_start_matches('\u{feff}').split_whitespace())
        .collect();
    let quoted: String = words.join(" ").chars().take(MAX_QUOTED_CHARS).collect();
    (!quoted.is_empty()).then_some(StrayText(quoted))
}
