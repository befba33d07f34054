//! Results for callers while the daemon is absent, hangs, has no data or is too new: an early
//! error, and never "healthy".

use diskvitals_csi::wire;
use diskvitals_wire as daemon;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;

async fn health(shim: &Shim) -> Result<wire::VolumeHealth, Status> {
    let request =
        wire::NodeGetVolumeHealthRequest { volume_id: "dv-1".into(), ..Default::default() };
    let began = Instant::now();
    let answer = shim.node().node_get_volume_health(request).await;
    // The guarantee is one second; the rest is for a loaded machine's scheduling.
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    answer.map(|answer| answer.into_inner().volume_health.expect("given"))
}

async fn serving(shim: &Shim) -> i32 {
    let request = HealthCheckRequest { service: String::new() };
    HealthClient::new(shim.channel()).check(request).await.expect("an answer").into_inner().status
}

#[tokio::test]
async fn health_calls_are_unavailable_within_a_second_while_the_daemon_is_down_and_recover() {
    let mut shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    shim.set_volume("dv-1", daemon::Health::Good, vec![]);
    assert_eq!(health(&shim).await.expect("known").health_statuses, []);
    shim.daemon.vanish();
    assert_eq!(health(&shim).await.expect_err("away").code(), Code::Unavailable);
    let asked = Instant::now();
    let storage =
        shim.node().node_get_storage_health(wire::NodeGetStorageHealthRequest::default()).await;
    let list = shim
        .controller()
        .controller_list_volume_health(wire::ControllerListVolumeHealthRequest::default())
        .await;
    let request =
        wire::ControllerGetVolumeHealthRequest { volume_id: "dv-1".into(), ..Default::default() };
    let one = shim.controller().controller_get_volume_health(request).await;
    let volumes = shim.controller().list_volumes(wire::ListVolumesRequest::default()).await;
    for status in [storage.err(), list.err(), one.err(), volumes.err()] {
        assert_eq!(status.expect("away").code(), Code::Unavailable);
    }
    assert!(asked.elapsed() < Duration::from_secs(4));
    // Probe stays ready, because a restart of the shim would not help. Readiness changes.
    shim.ready().await;
    awaited("readiness is lost", async || (serving(&shim).await == 2).then_some(())).await;
    shim.daemon.come();
    // A call makes the shim reconnect at once.
    awaited("health is known again", async || health(&shim).await.ok()).await;
    assert_eq!(serving(&shim).await, 1);
}

#[tokio::test]
async fn a_restart_of_the_daemon_fails_no_call() {
    let mut shim = Shim::start(&[]).await;
    shim.set_volume("dv-1", daemon::Health::Good, vec![]);
    for _ in 0..5 {
        shim.daemon.vanish();
        shim.daemon.come();
        assert_eq!(health(&shim).await.expect("known").health_statuses, []);
    }
}

#[tokio::test]
async fn a_daemon_that_hangs_is_unavailable_and_only_the_first_call_waits_for_it() {
    let shim = Shim::start(&[]).await;
    shim.set_volume("dv-1", daemon::Health::Good, vec![]);
    shim.daemon.hang(true);
    assert_eq!(health(&shim).await.expect_err("hangs").code(), Code::Unavailable);
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(health(&shim).await.expect_err("hangs").code(), Code::Unavailable);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    shim.daemon.hang(false);
    awaited("health is known again", async || health(&shim).await.ok()).await;
}

#[tokio::test]
async fn statistics_time_out_as_soon_as_health_while_the_daemon_hangs() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    shim.daemon.hang(true);
    let began = Instant::now();
    let request = wire::NodeGetVolumeStatsRequest {
        volume_id: "dv-1".into(),
        volume_path: "/p".into(),
        ..Default::default()
    };
    let status = shim.node().node_get_volume_stats(request).await.expect_err("hangs");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn statistics_lack_the_condition_where_only_health_is_unavailable() {
    let shim = Shim::start(&[]).await;
    let answer = daemon::VolumeUsageAnswer { total_bytes: 7, ..Default::default() };
    shim.daemon.state().usage.insert(("dv-1".into(), "/p".into()), answer);
    let request = wire::NodeGetVolumeStatsRequest {
        volume_id: "dv-1".into(),
        volume_path: "/p".into(),
        ..Default::default()
    };
    let stats = shim.node().node_get_volume_stats(request).await.expect("figures").into_inner();
    assert_eq!((stats.usage[0].total, stats.volume_condition), (7, None));
}

#[tokio::test]
async fn unknown_health_is_an_error_and_statistics_go_on_with_the_last_known_condition() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    shim.set_volume("dv-1", daemon::Health::Unknown, vec![]);
    let message = "ReadOnly: x (unknown since 2026-01-01T00:00:00Z: mounts: no such file)";
    {
        let mut state = shim.daemon.state();
        let volume = state.volumes.values_mut().next().expect("there");
        volume.health_unknown_why = "mounts: no such file".into();
        volume.condition = Some(daemon::Condition { abnormal: true, message: message.into() });
        state.usage.insert(
            ("dv-1".into(), "/p".into()),
            daemon::VolumeUsageAnswer { total_bytes: 9, ..Default::default() },
        );
    }
    let status = health(&shim).await.expect_err("unknown");
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "the health of this volume is not known: mounts: no such file")
    );
    let list = shim
        .controller()
        .controller_list_volume_health(wire::ControllerListVolumeHealthRequest::default())
        .await;
    refused(list, Code::Unavailable, "the health of `dv-1` is not known: mounts");
    let request = wire::NodeGetVolumeStatsRequest {
        volume_id: "dv-1".into(),
        volume_path: "/p".into(),
        ..Default::default()
    };
    let stats = shim.node().node_get_volume_stats(request).await.expect("answered").into_inner();
    assert_eq!(
        stats.volume_condition,
        Some(wire::VolumeCondition { abnormal: true, message: message.into() })
    );
    assert_eq!(stats.usage.len(), 1);
    // Before the first probe there is no condition to repeat.
    shim.daemon.state().volumes.values_mut().for_each(|volume| volume.condition = None);
    let request = wire::NodeGetVolumeStatsRequest {
        volume_id: "dv-1".into(),
        volume_path: "/p".into(),
        ..Default::default()
    };
    let stats = shim.node().node_get_volume_stats(request).await;
    let stats = stats.expect("answered").into_inner();
    assert_eq!((stats.usage[0].total, stats.volume_condition), (9, None));
}

#[tokio::test]
async fn a_daemon_that_is_too_new_is_never_ready_and_says_what_to_upgrade() {
    let mut shim = Shim::alone(&[]).await;
    shim.daemon.state().ahead = 1;
    shim.daemon.come();
    let status = awaited("the shim has met it", async || {
        let status = health(&shim).await.expect_err("too new");
        status.message().contains("upgrade diskvitals-csi").then_some(status)
    });
    assert_eq!(status.await.code(), Code::Unavailable);
    let probe = shim.identity().probe(wire::ProbeRequest {}).await.expect("an answer");
    assert_eq!(probe.into_inner().ready, Some(false));
}

#[tokio::test]
async fn a_mutating_call_ends_at_the_callers_deadline() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    shim.daemon.hang(true);
    let mut request = tonic::Request::new(wire::NodeStageVolumeRequest {
        volume_id: "dv-1".into(),
        staging_target_path: "/s".into(),
        volume_capability: Some(mounted(Mode::SingleNodeWriter)),
        ..Default::default()
    });
    request.set_timeout(Duration::from_secs(1));
    let began = Instant::now();
    let status = shim.node().node_stage_volume(request).await.expect_err("hangs");
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
}
