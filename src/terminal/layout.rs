//! Text for people in lines: labels with values, headings, paragraphs broken at spaces to the
//! screen's width. Pure.

use crate::screen::{Screen, Tone, escape_control};
use crate::width::columns;

/// `label   value` lines, aligned; empty values are left out.
pub fn label_value_lines<L: AsRef<str>>(pairs: &[(L, String)]) -> String {
    let shown = || pairs.iter().filter(|(_, value)| !value.is_empty());
    let widths = shown().map(|(label, _)| label.as_ref().len());
    let width = widths.max().unwrap_or(0);
    shown().map(|(label, value)| format!("{:width$}  {value}\n", label.as_ref())).collect()
}

/// One pair for each value, with the label before the first.
pub fn labelled(
    label: &str,
    values: impl IntoIterator<Item = String>,
) -> impl Iterator<Item = (&str, String)> {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(values)
}

/// The names of the flags that are set.
pub fn flag_names(flags: &[(bool, &str)]) -> String {
    let set = flags.iter().filter(|(set, _)| *set);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// `1 drive`, `2 drives`.
pub fn counted(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// Below this width nothing is set in columns.
pub const NARROW: u16 = 60;
/// An indent takes at most this share of a line: text needs most of a narrow screen.
const INDENT_SHARE: usize = 4;

/// Text broken at spaces to the screen's width, each line behind `indent`.
pub fn wrapped(text: &str, indent: &str, screen: &Screen) -> String {
    let parts = [Part::new("", escape_control(text), Tone::Plain)];
    wrapped_parts(&parts, indent, indent, screen)
}

/// Escaped text in one tone, behind a separator that a new line replaces.
pub struct Part<'a> {
    separator: &'a str,
    text: String,
    tone: Tone,
}

impl Part<'_> {
    pub fn new(separator: &str, text: String, tone: Tone) -> Part<'_> {
        Part { separator, text, tone }
    }
}

/// Parts as one paragraph, broken at spaces to the screen's width: the first line behind `first`, the
/// others behind `rest`. A word that is longer than a line is not broken.
pub fn wrapped_parts(parts: &[Part], first: &str, rest: &str, screen: &Screen) -> String {
    let (first, rest) = (fitting_indent(first, screen), fitting_indent(rest, screen));
    let limit = screen.width.map_or(usize::MAX, usize::from);
    let mut text = first.to_owned();
    let (mut used, mut is_empty) = (columns(first), true);
    for part in parts {
        // The words of one line are painted together.
        let mut run = String::new();
        for (at, word) in part.text.split(' ').enumerate() {
            let separator = match at {
                0 => part.separator,
                _ => " ",
            };
            let length = columns(separator) + columns(word);
            if !is_empty && used + length > limit {
                text.push_str(&painted(&mut run, part.tone, screen));
                text.push('\n');
                text.push_str(rest);
                run.push_str(word);
                used = columns(rest) + columns(word);
                continue;
            }
            if !is_empty && at == 0 {
                text.push_str(separator);
                used += columns(separator);
            } else if !is_empty {
                run.push_str(separator);
                used += columns(separator);
            }
            run.push_str(word);
            used += columns(word);
            is_empty = false;
        }
        text.push_str(&painted(&mut run, part.tone, screen));
    }
    text + "\n"
}

fn painted(run: &mut String, tone: Tone, screen: &Screen) -> String {
    match std::mem::take(run) {
        run if run.is_empty() => run,
        run => screen.paint(tone, run),
    }
}

/// The end of the indent that leaves most of the line for the text.
fn fitting_indent<'a>(indent: &'a str, screen: &Screen) -> &'a str {
    let most = screen.width.map_or(usize::MAX, |width| usize::from(width) / INDENT_SHARE);
    let cut = indent.len().saturating_sub(most);
    indent.get(cut..).unwrap_or(indent)
}

pub fn heading(text: &str, screen: &Screen) -> String {
    format!("{}\n", screen.paint(Tone::Strong, text))
}
