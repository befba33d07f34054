//! Quarantine: the pods that the node had when it was lost, in the spec of the object `NodeStorage`,
//! and the proof of the real daemon that nothing of them is left.

use serde_json::{Value, json};

use super::server::NODE;
use super::*;

const QUARANTINE: EnabledReports = EnabledReports {
    events: true,
    conditions: false,
    storage_failed: false,
    storage: true,
    challenges: true,
    clean_stale: true,
};

fn pace() -> ReportTiming {
    ReportTiming {
        clean_interval: Duration::from_millis(100),
        answer_interval: Duration::from_millis(100),
        answer_patience: Duration::from_secs(10),
        ..brisk()
    }
}

impl Scene {
    fn quarantine(&self, quarantine: &Value) {
        let mut state = self.server.state();
        let object = state.storage.as_mut().expect("created");
        object["spec"] = json!({"quarantine": quarantine});
    }

    /// uids of the pods that the node has, sorted by their names.
    fn uids(&self) -> Vec<String> {
        let logs = std::fs::read_dir(self.host.root().join("var/log/pods")).expect("readable");
        let names = logs.map(|entry| entry.expect("readable").file_name());
        let mut names: Vec<String> = names.map(|it| it.into_string().expect("text")).collect();
        names.sort();
        let uid = |name: &String| name.rsplit_once('_').expect("a uid").1.to_owned();
        names.iter().map(uid).collect()
    }

    /// Status and reason of `AttachmentsClean`, with the quarantine that it is about.
    fn clean(&self) -> Option<[String; 3]> {
        let status = self.server.storage()?;
        let conditions = status["conditions"].as_array()?.clone();
        let condition = conditions.into_iter().find(|it| it["type"] == "AttachmentsClean")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some([
            text(&condition["status"]),
            text(&condition["reason"]),
            text(&status["observedQuarantine"]),
        ])
    }

    fn until_clean_is(&self, wanted: [&str; 3]) {
        let mut last = None;
        let end = Instant::now() + SOON;
        while last != Some(wanted.map(str::to_owned)) {
            assert!(Instant::now() < end, "{last:?} instead of {wanted:?}");
            last = self.clean();
            pause(20);
        }
    }
}

fn staged() -> (Scene, Daemon) {
    let scene = Scene::stage();
    let daemon = started(&scene);
    (scene, daemon)
}

#[test]
fn a_node_without_anything_of_the_pods_is_clean_by_proof_and_says_for_which_quarantine() {
    let (scene, _daemon) = staged();
    let _reporter = scene.report(QUARANTINE, pace());
    scene.until_clean_is(["True", "NothingStale", ""]);
    scene.quarantine(
        &json!({"id": "q-1", "since": "2026-01-01T00:00:00Z", "podUIDs": ["gone-1", "gone-2"]}),
    );
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
    // A new quarantine is another question; a step of the controller's clock is none.
    scene.quarantine(&json!({"id": "q-2", "since": "1999-01-01T00:00:00Z", "podUIDs": ["gone-1"]}));
    scene.until_clean_is(["True", "ProvenClean", "q-2"]);
    scene.quarantine(&Value::Null);
    scene.until_clean_is(["True", "NothingStale", ""]);
}

#[test]
fn an_object_that_is_deleted_while_it_is_watched_is_created_again_at_once() {
    let (scene, _daemon) = staged();
    let pace = ReportTiming { storage_refresh: Duration::from_secs(1800), ..pace() };
    let _reporter = scene.report(QUARANTINE, pace);
    scene.until_health("Good");
    scene.server.state().storage = None;
    scene.until_health("Good");
    scene.quarantine(&json!({"id": "q-1", "podUIDs": ["gone"]}));
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
}

#[test]
fn a_pod_that_the_kubelet_has_again_keeps_the_node_unclean_and_is_named() {
    let (scene, _daemon) = staged();
    let uid = scene.uids()[0].clone();
    let _reporter = scene.report(QUARANTINE, pace());
    scene.until_clean_is(["True", "NothingStale", ""]);
    scene.quarantine(&json!({"id": "q-1", "podUIDs": [uid, "gone"]}));
    scene.until_clean_is(["False", "InUse", "q-1"]);
    let status = scene.server.storage().expect("there").to_string();
    assert!(status.contains(&format!("/pods/{uid}/volumes/")), "{status}");
    assert!(status.contains("wait for the kubelet"), "{status}");
}

#[test]
fn a_daemon_that_is_away_or_comes_back_is_no_proof_until_it_answers() {
    let (scene, daemon) = staged();
    let _reporter = scene.report(QUARANTINE, pace());
    scene.until_clean_is(["True", "NothingStale", ""]);
    scene.quarantine(&json!({"id": "q-1", "podUIDs": ["gone"]}));
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
    daemon.kill();
    scene.until_clean_is(["False", "NoAnswer", ""]);
    let _daemon = started(&scene);
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
}

#[test]
fn a_restarted_reporter_asks_again_and_one_that_does_not_answer_takes_the_answer_back() {
    let (scene, daemon) = staged();
    let reporter = scene.report(QUARANTINE, pace());
    scene.until_clean_is(["True", "NothingStale", ""]);
    scene.quarantine(&json!({"id": "q-1", "podUIDs": ["gone"]}));
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
    drop(reporter);
    // The proof of before does not outlive a daemon that is away.
    daemon.kill();
    let reporter = scene.report(QUARANTINE, pace());
    scene.until_clean_is(["False", "NoAnswer", ""]);
    let _daemon = started(&scene);
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
    drop(reporter);
    let others = EnabledReports { clean_stale: false, ..QUARANTINE };
    let _reporter = scene.report(others, pace());
    scene.until_clean_is(["True", "NothingStale", ""]);
}

#[test]
fn a_kubelet_directory_that_cannot_be_read_is_no_proof() {
    let (scene, _daemon) = staged();
    let _reporter = scene.report(QUARANTINE, pace());
    scene.until_clean_is(["True", "NothingStale", ""]);
    scene.quarantine(&json!({"id": "q-1", "podUIDs": ["gone"]}));
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
    let pods = scene.host.root().join("var/lib/kubelet/pods");
    let aside = scene.host.root().join("var/lib/kubelet/pods.aside");
    std::fs::rename(&pods, &aside).expect("renamed");
    // Reading it fails with ELOOP, also for root.
    std::os::unix::fs::symlink("pods", &pods).expect("a link to itself");
    scene.until_clean_is(["False", "Unreadable", "q-1"]);
    std::fs::remove_file(&pods).expect("removed");
    std::fs::rename(&aside, &pods).expect("renamed");
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
}

#[test]
fn a_cut_list_keeps_the_node_unclean_until_another_boot() {
    let (scene, _daemon) = staged();
    let _reporter = scene.report(QUARANTINE, pace());
    scene.until_clean_is(["True", "NothingStale", ""]);
    let cut =
        |boot: &Value| json!({"id": "q-1", "podUIDs": ["gone"], "truncated": true, "bootID": boot});
    let boot = scene.server.storage().expect("there")["bootID"].clone();
    scene.quarantine(&cut(&boot));
    scene.until_clean_is(["False", "Truncated", "q-1"]);
    scene.quarantine(&cut(&json!("an earlier boot")));
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
}

#[test]
fn a_process_of_a_listed_pod_holds_the_node_and_after_a_while_that_is_an_event() {
    let (scene, _daemon) = staged();
    let process = scene.host.root().join("proc/812");
    std::fs::create_dir_all(&process).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(process.join(name), text).expect("written");
    write("comm", "mysqld\n");
    write("cgroup", "0::/kubepods/burstable/podgone/1\n");
    let pace = ReportTiming { unclean_after: Duration::from_millis(500), ..pace() };
    let _reporter = scene.report(QUARANTINE, pace);
    scene.until_clean_is(["True", "NothingStale", ""]);
    scene.quarantine(&json!({"id": "q-1", "podUIDs": ["gone"]}));
    scene.until_clean_is(["False", "Held", "q-1"]);
    scene.until_told(&format!("Node {NODE} Warning AttachmentsUnclean"));
    let status = scene.server.storage().expect("there").to_string();
    assert!(status.contains("812 (mysqld) runs in its container"), "{status}");
    std::fs::remove_dir_all(&process).expect("removed");
    scene.until_clean_is(["True", "ProvenClean", "q-1"]);
}

#[test]
fn a_mount_that_no_pod_has_keeps_the_node_unclean_and_both_lists_name_it() {
    let (scene, daemon) = staged();
    let uid = scene.uids()[0].clone();
    let root = scene.host.root();
    let volumes = root.join(format!("var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi"));
    // The kubelet has forgotten the pod, and its mount is left.
    let entries = std::fs::read_dir(&volumes).expect("readable");
    for entry in entries {
        std::fs::remove_file(entry.expect("readable").path().join("vol_data.json"))
            .expect("removed");
    }
    let logs = std::fs::read_dir(root.join("var/log/pods")).expect("readable");
    for entry in logs.map(|entry| entry.expect("readable").path()) {
        if entry.to_string_lossy().ends_with(&uid) {
            std::fs::remove_dir_all(entry).expect("removed");
        }
    }
    let _reporter = scene.report(QUARANTINE, pace());
    scene.until("it is known", || scene.clean());
    scene.quarantine(&json!({"id": "q-1", "podUIDs": [uid]}));
    scene.until_clean_is(["False", "Foreign", "q-1"]);
    // The list waits for the grace, which the order replaces for the listed pods only.
    let listed = daemon.ask(&["volumes", "--stale"]).expect("a list");
    assert_eq!(listed["attachments"], json!([]), "{listed:#}");
    let status = scene.server.storage().expect("there");
    assert_eq!(status["stale"], json!([]));
}
