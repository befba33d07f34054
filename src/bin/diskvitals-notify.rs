//! Notifications: arguments, then the life of the process.

use clap::Parser;

fn main() -> std::process::ExitCode {
    diskvitals::notifier::main(diskvitals::notifier::options::Options::parse())
}
