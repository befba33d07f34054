//! diskvitals: the admin's command line; the jail in which `check --image` runs a checker; the process
//! that follows the links of a path.

fn main() -> std::process::ExitCode {
    let starts_with = |words: [&str; 2]| {
        let mut given = std::env::args_os().skip(1);
        words.iter().all(|word| given.next().is_some_and(|it| it == *word))
    };
    let rest = std::env::args_os().skip(3);
    if starts_with(diskvitals_checker::JAIL_ARGS) {
        return diskvitals_host::jail::enter(rest);
    }
    if starts_with(diskvitals_cli::place::REAL_PATH_ARGS) {
        return diskvitals_cli::place::print_real_path(rest);
    }
    diskvitals_cli::main()
}
