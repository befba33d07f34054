//! Mounts, binds and unmounts at a path from a caller. Mountinfo and mount ids identify existing
//! mounts; the code never mounts or unmounts to find out.
//!
//! Propagation is not changed: a bind mount is a peer of its source, as mount(8) makes it, and the
//! kubelet's directory decides its visibility.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::step::{
    BindSource, MountedFilesystem, OwnedPath, PathOwner, PathRole, RootedPath, StepErrorKind,
};
use crate::worker::error::{StepWorkerError, io_error};
use crate::worker::{content, device, ownership};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::mount::{Mount, parse};
use diskvitals_finding::path::HostPath;
use diskvitals_host::block::{DeviceFile, OpenMode, dev_no};
use diskvitals_host::mounting::MountSourceKind;
use diskvitals_host::openers::{OpenTarget, find_openers, summary};
use diskvitals_host::resize::ResizeError;
use diskvitals_host::resolve_beneath::ResolvedPath;
use diskvitals_host::root::HostRoot;
use diskvitals_host::{mounting, resize, resolve_beneath};

/// Maximum number of stacked mounts at one path. More are an error, and would never end.
const MAX_STACKED_MOUNTS: usize = 64;

/// The path, its file and the mounts there.
struct MountPoint {
    spot: ResolvedPath,
    file: OwnedFd,
    kind: SFlag,
    /// The mounts at the path, topmost first.
    stack: Vec<Mount>,
}

impl MountPoint {
    fn top(&self) -> Option<&Mount> {
        self.stack.first()
    }

    /// For a path without a mount, as the next one.
    fn require_kind(&self, kind: SFlag) -> Result<(), StepWorkerError> {
        if self.kind == kind {
            return Ok(());
        }
        let what = if kind == SFlag::S_IFDIR { "folder" } else { "file" };
        Err(StepErrorKind::InvalidPath.error(format!("{} is no {what}", self.spot.path)))
    }

    fn require_empty(&self) -> Result<(), StepWorkerError> {
        let looking = io_error::<Errno>("looking at", &self.spot.path);
        let is_empty = if self.kind == SFlag::S_IFDIR {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let mut folder =
                Dir::openat(&self.file, c".", flags, Mode::empty()).map_err(&looking)?;
            let mut names = folder.iter();
            names.all(|entry| {
                entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
            })
        } else {
            fstat(&self.file).map_err(&looking)?.st_size == 0
        };
        if is_empty {
            return Ok(());
        }
        Err(StepErrorKind::ForeignData.error(format!(
            "{} is not empty, and no record of the kubelet gives it to this volume",
            self.spot.path
        )))
    }

    /// `AlreadyExists` unless the mount on top is the `expected` one.
    fn confirm_top(&self, top: &Mount, same: bool, expected: &str) -> Result<(), StepWorkerError> {
        if same {
            return Ok(());
        }
        Err(StepErrorKind::AlreadyExists.error(format!(
            "{} ({}) is mounted at {} instead of {expected}",
            top.source, top.fs_type, self.spot.path
        )))
    }
}

/// None if the path, or a directory above it, does not exist.
fn find_mount_point(target: &RootedPath) -> Result<Option<MountPoint>, StepWorkerError> {
    match resolve_beneath::resolve(&target.root, &target.path) {
        Err(error) if error.is_not_found() => Ok(None),
        found => inspect(found?),
    }
}

fn inspect(spot: ResolvedPath) -> Result<Option<MountPoint>, StepWorkerError> {
    let looking = io_error::<Errno>("looking at", &spot.path);
    let file = match spot.open() {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(looking(errno)),
    };
    let stack = mount_stack(&spot, &file)?;
    // The file type of a mount is not read, because the mount may hang and can be unmounted anyway.
    let kind = if stack.is_empty() { file_type(&file).map_err(&looking)? } else { SFlag::empty() };
    Ok(Some(MountPoint { spot, file, kind, stack }))
}

fn file_type(file: &OwnedFd) -> Result<SFlag, Errno> {
    Ok(SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT)
}

pub(super) fn mount_table() -> Result<Vec<Mount>, StepWorkerError> {
    let text = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| StepWorkerError::io("reading /proc/self/mountinfo", error))?;
    Ok(parse(&text).0)
}

/// The mounts from the mount of `file` down to the mount of the path's parent folder.
fn mount_stack(spot: &ResolvedPath, file: &OwnedFd) -> Result<Vec<Mount>, StepWorkerError> {
    let id = |fd: &OwnedFd| {
        mounting::mount_id(fd.as_fd()).map_err(io_error("asking for the mount of", &spot.path))
    };
    let (mut at, below) = (id(file)?, id(&spot.parent)?);
    if at == below {
        return Ok(Vec::new());
    }
    mounts_above(&mount_table()?, &mut at, below).ok_or_else(|| {
        StepErrorKind::Other
            .error(format!("the mounts at {} changed while they were read", spot.path))
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

/// Refuses a path that is not the owner's. Decides on the opened file, which is mounted on later.
pub fn check_target(target: &OwnedPath) -> Result<(), StepWorkerError> {
    let recorded = ownership::is_recorded(&target.place, &target.owner)?;
    let Some(there) = find_mount_point(&target.place)? else {
        return Ok(());
    };
    if let Some(top) = there.top() {
        return there.confirm_top(top, false, "nothing");
    }
    let is_node = target.owner.role == PathRole::Publish && target.owner.block == Some(true);
    there.require_kind(if is_node { SFlag::S_IFREG } else { SFlag::S_IFDIR })?;
    if recorded { Ok(()) } else { there.require_empty() }
}

/// Opens a path to mount on, which `create` makes if it is missing. A mount that exists there is
/// returned for comparison; otherwise the path must be the owner's.
fn open_target(
    target: &OwnedPath,
    create: fn(&RootedPath) -> Result<MountPoint, StepWorkerError>,
) -> Result<MountPoint, StepWorkerError> {
    if let Some(there) = find_mount_point(&target.place)?
        && there.top().is_some()
    {
        return Ok(there);
    }
    let recorded = ownership::is_recorded(&target.place, &target.owner)?;
    let there = create(&target.place)?;
    if !recorded && there.top().is_none() {
        there.require_empty()?;
    }
    Ok(there)
}

/// Creates the directory; its parent must exist.
fn ensure_directory(target: &RootedPath) -> Result<MountPoint, StepWorkerError> {
    let spot = resolve_beneath::resolve(&target.root, &target.path)?;
    let made = mkdirat(&spot.parent, spot.name.as_c_str(), Mode::from_bits_truncate(0o750));
    inspect_created(spot, made, SFlag::S_IFDIR)
}

fn ensure_file(target: &RootedPath) -> Result<MountPoint, StepWorkerError> {
    let spot = resolve_beneath::resolve(&target.root, &target.path)?;
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(&spot.parent, spot.name.as_c_str(), flags, Mode::from_bits_truncate(0o600))
        .map(drop);
    inspect_created(spot, made, SFlag::S_IFREG)
}

fn inspect_created(
    spot: ResolvedPath,
    made: Result<(), Errno>,
    kind: SFlag,
) -> Result<MountPoint, StepWorkerError> {
    let path = spot.path.clone();
    if let Err(errno) = made
        && errno != Errno::EEXIST
    {
        return Err(io_error("making", &path)(errno));
    }
    let there = inspect(spot)?.ok_or_else(|| {
        StepErrorKind::Other.error(format!("{path} was removed while it was read"))
    })?;
    if there.stack.is_empty() {
        there.require_kind(kind)?;
    }
    Ok(there)
}

pub fn mount(
    device: &HostPath,
    target: &OwnedPath,
    fs_type: &str,
    options: &[String],
    read_only: bool,
) -> Result<(), StepWorkerError> {
    let there = open_target(target, ensure_directory)?;
    if let Some(top) = there.top() {
        let same =
            is_mount_of(top, device)? && top.fs_type == fs_type && top.is_read_only() == read_only;
        let expected = format!("{device} ({fs_type}, {})", access_word(read_only));
        return there.confirm_top(top, same, &expected);
    }
    let mount = mounting::filesystem(fs_type, device, options, read_only)?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

/// Whether the mount is of this device. btrfs has its own device numbers; there the source names
/// the node.
fn is_mount_of(mount: &Mount, device: &HostPath) -> Result<bool, StepWorkerError> {
    let dev = device_number(device)?;
    let by_source =
        || std::fs::metadata(mount.source.as_path()).is_ok_and(|data| dev_no(data.rdev()) == dev);
    Ok(mount.dev == dev
        || mount.dev.is_anonymous() && mount.source.as_bytes().starts_with(b"/") && by_source())
}

fn device_number(device: &HostPath) -> Result<DevNo, StepWorkerError> {
    let data = std::fs::metadata(device.as_path()).map_err(io_error("looking for", device))?;
    Ok(dev_no(data.rdev()))
}

/// The source of a bind mount: opened once and inspected through that descriptor.
struct BindOrigin {
    file: OwnedFd,
    path: HostPath,
    read_only: bool,
}

fn open_origin(source: &BindSource) -> Result<BindOrigin, StepWorkerError> {
    match source {
        BindSource::Staged { place, device } => {
            let nothing = || not_mounted(place);
            let there = find_mount_point(place)?.ok_or_else(nothing)?;
            // Without a mount the directory would be on the host's own disk.
            let top = there.top().ok_or_else(nothing)?;
            if !is_mount_of(top, device)? {
                let message = format!(
                    "{} ({}) is mounted at {} instead of this volume, which is {device}",
                    top.source, top.fs_type, place.path
                );
                return Err(StepErrorKind::ForeignData.error(message));
            }
            let read_only = top.is_read_only();
            Ok(BindOrigin { file: there.file, path: there.spot.path, read_only })
        }
        BindSource::Directory { path } => Ok(BindOrigin {
            file: open_configured_path(path)?,
            path: path.clone(),
            read_only: false,
        }),
    }
}

fn not_mounted(at: &RootedPath) -> StepWorkerError {
    StepErrorKind::NotFound.error(format!("nothing is mounted at {}", at.path))
}

/// Opens a path of the configuration without following links.
fn open_configured_path(path: &HostPath) -> Result<OwnedFd, StepWorkerError> {
    resolve_beneath::resolve(&HostPath::from("/"), path)?
        .open()
        .map_err(io_error("looking for", path))
}

pub fn bind(
    source: &BindSource,
    target: &OwnedPath,
    read_only: bool,
) -> Result<(), StepWorkerError> {
    let origin = open_origin(source)?;
    let there = open_target(target, ensure_directory)?;
    if let Some(top) = there.top() {
        let looking = io_error::<Errno>("looking at", &target.place.path);
        let (shown, wanted) =
            (fstat(&there.file).map_err(&looking)?, fstat(&origin.file).map_err(&looking)?);
        let same = (shown.st_dev, shown.st_ino) == (wanted.st_dev, wanted.st_ino);
        let as_wanted = top.is_read_only() == (read_only || origin.read_only);
        let expected = format!("{} ({})", origin.path, access_word(read_only));
        return there.confirm_top(top, same && as_wanted, &expected);
    }
    if file_type(&origin.file).map_err(io_error("looking at", &origin.path))? != SFlag::S_IFDIR {
        return Err(StepErrorKind::InvalidPath.error(format!("{} is no folder", origin.path)));
    }
    let mount =
        mounting::bind(origin.file.as_fd(), &origin.path, MountSourceKind::Directory, read_only)?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

fn access_word(read_only: bool) -> &'static str {
    if read_only { "read-only" } else { "writable" }
}

/// A read-only bind mount of a node protects its owner and mode, not the device (may_open(),
/// fs/namei.c). Whether the device can be written to depends on how it was attached, and on the
/// container's rights.
pub(crate) fn bind_device(
    device: &HostPath,
    target: &OwnedPath,
    read_only: bool,
) -> Result<(), StepWorkerError> {
    let looking = io_error::<Errno>("looking at", device);
    let node = open_configured_path(device)?;
    let wanted = fstat(&node).map_err(&looking)?;
    if file_type(&node).map_err(&looking)? != SFlag::S_IFBLK {
        return Err(StepErrorKind::InvalidPath.error(format!("{device} is no block device")));
    }
    let there = open_target(target, ensure_file)?;
    if let Some(top) = there.top() {
        let shown = fstat(&there.file).map_err(&looking)?;
        let same = file_type(&there.file).map_err(&looking)? == SFlag::S_IFBLK
            && shown.st_rdev == wanted.st_rdev;
        let expected = format!("{device} ({})", access_word(read_only));
        return there.confirm_top(top, same && top.is_read_only() == read_only, &expected);
    }
    let mount = mounting::bind(node.as_fd(), device, MountSourceKind::DeviceNode, read_only)?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

pub fn unmount(root: &HostRoot, target: &RootedPath, lazy: bool) -> Result<(), StepWorkerError> {
    for _ in 0..MAX_STACKED_MOUNTS {
        let Some(there) = find_mount_point(target)? else {
            return Ok(());
        };
        let (spot, Some(top)) = (there.spot, there.stack.first()) else {
            return Ok(());
        };
        // The descriptor would keep the mount busy.
        drop(there.file);
        match mounting::unmount(&spot, lazy) {
            // EINVAL: another process was faster. The next iteration finds the remaining mounts.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(Errno::EBUSY) => return Err(in_use(root, &spot, top)),
            Err(errno) => return Err(io_error("unmounting", &spot.path)(errno)),
        }
    }
    Err(StepErrorKind::Other.error(format!(
        "after {MAX_STACKED_MOUNTS} were unmounted, something is still mounted at {}",
        target.path
    )))
}

fn in_use(root: &HostRoot, spot: &ResolvedPath, top: &Mount) -> StepWorkerError {
    let what = OpenTarget {
        dev: top.dev,
        mount_point: Some(top.mount_point.clone()),
        node: None,
        pod_uid: None,
    };
    let upon = mount_table().unwrap_or_default().into_iter().filter(|mount| mount.parent == top.id);
    let upon: Vec<String> = upon
        .map(|mount| format!("{} is mounted below it", mount.mount_point))
        .chain(summary(&find_openers(root, &what)))
        .collect();
    let by = match upon.is_empty() {
        true => "by an unknown process".to_owned(),
        false => upon.join(", "),
    };
    StepErrorKind::InUse.error(format!("{} is in use: {by}", spot.path))
}

pub(crate) fn remove_target(
    target: &RootedPath,
    owner: Option<&PathOwner>,
) -> Result<(), StepWorkerError> {
    if let Some(owner) = owner {
        match ownership::is_recorded(target, owner) {
            Err(error)
                if matches!(
                    error.kind,
                    StepErrorKind::InvalidPath | StepErrorKind::ForeignData
                ) =>
            {
                return Ok(());
            }
            checked => drop(checked?),
        }
    }
    let Some(there) = find_mount_point(target)? else {
        return Ok(());
    };
    let path = &there.spot.path;
    if let Some(top) = there.top() {
        return Err(
            StepErrorKind::InUse.error(format!("{} is still mounted at {path}", top.source))
        );
    }
    let flag = match there.kind {
        SFlag::S_IFDIR => UnlinkatFlags::RemoveDir,
        SFlag::S_IFREG => {
            // A file with content was not created as a mount point.
            let size = fstat(&there.file).map_err(io_error("looking at", path))?.st_size;
            if size != 0 {
                return Err(StepErrorKind::InUse.error(format!("the file {path} is not empty")));
            }
            UnlinkatFlags::NoRemoveDir
        }
        _ => {
            return Err(
                StepErrorKind::InvalidPath.error(format!("{path} is neither a folder nor a file"))
            );
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
    folder: Option<&HostPath>,
) -> Result<Option<MountedFilesystem>, StepWorkerError> {
    let there = find_mount_point(target)?;
    let Some(top) = there.as_ref().and_then(MountPoint::top) else {
        return Ok(None);
    };
    let shows_folder = match folder {
        Some(folder) => shows(&mount_table()?, top, folder),
        None => false,
    };
    Ok(Some(MountedFilesystem {
        source: if top.dev.is_anonymous() {
            top.source.to_string()
        } else {
            device::kernel_name(top.dev).unwrap_or_else(|_| top.source.to_string())
        },
        fs_type: top.fs_type.clone(),
        options: top.options.iter().chain(top.super_options.iter()).cloned().collect(),
        read_only: top.is_read_only() || top.is_super_read_only(),
        root: top.root.clone(),
        shows_folder,
    }))
}

/// Whether a mount shows a folder: both are the same path of one filesystem. From the mount table alone,
/// because the folder's disk may hang. The folder's own filesystem may be a subvolume or a bind mount.
fn shows(table: &[Mount], mount: &Mount, folder: &HostPath) -> bool {
    let folder = folder.as_path();
    let holds = |mount: &&Mount| folder.starts_with(mount.mount_point.as_path());
    // Of mounts at one place the last one is on top.
    let holder = table.iter().filter(holds).max_by_key(|mount| mount.mount_point.as_bytes().len());
    holder.is_some_and(|holder| {
        let rest = folder.strip_prefix(holder.mount_point.as_path());
        let in_filesystem = rest.map(|rest| holder.root.as_path().join(rest));
        holder.dev == mount.dev && in_filesystem.is_ok_and(|path| path == mount.root.as_path())
    })
}

pub fn grow(device: &HostPath, at: &RootedPath, fs_type: &str) -> Result<(), StepWorkerError> {
    let nothing = || not_mounted(at);
    let there = find_mount_point(at)?.ok_or_else(nothing)?;
    let top = there.top().ok_or_else(nothing)?;
    let same = is_mount_of(top, device)? && top.fs_type == fs_type;
    there.confirm_top(top, same, &format!("{device} ({fs_type})"))?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let folder =
        openat(&there.file, c".", flags, Mode::empty()).map_err(io_error("opening", &at.path))?;
    let block =
        DeviceFile::open(device.as_path(), OpenMode::Read).map_err(io_error("opening", device))?;
    if content::fills_device(&block, fs_type) {
        // Nothing to do, so no capability is needed.
        return Ok(());
    }
    resize::grow(folder.as_fd(), fs_type, block.size).map_err(|error| {
        let kind = match &error {
            ResizeError::MissingCapability(_) | ResizeError::Unsupported(_) => {
                StepErrorKind::Unsupported
            }
            ResizeError::Geometry { .. } | ResizeError::Grow { .. } => StepErrorKind::Other,
        };
        StepWorkerError::with_source(kind, format!("growing what is mounted at {}", at.path), error)
    })
}

#[cfg(test)]
mod tests;
