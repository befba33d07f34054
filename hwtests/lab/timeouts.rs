//! Drives that do not answer in time: the kernel's recovery is reported as a timeout or reset, and
//! not as a bad medium.

use crate::lab::context::{Context, Evidence, Expected, SUSPECT};
use crate::lab::drives::{self, Drive};

/// 4 KiB take five seconds.
const CRAWL: u64 = 800;

/// Several reads at once, in the background: the first may pass before the throttle takes effect.
fn reads_that_wait(context: &mut Context, drive: &Drive) {
    context.guest.throttle(drive, CRAWL);
    for position in 1..=3 {
        context.sh(&format!(
            "systemd-run -q --collect dd if={} of=/dev/null bs=4096 skip={} count=1 iflag=direct",
            drive.link(),
            position * 1000
        ));
    }
}

pub fn nvme(context: &mut Context) {
    let drive = drives::NVME_SLOW;
    let name = context.kernel_name(&drive);
    let controller = context.sh(&format!("basename $(readlink -f /sys/block/{name}/device)"));
    context.sh(&format!("echo 1500 > /sys/block/{name}/queue/io_timeout"));
    reads_that_wait(context, &drive);
    context.record(&["timeout, aborting"]);
    let late = format!("nvme {controller}: I/O ");
    context.expect(&Expected {
        subject: drive.id,
        reason: "IoTimeouts",
        severity: SUSPECT,
        evidence: Evidence::Record(&[&late]),
    });
    let reset = ["timeout, reset controller", "timeout, aborting", "Abort status"];
    context.expect(&Expected {
        subject: drive.id,
        reason: "ControllerResets",
        severity: SUSPECT,
        evidence: Evidence::Record(&reset),
    });
    context.guest.throttle(&drive, 0);
    context.until("the drive reads again", |context| {
        context.read_sector(&drive.link(), 8192).then_some(())
    });
    context.never_raised(drive.id, &["MediaErrors", "DriveOffline", "DriveMissing"]);
}

pub fn sata(context: &mut Context) {
    let drive = drives::SATA_SLOW;
    let name = context.kernel_name(&drive);
    context.sh(&format!("echo 2 > /sys/block/{name}/device/timeout"));
    reads_that_wait(context, &drive);
    // The record names the port, not the disk: ataN, which sysfs maps to the disk.
    let late = ["Emask 0x4 (timeout)", "exception Emask", "failed command"];
    context.expect(&Expected {
        subject: drive.id,
        reason: "IoTimeouts",
        severity: SUSPECT,
        evidence: Evidence::Record(&late),
    });
    context.record(&["hard resetting link"]);
    context.guest.throttle(&drive, 0);
    context.until("the drive reads again", |context| {
        context.read_sector(&drive.link(), 8192).then_some(())
    });
    context.never_raised(drive.id, &["MediaErrors", "DriveOffline", "DriveMissing"]);
}
