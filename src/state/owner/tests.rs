//! The owner with a judge of its own: layers that failed have a finding, layers that answer have
//! none. Time is tokio's paused clock.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::Receiver;

use super::*;
use crate::model::block::LayerState;
use crate::model::dev::DevNo;
use crate::model::facts::KnownVolume;
use crate::model::finding::{Health, Judgement, Raised, Status, Subject, Verdict};
use crate::model::ids::{DriveId, FindingId};
use crate::model::observation::Observation;
use crate::model::picture::{Standing, Verdicts};
use crate::model::policy::Policy;
use crate::model::reason::Reason;
use crate::model::snapshot::Volume;
use crate::model::volume::{Condition, CsiStatus, OperationalStatus, UsageStatus};
use crate::state::handle::Start;
use crate::state::judge::Rules;
use crate::state::store::{Loaded, Op};

#[derive(Debug, Default)]
struct Fake {
    assessments: Arc<AtomicUsize>,
}

impl Verdicts for Fake {
    fn health_unknown(&self, _: &Facts, _: &Subject) -> Option<String> {
        None
    }

    fn standing(
        &self,
        _: &Facts,
        _: &KnownVolume,
        _: &[Arc<Finding>],
        _: Health,
        _: Option<(&str, Timestamp)>,
        _: Option<&Volume>,
    ) -> Standing {
        Standing {
            csi_status: CsiStatus::None,
            operational_status: OperationalStatus::Operative,
            usage_status: UsageStatus::Idle,
            condition: Condition::default(),
        }
    }
}

impl Judge for Fake {
    fn apply(&self, facts: &mut Facts, report: Report, _: &Rules, _: Timestamp) -> Change {
        match report {
            Report::Layer { device, state } => {
                facts.layers.entry(device).or_default().state = state;
                Change::Material
            }
            Report::DiskStats(_) => Change::Figures,
            _ => Change::Nothing,
        }
    }

    fn settled(&self, facts: &Facts) -> bool {
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
            Observation::Failed { error, .. } => Verdict::Raised(Raised {
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

    fn forget(&self, _: &mut Facts, _: &Rules, _: Timestamp) -> Vec<DriveId> {
        Vec::new()
    }
}

struct House {
    doors: Doors,
    ops: Receiver<Op>,
    store: mpsc::Sender<Event>,
    assessments: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
    _ended: oneshot::Sender<()>,
    _rules: watch::Sender<SharedRules>,
}

fn house() -> House {
    let (disk, ops, ended, store, events) = Store::played();
    let (rules_sender, rules) = watch::channel(SharedRules::default());
    let judge = Fake::default();
    let assessments = judge.assessments.clone();
    let (owner, doors) = Owner::new(judge, rules, disk, events);
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(owner.run(async {
        stopped.await.ok();
    }));
    House {
        doors,
        ops,
        store,
        assessments,
        stop,
        task,
        _ended: ended,
        _rules: rules_sender,
    }
}

impl House {
    async fn report(&self, device: &str, state: Observation<LayerState>) {
        self.doors
            .reports
            .send(Report::Layer {
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
        let mut snapshots = self.doors.handle.snapshots();
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
    fn take_ops(&self) -> Vec<crate::state::store::Write> {
        let ops = self.ops.try_iter();
        ops.map(|op| {
            op.stored
                .into_iter()
                .for_each(|stored| drop(stored.send(Ok(()))));
            op.write
        })
        .collect()
    }

    async fn open(&self, loaded: Loaded) {
        self.store
            .send(Event::Opened(Box::new(loaded)))
            .await
            .unwrap();
        self.store
            .send(Event::Status(StoreStatus::Ok))
            .await
            .unwrap();
    }

    async fn in_memory(&self) {
        self.store
            .send(Event::Status(StoreStatus::Memory("no disk".to_owned())))
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
    let house = house();
    house.open(Loaded::default()).await;
    house.until(|snapshot| snapshot.settled).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    house.fail("one", "bad").await;
    house.until(|snapshot| snapshot.findings.len() == 1).await;
    assert!(start.elapsed() <= GAP, "{:?}", start.elapsed());
    let before = house.assessments.load(Ordering::Relaxed);
    for device in 0..500 {
        house.fail(&format!("md{device}"), "bad").await;
        tokio::task::yield_now().await;
    }
    house.until(|snapshot| snapshot.findings.len() == 501).await;
    assert!(house.assessments.load(Ordering::Relaxed) - before <= 10);
    assert_eq!(house.doors.targets.borrow().len(), 501);
}

#[tokio::test(start_paused = true)]
async fn figures_are_judged_without_hurry() {
    let house = house();
    house.open(Loaded::default()).await;
    house.until(|snapshot| snapshot.settled).await;
    tokio::time::sleep(Duration::from_millis(1010)).await;
    let before = house.assessments.load(Ordering::Relaxed);
    for _ in 0..20 {
        house
            .doors
            .reports
            .send(Report::DiskStats(Observation::Unavailable))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(FIGURES_WAIT).await;
    assert!(house.assessments.load(Ordering::Relaxed) - before <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_picture_counts_as_full_when_the_model_says_so_or_after_the_deadline() {
    let start = Instant::now();
    let early = house();
    early.in_memory().await;
    early.report("settled", Observation::Unavailable).await;
    early.until(|snapshot| snapshot.settled).await;
    assert!(start.elapsed() < SETTLE_DEADLINE);
    let late = house();
    late.until(|snapshot| snapshot.settled).await;
    assert!(
        start.elapsed() >= SETTLE_DEADLINE
            && start.elapsed() < SETTLE_DEADLINE + Duration::from_secs(1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_is_answered_when_it_is_on_disk() {
    let house = house();
    house.open(Loaded::default()).await;
    house.fail("md0", "bad").await;
    let id = house.one().await.id;
    house.take_ops();
    let handle = house.doors.handle.clone();
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
            .doors
            .handle
            .unacknowledge(FindingId::known("x"))
            .await,
        Err(CommandError::NoSuchFinding(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_answer_fails_the_acknowledgement_and_holds_up_nothing_else() {
    let house = house();
    house.open(Loaded::default()).await;
    house.fail("md0", "bad").await;
    let id = house.one().await.id;
    let result = house
        .doors
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
        tokio::time::sleep(GAP * 2).await;
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
            .any(|write| write.everything && write.findings.len() == 2)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_store_an_acknowledgement_holds_in_memory_and_is_written_when_the_store_is_back()
{
    let house = house();
    house.in_memory().await;
    house.fail("md0", "bad").await;
    let id = house.one().await.id;
    assert_eq!(
        house.doors.handle.snapshot().node.store,
        StoreStatus::Memory("no disk".to_owned())
    );
    house
        .doors
        .handle
        .acknowledge(id, "uid 0".to_owned(), "known".to_owned())
        .await
        .unwrap();
    assert!(house.take_ops().is_empty());
    house.open(Loaded::default()).await;
    house
        .until(|snapshot| snapshot.node.store == StoreStatus::Ok)
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = house.take_ops();
    assert!(writes[0].everything && writes[0].findings[0].acknowledged.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_the_store_remembers_late_joins_what_was_found_meanwhile() {
    let house = house();
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
        .open(Loaded {
            findings: vec![old.clone(), other],
            ..Loaded::default()
        })
        .await;
    let snapshot = house.until(|snapshot| snapshot.findings.len() == 2).await;
    assert!(
        snapshot.findings[&old.id].acknowledged.is_some()
            && !snapshot.findings.contains_key(&young.id)
    );
}

#[tokio::test(start_paused = true)]
async fn a_watcher_resumes_where_it_left_or_begins_anew() {
    let house = house();
    house.open(Loaded::default()).await;
    let begin = house.until(|snapshot| snapshot.settled).await;
    house.fail("md0", "bad").await;
    house.until(|snapshot| snapshot.findings.len() == 1).await;
    let mut subscription = house
        .doors
        .handle
        .subscribe(Some(begin.revision))
        .await
        .unwrap();
    match &subscription.start {
        Start::Resume(changes) => assert_eq!(
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
        let start = house.doors.handle.subscribe(unknown).await.unwrap().start;
        assert!(
            matches!(&start, Start::Snapshot(snapshot) if snapshot.revision == begin.revision + 2),
            "{start:?}"
        );
    }
    for round in 0..changes::KEPT + 10 {
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
            .doors
            .handle
            .subscribe(Some(begin.revision))
            .await
            .unwrap()
            .start,
        Start::Snapshot(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn transitions_and_requests_are_passed_on_and_the_heart_beats() {
    let house = house();
    house.in_memory().await;
    let (mut transitions, mut requests) = (
        house.doors.transitions.subscribe(),
        house.doors.requests.subscribe(),
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
    house.doors.handle.refresh(Request::All).await.unwrap();
    assert_eq!(requests.recv().await.unwrap(), Request::All);
    let before = house.doors.heartbeat.count();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(house.doors.heartbeat.count() >= before + 9);
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_a_second_for_the_disk_and_no_longer() {
    let house = house();
    house.open(Loaded::default()).await;
    house.until(|snapshot| snapshot.settled).await;
    let start = Instant::now();
    house.stop.send(()).unwrap();
    house.task.await.unwrap();
    assert!(start.elapsed() >= FLUSH && start.elapsed() < FLUSH * 2);
    assert!(matches!(
        house
            .doors
            .handle
            .acknowledge(FindingId::known("x"), String::new(), String::new())
            .await,
        Err(CommandError::Stopping)
    ));
}
