//! Frozen runs: what must hold before, and that nothing stays frozen.

use std::time::Duration;

use super::fake::{How, Lab, frozen, lab, lab_with, signal};
use crate::model::check::{Ballot, End, Filesystem, Mode, Verdict};
use crate::source::checks::freezer::FreezeError;

fn with(how: How) -> Lab {
    lab_with(vec![frozen("sda1")], |world| {
        world.how.insert("sda1".to_owned(), how);
    })
}

/// It ended so, without a freeze.
async fn unfrozen(lab: &Lab, verdict: Verdict, reason: &str) {
    lab.pass(200.0).await;
    let (_, outcome, _) = lab.ended("sda1").unwrap();
    assert_eq!(outcome.verdict, verdict);
    assert!(outcome.reason.contains(reason), "{}", outcome.reason);
    assert!(lab.begun("frozen sda1").is_empty());
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_frozen_run_tells_how_long_writers_waited_and_thaws_before_anything_else() {
    let lab = lab(vec![frozen("sda1")]);
    lab.pass(200.0).await;
    let (_, progress) = lab.told("sda1").pop().unwrap();
    let runs: Vec<(Mode, Option<Duration>)> = progress
        .runs
        .iter()
        .map(|run| (run.mode, run.held))
        .collect();
    let held = Some(Duration::from_millis(2200));
    assert_eq!(
        runs,
        [
            (Mode::Live, None),
            (Mode::Frozen, held),
            (Mode::Frozen, held)
        ]
    );
    let once = ["freezing sda1", "frozen sda1", "thawed sda1"];
    assert_eq!(
        lab.done(),
        [&["live sda1"][..], &once[..], &once[..]].concat()
    );
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_slow_syncfs_forbids_the_freeze() {
    let lab = with(How {
        syncs: Ok(Duration::from_secs(6)),
        ..How::default()
    });
    unfrozen(&lab, Verdict::Inconclusive, "syncfs took longer than 5 s").await;
    assert!(lab.begun("freezing sda1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_syncfs_that_cannot_be_made_forbids_the_freeze() {
    let lab = with(How {
        syncs: Err("syncfs /mnt/sda1: EIO".to_owned()),
        ..How::default()
    });
    unfrozen(&lab, Verdict::Inconclusive, "EIO").await;
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_frozen_and_what_others_have_frozen_is_inconclusive_with_the_words() {
    let refused = FreezeError::Refused("it carries the log of this node".to_owned());
    unfrozen(
        &with(How {
            refuses: Some(refused),
            ..How::default()
        }),
        Verdict::Inconclusive,
        "carries the log",
    )
    .await;
    unfrozen(
        &with(How {
            refuses: Some(FreezeError::NotOurs),
            ..How::default()
        }),
        Verdict::Inconclusive,
        "somebody else",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_that_failed_is_a_failed_frozen_run() {
    let lab = with(How {
        refuses: Some(FreezeError::Failed("FIFREEZE: EIO".to_owned())),
        ..How::default()
    });
    unfrozen(&lab, Verdict::Failed, "FIFREEZE: EIO").await;
    let (_, progress) = lab.told("sda1").pop().unwrap();
    assert_eq!(
        (progress.runs[1].mode, progress.runs[1].ballot),
        (Mode::Frozen, Ballot::Failed)
    );
}

#[tokio::test(start_paused = true)]
async fn where_it_is_not_mounted_in_the_host_it_is_not_frozen() {
    let mut wanted = frozen("sda1");
    wanted.target.mount = None;
    unfrozen(&lab(vec![wanted]), Verdict::Inconclusive, "not mounted").await;
}

#[tokio::test(start_paused = true)]
async fn a_run_during_which_writers_went_on_counts_for_nothing() {
    let lab = with(How {
        early: Some(Duration::from_secs(1)),
        ..How::default()
    });
    lab.pass(200.0).await;
    let (_, progress) = lab.told("sda1").pop().unwrap();
    let run = &progress.runs[1];
    assert_eq!(
        (run.mode, run.ballot, &run.end),
        (Mode::Frozen, Ballot::Failed, &End::Signal(9))
    );
    assert!(run.why.contains("the helper was killed"), "{}", run.why);
    let done = lab.done();
    assert_eq!(
        done,
        [
            "live sda1",
            "freezing sda1",
            "frozen sda1",
            "early, thawed sda1",
            "killed sda1"
        ]
    );
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_thaw_that_came_with_the_end_of_the_run_spoils_it_too() {
    // The checker ends at 2.1 s from the freeze, the helper dies a moment later, before it is asked
    // to thaw.
    let lab = with(How {
        early: Some(Duration::from_millis(2100)),
        ..How::default()
    });
    lab.pass(200.0).await;
    assert_eq!(lab.ended("sda1").unwrap().1.verdict, Verdict::Failed);
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_checker_that_takes_longer_than_the_budget_is_ended_before_the_freezers_own_limit() {
    let lab = with(How {
        runs: Duration::from_secs(30),
        ..How::default()
    });
    lab.pass(200.0).await;
    let (_, progress) = lab.told("sda1").pop().unwrap();
    assert_eq!(
        (progress.runs[1].end.clone(), progress.runs[1].ballot),
        (End::TimedOut, Ballot::Failed)
    );
    assert!(
        progress.runs[1].held.unwrap() <= Duration::from_secs(5),
        "{:?}",
        progress.runs[1].held
    );
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn writers_do_not_wait_for_the_end_of_the_checkers_helper() {
    let lab = with(How {
        runs: Duration::from_secs(30),
        lingers: Duration::from_secs(1),
        ..How::default()
    });
    lab.pass(200.0).await;
    let (_, progress) = lab.told("sda1").pop().unwrap();
    assert_eq!(
        (progress.runs[1].end.clone(), progress.runs[1].ballot),
        (End::TimedOut, Ballot::Failed)
    );
    assert_eq!(lab.begun("thawed sda1").len(), 1, "{:?}", lab.done());
    assert!(lab.begun("limit, thawed sda1").is_empty());
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_thawed_at_the_limit_took_too_long() {
    for (late, hangs) in [(1, false), (1, true), (60, false)] {
        let lab = lab(vec![frozen("sda1")]);
        lab.pass(1.0).await;
        let how = |how: &mut How| {
            (how.runs, how.tells_late, how.unkillable) =
                (Duration::from_secs(30), Duration::from_secs(late), hangs)
        };
        lab.how("sda1", how);
        lab.pass(200.0).await;
        let (_, progress) = lab.told("sda1").pop().unwrap();
        let end = if hangs {
            End::Stuck(None)
        } else {
            End::TimedOut
        };
        assert_eq!(
            (&progress.runs[1].end, progress.runs[1].ballot),
            (&end, Ballot::Failed)
        );
        assert_eq!(lab.begun("limit, thawed sda1").len(), 1, "{:?}", lab.done());
        assert_eq!(lab.begun("freezing sda1").len(), 1);
        lab.nothing_is_left();
    }
}

#[tokio::test(start_paused = true)]
async fn a_freeze_that_itself_took_too_long_is_a_run_that_took_too_long() {
    let lab = with(How {
        refuses: Some(FreezeError::Late("freezing took 9 s".to_owned())),
        ..How::default()
    });
    unfrozen(&lab, Verdict::Failed, "freezing took 9 s").await;
    assert_eq!(lab.told("sda1").pop().unwrap().1.runs[1].end, End::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_thaw_that_is_not_certain_ends_the_check_with_what_to_do() {
    let dead = How {
        early: Some(Duration::from_secs(1)),
        unsure: true,
        ..How::default()
    };
    let never = How {
        thaws: Duration::from_secs(3600),
        ..How::default()
    };
    let refused = How {
        refuses: Some(FreezeError::Unsure("the freezer has gone".to_owned())),
        ..How::default()
    };
    for how in [dead, never, refused] {
        let lab = with(how);
        lab.pass(300.0).await;
        let (_, outcome, _) = lab.ended("sda1").unwrap();
        assert_eq!(outcome.verdict, Verdict::Failed);
        assert!(
            outcome.reason.contains("may be frozen still")
                && outcome.reason.contains("`fsfreeze -u /mnt/sda1`"),
            "{}",
            outcome.reason
        );
        assert_eq!(lab.begun("freezing sda1").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_checker_that_hangs_keeps_the_filesystem_frozen_no_longer_than_the_budget() {
    let lab = lab(vec![frozen("sda1")]);
    lab.pass(1.0).await;
    // The live run is under way; the frozen one will hang.
    lab.how("sda1", |how| {
        (how.runs, how.unkillable) = (Duration::from_secs(30), true)
    });
    lab.pass(60.0).await;
    let (_, outcome, _) = lab.ended("sda1").unwrap();
    assert_eq!(outcome.verdict, Verdict::Failed);
    let (_, progress) = lab.told("sda1").pop().unwrap();
    assert!(
        progress.runs[1].held.unwrap() <= Duration::from_secs(5),
        "{:?}",
        progress.runs[1].held
    );
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_lost_task_thaws() {
    let lab = lab(vec![frozen("sda1")]);
    lab.pass(1.0).await;
    // The live run goes well; the frozen one does not.
    lab.how("sda1", |how| how.panics = true);
    lab.pass(30.0).await;
    assert_eq!(lab.ended("sda1").unwrap().1.verdict, Verdict::Failed);
    assert_eq!(
        lab.begun("dropped, thawed sda1").len(),
        1,
        "{:?}",
        lab.done()
    );
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn when_the_kernel_speaks_nothing_is_run() {
    let mut wanted = frozen("sda1");
    wanted.signals = vec![signal()];
    let lab = lab(vec![wanted]);
    lab.pass(10.0).await;
    assert_eq!(lab.ended("sda1").unwrap().1.verdict, Verdict::Corrupted);
    assert!(lab.done().is_empty());
}

#[tokio::test(start_paused = true)]
async fn when_the_kernel_speaks_between_two_frozen_runs_there_is_no_second_one() {
    let lab = lab(vec![frozen("sda1")]);
    lab.pass(20.0).await;
    assert_eq!(lab.begun("frozen sda1").len(), 1);
    lab.change("sda1", |wanted| wanted.signals = vec![signal()]);
    lab.pass(1.0).await;
    let (at, outcome, _) = lab.ended("sda1").unwrap();
    assert_eq!(outcome.verdict, Verdict::Corrupted);
    assert!(at < 21.0, "at once: {at}");
    assert_eq!(lab.begun("freezing sda1").len(), 1);
    assert_eq!(
        lab.told("sda1").pop().unwrap().1.signals,
        vec![signal_of(&lab)]
    );
    lab.nothing_is_left();
}

fn signal_of(lab: &Lab) -> crate::model::check::Signal {
    lab.told("sda1").pop().unwrap().1.signals[0].clone()
}

#[tokio::test(start_paused = true)]
async fn when_the_kernel_speaks_while_the_freeze_is_prepared_it_is_not_made() {
    let lab = with(How {
        syncs: Ok(Duration::from_secs(4)),
        ..How::default()
    });
    lab.pass(4.0).await;
    assert!(lab.begun("live sda1").len() == 1 && lab.begun("freezing sda1").is_empty());
    lab.change("sda1", |wanted| wanted.signals = vec![signal()]);
    unfrozen(&lab, Verdict::Corrupted, "kernel").await;
    assert!(lab.begun("freezing sda1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_xfs_that_calls_itself_sick_is_corrupted_without_a_run() {
    let mut wanted = frozen("sda1");
    wanted.target.filesystem = Filesystem::Xfs;
    let lab = lab_with(vec![wanted], |world| {
        world.how.insert(
            "sda1".to_owned(),
            How {
                sick: Ok(vec![signal()]),
                ..How::default()
            },
        );
    });
    lab.pass(10.0).await;
    assert_eq!(lab.ended("sda1").unwrap().1.verdict, Verdict::Corrupted);
    assert!(lab.done().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_xfs_that_cannot_be_asked_for_its_health_is_checked_live_and_not_frozen() {
    let mut wanted = frozen("sda1");
    wanted.target.filesystem = Filesystem::Xfs;
    let lab = lab_with(vec![wanted], |world| {
        world.how.insert(
            "sda1".to_owned(),
            How {
                sick: Err("its health is not known".to_owned()),
                ..How::default()
            },
        );
    });
    unfrozen(&lab, Verdict::Inconclusive, "health is not known").await;
    assert_eq!(lab.begun("live sda1").len(), 1);
}
