//! The sockets that the shim serves: bound where only a dead process's socket may be in the way,
//! served, drained, removed.
//!
//! In: a path, services, the wish to stop. Knows nothing of what is served. Rules in unix(7).

use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::service::Routes;

use crate::csi::authority::AuthorityRewriter;

/// A socket's mode, owner and group: the kubelet and the sidecars are root or share the pod's
/// group.
pub const MODE_GROUP: u32 = 0o660;
/// A socket's mode, its owner only: as node-driver-registrar makes it (umask 0077).
pub const MODE_OWNER: u32 = 0o600;
/// How long calls may take to finish at the end. The rest of the promised five seconds is for the
/// end itself.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);
/// For one answer, unless the service has reasons of its own.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const STREAMS_PER_CONNECTION: u32 = 64;
/// Largest request, in bytes; each service is told.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after accept(2) failed, for want of descriptors or memory: trying at once would only burn
/// time.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("another process listens on {}: stop it first, or give another path", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is no socket: remove it, or give another path", .0.display())]
    NotASocket(PathBuf),
    #[error("{operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_error<E: Into<io::Error>>(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> ListenError {
    move |source| ListenError::Io {
        operation,
        path: path.to_owned(),
        source: source.into(),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("serving {}", socket.display())]
pub struct ServeError {
    socket: PathBuf,
    source: tonic::transport::Error,
}

/// Removes the socket at its end, unless a successor has put its own in the place.
#[derive(Debug)]
struct SocketGuard(SocketFile);

/// Where a socket is, and which one.
#[derive(Clone, Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Our socket has still its name, so that somebody can find it.
    pub fn is_ours(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        let SocketFile { path, .. } = &self.0;
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
    path: SocketGuard,
}

impl Listener {
    /// Must be called within a tokio runtime. The folder must be there: it is the kubelet's.
    pub async fn bind(path: &Path, mode: u32) -> Result<Listener, ListenError> {
        remove_stale_socket(path).await?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)
            .map_err(io_error("making a socket for", path))?;
        let address = UnixAddr::new(path).map_err(io_error("naming", path))?;
        bind(fd.as_raw_fd(), &address).map_err(io_error("binding", path))?;
        // Before listen(2): nobody can connect while the mode is still the umask's.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .map_err(io_error("setting the mode of", path))?;
        let found = std::fs::symlink_metadata(path).map_err(io_error("looking at", path))?;
        let bound = SocketGuard(SocketFile {
            path: path.to_owned(),
            identity: (found.dev(), found.ino()),
        });
        listen(&fd, Backlog::MAXCONN).map_err(io_error("listening on", path))?;
        let socket = UnixListener::from_std(fd.into()).map_err(io_error("registering", path))?;
        Ok(Listener {
            socket,
            path: bound,
        })
    }

    pub fn socket_file(&self) -> SocketFile {
        self.path.0.clone()
    }

    /// The connections as they come, for whoever serves them otherwise than [`serve`]. The socket
    /// is removed when the second is dropped.
    pub fn connections(
        self,
    ) -> (
        impl Stream<Item = io::Result<AuthorityRewriter<UnixStream>>>,
        impl Sized,
    ) {
        (Incoming::new(self.socket, self.path.0.path()), self.path)
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
    match UnixStream::connect(path)
        .await
        .map_err(|error| (error.kind(), error))
    {
        // WouldBlock: the backlog of a living process is full.
        Ok(_) | Err((io::ErrorKind::WouldBlock, _)) => Err(ListenError::InUse(path.to_owned())),
        Err((io::ErrorKind::ConnectionRefused, _)) => {
            tracing::info!(socket = %path.display(), "replacing a socket that nobody listens on");
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(io_error("removing", path)(error))
                }
                _ => Ok(()),
            }
        }
        Err((io::ErrorKind::NotFound, _)) => Ok(()),
        Err((_, error)) => Err(io_error("connecting to", path)(error)),
    }
}

/// Completes when it is to stop, for each of several sockets of one process.
pub async fn wait_stopped(mut stopped: watch::Receiver<bool>) {
    // An error: the sender has gone, which is the end as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Serves until `stop` completes, then lets calls finish for [`DRAIN`] and removes the socket where
/// it is still ours. `request` is for one answer.
pub async fn serve(
    listener: Listener,
    services: Routes,
    request: Duration,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let Listener { socket, path } = listener;
    let (stopping, mut stopped) = watch::channel(false);
    let router = tonic::transport::Server::builder()
        .timeout(request)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_routes(services);
    let mut serving = std::pin::pin!(router.serve_with_incoming_shutdown(
        Incoming::new(socket, path.0.path()),
        async move {
            // An error: the sender has gone, which is the end as well.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }
    ));
    let failed = |source| ServeError {
        socket: path.0.path().to_owned(),
        source,
    };
    tokio::select! {
        served = &mut serving => return served.map_err(failed),
        () = stop => {}
    }
    stopping.send_replace(true);
    // Whoever has not finished by then is cut off when the runtime ends.
    tokio::time::timeout(DRAIN_TIMEOUT, serving)
        .await
        .unwrap_or(Ok(()))
        .map_err(failed)
}

/// Connections as they come in, each such that the kubelet's way to dial does no harm; a failing
/// accept(2) is logged once and tried again after a pause.
struct Incoming {
    listener: UnixListener,
    socket: PathBuf,
    pause: Option<Pin<Box<Sleep>>>,
    failing: bool,
}

impl Incoming {
    fn new(listener: UnixListener, socket: &Path) -> Incoming {
        Incoming {
            listener,
            socket: socket.to_owned(),
            pause: None,
            failing: false,
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<AuthorityRewriter<UnixStream>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(cx));
                this.pause = None;
            }
            match ready!(this.listener.poll_accept(cx)) {
                Ok((stream, _)) => {
                    this.failing = false;
                    return Poll::Ready(Some(Ok(AuthorityRewriter::new(stream))));
                }
                Err(error) => {
                    if !this.failing {
                        this.failing = true;
                        tracing::warn!(socket = %this.socket.display(), %error, "accepting connections fails");
                    }
                    this.pause = Some(Box::pin(tokio::time::sleep(ACCEPT_RETRY_DELAY)));
                }
            }
        }
    }
}
