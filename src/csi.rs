//! The CSI shim: a small unprivileged process beside the kubelet that speaks CSI on one socket and asks the daemon on another.
//!
//! In: CSI calls. Out: answers, made of what the daemon says on its agent socket. It reads no device, no mount and no host file itself. It may use
//! [`crate::api::client`] and the wire, and nothing else of the daemon: both sides are upgraded at different times.

mod contact;
mod identity;
pub mod options;
mod server;

use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::filter::LevelFilter;

use crate::csi::identity::IdentityService;
use crate::csi::options::Options;
use crate::csi::server::{ListenError, Listener, ServeError};
use crate::logging;

/// Generated from proto/csi/v1: names and numbers of CSI 1.13.
pub mod wire {
    #![allow(clippy::all, clippy::pedantic)]
    tonic::include_proto!("csi.v1");
}

/// Exit status, as the help says. 2, wrong usage, is clap's.
const FAILED: u8 = 1;

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("listening for signals")]
    Signal(#[source] std::io::Error),
    #[error("the endpoint cannot be used")]
    Listen(#[from] ListenError),
    #[error("serving CSI")]
    Serve(#[from] ServeError),
}

/// The whole life of the shim.
pub fn main(options: Options) -> ExitCode {
    let logging = match logging::init(options.log_format, LevelFilter::INFO) {
        Ok(logging) => logging,
        Err(error) => {
            eprintln!("diskvitals-csi: {:#}", anyhow::Error::from(error));
            return ExitCode::from(FAILED);
        }
    };
    // One thread: a handful of callers, and nothing here blocks.
    let ended = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let ended = runtime.block_on(run(options));
            // Connections that did not end in the time they had are not waited for.
            runtime.shutdown_timeout(Duration::ZERO);
            ended
        }
        Err(error) => Err(RunError::Runtime(error)),
    };
    let status = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{:#}", anyhow::Error::from(error)), "diskvitals-csi ends");
            ExitCode::from(FAILED)
        }
    };
    logging.flush();
    status
}

async fn run(options: Options) -> Result<(), RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signal)?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    };
    let listener = Listener::bind(options.endpoint.path()).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        driver = options.driver_name,
        endpoint = %options.endpoint,
        agent = %options.agent.display(),
        "diskvitals-csi serves CSI's Identity"
    );
    let (contacted, ready) = watch::channel(false);
    let contact = async {
        contact::keep_trying(&options.agent, &contacted).await;
        std::future::pending::<std::convert::Infallible>().await
    };
    let serving = server::serve(listener, IdentityService::new(options.driver_name.clone(), ready), stop);
    tokio::select! {
        served = serving => Ok(served?),
        never = contact => match never {},
    }
}
