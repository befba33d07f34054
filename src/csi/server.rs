//! The shim's own socket: bound where only a dead process's socket may be in the way, served, drained, removed.
//!
//! In: a path, a service, the wish to stop. Rules in unix(7).

use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_stream::Stream;

use crate::csi::identity::IdentityService;
use crate::csi::wire::identity_server::IdentityServer;

/// Owner and group: the kubelet and the sidecars are root or share the pod's group.
const MODE: u32 = 0o660;
/// How long calls may take to finish at the end. The rest of the promised five seconds is for the end itself.
const DRAIN: Duration = Duration::from_secs(4);
/// For one answer.
const REQUEST: Duration = Duration::from_secs(10);
const STREAMS_PER_CONNECTION: u32 = 64;
/// Largest request, in bytes.
const MESSAGE: usize = 4 << 20;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after accept(2) failed, for want of descriptors or memory: trying at once would only burn time.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("another process listens on {}: stop it first, or give another --endpoint", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is no socket: remove it, or give another --endpoint", .0.display())]
    NotASocket(PathBuf),
    #[error("{operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn at<E: Into<io::Error>>(operation: &'static str, path: &Path) -> impl FnOnce(E) -> ListenError {
    move |source| ListenError::Io { operation, path: path.to_owned(), source: source.into() }
}

#[derive(Debug, thiserror::Error)]
#[error("serving {}", socket.display())]
pub struct ServeError {
    socket: PathBuf,
    source: tonic::transport::Error,
}

/// Removes the socket at its end, unless a successor has put its own in the place.
#[derive(Debug)]
struct BoundPath {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
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
    /// Must be called within a tokio runtime. The folder must be there: it is the kubelet's.
    pub async fn bind(path: &Path) -> Result<Listener, ListenError> {
        clear_the_way(path).await?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(at("making a socket for", path))?;
        let address = UnixAddr::new(path).map_err(at("naming", path))?;
        bind(fd.as_raw_fd(), &address).map_err(at("binding", path))?;
        // Before listen(2): nobody can connect while the mode is still the umask's.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE)).map_err(at("setting the mode of", path))?;
        let found = std::fs::symlink_metadata(path).map_err(at("looking at", path))?;
        let bound = BoundPath { path: path.to_owned(), identity: (found.dev(), found.ino()) };
        listen(&fd, Backlog::MAXCONN).map_err(at("listening on", path))?;
        let socket = UnixListener::from_std(fd.into()).map_err(at("registering", path))?;
        Ok(Listener { socket, path: bound })
    }
}

async fn clear_the_way(path: &Path) -> Result<(), ListenError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at("looking at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(ListenError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    match UnixStream::connect(path).await.map_err(|error| (error.kind(), error)) {
        // WouldBlock: the backlog of a living process is full.
        Ok(_) | Err((io::ErrorKind::WouldBlock, _)) => Err(ListenError::InUse(path.to_owned())),
        Err((io::ErrorKind::ConnectionRefused, _)) => {
            tracing::info!(socket = %path.display(), "replacing a socket that nobody listens on");
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("removing", path)(error)),
                _ => Ok(()),
            }
        }
        Err((io::ErrorKind::NotFound, _)) => Ok(()),
        Err((_, error)) => Err(at("connecting to", path)(error)),
    }
}

/// Serves until `stop` completes, then lets calls finish for [`DRAIN`] and removes the socket where it is still ours.
pub async fn serve(listener: Listener, identity: IdentityService, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    let Listener { socket, path } = listener;
    let (stopping, mut stopped) = watch::channel(false);
    let router = tonic::transport::Server::builder()
        .timeout(REQUEST)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(IdentityServer::new(identity).max_decoding_message_size(MESSAGE));
    let mut serving = std::pin::pin!(router.serve_with_incoming_shutdown(Incoming::new(socket, &path.path), async move {
        // An error: the sender has gone, which is the end as well.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }));
    let failed = |source| ServeError { socket: path.path.clone(), source };
    tokio::select! {
        served = &mut serving => return served.map_err(failed),
        () = stop => {}
    }
    stopping.send_replace(true);
    // Whoever has not finished by then is cut off when the runtime ends.
    tokio::time::timeout(DRAIN, serving).await.unwrap_or(Ok(())).map_err(failed)
}

/// Connections as they come in; a failing accept(2) is logged once and tried again after a pause.
struct Incoming {
    listener: UnixListener,
    socket: PathBuf,
    pause: Option<Pin<Box<Sleep>>>,
    failing: bool,
}

impl Incoming {
    fn new(listener: UnixListener, socket: &Path) -> Incoming {
        Incoming { listener, socket: socket.to_owned(), pause: None, failing: false }
    }
}

impl Stream for Incoming {
    type Item = io::Result<UnixStream>;

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
                    return Poll::Ready(Some(Ok(stream)));
                }
                Err(error) => {
                    if !this.failing {
                        this.failing = true;
                        tracing::warn!(socket = %this.socket.display(), %error, "accepting connections fails");
                    }
                    this.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}
