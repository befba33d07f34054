//! The names under which people know drives, block devices and volumes. Ids are for programs.
//!
//! In: parts of a snapshot. Out: a mount point, a pod, a PV, `VG/LV`, `md127`, `sda`. Pure.

use crate::block::{Inventory, Layer};
use crate::snapshot::{Drive, Presence, Snapshot};
use crate::volume::{MountRole, PodUse, VolumeFacts};
use diskvitals_finding::Subject;
use diskvitals_finding::kubelet::PodName;
use diskvitals_finding::path::HostPath;

/// `VG/LV` of a logical volume, the name below /dev/mapper of another dm device, the name of a ZFS
/// pool, the dataset of a zvol, otherwise the kernel name.
pub fn device(inventory: &Inventory, name: &str) -> String {
    match inventory.devices.get(name).map(|device| &device.layer) {
        Some(Layer::Dm { volume_group: Some(group), logical_volume: Some(volume), .. }) => {
            format!("{group}/{volume}")
        }
        Some(Layer::Dm { name: mapped, .. }) if !mapped.is_empty() => mapped.clone(),
        Some(Layer::ZfsPool { name } | Layer::Zvol { dataset: Some(name) }) => name.clone(),
        _ => name.to_owned(),
    }
}

/// The kernel name. A missing drive had it; another drive may have it now.
pub fn drive(drive: &Drive) -> String {
    let facts = &drive.facts;
    match (facts.name.as_str(), drive.presence) {
        ("", _) => facts.id.to_string(),
        (name, Presence::Present) => name.to_owned(),
        (name, Presence::Missing { .. }) => format!("was {name}"),
    }
}

/// The host's mount point, otherwise a pod, the PV, the handle, the device, the id.
pub fn volume(inventory: &Inventory, facts: &VolumeFacts) -> String {
    let mount = host_mounts(facts).min_by_key(|path| path.as_bytes().len());
    let named = mount
        .map(ToString::to_string)
        .or_else(|| pods(facts).first().map(|pod| format!("pod {pod}")))
        .or_else(|| facts.pv.as_ref().map(|pv| format!("pv {pv}")))
        .or_else(|| facts.handle.clone());
    named
        .or_else(|| Some(device(inventory, facts.device.as_ref()?)))
        .unwrap_or_else(|| facts.id.to_string())
}

pub fn subject(snapshot: &Snapshot, of: &Subject) -> String {
    let known = match of {
        Subject::Drive(id) => snapshot.drives.get(id).map(|it| drive(it)),
        Subject::Volume(id) => {
            let volumes = snapshot.volumes.get(id);
            volumes.map(|it| volume(&snapshot.inventory, &it.facts))
        }
        Subject::Device(name) => Some(device(&snapshot.inventory, name)),
        Subject::Source(source) => Some(source.label().to_owned()),
    };
    known.unwrap_or_else(|| match of {
        Subject::Drive(id) => id.to_string(),
        Subject::Volume(id) => id.to_string(),
        Subject::Device(name) => name.clone(),
        Subject::Source(source) => source.name().to_owned(),
    })
}

/// The mount points that are neither the kubelet's nor a pod's, missing ones included.
pub fn host_mounts(facts: &VolumeFacts) -> impl Iterator<Item = &HostPath> {
    let mounts = facts.mounts.iter().map(|mount| (&mount.path, mount.role));
    let missing = facts.missing_mounts.iter();
    mounts
        .chain(missing.map(|mount| (&mount.path, mount.role)))
        .filter(|(_, role)| *role == MountRole::Host)
        .map(|(path, _)| path)
}

/// Each pod once, as `namespace/name`, or its uid.
pub fn pods(facts: &VolumeFacts) -> Vec<String> {
    let name = |pod: &PodUse| match &pod.name {
        Some(PodName { namespace, name }) => format!("{namespace}/{name}"),
        None => pod.uid.clone(),
    };
    let mut pods: Vec<String> = facts.pods.iter().map(name).collect();
    pods.sort();
    pods.dedup();
    pods
}

/// Sorts names as people do: `sdb` before `sdaa`, `nvme2n1` before `nvme10n1`.
pub fn sort_key(name: &str) -> String {
    const MAX_CHARS: usize = 64;
    let letters = ["sd", "vd", "xvd", "hd"]
        .into_iter()
        .find_map(|prefix| Some((prefix, name.strip_prefix(prefix)?)))
        .filter(|(_, rest)| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_lowercase()));
    if let Some((prefix, rest)) = letters {
        return format!("{prefix}{:02}{rest}", rest.len());
    }
    let (mut key, mut digits) = (String::new(), String::new());
    for c in name.chars().take(MAX_CHARS).chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            key.push_str(&format!("{digits:0>10}"));
            digits.clear();
        }
        key.push(c);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestHost, dm};

    #[test]
    fn names_are_sorted_as_people_count() {
        let mut names = ["sdaa", "nvme10n1", "sdb", "nvme2n1", "sda", "md127", "/srv/bay9"];
        names.sort_by_key(|name| sort_key(name));
        assert_eq!(names, ["/srv/bay9", "md127", "nvme2n1", "nvme10n1", "sda", "sdb", "sdaa"]);
    }

    #[test]
    fn a_logical_volume_has_its_group_and_its_name() {
        let mut lv = dm("dm-3", "253:3", "vg--nas-home--dirs", "LVM-x", &[]);
        if let Layer::Dm { volume_group, logical_volume, .. } = &mut lv.layer {
            (*volume_group, *logical_volume) = (Some("vg-nas".into()), Some("home-dirs".into()));
        }
        let host = TestHost::default().with(lv).with(dm(
            "dm-4",
            "253:4",
            "luks-root",
            "CRYPT-LUKS2-x",
            &[],
        ));
        let names = ["dm-3", "dm-4", "md0"].map(|name| device(&host.inventory, name));
        assert_eq!(names, ["vg-nas/home-dirs", "luks-root", "md0"]);
    }
}
