//! How wide a text is on a terminal: East Asian characters and emoji take two columns, combining
//! marks none. Pure; counts as comfy-table does.

use unicode_width::UnicodeWidthStr;

use crate::screen::escape_control;

/// Characters that are kept for each column of a limit: marks without a width are bounded too.
const CHARS_PER_COLUMN: usize = 4;

pub fn columns(text: &str) -> usize {
    text.width()
}

/// The text with escapes, cut to this many columns.
pub fn shortened(text: &str, limit: usize) -> String {
    let most = limit.saturating_mul(CHARS_PER_COLUMN);
    // Escapes lengthen the text: no more of it is needed than fits.
    let (head, is_whole) = match text.char_indices().nth(most) {
        Some((end, _)) => (&text[..end], false),
        None => (text, true),
    };
    let text = escape_control(head);
    if is_whole && columns(&text) <= limit {
        return text;
    }
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let next = at + c.len_utf8();
        if columns(&text[..next]) > limit.saturating_sub(1) {
            break;
        }
        end = next;
    }
    format!("{}…", &text[..end])
}

/// A line with our own colors, cut to this many columns.
pub fn clipped(line: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(line.len());
    // A color (ESC [ … m) takes no column and is kept, also behind the cut: it may be the reset.
    let (mut used, mut is_cut) = (0, false);
    let mut rest = line;
    while !rest.is_empty() {
        let (text, color) = match rest.find('\u{1b}') {
            Some(start) => rest.split_at(start),
            None => (rest, ""),
        };
        if !is_cut && used + columns(text) <= limit {
            shown.push_str(text);
            used += columns(text);
        } else if !is_cut {
            shown.push_str(&shortened(text, limit - used));
            is_cut = true;
        }
        let end = color.find('m').map_or(color.len(), |end| end + 1);
        shown.push_str(&color[..end]);
        rest = &color[end..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_columns() {
        for (text, limit, cut) in [
            ("backup", 6, "backup"),
            ("backup", 5, "back…"),
            ("备份卷", 6, "备份卷"),
            ("备份卷", 5, "备份…"),
            ("备份卷", 4, "备…"),
            ("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("🙂🙂", 3, "🙂…"),
            ("a\u{1b}b", 4, "a\\u…"),
        ] {
            assert_eq!(shortened(text, limit), cut);
            assert!(columns(cut) <= limit);
        }
    }

    #[test]
    fn marks_without_a_width_are_bounded() {
        let zalgo = format!("a{}", "\u{301}".repeat(4000));
        assert!(shortened(&zalgo, 10).chars().count() <= 41);
    }

    #[test]
    fn a_cut_line_keeps_its_colors() {
        let line = "\u{1b}[31mCRITICAL\u{1b}[0m 备份 is full";
        assert_eq!(clipped(line, 12), "\u{1b}[31mCRITICAL\u{1b}[0m 备…");
        assert_eq!(clipped(line, 5), "\u{1b}[31mCRIT…\u{1b}[0m");
        assert_eq!(clipped(line, 80), line);
    }
}
