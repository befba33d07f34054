//! Undoes quoted-printable (RFC 2045, 6.7), which the source of a mail has.
//!
//! In: the lines of a file. Out: the lines as the mail shows them.

use std::borrow::Cow;

/// Lines of quoted-printable have 76 bytes, or a few less if a character of several bytes follows.
const MIN_LINE_BYTES: usize = 70;
const MAX_LINE_BYTES: usize = 2_048;

#[derive(Debug, Default)]
pub struct QuotedPrintable {
    is_source: bool,
    /// The beginning of a line that goes on in the next line.
    line: String,
}

impl QuotedPrintable {
    /// By the first lines of the file: elsewhere an equals sign is text.
    pub fn of<'a>(mut lines: impl Iterator<Item = &'a str>) -> QuotedPrintable {
        QuotedPrintable { is_source: lines.any(|line| line.contains("=3D")), line: String::new() }
    }

    /// None: the line goes on.
    pub fn decode<'a>(&mut self, line: &'a str) -> Option<Cow<'a, str>> {
        if !self.is_source {
            return Some(Cow::Borrowed(line));
        }
        let is_broken = line.len() >= MIN_LINE_BYTES && line.ends_with('=');
        if !is_broken && self.line.is_empty() && !line.contains("=3D") {
            return Some(Cow::Borrowed(line));
        }
        let line = match self.line.is_empty() {
            true => line,
            false => line.trim_start_matches(['>', ' ']),
        };
        self.line.push_str(line);
        if is_broken && self.line.len() < MAX_LINE_BYTES {
            self.line.pop();
            return None;
        }
        let whole = std::mem::take(&mut self.line);
        Some(Cow::Owned(whole.replace("=20", " ").replace("=3D", "=")))
    }

    /// What is left of a line that did not end.
    pub fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.line);
        (!rest.is_empty()).then_some(rest)
    }
}
