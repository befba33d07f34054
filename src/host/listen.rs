//! Listening sockets: binds unix sockets safely, and accepts connections in a loop.
//!
//! In: a path, and who may connect. Out: connections, and a listening socket whose file is removed
//! when the socket is dropped. The socket of a live process is never replaced; a socket that a dead
//! process left never prevents a start. Rules in unix(7).
//!
//! Two processes that start at once would both find a dead process's socket and both replace it: one
//! of them would then serve nobody. A lock puts them in order. It is in a directory of its own, because
//! other users, and pods that mount the socket's directory, could hold a lock on that forever.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_stream::Stream;

use crate::lock_file::{LockFile, LockFileError, LockHolder};

/// sun_path has 108 bytes, including the terminating zero (unix(7)).
const MAX_PATH: usize = 107;
/// A live process answers from memory: ample even on a loaded machine.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait for another process that binds a socket under the same lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The only file in a directory of locks.
const LOCK_NAME: &str = "bind";
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// Pause after accept(2) failed for lack of descriptors or memory: an immediate retry would fail
/// too.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Whether the process behind an existing socket answers on this connection.
pub(crate) type ResponseProbe = fn(UnixStream) -> Pin<Box<dyn Future<Output = bool> + Send>>;

#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    pub mode: u32,
    /// The group of the socket, where it exists.
    pub group: Option<&'static str>,
    /// Whether to create a missing directory, with mode 0755. Only one level: its parent belongs to
    /// the system.
    pub create_directory: bool,
    /// An existing socket that accepts connections is in use, unless this probe fails.
    pub probe: Option<ResponseProbe>,
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("the socket path {} has {length} bytes, at most {MAX_PATH} are possible: choose a shorter one", path.display())]
    TooLong { path: PathBuf, length: usize },
    #[error("the socket path {} has no file name", .0.display())]
    NotAFile(PathBuf),
    #[error("another process listens on {}: stop it first, or give another path", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is no socket: remove it, or give another path", .0.display())]
    NotASocket(PathBuf),
    #[error(
        "{holder} has been creating a socket for {} s, and has the lock in {}: end it if it hangs, then start again",
        LOCK_TIMEOUT.as_secs(),
        directory.display()
    )]
    Busy { directory: PathBuf, holder: LockHolder },
    #[error("taking the lock for creating sockets")]
    Lock(#[source] LockFileError),
    #[error("{operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_error<'a, E: Into<io::Error>>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(E) -> ListenError + 'a {
    move |source| ListenError::Io { operation, path: path.to_owned(), source: source.into() }
}

/// The path and the inode of a bound socket.
#[derive(Clone, Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to this socket.
    pub fn is_ours(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }
}

/// Removes the socket when dropped, unless another process has replaced it.
#[derive(Debug)]
pub struct SocketGuard(SocketFile);

impl SocketGuard {
    pub fn file(&self) -> &SocketFile {
        &self.0
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        let path = self.0.path();
        if self.0.is_ours()
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(socket = %path.display(), %error, "the socket could not be removed; the next start replaces it");
        }
    }
}

#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    guard: SocketGuard,
}

/// The lock of the processes that create sockets beside `socket`, of one user: a change of the user
/// is no reason to refuse a start. The kubelet's plugin watcher ignores names with a leading dot.
pub fn lock_directory(socket: &Path) -> PathBuf {
    parent(socket).join(format!(".diskvitals.lock-{}", nix::unistd::geteuid()))
}

fn parent(socket: &Path) -> &Path {
    socket.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Listener {
    /// Must be called within a tokio runtime. The socket is created under a temporary name and then
    /// renamed, so that a client finds the old one or the new one. `locks`: the `lock_directory` of
    /// a socket whose directory no pod of others mounts; created if it is missing.
    pub async fn bind(
        path: &Path,
        locks: &Path,
        options: SocketOptions,
    ) -> Result<Listener, ListenError> {
        let length = path.as_os_str().as_bytes().len();
        if length > MAX_PATH {
            return Err(ListenError::TooLong { path: path.to_owned(), length });
        }
        if path.file_name().is_none() {
            return Err(ListenError::NotAFile(path.to_owned()));
        }
        let directory = parent(path);
        if options.create_directory {
            create_directory(directory)?;
        }
        let open_directory = std::fs::File::open(directory)
            .map_err(io_error("opening the socket's directory", directory))?;
        // Held until the socket is renamed: two processes that start at once probe one after the
        // other.
        let _lock = lock(locks).await?;
        check_replaceable(path, options.probe).await?;
        bind_temporary(path, directory, &open_directory, options)
    }

    pub fn file(&self) -> &SocketFile {
        self.guard.file()
    }

    /// The socket is removed when the guard is dropped.
    pub fn into_incoming(self) -> (Incoming<UnixListener>, SocketGuard) {
        let name = self.file().path().display().to_string();
        (Incoming::new(self.socket, name), self.guard)
    }
}

fn create_directory(directory: &Path) -> Result<(), ListenError> {
    match std::fs::DirBuilder::new().mode(0o755).create(directory) {
        // The umask does not apply to this call.
        Ok(()) => std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))
            .map_err(io_error("setting the mode of", directory)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io_error("creating the socket's directory", directory)(error)),
    }
}

async fn lock(directory: &Path) -> Result<LockFile, ListenError> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match LockFile::acquire_in_private(directory, LOCK_NAME) {
            Ok(lock) => return Ok(lock),
            Err(LockFileError::Held { .. }) if Instant::now() < deadline => {}
            Err(LockFileError::Held { holder, .. }) => {
                return Err(ListenError::Busy { directory: directory.to_owned(), holder });
            }
            Err(error) => return Err(ListenError::Lock(error)),
        }
        sleep(LOCK_INTERVAL).await;
    }
}

/// Succeeds if the path is free, or has the socket of a dead process.
async fn check_replaceable(path: &Path, probe: Option<ResponseProbe>) -> Result<(), ListenError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("looking at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    let answers = async {
        match (UnixStream::connect(path).await, probe) {
            (Ok(stream), Some(probe)) => Ok(probe(stream).await),
            (Ok(_), None) => Ok(true),
            (Err(error), probe) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(false),
                // The backlog is full: a process has the socket open and does not accept.
                io::ErrorKind::WouldBlock => Ok(probe.is_none()),
                _ => Err(io_error("connecting to", path)(error)),
            },
        }
    };
    let in_use = match timeout(PROBE_TIMEOUT, answers).await {
        Ok(answers) => answers?,
        Err(_) => probe.is_none(),
    };
    if in_use {
        return Err(ListenError::InUse(path.to_owned()));
    }
    tracing::info!(socket = %path.display(), "replacing the socket of a process that does not answer");
    Ok(())
}

fn bind_temporary(
    path: &Path,
    directory: &Path,
    open_directory: &std::fs::File,
    options: SocketOptions,
) -> Result<Listener, ListenError> {
    // The kubelet's plugin watcher ignores names with a leading dot.
    let name = format!(".diskvitals.{}", std::process::id());
    let temporary = directory.join(&name);
    // The temporary path may be too long where the final one is not; the descriptor's path is
    // short.
    let bindable = if temporary.as_os_str().as_bytes().len() <= MAX_PATH {
        temporary.clone()
    } else {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", open_directory.as_raw_fd()))
    };
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("removing", &temporary)(error));
        }
        _ => {}
    }
    let socket = UnixListener::bind(&bindable).map_err(io_error("binding", path))?;
    let placed = rename_into_place(&temporary, path, options);
    if placed.is_err() {
        // The error of the rename is reported; the next start replaces a leftover file.
        let _ = std::fs::remove_file(&temporary);
    }
    Ok(Listener { socket, guard: SocketGuard(placed?) })
}

fn rename_into_place(
    temporary: &Path,
    path: &Path,
    options: SocketOptions,
) -> Result<SocketFile, ListenError> {
    std::fs::set_permissions(temporary, std::fs::Permissions::from_mode(options.mode))
        .map_err(io_error("setting the mode of", path))?;
    // Without the group, or permission to set it, only the owner can connect, which is safe.
    let group = options.group.and_then(|name| nix::unistd::Group::from_name(name).ok().flatten());
    if let Some(group) = group
        && let Err(error) = chown(temporary, None, Some(group.gid.as_raw()))
    {
        tracing::warn!(socket = %path.display(), group = group.name, %error, "the group of the socket could not be set");
    }
    let found = std::fs::symlink_metadata(temporary).map_err(io_error("looking at", temporary))?;
    std::fs::rename(temporary, path).map_err(io_error("renaming the socket to", path))?;
    Ok(SocketFile { path: path.to_owned(), identity: (found.dev(), found.ino()) })
}

/// A socket that accepts connections.
pub trait Accept: Unpin {
    type Connection;
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Connection>>;
    fn client(connection: &Self::Connection) -> Client;
}

/// Who is at the other end, as far as the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Of IPv6 the network, within which a host chooses its addresses.
    Address(Option<IpAddr>),
    Uid(Option<u32>),
}

const IPV6_NETWORK: u128 = !0 << 64;

impl Accept for UnixListener {
    type Connection = UnixStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        UnixListener::poll_accept(self, cx).map_ok(|(stream, _)| stream)
    }

    fn client(stream: &UnixStream) -> Client {
        Client::Uid(stream.peer_cred().ok().map(|cred| cred.uid()))
    }
}

impl Accept for TcpListener {
    type Connection = TcpStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        TcpListener::poll_accept(self, cx).map_ok(|(stream, _)| stream)
    }

    fn client(stream: &TcpStream) -> Client {
        let network = |address: IpAddr| match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & IPV6_NETWORK).into()),
            v4 => v4,
        };
        Client::Address(stream.peer_addr().ok().map(|at| network(at.ip())))
    }
}

/// The connections of a socket. A failing accept(2) is logged once and retried after a pause.
#[derive(Debug)]
pub struct Incoming<L> {
    listener: L,
    /// For log messages.
    name: String,
    backoff: Option<Pin<Box<Sleep>>>,
    is_failing: bool,
}

impl<L: Accept> Incoming<L> {
    pub fn new(listener: L, name: String) -> Incoming<L> {
        Incoming { listener, name, backoff: None, is_failing: false }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next connection. Cancel-safe.
    pub async fn accept(&mut self) -> L::Connection {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<L::Connection> {
        loop {
            if let Some(pause) = &mut self.backoff {
                ready!(pause.as_mut().poll(cx));
                self.backoff = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok(connection) => {
                    self.is_failing = false;
                    return Poll::Ready(connection);
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::warn!(socket = self.name, %error, "accepting connections fails");
                    }
                    self.backoff = Some(Box::pin(sleep(ACCEPT_BACKOFF)));
                }
            }
        }
    }
}

impl<L: Accept> Stream for Incoming<L> {
    type Item = io::Result<L::Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_accept(cx).map(|connection| Some(Ok(connection)))
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{Flock, FlockArg};

    use super::*;

    const OPTIONS: SocketOptions =
        SocketOptions { mode: 0o600, group: None, create_directory: false, probe: None };

    #[tokio::test]
    async fn a_lock_on_the_sockets_directory_prevents_no_start() {
        let dir = tempfile::tempdir().unwrap();
        let open = || std::fs::File::open(dir.path()).unwrap();
        let _held = Flock::lock(open(), FlockArg::LockExclusiveNonblock).unwrap();
        Flock::lock(open(), FlockArg::LockExclusiveNonblock).expect_err("the directory is locked");
        let path = dir.path().join("s");
        let bound = Listener::bind(&path, &lock_directory(&path), OPTIONS).await;
        assert!(bound.unwrap().file().is_ours());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_keeps_the_lock_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let locks = lock_directory(&dir.path().join("s"));
        let held = lock(&locks).await.unwrap();
        let error = lock(&locks).await.unwrap_err().to_string();
        let holder = format!("process {} (", std::process::id());
        assert!(error.starts_with(&holder), "{error}");
        assert!(error.contains(&locks.display().to_string()), "{error}");
        drop(held);
        lock(&locks).await.unwrap();
    }
}
