//! The cluster's controller: arguments, then the life of the process.

use clap::Parser;

fn main() -> std::process::ExitCode {
    diskvitals_fleet::main(diskvitals_fleet::options::Options::parse())
}
