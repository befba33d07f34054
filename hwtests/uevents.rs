//! uevents and the scan on the real kernel. Needs root: it writes to /sys/block/loopN/uevent and
//! attaches loop devices.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use diskvitals_host::root::HostRoot;
use diskvitals_model::drive::{DriveKind, Transport};
use diskvitals_model::source_update::SourceStatus;
use diskvitals_source::events::{self, DeviceEvent, DeviceEvents};
use diskvitals_source::inventory;

const TIME_LIMIT: Duration = Duration::from_secs(60);

fn root() -> HostRoot {
    HostRoot::new("/")
}

/// Any existing loop device; its state is not changed.
fn a_loop_device() -> String {
    let names = std::fs::read_dir("/sys/block")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("loop")).min().expect("a kernel with loop devices")
}

fn change(device: &str) {
    std::fs::write(format!("/sys/block/{device}/uevent"), "change").unwrap();
}

fn last_seqnum() -> u64 {
    std::fs::read_to_string("/sys/kernel/uevent_seqnum").unwrap().trim().parse().unwrap()
}

async fn next(events: &mut DeviceEvents) -> DeviceEvent {
    tokio::time::timeout(TIME_LIMIT, events.recv())
        .await
        .expect("an event in time")
        .expect("the source lives")
}

/// True for an event that makes the receiver read the state after `seqnum`.
fn tells_of(event: &DeviceEvent, seqnum: u64) -> bool {
    match event {
        DeviceEvent::Changed { seqnum: own, .. } => *own >= seqnum,
        DeviceEvent::Overrun => true,
        DeviceEvent::NvmeEvent { .. } => false,
        DeviceEvent::Stopped(why) => panic!("{why}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_of_ten_thousand_events_is_delivered() {
    let device = a_loop_device();
    let (status, mut events) = events::start(&root());
    assert!(!matches!(status, SourceStatus::Down(_)), "{status:?}");
    let burst = tokio::task::spawn_blocking(move || {
        for _ in 0..10_000 {
            change(&device);
        }
        last_seqnum()
    });
    // A receiver that reads some of them while they arrive, and the rest afterwards.
    for _ in 0..100 {
        next(&mut events).await;
    }
    let last = burst.await.unwrap();
    // Events before the end of the burst may be followed by more. The last one, or an overrun
    // raised after it was dropped, must arrive.
    while !tells_of(&next(&mut events).await, last) {}
}

/// Runs on the one processor that the listening thread may use, at a priority that keeps it from
/// running.
#[allow(clippy::disallowed_methods)] // A test starts what it needs.
fn burst_that_starves_the_listener(device: &str) {
    let script = format!(
        "i=0; while [ $i -lt 200 ]; do echo change > /sys/block/{device}/uevent; i=$((i+1)); done"
    );
    let done = Command::new("/usr/bin/taskset")
        .args(["-c", "0", "/usr/bin/chrt", "-f", "50", "/bin/sh", "-c", &script])
        .status();
    assert!(done.expect("util-linux is there").success());
}

#[tokio::test]
async fn an_overflowing_socket_becomes_an_overrun() {
    let device = a_loop_device();
    let mut first = nix::sched::CpuSet::new();
    first.set(0).unwrap();
    // Threads inherit the mask: the listener has one processor.
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &first).unwrap();
    // The kernel's smallest buffer holds a handful of events.
    let (_status, mut events) = events::start_with(&root(), 1);
    let mut overrun = false;
    // Fewer than the channel's capacity, so that only the socket can overflow.
    for _ in 0..20 {
        burst_that_starves_the_listener(&device);
        while let Ok(event) = tokio::time::timeout(Duration::from_millis(200), events.recv()).await
        {
            overrun |= event.expect("the source lives") == DeviceEvent::Overrun;
        }
        if overrun {
            break;
        }
    }
    assert!(overrun);
    // The source continues afterwards.
    change(&device);
    let last = last_seqnum();
    while !tells_of(&next(&mut events).await, last) {}
}

#[tokio::test]
async fn dropping_the_receiver_ends_the_thread() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .filter(|task| {
                std::fs::read_to_string(task.as_ref().unwrap().path().join("comm"))
                    .is_ok_and(|name| name == "uevents\n")
            })
            .count()
    };
    // Other tests of this file run at the same time.
    let all: Vec<_> = (0..20).map(|_| events::start(&root())).collect();
    assert!(threads() >= 20);
    drop(all);
    let fewer = async {
        while threads() > 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIME_LIMIT, fewer).await.expect("the threads end");
}

/// As in a pod with a network namespace of its own. This process stands for the host's PID 1: its
/// namespaces can be read without privileges.
#[test]
fn events_are_received_from_another_network_namespace() {
    let host = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(host.path().join("proc/1")).unwrap();
    std::os::unix::fs::symlink(
        format!("/proc/{}/ns", std::process::id()),
        host.path().join("proc/1/ns"),
    )
    .unwrap();
    let root = HostRoot::new(host.path());
    let elsewhere = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace of our own");
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        assert_ne!(own, std::fs::read_link(root.at("/proc/1/ns/net")).unwrap());
        let started = events::start(&root);
        assert_eq!(
            own,
            std::fs::read_link("/proc/thread-self/ns/net").unwrap(),
            "only the source's thread moves"
        );
        started
    });
    let (status, mut events) = elsewhere.join().unwrap();
    assert!(!format!("{status:?}").contains("namespace"), "{status:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        change(&a_loop_device());
        let last = last_seqnum();
        while !tells_of(&next(&mut events).await, last) {}
    });
}

struct LoopDevice(String);

impl LoopDevice {
    #[allow(clippy::disallowed_methods)] // A test's own tool; the daemon starts none.
    fn attach(file: &Path) -> LoopDevice {
        let answer = Command::new("/usr/sbin/losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .unwrap();
        assert!(answer.status.success(), "{answer:?}");
        LoopDevice(
            String::from_utf8(answer.stdout).unwrap().trim().trim_start_matches("/dev/").to_owned(),
        )
    }
}

impl Drop for LoopDevice {
    #[allow(clippy::disallowed_methods)] // As above.
    fn drop(&mut self) {
        let detached = Command::new("/usr/sbin/losetup")
            .args(["--detach", &format!("/dev/{}", self.0)])
            .status();
        assert!(detached.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn a_loop_device_is_a_drive_only_when_admitted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("image");
    std::fs::File::create(&file).unwrap().set_len(8 << 20).unwrap();
    let (_status, mut events) = events::start(&root());
    let device = LoopDevice::attach(&file);
    // Attaching is reported.
    while !matches!(next(&mut events).await, DeviceEvent::Overrun | DeviceEvent::Changed { .. }) {}

    let unasked = inventory::scan(&root(), &[], &[]).unwrap();
    assert!(unasked.drives.iter().all(|drive| drive.name != device.0));
    assert_eq!(unasked.devices[&device.0].size_bytes, 8 << 20);

    let admitted = inventory::scan(&root(), &["loop*".to_owned()], &[]).unwrap();
    let drive =
        admitted.drives.iter().find(|drive| drive.name == device.0).expect("the loop drive");
    assert_eq!(
        (drive.kind, drive.transport, drive.size_bytes, drive.id_stable),
        (DriveKind::Virtual, Transport::Loop, 8 << 20, false)
    );
    assert_eq!(drive.id.as_str(), format!("loop:{}", file.display()));
    assert_eq!(admitted.devices[&device.0].drive.as_ref(), Some(&drive.id));
    assert!(
        admitted.drives.iter().all(|drive| !drive.name.starts_with("loop") || drive.size_bytes > 0),
        "empty loops are none"
    );

    let ignored = inventory::scan(&root(), &["loop*".to_owned()], &["loop*".to_owned()]).unwrap();
    assert!(ignored.drives.iter().all(|drive| drive.name != device.0));
}

#[test]
fn this_machine_is_scanned_without_a_warning() {
    let inventory = inventory::scan(&root(), &[], &[]).unwrap();
    assert_eq!(inventory.warnings, Vec::<String>::new());
    assert!(!inventory.devices.is_empty());
    println!("{}", serde_json::to_string_pretty(&inventory).unwrap());
}
