//! Completion: the scripts of the shells, the script through which kubectl completes the plugin
//! (kubectl 1.26: `kubectl_complete-diskvitals` in PATH), and the words that fit.
//!
//! In: the words behind the plugin's name; the last one may be incomplete. Out: one word a line, and
//! Cobra's directive. Without a cluster, only what is not live.

use std::time::Duration;

use clap::{ArgAction, CommandFactory, Parser};
use clap_complete::Shell;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::Value;

use crate::api::{Api, Select, contexts};
use crate::args::{CompletionKind, Connection, Options};
use crate::gather::{self, STORAGES, in_namespace};
use crate::objects::{ClaimRecord, PodRecord, StorageRecord};
use diskvitals_text::echo::is_deceptive;

/// A person waits for it.
const TIMEOUT: Duration = Duration::from_secs(2);
/// ShellCompDirectiveNoFileComp and ShellCompDirectiveDefault of github.com/spf13/cobra.
const NO_FILES: u8 = 4;
const FILES: u8 = 0;

const KUBECTL: &str = include_str!("../../packaging/krew/kubectl_complete-diskvitals");

pub(crate) fn script(kind: CompletionKind) -> Vec<u8> {
    let shell = match kind {
        CompletionKind::Kubectl => return KUBECTL.as_bytes().to_vec(),
        CompletionKind::Bash => Shell::Bash,
        CompletionKind::Zsh => Shell::Zsh,
        CompletionKind::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    let mut command = Options::command().bin_name("kubectl-diskvitals");
    clap_complete::generate(shell, &mut command, "kubectl-diskvitals", &mut text);
    text
}

/// Names that live in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Live {
    Nodes,
    Contexts,
    /// Claims and pods of the namespace.
    Things,
    Actions,
    Policies,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Fitting {
    words: Vec<String>,
    live: Option<Live>,
    files: bool,
}

pub(crate) async fn answer(words: &[String]) -> String {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let mut fitting = fitting(before, last);
    if let Some(live) = fitting.live {
        fitting.words.extend(names(live, before).await);
    }
    let mut text = String::new();
    for word in fitting.words {
        if word.starts_with(last) && !word.chars().any(is_deceptive) {
            text.push_str(&word);
            text.push('\n');
        }
    }
    let directive = if fitting.files { FILES } else { NO_FILES };
    format!("{text}:{directive}\n")
}

fn fitting(before: &[String], last: &str) -> Fitting {
    let root = Options::command();
    let mut command = &root;
    // The option that waits for its value.
    let mut waiting: Option<&clap::Arg> = None;
    let mut positionals = 0;
    for word in before {
        if waiting.take().is_some() {
            continue;
        }
        match word.strip_prefix('-') {
            Some(option) => {
                let option = option.trim_start_matches('-');
                let mut all = root.get_arguments().chain(command.get_arguments());
                waiting = all.find(|arg| {
                    let is_it = arg.get_long() == Some(option)
                        || arg.get_short().is_some_and(|it| it.to_string() == option);
                    is_it && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
                });
            }
            None => match command.find_subcommand(word) {
                Some(below) if positionals == 0 => {
                    command = below;
                }
                _ => positionals += 1,
            },
        }
    }
    if let Some(arg) = waiting {
        return value(arg);
    }
    if last.starts_with('-') {
        let all = root
            .get_arguments()
            .filter(|arg| command.get_name() == root.get_name() || arg.is_global_set());
        let all =
            all.chain(command.get_arguments().filter(|_| command.get_name() != root.get_name()));
        let longs = all.filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long);
        return Fitting {
            words: longs.map(|long| format!("--{long}")).collect(),
            ..Fitting::default()
        };
    }
    if command.has_subcommands() {
        let below = command.get_subcommands().filter(|it| !it.is_hide_set());
        return Fitting {
            words: below.map(|it| it.get_name().to_owned()).collect(),
            ..Fitting::default()
        };
    }
    let positional = command.get_positionals().nth(positionals);
    positional.map(value).unwrap_or_default()
}

fn value(arg: &clap::Arg) -> Fitting {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        return Fitting {
            words: possible.iter().map(|it| it.get_name().to_owned()).collect(),
            ..Fitting::default()
        };
    }
    let live = match arg.get_id().as_str() {
        "node" => Some(Live::Nodes),
        "context" => Some(Live::Contexts),
        "name" => Some(Live::Things),
        "action" => Some(Live::Actions),
        "policy" => Some(Live::Policies),
        _ => None,
    };
    Fitting { live, files: arg.get_id() == "kubeconfig", ..Fitting::default() }
}

/// The connection that the line names so far.
fn connection(before: &[String]) -> Connection {
    let mut words = vec!["kubectl-diskvitals"];
    let mut rest = before.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        let is_one = ["-n", "--namespace", "--context", "--kubeconfig"].contains(&word);
        if is_one {
            words.push(word);
            words.extend(rest.next());
        }
    }
    let options = Options::try_parse_from(words);
    let options = options.unwrap_or_else(|_| Options::parse_from(["kubectl-diskvitals"]));
    Connection { request_timeout: TIMEOUT, ..options.connection }
}

async fn names(live: Live, before: &[String]) -> Vec<String> {
    let connection = connection(before);
    if live == Live::Contexts {
        return contexts(&connection);
    }
    let Ok(api) = Api::connect(&connection).await else {
        return Vec::new();
    };
    let all = Select::default();
    if live == Live::Nodes {
        let nodes = api.list::<Value>("listing nodes", STORAGES, all).await;
        let nodes = nodes.unwrap_or_default().into_iter().map(StorageRecord::from);
        return nodes.map(|node| node.name).collect();
    }
    if live == Live::Policies {
        let policies = gather::policies(&api).await.unwrap_or_default();
        return policies.into_iter().map(|it| it.meta.name).collect();
    }
    if live == Live::Actions {
        let actions = gather::actions(&api, Some(&api.namespace)).await;
        let actions = actions.unwrap_or_default().into_iter();
        return actions.map(|it| it.meta.name).collect();
    }
    let claims = in_namespace(&api.namespace, "persistentvolumeclaims");
    let pods = in_namespace(&api.namespace, "pods");
    let (claims, pods) = tokio::join!(
        api.list::<PersistentVolumeClaim>("listing claims", &claims, all),
        api.list::<Pod>("listing pods", &pods, all),
    );
    let claims = claims.unwrap_or_default().into_iter().map(ClaimRecord::from);
    let pods = pods.unwrap_or_default().into_iter().map(PodRecord::from);
    claims.map(|it| it.name).chain(pods.map(|it| it.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(line: &str) -> Fitting {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let last = words.pop().expect("a word");
        fitting(&words, &last)
    }

    #[test]
    fn commands_options_and_values_fit_where_they_are_allowed() {
        assert!(fit("").words.contains(&"attachments".to_owned()));
        assert!(!fit("").words.contains(&"__complete".to_owned()));
        let options = fit("drives --").words;
        for option in ["--model", "--node", "--namespace", "--output"] {
            assert!(options.contains(&option.to_owned()), "{option}: {options:?}");
        }
        assert!(!options.contains(&"--exit-code".to_owned()), "{options:?}");
        assert_eq!(fit("-o ").words, ["table", "wide", "json"]);
        assert_eq!(fit("drives --node ").live, Some(Live::Nodes));
        assert_eq!(fit("--context ").live, Some(Live::Contexts));
        assert_eq!(fit("-n shop attachments ").live, Some(Live::Things));
        assert_eq!(fit("attachments data "), Fitting::default());
        assert_eq!(fit("breaker ").words, ["reset"]);
        assert_eq!(fit("breaker reset ").live, Some(Live::Policies));
        for command in ["actions", "approve", "reject"] {
            assert_eq!(fit(&format!("{command} ")).live, Some(Live::Actions));
        }
        assert!(fit("approve --").words.contains(&"--dry-run".to_owned()));
        assert!(fit("--kubeconfig ").files);
    }

    #[test]
    fn the_line_names_the_cluster() {
        let words = ["attachments", "-n", "shop", "--context", "eu"].map(str::to_owned);
        let connection = connection(&words);
        assert_eq!(connection.namespace.as_deref(), Some("shop"));
        assert_eq!(connection.context.as_deref(), Some("eu"));
    }
}
