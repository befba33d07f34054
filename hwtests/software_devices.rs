//! Devices that are no drives (loops that the configuration does not admit), on a machine without
//! udevd: their errors, their checks, and swap on them.

use std::path::Path;

use diskvitals_fscheck::Filesystem;
use diskvitals_host::root::HostRoot;
use diskvitals_source::inventory;
use diskvitals_wire::check::{Mode, Verdict};
use diskvitals_wire::{FindingStatus, Health, Severity};

use crate::checks::fixture::{check, expect, fill, make, of_device};
use crate::kernel_errors::{fail_until, on_a_server};
use crate::support::client::{assert_evidence, assert_finding};
use crate::support::daemon::{Arguments, CONFIG};
use crate::support::fuse::Fault;
use crate::support::tools::{mount_device, run, umount};
use crate::support::{Daemon, SOON, Testbed, eventually};

const MIB: u64 = 1 << 20;

/// A daemon for which no loop device is a drive.
async fn start(testbed: &Testbed) -> Daemon {
    std::fs::write(testbed.path("diskvitals.toml"), CONFIG).expect("the configuration");
    Daemon::start_with(&Arguments::of(testbed)).await
}

/// The id of the volume that is mounted there.
async fn volume_at(daemon: &Daemon, at: &Path) -> String {
    let path = at.to_str().expect("UTF-8").to_owned();
    eventually("the volume is found", SOON, async || {
        let volumes = daemon.client.volumes().await;
        let is_it = |mount: &diskvitals_wire::VolumeMount| mount.path == path;
        let found = volumes.into_iter().find(|volume| volume.mounts.iter().any(is_it));
        found.map(|volume| volume.id)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_errors_of_a_loop_that_is_no_drive_are_findings_of_its_volume() {
    let testbed = Testbed::new();
    let image = testbed.image("e.img", 64 << 20);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    let at = testbed.path("mnt/v");
    mount_device(&disk.device, "ext4", &at, "");
    let daemon = start(&testbed).await;
    let id = volume_at(&daemon, &at).await;
    assert!(daemon.client.drives().await.iter().all(|drive| drive.name != disk.name()));
    served.fault(vec![Fault::reads(40 * MIB..48 * MIB)]);
    let finding = fail_until(&disk.device, &[40, 41, 42], async || {
        let finding = daemon.client.finding(&id, "IoErrors").await;
        finding.filter(|finding| finding.severity() == Severity::Bad)
    })
    .await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Degraded);
    assert_evidence(
        &finding,
        "kernel log",
        &format!("I/O error, dev {}, sector {}", disk.name(), 40 * MIB / 512),
    );
    assert_eq!(daemon.client.volume(&id).await.health(), Health::Bad);
    served.fault(Vec::new());
    daemon.client.cleared(&finding.id, SOON).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_udev_the_verdict_on_an_unmounted_device_holds_for_its_volume() {
    let testbed = Testbed::new();
    let disk = make(&testbed, Filesystem::Ext4);
    let at = testbed.path("mnt/v");
    mount_device(&disk.device, "ext4", &at, "");
    fill(&at, 300);
    let inode =
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(at.join("d1/f150")).expect("there"));
    umount(&at);
    let clear = format!("clri <{inode}>");
    run("/usr/sbin/debugfs", &[&"-w", &"-R", &clear, &disk.device]);
    let daemon = start(&testbed).await;
    let found = check(&daemon.client, of_device(&disk, Filesystem::Ext4)).await;
    expect(&found, Verdict::Corrupted, Mode::Unmounted);
    let on_device = daemon.client.raised(disk.name(), "FilesystemCorrupted", SOON).await;
    assert_eq!(on_device.severity(), Severity::Bad, "{on_device:#?}");

    mount_device(&disk.device, "ext4", &at, "");
    let id = volume_at(&daemon, &at).await;
    let on_volume = daemon.client.raised(&id, "FilesystemCorrupted", SOON).await;
    assert_eq!(on_volume.severity(), Severity::Bad, "{on_volume:#?}");
    assert_eq!(on_volume.id, on_device.id, "one finding, mounted or not");

    umount(&at);
    daemon.client.raised(disk.name(), "FilesystemCorrupted", SOON).await;
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &disk.device]);
    mount_device(&disk.device, "ext4", &at, "");
    let id = volume_at(&daemon, &at).await;
    eventually("the new filesystem has no finding", SOON, async || {
        let findings = daemon.client.findings(false).await;
        let is_corrupted = |reason: &str| reason == "FilesystemCorrupted";
        let none = !findings.iter().any(|finding| is_corrupted(&finding.reason));
        none.then_some(())
    })
    .await;
    daemon.client.normal(&id).await;
    daemon.stop().await;
}

#[test]
fn active_swap_on_a_device_is_in_the_inventory() {
    let testbed = Testbed::new();
    let image = testbed.image("swap.img", 16 << 20);
    run("/usr/bin/fallocate", &[&"-l", &"16M", &image]);
    let disk = testbed.attach(&image);
    run("/usr/sbin/mkswap", &[&disk.device]);
    let swaps = || {
        let found = inventory::scan(&HostRoot::new("/"), &[], &[]).expect("a scan");
        found.swaps.get(disk.name()).cloned()
    };
    assert_eq!(swaps(), None);
    run("/usr/sbin/swapon", &[&disk.device]);
    let active = swaps();
    run("/usr/sbin/swapoff", &[&disk.device]);
    assert_eq!(active.as_deref(), disk.device.to_str());
    assert_eq!(swaps(), None);
}
