//! `kubectl-diskvitals` as a process, with a kubeconfig of the test's API server.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::programs::built_program;
use crate::report::server::{Fault, Server};

const STORAGES: &str = "/apis/diskvitals.io/v1alpha1/nodestorages";
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const SHOP_PODS: &str = "/api/v1/namespaces/shop/pods";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

#[expect(clippy::disallowed_methods, reason = "the reporters that these tests play have a clock")]
fn current_time() -> String {
    jiff::Timestamp::now().to_string()
}

struct Scene {
    server: Server,
    dir: tempfile::TempDir,
}

impl Scene {
    /// A node with a dying drive under a claim, and a good one.
    fn new() -> Scene {
        let now = current_time();
        let volume = json!({"driver": "csi.diskvitals.io", "handle": "dv-1", "persistentVolume": "pv-1", "health": "Bad", "driveIDs": ["naa.1"], "redundant": false,
            "healthConditions": [{"status": "Inaccessible", "reason": "MediaErrors", "message": "m"}]});
        let drive = json!({"id": "naa.1", "name": "sda", "model": "ST4000", "serial": "ZDH1", "slot": "07", "health": "Bad", "reason": "MediaErrors"});
        let mut bad = storage("node-1", &now);
        bad["status"]["health"] = json!("Bad");
        bad["status"]["drives"] = json!([drive]);
        bad["status"]["volumes"] = json!([volume]);
        let server = Server::start();
        server.state().objects = [
            (STORAGES, vec![bad, storage("node-2", &now)]),
            (NODES, vec![node("node-1"), node("node-2")]),
            (PODS, Vec::new()),
            (VOLUMES, vec![json!({"kind": "PersistentVolume", "metadata": {"name": "pv-1"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "csi.diskvitals.io", "volumeHandle": "dv-1"}, "claimRef": {"namespace": "shop", "name": "data", "uid": "claim-1"}}})]),
            (CLAIMS, vec![json!({"metadata": {"namespace": "shop", "name": "data", "uid": "claim-1"}, "spec": {"volumeName": "pv-1"}})]),
            (SHOP_PODS, vec![json!({"metadata": {"namespace": "shop", "name": "db-0", "uid": "pod-1"},
                "spec": {"nodeName": "node-1", "containers": [], "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}, "status": {"phase": "Running"}})]),
            (ATTACHMENTS, Vec::new()),
        ]
        .into();
        let dir = tempfile::tempdir().expect("a folder");
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "c", "cluster": {"server": server.url()}}],
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
            "users": [{"name": "u", "user": {"token": "t"}}]});
        std::fs::write(dir.path().join("config"), kubeconfig.to_string()).expect("written");
        Scene { server, dir }
    }

    #[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(built_program("kubectl-diskvitals"))
            .env_clear()
            .env("KUBECONFIG", self.dir.path().join("config"))
            .env("PATH", self.dir.path())
            .env("TZ", "UTC")
            .args(arguments)
            .output()
            .expect("starts")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }
}

fn storage(node: &str, now: &str) -> Value {
    json!({"apiVersion": "diskvitals.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": node}, "status": {
        "nodeUID": format!("uid-of-{node}"), "reportedAt": now, "health": "Good", "driveIDs": ["naa.9"], "counts": {"drives": 1},
        "conditions": [{"type": "DaemonReachable", "status": "True", "reason": "Answers", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "AttachmentsClean", "status": "True", "reason": "NothingStale", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn the_screen_and_its_exit_code_are_of_the_worst_node() {
    let scene = Scene::new();
    let output = scene.run(&["--exit-code"]);
    let screen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{screen}");
    for part in [
        "CRITICAL  2 nodes: 1 bad, 1 good; 1 drive to replace; 1 claim affected",
        "ZDH1",
        "shop",
        "db-0",
        "INACCESSIBLE",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(!screen.contains("not seen"), "{screen}");
    assert_eq!(scene.run(&[]).status.code(), Some(0));
    let row = &scene.json(&["claims"])["items"][0];
    assert_eq!(
        (&row["claim"], &row["pods"], &row["status"]),
        (&json!("data"), &json!(["db-0"]), &json!("Inaccessible"))
    );
}

#[test]
fn a_quarantine_and_what_holds_it_are_on_every_screen() {
    let scene = Scene::new();
    let mut held = storage("node-2", &current_time());
    held["spec"]["quarantine"] = json!({"id": "q-1", "podUIDs": ["gone-1"]});
    held["status"]["conditions"][1] = json!({"type": "AttachmentsClean", "status": "False", "reason": "Held", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    held["status"]["remaining"] = json!([{"podUID": "gone-1", "reason": "Held", "persistentVolumes": ["pv-1"], "message": "9151 (sleep) has it open"}]);
    scene.server.state().objects.insert(STORAGES, vec![storage("node-1", &current_time()), held]);
    for (arguments, says) in [
        (
            &["--exit-code"][..],
            "CRITICAL  2 nodes: 1 not clean, 1 good; 1 second writer; 1 node in quarantine",
        ),
        (&[], "shop/db-0 on node-1 uses it too"),
        (&["stale"], "9151 (sleep) has it open"),
        (&["attachments", "data"], "9151 (sleep) has it open"),
    ] {
        let output = scene.run(arguments);
        assert!(text(&output.stdout).contains(says), "{arguments:?}: {output:?}");
    }
    assert_eq!(scene.run(&["--exit-code"]).status.code(), Some(2));
    assert_eq!(scene.json(&["stale"])["unclean"][0]["volumes"][0]["claim"], "shop/data");
}

#[test]
fn lists_are_read_in_pages_also_when_they_expire_meanwhile() {
    let scene = Scene::new();
    let now = current_time();
    let names: Vec<String> = (0..1203).map(|at| format!("node-{at:04}")).collect();
    scene
        .server
        .state()
        .objects
        .insert(STORAGES, names.iter().map(|name| storage(name, &now)).collect());
    scene.server.state().objects.insert(NODES, names.iter().map(|name| node(name)).collect());
    for (expire, offers_token) in [(0, false), (1, true), (1, false), (2, false)] {
        scene.server.state().expire = expire;
        scene.server.state().offers_token = offers_token;
        let answer = scene.json(&[]);
        assert_eq!(answer["nodes"]["good"], 1203, "{expire} {offers_token}: {}", answer["notSeen"]);
        assert_eq!(scene.server.state().expire, 0, "it expired");
    }
    let requests = scene.server.state();
    let pages = requests.asked.iter().filter(|it| it.path == STORAGES && it.code == 200);
    assert!(
        pages.count() >= 4 * 3
            && requests
                .asked
                .iter()
                .all(|it| it.path != STORAGES || it.query.contains("limit=500"))
    );
}

#[test]
fn a_list_that_expires_again_and_again_is_an_error_and_never_empty() {
    let scene = Scene::new();
    let now = current_time();
    let many = (0..600).map(|at| storage(&format!("n{at}"), &now)).collect();
    scene.server.state().objects.insert(STORAGES, many);
    scene.server.state().expire = 100;
    let output = scene.run(&["drives"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    assert!(text(&output.stderr).contains("listing nodestorages: 410 Expired"), "{output:?}");
}

#[test]
fn what_may_not_be_read_is_said_for_each_resource() {
    for (path, says, code) in [
        (NODES, "not seen:  nodes: 403", 2),
        (PODS, "not seen:  pods of reporters: 403", 2),
        (VOLUMES, "not seen:  persistentvolumes: 403", 2),
        (CLAIMS, "not seen:  pods and claims of some namespaces: 403", 2),
        (SHOP_PODS, "not seen:  pods and claims of some namespaces: 403", 2),
    ] {
        let scene = Scene::new();
        scene.server.state().forbidden = vec![path];
        let output = scene.run(&["--exit-code"]);
        assert!(text(&output.stdout).contains(says), "{path}: {}", text(&output.stdout));
        assert_eq!(output.status.code(), Some(code), "{path}");
    }
    let scene = Scene::new();
    scene.server.state().objects.insert(STORAGES, vec![storage("node-2", &current_time())]);
    scene.server.state().forbidden = vec![NODES];
    assert_eq!(
        scene.run(&["--exit-code"]).status.code(),
        Some(3),
        "without Nodes, nobody knows who does not report"
    );
}

#[test]
fn a_tenant_sees_the_mounts_of_a_claim_and_what_is_missing() {
    let scene = Scene::new();
    scene.server.state().forbidden = vec![STORAGES, NODES, PODS, VOLUMES, ATTACHMENTS];
    let output = scene.run(&["attachments", "data"]);
    let screen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in [
        "shop/db-0",
        "expected",
        "PersistentVolume pv-1: 403",
        "nodestorages: 403",
        "diskvitals-view",
        "volumeattachments: 403",
        "diskvitals-reader",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let output = scene.run(&["--exit-code"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("diskvitals-view"), "{output:?}");
    assert_eq!(scene.run(&["drives"]).status.code(), Some(1));
}

#[test]
fn a_cluster_without_the_resource_says_what_to_install() {
    let scene = Scene::new();
    scene.server.state().objects.remove(STORAGES);
    let output = scene.run(&["models"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("install the chart"), "{output:?}");
}

#[test]
fn an_api_server_that_does_not_answer_ends_in_time() {
    let scene = Scene::new();
    scene.server.state().always = Some(Fault::Silence);
    let output = scene.run(&["drives", "--request-timeout", "300ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no answer within 0.3 s"), "{output:?}");
    scene.server.state().always = None;
    scene.server.state().of_path = Some((PODS, Fault::Silence));
    let screen = text(&scene.run(&["--request-timeout", "1"]).stdout);
    assert!(screen.contains("pods of reporters: no answer within 1 s"), "{screen}");
    scene.server.state().of_path = Some((STORAGES, Fault::Break));
    let output = scene.run(&["drives"]);
    assert!(output.stdout.is_empty() && output.status.code() == Some(1), "{output:?}");
}

#[test]
fn an_answer_that_is_no_list_is_an_error() {
    let scene = Scene::new();
    // A proxy's page that happens to be JSON.
    scene.server.state().objects.insert(
        "/apis/diskvitals.io/v1alpha1",
        vec![json!({"kind": "Login", "metadata": {"name": "nodestorages"}})],
    );
    scene.server.state().objects.remove(STORAGES);
    let output = scene.run(&["drives"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the answer is no list"), "{output:?}");
}

#[test]
fn the_server_selects_nodes_by_name_and_by_label() {
    let scene = Scene::new();
    scene.run(&["drives", "--health", "bad", "-l", "pool=a"]);
    scene.run(&["stale", "--node", "node-1"]);
    let state = scene.server.state();
    let has = |path: &str, part: &str| {
        state.asked.iter().any(|it| it.path == path && it.query.contains(part))
    };
    assert!(!has(STORAGES, "status.health"), "a silent node's bad drive would be left out");
    assert!(has(NODES, "labelSelector=pool%3Da"));
    assert!(has(STORAGES, "fieldSelector=metadata.name%3Dnode-1"));
}

#[test]
fn a_mistyped_context_or_name_says_what_there_is() {
    let scene = Scene::new();
    let told = |arguments: &[&str]| text(&scene.run(arguments).stderr);
    assert!(told(&["--context", "labb"]).contains("no context `labb`; did you mean `lab`?"));
    assert!(
        told(&["attachments", "nothing"])
            .contains("there is no claim, volume or pod `nothing` (namespace shop;")
    );
    assert_eq!(scene.run(&["drivez"]).status.code(), Some(2));
    assert_eq!(scene.run(&["drivez", "--exit-code"]).status.code(), Some(3));
}

fn daemon(namespace: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": "dv-daemon-1"}, "status": {"phase": "Running"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "diskvitalsd", "securityContext": {"privileged": true}}]}})
}

#[test]
fn explain_hands_over_to_kubectl_in_the_daemons_pod() {
    let scene = Scene::new();
    let mut fake = daemon("tenant");
    fake["spec"]["containers"][0]["securityContext"] = json!(null);
    scene.server.state().objects.insert(PODS, vec![fake, daemon("storage")]);
    let refused = scene.run(&["explain", "pod/db-0"]);
    assert_eq!(refused.status.code(), Some(1));
    let command = "kubectl exec --namespace storage dv-daemon-1 --container diskvitalsd -- diskvitals explain -- shop/db-0";
    assert!(text(&refused.stderr).contains(command), "{refused:?}");
    scene.server.state().may = true;
    let missing = scene.run(&["explain", "pod/db-0"]);
    assert!(text(&missing.stderr).contains("kubectl is not in PATH"), "{missing:?}");
    let kubectl = scene.dir.path().join("kubectl");
    std::fs::write(&kubectl, "#!/bin/sh\necho \"$@\"\nexit 7\n").expect("written");
    std::fs::set_permissions(&kubectl, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("executable");
    for (name, said) in [
        ("pod/db-0", "explain -- shop/db-0"),
        ("pvc/data", "explain -- pv-1"),
        ("ZDH1", "explain -- ZDH1"),
        ("naa.1", "explain -- naa.1"),
    ] {
        let output = scene.run(&["explain", name]);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert!(text(&output.stdout).trim_end().ends_with(said), "{output:?}");
    }
    scene.server.state().objects.insert(PODS, vec![daemon("storage"), daemon("other")]);
    let several = scene.run(&["explain", "pod/db-0"]);
    assert!(text(&several.stderr).contains("give --daemon-namespace"), "{several:?}");
}

#[test]
fn kubectl_completes_nodes_and_claims() {
    let scene = Scene::new();
    let told = |words: &[&str]| text(&scene.run(&[&["__complete", "--"], words].concat()).stdout);
    assert_eq!(told(&["stale", "--node", "node-"]), "node-1\nnode-2\n:4\n");
    assert_eq!(told(&["attachments", "d"]), "data\ndb-0\n:4\n");
    assert_eq!(told(&["mod"]), "models\n:4\n");
    for shell in ["bash", "zsh", "fish", "kubectl"] {
        assert!(
            text(&scene.run(&["completion", shell]).stdout).contains("kubectl-diskvitals"),
            "{shell}"
        );
    }
    assert!(text(&scene.run(&["--man"]).stdout).contains(".SH EXAMPLES"));
}
