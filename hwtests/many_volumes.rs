//! Two hundred volumes at once, one of them hung.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use diskvitals_wire::*;

use crate::support::client::assert_finding;
use crate::support::testbed::Claim;
use crate::support::tools::bind;
use crate::support::{Daemon, FuseServer, Mode, SOON, Testbed, eventually};

const DRIVER: &str = "many.csi.example.com";
const DISKS: usize = 40;
const PER_DISK: usize = 5;
const TOGETHER: usize = DISKS * PER_DISK;

/// Forty loop devices with five volumes each: the first is the filesystem, staged and published,
/// the others are directories of it. The last volume is on a FUSE server instead.
fn two_hundred(testbed: &Testbed) -> FuseServer {
    let mut served = None;
    for disk in 0..DISKS {
        let device = testbed.ext4(
            &format!("{disk}.img"),
            8,
            &["-E", "lazy_itable_init=0", "-O", "^has_journal"],
        );
        let (handle, pv, pod) = names(disk * PER_DISK);
        let claim = Claim { driver: DRIVER, handle: &handle, pv: &pv, pod: &pod };
        let (staging, _) = testbed.stage_and_publish(&device, "ext4", "", &claim);
        for number in disk * PER_DISK + 1..(disk + 1) * PER_DISK {
            let (handle, pv, pod) = names(number);
            let at = testbed.kubelet.publish(DRIVER, &handle, &pv, &pod);
            if number == TOGETHER - 1 {
                served = Some(FuseServer::mount(&at, &testbed.image("content", 4096)));
            } else {
                let folder = staging.join(&handle);
                std::fs::create_dir(&folder).expect("a folder");
                bind(&folder, &at);
            }
        }
    }
    served.expect("the last one")
}

fn names(number: usize) -> (String, String, String) {
    (
        format!("v{number:03}"),
        format!("pvc-{number:03}"),
        format!("3e000000-0000-4000-8000-{number:012}"),
    )
}

fn id(number: usize) -> String {
    format!("csi:{DRIVER}/v{number:03}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hung_volume_of_two_hundred_delays_no_other() {
    let testbed = Testbed::new();
    let served = two_hundred(&testbed);
    served.set(Mode::Hang);
    let started = Instant::now();
    let daemon = Daemon::start(&testbed).await;
    eprintln!(
        "{TOGETHER} volumes on {DISKS} drives, one hung: complete snapshot after {:?}",
        daemon.settled_after
    );
    assert!(
        daemon.settled_after < Duration::from_secs(10),
        "complete snapshot after {:?}",
        daemon.settled_after
    );
    let monitor = daemon.monitor();
    let client = &daemon.client;

    let hung = id(TOGETHER - 1);
    let finding = client.raised(&hung, "ProbeTimeout", SOON).await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Inaccessible);
    let volumes = eventually("every other volume is measured and good", SOON, async || {
        let volumes: Vec<Volume> =
            client.volumes().await.into_iter().filter(|volume| volume.driver == DRIVER).collect();
        let good = volumes
            .iter()
            .filter(|volume| volume.usage.is_some() && volume.health() == Health::Good)
            .count();
        (good == TOGETHER - 1).then_some(volumes)
    })
    .await;
    eprintln!("all measured {:?} after the start", started.elapsed());
    let listed: BTreeSet<String> = volumes.iter().map(|volume| volume.id.clone()).collect();
    assert_eq!(listed, (0..TOGETHER).map(id).collect());
    let drives: BTreeSet<&String> = volumes.iter().flat_map(|volume| &volume.drive_ids).collect();
    assert_eq!(drives.len(), DISKS);
    assert_eq!(
        client
            .findings(false)
            .await
            .iter()
            .filter(|finding| finding
                .subject
                .as_ref()
                .is_some_and(|subject| listed.contains(&subject.id)))
            .count(),
        1
    );

    // A whole probe round of all the others, while one hangs.
    let others: Vec<String> = (0..TOGETHER - 1).map(id).collect();
    client.probed_anew(&others.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(client.node().await.stuck_probes, 1);
    let latency = monitor.finish().await;
    eprintln!(
        "{} answers meanwhile: median {:?}, p99 {:?}, worst {:?}",
        latency.calls, latency.median, latency.p99, latency.worst
    );

    served.set(Mode::Pass);
    client.cleared(&finding.id, SOON).await;
    client.normal(&hung).await;
    daemon.stop().await;
}
