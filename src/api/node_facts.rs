//! Facts about the node that do not change while the daemon runs: `app` sets them, GetNode answers
//! with them.

use jiff::Timestamp;

/// What does not change while the daemon runs.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub name: String,
    /// `uname -r`.
    pub kernel: String,
    pub boot_id: String,
    /// The daemon's.
    pub version: String,
    pub started: Timestamp,
    /// What the daemon may not see or do for want of rights.
    pub limitations: Vec<String>,
}
