//! The command line `diskvitals`: arguments, calls to the daemon's socket, rendering, exit codes.
//!
//! In: arguments and the daemon's answers. Out: text for people or canonical JSON. It evaluates
//! nothing except the exit code.

mod answers;
pub mod args;
mod bundle;
mod check;
pub mod check_image;
mod commands;
mod complete;
mod doctor;
mod error;
mod feed;
mod findings;
mod json;
mod live;
mod manual;
mod offline;
pub mod place;
pub mod printer;
mod record;
pub mod render;
mod replace;
mod report;
mod self_test;
mod status;
mod watch;
pub mod words;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use crate::args::Args;
use crate::error::Error;
use diskvitals_text::causes::with_causes;

/// Runs the command of the process's arguments. Exit codes: 0 done, 1 failed, 2 wrong usage; with
/// `--exit-code` or `--format` those of a monitoring plugin, where 3 (unknown) means that there is no answer.
pub fn main() -> ExitCode {
    let monitoring = std::env::args_os().any(|argument| {
        let bytes = argument.as_encoded_bytes();
        bytes == b"--exit-code" || bytes.starts_with(b"--format")
    });
    let parsed =
        manual::command().try_get_matches().and_then(|matches| Args::from_arg_matches(&matches));
    let args = match parsed {
        Ok(args) => args,
        Err(error) => {
            // The error cannot be reported on an unwritable terminal.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ if monitoring => ExitCode::from(3),
                _ => ExitCode::from(2),
            };
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime);
    match runtime.and_then(|runtime| runtime.block_on(commands::run(args))) {
        Ok(code) => code,
        // The reader of the pipe has closed it (`| head`): this is not a failure.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            complain(&with_causes(&error));
            ExitCode::from(if monitoring { 3 } else { 1 })
        }
    }
}

fn complain(text: &str) {
    // The error cannot be reported on an unwritable standard error.
    let _ =
        writeln!(io::stderr(), "diskvitals: {}", diskvitals_terminal::screen::escape_control(text));
}
