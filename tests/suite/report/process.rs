//! The program itself, started as in a pod but with a kubeconfig.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::*;
use crate::child::Process;
use crate::programs::built_program;

impl Process {
    #[allow(clippy::disallowed_methods, reason = "a test starts the programs it tests")]
    fn start(scene: &Scene, arguments: &[&str]) -> Process {
        let kubeconfig = kubeconfig(&scene.dir(), &scene.server.url());
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(scene.dir().join("reporter.log"))
            .expect("the log");
        let child = Command::new(built_program("diskvitals-csi"))
            .args(arguments)
            .args(["--node-id", NODE, "--agent"])
            .arg(scene.agent())
            .env("KUBECONFIG", kubeconfig)
            .env_remove("CSI_ENDPOINT")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn();
        Process(child.expect("starts"))
    }
}

/// The program with `--withdraw`.
pub fn withdraw(scene: &Scene, report: &str) -> Process {
    Process::start(scene, &["--report", report, "--withdraw"])
}

fn kubeconfig(dir: &Path, url: &str) -> std::path::PathBuf {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"{url}\"}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    let path = dir.join("kubeconfig");
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn a_failing_drive_is_published_once_to_node_pod_and_claim_over_restarts_of_the_reporter() {
    let scene = Scene::stage();
    let _daemon = started(&scene);
    let reporter = Process::start(&scene, &["--report", "events"]);
    scene.break_drive();
    let claim = format!("claim-of-{}", scene.pvs()[0]);
    let expected = [
        format!("Node {NODE} Warning SmartFailing"),
        format!("PersistentVolumeClaim tenant-0/{claim} Warning DriveFailing"),
        format!("Pod {POD} Warning DriveFailing"),
    ];
    for line in &expected {
        scene.until_told(line);
    }
    assert_eq!(reporter.end(Signal::SIGTERM).code(), Some(0));

    let before = scene.server.told();
    let reporter = Process::start(&scene, &["--report", "events"]);
    let refused =
        |scene: &Scene| scene.server.state().asked.iter().filter(|asked| asked.code == 409).count();
    scene.until("what is fresh is told again, and is there", || {
        (refused(&scene) >= expected.len()).then_some(())
    });
    assert_eq!(scene.server.told(), before);

    scene.mend_drive();
    scene.until_told(&format!("Node {NODE} Normal SmartFailingCleared"));
    scene.until_told(&format!("Pod {POD} Normal DriveFailingCleared"));
    reporter.end(Signal::SIGKILL);
    let state = scene.server.state();
    for event in state.events.values() {
        assert_eq!(
            (&event["reportingInstance"], &event["reportingController"]),
            (&Value::from(NODE), &Value::from("diskvitals.io/report"))
        );
    }
    // The requests needed no right that the chart does not grant.
    assert!(state.asked.iter().all(
        |asked| asked.method == "POST" || asked.path.starts_with("/api/v1/persistentvolumes/")
    ));
}

fn with_condition_of_kubelet() -> Scene {
    let scene = Scene::stage();
    let ready = serde_json::json!({"type": "Ready", "status": "True"});
    scene.server.state().conditions.push(ready);
    scene
}

#[test]
fn the_condition_follows_the_drive_and_keeps_the_time_of_its_transition_over_a_restart() {
    let scene = with_condition_of_kubelet();
    let _daemon = started(&scene);
    let reporter = Process::start(&scene, &["--report=conditions"]);
    scene.until_status("True");
    scene.break_drive();
    scene.until_status("False");
    let of_drive = |condition: &Value| {
        condition["reason"].as_str().is_some_and(|reason| reason.starts_with("Smart"))
    };
    let failing = scene.until("with its reason", || scene.server.condition().filter(of_drive));
    let message = failing["message"].as_str().expect("text");
    assert!(
        message.contains("bad")
            && message.contains("drive sda")
            && message.contains("SmartFailing"),
        "{message}"
    );

    reporter.end(Signal::SIGKILL);
    let asked = scene.server.state().asked.len();
    let _reporter = Process::start(&scene, &["--report=conditions"]);
    scene.until("it is told again", || {
        scene.server.state().asked[asked..]
            .iter()
            .any(|asked| asked.kind == "application/apply-patch+yaml")
            .then_some(())
    });
    let again = scene.server.condition().expect("told");
    assert_eq!(
        (&again["status"], &again["lastTransitionTime"]),
        (&failing["status"], &failing["lastTransitionTime"])
    );
    // The other conditions belong to the kubelet, and no events were requested.
    let state = scene.server.state();
    assert!(state.conditions.iter().any(|condition| condition["type"] == "Ready"));
    assert!(
        state.events.is_empty() && state.asked.iter().all(|asked| asked.path.ends_with("/status"))
    );
}

#[test]
fn the_driver_serves_while_the_api_server_is_away() {
    let mut scene = Scene::stage();
    scene.server.go();
    let _daemon = started(&scene);
    let socket = scene.dir().join("csi.sock");
    let endpoint = format!("unix://{}", socket.display());
    let driver =
        Process::start(&scene, &["--report", "events,conditions", "--endpoint", &endpoint]);
    scene.break_drive();
    scene.until("it listens", || std::os::unix::net::UnixStream::connect(&socket).ok());
    scene.server.come();
    scene.until_status("False");
    scene.until_told(&format!("Node {NODE} Warning SmartFailing"));
    assert_eq!(driver.end(Signal::SIGTERM).code(), Some(0));
    assert!(!socket.exists());
}

#[allow(clippy::disallowed_methods, reason = "a test starts the programs it tests")]
fn without_a_cluster(arguments: &[&str], kubeconfig: &str) -> Output {
    let mut command = Command::new(built_program("diskvitals-csi"));
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", "/nonexistent")
        .env_remove("CSI_ENDPOINT");
    command.env_remove("KUBERNETES_SERVICE_HOST").output().expect("runs")
}

#[test]
fn unusable_settings_are_reported_at_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let there = kubeconfig(dir.path(), "http://127.0.0.1:1").display().to_string();
    for (arguments, kubeconfig, says) in [
        (vec!["--report", "events"], "/nonexistent/kubeconfig", "finding the API server"),
        (
            vec!["--report", "events", "--node-id", "no/name"],
            there.as_str(),
            "is no name of a node",
        ),
    ] {
        let output = without_a_cluster(&arguments, kubeconfig);
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {words}");
        assert!(words.contains("--report") && words.contains(says), "{arguments:?}: {words}");
    }
}

#[test]
fn a_withdrawn_reporter_ends_its_warnings_and_removes_its_condition() {
    let scene = with_condition_of_kubelet();
    let _daemon = started(&scene);
    let reporter = Process::start(&scene, &["--report=events,conditions"]);
    scene.break_drive();
    scene.until_status("False");
    scene.until("the pod is warned", || {
        let told = scene.server.told();
        told.iter().any(|line| line.starts_with("Pod") && line.contains("Warning")).then_some(())
    });
    reporter.end(Signal::SIGTERM);

    let _withdrawn = Process::start(&scene, &["--report=events,conditions", "--withdraw"]);
    scene.until("the condition is removed", || scene.server.condition().is_none().then_some(()));
    let withdrawn = || {
        let told = scene.server.told();
        let of = |kind: &str| {
            told.iter()
                .any(|line| line.starts_with(kind) && line.ends_with("Normal HealthWithdrawn"))
        };
        (of("Node") && of("Pod") && of("PersistentVolumeClaim")).then_some(())
    };
    scene.until("node, pod and claim learn it", withdrawn);
    let state = scene.server.state();
    assert_eq!(state.conditions.len(), 1, "the kubelet's condition stays");
}
