//! Rules for XFS: corruption, errors of the underlying device, and shutdowns with their reasons.

use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::parsed_record::{MatchedText, RecordKind, leading_digits};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{FILESYSTEM, Rule, RuleFamily};

const XFS: RuleFamily = FILESYSTEM.with_prefix("XFS");

pub(crate) const RULES: &[Rule] = &[
    // The consequences of a requested shutdown were also requested.
    XFS.rule(
        "xfs-user",
        "User initiated shutdown",
        Record(RecordKind::ExpectedFailure { medium: false }),
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(): an operator requested it; 3.10-6.18",
    ),
    XFS.rule(
        "xfs-shutdown-memory",
        "Corruption of in-memory data detected.",
        Cause(FsShutdown, Unclear),
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-5.14",
    ),
    XFS.rule(
        "xfs-shutdown-memory-at",
        "Corruption of in-memory data (0x",
        Cause(FsShutdown, Unclear),
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(); 5.15-6.18",
    ),
    XFS.rule(
        "xfs-shutdown-disk",
        "Corruption of on-disk metadata (0x",
        Cause(FsShutdown, Unclear),
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(); 6.1-6.18",
    ),
    XFS.rule(
        "xfs-shutdown-log",
        "og I/O Error",
        ParseKind(shutdown),
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-shutdown-io",
        "I/O Error Detected.",
        Cause(FsShutdown, Unclear),
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-5.14",
    ),
    XFS.rule(
        "xfs-shutdown-metadata",
        "Metadata I/O Error (0x",
        Cause(FsShutdown, Unclear),
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(); 5.15-6.18",
    ),
    XFS.rule(
        "xfs-shutdown-error",
        "Filesystem has been shut down due to log error",
        Cause(FsShutdown, Unclear),
        "fs/xfs/xfs_log.c xlog_force_shutdown(); 5.16-6.18",
    ),
    XFS.rule(
        "xfs-shutdown-any",
        "hutting down filesystem",
        Cause(FsShutdown, Unclear),
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-force",
        "xfs_do_force_shutdown(0x",
        Continuation,
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-5.14",
    ),
    XFS.rule(
        "xfs-internal",
        "Internal error ",
        Cause(FsCorruption, Unclear),
        "fs/xfs/xfs_error.c xfs_error_report(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-metadata",
        "Metadata corruption detected at ",
        Cause(FsCorruption, Unclear),
        "fs/xfs/xfs_error.c xfs_verifier_error(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-crc",
        "Metadata CRC error detected at ",
        Cause(FsCorruption, Unclear),
        "fs/xfs/xfs_error.c xfs_verifier_error(); 3.15-6.18",
    ),
    XFS.rule(
        "xfs-corruption",
        "Corruption detected",
        Cause(FsCorruption, Unclear),
        "fs/xfs/xfs_error.c xfs_corruption_error(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-repair",
        "nmount and run xfs_repair",
        Effect(FsCorruption, Unclear),
        "fs/xfs/xfs_error.c, libxfs/xfs_inode_buf.c; 3.10-6.18",
    ),
    XFS.rule(
        "xfs-dinode",
        "corrupt dinode ",
        Cause(FsCorruption, Unclear),
        "fs/xfs/xfs_inode.c xfs_iformat(); up to 4.16",
    ),
    XFS.rule(
        "xfs-inode",
        "corrupt inode ",
        Cause(FsCorruption, Unclear),
        "fs/xfs/xfs_inode.c; up to 4.16",
    ),
    XFS.rule(
        "xfs-bad-inode",
        "bad inode magic",
        Cause(FsCorruption, Unclear),
        "fs/xfs/libxfs/xfs_inode_buf.c; 3.10-4.16",
    ),
    XFS.rule(
        "xfs-summary",
        "SB summary counter sanity check failed",
        Cause(FsCorruption, Unclear),
        "fs/xfs/xfs_mount.c xfs_check_summary_counts(); 4.19-6.18",
    ),
    XFS.rule(
        "xfs-sb-validate",
        "SB validate failed",
        Effect(FsCorruption, Unclear),
        "fs/xfs/libxfs/xfs_sb.c xfs_sb_read_verify(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-sb-check",
        "SB sanity check failed",
        Effect(FsCorruption, Unclear),
        "fs/xfs/libxfs/xfs_sb.c xfs_validate_sb_common(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-alert",
        "Corruption Alert: ",
        Effect(FsError, Unclear),
        "fs/xfs/xfs_buf.c xfs_buf_ioerror_permanent(): permanent write failures; 4.7-6.18",
    ),
    XFS.rule(
        "xfs-metadata-io",
        "metadata I/O error",
        ParseKind(io_error),
        "fs/xfs/xfs_buf.c xfs_buf_ioerror_alert(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-log-io",
        "log I/O error ",
        ParseKind(io_error),
        "fs/xfs/xfs_log.c xlog_ioend_work(); 5.4-6.18",
    ),
    XFS.rule(
        "xfs-writeback",
        "writeback error on ",
        ParseKind(io_error),
        "fs/xfs/xfs_aops.c xfs_destroy_ioend(), xfs_end_ioend(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-async",
        "Failing async write",
        Effect(FsError, Unclear),
        "fs/xfs/xfs_buf.c xfs_buf_iodone_callback_error(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-read",
        "read error on ",
        Effect(FsError, Unclear),
        "fs/xfs/xfs_aops.c; 6.11-6.18",
    ),
    XFS.rule(
        "xfs-mount-failed",
        "log mount/recovery failed: error ",
        ParseKind(mount_failed),
        "fs/xfs/xfs_log.c xfs_log_mount(); 3.10-6.18",
    ),
    XFS.rule(
        "xfs-health",
        "health status reported",
        Continuation,
        "fs/xfs/xfs_health.c; 5.4-6.18",
    ),
    XFS.rule(
        "xfs-unhealthy",
        "metadata corruption has been found",
        Cause(FsCorruption, Unclear),
        "fs/xfs/xfs_health.c xfs_health_unmount(); 5.4-6.18",
    ),
];

/// `error 5` (EIO), 61 (ENODATA: the medium), 19 (ENODEV), 117 (EUCLEAN) and 74 (EBADMSG:
/// checksums), 28 (ENOSPC), 12 (ENOMEM)
fn io_error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let number = text.all.rsplit("error ").next().unwrap_or_default();
    Some(match leading_digits(number.trim_start_matches('-')) {
        "117" | "74" => RecordKind::Cause(FsCorruption, Unclear),
        "28" => RecordKind::Continuation,
        _ => RecordKind::Effect(FsError, Unclear),
    })
}

fn mount_failed(text: &MatchedText<'_>) -> Option<RecordKind> {
    let corrupt = text.after.contains("117") || text.after.contains("74");
    Some(if corrupt {
        RecordKind::Cause(FsCorruption, Unclear)
    } else {
        RecordKind::Effect(FsError, Unclear)
    })
}

fn shutdown(text: &MatchedText<'_>) -> Option<RecordKind> {
    (text.after.starts_with(" Detected") || text.after.starts_with(" (0x"))
        .then_some(RecordKind::Cause(FsShutdown, Unclear))
}
