use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::inventory::classify;
use diskvitals_model::probe::ProbePace;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

fn link(root: &Path, path: &str, target: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::os::unix::fs::symlink(target, path).expect("linked");
}

fn of(name: &str) -> diskvitals_model::counters::CounterDevice {
    diskvitals_model::counters::CounterDevice::Block(name.into())
}

/// A disk on an HBA with ext4 on its partition, in an md with a disk that was pulled out, a btrfs
/// with one member and one with two, a bcache.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("dir");
    let root = dir.path();
    let function = "sys/devices/pci0000:00/0000:03:00.0";
    let disk = format!("{function}/host0/target0:0:0/0:0:0:0");
    for (name, text) in [
        ("ioerr_cnt", "0x1f"),
        ("iotmo_cnt", "0x2"),
        ("iodone_cnt", "0x1000"),
        ("iorequest_cnt", "0x1001"),
    ] {
        put(root, &format!("{disk}/{name}"), &format!("{text}\n"));
    }
    put(root, &format!("{function}/aer_dev_correctable"), "RxErr 3\nTOTAL_ERR_COR 3\n");
    put(root, &format!("{function}/aer_dev_fatal"), "DLP 0\nTOTAL_ERR_FATAL 0\n");
    put(root, &format!("{disk}/block/sda/sda1/bcache/io_errors"), "4\n");
    link(root, &format!("{disk}/block/sda/device"), "../..");
    link(root, "sys/class/block/sda", &format!("../../../{disk}/block/sda"));
    link(root, "sys/class/block/sda1", &format!("../../../{disk}/block/sda/sda1"));
    link(root, "sys/class/block/sr0", &format!("../../../{disk}/block/sda"));
    put(root, "sys/devices/virtual/block/md0/md/dev-sda2/errors", "7\n");
    put(root, "sys/devices/virtual/block/md0/md/dev-sdz1/errors", "9\n");
    link(
        root,
        "sys/devices/virtual/block/md0/md/dev-sda2/block",
        "../../../../../pci0000:00/0000:03:00.0/host0/block/sda/sda2",
    );
    link(root, "sys/class/block/md0", "../../devices/virtual/block/md0");
    link(root, "sys/block/md0", "../devices/virtual/block/md0");
    for (name, text) in [
        ("errors_count", "2"),
        ("warning_count", "0"),
        ("first_error_time", "1700000000"),
        ("last_error_func", "ext4_lookup"),
        ("last_error_errcode", "5"),
    ] {
        put(root, &format!("sys/fs/ext4/sda1/{name}"), &format!("{text}\n"));
    }
    put(root, "sys/fs/ext4/features/lazy_itable_init", "supported\n");
    let stats = "write_errs 1\nread_errs 0\nflush_errs 0\ncorruption_errs 7\ngeneration_errs 0\n";
    for (uuid, members) in [("0a", &["1"][..]), ("0b", &["1", "2"][..])] {
        let dir = format!("sys/fs/btrfs/{uuid}000000-0000-4000-8000-000000000001");
        for member in members {
            put(root, &format!("{dir}/devinfo/{member}/error_stats"), stats);
            put(root, &format!("{dir}/devinfo/{member}/missing"), "0\n");
            put(root, &format!("{dir}/devices/sdb{member}"), "");
        }
    }
    dir
}

#[test]
fn libata_error_handling_is_not_counted_as_timeouts() {
    let tree = tempfile::tempdir().expect("dir");
    let disk = "sys/devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0";
    for (name, text) in [
        ("ioerr_cnt", "0x4"),
        ("iotmo_cnt", "0x3"),
        ("iodone_cnt", "0x1000"),
        ("iorequest_cnt", "0x1001"),
    ] {
        put(tree.path(), &format!("{disk}/{name}"), &format!("{text}\n"));
    }
    std::fs::create_dir_all(tree.path().join(disk).join("block/sda")).expect("made");
    link(tree.path(), &format!("{disk}/block/sda/device"), "../..");
    link(tree.path(), "sys/class/block/sda", &format!("../../../{disk}/block/sda"));
    let answer = read(&HostRoot::new(tree.path()), &CounterGroup::Plain).expect("read");
    let values: Vec<_> = answer.readings.iter().map(|reading| reading.values.clone()).collect();
    let expected = [("ioerr_cnt", 4), ("iotmo_cnt of libata", 3)];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(values, [expected.into()]);
}

#[test]
fn every_kind_of_counter_is_attributed_to_its_device() {
    let tree = tree();
    let answer = read(&HostRoot::new(tree.path()), &CounterGroup::Plain).expect("read");
    assert_eq!(
        (&answer.warnings, &answer.arrays, &answer.bcache),
        (&vec![], &vec!["md0".to_owned()], &vec!["sda1".to_owned()])
    );
    let expected = serde_json::json!([
        {
            "of": {"kind": "block", "name": "sda"}, "source": "scsi", "file": "/sys/block/sda/device",
            "values": {"ioerr_cnt": 31, "iotmo_cnt": 2}, "details": {"iodone_cnt": "0x1000", "iorequest_cnt": "0x1001"},
        },
        {
            "of": {"kind": "block", "name": "sda1"}, "source": "ext4", "file": "/sys/fs/ext4/sda1",
            "values": {"errors_count": 2, "warning_count": 0},
            "details": {"first_error_time": "1700000000", "last_error_errcode": "5", "last_error_func": "ext4_lookup"},
        },
        {
            "of": {"kind": "block", "name": "sdb1"}, "source": "btrfs",
            "file": "/sys/fs/btrfs/0a000000-0000-4000-8000-000000000001/devinfo/1/error_stats",
            "values": {"write_errs": 1, "read_errs": 0, "flush_errs": 0, "corruption_errs": 7, "generation_errs": 0, "missing": 0},
            "details": {"filesystem": "0a000000-0000-4000-8000-000000000001", "devid": "1"},
        },
        {
            "of": {"kind": "pci", "name": "0000:03:00.0"}, "source": "aer", "file": "/sys/bus/pci/devices/0000:03:00.0/aer_dev_*",
            "values": {"correctable.RxErr": 3, "correctable.TOTAL_ERR_COR": 3, "fatal.DLP": 0, "fatal.TOTAL_ERR_FATAL": 0}, "details": {},
        },
    ]);
    assert_eq!(serde_json::to_value(&answer.readings).expect("JSON"), expected);
}

#[test]
fn members_of_an_array_are_counted_and_one_that_is_gone_is_not() {
    let tree = tree();
    let answer =
        read(&HostRoot::new(tree.path()), &CounterGroup::Md { array: "md0".into() }).expect("read");
    let seen: Vec<_> = answer
        .readings
        .iter()
        .map(|reading| (reading.device.clone(), reading.values.clone()))
        .collect();
    let values = |name: &str, value| BTreeMap::from([(name.to_owned(), value)]);
    assert_eq!(seen, [(of("sda2"), values("errors", 7))]);
}

#[test]
fn a_bcache_is_counted_where_its_device_is() {
    let tree = tree();
    let answer = read(
        &HostRoot::new(tree.path()),
        &CounterGroup::Bcache { devices: vec!["sda1".into(), "gone".into()] },
    )
    .expect("read");
    assert_eq!(answer.readings.len(), 1);
    assert_eq!(
        (&answer.readings[0].device, answer.readings[0].values["io_errors"]),
        (&of("sda1"), 4)
    );
}

#[test]
fn a_counter_that_makes_no_sense_is_a_warning_and_the_others_are_there() {
    let tree = tree();
    put(
        tree.path(),
        "sys/devices/pci0000:00/0000:03:00.0/host0/target0:0:0/0:0:0:0/ioerr_cnt",
        "many\n",
    );
    put(
        tree.path(),
        "sys/fs/btrfs/0a000000-0000-4000-8000-000000000001/devinfo/1/error_stats",
        "invalid\n",
    );
    let answer = read(&HostRoot::new(tree.path()), &CounterGroup::Plain).expect("read");
    assert_eq!(
        answer.warnings,
        ["/sys/class/block/sda/device/ioerr_cnt: `many` is not a hexadecimal number"]
    );
    let sources: Vec<&str> =
        answer.readings.iter().map(|reading| reading.source.as_str()).collect();
    assert_eq!(sources, ["scsi", "ext4", "aer"], "`invalid` is no counter and nothing to warn of");
}

#[test]
fn one_mount_of_each_xfs_is_asked_and_none_on_a_sleeping_drive() {
    let target = |path: &str, minor, filesystem: &str, asleep| ProbeTarget {
        path: path.into(),
        id: minor,
        dev: DevNo::new(8, minor),
        asleep,
        at_rest: false,
        filesystem: filesystem.into(),
        pace: ProbePace::Local,
        awaited_scrub: None,
        domains: FailureDomains::default(),
    };
    let targets = [
        target("/a", 1, "xfs", false),
        target("/b", 1, "xfs", false),
        target("/c", 2, "xfs", true),
        target("/d", 3, "ext4", false),
    ];
    assert_eq!(mounts_of(&targets, "xfs"), [&targets[0]]);
}

#[test]
fn the_last_scrub_is_read_of_a_btrfs_that_counts_errors_or_of_which_a_finding_needs_it() {
    let member = |uuid: &str, errors| CounterReading {
        device: CounterDevice::Block("sda".into()),
        source: "btrfs".into(),
        file: String::new(),
        values: [("read_errs".to_owned(), errors)].into(),
        details: [("filesystem", uuid), ("devid", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    };
    let readings = [member("a", 1), member("b", 0), member("c", 0)];
    let asked = btrfs_to_ask(&readings, &["c"].into());
    assert_eq!(asked.into_keys().collect::<Vec<_>>(), ["a", "c"]);
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC{0,80}|([A-Za-z_]{0,9} [0-9x]{0,22}\n){0,4}") {
        let _counts = scsi::parse(&text);
        let _counts = btrfs::parse(&text);
        let _counts = aer::parse(&text);
        let _function = classify::pci_address(&text);
    }
}

#[test]
fn a_pcie_link_is_read_only_while_its_device_is_awake() {
    let dir = tempfile::tempdir().expect("dir");
    let function = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    let set = |name: &str, text: &str| put(dir.path(), &format!("{function}/{name}"), text);
    for (name, text) in [
        ("current_link_width", "2\n"),
        ("max_link_width", "4\n"),
        ("current_link_speed", "8.0 GT/s PCIe\n"),
        ("max_link_speed", "16.0 GT/s PCIe\n"),
        ("nvme/nvme0/transport", "pcie\n"),
        ("nvme/nvme0/nvme0n1/stat", "100 0 800 20 50 0 400 40 1 60 60\n"),
    ] {
        set(name, text);
    }
    link(dir.path(), "sys/class/nvme/nvme0", &format!("../../../{function}/nvme/nvme0"));
    let read = || {
        let group = CounterGroup::PcieLink { controller: "nvme0".into() };
        read(&HostRoot::new(dir.path()), &group).expect("read").readings
    };
    let expected = serde_json::json!({
        "lanes": 2, "rate": 8000, "max_lanes": 4, "max_rate": 16000, "completed": 150, "in_flight": 1,
    });
    assert_eq!(serde_json::to_value(&read()[0].values).expect("JSON"), expected);
    for (name, awake, asleep) in
        [("power_state", "D0\n", "D3cold\n"), ("power/runtime_status", "active\n", "suspended\n")]
    {
        set(name, asleep);
        assert_eq!(read(), [], "{name}");
        set(name, awake);
        assert_eq!(read().len(), 1, "{name}");
    }
    set("current_link_width", "0\n");
    assert_eq!(read(), [], "the link is down");
}

#[test]
fn a_ufs_device_is_asked_only_while_it_and_its_disk_are_awake() {
    let dir = tempfile::tempdir().expect("dir");
    let adapter = "sys/devices/platform/soc/1d84000.ufshc";
    let disk = format!("{adapter}/host0/target0:0:0/0:0:0:0");
    put(dir.path(), &format!("{adapter}/health_descriptor/eol_info"), "0x01\n");
    put(dir.path(), &format!("{adapter}/health_descriptor/life_time_estimation_a"), "0x0b\n");
    put(dir.path(), &format!("{disk}/block/sda/size"), "0\n");
    link(dir.path(), &format!("{disk}/block/sda/device"), "../..");
    link(dir.path(), "sys/class/block/sda", &format!("../../../{disk}/block/sda"));
    let root = HostRoot::new(dir.path());
    let group = CounterGroup::Ufs { device: "sda".into() };
    let groups = || read(&root, &CounterGroup::Plain).expect("read").drives;
    assert_eq!(groups(), std::slice::from_ref(&group));
    let values = &read(&root, &group).expect("read").readings[0].values;
    let expected = [("eol_info", 1), ("life_time_estimation_a", 11)];
    assert_eq!(*values, expected.map(|(name, value)| (name.to_owned(), value)).into());
    for folder in [adapter, disk.as_str()] {
        put(dir.path(), &format!("{folder}/power/runtime_status"), "suspended\n");
        assert_eq!(groups(), [], "{folder}");
        put(dir.path(), &format!("{folder}/power/runtime_status"), "active\n");
    }
    assert_eq!(groups(), [group]);
}
