//! A status that Kubernetes refuses to store blocks a pod forever. Here a disk reports texts that
//! are too long or not printable, and every possible problem at once.

use serde_json::{Value, json};

use crate::claims::{As, DRIVER, given, is_running, pod, restarts, volume_health};
use crate::cluster::{SOON, TIME_LIMIT, apply, kubectl, try_kubectl, until};
use crate::fake_disks::FakeDisks;
use crate::fixture::Fixture;
use crate::smartctl::{SelfTest, SmartctlResponse};

/// The pod runs. Its container is restarted, then the pod is deleted. Each change must appear in
/// its status, which it does not when the API server refuses the status.
fn restart_and_delete(name: &str) {
    kubectl(&["exec", name, "--", "/usr/bin/busybox", "touch", "/tmp/stop"]);
    until("the restart is in its status", TIME_LIMIT, || {
        (restarts(name)? > 0 && is_running(name)).then_some(())
    });
    kubectl(&["delete", "pod", name, "--wait=false"]);
    let gone =
        || try_kubectl(&["get", "pod", name], "").is_err_and(|error| error.contains("NotFound"));
    until("it is deleted", TIME_LIMIT, || gone().then_some(()));
}

fn assert_no_status_refused() {
    let log = std::fs::read_to_string(crate::cluster::run().join("log/kubelet.log"))
        .expect("the kubelet's log");
    let refused: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Failed to update status for pod") && line.contains("nvalid"))
        .collect();
    assert_eq!(refused, Vec::<&str>::new());
}

/// Every problem that a disk can report, at once.
fn failing_response(disk: &FakeDisks) -> SmartctlResponse {
    let mut ata = disk.ata.clone();
    (ata.passed, ata.reallocated, ata.pending, ata.uncorrectable, ata.reported, ata.temperature) =
        (false, 1500, 300, 200, 150, 90);
    ata.self_tests =
        vec![SelfTest { extended: true, passed: false, hours: 19_990, lba: Some(123_456) }];
    ata.response()
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_pod_whose_drive_has_hostile_text_starts_restarts_and_is_deleted() {
    let mut fixture = Fixture::new();
    let disk = fixture.sata(1, 256).remove(0);
    let mut answer = failing_response(&disk);
    let text = format!(
        "\u{1b}[31m\"}}],\n\r\u{0}\u{7}\u{202e}\u{feff}{{{{.}}}} $(reboot) 🙂{}\\",
        "ä∀".repeat(100)
    );
    append_text(&mut answer.body, &text);
    fixture.smartctl.set_response(&disk.name, &answer).expect("an answer");
    fixture.configure(&format!(
        "[[static]]\nname = \"hostile\"\ndevice = \"{}\"\n",
        disk.disk.device.display()
    ));
    fixture.install(&json!({}));
    let mut objects = given("a", DRIVER, "hostile", As::Filesystem);
    objects.push(pod("a", &["a"], As::Filesystem));
    apply(&objects);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    let conditions = until("the volume health names its drive", SOON, || {
        volume_health("a", 0).filter(|conditions| !conditions.is_empty())
    });
    assert!(
        conditions
            .iter()
            .all(|condition| condition.message.len() <= 1024 && !condition.message.is_empty()),
        "{conditions:?}"
    );
    restart_and_delete("a");
    assert_no_status_refused();
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_pod_with_twenty_findings_on_one_volume_starts_restarts_and_is_deleted() {
    let mut fixture = Fixture::new();
    let (array, disks) = fixture.striped(10, 64);
    for disk in &disks {
        fixture.smartctl.set_response(&disk.name, &failing_response(disk)).expect("an answer");
    }
    fixture.configure(&format!(
        "[[static]]\nname = \"many\"\ndevice = \"{}\"\n",
        array.device.display()
    ));
    fixture.install(&json!({}));
    let mut objects = given("a", DRIVER, "many", As::Filesystem);
    objects.push(pod("a", &["a"], As::Filesystem));
    apply(&objects);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    let findings = || fixture.ask(&["findings"]).ok()?["findings"].as_array().map(Vec::len);
    let found = until("twenty findings", SOON, || findings().filter(|found| *found >= 20));
    // All findings concern the volume: its array has no redundancy.
    let conditions = until("the volume health names its drives", SOON, || {
        volume_health("a", 0).filter(|conditions| !conditions.is_empty())
    });
    println!("{found} findings, {} conditions", conditions.len());
    let mut of_a_kind: Vec<_> =
        conditions.iter().map(|condition| (&condition.status, &condition.reason)).collect();
    of_a_kind.sort_unstable();
    of_a_kind.dedup();
    assert!(of_a_kind.len() == conditions.len() && conditions.len() <= 16, "{conditions:?}");
    let named = |disk: &FakeDisks| {
        conditions
            .iter()
            .any(|condition| condition.message.contains(disk.name.trim_start_matches("/dev/")))
    };
    assert!(disks.iter().any(named), "{conditions:?}");
    restart_and_delete("a");
    assert_no_status_refused();
    fixture.end();
}

/// Appends to every text of the drive, except those that identify the drive or the format of the
/// response.
fn append_text(value: &mut Value, suffix: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !["serial_number", "device", "protocol", "smartctl"].contains(&name.as_str()) {
                    append_text(value, suffix);
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(|entry| append_text(entry, suffix)),
        Value::String(text) => text.push_str(suffix),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
