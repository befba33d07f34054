//! Metrics as the command line or the configuration wants them: bound at the start, served until
//! the end.

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::server::{BoundPath, Listener, NodeFacts, SocketAccess};
use crate::app::options::Options;
use crate::app::run::RunError;
use crate::config::Config;
use crate::config::listen::Address;
use crate::metrics::Node;
use crate::metrics::serve::{self, Limits, Socket};
use crate::model::snapshot::Snapshot;

pub struct MetricsListener {
    socket: Socket,
    /// A unix socket is removed with it.
    _path: Option<BoundPath>,
}

/// None where nobody asked for metrics. The command line comes before the configuration.
pub async fn bind(options: &Options, config: &Config) -> Result<Option<MetricsListener>, RunError> {
    let Some(address) = options
        .metrics_listen
        .clone()
        .or_else(|| config.metrics.address())
    else {
        return Ok(None);
    };
    let refused = |source| RunError::Metrics {
        address: address.to_string(),
        source,
    };
    let scrapes = match &address {
        Address::Tcp(at) => {
            let socket = TcpListener::bind(at).await.map_err(refused)?;
            // Port 0 is one that is free.
            let bound = socket.local_addr().map_err(refused)?;
            tracing::info!(address = %bound, "metrics are served");
            MetricsListener {
                socket: Socket::Tcp(socket),
                _path: None,
            }
        }
        Address::Unix(path) => {
            let (socket, bound) = Listener::bind(path, SocketAccess::Group)
                .await?
                .into_parts();
            tracing::info!(socket = %path.display(), "metrics are served");
            MetricsListener {
                socket: Socket::Unix(socket),
                _path: Some(bound),
            }
        }
    };
    Ok(Some(scrapes))
}

impl MetricsListener {
    pub fn serve(
        self,
        facts: &NodeFacts,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let NodeFacts {
            name,
            kernel,
            version,
            started,
            ..
        } = facts.clone();
        let node = Node {
            name,
            kernel,
            version,
            started,
        };
        async move {
            let MetricsListener { socket, _path } = self;
            serve::serve(socket, node, snapshots, Limits::default(), stop).await;
        }
    }
}
