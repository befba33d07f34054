use super::*;

fn subject(kind: wire::SubjectKind, id: &str) -> wire::Subject {
    wire::Subject { kind: kind.into(), id: id.to_owned(), ..Default::default() }
}

fn finding(id: &str, about: wire::Subject, reason: &str) -> wire::Finding {
    wire::Finding {
        id: id.to_owned(),
        subject: Some(about),
        reason: reason.to_owned(),
        severity: wire::Severity::Bad.into(),
        ..Default::default()
    }
}

fn drive(id: &str) -> wire::Subject {
    subject(wire::SubjectKind::Drive, id)
}

fn volume(id: &str) -> wire::Subject {
    subject(wire::SubjectKind::Volume, id)
}

/// The explanation of drive `a`, below the volumes v (a alone) and m (a and b).
fn explained() -> wire::Explanation {
    let on = |id: &str, drives: &[&str]| wire::Volume {
        id: id.to_owned(),
        drive_ids: drives.iter().map(|&id| id.to_owned()).collect(),
        ..Default::default()
    };
    wire::Explanation {
        subjects: vec![drive("a")],
        volumes: vec![on("v", &["a"]), on("m", &["a", "b"])],
        ..Default::default()
    }
}

/// The ids of the findings, with `!` before those that have an obstacle.
fn ids(found: &[(wire::Finding, Option<String>)]) -> Vec<String> {
    let mark = |obstacle: &Option<String>| if obstacle.is_some() { "!" } else { "" };
    found.iter().map(|(finding, obstacle)| format!("{}{}", mark(obstacle), finding.id)).collect()
}

#[test]
fn a_drive_has_its_findings_and_those_of_volumes_that_only_follow_from_it() {
    let all = [
        finding("1", drive("a"), "SmartFailing"),
        finding("2", volume("v"), "DriveFailing"),
        wire::Finding { follows: "2".to_owned(), ..finding("3", volume("v"), "ReadOnly") },
        finding("4", volume("v"), "OutOfSpace"),
        finding("5", volume("other"), "DriveFailing"),
        finding("6", drive("b"), "Overheating"),
    ];
    assert_eq!(ids(&about(&explained(), &all[..5])), ["1", "2", "3"]);
    let shared = [&all[..], &[finding("7", volume("m"), "DriveFailing")]].concat();
    let found = about(&explained(), &shared);
    assert_eq!(ids(&found), ["1", "2", "3", "!7"]);
    assert_eq!(
        found[3].1.as_deref(),
        Some("not among them: DriveFailing of m (7), since b has findings too")
    );
    // What is known of the other drive already is no obstacle.
    let mut known = shared;
    known[5].acknowledged = Some(wire::Acknowledgement::default());
    assert_eq!(ids(&about(&explained(), &known)), ["1", "2", "3", "7"]);
}

#[test]
fn all_volumes_of_a_pod_are_meant() {
    let explained = wire::Explanation {
        subject: Some(volume("v")),
        subjects: vec![volume("v"), volume("w")],
        ..Default::default()
    };
    let all = [
        finding("1", volume("v"), "OutOfSpace"),
        finding("2", volume("w"), "ReadOnly"),
        finding("3", drive("v"), "SmartFailing"),
    ];
    assert_eq!(ids(&about(&explained, &all)), ["1", "2"]);
}

#[test]
fn what_a_change_applies_to_is_active_and_not_changed_yet() {
    let (active, mut acknowledged) =
        (finding("1", drive("a"), "SmartFailing"), finding("2", drive("a"), "Overheating"));
    acknowledged.acknowledged = Some(wire::Acknowledgement::default());
    let cleared = wire::Finding { cleared: Some(wire::Cleared::default()), ..active.clone() };
    let applies = |change: Change<'_>| {
        [&active, &acknowledged, &cleared].map(|finding| change.applies_to(finding))
    };
    assert_eq!(applies(Change::Acknowledge { note: "n", repaired: false }), [true, false, false]);
    assert_eq!(applies(Change::Unacknowledge), [false, true, false]);
}

#[test]
fn a_mistyped_reason_is_an_error_with_a_suggestion_and_a_newer_one_is_not() {
    let newer = [finding("1", drive("a"), "FromTheFuture")];
    assert!(known_reason("fromthefuture", &newer).is_ok());
    assert!(known_reason("pendingsectors", &newer).is_ok());
    assert_eq!(
        known_reason("PendingSector", &[]).unwrap_err().to_string(),
        "`PendingSector` is no reason; did you mean `PendingSectors`?"
    );
}

#[test]
fn an_ambiguous_prefix_lists_its_candidates() {
    let all: Vec<wire::Finding> =
        (10..25).map(|number| finding(&format!("ab{number}"), drive("a"), "IoErrors")).collect();
    let text = candidates(&all.iter().collect::<Vec<_>>());
    assert!(text.starts_with("ab10 (IoErrors of a), ab11 "), "{text}");
    assert!(text.ends_with("ab19 (IoErrors of a) and 5 more"), "{text}");
    assert_eq!(candidates(&[&all[0]]), "ab10 (IoErrors of a)");
}
