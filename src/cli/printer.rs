//! Standard output: text for people or JSON, each written and flushed in one piece.

use std::io::{self, IsTerminal, Write};

use jiff::tz::TimeZone;
use prost_reflect::prost::Message;

use crate::cli::args::{Args, Output};
use crate::cli::error::Error;
use crate::cli::json;
use crate::cli::screen::Screen;
use crate::model::echo::Shown;

pub(crate) struct Printer {
    pub screen: Screen,
    pub json: bool,
}

impl Printer {
    pub(crate) fn new(args: &Args) -> Printer {
        Printer { screen: stdout_screen(args.no_color), json: args.output == Output::Json }
    }

    pub(crate) fn show(
        &self,
        message: &str,
        answer: &impl Message,
        text: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        match self.json {
            true => print_json(&json::pretty(message, answer)?),
            false => print_text(&text()),
        }
    }

    /// Prints an answer that is not a protobuf message; as JSON, on one line.
    pub(crate) fn show_line<T: serde::Serialize>(
        &self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Error> {
        let json = |answer| serde_json::to_string(answer).map_err(|it| Error::Output(it.into()));
        match self.json {
            true => print_json(&json(answer)?),
            false => print_text(&text(answer)),
        }
    }
}

/// For a terminal: nothing but line breaks and colors controls it.
pub(crate) fn print_text(text: &str) -> Result<(), Error> {
    write_stdout(&Shown::screen(text)).map_err(Error::Output)
}

/// The document, and a line break.
pub(crate) fn print_json(document: &str) -> Result<(), Error> {
    write_stdout(&Shown::json(&format!("{document}\n"))).map_err(Error::Output)
}

pub(crate) fn write_stdout(text: &Shown) -> io::Result<()> {
    write_document(text.as_str().as_bytes())
}

/// The contents of a file of our own, with its own escaping: an archive, a page, a script for the
/// shell.
pub(crate) fn write_document(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// The terminal that standard output is.
pub(crate) fn stdout_screen(no_color: bool) -> Screen {
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
        now: crate::host::clock::wall_now(),
        zone: TimeZone::system(),
    }
}
