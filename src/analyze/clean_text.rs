//! Removes what terminals, serial lines and web pages add to the text of a log.
//!
//! In: a line. Out: the line with plain blanks, without colors, noise and HTML entities.

use std::borrow::Cow;

const ENTITIES: [(&str, &str); 6] = [
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", "\""),
    ("&#39;", "'"),
    ("&nbsp;", " "),
    ("&amp;", "&"),
];

pub fn clean(line: &str) -> Cow<'_, str> {
    // A blank that does not break is a web page's.
    let is_unusual = |c: char| c.is_control() || c == '\u{a0}' || c == '&';
    if !line.contains(is_unusual) {
        return Cow::Borrowed(line);
    }
    let mut text = without_colors(line);
    if text.contains('&') {
        for (entity, character) in ENTITIES {
            text = text.replace(entity, character);
        }
    }
    let text = text
        .chars()
        .map(|c| match c {
            '\t' | '\u{a0}' => ' ',
            c => c,
        })
        .filter(|c| !c.is_control())
        .collect();
    Cow::Owned(text)
}

/// Without the colors of `dmesg -L`.
fn without_colors(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !(c.is_ascii_digit() || c == ';'));
        text.push_str(end.and_then(|end| part.get(end + 1..)).unwrap_or_default());
    }
    text
}
