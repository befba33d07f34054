//! Probes change nothing on a volume, and Watch shows mounts at once.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use diskvitals_wire::watch_event::Change;
use diskvitals_wire::*;
use nix::mount::MsFlags;

use crate::support::tools::{bind, mount_with, umount};
use crate::support::{Client, Daemon, SOON, Testbed};

const DRIVER: &str = "t.csi.example.com";

/// `count` published volumes, each a directory of one ext4 mounted at `mnt`. Returns the pods'
/// paths; nothing is mounted there yet.
fn folders(testbed: &Testbed, count: usize) -> Vec<(PathBuf, PathBuf)> {
    let disk = testbed.ext4("e.img", 64, &[]);
    let mount = testbed.path("mnt");
    mount_with(&disk.device, "ext4", &mount, MsFlags::MS_STRICTATIME, "");
    (0..count)
        .map(|number| {
            let folder = mount.join(format!("d{number}"));
            std::fs::create_dir(&folder).expect("a folder");
            std::fs::write(folder.join("file"), b"x").expect("a file");
            (
                folder,
                testbed.kubelet.publish(
                    DRIVER,
                    &format!("v{number}"),
                    &format!("pv-{number}"),
                    &pod(number),
                ),
            )
        })
        .collect()
}

fn pod(number: usize) -> String {
    format!("1e000000-0000-4000-8000-{number:012}")
}

fn id(number: usize) -> String {
    format!("csi:{DRIVER}/v{number}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_do_not_touch_access_times() {
    let testbed = Testbed::new();
    let folders = folders(&testbed, 2);
    folders.iter().for_each(|(source, pod)| bind(source, pod));
    let times = || -> Vec<_> {
        folders
            .iter()
            .map(|(source, _)| {
                source.metadata().map(|data| (data.atime(), data.atime_nsec())).expect("stat")
            })
            .collect()
    };
    let before = times();
    let daemon = Daemon::start(&testbed).await;
    for _ in 0..3 {
        daemon.client.probed_anew(&[&id(0), &id(1)]).await;
    }
    assert_eq!(times(), before, "a probe has moved an access time");
    // An access would have been visible: strictatime is in force.
    std::fs::read_dir(&folders[0].0).expect("reads").for_each(drop);
    assert_ne!(times(), before);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_unmount_is_ever_refused_because_of_a_probe() {
    const VOLUMES: usize = 20;
    let testbed = Testbed::new();
    let folders = folders(&testbed, VOLUMES);
    folders.iter().for_each(|(source, pod)| bind(source, pod));
    let pods: Vec<_> = folders.iter().map(|(_, pod)| pod.clone()).collect();
    let daemon = Daemon::start(&testbed).await;
    let tasks: Vec<_> = folders
        .into_iter()
        .enumerate()
        .map(|(number, (_, pod))| {
            let client = Client::new(daemon.socket());
            tokio::spawn(async move {
                let id = id(number);
                client.probed_anew(&[&id]).await;
                // Not busy after the probe, nor while the next volumes are probed.
                umount(&pod);
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the unmount succeeds");
    }
    // The kubelet's directories around the mount points may be read at any time (that is how a
    // volume is found): they are not part of the unmounted filesystem. Nothing on it, and no path
    // where it was mounted, is kept open.
    let places: Vec<_> = pods.into_iter().chain([testbed.path("mnt")]).collect();
    let deadline = Instant::now() + SOON;
    while let Some((process, link)) = holder(daemon.pid().as_raw(), &places) {
        assert!(Instant::now() < deadline, "{process} holds {link:?}");
        tokio::task::yield_now().await;
    }
    // The filesystem itself: no process has it open.
    umount(&testbed.path("mnt"));
    daemon.stop().await;
}

/// A process of the daemon that has a file below one of `places` open, and that file.
fn holder(daemon: i32, places: &[PathBuf]) -> Option<(i32, PathBuf)> {
    processes_below(daemon).into_iter().find_map(|process| {
        let descriptors =
            std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let held = links.find(|link| places.iter().any(|place| link.starts_with(place)))?;
        Some((process, held))
    })
}

fn processes_below(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(parent) = all.get(at).copied() {
        let tasks =
            std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children =
                std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
        at += 1;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_and_an_unmount_show_on_watch_at_once() {
    const ROUNDS: usize = 10;
    let testbed = Testbed::new();
    let folders = folders(&testbed, 1);
    let (source, pod) = &folders[0];
    let id = id(0);
    bind(source, pod);
    let daemon = Daemon::start(&testbed).await;
    daemon.client.normal(&id).await;
    umount(pod);
    daemon.client.raised(&id, "NotMounted", SOON).await;
    let mut watcher = daemon.client.watch().await;
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        bind(source, pod);
        let mounted = Instant::now();
        watcher
            .volume(SOON, "mounted", |volume, change| {
                change == Change::Modified && volume.id == id && !volume.mounts.is_empty()
            })
            .await;
        took.push(mounted.elapsed());
        umount(pod);
        let unmounted = Instant::now();
        watcher
            .volume(SOON, "unmounted", |volume, change| {
                change == Change::Modified && volume.id == id && volume.mounts.is_empty()
            })
            .await;
        took.push(unmounted.elapsed());
    }
    took.sort();
    eprintln!(
        "mount(2) and umount(2) to the event on Watch: median {:?}, worst {:?}",
        took[ROUNDS],
        took[2 * ROUNDS - 1]
    );
    assert!(took[2 * ROUNDS - 1] < Duration::from_secs(3), "{took:?}");
    daemon.stop().await;
}

/// The same for drives that appear and disappear: the kernel's uevents, without udevd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_that_comes_and_goes_shows_on_watch() {
    let testbed = Testbed::new();
    let image = testbed.image("d.img", 16 << 20);
    let daemon = Daemon::start(&testbed).await;
    let mut watcher = daemon.client.watch().await;
    let disk = testbed.attach(&image);
    let attached = Instant::now();
    let drive = watcher
        .drive(SOON, "attached", |drive, _| {
            drive.name == disk.name() && drive.presence() == Presence::Present
        })
        .await;
    let came = attached.elapsed();
    // The kernel detaches a moment after the request.
    disk.detach();
    let detached = Instant::now();
    watcher
        .drive(SOON, "detached", |other, _| {
            other.id == drive.id && other.presence() == Presence::Missing
        })
        .await;
    let went = detached.elapsed();
    eprintln!("a drive on Watch: came after {came:?}, went after {went:?}");
    assert!(
        came < Duration::from_secs(4) && went < Duration::from_secs(4),
        "came after {came:?}, went after {went:?}"
    );
    daemon.stop().await;
}
