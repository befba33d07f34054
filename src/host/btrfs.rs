//! The member devices and the space of a mounted btrfs, from the ioctls BTRFS_IOC_FS_INFO,
//! BTRFS_IOC_DEV_INFO and BTRFS_IOC_SPACE_INFO (include/uapi/linux/btrfs.h), and its directory in
//! /sys/fs/btrfs.
//!
//! In: a mount. Out: the UUID of the filesystem; the id of each member, and the path by which the
//! kernel opened it, with its UUID; its block groups, and the space of each member.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, fstatfs};

use crate::sys;
use diskvitals_finding::btrfs_space::{
    BlockGroups, BtrfsSpace, DeviceSpace, GLOBAL_RESERVE, Withheld,
};
use diskvitals_finding::path::HostPath;

/// Ids are never reused: after many replacements they are high, and most lower ids are unused.
const MAX_DEVICE_ID: u64 = 4096;
/// Offsets in struct btrfs_ioctl_fs_info_args and struct btrfs_ioctl_dev_info_args.
const FSID: usize = 16;
const DEVICE_UUID: usize = 8;
const NODE_BYTES: usize = 32;
const ALLOCATED: usize = 24;
const SIZE: usize = 32;
const PATH: usize = 3072;
/// More than there are kinds of block groups with each profile.
const MAX_GROUPS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// As in /sys/fs/btrfs.
    pub uuid: String,
    /// By id. Missing members have no path and are left out.
    pub devices: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    /// udev's ID_FS_UUID_SUB.
    pub uuid: String,
    /// By which the kernel opened it: it may be gone, or lead elsewhere.
    pub path: HostPath,
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

/// What reads all of the btrfs of `directory` now, and would be cancelled by a freeze (since Linux 6.19):
/// `a scrub`, `device replace`. None also of another filesystem. Needs CAP_SYS_ADMIN.
pub fn running_read(directory: BorrowedFd<'_>) -> io::Result<Option<String>> {
    if fstatfs(directory)?.filesystem_type() != BTRFS_SUPER_MAGIC {
        return Ok(None);
    }
    let (highest, uuid) = filesystem(&sys::btrfs_fs_info(directory)?);
    // Since Linux 5.10.
    let operation = std::fs::read_to_string(format!("/sys/fs/btrfs/{uuid}/exclusive_operation"));
    let operation = operation.unwrap_or_default();
    if operation.contains("replace") {
        return Ok(Some(operation.trim().to_owned()));
    }
    for id in 1..=highest.min(MAX_DEVICE_ID) {
        match sys::btrfs_scrub_progress(directory, id) {
            Ok(()) => return Ok(Some("a scrub".to_owned())),
            Err(error) if is(&error, Errno::ENOTCONN) || is(&error, Errno::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The UUID of the btrfs of `directory`, as in /sys/fs/btrfs.
pub fn uuid(directory: BorrowedFd<'_>) -> io::Result<String> {
    Ok(filesystem(&sys::btrfs_fs_info(directory)?).1)
}

/// None where the ioctl is not supported: a mount of one file, a filesystem other than btrfs. Does
/// not change atime (O_NOATIME).
pub fn members(path: &HostPath) -> Result<Option<Members>, BtrfsError> {
    let flags = OFlag::O_RDONLY
        | OFlag::O_DIRECTORY
        | OFlag::O_NOATIME
        | OFlag::O_CLOEXEC
        | OFlag::O_NONBLOCK;
    let directory = match open(path.as_path(), flags, nix::sys::stat::Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::ENOTDIR) => return Ok(None),
        Err(source) => {
            return Err(BtrfsError::Open { path: path.clone(), source });
        }
    };
    let failed = |source| BtrfsError::Query { path: path.clone(), source };
    let info = match sys::btrfs_fs_info(directory.as_fd()) {
        Ok(info) => info,
        Err(error) if is(&error, Errno::ENOTTY) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let (highest, uuid) = filesystem(&info);
    let mut devices = Vec::new();
    for id in 1..=highest.min(MAX_DEVICE_ID) {
        match sys::btrfs_dev_info(directory.as_fd(), id) {
            Ok(info) => devices.extend(device(&info).map(|path| Member {
                id,
                uuid: hyphenated(&info[DEVICE_UUID..][..16]),
                path,
            })),
            Err(error) if is(&error, Errno::ENODEV) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(Some(Members { uuid, devices }))
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

/// The space of the btrfs of `directory`.
pub fn space(directory: BorrowedFd<'_>) -> io::Result<BtrfsSpace> {
    let info = sys::btrfs_fs_info(directory)?;
    let (highest, uuid) = filesystem(&info);
    let sysfs = format!("/sys/fs/btrfs/{uuid}");
    let mut devices = Vec::new();
    for id in 1..=highest.min(MAX_DEVICE_ID) {
        match sys::btrfs_dev_info(directory, id) {
            Ok(info) => devices
                .push(device_space(&info, number(&sysfs, &format!("devinfo/{id}/writeable")))),
            Err(error) if is(&error, Errno::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    let mut buffer = [0; sys::BTRFS_SPACE_HEADER + MAX_GROUPS * sys::BTRFS_SPACE_SLOT];
    sys::btrfs_space_info(directory, &mut buffer)?;
    let (groups, reserve) = block_groups(&buffer);
    let is_mixed = std::fs::exists(format!("{sysfs}/allocation/mixed")).unwrap_or(false);
    let withheld = |kind: &str| {
        let of = |name: &str| number(&sysfs, &format!("allocation/{kind}/{name}")).unwrap_or(0);
        Withheld {
            pinned: of("bytes_pinned"),
            read_only: of("bytes_readonly").saturating_add(of("bytes_zone_unusable")),
        }
    };
    let operation = std::fs::read_to_string(format!("{sysfs}/exclusive_operation"));
    Ok(BtrfsSpace {
        uuid,
        groups,
        devices,
        reserve,
        data: withheld(if is_mixed { "mixed" } else { "data" }),
        metadata: withheld(if is_mixed { "mixed" } else { "metadata" }),
        node_bytes: u32_at(&info, NODE_BYTES).into(),
        balancing: operation.is_ok_and(|operation| operation.trim() == "balance"),
    })
}

/// An attribute that holds a number; None if this kernel does not have it. Its value is in the
/// kernel's memory.
fn number(sysfs: &str, name: &str) -> Option<u64> {
    std::fs::read_to_string(format!("{sysfs}/{name}")).ok()?.trim().parse().ok()
}

fn device_space(info: &[u8; sys::BTRFS_DEV_INFO], writeable: Option<u64>) -> DeviceSpace {
    DeviceSpace {
        size: u64_at(info, SIZE),
        allocated: u64_at(info, ALLOCATED),
        // devinfo/ID/writeable: since Linux 5.6.
        writable: writeable.map_or_else(|| device(info).is_some(), |flag| flag == 1),
    }
}

/// The block groups, and the unused part of the global reserve.
fn block_groups(buffer: &[u8]) -> (Vec<BlockGroups>, u64) {
    let count = usize::try_from(u64_at(buffer, 8)).unwrap_or(0).min(MAX_GROUPS);
    let slots = (0..count).map(|slot| sys::BTRFS_SPACE_HEADER + slot * sys::BTRFS_SPACE_SLOT);
    let all = slots.map(|at| BlockGroups {
        flags: u64_at(buffer, at),
        total: u64_at(buffer, at + 8),
        used: u64_at(buffer, at + 16),
    });
    let (reserves, groups): (Vec<_>, Vec<_>) =
        all.partition(|groups| groups.flags & GLOBAL_RESERVE != 0);
    let unused = reserves.iter().map(|reserve| reserve.total.saturating_sub(reserve.used));
    (groups, unused.sum())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(number)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(number)
}

/// The highest id of a member, and the UUID.
fn filesystem(info: &[u8; sys::BTRFS_FS_INFO]) -> (u64, String) {
    (u64_at(info, 0), hyphenated(&info[FSID..][..16]))
}

fn hyphenated(uuid: &[u8]) -> String {
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16]
        .map(|range| uuid[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    parts.join("-")
}

fn device(info: &[u8; sys::BTRFS_DEV_INFO]) -> Option<HostPath> {
    let path = info[PATH..].split(|byte| *byte == 0).next().unwrap_or_default();
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
        assert_eq!(filesystem(&info), (3, "00112233-4455-6677-8899-aabbccddeeff".into()));
        let mut info = [0; sys::BTRFS_DEV_INFO];
        assert_eq!(device(&info), None, "missing");
        info[PATH..PATH + 8].copy_from_slice(b"/dev/sdb");
        assert_eq!(device(&info), Some("/dev/sdb".into()));
        info[24..32].copy_from_slice(&7_u64.to_ne_bytes());
        info[32..40].copy_from_slice(&9_u64.to_ne_bytes());
        for (writeable, writable) in [(None, true), (Some(1), true), (Some(0), false)] {
            let expected = DeviceSpace { size: 9, allocated: 7, writable };
            assert_eq!(device_space(&info, writeable), expected);
        }
        info[PATH] = 0;
        assert!(!device_space(&info, None).writable, "missing");
    }

    #[test]
    fn the_reserve_is_no_block_group() {
        let mut buffer = vec![0; 16 + 64 * 24];
        let numbers = [64, 2, 0x24, 100, 60, GLOBAL_RESERVE, 16, 5];
        for (at, number) in numbers.into_iter().enumerate() {
            buffer[at * 8..at * 8 + 8].copy_from_slice(&u64::to_ne_bytes(number));
        }
        let groups = BlockGroups { flags: 0x24, total: 100, used: 60 };
        assert_eq!(block_groups(&buffer), (vec![groups], 11));
    }
}
