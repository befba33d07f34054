//! XFS health: the ioctls XFS_IOC_FSGEOMETRY, XFS_IOC_AG_GEOMETRY and XFS_IOC_BULKSTAT on a
//! directory.
//!
//! In: the path of a mount. Out: the bytes of struct xfs_fsop_geom; which allocation groups and
//! inodes have sick bits. The bits are interpreted elsewhere.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::sys;
use diskvitals_finding::path::HostPath;

/// sizeof(struct xfs_fsop_geom).
pub const GEOMETRY: usize = sys::XFS_GEOMETRY;

#[derive(Debug, thiserror::Error)]
pub enum XfsError {
    #[error("opening {path}")]
    Open {
        path: HostPath,
        #[source]
        source: Errno,
    },
    #[error("asking the XFS at {path} for its geometry")]
    Query {
        path: HostPath,
        #[source]
        source: io::Error,
    },
}

/// The parts that the kernel has found sick since the filesystem was mounted. (Only online scrub
/// sets `checked`, so it is not used.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sick {
    /// Allocation groups: number and ag_sick.
    pub groups: Vec<(u32, u32)>,
    /// Inodes: number and bs_sick of the first ones, and how many more there are.
    pub inodes: Vec<(u64, u16)>,
    pub more_inodes: u64,
    /// Queries that failed with EUCLEAN, EBADMSG (the kernel has just detected damage) or EIO.
    pub errors: Vec<(Errno, String)>,
}

/// Maximum number of sick inodes that are listed.
const MAX_NAMED_INODES: usize = 20;
/// Results per call: 192 bytes each.
const INODES_PER_CALL: usize = 256;
/// Offsets in struct xfs_fsop_geom, xfs_ag_geometry, xfs_bulk_ireq and xfs_bulkstat
/// (fs/xfs/libxfs/xfs_fs.h).
const AG_COUNT: usize = 12;
const AG_SICK: usize = 20;
const OUT_COUNT: usize = 16;
const BS_SICK: usize = 128;

/// Of all allocation groups. None: the kernel does not support it (no XFS; a kernel before 5.3).
pub fn sick_groups(path: &HostPath) -> Result<Option<Sick>, XfsError> {
    let Some((directory, geometry)) = open_with_geometry(path)? else {
        return Ok(None);
    };
    let mut sick = Sick::default();
    for number in 0..u32_at(&geometry, AG_COUNT) {
        match sys::xfs_ag_geometry(directory.as_fd(), number) {
            Ok(group) => match u32_at(&group, AG_SICK) {
                0 => {}
                bits => sick.groups.push((number, bits)),
            },
            Err(error) if is_unsupported(&error) => return Ok(None),
            Err(error) => {
                let what = format!("XFS_IOC_AG_GEOMETRY of allocation group {number}: {error}");
                sick.errors.push(classify_error(path, what, error)?);
            }
        }
    }
    Ok(Some(sick))
}

/// Queries all inodes: reads their tables, and the core of each inode, from the device if they are
/// not in memory. `go_on` is called from time to time. None: the kernel does not support it.
pub fn sick_inodes(
    path: &HostPath,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Sick>, XfsError> {
    let Some((directory, _)) = open_with_geometry(path)? else {
        return Ok(None);
    };
    let mut sick = Sick::default();
    let mut buffer = vec![0; sys::XFS_BULK_HEADER + INODES_PER_CALL * sys::XFS_BULKSTAT];
    while go_on() {
        // The first field of the header is the position in the inode table; the kernel advances it.
        if let Err(error) = sys::xfs_bulkstat(directory.as_fd(), &mut buffer) {
            let what = format!("XFS_IOC_BULKSTAT after inode {}: {error}", u64_at(&buffer, 0));
            sick.errors.push(classify_error(path, what, error)?);
            break;
        }
        let (header, inodes) = buffer.split_at(sys::XFS_BULK_HEADER);
        let count = usize::try_from(u32_at(header, OUT_COUNT)).unwrap_or(0).min(INODES_PER_CALL);
        if count == 0 {
            break;
        }
        for inode in inodes.chunks_exact(sys::XFS_BULKSTAT).take(count) {
            let number = u64_at(inode, 0);
            match u16::from_ne_bytes([inode[BS_SICK], inode[BS_SICK + 1]]) {
                0 => {}
                bits if sick.inodes.len() < MAX_NAMED_INODES => sick.inodes.push((number, bits)),
                _ => sick.more_inodes += 1,
            }
        }
    }
    Ok(Some(sick))
}

/// An open directory of an XFS, and its geometry.
fn open_with_geometry(path: &HostPath) -> Result<Option<(OwnedFd, [u8; GEOMETRY])>, XfsError> {
    let directory = match open_directory(path) {
        Ok(directory) => directory,
        Err(Errno::ENOTDIR) => return Ok(None),
        Err(source) => {
            return Err(XfsError::Open { path: path.clone(), source });
        }
    };
    match sys::xfs_geometry(directory.as_fd()) {
        Ok(geometry) => Ok(Some((directory, geometry))),
        Err(error) if is_unsupported(&error) => Ok(None),
        Err(source) => Err(XfsError::Query { path: path.clone(), source }),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENOTTY as i32)
}

/// The kernel has just detected damage or could not read. The error: any other, which is no
/// evidence about the filesystem.
fn classify_error(
    path: &HostPath,
    what: String,
    source: io::Error,
) -> Result<(Errno, String), XfsError> {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(errno @ (Errno::EUCLEAN | Errno::EBADMSG | Errno::EIO)) => Ok((errno, what)),
        _ => Err(XfsError::Query { path: path.clone(), source }),
    }
}

fn open_directory(path: &HostPath) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY
        | OFlag::O_DIRECTORY
        | OFlag::O_NOATIME
        | OFlag::O_CLOEXEC
        | OFlag::O_NONBLOCK;
    open(path.as_path(), flags, Mode::empty())
}

/// None if the kernel does not support it: a mount of one file, a filesystem other than XFS, a
/// kernel before 5.2. Does not change atime (O_NOATIME).
pub fn geometry(path: &HostPath) -> Result<Option<[u8; GEOMETRY]>, XfsError> {
    Ok(open_with_geometry(path)?.map(|(_, geometry)| geometry))
}
