//! The kubelet's on-disk records of staged and published volumes: the only source of a CSI volume's
//! handle on a node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::path::HostPath;

/// One scan of the kubelet's folder and of /var/log/pods. Complete each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletRecords {
    /// The kubelet's folder with its symbolic links resolved: mount paths begin with it.
    pub root: HostPath,
    pub volumes: Vec<KubeletVolume>,
    /// By pod UID, from the names of the pods' log folders.
    pub pods: BTreeMap<String, PodName>,
    /// UIDs of the folders below `pods/`: the pods of which this node still has a record.
    pub pod_uids: Vec<String>,
    /// Records that were skipped: damaged, of unknown form, unreadable. Each warning names the
    /// file. They raise no finding.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

/// One CSI volume (driver + handle) with all its records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletVolume {
    pub driver: String,
    pub handle: String,
    /// Name of the PersistentVolume (the record's specVolID); None for an inline volume, and for a
    /// lone staging record in the newer layout.
    pub pv: Option<String>,
    /// Raw block instead of a filesystem.
    pub block: bool,
    /// Inline (`volumeLifecycleMode: Ephemeral`): made for one pod, without a PV.
    pub ephemeral: bool,
    /// The staging path in the record: `…/globalmount`, or for block `…/volumeDevices/staging/PV`.
    pub staging: Option<HostPath>,
    pub publications: Vec<Publication>,
    /// The vol_data.json files of the volume.
    pub records: Vec<HostPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    pub pod_uid: String,
    /// The mount path of the pod: `pods/UID/volumes/kubernetes.io~csi/NAME/mount`; for block
    /// `…/volumeDevices/publish/PV/UID`.
    pub path: HostPath,
    /// The volume's name in the kubelet's folder (PV name, or the pod spec's volume name when
    /// inline).
    pub name: String,
}
