//! The member devices of a mounted btrfs, from the ioctls BTRFS_IOC_FS_INFO and BTRFS_IOC_DEV_INFO
//! (include/uapi/linux/btrfs.h).
//!
//! In: the path of a mount. Out: the UUID of the filesystem; the id of each member, and the path by
//! which the kernel opened it.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};

use crate::host::sys;
use crate::model::path::HostPath;

/// Ids are never reused: after many replacements they are high, and most lower ids are unused.
const MAX_DEVICE_ID: u64 = 4096;
/// Offsets in struct btrfs_ioctl_fs_info_args and struct btrfs_ioctl_dev_info_args.
const FSID: usize = 16;
const PATH: usize = 3072;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// As in /sys/fs/btrfs.
    pub uuid: String,
    /// By id. Missing members have no path and are left out.
    pub devices: Vec<(u64, HostPath)>,
}

#[derive(Debug, thiserror::Error)]
pub enum BtrfsError {
    #[error("opening {path}")]
    Open {
        path: HostPath,
        #[source]
        source: Errno,
    },
    #[error("asking the btrfs at {path} for its members")]
    Query {
        path: HostPath,
        #[source]
        source: io::Error,
    },
}

/// None where the ioctl is not supported: a mount of one file, a filesystem other than btrfs. Does
/// not change atime (O_NOATIME).
pub(crate) fn members(path: &HostPath) -> Result<Option<Members>, BtrfsError> {
    let flags = OFlag::O_RDONLY
        | OFlag::O_DIRECTORY
        | OFlag::O_NOATIME
        | OFlag::O_CLOEXEC
        | OFlag::O_NONBLOCK;
    let directory = match open(path.as_path(), flags, nix::sys::stat::Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::ENOTDIR) => return Ok(None),
        Err(source) => {
            return Err(BtrfsError::Open {
                path: path.clone(),
                source,
            });
        }
    };
    let failed = |source| BtrfsError::Query {
        path: path.clone(),
        source,
    };
    let is = |error: &io::Error, errno: Errno| error.raw_os_error() == Some(errno as i32);
    let info = match sys::btrfs_fs_info(directory.as_fd()) {
        Ok(info) => info,
        Err(error) if is(&error, Errno::ENOTTY) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let (highest, uuid) = filesystem(&info);
    let mut devices = Vec::new();
    for id in 1..=highest.min(MAX_DEVICE_ID) {
        match sys::btrfs_dev_info(directory.as_fd(), id) {
            Ok(info) => devices.extend(device(&info).map(|path| (id, path))),
            Err(error) if is(&error, Errno::ENODEV) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(Some(Members { uuid, devices }))
}

/// The highest id of a member, and the hyphenated UUID.
fn filesystem(info: &[u8; sys::BTRFS_FS_INFO]) -> (u64, String) {
    let mut highest = [0; 8];
    highest.copy_from_slice(&info[..8]);
    let hex = |range: std::ops::Range<usize>| {
        info[FSID..][range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    (
        u64::from_ne_bytes(highest),
        [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-"),
    )
}

fn device(info: &[u8; sys::BTRFS_DEV_INFO]) -> Option<HostPath> {
    let path = info[PATH..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    path.starts_with(b"/").then(|| HostPath::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ioctl_fields_are_read_at_the_kernel_offsets() {
        let mut info = [0; sys::BTRFS_FS_INFO];
        info[..8].copy_from_slice(&3_u64.to_ne_bytes());
        info[8..16].copy_from_slice(&2_u64.to_ne_bytes());
        for at in 0..16_u8 {
            info[FSID + usize::from(at)] = at * 0x11;
        }
        assert_eq!(
            filesystem(&info),
            (3, "00112233-4455-6677-8899-aabbccddeeff".into())
        );
        let mut info = [0; sys::BTRFS_DEV_INFO];
        assert_eq!(device(&info), None, "missing");
        info[PATH..PATH + 8].copy_from_slice(b"/dev/sdb");
        assert_eq!(device(&info), Some("/dev/sdb".into()));
    }
}
