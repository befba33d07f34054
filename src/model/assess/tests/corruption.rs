//! Corruption of filesystems that are unmounted, mounted again, repaired, or without a UUID in udev's
//! database.

use std::sync::Arc;

use crate::assess::signals;
use crate::block::Layer;
use crate::counters::{CounterDevice, CounterReading};
use crate::facts::checks::tests::{checked, flaw, request, run};
use crate::facts::checks::{CheckRequest, RequestedTarget};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::superblock::{ExtState, Superblock};
use diskvitals_finding::Subject;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_fscheck::{CheckVerdict, Filesystem, Mode, Run, RunResult, Weight};
use diskvitals_kernel_log::event::{Batch, Class, Cursor, Event, Line, LineOrigin, NameAssignment};

const DAY: i64 = 24 * 3600;

/// An unmounted loop device; `udev`: with a record in udev's database.
fn unmounted(udev: bool, uuid: Option<&str>) -> TestHost {
    let layer = Layer::Loop { backing_file: Some("/a.img".into()) };
    let mut device = device("loop5", "7:5", layer, &[]);
    device.has_udev_record = udev;
    device.fs_uuid = uuid.map(str::to_owned);
    let mut host = TestHost::default().with(device);
    host.read_all(0);
    host
}

fn mount(mut host: TestHost, second: i64) -> TestHost {
    host = host.mounted("7:5", "/", "/mnt", "ext4", "/dev/loop5");
    host.read_mounts(second);
    host
}

fn umount(host: &mut TestHost, second: i64) {
    host.umount("/mnt");
    host.read_mounts(second);
}

fn superblock(host: &mut TestHost, uuid: &str, errors: u32, second: i64) {
    let found = Superblock {
        fs_type: "ext4".into(),
        uuid: uuid.into(),
        ext: Some(ExtState { is_valid: errors == 0, errors, ..ExtState::default() }),
    };
    host.apply(
        SourceUpdate::Superblock {
            device: "loop5".into(),
            dev: "7:5".parse().unwrap(),
            superblock: Observation::ok(at(second), Some(found)),
        },
        second,
    );
}

fn of_device() -> CheckRequest {
    CheckRequest {
        filesystem: Some(Filesystem::Ext4),
        ..request(RequestedTarget::Device("loop5".into()))
    }
}

fn check(host: &mut TestHost, verdict: CheckVerdict, uuid: Option<&str>, second: i64) {
    let (result, problems) = match verdict {
        CheckVerdict::Clean => (RunResult::Clean, Vec::new()),
        _ => (RunResult::Findings, vec![flaw(Weight::Damage)]),
    };
    let run = Run {
        filesystem_uuid: uuid.map(str::to_owned),
        started: at(second),
        ..(*run(Mode::Unmounted, result, problems)).clone()
    };
    checked(host, of_device(), verdict, Arc::new(run), second);
}

fn kernel_reports(host: &mut TestHost, seq: u64, second: i64) {
    let said = Line {
        time: at(second),
        text: "EXT4-fs error (device loop5): ext4_lookup:1855: inode #2: deleted inode referenced"
            .into(),
        origin: LineOrigin::KernelLog,
    };
    let event = Event {
        seq,
        first: said.clone(),
        last: said,
        ..event(Class::FsCorruption, "loop5", at(second), &[])
    };
    let batch = Batch {
        cursor: Cursor {
            boot_id: "boot".into(),
            counted_to: Some(seq),
            reread_from: seq + 1,
            lost: 0,
        },
        events: vec![event],
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), second);
}

fn corrupted(host: &mut TestHost, second: i64) -> Vec<String> {
    host.judge(second);
    let active = host.active.iter();
    active
        .filter(|((_, reason), _)| *reason == Reason::FilesystemCorrupted)
        .map(|((subject, _), finding)| format!("{subject} {:?}", finding.level.0))
        .collect()
}

const NONE: [&str; 0] = [];

#[test]
fn without_udev_a_check_of_an_unmounted_device_is_a_finding_of_it_and_of_its_volume() {
    let mut host = unmounted(false, None);
    superblock(&mut host, "u", 0, 1);
    check(&mut host, CheckVerdict::Corrupted, Some("u"), 10);
    assert_eq!(corrupted(&mut host, 12), ["dev:loop5 Bad"]);
    let mut host = mount(host, 20);
    assert_eq!(
        corrupted(&mut host, 20),
        ["dev:loop5 Bad"],
        "until its superblock is read again, it may be another filesystem"
    );
    superblock(&mut host, "u", 0, 21);
    assert_eq!(corrupted(&mut host, 21), ["mnt:/mnt Bad"]);
    umount(&mut host, 30);
    assert_eq!(corrupted(&mut host, 40), ["dev:loop5 Bad"]);
    let mut host = mount(host, 50);
    superblock(&mut host, "new", 0, 51);
    assert_eq!(corrupted(&mut host, 60), NONE);
}

#[test]
fn a_check_names_the_filesystem_that_it_read() {
    // Made after the last reading of the superblock, or never read.
    for known in [Some("old"), None] {
        let mut host = unmounted(false, None);
        if let Some(uuid) = known {
            superblock(&mut host, uuid, 0, 1);
        }
        check(&mut host, CheckVerdict::Corrupted, Some("u"), 10);
        assert_eq!(corrupted(&mut host, 12), ["dev:loop5 Bad"], "{known:?}");
        check(&mut host, CheckVerdict::Clean, Some("u"), 20);
        assert_eq!(corrupted(&mut host, 22), NONE, "{known:?}");
    }
}

/// Reported while mounted, and now unmounted.
fn reported(udev: bool) -> TestHost {
    let mut host = unmounted(udev, udev.then_some("u"));
    if !udev {
        superblock(&mut host, "u", 0, 1);
    }
    let mut host = mount(host, 5);
    if !udev {
        superblock(&mut host, "u", 0, 6);
    }
    kernel_reports(&mut host, 1, 10);
    let id = if udev { "fs:u" } else { "mnt:/mnt" };
    assert_eq!(corrupted(&mut host, 11), [format!("{id} Bad")]);
    umount(&mut host, 20);
    host
}

#[test]
fn the_kernels_report_outlives_an_unmount_and_a_long_quiet_time() {
    for (udev, id) in [(true, "fs:u"), (false, "mnt:/mnt")] {
        let mut host = reported(udev);
        assert_eq!(corrupted(&mut host, 30), ["dev:loop5 Bad"]);
        assert_eq!(corrupted(&mut host, 300 * DAY), ["dev:loop5 Bad"]);
        let policy = host.policy.errors.clone();
        host.facts.forget_errors(&policy, at(300 * DAY));
        let mut host = mount(host, 300 * DAY + 10);
        if !udev {
            superblock(&mut host, "u", 1, 300 * DAY + 11);
        }
        assert_eq!(corrupted(&mut host, 300 * DAY + 12), [format!("{id} Bad")]);
    }
}

#[test]
fn a_clean_check_of_the_unmounted_filesystem_clears_the_kernels_report() {
    for udev in [true, false] {
        let mut host = reported(udev);
        corrupted(&mut host, 30);
        check(&mut host, CheckVerdict::Clean, Some("u"), 40);
        assert_eq!(corrupted(&mut host, 42), NONE);
        let mut host = mount(host, 50);
        superblock(&mut host, "u", 0, 51);
        assert_eq!(corrupted(&mut host, 52), NONE);
    }
}

#[test]
fn a_new_filesystem_has_no_report() {
    let mut host = reported(true);
    corrupted(&mut host, 30);
    host.inventory.devices.get_mut("loop5").unwrap().fs_uuid = Some("new".into());
    host.scan(40);
    assert_eq!(corrupted(&mut host, 41), NONE);
    let mut host = mount(host, 50);
    assert_eq!(corrupted(&mut host, 51), NONE);
}

#[test]
fn a_staged_volume_with_a_new_filesystem_has_no_report_of_the_former_one() {
    let mut host = unmounted(true, Some("u")).csi("d", "h", Some("/mnt"), &[]);
    host.read_all(1);
    let mut host = mount(host, 5);
    kernel_reports(&mut host, 1, 10);
    assert_eq!(corrupted(&mut host, 11), ["csi:d/h Bad"]);
    umount(&mut host, 20);
    assert_eq!(corrupted(&mut host, 21), ["dev:loop5 Bad"]);
    let mut same = mount(host.clone(), 30);
    assert_eq!(corrupted(&mut same, 31), ["csi:d/h Bad"]);
    host.inventory.devices.get_mut("loop5").unwrap().fs_uuid = Some("new".into());
    host.scan(40);
    let mut host = mount(host, 50);
    assert_eq!(corrupted(&mut host, 51), NONE);
}

#[test]
fn a_clean_superblock_without_errors_clears_and_one_with_errors_does_not() {
    let mut host = reported(false);
    superblock(&mut host, "u", 1, 30);
    assert_eq!(corrupted(&mut host, 31), ["dev:loop5 Bad"]);
    superblock(&mut host, "u", 0, 40);
    assert_eq!(corrupted(&mut host, 41), NONE);
}

fn errors_count(host: &mut TestHost, value: u64, second: i64) {
    let reading = CounterReading {
        device: CounterDevice::Block("loop5".into()),
        source: "ext4".into(),
        file: "/sys/fs/ext4/loop5".into(),
        values: [("errors_count".to_owned(), value)].into(),
        details: Default::default(),
    };
    host.apply(SourceUpdate::Counters(Observation::ok(at(second), vec![reading])), second);
}

#[test]
fn a_count_of_no_errors_clears_only_after_a_later_mount() {
    let mut host = mount(unmounted(true, Some("u")), 5);
    errors_count(&mut host, 0, 6);
    kernel_reports(&mut host, 1, 10);
    errors_count(&mut host, 0, 11);
    assert_eq!(corrupted(&mut host, 12), ["fs:u Suspect"]);
    // Unmounted before the error was read from the counter.
    for (repaired, expected) in [(false, vec!["fs:u Bad"]), (true, vec![])] {
        let mut host = host.clone();
        umount(&mut host, 20);
        let policy = host.policy.errors.clone();
        host.read_all(40);
        host.facts.forget_errors(&policy, at(40));
        corrupted(&mut host, 40);
        let mut host = mount(host, 50);
        errors_count(&mut host, u64::from(!repaired), 60);
        assert_eq!(corrupted(&mut host, 61), expected, "{repaired}");
    }
}

/// A record that somebody has made the kernel print moves no counter.
#[test]
fn a_record_that_ext4_does_not_count_is_a_suspicion_and_no_answer_to_a_check() {
    let mut host = mount(unmounted(true, Some("u")), 5);
    errors_count(&mut host, 0, 6);
    kernel_reports(&mut host, 1, 10);
    assert!(host.facts.take_counters_request(), "it is asked at once");
    assert_eq!(corrupted(&mut host, 11), ["fs:u Suspect"], "until it answers");
    let signals = |host: &TestHost, second: i64| {
        let known = &host.facts.volumes[&volume("fs:u")];
        let signals = signals(&host.facts, known, &host.policy, at(second));
        signals.iter().map(|it| it.kind).collect::<Vec<_>>()
    };
    let mut counted = host.clone();
    errors_count(&mut counted, 1, 12);
    assert_eq!(corrupted(&mut counted, 12), ["fs:u Bad"]);
    let mut silent = host.clone();
    assert_eq!(corrupted(&mut silent, 20), ["fs:u Bad"], "it does not answer");
    // A check answers from no count of 0: it reads the filesystem.
    assert_eq!(signals(&silent, 20), []);
    errors_count(&mut host, 0, 12);
    assert_eq!(corrupted(&mut host, 100), ["fs:u Suspect"]);
    assert_eq!(signals(&host, 100), []);
    // The next one is counted.
    kernel_reports(&mut host, 2, 110);
    errors_count(&mut host, 1, 112);
    assert_eq!(corrupted(&mut host, 113), ["fs:u Bad"]);
}

#[test]
fn the_kernels_record_of_a_mount_suffices_where_the_unmount_was_too_short_to_be_observed() {
    let mut host = mount(unmounted(true, Some("u")), 5);
    errors_count(&mut host, 0, 6);
    kernel_reports(&mut host, 1, 10);
    for (is_remount, errors, expected) in
        [(false, 0, vec![]), (false, 1, vec!["fs:u Bad"]), (true, 0, vec!["fs:u Suspect"])]
    {
        let mut host = host.clone();
        let mounted = NameAssignment {
            seq: 2,
            name: "loop5".into(),
            at: at(20),
            is_filesystem: true,
            is_remount,
        };
        let batch = Batch {
            cursor: Cursor { boot_id: "boot".into(), counted_to: Some(2), reread_from: 0, lost: 0 },
            events: Vec::new(),
            name_assignments: vec![mounted],
            full_reads: Vec::new(),
            is_backlog: false,
        };
        host.apply(SourceUpdate::KernelLog(batch), 21);
        errors_count(&mut host, errors, 30);
        assert_eq!(corrupted(&mut host, 31), expected, "{is_remount}");
    }
}

#[test]
fn an_acknowledgement_clears_only_after_an_unmount() {
    let mut host = mount(unmounted(true, Some("u")), 5);
    kernel_reports(&mut host, 1, 10);
    let subject = Subject::Volume(volume("fs:u"));
    host.facts.acknowledge_corruption(&subject);
    assert_eq!(corrupted(&mut host, 12), ["fs:u Bad"]);
    umount(&mut host, 20);
    let mut unmounted = host.clone();
    corrupted(&mut unmounted, 25);
    let device = Subject::Device("loop5".into());
    unmounted.facts.acknowledge_corruption(&device);
    assert_eq!(corrupted(&mut unmounted, 26), NONE);
    let mut host = mount(host, 30);
    assert_eq!(corrupted(&mut host, 31), ["fs:u Bad"]);
    host.facts.acknowledge_corruption(&subject);
    assert_eq!(corrupted(&mut host, 32), NONE);
    kernel_reports(&mut host, 2, 40);
    assert_eq!(corrupted(&mut host, 41), ["fs:u Bad"]);
}
