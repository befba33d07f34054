//! The processes with open files in given mounts. They are listed before an unmount, so that a
//! refusal can name them.

use crate::worker::error::StepWorkerError;
use crate::worker::mounts::mount_table;
use crate::worker::pod_holds::pod_of;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;
use diskvitals_host::openers::{OpenTarget, find_openers};
use diskvitals_host::root::HostRoot;

/// One line per opener, sorted. Only /proc is read, because a mount may hang.
pub(crate) fn openers_of_mounts(
    root: &HostRoot,
    places: &[HostPath],
) -> Result<Vec<String>, StepWorkerError> {
    let mut lines = Vec::new();
    for mount in mount_table()?.iter().filter(|mount| places.contains(&mount.mount_point)) {
        let found = find_openers(root, &opener_query(mount));
        lines.extend(found.iter().map(ToString::to_string));
    }
    lines.sort();
    lines.dedup();
    Ok(lines)
}

fn opener_query(mount: &Mount) -> OpenTarget {
    let node = is_device_node(mount).then(|| {
        HostPath::from("/dev").join(mount.root.as_bytes().strip_prefix(b"/").unwrap_or_default())
    });
    OpenTarget {
        dev: mount.dev,
        mount_point: Some(mount.mount_point.clone()),
        node,
        pod_uid: pod_of(mount).map(str::to_owned),
    }
}

/// Whether the mount is a published raw block volume: a device node bound from /dev.
fn is_device_node(mount: &Mount) -> bool {
    mount.fs_type == "devtmpfs"
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
            options: Default::default(),
            fs_type: fs_type.into(),
            source: "/dev/loop3".into(),
            super_options: Default::default(),
        }
    }

    #[test]
    fn a_bound_device_is_in_use_by_processes_with_its_node_open() {
        assert_eq!(opener_query(&mount("devtmpfs", "/loop3")).node, Some("/dev/loop3".into()));
        assert_eq!(opener_query(&mount("ext4", "/")).node, None);
    }

    #[test]
    fn a_path_that_is_not_mounted_has_no_openers() {
        assert_eq!(
            openers_of_mounts(&HostRoot::new("/"), &["/no/such/place".into()]).expect("read"),
            Vec::<String>::new()
        );
    }
}
