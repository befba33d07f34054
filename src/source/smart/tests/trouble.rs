//! Drives that hang, a smartctl that is missing, old, or writes rubbish.

use std::time::Duration;

use super::fake::{How, healthy, lab, lab_with, settings, target};
use crate::model::ids::DriveId;
use crate::model::report::{Report, Request, SmartStuck, SourceStatus};
use crate::model::smart::{Answer, TestKind};

fn good(name: &str) -> (&str, How) {
    (name, How::Says(healthy(&name.to_uppercase()), 0))
}

fn stuck(reports: Vec<Report>, of: &str) -> Vec<Option<SmartStuck>> {
    let of = DriveId::known(of);
    let stuck = |report| match report {
        Report::SmartStuck { drive, stuck } if drive == of => Some(stuck),
        _ => None,
    };
    reports.into_iter().filter_map(stuck).collect()
}

fn why(answer: &Answer) -> &str {
    match answer {
        Answer::Failed { why } | Answer::TimedOut { why } => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_holds_up_none_of_the_others_and_is_asked_ever_more_rarely() {
    let mut lab = lab(&[("sda", How::Hangs), good("sdb"), good("sdc"), good("sdd")]);
    lab.pass(1).await;
    assert!(
        ["sdb", "sdc", "sdd"]
            .iter()
            .all(|drive| lab.starts(drive) == [0])
    );
    lab.pass(6 * 3600).await;
    assert!(
        ["sdb", "sdc", "sdd"]
            .iter()
            .all(|drive| lab.starts(drive).len() > 30)
    );
    assert!(lab.starts("sda").len() < 10, "{:?}", lab.starts("sda"));
    assert!(why(lab.said("sda").last().expect("told")).contains("has not ended after 60s"));
    // It recovers.
    lab.set("sda", How::Says(healthy("SDA"), 0));
    lab.pass(3960).await;
    assert!(matches!(lab.said("sda").as_slice(), [.., Answer::Told(_)]));
}

#[tokio::test(start_paused = true)]
async fn a_smartctl_that_cannot_be_killed_is_told_once_and_nobody_else_is_started_for_the_drive_until_it_has_gone()
 {
    let mut lab = lab(&[("sda", How::Unkillable), good("sdb"), good("sdc")]);
    lab.pass(70).await;
    let told = stuck(lab.reported(), "sda");
    assert!(
        matches!(told.as_slice(), [Some(SmartStuck { waiting_in: Some(place), .. })] if place.contains("blk_execute_rq")),
        "{told:?}"
    );
    lab.targets(|targets| targets[0].errors += 1);
    lab.ask(Request::All);
    lab.ask(Request::SelfTest {
        drive: DriveId::known("sda"),
        kind: TestKind::Short,
    });
    lab.pass(86400).await;
    assert_eq!(lab.starts("sda"), [0]);
    assert!(lab.starts("sdb").len() > 100);
    let reports = lab.reported();
    assert!(reports.iter().any(
        |report| matches!(report, Report::SelfTest { result: Err(why), .. } if why.contains("hung"))
    ));
    assert!(stuck(reports, "sda").is_empty());
    // At last.
    lab.set("sda", How::Says(healthy("SDA"), 0));
    lab.state(|state| {
        state
            .held
            .drain(..)
            .for_each(|held| held.send(()).expect("held"))
    });
    lab.pass(1).await;
    let reports = lab.reported();
    assert!(reports.iter().any(|report| matches!(report, Report::Smart { answer, .. } if matches!(**answer, Answer::Told(_)))));
    assert_eq!(stuck(reports, "sda"), [None]);
}

#[tokio::test(start_paused = true)]
async fn the_stuck_take_no_turn_of_the_others_and_beyond_eight_only_those_are_asked_that_answer() {
    let names: Vec<String> = (0..12).map(|n| format!("sda{n:02}")).collect();
    let mut drives: Vec<(&str, How)> = names
        .iter()
        .map(|name| (name.as_str(), How::Hangs))
        .collect();
    drives.push(good("sdb"));
    let mut lab = lab(&drives);
    lab.pass(1000).await;
    for name in &names {
        lab.set(name, How::Unkillable);
    }
    lab.pass(86400).await;
    assert_eq!(lab.state(|state| state.held.len()), 8);
    assert!(lab.starts("sdb").len() > 100);
    let limited = "smartctl 7.3, 13 drives; on 8 of them it hangs and cannot be killed";
    assert_eq!(
        lab.statuses().last(),
        Some(&SourceStatus::Limited(limited.into()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_is_pulled_while_it_hangs_is_not_asked_again_when_it_is_back_before_the_end_of_that()
 {
    let lab = lab(&[("sda", How::Unkillable)]);
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
async fn a_missing_or_old_smartctl_is_one_state_of_the_node_until_it_is_installed() {
    let mut lab = lab_with(&[good("sda")], vec![target("sda")], settings(), |state| {
        state.version = None
    });
    lab.pass(3600).await;
    let missing =
        "/opt/smartctl is not there: install smartmontools 7.0 or newer, or set smart.command";
    assert_eq!(lab.statuses(), [SourceStatus::Down(missing.into())]);
    lab.state(|state| state.version = Some([6, 6]));
    lab.pass(61).await;
    let old =
        "/opt/smartctl is version 6.6: install smartmontools 7.0 or newer, or set smart.command";
    let reports = lab.reported();
    assert!(
        matches!(reports.as_slice(), [Report::Source { status: SourceStatus::Down(why), .. }] if why == old),
        "{reports:?}"
    );
    assert!(lab.state(|state| state.runs.is_empty()));
    lab.state(|state| (state.version, state.file) = (Some([7, 4]), 1));
    lab.pass(61).await;
    assert_eq!(
        lab.statuses(),
        [SourceStatus::Active("smartctl 7.4, 1 drive".into())]
    );
    assert_eq!(lab.starts("sda").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_smartctl_that_is_removed_or_replaced_while_we_run_is_noticed() {
    let mut lab = lab(&[good("sda")]);
    lab.pass(10).await;
    lab.state(|state| state.version = None);
    lab.set("sda", How::NoProgram);
    lab.pass(700).await;
    let statuses = lab.statuses();
    assert!(
        matches!(statuses.as_slice(), [SourceStatus::Active(_), SourceStatus::Down(why)] if why.contains("install")),
        "{statuses:?}"
    );
    assert_eq!(lab.said("sda").len(), 0, "no drive's fault");
    lab.state(|state| (state.version, state.file) = (Some([7, 5]), 2));
    lab.set("sda", How::Says(healthy("SDA"), 0));
    lab.pass(61).await;
    assert!(matches!(lab.said("sda").as_slice(), [Answer::Told(_)]));
    lab.state(|state| (state.version, state.file) = (Some([6, 6]), 3));
    lab.pass(61).await;
    assert!(matches!(lab.statuses().as_slice(), [SourceStatus::Down(why)] if why.contains("6.6")));
}

#[tokio::test(start_paused = true)]
async fn a_smartctl_that_fails_to_start_for_want_of_something_is_tried_again_in_peace() {
    let lab = lab(&[("sda", How::NoProgram)]);
    lab.pass(600).await;
    assert!(
        (2..=61).contains(&lab.starts("sda").len()),
        "{:?}",
        lab.starts("sda").len()
    );
}

#[tokio::test(start_paused = true)]
async fn rubbish_is_a_failure_with_its_reason_and_never_an_answer() {
    let half = healthy("SDA").to_string().into_bytes()[..60].to_vec();
    for (how, expected) in [
        (How::Writes(half, 0), "makes no sense"),
        (
            How::Writes(vec![b'x'; 100 << 20], 0),
            "wrote more than 1024 KiB",
        ),
        (
            How::Writes(healthy("SDA").to_string().into_bytes(), 11),
            "ended by signal 11",
        ),
        (
            How::Writes(Vec::new(), 1 << 8),
            "wrote nothing and ended with status 1",
        ),
        (How::Writes(b"[]".to_vec(), 0), "makes no sense"),
        (
            How::Says(
                serde_json::json!({"smartctl": {"version": [7, 3], "exit_status": 0}}),
                0,
            ),
            "makes no sense",
        ),
        (
            How::Says(healthy("SDX"), 0),
            "another drive answered: serial number SDX instead of SDA",
        ),
    ] {
        let mut lab = lab(&[("sda", how)]);
        lab.pass(1).await;
        let said = lab.said("sda");
        assert!(why(&said[0]).contains(expected), "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_another_drive_answers_the_hardware_is_looked_at_anew() {
    let lab = lab(&[("sda", How::Slowly(Duration::from_secs(1), healthy("SDX")))]);
    let mut requests = lab.requests.subscribe();
    lab.pass(2).await;
    assert_eq!(requests.try_recv().ok(), Some(Request::Inventory));
}

#[tokio::test(start_paused = true)]
async fn the_same_serial_number_in_other_white_space_or_cut_short_is_the_same() {
    for told in ["  SDA ", "sda", "SDA-0001"] {
        let mut lab = lab(&[("sda", How::Says(healthy(told), 0))]);
        lab.pass(1).await;
        assert!(
            matches!(lab.said("sda").as_slice(), [Answer::Told(_)]),
            "{told}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_usb_bridge_is_tried_with_sat_once_and_what_works_is_kept() {
    let unknown = serde_json::json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 1,
            "messages": [{"string": "/dev/sda: Unknown USB bridge [0x1234:0x5678 (0x100)]", "severity": "error"}]},
    });
    let usb = crate::model::report::SmartTarget {
        transport: crate::model::drive::Transport::Usb,
        serial: Some("BRIDGE".into()),
        ..target("sda")
    };
    let mut lab = lab_with(
        &[("sda", How::Says(unknown.clone(), 1))],
        vec![usb.clone()],
        settings(),
        |_| {},
    );
    lab.pass(2 * 3600 + 1).await;
    // Both times the same answer: once with `-d sat` in vain, then no more.
    assert_eq!(
        lab.arguments("sda")
            .iter()
            .filter(|arguments| arguments.contains("-d sat"))
            .count(),
        1
    );
    assert!(
        lab.said("sda")
            .iter()
            .all(|answer| matches!(answer, Answer::NotApplicable { hint: Some(_), .. }))
    );
    // Another one, that knows SAT.
    lab.targets(|targets| targets[0].device = crate::model::path::HostPath::new("/dev/sdb"));
    lab.set("sdb", How::Says(unknown, 1));
    lab.set("sdb sat", How::Says(healthy("DISK"), 0));
    lab.pass(86400).await;
    let arguments = lab.arguments("sdb");
    assert!(
        arguments.len() > 100
            && arguments[1..]
                .iter()
                .all(|arguments| arguments.contains("-d sat"))
    );
    assert!(
        lab.said("sda")
            .iter()
            .all(|answer| matches!(answer, Answer::Told(_)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_refuses_to_tell_the_power_mode_is_not_asleep() {
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
    let usb = crate::model::report::SmartTarget {
        transport: crate::model::drive::Transport::Usb,
        ..target("sda")
    };
    let mut lab = lab_with(
        &[
            ("sda", How::Says(unknown, 1)),
            ("sda sat", How::Says(standby, 2)),
        ],
        vec![usb],
        settings(),
        |_| {},
    );
    lab.pass(3 * 3600).await;
    assert!(
        lab.said("sda")
            .iter()
            .all(|answer| matches!(answer, Answer::NotApplicable { .. }))
    );
    // The disk may have slept: once it tells, it is asked so.
    lab.set("sda sat", How::Says(healthy("DISK"), 0));
    lab.pass(86400).await;
    assert!(
        lab.said("sda")
            .iter()
            .any(|answer| matches!(answer, Answer::Told(_)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_drive_whose_slow_pages_hang_goes_on_telling_the_quick_ones() {
    let mut lab = lab(&[("sda", How::HangsWhole(healthy("SDA")))]);
    lab.pass(86400).await;
    let said = lab.said("sda");
    assert!(
        said.len() > 100 && said.iter().all(|answer| matches!(answer, Answer::Told(_))),
        "{said:?}"
    );
    let whole = lab
        .arguments("sda")
        .iter()
        .filter(|arguments| arguments.contains("-x"))
        .count();
    assert_eq!(whole, 1, "a day's worth");
}

#[tokio::test(start_paused = true)]
async fn another_smartctl_in_the_configuration_is_looked_at_before_it_is_used() {
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
async fn while_the_slow_pages_hang_they_are_tried_ever_more_rarely_and_again_daily_when_they_come()
{
    let hourly = crate::source::context::SmartSettings {
        interval: Duration::from_secs(3600),
        ..settings()
    };
    let lab = lab_with(
        &[("sda", How::HangsWhole(healthy("SDA")))],
        vec![target("sda")],
        hourly,
        |_| {},
    );
    let whole = |lab: &super::fake::Lab| -> Vec<u64> {
        let is_whole = |run: &&super::fake::Run| run.args.iter().any(|arg| arg == "-x");
        lab.state(|state| {
            state
                .runs
                .iter()
                .filter(is_whole)
                .map(|run| run.at.as_secs() / 86400)
                .collect()
        })
    };
    lab.pass(16 * 86400).await;
    assert_eq!(whole(&lab), [0, 1, 3, 7, 15]);
    lab.pass(120 * 86400).await;
    assert_eq!(whole(&lab)[5..], [31, 61, 91, 121]);
    lab.set("sda", How::Says(healthy("SDA"), 0));
    lab.pass(30 * 86400).await;
    assert!(whole(&lab).len() >= 9 + 10, "{:?}", whole(&lab));
}

#[tokio::test(start_paused = true)]
async fn slow_pages_that_hang_so_that_smartctl_cannot_be_killed_are_left_out_as_well() {
    let mut lab = lab(&[("sda", How::UnkillableWhole(healthy("SDA")))]);
    // Each time the kernel gives up after three minutes, and counts an error.
    for _ in 0..(86400 / 180) {
        lab.pass(180).await;
        let held: Vec<_> = lab.state(|state| state.held.drain(..).collect());
        if !held.is_empty() {
            lab.targets(|targets| targets[0].errors += 1);
        }
        drop(held);
    }
    let said = lab.said("sda");
    assert!(
        said.len() > 100 && said.iter().all(|answer| matches!(answer, Answer::Told(_))),
        "{said:?}"
    );
    assert_eq!(
        lab.arguments("sda")
            .iter()
            .filter(|arguments| arguments.contains("-x"))
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_hangs_at_the_quick_pages_too_is_backed_off_from_whatever_the_kernel_says_of_it()
 {
    let lab = lab(&[("sda", How::Unkillable)]);
    for _ in 0..(86400 / 180) {
        lab.pass(180).await;
        if !lab
            .state(|state| state.held.drain(..).collect::<Vec<_>>())
            .is_empty()
        {
            lab.targets(|targets| targets[0].errors += 1);
        }
    }
    let starts = lab.starts("sda");
    assert!((20..=32).contains(&starts.len()), "{starts:?}");
    assert_eq!(
        lab.arguments("sda")
            .iter()
            .filter(|arguments| arguments.contains("-x"))
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_lost_is_no_end_of_what_it_did() {
    let mut lab = lab_with(
        &[good("sda"), ("sdb", How::Panics)],
        vec![target("sda"), target("sdb")],
        settings(),
        |state| state.panics = true,
    );
    lab.pass(5).await;
    assert!(
        lab.said("sdb")
            .iter()
            .any(|answer| why(answer).contains("internal error"))
    );
    lab.state(|state| state.panics = false);
    lab.set("sdb", How::Says(healthy("SDB"), 0));
    let looks = lab.state(|state| state.looks);
    lab.pass(2 * 3600).await;
    assert!(lab.state(|state| state.looks) > looks);
    assert!(matches!(lab.said("sdb").last(), Some(Answer::Told(_))));
    assert!(lab.starts("sda").len() > 10);
}
