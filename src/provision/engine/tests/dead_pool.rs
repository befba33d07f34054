//! The disk of the pool dies, becomes read-only or hangs. The pods on it end: their volumes are
//! unpublished and unstaged by what the kernel has, and the records follow when the disk is back.

use tokio::time::Instant;

use super::crash::{OPERATIONS, handle_of, run};
use super::fake::{FakeHost, HostState, InjectedFault, PoolDisk};
use super::lifecycle::{assert_clean, fake_host};
use super::*;

/// The kubelet's limit for one call.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// As `app::provisioning` sets it.
fn patient_settings() -> Settings {
    Settings { request_timeout: Duration::from_secs(85), ..settings() }
}

async fn ready(fake: FakeHost) -> Daemon {
    let daemon = Daemon::start_with(fake, patient_settings());
    daemon.wait_recovered().await;
    daemon
}

async fn before(operation: &str) -> Daemon {
    let daemon = ready(fake_host()).await;
    for earlier in OPERATIONS.into_iter().take_while(|earlier| *earlier != operation) {
        run(&daemon, earlier, BackingKind::Loop).await.expect(earlier);
    }
    daemon
}

/// Published to the pod `a`, and its disk is now in this state.
async fn published_on(disk: PoolDisk) -> (Daemon, String) {
    let daemon = before("grow").await;
    daemon.host.with_state(|state| state.pool_disk = disk);
    let handle = handle_of(&daemon).expect("it was created");
    (daemon, handle)
}

fn is_attached(state: &HostState) -> bool {
    !state.mounts.is_empty() || state.images.values().any(|image| image.device.is_some())
}

/// As the kubelet does: until it succeeds.
async fn end_pod(daemon: &Daemon, handle: &str, at: &str) {
    for call in ["unpublish", "unstage"] {
        let begun = Instant::now();
        loop {
            let answer = match call {
                "unpublish" => daemon.unpublish(handle, "a").await,
                _ => daemon.unstage(handle).await,
            };
            match answer {
                Ok(()) => break,
                // An operation from before, or a recovery.
                Err(ProvisionError::Aborted(_) | ProvisionError::DeadlineExceeded(_))
                    if begun.elapsed() < CALL_LIMIT * 10 =>
                {
                    tokio::time::advance(Duration::from_secs(1)).await;
                }
                Err(fault) => panic!("{at}: {call}: {fault}"),
            }
        }
    }
    daemon.host.with_state(|state| assert!(!is_attached(state), "{at}: {:?}", state.mounts));
}

/// Its disk is good again: the records say what is, and nothing is left after the deletion.
async fn disk_returns(daemon: Daemon, at: &str) {
    daemon.host.with_state(|state| state.pool_disk = PoolDisk::Good);
    daemon.wait_recovered().await;
    daemon.host.with_state(|state| {
        let is_old = |path: &&String| path.contains("attachments") || path.contains("intents");
        let old: Vec<_> = state.records.keys().filter(is_old).collect();
        assert!(old.is_empty(), "{at}: {old:?}");
    });
    for operation in ["stage", "publish", "unpublish", "unstage", "delete"] {
        run(&daemon, operation, BackingKind::Loop)
            .await
            .unwrap_or_else(|fault| panic!("{at}: {operation}: {fault}"));
    }
    daemon.wait_recovered().await;
    assert_clean(&daemon.host);
}

const DISKS: [PoolDisk; 3] = [PoolDisk::ReadOnly, PoolDisk::Dead, PoolDisk::Hung];

/// The daemon and its volume after the operation, and whether it came to that step.
async fn fail_at_step(operation: &str, disk: PoolDisk, number: usize) -> (Daemon, String, bool) {
    let daemon = before(operation).await;
    let handle = handle_of(&daemon).expect("it was created");
    daemon.host.inject_at(number, InjectedFault::Disk(disk));
    let _ = run(&daemon, operation, BackingKind::Loop).await;
    let reached = daemon.host.with_state(|state| state.steps > number);
    daemon.host.stop_injecting();
    daemon.host.with_state(|state| state.pool_disk = disk);
    (daemon, handle, reached)
}

const WITH_A_VOLUME: [&str; 5] = ["stage", "publish", "grow", "unpublish", "unstage"];

#[tokio::test(start_paused = true)]
async fn whenever_the_disk_fails_the_pod_ends_and_the_records_follow_its_return() {
    for operation in WITH_A_VOLUME {
        for disk in DISKS {
            for number in 0.. {
                let at = format!("{operation}, step {number}, {disk:?}");
                let (daemon, handle, reached) = fail_at_step(operation, disk, number).await;
                end_pod(&daemon, &handle, &at).await;
                end_pod(&daemon, &handle, &at).await;
                disk_returns(daemon, &at).await;
                if !reached {
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_pod_ends_although_the_daemon_was_killed_and_reads_no_record_any_more() {
    for operation in WITH_A_VOLUME {
        for disk in DISKS {
            for number in 0.. {
                let at = format!("{operation}, step {number}, {disk:?}, killed");
                let (daemon, handle, reached) = fail_at_step(operation, disk, number).await;
                let daemon = Daemon::start_with(daemon.kill().await, patient_settings());
                if disk == PoolDisk::ReadOnly {
                    daemon.wait_recovered_or_failed().await;
                }
                end_pod(&daemon, &handle, &at).await;
                end_pod(&daemon, &handle, &at).await;
                disk_returns(daemon, &at).await;
                if !reached {
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_killed_at_any_step_of_a_detachment_on_a_dead_disk_ends_the_pod_at_its_next_start()
{
    for disk in [PoolDisk::ReadOnly, PoolDisk::Dead] {
        for operation in ["unpublish", "unstage"] {
            for fate in [InjectedFault::CrashBefore, InjectedFault::CrashAfter] {
                for number in 0.. {
                    let at = format!("{operation}, step {number}, {disk:?}, {fate:?}");
                    let daemon = before(operation).await;
                    let handle = handle_of(&daemon).expect("it was created");
                    daemon.host.with_state(|state| state.pool_disk = disk);
                    let mut dead = daemon.host.crashed.subscribe();
                    daemon.host.inject_at(number, fate);
                    let died = tokio::select! {
                        answer = run(&daemon, operation, BackingKind::Loop) => {
                            answer.unwrap_or_else(|fault| panic!("{at}: {fault}"));
                            false
                        }
                        _ = dead.wait_for(|dead| *dead) => true,
                    };
                    let daemon = Daemon::start_with(daemon.kill().await, patient_settings());
                    if disk == PoolDisk::ReadOnly {
                        daemon.wait_recovered_or_failed().await;
                    }
                    end_pod(&daemon, &handle, &at).await;
                    disk_returns(daemon, &at).await;
                    if !died {
                        break;
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_pool_delays_each_call_by_seconds_only() {
    let (daemon, handle) = published_on(PoolDisk::Hung).await;
    let begun = Instant::now();
    daemon.unpublish(&handle, "a").await.unwrap();
    daemon.unstage(&handle).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn on_a_dead_disk_nothing_is_created_deleted_grown_or_staged() {
    for disk in [PoolDisk::ReadOnly, PoolDisk::Dead] {
        let (daemon, handle) = published_on(disk).await;
        let word = if disk == PoolDisk::Dead { "Input/output" } else { "Read-only file system" };
        let is_refused = |answer: Result<(), ProvisionError>, what: &str| match answer {
            Err(ProvisionError::Failed { operation, source }) => {
                assert!(
                    operation.contains("/pool/") && source.message.contains(word),
                    "{what}: {operation}: {source}"
                )
            }
            other => panic!("{what}: {other:?}"),
        };
        is_refused(daemon.grow(&handle, 4 << 20).await.map(drop), "grow");
        is_refused(daemon.create("pvc-2").await.map(drop), "create");
        end_pod(&daemon, &handle, "ended").await;
        is_refused(daemon.stage(&handle).await, "stage");
        is_refused(daemon.engine.delete(handle.clone()).await, "delete");
        daemon.host.with_state(|state| assert_eq!(state.images.len(), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_mount_in_use_on_a_dead_disk_stays_and_its_user_is_named() {
    for restarted in [false, true] {
        let (daemon, handle) = published_on(PoolDisk::Dead).await;
        let daemon = match restarted {
            true => Daemon::start_with(daemon.kill().await, patient_settings()),
            false => daemon,
        };
        daemon.host.with_state(|state| state.in_use.insert(target("a")));
        for _ in 0..2 {
            let refused = daemon.unpublish(&handle, "a").await;
            assert!(
                matches!(&refused, Err(ProvisionError::InUse(why)) if why.contains("postgres (pid 7)")),
                "{refused:?}"
            );
        }
        let refused = daemon.unstage(&handle).await;
        assert!(
            matches!(&refused, Err(ProvisionError::FailedPrecondition(why)) if why.contains(&target("a"))),
            "{refused:?}"
        );
        daemon.host.with_state(|state| {
            state.in_use.clear();
            assert_eq!(state.mounts.len(), 2);
        });
        end_pod(&daemon, &handle, "free").await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_record_only_the_kernel_proves_that_nothing_is_left() {
    let (daemon, handle) = published_on(PoolDisk::Dead).await;
    daemon.unpublish(&handle, "a").await.unwrap();
    let image = format!("/pool/images/{handle}.img");
    daemon.host.with_state(|state| state.other_loops.insert(image, "loop9".into()));
    for _ in 0..2 {
        let refused = daemon.unstage(&handle).await;
        assert!(
            matches!(&refused, Err(ProvisionError::InUse(why)) if why.contains("still attached as loop9")),
            "{refused:?}"
        );
    }
    daemon.host.with_state(|state| state.other_loops.clear());
    daemon.unstage(&handle).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_disk_does_not_return_is_not_an_unattached_volume() {
    let (daemon, handle) = published_on(PoolDisk::Good).await;
    let fake = daemon.kill().await;
    let path = format!("/pool/attachments/{handle}.json");
    let before = fake.with_state(|state| {
        state.unreadable.insert(path.clone());
        state.records.clone()
    });
    let daemon = ready(fake).await;
    let publish = daemon.publish(&handle, "b").await;
    for refused in [publish, daemon.engine.delete(handle.clone()).await] {
        assert!(
            matches!(&refused, Err(ProvisionError::FailedPrecondition(why)) if why.contains("input/output error")),
            "{refused:?}"
        );
    }
    let refused = daemon.unstage(&handle).await;
    assert!(
        matches!(&refused, Err(ProvisionError::FailedPrecondition(why)) if why.contains(&target("a"))),
        "{refused:?}"
    );
    end_pod(&daemon, &handle, "not read").await;
    daemon.host.with_state(|state| assert_eq!(state.records, before));
    records_return(&daemon, &handle).await;
    disk_returns(daemon, "read").await;
}

/// The disk returns them again: within one round they are read.
async fn records_return(daemon: &Daemon, handle: &str) {
    daemon.host.with_state(|state| state.unreadable.clear());
    let mut views = daemon.engine.subscribe();
    let is_known = |view: &Arc<crate::engine::EngineView>| {
        view.find(handle).is_ok_and(|seen| seen.provided.error.is_none())
    };
    views.wait_for(is_known).await.expect("the engine runs");
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_folder_ends_although_a_record_of_it_is_not_read() {
    let daemon = ready(fake_host()).await;
    daemon.stage("scratch").await.unwrap();
    daemon.publish("scratch", "a").await.unwrap();
    let fake = daemon.kill().await;
    fake.with_state(|state| state.unreadable.insert("/pool/formats/scratch.json".into()));
    let daemon = ready(fake).await;
    let publish = daemon.publish("scratch", "b").await;
    assert!(matches!(publish, Err(ProvisionError::FailedPrecondition(_))), "{publish:?}");
    end_pod(&daemon, "scratch", "not read").await;
    records_return(&daemon, "scratch").await;
    daemon.stage("scratch").await.unwrap();
    daemon.publish("scratch", "b").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_no_record_is_read_only_what_is_the_volumes_own_is_unmounted() {
    let (daemon, handle) = published_on(PoolDisk::Dead).await;
    let daemon = Daemon::start_with(daemon.kill().await, patient_settings());
    let device = daemon.host.with_state(|state| {
        let mount = state.mounts.get_mut(&target("a")).expect("published");
        std::mem::replace(&mut mount.source, "loop99".into())
    });
    let refused = daemon.unpublish(&handle, "a").await;
    assert!(
        matches!(&refused, Err(ProvisionError::FailedPrecondition(why)) if why.contains("loop99")),
        "{refused:?}"
    );
    let refused = daemon.engine.unpublish(handle.clone(), STAGING.into()).await;
    assert!(
        matches!(&refused, Err(ProvisionError::FailedPrecondition(why)) if why.contains("staged at")),
        "{refused:?}"
    );
    for unknown in ["no-such", "dv-none"] {
        assert!(matches!(
            daemon.unpublish(unknown, "a").await,
            Err(ProvisionError::Unavailable(_))
        ));
    }
    daemon.host.with_state(|state| {
        state.mounts.get_mut(&target("a")).expect("kept").source = device;
    });
    end_pod(&daemon, &handle, "its own").await;
}

#[tokio::test(start_paused = true)]
async fn a_logical_volume_is_detached_while_the_folder_of_records_is_dead() {
    let daemon = ready(fake_host()).await;
    for operation in ["create", "stage", "publish"] {
        run(&daemon, operation, BackingKind::Lvm).await.expect(operation);
    }
    let handle = handle_of(&daemon).expect("it was created");
    daemon.host.with_state(|state| state.pool_disk = PoolDisk::Dead);
    let daemon = Daemon::start_with(daemon.kill().await, patient_settings());
    end_pod(&daemon, &handle, "logical").await;
    daemon.host.with_state(|state| {
        assert!(state.logical.values().all(|(image, _)| image.device.is_none()))
    });
}

#[tokio::test(start_paused = true)]
async fn a_mount_of_a_group_that_does_not_answer_is_unmounted() {
    let daemon = ready(fake_host()).await;
    for operation in ["create", "stage", "publish"] {
        run(&daemon, operation, BackingKind::Lvm).await.expect(operation);
    }
    let handle = handle_of(&daemon).expect("it was created");
    daemon.host.with_state(|state| state.group_broken = true);
    daemon.unpublish(&handle, "a").await.unwrap();
    daemon.host.with_state(|state| assert!(!state.mounts.contains_key(&target("a"))));
}

#[tokio::test(start_paused = true)]
async fn records_that_are_read_during_a_detachment_wait_for_its_end() {
    let (daemon, handle) = published_on(PoolDisk::Dead).await;
    let daemon = Arc::new(Daemon::start_with(daemon.kill().await, patient_settings()));
    daemon.host.is_unmount_held.send_replace(true);
    let unpublishing = tokio::spawn({
        let (daemon, handle) = (daemon.clone(), handle.clone());
        async move { daemon.unpublish(&handle, "a").await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = daemon.unpublish(&handle, "a").await;
    assert!(
        matches!(&again, Err(ProvisionError::Aborted(why)) if why.contains("unmounting")),
        "{again:?}"
    );
    daemon.host.with_state(|state| state.pool_disk = PoolDisk::Good);
    let mut views = daemon.engine.subscribe();
    views.wait_for(|view| view.records_error.is_none()).await.unwrap();
    let growing = tokio::spawn({
        let (daemon, handle) = (daemon.clone(), handle.clone());
        async move { daemon.grow(&handle, 8 << 20).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!growing.is_finished() && !unpublishing.is_finished());
    daemon.host.is_unmount_held.send_replace(false);
    unpublishing.await.expect("it runs").unwrap();
    growing.await.expect("it runs").unwrap();
    let view = daemon.engine.view();
    let published = &view.find(&handle).unwrap().provided.published;
    assert!(published.is_empty(), "{published:?}");
    let record = daemon
        .host
        .with_state(|state| state.records[&format!("/pool/attachments/{handle}.json")].clone());
    assert!(record.contains(STAGING) && !record.contains(&target("a")), "{record}");
}

/// An earlier version wrote an intent of each detachment.
#[tokio::test(start_paused = true)]
async fn an_intent_of_a_detachment_from_an_earlier_version_is_finished() {
    let (daemon, handle) = published_on(PoolDisk::Good).await;
    let fake = daemon.kill().await;
    let path = target("a");
    let intent = format!(
        r#"{{"version":1,"handle":"{handle}","since":"2026-01-01T00:00:00Z","operation":{{"do":"unpublish","path":"{path}"}},"kind":"loop"}}"#
    );
    fake.with_state(|state| state.records.insert(format!("/pool/intents/{handle}.json"), intent));
    let daemon = ready(fake).await;
    daemon.host.with_state(|state| {
        assert!(!state.mounts.contains_key(&path));
        assert!(state.records.keys().all(|path| !path.contains("intents")));
    });
    daemon.unstage(&handle).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_static_device_that_was_removed_ends() {
    let daemon = ready(fake_host()).await;
    daemon.stage("fast").await.unwrap();
    daemon.publish("fast", "a").await.unwrap();
    daemon.host.with_state(|state| state.devices.clear());
    let daemon = ready(daemon.kill().await).await;
    daemon.unpublish("fast", "a").await.unwrap();
    daemon.unstage("fast").await.unwrap();
    daemon.host.with_state(|state| assert!(state.mounts.is_empty(), "{:?}", state.mounts));
}
