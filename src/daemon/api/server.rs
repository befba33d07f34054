//! The gRPC server: Inventory, Checks and Admin on the main socket; Inventory, Storage and Volumes
//! on the agent's; on both, reflection and grpc.health.v1.
//!
//! In: the state's handle, the engine of the node's own volumes, facts about the node, bound
//! sockets. Out: answers from the newest snapshot and from the engine. No read call waits for a
//! device, a mount, or a slow client: each connection has its own task and its own limits.

mod admin;
mod attachments;
mod byte_quota;
mod caller;
mod checks;
mod clean_orders;
pub mod cleanup;
mod confirm;
mod connectivity;
mod csi_volume;
mod drive_io;
mod incoming;
mod inventory;
mod lamps;
mod listen;
mod paging;
mod quota;
mod reflection;
mod refusals;
mod storage;
mod volumes;
mod watch;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch as signal;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::api::server::admin::AdminService;
use crate::api::server::byte_quota::ByteQuotaService;
use crate::api::server::caller::AgentAccess;
use crate::api::server::checks::ChecksService;
use crate::api::server::clean_orders::CleanOrders;
use crate::api::server::cleanup::{Cleaner, CleanupBackend};
use crate::api::server::incoming::QuotaIncoming;
use crate::api::server::inventory::InventoryService;
use crate::api::server::quota::{ByteQuota, ConnectionQuota, SharedPlaces};
use crate::api::server::storage::StorageService;
use crate::api::server::volumes::VolumesService;
use crate::state::handle::Handle;
use diskvitals_host::listen::{Listener, SocketGuard};
use diskvitals_host::subordinate_uids::SubordinateUids;
use diskvitals_provision::engine::Engine;
use diskvitals_quota::refusals::{RefusalCounts, SocketRefusals};
use diskvitals_wire::admin_server::AdminServer;
use diskvitals_wire::checks_server::ChecksServer;
use diskvitals_wire::inventory_server::InventoryServer;
use diskvitals_wire::storage_server::StorageServer;
use diskvitals_wire::unimplemented::NameUnimplemented;
use diskvitals_wire::volumes_server::VolumesServer;

pub use crate::api::server::caller::AgentCallers;
pub use crate::api::server::clean_orders::OrderSettings;
pub use crate::api::server::lamps::{LampBackend, Lamps};
pub(crate) use crate::api::server::listen::bind_beside;
pub use crate::api::server::listen::{SocketAccess, bind};
pub use diskvitals_convert::node_facts::NodeFacts;

const HEADER_BYTES: u32 = 2 << 10;
/// HTTP/2's default window (RFC 9113, 6.9.2). hyper's own is 1 MiB for each connection.
const WINDOW_BYTES: u32 = (64 << 10) - 1;

/// Limits on clients' use of resources. The defaults are for production; tests use shorter ones.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of all but root. Root has its own share, so others never lock it out. When all
    /// are taken, a newcomer gets that of somebody who has more (`places`).
    pub connections: usize,
    pub connections_per_uid: usize,
    pub streams_per_connection: u32,
    /// Memory of requests and responses on both sockets, counted like connections. A page of a
    /// response has at most 256 KiB.
    pub bytes: usize,
    pub bytes_per_uid: usize,
    /// Watches are counted like connections.
    pub watchers: usize,
    pub watchers_per_uid: usize,
    /// A connection that has not sent its HTTP/2 preface within this time is closed.
    pub preface_timeout: Duration,
    /// Time limit of one answer, from its headers on. Watch answers at once and then streams.
    pub request_timeout: Duration,
    /// The same on the agent's socket, where calls sample I/O, and create and mount volumes. It is
    /// longer than the engine's time limit, so that the engine's own answer comes first.
    pub agent_request_timeout: Duration,
    pub keepalive_interval: Duration,
    pub keepalive_timeout: Duration,
    /// A watcher that reads no event for so long while events are queued is disconnected.
    pub stalled_watcher_timeout: Duration,
    /// Time in which connections may finish their calls at shutdown.
    pub drain_timeout: Duration,
    /// Largest request, in bytes. The largest real ones, with parameters and mount options, have a
    /// few KiB; unfinished ones of all streams wait in memory.
    pub max_message_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 96,
            connections_per_uid: 32,
            streams_per_connection: 32,
            bytes: 6 << 20,
            bytes_per_uid: 3 << 20,
            watchers: 96,
            watchers_per_uid: 32,
            preface_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            agent_request_timeout: Duration::from_secs(90),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            stalled_watcher_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(2),
            max_message_bytes: 64 << 10,
        }
    }
}

impl Limits {
    fn byte_quota(&self) -> ByteQuota {
        ByteQuota::new(self.bytes, self.bytes_per_uid)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("serving {socket}")]
    Transport {
        socket: String,
        #[source]
        source: tonic::transport::Error,
    },
}

/// The configuration in force.
#[derive(Clone, Debug)]
pub struct ConfigInForce {
    /// With every key that has a value, or why that cannot be written.
    pub toml: Result<String, String>,
    /// The files that it was read from, in the order in which they were merged.
    pub files: Vec<String>,
    /// Why it is not what the files say now, and what has no effect.
    pub warnings: Vec<String>,
}

#[derive(Clone)]
pub struct Server {
    handle: Handle,
    node: Arc<NodeFacts>,
    /// They change with the configuration.
    agent_callers: signal::Receiver<AgentCallers>,
    limits: Limits,
    /// The memory of calls on both sockets.
    bytes: ByteQuota,
    subordinate: signal::Receiver<Arc<SubordinateUids>>,
    refusals: SocketRefusals,
    /// None: this server knows no configuration.
    config: Option<signal::Receiver<ConfigInForce>>,
    /// Removes stale mounts.
    cleaner: Option<Cleaner>,
    /// Carries out orders to clean up.
    orders: Option<CleanOrders>,
    /// Provides this node's own volumes, under the name of a CSI driver.
    volumes: Option<(Engine, String)>,
    /// Switches locate lamps.
    lamps: Option<Lamps>,
}

impl Server {
    pub fn new(
        handle: Handle,
        node: NodeFacts,
        agent_callers: signal::Receiver<AgentCallers>,
    ) -> Server {
        let limits = Limits::default();
        Server {
            handle,
            node: Arc::new(node),
            agent_callers,
            bytes: limits.byte_quota(),
            subordinate: signal::channel(Arc::default()).1,
            refusals: SocketRefusals::default(),
            config: None,
            limits,
            cleaner: None,
            orders: None,
            volumes: None,
            lamps: None,
        }
    }

    pub fn with_limits(self, limits: Limits) -> Server {
        Server { bytes: limits.byte_quota(), limits, ..self }
    }

    /// Subordinate uids of users count together.
    pub(crate) fn with_subordinate_uids(
        self,
        subordinate: signal::Receiver<Arc<SubordinateUids>>,
    ) -> Server {
        Server { subordinate, ..self }
    }

    /// Where refusals are counted.
    pub(crate) fn with_refusals(self, refusals: SocketRefusals) -> Server {
        Server { refusals, ..self }
    }

    pub(crate) fn with_config(self, config: signal::Receiver<ConfigInForce>) -> Server {
        Server { config: Some(config), ..self }
    }

    /// Without a clean-up backend, ForceCleanup is refused.
    pub fn with_cleanup(self, backend: Arc<dyn CleanupBackend>) -> Server {
        Server { cleaner: Some(Cleaner::new(backend)), ..self }
    }

    /// Answers orders to clean up after deleted pods. They and ForceCleanup never run at the same
    /// time.
    pub fn with_orders(
        self,
        backend: Arc<dyn CleanupBackend>,
        settings: signal::Receiver<OrderSettings>,
    ) -> Server {
        let cleaner = self.cleaner.clone();
        let orders = CleanOrders::new(
            self.handle.clone(),
            self.node.clone(),
            cleaner.unwrap_or_else(|| Cleaner::new(backend)),
            self.agent_callers.clone(),
            settings,
        );
        Server { orders: Some(orders), ..self }
    }

    /// Without it, SetLamp is refused.
    pub fn with_lamps(self, lamps: Lamps) -> Server {
        Server { lamps: Some(lamps), ..self }
    }

    pub fn with_volumes(self, engine: Engine, driver: String) -> Server {
        Server { volumes: Some((engine, driver)), ..self }
    }

    /// Serves until `stop` completes, then drains for `Limits::drain_timeout` and unlinks the
    /// sockets if they are still ours.
    pub async fn serve(
        self,
        main: Listener,
        agent: Option<Listener>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (stopping, stopped) = signal::channel(false);
        let (cut, cut_off) = signal::channel(false);
        let (health, _) = tonic_health::server::health_reporter();
        set_serving_status(&health, ServingStatus::NotServing).await;
        let mut serving = std::pin::pin!(async {
            let main = self.serve_main(main, &health, &stopped, &cut_off);
            match agent {
                Some(agent) => {
                    tokio::try_join!(main, self.serve_agent(agent, &health, &stopped, &cut_off))
                        .map(|_| ())
                }
                None => main.await,
            }
        });
        let ended = tokio::select! {
            ended = &mut serving => Some(ended),
            () = stop => None,
            never = self.serve_when_settled(&health) => match never {},
        };
        if let Some(ended) = ended {
            return ended;
        }
        set_serving_status(&health, ServingStatus::NotServing).await;
        stopping.send_replace(true);
        let drained = tokio::time::timeout(self.limits.drain_timeout, &mut serving).await;
        // Calls that have not finished by now are aborted: no client can delay the shutdown.
        cut.send_replace(true);
        drained.unwrap_or(Ok(()))
    }

    async fn serve_main(
        &self,
        listener: Listener,
        health: &HealthReporter,
        stopped: &signal::Receiver<bool>,
        cut: &signal::Receiver<bool>,
    ) -> Result<(), ServeError> {
        let engine = self.volumes.as_ref().map(|(engine, _)| engine.clone());
        let lamps = self.lamps.clone();
        let admin = AdminService::new(self.handle.clone(), self.cleaner.clone(), engine, lamps);
        let admin =
            AdminServer::new(admin).max_decoding_message_size(self.limits.max_message_bytes);
        let checks = ChecksServer::new(ChecksService::new(self.handle.clone()))
            .max_decoding_message_size(self.limits.max_message_bytes);
        let reflected = [
            InventoryServer::<InventoryService>::NAME,
            AdminServer::<AdminService>::NAME,
            ChecksServer::<ChecksService>::NAME,
        ];
        let router = self
            .transport(self.limits.request_timeout)
            .layer(self.byte_quota_layer())
            .layer(NameUnimplemented)
            .add_service(self.inventory_service(stopped))
            .add_service(admin)
            .add_service(checks)
            .add_service(health_service(health))
            .add_service(reflection::v1(&reflected))
            .add_service(reflection::v1alpha(&reflected));
        let (incoming, socket) = self.incoming(listener, None, &self.refusals.main, cut);
        let served = router.serve_with_incoming_shutdown(incoming, wait_stopped(stopped.clone()));
        served.await.map_err(|source| transport_error(&socket, source))
    }

    /// Serves the agent's socket: the services for the CSI shim, which include this node's own
    /// volumes. It is for uid 0 and the configured callers; each call is checked.
    async fn serve_agent(
        &self,
        listener: Listener,
        health: &HealthReporter,
        stopped: &signal::Receiver<bool>,
        cut: &signal::Receiver<bool>,
    ) -> Result<(), ServeError> {
        let gate = |needed, what| {
            let callers = self.agent_callers.clone();
            tonic::service::interceptor::InterceptorLayer::new(move |request: tonic::Request<()>| {
                let callers = callers.borrow();
                callers.require(needed, request.extensions(), what)?;
                Ok(request)
            })
        };
        let storage = StorageService::new(
            self.handle.clone(),
            self.node.clone(),
            self.orders.clone(),
            self.agent_callers.clone(),
        );
        let storage =
            StorageServer::new(storage).max_decoding_message_size(self.limits.max_message_bytes);
        let volumes = self.volumes.clone().map(|(engine, driver)| {
            let service = VolumesService::new(engine, driver, self.handle.clone());
            let server = VolumesServer::new(service)
                .max_decoding_message_size(self.limits.max_message_bytes);
            tower::Layer::layer(&gate(AgentAccess::Full, "use this node's volumes"), server)
        });
        let mut served =
            vec![InventoryServer::<InventoryService>::NAME, StorageServer::<StorageService>::NAME];
        served.extend(volumes.is_some().then_some(VolumesServer::<VolumesService>::NAME));
        let router = self
            .transport(self.limits.agent_request_timeout)
            .layer(gate(AgentAccess::Read, "call on the agent's socket"))
            .layer(self.byte_quota_layer())
            .layer(NameUnimplemented)
            .add_service(self.inventory_service(stopped))
            .add_service(storage)
            .add_service(health_service(health))
            .add_service(reflection::v1(&served))
            .add_service(reflection::v1alpha(&served))
            .add_optional_service(volumes);
        let allowed = Some(self.agent_callers.clone());
        let (incoming, socket) = self.incoming(listener, allowed, &self.refusals.agent, cut);
        let served = router.serve_with_incoming_shutdown(incoming, wait_stopped(stopped.clone()));
        served.await.map_err(|source| transport_error(&socket, source))
    }

    fn inventory_service(
        &self,
        stopped: &signal::Receiver<bool>,
    ) -> InventoryServer<InventoryService> {
        let watchers = SharedPlaces::new(self.limits.watchers, self.limits.watchers_per_uid);
        let service = InventoryService::new(
            self.handle.clone(),
            self.node.clone(),
            watchers,
            stopped.clone(),
            self.limits.stalled_watcher_timeout,
            self.config.clone(),
        );
        InventoryServer::new(service)
            .max_decoding_message_size(self.limits.max_message_bytes)
            .max_encoding_message_size(usize::MAX)
    }

    fn byte_quota_layer<S>(
        &self,
    ) -> impl tower::Layer<S, Service = ByteQuotaService<S>> + Clone + use<S> {
        let quota = self.bytes.clone();
        tower::layer::layer_fn(move |inner| ByteQuotaService::new(inner, quota.clone()))
    }

    fn transport(&self, request: Duration) -> tonic::transport::Server {
        tonic::transport::Server::builder()
            .timeout(request)
            .max_concurrent_streams(self.limits.streams_per_connection)
            .http2_keepalive_interval(Some(self.limits.keepalive_interval))
            .http2_keepalive_timeout(Some(self.limits.keepalive_timeout))
            // What a connection receives before a handler reads it: one largest request.
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            // Headers of gRPC calls have some hundred bytes, and are in memory before a call is counted.
            .http2_max_header_list_size(HEADER_BYTES)
    }

    fn incoming(
        &self,
        listener: Listener,
        allowed: Option<signal::Receiver<AgentCallers>>,
        refusals: &RefusalCounts,
        cut: &signal::Receiver<bool>,
    ) -> (QuotaIncoming, SocketGuard) {
        let (incoming, guard) = listener.into_incoming();
        let quota = SharedPlaces::new(self.limits.connections, self.limits.connections_per_uid);
        let quota = ConnectionQuota::new(quota, allowed, self.subordinate.clone());
        let preface = self.limits.preface_timeout;
        let incoming = QuotaIncoming::new(incoming, quota, preface, cut.clone(), refusals.clone());
        (incoming, guard)
    }

    /// Reports SERVING from the first complete snapshot on. Never completes.
    async fn serve_when_settled(&self, health: &HealthReporter) -> std::convert::Infallible {
        let mut snapshots = self.handle.snapshots();
        // An error: the owner has ended and the process is about to end. There are no further
        // snapshots.
        if snapshots.wait_for(|snapshot| snapshot.settled).await.is_ok() {
            set_serving_status(health, ServingStatus::Serving).await;
        }
        std::future::pending().await
    }
}

fn health_service(reporter: &HealthReporter) -> HealthServer<HealthService> {
    HealthServer::new(HealthService::from_health_reporter(reporter.clone()))
}

fn transport_error(socket: &SocketGuard, source: tonic::transport::Error) -> ServeError {
    ServeError::Transport { socket: socket.file().path().display().to_string(), source }
}

async fn set_serving_status(health: &HealthReporter, status: ServingStatus) {
    let services = [
        "",
        InventoryServer::<InventoryService>::NAME,
        AdminServer::<AdminService>::NAME,
        ChecksServer::<ChecksService>::NAME,
    ];
    for service in services {
        health.set_service_status(service, status).await;
    }
}

async fn wait_stopped(mut stopped: signal::Receiver<bool>) {
    // An error: the sender no longer exists, which also means shutdown.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
