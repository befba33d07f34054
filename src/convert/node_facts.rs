//! Facts about the node that do not change while the daemon runs: set by `app`, returned by GetNode.

use jiff::Timestamp;

#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub name: String,
    /// The kernel release, as `uname -r` prints it.
    pub kernel: String,
    pub boot_id: String,
    /// machine-id(5) of the host; empty if it has none.
    pub machine_id: String,
    /// The daemon's version.
    pub version: String,
    pub started: Timestamp,
    /// Observations and actions that are impossible because the daemon lacks privileges.
    pub limitations: Vec<String>,
}
