//! Which evidence of a finding holds now: records of this boot, and what the newest scan says.

use std::collections::BTreeSet;
use std::time::Duration;

use super::counters::count;
use super::plain;
use crate::fixture::*;
use crate::policy::ErrorPolicy;
use crate::source_update::SourceUpdate;
use diskvitals_finding::WitnessKind;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::{Batch, Class, Cursor, Event};

fn log(host: &mut TestHost, seconds: i64) {
    let seq = seconds.unsigned_abs();
    let cursor =
        Cursor { boot_id: "boot".into(), counted_to: Some(seq), reread_from: seq + 1, lost: 0 };
    let batch = Batch {
        cursor,
        events: vec![Event { seq, ..event(Class::Removed, "sda", at(seconds), &[]) }],
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), seconds);
}

/// sda was removed at second 20, with a record of the kernel.
fn removed() -> TestHost {
    let mut host = plain();
    log(&mut host, 19);
    host.pull("sda");
    host.scan(20);
    host
}

fn witnesses(host: &mut TestHost, reason: Reason, seconds: i64) -> BTreeSet<WitnessKind> {
    let finding = host.raised_for(reason, seconds).expect("raised");
    let present = finding.evidence.iter().filter(|record| record.present);
    present.map(|record| record.witness).collect()
}

#[test]
fn a_removed_drive_has_two_witnesses_in_the_boot_of_its_removal() {
    let mut host = removed();
    host.facts.booted = Some(at(10));
    assert_eq!(
        witnesses(&mut host, Reason::DriveMissing, 21),
        [WitnessKind::KernelLog, WitnessKind::Inventory].into()
    );
}

#[test]
fn a_record_of_an_earlier_boot_or_of_an_unknown_one_is_no_witness() {
    // Times of earlier boots are never later than the start of this one.
    for booted in [Some(at(20)), Some(at(19)), None] {
        let mut host = removed();
        host.facts.booted = booted;
        assert_eq!(witnesses(&mut host, Reason::DriveMissing, 21), [WitnessKind::Inventory].into());
    }
}

#[test]
fn a_scan_that_fails_is_no_witness_of_what_the_last_one_saw() {
    let mut host = removed();
    host.facts.booted = Some(at(10));
    let failed = Observation::failed(at(30), "a device does not answer");
    host.apply(SourceUpdate::Inventory(failed), 30);
    assert_eq!(witnesses(&mut host, Reason::DriveMissing, 31), [WitnessKind::KernelLog].into());
}

#[test]
fn a_mount_that_answers_with_an_error_is_seen_by_the_probe_and_listed_by_the_kernel() {
    let mut host = plain();
    host.probe("/data", failing_probe(5), 5);
    assert_eq!(
        witnesses(&mut host, Reason::NotAccessible, 6),
        [WitnessKind::Probe, WitnessKind::MountTable].into()
    );
}

/// A process that still uses it causes records for as long as it does.
#[test]
fn later_records_of_a_removed_drive_leave_the_witness_of_its_removal() {
    let mut host = removed();
    host.facts.booted = Some(at(10));
    let both: BTreeSet<_> = [WitnessKind::KernelLog, WitnessKind::Inventory].into();
    for seconds in [100, 400, 5000] {
        log(&mut host, seconds);
        assert_eq!(witnesses(&mut host, Reason::DriveMissing, seconds + 1), both, "{seconds}");
    }
    // Records of long before are of something else.
    let mut host = plain();
    host.facts.booted = Some(at(0));
    log(&mut host, 5);
    host.pull("sda");
    host.scan(500);
    assert_eq!(witnesses(&mut host, Reason::DriveMissing, 501), [WitnessKind::Inventory].into());
}

#[test]
fn short_quiet_periods_leave_the_witness_for_as_long_as_the_drive_is_gone() {
    let short = Duration::from_secs(5);
    let policy = ErrorPolicy {
        quiet_after: short,
        bad_quiet_after: short,
        window: short,
        ..ErrorPolicy::default()
    };
    let mut host = removed();
    host.facts.booted = Some(at(10));
    host.facts.forget_errors(&policy, at(4000));
    assert_eq!(
        witnesses(&mut host, Reason::DriveMissing, 4001),
        [WitnessKind::KernelLog, WitnessKind::Inventory].into()
    );
    host.plug("sda", "8:0", "A");
    host.scan(4002);
    host.facts.forget_errors(&policy, at(4003));
    assert!(host.facts.kernel.errors.is_empty());
}

/// The record of the removal may have been lost.
#[test]
fn a_counter_or_a_probe_of_the_time_of_the_removal_is_a_witness_besides_the_log() {
    let removed = |counted: i64| {
        let mut host = plain();
        host.facts.booted = Some(at(1));
        for (errors, seconds) in [(0, 2), (1, counted)] {
            count(&mut host, "ext4", "/sys/fs/ext4/sda", &[("errors_count", errors)], seconds);
        }
        host.pull("sda");
        host.scan(500);
        host
    };
    let (inventory, counter) = (WitnessKind::Inventory, WitnessKind::Counter);
    for (counted, expected) in [(495, vec![inventory, counter]), (100, vec![inventory])] {
        let seen = witnesses(&mut removed(counted), Reason::DriveMissing, 501);
        assert_eq!(seen, expected.into_iter().collect(), "{counted}");
    }
    let mut host = removed(100);
    host.probe("/data", failing_probe(5), 502);
    assert_eq!(
        witnesses(&mut host, Reason::DriveMissing, 503),
        [inventory, WitnessKind::Probe].into()
    );
}

#[test]
fn what_follows_from_another_finding_is_no_witness() {
    let mut host = removed();
    host.facts.booted = Some(at(10));
    assert_eq!(witnesses(&mut host, Reason::DriveFailing, 21), BTreeSet::new());
}
