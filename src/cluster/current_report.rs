//! What every reader of a `NodeStorage` asks before it believes it: the report is about the Node that
//! is there, its node's daemon answers, and it is young. How a reader measures the age is its own.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::node_storage::{DAEMON_REACHABLE, NodeStorageStatus};

/// A reporter writes every 30 minutes, also without a change: what was written before this time is no
/// statement.
pub const MAX_AGE: Duration = Duration::from_secs(45 * 60);

/// The condition that says whether the node's daemon answers.
pub fn daemon_reachable(status: &NodeStorageStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == DAEMON_REACHABLE)
}

/// The daemon answered when the report was written.
pub fn is_answering(condition: &Condition) -> bool {
    condition.status == "True"
}

/// The report is about this Node object, and not about another one that had its name.
pub fn is_about(status: &NodeStorageStatus, node_uid: &str) -> bool {
    !node_uid.is_empty() && status.node_uid == node_uid
}
