//! Notifications to the daemon about calls that pass through the interposer, and about bypasses.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diskvitals_csi::interposer::health_source::{
    LifecycleEvent, ListedVolume, VolumeCondition, VolumeHealth,
};
use diskvitals_csi::wire;
use prost::Message;
use tonic::Code;
use tracing_subscriber::fmt::MakeWriter;

use super::fixture::{BOTH, PATIENCE, Setup, driver};

async fn told(setup: &Setup, count: usize) -> Vec<LifecycleEvent> {
    let mut told = setup.witness.told.subscribe();
    let all = tokio::time::timeout(PATIENCE, told.wait_for(|told| told.len() >= count))
        .await
        .expect("in time")
        .expect("kept");
    assert!(all.iter().all(|(driver, _)| driver == "example.com"));
    all.iter().map(|(_, passing)| passing.clone()).collect()
}

#[tokio::test]
async fn successful_calls_are_notified_in_order_and_failed_ones_are_not() {
    let setup = Setup::new(BOTH);
    let (handler, _) = driver(&[
        ("Node/NodeStageVolume", Ok(Vec::new())),
        ("Node/NodePublishVolume", Ok(Vec::new())),
        ("Node/NodeUnpublishVolume", Err(Code::Internal)),
        ("Node/NodeUnstageVolume", Ok(Vec::new())),
    ]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    let stage = wire::NodeStageVolumeRequest {
        volume_id: "v".into(),
        staging_target_path: "/s".into(),
        ..Default::default()
    };
    caller.call("Node/NodeStageVolume", &stage.encode_to_vec()).await.expect("staged");
    let publish = wire::NodePublishVolumeRequest {
        volume_id: "v".into(),
        staging_target_path: "/s".into(),
        target_path: "/t".into(),
        ..Default::default()
    };
    caller.call("Node/NodePublishVolume", &publish.encode_to_vec()).await.expect("published");
    let unpublish =
        wire::NodeUnpublishVolumeRequest { volume_id: "v".into(), target_path: "/t".into() };
    assert_eq!(
        caller
            .call("Node/NodeUnpublishVolume", &unpublish.encode_to_vec())
            .await
            .expect_err("refused")
            .0,
        Code::Internal
    );
    let unstage =
        wire::NodeUnstageVolumeRequest { volume_id: "v".into(), staging_target_path: "/s".into() };
    caller.call("Node/NodeUnstageVolume", &unstage.encode_to_vec()).await.expect("unstaged");
    let (handle, path) = (|| "v".to_owned(), |path: &str| path.to_owned());
    assert_eq!(
        told(&setup, 3).await,
        [
            LifecycleEvent::Staged { handle: handle(), path: path("/s") },
            LifecycleEvent::Published { handle: handle(), path: path("/t") },
            LifecycleEvent::Unstaged { handle: handle(), path: path("/s") },
        ]
    );
}

#[tokio::test]
async fn a_daemon_that_hangs_delays_no_staging() {
    let setup = Setup::new(BOTH);
    let (handler, _) = driver(&[("Node/NodeStageVolume", Ok(Vec::new()))]);
    let _upstream = setup.upstream(handler);
    setup.witness.known.lock().expect("whole").hangs = true;
    let mut caller = setup.caller().await;
    let stage = wire::NodeStageVolumeRequest { volume_id: "v".into(), ..Default::default() }
        .encode_to_vec();
    let begun = std::time::Instant::now();
    for _ in 0..300 {
        caller.call("Node/NodeStageVolume", &stage).await.expect("staged");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_driver_that_is_reached_past_the_interposer_is_detected_and_reported() {
    let setup = Setup::looking(BOTH, Duration::from_millis(20));
    let (handler, _) = driver(&[("Node/NodePublishVolume", Ok(Vec::new()))]);
    let here = |handle: &str| {
        let told = VolumeHealth {
            statuses: Ok(Vec::new()),
            condition: Some(VolumeCondition::default()),
            local: true,
        };
        ListedVolume { handle: handle.into(), attached: true, health: told }
    };
    // Set before the first poll, which needs the driver's name.
    setup.witness.known.lock().expect("whole").listed = vec![here("older")];
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    let publish = wire::NodePublishVolumeRequest {
        volume_id: "ours".into(),
        target_path: "/t".into(),
        ..Default::default()
    };
    caller.call("Node/NodePublishVolume", &publish.encode_to_vec()).await.expect("published");
    assert_eq!(told(&setup, 1).await.len(), 1);
    setup.witness.known.lock().expect("whole").listed.push(here("ours"));
    let mut looks = setup.witness.looks.subscribe();
    let enough = *looks.borrow() + 4;
    tokio::time::timeout(PATIENCE, looks.wait_for(|looks| *looks >= enough))
        .await
        .expect("in time")
        .expect("kept");
    assert_eq!(told(&setup, 1).await.len(), 1);
    setup.witness.known.lock().expect("whole").listed.push(here("stranger"));
    assert_eq!(told(&setup, 2).await[1], LifecycleEvent::Bypassed { handle: "stranger".into() });
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

/// Logs every module at the finest level, with undecodable answers and an absent daemon.
#[tokio::test]
async fn no_secret_of_a_request_reaches_a_log() {
    // While there is one dispatcher only, tracing asks the thread that reaches an event first whether it
    // is logged, and switches it off for all others.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(lines.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let setup = Setup::new(BOTH);
    let calls = [
        "Node/NodeStageVolume",
        "Node/NodePublishVolume",
        "Node/NodeGetStorageHealth",
        "Controller/CreateVolume",
        "Future/Call",
    ];
    let mut said: Vec<_> = calls.iter().map(|call| (*call, Ok(vec![0x0a, 0xff]))).collect();
    said[1].1 = Err(Code::Internal);
    let (handler, asked) = driver(&said);
    let _upstream = setup.upstream(handler);
    setup.witness.known.lock().expect("whole").away = true;
    let mut caller = setup.caller().await;
    let secrets =
        std::collections::HashMap::from([("password".to_owned(), "pa55-of-nobody".to_owned())]);
    let stage =
        wire::NodeStageVolumeRequest { volume_id: "v".into(), secrets, ..Default::default() }
            .encode_to_vec();
    for call in calls {
        // The call passed, whether it was refused or not.
        let _ = caller.call(call, &stage).await;
    }
    assert!(asked.lock().expect("whole").iter().any(|(_, message)| message == &stage));
    let lines = String::from_utf8_lossy(&lines.0.lock().expect("whole")).into_owned();
    assert!(lines.contains("the upstream driver") && !lines.contains("pa55-of-nobody"), "{lines}");
}
