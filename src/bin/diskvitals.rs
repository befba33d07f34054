//! diskvitals: the admin's command line, or the jail in which `check --image` runs a checker.

fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    let jail = diskvitals::checker::JAIL_ARGS;
    if jail
        .iter()
        .all(|word| args.next().is_some_and(|given| given == *word))
    {
        return diskvitals::host::jail::enter(args);
    }
    diskvitals::cli::main()
}
