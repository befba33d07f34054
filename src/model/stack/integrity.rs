//! dm-integrity: a checksum for each sector, without copies. Read by `source/layers/status.rs`.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmIntegrity {
    /// Sectors that did not have their checksum, since it was activated. A repair does not lower it.
    pub mismatches: u64,
    pub status_line: String,
}
