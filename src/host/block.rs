//! Block devices: reads their size, checks whether they are in use, and zeroes their bytes.
//!
//! In: the path of a device node. Out: sizes in bytes, errors. Does not interpret the content of a
//! device.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;
use nix::sys::stat::{major, minor};

use crate::sys;
use diskvitals_finding::dev::DevNo;

/// The kernel zeroes this much in one call, which cannot be interrupted.
const ZERO_CHUNK: u64 = 64 << 20;

const DIRECT_BYTES: usize = 1 << 20;
const DIRECT_ALIGNMENT: usize = 4096;
static ZEROS: [u8; 4096] = [0; 4096];

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    Read,
    /// O_EXCL: EBUSY while it is mounted, a member of an array, or opened exclusively by another
    /// process (blkdev_open()).
    ReadExclusive,
    WriteExclusive,
    /// As `ReadExclusive`, past the page cache (O_DIRECT): only for `find_data`.
    ReadDirect,
}

/// An open block device.
#[derive(Debug)]
pub struct DeviceFile {
    file: File,
    pub dev: DevNo,
    /// In bytes.
    pub size: u64,
}

impl DeviceFile {
    /// InvalidInput where the path is not a block device.
    pub fn open(path: &Path, mode: OpenMode) -> io::Result<DeviceFile> {
        // Checked first: opening a pipe or a character device may have side effects.
        if !std::fs::metadata(path)?.file_type().is_block_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a block device"));
        }
        let flags = match mode {
            OpenMode::Read => 0,
            OpenMode::ReadExclusive | OpenMode::WriteExclusive => libc::O_EXCL,
            OpenMode::ReadDirect => libc::O_EXCL | libc::O_DIRECT,
        };
        let file = File::options()
            .read(true)
            .write(mode == OpenMode::WriteExclusive)
            .custom_flags(flags | libc::O_CLOEXEC)
            .open(path)?;
        let data = file.metadata()?;
        if !data.file_type().is_block_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a block device"));
        }
        let size = sys::device_size(file.as_fd())?;
        Ok(DeviceFile { file, dev: dev_no(data.rdev()), size })
    }

    /// Whether these bytes read as zeros. Bytes beyond the end of the device are ignored.
    pub fn is_zero(&self, start: u64, length: u64) -> io::Result<bool> {
        let (mut at, end) = (start.min(self.size), start.saturating_add(length).min(self.size));
        let mut buffer = vec![0; 128 << 10];
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            match self.file.read_at(&mut buffer[..most], at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read if buffer[..read].iter().any(|byte| *byte != 0) => return Ok(false),
                read => at += read as u64,
            }
        }
        Ok(true)
    }

    /// The first byte of these that is not zero. `start` must be a multiple of 4 KiB. Bytes beyond
    /// the end of the device are ignored.
    pub fn find_data(&self, start: u64, length: u64) -> io::Result<Option<u64>> {
        let (mut at, end) = (start.min(self.size), start.saturating_add(length).min(self.size));
        // O_DIRECT needs a buffer that is aligned to the device's blocks, 4 KiB at most.
        let mut space = vec![0; DIRECT_BYTES + DIRECT_ALIGNMENT];
        let first = space.as_ptr().align_offset(DIRECT_ALIGNMENT);
        let buffer =
            space.get_mut(first..first + DIRECT_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        while at < end {
            let most =
                usize::try_from(end - at).map_or(DIRECT_BYTES, |left| left.min(DIRECT_BYTES));
            let read = match self.file.read_at(&mut buffer[..most], at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            // Slices are compared by memcmp(3), at the speed of memory in every build.
            for part in buffer[..read].chunks(ZEROS.len()) {
                if *part != ZEROS[..part.len()]
                    && let Some(found) = part.iter().position(|byte| *byte != 0)
                {
                    return Ok(Some(at + found as u64));
                }
                at += part.len() as u64;
            }
        }
        Ok(None)
    }

    /// Bytes from `start`; fewer at the end of the device.
    pub fn read(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        let read = self.file.read_at(&mut buffer, start)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// Writes zeros, which are on the device when this returns. Bytes beyond its end are ignored.
    pub fn zero(&self, start: u64, length: u64) -> io::Result<()> {
        let (mut at, end) = (start.min(self.size), start.saturating_add(length).min(self.size));
        while at < end {
            let piece = (end - at).min(ZERO_CHUNK);
            sys::zero_out(self.file.as_fd(), at, piece)?;
            at += piece;
        }
        self.file.sync_all()
    }

    /// Flushes to the device all that was written through any descriptor.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub fn discard(&self) -> io::Result<()> {
        sys::discard(self.file.as_fd(), 0, self.size)
    }
}

/// Converts st_dev or st_rdev (stat(2)) into major and minor number.
pub fn dev_no(number: u64) -> DevNo {
    let part = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
    DevNo::new(part(major(number)), part(minor(number)))
}

/// FS_NOCOW_FL (linux/fs.h): blocks are overwritten in place. Works only on an empty file.
pub fn disable_copy_on_write(file: &File) -> io::Result<()> {
    const NO_COPY_ON_WRITE: i32 = 0x0080_0000;
    sys::set_file_flags(file.as_fd(), NO_COPY_ON_WRITE)
}
