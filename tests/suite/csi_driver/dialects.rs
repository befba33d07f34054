//! Golden answers for CSI 1.12 and for 1.13, and the capabilities announced for each.

use diskvitals_csi::wire;
use diskvitals_csi::wire::volume_health::VolumeHealthEntry;
use diskvitals_csi::wire::volume_usage::Unit;
use diskvitals_wire as daemon;
use tonic::Code;

use super::*;

async fn node_can(shim: &Shim) -> Vec<i32> {
    let answer = shim
        .node()
        .node_get_capabilities(wire::NodeGetCapabilitiesRequest {})
        .await
        .expect("an answer")
        .into_inner();
    let number = |one: wire::NodeServiceCapability| match one.r#type.expect("said") {
        wire::node_service_capability::Type::Rpc(rpc) => rpc.r#type,
    };
    let mut numbers: Vec<i32> = answer.capabilities.into_iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

async fn controller_can(shim: &Shim) -> Vec<i32> {
    let answer = shim
        .controller()
        .controller_get_capabilities(wire::ControllerGetCapabilitiesRequest {})
        .await
        .expect("an answer");
    let number = |one: wire::ControllerServiceCapability| match one.r#type.expect("said") {
        wire::controller_service_capability::Type::Rpc(rpc) => rpc.r#type,
    };
    let mut numbers: Vec<i32> = answer.into_inner().capabilities.into_iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn the_announced_capabilities_are_those_of_the_csi_version() {
    for (arguments, node, controller) in [
        (vec![], vec![1, 2, 3, 4, 5, 7, 8], vec![1, 3, 4, 11, 12, 13, 16, 17]),
        (
            vec!["--health-api", "both", "--controller-publish"],
            vec![1, 2, 3, 4, 5, 7, 8],
            vec![1, 2, 3, 4, 9, 10, 11, 12, 13, 16, 17],
        ),
        (vec!["--health-api", "condition"], vec![1, 2, 3, 4, 5], vec![1, 3, 4, 11, 12, 13]),
        (vec!["--health-api", "health"], vec![1, 2, 3, 5, 7, 8], vec![1, 3, 4, 12, 13, 16, 17]),
    ] {
        // Capabilities do not need a daemon.
        let shim = Shim::alone(&arguments).await;
        assert_eq!(
            (node_can(&shim).await, controller_can(&shim).await),
            (node, controller),
            "{arguments:?}"
        );
    }
}

fn suspect(shim: &Shim) {
    use daemon::{FindingStatus, Severity};
    shim.provide("dv-1");
    let findings = vec![
        finding(
            Severity::Suspect,
            FindingStatus::Degraded,
            "DriveFailing",
            "sda: 3 pending sectors",
        ),
        finding(Severity::Bad, FindingStatus::Inaccessible, "NotAccessible", "readdir: I/O error"),
        finding(
            Severity::Info,
            FindingStatus::Information,
            "SmartUnavailable",
            "the drive does not tell",
        ),
    ];
    shim.set_volume("dv-1", daemon::Health::Bad, findings);
    let usage = daemon::VolumeUsageAnswer {
        total_bytes: 100,
        available_bytes: 40,
        used_bytes: 50,
        total_inodes: Some(10),
        available_inodes: Some(7),
        used_inodes: Some(3),
        ..Default::default()
    };
    shim.daemon.state().usage.insert(("dv-1".into(), "/p".into()), usage);
}

fn condition() -> wire::VolumeCondition {
    wire::VolumeCondition { abnormal: true, message: "something is wrong".into() }
}

fn statuses() -> wire::VolumeHealth {
    let entry = |status: i32, reason: &str, message: &str| VolumeHealthEntry {
        status,
        reason: reason.into(),
        message: message.into(),
    };
    wire::VolumeHealth {
        volume_id: "dv-1".into(),
        health_statuses: vec![
            entry(2, "NotAccessible", "readdir: I/O error"),
            entry(1, "DriveFailing", "sda: 3 pending sectors"),
        ],
    }
}

fn stats_request() -> wire::NodeGetVolumeStatsRequest {
    wire::NodeGetVolumeStatsRequest {
        volume_id: "dv-1".into(),
        volume_path: "/p".into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn csi_1_12_gets_a_condition_with_the_statistics() {
    let shim = Shim::start(&["--health-api", "condition"]).await;
    suspect(&shim);
    let entry = |unit: Unit, total, available, used| wire::VolumeUsage {
        unit: unit.into(),
        total,
        available,
        used,
    };
    let expected = wire::NodeGetVolumeStatsResponse {
        usage: vec![entry(Unit::Bytes, 100, 40, 50), entry(Unit::Inodes, 10, 7, 3)],
        volume_condition: Some(condition()),
    };
    assert_eq!(
        shim.node().node_get_volume_stats(stats_request()).await.expect("an answer").into_inner(),
        expected
    );
    let health =
        wire::NodeGetVolumeHealthRequest { volume_id: "dv-1".into(), ..Default::default() };
    refused(shim.node().node_get_volume_health(health).await, Code::Unimplemented, "--health-api");
    let request = wire::ControllerGetVolumeRequest { volume_id: "dv-1".into() };
    let volume = wire::Volume {
        capacity_bytes: 1 << 20,
        volume_id: "dv-1".into(),
        volume_context: [("diskvitals.io/topology".to_owned(), NODE.to_owned())].into(),
        content_source: None,
        accessible_topology: vec![here()],
    };
    let expected = wire::ControllerGetVolumeResponse {
        volume: Some(volume),
        status: Some(wire::controller_get_volume_response::VolumeStatus {
            published_node_ids: vec![],
            volume_condition: Some(condition()),
        }),
    };
    assert_eq!(
        shim.controller().controller_get_volume(request).await.expect("an answer").into_inner(),
        expected
    );
}

#[tokio::test]
async fn csi_1_13_gets_statuses_worst_first_and_no_condition() {
    let shim = Shim::start(&["--health-api", "health"]).await;
    suspect(&shim);
    let stats =
        shim.node().node_get_volume_stats(stats_request()).await.expect("an answer").into_inner();
    assert_eq!((stats.usage.len(), stats.volume_condition), (2, None));
    // Without any path, as csi-sanity calls, and with the kubelet's paths.
    for (publish, staging) in [("", ""), ("/p", "/s")] {
        let request = wire::NodeGetVolumeHealthRequest {
            volume_id: "dv-1".into(),
            volume_publish_path: publish.into(),
            staging_target_path: staging.into(),
        };
        let answer =
            shim.node().node_get_volume_health(request).await.expect("an answer").into_inner();
        assert_eq!(answer.volume_health, Some(statuses()));
    }
    let request =
        wire::ControllerGetVolumeHealthRequest { volume_id: "dv-1".into(), ..Default::default() };
    let answer = shim
        .controller()
        .controller_get_volume_health(request)
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(answer.volume_health, Some(statuses()));
    let answer = shim
        .controller()
        .controller_list_volume_health(wire::ControllerListVolumeHealthRequest::default())
        .await;
    assert_eq!(answer.expect("an answer").into_inner().entries, [statuses()]);
}

#[tokio::test]
async fn both_csi_versions_are_served_together() {
    let shim = Shim::start(&[]).await;
    suspect(&shim);
    let stats =
        shim.node().node_get_volume_stats(stats_request()).await.expect("an answer").into_inner();
    assert_eq!(stats.volume_condition, Some(condition()));
    let request =
        wire::NodeGetVolumeHealthRequest { volume_id: "dv-1".into(), ..Default::default() };
    assert_eq!(
        shim.node()
            .node_get_volume_health(request)
            .await
            .expect("an answer")
            .into_inner()
            .volume_health,
        Some(statuses())
    );
}

#[tokio::test]
async fn storage_health_is_degraded_or_unreachable_and_never_limited_to_a_use() {
    let shim = Shim::start(&[]).await;
    let request = wire::NodeGetStorageHealthRequest::default;
    let answer =
        shim.node().node_get_storage_health(request()).await.expect("an answer").into_inner();
    assert_eq!(answer.backend_health, []);
    let fault = |unreachable, reason: &str| daemon::StorageFault {
        unreachable,
        reason: reason.into(),
        message: "sda".into(),
        remote: false,
    };
    shim.daemon.state().faults = vec![
        fault(false, "DriveFailing"),
        fault(true, "DriveMissing"),
        fault(false, "DriveFailing"),
        fault(false, "bad reason!"),
    ];
    let expected =
        |status, reason: &str| wire::node_get_storage_health_response::StorageBackendHealth {
            status,
            reason: reason.into(),
            message: "sda".into(),
            volume_capability: None,
        };
    let answer =
        shim.node().node_get_storage_health(request()).await.expect("an answer").into_inner();
    assert_eq!(
        answer.backend_health,
        [expected(2, "DriveMissing"), expected(1, "DriveFailing"), expected(1, "bad_reason_")]
    );
}

#[tokio::test]
async fn podmon_gets_the_daemons_answer_on_the_drivers_socket() {
    use diskvitals_csi::wire::podmon::ValidateVolumeHostConnectivityRequest;
    use diskvitals_csi::wire::podmon::podmon_client::PodmonClient;
    let shim = Shim::start(&[]).await;
    let request = ValidateVolumeHostConnectivityRequest {
        node_id: NODE.into(),
        volume_ids: vec!["dv-1".into()],
        io_sample_time_seconds: 2,
        ..Default::default()
    };
    let answer = PodmonClient::new(shim.channel())
        .validate_volume_host_connectivity(request)
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(
        (answer.connected, answer.ios_in_progress, answer.messages),
        (false, true, vec!["sda is missing".to_owned()])
    );
    let sampled = shim.daemon.state().sampled.clone();
    assert_eq!(sampled[0].handles, ["dv-1"]);
    assert_eq!(
        (sampled[0].driver.as_str(), sampled[0].sample.map(|sample| sample.seconds)),
        (DRIVER, Some(2))
    );
}

#[tokio::test]
async fn withdrawn_health_is_an_empty_list_even_without_a_daemon_and_statistics_go_on() {
    use diskvitals_csi::wire::withdrawal::WithdrawRequest;
    use diskvitals_csi::wire::withdrawal::withdrawal_client::WithdrawalClient;

    let mut shim = Shim::start(&[]).await;
    suspect(&shim);
    let health = async |shim: &Shim| {
        let request =
            wire::NodeGetVolumeHealthRequest { volume_id: "dv-1".into(), ..Default::default() };
        let answer = shim.node().node_get_volume_health(request).await;
        answer.expect("an answer").into_inner().volume_health
    };
    assert_eq!(health(&shim).await, Some(statuses()));

    let begun = WithdrawalClient::new(shim.channel())
        .withdraw(WithdrawRequest {})
        .await
        .expect("withdrawn")
        .into_inner();
    assert!(!begun.round_completed);
    let nothing = wire::VolumeHealth { volume_id: "dv-1".into(), health_statuses: Vec::new() };
    assert_eq!(health(&shim).await, Some(nothing.clone()));
    let answer = shim.node().node_get_volume_stats(stats_request()).await;
    let answer = answer.expect("statistics").into_inner();
    assert!(answer.volume_condition.is_none() && !answer.usage.is_empty());
    let listed = shim
        .controller()
        .controller_list_volume_health(wire::ControllerListVolumeHealthRequest::default())
        .await;
    assert_eq!(listed.expect("a list").into_inner().entries, []);

    shim.daemon.vanish();
    assert_eq!(health(&shim).await, Some(nothing));
    for round in 1..=3 {
        let answer =
            shim.node().node_get_storage_health(wire::NodeGetStorageHealthRequest::default()).await;
        assert_eq!(answer.expect("an answer").into_inner().backend_health, []);
        let progress = WithdrawalClient::new(shim.channel())
            .withdraw(WithdrawRequest {})
            .await
            .expect("the progress")
            .into_inner();
        assert_eq!(progress.since, begun.since);
        assert_eq!((progress.volumes, progress.storage_calls), (1, round));
        assert_eq!(progress.round_completed, round == 3);
    }
}
