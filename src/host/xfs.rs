//! XFS's answer to XFS_IOC_FSGEOMETRY, asked of a directory on it.
//!
//! In: a mount's path. Out: struct xfs_fsop_geom as it is. What its fields mean is not known here.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::host::sys;
use crate::model::path::HostPath;

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
    Ask {
        path: HostPath,
        #[source]
        source: io::Error,
    },
}

/// None where there is nobody to answer: a mount of one file, a filesystem that is no XFS, a kernel before 5.2. Leaves no trace (O_NOATIME).
pub fn geometry(path: &HostPath) -> Result<Option<[u8; GEOMETRY]>, XfsError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOATIME | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let directory = match open(path.as_path(), flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::ENOTDIR) => return Ok(None),
        Err(source) => return Err(XfsError::Open { path: path.clone(), source }),
    };
    match sys::xfs_geometry(directory.as_fd()) {
        Ok(geometry) => Ok(Some(geometry)),
        Err(error) if error.raw_os_error() == Some(Errno::ENOTTY as i32) => Ok(None),
        Err(source) => Err(XfsError::Ask { path: path.clone(), source }),
    }
}
