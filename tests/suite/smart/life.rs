//! Drives that age: which findings are raised, how they grow, and which of them stay.

use diskvitals_daemon::state::store::DATABASE;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::host::{Host, OFTEN, evidence, exchange, nvme, pause, sas, sata, state, value};
use crate::smartctl::{Ata, SelfTest};

/// The values of one metric, oldest first.
fn history(daemon: &super::host::Daemon, drive: &str, metric: &str) -> Vec<u64> {
    let history =
        daemon.ask(&["drive", drive, "--history"]).unwrap_or_else(|error| panic!("{error}"));
    let series = history["series"].as_array().cloned().unwrap_or_default();
    let points = series
        .iter()
        .find(|series| series["metric"] == metric)
        .map(|series| series["points"].clone())
        .unwrap_or_default();
    let number = |point: &Value| point["value"].as_str().unwrap_or("0").parse().expect("a number");
    points.as_array().into_iter().flatten().map(number).collect()
}

/// The values without repetitions, because the last reading is always a separate point.
fn steps(mut values: Vec<u64>) -> Vec<u64> {
    values.dedup();
    values
}

#[test]
fn the_cause_of_a_finding_has_its_number_and_its_growth_of_today() {
    let (host, daemon, _) = Host::with_pending_sectors(OFTEN);
    let pending = |daemon: &super::host::Daemon| {
        let status = daemon.ask(&["status"]).ok()?;
        let cause = status["causes"].as_array()?.first()?.clone();
        let findings = cause["findings"].as_array()?.clone();
        let finding = findings.into_iter().find(|finding| finding["reason"] == "PendingSectors")?;
        Some((cause, finding))
    };
    let (cause, finding) = daemon.until("there is a cause", pending);
    assert_eq!(
        (&cause["name"], &cause["kind"]),
        (&"sda".into(), &"KIND_DRIVE".into()),
        "{cause:#}"
    );
    // The first reading is no growth.
    assert_eq!((&finding["figure"], &finding["grownToday"]), (&"8".into(), &"0".into()));
    let more = Ata { pending: 24, ..sata() };
    host.smartctl.set_response("/dev/sda", &more.response()).expect("written");
    daemon.until("the growth is known", |daemon| {
        let (_, finding) = pending(daemon)?;
        (finding["figure"] == "24" && finding["grownToday"] == "16").then_some(())
    });
    assert!(daemon.text(&["status"]).contains("PendingSectors (24, +16 today)"));
}

#[test]
fn pending_sectors_that_are_reallocated_are_reported_with_their_growth() {
    let host = Host::new(OFTEN);
    let daemon = host.started();
    for drive in ["sda", "sdb", "nvme0n1"] {
        let drive = daemon.drive(drive).expect("a drive");
        assert_eq!(drive["health"], "HEALTH_GOOD", "{drive:#}");
        assert_eq!(drive["smart"]["passed"], true, "{drive:#}");
    }

    host.smartctl
        .set_response("/dev/sda", &Ata { pending: 8, ..sata() }.response())
        .expect("written");
    let finding = daemon.until("sectors wait", |daemon| daemon.finding("sda", "PendingSectors"));
    assert!(finding["message"].as_str().expect("text").contains('8'), "{finding:#}");
    assert!(evidence(&finding).contains("197 Current_Pending_Sector"), "{finding:#}");
    assert_ne!(daemon.drive("sda").expect("a drive")["health"], "HEALTH_GOOD");

    // The number grows: the finding stays the same and contains the growth.
    host.smartctl
        .set_response("/dev/sda", &Ata { pending: 24, reported: 3, ..sata() }.response())
        .expect("written");
    let grown = daemon.until("more wait", |daemon| {
        daemon
            .finding("sda", "PendingSectors")
            .filter(|finding| finding["message"].as_str().is_some_and(|text| text.contains("24")))
    });
    assert_eq!((&grown["id"], &grown["since"]), (&finding["id"], &finding["since"]));
    assert!(
        grown["message"].as_str().expect("text").contains(" more "),
        "how many more: {grown:#}"
    );

    // A new answer replaces the old values.
    host.smartctl
        .set_response("/dev/sda", &Ata { reallocated: 24, reported: 3, ..sata() }.response())
        .expect("written");
    let replaced =
        daemon.until("they are replaced", |daemon| daemon.finding("sda", "ReallocatedSectors"));
    assert!(evidence(&replaced).contains("5 Reallocated_Sector_Ct"), "{replaced:#}");
    assert!(replaced["message"].as_str().expect("text").contains("24"), "{replaced:#}");
    daemon.until("none waits", |daemon| daemon.finding("sda", "PendingSectors").is_none());

    // At the end the drive reports its own failure.
    host.smartctl
        .set_response(
            "/dev/sda",
            &Ata { reallocated: 1990, reported: 80, passed: false, ..sata() }.response(),
        )
        .expect("written");
    let failing =
        daemon.until("it says that it fails", |daemon| daemon.finding("sda", "SmartFailing"));
    assert_eq!(failing["severity"], "SEVERITY_BAD");
    daemon.until("the drive is bad", |daemon| {
        daemon.drive("sda").is_some_and(|drive| drive["health"] == "HEALTH_BAD")
    });

    assert_eq!(steps(history(&daemon, "sda", "pending")), [0, 8, 24, 0]);
    assert_eq!(steps(history(&daemon, "sda", "reallocated")), [0, 24, 1990]);
    for drive in ["sdb", "nvme0n1"] {
        assert!(daemon.findings(drive).is_empty(), "{:#?}", daemon.findings(drive));
    }
}

#[test]
fn another_drive_in_the_same_slot_starts_a_new_history() {
    let host = Host::new(OFTEN);
    host.smartctl
        .set_response("/dev/sda", &Ata { reallocated: 400, pending: 16, ..sata() }.response())
        .expect("written");
    let daemon = host.started();
    daemon.until("the old one is found", |daemon| daemon.finding("sda", "PendingSectors"));
    let old = daemon.drive("sda").expect("a drive")["id"].clone();

    host.smartctl
        .set_response("/dev/sda", &Ata { hours: 3, ..Ata::new("ZL299999", 0xa009_9999) }.response())
        .expect("written");
    exchange(&host.root(), ("ZL200000", "5000c500a0000000"), ("ZL299999", "5000c500a0099999"));
    daemon.ask(&["refresh"]).expect("asked");
    daemon.until("the new one is seen, and has answered", |daemon| {
        let drive = daemon.drive("sda")?;
        (drive["id"] != old && drive["serial"] == "ZL299999").then_some(())?;
        state(&drive, "STATE_ANSWERED")
    });
    let new = daemon.drive("sda").expect("a drive");
    assert_eq!(
        (&new["health"], &new["findings"]),
        (&Value::from("HEALTH_GOOD"), &Value::from(Vec::<Value>::new())),
        "{new:#}"
    );
    assert_eq!(steps(history(&daemon, "ZL299999", "reallocated")), [0]);
    assert_eq!(
        steps(history(&daemon, "ZL200000", "reallocated")),
        [400],
        "what the old one said is the old one's"
    );
}

#[test]
fn an_answer_with_another_serial_number_is_not_added_to_the_history() {
    // The new drive in the slot is polled before the kernel's state of it is read again.
    let host = Host::new(OFTEN);
    host.smartctl
        .set_response("/dev/sda", &Ata { reallocated: 400, ..sata() }.response())
        .expect("written");
    let daemon = host.started();
    host.smartctl
        .set_response(
            "/dev/sda",
            &Ata { hours: 3, reallocated: 2, ..Ata::new("ZL299999", 0xa009_9999) }.response(),
        )
        .expect("written");
    let polls = host.polls("/dev/sda");
    daemon.until("it was asked twice more", |_| host.polls("/dev/sda") >= polls + 2);
    let values = steps(history(&daemon, "sda", "reallocated"));
    assert!(values == [400] || values == [2], "two drives in one series: {values:?}");
}

#[test]
fn a_drive_in_standby_is_not_woken_and_judged_by_its_last_answer() {
    let (host, daemon, before) = Host::with_pending_sectors(OFTEN);
    host.smartctl.set_behavior("/dev/sda", "asleep").expect("written");
    daemon.until("it sleeps", |daemon| state(&daemon.drive("sda")?, "STATE_ASLEEP"));
    let answered = daemon.drive("sda").expect("a drive")["smart"]["answered"].clone();

    let polls = host.smartctl.count_calls("/dev/sda", "");
    daemon.until("it was asked three times more whether it still does", |_| {
        host.smartctl.count_calls("/dev/sda", "") >= polls + 3
    });
    let asleep = daemon.drive("sda").expect("a drive");
    assert_eq!(asleep["smart"]["answered"], answered, "the last answer keeps its time");
    assert_ne!(asleep["health"], "HEALTH_UNKNOWN");
    let after = daemon.finding("sda", "PendingSectors").expect("the last verdict stands");
    assert_eq!((&before["id"], &before["since"]), (&after["id"], &after["since"]));
    assert!(
        daemon.findings("sda").iter().all(|finding| finding["reason"] != "SmartUnavailable"),
        "sleep is no fault"
    );
    // No query could wake the drive.
    for call in host
        .smartctl
        .calls()
        .iter()
        .filter(|call| call.contains("/dev/sda") && call.starts_with("begin"))
    {
        assert!(
            call.contains("-n standby") || call.contains("--nocheck=standby"),
            "this may wake it: {call}"
        );
    }
    host.smartctl.set_response("/dev/sda", &sata().response()).expect("written");
    daemon.until("awake, its finding clears", |daemon| {
        daemon.finding("sda", "PendingSectors").is_none()
    });
}

#[test]
fn an_nvme_drive_with_exhausted_spare_blocks_is_bad() {
    let host = Host::new(OFTEN);
    let daemon = host.started();
    let with = |spare: u8, critical_warning: u8| {
        let answer = crate::smartctl::Nvme { spare, critical_warning, ..nvme() }.response();
        host.smartctl.set_response("/dev/nvme0", &answer).expect("written");
    };
    with(60, 0);
    daemon.until("the figure is there", |daemon| {
        value(&daemon.drive("nvme0n1")?, "spare_percent").filter(|percent| *percent == 60)
    });
    assert!(daemon.finding("nvme0n1", "SpareLow").is_none(), "60 % are enough");
    with(4, 1);
    let low = daemon.until("hardly any is left", |daemon| daemon.finding("nvme0n1", "SpareLow"));
    assert!(
        low["message"].as_str().expect("text").contains('4') && !evidence(&low).is_empty(),
        "{low:#}"
    );
    // Only heat: it has its own reason and is no sign of failure.
    with(100, 2);
    daemon.until("it is hot", |daemon| daemon.finding("nvme0n1", "Overheating"));
    daemon
        .until("the spare is well again", |daemon| daemon.finding("nvme0n1", "SpareLow").is_none());
    let hot = daemon.drive("nvme0n1").expect("a drive");
    assert_ne!(hot["health"], "HEALTH_BAD", "{hot:#}");
    assert!(daemon.finding("nvme0n1", "SmartFailing").is_none(), "{hot:#}");
    with(100, 8);
    daemon.until("it takes no more writes", |daemon| daemon.finding("nvme0n1", "DriveReadOnly"));
}

#[test]
fn a_sas_disk_that_predicts_its_failure_is_bad() {
    let host = Host::new(OFTEN);
    let daemon = host.started();
    let answer =
        crate::smartctl::Scsi { exception: Some((0x5d, 0x10)), grown_defects: 900, ..sas() }
            .response();
    host.smartctl.set_response("/dev/sdb", &answer).expect("written");
    let failing = daemon.until("it says so", |daemon| daemon.finding("sdb", "SmartFailing"));
    assert_eq!(failing["severity"], "SEVERITY_BAD", "{failing:#}");
}

#[test]
fn a_failed_self_test_is_cleared_by_a_passed_extended_one() {
    let host = Host::new(OFTEN);
    let daemon = host.started();
    let failed = SelfTest { extended: true, passed: false, hours: 19_990, lba: Some(123_456) };
    host.smartctl
        .set_response("/dev/sda", &Ata { self_tests: vec![failed.clone()], ..sata() }.response())
        .expect("written");
    let finding = daemon
        .until("the drive's own test failed", |daemon| daemon.finding("sda", "SelfTestFailed"));
    assert!(evidence(&finding).contains("123456"), "where: {finding:#}");
    let passed = SelfTest { extended: true, passed: true, hours: 19_999, lba: None };
    host.smartctl
        .set_response("/dev/sda", &Ata { self_tests: vec![passed, failed], ..sata() }.response())
        .expect("written");
    daemon.until("a later test has passed", |daemon| {
        daemon.finding("sda", "SelfTestFailed").is_none()
    });
}

#[test]
fn crc_errors_are_attributed_to_the_cable() {
    // The default limit ignores one occasion, because a person may have moved the cable.
    let host = Host::new(&format!("{OFTEN}\n[smart.limits]\ngrowth_occasions = 1\n"));
    host.smartctl
        .set_response("/dev/sda", &Ata { crc: 108, ..sata() }.response())
        .expect("written");
    let daemon = host.started();
    assert!(
        daemon.findings("sda").is_empty(),
        "an old count is history: {:#?}",
        daemon.findings("sda")
    );
    host.smartctl
        .set_response("/dev/sda", &Ata { crc: 140, ..sata() }.response())
        .expect("written");
    let finding = daemon.until("it grows", |daemon| daemon.finding("sda", "LinkErrors"));
    assert!(evidence(&finding).contains("199 UDMA_CRC_Error_Count"), "{finding:#}");
    assert_ne!(daemon.drive("sda").expect("a drive")["health"], "HEALTH_BAD");
}

/// The number of matching rows in the daemon's database.
fn stored(host: &Host, rows: &str) -> i64 {
    let database = host.state_dir().join(DATABASE);
    let Ok(connection) = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)
    else {
        return 0;
    };
    connection
        .query_row(&format!("SELECT count(*) FROM {rows}"), [], |row| row.get(0))
        .unwrap_or_default()
}

#[test]
fn a_killed_daemon_restores_its_state_and_does_not_poll_early() {
    let (host, daemon, before) = Host::with_pending_sectors(
        "interval = \"1h\"\nsuspect_interval = \"1h\"\nshortest_interval = \"1s\"\n",
    );
    // A daemon killed before this point would correctly query again.
    daemon.until("the finding and three answers are stored", |_| {
        stored(&host, "findings") > 0 && stored(&host, "memories WHERE topic = 'smart'") == 3
    });
    let polls = ["/dev/sda", "/dev/sdb", "/dev/nvme0"].map(|device| host.polls(device));
    daemon.kill();

    let daemon = host.start();
    let after =
        daemon.until("the finding is there", |daemon| daemon.finding("sda", "PendingSectors"));
    assert_eq!((&before["id"], &before["since"]), (&after["id"], &after["since"]));
    assert_eq!(steps(history(&daemon, "sda", "pending")), [8]);
    pause(3000);
    assert_eq!(
        ["/dev/sda", "/dev/sdb", "/dev/nvme0"].map(|device| host.polls(device)),
        polls,
        "asked again within the hour"
    );
    assert!(
        daemon.finding("sda", "PendingSectors").is_some(),
        "and not forgotten while nobody asks"
    );
}

#[test]
fn maintenance_outlives_a_kill_and_ends_by_itself() {
    let (host, daemon, finding) = Host::with_pending_sectors(OFTEN);
    assert!(finding["maintained"].is_null(), "{finding:#}");
    let is_maintained = |daemon: &super::host::Daemon| {
        daemon.finding("sda", "PendingSectors").map(|finding| finding["maintained"] == true)
    };
    let order = daemon.ask(&["maintenance", "sda", "1h", "--note", "swapping the cable"]);
    let order = order.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((&order["name"], &order["note"]), (&"sda".into(), &"swapping the cable".into()));
    assert_eq!(is_maintained(&daemon), Some(true));
    for command in [&["status"][..], &["maintenance"], &["drives"], &["drive", "sda"]] {
        let text = daemon.text(command);
        assert!(text.to_lowercase().contains("maintenance") && text.contains(" until "), "{text}");
    }
    daemon.kill();
    let daemon = host.started();
    assert_eq!(is_maintained(&daemon), Some(true));
    assert!(daemon.text(&["explain", "sda"]).contains("swapping the cable"));

    daemon
        .ask(&["maintenance", "sda", "1s", "--note", "done"])
        .unwrap_or_else(|error| panic!("{error}"));
    daemon.until("it counts again", |daemon| is_maintained(daemon) == Some(false));
    assert_eq!(daemon.text(&["maintenance"]), "nothing is under maintenance\n");
    let refused = daemon.ask(&["maintenance", "sda", "end"]).expect_err("there is none");
    assert!(refused.contains("sda is not under maintenance by a command"), "{refused}");
    let refused = daemon.ask(&["maintenance", "sda", "31d", "--note", "x"]).expect_err("too long");
    assert!(refused.contains("length: is a second to 30 days"), "{refused}");
}

#[test]
fn an_acknowledgement_survives_further_polls() {
    let host = Host::new(OFTEN);
    host.smartctl
        .set_response("/dev/sda", &Ata { reallocated: 4, ..sata() }.response())
        .expect("written");
    let daemon = host.started();
    let finding = daemon
        .until("four sectors were replaced", |daemon| daemon.finding("sda", "ReallocatedSectors"));
    let id = finding["id"].as_str().expect("an id");
    daemon
        .ask(&["ack", id, "--note", "four since it was new"])
        .unwrap_or_else(|error| panic!("{error}"));
    let polls = host.polls("/dev/sda");
    daemon.until("it was asked twice more", |_| host.polls("/dev/sda") >= polls + 2);
    let finding = daemon.finding("sda", "ReallocatedSectors").expect("still told");
    assert_eq!(finding["id"], id);
    assert!(!finding["acknowledged"].is_null(), "{finding:#}");
}
