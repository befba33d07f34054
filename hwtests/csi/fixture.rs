//! Fixture of the CSI tests: a daemon with a pool, the shim in front of it, a volume with its
//! paths, and checks for leftovers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diskvitals_csi::wire::VolumeCapability;
use diskvitals_csi::wire::volume_capability::access_mode::Mode;
use tonic::{Code, Status};

use crate::support::daemon::{Arguments, config};
use crate::support::shim::{Csi, DRIVER, Shim, block, mount, pool};
use crate::support::{Daemon, SOON, Testbed, eventually, pause};

pub const MIB: i64 = 1 << 20;
pub const POD: &str = "7a000000-0000-4000-8000-00000000000";

/// With a pool. More configuration can be appended.
pub fn configure(testbed: &Testbed, more: &str) -> Arguments {
    std::fs::write(testbed.path("diskvitals.toml"), format!("{}{}{more}", config(), pool(testbed)))
        .expect("the configuration");
    Arguments::of(testbed)
}

pub async fn both(testbed: &Testbed, more: &str) -> (Daemon, Shim) {
    let daemon = Daemon::start_with(&configure(testbed, more)).await;
    let shim = Shim::start(testbed, &[]).await;
    (daemon, shim)
}

/// One volume as the kubelet uses it.
#[derive(Clone, Debug)]
pub struct Volume {
    pub handle: String,
    pub staging: PathBuf,
    pub target: PathBuf,
    pub capability: VolumeCapability,
}

pub fn ext4() -> VolumeCapability {
    mount(Mode::SingleNodeWriter, "ext4")
}

pub fn raw() -> VolumeCapability {
    block(Mode::SingleNodeWriter)
}

fn is_block(capability: &VolumeCapability) -> bool {
    matches!(
        capability.access_type,
        Some(diskvitals_csi::wire::volume_capability::AccessType::Block(_))
    )
}

/// With the kubelet's records, which exist before the driver is called.
pub fn claim(testbed: &Testbed, handle: &str, pv: &str, capability: VolumeCapability) -> Volume {
    let pod = format!("{POD}{}", pv.len() % 10);
    if is_block(&capability) {
        let target = testbed.kubelet.publish_block(DRIVER, handle, pv, &pod);
        let staging =
            testbed.kubelet.root().join("plugins/kubernetes.io/csi/volumeDevices/staging").join(pv);
        return Volume { handle: handle.to_owned(), staging, target, capability };
    }
    let staging = testbed.kubelet.stage(DRIVER, handle);
    let target = testbed.kubelet.publish(DRIVER, handle, pv, &pod);
    // The kubelet creates only the parent directory.
    std::fs::remove_dir(&target).expect("the target");
    Volume { handle: handle.to_owned(), staging, target, capability }
}

impl Volume {
    pub async fn stage(&self, csi: &Csi) -> Result<(), Status> {
        csi.stage(&self.handle, &self.staging, self.capability.clone()).await
    }

    pub async fn publish(&self, csi: &Csi) -> Result<(), Status> {
        csi.publish(&self.handle, &self.staging, &self.target, self.capability.clone(), false).await
    }

    pub async fn unpublish(&self, csi: &Csi) -> Result<(), Status> {
        csi.unpublish(&self.handle, &self.target).await
    }

    pub async fn unstage(&self, csi: &Csi) -> Result<(), Status> {
        csi.unstage(&self.handle, &self.staging).await
    }

    pub async fn up(&self, csi: &Csi) {
        done(&format!("stage {}", self.handle), || self.stage(csi)).await;
        done(&format!("publish {}", self.handle), || self.publish(csi)).await;
    }

    /// Takes the volume down and deletes it.
    pub async fn down(&self, csi: &Csi) {
        done(&format!("unpublish {}", self.handle), || self.unpublish(csi)).await;
        done(&format!("unstage {}", self.handle), || self.unstage(csi)).await;
        done(&format!("delete {}", self.handle), || csi.delete(&self.handle)).await;
        assert!(!self.target.exists(), "{} is left", self.target.display());
    }
}

/// Like the kubelet: a call that exceeds its deadline on a busy disk is repeated, and continues in
/// the meantime.
pub async fn done<T, F: Future<Output = Result<T, Status>>>(what: &str, call: impl Fn() -> F) -> T {
    for _ in 0..5 {
        match call().await {
            Ok(answer) => return answer,
            Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Aborted) => {
                println!("{what}: {}", status.message());
                pause(Duration::from_millis(500)).await;
            }
            Err(status) => panic!("{what}: {status}"),
        }
    }
    panic!("{what}: not done in five attempts");
}

/// Mount points at or below `at`, from the kernel's mount table.
pub fn mounts_below(at: &Path) -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let points = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| Path::new(point).starts_with(at));
    points.map(str::to_owned).collect()
}

/// Loop devices over files below `at`.
pub fn loops_below(at: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").expect("/sys/block").flatten();
    let backing = |name: &str| {
        std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default()
    };
    devices
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| Path::new(backing(name).trim_end()).starts_with(at))
        .collect()
}

pub fn images(testbed: &Testbed) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(testbed.path("pool/images")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// No mount, no loop device, no image, no volume, no note.
pub async fn nothing_is_left(testbed: &Testbed, csi: &Csi) {
    eventually("all volumes are gone", SOON, async || csi.list().await.is_empty().then_some(()))
        .await;
    assert_eq!(mounts_below(testbed.kubelet.root()), Vec::<String>::new());
    assert_eq!(loops_below(&testbed.path("pool")), Vec::<String>::new());
    assert_eq!(images(testbed), Vec::<PathBuf>::new());
    for folder in ["volumes", "intents", "attachments", "formats"] {
        let entries =
            std::fs::read_dir(testbed.path("pool").join(folder)).into_iter().flatten().flatten();
        assert_eq!(
            entries.map(|entry| entry.path()).collect::<Vec<_>>(),
            Vec::<PathBuf>::new(),
            "in {folder}"
        );
    }
}
