//! The template of a line: its text, with numbers as `N`, quoted names as `S` and paths as `P`. The
//! replaced parts are the ids of the problem.

use std::borrow::Cow;

use crate::Weight;

/// Number of words of an unknown line that form the name of its kind.
const MAX_SLUG_WORDS: usize = 8;
/// Maximum number of ids of a problem.
const MAX_IDS: usize = 16;
/// Maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineTemplate {
    pub text: String,
    pub ids: Vec<String>,
}

/// Lines whose template contains `pattern` are of this kind; their first `ids` ids identify the
/// objects.
pub(crate) struct ProblemRule {
    pub pattern: &'static str,
    pub kind: &'static str,
    pub weight: Weight,
    pub ids: usize,
}

pub(crate) const fn rule(
    pattern: &'static str,
    kind: &'static str,
    weight: Weight,
    ids: usize,
) -> ProblemRule {
    ProblemRule { pattern, kind, weight, ids }
}

/// At most the first `longest` bytes, in whole characters.
pub fn truncate(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// Maximum length of a label (`Block bitmap differences:`), in bytes.
const MAX_LABEL_BYTES: usize = 64;

/// For a line longer than `longest` bytes: the end of its first part, and the label that precedes
/// each part. A list is split before an item, other text at a blank; the blanks of the label do not
/// count. None: the line is short enough.
pub fn split_point(line: &[u8], longest: usize) -> Option<(usize, &[u8])> {
    if line.len() <= longest {
        return None;
    }
    let label = line
        .iter()
        .take(MAX_LABEL_BYTES)
        .position(|byte| *byte == b':')
        .and_then(|colon| line.get(..=colon))
        .unwrap_or_default();
    // Not at the blank after the label.
    let after = label.len() + 1;
    let head = line.get(after..=longest).unwrap_or_default();
    let item = head.windows(2).rposition(|pair| matches!(pair, [b' ', b'+' | b'-']));
    let blank = || head.iter().rposition(|byte| *byte == b' ');
    let at = item.or_else(blank).map(|at| at + after).unwrap_or(longest);
    // A part must be longer than its label; otherwise splitting would not end.
    Some((at.max(after), if at > label.len() * 2 { label } else { &[] }))
}

/// Splits the line into parts of at most `longest` bytes, if it can be split.
pub(crate) fn split_line(line: &str, longest: usize) -> Vec<Cow<'_, str>> {
    let mut parts = Vec::new();
    let mut line = Cow::Borrowed(line);
    while let Some((at, label)) = split_point(line.as_bytes(), longest) {
        let head = truncate(&line, at).to_owned();
        let label = line.get(..label.len()).unwrap_or_default();
        let rest = format!("{label}{}", line.get(head.len()..).unwrap_or_default());
        // Nothing was split off: return the line unchanged.
        if rest.len() >= line.len() {
            break;
        }
        parts.push(Cow::Owned(head));
        line = Cow::Owned(rest);
    }
    parts.push(line);
    parts
}

pub(crate) fn template(line: &str) -> LineTemplate {
    let (mut text, mut ids) = (String::with_capacity(line.len()), Vec::new());
    let mut rest = line.trim();
    let mut last = ' ';
    while let Some(first) = rest.chars().next() {
        let fresh = !last.is_alphanumeric() && last != '_';
        let (length, mark) = match first {
            '\'' | '"' if fresh => (quoted_length(rest, first), 'S'),
            '/' if matches!(last, ' ' | '(') => (rest.find([' ', ')']).unwrap_or(rest.len()), 'P'),
            '0'..='9' if fresh => (number_length(rest), 'N'),
            _ => (0, ' '),
        };
        let (Some(token), Some(after)) = (rest.get(..length), rest.get(length..)) else {
            break;
        };
        if token.is_empty() {
            text.push(first);
            last = first;
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        text.push(mark);
        if ids.len() < MAX_IDS {
            ids.push(truncate(token.trim_matches(['\'', '"']), MAX_ID_BYTES).to_owned());
        }
        last = 'N';
        rest = after;
    }
    LineTemplate { text, ids }
}

/// Length of a quoted name with its quotes; 0: the closing quote is missing.
fn quoted_length(text: &str, quote: char) -> usize {
    text.get(1..).and_then(|inside| inside.find(quote)).map_or(0, |end| end + 2)
}

/// Length of a number, decimal or `0x…`; 0: the text is the beginning of a word.
fn number_length(text: &str) -> usize {
    let digits = |text: &str, hex: bool| {
        text.bytes()
            .take_while(|byte| if hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() })
            .count()
    };
    let length = match text.strip_prefix("0x") {
        Some(hex) if digits(hex, true) > 0 => 2 + digits(hex, true),
        _ => digits(text, false),
    };
    let word = text
        .get(length..)
        .and_then(|rest| rest.chars().next())
        .is_some_and(|next| next.is_alphabetic() || next == '_');
    if word { 0 } else { length }
}

impl LineTemplate {
    /// The kind, weight and ids of a line, by the first rule that matches. The kind of an unknown
    /// line is derived from its own words.
    pub(crate) fn classify(
        self,
        rules: &[ProblemRule],
        otherwise: Weight,
    ) -> (String, Vec<String>, Weight) {
        match rules.iter().find(|rule| self.text.contains(rule.pattern)) {
            Some(rule) => {
                (rule.kind.to_owned(), self.ids.into_iter().take(rule.ids).collect(), rule.weight)
            }
            None => (self.slug(), self.ids, otherwise),
        }
    }

    pub(crate) fn slug(&self) -> String {
        let words = self.text.split(|c: char| !c.is_alphanumeric());
        let words = words.filter(|word| !word.is_empty() && !matches!(*word, "N" | "S" | "P"));
        let slug = words
            .take(MAX_SLUG_WORDS)
            .map(|word| truncate(word, 40).to_lowercase())
            .collect::<Vec<_>>()
            .join("-");
        if slug.is_empty() { "unknown".to_owned() } else { slug }
    }
}
