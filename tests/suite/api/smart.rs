//! A drive's SMART data over the socket: advice, history, self-tests.

use std::sync::Arc;

use diskvitals_finding::Subject;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_model::advice::{Action, advise};
use diskvitals_model::facts::smart::{SelfTestStart, SmartFacts, SmartOutcome};
use diskvitals_model::snapshot::{Drive, Snapshot};
use diskvitals_model::source_update::SourceRequest;
use diskvitals_model::volume::Stack;
use diskvitals_smart::history::{Metric, Point, Series, SmartHistory};
use diskvitals_smart::{SelfTestKind, SmartOutput};
use diskvitals_wire as wire;
use diskvitals_wire::admin_client::AdminClient;
use diskvitals_wire::inventory_client::InventoryClient;
use tonic::Code;

use super::fixture::{Served, channel, drive, finding, now, snapshot};

/// sda with these findings; volume `a` is on sda alone, `b` on a mirror of sda and sdb.
fn with(reasons: &[(Reason, Severity, &str)]) -> (Snapshot, Drive) {
    let mut snapshot = snapshot(0);
    let (one, other) = (drive("sda", "S1").facts.id, drive("sdb", "S2").facts.id);
    let mut drive = (**snapshot.drives.get(&one).unwrap()).clone();
    for (reason, severity, message) in reasons {
        let mut finding = finding(Subject::Drive(one.clone()), *reason, *severity, now());
        finding.message = (*message).to_owned();
        drive.findings.push(finding.id.clone());
        snapshot.findings.insert(finding.id.clone(), Arc::new(finding));
    }
    for volume in snapshot.volumes.values_mut() {
        let single = volume.facts.handle.as_deref() == Some("a");
        let parts = vec![Stack::Drive(one.clone()), Stack::Drive(other.clone())];
        let mirror = Stack::Redundant { level: "raid1 md0".into(), tolerates: 1, parts };
        let facts = &mut Arc::make_mut(volume).facts;
        Arc::make_mut(facts).stack = if single { Stack::Drive(one.clone()) } else { mirror };
    }
    snapshot.drives.insert(one, Arc::new(drive.clone()));
    (snapshot, drive)
}

fn sentence(reasons: &[(Reason, Severity, &str)]) -> (Action, String) {
    let (snapshot, drive) = with(reasons);
    let advice = advise(&snapshot, &drive).unwrap();
    (advice.action, advice.sentence)
}

#[test]
fn the_advice_for_a_failing_drive_is_replacement_and_names_volumes_without_redundancy() {
    let (action, sentence) = sentence(&[
        (Reason::LinkErrors, Severity::Suspect, "drive X had errors on its link"),
        (Reason::PendingSectors, Severity::Bad, "drive X: 269 sectors wait (12 more in 3 days)"),
    ]);
    assert_eq!(action, Action::ReplaceNow);
    assert_eq!(
        sentence,
        "Replace it now: drive X: 269 sectors wait (12 more in 3 days) (also LinkErrors). \
         This host has no other copy of pod default/pod-a: save it first; redundancy covers pod default/pod-b."
    );
}

#[test]
fn every_kind_of_drive_problem_has_its_own_advice() {
    let action = |reason, severity| sentence(&[(reason, severity, "m")]).0;
    assert_eq!(action(Reason::LinkErrors, Severity::Suspect), Action::ReseatCable);
    assert_eq!(action(Reason::Overheating, Severity::Suspect), Action::Cool);
    assert_eq!(action(Reason::ReallocatedSectors, Severity::Suspect), Action::Watch);
    assert_eq!(action(Reason::ReallocatedSectors, Severity::Bad), Action::ReplaceNow);
    assert_eq!(action(Reason::WornOut, Severity::Suspect), Action::PlanReplacement);
    assert_eq!(action(Reason::DriveMissing, Severity::Bad), Action::BringBack);
    assert_eq!(action(Reason::IoTimeouts, Severity::Suspect), Action::LookAtPath);
}

#[test]
fn a_drive_without_adverse_findings_has_no_advice() {
    let (snapshot, drive) = with(&[(Reason::SmartUnavailable, Severity::Info, "m")]);
    assert_eq!(advise(&snapshot, &drive), None);
}

fn told() -> SmartFacts {
    let points = [(0, 4), (3600, 4), (7200, 9)];
    let point = |(second, value): (i64, u64)| Point {
        at: now() + jiff::SignedDuration::from_secs(second),
        value,
    };
    let series = Series { points: points.map(point).to_vec(), ..Series::default() };
    let memory =
        SmartHistory { series: [(Metric::Reallocated, series)].into(), ..SmartHistory::default() };
    SmartFacts {
        outcome: Some((now(), SmartOutcome::Report)),
        self_test: Some(SelfTestStart {
            kind: SelfTestKind::Short,
            at: now(),
            result: Err("a test is running".into()),
        }),
        history: Arc::new(memory),
        output: Some(Arc::new(SmartOutput {
            at: now(),
            exit_status: 4,
            complete: true,
            usable: true,
            size: 9,
            gzip: Ok(Box::from(*b"\x1f\x8b")),
        })),
        ..SmartFacts::default()
    }
}

#[tokio::test]
async fn the_output_of_smartctl_is_served_from_memory_or_the_reason_why_there_is_none() {
    let (mut snapshot, drive) = with(&[]);
    let id = drive.facts.id.clone();
    let mut known = drive.clone();
    known.smart = Some(Arc::new(told()));
    snapshot.drives.insert(id.clone(), Arc::new(known));
    let output = smart_output(snapshot.clone()).await;
    assert_eq!(output.drive_id, "MODEL_S1");
    assert_eq!((output.exit_status, output.complete, output.size_bytes), (4, true, 9));
    assert_eq!((&output.gzip[..], &output.unavailable[..]), (&b"\x1f\x8b"[..], ""));
    snapshot.drives.insert(id, Arc::new(drive));
    let output = smart_output(snapshot).await;
    assert!(output.gzip.is_empty() && output.unavailable.contains("printed nothing"), "{output:?}");
}

async fn smart_output(snapshot: Snapshot) -> wire::SmartOutput {
    let served = Served::start(snapshot).await;
    let mut inventory = InventoryClient::new(channel(&served.socket()).await);
    let request = wire::GetSmartOutputRequest { id: "sda".into() };
    inventory.get_smart_output(request).await.expect("answers").into_inner()
}

#[tokio::test]
async fn smart_history_state_and_explanation_are_served() {
    let (mut snapshot, mut drive) =
        with(&[(Reason::ReallocatedSectors, Severity::Suspect, "9 sectors")]);
    drive.smart = Some(Arc::new(told()));
    snapshot.drives.insert(drive.facts.id.clone(), Arc::new(drive));
    let served = Served::start(snapshot).await;
    let mut inventory = InventoryClient::new(channel(&served.socket()).await);
    let history = inventory
        .get_smart_history(wire::GetSmartHistoryRequest { id: "sda".into() })
        .await
        .unwrap()
        .into_inner();
    let values: Vec<u64> = history.series[0].points.iter().map(|point| point.value).collect();
    assert_eq!(
        (history.drive_id.as_str(), history.series[0].metric.as_str(), values),
        ("MODEL_S1", "reallocated", vec![4, 4, 9])
    );
    let drive =
        inventory.get_drive(wire::GetDriveRequest { id: "sda".into() }).await.unwrap().into_inner();
    let smart = drive.smart.unwrap();
    assert_eq!(
        (smart.state(), smart.values[0].first, smart.values[0].value),
        (wire::smart::State::Answered, 4, 9)
    );
    assert!(smart.values[0].changed.is_some());
    let requested = smart.self_tests.unwrap().requested.unwrap();
    assert_eq!(
        (requested.kind(), requested.started, requested.text.as_str()),
        (wire::SelfTestKind::Short, false, "a test is running")
    );
    let explained = inventory
        .explain(wire::ExplainRequest { id: "sda".into(), ..Default::default() })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(explained.advice[0].action(), wire::advice::Action::Watch);
    let nothing = inventory
        .get_smart_history(wire::GetSmartHistoryRequest { id: "sdb".into() })
        .await
        .unwrap()
        .into_inner();
    assert!(nothing.series.is_empty());
    let unknown = inventory
        .get_smart_history(wire::GetSmartHistoryRequest { id: "sdz".into() })
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn a_self_test_is_forwarded_for_a_drive_that_supports_it() {
    let (mut snapshot, mut drive) = with(&[]);
    let id = drive.facts.id.clone();
    drive.smart = Some(Arc::new(told()));
    drive.forbidden_tests = vec![(SelfTestKind::Long, "it crashes (source)".to_owned())];
    snapshot.drives.insert(id.clone(), Arc::new(drive));
    let served = Served::start(snapshot).await;
    let admin = AdminClient::new(channel(&served.socket()).await);
    let request = async |id: &str, kind: wire::SelfTestKind, force| {
        let (id, kind) = (id.into(), kind.into());
        admin.clone().start_self_test(wire::StartSelfTestRequest { id, kind, force }).await
    };
    let start = async |id: &str, kind| request(id, kind, false).await;
    let wrong = start("sda", wire::SelfTestKind::Unspecified).await.unwrap_err();
    assert_eq!(
        (wrong.code(), wrong.message().starts_with("kind: ")),
        (Code::InvalidArgument, true)
    );
    assert_eq!(
        start("sdb", wire::SelfTestKind::Short).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    let refused = start("sda", wire::SelfTestKind::Long).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().ends_with("it crashes (source)"), "{}", refused.message());
    let started = request("sda", wire::SelfTestKind::Long, true).await.unwrap().into_inner();
    assert_eq!(started.drive_id, id.to_string());
    assert_eq!(
        *served.owner.asked.lock().unwrap(),
        [SourceRequest::SelfTest { drive: id, kind: SelfTestKind::Long }]
    );
}
