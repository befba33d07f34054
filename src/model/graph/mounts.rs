//! The mount table as a tree: which mounts a path lookup can reach, and which filesystems keep
//! data.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FsKind {
    /// Keeps data on block devices of this node.
    Local,
    /// Keeps data on other machines.
    Remote,
    /// Pseudo filesystems, memory, images and views of other filesystems: a failed drive causes no
    /// loss of data in them.
    Transient,
}

const REMOTE: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ceph",
    "lustre",
    "beegfs",
    "glusterfs",
    "afs",
    "orangefs",
    "pvfs2",
    "gpfs",
    "wekafs",
    "quobyte",
];
const REMOTE_FUSE: &[&str] = &[
    "glusterfs",
    "ceph",
    "ceph-fuse",
    "juicefs",
    "mfs",
    "moosefs",
    "lizardfs",
    "seaweedfs",
    "quobyte",
    "beegfs",
    "s3fs",
    "mountpoint-s3",
    "gcsfuse",
    "blobfuse",
    "blobfuse2",
];
/// FUSE views of other machines, which people mount for themselves. They are volumes only if they
/// are admitted by configuration.
const REMOTE_VIEWS: &[&str] = &["fuse.sshfs", "fuse.rclone", "fuse.curlftpfs"];
/// Read-only images: they store no data that could be lost.
const IMAGES: &[&str] = &["squashfs", "iso9660", "erofs", "cramfs", "romfs", "udf"];
/// Filesystems with an anonymous device number that are on block devices of this node.
const ANONYMOUS: &[&str] = &["btrfs", "bcachefs", "zfs", "ubifs"];

/// Who mounted it decides before what it calls itself: type and source of a user's mount are texts
/// of that user.
pub(crate) fn fs_kind(mount: &Mount) -> FsKind {
    if user_of(mount).is_some() {
        return FsKind::Transient;
    }
    if has_remote_type(mount) {
        return FsKind::Remote;
    }
    let fs_type = mount.fs_type.as_str();
    // A look into `.zfs/snapshot` mounts one.
    if fs_type == "zfs" && mount.source.as_bytes().contains(&b'@') {
        return FsKind::Transient;
    }
    if ANONYMOUS.contains(&fs_type) {
        return FsKind::Local;
    }
    // ntfs-3g and similar filesystems on a block device have the type fuseblk.
    if is_fuse(mount) {
        return match serves_device(mount) {
            true => FsKind::Local,
            false => FsKind::Transient,
        };
    }
    if mount.dev.is_anonymous() || IMAGES.contains(&fs_type) {
        FsKind::Transient
    } else {
        FsKind::Local
    }
}

/// By its type alone, whoever mounted it.
pub(crate) fn has_remote_type(mount: &Mount) -> bool {
    let fs_type = mount.fs_type.as_str();
    let fuse = fs_type.strip_prefix("fuse.");
    REMOTE.contains(&fs_type) || fuse.is_some_and(|name| REMOTE_FUSE.contains(&name))
}

pub(crate) fn is_remote_view(mount: &Mount) -> bool {
    REMOTE_VIEWS.contains(&mount.fs_type.as_str())
}

pub fn is_fuse(mount: &Mount) -> bool {
    mount.fs_type == "fuse" || mount.fs_type.starts_with("fuse.")
}

/// The user, other than root, who mounted this FUSE filesystem (`fuseblk` too). The kernel shows it
/// behind all other options (fuse_show_options(), fs/fuse/inode.c).
pub fn user_of(mount: &Mount) -> Option<u32> {
    if !is_fuse(mount) && !mount.fs_type.starts_with("fuseblk") {
        return None;
    }
    fuse_owner(mount).filter(|uid| *uid != 0)
}

fn fuse_owner(mount: &Mount) -> Option<u32> {
    let mut options = mount.super_options.iter().rev();
    options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
}

/// A FUSE filesystem of root whose source is a device (fuse2fs, ntfs-3g without fuseblk).
fn serves_device(mount: &Mount) -> bool {
    let below_dev = mount.source.strip_prefix(&HostPath::from("/dev"));
    below_dev.is_some_and(|name| !name.is_empty() && name != b"fuse")
        && fuse_owner(mount) == Some(0)
}

/// `/dev/sdb1` → `sdb1`: if no scan still lists a device, the mount source is its only remaining
/// name.
pub fn device_name(source: &HostPath) -> Option<String> {
    let name = source.strip_prefix(&HostPath::from("/dev"))?;
    (!name.is_empty() && !name.starts_with(b"mapper/") && !name.contains(&b'/'))
        .then(|| HostPath::new(name).to_string())
}

/// The mounts, with the information which mount hides which.
pub struct MountTree<'a> {
    mounts: &'a [Mount],
    by_path: BTreeMap<&'a [u8], usize>,
}

impl<'a> MountTree<'a> {
    pub fn new(mounts: &'a [Mount]) -> MountTree<'a> {
        let by_path =
            visible(mounts).into_iter().map(|at| (mounts[at].mount_point.as_bytes(), at)).collect();
        MountTree { mounts, by_path }
    }

    /// Those that a path lookup reaches, each once.
    pub fn visible(&self) -> impl Iterator<Item = &'a Mount> {
        self.by_path.values().map(|at| &self.mounts[*at])
    }

    pub fn all(&self) -> impl Iterator<Item = &'a Mount> {
        self.mounts.iter()
    }

    /// The mount that a path lookup of this mount point ends in.
    pub(crate) fn visible_at(&self, path: &HostPath) -> Option<&'a Mount> {
        self.by_path.get(path.as_bytes()).map(|at| &self.mounts[*at])
    }

    /// The mount that a record of root means by this mount point: the one that a mount of a user
    /// hides, otherwise that which a lookup ends in.
    pub(crate) fn recorded_at(&self, path: &HostPath) -> Option<&'a Mount> {
        let hidden = self.user_mount_above(path).and_then(|_| {
            let mut mounts = self.mounts.iter().rev();
            mounts.find(|mount| mount.mount_point == *path && user_of(mount).is_none())
        });
        hidden.or_else(|| self.visible_at(path))
    }

    /// The mount of a user, with its uid, in which a lookup of this path ends.
    pub(crate) fn user_mount_above(&self, path: &HostPath) -> Option<(&'a Mount, u32)> {
        let mount = self.containing(path)?;
        Some((mount, user_of(mount)?))
    }

    pub fn is_visible(&self, mount: &Mount) -> bool {
        self.by_path
            .get(mount.mount_point.as_bytes())
            .is_some_and(|at| std::ptr::eq(&self.mounts[*at], mount))
    }

    /// The mount that contains the file or folder `path`.
    pub fn containing(&self, path: &HostPath) -> Option<&'a Mount> {
        path.prefixes().find_map(|prefix| self.by_path.get(prefix)).map(|at| &self.mounts[*at])
    }
}

/// A mount is hidden by a later one on its own mount point, by a later one of the same parent on a
/// folder above it, and with its parent.
fn visible(mounts: &[Mount]) -> BTreeSet<usize> {
    let by_id: HashMap<u32, usize> =
        mounts.iter().enumerate().map(|(at, mount)| (mount.id, at)).collect();
    let mut last_at: HashMap<&[u8], usize> = HashMap::new();
    let mut last_of_parent: HashMap<(u32, &[u8]), usize> = HashMap::new();
    for (at, mount) in mounts.iter().enumerate() {
        last_of_parent.insert((mount.parent, mount.mount_point.as_bytes()), at);
        let entry = last_at.entry(mount.mount_point.as_bytes()).or_insert(at);
        // A mount whose parent is the later-listed one is mounted on top of it, whatever the order
        // of the list.
        let beneath = mounts[*entry].parent == mount.id && mounts[*entry].id != mount.id;
        if !beneath {
            *entry = at;
        }
    }
    let covered = |at: usize| {
        let mount = &mounts[at];
        let path = mount.mount_point.as_bytes();
        last_at.get(path) != Some(&at)
            || mount.mount_point.prefixes().skip(1).any(|above| {
                last_of_parent.get(&(mount.parent, above)).is_some_and(|other| *other > at)
            })
    };
    let covered: Vec<bool> = (0..mounts.len()).map(covered).collect();
    let reachable = |at: &usize| {
        let mut now = *at;
        // Bounded: a damaged table may have cyclic parents.
        for _ in 0..64 {
            let above = by_id.get(&mounts[now].parent).copied().filter(|above| *above != now);
            let Some(above) = above else { break };
            // A parent that an ancestor of this mount covers at the same mount point does not hide
            // it.
            if covered[above] && mounts[above].mount_point != mounts[now].mount_point {
                return false;
            }
            now = above;
        }
        !covered[*at]
    };
    (0..mounts.len()).filter(reachable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::mount;

    #[test]
    fn a_later_mount_on_the_same_point_hides_the_earlier_and_what_is_below_it() {
        let mut table = vec![
            mount(1, 0, "8:1", "/", "/", "ext4", "/dev/sda1"),
            mount(2, 1, "8:17", "/", "/data", "ext4", "/dev/sdb1"),
        ];
        table.push(mount(3, 2, "8:33", "/", "/data/deep", "ext4", "/dev/sdc1"));
        table.push(mount(4, 2, "8:49", "/", "/data", "ext4", "/dev/sdd1"));
        let table = MountTree::new(&table);
        let at = |path: &str| table.visible_at(&path.into()).map(|mount| mount.id);
        assert_eq!((at("/"), at("/data"), at("/data/deep")), (Some(1), Some(4), None));
        assert_eq!(table.containing(&"/data/file".into()).map(|mount| mount.id), Some(4));
        assert_eq!(table.containing(&"/etc/file".into()).map(|mount| mount.id), Some(1));
    }

    #[test]
    fn a_later_mount_on_a_folder_above_hides_what_its_sibling_shows() {
        let mounts = [
            mount(1, 0, "8:1", "/", "/", "ext4", "/dev/sda1"),
            mount(2, 1, "8:17", "/", "/a/b", "ext4", "/dev/sdb1"),
            mount(3, 1, "8:33", "/", "/a", "ext4", "/dev/sdc1"),
        ];
        let table = MountTree::new(&mounts);
        assert!(table.visible_at(&"/a/b".into()).is_none());
        assert!(table.visible_at(&"/a".into()).is_some());
    }

    #[test]
    fn a_record_means_the_mount_that_a_users_mount_hides() {
        let of_user = |id: u32, parent: u32, path: &str| {
            let mut mount = mount(id, parent, "0:40", "/", path, "fuse.s3fs", "x");
            mount.super_options = vec!["rw".into(), "user_id=4001".into()].into();
            mount
        };
        let mounts = [
            mount(1, 0, "8:1", "/", "/", "ext4", "/dev/sda1"),
            mount(2, 1, "8:17", "/", "/u/disk", "ext4", "/dev/sdb1"),
            mount(3, 1, "8:33", "/", "/v", "ext4", "/dev/sdc1"),
            of_user(4, 1, "/u"),
            of_user(5, 3, "/v"),
            of_user(6, 1, "/w"),
        ];
        let table = MountTree::new(&mounts);
        let recorded = |path: &str| table.recorded_at(&path.into()).map(|mount| mount.id);
        assert_eq!(recorded("/u/disk"), Some(2));
        assert_eq!(recorded("/v"), Some(3));
        assert_eq!(recorded("/w"), Some(6), "it hides nothing");
        assert_eq!(recorded("/u/none"), None);
        let above = |path: &str| {
            let (mount, uid) = table.user_mount_above(&path.into())?;
            Some((mount.id, uid))
        };
        assert_eq!(above("/u/disk"), Some((4, 4001)));
        assert_eq!(above("/v"), Some((5, 4001)));
        assert_eq!(above("/x"), None);
    }

    #[test]
    fn cyclic_mount_parents_terminate() {
        let mounts = [
            mount(1, 2, "8:1", "/", "/x", "ext4", "/dev/sda1"),
            mount(2, 1, "8:17", "/", "/y", "ext4", "/dev/sdb1"),
        ];
        assert_eq!(MountTree::new(&mounts).by_path.len(), 2);
    }

    #[test]
    fn a_fuse_filesystem_of_root_on_a_device_is_a_volume() {
        let fuse = |source: &str, owner: &str| {
            let mut mount = mount(1, 0, "0:42", "/", "/x", "fuse.fuse2fs", source);
            mount.super_options = vec!["rw".into(), owner.into(), "group_id=0".into()].into();
            fs_kind(&mount)
        };
        assert_eq!(fuse("/dev/sdb1", "user_id=0"), FsKind::Local);
        assert_eq!(fuse("/dev/sdb1", "user_id=1000"), FsKind::Transient);
        assert_eq!(fuse("/dev/fuse", "user_id=0"), FsKind::Transient);
        assert_eq!(fuse("sshfs", "user_id=0"), FsKind::Transient);
    }

    #[test]
    fn a_fuse_filesystem_of_a_user_is_no_volume_whatever_it_calls_itself() {
        let of_user = |fs_type: &str, dev: &str, uid: u32| {
            let mut mount = mount(1, 0, dev, "/", "/x", fs_type, "/dev/sdb1");
            let owner = format!("user_id={uid}");
            mount.super_options = vec!["rw".into(), owner, "allow_other".into()].into();
            (fs_kind(&mount), user_of(&mount))
        };
        let types = REMOTE_FUSE.iter().map(|name| format!("fuse.{name}"));
        for fs_type in types.chain(["fuse".into(), "fuse.ext4".into(), "fuse.zfs".into()]) {
            let found = of_user(&fs_type, "0:42", 4001);
            assert_eq!(found, (FsKind::Transient, Some(4001)), "{fs_type}");
        }
        for fs_type in ["fuseblk", "fuseblk.ntfs-3g"] {
            let found = of_user(fs_type, "8:17", 4001);
            assert_eq!(found, (FsKind::Transient, Some(4001)), "{fs_type}");
            assert_eq!(of_user(fs_type, "8:17", 0), (FsKind::Local, None));
        }
        assert_eq!(of_user("fuse.s3fs", "0:42", 0), (FsKind::Remote, None));
        // Only FUSE shows who mounted it.
        assert_eq!(of_user("ext4", "8:17", 4001), (FsKind::Local, None));
    }

    #[test]
    fn only_filesystems_that_keep_data_are_volumes() {
        for (fs_type, dev, expected) in [
            ("ext4", "8:1", FsKind::Local),
            ("fuseblk", "8:1", FsKind::Local),
            ("btrfs", "0:40", FsKind::Local),
            ("nfs4", "0:41", FsKind::Remote),
            ("fuse.glusterfs", "0:42", FsKind::Remote),
            ("fuse.sshfs", "0:43", FsKind::Transient),
            ("tmpfs", "0:44", FsKind::Transient),
            ("overlay", "0:45", FsKind::Transient),
            ("squashfs", "7:1", FsKind::Transient),
            ("9p", "0:46", FsKind::Transient),
        ] {
            assert_eq!(fs_kind(&mount(1, 0, dev, "/", "/x", fs_type, "x")), expected, "{fs_type}");
        }
    }
}
