//! The cluster's controller: arguments, then the life of the process.

use clap::Parser;

fn main() -> std::process::ExitCode {
    diskvitals::fleet::main(diskvitals::fleet::options::Options::parse())
}
