//! Which check goes on when.

use std::time::Duration;

use super::fake::{
    FakeBehavior, RUN_TAKES, desired, desired_frozen, desired_scheduled, harness, harness_at,
    harness_with,
};
use crate::checks::load::{IoLoad, LoadSource};
use crate::checks::tests::fake::{all_tools, target};
use crate::checks::tools::AvailableTools;
use diskvitals_fscheck::{CheckState, CheckVerdict, Filesystem};
use diskvitals_host::root::HostRoot;
use diskvitals_model::source_update::SourceStatus;

fn queued_reason(state: &CheckState) -> &str {
    match state {
        CheckState::Queued { why } => why,
        other => panic!("not queued: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_runs_to_its_verdict_and_reports_every_state() {
    let lab = harness(vec![desired("sda1")]);
    lab.advance(10.0).await;
    let (_, outcome, runs) = lab.outcome_of("sda1").unwrap();
    assert_eq!((outcome.verdict, runs), (CheckVerdict::Clean, 1));
    let states: Vec<CheckState> =
        lab.progress_of("sda1").into_iter().map(|(_, progress)| progress.state).collect();
    assert!(matches!(&states[0], CheckState::Queued { .. }), "{states:?}");
    assert!(
        states.iter().any(|state| matches!(state, CheckState::Running { phase, .. } if phase.starts_with("live run 1 of 1: Pass"))),
        "{states:?}"
    );
    assert_eq!(states.last(), Some(&CheckState::Ended));
    assert_eq!(
        lab.statuses(),
        [SourceStatus::Active("e2fsck 1.0, xfs_repair 1.0, btrfs 1.0".to_owned())]
    );
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn phases_are_reported_at_most_once_a_second() {
    let lab = harness_with(vec![desired("sda1")], |state| {
        state.behaviors.insert(
            "sda1".to_owned(),
            FakeBehavior { run_takes: Duration::from_secs(20), ..FakeBehavior::default() },
        );
    });
    lab.advance(30.0).await;
    let told = lab.progress_of("sda1");
    let phases: Vec<f64> = told
        .iter()
        .filter(|(_, progress)| {
            progress.runs.is_empty()
                && matches!(&progress.state, CheckState::Running { phase, .. } if phase.contains("Pass"))
        })
        .map(|(at, _)| *at)
        .collect();
    assert!((15..=22).contains(&phases.len()), "{phases:?}");
    assert!(phases.windows(2).all(|pair| pair[1] - pair[0] > 0.99), "{phases:?}");
}

#[tokio::test(start_paused = true)]
async fn one_check_at_a_time_requested_before_scheduled_oldest_first() {
    let lab = harness(vec![
        desired_scheduled("sda1"),
        desired("sdb1"),
        desired_scheduled("sdc1"),
        desired("sdd1"),
    ]);
    lab.advance(1.0).await;
    assert!(queued_reason(&lab.state("sdd1")).contains("waits for its turn"));
    lab.advance(60.0).await;
    let live: Vec<String> = lab.log().into_iter().filter(|done| done.starts_with("live")).collect();
    assert_eq!(live, ["live sdb1", "live sdd1", "live sda1", "live sdc1"]);
    assert_eq!(lab.backend.with_state(|state| state.most_running), 1);
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_filesystem_has_one_check_at_a_time_however_many_permits_there_are() {
    let lab = harness_with(vec![desired("sda1"), desired("sda1/2"), desired("sdb1")], |_| {});
    lab.settings(|settings| settings.at_once = 4);
    lab.advance(1.0).await;
    assert_eq!(queued_reason(&lab.state("sda1/2")), "the check sda1 of this filesystem goes on");
    lab.advance(30.0).await;
    assert_eq!(lab.times_of("live sda1").len(), 2);
    assert_eq!(lab.backend.with_state(|state| state.most_running), 2);
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn all_members_of_a_btrfs_are_one_filesystem() {
    let btrfs = |id: &str, name: &str, other: &str| {
        let mut wanted = desired(id);
        wanted.target = target(name, Filesystem::Btrfs);
        let other = target(other, Filesystem::Btrfs);
        wanted.target.members = vec![(other.device, other.dev)];
        wanted
    };
    let lab = harness(vec![btrfs("sda1/one", "sda1", "sdb1"), btrfs("sda1/two", "sdb1", "sda1")]);
    lab.settings(|settings| settings.at_once = 4);
    lab.advance(1.0).await;
    assert_eq!(
        queued_reason(&lab.state("sda1/two")),
        "the check sda1/one of this filesystem goes on"
    );
    lab.advance(20.0).await;
    assert!(lab.outcome_of("sda1/two").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_check_waiting_between_frozen_runs_releases_its_permit() {
    let lab = harness(vec![desired_frozen("sda1"), desired("sdb1")]);
    lab.advance(20.0).await;
    assert!(lab.outcome_of("sdb1").is_some(), "it went on while the other one waited");
    assert!(matches!(lab.state("sda1"), CheckState::Waiting { .. }));
    lab.advance(120.0).await;
    let (_, outcome, runs) = lab.outcome_of("sda1").unwrap();
    assert_eq!((outcome.verdict, runs), (CheckVerdict::Clean, 3));
    let frozen = lab.times_of("frozen sda1");
    assert!(frozen[1] - frozen[0] >= 60, "{frozen:?}");
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_check_back_from_waiting_precedes_later_ones_and_does_not_preempt() {
    let lab = harness(vec![desired_frozen("sda1")]);
    lab.set_behavior("sdb1", |how| how.run_takes = Duration::from_secs(300));
    lab.advance(10.0).await;
    lab.change_desired(|all| all.extend([desired("sdb1"), desired("sdc1")]));
    lab.advance(100.0).await;
    assert!(matches!(lab.state("sda1"), CheckState::Waiting { why, .. } if why.contains("turn")));
    lab.advance(400.0).await;
    let done = lab.log();
    let place = |what: &str| done.iter().rposition(|done| done == what).unwrap();
    assert!(place("frozen sda1") < place("live sdc1"), "{done:?}");
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_blocked_check_waits_with_its_reason_until_it_is_unblocked() {
    let mut held = desired("sda1");
    held.blocked_by = Some("md0 is being rebuilt".to_owned());
    let lab = harness(vec![held, desired("sdb1")]);
    lab.advance(30.0).await;
    assert_eq!(queued_reason(&lab.state("sda1")), "md0 is being rebuilt");
    assert!(lab.outcome_of("sdb1").is_some());
    lab.change("sda1", |wanted| wanted.blocked_by = None);
    lab.advance(30.0).await;
    assert!(lab.outcome_of("sda1").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_reload_takes_effect_at_once_and_revokes_no_permit() {
    let lab = harness(vec![desired("sda1"), desired("sdb1"), desired("sdc1"), desired("sdd1")]);
    lab.advance(1.0).await;
    lab.settings(|settings| settings.at_once = 3);
    lab.advance(0.5).await;
    assert_eq!(lab.backend.with_state(|state| state.running.len()), 3);
    lab.settings(|settings| settings.at_once = 1);
    lab.advance(20.0).await;
    assert_eq!(lab.backend.with_state(|state| state.most_running), 3);
    assert!(lab.outcome_of("sdd1").is_some());
    lab.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn an_ended_check_still_listed_by_the_owner_does_not_restart() {
    let lab = harness(vec![desired("sda1")]);
    lab.owner_lags.send_replace(true);
    lab.advance(60.0).await;
    // News of another one: the first is still in the list.
    lab.change_desired(|all| all.push(desired("sdb1")));
    lab.advance(60.0).await;
    assert!(lab.outcome_of("sda1").is_some() && lab.outcome_of("sdb1").is_some());
    assert_eq!(lab.times_of("live sda1").len(), 1);
    lab.change_desired(Vec::clear);
    lab.advance(60.0).await;
    assert_eq!(
        lab.progress_of("sda1")
            .iter()
            .filter(|(_, progress)| progress.state == CheckState::Ended)
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn no_check_starts_before_the_startup_cleanup_is_done() {
    let lab =
        harness_with(vec![desired("sda1")], |state| state.cleanup_takes = Duration::from_secs(30));
    lab.advance(29.0).await;
    assert!(lab.log().is_empty());
    assert!(queued_reason(&lab.state("sda1")).contains("left behind"));
    lab.advance(10.0).await;
    assert!(lab.outcome_of("sda1").is_some());
    assert_eq!(lab.backend.with_state(|state| state.cleanups), 1);
}

fn busy(percent: f64) -> Option<Result<IoLoad, String>> {
    Some(Ok(IoLoad { percent, source: LoadSource::Pressure }))
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_check_waits_for_a_quiet_node_and_samples_every_minute() {
    let lab = harness_with(vec![desired_scheduled("sda1")], |state| state.load = busy(37.2));
    lab.advance(10.0).await;
    assert_eq!(
        queued_reason(&lab.state("sda1")),
        "the node's I/O is busy (tasks waited for it in 37 % of the last minute)"
    );
    lab.advance(590.0).await;
    assert_eq!(lab.backend.with_state(|state| state.load_sampled_at.len()), 10);
    assert!(lab.log().is_empty());
    lab.backend.with_state(|state| state.load = busy(20.0));
    lab.advance(65.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().1.verdict, CheckVerdict::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_requested_check_does_not_wait_for_a_quiet_node() {
    let lab = harness_with(vec![desired("sda1")], |state| state.load = busy(99.0));
    lab.advance(10.0).await;
    assert!(lab.outcome_of("sda1").is_some());
    assert!(lab.backend.with_state(|state| state.load_sampled_at.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn after_a_day_of_a_busy_node_a_scheduled_check_is_skipped() {
    let lab = harness_with(vec![desired_scheduled("sda1")], |state| state.load = busy(50.0));
    lab.advance(86_300.0).await;
    assert!(lab.outcome_of("sda1").is_none());
    lab.advance(300.0).await;
    let (_, outcome, runs) = lab.outcome_of("sda1").unwrap();
    assert_eq!((outcome.verdict, runs), (CheckVerdict::Inconclusive, 0));
    assert!(
        outcome.reason.starts_with("skipped") && outcome.reason.contains("busy"),
        "{}",
        outcome.reason
    );
}

/// It would look for ever what has changed: time would stand still.
#[tokio::test(start_paused = true)]
async fn an_overdue_load_sample_does_not_busy_loop() {
    let lab = harness_with(vec![desired_scheduled("sda1")], |state| state.load = busy(50.0));
    lab.advance(10.0).await;
    lab.change("sda1", |wanted| wanted.blocked_by = Some("md0 is being rebuilt".to_owned()));
    lab.advance(300.0).await;
    assert_eq!(lab.backend.with_state(|state| state.load_sampled_at.len()), 1);
    lab.backend.with_state(|state| state.load = busy(0.0));
    lab.change("sda1", |wanted| wanted.blocked_by = None);
    lab.advance(10.0).await;
    assert!(lab.outcome_of("sda1").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_load_is_not_quiet() {
    let lab = harness_with(vec![desired_scheduled("sda1")], |state| {
        state.load = Some(Err("no /proc".to_owned()))
    });
    lab.advance(3600.0).await;
    assert!(lab.log().is_empty());
    assert!(queued_reason(&lab.state("sda1")).contains("no /proc"));
}

#[tokio::test(start_paused = true)]
async fn a_check_waiting_for_a_quiet_node_blocks_no_other_and_a_reload_releases_it() {
    let lab = harness_with(vec![desired_scheduled("sda1")], |state| state.load = busy(30.0));
    lab.advance(5.0).await;
    lab.change_desired(|all| all.push(desired("sdb1")));
    lab.advance(10.0).await;
    assert!(lab.outcome_of("sdb1").is_some());
    lab.settings(|settings| settings.max_io_pressure = 40);
    lab.advance(70.0).await;
    assert!(lab.outcome_of("sda1").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_check_without_its_program_fails_with_advice_and_others_go_on() {
    let lab = harness_with(vec![desired("sda1"), desired("sdb1")], |state| {
        state.tools = Some(AvailableTools::new([], None))
    });
    lab.advance(5.0).await;
    let (_, outcome, _) = lab.outcome_of("sda1").unwrap();
    assert_eq!(outcome.verdict, CheckVerdict::Failed);
    assert!(outcome.reason.contains("e2fsck is not installed"), "{}", outcome.reason);
    assert!(matches!(lab.statuses().last(), Some(SourceStatus::Down(_))));
    // Installed meanwhile.
    lab.backend.with_state(|state| state.tools = Some(all_tools()));
    lab.advance(70.0).await;
    lab.change_desired(|all| all.push(desired("sda1/2")));
    lab.advance(10.0).await;
    assert_eq!(lab.outcome_of("sda1/2").unwrap().1.verdict, CheckVerdict::Clean);
    assert!(matches!(lab.statuses().last(), Some(SourceStatus::Active(_))));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_checker_blocks_its_filesystem_until_it_exits() {
    let lab = harness_with(vec![desired("sda1"), desired("sda1/2"), desired("sdb1")], |state| {
        state.behaviors.insert(
            "sda1".to_owned(),
            FakeBehavior {
                run_takes: Duration::from_secs(86_400),
                unkillable: true,
                ..FakeBehavior::default()
            },
        );
    });
    lab.advance(700.0).await;
    for id in ["sda1", "sda1/2"] {
        let (_, outcome, _) = lab.outcome_of(id).unwrap();
        assert_eq!(outcome.verdict, CheckVerdict::Failed);
        assert!(
            outcome.reason.contains("cannot be killed (D (disk sleep) in folio_wait_bit)")
                || outcome.reason.contains("hangs in the kernel"),
            "{}",
            outcome.reason
        );
    }
    assert!(lab.outcome_of("sdb1").is_some(), "others go on");
    assert_eq!(lab.times_of("live sda1").len(), 1);
    assert!(
        matches!(lab.statuses().last(), Some(SourceStatus::Limited(why)) if why.contains("1 checkers hang"))
    );
    lab.change_desired(|all| all.push(desired("sda1/3")));
    lab.advance(5.0).await;
    assert_eq!(lab.outcome_of("sda1/3").unwrap().2, 0, "at once, without a run");
    lab.set_behavior("sda1", |how| how.run_takes = RUN_TAKES);
    lab.backend
        .with_state(|state| state.unkillable.drain(..).for_each(|held| held.send(()).unwrap()));
    lab.advance(1.0).await;
    lab.change_desired(|all| all.push(desired("sda1/4")));
    lab.advance(10.0).await;
    assert_eq!(lab.outcome_of("sda1/4").unwrap().1.verdict, CheckVerdict::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_lost_ends_its_check_and_no_other() {
    let lab = harness_with(vec![desired("sda1"), desired("sdb1")], |state| {
        state
            .behaviors
            .insert("sda1".to_owned(), FakeBehavior { panics: true, ..FakeBehavior::default() });
    });
    lab.advance(30.0).await;
    let (_, outcome, _) = lab.outcome_of("sda1").unwrap();
    assert_eq!(outcome.verdict, CheckVerdict::Failed);
    assert!(outcome.reason.contains("internal error"), "{}", outcome.reason);
    assert_eq!(lab.outcome_of("sdb1").unwrap().1.verdict, CheckVerdict::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_run_follows_the_terms_and_a_frozen_run_is_never_throttled() {
    let lab = harness(vec![desired_frozen("sda1")]);
    lab.advance(20.0).await;
    let orders = lab.backend.with_state(|state| state.requests.clone());
    let limits = |at: usize| {
        (
            orders[at].timeout,
            orders[at].bytes_per_second,
            orders[at].command.to_str().unwrap().to_owned(),
        )
    };
    assert_eq!(limits(0), (Duration::from_secs(600), Some(20_000_000), "/sbin/e2fsck".to_owned()));
    assert_eq!(limits(1), (Duration::from_millis(4800), None, "/sbin/e2fsck".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_recorded_tree_is_not_checked() {
    let lab = harness_at(HostRoot::new("/"), vec![desired("sda1")], |state| {
        state.tools =
            Some(AvailableTools::unavailable("a recorded tree has no filesystems to check"))
    });
    lab.advance(5.0).await;
    assert_eq!(lab.outcome_of("sda1").unwrap().1.verdict, CheckVerdict::Failed);
    assert!(matches!(lab.statuses().last(), Some(SourceStatus::Absent(_))));
}
