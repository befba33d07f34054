//! What is not proven blank is never written over, and what is let go is wiped.

use std::os::unix::fs::FileExt;

use diskvitals::provision::step::{
    Content, Device, DeviceIdentity, Step, StepErrorKind, StepOutput, Wipe,
};

use super::stage::{MIB, Stage, format, path};
use crate::support::tools::run;

fn write(device: &Device, at: u64, bytes: &[u8]) {
    let file = std::fs::File::options()
        .write(true)
        .open(device.node.as_path())
        .expect("the device");
    file.write_all_at(bytes, at).expect("its bytes");
    file.sync_all().expect("its bytes");
}

fn digest(device: &Device) -> String {
    run("/usr/bin/sha256sum", &[&device.node.as_path()])
}

async fn what(stage: &Stage, device: &Device) -> String {
    match stage
        .twice(Step::ProbeContent {
            device: device.node.clone(),
        })
        .await
    {
        StepOutput::Content(Content::Foreign { what }) => what,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_a_foreign_signature_is_refused_and_not_changed() {
    let stage = Stage::new();
    type Sign = (&'static str, fn(&Device), &'static str);
    let signs: [Sign; 6] = [
        (
            "luks",
            |device| write(device, 0, b"LUKS\xba\xbe\0\x01"),
            "crypto_LUKS",
        ),
        (
            "swap",
            |device| drop(run("/usr/sbin/mkswap", &[&device.node.as_path()])),
            "swap",
        ),
        (
            "table",
            |device| write(device, 510, &[0x55, 0xaa]),
            "partition table",
        ),
        (
            "lvm",
            |device| {
                write(
                    device,
                    512,
                    b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001",
                )
            },
            "",
        ),
        (
            "end",
            |device| write(device, device.size - 4096, b"something"),
            "without a known signature",
        ),
        (
            "copy",
            |device| write(device, 64 * MIB + 17, b"x"),
            "without a known signature",
        ),
    ];
    for (name, sign, told) in signs {
        let device = stage.attached(&format!("{name}.img"), 96 * MIB).await;
        sign(&device);
        let before = digest(&device);
        let what = what(&stage, &device).await;
        assert!(what.contains(told), "{name}: {what}");
        for fs_type in ["ext4", "xfs", "btrfs"] {
            let (kind, why) = stage.refused(format(&device, fs_type)).await;
            assert_eq!(kind, StepErrorKind::ForeignData, "{name}, {fs_type}: {why}");
        }
        assert_eq!(digest(&device), before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_leftovers_of_an_interrupted_mkfs_are_wiped_before_a_retry() {
    let stage = Stage::new();
    let again = |device: &Device, fs_type: &str| Step::RepeatFormat {
        device: device.node.clone(),
        expected: device.device_identity(),
        fs_type: fs_type.to_owned(),
        options: vec!["-L".to_owned(), "again".to_owned()],
    };
    let device = stage.attached("v.img", 64 * MIB).await;
    write(&device, 4096, &[7; 100_000]);
    let before = digest(&device);
    let other = stage.attached("other.img", 64 * MIB).await;
    assert_ne!(device.identity, other.identity);
    let smaller = DeviceIdentity {
        size: 32 * MIB,
        ..device.device_identity()
    };
    for was in [
        other.device_identity(),
        smaller,
        DeviceIdentity::default(),
        DeviceIdentity {
            name: None,
            ..device.device_identity()
        },
    ] {
        let step = Step::RepeatFormat {
            device: device.node.clone(),
            expected: was,
            fs_type: "ext4".to_owned(),
            options: Vec::new(),
        };
        let (kind, why) = stage.refused(step).await;
        assert!(
            kind == StepErrorKind::ForeignData && why.contains("is not known to be the device"),
            "{why}"
        );
    }
    assert_eq!(digest(&device), before);
    assert_eq!(
        stage.refused(format(&device, "ext4")).await.0,
        StepErrorKind::ForeignData
    );
    stage
        .take(again(&device, "ext4"))
        .await
        .expect("what was left is cleared");
    stage
        .take(again(&device, "ext4"))
        .await
        .expect("its own type is what it may have left");
    let before = digest(&device);
    assert_eq!(
        stage.refused(again(&device, "btrfs")).await.0,
        StepErrorKind::ForeignData
    );
    write(&device, 510, &[0x55, 0xaa]);
    assert_eq!(
        stage.refused(again(&device, "btrfs")).await.0,
        StepErrorKind::ForeignData
    );
    write(&device, 510, &[0, 0]);
    assert_eq!(digest(&device), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_of_mkfs_are_wiped_unless_the_device_is_in_use() {
    let stage = Stage::new();
    for fs_type in ["ext4", "btrfs", "xfs"] {
        let device = stage.attached(&format!("{fs_type}.img"), 320 * MIB).await;
        stage.take(format(&device, fs_type)).await.expect("blank");
        stage
            .twice(super::stage::mount(
                &device,
                stage.place(fs_type),
                fs_type,
                false,
            ))
            .await;
        assert_eq!(
            stage
                .refused(Step::WipeSignatures {
                    device: device.node.clone()
                })
                .await
                .0,
            StepErrorKind::InUse,
            "{fs_type}"
        );
        stage
            .twice(Step::Unmount {
                target: stage.place(fs_type),
                lazy: false,
            })
            .await;
        stage
            .twice(Step::WipeSignatures {
                device: device.node.clone(),
            })
            .await;
        assert_eq!(
            stage
                .twice(Step::ProbeContent {
                    device: device.node.clone()
                })
                .await,
            StepOutput::Content(Content::Blank),
            "{fs_type}"
        );
        stage
            .take(format(&device, "ext4"))
            .await
            .expect("blank again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_mkfs_is_reported_with_its_output() {
    let stage = Stage::new();
    let device = stage.attached("v.img", 16 * MIB).await;
    let (kind, why) = stage.refused(format(&device, "xfs")).await;
    assert!(
        kind == StepErrorKind::Other && why.contains("mkfs.xfs"),
        "{why}"
    );
    assert_eq!(
        stage.refused(format(&device, "vfat")).await.0,
        StepErrorKind::Unsupported
    );
    assert_eq!(
        stage
            .twice(Step::ProbeContent {
                device: device.node.clone()
            })
            .await,
        StepOutput::Content(Content::Blank)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_a_deleted_volume_is_not_left_on_the_pool_disk() {
    const SECRET: &[u8] = b"diskvitals-secret-that-must-not-be-found";
    let stage = Stage::new();
    let disk = stage.scene.ext4("pool.img", 64, &["-O", "^has_journal"]);
    let pool = stage.at("pool");
    crate::support::tools::mount_device(&disk.device, "ext4", &pool, "");
    let image = path(&pool.join("v.img"));
    let on_disk = || {
        run("/usr/bin/sync", &[]);
        std::fs::read(&disk.image)
            .expect("the disk")
            .windows(SECRET.len())
            .filter(|bytes| *bytes == SECRET)
            .count()
    };
    for (wipe, left) in [(Wipe::None, 1), (Wipe::Zero, 0)] {
        std::fs::write(pool.join("zeros"), vec![0; 20 << 20]).expect("zeros");
        std::fs::remove_file(pool.join("zeros")).expect("zeros");
        stage
            .twice(Step::CreateImage {
                image: image.clone(),
                size: 16 * MIB,
            })
            .await;
        let device = super::stage::device(
            stage
                .twice(Step::AttachImage {
                    image: image.clone(),
                    read_only: false,
                })
                .await,
        );
        write(&device, 8 * MIB, SECRET);
        stage
            .twice(Step::DetachImage {
                image: image.clone(),
            })
            .await;
        assert!(on_disk() >= 1, "it was written");
        stage
            .twice(Step::RemoveImage {
                image: image.clone(),
                wipe,
            })
            .await;
        if wipe == Wipe::Zero {
            assert_eq!(on_disk(), left);
        } else {
            assert!(on_disk() >= left, "the test would see nothing");
        }
        // What the first round left is overwritten before the second.
        std::fs::write(pool.join("fill"), vec![0; 40 << 20]).ok();
        run("/usr/bin/sync", &[]);
        std::fs::remove_file(pool.join("fill")).expect("the fill");
    }
}
