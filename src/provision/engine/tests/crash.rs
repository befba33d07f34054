//! The crash matrix: for every operation, the daemon dies before and after every single step, or
//! the step fails, before and after it was done. Then the operation is finished or undone,
//! repeating it succeeds, and in the end nothing is left.

use super::fake::{DiskContent, FakeHost, Image, InjectedFault};
use super::lifecycle::{assert_clean, fake_host, has_other_records};
use super::*;
use crate::step::StepErrorKind;

pub const OPERATIONS: [&str; 7] =
    ["create", "stage", "publish", "grow", "unpublish", "unstage", "delete"];
const NAME: &str = "pvc-1";

pub fn handle_of(daemon: &Daemon) -> Option<String> {
    daemon
        .engine
        .view()
        .volumes
        .values()
        .find(|seen| seen.name == NAME)
        .map(|seen| seen.provided.handle.clone())
}

pub async fn run(
    daemon: &Daemon,
    operation: &str,
    kind: BackingKind,
) -> Result<(), ProvisionError> {
    let request = CreateRequest { kind: Some(kind), ..create_request(NAME) };
    let Some(handle) = handle_of(daemon) else {
        return if operation == "create" {
            daemon.engine.create(request).await.map(drop)
        } else {
            Ok(())
        };
    };
    match operation {
        "create" => daemon.engine.create(request).await.map(drop),
        "stage" => daemon.stage(&handle).await,
        "publish" => daemon.publish(&handle, "a").await,
        "grow" => daemon.grow(&handle, 2 << 20).await.map(drop),
        "unpublish" => daemon.unpublish(&handle, "a").await,
        "unstage" => daemon.unstage(&handle).await,
        _ => daemon.engine.delete(handle).await,
    }
}

/// What must always hold.
pub fn assert_consistent(fake: &FakeHost, at: &str) {
    fake.with_state(|state| {
        let records: String = state
            .records
            .iter()
            .filter(|(path, _)| !path.contains("volumes/"))
            .map(|(_, text)| text.as_str())
            .collect();
        for (path, mount) in &state.mounts {
            assert!(
                records.contains(path),
                "{at}: {} is mounted at {path}, and no record tells",
                mount.source
            );
        }
        for (handle, image) in &state.images {
            assert!(
                !image.used || image.content == DiskContent::Filesystem("ext4".into()),
                "{at}: {handle} was in use, and is {:?}",
                image.content
            );
        }
    });
}

/// The state before `operation`, reached without any failure.
async fn daemon_before(operation: &str, kind: BackingKind) -> Daemon {
    let daemon = Daemon::ready(fake_host()).await;
    for earlier in OPERATIONS.into_iter().take_while(|earlier| *earlier != operation) {
        run(&daemon, earlier, kind).await.expect(earlier);
    }
    daemon
}

async fn tear_down(daemon: Daemon, at: &str) {
    // What could not be finished is finished at the latest when it is looked at again.
    daemon.wait_recovered().await;
    for operation in ["unpublish", "unstage", "delete"] {
        run(&daemon, operation, BackingKind::Loop)
            .await
            .unwrap_or_else(|fault| panic!("{at}: {operation}: {fault}"));
    }
    daemon.wait_recovered().await;
    assert_clean(&daemon.host);
}

async fn crash_at_every_step(kind: BackingKind) {
    for operation in OPERATIONS {
        for fate in
            [InjectedFault::CrashBefore, InjectedFault::CrashDuring, InjectedFault::CrashAfter]
        {
            for number in 0.. {
                let at = format!("{kind:?} {operation}, step {number}, {fate:?}");
                let daemon = daemon_before(operation, kind).await;
                let used =
                    daemon.host.with_state(|state| state.images.values().any(|image| image.used));
                let mut dead = daemon.host.crashed.subscribe();
                daemon.host.inject_at(number, fate);
                let died = tokio::select! {
                    answer = run(&daemon, operation, kind) => { answer.unwrap_or_else(|fault| panic!("{at}: {fault}")); false }
                    _ = dead.wait_for(|dead| *dead) => true,
                };
                assert_consistent(&daemon.host, &at);
                let daemon = Daemon::ready(daemon.kill().await).await;
                assert_consistent(&daemon.host, &at);
                daemon.host.with_state(|state| {
                    assert!(
                        state.records.keys().all(|path| !path.contains("intents")),
                        "{at}: {:?}",
                        state.records.keys()
                    );
                    let formatted = state
                        .images
                        .values()
                        .all(|image| image.content == DiskContent::Filesystem("ext4".into()));
                    assert!(!used || formatted, "{at}: what was in use was wiped");
                    assert!(
                        state.logical.values().all(|(image, _)| !image.unfinished),
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
async fn after_a_crash_at_any_step_an_operation_on_an_image_is_finished_or_undone_and_repeatable() {
    crash_at_every_step(BackingKind::Loop).await;
}

#[tokio::test]
async fn after_a_crash_at_any_step_an_operation_on_a_logical_volume_is_finished_or_undone_and_repeatable()
 {
    crash_at_every_step(BackingKind::Lvm).await;
}

#[tokio::test]
async fn whatever_step_fails_the_operation_can_be_repeated_and_nothing_is_left() {
    for operation in OPERATIONS {
        for fate in [
            InjectedFault::Fail(StepErrorKind::Other),
            InjectedFault::FailAfter(StepErrorKind::Other),
            InjectedFault::Fail(StepErrorKind::Stuck),
            InjectedFault::FailAfter(StepErrorKind::Stuck),
            InjectedFault::Fail(StepErrorKind::NoSpace),
        ] {
            for number in 0.. {
                let at = format!("{operation}, step {number}, {fate:?}");
                let daemon = daemon_before(operation, BackingKind::Loop).await;
                daemon.host.inject_at(number, fate);
                let first = run(&daemon, operation, BackingKind::Loop).await;
                let reached = daemon.host.with_state(|state| state.steps > number);
                daemon.host.stop_injecting();
                assert_consistent(&daemon.host, &at);
                run(&daemon, operation, BackingKind::Loop)
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
async fn interrupt_mkfs(daemon: Daemon, handle: &str) -> FakeHost {
    let mut dead = daemon.host.crashed.subscribe();
    daemon.host.inject_at_format(InjectedFault::CrashDuring);
    tokio::select! {
        _ = daemon.stage(handle) => panic!("it was to die"),
        _ = dead.wait_for(|dead| *dead) => {}
    }
    daemon.kill().await
}

#[tokio::test]
async fn an_interrupted_mkfs_on_a_static_device_is_repeated_unless_foreign_data_is_there() {
    for (meanwhile, fine) in [(None, true), (Some(DiskContent::Foreign), false)] {
        let fake = interrupt_mkfs(Daemon::ready(fake_host()).await, "fast").await;
        fake.with_state(|state| {
            let fast = state.devices.get_mut("/dev/disk/by-id/fast").unwrap();
            assert_eq!(fast.content, DiskContent::InterruptedMkfs, "{:?}", state.executed);
            if let Some(on) = meanwhile {
                fast.content = on;
            }
        });
        let daemon = Daemon::ready(fake).await;
        let staged = daemon.stage("fast").await;
        assert_eq!(staged.is_ok(), fine, "{staged:?}");
    }
}

#[tokio::test]
async fn an_interrupted_mkfs_is_never_repeated_on_another_device_of_the_same_name() {
    let others: [fn(&mut Image); 3] = [
        |fast| fast.identity = Some("wwid naa.6000".into()),
        |fast| fast.size = 2 << 30,
        |fast| fast.identity = None,
    ];
    for other in others {
        let fake = interrupt_mkfs(Daemon::ready(fake_host()).await, "fast").await;
        fake.with_state(|state| {
            let fast = state.devices.get_mut("/dev/disk/by-id/fast").unwrap();
            // Data that nobody knows by a signature looks as what a mkfs leaves.
            assert_eq!(fast.content, DiskContent::InterruptedMkfs);
            other(fast);
        });
        let daemon = Daemon::ready(fake).await;
        assert!(
            matches!(daemon.stage("fast").await, Err(ProvisionError::FailedPrecondition(why)) if why.contains("it is not formatted"))
        );
        daemon.host.with_state(|state| {
            assert_eq!(state.devices["/dev/disk/by-id/fast"].content, DiskContent::InterruptedMkfs)
        });
        let intent = |state: &mut super::fake::HostState| {
            state.records.keys().any(|path| path.contains("intents"))
        };
        assert!(!daemon.host.with_state(intent), "it is given up, and said");
    }
}

#[tokio::test]
async fn a_volume_whose_mkfs_fails_is_made_blank_where_it_lies() {
    for kind in [BackingKind::Loop, BackingKind::Lvm] {
        let daemon = daemon_before("stage", kind).await;
        let handle = handle_of(&daemon).unwrap();
        for _ in 0..3 {
            daemon.host.inject_at_format(InjectedFault::Fail(StepErrorKind::Other));
            assert!(matches!(daemon.stage(&handle).await, Err(ProvisionError::Failed { .. })));
        }
        daemon.host.with_state(|state| {
            let taken =
                |word: &str| state.executed.iter().filter(|step| step.starts_with(word)).count();
            assert_eq!(
                (taken("WipeSignatures"), taken("Remove") - taken("RemoveRecord")),
                (3, 0),
                "{:?}",
                state.executed
            );
        });
        let daemon = Daemon::ready(interrupt_mkfs(daemon, &handle).await).await;
        daemon.stage(&handle).await.unwrap();
    }
}

#[tokio::test]
async fn an_orphan_volume_is_dropped_once_it_is_detached() {
    let daemon = daemon_before("unpublish", BackingKind::Loop).await;
    let handle = handle_of(&daemon).unwrap();
    let fake = daemon.kill().await;
    fake.with_state(|state| state.records.remove(&format!("/pool/volumes/{handle}.json"))).unwrap();
    let daemon = Daemon::ready(fake).await;
    assert!(matches!(
        daemon.engine.delete(handle.clone()).await,
        Err(ProvisionError::FailedPrecondition(_))
    ));
    daemon.unpublish(&handle, "a").await.unwrap();
    daemon.unstage(&handle).await.unwrap();
    assert!(matches!(daemon.engine.view().find(&handle), Err(ProvisionError::NotFound(_))));
    daemon.engine.delete(handle).await.unwrap();
    daemon.host.with_state(|state| {
        assert!(
            !has_other_records(state) && state.mounts.is_empty(),
            "{:?} {:?}",
            state.records,
            state.mounts
        )
    });
}

#[tokio::test]
async fn an_interrupted_operation_on_an_orphan_volume_leaves_nothing() {
    let fake = {
        let daemon = daemon_before("stage", BackingKind::Lvm).await;
        let handle = handle_of(&daemon).unwrap();
        interrupt_mkfs(daemon, &handle).await
    };
    fake.with_state(|state| state.logical.clear());
    let daemon = Daemon::ready(fake).await;
    assert_eq!(handle_of(&daemon), None);
    assert!(
        daemon.engine.view().volumes.keys().all(|handle| handle == "fast" || handle == "scratch")
    );
    assert_clean(&daemon.host);
}

#[tokio::test]
async fn an_unfinished_logical_volume_without_an_intent_can_only_be_deleted() {
    let daemon = daemon_before("stage", BackingKind::Lvm).await;
    let handle = handle_of(&daemon).unwrap();
    let fake = daemon.kill().await;
    fake.with_state(|state| {
        state.logical.values_mut().for_each(|(image, _)| image.unfinished = true)
    });
    let daemon = Daemon::ready(fake).await;
    let problem = daemon.engine.view().find(&handle).unwrap().provided.error.clone();
    assert!(problem.is_some_and(|why| why.contains("creation was interrupted")));
    assert!(
        matches!(daemon.stage(&handle).await, Err(ProvisionError::FailedPrecondition(why)) if why.contains("never finished"))
    );
    daemon.engine.delete(handle).await.unwrap();
    assert_clean(&daemon.host);
}

#[tokio::test]
async fn an_expansion_that_cannot_be_finished_does_not_block_deletion() {
    for kind in [BackingKind::Loop, BackingKind::Lvm] {
        let daemon = daemon_before("grow", kind).await;
        let handle = handle_of(&daemon).unwrap();
        daemon.host.with_state(|state| state.growing_broken = true);
        assert!(matches!(daemon.grow(&handle, 2 << 20).await, Err(ProvisionError::Failed { .. })));
        let daemon = Daemon::ready(daemon.kill().await).await;
        let written = daemon
            .host
            .with_state(|state| state.records.keys().any(|path| path.contains("intents")));
        assert!(written, "it is tried again while nobody is in its way");
        for operation in ["unpublish", "unstage", "delete"] {
            run(&daemon, operation, kind)
                .await
                .unwrap_or_else(|fault| panic!("{operation}: {fault}"));
        }
        assert_clean(&daemon.host);
    }
}

#[tokio::test]
async fn a_second_crash_during_recovery_is_recovered() {
    for operation in OPERATIONS {
        for first in 0..12 {
            for second in 0..8 {
                let at = format!("{operation}, step {first}, then step {second}");
                let daemon = daemon_before(operation, BackingKind::Loop).await;
                let mut dead = daemon.host.crashed.subscribe();
                daemon.host.inject_at(first, InjectedFault::CrashAfter);
                tokio::select! {
                    answer = run(&daemon, operation, BackingKind::Loop) => answer.unwrap_or_else(|fault| panic!("{at}: {fault}")),
                    _ = dead.wait_for(|dead| *dead) => {}
                }
                let fake = daemon.kill().await;
                fake.inject_at(second, InjectedFault::CrashAfter);
                let daemon = Daemon::start(fake);
                let mut dead = daemon.host.crashed.subscribe();
                tokio::select! {
                    () = daemon.wait_recovered() => {}
                    _ = dead.wait_for(|dead| *dead) => {}
                }
                assert_consistent(&daemon.host, &at);
                let daemon = Daemon::ready(daemon.kill().await).await;
                run(&daemon, operation, BackingKind::Loop)
                    .await
                    .unwrap_or_else(|fault| panic!("{at}, again: {fault}"));
                tear_down(daemon, &at).await;
            }
        }
    }
}
