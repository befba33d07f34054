//! What keeps a returned node from new pods, one cause after the other, and what does not free it: orders
//! that nobody should give, a list and a Node that are lost, and controllers that die or whose clock is
//! wrong.

use std::path::Path;

use serde_json::{Value, json};

use crate::claims::stateful_set;
use crate::cluster::{
    self, HostProgram, SOON, TIME_LIMIT, apply, get, kubectl, try_kubectl, until,
};
use crate::controller;
use crate::fixture::Fixture;
use crate::nodes::{API_ADDRESS, OtherNode};
use crate::returned::{is_tainted, quarantine, volume, word};
use crate::support::tools;

const SET: &str = "shop";

/// The one pod of the set, when it runs.
fn running() -> Option<String> {
    let pod = get(&format!("pod/{SET}-0"))?;
    let is_running = pod["status"]["containerStatuses"][0]["ready"] == true;
    is_running.then(|| pod["metadata"]["uid"].as_str().expect("a uid").to_owned())
}

fn delete_pod_by_force() {
    kubectl(&["delete", "pod", "--force", "--grace-period=0", &format!("{SET}-0")]);
}

/// The node keeps its taint, and says why: in its report, and in an event.
fn until_kept_by(node: &str, reason: &str, named: &str) {
    let said = until(&format!("the node says {reason}"), TIME_LIMIT, || {
        word(node).filter(|word| word.1 == reason && word.2.contains(named))
    });
    println!("{said:?}");
    assert_eq!(said.0, "False");
    until("an event says it", TIME_LIMIT, || {
        let events = get("events")?["items"].as_array()?.clone();
        let is_said = |event: &Value| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == "NodeUnclean" && message.contains(&format!("{reason}:"))
        };
        events.iter().any(is_said).then_some(())
    });
    assert!(is_tainted(node), "{reason}");
}

fn until_free(node: &str) {
    until("the node is proven clean", TIME_LIMIT, || word(node).filter(|word| word.0 == "True"));
    assert!(is_tainted(node), "it is let go at once, not 30 seconds after the proof");
    until("the taint is removed", TIME_LIMIT, || (!is_tainted(node)).then_some(()));
    until("its quarantine goes", SOON, || quarantine(node).is_none().then_some(()));
}

/// As far ahead as a clock can be that nobody has set.
fn two_hours_ahead(fixture: &Fixture, arguments: &[&str]) -> HostProgram {
    let library = fixture.path("skew.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("hwtests/kubernetes/skew.c");
    tools::run("/usr/bin/gcc", &[&"-shared", &"-fPIC", &"-O1", &"-o", &library, &source]);
    let mut program = controller::program(fixture, "", arguments);
    HostProgram::start("fleet", program.env("LD_PRELOAD", &library).env("SKEW", "7200"))
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn only_proof_frees_a_returned_node() {
    let second = OtherNode::new(2);
    let mut fixture = Fixture::new();
    let kept = fixture.path("static/kept");
    std::fs::create_dir(&kept).expect("a folder");
    second.create_folders(&["pool", "static", "static/kept"].map(|name| fixture.path(name)));
    second.copy_folder(&fixture.path("smart"));
    let directory = kept.display();
    fixture.configure(&format!("[[static]]\nname = \"kept\"\ndirectory = \"{directory}\"\n"));
    second.start();
    let with_orders = |is_allowed: bool| {
        json!({
            "apiServer": {"host": API_ADDRESS}, "report": {"storage": true, "cleanStale": true}, "daemon": {"cleanupOrders": is_allowed},
            "fleet": controller::values(&["quarantine"]),
        })
    };
    fixture.install(&with_orders(true));
    let node = second.name();
    apply(&[volume(SET, 0, "kept")]);
    let serve = "while :; do busybox date >/data/now; busybox sleep 1; done";
    let mut set = stateful_set(SET, ("app", SET), 1, "given", serve);
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    apply(&[set]);
    let old = until("the pod runs", TIME_LIMIT, running);
    let mounts_of = |uid: &str| -> Vec<String> {
        let all = second.volume_mounts();
        all.into_iter().filter(|at| at.contains(uid)).collect()
    };
    let of_living = mounts_of(&old);
    assert!(!of_living.is_empty());

    // An order for a pod that lives, by somebody who may write it.
    let of_node = format!("nodestorage/{node}");
    let order = |uids: &[&str]| {
        let quarantine =
            json!({"spec": {"quarantine": {"id": "forged", "podUIDs": uids}}}).to_string();
        try_kubectl(&["patch", &of_node, "--type=merge", "-p", &quarantine], "")
    };
    let refused = order(&["../../etc"]).expect_err("a uid is no path");
    assert!(refused.contains("should match"), "{refused}");
    order(&[&old]).expect("anything that looks like a uid");
    until("the node answers it", TIME_LIMIT, || {
        let observed = get(&of_node)?["status"]["observedQuarantine"] == "forged";
        word(&node).filter(|word| observed && word.1 == "InUse" && word.2.contains(&old))
    });
    assert_eq!(mounts_of(&old), of_living, "the pod keeps its volume");
    assert_eq!(running(), Some(old.clone()));
    kubectl(&["patch", &of_node, "--type=merge", "-p", r#"{"spec": {"quarantine": null}}"#]);

    // Nothing may be unmounted by order, as it is without configuration.
    fixture.install(&with_orders(false));
    let duties = ["--duties", "quarantine"];
    let leader = controller::start(&fixture, "", &duties);
    second.cut_network();
    second.until_not_ready();
    let listed = until("the pod is listed", SOON, || quarantine(&node));
    assert_eq!(listed["podUIDs"], json!([&old]));
    until("the node has the taint", SOON, || is_tainted(&node).then_some(()));
    delete_pod_by_force();
    // A mount of another driver, and a record that cannot be read.
    let volumes = cluster::kubelet_root().join(format!("pods/{old}/volumes/kubernetes.io~csi"));
    let volumes = volumes.display();
    let in_volumes = |commands: &str| {
        second.enter(&["sh", "-ec", &format!("cd '{volumes}'; {commands}")]);
    };
    in_volumes("mkdir -p other/mount; mount -t tmpfs other other/mount");
    in_volumes("rm kept/vol_data.json; mkdir kept/vol_data.json");
    // The controller dies; the one that follows has another clock.
    leader.kill();
    let follower = two_hours_ahead(&fixture, &duties);
    second.join_network();
    second.until_ready();
    until_kept_by(&node, "Unreadable", "kept/mount");
    // Without its record the kubelet cannot unmount the volume.
    in_volumes("rmdir kept/vol_data.json");
    until_kept_by(&node, "Foreign", "other/mount");
    in_volumes("umount other/mount");
    until_kept_by(&node, "OrdersOff", "kept/mount");
    assert_eq!(mounts_of(&old), of_living);
    assert_eq!(
        quarantine(&node).expect("a quarantine")["id"],
        listed["id"],
        "the same question all the time"
    );

    fixture.install(&with_orders(true));
    until_free(&node);
    assert_eq!(mounts_of(&old), [""; 0]);
    let data = kept.join("now");
    second.enter(&["test", "-s", &data.to_string_lossy()]);

    // The list is lost while the node is away. Two controllers, one of which leads.
    let another = controller::start(&fixture, "", &duties);
    second.cut_network();
    second.until_not_ready();
    until("the node has the taint", SOON, || is_tainted(&node).then_some(()));
    delete_pod_by_force();
    kubectl(&["delete", &of_node]);
    second.join_network();
    second.until_ready();
    until_kept_by(&node, "Truncated", "");
    drop(follower);
    // It is restarted, and its Node is created anew.
    second.power_off();
    kubectl(&["delete", "node", &node]);
    second.start();
    until("the new Node has the taint", SOON, || is_tainted(&node).then_some(()));
    until_free(&node);
    until("the pod runs again", TIME_LIMIT, running);
    drop(another);
    fixture.end();
}
