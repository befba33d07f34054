//! The kernel's fault-injecting SCSI host, scsi_debug: errors that QEMU's disks cannot produce.

use serde_json::Value;

use crate::lab::context::{BAD, Context, Evidence, Expected, SUSPECT};

const DRIVER: &str = "/sys/bus/pseudo/drivers/scsi_debug";
/// The sector that `opts=2` makes unreadable (drivers/scsi/scsi_debug.c, OPT_MEDIUM_ERR_ADDR).
const UNREADABLE: u64 = 0x1234;

struct Target {
    id: String,
    name: String,
}

/// Three disks, one for each kind of fault: `opts` belongs to the whole driver, and only the disk
/// that is read is affected.
fn load(context: &mut Context) -> Vec<Target> {
    context.sh(
        "modprobe scsi_debug dev_size_mb=64 num_tgts=3 max_luns=1 statistics=1 && udevadm settle",
    );
    let drives = context.until("three more drives", |context| {
        let answer = context.guest.ask("drives").ok()?;
        // Its disks have the NAA that the driver generates (drivers/scsi/scsi_debug.c,
        // naa3_comp_a).
        let mine =
            |drive: &&Value| drive["id"].as_str().is_some_and(|id| id.starts_with("naa.333333"));
        let mut found: Vec<Target> =
            answer["drives"].as_array()?.iter().filter(mine).filter_map(target).collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        (found.len() == 3).then_some(found)
    });
    for drive in &drives {
        context.breaks(&drive.id);
    }
    drives
}

fn target(drive: &Value) -> Option<Target> {
    Some(Target { id: drive["id"].as_str()?.to_owned(), name: drive["name"].as_str()?.to_owned() })
}

/// Every following command is answered in this manner, until `opts` is 0 again.
fn set(context: &mut Context, opts: &str, every_nth: i32) {
    context.sh(&format!("echo {opts} > {DRIVER}/opts; echo {every_nth} > {DRIVER}/every_nth"));
}

fn read(context: &mut Context, name: &str, sector: u64) -> bool {
    context
        .try_sh(&format!(
            "dd if=/dev/{name} of=/dev/null bs=512 skip={sector} count=1 iflag=direct"
        ))
        .status
        == 0
}

pub fn three_kinds_of_error(context: &mut Context) {
    let targets = load(context);
    let [unreadable, corrupted, silent] = targets.as_slice() else { panic!("three") };

    set(context, "0x2", 0);
    assert!(!read(context, &unreadable.name, UNREADABLE));
    let record = format!("critical medium error, dev {}, sector {UNREADABLE} ", unreadable.name);
    let evidence = Evidence::Record(&[&record, "FAILED Result", "Sense"]);
    context.expect(&Expected {
        subject: &unreadable.id,
        reason: "MediaErrors",
        severity: SUSPECT,
        evidence,
    });

    // Aborted Command, Ack/nak timeout: a fault of the path to the disk.
    set(context, "0x10", 1);
    read(context, &corrupted.name, 0);
    set(context, "0", 0);
    let record = [
        "Add. Sense: Ack/nak timeout",
        "I/O error, dev ",
        "FAILED Result",
        "Sense Key : Aborted Command",
    ];
    context.expect(&Expected {
        subject: &corrupted.id,
        reason: "LinkErrors",
        severity: SUSPECT,
        evidence: Evidence::Record(&record),
    });
    context.never_raised(&corrupted.id, &["MediaErrors"]);

    // Commands are no longer answered: the error handler escalates and sets the disk offline.
    context.sh(&format!(
        "echo 2 > /sys/block/{0}/device/timeout; echo 1 > /sys/block/{0}/device/eh_timeout",
        silent.name
    ));
    set(context, "0x4", -1);
    read(context, &silent.name, 0);
    set(context, "0", 0);
    let offlined = ["Device offlined - not ready after error recovery"];
    context.record(&offlined);
    // The kernel log and sysfs agree.
    let evidence = Evidence::Record(&offlined);
    context.expect(&Expected {
        subject: &silent.id,
        reason: "DriveOffline",
        severity: BAD,
        evidence,
    });
    let record = ["hostbyte=DID_TIME_OUT", "I/O error, dev ", "CDB: Read"];
    context.expect(&Expected {
        subject: &silent.id,
        reason: "IoTimeouts",
        severity: SUSPECT,
        evidence: Evidence::Record(&record),
    });
    context.never_raised(&silent.id, &["MediaErrors"]);
    context.sh(&format!("echo running > /sys/block/{}/device/state", silent.name));
    // The kernel sends no event for a state that was set by hand: it is found at the next
    // reconciliation, or on request.
    context.guest.ask("refresh").unwrap_or_else(|error| panic!("{error}"));
    context.expect_cleared(&silent.id, "DriveOffline");
}
