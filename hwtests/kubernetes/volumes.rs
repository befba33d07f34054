//! Pool volumes and static volumes, from the claim to what the kubelet shows, while something below
//! fails and recovers.

use serde_json::json;

use crate::claims::{
    As, Condition, DRIVER, calls, claim, given, is_running, pod, restarts, storage_health,
    volume_health,
};
use crate::cluster::{self, SOON, TIME_LIMIT, apply, kubectl, metric, until};
use crate::fixture::{CLASS, Fixture};
use crate::support::Mode;
use crate::support::fuse::Fault;

fn has(conditions: &[Condition], status: &str, reason: &str) -> bool {
    conditions.iter().any(|condition| condition.status == status && condition.reason == reason)
}

/// A pod's volume that has recovered keeps its entry, without conditions.
fn is_healed(pod: &str) -> Option<()> {
    volume_health(pod, 0).filter(Vec::is_empty).map(drop)
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_claim_of_the_pool_becomes_a_volume_that_shows_its_drives_smart_failure_until_it_is_over() {
    let (fixture, drive) = Fixture::with_a_pod(As::Filesystem);
    let of_claim = ["namespace=\"default\"", "persistentvolumeclaim=\"a\""];
    for name in
        ["capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used"]
    {
        let figure = until("the kubelet has the volume's figures", SOON, || {
            metric(&format!("kubelet_volume_stats_{name}"), &of_claim)
        });
        assert!(figure > 0.0, "{name} {figure}");
    }
    let capacity = metric("kubelet_volume_stats_capacity_bytes", &of_claim).expect("a figure");
    assert!(
        capacity < f64::from(64 << 20),
        "the volume has {capacity} bytes, more than its claim: it is its pool that is measured"
    );
    until("health was requested", SOON, || {
        call_count("NodeGetVolumeHealth").filter(|count| *count >= 1.0)
    });
    assert_eq!(
        (volume_health("a", 0), storage_health(DRIVER)),
        (None, Vec::new()),
        "nothing is wrong yet"
    );

    fixture.fails(&drive, true);
    let conditions = until("the volume health of the pod shows the drive failure", SOON, || {
        volume_health("a", 0).filter(|conditions| has(conditions, "Degraded", "DriveFailing"))
    });
    assert!(conditions.iter().all(|condition| !condition.message.is_empty()), "{conditions:?}");
    until("the storage health of the node shows it", SOON, || {
        Some(storage_health(DRIVER)).filter(|conditions| !conditions.is_empty())
    });
    let shown = ["driver_name=\"csi.diskvitals.io\"", "status=\"StorageDegraded\""];
    until("the storage health is in the metrics of the kubelet", SOON, || {
        metric("csi_node_storage_health_status", &shown)
    });

    fixture.fails(&drive, false);
    until("the findings are cleared", SOON, || is_healed("a"));
    until("also of the node's storage", SOON, || storage_health(DRIVER).is_empty().then_some(()));
    assert_eq!(restarts("a"), Some(0));
    fixture.end();
}

/// How often the kubelet has called this method of our driver.
fn call_count(method: &str) -> Option<f64> {
    calls(DRIVER, method)
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn device_errors_below_a_static_volume_are_shown_in_its_pod_and_clear() {
    let mut fixture = Fixture::new();
    let (disk, served) = fixture.failing_disk("disk", 64);
    fixture.configure(&format!(
        "[[static]]\nname = \"disk-1\"\ndevice = \"{}\"\n",
        disk.device.display()
    ));
    fixture.install(&json!({}));
    let mut objects = given("a", DRIVER, "disk-1", As::Filesystem);
    objects.push(pod("a", &["a"], As::Filesystem));
    apply(&objects);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    kubectl(&[
        "exec",
        "a",
        "--",
        "/usr/bin/busybox",
        "dd",
        "if=/dev/zero",
        "of=/data/0/file",
        "bs=1M",
        "count=4",
        "conv=fsync",
    ]);
    fixture.served(served).fault(vec![Fault::reads(0..1 << 40)]);
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("nothing is cached");
    cluster::try_kubectl(&["exec", "a", "--", "/usr/bin/busybox", "cat", "/data/0/file"], "")
        .expect_err("it cannot be read");
    let conditions = until("the volume health of the pod shows the errors", SOON, || {
        volume_health("a", 0).filter(|conditions| !conditions.is_empty())
    });
    assert!(
        ["IoErrors", "DriveFailing"].iter().any(|reason| has(&conditions, "Degraded", reason)),
        "{conditions:?}"
    );
    fixture.served(served).fault(Vec::new());
    until("the findings are cleared", SOON, || is_healed("a"));
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn while_the_daemon_is_away_conditions_stay_as_they_were() {
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 2048).remove(0);
    fixture.pool_on(&drive.disk);
    fixture.install(&json!({}));
    apply(&[claim("a", CLASS, "64Mi", As::Filesystem), pod("a", &["a"], As::Filesystem)]);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    fixture.fails(&drive, true);
    let before = until("the volume health of the pod shows the drive failure", TIME_LIMIT, || {
        volume_health("a", 0).filter(|conditions| has(conditions, "Degraded", "DriveFailing"))
    });
    // No node matches: its pod is deleted and none is created.
    kubectl(&[
        "-n",
        crate::fixture::NAMESPACE,
        "patch",
        "daemonset",
        "diskvitals-daemon",
        "-p",
        NOWHERE,
    ]);
    until("the daemon is gone", TIME_LIMIT, || fixture.ask(&["status"]).is_err().then_some(()));
    let count_before = call_count("NodeGetVolumeHealth").expect("it was requested");
    // At least two rounds in which the driver does not know the health.
    until("health was requested again", SOON, || {
        call_count("NodeGetVolumeHealth").filter(|count| *count >= count_before + 2.0)
    });
    assert_eq!(volume_health("a", 0), Some(before.clone()), "what is not known clears nothing");
    assert!(!storage_health(DRIVER).is_empty(), "nor of the node's storage");
    assert!(is_running("a"));
    kubectl(&[
        "-n",
        crate::fixture::NAMESPACE,
        "patch",
        "daemonset",
        "diskvitals-daemon",
        "-p",
        ANYWHERE,
    ]);
    fixture.is_ready();
    until("the daemon is back", TIME_LIMIT, || fixture.ask(&["status"]).ok());
    assert_eq!(volume_health("a", 0), Some(before.clone()));

    // The same after a kill: its container is restarted.
    let started = || {
        fixture
            .ask(&["status"])
            .ok()
            .map(|status| status["started"].clone())
            .filter(|time| time.is_string())
    };
    let first = started().expect("its start time");
    let killed = cluster::output(pkill(), "");
    assert!(killed.status.success(), "{killed:?}");
    until("another daemon answers", TIME_LIMIT, || started().filter(|time| *time != first));
    assert_eq!(volume_health("a", 0), Some(before));
    fixture.fails(&drive, false);
    until("the findings are cleared", SOON, || is_healed("a"));
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_restart_on_a_dead_pool_invents_nothing_about_a_static_directory() {
    let mut fixture = Fixture::new();
    let (disk, served) = fixture.failing_disk("pool", 256);
    fixture.pool_on(&disk);
    let folder = fixture.path("static").join("kept");
    std::fs::create_dir(&folder).expect("a folder");
    fixture
        .configure(&format!("[[static]]\nname = \"kept\"\ndirectory = \"{}\"\n", folder.display()));
    fixture.install(&json!({}));
    let mut objects = given("a", DRIVER, "kept", As::Filesystem);
    objects.push(pod("a", &["a"], As::Filesystem));
    apply(&objects);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    until("its health is known", SOON, || volume_health("a", 0).is_none().then_some(()));

    fixture.served(served).fault(vec![Fault::reads(0..1 << 40)]);
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("nothing is cached");
    let started = || fixture.ask(&["status"]).ok().map(|status| status["started"].clone());
    let first = started().expect("its start time");
    assert!(cluster::output(pkill(), "").status.success());
    until("another daemon answers", TIME_LIMIT, || started().filter(|time| *time != first));
    let before = until("health was requested", TIME_LIMIT, || call_count("NodeGetVolumeHealth"));
    until("health was requested in some rounds", TIME_LIMIT, || {
        let conditions = volume_health("a", 0).unwrap_or_default();
        assert!(conditions.iter().all(|it| it.reason != "NotMounted"), "{conditions:?}");
        call_count("NodeGetVolumeHealth").filter(|count| *count >= before + 4.0)
    });
    fixture.served(served).fault(Vec::new());
    fixture.end();
}

fn pkill() -> std::process::Command {
    let mut pkill = cluster::command("/usr/bin/pkill");
    pkill.args(["--signal", "KILL", "--exact", "diskvitalsd"]);
    pkill
}

const NOWHERE: &str = r#"{"spec": {"template": {"spec": {"nodeSelector": {"nowhere": "here"}}}}}"#;
const ANYWHERE: &str = r#"{"spec": {"template": {"spec": {"nodeSelector": {"nowhere": null}}}}}"#;

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_raw_block_volume_shows_its_drives_smart_failure_until_it_is_over() {
    let (fixture, drive) = Fixture::with_a_pod(As::Block);
    fixture.fails(&drive, true);
    until("the volume health of the pod shows the drive failure", SOON, || {
        volume_health("a", 0).filter(|conditions| has(conditions, "Degraded", "DriveFailing"))
    });
    fixture.fails(&drive, false);
    until("the findings are cleared", SOON, || is_healed("a"));
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_volume_that_cannot_be_mounted_shows_its_cause_in_the_waiting_pod() {
    let mut fixture = Fixture::new();
    let (disk, served) = fixture.failing_disk("disk", 64);
    fixture.configure(&format!(
        "[[static]]\nname = \"disk-1\"\ndevice = \"{}\"\n",
        disk.device.display()
    ));
    fixture.install(&json!({}));
    fixture.served(served).set(Mode::Fail);
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("nothing is cached");
    let mut objects = given("a", DRIVER, "disk-1", As::Filesystem);
    objects.push(pod("a", &["a"], As::Filesystem));
    apply(&objects);
    let conditions = until("the volume health of the waiting pod shows the cause", SOON, || {
        volume_health("a", 0).filter(|conditions| !conditions.is_empty())
    });
    assert!(conditions.iter().all(|condition| !condition.message.is_empty()), "{conditions:?}");
    assert!(!is_running("a"));
    fixture.served(served).set(Mode::Pass);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    until("the findings are cleared", SOON, || is_healed("a"));
    fixture.end();
}

/// XFS, because the kernel lets ext4 grow while mounted only with CAP_SYS_RESOURCE, which some
/// machines do not give to containers.
#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_claim_grows_under_its_running_pod() {
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 2048).remove(0);
    fixture.pool_on(&drive.disk);
    fixture.install(&json!({
        "resizer": {"enabled": true, "image": "lab.local/csi-resizer:v2.3.0"},
        "storageClasses": [{"name": CLASS, "kind": "loop", "fsType": "xfs", "allowVolumeExpansion": true}]
    }));
    apply(&[claim("a", CLASS, "320Mi", As::Filesystem), pod("a", &["a"], As::Filesystem)]);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    kubectl(&[
        "patch",
        "pvc",
        "a",
        "-p",
        r#"{"spec": {"resources": {"requests": {"storage": "512Mi"}}}}"#,
    ]);
    until("the claim has its new size", TIME_LIMIT, || {
        let claim = cluster::get("pvc/a")?;
        (claim["status"]["capacity"]["storage"] == "512Mi").then_some(())
    });
    let kibibytes: u64 = kubectl(&[
        "exec",
        "a",
        "--",
        "/usr/bin/busybox",
        "sh",
        "-c",
        "busybox df -k /data/0 | busybox tail -n 1 | busybox awk '{print $2}'",
    ])
    .trim()
    .parse()
    .expect("a number");
    assert!(kibibytes > 400 << 10, "the pod has {kibibytes} KiB");
    assert_eq!(restarts("a"), Some(0));
    fixture.end();
}
