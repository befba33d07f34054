//! The owner with a judge of its own: layers that failed have a finding, layers that answer have
//! none. Time is tokio's paused clock.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::Receiver;

use super::*;
use crate::model::block::LayerState;
use crate::model::dev::DevNo;
use crate::model::facts::KnownVolume;
use crate::model::finding::{FindingDetails, Health, Judgement, Status, Subject, Verdict};
use crate::model::ids::{DriveId, FindingId};
use crate::model::observation::Observation;
use crate::model::policy::Policy;
use crate::model::reason::Reason;
use crate::model::snapshot::Volume;
use crate::model::snapshot_builder::{StatusRules, VolumeStatus};
use crate::model::volume::{Condition, CsiStatus, OperationalStatus, UsageStatus};
use crate::state::handle::SubscriptionStart;
use crate::state::judge::AssessmentSettings;
use crate::state::store::{StoreContents, WriteRequest};

#[derive(Debug, Default)]
struct FakeJudge {
    assessments: Arc<AtomicUsize>,
}

impl StatusRules for FakeJudge {
    fn health_unknown(&self, _: &Facts, _: &Subject) -> Option<String> {
        None
    }

    fn volume_status(
        &self,
        _: &Facts,
        _: &KnownVolume,
        _: &[Arc<Finding>],
        _: Health,
        _: Option<(&str, Timestamp)>,
        _: Option<&Volume>,
    ) -> VolumeStatus {
        VolumeStatus {
            csi_status: CsiStatus::None,
            operational_status: OperationalStatus::Operative,
            usage_status: UsageStatus::Idle,
            condition: Condition::default(),
        }
    }
}

impl Judge for FakeJudge {
    fn apply(
        &self,
        facts: &mut Facts,
        report: SourceUpdate,
        _: &AssessmentSettings,
        _: Timestamp,
    ) -> Urgency {
        match report {
            SourceUpdate::Layer { device, state } => {
                facts.layers.entry(device).or_default().state = state;
                Urgency::Immediate
            }
            SourceUpdate::DiskStats(_) => Urgency::UsageOnly,
            _ => Urgency::Nothing,
        }
    }

    fn is_settled(&self, facts: &Facts) -> bool {
        facts.layers.contains_key("settled")
    }

    fn probe_targets(&self, facts: &Facts) -> Vec<ProbeTarget> {
        let target = |name: &String| ProbeTarget {
            path: name.as_str().into(),
            dev: DevNo::new(8, 0),
            asleep: false,
            filesystem: String::new(),
        };
        facts.layers.keys().map(target).collect()
    }

    fn assess(&self, facts: &Facts, _: &Ledger, _: &Policy, _: Timestamp) -> Vec<Judgement> {
        self.assessments.fetch_add(1, Ordering::Relaxed);
        let verdict = |state: &Observation<LayerState>| match state {
            Observation::Unavailable => Verdict::Unknown {
                why: "not asked".to_owned(),
            },
            Observation::Ok { .. } => Verdict::Clear,
            Observation::Failed { error, .. } => Verdict::Raised(FindingDetails {
                severity: if error == "bad" {
                    Severity::Bad
                } else {
                    Severity::Suspect
                },
                status: Status::Degraded,
                message: error.clone(),
                evidence: Vec::new(),
                clears_when: "it answers".to_owned(),
                since: None,
            }),
        };
        let judgement = |(device, layer): (&String, &crate::model::facts::LayerFacts)| Judgement {
            subject: Subject::Device(device.clone()),
            reason: Reason::RaidDegraded,
            verdict: verdict(&layer.state),
        };
        facts.layers.iter().map(judgement).collect()
    }

    fn prune_drives(&self, _: &mut Facts, _: &AssessmentSettings, _: Timestamp) -> Vec<DriveId> {
        Vec::new()
    }
}

struct Harness {
    handles: OwnerHandles,
    ops: Receiver<WriteRequest>,
    store: mpsc::Sender<StoreEvent>,
    assessments: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
    _ended: oneshot::Sender<()>,
    _rules: watch::Sender<SharedAssessmentSettings>,
}

fn harness() -> Harness {
    let (disk, ops, ended, store, events) = Store::fake();
    let (rules_sender, rules) = watch::channel(SharedAssessmentSettings::default());
    let judge = FakeJudge::default();
    let assessments = judge.assessments.clone();
    let (owner, doors) = Owner::new(judge, rules, disk, events);
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(owner.run(async {
        stopped.await.ok();
    }));
    Harness {
        handles: doors,
        ops,
        store,
        assessments,
        stop,
        task,
        _ended: ended,
        _rules: rules_sender,
    }
}

impl Harness {
    async fn report(&self, device: &str, state: Observation<LayerState>) {
        self.handles
            .reports
            .send(SourceUpdate::Layer {
                device: device.to_owned(),
                state,
            })
            .await
            .unwrap();
    }

    async fn fail(&self, device: &str, error: &str) {
        self.report(device, Observation::failed(clock::now(), error))
            .await;
    }

    async fn until(&self, holds: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut snapshots = self.handles.handle.snapshots();
        snapshots
            .wait_for(|snapshot| holds(snapshot))
            .await
            .unwrap()
            .clone()
    }

    async fn one(&self) -> Finding {
        let snapshot = self.until(|snapshot| snapshot.findings.len() == 1).await;
        only(&snapshot)
    }

    /// The ops so far, each confirmed.
    fn take_ops(&self) -> Vec<crate::state::store::WriteBatch> {
        let ops = self.ops.try_iter();
        ops.map(|op| {
            op.acks
                .into_iter()
                .for_each(|stored| drop(stored.send(Ok(()))));
            op.write
        })
        .collect()
    }

    async fn open(&self, loaded: StoreContents) {
        self.store
            .send(StoreEvent::Opened(Box::new(loaded)))
            .await
            .unwrap();
        self.store
            .send(StoreEvent::Status(StoreStatus::Ok))
            .await
            .unwrap();
    }

    async fn in_memory(&self) {
        self.store
            .send(StoreEvent::Status(StoreStatus::MemoryOnly(
                "no disk".to_owned(),
            )))
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
    let house = harness();
    house.open(StoreContents::default()).await;
    house.until(|snapshot| snapshot.settled).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    house.fail("one", "bad").await;
    house.until(|snapshot| snapshot.findings.len() == 1).await;
    assert!(
        start.elapsed() <= MIN_PUBLISH_INTERVAL,
        "{:?}",
        start.elapsed()
    );
    let before = house.assessments.load(Ordering::Relaxed);
    for device in 0..500 {
        house.fail(&format!("md{device}"), "bad").await;
        tokio::task::yield_now().await;
    }
    house.until(|snapshot| snapshot.findings.len() == 501).await;
    assert!(house.assessments.load(Ordering::Relaxed) - before <= 10);
    assert_eq!(house.handles.probe_targets.borrow().len(), 501);
}

#[tokio::test(start_paused = true)]
async fn usage_only_changes_are_published_after_a_delay() {
    let house = harness();
    house.open(StoreContents::default()).await;
    house.until(|snapshot| snapshot.settled).await;
    tokio::time::sleep(Duration::from_millis(1010)).await;
    let before = house.assessments.load(Ordering::Relaxed);
    for _ in 0..20 {
        house
            .handles
            .reports
            .send(SourceUpdate::DiskStats(Observation::Unavailable))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(USAGE_DELAY).await;
    assert!(house.assessments.load(Ordering::Relaxed) - before <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_settled_when_the_judge_says_so_or_after_the_timeout() {
    let start = Instant::now();
    let early = harness();
    early.in_memory().await;
    early.report("settled", Observation::Unavailable).await;
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
    let house = harness();
    house.open(StoreContents::default()).await;
    house.fail("md0", "bad").await;
    let id = house.one().await.id;
    house.take_ops();
    let handle = house.handles.handle.clone();
    let mut answer = tokio::spawn({
        let id = id.clone();
        async move {
            handle
                .acknowledge(id, "uid 0".to_owned(), "known".to_owned())
                .await
        }
    });
    house
        .until(|snapshot| only(snapshot).acknowledged.is_some())
        .await;
    assert!(
        timeout(Duration::from_secs(1), &mut answer).await.is_err(),
        "not before it is stored"
    );
    let writes = house.take_ops();
    assert!(writes.iter().any(|write| {
        write
            .findings
            .iter()
            .any(|finding| finding.id == id && finding.acknowledged.is_some())
    }));
    assert!(answer.await.unwrap().unwrap().acknowledged.is_some());
    assert!(matches!(
        house
            .handles
            .handle
            .unacknowledge(FindingId::known("x"))
            .await,
        Err(CommandError::NoSuchFinding(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_hung_disk_fails_the_acknowledgement_and_blocks_nothing_else() {
    let house = harness();
    house.open(StoreContents::default()).await;
    house.fail("md0", "bad").await;
    let id = house.one().await.id;
    let result = house
        .handles
        .handle
        .acknowledge(id, "uid 0".to_owned(), "known".to_owned())
        .await;
    assert!(
        matches!(result, Err(CommandError::NotStored(_))),
        "{result:?}"
    );
    for round in 0..200 {
        house
            .fail("md0", if round % 2 == 0 { "suspect" } else { "bad" })
            .await;
        house.fail("md1", &round.to_string()).await;
        tokio::time::sleep(MIN_PUBLISH_INTERVAL * 2).await;
    }
    house
        .until(|snapshot| {
            snapshot
                .findings
                .values()
                .any(|finding| finding.message == "199")
        })
        .await;
    assert!(house.take_ops().len() <= 64);
    // The queue was full meanwhile; it is caught up with by a write of everything.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        house
            .take_ops()
            .iter()
            .any(|write| write.is_complete && write.findings.len() == 2)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_store_an_acknowledgement_holds_in_memory_and_is_written_when_the_store_is_back()
{
    let house = harness();
    house.in_memory().await;
    house.fail("md0", "bad").await;
    let id = house.one().await.id;
    assert_eq!(
        house.handles.handle.snapshot().node.store,
        StoreStatus::MemoryOnly("no disk".to_owned())
    );
    house
        .handles
        .handle
        .acknowledge(id, "uid 0".to_owned(), "known".to_owned())
        .await
        .unwrap();
    assert!(house.take_ops().is_empty());
    house.open(StoreContents::default()).await;
    house
        .until(|snapshot| snapshot.node.store == StoreStatus::Ok)
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = house.take_ops();
    assert!(writes[0].is_complete && writes[0].findings[0].acknowledged.is_some());
}

#[tokio::test(start_paused = true)]
async fn history_that_loads_late_is_merged_with_new_findings() {
    let house = harness();
    house.fail("md0", "bad").await;
    let young = house.one().await;
    let acknowledged = Some(crate::model::finding::Acknowledgement {
        by: "a".to_owned(),
        time: young.since,
        note: "b".to_owned(),
    });
    let old = Finding {
        id: FindingId::known("0ld"),
        acknowledged,
        ..young.clone()
    };
    let other = Finding {
        id: FindingId::known("0ther"),
        subject: Subject::Device("md9".to_owned()),
        ..young.clone()
    };
    house
        .open(StoreContents {
            findings: vec![old.clone(), other],
            ..StoreContents::default()
        })
        .await;
    let snapshot = house.until(|snapshot| snapshot.findings.len() == 2).await;
    assert!(
        snapshot.findings[&old.id].acknowledged.is_some()
            && !snapshot.findings.contains_key(&young.id)
    );
}

#[tokio::test(start_paused = true)]
async fn a_watcher_resumes_after_its_revision_or_gets_a_full_snapshot() {
    let house = harness();
    house.open(StoreContents::default()).await;
    let begin = house.until(|snapshot| snapshot.settled).await;
    house.fail("md0", "bad").await;
    house.until(|snapshot| snapshot.findings.len() == 1).await;
    let mut subscription = house
        .handles
        .handle
        .subscribe(Some(begin.revision))
        .await
        .unwrap();
    match &subscription.start {
        SubscriptionStart::Resume(changes) => assert_eq!(
            changes
                .iter()
                .map(|change| change.revision)
                .collect::<Vec<_>>(),
            [begin.revision + 1]
        ),
        other => panic!("{other:?}"),
    }
    house.fail("md1", "bad").await;
    assert_eq!(
        subscription.changes.recv().await.unwrap().revision,
        begin.revision + 2
    );
    for unknown in [None, Some(0), Some(begin.revision - 1), Some(u64::MAX)] {
        let start = house.handles.handle.subscribe(unknown).await.unwrap().start;
        assert!(
            matches!(&start, SubscriptionStart::Snapshot(snapshot) if snapshot.revision == begin.revision + 2),
            "{start:?}"
        );
    }
    for round in 0..change_stream::MAX_BUFFERED + 10 {
        house.fail("md1", &round.to_string()).await;
        house
            .until(|snapshot| {
                snapshot
                    .findings
                    .values()
                    .any(|finding| finding.message == round.to_string())
            })
            .await;
        house.take_ops();
    }
    assert!(matches!(
        house
            .handles
            .handle
            .subscribe(Some(begin.revision))
            .await
            .unwrap()
            .start,
        SubscriptionStart::Snapshot(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn transitions_and_requests_are_forwarded_and_the_heartbeat_advances() {
    let house = harness();
    house.in_memory().await;
    let (mut transitions, mut requests) = (
        house.handles.transitions.subscribe(),
        house.handles.requests.subscribe(),
    );
    house.fail("md0", "suspect").await;
    assert_eq!(
        transitions.recv().await.unwrap().kind,
        TransitionKind::Raised
    );
    house.fail("md0", "bad").await;
    assert_eq!(
        transitions.recv().await.unwrap().kind,
        TransitionKind::Worsened
    );
    house
        .report("md0", Observation::ok(clock::now(), LayerState::Plain))
        .await;
    assert_eq!(transitions.recv().await.unwrap().to, None);
    house
        .handles
        .handle
        .refresh(SourceRequest::All)
        .await
        .unwrap();
    assert_eq!(requests.recv().await.unwrap(), SourceRequest::All);
    let before = house.handles.heartbeat.count();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(house.handles.heartbeat.count() >= before + 9);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_at_most_a_second_for_the_disk() {
    let house = harness();
    house.open(StoreContents::default()).await;
    house.until(|snapshot| snapshot.settled).await;
    let start = Instant::now();
    house.stop.send(()).unwrap();
    house.task.await.unwrap();
    assert!(start.elapsed() >= FLUSH_TIMEOUT && start.elapsed() < FLUSH_TIMEOUT * 2);
    assert!(matches!(
        house
            .handles
            .handle
            .acknowledge(FindingId::known("x"), String::new(), String::new())
            .await,
        Err(CommandError::Stopping)
    ));
}
