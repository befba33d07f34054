//! Decides which filesystems are never frozen: those that are needed to thaw again. Freezing one of
//! them could block the process that must thaw it, or the person who could help.
//!
//! In: the host's mount table and the paths that are needed. Out: the reason, as text. Pure.
//! Filesystems are compared by device number, never by path prefix: a volume mounted below the
//! kubelet's root is another filesystem.

use std::collections::BTreeSet;

use diskvitals_finding::dev::DevNo;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;
use diskvitals_model::graph::mounts::MountTree;

/// Checked on every host that has them; symbolic links are followed.
pub(crate) const SYSTEM_PATHS: &[(&str, &str)] = &[
    ("/", "the system's root"),
    ("/usr", "the system's programs"),
    ("/etc", "the system's configuration"),
    ("/var", "the system's state"),
    ("/run", "the system's sockets"),
    ("/var/log", "logs"),
    ("/var/log/journal", "the journal"),
    ("/var/log/pods", "the logs of pods"),
    ("/var/lib/kubelet", "the kubelet's root"),
    ("/var/lib/containerd", "containerd's root"),
    ("/run/containerd", "containerd's state"),
    ("/var/lib/docker", "Docker's root"),
    ("/var/lib/containers", "the root of podman and CRI-O"),
    ("/run/containers", "the state of podman and CRI-O"),
    ("/var/lib/crio", "CRI-O's state"),
    ("/var/lib/cri-o", "CRI-O's state"),
    ("/var/lib/rancher", "the root of k3s or RKE2"),
    ("/var/lib/k0s", "the root of k0s"),
    ("/var/snap/microk8s", "the root of microk8s"),
    ("/var/lib/etcd", "etcd, on which the whole cluster waits"),
];

/// The parts of a host that decide whether a filesystem may be frozen.
#[derive(Clone, Debug, Default)]
pub struct HostLayout {
    /// PID 1's mount table.
    pub mounts: Vec<Mount>,
    /// Resolved paths in the host's mount namespace, and a description of each.
    pub needed_paths: Vec<(HostPath, String)>,
    /// Filesystems that the daemon itself needs, in any namespace in which they are visible to it.
    pub needed_devs: Vec<(DevNo, String)>,
    /// The layers of the overlays in our own mount namespace, as paths on the host.
    pub overlay_layers: Vec<HostPath>,
    /// Files and devices in /proc/swaps.
    pub swaps: Vec<HostPath>,
    /// Loop devices in use (`loop3`) and their backing files.
    pub loops: Vec<(String, HostPath)>,
}

/// Why the filesystem with any of these device numbers must not be frozen.
pub fn refusal(host: &HostLayout, target: &[DevNo]) -> Option<String> {
    let table = MountTree::new(&host.mounts);
    let holds = |path: &HostPath| {
        underlying_filesystems(&table, path).iter().any(|dev| target.contains(dev))
    };
    let refused =
        |what: String| format!("it is never frozen: {what} must go on, or nothing could thaw it");
    if let Some((path, what)) = host.needed_paths.iter().find(|(path, _)| holds(path)) {
        return Some(refused(format!("{what} ({path}) lies on it, which")));
    }
    if let Some((_, what)) = host.needed_devs.iter().find(|(dev, _)| target.contains(dev)) {
        return Some(refused(format!("{what} lies on it, which")));
    }
    // The mounted overlays reveal the root of any container runtime, wherever it is.
    let overlays = host.mounts.iter().flat_map(|mount| {
        overlay_layers_of(mount)
            .into_iter()
            .map(move |layer| (layer, mount.mount_point.to_string()))
    });
    let ours =
        host.overlay_layers.iter().map(|layer| (layer.clone(), "diskvitals' own root".to_owned()));
    if let Some((layer, of)) = overlays.chain(ours).find(|(layer, _)| holds(layer)) {
        return Some(refused(format!(
            "{layer} lies on it, of which the overlay at {of} is made, which"
        )));
    }
    if let Some(swap) = host.swaps.iter().find(|swap| !is_device_node(&table, swap) && holds(swap))
    {
        return Some(refused(format!("the machine swaps to {swap} on it, which")));
    }
    let (name, file) = host.loops.iter().find(|(_, file)| holds(file))?;
    Some(refused(format!("{name} is made of {file} on it, which")))
}

/// The filesystem that contains a path; for an overlay, also the filesystems of its layers.
fn underlying_filesystems(table: &MountTree<'_>, path: &HostPath) -> BTreeSet<DevNo> {
    let Some(mount) = table.containing(path) else {
        return BTreeSet::new();
    };
    let layers = overlay_layers_of(mount);
    std::iter::once(mount.dev)
        .chain(layers.iter().filter_map(|layer| table.containing(layer)).map(|mount| mount.dev))
        .collect()
}

/// The layers of an overlay (Documentation/filesystems/overlayfs.rst). Relative ones are left out:
/// the directory that they are relative to is not recorded.
pub(crate) fn overlay_layers_of(mount: &Mount) -> Vec<HostPath> {
    if mount.fs_type != "overlay" {
        return Vec::new();
    }
    let layers = mount.super_options.iter().filter_map(|option| {
        let (key, value) = option.split_once('=')?;
        matches!(key, "lowerdir" | "upperdir" | "workdir" | "lowerdir+" | "datadir+")
            .then_some(value)
    });
    let absolute = layers.flat_map(|value| value.split(':')).filter(|layer| layer.starts_with('/'));
    absolute.map(|layer| HostPath::unescape(layer.as_bytes())).collect()
}

/// The node of a swap partition is no evidence about the filesystem that contains the node.
fn is_device_node(table: &MountTree<'_>, path: &HostPath) -> bool {
    table.containing(path).is_some_and(|mount| mount.fs_type == "devtmpfs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::parse;

    /// A node of a cluster: `/` 8:1, `/var/log` 8:2, kubelet 8:3, containerd 8:4, data 8:16, a
    /// volume of a pod 8:32, home 8:5, btrfs 0:50 mounted twice.
    const NODE: &[u8] = b"\
1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
2 1 0:5 / /dev rw - devtmpfs devtmpfs rw\n\
3 1 0:6 / /run rw - tmpfs tmpfs rw\n\
4 1 8:2 / /var/log rw - xfs /dev/sda2 rw\n\
5 1 8:3 / /var/lib/kubelet rw - xfs /dev/sda3 rw\n\
6 1 8:4 / /var/lib/containerd rw - xfs /dev/sda4 rw\n\
7 5 8:32 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount rw - ext4 /dev/sdc rw\n\
8 1 8:16 / /data rw - ext4 /dev/sdb rw\n\
9 1 8:5 / /home rw - ext4 /dev/sda5 rw\n\
10 1 0:50 /a /srv/a rw - btrfs /dev/sdd rw,subvol=/a\n\
11 1 0:50 /state /var/lib/diskvitals rw - btrfs /dev/sdd rw,subvol=/state\n\
12 8 8:16 /images /images rw - ext4 /dev/sdb rw\n";

    fn node(change: impl FnOnce(&mut HostLayout)) -> HostLayout {
        let always = SYSTEM_PATHS
            .iter()
            .filter(|(path, _)| *path != "/var/lib/etcd" && *path != "/var/lib/docker");
        let mut host = HostLayout {
            mounts: parse(NODE).0,
            needed_paths: always
                .map(|(path, what)| (HostPath::from(*path), (*what).to_owned()))
                .collect(),
            ..HostLayout::default()
        };
        change(&mut host);
        host
    }

    #[track_caller]
    fn check(host: &HostLayout, dev: (u32, u32), refused: Option<&str>) {
        let said = refusal(host, &[DevNo::new(dev.0, dev.1)]);
        match (refused, said) {
            (None, None) => {}
            (Some(part), Some(said)) if said.contains(part) => {}
            (wanted, said) => panic!("{dev:?}: {wanted:?}, not {said:?}"),
        }
    }

    #[test]
    fn system_filesystems_are_refused_and_volumes_are_not() {
        let host = node(|_| {});
        check(&host, (8, 1), Some("the system's root (/)"));
        check(&host, (8, 2), Some("logs (/var/log)"));
        check(&host, (8, 3), Some("the kubelet's root (/var/lib/kubelet)"));
        check(&host, (8, 4), Some("containerd's root"));
        check(&host, (0, 6), Some("sockets"));
        // Below the kubelet's root, but another filesystem.
        check(&host, (8, 32), None);
        check(&host, (8, 16), None);
        check(&host, (8, 5), None);
        check(&host, (0, 50), None);
    }

    #[test]
    fn another_mount_of_a_needed_filesystem_is_the_same_filesystem() {
        let needed = |host: &mut HostLayout| {
            host.needed_paths.push(("/var/lib/diskvitals".into(), "our history".into()))
        };
        check(&node(needed), (0, 50), Some("our history (/var/lib/diskvitals)"));
        let bound = |host: &mut HostLayout| {
            host.needed_paths.push(("/images/tools/e2fsck".into(), "a checker".into()))
        };
        check(&node(bound), (8, 16), Some("a checker (/images/tools/e2fsck)"));
    }

    #[test]
    fn filesystems_of_the_daemons_own_namespace_are_refused() {
        let ours = |host: &mut HostLayout| {
            host.needed_devs.push((DevNo::new(8, 16), "diskvitals itself".into()))
        };
        check(&node(ours), (8, 16), Some("diskvitals itself lies on it"));
        check(&node(ours), (8, 32), None);
    }

    #[test]
    fn a_swap_file_is_refused_and_a_swap_partition_is_ignored() {
        check(
            &node(|host| host.swaps.push("/data/swapfile".into())),
            (8, 16),
            Some("swaps to /data/swapfile"),
        );
        check(&node(|host| host.swaps.push("/dev/sda9".into())), (8, 16), None);
        // Nor does its node make /dev's filesystem one that must not wait; that one cannot be
        // frozen at all.
        check(&node(|host| host.swaps.push("/dev/sda9".into())), (0, 5), None);
    }

    #[test]
    fn the_filesystem_of_a_loop_backing_file_is_refused() {
        let looped = |file: &'static str| {
            move |host: &mut HostLayout| host.loops.push(("loop3".into(), file.into()))
        };
        check(&node(looped("/data/disk.img")), (8, 16), Some("loop3 is made of /data/disk.img"));
        check(&node(looped("/images/disk.img")), (8, 16), Some("loop3"));
        check(&node(looped("/home/disk.img")), (8, 16), None);
        // A loop over a device, as checks of XFS make them.
        check(&node(looped("/dev/sdb")), (8, 16), None);
    }

    #[test]
    fn a_container_runtime_elsewhere_is_recognized_by_its_overlays() {
        let mounted = |options: &'static str| {
            move |host: &mut HostLayout| {
                let line =
                    format!("30 1 0:61 / /run/pods/1/rootfs rw - overlay overlay rw,{options}\n");
                host.mounts.extend(parse(line.as_bytes()).0);
            }
        };
        for options in [
            "lowerdir=/nonexistent/a:/data/runtime/layers/7,upperdir=/tmp/u,workdir=/tmp/w",
            "lowerdir=l/a:l/b,upperdir=/data/runtime/9/diff,workdir=/tmp/w",
            "lowerdir+=/tmp/l,upperdir=/tmp/u,workdir=/images/runtime/work",
        ] {
            check(
                &node(mounted(options)),
                (8, 16),
                Some("of which the overlay at /run/pods/1/rootfs is made"),
            );
            check(&node(mounted(options)), (8, 5), None);
        }
        // Other filesystems have options of these names as well.
        let other = |host: &mut HostLayout| {
            host.mounts.extend(parse(b"30 1 0:61 / /mnt rw - fuse.x x rw,lowerdir=/data/l\n").0)
        };
        check(&node(other), (8, 16), None);
    }

    #[test]
    fn the_layers_of_our_own_root_are_refused() {
        let ours = |host: &mut HostLayout| host.overlay_layers.push("/data/runtime/3/diff".into());
        check(&node(ours), (8, 16), Some("diskvitals' own root"));
        check(&node(ours), (8, 32), None);
    }

    #[test]
    fn an_overlay_root_refuses_the_filesystems_of_its_layers() {
        let overlay = |host: &mut HostLayout| {
            let line = b"20 0 0:60 / / rw - overlay overlay rw,lowerdir=/data/l1:/data/l2,upperdir=/home/u,workdir=/home/w\n";
            host.mounts.retain(|mount| mount.mount_point != "/".into());
            host.mounts.extend(parse(line).0);
            host.mounts
                .iter_mut()
                .filter(|mount| mount.parent == 1)
                .for_each(|mount| mount.parent = 20);
        };
        check(&node(overlay), (0, 60), Some("the system's root"));
        check(&node(overlay), (8, 16), Some("the system's root"));
        check(&node(overlay), (8, 5), Some("the system's root"));
        check(&node(overlay), (8, 32), None);
    }
}
