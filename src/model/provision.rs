//! Volumes that this node provides itself: what there is of them, how it is used, and by whom.
//! Plain data: the daemon's `attach` keeps it, the picture of the node is made with it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::path::HostPath;

/// What a provided volume is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackingKind {
    /// An image file in the pool's folder, attached as a loop device.
    Loop,
    /// A logical volume in the pool's volume group.
    Lvm,
    /// A drive, partition or logical volume that the configuration names.
    StaticDevice,
    /// A folder that the configuration names.
    StaticDirectory,
}

/// Access modes (CSI, VolumeCapability.AccessMode).
/// Treatment of a volume's bytes before other volumes may reuse them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wipe {
    #[default]
    Zero,
    Discard,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
}

impl AccessMode {
    /// Whether a volume that one node has can keep to it: the one rule of the daemon and of the
    /// shim.
    ///
    /// MULTI_NODE_SINGLE_WRITER and MULTI_NODE_MULTI_WRITER promise a writer elsewhere, which
    /// nobody can keep. MULTI_NODE_READER_ONLY promises that whoever can reach it may read:
    /// topology lets only this node reach it, and Kubernetes has no other mode for ReadOnlyMany, so
    /// it is taken and held read-only.
    pub(crate) fn is_for_one_node(self) -> bool {
        !matches!(
            self,
            AccessMode::MultiNodeSingleWriter | AccessMode::MultiNodeMultiWriter
        )
    }
}

/// The kind of a volume for which none was asked: where an administrator has named a volume group
/// and no folder, he wants logical volumes.
pub(crate) fn default_kind(
    directory_configured: bool,
    volume_group_configured: bool,
) -> BackingKind {
    if volume_group_configured && !directory_configured {
        BackingKind::Lvm
    } else {
        BackingKind::Loop
    }
}

/// How a volume is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAccess {
    pub mode: AccessMode,
    pub block: bool,
    /// None: ext4, or what is on it.
    pub fs_type: Option<String>,
    pub mount_flags: Vec<String>,
}

/// One place where a provided volume is staged or published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidedAttachment {
    pub path: HostPath,
    pub access: VolumeAccess,
    pub read_only: bool,
    pub pod: Option<PodRef>,
    pub since: Timestamp,
}

/// A pod that a volume was published for, as the caller told or the kubelet's records show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    pub uid: String,
    pub name: String,
    pub namespace: String,
}

/// One volume that this node provides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidedVolume {
    pub handle: String,
    pub kind: BackingKind,
    /// Bytes.
    pub size: u64,
    /// Kernel name of its device (`loop3`, `dm-2`, `sdb1`), while it has one.
    pub device: Option<String>,
    /// What it lies in: the image file, `/dev/GROUP/NAME`, the device or the folder that the
    /// configuration names.
    pub backing: HostPath,
    pub staged: Option<ProvidedAttachment>,
    pub published: Vec<ProvidedAttachment>,
    /// Why it cannot be used.
    #[serde(rename = "trouble")]
    pub error: Option<String>,
}

/// All of them, and where new ones would be: whole each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionState {
    /// The CSI driver that they are volumes of.
    pub driver: String,
    pub volumes: Vec<ProvidedVolume>,
    /// The pool's folder, where there is one.
    pub directory: Option<HostPath>,
    /// The pool's volume group, where there is one.
    pub volume_group: Option<String>,
}
