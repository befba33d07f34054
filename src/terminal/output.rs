//! Standard output: written and flushed in one piece, and the terminal that it may be.

use std::io::{self, IsTerminal, Write};

use jiff::tz::TimeZone;

use crate::screen::Screen;
use diskvitals_text::echo::Shown;

pub fn write_stdout(text: &Shown) -> io::Result<()> {
    write_document(text.as_str().as_bytes())
}

/// The contents of a file of our own, with its own escaping: an archive, a page, a script for the
/// shell.
pub fn write_document(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// The terminal that standard output is.
pub fn stdout_screen(no_color: bool) -> Screen {
    let terminal = io::stdout().is_terminal();
    let no_color = no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Screen {
        width: terminal
            .then(|| comfy_table::Table::new().width())
            .flatten()
            // A terminal that does not know its size.
            .filter(|width| *width > 0),
        color: terminal && !no_color && !dumb,
        now: diskvitals_host::clock::wall_now(),
        zone: TimeZone::system(),
    }
}
