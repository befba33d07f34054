use std::sync::Arc;

use tokio::time::Instant;

use super::*;
use crate::report::transitions::tests::{drive, issue, snapshot, volume};

fn condition_of(snapshot: NodeSnapshot) -> StorageCondition {
    storage_condition(&DaemonView { snapshot: Some(Arc::new(snapshot)), outage: None }, false)
        .expect("known")
}

#[test]
fn the_condition_is_true_when_all_is_known_and_nothing_is_adverse() {
    let condition = condition_of(snapshot(&[]));
    let message = "no findings for 1 drives and 2 volumes";
    assert_eq!(
        condition,
        StorageCondition {
            status: ConditionStatus::True,
            reason: "NothingFound".into(),
            message: Shown::value(message, ' ', 1024)
        }
    );
}

#[test]
fn the_condition_is_false_with_the_worst_reason_and_lists_all_issues() {
    let worst = Issue {
        reason: "DriveMissing".into(),
        message: "it is gone".into(),
        ..issue(drive("d1"), Severity::Bad)
    };
    let condition =
        condition_of(snapshot(&[("0a", issue(volume("v1"), Severity::Suspect)), ("0b", worst)]));
    assert_eq!(
        (condition.status, condition.reason.as_str()),
        (ConditionStatus::False, "DriveMissing")
    );
    assert_eq!(
        condition.message.as_str(),
        "1 bad, 1 suspect: DriveMissing: drive sda: it is gone; SmartFailing: volume pv1: it says that it fails"
    );
}

#[test]
fn the_message_has_one_line_a_drive_and_counts_the_volumes_on_failing_drives() {
    let of_drive = |reason: &str, severity| Issue {
        reason: reason.into(),
        message: format!("drive d1 (sda): {reason} in words"),
        ..issue(drive("d1"), severity)
    };
    let of_volume =
        |id: &str| Issue { reason: "DriveFailing".into(), ..issue(volume(id), Severity::Bad) };
    let condition = condition_of(snapshot(&[
        ("0a", of_drive("SmartFailing", Severity::Bad)),
        ("0b", of_drive("PendingSectors", Severity::Suspect)),
        ("0c", of_volume("v1")),
        ("0d", of_volume("fs:root")),
    ]));
    assert_eq!(
        condition.message.as_str(),
        "3 bad, 1 suspect: SmartFailing: drive sda: SmartFailing in words (and PendingSectors); \
         2 volumes on failing drives"
    );
}

#[test]
fn of_equally_bad_issues_the_drive_is_the_reason_and_not_its_volumes() {
    let of_volume =
        Issue { reason: "DriveFailing".into(), status: 4, ..issue(volume("v1"), Severity::Bad) };
    let condition =
        condition_of(snapshot(&[("0a", of_volume), ("0b", issue(drive("d1"), Severity::Bad))]));
    assert_eq!(condition.reason, "SmartFailing");
}

#[test]
fn acknowledged_and_maintenance_issues_are_mentioned_but_not_counted() {
    let acknowledged = Issue { acknowledged: true, ..issue(volume("v1"), Severity::Bad) };
    let maintained = Issue { maintained: true, ..issue(drive("d1"), Severity::Bad) };
    let condition = condition_of(snapshot(&[("0a", maintained), ("0b", acknowledged)]));
    assert_eq!(condition.status, ConditionStatus::True);
    assert!(
        condition.message.ends_with("; 2 acknowledged or under maintenance"),
        "{}",
        condition.message
    );
}

#[test]
fn unknown_health_is_reported_with_its_reason_also_beside_bad_issues() {
    let mut seen = snapshot(&[]);
    seen.health = Health::Unknown;
    *seen.drives.get_mut("d1").expect("there") = crate::report::node_snapshot::Drive {
        health: Health::Unknown,
        why: "smartctl hangs".into(),
        ..seen.drives["d1"].clone()
    };
    let condition = condition_of(seen.clone());
    let message = "drive sda: health unknown: smartctl hangs";
    assert_eq!(
        condition,
        StorageCondition {
            status: ConditionStatus::Unknown,
            reason: "HealthUnknown".into(),
            message: Shown::value(message, ' ', 1024)
        }
    );
    seen.issues.insert("0a".into(), issue(volume("v1"), Severity::Bad));
    let condition = condition_of(seen);
    assert_eq!(condition.status, ConditionStatus::False);
    assert!(
        condition.message.ends_with("; drive sda: health unknown: smartctl hangs"),
        "{}",
        condition.message
    );
}

#[test]
fn an_unexplained_node_health_is_never_true() {
    for health in [Health::Unknown, Health::Suspect, Health::Bad] {
        let condition = condition_of(NodeSnapshot { health, ..snapshot(&[]) });
        assert_eq!(condition.status, ConditionStatus::Unknown, "{health:?}");
        assert!(!condition.message.is_empty());
    }
}

#[test]
fn an_absent_daemon_is_unknown_after_the_grace_period_and_unreported_before() {
    let lost = Some(Outage { since: Instant::now(), why: "no diskvitalsd listens".into() });
    for snapshot in [None, Some(Arc::new(snapshot(&[])))] {
        let view = DaemonView { snapshot, outage: lost.clone() };
        assert_eq!(storage_condition(&view, true), None);
        let condition = storage_condition(&view, false).expect("a condition");
        assert_eq!(
            (condition.status, condition.reason.as_str()),
            (ConditionStatus::Unknown, "DaemonNotAnswering")
        );
        assert!(condition.message.contains("no diskvitalsd listens"));
    }
    assert_eq!(storage_condition(&DaemonView::default(), false), None);
}

#[test]
fn a_thousand_findings_with_hostile_text_make_a_short_message() {
    let hostile = |number: usize| Issue {
        message: format!("\u{1b}[2J\n{number}ä").repeat(200),
        ..issue(drive("d1"), Severity::Bad)
    };
    let mut seen = snapshot(&[]);
    seen.issues = (0..1000).map(|number| (format!("{number:04}"), hostile(number))).collect();
    let condition = condition_of(seen);
    assert!(
        condition.message.len() <= 1024
            && condition.message.starts_with("1000 bad: ")
            && !condition.message.contains(diskvitals_text::echo::is_deceptive)
    );
}

#[test]
fn a_drive_without_its_first_answer_is_not_called_healthy() {
    let mut seen = snapshot(&[]);
    let drive = seen.drives.get_mut("d1").expect("there");
    (drive.health, drive.is_pending) = (Health::Unknown, true);
    drive.why = "SMART: not queried yet".into();
    seen.health = Health::Unknown;
    let condition = condition_of(seen);
    assert_eq!(
        (condition.status, condition.message.as_str()),
        (ConditionStatus::Unknown, "drive sda: health unknown: SMART: not queried yet")
    );
}

#[test]
fn a_drive_that_has_been_asleep_all_the_time_does_not_count() {
    let mut seen = snapshot(&[]);
    let drive = seen.drives.get_mut("d1").expect("there");
    (drive.health, drive.is_pending, drive.is_asleep) = (Health::Unknown, true, true);
    assert_eq!(condition_of(seen).status, ConditionStatus::True);
}
