//! Laws that hold for any sequence of wishes, crashes, failures and reboots.

use proptest::prelude::*;

use super::crash::assert_sound;
use super::fake::{Fate, On};
use super::life::world;
use super::*;
use crate::attach::step::Trouble;

#[derive(Clone, Debug)]
enum Act {
    Create(u8),
    Delete(u8),
    Stage(u8, bool),
    Unstage(u8),
    Publish(u8, u8, bool),
    Unpublish(u8, u8),
    Grow(u8),
    Reboot,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..2u8).prop_map(Act::Create),
        (0..2u8).prop_map(Act::Delete),
        (0..3u8, any::<bool>()).prop_map(|(volume, shared)| Act::Stage(volume, shared)),
        (0..3u8).prop_map(Act::Unstage),
        (0..3u8, 0..3u8, any::<bool>())
            .prop_map(|(volume, pod, shared)| Act::Publish(volume, pod, shared)),
        (0..3u8, 0..3u8).prop_map(|(volume, pod)| Act::Unpublish(volume, pod)),
        (0..3u8).prop_map(Act::Grow),
        Just(Act::Reboot),
    ]
}

fn fate() -> impl Strategy<Value = Option<(usize, Fate)>> {
    let sort = prop_oneof![
        Just(Fate::DieBefore),
        Just(Fate::DieAfter),
        Just(Fate::Fail(Trouble::Failed)),
        Just(Fate::FailAfter(Trouble::Failed)),
        Just(Fate::FailAfter(Trouble::Stuck)),
    ];
    proptest::option::weighted(0.5, (0..12usize, sort))
}

fn mode(shared: bool) -> AccessMode {
    if shared {
        AccessMode::SingleNodeMultiWriter
    } else {
        AccessMode::SingleNodeWriter
    }
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
    if volume == 2 {
        "fast".into()
    } else {
        found.unwrap_or_else(|| "dv-none".into())
    }
}

async fn perform(daemon: &Daemon, act: &Act) -> Result<(), Fault> {
    let staging = |volume: u8| format!("/k/staging/{volume}");
    let target = |volume: u8, pod: u8| format!("/k/pods/{volume}-{pod}");
    match act {
        Act::Create(volume) => daemon.create(&format!("pvc-{volume}")).await.map(drop),
        Act::Delete(volume) => daemon.engine.delete(handle(daemon, *volume)).await,
        Act::Stage(volume, shared) => {
            let wish = StageWish {
                handle: handle(daemon, *volume),
                staging_path: staging(*volume),
                access: access(mode(*shared)),
            };
            daemon.engine.stage(wish).await
        }
        Act::Unstage(volume) => {
            daemon
                .engine
                .unstage(handle(daemon, *volume), staging(*volume))
                .await
        }
        Act::Publish(volume, pod, shared) => {
            let (staging_path, access) = (Some(staging(*volume)), access(mode(*shared)));
            let wish = PublishWish {
                staging_path,
                access,
                target_path: target(*volume, *pod),
                ..publishing(&handle(daemon, *volume), "p")
            };
            daemon.engine.publish(wish).await
        }
        Act::Unpublish(volume, pod) => {
            daemon
                .engine
                .unpublish(handle(daemon, *volume), target(*volume, *pod))
                .await
        }
        Act::Grow(volume) => daemon
            .grow(&handle(daemon, *volume), 4 << 20)
            .await
            .map(drop),
        Act::Reboot => Ok(()),
    }
}

/// Never two writers where one was promised.
fn assert_one_writer(daemon: &Daemon, at: &str) {
    for seen in daemon.engine.view().volumes.values() {
        let published = &seen.provided.published;
        let alone = published
            .iter()
            .any(|held| held.access.mode == AccessMode::SingleNodeWriter);
        assert!(!alone || published.len() == 1, "{at}: {published:?}");
    }
}

async fn play(acts: Vec<(Act, Option<(usize, Fate)>)>) {
    let mut daemon = Daemon::ready(world()).await;
    for (number, (act, fate)) in acts.iter().enumerate() {
        let at = format!("act {number}, {act:?}, {fate:?}");
        if let Some((step, fate)) = fate {
            daemon.fake.at(*step, *fate);
        }
        let mut dead = daemon.fake.dead.subscribe();
        let died = tokio::select! {
            _ = perform(&daemon, act) => false,
            _ = dead.wait_for(|dead| *dead) => true,
        };
        daemon.fake.rest();
        assert_sound(&daemon.fake, &at);
        if died || matches!(act, Act::Reboot) {
            let fake = daemon.kill().await;
            if matches!(act, Act::Reboot) {
                fake.with(|world| {
                    world.mounts.clear();
                    world
                        .images
                        .values_mut()
                        .for_each(|image| image.device = None);
                });
            }
            daemon = Daemon::ready(fake).await;
            assert_sound(&daemon.fake, &at);
        }
        assert_one_writer(&daemon, &at);
    }
    // Whatever happened, there is a way back.
    daemon.settled().await;
    for volume in 0..3u8 {
        for pod in 0..3u8 {
            drop(perform(&daemon, &Act::Unpublish(volume, pod)).await);
        }
        drop(perform(&daemon, &Act::Unstage(volume)).await);
        drop(perform(&daemon, &Act::Delete(volume)).await);
    }
    daemon.settled().await;
    daemon.fake.with(|world| {
        assert!(
            world.mounts.is_empty() && world.images.is_empty() && world.records.is_empty(),
            "{:?} {:?} {:?}",
            world.mounts,
            world.images,
            world.records
        );
        assert!(
            world
                .devices
                .values()
                .all(|device| !device.used || device.on != On::Blank),
            "a static volume was wiped"
        );
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn no_sequence_of_wishes_crashes_and_reboots_breaks_a_promise(acts in proptest::collection::vec((act(), fate()), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(play(acts));
    }
}
