use crate::block::{Layer, LayerState};
use crate::facts::LayerFacts;
use crate::fixture::*;
use crate::graph::excluded_mounts;
use crate::policy::Exclusion;
use crate::snapshot::UserMounts;
use crate::stack::MdState;
use crate::volume::{Impact, MountRole, Stack};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;

const K: &str = "/var/lib/kubelet";

fn md(name: &str, level: &str, below: &[&str]) -> crate::block::BlockDevice {
    device(name, "9:0", Layer::Md { level: Some(level.into()) }, below)
}

fn part(name: &str, dev: &str, disk: &str) -> crate::block::BlockDevice {
    device(name, dev, Layer::Partition { number: 1, start_bytes: 1 << 20 }, &[disk])
}

fn impact(stack: &Stack, lost: &[&str]) -> Impact {
    stack.impact(&|id| lost.iter().any(|serial| DriveId::new(serial) == *id))
}

fn two_disks() -> TestHost {
    TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B")
}

#[test]
fn a_mounted_partition_is_a_volume_by_its_uuid_and_stands_on_its_drive() {
    let host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(part("sda1", "8:1", "sda"))
        .uuid("sda1", "u-1")
        .mounted("8:1", "/", "/data", "ext4", "/dev/sda1");
    let volumes = host.volumes();
    assert_eq!(volumes.len(), 1);
    assert_eq!(volumes[0].id.as_str(), "fs:u-1");
    assert_eq!(volumes[0].devices, ["sda1", "sda"]);
    assert_eq!(volumes[0].drive_ids, [DriveId::new("A")]);
    assert_eq!(volumes[0].stack, Stack::Drive(DriveId::new("A")));
}

#[test]
fn bind_mounts_are_further_mounts_of_one_volume() {
    let host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/sub", "/a", "ext4", "/dev/sda")
        .mounted("8:0", "/", "/mnt/data", "ext4", "/dev/sda");
    let volumes = host.volumes();
    assert_eq!(volumes.len(), 1);
    assert_eq!(volumes[0].id.as_str(), "mnt:/mnt/data");
    assert_eq!(volumes[0].mounts.len(), 2);
}

#[test]
fn clones_that_share_a_uuid_are_named_by_their_mount_points() {
    let host = two_disks()
        .uuid("sda", "same")
        .uuid("sdb", "same")
        .mounted("8:0", "/", "/a", "xfs", "/dev/sda")
        .mounted("8:16", "/", "/b", "xfs", "/dev/sdb");
    let ids: Vec<String> = host.volumes().iter().map(|volume| volume.id.to_string()).collect();
    assert_eq!(ids, ["mnt:/a", "mnt:/b"]);
}

#[test]
fn pseudo_filesystems_images_and_ignored_mounts_are_no_volumes() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("0:5", "/", "/dev", "devtmpfs", "devtmpfs")
        .mounted("0:6", "/", "/run", "tmpfs", "tmpfs")
        .mounted("0:7", "/", "/", "overlay", "overlay")
        .mounted("7:1", "/", "/snap/x", "squashfs", "/dev/loop1")
        .mounted("8:0", "/", "/scratch/one", "ext4", "/dev/sda");
    assert_eq!(host.volumes().len(), 1);
    host.settings.ignore_mounts = vec!["/scratch/*".into()];
    assert_eq!(host.volumes().len(), 0);
}

#[test]
fn a_fuse_filesystem_is_a_volume_where_the_configuration_admits_it() {
    let mut host = TestHost::default()
        .mounted("0:40", "/", "/pool", "fuse.mergerfs", "a:b")
        .mounted("0:41", "/", "/home/u/far", "fuse.sshfs", "u@host:")
        .mounted("0:42", "/", "/run", "tmpfs", "tmpfs");
    let excluded = |host: &TestHost| -> Vec<(String, Exclusion)> {
        let table = host.mounts.mounts.as_slice();
        excluded_mounts(table, &host.settings)
            .listed
            .into_iter()
            .map(|(path, (_, why))| (path.to_string(), why))
            .collect()
    };
    assert_eq!(host.volumes().len(), 0);
    assert_eq!(
        excluded(&host),
        [("/home/u/far".to_owned(), Exclusion::Type), ("/pool".to_owned(), Exclusion::Type)]
    );
    host.settings.admit_mounts = vec!["/pool".into(), "/home/*/far".into()];
    let volumes = host.volumes();
    let remote: Vec<(String, bool)> =
        volumes.iter().map(|volume| (volume.id.to_string(), volume.remote)).collect();
    assert_eq!(remote, [("mnt:/home/u/far".to_owned(), true), ("mnt:/pool".to_owned(), false)]);
    assert!(volumes.iter().all(|volume| volume.device.is_none() && !volume.device_gone));
    host.settings.ignore_mounts = vec!["/pool".into()];
    assert_eq!(excluded(&host), [("/pool".to_owned(), Exclusion::IgnoredMount)]);
}

#[test]
fn a_users_fuse_mount_is_a_volume_only_where_the_configuration_admits_it() {
    let mut host = TestHost::default()
        .user_mounted(4001, "0:40", "/home/u/far", "fuse.s3fs")
        .user_mounted(0, "0:41", "/far", "fuse.s3fs");
    let ids = |host: &TestHost| -> Vec<String> {
        let volumes = host.volumes();
        volumes.iter().map(|it| it.id.to_string()).collect()
    };
    assert_eq!(ids(&host), ["mnt:/far"]);
    let excluded = excluded_mounts(&host.mounts.mounts, &host.settings);
    let of_user = ("fuse.s3fs".to_owned(), Exclusion::User(4001));
    assert_eq!(excluded.listed, [("/home/u/far".into(), of_user)].into());
    host.settings.admit_mounts = vec!["/home/u/far".into()];
    assert_eq!(ids(&host), ["mnt:/far", "mnt:/home/u/far"]);
    assert!(host.volumes().iter().all(|volume| volume.remote));
}

#[test]
fn mounts_of_one_user_are_limited_and_hide_no_other_mount() {
    let mut host = TestHost::default();
    for number in 0..1100 {
        host = host.user_mounted(4001, "0:40", &format!("/home/u/{number}"), "fuse.s3fs");
    }
    let host = host.user_mounted(4002, "0:41", "/home/v", "fuse.sshfs").mounted(
        "0:42",
        "/",
        "/pool",
        "fuse.mergerfs",
        "a:b",
    );
    let excluded = excluded_mounts(&host.mounts.mounts, &host.settings);
    let why = |path: &str| Some(excluded.listed.get(&path.into())?.1);
    assert_eq!(why("/pool"), Some(Exclusion::Type));
    assert_eq!(why("/home/v"), Some(Exclusion::User(4002)));
    assert_eq!(why("/home/u/63"), Some(Exclusion::User(4001)));
    assert_eq!(why("/home/u/64"), None);
    let of = |listed, not_listed| UserMounts { listed, not_listed };
    assert_eq!(excluded.of_users, [(4001, of(64, 1036)), (4002, of(1, 0))].into());
}

#[test]
fn a_network_filesystem_is_remote_and_has_no_device() {
    let host = TestHost::default().mounted("0:50", "/", "/home", "nfs4", "server:/home").mounted(
        "0:50",
        "/",
        "/opt",
        "nfs4",
        "server:/opt",
    );
    let volumes = host.volumes();
    assert_eq!(volumes.len(), 2);
    assert!(
        volumes
            .iter()
            .all(|volume| volume.remote && volume.device.is_none() && !volume.device_gone)
    );
}

#[test]
fn a_csi_volume_has_its_mounts_by_role_and_takes_the_filesystem() {
    let staging = format!("{K}/plugins/kubernetes.io/csi/d/x/globalmount");
    let target = format!("{K}/pods/u1/volumes/kubernetes.io~csi/pv-h/mount");
    let host = TestHost::default()
        .disk("sda", "8:0", "A")
        .uuid("sda", "u-1")
        .mounted("8:0", "/", &staging, "ext4", "/dev/sda")
        .mounted("8:0", "/", &target, "ext4", "/dev/sda")
        .mounted("8:0", "/dir", "/srv/bind", "ext4", "/dev/sda")
        .mounted(
            "8:0",
            "/dir",
            &format!("{K}/pods/u1/volume-subpaths/pv-h/web/0"),
            "ext4",
            "/dev/sda",
        )
        .csi("d", "h", Some(&staging), &[("u1", &target)]);
    let volumes = host.volumes();
    assert_eq!(volumes.len(), 1);
    let volume = &volumes[0];
    assert_eq!(volume.id.as_str(), "csi:d/h");
    let roles: Vec<MountRole> = volume.mounts.iter().map(|mount| mount.role).collect();
    assert_eq!(roles, [MountRole::Staging, MountRole::Pod, MountRole::Host, MountRole::Pod]);
    assert_eq!(volume.pods.len(), 1);
    assert_eq!(volume.pods[0].name.as_ref().map(|name| name.name.as_str()), Some("pod-u1"));
    assert!(volume.missing_mounts.is_empty());
}

#[test]
fn a_recorded_mount_that_is_not_mounted_is_missing() {
    let target = format!("{K}/pods/u1/volumes/kubernetes.io~csi/pv-h/mount");
    let host = TestHost::default().csi("d", "h", Some("/staging"), &[("u1", &target)]).csi(
        "no-stage",
        "i",
        None,
        &[("u1", "/target")],
    );
    let volumes = host.volumes();
    assert_eq!(
        volumes[0].missing_mounts.iter().map(|missing| missing.role).collect::<Vec<_>>(),
        [MountRole::Staging, MountRole::Pod]
    );
    assert_eq!(
        volumes[1].missing_mounts.iter().map(|missing| missing.role).collect::<Vec<_>>(),
        [MountRole::Pod]
    );
}

#[test]
fn two_volumes_in_folders_of_one_filesystem_are_two_and_the_hosts_stays_one() {
    let host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/", "ext4", "/dev/sda")
        .mounted("8:0", "/data/1", "/t1", "ext4", "/dev/sda")
        .mounted("8:0", "/data/2", "/t2", "ext4", "/dev/sda")
        .csi("dir", "1", None, &[("u1", "/t1")])
        .csi("dir", "2", None, &[("u2", "/t2")]);
    let volumes = host.volumes();
    let ids: Vec<&str> = volumes.iter().map(|volume| volume.id.as_str()).collect();
    assert_eq!(ids, ["csi:dir/1", "csi:dir/2", "mnt:/"]);
    assert_eq!(volumes[2].mounts.len(), 1);
    assert!(volumes.iter().all(|volume| volume.drive_ids == [DriveId::new("A")]));
}

#[test]
fn a_local_volumes_bind_mount_names_the_pod() {
    let host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/mnt/disks/1", "xfs", "/dev/sda")
        .mounted(
            "8:0",
            "/",
            &format!("{K}/pods/u7/volumes/kubernetes.io~local-volume/local-pv"),
            "xfs",
            "/dev/sda",
        );
    let volumes = host.volumes();
    assert_eq!(volumes.len(), 1);
    assert_eq!(volumes[0].id.as_str(), "mnt:/mnt/disks/1");
    assert_eq!(
        (volumes[0].pods[0].uid.as_str(), volumes[0].pods[0].volume_name.as_str()),
        ("u7", "local-pv")
    );
}

#[test]
fn a_raw_block_volume_is_the_device_whose_node_is_mounted() {
    let publish = format!("{K}/plugins/kubernetes.io/csi/volumeDevices/publish/pv-h/u1");
    let mut host = TestHost::default()
        .disk("sdb", "8:16", "B")
        .mounted("0:5", "/sdb", &publish, "devtmpfs", "devtmpfs")
        .csi("d", "h", Some("/st"), &[("u1", &publish)]);
    host.kubelet.volumes[0].block = true;
    let volumes = host.volumes();
    assert_eq!(volumes[0].device.as_deref(), Some("sdb"));
    assert_eq!(volumes[0].drive_ids, [DriveId::new("B")]);
    assert!(volumes[0].missing_mounts.is_empty() && volumes[0].fs_type.is_none());
}

#[test]
fn before_the_kubelet_records_are_read_a_csi_mount_is_not_a_host_volume() {
    let target = format!("{K}/pods/u1/volumes/kubernetes.io~csi/pv-h/mount");
    let host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", &target, "ext4", "/dev/sda");
    let none = super::volumes(
        super::GraphInput {
            inventory: &host.inventory,
            mounts: &host.mounts,
            btrfs: &std::collections::BTreeMap::new(),
            kubelet: None,
            layers: &host.facts.layers,
            provision: None,
        },
        &host.settings,
    );
    assert!(none.is_empty());
    assert_eq!(host.volumes().len(), 1, "a mount whose record is damaged is still told of");
}

#[test]
fn a_mirror_covers_one_leg_and_a_degraded_one_none() {
    let mut host = two_disks()
        .with(md("md0", "raid1", &["sda", "sdb"]))
        .mounted("9:0", "/", "/d", "ext4", "/dev/md0");
    let stack = host.volumes().remove(0).stack;
    assert_eq!(
        (impact(&stack, &["A"]), impact(&stack, &["A", "B"])),
        (Impact::Covered, Impact::Exposed)
    );
    let state = MdState {
        level: "raid1".into(),
        raid_disks: 2,
        degraded: 1,
        array_state: "clean".into(),
        members: vec![md_member("sda", "in_sync", Some(0)), md_member("sdb", "spare", Some(1))],
        ..MdState::default()
    };
    host.facts.layers.insert(
        "md0".into(),
        LayerFacts {
            state: Observation::ok(at(0), LayerState::Md(state)).into(),
            ..LayerFacts::default()
        },
    );
    let stack = host.volumes().remove(0).stack;
    assert_eq!(
        (impact(&stack, &["A"]), impact(&stack, &["B"])),
        (Impact::Exposed, Impact::Covered),
        "the one being filled is no copy yet"
    );
}

#[test]
fn a_multipath_device_is_one_drive() {
    let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "A").with(dm(
        "dm-0",
        "253:0",
        "mpatha",
        "mpath-3600",
        &["sda", "sdb"],
    ));
    host.inventory.drives.pop();
    let host = host.mounted("253:0", "/", "/d", "xfs", "/dev/mapper/mpatha");
    assert_eq!(host.volumes()[0].stack, Stack::Drive(DriveId::new("A")));
}

#[test]
fn lvms_raid_is_redundant_by_leg_and_a_thin_volume_needs_its_whole_pool() {
    let host = two_disks()
        .with(dm("dm-1", "253:1", "vg-lv_rimage_0", "LVM-a", &["sda"]))
        .with(dm("dm-2", "253:2", "vg-lv_rmeta_0", "LVM-b", &["sda"]))
        .with(dm("dm-3", "253:3", "vg-lv_rimage_1", "LVM-c", &["sdb"]))
        .with(dm("dm-4", "253:4", "vg-lv_rmeta_1", "LVM-d", &["sdb"]))
        .with(dm("dm-5", "253:5", "vg-lv", "LVM-e", &["dm-1", "dm-2", "dm-3", "dm-4"]))
        .with(dm("dm-6", "253:6", "vg-pool_tmeta", "LVM-f", &["sda"]))
        .with(dm("dm-7", "253:7", "vg-pool_tdata", "LVM-g", &["sdb"]))
        .with(dm("dm-8", "253:8", "vg-pool-tpool", "LVM-h-tpool", &["dm-6", "dm-7"]))
        .with(dm("dm-9", "253:9", "vg-thin", "LVM-i", &["dm-8"]))
        .mounted("253:5", "/", "/raid", "xfs", "/dev/mapper/vg-lv")
        .mounted("253:9", "/", "/thin", "xfs", "/dev/mapper/vg-thin");
    let volumes = host.volumes();
    // A raid0 has such legs too.
    assert_eq!(impact(&volumes[0].stack, &["A"]), Impact::Unknown);
    assert_eq!(impact(&volumes[1].stack, &["A"]), Impact::Exposed);
}

#[test]
fn btrfs_is_found_by_its_source_and_judged_by_its_weakest_profile() {
    let mut host = two_disks()
        .mounted("0:40", "/@", "/", "btrfs", "/dev/sdb")
        .mounted("0:40", "/@home", "/home", "btrfs", "/dev/sdb");
    let fs = btrfs("b-1", &["sda", "sdb"], "raid1");
    host.inventory.btrfs.push(fs);
    let volumes = host.volumes();
    assert_eq!(volumes.len(), 1);
    assert_eq!(impact(&volumes[0].stack, &["A"]), Impact::Covered);
    host.inventory.btrfs[0].data_profiles.push("single".into());
    assert_eq!(impact(&host.volumes()[0].stack, &["A"]), Impact::Exposed);
}

#[test]
fn a_loop_stands_on_the_filesystem_that_holds_its_file() {
    let host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(device(
            "loop0",
            "7:0",
            Layer::Loop { backing_file: Some("/images/disk.img (deleted)".into()) },
            &[],
        ))
        .mounted("8:0", "/", "/images", "ext4", "/dev/sda")
        .mounted("7:0", "/", "/inner", "ext4", "/dev/loop0");
    let volumes = host.volumes();
    assert_eq!(volumes[1].id.as_str(), "mnt:/inner");
    assert_eq!(volumes[1].devices, ["loop0", "sda"]);
    assert_eq!(volumes[1].stack, Stack::Drive(DriveId::new("A")));
}

#[test]
fn cyclic_layers_terminate() {
    let host = TestHost::default()
        .with(device("loop0", "7:0", Layer::Loop { backing_file: Some("/a/f".into()) }, &[]))
        .with(dm("dm-0", "253:0", "x", "", &["dm-1", "dm-0"]))
        .with(dm("dm-1", "253:1", "y", "", &["dm-0"]))
        .mounted("7:0", "/", "/a", "ext4", "/dev/loop0")
        .mounted("253:0", "/", "/b", "ext4", "/dev/mapper/x");
    let volumes = host.volumes();
    assert!(
        volumes.iter().all(|volume| volume.stack == Stack::Nothing && volume.drive_ids.is_empty())
    );
}

#[test]
fn a_graph_of_diamonds_stays_small() {
    let mut host = two_disks();
    let mut below = vec!["sda".to_owned(), "sdb".to_owned()];
    for level in 0..15 {
        let names: Vec<&str> = below.iter().map(String::as_str).collect();
        let pair: Vec<String> = (0..2).map(|side| format!("dm-{}", level * 2 + side)).collect();
        for (side, name) in pair.iter().enumerate() {
            let dev = format!("253:{}", level * 2 + side);
            let mut sorted = names.clone();
            sorted.rotate_left(side);
            host = host.with(dm(name, &dev, name, "", &sorted));
        }
        below = pair;
    }
    let host = host.mounted("253:28", "/", "/d", "ext4", "/dev/mapper/dm-28");
    assert_eq!(impact(&host.volumes()[0].stack, &["B"]), Impact::Exposed);
}

#[test]
fn a_mount_with_an_unlisted_device_number_has_lost_its_device() {
    let host = TestHost::default().mounted("8:33", "/", "/d", "ext4", "/dev/sdc1");
    let volumes = host.volumes();
    assert!(volumes[0].device_gone);
    assert_eq!(volumes[0].device.as_deref(), Some("sdc1"));
}
