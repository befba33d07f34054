//! LVM's RAID, from a fault to whole: a leg whose data has changed, as dm-integrity finds it, and a leg
//! that is pulled.

use crate::lab::context::{BAD, Context, Evidence, Expected, SUSPECT};
use crate::lab::drives;
use crate::lab::restart::sigkill;

const AT: &str = "/mnt/lvm-raid";
const VOLUME: &str = "labraid/home";

pub fn integrity_and_a_leg_pulled(context: &mut Context) {
    let (a, b) = (drives::LVM_LEG_A, drives::LVM_LEG_B);
    context.add(&[a, b]);
    context.sh(&format!(
        "pvcreate -q -y {0} {1} && vgcreate -q labraid {0} {1} \
         && lvcreate -q -y --type raid1 -m 1 --raidintegrity y -L 100M -n home labraid {0} {1} && udevadm settle",
        a.link(),
        b.link()
    ));
    in_sync(context);
    let volume = context.mounted(&format!("/dev/{VOLUME}"), "ext4", AT);
    context.sh(&format!("dd if=/dev/urandom of={AT}/a bs=1M count=40 conv=fsync"));
    checked(context);
    let before = last_check(context, &volume);
    context.never_raised(a.id, &["IntegrityErrors"]);

    // Something else has written to the leg on the first drive: its checksums do not match. Extents of
    // the first image are on the first drive.
    context.sh("dd if=/dev/urandom of=/dev/mapper/labraid-home_rimage_0_iorig bs=64k seek=800 count=4 conv=fsync,nocreat");
    context.sh("echo 3 > /proc/sys/vm/drop_caches");
    checked(context);
    context.record(&["device-mapper: integrity: dm-"]);
    context.expect(&Expected {
        subject: a.id,
        reason: "IntegrityErrors",
        severity: SUSPECT,
        evidence: Evidence::Says(" integrity "),
    });
    // The other leg has repaired it.
    context.never_raised(&volume, &["FilesystemCorrupted", "RedundancyLost"]);
    context.never_had_finding(&b);
    context.sh(&format!("cat {AT}/a > /dev/null"));
    // Neither a restart nor a second check forgets either.
    let after = last_check(context, &volume);
    assert!(before < after, "{before} {after}");
    sigkill(context);
    assert_eq!(last_check(context, &volume)[..16], after[..16]);
    assert!(context.active(a.id, "IntegrityErrors").is_some());

    context.sh(&format!("lvconvert -q -y --raidintegrity n {VOLUME}"));
    context.guest.unplug(&b);
    context.sh(&format!("dd if=/dev/zero of={AT}/b bs=64k count=4 conv=fsync"));
    context.expect(&Expected {
        subject: &volume,
        reason: "RedundancyLost",
        severity: SUSPECT,
        evidence: Evidence::Says(" raid "),
    });
    context.expect(&Expected {
        subject: b.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(""),
    });
    let target = context.guest.free_scsi_target();
    context.guest.plug(&b, target);
    context.expect_cleared(b.id, "DriveMissing");
    let link = b.link();
    context.until("LVM has the physical volume again", |context| {
        (context.try_sh(&format!("udevadm settle; pvs -q {link}")).status == 0).then_some(())
    });
    context.try_sh(&format!("vgextend -q --restoremissing labraid {link}"));
    context.sh(&format!("lvchange -q -y --refresh {VOLUME}"));
    in_sync(context);
    context.guest.ask("refresh").unwrap_or_else(|error| panic!("{error}"));
    context.expect_cleared(&volume, "RedundancyLost");
    context.unmount(AT);
    context.sh("vgremove -q -f labraid");
}

fn in_sync(context: &mut Context) {
    context.until("both legs are in sync", |context| {
        let line = context.try_sh("dmsetup status labraid-home").stdout;
        (line.contains(" AA ") && line.contains(" idle ")).then_some(())
    });
}

/// A whole check has run, and the daemon has seen its beginning and its end.
fn checked(context: &mut Context) {
    context.sh(&format!("lvchange -q --syncaction check {VOLUME}"));
    context.until("the check has ended", |context| {
        context.guest.ask("refresh").ok()?;
        context.try_sh("dmsetup status labraid-home").stdout.contains(" idle ").then_some(())
    });
    context.guest.ask("refresh").unwrap_or_else(|error| panic!("{error}"));
}

fn last_check(context: &mut Context, volume: &str) -> String {
    context.until("the end of the check is known", |context| {
        let found = context.guest.ask(&format!("volume {volume}")).ok()?;
        let ended = found["scrubs"].as_array()?.first()?["ended"].as_str()?;
        Some(ended.to_owned())
    })
}
