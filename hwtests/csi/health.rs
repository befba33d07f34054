//! Health requests as the kubelet sends them, one volume after another, while a volume hangs, a
//! device fails, or the daemon is down.

use std::time::{Duration, Instant};

use diskvitals_csi::wire::volume_health::VolumeHealthEntry;
use diskvitals_csi::wire::{
    NodeGetCapabilitiesRequest, NodeGetStorageHealthRequest, NodeGetVolumeHealthRequest,
    ProbeRequest, VolumeHealthErrorType,
};
use tonic::Code;

use super::fixture::{MIB, both, claim, configure, ext4, loops_below};
use crate::support::fuse::Fault;
use crate::support::shim::{Csi, DRIVER, Shim};
use crate::support::testbed::Claim;
use crate::support::tools::{bind, mount_device};
use crate::support::{Daemon, FuseServer, Mode, SOON, Testbed, eventually};

fn reasons(entries: &[VolumeHealthEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.reason.as_str()).collect()
}

/// One round of the kubelet (CSIVolumeHealth): capabilities, then health, for each volume in turn.
async fn round(csi: &Csi, handles: &[String]) -> Duration {
    let begun = Instant::now();
    for handle in handles {
        csi.node()
            .node_get_capabilities(NodeGetCapabilitiesRequest {})
            .await
            .expect("capabilities");
        let request =
            NodeGetVolumeHealthRequest { volume_id: handle.clone(), ..Default::default() };
        csi.node()
            .node_get_volume_health(request)
            .await
            .unwrap_or_else(|status| panic!("health of {handle}: {status}"));
    }
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_volume_delays_no_other_and_is_reported() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let mut handles = Vec::new();
    for number in 0..10 {
        let handle = csi.create(&format!("pvc-{number}"), 4 * MIB, ext4()).await.expect("made");
        claim(&testbed, &handle, &format!("pvc-{number}"), ext4()).up(csi).await;
        handles.push(handle);
    }
    // A mount of this driver that does not answer. The daemon knows it by its record and its mount
    // only.
    let backing = testbed.image("hung.img", 1 << 20);
    let served = FuseServer::mount(&testbed.path("fuse"), &backing);
    let volume = Claim {
        driver: DRIVER,
        handle: "hung",
        pv: "pvc-hung",
        pod: "7c000000-0000-4000-8000-000000000001",
    };
    let staging = testbed.kubelet.stage(volume.driver, volume.handle);
    bind(&testbed.path("fuse"), &staging);
    let target = testbed.kubelet.publish(volume.driver, volume.handle, volume.pv, volume.pod);
    bind(&staging, &target);
    eventually("the volume is known", SOON, async || csi.health("hung").await.ok()).await;
    served.set(Mode::Hang);
    let entries = eventually("the hang is reported", SOON, async || {
        let entries = csi.health("hung").await.ok()?;
        entries.iter().any(|entry| entry.reason == "ProbeTimeout").then_some(entries)
    })
    .await;
    assert!(
        entries.iter().any(|entry| entry.status() == VolumeHealthErrorType::Inaccessible),
        "{entries:?}"
    );
    handles.push("hung".into());
    for _ in 0..20 {
        let took = round(csi, &handles).await;
        assert!(took < Duration::from_secs(5), "a round of eleven volumes took {took:?}");
    }
    // Its statistics are the last known ones or an error, without delay.
    let started = Instant::now();
    let _ = csi.stats("hung", &target).await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    served.set(Mode::Pass);
    eventually("the errors are over", SOON, async || {
        csi.health("hung").await.ok().filter(Vec::is_empty)
    })
    .await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn io_that_the_kernel_does_not_count_is_an_error_and_not_the_absence_of_io() {
    let testbed = Testbed::new();
    let (daemon, shim) = both(&testbed, "").await;
    let csi = &shim.csi;
    let handle = csi.create("pvc-1", 16 * MIB, ext4()).await.expect("created");
    let volume = claim(&testbed, &handle, "pvc-1", ext4());
    volume.up(csi).await;
    let quiet = eventually("no I/O is left", SOON, async || {
        let answer = csi.connectivity(&handle).await.ok()?;
        (!answer.ios_in_progress).then_some(answer)
    })
    .await;
    assert!(quiet.connected, "{quiet:?}");
    let [device] = loops_below(&testbed.path("")).try_into().expect("one loop");
    let iostats = format!("/sys/block/{device}/queue/iostats");
    std::fs::write(&iostats, "0").expect("switched off");
    let status = csi.connectivity(&handle).await.expect_err("unknown");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains(&device), "{status}");
    std::fs::write(&iostats, "1").expect("switched on");
    assert!(csi.connectivity(&handle).await.is_ok());
    volume.down(csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_errors_below_a_volume_are_reported_until_they_end() {
    let testbed = Testbed::new();
    let image = testbed.image("d.img", 64 << 20);
    crate::support::tools::run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let served = FuseServer::mount(&testbed.path("fuse"), &image);
    let disk = testbed.attach(&served.file());
    let entries =
        format!("[[static]]\nname = \"disk-1\"\ndevice = \"{}\"\n", disk.device.display());
    let (daemon, shim) = both(&testbed, &entries).await;
    let csi = &shim.csi;
    let volume = claim(&testbed, "disk-1", "disk-1", ext4());
    volume.up(csi).await;
    eventually("the volume is healthy", SOON, async || {
        csi.health("disk-1").await.ok().filter(Vec::is_empty)
    })
    .await;
    let file = volume.target.join("file");
    std::fs::write(&file, vec![7; 1 << 20]).expect("written");
    nix::unistd::sync();
    served.fault(vec![Fault::reads(0..1 << 40)]);
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("nothing is cached");
    let read = tokio::task::spawn_blocking(move || std::fs::read(&file)).await.expect("no panic");
    assert!(read.is_err(), "the read should have failed");
    let entries = eventually("the errors are in the volume health", SOON, async || {
        csi.health("disk-1").await.ok().filter(|entries| !entries.is_empty())
    })
    .await;
    assert!(
        entries.iter().any(|entry| ["IoErrors", "DriveFailing"].contains(&entry.reason.as_str())),
        "{entries:?}"
    );
    let condition = csi
        .stats("disk-1", &volume.target)
        .await
        .expect("statistics")
        .volume_condition
        .expect("a condition");
    assert!(condition.abnormal, "{condition:?}");
    for entry in reasons(&entries) {
        assert!(condition.message.len() <= 1024 && !entry.is_empty());
    }
    served.fault(Vec::new());
    eventually("the errors are over", SOON, async || {
        csi.health("disk-1").await.ok().filter(Vec::is_empty)
    })
    .await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_an_error_at_once_while_the_daemon_is_down_and_recovers() {
    let testbed = Testbed::new();
    let arguments = configure(&testbed, "");
    let daemon = Daemon::start_with(&arguments).await;
    let shim = Shim::start(&testbed, &[]).await;
    let csi = &shim.csi;
    let handle = csi.create("pvc-a", 4 * MIB, ext4()).await.expect("made");
    let volume = claim(&testbed, &handle, "pvc-a", ext4());
    volume.up(csi).await;
    daemon.kill().await;
    for _ in 0..5 {
        let started = Instant::now();
        let away = csi.health(&handle).await.expect_err("an error");
        assert_eq!(away.code(), Code::Unavailable, "{away}");
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        let storage = csi
            .node()
            .node_get_storage_health(NodeGetStorageHealthRequest::default())
            .await
            .expect_err("an error");
        assert_eq!(storage.code(), Code::Unavailable, "{storage}");
    }
    // A liveness probe must not restart the shim for this.
    assert_eq!(
        csi.identity().probe(ProbeRequest {}).await.expect("an answer").into_inner().ready,
        Some(true)
    );
    let daemon = Daemon::start_with(&arguments).await;
    eventually("health is known again", SOON, async || {
        csi.health(&handle).await.ok().filter(Vec::is_empty)
    })
    .await;
    volume.down(csi).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_volumes_and_those_of_other_drivers_are_not_found() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("theirs.img", 32, &[]);
    let theirs = Claim {
        driver: "other.csi.example.com",
        handle: "v",
        pv: "pvc-v",
        pod: "7d000000-0000-4000-8000-000000000001",
    };
    let staging = testbed.kubelet.stage(theirs.driver, theirs.handle);
    mount_device(&disk.device, "ext4", &staging, "");
    let (daemon, shim) = both(&testbed, "").await;
    daemon.client.normal("csi:other.csi.example.com/v").await;
    for handle in ["v", "no-such", "a/b", "../../etc", &"x".repeat(300)] {
        let status = shim.csi.health(handle).await.expect_err(handle);
        assert_eq!(status.code(), Code::NotFound, "{handle}: {status}");
    }
    assert_eq!(
        shim.csi.health("").await.expect_err("nothing is named").code(),
        Code::InvalidArgument
    );
    assert_eq!(shim.csi.list().await, Vec::<String>::new());
    daemon.stop().await;
}
