//! One line of mountinfo, unescaped. Fields as in proc_pid_mountinfo(5).

use serde::{Deserialize, Serialize};

use crate::model::dev::DevNo;
use crate::model::path::HostPath;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub id: u32,
    pub parent: u32,
    pub dev: DevNo,
    /// The path within the filesystem that this mount shows: `/` for a whole one, else a bind mount or a subvolume.
    pub root: HostPath,
    pub mount_point: HostPath,
    /// Options of this mount (`rw`, `noatime`…).
    pub options: Vec<String>,
    pub fs_type: String,
    /// `/dev/sda1`, `server:/export`, `tmpfs`…
    pub source: HostPath,
    /// Options of the filesystem (the superblock), shared by all its mounts.
    pub super_options: Vec<String>,
}

impl Mount {
    pub fn is_read_only(&self) -> bool {
        self.options.iter().any(|o| o == "ro")
    }

    /// The filesystem itself refuses writes: `ro`, or one of ext4's `emergency_ro` and `shutdown` (fs/ext4/super.c, 6.15 and later).
    pub fn is_super_read_only(&self) -> bool {
        self.super_options.iter().any(|o| matches!(o.as_str(), "ro" | "emergency_ro" | "shutdown"))
    }
}

/// One line of /etc/fstab (fstab(5)) that mounts a filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FstabEntry {
    pub source: String,
    pub mount_point: HostPath,
    pub fs_type: String,
    pub options: Vec<String>,
}

/// What the host has mounted: PID 1's view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountTable {
    pub mounts: Vec<Mount>,
    pub fstab: Vec<FstabEntry>,
}
