//! A smartctl that misbehaves for one drive: the daemon concludes nothing from it, forgets nothing,
//! and serves the other drives as before.

use std::time::Duration;

use serde_json::{Value, json};

use super::host::{Daemon, Host, OFTEN, nvme, sas, sata, state, value};
use crate::smartctl::{Nvme, Scsi};

/// `sda` has a finding, then smartctl shows the behavior `what` for it.
fn misbehaves(what: &str, why: &[&str]) {
    let (host, daemon, before) = Host::with_pending_sectors(OFTEN);
    host.smartctl.set_behavior("/dev/sda", what).expect("written");
    let drive = daemon.until("it has failed to answer", |daemon| {
        let drive = daemon.drive("sda")?;
        state(&drive, "STATE_FAILED").map(|()| drive)
    });
    let detail = drive["smart"]["detail"].as_str().expect("why");
    assert!(why.iter().any(|word| detail.contains(word)), "why: {detail}");
    // The finding stays, and no new one is raised.
    let after = daemon.finding("sda", "PendingSectors").expect("a failed question clears nothing");
    assert_eq!((&before["id"], &before["since"]), (&after["id"], &after["since"]));
    assert_eq!(
        daemon.findings("sda").len(),
        1,
        "and raises nothing: {:#?}",
        daemon.findings("sda")
    );
    assert_eq!(value(&drive, "pending"), Some(8), "the last answer stands");
    the_others_answer(&host, &daemon);

    host.smartctl.set_response("/dev/sda", &sata().response()).expect("written");
    daemon.until("it answers again, and all is well", |daemon| {
        daemon.drive("sda").is_some_and(|drive| drive["health"] == "HEALTH_GOOD")
    });
}

/// Both drives are still polled, and their answers are read.
fn the_others_answer(host: &Host, daemon: &Daemon) {
    host.smartctl
        .set_response("/dev/sdb", &Scsi { temperature: 41, ..sas() }.response())
        .expect("written");
    host.smartctl
        .set_response("/dev/nvme0", &Nvme { temperature: 42, ..nvme() }.response())
        .expect("written");
    for (drive, degrees) in [("sdb", 41), ("nvme0n1", 42)] {
        daemon.until(&format!("{drive} is heard"), |daemon| {
            daemon.drive(drive).is_some_and(|drive| drive["smart"]["temperatureCelsius"] == degrees)
        });
        assert!(daemon.findings(drive).is_empty(), "{:#?}", daemon.findings(drive));
    }
}

#[test]
fn a_hundred_megabytes_of_output_are_a_failed_query() {
    misbehaves("flood", &["MiB", "KiB", "too long", "more than", "output", "JSON"]);
}

#[test]
fn truncated_json_is_a_failed_query() {
    misbehaves("half", &["JSON"]);
}

#[test]
fn plain_text_is_a_failed_query() {
    misbehaves("text", &["JSON", "text"]);
}

#[test]
fn a_smartctl_killed_by_a_signal_is_a_failed_query() {
    misbehaves("signal SEGV", &["signal"]);
}

#[test]
fn a_drive_that_never_answered_is_unknown_with_the_reason() {
    let host = Host::new(OFTEN);
    host.smartctl.set_behavior("/dev/sda", "half").expect("written");
    let daemon = host.start();
    let drive = daemon.until("it is unknown", |daemon| {
        daemon.drive("sda").filter(|drive| drive["health"] == "HEALTH_UNKNOWN")
    });
    assert!(
        drive["healthUnknownWhy"].as_str().is_some_and(|why| why.contains("SMART")),
        "{drive:#}"
    );
    assert!(daemon.findings("sda").is_empty(), "{:#?}", daemon.findings("sda"));
}

#[test]
fn a_bridge_that_answers_for_the_drive_leaves_it_unknown_and_values_left_out_are_shown() {
    let (host, daemon, before) = Host::with_pending_sectors(OFTEN);
    let mut bridge = sata().response();
    bridge.body = json!({
        "smartctl": {"version": [7, 4], "exit_status": 0},
        "device": {"name": "/dev/sda", "type": "scsi", "protocol": "SCSI"},
        "scsi_vendor": "ASMT", "scsi_product": "2115", "smart_status": {"passed": true},
        "temperature": {"current": 0, "drive_trip": 0},
    });
    host.smartctl.set_response("/dev/sda", &bridge).expect("written");
    let drive = daemon.until("it is unknown", |daemon| {
        daemon.drive("sda").filter(|drive| drive["smart"]["state"] == "STATE_FAILED")
    });
    let detail = drive["smart"]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("sntasmedia"), "{drive:#}");
    let after = daemon.finding("sda", "PendingSectors").expect("it clears nothing");
    assert_eq!(before["id"], after["id"]);

    let mut odd = nvme().response();
    odd.body["nvme_smart_health_information_log"]["available_spare_threshold"] = json!(255);
    host.smartctl.set_response("/dev/nvme0", &odd).expect("written");
    let drive = daemon.until("the note is there", |daemon| {
        daemon.drive("nvme0n1").filter(|drive| {
            drive["smart"]["notes"].as_array().is_some_and(|notes| !notes.is_empty())
        })
    });
    assert_eq!(drive["health"], "HEALTH_GOOD", "{drive:#}");
    let note = drive["smart"]["notes"][0].as_str().unwrap_or_default();
    assert!(note.contains("spare threshold 255 %"), "{note}");
}

#[test]
fn a_hung_drive_delays_no_other() {
    let host = Host::new(
        "interval = \"1s\"\nsuspect_interval = \"1s\"\nidle_interval = \"1s\"\nshortest_interval = \"1s\"\ntimeout = \"3s\"\n",
    );
    host.smartctl.set_behavior("/dev/sda", "hang").expect("written");
    let daemon = host.start();
    // These answer long before the time limit.
    for drive in ["sdb", "nvme0n1"] {
        daemon.until(&format!("{drive} has answered"), |daemon| {
            state(&daemon.drive(drive)?, "STATE_ANSWERED")
        });
    }
    let silent = |drive: &Value| {
        drive["findings"]
            .as_array()
            .is_some_and(|all| all.iter().any(|finding| finding["reason"] == "ProbeTimeout"))
    };
    let drive = daemon.until("its time is over", |daemon| daemon.drive("sda").filter(silent));
    assert!(
        drive["findings"][0]["message"]
            .as_str()
            .is_some_and(|text| text.contains("has not ended after 3s")),
        "how long: {drive:#}"
    );
    // Killable programs are killed, and the other drives are queried without a pause.
    the_others_answer(&host, &daemon);
    host.smartctl.reset_behavior("/dev/sda").expect("written");
    host.smartctl.set_response("/dev/sda", &sata().response()).expect("written");
    daemon.within(Duration::from_secs(60), "it answers again", |daemon| {
        daemon.drive("sda").filter(|drive| drive["health"] == "HEALTH_GOOD")
    });
}
