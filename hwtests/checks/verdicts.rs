//! Verdicts on healthy and damaged filesystems in each mode; no check writes anything.

use std::time::Duration;

use diskvitals_fscheck::Filesystem;
use diskvitals_wire::check::{Mode, State, Verdict};
use diskvitals_wire::{FindingStatus, Severity};
use nix::mount::MsFlags;

use super::fixture::{
    ALL, CHECK_LIMIT, ON_DEMAND, Volume, begin, check, check_as, configure, ended, expect, fill,
    filled, frozen, get, history, make, nothing_is_left, of, of_device, start,
};
use crate::support::daemon::Arguments;
use crate::support::digest::{digest, sectors_written};
use crate::support::load::Load;
use crate::support::testbed::Claim;
use crate::support::tools::{bind, mount_device, mount_with, remount, run, umount};
use crate::support::{Daemon, SOON, Testbed, a_later_second, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_filesystem_is_clean_in_every_mode_and_nothing_is_written() {
    for filesystem in ALL {
        let testbed = Testbed::new();
        let disk = filled(&testbed, filesystem, 300);
        let daemon = start(&testbed, ON_DEMAND).await;
        nix::unistd::sync();
        let before = (digest(&disk.image, &[]), sectors_written(disk.name()));
        let unmounted = check(&daemon.client, of_device(&disk, filesystem)).await;
        expect(&unmounted, Verdict::Clean, Mode::Unmounted);
        assert_eq!(
            (digest(&disk.image, &[]), sectors_written(disk.name())),
            before,
            "{}",
            filesystem.name()
        );

        let mut volume = Volume::mount(&testbed, disk, filesystem.name(), "");
        volume.umount();
        nix::unistd::sync();
        mount_with(&volume.disk.device, filesystem.name(), &volume.at, MsFlags::MS_RDONLY, "");
        let before = (digest(&volume.disk.image, &[]), sectors_written(volume.disk.name()));
        let read_only = check_as(&daemon.client, of(&volume.at), Mode::ReadOnly).await;
        expect(&read_only, Verdict::Clean, Mode::ReadOnly);
        assert_eq!(
            (digest(&volume.disk.image, &[]), sectors_written(volume.disk.name())),
            before,
            "{}",
            filesystem.name()
        );
        umount(&volume.at);

        let volume = Volume::mount(&testbed, volume.disk.clone(), filesystem.name(), "");
        let live = check_as(&daemon.client, of(&volume.at), Mode::Live).await;
        expect(&live, Verdict::Clean, Mode::Live);
        assert!(live.runs.iter().all(|run| run.held.is_none()), "{live:#?}");
        nothing_is_left(&testbed, Some(&volume)).await;
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_a_frozen_run_is_clean_and_a_live_run_reports_no_damage() {
    for filesystem in ALL {
        let testbed = Testbed::new();
        let daemon = start(&testbed, ON_DEMAND).await;
        let volume = Volume::filled(&testbed, filesystem);
        let load = Load::start(&volume.at, 1, 7);
        let live = check(&daemon.client, of(&volume.at)).await;
        assert_ne!(live.verdict(), Verdict::Corrupted, "{live:#?}");
        let frozen = check(&daemon.client, frozen(of(&volume.at))).await;
        let written =
            tokio::task::spawn_blocking(move || load.stop()).await.expect("it does not panic");
        assert_eq!(frozen.verdict(), Verdict::Clean, "{frozen:#?}");
        assert!(
            frozen
                .runs
                .iter()
                .filter(|run| run.mode() == Mode::Frozen)
                .all(|run| run.held.is_some()),
            "{frozen:#?}"
        );
        assert!(written.stuck == 0 && written.longest < Duration::from_secs(8), "{written:?}");
        nothing_is_left(&testbed, Some(&volume)).await;
        daemon.stop().await;
    }
}

const DRIVER: &str = "c.csi.example.com";

/// Damage that the kernel does not read: the filesystem is mounted read-only.
fn damage(filesystem: Filesystem, device: &std::path::Path, inode: u64) {
    match filesystem {
        Filesystem::Ext4 => {
            drop(run("/usr/sbin/debugfs", &[&"-w", &"-R", &format!("clri <{inode}>"), &device]))
        }
        _ => drop(run(
            "/usr/sbin/xfs_db",
            &[&"-x", &"-c", &format!("inode {inode}"), &"-c", &"write -d core.nblocks 77", &device],
        )),
    }
}

fn repair(filesystem: Filesystem, device: &std::path::Path) {
    match filesystem {
        // 1: errors were corrected.
        Filesystem::Ext4 => {
            drop(run("/bin/sh", &[&"-c", &"e2fsck -fy \"$0\"; [ $? -le 1 ]", &device]))
        }
        _ => drop(run("/usr/sbin/xfs_repair", &[&device])),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proven_damage_is_a_finding_until_a_check_as_strong_is_clean_or_ext4_records_a_repair() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let testbed = Testbed::new();
        let disk = make(&testbed, filesystem);
        let at = testbed.path("mnt/once");
        mount_device(&disk.device, filesystem.name(), &at, "");
        fill(&at, 300);
        let inode = std::os::unix::fs::MetadataExt::ino(
            &std::fs::metadata(at.join("d1/f150")).expect("there"),
        );
        umount(&at);
        damage(filesystem, &disk.device, inode);
        let claim = Claim {
            driver: DRIVER,
            handle: "v",
            pv: "pvc-v",
            pod: "5c000000-0000-4000-8000-000000000001",
        };
        let (staging, pod) = testbed.stage_and_publish(&disk, filesystem.name(), "", &claim);
        remount(&staging, MsFlags::MS_RDONLY);
        let daemon = start(&testbed, ON_DEMAND).await;
        let id = format!("csi:{DRIVER}/v");
        let found = check_as(&daemon.client, of(&staging), Mode::ReadOnly).await;
        expect(&found, Verdict::Corrupted, Mode::ReadOnly);
        assert!(found.runs.iter().any(|run| !run.findings.is_empty()), "{found:#?}");
        let raised = daemon.client.raised(&id, "FilesystemCorrupted", SOON).await;
        assert_eq!(raised.severity(), Severity::Bad, "{raised:#?}");
        assert!(
            matches!(raised.status(), FindingStatus::DataLoss | FindingStatus::Degraded)
                && !raised.evidence.is_empty(),
            "{raised:#?}"
        );

        // The result is remembered, with the problems found.
        daemon.stop().await;
        let daemon = Daemon::start_with(&Arguments::of(&testbed)).await;
        let remembered = get(&daemon.client, &found.id).await;
        assert_eq!(
            (remembered.verdict(), remembered.runs.len()),
            (Verdict::Corrupted, found.runs.len()),
            "{remembered:#?}"
        );
        assert!(history(&daemon.client).await.iter().any(|check| check.id == found.id));
        daemon.client.raised(&id, "FilesystemCorrupted", SOON).await;

        let unmount = || {
            umount(&pod);
            umount(&staging);
        };
        let mount = || {
            mount_device(&disk.device, filesystem.name(), &staging, "");
            bind(&staging, &pod);
        };
        unmount();
        mount();
        // A mount alone proves nothing.
        daemon.client.probed_anew(&[&id]).await;
        daemon.client.raised(&id, "FilesystemCorrupted", SOON).await;
        unmount();
        // e2fsck records the time of the repair in whole seconds.
        a_later_second().await;
        repair(filesystem, &disk.device);
        mount();
        if filesystem == Filesystem::Ext4 {
            // Its superblock records the repair.
            daemon.client.cleared(&raised.id, SOON).await;
            daemon.stop().await;
            continue;
        }
        // XFS records none, and a live run is weaker.
        let live = check_as(&daemon.client, of(&staging), Mode::Live).await;
        expect(&live, Verdict::Clean, Mode::Live);
        daemon.client.raised(&id, "FilesystemCorrupted", SOON).await;
        remount(&staging, MsFlags::MS_RDONLY);
        let clean = check_as(&daemon.client, of(&staging), Mode::ReadOnly).await;
        expect(&clean, Verdict::Clean, Mode::ReadOnly);
        daemon.client.cleared(&raised.id, SOON).await;
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_on_a_mounted_ext4_is_confirmed_by_two_frozen_runs_a_minute_apart() {
    let testbed = Testbed::new();
    let daemon = start(&testbed, ON_DEMAND).await;
    let mut volume = Volume::filled(&testbed, Filesystem::Ext4);
    let inode = std::os::unix::fs::MetadataExt::ino(
        &std::fs::metadata(volume.at.join("d1/f150")).expect("there"),
    );
    volume.umount();
    damage(Filesystem::Ext4, &volume.disk.device, inode);
    let volume = Volume::mount(&testbed, volume.disk.clone(), "ext4", "");
    let started = tokio::time::Instant::now();
    let begun = begin(&daemon.client, frozen(of(&volume.at))).await;
    let waiting = eventually("it waits between its frozen runs", CHECK_LIMIT, async || {
        Some(get(&daemon.client, &begun.id).await)
            .filter(|check| check.state() == State::Waiting && !check.runs.is_empty())
    })
    .await;
    assert_eq!(waiting.mode(), Mode::Frozen, "{waiting:#?}");
    // No writer is held between the runs.
    volume.is_writable(SOON).await;
    let found = ended(&daemon.client, &begun.id, CHECK_LIMIT + Duration::from_secs(90)).await;
    expect(&found, Verdict::Corrupted, Mode::Frozen);
    assert!(started.elapsed() >= Duration::from_secs(60));
    assert_eq!(found.runs.iter().filter(|run| run.mode() == Mode::Frozen).count(), 2);
    nothing_is_left(&testbed, Some(&volume)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_of_never_freezing_overrides_a_request_to_freeze() {
    let testbed = Testbed::new();
    configure(&testbed, "");
    let daemon = Daemon::start_with(&Arguments::of(&testbed)).await;
    let volume = Volume::filled(&testbed, Filesystem::Xfs);
    let request = frozen(of(&volume.at));
    let refused = eventually("an answer", SOON, async || {
        match super::fixture::try_begin(&daemon.client, &request).await {
            Err(status) if status.code() == tonic::Code::NotFound => None,
            answer => Some(answer),
        }
    })
    .await;
    match refused {
        Err(status) => assert!(status.message().contains("freeze"), "{status}"),
        Ok(check) => {
            let check = ended(&daemon.client, &check.id, CHECK_LIMIT).await;
            assert!(check.runs.iter().all(|run| run.mode() == Mode::Live), "{check:#?}");
        }
    }
    daemon.stop().await;
}
