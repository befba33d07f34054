//! The node condition `StorageFailed`.

use serde_json::Value;

use super::*;

const FAILED: EnabledReports = EnabledReports {
    events: false,
    conditions: false,
    storage_failed: true,
    storage: false,
    challenges: false,
    clean_stale: false,
};

fn held() -> ReportTiming {
    ReportTiming { failure_hold: Duration::from_millis(300), ..brisk() }
}

impl Scene {
    fn failed(&self) -> Option<Value> {
        self.server.condition_of("StorageFailed")
    }

    fn until_failed(&self, status: &str) -> Value {
        self.until(&format!("StorageFailed is {status}"), || {
            self.failed().filter(|it| it["status"] == status)
        })
    }

    /// Replaces the root filesystem's own options in the mount table.
    fn remount_root(&self, daemon: &Daemon, options: &str) {
        let path = self.host.root().join("proc/1/mountinfo");
        let table = std::fs::read_to_string(&path).expect("readable");
        let (root, rest) = table.split_once('\n').expect("has lines");
        let (before, _) = root.rsplit_once(' ').expect("has fields");
        std::fs::write(&path, format!("{before} {options}\n{rest}")).expect("written");
        daemon.ask(&["refresh"]).expect("is refreshed");
    }

    fn heartbeats(&self) -> usize {
        let state = self.server.state();
        let is_apply = |asked: &&server::Asked| asked.kind == "application/apply-patch+yaml";
        state.asked.iter().filter(is_apply).count()
    }
}

#[test]
fn a_root_filesystem_that_became_read_only_fails_the_node_until_it_is_writable() {
    let scene = Scene::stage();
    let daemon = started(&scene);
    let _reporter = scene.report(FAILED, held());
    assert_eq!(scene.until_failed("False")["reason"], "StorageUsable");
    scene.break_drive();
    daemon.until("the drive fails", |daemon| daemon.finding("sda", "SmartFailing"));
    scene.remount_root(&daemon, "rw,emergency_ro");
    let failed = scene.until_failed("True");
    assert_eq!(failed["reason"], "SystemFilesystemReadOnly", "{failed:#}");
    let message = failed["message"].as_str().expect("text");
    assert!(
        message.starts_with("/: ReadOnly: ") && !message.contains("SmartFailing"),
        "one failing drive is not the node's failure: {message}"
    );

    daemon.kill();
    let beats = || scene.heartbeats();
    scene.until_still("without a daemon nothing is written", beats);
    assert_eq!(scene.failed().as_ref().map(|it| &it["status"]), Some(&Value::from("True")));
    let daemon = started(&scene);
    let before = scene.heartbeats();
    scene.until("it is written again", || (scene.heartbeats() > before).then_some(()));
    assert_eq!(scene.failed().expect("there")["lastTransitionTime"], failed["lastTransitionTime"]);
    scene.remount_root(&daemon, "rw");
    scene.until_failed("False");
}

#[test]
fn a_condition_that_is_not_reported_any_more_is_removed() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let reporter = scene.report(FAILED, held());
    scene.until_failed("False");
    drop(reporter);
    let _reporter = scene.report(BOTH, held());
    scene.until_status("True");
    assert_eq!(scene.failed(), None);
}

#[test]
fn both_conditions_are_published_side_by_side_and_withdrawn_together() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let both = EnabledReports { storage_failed: true, ..BOTH };
    let reporter = scene.report(both, held());
    scene.until_failed("False");
    scene.until_status("True");
    let before = scene.heartbeats();
    scene.until("both go on", || (scene.heartbeats() > before + 3).then_some(()));
    assert!(scene.failed().is_some() && scene.server.condition().is_some());
    drop(reporter);
    let _withdrawn = process::withdraw(&scene, "events,storage-failed");
    scene.until("both are removed", || {
        (scene.failed().is_none() && scene.server.condition().is_none()).then_some(())
    });
}
