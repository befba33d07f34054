//! What is remembered, and what counts as growth.

mod attribute_meanings;
mod laws;

use jiff::SignedDuration;

use crate::fixture::*;
use crate::history::{Metric, Reset, SmartHistory};
use crate::report::SmartReport;

const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

fn recorded(readings: &[(i64, SmartReport)]) -> SmartHistory {
    let mut memory = SmartHistory::default();
    for (hours, report) in readings {
        memory.record(report, hour(*hours));
    }
    memory
}

fn pending(readings: &[(i64, u64)]) -> SmartHistory {
    let readings: Vec<(i64, SmartReport)> = readings
        .iter()
        .map(|(hours, count)| (*hours, disk().raw(197, &count.to_string())))
        .collect();
    recorded(&readings)
}

fn points(memory: &SmartHistory, metric: Metric) -> Vec<(i64, u64)> {
    memory.series[&metric]
        .points
        .iter()
        .map(|point| ((point.at.duration_since(hour(0))).as_hours(), point.value))
        .collect()
}

#[test]
fn changes_are_kept_and_the_last_reading() {
    let memory = pending(&[(0, 0), (1, 0), (2, 0), (3, 8), (4, 8), (5, 16)]);
    assert_eq!(points(&memory, Metric::Pending), [(0, 0), (3, 8), (5, 16)]);
    let memory = pending(&[(0, 0), (1, 8), (2, 8), (9, 8)]);
    assert_eq!(points(&memory, Metric::Pending), [(0, 0), (1, 8), (9, 8)]);
}

#[test]
fn growth_says_by_how_much_how_often_and_since_when() {
    let memory = pending(&[(0, 8), (30, 10), (54, 20), (60, 20)]);
    let growth = memory.series[&Metric::Pending].growth(WEEK).expect("growth");
    assert_eq!(
        (growth.by, growth.occasions, growth.first, growth.last, growth.last_reading),
        (12, 2, hour(30), hour(54), hour(60))
    );
}

#[test]
fn the_first_reading_is_no_growth() {
    assert_eq!(pending(&[(0, 300), (1, 300)]).series[&Metric::Pending].growth(WEEK), None);
}

#[test]
fn growth_before_the_window_is_history() {
    let memory = pending(&[(0, 0), (10, 8), (10 + 7 * 24, 8)]);
    assert_eq!(memory.series[&Metric::Pending].growth(WEEK).expect("still in it").by, 8);
    let memory = pending(&[(0, 0), (10, 8), (11 + 7 * 24, 8)]);
    assert_eq!(memory.series[&Metric::Pending].growth(WEEK), None);
}

#[test]
fn a_fluctuating_value_grows_only_above_its_maximum() {
    let memory = pending(&[(0, 0), (10, 1), (20, 0), (30, 1), (40, 0), (50, 1)]);
    assert_eq!(memory.series[&Metric::Pending].growth(WEEK).expect("the first time").occasions, 1);
}

#[test]
fn increases_within_an_hour_are_one_occasion_however_many_they_are() {
    let mut memory = SmartHistory::default();
    let mut occasions_at = |minutes: i64, count: u64| {
        memory.record(
            &disk().raw(197, &count.to_string()),
            hour(0) + SignedDuration::from_mins(minutes),
        );
        memory.series[&Metric::Pending].growth(WEEK).map_or(0, |growth| growth.occasions)
    };
    let told = [(0, 0), (1, 8), (20, 16), (40, 24), (60, 32), (61, 33), (80, 34), (121, 35)];
    assert_eq!(told.map(|(minutes, count)| occasions_at(minutes, count)), [0, 1, 1, 1, 1, 2, 2, 3]);
}

#[test]
fn a_counter_that_decreases_is_reset() {
    let memory = recorded(&[
        (0, disk().raw(199, "500")),
        (1, disk().raw(199, "3")),
        (2, disk().raw(199, "4")),
    ]);
    let series = &memory.series[&Metric::CrcErrors];
    assert_eq!(points(&memory, Metric::CrcErrors), [(1, 3), (2, 4)]);
    assert_eq!(series.reset, Some(Reset { at: hour(1), from: 500, to: 3 }));
    assert_eq!(series.growth(WEEK).expect("only what came after").by, 1);
}

#[test]
fn healed_sectors_are_no_reset() {
    let memory = pending(&[(0, 8), (1, 0)]);
    assert_eq!(points(&memory, Metric::Pending), [(0, 8), (1, 0)]);
    assert_eq!(memory.series[&Metric::Pending].reset, None);
}

#[test]
fn a_step_with_other_firmware_or_another_smartctl_is_no_growth() {
    let other_firmware =
        disk().raw(187, "90").identity(|identity| identity.firmware = Some("2.0".into()));
    let mut newer_smartctl = other_firmware.clone().raw(187, "1000");
    newer_smartctl.smartctl = [7, 5];
    let memory = recorded(&[(0, disk().raw(187, "1")), (1, other_firmware), (2, newer_smartctl)]);
    assert_eq!(memory.series[&Metric::ReportedUncorrectable].growth(WEEK), None);
    assert_eq!(points(&memory, Metric::ReportedUncorrectable), [(2, 1000)]);
}

#[test]
fn a_missing_firmware_version_is_not_a_firmware_change() {
    let silent = disk()
        .raw(187, "2")
        .identity(|identity| (identity.firmware, identity.in_database) = (None, None));
    let memory = recorded(&[(0, disk().raw(187, "1")), (1, silent)]);
    assert_eq!(memory.series[&Metric::ReportedUncorrectable].growth(WEEK).expect("growth").by, 1);
}

#[test]
fn another_drive_in_the_same_slot_starts_a_new_history() {
    let another =
        disk().raw(5, "40").identity(|identity| identity.serial = Some("TEST0002".into()));
    let memory = recorded(&[(0, disk().raw(5, "4")), (1, another)]);
    assert_eq!(points(&memory, Metric::Reallocated), [(1, 40)]);
    assert_eq!(memory.series[&Metric::Reallocated].reset, None);
}

#[test]
fn the_same_world_wide_name_is_the_same_drive_however_its_model_is_written() {
    let wwn = |report: SmartReport, model: &str| {
        report.identity(|identity| {
            (identity.wwn, identity.model) =
                (Some("naa.5000000000000001".into()), Some(model.into()))
        })
    };
    let memory =
        recorded(&[(0, wwn(disk(), "TEST DISK")), (1, wwn(disk().raw(5, "1"), "ATA TEST DISK"))]);
    assert_eq!(points(&memory, Metric::Reallocated), [(0, 0), (1, 1)]);
}

#[test]
fn a_missing_serial_number_is_not_another_drive() {
    let memory = recorded(&[
        (0, disk()),
        (1, disk().raw(5, "1").identity(|identity| identity.serial = None)),
    ]);
    assert_eq!(points(&memory, Metric::Reallocated), [(0, 0), (1, 1)]);
}

#[test]
fn a_clock_that_was_ahead_leaves_no_point_in_the_future() {
    let memory = pending(&[(0, 0), (1000, 8), (2, 8), (3, 16)]);
    assert_eq!(points(&memory, Metric::Pending), [(0, 0), (2, 8), (3, 16)]);
}

#[test]
fn a_response_clears_asleep_since() {
    let mut memory = SmartHistory { asleep_since: Some(hour(0)), ..SmartHistory::default() };
    memory.record(&disk(), hour(1));
    assert_eq!((memory.asleep_since, memory.last.map(|(at, _)| at)), (None, Some(hour(1))));
}

#[test]
fn how_long_a_value_has_stood() {
    assert_eq!(
        pending(&[(0, 4), (48, 4)]).series[&Metric::Pending].unchanged_for(),
        SignedDuration::from_hours(48)
    );
    assert_eq!(
        pending(&[(0, 4), (10, 5), (48, 5)]).series[&Metric::Pending].unchanged_for(),
        SignedDuration::from_hours(38)
    );
}

#[test]
fn a_full_series_keeps_its_first_its_highest_and_its_newest_points() {
    let readings: Vec<(i64, u64)> =
        (0..500).map(|hours| (hours, if hours == 100 { 77 } else { (hours % 2) as u64 })).collect();
    let memory = pending(&readings);
    let points = points(&memory, Metric::Pending);
    assert!(points.len() <= 64);
    assert_eq!(points.first(), Some(&(0, 0)));
    assert!(points.contains(&(100, 77)));
    assert!((470..500).all(|hours| points.contains(&(hours, (hours % 2) as u64))));
}
