//! Events, the node condition and the NodeStorage: for one of our volumes, and for one without a driver.

use serde_json::{Value, json};

use crate::claims::{As, DRIVER, claim, is_running, pod, volume_health};
use crate::cluster::{NODE, SOON, TIME_LIMIT, apply, get, kubectl, until};
use crate::fake_disks::slot;
use crate::fixture::{CLASS, Fixture, NAMESPACE};
use crate::support::tools::mount_device;

/// Status and reason of `StorageHealthy`.
pub fn condition() -> Option<(String, String)> {
    condition_of("StorageHealthy")
}

fn condition_of(name: &str) -> Option<(String, String)> {
    let node = get(&format!("node/{NODE}"))?;
    let of_ours = node["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == name)?
        .clone();
    Some((of_ours["status"].as_str()?.to_owned(), of_ours["reason"].as_str()?.to_owned()))
}

/// How many of our events with this reason exist for the object.
pub fn events(kind: &str, name: &str, reason: &str) -> usize {
    actions(kind, name, reason).len()
}

/// What our events with this reason say of the object: `Raised`, `Worsened`; sorted.
fn actions(kind: &str, name: &str, reason: &str) -> Vec<String> {
    let text = kubectl(&[
        "get",
        "events",
        "-A",
        "--field-selector",
        "reportingComponent=diskvitals.io/report",
        "-o",
        "json",
    ]);
    let list: Value = serde_json::from_str(&text).expect("JSON");
    let about = |event: &&Value| {
        event["reason"] == reason
            && event["involvedObject"]["kind"] == kind
            && event["involvedObject"]["name"] == name
    };
    let events = list["items"].as_array().expect("a list").iter().filter(about);
    let mut actions: Vec<String> =
        events.map(|event| event["action"].as_str().unwrap_or_default().to_owned()).collect();
    actions.sort_unstable();
    actions
}

/// Events stay for an hour, also those of other scenarios.
fn forget_events() {
    kubectl(&["delete", "--raw", "/api/v1/namespaces/default/events"]);
}

fn restart_reporter(fixture: &Fixture) {
    let set = "daemonset/diskvitals-report";
    kubectl(&["-n", NAMESPACE, "rollout", "restart", set]);
    fixture.is_ready();
}

/// A `local` volume on the directory, with its claim.
fn local(name: &str, folder: &std::path::Path) -> [Value; 2] {
    let mut claim = claim(name, "by-hand", "64Mi", As::Filesystem);
    claim["spec"]["volumeName"] = json!(name);
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "by-hand",
            "claimRef": {"namespace": "default", "name": name}, "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]}}}
    });
    [volume, claim]
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn drive_failures_and_recoveries_are_published_to_node_pods_and_claims() {
    forget_events();
    let mut fixture = Fixture::new();
    let mut drives = fixture.sata(2, 2048);
    let (second, first) = (drives.remove(1), drives.remove(0));
    fixture.pool_on(&first.disk);
    let folder = fixture.path("local");
    std::fs::create_dir(&folder).expect("a folder");
    mount_device(&second.disk.device, "ext4", &folder, "");
    fixture.install(&json!({"report": {"events": true, "conditions": true}}));
    let mut objects = vec![
        claim("a", CLASS, "64Mi", As::Filesystem),
        pod("a", &["a"], As::Filesystem),
        pod("b", &["b"], As::Filesystem),
    ];
    objects.extend(local("b", &folder));
    apply(&objects);
    for name in ["a", "b"] {
        until("the pods run", TIME_LIMIT, || is_running(name).then_some(()));
    }
    let well = until("the node has the condition, and nothing is wrong", SOON, || {
        condition().filter(|(status, _)| status == "True")
    });
    println!("{well:?}");

    fixture.fails(&first, true);
    let (_, reason) =
        until("the node condition", SOON, || condition().filter(|(status, _)| status == "False"));
    assert!(
        reason.starts_with("Smart"),
        "{reason}: the drive's own, before what it means for volumes"
    );
    // The drive is reported on the node, its effect on the volume on the pod.
    for (kind, name, reason) in [
        ("Node", NODE, "SmartFailing"),
        ("Pod", "a", "DriveFailing"),
        ("PersistentVolumeClaim", "a", "DriveFailing"),
    ] {
        until("the event about the object", SOON, || {
            Some(events(kind, name, reason)).filter(|count| *count > 0)
        });
    }
    assert_eq!(
        [events("Pod", "b", "DriveFailing"), events("PersistentVolumeClaim", "b", "DriveFailing")],
        [0, 0],
        "another drive's"
    );

    fixture.fails(&second, true);
    for (kind, name) in [("Pod", "b"), ("PersistentVolumeClaim", "b")] {
        until("the event of the volume without a driver", SOON, || {
            Some(events(kind, name, "DriveFailing")).filter(|count| *count > 0)
        });
    }
    assert_eq!(volume_health("b", 0), None, "the kubelet itself publishes nothing about it");

    // A restarted reporter does not repeat published events.
    let published = |name: &str| events("Pod", name, "DriveFailing");
    let before = (published("a"), published("b"));
    restart_reporter(&fixture);

    fixture.fails(&first, false);
    fixture.fails(&second, false);
    until("the findings are cleared", SOON, || {
        Some(events("Node", NODE, "SmartFailingCleared")).filter(|count| *count > 0)
    });
    for (kind, name) in
        [("Pod", "a"), ("PersistentVolumeClaim", "a"), ("Pod", "b"), ("PersistentVolumeClaim", "b")]
    {
        until("the findings are cleared", SOON, || {
            Some(events(kind, name, "DriveFailingCleared")).filter(|count| *count > 0)
        });
    }
    until("also for the node", SOON, || condition().filter(|count| *count == well));
    assert_eq!((published("a"), published("b")), before);
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn pod_and_claim_have_one_event_for_each_worsening_of_their_volume() {
    forget_events();
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 2048).remove(0);
    fixture.pool_on(&drive.disk);
    fixture.install(&json!({"report": {"events": true}}));
    apply(&[claim("a", CLASS, "64Mi", As::Filesystem), pod("a", &["a"], As::Filesystem)]);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    let expect = |what: &str, reason: &str, expected: &[&str]| {
        for kind in ["Pod", "PersistentVolumeClaim"] {
            until(&format!("{what}, on {kind}"), SOON, || {
                (actions(kind, "a", reason) == expected).then_some(())
            });
        }
    };
    fixture.fails(&drive, true);
    expect("the drive fails", "DriveFailing", &["Raised"]);
    drive.set_state("offline");
    expect("the drive is offline", "DriveFailing", &["Raised", "Worsened"]);

    drive.set_state("running");
    expect("the drive answers again", "DriveFailing", &["Eased", "Raised", "Worsened"]);
    fixture.fails(&drive, false);
    expect("it is mended", "DriveFailingCleared", &["Cleared"]);
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn events_follow_volumes_that_come_and_go_while_their_drive_fails() {
    let (mut fixture, drive) = Fixture::with_a_pod(As::Filesystem);
    // No new volume is placed on a failing drive.
    apply(&[claim("b", CLASS, "64Mi", As::Filesystem), pod("b", &["b"], As::Filesystem)]);
    until("the pod runs", TIME_LIMIT, || is_running("b").then_some(()));
    kubectl(&["delete", "pod/b", "--wait=true"]);
    forget_events();
    fixture.fails(&drive, true);
    let about = |kind: &str, name: &str, reason: &str| {
        until("the event about the object", SOON, || {
            Some(events(kind, name, reason)).filter(|count| *count > 0)
        })
    };
    about("Node", NODE, "SmartFailing");
    about("Pod", "a", "DriveFailing");
    about("PersistentVolumeClaim", "a", "DriveFailing");

    // Another pod begins to use the failing drive.
    apply(&[pod("b", &["b"], As::Filesystem)]);
    until("the pod runs", TIME_LIMIT, || is_running("b").then_some(()));
    about("Pod", "b", "DriveFailing");
    about("PersistentVolumeClaim", "b", "DriveFailing");

    // It is deleted again, and the reporter restarts: what has ended is published once, and not on
    // the node.
    kubectl(&["delete", "pod/b", "pvc/b", "--wait=true"]);
    until("the volume is deleted", TIME_LIMIT, || {
        let volumes = crate::cluster::get("pv")?;
        (volumes["items"].as_array()?.len() == 1).then_some(())
    });
    let before = events("Pod", "a", "DriveFailing");
    restart_reporter(&fixture);

    // The end of the failure reaches the claim whose pod is deleted meanwhile.
    kubectl(&["delete", "pod/a", "--wait=true"]);
    fixture.fails(&drive, false);
    about("Node", NODE, "SmartFailingCleared");
    about("PersistentVolumeClaim", "a", "DriveFailingCleared");
    assert_eq!(events("Pod", "a", "DriveFailing"), before);
    let field = "involvedObject.kind=Node,reason=DriveFailingCleared";
    let messages = ["-o", "jsonpath={.items[*].message}"];
    let on_node = kubectl(&[&["get", "events", "--field-selector", field], &messages[..]].concat());
    assert!(!on_node.contains(DRIVER), "of the deleted volume: {on_node}");
    apply(&[pod("a", &["a"], As::Filesystem)]);
    until("the pod runs again", TIME_LIMIT, || is_running("a").then_some(()));
    fixture.install(&json!({}));
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_failing_drive_is_in_the_nodes_storage_with_its_serial_and_volume_until_it_is_mended() {
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 2048).remove(0);
    fixture.pool_on(&drive.disk);
    fixture.install(&json!({"report": {"storage": true}}));
    apply(&[claim("a", CLASS, "64Mi", As::Filesystem), pod("a", &["a"], As::Filesystem)]);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    let status = |is_so: fn(&Value) -> bool| {
        let status = get(&format!("nodestorage/{NODE}"))?["status"].clone();
        Some(status).filter(is_so)
    };
    until("the node is good", SOON, || status(|it| it["health"] == "Good"));

    fixture.fails(&drive, true);
    let bad = until("drive and volume are listed", SOON, || {
        status(|it| it["counts"]["bad"] == 1 && it["volumes"][0].is_object())
    });
    let listed = &bad["drives"][0];
    assert!(listed["serial"].as_str().is_some_and(|serial| !serial.is_empty()), "{bad:#}");
    let volumes = bad["volumes"].as_array().expect("a list").iter();
    let ours = volumes
        .clone()
        .find(|volume| volume["driver"] == DRIVER)
        .unwrap_or_else(|| panic!("our volume: {bad:#}"));
    assert_eq!(ours["driveIDs"], json!([listed["id"]]));
    let claim = get("pvc/a").expect("the claim");
    assert_eq!(ours["persistentVolume"], claim["spec"]["volumeName"]);

    fixture.fails(&drive, false);
    until("both are gone from the lists", SOON, || {
        status(|it| {
            it["health"] == "Good" && it["drives"] == json!([]) && it["volumes"] == json!([])
        })
    });
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_node_has_storage_failed_while_the_drives_of_its_volumes_are_offline_and_names_their_slots() {
    let mut fixture = Fixture::new();
    let drives = fixture.sata(2, 2048);
    fixture.pool_on(&drives[0].disk);
    let folder = fixture.path("local");
    std::fs::create_dir(&folder).expect("a folder");
    mount_device(&drives[1].disk.device, "ext4", &folder, "");
    fixture.install(&json!({"report": {"storage": true, "storageFailed": true}}));
    let mut objects = vec![
        claim("a", CLASS, "64Mi", As::Filesystem),
        pod("a", &["a"], As::Filesystem),
        pod("b", &["b"], As::Filesystem),
    ];
    objects.extend(local("b", &folder));
    apply(&objects);
    for name in ["a", "b"] {
        until("the pods run", TIME_LIMIT, || is_running(name).then_some(()));
    }
    let failed = |expected: (&str, &str)| {
        until(&format!("StorageFailed is {expected:?}"), TIME_LIMIT, || {
            let (status, reason) = condition_of("StorageFailed")?;
            ((status.as_str(), reason.as_str()) == expected).then_some(())
        });
    };
    failed(("False", "StorageUsable"));

    drives.iter().for_each(|drive| drive.set_state("offline"));
    failed(("True", "DrivesUnreachable"));
    let bad = until("both drives are listed", SOON, || {
        let status = get(&format!("nodestorage/{NODE}"))?["status"].clone();
        (status["counts"]["bad"] == 2).then_some(status)
    });
    let listed = bad["drives"].as_array().expect("a list");
    let mut slots: Vec<&str> = listed
        .iter()
        .filter(|drive| drive["reason"] == "DriveOffline")
        .map(|drive| drive["slot"].as_str().unwrap_or("none"))
        .collect();
    slots.sort_unstable();
    assert_eq!(slots, [slot(0), slot(1)], "{bad:#}");

    drives.iter().for_each(|drive| drive.set_state("running"));
    failed(("False", "StorageUsable"));
    until("the lists are empty again", SOON, || {
        let status = get(&format!("nodestorage/{NODE}"))?["status"].clone();
        (status["health"] == "Good" && status["drives"] == json!([])).then_some(())
    });
    fixture.end();
}
