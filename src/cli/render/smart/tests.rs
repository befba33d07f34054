//! Whole screens, compared as they are.

use crate::args::TestKind;
use crate::render::smart;
use crate::self_test::SelfTestProgress;
use diskvitals_analyze::smart::smart_from;
use diskvitals_smart::policy::SmartPolicy;
use diskvitals_terminal::fixture::{before, screen};
use diskvitals_wire as wire;
use diskvitals_wire::smart::State;

fn value(metric: &str, first: u64, value: u64, changed: Option<i64>) -> wire::SmartValue {
    wire::SmartValue {
        metric: metric.into(),
        value,
        first,
        first_time: before(3 * 86_400),
        changed: changed.and_then(before),
    }
}

fn test(kind: &str, outcome: &str, text: &str, hours: u64) -> wire::SelfTest {
    wire::SelfTest {
        kind: kind.into(),
        outcome: outcome.into(),
        text: text.into(),
        hours: Some(hours),
        lba: None,
    }
}

fn smart_response() -> wire::Smart {
    wire::Smart {
        state: State::Answered.into(),
        asked: before(120),
        answered: before(120),
        passed: Some(true),
        temperature_celsius: Some(36),
        power_on_hours: Some(29_798),
        power_cycles: Some(120),
        wear_percent: Some(3),
        wear_days_left: Some(2910),
        values: vec![
            value("crc_errors", 0, 0, None),
            value("pending", 257, 269, Some(7200)),
            value("reallocated", 4, 4, None),
            value("reported_uncorrectable", 0, 0, None),
            value("temperature", 30, 36, Some(60)),
            value("wear_percent", 2, 3, Some(86_400)),
        ],
        attributes: vec![
            wire::SmartAttribute {
                id: 5,
                name: "Reallocated_Sector_Ct".into(),
                value: 100,
                worst: 100,
                threshold: Some(10),
                prefailure: true,
                raw: 4,
                raw_text: "4".into(),
                ..Default::default()
            },
            wire::SmartAttribute {
                id: 190,
                name: "Airflow_Temperature_Cel".into(),
                value: 44,
                worst: 40,
                threshold: Some(45),
                failed: "now".into(),
                raw: 56,
                raw_text: "56 (Min/Max 20/60)".into(),
                ..Default::default()
            },
        ],
        self_tests: Some(wire::SelfTests {
            running_remaining_percent: Some(70),
            log: vec![
                test("Extended offline", "failed", "Completed: read failure", 29_700),
                test("Short offline", "passed", "Completed without error", 29_000),
            ],
            short_minutes: 2,
            long_minutes: 480,
            requested: None,
        }),
        messages: vec!["==> WARNING: a firmware update is available".into()],
        family: "Acme Spinner".into(),
        device: "/dev/sda".into(),
        device_type: "sat".into(),
        ..Default::default()
    }
}

fn drive(smart: wire::Smart) -> wire::Drive {
    wire::Drive { id: "naa.5".into(), name: "sda".into(), smart: Some(smart), ..Default::default() }
}

#[test]
fn a_drive_shows_its_values_and_their_changes() {
    insta::assert_snapshot!(smart::section(&drive(smart_response()), &screen(Some(100))), @r#"
    SMART
    state            answered 2 min ago
    self-assessment  passed
    temperature      36 °C
    powered on       29798 h (3.4 years), 120 power cycles
    wear             3 % used (1 % more than at 2026-02-26 12:00:00, last changed 2026-02-28 12:00:00); 100 % in 2910 days at its rate
    pending          269 (12 more than at 2026-02-26 12:00:00, last changed 2 h ago)
    reallocated      4 (unchanged since 2026-02-26 12:00:00)
    at zero          CRC errors, reported uncorrectable
    self-tests       one runs, 70 % remain
                     Extended offline failed: Completed: read failure, 98 hours of power ago
                     Short offline passed: Completed without error, 798 hours of power ago
    attributes       2: --attributes shows them
    family           Acme Spinner
    device           /dev/sda as sat
    smartctl         ==> WARNING: a firmware update is available
    "#);
    assert_eq!(
        smart::section(&wire::Drive::default(), &screen(None)),
        "",
        "the drive is not polled"
    );
}

#[test]
fn an_old_answer_is_shown_with_its_age() {
    let state = |state: State, detail: &str, answered| {
        let smart = wire::Smart {
            state: state.into(),
            detail: detail.into(),
            asked: before(60),
            answered,
            ..Default::default()
        };
        smart::section(&drive(smart), &screen(None)).lines().nth(2).unwrap_or_default().to_owned()
    };
    let lines = [
        state(State::Waiting, "", None),
        state(State::Asleep, "STANDBY", before(90_000)),
        state(State::Asleep, "STANDBY", None),
        state(
            State::NotApplicable,
            "SMART is switched off in this drive; switch it on: smartctl -s on DEVICE",
            None,
        ),
        state(State::Failed, "Permission denied", before(7200)),
        state(State::Stuck, "smartctl has not returned since 11:00", before(7200)),
    ];
    let idle = wire::Smart {
        state: State::Answered.into(),
        idle: true,
        asked: before(9 * 3600),
        answered: before(9 * 3600),
        ..Default::default()
    };
    let idle = drive(idle);
    assert_eq!(smart::rest(&idle, &screen(None)).as_deref(), Some("idle, last asked 9 h ago"));
    assert!(smart::section(&idle, &screen(None)).contains(
        "idle, last asked 9 h ago; not asked until its next I/O; the values below are from 9 h ago"
    ));
    insta::assert_snapshot!(lines.join("\n"), @r#"
    state  not polled yet
    state  asleep (STANDBY), last asked 1 min ago; the values below are from 2026-02-28 11:00:00
    state  asleep (STANDBY), last asked 1 min ago; it has reported no data yet
    state  not applicable: SMART is switched off in this drive; switch it on: smartctl -s on DEVICE
    state  polled without success 1 min ago: Permission denied; the values below are from 2 h ago
    state  stuck: smartctl has not returned since 11:00; the values below are from 2 h ago
    "#);
}

#[test]
fn attributes_are_a_table() {
    insta::assert_snapshot!(smart::attributes(&drive(smart_response()), &screen(Some(100))), @r#"
    attributes of naa.5, read 2 min ago
    ID   NAME                     VALUE  WORST  THRESHOLD  MEANS    FAILED  RAW
    5    Reallocated_Sector_Ct    100    100    10         failure          4
    190  Airflow_Temperature_Cel  44     40     45         old age  now     56 (Min/Max 20/60)
    "#);
    insta::assert_snapshot!(smart::attributes(&wire::Drive::default(), &screen(None)), @"no attributes: the drive has reported none, or it is not an ATA drive");
}

#[test]
fn what_was_left_out_and_an_age_that_may_have_wrapped_are_shown() {
    let mut smart = smart_response();
    smart.notes = vec!["spare threshold 255 %".to_owned()];
    let text = smart::section(&drive(smart.clone()), &screen(Some(100)));
    assert!(text.contains("left out") && text.contains("spare threshold 255 %"), "{text}");
    smart.power_on_hours = Some(70_000);
    smart.self_tests = Some(wire::SelfTests {
        log: vec![test("Short offline", "passed", "Completed", 4464)],
        ..Default::default()
    });
    assert_eq!(smart::self_tests(&smart), ["Short offline passed: Completed, at hour 4464"]);
    smart.power_on_hours = Some(60_000);
    assert!(smart::self_tests(&smart)[0].ends_with("55536 hours of power ago"));
}

#[test]
fn history_has_a_line_a_value() {
    let point = |seconds: i64, value| wire::SmartPoint {
        time: before(seconds),
        value,
        minimum: None,
        mean: None,
    };
    let series = |metric: &str, points| wire::SmartSeries { metric: metric.into(), points };
    let summer = wire::SmartPoint { minimum: Some(22), ..point(86_400 * 200, 44) };
    let history = wire::SmartHistory {
        drive_id: "naa.5".into(),
        series: vec![
            series(
                "pending",
                vec![
                    point(86_400 * 30, 0),
                    point(86_400 * 10, 8),
                    point(86_400 * 5, 269),
                    point(60, 269),
                ],
            ),
            series("wear_percent", vec![point(60, 3)]),
            series("temperature", vec![summer, point(86_400 * 50, 31), point(60, 35)]),
            series("nothing", Vec::new()),
        ],
    };
    insta::assert_snapshot!(smart::history::text(&history, &screen(Some(120))), @r#"
    history of naa.5
    VALUE            HISTORY                   FIRST  LAST  MIN  MAX  FROM              TO
    pending          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂▂▂▂████  0      269   0    269  2026-01-30 12:00  2026-03-01 11:59
    wear, %          ▁                         3      3     3    3    2026-03-01 11:59  2026-03-01 11:59
    temperature, °C  ███████████████████▁▁▁▁▃  44     35    22   44   2025-08-13 12:00  2026-03-01 11:59
    "#);
    let none = wire::SmartHistory { drive_id: "naa.5".into(), series: Vec::new() };
    assert!(smart::history::text(&none, &screen(None)).contains("no history: SMART is not read"));
}

#[test]
fn a_self_test_prints_a_line_for_each_change() {
    let line = |progress: SelfTestProgress, kind| {
        smart::self_test::line(&progress, true, kind, &drive(smart_response()))
    };
    let failed = wire::SelfTest {
        lba: Some(77),
        ..test("Short offline", "failed", "Completed: read failure", 1)
    };
    let lines = [
        line(SelfTestProgress::Requested, TestKind::Short),
        line(SelfTestProgress::Running(None), TestKind::Short),
        line(SelfTestProgress::Running(None), TestKind::Long),
        smart::self_test::line(
            &SelfTestProgress::Running(Some(70)),
            false,
            TestKind::Short,
            &drive(smart_response()),
        ),
        line(SelfTestProgress::Finished(failed), TestKind::Short),
        line(SelfTestProgress::Refused("a test is running already".into()), TestKind::Long),
        line(SelfTestProgress::ResultUnknown, TestKind::Short),
        line(SelfTestProgress::NotStarted, TestKind::Short),
    ];
    insta::assert_snapshot!(lines.concat(), @r#"
    sda: short self-test requested
    sda: the short self-test runs; it takes about 2 min, and it goes on without this command
    sda: the long self-test runs; it takes about 8 h, and it goes on without this command
    sda: the short self-test runs, 70 % remain
    sda: failed: Completed: read failure, first at LBA 77
    sda: refused: a test is running already
    sda: the drive reports no result: the test is over or never started
    sda: the daemon has not polled the drive yet; `diskvitals drive` shows the polling state
    "#);
}

#[test]
fn a_recorded_answer_is_shown_with_what_it_means() {
    let text = |json: &str| {
        let answer = smart_from(json.as_bytes(), "sda.json".into(), &SmartPolicy::default())
            .expect("an answer");
        smart::file::text(&answer, &screen(Some(100)))
    };
    let healthy = r#"{"smartctl": {"version": [7, 3], "exit_status": 0}, "device": {"name": "/dev/sda", "type": "sat", "protocol": "ATA"},
        "model_name": "ACME SPIN4000-A", "serial_number": "AC1", "smart_status": {"passed": true}, "temperature": {"current": 31},
        "power_on_time": {"hours": 100}, "user_capacity": {"bytes": 4000787030016}}"#;
    insta::assert_snapshot!(text(healthy), @r#"
    sda.json
    health           GOOD
    model            ACME SPIN4000-A
    serial           AC1
    size             3.6 TiB
    self-assessment  passed
    temperature      31 °C
    powered on       100 h
    "#);
    let asleep = r#"{"smartctl": {"version": [7, 3], "exit_status": 2, "messages":
        [{"string": "Device is in STANDBY mode, exit(2)", "severity": "information"}]}, "device": {"name": "/dev/sda", "protocol": "ATA"}}"#;
    insta::assert_snapshot!(text(asleep), @r#"
    sda.json
    health   UNKNOWN
    because  the drive was asleep (STANDBY) and was not woken
    "#);
}
