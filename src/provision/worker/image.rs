//! Image files of the pool and their loop devices.
//!
//! An image is allocated, not sparse, so that later writes cannot run out of space. It gets its
//! name after it is complete (O_TMPFILE, linkat(2)), so that a crash or a full disk leaves no file.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FallocateFlags, fallocate};
use nix::libc;
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, fstatfs};
use nix::unistd::{Whence, linkat, lseek};

use crate::step::{Device, StepErrorKind, Wipe};
use crate::worker::error::{StepWorkerError, io_error};
use crate::worker::{device, records};
use diskvitals_finding::path::HostPath;
use diskvitals_host::images::ImageError;
use diskvitals_host::root::HostRoot;
use diskvitals_host::{block, images};

pub(super) fn image_error(error: ImageError) -> StepWorkerError {
    let kind = match &error {
        ImageError::Busy(_) => StepErrorKind::InUse,
        ImageError::Open(_, source) if source.kind() == io::ErrorKind::NotFound => {
            StepErrorKind::NotFound
        }
        ImageError::Open(_, source) if source.raw_os_error() == Some(libc::ELOOP) => {
            StepErrorKind::InvalidPath
        }
        _ => StepErrorKind::Other,
    };
    StepWorkerError::with_source(kind, "at the image's loop device", error)
}

fn file_length(size: u64) -> Result<i64, StepWorkerError> {
    i64::try_from(size).map_err(|_| {
        StepErrorKind::NoSpace.error(format!("{size} bytes are more than a file can have"))
    })
}

pub fn create(image: &HostPath, size: u64) -> Result<(), StepWorkerError> {
    let length = file_length(size)?;
    match std::fs::symlink_metadata(image.as_path()) {
        Ok(data) if data.is_file() && data.len() >= size => return Ok(()),
        Ok(data) => {
            let found = if data.is_file() {
                format!("with {} bytes instead of {size}", data.len())
            } else {
                "but is not a file".to_owned()
            };
            return Err(StepErrorKind::AlreadyExists.error(format!("{image} exists {found}")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("looking for", image)(error)),
    }
    let folder = parent_directory(image)?;
    records::create_directory(&folder)?;
    let file = File::options()
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
        .open(folder.as_path());
    let file = file.map_err(io_error("making a file for", image))?;
    disable_copy_on_write(&file, image)?;
    fallocate(&file, FallocateFlags::empty(), 0, length).map_err(io_error("allocating", image))?;
    file.sync_all().map_err(io_error("synchronising", image))?;
    let name = CString::new(image.as_bytes())
        .map_err(|_| StepErrorKind::InvalidPath.error(format!("{image} has a NUL in it")))?;
    match linkat(&file, c"", AT_FDCWD, name.as_c_str(), AtFlags::AT_EMPTY_PATH) {
        Ok(()) => records::sync_directory(&folder),
        Err(errno) => Err(io_error("naming", image)(errno)),
    }
}

fn parent_directory(image: &HostPath) -> Result<HostPath, StepWorkerError> {
    let parent = image.as_path().parent().map(HostPath::from);
    parent
        .ok_or_else(|| StepErrorKind::InvalidPath.error(format!("{image} is no file in a folder")))
}

/// Sets FS_NOCOW_FL. Without it btrfs writes a file's blocks to new extents each time (btrfs(5))
/// and does not use the allocated ones. The flag must be set while the file is empty.
fn disable_copy_on_write(file: &File, image: &HostPath) -> Result<(), StepWorkerError> {
    let filesystem =
        fstatfs(file.as_fd()).map_err(io_error("reading the filesystem type of", image))?;
    if filesystem.filesystem_type() != BTRFS_SUPER_MAGIC {
        return Ok(());
    }
    block::disable_copy_on_write(file).map_err(io_error("keeping in place the blocks of", image))
}

/// Grows the file first, then its device: a device is never larger than the allocated space.
pub fn grow(image: &HostPath, size: u64) -> Result<(), StepWorkerError> {
    let length = file_length(size)?;
    let file = open(image)?;
    let before = file_size(&file, image)?;
    if before < size {
        if let Err(errno) = fallocate(&file, FallocateFlags::empty(), 0, length) {
            // Frees the new allocation. If this fails too, a later growth uses it.
            file.set_len(before).ok();
            return Err(io_error("allocating", image)(errno));
        }
        file.sync_all().map_err(io_error("synchronising", image))?;
    }
    match images::find(image.as_path()).map_err(image_error)? {
        Some(attached) => images::grow(&attached).map_err(image_error),
        None => Ok(()),
    }
}

fn file_size(file: &File, image: &HostPath) -> Result<u64, StepWorkerError> {
    let data = file.metadata().map_err(io_error("looking at", image))?;
    Ok(data.len())
}

fn open(image: &HostPath) -> Result<File, StepWorkerError> {
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(image.as_path());
    let file = opened.map_err(io_error("opening", image))?;
    let data = file.metadata().map_err(io_error("looking at", image))?;
    if data.is_file() {
        return Ok(file);
    }
    Err(StepErrorKind::InvalidPath.error(format!("{image} is no file")))
}

/// A filesystem never shows the old bytes of a removed file, but they remain readable on the pool's
/// disk. `Zero` overwrites all written data in place and skips unwritten extents (lseek(2)
/// SEEK_DATA). This takes as long as the writing took. FALLOC_FL_ZERO_RANGE is not sufficient: it
/// only marks extents as unwritten.
pub fn remove(root: &HostRoot, image: &HostPath, wipe: Wipe) -> Result<(), StepWorkerError> {
    let file = match open(image) {
        Err(failure) if failure.kind == StepErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if let Some(attached) = images::find(image.as_path()).map_err(image_error)? {
        let node = HostPath::from(attached.node_path().as_path());
        return Err(device::in_use(root, &node));
    }
    let size = file_size(&file, image)?;
    match wipe {
        Wipe::None => {}
        Wipe::Zero => overwrite_data(&file, size).map_err(io_error("overwriting", image))?,
        Wipe::Discard if size == 0 => {}
        Wipe::Discard => {
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            fallocate(&file, punch, 0, file_length(size)?)
                .map_err(io_error("freeing the blocks of", image))?;
        }
    }
    std::fs::remove_file(image.as_path()).map_err(io_error("removing", image))?;
    records::sync_directory(&parent_directory(image)?)
}

fn overwrite_data(file: &File, size: u64) -> io::Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut at = 0;
    while let Some(data) = seek(file, at, Whence::SeekData)? {
        let end = seek(file, data, Whence::SeekHole)?.unwrap_or(size);
        at = data;
        while at < end {
            let length = (end - at).min(ZEROS.len() as u64);
            file.write_all_at(&ZEROS[..length as usize], at)?;
            at += length;
        }
    }
    file.sync_all()
}

/// None after the last data.
fn seek(file: &File, from: u64, whence: Whence) -> io::Result<Option<u64>> {
    let from = i64::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
    match lseek(file, from, whence) {
        Ok(at) => Ok(u64::try_from(at).ok()),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

pub fn attach(image: &HostPath, read_only: bool) -> Result<Device, StepWorkerError> {
    // The path must name a regular file, not a link or a pipe.
    drop(open(image)?);
    let attached = images::attach(image.as_path(), read_only).map_err(image_error)?;
    device::resolve(&HostPath::from(attached.node_path().as_path()))
}

pub fn detach(root: &HostRoot, image: &HostPath) -> Result<(), StepWorkerError> {
    let Some(attached) = images::find(image.as_path()).map_err(image_error)? else {
        return Ok(());
    };
    let node = HostPath::from(attached.node_path().as_path());
    match images::detach(attached) {
        Err(ImageError::Busy(_)) => Err(device::in_use(root, &node)),
        other => other.map_err(image_error),
    }
}

pub fn find(image: &HostPath) -> Result<Option<Device>, StepWorkerError> {
    let Some(attached) = images::find(image.as_path()).map_err(image_error)? else {
        return Ok(None);
    };
    device::resolve(&HostPath::from(attached.node_path().as_path())).map(Some)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn image() -> (tempfile::TempDir, HostPath) {
        let dir = tempfile::tempdir().unwrap();
        let image = HostPath::from(dir.path().join("v.img").as_path());
        (dir, image)
    }

    #[test]
    fn an_image_is_allocated_and_made_once() {
        let (dir, image) = image();
        create(&image, 1 << 20).unwrap();
        create(&image, 1 << 20).unwrap();
        let data = std::fs::metadata(image.as_path()).unwrap();
        assert!(data.len() == 1 << 20 && data.blocks() >= 2048, "{data:?}");
        assert_eq!(create(&image, 2 << 20).unwrap_err().kind, StepErrorKind::AlreadyExists);
        grow(&image, 2 << 20).unwrap();
        grow(&image, 1 << 20).unwrap();
        assert_eq!(std::fs::metadata(image.as_path()).unwrap().len(), 2 << 20);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_image_that_has_no_room_leaves_nothing() {
        let (dir, image) = image();
        assert_eq!(create(&image, 1 << 50).unwrap_err().kind, StepErrorKind::NoSpace);
        assert_eq!(create(&image, u64::MAX).unwrap_err().kind, StepErrorKind::NoSpace);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        create(&image, 1 << 20).unwrap();
        assert_eq!(grow(&image, 1 << 50).unwrap_err().kind, StepErrorKind::NoSpace);
        assert_eq!(std::fs::metadata(image.as_path()).unwrap().len(), 1 << 20);
    }

    #[test]
    fn what_was_written_is_overwritten_before_it_is_let_go() {
        let (_dir, image) = image();
        create(&image, 8 << 20).unwrap();
        let file = open(&image).unwrap();
        file.write_all_at(b"secret", 5 << 20).unwrap();
        file.sync_all().unwrap();
        overwrite_data(&file, 8 << 20).unwrap();
        let mut read = [1; 6];
        file.read_at(&mut read, 5 << 20).unwrap();
        assert_eq!(read, [0; 6]);
        for wipe in [Wipe::Zero, Wipe::Zero, Wipe::Discard, Wipe::None] {
            create(&image, 1 << 20).unwrap();
            remove(&HostRoot::new("/"), &image, wipe).unwrap();
            remove(&HostRoot::new("/"), &image, wipe).unwrap();
            assert!(!image.as_path().exists());
        }
    }

    #[test]
    fn a_link_in_an_images_place_is_neither_grown_nor_removed() {
        let (dir, image) = image();
        let other = dir.path().join("other");
        std::fs::write(&other, "x").unwrap();
        std::os::unix::fs::symlink(&other, image.as_path()).unwrap();
        assert_eq!(grow(&image, 4096).unwrap_err().kind, StepErrorKind::InvalidPath);
        assert_eq!(
            remove(&HostRoot::new("/"), &image, Wipe::None).unwrap_err().kind,
            StepErrorKind::InvalidPath
        );
        assert_eq!(create(&image, 1).unwrap_err().kind, StepErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&other).unwrap(), b"x");
    }
}
