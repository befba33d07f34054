//! Who holds what is mounted at some places: looked for before somebody unmounts it, so that it can
//! be refused with a name.

use crate::attach::worker::failure::Failure;
use crate::attach::worker::mounts::table;
use crate::host::holders;
use crate::host::holders::{Holder, How, What};
use crate::host::root::HostRoot;
use crate::model::mount::Mount;
use crate::model::path::HostPath;

/// A line each, sorted. Only /proc is read: nothing that hangs is asked.
pub fn holders(root: &HostRoot, places: &[HostPath]) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for mount in table()?
        .iter()
        .filter(|mount| places.contains(&mount.mount_point))
    {
        let found = holders::holders(root, &what(mount));
        lines.extend(
            found
                .iter()
                .filter(|holder| !is_copy(holder, mount))
                .map(ToString::to_string),
        );
    }
    lines.sort();
    lines.dedup();
    Ok(lines)
}

fn what(mount: &Mount) -> What {
    let node = is_node(mount).then(|| {
        HostPath::from("/dev").join(mount.root.as_bytes().strip_prefix(b"/").unwrap_or_default())
    });
    What {
        dev: mount.dev,
        at: Some(mount.mount_point.clone()),
        node,
    }
}

/// A published raw block volume: its node, bound out of /dev.
fn is_node(mount: &Mount) -> bool {
    mount.fs_type == "devtmpfs"
}

/// Whoever shows the kubelet's folder to a container gives it copies of all mounts in it: they go
/// with the mount, and are nobody's use of it. Of a device's node the filesystem is /dev itself,
/// which every privileged container has.
fn is_copy(holder: &Holder, mount: &Mount) -> bool {
    match &holder.how {
        How::Mounted(at) => is_node(mount) || at.as_bytes().ends_with(mount.mount_point.as_bytes()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(fs_type: &str, root: &str) -> Mount {
        Mount {
            id: 2,
            parent: 1,
            dev: "7:3".parse().expect("a number"),
            root: root.into(),
            mount_point: "/k/pods/u1/x/mount".into(),
            options: Vec::new(),
            fs_type: fs_type.into(),
            source: "/dev/loop3".into(),
            super_options: Vec::new(),
        }
    }

    fn seen(how: How) -> Holder {
        Holder {
            pid: 7,
            comm: "x".into(),
            how,
        }
    }

    #[test]
    fn copies_of_the_kubelets_folder_hold_nothing_and_a_containers_own_mount_does() {
        let of =
            |at: &str, fs_type: &str| is_copy(&seen(How::Mounted(at.into())), &mount(fs_type, "/"));
        assert!(
            of("/k/pods/u1/x/mount", "ext4")
                && of("/host/k/pods/u1/x/mount", "ext4")
                && of("/dev", "devtmpfs")
        );
        assert!(!of("/data", "ext4"));
        assert!(!is_copy(
            &seen(How::Open("/k/pods/u1/x/mount/file".into())),
            &mount("ext4", "/")
        ));
    }

    #[test]
    fn a_bound_device_is_held_by_who_has_its_node_open() {
        assert_eq!(
            what(&mount("devtmpfs", "/loop3")).node,
            Some("/dev/loop3".into())
        );
        assert_eq!(what(&mount("ext4", "/")).node, None);
    }

    #[test]
    fn what_is_not_mounted_is_held_by_nobody() {
        assert_eq!(
            holders(&HostRoot::new("/"), &["/no/such/place".into()]).expect("read"),
            Vec::<String>::new()
        );
    }
}
