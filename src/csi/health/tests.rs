//! What Kubernetes would not take is never made, whatever the daemon says.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::limits::{MAX_MESSAGE_LEN, MAX_REASON_LEN};

fn finding(
    severity: wire::Severity,
    status: wire::FindingStatus,
    reason: &str,
    message: &str,
) -> wire::Finding {
    let (severity, status) = (severity.into(), status.into());
    wire::Finding {
        severity,
        status,
        reason: reason.into(),
        message: message.into(),
        ..Default::default()
    }
}

fn volume(health: wire::Health, findings: Vec<wire::Finding>) -> wire::Volume {
    let condition = wire::Condition { abnormal: !findings.is_empty(), message: "as it is".into() };
    wire::Volume {
        health: health.into(),
        findings,
        condition: Some(condition),
        ..Default::default()
    }
}

fn well_formed(reason: &str) -> bool {
    let middle = |byte: u8| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte);
    let bytes = reason.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.iter().all(|byte| middle(*byte))
        && bytes.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && bytes.len() <= MAX_REASON_LEN
}

fn any_finding() -> impl Strategy<Value = wire::Finding> {
    // Repeated, because a thousand random characters take a hundred times as long.
    let long = |part: &'static str, lengths| {
        (part, lengths).prop_map(|(part, length): (String, usize)| {
            part.chars().cycle().take(length).collect::<String>()
        })
    };
    let text = prop_oneof![
        "\\PC{0,40}",
        long("[a-zäöü…\\x00-\\x20]{3,9}", 900..1300_usize),
        Just(String::new())
    ];
    let reason = prop_oneof![
        "[A-D]",
        "[A-Za-z0-9_,: .-]{0,20}",
        "\\PC{0,10}",
        long("[A-Za-z,:]{3,9}", 250..300_usize)
    ];
    (-1..6i32, -1..7i32, reason, text, any::<bool>()).prop_map(
        |(severity, status, reason, message, cleared)| wire::Finding {
            severity,
            status,
            reason,
            message,
            cleared: cleared.then(wire::Cleared::default),
            ..Default::default()
        },
    )
}

proptest! {
    #[test]
    fn every_list_keeps_to_the_limits_of_the_api(findings in prop::collection::vec(any_finding(), 0..40), health in 1..4i32) {
        let volume = wire::Volume { health, findings, ..Default::default() };
        let listed = of_volume(&volume).statuses.expect("known");
        prop_assert!(listed.len() <= MAX_STATUSES);
        let keys: HashSet<_> = listed.iter().map(|status| (status.status, status.reason.clone())).collect();
        prop_assert_eq!(keys.len(), listed.len());
        prop_assert!(listed.is_sorted_by(|one, other| one.status >= other.status), "worst first");
        for status in &listed {
            prop_assert!(well_formed(&status.reason), "{:?}", status.reason);
            prop_assert!(status.message.len() <= MAX_MESSAGE_LEN);
        }
    }

    #[test]
    fn the_worst_finding_is_never_left_out(findings in prop::collection::vec(any_finding(), 1..40)) {
        let worst = findings.iter().filter_map(status_from_finding).map(|status| status.status).max();
        let volume = wire::Volume { health: wire::Health::Bad.into(), findings, ..Default::default() };
        prop_assert_eq!(of_volume(&volume).statuses.expect("known").first().map(|status| status.status), worst);
    }

    #[test]
    fn a_list_made_again_is_the_same(findings in prop::collection::vec(any_finding(), 0..40)) {
        let once = merge_statuses(findings.iter().filter_map(status_from_finding));
        prop_assert_eq!(merge_statuses(once.clone()), once);
    }

    #[test]
    fn a_volume_that_is_abnormal_is_never_an_empty_list(health in 1..4i32, csi in 0..7, operational in 0..4, usage in 0..5) {
        let condition = Some(wire::Condition { abnormal: true, message: "x".into() });
        let volume = wire::Volume { health, condition, csi_status: csi, operational_status: operational, usage_status: usage, ..Default::default() };
        prop_assert_eq!(of_volume(&volume).statuses.expect("known").len(), 1);
    }
}

#[test]
fn a_volume_that_cannot_be_served_is_inaccessible_beside_milder_findings() {
    let degraded =
        finding(wire::Severity::Suspect, wire::FindingStatus::Degraded, "DriveFailing", "z");
    let failed = |findings: Vec<wire::Finding>| wire::Volume {
        csi_status: wire::CsiStatus::Failed.into(),
        ..volume(wire::Health::Suspect, findings)
    };
    let [state, milder] = [
        (HealthErrorType::Inaccessible, "NotMounted", "as it is"),
        (HealthErrorType::Degraded, "DriveFailing", "z"),
    ];
    let entry = |(status, reason, message)| HealthStatus::new(status, reason, message);
    assert_eq!(
        of_volume(&failed(vec![degraded.clone()])).statuses,
        Ok(vec![entry(state), entry(milder)])
    );
    let as_bad =
        finding(wire::Severity::Bad, wire::FindingStatus::Inaccessible, "StagingNotMounted", "y");
    let said = [(HealthErrorType::Inaccessible, "StagingNotMounted", "y"), milder];
    assert_eq!(
        of_volume(&failed(vec![degraded, as_bad])).statuses,
        Ok(said.map(entry).to_vec()),
        "a finding has said it"
    );
}

#[test]
fn a_healthy_volume_is_an_empty_list() {
    let told = of_volume(&volume(wire::Health::Good, vec![]));
    assert_eq!((told.statuses, told.condition.expect("known").abnormal), (Ok(vec![]), false));
}

#[test]
fn unknown_is_an_error_and_its_condition_the_last_known_one() {
    let mut unknown = volume(wire::Health::Unknown, vec![]);
    unknown.health_unknown_why = "mounts: no such file".into();
    unknown.condition = Some(wire::Condition {
        abnormal: true,
        message: "ReadOnly: x (unknown since 2026-01-01T00:00:00Z: mounts)".into(),
    });
    let told = of_volume(&unknown);
    assert_eq!(told.statuses, Err(HealthUnknown("mounts: no such file".into())));
    let condition = told.condition.expect("the last known one");
    assert!(condition.abnormal && condition.message.ends_with("mounts)"));
    unknown.condition = None;
    assert_eq!(of_volume(&unknown).condition, None, "it was never known");
}

#[test]
fn a_health_that_only_a_newer_daemon_knows_is_unknown() {
    let mut newer = volume(wire::Health::Good, vec![]);
    newer.health = 99;
    assert!(of_volume(&newer).statuses.is_err());
}

#[test]
fn information_and_cleared_findings_are_no_health_status() {
    let mut cleared =
        finding(wire::Severity::Bad, wire::FindingStatus::DataLoss, "MediaErrors", "x");
    cleared.cleared = Some(wire::Cleared::default());
    let information =
        finding(wire::Severity::Info, wire::FindingStatus::Information, "SmartUnavailable", "y");
    let acknowledged = wire::Finding {
        acknowledged: Some(wire::Acknowledgement::default()),
        ..finding(wire::Severity::Suspect, wire::FindingStatus::Degraded, "DriveFailing", "z")
    };
    let listed =
        of_volume(&volume(wire::Health::Suspect, vec![cleared, information, acknowledged]))
            .statuses
            .expect("known");
    assert_eq!(listed, [HealthStatus::new(HealthErrorType::Degraded, "DriveFailing", "z")]);
}

#[test]
fn a_volume_in_use_that_is_missing_from_the_snapshot_has_unknown_health() {
    let attached = wire::ProvidedVolume {
        attachments: vec![wire::Attachment::default()],
        ..Default::default()
    };
    assert_eq!(of_provided(&attached, true).statuses, Ok(vec![]));
    let told = of_provided(&attached, false);
    let why = told.statuses.expect_err("unknown").to_string();
    assert!(why.contains("--driver-name"), "{why}");
    assert_eq!(told.condition, None);
}

#[test]
fn equal_statuses_are_merged_with_both_messages() {
    let two = [
        HealthStatus::new(HealthErrorType::Degraded, "IoErrors", "a"),
        HealthStatus::new(HealthErrorType::Degraded, "IoErrors", "b"),
    ];
    assert_eq!(
        merge_statuses(two),
        [HealthStatus::new(HealthErrorType::Degraded, "IoErrors", "a; b")]
    );
}

#[test]
fn a_fault_of_an_unused_volume_is_reported_in_both_health_apis() {
    let provided =
        |problem: &str| wire::ProvidedVolume { problem: problem.into(), ..Default::default() };
    assert_eq!(of_provided(&provided(""), false).statuses, Ok(vec![]));
    let absent = wire::ProvidedVolume { absent: "no such device".into(), ..Default::default() };
    let absent = of_provided(&absent, false);
    let condition = VolumeCondition { abnormal: false, message: "no such device".into() };
    assert_eq!((absent.statuses, absent.condition), (Ok(vec![]), Some(condition)));
    let told = of_provided(&provided("its record cannot be read"), false);
    assert_eq!(
        told.statuses,
        Ok(vec![HealthStatus::new(
            HealthErrorType::Inaccessible,
            "NotAccessible",
            "its record cannot be read"
        )])
    );
    assert_eq!(
        told.condition,
        Some(VolumeCondition { abnormal: true, message: "its record cannot be read".into() })
    );
}

#[test]
fn a_remote_volume_unreachable_from_one_node_is_degraded_for_the_controller() {
    use HealthErrorType::{DataLoss, Degraded, Inaccessible};
    let status = |status, message: &str| HealthStatus::new(status, "NotAccessible", message);
    let health = |local, statuses| VolumeHealth {
        statuses: Ok(statuses),
        condition: Some(VolumeCondition::default()),
        local,
    };
    let statuses = vec![status(Inaccessible, "stale"), status(DataLoss, "lost")];
    assert_eq!(health(true, statuses.clone()).for_controller().statuses, Ok(statuses.clone()));
    let demoted = vec![status(Degraded, "as seen from one node: stale"), status(DataLoss, "lost")];
    assert_eq!(health(false, statuses).for_controller().statuses, Ok(demoted));
}

#[test]
fn messages_name_the_pod_and_not_the_paths_of_the_kubelet() {
    let staging = "/var/lib/kubelet/plugins/x/globalmount";
    let pod = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount";
    let mount = |path: &str, role: wire::MountRole, pod_uid: &str| wire::VolumeMount {
        path: path.into(),
        role: role.into(),
        pod_uid: pod_uid.into(),
        ..Default::default()
    };
    let finding = wire::Finding {
        reason: "NotMounted".into(),
        severity: wire::Severity::Bad.into(),
        status: wire::FindingStatus::Inaccessible.into(),
        message: format!("nothing is mounted at {pod}; {staging} and /srv are"),
        ..Default::default()
    };
    let volume = wire::Volume {
        mounts: vec![
            mount(staging, wire::MountRole::Staging, ""),
            mount("/srv", wire::MountRole::Host, ""),
        ],
        missing_mounts: vec![mount(pod, wire::MountRole::Pod, "u")],
        pods: vec![wire::PodUse {
            uid: "u".into(),
            namespace: "db".into(),
            name: "a".into(),
            ..Default::default()
        }],
        ..volume(wire::Health::Bad, vec![finding])
    };
    let statuses = of_volume(&volume).statuses.expect("known");
    assert_eq!(
        statuses[0].message,
        "nothing is mounted at the path of pod db/a; the staging path and /srv are"
    );
    // The pod has gone, and its mount with it.
    let message = format!("it was at {pod}, {staging}: of /srv/mount");
    assert_eq!(
        without_paths(&message, &wire::Volume::default()),
        "it was at a pod's path, the staging path: of /srv/mount"
    );
}
