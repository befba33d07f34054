//! Verdicts from what the kernel's log has said.

use crate::block::{Layer, LayerState};
use crate::drive::Transport;
use crate::fixture::*;
use crate::source_update::{SourceStatus, SourceUpdate};
use crate::stack::{MdMember, MdState};
use diskvitals_finding::Subject;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_kernel_log::event::{
    Batch, Blame, Class, Cursor, DamagedCopies, Event, LineOrigin, Operation,
};

const DAY: i64 = 24 * 3600;

fn plain() -> TestHost {
    let mut part =
        device("sda1", "8:1", Layer::Partition { number: 1, start_bytes: 2048 * 512 }, &["sda"]);
    part.size_bytes = 100_000 * 512;
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(part)
        .uuid("sda1", "u")
        .mounted("8:1", "/", "/data", "ext4", "/dev/sda1");
    host.read_all(0);
    host
}

fn log(host: &mut TestHost, seq: u64, events: Vec<Event>, second: i64) {
    let events: Vec<Event> =
        events.into_iter().zip(seq..).map(|(event, seq)| Event { seq, ..event }).collect();
    let counted_to = Some(seq + events.len() as u64 - 1);
    let cursor = Cursor { boot_id: "b".into(), counted_to, reread_from: 0, lost: 0 };
    host.apply(
        SourceUpdate::KernelLog(Batch {
            cursor,
            events,
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        }),
        second,
    );
}

fn medium(second: i64, sector: u64) -> Event {
    Event { blame: Blame::Yes, ..event(Class::Medium, "sda", at(second), &[sector]) }
}

#[test]
fn one_media_error_is_suspect_until_a_quiet_day() {
    let mut host = plain();
    log(&mut host, 1, vec![medium(1, 5000)], 1);
    assert_eq!(
        host.raised(1),
        [
            "A MediaErrors Suspect Degraded",
            "fs:u IoErrors Suspect Degraded",
            "fs:u DriveFailing Suspect Degraded"
        ]
    );
    assert_eq!(host.raised(DAY - 10).len(), 3);
    assert!(host.raised(DAY + 1).is_empty());
    assert!(host.active.is_empty());
}

#[test]
fn a_repeated_bad_sector_is_bad_and_data_loss_without_redundancy() {
    let mut host = plain();
    log(&mut host, 1, vec![medium(1, 5000), medium(2, 5000)], 2);
    assert_eq!(host.raised(2)[0], "A MediaErrors Suspect Degraded", "a retry is the same attempt");
    log(&mut host, 10, vec![medium(60, 5000)], 60);
    assert_eq!(
        host.raised(60),
        [
            "A MediaErrors Bad Degraded",
            "fs:u IoErrors Bad DataLoss",
            "fs:u DriveFailing Bad DataLoss"
        ]
    );
    let raised = host.raised_for(Reason::MediaErrors, 61).expect("raised");
    let texts: Vec<(&str, i64)> = raised
        .evidence
        .iter()
        .map(|record| (record.text.as_str(), record.time.as_second() - at(0).as_second()))
        .collect();
    assert_eq!(
        texts,
        [
            ("medium error, dev sda, sectors [5000]", 1),
            ("medium error, dev sda, sectors [5000]", 60)
        ]
    );
    assert!(
        raised
            .message
            .contains("sector 5000 of sda failed again (log alone): 3 incidents in 3 records"),
        "{}",
        raised.message
    );
    assert_eq!(
        host.raised(29 * DAY)[0],
        "A MediaErrors Bad Degraded",
        "a day of quiet does not make a bad drive good"
    );
    assert!(host.raised(31 * DAY).is_empty());
}

#[test]
fn evidence_names_its_source() {
    let mut host = plain();
    let mut counted = medium(1, 5000);
    counted.first.origin = LineOrigin::Counter;
    counted.last.origin = LineOrigin::Counter;
    log(&mut host, 1, vec![counted, medium(2, 6000)], 2);
    let raised = host.raised_for(Reason::MediaErrors, 3).expect("raised");
    assert_eq!(
        raised.evidence.iter().map(|proof| proof.source.as_str()).collect::<Vec<_>>(),
        ["sysfs", "kernel log"]
    );
}

#[test]
fn three_distinct_sectors_or_three_episodes_in_the_window_are_bad_and_two_are_not() {
    let mut sectors = plain();
    log(&mut sectors, 1, vec![medium(1, 5000), medium(1, 6000)], 1);
    assert_eq!(sectors.raised(1)[0], "A MediaErrors Suspect Degraded");
    log(&mut sectors, 3, vec![medium(2, 7000)], 2);
    assert_eq!(sectors.raised(2)[0], "A MediaErrors Bad Degraded");
    let mut episodes = plain();
    for (seq, second) in [(1, 0), (2, 3600), (3, 7200)] {
        log(&mut episodes, seq, vec![event(Class::Io, "sda", at(second), &[])], second);
    }
    assert_eq!(episodes.raised(7200)[0], "A IoErrors Bad Degraded");
    let mut rare = plain();
    for (seq, second) in [(1, 0), (2, 10 * DAY), (3, 20 * DAY)] {
        log(&mut rare, seq, vec![medium(second, 5000 + seq)], second);
    }
    assert_eq!(rare.raised(20 * DAY)[0], "A MediaErrors Suspect Degraded");
}

#[test]
fn a_bad_sector_outside_the_volume_is_a_finding_of_the_drive_only() {
    let mut host = plain();
    log(&mut host, 1, vec![medium(1, 5), medium(100, 5)], 100);
    assert_eq!(host.raised(100), ["A MediaErrors Bad Degraded", "fs:u DriveFailing Bad Degraded"]);
}

#[test]
fn a_new_filesystem_on_a_drive_with_past_errors_has_lost_no_data() {
    let mut host = plain();
    log(&mut host, 1, vec![medium(1, 5000), medium(100, 5000)], 100);
    host.umount("/data");
    host.read_mounts(200);
    host = host.uuid("sda1", "new").mounted("8:1", "/", "/data", "ext4", "/dev/sda1");
    host.read_all(300);
    assert_eq!(
        host.raised(300),
        ["A MediaErrors Bad Degraded", "fs:new DriveFailing Bad Degraded"]
    );
    log(&mut host, 10, vec![medium(400, 5000)], 400);
    assert!(host.raised(400).contains(&"fs:new IoErrors Bad DataLoss".to_owned()));
}

#[test]
fn redundancy_keeps_the_volume_degraded_and_its_data() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .with(device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda", "sdb"]));
    host = host.uuid("md0", "u").mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    host.read_all(0);
    let member = |device: &str, slot| MdMember {
        device: device.into(),
        state: "in_sync".into(),
        slot: Some(slot),
        errors: 0,
        bad_blocks: Vec::new(),
    };
    let state = MdState {
        level: "raid1".into(),
        raid_disks: 2,
        members: vec![member("sda", 0), member("sdb", 1)],
        ..MdState::default()
    };
    host.layer("md0", LayerState::Md(state), 0);
    log(&mut host, 1, vec![medium(1, 5000), medium(100, 5000)], 100);
    assert_eq!(
        host.raised(100),
        [
            "A MediaErrors Bad Degraded",
            "fs:u DriveFailing Suspect Degraded",
            "fs:u RedundancyAtRisk Suspect Degraded"
        ]
    );
}

#[test]
fn an_ambiguous_media_error_makes_no_drive_bad_and_no_data_loss() {
    let mut host = plain();
    let weak = |second, sector| Event { blame: Blame::Unclear, ..medium(second, sector) };
    log(&mut host, 1, vec![weak(1, 5000), weak(60, 5000), weak(61, 6000), weak(62, 7000)], 62);
    assert_eq!(
        host.raised(62),
        [
            "A MediaErrors Suspect Degraded",
            "fs:u IoErrors Bad Degraded",
            "fs:u DriveFailing Bad Degraded"
        ]
    );
}

#[test]
fn write_errors_are_not_data_loss() {
    let mut host = plain();
    let write =
        |second, sector| Event { operation: Some(Operation::Write), ..medium(second, sector) };
    log(&mut host, 1, vec![medium(1, 5), write(2, 5000), write(3, 6000), write(4, 7000)], 4);
    assert!(host.raised(4).contains(&"fs:u IoErrors Bad Degraded".to_owned()));
}

#[test]
fn an_old_burst_does_not_make_a_new_incident_bad() {
    let mut host = plain();
    log(&mut host, 1, (0..200).map(|n| medium(0, 5000 + n * 8)).collect(), 0);
    log(&mut host, 300, vec![medium(20 * DAY, 90_000)], 20 * DAY);
    assert_eq!(host.raised(20 * DAY)[0], "A MediaErrors Suspect Degraded");
}

#[test]
fn corrected_errors_never_make_a_drive_bad() {
    let mut host = plain();
    let corrected =
        |second: i64, sector| Event { damaged: DamagedCopies::NONE, ..medium(second, sector) };
    log(&mut host, 1, (0..10).map(|n| corrected(n * 3600, 5000 + n as u64)).collect(), 10 * 3600);
    assert_eq!(host.raised(10 * 3600)[0], "A MediaErrors Suspect Degraded");
}

#[test]
fn repeated_timeouts_are_bad_and_resets_and_link_errors_never_are() {
    let mut host = plain();
    for n in 0..5u64 {
        let second = n as i64 * 3600;
        let events = [Class::Timeout, Class::Reset, Class::Transport]
            .map(|class| event(class, "sda", at(second), &[]))
            .to_vec();
        log(&mut host, n * 10 + 1, events, second);
        let severity = if n < 4 { "Suspect" } else { "Bad" };
        let expected = [
            format!("A IoTimeouts {severity} Degraded"),
            "A ControllerResets Suspect Degraded".into(),
            "A LinkErrors Suspect Degraded".into(),
        ];
        assert_eq!(host.raised(second)[..3], expected);
    }
}

#[test]
fn a_drive_over_a_network_is_suspect_at_most() {
    let mut host = plain();
    host.inventory.drives[0].transport = Transport::Iscsi;
    host.scan(1);
    for n in 0..9u64 {
        let second = n as i64 * 3600;
        let of = |class| event(class, "sda", at(second), &[9000 + n]);
        log(&mut host, n * 10 + 1, vec![of(Class::Io), of(Class::Timeout)], second);
    }
    assert_eq!(
        host.raised(9 * 3600)[..2],
        ["A IoErrors Suspect Degraded".to_owned(), "A IoTimeouts Suspect Degraded".into()]
    );
}

#[test]
fn errors_caused_elsewhere_make_no_drive_bad() {
    let mut host = plain();
    let innocent = |second: i64, sector| Event {
        blame: Blame::No,
        ..event(Class::Io, "sda", at(second), &[sector])
    };
    log(&mut host, 1, (0..9).map(|n| innocent(n * 3600, n as u64)).collect(), 9 * 3600);
    assert_eq!(host.raised(9 * 3600)[0], "A IoErrors Suspect Degraded");
}

#[test]
fn drives_of_one_controller_that_fail_together_are_suspect_at_most() {
    let errors = |name: &str, second: i64| -> Vec<Event> {
        (0..9).map(|n| event(Class::Io, name, at(second + n), &[n as u64 * 100])).collect()
    };
    let raised = |pci_of_b: &str, second_of_b: i64| {
        let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B");
        host.inventory.drives[0].location.pci = Some("0000:03:00.0".into());
        host.inventory.drives[1].location.pci = Some(pci_of_b.into());
        host.read_all(0);
        log(&mut host, 1, errors("sda", 10), 30);
        log(&mut host, 20, errors("sdb", second_of_b), second_of_b + 30);
        host.raised(second_of_b + 30)
    };
    assert_eq!(
        raised("0000:03:00.0", 20),
        ["A IoErrors Suspect Degraded", "B IoErrors Suspect Degraded"]
    );
    // Each drive of another controller, or at another time, fails alone.
    for raised in [raised("0000:04:00.0", 20), raised("0000:03:00.0", 500)] {
        assert_eq!(raised, ["A IoErrors Bad Degraded", "B IoErrors Bad Degraded"]);
    }
}

#[test]
fn many_corrected_sectors_of_a_member_are_bad_and_few_are_suspect() {
    for (sectors, severity) in [(1, "Suspect"), (29, "Suspect"), (30, "Bad")] {
        let mut host = plain();
        let corrected = |n: u64| Event {
            damaged: DamagedCopies::NONE,
            operation: Some(Operation::Read),
            ..event(Class::Io, "sda1", at(n as i64), &[n * 1000])
        };
        log(&mut host, 1, (0..sectors).map(corrected).collect(), 60);
        assert_eq!(host.raised(60)[0], format!("A IoErrors {severity} Degraded"), "{sectors}");
    }
}

#[test]
fn errors_during_a_drive_removal_are_not_io_errors_of_the_drive() {
    let mut host = plain();
    log(&mut host, 1, vec![event(Class::Io, "sda", at(10), &[1])], 10);
    host.pull("sda");
    host.scan(11);
    assert!(host.raised(11).iter().all(|line| !line.starts_with("A IoErrors")));
}

#[test]
fn an_unread_log_clears_nothing() {
    let mut host = plain();
    log(&mut host, 1, vec![medium(1, 5)], 1);
    host.raised(1);
    host.apply(
        SourceUpdate::Source {
            source: Source::KernelLog,
            status: SourceStatus::Down("gone".into()),
        },
        2,
    );
    host.raised(2 * DAY);
    // One of them is that the log cannot be read.
    assert_eq!(host.active.len(), 3, "{:?}", host.active);
    host.apply(
        SourceUpdate::Source {
            source: Source::KernelLog,
            status: SourceStatus::Active("back".into()),
        },
        2 * DAY,
    );
    host.raised(2 * DAY + 100);
    assert_eq!(host.active.len(), 2);
    assert!(host.raised(3 * DAY + 100).is_empty() && host.active.is_empty());
}

#[test]
fn filesystem_corruption_shutdown_and_errors_are_findings_with_log_evidence() {
    let mut host = plain();
    let of = |class| event(class, "sda1", at(1), &[]);
    log(&mut host, 1, vec![of(Class::FsError), of(Class::FsCorruption), of(Class::FsShutdown)], 1);
    let expected = |shutdown: &str| {
        ["FilesystemErrors Suspect Degraded", "FilesystemCorrupted Bad Degraded", shutdown]
            .map(|said| format!("fs:u {said}"))
    };
    let asked = "FilesystemShutdown Suspect Degraded";
    assert_eq!(host.raised(1), expected(asked), "a probe is asked");
    let mut silent = host.clone();
    let shut_down = "FilesystemShutdown Bad Inaccessible";
    assert_eq!(silent.raised(11), expected(shut_down), "it does not answer");
    assert_eq!(
        host.raised_for(Reason::FilesystemShutdown, 2).expect("raised").evidence[0].text,
        "fs-shutdown error, dev sda1, sectors []"
    );
    host.probe("/data", failing_probe(5), 3);
    assert!(
        host.raised(3).contains(&format!("fs:u {shut_down}")),
        "a probe that fails confirms it"
    );
    host.probe("/data", healthy_probe(usage(GIB, GIB)), 4);
    assert!(!host.raised(4).iter().any(|line| line.contains("FilesystemShutdown")));
}

#[test]
fn corruption_repaired_by_redundancy_is_suspect() {
    let mut host = plain();
    log(
        &mut host,
        1,
        vec![Event {
            damaged: DamagedCopies::NONE,
            ..event(Class::FsCorruption, "sda1", at(1), &[])
        }],
        1,
    );
    assert_eq!(host.raised(1), ["fs:u FilesystemCorrupted Suspect Degraded"]);
}

/// What is left by the profiles and the members decides.
#[test]
fn damaged_copies_are_corruption_where_no_other_is_left() {
    let (data, metadata) = (1, 0);
    let of_data = |copies| DamagedCopies { data: copies, metadata };
    let of_metadata = |copies| DamagedCopies { data: 0, metadata: copies };
    let of_either = DamagedCopies { data, metadata: 1 };
    for (profiles, missing, damaged, severity) in [
        (("raid1", "raid1"), 0, of_data(1), "Suspect"),
        (("raid1", "raid1"), 0, of_metadata(1), "Suspect"),
        (("raid1", "raid1"), 0, of_data(2), "Bad"),
        (("raid1", "raid1"), 1, of_data(1), "Bad"),
        (("raid1c3", "raid1"), 0, of_data(2), "Suspect"),
        (("raid1c3", "raid1"), 0, of_metadata(2), "Bad"),
        (("single", "dup"), 0, of_metadata(1), "Suspect"),
        (("single", "dup"), 0, of_data(1), "Bad"),
        (("single", "dup"), 0, of_either, "Bad"),
        (("raid0", "raid1"), 0, of_data(1), "Bad"),
        (("RAID5", "raid1c3"), 0, of_data(1), "Suspect"),
        (("raid1", "raid1"), 0, DamagedCopies::ALL, "Bad"),
    ] {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
        let mut fs = btrfs("b-1", &["sda", "sdb"], profiles.0);
        fs.metadata_profiles = vec![profiles.1.into()];
        fs.missing_devices = missing;
        host.inventory.btrfs.push(fs);
        host.read_all(0);
        let corruption = Event { damaged, ..event(Class::FsCorruption, "sda", at(1), &[]) };
        log(&mut host, 1, vec![corruption], 1);
        // Of what is missing, the next scan decides.
        host.scan(2);
        let expected = format!("mnt:/data FilesystemCorrupted {severity} Degraded");
        let raised = host.raised(2);
        assert!(raised.contains(&expected), "{profiles:?} {missing} {damaged:?}: {raised:?}");
    }
}

/// The records of a mount come before the scan that it causes.
#[test]
fn a_member_that_is_back_counts_as_a_copy_though_the_last_scan_missed_it() {
    for (is_back, severity) in [(true, Severity::Suspect), (false, Severity::Bad)] {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
        let mut fs = btrfs("b-1", &["sda", "sdb"], "raid1");
        fs.missing_devices = 1;
        host.inventory.btrfs.push(fs);
        host.read_all(0);
        let corruption = Event {
            damaged: DamagedCopies::ONE_OF_DATA,
            ..event(Class::FsCorruption, "sda", at(10), &[])
        };
        log(&mut host, 1, vec![corruption], 10);
        match is_back {
            true => {
                host.inventory.btrfs[0].missing_devices = 0;
                host.scan(11);
            }
            // No scan comes: the last one decides.
            false => drop(host.read_mounts(16)),
        }
        let found = host.raised_for(Reason::FilesystemCorrupted, 17);
        assert_eq!(found.expect("raised").severity, severity, "{is_back}");
    }
}

/// An incident lasts for minutes, and what is left of its filesystem may change meanwhile.
#[test]
fn a_later_record_of_an_incident_is_judged_by_what_is_left_then() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
    let fs = btrfs("b-1", &["sda", "sdb"], "raid1");
    host.inventory.btrfs.push(fs);
    host.read_all(0);
    let damaged = DamagedCopies::ONE_OF_DATA;
    let record = |second: i64, count| Event {
        damaged,
        count,
        ..event(Class::FsCorruption, "sda", at(second), &[])
    };
    log(&mut host, 1, vec![record(1, 1)], 1);
    let severity = |host: &mut TestHost, second: i64| {
        let found = host.raised_for(Reason::FilesystemCorrupted, second);
        found.expect("raised").severity
    };
    assert_eq!(severity(&mut host, 2), Severity::Suspect);
    host.inventory.btrfs[0].missing_devices = 1;
    host.scan(10);
    log(&mut host, 2, vec![record(11, 0), record(12, 0)], 12);
    host.scan(12);
    assert_eq!(severity(&mut host, 13), Severity::Bad);
    let subject = Subject::Volume(volume("mnt:/data"));
    let tally = host.facts.tally(&subject, Class::FsCorruption);
    assert_eq!(tally.map(|tally| tally.incidents), Some(2), "not one for each record");
}

#[test]
fn an_aborted_journal_is_read_only_before_the_mount_table_says_so() {
    let mut host = plain();
    let mut aborted = event(Class::ReadOnly, "sda1", at(1), &[]);
    aborted.first.text = "Aborting journal on device sda1-8.".into();
    aborted.last = aborted.first.clone();
    log(&mut host, 1, vec![aborted], 1);
    let raised = host.raised_for(Reason::ReadOnly, 1).expect("raised");
    assert_eq!(raised.evidence[0].text, "Aborting journal on device sda1-8.");
    host.umount("/data");
    host.read_mounts(2);
    assert!(host.raised(3).is_empty());
}

#[test]
fn a_device_without_a_volume_has_findings_of_its_own() {
    let mut host = plain();
    host.umount("/data");
    host.read_mounts(1);
    log(&mut host, 1, vec![event(Class::FsCorruption, "sda1", at(2), &[])], 2);
    host.apply(
        SourceUpdate::Source { source: Source::Udev, status: SourceStatus::Active(String::new()) },
        10,
    );
    assert_eq!(host.raised(10), ["dev:sda1 FilesystemCorrupted Suspect Degraded"]);
}
