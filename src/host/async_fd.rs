//! File descriptors of devices and pipes, for non-blocking reads with tokio.
//!
//! In: a descriptor. Out: the same descriptor, non-blocking, which tokio can await.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::io::unix::AsyncFd;

use crate::sys;

pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Registers `fd` with tokio for reading. EPERM for a descriptor that is always readable, such as a
/// regular file.
pub fn register(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    sys::async_fd(fd)
}
