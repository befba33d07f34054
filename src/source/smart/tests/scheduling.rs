//! When drives are asked, and when they are left alone.

use std::time::Duration;

use proptest::prelude::*;

use super::fake::{DriveBehavior, Lab, healthy, lab, lab_with, settings, standby, target};
use crate::context::DeviceType;
use crate::smart::plan::jitter;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::path::HostPath;
use diskvitals_host::clock::now;
use diskvitals_host::root::HostRoot;
use diskvitals_model::drive::Transport;
use diskvitals_model::source_update::{SourceRequest, SourceStatus, SourceUpdate};
use diskvitals_smart::{SelfTestKind, SmartResponse};

fn good(name: &str) -> (&str, DriveBehavior) {
    (name, DriveBehavior::Json(healthy(&name.to_uppercase()), 0))
}

fn gaps(starts: &[u64]) -> Vec<u64> {
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn has_reported(lab: &mut Lab, drive: &str) -> bool {
    matches!(lab.responses(drive).last(), Some(SmartResponse::Report(_)))
}

#[tokio::test(start_paused = true)]
async fn a_new_drive_is_queried_at_once_and_then_about_every_ten_minutes() {
    let mut lab = lab(&[good("sda")]);
    lab.pass(1).await;
    assert!(has_reported(&mut lab, "sda"));
    lab.pass(86400).await;
    let starts = lab.starts("sda");
    assert_eq!(starts[0], 0);
    assert!(gaps(&starts).iter().all(|gap| (540..=661).contains(gap)), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_suspect_drive_is_queried_about_every_two_minutes() {
    let lab = lab(&[good("sda")]);
    lab.pass(200).await;
    lab.targets(|targets| targets[0].suspect = true);
    lab.pass(3600).await;
    let starts = lab.starts("sda");
    assert_eq!(starts[1], 200);
    assert!(gaps(&starts[1..]).iter().all(|gap| (108..=133).contains(gap)), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn at_most_two_queries_run_at_a_time() {
    let slow = |name: &'static str| {
        (name, DriveBehavior::Delayed(Duration::from_secs(5), healthy(&name.to_uppercase())))
    };
    let lab = lab(&[slow("sda"), slow("sdb"), slow("sdc"), slow("sdd"), slow("sde")]);
    lab.pass(3600).await;
    assert_eq!(lab.state(|state| state.most_running), 2);
    let first: Vec<u64> =
        ["sda", "sdb", "sdc", "sdd", "sde"].map(|name| lab.starts(name)[0]).into();
    assert_eq!(first, [0, 0, 5, 5, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_in_standby_is_queried_at_the_usual_interval_and_not_woken() {
    let mut lab = lab(&[("sda", DriveBehavior::Json(standby(), 2))]);
    lab.pass(86400).await;
    assert!(lab.starts("sda").len() <= 1 + 86400 / 540);
    assert!(lab.arguments("sda").iter().all(|arguments| arguments.contains("-n standby")));
    assert!(
        lab.responses("sda").iter().all(|answer| matches!(answer, SmartResponse::Standby { .. }))
    );
}

#[tokio::test(start_paused = true)]
async fn a_runtime_suspended_drive_is_not_queried() {
    let lab = lab_with(
        &[good("sda")],
        vec![diskvitals_model::source_update::SmartTarget { asleep: true, ..target("sda") }],
        settings(),
        |_| {},
    );
    lab.pass(86400).await;
    assert!(lab.starts("sda").is_empty());
    lab.targets(|targets| targets[0].asleep = false);
    lab.pass(1).await;
    assert_eq!(lab.starts("sda").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drive_with_an_unknown_suspend_state_is_not_queried() {
    let mut lab = lab_with(&[good("sda")], vec![target("sda")], settings(), |state| {
        state.suspend_unknown = vec!["/dev/sda".into()]
    });
    lab.pass(86400).await;
    assert!(lab.starts("sda").is_empty());
    let reports = lab.reported();
    assert!(reports.iter().any(|report| matches!(report, SourceUpdate::Smart { response, .. } if matches!(&**response, SmartResponse::Failed { why } if why.contains("could not be read")))));
}

#[tokio::test(start_paused = true)]
async fn an_error_storm_triggers_a_query_every_thirty_seconds_including_the_last_error() {
    let lab = lab(&[good("sda")]);
    lab.pass(100).await;
    for _ in 0..1000 {
        lab.targets(|targets| targets[0].kernel_error_count += 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lab.pass(40).await;
    assert_eq!(lab.starts("sda"), [0, 100, 130, 160, 190, 220]);
}

#[tokio::test(start_paused = true)]
async fn an_error_during_a_query_triggers_another_query() {
    let lab = lab(&[("sda", DriveBehavior::Delayed(Duration::from_secs(10), healthy("SDA")))]);
    lab.pass(5).await;
    lab.targets(|targets| targets[0].kernel_error_count += 1);
    lab.pass(100).await;
    assert_eq!(lab.starts("sda"), [0, 30]);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_at_once_but_not_before_thirty_seconds_have_passed() {
    let lab = lab(&[good("sda"), good("sdb")]);
    lab.pass(10).await;
    lab.ask(SourceRequest::Smart(vec![DriveId::known("sda"), DriveId::known("gone")]));
    lab.pass(90).await;
    lab.ask(SourceRequest::All);
    lab.pass(1).await;
    assert_eq!((lab.starts("sda"), lab.starts("sdb")), (vec![0, 30, 100], vec![0, 100]));
}

#[tokio::test(start_paused = true)]
async fn an_nvme_event_has_that_controller_asked_at_once() {
    let nvme = |name: &str| diskvitals_model::source_update::SmartTarget {
        transport: Transport::Nvme,
        ..target(name)
    };
    let lab = lab_with(
        &[good("nvme1"), good("nvme10")],
        vec![nvme("nvme1"), nvme("nvme10")],
        settings(),
        |_| {},
    );
    lab.pass(60).await;
    lab.ask(SourceRequest::NvmeEvent { controller: "nvme1".to_owned() });
    lab.pass(1).await;
    assert_eq!((lab.starts("nvme1"), lab.starts("nvme10")), (vec![0, 60], vec![0]));
    assert!(lab.state(|state| state.events_set.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn nvme_event_notification_is_enabled_and_again_after_a_reset() {
    let nvme = diskvitals_model::source_update::SmartTarget {
        transport: Transport::Nvme,
        ..target("nvme0")
    };
    let allowed = crate::context::SmartSettings { nvme_events: true, ..settings() };
    let lab = lab_with(&[good("nvme0"), good("sda")], vec![nvme, target("sda")], allowed, |_| {});
    lab.pass(10).await;
    assert_eq!(lab.state(|state| state.events_set.clone()), ["nvme0"]);
    lab.ask(SourceRequest::NvmeEvent { controller: "nvme0".to_owned() });
    lab.pass(1).await;
    assert_eq!(lab.state(|state| state.events_set.len()), 2);
}

#[tokio::test(start_paused = true)]
async fn with_two_paths_both_controllers_announce_events_and_either_one_has_the_drive_asked() {
    let paths = vec!["nvme0".to_owned(), "nvme1".to_owned()];
    let nvme = diskvitals_model::source_update::SmartTarget {
        transport: Transport::Nvme,
        controllers: paths,
        ..target("nvme0")
    };
    let asleep = diskvitals_model::source_update::SmartTarget {
        transport: Transport::Nvme,
        asleep: true,
        ..target("nvme7")
    };
    let allowed = crate::context::SmartSettings { nvme_events: true, ..settings() };
    let lab = lab_with(&[good("nvme0")], vec![nvme, asleep], allowed, |_| {});
    lab.pass(60).await;
    assert_eq!(lab.state(|state| state.events_set.clone()), ["nvme0", "nvme1"]);
    lab.ask(SourceRequest::NvmeEvent { controller: "nvme1".to_owned() });
    lab.pass(1).await;
    assert_eq!(lab.starts("nvme0"), [0, 60]);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_nvme_events_has_the_drive_asked_every_thirty_seconds() {
    let nvme = diskvitals_model::source_update::SmartTarget {
        transport: Transport::Nvme,
        ..target("nvme1")
    };
    let lab = lab_with(&[good("nvme1")], vec![nvme], settings(), |_| {});
    lab.pass(60).await;
    for _ in 0..1000 {
        lab.ask(SourceRequest::NvmeEvent { controller: "nvme1".to_owned() });
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lab.pass(40).await;
    assert_eq!(lab.starts("nvme1"), [0, 60, 90, 120, 150, 180]);
}

#[tokio::test(start_paused = true)]
async fn target_updates_without_device_changes_trigger_no_controller_discovery() {
    let lab = lab(&[good("sda"), good("sdb")]);
    lab.pass(100).await;
    for _ in 0..360 {
        lab.targets(|targets| targets[0].last_response = Some(now()));
        lab.pass(10).await;
    }
    assert!(
        lab.state(|state| state.discoveries) <= 3600 / 600 + 1,
        "{}",
        lab.state(|state| state.discoveries)
    );
    let before = lab.state(|state| state.discoveries);
    lab.targets(|targets| targets.truncate(1));
    lab.pass(3).await;
    assert_eq!(lab.state(|state| state.discoveries), before + 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_next_query_is_due_from_the_last_response() {
    let answered = |seconds| diskvitals_model::source_update::SmartTarget {
        last_response: Some(now() - jiff::SignedDuration::from_secs(seconds)),
        ..target(if seconds > 1000 { "sdb" } else { "sda" })
    };
    let lab = lab_with(
        &[good("sda"), good("sdb")],
        vec![answered(300), answered(5000)],
        settings(),
        |_| {},
    );
    lab.pass(400).await;
    assert_eq!(lab.starts("sdb")[0], 0);
    assert!(
        matches!(lab.starts("sda").as_slice(), [first] if (238..=361).contains(first)),
        "{:?}",
        lab.starts("sda")
    );
}

#[tokio::test(start_paused = true)]
async fn slow_log_pages_are_read_once_a_day() {
    let lab = lab(&[good("sda")]);
    lab.pass(2 * 86400).await;
    let arguments = lab.arguments("sda");
    let whole = arguments.iter().filter(|arguments| arguments.contains(" -x ")).count();
    assert_eq!(whole, 2, "of {}", arguments.len());
    assert!(arguments[1].contains("-H -c -A -l xerror,error -l xselftest,selftest"));
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_is_to_be_ignored_is_not_asked_and_a_type_that_is_given_is_used() {
    let given = |serial: &str, device_type: &str| DeviceType {
        model: None,
        serial: Some(serial.into()),
        device_type: device_type.into(),
    };
    let with = crate::context::SmartSettings {
        device_types: vec![given("SDA", "ignore"), given("SD?", "sat")],
        ..settings()
    };
    let mut lab =
        lab_with(&[good("sda"), good("sdb")], vec![target("sda"), target("sdb")], with, |_| {});
    lab.pass(1).await;
    assert!(lab.starts("sda").is_empty());
    assert!(lab.arguments("sdb")[0].ends_with("-d sat /dev/sdb"));
    assert_eq!(lab.statuses().last(), Some(&SourceStatus::Active("smartctl 7.3, 1 drive".into())));
    lab.settings(|settings| settings.device_types.clear());
    lab.pass(1).await;
    assert_eq!(lab.starts("sda").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drive_without_smart_is_asked_once_an_hour() {
    let none = serde_json::json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 1,
            "messages": [{"string": "/dev/vda: Unable to detect device type", "severity": "error"}]},
    });
    let mut lab = lab(&[("vda", DriveBehavior::Json(none, 1))]);
    lab.pass(10 * 3600).await;
    assert_eq!(lab.starts("vda").len(), 10);
    assert!(
        lab.responses("vda")
            .iter()
            .all(|answer| matches!(answer, SmartResponse::NotApplicable { .. }))
    );
}

fn self_tests(lab: &mut Lab) -> Vec<Result<String, String>> {
    let of = |report| match report {
        SourceUpdate::SelfTest { result, .. } => Some(result),
        _ => None,
    };
    lab.reported().into_iter().filter_map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn a_self_test_is_started_once_and_followed_every_minute_to_its_end() {
    let mut with_test = healthy("SDA");
    with_test["smartctl"]["output"] = serde_json::json!([
        "smartctl 7.3",
        "Testing has begun.",
        "Please wait 2 minutes for test to complete."
    ]);
    with_test["ata_smart_data"]["self_test"]["status"] = serde_json::json!({"value": 249, "string": "in progress, 90% remaining", "remaining_percent": 90});
    let mut lab = lab(&[("sda", DriveBehavior::Json(with_test.clone(), 0))]);
    lab.pass(3).await;
    lab.ask(SourceRequest::SelfTest { drive: DriveId::known("sda"), kind: SelfTestKind::Short });
    lab.pass(200).await;
    assert_eq!(
        self_tests(&mut lab),
        [Ok("Testing has begun. Please wait 2 minutes for test to complete.".to_owned())]
    );
    assert!(lab.arguments("sda")[2].starts_with("--json=o -t short "));
    // The answer, who is there, the test, a look five seconds later, then each minute.
    assert_eq!(lab.starts("sda"), [0, 3, 3, 8, 68, 128, 188]);
    lab.set("sda", DriveBehavior::Json(healthy("SDA"), 0));
    lab.pass(600).await;
    assert!(lab.starts("sda").len() <= 9, "{:?}", lab.starts("sda"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_self_test_says_why() {
    let mut refuses = healthy("SDA");
    refuses["smartctl"]["output"] = serde_json::json!([
        "smartctl 7.3",
        "Can't start self-test without aborting current test (60% remaining),"
    ]);
    let asleep = diskvitals_model::source_update::SmartTarget { asleep: true, ..target("sdb") };
    let mut lab = lab_with(
        &[("sda", DriveBehavior::Json(refuses, 4))],
        vec![target("sda"), asleep],
        settings(),
        |_| {},
    );
    lab.pass(1).await;
    for drive in ["sda", "sdb", "sdz"] {
        lab.ask(SourceRequest::SelfTest { drive: DriveId::known(drive), kind: SelfTestKind::Long });
    }
    lab.pass(1).await;
    let why: Vec<String> =
        self_tests(&mut lab).into_iter().map(|result| result.expect_err("refused")).collect();
    assert!(why.iter().any(|why| why.contains("aborting current test")), "{why:?}");
    assert!(why.iter().any(|why| why.contains("suspended")), "{why:?}");
    assert!(why.iter().any(|why| why.contains("is not read")), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_self_test_is_not_lost_among_many_requests() {
    let mut begins = healthy("SDA");
    begins["smartctl"]["output"] = serde_json::json!(["smartctl 7.3", "Testing has begun."]);
    let mut lab = lab(&[("sda", DriveBehavior::Json(begins, 0))]);
    lab.pass(3).await;
    lab.ask(SourceRequest::SelfTest { drive: DriveId::known("sda"), kind: SelfTestKind::Short });
    for _ in 0..1000 {
        lab.ask(SourceRequest::Smart(Vec::new()));
    }
    lab.pass(3).await;
    assert_eq!(self_tests(&mut lab).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_self_test_is_never_started_on_another_drive_that_has_the_name_by_now() {
    let slow = DriveBehavior::Delayed(Duration::from_secs(10), healthy("SDA"));
    let mut lab = lab(&[("sda", slow)]);
    let mut requests = lab.requests.subscribe();
    lab.pass(1).await;
    lab.ask(SourceRequest::SelfTest { drive: DriveId::known("sda"), kind: SelfTestKind::Long });
    // While smartctl runs for the one, it is pulled, and a stranger comes.
    lab.set("sda", DriveBehavior::Json(healthy("STRANGER"), 0));
    lab.pass(20).await;
    let told = self_tests(&mut lab);
    assert!(
        matches!(told.as_slice(), [Err(why)] if why.contains("STRANGER instead of SDA")),
        "{told:?}"
    );
    assert!(lab.arguments("sda").iter().all(|arguments| !arguments.contains(" -t ")));
    assert!(
        std::iter::from_fn(|| requests.try_recv().ok())
            .any(|request| request == SourceRequest::Inventory)
    );
}

#[tokio::test(start_paused = true)]
async fn a_self_test_that_waits_is_refused_when_the_drive_goes_or_is_suspended_meanwhile() {
    let slow = |name: &'static str| {
        (name, DriveBehavior::Delayed(Duration::from_secs(10), healthy(&name.to_uppercase())))
    };
    let mut lab = lab(&[slow("sda"), slow("sdb")]);
    lab.pass(1).await;
    for drive in ["sda", "sdb"] {
        lab.ask(SourceRequest::SelfTest { drive: DriveId::known(drive), kind: SelfTestKind::Long });
    }
    lab.pass(1).await;
    lab.targets(|targets| {
        targets.remove(0);
        targets[0].asleep = true;
    });
    lab.pass(3600).await;
    let why: Vec<String> =
        self_tests(&mut lab).into_iter().map(|result| result.expect_err("refused")).collect();
    assert!(
        matches!(why.as_slice(), [gone, asleep] if gone.contains("is not read") && asleep.contains("suspended")),
        "{why:?}"
    );
    assert!(lab.starts("sda").len() == 1 && lab.starts("sdb").len() == 1);
}

#[tokio::test(start_paused = true)]
async fn self_tests_wait_for_their_turn_and_a_refusal_is_no_reason_to_ask_before_thirty_seconds_have_passed()
 {
    let mut refuses = healthy("SDA");
    refuses["smartctl"]["output"] =
        serde_json::json!(["smartctl 7.3", "Can't start self-test without aborting current test"]);
    let names = ["sda", "sdb", "sdc", "sdd"];
    let slow = |name: &'static str| {
        (name, DriveBehavior::Delayed(Duration::from_secs(2), healthy(&name.to_uppercase())))
    };
    let lab = lab(&names.map(slow));
    lab.pass(20).await;
    for drive in names {
        lab.ask(SourceRequest::SelfTest {
            drive: DriveId::known(drive),
            kind: SelfTestKind::Short,
        });
    }
    lab.pass(60).await;
    assert_eq!(lab.state(|state| state.most_running), 2);
    let lab = super::fake::lab(&[("sda", DriveBehavior::Json(refuses, 4))]);
    lab.pass(3).await;
    for _ in 0..5 {
        lab.ask(SourceRequest::SelfTest {
            drive: DriveId::known("sda"),
            kind: SelfTestKind::Short,
        });
        lab.pass(1).await;
    }
    lab.pass(60).await;
    let questions: Vec<u64> = lab.state(|state| {
        let asked = |run: &&super::fake::SmartctlRun| run.args.iter().any(|arg| arg == "standby");
        state.runs.iter().filter(asked).map(|run| run.at.as_secs()).collect()
    });
    assert!(gaps(&questions).iter().all(|gap| *gap >= 30), "{questions:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_the_kernel_suspends_between_two_scans_is_not_opened() {
    let mut lab = lab_with(&[good("sda")], vec![target("sda")], settings(), |state| {
        state.suspended = vec!["/dev/sda".into()]
    });
    lab.pass(1).await;
    lab.ask(SourceRequest::SelfTest { drive: DriveId::known("sda"), kind: SelfTestKind::Short });
    lab.pass(3600).await;
    assert!(lab.starts("sda").is_empty());
    let reports = lab.reported();
    assert!(reports.iter().any(|report| matches!(report, SourceUpdate::Smart { response, .. } if matches!(**response, SmartResponse::Standby { .. }))));
    assert!(reports.iter().any(|report| matches!(report, SourceUpdate::SelfTest { result: Err(why), .. } if why.contains("suspended"))));
    lab.state(|state| state.suspended.clear());
    lab.pass(700).await;
    assert!(has_reported(&mut lab, "sda"));
}

#[tokio::test(start_paused = true)]
async fn ignored_drives_are_reported_when_the_configuration_changes() {
    let given = |serial: &str| DeviceType {
        model: None,
        serial: Some(serial.into()),
        device_type: "ignore".into(),
    };
    let with = crate::context::SmartSettings { device_types: vec![given("SDA")], ..settings() };
    let mut lab =
        lab_with(&[good("sda"), good("sdb")], vec![target("sda"), target("sdb")], with, |_| {});
    lab.pass(700).await;
    let ignored = |lab: &mut Lab| -> Vec<Vec<String>> {
        let of = |report| match report {
            SourceUpdate::SmartIgnored(drives) => {
                Some(drives.iter().map(|drive| drive.as_str().to_owned()).collect())
            }
            _ => None,
        };
        lab.reported().into_iter().filter_map(of).collect()
    };
    assert_eq!(ignored(&mut lab), [["sda"]]);
    lab.settings(|settings| settings.enabled = false);
    lab.pass(700).await;
    assert_eq!(ignored(&mut lab), [["sda", "sdb"]]);
    lab.settings(|settings| (settings.enabled, settings.device_types) = (true, Vec::new()));
    lab.pass(700).await;
    assert_eq!(ignored(&mut lab), [Vec::<String>::new()]);
    // Neither is one that sleeps, nor are all where there is no smartctl.
    lab.targets(|targets| targets[0].asleep = true);
    lab.state(|state| state.version = None);
    lab.pass(700).await;
    assert!(ignored(&mut lab).is_empty());
}

#[tokio::test(start_paused = true)]
async fn on_a_recorded_tree_only_a_configured_smartctl_is_run() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("exec")).unwrap();
    let root = || HostRoot::new(dir.path());
    let usual = crate::context::SmartSettings {
        command: crate::context::USUAL_SMARTCTL.into(),
        ..settings()
    };
    let mut lab = super::fake::lab_at(root(), &[], vec![target("sda")], usual, |_| {});
    lab.pass(3600).await;
    assert_eq!(
        lab.statuses(),
        [SourceStatus::Absent("a recorded tree has no drives to ask".into())]
    );
    assert!(lab.state(|state| state.runs.is_empty()));
    let lab = super::fake::lab_at(root(), &[], vec![target("sda")], settings(), |_| {});
    lab.pass(1).await;
    let device = HostPath::from(dir.path().join("dev/sda").as_path()).to_string();
    assert_eq!(lab.state(|state| state.runs[0].args.last().cloned()), Some(device));
}

#[tokio::test(start_paused = true)]
async fn disabling_stops_all_queries_and_enabling_resumes_them() {
    let off = crate::context::SmartSettings { enabled: false, ..settings() };
    let mut lab = lab_with(&[good("sda")], vec![target("sda")], off, |_| {});
    lab.pass(3600).await;
    assert_eq!(lab.statuses(), [SourceStatus::Absent("switched off (smart.enabled)".into())]);
    lab.settings(|settings| settings.enabled = true);
    lab.pass(1).await;
    assert_eq!(lab.starts("sda").len(), 1);
}

proptest! {
    #[test]
    fn an_interval_varies_by_a_tenth_and_is_the_same_for_the_same_drive_and_round(drive in "\\PC{0,30}", round in any::<u64>(), base in 1u64..100_000) {
        let base = Duration::from_secs(base);
        let varied = jitter(base, &drive, round);
        prop_assert!(varied >= base.mul_f64(0.899) && varied <= base.mul_f64(1.101));
        prop_assert_eq!(varied, jitter(base, &drive, round));
    }
}

#[test]
fn intervals_of_many_drives_are_spread() {
    let distinct: std::collections::BTreeSet<Duration> =
        (0..100).map(|n| jitter(Duration::from_secs(600), &format!("naa.{n}"), 0)).collect();
    assert!(distinct.len() > 60, "{}", distinct.len());
}

/// Seconds at which `sda` is queried in two days; `change` happens after the first minute.
async fn starts_in_two_days(change: impl FnOnce(&mut Lab)) -> Vec<u64> {
    let mut lab = lab(&[good("sda")]);
    lab.pass(60).await;
    lab.targets(|targets| targets[0].idle = true);
    change(&mut lab);
    lab.pass(2 * 86_400 - 60).await;
    lab.starts("sda")
}

#[tokio::test(start_paused = true)]
async fn an_idle_drive_is_queried_once_a_day_and_one_with_findings_every_six_hours() {
    assert_eq!(starts_in_two_days(|_| {}).await, [0, 86_400]);
    let suspect = starts_in_two_days(|lab| lab.targets(|targets| targets[0].suspect = true));
    assert_eq!(suspect.await, (0..8).map(|n| n * 6 * 3600).collect::<Vec<_>>());
    let often = |lab: &mut Lab| lab.settings(|smart| smart.idle_interval = Duration::from_secs(1));
    assert!(starts_in_two_days(often).await.len() > 2 * 86_400 / 661);
}

#[tokio::test(start_paused = true)]
async fn an_idle_drive_is_queried_when_its_io_is_back_on_request_and_after_an_error() {
    let lab = lab(&[good("sda")]);
    lab.pass(60).await;
    lab.targets(|targets| targets[0].idle = true);
    lab.pass(9 * 3600).await;
    lab.targets(|targets| targets[0].idle = false);
    lab.pass(10).await;
    lab.targets(|targets| targets[0].idle = true);
    lab.pass(3600).await;
    let expected = vec![0, 9 * 3600 + 60];
    assert_eq!(lab.starts("sda"), expected);
    lab.ask(SourceRequest::Smart(vec![DriveId::known("sda")]));
    lab.pass(3600).await;
    lab.targets(|targets| targets[0].kernel_error_count += 1);
    lab.pass(3600).await;
    let expected = [&expected[..], &[10 * 3600 + 70, 11 * 3600 + 70]].concat();
    assert_eq!(lab.starts("sda"), expected);
}

#[tokio::test(start_paused = true)]
async fn an_idle_drive_is_followed_through_a_self_test_that_was_started_here() {
    let mut running = healthy("SDA");
    running["ata_smart_data"] =
        serde_json::json!({"self_test": {"status": {"value": 249, "remaining_percent": 90}}});
    running["smartctl"]["output"] = serde_json::json!(["smartctl 7.3", "Testing has begun."]);
    let lab = lab(&[("sda", DriveBehavior::Json(running, 0))]);
    lab.pass(60).await;
    lab.targets(|targets| targets[0].idle = true);
    lab.ask(SourceRequest::SelfTest { drive: DriveId::known("sda"), kind: SelfTestKind::Long });
    lab.pass(600).await;
    assert!(lab.starts("sda").len() > 8, "{:?}", lab.starts("sda"));
}
