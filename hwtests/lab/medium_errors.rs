//! Sectors that cannot be read, on each transport: the kernel's records must become findings of the
//! drive and of the volume on it.

use std::time::Duration;

use crate::lab::context::{BAD, Context, Evidence, Expected, SUSPECT};
use crate::lab::drives::{self, Drive};
use crate::lab::faults::Error;

/// Positions to which no filesystem of this size has written.
const SECTORS: [u64; 3] = [409_600, 450_560, 491_520];

#[derive(Clone, Copy)]
enum Repetition {
    /// The same sector fails again.
    SameSector,
    /// Two others fail as well.
    OtherSectors,
}

/// How a drive fails, and how the kernel logs it.
struct Failure {
    drive: Drive,
    error: Error,
    reason: &'static str,
    /// The start of the block layer's record.
    record_text: &'static str,
    then: Repetition,
}

/// One error is SUSPECT. The following errors make it BAD, and the volume's data in those sectors
/// is lost.
fn sectors_fail(context: &mut Context, failure: &Failure) {
    let Failure { drive, reason, .. } = failure;
    let name = context.kernel_name(drive);
    let at = format!("/mnt/{}", drive.node);
    let volume = context.mounted(&drive.link(), "ext4", &at);
    context.guest.fail_reads(drive, failure.error, &SECTORS);
    let record = |sector: u64| format!("{}, dev {name}, sector {sector} ", failure.record_text);
    // The evidence may quote the first record of an incident, or the decisive one.
    let (first, of_the_disk) = (record(SECTORS[0]), format!("[{name}] "));
    let quoted =
        [first.as_str(), &of_the_disk, "I/O Cmd(0x2)", "exception Emask", "failed command"];

    assert!(!context.read_sector(&drive.link(), SECTORS[0]), "the sector can be read");
    context.expect(&Expected {
        subject: drive.id,
        reason,
        severity: SUSPECT,
        evidence: Evidence::Record(&quoted),
    });
    let found =
        context.guest.ask(&format!("drive {}", drive.id)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found["health"], "HEALTH_SUSPECT", "{found:#}");
    context.expect(&Expected {
        subject: &volume,
        reason: "DriveFailing",
        severity: SUSPECT,
        evidence: Evidence::Says(""),
    });
    // The sector belongs to the volume.
    context.expect(&Expected {
        subject: &volume,
        reason: "IoErrors",
        severity: SUSPECT,
        evidence: Evidence::Record(&quoted),
    });

    match failure.then {
        Repetition::SameSector => {
            // Sooner, it would count as the same attempt.
            context.pass(Duration::from_secs(11));
            assert!(!context.read_sector(&drive.link(), SECTORS[0]));
        }
        Repetition::OtherSectors => {
            for sector in &SECTORS[1..] {
                assert!(!context.read_sector(&drive.link(), *sector));
                context.record(&[&record(*sector)]);
            }
        }
    }
    context.expect(&Expected {
        subject: drive.id,
        reason,
        severity: BAD,
        evidence: Evidence::Record(&quoted),
    });
    context.expect(&Expected {
        subject: &volume,
        reason: "DriveFailing",
        severity: BAD,
        evidence: Evidence::Says(""),
    });
    let lost = context.expect(&Expected {
        subject: &volume,
        reason: "IoErrors",
        severity: BAD,
        evidence: Evidence::Record(&quoted),
    });
    let status = &lost["status"];
    // Only the drive's own report proves a loss.
    let expected_status = if *reason == "MediaErrors" {
        "FINDING_STATUS_DATA_LOSS"
    } else {
        "FINDING_STATUS_DEGRADED"
    };
    assert_eq!(status, expected_status);

    // A drive that answers with an error was not slow, removed or reset.
    context.never_raised(drive.id, &["DriveMissing", "DriveOffline", "IoTimeouts", "LinkErrors"]);
    // The filesystem is not affected: none of its metadata is there.
    context.never_raised(
        &volume,
        &[
            "FilesystemErrors",
            "FilesystemCorrupted",
            "FilesystemShutdown",
            "ReadOnly",
            "NotAccessible",
        ],
    );
    context.guest.heal(drive);
    context.unmount(&at);
}

const MEDIUM: &str = "critical medium error";

pub fn nvme(context: &mut Context) {
    let failure = Failure {
        drive: drives::NVME_MEDIUM,
        error: Error::Io,
        reason: "MediaErrors",
        record_text: MEDIUM,
        then: Repetition::SameSector,
    };
    sectors_fail(context, &failure);
}

/// QEMU's ATA disks abort the command and do not say "uncorrectable": an I/O error, after the
/// kernel's own six attempts.
pub fn sata(context: &mut Context) {
    let failure = Failure {
        drive: drives::SATA_MEDIUM,
        error: Error::Io,
        reason: "IoErrors",
        record_text: "I/O error",
        then: Repetition::OtherSectors,
    };
    sectors_fail(context, &failure);
    context.never_raised(failure.drive.id, &["MediaErrors"]);
}

pub fn scsi(context: &mut Context) {
    let failure = Failure {
        drive: drives::SCSI_MEDIUM,
        error: Error::Medium,
        reason: "MediaErrors",
        record_text: MEDIUM,
        then: Repetition::OtherSectors,
    };
    sectors_fail(context, &failure);
}

pub fn megaraid(context: &mut Context) {
    let failure = Failure {
        drive: drives::MEGARAID_MEDIUM,
        error: Error::Medium,
        reason: "MediaErrors",
        record_text: MEDIUM,
        then: Repetition::OtherSectors,
    };
    sectors_fail(context, &failure);
}

pub fn sas(context: &mut Context) {
    let failure = Failure {
        drive: drives::SAS_MEDIUM,
        error: Error::Medium,
        reason: "MediaErrors",
        record_text: MEDIUM,
        then: Repetition::OtherSectors,
    };
    sectors_fail(context, &failure);
}

pub fn usb(context: &mut Context) {
    let failure = Failure {
        drive: drives::USB_MEDIUM,
        error: Error::Medium,
        reason: "MediaErrors",
        record_text: MEDIUM,
        then: Repetition::SameSector,
    };
    sectors_fail(context, &failure);
}

/// A directory with files that are in no cache: the journal keeps what it wrote until the
/// filesystem is unmounted.
fn with_metadata(context: &mut Context, drive: &Drive, at: &str, options: &str) {
    context.sh(&format!(
        "mkdir {at}/d && for i in $(seq 200); do echo $i > {at}/d/a-file-with-a-name-$i; done"
    ));
    context.unmount(at);
    context.sh(&format!(
        "echo 3 > /proc/sys/vm/drop_caches && mount -o {options} {} {at}",
        drive.link()
    ));
}

/// ext4 on a SATA disk: its own metadata cannot be read.
pub fn metadata_of_ext4(context: &mut Context) {
    let drive = drives::SATA_METADATA;
    let name = context.kernel_name(&drive);
    let volume = context.mounted_with(&drive.link(), "ext4", "/mnt/meta-ext4", "errors=continue");
    with_metadata(context, &drive, "/mnt/meta-ext4", "errors=continue");
    context.guest.fail_reads(&drive, Error::Io, &[]);
    assert_ne!(
        context.try_sh("stat /mnt/meta-ext4/d/a-file-with-a-name-100").status,
        0,
        "the folder can be read"
    );
    let record = format!("EXT4-fs error (device {name})");
    // The daemon's own probe may be the first to read a folder.
    let probed = format!("EXT4-fs warning (device {name}): htree_dirblock_to_tree");
    context.expect(&Expected {
        subject: &volume,
        reason: "FilesystemErrors",
        severity: SUSPECT,
        evidence: Evidence::Record(&[&record, &probed]),
    });
    let record = format!("I/O error, dev {name}, sector ");
    context.record(&[&record]);
    // One sector or several: only the drive's name matters here.
    context.until("the drive is named", |context| context.active(drive.id, "IoErrors"));
    context.guest.heal(&drive);
    context.try_sh("umount /mnt/meta-ext4 || umount -l /mnt/meta-ext4");
}

/// XFS on an NVMe drive shuts down when it cannot read an inode that a transaction needs.
pub fn metadata_of_xfs(context: &mut Context) {
    let drive = drives::NVME_METADATA;
    let name = context.kernel_name(&drive);
    let volume = context.mounted(&drive.link(), "xfs", "/mnt/meta-xfs");
    with_metadata(context, &drive, "/mnt/meta-xfs", "defaults");
    context.guest.fail_reads(&drive, Error::Io, &[]);
    assert_ne!(context.try_sh("ls -l /mnt/meta-xfs/d").status, 0, "the folder can be read");
    let record = format!("XFS ({name}): metadata I/O error");
    context.expect(&Expected {
        subject: &volume,
        reason: "FilesystemErrors",
        severity: SUSPECT,
        evidence: Evidence::Record(&[&record]),
    });
    context.record(&[&format!("critical medium error, dev {name}, sector ")]);
    context.until("the drive is named", |context| context.active(drive.id, "MediaErrors"));
    context.guest.heal(&drive);
    context.try_sh("umount /mnt/meta-xfs || umount -l /mnt/meta-xfs");
}
