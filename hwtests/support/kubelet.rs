//! A directory with the kubelet's records of CSI volumes, in the format of the kubelet 1.24 and
//! later (pkg/volume/csi: csi_attacher.go, csi_mounter.go, csi_block.go, csi_util.go). The tests
//! make the mounts that the records describe.

use std::path::{Path, PathBuf};

use super::tools;

pub struct Kubelet {
    root: PathBuf,
}

impl Kubelet {
    pub fn new(root: PathBuf) -> Kubelet {
        for folder in ["plugins/kubernetes.io/csi", "pods"] {
            std::fs::create_dir_all(root.join(folder)).expect("the kubelet's folder");
        }
        Kubelet { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// MountDevice: the record of a staged volume. Returns the staging path, which exists and is
    /// empty.
    pub fn stage(&self, driver: &str, handle: &str) -> PathBuf {
        let folder = self.root.join("plugins/kubernetes.io/csi").join(driver).join(sha256(handle));
        let mount = folder.join("globalmount");
        std::fs::create_dir_all(&mount).expect("the staging path");
        write_json(&folder, &[("driverName", driver), ("volumeHandle", handle)]);
        mount
    }

    /// SetUpAt: the record of a volume published to a pod. Returns the pod's path, which exists and
    /// is empty.
    pub fn publish(&self, driver: &str, handle: &str, pv: &str, pod_uid: &str) -> PathBuf {
        let folder =
            self.root.join("pods").join(pod_uid).join("volumes/kubernetes.io~csi").join(pv);
        let mount = folder.join("mount");
        std::fs::create_dir_all(&mount).expect("the pod's path");
        write_json(&folder, &published(driver, handle, pv));
        mount
    }

    /// TearDownAt, after the unmount.
    pub fn unpublish(&self, pv: &str, pod_uid: &str) {
        std::fs::remove_dir_all(
            self.root.join("pods").join(pod_uid).join("volumes/kubernetes.io~csi").join(pv),
        )
        .expect("the pod's folder");
    }

    /// The records of a raw block volume. Returns the publish path, where the device's node is to
    /// be bound.
    pub fn publish_block(&self, driver: &str, handle: &str, pv: &str, pod_uid: &str) -> PathBuf {
        let devices = self.root.join("plugins/kubernetes.io/csi/volumeDevices");
        let data = devices.join(pv).join("data");
        std::fs::create_dir_all(&data).expect("the data folder");
        write_json(&data, &published(driver, handle, pv));
        std::fs::create_dir_all(devices.join("staging").join(pv)).expect("the staging path");
        std::fs::create_dir_all(devices.join("publish").join(pv))
            .expect("the publish path's folder");
        devices.join("publish").join(pv).join(pod_uid)
    }
}

fn published<'a>(driver: &'a str, handle: &'a str, pv: &'a str) -> [(&'a str, &'a str); 6] {
    [
        ("attachmentID", "csi-5ab76ec2ffe3f4a9e4dd6c8b1c7c6c4b7c5d5ee4a4e8a4f9d5d7b5e6f7a8b9c0"),
        ("driverName", driver),
        ("nodeName", "node-1"),
        ("specVolID", pv),
        ("volumeHandle", handle),
        ("volumeLifecycleMode", "Persistent"),
    ]
}

fn write_json(folder: &Path, fields: &[(&str, &str)]) {
    let object: serde_json::Map<_, _> =
        fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    std::fs::write(folder.join("vol_data.json"), serde_json::to_vec(&object).expect("JSON"))
        .expect("vol_data.json");
}

/// The kubelet names the staging folder by the handle's SHA-256 (csi_attacher.go,
/// makeDeviceMountPath).
fn sha256(text: &str) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("the handle");
    tools::run("/usr/bin/sha256sum", &[&file.path()])[..64].to_owned()
}
