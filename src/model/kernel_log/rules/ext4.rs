//! Rules for ext2, ext3, ext4 and JBD2: corruption of their own structures, errors of the
//! underlying device, and their reactions.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{FILESYSTEM, Rule, RuleFamily};

const EXT: RuleFamily = FILESYSTEM.with_prefix("EXT").rate_limited();
const JBD2: RuleFamily = FILESYSTEM.with_prefix("JBD2: ");

pub(crate) const RULES: &[Rule] = &[
    EXT.with_prefix("EXT4-fs (").rule(
        "ext4-error-old",
        "error count",
        Ignore,
        "fs/ext4/super.c print_daily_error_info(): printed once a day, about past errors; 3.10-6.18",
    ),
    EXT.rule(
        "ext4-error",
        "-fs error (device ",
        ParseKind(error),
        "fs/ext4/super.c __ext4_error(), __ext4_error_inode(), __ext4_std_error(), ext3, ext2; 3.10-6.18",
    ),
    EXT.rule(
        "ext4-critical",
        "-fs critical (device ",
        ParseKind(error),
        "fs/ext4/super.c; 3.10-6.18",
    ),
    EXT.rule(
        "ext4-panic",
        "-fs (device ",
        Continuation,
        "fs/ext4/super.c __ext4_abort(); up to 5.9",
    ),
    EXT.rule(
        "ext4-read-only",
        "Remounting filesystem read-only",
        Cause(ReadOnly, Unclear),
        "fs/ext4/super.c ext4_handle_error(), ext3, ext2; 3.10-6.18",
    ),
    EXT.rule(
        "ext4-superblock",
        "I/O error while writing superblock",
        Effect(FsError, Unclear),
        "fs/ext4/super.c ext4_commit_super(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-superblock-before",
        "previous I/O error to superblock detected",
        Effect(FsError, Unclear),
        "fs/ext4/super.c ext4_commit_super(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-superblock-read",
        "unable to read superblock",
        Effect(FsError, Unclear),
        "fs/ext4/super.c ext4_load_super(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-end-bio",
        "I/O error ",
        ParseKind(end_bio),
        "fs/ext4/page-io.c ext4_end_bio(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-loss",
        "This should not happen!! Data will be lost",
        Effect(FsError, Unclear),
        "fs/ext4/inode.c mpage_map_and_submit_extent(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-unwritten",
        "failed to convert unwritten extents",
        Effect(FsError, Unclear),
        "fs/ext4/page-io.c ext4_end_io_end(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-delayed",
        "Delayed block allocation failed",
        ParseKind(delayed_allocation),
        "fs/ext4/inode.c mpage_map_and_submit_extent(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-checksum",
        "hecksum invalid",
        Effect(FsCorruption, Unclear),
        "fs/ext4/namei.c, bitmap.c; 3.10-6.18",
    ),
    EXT.rule(
        "ext4-group",
        "group descriptors corrupted",
        Cause(FsCorruption, Unclear),
        "fs/ext4/super.c ext4_fill_super(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-not-in-group",
        "ext4_check_descriptors",
        ParseKind(descriptors),
        "fs/ext4/super.c ext4_check_descriptors(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-journal",
        "error loading journal",
        Effect(FsCorruption, Unclear),
        "fs/ext4/super.c ext4_load_journal(); 3.10-6.18",
    ),
    EXT.rule(
        "ext4-no-journal",
        "no journal found",
        Effect(FsCorruption, Unclear),
        "fs/ext4/super.c ext4_get_journal_inode(); 3.10-6.18",
    ),
    // The journal abort and the rejected writes that follow were also requested.
    EXT.with_prefix("EXT4-fs (").rule(
        "ext4-shut-down",
        "shut down requested",
        Record(RecordKind::ExpectedFailure { medium: false }),
        "fs/ext4/ioctl.c ext4_force_shutdown(): an operator requested it; 4.11-6.18",
    ),
    FILESYSTEM.rule(
        "jbd2-aborting",
        "Aborting journal on device ",
        Parse(journal_of),
        "fs/jbd2/journal.c __jbd2_journal_abort_hard(), jbd; 3.10-6.18",
    ),
    JBD2.rule(
        "jbd2-superblock",
        "when updating journal superblock for ",
        Parse(journal_of),
        "fs/jbd2/journal.c jbd2_write_superblock(); 3.10-6.18",
    ),
    JBD2.rule(
        "jbd2-flush",
        "Detected IO errors while flushing file data on ",
        Parse(journal_of),
        "fs/jbd2/commit.c jbd2_journal_commit_transaction(); 3.10-6.18",
    ),
    JBD2.rule(
        "jbd2-commit",
        "IO error reading journal superblock",
        Effect(FsError, Unclear),
        "fs/jbd2/journal.c journal_get_superblock(); 3.10-6.18",
    ),
    JBD2.rule(
        "jbd2-read",
        "Failed to read block at offset",
        Effect(FsError, Unclear),
        "fs/jbd2/recovery.c jread(); 3.10-6.18",
    ),
    // ext4's own record with the device name follows.
    JBD2.rule(
        "jbd2-checksum",
        "Invalid checksum recovering",
        Cause(FsCorruption, Unclear),
        "fs/jbd2/recovery.c do_one_pass(); 3.10-6.18",
    ),
    JBD2.rule(
        "jbd2-superblock-checksum",
        "ournal checksum error",
        Cause(FsCorruption, Unclear),
        "fs/jbd2/journal.c; 3.10-6.18",
    ),
    JBD2.rule(
        "jbd2-recovery",
        "recovery failed",
        Cause(FsCorruption, Unclear),
        "fs/jbd2/journal.c jbd2_journal_load(); 3.10-6.18",
    ),
    JBD2.rule(
        "jbd2-risk",
        "risk of filesystem corruption",
        Continuation,
        "fs/jbd2/transaction.c warn_dirty_buffer(): a program writes to the underlying device; 3.10-6.18",
    ),
];

/// Distinguishes corruption of the filesystem's own structures from I/O errors of the underlying
/// device.
fn error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let (_, message) = text
        .after
        .split_once("): ")
        .or_else(|| text.after.split_once(") in "))?;
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    Some(match () {
        // The errno of __ext4_std_error(): aborted or read-only before, so not a new error.
        () if says(&[
            "Detected aborted journal",
            "Journal has aborted",
            "Readonly filesystem",
        ]) =>
        {
            RecordKind::Effect(FsError, Unclear)
        }
        // -ENOSPC, -ENOMEM, -EDQUOT, as text.
        () if says(&["Out of memory", "No space left", "error 28"]) => RecordKind::Continuation,
        () if says(&[
            "IO failure",
            "I/O error",
            "Cannot read ",
            "annot read block bitmap",
            "unable to read",
            "reading directory lblock",
            "error reading",
            "while async write back metadata",
            "IO error",
            "Error -5",
            "error -5",
            "err -5",
            "Unable to read",
            "IO read error",
            "failed to read",
        ]) =>
        {
            RecordKind::Effect(FsError, Unclear)
        }
        () => RecordKind::Cause(FsCorruption, Unclear),
    })
}

/// `I/O error 10 writing to inode 2 …` (block status; an errno before 4.13): lack of space is not
/// an error of the device.
fn end_bio(text: &MatchedText<'_>) -> Option<RecordKind> {
    let code: String = text
        .after
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '-')
        .collect();
    if !text.after.contains("writing to inode") {
        return None;
    }
    Some(if matches!(code.as_str(), "3" | "-28") {
        RecordKind::Continuation
    } else {
        RecordKind::Effect(FsError, Unclear)
    })
}

fn delayed_allocation(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(if text.after.contains("error 28") {
        RecordKind::Continuation
    } else {
        RecordKind::Effect(FsError, Unclear)
    })
}

fn descriptors(text: &MatchedText<'_>) -> Option<RecordKind> {
    text.after
        .contains("not in group")
        .then_some(RecordKind::Cause(FsCorruption, Unclear))
}

/// `dm-2-8`: the journal is inode 8 of dm-2. After its abort, every write is rejected.
fn journal_of(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let name = text.after.split([' ', '\n']).next()?.trim_end_matches('.');
    let name = name
        .rsplit_once('-')
        .filter(|(_, inode)| {
            inode.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with("dm-")
                || name.matches('-').count() > 1
        })
        .map_or(name, |(disk, _)| disk);
    let kind = if text.all.contains("Aborting journal") {
        RecordKind::Cause(ReadOnly, Unclear)
    } else {
        RecordKind::Effect(FsError, Unclear)
    };
    Some(ParsedRecord::new(device_name::parse_block(name)?, kind))
}
