//! The unsafe corner: system calls for which nix has no safe wrapper. Each states why it is sound.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

mod raw {
    // DM_TABLE_STATUS of linux/dm-ioctl.h: _IOWR(0xfd, 12, struct dm_ioctl). The size in the number is that of the header only.
    nix::ioctl_readwrite!(dm_table_status, 0xfd, 12, [u8; super::DM_HEADER]);
    // XFS_IOC_FSGEOMETRY: _IOR('X', 126, struct xfs_fsop_geom), since 5.2.
    nix::ioctl_read!(xfs_fsgeometry, b'X', 126, [u8; super::XFS_GEOMETRY]);
    // BTRFS_IOC_FS_INFO and BTRFS_IOC_DEV_INFO of linux/btrfs.h.
    nix::ioctl_read!(btrfs_fs_info, 0x94, 31, [u8; super::BTRFS_FS_INFO]);
    nix::ioctl_readwrite!(btrfs_dev_info, 0x94, 30, [u8; super::BTRFS_DEV_INFO]);
}

/// sizeof(struct dm_ioctl).
pub const DM_HEADER: usize = 312;
/// sizeof(struct xfs_fsop_geom), the answer to XFS_IOC_FSGEOMETRY (fs/xfs/libxfs/xfs_fs.h).
pub const XFS_GEOMETRY: usize = 256;
/// sizeof(struct btrfs_ioctl_fs_info_args), sizeof(struct btrfs_ioctl_dev_info_args).
pub const BTRFS_FS_INFO: usize = 1024;
pub const BTRFS_DEV_INFO: usize = 4096;

/// DM_TABLE_STATUS. `buffer` starts with a struct dm_ioctl; its data_size is set here to the buffer's length, so the kernel stays inside.
pub fn dm_table_status(control: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<()> {
    let size = u32::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    if buffer.len() < DM_HEADER {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    buffer[12..16].copy_from_slice(&size.to_ne_bytes());
    // SAFETY: the kernel reads and writes `data_size` bytes at most from the pointer (copy_params(), drivers/md/dm-ioctl.c), which is the
    // length of `buffer`, borrowed mutably for the call; bytes need no alignment for copy_from_user and copy_to_user.
    unsafe { raw::dm_table_status(control.as_raw_fd(), buffer.as_mut_ptr().cast()) }?;
    Ok(())
}

/// XFS_IOC_FSGEOMETRY of the filesystem that `directory` is on. ENOTTY from others, and from kernels before 5.2.
pub fn xfs_geometry(directory: BorrowedFd<'_>) -> io::Result<[u8; XFS_GEOMETRY]> {
    let mut geometry = [0; XFS_GEOMETRY];
    // SAFETY: the kernel writes as many bytes as the request's number says, which is made of the array's own size, into an array that is
    // borrowed mutably for the call; bytes need no alignment for copy_to_user.
    unsafe { raw::xfs_fsgeometry(directory.as_raw_fd(), &raw mut geometry) }?;
    Ok(geometry)
}

/// BTRFS_IOC_FS_INFO of the filesystem that `directory` is on. ENOTTY from others.
pub fn btrfs_fs_info(directory: BorrowedFd<'_>) -> io::Result<[u8; BTRFS_FS_INFO]> {
    let mut info = [0; BTRFS_FS_INFO];
    // SAFETY: as for `xfs_geometry`: the size in the request's number is the array's; an input of zeros asks for no optional fields.
    unsafe { raw::btrfs_fs_info(directory.as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// BTRFS_IOC_DEV_INFO of the member `id`. ENODEV where there is none.
pub fn btrfs_dev_info(directory: BorrowedFd<'_>, id: u64) -> io::Result<[u8; BTRFS_DEV_INFO]> {
    let mut info = [0; BTRFS_DEV_INFO];
    info[..8].copy_from_slice(&id.to_ne_bytes());
    // SAFETY: as for `xfs_geometry`; what is read is the id and a UUID of zeros, which means any.
    unsafe { raw::btrfs_dev_info(directory.as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// What statfs(2) says of a filesystem's identity, as fanotify repeats it.
pub fn fsid_bytes(fsid: nix::libc::fsid_t) -> [u8; 8] {
    // SAFETY: fsid_t is two C ints (linux/posix_types.h) in a field that libc keeps to itself: eight bytes without padding, any of them valid.
    unsafe { std::mem::transmute(fsid) }
}

/// mallopt(3), M_ARENA_MAX.
pub fn limit_arenas(most: i32) {
    // SAFETY: mallopt takes two integers and is called before any other thread runs.
    unsafe { nix::libc::mallopt(nix::libc::M_ARENA_MAX, most) };
}

/// For tokio to say when `fd` can be read.
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open and stays the same descriptor as long as it exists, and the AsyncFd owns it.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}
