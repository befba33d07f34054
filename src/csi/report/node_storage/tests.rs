use std::sync::Arc;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::health::HealthStatus;
use crate::report::condition::storage_condition;
use crate::report::node_snapshot::{Severity, StaleMount};
use crate::report::quarantine::QuarantineAnswer;
use crate::report::transitions::tests::{at, drive, issue, snapshot};
use diskvitals_cluster::node_storage::{
    MAX_DRIVE_IDS, MAX_DRIVES, MAX_MODELS, MAX_STALE, MAX_STATUS_LEN, MAX_VOLUMES, RemainingEntry,
};
use diskvitals_finding::provision::PodRef;

const NONE: &BTreeSet<String> = &BTreeSet::new();

fn context<'a>(last: Option<&'a NodeStorageStatus>, overdue: &'a BTreeSet<String>) -> Context<'a> {
    Context {
        node_uid: "uid-1",
        last,
        overdue,
        answer: None,
        quarantine: &QuarantineState::Disabled,
        now: at(500),
    }
}

fn view(snapshot: &NodeSnapshot) -> DaemonView {
    DaemonView { snapshot: Some(Arc::new(snapshot.clone())), outage: None }
}

fn status(snapshot: &NodeSnapshot) -> NodeStorageStatus {
    storage_status(&view(snapshot), false, &context(None, NONE)).expect("a status")
}

/// A node with a readable kubelet's folder and nothing stale.
fn clean() -> NodeSnapshot {
    let mut snapshot = snapshot(&[]);
    snapshot.node.boot_id = "boot".into();
    snapshot.stale = Some(vec![]);
    snapshot
}

/// Its drive is bad, and so is the volume on it.
fn failing() -> NodeSnapshot {
    let mut failing = clean();
    failing.health = SnapshotHealth::Bad;
    let mut since = issue(drive("d1"), Severity::Bad);
    since.since = Some(at(100));
    failing.issues.insert("a".into(), since);
    let bad = failing.drives.get_mut("d1").expect("there");
    bad.health = SnapshotHealth::Bad;
    bad.identity.serial = "S1".into();
    bad.identity.slot = "12".into();
    let volume = failing.volumes.get_mut("v1").expect("there");
    volume.health = SnapshotHealth::Bad;
    volume.identity.driver = "csi.example.com".into();
    volume.identity.handle = "h1".into();
    volume.identity.pv = "pv1".into();
    volume.identity.statuses = vec![HealthStatus {
        status: HealthErrorType::Inaccessible,
        reason: "DriveMissing".into(),
        message: "drive sda is gone for 3 s".into(),
    }];
    failing
}

fn state<'a>(status: &'a NodeStorageStatus, kind: &str) -> (&'a str, &'a str) {
    let mut conditions = status.conditions.iter();
    let condition = conditions.find(|it| it.type_ == kind).expect("a condition");
    (&condition.status, &condition.reason)
}

#[test]
fn a_healthy_node_lists_its_drive_ids_and_no_deviation() {
    let status = status(&clean());
    assert_eq!(status.health, Health::Good);
    assert_eq!(status.drive_ids, ["d1"]);
    assert_eq!((status.drives.len(), status.volumes.len(), status.stale.len()), (0, 0, 0));
    assert_eq!(status.truncated, Truncated::default());
    assert_eq!(status.unreachable_drivers, Some(vec![]));
    assert_eq!(state(&status, DAEMON_REACHABLE), ("True", "DaemonAnswering"));
    assert_eq!(state(&status, ATTACHMENTS_CLEAN), ("True", "NothingStale"));
    assert_eq!((status.node_uid.as_str(), status.boot_id.as_str()), ("uid-1", "boot"));
}

#[test]
fn a_failing_drive_is_listed_with_serial_slot_and_reason_and_its_volume_with_its_conditions() {
    let status = status(&failing());
    assert_eq!(status.health, Health::Bad);
    let listed = &status.drives[0];
    assert_eq!(
        (listed.id.as_str(), listed.serial.as_str(), listed.slot.as_str()),
        ("d1", "S1", "12")
    );
    assert_eq!(
        (listed.health, listed.reason.as_str(), listed.since.as_ref().map(|it| it.0)),
        (Health::Bad, "SmartFailing", Some(at(100)))
    );
    let volume = &status.volumes[0];
    assert_eq!(
        (volume.handle.as_str(), volume.persistent_volume.as_str(), volume.health),
        ("h1", "pv1", Health::Bad)
    );
    assert_eq!(volume.health_conditions[0].status, VolumeStatus::Inaccessible);
    assert_eq!(volume.drive_ids, ["d1"]);
    assert_eq!((status.counts.bad, status.counts.affected), (1, 1));
}

/// A volume that this node provides and cannot serve has a state, and no finding.
#[test]
fn the_object_and_the_condition_never_contradict_each_other() {
    let healths = [SnapshotHealth::Good, SnapshotHealth::Unknown];
    let severities = [None, Some(Severity::Suspect), Some(Severity::Bad)];
    let cases = healths.into_iter().flat_map(|own| severities.map(|severity| (own, severity)));
    let cases = cases.flat_map(|(own, severity)| [false, true].map(|it| (own, severity, it)));
    for (own, severity, acknowledged) in cases {
        let mut snapshot = NodeSnapshot { health: own, ..clean() };
        snapshot.issues.extend(severity.map(|severity| {
            let state = issue(Subject::Volume("v1".into()), severity);
            ("state of v1".to_owned(), Issue { acknowledged, ..state })
        }));
        let expected = match storage_condition(&view(&snapshot), false).expect("one").status {
            ConditionStatus::True => vec![Health::Good],
            ConditionStatus::False => vec![Health::Suspect, Health::Bad],
            ConditionStatus::Unknown => vec![Health::Unknown],
        };
        let health = status(&snapshot).health;
        assert!(expected.contains(&health), "{own:?} {severity:?} {acknowledged}: {health:?}");
    }
}

#[test]
fn redundancy_needs_a_cause_below_the_volume_and_every_one_of_them_covered() {
    let mut snapshot = failing();
    let redundant = |snapshot: &NodeSnapshot| status(snapshot).volumes[0].redundant;
    assert!(!redundant(&snapshot), "nothing is known");
    let covered = |is| vec![("v1".to_owned(), is)];
    snapshot.redundancy.insert("drive:d1".into(), covered(true));
    assert!(redundant(&snapshot));
    snapshot.redundancy.insert("drive:d2".into(), covered(false));
    assert!(!redundant(&snapshot));
}

#[test]
fn a_message_a_time_and_a_number_of_volumes_are_no_reason_to_write_and_a_reason_is() {
    let before = status(&failing());
    let mut later = failing();
    let volume = later.volumes.get_mut("v1").expect("there");
    volume.identity.statuses[0].message = "drive sda is gone for 4 s".into();
    let another = later.volumes["fs:root"].clone();
    later.volumes.insert("fs:new".into(), another);
    let mut after = status(&later);
    after.reported_at = Some(Time(at(9999)));
    assert!(says_the_same(&before, &after));
    let volume = later.volumes.get_mut("v1").expect("there");
    volume.identity.statuses[0].reason = "NotMounted".into();
    assert!(!says_the_same(&before, &status(&later)));
    assert!(!says_the_same(&before, &status(&clean())));
}

#[test]
fn an_absent_daemon_keeps_the_last_lists_and_nothing_is_good() {
    let last = status(&failing());
    let silent = DaemonView {
        snapshot: Some(Arc::new(clean())),
        outage: Some(Outage { since: Instant::now(), why: "gone".into() }),
    };
    assert_eq!(storage_status(&silent, true, &context(Some(&last), NONE)), None);
    let away = storage_status(&silent, false, &context(Some(&last), NONE)).expect("a status");
    assert_eq!(away.health, Health::Unknown);
    assert_eq!((&away.drives, &away.volumes), (&last.drives, &last.volumes));
    assert_eq!(state(&away, DAEMON_REACHABLE), ("False", "DaemonNotAnswering"));
    assert_eq!(state(&away, ATTACHMENTS_CLEAN).0, "Unknown");
    // Without a last status no list is called empty.
    let unknown = storage_status(&silent, false, &context(None, NONE)).expect("a status");
    assert_eq!(unknown.truncated, unknown_lists().truncated);
    assert_eq!(unknown.health, Health::Unknown);
}

#[test]
fn a_withdrawn_status_claims_nothing() {
    let last = status(&failing());
    let status = withdrawn_status(&context(Some(&last), NONE));
    assert_eq!(status.health, Health::Unknown);
    assert!(status.drives.is_empty() && status.truncated == unknown_lists().truncated);
    assert_eq!(state(&status, DAEMON_REACHABLE), ("False", "Withdrawn"));
}

#[test]
fn attachments_are_clean_by_proof_only() {
    let of = |change: &dyn Fn(&mut NodeSnapshot)| {
        let mut snapshot = clean();
        change(&mut snapshot);
        let status = status(&snapshot);
        let (state, reason) = state(&status, ATTACHMENTS_CLEAN);
        (state.to_owned(), reason.to_owned())
    };
    let is = |state: &str, reason: &str| (state.to_owned(), reason.to_owned());
    assert_eq!(
        of(&|it| it.node.kubelet_unreadable = Some("EIO".into())),
        is("Unknown", "KubeletFolderUnreadable")
    );
    assert_eq!(of(&|it| it.stale = None), is("Unknown", "AttachmentsUnknown"));
    assert_eq!(of(&|it| it.node.boot_id.clear()), is("Unknown", "BootUnknown"));
    let mount =
        StaleMount { path: "/var/lib/kubelet/pods/u/mount".into(), ..StaleMount::default() };
    assert_eq!(of(&|it| it.stale = Some(vec![mount.clone()])), is("False", "StaleAttachments"));
    let mut unknown = clean();
    unknown.stale = None;
    assert!(status(&unknown).truncated.stale);
}

#[test]
fn a_new_volume_changes_nothing_until_its_first_evidence_is_overdue() {
    let last = status(&clean());
    let mut starting = clean();
    starting.health = SnapshotHealth::Unknown;
    let mut volume = starting.volumes["v1"].clone();
    volume.health = SnapshotHealth::Unknown;
    volume.is_pending = true;
    starting.volumes.insert("v2".into(), volume);
    let now = storage_status(&view(&starting), false, &context(Some(&last), NONE)).expect("one");
    assert!(says_the_same(&last, &now), "{now:#?}");
    let overdue = BTreeSet::from(["v2".to_owned()]);
    let late =
        storage_status(&view(&starting), false, &context(Some(&last), &overdue)).expect("one");
    assert_eq!((late.health, late.volumes.len()), (Health::Unknown, 1));
    assert_eq!(late.volumes[0].health_conditions[0].reason, HEALTH_UNKNOWN);
    // Another drive of unknown health is not hidden by what is pending.
    let drive = starting.drives.get_mut("d1").expect("there");
    drive.health = SnapshotHealth::Unknown;
    let blind = storage_status(&view(&starting), false, &context(Some(&last), NONE)).expect("one");
    assert_eq!((blind.health, blind.drives.len()), (Health::Unknown, 1));
}

#[test]
fn a_drive_that_sleeps_is_no_deviation_and_keeps_its_id() {
    let mut asleep = clean();
    let drive = asleep.drives.get_mut("d1").expect("there");
    drive.health = SnapshotHealth::Unknown;
    (drive.is_pending, drive.is_asleep) = (true, true);
    let status = status(&asleep);
    assert_eq!((status.health, status.drives.len()), (Health::Good, 0));
    assert_eq!(status.drive_ids, ["d1"]);
}

#[test]
fn the_transition_time_of_a_condition_changes_only_with_its_status() {
    let mut last = status(&clean());
    for condition in &mut last.conditions {
        condition.last_transition_time = Time(at(10));
    }
    let again = storage_status(&view(&clean()), false, &context(Some(&last), NONE)).expect("one");
    let mut times = again.conditions.iter().map(|it| it.last_transition_time.0);
    assert!(times.all(|time| time == at(10)));
    let withdrawn = withdrawn_status(&context(Some(&last), NONE));
    let mut times = withdrawn.conditions.iter().map(|it| it.last_transition_time.0);
    assert!(times.all(|time| time == at(500)));
}

#[test]
fn a_worst_case_of_long_names_is_within_the_limits_and_keeps_all_bad_drives() {
    let status = fit::fit(worst_case());
    assert!(fit::json_len(&status) <= MAX_STATUS_LEN);
    assert_eq!(status.drives.len(), MAX_DRIVES);
    assert!(status.drives.iter().all(|drive| drive.health == Health::Bad));
    assert!(status.truncated.drives && status.truncated.volumes && status.truncated.stale);
    assert!(status.truncated.remaining && !status.remaining.is_empty());
}

/// Everything at its limit or above, with names of 300 characters.
fn worst_case() -> NodeStorageStatus {
    let name = |prefix: &str, number: usize| format!("{prefix}{number:04}{}", "n".repeat(290));
    NodeStorageStatus {
        node_uid: "uid".into(),
        drive_ids: (0..600).map(|number| format!("naa.5000c500{number:08}")).collect(),
        models: (0..20)
            .map(|number| ModelCount { model: name("m", number), ..ModelCount::default() })
            .collect(),
        drives: (0..80)
            .map(|number| DriveEntry {
                id: format!("naa.5000c500{number:08}"),
                health: if number % 2 == 0 { Health::Bad } else { Health::Suspect },
                reason: "SmartFailing".into(),
                ..DriveEntry::default()
            })
            .collect(),
        volumes: (0..100)
            .map(|number| VolumeEntry {
                handle: name("h", number),
                persistent_volume: name("p", number),
                health: Health::Bad,
                health_conditions: vec![
                    VolumeCondition {
                        status: VolumeStatus::DataLoss,
                        reason: "DriveFailing".into(),
                        message: "m".repeat(256),
                    };
                    MAX_VOLUME_CONDITIONS
                ],
                ..VolumeEntry::default()
            })
            .collect(),
        remaining: (0..40).map(|_| held(&"u".repeat(64), &"\u{1}".repeat(256))).collect(),
        stale: (0..50)
            .map(|number| StaleEntry { path: name("/p", number), ..StaleEntry::default() })
            .collect(),
        ..NodeStorageStatus::default()
    }
}

fn any_health() -> impl Strategy<Value = Health> {
    prop_oneof![Just(Health::Suspect), Just(Health::Bad), Just(Health::Unknown)]
}

prop_compose! {
    fn any_status()(
        drives in prop::collection::vec((any_health(), "[a-z\u{e4}\"\\\\]{0,300}"), 0..60),
        volumes in prop::collection::vec((any_health(), "\\PC{0,200}", 0_usize..8, "\\PC{0,200}"), 0..90),
        stale in prop::collection::vec(0_usize..3000, 0..40),
        ids in 0_usize..600,
    ) -> NodeStorageStatus {
        NodeStorageStatus {
            drive_ids: (0..ids).map(|number| format!("naa.5000c500{number:08}")).collect(),
            drives: drives.into_iter().enumerate().map(|(number, (health, text))| DriveEntry {
                id: format!("d{number}"), serial: text, health, ..DriveEntry::default()
            }).collect(),
            volumes: volumes.into_iter().enumerate().map(|(number, (health, handle, count, text))| VolumeEntry {
                driver: format!("{number}"),
                handle,
                health,
                health_conditions: (0..count).map(|_| VolumeCondition {
                    message: truncated(&text, MAX_MESSAGE_LEN), ..VolumeCondition::default()
                }).collect(),
                ..VolumeEntry::default()
            }).collect(),
            stale: stale.into_iter().enumerate().map(|(number, len)| StaleEntry {
                path: format!("/{number}{}", "p".repeat(len)), ..StaleEntry::default()
            }).collect(),
            ..NodeStorageStatus::default()
        }
    }
}

/// What was dropped is not worse than what was kept, and a list without the flag has lost nothing.
fn assert_kept(before: &[Health], after: &[Health], truncated: bool) -> Result<(), TestCaseError> {
    let mut sorted = before.to_vec();
    sorted.sort_by_key(|health| std::cmp::Reverse(health.severity()));
    prop_assert_eq!(&sorted[..after.len()], after);
    prop_assert!(truncated || after.len() == before.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_status_is_over_a_limit_and_what_is_dropped_is_flagged_and_not_worse(full in any_status()) {
        let fitted = fit::fit(full.clone());
        prop_assert!(fit::json_len(&fitted) <= MAX_STATUS_LEN);
        prop_assert!(fitted.drives.len() <= MAX_DRIVES && fitted.volumes.len() <= MAX_VOLUMES);
        prop_assert!(fitted.stale.len() <= MAX_STALE && fitted.drive_ids.len() <= MAX_DRIVE_IDS);
        prop_assert!(fitted.models.len() <= MAX_MODELS);
        let of = |status: &NodeStorageStatus| status.drives.iter().map(|it| it.health).collect::<Vec<_>>();
        assert_kept(&of(&full), &of(&fitted), fitted.truncated.drives)?;
        let of = |status: &NodeStorageStatus| status.volumes.iter().map(|it| it.health).collect::<Vec<_>>();
        assert_kept(&of(&full), &of(&fitted), fitted.truncated.volumes)?;
        prop_assert!(fitted.truncated.stale || fitted.stale.len() == full.stale.len());
        prop_assert!(fitted.truncated.drives || fitted.drive_ids.len() == full.drive_ids.len());
        // A second time changes nothing, so that a kept list of an absent daemon stays as it is.
        prop_assert_eq!(&fit::fit(fitted.clone()), &fitted);
        prop_assert!(says_the_same(&fitted, &fit::fit(full)));
    }
}

#[test]
fn an_answer_is_part_of_every_status_and_only_its_nonce_and_contents_are_a_change() {
    let answer = |nonce: &str, second| ChallengeAnswer {
        nonce: nonce.into(),
        time: Some(Time(at(second))),
        missing: vec![format!("since {second}")],
        ..ChallengeAnswer::default()
    };
    let with = |view: &DaemonView, answer: Option<&ChallengeAnswer>| {
        let context = Context { answer, ..context(None, NONE) };
        storage_status(view, false, &context).expect("a status")
    };
    let silent = DaemonView {
        snapshot: None,
        outage: Some(Outage { since: Instant::now(), why: "gone".into() }),
    };
    for view in [view(&failing()), silent] {
        let (one, later) = (answer("a", 1), answer("a", 2));
        let (first, again) = (with(&view, Some(&one)), with(&view, Some(&later)));
        assert_eq!(first.challenge.as_ref(), Some(&one));
        assert!(says_the_same(&first, &again));
        let other = answer("b", 1);
        assert!(!says_the_same(&first, &with(&view, Some(&other))));
        let more = ChallengeAnswer { kernel_log: true, ..one };
        assert!(!says_the_same(&first, &with(&view, Some(&more))));
        let without = with(&view, None);
        assert!(!says_the_same(&first, &without));
        let json = serde_json::to_value(&without).expect("plain data");
        assert!(json.get("challenge").is_none(), "{json}");
    }
}

fn held(uid: &str, message: &str) -> RemainingEntry {
    RemainingEntry {
        pod_uid: uid.into(),
        reason: "Held".into(),
        message: message.into(),
        ..RemainingEntry::default()
    }
}

fn answered(reason: CleanReason, boot: &str) -> QuarantineState {
    QuarantineState::Answered(Arc::new(QuarantineAnswer {
        id: "q-1".into(),
        reason,
        message: "why".into(),
        boot_id: boot.into(),
        remaining: vec![held("gone-1", "7 (sleep) has it open")],
    }))
}

/// Status and reason of `AttachmentsClean`, and the quarantine that it is about.
fn quarantined(view: &DaemonView, quarantine: &QuarantineState) -> [String; 3] {
    // An earlier reporter has proved another quarantine.
    let mut last = status(&clean());
    last.observed_quarantine = "q-0".into();
    let context = Context { quarantine, ..context(Some(&last), NONE) };
    let status = storage_status(view, false, &context).expect("a status");
    let mut conditions = status.conditions.iter();
    let clean = conditions.find(|it| it.type_ == ATTACHMENTS_CLEAN).expect("one");
    [clean.status.clone(), clean.reason.clone(), status.observed_quarantine]
}

#[test]
fn a_quarantine_is_clean_by_an_answer_of_this_boot_and_by_what_the_snapshot_lists() {
    let node = view(&clean());
    let clean_answer = answered(CleanReason::ProvenClean, "boot");
    assert_eq!(quarantined(&node, &clean_answer), ["True", "ProvenClean", "q-1"]);
    for reason in CleanReason::ALL.into_iter().skip(1) {
        assert_eq!(quarantined(&node, &answered(reason, "boot")), ["False", reason.name(), "q-1"]);
    }
    let other_boot = answered(CleanReason::ProvenClean, "boot-2");
    assert_eq!(quarantined(&node, &other_boot), ["False", "NoAnswer", ""]);
    let no_answer = QuarantineState::NoAnswer("gone".into());
    assert_eq!(quarantined(&node, &no_answer), ["False", "NoAnswer", ""]);
    let mut stale = clean();
    stale.stale = Some(vec![StaleMount::default()]);
    assert_eq!(quarantined(&view(&stale), &clean_answer), ["False", "StaleAttachments", "q-1"]);
    stale.stale = None;
    assert_eq!(quarantined(&view(&stale), &clean_answer), ["False", "Unreadable", "q-1"]);
}

#[test]
fn without_the_daemon_a_quarantine_is_never_clean_and_without_one_nothing_is_claimed() {
    let silent = DaemonView {
        snapshot: Some(Arc::new(clean())),
        outage: Some(Outage { since: Instant::now(), why: "gone".into() }),
    };
    let clean_answer = answered(CleanReason::ProvenClean, "boot");
    assert_eq!(quarantined(&silent, &clean_answer), ["False", "NoAnswer", ""]);
    let node = view(&clean());
    for none in [QuarantineState::Disabled, QuarantineState::Unknown, QuarantineState::Absent] {
        assert_eq!(quarantined(&node, &none), ["True", "NothingStale", ""]);
        assert_eq!(quarantined(&silent, &none), ["Unknown", "DaemonNotAnswering", ""]);
    }
}

#[test]
fn an_outage_that_is_too_short_to_be_published_takes_the_proof_back() {
    let silent = DaemonView {
        snapshot: Some(Arc::new(clean())),
        outage: Some(Outage { since: Instant::now(), why: "gone".into() }),
    };
    let mut proved = status(&clean());
    proved.observed_quarantine = "q-1".into();
    let of = |quarantine: &QuarantineState| {
        let context = Context { quarantine, ..context(Some(&proved), NONE) };
        storage_status(&silent, true, &context)
    };
    let taken_back = of(&QuarantineState::NoAnswer("gone".into())).expect("a status");
    assert_eq!(state(&taken_back, ATTACHMENTS_CLEAN), ("False", "NoAnswer"));
    assert_eq!(taken_back.observed_quarantine, "");
    assert_eq!(taken_back.drive_ids, proved.drive_ids);
    assert!(!says_the_same(&proved, &taken_back));
    for other in [QuarantineState::Absent, answered(CleanReason::ProvenClean, "boot")] {
        assert!(of(&other).is_none(), "{other:?}");
    }
}

#[test]
fn the_answer_to_a_quarantine_is_a_change() {
    let before = status(&clean());
    let mut after = before.clone();
    after.observed_quarantine = "q-1".into();
    assert!(!says_the_same(&before, &after));
}

#[test]
fn what_is_left_of_a_quarantine_has_its_pod_and_volumes_and_stays_until_there_is_another_answer() {
    let mut node = failing();
    let pod = PodRef { uid: "gone-1".into(), name: "db-0".into(), namespace: "shop".into() };
    node.volumes.get_mut("v1").expect("there").pods = vec![pod];
    let of = |quarantine: &QuarantineState, last: Option<&NodeStorageStatus>| {
        let context = Context { quarantine, ..context(last, NONE) };
        storage_status(&view(&node), false, &context).expect("a status")
    };
    let answer = answered(CleanReason::Held, "boot");
    let left = of(&answer, None);
    let named = RemainingEntry {
        namespace: "shop".into(),
        pod: "db-0".into(),
        persistent_volumes: vec!["pv1".into()],
        ..held("gone-1", "7 (sleep) has it open")
    };
    assert_eq!(left.remaining, [named]);
    for unanswered in [
        QuarantineState::NoAnswer("gone".into()),
        QuarantineState::Unknown,
        answered(CleanReason::ProvenClean, "boot-2"),
    ] {
        assert_eq!(of(&unanswered, Some(&left)).remaining, left.remaining, "{unanswered:?}");
    }
    assert_eq!(of(&QuarantineState::Absent, Some(&left)).remaining, []);
    let mut other = left.clone();
    other.remaining[0].message = "8 (sleep) has it open".into();
    assert!(!says_the_same(&left, &other));
}

#[test]
fn what_the_list_of_stale_mounts_has_is_not_said_twice() {
    let mut node = clean();
    node.stale = Some(vec![StaleMount { path: "/a".into(), ..StaleMount::default() }]);
    let answer = QuarantineState::Answered(Arc::new(QuarantineAnswer {
        id: "q-1".into(),
        reason: CleanReason::StaleAttachments,
        message: "why".into(),
        boot_id: "boot".into(),
        remaining: vec![held("", "/a: no pod has it"), held("", "/b: staged for no pod")],
    }));
    let context = Context { quarantine: &answer, ..context(None, NONE) };
    let status = storage_status(&view(&node), false, &context).expect("a status");
    assert_eq!(status.remaining, [held("", "/b: staged for no pod")]);
}
