//! The device or server below a volume dies or hangs: a FUSE server, a loop device over its file, a
//! device that shrinks to nothing. The assertions describe the behavior of Linux 6.18.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use diskvitals_wire::*;
use nix::libc;

use crate::support::client::{assert_evidence, assert_finding};
use crate::support::testbed::{Claim, Disk};
use crate::support::tools::{bind, mount_device, run, umount};
use crate::support::{Daemon, FuseServer, Mode, SOON, Testbed, eventually};

const VOLUME: Claim = Claim {
    driver: "f.csi.example.com",
    handle: "v",
    pv: "pvc-v",
    pod: "2e000000-0000-4000-8000-000000000001",
};
const ID: &str = "csi:f.csi.example.com/v";

/// A filesystem on a loop device over a file of our FUSE server.
fn on_a_server(testbed: &Testbed, image: &Path) -> (FuseServer, Disk) {
    let served = FuseServer::mount(&testbed.path("fuse"), image);
    let disk = testbed.attach(&served.file());
    (served, disk)
}

pub(crate) fn write_and_sync(file: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::create(file)?;
    file.write_all(&[1; 65536])?;
    file.sync_all()
}

/// Writes until the filesystem has noticed the failure: lost data is an error of the writer only,
/// and an aborted journal shows with the next write.
async fn until_write_fails(pod: &Path, errno: i32) {
    let mut number = 0;
    eventually("the filesystem gives up", SOON, async || {
        number += 1;
        let refused = write_and_sync(&pod.join(format!("f{number}")))
            .and_then(|()| std::fs::read_dir(pod)?.try_for_each(|entry| entry.map(drop)));
        (refused.err()?.raw_os_error() == Some(errno)).then_some(())
    })
    .await;
}

/// A journal that was aborted during an allocation refuses writes before ext4 shows it in its
/// options. The next operation that starts a handle sets them (fs/ext4/ext4_jbd2.c,
/// ext4_journal_check_start).
pub(crate) async fn until_options_are_read_only(pod: &Path) {
    let at = format!(" {} ", pod.display());
    let mut number = 0;
    eventually("the options are read-only", SOON, async || {
        number += 1;
        // It is refused, as intended.
        let _ = write_and_sync(&pod.join(format!("g{number}")));
        let table =
            String::from_utf8_lossy(&std::fs::read("/proc/self/mountinfo").expect("readable"))
                .into_owned();
        table.lines().any(|line| line.contains(&at) && line.contains("emergency_ro")).then_some(())
    })
    .await;
}

fn no_longer_there(served: FuseServer, testbed: &Testbed, disk: &Disk, mounts: [&PathBuf; 2]) {
    mounts.into_iter().for_each(|at| umount(at));
    disk.detach();
    drop(served);
    // The kernel closes the file a moment after the request to detach.
    run("/usr/bin/umount", &[&"--lazy", &testbed.path("fuse")]);
}

/// The first failed commit of the journal makes ext4 read-only (`emergency_ro`). Its directories
/// stay readable from the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ext4_whose_device_fails_is_read_only_and_its_drive_is_recognized_on_return() {
    let testbed = Testbed::new();
    let image = testbed.image("e.img", 64 << 20);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    let (staging, pod) = testbed.stage_and_publish(&disk, "ext4", "", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    let drive_ids = client.normal(ID).await.drive_ids;
    assert_eq!(drive_ids, [client.drive_named(disk.name()).await.id]);

    served.die();
    until_write_fails(&pod, libc::EROFS).await;
    until_options_are_read_only(&pod).await;
    let finding = client.read_only(ID).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Degraded);
    let volume = client.volume(ID).await;
    assert!(volume.condition.as_ref().expect("a condition").abnormal, "{volume:#?}");
    assert_eq!(
        client.drive(&drive_ids[0]).await.expect("known").presence(),
        Presence::Present,
        "the kernel still has it"
    );

    no_longer_there(served, &testbed, &disk, [&pod, &staging]);
    eventually("the drive is missing", SOON, async || {
        (client.drive(&drive_ids[0]).await.expect("still known").presence() == Presence::Missing)
            .then_some(())
    })
    .await;
    // The drive returns: another number, the same file.
    let other = testbed.image("other.img", 16 << 20);
    run("/usr/sbin/losetup", &[&disk.device, &other]);
    let (_served, back) = on_a_server(&testbed, &image);
    assert_ne!(back.device, disk.device);
    run("/usr/sbin/fsck.ext4", &[&"-p", &back.device]);
    mount_device(&back.device, "ext4", &staging, "");
    bind(&staging, &pod);
    client.cleared(&finding.id, SOON).await;
    let volume = client.normal(ID).await;
    assert_eq!((volume.drive_ids, volume.device.as_str()), (drive_ids.clone(), back.name()));
    let drive = client.drive(&drive_ids[0]).await.expect("known");
    assert_eq!((drive.presence(), drive.findings.len()), (Presence::Present, 0), "{drive:#?}");
    monitor.finish().await;
    daemon.stop().await;
}

/// XFS shuts down when its log cannot be written: statfs still answers, readdir does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xfs_whose_device_fails_is_not_accessible() {
    let testbed = Testbed::new();
    let image = testbed.image("x.img", 320 << 20);
    run("/usr/sbin/mkfs.xfs", &[&"-q", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    let (staging, pod) = testbed.stage_and_publish(&disk, "xfs", "", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(ID).await;

    served.die();
    eventually("XFS gives up", SOON, async || {
        // A failed write of file data is an error of the writer only; a failed write of the log
        // shuts the filesystem down.
        write_and_sync(&pod.join("f")).expect_err("the device fails");
        std::fs::read_dir(&pod)
            .and_then(|mut entries| entries.try_for_each(|entry| entry.map(drop)))
            .err()
    })
    .await;
    let finding = client.raised(ID, "NotAccessible", SOON).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Inaccessible);
    assert_evidence(&finding, "", "EIO");

    no_longer_there(served, &testbed, &disk, [&pod, &staging]);
    let (_served, back) = on_a_server(&testbed, &image);
    mount_device(&back.device, "xfs", &staging, "");
    bind(&staging, &pod);
    client.cleared(&finding.id, SOON).await;
    client.normal(ID).await;
    monitor.finish().await;
    daemon.stop().await;
}

/// Linux detaches no loop device below a mount; one that shrinks to nothing is the closest
/// equivalent. It still exists, and the first write that fails makes ext4 read-only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_shrinks_to_nothing_is_read_only_from_the_first_write() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &[]);
    let (staging, pod) = testbed.stage_and_publish(&disk, "ext4", "", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    let drive_id = client.normal(ID).await.drive_ids.remove(0);

    std::fs::File::options()
        .write(true)
        .open(&disk.image)
        .and_then(|file| file.set_len(0))
        .expect("shrinks");
    run("/usr/sbin/losetup", &[&"--set-capacity", &disk.device]);
    eventually("the drive has no size", SOON, async || {
        (client.drive(&drive_id).await.expect("known").size_bytes == 0).then_some(())
    })
    .await;
    until_write_fails(&pod, libc::EROFS).await;
    until_options_are_read_only(&pod).await;
    let finding = client.read_only(ID).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Degraded);

    umount(&pod);
    umount(&staging);
    std::fs::File::options()
        .write(true)
        .open(&disk.image)
        .and_then(|file| file.set_len(64 << 20))
        .expect("grows");
    run("/usr/sbin/losetup", &[&"--set-capacity", &disk.device]);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &disk.device]);
    mount_device(&disk.device, "ext4", &staging, "");
    bind(&staging, &pod);
    client.cleared(&finding.id, SOON).await;
    assert_eq!(client.normal(ID).await.drive_ids, [drive_id]);
    monitor.finish().await;
    daemon.stop().await;
}

/// `losetup -d` on a mounted device waits for the unmount. The drive then disappears together with
/// its mounts, while the kubelet's records still require them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_drive_with_a_published_volume_is_adverse() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &[]);
    let (staging, pod) = testbed.stage_and_publish(&disk, "ext4", "", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    let drive_id = client.normal(ID).await.drive_ids.remove(0);

    disk.detach();
    client.refresh("").await;
    client.probed_anew(&[ID]).await;
    client.normal(ID).await;
    assert_eq!(
        client.drive(&drive_id).await.expect("known").presence(),
        Presence::Present,
        "in use until the unmount"
    );

    umount(&pod);
    umount(&staging);
    let missing = client.raised(&drive_id, "DriveMissing", SOON).await;
    assert_finding(&missing, Severity::Bad, FindingStatus::Inaccessible);
    eventually("the volume is abnormal", SOON, async || {
        client.volume(ID).await.condition.expect("a condition").abnormal.then_some(())
    })
    .await;
    assert_eq!(client.drive(&drive_id).await.expect("known").volume_ids, [ID]);

    let back = testbed.attach(&disk.image);
    mount_device(&back.device, "ext4", &staging, "");
    bind(&staging, &pod);
    client.cleared(&missing.id, SOON).await;
    client.normal(ID).await;
    monitor.finish().await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_hung_io_is_stalled_until_the_io_returns() {
    let testbed = Testbed::new();
    let image = testbed.image("e.img", 64 << 20);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    let (_, pod) = testbed.stage_and_publish(&disk, "ext4", "", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(ID).await;

    served.set(Mode::Hang);
    let file = pod.join("f");
    let writer = tokio::task::spawn_blocking(move || write_and_sync(&file));
    let finding = client.raised(ID, "IoStalled", SOON).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Inaccessible);
    assert_evidence(&finding, "diskstats", disk.name());
    assert!(!writer.is_finished());

    served.set(Mode::Pass);
    writer.await.expect("the writer").expect("late, but written");
    client.cleared(&finding.id, SOON).await;
    client.normal(ID).await;
    monitor.finish().await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_whose_server_has_died_is_not_accessible() {
    let testbed = Testbed::new();
    let image = testbed.image("content", 4096);
    let pod = testbed.kubelet.publish(VOLUME.driver, VOLUME.handle, VOLUME.pv, VOLUME.pod);
    let served = FuseServer::mount(&pod, &image);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(ID).await;

    let in_use =
        std::fs::File::options().read(true).custom_flags(libc::O_PATH).open(&pod).expect("O_PATH");
    served.die();
    drop(in_use);
    let finding = client.raised(ID, "NotAccessible", SOON).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Inaccessible);
    assert_evidence(&finding, "", "ENOTCONN");

    umount(&pod);
    let _served = FuseServer::mount(&pod, &image);
    client.cleared(&finding.id, SOON).await;
    client.normal(ID).await;
    monitor.finish().await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_mount_times_out_alone_and_survives_a_restart_of_the_daemon() {
    let testbed = Testbed::new();
    let pod = testbed.kubelet.publish(VOLUME.driver, VOLUME.handle, VOLUME.pv, VOLUME.pod);
    let served = FuseServer::mount(&pod, &testbed.image("content", 4096));
    let others = five_others(&testbed);
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    client.normal(ID).await;

    served.set(Mode::Hang);
    let hung = Instant::now();
    let finding = client.raised(ID, "ProbeTimeout", SOON).await;
    let took = hung.elapsed();
    // One probe interval, the time-out, and the delay of a busy machine.
    assert!(took < Duration::from_secs(10), "after {took:?}");
    assert_finding(&finding, Severity::Bad, FindingStatus::Inaccessible);
    assert_evidence(&finding, pod.to_str().expect("text"), "pending since");
    assert!(client.volume(ID).await.condition.expect("a condition").abnormal);
    for _ in 0..2 {
        client.probed_anew(&others).await;
    }
    assert_eq!(client.node().await.stuck_probes, 1);
    for id in &others {
        client.normal(id).await;
    }
    monitor.finish().await;

    let took = daemon.stop().await;
    eprintln!("SIGTERM with a probe that hangs: ended after {took:?}");
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    let again = client.raised(ID, "ProbeTimeout", SOON).await;
    assert_eq!(
        (&again.id, again.since),
        (&finding.id, finding.since),
        "the same finding, not a new one"
    );
    client.probed_anew(&others).await;

    served.set(Mode::Pass);
    client.cleared(&finding.id, SOON).await;
    client.normal(ID).await;
    eventually("no probe is stuck", SOON, async || {
        (client.node().await.stuck_probes == 0).then_some(())
    })
    .await;
    monitor.finish().await;
    daemon.stop().await;
}

/// Five volumes that answer: directories of one ext4. Returns their ids.
fn five_others(testbed: &Testbed) -> Vec<String> {
    let disk = testbed.ext4("others.img", 32, &[]);
    let mount = testbed.path("mnt");
    mount_device(&disk.device, "ext4", &mount, "");
    (0..5)
        .map(|number| {
            let folder = mount.join(number.to_string());
            std::fs::create_dir(&folder).expect("a folder");
            let handle = format!("other-{number}");
            let pod = testbed.kubelet.publish(
                VOLUME.driver,
                &handle,
                &format!("pvc-{handle}"),
                &format!("2e000000-0000-4000-8000-10000000000{number}"),
            );
            bind(&folder, &pod);
            format!("csi:{}/{handle}", VOLUME.driver)
        })
        .collect()
}
