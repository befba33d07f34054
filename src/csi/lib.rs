//! The CSI shim `diskvitals-csi`: a small unprivileged process that speaks CSI to the kubelet on
//! one socket and queries the daemon on another.
//! In: CSI calls. Out: answers built from the daemon's answers on its agent socket. The shim itself
//! reads no device, no mount and no host file. It uses [`diskvitals_wire::client`], the wire types, and
//! the rules of the model that both sides share. Shim and daemon are upgraded at different times.

#![warn(unreachable_pub)]

mod agent;
pub mod authority;
mod connectivity;
mod controller;
mod driver;
mod driver_mode;
pub mod health;
mod health_client;
mod identity;
pub mod interposer;
mod interposer_mode;
mod limits;
mod node;
mod node_id;
pub mod options;
mod pages;
mod parameters;
pub mod podmon;
mod registrar;
pub mod report;
mod server;
mod stats;
mod topology;
mod validate;
mod withdraw_command;
mod withdrawal;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use tracing_subscriber::filter::LevelFilter;

use crate::driver_mode::DriverModeError;
use crate::interposer_mode::InterposerModeError;
use crate::node_id::{NodeIdError, node_id};
use crate::options::{Command, Mode, Options, ReportKind};
use crate::registrar::{RegistrarError, Registration};
use crate::report::{ApiServer, EnabledReports, ReportTiming, Reporter};
use crate::withdraw_command::WithdrawError;
use diskvitals_kubernetes::{ApiSetupError, infer_config};
use diskvitals_program::logging;
use diskvitals_program::logging::complain;
use diskvitals_program::manual::SHIM;
use diskvitals_program::{ProgramError, Termination, run_on_one_thread};
use diskvitals_text::causes::with_causes;

/// Generated from proto/csi/v1: names and numbers of CSI 1.13, and those of 1.12 that 1.13 removed.
pub mod wire {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)]
    tonic::include_proto!("csi.v1");

    /// Generated from proto/podmon/v1.
    pub mod podmon {
        tonic::include_proto!("podmon.v1");
    }

    /// Generated from proto/pluginregistration/v1: the kubelet's plugin registration.
    pub mod registration {
        tonic::include_proto!("pluginregistration");
    }

    /// Generated from proto/withdrawal/v1.
    pub mod withdrawal {
        tonic::include_proto!("diskvitals.withdrawal.v1");
    }

    /// The compiled definitions of all four, without comments (a FileDescriptorSet).
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foreign.bin"));
}

/// Exit status, as in the help. clap returns 2 for wrong usage.
const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("--mode {0:?} without its flags")]
    Flags(Mode),
    #[error("determining the node id")]
    NodeId(#[from] NodeIdError),
    #[error("--report")]
    Report(#[from] ApiSetupError),
    #[error(transparent)]
    DriverMode(#[from] DriverModeError),
    #[error("serving the interposer")]
    InterposerMode(#[from] InterposerModeError),
    #[error("registering the driver")]
    Registrar(#[from] RegistrarError),
    #[error(transparent)]
    Withdraw(#[from] WithdrawError),
}

/// Runs the shim.
pub fn main(options: Options) -> ExitCode {
    if options.program.man {
        return print_man_page();
    }
    let options = match options.validated() {
        Ok(options) => options,
        Err(error) => {
            complain("diskvitals-csi", &error.to_string());
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let logging = match logging::init(options.program.log_format, LevelFilter::INFO) {
        Ok(logging) => logging,
        Err(error) => {
            complain("diskvitals-csi", &with_causes(&error));
            return ExitCode::from(EXIT_FAILED);
        }
    };
    // One thread is enough: there are few callers, and nothing here blocks.
    // Connections that did not end within their time limit are closed.
    let ended = run_on_one_thread(run(options));
    let status = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(RunError::Withdraw(error)) => {
            complain("diskvitals-csi", &with_causes(&error));
            ExitCode::from(EXIT_FAILED)
        }
        Err(error) => {
            tracing::error!(error = with_causes(&error), "diskvitals-csi failed");
            ExitCode::from(EXIT_FAILED)
        }
    };
    logging.flush();
    status
}

fn print_man_page() -> ExitCode {
    let printed = SHIM.man(Options::command()).and_then(|page| std::io::stdout().write_all(&page));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("diskvitals-csi", &format!("writing the man page: {error}"));
            ExitCode::from(EXIT_FAILED)
        }
    }
}

async fn run(options: Options) -> Result<(), RunError> {
    let stop = Termination::new()?.requested();
    if let Some(Command::Withdraw(command)) = &options.command {
        return tokio::select! {
            withdrawn = withdraw_command::run(command) => Ok(withdrawn?),
            () = stop => Ok(()),
        };
    }
    let reporter =
        if options.report.is_empty() { None } else { Some(build_reporter(&options).await?) };
    let reporting = async {
        match reporter {
            Some(reporter) => reporter.run().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        served = serve(&options, stop) => served,
        never = reporting => match never {},
    }
}

/// Serves until `stop` completes.
async fn serve(options: &Options, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    // `Options::validated` has checked the flags of each mode.
    match (options.mode(), &options.endpoint) {
        (None, _) => {
            stop.await;
            Ok(())
        }
        (Some(mode @ (Mode::Driver | Mode::Controller)), Some(endpoint)) => {
            Ok(driver_mode::run(options, mode, endpoint, stop).await?)
        }
        (Some(mode @ Mode::Interposer), Some(endpoint)) => {
            let upstream = options.upstream.as_ref().ok_or(RunError::Flags(mode))?;
            Ok(interposer_mode::run(options, endpoint, upstream.path().to_owned(), stop).await?)
        }
        (Some(mode @ Mode::Registrar), Some(endpoint)) => {
            let folder = options.registration_dir.clone().ok_or(RunError::Flags(mode))?;
            let kubelet_path =
                options.kubelet_registration_path.clone().ok_or(RunError::Flags(mode))?;
            let registration = Registration {
                driver: endpoint.path().to_owned(),
                kubelet_path,
                registration_dir: folder,
            };
            Ok(registrar::run(registration, stop).await?)
        }
        (Some(mode), None) => Err(RunError::Flags(mode)),
    }
}

async fn build_reporter(options: &Options) -> Result<Reporter, RunError> {
    let (node, timing) = (node_id(options.node_id.as_deref())?, ReportTiming::default());
    let api = ApiServer::new(infer_config().await?, &node, &timing)?;
    let is_enabled = |kind| options.report.contains(&kind);
    let enabled = EnabledReports {
        events: is_enabled(ReportKind::Events),
        conditions: is_enabled(ReportKind::Conditions),
        storage_failed: is_enabled(ReportKind::StorageFailed),
        storage: is_enabled(ReportKind::Storage),
        challenges: options.answer_challenges,
        clean_stale: options.clean_stale,
    };
    Ok(Reporter {
        agent: options.agent.clone(),
        node,
        enabled,
        withdraw: options.withdraw,
        timing,
        api,
    })
}
