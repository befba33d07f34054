mod notices_and_gaps;
mod software_devices;

use super::attribution::path_controller;
use super::*;
use crate::block::Layer;
use crate::fixture::*;
use crate::source_update::{SourceStatus, SourceUpdate};
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::source::Source;
use diskvitals_kernel_log::event::NameAssignment;

fn cursor(counted_to: u64) -> Cursor {
    Cursor {
        boot_id: "boot".into(),
        counted_to: Some(counted_to),
        reread_from: counted_to + 1,
        lost: 0,
    }
}

fn batch(events: Vec<Event>) -> Batch {
    let counted_to = events.iter().map(|event| event.seq).max().unwrap_or(0);
    Batch {
        cursor: cursor(counted_to),
        events,
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    }
}

fn numbered(seq: u64, event: Event) -> Event {
    Event { seq, ..event }
}

fn plain() -> TestHost {
    let part =
        device("sda1", "8:1", Layer::Partition { number: 1, start_bytes: 1 << 20 }, &["sda"]);
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(part)
        .uuid("sda1", "u")
        .mounted("8:1", "/", "/data", "ext4", "/dev/sda1");
    host.read_all(0);
    host
}

fn drive_a() -> Subject {
    Subject::Drive(DriveId::new("A"))
}

fn data() -> Subject {
    Subject::Volume(volume("fs:u"))
}

fn count(host: &TestHost, subject: &Subject, class: Class) -> Option<u64> {
    host.facts.errors(subject)?.get(class).map(|tally| tally.incidents)
}

#[test]
fn drive_errors_are_attributed_to_the_drive_and_filesystem_errors_to_the_volume() {
    let mut host = plain();
    let events = vec![
        numbered(5, event(Class::Medium, "sda", at(1), &[4096])),
        numbered(6, event(Class::FsError, "sda1", at(1), &[])),
        numbered(7, event(Class::Io, "sda1", at(1), &[8])),
    ];
    assert_eq!(host.apply(SourceUpdate::KernelLog(batch(events)), 1), Urgency::Immediate);
    assert_eq!(
        (count(&host, &drive_a(), Class::Medium), count(&host, &drive_a(), Class::Io)),
        (Some(1), Some(1))
    );
    assert_eq!(
        (count(&host, &data(), Class::FsError), count(&host, &data(), Class::Io)),
        (Some(1), None)
    );
}

#[test]
fn a_reread_record_is_counted_once_and_a_new_boot_counts_from_zero() {
    let mut host = plain();
    let flood: Vec<Event> =
        (10..20).map(|seq| numbered(seq, event(Class::Io, "sda", at(1), &[seq]))).collect();
    host.apply(SourceUpdate::KernelLog(batch(flood.clone())), 1);
    assert_eq!(host.apply(SourceUpdate::KernelLog(batch(flood.clone())), 2), Urgency::Nothing);
    host.apply(
        SourceUpdate::KernelLog(batch(
            flood.into_iter().chain([numbered(20, event(Class::Io, "sda", at(3), &[1]))]).collect(),
        )),
        3,
    );
    assert_eq!(count(&host, &drive_a(), Class::Io), Some(11));
    let mut other = batch(vec![numbered(3, event(Class::Io, "sda", at(4), &[1]))]);
    other.cursor.boot_id = "another".into();
    host.apply(SourceUpdate::KernelLog(other), 4);
    assert_eq!(count(&host, &drive_a(), Class::Io), Some(12));
}

#[test]
fn events_are_deferred_until_drives_and_mounts_are_known() {
    let mut host = plain();
    let (inventory, mounts) = (host.inventory.clone(), host.mounts.clone());
    host.facts = Facts::default();
    let events = vec![
        numbered(1, event(Class::Medium, "sda", at(0), &[])),
        numbered(2, event(Class::FsShutdown, "sda1", at(0), &[])),
    ];
    host.apply(SourceUpdate::KernelLog(batch(events)), 0);
    assert_eq!(host.facts.kernel.progress.pending.len(), 2);
    (host.inventory, host.mounts) = (inventory, mounts);
    host.scan(1);
    assert_eq!(count(&host, &drive_a(), Class::Medium), Some(1));
    host.read_mounts(1);
    assert_eq!(count(&host, &data(), Class::FsShutdown), Some(1));
    assert!(host.facts.kernel.progress.pending.is_empty());
}

#[test]
fn errors_of_an_unmounted_filesystem_belong_to_the_device_until_it_is_mounted() {
    let mut host = plain();
    host.mounts.mounts.clear();
    host.read_mounts(1);
    host.apply(
        SourceUpdate::KernelLog(batch(vec![numbered(
            1,
            event(Class::FsCorruption, "sda1", at(2), &[]),
        )])),
        2,
    );
    assert!(host.facts.kernel.errors.is_empty());
    host.apply(
        SourceUpdate::Source { source: Source::Udev, status: SourceStatus::Active(String::new()) },
        8,
    );
    assert_eq!(count(&host, &Subject::Device("sda1".into()), Class::FsCorruption), Some(1));
    host = host.mounted("8:1", "/", "/data", "ext4", "/dev/sda1");
    host.read_mounts(9);
    assert_eq!(count(&host, &data(), Class::FsCorruption), Some(1));
    assert!(host.facts.errors(&Subject::Device("sda1".into())).is_none());
}

#[test]
fn errors_of_a_failed_mount_are_not_attributed_to_the_next_drive_with_that_name() {
    for waits in [true, false] {
        let mut host = TestHost::default().disk("sdb", "8:16", "B");
        host.read_all(0);
        host.apply(
            SourceUpdate::KernelLog(batch(vec![numbered(
                1,
                event(Class::FsCorruption, "sdb", at(1), &[]),
            )])),
            1,
        );
        if !waits {
            host.apply(
                SourceUpdate::Source {
                    source: Source::Udev,
                    status: SourceStatus::Active(String::new()),
                },
                8,
            );
            assert!(host.facts.errors(&Subject::Device("sdb".into())).is_some());
        }
        host.pull("sdb");
        host.scan(9);
        host.plug("sdb", "8:16", "C");
        host = host.uuid("sdb", "c").mounted("8:16", "/", "/new", "btrfs", "/dev/sdb");
        host.scan(10);
        host.read_mounts(10);
        assert_eq!(
            count(&host, &Subject::Volume(volume("fs:c")), Class::FsCorruption),
            None,
            "waits: {waits}"
        );
        assert!(host.facts.errors(&Subject::Device("sdb".into())).is_none());
    }
}

#[test]
fn a_shutdown_ends_with_the_mount_and_corruption_does_not() {
    let mut host = plain();
    let events = vec![
        numbered(1, event(Class::FsShutdown, "sda1", at(1), &[])),
        numbered(2, event(Class::FsCorruption, "sda1", at(1), &[])),
    ];
    host.apply(SourceUpdate::KernelLog(batch(events)), 1);
    host.umount("/data");
    host.read_mounts(2);
    assert_eq!(
        (count(&host, &data(), Class::FsShutdown), count(&host, &data(), Class::FsCorruption)),
        (None, Some(1))
    );
}

fn mounted(seq: u64, second: i64) -> NameAssignment {
    NameAssignment {
        seq,
        name: "sda1".into(),
        at: at(second),
        is_filesystem: true,
        is_remount: false,
    }
}

#[test]
fn a_new_mount_ends_a_shutdown_even_if_the_unmount_was_missed() {
    let mut host = plain();
    host.apply(
        SourceUpdate::KernelLog(batch(vec![numbered(
            1,
            event(Class::FsShutdown, "sda1", at(5), &[]),
        )])),
        5,
    );
    let mut older = batch(Vec::new());
    (older.name_assignments, older.cursor) = (vec![mounted(2, 4)], cursor(2));
    host.apply(SourceUpdate::KernelLog(older), 6);
    assert_eq!(count(&host, &data(), Class::FsShutdown), Some(1), "that mount was before");
    let mut newer = batch(Vec::new());
    (newer.name_assignments, newer.cursor) = (vec![mounted(3, 7)], cursor(3));
    host.apply(SourceUpdate::KernelLog(newer), 7);
    assert_eq!(count(&host, &data(), Class::FsShutdown), None);
}

/// The kernel may make a filesystem read-only once more while it is unmounted; all records of one
/// reading have the same time.
#[test]
fn a_mount_ends_what_the_same_reading_reported_before_it_and_not_after_it() {
    for (mounted_at, left) in [(2, None), (0, Some(1))] {
        let mut host = plain();
        let mut both = batch(vec![numbered(1, event(Class::ReadOnly, "sda1", at(5), &[]))]);
        both.name_assignments = vec![mounted(mounted_at, 5)];
        host.apply(SourceUpdate::KernelLog(both), 5);
        assert_eq!(
            count(&host, &data(), Class::ReadOnly),
            left,
            "mounted with record {mounted_at}"
        );
    }
}

#[test]
fn a_mount_ends_a_shutdown_that_still_waits_for_its_filesystem() {
    let mut host = plain();
    host.umount("/data");
    host.read_mounts(1);
    let shut_down = numbered(1, event(Class::FsShutdown, "sda1", at(2), &[]));
    host.apply(SourceUpdate::KernelLog(batch(vec![shut_down])), 2);
    let mut again = batch(Vec::new());
    (again.name_assignments, again.cursor) = (vec![mounted(2, 3)], cursor(2));
    host.apply(SourceUpdate::KernelLog(again), 3);
    host = host.mounted("8:1", "/", "/data", "ext4", "/dev/sda1");
    host.read_mounts(3);
    assert_eq!(count(&host, &data(), Class::FsShutdown), None);
}

fn corruption_event(seq: u64, second: i64, text: &str) -> Event {
    let event = numbered(seq, event(Class::FsCorruption, "sda1", at(second), &[]));
    let line = Line { text: text.to_owned(), ..event.last.clone() };
    Event { first: line.clone(), last: line, ..event }
}

#[test]
fn errors_of_another_filesystem_type_are_not_attributed_to_the_current_filesystem() {
    let mut host = plain();
    host.apply(
        SourceUpdate::KernelLog(batch(vec![corruption_event(
            1,
            1,
            "XFS (sda1): Metadata CRC error detected",
        )])),
        1,
    );
    assert_eq!(count(&host, &data(), Class::FsCorruption), None, "ext4 does not say so");
    host.apply(
        SourceUpdate::KernelLog(batch(vec![corruption_event(
            2,
            2,
            "EXT4-fs error (device sda1): bad header",
        )])),
        2,
    );
    assert_eq!(count(&host, &data(), Class::FsCorruption), Some(1));

    // Said before anything was mounted, and then something else was made there.
    let mut host = plain();
    host.mounts.mounts.clear();
    host.read_mounts(1);
    host.apply(
        SourceUpdate::KernelLog(batch(vec![corruption_event(
            1,
            2,
            "XFS (sda1): Metadata CRC error detected",
        )])),
        2,
    );
    host.apply(
        SourceUpdate::Source { source: Source::Udev, status: SourceStatus::Active(String::new()) },
        8,
    );
    assert_eq!(count(&host, &Subject::Device("sda1".into()), Class::FsCorruption), Some(1));
    host = host.mounted("8:1", "/", "/data", "ext4", "/dev/sda1");
    host.read_mounts(9);
    assert_eq!(count(&host, &data(), Class::FsCorruption), None);
}

#[test]
fn errors_of_the_previous_device_with_a_name_are_not_attributed_to_the_new_one() {
    let came = |second| NameAssignment {
        seq: 5,
        name: "sda1".into(),
        at: at(second),
        is_filesystem: false,
        is_remount: false,
    };
    let mut host = plain();
    let mut late = batch(vec![corruption_event(6, 3, "EXT4-fs error (device sda1): bad header")]);
    late.name_assignments = vec![came(4)];
    host.apply(SourceUpdate::KernelLog(late), 5);
    assert_eq!(count(&host, &data(), Class::FsCorruption), None);
    host.apply(
        SourceUpdate::KernelLog(batch(vec![corruption_event(
            7,
            6,
            "EXT4-fs error (device sda1): bad header",
        )])),
        6,
    );
    assert_eq!(count(&host, &data(), Class::FsCorruption), Some(1));
}

#[test]
fn a_removed_drive_still_owns_its_former_name() {
    let mut host = plain();
    host.pull("sda");
    host.scan(5);
    host.plug("sda", "8:0", "B");
    host.scan(60);
    host.apply(
        SourceUpdate::KernelLog(batch(vec![numbered(1, event(Class::Io, "sda", at(6), &[]))])),
        61,
    );
    assert_eq!(count(&host, &drive_a(), Class::Io), Some(1));
    assert_eq!(host.facts.errors(&Subject::Drive(DriveId::new("B"))), None);
}

#[test]
fn a_store_that_loads_late_does_not_double_count_this_boot() {
    let mut host = plain();
    let told = |second: i64| batch(vec![numbered(9, event(Class::Io, "sda", at(second), &[7]))]);
    host.apply(SourceUpdate::KernelLog(told(1)), 1);
    let memory = |host: &TestHost| (*host.facts.kernel.errors[&drive_a()]).clone();
    let (stored, progress) =
        (vec![(drive_a(), memory(&host))], (*host.facts.kernel.progress).clone());
    // Read again as history, its time is the kernel's.
    let mut next = plain();
    next.apply(SourceUpdate::KernelLog(told(2)), 2);
    next.facts.restore_errors(stored.clone(), Some(progress.clone()));
    assert_eq!(count(&next, &drive_a(), Class::Io), Some(1));
    let mut rebooted = plain();
    let mut other = told(2);
    other.cursor.boot_id = "another".into();
    rebooted.apply(SourceUpdate::KernelLog(other), 2);
    rebooted.facts.restore_errors(stored, Some(progress));
    assert_eq!(count(&rebooted, &drive_a(), Class::Io), Some(2));
}

#[test]
fn a_record_that_a_drive_is_offline_or_gone_asks_for_a_scan_that_begins_after_it() {
    let mut host = plain();
    let log = |host: &mut TestHost, seq, class, second| {
        let event = numbered(seq, event(class, "sda", at(second), &[]));
        host.apply(SourceUpdate::KernelLog(batch(vec![event])), second);
        host.facts.take_scan_request()
    };
    for (seq, class) in
        [Class::Medium, Class::Io, Class::Timeout, Class::Reset].into_iter().enumerate()
    {
        assert!(!log(&mut host, seq as u64 + 1, class, 10), "{class:?}");
    }
    assert!(log(&mut host, 10, Class::Removed, 20));
    // A storm of records is one scan in ten seconds, also while none succeeds.
    let storm = (21..60).filter(|second| log(&mut host, *second as u64, Class::Removed, *second));
    assert_eq!(storm.collect::<Vec<_>>(), [30, 40, 50]);
    // A scan that began before the last record does not count, a later one does.
    host.scan(58);
    assert!(!host.facts.take_scan_request());
    host.read_mounts(60);
    assert!(host.facts.take_scan_request());
    host.scan(61);
    host.read_mounts(100);
    assert!(!host.facts.take_scan_request(), "nothing was logged since");
}
