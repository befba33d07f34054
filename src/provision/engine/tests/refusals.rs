//! Refused requests: their errors, and that they leave nothing.

use super::fake::{DiskContent, InjectedFault};
use super::lifecycle::{assert_clean, fake_host, has_other_records};
use super::*;
use crate::step::StepErrorKind;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Health, Subject};
use diskvitals_model::fixture::add_finding;

pub(super) async fn staged() -> (Daemon, String) {
    let daemon = Daemon::ready(fake_host()).await;
    let handle = daemon.create("pvc-1").await.unwrap();
    daemon.stage(&handle).await.unwrap();
    (daemon, handle)
}

#[tokio::test]
async fn a_second_path_of_a_single_writer_names_the_holder_and_the_same_path_with_other_arguments_exists()
 {
    let (daemon, handle) = staged().await;
    daemon.publish(&handle, "a").await.unwrap();
    assert!(
        matches!(daemon.publish(&handle, "b").await, Err(ProvisionError::FailedPrecondition(why)) if why.contains("pod shop/a"))
    );
    let other = PublishRequest { read_only: true, ..publish_request(&handle, "a") };
    assert!(matches!(daemon.engine.publish(other).await, Err(ProvisionError::AlreadyExists(_))));
    let mode = PublishRequest {
        access: access(AccessMode::SingleNodeMultiWriter),
        ..publish_request(&handle, "a")
    };
    assert!(matches!(daemon.engine.publish(mode).await, Err(ProvisionError::AlreadyExists(_))));
    let flags = PublishRequest {
        access: VolumeAccess { mount_flags: vec!["noatime".into()], ..writer() },
        ..publish_request(&handle, "a")
    };
    assert!(matches!(daemon.engine.publish(flags).await, Err(ProvisionError::AlreadyExists(_))));
}

#[tokio::test]
async fn staging_elsewhere_or_otherwise_is_refused() {
    let (daemon, handle) = staged().await;
    let stage = |path: &str, access| StageRequest {
        handle: handle.clone(),
        staging_path: path.into(),
        access,
    };
    assert!(
        matches!(daemon.engine.stage(stage(&staging(2), writer())).await, Err(ProvisionError::FailedPrecondition(why)) if why.contains(STAGING))
    );
    let block = VolumeAccess { block: true, ..writer() };
    assert!(matches!(
        daemon.engine.stage(stage(STAGING, block.clone())).await,
        Err(ProvisionError::AlreadyExists(_))
    ));
    let wrong = PublishRequest { access: block, ..publish_request(&handle, "a") };
    assert!(matches!(
        daemon.engine.publish(wrong).await,
        Err(ProvisionError::FailedPrecondition(_))
    ));
    let elsewhere =
        PublishRequest { staging_path: Some(staging(2)), ..publish_request(&handle, "a") };
    assert!(matches!(
        daemon.engine.publish(elsewhere).await,
        Err(ProvisionError::FailedPrecondition(_))
    ));
    let folder = StageRequest {
        handle: "scratch".into(),
        staging_path: STAGING.into(),
        access: VolumeAccess { block: true, ..writer() },
    };
    assert!(matches!(
        daemon.engine.stage(folder).await,
        Err(ProvisionError::InvalidArgument { field: "access.block", .. })
    ));
}

#[tokio::test]
async fn what_is_attached_is_not_deleted_and_what_is_published_is_not_unstaged() {
    let (daemon, handle) = staged().await;
    daemon.publish(&handle, "a").await.unwrap();
    assert!(
        matches!(daemon.unstage(&handle).await, Err(ProvisionError::FailedPrecondition(why)) if why.contains("shop/a"))
    );
    assert!(
        matches!(daemon.engine.delete(handle.clone()).await, Err(ProvisionError::FailedPrecondition(why)) if why.contains("shop/a"))
    );
    daemon.unpublish(&handle, "a").await.unwrap();
    assert!(
        matches!(daemon.engine.delete(handle.clone()).await, Err(ProvisionError::FailedPrecondition(why)) if why.contains(STAGING))
    );
}

#[tokio::test]
async fn only_a_blank_device_is_formatted() {
    for (on, asked, fine) in [
        (DiskContent::Blank, None, true),
        (DiskContent::Filesystem("ext4".into()), Some("ext4"), true),
        (DiskContent::Filesystem("xfs".into()), None, true),
        (DiskContent::Filesystem("xfs".into()), Some("ext4"), false),
        (DiskContent::Filesystem("vfat".into()), None, false),
        (DiskContent::Foreign, None, false),
        (DiskContent::InterruptedMkfs, Some("ext4"), false),
    ] {
        let fake = fake_host();
        fake.with_state(|state| {
            state.devices.get_mut("/dev/disk/by-id/fast").unwrap().content = on.clone()
        });
        let daemon = Daemon::ready(fake).await;
        let access = VolumeAccess { fs_type: asked.map(String::from), ..writer() };
        let staged = daemon
            .engine
            .stage(StageRequest { handle: "fast".into(), staging_path: STAGING.into(), access })
            .await;
        assert_eq!(staged.is_ok(), fine, "{on:?}: {staged:?}");
        if !fine {
            assert!(
                matches!(staged, Err(ProvisionError::FailedPrecondition(why)) if why.contains("contains"))
            );
            daemon.host.with_state(|state| {
                assert!(
                    state.mounts.is_empty()
                        && !has_other_records(state)
                        && state.devices["/dev/disk/by-id/fast"].content == on
                )
            });
        }
    }
}

#[tokio::test]
async fn a_refused_mkfs_is_not_recorded_as_begun() {
    for refusal in [
        StepErrorKind::InUse,
        StepErrorKind::ForeignData,
        StepErrorKind::Unsupported,
        StepErrorKind::NotFound,
    ] {
        let daemon = Daemon::ready(fake_host()).await;
        daemon.host.inject_at_format(InjectedFault::Fail(refusal));
        assert!(daemon.stage("fast").await.is_err(), "{refusal:?}");
        daemon.host.with_state(|state| {
            assert!(
                state.executed.iter().all(|step| !step.starts_with("FormatAgain")),
                "{refusal:?}: {:?}",
                state.executed
            );
            assert!(!has_other_records(state), "{refusal:?}: {:?}", state.records);
        });
        daemon.stage("fast").await.unwrap();
    }
}

#[tokio::test]
async fn what_somebody_else_has_mounted_over_the_staging_path_is_not_published() {
    let (daemon, handle) = staged().await;
    let before = daemon.host.with_state(|state| {
        let staged = state.mounts.get_mut(STAGING).unwrap();
        std::mem::replace(&mut staged.source, "sdz1".into())
    });
    let refused = daemon.publish(&handle, "a").await;
    assert!(
        matches!(&refused, Err(ProvisionError::FailedPrecondition(why)) if why.contains("sdz1 is mounted at")),
        "{refused:?}"
    );
    daemon.host.with_state(|state| assert!(!state.mounts.contains_key(&target("a"))));
    daemon.host.with_state(|state| state.mounts.get_mut(STAGING).unwrap().source = before);
    daemon.publish(&handle, "a").await.unwrap();
}

#[tokio::test]
async fn an_invalid_request_names_its_field_and_leaves_nothing() {
    let daemon = Daemon::ready(fake_host()).await;
    let create = async |change: &dyn Fn(&mut CreateRequest)| {
        let mut request = create_request("bad");
        change(&mut request);
        daemon.engine.create(request).await.expect_err("refused")
    };
    assert!(matches!(
        create(&|request| request.name.clear()).await,
        ProvisionError::InvalidArgument { field: "name", .. }
    ));
    assert!(matches!(
        create(&|request| request.accesses.clear()).await,
        ProvisionError::InvalidArgument { field: "accesses", .. }
    ));
    assert!(matches!(
        create(&|request| request.mkfs_options = "-F".into()).await,
        ProvisionError::InvalidArgument { field: "mkfs_options", .. }
    ));
    assert!(matches!(
        create(&|request| request.accesses[0].mode = AccessMode::MultiNodeMultiWriter).await,
        ProvisionError::InvalidArgument { field: "access.mode", .. }
    ));
    assert!(matches!(
        create(&|request| request.accesses[0].fs_type = Some("ntfs".into())).await,
        ProvisionError::InvalidArgument { field: "access.fs_type", .. }
    ));
    assert!(matches!(
        create(&|request| request.accesses[0].mount_flags = vec!["bind".into()]).await,
        ProvisionError::InvalidArgument { field: "access.mount_flags", .. }
    ));
    assert!(matches!(
        create(&|request| request.range = CapacityRange { required: 2, limit: 1 }).await,
        ProvisionError::OutOfRange(_)
    ));
    assert!(matches!(
        create(&|request| request.range = CapacityRange { required: 1 << 63, limit: 0 }).await,
        ProvisionError::OutOfRange(_)
    ));
    assert!(matches!(
        create(&|request| request.range = CapacityRange { required: 1 << 50, limit: 0 }).await,
        ProvisionError::ResourceExhausted(_)
    ));
    assert!(matches!(
        create(&|request| request.kind = Some(BackingKind::StaticDevice)).await,
        ProvisionError::InvalidArgument { field: "kind", .. }
    ));
    for path in ["", "some/path", "/k/../etc", "/etc", "/k", "/k/link/x"] {
        let request =
            StageRequest { handle: "fast".into(), staging_path: path.into(), access: writer() };
        assert!(
            matches!(
                daemon.engine.stage(request).await,
                Err(ProvisionError::InvalidArgument { field: "staging_path", .. })
            ),
            "{path}"
        );
        let request = PublishRequest {
            target_path: path.into(),
            staging_path: None,
            ..publish_request("fast", "a")
        };
        assert!(
            matches!(
                daemon.engine.publish(request).await,
                Err(ProvisionError::InvalidArgument { field: "target_path", .. })
            ),
            "{path}"
        );
    }
    assert_clean(&daemon.host);
}

#[tokio::test]
async fn an_unknown_handle_is_not_found_and_deleting_it_succeeds() {
    let daemon = Daemon::ready(fake_host()).await;
    for handle in ["dv-nothing", "a/b", "../../etc", "a\0b", &"x".repeat(500), "/dev/sda"] {
        assert!(matches!(daemon.stage(handle).await, Err(ProvisionError::NotFound(_))));
        assert!(matches!(daemon.publish(handle, "a").await, Err(ProvisionError::NotFound(_))));
        assert!(matches!(daemon.unpublish(handle, "a").await, Err(ProvisionError::NotFound(_))));
        assert!(matches!(daemon.unstage(handle).await, Err(ProvisionError::NotFound(_))));
        assert!(matches!(daemon.grow(handle, 1).await, Err(ProvisionError::NotFound(_))));
        assert_eq!(daemon.engine.delete(handle.into()).await, Ok(()));
    }
    assert_clean(&daemon.host);
}

#[tokio::test]
async fn the_same_name_with_other_parameters_already_exists() {
    let daemon = Daemon::ready(fake_host()).await;
    daemon.create("pvc-1").await.unwrap();
    let mut others = [
        create_request("pvc-1"),
        create_request("pvc-1"),
        create_request("pvc-1"),
        create_request("pvc-1"),
    ];
    others[0].range = CapacityRange { required: 2 << 20, limit: 0 };
    others[1].kind = Some(BackingKind::Lvm);
    others[2].mkfs_options = "-m 0".into();
    others[3].accesses[0].block = true;
    for other in others {
        assert!(matches!(daemon.engine.create(other).await, Err(ProvisionError::AlreadyExists(_))));
    }
}

#[tokio::test]
async fn somebody_elses_mount_is_neither_covered_nor_unmounted() {
    let (daemon, handle) = staged().await;
    daemon.publish(&handle, "a").await.unwrap();
    let other = daemon.create("pvc-2").await.unwrap();
    assert!(matches!(
        daemon.unpublish(&other, "a").await,
        Err(ProvisionError::FailedPrecondition(_))
    ));
    assert!(matches!(
        daemon.engine.unpublish(handle.clone(), STAGING.into()).await,
        Err(ProvisionError::FailedPrecondition(_))
    ));
    assert!(matches!(
        daemon
            .engine
            .stage(StageRequest {
                handle: other.clone(),
                staging_path: target("a"),
                access: writer()
            })
            .await,
        Err(ProvisionError::AlreadyExists(_))
    ));
    assert!(matches!(
        daemon
            .engine
            .publish(PublishRequest { staging_path: None, ..publish_request(&other, "a") })
            .await,
        Err(ProvisionError::AlreadyExists(_))
    ));
    daemon.host.with_state(|state| assert_eq!(state.mounts.len(), 2));
    daemon
        .host
        .with_state(|state| assert!(state.records.keys().all(|path| !path.contains("intents"))));
}

#[tokio::test]
async fn a_mount_in_use_stays_and_its_user_is_named() {
    let (daemon, handle) = staged().await;
    daemon.publish(&handle, "a").await.unwrap();
    daemon.host.with_state(|state| state.in_use.insert(target("a")));
    assert!(
        matches!(daemon.unpublish(&handle, "a").await, Err(ProvisionError::InUse(why)) if why.contains("postgres"))
    );
    assert_eq!(daemon.engine.view().find(&handle).unwrap().provided.published.len(), 1);
    daemon.host.with_state(|state| state.in_use.clear());
    daemon.unpublish(&handle, "a").await.unwrap();
}

#[tokio::test]
async fn growing_keeps_to_its_range_and_its_path() {
    let (daemon, handle) = staged().await;
    let grow = async |required, limit, volume_path: Option<&str>, device_only| {
        let request = ExpandRequest {
            handle: handle.clone(),
            range: CapacityRange { required, limit },
            volume_path: volume_path.map(String::from),
            device_only,
        };
        daemon.engine.expand(request).await
    };
    assert!(matches!(
        grow(2 << 20, 0, Some("some/path"), false).await,
        Err(ProvisionError::NotFound(_))
    ));
    assert!(matches!(grow(1, 4096, None, false).await, Err(ProvisionError::OutOfRange(_))));
    assert!(matches!(
        grow(1 << 50, 0, None, false).await,
        Err(ProvisionError::ResourceExhausted(_))
    ));
    assert_eq!(
        grow(2 << 20, 2 << 20, Some(STAGING), true).await.unwrap(),
        crate::engine::request::ExpandResponse { size: 2 << 20, node_expansion_required: true }
    );
    assert_eq!(
        grow(2 << 20, 0, Some(STAGING), false).await.unwrap(),
        crate::engine::request::ExpandResponse { size: 2 << 20, node_expansion_required: false }
    );
    assert_eq!(grow(1, 0, None, false).await.unwrap().size, 2 << 20);
    let scratch = ExpandRequest {
        handle: "scratch".into(),
        range: CapacityRange { required: 1, limit: 0 },
        volume_path: None,
        device_only: false,
    };
    assert!(matches!(
        daemon.engine.expand(scratch).await,
        Err(ProvisionError::FailedPrecondition(_))
    ));
    assert!(matches!(daemon.grow("fast", 1 << 40).await, Err(ProvisionError::OutOfRange(_))));
}

#[tokio::test]
async fn a_cordoned_pool_makes_no_new_volume_and_still_serves_those_that_exist() {
    let daemon = Daemon::ready(fake_host()).await;
    let old = daemon.create("pvc-1").await.unwrap();
    daemon.snapshots.send_modify(|snapshot| {
        let snapshot = Arc::make_mut(snapshot);
        let drive = snapshot.drives.get_mut(&DriveId::new("A")).unwrap();
        Arc::make_mut(drive).health = Health::Bad;
        let subject = Subject::Drive(DriveId::new("A"));
        add_finding(snapshot, subject, Reason::SmartFailing);
    });
    match daemon.create("pvc-2").await {
        Err(ProvisionError::ResourceExhausted(why)) => assert!(
            why.contains("drive sda (Test Disk, serial A)") && why.contains("SmartFailing since"),
            "{why}"
        ),
        other => panic!("{other:?}"),
    }
    let in_group = CreateRequest { kind: Some(BackingKind::Lvm), ..create_request("pvc-3") };
    daemon.engine.create(in_group).await.expect("its volume group is on another drive");
    assert_eq!(daemon.create("pvc-1").await.unwrap(), old, "it exists already");
    daemon.stage(&old).await.unwrap();
    daemon.snapshots.send_replace(Arc::new(pool_snapshot()));
    daemon.create("pvc-2").await.expect("the finding has cleared");
}

#[tokio::test]
async fn no_volume_is_made_while_it_is_not_known_whether_the_pool_is_cordoned() {
    let daemon = Daemon::ready(fake_host()).await;
    daemon.snapshots.send_modify(|snapshot| {
        Arc::make_mut(snapshot).settled = false;
    });
    assert!(matches!(daemon.create("pvc-1").await, Err(ProvisionError::Unavailable(_))));
}
