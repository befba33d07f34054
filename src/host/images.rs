//! Image files on loop devices that exist as long as their volumes (`loops` has the loop devices of
//! filesystem checks).
//!
//! In: the path of an image, in the mount namespace of this process. Out: the loop device. No state
//! is kept: the kernel's table is authoritative. A loop device is attached anew only if none has the
//! image's inode. To find and detach one, the path of its file is enough, which the kernel has in
//! memory: the disk below the image may be dead or hang.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollTimeout, poll};

use crate::sys;

/// LO_FLAGS_ of linux/loop.h.
const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;
/// Another process may attach the free device first: this many times in a row is not chance.
const MAX_ATTEMPTS: usize = 64;
/// After a detach, udev may still have the device open, and the kernel does not report when it
/// closes. The state is polled this often, for two seconds in total.
const DETACH_POLLS: usize = 100;
const DETACH_POLL_MS: u8 = 20;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("opening {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("listing /sys/block")]
    List(#[source] io::Error),
    #[error("asking for a free loop device")]
    GetFree(#[source] io::Error),
    #[error("attaching {} to {name}", image.display())]
    Attach {
        image: PathBuf,
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("loop devices were taken by others {MAX_ATTEMPTS} times")]
    NoFreeLoop,
    #[error("asking {0} for its file")]
    Status(String, #[source] io::Error),
    #[error("detaching {0}")]
    Detach(String, #[source] io::Error),
    #[error("{0} is in use")]
    Busy(String),
    #[error("having {0} take the size of its file")]
    SetCapacity(String, #[source] io::Error),
}

/// A loop device with its file.
#[derive(Debug)]
pub struct AttachedImage {
    /// `loop3`
    pub name: String,
    node: File,
}

impl AttachedImage {
    pub fn node_path(&self) -> PathBuf {
        node_path(&self.name)
    }
}

fn node_path(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

/// An attached loop device, as sysfs lists it.
struct ListedLoop {
    name: String,
    /// The path of its file now, in the mount namespace of this process.
    file: Vec<u8>,
}

/// The loop devices whose file has the image's name, in any folder. Reads sysfs only: the image
/// itself may hang.
fn list_named(image: &Path) -> Result<Vec<ListedLoop>, ImageError> {
    let mut named = Vec::new();
    for entry in std::fs::read_dir("/sys/block").map_err(ImageError::List)? {
        let entry = entry.map_err(ImageError::List)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(file) = backing_file(&name).filter(|file| has_name(file, image)) {
            named.push(ListedLoop { name, file });
        }
    }
    Ok(named)
}

/// None: it is no attached loop device.
fn backing_file(name: &str) -> Option<Vec<u8>> {
    let path = Path::new("/sys/block").join(name).join("loop/backing_file");
    let mut file = std::fs::read(path).ok()?;
    file.pop_if(|byte| *byte == b'\n');
    Some(file)
}

/// The names of all loop devices whose file has the image's name, in any folder. Empty: the image is
/// certainly not attached. The image's disk is not accessed.
pub fn names_of_loops(image: &Path) -> Result<Vec<String>, ImageError> {
    let named = list_named(image)?.into_iter();
    Ok(named.map(|listed| listed.name).collect())
}

/// None: the image is on no loop device, or does not exist. Its disk is accessed only if a loop
/// device has a file of the same name under another path.
pub fn find(image: &Path) -> Result<Option<AttachedImage>, ImageError> {
    let named = list_named(image)?;
    for listed in named.iter().filter(|listed| has_path(&listed.file, image)) {
        // While the node is open, the device keeps its file.
        if let Some(node) = open_node(&listed.name)?
            && backing_file(&listed.name).is_some_and(|file| has_path(&file, image))
        {
            let name = listed.name.clone();
            return Ok(Some(AttachedImage { name, node }));
        }
    }
    find_by_inode(image, named)
}

/// The loop device among `named` with the image's inode. LOOP_GET_STATUS64 queries the filesystem of
/// the file, which may hang: only devices whose file has the image's name are queried.
fn find_by_inode(
    image: &Path,
    named: Vec<ListedLoop>,
) -> Result<Option<AttachedImage>, ImageError> {
    if named.is_empty() {
        return Ok(None);
    }
    let data = match std::fs::symlink_metadata(image) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ImageError::Open(image.to_owned(), error)),
    };
    for ListedLoop { name, .. } in named {
        let Some(node) = open_node(&name)? else {
            continue;
        };
        let status = match sys::loop_status(node.as_fd()) {
            Ok(status) => status,
            Err(error) if is_not_attached(&error) => continue,
            Err(error) => return Err(ImageError::Status(name, error)),
        };
        // lo_device has the encoding of st_dev in stat(2) (loop_get_status(),
        // drivers/block/loop.c).
        if (status.device, status.inode) == (data.dev(), data.ino()) {
            return Ok(Some(AttachedImage { name, node }));
        }
    }
    Ok(None)
}

/// None: it was detached or removed since.
fn open_node(name: &str) -> Result<Option<File>, ImageError> {
    match File::open(node_path(name)) {
        Ok(node) => Ok(Some(node)),
        Err(error) if is_not_attached(&error) => Ok(None),
        Err(error) => Err(ImageError::Open(node_path(name), error)),
    }
}

/// Compares the file name only: in another mount namespace, the directories above differ.
fn has_name(backing_file: &[u8], image: &Path) -> bool {
    let path = backing_file.strip_suffix(b" (deleted)").unwrap_or(backing_file);
    let name = path.rsplit(|byte| *byte == b'/').next();
    name.is_some() && name == image.file_name().map(std::os::unix::ffi::OsStrExt::as_bytes)
}

/// Whether the file is the one that was opened at the image's path. A removed or replaced file has
/// ` (deleted)` after its path.
fn has_path(backing_file: &[u8], image: &Path) -> bool {
    backing_file == std::os::unix::ffi::OsStrExt::as_bytes(image.as_os_str())
}

fn is_not_attached(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::ENXIO | Errno::ENOENT | Errno::ENODEV)
    )
}

/// The loop device that already has the image, or a new one. It stays until it is detached,
/// whichever process exits (no LO_FLAGS_AUTOCLEAR). With direct I/O where the underlying filesystem
/// supports it: then no data is cached twice. Otherwise the kernel caches the file, which is
/// correct too.
pub fn attach(image: &Path, read_only: bool) -> Result<AttachedImage, ImageError> {
    if let Some(attached) = find_by_inode(image, list_named(image)?)? {
        return Ok(attached);
    }
    let opened = |path: &Path, write: bool| {
        let opened = File::options()
            .read(true)
            .write(write)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path);
        opened.map_err(|error| ImageError::Open(path.to_owned(), error))
    };
    let (file, control) =
        (opened(image, !read_only)?, opened(Path::new("/dev/loop-control"), true)?);
    let mut info = sys::LoopInfo {
        flags: DIRECT_IO | if read_only { READ_ONLY } else { 0 },
        ..sys::LoopInfo::EMPTY
    };
    // For people (losetup -l); never used to find the device. The last byte stays zero.
    let shown = std::os::unix::ffi::OsStrExt::as_bytes(image.as_os_str());
    let length = shown.len().min(info.file_name.len() - 1);
    info.file_name[..length].copy_from_slice(&shown[..length]);
    for _ in 0..MAX_ATTEMPTS {
        let number = sys::loop_get_free(control.as_fd()).map_err(ImageError::GetFree)?;
        let name = format!("loop{number}");
        let node = match File::options().read(true).write(!read_only).open(node_path(&name)) {
            Ok(node) => node,
            // Removed since; devtmpfs creates the node before the kernel returns the number.
            Err(error) if is_not_attached(&error) => continue,
            Err(error) => return Err(ImageError::Open(node_path(&name), error)),
        };
        match configure(&node, &file, info) {
            Ok(()) => {
                disable_discard(&name);
                return Ok(AttachedImage { name, node });
            }
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {}
            Err(source) => {
                return Err(ImageError::Attach { image: image.to_owned(), name, source });
            }
        }
    }
    Err(ImageError::NoFreeLoop)
}

/// Retries without direct I/O if the kernel refuses it; before 6.x the kernel falls back by itself.
fn configure(node: &File, file: &File, info: sys::LoopInfo) -> io::Result<()> {
    // Block size 0: 512 bytes, or the block size of direct I/O (loop_configure(),
    // drivers/block/loop.c).
    let configure = |info| sys::loop_configure(node.as_fd(), file.as_fd(), 0, info);
    match configure(info) {
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
            let flags = info.flags & !DIRECT_IO;
            configure(sys::LoopInfo { flags, ..info })
        }
        other => other,
    }
}

/// Disables discard. A discard would return blocks of the file to its filesystem, which could then
/// lack the space for later writes.
fn disable_discard(name: &str) {
    let limit = format!("/sys/block/{name}/queue/discard_max_bytes");
    if let Err(error) = std::fs::write(&limit, "0") {
        // Not fatal: space is lost only when a user trims the volume.
        eprintln!(
            "writing {limit}: {error}: what is trimmed in this volume is given back to the pool's filesystem"
        );
    }
}

/// Sets the size of the device to the present size of its file.
pub fn grow(attached: &AttachedImage) -> Result<(), ImageError> {
    sys::loop_set_capacity(attached.node.as_fd())
        .map_err(|error| ImageError::SetCapacity(attached.name.clone(), error))
}

/// Waits until the device is detached. `Busy`: another process has it open, and it stays attached.
pub fn detach(attached: AttachedImage) -> Result<(), ImageError> {
    let AttachedImage { name, node, .. } = attached;
    let failed = |error| ImageError::Detach(name.clone(), error);
    // Another attachment of the name has another number (Documentation/ABI/testing/sysfs-block,
    // `diskseq`).
    let sequence = || std::fs::read(Path::new("/sys/block").join(&name).join("diskseq")).ok();
    let before = sequence();
    drop(node);
    // Detects a mount or an exclusive opener without changing anything.
    let alone = File::options()
        .read(true)
        .custom_flags(libc::O_EXCL | libc::O_CLOEXEC)
        .open(node_path(&name));
    let node = match alone {
        Ok(node) => node,
        Err(error) if is_not_attached(&error) => return Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
            return Err(ImageError::Busy(name));
        }
        Err(error) => return Err(failed(error)),
    };
    if sequence() != before {
        return Ok(());
    }
    match sys::loop_clear(node.as_fd()) {
        Err(error) if is_not_attached(&error) => return Ok(()),
        cleared => cleared.map_err(failed)?,
    }
    drop(node);
    // While others have it open, LOOP_CLR_FD only sets autoclear: detach at the last close.
    let is_there = || Path::new("/sys/block").join(&name).join("loop").is_dir();
    for _ in 0..DETACH_POLLS {
        if !is_there() {
            return Ok(());
        }
        poll(&mut [], PollTimeout::from(DETACH_POLL_MS)).map_err(|errno| failed(errno.into()))?;
    }
    if sequence() == before {
        clear_autoclear(&name).map_err(failed)?;
    }
    if is_there() { Err(ImageError::Busy(name)) } else { Ok(()) }
}

/// Clears autoclear again: a device that is reported as attached stays attached. If the disk of its
/// file does not answer, it ends with its last user.
fn clear_autoclear(name: &str) -> io::Result<()> {
    let gone = |error: io::Error| match is_not_attached(&error) {
        true => Ok(()),
        false => Err(error),
    };
    let node = match File::open(node_path(name)) {
        Ok(node) => node,
        Err(error) => return gone(error),
    };
    match sys::loop_status(node.as_fd()) {
        Ok(now) => {
            let flags = now.flags & !AUTOCLEAR;
            sys::loop_set_status(node.as_fd(), &sys::LoopInfo { flags, ..now }).or_else(gone)
        }
        Err(error) if error.raw_os_error() == Some(Errno::EIO as i32) => Ok(()),
        Err(error) => gone(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loops_whose_backing_file_has_the_image_name_are_queried() {
        let image = Path::new("/var/lib/diskvitals/pool/v 1.img");
        assert!(has_name(b"/var/lib/diskvitals/pool/v 1.img", image));
        assert!(has_name(b"/pool/v 1.img (deleted)", image));
        assert!(!has_name(b"/mnt/hung/disk.img", image));
        assert!(!has_name(b"", image));
    }

    #[test]
    fn only_the_image_itself_has_its_path() {
        let image = Path::new("/pool/images/v.img");
        assert!(has_path(b"/pool/images/v.img", image));
        for other in ["/backup/images/v.img", "/pool/images/v.img (deleted)", "/images/v.img"] {
            assert!(!has_path(other.as_bytes(), image), "{other}");
        }
    }
}
