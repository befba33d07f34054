//! Keeps a snapshot of the node up to date from the daemon's Watch, and reports outages of the
//! daemon.
//!
//! In: the connection to the daemon. Out: the view of the daemon, which contains only complete and
//! settled snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::agent::Agent;
use crate::report::node_snapshot::{DriverStorage, NodeSnapshot, StaleMount};
use crate::report::{DaemonView, Outage, ReportTiming, now};
use diskvitals_text::backoff::Backoff;
use diskvitals_wire::client::Client;
use diskvitals_wire::node_watch::{NodeWatch, Settings};

/// `with_storage`: what only the NodeStorage object says is read as well.
pub(crate) async fn run(
    agent: Agent,
    view: watch::Sender<DaemonView>,
    timing: &ReportTiming,
    with_storage: bool,
) -> Infallible {
    let connect = || async {
        let answers = |client: Client| async move { client.node().await.map(|_| client) };
        agent.query(answers).await.map_err(|status| status.message().to_owned())
    };
    let settings = Settings {
        // The next query triggers a connection attempt at once.
        backoff: Backoff::new(timing.initial_backoff, timing.initial_backoff),
        debounce: timing.debounce,
        poll_interval: timing.poll_interval,
        is_urgent: |_| true,
    };
    let mut node_watch = NodeWatch::new(connect, settings);
    loop {
        let current = node_watch.next().await;
        let mut snapshot =
            current.map(|view| NodeSnapshot::from_wire(&view.node, &view.objects, now()));
        if let (true, Ok(known)) = (with_storage, &mut snapshot)
            && let Err(status) = add_storage(&agent, known).await
        {
            node_watch.reconnect();
            snapshot = Err(status.message().to_owned());
        }
        publish(&view, snapshot);
    }
}

async fn add_storage(agent: &Agent, snapshot: &mut NodeSnapshot) -> Result<(), Status> {
    snapshot.stale = stale_mounts(agent).await?;
    snapshot.driver_storage = driver_storage(agent, snapshot).await?;
    Ok(())
}

/// None from a daemon that does not list attachments.
async fn stale_mounts(agent: &Agent) -> Result<Option<Vec<StaleMount>>, Status> {
    let list = |client: Client| async move { client.attachments("", "", true).await };
    match agent.query(list).await {
        Ok(answer) => {
            let mounts = answer.attachments.into_iter();
            Ok(Some(mounts.map(StaleMount::from_wire).collect()))
        }
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(status),
    }
}

async fn driver_storage(
    agent: &Agent,
    snapshot: &NodeSnapshot,
) -> Result<BTreeMap<String, DriverStorage>, Status> {
    let names = snapshot.volumes.values().map(|it| &it.identity.driver);
    let names: BTreeSet<&String> = names.filter(|name| !name.is_empty()).collect();
    let mut drivers = BTreeMap::new();
    for name in names {
        let health = agent.query(|client: Client| {
            let name = name.clone();
            async move { client.storage_health(&name).await }
        });
        let storage = match health.await {
            Ok(health) => DriverStorage::from_wire(&health),
            // The daemon does not know. One that is away ends the Watch too.
            Err(status) if status.code() == Code::Unavailable => {
                DriverStorage::Unknown(status.message().to_owned())
            }
            Err(status) => return Err(status),
        };
        drivers.insert(name.clone(), storage);
    }
    Ok(drivers)
}

/// An outage keeps its start and the last snapshot; its reason may change.
fn publish(view: &watch::Sender<DaemonView>, snapshot: Result<NodeSnapshot, String>) {
    view.send_if_modified(|view| {
        let since = view.outage.as_ref().map_or_else(Instant::now, |lost| lost.since);
        let new = match snapshot {
            Ok(snapshot) => DaemonView { snapshot: Some(Arc::new(snapshot)), outage: None },
            Err(why) => DaemonView { outage: Some(Outage { since, why }), ..view.clone() },
        };
        let before = std::mem::replace(view, new);
        before != *view
    });
}
