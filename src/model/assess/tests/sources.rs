//! Sources that have not worked for ten minutes, and that verdicts rest on.

use super::plain;
use crate::assess::shown_source;
use crate::drive::{DriveKind, Transport};
use crate::fixture::*;
use crate::source_update::{SourceStatus, SourceUpdate};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Status, Subject};

const MINUTE: i64 = 60;

fn report(host: &mut TestHost, source: Source, status: SourceStatus, second: i64) {
    host.apply(SourceUpdate::Source { source, status }, second);
}

fn down() -> SourceStatus {
    SourceStatus::Down("smartctl is not installed".into())
}

#[test]
fn smartctl_that_is_missing_for_ten_minutes_is_a_finding_of_the_node_until_it_works() {
    let mut host = plain();
    report(&mut host, Source::Smart, down(), 0);
    assert!(host.raised(10 * MINUTE - 1).is_empty());
    let found = host.raised_for(Reason::MonitoringIncomplete, 10 * MINUTE).unwrap();
    assert_eq!(found.message, "SMART cannot be read: smartctl is not installed");
    assert_eq!(
        (found.severity, found.status, found.since),
        (Severity::Suspect, Status::Information, Some(at(0)))
    );
    let lines = host.raised(11 * MINUTE);
    assert_eq!(
        lines,
        ["source:smart MonitoringIncomplete Suspect Information"],
        "neither the drive nor its volume has a finding"
    );
    // After a restart of the daemon, ten minutes have not passed: it stays.
    let mut again = plain();
    again.active.clone_from(&host.active);
    report(&mut again, Source::Smart, down(), 0);
    again.judge(MINUTE);
    let key = Subject::Source(Source::Smart);
    assert!(is_active(&again.active, &key, Reason::MonitoringIncomplete));
    report(
        &mut host,
        Source::Smart,
        SourceStatus::Active("smartctl 7.4, 1 drive".into()),
        20 * MINUTE,
    );
    host.judge(20 * MINUTE);
    assert!(host.active.is_empty());
}

#[test]
fn the_time_counts_over_different_reasons_and_begins_anew_after_a_good_reading() {
    let mut host = plain();
    report(&mut host, Source::Smart, down(), 0);
    let old = SourceStatus::Down("smartctl is version 6.6".into());
    report(&mut host, Source::Smart, old, 9 * MINUTE);
    assert_eq!(host.raised(10 * MINUTE).len(), 1);
    let works = SourceStatus::Active("smartctl 7.4, 1 drive".into());
    report(&mut host, Source::Smart, works, 11 * MINUTE);
    host.judge(11 * MINUTE);
    report(&mut host, Source::Smart, down(), 12 * MINUTE);
    assert!(host.raised(21 * MINUTE).is_empty());
}

#[test]
fn a_source_that_no_verdict_rests_on_is_no_finding() {
    let limited = |text: &str| SourceStatus::Limited(text.to_owned());
    let mut host = plain();
    report(&mut host, Source::Checks, down(), 0);
    report(&mut host, Source::FsErrors, down(), 0);
    report(&mut host, Source::Udev, limited("a recorded tree"), 0);
    report(&mut host, Source::KernelLog, limited("journald's copy"), 0);
    report(&mut host, Source::Smart, SourceStatus::Absent("switched off".into()), 0);
    assert!(host.raised(3600).is_empty());
    // The last drive with SMART is taken out.
    let mut host = plain();
    report(&mut host, Source::Smart, down(), 0);
    assert_eq!(host.raised(3600).len(), 1);
    host.inventory.drives[0].kind = DriveKind::Virtual;
    host.inventory.drives[0].transport = Transport::Virtio;
    assert_eq!(
        shown_source(&host.facts, Source::Smart, &down()),
        down(),
        "a drive with SMART is there"
    );
    host.scan(3700);
    host.judge(3700);
    assert!(host.active.is_empty());
    assert_eq!(
        shown_source(&host.facts, Source::Smart, &down()),
        SourceStatus::Absent("no drive here has SMART; smartctl is not installed".into())
    );
}

#[test]
fn each_source_that_verdicts_rest_on_is_named() {
    for source in [
        Source::Udev,
        Source::Mounts,
        Source::Kubelet,
        Source::Probe,
        Source::DiskStats,
        Source::Layers,
        Source::KernelLog,
        Source::Counters,
    ] {
        let mut host = plain();
        report(&mut host, source, SourceStatus::Down("no".into()), 0);
        let found = host.raised_for(Reason::MonitoringIncomplete, 3600).unwrap();
        assert_eq!(found.message, format!("{} cannot be read: no", source.label()));
    }
    let mut host = plain();
    let partly = SourceStatus::Limited("sysfs; not read: md0".into());
    report(&mut host, Source::Counters, partly, 0);
    assert_eq!(
        host.raised_for(Reason::MonitoringIncomplete, 3600).unwrap().message,
        "the kernel's error counters: only a part can be read: sysfs; not read: md0"
    );
}

#[test]
fn a_controller_that_does_not_list_its_disks_is_one() {
    let mut host = plain();
    let limited = SourceStatus::Limited("smartctl 7.4, 1 drive; megaraid host0: no".into());
    report(&mut host, Source::Smart, limited, 0);
    assert!(host.raised(3600).is_empty(), "smartctl hangs at one drive");
    let failed = SourceUpdate::RaidMembers {
        controller: "megaraid host0".into(),
        drives: Observation::failed(at(1), "no"),
    };
    host.apply(failed, 1);
    assert_eq!(host.raised(3600).len(), 1);
}
