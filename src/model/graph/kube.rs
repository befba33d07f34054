//! The kubelet's folder names: which pod and volume a mount point below the kubelet's root belongs to.
//!
//! The layout is the kubelet's own (pkg/kubelet/kubelet_getters.go, pkg/volume/util/subpath): `pods/UID/volumes/PLUGIN/NAME[/mount]` and
//! `pods/UID/volume-subpaths/NAME/CONTAINER/INDEX`.

use crate::model::path::HostPath;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPath {
    pub uid: String,
    pub volume_name: String,
}

/// What a mount point below `pods/` says of itself; `None` elsewhere.
pub fn pod_path(kubelet_root: &HostPath, path: &HostPath) -> Option<PodPath> {
    let parts = parts(kubelet_root, path)?;
    let (uid, name) = match parts.as_slice() {
        [b"pods", uid, b"volumes", _plugin, name, ..] => (uid, name),
        [b"pods", uid, b"volume-subpaths", name, _container, _index] => (uid, name),
        _ => return None,
    };
    Some(PodPath { uid: HostPath::new(*uid).to_string(), volume_name: HostPath::new(*name).to_string() })
}

/// `plugins/…`: the global mounts.
pub fn is_plugin_path(kubelet_root: &HostPath, path: &HostPath) -> bool {
    parts(kubelet_root, path).is_some_and(|parts| parts.first() == Some(&&b"plugins"[..]))
}

/// Where only CSI volumes are mounted.
pub fn is_csi_path(kubelet_root: &HostPath, path: &HostPath) -> bool {
    matches!(
        parts(kubelet_root, path).as_deref(),
        Some(
            [b"pods", _, b"volumes", b"kubernetes.io~csi", ..]
                | [b"plugins", b"kubernetes.io", b"csi", ..]
                | [b"pods", _, b"volume-subpaths", ..]
        )
    )
}

fn parts<'a>(kubelet_root: &HostPath, path: &'a HostPath) -> Option<Vec<&'a [u8]>> {
    Some(path.strip_prefix(kubelet_root)?.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Option<(String, String)> {
        pod_path(&"/var/lib/kubelet".into(), &path.into()).map(|pod| (pod.uid, pod.volume_name))
    }

    #[test]
    fn a_pods_folder_names_the_pod_and_the_volume() {
        let expected = Some(("u1".to_owned(), "pv1".to_owned()));
        assert_eq!(of("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~local-volume/pv1"), expected);
        assert_eq!(of("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv1/mount"), expected);
        assert_eq!(of("/var/lib/kubelet/pods/u1/volume-subpaths/pv1/web/0"), expected);
        assert_eq!(of("/var/lib/kubelet/plugins/kubernetes.io/csi/pv1"), None);
        assert_eq!(of("/data/pods/u1/volumes/x/pv1"), None);
    }
}
