//! dm-multipath, with the failures of its paths. Read by `source/layers/status.rs`.

use serde::{Deserialize, Serialize};

use diskvitals_finding::dev::DevNo;

/// dm-multipath's status: each path and whether the kernel uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Multipath {
    pub paths: Vec<MultipathPath>,
    pub status_line: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultipathPath {
    pub dev: DevNo,
    pub active: bool,
    pub fail_count: u64,
}
