//! Rules for the block layer and the buffer cache. Most records are consequences; a driver reported
//! the cause before.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::{DeviceName, Operation};
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Role, RuleFamily, rules};

const BLOCK: RuleFamily = DRIVE.rate_limited();
/// Up to 5.15 the function's name is in front.
const REQUEST: RuleFamily = BLOCK
    .with_prefix("<blk_update_request: |print_req_error: |end_request: |>")
    .with_role(Role::FailedRequest);

rules! {
    "block-error": REQUEST, "<I/O|critical medium|critical target|timeout|recoverable transport\
         |device offline|protection|critical space allocation|critical nexus|reservation conflict\
         |operation not supported|kernel resource|device resource|nonblocking retry\
         |dm internal retry|open zones exceeded|active zones exceeded|zone active resource\
         |zone open resource|duration limit exceeded\
         |invalid> error, dev <disk>, sector <dec>{ op 0x<hex>:(<word>)}"
        => Parse(status), "block/blk-core.c blk_update_request(), print_req_error(), \
            blk-mq.c blk_print_req_error(); 2.6.32-6.18";
    "block-buffer": BLOCK, "Buffer I/O error on <device|dev> <disk>, \
         logical block <dec>{, <lost async page write|lost sync page write|async page read>}"
        => Parse(buffer), "fs/buffer.c buffer_io_error(), fs/ext4/page-io.c; 2.6.32-6.18";
    "block-lost-page": BLOCK, "lost page write due to I/O error on <disk>$"
        => Parse(lost_page), "fs/buffer.c end_buffer_async_write(); up to 4.3";
    "block-lost-write": BLOCK, "lost <async|sync> page write due to I/O error on <disk>$"
        => Parse(lost_page), "fs/buffer.c; 4.4.0";
    // Only the reading of the disk can fail with this text: an unknown table is no error.
    "block-partition-table": BLOCK, "<disk>: unable to read partition table$"
        => Effect(Io, Unclear),
           "block/partitions/core.c, fs/partitions/check.c check_partition(); 2.6.32-6.18";
    "block-partition-amiga": BLOCK, "Dev <disk>: unable to read <RDB|partition> block <dec>$"
        => Effect(Io, Unclear),
           "block/partitions/amiga.c amiga_partition(): the first parser that reads; 2.6.32-6.18";
    // A capacity of 0: the driver has given up on the disk.
    "block-gone": BLOCK, "<disk>: detected capacity change from <dec> to 0$"
        => Continuation, "block/genhd.c, fs/block_dev.c check_disk_size_change(); 2.6.32-6.18";
    "block-beyond": BLOCK, "<disk>: rw=<dec>, <want|sector>=<dec>, {nr_sectors = <dec> }limit="
        => ParseKind(beyond_end_of_device),
           "block/blk-core.c handle_bad_sector(): a record of its own; 3.10-4.4";
    "block-beyond-lines": BLOCK, "attempt to access beyond end of device\n<disk>: rw=<dec>, \
         <want|sector>=<dec>, {nr_sectors = <dec> }limit="
        => ParseKind(beyond_end_of_device),
           "block/blk-core.c handle_bad_sector(): `\\n%s: rw=%d, want=%llu, limit=%llu`; 4.5-5.11";
    "block-beyond-program": BLOCK, "<comm>: attempt to access beyond end of device\n<disk>: \
         rw=<dec>, <want|sector>=<dec>, {nr_sectors = <dec> }limit="
        => ParseKind(beyond_end_of_device), "block/blk-core.c bio_check_eod(): \
            the program in front; 6.0-6.18 `sector=%llu, nr_sectors = %u limit=%llu`; 5.12-6.18";
    "suppressed": DRIVE,
        "<blk_update_request|print_req_error|blk_print_req_error|buffer_io_error|quiet_error\
         |end_request|EXT4-fs error|EXT4-fs warning|EXT4-fs>: <dec> callbacks suppressed$"
        => ParseKind(suppressed), "lib/ratelimit.c ___ratelimit(), fs/ext4/super.c; 2.6.32-6.18";
    "suppressed-function": DRIVE, "<word>: <dec> callbacks suppressed$"
        => ParseKind(suppressed_function), "lib/ratelimit.c ___ratelimit(): \
            network code and others print the same form; 2.6.32-6.18";
}

/// `%s error, dev %s, sector %llu[ op 0x%x:(%s) flags 0x%x …]`; the sector is always in units of
/// 512 bytes.
fn status(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let [status, sector, operation @ ..] = text.fields else {
        return None;
    };
    let operation = operation.last().map(|name| match *name {
        "READ" => Operation::Read,
        "WRITE" | "ZONE_APPEND" => Operation::Write,
        "FLUSH" => Operation::Flush,
        _ => Operation::Other,
    });
    let kind = match *status {
        "critical medium" if is_ambiguous_medium_error(text.device, operation) => {
            RecordKind::Effect(Medium, Unclear)
        }
        "critical medium" => RecordKind::Effect(Medium, Yes),
        "I/O" => RecordKind::Effect(Io, Unclear),
        "timeout" => RecordKind::Effect(Timeout, Unclear),
        "recoverable transport" => RecordKind::Effect(Transport, No),
        "device offline" => RecordKind::Effect(Removed, Unclear),
        // BLK_STS_PROTECTION: the integrity tags of the data are wrong; the cause is unknown.
        "protection" => RecordKind::Effect(Io, Unclear),
        // Target (illegal request, hardware error: the sense data distinguish them), nexus, space,
        // zones, resources: without sense data the host is the cause.
        _ => RecordKind::Continuation,
    };
    Some(ParsedRecord {
        // (sector_t)-1 means no sector.
        sector: sector.parse().ok().filter(|sector| *sector < u64::MAX >> 9),
        operation,
        ..ParsedRecord::from_text(text, kind)
    })
}

/// A failed write to an NVMe drive, without the driver's own record of the status: Access Denied (a
/// locked drive) and Attempted Write to Read Only Range are medium errors for the block layer too
/// (drivers/nvme/host/core.c nvme_error_status()).
fn is_ambiguous_medium_error(device: &DeviceName, operation: Option<Operation>) -> bool {
    operation == Some(Operation::Write)
        && matches!(device, DeviceName::Block(name) if name.starts_with("nvme"))
}

/// `Buffer I/O error on dev sda1, logical block 0, lost async page write`: the block is in units of
/// the filesystem, the device may be a partition.
fn buffer(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let operation = match text.fields.get(2) {
        Some(&"async page read") => Some(Operation::Read),
        Some(_) => Some(Operation::Write),
        None => None,
    };
    Some(ParsedRecord {
        operation,
        ..ParsedRecord::from_text(text, RecordKind::Effect(Io, Unclear))
    })
}

fn lost_page(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        operation: Some(Operation::Write),
        ..ParsedRecord::from_text(text, RecordKind::Effect(Io, Unclear))
    })
}

/// A program, or a filesystem larger than its device, accessed a sector beyond the end. A limit of
/// 0 means a removed device.
fn beyond_end_of_device(text: &MatchedText<'_>) -> Option<RecordKind> {
    let limit: u64 = text.after.trim_ascii_end().parse().ok()?;
    (limit > 0).then_some(RecordKind::BeyondEnd)
}

/// `print_req_error: 312 callbacks suppressed`
fn suppressed(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(RecordKind::Suppressed(text.fields.last()?.parse().ok()?))
}

fn suppressed_function(text: &MatchedText<'_>) -> Option<RecordKind> {
    let of_storage = ["btrfs_", "xfs_", "scsi_", "sd_", "nvme"];
    of_storage.iter().any(|start| text.fields[0].starts_with(start)).then(|| suppressed(text))?
}
