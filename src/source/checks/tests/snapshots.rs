//! Checks of snapshots.

use super::fake::{FakeBehavior, Harness, desired, harness_with, signal};
use crate::checks::lvm_snapshot::{LvmSnapshotError, PlanError};
use diskvitals_fscheck::{CheckVerdict, Mode};

fn with(how: FakeBehavior) -> Harness {
    let mut wanted = desired("sda1");
    wanted.terms.snapshot = true;
    wanted.target.logical_volume = Some(("vg".to_owned(), "sda1".to_owned()));
    harness_with(vec![wanted], |state| {
        state.behaviors.insert("sda1".to_owned(), how);
    })
}

async fn outcome(lab: &Harness) -> (CheckVerdict, String, Vec<Mode>) {
    lab.advance(60.0).await;
    let (_, outcome, _) = lab.outcome_of("sda1").unwrap();
    let modes = lab.progress_of("sda1").pop().unwrap().1.runs.iter().map(|run| run.mode).collect();
    lab.assert_clean();
    (outcome.verdict, outcome.reason, modes)
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_checked_in_the_place_of_its_origin_and_removed() {
    let lab = with(FakeBehavior::default());
    assert_eq!(outcome(&lab).await.0, CheckVerdict::Clean);
    assert_eq!(lab.log(), ["snapshot sda1", "snapshot dm-sda1", "removed dm-sda1"]);
    let request = lab.backend.with_state(|state| state.requests[0].clone());
    assert_eq!(
        (request.device.name.as_str(), request.bytes_per_second),
        ("dm-sda1", Some(20_000_000))
    );
}

#[tokio::test(start_paused = true)]
async fn an_overflowed_snapshot_is_a_failed_run() {
    let lab = with(FakeBehavior { snapshot_overflows: true, ..FakeBehavior::default() });
    let (verdict, reason, modes) = outcome(&lab).await;
    assert_eq!((verdict, modes), (CheckVerdict::Failed, vec![Mode::Snapshot]));
    assert!(reason.contains("no more room"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn without_space_for_a_snapshot_the_live_filesystem_is_checked() {
    let lab = with(FakeBehavior {
        snapshot_error: Some(|| LvmSnapshotError::Refused(PlanError::IsSnapshot)),
        ..FakeBehavior::default()
    });
    let (verdict, _, modes) = outcome(&lab).await;
    assert_eq!((verdict, modes), (CheckVerdict::Clean, vec![Mode::Live]));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_could_not_be_made_is_a_failed_run() {
    let lab = with(FakeBehavior {
        snapshot_error: Some(|| LvmSnapshotError::NoDevice),
        ..FakeBehavior::default()
    });
    let (verdict, reason, modes) = outcome(&lab).await;
    assert_eq!(
        (verdict, reason.as_str(), modes),
        (
            CheckVerdict::Failed,
            "lvs does not report the device of the snapshot",
            vec![Mode::Snapshot]
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_log_the_kernel_finds_damaged_is_corrupted() {
    let lab = with(FakeBehavior {
        snapshot_error: Some(|| LvmSnapshotError::Damaged(Box::new(signal()))),
        ..FakeBehavior::default()
    });
    assert_eq!(outcome(&lab).await.0, CheckVerdict::Corrupted);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_check_removes_its_snapshot() {
    let lab = with(FakeBehavior::default());
    lab.advance(1.0).await;
    assert_eq!(lab.backend.with_state(|state| state.running.len()), 1);
    lab.cancel("sda1");
    lab.advance(1.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().1.verdict, CheckVerdict::Inconclusive);
    assert_eq!(lab.log()[2..], ["killed dm-sda1", "removed dm-sda1"]);
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn cancelling_during_snapshot_creation_removes_the_snapshot() {
    let lab = with(FakeBehavior {
        snapshot_takes: std::time::Duration::from_secs(5),
        ..FakeBehavior::default()
    });
    lab.advance(1.0).await;
    lab.cancel("sda1");
    lab.advance(1.0).await;
    assert!(lab.outcome_of("sda1").is_some());
    assert_eq!(lab.log(), ["snapshot sda1", "dropped, removed dm-sda1"]);
    lab.assert_clean();
}
