use std::sync::Arc;

use tokio::time::Instant;

use super::*;
use crate::csi::report::news::tests::{drive, picture, trouble, volume};

fn of_picture(picture: Picture) -> Condition {
    condition(
        &Sight {
            picture: Some(Arc::new(picture)),
            lost: None,
        },
        false,
    )
    .expect("known")
}

#[test]
fn it_is_true_where_all_is_known_and_nothing_is_found() {
    let told = of_picture(picture(&[]));
    let message = "nothing is found against 1 drives and 2 volumes";
    assert_eq!(
        told,
        Condition {
            status: Status::True,
            reason: "NothingFound".into(),
            message: message.into()
        }
    );
}

#[test]
fn it_is_false_with_the_worst_reason_and_all_of_them_by_name() {
    let worst = Trouble {
        reason: "DriveMissing".into(),
        message: "it is gone".into(),
        ..trouble(drive("d1"), Level::Bad)
    };
    let told = of_picture(picture(&[
        ("0a", trouble(volume("v1"), Level::Suspect)),
        ("0b", worst),
    ]));
    assert_eq!(
        (told.status, told.reason.as_str()),
        (Status::False, "DriveMissing")
    );
    assert_eq!(
        told.message,
        "1 bad, 1 suspect: DriveMissing: drive sda: it is gone; SmartFailing: volume pv1: it says that it fails"
    );
}

#[test]
fn of_equally_bad_ones_the_drive_is_the_reason_and_not_what_stands_on_it() {
    let of_volume = Trouble {
        reason: "DriveFailing".into(),
        status: 4,
        ..trouble(volume("v1"), Level::Bad)
    };
    let told = of_picture(picture(&[
        ("0a", of_volume),
        ("0b", trouble(drive("d1"), Level::Bad)),
    ]));
    assert_eq!(told.reason, "SmartFailing");
}

#[test]
fn what_is_acknowledged_or_under_maintenance_does_not_count_and_is_mentioned() {
    let acknowledged = Trouble {
        acknowledged: true,
        ..trouble(volume("v1"), Level::Bad)
    };
    let mut seen = picture(&[
        ("0a", trouble(drive("d1"), Level::Bad)),
        ("0b", acknowledged),
    ]);
    seen.drives.get_mut("d1").expect("there").maintenance = true;
    let told = of_picture(seen);
    assert_eq!(told.status, Status::True);
    assert!(
        told.message
            .ends_with("; 2 acknowledged or under maintenance"),
        "{}",
        told.message
    );
}

#[test]
fn what_cannot_be_told_is_unknown_with_its_reason_and_is_not_hidden_by_what_is_bad() {
    let mut seen = picture(&[]);
    seen.health = Health::Unknown;
    *seen.drives.get_mut("d1").expect("there") = crate::csi::report::picture::Drive {
        health: Health::Unknown,
        why: "smartctl hangs".into(),
        ..seen.drives["d1"].clone()
    };
    let told = of_picture(seen.clone());
    let message = "drive sda: cannot be told: smartctl hangs";
    assert_eq!(
        told,
        Condition {
            status: Status::Unknown,
            reason: "HealthUnknown".into(),
            message: message.into()
        }
    );
    seen.troubles
        .insert("0a".into(), trouble(volume("v1"), Level::Bad));
    let told = of_picture(seen);
    assert_eq!(told.status, Status::False);
    assert!(
        told.message
            .ends_with("; drive sda: cannot be told: smartctl hangs"),
        "{}",
        told.message
    );
}

#[test]
fn a_health_that_nothing_in_the_picture_explains_is_never_true() {
    for health in [Health::Unknown, Health::Suspect, Health::Bad] {
        let told = of_picture(Picture {
            health,
            ..picture(&[])
        });
        assert_eq!(told.status, Status::Unknown, "{health:?}");
        assert!(!told.message.is_empty());
    }
}

#[test]
fn a_daemon_that_is_away_is_unknown_when_patience_is_over_and_nothing_is_said_before() {
    let lost = Some(Lost {
        since: Instant::now(),
        why: "no diskvitalsd listens".into(),
    });
    for picture in [None, Some(Arc::new(picture(&[])))] {
        let sight = Sight {
            picture,
            lost: lost.clone(),
        };
        assert_eq!(condition(&sight, true), None);
        let told = condition(&sight, false).expect("told");
        assert_eq!(
            (told.status, told.reason.as_str()),
            (Status::Unknown, "DaemonNotAnswering")
        );
        assert!(told.message.contains("no diskvitalsd listens"));
    }
    assert_eq!(condition(&Sight::default(), false), None);
}

#[test]
fn a_thousand_findings_with_hostile_words_make_a_short_message() {
    let hostile = |number: usize| Trouble {
        message: format!("\u{1b}[2J\n{number}ä").repeat(200),
        ..trouble(drive("d1"), Level::Bad)
    };
    let mut seen = picture(&[]);
    seen.troubles = (0..1000)
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
fn a_drive_that_was_to_be_asked_and_has_never_answered_is_not_called_healthy() {
    let mut seen = picture(&[]);
    seen.drives.get_mut("d1").expect("there").unasked =
        Some("SMART: smartctl has not returned".into());
    let told = of_picture(seen.clone());
    assert_eq!(
        (told.status, told.message.as_str()),
        (
            Status::Unknown,
            "drive sda: cannot be told: SMART: smartctl has not returned"
        )
    );
    seen.drives.get_mut("d1").expect("there").maintenance = true;
    assert_eq!(of_picture(seen).status, Status::True);
}
