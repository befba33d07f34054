//! Rules for device-mapper targets. Neither a full pool nor a failed path is a failed drive.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::DeviceName;
use crate::model::kernel_log::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, FILESYSTEM, Rule};

pub(crate) const RULES: &[Rule] = &[
    DRIVE.with_prefix("device-mapper: multipath").rule(
        "dm-path",
        "Failing path ",
        Parse(path_failed),
        "drivers/md/dm-mpath.c fail_path(); 3.10-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: thin").rule(
        "dm-thin-operation",
        "metadata operation '",
        ParseKind(metadata),
        "drivers/md/dm-thin.c metadata_operation_failed(); 3.10-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: thin").rule(
        "dm-thin-abort",
        "aborting current metadata transaction",
        Effect(ReadOnly, No),
        "drivers/md/dm-thin.c abort_transaction(); 3.10-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: thin").rule(
        "dm-thin-read-only",
        "switching pool to read-only mode",
        Cause(ReadOnly, No),
        "drivers/md/dm-thin.c notify_of_pool_mode_change(); 3.10-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: thin").rule(
        "dm-thin-fail",
        "switching pool to fail",
        Cause(ReadOnly, No),
        "drivers/md/dm-thin.c notify_of_pool_mode_change(); 3.10-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: thin").rule(
        "dm-thin-no-space",
        "switching pool to out-of-data-space (error IO)",
        Cause(ReadOnly, No),
        "drivers/md/dm-thin.c notify_of_pool_mode_change(): writes that need room are refused; 4.3-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: thin").rule(
        "dm-thin-check",
        "failed to set 'needs_check'",
        Continuation,
        "drivers/md/dm-thin.c abort_transaction(); 3.16-6.18",
    ),
    DRIVE.with_prefix("device-mapper: cache").rule(
        "dm-cache-read-only",
        "switching cache to ",
        ParseKind(cache_mode),
        "drivers/md/dm-cache-target.c notify_mode_switch(); 4.2-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: crypt").rule(
        "dm-crypt",
        "INTEGRITY AEAD ERROR",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-crypt.c crypt_dec_pending(); 4.12-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: integrity").rule(
        "dm-integrity",
        "Checksum failed at sector",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-integrity.c integrity_metadata(); 4.12-6.18",
    ),
    FILESYSTEM.rule(
        "dm-integrity-old",
        "integrity: Checksum failed at sector",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-integrity.c; 4.12-5.7",
    ),
    FILESYSTEM.with_prefix("device-mapper: verity").rule(
        "dm-verity",
        " is corrupted",
        Cause(FsCorruption, Unclear),
        "drivers/md/dm-verity-target.c verity_handle_err(); 3.10-6.18",
    ),
    FILESYSTEM.with_prefix("device-mapper: verity").rule(
        "dm-verity-max",
        "reached maximum errors",
        Continuation,
        "drivers/md/dm-verity-target.c verity_handle_err(); 3.10-6.18",
    ),
    DRIVE.with_prefix("device-mapper: raid1").rule(
        "dm-mirror",
        "Mirror read failed",
        Parse(mirror),
        "drivers/md/dm-raid1.c read_callback(); 3.10-6.18",
    ),
    // The record contains no device and is not needed: the underlying device reported the failure
    // itself.
    DRIVE.with_prefix("device-mapper: snapshots").rule(
        "dm-snapshot",
        "Invalidating snapshot: ",
        Ignore,
        "drivers/md/dm-snap.c __invalidate_snapshot(); 3.10-6.18",
    ),
    // The same applies here; the pool's own `switching pool to read-only mode` contains its name.
    DRIVE.with_prefix("device-mapper: space map metadata").rule(
        "dm-space-map",
        "unable to allocate new metadata block",
        Ignore,
        "drivers/md/persistent-data/dm-space-map-metadata.c sm_metadata_new_block(); 3.10-6.18",
    ),
    DRIVE.with_prefix("device-mapper: raid1").rule(
        "dm-mirror-all",
        "All sides of mirror have failed",
        Effect(Io, Unclear),
        "drivers/md/dm-raid1.c fail_mirror(); 3.10-6.18",
    ),
    DRIVE.with_prefix("device-mapper: ").rule(
        "dm-btree",
        "node_check failed",
        Effect(FsCorruption, Unclear),
        "drivers/md/persistent-data/dm-btree-spine.c node_check(); 3.10-6.18",
    ),
    DRIVE.with_prefix("device-mapper: ").rule(
        "dm-block-check",
        "validator check failed for block",
        Cause(FsCorruption, Unclear),
        "drivers/md/persistent-data/dm-block-manager.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("device-mapper: ").rule(
        "dm-checksum",
        " csum ",
        ParseKind(checksum),
        "drivers/md/persistent-data/dm-space-map-common.c, dm-thin-metadata.c sb_check(); 3.10-6.18",
    ),
    DRIVE.with_prefix("device-mapper: raid").rule(
        "dm-raid-failed",
        "Failed to read superblock of device",
        Effect(Io, Unclear),
        "drivers/md/dm-raid.c super_validate(); 3.10-6.18",
    ),
];

/// `Failing path 8:176.`; since 5.8 preceded by the multipath device.
fn path_failed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let number = text.after.split_whitespace().next()?.trim_end_matches('.');
    let array = text
        .before
        .rsplit("multipath: ")
        .next()
        .and_then(|rest| device_name::parse(rest.trim_end_matches([':', ' '])))
        .filter(|device| *device != DeviceName::Unnamed);
    Some(ParsedRecord {
        other_name: array,
        ..ParsedRecord::new(
            DeviceName::Number(number.parse().ok()?),
            RecordKind::Cause(Transport, No),
        )
    })
}

/// `Mirror read failed from 253:5. Trying alternative device.`, and `Mirror read failed.` for the
/// last leg.
fn mirror(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let number = text
        .after
        .strip_prefix(" from ")
        .and_then(|rest| rest.split_whitespace().next());
    let device = number
        .and_then(device_name::parse)
        .unwrap_or(DeviceName::Unnamed);
    Some(ParsedRecord::new(device, RecordKind::Effect(Io, Unclear)))
}

/// The pool accepts no more changes after this record (set_pool_mode(PM_READ_ONLY)). -28: the pool
/// is full; -5: the underlying device failed.
fn metadata(text: &MatchedText<'_>) -> Option<RecordKind> {
    let full = text.after.contains("-28") || text.after.contains("-61");
    Some(RecordKind::Cause(ReadOnly, if full { No } else { Unclear }))
}

fn cache_mode(text: &MatchedText<'_>) -> Option<RecordKind> {
    (text.after.starts_with("read-only") || text.after.starts_with("fail"))
        .then_some(RecordKind::Cause(ReadOnly, No))
}

fn checksum(text: &MatchedText<'_>) -> Option<RecordKind> {
    text.all
        .contains("failed")
        .then_some(RecordKind::Cause(FsCorruption, Unclear))
}
