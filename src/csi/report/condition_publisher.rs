//! Keeps a node condition up to date on the API server: writes it when it changes, and again as a
//! heartbeat, so that its age shows whether the reporter still runs.
//!
//! In: the view of the daemon. Out: server-side apply of one condition. A change of status or
//! reason is written within a rate limit, after the condition's own hold; a new message alone a
//! little later. Unknown is not written while only first evidence is awaited, so that a pod with a new volume
//! does not change what is published.

use std::convert::Infallible;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::report::api::ApiServer;
use crate::report::attempts::Attempts;
use crate::report::condition::{ConditionStatus, StorageCondition};
use crate::report::first_evidence::PendingSince;
use crate::report::node_condition::{Hold, NodeConditionKind};
use crate::report::{DaemonView, ReportTiming, first_evidence, maybe_sleep_until, now};
use diskvitals_kubernetes::api_error::ApiError;
use diskvitals_quota::token_bucket::TokenBucket;

/// What the API server has.
#[derive(Debug)]
enum Published {
    Unread,
    /// By an earlier process: status and transition time.
    Before(Option<(String, Timestamp)>),
    Applied(AppliedCondition),
}

/// The last applied condition.
#[derive(Debug)]
struct AppliedCondition {
    condition: StorageCondition,
    applied_at: Instant,
    /// The time since which the status has its value.
    since: Timestamp,
}

impl Published {
    fn status(&self) -> Option<ConditionStatus> {
        match self {
            Published::Unread => None,
            Published::Before(before) => ConditionStatus::from_name(&before.as_ref()?.0),
            Published::Applied(applied) => Some(applied.condition.status),
        }
    }

    fn applied(&self) -> Option<&AppliedCondition> {
        match self {
            Published::Applied(applied) => Some(applied),
            Published::Unread | Published::Before(_) => None,
        }
    }

    /// Status and transition time.
    fn before(&self) -> Option<(String, Timestamp)> {
        match self {
            Published::Unread => None,
            Published::Before(before) => before.clone(),
            Published::Applied(AppliedCondition { condition, since, .. }) => {
                Some((condition.status.name().to_owned(), *since))
            }
        }
    }
}

/// `leftover`: a condition that is no longer published; removed if it is there.
pub(crate) async fn run(
    mut views: watch::Receiver<DaemonView>,
    api: &ApiServer,
    node: &str,
    timing: &ReportTiming,
    kind: &NodeConditionKind,
    leftover: Option<&NodeConditionKind>,
) -> Infallible {
    let mut attempts = Attempts::new(timing, node, "node condition");
    let mut changes = TokenBucket::new(timing.condition_burst, timing.condition_interval);
    let mut hold = Hold::new((kind.hold)(timing));
    let mut waiting = PendingSince::default();
    let mut published = Published::Unread;
    loop {
        let view = views.borrow_and_update().clone();
        let grace_until = view.grace_until(timing.absence_grace);
        let overdue = waiting.update(view.snapshot.as_deref(), timing.absence_grace);
        let is_waiting = view.outage.is_none()
            && published.status().is_some()
            && view.snapshot.as_deref().is_some_and(|it| first_evidence::is_awaited(it, &overdue));
        let observed = (kind.observe)(&view, grace_until.is_some())
            .filter(|it| !is_waiting || it.status != ConditionStatus::Unknown);
        let (wanted, decide_at) = match published {
            // Nothing is decided before it is known what is published.
            Published::Unread => (observed, None),
            _ => hold.decide(observed, published.status(), Instant::now()),
        };
        let due = wanted.as_ref().map(|wanted| {
            due(published.applied(), wanted, timing, &mut changes).max(attempts.earliest())
        });
        tokio::select! {
            changed = views.changed() => if changed.is_err() {
                // The watch has ended because the process is ending.
                std::future::pending::<()>().await;
            },
            () = maybe_sleep_until(grace_until) => {}
            () = maybe_sleep_until(waiting.next_overdue(timing.absence_grace)) => {}
            () = maybe_sleep_until(decide_at) => {}
            () = maybe_sleep_until(due) => {
                let Some(wanted) = wanted else { continue };
                let written = match published {
                    Published::Unread => read(api, kind, leftover).await.map(Published::Before),
                    _ => apply(api, kind, published.before(), &wanted).await.map(Published::Applied),
                };
                match written {
                    Ok(new) => {
                        if new.applied().is_some() {
                            if is_change(published.applied(), &wanted) {
                                changes.use_one();
                            }
                            if published.applied().is_none_or(|applied| applied.condition.status != wanted.status) {
                                tracing::info!(node, condition = kind.name, status = wanted.status.name(), reason = wanted.reason, "the node condition is written");
                            }
                        }
                        published = new;
                        attempts.record_success();
                    }
                    Err(error) => attempts.record_failure(error),
                }
            }
        }
    }
}

/// The condition as an earlier process has left it.
async fn read(
    api: &ApiServer,
    kind: &NodeConditionKind,
    leftover: Option<&NodeConditionKind>,
) -> Result<Option<(String, Timestamp)>, ApiError> {
    let conditions = api.current_conditions().await?;
    let of = |kind: &NodeConditionKind| conditions.iter().find(|it| it.type_ == kind.name);
    if let Some(leftover) = leftover.filter(|leftover| of(leftover).is_some()) {
        api.remove_condition(leftover).await?;
        tracing::info!(
            condition = leftover.name,
            "a node condition that is no longer reported is removed"
        );
    }
    Ok(of(kind).and_then(|it| Some((it.status.clone(), it.last_transition_time.as_ref()?.0))))
}

/// The time of the next write. While a state flaps, the latest one is written as soon as the rate
/// limit allows.
fn due(
    applied: Option<&AppliedCondition>,
    wanted: &StorageCondition,
    timing: &ReportTiming,
    changes: &mut TokenBucket,
) -> Instant {
    match applied {
        Some(applied) if applied.condition == *wanted => {
            applied.applied_at + timing.heartbeat_interval
        }
        Some(applied) if !is_change(Some(applied), wanted) => {
            applied.applied_at + timing.message_interval
        }
        _ => changes.next_available(true),
    }
}

fn is_change(applied: Option<&AppliedCondition>, wanted: &StorageCondition) -> bool {
    applied.is_none_or(|applied| {
        (applied.condition.status, &applied.condition.reason) != (wanted.status, &wanted.reason)
    })
}

/// Applies the condition. Its transition time may come from an earlier process.
async fn apply(
    api: &ApiServer,
    kind: &NodeConditionKind,
    before: Option<(String, Timestamp)>,
    wanted: &StorageCondition,
) -> Result<AppliedCondition, ApiError> {
    let now = now();
    let since = transition_time(before, wanted.status, now);
    api.apply_condition(kind, wanted, since, now).await?;
    Ok(AppliedCondition { condition: wanted.clone(), applied_at: Instant::now(), since })
}

fn transition_time(
    before: Option<(String, Timestamp)>,
    status: ConditionStatus,
    now: Timestamp,
) -> Timestamp {
    before.filter(|(old, _)| old == status.name()).map_or(now, |(_, since)| since.min(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use diskvitals_kubernetes::event::message;

    fn condition(status: ConditionStatus, reason: &str, why: &str) -> StorageCondition {
        StorageCondition { status, reason: reason.into(), message: message(why) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_due_at_once_a_new_message_soon_and_the_same_condition_at_its_heartbeat() {
        let timing = ReportTiming::default();
        let mut changes = TokenBucket::new(timing.condition_burst, timing.condition_interval);
        let applied = AppliedCondition {
            condition: condition(ConditionStatus::False, "SmartFailing", "a"),
            applied_at: Instant::now(),
            since: Timestamp::UNIX_EPOCH,
        };
        let mut after = |status, reason: &str, message: &str| {
            due(Some(&applied), &condition(status, reason, message), &timing, &mut changes)
                .saturating_duration_since(Instant::now())
        };
        assert_eq!(after(ConditionStatus::True, "NothingFound", "a"), Duration::ZERO);
        assert_eq!(after(ConditionStatus::False, "DriveMissing", "a"), Duration::ZERO);
        assert_eq!(after(ConditionStatus::False, "SmartFailing", "b"), Duration::from_secs(30));
        assert_eq!(after(ConditionStatus::False, "SmartFailing", "a"), Duration::from_secs(300));
        assert_eq!(
            due(None, &condition(ConditionStatus::True, "NothingFound", ""), &timing, &mut changes),
            Instant::now()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_flapping_condition_is_applied_three_times_at_once_then_every_ten_seconds() {
        let timing = ReportTiming::default();
        let (mut changes, mut applied, begin) = (
            TokenBucket::new(timing.condition_burst, timing.condition_interval),
            None,
            Instant::now(),
        );
        let mut times = Vec::new();
        for number in 0..6 {
            let wanted = condition(
                if number % 2 == 0 { ConditionStatus::True } else { ConditionStatus::Unknown },
                "A",
                "b",
            );
            tokio::time::sleep_until(due(applied.as_ref(), &wanted, &timing, &mut changes)).await;
            if is_change(applied.as_ref(), &wanted) {
                changes.use_one();
            }
            applied = Some(AppliedCondition {
                condition: wanted,
                applied_at: Instant::now(),
                since: Timestamp::UNIX_EPOCH,
            });
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 10, 20, 30]);
    }

    #[test]
    fn the_transition_time_survives_a_restart_and_changes_only_with_the_status() {
        let time = |second| Timestamp::from_second(second).expect("a time");
        let before = || Some(("False".to_owned(), time(10)));
        assert_eq!(transition_time(before(), ConditionStatus::False, time(99)), time(10));
        assert_eq!(transition_time(before(), ConditionStatus::Unknown, time(99)), time(99));
        assert_eq!(transition_time(None, ConditionStatus::False, time(99)), time(99));
        // Of a clock that was ahead.
        assert_eq!(
            transition_time(Some(("False".into(), time(500))), ConditionStatus::False, time(99)),
            time(99)
        );
    }
}
