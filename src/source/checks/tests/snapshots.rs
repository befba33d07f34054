//! Checks of snapshots.

use super::fake::{How, Lab, lab_with, signal, wanted};
use crate::model::check::{Mode, Verdict};
use crate::source::checks::snapshot::SnapshotError;

fn with(how: How) -> Lab {
    let mut wanted = wanted("sda1");
    wanted.terms.snapshot = true;
    wanted.target.logical_volume = Some(("vg".to_owned(), "sda1".to_owned()));
    lab_with(vec![wanted], |world| {
        world.how.insert("sda1".to_owned(), how);
    })
}

async fn outcome(lab: &Lab) -> (Verdict, String, Vec<Mode>) {
    lab.pass(60.0).await;
    let (_, outcome, _) = lab.ended("sda1").unwrap();
    let modes = lab
        .told("sda1")
        .pop()
        .unwrap()
        .1
        .runs
        .iter()
        .map(|run| run.mode)
        .collect();
    lab.nothing_is_left();
    (outcome.verdict, outcome.reason, modes)
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_checked_in_the_place_of_its_origin_and_removed() {
    let lab = with(How::default());
    assert_eq!(outcome(&lab).await.0, Verdict::Clean);
    assert_eq!(
        lab.done(),
        ["snapshot sda1", "snapshot dm-sda1", "removed dm-sda1"]
    );
    let order = lab.world.look(|world| world.orders[0].clone());
    assert_eq!(
        (order.device.name.as_str(), order.bytes_per_second),
        ("dm-sda1", Some(20_000_000))
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_ran_over_is_a_failed_run() {
    let lab = with(How {
        overflown: true,
        ..How::default()
    });
    let (verdict, reason, modes) = outcome(&lab).await;
    assert_eq!((verdict, modes), (Verdict::Failed, vec![Mode::Snapshot]));
    assert!(reason.contains("no more room"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn without_room_for_a_snapshot_it_is_checked_live() {
    let lab = with(How {
        no_snapshot: Some(|| SnapshotError::Refused("no room".to_owned())),
        ..How::default()
    });
    let (verdict, _, modes) = outcome(&lab).await;
    assert_eq!((verdict, modes), (Verdict::Clean, vec![Mode::Live]));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_could_not_be_made_is_a_failed_run() {
    let lab = with(How {
        no_snapshot: Some(|| SnapshotError::Failed("lvcreate: no".to_owned())),
        ..How::default()
    });
    let (verdict, reason, modes) = outcome(&lab).await;
    assert_eq!(
        (verdict, reason.as_str(), modes),
        (Verdict::Failed, "lvcreate: no", vec![Mode::Snapshot])
    );
}

#[tokio::test(start_paused = true)]
async fn a_log_that_the_kernel_finds_damaged_is_the_kernels_own_word() {
    let lab = with(How {
        no_snapshot: Some(|| SnapshotError::Damaged(Box::new(signal()))),
        ..How::default()
    });
    assert_eq!(outcome(&lab).await.0, Verdict::Corrupted);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_cancelled_removes_its_snapshot() {
    let lab = with(How::default());
    lab.pass(1.0).await;
    assert_eq!(lab.world.look(|world| world.running.len()), 1);
    lab.stop("sda1");
    lab.pass(1.0).await;
    assert_eq!(lab.ended("sda1").unwrap().1.verdict, Verdict::Inconclusive);
    assert_eq!(lab.done()[2..], ["killed dm-sda1", "removed dm-sda1"]);
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_cancelled_while_its_snapshot_is_made_removes_it_too() {
    let lab = with(How {
        snapshots: std::time::Duration::from_secs(5),
        ..How::default()
    });
    lab.pass(1.0).await;
    lab.stop("sda1");
    lab.pass(1.0).await;
    assert!(lab.ended("sda1").is_some());
    assert_eq!(lab.done(), ["snapshot sda1", "dropped, removed dm-sda1"]);
    lab.nothing_is_left();
}
