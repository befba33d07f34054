//! Laws that hold for any sequence of wishes, crashes, failures and reboots.

use proptest::prelude::*;

use super::crash::assert_consistent;
use super::fake::{DiskContent, InjectedFault, PoolDisk};
use super::lifecycle::{fake_host, has_other_records};
use super::*;
use crate::step::StepErrorKind;

#[derive(Clone, Debug)]
enum Action {
    Create(u8),
    Delete(u8),
    Stage(u8, bool),
    Unstage(u8),
    Publish(u8, u8, bool),
    Unpublish(u8, u8),
    Grow(u8),
    Reboot,
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..2u8).prop_map(Action::Create),
        (0..2u8).prop_map(Action::Delete),
        (0..3u8, any::<bool>()).prop_map(|(volume, shared)| Action::Stage(volume, shared)),
        (0..3u8).prop_map(Action::Unstage),
        (0..3u8, 0..3u8, any::<bool>())
            .prop_map(|(volume, pod, shared)| Action::Publish(volume, pod, shared)),
        (0..3u8, 0..3u8).prop_map(|(volume, pod)| Action::Unpublish(volume, pod)),
        (0..3u8).prop_map(Action::Grow),
        Just(Action::Reboot),
    ]
}

fn any_injected_fault() -> impl Strategy<Value = Option<(usize, InjectedFault)>> {
    let sort = prop_oneof![
        Just(InjectedFault::CrashBefore),
        Just(InjectedFault::CrashAfter),
        Just(InjectedFault::Fail(StepErrorKind::Other)),
        Just(InjectedFault::FailAfter(StepErrorKind::Other)),
        Just(InjectedFault::FailAfter(StepErrorKind::Stuck)),
        Just(InjectedFault::Disk(PoolDisk::Dead)),
        Just(InjectedFault::Disk(PoolDisk::ReadOnly)),
    ];
    proptest::option::weighted(0.5, (0..12usize, sort))
}

fn mode(shared: bool) -> AccessMode {
    if shared { AccessMode::SingleNodeMultiWriter } else { AccessMode::SingleNodeWriter }
}

/// The first two are the pool's, the third is static.
fn handle(daemon: &Daemon, volume: u8) -> String {
    let name = format!("pvc-{volume}");
    let view = daemon.engine.view();
    let found = view
        .volumes
        .values()
        .find(|seen| seen.name == name)
        .map(|seen| seen.provided.handle.clone());
    if volume == 2 { "fast".into() } else { found.unwrap_or_else(|| "dv-none".into()) }
}

async fn perform(daemon: &Daemon, act: &Action) -> Result<(), ProvisionError> {
    let staging = |volume: u8| super::staging(volume.into());
    let target = |volume: u8, pod: u8| super::target(&format!("{volume}-{pod}"));
    match act {
        Action::Create(volume) => daemon.create(&format!("pvc-{volume}")).await.map(drop),
        Action::Delete(volume) => daemon.engine.delete(handle(daemon, *volume)).await,
        Action::Stage(volume, shared) => {
            let request = StageRequest {
                handle: handle(daemon, *volume),
                staging_path: staging(*volume),
                access: access(mode(*shared)),
            };
            daemon.engine.stage(request).await
        }
        Action::Unstage(volume) => {
            daemon.engine.unstage(handle(daemon, *volume), staging(*volume)).await
        }
        Action::Publish(volume, pod, shared) => {
            let (staging_path, access) = (Some(staging(*volume)), access(mode(*shared)));
            let request = PublishRequest {
                staging_path,
                access,
                target_path: target(*volume, *pod),
                ..publish_request(&handle(daemon, *volume), "p")
            };
            daemon.engine.publish(request).await
        }
        Action::Unpublish(volume, pod) => {
            daemon.engine.unpublish(handle(daemon, *volume), target(*volume, *pod)).await
        }
        Action::Grow(volume) => daemon.grow(&handle(daemon, *volume), 4 << 20).await.map(drop),
        Action::Reboot => Ok(()),
    }
}

/// Never two writers where one was promised.
fn assert_one_writer(daemon: &Daemon, at: &str) {
    for seen in daemon.engine.view().volumes.values() {
        let published = &seen.provided.published;
        let alone = published.iter().any(|held| held.access.mode == AccessMode::SingleNodeWriter);
        assert!(!alone || published.len() == 1, "{at}: {published:?}");
    }
}

async fn run_actions(acts: Vec<(Action, Option<(usize, InjectedFault)>)>) {
    let mut daemon = Daemon::ready(fake_host()).await;
    for (number, (act, fate)) in acts.iter().enumerate() {
        let at = format!("act {number}, {act:?}, {fate:?}");
        if let Some((step, fate)) = fate {
            daemon.host.inject_at(*step, *fate);
        }
        let mut dead = daemon.host.crashed.subscribe();
        let died = tokio::select! {
            _ = perform(&daemon, act) => false,
            _ = dead.wait_for(|dead| *dead) => true,
        };
        daemon.host.stop_injecting();
        daemon.host.with_state(|state| state.pool_disk = PoolDisk::Good);
        assert_consistent(&daemon.host, &at);
        if died || matches!(act, Action::Reboot) {
            let fake = daemon.kill().await;
            if matches!(act, Action::Reboot) {
                fake.with_state(|state| {
                    state.mounts.clear();
                    state.images.values_mut().for_each(|image| image.device = None);
                });
            }
            daemon = Daemon::ready(fake).await;
            assert_consistent(&daemon.host, &at);
        }
        assert_one_writer(&daemon, &at);
    }
    // Whatever happened, there is a way back.
    daemon.wait_recovered().await;
    for volume in 0..3u8 {
        for pod in 0..3u8 {
            drop(perform(&daemon, &Action::Unpublish(volume, pod)).await);
        }
        drop(perform(&daemon, &Action::Unstage(volume)).await);
        drop(perform(&daemon, &Action::Delete(volume)).await);
    }
    daemon.wait_recovered().await;
    daemon.host.with_state(|state| {
        assert!(
            state.mounts.is_empty() && state.images.is_empty() && !has_other_records(state),
            "{:?} {:?} {:?}",
            state.mounts,
            state.images,
            state.records
        );
        assert!(
            state
                .devices
                .values()
                .all(|device| !device.used || device.content != DiskContent::Blank),
            "a static volume was wiped"
        );
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn no_sequence_of_requests_crashes_and_reboots_breaks_an_invariant(acts in proptest::collection::vec((any_action(), any_injected_fault()), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run_actions(acts));
    }
}

/// The record of the first deletion is not written. If the second one used it, a crash in the middle
/// would leave a part of the volume that no record names.
#[tokio::test]
async fn an_operation_without_its_record_never_begins() {
    let dead_disk = InjectedFault::Disk(PoolDisk::Dead);
    for operation in [Action::Delete(0), Action::Create(1)] {
        for step in 0..12 {
            for fault in [InjectedFault::CrashAfter, InjectedFault::FailAfter(StepErrorKind::Other)]
            {
                run_actions(vec![
                    (Action::Create(0), None),
                    (operation.clone(), Some((0, dead_disk))),
                    (operation.clone(), Some((step, fault))),
                    (Action::Reboot, None),
                ])
                .await;
            }
        }
    }
}
