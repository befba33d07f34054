//! `diskvitals-fleet`: the cluster's controller. It reads the `NodeStorage` objects that the nodes'
//! reporters write, and acts on them once in the cluster.
//!
//! In: watches of NodeStorage, Node, PersistentVolume, StoragePolicy and CSINode objects. Out: the
//! health of claims, proposals (StorageAction), released claims, taints of returned nodes and of nodes
//! that do not reach storage, conditions of lost nodes, evictions, events, the removal of old objects,
//! metrics.
//! `api` alone knows kube; `model` decides (pure); `run` is the one task that owns the state and the
//! duties (`duty`); `lease` elects the leader; `controller` runs them. It has no access to any node,
//! and knows nothing of devices.

#![warn(unreachable_pub)]

mod api;
mod calls;
mod claims;
mod controller;
mod duties;
mod duty;
mod events;
mod http;
mod listing;
mod lost_nodes;
mod metrics;
mod model;
pub mod options;
mod pace;
mod quarantine;
mod release;
mod retention;
mod run;
mod shared_drives;
mod taint;
mod timing;
mod unreachable;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use tracing_subscriber::filter::LevelFilter;

pub use crate::controller::{Controller, WatchEnded};
pub use crate::timing::Timing;
use diskvitals_program::logging::complain;

use crate::duties::{RELEASE, UNREACHABLE};
use crate::options::{Command, FLEET, Options};
use diskvitals_kubernetes::{ApiSetupError, connect, infer_config};
use diskvitals_program::logging;
use diskvitals_program::{ProgramError, Termination, run_on_one_thread};
use diskvitals_text::causes::with_causes;

/// Exit statuses, as documented in the help. clap returns 2 for wrong usage.
const FAILED: u8 = 1;
const USAGE: u8 = 2;

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Api(#[from] ApiSetupError),
    #[error(transparent)]
    Listen(#[from] http::ListenError),
    #[error(transparent)]
    WatchEnded(#[from] WatchEnded),
}

/// Runs `diskvitals-fleet`.
pub fn main(options: Options) -> ExitCode {
    if options.program.man {
        return print(FLEET.man(Options::command()));
    }
    if let Some(Command::Crds) = options.command {
        return print(definitions());
    }
    if !options.carry_out_in.is_empty() && !options.duties.contains(&RELEASE) {
        return fail(USAGE, "--carry-out-in needs the duty release");
    }
    if options.unclean_taint == options.unreachable_taint {
        return fail(USAGE, "--unclean-taint and --unreachable-taint are the same key");
    }
    if options.evict_unreachable && !options.duties.contains(&UNREACHABLE) {
        return fail(USAGE, "--evict-unreachable needs the duty unreachable");
    }
    let timing = match Timing::of_environment() {
        Ok(timing) => timing,
        Err(why) => return fail(USAGE, &why),
    };
    let logging = match logging::init(options.program.log_format, LevelFilter::INFO) {
        Ok(logging) => logging,
        Err(error) => return fail(FAILED, &with_causes(&error)),
    };
    #[cfg(target_env = "gnu")]
    diskvitals_host::heap::configure_malloc();
    // One thread is enough: nothing here blocks.
    let ended = run_on_one_thread(run(options, timing));
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
    let termination = Termination::new()?;
    let listener = http::bind(options.listen.as_ref()).await?;
    // In a pod by its service account, elsewhere by KUBECONFIG.
    let config = infer_config().await?;
    let (server, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
    let client = connect(config, timing.request_timeout)?;
    let identity = identity();
    tracing::info!(
        duties = options.duties.join(","),
        carry_out_in = ?options.carry_out_in,
        evict_unreachable = options.evict_unreachable,
        server,
        identity,
        version = env!("CARGO_PKG_VERSION"),
        "controlling"
    );
    let controller = Controller::new(client, &namespace, &options, timing, &identity);
    let served = http::serve(listener, controller.states());
    let stop = async {
        tokio::select! {
            () = termination.requested() => {}
            never = served => match never {},
        }
    };
    Ok(controller.run(stop).await?)
}

/// The host name of a pod is its name; a restarted container is another candidate.
fn identity() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let start = diskvitals_host::clock::wall_now().as_nanosecond();
    let unique = diskvitals_text::hash::fnv1a_64(format!("{start} {}", std::process::id()).bytes());
    format!("{}_{unique:016x}", host.to_string_lossy())
}

/// One List, which kubectl applies as a whole.
fn definitions() -> std::io::Result<Vec<u8>> {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": diskvitals_cluster::definitions()});
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
    complain("diskvitals-fleet", why);
    ExitCode::from(status)
}
