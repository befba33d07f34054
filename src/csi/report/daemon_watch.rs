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
use crate::report::node_snapshot::{ApplyOutcome, DriverStorage, NodeSnapshot, StaleMount};
use crate::report::{DaemonView, Outage, ReportTiming, maybe_sleep_until, now};
use diskvitals_wire::client::Client;

/// `with_storage`: what only the NodeStorage object says is read as well.
pub(crate) async fn run(
    agent: Agent,
    view: watch::Sender<DaemonView>,
    timing: &ReportTiming,
    with_storage: bool,
) -> Infallible {
    loop {
        let status = match follow(&agent, &view, timing, with_storage).await {
            Err(status) => status,
            Ok(never) => match never {},
        };
        set_outage(&view, status.message());
        // The next query triggers a connection attempt at once.
        tokio::time::sleep(timing.initial_backoff).await;
    }
}

/// Keeps the start of the outage; the reason may change.
fn set_outage(view: &watch::Sender<DaemonView>, why: &str) {
    view.send_if_modified(|view| {
        let same = view.outage.as_ref().is_some_and(|lost| lost.why == why);
        let since = view.outage.as_ref().map_or_else(Instant::now, |lost| lost.since);
        view.outage = Some(Outage { since, why: why.to_owned() });
        !same
    });
}

async fn follow(
    agent: &Agent,
    view: &watch::Sender<DaemonView>,
    timing: &ReportTiming,
    with_storage: bool,
) -> Result<Infallible, Status> {
    let mut events = agent.query(|client: Client| async move { client.watch(0).await }).await?;
    let mut snapshot = NodeSnapshot::default();
    // The time of the next query for the daemon's node; None until the snapshot is complete.
    let mut next_poll = None;
    // The time limit for a snapshot that is partial or older than the node's revision.
    let mut complete_by = Some(Instant::now() + timing.poll_interval);
    let mut revision = 0;
    loop {
        tokio::select! {
            event = events.message() => {
                let event = event?.ok_or_else(|| Status::unavailable("it has ended the Watch"))?;
                revision = event.revision;
                match snapshot.apply(event) {
                    ApplyOutcome::Partial => (next_poll, complete_by) = (None, complete_by.or(Some(Instant::now() + timing.poll_interval))),
                    ApplyOutcome::Complete => {
                        for finding in agent.query(|client: Client| async move { client.findings(true).await }).await?.findings {
                            snapshot.record_cleared(finding);
                        }
                        (next_poll, complete_by) = (Some(Instant::now()), None);
                    }
                    ApplyOutcome::Changed => next_poll = next_poll.map(|due: Instant| due.min(Instant::now() + timing.debounce)),
                }
            }
            () = maybe_sleep_until(next_poll) => {
                let node = agent.query(|client: Client| async move { client.node().await }).await?;
                // The node may report a change (for example settled) before Watch has sent all
                // earlier changes.
                if revision < node.revision {
                    complete_by = complete_by.or(Some(Instant::now() + timing.poll_interval));
                    next_poll = Some(Instant::now() + timing.debounce);
                    continue;
                }
                snapshot.update_node(&node, now());
                if with_storage {
                    snapshot.stale = stale_mounts(agent).await?;
                    snapshot.driver_storage = driver_storage(agent, &snapshot).await?;
                }
                publish(view, &snapshot);
                (next_poll, complete_by) = (Some(Instant::now() + timing.poll_interval), None);
            }
            () = maybe_sleep_until(complete_by) => return Err(Status::unavailable("it does not send a complete snapshot in time")),
        }
    }
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

fn publish(view: &watch::Sender<DaemonView>, snapshot: &NodeSnapshot) {
    if !snapshot.settled {
        return set_outage(view, "it has just started and has no complete snapshot yet");
    }
    view.send_if_modified(|view| {
        let same = view.outage.is_none() && view.snapshot.as_deref() == Some(snapshot);
        if !same {
            *view = DaemonView { snapshot: Some(Arc::new(snapshot.clone())), outage: None };
        }
        !same
    });
}
