//! A node that was away: its pods were deleted meanwhile, and it returns with their mounts. It gets no
//! new pod until it has proven that nothing of them is left.
//!
//! `DISKVITALS_MINUTES`: how long the node is away after its pods were deleted (0).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::claims::{DRIVER, stateful_set};
use crate::cluster::{self, SOON, TIME_LIMIT, apply, get, kubectl, pause, until};
use crate::controller;
use crate::fixture::{Fixture, NAMESPACE};
use crate::nodes::{API_ADDRESS, OtherNode, hide_from_first_node};
use crate::programs::built_program;
use crate::support::Mode;
use crate::transcript::{self, Transcript};

const SET: &str = "shop";
/// One volume each: nothing holds it, a process holds it, its disk does not answer.
const VOLUMES: [&str; 3] = ["clean", "held", "hung"];
const TAINT: &str = "diskvitals.io/unclean";

/// A volume that any node may mount, as far as Kubernetes knows, for a pod of the set.
pub fn volume(set: &str, number: usize, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "given",
            "claimRef": {"namespace": "default", "name": format!("data-{set}-{number}")}, "csi": {"driver": DRIVER, "volumeHandle": name}},
    })
}

/// All pods on this node.
fn shop(node: &str) -> Value {
    let serve = "while :; do busybox date >/data/now; busybox sleep 1; done";
    let mut set = stateful_set(SET, ("app", SET), VOLUMES.len(), "given", serve);
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    set
}

fn pod(number: usize) -> Option<Value> {
    get(&format!("pod/{SET}-{number}"))
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

/// Uids of the set's pods, when all run.
fn running() -> Option<Vec<String>> {
    let of = |number| {
        let pod = pod(number)?;
        let is_running = pod["status"]["containerStatuses"][0]["ready"] == true;
        is_running.then(|| uid(&pod))
    };
    (0..VOLUMES.len()).map(of).collect()
}

fn taint(node: &str) -> Option<Value> {
    let node = get(&format!("node/{node}"))?;
    let taints = node["spec"]["taints"].as_array()?;
    taints.iter().find(|it| it["key"] == TAINT).cloned()
}

pub fn is_tainted(node: &str) -> bool {
    taint(node).is_some()
}

pub fn quarantine(node: &str) -> Option<Value> {
    let report = get(&format!("nodestorage/{node}"))?;
    Some(report["spec"]["quarantine"].clone()).filter(|it| !it.is_null())
}

/// The node's own word: status, reason and message of `AttachmentsClean`.
pub fn word(node: &str) -> Option<(String, String, String)> {
    let report = get(&format!("nodestorage/{node}"))?;
    let conditions = report["status"]["conditions"].as_array()?;
    let clean = conditions.iter().find(|it| it["type"] == "AttachmentsClean")?;
    let text = |name: &str| clean[name].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// The daemon's own program, on that node.
fn on_node(node: &OtherNode, arguments: &[&str]) -> String {
    let program = [built_program("diskvitals"), "--socket", "/run/diskvitals/diskvitals.sock"];
    node.enter(&[&program[..], arguments].concat())
}

/// What the node lists as stale, and what the cluster shows of it: paths.
fn stale_lists(node: &OtherNode) -> (BTreeSet<String>, BTreeSet<String>) {
    let paths = |text: &str, list: &str, field: &str| -> BTreeSet<String> {
        let answer: Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let entries = answer[list].as_array().cloned().unwrap_or_default();
        let path = |entry: &Value| entry[field].as_str().expect("a path").to_owned();
        entries.iter().map(path).collect()
    };
    let there = on_node(node, &["volumes", "--stale", "-o", "json"]);
    let in_cluster = transcript::shell("kubectl diskvitals stale -o json").1;
    (paths(&there, "attachments", "path"), paths(&in_cluster, "items", "path"))
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_returned_node_gets_no_new_pod_until_it_is_proven_clean() {
    let second = OtherNode::new(2);
    let mut fixture = Fixture::new();
    let (disk, served) = fixture.failing_disk("hung", 256);
    second.create_folders(
        &["pool", "static", "static/clean", "static/held"].map(|name| fixture.path(name)),
    );
    second.copy_folder(&fixture.path("smart"));
    for name in ["clean", "held"] {
        let folder = fixture.path(&format!("static/{name}"));
        std::fs::create_dir(&folder).expect("a folder");
        fixture.configure(&format!(
            "[[static]]\nname = \"{name}\"\ndirectory = \"{}\"\n",
            folder.display()
        ));
    }
    fixture.configure(&format!(
        "[[static]]\nname = \"hung\"\ndevice = \"{}\"\n",
        disk.device.display()
    ));
    hide_from_first_node(disk.name());
    second.start();
    fixture.install(&json!({
        "apiServer": {"host": API_ADDRESS}, "report": {"storage": true, "cleanStale": true}, "daemon": {"cleanupOrders": true},
        "fleet": controller::values(&["quarantine"]),
    }));
    let node = second.name();
    let controller = controller::start(&fixture, "", &["--duties", "quarantine"]);
    for (number, name) in VOLUMES.iter().enumerate() {
        apply(&[volume(SET, number, name)]);
    }
    apply(&[shop(&node)]);
    let old = until("the pods run", TIME_LIMIT, running);
    let mounts_of = |uid: &str| -> Vec<String> {
        let all = second.volume_mounts();
        all.into_iter().filter(|at| at.contains(uid)).collect()
    };
    let held = mounts_of(&old[1]).pop().expect("the mount");
    let mut transcript = Transcript::new();
    transcript.note("Three pods with volumes that another node may mount. On the node a shell stands in one of them.");
    transcript.run("kubectl get pods -o wide");
    second.enter(&[
        "sh",
        "-c",
        &format!("cd '{held}' && setsid sleep 7777 >/dev/null 2>&1 </dev/null &"),
    ]);

    second.cut_network();
    second.until_not_ready();
    let listed = until("the pods are listed", SOON, || quarantine(&node));
    let uids: BTreeSet<&str> =
        listed["podUIDs"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(uids, old.iter().map(String::as_str).collect());
    let tainted = until("the node has the taint", SOON, || taint(&node));
    assert_eq!((&tainted["value"], &tainted["effect"]), (&listed["id"], &json!("NoSchedule")));
    transcript.note("Its cable is pulled. The node is listed and tainted while it is away.");
    transcript.run("kubectl get nodes");
    transcript
        .run(&format!("kubectl get nst {node} -o jsonpath='{{.spec.quarantine}}{{\"\\n\"}}'"));
    transcript.note("A person deletes its pods by force; the disk of one volume stops answering.");
    transcript.run("kubectl delete pod --force --grace-period=0 -l app=shop");
    fixture.served(served).set(Mode::Hang);
    let minutes =
        std::env::var("DISKVITALS_MINUTES").map_or(0, |text| text.parse().expect("minutes"));
    pause(Duration::from_secs(minutes * 60));

    second.join_network();
    second.until_ready();
    assert!(taint(&node).is_some(), "the taint is there before the first new pod can be");
    transcript.note("The cable is put back.");
    until("the clean volume is unmounted", TIME_LIMIT, || {
        mounts_of(&old[0]).is_empty().then_some(())
    });
    let is_named = |word: &(String, String, String)| {
        let names = |uid: &String| word.2.contains(uid);
        let is_hung = word.2.contains("does not respond");
        word.0 == "False" && !names(&old[0]) && names(&old[1]) && names(&old[2]) && is_hung
    };
    let said = until("the node says what holds it", TIME_LIMIT, || word(&node).filter(is_named));
    assert!(taint(&node).is_some());
    for number in 0..VOLUMES.len() {
        let new = pod(number).expect("the StatefulSet creates it anew");
        assert!(!old.contains(&uid(&new)));
        assert_eq!(new["status"]["phase"], "Pending", "no new pod starts: {new:#}");
    }
    println!("{said:?}");
    transcript.note("Nothing held the first volume: the kubelet has removed it. The others are named, and no new pod starts.");
    transcript.run(&format!("kubectl get nst {node} -o jsonpath='{{.status.conditions[?(@.type==\"AttachmentsClean\")].message}}{{\"\\n\"}}'"));
    transcript.run("kubectl get pods -o wide");
    transcript.run(&format!("kubectl get events --field-selector involvedObject.kind=Node,involvedObject.name={node} -o custom-columns=REASON:.reason,FROM:.reportingComponent,MESSAGE:.message | grep -e REASON -e diskvitals"));
    // The kubelet has records of them, and tries to unmount them: they are not stale.
    until("node and cluster agree", SOON, || {
        (stale_lists(&second) == Default::default()).then_some(())
    });

    // Everything that knows of it starts anew.
    drop(controller);
    let of_node = format!("--field-selector=spec.nodeName={node}");
    let of_chart = ["-n", NAMESPACE, "get", "pod", &of_node, "-o", "name"];
    let before = kubectl(&of_chart);
    kubectl(&["-n", NAMESPACE, "delete", "pod", "--wait=false", &of_node]);
    // A process that waits for the silent disk keeps the old pod of the daemon, which has ended.
    until("the old pods have ended", TIME_LIMIT, || {
        let has_ended = |name: &str| {
            let pod = cluster::get_in(NAMESPACE, name);
            pod.is_none_or(|pod| {
                pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
            })
        };
        before.lines().all(has_ended).then_some(())
    });
    let controller = controller::start(&fixture, "", &["--duties", "quarantine"]);
    fixture.is_ready();
    until("the node says again what holds it", TIME_LIMIT, || {
        assert!(taint(&node).is_some(), "a restart forgets nothing");
        word(&node).filter(is_named)
    });
    transcript.note("Daemon, reporter and controller were restarted: nothing is forgotten.");
    transcript.run(
        "kubectl get nodes -o custom-columns='NODE:.metadata.name,TAINTS:.spec.taints[*].key'",
    );

    second.enter(&["pkill", "-f", "sleep 7777"]);
    transcript.note("The shell is ended. The disk still does not answer.");
    until("the held volume is unmounted", TIME_LIMIT, || {
        mounts_of(&old[1]).is_empty().then_some(())
    });
    pause(Duration::from_secs(40));
    assert!(taint(&node).is_some(), "one mount is left: {:?}", second.volume_mounts());
    transcript.run(&format!("kubectl get nst {node} -o jsonpath='{{.status.conditions[?(@.type==\"AttachmentsClean\")].message}}{{\"\\n\"}}'"));

    fixture.served(served).set(Mode::Pass);
    until("the node is proven clean and free", TIME_LIMIT, || taint(&node).is_none().then_some(()));
    until("its quarantine goes", SOON, || quarantine(&node).is_none().then_some(()));
    assert_eq!(stale_lists(&second), (BTreeSet::new(), BTreeSet::new()));
    let new = until("the new pods run", TIME_LIMIT, running);
    assert!(new.iter().all(|uid| !old.contains(uid)));
    transcript.note(
        "The disk answers again: the node is clean, free after 30 seconds, and the new pods start.",
    );
    transcript.run("kubectl get nodes");
    transcript.run("kubectl get pods -o wide");
    transcript.run("kubectl diskvitals stale");
    transcript.run(&format!("kubectl get events --field-selector involvedObject.kind=Node,involvedObject.name={node} -o custom-columns=REASON:.reason,FROM:.reportingComponent,MESSAGE:.message | grep -e REASON -e diskvitals"));
    drop(controller);

    // A mount for no pod: the kubelet has neither a record nor a folder of it.
    // The kubelet's directory is mounted twice.
    let root = cluster::kubelet_root();
    let mounted = mounts_of(&new[0]).into_iter().find(|at| Path::new(at).starts_with(&root));
    let orphan =
        mounted.expect("the mount").replace(&new[0], "0f5a3c1e-6a53-4d3c-9f07-3f1c8a2b7d10");
    let folder = fixture.path("static/clean");
    second.enter(&[
        "sh",
        "-c",
        &format!("mkdir -p '{orphan}' && mount --bind '{}' '{orphan}'", folder.display()),
    ]);
    transcript.note("A mount for a pod that the kubelet does not know, two minutes later:");
    let both = (BTreeSet::from([orphan.clone()]), BTreeSet::from([orphan.clone()]));
    let mut before = Default::default();
    until("node and cluster list it", TIME_LIMIT, || {
        let lists = stale_lists(&second);
        if lists != before {
            println!("stale on the node, and in the cluster: {lists:?}");
            before = lists.clone();
        }
        (lists == both).then_some(())
    });
    transcript.run("kubectl diskvitals stale");
    println!("{}", on_node(&second, &["cleanup", &orphan, "--yes"]));
    until("both lists are empty", SOON, || {
        (stale_lists(&second) == Default::default()).then_some(())
    });
    transcript.note("And after `diskvitals cleanup` on the node:");
    transcript.run("kubectl diskvitals stale");
    fixture.end();
}
