//! A server for scrapes: HTTP/1.1, one request per connection.
//!
//! In: a bound socket, a function that answers. Out: its answers. A connection has a few seconds in
//! all, and the number of connections is limited. When all are taken, a newcomer gets the place of the
//! client that has most of them, and of these that for which the server has waited longest: for its
//! request, or to read its answer. A scrape sends its request at once, and is never that one.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;
use tokio::time::timeout;

use diskvitals_host::listen::{Accept, Client, Incoming};
use diskvitals_quota::places::{Activity, Holder, InUse, PlacePermit, Places};

pub const PATH: &str = "/metrics";
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Maximum size of request line and headers; a scraper sends a few hundred bytes.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// While all connections are being answered, how often a newcomer looks for one to replace.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Who holds a place for a connection.
#[derive(Clone)]
struct Scraper(Client);

impl Holder for Scraper {
    const LEVELS: usize = 1;

    fn is_with(&self, other: &Scraper, _level: usize) -> bool {
        self.0 == other.0
    }
}

/// Limits on scrapers. The defaults are for production; tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    /// Time limit of a whole connection, including the transfer of the answer.
    pub connection_timeout: Duration,
    /// How long a scrape waits for the first complete snapshot after a start.
    pub first_snapshot_timeout: Duration,
    /// Time in which connections may finish at shutdown.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let seconds = Duration::from_secs;
        Limits {
            connections: 64,
            connection_timeout: seconds(10),
            first_snapshot_timeout: seconds(5),
            drain_timeout: seconds(1),
        }
    }
}

/// Serves the answers of `respond` until `stop` completes.
pub async fn serve_with<L, F, A>(
    mut incoming: Incoming<L>,
    limits: Limits,
    respond: F,
    stop: impl Future<Output = ()>,
) where
    L: Accept<Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    F: Fn(Request<hyper::body::Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let places = Places::new(limits.connections, limits.connections);
    let mut newcomer = None;
    tokio::pin!(stop);
    loop {
        if let Some(stream) = newcomer.take() {
            let activity = Activity::new();
            match places.acquire(&Scraper(L::client(&stream)), &activity) {
                Some(place) => {
                    let all = limits.connection_timeout;
                    let connection =
                        serve_connection(stream, place, activity, all, respond.clone());
                    connections.spawn(connection);
                    // Its request may be there already: it is read before another newcomer comes.
                    tokio::task::yield_now().await;
                }
                None => newcomer = Some(stream),
            }
        }
        tokio::select! {
            () = &mut stop => break,
            // The result of a connection matters only to its scraper.
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = tokio::time::sleep(RETRY_INTERVAL), if newcomer.is_some() => {}
            stream = incoming.accept(), if newcomer.is_none() => newcomer = Some(stream),
        }
    }
    drop(incoming);
    let drained =
        timeout(limits.drain_timeout, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::debug!("scrapes were cut off at the end");
    }
}

async fn serve_connection<F, A>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut place: PlacePermit<Scraper>,
    activity: Arc<Activity>,
    all: Duration,
    respond: F,
) where
    F: Fn(Request<hyper::body::Incoming>) -> A,
    A: Future<Output = Response<Full<Bytes>>>,
{
    let in_use = Arc::new(Mutex::new(None));
    let stream = AnsweredStream { stream, in_use: in_use.clone() };
    let service = service_fn(move |request| {
        *lock(&in_use) = Some(activity.begin());
        let answer = respond(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(all)
        .keep_alive(false)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let connection = timeout(all, connection);
    let ended = tokio::select! {
        ended = connection => ended,
        _ = place.revoked.wait_for(|revoked| *revoked) => {
            tracing::debug!("a scrape was too slow: another client has got its place");
            return;
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a scrape ended early"),
        Err(_) => tracing::debug!("a scrape did not end in its time"),
    }
}

/// The connection is in use from its request on, until its client does not read the answer.
struct AnsweredStream<S> {
    stream: S,
    in_use: Arc<Mutex<Option<InUse>>>,
}

fn lock(in_use: &Mutex<Option<InUse>>) -> MutexGuard<'_, Option<InUse>> {
    in_use.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> AnsweredStream<S> {
    fn note_written<T>(&self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() {
            *lock(&self.in_use) = None;
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AnsweredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AnsweredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_written(written)
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
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.note_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

pub fn plain_response(status: StatusCode, words: &'static str) -> Response<Full<Bytes>> {
    let mut response = response_with_type(
        Full::new(Bytes::from_static(words.as_bytes())),
        "text/plain; charset=utf-8",
    );
    *response.status_mut() = status;
    response
}

pub fn response_with_type(body: Full<Bytes>, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
