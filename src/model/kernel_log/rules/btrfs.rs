//! Rules for btrfs: checksum errors, corrections by redundancy, and device counters.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::DeviceName;
use crate::model::kernel_log::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{FILESYSTEM, Rule, RuleFamily};

const BTRFS: RuleFamily = FILESYSTEM.rate_limited();

pub(crate) const RULES: &[Rule] = &[
    BTRFS.with_prefix("BTRFS info").rule(
        "btrfs-info",
        " errs: wr ",
        Ignore,
        "fs/btrfs/volumes.c btrfs_dev_stat_print_on_load(): counters at mount are of the past; 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-counters",
        " errs: wr ",
        Parse(counters),
        "fs/btrfs/volumes.c btrfs_dev_stat_print_on_error(); 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-lost-page",
        "lost page write due to ",
        Parse(lost_page),
        "fs/btrfs/disk-io.c btrfs_end_super_write(); 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-super",
        "error writing primary super block to device",
        Effect(FsError, Unclear),
        "fs/btrfs/disk-io.c write_dev_supers(); 4.20-6.18",
    ),
    BTRFS.rule(
        "btrfs-read-only",
        "forced readonly",
        Cause(ReadOnly, Unclear),
        "fs/btrfs/super.c, messages.c btrfs_handle_fs_error(); 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-csum",
        "csum failed ",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/btrfs_inode.h btrfs_print_data_csum_error(), inode.c; 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-checksum-at",
        "checksum error at logical ",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/scrub.c scrub_print_warning(); 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-verify",
        "checksum verify failed on ",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/disk-io.c; 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-transid",
        "parent transid verify failed on ",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/disk-io.c verify_parent_transid(); 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-tree-start",
        "bad tree block start",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/disk-io.c btree_readpage_end_io_hook(); 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-tree-level",
        "bad tree block level",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/disk-io.c; 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS ").rule(
        "btrfs-leaf",
        "corrupt leaf",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/tree-checker.c; 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS ").rule(
        "btrfs-node",
        "corrupt node",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/tree-checker.c; 4.14-6.18",
    ),
    BTRFS.with_prefix("BTRFS ").rule(
        "btrfs-tree-block",
        "tree block corruption",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/disk-io.c; 4.20-6.18",
    ),
    BTRFS.with_prefix("BTRFS ").rule(
        "btrfs-header",
        "header error at logical",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/scrub.c; 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-fixed",
        "fixed up error at logical ",
        Parse(fixed),
        "fs/btrfs/scrub.c scrub_handle_errored_block(); 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-corrected",
        "read error corrected: ",
        Parse(corrected),
        "fs/btrfs/bio.c, extent_io.c repair_io_failure(); 3.10-6.18",
    ),
    BTRFS.rule(
        "btrfs-unfixable",
        "unable to fixup (",
        Cause(FsCorruption, Unclear),
        "fs/btrfs/scrub.c scrub_handle_errored_block(); 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS ").rule(
        "btrfs-scrub-io",
        "i/o error at logical ",
        Effect(FsError, Unclear),
        "fs/btrfs/scrub.c scrub_print_warning(); 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS").rule(
        "btrfs-errno",
        "errno=",
        ParseKind(errno),
        "fs/btrfs/super.c, messages.c __btrfs_handle_fs_error(); 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS").rule(
        "btrfs-aborted",
        "Transaction aborted (error ",
        ParseKind(aborted),
        "fs/btrfs/transaction.h, ctree.h btrfs_abort_transaction(); 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS error (device ").rule(
        "btrfs-old-error",
        ") in ",
        ParseKind(old_error),
        "fs/btrfs/super.c __btrfs_std_error(): `…: IO failure`; up to 4.0",
    ),
    BTRFS.with_prefix("BTRFS").rule(
        "btrfs-commit",
        "Skipping commit of aborted transaction",
        Continuation,
        "fs/btrfs/transaction.c cleanup_transaction(); 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS").rule(
        "btrfs-open",
        "open_ctree failed",
        Continuation,
        "fs/btrfs/super.c btrfs_fill_super(); 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS").rule(
        "btrfs-chunk",
        "failed to read chunk ",
        Effect(FsCorruption, Unclear),
        "fs/btrfs/disk-io.c open_ctree(); 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS").rule(
        "btrfs-tree-root",
        "failed to read tree root",
        Effect(FsCorruption, Unclear),
        "fs/btrfs/disk-io.c open_ctree(); 3.10-6.18",
    ),
    BTRFS.with_prefix("BTRFS").rule(
        "btrfs-missing",
        "too many missing devices, writeable mount is not allowed",
        Effect(Removed, Unclear),
        "fs/btrfs/disk-io.c, volumes.c; 3.10-6.18",
    ),
];

/// Printed at an error, not at mount (which prints info): the counters are sums since the
/// filesystem was made.
fn counters(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let number = |name: &str| {
        text.all
            .split_once(name)
            .and_then(|(_, rest)| rest.split([',', ' ']).next())
            .and_then(|number| number.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let io = ["wr ", "rd ", "flush "].iter().any(|name| number(name) > 0);
    let device = text
        .before
        .rsplit(' ')
        .next()
        .and_then(device_name::parse_block);
    let parsed = ParsedRecord::from_text(
        text,
        if io {
            RecordKind::Effect(FsError, Unclear)
        } else {
            RecordKind::Effect(FsCorruption, Unclear)
        },
    );
    // `btrfs: bdev /dev/sda1 errs: …`, up to 4.0, does not identify the filesystem.
    match device {
        Some(device) if parsed.device == DeviceName::Unnamed => {
            Some(ParsedRecord { device, ..parsed })
        }
        device => Some(ParsedRecord {
            other_name: device,
            ..parsed
        }),
    }
}

fn lost_page(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device = text
        .after
        .split_once(" on ")
        .and_then(|(_, rest)| device_name::parse_block(rest));
    Some(ParsedRecord {
        other_name: device,
        ..ParsedRecord::from_text(text, RecordKind::Effect(FsError, Unclear))
    })
}

fn fixed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        corrected: true,
        ..ParsedRecord::from_text(text, RecordKind::Effect(FsCorruption, Unclear))
    })
}

fn corrected(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        corrected: true,
        ..ParsedRecord::from_text(text, RecordKind::Effect(FsError, Unclear))
    })
}

/// -28: no space. -5: the underlying device. -30: already read-only. -117, -74, -2, -17: the
/// filesystem's trees contradict each other.
fn errno(text: &MatchedText<'_>) -> Option<RecordKind> {
    let code = text.after.split(' ').next()?;
    Some(match code.trim_end_matches(['.', ',']) {
        "-28" | "-12" | "-122" => RecordKind::Continuation,
        "-5" | "-30" | "-19" | "-110" => RecordKind::Effect(FsError, Unclear),
        _ => RecordKind::Cause(FsCorruption, Unclear),
    })
}

fn aborted(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match text.after.split(')').next()? {
        "-28" | "-12" => RecordKind::Continuation,
        "-5" | "-30" => RecordKind::Effect(FsError, Unclear),
        _ => RecordKind::Effect(FsCorruption, Unclear),
    })
}

fn old_error(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(if text.after.contains("No space left") {
        RecordKind::Continuation
    } else if text.after.contains("IO failure") || text.after.contains("Readonly filesystem") {
        RecordKind::Effect(FsError, Unclear)
    } else {
        RecordKind::Cause(FsCorruption, Unclear)
    })
}
