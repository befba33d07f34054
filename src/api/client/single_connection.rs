//! One connection that is not made anew by itself, and the news of its end: for a client that
//! greets its partner on every new connection.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::transport::{Endpoint, Uri};

use crate::api::client::{Client, ClientError, connect_stream};

/// When a connection is over, whoever ended it.
pub struct ConnectionClosed(oneshot::Receiver<Infallible>);

impl ConnectionClosed {
    pub async fn wait(&mut self) {
        // Nothing is ever sent: it ends when the stream, which holds the other side, is dropped.
        let _ = (&mut self.0).await;
    }
}

impl Client {
    /// Like [`Client::connect`], for this one connection: when that is over every call says so.
    pub async fn connect_single(
        path: &Path,
        timeout: Duration,
    ) -> Result<(Client, ConnectionClosed), ClientError> {
        let (told, over) = oneshot::channel();
        let first = Arc::new(Mutex::new(Some(TrackedStream {
            stream: connect_stream(path, timeout).await?,
            _closed: told,
        })));
        let connector = tower::service_fn(move |_: Uri| {
            let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let over = || io::Error::new(io::ErrorKind::NotConnected, "the connection is over");
            std::future::ready(first.map(TokioIo::new).ok_or_else(over))
        });
        let channel =
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        Ok((
            Client {
                channel,
                path: path.to_owned(),
                timeout,
            },
            ConnectionClosed(over),
        ))
    }

    /// The same connection with another time-out for each call.
    pub fn with_timeout(&self, timeout: Duration) -> Client {
        Client {
            timeout,
            ..self.clone()
        }
    }
}

struct TrackedStream {
    stream: UnixStream,
    _closed: oneshot::Sender<Infallible>,
}

impl AsyncRead for TrackedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
