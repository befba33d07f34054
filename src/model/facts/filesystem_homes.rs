//! On which drives a filesystem is: a copy of it on another drive has the same UUID.
//!
//! What is suspected of a filesystem is bound to its UUID and its drives. A copy is a volume of its
//! own, known by its mount point and without a UUID, as long as the original is there. Homes are kept
//! across restarts: a copy that is mounted then is one all the same.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::counters::CounterHistory;
use crate::counters::CounterKey;
use crate::facts::Facts;
use crate::facts::corruption::of_filesystem;
use crate::volume::VolumeFacts;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::path::HostPath;

/// Filesystems that are no longer mounted are remembered up to this number.
const MAX_HOMES: usize = 4096;
/// The kind of note.
pub(super) const HOME: &str = "filesystem-home";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Home {
    drives: Vec<DriveId>,
    mounts: BTreeSet<HostPath>,
}

impl Home {
    fn to_note(&self) -> CounterHistory {
        let text = serde_json::to_string(self).ok();
        CounterHistory::note("/proc/1/mountinfo".to_owned(), [(HOME, text)])
    }

    fn from_note(note: &CounterHistory) -> Option<Home> {
        serde_json::from_str(note.details.get(HOME)?).ok()
    }

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
            let Some(home) = self.counters.get(&key(&uuid)).and_then(Home::from_note) else {
                continue;
            };
            let home = &home;
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
        let mounted: BTreeSet<CounterKey> = homes.keys().map(|uuid| key(uuid)).collect();
        let homes = homes.into_iter();
        let homes = homes.filter_map(|(uuid, home)| Some((key(uuid), home?.to_note())));
        for (key, note) in homes.collect::<Vec<_>>() {
            self.counters.put(key, note);
        }
        self.counters.limit_notes(HOME, MAX_HOMES, |key| mounted.contains(key));
    }
}

fn key(uuid: &str) -> CounterKey {
    (of_filesystem(uuid), HOME.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::block::Layer;
    use crate::fixture::*;

    fn partition(name: &str, dev: &str, disk: &str, uuid: &str) -> crate::block::BlockDevice {
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

    /// The daemon starts anew, after a boot, and the store answers before the first scan or after it.
    fn restart(host: &TestHost, is_store_late: bool) -> TestHost {
        let counters = host.facts.counters.iter();
        let counters: Vec<_> =
            counters.map(|(key, history)| (key.clone(), (**history).clone())).collect();
        let drives: Vec<_> = host.facts.drives.values().cloned().collect();
        let mut after = TestHost { facts: Default::default(), ..host.clone() };
        if is_store_late {
            after.read_all(10);
        }
        drives.into_iter().for_each(|old| after.facts.restore_drive(old));
        after.facts.counters.restore(counters);
        after.facts.identify_again(&after.settings, at(10));
        after.read_all(11);
        after
    }

    #[test]
    fn the_home_of_an_unmounted_filesystem_outlives_a_restart() {
        for is_store_late in [false, true] {
            let mut host = host();
            host.umount("/srv");
            host.read_mounts(2);
            let host = restart(&host, is_store_late);
            // The copy is mounted before the daemon starts, or after it.
            let copy = host.clone().mounted("8:17", "/", "/srv", "ext4", "/dev/sdb1");
            let mut early = restart(&copy, is_store_late);
            early.read_mounts(12);
            let mut late = copy;
            late.read_mounts(12);
            for host in [early, late] {
                assert_eq!(volumes(&host), ["mnt:/srv sdb1"], "{is_store_late}");
            }
        }
    }

    #[test]
    fn homes_are_bounded() {
        let mut host = host();
        for number in 0..super::MAX_HOMES + 2 {
            let key = super::key(&format!("U{number}"));
            host.facts.counters.put(key, super::Home::default().to_note());
        }
        let mut host = host.mounted("8:17", "/", "/copy", "ext4", "/dev/sdb1");
        host.read_mounts(2);
        let homes = || host.facts.counters.iter().filter(|((_, series), _)| series == super::HOME);
        assert!(homes().count() <= super::MAX_HOMES, "{}", homes().count());
        assert!(homes().any(|(key, _)| *key == super::key("U")));
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
