//! Release: a claim on a dead drive is deleted, its volume kept, so that the pod gets an empty volume
//! on another node. What may be proposed, what holds it back, and which step comes next. Pure.
//!
//! In: the policy, the candidate (from what is watched), the evidence (read for this decision, not
//! from a cache), the state of the fleet, and the time. Out: the refusing gates, or the next step.
//! A reading that failed or is missing refuses: nothing unknown lets an action pass.

pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod candidate;
pub(crate) mod check;
pub(crate) mod evidence;
pub(crate) mod proposal;
pub(crate) mod steps;

use std::time::Duration;

use jiff::Timestamp;

use crate::model::Elapsed;
use diskvitals_cluster::storage_action::APPROVAL_LIFETIME;

/// Label of a claim that opts in.
pub(crate) const CLAIM_LABEL: &str = "diskvitals.io/on-dead-drive";
pub(crate) const CLAIM_LABEL_VALUE: &str = "release";
/// Annotation of a StatefulSet whose members may return empty.
pub(crate) const EMPTY_MEMBER: &str = "diskvitals.io/empty-member";
/// Its values: any ordinal but 0, and any.
pub(crate) const REJOINS: &str = "rejoins";
pub(crate) const REJOINS_ANY: &str = "rejoins-any";
/// Annotation of a volume that an action keeps: the action, as `namespace/name`.
pub(crate) const VOLUME_ANNOTATION: &str = "diskvitals.io/action";
/// Annotation of such a volume: its reclaim policy before.
pub(crate) const POLICY_ANNOTATION: &str = "diskvitals.io/previous-reclaim-policy";

/// The time of a decision: durations are measured by the monotonic clock, times that others wrote
/// are compared with the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub elapsed: Elapsed,
    pub wall: Timestamp,
}

/// Durations of the gates.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The hold time of a policy is divided by this: 1, except in tests.
    pub hold_divisor: u32,
    pub node_ready: Duration,
    pub daemon_age: Duration,
    pub controller_age: Duration,
    pub approval: Duration,
    /// How far an approval may lie in the future: clocks differ.
    pub clock_skew: Duration,
    pub lease_left: Duration,
    /// An answer to a challenge that is older proves nothing about now.
    pub answer_age: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Limits {
            hold_divisor: 1,
            node_ready: minutes(10),
            daemon_age: minutes(30),
            controller_age: minutes(30),
            approval: APPROVAL_LIFETIME,
            clock_skew: minutes(2),
            lease_left: Duration::from_secs(10),
            answer_age: minutes(1),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
