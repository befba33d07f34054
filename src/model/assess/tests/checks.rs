//! What checks mean for a volume.

use crate::counters::{CounterDevice, CounterReading};
use crate::facts::checks::RequestedTarget;
use crate::facts::checks::tests::{checked, data, flaw, plain, request, run};
use crate::fixture::{TestHost, at};
use crate::source_update::SourceUpdate;
use crate::superblock::{ExtState, Superblock};
use diskvitals_finding::Evidence;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_fscheck::{CheckVerdict, Mode, RunResult, Weight};

#[test]
fn a_confirmed_corruption_is_lost_data_and_wrong_bookkeeping_is_not() {
    let mut host = plain();
    checked(
        &mut host,
        data(),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(host.raised(12), ["fs:u FilesystemCorrupted Bad DataLoss"]);
    let proof: Vec<Evidence> =
        host.raised_for(Reason::FilesystemCorrupted, 13).expect("raised").evidence;
    assert!(
        proof[0].source.starts_with("e2fsck -fn /dev/sda (frozen, check "),
        "{}",
        proof[0].source
    );
    assert_eq!(proof[0].text, "Inode 12 passes checks, but checksum does not match inode.");
    let mut host = plain();
    checked(
        &mut host,
        data(),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Bookkeeping)]),
        10,
    );
    assert_eq!(host.raised(12), ["fs:u FilesystemCorrupted Bad Degraded"]);
}

#[test]
fn a_clean_check_of_the_same_strength_clears_and_a_weaker_or_failed_one_does_not() {
    let mut host = plain();
    checked(
        &mut host,
        data(),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    let raised = ["fs:u FilesystemCorrupted Bad DataLoss"];
    assert_eq!(host.raised(12), raised);
    checked(
        &mut host,
        data(),
        CheckVerdict::Clean,
        run(Mode::Live, RunResult::Clean, Vec::new()),
        20,
    );
    assert_eq!(host.raised(22), raised);
    for (second, verdict) in [(30, CheckVerdict::Failed), (40, CheckVerdict::Inconclusive)] {
        checked(
            &mut host,
            data(),
            verdict,
            run(Mode::Frozen, RunResult::Failed, Vec::new()),
            second,
        );
        assert_eq!(host.raised(second + 2), raised);
    }
    checked(
        &mut host,
        data(),
        CheckVerdict::Clean,
        run(Mode::Frozen, RunResult::Clean, Vec::new()),
        50,
    );
    assert_eq!(host.raised(52), [""; 0]);
    assert!(host.active.is_empty());
}

#[test]
fn a_suspicion_is_cleared_by_any_clean_check_or_confirmed() {
    let mut host = plain();
    checked(
        &mut host,
        data(),
        CheckVerdict::Suspected,
        run(Mode::Live, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(host.raised(12), ["fs:u FilesystemSuspect Suspect Degraded"]);
    let mut confirmed = host.clone();
    checked(
        &mut confirmed,
        data(),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)]),
        20,
    );
    assert_eq!(confirmed.raised(22), ["fs:u FilesystemCorrupted Bad DataLoss"]);
    checked(
        &mut host,
        data(),
        CheckVerdict::Clean,
        run(Mode::Live, RunResult::Clean, Vec::new()),
        20,
    );
    assert_eq!(host.raised(22), [""; 0]);
}

#[test]
fn a_new_filesystem_on_the_device_is_not_the_one_that_was_checked() {
    let mut host = plain();
    checked(
        &mut host,
        data(),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(host.raised(12).len(), 1);
    let mut host = host.uuid("sda", "new");
    host.read_all(20);
    assert_eq!(host.raised(22), [""; 0]);
}

/// One at a time tells of it, whoever it is.
#[test]
fn corruption_is_a_finding_of_the_mounted_volume_else_of_the_device() {
    let mount = |host: TestHost, second| {
        let mut host = host.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        host.read_all(second);
        host
    };
    let mut host = plain();
    checked(
        &mut host,
        data(),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(host.raised(12), ["fs:u FilesystemCorrupted Bad DataLoss"]);
    for second in [20, 40] {
        host.umount("/data");
        host.read_all(second);
        assert_eq!(host.raised(second + 2), ["dev:sda FilesystemCorrupted Bad DataLoss"]);
        host = mount(host, second + 10);
        assert_eq!(host.raised(second + 12), ["fs:u FilesystemCorrupted Bad DataLoss"]);
        assert_eq!(host.active.len(), 1, "{:?}", host.active);
    }
    // Another filesystem is another matter.
    host.umount("/data");
    let mut host = host.uuid("sda", "new");
    host.read_all(60);
    assert_eq!(host.raised(62), [""; 0]);
    assert!(host.active.is_empty());
}

#[test]
fn corruption_of_a_device_becomes_the_volumes_when_mounted() {
    let mut host = plain();
    host.umount("/data");
    host.inventory.devices.get_mut("sda").expect("there").fs_type = Some("ext4".into());
    host.read_all(5);
    let unmounted = request(RequestedTarget::Device("sda".into()));
    checked(
        &mut host,
        unmounted,
        CheckVerdict::Corrupted,
        run(Mode::Unmounted, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(host.raised(12), ["dev:sda FilesystemCorrupted Bad DataLoss"]);
    let mut host = host.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(20);
    assert_eq!(host.raised(22), ["fs:u FilesystemCorrupted Bad DataLoss"]);
    assert_eq!(host.active.len(), 1, "{:?}", host.active);
}

/// Unmounted and mounted again after a check that proved damage; then ext4's superblock is read.
fn mounted_again(state: ExtState) -> TestHost {
    let mut host = plain();
    let found = run(Mode::Unmounted, RunResult::Findings, vec![flaw(Weight::Damage)]);
    checked(&mut host, data(), CheckVerdict::Corrupted, found, 100);
    host.umount("/data");
    host.read_all(200);
    let mut host = host.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(300);
    superblock(&mut host, state, 301);
    host
}

fn superblock(host: &mut TestHost, state: ExtState, second: i64) {
    let found = Superblock { fs_type: "ext4".into(), uuid: "u".into(), ext: Some(state) };
    let update = SourceUpdate::Superblock {
        device: "sda".into(),
        dev: "8:0".parse().expect("a number"),
        superblock: Observation::ok(at(second), Some(found)),
    };
    host.apply(update, second);
}

fn repaired() -> ExtState {
    ExtState {
        is_valid: true,
        has_journal: true,
        last_checked: Some(at(250)),
        ..ExtState::default()
    }
}

#[test]
fn a_mount_after_a_repair_that_ext4_records_clears_what_a_check_found() {
    assert_eq!(mounted_again(repaired()).raised(302), [""; 0]);
    let raised = ["fs:u FilesystemCorrupted Bad DataLoss"];
    for (why, state) in [
        ("somebody answered no", ExtState { is_valid: false, ..repaired() }),
        ("it counts errors", ExtState { errors: 1, ..repaired() }),
        ("it is marked as having errors", ExtState { has_errors: true, ..repaired() }),
        ("checked before our check only", ExtState { last_checked: Some(at(99)), ..repaired() }),
        ("never checked", ExtState { last_checked: None, ..repaired() }),
        (
            "without a journal, the state says nothing",
            ExtState { has_journal: false, ..repaired() },
        ),
    ] {
        assert_eq!(mounted_again(state).raised(302), raised, "{why}");
    }
}

#[test]
fn a_repair_counts_only_once_the_kernel_has_mounted_it() {
    let mut host = plain();
    let found = run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)]);
    checked(&mut host, data(), CheckVerdict::Corrupted, found, 100);
    // Mounted since before the check.
    superblock(&mut host, repaired(), 251);
    let raised = ["fs:u FilesystemCorrupted Bad DataLoss"];
    assert_eq!(host.raised(252), raised);
    host.umount("/data");
    host.read_all(260);
    superblock(&mut host, repaired(), 261);
    assert_eq!(host.raised(262), ["dev:sda FilesystemCorrupted Bad DataLoss"]);
    let mut host = host.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(300);
    superblock(&mut host, repaired(), 301);
    assert_eq!(host.raised(302), [""; 0]);
}

#[test]
fn the_end_of_a_finding_is_what_its_filesystem_can_prove() {
    for (filesystem, words) in [
        ("ext4", "that its superblock records"),
        ("xfs", "run `diskvitals check /dev/sda` after xfs_repair"),
    ] {
        let mut host = plain();
        host.mount_mut("/data").fs_type = filesystem.into();
        host.read_mounts(5);
        let found = run(Mode::Unmounted, RunResult::Findings, vec![flaw(Weight::Damage)]);
        checked(&mut host, data(), CheckVerdict::Corrupted, found, 10);
        let raised = host.raised_for(Reason::FilesystemCorrupted, 12);
        let clears = raised.expect("raised").clears_when;
        assert!(clears.contains(words), "{clears}");
    }
}

#[test]
fn damaged_copies_beside_good_ones_are_suspect_whether_mounted_or_not() {
    let copies = || run(Mode::Unmounted, RunResult::Findings, vec![flaw(Weight::DamagedCopy)]);
    let mut host = plain();
    checked(&mut host, data(), CheckVerdict::Suspected, copies(), 10);
    assert_eq!(host.raised(12), ["fs:u FilesystemCorrupted Suspect Degraded"]);
    host.umount("/data");
    host.read_all(20);
    assert_eq!(host.raised(22), ["dev:sda FilesystemCorrupted Suspect Degraded"]);
}

/// A btrfs with two members; the record of the last scrub of each: its start, and errors.
fn scrub(host: &mut TestHost, members: [(i64, u64); 2], second: i64) {
    let reading = |source: &str, id: usize, values: &[(&str, u64)]| CounterReading {
        device: CounterDevice::Block("sda".into()),
        source: source.into(),
        file: format!("{source} {id}"),
        values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        details: [("devid".to_owned(), id.to_string())].into(),
    };
    let of_member = |(id, (started, errors)): (usize, &(i64, u64))| {
        let values = [
            ("started", at(*started).as_second() as u64),
            ("finished", 1),
            ("canceled", 0),
            ("errors", *errors),
        ];
        reading("btrfs-scrub", id + 1, &values)
    };
    let readings = members.iter().enumerate().map(of_member).collect();
    let update = SourceUpdate::Counters(Observation::ok(at(second), readings));
    host.apply(update, second);
}

fn btrfs_found(verdict: CheckVerdict, weights: &[Weight]) -> TestHost {
    let mut host = plain();
    host.mount_mut("/data").fs_type = "btrfs".into();
    let fs = crate::fixture::btrfs("u", &["sda", "sdb"], "raid1");
    host.inventory.btrfs.push(fs);
    host.read_all(5);
    let problems = weights.iter().map(|weight| flaw(*weight)).collect();
    let found = run(Mode::ReadOnly, RunResult::Findings, problems);
    checked(&mut host, data(), verdict, found, 100);
    host
}

#[test]
fn damaged_copies_are_over_after_a_scrub_that_read_every_member_without_an_error() {
    let raised = ["fs:u FilesystemCorrupted Suspect Degraded"];
    let found = || btrfs_found(CheckVerdict::Suspected, &[Weight::DamagedCopy]);
    for (why, members) in [
        ("it began during the check", [(200, 0), (101, 0)]),
        ("it began before the check", [(50, 0), (50, 0)]),
        ("it found errors", [(200, 0), (200, 1)]),
    ] {
        let mut host = found();
        scrub(&mut host, members, 300);
        assert_eq!(host.raised(301), raised, "{why}");
    }
    let mut host = found();
    let details = host.raised_for(Reason::FilesystemCorrupted, 110);
    let clears = details.expect("raised").clears_when;
    assert!(clears.contains("`btrfs scrub start -B /data`"), "{clears}");
    let needed = |host: &TestHost| host.facts.probe_targets()[0].awaited_scrub.clone();
    assert_eq!(needed(&host), Some("u".to_owned()));
    scrub(&mut host, [(200, 0), (201, 0)], 300);
    assert_eq!(host.raised(301), [""; 0]);
    assert_eq!(needed(&host), None, "the file is on a disk");
    // The record of the scrub cannot be read after the unmount.
    host.umount("/data");
    host.read_all(400);
    assert_eq!(host.raised(401), [""; 0]);
}

#[test]
fn a_scrub_does_not_prove_that_the_structures_are_in_order() {
    for (verdict, weights, raised) in [
        (
            CheckVerdict::Corrupted,
            &[Weight::DamagedCopy, Weight::Damage][..],
            "fs:u FilesystemCorrupted Bad DataLoss",
        ),
        (CheckVerdict::Suspected, &[Weight::Damage], "fs:u FilesystemSuspect Suspect Degraded"),
    ] {
        let mut host = btrfs_found(verdict, weights);
        scrub(&mut host, [(200, 0), (200, 0)], 300);
        assert_eq!(host.raised(301), [raised]);
    }
}

#[test]
fn a_scrub_is_compared_by_the_wall_clock() {
    let mut host = btrfs_found(CheckVerdict::Suspected, &[Weight::DamagedCopy]);
    host.facts.wall_offset = jiff::SignedDuration::from_secs(1000);
    scrub(&mut host, [(500, 0), (500, 0)], 300);
    assert_eq!(host.raised(301), ["fs:u FilesystemCorrupted Suspect Degraded"]);
    scrub(&mut host, [(1200, 0), (1200, 0)], 310);
    assert_eq!(host.raised(311), [""; 0]);
}
