mod carry_out;

use std::time::Duration;

use super::*;
use crate::model::release::Now;
use crate::release::action::{outdated, set_condition};
use diskvitals_cluster::storage_action::ABORTED;

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

fn at(view: &View, seconds: u64) -> Context<'_> {
    Context {
        view,
        now: Now { elapsed: Duration::from_secs(seconds), wall: wall(1_000_000) },
        server: None,
        lease_left: None,
    }
}

fn listed(revision: u64) -> Done {
    Done::Listed(Ok(ActionList { revision: Some(revision), actions: Vec::new() }))
}

fn finished(name: &str, seconds: i64) -> ActionObject {
    let mut action = ActionObject { name: name.to_owned(), ..ActionObject::default() };
    let conditions = &mut action.status.conditions;
    set_condition(conditions, ABORTED, true, "FindingGone", "", wall(seconds));
    action
}

#[test]
fn of_finished_actions_200_are_kept_for_90_days() {
    const DAY: i64 = 24 * 3600;
    let actions = [finished("old", 0), finished("new", 89 * DAY), ActionObject::default()];
    let gone = outdated(&actions, wall(90 * DAY));
    assert_eq!(gone, [&actions[0]]);
    let many: Vec<ActionObject> = (0..201).map(|at| finished("x", at)).collect();
    assert_eq!(outdated(&many, wall(1000)), [&many[0]]);
}

#[test]
fn a_text_that_moves_changes_no_condition() {
    let mut conditions = Vec::new();
    set_condition(&mut conditions, "Confirmed", false, "HoldNotOver", "1 s", wall(1));
    let before = conditions.clone();
    set_condition(&mut conditions, "Confirmed", false, "HoldNotOver", "2 s", wall(2));
    assert_eq!(conditions, before);
    set_condition(&mut conditions, "Confirmed", true, "Confirmed", "", wall(3));
    assert_eq!(conditions[0].last_transition_time.0, wall(3));
}

#[test]
fn every_gate_has_a_count_from_the_start() {
    let figures = Engine::new(ReleaseTiming::default(), &[]).figures();
    for gate in Gate::ALL {
        assert_eq!(figures.refusals.get(gate), Some(&0), "{gate}");
    }
    assert_eq!(figures.actions, None);
}

#[test]
fn without_a_policy_a_round_reads_the_actions_and_nothing_else() {
    let (view, mut engine) = (View::default(), Engine::new(ReleaseTiming::default(), &[]));
    assert!(matches!(engine.next_job(at(&view, 10)), Some(Job::List)));
    assert!(engine.next_job(at(&view, 10)).is_none());
    engine.finish(listed(1), at(&view, 11)).expect("listed");
    assert!(engine.next_job(at(&view, 11)).is_none());
    assert!(engine.next_job(at(&view, 12)).is_none());
    assert!(matches!(engine.next_job(at(&view, 41)), Some(Job::List)));
}

#[test]
fn a_store_that_went_back_opens_the_breaker() {
    let (view, mut engine) = (View::default(), Engine::new(ReleaseTiming::default(), &[]));
    for (revision, is_open) in [(5, false), (7, false), (6, true), (8, true)] {
        engine.finish(listed(revision), at(&view, 10)).expect("listed");
        assert_eq!(engine.figures().is_open, is_open, "{revision}");
    }
}
