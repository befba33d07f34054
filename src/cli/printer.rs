//! Standard output: text for people or JSON, each written and flushed in one piece.

use prost_reflect::prost::Message;

use crate::args::{Args, Output};
use crate::error::Error;
use crate::json;
use diskvitals_terminal::output::{stdout_screen, write_stdout};
use diskvitals_terminal::screen::Screen;
use diskvitals_text::echo::Shown;

pub struct Printer {
    pub screen: Screen,
    pub json: bool,
}

impl Printer {
    pub fn new(args: &Args) -> Printer {
        Printer { screen: stdout_screen(args.no_color), json: args.output == Output::Json }
    }

    pub fn show(
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
