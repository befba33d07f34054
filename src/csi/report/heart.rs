//! Keeps the node's condition at the API server: told when it changes, and again from time to time,
//! so that its age shows whether anybody still looks.
//!
//! In: what is seen of the daemon. Out: server-side apply of one condition. A change of status or
//! reason is told at once, unless there are many; another message a little later.

use std::convert::Infallible;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::csi::report::api::{Api, Failure};
use crate::csi::report::bucket::Bucket;
use crate::csi::report::condition::{Condition, Status, condition};
use crate::csi::report::pause::Pause;
use crate::csi::report::{Pace, Sight, at, now};

/// What the API server has from us.
#[derive(Debug)]
struct Told {
    condition: Condition,
    at: Instant,
    /// Since when the status is what it is.
    since: Timestamp,
}

pub async fn run(
    mut sights: watch::Receiver<Sight>,
    api: &Api,
    node: &str,
    pace: &Pace,
) -> Infallible {
    let mut pause = Pause::new(pace, node);
    let mut changes = Bucket::new(pace.changes, pace.change);
    let (mut told, mut not_before, mut trouble): (Option<Told>, Option<Instant>, Option<String>) =
        (None, None, None);
    loop {
        let sight = sights.borrow_and_update().clone();
        let patient = sight.patient_until(pace.patience);
        let wanted = condition(&sight, patient.is_some());
        let due = wanted.as_ref().map(|wanted| {
            due(told.as_ref(), wanted, pace, &mut changes)
                .max(not_before.unwrap_or_else(Instant::now))
        });
        tokio::select! {
            changed = sights.changed() => if changed.is_err() {
                // Nobody looks any more: the process ends.
                std::future::pending::<()>().await;
            },
            () = at(patient) => {}
            () = at(due) => {
                let Some(wanted) = wanted else { continue };
                match tell(api, told.as_ref(), &wanted).await {
                    Ok(since) => {
                        if is_change(told.as_ref(), &wanted) {
                            changes.take();
                        }
                        if told.as_ref().is_none_or(|told| told.condition.status != wanted.status) {
                            tracing::info!(node, status = wanted.status.name(), reason = wanted.reason, "the node's condition is told");
                        }
                        told = Some(Told { condition: wanted, at: Instant::now(), since });
                        pause.succeeded();
                        (not_before, trouble) = (None, None);
                    }
                    Err(failure) => {
                        let (why, wish) = failure.parts();
                        if trouble.as_ref() != Some(&why) {
                            tracing::warn!(node, trouble = why, "the node's condition cannot be told; trying on");
                        }
                        trouble = Some(why);
                        not_before = Some(Instant::now() + pause.failed(wish));
                    }
                }
            }
        }
    }
}

/// Where something comes and goes, it is the latest state that is told when it may be.
fn due(told: Option<&Told>, wanted: &Condition, pace: &Pace, changes: &mut Bucket) -> Instant {
    match told {
        Some(told) if told.condition == *wanted => told.at + pace.heartbeat,
        Some(told) if !is_change(Some(told), wanted) => told.at + pace.message,
        _ => changes.next(),
    }
}

fn is_change(told: Option<&Told>, wanted: &Condition) -> bool {
    told.is_none_or(|told| {
        (told.condition.status, &told.condition.reason) != (wanted.status, &wanted.reason)
    })
}

/// Since when it is so: as this process has told it, or one before it.
async fn tell(api: &Api, told: Option<&Told>, wanted: &Condition) -> Result<Timestamp, Failure> {
    let before = match told {
        Some(told) => Some((told.condition.status.name().to_owned(), told.since)),
        None => api.condition().await?,
    };
    let now = now();
    let since = since(before, wanted.status, now);
    api.tell_condition(wanted, since, now).await?;
    Ok(since)
}

fn since(before: Option<(String, Timestamp)>, status: Status, now: Timestamp) -> Timestamp {
    before
        .filter(|(old, _)| old == status.name())
        .map_or(now, |(_, since)| since.min(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn condition(status: Status, reason: &str, message: &str) -> Condition {
        Condition {
            status,
            reason: reason.into(),
            message: message.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_due_at_once_another_message_soon_and_the_same_by_its_heartbeat() {
        let pace = Pace::default();
        let mut changes = Bucket::new(pace.changes, pace.change);
        let told = Told {
            condition: condition(Status::False, "SmartFailing", "a"),
            at: Instant::now(),
            since: Timestamp::UNIX_EPOCH,
        };
        let mut after = |status, reason: &str, message: &str| {
            due(
                Some(&told),
                &condition(status, reason, message),
                &pace,
                &mut changes,
            )
            .saturating_duration_since(Instant::now())
        };
        assert_eq!(after(Status::True, "NothingFound", "a"), Duration::ZERO);
        assert_eq!(after(Status::False, "DriveMissing", "a"), Duration::ZERO);
        assert_eq!(
            after(Status::False, "SmartFailing", "b"),
            Duration::from_secs(30)
        );
        assert_eq!(
            after(Status::False, "SmartFailing", "a"),
            Duration::from_secs(300)
        );
        assert_eq!(
            due(
                None,
                &condition(Status::True, "NothingFound", ""),
                &pace,
                &mut changes
            ),
            Instant::now()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_and_goes_is_told_three_times_at_once_and_then_every_ten_seconds() {
        let pace = Pace::default();
        let (mut changes, mut told, begin) =
            (Bucket::new(pace.changes, pace.change), None, Instant::now());
        let mut times = Vec::new();
        for number in 0..6 {
            let wanted = condition(
                if number % 2 == 0 {
                    Status::True
                } else {
                    Status::Unknown
                },
                "A",
                "b",
            );
            tokio::time::sleep_until(due(told.as_ref(), &wanted, &pace, &mut changes)).await;
            if is_change(told.as_ref(), &wanted) {
                changes.take();
            }
            told = Some(Told {
                condition: wanted,
                at: Instant::now(),
                since: Timestamp::UNIX_EPOCH,
            });
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 10, 20, 30]);
    }

    #[test]
    fn the_time_of_the_transition_outlives_the_process_and_changes_with_the_status_only() {
        let time = |second| Timestamp::from_second(second).expect("a time");
        let before = || Some(("False".to_owned(), time(10)));
        assert_eq!(since(before(), Status::False, time(99)), time(10));
        assert_eq!(since(before(), Status::Unknown, time(99)), time(99));
        assert_eq!(since(None, Status::False, time(99)), time(99));
        // Of a clock that was ahead.
        assert_eq!(
            since(Some(("False".into(), time(500))), Status::False, time(99)),
            time(99)
        );
    }
}
