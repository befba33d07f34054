//! One configuration file for all nodes, and what one node has of its own.

use serde_json::json;

use crate::cluster::{NODE, SOON, TIME_LIMIT, get, until};
use crate::fixture::Fixture;
use crate::nodes::{API_ADDRESS, OtherNode};
use crate::transcript::shell;
use crate::two_nodes::is_registered;

/// Of a disk that no node of the lab has.
const COMMON: &str =
    "[[static]]\nname = \"archive\"\ndevice = \"/dev/disk/by-id/nvme-EXAMPLE_ELSEWHERE\"\n";
const OF_SECOND: &str =
    "[[static]]\nname = \"scratch\"\ndevice = \"/dev/disk/by-id/nvme-EXAMPLE_DEAD\"\n";

/// The health in the node's report, and the status of its condition StorageHealthy.
fn shown(node: &str) -> Option<(String, String)> {
    let report = get(&format!("nodestorage/{node}"))?;
    let node = get(&format!("node/{node}"))?;
    let conditions = node["status"]["conditions"].as_array()?.clone();
    let of_ours = conditions.iter().find(|condition| condition["type"] == "StorageHealthy")?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    Some((text(&report["status"]["health"])?, text(&of_ours["status"])?))
}

fn until_shown(what: &str, node: &str, health: &str, healthy: &str) {
    let wanted = (health.to_owned(), healthy.to_owned());
    until(what, TIME_LIMIT, || shown(node).filter(|shown| *shown == wanted));
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_static_volume_is_missed_where_it_is_expected_and_says_nothing_elsewhere() {
    let second = OtherNode::new(2);
    let mut fixture = Fixture::new();
    let disks = (fixture.plain_disk("first", 256), fixture.plain_disk("second", 256));
    fixture.pool_on(&disks.0);
    fixture.pool_of(&second, &disks.1, &[disks.0.name()]);
    fixture.configure(COMMON);
    second.start();
    let name = second.name();
    let values = |per_node: serde_json::Value| {
        json!({"apiServer": {"host": API_ADDRESS}, "report": {"storage": true, "conditions": true},
            "daemon": {"perNode": per_node}})
    };
    fixture.install(&values(json!({})));
    for node in [NODE, &name] {
        until_shown("a device that it never had is no fault of a node", node, "Good", "True");
    }
    let (is_good, text) = shell("kubectl diskvitals --exit-code");
    assert!(is_good, "{text}");

    fixture.install(&values(json!({&name: OF_SECOND})));
    until_shown("one of its own is missed", &name, "Bad", "False");
    until_shown("the other node is well", NODE, "Good", "True");
    let (is_good, text) = shell("kubectl diskvitals --exit-code");
    assert!(!is_good && text.contains(&name), "{text}");
    for (node, has_own) in [(NODE, false), (name.as_str(), true)] {
        let (is_ok, text) = shell(&format!("kubectl diskvitals config {node}"));
        assert!(is_ok && text.contains("archive"), "{text}");
        assert_eq!(text.contains("scratch"), has_own, "{node}: {text}");
    }

    fixture.install(&values(json!({})));
    until_shown("it is no longer expected", &name, "Good", "True");
    until("the driver is there", SOON, || is_registered(&name));
    fixture.end();
}
