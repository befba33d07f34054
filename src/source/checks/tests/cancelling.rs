//! Cancelled, and gone: at each phase it ends at once, thawed, with nothing left.

use std::time::Duration;

use super::fake::{
    FakeBehavior, Harness, RUN_TAKES, desired, desired_frozen, desired_scheduled, harness,
    harness_with,
};
use crate::checks::load::{IoLoad, LoadSource};
use diskvitals_fscheck::{CheckState, CheckVerdict};

/// Waits until something was done or said.
async fn wait_until(lab: &Harness, what: &str, so: impl Fn(&Harness) -> bool) {
    for _ in 0..100_000 {
        if so(lab) {
            return;
        }
        lab.advance(0.01).await;
    }
    panic!("never: {what}; {:?}", lab.log());
}

fn phase(lab: &Harness, part: &str) -> bool {
    lab.progress_of("sda1").iter().any(
        |(_, progress)| matches!(&progress.state, CheckState::Running { phase, .. } if phase.contains(part)),
    )
}

fn waits(lab: &Harness) -> bool {
    lab.progress_of("sda1")
        .pop()
        .is_some_and(|(_, progress)| matches!(progress.state, CheckState::Waiting { .. }))
}

/// Ends within a second as cancelled, with so many runs.
async fn assert_cancels(lab: &Harness, runs: usize) {
    lab.cancel("sda1");
    lab.advance(1.0).await;
    let (_, outcome, made) = lab.outcome_of("sda1").expect("it has ended");
    assert_eq!(
        (outcome.verdict, outcome.reason.as_str(), made),
        (CheckVerdict::Inconclusive, "cancelled by uid 0 (root)", runs)
    );
    lab.assert_clean();
    // Its turn is free for the next.
    lab.set_behavior("sda1", |how| *how = FakeBehavior::default());
    lab.change_desired(|all| all.push(desired("sda1/2")));
    lab.advance(20.0).await;
    assert_eq!(lab.outcome_of("sda1/2").unwrap().1.verdict, CheckVerdict::Clean);
}

/// Every part of it takes half a second at least.
fn slow() -> Harness {
    let half = Duration::from_millis(500);
    let how = FakeBehavior {
        prepare_takes: half,
        syncfs: Ok(half * 4),
        freeze_takes: half,
        thaw_takes: half,
        ..FakeBehavior::default()
    };
    harness_with(vec![desired_frozen("sda1")], |state| {
        state.behaviors.insert("sda1".to_owned(), how);
    })
}

#[tokio::test(start_paused = true)]
async fn cancel_while_queued() {
    let lab = harness(vec![desired("sdb1"), desired("sda1")]);
    lab.set_behavior("sdb1", |how| how.run_takes = Duration::from_millis(1500));
    lab.advance(1.0).await;
    assert_cancels(&lab, 0).await;
    assert!(lab.times_of("live sda1").len() == 1, "only the other one");
}

#[tokio::test(start_paused = true)]
async fn cancel_while_waiting_for_a_quiet_node() {
    let lab = harness_with(vec![desired_scheduled("sda1")], |state| {
        state.load = Some(Ok(IoLoad { percent: 90.0, source: LoadSource::Drive }))
    });
    lab.advance(100.0).await;
    assert_cancels(&lab, 0).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_while_preparing() {
    let lab = slow();
    lab.advance(0.2).await;
    assert_cancels(&lab, 0).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_during_a_live_run() {
    let lab = slow();
    wait_until(&lab, "it runs", |lab| !lab.log().is_empty()).await;
    lab.advance(1.0).await;
    assert_cancels(&lab, 0).await;
    assert_eq!(lab.log()[..2], ["live sda1", "killed sda1"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_during_syncfs() {
    let lab = slow();
    wait_until(&lab, "syncfs", |lab| phase(lab, "syncfs")).await;
    assert_cancels(&lab, 1).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_while_freezing() {
    let lab = slow();
    wait_until(&lab, "it freezes", |lab| lab.times_of("freezing sda1").len() == 1).await;
    assert_cancels(&lab, 1).await;
    assert_eq!(lab.times_of("dropped, thawed sda1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_frozen_run_thaws_before_it_kills_the_checker() {
    let lab = slow();
    wait_until(&lab, "it is frozen", |lab| lab.times_of("frozen sda1").len() == 1).await;
    lab.advance(1.0).await;
    assert_cancels(&lab, 1).await;
    assert_eq!(lab.log()[1..5], ["freezing sda1", "frozen sda1", "thawed sda1", "killed sda1"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_while_thawing() {
    let lab = slow();
    wait_until(&lab, "it is frozen", |lab| lab.times_of("frozen sda1").len() == 1).await;
    lab.advance(RUN_TAKES.as_secs_f64() + 0.2).await;
    assert!(lab.backend.with_state(|state| !state.frozen.is_empty() && state.running.is_empty()));
    // The run is over and counts.
    assert_cancels(&lab, 2).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_between_two_frozen_runs() {
    let lab = slow();
    wait_until(&lab, "it waits", waits).await;
    lab.advance(10.0).await;
    assert_cancels(&lab, 2).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_while_waiting_for_another_permit() {
    let lab = slow();
    lab.set_behavior("sdb1", |how| how.run_takes = Duration::from_secs(300));
    wait_until(&lab, "it waits", waits).await;
    lab.change_desired(|all| all.push(desired("sdb1")));
    lab.advance(100.0).await;
    lab.cancel("sda1");
    lab.advance(1.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().2, 2);
}

#[tokio::test(start_paused = true)]
async fn a_check_the_owner_drops_ends_as_cancelled() {
    let lab = slow();
    wait_until(&lab, "it is frozen", |lab| lab.times_of("frozen sda1").len() == 1).await;
    lab.change_desired(Vec::clear);
    lab.advance(1.0).await;
    let (_, outcome, _) = lab.outcome_of("sda1").unwrap();
    assert_eq!(outcome.verdict, CheckVerdict::Inconclusive);
    assert!(outcome.reason.contains("no longer wanted"), "{}", outcome.reason);
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_check_cancelled_before_it_is_queued_never_starts() {
    let mut stopped = desired("sda1");
    stopped.cancellation =
        Some(diskvitals_fscheck::Cancellation { reason: "its pod is being deleted".to_owned() });
    let lab = harness(vec![stopped]);
    lab.advance(10.0).await;
    let (_, outcome, _) = lab.outcome_of("sda1").unwrap();
    assert_eq!(
        (outcome.verdict, outcome.reason.as_str()),
        (CheckVerdict::Inconclusive, "its pod is being deleted")
    );
    assert!(lab.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn daemon_shutdown_thaws() {
    let lab = slow();
    wait_until(&lab, "it is frozen", |lab| lab.times_of("frozen sda1").len() == 1).await;
    let backend = lab.backend.clone();
    drop(lab);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(backend.with_state(|state| state.frozen.is_empty() && state.running.is_empty()));
}

/// A checker that hangs in the kernel when its check is cancelled.
async fn assert_cancel_leaves_stuck_checker(lab: &Harness) {
    lab.set_behavior("sda1", |how| how.unstoppable = true);
    lab.cancel("sda1");
    // While it is not known whether it goes, nobody else begins.
    lab.change_desired(|all| all.push(desired("sda1/2")));
    lab.advance(4.0).await;
    assert!(
        lab.outcome_of("sda1/2").is_none()
            && lab.backend.with_state(|state| state.frozen.is_empty())
    );
    lab.advance(2.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().1.reason, "cancelled by uid 0 (root)");
    let (_, outcome, runs) = lab.outcome_of("sda1/2").expect("it has ended");
    assert_eq!((outcome.verdict, runs), (CheckVerdict::Failed, 0));
    assert!(
        outcome.reason.contains("folio_wait_bit") && outcome.reason.contains("cannot be killed"),
        "{}",
        outcome.reason
    );

    lab.advance(100_000.0).await;
    lab.backend.with_state(|state| state.unkillable.clear());
    lab.advance(1.0).await;
    lab.set_behavior("sda1", |how| *how = FakeBehavior::default());
    lab.change_desired(|all| all.push(desired("sda1/3")));
    lab.advance(20.0).await;
    assert_eq!(lab.outcome_of("sda1/3").unwrap().1.verdict, CheckVerdict::Clean);
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_checker_stuck_after_cancel_blocks_its_filesystem_until_it_exits() {
    let lab = slow();
    wait_until(&lab, "it runs", |lab| !lab.log().is_empty()).await;
    lab.advance(1.0).await;
    assert_cancel_leaves_stuck_checker(&lab).await;
}

#[tokio::test(start_paused = true)]
async fn a_frozen_checker_stuck_after_cancel_blocks_its_filesystem_until_it_exits() {
    let lab = slow();
    wait_until(&lab, "it is frozen", |lab| lab.times_of("frozen sda1").len() == 1).await;
    lab.advance(1.0).await;
    assert_cancel_leaves_stuck_checker(&lab).await;
}
