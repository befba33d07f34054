//! `explain`: finds the node that has the thing, and runs `diskvitals explain` in its daemon's pod.

use std::process::ExitCode;

use crate::api::Api;
use crate::args::{ExplainArgs, Options};
use crate::target::{Found, find};
use crate::view::fence::{Reach, reach};
use crate::view::nodes::nodes;
use crate::{Error, exec, gather, view};
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
    let command = ["explain", "--", &place.name];
    exec::run(api, options, &place.node, args.daemon_namespace.as_deref(), &command).await
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
