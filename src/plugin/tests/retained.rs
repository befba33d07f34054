//! Which released volumes are shown, and what is said of their drives.

use serde_json::{Value, json};

use crate::objects::VolumeRecord;
use crate::tests::actions::record;
use crate::tests::{bad_drive, bad_volume, base, node, report, volume};
use crate::view::actions::{ActionRow, action as action_row};
use crate::view::nodes::nodes;
use crate::view::retained::{RetainedRow, retained};
use diskvitals_terminal::fixture::screen;

fn released() -> VolumeRecord {
    VolumeRecord {
        uid: "v".into(),
        phase: "Released".into(),
        reclaim_policy: "Retain".into(),
        ..volume(json!({}))
    }
}

fn action() -> ActionRow {
    action_row(&record(json!({}), json!({})), screen(None).now)
}

fn rows(storage: Value, actions: &[ActionRow]) -> Vec<RetainedRow> {
    let base = base(vec![storage], vec![node("node-1", "True")]);
    retained(&base, &nodes(&base), &[released()], actions)
}

/// What is said of the drive of a volume that an action kept.
fn state(more: Value) -> String {
    let rows = rows(report("node-1", more), &[action()]);
    assert_eq!(rows.len(), 1);
    rows[0].drive_state.clone()
}

#[test]
fn a_released_volume_is_listed_for_an_action_a_failed_drive_or_a_lost_node() {
    let good = || report("node-1", json!({}));
    assert!(rows(good(), &[]).is_empty());
    let kept = rows(good(), &[action()]);
    assert_eq!(kept[0].action, "release-data-db-0-1");
    assert_eq!(kept[0].drives, ["ZDH1"]);
    let failed = report("node-1", json!({"drives": [bad_drive()], "volumes": [bad_volume()]}));
    assert_eq!(rows(failed, &[])[0].drive_state, "BAD (MediaErrors)");
    let empty = base(Vec::new(), Vec::new());
    let lost = retained(&empty, &nodes(&empty), &[released()], &[]);
    assert_eq!(lost[0].drive_state, "its node no longer exists");
}

#[test]
fn an_action_for_another_volume_of_the_same_name_kept_nothing() {
    let mut other = action();
    other.volume_uid = "another".into();
    assert!(rows(report("node-1", json!({})), &[other]).is_empty());
}

#[test]
fn a_drive_is_gone_only_if_a_complete_current_report_says_so() {
    assert_eq!(state(json!({"driveIDs": ["naa.2"]})), "gone from the node");
    let cut = json!({"driveIDs": ["naa.2"], "truncated": {"drives": true}});
    assert_eq!(state(cut), "not known: the node's list of drives is cut");
    let old = json!({"driveIDs": ["naa.2"], "reportedAt": "2026-03-01T09:00:00Z"});
    assert_eq!(state(old), "not known: its node has no current report");
    assert_eq!(state(json!({})), "good now: look at the volume before you delete it");
    assert_eq!(state(json!({"drives": [bad_drive()]})), "BAD (MediaErrors)");
}
