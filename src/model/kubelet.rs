//! What the kubelet wrote down of the volumes it staged and published: its on-disk records, the
//! only trace of a CSI volume's handle on a node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::path::HostPath;

/// One scan of the kubelet's folder and of /var/log/pods. Whole each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletRecords {
    /// The kubelet's folder with its symbolic links resolved: so do paths of mounts name it.
    pub root: HostPath,
    pub volumes: Vec<KubeletVolume>,
    /// By pod UID, from the names of the pod log folders.
    pub pods: BTreeMap<String, PodName>,
    /// UIDs of the folders below `pods/`: the pods that this node still has a record of.
    pub pod_uids: Vec<String>,
    /// Records that were skipped: damaged, of unknown shape, unreadable. Each names its file. They
    /// raise no finding.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

/// One CSI volume (driver + handle), its records joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletVolume {
    pub driver: String,
    pub handle: String,
    /// Name of the PersistentVolume (the record's specVolID); None for a staged record alone in the
    /// newer layout, and for inline volumes.
    pub pv: Option<String>,
    /// Raw block instead of a filesystem.
    pub block: bool,
    /// Inline (`volumeLifecycleMode: Ephemeral`): made for one pod, not of a PV.
    pub ephemeral: bool,
    /// Where it is staged, by the record: `…/globalmount`, or for block
    /// `…/volumeDevices/staging/PV`.
    pub staging: Option<HostPath>,
    pub publications: Vec<Publication>,
    /// The vol_data.json files that say so.
    pub records: Vec<HostPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    pub pod_uid: String,
    /// Where the pod's mount is: `pods/UID/volumes/kubernetes.io~csi/NAME/mount`; for block
    /// `…/volumeDevices/publish/PV/UID`.
    pub path: HostPath,
    /// The volume's name in the kubelet's folder (PV name, or the pod spec's volume name when
    /// inline).
    pub name: String,
}
