//! Drives that hang, a smartctl that is missing, old, or writes rubbish.

use std::time::Duration;

use super::fake::{DriveBehavior, healthy, lab, lab_with, settings, target};
use diskvitals_finding::ids::DriveId;
use diskvitals_model::source_update::{SourceRequest, SourceStatus, SourceUpdate, StuckSmartctl};
use diskvitals_smart::{SelfTestKind, SmartResponse};

fn good(name: &str) -> (&str, DriveBehavior) {
    (name, DriveBehavior::Json(healthy(&name.to_uppercase()), 0))
}

fn stuck(reports: Vec<SourceUpdate>, of: &str) -> Vec<Option<StuckSmartctl>> {
    let of = DriveId::known(of);
    let stuck = |report| match report {
        SourceUpdate::SmartStuck { drive, stuck } if drive == of => Some(stuck),
        _ => None,
    };
    reports.into_iter().filter_map(stuck).collect()
}

fn why(answer: &SmartResponse) -> &str {
    match answer {
        SmartResponse::Failed { why } | SmartResponse::TimedOut { why } => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_hangs_delays_no_other_and_is_backed_off() {
    let mut lab = lab(&[("sda", DriveBehavior::Hangs), good("sdb"), good("sdc"), good("sdd")]);
    lab.pass(1).await;
    assert!(["sdb", "sdc", "sdd"].iter().all(|drive| lab.starts(drive) == [0]));
    lab.pass(6 * 3600).await;
    assert!(["sdb", "sdc", "sdd"].iter().all(|drive| lab.starts(drive).len() > 30));
    assert!(lab.starts("sda").len() < 10, "{:?}", lab.starts("sda"));
    assert!(why(lab.responses("sda").last().expect("told")).contains("has not ended after 60s"));
    // It recovers.
    lab.set("sda", DriveBehavior::Json(healthy("SDA"), 0));
    lab.pass(3960).await;
    assert!(matches!(lab.responses("sda").as_slice(), [.., SmartResponse::Report(_)]));
}

#[tokio::test(start_paused = true)]
async fn an_unkillable_smartctl_is_reported_once_and_its_drive_is_not_queried_until_it_exits() {
    let mut lab = lab(&[("sda", DriveBehavior::Unkillable), good("sdb"), good("sdc")]);
    lab.pass(70).await;
    let told = stuck(lab.reported(), "sda");
    assert!(
        matches!(told.as_slice(), [Some(StuckSmartctl { waiting_in: Some(place), .. })] if place.contains("blk_execute_rq")),
        "{told:?}"
    );
    lab.targets(|targets| targets[0].kernel_error_count += 1);
    lab.ask(SourceRequest::All);
    lab.ask(SourceRequest::SelfTest { drive: DriveId::known("sda"), kind: SelfTestKind::Short });
    lab.pass(86400).await;
    assert_eq!(lab.starts("sda"), [0]);
    assert!(lab.starts("sdb").len() > 100);
    let reports = lab.reported();
    assert!(reports.iter().any(
        |report| matches!(report, SourceUpdate::SelfTest { result: Err(why), .. } if why.contains("hung"))
    ));
    assert!(stuck(reports, "sda").is_empty());
    // At last.
    lab.set("sda", DriveBehavior::Json(healthy("SDA"), 0));
    lab.state(|state| state.held.drain(..).for_each(|held| held.send(()).expect("held")));
    lab.pass(1).await;
    let reports = lab.reported();
    assert!(reports.iter().any(|report| matches!(report, SourceUpdate::Smart { response, .. } if matches!(**response, SmartResponse::Report(_)))));
    assert_eq!(stuck(reports, "sda"), [None]);
}

#[tokio::test(start_paused = true)]
async fn stuck_queries_hold_no_permit_and_beyond_eight_only_responsive_drives_are_queried() {
    let names: Vec<String> = (0..12).map(|n| format!("sda{n:02}")).collect();
    let mut drives: Vec<(&str, DriveBehavior)> =
        names.iter().map(|name| (name.as_str(), DriveBehavior::Hangs)).collect();
    drives.push(good("sdb"));
    let mut lab = lab(&drives);
    lab.pass(1000).await;
    for name in &names {
        lab.set(name, DriveBehavior::Unkillable);
    }
    lab.pass(86400).await;
    assert_eq!(lab.state(|state| state.held.len()), 8);
    assert!(lab.starts("sdb").len() > 100);
    let limited = "smartctl 7.3, 13 drives; on 8 of them it hangs and cannot be killed";
    assert_eq!(lab.statuses().last(), Some(&SourceStatus::Limited(limited.into())));
}

#[tokio::test(start_paused = true)]
async fn a_drive_replugged_while_stuck_is_not_queried_until_the_process_exits() {
    let lab = lab(&[("sda", DriveBehavior::Unkillable)]);
    lab.pass(100).await;
    lab.targets(Vec::clear);
    lab.pass(100).await;
    lab.targets(|targets| targets.push(target("sda")));
    lab.pass(3600).await;
    assert_eq!(lab.starts("sda"), [0]);
    lab.state(|state| state.held.clear());
    lab.pass(1).await;
    assert_eq!(lab.starts("sda").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_missing_or_old_smartctl_is_a_source_status_until_installed() {
    let mut lab =
        lab_with(&[good("sda")], vec![target("sda")], settings(), |state| state.version = None);
    lab.pass(3600).await;
    let missing =
        "/opt/smartctl does not exist: install smartmontools 7.0 or newer, or set smart.command";
    assert_eq!(lab.statuses(), [SourceStatus::Down(missing.into())]);
    lab.state(|state| state.version = Some([6, 6]));
    lab.pass(61).await;
    let old =
        "/opt/smartctl is version 6.6: install smartmontools 7.0 or newer, or set smart.command";
    let reports = lab.reported();
    assert!(
        matches!(reports.as_slice(), [SourceUpdate::Source { status: SourceStatus::Down(why), .. }] if why == old),
        "{reports:?}"
    );
    assert!(lab.state(|state| state.runs.is_empty()));
    lab.state(|state| (state.version, state.file) = (Some([7, 4]), 1));
    lab.pass(61).await;
    assert_eq!(lab.statuses(), [SourceStatus::Active("smartctl 7.4, 1 drive".into())]);
    assert_eq!(lab.starts("sda").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_smartctl_that_is_removed_or_replaced_while_we_run_is_noticed() {
    let mut lab = lab(&[good("sda")]);
    lab.pass(10).await;
    lab.state(|state| state.version = None);
    lab.set("sda", DriveBehavior::StartFails);
    lab.pass(700).await;
    let statuses = lab.statuses();
    assert!(
        matches!(statuses.as_slice(), [SourceStatus::Active(_), SourceStatus::Down(why)] if why.contains("install")),
        "{statuses:?}"
    );
    assert_eq!(lab.responses("sda").len(), 0, "no drive's fault");
    lab.state(|state| (state.version, state.file) = (Some([7, 5]), 2));
    lab.set("sda", DriveBehavior::Json(healthy("SDA"), 0));
    lab.pass(61).await;
    assert!(matches!(lab.responses("sda").as_slice(), [SmartResponse::Report(_)]));
    lab.state(|state| (state.version, state.file) = (Some([6, 6]), 3));
    lab.pass(61).await;
    assert!(matches!(lab.statuses().as_slice(), [SourceStatus::Down(why)] if why.contains("6.6")));
}

#[tokio::test(start_paused = true)]
async fn a_smartctl_that_fails_to_start_is_retried_with_a_pause() {
    let lab = lab(&[("sda", DriveBehavior::StartFails)]);
    lab.pass(600).await;
    assert!((2..=61).contains(&lab.starts("sda").len()), "{:?}", lab.starts("sda").len());
}

#[tokio::test(start_paused = true)]
async fn unparsable_output_is_a_failure_with_its_reason() {
    let half = healthy("SDA").to_string().into_bytes()[..60].to_vec();
    for (how, expected) in [
        (DriveBehavior::Raw(half, 0), "is invalid"),
        (DriveBehavior::Raw(vec![b'x'; 100 << 20], 0), "wrote more than 1024 KiB"),
        (DriveBehavior::Raw(healthy("SDA").to_string().into_bytes(), 11), "ended by signal 11"),
        (DriveBehavior::Raw(Vec::new(), 1 << 8), "wrote nothing and ended with status 1"),
        (DriveBehavior::Raw(b"[]".to_vec(), 0), "is invalid"),
        (
            DriveBehavior::Json(
                serde_json::json!({"smartctl": {"version": [7, 3], "exit_status": 0}}),
                0,
            ),
            "is invalid",
        ),
        (
            DriveBehavior::Json(healthy("SDX"), 0),
            "another drive answered: serial number SDX instead of SDA",
        ),
    ] {
        let mut lab = lab(&[("sda", how)]);
        lab.pass(1).await;
        let said = lab.responses("sda");
        assert!(why(&said[0]).contains(expected), "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_of_another_drive_triggers_an_inventory_scan() {
    let lab = lab(&[("sda", DriveBehavior::Delayed(Duration::from_secs(1), healthy("SDX")))]);
    let mut requests = lab.requests.subscribe();
    lab.pass(2).await;
    assert_eq!(requests.try_recv().ok(), Some(SourceRequest::Inventory));
}

#[tokio::test(start_paused = true)]
async fn the_same_serial_number_in_other_white_space_or_cut_short_is_the_same() {
    for told in ["  SDA ", "sda", "SDA-0001"] {
        let mut lab = lab(&[("sda", DriveBehavior::Json(healthy(told), 0))]);
        lab.pass(1).await;
        assert!(matches!(lab.responses("sda").as_slice(), [SmartResponse::Report(_)]), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_usb_bridge_is_tried_with_sat_once_and_what_works_is_kept() {
    let unknown = serde_json::json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 1,
            "messages": [{"string": "/dev/sda: Unknown USB bridge [0x1234:0x5678 (0x100)]", "severity": "error"}]},
    });
    let usb = diskvitals_model::source_update::SmartTarget {
        transport: diskvitals_model::drive::Transport::Usb,
        serial: Some("BRIDGE".into()),
        ..target("sda")
    };
    let mut lab = lab_with(
        &[("sda", DriveBehavior::Json(unknown.clone(), 1))],
        vec![usb.clone()],
        settings(),
        |_| {},
    );
    lab.pass(2 * 3600 + 1).await;
    // Both times the same answer: once with `-d sat` in vain, then no more.
    assert_eq!(
        lab.arguments("sda").iter().filter(|arguments| arguments.contains("-d sat")).count(),
        1
    );
    assert!(
        lab.responses("sda")
            .iter()
            .all(|answer| matches!(answer, SmartResponse::NotApplicable { hint: Some(_), .. }))
    );
    // Another one, that knows SAT.
    lab.targets(|targets| targets[0].device = diskvitals_finding::path::HostPath::new("/dev/sdb"));
    lab.set("sdb", DriveBehavior::Json(unknown, 1));
    lab.set("sdb sat", DriveBehavior::Json(healthy("DISK"), 0));
    lab.pass(86400).await;
    let arguments = lab.arguments("sdb");
    assert!(
        arguments.len() > 100
            && arguments[1..].iter().all(|arguments| arguments.contains("-d sat"))
    );
    assert!(lab.responses("sda").iter().all(|answer| matches!(answer, SmartResponse::Report(_))));
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_refuses_check_power_mode_is_not_standby() {
    let unknown = serde_json::json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 1,
            "messages": [{"string": "/dev/sda: Unknown USB bridge [0x1234:0x5678 (0x100)]", "severity": "error"}]},
    });
    let standby = serde_json::json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 2,
            "messages": [{"string": "Device is in SLEEP mode, exit(2)", "severity": "information"}]},
        "device": {"name": "/dev/sda", "info_name": "/dev/sda [SAT]", "type": "sat", "protocol": "ATA"},
    });
    let usb = diskvitals_model::source_update::SmartTarget {
        transport: diskvitals_model::drive::Transport::Usb,
        ..target("sda")
    };
    let mut lab = lab_with(
        &[("sda", DriveBehavior::Json(unknown, 1)), ("sda sat", DriveBehavior::Json(standby, 2))],
        vec![usb],
        settings(),
        |_| {},
    );
    lab.pass(3 * 3600).await;
    assert!(
        lab.responses("sda")
            .iter()
            .all(|answer| matches!(answer, SmartResponse::NotApplicable { .. }))
    );
    // The disk may have slept: once it tells, it is asked so.
    lab.set("sda sat", DriveBehavior::Json(healthy("DISK"), 0));
    lab.pass(86400).await;
    assert!(lab.responses("sda").iter().any(|answer| matches!(answer, SmartResponse::Report(_))));
}

#[tokio::test(start_paused = true)]
async fn a_drive_whose_slow_pages_hang_still_reports_the_quick_ones() {
    let mut lab = lab(&[("sda", DriveBehavior::HangsOnFull(healthy("SDA")))]);
    lab.pass(86400).await;
    let said = lab.responses("sda");
    assert!(
        said.len() > 100 && said.iter().all(|answer| matches!(answer, SmartResponse::Report(_))),
        "{said:?}"
    );
    let whole = lab.arguments("sda").iter().filter(|arguments| arguments.contains("-x")).count();
    assert_eq!(whole, 1, "a day's worth");
}

#[tokio::test(start_paused = true)]
async fn a_newly_configured_smartctl_is_checked_before_use() {
    let mut lab = lab(&[good("sda")]);
    lab.pass(1).await;
    lab.state(|state| state.version = Some([6, 2]));
    lab.settings(|settings| settings.command = "/usr/local/sbin/smartctl".into());
    lab.pass(3600).await;
    let statuses = lab.statuses();
    assert!(
        matches!(statuses.as_slice(), [SourceStatus::Active(_), SourceStatus::Down(why)] if why.starts_with("/usr/local/sbin/smartctl is version 6.2")),
        "{statuses:?}"
    );
    assert_eq!(lab.starts("sda").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_slow_pages_are_backed_off_and_read_daily_again_after_recovery() {
    let hourly =
        crate::context::SmartSettings { interval: Duration::from_secs(3600), ..settings() };
    let lab = lab_with(
        &[("sda", DriveBehavior::HangsOnFull(healthy("SDA")))],
        vec![target("sda")],
        hourly,
        |_| {},
    );
    let whole = |lab: &super::fake::Lab| -> Vec<u64> {
        let is_whole = |run: &&super::fake::SmartctlRun| run.args.iter().any(|arg| arg == "-x");
        lab.state(|state| {
            state.runs.iter().filter(is_whole).map(|run| run.at.as_secs() / 86400).collect()
        })
    };
    lab.pass(16 * 86400).await;
    assert_eq!(whole(&lab), [0, 1, 3, 7, 15]);
    lab.pass(120 * 86400).await;
    assert_eq!(whole(&lab)[5..], [31, 61, 91, 121]);
    lab.set("sda", DriveBehavior::Json(healthy("SDA"), 0));
    lab.pass(30 * 86400).await;
    assert!(whole(&lab).len() >= 9 + 10, "{:?}", whole(&lab));
}

#[tokio::test(start_paused = true)]
async fn slow_pages_with_an_unkillable_smartctl_are_skipped_too() {
    let mut lab = lab(&[("sda", DriveBehavior::UnkillableOnFull(healthy("SDA")))]);
    // Each time the kernel gives up after three minutes, and counts an error.
    for _ in 0..(86400 / 180) {
        lab.pass(180).await;
        let held: Vec<_> = lab.state(|state| state.held.drain(..).collect());
        if !held.is_empty() {
            lab.targets(|targets| targets[0].kernel_error_count += 1);
        }
        drop(held);
    }
    let said = lab.responses("sda");
    assert!(
        said.len() > 100 && said.iter().all(|answer| matches!(answer, SmartResponse::Report(_))),
        "{said:?}"
    );
    assert_eq!(lab.arguments("sda").iter().filter(|arguments| arguments.contains("-x")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_hangs_on_quick_pages_is_backed_off_despite_kernel_errors() {
    let lab = lab(&[("sda", DriveBehavior::Unkillable)]);
    for _ in 0..(86400 / 180) {
        lab.pass(180).await;
        if !lab.state(|state| state.held.drain(..).collect::<Vec<_>>()).is_empty() {
            lab.targets(|targets| targets[0].kernel_error_count += 1);
        }
    }
    let starts = lab.starts("sda");
    assert!((20..=32).contains(&starts.len()), "{starts:?}");
    assert_eq!(lab.arguments("sda").iter().filter(|arguments| arguments.contains("-x")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panicked_task_is_retried() {
    let mut lab = lab_with(
        &[good("sda"), ("sdb", DriveBehavior::Panics)],
        vec![target("sda"), target("sdb")],
        settings(),
        |state| state.panics = true,
    );
    lab.pass(5).await;
    assert!(lab.responses("sdb").iter().any(|answer| why(answer).contains("internal error")));
    lab.state(|state| state.panics = false);
    lab.set("sdb", DriveBehavior::Json(healthy("SDB"), 0));
    let looks = lab.state(|state| state.discoveries);
    lab.pass(2 * 3600).await;
    assert!(lab.state(|state| state.discoveries) > looks);
    assert!(matches!(lab.responses("sdb").last(), Some(SmartResponse::Report(_))));
    assert!(lab.starts("sda").len() > 10);
}
