//! Checks of paths in requests: absolute, clean, below the kubelet's directory, and in the kubelet's
//! layout. Symbolic links are detected when a path is opened (`RootedPath`).

use crate::error::ProvisionError;
use crate::step::{PathOwner, PathRole, RootedPath};
use diskvitals_finding::path::HostPath;
use diskvitals_model::graph::kube::{CsiPath, CsiPathKind, parse_csi_path};

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
        return wrong(&format!("has {length} bytes, at most {MAX_PATH_BYTES} are possible"));
    }
    if path.contains('\0') {
        return wrong("has a NUL");
    }
    let Some(names) = path.strip_prefix('/') else {
        return wrong("is not an absolute path");
    };
    if names.split('/').any(|name| name.is_empty() || name == "." || name == "..") {
        return wrong("is not a clean path: no `.`, `..`, `//` or closing `/`");
    }
    let path = HostPath::from(path);
    match path.strip_prefix(root) {
        Some(below) if !below.is_empty() => Ok(RootedPath { root: root.clone(), path }),
        _ => wrong(&format!("is not below {root}")),
    }
}

/// The kubelet's record of a path, if the path has exactly the form at which the kubelet makes this
/// request for a volume of this driver (csi_attacher.go, csi_mounter.go and csi_block.go of
/// pkg/volume/csi). The error is the reason why it has not.
pub(crate) fn kubelet_record(place: &RootedPath, owner: &PathOwner) -> Result<HostPath, String> {
    let kind = match owner.role {
        PathRole::Stage => CsiPathKind::Staging,
        PathRole::Publish => CsiPathKind::Pod,
    };
    let is_ours = |found: &CsiPath| {
        found.kind == kind
            && owner.block.is_none_or(|block| block == found.block)
            && match &found.driver {
                Some(driver) => *driver == owner.driver && has_handle_hash(&place.path),
                None => true,
            }
    };
    parse_csi_path(&place.root, &place.path)
        .filter(is_ours)
        .and_then(|found| found.record)
        .ok_or_else(|| {
            let PathOwner { driver, .. } = owner;
            let block = owner.block == Some(true);
            let (does, form) = match (owner.role, block) {
                (PathRole::Stage, false) => (
                    "stages",
                    format!("plugins/kubernetes.io/csi/{driver}/SHA256-OF-HANDLE/globalmount"),
                ),
                (PathRole::Stage, true) => {
                    ("stages", "plugins/kubernetes.io/csi/volumeDevices/staging/PV".to_owned())
                }
                (PathRole::Publish, false) => {
                    ("publishes", "pods/UID/volumes/kubernetes.io~csi/PV/mount".to_owned())
                }
                (PathRole::Publish, true) => (
                    "publishes",
                    "plugins/kubernetes.io/csi/volumeDevices/publish/PV/UID".to_owned(),
                ),
            };
            let what = if block { "block volume" } else { "filesystem" };
            format!(
                "{} is not where the kubelet {does} a {what} of driver {driver}: {}/{form}",
                place.path, place.root
            )
        })
}

/// Whether the folder of a staging path is named by a SHA-256, as the kubelet names it after the
/// handle (makeDeviceMountPath()).
fn has_handle_hash(path: &HostPath) -> bool {
    let name = path.as_bytes().rsplit(|byte| *byte == b'/').nth(1);
    name.is_some_and(|name| {
        name.len() == 64 && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
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
    fn only_the_kubelets_paths_for_this_request_and_driver_are_taken() {
        let root = HostPath::from("/k");
        let hash = "0af1".repeat(16);
        let csi = "plugins/kubernetes.io/csi";
        let forms = [
            (
                PathRole::Stage,
                false,
                format!("{csi}/d.csi/{hash}/globalmount"),
                format!("{csi}/d.csi/{hash}"),
            ),
            (PathRole::Stage, false, format!("{csi}/pv/a/globalmount"), format!("{csi}/pv/a")),
            (
                PathRole::Stage,
                true,
                format!("{csi}/volumeDevices/staging/a"),
                format!("{csi}/volumeDevices/a/data"),
            ),
            (
                PathRole::Publish,
                false,
                "pods/u/volumes/kubernetes.io~csi/a/mount".into(),
                "pods/u/volumes/kubernetes.io~csi/a".into(),
            ),
            (
                PathRole::Publish,
                true,
                format!("{csi}/volumeDevices/publish/a/u"),
                format!("{csi}/volumeDevices/a/data"),
            ),
            (
                PathRole::Publish,
                true,
                "pods/u/volumeDevices/kubernetes.io~csi/a/dev".into(),
                format!("{csi}/volumeDevices/a/data"),
            ),
        ];
        let record = |below: &str, role, block| {
            let owner = PathOwner { driver: "d.csi".into(), handle: "h".into(), role, block };
            kubelet_record(&rooted_path(&root, "p", &format!("/k/{below}")).unwrap(), &owner)
        };
        for (role, block, below, folder) in &forms {
            let expected = root.join(folder).join("vol_data.json");
            for asked in [Some(*block), None] {
                assert_eq!(record(below, *role, asked), Ok(expected.clone()), "{below}");
            }
            assert!(record(below, *role, Some(!block)).is_err(), "{below}");
            let other = if *role == PathRole::Stage { PathRole::Publish } else { PathRole::Stage };
            assert!(record(below, other, Some(*block)).is_err(), "{below}");
            for wrong in [format!("{below}/x"), below.rsplit_once('/').unwrap().0.to_owned()] {
                assert!(record(&wrong, *role, None).is_err(), "{wrong}");
            }
        }
        for wrong in [
            "pki",
            "plugins",
            "plugins_registry",
            "pods",
            "config.yaml",
            "device-plugins",
            "pods/u/volumes/kubernetes.io~secret/a",
            "pods/u/volumes/kubernetes.io~secret/a/mount",
            "pods/u/volume-subpaths/a/c/0",
            &format!("{csi}/other.csi/{hash}/globalmount"),
            &format!("{csi}/d.csi/{}/globalmount", &hash[1..]),
            &format!("{csi}/d.csi/{}/globalmount", hash.to_uppercase()),
        ] {
            for role in [PathRole::Stage, PathRole::Publish] {
                let why = record(wrong, role, None).unwrap_err();
                assert!(why.starts_with(&format!("/k/{wrong} is not where the kubelet ")), "{why}");
            }
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
        for bad in
            bad.into_iter().chain(["/var/lib/kubelets/x", "/etc", "/var/lib/kubelet/a\0b", &long])
        {
            let answer = rooted_path(&root, "target_path", bad);
            assert!(
                matches!(answer, Err(ProvisionError::InvalidArgument { field: "target_path", .. })),
                "{bad:?}"
            );
        }
    }
}
