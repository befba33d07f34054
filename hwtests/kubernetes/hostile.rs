//! What Kubernetes refuses to store freezes a pod for good: words that would not fit, of a disk
//! with everything wrong that it can tell.

use serde_json::{Value, json};

use crate::claims::{As, DRIVER, given, is_running, pod, restarts, volume_health};
use crate::cluster::{PATIENCE, SOON, apply, kubectl, try_kubectl, until};
use crate::fake_disks::FakeDisks;
use crate::fixture::Fixture;
use crate::smartctl::{SelfTest, SmartctlResponse};

/// Started already: its container ends and is started again, it is deleted, and each of it shows,
/// which it does not where the API server refuses the status.
fn lives_and_dies(name: &str) {
    kubectl(&["exec", name, "--", "/usr/bin/busybox", "touch", "/tmp/stop"]);
    until("it was started again, and that shows", PATIENCE, || {
        (restarts(name)? > 0 && is_running(name)).then_some(())
    });
    kubectl(&["delete", "pod", name, "--wait=false"]);
    let gone =
        || try_kubectl(&["get", "pod", name], "").is_err_and(|error| error.contains("NotFound"));
    until("it is deleted", PATIENCE, || gone().then_some(()));
}

fn nothing_was_refused() {
    let log = std::fs::read_to_string(crate::cluster::run().join("log/kubelet.log"))
        .expect("the kubelet's log");
    let refused: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Failed to update status for pod") && line.contains("nvalid"))
        .collect();
    assert_eq!(refused, Vec::<&str>::new());
}

/// Everything at once that a disk can tell.
fn wretched(disk: &FakeDisks) -> SmartctlResponse {
    let mut ata = disk.ata.clone();
    (
        ata.passed,
        ata.reallocated,
        ata.pending,
        ata.uncorrectable,
        ata.reported,
        ata.temperature,
    ) = (false, 1500, 300, 200, 150, 90);
    ata.self_tests = vec![SelfTest {
        extended: true,
        passed: false,
        hours: 19_990,
        lba: Some(123_456),
    }];
    ata.response()
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_pod_whose_drive_has_hostile_text_starts_restarts_and_is_deleted() {
    let mut fixture = Fixture::new();
    let disk = fixture.sata(1, 256).remove(0);
    let mut answer = wretched(&disk);
    let words = format!(
        "\u{1b}[31m\"}}],\n\r\u{0}\u{7}\u{202e}\u{feff}{{{{.}}}} $(reboot) 🙂{}\\",
        "ä∀".repeat(100)
    );
    spoil(&mut answer.body, &words);
    fixture
        .smartctl
        .set_response(&disk.name, &answer)
        .expect("an answer");
    fixture.configure(&format!(
        "[[static]]\nname = \"hostile\"\ndevice = \"{}\"\n",
        disk.disk.device.display()
    ));
    fixture.install(&json!({}));
    let mut objects = given("a", DRIVER, "hostile", As::Filesystem);
    objects.push(pod("a", &["a"], As::Filesystem));
    apply(&objects);
    until("the pod runs", PATIENCE, || is_running("a").then_some(()));
    let told = until("its volume tells of its drive", SOON, || {
        volume_health("a", 0).filter(|told| !told.is_empty())
    });
    assert!(
        told.iter()
            .all(|condition| condition.message.len() <= 1024 && !condition.message.is_empty()),
        "{told:?}"
    );
    lives_and_dies("a");
    nothing_was_refused();
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_pod_with_twenty_findings_on_one_volume_starts_restarts_and_is_deleted() {
    let mut fixture = Fixture::new();
    let (array, disks) = fixture.striped(10, 64);
    for disk in &disks {
        fixture
            .smartctl
            .set_response(&disk.name, &wretched(disk))
            .expect("an answer");
    }
    fixture.configure(&format!(
        "[[static]]\nname = \"many\"\ndevice = \"{}\"\n",
        array.device.display()
    ));
    fixture.install(&json!({}));
    let mut objects = given("a", DRIVER, "many", As::Filesystem);
    objects.push(pod("a", &["a"], As::Filesystem));
    apply(&objects);
    until("the pod runs", PATIENCE, || is_running("a").then_some(()));
    let findings = || {
        fixture.ask(&["findings"]).ok()?["findings"]
            .as_array()
            .map(Vec::len)
    };
    let found = until("twenty things are found", SOON, || {
        findings().filter(|found| *found >= 20)
    });
    // All of them concern the volume: its array has no redundancy.
    let told = until("its volume tells of its drives", SOON, || {
        volume_health("a", 0).filter(|told| !told.is_empty())
    });
    println!("{found} findings, {} conditions", told.len());
    let mut of_a_kind: Vec<_> = told
        .iter()
        .map(|condition| (&condition.status, &condition.reason))
        .collect();
    of_a_kind.sort_unstable();
    of_a_kind.dedup();
    assert!(
        of_a_kind.len() == told.len() && told.len() <= 16,
        "{told:?}"
    );
    let named = |disk: &FakeDisks| {
        told.iter().any(|condition| {
            condition
                .message
                .contains(disk.name.trim_start_matches("/dev/"))
        })
    };
    assert!(disks.iter().any(named), "{told:?}");
    lives_and_dies("a");
    nothing_was_refused();
    fixture.end();
}

/// Wherever a drive's own words may be, but for what says which drive it is and how the answer is
/// to be read.
fn spoil(value: &mut Value, words: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !["serial_number", "device", "protocol", "smartctl"].contains(&name.as_str()) {
                    spoil(value, words);
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(|entry| spoil(entry, words)),
        Value::String(text) => text.push_str(words),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
