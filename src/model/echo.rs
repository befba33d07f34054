//! A caller's text, made safe to repeat in a message: cut, and without control characters.

/// Characters of a caller's text that are repeated in a message.
const MAX_ECHO_CHARS: usize = 200;

/// The caller's text as a message repeats it: cut, and without control characters.
pub(crate) fn echo(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MAX_ECHO_CHARS)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
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
    }
}
