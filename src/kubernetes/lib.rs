//! What the programs share that talk to the Kubernetes API server: clients, classified errors,
//! delays, events, and for the controller and the plugin lists, watches and leases.
//!
//! In: calls. Out: answers, or whether another attempt can help. It knows no program, and no object
//! of diskvitals: `cluster` has those.

#![warn(unreachable_pub)]

pub mod api_error;
pub mod event;
#[cfg(feature = "fleet")]
pub mod lease;
#[cfg(feature = "fleet")]
pub mod pages;
mod retry_after;
pub mod retry_delay;
#[cfg(feature = "fleet")]
pub mod watch;

use std::time::Duration;

pub use kube::Config;
pub use retry_after::client_of;

/// The reason why there is no client of the API server: a problem of the setup.
#[derive(Debug, thiserror::Error)]
pub enum ApiSetupError {
    #[error(
        "finding the API server: in a pod by its service account's token, elsewhere by KUBECONFIG"
    )]
    Config(#[source] Box<kube::config::InferConfigError>),
    #[error("making a client of the API server")]
    Client(#[source] Box<kube::Error>),
    #[error("{0:?} is no name of a node: give --node-id, in Kubernetes spec.nodeName")]
    Node(String),
}

/// Configuration from the environment.
pub async fn infer_config() -> Result<Config, ApiSetupError> {
    Config::infer().await.map_err(|error| ApiSetupError::Config(Box::new(error)))
}

/// A client whose caller decides on retries.
pub fn connect(
    mut config: Config,
    connect_timeout: Duration,
) -> Result<kube::Client, ApiSetupError> {
    config.default_retry = false;
    config.connect_timeout = Some(connect_timeout);
    let builder = kube::client::ClientBuilder::try_from(config)
        .map_err(|error| ApiSetupError::Client(Box::new(error)))?;
    Ok(client_of(builder))
}
