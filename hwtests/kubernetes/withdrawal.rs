//! Health that is withdrawn before diskvitals stops answering: without this, the kubelet keeps the
//! last health in the pod's and the CSINode's status for ever.

use serde_json::json;

use crate::claims::{As, DRIVER, calls, storage_health, volume_health};
use crate::cluster::{NODE, SOON, TIME_LIMIT, kubectl, until};
use crate::fixture::{Fixture, NAMESPACE};
use crate::reporter::{condition, events};

/// Withdraws the health of the shim or interposer in this DaemonSet, and waits for a round.
pub fn withdraw(daemonset: &str, socket: &str) {
    let endpoint = format!("--endpoint=unix://{socket}");
    let exec = ["-n", NAMESPACE, "exec", daemonset, "--"];
    let program = ["/usr/local/bin/diskvitals-csi", "withdraw", &endpoint];
    let said = kubectl(&[&exec[..], &program].concat());
    assert!(said.contains("The kubelet has completed a round"), "{said}");
}

/// After two more rounds of a call that goes on, nothing adverse is shown.
pub fn stays_empty(pod: &str, driver: &str, method: &str) {
    let calls = || calls(driver, method).unwrap_or_default();
    let before = calls();
    until("two more rounds of the kubelet", SOON, || (calls() >= before + 2.0).then_some(()));
    assert_eq!((volume_health(pod, 0), storage_health(driver)), (Some(Vec::new()), Vec::new()));
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn withdrawn_health_leaves_nothing_behind_when_the_api_changes_or_the_chart_goes() {
    let (mut fixture, drive) = Fixture::with_a_pod(As::Filesystem);
    fixture.fails(&drive, true);
    let is_shown = || {
        volume_health("a", 0)
            .filter(|conditions| !conditions.is_empty() && !storage_health(DRIVER).is_empty())
    };
    until("pod and node show the failing drive", SOON, is_shown);

    // The health API is changed under a running pod.
    let reports = json!({"events": true, "conditions": true});
    fixture.install(&json!({"withdraw": true, "report": reports}));
    until("nothing adverse is shown", SOON, || {
        (volume_health("a", 0) == Some(Vec::new()) && storage_health(DRIVER).is_empty())
            .then_some(())
    });
    for (kind, name) in [("Node", NODE), ("Pod", "a"), ("PersistentVolumeClaim", "a")] {
        until("it is said in an event", SOON, || {
            Some(events(kind, name, "HealthWithdrawn")).filter(|count| *count > 0)
        });
    }
    assert_eq!(condition(), None);
    let said = until("the shim reports a complete round", TIME_LIMIT, || {
        let log = kubectl(&["-n", NAMESPACE, "logs", "daemonset/diskvitals-shim", "-c", "shim"]);
        log.lines()
            .find(|line| line.contains("the kubelet has completed a round"))
            .map(str::to_owned)
    });
    println!("{said}");
    fixture.install(&json!({"driver": {"healthApi": "condition"}, "report": reports}));
    stays_empty("a", DRIVER, "NodeGetVolumeStats");
    until("the node condition is back", SOON, || {
        condition().filter(|(status, _)| status == "False")
    });

    // Back to both, and uninstalled while the drive is still bad.
    fixture.install(&json!({}));
    until("pod and node show the failing drive again", SOON, is_shown);
    withdraw("daemonset/diskvitals-shim", "/csi/csi.sock");
    fixture.remove_chart();
    until("the driver is not registered", SOON, || {
        (!crate::claims::is_registered(DRIVER)).then_some(())
    });
    assert_eq!((volume_health("a", 0), storage_health(DRIVER)), (Some(Vec::new()), Vec::new()));

    fixture.fails(&drive, false);
    fixture.install(&json!({}));
    fixture.end();
}
