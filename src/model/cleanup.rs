//! Plans the removal of a CSI volume's remains after its pods have been deleted: the steps, their
//! order, and when it is refused. Pure over a snapshot.
//!
//! Only paths below the kubelet's folder are changed. Folders are removed only if they are empty: a
//! record of the kubelet keeps its folder.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::graph::kube::{CsiPathKind, parse_csi_path};
use crate::snapshot::{NodeContext, Snapshot, Volume};
use crate::stale::{Attachment, GRACE};
use crate::storage::incomplete_cause;
use crate::volume::MountRole;
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{BackingKind, ProvidedVolume};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanupAction {
    /// Unmounts the path.
    Unmount {
        path: HostPath,
    },
    /// Removes the empty folder or file on which the volume was mounted.
    Remove {
        path: HostPath,
    },
    /// Removes the volume's own folder around it, if it contains nothing else.
    RemoveIfEmpty {
        path: HostPath,
    },
    /// Detaches the loop device of one of our images.
    Detach {
        image: HostPath,
    },
    Deactivate {
        group: String,
        name: String,
    },
}

impl CleanupAction {
    pub fn description(&self) -> &'static str {
        match self {
            CleanupAction::Unmount { .. } => "unmount",
            CleanupAction::Remove { .. } => "remove",
            CleanupAction::RemoveIfEmpty { .. } => "remove if empty",
            CleanupAction::Detach { .. } => "detach the loop device of",
            CleanupAction::Deactivate { .. } => "deactivate",
        }
    }

    pub fn path(&self) -> HostPath {
        match self {
            CleanupAction::Unmount { path }
            | CleanupAction::Remove { path }
            | CleanupAction::RemoveIfEmpty { path }
            | CleanupAction::Detach { image: path } => path.clone(),
            CleanupAction::Deactivate { group, name } => {
                HostPath::from(format!("/dev/{group}/{name}").as_str())
            }
        }
    }

    /// Whether the later steps are pointless after this one has failed.
    pub fn is_required(&self) -> bool {
        !matches!(self, CleanupAction::Remove { .. } | CleanupAction::RemoveIfEmpty { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanupPlan {
    /// The volume's id; the default if only a path is known.
    pub volume: VolumeId,
    /// The lock of the steps: steps with the same target never run at the same time.
    pub target: String,
    pub actions: Vec<CleanupAction>,
    /// Mounts that must not be in use by any process.
    pub mounts: Vec<HostPath>,
    /// This node provides the volume.
    pub is_provided: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CleanupError {
    #[error("it cannot be told whether a pod uses it: {0}")]
    SnapshotIncomplete(String),
    #[error("nothing of it is staged or published below {0}")]
    NothingAttached(HostPath),
    #[error("{path} is in use: {by}")]
    InUse { path: HostPath, by: String },
    #[error(
        "it cannot be told whether a pod uses {0}: the kubelet keeps no records of that place, or there is no kubelet"
    )]
    UseUnknown(HostPath),
    #[error("no pod uses {path}, but only since {since}, and a kubelet may be about to write one down: ask again when that is {} s ago", GRACE.as_secs())]
    WithinGrace { path: HostPath, since: Timestamp },
}

/// The object to clean up.
#[derive(Clone, Copy, Debug)]
pub enum CleanupTarget<'a> {
    /// The whole volume.
    Volume(&'a Volume),
    /// One attachment.
    Attachment(&'a Attachment),
}

/// How long an attachment must have been without a pod.
#[derive(Clone, Copy, Debug)]
pub enum Grace<'a> {
    Required,
    /// The cluster says that these pods, by uid, do not exist: their mounts, and what is staged for
    /// them alone, need no grace. What the kubelet has staged by its own record does.
    ReplacedFor(&'a BTreeSet<String>),
}

impl Grace<'_> {
    fn permits(self, attachment: &Attachment, root: &HostPath) -> bool {
        let Grace::ReplacedFor(pods) = self else {
            return attachment.is_abandoned();
        };
        let place = parse_csi_path(root, &attachment.path);
        let by_path = place.and_then(|place| place.pod);
        let is_unused = attachment.used_by.is_none() && attachment.orphaned.is_some();
        match attachment.role {
            MountRole::Pod => is_unused && by_path.is_some_and(|pod| pods.contains(&pod.uid)),
            _ => is_unused || attachment.is_abandoned(),
        }
    }
}

pub fn plan(
    snapshot: &Snapshot,
    wanted: CleanupTarget<'_>,
    grace: Grace<'_>,
) -> Result<CleanupPlan, CleanupError> {
    let node_context = &snapshot.node_context;
    if let Some(why) = incomplete_cause(snapshot) {
        return Err(CleanupError::SnapshotIncomplete(why));
    }
    let (id, volume) = match wanted {
        CleanupTarget::Volume(volume) => (&volume.facts.id, Some(volume)),
        CleanupTarget::Attachment(attachment) => {
            (&attachment.volume, snapshot.volumes.get(&attachment.volume).map(AsRef::as_ref))
        }
    };
    let of_volume: Vec<&Attachment> =
        snapshot.attachments.values().map(AsRef::as_ref).filter(|it| it.volume == *id).collect();
    let is_below = |it: &&Attachment| {
        it.path.strip_prefix(&node_context.kubelet_root).is_some_and(|below| !below.is_empty())
    };
    let mut chosen: Vec<&Attachment> = match wanted {
        CleanupTarget::Attachment(attachment) => vec![attachment],
        CleanupTarget::Volume(_) => of_volume.clone(),
    };
    chosen.retain(is_below);
    if chosen.is_empty() || node_context.kubelet_root.as_bytes().is_empty() {
        return Err(CleanupError::NothingAttached(node_context.kubelet_root.clone()));
    }
    // A staged volume is in use by any pod that has the volume.
    let staging = chosen.iter().any(|it| it.role == MountRole::Staging);
    let whole = matches!(wanted, CleanupTarget::Volume(_));
    let concerned = if staging || whole {
        of_volume.iter().chain(&chosen).copied().collect()
    } else {
        chosen.clone()
    };
    refuse_if_used(
        &concerned,
        volume.filter(|_| staging || whole),
        grace,
        &node_context.kubelet_root,
    )?;
    // The path of a pod's mount names the pod: while it is there, an order that was interrupted finds
    // the volume again.
    let staging_first = matches!(grace, Grace::ReplacedFor(_));
    chosen.sort_by_key(|it| {
        (
            !staging_first || it.role == MountRole::Pod,
            unmount_order(it, node_context),
            std::cmp::Reverse(it.path.clone()),
        )
    });
    let mut actions = Vec::new();
    for it in &chosen {
        actions.push(CleanupAction::Unmount { path: it.path.clone() });
        actions.push(CleanupAction::Remove { path: it.path.clone() });
        actions.extend(
            parent_directory(it, node_context).map(|path| CleanupAction::RemoveIfEmpty { path }),
        );
    }
    let provided = volume.and_then(|volume| volume.facts.provided.as_deref());
    actions.extend(provided.filter(|_| whole).and_then(release_action));
    let handle =
        volume.and_then(|volume| volume.facts.handle.clone()).filter(|_| provided.is_some());
    Ok(CleanupPlan {
        volume: id.clone(),
        target: handle.unwrap_or_else(|| format!("cleanup {}", chosen[0].path)),
        mounts: chosen.iter().map(|it| it.path.clone()).collect(),
        actions,
        is_provided: provided.is_some(),
    })
}

/// Refuses unless all attachments have certainly been unused for longer than the grace period. A
/// record of a pod's mount that is missing also counts as use.
fn refuse_if_used(
    attachments: &[&Attachment],
    volume: Option<&Volume>,
    grace: Grace<'_>,
    root: &HostPath,
) -> Result<(), CleanupError> {
    // A pod's attachment comes first, because it names the pod.
    if let Some(it) = attachments
        .iter()
        .filter(|it| !grace.permits(it, root))
        .min_by_key(|it| it.role != MountRole::Pod)
    {
        let path = it.path.clone();
        return Err(match (&it.orphaned, &it.used_by) {
            (None, Some(by)) => CleanupError::InUse { path, by: by.clone() },
            (None, None) => CleanupError::UseUnknown(path),
            (Some(orphaned), _) => CleanupError::WithinGrace { path, since: orphaned.since },
        });
    }
    let promised = volume.into_iter().flat_map(|volume| &volume.facts.missing_mounts);
    match promised
        .filter(|missing| missing.role == MountRole::Pod)
        .find_map(|missing| Some((missing, missing.record.as_ref()?)))
    {
        Some((missing, record)) => {
            let uid = missing.pod_uid.as_deref().unwrap_or("unknown");
            Err(CleanupError::InUse {
                path: missing.path.clone(),
                by: format!("the record {record} says that pod {uid} has it"),
            })
        }
        None => Ok(()),
    }
}

/// Containers' folders first, then pods, then staging paths.
fn unmount_order(attachment: &Attachment, node_context: &NodeContext) -> u8 {
    match parse_csi_path(&node_context.kubelet_root, &attachment.path).map(|place| place.kind) {
        Some(CsiPathKind::Subpath) => 0,
        _ if attachment.role == MountRole::Pod => 1,
        _ => 2,
    }
}

/// The folder that the kubelet made for this one volume around the attachment.
fn parent_directory(attachment: &Attachment, node_context: &NodeContext) -> Option<HostPath> {
    let place = parse_csi_path(&node_context.kubelet_root, &attachment.path)?;
    let folder = attachment.path.as_path().parent().map(HostPath::from)?;
    let records =
        place.record.as_ref().and_then(|record| record.as_path().parent().map(HostPath::from));
    // Raw block volumes are staged side by side in one folder, which is shared.
    (place.pod.is_some() || records.as_ref() == Some(&folder)).then_some(folder)
}

fn release_action(volume: &ProvidedVolume) -> Option<CleanupAction> {
    match volume.kind {
        BackingKind::Loop => Some(CleanupAction::Detach { image: volume.backing.clone() }),
        BackingKind::Lvm => {
            let text = volume.backing.to_string();
            let (group, name) = text.strip_prefix("/dev/")?.split_once('/')?;
            Some(CleanupAction::Deactivate { group: group.to_owned(), name: name.to_owned() })
        }
        BackingKind::StaticDevice | BackingKind::StaticDirectory => None,
    }
}

#[cfg(test)]
mod tests;
