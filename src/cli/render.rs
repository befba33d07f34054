//! Answers as text for people. Each function is pure: wire messages and a `Screen` in, text out.

pub mod attachments;
pub mod checks;
pub mod drives;
pub mod errors;
pub mod explain;
pub mod findings;
pub mod fsck;
pub mod kernel_log;
pub mod reasons;
pub mod smart;
pub mod status;
pub mod volumes;
pub mod watch;

#[cfg(test)]
mod tests;

use crate::cli::screen::{Screen, Tone, escape_control};

/// `label   value` lines, aligned; empty values are left out.
pub fn label_value_lines(pairs: &[(&str, String)]) -> String {
    let width = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(label, _)| label.len())
        .max()
        .unwrap_or(0);
    pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(label, value)| format!("{label:width$}  {value}\n"))
        .collect()
}

/// Text broken at spaces to the screen's width, each line behind `indent`.
pub fn wrapped(text: &str, indent: &str, screen: &Screen) -> String {
    let room = screen.width.map_or(usize::MAX, |width| {
        usize::from(width)
            .saturating_sub(indent.chars().count())
            .max(20)
    });
    let text = escape_control(text);
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
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

pub fn heading(text: &str, screen: &Screen) -> String {
    format!("{}\n", screen.paint(Tone::Strong, text))
}
