//! Rules for bcache: errors of the cache device and of the backing device.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Rule};

pub(crate) const RULES: &[Rule] = &[
    DRIVE.rule(
        "bcache-backing-ahead",
        "Read-ahead I/O failed on backing device, ignore",
        Ignore,
        "drivers/md/bcache/io.c bch_count_backing_io_errors(); 5.0-6.18",
    ),
    DRIVE.rule(
        "bcache-backing",
        "IO error on backing device, unrecoverable",
        Parse(device_before_colon),
        "drivers/md/bcache/io.c bch_count_backing_io_errors(); 4.18-6.18",
    ),
    DRIVE.rule(
        "bcache-cache",
        "bch_count_io_errors()",
        Parse(device_after),
        "drivers/md/bcache/io.c bch_count_io_errors(); 3.10-6.18",
    ),
    DRIVE.rule(
        "bcache-too-many",
        "too many IO errors",
        Parse(device_before_colon),
        "drivers/md/bcache/io.c bch_count_io_errors(); 3.10-6.18",
    ),
    // The cache is disabled; the record does not contain its device.
    DRIVE.rule(
        "bcache-set",
        "bch_cache_set_error()",
        Cause(Removed, Unclear),
        "drivers/md/bcache/super.c bch_cache_set_error(); 3.10-6.18",
    ),
    DRIVE.rule(
        "bcache-insert",
        "bch_btree_insert() error",
        Continuation,
        "drivers/md/bcache/btree.c bch_btree_insert(); 3.10-6.18",
    ),
];

/// `bcache: bch_count_io_errors() nvme0n1p56: IO error on writing btree.`
fn device_after(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device =
        device_name::parse_block(text.after.trim_start_matches([' ', ':'])).or_else(|| {
            device_name::parse_block(
                text.before
                    .trim_end_matches([':', ' '])
                    .rsplit(' ')
                    .next()?,
            )
        })?;
    Some(ParsedRecord::new(device, RecordKind::Effect(Io, Unclear)))
}

/// `error on UUID: nvme0n1p5: too many IO errors reading, disabling caching`
fn device_before_colon(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device = device_name::parse_block(
        text.before
            .trim_end_matches([' ', ':'])
            .rsplit(' ')
            .next()?,
    )?;
    Some(ParsedRecord::new(device, RecordKind::Effect(Io, Unclear)))
}
