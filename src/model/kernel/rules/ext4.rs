//! ext2, ext3, ext4 and JBD2: damage that they find in themselves, errors of what they lie on, and
//! what they do then.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::event::Device;
use crate::model::kernel::name;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Part, Rule, Said, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "ext4-error-old",
        "EXT4-fs (",
        "error count",
        Harmless,
        "fs/ext4/super.c print_daily_error_info(): told once a day, of errors long past; 3.10-6.18",
    ),
    rule(
        "ext4-error",
        "EXT",
        "-fs error (device ",
        Read(error),
        "fs/ext4/super.c __ext4_error(), __ext4_error_inode(), __ext4_std_error(), ext3, ext2; 3.10-6.18",
    ),
    rule(
        "ext4-critical",
        "EXT",
        "-fs critical (device ",
        Read(error),
        "fs/ext4/super.c; 3.10-6.18",
    ),
    rule(
        "ext4-panic",
        "EXT",
        "-fs (device ",
        Follow,
        "fs/ext4/super.c __ext4_abort(); up to 5.9",
    ),
    rule(
        "ext4-read-only",
        "EXT",
        "Remounting filesystem read-only",
        Cause(ReadOnly, Unclear),
        "fs/ext4/super.c ext4_handle_error(), ext3, ext2; 3.10-6.18",
    ),
    rule(
        "ext4-superblock",
        "EXT",
        "I/O error while writing superblock",
        Effect(FsError, Unclear),
        "fs/ext4/super.c ext4_commit_super(); 3.10-6.18",
    ),
    rule(
        "ext4-superblock-before",
        "EXT",
        "previous I/O error to superblock detected",
        Effect(FsError, Unclear),
        "fs/ext4/super.c ext4_commit_super(); 3.10-6.18",
    ),
    rule(
        "ext4-superblock-read",
        "EXT",
        "unable to read superblock",
        Effect(FsError, Unclear),
        "fs/ext4/super.c ext4_load_super(); 3.10-6.18",
    ),
    rule(
        "ext4-end-bio",
        "EXT",
        "I/O error ",
        Read(end_bio),
        "fs/ext4/page-io.c ext4_end_bio(); 3.10-6.18",
    ),
    rule(
        "ext4-loss",
        "EXT",
        "This should not happen!! Data will be lost",
        Effect(FsError, Unclear),
        "fs/ext4/inode.c mpage_map_and_submit_extent(); 3.10-6.18",
    ),
    rule(
        "ext4-unwritten",
        "EXT",
        "failed to convert unwritten extents",
        Effect(FsError, Unclear),
        "fs/ext4/page-io.c ext4_end_io_end(); 3.10-6.18",
    ),
    rule(
        "ext4-delayed",
        "EXT",
        "Delayed block allocation failed",
        Read(delayed),
        "fs/ext4/inode.c mpage_map_and_submit_extent(); 3.10-6.18",
    ),
    rule(
        "ext4-checksum",
        "EXT",
        "hecksum invalid",
        Effect(FsCorruption, Unclear),
        "fs/ext4/namei.c, bitmap.c; 3.10-6.18",
    ),
    rule(
        "ext4-group",
        "EXT",
        "group descriptors corrupted",
        Cause(FsCorruption, Unclear),
        "fs/ext4/super.c ext4_fill_super(); 3.10-6.18",
    ),
    rule(
        "ext4-not-in-group",
        "EXT",
        "ext4_check_descriptors",
        Read(descriptors),
        "fs/ext4/super.c ext4_check_descriptors(); 3.10-6.18",
    ),
    rule(
        "ext4-journal",
        "EXT",
        "error loading journal",
        Effect(FsCorruption, Unclear),
        "fs/ext4/super.c ext4_load_journal(); 3.10-6.18",
    ),
    rule(
        "ext4-no-journal",
        "EXT",
        "no journal found",
        Effect(FsCorruption, Unclear),
        "fs/ext4/super.c ext4_get_journal_inode(); 3.10-6.18",
    ),
    rule(
        "ext4-shut-down",
        "EXT4-fs (",
        "shut down requested",
        Read(by_hand),
        "fs/ext4/ioctl.c ext4_force_shutdown(): somebody asked for it; 4.11-6.18",
    ),
    rule(
        "jbd2-aborting",
        "",
        "Aborting journal on device ",
        Read(journal_of),
        "fs/jbd2/journal.c __jbd2_journal_abort_hard(), jbd; 3.10-6.18",
    ),
    rule(
        "jbd2-superblock",
        "JBD2: ",
        "when updating journal superblock for ",
        Read(journal_of),
        "fs/jbd2/journal.c jbd2_write_superblock(); 3.10-6.18",
    ),
    rule(
        "jbd2-flush",
        "JBD2: ",
        "Detected IO errors while flushing file data on ",
        Read(journal_of),
        "fs/jbd2/commit.c jbd2_journal_commit_transaction(); 3.10-6.18",
    ),
    rule(
        "jbd2-commit",
        "JBD2: ",
        "IO error reading journal superblock",
        Effect(FsError, Unclear),
        "fs/jbd2/journal.c journal_get_superblock(); 3.10-6.18",
    ),
    rule(
        "jbd2-read",
        "JBD2: ",
        "Failed to read block at offset",
        Effect(FsError, Unclear),
        "fs/jbd2/recovery.c jread(); 3.10-6.18",
    ),
    rule(
        "jbd2-checksum",
        "JBD2: ",
        "Invalid checksum recovering",
        Read(journal_corrupt),
        "fs/jbd2/recovery.c do_one_pass(); 3.10-6.18",
    ),
    rule(
        "jbd2-superblock-checksum",
        "JBD2: ",
        "ournal checksum error",
        Read(journal_corrupt),
        "fs/jbd2/journal.c; 3.10-6.18",
    ),
    rule(
        "jbd2-recovery",
        "JBD2: ",
        "recovery failed",
        Read(journal_corrupt),
        "fs/jbd2/journal.c jbd2_journal_load(); 3.10-6.18",
    ),
    rule(
        "jbd2-risk",
        "JBD2: ",
        "risk of filesystem corruption",
        Follow,
        "fs/jbd2/transaction.c warn_dirty_buffer(): a program writes to the device below; 3.10-6.18",
    ),
];

/// What an error is of: the filesystem's own structures, or the reads and writes of what it lies
/// on.
fn error(text: &Text<'_>) -> Option<Said> {
    let (_, message) = text
        .after
        .split_once("): ")
        .or_else(|| text.after.split_once(") in "))?;
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let part = match () {
        // The errno of __ext4_std_error(): aborted before, read-only before: no news.
        () if says(&[
            "Detected aborted journal",
            "Journal has aborted",
            "Readonly filesystem",
        ]) =>
        {
            Part::Effect(FsError, Unclear)
        }
        // -ENOSPC, -ENOMEM, -EDQUOT, as words.
        () if says(&["Out of memory", "No space left", "error 28"]) => Part::Follow,
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
            Part::Effect(FsError, Unclear)
        }
        () => Part::Cause(FsCorruption, Unclear),
    };
    Some(Said::of(text, part))
}

/// `I/O error 10 writing to inode 2 …` (block status; an errno before 4.13): no space is no error
/// of the device.
fn end_bio(text: &Text<'_>) -> Option<Said> {
    let code: String = text
        .after
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '-')
        .collect();
    if !text.after.contains("writing to inode") {
        return None;
    }
    Some(Said::of(
        text,
        if matches!(code.as_str(), "3" | "-28") {
            Part::Follow
        } else {
            Part::Effect(FsError, Unclear)
        },
    ))
}

fn delayed(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(
        text,
        if text.after.contains("error 28") {
            Part::Follow
        } else {
            Part::Effect(FsError, Unclear)
        },
    ))
}

fn descriptors(text: &Text<'_>) -> Option<Said> {
    text.after
        .contains("not in group")
        .then(|| Said::of(text, Part::Cause(FsCorruption, Unclear)))
}

/// The journal that is aborted then, and what is refused, are by hand too.
fn by_hand(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Excuse { medium: false }))
}

/// `dm-2-8`: the journal is inode 8 of dm-2. From its abort on, every write is refused.
fn journal_of(text: &Text<'_>) -> Option<Said> {
    let name = text.after.split([' ', '\n']).next()?.trim_end_matches('.');
    let name = name
        .rsplit_once('-')
        .filter(|(_, inode)| {
            inode.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with("dm-")
                || name.matches('-').count() > 1
        })
        .map_or(name, |(disk, _)| disk);
    let part = if text.all.contains("Aborting journal") {
        Part::Cause(ReadOnly, Unclear)
    } else {
        Part::Effect(FsError, Unclear)
    };
    Some(Said::new(name::block(name)?, part))
}

fn journal_corrupt(_: &Text<'_>) -> Option<Said> {
    // ext4's own line, which names the device, comes next; who needs the name finds it there.
    Some(Said::new(
        Device::Unnamed,
        Part::Cause(FsCorruption, Unclear),
    ))
}
