//! Rules for device-mapper targets. Neither a full pool nor a failed path is a failed drive.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, FILESYSTEM, Rule, RuleFamily};

const MULTIPATH: RuleFamily = DRIVE.with_prefix("device-mapper: multipath: ");
/// The device is the pool.
const THIN: RuleFamily = FILESYSTEM.with_prefix("device-mapper: thin: <number>: ");
/// The pool, or the cache.
const POOL: RuleFamily = FILESYSTEM.with_prefix("device-mapper: <thin|cache>: <number>: ");
const CACHE: RuleFamily = DRIVE.with_prefix("device-mapper: cache: <number>: ");
const CRYPT: RuleFamily = FILESYSTEM.with_prefix("device-mapper: crypt: ");
const INTEGRITY: RuleFamily = FILESYSTEM.with_prefix("device-mapper: integrity: ");
const VERITY: RuleFamily = FILESYSTEM.with_prefix("device-mapper: verity: ");
const MIRROR: RuleFamily = DRIVE.with_prefix("device-mapper: raid1: ");
const RAID: RuleFamily = DRIVE.with_prefix("device-mapper: raid: ");
/// The library of the metadata: no record contains a device.
const METADATA: RuleFamily = DRIVE.with_prefix("device-mapper: ");

// Without a row, because they contain no device and other records report the failure: `snapshots:
// Invalidating snapshot: …` (the underlying device did), `space map metadata: unable to allocate new
// metadata block` (the pool does).
pub(crate) const RULES: &[Rule] = &[
    MULTIPATH.rule(
        "dm-path",
        "{<number>: }Failing path <number>.$",
        Parse(path_failed),
        "drivers/md/dm-mpath.c fail_path(); 3.10-6.18",
    ),
    MULTIPATH.rule(
        "dm-no-path",
        "queue_if_no_path timeout on <number>, failing queued IO$",
        Effect(Transport, No),
        "drivers/md/dm-mpath.c queue_if_no_path_timeout_work(); 5.9-6.18",
    ),
    POOL.rule(
        "dm-thin-operation",
        "metadata operation '<word>' failed: error = <dec>$",
        ParseKind(metadata),
        "drivers/md/dm-thin.c metadata_operation_failed(); 3.10-6.18",
    ),
    THIN.rule(
        "dm-thin-find",
        "dm_thin_find_block() failed: error = <dec>$",
        Effect(FsError, Unclear),
        "drivers/md/dm-thin.c thin_bio_map(); 3.10-6.18",
    ),
    POOL.rule(
        "dm-thin-repair",
        "<unable to switch pool to write mode until repaired.\
         |unable to switch cache to write mode until repaired.|failed to abort metadata transaction>",
        Cause(ReadOnly, Unclear),
        "drivers/md/dm-thin.c set_pool_mode(), dm-cache-target.c set_cache_mode(); 3.16-6.18",
    ),
    POOL.rule(
        "dm-thin-abort",
        "aborting current metadata transaction$",
        Effect(ReadOnly, No),
        "drivers/md/dm-thin.c abort_transaction(); 3.10-6.18",
    ),
    THIN.rule(
        "dm-thin-read-only",
        "switching pool to read-only mode$",
        Cause(ReadOnly, No),
        "drivers/md/dm-thin.c notify_of_pool_mode_change(); 3.10-6.18",
    ),
    THIN.rule(
        "dm-thin-fail",
        "switching pool to fail{ure} mode$",
        Cause(ReadOnly, No),
        "drivers/md/dm-thin.c notify_of_pool_mode_change(); 3.10-6.18",
    ),
    THIN.rule(
        "dm-thin-no-space",
        "switching pool to out-of-data-space (error IO) mode$",
        Cause(ReadOnly, No),
        "drivers/md/dm-thin.c notify_of_pool_mode_change(): writes that need room are refused; 4.3-6.18",
    ),
    THIN.rule(
        "dm-thin-full",
        "switching pool to out-of-data-space{ (queue IO)} mode$",
        Cause(ReadOnly, No),
        "drivers/md/dm-thin.c notify_of_pool_mode_change(): writes that need room wait, for 60 s by default, and fail then; 3.15-6.18",
    ),
    THIN.rule(
        "dm-thin-full-old",
        "no free data space available.$",
        Cause(ReadOnly, No),
        "drivers/md/dm-thin.c alloc_data_block(); 3.2-3.14",
    ),
    POOL.rule(
        "dm-thin-check",
        "failed to set 'needs_check' flag in metadata$",
        Continuation,
        "drivers/md/dm-thin.c abort_transaction(); 3.16-6.18",
    ),
    CACHE.rule(
        "dm-cache-read-only",
        "switching cache to <read-only|fail> mode$",
        Cause(ReadOnly, No),
        "drivers/md/dm-cache-target.c notify_mode_switch(); 4.2-6.18",
    ),
    CRYPT.rule(
        "dm-crypt",
        "{<disk>: }INTEGRITY AEAD ERROR, sector <dec>$",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-crypt.c crypt_dec_pending(); 4.12-6.18",
    ),
    INTEGRITY.rule(
        "dm-integrity",
        "<disk>: Checksum failed at sector <hex>$",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-integrity.c integrity_metadata(); 4.12-6.18",
    ),
    INTEGRITY.rule(
        "dm-integrity-old",
        "Checksum failed at sector <hex>$",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-integrity.c; 4.12-5.7",
    ),
    INTEGRITY.rule(
        "dm-integrity-journal",
        "Checksum failed when reading from journal, at sector <hex>$",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-integrity.c do_journal_write(); 4.12-6.18",
    ),
    INTEGRITY.rule(
        "dm-integrity-io",
        "Error on <words>: <dec>$",
        Effect(FsError, Unclear),
        "drivers/md/dm-integrity.c dm_integrity_io_error(): `Error on reading tags: -5`; 4.12-6.18",
    ),
    // Up to 4.0 without the device.
    VERITY.rule(
        "dm-verity",
        "{<number>: }<data|metadata> block <dec> is corrupted$",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-verity-target.c verity_handle_err(); 3.10-6.18",
    ),
    VERITY.rule(
        "dm-verity-max",
        "<number>: reached maximum errors$",
        Continuation,
        "drivers/md/dm-verity-target.c verity_handle_err(); 3.10-6.18",
    ),
    // The last leg's failure contains no device.
    MIRROR.rule(
        "dm-mirror",
        "Mirror read failed{ from <number>}.{ Trying alternative device.}$",
        Effect(Io, Unclear),
        "drivers/md/dm-raid1.c read_callback(); 3.10-6.18",
    ),
    MIRROR.rule(
        "dm-mirror-device",
        "Read failure on mirror device <number>.",
        Effect(Io, Unclear),
        "drivers/md/dm-raid1.c mirror_end_io(); 2.6.32-6.18",
    ),
    MIRROR.rule(
        "dm-mirror-recovery",
        "<Unable to read primary mirror during recovery|Write error during recovery (error = \
         |All replicated volumes dead, failing I/O>",
        Effect(Io, Unclear),
        "drivers/md/dm-raid1.c recovery_complete(), do_reads(); 2.6.32-6.18",
    ),
    MIRROR.rule(
        "dm-mirror-all",
        "All sides of mirror have failed.$",
        Effect(Io, Unclear),
        "drivers/md/dm-raid1.c fail_mirror(); 3.10-6.18",
    ),
    METADATA.rule(
        "dm-btree",
        "btree spine: node_check failed: <blocknr|csum|max_entries too large|too many entries\
         |node is neither INTERNAL or LEAF>{ <dec> != wanted <dec>}$",
        Effect(FsCorruption, Unclear),
        "drivers/md/persistent-data/dm-btree-spine.c node_check(); 3.10-6.18",
    ),
    METADATA.rule(
        "dm-block-check",
        "block manager: <word> validator check failed for block <dec>$",
        Cause(FsCorruption, Unclear),
        "drivers/md/persistent-data/dm-block-manager.c; 3.10-6.18",
    ),
    METADATA.rule(
        "dm-checksum",
        "<thin metadata|cache metadata|era|array|space map common>: <word>{ check} failed: \
         csum <dec><:| !=> wanted <dec>$",
        Cause(FsCorruption, Unclear),
        "drivers/md/persistent-data/dm-space-map-common.c, dm-thin-metadata.c sb_check(); 3.10-6.18",
    ),
    RAID.rule(
        "dm-raid-failed",
        "Failed to read superblock of device at position <dec>$",
        Effect(Io, Unclear),
        "drivers/md/dm-raid.c super_validate(); 3.10-6.18",
    ),
];

/// `Failing path 8:176.`; since 5.8 preceded by the multipath device.
fn path_failed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let (path, multipath) = text.devices.split_last()?;
    Some(ParsedRecord {
        other_name: multipath.first().cloned(),
        ..ParsedRecord::new(path.clone(), RecordKind::Cause(Transport, No))
    })
}

/// The pool accepts no more changes after this record (set_pool_mode(PM_READ_ONLY)). -28: the pool
/// is full; -5: the underlying device failed.
fn metadata(text: &MatchedText<'_>) -> Option<RecordKind> {
    let full = matches!(text.fields, [_, "-28" | "-61"]);
    Some(RecordKind::Cause(ReadOnly, if full { No } else { Unclear }))
}
