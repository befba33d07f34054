use super::*;

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object")
}

#[test]
fn a_field_that_is_gone_is_removed_by_the_patch() {
    let old =
        StorageActionStatus { blocked_by: "NotApproved".into(), ..StorageActionStatus::default() };
    let patch = merge_patch(&old, &StorageActionStatus::default()).expect("encoded");
    assert_eq!(patch["blockedBy"], Value::Null);
    assert!(patch.as_object().is_some_and(|it| it.contains_key("blockedBy")));
}

#[test]
fn a_policy_in_another_form_refuses_everything_and_an_action_fails_the_list() {
    let read = policy(object(json!({
        "apiVersion": "diskvitals.io/v1alpha1", "kind": "StoragePolicy",
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"mode": "Propose", "hold": 30},
    })));
    assert_eq!(read.state, PolicyState::unreadable("p"));
    assert_eq!(read.state.spec.hold_time(), None);
    let error = action(object(json!({
        "apiVersion": "diskvitals.io/v1alpha1", "kind": "StorageAction",
        "metadata": {"name": "a", "namespace": "shop"}, "spec": {"type": "Release"},
    })));
    let why = error.expect_err("no claim").into_message_and_delay().0;
    assert!(why.contains("shop/a"), "{why}");
}
