use super::*;
use std::sync::Arc;

use crate::fixture::*;
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::provision::{BackingKind, ProvidedVolume, VolumePresence};
use diskvitals_finding::{Evidence, Subject};

const TARGET: &str = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-h/mount";

fn finding(reason: Reason, severity: Severity, status: Status, message: &str) -> Finding {
    Finding {
        id: FindingId::known("f"),
        subject: Subject::Volume(volume("csi:d/h")),
        reason,
        severity,
        status,
        message: message.into(),
        since: at(0),
        last_seen: at(0),
        count: 1,
        evidence: vec![Evidence {
            source: "test".into(),
            time: at(0),
            text: String::new(),
            witness: diskvitals_finding::WitnessKind::Other,
            present: false,
        }],
        clears_when: String::new(),
        advice: None,
        acknowledged: None,
        maintained: false,
        cleared: None,
        follows: None,
    }
}

fn known(mounts: &[&str]) -> KnownVolume {
    let mut host = TestHost::default().disk("sda", "8:0", "A").csi(
        "d",
        "h",
        Some("/staging"),
        &[("u1", TARGET)],
    );
    for path in mounts {
        host = host.mounted("8:0", "/", path, "ext4", "/dev/sda");
    }
    if !mounts.contains(&TARGET) && mounts.contains(&"/staging") {
        host.kubelet.volumes[0].publications.clear();
    }
    host.read_all(0);
    host.facts.volumes[&volume("csi:d/h")].clone()
}

fn all(known: &KnownVolume, findings: &[&Finding]) -> (CsiStatus, OperationalStatus, UsageStatus) {
    let statuses = statuses(known, findings);
    (statuses.csi, statuses.operational, statuses.usage)
}

#[test]
fn statuses_follow_mounts_and_findings() {
    use CsiStatus as C;
    use OperationalStatus as O;
    use UsageStatus as U;
    let published = known(&["/staging", TARGET]);
    assert_eq!(all(&published, &[]), (C::Published, O::Operative, U::InUse));
    assert_eq!(all(&known(&["/staging"]), &[]), (C::Staged, O::Operative, U::Idle));
    let not_mounted = finding(Reason::NotMounted, Severity::Bad, Status::Inaccessible, "m");
    assert_eq!(all(&known(&[]), &[&not_mounted]), (C::Failed, O::Missing, U::Failed));
    assert_eq!(all(&known(&[]), &[]), (C::Created, O::Operative, U::InUse), "it may be on its way");
    let dead = finding(Reason::NotAccessible, Severity::Bad, Status::Inaccessible, "m");
    assert_eq!(all(&published, &[&dead]), (C::Published, O::Inoperative, U::Failed));
    let gone = finding(Reason::DeviceMissing, Severity::Bad, Status::Inaccessible, "m");
    assert_eq!(all(&published, &[&gone]), (C::Published, O::Missing, U::Failed));
    let mut retained = published.clone();
    retained.retained = true;
    assert_eq!(all(&retained, &[&gone]), (C::Removed, O::Missing, U::Released));
}

fn volume_condition(
    findings: &[&Finding],
    health: Health,
    unknown: Option<(&str, Timestamp)>,
    previous: Option<&Condition>,
) -> Option<Condition> {
    let known = known(&["/staging", TARGET]);
    condition(&known.facts, findings, health, statuses(&known, findings), unknown, previous)
}

#[test]
fn a_record_that_the_pool_does_not_return_is_no_fault_of_what_a_pod_has_mounted() {
    let status = |mounts: &[&str], is_unread: bool| {
        let mut known = known(mounts);
        Arc::make_mut(&mut known.facts).provided = Some(Box::new(ProvidedVolume {
            handle: "h".into(),
            kind: BackingKind::StaticDirectory,
            size: 0,
            device: None,
            backing: "/srv/h".into(),
            staged: None,
            published: Vec::new(),
            presence: VolumePresence::Present,
            error: Some("its record cannot be read".into()),
            is_unread,
        }));
        all(&known, &[]).0
    };
    assert_eq!(status(&["/staging", TARGET], true), CsiStatus::Published);
    // It cannot be mounted anew, and another error is about what is mounted too.
    assert_eq!(status(&["/staging"], true), CsiStatus::Failed);
    assert_eq!(status(&["/staging", TARGET], false), CsiStatus::Failed);
}

#[test]
fn a_provision_error_precedes_all_findings_except_data_loss() {
    let mut host = crate::storage::tests::pool(None, &[]);
    host.provision.as_mut().expect("has one").volumes[0].error =
        Some("its record cannot be read".into());
    host.read_all(0);
    host.read_provision(0);
    let known = &host.facts.volumes[&volume("csi:own/v1")];
    let message = |findings: &[&Finding]| {
        condition(&known.facts, findings, Health::Bad, statuses(known, findings), None, None)
            .expect("known")
            .message
    };
    let milder = finding(Reason::DriveFailing, Severity::Suspect, Status::Degraded, "m");
    let lost = finding(Reason::FilesystemCorrupted, Severity::Bad, Status::DataLoss, "n");
    let said = "the volume cannot be used: its record cannot be read";
    assert_eq!(message(&[&milder]), format!("{said}; DriveFailing: m"));
    assert_eq!(
        message(&[&milder, &lost]),
        format!("FilesystemCorrupted: n; {said}; DriveFailing: m")
    );
}

#[test]
fn a_healthy_volume_is_normal_and_says_so() {
    let condition = volume_condition(&[], Health::Good, None, None).expect("known");
    assert!(!condition.abnormal);
    assert_eq!(condition.message, "the volume is published and nothing is known against it");
}

#[test]
fn every_cause_is_named_worst_first() {
    let space = finding(Reason::OutOfSpace, Severity::Suspect, Status::Degraded, "little left");
    let dead = finding(Reason::NotAccessible, Severity::Bad, Status::Inaccessible, "EIO");
    let note = finding(Reason::DriveMissing, Severity::Info, Status::Information, "unseen");
    let condition =
        volume_condition(&[&space, &dead, &note], Health::Bad, None, None).expect("known");
    assert!(condition.abnormal);
    assert_eq!(condition.message, "NotAccessible: EIO; OutOfSpace: little left");
}

#[test]
fn bad_health_without_a_finding_is_abnormal_all_the_same() {
    let condition = volume_condition(&[], Health::Suspect, None, None);
    assert!(condition.expect("known").abnormal);
}

#[test]
fn messages_keep_within_the_limit_at_any_length_and_alphabet() {
    let long = "ü".repeat(511);
    let findings: Vec<Finding> = (0..4)
        .map(|_| finding(Reason::NotAccessible, Severity::Bad, Status::Inaccessible, &long))
        .collect();
    for count in 1..=4 {
        let refs: Vec<&Finding> = findings.iter().take(count).collect();
        let condition = volume_condition(&refs, Health::Bad, None, None).expect("known");
        assert!(condition.message.len() <= MAX_MESSAGE);
        let why = "ä".repeat(3000);
        let unknown =
            volume_condition(&refs, Health::Unknown, Some((&why, at(1))), Some(&condition))
                .expect("known before");
        assert!(unknown.message.len() <= MAX_MESSAGE && unknown.abnormal);
    }
}

#[test]
fn an_unknown_condition_repeats_the_last_known_one_once() {
    let dead = finding(Reason::NotAccessible, Severity::Bad, Status::Inaccessible, "EIO");
    let before = volume_condition(&[&dead], Health::Bad, None, None).expect("known");
    let first =
        volume_condition(&[&dead], Health::Unknown, Some(("no scan", at(5))), Some(&before))
            .expect("known before");
    assert_eq!(
        first,
        Condition {
            abnormal: true,
            message: format!("NotAccessible: EIO (unknown since {}: no scan)", at(5))
        }
    );
    assert_eq!(
        volume_condition(&[&dead], Health::Unknown, Some(("no scan", at(5))), Some(&first)),
        Some(first)
    );
    let never = volume_condition(&[], Health::Unknown, Some(("no scan", at(5))), None);
    assert_eq!(never, None, "nothing is known to be normal");
}
