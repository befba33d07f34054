//! Errors that a failure left recorded in a filesystem, from before the daemon first saw it, on the
//! real kernel: an ext4 that is mounted "with errors", and a btrfs whose device statistics are not
//! zero.

use std::ffi::OsStr;
use std::path::Path;

use diskvitals_wire::{Finding, Severity};

use crate::device_failures::write_and_sync;
use crate::kernel_errors::on_a_server;
use crate::support::fuse::{Fault, FuseServer};
use crate::support::tools::{mount_device, run, umount};
use crate::support::{Daemon, Disk, SOON, Testbed, a_later_second, eventually};

const REASON: &str = "FilesystemErrors";

/// As a kernel left it in 2019.
fn record_errors(disk: &Disk) {
    for field in [
        "error_count 3",
        "first_error_time 20190301120000",
        "last_error_time 20190301120005",
        "first_error_func ext4_lookup",
        "last_error_func ext4_lookup",
        "state 3",
    ] {
        let request = format!("ssv {field}");
        run("/usr/sbin/debugfs", &[&"-w", &"-R", &request, &disk.device]);
    }
}

async fn found(daemon: &Daemon) -> Option<Finding> {
    let findings = daemon.client.findings(false).await;
    findings.into_iter().find(|finding| finding.reason == REASON)
}

async fn raised(daemon: &Daemon, words: &str) -> Finding {
    eventually("it is raised", SOON, async || {
        let found = found(daemon).await?;
        found.message.contains(words).then_some(found)
    })
    .await
}

async fn cleared(daemon: &Daemon) {
    eventually("it is cleared", SOON, async || found(daemon).await.is_none().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ext4_with_errors_of_2019_is_suspect_until_it_is_repaired_and_mounted_again() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &[]);
    record_errors(&disk);
    let mnt = testbed.path("mnt/e");
    mount_device(&disk.device, "ext4", &mnt, "");
    let daemon = Daemon::start(&testbed).await;
    let finding = raised(&daemon, "3 errors (the first at 2019-03-01T12:00:00Z").await;
    assert_eq!(finding.severity(), Severity::Suspect, "{finding:#?}");
    assert!(finding.message.contains("from before diskvitals first saw it"), "{finding:#?}");
    let is_superblock = |text: &str| text.contains("clean with errors; error count: 3");
    let mut evidence = finding.evidence.iter();
    assert!(evidence.any(|one| is_superblock(&one.text)), "{finding:#?}");

    // A mount repairs nothing, and a check that may not repair does not either.
    umount(&mnt);
    mount_device(&disk.device, "ext4", &mnt, "");
    let subject = finding.subject.expect("a subject").id;
    daemon.client.probed_anew(&[&subject]).await;
    raised(&daemon, "3 errors").await;

    umount(&mnt);
    run("/usr/sbin/fsck.ext4", &[&"-f", &"-y", &disk.device]);
    mount_device(&disk.device, "ext4", &mnt, "");
    cleared(&daemon).await;
    daemon.stop().await;
}

/// A btrfs whose device failed writes, mounted again.
fn btrfs_with_statistics(testbed: &Testbed, mnt: &Path) -> FuseServer {
    const BYTES: u64 = 256 << 20;
    let image = testbed.image("b.img", BYTES);
    run("/usr/sbin/mkfs.btrfs", &[&"-q", &"-f", &image]);
    let (served, disk) = on_a_server(testbed, &image);
    mount_device(&disk.device, "btrfs", mnt, "");
    std::fs::write(mnt.join("f"), vec![7; 8 << 20]).expect("written");
    run("/usr/bin/sync", &[&"-f", &mnt]);
    umount(mnt);
    mount_device(&disk.device, "btrfs", mnt, "");
    // The part with the file's data.
    served.fault(vec![Fault::reads(0..BYTES)]);
    // It fails: that is what btrfs counts.
    let _ = std::fs::read(mnt.join("f"));
    served.fault(Vec::new());
    // The statistics are written with the next transaction.
    write_and_sync(&mnt.join("g")).expect("written");
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_btrfs_with_counted_errors_is_suspect_until_a_scrub_finds_nothing() {
    let testbed = Testbed::new();
    let mnt = testbed.path("mnt/b");
    let _served = btrfs_with_statistics(&testbed, &mnt);
    let daemon = Daemon::start(&testbed).await;
    let finding = raised(&daemon, "read_errs").await;
    assert_eq!(finding.severity(), Severity::Suspect, "{finding:#?}");
    // The scrub begins in a later second than the reading.
    a_later_second().await;
    run("/usr/bin/btrfs", &[&"scrub", &"start", &"-B", &mnt]);
    cleared(&daemon).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_btrfs_member_that_was_away_is_no_copy_until_a_scrub_has_read_it() {
    let testbed = Testbed::new();
    let mnt = testbed.path("mnt/b");
    let images = ["b1.img", "b2.img"].map(|name| testbed.image(name, 256 << 20));
    let [first, away] = images.each_ref().map(|image| testbed.attach(image));
    let btrfs = |arguments: &[&dyn AsRef<OsStr>]| run("/usr/bin/btrfs", arguments);
    let raid1: [&dyn AsRef<OsStr>; 8] =
        [&"-q", &"-f", &"-d", &"raid1", &"-m", &"raid1", &first.device, &away.device];
    run("/usr/sbin/mkfs.btrfs", &raid1);
    btrfs(&[&"device", &"scan", &"--forget", &away.device]);
    away.detach();
    mount_device(&first.device, "btrfs", &mnt, "degraded");
    let daemon = Daemon::start(&testbed).await;
    let lost = |words: &'static str| {
        let daemon = &daemon;
        eventually(words, SOON, async move || {
            let findings = daemon.client.findings(false).await;
            let mut lost = findings.iter().filter(|it| it.reason == "RedundancyLost");
            match words {
                "" => lost.next().is_none().then_some(()),
                words => lost.any(|it| it.message.contains(words)).then_some(()),
            }
        })
    };
    lost("1 of 2 devices").await;
    write_and_sync(&mnt.join("f")).expect("written");
    // It is back, and the kernel does not use it before the next mount.
    let back = testbed.attach(&images[1]);
    btrfs(&[&"device", &"scan", &back.device]);
    scanned(&testbed, &daemon, "first").await;
    lost("1 of 2 devices").await;
    umount(&mnt);
    lost("").await;
    btrfs(&[&"device", &"scan", &first.device, &back.device]);
    mount_device(&first.device, "btrfs", &mnt, "");
    lost("device 2 (was away from").await;
    // The scrub begins in a later second than the return.
    a_later_second().await;
    // The first one corrects what the member lacks.
    btrfs(&[&"scrub", &"start", &"-B", &mnt]);
    btrfs(&[&"scrub", &"start", &"-B", &mnt]);
    lost("").await;
    // A replacement under the same mount leaves nothing behind.
    umount(&mnt);
    btrfs(&[&"device", &"scan", &"--forget", &back.device]);
    back.detach();
    mount_device(&first.device, "btrfs", &mnt, "degraded");
    lost("1 of 2 devices").await;
    let other = testbed.attach(&testbed.image("b3.img", 256 << 20));
    btrfs(&[&"replace", &"start", &"-B", &"-f", &"2", &other.device, &mnt]);
    lost("").await;
    umount(&mnt);
    mount_device(&first.device, "btrfs", &mnt, "");
    write_and_sync(&mnt.join("g")).expect("written");
    scanned(&testbed, &daemon, "second").await;
    lost("").await;
    daemon.stop().await;
}

/// The devices have been scanned since this was called: a new volume has its drive.
async fn scanned(testbed: &Testbed, daemon: &Daemon, name: &str) {
    let disk = testbed.ext4(&format!("{name}.img"), 64, &[]);
    let mnt = testbed.path(format!("mnt/{name}"));
    mount_device(&disk.device, "ext4", &mnt, "");
    let id = format!("mnt:{}", mnt.display());
    daemon.client.normal(&id).await;
}
