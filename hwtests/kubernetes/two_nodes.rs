//! A second real kubelet: pods with volumes of each node's own pool, and the node away and back.

use serde_json::{Value, json};

use crate::claims::{As, DRIVER, claim, is_running, pod};
use crate::cluster::{NODE, SOON, TIME_LIMIT, apply, get, kubectl, until};
use crate::fixture::{CLASS, Fixture};
use crate::nodes::{API_ADDRESS, OtherNode};

/// The pod runs on that node only.
fn on_node(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    pod
}

/// A field of the nodes' reports.
fn reported(node: &str, field: &str) -> Option<Value> {
    let storage = get(&format!("nodestorage/{node}"))?;
    Some(storage["status"][field].clone()).filter(|value| !value.is_null() && *value != "")
}

pub fn is_registered(node: &str) -> Option<()> {
    let drivers = get(&format!("csinode/{node}"))?["spec"]["drivers"].clone();
    let mut drivers = drivers.as_array()?.iter();
    drivers.any(|driver| driver["name"] == DRIVER).then_some(())
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn two_nodes_run_pods_with_volumes_of_their_own_pools_and_one_goes_away_and_returns() {
    let second = OtherNode::new(2);
    let mut fixture = Fixture::new();
    let (first_disk, second_disk) =
        (fixture.plain_disk("first", 1024), fixture.plain_disk("second", 1024));
    fixture.pool_on(&first_disk);
    fixture.pool_of(&second, &second_disk, &[first_disk.name()]);
    second.start();
    fixture.install(&json!({"apiServer": {"host": API_ADDRESS}, "report": {"storage": true, "answerChallenges": true}}));
    let name = second.name();
    until("the driver is registered on the second node", SOON, || is_registered(&name));

    apply(&[
        claim("a", CLASS, "64Mi", As::Filesystem),
        on_node(pod("a", &["a"], As::Filesystem), NODE),
        claim("b", CLASS, "64Mi", As::Filesystem),
        on_node(pod("b", &["b"], As::Filesystem), &name),
    ]);
    for pod in ["a", "b"] {
        until("the pod runs", TIME_LIMIT, || is_running(pod).then_some(()));
    }
    let pool = fixture.path("pool");
    let files = second.enter(&["find", &pool.to_string_lossy(), "-size", "+1M"]);
    assert_eq!(files.lines().count(), 1, "its own volume only: {files}");

    // Each daemon sees its own machine and its own drive.
    let both = |field: &str| {
        let of = |node: &str| until(&format!("{field} of {node}"), SOON, || reported(node, field));
        (of(NODE), of(&name))
    };
    for field in ["machineID", "bootID", "nodeUID"] {
        let (of_first, of_second) = both(field);
        assert_ne!(of_first, of_second, "{field}");
    }
    let (of_first, of_second) = both("driveIDs");
    let ids = |of: &Value| of.as_array().expect("a list").clone();
    assert_eq!(ids(&of_first).len(), ids(&of_second).len());
    let shared = |id: &&Value| ids(&of_second).contains(id);
    assert_eq!(ids(&of_first).iter().find(shared), None, "no common drive");
    assert_eq!(reported(&name, "health"), Some(json!("Good")));

    second.cut_network();
    second.until_not_ready();
    let uptime = second.enter(&["cat", "/proc/uptime"]);
    assert!(!uptime.is_empty(), "the machine itself runs on");
    assert!(is_running("a"));
    second.join_network();
    second.until_ready();
    until("the pod runs on the node that is back", TIME_LIMIT, || is_running("b").then_some(()));

    for (how, go_away) in [
        ("shut down", OtherNode::shut_down as fn(&OtherNode)),
        ("without power", OtherNode::power_off),
    ] {
        let boot = reported(&name, "bootID");
        let restarts = crate::claims::restarts("b");
        go_away(&second);
        second.start();
        second.until_ready();
        until(&format!("{how}: the new boot is reported"), TIME_LIMIT, || {
            (reported(&name, "bootID") != boot).then_some(())
        });
        until(&format!("{how}: the pod is started again"), TIME_LIMIT, || {
            (is_running("b") && crate::claims::restarts("b") > restarts).then_some(())
        });
    }
    kubectl(&["delete", "pod", "--all", "--wait=true"]);
    until("no mount is left on the second node", SOON, || {
        second.volume_mounts().is_empty().then_some(())
    });
    fixture.end();
}
