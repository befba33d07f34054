//! Volumes that this node provides itself: their backing, their use, and their pods. Plain data:
//! the daemon's `provision` maintains it, and the snapshot contains it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::path::HostPath;

/// The backing of a provided volume.
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

/// Treatment of a volume's bytes before other volumes may reuse them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wipe {
    #[default]
    Zero,
    Discard,
    None,
}

/// Access modes, with their numbers in CSI (VolumeCapability.AccessMode) and in the daemon's API.
/// Kubernetes' own (`ReadWriteOnce`) are another list: kubelet and sidecars translate them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    SingleNodeWriter = 1,
    SingleNodeReaderOnly = 2,
    MultiNodeReaderOnly = 3,
    MultiNodeSingleWriter = 4,
    MultiNodeMultiWriter = 5,
    SingleNodeSingleWriter = 6,
    SingleNodeMultiWriter = 7,
}

impl AccessMode {
    /// None: unspecified, or of a newer version.
    pub fn from_number(number: i32) -> Option<AccessMode> {
        let all = [
            AccessMode::SingleNodeWriter,
            AccessMode::SingleNodeReaderOnly,
            AccessMode::MultiNodeReaderOnly,
            AccessMode::MultiNodeSingleWriter,
            AccessMode::MultiNodeMultiWriter,
            AccessMode::SingleNodeSingleWriter,
            AccessMode::SingleNodeMultiWriter,
        ];
        all.into_iter().find(|mode| mode.number() == number)
    }

    pub fn number(self) -> i32 {
        self as i32
    }

    /// Whether a volume that exists on one node only can support this mode: the one rule of the
    /// daemon and of the shim.
    ///
    /// MULTI_NODE_SINGLE_WRITER and MULTI_NODE_MULTI_WRITER promise a writer on another node, which
    /// is impossible here. MULTI_NODE_READER_ONLY promises reading wherever the volume can be
    /// reached: topology allows only this node, and Kubernetes has no other mode for ReadOnlyMany,
    /// so it is accepted and mounted read-only.
    pub fn is_for_one_node(self) -> bool {
        !matches!(self, AccessMode::MultiNodeSingleWriter | AccessMode::MultiNodeMultiWriter)
    }
}

/// The kind of a volume if the request names none: logical volumes if the configuration has a
/// volume group and no folder.
pub fn default_kind(directory_configured: bool, volume_group_configured: bool) -> BackingKind {
    if volume_group_configured && !directory_configured {
        BackingKind::Lvm
    } else {
        BackingKind::Loop
    }
}

/// The requested use of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAccess {
    pub mode: AccessMode,
    pub block: bool,
    /// None: ext4, or the existing filesystem.
    pub fs_type: Option<String>,
    pub mount_flags: Vec<String>,
}

/// One path where a provided volume is staged or published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidedAttachment {
    pub path: HostPath,
    pub access: VolumeAccess,
    pub read_only: bool,
    pub pod: Option<PodRef>,
    pub since: Timestamp,
}

/// A pod that a volume was published for, from the request or from the kubelet's records.
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
    /// The backing: the image file, `/dev/GROUP/NAME`, or the device or folder that the
    /// configuration names.
    pub backing: HostPath,
    pub staged: Option<ProvidedAttachment>,
    pub published: Vec<ProvidedAttachment>,
    #[serde(default)]
    pub presence: VolumePresence,
    /// Why the volume cannot be used.
    #[serde(alias = "trouble")]
    pub error: Option<String>,
    /// The error is that the pool's disk does not return a record of it, and it is on another one: what
    /// pods have mounted is not concerned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unread: bool,
}

/// Whether the device or directory of a static volume is there. Nobody uses one that is not. Without an
/// error it has not been looked for yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumePresence {
    #[default]
    Present,
    /// It is not, and was here before, or the configuration expects it here.
    Missing,
    /// It is not, and never was: one configuration file serves many nodes.
    Absent,
}

/// All provided volumes, and the location of new ones; complete each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionState {
    /// The CSI driver of these volumes.
    pub driver: String,
    pub volumes: Vec<ProvidedVolume>,
    /// The pool's folder, if it has one.
    pub directory: Option<HostPath>,
    /// The pool's volume group, if it has one.
    pub volume_group: Option<String>,
    /// The physical volumes of the group, as lvm lists them: paths, and `[unknown]` for one that is
    /// missing. Empty until lvm has answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub physical_volumes: Vec<HostPath>,
}
