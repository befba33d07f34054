//! What a decision writes, and when it is refused.

use super::*;
use crate::tests::actions::{record, time};
use crate::view::actions::State;

const NOW: &str = "2026-03-01T12:00:00Z";

fn policy_with(status: Value, suspended: bool) -> Read<Option<PolicyRow>> {
    let object = json!({"metadata": {"name": "default", "generation": 1}, "spec": {"mode": "Propose", "suspended": suspended}, "status": status});
    Ok(Some(policy(&PolicyRecord::from(object))))
}

fn open(status: &str) -> Value {
    json!({"observedGeneration": 1, "conditions": [{"type": "BreakerOpen", "status": status, "reason": "ManyDrives", "message": "7 drives", "lastTransitionTime": "2026-03-01T11:00:00Z"}]})
}

#[test]
fn an_approval_names_the_person_the_servers_time_and_the_evidence_that_was_shown() {
    let mut object = record(json!({}), json!({"evidence": ["newer"], "evidenceHash": "h2"}));
    object.meta.resource_version = "17".into();
    let shown = action(&object, time(NOW));
    let written = change(
        &object,
        Decision::Approve,
        Some("why"),
        &shown,
        "jane",
        time("2026-03-01T12:00:00.5Z"),
    );
    assert_eq!(
        written,
        json!({
            "metadata": {"resourceVersion": "17", "annotations": {"diskvitals.io/note": "why"}},
            "spec": {"approval": "Approved", "approvedBy": "jane", "approvedAt": NOW, "approvedHash": "h2"},
        })
    );
    let written = change(&object, Decision::Reject, None, &shown, "jane", time(NOW));
    assert_eq!(written["spec"]["approval"], "Rejected");
    assert_eq!(written["metadata"], json!({"resourceVersion": "17"}));
}

#[test]
fn a_decision_is_tried_again_only_for_the_same_evidence_of_an_action_that_waits() {
    let shown = action(&record(json!({}), json!({})), time(NOW));
    let now = |spec, status| same_decision(&record(spec, status), &shown, time(NOW));
    assert_eq!(now(json!({}), json!({"blockedBy": "BudgetUsed"})), Ok(()));
    let changed = now(json!({}), json!({"evidenceHash": "h2"}));
    assert!(changed.is_err_and(|why| why.contains("changed while you read it")));
    let rejected = now(json!({"approval": "Rejected", "approvedBy": "joe"}), json!({}));
    assert!(rejected.is_err_and(|why| why.contains("rejected by joe")));
}

#[test]
fn nothing_is_approved_under_a_policy_that_approves_nothing() {
    let refusal = |policy| {
        check_policy("default", policy)
            .map_err(|why| why.replace("an approval would approve nothing", "…"))
    };
    assert_eq!(refusal(policy_with(open("False"), false)), Ok(None));
    for (policy, why) in [
        (Ok(None), "its policy default no longer exists: …"),
        (policy_with(json!({}), true), "its policy default is suspended: …"),
        (
            policy_with(open("True"), false),
            "the breaker is open (ManyDrives): …. Find the common cause, then kubectl diskvitals breaker reset default",
        ),
        // What is not known is not closed.
        (
            policy_with(open("Unknown"), false),
            "the breaker is open (ManyDrives): …. Find the common cause, then kubectl diskvitals breaker reset default",
        ),
    ] {
        assert_eq!(refusal(policy), Err(why.to_owned()));
    }
    let unread = check_policy("default", Err("403".into())).expect("the controller asks again");
    assert!(unread.is_some_and(|gap| gap.why.contains("is not known")));
}

#[test]
fn a_reset_is_later_than_the_opening_also_by_a_clock_that_is_ahead() {
    let row = policy(&PolicyRecord::from(
        json!({"metadata": {"name": "default"}, "spec": {}, "status": open("True")}),
    ));
    assert_eq!(reset_time(&row, time(NOW)), time(NOW));
    let before = time("2026-03-01T10:59:00Z");
    assert_eq!(reset_time(&row, before), time("2026-03-01T11:00:01Z"));
}

#[test]
fn only_open_breakers_are_reset_and_a_named_one_must_be_open() {
    let record = |name: &str, status: &str| {
        PolicyRecord::from(json!({"metadata": {"name": name}, "spec": {}, "status": open(status)}))
    };
    let all = [record("a", "True"), record("b", "False")];
    let names = |name| {
        let open = open_breakers(&all, name)?;
        Ok::<_, String>(open.into_iter().map(|(_, row)| row.name).collect::<Vec<_>>())
    };
    assert_eq!(names(None), Ok(vec!["a".to_owned()]));
    assert_eq!(names(Some("a")), Ok(vec!["a".to_owned()]));
    assert_eq!(names(Some("b")), Err("the breaker of policy b is not open".to_owned()));
    assert_eq!(names(Some("c")), Err("there is no StoragePolicy `c`".to_owned()));
}

#[test]
fn an_approval_says_last_that_nothing_undoes_it() {
    let row = action(&record(json!({}), json!({})), time(NOW));
    let text = render::actions::consequence(&row, &diskvitals_terminal::fixture::screen(None));
    assert_eq!(
        text,
        "If the controller carries out actions in this namespace, the claim shop/data-db-0 is deleted. Nothing undoes that.\n"
    );
    let row =
        action(&record(json!({"claim": {"name": "\u{1b}[2J", "uid": "c"}}), json!({})), time(NOW));
    let text = render::actions::consequence(&row, &diskvitals_terminal::fixture::screen(None));
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn an_action_of_a_newer_version_cannot_be_decided() {
    let row = action(&record(json!({"type": "Handover"}), json!({})), time(NOW));
    assert_eq!(row.state, State::Waiting);
    assert!(undecidable(&row).is_some_and(|why| why.contains("`Handover`")));
    let row = action(&record(json!({"approval": "Delegated"}), json!({})), time(NOW));
    assert_eq!(row.state, State::Unknown);
    assert!(undecidable(&row).is_some_and(|why| why.contains("`Delegated`")));
}
