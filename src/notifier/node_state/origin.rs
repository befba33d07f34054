//! Which causes an unprivileged user can make (`finding::origin`), from the daemon's answer.

use diskvitals_finding::origin::{self, Mount, Volume};
use diskvitals_wire as wire;
use diskvitals_wire::{DriveKind, MountRole, SubjectKind};

pub(super) struct Origins<'a>(origin::Origins<'a>);

impl<'a> Origins<'a> {
    pub(super) fn new(
        drives: impl IntoIterator<Item = &'a wire::Drive>,
        volumes: impl IntoIterator<Item = &'a wire::Volume>,
    ) -> Origins<'a> {
        let remote = drives.into_iter().filter(|drive| drive.kind() == DriveKind::Remote);
        let remote = remote.map(|drive| drive.id.as_str());
        Origins(origin::Origins::new(remote, volumes.into_iter().map(volume)))
    }

    /// `reasons`: those of the findings of the subject itself.
    pub(super) fn is_user_made<'b>(
        &self,
        subject: Option<&wire::Subject>,
        reasons: impl IntoIterator<Item = &'b str>,
    ) -> bool {
        let Some(subject) = subject else { return false };
        let subject = match subject.kind() {
            SubjectKind::Drive => origin::Subject::Drive(&subject.id),
            SubjectKind::Device => origin::Subject::Device(&subject.id),
            SubjectKind::Volume => origin::Subject::Volume(&subject.id),
            SubjectKind::Source | SubjectKind::Unspecified => origin::Subject::Source,
        };
        self.0.is_user_made(subject, reasons)
    }
}

fn volume(volume: &wire::Volume) -> Volume<'_> {
    let mounts = volume.mounts.iter().map(|mount| Mount {
        path: mount.path.as_str().into(),
        is_on_host: mount.role() == MountRole::Host,
        options: &mount.options,
        super_options: &mount.super_options,
    });
    let fs_type = volume.filesystem.as_ref().map(|it| it.r#type.as_str());
    Volume {
        id: &volume.id,
        has_driver: !volume.driver.is_empty(),
        has_pv: !volume.pv.is_empty(),
        has_pods: !volume.pods.is_empty(),
        is_remote: volume.remote,
        fs_type: fs_type.unwrap_or_default(),
        devices: &volume.devices,
        drives: volume.drive_ids.iter().map(String::as_str).collect(),
        mounts: mounts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(kind: SubjectKind, id: &str) -> wire::Subject {
        wire::Subject { kind: kind.into(), id: id.to_owned(), name: String::new() }
    }

    fn volume(fs_type: &str, path: &str, options: &[&str], super_options: &[&str]) -> wire::Volume {
        let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        wire::Volume {
            id: "v".to_owned(),
            filesystem: Some(wire::Filesystem { r#type: fs_type.to_owned(), ..Default::default() }),
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
        let on_san =
            wire::Volume { remote: true, ..volume("xfs", "/var/lib/postgresql", &confined, &[]) };
        let home_of_nfs = wire::Volume {
            remote: true,
            drive_ids: Vec::new(),
            ..volume("nfs4", "/home", &confined, &[])
        };
        for own in [on_loop, with_pods, hardened, fuse_of_root, ntfs_of_root, on_san, home_of_nfs] {
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
        let remote = wire::Volume { remote: true, drive_ids: Vec::new(), ..of_pod };
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
        let net =
            wire::Volume { remote: true, ..volume("nfs4", "/net/host/export", &confined, &[]) };
        for users in [fuse, image, stick, net] {
            assert!(is_user_made(users.clone(), "FilesystemCorrupted"), "{users:?}");
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
