//! Notifications from a pod: its rights, its Secret, and a webhook on the node.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cluster::{SOON, apply, get_in, kubectl, until};
use crate::fixture::{Fixture, NAMESPACE, create_namespace};
use crate::support::receiver;

/// The chart's `notify.runAsUser`.
const USER: &str = "65531";
const CONFIG: &str = r#"[[target]]
name = "hook"
type = "webhook"
url = "http://127.0.0.1:8025/hook"
token_file = "token"
"#;

/// The receiver's requests: the notification, and the header with the token.
fn requests(directory: &Path) -> Vec<(Value, String)> {
    // Absent before the first one.
    let lines = std::fs::read_to_string(directory.join("received")).unwrap_or_default();
    let one = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("a line of the receiver");
        let text = |key: &str| line[key].as_str().expect("a text").to_owned();
        let notification = serde_json::from_str(&text("text")).expect("a notification");
        (notification, text("login"))
    };
    lines.lines().map(one).collect()
}

/// How often this transition of the drive was sent.
fn transitions(directory: &Path, name: &str, transition: &str) -> usize {
    let about = |(notification, _): &(Value, String)| {
        let items = notification["items"].as_array().expect("items");
        let about = |item: &&Value| item["name"] == name && item["transition"] == transition;
        items.iter().filter(about).count()
    };
    requests(directory).iter().map(about).sum()
}

/// Of `diskvitals-notify`, from /proc: it runs on this node.
fn status_of_process() -> String {
    let is_it = |dir: &PathBuf| {
        std::fs::read_to_string(dir.join("cmdline"))
            .is_ok_and(|line| line.starts_with("/usr/local/sbin/diskvitals-notify\0"))
    };
    let processes = std::fs::read_dir("/proc").expect("all processes").flatten();
    let found = processes.map(|entry| entry.path()).find(is_it);
    let dir = found.expect("diskvitals-notify runs");
    std::fs::read_to_string(dir.join("status")).expect("its status")
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_failing_drive_reaches_a_webhook_from_a_pod_without_privileges_and_its_end_does_too() {
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 64).remove(0);
    let directory = fixture.path("received");
    std::fs::create_dir(&directory).expect("a folder");
    let served = directory.clone();
    std::thread::spawn(move || receiver::run(served));
    create_namespace();
    apply(&[json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "notify", "namespace": NAMESPACE},
        "stringData": {"token": "correct horse\n"}
    })]);
    fixture
        .install(&json!({"notify": {"enabled": true, "config": CONFIG, "secretName": "notify"}}));
    let status = status_of_process();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {status}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(field("Uid:"), [USER; 4].join(" "));
    for capabilities in ["CapEff:", "CapPrm:", "CapBnd:"] {
        assert_eq!(field(capabilities).trim_start_matches('0'), "");
    }
    assert_eq!(field("NoNewPrivs:"), "1");

    fixture.fails(&drive, true);
    let name = drive.name.trim_start_matches("/dev/");
    until("the webhook", SOON, || (transitions(&directory, name, "raised") == 1).then_some(()));
    for (notification, login) in requests(&directory) {
        assert_eq!(login, "Bearer correct horse");
        assert_eq!(notification["schema"], "diskvitals.notification/v1");
    }
    fixture.fails(&drive, false);
    until("its end", SOON, || (transitions(&directory, name, "cleared") == 1).then_some(()));
    assert_eq!(transitions(&directory, name, "raised"), 1);
    let set = get_in(NAMESPACE, "daemonset/diskvitals-notify").expect("its pods");
    assert_eq!(set["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
    kubectl(&["-n", NAMESPACE, "delete", "secret/notify"]);
    fixture.end();
}
