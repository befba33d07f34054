//! Freezes and thaws filesystems (FIFREEZE, FITHAW; fsfreeze(8)), and flushes them (syncfs(2)).
//!
//! In: a path in this process' mount namespace, and the filesystem that is expected there. Out:
//! errno. Each of these calls may wait in the kernel for ever, so callers run them in separate
//! processes. Does not decide which filesystem may be frozen, or when.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::block::dev_no;
use crate::btrfs;
use crate::mounting::mount_id;
use crate::sys;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;

/// A file or directory on a mounted filesystem, open for reading. While it is open, the filesystem
/// stays mounted.
#[derive(Debug)]
pub struct OpenMount {
    fd: OwnedFd,
    /// The device numbers of the filesystem: from mountinfo and from stat(2), which differ on
    /// btrfs.
    pub devs: Vec<DevNo>,
}

#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    #[error("opening {path}: {errno}")]
    Open { path: HostPath, errno: Errno },
    #[error("looking at what is mounted at {path}: {error}")]
    ReadMountInfo { path: HostPath, error: io::Error },
}

impl OpenMount {
    /// Does not change atime (O_NOATIME, where permitted). Also opens a mount of one file.
    pub fn open(path: &HostPath) -> Result<OpenMount, FreezeError> {
        let plain = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let directory = plain | OFlag::O_DIRECTORY;
        // EPERM: not the owner, and no CAP_FOWNER. A frozen filesystem keeps its atime anyway.
        let opened =
            open(path.as_path(), directory | OFlag::O_NOATIME, Mode::empty()).or_else(|errno| {
                match errno {
                    Errno::EPERM => open(path.as_path(), directory, Mode::empty()),
                    Errno::ENOTDIR => open(path.as_path(), plain, Mode::empty()),
                    errno => Err(errno),
                }
            });
        let fd = opened.map_err(|errno| FreezeError::Open { path: path.clone(), errno })?;
        let look = |error: io::Error| FreezeError::ReadMountInfo { path: path.clone(), error };
        let stat = nix::sys::stat::fstat(&fd).map_err(|errno| look(errno.into()))?;
        let mut devs = vec![dev_no(stat.st_dev)];
        devs.extend(mounted_dev(&fd).map_err(look)?.filter(|dev| !devs.contains(dev)));
        Ok(OpenMount { fd, devs })
    }

    pub fn has_dev(&self, dev: DevNo) -> bool {
        self.devs.contains(&dev)
    }

    /// What a freeze would cancel: see `btrfs::running_read`.
    pub fn running_read(&self) -> io::Result<Option<String>> {
        btrfs::running_read(self.fd.as_fd())
    }

    pub fn freeze(&self) -> Result<(), Errno> {
        sys::fs_freeze(self.fd.as_fd()).map_err(errno)
    }

    pub fn thaw(&self) -> Result<(), Errno> {
        sys::fs_thaw(self.fd.as_fd()).map_err(errno)
    }

    pub fn sync(&self) -> Result<(), Errno> {
        nix::unistd::syncfs(&self.fd)
    }
}

/// The device number in mountinfo of the mount through which `fd` was opened. It is that of the
/// filesystem, also where stat(2) returns the number of a btrfs subvolume.
fn mounted_dev(fd: &OwnedFd) -> io::Result<Option<DevNo>> {
    let id = mount_id(fd.as_fd())?.to_string();
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let line = mounts
        .split(|byte| *byte == b'\n')
        .find(|line| line.split(|byte| *byte == b' ').next() == Some(id.as_bytes()));
    let dev =
        line.and_then(|line| std::str::from_utf8(line.split(|byte| *byte == b' ').nth(2)?).ok());
    Ok(dev.and_then(|dev| dev.parse().ok()))
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_mount_is_identified_by_its_device_number() {
        let proc = OpenMount::open(&HostPath::from("/proc")).expect("there");
        assert!(proc.devs.iter().all(|dev| dev.is_anonymous()));
        assert!(proc.has_dev(proc.devs[0]));
        assert!(!proc.has_dev(DevNo::new(8, 1)));
        assert!(OpenMount::open(&HostPath::from("/nonexistent")).is_err());
    }

    #[test]
    fn an_unfreezable_filesystem_is_an_error() {
        let proc = OpenMount::open(&HostPath::from("/proc")).expect("there");
        assert!(matches!(proc.freeze(), Err(Errno::EOPNOTSUPP | Errno::EPERM)));
    }
}
