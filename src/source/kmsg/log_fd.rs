//! `LogFd`: the descriptor from which records are read: the device, a pipe or a file at its path,
//! or a program's output.
//!
//! In: a path below the host root, or a pipe. Out: bytes, and readiness. Never blocks, except for a
//! recording's file.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::OFlag;

use diskvitals_host::async_fd;

/// The form in which bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFdKind {
    /// Each read returns one record.
    Device,
    /// A pipe: reads may split a record anywhere.
    Stream,
    /// A file that is read once.
    Recording,
}

#[derive(Debug)]
pub struct LogFd {
    pub kind: LogFdKind,
    fd: Fd,
}

#[derive(Debug)]
enum Fd {
    /// Registered with tokio only while it is waited for: otherwise each record would wake the
    /// thread, also while the reader pauses in a flood.
    Polled(Arc<OwnedFd>),
    /// Not pollable, always readable.
    File(File),
}

impl LogFd {
    pub fn open(path: &Path) -> io::Result<LogFd> {
        let open = |write| {
            File::options()
                .read(true)
                .write(write)
                .custom_flags(OFlag::O_NONBLOCK.bits())
                .open(path)
        };
        let file = open(false)?;
        let of = file.metadata()?.file_type();
        if of.is_file() {
            return Ok(LogFd { kind: LogFdKind::Recording, fd: Fd::File(file) });
        }
        if of.is_fifo() {
            // The daemon also has the pipe open for writing, so that there is no end of file when
            // the writers close it.
            return LogFd::polled(LogFdKind::Stream, open(true)?.into());
        }
        if of.is_char_device() {
            // EPERM: a device that is always readable, such as /dev/null and /dev/zero.
            return LogFd::polled(LogFdKind::Device, file.into()).map_err(|error| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("it is no kernel log: waiting for it: {error}"),
                )
            });
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is neither a device nor a pipe nor a file",
        ))
    }

    /// A program's output.
    pub(crate) fn from_output(fd: OwnedFd) -> io::Result<LogFd> {
        LogFd::polled(LogFdKind::Stream, fd)
    }

    fn polled(kind: LogFdKind, fd: OwnedFd) -> io::Result<LogFd> {
        async_fd::set_nonblocking(&fd)?;
        let fd = Arc::new(fd);
        // Whether it can be waited for at all.
        async_fd::register(fd.clone())?;
        Ok(LogFd { kind, fd: Fd::Polled(fd) })
    }

    /// A descriptor that preserves record boundaries, as the device does.
    #[cfg(test)]
    pub(crate) fn from_datagrams(fd: OwnedFd) -> io::Result<LogFd> {
        LogFd::polled(LogFdKind::Device, fd)
    }

    /// `WouldBlock`: no data at present. 0: end of file.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.fd {
            Fd::Polled(fd) => Ok(nix::unistd::read(fd, buffer)?),
            Fd::File(file) => io::Read::read(&mut &*file, buffer),
        }
    }

    /// Waits for data or the end of file. Cancel-safe.
    pub async fn readable(&self) -> io::Result<()> {
        match &self.fd {
            Fd::Polled(fd) => async_fd::register(fd.clone())?.readable().await.map(drop),
            Fd::File(_) => Ok(()),
        }
    }
}
