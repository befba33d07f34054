//! The kernel's error counters on filesystems that are really damaged, read by the same worker that
//! the daemon uses.

use std::path::Path;
use std::time::Duration;

use diskvitals_finding::dev::DevNo;
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{WorkerOutcome, WorkerPool, WorkerPoolConfig};
use diskvitals_model::counters::{CounterDevice, CounterHistory, CounterReading};
use diskvitals_source::context::JobWorkers;
use diskvitals_source::jobs::{CounterGroup, Job, JobResult};
use diskvitals_source::worker_main::{WorkerRole, arguments};
use diskvitals_wire::source_state::State;

use crate::programs::built_program;
use crate::support::tools::{mount_device, run, umount};
use crate::support::{self, Daemon, Disk, SOON, Testbed, damage, eventually};

fn workers(place: WorkerRole) -> JobWorkers {
    let args = arguments(place, &HostRoot::new("/"));
    WorkerPool::start(WorkerPoolConfig {
        program: built_program("diskvitalsd").into(),
        args,
        active: 1,
        max_stuck: 4,
    })
}

async fn read(place: WorkerRole, part: CounterGroup) -> Vec<CounterReading> {
    match workers(place)
        .run("counters", Job::Counters { group: part }, Duration::from_secs(10))
        .await
    {
        WorkerOutcome::Completed(JobResult::Counters(counters)) => {
            assert_eq!(counters.warnings, Vec::<String>::new());
            counters.readings
        }
        other => panic!("no counters: {other:?}"),
    }
}

async fn reading(disk: &Disk, source: &str) -> Option<CounterReading> {
    let of = CounterDevice::Block(disk.name().to_owned());
    read(WorkerRole::OwnMounts, CounterGroup::Plain)
        .await
        .into_iter()
        .find(|reading| reading.device == of && reading.source == source)
}

fn now() -> jiff::Timestamp {
    diskvitals_host::clock::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_a_damaged_ext4_grow_its_counter_and_carry_the_first_and_last_error() {
    let testbed = Testbed::new();
    // Without checksums: the kernel detects the damage by its content, as corruption
    // (EFSCORRUPTED).
    let disk = testbed.ext4("e.img", 64, &["-b", "4096", "-O", "^metadata_csum"]);
    let mnt = testbed.path("mnt/e");
    mount_device(&disk.device, "ext4", &mnt, "");
    std::fs::create_dir(mnt.join("folder")).expect("a folder");
    umount(&mnt);
    let inode = damage::ext4_folder(&disk, "/folder");
    mount_device(&disk.device, "ext4", &mnt, "errors=continue");

    let mut memory = CounterHistory::default();
    let healthy = reading(&disk, "ext4").await.expect("counted");
    assert_eq!(healthy.values["errors_count"], 0);
    assert_eq!(memory.update(&healthy, now()), []);
    // ext4 skips invalid entries and gives its reader no error (ext4_readdir()).
    std::fs::read_dir(mnt.join("folder")).expect("opens").for_each(drop);
    // A work item of ext4 updates the superblock's fields.
    let damaged = eventually("the error is counted", SOON, async || {
        reading(&disk, "ext4").await.filter(|reading| reading.values["errors_count"] > 0)
    })
    .await;
    let growths = memory.update(&damaged, now());
    let growth = growths.iter().find(|growth| growth.name == "errors_count").expect("growth");
    assert_eq!((growth.from, growth.to), (0, damaged.values["errors_count"]));
    assert_eq!(damaged.file, format!("/sys/fs/ext4/{}", disk.name()));
    assert_eq!(damaged.details["first_error_ino"], inode.to_string());
    assert!(damaged.details["last_error_func"].contains("dir"), "{damaged:#?}");
    assert!(
        damaged.details["first_error_time"].parse::<u64>().is_ok_and(|time| time > 1_600_000_000),
        "{damaged:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corruption_on_a_btrfs_grows_the_counter_of_its_device() {
    const PATTERN: &[u8] = b"diskvitals was here: 5fb1b0c2";
    let testbed = Testbed::new();
    let image = testbed.image("b.img", 128 << 20);
    run("/usr/sbin/mkfs.btrfs", &[&"-q", &image]);
    let disk = testbed.attach(&image);
    let mnt = testbed.path("mnt/b");
    mount_device(&disk.device, "btrfs", &mnt, "");
    let block: Vec<u8> = PATTERN.iter().copied().cycle().take(4096).collect();
    std::fs::write(mnt.join("file"), block.repeat(8)).expect("the file");
    umount(&mnt);
    assert!(
        damage::each_block_that_begins_with(&disk, PATTERN) > 0,
        "the file is found on the device"
    );
    mount_device(&disk.device, "btrfs", &mnt, "");

    let mut memory = CounterHistory::default();
    let healthy = reading(&disk, "btrfs").await.expect("counted");
    assert_eq!(healthy.values.values().sum::<u64>(), 0, "{healthy:#?}");
    memory.update(&healthy, now());
    assert_eq!(
        std::fs::read(mnt.join("file")).expect_err("the checksum is wrong").raw_os_error(),
        Some(nix::libc::EIO)
    );
    let damaged = reading(&disk, "btrfs").await.expect("counted");
    let growths = memory.update(&damaged, now());
    assert_eq!(
        growths.iter().map(|growth| growth.name.as_str()).collect::<Vec<_>>(),
        ["corruption_errs"],
        "{damaged:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corruption_on_a_multi_device_btrfs_grows_the_counter_of_the_corrupt_device() {
    const PATTERN: &[u8] = b"diskvitals was here: 0d9a44e1";
    let testbed = Testbed::new();
    let images = [
        testbed.image("a.img", 128 << 20),
        testbed.image("b.img", 128 << 20),
        testbed.image("c.img", 128 << 20),
    ];
    run(
        "/usr/sbin/mkfs.btrfs",
        &[&"-q", &"-d", &"single", &"-m", &"raid1", &images[0], &images[1], &images[2]],
    );
    let disks = images.each_ref().map(|image| testbed.attach(image));
    let options =
        disks.each_ref().map(|disk| format!("device={}", disk.device.display())).join(",");
    let mnt = testbed.path("mnt/b");
    let mount = || mount_device(&disks[0].device, "btrfs", &mnt, &options);
    mount();
    // The ids have a gap and are not in the order of the names.
    run("/usr/bin/btrfs", &[&"device", &"remove", &disks[0].device, &mnt]);
    let block: Vec<u8> = PATTERN.iter().copied().cycle().take(4096).collect();
    std::fs::write(mnt.join("file"), block.repeat(64)).expect("the file");
    umount(&mnt);
    let damaged = disks
        .iter()
        .find(|disk| damage::each_block_that_begins_with(disk, PATTERN) > 0)
        .expect("the file is found");
    mount_device(
        &damaged.device,
        "btrfs",
        &mnt,
        &disks[1..]
            .iter()
            .map(|disk| format!("device={}", disk.device.display()))
            .collect::<Vec<_>>()
            .join(","),
    );
    assert!(std::fs::read(mnt.join("file")).is_err(), "the checksum is wrong");

    let readings =
        read(WorkerRole::HostMounts, CounterGroup::Btrfs { path: mnt.as_path().into() }).await;
    let seen: Vec<_> = readings
        .iter()
        .map(|reading| (reading.device.clone(), reading.values["corruption_errs"] > 0))
        .collect();
    let expected: Vec<_> = disks[1..]
        .iter()
        .map(|disk| (CounterDevice::Block(disk.name().to_owned()), disk.name() == damaged.name()))
        .collect();
    assert_eq!(seen, expected, "{readings:#?}");
    // sysfs does not show which device is which, so no counter is attributed to one.
    assert!(plain_btrfs(&disks).await.is_empty());
    umount(&mnt);
}

async fn plain_btrfs(disks: &[Disk]) -> Vec<CounterReading> {
    let readings = read(WorkerRole::OwnMounts, CounterGroup::Plain).await;
    let of = |reading: &CounterReading| {
        disks.iter().any(|disk| reading.device == CounterDevice::Block(disk.name().to_owned()))
    };
    readings.into_iter().filter(|reading| reading.source == "btrfs" && of(reading)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_of_an_xfs_is_read_and_good() {
    let testbed = Testbed::new();
    let disk = testbed.xfs("x.img");
    let mnt = testbed.path("mnt/x");
    mount_device(&disk.device, "xfs", &mnt, "");
    let read = read(
        WorkerRole::HostMounts,
        CounterGroup::Xfs { path: mnt.as_path().into(), dev: dev(&disk.device) },
    )
    .await;
    let [health] = read.as_slice() else { panic!("one reading: {read:#?}") };
    assert_eq!(
        (&health.device, health.source.as_str()),
        (&CounterDevice::Block(disk.name().to_owned()), "xfs")
    );
    assert_eq!((health.values.len(), health.values.values().sum::<u64>()), (10, 0), "{health:#?}");
    // The kernel verifies the summary counters at each mount: the fields are where we read them.
    assert!(health.details.contains_key("checked"));
    umount(&mnt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_lists_its_error_counters() {
    let testbed = Testbed::new();
    let disk = testbed.xfs("x.img");
    let mnt = testbed.path("mnt/x");
    mount_device(&disk.device, "xfs", &mnt, "");
    let config = testbed.path("diskvitals.toml");
    std::fs::write(&config, support::daemon::config()).expect("the configuration");
    let daemon = Daemon::start(&testbed).await;
    eventually("ext4 or XFS is counted", SOON, async || {
        let sources = daemon.client.node().await.sources;
        sources.into_iter().find(|source| {
            source.name == "counters"
                && source.state() == State::Active
                && source.detail.contains("xfs")
        })
    })
    .await;
    daemon.stop().await;
}

fn dev(device: &Path) -> DevNo {
    use std::os::unix::fs::MetadataExt;
    let number = std::fs::metadata(device).expect("the device").rdev();
    let part = |number: u64| u32::try_from(number).expect("a device number");
    DevNo::new(part(nix::sys::stat::major(number)), part(nix::sys::stat::minor(number)))
}
