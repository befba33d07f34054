//! Which causes an unprivileged user can make: a pod that fills its volume, a user's mount whose
//! server hangs. There can be any number of them, with any names. They must not displace a cause of
//! the node's own storage.
//!
//! In: drives and volumes of the daemon's answer. Out: yes or no for a subject. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::wire;
use crate::api::wire::{DriveKind, MountRole, SubjectKind};

/// What the user of a volume on a local disk can do to it. All else is the storage's own failure.
const REASONS_OF_USERS: &[&str] = &[
    "OutOfSpace",
    "OutOfInodes",
    "NotMounted",
    "StagingNotMounted",
];

pub(super) struct Origins<'a> {
    volumes: BTreeMap<&'a str, &'a wire::Volume>,
    remote_drives: BTreeSet<&'a str>,
    /// Drives that carry a filesystem of the host, and those that carry one of a user.
    host_drives: BTreeSet<&'a str>,
    user_drives: BTreeSet<&'a str>,
}

impl<'a> Origins<'a> {
    pub(super) fn new(drives: &'a [wire::Drive], volumes: &'a [wire::Volume]) -> Origins<'a> {
        let remote = drives
            .iter()
            .filter(|drive| drive.kind() == DriveKind::Remote);
        let (of_users, of_host): (Vec<_>, Vec<_>) =
            volumes.iter().partition(|it| belongs_to_user(it));
        let drives_of = |volumes: Vec<&'a wire::Volume>| {
            let ids = volumes.into_iter().flat_map(|volume| &volume.drive_ids);
            ids.map(String::as_str).collect()
        };
        Origins {
            volumes: volumes.iter().map(|it| (it.id.as_str(), it)).collect(),
            remote_drives: remote.map(|drive| drive.id.as_str()).collect(),
            host_drives: drives_of(of_host),
            user_drives: drives_of(of_users),
        }
    }

    /// `reasons`: those of the findings of the subject itself.
    pub(super) fn is_user_made<'b>(
        &self,
        subject: Option<&wire::Subject>,
        reasons: impl IntoIterator<Item = &'b str>,
    ) -> bool {
        let Some(subject) = subject else { return false };
        match subject.kind() {
            // A pod can bring a network disk of its own, as a volume in its specification.
            SubjectKind::Drive => self.is_users_disk(&subject.id),
            // Desktops attach images for their users.
            SubjectKind::Device => is_loop(&subject.id),
            SubjectKind::Volume => match self.volumes.get(subject.id.as_str()) {
                Some(volume) => self.is_user_made_of(volume, reasons),
                // It is gone: whose it was is not known.
                None => true,
            },
            SubjectKind::Source | SubjectKind::Unspecified => false,
        }
    }

    fn is_users_disk(&self, id: &str) -> bool {
        self.remote_drives.contains(id)
            && self.user_drives.contains(id)
            && !self.host_drives.contains(id)
    }

    fn is_user_made_of<'b>(
        &self,
        volume: &wire::Volume,
        reasons: impl IntoIterator<Item = &'b str>,
    ) -> bool {
        let is_local = !volume.drive_ids.is_empty()
            && !volume.remote
            && !volume.drive_ids.iter().any(|id| self.is_users_disk(id));
        let can_make = |reason: &str| REASONS_OF_USERS.contains(&reason);
        belongs_to_user(volume)
            && (!is_local || is_users_mount(volume) || reasons.into_iter().all(can_make))
    }
}

/// A volume of pods, or a mount that a user can have made.
fn belongs_to_user(volume: &wire::Volume) -> bool {
    let is_on_host = |mount: &wire::VolumeMount| mount.role() == MountRole::Host;
    let of_pods = !volume.driver.is_empty()
        || !volume.pv.is_empty()
        || (!volume.pods.is_empty() && !volume.mounts.iter().any(is_on_host));
    of_pods || is_users_mount(volume)
}

/// A FUSE filesystem of a user; or a mount without set-user-id bits and devices, as mount(8),
/// udisks and automount make them for users, of an image, or below /media or /net. Others are made by
/// root, who hardens them in the same way.
fn is_users_mount(volume: &wire::Volume) -> bool {
    if !volume.driver.is_empty() || volume.mounts.is_empty() {
        return false;
    }
    let fs_type = volume
        .filesystem
        .as_ref()
        .map_or("", |it| it.r#type.as_str());
    let is_fuse = fs_type == "fuse" || fs_type.starts_with("fuse.") || fs_type == "fuseblk";
    // The kernel shows the owner behind the options of the server (fuse_show_options()).
    let owner = |mount: &wire::VolumeMount| {
        let mut options = mount.super_options.iter().rev();
        options.find_map(|option| option.strip_prefix("user_id=")?.parse::<u32>().ok())
    };
    let is_confined = |mount: &wire::VolumeMount| {
        ["nosuid", "nodev"]
            .iter()
            .all(|option| mount.options.iter().any(|it| it == option))
    };
    let is_medium = |mount: &wire::VolumeMount| {
        ["/media/", "/run/media/", "/net/"]
            .iter()
            .any(|directory| mount.path.starts_with(directory))
    };
    let is_image = volume.devices.iter().any(|name| is_loop(name));
    let mut mounts = volume.mounts.iter();
    mounts.all(|mount| {
        (is_fuse && owner(mount).is_some_and(|uid| uid != 0))
            || (is_confined(mount) && (is_image || is_medium(mount)))
    })
}

fn is_loop(device: &str) -> bool {
    device
        .strip_prefix("loop")
        .is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(kind: SubjectKind, id: &str) -> wire::Subject {
        wire::Subject {
            kind: kind.into(),
            id: id.to_owned(),
            name: String::new(),
        }
    }

    fn volume(fs_type: &str, path: &str, options: &[&str], super_options: &[&str]) -> wire::Volume {
        let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        wire::Volume {
            id: "v".to_owned(),
            filesystem: Some(wire::Filesystem {
                r#type: fs_type.to_owned(),
                ..Default::default()
            }),
            mounts: vec![wire::VolumeMount {
                path: path.to_owned(),
                role: MountRole::Host.into(),
                options: texts(options),
                super_options: texts(super_options),
                ..Default::default()
            }],
            drive_ids: vec!["naa.1".to_owned()],
            ..Default::default()
        }
    }

    fn is_user_made(volume: wire::Volume, reason: &str) -> bool {
        let volumes = [volume];
        let subject = subject(SubjectKind::Volume, "v");
        Origins::new(&[], &volumes).is_user_made(Some(&subject), [reason])
    }

    #[test]
    fn a_filesystem_of_the_host_is_the_nodes_own_whatever_happens_to_it() {
        let on_loop = wire::Volume {
            devices: vec!["loop3".to_owned()],
            ..volume("ext4", "/srv", &["rw"], &["rw"])
        };
        let with_pods = wire::Volume {
            pods: vec![wire::PodUse::default()],
            ..volume("xfs", "/mnt/disks/1", &["rw"], &[])
        };
        let hardened = volume("ext4", "/tmp", &["nosuid", "nodev"], &[]);
        let confined = ["rw", "nosuid", "nodev"];
        let fuse_of_root = volume("fuse.glusterfs", "/g", &[], &["user_id=1000", "user_id=0"]);
        let ntfs_of_root = volume("fuseblk", "/mnt/win", &confined, &["user_id=0"]);
        let on_san = wire::Volume {
            remote: true,
            ..volume("xfs", "/var/lib/postgresql", &confined, &[])
        };
        let home_of_nfs = wire::Volume {
            remote: true,
            drive_ids: Vec::new(),
            ..volume("nfs4", "/home", &confined, &[])
        };
        for own in [
            on_loop,
            with_pods,
            hardened,
            fuse_of_root,
            ntfs_of_root,
            on_san,
            home_of_nfs,
        ] {
            for reason in ["OutOfSpace", "FilesystemCorrupted", "ProbeTimeout"] {
                assert!(!is_user_made(own.clone(), reason), "{own:?}");
            }
        }
    }

    #[test]
    fn what_a_pod_does_to_its_volume_is_user_made_and_a_failure_below_it_is_not() {
        let of_pod = wire::Volume {
            driver: "csi.example".to_owned(),
            ..volume("ext4", "/var/lib/kubelet/pods/x", &[], &[])
        };
        assert!(is_user_made(of_pod.clone(), "OutOfSpace"));
        for own in ["FilesystemCorrupted", "NotAccessible", "ProbeTimeout"] {
            assert!(!is_user_made(of_pod.clone(), own), "{own}");
        }
        let remote = wire::Volume {
            remote: true,
            drive_ids: Vec::new(),
            ..of_pod
        };
        assert!(is_user_made(remote, "FilesystemErrors"));
    }

    #[test]
    fn mounts_that_users_can_make_are_theirs_with_any_reason() {
        let confined = ["rw", "nosuid", "nodev"];
        let fuse = volume("fuse.x", "/home/u/m", &[], &["rw", "user_id=4001"]);
        let image = wire::Volume {
            devices: vec!["loop0p1".to_owned()],
            ..volume("ext4", "/mnt/x", &confined, &[])
        };
        let stick = volume("vfat", "/run/media/u/LABEL", &confined, &[]);
        let net = wire::Volume {
            remote: true,
            ..volume("nfs4", "/net/host/export", &confined, &[])
        };
        for users in [fuse, image, stick, net] {
            assert!(
                is_user_made(users.clone(), "FilesystemCorrupted"),
                "{users:?}"
            );
        }
    }

    #[test]
    fn a_network_disk_is_a_users_if_nothing_but_a_users_volume_is_on_it() {
        let drives = [wire::Drive {
            id: "naa.1".to_owned(),
            kind: DriveKind::Remote.into(),
            ..Default::default()
        }];
        let host = [volume("ext4", "/", &["rw"], &[])];
        let is_user_made = |volumes: &[wire::Volume], kind, id| {
            Origins::new(&drives, volumes).is_user_made(Some(&subject(kind, id)), ["IoErrors"])
        };
        let of_pod = [wire::Volume {
            driver: "csi.example".to_owned(),
            ..volume("ext4", "/var/lib/kubelet/pods/x", &[], &[])
        }];
        assert!(is_user_made(&of_pod, SubjectKind::Drive, "naa.1"));
        assert!(!is_user_made(&host, SubjectKind::Drive, "naa.1"));
        // A pool, swap or a guest's disk, of which no volume is listed.
        assert!(!is_user_made(&[], SubjectKind::Drive, "naa.1"));
        assert!(!is_user_made(&[], SubjectKind::Drive, "naa.2"));
        assert!(!is_user_made(&[], SubjectKind::Device, "dm-3"));
        assert!(is_user_made(&[], SubjectKind::Device, "loop7"));
        assert!(!is_user_made(&[], SubjectKind::Source, "kmsg"));
    }
}
