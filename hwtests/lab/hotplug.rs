//! Drives that are pulled and return in another slot under another name.

use crate::lab::context::{BAD, Context, Evidence, Expected, INFO};
use crate::lab::drives::{self, Bus, Drive};

/// With a mounted filesystem: the drive is missing, and the volume's device with it.
fn pulled_while_mounted(context: &mut Context, drive: &Drive, returns_at: Bus, at: &str) {
    let name = context.kernel_name(drive);
    let volume = context.mounted(&drive.link(), "xfs", at);
    context.guest.unplug(drive);
    // A scan between the removal of an NVMe controller's namespaces and its own names the controller.
    let last_name = name.split_once("n1").map_or(name.as_str(), |(first, _)| first);
    context.expect(&Expected {
        subject: drive.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(last_name),
    });
    context.expect(&Expected {
        subject: &volume,
        reason: "DeviceMissing",
        severity: BAD,
        evidence: Evidence::Says(at),
    });
    context.expect(&Expected {
        subject: &volume,
        reason: "DriveFailing",
        severity: BAD,
        evidence: Evidence::Says(""),
    });
    // Still mounted: its old name is in use, so it must get another.
    context.guest.plug(drive, returns_at);
    context.expect_cleared(drive.id, "DriveMissing");
    let back =
        context.guest.ask(&format!("drive {}", drive.id)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(back["presence"], "PRESENCE_PRESENT");
    let now = context.kernel_name(drive);
    assert_ne!(now, name, "it came back under another name");
    // The mount holds the removed device.
    assert!(context.active(&volume, "DeviceMissing").is_some());
    context.sh(&format!("umount -l {at}"));
    context.expect_cleared(&volume, "DeviceMissing");
    context.expect_cleared(&volume, "DriveFailing");
    context.sh(&format!("mount {} {at}", drive.link()));
    // Filesystem errors or a shutdown stay for their clearing time; all other findings must be
    // over.
    context.until("the volume is on the drive that returned, and works", |context| {
        let found = context.guest.ask(&format!("volume {volume}")).ok()?;
        let still = |one: &serde_json::Value| {
            matches!(one["reason"].as_str(), Some("FilesystemErrors" | "IoErrors"))
        };
        let over = found["findings"].as_array()?.iter().all(still);
        (over && found["health"] != "HEALTH_UNKNOWN" && found["driveIds"][0] == drive.id)
            .then_some(())
    });
    context.unmount(at);
    context.never_raised(drive.id, &["MediaErrors", "IoErrors", "IoTimeouts"]);
}

pub fn nvme(context: &mut Context) {
    pulled_while_mounted(context, &drives::NVME_PULLED, Bus::Nvme(9), "/mnt/pulled-nvme");
}

pub fn scsi(context: &mut Context) {
    let target = context.guest.free_scsi_target();
    pulled_while_mounted(context, &drives::SCSI_PULLED, target, "/mnt/pulled-scsi");
}

/// Nothing was mounted: missing, with severity INFO only.
pub fn usb(context: &mut Context) {
    let drive = drives::USB_PULLED;
    context.guest.unplug(&drive);
    context.expect(&Expected {
        subject: drive.id,
        reason: "DriveMissing",
        severity: INFO,
        evidence: Evidence::Says(""),
    });
    context.guest.plug(&drive, Bus::Usb(4));
    context.expect_cleared(drive.id, "DriveMissing");
}

/// QEMU's AHCI cannot unplug a drive; the kernel deletes one on request and finds it again.
pub fn sata(context: &mut Context) {
    let drive = drives::SATA_PULLED;
    let name = context.kernel_name(&drive);
    let volume = context.mounted(&drive.link(), "ext4", "/mnt/pulled-sata");
    let host = context.sh(&format!("basename $(readlink -f /sys/block/{name}/device/../..)"));
    context.sh(&format!("echo 1 > /sys/block/{name}/device/delete"));
    context.expect(&Expected {
        subject: drive.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(&name),
    });
    context.expect(&Expected {
        subject: &volume,
        reason: "DeviceMissing",
        severity: BAD,
        evidence: Evidence::Says("/mnt/pulled-sata"),
    });
    context.sh("umount -l /mnt/pulled-sata");
    context.sh(&format!("echo '- - -' > /sys/class/scsi_host/{host}/scan"));
    context.expect_cleared(drive.id, "DriveMissing");
    context.expect_cleared(&volume, "DeviceMissing");
}
