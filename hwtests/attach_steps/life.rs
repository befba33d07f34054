//! From nothing to a mounted volume and back.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use diskvitals::provision::step::{BindSource, Content, Step, StepErrorKind, StepOutput, Wipe};
use nix::mount::MsFlags;

use super::stage::{MIB, Stage, device, format, mount, path};
use crate::support::tools::{mount_with, run, statvfs};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_a_volume_and_its_reversal_is_idempotent() {
    let stage = Stage::new();
    let loop_device = stage.attached("v.img", 64 * MIB).await;
    assert_eq!((loop_device.size, loop_device.read_only), (64 * MIB, false));
    let image = stage.image("v.img");
    assert_eq!(
        device(
            stage
                .twice(Step::FindImage {
                    image: image.clone()
                })
                .await
        ),
        loop_device
    );
    assert_eq!(
        stage
            .twice(Step::ProbeContent {
                device: loop_device.node.clone()
            })
            .await,
        StepOutput::Content(Content::Blank)
    );

    stage
        .take(format(&loop_device, "ext4"))
        .await
        .expect("blank");
    let looked = stage
        .twice(Step::ProbeContent {
            device: loop_device.node.clone(),
        })
        .await;
    assert!(
        matches!(&looked, StepOutput::Content(Content::Filesystem { fs_type, uuid: Some(_), size: Some(size) })
        if fs_type == "ext4" && *size == 64 * MIB),
        "{looked:?}"
    );
    assert_eq!(
        stage.refused(format(&loop_device, "ext4")).await.0,
        StepErrorKind::ForeignData
    );
    let blocks = std::fs::metadata(image.as_path())
        .expect("the image")
        .blocks();
    assert!(
        blocks * 512 >= 64 * MIB,
        "mkfs gave back what was allocated: {blocks} blocks"
    );

    let (staged, pod) = (stage.place("staged"), stage.place("pod"));
    stage
        .twice(mount(&loop_device, staged.clone(), "ext4", false))
        .await;
    assert_eq!(
        stage
            .refused(mount(&loop_device, staged.clone(), "ext4", true))
            .await
            .0,
        StepErrorKind::AlreadyExists
    );
    assert_eq!(
        stage.refused(format(&loop_device, "ext4")).await.0,
        StepErrorKind::InUse,
        "mounted"
    );
    let StepOutput::Mounted {
        mounted: Some(mounted),
    } = stage
        .twice(Step::FindMount {
            target: staged.clone(),
        })
        .await
    else {
        panic!("nothing is mounted")
    };
    assert_eq!(
        (mounted.source, mounted.fs_type, mounted.read_only),
        (loop_device.name.clone(), "ext4".to_owned(), false)
    );
    assert!(
        ["nodev", "noatime"]
            .iter()
            .all(|option| mounted.options.iter().any(|is| is == option)),
        "{:?}",
        mounted.options
    );

    let source = BindSource::Staged {
        place: staged.clone(),
        device: loop_device.node.clone(),
    };
    stage
        .twice(Step::Bind {
            source: source.clone(),
            target: pod.clone(),
            read_only: false,
        })
        .await;
    assert_eq!(
        stage
            .refused(Step::Bind {
                source: source.clone(),
                target: pod.clone(),
                read_only: true
            })
            .await
            .0,
        StepErrorKind::AlreadyExists
    );
    stage
        .twice(Step::Bind {
            source: source.clone(),
            target: stage.place("reader"),
            read_only: true,
        })
        .await;
    let other = stage.attached("other.img", 64 * MIB).await;
    stage.take(format(&other, "ext4")).await.expect("blank");
    crate::support::tools::mount_device(other.node.as_path(), "ext4", &stage.at("staged"), "");
    let (kind, why) = stage
        .refused(Step::Bind {
            source,
            target: stage.place("late"),
            read_only: false,
        })
        .await;
    assert!(
        kind == StepErrorKind::ForeignData
            && why.contains(&other.name)
            && why.contains("instead of this volume"),
        "mounted over: {why}"
    );
    assert!(!stage.at("late").exists());
    run("/usr/bin/umount", &[&stage.at("staged")]);
    std::fs::write(stage.at("pod/file"), "x").expect("the pod writes");
    assert_eq!(
        std::fs::read_to_string(stage.at("reader/file")).expect("the other reads"),
        "x"
    );
    let refused = std::fs::write(stage.at("reader/file"), "y").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(nix::libc::EROFS));

    let (kind, why) = stage
        .refused(Step::DetachImage {
            image: image.clone(),
        })
        .await;
    assert!(
        kind == StepErrorKind::InUse && why.contains("staged"),
        "{why}"
    );
    assert_eq!(
        stage
            .refused(Step::RemoveImage {
                image: image.clone(),
                wipe: Wipe::Zero
            })
            .await
            .0,
        StepErrorKind::InUse
    );
    let open = std::fs::File::open(stage.at("pod/file")).expect("open");
    let (kind, why) = stage
        .refused(Step::Unmount {
            target: pod.clone(),
            lazy: false,
        })
        .await;
    assert!(
        kind == StepErrorKind::InUse && why.contains(&std::process::id().to_string()),
        "{why}"
    );
    assert_eq!(
        stage
            .refused(Step::RemoveTarget {
                target: pod.clone()
            })
            .await
            .0,
        StepErrorKind::InUse
    );
    drop(open);
    for place in ["pod", "reader", "staged"] {
        stage
            .twice(Step::Unmount {
                target: stage.place(place),
                lazy: false,
            })
            .await;
        stage
            .twice(Step::RemoveTarget {
                target: stage.place(place),
            })
            .await;
    }
    assert_eq!(
        stage.twice(Step::FindMount { target: staged }).await,
        StepOutput::Mounted { mounted: None }
    );
    stage
        .twice(Step::DetachImage {
            image: image.clone(),
        })
        .await;
    assert_eq!(
        stage
            .twice(Step::FindImage {
                image: image.clone()
            })
            .await,
        StepOutput::Empty
    );
    stage
        .twice(Step::RemoveImage {
            image: image.clone(),
            wipe: Wipe::Zero,
        })
        .await;
    assert!(!image.as_path().exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_filesystem_with_an_installed_mkfs_is_made_and_grown() {
    for (fs_type, before, after) in [("xfs", 320, 512), ("btrfs", 256, 512), ("ext4", 64, 256)] {
        let stage = Stage::new();
        let loop_device = stage.attached("v.img", before * MIB).await;
        stage
            .take(format(&loop_device, fs_type))
            .await
            .expect("blank");
        let at = stage.place("staged");
        stage
            .twice(mount(&loop_device, at.clone(), fs_type, false))
            .await;
        let size = || {
            let seen = statvfs(&stage.at("staged"));
            seen.blocks() * seen.fragment_size()
        };
        let was = size();
        stage
            .twice(Step::GrowImage {
                image: stage.image("v.img"),
                size: after * MIB,
            })
            .await;
        let grow = Step::GrowFilesystem {
            device: loop_device.node.clone(),
            at: at.clone(),
            fs_type: fs_type.to_owned(),
        };
        match stage.take(grow.clone()).await {
            Ok(_) => {}
            // A container without CAP_SYS_RESOURCE: then offline, and mounted again.
            Err(error) => {
                assert!(
                    fs_type == "ext4"
                        && error.kind == StepErrorKind::Unsupported
                        && error.message.contains("CAP_SYS_RESOURCE"),
                    "{error:?}"
                );
                assert_eq!(size(), was);
                stage
                    .twice(Step::Unmount {
                        target: at.clone(),
                        lazy: false,
                    })
                    .await;
                stage.twice(grow.clone()).await;
                stage
                    .twice(mount(&loop_device, at.clone(), fs_type, false))
                    .await;
            }
        }
        assert!(
            size() > was + (after - before) * MIB * 8 / 10,
            "{fs_type}: {was} -> {}",
            size()
        );
        if fs_type != "ext4" {
            stage.twice(grow).await;
        }
        stage
            .twice(Step::Unmount {
                target: at,
                lazy: false,
            })
            .await;
        stage
            .twice(Step::DetachImage {
                image: stage.image("v.img"),
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_volume_is_the_device_at_the_pods_path() {
    let stage = Stage::new();
    let loop_device = stage.attached("v.img", 8 * MIB).await;
    let target = stage.place("dev");
    let step = Step::BindDevice {
        device: loop_device.node.clone(),
        target: target.clone(),
        read_only: false,
    };
    stage.twice(step).await;
    let (shown, node) = (
        std::fs::metadata(stage.at("dev")),
        std::fs::metadata(loop_device.node.as_path()),
    );
    let (shown, node) = (shown.expect("the place"), node.expect("the node"));
    assert!(shown.file_type().is_block_device() && shown.rdev() == node.rdev());
    let other = stage.attached("w.img", 8 * MIB).await;
    let step = Step::BindDevice {
        device: other.node.clone(),
        target: target.clone(),
        read_only: false,
    };
    assert_eq!(stage.refused(step).await.0, StepErrorKind::AlreadyExists);
    // Writing through the place works: it is a device node, whatever is usual for filesystems.
    std::fs::File::options()
        .write(true)
        .open(stage.at("dev"))
        .expect("a device");
    let folder = Step::Bind {
        source: BindSource::Directory {
            path: path(&stage.scene.path("images")),
        },
        target,
        read_only: false,
    };
    assert_eq!(stage.refused(folder).await.0, StepErrorKind::AlreadyExists);
    stage
        .twice(Step::Unmount {
            target: stage.place("dev"),
            lazy: false,
        })
        .await;
    stage
        .twice(Step::RemoveTarget {
            target: stage.place("dev"),
        })
        .await;
    let resolved = stage
        .twice(Step::ResolveDevice {
            path: loop_device.node.clone(),
        })
        .await;
    assert_eq!(device(resolved), loop_device);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_open_stays_attached_and_its_opener_is_named() {
    let stage = Stage::new();
    let loop_device = stage.attached("v.img", 8 * MIB).await;
    let open = std::fs::File::open(loop_device.node.as_path()).expect("open");
    let detach = Step::DetachImage {
        image: stage.image("v.img"),
    };
    let (kind, why) = stage.refused(detach.clone()).await;
    assert!(
        kind == StepErrorKind::InUse && why.contains(&std::process::id().to_string()),
        "{why}"
    );
    drop(open);
    // It has not been left to go with its last user.
    assert_eq!(
        device(
            stage
                .twice(Step::FindImage {
                    image: stage.image("v.img")
                })
                .await
        ),
        loop_device
    );
    stage.twice(detach).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_has_no_room_leaves_nothing_behind() {
    let stage = Stage::new();
    let pool = stage.scene.path("mnt/pool");
    mount_with("dvhw".as_ref(), "tmpfs", &pool, MsFlags::empty(), "size=8m");
    let image = path(&pool.join("v.img"));
    assert_eq!(
        stage
            .refused(Step::CreateImage {
                image: image.clone(),
                size: 64 * MIB
            })
            .await
            .0,
        StepErrorKind::NoSpace
    );
    assert_eq!(std::fs::read_dir(&pool).expect("the pool").count(), 0);
    stage
        .twice(Step::CreateImage {
            image: image.clone(),
            size: 2 * MIB,
        })
        .await;
    assert_eq!(
        stage
            .refused(Step::GrowImage {
                image,
                size: 64 * MIB
            })
            .await
            .0,
        StepErrorKind::NoSpace
    );
    let StepOutput::Capacity(room) = stage
        .twice(Step::DirectoryCapacity {
            folder: path(&pool),
        })
        .await
    else {
        panic!("no room")
    };
    assert_eq!((room.total, room.available), (8 * MIB, 6 * MIB));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_mounts_at_a_path_are_unmounted_and_mounts_below_it_are_named() {
    let stage = Stage::new();
    for _ in 0..3 {
        mount_with(
            "dvhw".as_ref(),
            "tmpfs",
            &stage.at("pod"),
            MsFlags::empty(),
            "size=1m",
        );
    }
    stage
        .twice(Step::Unmount {
            target: stage.place("pod"),
            lazy: false,
        })
        .await;
    mount_with(
        "dvhw".as_ref(),
        "tmpfs",
        &stage.at("pod"),
        MsFlags::empty(),
        "size=1m",
    );
    mount_with(
        "dvhw".as_ref(),
        "tmpfs",
        &stage.at("pod/below"),
        MsFlags::empty(),
        "size=1m",
    );
    let (kind, why) = stage
        .refused(Step::Unmount {
            target: stage.place("pod"),
            lazy: false,
        })
        .await;
    assert!(
        kind == StepErrorKind::InUse && why.contains("pod/below is mounted below it"),
        "{why}"
    );
    stage
        .twice(Step::Unmount {
            target: stage.place("pod"),
            lazy: true,
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_kept_and_a_refused_mount_reports_the_kernels_error() {
    let stage = Stage::new();
    let folder = path(&stage.scene.path("mnt/records"));
    let write = Step::WriteRecord {
        folder: folder.clone(),
        name: "a.json".to_owned(),
        text: "{}".to_owned(),
    };
    stage.twice(write).await;
    let StepOutput::Records { records } = stage
        .twice(Step::ReadRecords {
            folder: folder.clone(),
        })
        .await
    else {
        panic!("no records")
    };
    assert_eq!(records.len(), 1);
    stage
        .twice(Step::RemoveRecord {
            folder,
            name: "a.json".to_owned(),
        })
        .await;
    let loop_device = stage.attached("v.img", 64 * MIB).await;
    stage
        .take(format(&loop_device, "ext4"))
        .await
        .expect("blank");
    let step = |options: &str, fs_type: &str| Step::Mount {
        device: loop_device.node.clone(),
        target: stage.place("staged"),
        fs_type: fs_type.to_owned(),
        options: vec![options.to_owned()],
        read_only: false,
    };
    let (kind, why) = stage.refused(step("nonsense=1", "ext4")).await;
    assert!(
        kind == StepErrorKind::Unsupported && why.contains("nonsense"),
        "{why}"
    );
    assert_eq!(
        stage.refused(step("noatime", "nonsense")).await.0,
        StepErrorKind::Unsupported
    );
    assert_eq!(
        stage.refused(step("noatime", "xfs")).await.0,
        StepErrorKind::Other
    );
    assert_eq!(
        stage
            .twice(Step::FindMount {
                target: stage.place("staged")
            })
            .await,
        StepOutput::Mounted { mounted: None }
    );
    if !["/usr/sbin/lvm", "/sbin/lvm"]
        .iter()
        .any(|lvm| std::path::Path::new(lvm).exists())
    {
        let (kind, why) = stage
            .refused(Step::VolumeGroupCapacity {
                group: "vg".to_owned(),
            })
            .await;
        assert!(
            kind == StepErrorKind::Unsupported && why.contains("lvm is not installed"),
            "{why}"
        );
    }
}
