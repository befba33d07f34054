//! md: an array that loses a member, by command and because a drive is pulled.

use crate::lab::context::{BAD, Context, Evidence, Expected, SUSPECT};
use crate::lab::drives;

const AT: &str = "/mnt/raid";

pub fn member_failed_and_pulled(context: &mut Context) {
    let (a, b) = (drives::RAID_LEG_A, drives::RAID_LEG_B);
    context.sh(&format!(
        "mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 --bitmap=internal --size=64M {} {} && mdadm --wait /dev/md0 || true",
        a.link(),
        b.link()
    ));
    let volume = context.mounted("/dev/md0", "ext4", AT);

    context.sh(&format!("mdadm --manage /dev/md0 --fail $(readlink -f {})", a.link()));
    context.record(&["Disk failure on"]);
    degraded(context, &volume);
    // The array reports it; the drive itself has no finding.
    context.never_raised(a.id, &["DriveMissing", "DriveOffline", "MediaErrors", "IoErrors"]);
    context.sh(&format!("mdadm --manage /dev/md0 --remove failed && mdadm --manage /dev/md0 --re-add $(readlink -f {})", a.link()));
    // No event announces the end of a rebuild: it is polled every half minute, or on request.
    refreshed(context, &volume);

    context.guest.unplug(&b);
    // The array notices with its next write.
    context.sh(&format!("dd if=/dev/zero of={AT}/a bs=64k count=4 conv=fsync"));
    degraded(context, &volume);
    context.expect(&Expected {
        subject: b.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(""),
    });
    context.expect(&Expected {
        subject: &volume,
        reason: "DriveFailing",
        severity: SUSPECT,
        evidence: Evidence::Says(""),
    });
    let found =
        context.guest.ask(&format!("volume {volume}")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found["health"], "HEALTH_SUSPECT", "it works on one member: {found:#}");

    let target = context.guest.free_scsi_target();
    context.guest.plug(&b, target);
    context.expect_cleared(b.id, "DriveMissing");
    let name = context.kernel_name(&b);
    context.try_sh(
        "mdadm --manage /dev/md0 --remove failed; mdadm --manage /dev/md0 --remove detached",
    );
    context.sh(&format!(
        "mdadm --manage /dev/md0 --re-add /dev/{name} || mdadm --manage /dev/md0 --add /dev/{name}"
    ));
    refreshed(context, &volume);
    context.expect_cleared(&volume, "DriveFailing");
    context.unmount(AT);
    context.sh("mdadm --stop /dev/md0");
}

/// btrfs goes on with the half that is left, keeps the link of the other in sysfs, and does not count
/// it as missing.
pub fn half_of_a_btrfs_pulled(context: &mut Context) {
    const AT: &str = "/mnt/halves";
    let (a, b) = (drives::BTRFS_HALF_A, drives::BTRFS_HALF_B);
    context.sh(&format!("mkfs.btrfs -q -f -d raid1 -m raid1 {} {}", a.link(), b.link()));
    let volume = context.mount(&a.link(), AT, "defaults");
    // The mount table names the first member, also when it is gone.
    let name = context.kernel_name(&a);
    let is_lost = |context: &mut Context, evidence: &str| {
        context.expect(&Expected {
            subject: &volume,
            reason: "RedundancyLost",
            severity: SUSPECT,
            evidence: Evidence::Says(evidence),
        });
    };
    context.guest.unplug(&a);
    is_lost(context, &format!("the block device {name} is gone"));
    assert!(context.active(&volume, "DeviceMissing").is_none());
    context.sh(&format!("dd if=/dev/zero of={AT}/a bs=64k count=4 conv=fsync"));
    // It returns without what was written, and the kernel does not use it before the next mount.
    let target = context.guest.free_scsi_target();
    context.guest.plug(&a, target);
    context.expect_cleared(a.id, "DriveMissing");
    is_lost(context, &format!("the block device {name} is gone"));
    context.sh(&format!("umount {AT} && btrfs device scan && mount {} {AT}", b.link()));
    is_lost(context, "was away");
    context.sh(&format!("btrfs scrub start -B {AT}"));
    context.guest.ask("refresh").unwrap_or_else(|error| panic!("{error}"));
    // The copies of the other half were good.
    let corrupted = context.active(&volume, "FilesystemCorrupted");
    assert!(corrupted.is_none_or(|found| found["severity"] == SUSPECT));
    // The first one has corrected errors, and proves nothing.
    context.sh(&format!("btrfs scrub start -B {AT}"));
    context.guest.ask("refresh").unwrap_or_else(|error| panic!("{error}"));
    context.expect_cleared(&volume, "RedundancyLost");
    context.unmount(AT);
}

fn refreshed(context: &mut Context, volume: &str) {
    context.try_sh("mdadm --wait /dev/md0");
    context.guest.ask("refresh").unwrap_or_else(|error| panic!("{error}"));
    context.expect_cleared(volume, "RedundancyLost");
}

fn degraded(context: &mut Context, volume: &str) {
    context.expect(&Expected {
        subject: volume,
        reason: "RedundancyLost",
        severity: SUSPECT,
        evidence: Evidence::Says("/md/degraded: 1"),
    });
    let found =
        context.guest.ask(&format!("volume {volume}")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found["health"], "HEALTH_SUSPECT", "{found:#}");
}
