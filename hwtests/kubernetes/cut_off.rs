//! Storage on the network that one of three nodes does not reach, and then none. Real kubelets and
//! daemons; the storage is a filesystem in user space on each node.

use std::time::Duration;

use serde_json::{Value, json};

use crate::claims::{DRIVER, stateful_set};
use crate::cluster::{NODE, SOON, TIME_LIMIT, apply, get, kubectl, pause, until};
use crate::controller;
use crate::fixture::Fixture;
use crate::nodes::{API_ADDRESS, OtherNode};
use crate::support::{FuseServer, Mode};
use crate::transcript::Transcript;

const APP: &str = "web";
const PODS: usize = 3;
const TAINT: &str = "diskvitals.io/storage-unreachable";
/// Five minutes become ten seconds, and so on.
const TIMING: &str = "unreachable=10,reached=10,empty=60,round=2,evict-again=5,lease=6";

/// A volume that every node may mount; each claim has its own.
fn volume(number: usize) -> Vec<Value> {
    let name = format!("share-{number}");
    vec![json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "given",
            "claimRef": {"namespace": "default", "name": format!("data-{APP}-{number}")}, "csi": {"driver": DRIVER, "volumeHandle": "share"}},
    })]
}

/// Names and uids of the pods on each node, when all are Ready.
fn all_ready() -> Option<Vec<(String, String, String)>> {
    let all = get("pods")?["items"].as_array()?.clone();
    let text = |pod: &Value, pointer: &str| Some(pod.pointer(pointer)?.as_str()?.to_owned());
    let pods: Vec<_> = all
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["app"] == APP)
        .filter(|pod| pod["status"]["containerStatuses"][0]["ready"] == true)
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .filter_map(|pod| {
            Some((
                text(pod, "/spec/nodeName")?,
                text(pod, "/metadata/name")?,
                text(pod, "/metadata/uid")?,
            ))
        })
        .collect();
    (pods.len() == PODS).then_some(pods)
}

fn taint(node: &str) -> Option<String> {
    let node = get(&format!("node/{node}"))?;
    let taints = node["spec"]["taints"].as_array()?;
    let found = taints.iter().find(|it| it["key"] == TAINT)?;
    Some(format!("{}:{}", found["value"].as_str()?, found["effect"].as_str()?))
}

/// What the node says about the driver.
fn says_unreachable(node: &str) -> bool {
    let report = get(&format!("nodestorage/{node}")).unwrap_or_default();
    let drivers = report["status"]["unreachableDrivers"].as_array();
    drivers.is_some_and(|all| all.iter().any(|it| it["driver"] == DRIVER && it["unknown"] != true))
}

fn events(reason: &str) -> usize {
    let field = format!("reason={reason}");
    let list = kubectl(&["get", "events", "-A", "--field-selector", &field, "-o", "name"]);
    list.lines().count()
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_node_cut_off_from_its_storage_loses_one_pod_and_all_nodes_cut_off_lose_none() {
    let (second, third) = (OtherNode::new(2), OtherNode::new(3));
    let mut fixture = Fixture::new();
    let image = fixture.path("share.img");
    std::fs::write(&image, vec![0; 1 << 20]).expect("a file");
    let share = fixture.path("static/share");
    let mut served = vec![FuseServer::mount(&share, &image)];
    for (number, node) in [(2, &second), (3, &third)] {
        node.create_folders(&["pool", "static/share"].map(|name| fixture.path(name)));
        node.copy_folder(&fixture.path("smart"));
        node.start();
        let here = fixture.path(&format!("share-of-{number}"));
        served.push(FuseServer::mount(&here, &image));
        node.lend_mount(&here, &share);
    }
    fixture
        .configure(&format!("[[static]]\nname = \"share\"\ndirectory = \"{}\"\n", share.display()));
    let mut fleet = controller::values(&["unreachable"]);
    fleet["evictUnreachable"] = json!(true);
    fixture.install(
        &json!({"apiServer": {"host": API_ADDRESS}, "report": {"storage": true}, "fleet": fleet}),
    );
    for number in 0..PODS {
        apply(&volume(number));
    }
    apply(&[stateful_set(APP, ("app", APP), PODS, "given", "while :; do busybox sleep 1; done")]);
    let before = until("the pods run, one on each node", TIME_LIMIT, || {
        let pods = all_ready()?;
        let nodes: std::collections::BTreeSet<&String> = pods.iter().map(|pod| &pod.0).collect();
        (nodes.len() == PODS).then(|| pods.clone())
    });
    let controller =
        controller::start(&fixture, TIMING, &["--duties", "unreachable", "--evict-unreachable"]);
    let node = second.name();
    let mut transcript = Transcript::new();
    transcript.note("Three pods on three nodes, with volumes of one storage on the network.");
    transcript.run("kubectl get pods -o wide");

    served[1].set(Mode::Hang);
    until("the node says so", TIME_LIMIT, || says_unreachable(&node).then_some(()));
    until("it gets no new pods", SOON, || taint(&node));
    assert_eq!(taint(&node).as_deref(), Some(&*format!("{DRIVER}:NoSchedule")));
    transcript.note("node-2 loses its way to the storage.");
    transcript.run("kubectl diskvitals");
    let moved = before.iter().find(|pod| pod.0 == node).expect("a pod there");
    until("its pod is evicted", SOON, || {
        let pod = get(&format!("pod/{}", moved.1));
        pod.is_none_or(|pod| {
            pod["metadata"]["uid"] != moved.2.as_str()
                || !pod["metadata"]["deletionTimestamp"].is_null()
        })
        .then_some(())
    });
    transcript.run("kubectl get pods -o wide");
    for other in [NODE, &*third.name()] {
        assert_eq!(taint(other), None, "{other} reaches it");
    }
    let stays = |pods: &[(String, String, String)]| {
        for (_, name, uid) in pods {
            let pod = get(&format!("pod/{name}")).expect("the pod");
            assert_eq!(pod["metadata"]["uid"], uid.as_str(), "{name}");
            assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{name}");
        }
    };
    let others: Vec<_> = before.iter().filter(|pod| pod.0 != node).cloned().collect();
    stays(&others);

    served[1].set(Mode::Pass);
    transcript.note("It is back: the pod ends, its successor runs elsewhere, and the taint goes.");
    until("the taint goes", TIME_LIMIT, || taint(&node).is_none().then_some(()));
    let after = until("all pods run", TIME_LIMIT, all_ready);
    stays(&others);
    assert!(after.iter().all(|pod| pod.2 != moved.2));
    transcript.run("kubectl get pods -o wide");

    served.iter().for_each(|server| server.set(Mode::Hang));
    for name in [NODE, &*node, &*third.name()] {
        let has_pod = after.iter().any(|pod| pod.0 == name);
        if has_pod {
            until("each node with a pod says so", TIME_LIMIT, || {
                says_unreachable(name).then_some(())
            });
        }
    }
    until("it is said that the storage is away", SOON, || {
        (events("StorageAway") > 0).then_some(())
    });
    // Twice the time after which one node had its taint.
    pause(Duration::from_secs(20));
    for name in [NODE, &*node, &*third.name()] {
        assert_eq!(taint(name), None, "{name}");
    }
    stays(&after);
    assert_eq!(events("StorageAway"), 1, "one statement");
    transcript.note("The storage is away for all nodes: nothing moves, and one event says so.");
    transcript.run("kubectl get pods -o wide");
    transcript.run(
        "kubectl get nodes -o custom-columns='NODE:.metadata.name,TAINTS:.spec.taints[*].key'",
    );
    transcript.run("kubectl get events -A -o custom-columns=REASON:.reason,OBJECT:.involvedObject.name,FROM:.reportingComponent,MESSAGE:.message | grep -e REASON -e diskvitals.io/fleet");
    served.iter().for_each(|server| server.set(Mode::Pass));
    drop(controller);
    fixture.end_with(|| drop(served));
}
