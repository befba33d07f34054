//! `--mode registrar`: registers a CSI driver that serves its own socket with the kubelet (plugin
//! registration v1). Replaces the node-driver-registrar sidecar.
//!
//! In: a driver's socket, the kubelet's plugins_registry directory, the kubelet's path of the
//! driver's socket. Out: a socket `NAME-reg.sock` in that directory while the registrar runs. The
//! kubelet queries the socket, and unregisters the driver when the socket is removed. The module
//! does not depend on volumes, health or the daemon.

mod driver_name;
mod service;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tonic::service::Routes;

use crate::registrar::driver_name::InvalidDriverName;
use crate::registrar::service::{RegistrationService, RegistrationState};
use crate::server;
use crate::server::ServeError;
use crate::wire::registration::PluginInfo;
use crate::wire::registration::registration_server::RegistrationServer;
use diskvitals_host::listen::{ListenError, SocketFile};

/// The kubelet's type for a CSI plugin.
const PLUGIN_TYPE: &str = "CSIPlugin";
/// The announced CSI versions. The kubelet accepts a driver with any 1.x; node-driver-registrar
/// announces the same.
const SUPPORTED_VERSIONS: &[&str] = &["1.0.0"];
/// How often to check that the socket file still exists. Without the file a restarted kubelet does
/// not find the driver.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The driver to register, and the kubelet's directory.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// The path of the driver's socket in this process.
    pub driver: PathBuf,
    /// The path of the same socket in the kubelet.
    pub kubelet_path: String,
    /// The path of the kubelet's plugins_registry in this process.
    pub registration_dir: PathBuf,
}

/// The reason why the registrar ends without a stop signal. The supervisor restarts the program
/// with growing delays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistrarError {
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

/// The reason why serving ends.
enum StopReason {
    Stopped,
    Refused(String),
    SocketLost,
}

/// Waits until the driver answers, then serves the registration socket until `stop` completes, the
/// kubelet refuses the driver, or the socket file is removed or replaced. Removes the socket file
/// if it is still its own.
pub(crate) async fn run(
    registration: Registration,
    stop: impl Future<Output = ()>,
) -> Result<(), RegistrarError> {
    let Registration { driver, kubelet_path, registration_dir: folder } = registration;
    let mut stop = std::pin::pin!(stop);
    let name = tokio::select! {
        name = driver_name::wait_for_name(&driver) => name.map_err(|source| RegistrarError::Name { driver: driver.clone(), source })?,
        () = &mut stop => return Ok(()),
    };
    let socket = socket_path(&folder, &name);
    let listener = server::bind(&socket, server::MODE_OWNER).await?;
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
    let socket_file = listener.file().clone();
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

/// The path of the registration socket. A name is one path component: [`driver_name`] returns no
/// other.
fn socket_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}-reg.sock"))
}

/// Completes when the kubelet has refused the driver. The kubelet's call still gets its answer.
async fn wait_refused(states: &mut watch::Receiver<RegistrationState>) -> String {
    loop {
        if let RegistrationState::Refused(reason) = &*states.borrow_and_update() {
            return reason.clone();
        }
        if states.changed().await.is_err() {
            // The service was dropped: serving ends by itself.
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
