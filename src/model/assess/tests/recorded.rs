//! Errors that a failure left recorded in a filesystem, from before the first reading too.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::counters::{CounterDevice, CounterReading};
use crate::facts::checks::tests::{checked, request, run};
use crate::facts::checks::{CheckRequest, RequestedTarget};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::superblock::{ExtState, Superblock};
use diskvitals_finding::FindingDetails;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_fscheck::{CheckVerdict, Filesystem, Mode, Run, RunResult};

/// A disk with this filesystem, not mounted.
fn unmounted(fs_type: &str) -> TestHost {
    let mut host = TestHost::default().disk("sda", "8:0", "A").uuid("sda", "u");
    host.inventory.devices.get_mut("sda").unwrap().fs_type = Some(fs_type.into());
    host.read_all(0);
    host
}

fn unmounted_btrfs(devices: &[&str]) -> TestHost {
    let mut host = unmounted("btrfs");
    host.inventory.btrfs.push(btrfs("u", devices, "raid1"));
    host.read_all(0);
    host
}

fn mount(host: TestHost, fs_type: &str, second: i64) -> TestHost {
    let mut host = host.mounted("8:0", "/", "/data", fs_type, "/dev/sda");
    host.read_mounts(second);
    host
}

fn umount(host: &mut TestHost, second: i64) {
    host.umount("/data");
    host.read_mounts(second);
}

fn reading(
    source: &str,
    file: &str,
    values: &[(&str, u64)],
    details: &[(&str, &str)],
) -> CounterReading {
    CounterReading {
        device: CounterDevice::Block("sda".into()),
        source: source.into(),
        file: file.into(),
        values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        details: details
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>(),
    }
}

fn count(host: &mut TestHost, readings: Vec<CounterReading>, second: i64) {
    let update = SourceUpdate::Counters(Observation::ok(at(second), readings));
    host.apply(update, second);
}

fn ext4_count(host: &mut TestHost, errors: u64, second: i64) {
    let details = [
        ("first_error_time", "1551441600"),
        ("last_error_time", "1551441605"),
        ("last_error_func", "ext4_lookup"),
    ];
    let details = if errors > 0 { &details[..] } else { &[] };
    let reading = reading("ext4", "/sys/fs/ext4/sda", &[("errors_count", errors)], details);
    count(host, vec![reading], second);
}

fn superblock(host: &mut TestHost, state: ExtState, second: i64) {
    let superblock = Superblock { fs_type: "ext4".into(), uuid: "u".into(), ext: Some(state) };
    let update = SourceUpdate::Superblock {
        device: "sda".into(),
        dev: "8:0".parse().unwrap(),
        superblock: Observation::ok(at(second), Some(superblock)),
    };
    host.apply(update, second);
}

fn with_errors(errors: u32) -> ExtState {
    let at = |second| Timestamp::from_second(second).ok();
    ExtState {
        is_valid: true,
        has_errors: true,
        has_journal: true,
        errors,
        first_error: at(1_551_441_600),
        last_error: at(1_551_441_605),
        last_mounted: None,
        last_checked: at(1_551_000_000),
    }
}

fn clean() -> ExtState {
    ExtState { is_valid: true, has_journal: true, ..ExtState::default() }
}

/// The active finding, as of now.
fn found(host: &mut TestHost, second: i64) -> Option<FindingDetails> {
    let raised = host.raised_for(Reason::FilesystemErrors, second);
    let is_active = host.active.keys().any(|(_, reason)| *reason == Reason::FilesystemErrors);
    assert!(is_active || raised.is_none());
    raised
}

fn is_active(host: &mut TestHost, second: i64) -> bool {
    host.judge(second);
    let mut active = host.active.keys();
    active.any(|(_, reason)| *reason == Reason::FilesystemErrors)
}

const DAY: i64 = 24 * 3600;

#[test]
fn errors_that_ext4_recorded_years_ago_are_suspect_until_they_are_repaired() {
    let mut host = mount(unmounted("ext4"), "ext4", 1);
    ext4_count(&mut host, 3, 2);
    superblock(&mut host, with_errors(3), 3);
    let raised = found(&mut host, 10).expect("raised");
    assert_eq!(raised.severity, Severity::Suspect);
    assert_eq!(
        raised.message,
        "the ext4 on sda mounted at /data has recorded 3 errors (the first at 2019-03-01T12:00:00Z, the last at \
         2019-03-01T12:00:05Z) that nothing has repaired; they are from before diskvitals first saw it"
    );
    let quoted: Vec<&str> = raised.evidence.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(
        quoted,
        [
            "errors_count 3, first_error_time 1551441600, last_error_func ext4_lookup, last_error_time 1551441605",
            "filesystem state: clean with errors; error count: 3; last checked: 2019-02-24T09:20:00Z"
        ]
    );
    assert!(raised.evidence.iter().all(|one| !one.present));
    assert!(found(&mut host, 100 * DAY).is_some(), "time repairs nothing");
    // A mount repairs nothing either, and the superblock has not been read at first.
    umount(&mut host, 100 * DAY + 10);
    let mut again = mount(host.clone(), "ext4", 100 * DAY + 20);
    assert!(is_active(&mut again, 100 * DAY + 21));
    ext4_count(&mut again, 0, 100 * DAY + 22);
    assert!(
        is_active(&mut again, 100 * DAY + 23),
        "a count of zero is what e2fsck leaves also when it was not allowed to repair"
    );
    let refused = ExtState { is_valid: false, ..clean() };
    superblock(&mut again, refused, 100 * DAY + 24);
    assert!(is_active(&mut again, 100 * DAY + 25));
    superblock(&mut again, clean(), 100 * DAY + 30);
    assert!(!is_active(&mut again, 100 * DAY + 31));
    let mut host = mount(host, "ext4", 100 * DAY + 20);
    superblock(&mut host, with_errors(3), 100 * DAY + 21);
    ext4_count(&mut host, 3, 100 * DAY + 22);
    assert!(found(&mut host, 100 * DAY + 23).is_some());
}

#[test]
fn the_state_of_the_superblock_suffices_and_a_clean_one_raises_nothing() {
    for (state, expected) in [
        (with_errors(0), Some("is marked as having errors")),
        (with_errors(1), Some("has recorded an error (at 2019-03-01T12:00:00Z)")),
        (ExtState { is_valid: false, ..clean() }, Some("is not marked as clean")),
        (clean(), None),
        // Mounted without a journal: the mount has removed the sign.
        (ExtState::default(), None),
    ] {
        let mut host = mount(unmounted("ext4"), "ext4", 1);
        superblock(&mut host, state, 2);
        let raised = found(&mut host, 10).map(|raised| raised.message);
        match expected {
            Some(words) => {
                assert!(raised.as_ref().is_some_and(|text| text.contains(words)), "{raised:?}")
            }
            None => assert_eq!(raised, None),
        }
    }
}

fn check(host: &mut TestHost, filesystem: Filesystem, second: i64) {
    let request = CheckRequest {
        filesystem: Some(filesystem),
        ..request(RequestedTarget::Device("sda".into()))
    };
    let run = Run {
        filesystem_uuid: Some("u".into()),
        started: at(second),
        ..(*run(Mode::Unmounted, RunResult::Clean, Vec::new())).clone()
    };
    checked(host, request, CheckVerdict::Clean, Arc::new(run), second);
}

#[test]
fn a_clean_check_after_the_recorded_errors_clears_and_later_ones_raise_again() {
    let mut host = mount(unmounted("ext4"), "ext4", 1);
    ext4_count(&mut host, 3, 2);
    superblock(&mut host, with_errors(3), 3);
    assert!(found(&mut host, 10).is_some());
    umount(&mut host, 20);
    check(&mut host, Filesystem::Ext4, 30);
    let mut host = mount(host, "ext4", 50);
    superblock(&mut host, with_errors(3), 51);
    ext4_count(&mut host, 3, 52);
    assert!(!is_active(&mut host, 53));
    let newer = ExtState { last_error: Some(at(60)), ..with_errors(4) };
    superblock(&mut host, newer, 61);
    assert!(found(&mut host, 62).is_some());
}

#[test]
fn what_xfs_found_to_be_sick_outlives_the_mount() {
    let mut host = mount(unmounted("xfs"), "xfs", 1);
    let sick = |counters| {
        let values = [("sick_counters", counters), ("sick_nlinks", 0)];
        vec![reading("xfs", "XFS_IOC_FSGEOMETRY", &values, &[])]
    };
    // At the first reading already.
    count(&mut host, sick(1), 2);
    host.scan(20);
    let corrupted = |host: &mut TestHost, second| {
        host.judge(second);
        let active = host.active.iter();
        active
            .filter(|((_, reason), _)| *reason == Reason::FilesystemCorrupted)
            .map(|((subject, _), finding)| format!("{subject} {:?}", finding.level.0))
            .collect::<Vec<_>>()
    };
    assert_eq!(corrupted(&mut host, 21), ["fs:u Bad"]);
    umount(&mut host, 30);
    assert_eq!(corrupted(&mut host, 31), ["dev:sda Bad"]);
    let mut again = mount(host.clone(), "xfs", 40);
    count(&mut again, sick(0), 41);
    assert_eq!(corrupted(&mut again, 42), ["fs:u Bad"], "XFS forgets it at an unmount");
    check(&mut host, Filesystem::Xfs, 50);
    let mut host = mount(host, "xfs", 60);
    count(&mut host, sick(0), 61);
    assert_eq!(corrupted(&mut host, 62), [""; 0]);
}

fn statistics(write: u64, corruption: u64) -> CounterReading {
    let values = [("write_errs", write), ("corruption_errs", corruption), ("missing", 0)];
    let file = "/sys/fs/btrfs/u/devinfo/1/error_stats";
    reading("btrfs", file, &values, &[("devid", "1"), ("filesystem", "u")])
}

fn scrub(started: i64, finished: u64, errors: u64) -> CounterReading {
    let values = [
        ("started", at(started).as_second() as u64),
        ("finished", finished),
        ("canceled", 0),
        ("errors", errors),
    ];
    let file = "/var/lib/btrfs/scrub.status.u, device 1";
    reading("btrfs-scrub", file, &values, &[("devid", "1")])
}

#[test]
fn statistics_of_btrfs_that_were_not_zero_at_first_sight_are_suspect_until_a_scrub_or_a_reset() {
    let mut host = mount(unmounted_btrfs(&["sda"]), "btrfs", 1);
    count(&mut host, vec![statistics(2, 0)], 2);
    let raised = found(&mut host, 10).expect("raised");
    assert_eq!(
        (raised.severity, raised.message.as_str()),
        (
            Severity::Suspect,
            "the btrfs on sda mounted at /data counts errors of its devices: device 1: write_errs 2; they were counted \
             before diskvitals first read them at 2027-01-15T08:00:02Z"
        )
    );
    assert!(found(&mut host, 100 * DAY).is_some(), "time repairs nothing");
    let second = 100 * DAY + 1;
    for (scrub, what) in [
        (scrub(1, 1, 0), "it began before"),
        (scrub(second, 0, 0), "it is not over"),
        (scrub(second, 1, 1), "it found errors"),
    ] {
        let mut host = host.clone();
        count(&mut host, vec![statistics(2, 0), scrub], second + 1);
        assert!(found(&mut host, second + 20).is_some(), "{what}");
    }
    let mut reset = host.clone();
    count(&mut reset, vec![statistics(0, 0)], second);
    assert!(!is_active(&mut reset, second + 1));
    count(&mut host, vec![statistics(2, 0), scrub(second, 1, 0)], second + 10);
    assert!(!is_active(&mut host, second + 20));
    // From then on only growth counts.
    count(&mut host, vec![statistics(3, 0), scrub(second, 1, 0)], second + 60);
    host.scan(second + 80);
    assert!(found(&mut host, second + 81).is_some());
}

#[test]
fn a_btrfs_of_which_one_member_was_not_scrubbed_stays_suspect() {
    let mut host = mount(unmounted_btrfs(&["sda", "sdb"]), "btrfs", 1);
    let second = CounterReading {
        file: "/sys/fs/btrfs/u/devinfo/2/error_stats".into(),
        details: [("devid".to_owned(), "2".to_owned())].into(),
        ..statistics(0, 0)
    };
    count(&mut host, vec![statistics(2, 0), second, scrub(5, 1, 0)], 2);
    assert!(found(&mut host, 10).is_some());
}
