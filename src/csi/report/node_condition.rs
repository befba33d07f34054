//! The node conditions that the reporter owns. Each has a field manager of its own, so that
//! server-side apply of one leaves the other.
//!
//! In: the view of the daemon. Out: the condition to publish, after the time for which it must have
//! been observed. No I/O.

use std::time::Duration;

use tokio::time::Instant;

use crate::report::condition::{ConditionStatus, StorageCondition, storage_condition};
use crate::report::failed_condition::failed_condition;
use crate::report::{DaemonView, ReportTiming};
use diskvitals_cluster::node_condition;

#[derive(Debug)]
pub(crate) struct NodeConditionKind {
    pub name: &'static str,
    /// Owner of its fields (server-side apply).
    pub manager: &'static str,
    /// `in_grace`: a possible outage of the daemon is not to be published yet.
    pub observe: fn(view: &DaemonView, in_grace: bool) -> Option<StorageCondition>,
    /// How long another status must be observed without interruption before it is published.
    pub hold: fn(&ReportTiming) -> Duration,
}

/// For people: any finding that counts.
pub(crate) static STORAGE_HEALTHY: NodeConditionKind = NodeConditionKind {
    name: node_condition::STORAGE_HEALTHY,
    manager: node_condition::STORAGE_HEALTHY_MANAGER,
    observe: storage_condition,
    hold: |_| Duration::ZERO,
};

/// For programs: the node as a whole is unfit.
pub(crate) static STORAGE_FAILED: NodeConditionKind = NodeConditionKind {
    name: "StorageFailed",
    manager: "diskvitals-report-failed",
    observe: failed_condition,
    hold: |timing| timing.failure_hold,
};

/// Delays a change of the status until it has been observed for some time.
#[derive(Debug)]
pub(crate) struct Hold {
    time: Duration,
    /// The other status, and since when it has been observed.
    pending: Option<(ConditionStatus, Instant)>,
}

impl Hold {
    pub(crate) fn new(time: Duration) -> Hold {
        Hold { time, pending: None }
    }

    /// The condition to publish now, or the time at which to decide again. Nothing published yet
    /// counts as False. An unknown state publishes nothing and begins the time anew.
    pub(crate) fn decide(
        &mut self,
        observed: Option<StorageCondition>,
        published: Option<ConditionStatus>,
        now: Instant,
    ) -> (Option<StorageCondition>, Option<Instant>) {
        let Some(observed) = observed else {
            self.pending = None;
            return (None, None);
        };
        let status = observed.status;
        if self.time.is_zero() || status == published.unwrap_or(ConditionStatus::False) {
            self.pending = None;
            return (Some(observed), None);
        }
        let since = match self.pending {
            Some((pending, since)) if pending == status => since,
            _ => now,
        };
        self.pending = Some((status, since));
        let until = since + self.time;
        if now < until {
            return (None, Some(until));
        }
        (Some(observed), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_text::echo::Shown;

    const HOLD: Duration = Duration::from_secs(120);

    fn condition(status: ConditionStatus) -> Option<StorageCondition> {
        Some(StorageCondition { status, reason: "R".into(), message: Shown::default() })
    }

    /// Whether each observation is published: second, observed status, published status.
    fn decide(steps: &[(u64, Option<ConditionStatus>, Option<ConditionStatus>)]) -> Vec<bool> {
        let (mut hold, begin) = (Hold::new(HOLD), Instant::now());
        let steps = steps.iter();
        steps
            .map(|(second, observed, published)| {
                let now = begin + Duration::from_secs(*second);
                let observed = observed.and_then(condition);
                let (wanted, again) = hold.decide(observed.clone(), *published, now);
                assert_eq!(
                    again.is_some(),
                    observed.is_some() && wanted.is_none(),
                    "what is pending is decided later"
                );
                wanted.is_some()
            })
            .collect()
    }

    const TRUE: Option<ConditionStatus> = Some(ConditionStatus::True);
    const FALSE: Option<ConditionStatus> = Some(ConditionStatus::False);

    #[test]
    fn a_failure_is_published_after_two_minutes_and_fitness_at_once_when_nothing_was_published() {
        assert_eq!(
            decide(&[(0, TRUE, None), (119, TRUE, None), (120, TRUE, None)]),
            [false, false, true]
        );
        assert_eq!(decide(&[(0, FALSE, None)]), [true]);
    }

    #[test]
    fn the_end_of_a_failure_is_held_too_and_what_flaps_stays_as_it_is() {
        assert_eq!(decide(&[(0, FALSE, TRUE), (120, FALSE, TRUE)]), [false, true]);
        let flapping: Vec<_> = (0..20)
            .map(|step| (step * 60, if step % 2 == 0 { TRUE } else { FALSE }, FALSE))
            .collect();
        let published = decide(&flapping);
        let is_true = |(at, _): &(usize, &bool)| at % 2 == 0;
        assert!(
            published.iter().enumerate().filter(is_true).all(|(_, it)| !it),
            "True is never published"
        );
    }

    #[test]
    fn an_unknown_state_publishes_nothing_and_begins_the_time_anew() {
        assert_eq!(
            decide(&[
                (0, TRUE, FALSE),
                (100, None, FALSE),
                (110, TRUE, FALSE),
                (229, TRUE, FALSE),
                (230, TRUE, FALSE)
            ]),
            [false, false, false, false, true]
        );
    }

    #[test]
    fn without_a_hold_every_status_is_published_at_once() {
        let mut hold = Hold::new(Duration::ZERO);
        for status in [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown] {
            let (wanted, _) = hold.decide(condition(status), TRUE, Instant::now());
            assert_eq!(wanted.map(|it| it.status), Some(status));
        }
    }
}
