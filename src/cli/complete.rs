//! Completion in shells: the scripts, and the names of live things that they ask for through the
//! hidden command `complete`.
//!
//! In: the words before the cursor. Out: the names that fit there, one a line; none without a daemon.
//! Which names fit is found from the arguments themselves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Args;
use diskvitals_text::echo::is_deceptive;
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};

/// A person waits for it.
const TIMEOUT: Duration = Duration::from_secs(2);
/// No name that people type is longer.
const MAX_NAME: usize = 256;

/// Appended to the scripts that clap makes.
const BASH: &str = r#"
# Names of live things. Colons and `=` separate words in bash: the word is taken from the line.
_diskvitals_live() {
    _diskvitals "$@"
    local line upto="${COMP_LINE:0:COMP_POINT}" cur="$2"
    local whole="${upto##*[[:space:]]}"
    local -a words=() names=()
    read -ra words <<<"$upto"
    [[ -n "$whole" ]] || words+=("")
    while IFS= read -r line; do
        names+=("$(printf '%q' "${line#"${whole%"$cur"}"}")")
    done < <("$1" complete -- "${words[@]}" 2>/dev/null)
    if (( ${#names[@]} > 0 )); then COMPREPLY=("${names[@]}"); fi
}
complete -F _diskvitals_live -o bashdefault -o default diskvitals
"#;
const ZSH: &str = r#"
# Names of live things.
_diskvitals_live() {
    local -a typed names
    typed=("${(@Q)${(@z)LBUFFER}}")
    [[ "$LBUFFER" == *[[:space:]] ]] && typed+=("")
    names=("${(@f)$(command diskvitals complete -- "${typed[@]}" 2>/dev/null)}")
    names=("${(@)names:#}")
    if (( ${#names} > 0 )); then compadd -a names; else _default; fi
}
"#;
const FISH: &str = r#"
# Names of live things.
function __fish_diskvitals_live
    diskvitals complete -- (commandline -opc) (commandline -ct) 2>/dev/null
end
complete -c diskvitals -n "not __fish_diskvitals_needs_command" -a "(__fish_diskvitals_live)"
for option in drive volume reason cancel
    complete -c diskvitals -n "not __fish_diskvitals_needs_command" -l $option -x -a "(__fish_diskvitals_live)"
end
"#;

pub fn script(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "diskvitals", &mut text);
    match shell {
        Shell::Bash => text.extend_from_slice(BASH.as_bytes()),
        Shell::Fish => text.extend_from_slice(FISH.as_bytes()),
        Shell::Zsh => {
            let script = String::from_utf8_lossy(&text);
            // The values that are no files and no fixed words.
            let script = script.replace(":_default'", ":_diskvitals_live'");
            // Its last lines run the completion: the function must exist by then.
            let (head, tail) = script.split_once('\n').unwrap_or((&script, ""));
            return format!("{head}\n{ZSH}{tail}").into_bytes();
        }
        _ => {}
    }
    text
}

/// What fits at the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Drive,
    Volume,
    /// A drive or a volume.
    Thing,
    /// An active finding that is or is not acknowledged, or a thing.
    Finding {
        acknowledged: Option<bool>,
    },
    /// A check, or a volume.
    Check,
    Reason,
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    kind: Kind,
    prefix: String,
    socket: Option<PathBuf>,
}

/// The names that fit, one a line.
pub async fn names(words: &[String], socket: &Path) -> String {
    let Some(request) = request(words) else {
        return String::new();
    };
    let socket = request.socket.as_deref().unwrap_or(socket);
    let found = match Client::connect(socket, TIMEOUT).await {
        Ok(client) => live_names(&client, &request).await.unwrap_or_default(),
        // This program knows most of the reasons by itself.
        Err(_) if request.kind == Kind::Reason => reason_names(&diskvitals_convert::reasons::all()),
        Err(_) => Vec::new(),
    };
    let fits = |name: &String| {
        name.starts_with(&request.prefix)
            && !name.is_empty()
            && name.len() <= MAX_NAME
            && !name.chars().any(is_deceptive)
    };
    let names: BTreeSet<String> = found.into_iter().filter(fits).collect();
    names.into_iter().map(|name| name + "\n").collect()
}

/// Follows the words through the arguments. None: nothing live fits at the cursor.
fn request(words: &[String]) -> Option<Request> {
    let mut root = Args::command();
    root.build();
    // Before the program's name there may be others (`sudo`).
    let program = |word: &String| Path::new(word).file_name() == Some("diskvitals".as_ref());
    let begin = words.iter().position(program)? + 1;
    let (last, before) = words.get(begin..)?.split_last()?;
    let (mut command, mut positional, mut socket) = (&root, 0, None);
    let mut pending: Option<&Arg> = None;
    for word in before {
        if let Some(option) = pending.take() {
            if option.get_id() == "socket" {
                socket = Some(PathBuf::from(word));
            }
            continue;
        }
        if let Some((option, value)) = option_of(command, word) {
            match value {
                Some(path) if option.get_id() == "socket" => socket = Some(PathBuf::from(path)),
                Some(_) => {}
                None => pending = takes_value(option).then_some(option),
            }
        } else if let Some(below) = command.find_subcommand(word).filter(|_| positional == 0) {
            command = below;
        } else if !word.starts_with('-') {
            positional += 1;
        }
    }
    let (argument, prefix) = match (pending, option_of(command, last)) {
        (Some(option), _) => (option, last.as_str()),
        (None, Some((option, Some(value)))) => (option, value),
        (None, Some((_, None))) => return None,
        (None, None) if last.starts_with('-') => return None,
        (None, None) => (command.get_positionals().nth(positional)?, last.as_str()),
    };
    Some(Request {
        kind: kind(command.get_name(), argument.get_id().as_str())?,
        prefix: prefix.to_owned(),
        socket,
    })
}

/// The option that a word gives, with the value behind `=`.
fn option_of<'a, 'w>(command: &'a Command, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let matches = |argument: &&Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => argument
            .get_short()
            .is_some_and(|short| name.strip_prefix('-') == Some(short.to_string().as_str())),
    };
    let option = command.get_arguments().find(matches)?;
    Some((option, value))
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

fn kind(command: &str, argument: &str) -> Option<Kind> {
    Some(match (command, argument) {
        ("ack", "finding") => Kind::Finding { acknowledged: Some(false) },
        ("unack", "finding") => Kind::Finding { acknowledged: Some(true) },
        ("findings", "id") => Kind::Finding { acknowledged: None },
        ("drive" | "drives", "id") | (_, "drive" | "with") => Kind::Drive,
        ("volume" | "volumes", "id") | ("check", "target") | (_, "volume") => Kind::Volume,
        ("explain" | "refresh" | "maintenance", "id") => Kind::Thing,
        ("checks", "what") | ("check", "cancel") => Kind::Check,
        (_, "reason") => Kind::Reason,
        _ => return None,
    })
}

async fn live_names(client: &Client, request: &Request) -> Result<Vec<String>, ClientError> {
    let kind = request.kind;
    let mut names = Vec::new();
    // Without a letter typed, only the names that people use most.
    let all = !request.prefix.is_empty();
    if matches!(kind, Kind::Drive | Kind::Thing | Kind::Finding { .. }) {
        let drives = client.drives().await?.drives;
        names.extend(drives.into_iter().flat_map(|drive| drive_names(drive, all)));
    }
    if matches!(kind, Kind::Volume | Kind::Thing | Kind::Finding { .. } | Kind::Check) {
        let volumes = client.volumes().await?.volumes;
        names.extend(volumes.into_iter().flat_map(|it| volume_names(it, all)));
    }
    match kind {
        Kind::Finding { acknowledged } => {
            let findings = client.findings(acknowledged.is_none()).await?.findings;
            let wanted = |finding: &wire::Finding| {
                acknowledged.is_none_or(|wanted| finding.acknowledged.is_some() == wanted)
            };
            let ids = findings.into_iter().filter(wanted).map(|it| it.id);
            names.extend(ids);
        }
        Kind::Check => {
            let checks = client.checks("").await?.checks;
            names.extend(checks.into_iter().map(|check| check.id));
        }
        Kind::Reason => names.extend(reason_names(&client.reasons().await?)),
        Kind::Drive | Kind::Volume | Kind::Thing => {}
    }
    Ok(names)
}

fn reason_names(answer: &wire::ListReasonsResponse) -> Vec<String> {
    let reasons = answer.reasons.iter();
    reasons.map(|reason| reason.name.clone()).collect()
}

fn drive_names(drive: wire::Drive, all: bool) -> Vec<String> {
    let mut names = vec![drive.name];
    if all {
        names.extend([drive.id, drive.serial]);
        names.extend(drive.links);
    }
    names
}

fn volume_names(volume: wire::Volume, all: bool) -> Vec<String> {
    let is_host = |mount: &wire::VolumeMount| mount.role() == wire::MountRole::Host;
    let hosts = volume.mounts.iter().filter(|mount| is_host(mount));
    let mut names: Vec<String> = hosts.map(|mount| mount.path.clone()).collect();
    names.push(volume.pv);
    let pods = volume.pods.iter().filter(|pod| !pod.name.is_empty());
    names.extend(pods.map(|pod| format!("{}/{}", pod.namespace, pod.name)));
    if all {
        names.extend([volume.id, volume.handle]);
        names.extend(volume.mounts.into_iter().map(|mount| mount.path));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<(Kind, String)> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        request(&words).map(|request| (request.kind, request.prefix))
    }

    #[test]
    fn the_words_before_the_cursor_say_what_fits() {
        let finding = |acknowledged| Kind::Finding { acknowledged };
        for (line, kind, prefix) in [
            ("diskvitals drive sd", Kind::Drive, "sd"),
            ("diskvitals drive ", Kind::Drive, ""),
            ("sudo /usr/bin/diskvitals drive sd", Kind::Drive, "sd"),
            ("diskvitals -o json volume /s", Kind::Volume, "/s"),
            ("diskvitals explain --timeout 5 x", Kind::Thing, "x"),
            ("diskvitals ack 1f", finding(Some(false)), "1f"),
            ("diskvitals unack ", finding(Some(true)), ""),
            ("diskvitals findings ", finding(None), ""),
            ("diskvitals findings --drive sd", Kind::Drive, "sd"),
            ("diskvitals findings --drive=sd", Kind::Drive, "sd"),
            ("diskvitals findings --reason P", Kind::Reason, "P"),
            ("diskvitals findings --severity bad --volume ", Kind::Volume, ""),
            ("diskvitals reasons P", Kind::Reason, "P"),
            ("diskvitals check --freeze /", Kind::Volume, "/"),
            ("diskvitals check --cancel ", Kind::Check, ""),
            ("diskvitals self-test s", Kind::Drive, "s"),
            ("diskvitals cleanup p", Kind::Volume, "p"),
        ] {
            assert_eq!(asked(line), Some((kind, prefix.to_owned())), "{line}");
        }
        for line in [
            "diskvitals",
            "diskvitals ",
            "diskvitals dri",
            "diskvitals drive --hi",
            "diskvitals drive sda more",
            "diskvitals ack 1f --note ",
            "diskvitals self-test sda ",
            "diskvitals -o ",
            "diskvitals analyze smart ",
            "other drive ",
            "",
        ] {
            assert_eq!(asked(line), None, "{line}");
        }
    }

    #[test]
    fn a_given_socket_is_asked() {
        for line in [
            "diskvitals --socket /a drive s",
            "diskvitals --socket=/a drive s",
            "diskvitals drive --socket /a s",
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let socket = request(&words).and_then(|request| request.socket);
            assert_eq!(socket, Some(PathBuf::from("/a")), "{line}");
        }
    }

    #[test]
    fn the_scripts_ask_for_names() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell)).expect("text");
            assert!(script.contains("diskvitals") && script.contains(" complete -- "), "{shell}");
            assert!(!script.contains("_default'"), "{shell}");
        }
    }
}
