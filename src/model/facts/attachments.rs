//! CSI staging and publish paths: since when, for which pod, and since when no pod uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::facts::Facts;
use crate::graph::kube::{self, CsiPath, CsiPathKind};
use crate::graph::mounts::MountTree;
use crate::stale::{Attachment, KubeletIndex, OrphanState, PlaceUse};
use crate::volume::{MountRole, VolumeFacts};
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{self, BackingKind, PodRef};

/// Maximum number of bypassed drivers that are kept: a node has only a few.
const MAX_BYPASSED: usize = 16;

/// CSI drivers that have volumes here which were not mounted through the interposer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BypassedDrivers(BTreeSet<String>);

impl BypassedDrivers {
    /// Returns whether this is a change.
    pub fn set_bypassed(&mut self, driver: &str, bypassed: bool) -> bool {
        match bypassed {
            true if self.0.len() >= MAX_BYPASSED => false,
            true => self.0.insert(driver.to_owned()),
            false => self.0.remove(driver),
        }
    }

    /// Warnings about the node.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|driver| {
            format!(
                "CSI driver {driver} has volumes here that did not pass through diskvitals-csi: the kubelet reaches it by another way, and gets no health \
                 for them (docs/csi.md)"
            )
        })
    }
}

impl Facts {
    /// Rebuilds the attachments from the volumes, the mount table and, if they were last read
    /// successfully, the kubelet's records.
    pub(super) fn update_attachments(&mut self, now: Timestamp) {
        let mut found = self.current_attachments(now);
        let records = self
            .kubelet
            .value()
            .map(|records| KubeletIndex::new(records, &self.node_context.kubelet_root));
        let mut used = BTreeSet::new();
        // Pods first: a volume that a pod uses is not staged without use.
        for role in [MountRole::Pod, MountRole::Staging] {
            for attachment in found.values_mut().filter(|one| one.role == role) {
                let known = self.attachments.get(&attachment.path);
                let known = known.filter(|known| known.role == role);
                carry_forward(attachment, known);
                let verdict = records.as_ref().map(|records| {
                    let path = &attachment.path;
                    if role == MountRole::Pod {
                        return records
                            .pod_use(path, attachment.pod.as_ref().map(|pod| pod.uid.as_str()));
                    }
                    match records.staging_use(path, &attachment.driver, &attachment.handle) {
                        PlaceUse::Unused(_) | PlaceUse::StagedOnly(_)
                            if used.contains(&attachment.volume) =>
                        {
                            PlaceUse::Used("a pod has the volume".to_owned())
                        }
                        verdict => verdict,
                    }
                });
                let read = self.kubelet.at().unwrap_or(now);
                apply_use(attachment, known, verdict, read, now);
                if role == MountRole::Pod
                    && (attachment.used_by.is_some() || attachment.orphaned.is_none())
                {
                    used.insert(attachment.volume.clone());
                }
            }
        }
        let before = std::mem::take(&mut self.attachments);
        let shared = |(path, attachment): (HostPath, Attachment)| match before.get(&path) {
            Some(known) if **known == attachment => (path, known.clone()),
            _ => (path, Arc::new(attachment)),
        };
        self.attachments = found.into_iter().map(shared).collect();
    }

    /// The same records were read again: still no pod uses the orphaned attachments.
    pub(super) fn confirm_attachments(&mut self) {
        let (Some(_), Some(at)) = (self.kubelet.value(), self.kubelet.at()) else {
            return;
        };
        for attachment in self.attachments.values_mut().filter(|one| one.orphaned.is_some()) {
            if let Some(orphaned) = &mut Arc::make_mut(attachment).orphaned {
                orphaned.confirmed_at = orphaned.confirmed_at.max(at);
            }
        }
    }

    /// First the volumes of CSI drivers, by their facts, then mounts at paths that only the kubelet
    /// uses.
    fn current_attachments(&self, now: Timestamp) -> BTreeMap<HostPath, Attachment> {
        let root = &self.node_context.kubelet_root;
        let mut found = BTreeMap::new();
        for known in self.volumes.values() {
            let facts = &known.facts;
            let left_over = facts.driver.is_none();
            if left_over && !facts.mounts.iter().any(|mount| is_left_over(root, &mount.path)) {
                continue;
            }
            for mount in facts.mounts.iter().filter(|mount| mount.role != MountRole::Host) {
                let place = kube::parse_csi_path(root, &mount.path);
                if left_over && place.is_none() {
                    continue;
                }
                let since = known.mounted_since.get(&mount.path).copied().unwrap_or(now);
                let read_only = mount.is_read_only();
                let new = new_attachment(facts, &mount.path, mount.role, place, read_only, since);
                found.insert(mount.path.clone(), new);
            }
            for (of_ours, role) in provided_attachments(facts) {
                let (path, read_only, since) = (&of_ours.path, of_ours.read_only, of_ours.since);
                let attachment = found.entry(path.clone()).or_insert_with(|| {
                    let place = kube::parse_csi_path(root, path);
                    new_attachment(facts, path, role, place, read_only, since)
                });
                attachment.role = role;
                attachment.since = since;
                attachment.mode = Some(of_ours.access.mode);
                attachment.read_only |= read_only;
                let pod = of_ours.pod.clone().filter(|pod| !pod.uid.is_empty());
                attachment.pod = pod.or(attachment.pod.take());
            }
        }
        self.add_unclaimed(&mut found, now);
        found
    }

    /// Adds mounts without a volume. A device that is bound to a pod is no filesystem: without its
    /// record it is not a volume.
    fn add_unclaimed(&self, found: &mut BTreeMap<HostPath, Attachment>, now: Timestamp) {
        let Some(mounts) = self.mount_table() else {
            return;
        };
        let root = &self.node_context.kubelet_root;
        if self.kubelet_records().is_none() || root.as_bytes().is_empty() {
            return;
        }
        let table = MountTree::new(&mounts.mounts);
        for mount in &mounts.mounts {
            let path = &mount.mount_point;
            let Some(place) =
                kube::parse_csi_path(root, path).filter(|place| place.kind != CsiPathKind::Subpath)
            else {
                continue;
            };
            if found.contains_key(path) || !table.is_visible(mount) {
                continue;
            }
            let role = if place.pod.is_some() { MountRole::Pod } else { MountRole::Staging };
            let pod = place.pod.map(|pod| PodRef { uid: pod.uid, ..PodRef::default() });
            let unclaimed = Attachment {
                path: path.clone(),
                role,
                volume: VolumeId::default(),
                driver: place.driver.unwrap_or_default(),
                handle: String::new(),
                read_only: mount.is_read_only(),
                block: mount.fs_type == "devtmpfs",
                mode: None,
                pod,
                since: now,
                used_by: None,
                orphaned: None,
            };
            found.insert(path.clone(), unclaimed);
        }
        for attachment in found.values_mut().filter(|one| one.role == MountRole::Pod) {
            if let Some(pod) = attachment.pod.as_mut().filter(|pod| pod.name.is_empty())
                && let Some(named) =
                    self.kubelet_records().and_then(|known| known.pods.get(&pod.uid))
            {
                (pod.namespace, pod.name) = (named.namespace.clone(), named.name.clone());
            }
        }
    }
}

fn is_left_over(root: &HostPath, path: &HostPath) -> bool {
    kube::parse_csi_path(root, path).is_some_and(|place| place.kind != CsiPathKind::Subpath)
}

fn provided_attachments(
    facts: &VolumeFacts,
) -> impl Iterator<Item = (&provision::ProvidedAttachment, MountRole)> {
    facts.provided.iter().flat_map(|volume| {
        // A directory is staged without any action: there is no mount.
        let staged = volume
            .staged
            .iter()
            .filter(|_| volume.kind != BackingKind::StaticDirectory)
            .map(|staged| (staged, MountRole::Staging));
        staged.chain(volume.published.iter().map(|published| (published, MountRole::Pod)))
    })
}

fn new_attachment(
    facts: &VolumeFacts,
    path: &HostPath,
    role: MountRole,
    place: Option<CsiPath>,
    read_only: bool,
    since: Timestamp,
) -> Attachment {
    let (by_path, by_driver) =
        place.map(|place| (place.pod.map(|pod| pod.uid), place.driver)).unwrap_or_default();
    let by_mount = facts.mount_at(path).and_then(|mount| mount.pod_uid.clone());
    let pod = by_mount.or(by_path).map(|uid| {
        let pod = facts.pods.iter().find(|pod| pod.uid == uid);
        let name = pod.and_then(|pod| pod.name.clone());
        let (namespace, name) = name.map(|name| (name.namespace, name.name)).unwrap_or_default();
        PodRef { uid, name, namespace }
    });
    Attachment {
        path: path.clone(),
        role,
        volume: facts.id.clone(),
        driver: facts.driver.clone().or(by_driver).unwrap_or_default(),
        handle: facts.handle.clone().unwrap_or_default(),
        read_only,
        block: facts.block,
        mode: None,
        pod,
        since,
        used_by: None,
        orphaned: None,
    }
}

/// After the records are removed, the former attachment is the only trace of the volume's owner.
fn carry_forward(attachment: &mut Attachment, known: Option<&Arc<Attachment>>) {
    let Some(known) = known else { return };
    attachment.since = attachment.since.min(known.since);
    if attachment.driver.is_empty()
        || (attachment.handle.is_empty() && attachment.driver == known.driver)
    {
        attachment.driver.clone_from(&known.driver);
        attachment.handle.clone_from(&known.handle);
    }
    if attachment.volume == VolumeId::default() {
        attachment.volume = known.volume.clone();
    }
    if let (Some(pod), Some(before)) = (&mut attachment.pod, &known.pod)
        && pod.uid == before.uid
        && pod.name.is_empty()
    {
        *pod = before.clone();
    }
}

/// `verdict` is None if the records could not be read: then the former result stays.
fn apply_use(
    attachment: &mut Attachment,
    known: Option<&Arc<Attachment>>,
    verdict: Option<PlaceUse>,
    read: Timestamp,
    now: Timestamp,
) {
    let before = known.and_then(|known| known.orphaned.as_ref());
    let orphaned = |why| OrphanState {
        since: before.map_or(now, |before| before.since),
        confirmed_at: read,
        why,
    };
    match verdict {
        None => {
            attachment.used_by = known.and_then(|known| known.used_by.clone());
            attachment.orphaned = before.cloned();
        }
        Some(PlaceUse::Used(who)) => attachment.used_by = Some(who),
        Some(PlaceUse::Unknown) => {}
        Some(PlaceUse::Unused(why)) => attachment.orphaned = Some(orphaned(why)),
        Some(PlaceUse::StagedOnly(why)) => {
            attachment.used_by = Some(why);
            attachment.orphaned = Some(orphaned("no pod has it".to_owned()));
        }
    }
}
