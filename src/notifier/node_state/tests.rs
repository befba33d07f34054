use super::*;

const HOSTILE: &str = "sda\r\nBcc: x@y\u{202e}\u{1b}[31m";
const ESCAPED: &str = r"sda\r\nBcc: x@y\u{202e}\u{1b}[31m";

fn by_id<T>(objects: impl IntoIterator<Item = T>, id: fn(&T) -> &String) -> BTreeMap<String, T> {
    objects.into_iter().map(|it| (id(&it).clone(), it)).collect()
}

fn answers() -> (wire::Node, Objects) {
    let evidence = || wire::Evidence {
        source: HOSTILE.to_owned(),
        time: None,
        text: HOSTILE.to_owned(),
        ..Default::default()
    };
    let subject =
        || wire::Subject { id: "naa.1".to_owned(), name: HOSTILE.to_owned(), ..Default::default() };
    let finding = |id: &str| wire::Finding {
        id: id.to_owned(),
        subject: Some(subject()),
        // As of a newer daemon.
        severity: 99,
        reason: "SmartFailing".to_owned(),
        message: HOSTILE.to_owned(),
        evidence: vec![evidence(), evidence()],
        ..Default::default()
    };
    let member = |id: &str| wire::CauseFinding {
        finding_id: id.to_owned(),
        subject: Some(subject()),
        reason: "SmartFailing".to_owned(),
        severity: 99,
        ..Default::default()
    };
    let cause = wire::Cause {
        id: "drive:naa.1".to_owned(),
        name: HOSTILE.to_owned(),
        model: HOSTILE.to_owned(),
        serial: "x".repeat(5000),
        severity: 99,
        counted: true,
        findings: vec![member("one"), member("two")],
        hits: vec![wire::CauseHit { name: HOSTILE.to_owned(), ..Default::default() }; 1000],
        message: HOSTILE.to_owned(),
        explain: "a name'; rm -rf /".to_owned(),
        ..Default::default()
    };
    let node = wire::Node {
        name: HOSTILE.to_owned(),
        sources: vec![wire::SourceState {
            name: "smart".to_owned(),
            state: wire::source_state::State::Down.into(),
            detail: "no smartctl".to_owned(),
            since: None,
            is_missed: true,
        }],
        ..Default::default()
    };
    let drives = [
        wire::Drive { id: "naa.1".to_owned(), health: 99, ..Default::default() },
        wire::Drive {
            id: "naa.2".to_owned(),
            name: "sdb".to_owned(),
            model: "M".to_owned(),
            serial: "S".to_owned(),
            health: wire::Health::Suspect.into(),
            findings: vec![wire::Finding { reason: "WornOut".to_owned(), ..Default::default() }],
            ..Default::default()
        },
    ];
    let objects = Objects {
        causes: by_id([cause], |it| &it.id),
        findings: by_id([finding("one"), finding("two")], |it| &it.id),
        drives: by_id(drives, |it| &it.id),
        ..Objects::default()
    };
    (node, objects)
}

fn state() -> NodeState {
    let (node, objects) = answers();
    NodeState::from_wire(&node, &objects)
}

#[test]
fn text_of_others_is_escaped_and_bounded_wherever_it_comes_from() {
    let state = state();
    let item = &state.causes[0].item;
    for text in [
        &state.host,
        &item.name,
        &item.model,
        &item.message,
        &item.hits[0].name,
        &item.evidence[0].text,
        &item.evidence[0].source,
    ] {
        assert_eq!(text, ESCAPED);
    }
    assert_eq!(item.serial.chars().count(), 1025);
    assert_eq!((item.hits.len(), item.more_hits), (64, 936));
    assert_eq!(item.evidence.len(), 1, "the same evidence once");
    assert_eq!(item.command, r"diskvitals explain 'a name'\''; rm -rf /'");
}

#[test]
fn what_only_a_newer_daemon_knows_is_not_read_as_well() {
    let state = state();
    assert_eq!(state.causes[0].item.severity, Level::Suspect);
    assert_eq!(state.counts.drives.unknown, 1);
    assert!(state.good.is_empty());
}

#[test]
fn a_source_that_is_down_and_worn_drives_are_in_the_counts() {
    let counts = state().counts;
    assert_eq!(counts.unread, ["source smart: no smartctl"]);
    assert_eq!(counts.near_end_of_life, ["sdb M S"]);
}

#[test]
fn a_source_of_evidence_is_the_subject_of_a_cause_and_well_once_it_is_read() {
    let subject = || wire::Subject {
        kind: wire::SubjectKind::Source.into(),
        id: "smart".to_owned(),
        name: "source smart".to_owned(),
    };
    let finding = wire::Finding {
        id: "one".to_owned(),
        subject: Some(subject()),
        severity: wire::Severity::Suspect.into(),
        reason: "MonitoringIncomplete".to_owned(),
        message: "SMART cannot be read: smartctl is not installed".to_owned(),
        ..Default::default()
    };
    let cause = wire::Cause {
        id: "source:smart".to_owned(),
        subject: Some(subject()),
        name: "source smart".to_owned(),
        severity: wire::Severity::Suspect.into(),
        counted: true,
        findings: vec![wire::CauseFinding {
            finding_id: "one".to_owned(),
            subject: Some(subject()),
            reason: finding.reason.clone(),
            severity: finding.severity,
            ..Default::default()
        }],
        message: finding.message.clone(),
        ..Default::default()
    };
    let (mut node, objects) = answers();
    let mut objects = Objects {
        causes: by_id([cause], |it| &it.id),
        findings: by_id([finding], |it| &it.id),
        ..objects
    };
    let state = NodeState::from_wire(&node, &objects);
    assert_eq!(state.causes[0].subject, "smart");
    assert_eq!(state.causes[0].item.message, "SMART cannot be read: smartctl is not installed");
    assert!(state.subjects.contains("smart") && !state.good.contains("smart"));
    objects.causes.clear();
    objects.findings.clear();
    node.sources[0].state = wire::source_state::State::Active.into();
    assert!(NodeState::from_wire(&node, &objects).good.contains("smart"));
}
