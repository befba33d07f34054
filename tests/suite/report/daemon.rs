//! The daemon starts, stops and stays absent.

use super::*;

#[test]
fn a_daemon_that_stays_away_makes_the_condition_unknown_and_its_return_true() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let _reporter = scene.report(BOTH, brisk());
    scene.until_status("True");
    daemon.kill();
    scene.until_status("Unknown");
    let condition = scene.server.condition().expect("told");
    assert_eq!(condition["reason"], "DaemonNotAnswering", "{condition:#}");
    scene.until_told(&format!("Node {NODE} Warning HealthUnknown"));
    let _daemon = started(&scene);
    scene.until_status("True");
    scene.until_told(&format!("Node {NODE} Normal HealthKnown"));
}

#[test]
fn a_daemon_replaced_in_time_causes_no_event_and_no_heartbeat_while_it_is_down() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let pace = ReportTiming { absence_grace: Duration::from_secs(60), ..brisk() };
    let _reporter = scene.report(BOTH, pace);
    scene.until_status("True");
    let beats = |scene: &Scene| {
        scene
            .server
            .state()
            .asked
            .iter()
            .filter(|asked| asked.kind == "application/apply-patch+yaml")
            .count()
    };
    let first = beats(&scene);
    scene.until("it is told again that it still is so", || {
        (beats(&scene) >= first + 2).then_some(())
    });
    let transition = scene.server.condition().expect("told")["lastTransitionTime"].clone();

    daemon.kill();
    let away = scene.until_still("a daemon that is away says nothing", || beats(&scene));

    let _daemon = started(&scene);
    scene.until("it is told again", || (beats(&scene) > away).then_some(()));
    assert_eq!(scene.server.condition().expect("told")["lastTransitionTime"], transition);
    assert_only_the_drive_is_news(&scene);
}

#[test]
fn without_a_daemon_the_node_is_never_called_healthy() {
    let scene = Scene::stage();
    let _reporter = scene.report(BOTH, brisk());
    scene.until_status("Unknown");
    let state = scene.server.state();
    let told = state.asked.iter().flat_map(|asked| {
        asked.body["status"]["conditions"].as_array().cloned().unwrap_or_default()
    });
    assert!(told.into_iter().all(|condition| condition["status"] == "Unknown"));
    drop(state);
    // Only an earlier reporter can have recorded the start of this state.
    let _daemon = started(&scene);
    scene.until_status("True");
    assert_only_the_drive_is_news(&scene);
}

/// Events are published in order: a new event implies all earlier ones.
fn assert_only_the_drive_is_news(scene: &Scene) {
    scene.break_drive();
    scene.until_told(&format!("Node {NODE} Warning SmartFailing"));
    let other = |line: &String| {
        !line.contains(" Warning Smart") && !line.ends_with(" Warning DriveFailing")
    };
    assert_eq!(
        scene.server.told().into_iter().filter(other).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}

#[test]
fn events_during_a_daemons_absence_are_published_when_it_is_back() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let _reporter = scene.report(BOTH, brisk());
    scene.until_status("True");
    daemon.kill();
    scene.break_drive();
    let daemon = scene.host.start();
    daemon.until("it knows", |daemon| daemon.finding("sda", "SmartFailing").map(|_| ()));
    scene.until_status("False");
    scene.until_told(&format!("Node {NODE} Warning SmartFailing"));
    scene.until_told(&format!("Pod {POD} Warning DriveFailing"));
}

fn long_grace() -> ReportTiming {
    ReportTiming { absence_grace: Duration::from_secs(60), ..brisk() }
}

/// Ends the daemon and deletes its history.
fn forget(scene: &Scene, daemon: Daemon) {
    daemon.kill();
    std::fs::remove_dir_all(scene.dir().join("state")).expect("it has written there");
}

#[test]
fn a_daemon_that_comes_back_without_its_history_repeats_nothing() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let _reporter = scene.report(BOTH, long_grace());
    scene.break_drive();
    scene.until_told(&format!("Node {NODE} Warning SmartFailing"));
    scene.until_told(&format!("Pod {POD} Warning DriveFailing"));
    let id = daemon.finding("sda", "SmartFailing").expect("there")["id"].clone();
    forget(&scene, daemon);
    let daemon = scene.host.start();
    daemon.until("it finds it again", |daemon| {
        daemon.finding("sda", "SmartFailing").map(|again| assert_ne!(again["id"], id))
    });
    scene.mend_drive();
    scene.until_told(&format!("Node {NODE} Normal SmartFailingCleared"));
    scene.until_told(&format!("Pod {POD} Normal DriveFailingCleared"));
    for told in
        [format!("Node {NODE} Warning SmartFailing"), format!("Pod {POD} Warning DriveFailing")]
    {
        assert_eq!(scene.server.told().iter().filter(|line| **line == told).count(), 1, "{told}");
    }
}

#[test]
fn recoveries_during_a_daemons_absence_are_published_even_without_its_history() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let _reporter = scene.report(BOTH, long_grace());
    scene.break_drive();
    scene.until_told(&format!("Pod {POD} Warning DriveFailing"));
    forget(&scene, daemon);
    scene.mend_drive();
    let _daemon = started(&scene);
    scene.until_told(&format!("Node {NODE} Normal SmartFailingCleared"));
    scene.until_told(&format!("Pod {POD} Normal DriveFailingCleared"));
}
