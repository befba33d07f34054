//! Standard output: text for people or JSON, each written and flushed in one piece.

use std::io::{self, IsTerminal, Write};

use jiff::tz::TimeZone;
use prost_reflect::prost::Message;

use crate::cli::args::{Args, Output};
use crate::cli::error::Error;
use crate::cli::json;
use crate::cli::screen::Screen;

pub(crate) struct Printer {
    pub screen: Screen,
    pub json: bool,
}

impl Printer {
    pub(crate) fn new(args: &Args) -> Printer {
        Printer {
            screen: stdout_screen(args.no_color),
            json: args.output == Output::Json,
        }
    }

    pub(crate) fn show(
        &self,
        message: &str,
        answer: &impl Message,
        text: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let text = match self.json {
            true => format!("{}\n", json::pretty(message, answer)?),
            false => text(),
        };
        print_bytes(text.as_bytes())
    }

    /// Prints an answer that is not a protobuf message; as JSON, on one line.
    pub(crate) fn show_line<T: serde::Serialize>(
        &self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Error> {
        let json = |answer| serde_json::to_string(answer).map_err(|it| Error::Output(it.into()));
        let text = match self.json {
            true => format!("{}\n", json(answer)?),
            false => text(answer),
        };
        print_bytes(text.as_bytes())
    }
}

pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Error> {
    write_stdout(bytes).map_err(Error::Output)
}

pub(crate) fn write_stdout(bytes: &[u8]) -> io::Result<()> {
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
