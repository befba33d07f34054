use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::report::transitions::tests::at;

/// RFC 7386.
fn apply(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut target = match target {
        Value::Object(target) => target,
        _ => Map::new(),
    };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => {
                let old = target.remove(key).unwrap_or_default();
                target.insert(key.clone(), apply(old, value));
            }
        }
    }
    Value::Object(target)
}

#[test]
fn what_a_newer_version_or_a_person_wrote_beside_the_status_is_removed() {
    let stored = json!({"health": "Excellent", "novelty": {"a": 1}, "counts": {"bad": 3, "odd": 1}, "drives": [1, 2]});
    let wanted = json!({"health": "Good", "counts": {"bad": 0}, "drives": []});
    let patch = replacement(&stored, wanted.clone());
    assert_eq!(patch["novelty"], Value::Null);
    assert_eq!(apply(stored, &patch), wanted);
    assert_eq!(apply(Value::Null, &replacement(&Value::Null, wanted.clone())), wanted);
}

fn any_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<bool>().prop_map(Value::from), "[a-c]{1,2}".prop_map(Value::from)];
    let deep = leaf.prop_recursive(3, 16, 4, |inner| {
        prop::collection::btree_map("[a-d]", inner, 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    });
    prop::collection::btree_map("[a-d]", deep, 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #[test]
    fn after_the_patch_only_the_wanted_status_is_left(stored in any_object(), wanted in any_object()) {
        let patch = replacement(&stored, wanted.clone());
        prop_assert_eq!(apply(stored, &patch), wanted);
    }
}

fn published(stored: Value, uid: &str) -> Published {
    Published::new(uid.into(), stored)
}

#[tokio::test(start_paused = true)]
async fn a_status_of_another_node_of_this_name_is_taken_over_as_a_whole() {
    let stored =
        json!({"nodeUID": "old", "health": "Good", "conditions": [], "drives": [{"id": "a"}]});
    let taken = published(stored.clone(), "new");
    assert_eq!(taken.status, None);
    assert!(taken.is_change(&NodeStorageStatus::default()));
    assert!(published(stored, "old").status.is_some());
    assert!(published(json!("damaged"), "old").status.is_none());
    assert!(published(Value::Null, "old").status.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_equal_status_of_an_earlier_process_is_refreshed_when_it_is_half_an_hour_old() {
    tokio::time::advance(Duration::from_secs(7200)).await;
    let written = |seconds: i64| instant_of(Some(at(1000)), at(1000 + seconds));
    assert_eq!(written(600), Instant::now() - Duration::from_secs(600));
    assert_eq!(written(-600), Instant::now(), "a clock that was ahead");
    assert_eq!(instant_of(None, at(0)), Instant::now());
}

#[test]
fn two_writes_an_hour_at_most_when_nothing_happens_and_not_all_nodes_at_once() {
    let of = |node| refresh_interval(Duration::from_secs(1800), node);
    assert!(["a", "b", "worker-1"].map(of).iter().all(|interval| {
        (Duration::from_secs(1800)..=Duration::from_secs(1980)).contains(interval)
    }));
    assert_ne!(of("worker-1"), of("worker-2"));
}
