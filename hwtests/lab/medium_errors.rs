//! Sectors that cannot be read, on each transport: what the kernel says of them must reach the
//! drive and the volume on it.

use std::time::Duration;

use crate::lab::context::{BAD, Context, Evidence, Expected, SUSPECT};
use crate::lab::drives::{self, Drive};
use crate::lab::faults::Error;

/// Where no filesystem of this size has written anything.
const SECTORS: [u64; 3] = [409_600, 450_560, 491_520];

#[derive(Clone, Copy)]
enum Then {
    /// It is the same sector that fails again.
    SameSector,
    /// Two others fail as well.
    OtherSectors,
}

/// How a drive fails, and how the kernel says so.
struct Failure {
    drive: Drive,
    error: Error,
    reason: &'static str,
    /// How the block layer begins its record.
    says: &'static str,
    then: Then,
}

/// One error is suspect; what follows makes it bad, and the volume's data in those sectors lost.
fn sectors_fail(context: &mut Context, failure: &Failure) {
    let Failure { drive, reason, .. } = failure;
    let name = context.kernel_name(drive);
    let at = format!("/mnt/{}", drive.node);
    let volume = context.mounted(&drive.link(), "ext4", &at);
    context.guest.fail_reads(drive, failure.error, &SECTORS);
    let record = |sector: u64| format!("{}, dev {name}, sector {sector} ", failure.says);
    // The first record of an incident may be quoted, or the one that decides it.
    let (first, of_the_disk) = (record(SECTORS[0]), format!("[{name}] "));
    let quoted = [
        first.as_str(),
        &of_the_disk,
        "I/O Cmd(0x2)",
        "exception Emask",
        "failed command",
    ];

    assert!(
        !context.read_sector(&drive.link(), SECTORS[0]),
        "the sector can be read"
    );
    context.expect(&Expected {
        subject: drive.id,
        reason,
        severity: SUSPECT,
        evidence: Evidence::Record(&quoted),
    });
    let seen = context
        .guest
        .ask(&format!("drive {}", drive.id))
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(seen["health"], "HEALTH_SUSPECT", "{seen:#}");
    context.expect(&Expected {
        subject: &volume,
        reason: "DriveFailing",
        severity: SUSPECT,
        evidence: Evidence::Says(""),
    });
    // The sector is the volume's own.
    context.expect(&Expected {
        subject: &volume,
        reason: "IoErrors",
        severity: SUSPECT,
        evidence: Evidence::Record(&quoted),
    });

    match failure.then {
        Then::SameSector => {
            // Sooner, it is the same attempt.
            context.pass(Duration::from_secs(11));
            assert!(!context.read_sector(&drive.link(), SECTORS[0]));
        }
        Then::OtherSectors => {
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
    // Only the drive's own word proves a loss.
    let said = if *reason == "MediaErrors" {
        "FINDING_STATUS_DATA_LOSS"
    } else {
        "FINDING_STATUS_DEGRADED"
    };
    assert_eq!(status, said);

    // A drive that answers with an error has not been slow, gone or reset.
    context.never_said(
        drive.id,
        &["DriveMissing", "DriveOffline", "IoTimeouts", "LinkErrors"],
    );
    // The filesystem was not hit: nothing of its own lies there.
    context.never_said(
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
    context.sh(&format!("umount {at}"));
}

const MEDIUM: &str = "critical medium error";

pub fn nvme(context: &mut Context) {
    let failure = Failure {
        drive: drives::NVME_MEDIUM,
        error: Error::Io,
        reason: "MediaErrors",
        says: MEDIUM,
        then: Then::SameSector,
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
        says: "I/O error",
        then: Then::OtherSectors,
    };
    sectors_fail(context, &failure);
    context.never_said(failure.drive.id, &["MediaErrors"]);
}

pub fn scsi(context: &mut Context) {
    let failure = Failure {
        drive: drives::SCSI_MEDIUM,
        error: Error::Medium,
        reason: "MediaErrors",
        says: MEDIUM,
        then: Then::OtherSectors,
    };
    sectors_fail(context, &failure);
}

pub fn megaraid(context: &mut Context) {
    let failure = Failure {
        drive: drives::MEGARAID_MEDIUM,
        error: Error::Medium,
        reason: "MediaErrors",
        says: MEDIUM,
        then: Then::OtherSectors,
    };
    sectors_fail(context, &failure);
}

pub fn sas(context: &mut Context) {
    let failure = Failure {
        drive: drives::SAS_MEDIUM,
        error: Error::Medium,
        reason: "MediaErrors",
        says: MEDIUM,
        then: Then::OtherSectors,
    };
    sectors_fail(context, &failure);
}

pub fn usb(context: &mut Context) {
    let failure = Failure {
        drive: drives::USB_MEDIUM,
        error: Error::Medium,
        reason: "MediaErrors",
        says: MEDIUM,
        then: Then::SameSector,
    };
    sectors_fail(context, &failure);
}

/// A folder with files, of which nothing is in any cache: the journal keeps what it wrote until the
/// filesystem is unmounted.
fn with_metadata(context: &mut Context, drive: &Drive, at: &str, options: &str) {
    context.sh(&format!(
        "mkdir {at}/d && for i in $(seq 200); do echo $i > {at}/d/a-file-with-a-name-$i; done; \
         umount {at} && echo 3 > /proc/sys/vm/drop_caches && mount -o {options} {} {at}",
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
        context
            .try_sh("stat /mnt/meta-ext4/d/a-file-with-a-name-100")
            .status,
        0,
        "the folder can be read"
    );
    let record = format!("EXT4-fs error (device {name})");
    context.expect(&Expected {
        subject: &volume,
        reason: "FilesystemErrors",
        severity: SUSPECT,
        evidence: Evidence::Record(&[&record]),
    });
    let record = format!("I/O error, dev {name}, sector ");
    context.record(&[&record]);
    // One sector or several: that the drive is named is what counts here.
    context.until("the drive is named", |context| {
        context.active(drive.id, "IoErrors")
    });
    context.guest.heal(&drive);
    context.try_sh("umount /mnt/meta-ext4 || umount -l /mnt/meta-ext4");
}

/// XFS on an NVMe drive gives up when it cannot read an inode that a transaction needs.
pub fn metadata_of_xfs(context: &mut Context) {
    let drive = drives::NVME_METADATA;
    let name = context.kernel_name(&drive);
    let volume = context.mounted(&drive.link(), "xfs", "/mnt/meta-xfs");
    with_metadata(context, &drive, "/mnt/meta-xfs", "defaults");
    context.guest.fail_reads(&drive, Error::Io, &[]);
    assert_ne!(
        context.try_sh("ls -l /mnt/meta-xfs/d").status,
        0,
        "the folder can be read"
    );
    let record = format!("XFS ({name}): metadata I/O error");
    context.expect(&Expected {
        subject: &volume,
        reason: "FilesystemErrors",
        severity: SUSPECT,
        evidence: Evidence::Record(&[&record]),
    });
    context.record(&[&format!("critical medium error, dev {name}, sector ")]);
    context.until("the drive is named", |context| {
        context.active(drive.id, "MediaErrors")
    });
    context.guest.heal(&drive);
    context.try_sh("umount /mnt/meta-xfs || umount -l /mnt/meta-xfs");
}
