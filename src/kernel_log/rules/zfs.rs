//! Rules for OpenZFS: errors of a pool's devices, and pools that have stopped. The records contain
//! the path under which the pool has its device.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::{DeviceName, Operation};
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, FILESYSTEM, Role, rules};

rules! {
    in "openzfs module/";
    // The offset is counted from the start of the pool's device.
    "zfs-device": DRIVE.with_role(Role::Redundancy),
        "zio pool=<path> vdev=<path> error=<dec> type=<dec> offset=<dec> size=<dec> flags="
        => Parse(device_error), "os/linux/zfs/vdev_disk.c vdev_disk_error(); 0.7-2.3";
    "zfs-suspended": FILESYSTEM,
        "WARNING: Pool '<file>' has encountered an uncorrectable I/O failure and has been suspended"
        => Parse(suspended_pool),
           "zfs/zio.c zio_suspend(), cmn_err(CE_WARN) of the SPL; 0.6-2.3";
}

/// The error is the block layer's status as a number (errno.h); the type is ZIO_TYPE_READ, WRITE,
/// FREE, CLAIM, IOCTL or FLUSH, TRIM (include/sys/fs/zfs.h).
fn device_error(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let [_, path, error, kind, offset, ..] = text.fields else {
        return None;
    };
    let operation = match *kind {
        "1" => Operation::Read,
        "2" => Operation::Write,
        "5" => Operation::Flush,
        _ => Operation::Other,
    };
    let device = pool_device(path);
    let name = device.to_string();
    let name = name.rsplit('/').next().unwrap_or_default();
    // What an NVMe drive refuses has the same status as a medium error: see `block-error`. Only these
    // names are those of drives.
    let is_ambiguous = operation == Operation::Write && name.starts_with("nvme")
        || !["sd", "hd", "nvme", "ata-", "scsi-", "wwn-"]
            .iter()
            .any(|start| name.starts_with(start));
    let kind = match *error {
        // ENODATA: BLK_STS_MEDIUM.
        "61" if !is_ambiguous => RecordKind::Effect(Medium, Yes),
        "61" => RecordKind::Effect(Medium, Unclear),
        "110" => RecordKind::Effect(Timeout, Unclear),
        // ENOLINK: BLK_STS_TRANSPORT.
        "67" => RecordKind::Effect(Transport, No),
        // ENOSPC, EOPNOTSUPP, EREMOTEIO: no room, not supported, refused as impossible.
        "28" | "95" | "121" => RecordKind::Continuation,
        _ => RecordKind::Effect(Io, Unclear),
    };
    Some(ParsedRecord {
        sector: offset.parse::<u64>().ok().map(|offset| offset / 512),
        operation: Some(operation),
        ..ParsedRecord::new(device, kind)
    })
}

/// `/dev/sdc1` → sdc1; a link keeps its path below /dev, which no name of the kernel has:
/// disk/by-id/ata-…-part1.
fn pool_device(path: &str) -> DeviceName {
    match path.strip_prefix("/dev/").unwrap_or(path) {
        "" => DeviceName::Unnamed,
        name => DeviceName::Block(name.to_owned()),
    }
}

fn suspended_pool(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let pool = DeviceName::Pool((*text.fields.first()?).to_owned());
    Some(ParsedRecord::new(pool, RecordKind::Cause(FsShutdown, Unclear)))
}
