//! The interposer: adds volume health to the answers of any other CSI driver (`--mode interposer
//! --upstream`).
//!
//! In: CSI calls. Out: the upstream driver's answers, byte for byte, with this node's health merged
//! into those with health fields, and local answers to the health calls that the driver does not
//! serve. Health comes from a [`health_source::HealthSource`]. The interposer does not depend on
//! the daemon's protocol or on the binding of its socket. It does not register itself: the driver's
//! own registrar uses its socket.
//!
//! `proxy` handles one call; `raw`, `merge` and `status_limits` change messages and keep their
//! unknown fields; `body`, `grpc`, `upstream_error` and `upstream` transport them.

mod body;
mod daemon_notify;
pub mod grpc;
pub mod health_source;
mod listing;
mod local_replies;
pub mod merge;
pub mod method;
mod proxy;
pub mod raw;
mod reply;
mod response;
mod status_limits;
mod upstream;
mod upstream_driver;
mod upstream_error;
mod volume_tracker;

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

use crate::interposer::daemon_notify::{BYPASS_CHECK_INTERVAL, DaemonNotifier};
use crate::interposer::health_source::{HealthSource, HealthSourceError, LifecycleEvent};
use crate::interposer::method::EnabledHealthApis;
use crate::interposer::proxy::Proxy;
use crate::interposer::upstream::{
    CONNECTION_WINDOW, MAX_HEADER_LIST_BYTES, STREAM_WINDOW, Upstream,
};
use crate::interposer::upstream_driver::UpstreamDriver;
use crate::withdrawal::Withdrawal;

/// How long calls may take to finish at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);
const STREAMS_PER_CONNECTION: u32 = 1024;
/// Keep-alive interval; it detects callers that disappeared without closing their connections.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Settings {
    /// The real driver's socket.
    pub upstream: PathBuf,
    pub health_apis: EnabledHealthApis,
    pub withdrawal: Arc<Withdrawal>,
    /// Interval between two checks for volumes that bypass the interposer.
    pub bypass_check_interval: Duration,
}

impl Settings {
    pub fn new(upstream: PathBuf, health_apis: EnabledHealthApis) -> Settings {
        Settings {
            upstream,
            health_apis,
            withdrawal: Arc::default(),
            bypass_check_interval: BYPASS_CHECK_INTERVAL,
        }
    }
}

pub struct Interposer<W> {
    proxy: Arc<Proxy<W>>,
    events: mpsc::Receiver<LifecycleEvent>,
    bypass_check_interval: Duration,
}

/// The upstream driver's name, queried on demand.
pub struct DriverName<W>(Arc<Proxy<W>>);

impl<W: HealthSource> DriverName<W> {
    pub async fn get(&self) -> Result<String, HealthSourceError> {
        self.0.driver.name().await.map(str::to_owned)
    }
}

impl<W: HealthSource> Interposer<W> {
    /// Creates the interposer without connecting.
    pub fn new(settings: Settings, health_source: Arc<W>) -> Interposer<W> {
        let (notifier, events) = DaemonNotifier::new();
        let driver = UpstreamDriver::new(Upstream::new(settings.upstream));
        Interposer {
            proxy: Arc::new(Proxy::new(
                driver,
                health_source,
                settings.health_apis,
                settings.withdrawal,
                notifier,
            )),
            events,
            bypass_check_interval: settings.bypass_check_interval,
        }
    }

    pub fn driver_name(&self) -> DriverName<W> {
        DriverName(Arc::clone(&self.proxy))
    }

    /// Serves the connections until `stop` completes or the connections end, then waits up to
    /// [`DRAIN_TIMEOUT`] for calls in progress.
    pub async fn serve<S, I>(self, connections: S, stop: impl Future<Output = ()>)
    where
        S: Stream<Item = io::Result<I>>,
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Interposer { proxy, events, bypass_check_interval } = self;
        tracing::info!(upstream = %proxy.driver.upstream.path().display(), "forwarding calls to the upstream driver");
        let delivery =
            daemon_notify::deliver_events(events, &proxy.driver, proxy.health_source.as_ref());
        let watching = daemon_notify::detect_bypass(
            &proxy.driver,
            proxy.health_source.as_ref(),
            &proxy.tracker,
            &proxy.notifier,
            bypass_check_interval,
        );
        tokio::select! {
            () = accept(&proxy, connections, stop) => {}
            () = delivery => {}
            () = watching => {}
        }
    }
}

async fn accept<W, S, I>(proxy: &Arc<Proxy<W>>, connections: S, stop: impl Future<Output = ()>)
where
    W: HealthSource,
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
                served.spawn(serve_connection(Arc::clone(proxy), connection, stopped.clone()));
            }
            // The listener has logged the error.
            Some(Err(_)) => {}
            None => break,
        }
    }
    stopping.send_replace(true);
    let all = async { while served.join_next().await.is_some() {} };
    // Calls that are unfinished after the time limit are aborted.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, all).await;
}

async fn serve_connection<W, I>(
    proxy: Arc<Proxy<W>>,
    connection: I,
    mut stopped: watch::Receiver<bool>,
) where
    W: HealthSource,
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
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        // No header is added to the upstream's answer.
        .auto_date_header(false);
    let service = service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        async move { proxy.handle_call(request).await }
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(connection), service));
    let stop = async {
        // An error means that the sender was dropped, which is also a stop.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    tokio::select! {
        // A broken connection concerns only the caller.
        _ = serving.as_mut() => return,
        () = stop => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
