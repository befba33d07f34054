//! The owner with the real model: md arrays that are degraded have a finding, whole ones have none.
//! Time is tokio's paused clock.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::Receiver;

use jiff::SignedDuration;
use tokio::sync::oneshot;

use super::*;
use crate::state::handle::{CommandError, SubscriptionStart};
use crate::state::store::WriteRequest;
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::kubelet::KubeletRecords;
use diskvitals_finding::mount::MountTable;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::{Finding, SeenLevel};
use diskvitals_kernel_log::event::Batch;
use diskvitals_model::block::{Inventory, LayerState};
use diskvitals_model::maintenance::{MaintenanceOrder, MaintenanceTarget};
use diskvitals_model::stack::MdState;

/// A mirror of `disks` members that lacks `degraded` of them.
fn mirror(disks: u32, degraded: u32) -> MdState {
    MdState {
        level: "raid1".to_owned(),
        raid_disks: disks,
        degraded,
        array_state: "clean".to_owned(),
        ..MdState::default()
    }
}

struct Harness {
    handles: OwnerHandles,
    ops: Receiver<WriteRequest>,
    store: mpsc::Sender<StoreEvent>,
    /// Snapshots that were published.
    publications: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
    _ended: oneshot::Sender<()>,
    _rules: watch::Sender<SharedAssessmentSettings>,
}

fn harness() -> Harness {
    let (disk, ops, ended, store, events) = Store::fake();
    let (rules_sender, rules) = watch::channel(SharedAssessmentSettings::default());
    let (owner, handles) = Owner::new(rules, disk, events, TimerGrid::start());
    let publications = Arc::<AtomicUsize>::default();
    let (mut snapshots, counter) = (handles.handle.snapshots(), publications.clone());
    tokio::spawn(async move {
        while snapshots.changed().await.is_ok() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(owner.run(async {
        stopped.await.ok();
    }));
    Harness { handles, ops, store, publications, stop, task, _ended: ended, _rules: rules_sender }
}

impl Harness {
    async fn send(&self, report: SourceUpdate) {
        self.handles.reports.send(report).await.unwrap();
    }

    async fn report(&self, device: &str, state: MdState) {
        self.send(SourceUpdate::Layer {
            device: device.to_owned(),
            state: Observation::ok(clock::now(), LayerState::Md(state)),
        })
        .await;
    }

    /// Suspect; the finding's message has `of DISKS devices: it survives…`.
    async fn degrade(&self, device: &str, disks: u32) {
        let level = "raid6".to_owned();
        self.report(device, MdState { level, ..mirror(disks, 1) }).await;
    }

    /// Bad.
    async fn stop_array(&self, device: &str) {
        let array_state = "inactive".to_owned();
        self.report(device, MdState { array_state, ..mirror(2, 0) }).await;
    }

    async fn until(&self, holds: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut snapshots = self.handles.handle.snapshots();
        snapshots.wait_for(|snapshot| holds(snapshot)).await.unwrap().clone()
    }

    async fn one(&self) -> Finding {
        let snapshot = self.until(|snapshot| snapshot.findings.len() == 1).await;
        only(&snapshot)
    }

    /// The ops so far, each confirmed.
    fn take_ops(&self) -> Vec<crate::state::store::WriteBatch> {
        let ops = self.ops.try_iter();
        ops.map(|op| {
            op.acks.into_iter().for_each(|stored| drop(stored.send(Ok(()))));
            op.write
        })
        .collect()
    }

    async fn open(&self, loaded: StoreContents) {
        self.store.send(StoreEvent::Opened(Box::new(loaded))).await.unwrap();
        self.store.send(StoreEvent::Status(StoreStatus::Ok)).await.unwrap();
    }

    async fn in_memory(&self) {
        self.store
            .send(StoreEvent::Status(StoreStatus::MemoryOnly("no disk".to_owned())))
            .await
            .unwrap();
    }
}

fn only(snapshot: &Snapshot) -> Finding {
    assert_eq!(snapshot.findings.len(), 1);
    (**snapshot.findings.values().next().unwrap()).clone()
}

#[tokio::test(start_paused = true)]
async fn one_report_is_published_within_20_ms_and_a_burst_is_judged_a_few_times() {
    let owner = harness();
    owner.open(StoreContents::default()).await;
    owner.until(|snapshot| snapshot.settled).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    owner.stop_array("one").await;
    owner.until(|snapshot| snapshot.findings.len() == 1).await;
    assert!(start.elapsed() <= MIN_PUBLISH_INTERVAL, "{:?}", start.elapsed());
    let before = owner.publications.load(Ordering::Relaxed);
    for device in 0..500 {
        owner.stop_array(&format!("md{device}")).await;
        tokio::task::yield_now().await;
    }
    owner.until(|snapshot| snapshot.findings.len() == 501).await;
    assert!(owner.publications.load(Ordering::Relaxed) - before <= 10);
}

#[tokio::test(start_paused = true)]
async fn usage_only_changes_are_published_after_a_delay() {
    let owner = harness();
    owner.open(StoreContents::default()).await;
    owner.until(|snapshot| snapshot.settled).await;
    let rebuilding = |done| MdState {
        sync_action: Some("recover".to_owned()),
        sync_completed: Some((done, 100)),
        ..mirror(2, 1)
    };
    owner.report("md0", rebuilding(0)).await;
    tokio::time::sleep(USAGE_DELAY + MIN_PUBLISH_INTERVAL).await;
    let before = owner.publications.load(Ordering::Relaxed);
    for done in 1..=20 {
        owner.report("md0", rebuilding(done)).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(USAGE_DELAY).await;
    assert!(matches!(owner.publications.load(Ordering::Relaxed) - before, 1..=2));
    let message = owner.one().await.message;
    assert!(message.contains("; rebuild, 20 % done"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_settled_when_each_source_has_answered_or_after_the_timeout() {
    let start = Instant::now();
    let early = harness();
    early.in_memory().await;
    let at = clock::now();
    early.send(SourceUpdate::Inventory(Observation::ok(at, Inventory::default()))).await;
    early.send(SourceUpdate::Mounts(Observation::ok(at, MountTable::default()))).await;
    early.send(SourceUpdate::Kubelet(Observation::ok(at, KubeletRecords::default()))).await;
    early.send(SourceUpdate::Counters(Observation::ok(at, Vec::new()))).await;
    early
        .send(SourceUpdate::Source {
            source: Source::KernelLog,
            status: SourceStatus::Absent("switched off".to_owned()),
        })
        .await;
    early.until(|snapshot| snapshot.settled).await;
    assert!(start.elapsed() < SETTLE_TIMEOUT);
    let late = harness();
    late.until(|snapshot| snapshot.settled).await;
    assert!(
        start.elapsed() >= SETTLE_TIMEOUT
            && start.elapsed() < SETTLE_TIMEOUT + Duration::from_secs(1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_is_answered_when_it_is_on_disk() {
    let owner = harness();
    owner.open(StoreContents::default()).await;
    owner.stop_array("md0").await;
    let id = owner.one().await.id;
    owner.take_ops();
    let handle = owner.handles.handle.clone();
    let mut answer = tokio::spawn({
        let id = id.clone();
        async move {
            handle
                .acknowledge(
                    id,
                    "uid 0".to_owned(),
                    "known".to_owned(),
                    SeenLevel::default(),
                    false,
                )
                .await
        }
    });
    owner.until(|snapshot| only(snapshot).acknowledged.is_some()).await;
    assert!(timeout(Duration::from_secs(1), &mut answer).await.is_err(), "not before it is stored");
    let writes = owner.take_ops();
    assert!(writes.iter().any(|write| {
        write
            .findings
            .upserted
            .iter()
            .any(|(key, finding)| *key == id && finding.acknowledged.is_some())
    }));
    assert!(answer.await.unwrap().unwrap().acknowledged.is_some());
    assert!(matches!(
        owner.handles.handle.unacknowledge(FindingId::known("x")).await,
        Err(CommandError::NoSuchFinding(_))
    ));
}

fn md0() -> MaintenanceTarget {
    MaintenanceTarget::Subject(Subject::Device("md0".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn maintenance_is_answered_when_it_is_on_disk_and_ends_by_itself_over_a_restart() {
    let owner = harness();
    owner.open(StoreContents::default()).await;
    owner.degrade("md0", 4).await;
    owner.one().await;
    owner.take_ops();
    let handle = owner.handles.handle.clone();
    let mut answer = tokio::spawn(async move {
        let (by, note) = ("uid 0".to_owned(), "cable".to_owned());
        handle.start_maintenance(md0(), by, note, Duration::from_secs(3600)).await
    });
    owner.until(|snapshot| only(snapshot).maintained).await;
    assert!(timeout(Duration::from_secs(1), &mut answer).await.is_err(), "not before it is stored");
    let writes = owner.take_ops().into_iter();
    let stored: Vec<_> = writes.flat_map(|write| write.maintenance.upserted).collect();
    assert_eq!(stored, [(md0(), answer.await.unwrap().unwrap())]);

    let restarted = async |order: MaintenanceOrder| {
        let owner = harness();
        let maintenance = vec![(md0(), Arc::new(order))];
        owner.open(StoreContents { maintenance, ..StoreContents::default() }).await;
        owner.degrade("md0", 4).await;
        let maintained = owner.one().await.maintained;
        (maintained, owner.handles.handle.snapshot().maintenance.len())
    };
    let order = (*stored[0].1).clone();
    assert_eq!(restarted(order.clone()).await, (true, 1));
    let since = clock::now() - SignedDuration::from_secs(3600);
    assert_eq!(restarted(MaintenanceOrder { since, ..order }).await, (false, 0));
}

#[tokio::test(start_paused = true)]
async fn maintenance_is_ended_by_a_command_once() {
    let owner = harness();
    owner.in_memory().await;
    owner.degrade("md0", 4).await;
    owner.one().await;
    let handle = &owner.handles.handle;
    let length = Duration::from_secs(3600);
    handle.start_maintenance(md0(), String::new(), String::new(), length).await.unwrap();
    assert!(owner.one().await.maintained);
    handle.end_maintenance(md0()).await.unwrap();
    assert!(!owner.one().await.maintained);
    let again = handle.end_maintenance(md0()).await;
    assert!(matches!(again, Err(CommandError::NotInMaintenance(_))), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hung_disk_fails_the_acknowledgement_and_blocks_nothing_else() {
    let owner = harness();
    owner.open(StoreContents::default()).await;
    owner.stop_array("md0").await;
    let id = owner.one().await.id;
    let result = owner
        .handles
        .handle
        .acknowledge(id, "uid 0".to_owned(), "known".to_owned(), SeenLevel::default(), false)
        .await;
    assert!(matches!(result, Err(CommandError::NotStored(_))), "{result:?}");
    for round in 0..200 {
        match round % 2 {
            0 => owner.degrade("md0", 2).await,
            _ => owner.stop_array("md0").await,
        }
        owner.degrade("md1", round + 2).await;
        tokio::time::sleep(MIN_PUBLISH_INTERVAL * 2).await;
    }
    owner
        .until(|snapshot| {
            snapshot.findings.values().any(|finding| finding.message.contains("of 201 devices:"))
        })
        .await;
    assert!(owner.take_ops().len() <= 64);
    // The queue was full meanwhile; it is caught up with by a write of everything.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        owner
            .take_ops()
            .iter()
            .any(|write| write.is_complete && write.findings.upserted.len() == 2)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_store_an_acknowledgement_holds_in_memory_and_is_written_when_the_store_is_back()
{
    let owner = harness();
    owner.in_memory().await;
    owner.stop_array("md0").await;
    let id = owner.one().await.id;
    assert_eq!(
        owner.handles.handle.snapshot().node.store,
        StoreStatus::MemoryOnly("no disk".to_owned())
    );
    owner
        .handles
        .handle
        .acknowledge(id, "uid 0".to_owned(), "known".to_owned(), SeenLevel::default(), false)
        .await
        .unwrap();
    assert!(owner.take_ops().is_empty());
    owner.open(StoreContents::default()).await;
    owner.until(|snapshot| snapshot.node.store == StoreStatus::Ok).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = owner.take_ops();
    assert!(writes[0].is_complete && writes[0].findings.upserted[0].1.acknowledged.is_some());
}

#[tokio::test(start_paused = true)]
async fn history_that_loads_late_is_merged_with_new_findings() {
    let owner = harness();
    owner.stop_array("md0").await;
    let young = owner.one().await;
    let acknowledged = Some(diskvitals_finding::Acknowledgement {
        by: "a".to_owned(),
        time: young.since,
        note: "b".to_owned(),
    });
    let old = Finding { id: FindingId::known("0ld"), acknowledged, ..young.clone() };
    let other = Finding {
        id: FindingId::known("0ther"),
        subject: Subject::Device("md9".to_owned()),
        ..young.clone()
    };
    owner
        .open(StoreContents { findings: vec![old.clone(), other], ..StoreContents::default() })
        .await;
    let snapshot = owner.until(|snapshot| snapshot.findings.len() == 2).await;
    assert!(
        snapshot.findings[&old.id].acknowledged.is_some()
            && !snapshot.findings.contains_key(&young.id)
    );
}

#[tokio::test(start_paused = true)]
async fn a_watcher_resumes_after_its_revision_or_gets_a_full_snapshot() {
    let owner = harness();
    owner.open(StoreContents::default()).await;
    let begin = owner.until(|snapshot| snapshot.settled).await;
    owner.stop_array("md0").await;
    owner.until(|snapshot| snapshot.findings.len() == 1).await;
    let mut subscription = owner.handles.handle.subscribe(Some(begin.revision)).await.unwrap();
    match &subscription.start {
        SubscriptionStart::Resume(changes) => assert_eq!(
            changes.iter().map(|change| change.revision).collect::<Vec<_>>(),
            [begin.revision + 1, begin.revision + 2],
            "a finding and its cause"
        ),
        other => panic!("{other:?}"),
    }
    owner.stop_array("md1").await;
    assert_eq!(subscription.changes.recv().await.unwrap().revision, begin.revision + 3);
    for unknown in [None, Some(0), Some(begin.revision - 1), Some(u64::MAX)] {
        let start = owner.handles.handle.subscribe(unknown).await.unwrap().start;
        assert!(
            matches!(&start, SubscriptionStart::Snapshot(snapshot) if snapshot.revision == begin.revision + 4),
            "{start:?}"
        );
    }
    for round in 0..u32::try_from(change_stream::MAX_BUFFERED).unwrap() + 10 {
        owner.degrade("md1", round + 2).await;
        owner
            .until(|snapshot| {
                snapshot
                    .findings
                    .values()
                    .any(|finding| finding.message.contains(&format!("of {} devices:", round + 2)))
            })
            .await;
        owner.take_ops();
    }
    assert!(matches!(
        owner.handles.handle.subscribe(Some(begin.revision)).await.unwrap().start,
        SubscriptionStart::Snapshot(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn requests_are_forwarded_and_the_heartbeat_advances() {
    let owner = harness();
    owner.in_memory().await;
    let mut requests = owner.handles.requests.subscribe();
    let before = owner.handles.heartbeat.count();
    owner.handles.handle.refresh(SourceRequest::All).await.unwrap();
    assert_eq!(requests.recv().await.unwrap(), SourceRequest::All);
    assert!(owner.handles.heartbeat.count() > before, "whatever the loop does");
    let before = owner.handles.heartbeat.count();
    tokio::time::sleep(TICK_INTERVAL + 2 * COALESCE_DELAY).await;
    assert!(owner.handles.heartbeat.count() > before);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_at_most_a_second_for_the_disk() {
    let owner = harness();
    owner.open(StoreContents::default()).await;
    owner.until(|snapshot| snapshot.settled).await;
    let start = Instant::now();
    owner.stop.send(()).unwrap();
    owner.task.await.unwrap();
    assert!(start.elapsed() >= FLUSH_TIMEOUT && start.elapsed() < FLUSH_TIMEOUT * 2);
    assert!(matches!(
        owner
            .handles
            .handle
            .acknowledge(
                FindingId::known("x"),
                String::new(),
                String::new(),
                SeenLevel::default(),
                false,
            )
            .await,
        Err(CommandError::Stopping)
    ));
}

fn steps(snapshot: &Snapshot) -> Vec<&String> {
    let warnings = snapshot.node.warnings.iter();
    warnings.filter(|text| text.contains("stepped")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_is_shown_and_everything_is_stored_again() {
    let (disk, ops, _ended, _store, events) = Store::fake();
    let (_rules, rules) = watch::channel(SharedAssessmentSettings::default());
    let (mut owner, handles) = Owner::new(rules, disk, events, TimerGrid::start());
    owner.restore(StoreContents::default());
    owner.publish(Vec::new());
    let settings = AssessmentSettings::default();
    let state = Observation::ok(clock::now(), LayerState::Md(mirror(2, 1)));
    let device = "md0".to_owned();
    owner.apply(SourceUpdate::Layer { device, state }, &settings, clock::now());
    owner.publish(Vec::new());
    let before = only(&handles.handle.snapshot());
    drop(ops.try_iter().collect::<Vec<_>>());

    owner.apply_clock_step(SignedDuration::from_hours(48));
    owner.publish(Vec::new());
    let snapshot = handles.handle.snapshot();
    assert_eq!(only(&snapshot).since, before.since);
    assert!(matches!(steps(&snapshot)[..], [text] if text.contains("2 d forward")));
    assert!(ops.try_iter().any(|op| op.write.is_complete));
}

#[tokio::test(start_paused = true)]
async fn a_step_while_no_daemon_ran_is_shown_and_a_small_one_is_not() {
    for (hours, shown) in [(-48, true), (0, false)] {
        let owner = harness();
        owner
            .open(StoreContents {
                clock_step: SignedDuration::from_hours(hours),
                ..StoreContents::default()
            })
            .await;
        let snapshot = owner.until(|snapshot| snapshot.settled).await;
        assert_eq!(!steps(&snapshot).is_empty(), shown);
    }
}

#[tokio::test(start_paused = true)]
async fn a_position_of_the_kernel_log_that_waits_to_be_written_does_not_wake_the_loop() {
    let owner = harness();
    owner.open(StoreContents::default()).await;
    let cursor = Cursor { boot_id: "boot".into(), reread_from: 7, counted_to: Some(7), lost: 0 };
    let batch = Batch {
        events: Vec::new(),
        cursor,
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    owner.send(SourceUpdate::KernelLog(batch)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    owner.take_ops();
    let before = owner.handles.heartbeat.count();
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Six ticks, and what each publishes at once.
    assert_eq!(owner.handles.heartbeat.count() - before, 12);
    // It is written nevertheless.
    tokio::time::sleep(Duration::from_secs(15 * 60)).await;
    assert!(owner.take_ops().iter().any(|write| write.progress.is_some()));
}
