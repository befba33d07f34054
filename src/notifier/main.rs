//! Notifications: arguments, then the life of the process.

use clap::Parser;

fn main() -> std::process::ExitCode {
    diskvitals_notifier::main(diskvitals_notifier::options::Options::parse())
}
