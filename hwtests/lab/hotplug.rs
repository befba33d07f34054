//! Drives that are pulled and come back at another place, under another name.

use crate::lab::bench::{BAD, Bench, Evidence, Expected, INFO};
use crate::lab::drives::{self, Bus, Drive};

/// With a mounted filesystem: the drive is missed, and the volume with it.
fn pulled_while_mounted(bench: &mut Bench, drive: &Drive, returns_at: Bus, at: &str) {
    let name = bench.kernel_name(drive);
    let volume = bench.mounted(&drive.link(), "xfs", at);
    bench.guest.unplug(drive);
    bench.expect(&Expected {
        subject: drive.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(&name),
    });
    bench.expect(&Expected {
        subject: &volume,
        reason: "DeviceMissing",
        severity: BAD,
        evidence: Evidence::Says(at),
    });
    bench.expect(&Expected {
        subject: &volume,
        reason: "DriveFailing",
        severity: BAD,
        evidence: Evidence::Says(""),
    });
    // Still mounted: its old name is in use, so it must get another.
    bench.guest.plug(drive, returns_at);
    bench.expect_cleared(drive.id, "DriveMissing");
    let back = bench
        .guest
        .ask(&format!("drive {}", drive.id))
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(back["presence"], "PRESENCE_PRESENT");
    let now = bench.kernel_name(drive);
    assert_ne!(now, name, "it came back under another name");
    // The mount holds the device that is gone.
    assert!(bench.active(&volume, "DeviceMissing").is_some());
    bench.sh(&format!("umount -l {at}"));
    bench.expect_cleared(&volume, "DeviceMissing");
    bench.expect_cleared(&volume, "DriveFailing");
    bench.sh(&format!("mount {} {at}", drive.link()));
    // That its filesystem met errors, or shut down, is remembered for its time; all else must be
    // over.
    bench.until(
        "the volume is on the drive that returned, and works",
        |bench| {
            let seen = bench.guest.ask(&format!("volume {volume}")).ok()?;
            let still = |one: &serde_json::Value| {
                matches!(
                    one["reason"].as_str(),
                    Some("FilesystemErrors" | "IoErrors")
                )
            };
            let over = seen["findings"].as_array()?.iter().all(still);
            (over && seen["health"] != "HEALTH_UNKNOWN" && seen["driveIds"][0] == drive.id)
                .then_some(())
        },
    );
    bench.sh(&format!("umount {at}"));
    bench.never_said(drive.id, &["MediaErrors", "IoErrors", "IoTimeouts"]);
}

pub fn nvme(bench: &mut Bench) {
    pulled_while_mounted(
        bench,
        &drives::NVME_PULLED,
        Bus::Nvme(9),
        "/mnt/pulled-nvme",
    );
}

pub fn scsi(bench: &mut Bench) {
    pulled_while_mounted(
        bench,
        &drives::SCSI_PULLED,
        Bus::Scsi(20),
        "/mnt/pulled-scsi",
    );
}

/// Nothing was mounted: worth knowing, and no more.
pub fn usb(bench: &mut Bench) {
    let drive = drives::USB_PULLED;
    bench.guest.unplug(&drive);
    bench.expect(&Expected {
        subject: drive.id,
        reason: "DriveMissing",
        severity: INFO,
        evidence: Evidence::Says(""),
    });
    bench.guest.plug(&drive, Bus::Usb(4));
    bench.expect_cleared(drive.id, "DriveMissing");
}

/// QEMU's AHCI takes no drive out; the kernel lets one go on request, and finds it again.
pub fn sata(bench: &mut Bench) {
    let drive = drives::SATA_PULLED;
    let name = bench.kernel_name(&drive);
    let volume = bench.mounted(&drive.link(), "ext4", "/mnt/pulled-sata");
    let host = bench.sh(&format!(
        "basename $(readlink -f /sys/block/{name}/device/../..)"
    ));
    bench.sh(&format!("echo 1 > /sys/block/{name}/device/delete"));
    bench.expect(&Expected {
        subject: drive.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(&name),
    });
    bench.expect(&Expected {
        subject: &volume,
        reason: "DeviceMissing",
        severity: BAD,
        evidence: Evidence::Says("/mnt/pulled-sata"),
    });
    bench.sh("umount -l /mnt/pulled-sata");
    bench.sh(&format!("echo '- - -' > /sys/class/scsi_host/{host}/scan"));
    bench.expect_cleared(drive.id, "DriveMissing");
    bench.expect_cleared(&volume, "DeviceMissing");
}
