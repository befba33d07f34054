//! How many actions there may be: under way in the cluster, in a group and on a node, and in a day.
//!
//! In: the policy's budget and all actions. Out: why one more is too many. An action that is stuck
//! is under way until a person resolves it.

use jiff::{SignedDuration, Timestamp};

use diskvitals_cluster::storage_action::{
    ABORTED, CLAIM_DELETED, CONFIRMED, STUCK, StorageActionSpec, StorageActionStatus,
};
use diskvitals_cluster::storage_policy::{Budget, DailyBudget};

const DAY: SignedDuration = SignedDuration::from_hours(24);

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
        let confirmed =
            status.conditions.iter().find(|it| it.type_ == CONFIRMED && it.status == "True");
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
    budget.absolute.max(u32::try_from(share).unwrap_or(u32::MAX))
}

/// Why `own` may not begin, or go on, beside the others.
pub(crate) fn refusal(
    budget: &Budget,
    nodes: u32,
    actions: &[ActionSummary],
    own: &ActionSummary,
    now: Timestamp,
) -> Option<String> {
    let count = |filter: &dyn Fn(&ActionSummary) -> bool| {
        let others =
            actions.iter().filter(|it| (&it.namespace, &it.name) != (&own.namespace, &own.name));
        u32::try_from(others.filter(|it| filter(it)).count()).unwrap_or(u32::MAX)
    };
    let under_way = count(&ActionSummary::is_under_way);
    let of_group =
        count(&|it| it.is_under_way() && it.namespace == own.namespace && it.group == own.group);
    let of_node = count(&|it| it.is_under_way() && it.node == own.node);
    let of_day = count(&|it| {
        !it.changed_nothing && it.confirmed.is_some_and(|since| now.duration_since(since) < DAY)
    });
    [
        (under_way, budget.in_flight, "in the cluster"),
        (of_group, budget.per_group, "in the group"),
        (of_node, budget.per_node, "on the node"),
        (of_day, per_day(&budget.per_day, nodes), "within 24 hours"),
    ]
    .into_iter()
    .find(|(used, limit, _)| used >= limit)
    .map(|(used, limit, scope)| format!("{used} of {limit} actions {scope}"))
}
