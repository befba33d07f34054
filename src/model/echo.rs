//! A caller's text, made safe to repeat in a message: cut, and without control characters.

/// Characters of a caller's text that are repeated in a message.
const MAX_ECHO_CHARS: usize = 200;

/// Whether a terminal does not show the character as itself: a control character, or one that is
/// invisible or turns the direction of the text around it (Unicode UAX #9, 3.1; Trojan Source,
/// CVE-2021-42574).
pub(crate) fn is_deceptive(c: char) -> bool {
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
pub(crate) fn echo(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_query_is_cut_in_the_message() {
        let shown = echo(&"ä".repeat(1_000_000));
        assert_eq!(shown.chars().count(), MAX_ECHO_CHARS + 1);
        assert_eq!(echo("a\nb"), "a\u{fffd}b");
        for hidden in [
            '\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}', '\u{1b}', '\u{9b}',
        ] {
            assert_eq!(echo(&format!("a{hidden}b")), "a\u{fffd}b", "{hidden:?}");
        }
        assert_eq!(echo("диск 1 é 盘"), "диск 1 é 盘");
    }
}
