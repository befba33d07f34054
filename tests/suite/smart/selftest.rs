//! Self-tests: the command, the progress, and refusals.

use super::host::{Host, OFTEN, sata, state};
use crate::smartctl::{Ata, SelfTest, self_test_response};

#[test]
fn a_self_test_is_started_followed_and_read() {
    let host = Host::new(OFTEN);
    host.smartctl.set_self_test_response("/dev/sda", &self_test_response(true)).expect("written");
    let daemon = host.started();
    assert_eq!(host.smartctl.count_calls("/dev/sda", "-t"), 0, "nobody has asked for one");
    daemon
        .ask(&["self-test", "--no-wait", "sda", "short"])
        .unwrap_or_else(|error| panic!("{error}"));
    let asked = daemon.until("the drive took it", |daemon| {
        let requested = daemon.drive("sda")?["smart"]["selfTests"]["requested"].clone();
        (requested["started"] == true).then_some(requested)
    });
    assert_eq!(asked["kind"], "SELF_TEST_KIND_SHORT", "{asked:#}");
    assert!(host.smartctl.calls().iter().any(|call| call.starts_with("begin")
        && call.contains("-t short")
        && call.contains("/dev/sda")));

    host.smartctl
        .set_response("/dev/sda", &Ata { running: Some(40), ..sata() }.response())
        .expect("written");
    daemon.until("its progress is told", |daemon| {
        daemon
            .drive("sda")
            .filter(|drive| drive["smart"]["selfTests"]["runningRemainingPercent"] == 40)
    });
    let passed = SelfTest { extended: false, passed: true, hours: 20_000, lba: None };
    host.smartctl
        .set_response("/dev/sda", &Ata { self_tests: vec![passed], ..sata() }.response())
        .expect("written");
    let log = daemon.until("its result is told", |daemon| {
        let log = daemon.drive("sda")?["smart"]["selfTests"]["log"].as_array()?.clone();
        (!log.is_empty()).then_some(log)
    });
    assert_eq!(log[0]["outcome"], "passed", "{log:#?}");
}

#[test]
fn a_refused_self_test_is_reported_with_the_reason() {
    let host = Host::new(OFTEN);
    host.smartctl.set_self_test_response("/dev/sda", &self_test_response(false)).expect("written");
    let daemon = host.started();
    // The drive's answer is stored afterwards, even if the command does not wait for it.
    let said = daemon.text(&["self-test", "--no-wait", "sda", "long"]);
    let asked = daemon.until("the refusal is told", |daemon| {
        let requested = daemon.drive("sda")?["smart"]["selfTests"]["requested"].clone();
        requested.is_object().then_some(requested)
    });
    assert_ne!(asked["started"], true, "{asked:#}; {said}");
    assert!(
        asked["text"].as_str().is_some_and(|text| text.contains("40% remaining")),
        "{asked:#}; {said}"
    );
    state(&daemon.drive("sda").expect("a drive"), "STATE_ANSWERED").expect("it still answers");
    assert!(
        daemon.findings("sda").is_empty(),
        "no fault of the drive: {:#?}",
        daemon.findings("sda")
    );
}

#[test]
fn a_device_that_is_no_drive_is_not_tested() {
    let host = Host::new(OFTEN);
    let daemon = host.started();
    assert!(daemon.ask(&["self-test", "sdq", "short"]).is_err());
    assert!(daemon.ask(&["self-test", "sda", "thorough"]).is_err());
}

/// The drive's log says when a test is due, so that neither a restart nor somebody else's test makes two.
#[test]
fn a_schedule_starts_a_test_that_is_due_once_also_over_a_kill() {
    let host = Host::new(OFTEN);
    host.smartctl.set_self_test_response("/dev/sda", &self_test_response(true)).expect("written");
    let old = SelfTest { extended: true, passed: true, hours: 9_000, lba: None };
    host.smartctl
        .set_response("/dev/sda", &Ata { self_tests: vec![old], ..sata() }.response())
        .expect("written");
    host.configure_also(
        "[[schedule]]\ntasks = [\"short-self-test\"]\ndrives = [\"sda\"]\nevery = \"7d\"\njitter = \"0s\"",
    );
    let daemon = host.started();
    let starts = || host.smartctl.count_calls("/dev/sda", "-t");
    daemon.until("the test begins", |_| (starts() == 1).then_some(()));
    host.smartctl
        .set_response("/dev/sda", &Ata { running: Some(40), ..sata() }.response())
        .expect("written");
    let shown = daemon.until("the schedule shows it", |daemon| {
        let shown = daemon.text(&["care"]);
        shown.contains("runs now").then_some(shown)
    });
    assert!(shown.contains("sda") && shown.contains("short self-test"), "{shown}");
    assert!(!shown.contains("nvme0n1"), "{shown}");
    daemon.kill();
    let daemon = host.started();
    daemon
        .until("it still runs", |daemon| daemon.text(&["care"]).contains("runs now").then_some(()));
    let passed = SelfTest { extended: false, passed: true, hours: 20_000, lba: None };
    host.smartctl
        .set_response("/dev/sda", &Ata { self_tests: vec![passed], ..sata() }.response())
        .expect("written");
    daemon.until("the next one is in a week", |daemon| {
        let care = daemon.drive("sda")?["care"][0].clone();
        (care["state"] == "STATE_WAITING" && care["ended"].is_string()).then_some(())
    });
    assert_eq!(starts(), 1);
}
