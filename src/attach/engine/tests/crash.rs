//! The crash matrix: for every operation, the daemon dies before and after every single step, or
//! the step fails, before and after it was done. Then the operation is finished or undone,
//! repeating it succeeds, and in the end nothing is left.

use super::fake::{Fake, Fate, Image, On};
use super::life::{assert_clean, world};
use super::*;
use crate::attach::step::Trouble;

const OPERATIONS: [&str; 7] = [
    "create",
    "stage",
    "publish",
    "grow",
    "unpublish",
    "unstage",
    "delete",
];
const NAME: &str = "pvc-1";

fn handle_of(daemon: &Daemon) -> Option<String> {
    daemon
        .engine
        .view()
        .volumes
        .values()
        .find(|seen| seen.name == NAME)
        .map(|seen| seen.provided.handle.clone())
}

async fn run(daemon: &Daemon, operation: &str, kind: Kind) -> Result<(), Fault> {
    let wish = CreateWish {
        kind: Some(kind),
        ..wish(NAME)
    };
    let Some(handle) = handle_of(daemon) else {
        return if operation == "create" {
            daemon.engine.create(wish).await.map(drop)
        } else {
            Ok(())
        };
    };
    match operation {
        "create" => daemon.engine.create(wish).await.map(drop),
        "stage" => daemon.stage(&handle).await,
        "publish" => daemon.publish(&handle, "a").await,
        "grow" => daemon.grow(&handle, 2 << 20).await.map(drop),
        "unpublish" => daemon.unpublish(&handle, "a").await,
        "unstage" => daemon.unstage(&handle).await,
        _ => daemon.engine.delete(handle).await,
    }
}

/// What must always hold.
pub fn assert_sound(fake: &Fake, at: &str) {
    fake.with(|world| {
        let records: String = world
            .records
            .iter()
            .filter(|(path, _)| !path.contains("volumes/"))
            .map(|(_, text)| text.as_str())
            .collect();
        for (path, mount) in &world.mounts {
            assert!(
                records.contains(path),
                "{at}: {} is mounted at {path}, and no record tells",
                mount.what
            );
        }
        for (handle, image) in &world.images {
            assert!(
                !image.used || image.on == On::Filesystem("ext4".into()),
                "{at}: {handle} was in use, and is {:?}",
                image.on
            );
        }
    });
}

/// The state before `operation`, reached without any trouble.
async fn before(operation: &str, kind: Kind) -> Daemon {
    let daemon = Daemon::ready(world()).await;
    for earlier in OPERATIONS
        .into_iter()
        .take_while(|earlier| *earlier != operation)
    {
        run(&daemon, earlier, kind).await.expect(earlier);
    }
    daemon
}

async fn tear_down(daemon: Daemon, at: &str) {
    // What could not be finished is finished at the latest when it is looked at again.
    daemon.settled().await;
    for operation in ["unpublish", "unstage", "delete"] {
        run(&daemon, operation, Kind::Loop)
            .await
            .unwrap_or_else(|fault| panic!("{at}: {operation}: {fault}"));
    }
    daemon.settled().await;
    assert_clean(&daemon.fake);
}

async fn die_everywhere(kind: Kind) {
    for operation in OPERATIONS {
        for fate in [Fate::DieBefore, Fate::DieWithin, Fate::DieAfter] {
            for number in 0.. {
                let at = format!("{kind:?} {operation}, step {number}, {fate:?}");
                let daemon = before(operation, kind).await;
                let used = daemon
                    .fake
                    .with(|world| world.images.values().any(|image| image.used));
                let mut dead = daemon.fake.dead.subscribe();
                daemon.fake.at(number, fate);
                let died = tokio::select! {
                    answer = run(&daemon, operation, kind) => { answer.unwrap_or_else(|fault| panic!("{at}: {fault}")); false }
                    _ = dead.wait_for(|dead| *dead) => true,
                };
                assert_sound(&daemon.fake, &at);
                let daemon = Daemon::ready(daemon.kill().await).await;
                assert_sound(&daemon.fake, &at);
                daemon.fake.with(|world| {
                    assert!(
                        world.records.keys().all(|path| !path.contains("intents")),
                        "{at}: {:?}",
                        world.records.keys()
                    );
                    let formatted = world
                        .images
                        .values()
                        .all(|image| image.on == On::Filesystem("ext4".into()));
                    assert!(!used || formatted, "{at}: what was in use was wiped");
                    assert!(
                        world.logical.values().all(|(image, _)| !image.unfinished),
                        "{at}: it shows what others have left"
                    );
                });
                run(&daemon, operation, kind)
                    .await
                    .unwrap_or_else(|fault| panic!("{at}, again: {fault}"));
                tear_down(daemon, &at).await;
                if !died {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn whenever_it_dies_an_operation_on_an_image_is_finished_or_undone_and_can_be_repeated() {
    die_everywhere(Kind::Loop).await;
}

#[tokio::test]
async fn whenever_it_dies_an_operation_on_a_logical_volume_is_finished_or_undone_and_can_be_repeated()
 {
    die_everywhere(Kind::Lvm).await;
}

#[tokio::test]
async fn whatever_step_fails_the_operation_can_be_repeated_and_nothing_is_left() {
    for operation in OPERATIONS {
        for fate in [
            Fate::Fail(Trouble::Failed),
            Fate::FailAfter(Trouble::Failed),
            Fate::Fail(Trouble::Stuck),
            Fate::FailAfter(Trouble::Stuck),
            Fate::Fail(Trouble::Full),
        ] {
            for number in 0.. {
                let at = format!("{operation}, step {number}, {fate:?}");
                let daemon = before(operation, Kind::Loop).await;
                daemon.fake.at(number, fate);
                let first = run(&daemon, operation, Kind::Loop).await;
                let reached = daemon.fake.with(|world| world.steps > number);
                daemon.fake.rest();
                assert_sound(&daemon.fake, &at);
                run(&daemon, operation, Kind::Loop)
                    .await
                    .unwrap_or_else(|fault| panic!("{at}, again: {fault} (first: {first:?})"));
                tear_down(daemon, &at).await;
                if !reached {
                    break;
                }
            }
        }
    }
}

/// Killed in the middle of the mkfs of `handle`.
async fn cut_off(daemon: Daemon, handle: &str) -> Fake {
    let mut dead = daemon.fake.dead.subscribe();
    daemon.fake.at_format(Fate::DieWithin);
    tokio::select! {
        _ = daemon.stage(handle) => panic!("it was to die"),
        _ = dead.wait_for(|dead| *dead) => {}
    }
    daemon.kill().await
}

#[tokio::test]
async fn a_mkfs_that_was_cut_off_on_a_static_device_is_repeated_unless_somebody_else_was_there() {
    for (meanwhile, fine) in [(None, true), (Some(On::Foreign), false)] {
        let fake = cut_off(Daemon::ready(world()).await, "fast").await;
        fake.with(|world| {
            let fast = world.devices.get_mut("/dev/disk/by-id/fast").unwrap();
            assert_eq!(fast.on, On::Half, "{:?}", world.taken);
            if let Some(on) = meanwhile {
                fast.on = on;
            }
        });
        let daemon = Daemon::ready(fake).await;
        let staged = daemon.stage("fast").await;
        assert_eq!(staged.is_ok(), fine, "{staged:?}");
    }
}

#[tokio::test]
async fn a_mkfs_that_was_cut_off_is_never_repeated_on_another_device_of_the_same_name() {
    let others: [fn(&mut Image); 3] = [
        |fast| fast.identity = Some("wwid naa.6000".into()),
        |fast| fast.size = 2 << 30,
        |fast| fast.identity = None,
    ];
    for other in others {
        let fake = cut_off(Daemon::ready(world()).await, "fast").await;
        fake.with(|world| {
            let fast = world.devices.get_mut("/dev/disk/by-id/fast").unwrap();
            // Data that nobody knows by a signature looks as what a mkfs leaves.
            assert_eq!(fast.on, On::Half);
            other(fast);
        });
        let daemon = Daemon::ready(fake).await;
        assert!(
            matches!(daemon.stage("fast").await, Err(Fault::Precondition(why)) if why.contains("it is not formatted"))
        );
        daemon
            .fake
            .with(|world| assert_eq!(world.devices["/dev/disk/by-id/fast"].on, On::Half));
        let intent = |world: &mut super::fake::World| {
            world.records.keys().any(|path| path.contains("intents"))
        };
        assert!(!daemon.fake.with(intent), "it is given up, and said");
    }
}

#[tokio::test]
async fn a_volume_whose_mkfs_fails_is_made_blank_where_it_lies() {
    for kind in [Kind::Loop, Kind::Lvm] {
        let daemon = before("stage", kind).await;
        let handle = handle_of(&daemon).unwrap();
        for _ in 0..3 {
            daemon.fake.at_format(Fate::Fail(Trouble::Failed));
            assert!(matches!(
                daemon.stage(&handle).await,
                Err(Fault::Failed { .. })
            ));
        }
        daemon.fake.with(|world| {
            let taken = |word: &str| {
                world
                    .taken
                    .iter()
                    .filter(|step| step.starts_with(word))
                    .count()
            };
            assert_eq!(
                (taken("Blank"), taken("Remove") - taken("RemoveRecord")),
                (3, 0),
                "{:?}",
                world.taken
            );
        });
        let daemon = Daemon::ready(cut_off(daemon, &handle).await).await;
        daemon.stage(&handle).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_left_of_a_volume_whose_record_is_gone_goes_when_nothing_of_it_is_attached() {
    let daemon = before("unpublish", Kind::Loop).await;
    let handle = handle_of(&daemon).unwrap();
    let fake = daemon.kill().await;
    fake.with(|world| {
        world
            .records
            .remove(&format!("/pool/volumes/{handle}.json"))
    })
    .unwrap();
    let daemon = Daemon::ready(fake).await;
    assert!(matches!(
        daemon.engine.delete(handle.clone()).await,
        Err(Fault::Precondition(_))
    ));
    daemon.unpublish(&handle, "a").await.unwrap();
    daemon.unstage(&handle).await.unwrap();
    assert!(matches!(
        daemon.engine.view().find(&handle),
        Err(Fault::NotFound(_))
    ));
    daemon.engine.delete(handle).await.unwrap();
    daemon.fake.with(|world| {
        assert!(
            world.records.is_empty() && world.mounts.is_empty(),
            "{:?} {:?}",
            world.records,
            world.mounts
        )
    });
}

#[tokio::test]
async fn an_operation_that_was_cut_off_on_a_volume_whose_record_is_gone_leaves_nothing() {
    let fake = {
        let daemon = before("stage", Kind::Lvm).await;
        let handle = handle_of(&daemon).unwrap();
        cut_off(daemon, &handle).await
    };
    fake.with(|world| world.logical.clear());
    let daemon = Daemon::ready(fake).await;
    assert_eq!(handle_of(&daemon), None);
    assert!(
        daemon
            .engine
            .view()
            .volumes
            .keys()
            .all(|handle| handle == "fast" || handle == "scratch")
    );
    assert_clean(&daemon.fake);
}

#[tokio::test]
async fn a_logical_volume_that_was_never_finished_and_is_told_by_no_intent_is_only_deleted() {
    let daemon = before("stage", Kind::Lvm).await;
    let handle = handle_of(&daemon).unwrap();
    let fake = daemon.kill().await;
    fake.with(|world| {
        world
            .logical
            .values_mut()
            .for_each(|(image, _)| image.unfinished = true)
    });
    let daemon = Daemon::ready(fake).await;
    let trouble = daemon
        .engine
        .view()
        .find(&handle)
        .unwrap()
        .provided
        .trouble
        .clone();
    assert!(trouble.is_some_and(|why| why.contains("never finished")));
    assert!(
        matches!(daemon.stage(&handle).await, Err(Fault::Precondition(why)) if why.contains("never finished"))
    );
    daemon.engine.delete(handle).await.unwrap();
    assert_clean(&daemon.fake);
}

#[tokio::test]
async fn growth_that_cannot_be_finished_keeps_nothing_from_being_unmade() {
    for kind in [Kind::Loop, Kind::Lvm] {
        let daemon = before("grow", kind).await;
        let handle = handle_of(&daemon).unwrap();
        daemon.fake.with(|world| world.growing_broken = true);
        assert!(matches!(
            daemon.grow(&handle, 2 << 20).await,
            Err(Fault::Failed { .. })
        ));
        let daemon = Daemon::ready(daemon.kill().await).await;
        let written = daemon
            .fake
            .with(|world| world.records.keys().any(|path| path.contains("intents")));
        assert!(written, "it is tried again while nobody is in its way");
        for operation in ["unpublish", "unstage", "delete"] {
            run(&daemon, operation, kind)
                .await
                .unwrap_or_else(|fault| panic!("{operation}: {fault}"));
        }
        assert_clean(&daemon.fake);
    }
}

#[tokio::test]
async fn it_may_die_again_while_it_puts_right_what_was_cut_off() {
    for operation in OPERATIONS {
        for first in 0..12 {
            for second in 0..8 {
                let at = format!("{operation}, step {first}, then step {second}");
                let daemon = before(operation, Kind::Loop).await;
                let mut dead = daemon.fake.dead.subscribe();
                daemon.fake.at(first, Fate::DieAfter);
                tokio::select! {
                    answer = run(&daemon, operation, Kind::Loop) => answer.unwrap_or_else(|fault| panic!("{at}: {fault}")),
                    _ = dead.wait_for(|dead| *dead) => {}
                }
                let fake = daemon.kill().await;
                fake.at(second, Fate::DieAfter);
                let daemon = Daemon::start(fake);
                let mut dead = daemon.fake.dead.subscribe();
                tokio::select! {
                    () = daemon.settled() => {}
                    _ = dead.wait_for(|dead| *dead) => {}
                }
                assert_sound(&daemon.fake, &at);
                let daemon = Daemon::ready(daemon.kill().await).await;
                run(&daemon, operation, Kind::Loop)
                    .await
                    .unwrap_or_else(|fault| panic!("{at}, again: {fault}"));
                tear_down(daemon, &at).await;
            }
        }
    }
}
