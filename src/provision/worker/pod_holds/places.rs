//! Whose volume a mount is, by facts that only root can make: which directory it covers, or shows.
//!
//! A path proves nothing. In a user namespace, and in a container (`mountPath`, `subPath`), anybody
//! has mounts at paths that end as the kubelet's do. The kubelet's directories are known by device
//! and path in the filesystem, which are the same in every mount namespace.

use std::collections::HashMap;

use super::{parse_place, split};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;
use diskvitals_model::graph::mounts::user_of;

/// Mounts upon mounts that are followed.
const MAX_DEPTH: usize = 32;
/// Below the kubelet's directory; what is below the last part has the pod's uid.
const DIRECTORIES: [&str; 2] = ["pods", "plugins/kubernetes.io/csi/volumeDevices"];

/// The kubelet's directories for volumes.
pub(super) struct Places(Vec<Place>);

struct Place {
    dev: DevNo,
    path: HostPath,
}

/// The mounts of one namespace by their ids.
pub(super) struct Table<'a>(HashMap<u32, &'a Mount>);

impl<'a> Table<'a> {
    pub(super) fn new(mounts: &'a [Mount]) -> Table<'a> {
        Table(mounts.iter().map(|mount| (mount.id, mount)).collect())
    }
}

impl Places {
    /// A directory that another mount covers now counts too: mounts in it are left.
    pub(super) fn new(kubelet_root: &HostPath, host: &[Mount]) -> Places {
        let of_root = host.iter().filter(|mount| user_of(mount).is_none());
        let places = of_root.flat_map(|mount| {
            DIRECTORIES.iter().filter_map(|below| {
                let directory = kubelet_root.join(below);
                Some(Place {
                    dev: mount.dev,
                    path: below_root(mount, directory.strip_prefix(&mount.mount_point)?),
                })
            })
        });
        Places(places.collect())
    }

    /// The pod of a mount at one of the kubelet's places, or on such a mount.
    pub(super) fn pod_of(&self, mount: &Mount, table: &Table<'_>) -> Option<String> {
        let mut mount = mount;
        for _ in 0..MAX_DEPTH {
            let parent = table.0.get(&mount.parent).copied();
            let covered = || {
                let parent = parent.filter(|parent| self.is_device(parent.dev))?;
                let below = mount.mount_point.strip_prefix(&parent.mount_point)?;
                self.pod_at(parent.dev, &below_root(parent, below), mount)
            };
            let shown = self.pod_at(mount.dev, &mount.root, mount);
            if let Some(uid) = shown.or_else(covered) {
                return Some(uid);
            }
            mount = parent?;
        }
        None
    }

    fn is_device(&self, dev: DevNo) -> bool {
        self.0.iter().any(|place| place.dev == dev)
    }

    fn pod_at(&self, dev: DevNo, path: &HostPath, mount: &Mount) -> Option<String> {
        let places = self.0.iter().filter(|place| place.dev == dev);
        places.into_iter().find_map(|place| {
            path.strip_prefix(&place.path)?;
            let parent = place.path.as_bytes().iter().rposition(|byte| *byte == b'/')?;
            let uid = parse_place(&split(&path.as_bytes()[parent + 1..]), mount)?;
            Some(std::str::from_utf8(uid).ok()?.to_owned())
        })
    }
}

fn below_root(mount: &Mount, below: &[u8]) -> HostPath {
    match below {
        [] => mount.root.clone(),
        below => mount.root.join(below),
    }
}
