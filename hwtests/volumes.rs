//! Volumes on loop devices: their state when all is well, and when a mount vanishes, the kernel
//! makes them read-only, or they fill up.

use diskvitals_wire::*;
use nix::mount::MsFlags;

use crate::support::client::{assert_evidence, assert_finding};
use crate::support::testbed::Claim;
use crate::support::tools::{bind, mount_device, remount, run, statvfs, umount};
use crate::support::{Daemon, SOON, Testbed, eventually};

const EXT4: Claim = Claim {
    driver: "ext4.csi.example.com",
    handle: "vol-e",
    pv: "pvc-e",
    pod: "0e000000-0000-4000-8000-000000000001",
};
const XFS: Claim = Claim {
    driver: "xfs.csi.example.com",
    handle: "data/vol x",
    pv: "pvc-x",
    pod: "0e000000-0000-4000-8000-000000000002",
};
const BTRFS: Claim = Claim {
    driver: "btrfs.csi.example.com",
    handle: "vol-b",
    pv: "pvc-b",
    pod: "0e000000-0000-4000-8000-000000000003",
};
const BTRFS_ID: &str = "csi:btrfs.csi.example.com/vol-b";
const EXT4_ID: &str = "csi:ext4.csi.example.com/vol-e";
const XFS_ID: &str = "csi:xfs.csi.example.com/data/vol_x20x";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_of_two_drivers_are_listed_with_mounts_usage_drives_and_pods() {
    let testbed = Testbed::new();
    let ext4 = testbed.ext4("e.img", 64, &[]);
    let xfs = testbed.xfs("x.img");
    let raw = testbed.attach(&testbed.image("raw.img", 96 << 20));
    let (ext4_staging, ext4_pod) = testbed.stage_and_publish(&ext4, "ext4", "", &EXT4);
    testbed.stage_and_publish(&xfs, "xfs", "", &XFS);
    let publish =
        testbed.kubelet.publish_block("ext4.csi.example.com", "vol-raw", "pvc-raw", EXT4.pod);
    bind(&raw.device, &publish);
    testbed.pod_logs("database-0", EXT4.pod);
    std::fs::write(ext4_pod.join("file"), vec![1; 3 << 20]).expect("some data");
    run("/usr/bin/sync", &[&"-f", &ext4_pod]);

    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    let volume = client.normal(EXT4_ID).await;
    assert_eq!(client.volume_of(EXT4.driver, EXT4.handle).await.id, EXT4_ID);
    assert_eq!(
        (volume.driver.as_str(), volume.handle.as_str(), volume.pv.as_str()),
        (EXT4.driver, EXT4.handle, EXT4.pv)
    );
    assert_eq!(
        (volume.csi_status(), volume.usage_status()),
        (CsiStatus::Published, UsageStatus::InUse)
    );
    assert_eq!(volume.device, ext4.name());
    assert_eq!(volume.filesystem.as_ref().expect("a filesystem").r#type, "ext4");
    assert!(volume.missing_mounts.is_empty(), "{volume:#?}");
    let mut mounts: Vec<_> = volume
        .mounts
        .iter()
        .map(|mount| (mount.role(), mount.path.clone(), mount.pod_uid.clone()))
        .collect();
    mounts.sort();
    assert_eq!(
        mounts,
        [
            (MountRole::Staging, ext4_staging.display().to_string(), String::new()),
            (MountRole::Pod, ext4_pod.display().to_string(), EXT4.pod.to_owned())
        ]
    );
    let [pod] = volume.pods.as_slice() else { panic!("one pod: {volume:#?}") };
    assert_eq!(
        (pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str()),
        ("dvhw", "database-0", EXT4.pod)
    );

    let drive = client.drive_named(ext4.name()).await;
    assert_eq!(volume.drive_ids, std::slice::from_ref(&drive.id));
    assert_eq!(
        (drive.transport(), drive.kind(), drive.size_bytes),
        (Transport::Loop, DriveKind::Virtual, 64 << 20)
    );
    assert_eq!(drive.volume_ids, [EXT4_ID]);

    let stat = statvfs(&ext4_pod);
    let (usage, capacity) = (volume.usage.expect("usage"), volume.capacity.expect("capacity"));
    let unit = stat.fragment_size();
    assert_eq!((capacity.total_bytes, capacity.total_inodes), (stat.blocks() * unit, stat.files()));
    assert_eq!(
        (usage.used_bytes, usage.available_bytes),
        ((stat.blocks() - stat.blocks_free()) * unit, stat.blocks_available() * unit)
    );
    assert_eq!(
        (usage.used_inodes, usage.available_inodes),
        (stat.files() - stat.files_free(), stat.files_available())
    );
    assert!(usage.stale_since.is_none());

    let volume = client.normal(XFS_ID).await;
    assert_eq!(volume.filesystem.expect("a filesystem").r#type, "xfs");
    assert_eq!(volume.pods[0].name, "", "no log directory has its name");
    assert_eq!(volume.capacity.expect("capacity").total_bytes, {
        let stat = statvfs(
            &testbed
                .kubelet
                .root()
                .join("pods")
                .join(XFS.pod)
                .join("volumes/kubernetes.io~csi")
                .join(XFS.pv)
                .join("mount"),
        );
        stat.blocks() * stat.fragment_size()
    });

    let volume = client.normal("csi:ext4.csi.example.com/vol-raw").await;
    assert!(volume.block && volume.usage.is_none(), "{volume:#?}");
    assert_eq!(volume.capacity.as_ref().expect("capacity").total_bytes, 96 << 20);
    assert_eq!(volume.drive_ids, [client.drive_named(raw.name()).await.id]);
    monitor.finish().await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_mount_is_not_mounted_until_it_is_back() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &[]);
    let (staging, pod) = testbed.stage_and_publish(&disk, "ext4", "", &EXT4);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(EXT4_ID).await;

    umount(&pod);
    let not_mounted = client.raised(EXT4_ID, "NotMounted", SOON).await;
    assert_finding(&not_mounted, Severity::Bad, FindingStatus::Inaccessible);
    assert_evidence(&not_mounted, "vol_data.json", pod.to_str().expect("text"));
    let volume = client.volume(EXT4_ID).await;
    assert!(volume.condition.as_ref().expect("a condition").abnormal, "{volume:#?}");
    assert_eq!(volume.missing_mounts[0].path, pod.to_str().expect("text"));
    assert_eq!(volume.health(), Health::Bad);

    umount(&staging);
    let not_staged = client.raised(EXT4_ID, "StagingNotMounted", SOON).await;
    assert_finding(&not_staged, Severity::Bad, FindingStatus::Inaccessible);
    assert_evidence(&not_staged, "vol_data.json", staging.to_str().expect("text"));
    assert!(
        client.volume(EXT4_ID).await.usage.is_none_or(|usage| usage.stale_since.is_some()),
        "a folder of the root filesystem was measured"
    );

    mount_device(&disk.device, "ext4", &staging, "");
    assert!(client.cleared(&not_staged.id, SOON).await.cleared.is_some());
    assert_eq!(client.finding(EXT4_ID, "NotMounted").await.expect("still so").id, not_mounted.id);
    bind(&staging, &pod);
    client.cleared(&not_mounted.id, SOON).await;
    let volume = client.normal(EXT4_ID).await;
    assert_eq!(volume.mounts.len(), 2);
    monitor.finish().await;
    daemon.stop().await;
}

/// ext4 after an error keeps `rw` in both option lists and adds `emergency_ro` (since 6.14; `ro`
/// before), and no mountinfo event reports it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_remount_by_the_kernel_is_a_finding_and_one_by_the_admin_is_not() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &[]);
    let (staging, pod) = testbed.stage_and_publish(&disk, "ext4", "errors=remount-ro", &EXT4);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(EXT4_ID).await;

    remount(&staging, MsFlags::MS_RDONLY);
    eventually("the admin's ro is listed", SOON, async || {
        client
            .volume(EXT4_ID)
            .await
            .mounts
            .iter()
            .any(|mount| mount.super_options.iter().any(|option| option == "ro"))
            .then_some(())
    })
    .await;
    client.probed_anew(&[EXT4_ID]).await;
    assert_eq!(client.finding(EXT4_ID, "ReadOnly").await, None, "the admin has done this");
    remount(&staging, MsFlags::empty());
    client.normal(EXT4_ID).await;

    std::fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", disk.name()), "by a test")
        .expect("ext4 has an error");
    assert_eq!(
        std::fs::write(pod.join("x"), b"").expect_err("read-only").raw_os_error(),
        Some(nix::libc::EROFS)
    );
    let finding = client.read_only(EXT4_ID).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Degraded);
    assert_evidence(&finding, "mountinfo", disk.name());
    assert!(client.volume(EXT4_ID).await.condition.expect("a condition").abnormal);

    // The remedy: unmount, check, mount again.
    umount(&pod);
    umount(&staging);
    run("/usr/sbin/fsck.ext4", &[&"-p", &disk.device]);
    mount_device(&disk.device, "ext4", &staging, "errors=remount-ro");
    bind(&staging, &pod);
    client.cleared(&finding.id, SOON).await;
    client.normal(EXT4_ID).await;
    monitor.finish().await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xfs_that_has_shut_down_is_not_accessible() {
    let testbed = Testbed::new();
    let disk = testbed.xfs("x.img");
    let (staging, pod) = testbed.stage_and_publish(&disk, "xfs", "", &XFS);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(XFS_ID).await;

    run("/usr/sbin/xfs_io", &[&"-x", &"-c", &"shutdown", &staging]);
    let finding = client.raised(XFS_ID, "NotAccessible", SOON).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Inaccessible);
    assert_evidence(&finding, "", "EIO");
    assert!(client.volume(XFS_ID).await.condition.expect("a condition").abnormal);

    umount(&pod);
    umount(&staging);
    mount_device(&disk.device, "xfs", &staging, "");
    bind(&staging, &pod);
    client.cleared(&finding.id, SOON).await;
    client.normal(XFS_ID).await;
    monitor.finish().await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_volume_is_out_of_space_until_something_is_deleted() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 48, &[]);
    let (_, pod) = testbed.stage_and_publish(&disk, "ext4", "", &EXT4);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(EXT4_ID).await;

    let stat = statvfs(&pod);
    // All that an unprivileged user may have, except 1 MiB.
    let file = std::fs::File::create(pod.join("fill")).expect("the file");
    let bytes = (stat.blocks_available() * stat.fragment_size()).saturating_sub(1 << 20);
    nix::fcntl::fallocate(
        &file,
        nix::fcntl::FallocateFlags::empty(),
        0,
        i64::try_from(bytes).expect("a small disk"),
    )
    .expect("fills");
    drop(file);
    let finding = client.raised(EXT4_ID, "OutOfSpace", SOON).await;
    assert_finding(&finding, Severity::Suspect, FindingStatus::Degraded);
    assert_evidence(&finding, "statfs", "");
    assert_eq!(client.finding(EXT4_ID, "OutOfInodes").await, None);

    std::fs::remove_file(pod.join("fill")).expect("deletes");
    client.cleared(&finding.id, SOON).await;
    client.normal(EXT4_ID).await;
    monitor.finish().await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_without_inodes_is_out_of_inodes_until_files_are_deleted() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 48, &["-N", "64"]);
    let (_, pod) = testbed.stage_and_publish(&disk, "ext4", "", &EXT4);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(EXT4_ID).await;

    std::fs::create_dir(pod.join("many")).expect("a folder");
    let made = (0..1000)
        .take_while(|number| std::fs::write(pod.join(format!("many/{number}")), b"").is_ok())
        .count();
    assert!(made < 1000, "the inodes end");
    let finding = client.raised(EXT4_ID, "OutOfInodes", SOON).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Degraded);
    assert_evidence(&finding, "statfs", "");
    assert_eq!(client.finding(EXT4_ID, "OutOfSpace").await, None);

    std::fs::remove_dir_all(pod.join("many")).expect("deletes");
    client.cleared(&finding.id, SOON).await;
    client.normal(EXT4_ID).await;
    monitor.finish().await;
    daemon.stop().await;
}

/// A loop device's identity is its backing file; the kernel name is an attribute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_unused_drive_is_missing_with_severity_info_and_recognized_under_another_name() {
    let testbed = Testbed::new();
    let image = testbed.image("spare.img", 32 << 20);
    let disk = testbed.attach(&image);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    let drive = client.drive_named(disk.name()).await;
    assert_eq!((drive.presence(), drive.health()), (Presence::Present, Health::Good));

    disk.detach();
    let finding = client.raised(&drive.id, "DriveMissing", SOON).await;
    assert_finding(&finding, Severity::Info, FindingStatus::Information);
    let missing = client.drive(&drive.id).await.expect("still known");
    assert_eq!(missing.presence(), Presence::Missing);
    assert!(missing.missing_since.is_some());
    assert_eq!(missing.health(), Health::Good, "nothing stood on it: no loss");

    // Takes the number that the drive had.
    let other = testbed.image("other.img", 16 << 20);
    run("/usr/sbin/losetup", &[&disk.device, &other]);
    let back = testbed.attach(&image);
    assert_ne!(back.device, disk.device);
    client.cleared(&finding.id, SOON).await;
    let returned = client.drive(&drive.id).await.expect("known");
    assert_eq!((returned.presence(), returned.name.as_str()), (Presence::Present, back.name()));
    assert_eq!(returned.first_seen, drive.first_seen);
    assert_ne!(client.drive_named(disk.name()).await.id, drive.id);
    monitor.finish().await;
    daemon.stop().await;
}

/// Writes files of random content until nothing fits: how many, and the error.
fn fill(folder: &std::path::Path, bytes: usize, most: usize) -> usize {
    std::fs::create_dir(folder).expect("the folder");
    let content: Vec<u8> = (0..bytes).map(|at| ((at * 7919) >> 3) as u8).collect();
    for made in 0..most {
        if let Err(error) = std::fs::write(folder.join(made.to_string()), &content) {
            assert_eq!(error.raw_os_error(), Some(nix::libc::ENOSPC), "{error}");
            return made;
        }
    }
    panic!("{most} files of {bytes} bytes fit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_btrfs_whose_metadata_is_full_is_bad_while_statfs_shows_space() {
    let testbed = Testbed::new();
    let disk = testbed.attach(&testbed.image("m.img", 1500 << 20));
    run("/usr/sbin/mkfs.btrfs", &[&"-q", &"-f", &disk.device]);
    let (_, at) = testbed.stage_and_publish(&disk, "btrfs", "", &BTRFS);
    let daemon = Daemon::start(&testbed).await;
    daemon.client.normal(BTRFS_ID).await;

    // All space becomes data chunks; half of it is free again; the rest of the metadata is filled.
    let made = fill(&at.join("large"), 2_000_000, 900);
    run("/usr/bin/sync", &[&"-f", &at]);
    for number in (0..made).step_by(2) {
        std::fs::remove_file(at.join(format!("large/{number}"))).expect("deletes");
    }
    run("/usr/bin/sync", &[&"-f", &at]);
    fill(&at.join("small"), 1900, 400_000);
    run("/usr/bin/sync", &[&"-f", &at]);

    let space = statvfs(&at);
    assert!(space.blocks_available() * 3 > space.blocks(), "{space:?}");
    let found = daemon.client.raised(BTRFS_ID, "OutOfSpace", SOON).await;
    assert_eq!(found.severity(), Severity::Bad, "{found:#?}");
    assert!(found.message.contains("left for metadata"), "{found:#?}");

    std::fs::remove_dir_all(at.join("small")).expect("deletes");
    run("/usr/bin/sync", &[&"-f", &at]);
    daemon.client.cleared(&found.id, SOON).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_btrfs_mirror_of_a_small_and_a_large_device_is_full_when_the_small_one_is() {
    let testbed = Testbed::new();
    let small = testbed.attach(&testbed.image("small.img", 512 << 20));
    let large = testbed.attach(&testbed.image("large.img", 2 << 30));
    run(
        "/usr/sbin/mkfs.btrfs",
        &[&"-q", &"-f", &"-d", &"raid1", &"-m", &"raid1", &small.device, &large.device],
    );
    let (_, at) = testbed.stage_and_publish(&small, "btrfs", "", &BTRFS);
    let daemon = Daemon::start(&testbed).await;
    daemon.client.normal(BTRFS_ID).await;
    fill(&at.join("large"), 2_000_000, 900);
    run("/usr/bin/sync", &[&"-f", &at]);
    let found = daemon.client.raised(BTRFS_ID, "OutOfSpace", SOON).await;
    assert_eq!(found.severity(), Severity::Bad, "{found:#?}");
    daemon.stop().await;
}

/// The kernel has a member by the name that mkfs gave it, of which udev knows nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_btrfs_that_is_mounted_by_a_link_that_is_gone_is_on_its_devices() {
    let testbed = Testbed::new();
    let disks = ["a.img", "b.img"].map(|name| testbed.attach(&testbed.image(name, 300 << 20)));
    let links = disks.each_ref().map(|disk| format!("/dev/dvhw-link-{}", disk.name()));
    for (disk, link) in disks.iter().zip(&links) {
        std::os::unix::fs::symlink(&disk.device, link).expect("a link");
    }
    let mkfs: [&dyn AsRef<std::ffi::OsStr>; 8] =
        [&"-q", &"-f", &"-d", &"raid1", &"-m", &"raid1", &links[0], &links[1]];
    run("/usr/sbin/mkfs.btrfs", &mkfs);
    let staging = testbed.kubelet.stage(BTRFS.driver, BTRFS.handle);
    mount_device(links[0].as_ref(), "btrfs", &staging, "");
    for link in &links {
        std::fs::remove_file(link).expect("deletes");
    }
    bind(&staging, &testbed.kubelet.publish(BTRFS.driver, BTRFS.handle, BTRFS.pv, BTRFS.pod));

    let daemon = Daemon::start(&testbed).await;
    let volume = daemon.client.normal(BTRFS_ID).await;
    assert_eq!(volume.devices, disks.each_ref().map(|disk| disk.name().to_owned()), "{volume:#?}");
    assert_eq!(volume.drive_ids.len(), 2, "{volume:#?}");
    daemon.stop().await;
}
