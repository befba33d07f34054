//! `--mode registrar`: tells the kubelet of a CSI driver that serves its own socket, by the
//! kubelet's plugin registration v1. The job of node-driver-registrar, without a foreign sidecar.
//!
//! In: a driver's socket, the kubelet's plugins_registry folder, the path at which the kubelet
//! finds the driver's socket. Out: a socket `NAME-reg.sock` in that folder, for as long as this
//! runs; the kubelet asks it, and takes the driver away when it has gone. Knows nothing of volumes,
//! of health, of the daemon.

mod driver_name;
mod service;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tonic::service::Routes;

use crate::csi::registrar::driver_name::InvalidDriverName;
use crate::csi::registrar::service::{RegistrationService, RegistrationState};
use crate::csi::server;
use crate::csi::server::{ListenError, Listener, ServeError, SocketFile};
use crate::csi::wire::registration::PluginInfo;
use crate::csi::wire::registration::registration_server::RegistrationServer;

/// The kubelet's word for what speaks CSI on its endpoint.
const PLUGIN_TYPE: &str = "CSIPlugin";
/// Of CSI. The kubelet takes a driver that names any 1.x; node-driver-registrar says the same.
const SUPPORTED_VERSIONS: &[&str] = &["1.0.0"];
/// How often the socket's name is looked for in the folder. A lost one means that a kubelet that
/// starts again does not find the driver.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// What is registered, and where.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The driver's socket as this process reaches it.
    pub driver: PathBuf,
    /// The same socket as the kubelet reaches it.
    pub kubelet_path: String,
    /// The kubelet's plugins_registry, as this process sees it.
    pub registration_dir: PathBuf,
}

/// Why registering ends without having been told to stop. Each is for the supervisor to start the
/// program anew, with growing pauses.
#[derive(Debug, thiserror::Error)]
pub enum RegistrarError {
    #[error("asking the driver at {} for its name", driver.display())]
    Name {
        driver: PathBuf,
        #[source]
        source: InvalidDriverName,
    },
    #[error("the registration socket cannot be used")]
    Listen(#[from] ListenError),
    #[error("serving the registration socket")]
    Serve(#[from] ServeError),
    #[error("the kubelet refuses {name}: {reason}")]
    Refused { name: String, reason: String },
    #[error("the registration socket {} has been removed or replaced: a kubelet that starts again would not find {name}", socket.display())]
    SocketLost { name: String, socket: PathBuf },
}

/// Why serving ends.
enum StopReason {
    Stopped,
    Refused(String),
    SocketLost,
}

/// Waits until the driver answers, then serves the registration socket until `stop` completes, the
/// kubelet refuses the driver, or the socket has lost its name. The socket is removed in each case
/// where it is still ours.
pub async fn run(
    registration: Registration,
    stop: impl Future<Output = ()>,
) -> Result<(), RegistrarError> {
    let Registration {
        driver,
        kubelet_path,
        registration_dir: folder,
    } = registration;
    let mut stop = std::pin::pin!(stop);
    let name = tokio::select! {
        name = driver_name::wait_for_name(&driver) => name.map_err(|source| RegistrarError::Name { driver: driver.clone(), source })?,
        () = &mut stop => return Ok(()),
    };
    let socket = socket_path(&folder, &name);
    let listener = Listener::bind(&socket, server::MODE_OWNER).await?;
    tracing::info!(driver = name, socket = %socket.display(), endpoint = kubelet_path, "waiting for the kubelet to register the driver");

    let info = PluginInfo {
        r#type: PLUGIN_TYPE.to_owned(),
        name: name.clone(),
        endpoint: kubelet_path,
        supported_versions: SUPPORTED_VERSIONS
            .iter()
            .map(|version| (*version).to_owned())
            .collect(),
    };
    let (standing, mut states) = watch::channel(RegistrationState::Unknown);
    let socket_file = listener.socket_file();
    let (reporter, health) = tonic_health::server::health_reporter();
    let service = RegistrationService::begin(info, standing, reporter).await;
    let services = Routes::new(
        RegistrationServer::new(service).max_decoding_message_size(server::MAX_MESSAGE_BYTES),
    )
    .add_service(health);
    let mut end = StopReason::Stopped;
    let ending = async {
        end = tokio::select! {
            () = stop => StopReason::Stopped,
            reason = wait_refused(&mut states) => StopReason::Refused(reason),
            () = wait_socket_lost(&socket_file) => StopReason::SocketLost,
        };
    };
    server::serve(listener, services, server::REQUEST_TIMEOUT, ending).await?;
    match end {
        StopReason::Stopped => Ok(()),
        StopReason::Refused(reason) => Err(RegistrarError::Refused { name, reason }),
        StopReason::SocketLost => Err(RegistrarError::SocketLost { name, socket }),
    }
}

/// A name is one part of a path: [`driver::name`] gives no other.
fn socket_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}-reg.sock"))
}

/// Completes when the kubelet has said no. Its call is answered all the same.
async fn wait_refused(states: &mut watch::Receiver<RegistrationState>) -> String {
    loop {
        if let RegistrationState::Refused(reason) = &*states.borrow_and_update() {
            return reason.clone();
        }
        if states.changed().await.is_err() {
            // The service has gone: serving ends by itself.
            return std::future::pending().await;
        }
    }
}

async fn wait_socket_lost(socket_file: &SocketFile) {
    let mut checks = tokio::time::interval(SOCKET_CHECK_INTERVAL);
    loop {
        checks.tick().await;
        if !socket_file.is_ours() {
            return;
        }
    }
}
