//! Rules for XFS: corruption, errors of the underlying device, and shutdowns with their reasons.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::parsed_record::{MatchedText, RecordKind};
use crate::rule::RuleAction::*;
use crate::rule::{FILESYSTEM, RuleFamily, rules};

/// A message about no mounted filesystem has no device. Up to 2.6.38 `Filesystem "sda1": `.
const XFS: RuleFamily = FILESYSTEM.with_prefix("<XFS|Filesystem \">{ (<disk>)}{<disk>\"}: ");
/// The device stands elsewhere in the text.
const OLD: RuleFamily = FILESYSTEM;

rules! {
    in "fs/";
    // The consequences of a requested shutdown were also requested.
    "xfs-user": XFS, "User initiated shutdown <received|(0x>"
        => Record(RecordKind::ExpectedFailure { medium: false }),
           "xfs/xfs_fsops.c xfs_do_force_shutdown(): an operator requested it; 3.10-6.18";
    "xfs-shutdown-memory": XFS, "Corruption of in-memory data detected."
        => Cause(FsShutdown, Unclear), "xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-5.14";
    "xfs-shutdown-memory-at": XFS, "Corruption of in-memory data (0x<hex>) detected at "
        => Cause(FsShutdown, Unclear), "xfs/xfs_fsops.c xfs_do_force_shutdown(); 5.15-6.18";
    "xfs-shutdown-disk": XFS, "Corruption of on-disk metadata (0x<hex>) detected at "
        => Cause(FsShutdown, Unclear), "xfs/xfs_fsops.c xfs_do_force_shutdown(); 6.1-6.18";
    "xfs-shutdown-log": XFS, "Log I/O Error <Detected.|(0x>"
        => Cause(FsShutdown, Unclear), "xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-6.18";
    "xfs-shutdown-io": XFS, "I/O Error Detected."
        => Cause(FsShutdown, Unclear), "xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-5.14";
    "xfs-shutdown-metadata": XFS, "Metadata I/O Error (0x<hex>) detected at "
        => Cause(FsShutdown, Unclear), "xfs/xfs_fsops.c xfs_do_force_shutdown(); 5.15-6.18";
    "xfs-shutdown-error": XFS, "Filesystem has been shut down due to log error (0x"
        => Cause(FsShutdown, Unclear), "xfs/xfs_log.c xlog_force_shutdown(); 5.16-6.18";
    "xfs-shutdown-any": XFS,
        "<Block device removal (0x|All device paths lost. Shutting down filesystem>"
        => Cause(FsShutdown, Unclear), "xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-6.18";
    "xfs-shutdown-old": OLD, "<Corruption of in-memory data detected.|I/O Error Detected.\
         |Log I/O Error Detected.|All device paths lost.>  Shutting down filesystem: <disk>$"
        => Cause(FsShutdown, Unclear), "xfs/xfs_rw.c xfs_do_force_shutdown(); up to 2.6.38";
    "xfs-metadata-io-device": OLD,
        "I/O error in filesystem (\"<disk>\") meta-data dev <disk> block 0x<hex>"
        => Effect(FsError, Unclear), "xfs/xfs_rw.c xfs_ioerror_alert(); up to 2.6.38";
    "iomap-writeback": OLD, "<disk>: writeback error on inode <dec>, offset <dec>, sector <dec>$"
        => Effect(FsError, Unclear), "iomap/buffered-io.c iomap_finish_ioend(); 5.5-6.18";
    "xfs-log-force": XFS, "xfs_log_force: error <dec> returned.$"
        => Effect(FsError, Unclear),
           "xfs/xfs_log.c xfs_log_force(), every 30 s after a shutdown; 2.6.38-4.16";
    "xfs-page-discard": XFS, "page discard on page "
        => Effect(FsError, Unclear),
           "xfs/xfs_aops.c xfs_aops_discard_page(), xfs_discard_folio(); 2.6.38-6.18";
    "xfs-force": XFS, "xfs_do_force_shutdown(0x<hex>) called from line <dec> of file "
        => Continuation, "xfs/xfs_fsops.c xfs_do_force_shutdown(); 3.10-5.14";
    // The next words are a name or an expression of the kernel's source: `i != 1`.
    "xfs-internal": XFS, "<XFS internal|Internal> error "
        => Cause(FsCorruption, Unclear), "xfs/xfs_error.c xfs_error_report(); 3.10-6.18";
    "xfs-metadata": XFS, "Metadata corruption detected at "
        => Cause(FsCorruption, Unclear), "xfs/xfs_error.c xfs_verifier_error(); 3.10-6.18";
    "xfs-crc": XFS, "Metadata CRC error detected at "
        => Cause(FsCorruption, Unclear), "xfs/xfs_error.c xfs_verifier_error(); 3.15-6.18";
    "xfs-corruption": XFS, "Corruption detected"
        => Cause(FsCorruption, Unclear), "xfs/xfs_error.c xfs_corruption_error(); 3.10-6.18";
    "xfs-repair": XFS,
        "{Corruption not fixed during online repair.<blanks>}{Failed to remove inode(s) from \
         unlinked list. Please free space, }<Unmount|unmount> and run xfs_repair"
        => Effect(FsCorruption, Unclear), "xfs/xfs_error.c, libxfs/xfs_inode_buf.c; 3.10-6.18";
    "xfs-repair-free-list": XFS, "WARNING: Reset corrupted AGFL on AG <dec>. <dec> \
         blocks leaked. Please unmount and run xfs_repair"
        => Effect(FsCorruption, Unclear), "xfs/libxfs/xfs_alloc.c xfs_agfl_reset(); 4.17-6.18";
    "xfs-repair-log": XFS, "Corruption warning: Metadata has LSN (<dec>:<dec>) ahead of current \
         LSN (<dec>:<dec>). Please unmount and run xfs_repair"
        => Effect(FsCorruption, Unclear), "xfs/xfs_log.c xfs_log_check_lsn(); 4.4-6.18";
    "xfs-dinode": XFS, "corrupt dinode <dec>"
        => Cause(FsCorruption, Unclear), "xfs/xfs_inode.c xfs_iformat(); up to 4.16";
    "xfs-free-inode": XFS, "Corruption detected! Free inode 0x<hex> not marked free!"
        => Cause(FsCorruption, Unclear), "xfs/xfs_icache.c xfs_iget_check_free_state(); 4.18-6.18";
    "xfs-inode-check": XFS, "xfs_iread: validation failed for inode <dec>"
        => Cause(FsCorruption, Unclear), "xfs/libxfs/xfs_inode_buf.c xfs_iread(); 3.10-5.7";
    "xfs-inode": XFS, "corrupt inode <dec> ("
        => Cause(FsCorruption, Unclear), "xfs/xfs_inode.c; up to 4.16";
    "xfs-bad-inode": XFS, "bad inode magic/vsn daddr <dec> #<dec> (magic="
        => Cause(FsCorruption, Unclear), "xfs/libxfs/xfs_inode_buf.c; 3.10-4.16";
    "xfs-summary": XFS, "SB summary counter sanity check failed"
        => Cause(FsCorruption, Unclear), "xfs/xfs_mount.c xfs_check_summary_counts(); 4.19-6.18";
    "xfs-sb-validate": XFS, "SB validate failed"
        => Effect(FsCorruption, Unclear), "xfs/libxfs/xfs_sb.c xfs_sb_read_verify(); 3.10-6.18";
    "xfs-sb-check": XFS, "SB sanity check {<dec> }failed"
        => Effect(FsCorruption, Unclear), "xfs/libxfs/xfs_sb.c xfs_validate_sb_common(); 3.10-6.18";
    "xfs-alert": XFS, "Corruption Alert: Buffer at daddr 0x<hex> had permanent write failures"
        => Effect(FsError, Unclear),
           "xfs/xfs_buf.c xfs_buf_ioerror_permanent(): permanent write failures; 4.7-6.18";
    "xfs-metadata-io": XFS, "metadata I/O error in \"<file>{+0x<hex>/0x<hex>}{ [<word>]}\" at \
         daddr 0x<hex> len <dec> error <dec>"
        => ParseKind(io_error), "xfs/xfs_buf.c xfs_buf_ioerror_alert(); 4.17-6.18";
    "xfs-metadata-io-old": XFS, "metadata I/O error: block 0x<hex> (\"<file>\") error <dec>"
        => ParseKind(io_error), "xfs/xfs_buf.c xfs_buf_ioerror_alert(); 3.10-4.16";
    "xfs-log-io": XFS, "log I/O error <dec>$"
        => ParseKind(io_error), "xfs/xfs_log.c xlog_ioend_work(); 5.4-6.18";
    "xfs-writeback": XFS, "writeback error on <inode|sector> <dec>"
        => Effect(FsError, Unclear),
           "xfs/xfs_aops.c xfs_destroy_ioend(), xfs_end_ioend(); 3.10-6.18";
    "xfs-async": XFS, "<Failing|Detected failing> async write on buffer block 0x<hex>"
        => Effect(FsError, Unclear), "xfs/xfs_buf.c xfs_buf_iodone_callback_error(); 3.10-6.18";
    "xfs-mount-failed": XFS, "log mount/recovery failed: error <dec>"
        => ParseKind(mount_failed), "xfs/xfs_log.c xfs_log_mount(); 3.10-6.18";
    "xfs-unhealthy": XFS, "Uncorrected metadata errors detected; please run xfs_repair"
        => Cause(FsCorruption, Unclear), "xfs/xfs_health.c xfs_health_unmount(); 5.4-6.18";
}

/// The row's last field. 5 (EIO), 61 (ENODATA: the medium), 19 (ENODEV), 117 (EUCLEAN) and 74
/// (EBADMSG: checksums), 28 (ENOSPC), 12 (ENOMEM)
fn io_error(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match text.fields.last()?.trim_start_matches('-') {
        "117" | "74" => RecordKind::Cause(FsCorruption, Unclear),
        // The thin pool below is full.
        "28" => RecordKind::Effect(FsError, No),
        _ => RecordKind::Effect(FsError, Unclear),
    })
}

fn mount_failed(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match text.fields.last()?.trim_start_matches('-') {
        "117" | "74" => RecordKind::Cause(FsCorruption, Unclear),
        _ => RecordKind::Effect(FsError, Unclear),
    })
}
