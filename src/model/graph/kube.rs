//! The kubelet's folder names: the pod and the volume of a mount point below the kubelet's root.
//!
//! The layout is the kubelet's own (pkg/kubelet/kubelet_getters.go, pkg/volume/util/subpath):
//! `pods/UID/volumes/PLUGIN/NAME[/mount]` and `pods/UID/volume-subpaths/NAME/CONTAINER/INDEX`.

use diskvitals_finding::path::HostPath;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPath {
    pub uid: String,
    pub volume_name: String,
}

/// Parses a mount point below `pods/`; `None` for other paths.
pub fn pod_path(kubelet_root: &HostPath, path: &HostPath) -> Option<PodPath> {
    let parts = parts(kubelet_root, path)?;
    let (uid, name) = match parts.as_slice() {
        [b"pods", uid, b"volumes", _plugin, name, ..] => (uid, name),
        [b"pods", uid, b"volume-subpaths", name, _container, _index] => (uid, name),
        _ => return None,
    };
    Some(PodPath {
        uid: HostPath::new(*uid).to_string(),
        volume_name: HostPath::new(*name).to_string(),
    })
}

/// Whether the path is in `plugins/…`: the global mounts.
pub(crate) fn is_plugin_path(kubelet_root: &HostPath, path: &HostPath) -> bool {
    parts(kubelet_root, path).is_some_and(|parts| parts.first() == Some(&&b"plugins"[..]))
}

/// Whether only CSI volumes are mounted at this path.
pub(crate) fn is_csi_path(kubelet_root: &HostPath, path: &HostPath) -> bool {
    matches!(
        parts(kubelet_root, path).as_deref(),
        Some(
            [b"pods", _, b"volumes", b"kubernetes.io~csi", ..]
                | [b"plugins", b"kubernetes.io", b"csi", ..]
                | [b"pods", _, b"volume-subpaths", ..]
        )
    )
}

/// The kubelet's purpose of a CSI mount path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsiPathKind {
    /// The global mount, or the staging path of a raw block volume.
    Staging,
    /// A pod's mount, or the device that is published to it.
    Pod,
    /// A folder of the volume for one container; volumes of other plugins have these mounts too.
    Subpath,
}

/// A path at which the kubelet mounts CSI volumes (csi_attacher.go, csi_mounter.go and csi_block.go
/// of pkg/volume/csi), with the fields that the path contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiPath {
    pub kind: CsiPathKind,
    /// A raw block volume's.
    pub block: bool,
    /// None for staging, which belongs to no pod.
    pub pod: Option<PodPath>,
    /// Only if the path contains it: staging since Kubernetes 1.24.
    pub driver: Option<String>,
    /// The record of this path; None for subpaths, which have no record.
    pub record: Option<HostPath>,
}

pub fn parse_csi_path(kubelet_root: &HostPath, path: &HostPath) -> Option<CsiPath> {
    let text = |part: &[u8]| HostPath::new(part).to_string();
    let pod = |uid: &[u8], name: &[u8]| Some(PodPath { uid: text(uid), volume_name: text(name) });
    let beside =
        || path.as_path().parent().map(|folder| HostPath::from(folder).join("vol_data.json"));
    let devices = kubelet_root.join("plugins/kubernetes.io/csi/volumeDevices");
    let of_block = |pv: &[u8]| Some(devices.join(pv).join("data/vol_data.json"));
    let place =
        |kind, block, pod, driver, record| Some(CsiPath { kind, block, pod, driver, record });
    match *parts(kubelet_root, path)?.as_slice() {
        [b"pods", uid, b"volumes", b"kubernetes.io~csi", name, b"mount"] => {
            place(CsiPathKind::Pod, false, pod(uid, name), None, beside())
        }
        [b"pods", uid, b"volume-subpaths", name, _container, _index] => {
            place(CsiPathKind::Subpath, false, pod(uid, name), None, None)
        }
        [b"plugins", b"kubernetes.io", b"csi", b"volumeDevices", b"publish", pv, uid]
        | [b"pods", uid, b"volumeDevices", b"kubernetes.io~csi", pv, b"dev"] => {
            place(CsiPathKind::Pod, true, pod(uid, pv), None, of_block(pv))
        }
        [b"plugins", b"kubernetes.io", b"csi", b"volumeDevices", b"staging", pv] => {
            place(CsiPathKind::Staging, true, None, None, of_block(pv))
        }
        [b"plugins", b"kubernetes.io", b"csi", b"pv", _name, b"globalmount"] => {
            place(CsiPathKind::Staging, false, None, None, beside())
        }
        [b"plugins", b"kubernetes.io", b"csi", driver, _hash, b"globalmount"] => {
            place(CsiPathKind::Staging, false, None, Some(text(driver)), beside())
        }
        _ => None,
    }
}

fn parts<'a>(kubelet_root: &HostPath, path: &'a HostPath) -> Option<Vec<&'a [u8]>> {
    Some(
        path.strip_prefix(kubelet_root)?
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
            .collect(),
    )
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

    #[test]
    fn a_csi_place_names_its_record_and_what_its_path_tells() {
        let place = |path: &str| parse_csi_path(&"/k".into(), &path.into());
        let told = |path: &str| {
            place(path).map(|place| {
                (
                    place.kind,
                    place.pod.map(|pod| pod.uid),
                    place.record.map(|path| path.to_string()),
                )
            })
        };
        let uid = || Some("u1".to_owned());
        let record = |path: &str| Some(path.to_owned());
        assert_eq!(
            told("/k/pods/u1/volumes/kubernetes.io~csi/pv1/mount"),
            Some((
                CsiPathKind::Pod,
                uid(),
                record("/k/pods/u1/volumes/kubernetes.io~csi/pv1/vol_data.json")
            ))
        );
        let devices = "/k/plugins/kubernetes.io/csi/volumeDevices";
        let of_block = record(&format!("{devices}/pv1/data/vol_data.json"));
        assert_eq!(
            told(&format!("{devices}/publish/pv1/u1")),
            Some((CsiPathKind::Pod, uid(), of_block.clone()))
        );
        assert_eq!(
            told("/k/pods/u1/volumeDevices/kubernetes.io~csi/pv1/dev"),
            Some((CsiPathKind::Pod, uid(), of_block.clone()))
        );
        assert_eq!(
            told(&format!("{devices}/staging/pv1")),
            Some((CsiPathKind::Staging, None, of_block))
        );
        assert_eq!(
            told("/k/pods/u1/volume-subpaths/pv1/web/0"),
            Some((CsiPathKind::Subpath, uid(), None))
        );
        let staged = place("/k/plugins/kubernetes.io/csi/a.csi/0af/globalmount").expect("one");
        assert_eq!((staged.kind, staged.driver.as_deref()), (CsiPathKind::Staging, Some("a.csi")));
        assert_eq!(
            place("/k/plugins/kubernetes.io/csi/pv/pv1/globalmount").expect("one").driver,
            None
        );
        assert_eq!(place("/k/pods/u1/volumes/kubernetes.io~secret/token"), None);
    }
}
