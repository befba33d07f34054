//! Counters of the same errors beside the kernel log's records: shown, without weight.

use std::collections::BTreeMap;

use super::plain;
use crate::counters::{CounterDevice, CounterReading};
use crate::drive::DriveKind;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::{Batch, Blame, Class, Cursor, Event};
use diskvitals_smart::SmartResponse;
use diskvitals_smart::report::{Body, Identity, Nvme, SmartReport};

fn log(host: &mut TestHost, class: Class, second: i64) {
    let logged =
        Event { blame: Blame::Yes, seq: second as u64, ..event(class, "sda", at(second), &[]) };
    let cursor =
        Cursor { boot_id: "b".into(), counted_to: Some(second as u64), reread_from: 0, lost: 0 };
    host.apply(
        SourceUpdate::KernelLog(Batch {
            cursor,
            events: vec![logged],
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        }),
        second,
    );
}

pub(super) fn count(
    host: &mut TestHost,
    source: &str,
    file: &str,
    values: &[(&str, u64)],
    second: i64,
) {
    let reading = CounterReading {
        device: CounterDevice::Block("sda".into()),
        source: source.into(),
        file: file.into(),
        values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        details: BTreeMap::new(),
    };
    let update = SourceUpdate::Counters(Observation::ok(at(second), vec![reading]));
    host.apply(update, second);
}

pub(super) fn answer(host: &mut TestHost, media_errors: u64, second: i64) {
    let report = SmartReport {
        smartctl: [7, 3],
        identity: Identity {
            device: "/dev/sda".into(),
            protocol: "NVMe".into(),
            serial: Some("A".into()),
            ..Identity::default()
        },
        passed: Some(true),
        body: Body::Nvme(Nvme { media_errors: Some(media_errors), ..Nvme::default() }),
        ..SmartReport::default()
    };
    let update = SourceUpdate::Smart {
        drive: DriveId::new("A"),
        at: at(second),
        response: Box::new(SmartResponse::Report(Box::new(report))),
        duration: std::time::Duration::ZERO,
    };
    host.apply(update, second);
}

/// The evidence after the log's record: source, second, text.
fn beside(host: &mut TestHost, reason: Reason, second: i64) -> Vec<(String, i64, String)> {
    let found = host.raised_for(reason, second).expect("raised");
    found
        .evidence
        .into_iter()
        .skip(1)
        .map(|one| {
            let after = one.time.as_second() - at(0).as_second();
            (one.source, after, one.text)
        })
        .collect()
}

#[test]
fn the_media_errors_of_an_nvme_drive_are_shown_with_the_time_of_their_change() {
    let mut host = plain();
    answer(&mut host, 0, 5);
    answer(&mut host, 0, 65);
    log(&mut host, Class::Medium, 70);
    let still = || {
        ("smartctl 7.3 of /dev/sda".to_owned(), 5, "Media and Data Integrity Errors: 0".to_owned())
    };
    assert_eq!(beside(&mut host, Reason::MediaErrors, 71), [still()]);
    // Another reading of the same value changes nothing, and lowers nothing.
    let before = host.raised_for(Reason::MediaErrors, 71);
    answer(&mut host, 0, 125);
    assert_eq!(host.raised_for(Reason::MediaErrors, 126), before);
}

#[test]
fn a_count_that_has_a_finding_of_its_own_is_quoted_once() {
    let mut host = plain();
    answer(&mut host, 4, 5);
    log(&mut host, Class::Medium, 70);
    let found = host.raised_for(Reason::MediaErrors, 71).expect("raised");
    let quoting = |one: &&diskvitals_finding::Evidence| one.text.starts_with("Media and Data");
    assert_eq!(found.evidence.iter().filter(quoting).count(), 1);
}

#[test]
fn the_superblock_count_of_ext4_is_shown_beside_its_errors() {
    let mut host = plain();
    count(&mut host, "ext4", "/sys/fs/ext4/sda", &[("errors_count", 0)], 5);
    log(&mut host, Class::FsError, 70);
    let expected = ("/sys/fs/ext4/sda".to_owned(), 5, "errors_count 0".to_owned());
    assert_eq!(beside(&mut host, Reason::FilesystemErrors, 71), [expected]);
    // The growth belongs to the logged error, and is shown in its place.
    count(&mut host, "ext4", "/sys/fs/ext4/sda", &[("errors_count", 1)], 72);
    let grown = beside(&mut host, Reason::FilesystemErrors, 80);
    assert_eq!(grown[0].1, 72);
    assert_eq!(grown[0].2, "errors_count 1");
}

#[test]
fn a_btrfs_shows_the_statistics_of_the_kind_of_error() {
    let mut host = plain();
    let file = "/sys/fs/btrfs/u/devinfo/1/error_stats";
    let statistics = [("write_errs", 2), ("read_errs", 0), ("corruption_errs", 7)];
    count(&mut host, "btrfs", file, &statistics, 5);
    log(&mut host, Class::FsCorruption, 70);
    let shown = beside(&mut host, Reason::FilesystemCorrupted, 71);
    assert_eq!(shown, [(file.to_owned(), 5, "corruption_errs 7".to_owned())]);
    log(&mut host, Class::FsError, 72);
    let shown = beside(&mut host, Reason::FilesystemErrors, 73);
    assert_eq!(shown[0].2, "read_errs 0, write_errs 2");
}

fn records_lost(host: &mut TestHost, lost: u64, second: i64) {
    let cursor = Cursor { boot_id: "b".into(), counted_to: Some(1), reread_from: 0, lost };
    host.apply(
        SourceUpdate::KernelLog(Batch {
            cursor,
            events: Vec::new(),
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        }),
        second,
    );
}

/// A disk without SMART data: its log and its counters are all there is.
fn virtual_disk() -> TestHost {
    let mut host = plain();
    for drive in &mut host.inventory.drives {
        drive.kind = DriveKind::Virtual;
    }
    host.read_all(1);
    records_lost(&mut host, 0, 2);
    host
}

fn unknown(host: &TestHost, second: i64) -> Option<String> {
    let drive = Subject::Drive(DriveId::new("A"));
    unknown_at(second, &host.facts, &drive).map(|unknown| unknown.why)
}

/// Any user can make the kernel overwrite its log faster than anybody reads it.
#[test]
fn a_drive_without_counters_is_unknown_while_records_may_be_lost() {
    let mut host = virtual_disk();
    host.apply(SourceUpdate::Counters(Observation::ok(at(3), Vec::new())), 3);
    assert_eq!(unknown(&host, 4), None);
    host.facts.take_counters_request();
    records_lost(&mut host, 500, 100);
    assert!(host.facts.take_counters_request(), "read at once");
    // It would refuse the question, and count that as an error.
    assert_eq!(host.facts.take_smart_request(), []);
    let why = unknown(&host, 101).expect("unknown");
    assert!(why.ends_with("and this drive has no counters of errors"), "{why}");
    records_lost(&mut host, 900, 300);
    assert!(unknown(&host, 899).is_some());
    assert_eq!(unknown(&host, 901), None, "a failing drive has had its next error");
}

#[test]
fn a_drive_whose_counters_stand_still_keeps_its_health_when_records_are_lost() {
    let values = |errors| [("ioerr_cnt", errors), ("iotmo_cnt", 0)];
    for (errors, read, expected) in
        [(4, true, None), (5, true, Some("changed meanwhile")), (4, false, Some("are not read"))]
    {
        let mut host = virtual_disk();
        count(&mut host, "scsi", "/sys/block/sda/device", &values(3), 3);
        // Grown before: the log has told of it, or it was harmless.
        count(&mut host, "scsi", "/sys/block/sda/device", &values(4), 50);
        records_lost(&mut host, 500, 100);
        assert_eq!(unknown(&host, 101), None, "not read yet");
        if read {
            count(&mut host, "scsi", "/sys/block/sda/device", &values(errors), 102);
            records_lost(&mut host, 900, 129);
        }
        let why = unknown(&host, 130);
        let is_it = match (&why, expected) {
            (Some(why), Some(expected)) => why.ends_with(expected),
            (why, expected) => why.is_none() && expected.is_none(),
        };
        assert!(is_it, "{why:?} {expected:?}");
    }
}

/// The own logs of drives are read once while records are lost.
#[test]
fn drives_with_smart_data_are_asked_when_records_are_lost() {
    let mut host = plain();
    answer(&mut host, 0, 1);
    for (lost, second, asked) in [(500, 100, 1), (900, 300, 0), (1000, 2000, 1)] {
        records_lost(&mut host, lost, second);
        let drives = host.facts.take_smart_request();
        assert_eq!(drives, vec![DriveId::new("A"); asked], "{second}");
    }
}

/// Health that nothing contradicts stays; so does a finding.
#[test]
fn lost_records_end_no_finding() {
    let mut host = virtual_disk();
    log(&mut host, Class::Medium, 10);
    let before = host.raised(11);
    assert!(!before.is_empty());
    records_lost(&mut host, 500, 100);
    assert_eq!(host.raised(101), before);
}
