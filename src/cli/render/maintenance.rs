//! What is under maintenance: until when, by whom, and why.

use diskvitals_terminal::layout::wrapped;
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_wire as wire;

pub(crate) fn list(all: &[wire::Maintenance], screen: &Screen) -> String {
    match all {
        [] => "nothing is under maintenance\n".to_owned(),
        all => all.iter().map(|it| one(it, screen)).collect(),
    }
}

/// `MAINTENANCE sda until …`, then by whom, and why.
pub(crate) fn one(of: &wire::Maintenance, screen: &Screen) -> String {
    let mark = screen.paint(Tone::Faint, "MAINTENANCE");
    let by = match of.note.as_str() {
        "" => format!("by {}", of.by),
        note => format!("by {}: {note}", of.by),
    };
    format!(
        "{mark} {}{}\n{}",
        escape_control(&of.name),
        end(of, screen),
        wrapped(&by, "    ", screen)
    )
}

/// ` until …`; empty for what has no end.
pub(crate) fn end(of: &wire::Maintenance, screen: &Screen) -> String {
    match &of.until {
        Some(until) => format!(" until {}", screen.date_time(Some(until))),
        None => String::new(),
    }
}

pub(crate) fn ended(of: &wire::Maintenance) -> String {
    format!("{} is no longer under maintenance\n", escape_control(&of.name))
}
