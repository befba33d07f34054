//! The error of a command: the failed operation and its cause.

use std::io;
use std::path::PathBuf;

use crate::bundle::read::ReadError;
use crate::bundle::write::WriteError;
use crate::check_image::ImageError;
use crate::json::JsonError;
use diskvitals_config::ConfigError;
use diskvitals_wire::client::ClientError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("starting the event loop")]
    Runtime(#[source] io::Error),
    #[error("writing the output")]
    Output(#[source] io::Error),
    #[error("writing the man pages to {}", dir.display())]
    Man {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{prefix}` is the beginning of several findings' ids: {candidates}")]
    AmbiguousFinding { prefix: String, candidates: String },
    #[error("finding `{0}` has cleared: only active findings can be acknowledged")]
    FindingCleared(String),
    #[error("`{name}` is no reason{hint}")]
    UnknownReason { name: String, hint: String },
    #[error("reading the answer")]
    Input(#[source] io::Error),
    #[error("reading {path}")]
    Record {
        path: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("waiting for an interrupt")]
    Signal(#[source] io::Error),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("making JSON of the answer")]
    Json(#[from] JsonError),
    #[error(transparent)]
    ReadBundle(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}
