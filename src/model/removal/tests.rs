use proptest::prelude::*;

use super::*;
use crate::assess::ActiveFinding;
use crate::fixture::{TestHost, at, device, dm, md_member};
use crate::probe::StuckProbe;
use crate::signature::Signature;
use crate::source_update::SourceUpdate;
use crate::stack::MdState;
use diskvitals_finding::Status;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;

const NAMES: [(&str, &str, &str); 4] =
    [("sda", "8:0", "A"), ("sdb", "8:16", "B"), ("sdc", "8:32", "C"), ("sdd", "8:48", "D")];

fn raid(level: &str, members: &[(&str, &str)], action: &str) -> MdState {
    let in_sync = members.iter().filter(|(_, state)| *state == "in_sync").count();
    MdState {
        level: level.into(),
        raid_disks: members.len() as u32,
        degraded: (members.len() - in_sync) as u32,
        array_state: "clean".into(),
        sync_action: Some(action.into()),
        members: (0..)
            .zip(members)
            .map(|(slot, (name, state))| md_member(name, state, Some(slot)))
            .collect(),
        ..MdState::default()
    }
}

/// An array `md0` with a filesystem at `/data`.
fn host(state: MdState) -> TestHost {
    let members: Vec<String> = state.members.iter().map(|it| it.device.clone()).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let mut host = TestHost::default();
    for (name, dev, serial) in NAMES {
        if members.contains(&name) {
            host = host.disk(name, dev, serial);
            let disk = host.inventory.devices.get_mut(name).unwrap();
            disk.fs_type = Some("linux_raid_member".into());
        }
    }
    let md = device("md0", "9:0", Layer::Md { level: Some(state.level.clone()) }, &members);
    let mut host = host.with(md).mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    host.read_all(1);
    host.layer("md0", LayerState::Md(state), 1);
    host
}

fn judged(host: &TestHost, serial: &str) -> Removal {
    removal(&host.facts, &host.active, &DriveId::new(serial)).unwrap()
}

fn answer(host: &TestHost, serial: &str) -> (CanBePulled, String) {
    let judged = judged(host, serial);
    let first = judged.objections.into_iter().next();
    (judged.answer, first.map(|(_, why)| why).unwrap_or_default())
}

fn mirror(action: &str) -> TestHost {
    host(raid("raid1", &[("sda", "in_sync"), ("sdb", "in_sync")], action))
}

#[test]
fn a_drive_whose_mirror_is_whole_can_be_pulled() {
    assert_eq!(answer(&mirror("idle"), "A"), (CanBePulled::Yes, String::new()));
    // It reads only.
    assert_eq!(answer(&mirror("check"), "A").0, CanBePulled::Yes);
}

#[test]
fn no_while_a_rebuild_runs_or_the_last_copy_is_on_it() {
    let rebuilding = mirror("recover");
    assert_eq!(answer(&rebuilding, "A"), (CanBePulled::No, "md0: rebuild runs".into()));
    let degraded = host(raid("raid1", &[("sda", "in_sync"), ("sdb", "faulty")], "idle"));
    let last = judged(&degraded, "A");
    assert_eq!(last.answer, CanBePulled::No);
    assert!(
        last.objections
            .contains(&(CanBePulled::No, "no sound copy of /data is known elsewhere".into()))
    );
    // The member that failed holds nothing that is needed.
    assert_eq!(answer(&degraded, "B").0, CanBePulled::Yes);
    let due = MdState {
        is_resync_due: true,
        ..raid("raid1", &[("sda", "in_sync"), ("sdb", "in_sync")], "idle")
    };
    assert_eq!(answer(&host(due), "A"), (CanBePulled::No, "md0 is not yet synchronized".into()));
}

#[test]
fn a_bad_drive_holds_no_sound_copy() {
    let mut host = mirror("idle");
    let subject = Subject::Drive(DriveId::new("B"));
    let level = (Severity::Bad, Status::DataLoss);
    host.active.insert((subject, Reason::PendingSectors), ActiveFinding { level, since: at(1) });
    assert_eq!(answer(&host, "A").0, CanBePulled::No);
    // The other one is the sound copy.
    assert_eq!(answer(&host, "B").0, CanBePulled::Yes);
}

#[test]
fn a_plain_filesystem_swap_and_a_hibernated_system_are_on_it_alone() {
    let mut plain = TestHost::default().disk("sda", "8:0", "A").mounted(
        "8:0",
        "/",
        "/boot/efi",
        "vfat",
        "/dev/sda",
    );
    plain.read_all(1);
    let expected = (CanBePulled::No, "no sound copy of /boot/efi is known elsewhere".to_owned());
    assert_eq!(answer(&plain, "A"), expected);
    let mut swap = TestHost::default().disk("sda", "8:0", "A");
    swap.inventory.swaps.insert("sda".into(), "/dev/sda".into());
    swap.read_all(1);
    assert_eq!(answer(&swap, "A"), (CanBePulled::No, "swap on /dev/sda is active".into()));
    let mut asleep = TestHost::default().disk("sda", "8:0", "A");
    asleep.inventory.devices.get_mut("sda").unwrap().fs_type = Some("swsuspend".into());
    asleep.read_all(1);
    assert_eq!(answer(&asleep, "A").0, CanBePulled::No);
}

#[test]
fn what_is_not_read_is_not_known() {
    let mut host = TestHost::default().disk("sda", "8:0", "A");
    host.read_all(1);
    let unread = (CanBePulled::NotKnown, "what sda holds is not known".to_owned());
    assert_eq!(answer(&host, "A"), unread);
    // Read, and nothing is there.
    host.inventory.signatures.insert("sda".into(), Vec::new());
    host.scan(2);
    assert_eq!(answer(&host, "A"), (CanBePulled::Yes, String::new()));
    let osd = Signature { fs_type: "ceph_bluestore".into(), osd: None, zfs: None };
    host.inventory.signatures.insert("sda".into(), vec![osd]);
    host.scan(3);
    assert_eq!(answer(&host, "A").0, CanBePulled::NotKnown);
    host.inventory.devices.get_mut("sda").unwrap().fs_type = Some("xfs".into());
    host.inventory.signatures.clear();
    host.scan(4);
    assert_eq!(
        answer(&host, "A"),
        (CanBePulled::NotKnown, "sda holds xfs that is not in use".into())
    );
    host.pull("sda");
    host.scan(5);
    assert_eq!(answer(&host, "A").0, CanBePulled::NotKnown);
    assert_eq!(removal(&host.facts, &host.active, &DriveId::new("Z")), None);
}

#[test]
fn what_lies_between_a_drive_and_its_mirror_is_judged_with_the_mirror() {
    let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B");
    for (name, dev, below) in [("dm-0", "253:0", "sda"), ("dm-1", "253:1", "sdb")] {
        host = host.with(dm(name, dev, name, "CRYPT-LUKS2-x", &[below]));
    }
    let layer = Layer::Md { level: Some("raid1".into()) };
    host = host.with(device("md0", "9:0", layer, &["dm-0", "dm-1"]));
    host = host.mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    host.read_all(1);
    let both = [("dm-0", "in_sync"), ("dm-1", "in_sync")];
    host.layer("md0", LayerState::Md(raid("raid1", &both, "idle")), 1);
    host.layer("dm-0", LayerState::Plain, 1);
    host.layer("dm-1", LayerState::Plain, 1);
    assert_eq!(answer(&host, "A"), (CanBePulled::Yes, String::new()));
    let one = [("dm-0", "in_sync"), ("dm-1", "faulty")];
    host.layer("md0", LayerState::Md(raid("raid1", &one, "idle")), 2);
    assert_eq!(answer(&host, "A").0, CanBePulled::No);
}

#[test]
fn an_osd_on_a_logical_volume_has_its_copies_on_other_nodes() {
    let mut host = TestHost::default().disk("sda", "8:0", "A");
    host = host.with(dm("dm-0", "253:0", "ceph-block", "LVM-x", &["sda"]));
    host.inventory.devices.get_mut("dm-0").unwrap().fs_type = Some("ceph_bluestore".into());
    host.read_all(1);
    host.layer("dm-0", LayerState::Plain, 1);
    let expected = "ceph-block belongs to a Ceph OSD, whose copies are not seen here";
    assert_eq!(answer(&host, "A"), (CanBePulled::NotKnown, expected.into()));
}

#[test]
fn an_array_whose_state_is_not_read_is_not_known() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .with(device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda", "sdb"]));
    host.read_all(1);
    assert_eq!(answer(&host, "A"), (CanBePulled::NotKnown, "the state of md0 is not known".into()));
}

proptest! {
    /// Pulling a drive of which it is said that it can be pulled never loses the array: the members
    /// that are left hold all data.
    #[test]
    fn a_yes_never_loses_data(
        level in prop::sample::select(vec!["raid1", "raid5", "raid6"]),
        states in prop::collection::vec(prop::sample::select(vec!["in_sync", "faulty", "spare"]), 3..=4),
        action in prop::sample::select(vec!["idle", "check", "recover", "resync", "reshape"]),
        pulled in 0_usize..3,
    ) {
        let members: Vec<(&str, &str)> =
            NAMES.iter().map(|(name, ..)| *name).zip(states.iter().copied()).collect();
        let host = host(raid(level, &members, action));
        let judged = judged(&host, NAMES[pulled].2);
        let left = (0..members.len()).filter(|at| *at != pulled && members[*at].1 == "in_sync").count();
        let needed = match level {
            "raid1" => 1,
            "raid5" => members.len() - 1,
            _ => members.len() - 2,
        };
        if judged.answer == CanBePulled::Yes {
            // An array that has already lost its data loses nothing with a member that holds none.
            prop_assert!(left >= needed || members[pulled].1 != "in_sync", "{judged:?}");
            prop_assert!(matches!(action, "idle" | "check"), "{judged:?}");
        }
        prop_assert_eq!(judged.answer == CanBePulled::Yes, judged.objections.is_empty());
        prop_assert!(judged.objections.iter().all(|(answer, _)| *answer != CanBePulled::Yes));
        prop_assert!(judged.objections.is_sorted_by(|a, b| a.0 >= b.0));
    }

    /// One more thing that is not known, or that stands against it, never makes a better answer.
    #[test]
    fn a_failed_reading_never_improves_the_answer(second in any::<bool>(), fails in 0_usize..3) {
        let mut host = mirror(if second { "recover" } else { "idle" });
        let before = judged(&host, "A").answer;
        match fails {
            0 => {
                let stuck = StuckProbe { since: at(1), waiting_in: None, path: "/sys".into() };
                host.apply(SourceUpdate::LayerStuck { device: "md0".into(), stuck }, 2);
            }
            1 => {
                host.inventory.swaps.insert("sda".into(), "/dev/sda".into());
                host.scan(2);
            }
            _ => {
                host.apply(SourceUpdate::Inventory(Observation::failed(at(2), "no")), 2);
            }
        }
        let after = judged(&host, "A").answer;
        prop_assert!(after >= before && after != CanBePulled::Yes, "{after:?}");
    }
}
