//! Layers: the state of md arrays and of device-mapper's thin pools, multipath devices and RAIDs.
//!
//! In: one device of the inventory. Out: its `LayerState`. Runs in a worker only: md's attributes take locks that I/O can hold, and so can
//! device-mapper. May not enter: whether a state is bad.

mod md;
mod status;

use std::io;

use crate::host::dm::{self, DmError};
use crate::host::root::HostRoot;
use crate::model::block::{Layer, LayerState};
use crate::model::dev::DevNo;
use crate::source::layers::status::BadStatus;

#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("reading {path}")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path}: `{text}` makes no sense")]
    Malformed { path: String, text: String },
    #[error("reading the state of {device}")]
    Status {
        device: String,
        #[source]
        source: DmError,
    },
    #[error("reading the state of {device}")]
    ParseStatus {
        device: String,
        #[source]
        source: BadStatus,
    },
}

/// State of the md or dm device with the kernel name `device`. `Plain` for every other layer.
pub fn read(root: &HostRoot, device: &str, layer: &Layer) -> Result<LayerState, LayerError> {
    match layer {
        Layer::Md { .. } => md::read(root, device).map(LayerState::Md),
        Layer::Dm { .. } => {
            let lines = dm_status(root, device)?;
            status::parse(&lines).map_err(|source| LayerError::ParseStatus { device: device.to_owned(), source })
        }
        _ => Ok(LayerState::Plain),
    }
}

/// A recorded tree has the lines in `exec/dm/NAME.status`.
fn dm_status(root: &HostRoot, device: &str) -> Result<String, LayerError> {
    let read = |path: String| match root.read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(source) => Err(LayerError::Read { path, source }),
    };
    if root.is_recorded() {
        return read(format!("/exec/dm/{device}.status"));
    }
    let path = format!("/sys/block/{device}/dev");
    let text = read(path.clone())?;
    let dev: DevNo = text.parse().map_err(|_| LayerError::Malformed { path, text: text.trim().to_owned() })?;
    let lines = dm::table_status(root, dev).map_err(|source| LayerError::Status { device: device.to_owned(), source })?;
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests;
