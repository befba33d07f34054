//! The error of a command: what was being done when it failed, with its cause.

use std::io;
use std::path::PathBuf;

use crate::api::client::ClientError;
use crate::cli::check_image::ImageError;
use crate::cli::json::JsonError;
use crate::config::ConfigError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Client(ClientError),
    #[error("writing the output")]
    Output(#[source] io::Error),
    #[error("writing the man pages to {}", dir.display())]
    Man {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("waiting for an interrupt")]
    Signal(#[source] io::Error),
    #[error(transparent)]
    Image(ImageError),
    #[error(transparent)]
    Config(ConfigError),
    #[error("making JSON of the answer")]
    Json(#[source] JsonError),
    #[error("diskvitalsd at {} has ended the watch: {why}", socket.display())]
    WatchEnded { socket: PathBuf, why: String },
}
