//! The sockets of the daemon. In: a path and its permissions. Out: a listening socket.

use std::path::Path;

use diskvitals_host::listen::{self, ListenError, Listener, SocketOptions};
use diskvitals_wire::client;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketAccess {
    /// Mode 0660, with the group `diskvitals` where there is one.
    Group,
    /// Mode 0666: each call is authorized by its uid, and the directory limits access to the socket.
    Anyone,
}

/// Must be called within a tokio runtime. Replaces the socket of a daemon that does not respond.
pub async fn bind(path: &Path, access: SocketAccess) -> Result<Listener, ListenError> {
    bind_beside(path, path, access).await
}

/// Another socket of the daemon that has the socket `main`, and the same lock: pods mount the
/// directory of the agent's socket, and an interposer in one of them has uid 0 as well.
pub(crate) async fn bind_beside(
    main: &Path,
    path: &Path,
    access: SocketAccess,
) -> Result<Listener, ListenError> {
    let (mode, group) = match access {
        SocketAccess::Group => (0o660, Some(client::SOCKET_GROUP)),
        SocketAccess::Anyone => (0o666, None),
    };
    let options = SocketOptions {
        mode,
        group,
        create_directory: true,
        probe: Some(|stream| Box::pin(client::is_responding(stream))),
    };
    Listener::bind(path, &listen::lock_directory(main), options).await
}
