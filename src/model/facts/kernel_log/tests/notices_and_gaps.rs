//! Unattributed events, devices of checks, fanotify notices, restarts and gaps of the log.

use super::*;

#[test]
fn errors_of_unknown_devices_are_counted_as_unattributed() {
    let mut host = plain();
    let sr = device("sr0", "11:0", Layer::Other, &[]);
    host = host.with(sr);
    host.scan(1);
    let events = vec![
        numbered(1, event(Class::Io, "sr0", at(2), &[])),
        numbered(2, event(Class::Medium, "sdz", at(2), &[])),
    ];
    host.apply(SourceUpdate::KernelLog(batch(events)), 2);
    assert!(host.facts.kernel.errors.is_empty());
    assert_eq!(host.facts.kernel.progress.unattributed, 2);
}

/// A volume on `dm-0`; a check of it has made `dm-3`.
fn with_a_snapshot() -> TestHost {
    let origin = dm("dm-0", "253:0", "vg-home", "LVM-home", &["sda"]);
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(origin)
        .uuid("dm-0", "u")
        .mounted("253:0", "/", "/home", "ext4", "/dev/dm-0");
    host.read_all(0);
    host
}

#[test]
fn kernel_errors_of_a_check_snapshot_are_attributed_to_neither_origin_nor_drive() {
    for scanned_first in [true, false] {
        let mut host = with_a_snapshot();
        host.inventory.check_devices = ["dm-3".to_owned(), "loop7".to_owned()].into();
        let events = vec![
            numbered(1, event(Class::FsCorruption, "dm-3", at(10), &[])),
            numbered(2, event(Class::FsError, "dm-3", at(10), &[])),
            numbered(3, event(Class::Io, "dm-3", at(10), &[8])),
        ];
        if scanned_first {
            host.scan(9);
        }
        host.apply(SourceUpdate::KernelLog(batch(events)), 10);
        if !scanned_first {
            host.scan(12);
        }
        // It is removed, and the name is another volume's in a moment.
        host.inventory.check_devices.clear();
        host = host.with(dm("dm-3", "253:3", "vg-other", "LVM-other", &["sda"]));
        host.scan(13);
        host.scan(30);
        assert!(host.facts.kernel.errors.is_empty(), "{:?}", host.facts.kernel.errors);
        assert_eq!(
            (host.facts.kernel.progress.unattributed, host.facts.kernel.progress.pending.len()),
            (0, 0)
        );

        // What is said of the other volume, and of the origin, counts.
        let others = vec![
            numbered(4, event(Class::FsCorruption, "dm-3", at(31), &[])),
            numbered(5, event(Class::FsError, "dm-0", at(31), &[])),
        ];
        host.apply(SourceUpdate::KernelLog(batch(others)), 31);
        host.scan(60);
        assert_eq!(host.facts.kernel.errors.len(), 2, "{:?}", host.facts.kernel.errors);
    }
}

#[test]
fn a_fanotify_notice_counts_only_without_a_kernel_log_record() {
    let notice = |second: i64| FsErrorNotice {
        at: at(second),
        dev: "8:1".parse().unwrap(),
        path: "/data".into(),
        errno: 117,
        count: 1,
        inode: Some(12),
    };
    let tick = |host: &mut TestHost, second: i64| {
        host.apply(
            SourceUpdate::Source {
                source: Source::Udev,
                status: SourceStatus::Active(second.to_string()),
            },
            second,
        );
    };
    let mut both = plain();
    both.apply(SourceUpdate::FsError(notice(10)), 10);
    both.apply(
        SourceUpdate::KernelLog(batch(vec![numbered(
            1,
            event(Class::FsCorruption, "sda1", at(10), &[]),
        )])),
        10,
    );
    tick(&mut both, 20);
    assert_eq!(count(&both, &data(), Class::FsCorruption), Some(1));
    let mut alone = plain();
    alone.apply(SourceUpdate::FsError(notice(10)), 10);
    assert_eq!(count(&alone, &data(), Class::FsCorruption), None, "the log may still tell");
    tick(&mut alone, 13);
    assert_eq!(count(&alone, &data(), Class::FsCorruption), Some(1));
}

#[test]
fn restored_history_continues_and_its_records_are_not_counted_again() {
    let mut host = plain();
    host.apply(
        SourceUpdate::KernelLog(batch(vec![numbered(9, event(Class::Io, "sda", at(1), &[7]))])),
        1,
    );
    let stored: Vec<(Subject, ErrorHistory)> = host
        .facts
        .kernel
        .errors
        .iter()
        .map(|(subject, memory)| (subject.clone(), (**memory).clone()))
        .collect();
    let progress = (*host.facts.kernel.progress).clone();
    let mut next = plain();
    next.facts.restore_errors(stored, Some(progress));
    assert_eq!(next.facts.kernel.quiet_since(at(1)), None, "nobody has read what came meanwhile");
    next.apply(
        SourceUpdate::KernelLog(batch(vec![numbered(9, event(Class::Io, "sda", at(1), &[7]))])),
        2,
    );
    assert_eq!(count(&next, &drive_a(), Class::Io), Some(1));
    next.apply(
        SourceUpdate::KernelLog(batch(vec![numbered(12, event(Class::Io, "sda", at(3), &[7]))])),
        3,
    );
    assert_eq!(count(&next, &drive_a(), Class::Io), Some(2));
}

#[test]
fn a_log_gap_restarts_the_quiet_period_and_an_unread_log_is_never_quiet() {
    let mut host = plain();
    host.apply(
        SourceUpdate::KernelLog(batch(vec![numbered(1, event(Class::Io, "sda", at(1), &[7]))])),
        1,
    );
    assert_eq!(host.facts.kernel.quiet_since(at(1)), Some(at(1)));
    let mut gap = batch(Vec::new());
    gap.cursor = Cursor { lost: 500, ..cursor(900) };
    host.apply(SourceUpdate::KernelLog(gap), 50);
    assert_eq!(host.facts.kernel.quiet_since(at(1)), Some(at(50)));
    host.apply(
        SourceUpdate::Source { source: Source::KernelLog, status: SourceStatus::Down("no".into()) },
        60,
    );
    assert_eq!(host.facts.kernel.quiet_since(at(1)), None);
    host.apply(
        SourceUpdate::Source {
            source: Source::KernelLog,
            status: SourceStatus::Active("yes".into()),
        },
        90,
    );
    assert_eq!(host.facts.kernel.quiet_since(at(1)), Some(at(90)));
}

#[test]
fn after_a_gap_errors_are_kept_for_a_whole_quiet_period() {
    let mut host = plain();
    let error = numbered(1, event(Class::Io, "sda", at(1), &[7]));
    host.apply(SourceUpdate::KernelLog(batch(vec![error])), 1);
    let policy = ErrorPolicy::default();
    let later = |days: i64| at(days * 86_400);
    host.facts.restart_quiet_times(later(100));
    host.facts.forget_errors(&policy, later(101));
    assert_eq!(host.facts.kernel.errors.len(), 1);
    host.facts.forget_errors(&policy, later(200));
    assert!(host.facts.kernel.errors.is_empty());
}

#[test]
fn paths_of_multipath_nvme_name_their_controller() {
    assert_eq!(path_controller("nvme0c1n2").as_deref(), Some("nvme1"));
    for other in ["nvme0n1", "nvmec1n1", "sda", "nvme0c1", "nvme0c1nx"] {
        assert_eq!(path_controller(other), None);
    }
    let _ = VolumeId::known("x");
}
