//! The Explain answer: the chain drive → partition → md, LVM, crypt… → filesystem → mount → volume
//! → pod around one thing, with its findings. Pure.
//!
//! In: a snapshot and what a query resolved to. Out: the wire's Explanation. A device that left the
//! inventory (a removed drive) is shown from the volume's stored list of devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::finding_order::rank;
use crate::api::resolve::{Resolved, underlying_drives, volumes_on_device};
use crate::api::{convert, wire};
use crate::model::advice::{Advice, advise};
use crate::model::block::{BlockDevice, Layer};
use crate::model::finding::{Finding, Severity, Subject};
use crate::model::ids::{DriveId, VolumeId};
use crate::model::snapshot::{Drive, Presence, Snapshot, Volume};

/// Whole drive and volume messages in one answer; the chain names the rest.
const MAX_FULL_MESSAGES: usize = 256;
/// Findings in one answer.
const MAX_FINDINGS: usize = 256;
/// Checks in one answer: each with up to `OUTPUT_KEPT` bytes a run.
const MAX_CHECKS: usize = 16;
/// Cleared findings of the subject.
const MAX_CLEARED: usize = 20;

pub(crate) fn explain(snapshot: &Snapshot, named: &Resolved) -> wire::Explanation {
    let subjects = named.subjects();
    let around = RelatedObjects::from_subjects(snapshot, &subjects);
    let findings = findings(snapshot, &around, &subjects);
    wire::Explanation {
        subject: subjects.first().map(convert::subject),
        chain: chain(snapshot, &around),
        drives: around
            .drives
            .iter()
            .filter_map(|id| snapshot.drives.get(id))
            .take(MAX_FULL_MESSAGES)
            .map(|drive| convert::drive(snapshot, drive))
            .collect(),
        volumes: around
            .volumes
            .iter()
            .filter_map(|id| snapshot.volumes.get(id))
            .take(MAX_FULL_MESSAGES)
            .map(|it| convert::volume(snapshot, it))
            .collect(),
        findings,
        advice: advice(snapshot, &around),
        checks: checks(snapshot, &around),
    }
}

/// The newest of each volume, and of each device that was checked under its own name.
fn checks(snapshot: &Snapshot, around: &RelatedObjects) -> Vec<wire::Check> {
    let of_volumes = around.volumes.iter().filter_map(|id| {
        convert::check::newest_check(snapshot, |check| snapshot.is_check_of(check, id))
    });
    let on_device = |name: &String| {
        convert::check::newest_check(snapshot, |check| {
            check.target.volume.is_none() && check.target.device == *name
        })
    };
    let mut found: Vec<_> = of_volumes
        .chain(around.devices.iter().filter_map(on_device))
        .collect();
    found.sort_by(|a, b| (b.asked, &b.id).cmp(&(a.asked, &a.id)));
    found.dedup_by(|a, b| a.id == b.id);
    found.truncate(MAX_CHECKS);
    found
        .into_iter()
        .map(convert::check::check_with_output)
        .collect()
}

fn advice(snapshot: &Snapshot, around: &RelatedObjects) -> Vec<wire::Advice> {
    let drives = around
        .drives
        .iter()
        .filter_map(|id| snapshot.drives.get(id));
    let mut all: Vec<Advice> = drives.filter_map(|drive| advise(snapshot, drive)).collect();
    all.sort_by(|a, b| b.action.cmp(&a.action).then_with(|| a.drive.cmp(&b.drive)));
    all.truncate(MAX_FULL_MESSAGES);
    all.iter().map(convert::advice).collect()
}

/// What the answer is about.
#[derive(Default)]
struct RelatedObjects {
    drives: BTreeSet<DriveId>,
    /// Kernel names; those that are a drive themselves are left out of the chain.
    devices: BTreeSet<String>,
    volumes: BTreeSet<VolumeId>,
}

impl RelatedObjects {
    fn from_subjects(snapshot: &Snapshot, subjects: &[Subject]) -> RelatedObjects {
        let mut around = RelatedObjects::default();
        for subject in subjects {
            match subject {
                Subject::Volume(id) => around.add_volume(snapshot, id),
                Subject::Drive(id) => {
                    around.drives.insert(id.clone());
                    let Some(drive) = snapshot.drives.get(id) else {
                        continue;
                    };
                    around.volumes.extend(drive.volumes.iter().cloned());
                    // A missing drive's kernel names may belong to another drive by now.
                    let own = |device: &&BlockDevice| device.drive.as_ref() == Some(id);
                    for device in snapshot.inventory.devices.values().filter(own) {
                        around.add_dependents(snapshot, &device.name);
                    }
                }
                Subject::Device(name) => {
                    around.add_underlying(snapshot, name);
                    around.add_dependents(snapshot, name);
                    around.drives.extend(underlying_drives(snapshot, name));
                    around.volumes.extend(volumes_on_device(snapshot, name));
                }
            }
        }
        around
    }

    fn add_volume(&mut self, snapshot: &Snapshot, id: &VolumeId) {
        self.volumes.insert(id.clone());
        let Some(volume) = snapshot.volumes.get(id) else {
            return;
        };
        self.drives.extend(volume.facts.drive_ids.iter().cloned());
        for name in &volume.facts.devices {
            self.devices.insert(name.clone());
            self.add_underlying(snapshot, name);
        }
    }

    fn add_underlying(&mut self, snapshot: &Snapshot, device: &str) {
        let mut todo = vec![device.to_owned()];
        let mut seen = BTreeSet::new();
        while let Some(name) = todo.pop() {
            if seen.insert(name.clone()) {
                todo.extend(
                    snapshot
                        .inventory
                        .devices
                        .get(&name)
                        .into_iter()
                        .flat_map(|device| device.underlying.iter().cloned()),
                );
                self.devices.insert(name);
            }
        }
    }

    fn add_dependents(&mut self, snapshot: &Snapshot, device: &str) {
        let mut todo = vec![device.to_owned()];
        let mut seen = BTreeSet::new();
        while let Some(name) = todo.pop() {
            if seen.insert(name.clone()) {
                let above = snapshot
                    .inventory
                    .devices
                    .values()
                    .filter(|other| other.underlying.contains(&name));
                todo.extend(above.map(|other| other.name.clone()));
                self.devices.insert(name);
            }
        }
    }
}

fn findings(
    snapshot: &Snapshot,
    around: &RelatedObjects,
    subjects: &[Subject],
) -> Vec<wire::Finding> {
    let concerns = |finding: &&std::sync::Arc<Finding>| match &finding.subject {
        Subject::Drive(id) => around.drives.contains(id),
        Subject::Volume(id) => around.volumes.contains(id),
        Subject::Device(name) => around.devices.contains(name),
    };
    let mut active: Vec<_> = snapshot.findings.values().filter(concerns).collect();
    active.sort_by_cached_key(|finding| rank(finding));
    active.truncate(MAX_FINDINGS);
    let cleared = snapshot
        .history
        .iter()
        .filter(|finding| subjects.contains(&finding.subject))
        .take(MAX_CLEARED);
    active
        .into_iter()
        .chain(cleared)
        .map(|finding| convert::finding(finding))
        .collect()
}

fn chain(snapshot: &Snapshot, around: &RelatedObjects) -> Vec<wire::ChainNode> {
    let mut nodes = ChainBuilder::default();
    for drive in around
        .drives
        .iter()
        .filter_map(|id| snapshot.drives.get(id))
    {
        nodes.push(drive_node(drive));
    }
    let mut devices: Vec<&String> = around.devices.iter().collect();
    let mut heights = BTreeMap::new();
    devices.sort_by_cached_key(|name| (stack_depth(snapshot, name, &mut heights), (*name).clone()));
    let node_ids: BTreeMap<&str, String> = devices
        .iter()
        .map(|name| (name.as_str(), device_node_id(snapshot, around, name)))
        .collect();
    for name in &devices {
        if let Some(device) = snapshot.inventory.devices.get(*name) {
            if device.drive.is_none() {
                nodes.push(device_node(snapshot, device, &node_ids));
            }
        } else if node_ids
            .get(name.as_str())
            .is_some_and(|id| id.starts_with("device:"))
        {
            nodes.push(missing_device_node(around, snapshot, name, &node_ids));
        }
    }
    let volumes: Vec<&Volume> = around
        .volumes
        .iter()
        .filter_map(|id| snapshot.volumes.get(id))
        .map(AsRef::as_ref)
        .collect();
    let bases: Vec<Vec<String>> = volumes
        .iter()
        .map(|volume| filesystem(snapshot, volume, &node_ids, &mut nodes))
        .collect();
    let mounted: Vec<Vec<String>> = volumes
        .iter()
        .zip(bases)
        .map(|(volume, base)| mounts(volume, base, &mut nodes))
        .collect();
    for (volume, on) in volumes.iter().zip(mounted) {
        nodes.push(volume_node(volume, on));
    }
    for volume in &volumes {
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

/// Layers between a device and the hardware. A cycle cannot be in the kernel; should the records
/// show one, it ends at its second visit.
fn stack_depth(snapshot: &Snapshot, name: &str, known: &mut BTreeMap<String, usize>) -> usize {
    if let Some(height) = known.get(name) {
        return *height;
    }
    known.insert(name.to_owned(), 0);
    let below = snapshot
        .inventory
        .devices
        .get(name)
        .map(|device| device.underlying.as_slice())
        .unwrap_or_default();
    let height = below
        .iter()
        .map(|name| stack_depth(snapshot, name, known) + 1)
        .max()
        .unwrap_or(0);
    known.insert(name.to_owned(), height);
    height
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

fn drive_node(drive: &Drive) -> wire::ChainNode {
    let facts = &drive.facts;
    let mut detail: Vec<String> = [&facts.vendor, &facts.model]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    detail.extend(
        facts
            .serial
            .as_ref()
            .map(|serial| format!("serial {serial}")),
    );
    if let Presence::Missing { .. } = drive.presence {
        detail.push("MISSING".to_owned());
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
    let size = bytesize::ByteSize(device.size_bytes).display().iec();
    let (kind, detail) = match &device.layer {
        Layer::Disk => ("disk", format!("{size}")),
        Layer::Partition { number, .. } => ("partition", format!("partition {number}, {size}")),
        Layer::Md { level } => (
            "md",
            format!(
                "{} of {}, {size}",
                level.as_deref().unwrap_or("array"),
                device.underlying.join(", ")
            ),
        ),
        Layer::Dm {
            volume_group: Some(group),
            logical_volume: Some(volume),
            ..
        } => ("lvm", format!("{group}/{volume}, {size}")),
        Layer::Dm { name, uuid, .. } => {
            let uuid = uuid.as_deref().unwrap_or_default();
            let kind = match uuid {
                _ if device.is_multipath() => "multipath",
                _ if uuid.starts_with("CRYPT-") => "crypt",
                _ if uuid.starts_with("LVM-") => "lvm",
                _ => "dm",
            };
            (kind, format!("{name}, {size}"))
        }
        Layer::Bcache => ("bcache", format!("{size}")),
        Layer::Loop { backing_file } => (
            "loop",
            format!(
                "{}, {size}",
                backing_file.as_deref().unwrap_or("no backing file known")
            ),
        ),
        Layer::Other => ("disk", format!("{size}")),
    };
    wire::ChainNode {
        id: format!("device:{}", device.name),
        kind: kind.to_owned(),
        name: device.name.clone(),
        detail,
        stands_on: device
            .underlying
            .iter()
            .filter_map(|name| ids.get(name.as_str()))
            .cloned()
            .collect(),
        health: device_health(snapshot, &device.name),
    }
}

/// Worst finding about the device itself. A device without one has no health of its own:
/// unspecified.
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

/// A device that a volume's records name and that is not there any more. It stood on the next one
/// of the volume's list, top first.
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
        _ => "partition",
    };
    let lists = around
        .volumes
        .iter()
        .filter_map(|id| snapshot.volumes.get(id))
        .map(|volume| &volume.facts.devices);
    let next = lists
        .filter_map(|list| {
            list.iter()
                .position(|device| device == name)
                .and_then(|at| list.get(at + 1))
        })
        .next();
    wire::ChainNode {
        id: format!("device:{name}"),
        kind: kind.to_owned(),
        name: name.to_owned(),
        detail: "gone".to_owned(),
        stands_on: next
            .and_then(|name| ids.get(name.as_str()))
            .cloned()
            .into_iter()
            .collect(),
        health: wire::Health::Unspecified.into(),
    }
}

/// What the volume's mounts stand on: its filesystem's node, or for raw block the device's.
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
    let names: Vec<&String> = match btrfs {
        Some(fs) => fs.devices.iter().collect(),
        None => facts.device.iter().collect(),
    };
    let mut on: Vec<String> = names
        .into_iter()
        .filter_map(|name| ids.get(name.as_str()))
        .cloned()
        .collect();
    if on.is_empty() {
        // Nothing local is known beneath it but perhaps the drives it stood on.
        on = facts
            .drive_ids
            .iter()
            .map(|id| format!("drive:{id}"))
            .collect();
    }
    let Some(kind) = &facts.fs_type else {
        return on;
    };
    let id = format!(
        "filesystem:{}",
        facts.fs_uuid.as_deref().unwrap_or(facts.id.as_str())
    );
    let mut detail: Vec<String> = facts
        .fs_label
        .iter()
        .map(|label| format!("label {label}"))
        .collect();
    detail.extend(facts.fs_uuid.iter().map(|uuid| format!("uuid {uuid}")));
    if facts.remote || on.is_empty() {
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

/// What the volume stands on: its mounts, or what they would stand on when there are none.
fn mounts(volume: &Volume, base: Vec<String>, nodes: &mut ChainBuilder) -> Vec<String> {
    let facts = &volume.facts;
    let mut ids = Vec::new();
    let there = facts
        .mounts
        .iter()
        .map(|mount| (&mount.path, mount.role, mount.options.join(",")));
    let missing = facts
        .missing_mounts
        .iter()
        .map(|mount| (&mount.path, mount.role, "expected, NOT MOUNTED".to_owned()));
    for (path, role, state) in there.chain(missing) {
        let id = format!("mount:{path}");
        let role = match role {
            crate::model::volume::MountRole::Host => "",
            crate::model::volume::MountRole::Staging => "staging: ",
            crate::model::volume::MountRole::Pod => "pod: ",
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

fn volume_node(volume: &Volume, stands_on: Vec<String>) -> wire::ChainNode {
    let facts = &volume.facts;
    let mut detail: Vec<String> = facts.pv.iter().map(|pv| format!("PV {pv}")).collect();
    if volume.condition.abnormal {
        detail.push(volume.condition.message.clone());
    }
    wire::ChainNode {
        id: format!("volume:{}", facts.id),
        kind: "volume".to_owned(),
        name: facts.id.to_string(),
        detail: detail.join(", "),
        stands_on,
        health: convert::health(volume.health),
    }
}

fn pods(volume: &Volume, nodes: &mut ChainBuilder) {
    for pod in &volume.facts.pods {
        let name = pod.name.as_ref().map_or_else(
            || pod.uid.clone(),
            |name| format!("{}/{}", name.namespace, name.name),
        );
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
