//! Text of others, made safe to show: cut, and without characters that a terminal does not show as
//! themselves. Outlets (standard output, the full screen, the log, notifications, metrics, events and
//! conditions in Kubernetes) take `Shown` and no plain text.

use std::fmt;
use std::ops::Deref;

/// Characters of a caller's text that are repeated in a message.
const MAX_ECHO_CHARS: usize = 200;

/// Text that an outlet accepts. Its constructors are the only escaping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown(String);

impl Shown {
    /// One line, of at most so many characters.
    pub fn line(text: &str, max_chars: usize) -> Shown {
        let mut shown = String::with_capacity(text.len().min(max_chars));
        for (at, c) in text.chars().enumerate() {
            if at == max_chars {
                shown.push('…');
                break;
            }
            push_escaped(&mut shown, c);
        }
        Shown(shown)
    }

    /// Lines that a renderer has written, each as in `line`.
    pub fn lines(text: &str, max_chars: usize) -> Shown {
        let lines: Vec<String> =
            text.split('\n').map(|line| Shown::line(line, max_chars).0).collect();
        Shown(lines.join("\n"))
    }

    /// A value of a field of another system, which has no escapes of its own: `instead` of each character
    /// that would deceive. At most so many bytes.
    pub fn value(text: &str, instead: char, max_bytes: usize) -> Shown {
        const MARK: char = '…';
        let mut shown = String::with_capacity(text.len().min(max_bytes));
        for c in text.chars().map(|c| if is_deceptive(c) { instead } else { c }) {
            if shown.len() + c.len_utf8() > max_bytes {
                shown.truncate(end_of_words(&shown, max_bytes - MARK.len_utf8()));
                shown.push(MARK);
                break;
            }
            shown.push(c);
        }
        Shown(shown)
    }

    /// What a renderer has written for a terminal: its line breaks and colors stay.
    pub fn screen(text: &str) -> Shown {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let kept = match c {
                '\n' => 1,
                '\u{1b}' => color_length(rest),
                _ => 0,
            };
            match kept {
                0 => push_escaped(&mut shown, c),
                kept => shown.push_str(&rest[..kept]),
            }
            rest = &rest[kept.max(c.len_utf8())..];
        }
        Shown(shown)
    }

    /// JSON with the same values. Outside of its strings it has none of these characters.
    pub fn json(text: &str) -> Shown {
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '\n' => shown.push(c),
                c if is_deceptive(c) => {
                    let units = c.encode_utf16(&mut [0; 2]).to_vec();
                    units.iter().for_each(|it| shown.push_str(&format!("\\u{it:04x}")));
                }
                c => shown.push(c),
            }
        }
        Shown(shown)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Shown {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn push_escaped(shown: &mut String, c: char) {
    match is_deceptive(c) {
        true => shown.extend(c.escape_default()),
        false => shown.push(c),
    }
}

/// The length of a sequence at the start of the text that only changes colors (SGR, ECMA-48 8.3.117);
/// 0 if it is another one.
fn color_length(text: &str) -> usize {
    let parameters = text.strip_prefix("\u{1b}[").unwrap_or_default();
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';');
    match end {
        Some(end) if end <= 12 && parameters.as_bytes()[end] == b'm' => end + 3,
        _ => 0,
    }
}

/// Whether a terminal does not show the character as itself: a control character, or one that is
/// invisible or turns the direction of the text around it (Unicode UAX #9, 3.1; Trojan Source,
/// CVE-2021-42574).
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The caller's text as a message repeats it: cut, and without control characters.
pub fn echo(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MAX_ECHO_CHARS)
        .map(|c| if is_deceptive(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(MAX_ECHO_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The text, or the part of it that fits into `limit` bytes, ended by `…`.
pub fn truncate(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..end_of_words(text, limit.saturating_sub('…'.len_utf8()))])
}

/// The longest word that is left out as a whole: a longer one, such as a path, is cut.
const LONGEST_WORD: usize = 32;

/// At most `limit`: the end of a word, if one is near.
fn end_of_words(text: &str, limit: usize) -> usize {
    let end = text.floor_char_boundary(limit);
    if text[end..].starts_with(' ') || text.len() == end {
        return end;
    }
    text[..end].rfind(' ').filter(|at| end - at <= LONGEST_WORD).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOSTILE: &str = "[ -~äЖ盘\u{0}-\u{1f}\u{7f}-\u{9f}\u{ad}\u{61c}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{feff}\u{e0001}]{0,80}";

    proptest! {
        #[test]
        fn no_text_of_others_deceives_in_a_line(text in HOSTILE, max in 0usize..90) {
            let shown = Shown::line(&text, max);
            prop_assert!(!shown.as_str().chars().any(is_deceptive));
            // An escape has at most nine characters.
            prop_assert!(shown.as_str().chars().count() <= max * 9 + 1);
        }

        #[test]
        fn nothing_but_line_breaks_is_left_in_lines(text in HOSTILE, max in 0usize..90) {
            let shown = Shown::lines(&text, max);
            prop_assert!(!shown.chars().any(|c| is_deceptive(c) && c != '\n'));
            prop_assert_eq!(shown.split('\n').count(), text.split('\n').count());
            prop_assert!(shown.split('\n').all(|line| line.chars().count() <= max * 9 + 1));
        }

        #[test]
        fn a_value_has_its_bytes_at_most_and_is_kept_if_it_is_harmless(text in HOSTILE, max in 3usize..90) {
            let shown = Shown::value(&text, ' ', max);
            prop_assert!(!shown.chars().any(is_deceptive) && shown.len() <= max);
            let harmless = text.len() <= max && !text.chars().any(is_deceptive);
            prop_assert!(!harmless || shown.as_str() == text);
        }

        #[test]
        fn a_screen_has_line_breaks_and_colors_and_nothing_else(text in HOSTILE, mark in prop::sample::select(vec!["\u{1b}[31m", "\u{1b}[0m", "\u{1b}[2J", "\u{1b}]0;x\u{7}", "\u{1b}[1;1H", "\u{1b}", ""])) {
            let shown = Shown::screen(&format!("{text}{mark}{text}")).to_string();
            let plain = shown.replace("\u{1b}[31m", "").replace("\u{1b}[0m", "");
            let is_color = |part: &str| {
                let end = part.find('m').unwrap_or(0);
                end > 0 && part[1..end].chars().all(|c| c.is_ascii_digit() || c == ';')
            };
            for part in plain.split('\u{1b}').skip(1) {
                prop_assert!(part.starts_with('[') && is_color(part), "{shown:?}");
            }
            prop_assert!(!plain.chars().any(|c| is_deceptive(c) && c != '\n' && c != '\u{1b}'), "{shown:?}");
        }

        #[test]
        fn json_keeps_its_value(text in HOSTILE) {
            let value = serde_json::json!({ "name": text, "list": [text] });
            for json in [value.to_string(), format!("{value:#}")] {
                let shown = Shown::json(&json);
                prop_assert!(!shown.as_str().chars().any(|c| is_deceptive(c) && c != '\n'));
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(shown.as_str()).unwrap(), &value);
            }
        }
    }

    #[test]
    fn a_sentence_is_cut_between_words_and_a_long_word_within() {
        let text = "the volume is on a failing drive";
        for limit in 24..=28 {
            assert_eq!(truncate(text, limit), "the volume is on a…", "{limit}");
            assert_eq!(Shown::value(text, ' ', limit).as_str(), "the volume is on a…", "{limit}");
        }
        assert_eq!(
            (truncate(text, 29), truncate(text, 32)),
            ("the volume is on a failing…".into(), text.into())
        );
        let path = format!("at /{}", "x".repeat(99));
        assert_eq!(truncate(&path, 60), format!("at /{}…", "x".repeat(53)));
        assert_eq!(truncate("ääää", 6), "ä…");
    }

    #[test]
    fn a_long_query_is_cut_in_the_message() {
        let shown = echo(&"ä".repeat(1_000_000));
        assert_eq!(shown.chars().count(), MAX_ECHO_CHARS + 1);
        assert_eq!(echo("a\nb"), "a\u{fffd}b");
        for hidden in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}', '\u{1b}', '\u{9b}'] {
            assert_eq!(echo(&format!("a{hidden}b")), "a\u{fffd}b", "{hidden:?}");
        }
        assert_eq!(echo("диск 1 é 盘"), "диск 1 é 盘");
    }

    proptest! {
        #[test]
        fn a_cut_text_fits_and_begins_as_it_did(text in ".{0,600}", limit in 3usize..700) {
            let short = truncate(&text, limit);
            prop_assert!(short.len() <= limit.max(text.len().min(limit)));
            prop_assert!(text.starts_with(short.trim_end_matches('…')) || text.contains('…'));
        }
    }
}
