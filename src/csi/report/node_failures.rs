//! Why the node as a whole is unfit, as the daemon judges it.

use diskvitals_wire as wire;

/// As the daemon judges the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFailures {
    /// Worst first.
    pub failures: Vec<NodeFailure>,
    /// The daemon knows all that it needs to say that there are no others.
    pub is_complete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFailure {
    pub reason: String,
    pub message: String,
}

impl NodeFailures {
    pub(crate) fn from_wire(found: &wire::NodeFailures) -> NodeFailures {
        let failure = |failure: &wire::NodeFailure| NodeFailure {
            reason: failure.reason.clone(),
            message: failure.message.clone(),
        };
        NodeFailures {
            failures: found.failures.iter().map(failure).collect(),
            is_complete: found.unknown.is_empty(),
        }
    }
}
