//! A pool whose drive dies or hangs under a pod: the pod ends, the volume stays, and the records are
//! right when the drive is back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tonic::{Code, Status};

use super::fixture::{
    MIB, Volume, claim, configure, done, ext4, images, loops_below, mounts_below, nothing_is_left,
    raw,
};
use crate::support::daemon::Arguments;
use crate::support::shim::{Csi, Shim};
use crate::support::testbed::Disk;
use crate::support::tools::{mount_device, run, umount};
use crate::support::{Daemon, FuseServer, Mode, SOON, Testbed, eventually};
use diskvitals_csi::wire::VolumeCapability;

/// The kubelet's deadline for one call.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// A pool on a filesystem of its own, on a loop device over a file of a FUSE server.
struct Pool {
    daemon: Daemon,
    shim: Shim,
    arguments: Arguments,
    served: FuseServer,
    disk: Disk,
    fs_type: &'static str,
    /// Dropped last: it takes down what the others use.
    testbed: Testbed,
}

impl Pool {
    async fn on(fs_type: &'static str) -> Pool {
        let testbed = Testbed::new();
        let image = testbed.image("drive.img", 400 << 20);
        let force = if fs_type == "xfs" { "-f" } else { "-F" };
        run(&format!("/usr/sbin/mkfs.{fs_type}"), &[&"-q", &force, &image]);
        let served = FuseServer::mount(&testbed.path("fuse"), &image);
        let disk = testbed.attach(&served.file());
        mount_device(&disk.device, fs_type, &testbed.path("pool"), "");
        let arguments = configure(&testbed, "");
        Pool {
            daemon: Daemon::start_with(&arguments).await,
            shim: Shim::start(&testbed, &[]).await,
            testbed,
            served,
            disk,
            fs_type,
            arguments,
        }
    }

    fn folder(&self) -> PathBuf {
        self.testbed.path("pool")
    }

    fn csi(&self) -> &Csi {
        &self.shim.csi
    }

    async fn published(&self, capability: VolumeCapability) -> Volume {
        let handle =
            done("create", || self.csi().create("pvc-a", 16 * MIB, capability.clone())).await;
        let volume = claim(&self.testbed, &handle, "pvc-a", capability);
        volume.up(self.csi()).await;
        volume
    }

    /// As an XFS does on a log that cannot be written, and an ext4 on a journal.
    async fn dies(&self) {
        self.served.set(Mode::Fail);
        let file = self.folder().join("probe");
        eventually("the pool takes no more files", SOON, async || {
            std::fs::File::create(&file)
                .and_then(|file| file.sync_all())
                .err()
                .filter(|error| error.raw_os_error() != Some(nix::libc::ENOSPC))
        })
        .await;
    }

    async fn restarted(self) -> Pool {
        self.daemon.kill().await;
        Pool { daemon: Daemon::start_with(&self.arguments).await, ..self }
    }

    /// The drive works again, and the pool is mounted again.
    async fn returns(self) -> Pool {
        let folder = self.folder();
        self.daemon.kill().await;
        self.served.set(Mode::Pass);
        umount(&folder);
        mount_device(&self.disk.device, self.fs_type, &folder, "");
        Pool { daemon: Daemon::start_with(&self.arguments).await, ..self }
    }

    fn nothing_is_attached(&self) {
        assert_eq!(mounts_below(self.testbed.kubelet.root()), Vec::<String>::new());
        assert_eq!(loops_below(&self.folder()), Vec::<String>::new());
    }

    /// The volume has its data and no attachment of before, and can be deleted.
    async fn verify_unchanged(self, volume: Volume, content: &[u8]) {
        let csi = self.csi();
        eventually("the volume is known again", SOON, async || {
            csi.health(&volume.handle).await.ok()
        })
        .await;
        eventually("the record of the attachments is corrected", SOON, async || {
            let mut left = std::fs::read_dir(self.folder().join("attachments")).ok()?;
            left.next().is_none().then_some(())
        })
        .await;
        assert_eq!(images(&self.testbed).len(), 1);
        let volume = claim(&self.testbed, &volume.handle, "pvc-bb", volume.capability);
        volume.up(csi).await;
        assert_eq!(std::fs::read(volume.target.join("file")).expect("read"), content);
        volume.down(csi).await;
        nothing_is_left(&self.testbed, csi).await;
        self.daemon.stop().await;
    }
}

async fn within_limit<F: Future<Output = Result<(), Status>>>(what: &str, call: F) {
    let begun = Instant::now();
    call.await.unwrap_or_else(|status| panic!("{what}: {status}"));
    let took = begun.elapsed();
    println!("{what}: {took:?}");
    assert!(took < CALL_LIMIT / 2, "{what}: {took:?}");
}

async fn ends(csi: &Csi, volume: &Volume) {
    for repeated in [false, true] {
        within_limit(&format!("unpublish, repeated {repeated}"), volume.unpublish(csi)).await;
        assert!(!volume.target.exists(), "{}", volume.target.display());
    }
    for repeated in [false, true] {
        within_limit(&format!("unstage, repeated {repeated}"), volume.unstage(csi)).await;
    }
}

fn write_and_sync(file: &Path, content: &[u8]) {
    use std::io::Write;
    let mut file = std::fs::File::create(file).expect("a file");
    file.write_all(content).expect("written");
    file.sync_all().expect("on the medium");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_on_a_pool_whose_drive_dies_ends_and_its_volume_survives_the_return() {
    for (fs_type, restart) in [("ext4", false), ("ext4", true), ("xfs", false), ("xfs", true)] {
        println!("{fs_type}, the daemon restarted: {restart}");
        let mut pool = Pool::on(fs_type).await;
        let volume = pool.published(ext4()).await;
        write_and_sync(&volume.target.join("file"), b"a pod's");
        pool.dies().await;
        if restart {
            pool = pool.restarted().await;
        }
        let csi = pool.csi();
        ends(csi, &volume).await;
        pool.nothing_is_attached();
        let refused = csi.delete(&volume.handle).await.expect_err("its disk is dead");
        assert!(
            ["Input/output error", "Read-only file system"]
                .iter()
                .any(|why| refused.message().contains(why)),
            "{refused}"
        );
        let refused = csi.create("pvc-c", 16 * MIB, ext4()).await;
        assert!(refused.is_err(), "{refused:?}");
        pool.returns().await.verify_unchanged(volume, b"a pod's").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raw_block_volume_of_a_pool_that_is_shut_down_ends() {
    let pool = Pool::on("xfs").await;
    let volume = pool.published(raw()).await;
    run("/usr/sbin/xfs_io", &[&"-x", &"-c", &"shutdown", &pool.folder()]);
    ends(pool.csi(), &volume).await;
    pool.nothing_is_attached();
    pool.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_holds_a_volume_of_a_dead_pool_is_named_and_nothing_is_unmounted_lazily() {
    for restart in [false, true] {
        let mut pool = Pool::on("xfs").await;
        let volume = pool.published(ext4()).await;
        let held = std::fs::File::create(volume.target.join("file")).expect("a file");
        pool.dies().await;
        if restart {
            pool = pool.restarted().await;
        }
        let csi = pool.csi();
        let before = mounts_below(pool.testbed.kubelet.root());
        assert_eq!(before.len(), 2, "{before:?}");
        for _ in 0..2 {
            let refused = volume.unpublish(csi).await.expect_err("it is in use");
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            let by = format!("{} (", std::process::id());
            assert!(refused.message().contains(&by), "{refused}");
        }
        let refused = volume.unstage(csi).await.expect_err("it is published");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert_eq!(mounts_below(pool.testbed.kubelet.root()), before);
        drop(held);
        ends(csi, &volume).await;
        pool.nothing_is_attached();
        pool.daemon.stop().await;
    }
}

/// The unmount of a filesystem writes to its device: while that hangs, the pod's mount goes, and the
/// volume stays staged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_on_a_pool_that_hangs_ends_and_the_volume_is_unstaged_once_the_drive_has_failed() {
    let pool = Pool::on("ext4").await;
    let volume = pool.published(ext4()).await;
    write_and_sync(&volume.target.join("file"), b"a pod's");
    pool.served.set(Mode::Hang);
    let csi = pool.csi();
    within_limit("unpublish", volume.unpublish(csi)).await;
    within_limit("unpublish again", volume.unpublish(csi)).await;
    assert!(!volume.target.exists());
    let begun = Instant::now();
    let refused = volume.unstage(csi).await.expect_err("its filesystem is not written");
    assert!(begun.elapsed() < CALL_LIMIT, "{:?}", begun.elapsed());
    assert!(
        refused.code() == Code::DeadlineExceeded && refused.message().contains("unmounting"),
        "{refused}"
    );
    assert_eq!(loops_below(&pool.folder()).len(), 1);
    pool.served.set(Mode::Fail);
    eventually("the volume is unstaged", CALL_LIMIT, async || volume.unstage(csi).await.ok()).await;
    pool.nothing_is_attached();
    pool.returns().await.verify_unchanged(volume, b"a pod's").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raw_block_volume_of_a_pool_that_hangs_ends() {
    let pool = Pool::on("ext4").await;
    let volume = pool.published(raw()).await;
    pool.served.set(Mode::Hang);
    ends(pool.csi(), &volume).await;
    pool.nothing_is_attached();
    pool.served.set(Mode::Fail);
    pool.daemon.stop().await;
}
