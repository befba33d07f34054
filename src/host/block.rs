//! Block devices by their nodes: their size, whether another user holds them, and zeroing of their
//! bytes.
//!
//! In: a node's path. Out: sizes in bytes, errors. Knows nothing of a device's content.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;
use nix::sys::stat::{major, minor};

use crate::host::sys;
use crate::model::dev::DevNo;

/// One call to the kernel zeroes so much: it cannot be interrupted meanwhile.
const ZERO_CHUNK: u64 = 64 << 20;

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    Read,
    /// O_EXCL: EBUSY while it is mounted, a member of an array, or somebody else's in the same way
    /// (blkdev_open()).
    ReadExclusive,
    WriteExclusive,
}

/// An open block device.
#[derive(Debug)]
pub(crate) struct DeviceFile {
    file: File,
    pub dev: DevNo,
    /// Bytes.
    pub size: u64,
}

impl DeviceFile {
    /// InvalidInput where the path leads to something else than a block device.
    pub(crate) fn open(path: &Path, mode: OpenMode) -> io::Result<DeviceFile> {
        // Looked at first: opening a pipe or a character device may do things.
        if !std::fs::metadata(path)?.file_type().is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a block device",
            ));
        }
        let flags = if mode == OpenMode::Read {
            0
        } else {
            libc::O_EXCL
        };
        let file = File::options()
            .read(true)
            .write(mode == OpenMode::WriteExclusive)
            .custom_flags(flags | libc::O_CLOEXEC)
            .open(path)?;
        let data = file.metadata()?;
        if !data.file_type().is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a block device",
            ));
        }
        let size = sys::device_size(file.as_fd())?;
        Ok(DeviceFile {
            file,
            dev: dev_no(data.rdev()),
            size,
        })
    }

    /// Whether these bytes, as far as the device has them, read as zeros.
    pub(crate) fn is_zero(&self, start: u64, length: u64) -> io::Result<bool> {
        let (mut at, end) = (
            start.min(self.size),
            start.saturating_add(length).min(self.size),
        );
        let mut buffer = vec![0; 128 << 10];
        while at < end {
            let most = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            match self.file.read_at(&mut buffer[..most], at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read if buffer[..read].iter().any(|byte| *byte != 0) => return Ok(false),
                read => at += read as u64,
            }
        }
        Ok(true)
    }

    /// Bytes from `start` on; fewer where it ends.
    pub(crate) fn read(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        let read = self.file.read_at(&mut buffer, start)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// Zeros, and on the device when this returns. What lies beyond its end is passed over.
    pub(crate) fn zero(&self, start: u64, length: u64) -> io::Result<()> {
        let (mut at, end) = (
            start.min(self.size),
            start.saturating_add(length).min(self.size),
        );
        while at < end {
            let piece = (end - at).min(ZERO_CHUNK);
            sys::zero_out(self.file.as_fd(), at, piece)?;
            at += piece;
        }
        self.file.sync_all()
    }

    /// What was written through any descriptor is on the device.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub(crate) fn discard(&self) -> io::Result<()> {
        sys::discard(self.file.as_fd(), 0, self.size)
    }
}

/// st_dev or st_rdev (stat(2)), in two parts.
pub(crate) fn dev_no(number: u64) -> DevNo {
    let part = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
    DevNo::new(part(major(number)), part(minor(number)))
}

/// FS_NOCOW_FL (linux/fs.h): an empty file's blocks are written where they are.
pub(crate) fn disable_copy_on_write(file: &File) -> io::Result<()> {
    const NO_COPY_ON_WRITE: i32 = 0x0080_0000;
    sys::set_file_flags(file.as_fd(), NO_COPY_ON_WRITE)
}
