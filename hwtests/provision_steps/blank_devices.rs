//! A device is never formatted without a proof that it is blank, and a deleted volume is wiped.

use std::os::unix::fs::FileExt;

use diskvitals_provision::step::{
    Content, Device, DeviceIdentity, FormatProof, ScanState, Step, StepErrorKind, StepOutput, Wipe,
};

use super::fixture::{Fixture, MIB, format, path};
use crate::support::tools::run;

fn write(device: &Device, at: u64, bytes: &[u8]) {
    let file =
        std::fs::File::options().write(true).open(device.node.as_path()).expect("the device");
    file.write_all_at(bytes, at).expect("its bytes");
    file.sync_all().expect("its bytes");
}

fn digest(device: &Device) -> String {
    run("/usr/bin/sha256sum", &[&device.node.as_path()])
}

async fn what(fixture: &Fixture, device: &Device) -> String {
    match fixture.twice(Step::ProbeContent { device: device.node.clone() }).await {
        StepOutput::Content(Content::Foreign { what }) => what,
        StepOutput::Content(Content::Unknown { at }) => format!("unknown data at {at}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_a_foreign_signature_is_refused_and_not_changed() {
    let fixture = Fixture::new();
    type Signature = (&'static str, fn(&Device), &'static str);
    let signatures: [Signature; 6] = [
        ("luks", |device| write(device, 0, b"LUKS\xba\xbe\0\x01"), "crypto_LUKS"),
        ("swap", |device| drop(run("/usr/sbin/mkswap", &[&device.node.as_path()])), "swap"),
        ("table", |device| write(device, 510, &[0x55, 0xaa]), "partition table"),
        (
            "lvm",
            |device| write(device, 512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001"),
            "",
        ),
        (
            "end",
            |device| write(device, device.size - 4096, b"something"),
            "unknown data at 99614720",
        ),
        ("copy", |device| write(device, 64 * MIB + 17, b"x"), "unknown data at 67108864"),
    ];
    for (name, write_signature, expected) in signatures {
        let device = fixture.attached(&format!("{name}.img"), 96 * MIB).await;
        write_signature(&device);
        let before = digest(&device);
        let what = what(&fixture, &device).await;
        assert!(what.contains(expected), "{name}: {what}");
        for fs_type in ["ext4", "xfs", "btrfs"] {
            let (kind, why) = fixture.refused(format(&device, fs_type)).await;
            assert_eq!(kind, StepErrorKind::ForeignData, "{name}, {fs_type}: {why}");
        }
        assert_eq!(digest(&device), before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_read_completely_and_any_write_makes_the_reading_void() {
    let fixture = Fixture::new();
    let device = fixture.attached("v.img", 256 * MIB).await;
    let scan = async |state: &ScanState| {
        let step = Step::Scan { device: device.node.clone(), state: state.clone(), tracked: true };
        match fixture.run(step).await.expect("it is read") {
            StepOutput::Scanned(state) => state,
            other => panic!("{other:?}"),
        }
    };
    let read_all = async |mut state: ScanState| {
        while state.data_at.is_none() && state.position < device.size {
            state = scan(&state).await;
        }
        state
    };
    let permitted = |state: &ScanState| {
        let Step::Format { device, fs_type, options, .. } = format(&device, "ext4") else {
            unreachable!()
        };
        Step::Format {
            device,
            fs_type,
            options,
            proof: FormatProof::Scanned { state: state.clone(), tracked: true },
        }
    };
    write(&device, 200 * MIB + 5, b"x");
    let before = digest(&device);
    let found = read_all(ScanState::default()).await;
    assert_eq!(found.data_at, Some(200 * MIB + 5));
    assert_eq!(scan(&found).await, found, "it is still there");
    let refused = fixture.refused(permitted(&found)).await;
    assert_eq!(refused.0, StepErrorKind::ForeignData, "{}", refused.1);
    assert_eq!(digest(&device), before);

    write(&device, 200 * MIB + 5, &[0]);
    let blank = read_all(scan(&found).await).await;
    assert_eq!((blank.data_at, blank.position), (None, device.size));
    // Written where no sample is taken, and cleared: nobody knows what it was.
    write(&device, 100 * MIB, b"y");
    let refused = fixture.refused(permitted(&blank)).await;
    assert!(
        refused.0 == StepErrorKind::ForeignData && refused.1.contains("has changed"),
        "{refused:?}"
    );
    write(&device, 100 * MIB, &[0]);
    let blank = read_all(scan(&blank).await).await;
    let another = ScanState {
        device: DeviceIdentity { name: Some("wwid naa.5000".to_owned()), ..blank.device.clone() },
        ..blank.clone()
    };
    assert_eq!(fixture.refused(permitted(&another)).await.0, StepErrorKind::ForeignData);
    fixture.run(permitted(&blank)).await.expect("it is blank");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_leftovers_of_an_interrupted_mkfs_are_wiped_before_a_retry() {
    let fixture = Fixture::new();
    let again = |device: &Device, fs_type: &str| Step::RepeatFormat {
        device: device.node.clone(),
        expected: device.device_identity(),
        fs_type: fs_type.to_owned(),
        options: vec!["-L".to_owned(), "again".to_owned()],
    };
    let device = fixture.attached("v.img", 64 * MIB).await;
    write(&device, 4096, &[7; 100_000]);
    let before = digest(&device);
    let other = fixture.attached("other.img", 64 * MIB).await;
    assert_ne!(device.identity, other.identity);
    let smaller = DeviceIdentity { size: 32 * MIB, ..device.device_identity() };
    for was in [
        other.device_identity(),
        smaller,
        DeviceIdentity::default(),
        DeviceIdentity { name: None, ..device.device_identity() },
    ] {
        let step = Step::RepeatFormat {
            device: device.node.clone(),
            expected: was,
            fs_type: "ext4".to_owned(),
            options: Vec::new(),
        };
        let (kind, why) = fixture.refused(step).await;
        assert!(
            kind == StepErrorKind::ForeignData && why.contains("is not known to be the device"),
            "{why}"
        );
    }
    assert_eq!(digest(&device), before);
    assert_eq!(fixture.refused(format(&device, "ext4")).await.0, StepErrorKind::ForeignData);
    fixture.run(again(&device, "ext4")).await.expect("what was left is cleared");
    fixture.run(again(&device, "ext4")).await.expect("its own type is what it may have left");
    let before = digest(&device);
    assert_eq!(fixture.refused(again(&device, "btrfs")).await.0, StepErrorKind::ForeignData);
    write(&device, 510, &[0x55, 0xaa]);
    assert_eq!(fixture.refused(again(&device, "btrfs")).await.0, StepErrorKind::ForeignData);
    write(&device, 510, &[0, 0]);
    assert_eq!(digest(&device), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_of_mkfs_are_wiped_unless_the_device_is_in_use() {
    let fixture = Fixture::new();
    for fs_type in ["ext4", "btrfs", "xfs"] {
        let device = fixture.attached(&format!("{fs_type}.img"), 320 * MIB).await;
        fixture.run(format(&device, fs_type)).await.expect("blank");
        fixture
            .twice(super::fixture::mount(&device, fixture.target(fs_type), fs_type, false))
            .await;
        assert_eq!(
            fixture.refused(Step::WipeSignatures { device: device.node.clone() }).await.0,
            StepErrorKind::InUse,
            "{fs_type}"
        );
        fixture.twice(Step::Unmount { target: fixture.target(fs_type), lazy: false }).await;
        fixture.twice(Step::WipeSignatures { device: device.node.clone() }).await;
        assert_eq!(
            fixture.twice(Step::ProbeContent { device: device.node.clone() }).await,
            StepOutput::Content(Content::Blank),
            "{fs_type}"
        );
        fixture.run(format(&device, "ext4")).await.expect("blank again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_mkfs_is_reported_with_its_output() {
    let fixture = Fixture::new();
    let device = fixture.attached("v.img", 16 * MIB).await;
    let (kind, why) = fixture.refused(format(&device, "xfs")).await;
    assert!(kind == StepErrorKind::Other && why.contains("mkfs.xfs"), "{why}");
    assert_eq!(fixture.refused(format(&device, "vfat")).await.0, StepErrorKind::Unsupported);
    assert_eq!(
        fixture.twice(Step::ProbeContent { device: device.node.clone() }).await,
        StepOutput::Content(Content::Blank)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_a_deleted_volume_is_not_left_on_the_pool_disk() {
    const SECRET: &[u8] = b"diskvitals-secret-that-must-not-be-found";
    let fixture = Fixture::new();
    let disk = fixture.testbed.ext4("pool.img", 64, &["-O", "^has_journal"]);
    let pool = fixture.at("pool");
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
        fixture.twice(Step::CreateImage { image: image.clone(), size: 16 * MIB }).await;
        let device = super::fixture::device(
            fixture.twice(Step::AttachImage { image: image.clone(), read_only: false }).await,
        );
        write(&device, 8 * MIB, SECRET);
        fixture.twice(Step::DetachImage { image: image.clone() }).await;
        assert!(on_disk() >= 1, "it was written");
        fixture.twice(Step::RemoveImage { image: image.clone(), wipe }).await;
        if wipe == Wipe::Zero {
            assert_eq!(on_disk(), left);
        } else {
            assert!(on_disk() >= left, "the test would see nothing");
        }
        // The leftovers of the first round are overwritten before the second.
        std::fs::write(pool.join("fill"), vec![0; 40 << 20]).ok();
        run("/usr/bin/sync", &[]);
        std::fs::remove_file(pool.join("fill")).expect("the fill");
    }
}
