//! Cancelled, and gone: at each phase it ends at once, thawed, with nothing left.

use std::time::Duration;

use super::fake::{How, Lab, RUN, frozen, lab, lab_with, scheduled, wanted};
use crate::model::check::{State, Verdict};
use crate::source::checks::load::{Busy, Of};

/// Waits until something was done or said.
async fn until(lab: &Lab, what: &str, so: impl Fn(&Lab) -> bool) {
    for _ in 0..100_000 {
        if so(lab) {
            return;
        }
        lab.pass(0.01).await;
    }
    panic!("never: {what}; {:?}", lab.done());
}

fn phase(lab: &Lab, part: &str) -> bool {
    lab.told("sda1").iter().any(
        |(_, progress)| matches!(&progress.state, State::Running { phase } if phase.contains(part)),
    )
}

fn waits(lab: &Lab) -> bool {
    lab.told("sda1")
        .pop()
        .is_some_and(|(_, progress)| matches!(progress.state, State::Waiting { .. }))
}

/// Ends within a second as cancelled, with so many runs.
async fn cancelled(lab: &Lab, runs: usize) {
    lab.stop("sda1");
    lab.pass(1.0).await;
    let (_, outcome, made) = lab.ended("sda1").expect("it has ended");
    assert_eq!(
        (outcome.verdict, outcome.reason.as_str(), made),
        (Verdict::Inconclusive, "cancelled by uid 0 (root)", runs)
    );
    lab.nothing_is_left();
    // Its turn is free for the next.
    lab.how("sda1", |how| *how = How::default());
    lab.want(|all| all.push(wanted("sda1/2")));
    lab.pass(20.0).await;
    assert_eq!(lab.ended("sda1/2").unwrap().1.verdict, Verdict::Clean);
}

/// Every part of it takes half a second at least.
fn slow() -> Lab {
    let half = Duration::from_millis(500);
    let how = How {
        prepares: half,
        syncs: Ok(half * 4),
        freezes: half,
        thaws: half,
        ..How::default()
    };
    lab_with(vec![frozen("sda1")], |world| {
        world.how.insert("sda1".to_owned(), how);
    })
}

#[tokio::test(start_paused = true)]
async fn queued() {
    let lab = lab(vec![wanted("sdb1"), wanted("sda1")]);
    lab.how("sdb1", |how| how.runs = Duration::from_millis(1500));
    lab.pass(1.0).await;
    cancelled(&lab, 0).await;
    assert!(lab.begun("live sda1").len() == 1, "only the other one");
}

#[tokio::test(start_paused = true)]
async fn queued_for_a_quiet_node() {
    let lab = lab_with(vec![scheduled("sda1")], |world| {
        world.busy = Some(Ok(Busy {
            percent: 90.0,
            of: Of::Drive,
        }))
    });
    lab.pass(100.0).await;
    cancelled(&lab, 0).await;
}

#[tokio::test(start_paused = true)]
async fn preparing() {
    let lab = slow();
    lab.pass(0.2).await;
    cancelled(&lab, 0).await;
}

#[tokio::test(start_paused = true)]
async fn in_a_live_run() {
    let lab = slow();
    until(&lab, "it runs", |lab| !lab.done().is_empty()).await;
    lab.pass(1.0).await;
    cancelled(&lab, 0).await;
    assert_eq!(lab.done()[..2], ["live sda1", "killed sda1"]);
}

#[tokio::test(start_paused = true)]
async fn in_syncfs() {
    let lab = slow();
    until(&lab, "syncfs", |lab| phase(lab, "syncfs")).await;
    cancelled(&lab, 1).await;
}

#[tokio::test(start_paused = true)]
async fn freezing() {
    let lab = slow();
    until(&lab, "it freezes", |lab| {
        lab.begun("freezing sda1").len() == 1
    })
    .await;
    cancelled(&lab, 1).await;
    assert_eq!(lab.begun("dropped, thawed sda1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn frozen_is_thawed_before_the_checker_is_killed() {
    let lab = slow();
    until(&lab, "it is frozen", |lab| {
        lab.begun("frozen sda1").len() == 1
    })
    .await;
    lab.pass(1.0).await;
    cancelled(&lab, 1).await;
    assert_eq!(
        lab.done()[1..5],
        ["freezing sda1", "frozen sda1", "thawed sda1", "killed sda1"]
    );
}

#[tokio::test(start_paused = true)]
async fn thawing() {
    let lab = slow();
    until(&lab, "it is frozen", |lab| {
        lab.begun("frozen sda1").len() == 1
    })
    .await;
    lab.pass(RUN.as_secs_f64() + 0.2).await;
    assert!(
        lab.world
            .look(|world| !world.frozen.is_empty() && world.running.is_empty())
    );
    // The run is over and counts.
    cancelled(&lab, 2).await;
}

#[tokio::test(start_paused = true)]
async fn between_two_frozen_runs() {
    let lab = slow();
    until(&lab, "it waits", waits).await;
    lab.pass(10.0).await;
    cancelled(&lab, 2).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_its_turn_again() {
    let lab = slow();
    lab.how("sdb1", |how| how.runs = Duration::from_secs(300));
    until(&lab, "it waits", waits).await;
    lab.want(|all| all.push(wanted("sdb1")));
    lab.pass(100.0).await;
    lab.stop("sda1");
    lab.pass(1.0).await;
    assert_eq!(lab.ended("sda1").unwrap().2, 2);
}

#[tokio::test(start_paused = true)]
async fn one_that_the_owner_forgets_ends_as_one_that_was_cancelled() {
    let lab = slow();
    until(&lab, "it is frozen", |lab| {
        lab.begun("frozen sda1").len() == 1
    })
    .await;
    lab.want(Vec::clear);
    lab.pass(1.0).await;
    let (_, outcome, _) = lab.ended("sda1").unwrap();
    assert_eq!(outcome.verdict, Verdict::Inconclusive);
    assert!(
        outcome.reason.contains("not wanted any more"),
        "{}",
        outcome.reason
    );
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn one_that_was_stopped_before_it_was_seen_never_begins() {
    let mut stopped = wanted("sda1");
    stopped.stop = Some(crate::model::check::Stop {
        why: "its pod is being deleted".to_owned(),
    });
    let lab = lab(vec![stopped]);
    lab.pass(10.0).await;
    let (_, outcome, _) = lab.ended("sda1").unwrap();
    assert_eq!(
        (outcome.verdict, outcome.reason.as_str()),
        (Verdict::Inconclusive, "its pod is being deleted")
    );
    assert!(lab.done().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_daemon_thaws() {
    let lab = slow();
    until(&lab, "it is frozen", |lab| {
        lab.begun("frozen sda1").len() == 1
    })
    .await;
    let world = lab.world.clone();
    drop(lab);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.look(|world| world.frozen.is_empty() && world.running.is_empty()));
}

/// A checker that hangs in the kernel when its check is cancelled.
async fn cancelled_and_hangs(lab: &Lab) {
    lab.how("sda1", |how| how.unstoppable = true);
    lab.stop("sda1");
    // While it is not known whether it goes, nobody else begins.
    lab.want(|all| all.push(wanted("sda1/2")));
    lab.pass(4.0).await;
    assert!(lab.ended("sda1/2").is_none() && lab.world.look(|world| world.frozen.is_empty()));
    lab.pass(2.0).await;
    assert_eq!(
        lab.ended("sda1").unwrap().1.reason,
        "cancelled by uid 0 (root)"
    );
    let (_, outcome, runs) = lab.ended("sda1/2").expect("it has ended");
    assert_eq!((outcome.verdict, runs), (Verdict::Failed, 0));
    assert!(
        outcome.reason.contains("folio_wait_bit") && outcome.reason.contains("cannot be killed"),
        "{}",
        outcome.reason
    );

    lab.pass(100_000.0).await;
    lab.world.look(|world| world.held.clear());
    lab.pass(1.0).await;
    lab.how("sda1", |how| *how = How::default());
    lab.want(|all| all.push(wanted("sda1/3")));
    lab.pass(20.0).await;
    assert_eq!(lab.ended("sda1/3").unwrap().1.verdict, Verdict::Clean);
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_checker_that_hangs_as_it_is_stopped_keeps_others_from_its_filesystem_until_it_goes() {
    let lab = slow();
    until(&lab, "it runs", |lab| !lab.done().is_empty()).await;
    lab.pass(1.0).await;
    cancelled_and_hangs(&lab).await;
}

#[tokio::test(start_paused = true)]
async fn so_does_one_that_hangs_as_it_is_stopped_while_frozen() {
    let lab = slow();
    until(&lab, "it is frozen", |lab| {
        lab.begun("frozen sda1").len() == 1
    })
    .await;
    lab.pass(1.0).await;
    cancelled_and_hangs(&lab).await;
}
