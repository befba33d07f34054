//! Checks of paths in requests: absolute, clean, below the kubelet's directory. Symbolic links are
//! detected when a path is opened (`RootedPath`).

use crate::model::path::HostPath;
use crate::provision::error::ProvisionError;
use crate::provision::step::RootedPath;

/// PATH_MAX without its terminating zero.
const MAX_PATH_BYTES: usize = 4095;

/// Checks a path. `field` is the request's field, for the message.
pub(crate) fn rooted_path(
    root: &HostPath,
    field: &'static str,
    path: &str,
) -> Result<RootedPath, ProvisionError> {
    let wrong = |problem: &str| Err(ProvisionError::invalid_argument(field, problem));
    if path.is_empty() {
        return wrong("is empty");
    }
    if path.len() > MAX_PATH_BYTES {
        let length = path.len();
        return wrong(&format!(
            "has {length} bytes, at most {MAX_PATH_BYTES} are possible"
        ));
    }
    if path.contains('\0') {
        return wrong("has a NUL");
    }
    let Some(names) = path.strip_prefix('/') else {
        return wrong("is not an absolute path");
    };
    if names
        .split('/')
        .any(|name| name.is_empty() || name == "." || name == "..")
    {
        return wrong("is not a clean path: no `.`, `..`, `//` or closing `/`");
    }
    let path = HostPath::from(path);
    match path.strip_prefix(root) {
        Some(below) if !below.is_empty() => Ok(RootedPath {
            root: root.clone(),
            path,
        }),
        _ => wrong(&format!("is not below {root}")),
    }
}

/// Whether the kubelet publishes a pod's CSI volume at this path (csiMountMgr.GetPath() and
/// csiBlockMapper.getPublishPath(), pkg/volume/csi).
pub(crate) fn is_publish_target(target: &RootedPath) -> bool {
    let Some(below) = target.path.strip_prefix(&target.root) else {
        return false;
    };
    let names: Vec<&[u8]> = below
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .collect();
    matches!(
        names[..],
        [b"pods", _, b"volumes", b"kubernetes.io~csi", _, b"mount"]
            | [
                b"plugins",
                b"kubernetes.io",
                b"csi",
                b"volumeDevices",
                b"publish",
                _,
                _
            ]
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_taken_lies_below_the_root(path in "(/|[a-c.]|\\.\\./|/k/){0,12}") {
            let root = HostPath::from("/k");
            if let Ok(place) = rooted_path(&root, "p", &path) {
                prop_assert!(place.path.strip_prefix(&root).is_some_and(|below| !below.is_empty()));
                prop_assert!(!path.split('/').any(|name| name == ".."));
            }
        }
    }

    #[test]
    fn only_a_pods_own_publish_path_is_a_target() {
        let root = HostPath::from("/var/lib/kubelet");
        let is = |below: &str| {
            is_publish_target(
                &rooted_path(&root, "p", &format!("/var/lib/kubelet/{below}")).unwrap(),
            )
        };
        assert!(is("pods/u1/volumes/kubernetes.io~csi/pvc-1/mount"));
        assert!(is(
            "plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/u1"
        ));
        for other in [
            "pods/u1",
            "pods/u1/volumes/kubernetes.io~csi/pvc-1",
            "pods/u1/volumes/kubernetes.io~csi/pvc-1/mount/x",
            "pods/u1/volumes/kubernetes.io~empty-dir/x/mount",
            "plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1/u1",
            "plugins/kubernetes.io/csi/x/globalmount",
            "device-plugins",
        ] {
            assert!(!is(other), "{other}");
        }
    }

    #[test]
    fn a_path_outside_the_root_or_not_normalized_is_refused_with_its_field() {
        let root = HostPath::from("/var/lib/kubelet");
        assert!(rooted_path(&root, "target_path", "/var/lib/kubelet/pods/u/mount").is_ok());
        let long = format!("/var/lib/kubelet/{}", "x".repeat(5000));
        let bad = [
            "",
            "some/path",
            "/",
            "/var/lib/kubelet",
            "/var/lib/kubelet/",
            "/var/lib/kubelet/../x",
            "/var/lib/kubelet/./x",
            "/var/lib/kubelet//x",
        ];
        for bad in bad.into_iter().chain([
            "/var/lib/kubelets/x",
            "/etc",
            "/var/lib/kubelet/a\0b",
            &long,
        ]) {
            let answer = rooted_path(&root, "target_path", bad);
            assert!(
                matches!(
                    answer,
                    Err(ProvisionError::InvalidArgument {
                        field: "target_path",
                        ..
                    })
                ),
                "{bad:?}"
            );
        }
    }
}
