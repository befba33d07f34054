//! Ids that earlier versions stored. They ended the id of a long name in FNV-1a, so that whoever
//! chose a name could choose the id of another one.
//!
//! In: the stored drives and volumes. Out: which stored ids have another form now. A name is taken
//! from what is stored beside the id: no other name with the same former id takes the history.

use std::collections::{BTreeMap, BTreeSet};

use crate::drive::model_serial;
use crate::facts::{KnownDrive, StoredVolume};
use diskvitals_finding::ids::{self, DriveId, VolumeId};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct FormerIds {
    /// Former id → the present one.
    pub renamed: BTreeMap<String, String>,
    /// Drives whose names are not stored. They would be missing, beside new drives in their places.
    pub unknown_drives: Vec<DriveId>,
}

impl FormerIds {
    pub fn find(drives: &[KnownDrive], volumes: &[StoredVolume]) -> FormerIds {
        let of_drives = drives.iter().flat_map(|known| {
            let ids = drive_ids(known).chain([&known.facts.place]);
            ids.filter_map(|id| pair(id.as_str(), drive_names(known)))
        });
        let of_volumes = volumes.iter().filter_map(|volume| {
            let id = volume.known.facts.id.as_str();
            pair(id, volume_names(volume))
        });
        let mut present: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (former, id) in of_drives.chain(of_volumes) {
            present.entry(former).or_default().insert(id);
        }
        // Of two things that had one id, neither is it.
        present.retain(|_, ids| ids.len() == 1);
        let ids =
            present.into_iter().filter_map(|(former, mut ids)| Some((former, ids.pop_first()?)));
        let renamed: BTreeMap<String, String> = ids.collect();
        let is_lost =
            |id: &DriveId| ids::is_former(id.as_str()) && !renamed.contains_key(id.as_str());
        let unknown = drives.iter().filter(|known| drive_ids(known).all(is_lost));
        let unknown_drives = unknown.map(|known| known.facts.id.clone()).collect();
        FormerIds { renamed, unknown_drives }
    }
}

fn drive_ids(known: &KnownDrive) -> impl Iterator<Item = &DriveId> {
    known.facts.identities.iter().chain([&known.facts.id])
}

fn pair(stored: &str, names: Vec<String>) -> Option<(String, String)> {
    Some((stored.to_owned(), ids::renamed(stored, names)?))
}

fn drive_names(known: &KnownDrive) -> Vec<String> {
    let facts = &known.facts;
    let place = facts.location.path.as_ref().map(|path| DriveId::name(format!("path:{path}")));
    let named = facts.model.as_ref().zip(facts.serial.as_ref());
    let named = named.map(|(model, serial)| DriveId::name(model_serial(model, serial)));
    place.into_iter().chain(named).collect()
}

fn volume_names(volume: &StoredVolume) -> Vec<String> {
    let facts = &volume.known.facts;
    let csi = facts.driver.as_ref().zip(facts.handle.as_ref());
    let csi = csi.map(|(driver, handle)| VolumeId::csi_name(driver, handle));
    let mounts = facts.mounts.iter().map(|mount| &mount.path);
    // A volume without its drive has no mounts any more.
    let mounts = mounts.chain(volume.known.mounted_since.keys());
    csi.into_iter().chain(mounts.map(VolumeId::mount_name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestHost;
    use diskvitals_finding::ids::former_id;

    /// Two locations whose former ids are the same.
    const PLACES: [&str; 2] = [
        "ip-192.168.10.20:3260-iscsi-iqn.2004-10.com.example.storage.rack-12:tenants.production.europe-west.databases.replicated.primary.volumes.backing-disk-OBtMiZam10H",
        "ip-192.168.10.20:3260-iscsi-iqn.2004-10.com.example.storage.rack-12:tenants.production.europe-west.databases.replicated.primary.volumes.backing-disk-6Y4oT46VVeG",
    ];

    /// Drives at these places, as an earlier version stored them.
    fn drives(places: &[&str]) -> Vec<KnownDrive> {
        let mut host = TestHost::default();
        for (number, place) in places.iter().enumerate() {
            host.plug(&format!("sd{number}"), &format!("8:{number}"), &format!("S{number}"));
            let drive = &mut host.inventory.drives[number];
            drive.location.path = Some((*place).to_owned());
            drive.place = DriveId::known(former_id(&DriveId::name(format!("path:{place}"))));
        }
        host.scan(0);
        host.facts.drives.into_values().collect()
    }

    #[test]
    fn of_two_drives_with_one_former_place_neither_has_it() {
        for place in PLACES {
            let renamed = FormerIds::find(&drives(&[place]), &[]).renamed;
            let present = DriveId::new(format!("path:{place}")).to_string();
            assert_eq!(renamed.into_values().collect::<Vec<_>>(), [present]);
        }
        assert_eq!(FormerIds::find(&drives(&PLACES), &[]), FormerIds::default());
    }
}
