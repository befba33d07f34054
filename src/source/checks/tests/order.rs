//! Which check goes on when.

use std::time::Duration;

use super::fake::{How, RUN, frozen, lab, lab_at, lab_with, scheduled, wanted};
use crate::host::root::HostRoot;
use crate::model::check::{Filesystem, State, Verdict};
use crate::model::report::SourceStatus;
use crate::source::checks::load::{Busy, Of};
use crate::source::checks::tests::fake::{all_tools, target};
use crate::source::checks::tools::Found;

fn why(state: &State) -> &str {
    match state {
        State::Queued { why } => why,
        other => panic!("not queued: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_runs_to_its_verdict_and_is_told_from_its_beginning_to_its_end() {
    let lab = lab(vec![wanted("sda1")]);
    lab.pass(10.0).await;
    let (_, outcome, runs) = lab.ended("sda1").unwrap();
    assert_eq!((outcome.verdict, runs), (Verdict::Clean, 1));
    let states: Vec<State> = lab
        .told("sda1")
        .into_iter()
        .map(|(_, progress)| progress.state)
        .collect();
    assert!(matches!(&states[0], State::Queued { .. }), "{states:?}");
    assert!(
        states.iter().any(|state| matches!(state, State::Running { phase } if phase.starts_with("live run 1 of 1: Pass"))),
        "{states:?}"
    );
    assert_eq!(states.last(), Some(&State::Ended));
    assert_eq!(
        lab.statuses(),
        [SourceStatus::Active(
            "e2fsck 1.0, xfs_repair 1.0, btrfs 1.0".to_owned()
        )]
    );
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn phases_are_told_once_a_second_at_most() {
    let lab = lab_with(vec![wanted("sda1")], |world| {
        world.how.insert(
            "sda1".to_owned(),
            How {
                runs: Duration::from_secs(20),
                ..How::default()
            },
        );
    });
    lab.pass(30.0).await;
    let told = lab.told("sda1");
    let phases: Vec<f64> = told
        .iter()
        .filter(|(_, progress)| {
            progress.runs.is_empty()
                && matches!(&progress.state, State::Running { phase } if phase.contains("Pass"))
        })
        .map(|(at, _)| *at)
        .collect();
    assert!((15..=22).contains(&phases.len()), "{phases:?}");
    assert!(
        phases.windows(2).all(|pair| pair[1] - pair[0] > 0.99),
        "{phases:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_at_a_time_over_the_node_the_oldest_first_and_scheduled_ones_behind_those_that_were_asked_for()
 {
    let lab = lab(vec![
        scheduled("sda1"),
        wanted("sdb1"),
        scheduled("sdc1"),
        wanted("sdd1"),
    ]);
    lab.pass(1.0).await;
    assert!(why(&lab.state("sdd1")).contains("waits for its turn"));
    lab.pass(60.0).await;
    let live: Vec<String> = lab
        .done()
        .into_iter()
        .filter(|done| done.starts_with("live"))
        .collect();
    assert_eq!(live, ["live sdb1", "live sdd1", "live sda1", "live sdc1"]);
    assert_eq!(lab.world.look(|world| world.most_running), 1);
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_filesystem_is_checked_once_at_a_time_however_many_turns_there_are() {
    let lab = lab_with(
        vec![wanted("sda1"), wanted("sda1/2"), wanted("sdb1")],
        |_| {},
    );
    lab.settings(|settings| settings.at_once = 4);
    lab.pass(1.0).await;
    assert_eq!(
        why(&lab.state("sda1/2")),
        "the check sda1 of this filesystem goes on"
    );
    lab.pass(30.0).await;
    assert_eq!(lab.begun("live sda1").len(), 2);
    assert_eq!(lab.world.look(|world| world.most_running), 2);
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn all_members_of_a_btrfs_are_one_filesystem() {
    let btrfs = |id: &str, name: &str, other: &str| {
        let mut wanted = wanted(id);
        wanted.target = target(name, Filesystem::Btrfs);
        let other = target(other, Filesystem::Btrfs);
        wanted.target.members = vec![(other.device, other.dev)];
        wanted
    };
    let lab = lab(vec![
        btrfs("sda1/one", "sda1", "sdb1"),
        btrfs("sda1/two", "sdb1", "sda1"),
    ]);
    lab.settings(|settings| settings.at_once = 4);
    lab.pass(1.0).await;
    assert_eq!(
        why(&lab.state("sda1/two")),
        "the check sda1/one of this filesystem goes on"
    );
    lab.pass(20.0).await;
    assert!(lab.ended("sda1/two").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_check_that_waits_between_frozen_runs_gives_its_turn_to_another_and_takes_it_again() {
    let lab = lab(vec![frozen("sda1"), wanted("sdb1")]);
    lab.pass(20.0).await;
    assert!(
        lab.ended("sdb1").is_some(),
        "it went on while the other one waited"
    );
    assert!(matches!(lab.state("sda1"), State::Waiting { .. }));
    lab.pass(120.0).await;
    let (_, outcome, runs) = lab.ended("sda1").unwrap();
    assert_eq!((outcome.verdict, runs), (Verdict::Clean, 3));
    let frozen = lab.begun("frozen sda1");
    assert!(frozen[1] - frozen[0] >= 60, "{frozen:?}");
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_from_waiting_goes_before_those_that_came_later_and_waits_for_who_runs()
{
    let lab = lab(vec![frozen("sda1")]);
    lab.how("sdb1", |how| how.runs = Duration::from_secs(300));
    lab.pass(10.0).await;
    lab.want(|all| all.extend([wanted("sdb1"), wanted("sdc1")]));
    lab.pass(100.0).await;
    assert!(matches!(lab.state("sda1"), State::Waiting { why, .. } if why.contains("turn")));
    lab.pass(400.0).await;
    let done = lab.done();
    let place = |what: &str| done.iter().rposition(|done| done == what).unwrap();
    assert!(place("frozen sda1") < place("live sdc1"), "{done:?}");
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn what_is_held_waits_with_its_reason_until_it_is_let_go() {
    let mut held = wanted("sda1");
    held.hold = Some("md0 is being rebuilt".to_owned());
    let lab = lab(vec![held, wanted("sdb1")]);
    lab.pass(30.0).await;
    assert_eq!(why(&lab.state("sda1")), "md0 is being rebuilt");
    assert!(lab.ended("sdb1").is_some());
    lab.change("sda1", |wanted| wanted.hold = None);
    lab.pass(30.0).await;
    assert!(lab.ended("sda1").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_reload_takes_effect_at_once_and_takes_no_turn_away() {
    let lab = lab(vec![
        wanted("sda1"),
        wanted("sdb1"),
        wanted("sdc1"),
        wanted("sdd1"),
    ]);
    lab.pass(1.0).await;
    lab.settings(|settings| settings.at_once = 3);
    lab.pass(0.5).await;
    assert_eq!(lab.world.look(|world| world.running.len()), 3);
    lab.settings(|settings| settings.at_once = 1);
    lab.pass(20.0).await;
    assert_eq!(lab.world.look(|world| world.most_running), 3);
    assert!(lab.ended("sdd1").is_some());
    lab.nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn what_the_owner_still_lists_after_its_end_does_not_begin_anew() {
    let lab = lab(vec![wanted("sda1")]);
    lab.lags.send_replace(true);
    lab.pass(60.0).await;
    // News of another one: the first is still in the list.
    lab.want(|all| all.push(wanted("sdb1")));
    lab.pass(60.0).await;
    assert!(lab.ended("sda1").is_some() && lab.ended("sdb1").is_some());
    assert_eq!(lab.begun("live sda1").len(), 1);
    lab.want(Vec::clear);
    lab.pass(60.0).await;
    assert_eq!(
        lab.told("sda1")
            .iter()
            .filter(|(_, progress)| progress.state == State::Ended)
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn no_check_begins_before_what_a_daemon_left_behind_is_in_order() {
    let lab = lab_with(vec![wanted("sda1")], |world| {
        world.tidies = Duration::from_secs(30)
    });
    lab.pass(29.0).await;
    assert!(lab.done().is_empty());
    assert!(why(&lab.state("sda1")).contains("left behind"));
    lab.pass(10.0).await;
    assert!(lab.ended("sda1").is_some());
    assert_eq!(lab.world.look(|world| world.tidied), 1);
}

fn busy(percent: f64) -> Option<Result<Busy, String>> {
    Some(Ok(Busy {
        percent,
        of: Of::Pressure,
    }))
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_check_waits_for_a_quiet_node_and_looks_each_minute() {
    let lab = lab_with(vec![scheduled("sda1")], |world| world.busy = busy(37.2));
    lab.pass(10.0).await;
    assert_eq!(
        why(&lab.state("sda1")),
        "the node's I/O is busy (tasks waited for it in 37 % of the last minute)"
    );
    lab.pass(590.0).await;
    assert_eq!(lab.world.look(|world| world.looks.len()), 10);
    assert!(lab.done().is_empty());
    lab.world.look(|world| world.busy = busy(20.0));
    lab.pass(65.0).await;
    assert_eq!(lab.ended("sda1").unwrap().1.verdict, Verdict::Clean);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_asked_for_does_not_wait_for_a_quiet_node() {
    let lab = lab_with(vec![wanted("sda1")], |world| world.busy = busy(99.0));
    lab.pass(10.0).await;
    assert!(lab.ended("sda1").is_some());
    assert!(lab.world.look(|world| world.looks.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn after_a_day_of_a_busy_node_a_scheduled_check_is_skipped() {
    let lab = lab_with(vec![scheduled("sda1")], |world| world.busy = busy(50.0));
    lab.pass(86_300.0).await;
    assert!(lab.ended("sda1").is_none());
    lab.pass(300.0).await;
    let (_, outcome, runs) = lab.ended("sda1").unwrap();
    assert_eq!((outcome.verdict, runs), (Verdict::Inconclusive, 0));
    assert!(
        outcome.reason.starts_with("skipped") && outcome.reason.contains("busy"),
        "{}",
        outcome.reason
    );
}

/// It would look for ever what has changed: time would stand still.
#[tokio::test(start_paused = true)]
async fn a_look_at_the_load_that_is_overdue_keeps_nobody_busy() {
    let lab = lab_with(vec![scheduled("sda1")], |world| world.busy = busy(50.0));
    lab.pass(10.0).await;
    lab.change("sda1", |wanted| {
        wanted.hold = Some("md0 is being rebuilt".to_owned())
    });
    lab.pass(300.0).await;
    assert_eq!(lab.world.look(|world| world.looks.len()), 1);
    lab.world.look(|world| world.busy = busy(0.0));
    lab.change("sda1", |wanted| wanted.hold = None);
    lab.pass(10.0).await;
    assert!(lab.ended("sda1").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_load_that_is_not_known_is_not_a_quiet_one() {
    let lab = lab_with(vec![scheduled("sda1")], |world| {
        world.busy = Some(Err("no /proc".to_owned()))
    });
    lab.pass(3600.0).await;
    assert!(lab.done().is_empty());
    assert!(why(&lab.state("sda1")).contains("no /proc"));
}

#[tokio::test(start_paused = true)]
async fn a_busy_one_holds_up_nobody_and_a_reload_lets_it_go() {
    let lab = lab_with(vec![scheduled("sda1")], |world| world.busy = busy(30.0));
    lab.pass(5.0).await;
    lab.want(|all| all.push(wanted("sdb1")));
    lab.pass(10.0).await;
    assert!(lab.ended("sdb1").is_some());
    lab.settings(|settings| settings.max_io_pressure = 40);
    lab.pass(70.0).await;
    assert!(lab.ended("sda1").is_some());
}

#[tokio::test(start_paused = true)]
async fn without_its_checker_a_check_fails_with_what_to_do_and_others_go_on() {
    let lab = lab_with(vec![wanted("sda1"), wanted("sdb1")], |world| {
        world.tools = Some(Found::new([], None))
    });
    lab.pass(5.0).await;
    let (_, outcome, _) = lab.ended("sda1").unwrap();
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert!(
        outcome.reason.contains("e2fsck is not installed"),
        "{}",
        outcome.reason
    );
    assert!(matches!(lab.statuses().last(), Some(SourceStatus::Down(_))));
    // Installed meanwhile.
    lab.world.look(|world| world.tools = Some(all_tools()));
    lab.pass(70.0).await;
    lab.want(|all| all.push(wanted("sda1/2")));
    lab.pass(10.0).await;
    assert_eq!(lab.ended("sda1/2").unwrap().1.verdict, Verdict::Clean);
    assert!(matches!(
        lab.statuses().last(),
        Some(SourceStatus::Active(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn on_a_filesystem_whose_checker_hangs_nothing_is_checked_until_it_has_gone() {
    let lab = lab_with(
        vec![wanted("sda1"), wanted("sda1/2"), wanted("sdb1")],
        |world| {
            world.how.insert(
                "sda1".to_owned(),
                How {
                    runs: Duration::from_secs(86_400),
                    unkillable: true,
                    ..How::default()
                },
            );
        },
    );
    lab.pass(700.0).await;
    for id in ["sda1", "sda1/2"] {
        let (_, outcome, _) = lab.ended(id).unwrap();
        assert_eq!(outcome.verdict, Verdict::Failed);
        assert!(
            outcome
                .reason
                .contains("cannot be killed (D (disk sleep) in folio_wait_bit)")
                || outcome.reason.contains("hangs in the kernel"),
            "{}",
            outcome.reason
        );
    }
    assert!(lab.ended("sdb1").is_some(), "others go on");
    assert_eq!(lab.begun("live sda1").len(), 1);
    assert!(
        matches!(lab.statuses().last(), Some(SourceStatus::Limited(why)) if why.contains("1 checkers hang"))
    );
    lab.want(|all| all.push(wanted("sda1/3")));
    lab.pass(5.0).await;
    assert_eq!(lab.ended("sda1/3").unwrap().2, 0, "at once, without a run");
    lab.how("sda1", |how| how.runs = RUN);
    lab.world
        .look(|world| world.held.drain(..).for_each(|held| held.send(()).unwrap()));
    lab.pass(1.0).await;
    lab.want(|all| all.push(wanted("sda1/4")));
    lab.pass(10.0).await;
    assert_eq!(lab.ended("sda1/4").unwrap().1.verdict, Verdict::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_lost_ends_its_check_and_no_other() {
    let lab = lab_with(vec![wanted("sda1"), wanted("sdb1")], |world| {
        world.how.insert(
            "sda1".to_owned(),
            How {
                panics: true,
                ..How::default()
            },
        );
    });
    lab.pass(30.0).await;
    let (_, outcome, _) = lab.ended("sda1").unwrap();
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert!(
        outcome.reason.contains("internal error"),
        "{}",
        outcome.reason
    );
    assert_eq!(lab.ended("sdb1").unwrap().1.verdict, Verdict::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_ordered_as_the_terms_say_and_a_frozen_one_is_never_held_back() {
    let lab = lab(vec![frozen("sda1")]);
    lab.pass(20.0).await;
    let orders = lab.world.look(|world| world.orders.clone());
    let limits = |at: usize| {
        (
            orders[at].timeout,
            orders[at].bytes_per_second,
            orders[at].command.to_str().unwrap().to_owned(),
        )
    };
    assert_eq!(
        limits(0),
        (
            Duration::from_secs(600),
            Some(20_000_000),
            "/sbin/e2fsck".to_owned()
        )
    );
    assert_eq!(
        limits(1),
        (Duration::from_millis(4800), None, "/sbin/e2fsck".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn of_a_recorded_tree_nothing_is_checked() {
    let lab = lab_at(HostRoot::new("/"), vec![wanted("sda1")], |world| {
        world.tools = Some(Found::none("a recorded tree has no filesystems to check"))
    });
    lab.pass(5.0).await;
    assert_eq!(lab.ended("sda1").unwrap().1.verdict, Verdict::Failed);
    assert!(matches!(
        lab.statuses().last(),
        Some(SourceStatus::Absent(_))
    ));
}
