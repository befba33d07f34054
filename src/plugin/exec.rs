//! Finds the daemon's pod of a node, and becomes `kubectl exec … diskvitals …` there. kubectl has the
//! credentials, the protocols and the terminal; a plugin is started by it.
//!
//! exec into a privileged pod is a right over the node. Whoever lacks it gets the command for a
//! person who has it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::api::Api;
use crate::args::Options;
use crate::{Error, complain, gather};

/// `namespace`: that of the daemon's pods, if given.
pub(crate) async fn run(
    api: &Api,
    options: &Options,
    node: &str,
    namespace: Option<&str>,
    command: &[&str],
) -> Result<ExitCode, Error> {
    let pods = gather::daemons(api, node).await?;
    let pods: Vec<_> = pods
        .into_iter()
        .filter(|pod| namespace.is_none_or(|namespace| pod.namespace == namespace))
        .collect();
    let pod = match pods.as_slice() {
        [pod] => pod,
        [] => {
            return Err(Error::Target(format!(
                "no daemon's pod is on node {node}; where diskvitalsd runs without Kubernetes, ask on the node: diskvitals {}",
                line(command.iter().filter(|word| **word != "--"))
            )));
        }
        several => {
            let names = several.iter().map(|it| format!("{}/{}", it.namespace, it.name));
            return Err(Error::Target(format!(
                "several pods on node {node} look like the daemon: {}; give --daemon-namespace",
                names.collect::<Vec<_>>().join(", ")
            )));
        }
    };
    let words = words(options, &pod.namespace, &pod.name, command);
    let command = format!("kubectl {}", line(&words));
    if !api.may_exec(&pod.namespace, &pod.name).await? {
        complain(&format!(
            "you may not `create pods/exec` in namespace {}: the daemon's pod is privileged. Somebody who may runs: {command}",
            pod.namespace
        ));
        return Ok(ExitCode::from(1));
    }
    let Some(program) = kubectl() else {
        complain(&format!("kubectl is not in PATH; the command is: {command}"));
        return Ok(ExitCode::from(1));
    };
    let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    Err(Error::Kubectl {
        source: diskvitals_host::exec::exec(&program, &words),
        program: program.display().to_string(),
    })
}

/// kubectl's arguments.
fn words(options: &Options, namespace: &str, pod: &str, command: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(context) = &options.connection.context {
        words.push(format!("--context={context}"));
    }
    if let Some(file) = &options.connection.kubeconfig {
        words.push(format!("--kubeconfig={}", file.display()));
    }
    words.extend(["exec", "--namespace", namespace, pod, "--container"].map(str::to_owned));
    words.push(gather::DAEMON_CONTAINER.to_owned());
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        words.push("-it".to_owned());
    }
    words.extend(["--", "diskvitals"].map(str::to_owned));
    if options.no_color {
        words.push("--no-color".to_owned());
    }
    if options.output == crate::args::Output::Json {
        words.push("--output=json".to_owned());
    }
    words.extend(command.iter().map(|word| (*word).to_owned()));
    words
}

/// For a POSIX shell.
fn line(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted = words.into_iter().map(|word| quoted(word.as_ref()));
    quoted.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn kubectl() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let mut programs = folders.map(|folder| folder.join("kubectl"));
    programs.find(|program| {
        std::fs::metadata(program)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_command_is_kubectls_and_ends_with_the_name_whatever_it_is() {
        let options =
            Options::parse_from(["kubectl-diskvitals", "--context", "eu prod", "--no-color"]);
        let words = words(&options, "storage", "dv-daemon-1", &["explain", "--", "--socket=/x"]);
        assert_eq!(
            line(words.iter().filter(|it| *it != "-it")),
            "'--context=eu prod' exec --namespace storage dv-daemon-1 --container diskvitalsd -- diskvitals --no-color explain -- --socket=/x"
        );
        assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
    }

    #[test]
    fn the_configuration_is_asked_of_the_daemon_that_runs() {
        let options = Options::parse_from(["kubectl-diskvitals", "-o", "json", "config", "node-1"]);
        let words = words(&options, "storage", "dv-daemon-1", &["config"]);
        assert_eq!(
            line(words.iter().filter(|it| *it != "-it")),
            "exec --namespace storage dv-daemon-1 --container diskvitalsd -- diskvitals --output=json config"
        );
    }
}
