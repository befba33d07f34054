//! Frozen runs: what must hold before, and that nothing stays frozen.

use std::time::Duration;

use super::fake::{FakeBehavior, Harness, desired_frozen, harness, harness_with, signal};
use crate::checks::freezer::FreezeError;
use crate::worker_job::JobError;
use diskvitals_fscheck::{CheckVerdict, Filesystem, Mode, RunResult, Termination};

fn with(how: FakeBehavior) -> Harness {
    harness_with(vec![desired_frozen("sda1")], |state| {
        state.behaviors.insert("sda1".to_owned(), how);
    })
}

/// It ended so, without a freeze.
async fn assert_never_frozen(lab: &Harness, verdict: CheckVerdict, reason: &str) {
    lab.advance(200.0).await;
    let (_, outcome, _) = lab.outcome_of("sda1").unwrap();
    assert_eq!(outcome.verdict, verdict);
    assert!(outcome.reason.contains(reason), "{}", outcome.reason);
    assert!(lab.times_of("frozen sda1").is_empty());
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_frozen_run_records_how_long_writers_waited_and_thaws_first() {
    let lab = harness(vec![desired_frozen("sda1")]);
    lab.advance(200.0).await;
    let (_, progress) = lab.progress_of("sda1").pop().unwrap();
    let runs: Vec<(Mode, Option<Duration>)> =
        progress.runs.iter().map(|run| (run.mode, run.held)).collect();
    let held = Some(Duration::from_millis(2200));
    assert_eq!(runs, [(Mode::Live, None), (Mode::Frozen, held), (Mode::Frozen, held)]);
    let once = ["freezing sda1", "frozen sda1", "thawed sda1"];
    assert_eq!(lab.log(), [&["live sda1"][..], &once[..], &once[..]].concat());
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_slow_syncfs_forbids_the_freeze() {
    let lab = with(FakeBehavior { syncfs: Ok(Duration::from_secs(6)), ..FakeBehavior::default() });
    assert_never_frozen(&lab, CheckVerdict::Inconclusive, "syncfs took longer than 5 s").await;
    assert!(lab.times_of("freezing sda1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_syncfs_forbids_the_freeze() {
    let lab = with(FakeBehavior {
        syncfs: Err(JobError::Failed("syncfs /mnt/sda1: EIO".to_owned())),
        ..FakeBehavior::default()
    });
    assert_never_frozen(&lab, CheckVerdict::Inconclusive, "EIO").await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_or_already_frozen_filesystem_is_inconclusive_with_the_reason() {
    let refused = FreezeError::Refused("it carries the log of this node".to_owned());
    assert_never_frozen(
        &with(FakeBehavior { freeze_error: Some(refused), ..FakeBehavior::default() }),
        CheckVerdict::Inconclusive,
        "carries the log",
    )
    .await;
    assert_never_frozen(
        &with(FakeBehavior {
            freeze_error: Some(FreezeError::AlreadyFrozen),
            ..FakeBehavior::default()
        }),
        CheckVerdict::Inconclusive,
        "somebody else",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_that_failed_is_a_failed_frozen_run() {
    let lab = with(FakeBehavior {
        freeze_error: Some(FreezeError::Failed("FIFREEZE: EIO".to_owned())),
        ..FakeBehavior::default()
    });
    assert_never_frozen(&lab, CheckVerdict::Failed, "FIFREEZE: EIO").await;
    let (_, progress) = lab.progress_of("sda1").pop().unwrap();
    assert_eq!((progress.runs[1].mode, progress.runs[1].result), (Mode::Frozen, RunResult::Failed));
}

#[tokio::test(start_paused = true)]
async fn a_filesystem_not_mounted_on_the_host_is_not_frozen() {
    let mut wanted = desired_frozen("sda1");
    wanted.target.mount = None;
    assert_never_frozen(&harness(vec![wanted]), CheckVerdict::Inconclusive, "not mounted").await;
}

#[tokio::test(start_paused = true)]
async fn a_run_thawed_early_is_a_failed_run() {
    let lab = with(FakeBehavior {
        thawed_early_after: Some(Duration::from_secs(1)),
        ..FakeBehavior::default()
    });
    lab.advance(200.0).await;
    let (_, progress) = lab.progress_of("sda1").pop().unwrap();
    let run = &progress.runs[1];
    assert_eq!(
        (run.mode, run.result, &run.termination),
        (Mode::Frozen, RunResult::Failed, &Termination::Signal(9))
    );
    assert!(run.failure_reason.contains("the helper was killed"), "{}", run.failure_reason);
    let done = lab.log();
    assert_eq!(
        done,
        ["live sda1", "freezing sda1", "frozen sda1", "early, thawed sda1", "killed sda1"]
    );
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_thaw_at_the_end_of_the_run_fails_it_too() {
    // The checker ends at 2.1 s from the freeze, the helper dies a moment later, before it is asked
    // to thaw.
    let lab = with(FakeBehavior {
        thawed_early_after: Some(Duration::from_millis(2100)),
        ..FakeBehavior::default()
    });
    lab.advance(200.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().1.verdict, CheckVerdict::Failed);
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_checker_over_budget_is_killed_before_the_freezers_limit() {
    let lab = with(FakeBehavior { run_takes: Duration::from_secs(30), ..FakeBehavior::default() });
    lab.advance(200.0).await;
    let (_, progress) = lab.progress_of("sda1").pop().unwrap();
    assert_eq!(
        (progress.runs[1].termination.clone(), progress.runs[1].result),
        (Termination::TimedOut, RunResult::Failed)
    );
    assert!(
        progress.runs[1].held.unwrap() <= Duration::from_secs(5),
        "{:?}",
        progress.runs[1].held
    );
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn writers_do_not_wait_for_the_checker_helper_to_exit() {
    let lab = with(FakeBehavior {
        run_takes: Duration::from_secs(30),
        reap_takes: Duration::from_secs(1),
        ..FakeBehavior::default()
    });
    lab.advance(200.0).await;
    let (_, progress) = lab.progress_of("sda1").pop().unwrap();
    assert_eq!(
        (progress.runs[1].termination.clone(), progress.runs[1].result),
        (Termination::TimedOut, RunResult::Failed)
    );
    assert_eq!(lab.times_of("thawed sda1").len(), 1, "{:?}", lab.log());
    assert!(lab.times_of("limit, thawed sda1").is_empty());
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_run_thawed_at_the_limit_is_timed_out() {
    for (late, hangs) in [(1, false), (1, true), (60, false)] {
        let lab = harness(vec![desired_frozen("sda1")]);
        lab.advance(1.0).await;
        let how = |how: &mut FakeBehavior| {
            (how.run_takes, how.exit_reported_after, how.unkillable) =
                (Duration::from_secs(30), Duration::from_secs(late), hangs)
        };
        lab.set_behavior("sda1", how);
        lab.advance(200.0).await;
        let (_, progress) = lab.progress_of("sda1").pop().unwrap();
        let end = if hangs { Termination::Stuck(None) } else { Termination::TimedOut };
        assert_eq!(
            (&progress.runs[1].termination, progress.runs[1].result),
            (&end, RunResult::Failed)
        );
        assert_eq!(lab.times_of("limit, thawed sda1").len(), 1, "{:?}", lab.log());
        assert_eq!(lab.times_of("freezing sda1").len(), 1);
        lab.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn a_freeze_that_takes_too_long_is_a_timed_out_run() {
    let lab = with(FakeBehavior {
        freeze_error: Some(FreezeError::TimedOut("freezing took 9 s".to_owned())),
        ..FakeBehavior::default()
    });
    assert_never_frozen(&lab, CheckVerdict::Failed, "freezing took 9 s").await;
    assert_eq!(lab.progress_of("sda1").pop().unwrap().1.runs[1].termination, Termination::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_thaw_ends_the_check_with_advice() {
    let dead = FakeBehavior {
        thawed_early_after: Some(Duration::from_secs(1)),
        thaw_unconfirmed: true,
        ..FakeBehavior::default()
    };
    let never = FakeBehavior { thaw_takes: Duration::from_secs(3600), ..FakeBehavior::default() };
    let refused = FakeBehavior {
        freeze_error: Some(FreezeError::Unconfirmed("the freezer has gone".to_owned())),
        ..FakeBehavior::default()
    };
    for how in [dead, never, refused] {
        let lab = with(how);
        lab.advance(300.0).await;
        let (_, outcome, _) = lab.outcome_of("sda1").unwrap();
        assert_eq!(outcome.verdict, CheckVerdict::Failed);
        assert!(
            outcome.reason.contains("may be frozen still")
                && outcome.reason.contains("`fsfreeze -u /mnt/sda1`"),
            "{}",
            outcome.reason
        );
        assert_eq!(lab.times_of("freezing sda1").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_checker_keeps_the_filesystem_frozen_no_longer_than_the_budget() {
    let lab = harness(vec![desired_frozen("sda1")]);
    lab.advance(1.0).await;
    // The live run is under way; the frozen one will hang.
    lab.set_behavior("sda1", |how| {
        (how.run_takes, how.unkillable) = (Duration::from_secs(30), true)
    });
    lab.advance(60.0).await;
    let (_, outcome, _) = lab.outcome_of("sda1").unwrap();
    assert_eq!(outcome.verdict, CheckVerdict::Failed);
    let (_, progress) = lab.progress_of("sda1").pop().unwrap();
    assert!(
        progress.runs[1].held.unwrap() <= Duration::from_secs(5),
        "{:?}",
        progress.runs[1].held
    );
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_lost_task_thaws() {
    let lab = harness(vec![desired_frozen("sda1")]);
    lab.advance(1.0).await;
    // The live run goes well; the frozen one does not.
    lab.set_behavior("sda1", |how| how.panics = true);
    lab.advance(30.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().1.verdict, CheckVerdict::Failed);
    assert_eq!(lab.times_of("dropped, thawed sda1").len(), 1, "{:?}", lab.log());
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_kernel_signal_prevents_any_run() {
    let mut wanted = desired_frozen("sda1");
    wanted.signals = vec![signal()];
    let lab = harness(vec![wanted]);
    lab.advance(10.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().1.verdict, CheckVerdict::Corrupted);
    assert!(lab.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_kernel_signal_between_frozen_runs_prevents_the_second() {
    let lab = harness(vec![desired_frozen("sda1")]);
    lab.advance(20.0).await;
    assert_eq!(lab.times_of("frozen sda1").len(), 1);
    lab.change("sda1", |wanted| wanted.signals = vec![signal()]);
    lab.advance(1.0).await;
    let (at, outcome, _) = lab.outcome_of("sda1").unwrap();
    assert_eq!(outcome.verdict, CheckVerdict::Corrupted);
    assert!(at < 21.0, "at once: {at}");
    assert_eq!(lab.times_of("freezing sda1").len(), 1);
    assert_eq!(lab.progress_of("sda1").pop().unwrap().1.signals, vec![signal_of(&lab)]);
    lab.assert_clean();
}

fn signal_of(lab: &Harness) -> diskvitals_fscheck::FilesystemSignal {
    lab.progress_of("sda1").pop().unwrap().1.signals[0].clone()
}

#[tokio::test(start_paused = true)]
async fn a_kernel_signal_during_preparation_prevents_the_freeze() {
    let lab = with(FakeBehavior { syncfs: Ok(Duration::from_secs(4)), ..FakeBehavior::default() });
    lab.advance(4.0).await;
    assert!(lab.times_of("live sda1").len() == 1 && lab.times_of("freezing sda1").is_empty());
    lab.change("sda1", |wanted| wanted.signals = vec![signal()]);
    assert_never_frozen(&lab, CheckVerdict::Corrupted, "kernel").await;
    assert!(lab.times_of("freezing sda1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_xfs_that_calls_itself_sick_is_corrupted_without_a_run() {
    let mut wanted = desired_frozen("sda1");
    wanted.target.filesystem = Filesystem::Xfs;
    let lab = harness_with(vec![wanted], |state| {
        state.behaviors.insert(
            "sda1".to_owned(),
            FakeBehavior { health: Ok(vec![signal()]), ..FakeBehavior::default() },
        );
    });
    lab.advance(10.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().1.verdict, CheckVerdict::Corrupted);
    assert!(lab.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_xfs_that_cannot_be_asked_for_its_health_is_checked_live_and_not_frozen() {
    let mut wanted = desired_frozen("sda1");
    wanted.target.filesystem = Filesystem::Xfs;
    let lab = harness_with(vec![wanted], |state| {
        state.behaviors.insert(
            "sda1".to_owned(),
            FakeBehavior {
                health: Err("its health is not known".to_owned()),
                ..FakeBehavior::default()
            },
        );
    });
    assert_never_frozen(&lab, CheckVerdict::Inconclusive, "health is not known").await;
    assert_eq!(lab.times_of("live sda1").len(), 1);
}
