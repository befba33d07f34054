//! System calls for which nix has no safe wrapper: the only unsafe code. Each call explains why it
//! is sound.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::libc::sock_filter;
use procfs::process::{MMPermissions, MMapPath, Process};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) use crate::kernel_structs::*;

mod raw {
    // DM_TABLE_STATUS of linux/dm-ioctl.h: _IOWR(0xfd, 12, struct dm_ioctl). The size in the
    // request number is that of the header only.
    nix::ioctl_readwrite!(dm_table_status, 0xfd, 12, [u8; super::DM_HEADER]);
    // DM_DEV_SUSPEND; without its flag, it resumes.
    nix::ioctl_readwrite!(dm_dev_suspend, 0xfd, 6, [u8; super::DM_HEADER]);
    // DM_GET_TARGET_VERSION, since 5.2.
    nix::ioctl_readwrite!(dm_target_version, 0xfd, 17, [u8; super::DM_HEADER]);
    // XFS_IOC_FSGEOMETRY: _IOR('X', 126, struct xfs_fsop_geom), since 5.2.
    nix::ioctl_read!(xfs_fsgeometry, b'X', 126, [u8; super::XFS_GEOMETRY]);
    // BTRFS_IOC_FS_INFO and BTRFS_IOC_DEV_INFO of linux/btrfs.h.
    nix::ioctl_read!(btrfs_fs_info, 0x94, 31, [u8; super::BTRFS_FS_INFO]);
    nix::ioctl_readwrite!(btrfs_dev_info, 0x94, 30, [u8; super::BTRFS_DEV_INFO]);
    // BTRFS_IOC_SCRUB_PROGRESS of linux/btrfs.h.
    nix::ioctl_readwrite!(btrfs_scrub_progress, 0x94, 29, [u8; super::BTRFS_SCRUB]);
    // BTRFS_IOC_SPACE_INFO of linux/btrfs.h. The size in the request number is that of the header,
    // struct btrfs_ioctl_space_args; the results follow it.
    nix::ioctl_readwrite!(btrfs_space_info, 0x94, 20, [u8; super::BTRFS_SPACE_HEADER]);
    // NVME_IOCTL_ADMIN_CMD of linux/nvme_ioctl.h: _IOWR('N', 0x41, struct nvme_admin_cmd).
    nix::ioctl_readwrite!(nvme_admin, b'N', 0x41, super::NvmeAdmin);
    // XFS_IOC_AG_GEOMETRY: _IOWR('X', 61, struct xfs_ag_geometry), since 5.2. XFS_IOC_BULKSTAT:
    // _IOR('X', 127, struct xfs_bulkstat_req), since 5.3; the size in its request number is that of
    // the header only.
    nix::ioctl_readwrite!(xfs_ag_geometry, b'X', 61, [u8; super::XFS_AG_GEOMETRY]);
    nix::ioctl_read!(xfs_bulkstat, b'X', 127, [u8; super::XFS_BULK_HEADER]);
    // linux/loop.h.
    nix::ioctl_none_bad!(loop_clr_fd, 0x4C01);
    nix::ioctl_read_bad!(loop_get_status64, 0x4C05, super::LoopInfo);
    nix::ioctl_write_ptr_bad!(loop_configure, 0x4C0A, super::LoopConfig);
    nix::ioctl_none_bad!(loop_ctl_get_free, 0x4C82);
    nix::ioctl_write_ptr_bad!(loop_set_status64, 0x4C04, super::LoopInfo);
    nix::ioctl_none_bad!(loop_set_capacity, 0x4C07);
    // BLKGETSIZE64, BLKDISCARD, BLKZEROOUT of linux/fs.h; the ranges are { start, length } in
    // bytes.
    nix::ioctl_read!(device_size, 0x12, 114, u64);
    nix::ioctl_write_ptr_bad!(discard, 0x1277, [u64; 2]);
    nix::ioctl_write_ptr_bad!(zero_out, 0x127F, [u64; 2]);
    // FS_IOC_SETFLAGS: its number encodes a long, but the kernel reads an int (fs/ioctl.c).
    nix::ioctl_write_ptr!(set_file_flags, b'f', 2, nix::libc::c_long);
    // EXT4_IOC_RESIZE_FS of linux/ext4.h; XFS_IOC_FSGROWFSDATA of fs/xfs/libxfs/xfs_fs.h;
    // BTRFS_IOC_RESIZE of linux/btrfs.h.
    nix::ioctl_write_ptr!(ext4_resize, b'f', 16, u64);
    nix::ioctl_write_ptr!(xfs_grow_data, b'X', 110, super::XfsGrow);
    nix::ioctl_write_ptr!(btrfs_resize, 0x94, 3, [u8; super::BTRFS_VOL_ARGS]);
    // BLKSSZGET, BLKFLSBUF of linux/fs.h.
    nix::ioctl_read_bad!(block_size, 0x1268, nix::libc::c_int);
    nix::ioctl_none_bad!(forget_cached, 0x1261);
    // FIFREEZE and FITHAW of linux/fs.h: _IOWR('X', 119, int) and 120. The kernel ignores the
    // argument (fs/ioctl.c).
    nix::ioctl_readwrite!(fs_freeze, b'X', 119, nix::libc::c_int);
    nix::ioctl_readwrite!(fs_thaw, b'X', 120, nix::libc::c_int);
    // SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND of linux/seccomp.h.
    nix::ioctl_readwrite!(seccomp_receive, b'!', 0, nix::libc::seccomp_notif);
    nix::ioctl_readwrite!(seccomp_send, b'!', 1, nix::libc::seccomp_notif_resp);
}

/// DM_TABLE_STATUS. `buffer` starts with a struct dm_ioctl; its data_size is set here to the
/// buffer's length, so the kernel writes within the buffer.
pub(crate) fn dm_table_status(control: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<()> {
    set_dm_size(buffer)?;
    // SAFETY: the kernel reads and writes at most `data_size` bytes from the pointer
    // (copy_params(), drivers/md/dm-ioctl.c), which is the length of `buffer`, borrowed mutably for
    // the call; bytes need no alignment for copy_from_user and copy_to_user.
    Ok(unsafe { raw::dm_table_status(control.as_raw_fd(), buffer.as_mut_ptr().cast()) }
        .map(drop)?)
}

/// DM_DEV_SUSPEND: suspends or resumes, by the flags in the struct dm_ioctl at `buffer`'s start.
pub(crate) fn dm_dev_suspend(control: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<()> {
    set_dm_size(buffer)?;
    // SAFETY: as for `dm_table_status`.
    Ok(unsafe { raw::dm_dev_suspend(control.as_raw_fd(), buffer.as_mut_ptr().cast()) }.map(drop)?)
}

/// DM_GET_TARGET_VERSION of the target type that the struct dm_ioctl at the start of `buffer`
/// names.
pub(crate) fn dm_target_version(control: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<()> {
    set_dm_size(buffer)?;
    // SAFETY: as for `dm_table_status`.
    Ok(unsafe { raw::dm_target_version(control.as_raw_fd(), buffer.as_mut_ptr().cast()) }
        .map(drop)?)
}

fn set_dm_size(buffer: &mut [u8]) -> io::Result<()> {
    let size = u32::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    if buffer.len() < DM_HEADER {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    buffer[12..16].copy_from_slice(&size.to_ne_bytes());
    Ok(())
}

/// XFS_IOC_FSGEOMETRY of the filesystem of `directory`. ENOTTY from other filesystems, and from
/// kernels before 5.2.
pub(crate) fn xfs_geometry(directory: BorrowedFd<'_>) -> io::Result<[u8; XFS_GEOMETRY]> {
    let mut geometry = [0; XFS_GEOMETRY];
    // SAFETY: the kernel writes as many bytes as the request number encodes, which is the array's
    // own size, into an array that is borrowed mutably for the call; bytes need no alignment for
    // copy_to_user.
    unsafe { raw::xfs_fsgeometry(directory.as_raw_fd(), &raw mut geometry) }?;
    Ok(geometry)
}

/// BTRFS_IOC_FS_INFO of the filesystem of `directory`. ENOTTY from other filesystems.
pub(crate) fn btrfs_fs_info(directory: BorrowedFd<'_>) -> io::Result<[u8; BTRFS_FS_INFO]> {
    let mut info = [0; BTRFS_FS_INFO];
    // SAFETY: as for `xfs_geometry`: the size in the request number is the array's; an input of
    // zeros requests no optional fields.
    unsafe { raw::btrfs_fs_info(directory.as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// BTRFS_IOC_DEV_INFO of the member `id`. ENODEV if there is none.
pub(crate) fn btrfs_dev_info(
    directory: BorrowedFd<'_>,
    id: u64,
) -> io::Result<[u8; BTRFS_DEV_INFO]> {
    let mut info = [0; BTRFS_DEV_INFO];
    info[..8].copy_from_slice(&id.to_ne_bytes());
    // SAFETY: as for `xfs_geometry`; the kernel reads the id and a UUID of zeros (any UUID).
    unsafe { raw::btrfs_dev_info(directory.as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// BTRFS_IOC_SCRUB_PROGRESS of the member `id`. ENOTCONN if neither a scrub nor a replacement reads it,
/// ENODEV if there is none.
pub(crate) fn btrfs_scrub_progress(directory: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let mut arguments = [0; BTRFS_SCRUB];
    arguments[..8].copy_from_slice(&id.to_ne_bytes());
    // SAFETY: as for `xfs_geometry`: the size in the request number is the array's.
    unsafe { raw::btrfs_scrub_progress(directory.as_raw_fd(), &raw mut arguments) }?;
    Ok(())
}

/// BTRFS_IOC_SPACE_INFO. `buffer` starts with a struct btrfs_ioctl_space_args; its space_slots is
/// set here to the number of results that fit after it, so the kernel writes within the buffer.
pub(crate) fn btrfs_space_info(directory: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<()> {
    let room = buffer.len().checked_sub(BTRFS_SPACE_HEADER).ok_or(io::ErrorKind::InvalidInput)?;
    let slots = (room / BTRFS_SPACE_SLOT) as u64;
    buffer[..8].copy_from_slice(&slots.to_ne_bytes());
    // SAFETY: the kernel writes the header and at most `slots` results after it (fs/btrfs/ioctl.c,
    // btrfs_ioctl_space_info()), which is the length of `buffer`, borrowed mutably for the call.
    unsafe { raw::btrfs_space_info(directory.as_raw_fd(), buffer.as_mut_ptr().cast()) }?;
    Ok(())
}

/// XFS_IOC_AG_GEOMETRY of the allocation group `number`. EINVAL beyond the last group.
pub(crate) fn xfs_ag_geometry(
    directory: BorrowedFd<'_>,
    number: u32,
) -> io::Result<[u8; XFS_AG_GEOMETRY]> {
    let mut geometry = [0; XFS_AG_GEOMETRY];
    geometry[..4].copy_from_slice(&number.to_ne_bytes());
    // SAFETY: as for `xfs_geometry`: the size in the request number is the array's; flags and
    // padding must be zero, and are.
    unsafe { raw::xfs_ag_geometry(directory.as_raw_fd(), &raw mut geometry) }?;
    Ok(geometry)
}

/// XFS_IOC_BULKSTAT. `buffer` starts with a struct xfs_bulk_ireq; its icount is set here to the
/// number of results that fit after it, so the kernel writes within the buffer.
pub(crate) fn xfs_bulkstat(directory: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<()> {
    let room = buffer.len().checked_sub(XFS_BULK_HEADER).ok_or(io::ErrorKind::InvalidInput)?
        / XFS_BULKSTAT;
    let room = u32::try_from(room).map_err(|_| io::ErrorKind::InvalidInput)?;
    buffer[12..16].copy_from_slice(&room.to_ne_bytes());
    // SAFETY: the kernel writes the header and at most `icount` results after it
    // (xfs_ioc_bulkstat(), fs/xfs/xfs_ioctl.c), which is the length of `buffer`, borrowed mutably
    // for the call; bytes need no alignment for copy_from_user and copy_to_user.
    Ok(unsafe { raw::xfs_bulkstat(directory.as_raw_fd(), buffer.as_mut_ptr().cast()) }.map(drop)?)
}

/// LOOP_CTL_GET_FREE: the number of an unused loop device; the kernel creates one if needed.
pub(crate) fn loop_get_free(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the call takes no argument and returns a number.
    let number = unsafe { raw::loop_ctl_get_free(control.as_raw_fd()) }?;
    u32::try_from(number).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// LOOP_CONFIGURE. EBUSY if another process attached the device first.
pub(crate) fn loop_configure(
    device: BorrowedFd<'_>,
    backing: BorrowedFd<'_>,
    block_size: u32,
    info: LoopInfo,
) -> io::Result<()> {
    let fd = u32::try_from(backing.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let config = LoopConfig { fd, block_size, info, reserved: [0; 8] };
    // SAFETY: the struct has the kernel's layout (C, no padding: 304 bytes) and is only read,
    // during the call; the kernel takes its own reference to the file of the descriptor, which is
    // borrowed.
    Ok(unsafe { raw::loop_configure(device.as_raw_fd(), &raw const config) }.map(drop)?)
}

/// LOOP_GET_STATUS64. ENXIO if no file is attached.
pub(crate) fn loop_status(device: BorrowedFd<'_>) -> io::Result<LoopInfo> {
    let mut info = LoopInfo::EMPTY;
    // SAFETY: the struct has the kernel's layout (C, no padding: 232 bytes), any bytes are valid in
    // it, and it is borrowed mutably for the call.
    unsafe { raw::loop_get_status64(device.as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// LOOP_CLR_FD: detaches at once, or at the last close.
pub(crate) fn loop_clear(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no argument.
    Ok(unsafe { raw::loop_clr_fd(device.as_raw_fd()) }.map(drop)?)
}

/// LOOP_SET_STATUS64: used here to change the flags only (LO_FLAGS_AUTOCLEAR).
pub(crate) fn loop_set_status(device: BorrowedFd<'_>, info: &LoopInfo) -> io::Result<()> {
    // SAFETY: the struct has the kernel's layout and is only read, during the call.
    Ok(unsafe { raw::loop_set_status64(device.as_raw_fd(), &raw const *info) }.map(drop)?)
}

/// LOOP_SET_CAPACITY: sets the size of the device to the present size of its file.
pub(crate) fn loop_set_capacity(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no argument.
    Ok(unsafe { raw::loop_set_capacity(device.as_raw_fd()) }.map(drop)?)
}

/// BLKGETSIZE64: the size of a block device, in bytes.
pub(crate) fn device_size(device: BorrowedFd<'_>) -> io::Result<u64> {
    let mut size = 0;
    // SAFETY: the kernel writes one u64, which is borrowed mutably for the call.
    unsafe { raw::device_size(device.as_raw_fd(), &raw mut size) }?;
    Ok(size)
}

/// BLKZEROOUT: this range of a block device reads as zeros afterwards, on any device.
pub(crate) fn zero_out(device: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    let range = [start, length];
    // SAFETY: two u64, which are only read, during the call.
    Ok(unsafe { raw::zero_out(device.as_raw_fd(), &raw const range) }.map(drop)?)
}

/// BLKDISCARD: the content of the range is undefined afterwards.
pub(crate) fn discard(device: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    let range = [start, length];
    // SAFETY: as for `zero_out`.
    Ok(unsafe { raw::discard(device.as_raw_fd(), &raw const range) }.map(drop)?)
}

/// FS_IOC_SETFLAGS of a file (ioctl_iflags(2)).
pub(crate) fn set_file_flags(file: BorrowedFd<'_>, flags: i32) -> io::Result<()> {
    let flags = nix::libc::c_long::from(flags);
    // SAFETY: a long, which is only read, during the call.
    Ok(unsafe { raw::set_file_flags(file.as_raw_fd(), &raw const flags) }.map(drop)?)
}

/// EXT4_IOC_RESIZE_FS: grows the mounted filesystem to this number of blocks. Needs
/// CAP_SYS_RESOURCE (ext4_resize_begin()).
pub(crate) fn ext4_resize(directory: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    // SAFETY: a u64, which is only read, during the call.
    Ok(unsafe { raw::ext4_resize(directory.as_raw_fd(), &raw const blocks) }.map(drop)?)
}

/// XFS_IOC_FSGROWFSDATA of the mounted filesystem.
pub(crate) fn xfs_grow_data(directory: BorrowedFd<'_>, grow: XfsGrow) -> io::Result<()> {
    // SAFETY: the struct has the kernel's layout (16 bytes, with explicit padding) and is only
    // read, during the call.
    Ok(unsafe { raw::xfs_grow_data(directory.as_raw_fd(), &raw const grow) }.map(drop)?)
}

/// BTRFS_IOC_RESIZE of the mounted filesystem; `words` in the format of btrfs-filesystem(8):
/// `DEVID:max`.
pub(crate) fn btrfs_resize(directory: BorrowedFd<'_>, words: &str) -> io::Result<()> {
    let mut arguments = [0; BTRFS_VOL_ARGS];
    // The last byte stays zero: the kernel reads a C string.
    let name = arguments.get_mut(8..8 + words.len()).filter(|_| words.len() < BTRFS_VOL_ARGS - 8);
    name.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(words.as_bytes());
    // SAFETY: the array has the struct's size and is only read, during the call; bytes need no
    // alignment for copy_from_user.
    Ok(unsafe { raw::btrfs_resize(directory.as_raw_fd(), &raw const arguments) }.map(drop)?)
}

/// BLKSSZGET: the logical block size, in bytes.
pub(crate) fn logical_block_size(device: BorrowedFd<'_>) -> io::Result<u32> {
    let mut size = 0;
    // SAFETY: the kernel writes one int, which is borrowed mutably for the call.
    unsafe { raw::block_size(device.as_raw_fd(), &raw mut size) }?;
    u32::try_from(size).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// BLKFLSBUF: writes and drops the page cache of the device.
pub(crate) fn flush_buffers(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no argument.
    Ok(unsafe { raw::forget_cached(device.as_raw_fd()) }.map(drop)?)
}

/// Sets the lowest I/O priority (IOPRIO_CLASS_IDLE, ioprio_set(2)) and a low processor priority,
/// for this process and its children.
pub(crate) fn lower_priority() -> io::Result<()> {
    const WHO_PROCESS: nix::libc::c_int = 1;
    const IDLE: nix::libc::c_int = 3 << 13;
    // SAFETY: integers only; 0 means the caller.
    let (idle, nice) = unsafe {
        let idle = nix::libc::syscall(nix::libc::SYS_ioprio_set, WHO_PROCESS, 0, IDLE);
        (idle, nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, 10))
    };
    checked(idle.min(nice.into())).map(drop)
}

/// Writing beyond RLIMIT_FSIZE then fails with EFBIG and sends no signal, also in the program that
/// is executed next.
pub(crate) fn ignore_file_size_signal() -> io::Result<()> {
    // SAFETY: SIG_IGN runs no code of ours; nothing else changes signals in this process.
    unsafe {
        nix::sys::signal::signal(
            nix::sys::signal::Signal::SIGXFSZ,
            nix::sys::signal::SigHandler::SigIgn,
        )
    }?;
    Ok(())
}

/// struct mount_attr.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// MOUNT_ATTR_RDONLY (linux/mount.h).
const READ_ONLY: u64 = 1;

/// Makes all mounts of this mount namespace read-only, but not their filesystems (mount_setattr(2),
/// AT_RECURSIVE; since 5.12).
pub(crate) fn all_mounts_read_only() -> io::Result<()> {
    mount_setattr(-1, c"/", nix::libc::AT_RECURSIVE, READ_ONLY)
}

/// mount_setattr(2) of one mount: sets these MOUNT_ATTR_ flags and keeps the others.
pub(crate) fn set_mount_flags(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    // The empty path means the descriptor itself.
    mount_setattr(mount.as_raw_fd(), c"", nix::libc::AT_EMPTY_PATH, set)
}

fn mount_setattr(directory: i32, path: &CStr, flags: i32, set: u64) -> io::Result<()> {
    let attr = MountAttr { set, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path is a C string, and the struct has the kernel's layout and the passed size.
    checked(unsafe {
        nix::libc::syscall(
            nix::libc::SYS_mount_setattr,
            directory,
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// The result of a system call, or its error.
fn checked(result: nix::libc::c_long) -> io::Result<nix::libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new descriptor that a system call returned, or its error.
fn owned_fd(result: nix::libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(checked(result)?).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the callers pass the result of fsopen, fsmount, open_tree, landlock_create_ruleset or
    // seccomp, or what recvmsg received: a new descriptor that has no other owner.
    Ok(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) })
}

/// fsopen(2), since 5.2.
pub(crate) fn fsopen(fs_type: &CStr) -> io::Result<OwnedFd> {
    const CLOEXEC: u32 = 1;
    // SAFETY: a C string and a number.
    owned_fd(unsafe { nix::libc::syscall(nix::libc::SYS_fsopen, fs_type.as_ptr(), CLOEXEC) })
}

/// A command of fsconfig(2).
#[derive(Clone, Copy, Debug)]
pub(crate) enum FsConfigCommand<'a> {
    Flag(&'a CStr),
    Value(&'a CStr, &'a CStr),
    Create,
}

/// fsconfig(2).
pub(crate) fn fsconfig(context: BorrowedFd<'_>, what: FsConfigCommand<'_>) -> io::Result<()> {
    let null = std::ptr::null();
    let (command, key, value): (u32, *const nix::libc::c_char, *const nix::libc::c_char) =
        match what {
            FsConfigCommand::Flag(key) => (0, key.as_ptr(), null),
            FsConfigCommand::Value(key, value) => (1, key.as_ptr(), value.as_ptr()),
            FsConfigCommand::Create => (6, null, null),
        };
    // SAFETY: C strings that outlive the call, or null where the command takes none.
    checked(unsafe {
        nix::libc::syscall(nix::libc::SYS_fsconfig, context.as_raw_fd(), command, key, value, 0)
    })
    .map(drop)
}

/// fsmount(2): a mount with these MOUNT_ATTR_ flags, not attached to any path.
pub(crate) fn fsmount(context: BorrowedFd<'_>, flags: u64) -> io::Result<OwnedFd> {
    const CLOEXEC: u32 = 1;
    // SAFETY: a descriptor and two numbers.
    owned_fd(unsafe {
        nix::libc::syscall(nix::libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, flags)
    })
}

/// open_tree(2): a copy of the mount from `place` downwards, not attached to any path.
pub(crate) fn clone_mount(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const CLONE: i32 = 1;
    let flags = CLONE | nix::libc::O_CLOEXEC | nix::libc::AT_EMPTY_PATH;
    // SAFETY: a descriptor, an empty C string and a number.
    owned_fd(unsafe {
        nix::libc::syscall(nix::libc::SYS_open_tree, place.as_raw_fd(), c"".as_ptr(), flags)
    })
}

/// move_mount(2): attaches a detached mount at `target`.
pub(crate) fn move_mount(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    const FROM_EMPTY_PATH: u32 = 0x04;
    const TO_EMPTY_PATH: u32 = 0x40;
    // SAFETY: two descriptors, two empty C strings and a number.
    checked(unsafe {
        nix::libc::syscall(
            nix::libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            target.as_raw_fd(),
            c"".as_ptr(),
            FROM_EMPTY_PATH | TO_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// The version of the kernel's Landlock; an error if it has none, or may not use it.
pub(crate) fn landlock_version() -> io::Result<i64> {
    const VERSION: u32 = 1;
    // SAFETY: the query for the version reads no memory.
    checked(unsafe {
        nix::libc::syscall(
            nix::libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u64>(),
            0_usize,
            VERSION,
        )
    })
}

/// Landlock (landlock(7), since 5.13): this thread and its children may change or create no file,
/// except `writable`. Where the kernel has it, they may not use TCP (6.7), nor reach abstract
/// sockets or send signals to processes outside (6.12). Needs no_new_privs.
pub(crate) fn restrict_by_landlock(writable: Option<BorrowedFd<'_>>) -> io::Result<()> {
    const PATH_BENEATH: u32 = 1;
    const WRITE_FILE: u64 = 1 << 1;
    // REMOVE_DIR to MAKE_SYM; REFER of version 2, TRUNCATE of version 3.
    const REMOVE_AND_MAKE: u64 = 0x1ff0;
    const REFER: u64 = 1 << 13;
    const TRUNCATE: u64 = 1 << 14;
    const BIND_AND_CONNECT_TCP: u64 = 3;
    const ABSTRACT_SOCKETS_AND_SIGNALS: u64 = 3;
    /// struct landlock_path_beneath_attr.
    #[repr(C, packed)]
    struct PathBeneathAttr {
        allowed: u64,
        parent: i32,
    }

    let version = landlock_version()?;
    let since = |first, rights| if version >= first { rights } else { 0 };
    let handled = WRITE_FILE | REMOVE_AND_MAKE | since(2, REFER) | since(3, TRUNCATE);
    // struct landlock_ruleset_attr: files, network, scopes. An older kernel has a shorter struct,
    // and accepts zeros beyond it.
    let attr: [u64; 3] =
        [handled, since(4, BIND_AND_CONNECT_TCP), since(6, ABSTRACT_SOCKETS_AND_SIGNALS)];
    // SAFETY: the array has the struct's layout and the passed size, and is only read, during the
    // call.
    let rules = owned_fd(unsafe {
        nix::libc::syscall(
            nix::libc::SYS_landlock_create_ruleset,
            &raw const attr,
            size_of_val(&attr),
            0_u32,
        )
    })?;

    if let Some(writable) = writable {
        let beneath = PathBeneathAttr {
            allowed: handled & (WRITE_FILE | TRUNCATE),
            parent: writable.as_raw_fd(),
        };
        // SAFETY: the struct has the kernel's layout (packed), and is only read, during the call.
        checked(unsafe {
            nix::libc::syscall(
                nix::libc::SYS_landlock_add_rule,
                rules.as_raw_fd(),
                PATH_BENEATH,
                &raw const beneath,
                0_u32,
            )
        })?;
    }
    // SAFETY: a descriptor and a number.
    checked(unsafe {
        nix::libc::syscall(nix::libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32)
    })
    .map(drop)
}

/// A descriptor of this process, whatever gets its pid later (pidfd_open(2), since 5.3).
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: two numbers; the result is a new descriptor.
    owned_fd(unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, pid, 0_u32) })
}

/// SIGKILL for the process of a pidfd (pidfd_send_signal(2), since 5.1).
pub(crate) fn pidfd_kill(process: BorrowedFd<'_>) -> io::Result<()> {
    let (fd, signal) = (process.as_raw_fd(), nix::libc::SIGKILL);
    let no_details = std::ptr::null::<nix::libc::siginfo_t>();
    // SAFETY: the descriptor is open; without details, the kernel reads no memory.
    checked(unsafe {
        nix::libc::syscall(nix::libc::SYS_pidfd_send_signal, fd, signal, no_details, 0_u32)
    })
    .map(drop)
}

/// A seccomp filter for this thread and its children, with a listener for its notifications
/// (seccomp(2), since 5.0). Needs no_new_privs.
pub(crate) fn filter_with_listener(filter: &[sock_filter]) -> io::Result<OwnedFd> {
    let program = filter_program(filter)?;
    // SAFETY: the struct points to `filter` and has its length; both are only read, during the
    // call. The result is a new descriptor.
    owned_fd(unsafe {
        nix::libc::syscall(
            nix::libc::SYS_seccomp,
            nix::libc::SECCOMP_SET_MODE_FILTER,
            nix::libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    })
}

/// A seccomp filter by prctl(2), which other filters permit more often than seccomp(2).
pub(crate) fn filter_without_listener(filter: &[sock_filter]) -> io::Result<()> {
    let program = filter_program(filter)?;
    // SAFETY: as for `filter_with_listener`.
    let result = unsafe {
        nix::libc::prctl(
            nix::libc::PR_SET_SECCOMP,
            nix::libc::c_ulong::from(nix::libc::SECCOMP_MODE_FILTER),
            &raw const program,
        )
    };
    checked(result.into()).map(drop)
}

/// Points to `filter`, which the kernel only reads.
fn filter_program(filter: &[sock_filter]) -> io::Result<nix::libc::sock_fprog> {
    Ok(nix::libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_ptr().cast_mut(),
    })
}

/// Lets a call fail with ENOSYS for which `listener` is readable. Out: its number, or None if its
/// caller was killed.
pub(crate) fn refuse_call(listener: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let is_gone = |errno: &nix::errno::Errno| *errno == nix::errno::Errno::ENOENT;
    // SAFETY: a struct of integers; the kernel requires zeros.
    let mut call: nix::libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one struct of its own layout (libc's; the size is part of the
    // request number), which is borrowed mutably for the call.
    match unsafe { raw::seccomp_receive(listener.as_raw_fd(), &raw mut call) } {
        Err(errno) if is_gone(&errno) => return Ok(None),
        result => result?,
    };
    let mut answer =
        nix::libc::seccomp_notif_resp { id: call.id, val: 0, error: -nix::libc::ENOSYS, flags: 0 };
    // SAFETY: as above.
    match unsafe { raw::seccomp_send(listener.as_raw_fd(), &raw mut answer) } {
        Err(errno) if is_gone(&errno) => Ok(None),
        result => result.map(|_| Some(call.data.nr)).map_err(io::Error::from),
    }
}

/// One byte from a stream socket, with the descriptor that came with it. None: the end.
pub(crate) fn receive_byte(socket: BorrowedFd<'_>) -> io::Result<Option<(u8, Option<OwnedFd>)>> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut byte = [0];
    let mut control = nix::cmsg_space!(std::os::fd::RawFd);
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT,
    )?;
    let is_end = message.bytes == 0;
    let fd = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
        _ => None,
    });
    let fd = fd.map(|fd| owned_fd(fd.into())).transpose()?;
    Ok((!is_end).then_some((byte[0], fd)))
}

/// Sends one byte over a stream socket, perhaps with a descriptor.
pub(crate) fn send_byte(
    socket: BorrowedFd<'_>,
    byte: u8,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let fds: Vec<std::os::fd::RawFd> = fd.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[io::IoSlice::new(&[byte])],
        if fds.is_empty() { &[] } else { &control },
        MsgFlags::empty(),
        None,
    )?;
    Ok(())
}

/// Sends a command that transfers no data. Out: the controller's status; 0 is success.
pub(crate) fn nvme_admin(controller: BorrowedFd<'_>, command: &mut NvmeAdmin) -> io::Result<u16> {
    // SAFETY: the struct has the kernel's layout (C, no padding: 72 bytes) and is borrowed mutably
    // for the call. Its address and lengths are private and zero, so the kernel accesses no other
    // memory.
    let status = unsafe { raw::nvme_admin(controller.as_raw_fd(), command) }?;
    Ok(u16::try_from(status).unwrap_or(u16::MAX))
}

/// FIFREEZE of the filesystem of `file`. Waits in the kernel until writers are blocked and all data
/// is written; no signal interrupts that.
pub(crate) fn fs_freeze(file: BorrowedFd<'_>) -> io::Result<()> {
    let mut unused = 0;
    // SAFETY: the kernel does not access the argument; still, it points to an int that outlives the
    // call.
    Ok(unsafe { raw::fs_freeze(file.as_raw_fd(), &raw mut unused) }.map(drop)?)
}

/// FITHAW, whichever process froze the filesystem. EINVAL if it is not frozen.
pub(crate) fn fs_thaw(file: BorrowedFd<'_>) -> io::Result<()> {
    let mut unused = 0;
    // SAFETY: as for `fs_freeze`.
    Ok(unsafe { raw::fs_thaw(file.as_raw_fd(), &raw mut unused) }.map(drop)?)
}

/// The mount's id that no other mount of this boot has (statx(2), STATX_MNT_ID_UNIQUE); None before
/// Linux 6.8. AT_STATX_DONT_SYNC: no server is asked.
pub(crate) fn unique_mount_id(place: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
    // struct statx (linux/stat.h): 256 bytes, stx_mask at 0, stx_mnt_id at 144.
    let mut found = [0_u64; 32];
    // SAFETY: a descriptor, an empty C string, two numbers and a buffer of the size and alignment of
    // struct statx, of which every byte is a valid value.
    checked(unsafe {
        nix::libc::syscall(
            nix::libc::SYS_statx,
            place.as_raw_fd(),
            c"".as_ptr(),
            nix::libc::AT_EMPTY_PATH | nix::libc::AT_STATX_DONT_SYNC,
            STATX_MNT_ID_UNIQUE,
            found.as_mut_ptr(),
        )
    })?;
    let [a, b, c, d, ..] = found[0].to_ne_bytes();
    let is_answered = u32::from_ne_bytes([a, b, c, d]) & STATX_MNT_ID_UNIQUE != 0;
    Ok(is_answered.then_some(found[18]))
}

/// The f_fsid of statfs(2) as bytes, the form in fanotify events.
pub(crate) fn fsid_bytes(fsid: nix::libc::fsid_t) -> [u8; 8] {
    // SAFETY: fsid_t is two C ints (linux/posix_types.h) in a private field of libc: eight bytes
    // without padding, all values valid.
    unsafe { std::mem::transmute(fsid) }
}

/// mallopt(3): the number of heaps, and from which size on an allocation is a mapping of its own.
#[cfg(target_env = "gnu")]
pub(crate) fn configure_malloc(arenas: i32, mapped_from: i32) {
    // SAFETY: mallopt takes two integers and is called before any other thread runs.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, arenas);
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, mapped_from);
    }
}

/// Bytes that the program holds, in malloc's heaps and in mappings of their own. mallinfo(3) counts
/// up to 4 GiB each; mallinfo2 needs glibc 2.33.
#[cfg(target_env = "gnu")]
pub(crate) fn allocated_bytes() -> u64 {
    // SAFETY: mallinfo has no arguments and takes malloc's own locks.
    let info = unsafe { nix::libc::mallinfo() };
    u64::from(info.uordblks.cast_unsigned()) + u64::from(info.hblkhd.cast_unsigned())
}

/// Gives whole free pages of the heaps back, unless they are locked (malloc_trim(3)).
#[cfg(target_env = "gnu")]
pub(crate) fn trim_heaps() {
    // SAFETY: malloc_trim takes an integer and malloc's own locks.
    unsafe { nix::libc::malloc_trim(0) };
}

/// Unmaps the code and constants of the program and its libraries; what is used again is mapped
/// again, from the page cache. Most of them were mapped for the start only: arguments, relocations,
/// and what is beside them, since the kernel maps 64 KiB at once. When memory is short, the kernel
/// takes pages first that no program has mapped.
pub fn unmap_code() -> procfs::ProcResult<()> {
    for mapping in Process::myself()?.maps()? {
        let is = |permission| mapping.perms.contains(permission);
        // The first mapping of a file has its headers and constants. Relocated data are read-only
        // too, but differ from the file.
        let is_as_in_the_file = matches!(mapping.pathname, MMapPath::Path(_))
            && !is(MMPermissions::WRITE)
            && (is(MMPermissions::EXECUTE) || mapping.offset == 0);
        if !is_as_in_the_file {
            continue;
        }
        let (from, to) = mapping.address;
        let address = from as *mut nix::libc::c_void;
        // SAFETY: these pages were never written, so that a page that is mapped again has the same
        // contents. The kernel does the same by itself when memory is short.
        let done =
            unsafe { nix::libc::madvise(address, (to - from) as usize, nix::libc::MADV_DONTNEED) };
        checked(done.into())?;
    }
    Ok(())
}

/// Registers `fd` with tokio for reading.
pub(crate) fn async_fd(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an OwnedFd is open and refers to the same descriptor while it exists, which is
    // as long as the AsyncFd shares it.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}

/// fcntl(2), F_SETLEASE: until the lease is dropped, another open(2) or execve(2) of the file waits,
/// at most for /proc/sys/fs/lease-break-time.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Lease(std::fs::File);

#[cfg(test)]
impl Lease {
    pub(crate) fn take(file: std::fs::File) -> io::Result<Lease> {
        use nix::libc::{F_SETLEASE, F_WRLCK, SIGURG};
        /// Of asm-generic/fcntl.h.
        const F_SETSIG: nix::libc::c_int = 10;
        let lease = Lease(file);
        // SIGURG, which is ignored, instead of SIGIO, which would end the process.
        lease.fcntl(F_SETSIG, SIGURG)?;
        lease.fcntl(F_SETLEASE, F_WRLCK)?;
        Ok(lease)
    }

    fn fcntl(&self, command: nix::libc::c_int, argument: nix::libc::c_int) -> io::Result<()> {
        // SAFETY: the commands of `take` and `drop` take an integer and touch no memory; the file
        // is open for the call.
        let result = unsafe { nix::libc::fcntl(self.0.as_raw_fd(), command, argument) };
        nix::errno::Errno::result(result).map(drop).map_err(io::Error::from)
    }
}

#[cfg(test)]
impl Drop for Lease {
    /// Closing the file would not do: the child that waits in execve(2) has a copy of the
    /// descriptor, and the lease is that of both.
    fn drop(&mut self) {
        let _ = self.fcntl(nix::libc::F_SETLEASE, nix::libc::F_UNLCK);
    }
}
