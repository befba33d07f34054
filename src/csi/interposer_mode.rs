//! Mode interposer: serves another driver's calls on the shim's socket, over one connection to that
//! driver and one to the daemon.
//!
//! In: options, a stop signal. Out: served sockets: CSI and, with --podmon-endpoint, podmon for the
//! other driver's volumes.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::Status;
use tonic::service::Routes;

use crate::agent::{Agent, new_agent};
use crate::connectivity;
use crate::health_client::HealthClient;
use crate::interposer::method::EnabledHealthApis;
use crate::interposer::{DriverName, Interposer, Settings};
use crate::node_id::{NodeIdError, node_id};
use crate::options::{Endpoint, Options};
use crate::podmon::{self, Connectivity, ConnectivityStatus, PodmonService};
use crate::server::{self, MODE_GROUP, ServeError};
use crate::withdrawal::Withdrawal;
use diskvitals_host::listen::ListenError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InterposerModeError {
    #[error("listening on --endpoint")]
    Listen(#[from] ListenError),
    #[error("determining the node id for podmon")]
    NodeId(#[from] NodeIdError),
    #[error("serving podmon")]
    Serve(#[from] ServeError),
}

/// Serves until `stop` completes. `upstream`: the real driver's socket.
pub(crate) async fn run(
    options: &Options,
    endpoint: &Endpoint,
    upstream: PathBuf,
    stop: impl Future<Output = ()>,
) -> Result<(), InterposerModeError> {
    let listener = server::bind(endpoint.path(), MODE_GROUP).await?;
    let podmon_listener = match &options.podmon_endpoint {
        // Only podmon needs the node id.
        Some(podmon) => Some((
            node_id(options.node_id.as_deref())?,
            server::bind(podmon.path(), MODE_GROUP).await?,
        )),
        None => None,
    };
    let (agent, reconnector) = new_agent(&options.agent);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        upstream = %upstream.display(),
        %endpoint,
        agent = %options.agent.display(),
        "diskvitals-csi forwards calls to another driver"
    );
    let health_apis = EnabledHealthApis {
        condition: options.health_api.includes_condition(),
        health: options.health_api.includes_health(),
    };
    let interposer = Interposer::new(
        Settings {
            withdrawal: Withdrawal::new(options.withdraw),
            ..Settings::new(upstream, health_apis)
        },
        Arc::new(HealthClient { agent: agent.clone() }),
    );
    let upstream_connectivity = UpstreamConnectivity { driver: interposer.driver_name(), agent };
    let (stopping, stopped) = watch::channel(false);
    let mut serving = std::pin::pin!(async {
        let (connections, _bound) = server::connections(listener);
        let calls = async {
            interposer.serve(connections, server::wait_stopped(stopped.clone())).await;
            Ok(())
        };
        let podmon = async {
            match podmon_listener {
                Some((node, listener)) => {
                    let service =
                        PodmonService::new(node, Arc::new(upstream_connectivity)).server();
                    server::serve(
                        listener,
                        Routes::new(service),
                        podmon::REQUEST_TIMEOUT,
                        server::wait_stopped(stopped.clone()),
                    )
                    .await
                }
                None => Ok(()),
            }
        };
        tokio::try_join!(calls, podmon).map(|_| ())
    });
    let mut reconnecting = std::pin::pin!(reconnector.run());
    tokio::select! {
        served = &mut serving => return Ok(served?),
        never = &mut reconnecting => match never {},
        () = stop => {}
    }
    stopping.send_replace(true);
    // Calls in progress may still query the daemon.
    tokio::select! {
        served = serving => Ok(served?),
        never = reconnecting => match never {},
    }
}

/// podmon's checks for the upstream driver's volumes.
struct UpstreamConnectivity {
    driver: DriverName<HealthClient>,
    agent: Agent,
}

impl Connectivity for UpstreamConnectivity {
    async fn check(
        &self,
        handles: Vec<String>,
        sample: Duration,
    ) -> Result<ConnectivityStatus, Status> {
        let driver =
            self.driver.get().await.map_err(|error| Status::unavailable(error.to_string()))?;
        connectivity::check(&self.agent, &driver, handles, sample).await
    }
}
