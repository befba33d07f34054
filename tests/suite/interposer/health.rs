//! Health that is merged into the upstream's answers or replaces them.

use std::time::{Duration, Instant};

use diskvitals_csi::interposer::health_source::HealthErrorType::{
    DataLoss, Degraded, Inaccessible,
};
use diskvitals_csi::interposer::health_source::{
    Amount, HealthErrorType, HealthStatus, HealthUnknown, Usage, VolumeCondition, VolumeHealth,
};
use diskvitals_csi::interposer::method::EnabledHealthApis;
use diskvitals_csi::wire;
use prost::Message;
use tonic::Code;

use super::fixture::{BOTH, CONDITION, Caller, HEALTH, Said, Setup, driver};

const NODE_CAPABILITIES: &str = "Node/NodeGetCapabilities";
const CONTROLLER_CAPABILITIES: &str = "Controller/ControllerGetCapabilities";
const STATS: &str = "Node/NodeGetVolumeStats";
const NODE_HEALTH: &str = "Node/NodeGetVolumeHealth";
const CONTROLLER_HEALTH: &str = "Controller/ControllerGetVolumeHealth";
const STORAGE: &str = "Node/NodeGetStorageHealth";

/// …GetCapabilitiesResponse; both services have the same format.
fn announcing(numbers: &[i32]) -> Vec<u8> {
    let one = |number: &i32| wire::ControllerServiceCapability {
        r#type: Some(wire::controller_service_capability::Type::Rpc(
            wire::controller_service_capability::Rpc { r#type: *number },
        )),
    };
    wire::ControllerGetCapabilitiesResponse { capabilities: numbers.iter().map(one).collect() }
        .encode_to_vec()
}

fn status(status: HealthErrorType, reason: &str) -> HealthStatus {
    HealthStatus { status, reason: reason.into(), message: "sda".into() }
}

fn entry(status: HealthErrorType, reason: &str) -> wire::volume_health::VolumeHealthEntry {
    wire::volume_health::VolumeHealthEntry {
        status: status.number(),
        reason: reason.into(),
        message: "sda".into(),
    }
}

fn failing() -> VolumeHealth {
    let condition = VolumeCondition { abnormal: true, message: "drive failing".into() };
    VolumeHealth {
        statuses: Ok(vec![status(Degraded, "DriveFailing")]),
        condition: Some(condition),
        local: true,
    }
}

fn know(setup: &Setup, handle: &str, told: VolumeHealth) {
    setup.witness.known.lock().expect("whole").volumes.insert(handle.into(), told);
}

fn stats(condition: Option<wire::VolumeCondition>) -> Vec<u8> {
    let usage = vec![wire::VolumeUsage { available: 1, total: 3, used: 2, unit: 1 }];
    wire::NodeGetVolumeStatsResponse { usage, volume_condition: condition }.encode_to_vec()
}

async fn asked_stats(
    caller: &mut Caller,
    handle: &str,
) -> Result<wire::NodeGetVolumeStatsResponse, (Code, String)> {
    let request = wire::NodeGetVolumeStatsRequest {
        volume_id: handle.into(),
        volume_path: "/p".into(),
        ..Default::default()
    };
    caller.ask(STATS, &request).await
}

async fn asked_health(
    caller: &mut Caller,
    call: &str,
    handle: &str,
) -> Result<wire::VolumeHealth, (Code, String)> {
    let request =
        wire::NodeGetVolumeHealthRequest { volume_id: handle.into(), ..Default::default() };
    let answer: wire::NodeGetVolumeHealthResponse = caller.ask(call, &request).await?;
    Ok(answer.volume_health.expect("always there"))
}

#[tokio::test]
async fn each_csi_version_announces_its_own_capabilities_once() {
    let table: &[(EnabledHealthApis, &[i32], &[i32])] = &[
        (BOTH, &[1, 2, 4, 7, 8], &[1, 3, 11, 16, 17]),
        (CONDITION, &[1, 2, 4], &[1, 3, 11]),
        (HEALTH, &[1, 2, 7, 8], &[1, 3, 16, 17]),
    ];
    for (dialects, node, controller) in table {
        let setup = Setup::new(*dialects);
        let (handler, _) = driver(&[
            (NODE_CAPABILITIES, Ok(announcing(&[1]))),
            (CONTROLLER_CAPABILITIES, Ok(announcing(&[1, 3]))),
        ]);
        let _upstream = setup.upstream(handler);
        let mut caller = setup.caller().await;
        assert_eq!(caller.call(NODE_CAPABILITIES, b"").await, Ok(announcing(node)), "{dialects:?}");
        assert_eq!(
            caller.call(CONTROLLER_CAPABILITIES, b"").await,
            Ok(announcing(controller)),
            "{dialects:?}"
        );
    }
    let setup = Setup::new(BOTH);
    let (all, few) = (announcing(&[8, 7, 4, 2]), announcing(&[1, 2]));
    let (handler, _) =
        driver(&[(NODE_CAPABILITIES, Ok(all.clone())), (CONTROLLER_CAPABILITIES, Ok(few))]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    assert_eq!(caller.call(NODE_CAPABILITIES, b"").await, Ok(all));
    // No condition is possible without LIST_VOLUMES or GET_VOLUME.
    assert_eq!(caller.call(CONTROLLER_CAPABILITIES, b"").await, Ok(announcing(&[1, 2, 16, 17])));
}

#[tokio::test]
async fn statistics_get_a_condition_and_keep_all_else() {
    let setup = Setup::new(BOTH);
    // Field 1000 is not defined.
    let theirs = [stats(None), vec![0xc2, 0x3e, 1, b'u']].concat();
    let (handler, _) = driver(&[(STATS, Ok(theirs.clone()))]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    know(&setup, "bad", failing());
    let request = |handle: &str| {
        wire::NodeGetVolumeStatsRequest { volume_id: handle.into(), ..Default::default() }
            .encode_to_vec()
    };
    let condition =
        wire::VolumeCondition { abnormal: true, message: "drive failing".into() }.encode_to_vec();
    let expected =
        [&theirs[..], &[0x12, u8::try_from(condition.len()).expect("short")], &condition].concat();
    assert_eq!(caller.call(STATS, &request("bad")).await, Ok(expected));
    assert_eq!(caller.call(STATS, &request("not known to us")).await, Ok(theirs.clone()));
    setup.witness.known.lock().expect("whole").away = true;
    assert_eq!(caller.call(STATS, &request("bad")).await, Ok(theirs));
}

#[tokio::test]
async fn without_csi_1_12_statistics_pass_unchanged() {
    let setup = Setup::new(HEALTH);
    let theirs = stats(Some(wire::VolumeCondition { abnormal: true, message: "theirs".into() }));
    let (handler, _) = driver(&[(STATS, Ok(theirs.clone()))]);
    let _upstream = setup.upstream(handler);
    know(&setup, "bad", failing());
    let request = wire::NodeGetVolumeStatsRequest { volume_id: "bad".into(), ..Default::default() }
        .encode_to_vec();
    assert_eq!(setup.caller().await.call(STATS, &request).await, Ok(theirs));
}

#[tokio::test]
async fn an_answer_that_cannot_be_parsed_passes_unchanged() {
    let setup = Setup::new(BOTH);
    let junk = vec![0x0a, 0xff];
    let calls = [
        STATS,
        NODE_HEALTH,
        CONTROLLER_HEALTH,
        STORAGE,
        NODE_CAPABILITIES,
        "Controller/ListVolumes",
        "Controller/ControllerGetVolume",
    ];
    let said: Vec<(&'static str, Said)> =
        calls.iter().map(|call| (*call, Ok(junk.clone()))).collect();
    let (handler, _) = driver(&said);
    let _upstream = setup.upstream(handler);
    know(&setup, "v", failing());
    let mut caller = setup.caller().await;
    for call in calls {
        assert_eq!(caller.call(call, &[0x0a, 1, b'v']).await, Ok(junk.clone()), "{call}");
    }
}

#[tokio::test]
async fn a_daemon_that_hangs_delays_no_answer_of_the_upstream() {
    let setup = Setup::new(BOTH);
    let (handler, _) = driver(&[(STATS, Ok(stats(None)))]);
    let _upstream = setup.upstream(handler);
    setup.witness.known.lock().expect("whole").hangs = true;
    let mut caller = setup.caller().await;
    let begun = Instant::now();
    assert_eq!(asked_stats(&mut caller, "v").await.expect("theirs").volume_condition, None);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn statistics_are_answered_locally_where_the_upstream_has_none() {
    for said in [Err(Code::Unimplemented), Err(Code::InvalidArgument)] {
        let setup = Setup::new(BOTH);
        // If a driver does not announce the call, any error other than UNIMPLEMENTED is also
        // ignored.
        let (handler, _) = driver(&[(STATS, said), (NODE_CAPABILITIES, Ok(announcing(&[1])))]);
        let _upstream = setup.upstream(handler);
        let mut caller = setup.caller().await;
        know(&setup, "v", failing());
        let bytes = Amount { total: 100, available: 60, used: 40 };
        let usage = Usage {
            block: false,
            bytes,
            inodes: Some(Amount { total: 10, available: 6, used: 4 }),
        };
        setup.witness.known.lock().expect("whole").usage.insert("v".into(), usage);
        let answer = asked_stats(&mut caller, "v").await.expect("an answer");
        let units: Vec<(i32, i64, i64, i64)> = answer
            .usage
            .iter()
            .map(|usage| (usage.unit, usage.total, usage.available, usage.used))
            .collect();
        assert_eq!(units, [(1, 100, 60, 40), (2, 10, 6, 4)]);
        assert!(answer.volume_condition.expect("there").abnormal);
        let code = |answer: Result<wire::NodeGetVolumeStatsResponse, (Code, String)>| {
            answer.expect_err("an error").0
        };
        assert_eq!(code(asked_stats(&mut caller, "w").await), Code::NotFound);
        assert_eq!(code(asked_stats(&mut caller, "").await), Code::InvalidArgument);
        setup.witness.known.lock().expect("whole").away = true;
        assert_eq!(code(asked_stats(&mut caller, "v").await), Code::Unavailable);
    }
}

#[tokio::test]
async fn an_upstream_that_announces_a_call_has_the_last_word_on_its_errors() {
    let setup = Setup::new(BOTH);
    let (handler, _) = driver(&[
        (STATS, Err(Code::NotFound)),
        (NODE_HEALTH, Err(Code::Internal)),
        (STORAGE, Err(Code::Unavailable)),
        (NODE_CAPABILITIES, Ok(announcing(&[2, 7, 8]))),
    ]);
    let _upstream = setup.upstream(handler);
    know(&setup, "v", failing());
    let mut caller = setup.caller().await;
    for (call, code) in
        [(STATS, Code::NotFound), (NODE_HEALTH, Code::Internal), (STORAGE, Code::Unavailable)]
    {
        assert_eq!(
            caller.call(call, &[0x0a, 1, b'v']).await,
            Err((code, "the driver says so".into())),
            "{call}"
        );
    }
}

#[tokio::test]
async fn health_is_answered_locally_where_the_upstream_has_none_and_unknown_is_an_error() {
    let setup = Setup::new(BOTH);
    let (handler, _) = driver(&[]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    know(&setup, "bad", failing());
    know(
        &setup,
        "fine",
        VolumeHealth {
            statuses: Ok(Vec::new()),
            condition: Some(VolumeCondition::default()),
            local: true,
        },
    );
    know(
        &setup,
        "unknown",
        VolumeHealth {
            statuses: Err(HealthUnknown("smartctl does not answer".into())),
            condition: Some(VolumeCondition::default()),
            local: true,
        },
    );
    for call in [NODE_HEALTH, CONTROLLER_HEALTH] {
        let health = asked_health(&mut caller, call, "bad").await.expect("an answer");
        assert_eq!(
            (health.volume_id.as_str(), health.health_statuses),
            ("bad", vec![entry(Degraded, "DriveFailing")])
        );
        let health = asked_health(&mut caller, call, "fine").await.expect("an answer");
        assert_eq!((health.volume_id.as_str(), health.health_statuses), ("fine", vec![]));
        let (code, message) =
            asked_health(&mut caller, call, "unknown").await.expect_err("not known");
        assert_eq!(
            (code, message.as_str()),
            (Code::Unavailable, "not known: smartctl does not answer")
        );
        assert_eq!(
            asked_health(&mut caller, call, "nobody").await.expect_err("no such volume").0,
            Code::NotFound
        );
        assert_eq!(
            asked_health(&mut caller, call, "").await.expect_err("no id").0,
            Code::InvalidArgument
        );
    }
    for hangs in [false, true] {
        {
            let mut known = setup.witness.known.lock().expect("whole");
            (known.away, known.hangs) = (!hangs, hangs);
        }
        let begun = Instant::now();
        let (health, storage, list) = tokio::join!(
            async { asked_health(&mut caller.clone(), NODE_HEALTH, "bad").await.map(drop) },
            async { caller.clone().call(STORAGE, b"").await.map(drop) },
            async {
                caller.clone().call("Controller/ControllerListVolumeHealth", b"").await.map(drop)
            },
        );
        for answer in [health, storage, list] {
            assert_eq!(answer.expect_err("away").0, Code::Unavailable);
        }
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_newly_published_volume_is_healthy_until_the_daemon_should_know_it() {
    let setup = Setup::new(BOTH);
    let created = wire::CreateVolumeResponse {
        volume: Some(wire::Volume { volume_id: "made".into(), ..Default::default() }),
    };
    let (handler, _) = driver(&[
        ("Node/NodePublishVolume", Ok(Vec::new())),
        ("Controller/CreateVolume", Ok(created.encode_to_vec())),
    ]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    assert_eq!(
        asked_health(&mut caller, NODE_HEALTH, "v").await.expect_err("no such volume").0,
        Code::NotFound
    );
    let publish = wire::NodePublishVolumeRequest {
        volume_id: "v".into(),
        target_path: "/t".into(),
        ..Default::default()
    };
    let _: wire::NodePublishVolumeResponse =
        caller.ask("Node/NodePublishVolume", &publish).await.expect("published");
    assert_eq!(
        asked_health(&mut caller, NODE_HEALTH, "v").await.expect("vouched for").health_statuses,
        []
    );
    let _: wire::CreateVolumeResponse = caller
        .ask("Controller/CreateVolume", &wire::CreateVolumeRequest::default())
        .await
        .expect("made");
    assert_eq!(
        asked_health(&mut caller, CONTROLLER_HEALTH, "made").await.expect("vouched for").volume_id,
        "made"
    );
}

#[tokio::test]
async fn the_upstreams_health_is_kept_beside_the_daemons() {
    let setup = Setup::new(BOTH);
    let theirs = wire::VolumeHealth {
        volume_id: "v".into(),
        health_statuses: vec![entry(Degraded, "ArrayRebuilding"), entry(Degraded, "DriveFailing")],
    };
    let theirs = wire::NodeGetVolumeHealthResponse { volume_health: Some(theirs) }.encode_to_vec();
    let storage = wire::NodeGetStorageHealthResponse::default().encode_to_vec();
    let (handler, _) = driver(&[(NODE_HEALTH, Ok(theirs.clone())), (STORAGE, Ok(storage))]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    let told = VolumeHealth {
        statuses: Ok(vec![status(DataLoss, "MediaErrors"), status(Degraded, "DriveFailing")]),
        ..failing()
    };
    know(&setup, "v", told);
    let health = asked_health(&mut caller, NODE_HEALTH, "v").await.expect("an answer");
    let expected = vec![
        entry(DataLoss, "MediaErrors"),
        entry(Degraded, "ArrayRebuilding"),
        entry(Degraded, "DriveFailing"),
    ];
    assert_eq!(health.health_statuses, expected);
    setup.witness.known.lock().expect("whole").storage = vec![status(Degraded, "DriveFailing")];
    let answer: wire::NodeGetStorageHealthResponse = caller
        .ask(STORAGE, &wire::NodeGetStorageHealthRequest::default())
        .await
        .expect("an answer");
    assert_eq!(answer.backend_health.len(), 1);
    setup.witness.known.lock().expect("whole").away = true;
    assert_eq!(caller.call(NODE_HEALTH, &[0x0a, 1, b'v']).await, Ok(theirs));
}

#[tokio::test]
async fn with_csi_1_12_the_calls_of_1_13_go_to_the_upstream_only() {
    let setup = Setup::new(CONDITION);
    let (handler, _) = driver(&[]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    know(&setup, "v", failing());
    for call in [NODE_HEALTH, CONTROLLER_HEALTH, STORAGE, "Controller/ControllerListVolumeHealth"] {
        assert_eq!(
            caller.call(call, &[0x0a, 1, b'v']).await,
            Err((Code::Unimplemented, "the driver says so".into())),
            "{call}"
        );
    }
}

#[tokio::test]
async fn a_remote_volume_that_this_node_cannot_reach_is_only_degraded_to_a_controller() {
    let setup = Setup::new(BOTH);
    let (handler, _) = driver(&[]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    know(
        &setup,
        "v",
        VolumeHealth {
            statuses: Ok(vec![status(Inaccessible, "NotAccessible")]),
            condition: Some(VolumeCondition::default()),
            local: false,
        },
    );
    assert_eq!(
        asked_health(&mut caller, NODE_HEALTH, "v").await.expect("an answer").health_statuses[0]
            .status,
        2
    );
    assert_eq!(
        asked_health(&mut caller, CONTROLLER_HEALTH, "v").await.expect("an answer").health_statuses
            [0]
        .status,
        1
    );
}

#[tokio::test]
async fn withdrawn_health_is_what_the_upstream_reports_by_itself() {
    use diskvitals_csi::wire::withdrawal::{WithdrawRequest, WithdrawResponse};

    let setup = Setup::new(BOTH);
    let theirs = wire::NodeGetVolumeHealthResponse {
        volume_health: Some(wire::VolumeHealth {
            volume_id: "v".into(),
            health_statuses: vec![entry(Degraded, "ArrayRebuilding")],
        }),
    };
    let (handler, _) =
        driver(&[(NODE_HEALTH, Ok(theirs.encode_to_vec())), (STATS, Ok(stats(None)))]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    know(&setup, "v", failing());
    setup.witness.known.lock().expect("whole").storage = vec![status(Degraded, "DriveFailing")];
    let withdraw = "/diskvitals.withdrawal.v1.Withdrawal/Withdraw";
    let begun: WithdrawResponse =
        caller.ask(withdraw, &WithdrawRequest::default()).await.expect("withdrawn");

    for round in 1..=3 {
        let health = asked_health(&mut caller, NODE_HEALTH, "v").await;
        assert_eq!(
            health.expect("an answer").health_statuses,
            [entry(Degraded, "ArrayRebuilding")]
        );
        let answer = asked_stats(&mut caller, "v").await.expect("statistics");
        assert_eq!(answer.volume_condition, None);
        // The upstream does not implement this call.
        let answer: wire::NodeGetStorageHealthResponse = caller
            .ask(STORAGE, &wire::NodeGetStorageHealthRequest::default())
            .await
            .expect("an answer");
        assert_eq!(answer.backend_health, []);
        let progress: WithdrawResponse =
            caller.ask(withdraw, &WithdrawRequest::default()).await.expect("the progress");
        assert_eq!(progress.since, begun.since);
        assert_eq!((progress.volumes, progress.storage_calls), (1, round));
        assert_eq!(progress.round_completed, round == 3);
    }
}
