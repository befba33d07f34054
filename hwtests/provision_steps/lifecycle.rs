//! From an empty pool to a mounted volume and back.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use diskvitals_provision::step::{BindSource, Content, Step, StepErrorKind, StepOutput, Wipe};
use nix::mount::MsFlags;

use super::fixture::{Fixture, MIB, device, format, mount, owned, path};
use crate::support::tools::{mount_with, run, statvfs};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_a_volume_and_its_reversal_is_idempotent() {
    let fixture = Fixture::new();
    let loop_device = fixture.attached("v.img", 64 * MIB).await;
    assert_eq!((loop_device.size, loop_device.read_only), (64 * MIB, false));
    let image = fixture.image("v.img");
    assert_eq!(device(fixture.twice(Step::FindImage { image: image.clone() }).await), loop_device);
    assert_eq!(
        fixture.twice(Step::ProbeContent { device: loop_device.node.clone() }).await,
        StepOutput::Content(Content::Blank)
    );

    fixture.run(format(&loop_device, "ext4")).await.expect("blank");
    let looked = fixture.twice(Step::ProbeContent { device: loop_device.node.clone() }).await;
    assert!(
        matches!(&looked, StepOutput::Content(Content::Filesystem { fs_type, uuid: Some(_), size: Some(size) })
        if fs_type == "ext4" && *size == 64 * MIB),
        "{looked:?}"
    );
    assert_eq!(fixture.refused(format(&loop_device, "ext4")).await.0, StepErrorKind::ForeignData);
    let blocks = std::fs::metadata(image.as_path()).expect("the image").blocks();
    assert!(blocks * 512 >= 64 * MIB, "mkfs gave back what was allocated: {blocks} blocks");

    let (staged, pod) = (fixture.target("staged"), fixture.target("pod"));
    fixture.twice(mount(&loop_device, staged.clone(), "ext4", false)).await;
    assert_eq!(
        fixture.refused(mount(&loop_device, staged.clone(), "ext4", true)).await.0,
        StepErrorKind::AlreadyExists
    );
    assert_eq!(
        fixture.refused(format(&loop_device, "ext4")).await.0,
        StepErrorKind::InUse,
        "mounted"
    );
    let StepOutput::Mounted { mounted: Some(mounted) } =
        fixture.twice(Step::FindMount { target: staged.clone(), folder: None }).await
    else {
        panic!("nothing is mounted")
    };
    assert_eq!(
        (mounted.source, mounted.fs_type, mounted.read_only),
        (loop_device.name.clone(), "ext4".to_owned(), false)
    );
    assert!(
        ["nodev", "noatime"].iter().all(|option| mounted.options.iter().any(|is| is == option)),
        "{:?}",
        mounted.options
    );

    let source = BindSource::Staged { place: staged.clone(), device: loop_device.node.clone() };
    fixture
        .twice(Step::Bind { source: source.clone(), target: owned(pod.clone()), read_only: false })
        .await;
    assert_eq!(
        fixture
            .refused(Step::Bind {
                source: source.clone(),
                target: owned(pod.clone()),
                read_only: true
            })
            .await
            .0,
        StepErrorKind::AlreadyExists
    );
    fixture
        .twice(Step::Bind {
            source: source.clone(),
            target: fixture.owned("reader"),
            read_only: true,
        })
        .await;
    let other = fixture.attached("other.img", 64 * MIB).await;
    fixture.run(format(&other, "ext4")).await.expect("blank");
    crate::support::tools::mount_device(other.node.as_path(), "ext4", &fixture.at("staged"), "");
    let (kind, why) = fixture
        .refused(Step::Bind { source, target: fixture.owned("late"), read_only: false })
        .await;
    assert!(
        kind == StepErrorKind::ForeignData
            && why.contains(&other.name)
            && why.contains("instead of this volume"),
        "mounted over: {why}"
    );
    assert!(!fixture.at("late").exists());
    run("/usr/bin/umount", &[&fixture.at("staged")]);
    std::fs::write(fixture.at("pod/file"), "x").expect("the pod writes");
    assert_eq!(std::fs::read_to_string(fixture.at("reader/file")).expect("the other reads"), "x");
    let refused = std::fs::write(fixture.at("reader/file"), "y").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(nix::libc::EROFS));

    let (kind, why) = fixture.refused(Step::DetachImage { image: image.clone() }).await;
    assert!(kind == StepErrorKind::InUse && why.contains("globalmount"), "{why}");
    assert_eq!(
        fixture.refused(Step::RemoveImage { image: image.clone(), wipe: Wipe::Zero }).await.0,
        StepErrorKind::InUse
    );
    let open = std::fs::File::open(fixture.at("pod/file")).expect("open");
    let (kind, why) = fixture.refused(Step::Unmount { target: pod.clone(), lazy: false }).await;
    assert!(kind == StepErrorKind::InUse && why.contains(&std::process::id().to_string()), "{why}");
    assert_eq!(
        fixture.refused(Step::RemoveTarget { target: pod.clone(), owner: None }).await.0,
        StepErrorKind::InUse
    );
    drop(open);
    for place in ["pod", "reader", "staged"] {
        fixture.twice(Step::Unmount { target: fixture.target(place), lazy: false }).await;
        fixture.twice(Step::RemoveTarget { target: fixture.target(place), owner: None }).await;
    }
    assert_eq!(
        fixture.twice(Step::FindMount { target: staged, folder: None }).await,
        StepOutput::Mounted { mounted: None }
    );
    fixture.twice(Step::DetachImage { image: image.clone() }).await;
    assert_eq!(fixture.twice(Step::FindImage { image: image.clone() }).await, StepOutput::Empty);
    fixture.twice(Step::RemoveImage { image: image.clone(), wipe: Wipe::Zero }).await;
    assert!(!image.as_path().exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_filesystem_with_an_installed_mkfs_is_made_and_grown() {
    for (fs_type, before, after) in [("xfs", 320, 512), ("btrfs", 256, 512), ("ext4", 64, 256)] {
        let fixture = Fixture::new();
        let loop_device = fixture.attached("v.img", before * MIB).await;
        fixture.run(format(&loop_device, fs_type)).await.expect("blank");
        let at = fixture.target("staged");
        fixture.twice(mount(&loop_device, at.clone(), fs_type, false)).await;
        let size = || {
            let stat = statvfs(&fixture.at("staged"));
            stat.blocks() * stat.fragment_size()
        };
        let was = size();
        fixture.twice(Step::GrowImage { image: fixture.image("v.img"), size: after * MIB }).await;
        let grow = Step::GrowFilesystem {
            device: loop_device.node.clone(),
            at: at.clone(),
            fs_type: fs_type.to_owned(),
        };
        match fixture.run(grow.clone()).await {
            Ok(_) => {}
            // A container has no CAP_SYS_RESOURCE: the filesystem is then grown offline and mounted
            // again.
            Err(error) => {
                assert!(
                    fs_type == "ext4"
                        && error.kind == StepErrorKind::Unsupported
                        && error.message.contains("CAP_SYS_RESOURCE"),
                    "{error:?}"
                );
                assert_eq!(size(), was);
                fixture.twice(Step::Unmount { target: at.clone(), lazy: false }).await;
                fixture.twice(grow.clone()).await;
                fixture.twice(mount(&loop_device, at.clone(), fs_type, false)).await;
            }
        }
        assert!(size() > was + (after - before) * MIB * 8 / 10, "{fs_type}: {was} -> {}", size());
        if fs_type != "ext4" {
            fixture.twice(grow).await;
        }
        fixture.twice(Step::Unmount { target: at, lazy: false }).await;
        fixture.twice(Step::DetachImage { image: fixture.image("v.img") }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_volume_is_the_device_at_the_pods_path() {
    let fixture = Fixture::new();
    let loop_device = fixture.attached("v.img", 8 * MIB).await;
    let target = fixture.target("dev");
    let step = Step::BindDevice {
        device: loop_device.node.clone(),
        target: owned(target.clone()),
        read_only: false,
    };
    fixture.twice(step).await;
    let (shown, node) =
        (std::fs::metadata(fixture.at("dev")), std::fs::metadata(loop_device.node.as_path()));
    let (shown, node) = (shown.expect("the bound path"), node.expect("the node"));
    assert!(shown.file_type().is_block_device() && shown.rdev() == node.rdev());
    let other = fixture.attached("w.img", 8 * MIB).await;
    let step = Step::BindDevice {
        device: other.node.clone(),
        target: owned(target.clone()),
        read_only: false,
    };
    assert_eq!(fixture.refused(step).await.0, StepErrorKind::AlreadyExists);
    // Writes through the path work: it is a device node, although filesystems are usually mounted
    // with nodev.
    std::fs::File::options().write(true).open(fixture.at("dev")).expect("a device");
    let folder = Step::Bind {
        source: BindSource::Directory { path: path(&fixture.testbed.path("images")) },
        target: owned(target),
        read_only: false,
    };
    assert_eq!(fixture.refused(folder).await.0, StepErrorKind::AlreadyExists);
    fixture.twice(Step::Unmount { target: fixture.target("dev"), lazy: false }).await;
    fixture.twice(Step::RemoveTarget { target: fixture.target("dev"), owner: None }).await;
    let resolved = fixture.twice(Step::ResolveDevice { path: loop_device.node.clone() }).await;
    assert_eq!(device(resolved), loop_device);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_open_stays_attached_and_its_opener_is_named() {
    let fixture = Fixture::new();
    let loop_device = fixture.attached("v.img", 8 * MIB).await;
    let open = std::fs::File::open(loop_device.node.as_path()).expect("open");
    let detach = Step::DetachImage { image: fixture.image("v.img") };
    let (kind, why) = fixture.refused(detach.clone()).await;
    assert!(kind == StepErrorKind::InUse && why.contains(&std::process::id().to_string()), "{why}");
    drop(open);
    // Autoclear has not been set: the last close does not detach it.
    assert_eq!(
        device(fixture.twice(Step::FindImage { image: fixture.image("v.img") }).await),
        loop_device
    );
    fixture.twice(detach).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_has_no_room_leaves_nothing_behind() {
    let fixture = Fixture::new();
    let pool = fixture.testbed.path("mnt/pool");
    mount_with("dvhw".as_ref(), "tmpfs", &pool, MsFlags::empty(), "size=8m");
    let image = path(&pool.join("v.img"));
    assert_eq!(
        fixture.refused(Step::CreateImage { image: image.clone(), size: 64 * MIB }).await.0,
        StepErrorKind::NoSpace
    );
    assert_eq!(std::fs::read_dir(&pool).expect("the pool").count(), 0);
    fixture.twice(Step::CreateImage { image: image.clone(), size: 2 * MIB }).await;
    assert_eq!(
        fixture.refused(Step::GrowImage { image, size: 64 * MIB }).await.0,
        StepErrorKind::NoSpace
    );
    let StepOutput::Capacity(room) =
        fixture.twice(Step::DirectoryCapacity { folder: path(&pool) }).await
    else {
        panic!("no room")
    };
    assert_eq!((room.total, room.available), (8 * MIB, 6 * MIB));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_mounts_at_a_path_are_unmounted_and_mounts_below_it_are_named() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        mount_with("dvhw".as_ref(), "tmpfs", &fixture.at("pod"), MsFlags::empty(), "size=1m");
    }
    fixture.twice(Step::Unmount { target: fixture.target("pod"), lazy: false }).await;
    mount_with("dvhw".as_ref(), "tmpfs", &fixture.at("pod"), MsFlags::empty(), "size=1m");
    mount_with("dvhw".as_ref(), "tmpfs", &fixture.at("pod/below"), MsFlags::empty(), "size=1m");
    let (kind, why) =
        fixture.refused(Step::Unmount { target: fixture.target("pod"), lazy: false }).await;
    assert!(
        kind == StepErrorKind::InUse && why.contains("mount/below is mounted below it"),
        "{why}"
    );
    fixture.twice(Step::Unmount { target: fixture.target("pod"), lazy: true }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_kept_and_a_refused_mount_reports_the_kernels_error() {
    let fixture = Fixture::new();
    let folder = path(&fixture.testbed.path("mnt/records"));
    let write = Step::WriteRecord {
        folder: folder.clone(),
        name: "a.json".to_owned(),
        text: "{}".to_owned(),
    };
    fixture.twice(write).await;
    let StepOutput::Records { records } =
        fixture.twice(Step::ReadRecords { folder: folder.clone() }).await
    else {
        panic!("no records")
    };
    assert_eq!(records.len(), 1);
    fixture.twice(Step::RemoveRecord { folder, name: "a.json".to_owned() }).await;
    let loop_device = fixture.attached("v.img", 64 * MIB).await;
    fixture.run(format(&loop_device, "ext4")).await.expect("blank");
    let step = |options: &str, fs_type: &str| Step::Mount {
        device: loop_device.node.clone(),
        target: fixture.owned("staged"),
        fs_type: fs_type.to_owned(),
        options: vec![options.to_owned()],
        read_only: false,
    };
    let (kind, why) = fixture.refused(step("nonsense=1", "ext4")).await;
    assert!(kind == StepErrorKind::Unsupported && why.contains("nonsense"), "{why}");
    assert_eq!(fixture.refused(step("noatime", "nonsense")).await.0, StepErrorKind::Unsupported);
    assert_eq!(fixture.refused(step("noatime", "xfs")).await.0, StepErrorKind::Other);
    assert_eq!(
        fixture.twice(Step::FindMount { target: fixture.target("staged"), folder: None }).await,
        StepOutput::Mounted { mounted: None }
    );
    if !["/usr/sbin/lvm", "/sbin/lvm"].iter().any(|lvm| std::path::Path::new(lvm).exists()) {
        let (kind, why) =
            fixture.refused(Step::VolumeGroupCapacity { group: "vg".to_owned() }).await;
        assert!(
            kind == StepErrorKind::Unsupported && why.contains("lvm is not installed"),
            "{why}"
        );
    }
}
