//! Grows mounted filesystems to the size of their devices, by ioctls on their top directory. XFS
//! and btrfs need CAP_SYS_ADMIN. ext4 needs CAP_SYS_RESOURCE, which is raised for that call only:
//! with it, any allocation may use the blocks that a filesystem reserves for root.
//!
//! In: the directory, the size of the device. Out: success, or the error. A filesystem that already
//! fills its device is a success.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use caps::{CapSet, Capability};
use nix::sys::statfs::fstatfs;

use crate::sys;

/// Offsets in struct xfs_fsop_geom (fs/xfs/libxfs/xfs_fs.h).
const BLOCK_SIZE: usize = 0;
const INODE_PERCENT: usize = 28;
const DATA_BLOCKS: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    #[error("asking the {fs_type} for its size")]
    Geometry {
        fs_type: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("growing the {fs_type} to {size} bytes")]
    Grow {
        fs_type: &'static str,
        size: u64,
        #[source]
        source: io::Error,
    },
    #[error(
        "a mounted ext4 is grown by who has CAP_SYS_RESOURCE, which this process was not given: it is grown when it is staged next"
    )]
    MissingCapability(#[source] io::Error),
    #[error("a mounted {0} cannot be grown here")]
    Unsupported(String),
}

/// `size`: the size of the device, in bytes.
pub fn grow(directory: BorrowedFd<'_>, fs_type: &str, size: u64) -> Result<(), ResizeError> {
    match fs_type {
        "ext4" => grow_ext4(directory, size),
        "xfs" => grow_xfs(directory, size),
        // The volume has one device, which has the id 1.
        "btrfs" => sys::btrfs_resize(directory, "1:max").map_err(|source| ResizeError::Grow {
            fs_type: "btrfs",
            size,
            source,
        }),
        other => Err(ResizeError::Unsupported(other.to_owned())),
    }
}

fn grow_ext4(directory: BorrowedFd<'_>, size: u64) -> Result<(), ResizeError> {
    // f_bsize is the block size (ext4_statfs()). f_blocks excludes metadata, so it does not show
    // whether the filesystem is large enough; the kernel checks that.
    let told = fstatfs(directory.as_fd())
        .map_err(|errno| ResizeError::Geometry { fs_type: "ext4", source: errno.into() })?;
    let unit = u64::try_from(told.block_size()).unwrap_or(0).max(1024);
    // If it is not permitted, the kernel returns EPERM, which is reported below.
    caps::raise(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE).ok();
    let grown = sys::ext4_resize(directory, size / unit);
    let dropped = caps::drop(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE);
    match grown {
        Ok(()) => dropped.map_err(|error| ResizeError::Grow {
            fs_type: "ext4",
            size,
            source: io::Error::other(error),
        }),
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            Err(ResizeError::MissingCapability(source))
        }
        Err(source) => Err(ResizeError::Grow { fs_type: "ext4", size, source }),
    }
}

fn grow_xfs(directory: BorrowedFd<'_>, size: u64) -> Result<(), ResizeError> {
    let geometry = sys::xfs_geometry(directory)
        .map_err(|source| ResizeError::Geometry { fs_type: "xfs", source })?;
    let (unit, percent, blocks) = geometry_of(&geometry);
    let wanted = size / u64::from(unit.max(512));
    if wanted <= blocks {
        return Ok(());
    }
    let grow = sys::XfsGrow { blocks: wanted, inode_percent: percent, padding: 0 };
    match sys::xfs_grow_data(directory, grow) {
        // The rest is smaller than the smallest allocation group (xfs_growfs_data_private()): the
        // filesystem cannot grow further.
        Err(error)
            if error.raw_os_error() == Some(nix::libc::EINVAL)
                && wanted - blocks < MIN_AG_BLOCKS =>
        {
            Ok(())
        }
        other => other.map_err(|source| ResizeError::Grow { fs_type: "xfs", size, source }),
    }
}

/// XFS_MIN_AG_BLOCKS.
const MIN_AG_BLOCKS: u64 = 64;

/// Block size, maximum percentage for inodes, number of blocks.
fn geometry_of(geometry: &[u8; sys::XFS_GEOMETRY]) -> (u32, u32, u64) {
    let word = |at: usize| {
        u32::from_ne_bytes([geometry[at], geometry[at + 1], geometry[at + 2], geometry[at + 3]])
    };
    let mut blocks = [0; 8];
    blocks.copy_from_slice(&geometry[DATA_BLOCKS..DATA_BLOCKS + 8]);
    (word(BLOCK_SIZE), word(INODE_PERCENT), u64::from_ne_bytes(blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometry_is_read_where_the_kernel_writes_it() {
        let mut geometry = [0; sys::XFS_GEOMETRY];
        geometry[..4].copy_from_slice(&4096_u32.to_ne_bytes());
        geometry[28..32].copy_from_slice(&25_u32.to_ne_bytes());
        geometry[32..40].copy_from_slice(&81920_u64.to_ne_bytes());
        assert_eq!(geometry_of(&geometry), (4096, 25, 81920));
    }

    #[test]
    fn a_filesystem_that_nobody_can_grow_is_an_error() {
        let folder = std::fs::File::open("/").unwrap();
        assert_eq!(
            grow(folder.as_fd(), "vfat", 1 << 30).unwrap_err().to_string(),
            "a mounted vfat cannot be grown here"
        );
    }
}
