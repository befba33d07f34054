use clap::error::ErrorKind;

use super::*;

/// Every command that people see, by its words.
fn commands() -> Vec<(String, clap::Command)> {
    fn below(command: &clap::Command, words: &str, all: &mut Vec<(String, clap::Command)>) {
        all.push((words.to_owned(), command.clone()));
        for sub in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let words = format!("{words} {}", sub.get_name());
            below(sub, words.trim_start(), all);
        }
    }
    let mut all = Vec::new();
    let mut root = Args::command().disable_help_subcommand(true);
    root.build();
    below(&root, "", &mut all);
    all
}

#[test]
fn every_command_describes_its_arguments_and_has_two_examples() {
    let known: Vec<String> = commands().into_iter().map(|(words, _)| words).collect();
    for (words, command) in commands() {
        let page = page(&words).unwrap_or_else(|| panic!("`{words}` is not in the manual"));
        assert!(page.examples.len() >= 2, "`{words}` has too few examples");
        assert!(command.get_about().is_some(), "`{words}` says nothing");
        let arguments = command.get_arguments().filter(|it| !it.is_hide_set());
        for argument in arguments {
            assert!(
                argument.get_help().is_some(),
                "`{words}` does not describe {}",
                argument.get_id()
            );
        }
    }
    for (words, ..) in COMMANDS {
        assert!(known.iter().any(|known| known == words), "`{words}` is gone");
    }
}

/// The words of a command line as a shell has them, without pipes and redirections.
fn words_of(example: &str) -> Vec<String> {
    let command =
        example.split(" | ").find(|part| part.starts_with("diskvitals")).unwrap_or(example);
    let command = command.split(" > ").next().unwrap_or(command);
    let mut words: Vec<String> = Vec::new();
    for (at, part) in command.split('"').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn every_example_is_accepted() {
    for (words, examples, _) in COMMANDS {
        for (example, meaning) in *examples {
            assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{example}");
            if example.starts_with("source ") {
                continue;
            }
            let parsed = command().try_get_matches_from(words_of(example));
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
            assert!(example.contains(words), "{example} shows not `{words}`");
        }
    }
}

#[test]
fn the_long_help_of_each_command_ends_with_examples_and_exit_statuses() {
    for (words, _) in commands() {
        let line = format!("diskvitals {words} --help");
        let help = command().try_get_matches_from(line.split_whitespace()).expect_err("help");
        assert_eq!(help.kind(), ErrorKind::DisplayHelp);
        let text = help.to_string();
        assert!(text.contains("\nExamples:\n  "), "{text}");
        assert!(text.contains("\nExit status:\n  0    "), "{text}");
    }
}

#[test]
fn the_man_pages_have_all_sections() {
    let dir = tempfile::tempdir().expect("a directory");
    write_pages(dir.path()).expect("the pages");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("a page");
    for name in ["diskvitals.1", "diskvitals-ack.1", "diskvitals-analyze-smart.1"] {
        let page = read(name);
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXAMPLES",
            "FILES",
            "EXIT STATUS",
            "SEE ALSO",
        ] {
            let title = format!(".SH {section}\n");
            let quoted = format!(".SH \"{section}\"\n");
            assert!(page.contains(&title) || page.contains(&quoted), "{name}: {section}");
        }
    }
    let configuration = read("diskvitals.toml.5");
    for text in [".SH [smart]", "stalled_after", "SEE ALSO", "[[smart.override]]"] {
        assert!(configuration.contains(text), "{text}");
    }
    assert!(!dir.path().join("diskvitals-complete.1").exists());
}

const BEGIN: &str = "<!-- Made of the command line's manual; written anew by: DISKVITALS_WRITE_DOCS=1 cargo test -p diskvitals-cli manual -->\n";
const END: &str = "<!-- So far. -->\n";

/// The one table of exit statuses: commands with the same ones share a row.
fn exit_table() -> String {
    let mut text = "\n| Command | Exit status |\n|---|---|\n".to_owned();
    let mut exits: Vec<(Exit, Vec<String>)> = Vec::new();
    for (words, _, exit) in COMMANDS.iter().filter(|(words, ..)| !words.is_empty()) {
        let name = format!("`{words}`");
        match exits.iter_mut().find(|(known, _)| known == exit) {
            Some((_, names)) => names.push(name),
            None => exits.push((exit, vec![name])),
        }
    }
    let programs = [
        ("`diskvitalsd`", diskvitals_program::manual::DAEMON_EXIT),
        ("`diskvitals-csi`", diskvitals_program::manual::SHIM_EXIT),
        ("`diskvitals-notify`", diskvitals_program::manual::NOTIFY_EXIT),
    ];
    for (name, exit) in programs {
        exits.push((exit, vec![name.to_owned()]));
    }
    for (exit, names) in exits {
        let codes = exit.iter().map(|(code, meaning)| format!("{code} {meaning}"));
        text.push_str(&format!(
            "| {} | {} |\n",
            names.join(", "),
            codes.collect::<Vec<_>>().join("<br>")
        ));
    }
    text.push('\n');
    text
}

#[test]
fn the_page_for_operators_has_all_exit_statuses_in_one_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(&path).expect("docs/operations.md");
    let (before, rest) = page.split_once(BEGIN).expect("the mark where it begins");
    let (written, after) = rest.split_once(END).expect("the mark where it ends");
    let right = exit_table();
    if std::env::var_os("DISKVITALS_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{right}{END}{after}")).expect("written");
    } else {
        assert!(
            written == right,
            "docs/operations.md has other exit statuses: DISKVITALS_WRITE_DOCS=1 cargo test -p diskvitals-cli manual"
        );
    }
}
