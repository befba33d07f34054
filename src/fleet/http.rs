//! `/healthz`, `/readyz` and `/metrics` of the controller.
//!
//! In: the owner's state. Out: answers. Healthy: the owner's loop runs. Ready: all watched objects
//! are known, whether this replica leads or not.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming as Body;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::metrics::{State, render};
use diskvitals_exposition::server::{
    Limits, PATH, PLAIN, plain_response, response_with_type, serve_with,
};
use diskvitals_host::listen::{Incoming, Listener, SocketOptions, lock_directory};
use diskvitals_host::listen_address::Address;

/// The owner's loop runs every few seconds.
const STALLED_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("listening on {address}")]
    Tcp {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("listening on {address}")]
    Unix {
        address: String,
        #[source]
        source: diskvitals_host::listen::ListenError,
    },
}

pub(crate) enum Bound {
    Nowhere,
    Tcp(Incoming<TcpListener>),
    Unix(Listener),
}

pub(crate) async fn bind(address: Option<&Address>) -> Result<Bound, ListenError> {
    let Some(address) = address else {
        return Ok(Bound::Nowhere);
    };
    let name = address.to_string();
    match address {
        Address::Tcp(at) => {
            let refused = |source| ListenError::Tcp { address: name.clone(), source };
            let socket = TcpListener::bind(at).await.map_err(refused)?;
            let bound = socket.local_addr().map_err(refused)?;
            tracing::info!(address = %bound, "metrics and probes are served");
            Ok(Bound::Tcp(Incoming::new(socket, bound.to_string())))
        }
        Address::Unix(path) => {
            let options =
                SocketOptions { mode: 0o660, group: None, create_directory: false, probe: None };
            let listener = Listener::bind(path, &lock_directory(path), options).await;
            listener.map(Bound::Unix).map_err(|source| ListenError::Unix { address: name, source })
        }
    }
}

pub(crate) async fn serve(bound: Bound, states: watch::Receiver<Arc<State>>) -> Infallible {
    let answer = move |request: Request<Body>| {
        let state = states.borrow().clone();
        async move { respond(request.uri().path(), &state) }
    };
    let never = std::future::pending::<()>();
    match bound {
        Bound::Nowhere => {}
        Bound::Tcp(incoming) => serve_with(incoming, Limits::default(), answer, never).await,
        Bound::Unix(listener) => {
            let (incoming, _guard) = listener.into_incoming();
            serve_with(incoming, Limits::default(), answer, never).await;
        }
    }
    // The servers end with `never` only.
    std::future::pending().await
}

fn respond(path: &str, state: &Arc<State>) -> Response<Full<Bytes>> {
    let is_running = state.at.is_some_and(|at| at.elapsed() < STALLED_AFTER);
    match path {
        "/healthz" if is_running => plain_response(StatusCode::OK, "ok\n"),
        "/healthz" => plain_response(StatusCode::SERVICE_UNAVAILABLE, "the main loop is stalled\n"),
        "/readyz" if state.is_synced => plain_response(StatusCode::OK, "ok\n"),
        "/readyz" => plain_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "the watched objects are not known yet\n",
        ),
        PATH => match render(state) {
            Ok(text) => response_with_type(Full::new(text.into()), PLAIN),
            Err(std::fmt::Error) => plain_response(
                StatusCode::INTERNAL_SERVER_ERROR,
                "writing the metrics went wrong\n",
            ),
        },
        _ => plain_response(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n"),
    }
}
