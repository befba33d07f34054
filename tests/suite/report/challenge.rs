//! Challenges: a nonce in the spec of the object `NodeStorage`, and the answer of the real daemon.

use serde_json::{Value, json};

use super::server::NODE;
use super::*;

const CHALLENGES: EnabledReports = EnabledReports {
    events: false,
    conditions: false,
    storage_failed: false,
    storage: true,
    challenges: true,
    clean_stale: false,
};

fn pace() -> ReportTiming {
    ReportTiming {
        answer_interval: Duration::from_millis(100),
        answer_patience: Duration::from_secs(10),
        ..brisk()
    }
}

impl Scene {
    /// Sets the challenge in the spec; None removes it.
    fn challenge(&self, challenge: Option<Value>) {
        let mut state = self.server.state();
        let object = state.storage.as_mut().expect("created");
        object["spec"] = match challenge {
            Some(challenge) => json!({"challenge": challenge}),
            None => json!({}),
        };
    }

    fn answer(&self) -> Value {
        let status = self.server.storage().unwrap_or_default();
        status["challenge"].clone()
    }

    fn until_answered(&self, nonce: &str) -> Value {
        self.until(nonce, || Some(self.answer()).filter(|answer| answer["nonce"] == nonce))
    }

    fn until_status_of(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.until(what, || self.server.storage().filter(|status| is_so(status)))
    }
}

#[test]
fn a_challenge_is_answered_by_the_boot_and_the_daemon_that_see_it_now() {
    let scene = Scene::stage();
    let machine = "0123456789abcdef0123456789abcdef";
    std::fs::create_dir_all(scene.host.root().join("etc")).expect("a folder");
    std::fs::write(scene.host.root().join("etc/machine-id"), machine).expect("written");
    let _daemon = started(&scene);
    let _reporter = scene.report(CHALLENGES, pace());
    scene.break_drive();
    let status = scene.until_status_of("the drive is bad", |status| status["health"] == "Bad");
    assert_eq!(status["challenge"], Value::Null, "nobody has asked");
    let drive = status["drives"][0]["id"].clone();
    let pv = scene.pvs()[0].clone();
    scene.challenge(Some(
        json!({"nonce": "n-1", "time": "2026-01-01T00:00:00Z", "persistentVolumes": [pv, "pv-of-nobody"]}),
    ));
    let answer = scene.until_answered("n-1");
    let status = scene.server.storage().expect("there");
    for id in ["bootID", "machineID"] {
        assert_eq!(answer[id], status[id], "{answer:#}");
        assert_ne!(answer[id], "", "{answer:#}");
    }
    assert_eq!(answer["settled"], true);
    assert_eq!(answer["inventory"], true, "{answer:#}");
    let findings = answer["findings"].as_array().expect("a list");
    let of = |reason: &str| {
        let found = findings.iter().find(|it| it["reason"] == reason);
        found.unwrap_or_else(|| panic!("{reason}: {answer:#}"))
    };
    let smart = of("SmartFailing");
    assert_eq!(smart["driveID"], drive);
    assert_eq!(smart["witnesses"], json!(["Smart"]));
    // What follows from another finding is no witness.
    let failing = of("DriveFailing");
    assert_eq!(failing["persistentVolume"], scene.pvs()[0]);
    assert_eq!(failing["witnesses"], json!([]));
    let missing = answer["missing"].as_array().expect("a list");
    let unknown = |it: &Value| it.as_str().is_some_and(|it| it.contains("pv-of-nobody"));
    assert!(missing.iter().any(unknown), "{answer:#}");

    scene.challenge(None);
    scene.until("the answer goes with the challenge", || {
        (scene.answer() == Value::Null).then_some(())
    });
}

#[test]
fn without_its_daemon_a_node_answers_nothing_and_the_daemon_that_returns_answers() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let _reporter = scene.report(CHALLENGES, pace());
    scene.until_status_of("good", |status| status["health"] == "Good");
    scene.challenge(Some(json!({"nonce": "n-1"})));
    let first = scene.until_answered("n-1");
    daemon.kill();
    scene.challenge(Some(json!({"nonce": "n-2"})));
    scene.until_status_of("unknown", |status| status["health"] == "Unknown");
    scene.until_still("nothing is written", || scene.server.storage_writes(200));
    assert_eq!(scene.answer()["nonce"], "n-1");
    let _daemon = started(&scene);
    let second = scene.until_answered("n-2");
    assert_ne!(second["daemonStarted"], first["daemonStarted"]);
    assert_eq!(second["bootID"], first["bootID"]);
}

#[test]
fn a_flood_of_nonces_costs_one_answer_for_each_interval() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let pace = ReportTiming { answer_interval: Duration::from_secs(2), ..pace() };
    let _reporter = scene.report(CHALLENGES, pace);
    scene.until_status_of("good", |status| status["health"] == "Good");
    scene.until_still("still", || scene.server.storage_writes(200));
    let before = scene.server.storage_writes(200);
    let began = Instant::now();
    for number in 0..50 {
        scene.challenge(Some(json!({"nonce": format!("n-{number}")})));
        pause(20);
    }
    scene.until_answered("n-49");
    let answers = scene.server.storage_writes(200) - before;
    let most = began.elapsed().as_secs() / 2 + 1;
    assert!(answers as u64 <= most, "{answers} in {:?}", began.elapsed());
}

#[test]
fn a_restarted_reporter_keeps_the_answer_and_one_that_does_not_answer_removes_it() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let reporter = scene.report(CHALLENGES, pace());
    scene.until_status_of("good", |status| status["health"] == "Good");
    scene.challenge(Some(json!({"nonce": "n-1"})));
    let answer = scene.until_answered("n-1");
    drop(reporter);
    let writes = scene.until_still("still", || scene.server.storage_writes(200));
    let lists = |scene: &Scene| {
        let state = scene.server.state();
        let asked = state.asked.iter();
        asked.filter(|asked| asked.query.contains("watch=")).count()
    };
    let before = lists(&scene);
    let reporter = scene.report(CHALLENGES, pace());
    scene.until("it watches", || (lists(&scene) > before + 1).then_some(()));
    assert_eq!(scene.answer(), answer);
    assert_eq!(scene.server.storage_writes(200), writes);
    drop(reporter);
    let silent = EnabledReports { challenges: false, clean_stale: false, ..CHALLENGES };
    let before = lists(&scene);
    let _reporter = scene.report(silent, pace());
    scene.until("it is removed", || (scene.answer() == Value::Null).then_some(()));
    assert_eq!(lists(&scene), before, "{NODE} is watched without need");
}
