mod btrfs_members;
mod btrfs_space;
mod checks;
mod corruption;
mod counters;
mod errors;
mod evidence;
mod flash;
mod integrity;
mod layers;
mod link;
mod member_fitness;
mod mounted;
mod pool;
mod pool_space;
mod properties;
mod raid_member;
mod raid_volume;
mod recorded;
mod redundancy;
mod refutation;
mod removed_drives;
mod repaired;
mod restarts;
mod risk;
mod scrub;
mod second_witness;
mod smart;
mod sources;
mod unknown;
mod witnesses;

use crate::block::{Layer, LayerState};
use crate::fixture::*;
use crate::stack::{MdMember, MdState};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Reason;

pub const T: &str = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-h/mount";

/// sda with ext4 on /data, told and probed.
pub fn plain() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .uuid("sda", "u")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(0);
    host.probe("/data", healthy_probe(usage(100 * GIB, 50 * GIB)), 1);
    host
}

/// A mirror of sda and sdb on /data.
pub fn mirror() -> TestHost {
    let md = device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda", "sdb"]);
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .with(md)
        .uuid("md0", "m")
        .mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    host.read_all(0);
    host.layer("md0", md_state(0, &["sda", "sdb"]), 0);
    host
}

pub(crate) fn md_state(degraded: u32, members: &[&str]) -> LayerState {
    let member = |(slot, name): (usize, &&str)| MdMember {
        device: (*name).into(),
        state: "in_sync".into(),
        slot: Some(slot as u32),
        errors: 0,
        bad_blocks: Vec::new(),
    };
    LayerState::Md(MdState {
        level: "raid1".into(),
        raid_disks: 2,
        degraded,
        array_state: "clean".into(),
        members: members.iter().enumerate().map(member).collect(),
        ..MdState::default()
    })
}

pub fn csi() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/staging", "ext4", "/dev/sda")
        .mounted("8:0", "/", T, "ext4", "/dev/sda")
        .csi("d", "h", Some("/staging"), &[("u1", T)]);
    host.read_all(0);
    host
}
#[test]
fn a_healthy_host_raises_nothing() {
    assert_eq!(plain().raised(10), [""; 0]);
    assert_eq!(mirror().raised(10), [""; 0]);
    assert_eq!(csi().raised(100), [""; 0]);
}

#[test]
fn a_removed_unused_drive_is_informational() {
    let mut host = TestHost::default().disk("sda", "8:0", "A");
    host.read_all(0);
    host.pull("sda");
    host.scan(10);
    assert_eq!(host.raised(11), ["A DriveMissing Info Information"]);
    host.plug("sdz", "65:0", "A");
    host.scan(20);
    assert_eq!(host.raised(21), [""; 0]);
    assert!(host.active.is_empty());
}

#[test]
fn a_missing_drive_makes_its_volume_missing_and_both_return_under_another_name() {
    let mut host = plain();
    host.pull("sda");
    host.scan(10);
    assert_eq!(
        host.raised(11),
        [
            "A DriveMissing Bad Inaccessible",
            "fs:u DeviceMissing Bad Inaccessible",
            "fs:u DriveFailing Bad Inaccessible"
        ]
    );
    let missing = host.raised_for(Reason::DriveMissing, 12).unwrap();
    assert_eq!(missing.since, Some(at(10)));
    assert!(missing.message.contains("fs:u"), "{}", missing.message);
    // Unmounted while the drive is away: still known.
    host.umount("/data");
    host.read_mounts(20);
    assert_eq!(host.raised(60).len(), 3);
    assert!(host.facts.volumes[&volume("fs:u")].retained);
    host.plug("sdq", "65:0", "A");
    host.scan(70);
    assert_eq!(host.raised(71), [""; 0]);
    assert!(host.active.is_empty() && host.facts.volumes.is_empty());
}

#[test]
fn mounts_removed_just_before_their_drive_were_in_use_on_it() {
    let mut host = plain();
    host.umount("/data");
    host.read_mounts(10);
    host.pull("sda");
    host.scan(11);
    assert!(host.raised(12).contains(&"A DriveMissing Bad Inaccessible".to_owned()));
    assert!(host.facts.volumes[&volume("fs:u")].retained);

    let mut host = plain();
    host.umount("/data");
    host.read_mounts(10);
    host.pull("sda");
    host.scan(40);
    assert_eq!(
        host.raised(41),
        ["A DriveMissing Info Information"],
        "unmounted in peace, then pulled"
    );
}

#[test]
fn an_unused_removed_drive_is_forgotten_after_the_retention_period() {
    let mut host = TestHost::default().disk("sda", "8:0", "A");
    host.read_all(0);
    host.pull("sda");
    host.scan(10);
    host.raised(11);
    let month = 31 * 24 * 3600;
    host.scan(month);
    assert_eq!(host.raised(month), [""; 0]);
    assert!(host.active.is_empty());
    assert_eq!(
        host.facts.forget_missing_drives(host.policy.forget_missing_after, at(month)),
        [DriveId::new("A")]
    );
}

#[test]
fn one_leg_of_a_mirror_is_degraded_and_two_are_inaccessible() {
    let mut host = mirror();
    host.pull("sdb");
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec!["sda".into()];
    host.scan(10);
    host.layer("md0", md_state(1, &["sda"]), 11);
    assert_eq!(
        host.raised(12),
        [
            "B DriveMissing Bad Inaccessible",
            "fs:m DriveFailing Suspect Degraded",
            "fs:m RedundancyLost Suspect Degraded"
        ]
    );
    let failing = host.raised_for(Reason::DriveFailing, 13).unwrap();
    assert!(failing.message.contains("no redundancy is left in raid1 md0"), "{}", failing.message);
    host.pull("sda");
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec![];
    host.scan(20);
    assert!(host.raised(21).contains(&"fs:m DriveFailing Bad Inaccessible".to_owned()));
}

#[test]
fn a_rebuilt_array_clears_the_finding_of_the_lost_drive() {
    let mut host = mirror();
    host.pull("sdb");
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec!["sda".into()];
    host.scan(10);
    host.layer("md0", md_state(1, &["sda"]), 11);
    host.raised(12);
    host.plug("sdc", "8:32", "C");
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec!["sda".into(), "sdc".into()];
    host.scan(100);
    host.layer("md0", md_state(0, &["sda", "sdc"]), 200);
    assert_eq!(host.raised(201), ["B DriveMissing Info Information"]);
}

#[test]
fn a_drive_is_offline_at_once_or_after_the_recovery_period() {
    for (state, after, expected) in [
        ("offline", 1, true),
        ("transport-offline", 1, true),
        ("dead", 1, true),
        ("blocked", 30, false),
        ("blocked", 61, true),
        ("running", 99, false),
    ] {
        let mut host = plain();
        host.inventory.drives[0].devices[0].state = Some(state.into());
        host.scan(10);
        let raised = host.raised(10 + after);
        assert_eq!(
            raised.contains(&"A DriveOffline Bad Inaccessible".to_owned()),
            expected,
            "{state} {after}"
        );
    }
}

#[test]
fn a_drive_with_a_working_path_is_not_offline() {
    let mut host = plain();
    let mut second = host.inventory.drives[0].devices[0].clone();
    second.name = "sdb".into();
    second.state = Some("offline".into());
    host.inventory.drives[0].devices.push(second);
    host.scan(10);
    assert_eq!(host.raised(100), [""; 0]);
    host.inventory.drives[0].devices[0].state = Some("transport-offline".into());
    host.scan(20);
    assert_eq!(
        host.raised(21),
        ["A DriveOffline Bad Inaccessible", "fs:u DriveFailing Bad Inaccessible"]
    );
}
