//! A unix socket, bound so that two live daemons never share a path and a dead one's socket is
//! never in the way.
//!
//! In: a path. Out: a listening socket, made under a temporary name and renamed into place, so that
//! a client sees the old one or the new one and never none. Rules in unix(7).

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use tokio::net::{UnixListener, UnixStream};

use crate::api::client;

/// sun_path has 108 bytes, one of them the closing zero (unix(7)).
const MAX_PATH: usize = 107;
/// A live daemon answers from memory: this is ample also on a loaded machine.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Another daemon that binds the same path right now.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketAccess {
    /// 0660, with the group `diskvitals` where there is one.
    Group,
    /// 0666: who may call is decided call by call, and the folder decides who can reach it.
    Anyone,
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("the socket path {} has {length} bytes, at most {MAX_PATH} are possible: choose a shorter one", path.display())]
    TooLong { path: PathBuf, length: usize },
    #[error("the socket path {} has no file name", .0.display())]
    NotAFile(PathBuf),
    #[error("a diskvitalsd is already running and answers on {}: stop it first, or give another --socket", .0.display())]
    AlreadyRunning(PathBuf),
    #[error("{} exists and is no socket: remove it, or give another --socket", .0.display())]
    NotASocket(PathBuf),
    #[error("another daemon is just now making a socket in {}", .0.display())]
    Busy(PathBuf),
    #[error("{operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_error<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> ListenError + 'a {
    move |source| ListenError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

/// Where a socket of ours is, and which inode it was.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    identity: (u64, u64),
}

impl BoundPath {
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for BoundPath {
    /// Removes the socket, unless a successor has put its own in the place.
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(socket = %self.path.display(), %error, "the socket could not be removed; the next start replaces it");
        }
    }
}

#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: BoundPath,
}

impl Listener {
    /// Must be called within a tokio runtime. A socket that refuses connections, or accepts them
    /// and does not answer within a second (a predecessor that is dying), is replaced; one that
    /// answers is a live daemon.
    pub async fn bind(path: &Path, who: SocketAccess) -> Result<Listener, ListenError> {
        let length = path.as_os_str().as_bytes().len();
        if length > MAX_PATH {
            return Err(ListenError::TooLong {
                path: path.to_owned(),
                length,
            });
        }
        if path.file_name().is_none() {
            return Err(ListenError::NotAFile(path.to_owned()));
        }
        let dir = path
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        make_dir(dir)?;
        // Held until the socket is in its place: two daemons that start at once look one after the
        // other.
        let lock = lock(dir).await?;
        remove_stale_socket(path).await?;
        let bound = bind_temporary(path, dir, &lock, who)?;
        drop(lock);
        Ok(bound)
    }

    pub fn path(&self) -> &Path {
        &self.path.path
    }

    /// The path is removed when what holds it goes.
    pub fn into_parts(self) -> (UnixListener, BoundPath) {
        (self.socket, self.path)
    }
}

/// One level: what is above belongs to the system, and its absence is somebody's mistake.
fn make_dir(dir: &Path) -> Result<(), ListenError> {
    match std::fs::DirBuilder::new().mode(0o755).create(dir) {
        Ok(()) => std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
            .map_err(io_error("setting the mode of", dir)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io_error("creating the socket's folder", dir)(error)),
    }
}

async fn lock(dir: &Path) -> Result<Flock<std::fs::File>, ListenError> {
    let mut file =
        std::fs::File::open(dir).map_err(io_error("opening the socket's folder", dir))?;
    let patience = tokio::time::Instant::now() + LOCK_TIMEOUT;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) if tokio::time::Instant::now() > patience => {
                return Err(ListenError::Busy(dir.to_owned()));
            }
            Err((back, nix::errno::Errno::EWOULDBLOCK)) => file = back,
            Err((_, error)) => {
                return Err(io_error("locking the socket's folder", dir)(error.into()));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn remove_stale_socket(path: &Path) -> Result<(), ListenError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("looking at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    // connect(2) on a unix socket waits when the backlog is full: a process that accepts nothing is
    // as dead as one that does not answer.
    let answers = tokio::time::timeout(PROBE_TIMEOUT, async {
        match UnixStream::connect(path).await {
            Ok(stream) => Ok(client::is_responding(stream).await),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(io_error("connecting to", path)(error)),
        }
    });
    match answers.await {
        Ok(Ok(true)) => Err(ListenError::AlreadyRunning(path.to_owned())),
        Ok(Ok(false)) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_) => {
            tracing::warn!(socket = %path.display(), "replacing the socket of a daemon that does not answer");
            Ok(())
        }
    }
}

fn bind_temporary(
    path: &Path,
    dir: &Path,
    open_dir: &std::fs::File,
    who: SocketAccess,
) -> Result<Listener, ListenError> {
    use std::os::fd::AsRawFd;
    let name = format!(".diskvitals.{}", std::process::id());
    let temporary = dir.join(&name);
    // The temporary name may be too long where the final one is not: the descriptor's name is
    // always short enough.
    let bindable = if temporary.as_os_str().as_bytes().len() <= MAX_PATH {
        temporary.clone()
    } else {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", open_dir.as_raw_fd()))
    };
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("removing", &temporary)(error));
        }
        _ => {}
    }
    let socket = UnixListener::bind(&bindable).map_err(io_error("binding", path))?;
    let placed = rename_into_place(&temporary, path, who);
    if placed.is_err() {
        // The error that matters is the one that is returned; what is left is replaced at the next
        // start.
        let _ = std::fs::remove_file(&temporary);
    }
    Ok(Listener {
        socket,
        path: BoundPath {
            path: path.to_owned(),
            identity: placed?,
        },
    })
}

fn rename_into_place(
    temporary: &Path,
    path: &Path,
    who: SocketAccess,
) -> Result<(u64, u64), ListenError> {
    let mode = match who {
        SocketAccess::Group => 0o660,
        SocketAccess::Anyone => 0o666,
    };
    std::fs::set_permissions(temporary, std::fs::Permissions::from_mode(mode))
        .map_err(io_error("setting the mode of", path))?;
    if who == SocketAccess::Group {
        // Without the group (or the right to give it) only root can connect: that is safe, and
        // said.
        let group = nix::unistd::Group::from_name(client::SOCKET_GROUP)
            .ok()
            .flatten();
        if let Some(group) = group
            && let Err(error) = std::os::unix::fs::chown(temporary, None, Some(group.gid.as_raw()))
        {
            tracing::warn!(socket = %path.display(), group = client::SOCKET_GROUP, %error, "the socket could not be given to its group");
        }
    }
    let found = std::fs::symlink_metadata(temporary).map_err(io_error("looking at", temporary))?;
    std::fs::rename(temporary, path).map_err(io_error("renaming the socket to", path))?;
    Ok((found.dev(), found.ino()))
}
