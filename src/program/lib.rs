//! What the programs have in common: logging, man pages, the options of each, the end by a signal, and one thread that
//! does all the work.
//!
//! In: nothing. Out: values and futures.

#![warn(unreachable_pub)]

pub mod logging;
pub mod manual;

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::logging::LogFormat;
use diskvitals_host::memory;

/// After this time, a program has answered its first calls.
const START_TIME: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, clap::Args)]
pub struct ProgramOptions {
    /// Log format, on standard error or to journald
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// Print this program's man page and exit
    #[arg(long, hide = true)]
    pub man: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("listening for signals")]
    Signal(#[source] std::io::Error),
}

/// SIGTERM and SIGINT, from the time of its construction on.
pub struct Termination {
    terminate: Signal,
    interrupt: Signal,
}

impl Termination {
    pub fn new() -> Result<Termination, ProgramError> {
        let listen = |kind| signal(kind).map_err(ProgramError::Signal);
        Ok(Termination {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    pub async fn requested(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        tracing::info!("stopping");
    }
}

/// Runs `program` to its end; what it has spawned ends with it.
pub fn run_on_one_thread<T, E: From<ProgramError>>(
    program: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ProgramError::Runtime)?;
    let ended = runtime.block_on(async {
        tokio::spawn(unmap_start());
        program.await
    });
    runtime.shutdown_timeout(Duration::ZERO);
    ended
}

/// What only the start needs is unmapped.
async fn unmap_start() {
    tokio::time::sleep(START_TIME).await;
    if let Err(error) = memory::unmap_code() {
        tracing::debug!(%error, "the code of the start stays mapped");
    }
}
