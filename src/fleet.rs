//! `diskvitals-fleet`: the cluster's controller. It reads the `NodeStorage` objects that the nodes'
//! reporters write, and acts on them once in the cluster.
//!
//! In: watches of NodeStorage, Node and PersistentVolume objects. Out: the health of claims, events,
//! the removal of old objects, metrics. `api` alone knows kube; `model` decides (pure); `run` is the
//! one task that owns the state; `lease` elects the leader. It has no access to any node, and knows
//! nothing of devices.

mod api;
mod claim_ledger;
mod http;
mod lease;
mod listing;
mod metrics;
mod model;
pub mod options;
mod run;
mod timing;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::CommandFactory;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing_subscriber::filter::LevelFilter;

use crate::csi::report::api::ApiSetupError;
use crate::fleet::api::Api;
use crate::fleet::lease::Candidate;
use crate::fleet::options::{Command, Duty, Options};
use crate::fleet::run::Owner;
use crate::fleet::timing::Timing;
use crate::logging;
use crate::manual::FLEET;
use crate::model::causes::with_causes;

/// Exit statuses, as documented in the help. clap returns 2 for wrong usage.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// Changes of the watches that wait for the owner.
const CHANGES: usize = 1024;

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("listening for signals")]
    Signal(#[source] std::io::Error),
    #[error(transparent)]
    Api(#[from] ApiSetupError),
    #[error(transparent)]
    Listen(#[from] http::ListenError),
    #[error("the watch of {0} has ended")]
    WatchEnded(&'static str),
}

/// Runs `diskvitals-fleet`.
pub fn main(options: Options) -> ExitCode {
    if options.man {
        return print(FLEET.man(Options::command()));
    }
    if let Some(Command::Crds) = options.command {
        return print(definitions());
    }
    let timing = match Timing::new() {
        Ok(timing) => timing,
        Err(why) => return fail(USAGE, &why),
    };
    let logging = match logging::init(options.log_format, LevelFilter::INFO) {
        Ok(logging) => logging,
        Err(error) => return fail(FAILED, &with_causes(&error)),
    };
    #[cfg(target_env = "gnu")]
    crate::host::heap::configure_malloc();
    // One thread is enough: nothing here blocks.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Runtime);
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(run(options, timing));
        runtime.shutdown_timeout(Duration::ZERO);
        ended
    });
    let status = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = with_causes(&error), "diskvitals-fleet failed");
            ExitCode::from(FAILED)
        }
    };
    logging.flush();
    status
}

async fn run(options: Options, timing: Timing) -> Result<(), RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signal)?;
    let (state, states) = watch::channel(Arc::default());
    let listener = http::bind(options.listen.as_ref()).await?;
    let api = Arc::new(Api::infer(timing.request_timeout).await?);
    let identity = identity();
    tracing::info!(
        duties = ?options.duties,
        server = api.server(),
        identity,
        version = env!("CARGO_PKG_VERSION"),
        "controlling"
    );
    let candidate = Candidate {
        api: api.clone(),
        namespace: options
            .lease_namespace
            .clone()
            .unwrap_or_else(|| api.namespace().to_owned()),
        name: options.lease_name.clone(),
        identity: identity.clone(),
        timing: timing.lease.clone(),
    };
    let (leads, leadership) = watch::channel(false);
    let (changes, received) = mpsc::channel(CHANGES);
    let claims = options.duties.contains(&Duty::Claims);
    let volumes = async {
        if claims {
            api.watch_volumes(changes.clone()).await;
        } else {
            std::future::pending().await
        }
    };
    let owner = Owner::new(api.clone(), &options.duties, timing, identity, state);
    let ended = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        never = owner.run(received, leadership) => match never {},
        never = candidate.run(&leads) => match never {},
        () = api.watch_nodes(changes.clone()) => Err(RunError::WatchEnded("nodes")),
        () = api.watch_reports(changes.clone()) => Err(RunError::WatchEnded("nodestorages")),
        () = volumes => Err(RunError::WatchEnded("persistentvolumes")),
        () = http::serve(listener, states) => Err(RunError::WatchEnded("requests")),
    };
    if ended.is_ok() {
        tracing::info!("stopping");
    }
    // The owner has ended with its writes: another one may lead.
    if *leads.borrow() {
        candidate.release().await;
    }
    ended
}

/// The host name of a pod is its name; a restarted container is another candidate.
fn identity() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let start = crate::host::clock::wall_now().as_nanosecond();
    let unique = crate::model::hash::fnv1a_64(format!("{start} {}", std::process::id()).bytes());
    format!("{}_{unique:016x}", host.to_string_lossy())
}

/// One List, which kubectl applies as a whole.
fn definitions() -> std::io::Result<Vec<u8>> {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": crate::cluster::definitions()});
    let mut text = serde_json::to_vec_pretty(&list)?;
    text.push(b'\n');
    Ok(text)
}

fn print(text: std::io::Result<Vec<u8>>) -> ExitCode {
    match text.and_then(|text| std::io::stdout().write_all(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("writing to standard output: {error}")),
    }
}

fn fail(status: u8, why: &str) -> ExitCode {
    eprintln!("diskvitals-fleet: {why}");
    ExitCode::from(status)
}
