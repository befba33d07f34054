//! The daemon: arguments, then either a worker's loop or the daemon itself.

use std::process::ExitCode;

use clap::Parser;
use diskvitals::app;
use diskvitals::app::options::Options;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if args.nth(1).is_some_and(|mode| mode == "worker") {
        return diskvitals::source::worker::main(args);
    }
    app::main(Options::parse())
}
