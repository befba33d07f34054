//! The daemon is killed: its knowledge survives the restart, and the kernel's records are counted
//! once.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::lab::context::{BAD, Context, Evidence, Expected};
use crate::lab::drives;
use crate::lab::faults::Error;

/// The daemon is killed, and has started again.
pub(crate) fn sigkill(context: &mut Context) {
    let restarts = context.sh("systemctl show -P NRestarts diskvitalsd");
    context.sh("systemctl kill -s KILL diskvitalsd");
    context.until("systemd has restarted the daemon, and its snapshot is complete", |context| {
        let again = context.sh("systemctl show -P NRestarts diskvitalsd") != restarts;
        let node = context.guest.ask("status").ok()?;
        (again && node["settled"] == true).then_some(())
    });
}

fn kept(before: &Value, after: &Value) {
    for field in ["id", "severity", "subject"] {
        assert_eq!(before[field], after[field], "{field} of {before:#} is not kept in {after:#}");
    }
    let since = |finding: &Value| -> Timestamp {
        let text = finding["since"].as_str().expect("a time");
        text.parse().expect("a time")
    };
    // A run shows times by the wall clock of its start, which is adjusted by milliseconds.
    let moved = since(after).duration_since(since(before)).abs();
    assert!(
        moved < SignedDuration::from_secs(1),
        "since of {before:#} is moved by {moved} in {after:#}"
    );
}

pub fn killed_between_errors(context: &mut Context) {
    let drive = drives::SCSI_RESTART;
    let name = context.kernel_name(&drive);

    // Errors before and after the restart: the log's records are counted once.
    let sectors: Vec<u64> = (0..8).map(|number| 300_000 + number * 800).collect();
    context.guest.fail_reads(&drive, Error::Medium, &sectors);
    let record = format!("critical medium error, dev {name}, sector ");
    for sector in &sectors[..4] {
        assert!(!context.read_sector(&drive.link(), *sector));
    }
    let (first, of_the_disk) = (format!("{record}{} ", sectors[0]), format!("[{name}] "));
    let evidence = Evidence::Record(&[&first, &of_the_disk]);
    let before = context.expect(&Expected {
        subject: drive.id,
        reason: "MediaErrors",
        severity: BAD,
        evidence,
    });
    // These occur while the daemon is down or starting.
    context.sh("systemctl kill -s KILL diskvitalsd");
    for sector in &sectors[4..] {
        assert!(!context.read_sector(&drive.link(), *sector));
        context.record(&[&format!("{record}{sector} ")]);
    }
    context.until("a complete snapshot after the restart", |context| {
        context.guest.ask("status").ok().filter(|node| node["settled"] == true)
    });
    // Each of these records ends an incident of its own.
    let counted =
        context.records().iter().filter(|text| text.contains(&record)).count().to_string();
    context.until("every incident is counted, once", |context| {
        let found = context.guest.ask(&format!("drive {}", drive.id)).ok()?;
        let media =
            found["errors"].as_array()?.iter().find(|tally| tally["class"] == "medium")?.clone();
        (media["incidents"] == counted).then_some(())
    });
    let after = context.active(drive.id, "MediaErrors").expect("the finding is kept");
    kept(&before, &after);
    context.guest.heal(&drive);

    context.mounted(&drive.link(), "ext4", "/mnt/restart");
    context.guest.unplug(&drive);
    let missing = Expected {
        subject: drive.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(""),
    };
    let before = context.expect(&missing);
    sigkill(context);
    let after = context.expect(&missing);
    kept(&before, &after);
    // The drive returns while the daemon is down.
    context.sh("systemctl stop diskvitalsd");
    let target = context.guest.free_scsi_target();
    context.guest.plug(&drive, target);
    context.kernel_name(&drive);
    context.sh("umount -l /mnt/restart; systemctl start diskvitalsd");
    context.expect_cleared(drive.id, "DriveMissing");
}

/// Its device is missing, and with it the UUID that its id contains: only the stored state
/// identifies the mount's volume.
pub fn a_volume_without_its_device(context: &mut Context) {
    let drive = drives::SCSI_FORGOTTEN;
    let volume = context.mounted(&drive.link(), "ext4", "/mnt/forgotten");
    context.guest.unplug(&drive);
    let missing = Expected {
        subject: &volume,
        reason: "DeviceMissing",
        severity: BAD,
        evidence: Evidence::Says("/mnt/forgotten"),
    };
    let before = context.expect(&missing);
    sigkill(context);
    // By then mounts have been read and probed again.
    context.until("the mount was probed again", |context| {
        context.findings(false).into_iter().find(|one| one["reason"] == "NotAccessible")
    });
    let after = context.expect(&missing);
    kept(&before, &after);
    context.sh("umount -l /mnt/forgotten");
    let target = context.guest.free_scsi_target();
    context.guest.plug(&drive, target);
    context.expect_cleared(&volume, "DeviceMissing");
    context.expect_cleared(drive.id, "DriveMissing");
}
