//! dm-thin's pools. Read by `source/layers/status.rs`.

use serde::{Deserialize, Serialize};

/// dm-thin's pool status (Documentation/admin-guide/device-mapper/thin-provisioning.rst), in
/// blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinPool {
    pub metadata_used: u64,
    pub metadata_total: u64,
    pub data_used: u64,
    pub data_total: u64,
    /// `rw`, `ro`, `out_of_data_space`, `Fail`.
    pub mode: String,
    pub needs_check: bool,
    pub status_line: String,
}
