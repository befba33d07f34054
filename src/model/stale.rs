//! The paths where CSI volumes are staged and published, and which of these attachments are no
//! longer used.
//!
//! An attachment is judged only by a good reading of the kubelet's records: an error, a damaged
//! record, or no kubelet at all proves nothing and makes nothing stale. A pod exists as long as it
//! has a record of the volume or a folder of logs (the kubelet removes both when the pod is
//! deleted). Its folder below `pods/` proves nothing, because a mount left in it keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::graph::kube::{CsiPath, CsiPathKind, PodPath, parse_csi_path};
use crate::volume::MountRole;
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::kubelet::KubeletRecords;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{AccessMode, PodRef};
use diskvitals_text::duration::elapsed;

/// An attachment must have been unused for this long in readings of the records: the kubelet mounts
/// before and unmounts after it writes its record, one volume at a time.
pub(crate) const GRACE: Duration = Duration::from_secs(120);

/// An unreadable record may belong to a user of the volume.
pub(crate) const UNREADABLE_RECORD: &str = "the kubelet has a record of it, which cannot be read";

/// One path where a CSI volume is staged or published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub path: HostPath,
    pub role: MountRole,
    pub volume: VolumeId,
    /// Empty if neither a record nor the path contains it.
    pub driver: String,
    pub handle: String,
    pub read_only: bool,
    pub block: bool,
    /// Only for volumes that this node provides itself.
    pub mode: Option<AccessMode>,
    pub pod: Option<PodRef>,
    /// When it was attached, or first observed.
    pub since: Timestamp,
    /// Evidence that it is in use; None: there is none, or the use is unknown.
    pub used_by: Option<String>,
    /// None: a pod has it, or its use by pods is unknown.
    pub orphaned: Option<OrphanState>,
}

/// No pod has it, by good readings from `since` to `confirmed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanState {
    pub since: Timestamp,
    pub confirmed_at: Timestamp,
    pub why: String,
}

impl Attachment {
    /// Why it is stale; None while it is in use, while that is unknown, and within the grace
    /// period.
    pub fn stale_cause(&self) -> Option<&str> {
        let orphaned = self.orphaned.as_ref().filter(|_| self.used_by.is_none())?;
        self.is_abandoned().then_some(orphaned.why.as_str())
    }

    /// No pod has had it for longer than the grace period; the kubelet may still have it staged.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.orphaned
            .as_ref()
            .is_some_and(|orphaned| elapsed(orphaned.since, orphaned.confirmed_at) >= GRACE)
    }
}

/// Whether a path is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaceUse {
    Used(String),
    /// The kubelet has staged the volume, but no pod has it.
    StagedOnly(String),
    Unused(String),
    /// The kubelet keeps no records of paths of this kind.
    Unknown,
}

/// An index over one good reading of the kubelet's records.
pub(crate) struct KubeletIndex<'a> {
    records: &'a KubeletRecords,
    root: &'a HostPath,
    staged: BTreeSet<&'a HostPath>,
    published: BTreeMap<&'a HostPath, &'a str>,
    /// Pods' uids, each with the names of its volumes.
    volumes_of: BTreeSet<(&'a str, &'a str)>,
    /// Volumes that a pod has, by driver and handle.
    with_pods: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> KubeletIndex<'a> {
    /// `root`: the kubelet's folder as the mount table names it.
    pub(crate) fn new(records: &'a KubeletRecords, root: &'a HostPath) -> KubeletIndex<'a> {
        let publications = || {
            records.volumes.iter().flat_map(|volume| {
                volume.publications.iter().map(move |publication| (volume, publication))
            })
        };
        KubeletIndex {
            records,
            root,
            staged: records.volumes.iter().filter_map(|volume| volume.staging.as_ref()).collect(),
            published: publications()
                .map(|(_, publication)| (&publication.path, publication.pod_uid.as_str()))
                .collect(),
            volumes_of: publications()
                .map(|(_, publication)| (publication.pod_uid.as_str(), publication.name.as_str()))
                .collect(),
            with_pods: publications()
                .map(|(volume, _)| (volume.driver.as_str(), volume.handle.as_str()))
                .collect(),
        }
    }

    /// Whether a pod uses this path. `told`: the pod that it was published for, if the path does
    /// not contain one.
    pub(crate) fn pod_use(&self, path: &HostPath, told: Option<&str>) -> PlaceUse {
        if let Some(uid) = self.published.get(path) {
            return PlaceUse::Used(format!(
                "the kubelet's record says that {} has it",
                self.pod_name(uid)
            ));
        }
        let Some(place) = self.csi_path(path) else {
            return PlaceUse::Unknown;
        };
        let by_path = place.as_ref().and_then(|place| place.pod.clone());
        let Some(uid) = by_path.as_ref().map(|pod| pod.uid.as_str()).or(told) else {
            return PlaceUse::Unknown;
        };
        if self.records.pods.contains_key(uid) {
            return PlaceUse::Used(format!("{} has its folder of logs", self.pod_name(uid)));
        }
        match &place {
            Some(CsiPath {
                kind: CsiPathKind::Subpath,
                pod: Some(PodPath { uid, volume_name }),
                ..
            }) if self.volumes_of.contains(&(uid.as_str(), volume_name.as_str())) => {
                return PlaceUse::Used(format!(
                    "the kubelet's record says that {} has the volume",
                    self.pod_name(uid)
                ));
            }
            Some(place) if self.has_unreadable_record(place) => {
                return PlaceUse::Used(UNREADABLE_RECORD.to_owned());
            }
            _ => {}
        }
        let folder = if self.records.pod_uids.iter().any(|known| known == uid) {
            ""
        } else {
            ", nor a folder"
        };
        PlaceUse::Unused(format!(
            "pod {uid} is gone: it has no record of the volume and no folder of logs{folder}"
        ))
    }

    /// Whether the kubelet or a pod uses the volume that is staged here.
    pub(crate) fn staging_use(&self, path: &HostPath, driver: &str, handle: &str) -> PlaceUse {
        if self.with_pods.contains(&(driver, handle)) {
            return PlaceUse::Used(
                "the kubelet's record says that a pod has the volume".to_owned(),
            );
        }
        if self.staged.contains(path) {
            return PlaceUse::StagedOnly("the kubelet's record says that it is staged".to_owned());
        }
        match self.csi_path(path) {
            None => PlaceUse::Unknown,
            Some(Some(place)) if self.has_unreadable_record(&place) => {
                PlaceUse::Used(UNREADABLE_RECORD.to_owned())
            }
            Some(_) => PlaceUse::Unused(
                "no record of the kubelet says that it is staged, and no pod has it".to_owned(),
            ),
        }
    }

    /// None: not below the kubelet's folder. The kubelet keeps records only of paths below it.
    fn csi_path(&self, path: &HostPath) -> Option<Option<CsiPath>> {
        path.strip_prefix(self.root).filter(|below| !below.is_empty())?;
        Some(parse_csi_path(self.root, path))
    }

    /// A record exists but could not be read.
    fn has_unreadable_record(&self, place: &CsiPath) -> bool {
        let Some(record) = &place.record else {
            return false;
        };
        let named = format!("{record}: ");
        self.records.warnings.iter().any(|warning| warning.starts_with(&named))
    }

    fn pod_name(&self, uid: &str) -> String {
        match self.records.pods.get(uid) {
            Some(pod) => format!("pod {}/{} ({uid})", pod.namespace, pod.name),
            None => format!("pod {uid}"),
        }
    }
}

#[cfg(test)]
mod tests;
