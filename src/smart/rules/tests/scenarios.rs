//! What drives say in the course of time.

use crate::fixture::*;
use crate::history::SmartHistory;
use crate::policy::SmartPolicy;
use crate::report::{LoggedError, SmartReport};
use crate::rules::evaluate;
use crate::rules::tests::{after, hit_for, recorded};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity::{Bad, Info, Suspect};

const DAY: i64 = 24;

#[test]
fn a_designed_life_that_ends_within_180_days_is_information_until_much_of_it_is_used() {
    let used =
        |day: i64, percent| (day * 24, nvme().nvme(|log| log.percentage_used = Some(percent)));
    let at = |rest: &[(i64, SmartReport)], steps: [u8; 4]| {
        let first = [(0, steps[0]), (10, steps[1]), (20, steps[2]), (30, steps[3])];
        let first = first.into_iter().map(|(day, percent)| used(day, percent));
        let readings: Vec<_> = first.chain(rest.iter().cloned()).collect();
        let hits = after(&readings);
        hit_for(&hits, Reason::WornOut).map(|hit| (hit.severity, hit.message.clone()))
    };
    let ahead = "100 % of the designed life is used in 175 days, at the rate of the last 30 days (6 % more)";
    assert_eq!(at(&[], [59, 60, 63, 65]), Some((Info, ahead.to_owned())));
    assert_eq!(at(&[], [50, 52, 55, 56]), None, "220 days");
    let (severity, message) = at(&[], [76, 77, 79, 82]).expect("worn");
    assert_eq!(severity, Suspect);
    assert!(message.starts_with("82 % of the designed life is used; 100 % "), "{message}");
    assert_eq!(
        at(&[], [95, 97, 99, 101]),
        Some((Suspect, "101 % of the designed life is used".to_owned()))
    );
    // It is written less: 35 % last longer than 180 days at 6 % in 40 days.
    assert_eq!(at(&[used(40, 65)], [59, 60, 63, 65]), None);
}

#[test]
fn a_few_old_reallocated_sectors_are_suspect_with_their_history() {
    let said = after(&[(0, disk().raw(5, "4")), (211 * DAY, disk().raw(5, "4"))]);
    assert_eq!(said[0].message, "4 reallocated sectors, unchanged for 211 days");
    assert_eq!(said[0].severity, Suspect);
}

#[test]
fn growth_says_the_rate() {
    let pending = |count: &str| disk().raw(197, count);
    let said = after(&[
        (0, pending("57")),
        (DAY, pending("58")),
        (3 * DAY, pending("65")),
        (4 * DAY, pending("69")),
    ]);
    assert_eq!(said[0].message, "69 pending sectors (12 more in 3 days, 4.0 a day)");
    assert_eq!(said[0].severity, Bad);
}

#[test]
fn pending_sectors_that_came_once_are_suspect_and_bad_when_more_come() {
    let pending = |count: &str| disk().raw(197, count);
    let once = [(0, pending("0")), (1, pending("8")), (5, pending("8"))];
    let said = after(&once);
    assert_eq!(
        (said[0].severity, said[0].message.as_str()),
        (Suspect, "8 pending sectors (8 more 4 hours ago)")
    );
    let mut twice = once.to_vec();
    twice.push((30, pending("16")));
    assert_eq!(after(&twice)[0].severity, Bad);
    // A week without another: they are still there, and no more come.
    twice.push((31 + 7 * DAY, pending("16")));
    assert_eq!(after(&twice)[0].severity, Suspect);
}

#[test]
fn a_healthy_drive_gets_pending_sectors_and_reallocates_them() {
    let mut readings = vec![(0, disk())];
    assert_eq!(after(&readings), []);
    readings.push((DAY, disk().raw(197, "8")));
    assert_eq!(after(&readings)[0].reason, Reason::PendingSectors);
    readings.push((2 * DAY, disk().raw(5, "8")));
    let said = after(&readings);
    assert_eq!(said.len(), 1, "the pending ones are over: {said:?}");
    assert_eq!((said[0].reason, said[0].severity), (Reason::ReallocatedSectors, Suspect));
    assert_eq!(said[0].message, "8 reallocated sectors (8 more just now)");
}

#[test]
fn reallocation_that_runs_is_bad_long_before_the_level() {
    let so_many = |count: u64| disk().raw(5, &count.to_string());
    let slow = after(&[(0, so_many(4)), (DAY, so_many(50)), (2 * DAY, so_many(103))]);
    assert_eq!(slow[0].severity, Suspect);
    let fast = after(&[(0, so_many(4)), (DAY, so_many(50)), (2 * DAY, so_many(104))]);
    assert_eq!(fast[0].severity, Bad);
    // All at once: one incident.
    assert_eq!(after(&[(0, so_many(4)), (DAY, so_many(400))])[0].severity, Suspect);
}

#[test]
fn growing_uncorrectable_errors_are_bad() {
    let reported = |count: &str| disk().raw(187, count);
    assert_eq!(after(&[(0, reported("2")), (1, reported("3"))])[0].severity, Suspect);
    assert_eq!(
        after(&[(0, reported("2")), (1, reported("3")), (2, reported("4"))])[0].severity,
        Bad
    );
    let media = |count| nvme().nvme(|log| log.media_errors = Some(count));
    assert_eq!(after(&[(0, media(0)), (1, media(3)), (2, media(4))])[0].severity, Bad);
}

#[test]
fn the_cable_is_to_blame_for_crc_errors_that_grow_and_for_no_others() {
    let crc = |count: &str| disk().raw(199, count);
    assert_eq!(after(&[(0, crc("500")), (900, crc("500"))]), []);
    assert_eq!(after(&[(0, crc("500")), (1, crc("520"))]), [], "reseating a cable does this");
    let said = after(&[(0, crc("500")), (1, crc("520")), (2, crc("521"))]);
    assert_eq!((said.len(), said[0].reason, said[0].severity), (1, Reason::LinkErrors, Suspect));
    assert!(said[0].message.contains("cable"), "{}", said[0].message);
}

#[test]
fn time_outs_are_suspect_while_they_grow() {
    let timeouts = |text: &str| disk().with(attribute(188, "Command_Timeout", 100, 0, text));
    let readings = [(0, timeouts("0 0 12")), (1, timeouts("0 0 13")), (2, timeouts("0 1 14"))];
    assert_eq!(after(&readings)[0].reason, Reason::SmartAttributeSuspect);
    let later = [readings.to_vec(), vec![(3 + 7 * DAY, timeouts("0 1 14"))]].concat();
    assert_eq!(after(&later), []);
}

#[test]
fn a_growing_error_log_counts_when_it_is_about_the_medium() {
    let logged = |count, text: &str| {
        disk().ata(|ata| {
            (ata.error_count, ata.last_errors) =
                (Some(count), vec![LoggedError { hours: Some(1), text: text.into() }])
        })
    };
    let readings = |text: &str| [(0, logged(4, text)), (1, logged(5, text)), (2, logged(6, text))];
    assert_eq!(after(&readings("Error: ABRT")), []);
    assert_eq!(
        after(&readings("Error: UNC at LBA = 0x000f4240 = 1000000"))[0].reason,
        Reason::MediaErrors
    );
}

#[test]
fn another_drive_in_the_slot_has_no_growth_of_its_predecessors() {
    let another =
        disk().raw(5, "40").identity(|identity| identity.serial = Some("TEST0002".into()));
    let said = after(&[(0, disk()), (1, disk().raw(5, "1")), (2, another)]);
    assert_eq!(said[0].message, "40 reallocated sectors");
}

#[test]
fn a_counter_reset_is_no_growth() {
    let crc = |count: &str| disk().raw(199, count);
    assert_eq!(after(&[(0, crc("9")), (1, crc("0")), (2, crc("5"))]), []);
}

#[test]
fn the_spare_of_an_nvme_drive_falls() {
    let spare = |left, warning| {
        nvme().nvme(|log| (log.available_spare, log.critical_warning) = (Some(left), Some(warning)))
    };
    let mut readings: Vec<(i64, SmartReport)> = vec![(0, spare(100, 0)), (DAY, spare(60, 0))];
    assert_eq!(after(&readings), []);
    readings.push((2 * DAY, spare(20, 0)));
    assert_eq!(after(&readings)[0].severity, Suspect);
    readings.push((3 * DAY, spare(8, 1)));
    let said = after(&readings);
    assert_eq!((said[0].reason, said[0].severity), (Reason::SpareLow, Bad));
    assert_eq!(
        said[0].message,
        "The drive has used up its spare blocks (8 % left; its limit is 10 %)"
    );
}

#[test]
fn overheating_clears_with_hysteresis_below_the_limit() {
    let warm = |celsius| disk().celsius(celsius, Some(60));
    let mut readings = vec![(0, warm(57))];
    let hot =
        |readings: &[(i64, SmartReport)]| hit_for(&after(readings), Reason::Overheating).is_some();
    assert!(!hot(&readings));
    for (hours, celsius, expected) in
        [(1, 61, true), (2, 59, true), (3, 56, true), (4, 55, false), (5, 59, false), (6, 61, true)]
    {
        readings.push((hours, warm(celsius)));
        assert_eq!(hot(&readings), expected, "hour {hours}");
    }
}

#[test]
fn a_value_that_is_no_longer_reported_is_not_evaluated() {
    let (mut memory, _) =
        recorded(&[(0, disk()), (1, disk().raw(187, "5")), (2, disk().raw(187, "9"))]);
    let silent = disk().ata(|ata| ata.attributes.retain(|attribute| attribute.id != 187));
    memory.record(&silent, hour(3));
    assert_eq!(evaluate(&silent, Some(&memory), &SmartPolicy::default()), []);
}

#[test]
fn an_empty_history_equals_no_history() {
    let report = disk().raw(197, "5");
    let policy = SmartPolicy::default();
    assert_eq!(
        evaluate(&report, Some(&SmartHistory::default()), &policy),
        evaluate(&report, None, &policy)
    );
}
