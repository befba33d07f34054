//! The node condition `StorageHealthy`: the node's reporter writes it, and `diskvitals-fleet` ends it
//! for a lost node, as the same owner of its fields: the next apply of either replaces the whole
//! condition.

use std::time::Duration;

pub const STORAGE_HEALTHY: &str = "StorageHealthy";

/// Owner of its fields (server-side apply).
pub const STORAGE_HEALTHY_MANAGER: &str = "diskvitals-report";

/// The reporter writes it again after this time, also without a change.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(300);

/// Its reason when the node is lost.
pub const NODE_LOST: &str = "NodeLost";
