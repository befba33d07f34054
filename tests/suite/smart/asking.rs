//! Queries: which drives, how often, with which options; and a node without a usable smartctl.

use super::host::{Host, OFTEN, pause, sas, sata, state};
use crate::smartctl::{Ata, Scsi, without_smart};

/// The source reports the reason why it cannot work; drives with SMART are unknown for it, and their
/// volumes are not.
fn no_smartctl(settings: &str, why: &str, prepare: impl FnOnce(&Host)) {
    let host = Host::new(OFTEN);
    prepare(&host);
    host.configure(settings);
    let daemon = host.start();
    let source = daemon.until("the source says why", |daemon| {
        let source = daemon.source()?;
        (source["state"] == "STATE_DOWN" || source["state"] == "STATE_ABSENT").then_some(source)
    });
    assert!(source["detail"].as_str().expect("text").contains(why), "{source:#}");
    let drives = ["sda", "sdb", "nvme0n1"];
    let is_unknown = |drive: &serde_json::Value| {
        let unknown_why = drive["healthUnknownWhy"].as_str().unwrap_or_default();
        drive["health"] == "HEALTH_UNKNOWN" && unknown_why.contains(why)
    };
    daemon.until("every drive is unknown, with the reason", |daemon| {
        drives.iter().all(|drive| daemon.drive(drive).is_some_and(|drive| is_unknown(&drive)))
    });
    // The state does not change. No event announces that, so the test waits.
    pause(2000);
    for drive in drives {
        let drive = daemon.drive(drive).expect("a drive");
        assert!(is_unknown(&drive), "{drive:#}");
        assert_eq!(
            drive["findings"].as_array().map(Vec::len),
            Some(0),
            "one state of the node, not an alarm per drive: {drive:#}"
        );
    }
    let volumes = daemon.ask(&["volumes"]).expect("answered");
    let volumes = volumes["volumes"].as_array().expect("a list");
    assert!(
        !volumes.is_empty() && volumes.iter().all(|it| it["health"] == "HEALTH_GOOD"),
        "judged by their own evidence: {volumes:#?}"
    );
}

#[test]
fn a_missing_smartctl_is_reported_once_for_the_node() {
    no_smartctl("command = \"/nonexistent/smartctl\"\n", "/nonexistent/smartctl", |_| {});
}

#[test]
fn a_smartctl_that_is_too_old_is_treated_as_missing() {
    let host = Host::new(OFTEN);
    let settings = format!("command = \"{}\"\n", host.smartctl.program().display());
    no_smartctl(&settings.clone(), "7.0", |_| host.smartctl.set_version("6.6").expect("written"));
    assert_eq!(host.smartctl.count_calls("/dev/sda", ""), 0, "it was not asked about drives");
}

#[test]
fn a_smartctl_that_is_installed_later_is_found() {
    let host = Host::new(OFTEN);
    let program = host.smartctl.program();
    let aside = program.with_file_name("aside");
    std::fs::rename(&program, &aside).expect("moved");
    let daemon = host.start();
    daemon.until("there is none", |daemon| {
        daemon.source().is_some_and(|source| {
            source["state"] == "STATE_DOWN" || source["state"] == "STATE_ABSENT"
        })
    });
    std::fs::rename(&aside, &program).expect("moved");
    daemon.ask(&["refresh"]).expect("asked");
    daemon.until("it is used", |daemon| state(&daemon.drive("sda")?, "STATE_ANSWERED"));
}

#[test]
fn no_drive_is_asked_twice_at_a_time_and_two_drives_at_most() {
    let host = Host::new(OFTEN);
    for device in ["/dev/sda", "/dev/sdb", "/dev/nvme0"] {
        std::fs::write(
            host.smartctl
                .program()
                .parent()
                .expect("a folder")
                .join(format!("{}.sleep", &device[1..])),
            "0.3\n",
        )
        .expect("written");
    }
    let daemon = host.started();
    for _ in 0..10 {
        // Refresh requests arrive continuously.
        daemon.ask(&["refresh"]).expect("asked");
        pause(150);
    }
    let mut running: Vec<String> = Vec::new();
    for line in host.smartctl.calls() {
        match line.split_once(' ') {
            Some(("begin", asked)) => {
                let device = |asked: &str| {
                    asked
                        .split(' ')
                        .find(|word| word.contains("/dev/"))
                        .unwrap_or_default()
                        .to_owned()
                };
                assert!(
                    running.iter().all(|other| device(other) != device(asked)),
                    "{asked} while {running:?}"
                );
                running.push(asked.to_owned());
                assert!(running.len() <= 2, "at a time: {running:?}");
            }
            Some(("end", asked)) => running.retain(|other| other != asked),
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn a_disk_without_smart_is_good() {
    let host = Host::new(OFTEN);
    host.smartctl
        .set_response("/dev/sdb", &without_smart("SEAGATE", "ST4000NM0295", "ZL200001"))
        .expect("written");
    let daemon = host.start();
    let drive = daemon.until("there is none to be had", |daemon| {
        let drive = daemon.drive("sdb")?;
        state(&drive, "STATE_NOT_APPLICABLE").map(|()| drive)
    });
    assert_eq!(drive["health"], "HEALTH_GOOD", "{drive:#}");
    let said = daemon.findings("sdb");
    assert!(said.iter().all(|finding| finding["severity"] == "SEVERITY_INFO"), "{said:#?}");
}

#[test]
fn changed_limits_and_overrides_take_effect_without_a_restart() {
    let host = Host::new(OFTEN);
    host.smartctl
        .set_response("/dev/sda", &Ata { reallocated: 12, ..sata() }.response())
        .expect("written");
    host.smartctl
        .set_response("/dev/sdb", &Scsi { grown_defects: 12, ..sas() }.response())
        .expect("written");
    let daemon = host.started();
    daemon.until("sectors were replaced", |daemon| daemon.finding("sda", "ReallocatedSectors"));
    daemon.until("on the other as well", |daemon| daemon.finding("sdb", "ReallocatedSectors"));
    host.configure_also(
        "[[smart.override]]\nserial = \"ZL200000\"\nignore_reasons = [\"ReallocatedSectors\"]\n",
    );
    daemon.until("no longer of this one", |daemon| {
        daemon.finding("sda", "ReallocatedSectors").is_none()
    });
    assert!(daemon.finding("sdb", "ReallocatedSectors").is_some(), "of the other it is still told");
    // `ignore`: the drive is not polled, except for a poll that was planned before the file was
    // read.
    host.configure_also("[[smart.override]]\nserial = \"ZL200000\"\ndevice_type = \"ignore\"\n");
    let polls = || (host.polls("/dev/sda"), host.polls("/dev/sdb"));
    let mut before = polls();
    daemon.until("only the other is asked, three times", |_| {
        let now = polls();
        if now.0 != before.0 {
            before = now;
        }
        now.1 >= before.1 + 3
    });
}

#[test]
fn no_drive_is_queried_when_smart_is_disabled() {
    let host = Host::new(OFTEN);
    host.configure(&format!(
        "command = \"{}\"\nenabled = false\n{OFTEN}",
        host.smartctl.program().display()
    ));
    let daemon = host.start();
    daemon.until("it runs", |daemon| {
        daemon.ask(&["status"]).is_ok_and(|node| node["settled"] == true)
    });
    pause(1500);
    assert_eq!(host.smartctl.calls(), Vec::<String>::new());
    assert_eq!(daemon.drive("sda").expect("a drive")["health"], "HEALTH_GOOD");
}
