//! Mounts, binds and unmounts at a path that a caller named. Existing mounts are found by mountinfo
//! and mount ids, not by trying.
//!
//! Propagation is not changed: a bind mount is a peer of its source, as mount(8) makes it, and the
//! kubelet's directory decides its visibility.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::host::block::{DeviceFile, OpenMode, dev_no};
use crate::host::mounting::MountSourceKind;
use crate::host::openers::{OpenTarget, find_openers, summary};
use crate::host::resize::ResizeError;
use crate::host::resolve_beneath::ResolvedPath;
use crate::host::root::HostRoot;
use crate::host::{mounting, resize, resolve_beneath};
use crate::model::dev::DevNo;
use crate::model::mount::{Mount, parse};
use crate::model::path::HostPath;
use crate::provision::step::{BindSource, MountedFilesystem, RootedPath, StepErrorKind};
use crate::provision::worker::error::StepWorkerError;
use crate::provision::worker::{content, device};

/// Mounts upon each other at one place: more are somebody's mistake, and would keep us for ever.
const MAX_STACKED_MOUNTS: usize = 64;

/// What is at a place.
struct MountPoint {
    spot: ResolvedPath,
    file: OwnedFd,
    kind: SFlag,
    /// Mounted there, topmost first.
    stack: Vec<Mount>,
}

impl MountPoint {
    fn top(&self) -> Option<&Mount> {
        self.stack.first()
    }

    fn already_mounted(&self, what: &str) -> StepWorkerError {
        let other = self
            .top()
            .map(|top| format!("{} ({}) is mounted", top.source, top.fs_type))
            .unwrap_or_default();
        StepWorkerError::new(
            StepErrorKind::AlreadyExists,
            format!("{other} at {} instead of {what}", self.spot.path),
        )
    }
}

/// None: it is not there, or a folder on the way is not.
fn find_mount_point(place: &RootedPath) -> Result<Option<MountPoint>, StepWorkerError> {
    match resolve_beneath::resolve(&place.root, &place.path) {
        Err(error) if error.is_not_found() => Ok(None),
        found => inspect(found?),
    }
}

fn inspect(spot: ResolvedPath) -> Result<Option<MountPoint>, StepWorkerError> {
    let looking = |errno: Errno| StepWorkerError::io(format!("looking at {}", spot.path), errno);
    let file = match spot.open() {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(looking(errno)),
    };
    let stack = mount_stack(&spot, &file)?;
    // A mount that does not answer is not asked what it is: it is unmounted all the same.
    let kind = if stack.is_empty() {
        file_type(&file).map_err(looking)?
    } else {
        SFlag::empty()
    };
    Ok(Some(MountPoint {
        spot,
        file,
        kind,
        stack,
    }))
}

fn file_type(file: &OwnedFd) -> Result<SFlag, Errno> {
    Ok(SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT)
}

pub(super) fn mount_table() -> Result<Vec<Mount>, StepWorkerError> {
    let text = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| StepWorkerError::io("reading /proc/self/mountinfo", error))?;
    Ok(parse(&text).0)
}

/// From the mount of `file` down to the one that the spot's folder is in.
fn mount_stack(spot: &ResolvedPath, file: &OwnedFd) -> Result<Vec<Mount>, StepWorkerError> {
    let id = |fd: &OwnedFd| {
        mounting::mount_id(fd.as_fd()).map_err(|error| {
            StepWorkerError::io(format!("asking for the mount of {}", spot.path), error)
        })
    };
    let (mut at, below) = (id(file)?, id(&spot.parent)?);
    if at == below {
        return Ok(Vec::new());
    }
    mounts_above(&mount_table()?, &mut at, below).ok_or_else(|| {
        StepWorkerError::new(
            StepErrorKind::Other,
            format!("the mounts at {} changed while they were read", spot.path),
        )
    })
}

fn mounts_above(table: &[Mount], at: &mut u32, below: u32) -> Option<Vec<Mount>> {
    let mut stack = Vec::new();
    while *at != below {
        let mount = table
            .iter()
            .find(|mount| mount.id == *at)
            .filter(|_| stack.len() < MAX_STACKED_MOUNTS)?;
        *at = mount.parent;
        stack.push(mount.clone());
    }
    Some(stack)
}

/// Makes the folder, in a folder that is there.
fn ensure_directory(target: &RootedPath) -> Result<MountPoint, StepWorkerError> {
    let spot = resolve_beneath::resolve(&target.root, &target.path)?;
    let made = mkdirat(
        &spot.parent,
        spot.name.as_c_str(),
        Mode::from_bits_truncate(0o750),
    );
    inspect_created(spot, made, SFlag::S_IFDIR, "folder")
}

fn ensure_file(target: &RootedPath) -> Result<MountPoint, StepWorkerError> {
    let spot = resolve_beneath::resolve(&target.root, &target.path)?;
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(
        &spot.parent,
        spot.name.as_c_str(),
        flags,
        Mode::from_bits_truncate(0o600),
    )
    .map(drop);
    inspect_created(spot, made, SFlag::S_IFREG, "file")
}

fn inspect_created(
    spot: ResolvedPath,
    made: Result<(), Errno>,
    kind: SFlag,
    what: &str,
) -> Result<MountPoint, StepWorkerError> {
    let path = spot.path.clone();
    match made {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => {
            return Err(StepWorkerError::io(
                format!("making the {what} {path}"),
                errno,
            ));
        }
    }
    let gone = || {
        StepWorkerError::new(
            StepErrorKind::Other,
            format!("{path} was removed while it was read"),
        )
    };
    let there = inspect(spot)?.ok_or_else(gone)?;
    if there.stack.is_empty() && there.kind != kind {
        return Err(StepWorkerError::new(
            StepErrorKind::InvalidPath,
            format!("{path} is no {what}"),
        ));
    }
    Ok(there)
}

pub(crate) fn mount(
    device: &HostPath,
    target: &RootedPath,
    fs_type: &str,
    options: &[String],
    read_only: bool,
) -> Result<(), StepWorkerError> {
    let there = ensure_directory(target)?;
    if let Some(top) = there.top() {
        let same =
            is_mount_of(top, device)? && top.fs_type == fs_type && top.is_read_only() == read_only;
        let how = if read_only { "read-only" } else { "writable" };
        return if same {
            Ok(())
        } else {
            Err(there.already_mounted(&format!("{device} ({fs_type}, {how})")))
        };
    }
    let mount = mounting::filesystem(fs_type, device, options, read_only)?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

/// Whether it is a mount of what is on this device. btrfs has numbers of its own, and tells the
/// node.
fn is_mount_of(mount: &Mount, device: &HostPath) -> Result<bool, StepWorkerError> {
    let dev = device_number(device)?;
    let by_source =
        || std::fs::metadata(mount.source.as_path()).is_ok_and(|data| dev_no(data.rdev()) == dev);
    Ok(mount.dev == dev
        || mount.dev.is_anonymous() && mount.source.as_bytes().starts_with(b"/") && by_source())
}

fn device_number(device: &HostPath) -> Result<DevNo, StepWorkerError> {
    let data = std::fs::metadata(device.as_path())
        .map_err(|error| StepWorkerError::io(format!("looking for {device}"), error))?;
    Ok(dev_no(data.rdev()))
}

/// What a bind mount shows is opened once, and looked at by that descriptor.
struct BindOrigin {
    file: OwnedFd,
    path: HostPath,
    read_only: bool,
}

fn open_origin(source: &BindSource) -> Result<BindOrigin, StepWorkerError> {
    let path = match source {
        BindSource::Staged { place, device } => {
            let nothing = || {
                StepWorkerError::new(
                    StepErrorKind::NotFound,
                    format!("nothing is mounted at {}", place.path),
                )
            };
            let there = find_mount_point(place)?.ok_or_else(nothing)?;
            // The bare folder would be the host's own disk.
            let top = there.top().ok_or_else(nothing)?;
            if !is_mount_of(top, device)? {
                let message = format!(
                    "{} ({}) is mounted at {} instead of this volume, which is {device}",
                    top.source, top.fs_type, place.path
                );
                return Err(StepWorkerError::new(StepErrorKind::ForeignData, message));
            }
            let read_only = top.is_read_only();
            return Ok(BindOrigin {
                file: there.file,
                path: there.spot.path,
                read_only,
            });
        }
        BindSource::Directory { path } => path,
    };
    let file = open_configured_path(path)?;
    Ok(BindOrigin {
        file,
        path: path.clone(),
        read_only: false,
    })
}

/// Of a path that the configuration names: by no link.
fn open_configured_path(path: &HostPath) -> Result<OwnedFd, StepWorkerError> {
    resolve_beneath::resolve(&HostPath::from("/"), path)?
        .open()
        .map_err(|errno| StepWorkerError::io(format!("looking for {path}"), errno))
}

pub(crate) fn bind(
    source: &BindSource,
    target: &RootedPath,
    read_only: bool,
) -> Result<(), StepWorkerError> {
    let origin = open_origin(source)?;
    let there = ensure_directory(target)?;
    if let Some(top) = there.top() {
        let looking = |errno| StepWorkerError::io(format!("looking at {}", target.path), errno);
        let (shown, wanted) = (
            fstat(&there.file).map_err(looking)?,
            fstat(&origin.file).map_err(looking)?,
        );
        let same = (shown.st_dev, shown.st_ino) == (wanted.st_dev, wanted.st_ino);
        let as_wanted = top.is_read_only() == (read_only || origin.read_only);
        return if same && as_wanted {
            Ok(())
        } else {
            Err(there.already_mounted(&describe(&origin.path, read_only)))
        };
    }
    if file_type(&origin.file)
        .map_err(|errno| StepWorkerError::io(format!("looking at {}", origin.path), errno))?
        != SFlag::S_IFDIR
    {
        return Err(StepWorkerError::new(
            StepErrorKind::InvalidPath,
            format!("{} is no folder", origin.path),
        ));
    }
    let mount = mounting::bind(
        origin.file.as_fd(),
        &origin.path,
        MountSourceKind::Directory,
        read_only,
    )?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

fn describe(path: &HostPath, read_only: bool) -> String {
    format!(
        "{path} ({})",
        if read_only { "read-only" } else { "writable" }
    )
}

/// A read-only bind mount of a node keeps its owner and mode as they are; writing to the device is
/// not the mount's to forbid (may_open(), fs/namei.c): whether it can be written to is decided
/// where it is attached, and by the container's rights.
pub(crate) fn bind_device(
    device: &HostPath,
    target: &RootedPath,
    read_only: bool,
) -> Result<(), StepWorkerError> {
    let looking = |errno| StepWorkerError::io(format!("looking at {device}"), errno);
    let node = open_configured_path(device)?;
    let wanted = fstat(&node).map_err(looking)?;
    if file_type(&node).map_err(looking)? != SFlag::S_IFBLK {
        return Err(StepWorkerError::new(
            StepErrorKind::InvalidPath,
            format!("{device} is no block device"),
        ));
    }
    let there = ensure_file(target)?;
    if let Some(top) = there.top() {
        let shown = fstat(&there.file).map_err(looking)?;
        let same = file_type(&there.file).map_err(looking)? == SFlag::S_IFBLK
            && shown.st_rdev == wanted.st_rdev;
        return if same && top.is_read_only() == read_only {
            Ok(())
        } else {
            Err(there.already_mounted(&describe(device, read_only)))
        };
    }
    let mount = mounting::bind(node.as_fd(), device, MountSourceKind::DeviceNode, read_only)?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

pub(crate) fn unmount(
    root: &HostRoot,
    target: &RootedPath,
    lazy: bool,
) -> Result<(), StepWorkerError> {
    for _ in 0..MAX_STACKED_MOUNTS {
        let Some(MountPoint {
            spot, file, stack, ..
        }) = find_mount_point(target)?
        else {
            return Ok(());
        };
        let Some(top) = stack.into_iter().next() else {
            return Ok(());
        };
        // It would hold the mount itself.
        drop(file);
        match mounting::unmount(&spot, lazy) {
            // EINVAL: somebody else was quicker; the next look tells.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(Errno::EBUSY) => return Err(in_use(root, &spot, &top)),
            Err(errno) => {
                return Err(StepWorkerError::io(
                    format!("unmounting {}", spot.path),
                    errno,
                ));
            }
        }
    }
    Err(StepWorkerError::new(
        StepErrorKind::Other,
        format!(
            "after {MAX_STACKED_MOUNTS} were unmounted, something is still mounted at {}",
            target.path
        ),
    ))
}

fn in_use(root: &HostRoot, spot: &ResolvedPath, top: &Mount) -> StepWorkerError {
    let what = OpenTarget {
        dev: top.dev,
        mount_point: Some(top.mount_point.clone()),
        node: None,
    };
    let upon = mount_table()
        .unwrap_or_default()
        .into_iter()
        .filter(|mount| mount.parent == top.id);
    let upon: Vec<String> = upon
        .map(|mount| format!("{} is mounted below it", mount.mount_point))
        .chain(summary(&find_openers(root, &what)))
        .collect();
    let by = if upon.is_empty() {
        "by an unknown process".to_owned()
    } else {
        upon.join(", ")
    };
    StepWorkerError::new(
        StepErrorKind::InUse,
        format!("{} is in use: {by}", spot.path),
    )
}

pub(crate) fn remove_target(target: &RootedPath) -> Result<(), StepWorkerError> {
    let Some(there) = find_mount_point(target)? else {
        return Ok(());
    };
    let path = &there.spot.path;
    if let Some(top) = there.top() {
        return Err(StepWorkerError::new(
            StepErrorKind::InUse,
            format!("{} is still mounted at {path}", top.source),
        ));
    }
    let flag = match there.kind {
        SFlag::S_IFDIR => UnlinkatFlags::RemoveDir,
        SFlag::S_IFREG => {
            // A file with something in it was not made to carry a mount.
            let size = fstat(&there.file)
                .map_err(|errno| StepWorkerError::io(format!("looking at {path}"), errno))?
                .st_size;
            if size != 0 {
                return Err(StepWorkerError::new(
                    StepErrorKind::InUse,
                    format!("the file {path} is not empty"),
                ));
            }
            UnlinkatFlags::NoRemoveDir
        }
        _ => {
            return Err(StepWorkerError::new(
                StepErrorKind::InvalidPath,
                format!("{path} is neither a folder nor a file"),
            ));
        }
    };
    match unlinkat(&there.spot.parent, there.spot.name.as_c_str(), flag) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno @ (Errno::ENOTEMPTY | Errno::EEXIST)) => Err(StepWorkerError::with_source(
            StepErrorKind::InUse,
            format!("removing {path}"),
            errno,
        )),
        Err(errno) => Err(StepWorkerError::io(format!("removing {path}"), errno)),
    }
}

pub(crate) fn find_mount(
    target: &RootedPath,
) -> Result<Option<MountedFilesystem>, StepWorkerError> {
    let Some(there) = find_mount_point(target)? else {
        return Ok(None);
    };
    Ok(there.top().map(|top| MountedFilesystem {
        source: if top.dev.is_anonymous() {
            top.source.to_string()
        } else {
            device::kernel_name(top.dev).unwrap_or_else(|_| top.source.to_string())
        },
        fs_type: top.fs_type.clone(),
        options: top
            .options
            .iter()
            .chain(&top.super_options)
            .cloned()
            .collect(),
        read_only: top.is_read_only() || top.is_super_read_only(),
        root: top.root.clone(),
    }))
}

pub(crate) fn grow(
    device: &HostPath,
    at: &RootedPath,
    fs_type: &str,
) -> Result<(), StepWorkerError> {
    let nothing = || {
        StepWorkerError::new(
            StepErrorKind::NotFound,
            format!("nothing is mounted at {}", at.path),
        )
    };
    let there = find_mount_point(at)?.ok_or_else(nothing)?;
    let top = there.top().ok_or_else(nothing)?;
    if !is_mount_of(top, device)? || top.fs_type != fs_type {
        return Err(there.already_mounted(&format!("{device} ({fs_type})")));
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let folder = openat(&there.file, c".", flags, Mode::empty())
        .map_err(|errno| StepWorkerError::io(format!("opening {}", at.path), errno))?;
    let block = DeviceFile::open(device.as_path(), OpenMode::Read)
        .map_err(|error| StepWorkerError::io(format!("opening {device}"), error))?;
    if content::fills_device(&block, fs_type) {
        // Nobody needs a right for what is done already.
        return Ok(());
    }
    resize::grow(folder.as_fd(), fs_type, block.size).map_err(|error| {
        let kind = match &error {
            ResizeError::MissingCapability(_) | ResizeError::Unsupported(_) => {
                StepErrorKind::Unsupported
            }
            ResizeError::Geometry { .. } | ResizeError::Grow { .. } => StepErrorKind::Other,
        };
        StepWorkerError::with_source(
            kind,
            format!("growing what is mounted at {}", at.path),
            error,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                           30 20 7:3 / /p rw - ext4 /dev/loop3 rw\n\
                           31 30 7:4 / /p ro - xfs /dev/loop4 rw\n\
                           32 20 7:5 / /q rw - xfs /dev/loop5 rw\n";

    #[test]
    fn stacked_mounts_are_listed_from_the_top_down_and_no_others() {
        let table = parse(TABLE).0;
        let ids = |at, below| {
            mounts_above(&table, &mut { at }, below)
                .map(|stack| stack.iter().map(|mount| mount.id).collect::<Vec<_>>())
        };
        assert_eq!(ids(31, 20), Some(vec![31, 30]));
        assert_eq!(ids(32, 20), Some(vec![32]));
        assert_eq!(ids(20, 20), Some(vec![]));
        assert_eq!(ids(99, 20), None, "gone since");
    }

    #[test]
    fn a_mount_that_is_its_own_parent_ends_the_search() {
        let table = parse(b"1 1 0:1 / / rw - rootfs rootfs rw\n").0;
        assert!(mounts_above(&table, &mut 1, 7).is_none());
    }

    fn place(dir: &tempfile::TempDir, path: &str) -> RootedPath {
        let root = HostPath::from(dir.path());
        RootedPath {
            path: root.join(path),
            root,
        }
    }

    #[test]
    fn only_an_empty_directory_or_file_is_removed_and_an_absent_one_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/full/x")).unwrap();
        std::fs::create_dir(dir.path().join("a/empty")).unwrap();
        std::fs::write(dir.path().join("a/file"), "").unwrap();
        std::fs::write(dir.path().join("a/data"), "x").unwrap();
        std::os::unix::fs::symlink("empty", dir.path().join("a/link")).unwrap();
        let remove = |path: &str| remove_target(&place(&dir, path)).map_err(|failure| failure.kind);
        assert_eq!(remove("a/full"), Err(StepErrorKind::InUse));
        assert_eq!(remove("a/data"), Err(StepErrorKind::InUse));
        assert_eq!(remove("a/link"), Err(StepErrorKind::InvalidPath));
        for gone in ["a/empty", "a/empty", "a/file", "a/file", "b/none"] {
            assert_eq!(remove(gone), Ok(()), "{gone}");
        }
        assert_eq!(find_mount(&place(&dir, "a/full")).unwrap(), None);
    }
}
