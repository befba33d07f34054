//! Device mapper between drive and filesystem: what fails is the mapping, and the drive beneath has
//! done nothing.

use crate::lab::bench::{BAD, Bench, Evidence, Expected, SUSPECT};
use crate::lab::drives;

/// 300 MiB of the drive.
const SECTORS: u64 = 614_400;

/// Puts another table under a device in use.
fn replace_table(bench: &mut Bench, device: &str, table: &str) {
    bench.sh(&format!(
        "dmsetup suspend --noflush {device} && dmsetup load {device} --table '0 {SECTORS} {table}' && dmsetup resume {device}"
    ));
}

/// ext4 on an error target, mounted with errors=remount-ro.
pub fn ext4_goes_read_only(bench: &mut Bench) {
    let drive = drives::BENEATH_DM;
    let device = "/dev/mapper/lab-ext4";
    bench.sh(&format!(
        "dmsetup create lab-ext4 --table '0 {SECTORS} linear {} 0'",
        drive.link()
    ));
    let volume = bench.mounted_with(device, "ext4", "/mnt/dm-ext4", "errors=remount-ro");
    replace_table(bench, "lab-ext4", "error");
    bench.until("ext4 goes read-only", |bench| {
        bench.try_sh("echo x > /mnt/dm-ext4/w; sync -f /mnt/dm-ext4");
        bench
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
    // The log is the only witness: from 6.1.130 or so until 6.15 (emergency_ro) the mount's options
    // go on saying `rw`.
    bench.expect(&Expected {
        subject: &volume,
        reason: "ReadOnly",
        severity: BAD,
        evidence: Evidence::Record(&record),
    });
    bench.expect(&Expected {
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
    bench.sh("umount /mnt/dm-ext4");
    bench.expect_cleared(&volume, "ReadOnly");
    bench.sh("dmsetup remove lab-ext4");
    bench.never_blamed(&drive);
}

/// XFS on a flakey target that refuses writes: the log cannot be written.
pub fn xfs_shuts_down(bench: &mut Bench) {
    let drive = drives::BENEATH_DM;
    let device = "/dev/mapper/lab-xfs";
    bench.sh(&format!(
        "dmsetup create lab-xfs --table '0 {SECTORS} linear {} 0'",
        drive.link()
    ));
    let volume = bench.mounted(device, "xfs", "/mnt/dm-xfs");
    replace_table(
        bench,
        "lab-xfs",
        &format!("flakey {} 0 0 600 1 error_writes", drive.link()),
    );
    bench.try_sh("dd if=/dev/zero of=/mnt/dm-xfs/w bs=64k count=4 conv=fsync; sync -f /mnt/dm-xfs");
    let record = ["Filesystem has been shut down due to log error"];
    bench.expect(&Expected {
        subject: &volume,
        reason: "FilesystemShutdown",
        severity: BAD,
        evidence: Evidence::Record(&record),
    });
    bench.expect(&Expected {
        subject: &volume,
        reason: "NotAccessible",
        severity: BAD,
        evidence: Evidence::Says(""),
    });
    bench.sh("umount /mnt/dm-xfs");
    bench.expect_cleared(&volume, "NotAccessible");
    bench.sh("dmsetup remove lab-xfs");
    bench.never_blamed(&drive);
}

/// A thin pool whose data space is used up, as the kernel says it; then it is extended.
pub fn thin_pool_fills_up(bench: &mut Bench) {
    let drive = drives::BENEATH_POOL;
    bench.sh(&format!(
        "pvcreate -q {0} && vgcreate -q lab {0} && lvcreate -q --type thin-pool -L 64M -n pool lab && lvchange -q --errorwhenfull y lab/pool \
         && lvcreate -q -T lab/pool -V 250M -n thin",
        drive.link()
    ));
    let volume = bench.mounted("/dev/lab/thin", "ext4", "/mnt/thin");
    bench.try_sh("dd if=/dev/zero of=/mnt/thin/fill bs=1M count=120 conv=fsync");
    bench.record(&["switching pool to out-of-data-space"]);
    bench.expect(&Expected {
        subject: &volume,
        reason: "ThinPoolFull",
        severity: BAD,
        evidence: Evidence::Says("out_of_data_space"),
    });
    // Space is not an error of the medium, whatever the layers above call it.
    bench.never_blamed(&drive);
    bench.sh("rm /mnt/thin/fill; lvextend -q -L +150M lab/pool");
    bench.expect_cleared(&volume, "ThinPoolFull");
    bench.sh("umount /mnt/thin; vgremove -q -f lab; pvremove -q -y $(ls /dev/disk/by-id/wwn-0x5000c50000000016)");
}
