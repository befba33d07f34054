//! kubectl-diskvitals: the kubectl plugin `kubectl diskvitals`.

fn main() -> std::process::ExitCode {
    diskvitals_plugin::main()
}
