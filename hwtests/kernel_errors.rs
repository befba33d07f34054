//! Real errors on the real kernel: parts of a FUSE file fail below a loop device, and the kernel
//! log reports it.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use diskvitals_wire::*;
use nix::libc;

use crate::attacks::KernelLog;
use crate::support::client::{assert_evidence, assert_finding};
use crate::support::fuse::{Effect, Fault};
use crate::support::testbed::Claim;
use crate::support::tools::{mount_device, run, umount};
use crate::support::{self, Daemon, Disk, FuseServer, SOON, Testbed, eventually};

const VOLUME: Claim = Claim {
    driver: "f.csi.example.com",
    handle: "v",
    pv: "pvc-v",
    pod: "2e000000-0000-4000-8000-000000000001",
};
const ID: &str = "csi:f.csi.example.com/v";
const MIB: u64 = 1 << 20;

pub(crate) fn on_a_server(testbed: &Testbed, image: &Path) -> (FuseServer, Disk) {
    let served = FuseServer::mount(&testbed.path("fuse"), image);
    let disk = testbed.attach(&served.file());
    (served, disk)
}

/// Bypasses the page cache.
fn read_sector(device: &Path, offset: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(device)?;
    file.seek(SeekFrom::Start(offset))?;
    // O_DIRECT needs memory that is aligned to the device's blocks.
    let mut buffer = vec![0_u8; 8192];
    let start = buffer.as_ptr().align_offset(4096);
    file.read_exact(&mut buffer[start..start + 4096])
}

/// The kernel prints ten such records in five seconds (blk_print_req_error()), so an earlier test
/// may have used up the limit. Repeats the failure until it is reported; within ten seconds that is
/// one attempt.
pub(crate) async fn fail_until<T>(
    device: &Path,
    sectors: &[u64],
    mut reported: impl AsyncFnMut() -> Option<T>,
) -> T {
    eventually("the failure is reported", SOON, async || {
        for at in sectors {
            read_sector(device, at * MIB).expect_err("the range fails");
        }
        reported().await
    })
    .await
}

/// For an error that cannot be repeated: waits until the limit is not used up, which is so when
/// nothing was printed for those five seconds.
async fn failures_are_printed() {
    const LIMITED_FOR: Duration = Duration::from_millis(5200);
    let mut log = KernelLog::from_now();
    let mut since = Instant::now();
    eventually("the kernel prints failures again", SOON, async || {
        if log.has("I/O error, dev", "") {
            since = Instant::now();
        }
        (since.elapsed() >= LIMITED_FOR).then_some(())
    })
    .await;
}

/// Another drive with a volume, which must have no finding.
fn control_disk(testbed: &Testbed) -> Disk {
    let disk = testbed.ext4("other.img", 32, &[]);
    mount_device(&disk.device, "ext4", &testbed.path("mnt/other"), "");
    disk
}

pub(crate) async fn assert_no_finding(daemon: &Daemon, disk: &Disk) {
    let drive = daemon.client.drive_named(disk.name()).await;
    // A flood of another test, which has the same kernel, makes every loop device unknown for a while.
    let is_flooded =
        drive.health() == Health::Unknown && drive.health_unknown_why.contains("has lost records");
    assert!(drive.health() == Health::Good || is_flooded, "{drive:#?}");
    assert_eq!((drive.findings.len(), drive.errors.len()), (0, 0), "{drive:#?}");
}

/// One sector is SUSPECT, three are BAD; a quiet period ends both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_errors_are_attributed_to_the_drive_and_its_volume_only() {
    let testbed = Testbed::new();
    let image = testbed.image("e.img", 64 << 20);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    testbed.stage_and_publish(&disk, "ext4", "", &VOLUME);
    let other = control_disk(&testbed);
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    let drive_id = client.normal(ID).await.drive_ids.remove(0);
    let mut watcher = client.watch().await;

    served.fault(vec![Fault::reads(40 * MIB..48 * MIB)]);
    fail_until(&disk.device, &[40], async || client.finding(&drive_id, "IoErrors").await).await;
    let drive = watcher
        .drive(SOON, "the drive's errors", |drive, _| {
            drive.id == drive_id && !drive.errors.is_empty()
        })
        .await;
    assert_eq!(
        (drive.errors[0].class.as_str(), drive.errors[0].sectors[0].sector),
        ("io", 40 * MIB / 512)
    );
    let finding = client.raised(&drive_id, "IoErrors", SOON).await;
    assert_finding(&finding, Severity::Suspect, FindingStatus::Degraded);
    assert_evidence(
        &finding,
        "kernel log",
        &format!("I/O error, dev {}, sector {}", disk.name(), 40 * MIB / 512),
    );
    let volume = client.raised(ID, "IoErrors", SOON).await;
    assert_finding(&volume, Severity::Suspect, FindingStatus::Degraded);
    client.raised(ID, "DriveFailing", SOON).await;
    assert_no_finding(&daemon, &other).await;
    client.cleared(&finding.id, SOON).await;
    client.normal(ID).await;

    let bad = async || {
        client
            .finding(&drive_id, "IoErrors")
            .await
            .filter(|finding| finding.severity() == Severity::Bad)
    };
    let bad = fail_until(&disk.device, &[41, 42], bad).await;
    assert_eq!(
        bad.evidence.first().map(|record| record.text.clone()),
        finding.evidence.first().map(|record| record.text.clone())
    );
    assert!(bad.message.contains("at 3 distinct sectors"), "{bad:#?}");
    assert_no_finding(&daemon, &other).await;
    served.fault(Vec::new());
    client.cleared(&bad.id, SOON).await;
    client.normal(ID).await;
    daemon.stop().await;
}

/// Reads of the second half fail after some have worked; the rest of the device still works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_device_is_reported_only_when_it_fails() {
    let testbed = Testbed::new();
    let image = testbed.image("e.img", 64 << 20);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    testbed.stage_and_publish(&disk, "ext4", "", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    let drive_id = client.normal(ID).await.drive_ids.remove(0);

    let slow = Fault {
        effect: Effect::Slow(Duration::from_millis(300)),
        ..Fault::reads(50 * MIB..51 * MIB)
    };
    served.fault(vec![slow, Fault { after: 2, ..Fault::reads(40 * MIB..48 * MIB) }]);
    for at in [50, 40, 41] {
        read_sector(&disk.device, at * MIB).expect("still works");
    }
    client.probed_anew(&[ID]).await;
    assert!(client.drive(&drive_id).await.expect("known").errors.is_empty());
    let finding =
        fail_until(&disk.device, &[42], async || client.finding(&drive_id, "IoErrors").await).await;
    assert_evidence(&finding, "kernel log", &format!("sector {}", 42 * MIB / 512));
    served.fault(Vec::new());
    client.cleared(&finding.id, SOON).await;
    daemon.stop().await;
}

/// ext4's journal cannot be written: the filesystem is read-only according to its own record and to
/// its options, and the drive has its errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ext4_with_a_failed_journal_write_is_read_only_on_kernel_evidence() {
    let testbed = Testbed::new();
    let image = testbed.image("e.img", 64 << 20);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    let (staging, pod) = testbed.stage_and_publish(&disk, "ext4", "", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    let drive_id = client.normal(ID).await.drive_ids.remove(0);

    failures_are_printed().await;
    served.fault(vec![Fault::writes(0..64 * MIB)]);
    let fail_a_write = |name: &str| {
        // It fails; the test examines how the kernel reports it.
        let _ = std::fs::File::create(pod.join(name)).and_then(|file| file.sync_all());
    };
    fail_a_write("f");
    // First: it clears after three seconds without another error, and an aborted journal has none.
    client.raised(&drive_id, "IoErrors", SOON).await;
    let finding = eventually("it is read-only", SOON, async || {
        fail_a_write("g");
        let finding = client.finding(ID, "ReadOnly").await;
        // A suspicion until ext4's own count is read, or the mount table shows it.
        finding.filter(|finding| finding.severity() == Severity::Bad)
    })
    .await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Degraded);
    assert!(
        finding
            .evidence
            .iter()
            .any(|record| record.source == "kernel log" && record.text.contains(disk.name())),
        "the kernel's record is the evidence: {finding:#?}"
    );

    served.fault(Vec::new());
    umount(&pod);
    umount(&staging);
    run("/usr/sbin/fsck.ext4", &[&"-p", &disk.device]);
    mount_device(&disk.device, "ext4", &staging, "");
    support::tools::bind(&staging, &pod);
    client.cleared(&finding.id, SOON).await;
    client.normal(ID).await;
    daemon.stop().await;
}

/// XFS shuts itself down when its log cannot be written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xfs_that_cannot_write_its_log_has_shut_down() {
    let testbed = Testbed::new();
    let image = testbed.image("x.img", 320 << 20);
    run("/usr/sbin/mkfs.xfs", &[&"-q", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    let (staging, pod) = testbed.stage_and_publish(&disk, "xfs", "", &VOLUME);
    let other = control_disk(&testbed);
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    client.normal(ID).await;

    served.fault(vec![Fault::writes(0..320 * MIB)]);
    std::fs::File::create(pod.join("f"))
        .and_then(|file| file.sync_all())
        .expect_err("the log cannot be written");
    // A suspicion until the probe of the mount answers.
    let finding = eventually("the probe confirms it", SOON, async || {
        let finding = client.raised(ID, "FilesystemShutdown", SOON).await;
        (finding.severity() == Severity::Bad).then_some(finding)
    })
    .await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Inaccessible);
    assert!(!finding.message.contains("log alone"), "{finding:#?}");
    assert_evidence(&finding, "kernel log", &format!("XFS ({})", disk.name()));
    assert_no_finding(&daemon, &other).await;

    served.fault(Vec::new());
    umount(&pod);
    umount(&staging);
    mount_device(&disk.device, "xfs", &staging, "");
    support::tools::bind(&staging, &pod);
    client.cleared(&finding.id, SOON).await;
    client.normal(ID).await;
    daemon.stop().await;
}

/// btrfs counts failed writes, logs them, and finally gives up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_btrfs_that_cannot_write_has_filesystem_errors() {
    let testbed = Testbed::new();
    let image = testbed.image("b.img", 256 << 20);
    run("/usr/sbin/mkfs.btrfs", &[&"-q", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    let (staging, pod) = testbed.stage_and_publish(&disk, "btrfs", "", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    client.normal(ID).await;

    served.fault(vec![Fault::writes(0..256 * MIB)]);
    // It fails; the test examines how btrfs reports it.
    let _ = std::fs::write(pod.join("f"), vec![7; 100_000])
        .and_then(|()| std::fs::File::open(pod.join("f"))?.sync_all());
    let finding = client.raised(ID, "FilesystemErrors", SOON).await;
    assert_evidence(&finding, "kernel log", disk.name());
    served.fault(Vec::new());
    umount(&pod);
    umount(&staging);
    mount_device(&disk.device, "btrfs", &staging, "");
    support::tools::bind(&staging, &pod);
    // A mount repairs nothing: the errors of the device stay counted until they are set to zero.
    run("/usr/bin/btrfs", &[&"device", &"stats", &"-z", &staging]);
    client.cleared(&finding.id, SOON).await;
    daemon.stop().await;
}

/// A damaged directory block: the filesystem reports it, and the drive is not blamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_ext4_finds_is_attributed_to_the_volume_and_not_the_drive() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &["-b", "4096"]);
    let mnt = testbed.path("mnt/e");
    mount_device(&disk.device, "ext4", &mnt, "");
    std::fs::create_dir(mnt.join("folder")).expect("a folder");
    umount(&mnt);
    support::damage::ext4_folder(&disk, "/folder");
    let (_staging, pod) = testbed.stage_and_publish(&disk, "ext4", "errors=continue", &VOLUME);
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    client.normal(ID).await;

    // ext4 may give the reader no error; the kernel log has it.
    if let Ok(entries) = std::fs::read_dir(pod.join("folder")) {
        entries.for_each(drop);
    }
    // A suspicion until ext4's own count is read.
    let finding = eventually("ext4 has counted it", Duration::from_secs(10), async || {
        let finding = client.raised(ID, "FilesystemCorrupted", SOON).await;
        (finding.severity() == Severity::Bad).then_some(finding)
    })
    .await;
    assert_finding(&finding, Severity::Bad, FindingStatus::Degraded);
    assert_evidence(&finding, "kernel log", &format!("EXT4-fs error (device {})", disk.name()));
    assert_no_finding(&daemon, &disk).await;
    daemon.stop().await;
}
