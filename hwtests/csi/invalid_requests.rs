//! Invalid requests: the status code of the CSI specification, a message that names the field, no
//! mount and no leftovers.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use diskvitals_csi::wire::volume_capability::access_mode::Mode;
use diskvitals_csi::wire::{CapacityRange, CreateVolumeRequest, VolumeCapability};
use tonic::{Code, Status};

use super::fixture::{MIB, both, claim, ext4, mounts_below, nothing_is_left};
use crate::support::Testbed;
use crate::support::shim::{Csi, block, mount};

async fn create(csi: &Csi, change: impl FnOnce(&mut CreateVolumeRequest)) -> Status {
    let mut request = CreateVolumeRequest {
        name: "pvc-wrong".to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 8 * MIB, limit_bytes: 0 }),
        volume_capabilities: vec![ext4()],
        ..Default::default()
    };
    change(&mut request);
    csi.controller().create_volume(request.clone()).await.expect_err(&format!("{request:?}"))
}

fn parameter(key: &str, value: &str) -> impl FnOnce(&mut CreateVolumeRequest) {
    let (key, value) = (key.to_owned(), value.to_owned());
    move |request| {
        request.parameters.insert(key, value);
    }
}

fn capacity(required_bytes: i64, limit_bytes: i64) -> impl FnOnce(&mut CreateVolumeRequest) {
    move |request| request.capacity_range = Some(CapacityRange { required_bytes, limit_bytes })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_volumes_are_refused_and_nothing_is_created() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let is = |status: &Status, code: Code, names: &str| {
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(names), "no `{names}` in: {status}");
    };
    is(&create(csi, |request| request.name.clear()).await, Code::InvalidArgument, "name");
    is(
        &create(csi, |request| request.volume_capabilities.clear()).await,
        Code::InvalidArgument,
        "volume_capabilities",
    );
    is(
        &create(csi, |request| request.volume_capabilities = vec![VolumeCapability::default()])
            .await,
        Code::InvalidArgument,
        "volume_capabilities",
    );
    is(&create(csi, capacity(-1, 0)).await, Code::OutOfRange, "required_bytes");
    is(&create(csi, capacity(i64::MAX, 0)).await, Code::OutOfRange, "");
    is(&create(csi, capacity(8 * MIB, 4 * MIB)).await, Code::OutOfRange, "limit_bytes");
    is(
        &create(csi, parameter("diskvitals.io/kind", "floppy")).await,
        Code::InvalidArgument,
        "diskvitals.io/kind",
    );
    is(
        &create(csi, parameter("no-such-parameter", "x")).await,
        Code::InvalidArgument,
        "no-such-parameter",
    );
    for options in
        ["-n", "-F", "-J device=/dev/sda", "-E -x", "/dev/sda", "-d /etc/passwd", "--help"]
    {
        is(
            &create(csi, parameter("diskvitals.io/mkfs-options", options)).await,
            Code::InvalidArgument,
            "mkfs-options",
        );
    }
    is(
        &create(csi, |request| {
            request.volume_capabilities = vec![mount(Mode::SingleNodeWriter, "ntfs")]
        })
        .await,
        Code::InvalidArgument,
        "fs_type",
    );
    is(
        &create(csi, |request| {
            request.volume_capabilities = vec![mount(Mode::MultiNodeMultiWriter, "ext4")]
        })
        .await,
        Code::InvalidArgument,
        "access_mode",
    );
    // A name of ten megabytes: refused, and the next call is answered.
    let large = create(csi, |request| request.name = "x".repeat(10 << 20)).await;
    assert!(
        matches!(large.code(), Code::InvalidArgument | Code::ResourceExhausted | Code::OutOfRange),
        "{}",
        large.code()
    );
    nothing_is_left(&testbed, csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_outside_the_kubelets_folder_are_refused_and_nothing_is_mounted() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let handle = csi.create("pvc-a", 8 * MIB, ext4()).await.expect("made");
    let volume = claim(&testbed, &handle, "pvc-a", ext4());
    let outside = testbed.path("outside");
    std::fs::create_dir_all(&outside).expect("a folder");
    let root = testbed.kubelet.root().to_owned();
    let link = root.join("pods/link");
    symlink(&outside, &link).expect("a link");
    let wrong: Vec<PathBuf> = vec![
        PathBuf::from("relative/path"),
        outside.clone(),
        root.join("pods/../../outside/x"),
        link.join("x"),
        PathBuf::from("/"),
        root.clone(),
        root.join("with\u{7}bell/../x"),
    ];
    for path in &wrong {
        let staged = csi.stage(&handle, path, ext4()).await.expect_err(&path.display().to_string());
        assert_eq!(staged.code(), Code::InvalidArgument, "{}: {staged}", path.display());
        assert!(staged.message().contains("staging_target_path"), "{staged}");
    }
    volume.stage(csi).await.expect("staged");
    for path in &wrong {
        let published = csi
            .publish(&handle, &volume.staging, path, ext4(), false)
            .await
            .expect_err(&path.display().to_string());
        assert_eq!(published.code(), Code::InvalidArgument, "{}: {published}", path.display());
        assert!(published.message().contains("target_path"), "{published}");
    }
    // A link where the target should be.
    symlink(&outside, &volume.target).expect("a link");
    let published = volume.publish(csi).await.expect_err("a link");
    assert!(
        matches!(published.code(), Code::InvalidArgument | Code::FailedPrecondition),
        "{published}"
    );
    std::fs::remove_file(&volume.target).expect("removed");
    assert_eq!(mounts_below(&outside), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&outside).expect("readable").count(), 0);
    // A process that swaps a directory and a link all the time gains nothing.
    volume.publish(csi).await.expect("published");
    volume.down(csi).await;
    nothing_is_left(&testbed, csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_are_looked_up_and_are_never_part_of_a_path() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let staging = testbed.kubelet.stage("csi.diskvitals.io", "x");
    for handle in [
        "no-such",
        "../../../etc/passwd",
        "a/b",
        "-rf",
        "$(reboot)",
        "dv-\u{0}x",
        &"x".repeat(1000),
    ] {
        let staged = csi.stage(handle, &staging, ext4()).await.expect_err(handle);
        assert_eq!(staged.code(), Code::NotFound, "{handle:?}: {staged}");
        csi.delete(handle).await.unwrap_or_else(|status| {
            panic!("deleting {handle:?}, which there never was: {status}")
        });
    }
    assert_eq!(
        csi.stage("", &staging, ext4()).await.expect_err("no handle").code(),
        Code::InvalidArgument
    );
    assert_eq!(
        csi.stage("x", Path::new(""), ext4()).await.expect_err("no path").code(),
        Code::InvalidArgument
    );
    nothing_is_left(&testbed, csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_refused_with_another_size_or_capability() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let handle = csi.create("pvc-a", 8 * MIB, ext4()).await.expect("made");
    let volume = claim(&testbed, &handle, "pvc-a", ext4());
    let same_name = csi.create("pvc-a", 64 * MIB, ext4()).await.expect_err("another size");
    assert_eq!(same_name.code(), Code::AlreadyExists, "{same_name}");
    volume.stage(csi).await.expect("staged");
    let other = csi
        .stage(&handle, &volume.staging, block(Mode::SingleNodeWriter))
        .await
        .expect_err("staged as a filesystem");
    assert!(
        matches!(
            other.code(),
            Code::AlreadyExists | Code::InvalidArgument | Code::FailedPrecondition
        ),
        "{other}"
    );
    volume.down(csi).await;
    nothing_is_left(&testbed, csi).await;
    daemon.stop().await;
}
