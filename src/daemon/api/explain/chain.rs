//! The chain of an explanation: drive → partition → md, LVM, crypt… → filesystem → mount → volume →
//! pod, as nodes that name the nodes below them. Pure.

use std::collections::BTreeMap;

use crate::api::explain::RelatedObjects;
use crate::api::resolve::stack_depth;
use diskvitals_convert as convert;
use diskvitals_finding::Subject;
use diskvitals_finding::severity::Severity;
use diskvitals_model::block::{BlockDevice, Layer};
use diskvitals_model::snapshot::{Drive, Presence, Snapshot, Volume};
use diskvitals_model::volume::MountRole;
use diskvitals_model::{label, membership};
use diskvitals_text::size::format_bytes;
use diskvitals_wire as wire;

pub(super) fn chain(snapshot: &Snapshot, around: &RelatedObjects) -> Vec<wire::ChainNode> {
    let mut nodes = ChainBuilder::default();
    for drive in around.drives_in(snapshot) {
        nodes.push(drive_node(snapshot, drive));
    }
    let mut devices: Vec<&String> = around.devices.iter().collect();
    let mut depths = BTreeMap::new();
    devices.sort_by_cached_key(|name| (stack_depth(snapshot, name, &mut depths), (*name).clone()));
    let node_ids: BTreeMap<&str, String> = devices
        .iter()
        .map(|name| (name.as_str(), device_node_id(snapshot, around, name)))
        .collect();
    for name in &devices {
        if let Some(device) = snapshot.inventory.devices.get(*name) {
            if device.drive.is_none() {
                nodes.push(device_node(snapshot, device, &node_ids));
            }
        } else if node_ids.get(name.as_str()).is_some_and(|id| id.starts_with("device:")) {
            nodes.push(missing_device_node(around, snapshot, name, &node_ids));
        }
    }
    // All filesystems, then all mounts, then all volumes, then all pods.
    let mut volumes: Vec<(&Volume, Vec<String>)> = Vec::new();
    for volume in around.volumes_in(snapshot) {
        volumes.push((volume, filesystem(snapshot, volume, &node_ids, &mut nodes)));
    }
    for (volume, on) in &mut volumes {
        *on = mounts(volume, std::mem::take(on), &mut nodes);
    }
    for (volume, on) in &mut volumes {
        nodes.push(volume_node(snapshot, volume, std::mem::take(on)));
    }
    for (volume, _) in volumes {
        pods(volume, &mut nodes);
    }
    nodes.list
}

/// Nodes in order, each id once: a filesystem or a pod may be reached from several volumes.
#[derive(Default)]
struct ChainBuilder {
    list: Vec<wire::ChainNode>,
    at: BTreeMap<String, usize>,
}

impl ChainBuilder {
    fn push(&mut self, node: wire::ChainNode) {
        match self.at.get(&node.id).and_then(|at| self.list.get_mut(*at)) {
            Some(known) => {
                for id in node.stands_on {
                    if !known.stands_on.contains(&id) {
                        known.stands_on.push(id);
                    }
                }
            }
            None => {
                self.at.insert(node.id.clone(), self.list.len());
                self.list.push(node);
            }
        }
    }
}

fn device_node_id(snapshot: &Snapshot, around: &RelatedObjects, name: &str) -> String {
    let drive = match snapshot.inventory.devices.get(name) {
        Some(device) => device.drive.as_ref(),
        None => around.drives.iter().find(|id| {
            snapshot.drives.get(*id).is_some_and(|drive| {
                drive.presence != Presence::Present
                    && (drive.facts.name == name
                        || drive.facts.devices.iter().any(|device| device.name == name))
            })
        }),
    };
    drive.map_or_else(|| format!("device:{name}"), |id| format!("drive:{id}"))
}

fn drive_node(snapshot: &Snapshot, drive: &Drive) -> wire::ChainNode {
    let facts = &drive.facts;
    let names = [&facts.vendor, &facts.model].into_iter().flatten().cloned();
    let serial = facts.serial.iter().map(|it| format!("serial {it}"));
    let mut detail: Vec<String> = names.chain(serial).collect();
    if let Presence::Missing { .. } = drive.presence {
        detail.push("MISSING".to_owned());
        detail.extend(drive.member_of.iter().map(|it| format!("was a member of {it}")));
    } else {
        // Its partitions and what stands on them have their own.
        let devices = facts.devices.iter();
        let devices = devices.filter_map(|it| snapshot.inventory.devices.get(&it.name));
        detail.extend(devices.flat_map(|it| members_of(snapshot, it)));
    }
    wire::ChainNode {
        id: format!("drive:{}", facts.id),
        kind: "drive".to_owned(),
        name: facts.name.clone(),
        detail: detail.join(", "),
        stands_on: Vec::new(),
        health: convert::health(drive.health),
    }
}

fn device_node(
    snapshot: &Snapshot,
    device: &BlockDevice,
    ids: &BTreeMap<&str, String>,
) -> wire::ChainNode {
    let size = format_bytes(device.size_bytes);
    let label = label::device(&snapshot.inventory, &device.name);
    let (kind, detail) = match &device.layer {
        Layer::Disk => ("disk", size),
        Layer::Partition { number, .. } => ("partition", format!("partition {number}, {size}")),
        Layer::Md { level } => (
            "md",
            format!(
                "{} of {}, {size}",
                level.as_deref().unwrap_or("array"),
                device.underlying.join(", ")
            ),
        ),
        Layer::Dm { uuid, .. } => {
            let uuid = uuid.as_deref().unwrap_or_default();
            let kind = match uuid {
                _ if device.is_multipath() => "multipath",
                _ if uuid.starts_with("CRYPT-") => "crypt",
                _ if uuid.starts_with("LVM-") || label.contains('/') => "lvm",
                _ => "dm",
            };
            (kind, format!("{}, {size}", device.name))
        }
        Layer::Bcache => ("bcache", size),
        Layer::ZfsPool { .. } => ("pool", format!("ZFS, over {} devices", device.underlying.len())),
        Layer::Zvol { .. } => ("zvol", format!("{}, {size}", device.name)),
        Layer::Loop { backing_file } => (
            "loop",
            format!("{}, {size}", backing_file.as_deref().unwrap_or("no backing file known")),
        ),
        Layer::Other => ("disk", size),
    };
    let mut detail = vec![detail];
    detail.extend(members_of(snapshot, device));
    wire::ChainNode {
        id: format!("device:{}", device.name),
        kind: kind.to_owned(),
        name: label,
        detail: detail.join(", "),
        stands_on: node_ids(device.underlying.iter(), ids),
        health: device_health(snapshot, &device.name),
    }
}

fn members_of(snapshot: &Snapshot, device: &BlockDevice) -> impl Iterator<Item = String> {
    let names = membership::of_device(&snapshot.inventory, device);
    names.into_iter().map(|name| format!("member of {name}"))
}

fn node_ids<'a>(
    names: impl Iterator<Item = &'a String>,
    ids: &BTreeMap<&str, String>,
) -> Vec<String> {
    names.filter_map(|name| ids.get(name.as_str()).cloned()).collect()
}

/// The worst finding about the device itself. A device without findings has no health: unspecified.
fn device_health(snapshot: &Snapshot, name: &str) -> i32 {
    let about = snapshot
        .findings
        .values()
        .filter(|finding| matches!(&finding.subject, Subject::Device(device) if device == name));
    match about.map(|finding| finding.severity).max() {
        Some(Severity::Bad) => wire::Health::Bad.into(),
        Some(Severity::Suspect) => wire::Health::Suspect.into(),
        _ => wire::Health::Unspecified.into(),
    }
}

/// A device that a volume's records name and that no longer exists. The next device in the
/// volume's list, which is ordered top first, was directly below it.
fn missing_device_node(
    around: &RelatedObjects,
    snapshot: &Snapshot,
    name: &str,
    ids: &BTreeMap<&str, String>,
) -> wire::ChainNode {
    let kind = match name {
        _ if name.starts_with("md") => "md",
        _ if name.starts_with("dm-") => "dm",
        _ if name.starts_with("loop") => "loop",
        _ if name.starts_with("bcache") => "bcache",
        _ if name.starts_with("zfs:") => "pool",
        _ => "partition",
    };
    let next = around.volumes_in(snapshot).find_map(|volume| {
        let mut devices = volume.facts.devices.iter();
        devices.find(|device| *device == name)?;
        devices.next()
    });
    wire::ChainNode {
        id: format!("device:{name}"),
        kind: kind.to_owned(),
        name: name.to_owned(),
        detail: "gone".to_owned(),
        stands_on: node_ids(next.into_iter(), ids),
        health: wire::Health::Unspecified.into(),
    }
}

/// The node below the volume's mounts: its filesystem's node, or for raw block the device's.
fn filesystem(
    snapshot: &Snapshot,
    volume: &Volume,
    ids: &BTreeMap<&str, String>,
    nodes: &mut ChainBuilder,
) -> Vec<String> {
    let facts = &volume.facts;
    let btrfs = facts
        .fs_uuid
        .as_ref()
        .and_then(|uuid| snapshot.inventory.btrfs.iter().find(|fs| fs.uuid == *uuid));
    let mut on = match btrfs {
        Some(fs) => node_ids(fs.devices.iter(), ids),
        None => node_ids(facts.device.iter(), ids),
    };
    if on.is_empty() {
        // No local device is known below the filesystem, at most the drives that were below it.
        let drives = facts.drive_ids.iter();
        on = drives.map(|id| format!("drive:{id}")).collect();
    }
    let Some(kind) = &facts.fs_type else {
        return on;
    };
    let id = format!("filesystem:{}", facts.fs_uuid.as_deref().unwrap_or(facts.id.as_str()));
    let label = facts.fs_label.iter().map(|label| format!("label {label}"));
    let uuid = facts.fs_uuid.iter().map(|uuid| format!("uuid {uuid}"));
    let mut detail: Vec<String> = label.chain(uuid).collect();
    if facts.remote || on.is_empty() || kind == "zfs" {
        detail.extend(facts.source.iter().map(|source| format!("from {source}")));
    }
    nodes.push(wire::ChainNode {
        id: id.clone(),
        kind: "filesystem".to_owned(),
        name: kind.clone(),
        detail: detail.join(", "),
        stands_on: on,
        health: 0,
    });
    vec![id]
}

/// The nodes below the volume: its mounts, or `base` if it has no mounts.
fn mounts(volume: &Volume, base: Vec<String>, nodes: &mut ChainBuilder) -> Vec<String> {
    let facts = &volume.facts;
    let mut ids = Vec::new();
    let there = facts.mounts.iter().map(|mount| (&mount.path, mount.role, mount.options.join(",")));
    let missing = facts
        .missing_mounts
        .iter()
        .map(|mount| (&mount.path, mount.role, "expected, NOT MOUNTED".to_owned()));
    for (path, role, state) in there.chain(missing) {
        let id = format!("mount:{path}");
        let role = match role {
            MountRole::Host => "",
            MountRole::Staging => "staging: ",
            MountRole::Pod => "pod: ",
        };
        nodes.push(wire::ChainNode {
            id: id.clone(),
            kind: "mount".to_owned(),
            name: path.to_string(),
            detail: format!("{role}{state}"),
            stands_on: base.clone(),
            health: 0,
        });
        ids.push(id);
    }
    if ids.is_empty() { base } else { ids }
}

fn volume_node(snapshot: &Snapshot, volume: &Volume, stands_on: Vec<String>) -> wire::ChainNode {
    let facts = &volume.facts;
    let name = label::volume(&snapshot.inventory, facts);
    let mut detail = vec![facts.id.to_string()];
    detail.extend(facts.pv.iter().map(|pv| format!("PV {pv}")));
    let abnormal = volume.condition.as_ref().filter(|condition| condition.abnormal);
    detail.extend(abnormal.map(|condition| condition.message.clone()));
    wire::ChainNode {
        id: format!("volume:{}", facts.id),
        kind: "volume".to_owned(),
        name,
        detail: detail.join(", "),
        stands_on,
        health: convert::health(volume.health),
    }
}

fn pods(volume: &Volume, nodes: &mut ChainBuilder) {
    for pod in &volume.facts.pods {
        let name = pod
            .name
            .as_ref()
            .map_or_else(|| pod.uid.clone(), |name| format!("{}/{}", name.namespace, name.name));
        nodes.push(wire::ChainNode {
            id: format!("pod:{}", pod.uid),
            kind: "pod".to_owned(),
            name,
            detail: format!("uid {}, as {}", pod.uid, pod.volume_name),
            stands_on: vec![format!("volume:{}", volume.facts.id)],
            health: 0,
        });
    }
}
