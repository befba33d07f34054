//! Filesystem error events of fanotify(7): creates a group, marks whole filesystems, reads the
//! bytes of events.
//!
//! In: paths of mounts. Out: bytes in the format of the kernel, errno. Events are parsed elsewhere.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::fstatfs;

use crate::block::dev_no;
use crate::sys;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;

/// The id of a filesystem in fanotify events: f_fsid of statfs(2).
pub type FsId = [u8; 8];

/// A fanotify group: a queue of events.
pub struct FanotifyGroup(Fanotify);

/// The directory that is mounted at a path now. While this exists, the mount is busy.
pub struct MarkTarget {
    directory: OwnedFd,
    pub dev: DevNo,
    pub fsid: FsId,
}

impl MarkTarget {
    /// Opens nothing on the filesystem (O_PATH). ENOTDIR for a mount of one file.
    pub fn open(path: &HostPath) -> Result<MarkTarget, Errno> {
        let directory = open(
            path.as_path(),
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        let dev = dev_no(fstat(&directory)?.st_dev);
        let fsid = sys::fsid_bytes(fstatfs(&directory)?.filesystem_id());
        Ok(MarkTarget { directory, dev, fsid })
    }
}

impl FanotifyGroup {
    /// Events contain a filesystem id and a file handle (FAN_REPORT_FID, since 5.1) instead of an
    /// open file; error events exist in no other form.
    pub fn new() -> Result<FanotifyGroup, Errno> {
        // nix has no constant for FAN_REPORT_FID.
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        Fanotify::init(
            flags | InitFlags::from_bits_retain(libc::FAN_REPORT_FID),
            EventFFlags::O_RDONLY,
        )
        .map(FanotifyGroup)
    }

    /// Subscribes to errors of the filesystem until it is unmounted. Repeating it has no effect.
    /// EINVAL before 5.16.
    pub fn mark(&self, mounted: &MarkTarget) -> Result<(), Errno> {
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        self.0.mark(flags, MaskFlags::FAN_FS_ERROR, &mounted.directory, Some("."))
    }

    /// Waits for events and reads whole events.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match nix::unistd::read(self.0.as_fd(), buffer) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                read => return read,
            }
            match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}
