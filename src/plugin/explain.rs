//! `explain`: finds the daemon's pod of the node that has the thing, and becomes `kubectl exec …
//! diskvitals explain` there. kubectl has the credentials, the protocols and the terminal; a plugin
//! is started by it.
//!
//! exec into a privileged pod is a right over the node. Whoever lacks it gets the command for a
//! person who has it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::api::Api;
use crate::args::{ExplainArgs, Options};
use crate::target::{Found, find};
use crate::view::fence::{Reach, reach};
use crate::view::nodes::nodes;
use crate::{Error, complain, gather, view};
use diskvitals_text::echo::echo;

/// A thing under the name by which the node's daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    node: String,
    name: String,
}

pub(crate) async fn run(
    api: &Api,
    options: &Options,
    args: &ExplainArgs,
) -> Result<ExitCode, Error> {
    let place = place(api, options, args).await?;
    let pods = gather::daemons(api, &place.node).await?;
    let wanted = args.daemon_namespace.as_deref();
    let pods: Vec<_> = pods
        .into_iter()
        .filter(|pod| wanted.is_none_or(|namespace| pod.namespace == namespace))
        .collect();
    let pod = match pods.as_slice() {
        [pod] => pod,
        [] => {
            return Err(Error::Target(format!(
                "no daemon's pod is on node {}; where diskvitalsd runs without Kubernetes, ask on the node: diskvitals explain {}",
                place.node,
                quoted(&place.name)
            )));
        }
        several => {
            let names = several.iter().map(|it| format!("{}/{}", it.namespace, it.name));
            return Err(Error::Target(format!(
                "several pods on node {} look like the daemon: {}; give --daemon-namespace",
                place.node,
                names.collect::<Vec<_>>().join(", ")
            )));
        }
    };
    let words = words(options, &pod.namespace, &pod.name, &place.name);
    let command =
        format!("kubectl {}", words.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(" "));
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

/// The node that has the thing.
async fn place(api: &Api, options: &Options, args: &ExplainArgs) -> Result<Place, Error> {
    let found = find(api, &args.name).await;
    if let Some(node) = &args.node {
        // The node knows names that Kubernetes does not; a claim it knows by its volume.
        let name = match found {
            Ok(Some(Found::Claim(claim))) if !claim.volume.is_empty() => claim.volume,
            Ok(Some(Found::Pod(pod))) => format!("{}/{}", pod.namespace, pod.name),
            Ok(Some(Found::Volume(volume))) => volume.name,
            _ => args.name.clone(),
        };
        return Ok(Place { node: node.clone(), name });
    }
    match found? {
        Some(Found::Pod(pod)) if pod.node.is_empty() => {
            Err(Error::Target(format!("pod {}/{} is on no node yet", pod.namespace, pod.name)))
        }
        Some(Found::Pod(pod)) => {
            Ok(Place { node: pod.node, name: format!("{}/{}", pod.namespace, pod.name) })
        }
        Some(Found::Claim(claim)) if claim.volume.is_empty() => Err(Error::Target(format!(
            "claim {}/{} is not bound to a volume",
            claim.namespace, claim.name
        ))),
        Some(Found::Claim(claim)) => of_volume(api, options, &claim.volume).await,
        Some(Found::Volume(volume)) => of_volume(api, options, &volume.name).await,
        None => of_drive(api, options, &args.name).await,
    }
}

/// The node to which a volume is pinned, or on which a pod uses it.
async fn of_volume(api: &Api, options: &Options, name: &str) -> Result<Place, Error> {
    let selector = options.connection.selector.as_deref();
    let (base, storages) = gather::base(api, selector, None).await;
    let subject = gather::subject(api, name, None, &storages).await;
    let name = name.to_owned();
    if let Ok(volume) = &subject.volume
        && let Reach::One(node) = reach(volume, &base.nodes)
    {
        return Ok(Place { node, name });
    }
    let claim = subject.claim.as_ref().ok().and_then(Option::as_ref);
    let pods = subject.pods.as_ref().map(Vec::as_slice).unwrap_or_default();
    let mut users = pods
        .iter()
        .filter(|pod| !pod.node.is_empty() && !pod.has_ended)
        .filter(|pod| claim.is_some_and(|claim| pod.claims.contains(&claim.name)));
    match users.next() {
        Some(pod) => Ok(Place { node: pod.node.clone(), name }),
        None => Err(Error::Target(format!(
            "volume {name} is pinned to no node that is known, and no pod uses it: give --node"
        ))),
    }
}

/// The nodes that have a drive of this id or serial number.
async fn of_drive(api: &Api, options: &Options, text: &str) -> Result<Place, Error> {
    let selector = options.connection.selector.as_deref();
    let (base, storages) = gather::base(api, selector, None).await;
    storages?;
    let nodes = nodes(&base);
    let has = |node: &&view::nodes::NodeView<'_>| {
        node.status.is_some_and(|status| {
            let mut listed = status.drives.iter();
            status.drive_ids.iter().any(|id| id == text)
                || listed.any(|drive| drive.id == text || drive.serial == text)
        })
    };
    let having: Vec<&str> = nodes
        .iter()
        .filter(|node| node.report.is_of_a_node())
        .filter(has)
        .map(|node| node.name)
        .collect();
    match having.as_slice() {
        [node] => Ok(Place { node: (*node).to_owned(), name: text.to_owned() }),
        [] => Err(Error::Target(format!(
            "nothing is called `{}`: no pod, claim or volume (namespace {}; -n chooses another), and no drive by its id or, if it is not good, its serial number; names that only a node knows need --node",
            echo(text),
            api.namespace
        ))),
        several => Err(Error::Target(format!(
            "several nodes have the drive `{}`: {}; give --node",
            echo(text),
            several.join(", ")
        ))),
    }
}

/// kubectl's arguments.
fn words(options: &Options, namespace: &str, pod: &str, name: &str) -> Vec<String> {
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
    words.extend(["explain", "--", name].map(str::to_owned));
    words
}

/// For a POSIX shell.
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
        let words = words(&options, "storage", "dv-daemon-1", "--socket=/x");
        let command: Vec<String> =
            words.iter().filter(|it| *it != "-it").map(|it| quoted(it)).collect();
        assert_eq!(
            command.join(" "),
            "'--context=eu prod' exec --namespace storage dv-daemon-1 --container diskvitalsd -- diskvitals --no-color explain -- --socket=/x"
        );
        assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
    }
}
