//! File descriptors of devices and pipes, for non-blocking reads with tokio.
//!
//! In: a descriptor. Out: the same descriptor, non-blocking, which tokio can await.

use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::io::unix::AsyncFd;

use crate::host::sys;

/// EPERM for a descriptor that is always readable, such as a regular file.
pub(crate) fn nonblocking(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    sys::async_fd(fd)
}
