//! Scrubs by a schedule, on the real kernel: a btrfs on a loop device, by the real daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diskvitals_wire::care_task::State;
use diskvitals_wire::{ListDrivesRequest, ScrubTask};

use crate::support::daemon::Arguments;
use crate::support::tools::{mount_device, run};
use crate::support::{Daemon, Testbed, eventually};

/// The plan is made each 10 s.
const SCHEDULED: Duration = Duration::from_secs(120);
/// 96 MiB at `SPEED`.
const SCRUBBED: Duration = Duration::from_secs(120);
const SPEED: &str = "4m";

async fn scrub_of(daemon: &Daemon, mnt: &Path) -> Option<ScrubTask> {
    let request = ListDrivesRequest::default();
    let answer = daemon.client.inventory().list_drives(request).await.ok()?;
    let name = mnt.to_string_lossy();
    answer.into_inner().scrubs.into_iter().find(|scrub| scrub.name == name)
}

/// Its processes on this mount, with their control groups.
fn scrubs_on(mnt: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
        if words.get(1).is_some_and(|word| *word == b"scrub")
            && words.contains(&mnt.as_os_str().as_encoded_bytes())
        {
            found.push(std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default());
        }
    }
    found
}

/// As btrfs-progs leaves it: one that ended in 2023.
fn record(uuid: &str) -> PathBuf {
    let path = PathBuf::from(format!("/var/lib/btrfs/scrub.status.{uuid}"));
    std::fs::create_dir_all("/var/lib/btrfs").expect("a directory");
    let counts = "data_extents_scrubbed:3|tree_extents_scrubbed:9|data_bytes_scrubbed:4096|tree_bytes_scrubbed:147456|read_errors:0|csum_errors:0|verify_errors:0|no_csum:0|csum_discards:0|super_errors:0|malloc_errors:0|uncorrectable_errors:0|corrected_errors:0|last_physical:1";
    let text = format!(
        "scrub status:1\n{uuid}:1|{counts}|t_start:1700000000|t_resumed:0|duration:7|canceled:0|finished:1\n"
    );
    std::fs::write(&path, text).expect("the record");
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_btrfs_is_scrubbed_when_it_is_due_and_the_scrub_outlives_the_daemon() {
    let testbed = Testbed::new();
    let mnt = testbed.path("mnt/scrubbed");
    let uuid = "5c0b0000-0000-4000-8000-00000000c0de";
    let disk = testbed.attach(&testbed.image("s.img", 256 << 20));
    run("/usr/sbin/mkfs.btrfs", &[&"-q", &"-f", &"-U", &uuid, &disk.device]);
    mount_device(&disk.device, "btrfs", &mnt, "");
    std::fs::write(mnt.join("f"), vec![7; 96 << 20]).expect("written");
    run("/usr/bin/sync", &[&"-f", &mnt]);
    let limit = format!("/sys/fs/btrfs/{uuid}/devinfo/1/scrub_speed_max");
    std::fs::write(limit, SPEED).expect("a limit");
    let record = record(uuid);

    // The log may have the end of an earlier scrub of another btrfs on this loop device.
    let begun = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let begun = begun.expect("a clock").as_secs().cast_signed();
    let next_minute = run("/usr/bin/date", &[&"-d", &"1 minute", &"+%H:%M"]);
    let arguments = Arguments::of(&testbed);
    let mut config = std::fs::read_to_string(&arguments.config).expect("the configuration");
    config += &format!(
        "[[schedule]]\ntasks = [\"btrfs-scrub\"]\narrays = [\"{}\"]\ncalendar = \"daily {}\"\njitter = \"0s\"\n",
        mnt.display(),
        next_minute.trim()
    );
    std::fs::write(&arguments.config, config).expect("the configuration");
    let daemon = Daemon::start_with(&arguments).await;
    let groups = eventually("it is scrubbed", SCHEDULED, async || {
        Some(scrubs_on(&mnt)).filter(|groups| !groups.is_empty())
    })
    .await;
    let is_apart = |text: &String| text.lines().any(|line| line.ends_with("/diskvitals-freeze"));
    assert!(groups.iter().all(is_apart), "{groups:?}");
    eventually("it is shown", SCHEDULED, async || {
        let scrub = scrub_of(&daemon, &mnt).await?;
        (scrub.state() == State::Running).then_some(())
    })
    .await;

    daemon.stop().await;
    assert!(!scrubs_on(&mnt).is_empty(), "it has ended with the daemon");
    let daemon = Daemon::start_with(&arguments).await;
    let scrub = eventually("its end is known", SCRUBBED, async || {
        let scrub = scrub_of(&daemon, &mnt).await?;
        let is_new = scrub.ended.as_ref().is_some_and(|ended| ended.seconds > begun);
        is_new.then_some(scrub)
    })
    .await;
    assert_eq!((scrub.task.as_str(), scrub.state()), ("btrfs-scrub", State::Waiting), "{scrub:?}");
    assert!(scrubs_on(&mnt).is_empty(), "a second one was started");
    daemon.stop().await;
    std::fs::remove_file(record).expect("removed");
}
