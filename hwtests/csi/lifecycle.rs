//! Volumes from creation to deletion.

use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use diskvitals_csi::wire::volume_capability::access_mode::Mode;
use tokio::task::JoinSet;
use tonic::Code;

use super::fixture::{
    MIB, Volume, both, claim, done, ext4, loops_below, mounts_below, nothing_is_left, raw,
};
use crate::support::Testbed;
use crate::support::shim::mount;
use crate::support::tools::{bind, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_in_the_life_of_a_volume_is_idempotent() {
    for (fs_type, size) in [("ext4", 16 * MIB), ("xfs", 320 * MIB), ("btrfs", 128 * MIB)] {
        let testbed = Testbed::new();
        let (daemon, shim) = both(&testbed, "").await;
        let csi = &shim.csi;
        let capability = mount(Mode::SingleNodeWriter, fs_type);
        let handle = csi.create("pvc-a", size, capability.clone()).await.expect("made");
        assert_eq!(csi.create("pvc-a", size, capability.clone()).await.expect("the same"), handle);
        let volume = claim(&testbed, &handle, "pvc-a", capability);
        volume.stage(csi).await.expect("staged");
        volume.stage(csi).await.expect("staged already");
        volume.publish(csi).await.expect("published");
        volume.publish(csi).await.expect("published already");
        std::fs::write(volume.target.join("file"), b"what a pod wrote").expect("written");

        let stats = csi.stats(&handle, &volume.target).await.expect("statistics");
        assert!(stats.usage.iter().any(|usage| usage.total > 0), "{stats:?}");
        assert!(!stats.volume_condition.clone().expect("a condition").abnormal, "{stats:?}");
        assert_eq!(csi.health(&handle).await.expect("its health"), []);

        let staged_too = csi.delete(&handle).await.expect_err("it is in use");
        assert_eq!(staged_too.code(), Code::FailedPrecondition, "{staged_too}");
        volume.unpublish(csi).await.expect("unpublished");
        volume.unpublish(csi).await.expect("unpublished already");
        volume.unstage(csi).await.expect("unstaged");
        volume.unstage(csi).await.expect("unstaged already");
        // The data is there after the volume is staged again.
        let volume = claim(&testbed, &handle, "pvc-b", volume.capability);
        volume.up(csi).await;
        assert_eq!(std::fs::read(volume.target.join("file")).expect("read"), b"what a pod wrote");
        volume.down(csi).await;
        csi.delete(&handle).await.expect("deleted already");
        nothing_is_left(&testbed, csi).await;
        shim.stop().await;
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raw_block_volume_is_a_device_of_its_size_and_grows() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let handle = csi.create("pvc-raw", 8 * MIB, raw()).await.expect("made");
    let volume = claim(&testbed, &handle, "pvc-raw", raw());
    volume.up(csi).await;
    let mut device =
        std::fs::File::options().read(true).write(true).open(&volume.target).expect("a device");
    assert_eq!(device.seek(SeekFrom::End(0)).expect("its size"), 8 << 20);
    device.seek(SeekFrom::Start(4096)).expect("there");
    device.write_all(b"a record").expect("written");
    device.sync_all().expect("on the medium");
    let stats = csi.stats(&handle, &volume.target).await.expect("statistics");
    assert_eq!(
        stats.usage.iter().map(|usage| usage.total).collect::<Vec<_>>(),
        [8 * MIB],
        "{stats:?}"
    );
    assert_eq!(csi.expand(&handle, &volume.target, 16 * MIB).await.expect("grown"), 16 * MIB);
    assert_eq!(device.seek(SeekFrom::End(0)).expect("its size"), 16 << 20);
    let mut record = [0; 8];
    device.seek(SeekFrom::Start(4096)).expect("there");
    device.read_exact(&mut record).expect("read");
    assert_eq!(&record, b"a record");
    drop(device);
    volume.down(csi).await;
    nothing_is_left(&testbed, csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xfs_grows_while_it_is_used() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let xfs = mount(Mode::SingleNodeWriter, "xfs");
    let handle = csi.create("pvc-x", 320 * MIB, xfs.clone()).await.expect("made");
    let volume = claim(&testbed, &handle, "pvc-x", xfs);
    volume.up(csi).await;
    let before = nix::sys::statvfs::statvfs(&volume.target).expect("its size").blocks();
    assert_eq!(csi.expand(&handle, &volume.target, 400 * MIB).await.expect("grown"), 400 * MIB);
    let after = nix::sys::statvfs::statvfs(&volume.target).expect("its size").blocks();
    assert!(after > before, "{before} blocks, then {after}");
    volume.down(csi).await;
    nothing_is_left(&testbed, csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_volumes_are_staged_and_published_at_once() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = shim.csi.clone();
    let mut making = JoinSet::new();
    for number in 0..100 {
        let csi = csi.clone();
        making.spawn(async move {
            let name = format!("pvc-{number}");
            done("create", || csi.create(&name, 4 * MIB, ext4())).await
        });
    }
    let handles = making.join_all().await;
    let volumes: Vec<Volume> = handles
        .iter()
        .enumerate()
        .map(|(number, handle)| claim(&testbed, handle, &format!("pvc-{number}"), ext4()))
        .collect();
    let mut bringing = JoinSet::new();
    for volume in volumes.clone() {
        let csi = csi.clone();
        bringing.spawn(async move { volume.up(&csi).await });
    }
    tokio::time::timeout(Duration::from_secs(600), bringing.join_all()).await.expect("all are up");
    assert_eq!(mounts_below(testbed.kubelet.root()).len(), 200);
    for volume in &volumes {
        std::fs::write(volume.target.join("mine"), &volume.handle).expect("written");
    }
    for volume in &volumes {
        assert_eq!(
            std::fs::read_to_string(volume.target.join("mine")).expect("read"),
            volume.handle,
            "each its own"
        );
    }
    let mut taking = JoinSet::new();
    for volume in volumes {
        let csi = csi.clone();
        taking.spawn(async move { volume.down(&csi).await });
    }
    tokio::time::timeout(Duration::from_secs(600), taking.join_all()).await.expect("all are down");
    nothing_is_left(&testbed, &csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn static_volumes_come_from_the_configuration_and_keep_their_data() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("data.img", 32, &[]);
    let folder = testbed.path("local/data");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("old"), b"kept").expect("written");
    let entries = format!(
        "[csi]\nstatic_roots = [\"{}\"]\n[[static]]\nname = \"disk-1\"\ndevice = \"{}\"\n[[static]]\nname = \"folder-1\"\ndirectory = \"{}\"\n",
        testbed.path("local").display(),
        disk.device.display(),
        folder.display()
    );
    let (daemon, shim) = both(&testbed, &entries).await;
    let csi = &shim.csi;
    let mut listed = csi.list().await;
    listed.sort();
    assert_eq!(listed, ["disk-1", "folder-1"]);
    for handle in ["disk-1", "folder-1"] {
        let volume = claim(&testbed, handle, handle, ext4());
        volume.up(csi).await;
        std::fs::write(volume.target.join("new"), handle).expect("written");
        assert_eq!(csi.health(handle).await.expect("its health"), []);
        let refused = csi.delete(handle).await.expect_err("it is not ours to delete");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        volume.unpublish(csi).await.expect("unpublished");
        volume.unstage(csi).await.expect("unstaged");
    }
    assert_eq!(std::fs::read(folder.join("old")).expect("read"), b"kept");
    assert_eq!(std::fs::read(folder.join("new")).expect("read"), b"folder-1");
    assert_eq!(mounts_below(testbed.kubelet.root()), Vec::<String>::new());
    assert_eq!(loops_below(&testbed.path("pool")), Vec::<String>::new());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_a_signature_is_never_formatted() {
    let testbed = Testbed::new();
    let image = testbed.image("foreign.img", 64 << 20);
    run("/usr/sbin/mkswap", &[&image]);
    let before = std::fs::read(&image).expect("read");
    let disk = testbed.attach(&image);
    let xfs = testbed.xfs("x.img");
    let entries = format!(
        "[[static]]\nname = \"swap\"\ndevice = \"{}\"\n[[static]]\nname = \"xfs\"\ndevice = \"{}\"\n",
        disk.device.display(),
        xfs.device.display()
    );
    let (daemon, shim) = both(&testbed, &entries).await;
    let volume = claim(&testbed, "swap", "swap", ext4());
    let refused = volume.stage(&shim.csi).await.expect_err("there is something on it");
    assert!(refused.message().contains("swap"), "{refused}");
    // The device has another filesystem than the requested one.
    let volume = claim(&testbed, "xfs", "xfs", ext4());
    let refused = volume.stage(&shim.csi).await.expect_err("it is XFS");
    assert!(refused.message().contains("xfs"), "{refused}");
    assert_eq!(std::fs::read(&image).expect("read"), before);
    assert_eq!(mounts_below(testbed.kubelet.root()), Vec::<String>::new());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_writer_is_refused_and_the_first_is_named() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    for mode in [Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter] {
        let capability = mount(mode, "ext4");
        let handle =
            csi.create(&format!("pvc-{mode:?}"), 8 * MIB, capability.clone()).await.expect("made");
        let volume = claim(&testbed, &handle, "first", capability.clone());
        volume.up(csi).await;
        let other = claim(&testbed, &handle, "second", capability.clone());
        let refused = other.publish(csi).await.expect_err("one path only");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(&volume.target.display().to_string()), "{refused}");
        let read_only = csi
            .publish(&handle, &volume.staging, &volume.target, capability, true)
            .await
            .expect_err("other arguments");
        assert_eq!(read_only.code(), Code::AlreadyExists, "{read_only}");
        volume.down(csi).await;
    }
    let many = mount(Mode::SingleNodeMultiWriter, "ext4");
    let handle = csi.create("pvc-many", 8 * MIB, many.clone()).await.expect("made");
    let volume = claim(&testbed, &handle, "first", many.clone());
    volume.up(csi).await;
    let other = claim(&testbed, &handle, "second", many);
    other.publish(csi).await.expect("as many as there are pods");
    std::fs::write(other.target.join("from-the-second"), b"x").expect("written");
    assert!(volume.target.join("from-the-second").exists());
    other.unpublish(csi).await.expect("unpublished");
    volume.down(csi).await;
    nothing_is_left(&testbed, csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_publish_cannot_be_written() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let handle = csi.create("pvc-ro", 8 * MIB, ext4()).await.expect("made");
    let volume = claim(&testbed, &handle, "pvc-ro", ext4());
    volume.stage(csi).await.expect("staged");
    csi.publish(&handle, &volume.staging, &volume.target, ext4(), true).await.expect("published");
    let error = std::fs::write(volume.target.join("file"), b"x").expect_err("it is read-only");
    assert_eq!(error.raw_os_error(), Some(nix::libc::EROFS));
    volume.down(csi).await;
    nothing_is_left(&testbed, csi).await;
    daemon.stop().await;
}

/// A volume of another driver that is mounted over a target does not become ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpublish_leaves_foreign_mounts_alone() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let handle = csi.create("pvc-a", 8 * MIB, ext4()).await.expect("made");
    let theirs = testbed.kubelet.publish(
        "other.csi.example.com",
        "theirs",
        "pvc-theirs",
        "7b000000-0000-4000-8000-000000000001",
    );
    let folder = testbed.path("local");
    std::fs::create_dir_all(&folder).expect("a folder");
    bind(&folder, &theirs);
    // The caller claims that the mount is ours, the mount table shows that it is not: the call must
    // not report that it was removed.
    let refused = csi.unpublish(&handle, &theirs).await.expect_err("another's is there");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert_eq!(mounts_below(&theirs).len(), 1, "it was another's");
    let status = csi.stats(&handle, &theirs).await.expect_err("it is not there");
    assert_eq!(status.code(), Code::NotFound, "{status}");
    csi.delete(&handle).await.expect("deleted");
    daemon.stop().await;
}
