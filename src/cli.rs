//! The command line `diskvitals`: arguments, calls to the daemon's socket, rendering, exit codes.
//!
//! In: arguments and the daemon's answers. Out: text for people or canonical JSON. It evaluates
//! nothing except the exit code.

pub(crate) mod args;
mod check;
pub mod check_image;
mod commands;
mod error;
mod json;
mod offline;
mod printer;
mod render;
mod screen;
mod self_test;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::args::Args;
use crate::cli::error::Error;

/// Reads the process's arguments, does what they say, prints it. Exit codes: 0 done, 1 failed, 2
/// wrong usage; with `--exit-code` those of a monitoring plugin, where whatever prevents an answer
/// is 3 (unknown).
pub fn main() -> ExitCode {
    let monitoring = std::env::args_os().any(|argument| argument == "--exit-code");
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Nothing can be done about an unwritable terminal.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ if monitoring => ExitCode::from(3),
                _ => ExitCode::from(2),
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("starting the event loop: {error}"));
            return ExitCode::from(if monitoring { 3 } else { 1 });
        }
    };
    match runtime.block_on(commands::run(args)) {
        Ok(code) => code,
        // Whoever reads has had enough (`| head`): that is no failure.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            complain(&chain(&error));
            ExitCode::from(if monitoring { 3 } else { 1 })
        }
    }
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Transparent variants repeat their cause.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

fn complain(text: &str) {
    // Nothing can be done about an unwritable standard error.
    let _ = writeln!(io::stderr(), "diskvitals: {}", screen::escape_control(text));
}
