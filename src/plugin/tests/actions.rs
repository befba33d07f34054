//! The states of an action, and what people are shown of it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::objects::actions::{ActionRecord, PolicyRecord};
use crate::render;
use crate::view::actions::{ActionRow, State, action, actions, policy, short};
use diskvitals_terminal::fixture::screen;

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// An action that waits for approval, with other fields.
pub(crate) fn record(spec: Value, status: Value) -> ActionRecord {
    let mut object = json!({
        "metadata": {"namespace": "shop", "name": "release-data-db-0-1", "creationTimestamp": "2026-03-01T11:30:00Z"},
        "spec": {
            "type": "Release", "policy": "default", "group": "app.kubernetes.io/instance=db",
            "claim": {"name": "data-db-0", "uid": "c"}, "persistentVolume": {"name": "pv-1", "uid": "v"}, "pod": {"name": "db-0", "uid": "p"},
            "node": {"name": "node-1", "uid": "n", "bootID": "b"}, "drive": {"id": "naa.1", "model": "ST4000", "serial": "ZDH1", "slot": "Slot 07"},
            "finding": {"id": "f", "reason": "DriveOffline", "since": "2026-03-01T10:00:00Z"},
            "evidence": ["the kernel has taken the drive offline", "scan of 2026-03-01T11:29:00Z: no answer"], "evidenceHash": "h1", "approval": "Pending",
        },
        "status": {"step": "Proposed", "blockedBy": "NotApproved", "steps": [{"time": "2026-03-01T11:30:00Z", "text": "proposed"}]},
    });
    for (part, more) in [("spec", spec), ("status", status)] {
        for (key, value) in more.as_object().expect("an object") {
            object[part][key] = value.clone();
        }
    }
    ActionRecord::from(object)
}

fn approved(at: &str, hash: &str) -> Value {
    json!({"approval": "Approved", "approvedBy": "jane", "approvedAt": at, "approvedHash": hash})
}

fn conditions(names: &[&str]) -> Value {
    let all = names.iter().map(|name| json!({"type": name, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-03-01T11:40:00Z"}));
    json!({"conditions": all.collect::<Vec<_>>()})
}

/// It does not go on after these conditions.
fn held_after(names: &[&str], reason: &str, message: &str) -> Value {
    let mut status = conditions(names);
    let next = match names {
        [] => "Confirmed",
        [.., "Prepared"] => "ClaimDeleted",
        [.., "ClaimDeleted"] => "PodEvicted",
        _ => "Replaced",
    };
    let held = json!({"type": next, "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-03-01T11:40:00Z"});
    let all = status["conditions"].as_array_mut().expect("a list");
    all.insert(0, held);
    status["blockedBy"] = json!("");
    status
}

fn by_hand() -> Value {
    held_after(&[], "NotCarriedOut", "By hand: kubectl patch pv pv-1")
}

/// The screen's now is 2026-03-01 12:00.
fn row(spec: Value, status: Value) -> ActionRow {
    action(&record(spec, status), screen(None).now)
}

#[test]
fn a_state_is_that_of_the_conditions_before_that_of_the_approval() {
    let good = || approved("2026-03-01T11:10:00Z", "h1");
    let none = || json!({});
    for (spec, status, state) in [
        (none(), none(), State::Waiting),
        (good(), none(), State::Approved),
        (good(), conditions(&["Confirmed"]), State::Running),
        (good(), conditions(&["Confirmed", "Prepared"]), State::Running),
        (good(), by_hand(), State::ByHand),
        // The namespace was taken from the list.
        (good(), held_after(&["Prepared"], "NotCarriedOut", ""), State::ByHand),
        (
            approved("2026-03-01T09:00:00Z", "h1"),
            held_after(&["Prepared", "ClaimDeleted"], "NotCarriedOut", ""),
            State::ByHand,
        ),
        (good(), held_after(&["Prepared"], "BreakerOpen", ""), State::Running),
        // Taken back before the claim was deleted.
        (none(), conditions(&["Confirmed"]), State::Waiting),
        // Beyond the point of no return the age of the approval decides nothing.
        (approved("2026-03-01T09:00:00Z", "h1"), conditions(&["ClaimDeleted"]), State::Running),
        (good(), conditions(&["ClaimDeleted", "PodEvicted", "Stuck"]), State::Stuck),
        (good(), conditions(&["ClaimDeleted", "Replaced"]), State::Replaced),
        (none(), conditions(&["Aborted"]), State::Aborted),
        (json!({"approval": "Rejected", "approvedBy": "jane"}), none(), State::Rejected),
        (json!({"claim": "unreadable"}), none(), State::Unknown),
        (json!({"approval": "Delegated"}), none(), State::Unknown),
    ] {
        assert_eq!(row(spec.clone(), status.clone()).state, state, "{spec} {status}");
    }
    let ended = json!({"conditions": [{"type": "Stuck", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2026-03-01T11:40:00Z"}]});
    assert_eq!(row(good(), ended).state, State::Approved);
}

#[test]
fn an_approval_is_valid_for_one_hour_and_for_one_evidence() {
    let state = |at: &str, hash: &str, present: &str| {
        row(approved(at, hash), json!({"evidenceHash": present})).state
    };
    assert_eq!(state("2026-03-01T11:00:01Z", "h1", ""), State::Approved);
    assert_eq!(state("2026-03-01T11:00:00Z", "h1", ""), State::ApprovalInvalid);
    assert_eq!(state("2026-03-01T11:30:00Z", "h1", "h2"), State::ApprovalInvalid);
    assert_eq!(state("2026-03-01T11:30:00Z", "h2", "h2"), State::Approved);
    let mut timeless = approved("2026-03-01T11:30:00Z", "h1");
    timeless["approvedAt"] = Value::Null;
    assert_eq!(row(timeless, json!({})).state, State::ApprovalInvalid);
}

#[test]
fn an_action_that_the_controller_does_not_carry_out_is_to_be_done_by_hand() {
    let row = row(approved("2026-03-01T11:30:00Z", "h1"), by_hand());
    let text = render::actions::legend(std::slice::from_ref(&row), &screen(None));
    assert!(text.contains("to be done by hand: By hand: kubectl patch pv pv-1"), "{text}");
    let text = render::actions::action(&row, &screen(None));
    assert!(text.contains("By hand: kubectl patch pv pv-1"), "{text}");
    assert!(!text.contains("what is left to do"), "{text}");
    assert_eq!(short(&row), "release to be done by hand");
}

#[test]
fn an_action_that_is_carried_out_is_shown_by_its_last_step_and_what_is_left() {
    let all = ["Confirmed", "Prepared", "ClaimDeleted", "PodEvicted", "Replaced"];
    let steps = |names: &[&str]| row(approved("2026-03-01T11:30:00Z", "h1"), conditions(names));
    for (at, step) in all.iter().enumerate() {
        assert_eq!(&steps(&all[..=at]).step, step);
    }
    // A stuck action stays where it is.
    let stuck = steps(&["Confirmed", "Prepared", "ClaimDeleted", "Stuck"]);
    assert_eq!((stuck.state, stuck.step.as_str()), (State::Stuck, "ClaimDeleted"));
    let shown = |done: usize| render::actions::action(&steps(&all[..done]), &screen(None));
    for (done, first, end) in [
        (1, "4. The PersistentVolume is set", "Nothing is lost yet."),
        (2, "5. The PersistentVolumeClaim is deleted", "Nothing is lost yet."),
        (3, "6. The pod is evicted", "nothing undoes that"),
        (4, "7. The StatefulSet makes", "nothing undoes that"),
    ] {
        let text = shown(done);
        assert!(
            text.contains(&format!("what is left to do\n  {first}")) && text.contains(end),
            "{text}"
        );
    }
    assert!(!shown(5).contains("what is left to do"));
}

#[test]
fn an_action_under_way_says_what_it_waits_for() {
    let why = "pod db-0 has not ended yet";
    let held = held_after(&["Prepared", "ClaimDeleted", "PodEvicted"], "Waiting", why);
    let row = row(approved("2026-03-01T11:30:00Z", "h1"), held);
    let legend = render::actions::legend(std::slice::from_ref(&row), &screen(None));
    assert!(legend.contains(&format!("under way: {why}")), "{legend}");
    let text = render::actions::action(&row, &screen(None));
    assert!(text.contains(&format!("state     under way: {why}\n")), "{text}");
    // What held an earlier step is over.
    let mut over = held_after(&[], "BreakerOpen", "open");
    let all = over["conditions"].as_array_mut().expect("a list");
    all.extend(conditions(&["Prepared"])["conditions"].as_array().expect("a list").clone());
    let row = action(&record(approved("2026-03-01T11:30:00Z", "h1"), over), screen(None).now);
    assert_eq!((row.state, row.why.as_str()), (State::Running, ""));
}

#[test]
fn an_approval_of_yesterday_is_no_work_to_be_done_by_hand() {
    let row = row(approved("2026-03-01T10:30:00Z", "h1"), by_hand());
    assert_eq!(row.state, State::ApprovalInvalid);
}

#[test]
fn waiting_actions_come_first_and_ended_ones_last() {
    let records = [
        record(json!({}), conditions(&["Aborted"])),
        record(json!({}), conditions(&["Stuck"])),
        record(json!({}), json!({})),
        record(approved("2026-03-01T11:30:00Z", "h1"), json!({})),
    ];
    let states: Vec<State> =
        actions(&records, screen(None).now).iter().map(|it| it.state).collect();
    assert_eq!(states, [State::Waiting, State::Stuck, State::Approved, State::Aborted]);
}

#[test]
fn an_action_is_shown_with_its_evidence_and_what_an_approval_starts() {
    let text = render::actions::action(
        &row(json!({}), json!({"blockedBy": "GroupNotReady"})),
        &screen(None),
    );
    for part in [
        "action    shop/release-data-db-0-1\n",
        "state     waits for approval\n",
        "drive     ST4000, serial ZDH1, slot 07, naa.1\n",
        "finding   DriveOffline (2 h ago)\n",
        "held by   GroupNotReady: Fewer members",
        "evidence\n  the kernel has taken the drive offline\n",
        "what an approval starts\n  1. The controller has proposed",
        "  5. The PersistentVolumeClaim is deleted by its uid.",
        "Elsewhere it stops after step 3",
        "never force-deletes a pod",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_list_explains_each_gate_once_and_says_who_is_stuck() {
    let held = || json!({"blockedBy": "GroupNotReady"});
    let rows = [
        row(json!({}), held()),
        row(json!({}), held()),
        row(json!({}), json!({"blockedBy": "Mood"})),
        row(json!({}), conditions(&["Stuck"])),
    ];
    let text = render::actions::legend(&rows, &screen(None));
    assert_eq!(text.matches("GroupNotReady: Fewer members").count(), 1, "{text}");
    assert!(
        text.contains(
            "Mood: The controller has a gate that this version of the plugin does not know."
        ),
        "{text}"
    );
    assert!(text.contains(": STUCK: m"), "{text}");
    assert!(!text.contains("NotApproved"), "{text}");
}

#[test]
fn the_claim_has_what_holds_its_action_back() {
    let word = |spec, status| short(&row(spec, status));
    let good = || approved("2026-03-01T11:30:00Z", "h1");
    assert_eq!(word(json!({}), json!({})), "release waits for approval");
    assert_eq!(
        word(json!({}), json!({"blockedBy": "GroupNotReady"})),
        "release held by GroupNotReady"
    );
    assert_eq!(
        word(good(), json!({"blockedBy": "BudgetUsed"})),
        "release approved, held by BudgetUsed"
    );
    assert_eq!(
        word(
            good(),
            json!({"blockedBy": "", "step": "Prepared", "conditions": conditions(&["Prepared"])["conditions"]})
        ),
        "release under way: Prepared"
    );
    assert_eq!(
        word(
            good(),
            json!({"blockedBy": "BreakerOpen", "conditions": conditions(&["Confirmed", "Prepared"])["conditions"]})
        ),
        "release under way: Prepared, held by BreakerOpen"
    );
    assert_eq!(word(good(), conditions(&["Stuck"])), "release STUCK");
}

#[test]
fn a_policy_says_what_it_would_do_and_never_more_than_was_judged() {
    let policy_of = |generation: i64, status: Value| {
        let object = json!({"metadata": {"name": "default", "generation": generation}, "spec": {"mode": "Observe"}, "status": status});
        let row = policy(&PolicyRecord::from(object));
        render::actions::policies(&[row], &screen(None))
    };
    let judged = || json!({"observedGeneration": 2, "wouldAct": 1, "blocked": [{"gate": "GroupNotReady", "count": 2}]});
    assert_eq!(
        policy_of(2, judged()),
        "policy default (Observe); would release 1 claim; held back: GroupNotReady 2\n"
    );
    assert_eq!(
        policy_of(3, judged()),
        "policy default (Observe); the controller has not judged its last change yet\n"
    );
    assert_eq!(
        policy_of(1, json!({})),
        "policy default (Observe); the controller has not judged it yet (duty `release`)\n"
    );
    assert!(policy_of(1, json!({"wouldAct": "many"})).contains("this version cannot read it"));
}

#[test]
fn text_of_nodes_and_people_does_not_control_the_terminal() {
    let evil = "\u{1b}[2J\u{202e}x\nsecond";
    let spec = json!({"evidence": [evil], "drive": {"id": evil, "model": evil, "serial": evil, "slot": evil}, "approvedBy": evil, "approvedAt": "2026-03-01T11:30:00Z"});
    let status = json!({"steps": [{"time": "2026-03-01T11:30:00Z", "text": evil}], "blockedBy": evil, "step": evil});
    let row = row(spec, status);
    for text in [
        render::actions::action(&row, &screen(None)),
        render::actions::actions(std::slice::from_ref(&row), true, &screen(None)),
        render::actions::legend(&[row], &screen(None)),
    ] {
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}') && !text.contains("\nsecond"),
            "{text}"
        );
    }
}
