//! Upgrades under running pods, a kubelet without the feature gate, and a kubelet of an older
//! release.

use serde_json::json;

use crate::claims::{
    As, CURRENT, DRIVER, IMAGE, calls, claim, is_running, pod, restarts, volume_health,
};
use crate::cluster::{self, SOON, TIME_LIMIT, apply, get, kubectl, metric, restart_kubelet, until};
use crate::fixture::{CLASS, Fixture, NAMESPACE};

const NEXT: &str = "next";
/// hwtests/kubernetes/settings.sh: the last release before the gate's new meaning.
const OLDER: &str = "1.36.3";

fn image_of(part: &str) -> Option<String> {
    let pods = cluster::get_in(NAMESPACE, "pods")?;
    let of_part = pods["items"]
        .as_array()?
        .iter()
        .find(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == part)?;
    Some(of_part["spec"]["containers"][0]["image"].as_str()?.to_owned())
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn daemon_and_shim_are_upgraded_under_a_pod_that_runs_on() {
    let (mut fixture, drive) = Fixture::with_a_pod(As::Filesystem);
    let next = IMAGE.replace(CURRENT, NEXT);
    let mut ctr = cluster::command("/usr/bin/ctr");
    ctr.arg("--address").arg(cluster::run().join("containerd.sock")).args([
        "--namespace",
        "k8s.io",
        "images",
        "tag",
        "--force",
        IMAGE,
        &next,
    ]);
    let tagged = cluster::output(ctr, "");
    assert!(tagged.status.success(), "{}", String::from_utf8_lossy(&tagged.stderr));
    fixture.fails(&drive, true);
    until("the volume health names its drive", SOON, || {
        volume_health("a", 0).filter(|conditions| !conditions.is_empty())
    });
    let before = get("pod/a").expect("the pod");
    fixture.install(&json!({"image": {"tag": NEXT}}));
    for part in ["daemon", "shim"] {
        assert_eq!(image_of(part).as_deref(), Some(next.as_str()), "{part}");
    }
    let after = get("pod/a").expect("the pod");
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!((restarts("a"), is_running("a")), (Some(0), true));
    assert_eq!(
        before["status"]["volumeHealth"], after["status"]["volumeHealth"],
        "health flickered"
    );
    assert_eq!(
        kubectl(&["exec", "a", "--", "/usr/bin/busybox", "cat", "/data/0/hello"]),
        "hello\n"
    );
    kubectl(&["exec", "a", "--", "/usr/bin/busybox", "sh", "-c", "echo more >/data/0/more"]);
    fixture.fails(&drive, false);
    until("the findings are cleared", SOON, || volume_health("a", 0).filter(Vec::is_empty));
    // A pool on a failing drive takes none.
    apply(&[claim("b", CLASS, "64Mi", As::Filesystem), pod("b", &["b"], As::Filesystem)]);
    until("the new programs mount new volumes", TIME_LIMIT, || is_running("b").then_some(()));
    fixture.end();
}

/// Restores the kubelet when dropped.
struct RestoreKubelet;

impl Drop for RestoreKubelet {
    fn drop(&mut self) {
        restart_kubelet(&[]);
    }
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn without_the_feature_gate_the_kubelet_gets_statistics_and_asks_for_no_health() {
    let (fixture, drive) = Fixture::with_a_pod(As::Filesystem);
    let as_it_was = RestoreKubelet;
    restart_kubelet(&["--gates", "CSIVolumeHealth=false"]);
    fixture.fails(&drive, true);
    let calls = |method: &str| calls(DRIVER, method);
    until("statistics were requested twice", SOON, || {
        calls("NodeGetVolumeStats").filter(|calls| *calls >= 2.0)
    });
    let figure = metric("kubelet_volume_stats_capacity_bytes", &["persistentvolumeclaim=\"a\""]);
    assert!(figure.is_some_and(|bytes| bytes > 0.0), "{figure:?}");
    assert_eq!((calls("NodeGetVolumeHealth"), volume_health("a", 0)), (None, None));
    drop(as_it_was);
    until("with the gate the volume health names its drive", SOON, || {
        volume_health("a", 0).filter(|conditions| !conditions.is_empty())
    });
    fixture.fails(&drive, false);
    until("the findings are cleared", SOON, || volume_health("a", 0).filter(Vec::is_empty));
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn an_older_kubelet_makes_a_pod_event_of_the_volume_condition() {
    let (fixture, drive) = Fixture::with_a_pod(As::Filesystem);
    let as_it_was = RestoreKubelet;
    restart_kubelet(&["--release", OLDER]);
    let version = get(&format!("node/{}", cluster::NODE))
        .and_then(|node| Some(node["status"]["nodeInfo"]["kubeletVersion"].as_str()?.to_owned()));
    assert_eq!(version, Some(format!("v{OLDER}")));
    fixture.fails(&drive, true);
    let event = || {
        let text = kubectl(&[
            "get",
            "events",
            "--field-selector",
            "reason=VolumeConditionAbnormal",
            "-o",
            "jsonpath={.items[*].message}",
        ]);
        Some(text).filter(|text| !text.is_empty())
    };
    let event = until("the pod event names the drive", SOON, event);
    assert!(event.contains(&drive.ata.serial) || event.contains("DriveFailing"), "{event}");
    assert!(
        metric("kubelet_volume_stats_capacity_bytes", &["persistentvolumeclaim=\"a\""])
            .is_some_and(|bytes| bytes > 0.0)
    );
    fixture.fails(&drive, false);
    drop(as_it_was);
    until("a kubelet of today finds nothing wrong", SOON, || {
        volume_health("a", 0).is_none_or(|conditions| conditions.is_empty()).then_some(())
    });
    fixture.end();
}
