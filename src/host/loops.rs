//! Read-only loop devices over block devices, with direct I/O: through them, a checker reads the
//! bytes on a device that has a mounted filesystem, not the page cache (loop(4), linux/loop.h).
//!
//! In: a device, open for reading. Out: a loop device that the kernel removes at its last close
//! (autoclear), even after a crash of the daemon. Our loops are identified by the name of their
//! backing node (`BACKING_NODE_NAME`). Does not depend on filesystems.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::root::HostRoot;
use crate::sys;
use diskvitals_finding::dev::DevNo;
use diskvitals_text::causes::with_causes;

/// Name of the backing node of our loops: `/sys/block/loopN/loop/backing_file` ends with it. Also
/// in systemd/60-diskvitals.rules.
pub const BACKING_NODE_NAME: &str = "diskvitals-check";

const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;
/// Another process may attach the free device first.
const MAX_ATTEMPTS: usize = 32;
/// Number of /dev/loop-control (linux/miscdevice.h).
const CONTROL: DevNo = DevNo { major: 10, minor: 237 };

#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    #[error("making the node {}", .0.display())]
    Node(PathBuf, #[source] Errno),
    #[error("opening {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("asking for its block size")]
    BlockSize(#[source] io::Error),
    #[error("asking for a free loop device")]
    GetFree(#[source] io::Error),
    #[error("attaching {0}")]
    Attach(String, #[source] io::Error),
    #[error("asking how {0} is attached")]
    Status(String, #[source] io::Error),
    #[error("{0} does not read past the page cache (direct I/O was refused), or is not read-only")]
    NotReadOnlyDirectIo(String),
    #[error("loop devices were taken by others {MAX_ATTEMPTS} times")]
    NoFreeLoop,
    #[error("detaching {0}")]
    Detach(String, #[source] io::Error),
}

/// Attached while this or another process has it open.
#[derive(Debug)]
pub struct ReadOnlyLoop {
    /// `loop3`
    pub name: String,
    pub dev: DevNo,
    node: File,
}

/// Whether a loop with this `loop/backing_file` is one of ours.
pub fn is_ours(backing_file: &str) -> bool {
    let path = backing_file.trim_end().trim_end_matches(" (deleted)");
    path.rsplit('/').next() == Some(BACKING_NODE_NAME)
}

/// Creates a node below `dir` and opens it for reading. `flags`: additional flags of open(2).
pub fn open_node(dir: &Path, name: &str, dev: DevNo, flags: i32) -> Result<File, LoopError> {
    let path = make_node(dir, name, SFlag::S_IFBLK, 0o400, dev)?;
    File::options()
        .read(true)
        .custom_flags(flags)
        .open(&path)
        .map_err(|error| LoopError::Open(path, error))
}

/// A read-only, direct-io, autoclear loop over `backing`, with its block size. `dir`: a directory
/// of ours, on a mount that permits device nodes.
pub fn attach(root: &HostRoot, dir: &Path, backing: &File) -> Result<ReadOnlyLoop, LoopError> {
    let block_size = sys::logical_block_size(backing.as_fd()).map_err(LoopError::BlockSize)?;
    let control = control(dir)?;
    for _ in 0..MAX_ATTEMPTS {
        let number = sys::loop_get_free(control.as_fd()).map_err(LoopError::GetFree)?;
        let Some((name, dev, node)) = open_loop(root, dir, number)? else {
            continue;
        };
        let mut info =
            sys::LoopInfo { flags: READ_ONLY | AUTOCLEAR | DIRECT_IO, ..sys::LoopInfo::EMPTY };
        info.file_name[..BACKING_NODE_NAME.len()].copy_from_slice(BACKING_NODE_NAME.as_bytes());
        match sys::loop_configure(node.as_fd(), backing.as_fd(), block_size, info) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => continue,
            Err(error) => return Err(LoopError::Attach(name, error)),
        }
        let attached = ReadOnlyLoop { name, dev, node };
        attached.verify(root)?;
        return Ok(attached);
    }
    Err(LoopError::NoFreeLoop)
}

impl ReadOnlyLoop {
    /// Checks that the loop has the requested properties: where direct I/O is impossible, the
    /// kernel silently falls back to buffered I/O.
    pub fn verify(&self, root: &HostRoot) -> Result<(), LoopError> {
        let wanted = READ_ONLY | AUTOCLEAR | DIRECT_IO;
        let status = sys::loop_status(self.node.as_fd())
            .map_err(|error| LoopError::Status(self.name.clone(), error))?;
        let shown = root
            .read(format!("/sys/block/{}/loop/dio", self.name))
            .map_err(|error| LoopError::Status(self.name.clone(), error))?;
        if status.flags & wanted == wanted && shown.trim_ascii() == b"1" {
            Ok(())
        } else {
            Err(LoopError::NotReadOnlyDirectIo(self.name.clone()))
        }
    }

    /// Drops data that was cached by earlier reads through it: udev reads every new device.
    pub fn flush_buffers(&self) -> Result<(), LoopError> {
        sys::flush_buffers(self.node.as_fd())
            .map_err(|error| LoopError::Status(self.name.clone(), error))
    }
}

/// Detaches all loops with our backing node name; no other process of ours may use one. Out: a line
/// for each.
pub fn detach_all(root: &HostRoot, dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root.at("/sys/block")) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let ours = names.filter(|name| {
        root.read(format!("/sys/block/{name}/loop/backing_file"))
            .is_ok_and(|text| is_ours(&String::from_utf8_lossy(&text)))
    });
    let detached = ours.map(|name| match detach(root, dir, &name) {
        Ok(()) => format!("{name}, left over from a filesystem check, was detached"),
        Err(error) => {
            format!("{name}, left over from a filesystem check, stays: {}", with_causes(&error))
        }
    });
    detached.collect()
}

fn detach(root: &HostRoot, dir: &Path, name: &str) -> Result<(), LoopError> {
    let number = name
        .strip_prefix("loop")
        .and_then(|number| number.parse().ok())
        .ok_or(LoopError::NoFreeLoop)?;
    let Some((name, _, node)) = open_loop(root, dir, number)? else {
        return Ok(());
    };
    match sys::loop_clear(node.as_fd()) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => Ok(()),
        Err(error) => Err(LoopError::Detach(name, error)),
    }
}

fn make_node(
    dir: &Path,
    name: &str,
    kind: SFlag,
    mode: u32,
    dev: DevNo,
) -> Result<PathBuf, LoopError> {
    let path = dir.join(name);
    let number = makedev(u64::from(dev.major), u64::from(dev.minor));
    match mknod(&path, kind, Mode::from_bits_truncate(mode), number) {
        Ok(()) | Err(Errno::EEXIST) => Ok(path),
        Err(errno) => Err(LoopError::Node(path, errno)),
    }
}

fn control(dir: &Path) -> Result<File, LoopError> {
    let path = make_node(dir, "loop-control", SFlag::S_IFCHR, 0o600, CONTROL)?;
    File::options().read(true).write(true).open(&path).map_err(|error| LoopError::Open(path, error))
}

/// None for a loop that was removed since.
fn open_loop(
    root: &HostRoot,
    dir: &Path,
    number: u32,
) -> Result<Option<(String, DevNo, File)>, LoopError> {
    let name = format!("loop{number}");
    // The minor is not the loop's number if loops have partitions (max_part).
    let dev = root.read(format!("/sys/block/{name}/dev")).ok();
    let Some(dev) = dev.and_then(|text| String::from_utf8_lossy(&text).parse().ok()) else {
        return Ok(None);
    };
    match open_node(dir, &name, dev, libc::O_CLOEXEC) {
        Ok(node) => Ok(Some((name, dev, node))),
        Err(LoopError::Open(_, error)) if error.raw_os_error() == Some(Errno::ENXIO as i32) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_loops_are_known_by_the_name_of_what_they_stand_on() {
        assert!(is_ours("/dev/1/diskvitals-check\n"));
        assert!(is_ours("/diskvitals-check (deleted)"));
        assert!(!is_ours("/srv/diskvitals-check.img"));
        assert!(!is_ours("/var/lib/images/root.img"));
    }
}
