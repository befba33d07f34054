//! What is not known never reads as good.

use super::*;
use crate::render::{checkmk, nagios};

fn unknown(name: &str, why: String) -> wire::Drive {
    let mut drive = drive(name, wire::Health::Unknown);
    drive.serial = format!("S-{name}");
    drive.health_unknown_why = why;
    drive
}

fn view<'a>(node: &'a wire::Node, drives: &'a [wire::Drive]) -> StatusView<'a> {
    StatusView { node, drives, volumes: &[], findings: &[], causes: Some(&[]) }
}

#[test]
fn equal_unknowns_are_one_block_and_nothing_is_called_well() {
    let refused = |name: &str| {
        let why =
            format!("SMART: Smartctl open device: /dev/{name} failed: Operation not permitted");
        unknown(name, why)
    };
    let names = ["sda", "sdb", "sdc", "sdd", "sde", "sdf"];
    let drives: Vec<_> = names.into_iter().map(refused).collect();
    let node = node(wire::Health::Unknown);
    let view = view(&node, &drives);
    let head = status::head(&view, &screen(Some(80)));
    assert!(
        head.ends_with("UNKNOWN  6 drives, 0 volumes, 6 drives unknown, no findings\n"),
        "{head}"
    );
    assert_eq!(
        status::unknown(&view, &screen(Some(80))),
        "\nUNKNOWN sda, sdb, sdc, sdd and 2 more\n    sda: SMART: Smartctl open device: /dev/sda failed: Operation not permitted\n"
    );
    assert!(
        nagios::output(&view).ends_with(
            "\nUNKNOWN: sda, sdb, sdc and 3 more - sda: SMART: Smartctl open device: /dev/sda failed: Operation not permitted\n"
        )
    );
    for text in [nagios::output(&view), checkmk::output(&view)] {
        assert!(!text.contains("nothing wrong"), "{text}");
        assert!(text.contains("6 drives unknown"), "{text}");
    }
}

#[test]
fn reasons_that_differ_only_in_a_time_are_one_and_different_ones_are_not() {
    let drives = [
        unknown("sda", "SMART: the last answer is from 2026-01-01T00:00:00Z".into()),
        unknown("sdb", "SMART: the last answer is from 2026-01-02T00:00:00Z".into()),
        unknown("sdc", "SMART: no answer".into()),
        drive("sdd", wire::Health::Good),
    ];
    let groups = status::unknown_by_reason(&drives, &[]);
    let names: Vec<_> = groups.iter().map(|(_, names)| names.join(" ")).collect();
    assert_eq!(names, ["sda sdb", "sdc"]);
    assert_eq!(groups[0].0, "sda: SMART: the last answer is from 2026-01-01T00:00:00Z");
}

#[test]
fn a_sleeping_drive_does_not_count_as_unknown() {
    let mut asleep = unknown("sda", "SMART: the drive is in standby".into());
    asleep.health_unknown_cause = wire::UnknownCause::Asleep.into();
    assert_eq!(status::unknown_count(&[asleep], &[]), None);
}

#[test]
fn a_drive_without_smart_says_what_it_is_judged_by() {
    let mut vda = drive("vda", wire::Health::Good);
    vda.health_basis = "no SMART; kernel log clean".into();
    let drives = [vda.clone(), drive("nvme0n1", wire::Health::Good)];
    let table = drives::table(&drives, &screen(Some(120)));
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[2].contains("no SMART; kernel log clean"), "{table}");
    assert!(!rows[1].contains("no SMART"), "{table}");
    let node = node(wire::Health::Good);
    let lines = checkmk::output(&view(&node, &drives));
    assert!(lines.contains(": no SMART; kernel log clean\n"), "{lines}");
    let one = drives::one(&vda, &screen(Some(80)));
    assert!(one.contains("no SMART; kernel log clean"), "{one}");
}

#[test]
fn explain_does_not_call_an_unknown_drive_free_of_findings() {
    let explanation = wire::Explanation {
        drives: vec![unknown("sda", "SMART: smartctl is not installed".into())],
        ..Default::default()
    };
    let text = explain::tree(&explanation, &screen(Some(80)));
    assert!(text.contains("no findings, but 1 drive unknown"), "{text}");
    assert!(text.contains("sda: SMART: smartctl is not installed"), "{text}");
}
