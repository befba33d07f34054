//! The interposer: our health in front of any other driver's socket
//! (`--mode interposer --upstream`).
//!
//! In: a caller's calls. Out: the upstream driver's answers, byte for byte, with the node's health
//! merged into those that carry health, and answers of our own to the health calls that the driver
//! does not serve. What it knows of health comes from a [`verdict::Witness`]; it knows neither the
//! daemon's wire nor how its own socket is bound, and never registers itself: the driver's own
//! registrar is pointed at it.
//!
//! `calls` is the way of one call; `raw`, `merge` and `laws` change messages without knowing all of
//! them; `body`, `grpc`, `failure` and `upstream` carry them.

mod body;
mod calls;
mod driver;
mod failure;
mod grpc;
mod laws;
mod listing;
mod merge;
pub mod method;
mod ours;
mod raw;
mod reply;
mod seen;
mod telling;
mod upstream;
pub mod verdict;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::{Stream, StreamExt};

use crate::csi::interposer::calls::Proxy;
use crate::csi::interposer::driver::Driver;
use crate::csi::interposer::method::Dialects;
use crate::csi::interposer::telling::{LOOK, Telling};
use crate::csi::interposer::upstream::{CONNECTION_WINDOW, HEADERS, STREAM_WINDOW, Upstream};
use crate::csi::interposer::verdict::{Passing, Witness, WitnessError};

/// How long calls may take to finish at the end.
const DRAIN: Duration = Duration::from_secs(4);
const STREAMS_PER_CONNECTION: u32 = 1024;
/// A caller that has vanished without closing its end holds nothing for longer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Settings {
    /// The real driver's socket.
    pub upstream: PathBuf,
    pub dialects: Dialects,
    /// Between two looks for volumes that did not pass by.
    pub look: Duration,
}

impl Settings {
    pub fn new(upstream: PathBuf, dialects: Dialects) -> Settings {
        Settings {
            upstream,
            dialects,
            look: LOOK,
        }
    }
}

pub struct Interposer<W> {
    proxy: Arc<Proxy<W>>,
    told: mpsc::Receiver<Passing>,
    look: Duration,
}

/// The upstream driver's name, as soon as it can be asked.
pub struct DriverName<W>(Arc<Proxy<W>>);

impl<W: Witness> DriverName<W> {
    pub async fn get(&self) -> Result<String, WitnessError> {
        self.0.driver.name().await.map(str::to_owned)
    }
}

impl<W: Witness> Interposer<W> {
    /// Connects to nobody yet.
    pub fn new(settings: Settings, witness: Arc<W>) -> Interposer<W> {
        let (telling, told) = Telling::new();
        let driver = Driver::new(Upstream::new(settings.upstream));
        Interposer {
            proxy: Arc::new(Proxy::new(driver, witness, settings.dialects, telling)),
            told,
            look: settings.look,
        }
    }

    pub fn driver_name(&self) -> DriverName<W> {
        DriverName(Arc::clone(&self.proxy))
    }

    /// Serves the connections until `stop` completes or there are no more, then lets calls finish
    /// for [`DRAIN`].
    pub async fn serve<S, I>(self, connections: S, stop: impl Future<Output = ()>)
    where
        S: Stream<Item = io::Result<I>>,
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Interposer { proxy, told, look } = self;
        tracing::info!(upstream = %proxy.driver.upstream.path().display(), "calls are passed on to the upstream driver");
        let telling = telling::tell_on(told, &proxy.driver, proxy.witness.as_ref());
        let watching = telling::watch(
            &proxy.driver,
            proxy.witness.as_ref(),
            &proxy.seen,
            &proxy.telling,
            look,
        );
        tokio::select! {
            () = accept(&proxy, connections, stop) => {}
            () = telling => {}
            () = watching => {}
        }
    }
}

async fn accept<W, S, I>(proxy: &Arc<Proxy<W>>, connections: S, stop: impl Future<Output = ()>)
where
    W: Witness,
    S: Stream<Item = io::Result<I>>,
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut connections, mut stop) = (pin!(connections), pin!(stop));
    let (stopping, stopped) = watch::channel(false);
    let mut served = JoinSet::new();
    loop {
        let connection = tokio::select! {
            () = &mut stop => break,
            connection = connections.next() => connection,
            Some(_) = served.join_next(), if !served.is_empty() => continue,
        };
        match connection {
            Some(Ok(connection)) => {
                served.spawn(serve_one(Arc::clone(proxy), connection, stopped.clone()));
            }
            // What can be said of it was said by whoever accepts.
            Some(Err(_)) => {}
            None => break,
        }
    }
    stopping.send_replace(true);
    let all = async { while served.join_next().await.is_some() {} };
    // Whoever has not finished by then is cut off.
    let _ = tokio::time::timeout(DRAIN, all).await;
}

async fn serve_one<W, I>(proxy: Arc<Proxy<W>>, connection: I, mut stopped: watch::Receiver<bool>)
where
    W: Witness,
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS)
        // Nothing is added to what the upstream says.
        .auto_date_header(false);
    let service = service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        async move { proxy.call(request).await }
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(connection), service));
    let stop = async {
        // An error: the sender has gone, which is the end as well.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    tokio::select! {
        // A connection that breaks is its caller's affair.
        _ = serving.as_mut() => return,
        () = stop => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
