//! diskvitals: the admin's command line.

fn main() -> std::process::ExitCode {
    diskvitals::cli::main()
}
