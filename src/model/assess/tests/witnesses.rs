//! Which evidence of a finding holds now: records of this boot, and what the newest scan says.

use std::collections::BTreeSet;

use super::plain;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::WitnessKind;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::{Batch, Class, Cursor};

/// sda was removed at second 20, with a record of the kernel.
fn removed() -> TestHost {
    let mut host = plain();
    let batch = Batch {
        cursor: Cursor { boot_id: "boot".into(), counted_to: Some(1), reread_from: 2, lost: 0 },
        events: vec![event(Class::Removed, "sda", at(19), &[])],
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), 19);
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

#[test]
fn what_follows_from_another_finding_is_no_witness() {
    let mut host = removed();
    host.facts.booted = Some(at(10));
    assert_eq!(witnesses(&mut host, Reason::DriveFailing, 21), BTreeSet::new());
}
