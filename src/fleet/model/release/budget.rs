//! How many actions there may be: under way in the cluster, in a group and on a node, and in a day.
//!
//! In: the policy's budget and all actions. Out: why one more is too many. An action that is stuck
//! is under way until a person resolves it.

use jiff::Timestamp;

use crate::cluster::storage_action::{
    ABORTED, CLAIM_DELETED, CONFIRMED, STUCK, StorageActionSpec, StorageActionStatus,
};
use crate::cluster::storage_policy::DailyBudget;

/// What the budget and the breaker need of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActionSummary {
    pub namespace: String,
    pub name: String,
    pub node: String,
    /// In its namespace.
    pub group: String,
    /// When it began: the condition Confirmed is True since then.
    pub confirmed: Option<Timestamp>,
    pub is_finished: bool,
    pub is_stuck: bool,
    /// It ended before it deleted anything.
    pub changed_nothing: bool,
}

impl ActionSummary {
    pub(crate) fn new(
        namespace: &str,
        name: &str,
        spec: &StorageActionSpec,
        status: &StorageActionStatus,
    ) -> ActionSummary {
        let confirmed = status
            .conditions
            .iter()
            .find(|it| it.type_ == CONFIRMED && it.status == "True");
        ActionSummary {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            node: spec.node.name.clone(),
            group: spec.group.clone(),
            confirmed: confirmed.map(|it| it.last_transition_time.0),
            is_finished: status.is_finished(),
            is_stuck: status.has(STUCK) && !status.is_finished(),
            changed_nothing: status.has(ABORTED) && !status.has(CLAIM_DELETED),
        }
    }

    fn is_under_way(&self) -> bool {
        self.confirmed.is_some() && !self.is_finished || self.is_stuck
    }
}

/// The limit of a day.
pub(crate) fn per_day(budget: &DailyBudget, nodes: u32) -> u32 {
    let share = u64::from(nodes) * u64::from(budget.per_mille) / 1000;
    budget
        .absolute
        .max(u32::try_from(share).unwrap_or(u32::MAX))
}
