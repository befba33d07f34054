//! Rules for device-mapper targets. Neither a full pool nor a failed path is a failed drive.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, FILESYSTEM, RuleFamily, rules};

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
rules! {
    in "drivers/md/";
    "dm-path": MULTIPATH, "{<number>: }Failing path <number>.$"
        => Parse(path_failed), "dm-mpath.c fail_path(); 3.10-6.18";
    "dm-no-path": MULTIPATH, "queue_if_no_path timeout on <number>, failing queued IO$"
        => Effect(Transport, No), "dm-mpath.c queue_if_no_path_timeout_work(); 5.9-6.18";
    "dm-thin-operation": POOL, "metadata operation '<word>' failed: error = <dec>$"
        => ParseKind(metadata), "dm-thin.c metadata_operation_failed(); 3.10-6.18";
    "dm-thin-find": THIN, "dm_thin_find_block() failed: error = <dec>$"
        => Effect(FsError, Unclear), "dm-thin.c thin_bio_map(); 3.10-6.18";
    "dm-thin-repair": POOL, "<unable to switch pool to write mode until repaired.\
         |unable to switch cache to write mode until repaired.\
         |failed to abort metadata transaction>"
        => Cause(ReadOnly, Unclear),
           "dm-thin.c set_pool_mode(), dm-cache-target.c set_cache_mode(); 3.16-6.18";
    "dm-thin-abort": POOL, "aborting current metadata transaction$"
        => Effect(ReadOnly, No), "dm-thin.c abort_transaction(); 3.10-6.18";
    "dm-thin-read-only": THIN, "switching pool to read-only mode$"
        => Cause(ReadOnly, No), "dm-thin.c notify_of_pool_mode_change(); 3.10-6.18";
    "dm-thin-fail": THIN, "switching pool to fail{ure} mode$"
        => Cause(ReadOnly, No), "dm-thin.c notify_of_pool_mode_change(); 3.10-6.18";
    "dm-thin-no-space": THIN, "switching pool to out-of-data-space (error IO) mode$"
        => Cause(ReadOnly, No),
           "dm-thin.c notify_of_pool_mode_change(): writes that need room are refused; 4.3-6.18";
    "dm-thin-full": THIN, "switching pool to out-of-data-space{ (queue IO)} mode$"
        => Cause(ReadOnly, No), "dm-thin.c notify_of_pool_mode_change(): \
            writes that need room wait, for 60 s by default, and fail then; 3.15-6.18";
    "dm-thin-full-old": THIN, "no free data space available.$"
        => Cause(ReadOnly, No), "dm-thin.c alloc_data_block(); 3.2-3.14";
    "dm-thin-check": POOL, "failed to set 'needs_check' flag in metadata$"
        => Continuation, "dm-thin.c abort_transaction(); 3.16-6.18";
    "dm-cache-read-only": CACHE, "switching cache to <read-only|fail> mode$"
        => Cause(ReadOnly, No), "dm-cache-target.c notify_mode_switch(); 4.2-6.18";
    "dm-crypt": CRYPT, "{<disk>: }INTEGRITY AEAD ERROR, sector <dec>$"
        => Cause(FsCorruption, Unclear), "dm-crypt.c crypt_dec_pending(); 4.12-6.18";
    "dm-integrity": INTEGRITY, "<disk>: Checksum failed at sector <hex>$"
        => Cause(FsCorruption, Unclear), "dm-integrity.c integrity_metadata(); 4.12-6.18";
    "dm-integrity-old": INTEGRITY, "Checksum failed at sector <hex>$"
        => Cause(FsCorruption, Unclear), "dm-integrity.c; 4.12-5.7";
    "dm-integrity-journal": INTEGRITY, "Checksum failed when reading from journal, at sector <hex>$"
        => Cause(FsCorruption, Unclear), "dm-integrity.c do_journal_write(); 4.12-6.18";
    "dm-integrity-io": INTEGRITY, "Error on <words>: <dec>$"
        => Effect(FsError, Unclear),
           "dm-integrity.c dm_integrity_io_error(): `Error on reading tags: -5`; 4.12-6.18";
    // Up to 4.0 without the device.
    "dm-verity": VERITY, "{<number>: }<data|metadata> block <dec> is corrupted$"
        => Cause(FsCorruption, Unclear), "dm-verity-target.c verity_handle_err(); 3.10-6.18";
    "dm-verity-max": VERITY, "<number>: reached maximum errors$"
        => Continuation, "dm-verity-target.c verity_handle_err(); 3.10-6.18";
    // The last leg's failure contains no device.
    "dm-mirror": MIRROR, "Mirror read failed{ from <number>}.{ Trying alternative device.}$"
        => Effect(Io, Unclear), "dm-raid1.c read_callback(); 3.10-6.18";
    "dm-mirror-device": MIRROR, "Read failure on mirror device <number>."
        => Effect(Io, Unclear), "dm-raid1.c mirror_end_io(); 2.6.32-6.18";
    "dm-mirror-recovery": MIRROR, "<Unable to read primary mirror during recovery\
         |Write error during recovery (error = |All replicated volumes dead, failing I/O>"
        => Effect(Io, Unclear), "dm-raid1.c recovery_complete(), do_reads(); 2.6.32-6.18";
    "dm-mirror-all": MIRROR, "All sides of mirror have failed.$"
        => Effect(Io, Unclear), "dm-raid1.c fail_mirror(); 3.10-6.18";
    "dm-btree": METADATA, "btree spine: node_check failed: <blocknr|csum|max_entries too large\
         |too many entries|node is neither INTERNAL or LEAF>{ <dec> != wanted <dec>}$"
        => Effect(FsCorruption, Unclear),
           "persistent-data/dm-btree-spine.c node_check(); 3.10-6.18";
    "dm-block-check": METADATA, "block manager: <word> validator check failed for block <dec>$"
        => Cause(FsCorruption, Unclear), "persistent-data/dm-block-manager.c; 3.10-6.18";
    "dm-checksum": METADATA, "<thin metadata|cache metadata|era|array|space map common>: \
         <word>{ check} failed: csum <dec><:| !=> wanted <dec>$"
        => Cause(FsCorruption, Unclear),
           "persistent-data/dm-space-map-common.c, dm-thin-metadata.c sb_check(); 3.10-6.18";
    "dm-raid-failed": RAID, "Failed to read superblock of device at position <dec>$"
        => Effect(Io, Unclear), "dm-raid.c super_validate(); 3.10-6.18";
}

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
