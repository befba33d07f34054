//! Enters the host's mount namespace, so that mounts which a pod or a hardened unit hides are
//! visible, and then drops privileges.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

use crate::root::HostRoot;

#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    #[error("entering the root of the host's mount namespace")]
    EnterRoot(#[source] io::Error),
    #[error("volumes are probed in the daemon's own mount namespace, not PID 1's ({}: {error}): what is mounted only there is not reached", host.display())]
    NotEntered { host: PathBuf, error: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum CapabilityError {
    #[error("reading this process's capabilities")]
    Read(#[source] CapsError),
    #[error("giving up {0} capabilities")]
    Drop(&'static str, #[source] CapsError),
    #[error("setting no_new_privs")]
    NoNewPrivileges(#[source] Errno),
}

/// Moves this single-threaded process into the mount namespace of the host's PID 1. An error is a
/// limitation: the process then stays in its own namespace.
pub fn enter_host_mounts(root: &HostRoot) -> Result<(), NamespaceError> {
    let host = root.at("/proc/1/ns/mnt");
    let error = match (std::fs::metadata(&host), std::fs::metadata("/proc/self/ns/mnt")) {
        (Ok(theirs), Ok(ours)) if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) => {
            return Ok(());
        }
        (Ok(_), _) => match File::open(&host).and_then(|namespace| {
            setns(namespace, CloneFlags::CLONE_NEWNS).map_err(io::Error::from)
        }) {
            // setns(2) sets the root and the working directory to those of the new namespace.
            Ok(()) => return std::env::set_current_dir("/").map_err(NamespaceError::EnterRoot),
            Err(error) => error,
        },
        (Err(error), _) => error,
    };
    // If PID 1's namespaces cannot be read: equal mount tables mean the same namespace.
    match (root.read("/proc/1/mountinfo"), std::fs::read("/proc/self/mountinfo")) {
        (Ok(theirs), Ok(ours)) if theirs == ours => Ok(()),
        _ => Err(NamespaceError::NotEntered { host, error }),
    }
}

/// Keeps only the capabilities in `wanted`, for this process and its children. Succeeds if we are
/// not root: there is nothing to drop.
pub fn limit_capabilities(wanted: &[Capability]) -> Result<(), CapabilityError> {
    let dropping = |what| move |error| CapabilityError::Drop(what, error);
    let held = caps::read(None, CapSet::Permitted).map_err(CapabilityError::Read)?;
    if held.contains(&Capability::CAP_SETPCAP) {
        for unwanted in caps::read(None, CapSet::Bounding)
            .map_err(dropping("bounding"))?
            .iter()
            .filter(|held| !wanted.contains(held))
        {
            caps::drop(None, CapSet::Bounding, *unwanted).map_err(dropping("bounding"))?;
        }
    }
    let kept: CapsHashSet = held.into_iter().filter(|held| wanted.contains(held)).collect();
    caps::clear(None, CapSet::Inheritable).map_err(dropping("inheritable"))?;
    caps::set(None, CapSet::Effective, &kept).map_err(dropping("effective"))?;
    caps::set(None, CapSet::Permitted, &kept).map_err(dropping("permitted"))?;
    nix::sys::prctl::set_no_new_privs().map_err(CapabilityError::NoNewPrivileges)
}
