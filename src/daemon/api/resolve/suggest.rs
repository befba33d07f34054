//! What an unknown name may have meant: the names of everything on the node that are nearly equal,
//! or the mount that holds an unknown path. Pure.

use std::path::Path;

use diskvitals_finding::path::HostPath;
use diskvitals_model::block::Layer;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_text::naming::slot_name;
use diskvitals_text::similar::similar;

/// The best suggestions first; empty if nothing is similar.
pub(super) fn suggestions(snapshot: &Snapshot, query: &str) -> Vec<String> {
    let names = names(snapshot);
    let found = similar(query, names.iter().map(String::as_str));
    let mount = || enclosing_mount(snapshot, Path::new(query)).into_iter().collect();
    match found.is_empty() {
        true => mount(),
        false => found.into_iter().map(str::to_owned).collect(),
    }
}

/// The longest mount point above the path, but not `/`, below which everything is.
fn enclosing_mount(snapshot: &Snapshot, path: &Path) -> Option<String> {
    let mounts = snapshot.volumes.values().flat_map(|volume| {
        let mounts = volume.facts.mounts.iter();
        mounts.map(|mount| &mount.path)
    });
    mounts
        .filter(|mount| mount.as_path() != Path::new("/") && path.starts_with(mount.as_path()))
        .max_by_key(|mount| mount.as_bytes().len())
        .map(HostPath::to_string)
}

/// Every name that `resolve` accepts of the things on this node.
fn names(snapshot: &Snapshot) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for drive in snapshot.drives.values() {
        let facts = &drive.facts;
        let devices = facts.devices.iter().map(|device| device.name.clone());
        names.extend(devices.chain([facts.id.to_string(), facts.name.clone()]));
        names.extend(facts.serial.iter().chain(&facts.wwn).cloned());
        names.extend(facts.links.iter().cloned());
        let slot = facts.location.slot.as_deref().map(slot_name);
        names.extend(slot.map(|slot| format!("slot {slot}")));
    }
    for device in snapshot.inventory.devices.values() {
        names.push(device.name.clone());
        if let Layer::Dm { name, volume_group, logical_volume, .. } = &device.layer {
            names.push(name.clone());
            let lv = volume_group.as_ref().zip(logical_volume.as_ref());
            names.extend(lv.map(|(group, volume)| format!("{group}/{volume}")));
        }
    }
    for volume in snapshot.volumes.values() {
        let facts = &volume.facts;
        names.push(facts.id.to_string());
        let texts = [&facts.handle, &facts.pv, &facts.fs_uuid];
        names.extend(texts.into_iter().flatten().cloned());
        names.extend(facts.mounts.iter().map(|mount| mount.path.to_string()));
        let pods = facts.pods.iter().filter_map(|pod| pod.name.as_ref());
        for pod in pods {
            names.extend([format!("{}/{}", pod.namespace, pod.name), pod.name.clone()]);
        }
    }
    // A device is named with its folder as well.
    let devices: Vec<String> =
        snapshot.inventory.devices.keys().map(|name| format!("/dev/{name}")).collect();
    names.extend(devices);
    names
}
