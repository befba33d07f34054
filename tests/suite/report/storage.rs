//! The object `NodeStorage`: what is written, when, and what an API server that refuses gets.

use serde_json::{Value, json};

use super::server::Fault;
use super::*;

pub(super) const STORAGE: EnabledReports = EnabledReports {
    events: false,
    conditions: false,
    storage_failed: false,
    storage: true,
    challenges: false,
    clean_stale: false,
};

impl Scene {
    fn until_storage(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.until(what, || self.server.storage().filter(|status| is_so(status)))
    }

    pub(super) fn until_health(&self, health: &str) -> Value {
        self.until_storage(health, |status| status["health"] == health)
    }
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let mut conditions = status["conditions"].as_array().expect("a list").iter();
    conditions.find(|it| it["type"] == kind).expect("a condition")
}

#[test]
fn the_object_of_a_healthy_node_is_created_and_then_left_alone() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let _reporter = scene.report(STORAGE, brisk());
    let status = scene.until_health("Good");
    assert_eq!(status["nodeUID"], scene.server.state().node_uid);
    assert!(status["driveIDs"].as_array().is_some_and(|ids| !ids.is_empty()));
    assert_eq!(condition(&status, "DaemonReachable")["status"], "True");
    let writes = scene.until_still("nothing is written", || scene.server.storage_writes(200));
    assert!(writes <= 2, "{writes}");
}

#[test]
fn a_failing_drive_is_shown_with_its_volume_and_its_recovery_clears_both() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let _reporter = scene.report(STORAGE, brisk());
    scene.until_health("Good");
    scene.break_drive();
    let status = scene.until_storage("both are listed", |status| {
        status["counts"]["bad"] == 1 && status["counts"]["affected"] != 0
    });
    let drive = &status["drives"][0];
    assert_eq!((&drive["name"], &drive["health"]), (&json!("sda"), &json!("Bad")));
    let reason = drive["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("Smart"), "{drive:#}");
    assert!(drive["serial"].as_str().is_some_and(|serial| !serial.is_empty()));
    let volume = &status["volumes"][0];
    assert_eq!(volume["healthConditions"][0]["reason"], "DriveFailing", "{volume:#}");
    assert_eq!(volume["driveIDs"], json!([drive["id"]]));
    assert_eq!(volume["redundant"], false);
    scene.mend_drive();
    let status = scene.until_health("Good");
    assert_eq!((&status["drives"], &status["volumes"]), (&json!([]), &json!([])));
}

#[test]
fn an_absent_daemon_leaves_the_lists_and_takes_the_health() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let _reporter = scene.report(STORAGE, brisk());
    scene.break_drive();
    let before = scene.until_storage("both", |status| {
        status["counts"]["bad"] == 1 && status["counts"]["affected"] != 0
    });
    daemon.kill();
    let status = scene.until_health("Unknown");
    assert_eq!(status["drives"], before["drives"]);
    let condition = condition(&status, "DaemonReachable");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("DaemonNotAnswering"))
    );
    let _daemon = started(&scene);
    scene.until_health("Bad");
}

#[test]
fn without_a_daemon_no_list_is_called_empty() {
    let scene = Scene::stage();
    let _reporter = scene.report(STORAGE, brisk());
    let status = scene.until_health("Unknown");
    assert_eq!(status["truncated"], json!({"drives": true, "volumes": true, "stale": true}));
}

#[test]
fn the_object_of_an_earlier_node_is_taken_over_as_a_whole() {
    let scene = Scene::stage();
    scene.server.state().storage = Some(json!({
        "apiVersion": "diskvitals.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": NODE},
        "spec": {"quarantine": {"id": "a"}},
        "status": {"nodeUID": "another", "health": "Excellent", "novelty": 1, "machineID": "old",
            "drives": [{"id": "old", "health": "Bad"}], "reportedAt": "2026-01-01T00:00:00Z"},
    }));
    let daemon = started(&scene);
    daemon.kill();
    let _reporter = scene.report(STORAGE, brisk());
    let status = scene.until_health("Unknown");
    assert_eq!(status["nodeUID"], scene.server.state().node_uid);
    assert_eq!((&status["drives"], &status["novelty"]), (&json!([]), &Value::Null));
    let state = scene.server.state();
    let spec = &state.storage.as_ref().expect("there")["spec"];
    assert_eq!(spec["quarantine"]["id"], "a", "what others wrote stays");
}

#[test]
fn a_restarted_reporter_writes_nothing_while_nothing_has_changed() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let reporter = scene.report(STORAGE, brisk());
    scene.until_health("Good");
    let before = scene.until_still("still", || scene.server.storage_writes(200));
    drop(reporter);
    let _reporter = scene.report(STORAGE, brisk());
    scene.until("it has read the object again", || {
        let state = scene.server.state();
        let reads = state.asked.iter().filter(|asked| {
            asked.method == "GET" && asked.path.contains("nodestorages") && asked.code == 200
        });
        (reads.count() >= 1).then_some(())
    });
    let after = scene.until_still("still", || scene.server.storage_writes(200));
    assert_eq!(before, after);
}

#[test]
fn a_deleted_object_is_created_again_at_the_next_refresh() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let pace = ReportTiming { storage_refresh: Duration::from_millis(500), ..brisk() };
    let _reporter = scene.report(STORAGE, pace);
    scene.until_health("Good");
    scene.server.state().storage = None;
    scene.until_health("Good");
}

#[test]
fn an_api_server_that_was_away_gets_the_newest_state_once() {
    let mut scene = Scene::stage();
    let _daemon = started(&scene);
    let _reporter = scene.report(STORAGE, brisk());
    scene.until_health("Good");
    scene.until_still("still", || scene.server.storage_writes(200));
    scene.server.go();
    scene.break_drive();
    pause(500);
    scene.mend_drive();
    pause(500);
    scene.break_drive();
    let daemon = &_daemon;
    daemon.until("it knows", |daemon| daemon.finding("sda", "SmartFailing").map(|_| ()));
    pause(500);
    let before = scene.server.storage_writes(200);
    scene.server.come();
    scene.until_storage("the newest state", |status| {
        status["counts"]["bad"] == 1 && status["counts"]["affected"] != 0
    });
    let writes = scene.until_still("still", || scene.server.storage_writes(200)) - before;
    assert_eq!(writes, 1);
}

#[test]
fn an_overloaded_api_server_is_left_alone_as_long_as_it_asks() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    scene.server.state().of_path = Some((
        "nodestorages",
        Fault::Status { code: 429, reason: "TooManyRequests", retry_after_seconds: Some(2) },
    ));
    let pace = ReportTiming { max_backoff: Duration::from_secs(2), ..brisk() };
    let _reporter = scene.report(STORAGE, pace);
    let refused = |scene: &Scene| {
        let state = scene.server.state();
        let asked = state.asked.iter().filter(|asked| asked.code == 429);
        asked.map(|asked| asked.at).collect::<Vec<_>>()
    };
    let times = scene.until("it is refused three times", || {
        Some(refused(&scene)).filter(|times| times.len() >= 3)
    });
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(1900), "{times:?}");
    }
    scene.server.state().of_path = None;
    scene.until_health("Good");
}
