//! Rules for the block layer and the buffer cache. Most records are consequences; a driver reported
//! the cause before.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::{DeviceName, Operation};
use crate::model::kernel_log::parsed_record::{
    MatchedText, ParsedRecord, RecordKind, leading_digits,
};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Role, Rule, RuleFamily};

const BLOCK: RuleFamily = DRIVE.rate_limited();

pub(crate) const RULES: &[Rule] = &[
    BLOCK.with_role(Role::FailedRequest).rule(
        "block-error",
        " error, dev ",
        Parse(status),
        "block/blk-core.c blk_update_request(), print_req_error(), blk-mq.c blk_print_req_error(); 3.10-6.18",
    ),
    BLOCK.rule(
        "block-buffer",
        "Buffer I/O error on dev",
        Parse(buffer),
        "fs/buffer.c buffer_io_error(), fs/ext4/page-io.c; 3.10-6.18",
    ),
    BLOCK.with_prefix("lost page write due to").rule(
        "block-lost-page",
        "I/O error on ",
        Parse(lost_page),
        "fs/buffer.c end_buffer_async_write(); up to 4.3",
    ),
    BLOCK.rule(
        "block-lost-write",
        "lost async page write due to",
        Parse(lost_page),
        "fs/buffer.c; 4.4.0",
    ),
    BLOCK.rule(
        "block-gone",
        " detected capacity change from ",
        Parse(capacity_change),
        "block/genhd.c, fs/block_dev.c check_disk_size_change(); 3.10-6.18",
    ),
    BLOCK.rule(
        "block-beyond",
        ": rw=",
        Parse(beyond_end_of_device),
        "block/blk-core.c handle_bad_sector(), bio_check_eod(): 3.10-4.4 a record of its own, 4.5-5.11 `\n%s: rw=%d, want=%llu, limit=%llu`, \
         5.12-6.18 with the program in front, 6.0-6.18 `sector=%llu, nr_sectors = %u limit=%llu`",
    ),
    BLOCK.rule(
        "block-beyond-head",
        "attempt to access beyond end of device",
        Ignore,
        "block/blk-core.c handle_bad_sector(): the next line names the device; 3.10-6.18",
    ),
    BLOCK.rule(
        "block-io-hung",
        "blk_cloned_rq_check_limits: over max size limit",
        Ignore,
        "block/blk-core.c; 3.10-5.15",
    ),
    DRIVE.rule(
        "suppressed",
        " callbacks suppressed",
        Parse(suppressed),
        "lib/ratelimit.c ___ratelimit(); 3.10-6.18",
    ),
];

/// `%s error, dev %s, sector %llu[ op 0x%x:(%s) flags 0x%x …]`; the sector is always in units of
/// 512 bytes.
fn status(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let status = text.before.rsplit(": ").next()?.trim();
    let part = match status {
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
    let device = device_name::parse_block(text.after)?;
    let rest = text
        .after
        .split_once("sector ")
        .map_or("", |(_, rest)| rest);
    let operation = rest
        .split_once(":(")
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(name, _)| match name {
            "READ" => Operation::Read,
            "WRITE" | "ZONE_APPEND" => Operation::Write,
            "FLUSH" => Operation::Flush,
            _ => Operation::Other,
        });
    // (sector_t)-1 means no sector.
    let sector = leading_digits(rest)
        .parse()
        .ok()
        .filter(|sector| *sector < u64::MAX >> 9);
    Some(ParsedRecord {
        sector,
        operation,
        ..ParsedRecord::new(device, part)
    })
}

/// `Buffer I/O error on dev sda1, logical block 0, lost async page write`: the block is in units of
/// the filesystem, the device may be a partition.
fn buffer(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let rest = text
        .after
        .strip_prefix("ice")
        .unwrap_or(text.after)
        .trim_start();
    let operation = if rest.contains("read") {
        Some(Operation::Read)
    } else if rest.contains("write") {
        Some(Operation::Write)
    } else {
        None
    };
    Some(ParsedRecord {
        operation,
        ..ParsedRecord::new(
            device_name::parse_block(rest)?,
            RecordKind::Effect(Io, Unclear),
        )
    })
}

fn lost_page(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device = text
        .all
        .rsplit(" on ")
        .next()
        .and_then(device_name::parse_block)?;
    Some(ParsedRecord {
        operation: Some(Operation::Write),
        ..ParsedRecord::new(device, RecordKind::Effect(Io, Unclear))
    })
}

/// A capacity of 0: the driver has given up on the disk.
fn capacity_change(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device = device_name::parse_block(text.before.trim_end_matches(':').rsplit(' ').next()?)?;
    text.after
        .trim_end()
        .ends_with(" to 0")
        .then(|| ParsedRecord::new(device, RecordKind::Continuation))
}

/// A program, or a filesystem larger than its device, accessed a sector beyond the end. A limit of
/// 0 means a removed device.
fn beyond_end_of_device(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    if !text.after.contains(" want=") && !text.after.contains(" sector=") {
        return None;
    }
    let limit = text.after.split_once(" limit=")?.1;
    if leading_digits(limit).parse::<u64>().ok()? == 0 {
        return None;
    }
    Some(ParsedRecord::new(
        device_name::parse_block(text.before.rsplit([' ', '\n']).next()?)?,
        RecordKind::ExpectedFailure { medium: false },
    ))
}

/// `print_req_error: 312 callbacks suppressed`: network code and others print the same form.
fn suppressed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let (function, count) = text.before.rsplit_once(": ")?;
    let count = count.parse().ok()?;
    let function = function.rsplit(": ").next()?.trim();
    let of_storage = [
        "blk_update_request",
        "print_req_error",
        "blk_print_req_error",
        "buffer_io_error",
        "quiet_error",
        "end_request",
    ]
    .contains(&function)
        || [
            "EXT4-fs", "BTRFS", "btrfs_", "XFS", "xfs_", "scsi_", "sd_", "sd ", "nvme",
        ]
        .iter()
        .any(|start| function.starts_with(start));
    if !of_storage {
        return None;
    }
    Some(ParsedRecord::new(
        DeviceName::Unnamed,
        RecordKind::Suppressed(count),
    ))
}
