//! The metrics endpoint, at the address from the command line or the configuration: bound at the
//! start, served until the end.

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::server::{self, NodeFacts, SocketAccess};
use crate::app::error::RunError;
use crate::app::options::Options;
use crate::metrics::Node;
use crate::metrics::serve;
use diskvitals_config::Config;
use diskvitals_exposition::server::Limits;
use diskvitals_host::listen::{Incoming, Listener};
use diskvitals_host::listen_address::Address;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_quota::refusals::SocketRefusals;

pub(crate) enum MetricsListener {
    Tcp(Incoming<TcpListener>),
    Unix(Listener),
}

/// None if no address is configured. The command line takes precedence over the configuration.
pub(crate) async fn bind(
    options: &Options,
    config: &Config,
) -> Result<Option<MetricsListener>, RunError> {
    let configured = || config.metrics.address();
    let Some(address) = options.metrics_listen.clone().or_else(configured) else {
        return Ok(None);
    };
    let refused = |source| RunError::Metrics { address: address.to_string(), source };
    let scrapes = match &address {
        Address::Tcp(at) => {
            let socket = TcpListener::bind(at).await.map_err(refused)?;
            // Port 0 requests any free port.
            let bound = socket.local_addr().map_err(refused)?;
            tracing::info!(address = %bound, "metrics are served");
            MetricsListener::Tcp(Incoming::new(socket, bound.to_string()))
        }
        Address::Unix(path) => {
            let listener = server::bind_beside(&options.socket, path, SocketAccess::Group).await?;
            tracing::info!(socket = %path.display(), "metrics are served");
            MetricsListener::Unix(listener)
        }
    };
    Ok(Some(scrapes))
}

impl MetricsListener {
    pub(crate) fn serve(
        self,
        facts: &NodeFacts,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        refusals: SocketRefusals,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let node = Node {
            name: facts.name.clone(),
            kernel: facts.kernel.clone(),
            version: facts.version.clone(),
            started: facts.started,
        };
        async move {
            let limits = Limits::default();
            match self {
                MetricsListener::Tcp(incoming) => {
                    serve::serve(incoming, node, snapshots, refusals, limits, stop).await;
                }
                MetricsListener::Unix(listener) => {
                    let (incoming, _guard) = listener.into_incoming();
                    serve::serve(incoming, node, snapshots, refusals, limits, stop).await;
                }
            }
        }
    }
}
