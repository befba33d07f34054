use std::collections::BTreeSet;

use super::*;
use crate::report::node_snapshot::{Cleared, Drive, Volume};

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

const NOW: i64 = 1_000_000;

pub(crate) fn issue(about: Subject, level: Severity) -> Issue {
    Issue {
        subject: about,
        severity: level,
        status: 2,
        reason: "SmartFailing".into(),
        message: "it says that it fails".into(),
        since: Some(at(NOW)),
        count: 1,
        acknowledged: false,
        maintained: false,
        cleared: None,
        is_follower: false,
    }
}

pub(crate) fn drive(id: &str) -> Subject {
    Subject::Drive(id.into())
}

pub(crate) fn volume(id: &str) -> Subject {
    Subject::Volume(id.into())
}

/// A drive `d1`, a filesystem of the host `fs:root`, and a volume `v1` of a pod and a claim.
pub(crate) fn snapshot(issues: &[(&str, Issue)]) -> NodeSnapshot {
    let health = Health::Good;
    let of_host = Volume {
        name: "filesystem /".into(),
        health,
        why: String::new(),
        is_pending: false,
        pods: vec![],
        pv_uses: vec![],
        state_reason: None,
        drives: vec![],
        identity: Default::default(),
    };
    let pods = vec![PodRef { uid: "u1".into(), name: "web".into(), namespace: "shop".into() }];
    let claimed = vec![PvUse { pv: "pv1".into(), namespaces: BTreeSet::from(["shop".into()]) }];
    let sda = Drive {
        name: "drive sda".into(),
        health,
        why: String::new(),
        maintenance: false,
        maintenance_until: None,
        is_pending: false,
        is_asleep: false,
        has_smart_data: true,
        identity: Default::default(),
    };
    NodeSnapshot {
        health,
        drives: [("d1".to_owned(), sda)].into(),
        volumes: [
            ("fs:root".to_owned(), of_host.clone()),
            (
                "v1".to_owned(),
                Volume {
                    name: "volume pv1".into(),
                    pods,
                    pv_uses: claimed,
                    drives: vec!["d1".into()],
                    ..of_host
                },
            ),
        ]
        .into(),
        issues: issues.iter().map(|(id, issue)| ((*id).to_owned(), issue.clone())).collect(),
        recently_cleared: Default::default(),
        causes: Default::default(),
        failures: None,
        redundancy: Default::default(),
        node: Default::default(),
        driver_storage: Default::default(),
        stale: None,
    }
}

fn with_cleared(mut snapshot: NodeSnapshot, id: &str, issue: &Issue, second: i64) -> NodeSnapshot {
    let cleared = Some(Cleared { time: at(second), why: "the condition is over".into() });
    snapshot.recently_cleared.insert(id.into(), Issue { cleared, ..issue.clone() });
    snapshot
}

/// To whom, what, and in which words.
fn lines(
    before: Option<&NodeSnapshot>,
    after: &NodeSnapshot,
) -> Vec<(String, StorageTransitionKind, String)> {
    let to = |about: &EventTarget| match about {
        EventTarget::Node => "node".to_owned(),
        EventTarget::Pod(pod) => format!("pod {}/{}", pod.namespace, pod.name),
        EventTarget::Claim(claimed) => format!("claim of {}", claimed.pv),
    };
    detect_transitions(before, after, at(NOW))
        .into_iter()
        .map(|news| (to(&news.target), news.kind, news.note))
        .collect()
}

fn one(
    to: &str,
    kind: StorageTransitionKind,
    note: &str,
) -> (String, StorageTransitionKind, String) {
    (to.into(), kind, note.into())
}

#[test]
fn what_follows_from_the_failure_of_a_drive_is_published_once_for_each_volume() {
    let of = |reason: &str, is_follower: bool| Issue {
        reason: reason.into(),
        is_follower,
        ..issue(volume("v1"), Severity::Bad)
    };
    let leader = of("DriveFailing", false);
    let follower = of("NotAccessible", true);
    let failed = snapshot(&[("a", leader.clone()), ("b", follower.clone())]);
    let reasons = |before: &NodeSnapshot, after: &NodeSnapshot| {
        let found = detect_transitions(Some(before), after, at(NOW));
        let mut reasons: Vec<String> = found.into_iter().map(|news| news.reason).collect();
        reasons.dedup();
        reasons
    };
    assert_eq!(reasons(&snapshot(&[]), &failed), ["DriveFailing"]);
    let over = with_cleared(snapshot(&[]), "a", &leader, NOW);
    let over = with_cleared(over, "b", &follower, NOW);
    assert_eq!(reasons(&failed, &over), ["DriveFailing"]);
}

#[test]
fn a_drive_finding_targets_the_node_and_a_volume_finding_its_pod_and_claim() {
    let before = snapshot(&[]);
    let after = snapshot(&[
        ("0a", issue(drive("d1"), Severity::Bad)),
        ("0b", issue(volume("v1"), Severity::Suspect)),
        ("0c", issue(volume("fs:root"), Severity::Bad)),
    ]);
    let expected = [
        one("node", StorageTransitionKind::Raised, "drive sda: it says that it fails"),
        one("node", StorageTransitionKind::Raised, "filesystem /: it says that it fails"),
        one("pod shop/web", StorageTransitionKind::Raised, "volume pv1: it says that it fails"),
        one("claim of pv1", StorageTransitionKind::Raised, "volume pv1: it says that it fails"),
    ];
    assert_eq!(lines(Some(&before), &after), expected);
    assert_eq!(lines(Some(&after), &after), []);
}

#[test]
fn a_source_of_evidence_that_is_down_is_an_event_of_the_node_until_it_is_cleared() {
    let smart = Subject::Source { id: "smart".into(), label: "SMART".into() };
    let issue = Issue {
        reason: "MonitoringIncomplete".into(),
        message: "SMART cannot be read: smartctl is not installed".into(),
        ..issue(smart, Severity::Suspect)
    };
    let (before, after) = (snapshot(&[]), snapshot(&[("0a", issue.clone())]));
    let text = "SMART: SMART cannot be read: smartctl is not installed";
    let raised = one("node", StorageTransitionKind::Raised, text);
    assert_eq!(lines(Some(&before), &after), [raised]);
    assert_eq!(lines(Some(&after), &before), [], "not without a record");
    let over = with_cleared(before, "0a", &issue, NOW);
    let over = lines(Some(&after), &over);
    assert_eq!(over.len(), 1);
    assert_eq!((over[0].0.as_str(), &over[0].1), ("node", &StorageTransitionKind::Cleared));
}

#[test]
fn a_volume_with_unnamed_pods_targets_the_node_and_its_claim() {
    let mut after = snapshot(&[("0b", issue(volume("v1"), Severity::Bad))]);
    after.volumes.get_mut("v1").expect("there").pods.clear();
    let mut before = after.clone();
    before.issues.clear();
    let to: Vec<String> = lines(Some(&before), &after).into_iter().map(|(to, ..)| to).collect();
    assert_eq!(to, ["node", "claim of pv1"]);
}

#[test]
fn each_change_of_a_finding_is_a_transition() {
    let quiet = snapshot(&[]);
    let suspect = snapshot(&[("0a", issue(drive("d1"), Severity::Suspect))]);
    let bad = snapshot(&[("0a", Issue { count: 2, ..issue(drive("d1"), Severity::Bad) })]);
    let kinds = |before, after| {
        lines(Some(before), after).into_iter().map(|(_, kind, _)| kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&quiet, &suspect), [StorageTransitionKind::Raised]);
    assert_eq!(kinds(&suspect, &bad), [StorageTransitionKind::Worsened]);
    assert_eq!(kinds(&bad, &suspect), [StorageTransitionKind::Eased]);
    let done = with_cleared(quiet.clone(), "0a", &issue(drive("d1"), Severity::Bad), NOW);
    let note = "drive sda: cleared, the condition is over. It was: it says that it fails";
    assert_eq!(lines(Some(&bad), &done), [one("node", StorageTransitionKind::Cleared, note)]);
    // Its message of before named the pod that has gone since.
    let unnamed = Issue { message: "at a pod's path".into(), ..issue(drive("d1"), Severity::Bad) };
    let done_unnamed = with_cleared(quiet.clone(), "0a", &unnamed, NOW);
    assert_eq!(lines(Some(&bad), &done_unnamed), lines(Some(&bad), &done));
    assert_eq!(lines(Some(&done), &done), []);
    // It appeared and ended between two snapshots.
    assert_eq!(
        kinds(&quiet, &done),
        [StorageTransitionKind::Raised, StorageTransitionKind::Cleared]
    );
}

fn targets(before: Option<&NodeSnapshot>, after: &NodeSnapshot) -> Vec<String> {
    let found = lines(before, after);
    found.into_iter().map(|(to, ..)| to).collect()
}

#[test]
fn a_first_snapshot_does_not_repeat_the_end_of_findings_about_volumes_that_are_gone() {
    let ended = |subject: Subject| {
        let found = issue(subject, Severity::Bad);
        with_cleared(snapshot(&[]), "0a", &found, NOW)
    };
    assert_eq!(targets(None, &ended(volume("deleted"))), [""; 0]);
    assert_eq!(targets(None, &ended(volume("v1"))), ["pod shop/web", "claim of pv1"]);
    assert_eq!(targets(None, &ended(drive("d1"))), ["node"]);
}

#[test]
fn the_end_of_a_finding_reaches_the_claim_after_its_pod_was_deleted() {
    let bad = snapshot(&[("0b", issue(volume("v1"), Severity::Bad))]);
    let mut without_pod = bad.clone();
    let left = without_pod.volumes.get_mut("v1").expect("there");
    left.pods.clear();
    left.pv_uses[0].namespaces.clear();
    // As for a volume of ours, whose PersistentVolume only the kubelet's records name.
    let mut without_pv = without_pod.clone();
    let left = without_pv.volumes.get_mut("v1").expect("there");
    left.pv_uses.clear();
    left.name = "volume v1".into();
    for unused in [without_pod, without_pv] {
        assert_eq!(targets(Some(&bad), &unused), [""; 0]);
        let baseline = next_baseline(&bad, &unused);
        let mut over = with_cleared(unused, "0b", &issue(volume("v1"), Severity::Bad), NOW);
        over.issues.clear();
        let claims: Vec<(EventTarget, bool)> = detect_transitions(Some(&baseline), &over, at(NOW))
            .into_iter()
            .map(|transition| (transition.target, transition.note.starts_with("volume pv1:")))
            .filter(|(target, _)| matches!(target, EventTarget::Claim(_)))
            .collect();
        let namespaces = BTreeSet::from(["shop".to_owned()]);
        let claim = PvUse { pv: "pv1".into(), namespaces };
        assert_eq!(claims, [(EventTarget::Claim(claim), true)]);
    }
}

#[test]
fn a_pod_that_starts_on_a_failing_volume_is_warned_like_those_that_were_there() {
    let after = snapshot(&[("0b", issue(volume("v1"), Severity::Bad))]);
    let mut staged = after.clone();
    let volume = staged.volumes.get_mut("v1").expect("there");
    volume.pods.clear();
    volume.pv_uses[0].namespaces.clear();
    assert_eq!(targets(Some(&staged), &after), ["pod shop/web", "claim of pv1"]);
    let raised = detect_transitions(Some(&snapshot(&[])), &after, at(NOW));
    let late = detect_transitions(Some(&staged), &after, at(NOW));
    assert_eq!(raised[0].key, late[0].key, "no pod is warned twice");
    assert_eq!(lines(Some(&after), &after), []);
}

#[test]
fn new_problems_come_before_what_is_over() {
    let old = issue(drive("d1"), Severity::Bad);
    let before = snapshot(&[("0a", old.clone())]);
    let mut after = with_cleared(snapshot(&[]), "0a", &old, NOW);
    let raised = Issue { reason: "DriveFailing".into(), ..issue(volume("v1"), Severity::Bad) };
    after.issues.insert("0b".into(), raised);
    assert_eq!(targets(Some(&before), &after), ["pod shop/web", "claim of pv1", "node"]);
}

#[test]
fn changed_messages_counts_and_acknowledgements_are_no_transitions() {
    let before = snapshot(&[("0a", issue(drive("d1"), Severity::Bad))]);
    let again =
        Issue { message: "now 9".into(), acknowledged: true, ..issue(drive("d1"), Severity::Bad) };
    assert_eq!(lines(Some(&before), &snapshot(&[("0a", again)])), []);
    let info = snapshot(&[("0b", issue(drive("d1"), Severity::Info))]);
    assert_eq!(lines(Some(&snapshot(&[])), &info), []);
    assert_eq!(lines(Some(&info), &snapshot(&[])), []);
}

#[test]
fn the_first_snapshot_reports_only_recent_transitions_under_their_live_keys() {
    let fresh = issue(drive("d1"), Severity::Bad);
    let old = Issue { since: Some(at(NOW - 45 * 60 - 1)), ..fresh.clone() };
    let seen = snapshot(&[("0a", fresh.clone()), ("0b", old.clone())]);
    let first = detect_transitions(None, &seen, at(NOW));
    let live =
        detect_transitions(Some(&snapshot(&[])), &snapshot(&[("0a", fresh.clone())]), at(NOW));
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].key, live[0].key);
    // The same of what is over.
    let done = |second| with_cleared(snapshot(&[]), "0a", &fresh, second);
    assert_eq!(lines(None, &done(NOW - 45 * 60 - 1)), []);
    let first = detect_transitions(None, &done(NOW), at(NOW + 5));
    let live = detect_transitions(Some(&seen), &done(NOW), at(NOW));
    assert_eq!((first.len(), &first[0].key), (1, &live[0].key));
}

#[test]
fn each_transition_of_a_finding_has_a_key_of_its_own() {
    let stages = [
        (Severity::Suspect, 1),
        (Severity::Bad, 2),
        (Severity::Suspect, 2),
        (Severity::Bad, 3),
        (Severity::Suspect, 3),
    ];
    let mut keys = BTreeSet::new();
    let mut before = snapshot(&[]);
    for (level, count) in stages {
        let after = snapshot(&[("0a", Issue { count, ..issue(drive("d1"), level) })]);
        keys.extend(
            detect_transitions(Some(&before), &after, at(NOW)).into_iter().map(|news| news.key),
        );
        before = after;
    }
    assert_eq!(keys.len(), stages.len());
}

#[test]
fn health_that_becomes_unknown_or_known_again_is_a_transition() {
    let good = snapshot(&[]);
    let mut unknown = snapshot(&[]);
    *unknown.drives.get_mut("d1").expect("there") = Drive {
        health: Health::Unknown,
        why: "smartctl does not answer".into(),
        ..good.drives["d1"].clone()
    };
    let lost = one(
        "node",
        StorageTransitionKind::BecameUnknown,
        "drive sda: health unknown: smartctl does not answer",
    );
    assert_eq!(lines(Some(&good), &unknown), [lost]);
    assert_eq!(lines(Some(&unknown), &unknown), []);
    let found = one(
        "node",
        StorageTransitionKind::BecameKnown,
        "drive sda: health known again, no findings",
    );
    assert_eq!(lines(Some(&unknown), &good), [found]);
    // Who has just come does not know since when it is so.
    assert_eq!(lines(None, &unknown), []);
}

#[test]
fn a_first_answer_that_is_outstanding_is_no_transition() {
    let good = snapshot(&[]);
    let mut waiting = snapshot(&[]);
    let drive = waiting.drives.get_mut("d1").expect("there");
    (drive.health, drive.is_pending) = (Health::Unknown, true);
    let volume = waiting.volumes.get_mut("v1").expect("there");
    (volume.health, volume.is_pending) = (Health::Unknown, true);
    assert_eq!(lines(Some(&waiting), &good), []);
    assert_eq!(lines(Some(&good), &waiting), []);
    // The health before a restart of the daemon counts on.
    let mut unknown = snapshot(&[]);
    let drive = unknown.drives.get_mut("d1").expect("there");
    (drive.health, drive.why) = (Health::Unknown, "smartctl does not answer".into());
    let between = next_baseline(&unknown, &waiting);
    assert_eq!(lines(Some(&between), &unknown), []);
    assert_eq!(lines(Some(&between), &good).len(), 1);
    assert_eq!(lines(Some(&waiting), &unknown).len(), 1);
}

#[test]
fn a_state_clears_only_when_the_volume_is_known_to_have_left_it() {
    let state = Issue { since: None, count: 0, ..issue(volume("v1"), Severity::Bad) };
    let before = snapshot(&[("state of v1", state)]);
    assert_eq!(lines(None, &before), []);
    assert_eq!(lines(Some(&snapshot(&[])), &before).len(), 2);
    assert_eq!(lines(Some(&before), &snapshot(&[])).len(), 2);
    // An acknowledged finding is left.
    let with = |health, state: Option<&str>| {
        let mut snapshot = snapshot(&[]);
        let volume = snapshot.volumes.get_mut("v1").expect("there");
        (volume.health, volume.state_reason) = (health, state.map(str::to_owned));
        snapshot
    };
    assert_eq!(lines(Some(&before), &with(Health::Suspect, Some("NotHealthy"))).len(), 2);
    // A finding says it by now.
    assert_eq!(lines(Some(&before), &with(Health::Bad, Some("SmartFailing"))), []);
    let unknown = with(Health::Unknown, None);
    assert!(
        lines(Some(&before), &unknown)
            .iter()
            .all(|(_, kind, _)| *kind == StorageTransitionKind::BecameUnknown)
    );
    let mut gone = snapshot(&[]);
    gone.volumes.remove("v1");
    assert_eq!(lines(Some(&before), &gone), []);
}

#[test]
fn a_removed_drive_keeps_its_former_name() {
    let finding = issue(drive("d1"), Severity::Bad);
    let before = snapshot(&[("0a", finding.clone())]);
    let mut after = with_cleared(snapshot(&[]), "0a", &finding, NOW);
    after.drives.clear();
    assert!(lines(Some(&before), &after)[0].2.starts_with("drive sda: cleared"));
}

#[test]
fn the_same_issue_under_another_id_is_a_transition_only_when_it_worsens() {
    let before = snapshot(&[("0a", issue(drive("d1"), Severity::Suspect))]);
    assert_eq!(
        lines(Some(&before), &snapshot(&[("0b", issue(drive("d1"), Severity::Suspect))])),
        []
    );
    let worse = snapshot(&[("0b", issue(drive("d1"), Severity::Bad))]);
    assert_eq!(
        lines(Some(&before), &worse).iter().map(|(_, kind, _)| *kind).collect::<Vec<_>>(),
        [StorageTransitionKind::Worsened]
    );
    // Another reason, or of another drive, is another problem.
    let other = Issue { reason: "WornOut".into(), ..issue(drive("d1"), Severity::Suspect) };
    assert_eq!(
        lines(Some(&before), &snapshot(&[("0b", other)])).first().map(|(_, kind, _)| *kind),
        Some(StorageTransitionKind::Raised)
    );
}

#[test]
fn an_issue_that_cleared_and_returned_ends_with_its_return() {
    let finding = issue(drive("d1"), Severity::Bad);
    let before = snapshot(&[("0a", finding.clone())]);
    let after = with_cleared(snapshot(&[("0b", finding.clone())]), "0a", &finding, NOW);
    let kinds = |before: &NodeSnapshot, after: &NodeSnapshot| {
        lines(Some(before), after).into_iter().map(|(_, kind, _)| kind).collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(&before, &after),
        [StorageTransitionKind::Cleared, StorageTransitionKind::Raised]
    );
    // Also where the one that was over is of a daemon that had given it another id.
    let after = with_cleared(snapshot(&[("0c", finding.clone())]), "0b", &finding, NOW);
    assert_eq!(
        kinds(&before, &after),
        [StorageTransitionKind::Cleared, StorageTransitionKind::Raised]
    );
}

#[test]
fn an_issue_lost_with_the_daemons_history_clears_once_its_subject_is_known_good() {
    let mut before = snapshot(&[
        ("0a", issue(drive("d1"), Severity::Bad)),
        ("0b", issue(volume("v1"), Severity::Bad)),
    ]);
    let ended = |before: &NodeSnapshot, after: &NodeSnapshot| {
        lines(Some(before), after).into_iter().map(|(to, kind, _)| (to, kind)).collect::<Vec<_>>()
    };
    // It has begun anew and has not asked the drive yet.
    let mut unheard = snapshot(&[]);
    unheard.drives.get_mut("d1").expect("there").has_smart_data = false;
    for _ in 0..3 {
        assert_eq!(ended(&before, &unheard), []);
        before = next_baseline(&before, &unheard);
    }
    assert_eq!(before.issues.len(), 2);
    // It says the same of itself, or it says that it is well.
    let again = snapshot(&[
        ("0c", issue(drive("d1"), Severity::Bad)),
        ("0d", issue(volume("v1"), Severity::Bad)),
    ]);
    assert_eq!(ended(&before, &again), []);
    let expected = ["node", "pod shop/web", "claim of pv1"]
        .map(|to| (to.to_owned(), StorageTransitionKind::Cleared));
    assert_eq!(ended(&before, &snapshot(&[])), expected);
    assert!(next_baseline(&before, &snapshot(&[])).issues.is_empty());
    // Nothing is left of what is gone.
    let mut gone = snapshot(&[]);
    (gone.drives, gone.volumes) = Default::default();
    assert_eq!(ended(&before, &gone), []);
    assert!(next_baseline(&before, &gone).issues.is_empty());
}

#[test]
fn what_has_one_cause_names_it_also_when_it_is_over() {
    let healthy = snapshot(&[]);
    let mut failing = snapshot(&[
        ("f1", issue(drive("d1"), Severity::Bad)),
        ("f2", issue(volume("v1"), Severity::Suspect)),
        ("f3", issue(volume("fs:root"), Severity::Suspect)),
    ]);
    let cause = ("drive:d1".to_owned(), vec!["f1".into(), "f2".into()]);
    failing.causes.extend([cause]);
    let causes = |before, after| -> BTreeSet<(String, Option<String>)> {
        detect_transitions(Some(before), after, at(NOW))
            .into_iter()
            .map(|found| (format!("{:?}", found.target), found.cause))
            .collect()
    };
    let raised = causes(&healthy, &failing);
    let has = |target: &str, cause: Option<&str>| {
        raised.iter().any(|(to, of)| to.starts_with(target) && of.as_deref() == cause)
    };
    assert!(has("Node", Some("drive:d1")), "{raised:?}");
    assert!(has("Pod", Some("drive:d1")), "{raised:?}");
    assert!(has("Claim", Some("drive:d1")), "{raised:?}");
    assert!(has("Node", None), "{raised:?}");
    let cleared = causes(&failing, &healthy);
    assert_eq!(cleared, raised);
}
