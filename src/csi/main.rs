//! The CSI shim: arguments, then its life.

use clap::Parser;

fn main() -> std::process::ExitCode {
    diskvitals_csi::main(diskvitals_csi::options::Options::parse())
}
