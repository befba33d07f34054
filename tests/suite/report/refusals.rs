//! An API server that fails, is overloaded, silent or absent, or refuses requests.

use std::collections::BTreeSet;

use serde_json::Value;

use super::server::{Asked, Fault};
use super::*;

const EVENTS: EnabledReports = EnabledReports {
    events: true,
    conditions: false,
    storage_failed: false,
    storage: false,
    challenges: false,
    clean_stale: false,
};
const CONDITIONS: EnabledReports = EnabledReports {
    events: false,
    conditions: true,
    storage_failed: false,
    storage: false,
    challenges: false,
    clean_stale: false,
};

fn status(code: u16, reason: &'static str) -> Fault {
    Fault::Status { code, reason, retry_after_seconds: None }
}

fn posts(scene: &Scene) -> Vec<Asked> {
    scene.server.state().asked.iter().filter(|asked| asked.method == "POST").cloned().collect()
}

#[test]
fn every_api_server_error_is_retried_and_each_event_published_once() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let _reporter =
        scene.report(BOTH, ReportTiming { request_timeout: Duration::from_millis(300), ..brisk() });
    scene.until_status("True");
    scene.server.state().faults.extend([
        status(500, "InternalError"),
        status(429, "TooManyRequests"),
        Fault::Silence,
        Fault::Stranger,
        status(503, "ServiceUnavailable"),
        Fault::Break,
        status(401, "Unauthorized"),
        status(409, "Conflict"),
        status(504, "Timeout"),
    ]);
    scene.break_drive();
    let expected =
        [format!("Node {NODE} Warning SmartFailing"), format!("Pod {POD} Warning DriveFailing")];
    for line in &expected {
        scene.until_told(line);
    }
    scene.until_status("False");
    scene.until("all of it was met with", || scene.server.state().faults.is_empty().then_some(()));
    let posts = posts(&scene);
    for (at, made) in posts.iter().enumerate().filter(|(_, asked)| asked.code == 201) {
        let again = posts[at + 1..]
            .iter()
            .find(|later| later.body["metadata"]["name"] == made.body["metadata"]["name"]);
        assert!(again.is_none(), "told once more: {again:#?}");
    }
    // The event does not exist with another name either.
    let state = scene.server.state();
    let line = |event: &Value| {
        let note = event["note"]
            .as_str()
            .expect("text")
            .split(" (since")
            .next()
            .expect("a part")
            .to_owned();
        (
            event["regarding"]["uid"].to_string(),
            event["reason"].to_string(),
            event["action"].to_string(),
            note,
        )
    };
    let lines: BTreeSet<_> = state.events.values().map(line).collect();
    assert_eq!(lines.len(), state.events.len(), "{:#?}", state.events);
}

/// The delay is 40 ms, doubled each time; the reporter waits half to all of it.
fn assert_ever_rarer(asked: &[Asked]) {
    let gaps: Vec<Duration> = asked.windows(2).map(|two| two[1].at - two[0].at).collect();
    for (number, gap) in gaps.iter().enumerate().take(5) {
        assert!(*gap >= Duration::from_millis(20 << number), "{number}: {gaps:?}");
    }
}

#[test]
fn retries_back_off_and_obey_retry_after() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let _reporter = scene.report(EVENTS, brisk());
    scene.server.state().always = Some(status(500, "InternalError"));
    scene.break_drive();
    let asked =
        scene.until("six attempts", || Some(posts(&scene)).filter(|posts| posts.len() >= 6));
    assert_ever_rarer(&asked);
    // The event is still the first: waiting events keep their order.
    assert!(
        asked.iter().all(
            |asked| asked.body["metadata"]["name"] == posts(&scene)[0].body["metadata"]["name"]
        )
    );

    scene.server.state().faults.push_back(Fault::Status {
        code: 429,
        reason: "TooManyRequests",
        retry_after_seconds: Some(2),
    });
    scene.server.state().always = None;
    scene.until_told(&format!("Node {NODE} Warning SmartFailing"));
    let asked = posts(&scene);
    let at = asked.iter().position(|asked| asked.code == 429).expect("met with");
    assert!(asked[at + 1].at - asked[at].at >= Duration::from_secs(2));
}

#[test]
fn a_rejected_event_is_dropped_and_the_next_is_published() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let _reporter = scene.report(EVENTS, brisk());
    scene.server.state().faults.push_back(status(422, "Invalid"));
    scene.break_drive();
    scene.until_told(&format!("Pod {POD} Warning DriveFailing"));
    // The node's events come first.
    let asked = posts(&scene);
    assert_eq!((asked[0].code, asked[0].body["regarding"]["kind"].as_str()), (422, Some("Node")));
    assert_eq!(
        asked
            .iter()
            .filter(|other| other.body["metadata"]["name"] == asked[0].body["metadata"]["name"])
            .count(),
        1
    );
}

#[test]
fn a_permission_that_is_granted_late_is_awaited_and_no_event_is_lost() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let _reporter = scene.report(EVENTS, brisk());
    scene.server.state().always = Some(status(403, "Forbidden"));
    scene.break_drive();
    scene.until("some attempts", || (posts(&scene).len() >= 4).then_some(()));
    scene.server.state().always = None;
    scene.until_told(&format!("Node {NODE} Warning SmartFailing"));
    scene.until_told(&format!("Pod {POD} Warning DriveFailing"));
}

#[test]
fn a_missing_permission_is_abandoned_and_delays_no_other_event() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let pace = ReportTiming {
        rbac_grace: Duration::from_millis(600),
        max_backoff: Duration::from_millis(100),
        ..brisk()
    };
    let _reporter = scene.report(EVENTS, pace);
    scene.server.state().of_path = Some(("/namespaces/default/", status(403, "Forbidden")));
    scene.break_drive();
    scene.until_told(&format!("Pod {POD} Warning DriveFailing"));
    scene.until_still("it is given up", || posts(&scene).len());
    scene.server.state().of_path = None;
    scene.mend_drive();
    scene.until_told(&format!("Node {NODE} Normal SmartFailingCleared"));
    assert!(!scene.server.told().contains(&format!("Node {NODE} Warning SmartFailing")));
}

#[test]
fn an_object_whose_events_always_fail_does_not_delay_the_others() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let _reporter =
        scene.report(EVENTS, ReportTiming { max_backoff: Duration::from_millis(100), ..brisk() });
    scene.server.state().of_path = Some(("/namespaces/default/", status(500, "InternalError")));
    scene.break_drive();
    scene.until_told(&format!("Pod {POD} Warning DriveFailing"));
    let of_node = |line: &String| line.starts_with("Node");
    assert!(!scene.server.told().iter().any(of_node));
    scene.server.state().of_path = None;
    scene.until_told(&format!("Node {NODE} Warning SmartFailing"));
}

#[test]
fn a_forbidden_condition_is_retried_with_backoff_and_published_once_allowed() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    scene.server.state().always = Some(status(403, "Forbidden"));
    let _reporter = scene.report(CONDITIONS, brisk());
    scene.until("six attempts", || (scene.server.state().asked.len() >= 6).then_some(()));
    assert_ever_rarer(&scene.server.state().asked);
    assert_eq!(scene.server.status(), None);
    scene.server.state().always = None;
    scene.until_status("True");
}

#[test]
fn an_unreachable_api_server_gets_all_events_when_it_is_back() {
    let mut scene = Scene::stage();
    let daemon = started(&scene);
    let _reporter = scene.report(BOTH, brisk());
    scene.until_status("True");
    scene.server.go();
    scene.break_drive();
    daemon.until("it knows", |daemon| daemon.finding("sda", "SmartFailing").map(|_| ()));
    scene.server.come();
    scene.until_status("False");
    scene.until_told(&format!("Node {NODE} Warning SmartFailing"));
}

#[test]
fn an_event_of_a_volume_claimed_in_another_namespace_goes_to_its_pod_only() {
    let scene = Scene::stage();
    scene
        .server
        .state()
        .claims
        .values_mut()
        .for_each(|namespace| "elsewhere".clone_into(namespace));
    let _daemon = started(&scene);
    let _reporter = scene.report(EVENTS, brisk());
    scene.break_drive();
    scene.until_told(&format!("Pod {POD} Warning DriveFailing"));
    scene.until("the claim was looked for", || {
        scene
            .server
            .state()
            .asked
            .iter()
            .any(|asked| asked.path.starts_with("/api/v1/persistentvolumes/"))
            .then_some(())
    });
    scene.mend_drive();
    scene.until_told(&format!("Pod {POD} Normal DriveFailingCleared"));
    assert!(scene.server.told().iter().all(|line| !line.starts_with("PersistentVolumeClaim")));
}

#[test]
fn a_flapping_condition_is_rate_limited() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let pace = ReportTiming {
        condition_burst: 1,
        condition_interval: Duration::from_secs(4),
        absence_grace: Duration::from_secs(1),
        ..brisk()
    };
    let _reporter = scene.report(CONDITIONS, pace);
    scene.until_status("True");
    daemon.kill();
    scene.until_status("Unknown");
    let state = scene.server.state();
    let told = state.asked.iter().filter_map(|asked| {
        Some((asked.at, asked.body["status"]["conditions"][0]["status"].as_str()?))
    });
    let told: Vec<(tokio::time::Instant, &str)> = told.collect();
    let mut changes = vec![told[0]];
    changes.extend(told.windows(2).filter(|two| two[0].1 != two[1].1).map(|two| two[1]));
    assert!(
        changes.len() >= 2
            && changes.windows(2).all(|two| two[1].0 - two[0].0 >= Duration::from_secs(4)),
        "{changes:?}"
    );
}
