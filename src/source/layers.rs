//! Layers: the state of md arrays, of device-mapper's pools, multipath devices, RAIDs and caches, of
//! bcache, and of ZFS pools.
//!
//! In: one device of the inventory. Out: its `LayerState`. Runs in a worker only: md's attributes
//! take locks that I/O can hold, and so can device-mapper. May not enter: whether a state is bad.

mod bcache;
mod md;
pub mod status;
mod zfs;

use std::io;

use crate::layers::status::StatusParseError;
use diskvitals_finding::dev::DevNo;
use diskvitals_host::dm::{self, DmError};
use diskvitals_host::root::HostRoot;
use diskvitals_model::block::{Layer, LayerState};
use diskvitals_model::stack::DmRaid;

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
    #[error("{path}: the pool is being imported or exported")]
    Transitioning { path: String },
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
        source: StatusParseError,
    },
}

/// State of the md, dm or bcache device with the kernel name `device`, or of a ZFS pool. `Plain` for every other
/// layer.
pub fn read(root: &HostRoot, device: &str, layer: &Layer) -> Result<LayerState, LayerError> {
    match layer {
        Layer::Md { .. } => md::read(root, device).map(LayerState::Md),
        Layer::Bcache => bcache::read(root, device).map(LayerState::Cache),
        Layer::ZfsPool { name } => zfs::read(root, name).map(LayerState::Zfs),
        Layer::Dm { .. } => {
            let lines = dm_lines(root, device, DmQuery::Status)?;
            let wrong = |source| LayerError::ParseStatus { device: device.to_owned(), source };
            if status::is_all_linear(&lines) {
                return status::parse_linear(&dm_lines(root, device, DmQuery::Table)?)
                    .map_err(wrong);
            }
            let mut state = status::parse(&lines).map_err(wrong)?;
            if let LayerState::DmRaid(DmRaid { level, layout, .. }) = &mut state
                && level.starts_with("raid10")
            {
                *layout = status::parse_raid10_layout(&dm_lines(root, device, DmQuery::Table)?);
            }
            if let LayerState::Cache(cache) = &mut state {
                let table = dm_lines(root, device, DmQuery::Table)?;
                cache.devices = status::parse_cache_devices(&table);
            }
            Ok(state)
        }
        _ => Ok(LayerState::Plain),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DmQuery {
    Status,
    /// Only for linear targets, RAID and caches: a crypt target's table may contain its key.
    Table,
}

/// A recorded tree has the lines in `exec/dm/NAME.status` and `NAME.table`; without a table file,
/// there are no lines.
fn dm_lines(root: &HostRoot, device: &str, question: DmQuery) -> Result<String, LayerError> {
    let read = |path: String| match root.read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && question == DmQuery::Table => {
            Ok(String::new())
        }
        Err(source) => Err(LayerError::Read { path, source }),
    };
    if root.is_recorded() {
        let file = match question {
            DmQuery::Table => "table",
            DmQuery::Status => "status",
        };
        return read(format!("/exec/dm/{device}.{file}"));
    }
    let path = format!("/sys/block/{device}/dev");
    let text = match root.read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(source) => return Err(LayerError::Read { path, source }),
    };
    let dev: DevNo =
        text.parse().map_err(|_| LayerError::Malformed { path, text: text.trim().to_owned() })?;
    let lines = match question {
        DmQuery::Table => dm::table(root, dev),
        DmQuery::Status => dm::table_status(root, dev),
    }
    .map_err(|source| LayerError::Status { device: device.to_owned(), source })?;
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests;
