//! Mounting, binding, unmounting at a place that a caller named. What is there already is told by
//! mountinfo and the numbers of mounts, not by trying.
//!
//! Propagation is left as it is: a bind mount is a peer of what it shows, as mount(8) makes it, and
//! the kubelet's folder decides who sees it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::attach::step::{Mounted, Place, Source, Trouble};
use crate::attach::worker::failure::Failure;
use crate::attach::worker::{content, device};
use crate::host::beneath::Spot;
use crate::host::block::{Block, Way, number};
use crate::host::holders::{What, holders, told};
use crate::host::mounting::Shown;
use crate::host::resize::ResizeError;
use crate::host::root::HostRoot;
use crate::host::{beneath, mounting, resize};
use crate::model::dev::DevNo;
use crate::model::mount::{Mount, parse};
use crate::model::path::HostPath;

/// Mounts upon each other at one place: more are somebody's mistake, and would keep us for ever.
const MOST_UPON: usize = 64;

/// What is at a place.
struct There {
    spot: Spot,
    file: OwnedFd,
    kind: SFlag,
    /// Mounted there, topmost first.
    stack: Vec<Mount>,
}

impl There {
    fn top(&self) -> Option<&Mount> {
        self.stack.first()
    }

    fn exists(&self, what: &str) -> Failure {
        let other = self
            .top()
            .map(|top| format!("{} ({}) is mounted", top.source, top.fs_type))
            .unwrap_or_default();
        Failure::new(
            Trouble::Exists,
            format!("{other} at {} instead of {what}", self.spot.path),
        )
    }
}

/// None: it is not there, or a folder on the way is not.
fn find(place: &Place) -> Result<Option<There>, Failure> {
    match beneath::find(&place.root, &place.path) {
        Err(error) if error.is_absent() => Ok(None),
        found => look(found?),
    }
}

fn look(spot: Spot) -> Result<Option<There>, Failure> {
    let looking = |errno: Errno| Failure::io(format!("looking at {}", spot.path), errno);
    let file = match spot.open() {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(looking(errno)),
    };
    let stack = stack(&spot, &file)?;
    // A mount that does not answer is not asked what it is: it is unmounted all the same.
    let kind = if stack.is_empty() {
        kind_of(&file).map_err(looking)?
    } else {
        SFlag::empty()
    };
    Ok(Some(There {
        spot,
        file,
        kind,
        stack,
    }))
}

fn kind_of(file: &OwnedFd) -> Result<SFlag, Errno> {
    Ok(SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT)
}

pub(super) fn table() -> Result<Vec<Mount>, Failure> {
    let text = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Failure::io("reading /proc/self/mountinfo", error))?;
    Ok(parse(&text).0)
}

/// From the mount of `file` down to the one that the spot's folder is in.
fn stack(spot: &Spot, file: &OwnedFd) -> Result<Vec<Mount>, Failure> {
    let id = |fd: &OwnedFd| {
        mounting::mount_id(fd.as_fd())
            .map_err(|error| Failure::io(format!("asking for the mount of {}", spot.path), error))
    };
    let (mut at, below) = (id(file)?, id(&spot.parent)?);
    if at == below {
        return Ok(Vec::new());
    }
    upon(&table()?, &mut at, below).ok_or_else(|| {
        Failure::new(
            Trouble::Failed,
            format!(
                "the mounts at {} change while they are looked at",
                spot.path
            ),
        )
    })
}

fn upon(table: &[Mount], at: &mut u32, below: u32) -> Option<Vec<Mount>> {
    let mut stack = Vec::new();
    while *at != below {
        let mount = table
            .iter()
            .find(|mount| mount.id == *at)
            .filter(|_| stack.len() < MOST_UPON)?;
        *at = mount.parent;
        stack.push(mount.clone());
    }
    Some(stack)
}

/// Makes the folder, in a folder that is there.
fn folder_at(target: &Place) -> Result<There, Failure> {
    let spot = beneath::find(&target.root, &target.path)?;
    let made = mkdirat(
        &spot.parent,
        spot.name.as_c_str(),
        Mode::from_bits_truncate(0o750),
    );
    expect(spot, made, SFlag::S_IFDIR, "folder")
}

fn file_at(target: &Place) -> Result<There, Failure> {
    let spot = beneath::find(&target.root, &target.path)?;
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(
        &spot.parent,
        spot.name.as_c_str(),
        flags,
        Mode::from_bits_truncate(0o600),
    )
    .map(drop);
    expect(spot, made, SFlag::S_IFREG, "file")
}

fn expect(spot: Spot, made: Result<(), Errno>, kind: SFlag, what: &str) -> Result<There, Failure> {
    let path = spot.path.clone();
    match made {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(Failure::io(format!("making the {what} {path}"), errno)),
    }
    let gone = || {
        Failure::new(
            Trouble::Failed,
            format!("{path} was removed while it was looked at"),
        )
    };
    let there = look(spot)?.ok_or_else(gone)?;
    if there.stack.is_empty() && there.kind != kind {
        return Err(Failure::new(Trouble::Path, format!("{path} is no {what}")));
    }
    Ok(there)
}

pub fn mount(
    device: &HostPath,
    target: &Place,
    fs_type: &str,
    options: &[String],
    read_only: bool,
) -> Result<(), Failure> {
    let there = folder_at(target)?;
    if let Some(top) = there.top() {
        let same = is_of(top, device)? && top.fs_type == fs_type && top.is_read_only() == read_only;
        let how = if read_only { "read-only" } else { "writable" };
        return if same {
            Ok(())
        } else {
            Err(there.exists(&format!("{device} ({fs_type}, {how})")))
        };
    }
    let mount = mounting::filesystem(fs_type, device, options, read_only)?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

/// Whether it is a mount of what is on this device. btrfs has numbers of its own, and tells the
/// node.
fn is_of(mount: &Mount, device: &HostPath) -> Result<bool, Failure> {
    let dev = device_number(device)?;
    let by_source =
        || std::fs::metadata(mount.source.as_path()).is_ok_and(|data| number(data.rdev()) == dev);
    Ok(mount.dev == dev
        || mount.dev.is_anonymous() && mount.source.as_bytes().starts_with(b"/") && by_source())
}

fn device_number(device: &HostPath) -> Result<DevNo, Failure> {
    let data = std::fs::metadata(device.as_path())
        .map_err(|error| Failure::io(format!("looking for {device}"), error))?;
    Ok(number(data.rdev()))
}

/// What a bind mount shows is opened once, and looked at by that descriptor.
struct Origin {
    file: OwnedFd,
    path: HostPath,
    read_only: bool,
}

fn origin(source: &Source) -> Result<Origin, Failure> {
    let path = match source {
        Source::Staged { place, device } => {
            let nothing = || {
                Failure::new(
                    Trouble::NotFound,
                    format!("nothing is mounted at {}", place.path),
                )
            };
            let there = find(place)?.ok_or_else(nothing)?;
            // The bare folder would be the host's own disk.
            let top = there.top().ok_or_else(nothing)?;
            if !is_of(top, device)? {
                let message = format!(
                    "{} ({}) is mounted at {} instead of this volume, which is {device}",
                    top.source, top.fs_type, place.path
                );
                return Err(Failure::new(Trouble::Foreign, message));
            }
            let read_only = top.is_read_only();
            return Ok(Origin {
                file: there.file,
                path: there.spot.path,
                read_only,
            });
        }
        Source::Folder { path } => path,
    };
    let file = anywhere(path)?;
    Ok(Origin {
        file,
        path: path.clone(),
        read_only: false,
    })
}

/// Of a path that the configuration names: by no link.
fn anywhere(path: &HostPath) -> Result<OwnedFd, Failure> {
    beneath::find(&HostPath::from("/"), path)?
        .open()
        .map_err(|errno| Failure::io(format!("looking for {path}"), errno))
}

pub fn bind(source: &Source, target: &Place, read_only: bool) -> Result<(), Failure> {
    let origin = origin(source)?;
    let there = folder_at(target)?;
    if let Some(top) = there.top() {
        let looking = |errno| Failure::io(format!("looking at {}", target.path), errno);
        let (shown, wanted) = (
            fstat(&there.file).map_err(looking)?,
            fstat(&origin.file).map_err(looking)?,
        );
        let same = (shown.st_dev, shown.st_ino) == (wanted.st_dev, wanted.st_ino);
        let as_wanted = top.is_read_only() == (read_only || origin.read_only);
        return if same && as_wanted {
            Ok(())
        } else {
            Err(there.exists(&described(&origin.path, read_only)))
        };
    }
    if kind_of(&origin.file)
        .map_err(|errno| Failure::io(format!("looking at {}", origin.path), errno))?
        != SFlag::S_IFDIR
    {
        return Err(Failure::new(
            Trouble::Path,
            format!("{} is no folder", origin.path),
        ));
    }
    let mount = mounting::bind(origin.file.as_fd(), &origin.path, Shown::Folder, read_only)?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

fn described(path: &HostPath, read_only: bool) -> String {
    format!(
        "{path} ({})",
        if read_only { "read-only" } else { "writable" }
    )
}

/// A read-only bind mount of a node keeps its owner and mode as they are; writing to the device is
/// not the mount's to forbid (may_open(), fs/namei.c): whether it can be written to is decided
/// where it is attached, and by the container's rights.
pub fn bind_device(device: &HostPath, target: &Place, read_only: bool) -> Result<(), Failure> {
    let looking = |errno| Failure::io(format!("looking at {device}"), errno);
    let node = anywhere(device)?;
    let wanted = fstat(&node).map_err(looking)?;
    if kind_of(&node).map_err(looking)? != SFlag::S_IFBLK {
        return Err(Failure::new(
            Trouble::Path,
            format!("{device} is no block device"),
        ));
    }
    let there = file_at(target)?;
    if let Some(top) = there.top() {
        let shown = fstat(&there.file).map_err(looking)?;
        let same = kind_of(&there.file).map_err(looking)? == SFlag::S_IFBLK
            && shown.st_rdev == wanted.st_rdev;
        return if same && top.is_read_only() == read_only {
            Ok(())
        } else {
            Err(there.exists(&described(device, read_only)))
        };
    }
    let mount = mounting::bind(node.as_fd(), device, Shown::Node, read_only)?;
    Ok(mount.attach(there.file.as_fd(), &there.spot.path)?)
}

pub fn unmount(root: &HostRoot, target: &Place, lazy: bool) -> Result<(), Failure> {
    for _ in 0..MOST_UPON {
        let Some(There {
            spot, file, stack, ..
        }) = find(target)?
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
            Err(Errno::EBUSY) => return Err(held(root, &spot, &top)),
            Err(errno) => return Err(Failure::io(format!("unmounting {}", spot.path), errno)),
        }
    }
    Err(Failure::new(
        Trouble::Failed,
        format!(
            "after {MOST_UPON} were unmounted, something is still mounted at {}",
            target.path
        ),
    ))
}

fn held(root: &HostRoot, spot: &Spot, top: &Mount) -> Failure {
    let what = What {
        dev: top.dev,
        at: Some(top.mount_point.clone()),
        node: None,
    };
    let upon = table()
        .unwrap_or_default()
        .into_iter()
        .filter(|mount| mount.parent == top.id);
    let upon: Vec<String> = upon
        .map(|mount| format!("{} is mounted below it", mount.mount_point))
        .chain(told(&holders(root, &what)))
        .collect();
    let by = if upon.is_empty() {
        "by whom cannot be seen".to_owned()
    } else {
        upon.join(", ")
    };
    Failure::new(Trouble::Held, format!("{} is in use: {by}", spot.path))
}

pub fn remove_target(target: &Place) -> Result<(), Failure> {
    let Some(there) = find(target)? else {
        return Ok(());
    };
    let path = &there.spot.path;
    if let Some(top) = there.top() {
        return Err(Failure::new(
            Trouble::Held,
            format!("{} is still mounted at {path}", top.source),
        ));
    }
    let flag = match there.kind {
        SFlag::S_IFDIR => UnlinkatFlags::RemoveDir,
        SFlag::S_IFREG => {
            // A file with something in it was not made to carry a mount.
            let size = fstat(&there.file)
                .map_err(|errno| Failure::io(format!("looking at {path}"), errno))?
                .st_size;
            if size != 0 {
                return Err(Failure::new(
                    Trouble::Held,
                    format!("the file {path} is not empty"),
                ));
            }
            UnlinkatFlags::NoRemoveDir
        }
        _ => {
            return Err(Failure::new(
                Trouble::Path,
                format!("{path} is neither a folder nor a file"),
            ));
        }
    };
    match unlinkat(&there.spot.parent, there.spot.name.as_c_str(), flag) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno @ (Errno::ENOTEMPTY | Errno::EEXIST)) => Err(Failure::because(
            Trouble::Held,
            format!("removing {path}"),
            errno,
        )),
        Err(errno) => Err(Failure::io(format!("removing {path}"), errno)),
    }
}

pub fn what_is_mounted(target: &Place) -> Result<Option<Mounted>, Failure> {
    let Some(there) = find(target)? else {
        return Ok(None);
    };
    Ok(there.top().map(|top| Mounted {
        source: if top.dev.is_anonymous() {
            top.source.to_string()
        } else {
            device::name(top.dev).unwrap_or_else(|_| top.source.to_string())
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

pub fn grow(device: &HostPath, at: &Place, fs_type: &str) -> Result<(), Failure> {
    let nothing = || {
        Failure::new(
            Trouble::NotFound,
            format!("nothing is mounted at {}", at.path),
        )
    };
    let there = find(at)?.ok_or_else(nothing)?;
    let top = there.top().ok_or_else(nothing)?;
    if !is_of(top, device)? || top.fs_type != fs_type {
        return Err(there.exists(&format!("{device} ({fs_type})")));
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let folder = openat(&there.file, c".", flags, Mode::empty())
        .map_err(|errno| Failure::io(format!("opening {}", at.path), errno))?;
    let block = Block::open(device.as_path(), Way::Read)
        .map_err(|error| Failure::io(format!("opening {device}"), error))?;
    if content::fills(&block, fs_type) {
        // Nobody needs a right for what is done already.
        return Ok(());
    }
    resize::grow(folder.as_fd(), fs_type, block.size).map_err(|error| {
        let kind = match &error {
            ResizeError::NoRight(_) | ResizeError::Unknown(_) => Trouble::Unsupported,
            ResizeError::Ask { .. } | ResizeError::Grow { .. } => Trouble::Failed,
        };
        Failure::because(
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
    fn mounts_upon_each_other_are_found_from_the_top_down_and_others_are_not_among_them() {
        let table = parse(TABLE).0;
        let ids = |at, below| {
            upon(&table, &mut { at }, below)
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
        assert!(upon(&table, &mut 1, 7).is_none());
    }

    fn place(dir: &tempfile::TempDir, path: &str) -> Place {
        let root = HostPath::from(dir.path());
        Place {
            path: root.join(path),
            root,
        }
    }

    #[test]
    fn only_an_empty_folder_or_file_is_removed_and_what_is_gone_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/full/x")).unwrap();
        std::fs::create_dir(dir.path().join("a/empty")).unwrap();
        std::fs::write(dir.path().join("a/file"), "").unwrap();
        std::fs::write(dir.path().join("a/data"), "x").unwrap();
        std::os::unix::fs::symlink("empty", dir.path().join("a/link")).unwrap();
        let remove = |path: &str| remove_target(&place(&dir, path)).map_err(|failure| failure.kind);
        assert_eq!(remove("a/full"), Err(Trouble::Held));
        assert_eq!(remove("a/data"), Err(Trouble::Held));
        assert_eq!(remove("a/link"), Err(Trouble::Path));
        for gone in ["a/empty", "a/empty", "a/file", "a/file", "b/none"] {
            assert_eq!(remove(gone), Ok(()), "{gone}");
        }
        assert_eq!(what_is_mounted(&place(&dir, "a/full")).unwrap(), None);
    }
}
