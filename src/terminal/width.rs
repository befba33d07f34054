//! How wide a text is on a terminal: East Asian characters and emoji take two columns, combining
//! marks none. Pure; counts as comfy-table does.

use unicode_width::UnicodeWidthStr;

use crate::screen::escape_control;

/// Characters that are kept for each column of a limit: marks without a width are bounded too.
const CHARS_PER_COLUMN: usize = 4;

pub fn columns(text: &str) -> usize {
    text.width()
}

/// From this many columns on, a cut leaves out a whole word if that costs at most this part of the
/// limit. In a narrower column a part of a word says more: `SAMSUNG MZV…`.
const SENTENCE_COLUMNS: usize = 24;
const WORD_SHARE: usize = 3;

/// From this many columns on, a single word keeps this many columns of its end: names often differ there
/// (`data-orders-0`, `data-orders-1`).
const NAME_COLUMNS: usize = 12;
const NAME_END: usize = 4;

/// The text with escapes, cut to this many columns: behind a word, if one ends near, and within a
/// name before its end.
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
    if is_whole && limit >= NAME_COLUMNS && !text.contains(' ') {
        let mut tail = text.len();
        for (at, _) in text.char_indices().rev() {
            if columns(&text[at..]) > NAME_END {
                break;
            }
            tail = at;
        }
        return format!("{}{}", cut_end(&text, limit - columns(&text[tail..])), &text[tail..]);
    }
    cut_end(&text, limit)
}

fn cut_end(text: &str, limit: usize) -> String {
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let next = at + c.len_utf8();
        if columns(&text[..next]) > limit.saturating_sub(1) {
            break;
        }
        end = next;
    }
    if limit >= SENTENCE_COLUMNS
        && !text[end..].starts_with(' ')
        && let Some(space) = text[..end].rfind(' ')
        && columns(&text[space..end]) <= limit / WORD_SHARE
    {
        end = space;
    }
    format!("{}…", text[..end].trim_end())
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
            ("data-orders-database-10", 16, "data-orders…e-10"),
            ("/var/lib/postgresql/wal", 12, "/var/li…/wal"),
            ("备份卷备份卷备份卷", 12, "备份卷…份卷"),
            ("the drive is failing, replace it", 27, "the drive is failing,…"),
            ("the drive is failing, replace it", 30, "the drive is failing, replace…"),
            ("the drive is failing", 19, "the drive is faili…"),
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
