//! On which drives a filesystem is: a copy of it on another drive has the same UUID.
//!
//! What is suspected of a filesystem is bound to its UUID and its drives. A copy is a volume of its
//! own, known by its mount point and without a UUID, as long as the original is there.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::facts::Facts;
use crate::model::ids::{DriveId, VolumeId};
use crate::model::path::HostPath;
use crate::model::volume::VolumeFacts;

/// Filesystems that are no longer mounted are remembered up to this number.
const MAX_HOMES: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Home {
    drives: Vec<DriveId>,
    mounts: BTreeSet<HostPath>,
}

impl Home {
    fn has_drive_of(&self, volume: &VolumeFacts) -> bool {
        let mut drives = volume.drive_ids.iter();
        volume.drive_ids.is_empty() || drives.any(|drive| self.drives.contains(drive))
    }

    fn has_mount_of(&self, volume: &VolumeFacts) -> bool {
        let mut mounts = volume.mounts.iter();
        mounts.any(|mount| self.mounts.contains(&mount.path))
    }
}

impl Facts {
    pub(super) fn separate_copies(&self, found: &mut [VolumeFacts]) {
        let mut sharing: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, volume) in found.iter().enumerate() {
            if let Some(uuid) = &volume.fs_uuid {
                sharing.entry(uuid.clone()).or_default().push(at);
            }
        }
        for (uuid, members) in sharing {
            let Some(home) = self.filesystem_homes.get(&uuid) else {
                continue;
            };
            let (mut here, mut copies): (Vec<usize>, Vec<usize>) =
                members.iter().partition(|at| home.has_drive_of(&found[**at]));
            if here.is_empty() {
                // A filesystem that was moved, or restored after its drive was lost, stays itself.
                // A drive that is known by its location alone may be the same one elsewhere.
                let is_away = |id: &DriveId| {
                    let known = self.drives.get(id).filter(|_| self.is_drive_missing(id));
                    known.is_some_and(|known| known.in_use || known.facts.id_stable)
                };
                let is_lost = home.drives.iter().any(is_away);
                let is_there = self.has_filesystem(home, &uuid);
                let is_kept =
                    |at: &usize| !is_there && (!is_lost || home.has_mount_of(&found[*at]));
                copies.retain(|at| !is_kept(at));
            } else if here.len() > 1 {
                // A snapshot beside its origin.
                let mounted = |at: &usize| home.has_mount_of(&found[*at]);
                let (first, rest): (Vec<usize>, Vec<usize>) =
                    here.iter().partition(|at| mounted(at));
                if first.len() == 1 {
                    copies.extend(rest);
                    here = first;
                }
            }
            let own = VolumeId::filesystem(&uuid);
            if let [at] = here[..]
                && found[at].driver.is_none()
                && self.volumes.contains_key(&own)
            {
                found[at].id = own.clone();
            }
            for at in copies {
                let volume = &mut found[at];
                volume.fs_uuid = None;
                if let (true, Some(mount)) = (volume.id == own, volume.mounts.first()) {
                    volume.id = VolumeId::mount(&mount.path);
                }
            }
        }
    }

    /// Whether a device on the drives of this home has the UUID.
    fn has_filesystem(&self, home: &Home, uuid: &str) -> bool {
        self.devices_with_uuid(uuid).iter().any(|name| {
            let below = self.inventory().map(|it| it.drives_below(name));
            let mut below = below.into_iter().flatten();
            below.any(|drive| home.drives.contains(drive))
        })
    }

    pub(super) fn note_homes(&mut self) {
        let mut homes: BTreeMap<&str, Option<Home>> = BTreeMap::new();
        for known in self.volumes.values() {
            let volume = &known.facts;
            if let Some(uuid) = volume.fs_uuid.as_deref()
                && !volume.drive_ids.is_empty()
                && !volume.mounts.is_empty()
            {
                let home = Home {
                    drives: volume.drive_ids.clone(),
                    mounts: volume.mounts.iter().map(|it| it.path.clone()).collect(),
                };
                // Copies that were found together: nothing tells which was first.
                let entry = homes.entry(uuid);
                entry.and_modify(|it| *it = None).or_insert(Some(home));
            }
        }
        let mounted: BTreeSet<String> = homes.keys().map(|uuid| (*uuid).to_owned()).collect();
        let homes = homes.into_iter();
        let homes = homes.filter_map(|(uuid, home)| Some((uuid.to_owned(), home?)));
        self.filesystem_homes.extend(homes.collect::<Vec<_>>());
        if self.filesystem_homes.len() > MAX_HOMES {
            self.filesystem_homes.retain(|uuid, _| mounted.contains(uuid));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::block::Layer;
    use crate::model::fixture::*;

    fn partition(
        name: &str,
        dev: &str,
        disk: &str,
        uuid: &str,
    ) -> crate::model::block::BlockDevice {
        let mut part = device(name, dev, Layer::Partition { number: 1, start_bytes: 0 }, &[disk]);
        part.fs_type = Some("ext4".into());
        part.fs_uuid = Some(uuid.into());
        part
    }

    /// /srv is on sda; sdb has a copy of its filesystem.
    fn host() -> TestHost {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .with(partition("sda1", "8:1", "sda", "U"))
            .with(partition("sdb1", "8:17", "sdb", "U"))
            .mounted("8:1", "/", "/srv", "ext4", "/dev/sda1");
        host.read_all(1);
        host
    }

    fn volumes(host: &TestHost) -> Vec<String> {
        let known = host.facts.volumes.values();
        known
            .map(|it| format!("{} {}", it.facts.id, it.facts.device.as_deref().unwrap_or("-")))
            .collect()
    }

    #[test]
    fn a_mounted_copy_of_a_filesystem_leaves_it_its_id() {
        let mut host = host().mounted("8:17", "/", "/copy", "ext4", "/dev/sdb1");
        host.read_mounts(2);
        assert_eq!(volumes(&host), ["fs:U sda1", "mnt:/copy sdb1"]);
        host.umount("/copy");
        host.read_mounts(3);
        assert_eq!(volumes(&host), ["fs:U sda1"]);
    }

    #[test]
    fn a_copy_that_is_mounted_alone_is_not_the_filesystem_that_is_suspected() {
        let mut host = host();
        host.umount("/srv");
        host.read_mounts(2);
        // At the same place, too.
        for mount_point in ["/copy", "/srv"] {
            let mut host = host.clone().mounted("8:17", "/", mount_point, "ext4", "/dev/sdb1");
            host.read_mounts(3);
            assert_eq!(volumes(&host), [format!("mnt:{mount_point} sdb1")]);
            let known = host.facts.volumes.values().next().unwrap();
            assert!(known.facts.fs_uuid.is_none(), "nothing is inherited by the UUID");
        }
    }

    #[test]
    fn a_filesystem_that_was_moved_to_another_drive_stays_itself() {
        let mut host = host();
        host.umount("/srv");
        host.read_mounts(2);
        host.pull("sda");
        host.scan(3);
        let mut host = host.mounted("8:17", "/", "/srv", "ext4", "/dev/sdb1");
        host.read_mounts(4);
        assert_eq!(volumes(&host), ["fs:U sdb1"]);
    }

    #[test]
    fn a_snapshot_on_the_same_drive_leaves_the_origin_its_id() {
        let mut host = host().with(partition("sda2", "8:2", "sda", "U")).mounted(
            "8:2",
            "/",
            "/snapshot",
            "ext4",
            "/dev/sda2",
        );
        host.scan(2);
        host.read_mounts(2);
        assert_eq!(volumes(&host), ["fs:U sda1", "mnt:/snapshot sda2"]);
    }
}
