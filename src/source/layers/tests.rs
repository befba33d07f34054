use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use diskvitals_model::stack::{BlockCache, MdMember, MdState, PoolState};

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("exec")).unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = HostRoot::new(dir.path());
    (dir, root)
}

const MD: Layer = Layer::Md { level: None };

#[test]
fn a_rebuilding_mirror_reports_members_and_progress() {
    let (dir, root) = tree(&[
        ("sys/block/md0/md/level", "raid1\n"),
        ("sys/block/md0/md/raid_disks", "2\n"),
        ("sys/block/md0/md/degraded", "1\n"),
        ("sys/block/md0/md/array_state", "active\n"),
        ("sys/block/md0/md/sync_action", "recover\n"),
        ("sys/block/md0/md/sync_completed", "1024 / 4096\n"),
        ("sys/block/md0/md/sync_speed", "95000\n"),
        ("sys/block/md0/md/last_sync_action", "recover\n"),
        ("sys/block/md0/md/mismatch_cnt", "0\n"),
        ("sys/block/md0/md/dev-sdb1/state", "spare\n"),
        ("sys/block/md0/md/dev-sdb1/slot", "1\n"),
        ("sys/block/md0/md/dev-sdb1/errors", "0\n"),
        ("sys/block/md0/md/dev-sda1/state", "faulty\n"),
        ("sys/block/md0/md/dev-sda1/slot", "none\n"),
        ("sys/block/md0/md/dev-sda1/errors", "7\n"),
    ]);
    symlink("../../../sdb/sdb1", dir.path().join("sys/block/md0/md/dev-sdb1/block")).unwrap();
    let member = |device: &str, state: &str, slot, errors| MdMember {
        device: device.into(),
        state: state.into(),
        slot,
        errors,
        bad_blocks: Vec::new(),
    };
    let expected = MdState {
        level: "raid1".into(),
        raid_disks: 2,
        degraded: 1,
        array_state: "active".into(),
        sync_action: Some("recover".into()),
        sync_completed: Some((1024, 4096)),
        sync_speed: Some(95000),
        last_sync_action: Some("recover".into()),
        mismatch_cnt: Some(0),
        members: vec![member("sdb1", "spare", Some(1), 0), member("sda1", "faulty", None, 7)],
        ..MdState::default()
    };
    assert_eq!(read(&root, "md0", &MD).unwrap(), LayerState::Md(expected));
}

#[test]
fn the_layout_a_pending_resync_and_ranges_that_a_member_lacks_are_read() {
    let (_dir, root) = tree(&[
        ("sys/block/md0/md/level", "raid10\n"),
        ("sys/block/md0/md/layout", "258\n"),
        ("sys/block/md0/md/raid_disks", "2\n"),
        ("sys/block/md0/md/degraded", "0\n"),
        ("sys/block/md0/md/array_state", "read-auto\n"),
        ("sys/block/md0/md/sync_action", "idle\n"),
        ("sys/block/md0/md/resync_start", "2048\n"),
        ("sys/block/md0/md/dev-sda1/state", "in_sync\n"),
        ("sys/block/md0/md/dev-sda1/slot", "0\n"),
        ("sys/block/md0/md/dev-sda1/offset", "2048\n"),
        ("sys/block/md0/md/dev-sda1/bad_blocks", "4096 8\n9000 16\n"),
        ("sys/block/md0/md/dev-sdb1/state", "in_sync\n"),
        ("sys/block/md0/md/dev-sdb1/slot", "1\n"),
        ("sys/block/md0/md/dev-sdb1/bad_blocks", "\n"),
        ("sys/block/md0/md/dev-sdc1/state", "in_sync,journal\n"),
        ("sys/block/md0/md/dev-sdc1/slot", "journal\n"),
    ]);
    let LayerState::Md(state) = read(&root, "md0", &MD).unwrap() else { panic!("md") };
    assert_eq!((state.layout, state.is_resync_due), (Some(258), true));
    let lacking: Vec<&[(u64, u64)]> =
        state.members.iter().map(|member| member.bad_blocks.as_slice()).collect();
    assert_eq!(lacking, [&[(2048, 8), (6952, 16)][..], &[], &[]]);
    assert_eq!(state.members[2].slot, None, "a journal is in no slot");
}

#[test]
fn a_stripe_has_no_degraded_attribute() {
    let (_dir, root) = tree(&[
        ("sys/block/md1/md/level", "raid0\n"),
        ("sys/block/md1/md/raid_disks", "2\n"),
        ("sys/block/md1/md/array_state", "clean\n"),
    ]);
    let LayerState::Md(state) = read(&root, "md1", &MD).unwrap() else { panic!("md") };
    assert_eq!((state.degraded, state.sync_action, state.sync_completed), (0, None, None));
}

#[test]
fn nonsense_in_an_attribute_is_an_error_that_names_it() {
    let (_dir, root) = tree(&[
        ("sys/block/md1/md/degraded", "many\n"),
        ("sys/block/md1/md/array_state", "clean\n"),
    ]);
    let error = read(&root, "md1", &MD).unwrap_err();
    assert_eq!(error.to_string(), "/sys/block/md1/md/degraded: `many` makes no sense");
    assert!(read(&root, "md9", &MD).is_err());
}

#[test]
fn a_recorded_device_mapper_status_is_read_and_its_absence_is_an_error() {
    let (_dir, root) = tree(&[(
        "exec/dm/dm-3.status",
        "0 8 thin-pool 1 2/3 4/5 - rw discard_passdown queue_if_no_space - 1\n",
    )]);
    let layer =
        Layer::Dm { name: "pool".into(), uuid: None, volume_group: None, logical_volume: None };
    assert!(
        matches!(read(&root, "dm-3", &layer).unwrap(), LayerState::Thin(pool) if pool.data_used == 4)
    );
    assert!(read(&root, "dm-4", &layer).is_err());
    assert_eq!(read(&root, "sda", &Layer::Disk).unwrap(), LayerState::Plain);
}

#[test]
fn a_pool_that_is_being_imported_has_no_state_and_an_unknown_word_is_an_error() {
    let word = |text: &str| {
        let (_dir, root) = tree(&[("proc/spl/kstat/zfs/my pool/state", text)]);
        let layer = Layer::ZfsPool { name: "my pool".into() };
        read(&root, "zfs:my pool", &layer).map_err(|error| error.to_string())
    };
    let Ok(LayerState::Zfs(pool)) = word("SUSPENDED\n") else { panic!("a pool") };
    assert_eq!(pool.state, PoolState::Suspended);
    let file = "/proc/spl/kstat/zfs/my pool/state";
    let importing = format!("{file}: the pool is being imported or exported");
    assert_eq!(word("TRANSITIONING\n"), Err(importing));
    assert_eq!(word("FINE\n"), Err(format!("{file}: `FINE` makes no sense")));
    assert_eq!(word(""), Err(format!("{file}: `` makes no sense")));
}

#[test]
fn a_bcache_says_which_of_its_devices_is_the_cache_and_whether_it_is_dirty() {
    let (_dir, root) = tree(&[
        ("sys/block/bcache0/bcache/state", "dirty\n"),
        ("sys/block/bcache0/slaves/sda/dev", "8:0\n"),
        ("sys/block/bcache0/slaves/nvme0n1/dev", "259:0\n"),
        ("sys/class/block/sda/dev", "8:0\n"),
        ("sys/class/block/nvme0n1/dev", "259:0\n"),
        ("sys/class/block/nvme0n1/bcache/cache_replacement_policy", "[lru] fifo random\n"),
        ("sys/block/bcache1/bcache/state", "odd\n"),
    ]);
    let expected = BlockCache {
        kind: "bcache".into(),
        devices: vec!["259:0".parse().unwrap()],
        is_dirty: true,
        fault: None,
        status_line: "dirty".into(),
    };
    assert_eq!(read(&root, "bcache0", &Layer::Bcache).unwrap(), LayerState::Cache(expected));
    assert!(read(&root, "bcache1", &Layer::Bcache).is_err());
}
