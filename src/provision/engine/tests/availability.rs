//! Operations that hang, volumes that are busy, and records or groups that cannot be read.

use super::lifecycle::fake_host;
use super::refusals::staged;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_hung_step_keeps_its_own_volume_busy_and_no_other() {
    let (daemon, hung) = staged().await;
    let other = daemon.create("pvc-2").await.unwrap();
    daemon.host.with_state(|state| state.hung.insert(hung.clone()));
    let late = daemon.publish(&hung, "a").await;
    assert!(
        matches!(&late, Err(ProvisionError::DeadlineExceeded(why)) if why.contains("looking up the mount at")),
        "{late:?}"
    );
    assert!(
        matches!(daemon.publish(&hung, "a").await, Err(ProvisionError::Aborted(why)) if why.contains("publishing it"))
    );
    let doing = daemon.engine.view().find(&hung).unwrap().current_activity();
    assert!(doing.is_some_and(|doing| doing.contains("publishing it")));
    let stage = StageRequest { handle: other.clone(), staging_path: staging(2), access: writer() };
    daemon.engine.stage(stage).await.unwrap();
    daemon.engine.unstage(other.clone(), staging(2)).await.unwrap();
    daemon.engine.delete(other).await.unwrap();
}

#[tokio::test]
async fn until_the_records_are_read_everything_is_unavailable() {
    let fake = fake_host();
    fake.with_state(|state| state.hung.insert("pool".into()));
    let daemon = Daemon::start(fake);
    assert!(matches!(daemon.create("x").await, Err(ProvisionError::Unavailable(_))));
    assert!(matches!(
        daemon.engine.delete("dv-x".into()).await,
        Err(ProvisionError::Unavailable(_))
    ));
    assert!(matches!(daemon.engine.view().find("fast"), Err(ProvisionError::Unavailable(_))));
    assert!(matches!(daemon.stage("").await, Err(ProvisionError::Unavailable(_))));
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_disk_is_not_mounted_is_unknown_and_not_empty() {
    let (daemon, handle) = staged().await;
    let fake = daemon.kill().await;
    fake.with_state(|state| state.folder_missing = true);
    let daemon = Daemon::start(fake);
    let refused = |fault: &ProvisionError| matches!(fault, ProvisionError::Unavailable(_));
    assert!(daemon.engine.delete(handle.clone()).await.is_err_and(|fault| refused(&fault)));
    let mut views = daemon.engine.subscribe();
    views
        .wait_for(|view| {
            view.records_error.as_ref().is_some_and(|why| why.contains("/pool is not there"))
        })
        .await
        .unwrap();
    assert!(daemon.engine.view().find(&handle).is_err_and(|fault| refused(&fault)));
    daemon.host.with_state(|state| state.folder_missing = false);
    daemon.wait_recovered().await;
    assert!(daemon.engine.view().find(&handle).unwrap().provided.staged.is_some());
}

#[tokio::test]
async fn a_volume_of_a_group_that_cannot_be_listed_is_unknown_and_not_gone() {
    let daemon = Daemon::ready(fake_host()).await;
    let handle = daemon
        .engine
        .create(CreateRequest { kind: Some(BackingKind::Lvm), ..create_request("l") })
        .await
        .unwrap()
        .provided
        .handle;
    daemon.stage(&handle).await.unwrap();
    let fake = daemon.kill().await;
    fake.with_state(|state| state.group_broken = true);
    let daemon = Daemon::ready(fake).await;
    assert!(matches!(
        daemon.engine.delete(handle.clone()).await,
        Err(ProvisionError::Unavailable(_))
    ));
    assert!(matches!(daemon.stage(&handle).await, Err(ProvisionError::Unavailable(_))));
    assert!(daemon.create("loop").await.is_ok(), "the folder has nothing to do with it");
    let fake = daemon.kill().await;
    fake.with_state(|state| state.group_broken = false);
    let daemon = Daemon::ready(fake).await;
    assert!(daemon.engine.view().find(&handle).unwrap().provided.staged.is_some());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_left_alone_and_its_name_is_not_given_again() {
    let (daemon, handle) = staged().await;
    let fake = daemon.kill().await;
    let path = format!("/pool/volumes/{handle}.json");
    let newer = fake.with_state(|state| {
        let newer = state.records[&path].replace("\"version\": 1", "\"version\": 9");
        state.records.insert(path.clone(), newer.clone());
        newer
    });
    let daemon = Daemon::ready(fake).await;
    let problem = daemon.engine.view().find(&handle).unwrap().provided.error.clone();
    assert!(problem.is_some_and(|why| why.contains("newer program")));
    assert!(matches!(daemon.create("pvc-1").await, Err(ProvisionError::AlreadyExists(_))));
    for answer in [
        daemon.stage(&handle).await,
        daemon.unstage(&handle).await,
        daemon.engine.delete(handle.clone()).await,
    ] {
        assert!(matches!(answer, Err(ProvisionError::FailedPrecondition(_))), "{answer:?}");
    }
    daemon.host.with_state(|state| {
        assert_eq!((state.records[&path].as_str(), state.images.len()), (newer.as_str(), 1))
    });
}

#[tokio::test]
async fn a_hundred_volumes_are_staged_and_published_at_once() {
    let daemon = Arc::new(Daemon::ready(fake_host()).await);
    let all = (0..100).map(|number| {
        let daemon = daemon.clone();
        tokio::spawn(async move {
            let handle = daemon.create(&format!("pvc-{number}")).await.unwrap();
            let staging_path = staging(number);
            daemon
                .engine
                .stage(StageRequest {
                    handle: handle.clone(),
                    staging_path: staging_path.clone(),
                    access: writer(),
                })
                .await
                .unwrap();
            let request = PublishRequest {
                staging_path: Some(staging_path),
                ..publish_request(&handle, &number.to_string())
            };
            daemon.engine.publish(request).await.unwrap();
        })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    daemon
        .host
        .with_state(|state| assert_eq!((state.mounts.len(), state.images.len()), (200, 100)));
    assert_eq!(daemon.engine.view().volumes.len(), 102);
}

#[tokio::test]
async fn two_operations_on_one_volume_are_not_done_at_once() {
    let (daemon, handle) = staged().await;
    let (one, other) = tokio::join!(daemon.publish(&handle, "a"), daemon.grow(&handle, 2 << 20));
    assert!(
        one.is_ok()
            && matches!(&other, Err(ProvisionError::Aborted(why)) if why.contains("publishing")),
        "{one:?} {other:?}"
    );
}
