//! Watch: the first snapshot, changes, resuming, lagging, and the end.

use std::sync::Arc;
use std::time::Duration;

use diskvitals_daemon::api::server::Limits;
use diskvitals_daemon::state::handle::{ChangeKind, ChangedItem};
use diskvitals_finding::ids::DriveId;
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::{Change, Item as Told};
use tonic::{Code, Streaming};

use super::fixture::{Served, drive, snapshot, within};

async fn next(events: &mut Streaming<wire::WatchEvent>) -> wire::WatchEvent {
    within(30, events.message()).await.unwrap().unwrap()
}

/// Reads up to SNAPSHOT_END; returns the names of the drives.
async fn first_list(events: &mut Streaming<wire::WatchEvent>) -> Vec<String> {
    assert_eq!(next(events).await.change(), Change::SnapshotBegin);
    rest_of_list(events).await
}

async fn rest_of_list(events: &mut Streaming<wire::WatchEvent>) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let event = next(events).await;
        match (event.change(), event.item) {
            (Change::SnapshotEnd, None) => return names,
            (Change::Added, Some(Told::Drive(drive))) => names.push(drive.name),
            (Change::Added, Some(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_watch_sends_the_whole_state_and_then_each_change() {
    let served = Served::start(snapshot(5)).await;
    let mut events = served.client().await.watch(0).await.unwrap();
    assert_eq!(first_list(&mut events).await, ["sda", "sdb"]);
    let revision =
        served.owner.change(ChangeKind::Added, ChangedItem::Drive(Arc::new(drive("sdc", "S3"))));
    let event = next(&mut events).await;
    assert_eq!((event.revision, event.change()), (revision, Change::Added));
    assert!(matches!(event.item, Some(Told::Drive(drive)) if drive.name == "sdc"));
    served.owner.change(ChangeKind::Removed, ChangedItem::Drive(Arc::new(drive("sdc", "S3"))));
    assert_eq!(next(&mut events).await.change(), Change::Removed);
}

#[tokio::test]
async fn a_watch_resumes_after_its_revision_or_starts_again() {
    let served = Served::start(snapshot(0)).await;
    let client = served.client().await;
    let seen =
        served.owner.change(ChangeKind::Added, ChangedItem::Drive(Arc::new(drive("sdc", "S3"))));
    let missed =
        served.owner.change(ChangeKind::Added, ChangedItem::Drive(Arc::new(drive("sdd", "S4"))));
    let mut events = client.watch(seen).await.unwrap();
    let event = next(&mut events).await;
    assert_eq!((event.revision, event.change()), (missed, Change::Added));
    // A revision from before the daemon's start.
    let mut events = client.watch(7).await.unwrap();
    assert_eq!(first_list(&mut events).await, ["sda", "sdb", "sdc", "sdd"]);
}

#[tokio::test]
async fn a_slow_watcher_gets_a_new_snapshot_and_others_are_not_delayed() {
    let served = Served::start(snapshot(0)).await;
    let mut slow = served.client().await.watch(0).await.unwrap();
    first_list(&mut slow).await;
    // Without a reader: far more than the broadcast, the queue and the connection's window hold.
    let mut big = drive("sdz", "S9");
    big.health_unknown_why = "x".repeat(100_000);
    for n in 0..200 {
        big.facts.firmware = Some(n.to_string());
        served.owner.change(ChangeKind::Modified, ChangedItem::Drive(Arc::new(big.clone())));
        tokio::task::yield_now().await;
        if n % 50 == 0 {
            within(30, served.client().await.node()).await.unwrap();
        }
    }
    within(60, async {
        while next(&mut slow).await.change() != Change::SnapshotBegin {}
        assert_eq!(rest_of_list(&mut slow).await, ["sda", "sdb", "sdz"]);
    })
    .await;
}

#[tokio::test]
async fn a_watcher_that_never_reads_is_dropped() {
    let limits = Limits {
        stalled_watcher_timeout: Duration::from_millis(100),
        watchers_per_uid: 1,
        watchers: 1,
        ..Limits::default()
    };
    // More than the windows of a client that does not read can hold.
    let mut snapshot = snapshot(0);
    let mut big = drive("sdz", "S9");
    big.health_unknown_why = "x".repeat(1 << 20);
    for n in 0..40 {
        big.facts.id = DriveId::new(format!("big{n}"));
        snapshot.drives.insert(big.facts.id.clone(), Arc::new(big.clone()));
    }
    let served = Served::with(snapshot, limits).await;
    let client = served.client().await;
    let stalled = client.watch(0).await.unwrap();
    // Its slot becomes free although the client has not disconnected.
    within(60, async {
        loop {
            match served.client().await.watch(0).await {
                Ok(_) => break,
                Err(error) => assert!(error.to_string().contains("too many watches"), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    drop(stalled);
}

#[tokio::test]
async fn a_shutdown_is_announced_to_watchers_and_is_fast() {
    let mut served = Served::start(snapshot(0)).await;
    let mut events = served.client().await.watch(0).await.unwrap();
    first_list(&mut events).await;
    within(30, served.stop()).await;
    let end = within(30, events.message()).await.unwrap_err();
    assert_eq!((end.code(), end.message()), (Code::Unavailable, "the daemon is shutting down"));
    assert!(!served.socket().exists());
}
