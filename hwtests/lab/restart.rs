//! The daemon dies in the middle: what it knew is known after its restart, and the kernel's records
//! are counted once.

use serde_json::Value;

use crate::lab::bench::{BAD, Bench, Evidence, Expected};
use crate::lab::drives::{self, Bus};
use crate::lab::faults::Error;

fn sigkill(bench: &mut Bench) {
    let restarts = bench.sh("systemctl show -P NRestarts diskvitalsd");
    bench.sh("systemctl kill -s KILL diskvitalsd");
    bench.until(
        "systemd has started it again, and it has its full picture",
        |bench| {
            let again = bench.sh("systemctl show -P NRestarts diskvitalsd") != restarts;
            let node = bench.guest.ask("status").ok()?;
            (again && node["settled"] == true).then_some(())
        },
    );
}

fn kept(before: &Value, after: &Value) {
    for field in ["id", "since", "severity", "subject"] {
        assert_eq!(
            before[field], after[field],
            "{field} of {before:#} is not kept in {after:#}"
        );
    }
}

pub fn killed_in_the_middle(bench: &mut Bench) {
    let drive = drives::SCSI_RESTART;
    let name = bench.kernel_name(&drive);

    // Errors before and after: what the log holds is counted, once.
    let sectors: Vec<u64> = (0..8).map(|number| 300_000 + number * 800).collect();
    bench.guest.fail_reads(&drive, Error::Medium, &sectors);
    let record = format!("critical medium error, dev {name}, sector ");
    for sector in &sectors[..4] {
        assert!(!bench.read_sector(&drive.link(), *sector));
    }
    let (first, of_the_disk) = (format!("{record}{} ", sectors[0]), format!("[{name}] "));
    let evidence = Evidence::Record(&[&first, &of_the_disk]);
    let before = bench.expect(&Expected {
        subject: drive.id,
        reason: "MediaErrors",
        severity: BAD,
        evidence,
    });
    // These come while it is dead, or while it starts.
    bench.sh("systemctl kill -s KILL diskvitalsd");
    for sector in &sectors[4..] {
        assert!(!bench.read_sector(&drive.link(), *sector));
        bench.record(&[&format!("{record}{sector} ")]);
    }
    bench.until("it has its full picture again", |bench| {
        bench
            .guest
            .ask("status")
            .ok()
            .filter(|node| node["settled"] == true)
    });
    // Each of these records ends an incident of its own.
    let told = bench
        .records()
        .iter()
        .filter(|text| text.contains(&record))
        .count()
        .to_string();
    bench.until("every incident is counted, once", |bench| {
        let seen = bench.guest.ask(&format!("drive {}", drive.id)).ok()?;
        let media = seen["errors"]
            .as_array()?
            .iter()
            .find(|tally| tally["class"] == "medium")?
            .clone();
        (media["incidents"] == told).then_some(())
    });
    let after = bench
        .active(drive.id, "MediaErrors")
        .expect("the finding is kept");
    kept(&before, &after);
    bench.guest.heal(&drive);

    bench.mounted(&drive.link(), "ext4", "/mnt/restart");
    bench.guest.unplug(&drive);
    let missing = Expected {
        subject: drive.id,
        reason: "DriveMissing",
        severity: BAD,
        evidence: Evidence::Says(""),
    };
    let before = bench.expect(&missing);
    sigkill(bench);
    let after = bench.expect(&missing);
    kept(&before, &after);
    // It returns while nobody looks.
    bench.sh("systemctl stop diskvitalsd");
    bench.guest.plug(&drive, Bus::Scsi(22));
    bench.kernel_name(&drive);
    bench.sh("umount -l /mnt/restart; systemctl start diskvitalsd");
    bench.expect_cleared(drive.id, "DriveMissing");
}

/// Its device is gone, and with it the UUID that its id is made of: only the daemon's memory knows
/// whose mount this is.
pub fn a_volume_without_its_device(bench: &mut Bench) {
    let drive = drives::SCSI_FORGOTTEN;
    let volume = bench.mounted(&drive.link(), "ext4", "/mnt/forgotten");
    bench.guest.unplug(&drive);
    let missing = Expected {
        subject: &volume,
        reason: "DeviceMissing",
        severity: BAD,
        evidence: Evidence::Says("/mnt/forgotten"),
    };
    let before = bench.expect(&missing);
    sigkill(bench);
    // Mounts have been read and probed anew by then.
    bench.until("the mount was probed again", |bench| {
        bench
            .findings(false)
            .into_iter()
            .find(|one| one["reason"] == "NotAccessible")
    });
    let after = bench.expect(&missing);
    kept(&before, &after);
    bench.sh("umount -l /mnt/forgotten");
    bench.guest.plug(&drive, Bus::Scsi(23));
    bench.expect_cleared(&volume, "DeviceMissing");
    bench.expect_cleared(drive.id, "DriveMissing");
}
