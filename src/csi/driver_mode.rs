//! Modes driver and controller: serves the CSI services for volumes of this node, the podmon
//! service and grpc.health.v1, over one connection to the daemon.
//!
//! In: options, a stop signal. Out: served sockets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::agent::{Agent, Reconnector, new_agent};
use crate::controller::ControllerService;
use crate::driver::Driver;
use crate::identity::IdentityService;
use crate::node::NodeService;
use crate::node_id::{NodeIdError, node_id};
use crate::options::{Endpoint, Mode, Options};
use crate::podmon::{self, PodmonService};
use crate::server::{self, MAX_MESSAGE_BYTES, MODE_GROUP, ServeError};
use crate::topology::Topology;
use crate::wire::controller_server::ControllerServer;
use crate::wire::identity_server::IdentityServer;
use crate::wire::node_server::NodeServer;
use crate::withdrawal::{Withdrawal, WithdrawalService};
use diskvitals_host::listen::ListenError;

/// Time limit for one answer: longer than that of any call to the daemon.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(100);

#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverModeError {
    #[error("determining the node id")]
    NodeId(#[from] NodeIdError),
    #[error("listening on --endpoint")]
    Listen(#[from] ListenError),
    #[error("serving CSI")]
    Serve(#[from] ServeError),
}

/// Serves until `stop` completes.
pub(crate) async fn run(
    options: &Options,
    mode: Mode,
    endpoint: &Endpoint,
    stop: impl Future<Output = ()>,
) -> Result<(), DriverModeError> {
    let node_id = node_id(options.node_id.as_deref())?;
    let listener = server::bind(endpoint.path(), MODE_GROUP).await?;
    let podmon_listener = match &options.podmon_endpoint {
        Some(podmon) => Some(server::bind(podmon.path(), MODE_GROUP).await?),
        None => None,
    };
    let (agent, reconnector) = new_agent(&options.agent);
    let driver = Arc::new(Driver {
        name: options.driver_name.clone(),
        topology: Topology::of_node(&options.topology_key, &node_id),
        node_id,
        health_api: options.health_api,
        controller_publish: options.controller_publish,
        list_nothing: options.list_nothing,
        agent: agent.clone(),
        withdrawal: Withdrawal::new(options.withdraw),
    });
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = ?mode,
        driver = driver.name,
        node = driver.node_id,
        %endpoint,
        agent = %options.agent.display(),
        "diskvitals-csi serves CSI"
    );
    let (reporter, readiness) = tonic_health::server::health_reporter();
    let services = build_services(mode, &driver, &reconnector).add_service(readiness);
    let (stopping, stopped) = watch::channel(false);
    let mut serving = std::pin::pin!(async {
        let csi = server::serve(
            listener,
            services,
            REQUEST_TIMEOUT,
            server::wait_stopped(stopped.clone()),
        );
        let podmon = async {
            match podmon_listener {
                Some(listener) => {
                    server::serve(
                        listener,
                        Routes::new(podmon_service(&driver).server()),
                        podmon::REQUEST_TIMEOUT,
                        server::wait_stopped(stopped),
                    )
                    .await
                }
                None => Ok(()),
            }
        };
        tokio::try_join!(csi, podmon).map(|_| ())
    });
    let mut background = std::pin::pin!(async {
        tokio::select! {
            never = reconnector.run() => never,
            never = publish_readiness(agent, reporter) => never,
        }
    });
    tokio::select! {
        served = &mut serving => return Ok(served?),
        never = &mut background => match never {},
        () = stop => {}
    }
    stopping.send_replace(true);
    // Calls in progress need the daemon until they end.
    tokio::select! {
        served = serving => Ok(served?),
        never = background => match never {},
    }
}

fn build_services(mode: Mode, driver: &Arc<Driver>, reconnector: &Reconnector) -> Routes {
    let identity = IdentityService { driver_name: driver.name.clone(), ready: reconnector.ready() };
    let controller = ControllerService { driver: driver.clone() };
    let controller = ControllerServer::new(controller).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let routes =
        Routes::new(IdentityServer::new(identity).max_decoding_message_size(MAX_MESSAGE_BYTES))
            .add_service(controller);
    if mode == Mode::Controller {
        return routes;
    }
    let node = NodeService { driver: driver.clone() };
    let node = NodeServer::new(node).max_decoding_message_size(MAX_MESSAGE_BYTES);
    routes
        .add_service(node)
        .add_service(WithdrawalService(driver.withdrawal.clone()).server())
        .add_service(podmon_service(driver).server())
}

fn podmon_service(driver: &Arc<Driver>) -> PodmonService<Driver> {
    PodmonService::new(driver.node_id.clone(), driver.clone())
}

/// Publishes grpc.health.v1: SERVING while the daemon answers.
async fn publish_readiness(mut agent: Agent, reporter: HealthReporter) -> std::convert::Infallible {
    loop {
        let status =
            if agent.is_connected() { ServingStatus::Serving } else { ServingStatus::NotServing };
        reporter.set_service_status("", status).await;
        agent.changed().await;
    }
}
