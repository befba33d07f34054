use std::sync::Arc;

use super::*;
use crate::block::LayerState;
use crate::fixture::{TestHost, at, device, dm, md_member};
use crate::lamp::{LampOrder, LampPlace};
use crate::source_update::SourceUpdate;
use crate::stack::{
    BtrfsFs, DmRaid, MdState, PoolScan, PoolState, PoolStatus, PulledMember, ScanState, Vdev,
    VdevState, ZfsPool,
};
use diskvitals_finding::observation::Observation;

/// Nothing that this module prints may have these words: each has destroyed data that was still good.
const NEVER: [&str; 10] = [
    "zpool add",
    "--zero-superblock",
    "wipefs",
    "--assume-clean",
    "--removemissing --force",
    "--create",
    "--force",
    "foreign import",
    "import foreign",
    "sgdisk",
];

fn step(host: &TestHost, serial: &str) -> Step {
    step_with(host, serial, None)
}

fn step_with(host: &TestHost, serial: &str, with: Option<&str>) -> Step {
    let with = with.map(DriveId::new);
    let step = next_step(&host.facts, &host.active, &DriveId::new(serial), with.as_ref());
    let step = step.unwrap().1;
    let text = format!("{} {} {}", step.text, step.commands.join(" "), step.warnings.join(" "));
    assert!(NEVER.iter().all(|word| !text.contains(word)), "{text}");
    assert_eq!(step.kind == StepKind::Type, !step.commands.is_empty(), "{step:?}");
    step
}

fn shown(host: &TestHost, serial: &str) -> (StepKind, Vec<String>) {
    let step = step(host, serial);
    (step.kind, step.commands)
}

fn typed(command: &str) -> (StepKind, Vec<String>) {
    (StepKind::Type, vec![command.to_owned()])
}

fn only(kind: StepKind) -> (StepKind, Vec<String>) {
    (kind, Vec::new())
}

/// An empty drive with a by-id link.
fn plug(host: &mut TestHost, name: &str, dev: &str, serial: &str) {
    host.plug(name, dev, serial);
    let disk = host.inventory.devices.get_mut(name).unwrap();
    disk.links =
        vec![format!("/dev/disk/by-id/wwn-0x{serial}"), format!("/dev/disk/by-id/ata-{serial}")];
    let links = disk.links.clone();
    host.inventory.signatures.insert(name.into(), Vec::new());
    let drive = host.inventory.drives.iter_mut().find(|it| it.name == name).unwrap();
    drive.links = links;
}

fn member(host: &mut TestHost, name: &str, fs_type: &str, uuid: &str) {
    let disk = host.inventory.devices.get_mut(name).unwrap();
    disk.fs_type = Some(fs_type.into());
    disk.fs_uuid = Some(uuid.into());
}

fn md(members: &[(&str, &str, Option<u32>)], degraded: u32, action: &str) -> LayerState {
    LayerState::Md(MdState {
        level: "raid1".into(),
        raid_disks: 2,
        degraded,
        array_state: "clean".into(),
        sync_action: Some(action.into()),
        sync_completed: (action == "recover").then_some((500, 1000)),
        sync_speed: Some(1),
        members: members.iter().map(|(name, state, slot)| md_member(name, state, *slot)).collect(),
        ..MdState::default()
    })
}

fn set(host: &mut TestHost, members: &[(&str, &str, Option<u32>)], degraded: u32, action: &str) {
    let names: Vec<String> = members.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let present = names.into_iter().filter(|name| host.inventory.devices.contains_key(name));
    let present: Vec<String> = present.collect();
    host.inventory.devices.get_mut("md0").unwrap().underlying = present;
    host.read_all(3);
    host.layer("md0", md(members, degraded, action), 3);
}

const BOTH: [(&str, &str, Option<u32>); 2] =
    [("sda", "in_sync", Some(0)), ("sdb", "in_sync", Some(1))];

/// The mirror md0 on sda and sdb, mounted at /data.
fn mirror() -> TestHost {
    let mut host = TestHost::default();
    for (name, dev, serial) in [("sda", "8:0", "A"), ("sdb", "8:16", "B")] {
        plug(&mut host, name, dev, serial);
        member(&mut host, name, "linux_raid_member", "u-md");
    }
    let array = device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda", "sdb"]);
    let mut host = host.with(array).mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    set(&mut host, &BOTH, 0, "idle");
    host
}

#[test]
fn an_md_member_is_replaced_first_and_pulled_afterwards() {
    let mut host = mirror();
    let first = step(&host, "A");
    assert_eq!(first.kind, StepKind::Insert);
    assert!(first.text.contains("leave sda in"), "{}", first.text);
    assert!(first.text.contains("`mdadm /dev/md0 --fail /dev/disk/by-id/ata-A`"), "{}", first.text);
    plug(&mut host, "sdc", "8:32", "C");
    set(&mut host, &BOTH, 0, "idle");
    assert_eq!(shown(&host, "A"), typed("mdadm /dev/md0 --add /dev/disk/by-id/ata-C"));
    assert_eq!(step(&host, "A").replacement, Some(DriveId::new("C")));
    member(&mut host, "sdc", "linux_raid_member", "u-md");
    let spare = [BOTH[0], BOTH[1], ("sdc", "spare", None)];
    set(&mut host, &spare, 0, "idle");
    assert_eq!(
        shown(&host, "A"),
        typed("mdadm /dev/md0 --replace /dev/disk/by-id/ata-A --with /dev/disk/by-id/ata-C")
    );
    let filling =
        [("sda", "in_sync,want_replacement", Some(0)), BOTH[1], ("sdc", "replacement", Some(0))];
    set(&mut host, &filling, 0, "recover");
    let wait = step(&host, "A");
    assert_eq!(wait.kind, StepKind::Wait);
    assert!(wait.text.contains("50 % done"), "{}", wait.text);
    let filled = [("sda", "faulty", None), BOTH[1], ("sdc", "in_sync", Some(0))];
    set(&mut host, &filled, 0, "idle");
    assert_eq!(shown(&host, "A"), typed("mdadm /dev/md0 --remove /dev/disk/by-id/ata-A"));
    set(&mut host, &filled[1..], 0, "idle");
    let pull = step(&host, "A");
    assert_eq!(pull.kind, StepKind::Pull);
    assert!(pull.text.contains("Compare the serial on its label with A"), "{}", pull.text);
    host.pull("sda");
    host.read_all(5);
    assert_eq!(shown(&host, "A"), only(StepKind::Done));
}

#[test]
fn an_md_member_that_is_gone_is_taken_out_and_the_drive_in_its_place_is_added() {
    let mut host = mirror();
    host.inventory.drives[0].location.enclosure = Some("shelf".into());
    host.inventory.drives[0].location.slot = Some("Slot 03".into());
    set(&mut host, &BOTH, 0, "idle");
    host.pull("sda");
    set(&mut host, &[("sda", "faulty", None), BOTH[1]], 1, "idle");
    assert_eq!(shown(&host, "A"), typed("mdadm /dev/md0 --remove detached"));
    set(&mut host, &BOTH[1..], 1, "idle");
    let insert = step(&host, "A");
    assert_eq!(insert.kind, StepKind::Insert);
    assert!(insert.text.contains("slot 03 of enclosure shelf"), "{}", insert.text);
    // Of two empty drives it is the one in the same slot.
    plug(&mut host, "sdc", "8:32", "C");
    plug(&mut host, "sdd", "8:48", "D");
    let new = host.inventory.drives.iter_mut().find(|it| it.name == "sdd").unwrap();
    new.location.enclosure = Some("shelf".into());
    new.location.slot = Some("Slot 03".into());
    set(&mut host, &BOTH[1..], 1, "idle");
    assert_eq!(shown(&host, "A"), typed("mdadm /dev/md0 --add /dev/disk/by-id/ata-D"));
    set(&mut host, &[BOTH[1], ("sdd", "spare", Some(0))], 1, "recover");
    assert_eq!(shown(&host, "A"), only(StepKind::Wait));
    set(&mut host, &[BOTH[1], ("sdd", "in_sync", Some(0))], 0, "idle");
    assert_eq!(shown(&host, "A"), only(StepKind::Done));
}

#[test]
fn without_a_free_bay_an_md_member_is_taken_out_before_it_is_pulled() {
    let mut host = mirror();
    set(&mut host, &[("sda", "faulty", None), BOTH[1]], 1, "idle");
    assert_eq!(shown(&host, "A"), typed("mdadm /dev/md0 --remove /dev/disk/by-id/ata-A"));
    set(&mut host, &BOTH[1..], 1, "idle");
    assert_eq!(shown(&host, "A"), only(StepKind::Pull));
    // The one that is left is not sound.
    let subject = Subject::Drive(DriveId::new("B"));
    let level = (Severity::Bad, diskvitals_finding::Status::DataLoss);
    let finding = crate::assess::ActiveFinding { level, since: at(1) };
    let reason = diskvitals_finding::reason::Reason::PendingSectors;
    host.active.insert((subject, reason), finding);
    assert_eq!(shown(&host, "A"), only(StepKind::Insert));
}

#[test]
fn when_the_wrong_drive_is_pulled_it_goes_back_before_anything_else() {
    let mut host = mirror();
    plug(&mut host, "sdc", "8:32", "C");
    host.pull("sdb");
    // Before md itself has noticed.
    host.read_all(4);
    let wrong = step(&host, "A");
    assert_eq!(wrong.kind, StepKind::PutBack);
    assert!(wrong.text.starts_with("sdb (serial B"), "{}", wrong.text);
    set(&mut host, &BOTH[..1], 1, "idle");
    assert_eq!(shown(&host, "A"), only(StepKind::PutBack));
    // Another drive takes its place already.
    set(&mut host, &[BOTH[0], ("sdc", "spare", Some(1))], 1, "recover");
    assert_eq!(shown(&host, "A"), only(StepKind::Wait));
    set(&mut host, &BOTH[..1], 1, "idle");
    plug(&mut host, "sde", "8:64", "B");
    member(&mut host, "sde", "linux_raid_member", "u-md");
    set(&mut host, &BOTH[..1], 1, "idle");
    assert_eq!(shown(&host, "A"), typed("mdadm /dev/md0 --re-add /dev/disk/by-id/ata-B"));
    set(&mut host, &[BOTH[0], ("sde", "spare", Some(1))], 1, "recover");
    assert_eq!(shown(&host, "A"), only(StepKind::Wait));
    set(&mut host, &[BOTH[0], ("sde", "in_sync", Some(1))], 0, "idle");
    assert_eq!(shown(&host, "A"), typed("mdadm /dev/md0 --add /dev/disk/by-id/ata-C"));
}

#[test]
fn a_new_drive_that_holds_something_gets_no_command() {
    let mut host = mirror();
    plug(&mut host, "sdc", "8:32", "C");
    member(&mut host, "sdc", "zfs_member", "other");
    set(&mut host, &BOTH, 0, "idle");
    let unfit = step_with(&host, "A", Some("C"));
    assert_eq!(unfit.kind, StepKind::Unfit);
    assert!(unfit.text.contains("sdc holds"), "{}", unfit.text);
    // It is not taken for the new one by itself.
    assert_eq!(step(&host, "A").kind, StepKind::Insert);
    // Neither is one that has not been read, and never the old one.
    plug(&mut host, "sdd", "8:48", "D");
    host.inventory.signatures.remove("sdd");
    set(&mut host, &BOTH, 0, "idle");
    assert_eq!(step_with(&host, "A", Some("D")).kind, StepKind::Unfit);
    assert_eq!(step_with(&host, "A", Some("A")).kind, StepKind::Unfit);
    assert_eq!(step_with(&host, "A", Some("B")).kind, StepKind::Unfit);
}

#[test]
fn of_several_empty_drives_a_person_names_one() {
    let mut host = mirror();
    plug(&mut host, "sdc", "8:32", "C");
    plug(&mut host, "sdd", "8:48", "D");
    set(&mut host, &BOTH, 0, "idle");
    let which = step(&host, "A");
    assert_eq!(which.kind, StepKind::Insert);
    assert!(which.text.contains("--with NAME"), "{}", which.text);
    let named = step_with(&host, "A", Some("D"));
    assert_eq!(named.commands, ["mdadm /dev/md0 --add /dev/disk/by-id/ata-D"]);
}

#[test]
fn a_smaller_drive_and_other_sectors_are_said() {
    let mut host = mirror();
    plug(&mut host, "sdc", "8:32", "C");
    let new = host.inventory.drives.iter_mut().find(|it| it.name == "sdc").unwrap();
    (new.size_bytes, new.logical_block_size) = (new.size_bytes - 1024, 4096);
    set(&mut host, &BOTH, 0, "idle");
    let warnings = step(&host, "A").warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("smaller by 2 sectors"), "{warnings:?}");
    assert!(warnings[1].contains("4096"), "{warnings:?}");
}

#[test]
fn a_partition_is_made_through_a_file_and_then_added() {
    let mut host = TestHost::default();
    for (name, dev, serial) in [("sda", "8:0", "A"), ("sdb", "8:16", "B"), ("sdc", "8:32", "C")] {
        plug(&mut host, name, dev, serial);
    }
    let part = |name: &str, dev: &str, disk: &str, serial: &str| {
        let layer = Layer::Partition { number: 1, start_bytes: 1 << 20 };
        let mut part = device(name, dev, layer, &[disk]);
        part.links = vec![format!("/dev/disk/by-id/ata-{serial}-part1")];
        part
    };
    let mut host =
        host.with(part("sda1", "8:1", "sda", "A")).with(part("sdb1", "8:17", "sdb", "B"));
    for name in ["sda1", "sdb1"] {
        member(&mut host, name, "linux_raid_member", "u-md");
    }
    let array = device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda1", "sdb1"]);
    let mut host = host.with(array);
    let both = [("sda1", "in_sync", Some(0)), ("sdb1", "in_sync", Some(1))];
    set(&mut host, &both, 0, "idle");
    let (kind, commands) = shown(&host, "A");
    assert_eq!(kind, StepKind::Type);
    assert!(commands[0].starts_with("sfdisk --dump /dev/disk/by-id/ata-A "), "{commands:?}");
    assert_eq!(commands[1], "sfdisk /dev/disk/by-id/ata-C < /root/partitions");
    let mut host = host.with(part("sdc1", "8:33", "sdc", "C"));
    host.inventory.signatures.insert("sdc1".into(), Vec::new());
    set(&mut host, &both, 0, "idle");
    assert_eq!(shown(&host, "A"), typed("mdadm /dev/md0 --add /dev/disk/by-id/ata-C-part1"));
}

#[test]
fn a_state_that_is_not_read_is_never_done_and_never_a_pull() {
    let mut host = mirror();
    host.pull("sda");
    set(&mut host, &BOTH[1..], 1, "idle");
    let failed = Observation::failed(at(6), "no answer");
    host.apply(SourceUpdate::Layer { device: "md0".into(), state: failed }, 6);
    assert_eq!(shown(&host, "A"), only(StepKind::NotKnown));
    host.apply(SourceUpdate::Inventory(Observation::failed(at(7), "no")), 7);
    assert_eq!(shown(&host, "A"), only(StepKind::NotKnown));
    let mut host = mirror();
    host.apply(SourceUpdate::Inventory(Observation::failed(at(7), "no")), 7);
    assert_eq!(shown(&host, "A"), only(StepKind::NotKnown));
}

#[test]
fn a_drive_with_a_filesystem_of_its_own_is_copied_first() {
    let mut host = TestHost::default();
    plug(&mut host, "sda", "8:0", "A");
    let mut host = host.mounted("8:0", "/", "/srv", "xfs", "/dev/sda");
    host.read_all(1);
    assert_eq!(shown(&host, "A"), only(StepKind::Save));
}

/// A btrfs with raid1 on sda and sdb, mounted at a path with a blank.
fn btrfs() -> TestHost {
    let mut host = TestHost::default();
    for (name, dev, serial) in [("sda", "8:0", "A"), ("sdb", "8:16", "B")] {
        plug(&mut host, name, dev, serial);
        member(&mut host, name, "btrfs", "u-btrfs");
    }
    host.inventory.btrfs = vec![BtrfsFs {
        uuid: "u-btrfs".into(),
        devices: vec!["sda".into(), "sdb".into()],
        member_ids: vec![1, 2],
        data_profiles: vec!["raid1".into()],
        metadata_profiles: vec!["raid1".into()],
        ..BtrfsFs::default()
    }];
    let mut host = host.mounted("0:40", "/", "/srv/my data", "btrfs", "/dev/sda");
    host.read_all(1);
    host
}

#[test]
fn a_btrfs_device_is_replaced_while_it_is_in() {
    let mut host = btrfs();
    assert_eq!(step(&host, "A").kind, StepKind::Insert);
    plug(&mut host, "sdc", "8:32", "C");
    host.read_all(2);
    assert_eq!(
        shown(&host, "A"),
        typed("btrfs replace start /dev/disk/by-id/ata-A /dev/disk/by-id/ata-C '/srv/my data'")
    );
    host.inventory.btrfs[0].devices.push("sdc".into());
    host.read_all(3);
    assert_eq!(shown(&host, "A"), only(StepKind::Wait));
    host.inventory.btrfs[0].devices = vec!["sdb".into(), "sdc".into()];
    member(&mut host, "sdc", "btrfs", "u-btrfs");
    let old = host.inventory.devices.get_mut("sda").unwrap();
    (old.fs_type, old.fs_uuid) = (None, None);
    host.read_all(4);
    assert_eq!(shown(&host, "A"), only(StepKind::Pull));
}

#[test]
fn a_btrfs_device_that_is_gone_is_replaced_by_its_id_and_a_wrong_one_goes_back() {
    let mut host = btrfs();
    host.pull("sdb");
    let fs = &mut host.inventory.btrfs[0];
    fs.devices = vec!["sda".into()];
    fs.missing_devices = 1;
    fs.pulled = vec![PulledMember { name: "sdb".into(), drive: Some(DriveId::new("B")) }];
    host.read_all(2);
    assert_eq!(shown(&host, "A"), only(StepKind::PutBack));
    plug(&mut host, "sdc", "8:32", "C");
    host.inventory.btrfs[0].pulled.clear();
    host.inventory.btrfs[0].missing_ids = vec![2];
    host.read_all(3);
    assert_eq!(
        shown(&host, "B"),
        typed("btrfs replace start 2 /dev/disk/by-id/ata-C '/srv/my data'")
    );
}

fn leaf(path: &str, guid: u64, state: VdevState) -> Vdev {
    Vdev {
        name: path.into(),
        path: Some(path.into()),
        guid: Some(guid),
        state: Some(state),
        ..Vdev::default()
    }
}

fn pool(host: &mut TestHost, children: Vec<Vdev>, running: bool, seconds: i64) {
    let mirror = Vdev {
        name: "mirror-0".into(),
        children,
        state: Some(VdevState::Online),
        ..Vdev::default()
    };
    let scan = running.then_some(PoolScan {
        is_resilver: true,
        state: ScanState::Running,
        errors: 0,
        ended: None,
    });
    let status = PoolStatus { vdevs: vec![mirror], scan, ..PoolStatus::default() };
    let pool = ZfsPool { state: PoolState::Online, status: Some(status), ..ZfsPool::default() };
    host.read_all(seconds);
    host.layer("zfs:tank", LayerState::Zfs(pool), seconds);
}

#[test]
fn a_zfs_member_is_replaced_by_its_name_and_waits_for_its_pair() {
    let mut host = TestHost::default();
    for (name, dev, serial) in [("sda", "8:0", "A"), ("sdb", "8:16", "B"), ("sdc", "8:32", "C")] {
        plug(&mut host, name, dev, serial);
    }
    for name in ["sda", "sdb"] {
        member(&mut host, name, "zfs_member", "u-pool");
    }
    let layer = Layer::ZfsPool { name: "tank".into() };
    let mut host = host.with(device("zfs:tank", "0:0", layer, &["sda", "sdb"]));
    let a = || leaf("/dev/disk/by-id/ata-A", 11, VdevState::Online);
    let b = || leaf("/dev/disk/by-id/ata-B", 12, VdevState::Online);
    pool(&mut host, vec![a(), b()], false, 1);
    assert_eq!(
        shown(&host, "A"),
        typed("zpool replace tank /dev/disk/by-id/ata-A /dev/disk/by-id/ata-C")
    );
    // `zpool` may call it by a name that udev does not know: its label has the GUID.
    host.inventory.devices.get_mut("sda").unwrap().fs_uuid_sub = Some("11".into());
    let named = leaf("/dev/disk/by-vdev/bay0", 11, VdevState::Online);
    pool(&mut host, vec![named, b()], false, 1);
    assert_eq!(
        shown(&host, "A"),
        typed("zpool replace tank /dev/disk/by-vdev/bay0 /dev/disk/by-id/ata-C")
    );
    host.inventory.devices.get_mut("sda").unwrap().fs_uuid_sub = None;
    let new = leaf("/dev/disk/by-id/ata-C", 13, VdevState::Online);
    let pair =
        Vdev { name: "replacing-0".into(), children: vec![a(), new.clone()], ..Vdev::default() };
    pool(&mut host, vec![pair.clone(), b()], true, 2);
    assert_eq!(shown(&host, "A"), only(StepKind::Wait));
    pool(&mut host, vec![pair, b()], false, 3);
    assert_eq!(shown(&host, "A"), only(StepKind::Wait));
    // Gone without a replacement: by its number, which no other drive has.
    host.pull("sda");
    let lost = leaf("/dev/disk/by-id/ata-A", 11, VdevState::Unavail);
    pool(&mut host, vec![lost.clone(), b()], false, 4);
    // The scan after that answer of the tool: the new one is no member any more.
    pool(&mut host, vec![lost, b()], false, 5);
    assert_eq!(shown(&host, "A"), typed("zpool replace tank 11 /dev/disk/by-id/ata-C"));
    pool(&mut host, vec![new, b()], false, 6);
    assert_eq!(shown(&host, "A"), only(StepKind::Done));
}

/// The mirrored volume vg/home on sda and sdb.
fn lvm(health: &str) -> TestHost {
    let mut host = TestHost::default();
    for (name, dev, serial) in [("sda", "8:0", "A"), ("sdb", "8:16", "B")] {
        plug(&mut host, name, dev, serial);
        member(&mut host, name, "LVM2_member", serial);
    }
    let leg = |name: &str, dev: &str, at: u32, pv: &str| {
        dm(name, dev, &format!("vg-home_rimage_{at}"), "LVM-x", &[pv])
    };
    let mut raid = dm("dm-2", "253:2", "vg-home", "LVM-y", &["dm-0", "dm-1"]);
    if let Layer::Dm { volume_group, logical_volume, .. } = &mut raid.layer {
        (*volume_group, *logical_volume) = (Some("vg".into()), Some("home".into()));
    }
    let host = host.with(leg("dm-0", "253:0", 0, "sda")).with(leg("dm-1", "253:1", 1, "sdb"));
    let mut host = host.with(raid).mounted("253:2", "/", "/home", "ext4", "/dev/mapper/vg-home");
    read_lvm(&mut host, health, 1);
    host
}

fn read_lvm(host: &mut TestHost, health: &str, seconds: i64) {
    host.read_all(seconds);
    let raid = DmRaid {
        level: "raid1".into(),
        health: health.into(),
        sync_action: Some("idle".into()),
        synced: Some((10, 10)),
        ..DmRaid::default()
    };
    host.layer("dm-2", LayerState::DmRaid(raid), seconds);
    for leg in ["dm-0", "dm-1"] {
        host.layer(leg, LayerState::Plain, seconds);
    }
}

#[test]
fn an_lvm_mirror_is_moved_to_a_new_physical_volume() {
    let mut host = lvm("AA");
    assert_eq!(step(&host, "A").kind, StepKind::Insert);
    plug(&mut host, "sdc", "8:32", "C");
    read_lvm(&mut host, "AA", 2);
    assert_eq!(shown(&host, "A"), typed("pvcreate /dev/disk/by-id/ata-C"));
    member(&mut host, "sdc", "LVM2_member", "C");
    read_lvm(&mut host, "AA", 3);
    let (kind, commands) =
        (step_with(&host, "A", Some("C")).kind, step_with(&host, "A", Some("C")).commands);
    assert_eq!(kind, StepKind::Type);
    assert_eq!(
        commands,
        [
            "vgextend vg /dev/disk/by-id/ata-C",
            "lvconvert --replace /dev/disk/by-id/ata-A vg/home /dev/disk/by-id/ata-C"
        ]
    );
}

/// What LVM itself says of it comes later.
#[test]
fn a_neighbor_that_goes_while_the_lamp_is_lit_was_pulled_by_mistake() {
    let mut host = lvm("AA");
    host.pull("sdb");
    read_lvm(&mut host, "AA", 4);
    assert_eq!(step(&host, "A").kind, StepKind::Insert);
    let place = LampPlace::Vmd { slot: "1".into() };
    let lamp = Arc::new(LampOrder { by: String::new(), since: at(2), place });
    host.facts.lamps = Arc::new([(DriveId::new("A"), lamp)].into());
    assert_eq!(shown(&host, "A"), only(StepKind::PutBack));
}

#[test]
fn ceph_and_raid_controllers_decide_themselves() {
    let mut host = TestHost::default();
    plug(&mut host, "sda", "8:0", "A");
    host.read_all(1);
    let known = host.facts.drives.get_mut(&DriveId::new("A")).unwrap();
    known.member_of = vec!["osd.3 of Ceph cluster f".to_owned()];
    assert_eq!(shown(&host, "A"), typed("ceph osd ok-to-stop 3"));
    let known = host.facts.drives.get_mut(&DriveId::new("A")).unwrap();
    known.facts.location.raid_controller = Some("megaraid host0".to_owned());
    assert_eq!(shown(&host, "A"), only(StepKind::Insert));
}

#[test]
fn a_name_is_one_word_of_the_shell() {
    assert_eq!(quoted("/dev/disk/by-id/ata-WDC_WD40-1:0"), "/dev/disk/by-id/ata-WDC_WD40-1:0");
    assert_eq!(quoted("/srv/it's; rm -rf $HOME"), r"'/srv/it'\''s; rm -rf $HOME'");
    assert_eq!(quoted(""), "''");
}

/// Also what no case above prints.
#[test]
fn no_text_of_this_module_has_a_word_that_destroys() {
    let texts = [
        include_str!("../replacement.rs"),
        include_str!("btrfs.rs"),
        include_str!("fitness.rs"),
        include_str!("lvm.rs"),
        include_str!("md.rs"),
        include_str!("outside.rs"),
        include_str!("put_back.rs"),
        include_str!("zfs.rs"),
    ];
    for text in texts {
        for word in NEVER {
            assert!(!text.contains(word), "{word}");
        }
    }
}
