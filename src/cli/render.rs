//! Answers as text for people. Each function is pure: wire messages and a `Screen` in, text out.

pub(crate) mod attachments;
pub(crate) mod causes;
pub(crate) mod checkmk;
pub(crate) mod checks;
pub(crate) mod drives;
pub(crate) mod errors;
pub(crate) mod explain;
mod figures;
pub(crate) mod findings;
pub(crate) mod formatting;
pub(crate) mod fsck;
pub(crate) mod kernel_log;
pub(crate) mod live;
pub(crate) mod nagios;
pub(crate) mod reasons;
pub(crate) mod smart;
pub(crate) mod status;
pub(crate) mod volumes;
pub(crate) mod watch;
pub(crate) mod width;

#[cfg(test)]
mod tests;

pub(crate) use crate::cli::render::width::shortened;

use crate::cli::render::width::columns;
use crate::cli::screen::{Screen, Tone, escape_control};

/// `label   value` lines, aligned; empty values are left out.
pub(crate) fn label_value_lines<L: AsRef<str>>(pairs: &[(L, String)]) -> String {
    let shown = || pairs.iter().filter(|(_, value)| !value.is_empty());
    let widths = shown().map(|(label, _)| label.as_ref().len());
    let width = widths.max().unwrap_or(0);
    shown()
        .map(|(label, value)| format!("{:width$}  {value}\n", label.as_ref()))
        .collect()
}

/// One pair for each value, with the label before the first.
pub(crate) fn labelled(
    label: &str,
    values: impl IntoIterator<Item = String>,
) -> impl Iterator<Item = (&str, String)> {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(values)
}

/// The names of the flags that are set.
pub(crate) fn flag_names(flags: &[(bool, &str)]) -> String {
    let set = flags.iter().filter(|(set, _)| *set);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// `1 drive`, `2 drives`.
pub(crate) fn counted(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// `00` of `Slot 00`: enclosures name their slots in either way.
pub(crate) fn slot_name(slot: &str) -> &str {
    let is_word = slot
        .get(..5)
        .is_some_and(|it| it.eq_ignore_ascii_case("slot "));
    match slot.get(5..) {
        Some(rest) if is_word => rest.trim_start(),
        _ => slot,
    }
}

/// Text broken at spaces to the screen's width, each line behind `indent`.
pub(crate) fn wrapped(text: &str, indent: &str, screen: &Screen) -> String {
    let room = screen.width.map_or(usize::MAX, |width| {
        usize::from(width).saturating_sub(columns(indent)).max(20)
    });
    let text = escape_control(text);
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > room {
            lines.push_str(&format!("{indent}{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push_str(&format!("{indent}{line}\n"));
    lines
}

pub(crate) fn heading(text: &str, screen: &Screen) -> String {
    format!("{}\n", screen.paint(Tone::Strong, text))
}
