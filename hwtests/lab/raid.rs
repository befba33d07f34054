//! md: an array that loses a leg, by command and by a drive that is pulled.

use crate::lab::bench::{BAD, Bench, Evidence, Expected, SUSPECT};
use crate::lab::drives::{self, Bus};

const AT: &str = "/mnt/raid";

pub fn leg_failed_and_pulled(bench: &mut Bench) {
    let (a, b) = (drives::RAID_LEG_A, drives::RAID_LEG_B);
    bench.sh(&format!(
        "mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 --bitmap=internal --size=64M {} {} && mdadm --wait /dev/md0 || true",
        a.link(),
        b.link()
    ));
    let volume = bench.mounted("/dev/md0", "ext4", AT);

    bench.sh(&format!(
        "mdadm --manage /dev/md0 --fail $(readlink -f {})",
        a.link()
    ));
    bench.record(&["Disk failure on"]);
    degraded(bench, &volume);
    // The array says so; the drive itself has done nothing.
    bench.never_said(
        a.id,
        &["DriveMissing", "DriveOffline", "MediaErrors", "IoErrors"],
    );
    bench.sh(&format!("mdadm --manage /dev/md0 --remove failed && mdadm --manage /dev/md0 --re-add $(readlink -f {})", a.link()));
    // A rebuild's end is told by no event: looked at every half minute, or when asked.
    refreshed(bench, &volume);

    bench.guest.unplug(&b);
    // The array notices with its next write.
    bench.sh(&format!(
        "dd if=/dev/zero of={AT}/a bs=64k count=4 conv=fsync"
    ));
    degraded(bench, &volume);
    bench.expect(&Expected {
        subject: b.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(""),
    });
    bench.expect(&Expected {
        subject: &volume,
        reason: "DriveFailing",
        severity: SUSPECT,
        evidence: Evidence::Says(""),
    });
    let seen = bench
        .guest
        .ask(&format!("volume {volume}"))
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        seen["health"], "HEALTH_SUSPECT",
        "it works on one leg: {seen:#}"
    );

    bench.guest.plug(&b, Bus::Scsi(21));
    bench.expect_cleared(b.id, "DriveMissing");
    let name = bench.kernel_name(&b);
    bench.try_sh(
        "mdadm --manage /dev/md0 --remove failed; mdadm --manage /dev/md0 --remove detached",
    );
    bench.sh(&format!(
        "mdadm --manage /dev/md0 --re-add /dev/{name} || mdadm --manage /dev/md0 --add /dev/{name}"
    ));
    refreshed(bench, &volume);
    bench.expect_cleared(&volume, "DriveFailing");
    bench.sh(&format!("umount {AT} && mdadm --stop /dev/md0"));
}

fn refreshed(bench: &mut Bench, volume: &str) {
    bench.try_sh("mdadm --wait /dev/md0");
    bench
        .guest
        .ask("refresh")
        .unwrap_or_else(|error| panic!("{error}"));
    bench.expect_cleared(volume, "RaidDegraded");
}

fn degraded(bench: &mut Bench, volume: &str) {
    bench.expect(&Expected {
        subject: volume,
        reason: "RaidDegraded",
        severity: SUSPECT,
        evidence: Evidence::Says("/md/degraded: 1"),
    });
    let seen = bench
        .guest
        .ask(&format!("volume {volume}"))
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(seen["health"], "HEALTH_SUSPECT", "{seen:#}");
}
