use std::sync::Arc;

use tokio::time::Instant;

use super::*;
use crate::csi::report::transitions::tests::{drive, issue, picture, volume};

fn of_picture(picture: NodeSnapshot) -> StorageCondition {
    storage_condition(
        &DaemonView {
            snapshot: Some(Arc::new(picture)),
            outage: None,
        },
        false,
    )
    .expect("known")
}

#[test]
fn the_condition_is_true_when_all_is_known_and_nothing_is_adverse() {
    let told = of_picture(picture(&[]));
    let message = "nothing is found against 1 drives and 2 volumes";
    assert_eq!(
        told,
        StorageCondition {
            status: ConditionStatus::True,
            reason: "NothingFound".into(),
            message: message.into()
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
    let told = of_picture(picture(&[
        ("0a", issue(volume("v1"), Severity::Suspect)),
        ("0b", worst),
    ]));
    assert_eq!(
        (told.status, told.reason.as_str()),
        (ConditionStatus::False, "DriveMissing")
    );
    assert_eq!(
        told.message,
        "1 bad, 1 suspect: DriveMissing: drive sda: it is gone; SmartFailing: volume pv1: it says that it fails"
    );
}

#[test]
fn of_equally_bad_issues_the_drive_is_the_reason_and_not_its_volumes() {
    let of_volume = Issue {
        reason: "DriveFailing".into(),
        status: 4,
        ..issue(volume("v1"), Severity::Bad)
    };
    let told = of_picture(picture(&[
        ("0a", of_volume),
        ("0b", issue(drive("d1"), Severity::Bad)),
    ]));
    assert_eq!(told.reason, "SmartFailing");
}

#[test]
fn acknowledged_and_maintenance_issues_are_mentioned_but_not_counted() {
    let acknowledged = Issue {
        acknowledged: true,
        ..issue(volume("v1"), Severity::Bad)
    };
    let mut seen = picture(&[
        ("0a", issue(drive("d1"), Severity::Bad)),
        ("0b", acknowledged),
    ]);
    seen.drives.get_mut("d1").expect("there").maintenance = true;
    let told = of_picture(seen);
    assert_eq!(told.status, ConditionStatus::True);
    assert!(
        told.message
            .ends_with("; 2 acknowledged or under maintenance"),
        "{}",
        told.message
    );
}

#[test]
fn unknown_health_is_reported_with_its_reason_also_beside_bad_issues() {
    let mut seen = picture(&[]);
    seen.health = Health::Unknown;
    *seen.drives.get_mut("d1").expect("there") = crate::csi::report::node_snapshot::Drive {
        health: Health::Unknown,
        why: "smartctl hangs".into(),
        ..seen.drives["d1"].clone()
    };
    let told = of_picture(seen.clone());
    let message = "drive sda: cannot be told: smartctl hangs";
    assert_eq!(
        told,
        StorageCondition {
            status: ConditionStatus::Unknown,
            reason: "HealthUnknown".into(),
            message: message.into()
        }
    );
    seen.issues
        .insert("0a".into(), issue(volume("v1"), Severity::Bad));
    let told = of_picture(seen);
    assert_eq!(told.status, ConditionStatus::False);
    assert!(
        told.message
            .ends_with("; drive sda: cannot be told: smartctl hangs"),
        "{}",
        told.message
    );
}

#[test]
fn an_unexplained_node_health_is_never_true() {
    for health in [Health::Unknown, Health::Suspect, Health::Bad] {
        let told = of_picture(NodeSnapshot {
            health,
            ..picture(&[])
        });
        assert_eq!(told.status, ConditionStatus::Unknown, "{health:?}");
        assert!(!told.message.is_empty());
    }
}

#[test]
fn an_absent_daemon_is_unknown_after_the_grace_period_and_unreported_before() {
    let lost = Some(Outage {
        since: Instant::now(),
        why: "no diskvitalsd listens".into(),
    });
    for picture in [None, Some(Arc::new(picture(&[])))] {
        let sight = DaemonView {
            snapshot: picture,
            outage: lost.clone(),
        };
        assert_eq!(storage_condition(&sight, true), None);
        let told = storage_condition(&sight, false).expect("told");
        assert_eq!(
            (told.status, told.reason.as_str()),
            (ConditionStatus::Unknown, "DaemonNotAnswering")
        );
        assert!(told.message.contains("no diskvitalsd listens"));
    }
    assert_eq!(storage_condition(&DaemonView::default(), false), None);
}

#[test]
fn a_thousand_findings_with_hostile_text_make_a_short_message() {
    let hostile = |number: usize| Issue {
        message: format!("\u{1b}[2J\n{number}ä").repeat(200),
        ..issue(drive("d1"), Severity::Bad)
    };
    let mut seen = picture(&[]);
    seen.issues = (0..1000)
        .map(|number| (format!("{number:04}"), hostile(number)))
        .collect();
    let told = of_picture(seen);
    assert!(
        told.message.len() <= 1024
            && told.message.starts_with("1000 bad: ")
            && !told.message.contains(char::is_control)
    );
}

#[test]
fn a_drive_without_its_first_smart_data_is_not_called_healthy() {
    let mut seen = picture(&[]);
    seen.drives.get_mut("d1").expect("there").smart_pending =
        Some("SMART: smartctl has not returned".into());
    let told = of_picture(seen.clone());
    assert_eq!(
        (told.status, told.message.as_str()),
        (
            ConditionStatus::Unknown,
            "drive sda: cannot be told: SMART: smartctl has not returned"
        )
    );
    seen.drives.get_mut("d1").expect("there").maintenance = true;
    assert_eq!(of_picture(seen).status, ConditionStatus::True);
}
