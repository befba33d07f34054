//! Before and after the first probe: a mount that has never answered, a path that is another
//! filesystem where it is probed, a device whose I/O stops, and the recovery of each.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use diskvitals_wire::*;
use nix::libc;

use crate::support::daemon::{Arguments, config};
use crate::support::testbed::Claim;
use crate::support::tools::{mount_device, run};
use crate::support::{Daemon, FuseServer, Mode, SOON, Testbed, eventually};

const VOLUME: Claim = Claim {
    driver: "p.csi.example.com",
    handle: "v",
    pv: "pvc-v",
    pod: "2e000000-0000-4000-8000-0000000000b1",
};
const ID: &str = "csi:p.csi.example.com/v";

/// Intervals of a shipped daemon: only what the kernel reports can be sooner.
fn long_intervals(testbed: &Testbed, timeout: &str) -> Arguments {
    let arguments = Arguments::of(testbed);
    let config = config()
        .replace(
            "interval = \"1s\"\ntimeout = \"1s\"",
            &format!("interval = \"600s\"\ntimeout = \"{timeout}\""),
        )
        .replace(
            "interval = \"1s\"\nstalled_after = \"3s\"",
            "interval = \"10s\"\nstalled_after = \"60s\"",
        );
    assert!(config.contains("600s") && config.contains("60s"), "{config}");
    std::fs::write(&arguments.config, config).expect("the configuration");
    arguments
}

/// Clears within five seconds, whatever the interval is.
async fn recovers(daemon: &Daemon, finding: &Finding, recovered: Instant) {
    daemon.client.cleared(&finding.id, SOON).await;
    let took = recovered.elapsed();
    assert!(took < Duration::from_secs(5), "cleared after {took:?}");
    eprintln!("{} cleared after {took:?}", finding.reason);
}

/// One mount as a pod's volume, and one of the host with a device as its source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_that_hangs_from_the_first_probe_is_unknown_and_never_good() {
    let testbed = Testbed::new();
    let content = testbed.image("content", 4096);
    let pod = testbed.kubelet.publish(VOLUME.driver, VOLUME.handle, VOLUME.pv, VOLUME.pod);
    let of_pod = FuseServer::mount(&pod, &content);
    let at = testbed.path("mnt/device");
    let of_host = FuseServer::mount_from("/dev/dvhw-source", &at, &content);
    let host_id = format!("mnt:{}", at.display());
    of_pod.set(Mode::Hang);
    of_host.set(Mode::Hang);

    let arguments = long_intervals(&testbed, "4s");
    let daemon = Daemon::launch(&arguments);
    let client = &daemon.client;
    let mut unknown = 0;
    let bad = eventually("both are known to hang", SOON, async || {
        let node = client.try_node().await.ok()?;
        let mut bad = Vec::new();
        for id in [ID, &host_id] {
            let Ok(volume) = client.try_volume(id).await else {
                continue;
            };
            assert_ne!(volume.health(), Health::Good, "{volume:#?}");
            assert_eq!(volume.capacity, None, "no size is known");
            assert_ne!(node.health(), Health::Good);
            if volume.health() == Health::Bad {
                bad.extend(client.finding(id, "ProbeTimeout").await);
            } else {
                assert_eq!(volume.health_unknown_cause(), UnknownCause::Pending);
                assert!(volume.health_unknown_why.contains("not been probed yet"));
                assert_eq!(volume.condition, None);
                unknown += 1;
            }
        }
        (bad.len() == 2).then_some(bad)
    })
    .await;
    assert!(unknown > 2, "both are unknown before their time-out");

    let recovered = Instant::now();
    of_pod.set(Mode::Pass);
    of_host.set(Mode::Pass);
    for finding in &bad {
        recovers(&daemon, finding, recovered).await;
    }
    client.normal(ID).await;
    client.normal(&host_id).await;
    daemon.stop().await;
}

/// The daemon cannot enter the host's mount namespace, and a disk is mounted after its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_not_mounted_in_a_private_namespace_is_not_measured() {
    let testbed = Testbed::new();
    let before = testbed.ext4("before.img", 32, &[]);
    let known = testbed.path("mnt/before");
    mount_device(&before.device, "ext4", &known, "");
    let mut arguments = Arguments::of(&testbed);
    let words = [
        "/usr/bin/unshare",
        "--mount",
        "--propagation",
        "private",
        "/usr/bin/setpriv",
        "--bounding-set=-sys_admin",
    ];
    arguments.through = words.map(str::to_owned).to_vec();
    let daemon = Daemon::start_with(&arguments).await;
    let client = &daemon.client;
    // It was mounted before the namespace was made: there it is the same filesystem.
    client.normal(&format!("mnt:{}", known.display())).await;

    // Full: measured on the filesystem beneath, it would not be.
    let after = testbed.ext4("after.img", 16, &[]);
    let at = testbed.path("mnt/after");
    mount_device(&after.device, "ext4", &at, "");
    let file = at.join("full");
    let mut zeros = std::io::repeat(0);
    let full = std::io::copy(&mut zeros, &mut std::fs::File::create(file).expect("a file"));
    full.expect_err("the filesystem is full");
    let id = format!("mnt:{}", at.display());
    let volume = eventually("its probe is refused", SOON, async || {
        let volume = client.try_volume(&id).await.ok()?;
        assert_ne!(volume.health(), Health::Good, "{volume:#?}");
        (volume.health_unknown_cause() == UnknownCause::Failed).then_some(volume)
    })
    .await;
    assert!(
        volume.health_unknown_why.contains("is not mounted where volumes are probed"),
        "{volume:#?}"
    );
    assert_eq!((volume.usage, volume.capacity), (None, None));
    daemon.stop().await;
}

/// The directory is not in the cache, and the next probe is due in ten minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_whose_device_stops_is_found_within_thirty_seconds() {
    let testbed = Testbed::new();
    let image = testbed.image("e.img", 64 << 20);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let served = FuseServer::mount(&testbed.path("fuse"), &image);
    let disk = testbed.attach(&served.file());
    testbed.stage_and_publish(&disk, "ext4", "", &VOLUME);
    let daemon = Daemon::start_with(&long_intervals(&testbed, "5s")).await;
    let client = &daemon.client;
    client.normal(ID).await;

    run("/usr/sbin/blockdev", &[&"--flushbufs", &disk.device]);
    served.set(Mode::Hang);
    let stopped = Instant::now();
    let device = disk.device.clone();
    let reader = tokio::task::spawn_blocking(move || {
        let mut file =
            std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(device)?;
        let mut block = AlignedBlock([0; 4096]);
        file.read_exact(&mut block.0)
    });
    let finding = client.raised(ID, "ProbeTimeout", Duration::from_secs(30)).await;
    let took = stopped.elapsed();
    eprintln!("found after {took:?}");
    assert!(!reader.is_finished());

    let recovered = Instant::now();
    served.set(Mode::Pass);
    recovers(&daemon, &finding, recovered).await;
    reader.await.expect("the reader").expect("late, but read");
    client.normal(ID).await;
    daemon.stop().await;
}

/// O_DIRECT needs an aligned buffer.
#[repr(align(4096))]
struct AlignedBlock([u8; 4096]);
