//! The sockets that the shim serves. In: a path, services, a stop future. Out: served calls; at the
//! end running calls finish and the socket is removed.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;

use crate::authority::AuthorityRewriter;
use diskvitals_host::listen::{self, ListenError, Listener, SocketGuard, SocketOptions};
use diskvitals_wire::unimplemented::NameUnimplemented;

/// A socket's mode for owner and group: the kubelet and the sidecars are root or share the pod's
/// group.
pub(crate) const MODE_GROUP: u32 = 0o660;
/// A socket's mode for its owner only, as in node-driver-registrar (umask 0077).
pub(crate) const MODE_OWNER: u32 = 0o600;
/// How long running calls may take at shutdown. The rest of the guaranteed five seconds is for the
/// shutdown itself.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);
/// Default time limit for one answer.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const STREAMS_PER_CONNECTION: u32 = 64;
/// Largest request, in bytes; it is set for each service.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
#[error("serving {}", socket.display())]
pub(crate) struct ServeError {
    socket: PathBuf,
    source: tonic::transport::Error,
}

/// Must be called within a tokio runtime. The directory must exist: it belongs to the kubelet.
pub(crate) async fn bind(path: &Path, mode: u32) -> Result<Listener, ListenError> {
    let options = SocketOptions { mode, group: None, create_directory: false, probe: None };
    Listener::bind(path, &listen::lock_directory(path), options).await
}

/// The connections of a socket, each with a valid `:authority`. The socket is removed when the
/// guard is dropped.
pub(crate) fn connections(
    listener: Listener,
) -> (impl Stream<Item = io::Result<AuthorityRewriter<UnixStream>>>, SocketGuard) {
    let (incoming, guard) = listener.into_incoming();
    let connections = incoming.map(|stream| stream.map(AuthorityRewriter::new));
    (connections, guard)
}

/// Completes at a stop; several sockets of one process can wait for the same signal.
pub(crate) async fn wait_stopped(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender was dropped, which is also a stop.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Serves until `stop` completes, waits up to [`DRAIN_TIMEOUT`] for calls, and removes the socket
/// if it is still ours. `request` is the time limit for one answer.
pub(crate) async fn serve(
    listener: Listener,
    services: Routes,
    request: Duration,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (connections, guard) = connections(listener);
    let (stopping, stopped) = watch::channel(false);
    let router = tonic::transport::Server::builder()
        .timeout(request)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .layer(NameUnimplemented)
        .add_routes(services);
    let mut serving =
        std::pin::pin!(router.serve_with_incoming_shutdown(connections, wait_stopped(stopped)));
    let failed = |source| ServeError { socket: guard.file().path().to_owned(), source };
    tokio::select! {
        served = &mut serving => return served.map_err(failed),
        () = stop => {}
    }
    stopping.send_replace(true);
    // The end of the runtime aborts calls that are unfinished after the time limit.
    tokio::time::timeout(DRAIN_TIMEOUT, serving).await.unwrap_or(Ok(())).map_err(failed)
}
