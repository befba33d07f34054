//! The daemon: arguments, then either the loop of a worker (observations, or steps of provisioning) or
//! the daemon itself.

use std::process::ExitCode;

use clap::Parser;
use diskvitals_daemon::app;
use diskvitals_daemon::app::options::Options;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    match args.nth(1) {
        Some(mode) if mode == "worker" => return diskvitals_source::worker_main::main(args),
        Some(mode) if mode == "step" => return diskvitals_provision::worker::main(args),
        _ => {}
    }
    app::main(Options::parse())
}
