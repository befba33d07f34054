use super::*;
use crate::fixture::*;
use crate::signature::ZfsLabel;

fn part(name: &str, kind: Option<&str>) -> BlockDevice {
    let layer = Layer::Partition { number: 1, start_bytes: 1 << 20 };
    let mut part = device(name, "8:1", layer, &["sda"]);
    part.fs_type = kind.map(str::to_owned);
    part
}

fn plain(kind: &str) -> Signature {
    Signature { fs_type: kind.into(), osd: None, zfs: None }
}

/// What sda is a member of.
fn of_sda(host: &TestHost) -> Vec<String> {
    let found = by_drive(&host.inventory);
    found.get(&DriveId::new("A")).into_iter().flatten().cloned().collect()
}

fn with(kind: &str) -> TestHost {
    TestHost::default().disk("sda", "8:0", "A").with(part("sda1", Some(kind)))
}

#[test]
fn what_nothing_here_uses_is_named_by_its_signature() {
    for (kind, expected) in [
        ("ceph_bluestore", "a Ceph OSD"),
        ("bcachefs", "bcachefs"),
        ("drbd", "DRBD, not configured here"),
        ("LVM2_member", "a volume group of which nothing here is active"),
        ("linux_raid_member", "md array, not assembled here"),
        ("zfs_member", "a ZFS pool that its label does not name"),
        ("swap", "swap, not active"),
        ("swsuspend", "a hibernated system"),
        ("isw_raid_member", "firmware RAID (isw)"),
        ("ddf_raid_member", "firmware RAID (ddf)"),
        ("crypto_LUKS", "LUKS, not open"),
        ("vdo", "vdo"),
        ("stratis", "stratis"),
    ] {
        assert_eq!(of_sda(&with(kind)), [expected], "{kind}");
    }
    for kind in ["ext4", "xfs", "btrfs", "vfat", "squashfs", "mpath_member"] {
        assert!(of_sda(&with(kind)).is_empty(), "{kind}");
    }
}

#[test]
fn what_stands_on_a_member_names_it() {
    let md = Layer::Md { level: Some("raid1".into()) };
    let mut lv = dm("dm-0", "253:0", "vg0-data", "LVM-x", &["sda1"]);
    if let Layer::Dm { volume_group, .. } = &mut lv.layer {
        *volume_group = Some("vg0".into());
    }
    let pool = Layer::ZfsPool { name: "tank".into() };
    for (kind, above, expected) in [
        ("linux_raid_member", device("md127", "9:127", md, &["sda1"]), Some("md127")),
        ("LVM2_member", lv, Some("volume group vg0")),
        ("zfs_member", device("zfs:tank", "0:0", pool, &["sda1"]), Some("ZFS pool tank")),
        ("drbd", device("drbd3", "147:3", Layer::Other, &["sda1"]), Some("drbd3")),
        ("crypto_LUKS", dm("dm-1", "253:1", "luks-x", "CRYPT-LUKS2-x", &["sda1"]), None),
    ] {
        let found = of_sda(&with(kind).with(above));
        assert_eq!(found, Vec::from_iter(expected), "{kind}");
    }
    let mut swap = with("swap");
    swap.inventory.swaps.insert("sda1".into(), "/dev/sda1".into());
    assert_eq!(of_sda(&swap), ["swap"]);
}

#[test]
fn a_signature_that_a_partition_has_is_not_the_disks_and_what_a_guest_has_not_the_drives() {
    let pool = Layer::ZfsPool { name: "tank".into() };
    let mut host = with("zfs_member").with(device("zfs:tank", "0:0", pool, &["sda1"]));
    host.inventory.devices.get_mut("sda").unwrap().fs_type = Some("zfs_member".into());
    let zvol = Layer::Zvol { dataset: Some("tank/vm".into()) };
    host = host.with(device("zd0", "230:0", zvol, &["zfs:tank"]));
    let mut guest = part("zd0p1", Some("LVM2_member"));
    guest.underlying = vec!["zd0".into()];
    host = host.with(guest);
    let mut lv = dm("dm-0", "253:0", "vg0-vm", "LVM-x", &["sda1"]);
    lv.fs_type = Some("swap".into());
    assert_eq!(of_sda(&host.with(lv)), ["ZFS pool tank"]);
}

#[test]
fn a_zfs_label_of_a_pool_that_is_not_imported_has_its_state() {
    for (state, expected) in [
        (LabelState::Active, "ZFS pool tank, not imported here"),
        (LabelState::Exported, "exported ZFS pool tank"),
        (LabelState::Destroyed, "destroyed ZFS pool tank"),
        (LabelState::Spare, "a ZFS pool, as its spare"),
        (LabelState::L2cache, "a ZFS pool, as its L2ARC"),
    ] {
        let mut host = TestHost::default().disk("sda", "8:0", "A").with(part("sda1", None));
        let zfs = Some(ZfsLabel { pool: Some("tank".into()), state });
        let label = Signature { zfs, ..plain("zfs_member") };
        host.inventory.signatures.insert("sda1".into(), vec![label]);
        assert_eq!(of_sda(&host), [expected]);
    }
}

#[test]
fn two_signatures_are_both_named() {
    let mut host = TestHost::default().disk("sda", "8:0", "A").with(part("sda1", None));
    let found = vec![plain("crypto_LUKS"), plain("drbd"), plain("ext4")];
    host.inventory.signatures.insert("sda1".into(), found);
    let named = of_sda(&host);
    let expected = ["DRBD, not configured here", "LUKS, not open"];
    assert_eq!(named, expected.map(|name| format!("{name} (one of 3 signatures)")));
}

#[test]
fn the_db_of_an_osd_has_the_number_and_the_cluster_of_its_main_device() {
    let lv = |name: &str, dev: &str, below: &str| dm(name, dev, name, "LVM-x", &[below]);
    let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B");
    host = host.with(lv("dm-0", "253:0", "sda")).with(lv("dm-1", "253:1", "sdb"));
    for lv in ["dm-0", "dm-1"] {
        host.inventory.devices.get_mut(lv).unwrap().fs_type = Some("ceph_bluestore".into());
    }
    let mut label = |device: &str, role: &str, id: Option<&str>| {
        let osd = OsdLabel {
            uuid: "u".into(),
            role: role.into(),
            id: id.map(str::to_owned),
            cluster: id.map(|_| "fsid".into()),
        };
        let found = vec![Signature { osd: Some(osd), ..plain("ceph_bluestore") }];
        host.inventory.signatures.insert(device.into(), found);
    };
    label("dm-1", "bluefs db", None);
    label("dm-0", "main", Some("7"));
    assert_eq!(of_sda(&host), ["osd.7 of Ceph cluster fsid"]);
    let of_sdb = by_drive(&host.inventory).remove(&DriveId::new("B")).unwrap();
    assert_eq!(Vec::from_iter(of_sdb), ["osd.7 (DB) of Ceph cluster fsid"]);
    host.inventory.signatures.remove("dm-0");
    let of_sdb = by_drive(&host.inventory).remove(&DriveId::new("B")).unwrap();
    assert_eq!(Vec::from_iter(of_sdb), ["Ceph OSD u (DB)"]);
}
