//! The filesystems that volumes may have.

use crate::error::ProvisionError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl Filesystem {
    pub const ALL: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];

    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
        }
    }

    pub fn from_name(name: &str) -> Option<Filesystem> {
        Filesystem::ALL.into_iter().find(|filesystem| filesystem.name() == name)
    }

    /// The requested filesystem; the default is ext4.
    pub fn requested(fs_type: Option<&str>) -> Result<Filesystem, ProvisionError> {
        let Some(name) = fs_type else {
            return Ok(Filesystem::Ext4);
        };
        Filesystem::from_name(name).ok_or_else(|| {
            ProvisionError::invalid_argument("access.fs_type", "is none of ext4, xfs and btrfs")
        })
    }

    /// The smallest device, in bytes, that its mkfs accepts with its defaults. mke2fs accepts a
    /// mebibyte (without a journal), mkfs.xfs refuses less than 300 MiB since xfsprogs 5.19,
    /// mkfs.btrfs less than 109 MiB (metadata twice).
    pub(crate) fn min_size(self) -> u64 {
        match self {
            Filesystem::Ext4 => 1 << 20,
            Filesystem::Xfs => 300 << 20,
            Filesystem::Btrfs => 109 << 20,
        }
    }
}
