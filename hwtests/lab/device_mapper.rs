//! Device mapper between drive and filesystem: the mapping fails, and the drive below must have no
//! finding.

use crate::lab::context::{BAD, Context, Evidence, Expected, SUSPECT};
use crate::lab::drives;

/// 300 MiB of the drive.
const SECTORS: u64 = 614_400;

/// Replaces the table of a device in use.
fn replace_table(context: &mut Context, device: &str, table: &str) {
    context.sh(&format!(
        "dmsetup suspend --noflush {device} && dmsetup load {device} --table '0 {SECTORS} {table}' && dmsetup resume {device}"
    ));
}

/// ext4 on an error target, mounted with errors=remount-ro.
pub fn ext4_goes_read_only(context: &mut Context) {
    let drive = drives::BENEATH_DM;
    let device = "/dev/mapper/lab-ext4";
    context.sh(&format!("dmsetup create lab-ext4 --table '0 {SECTORS} linear {} 0'", drive.link()));
    let volume = context.mounted_with(device, "ext4", "/mnt/dm-ext4", "errors=remount-ro");
    replace_table(context, "lab-ext4", "error");
    context.until("ext4 goes read-only", |context| {
        context.try_sh("echo x > /mnt/dm-ext4/w; sync -f /mnt/dm-ext4");
        context
            .records()
            .iter()
            .any(|text| text.contains("Remounting filesystem read-only"))
            .then_some(())
    });
    let record = [
        "Remounting filesystem read-only",
        "Detected aborted journal",
        "Aborting journal on device",
    ];
    // The log is the only evidence: from about 6.1.130 until 6.15 (emergency_ro) the mount's
    // options still show `rw`.
    context.expect(&Expected {
        subject: &volume,
        reason: "ReadOnly",
        severity: BAD,
        evidence: Evidence::Record(&record),
    });
    context.expect(&Expected {
        subject: &volume,
        reason: "FilesystemErrors",
        severity: SUSPECT,
        evidence: Evidence::Record(&[
            "EXT4-fs error (device dm-",
            "EXT4-fs (",
            "EXT4-fs warning (device dm-",
            "JBD2: I/O error",
        ]),
    });
    context.unmount("/mnt/dm-ext4");
    context.expect_cleared(&volume, "ReadOnly");
    context.sh("dmsetup remove lab-ext4");
    context.never_had_finding(&drive);
}

/// XFS on a flakey target that refuses writes: the log cannot be written.
pub fn xfs_shuts_down(context: &mut Context) {
    let drive = drives::BENEATH_DM;
    let device = "/dev/mapper/lab-xfs";
    context.sh(&format!("dmsetup create lab-xfs --table '0 {SECTORS} linear {} 0'", drive.link()));
    let volume = context.mounted(device, "xfs", "/mnt/dm-xfs");
    replace_table(context, "lab-xfs", &format!("flakey {} 0 0 600 1 error_writes", drive.link()));
    context
        .try_sh("dd if=/dev/zero of=/mnt/dm-xfs/w bs=64k count=4 conv=fsync; sync -f /mnt/dm-xfs");
    let record = ["Filesystem has been shut down due to log error"];
    context.expect(&Expected {
        subject: &volume,
        reason: "FilesystemShutdown",
        severity: BAD,
        evidence: Evidence::Record(&record),
    });
    context.expect(&Expected {
        subject: &volume,
        reason: "NotAccessible",
        severity: BAD,
        evidence: Evidence::Says(""),
    });
    context.unmount("/mnt/dm-xfs");
    context.expect_cleared(&volume, "NotAccessible");
    context.sh("dmsetup remove lab-xfs");
    context.never_had_finding(&drive);
}

/// A thin pool whose data space is used up, as the kernel reports it; then it is extended.
pub fn thin_pool_fills_up(context: &mut Context) {
    let drive = drives::BENEATH_POOL;
    context.sh(&format!(
        "pvcreate -q {0} && vgcreate -q lab {0} && lvcreate -q --type thin-pool -L 64M -n pool lab && lvchange -q --errorwhenfull y lab/pool \
         && lvcreate -q -T lab/pool -V 250M -n thin",
        drive.link()
    ));
    let volume = context.mounted("/dev/lab/thin", "ext4", "/mnt/thin");
    context.try_sh("dd if=/dev/zero of=/mnt/thin/fill bs=1M count=120 conv=fsync");
    context.record(&["switching pool to out-of-data-space"]);
    context.expect(&Expected {
        subject: &volume,
        reason: "ThinPoolFull",
        severity: BAD,
        evidence: Evidence::Says("out_of_data_space"),
    });
    // Lack of space is not a medium error, whatever the layers above report.
    context.never_had_finding(&drive);
    context.sh("rm /mnt/thin/fill; lvextend -q -L +150M lab/pool");
    context.expect_cleared(&volume, "ThinPoolFull");
    context.unmount("/mnt/thin");
    context.sh("vgremove -q -f lab; pvremove -q -y $(ls /dev/disk/by-id/wwn-0x5000c50000000016)");
}
