use super::*;

#[test]
fn the_text_of_an_issue_does_not_name_its_drive_again() {
    for (message, text) in [
        ("drive naa.5 (sda) could not read", "could not read"),
        ("drive naa.5 (sda): It fails (soon)", "It fails (soon)"),
        ("drive naa.5 is missing", "is missing"),
        ("the cable of drive naa.5 (sda)", "the cable of drive naa.5 (sda)"),
    ] {
        assert_eq!(without_drive_name(message, "naa.5"), text);
    }
}

fn snapshot(objects: &Objects) -> NodeSnapshot {
    NodeSnapshot::from_wire(&wire::Node::default(), objects, Timestamp::UNIX_EPOCH)
}

fn findings(findings: impl IntoIterator<Item = wire::Finding>) -> BTreeMap<String, wire::Finding> {
    findings.into_iter().map(|finding| (finding.id.clone(), finding)).collect()
}

fn of_volume(volume: wire::Volume) -> Objects {
    Objects { volumes: [(volume.id.clone(), volume)].into(), ..Objects::default() }
}

fn finding(
    id: &str,
    kind: wire::SubjectKind,
    subject: &str,
    severity: wire::Severity,
) -> wire::Finding {
    wire::Finding {
        id: id.into(),
        subject: Some(wire::Subject {
            kind: kind.into(),
            id: subject.into(),
            ..Default::default()
        }),
        severity: severity.into(),
        status: wire::FindingStatus::Degraded.into(),
        reason: "SmartFailing".into(),
        message: "it says so".into(),
        since: Some(prost_types::Timestamp { seconds: 100, nanos: 0 }),
        count: 1,
        ..Default::default()
    }
}

fn pod(uid: &str, name: &str, volume_name: &str, path: &str) -> wire::PodUse {
    let namespace = if name.is_empty() { "" } else { "shop" };
    wire::PodUse {
        uid: uid.into(),
        namespace: namespace.into(),
        name: name.into(),
        volume_name: volume_name.into(),
        path: path.into(),
    }
}

fn claims(volume: &wire::Volume) -> Vec<(String, Vec<String>)> {
    Volume::from_wire(volume)
        .pv_uses
        .into_iter()
        .map(|claimed| (claimed.pv, claimed.namespaces.into_iter().collect()))
        .collect()
}

#[test]
fn a_finding_is_an_issue_until_cleared_and_then_kept_for_an_hour() {
    let raised = finding("0a", wire::SubjectKind::Drive, "d1", wire::Severity::Bad);
    let active = Objects { findings: findings([raised.clone()]), ..Objects::default() };
    assert_eq!(snapshot(&active).issues["0a"].severity, Severity::Bad);
    let cleared = wire::Finding {
        cleared: Some(wire::Cleared {
            time: Some(prost_types::Timestamp { seconds: 1000, nanos: 0 }),
            why: "the condition is over".into(),
        }),
        ..raised
    };
    let cleared = Objects { cleared: findings([cleared]), ..Objects::default() };
    let at = |second| {
        let now = Timestamp::from_second(second).expect("a time");
        NodeSnapshot::from_wire(&wire::Node::default(), &cleared, now)
    };
    let kept = at(1000 + 3600);
    assert!(kept.issues.is_empty());
    assert_eq!(
        kept.recently_cleared["0a"].cleared.as_ref().map(|cleared| cleared.why.as_str()),
        Some("the condition is over")
    );
    assert!(at(1000 + 3601).recently_cleared.is_empty());
}

#[test]
fn what_only_a_newer_daemon_knows_is_never_good() {
    let mut strange = finding("0a", wire::SubjectKind::Drive, "d1", wire::Severity::Bad);
    strange.severity = 99;
    let objects = Objects { findings: findings([strange]), ..Objects::default() };
    let node = wire::Node { health: 99, settled: true, ..Default::default() };
    let snapshot = NodeSnapshot::from_wire(&node, &objects, Timestamp::UNIX_EPOCH);
    assert_eq!(snapshot.issues["0a"].severity, Severity::Suspect);
    assert_eq!(snapshot.health, Health::Unknown);
    assert_eq!(NodeSnapshot::default().health, Health::Unknown);
}

#[test]
fn the_claim_of_a_local_volume_and_of_a_csi_volume_is_found_by_the_name_of_its_persistent_volume() {
    let local = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~local-volume/local-pv";
    let of = |pods| wire::Volume { id: "fs:1".into(), pods, ..Default::default() };
    assert_eq!(
        claims(&of(vec![pod("u1", "web", "local-pv", local)])),
        [("local-pv".to_owned(), vec!["shop".to_owned()])]
    );
    // The pod's namespace is not known: the claim is asked for all the same.
    assert_eq!(
        claims(&of(vec![pod("u1", "", "local-pv", local)])),
        [("local-pv".to_owned(), vec![])]
    );
    let csi = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-1/mount";
    assert_eq!(
        claims(&of(vec![pod("u1", "web", "pvc-1", csi)])),
        [("pvc-1".to_owned(), vec!["shop".to_owned()])]
    );
    let inline = wire::Volume { ephemeral: true, ..of(vec![pod("u1", "web", "scratch", csi)]) };
    assert_eq!(claims(&inline), []);
    // Here the name may be one of the pod's own specification.
    let nfs = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~nfs/data";
    assert_eq!(claims(&of(vec![pod("u1", "web", "data", nfs)])), []);
    let block = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-2/u1";
    let block = wire::Volume { pv: "pvc-2".into(), ..of(vec![pod("u1", "web", "pvc-2", block)]) };
    assert_eq!(claims(&block), [("pvc-2".to_owned(), vec!["shop".to_owned()])]);
}

#[test]
fn a_pod_without_a_name_is_left_out() {
    let volume = wire::Volume {
        pods: vec![
            pod("u1", "", "a", "/x"),
            pod("u2", "web", "a", "/y"),
            pod("u2", "web", "b", "/z"),
        ],
        ..Default::default()
    };
    let names: Vec<String> =
        Volume::from_wire(&volume).pods.into_iter().map(|pod| pod.name).collect();
    assert_eq!(names, ["web"]);
}

#[test]
fn a_volume_that_cannot_serve_is_an_issue_also_without_a_finding() {
    let volume = wire::Volume {
        id: "csi:d/h".into(),
        health: wire::Health::Good.into(),
        operational_status: wire::OperationalStatus::Missing.into(),
        condition: Some(wire::Condition { abnormal: true, message: "the image is gone".into() }),
        ..Default::default()
    };
    let broken = snapshot(&of_volume(volume.clone()));
    let issue = &broken.issues["state of csi:d/h"];
    assert_eq!(
        (issue.severity, issue.reason.as_str(), issue.since),
        (Severity::Bad, "DeviceMissing", None)
    );
    let serves = wire::Volume { condition: Some(wire::Condition::default()), ..volume.clone() };
    assert!(snapshot(&of_volume(serves)).issues.is_empty());
    // A finding says it already.
    let spoken_of = finding("0a", wire::SubjectKind::Volume, "csi:d/h", wire::Severity::Bad);
    let spoken_of = wire::Finding { reason: "DeviceMissing".into(), ..spoken_of };
    let health = wire::Health::Bad.into();
    let spoken_of = wire::Volume { health, findings: vec![spoken_of], ..volume };
    assert!(snapshot(&of_volume(spoken_of)).issues.is_empty());
}

#[test]
fn a_state_is_an_issue_beside_milder_findings_and_an_acknowledged_finding_hides_only_the_state_it_caused()
 {
    let reasons = |health: wire::Health,
                   state: fn(&mut wire::Volume),
                   said: &[(&str, wire::FindingStatus, bool)]| {
        let findings =
            said.iter().enumerate().map(|(number, (reason, status, acknowledged))| wire::Finding {
                reason: (*reason).into(),
                status: (*status).into(),
                acknowledged: acknowledged.then(wire::Acknowledgement::default),
                ..finding(
                    &format!("0{number}"),
                    wire::SubjectKind::Volume,
                    "csi:d/h",
                    wire::Severity::Suspect,
                )
            });
        let findings: Vec<wire::Finding> = findings.collect();
        let condition =
            Some(wire::Condition { abnormal: true, message: "the image is gone".into() });
        let mut volume = wire::Volume {
            id: "csi:d/h".into(),
            health: health.into(),
            condition,
            findings,
            ..Default::default()
        };
        state(&mut volume);
        let findings = self::findings(volume.findings.clone());
        let snapshot = snapshot(&Objects { findings, ..of_volume(volume) });
        let counted = snapshot.adverse().into_iter().filter(|(_, issue)| issue.is_counted());
        counted.map(|(_, issue)| issue.reason.clone()).collect::<Vec<String>>()
    };
    let failed: fn(&mut wire::Volume) = |volume| volume.csi_status = wire::CsiStatus::Failed.into();
    let missing: fn(&mut wire::Volume) =
        |volume| volume.operational_status = wire::OperationalStatus::Missing.into();
    let none: fn(&mut wire::Volume) = |_| {};
    let (degraded, inaccessible) =
        (wire::FindingStatus::Degraded, wire::FindingStatus::Inaccessible);
    let (suspect, unknown) = (wire::Health::Suspect, wire::Health::Unknown);
    let mild = |acknowledged| ("FilesystemErrors", degraded, acknowledged);
    assert_eq!(reasons(suspect, failed, &[mild(true)]), ["NotMounted"]);
    assert_eq!(reasons(suspect, missing, &[mild(false)]), ["DeviceMissing", "FilesystemErrors"]);
    // How it is cannot be told, and that it does not serve can.
    assert_eq!(reasons(unknown, failed, &[mild(true)]), ["NotMounted"]);
    // What is acknowledged stays so, and does not come back as a state.
    assert_eq!(reasons(suspect, none, &[mild(true)]), Vec::<String>::new());
    assert_eq!(
        reasons(suspect, failed, &[("StagingNotMounted", degraded, true)]),
        Vec::<String>::new()
    );
    assert_eq!(
        reasons(suspect, missing, &[("DeviceMissing", inaccessible, true)]),
        Vec::<String>::new()
    );
    // As bad, and of something else: it tells of it, but not once it is acknowledged.
    assert_eq!(reasons(suspect, failed, &[("IoStalled", inaccessible, false)]), ["IoStalled"]);
    assert_eq!(reasons(suspect, failed, &[("IoStalled", inaccessible, true)]), ["NotMounted"]);
    // Of the last known condition nothing is known to be left.
    assert_eq!(reasons(unknown, none, &[]), Vec::<String>::new());
}

#[test]
fn a_first_answer_that_is_outstanding_is_no_failure() {
    let of = |cause: wire::UnknownCause| {
        let drive = Drive::from_wire(&wire::Drive {
            health: wire::Health::Unknown.into(),
            health_unknown_cause: cause.into(),
            ..Default::default()
        });
        (drive.is_pending, drive.is_asleep)
    };
    assert_eq!(of(wire::UnknownCause::Pending), (true, false));
    assert_eq!(of(wire::UnknownCause::Asleep), (true, true));
    assert_eq!(of(wire::UnknownCause::Failed), (false, false));
    // An older daemon gives no cause.
    assert_eq!(of(wire::UnknownCause::Unspecified), (false, false));
}

#[test]
fn a_finding_has_the_cause_that_lists_it() {
    let listed = |id: &str| wire::CauseFinding { finding_id: id.into(), ..Default::default() };
    let cause = wire::Cause {
        id: "drive:d1".into(),
        findings: vec![listed("f1")],
        consequences: vec![listed("f2")],
        ..Default::default()
    };
    let objects = Objects { causes: [(cause.id.clone(), cause)].into(), ..Objects::default() };
    let snapshot = snapshot(&objects);
    assert_eq!(snapshot.cause_of("f1"), Some("drive:d1"));
    assert_eq!(snapshot.cause_of("f2"), Some("drive:d1"));
    assert_eq!(snapshot.cause_of("f3"), None);
}
