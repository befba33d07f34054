//! Why the daemon does not start, or has ended.

use std::path::PathBuf;

use crate::api::server::ServeError;
use crate::state::lock::LockError;
use diskvitals_host::listen::ListenError;
use diskvitals_provision::engine::EngineError;
use diskvitals_source::context::SourceError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("the host's root {} cannot be used: give another --host-root", dir.display())]
    HostRoot {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("finding this program's own file, to start its workers")]
    OwnProgram(#[source] std::io::Error),
    #[error(
        "the state directory cannot be used: stop the other daemon, or give another --state-dir"
    )]
    State(#[source] LockError),
    #[error("starting the store's thread")]
    Store(#[source] std::io::Error),
    #[error("the socket cannot be used")]
    Listen(#[from] ListenError),
    #[error(
        "metrics cannot be served on {address}: give another address, or the unit its network (docs/metrics.md)"
    )]
    Metrics {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("starting the watchdog's thread")]
    Watchdog(#[source] std::io::Error),
    #[error("listening for signals")]
    Signal(#[source] std::io::Error),
    #[error("serving clients")]
    Serve(#[from] ServeError),
    #[error("a source has ended")]
    Source(#[from] SourceError),
    #[error("the engine of this node's own volumes has ended")]
    Volumes(#[from] EngineError),
    #[error("the task `{0}` has ended before its time")]
    TaskEnded(&'static str),
    #[error("a task has failed")]
    TaskFailed(#[source] tokio::task::JoinError),
}
