//! The whole life of volumes, of each kind, and what is told of it.

use super::fake::{DiskContent, FakeHost, HostState, Image};
use super::*;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::provision::ProvisionState;

/// Others than those of static volumes, which stay: their devices were here.
pub fn has_other_records(state: &HostState) -> bool {
    let of_static = ["/pool/formats/fast.json", "/pool/formats/scratch.json"];
    state.records.keys().any(|path| !of_static.contains(&path.as_str()))
}

pub fn fake_host() -> FakeHost {
    let fake = FakeHost::new();
    fake.with_state(|state| {
        let fast = Image {
            device: Some(("sdb".into(), false)),
            identity: Some("wwid naa.5000".into()),
            ..Image::blank(1 << 30)
        };
        state.devices.insert("/dev/disk/by-id/fast".into(), fast);
        state.folders.insert("/srv/scratch".into());
    });
    fake
}

/// Nothing of the pool's is left, anywhere.
pub fn assert_clean(fake: &FakeHost) {
    fake.with_state(|state| {
        assert!(state.mounts.is_empty(), "{:?}", state.mounts);
        assert!(
            state.images.is_empty() && state.logical.is_empty(),
            "{:?} {:?}",
            state.images,
            state.logical
        );
        assert!(!has_other_records(state), "{:?}", state.records);
        assert!(state.targets.iter().all(|path| path == STAGING), "{:?}", state.targets);
    });
}

fn last_inventory(daemon: &mut Daemon) -> ProvisionState {
    let mut last = None;
    while let Ok(report) = daemon.updates.try_recv() {
        if let SourceUpdate::Provision(Observation::Ok { value, .. }) = report {
            last = Some(value);
        }
    }
    last.expect("something was told")
}

#[tokio::test]
async fn a_deleted_volume_leaves_nothing_behind() {
    let mut daemon = Daemon::ready(fake_host()).await;
    let handle = daemon.create("pvc-1").await.unwrap();
    assert_eq!(daemon.create("pvc-1").await.unwrap(), handle, "the same name is the same volume");
    for _ in 0..3 {
        daemon.stage(&handle).await.unwrap();
    }
    for _ in 0..3 {
        daemon.publish(&handle, "a").await.unwrap();
    }
    let provision = last_inventory(&mut daemon);
    let volume = provision.volumes.iter().find(|volume| volume.handle == handle).unwrap();
    assert_eq!(
        (volume.kind, volume.size, volume.device.as_deref()),
        (BackingKind::Loop, 1 << 20, Some("loop1"))
    );
    assert_eq!(volume.staged.as_ref().unwrap().path.to_string(), STAGING);
    assert_eq!(volume.published[0].pod.as_ref().unwrap().name, "a");
    assert_eq!(provision.driver, "csi.diskvitals.io");
    daemon.host.with_state(|state| assert_eq!(state.mounts[&target("a")].source, "loop1"));
    let grown = daemon.grow(&handle, 2 << 20).await.unwrap();
    assert_eq!(
        grown,
        crate::engine::request::ExpandResponse { size: 2 << 20, node_expansion_required: false }
    );
    for _ in 0..2 {
        daemon.unpublish(&handle, "a").await.unwrap();
    }
    for _ in 0..2 {
        daemon.unstage(&handle).await.unwrap();
    }
    for _ in 0..2 {
        daemon.engine.delete(handle.clone()).await.unwrap();
    }
    assert_clean(&daemon.host);
    assert!(last_inventory(&mut daemon).volumes.iter().all(|volume| volume.handle != handle));
}

#[tokio::test]
async fn a_logical_volume_is_restored_from_its_tags() {
    let daemon = Daemon::ready(fake_host()).await;
    let handle = daemon
        .engine
        .create(CreateRequest { kind: Some(BackingKind::Lvm), ..create_request("pvc-l") })
        .await
        .unwrap()
        .provided
        .handle;
    daemon.stage(&handle).await.unwrap();
    daemon.publish(&handle, "a").await.unwrap();
    let daemon = Daemon::ready(daemon.kill().await).await;
    let view = daemon.engine.view();
    let seen = view.find(&handle).unwrap();
    assert_eq!((seen.name.as_str(), seen.provided.published.len()), ("pvc-l", 1));
    daemon.grow(&handle, 8 << 20).await.unwrap();
    daemon.unpublish(&handle, "a").await.unwrap();
    daemon.unstage(&handle).await.unwrap();
    daemon.engine.delete(handle).await.unwrap();
    assert_clean(&daemon.host);
}

#[tokio::test]
async fn without_a_named_folder_volumes_are_made_in_the_group_and_what_is_there_stays_what_it_is() {
    let daemon = Daemon::ready(fake_host()).await;
    let before = daemon.engine.create(create_request("pvc-1")).await.unwrap().provided;
    assert_eq!(before.kind, BackingKind::Loop);
    daemon.settings.send_replace(Arc::new(Settings { directory_configured: false, ..settings() }));
    assert_eq!(
        daemon.engine.create(create_request("pvc-2")).await.unwrap().provided.kind,
        BackingKind::Lvm
    );
    assert_eq!(
        daemon.engine.create(create_request("pvc-1")).await.unwrap().provided.handle,
        before.handle,
        "asked for again"
    );
    let asked = CreateRequest { kind: Some(BackingKind::Lvm), ..create_request("pvc-1") };
    assert!(
        matches!(daemon.engine.create(asked).await, Err(ProvisionError::AlreadyExists(_))),
        "of another kind than was asked for"
    );
    daemon.engine.rescan().await;
    assert_eq!(
        daemon.engine.view().capacities.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        [BackingKind::Lvm, BackingKind::Loop]
    );
}

#[tokio::test]
async fn a_block_volume_is_bound_as_a_device_and_never_formatted() {
    let daemon = Daemon::ready(fake_host()).await;
    let block = VolumeAccess { block: true, ..writer() };
    let handle = daemon
        .engine
        .create(CreateRequest { accesses: vec![block.clone()], ..create_request("b") })
        .await
        .unwrap()
        .provided
        .handle;
    daemon
        .engine
        .stage(StageRequest {
            handle: handle.clone(),
            staging_path: BLOCK_STAGING.into(),
            access: block.clone(),
        })
        .await
        .unwrap();
    daemon
        .engine
        .publish(PublishRequest {
            access: block,
            staging_path: Some(BLOCK_STAGING.into()),
            target_path: block_target("a"),
            ..publish_request(&handle, "a")
        })
        .await
        .unwrap();
    daemon.host.with_state(|state| {
        assert!(state.mounts[&block_target("a")].block);
        assert!(state.images.values().all(|image| image.content == DiskContent::Blank));
    });
    let daemon = Daemon::ready(daemon.kill().await).await;
    assert_eq!(daemon.engine.view().find(&handle).unwrap().provided.published.len(), 1);
    daemon.engine.unpublish(handle.clone(), block_target("a")).await.unwrap();
    daemon.engine.unstage(handle.clone(), BLOCK_STAGING.into()).await.unwrap();
    daemon.engine.delete(handle).await.unwrap();
    assert_clean(&daemon.host);
}

#[tokio::test]
async fn a_restart_finds_everything_and_a_reboot_drops_what_is_no_longer_mounted() {
    let daemon = Daemon::ready(fake_host()).await;
    let handle = daemon.create("pvc-1").await.unwrap();
    daemon.stage(&handle).await.unwrap();
    daemon.publish(&handle, "a").await.unwrap();
    let daemon = Daemon::ready(daemon.kill().await).await;
    let provided = daemon.engine.view().find(&handle).unwrap().provided.clone();
    assert!(
        provided.staged.is_some() && provided.published.len() == 1 && provided.device.is_some()
    );
    assert!(
        matches!(daemon.publish(&handle, "b").await, Err(ProvisionError::FailedPrecondition(why)) if why.contains("shop/a"))
    );
    let fake = daemon.kill().await;
    fake.with_state(|state| {
        state.mounts.clear();
        state.images.values_mut().for_each(|image| image.device = None);
    });
    let daemon = Daemon::ready(fake).await;
    let provided = daemon.engine.view().find(&handle).unwrap().provided.clone();
    assert!(provided.staged.is_none() && provided.published.is_empty(), "{provided:?}");
    daemon.stage(&handle).await.unwrap();
    daemon.publish(&handle, "b").await.unwrap();
    daemon.host.with_state(|state| {
        assert!(
            state
                .images
                .values()
                .all(|image| image.content == DiskContent::Filesystem("ext4".into()))
        )
    });
}

#[tokio::test]
async fn static_volumes_are_listed_used_and_never_deleted() {
    let daemon = Daemon::ready(fake_host()).await;
    for (handle, pod) in [("fast", "a"), ("scratch", "b")] {
        daemon.stage(handle).await.unwrap();
        daemon.publish(handle, pod).await.unwrap();
        assert!(matches!(
            daemon.engine.delete(handle.into()).await,
            Err(ProvisionError::FailedPrecondition(_))
        ));
    }
    let daemon = Daemon::ready(daemon.kill().await).await;
    for (handle, pod) in [("fast", "a"), ("scratch", "b")] {
        assert_eq!(
            daemon.engine.view().find(handle).unwrap().provided.published.len(),
            1,
            "{handle}"
        );
        daemon.unpublish(handle, pod).await.unwrap();
        daemon.unstage(handle).await.unwrap();
        assert!(matches!(
            daemon.engine.delete(handle.into()).await,
            Err(ProvisionError::FailedPrecondition(_))
        ));
    }
    assert_clean(&daemon.host);
    daemon.host.with_state(|state| {
        assert_eq!(
            state.devices["/dev/disk/by-id/fast"].content,
            DiskContent::Filesystem("ext4".into())
        )
    });
}

#[tokio::test]
async fn a_static_volume_that_left_the_configuration_stays_until_nobody_uses_it() {
    let daemon = Daemon::ready(fake_host()).await;
    daemon.stage("fast").await.unwrap();
    daemon.publish("fast", "a").await.unwrap();
    daemon.settings.send_replace(Arc::new(Settings { static_volumes: Vec::new(), ..settings() }));
    let mut views = daemon.engine.subscribe();
    views.wait_for(|view| !view.volumes.contains_key("scratch")).await.unwrap();
    assert!(daemon.engine.view().find("fast").is_ok());
    daemon.unpublish("fast", "a").await.unwrap();
    daemon.unstage("fast").await.unwrap();
    assert!(matches!(daemon.engine.view().find("fast"), Err(ProvisionError::NotFound(_))));
}

#[tokio::test]
async fn several_writers_on_one_node_share_a_volume_that_allows_it() {
    let daemon = Daemon::ready(fake_host()).await;
    let handle = daemon.create("rwo").await.unwrap();
    let shared = access(AccessMode::SingleNodeMultiWriter);
    let stage = StageRequest {
        handle: handle.clone(),
        staging_path: STAGING.into(),
        access: shared.clone(),
    };
    daemon.engine.stage(stage).await.unwrap();
    for pod in ["a", "b"] {
        daemon
            .engine
            .publish(PublishRequest { access: shared.clone(), ..publish_request(&handle, pod) })
            .await
            .unwrap();
    }
    daemon
        .engine
        .publish(PublishRequest {
            access: shared,
            read_only: true,
            ..publish_request(&handle, "c")
        })
        .await
        .unwrap();
    daemon.host.with_state(|state| {
        assert!(state.mounts[&target("c")].read_only && !state.mounts[&target("b")].read_only)
    });
}

#[tokio::test]
async fn without_a_staging_path_the_volume_is_made_ready_at_its_target() {
    let daemon = Daemon::ready(fake_host()).await;
    let handle = daemon.create("direct").await.unwrap();
    daemon
        .engine
        .publish(PublishRequest { staging_path: None, ..publish_request(&handle, "a") })
        .await
        .unwrap();
    daemon.host.with_state(|state| assert_eq!(state.mounts.len(), 1));
    daemon.unpublish(&handle, "a").await.unwrap();
    daemon.engine.delete(handle).await.unwrap();
    assert_clean(&daemon.host);
}

#[tokio::test]
async fn a_mount_removed_by_somebody_else_is_restored_by_the_next_request() {
    let daemon = Daemon::ready(fake_host()).await;
    let handle = daemon.create("pvc-1").await.unwrap();
    daemon.stage(&handle).await.unwrap();
    daemon.publish(&handle, "a").await.unwrap();
    daemon.host.with_state(|state| state.mounts.remove(&target("a")));
    daemon.publish(&handle, "a").await.unwrap();
    daemon.host.with_state(|state| assert!(state.mounts.contains_key(&target("a"))));
    daemon.host.with_state(|state| state.mounts.clear());
    daemon.engine.rescan().await;
    assert!(daemon.engine.view().find(&handle).unwrap().provided.staged.is_none());
    daemon.engine.delete(handle).await.unwrap();
}
