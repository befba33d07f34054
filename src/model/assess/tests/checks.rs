//! What checks mean for a volume.

use crate::model::check::{CheckVerdict, Mode, RunResult, Weight};
use crate::model::facts::checks::RequestedTarget;
use crate::model::facts::checks::tests::{checked, data, flaw, plain, request, run};
use crate::model::finding::Evidence;
use crate::model::fixture::TestHost;
use crate::model::reason::Reason;

#[test]
fn a_confirmed_corruption_is_lost_data_and_wrong_bookkeeping_is_not() {
    let mut world = plain();
    checked(
        &mut world,
        data(),
        CheckVerdict::Corrupted,
        run(
            Mode::Frozen,
            RunResult::Findings,
            vec![flaw(Weight::Damage)],
        ),
        10,
    );
    assert_eq!(world.raised(12), ["fs:u FilesystemCorrupted Bad DataLoss"]);
    let proof: Vec<Evidence> = world
        .raised_for(Reason::FilesystemCorrupted, 13)
        .expect("raised")
        .evidence;
    assert!(
        proof[0]
            .source
            .starts_with("e2fsck -fn /dev/sda (frozen, check "),
        "{}",
        proof[0].source
    );
    assert_eq!(
        proof[0].text,
        "Inode 12 passes checks, but checksum does not match inode."
    );
    let mut world = plain();
    checked(
        &mut world,
        data(),
        CheckVerdict::Corrupted,
        run(
            Mode::Frozen,
            RunResult::Findings,
            vec![flaw(Weight::Bookkeeping)],
        ),
        10,
    );
    assert_eq!(world.raised(12), ["fs:u FilesystemCorrupted Bad Degraded"]);
}

#[test]
fn a_clean_check_of_the_same_strength_clears_and_a_weaker_or_failed_one_does_not() {
    let mut world = plain();
    checked(
        &mut world,
        data(),
        CheckVerdict::Corrupted,
        run(
            Mode::Frozen,
            RunResult::Findings,
            vec![flaw(Weight::Damage)],
        ),
        10,
    );
    let raised = ["fs:u FilesystemCorrupted Bad DataLoss"];
    assert_eq!(world.raised(12), raised);
    checked(
        &mut world,
        data(),
        CheckVerdict::Clean,
        run(Mode::Live, RunResult::Clean, Vec::new()),
        20,
    );
    assert_eq!(world.raised(22), raised);
    for (second, verdict) in [(30, CheckVerdict::Failed), (40, CheckVerdict::Inconclusive)] {
        checked(
            &mut world,
            data(),
            verdict,
            run(Mode::Frozen, RunResult::Failed, Vec::new()),
            second,
        );
        assert_eq!(world.raised(second + 2), raised);
    }
    checked(
        &mut world,
        data(),
        CheckVerdict::Clean,
        run(Mode::Frozen, RunResult::Clean, Vec::new()),
        50,
    );
    assert_eq!(world.raised(52), [""; 0]);
    assert!(world.active.is_empty());
}

#[test]
fn a_suspicion_is_cleared_by_any_clean_check_or_confirmed() {
    let mut world = plain();
    checked(
        &mut world,
        data(),
        CheckVerdict::Suspected,
        run(Mode::Live, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(
        world.raised(12),
        ["fs:u FilesystemSuspect Suspect Degraded"]
    );
    let mut confirmed = world.clone();
    checked(
        &mut confirmed,
        data(),
        CheckVerdict::Corrupted,
        run(
            Mode::Frozen,
            RunResult::Findings,
            vec![flaw(Weight::Damage)],
        ),
        20,
    );
    assert_eq!(
        confirmed.raised(22),
        ["fs:u FilesystemCorrupted Bad DataLoss"]
    );
    checked(
        &mut world,
        data(),
        CheckVerdict::Clean,
        run(Mode::Live, RunResult::Clean, Vec::new()),
        20,
    );
    assert_eq!(world.raised(22), [""; 0]);
}

#[test]
fn a_new_filesystem_on_the_device_is_not_the_one_that_was_checked() {
    let mut world = plain();
    checked(
        &mut world,
        data(),
        CheckVerdict::Corrupted,
        run(
            Mode::Frozen,
            RunResult::Findings,
            vec![flaw(Weight::Damage)],
        ),
        10,
    );
    assert_eq!(world.raised(12).len(), 1);
    let mut world = world.uuid("sda", "new");
    world.read_all(20);
    assert_eq!(world.raised(22), [""; 0]);
}

/// One at a time tells of it, whoever it is.
#[test]
fn corruption_is_a_finding_of_the_mounted_volume_else_of_the_device() {
    let mount = |world: TestHost, second| {
        let mut world = world.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        world.read_all(second);
        world
    };
    let mut world = plain();
    checked(
        &mut world,
        data(),
        CheckVerdict::Corrupted,
        run(
            Mode::Frozen,
            RunResult::Findings,
            vec![flaw(Weight::Damage)],
        ),
        10,
    );
    assert_eq!(world.raised(12), ["fs:u FilesystemCorrupted Bad DataLoss"]);
    for second in [20, 40] {
        world.umount("/data");
        world.read_all(second);
        assert_eq!(
            world.raised(second + 2),
            ["dev:sda FilesystemCorrupted Bad DataLoss"]
        );
        world = mount(world, second + 10);
        assert_eq!(
            world.raised(second + 12),
            ["fs:u FilesystemCorrupted Bad DataLoss"]
        );
        assert_eq!(world.active.len(), 1, "{:?}", world.active);
    }
    // Another filesystem is another matter.
    world.umount("/data");
    let mut world = world.uuid("sda", "new");
    world.read_all(60);
    assert_eq!(world.raised(62), [""; 0]);
    assert!(world.active.is_empty());
}

#[test]
fn corruption_of_a_device_becomes_the_volumes_when_mounted() {
    let mut world = plain();
    world.umount("/data");
    world
        .inventory
        .devices
        .get_mut("sda")
        .expect("there")
        .fs_type = Some("ext4".into());
    world.read_all(5);
    let unmounted = request(RequestedTarget::Device("sda".into()));
    checked(
        &mut world,
        unmounted,
        CheckVerdict::Corrupted,
        run(
            Mode::Unmounted,
            RunResult::Findings,
            vec![flaw(Weight::Damage)],
        ),
        10,
    );
    assert_eq!(
        world.raised(12),
        ["dev:sda FilesystemCorrupted Bad DataLoss"]
    );
    let mut world = world.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    world.read_all(20);
    assert_eq!(world.raised(22), ["fs:u FilesystemCorrupted Bad DataLoss"]);
    assert_eq!(world.active.len(), 1, "{:?}", world.active);
}
