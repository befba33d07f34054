//! What checks mean for a volume.

use crate::model::check::{Ballot, Mode, Verdict, Weight};
use crate::model::facts::checks::Named;
use crate::model::facts::checks::tests::{asked, checked, data, flaw, plain, run};
use crate::model::finding::Evidence;
use crate::model::fixture::World;
use crate::model::reason::Reason;

#[test]
fn a_confirmed_corruption_is_lost_data_and_wrong_bookkeeping_is_not() {
    let mut world = plain();
    checked(
        &mut world,
        data(),
        Verdict::Corrupted,
        run(Mode::Frozen, Ballot::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(world.raised(12), ["fs:u FilesystemCorrupted Bad DataLoss"]);
    let proof: Vec<Evidence> = world
        .one(Reason::FilesystemCorrupted, 13)
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
        Verdict::Corrupted,
        run(
            Mode::Frozen,
            Ballot::Findings,
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
        Verdict::Corrupted,
        run(Mode::Frozen, Ballot::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    let raised = ["fs:u FilesystemCorrupted Bad DataLoss"];
    assert_eq!(world.raised(12), raised);
    checked(
        &mut world,
        data(),
        Verdict::Clean,
        run(Mode::Live, Ballot::Clean, Vec::new()),
        20,
    );
    assert_eq!(world.raised(22), raised);
    for (second, verdict) in [(30, Verdict::Failed), (40, Verdict::Inconclusive)] {
        checked(
            &mut world,
            data(),
            verdict,
            run(Mode::Frozen, Ballot::Failed, Vec::new()),
            second,
        );
        assert_eq!(world.raised(second + 2), raised);
    }
    checked(
        &mut world,
        data(),
        Verdict::Clean,
        run(Mode::Frozen, Ballot::Clean, Vec::new()),
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
        Verdict::Suspected,
        run(Mode::Live, Ballot::Findings, vec![flaw(Weight::Damage)]),
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
        Verdict::Corrupted,
        run(Mode::Frozen, Ballot::Findings, vec![flaw(Weight::Damage)]),
        20,
    );
    assert_eq!(
        confirmed.raised(22),
        ["fs:u FilesystemCorrupted Bad DataLoss"]
    );
    checked(
        &mut world,
        data(),
        Verdict::Clean,
        run(Mode::Live, Ballot::Clean, Vec::new()),
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
        Verdict::Corrupted,
        run(Mode::Frozen, Ballot::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(world.raised(12).len(), 1);
    let mut world = world.uuid("sda", "new");
    world.read_all(20);
    assert_eq!(world.raised(22), [""; 0]);
}

/// One at a time tells of it, whoever it is.
#[test]
fn damage_is_told_of_the_volume_while_it_is_mounted_and_of_the_device_else() {
    let mount = |world: World, second| {
        let mut world = world.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        world.read_all(second);
        world
    };
    let mut world = plain();
    checked(
        &mut world,
        data(),
        Verdict::Corrupted,
        run(Mode::Frozen, Ballot::Findings, vec![flaw(Weight::Damage)]),
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
fn damage_that_was_shown_of_a_device_is_the_volumes_when_it_is_mounted() {
    let mut world = plain();
    world.umount("/data");
    world
        .inventory
        .devices
        .get_mut("sda")
        .expect("there")
        .fs_type = Some("ext4".into());
    world.read_all(5);
    let unmounted = asked(Named::Device("sda".into()));
    checked(
        &mut world,
        unmounted,
        Verdict::Corrupted,
        run(
            Mode::Unmounted,
            Ballot::Findings,
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
