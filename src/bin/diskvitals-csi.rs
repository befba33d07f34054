//! The CSI shim: arguments, then its life.

use clap::Parser;

fn main() -> std::process::ExitCode {
    diskvitals::csi::main(diskvitals::csi::options::Options::parse())
}
