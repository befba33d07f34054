//! Rules for ext2, ext3, ext4 and JBD2: corruption of their own structures, errors of the
//! underlying device, and their reactions.

use std::sync::LazyLock;

use crate::device_name;
use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::DeviceName;
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::pattern::{Captures, Pattern};
use crate::rule::RuleAction::*;
use crate::rule::{FILESYSTEM, RuleFamily, rules};

const ERROR: RuleFamily =
    FILESYSTEM.with_prefix("EXT<4|3|2>-fs <error|critical> (device <disk>)").rate_limited();
const MESSAGE: RuleFamily = FILESYSTEM.with_prefix("EXT<4|3|2>-fs (<disk>): ").rate_limited();
const WARNING: RuleFamily =
    FILESYSTEM.with_prefix("EXT4-fs warning (device <disk>): <word>:<dec>: ").rate_limited();
const JBD: RuleFamily = FILESYSTEM.with_prefix("JBD{2}: ");

rules! {
    in "fs/";
    "ext4-error-old": MESSAGE, "error count"
        => Ignore, "ext4/super.c print_daily_error_info(): printed once a day, about past errors; \
            2.6.32-6.18";
    "ext4-error": ERROR, ": <word>{:<dec>}: "
        => ParseKind(error), "ext4/super.c __ext4_error(), __ext4_error_inode(), \
            __ext4_error_file(), ext3, ext2; 2.6.32-6.18";
    "ext4-error-in": ERROR, " in <word>{:<dec>}: "
        => ParseKind(errno), "ext4/super.c __ext4_std_error(), ext3; 2.6.32-6.18";
    "ext2-error": MESSAGE, "error: <word>: "
        => ParseKind(error), "ext2/super.c ext2_error(); 2.6.32-6.18";
    "ext4-read-only": MESSAGE,
        "<Remounting|error: remounting|error: Remounting> filesystem read-only"
        => Cause(ReadOnly, Unclear), "ext4/super.c ext4_handle_error(), ext3, ext2; 2.6.32-6.18";
    "ext4-superblock": MESSAGE, "I/O error while writing superblock"
        => Effect(FsError, Unclear), "ext4/super.c ext4_commit_super(); 2.6.32-6.18";
    "ext4-superblock-before": MESSAGE, "previous I/O error to superblock detected"
        => Effect(FsError, Unclear), "ext4/super.c ext4_commit_super(); 2.6.32-6.18";
    "ext4-superblock-read": MESSAGE, "{error: }unable to read superblock"
        => Effect(FsError, Unclear), "ext4/super.c ext4_load_super(), fs/ext2/super.c; 2.6.32-6.18";
    "ext4-directory": WARNING, "inode #<dec>: lblock <dec>: comm "
        => ParseKind(directory_error), "ext4/namei.c htree_dirblock_to_tree(), dir.c: \
            `… error -5 reading directory block`; 2.6.32-6.18";
    "ext4-write-pages": MESSAGE, "<word>: jbd2_start: <dec> pages, ino <dec>; err <dec>$"
        => ParseKind(write_pages),
           "ext4/inode.c ext4_da_writepages(), ext4_do_writepages(); 2.6.32-6.18";
    "ext4-end-bio": WARNING, "I/O error {<dec> }writing to inode <dec> "
        => ParseKind(end_bio), "ext4/page-io.c ext4_end_bio(); 2.6.32-6.18";
    "ext4-loss": MESSAGE, "This should not happen!!<blanks>Data will be lost"
        => Effect(FsError, Unclear), "ext4/inode.c mpage_map_and_submit_extent(); 2.6.32-6.18";
    "ext4-unwritten": MESSAGE, "failed to convert unwritten extents"
        => Effect(FsError, Unclear), "ext4/page-io.c ext4_end_io_end(); 2.6.32-6.18";
    "ext4-delayed": MESSAGE, "<D|d>elayed block allocation failed for inode <dec> \
         at logical offset <dec> with max blocks <dec> with error <dec>"
        => ParseKind(delayed_allocation), "ext4/inode.c mpage_map_and_submit_extent(); 2.6.32-6.18";
    "ext4-group": MESSAGE, "group descriptors corrupted"
        => Cause(FsCorruption, Unclear), "ext4/super.c ext4_fill_super(), ext2; 2.6.32-6.18";
    "ext4-not-in-group": MESSAGE, "ext4_check_descriptors: <Block bitmap|Inode bitmap|Inode table> \
         for group <dec> not in group "
        => Cause(FsCorruption, Unclear), "ext4/super.c ext4_check_descriptors(); 2.6.32-6.18";
    "ext4-group-checksum": MESSAGE, "ext4_check_descriptors: Checksum for group <dec> failed ("
        => Cause(FsCorruption, Unclear), "ext4/super.c ext4_check_descriptors(); 2.6.32-6.18";
    "ext4-journal": MESSAGE, "error loading journal"
        => Effect(FsCorruption, Unclear), "ext4/super.c ext4_load_journal(); 2.6.32-6.18";
    "ext4-root": MESSAGE,
        "<corrupt root inode, run e2fsck|get root inode failed|invalid journal inode\
         |external journal has bad superblock|external journal has corrupt superblock>"
        => Effect(FsCorruption, Unclear),
           "ext4/super.c __ext4_fill_super(), ext4_get_journal_inode(); 2.6.32-6.18";
    "ext4-journal-device": MESSAGE, "I/O error on journal device$"
        => Effect(FsError, Unclear), "ext4/super.c ext4_get_dev_journal(); 2.6.32-6.18";
    "ext4-no-journal": MESSAGE, "no journal found"
        => Effect(FsCorruption, Unclear), "ext4/super.c ext4_get_journal_inode(); 2.6.32-6.18";
    // The journal abort and the rejected writes that follow were also requested.
    "ext4-shut-down": MESSAGE, "shut down requested ("
        => Record(RecordKind::ExpectedFailure { medium: false }),
           "ext4/ioctl.c ext4_force_shutdown(): an operator requested it; 4.11-6.18";
    "jbd2-aborting": FILESYSTEM, "Aborting journal on device <disk>{.}$"
        => Parse(journal_aborted), "jbd2/journal.c __jbd2_journal_abort_hard(), jbd; 2.6.32-6.18";
    "jbd2-superblock": JBD,
        "{Error <dec> detected}{I/O error} when updating journal superblock for <disk>{.}$"
        => Parse(journal_error), "jbd2/journal.c jbd2_write_superblock(); 2.6.32-6.18";
    "jbd2-superblock-before": JBD,
        "previous I/O error detected for journal superblock update for <disk>{.}$"
        => Parse(journal_error), "jbd2/journal.c jbd2_write_superblock(); 2.6.32-6.18";
    "jbd2-corrupt": JBD, "journal transaction <dec> on <disk> is corrupt.$"
        => Parse(journal_corrupt), "jbd2/journal.c jbd2_journal_load(); 3.10-6.18";
    "jbd2-damaged": JBD, "<Invalid checksum found in transaction |corrupted journal superblock\
         |Invalid start block of journal: |bad block at offset >"
        => Cause(FsCorruption, Unclear), "jbd2/recovery.c do_one_pass(), journal.c; 2.6.32-6.18";
    "jbd2-recover": JBD, "IO error {<dec> }recovering {data }block <dec> <in|of> log$"
        => Effect(FsError, Unclear),
           "jbd2/recovery.c do_one_pass(), fs/jbd/recovery.c; 2.6.32-6.18";
    "jbd2-map": JBD.with_prefix(""),
        "<jbd2_journal_bmap|journal_bmap>: journal block not found at offset <dec> on <disk>$"
        => Parse(journal_corrupt),
           "jbd2/journal.c jbd2_journal_bmap(), fs/jbd/journal.c; 2.6.32-6.18";
    "jbd2-flush": JBD, "Detected IO errors while flushing file data on <disk>$"
        => Parse(journal_error), "jbd2/commit.c jbd2_journal_commit_transaction(); 2.6.32-6.18";
    "jbd2-commit": JBD, "IO error reading journal superblock"
        => Effect(FsError, Unclear), "jbd2/journal.c journal_get_superblock(); 2.6.32-6.18";
    "jbd2-read": JBD, "Failed to read block at offset <dec>$"
        => Effect(FsError, Unclear), "jbd2/recovery.c jread(); 2.6.32-6.18";
    // ext4's own record with the device name follows.
    "jbd2-checksum": JBD, "Invalid checksum recovering {data }block <dec> in "
        => Cause(FsCorruption, Unclear), "jbd2/recovery.c do_one_pass(); 2.6.32-6.18";
    "jbd2-superblock-checksum": JBD, "<j|J>ournal checksum error$"
        => Cause(FsCorruption, Unclear), "jbd2/journal.c; 2.6.32-6.18";
    "jbd2-recovery": JBD, "recovery failed$"
        => Cause(FsCorruption, Unclear), "jbd2/journal.c jbd2_journal_load(); 2.6.32-6.18";
}

/// Messages about errors of the underlying device, or about an earlier error; all others are about
/// the filesystem's own structures. They stand at the record's end: before them can stand names
/// that users choose (`comm NAME: path NAME: `).
const DEVICE_ERRORS: [&str; 22] = [
    "Detected aborted journal$",
    "Couldn't clean up the journal$",
    "reading directory lblock <dec>$",
    "error -5 reading directory block{ (ino <dec>, block <dec>)}$",
    "unable to read itable block$",
    "unable to read inode block - inode=<dec>, block=<dec>$",
    "Cannot read <block|inode> bitmap - block_group = <dec>, <block|inode>_bitmap = <dec>$",
    "Error -5 reading block bitmap for <dec>$",
    "Error -5 loading buddy information for <dec>$",
    "Error while async write back metadata$",
    "Error writing to MMP block$",
    "error reading MMP data: -5$",
    "error while reading EA inode <dec> err=-5$",
    "couldn't read orphan inode <dec> (err -5)$",
    "error -5 getting inode <dec> block$",
    "error -5 when attempting revoke$",
    "{inode <dec>: }block <dec> read error$",
    "<Read failure|IO error syncing itable block|IO error syncing inode>{, inode=<dec>, block=<dec>}$",
    "detected IO error when writing metadata buffers$",
    "unable to read inode block <dec>$",
    "failed to read block <dec>$",
    "IO failure$",
];

static DEVICE_ERROR_PATTERNS: LazyLock<Vec<Pattern>> =
    LazyLock::new(|| DEVICE_ERRORS.iter().filter_map(|text| Pattern::parse(text).ok()).collect());

/// Distinguishes corruption of the filesystem's own structures from I/O errors of the underlying
/// device.
fn error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let after_names = text.after.match_indices(": ").map(|(at, _)| at + 2);
    let of_device =
        std::iter::once(0).chain(after_names).map(|at| &text.after[at..]).any(|message| {
            DEVICE_ERROR_PATTERNS
                .iter()
                .any(|pattern| pattern.find(message, &mut Captures::default()).is_some())
        });
    Some(if of_device {
        RecordKind::Effect(FsError, Unclear)
    } else {
        RecordKind::Cause(FsCorruption, Unclear)
    })
}

/// The texts of ext4_decode_error(). Aborted or read-only before: not a new error.
fn errno(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match text.after.trim_ascii_end() {
        "IO failure" | "error 5" | "Journal has aborted" | "Readonly filesystem" => {
            RecordKind::Effect(FsError, Unclear)
        }
        "Out of memory" | "error 28" | "error 12" | "error 122" => RecordKind::Continuation,
        _ => RecordKind::Cause(FsCorruption, Unclear),
    })
}

/// `I/O error 10 writing to inode 2 …` (block status; an errno before 4.13): lack of space is not
/// an error of the device.
fn end_bio(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match text.fields {
        // BLK_STS_NOSPC, ENOSPC: the thin pool below is full, and the data were not written.
        ["3" | "-28", _] => RecordKind::Effect(FsError, No),
        _ => RecordKind::Effect(FsError, Unclear),
    })
}

fn delayed_allocation(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match text.fields {
        [.., "28" | "-28"] => RecordKind::Continuation,
        _ => RecordKind::Effect(FsError, Unclear),
    })
}

/// The comm is followed by the kernel's text. -5: the device; others: the directory.
fn directory_error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let (_, errno) = text.after.rsplit_once(": error ")?;
    let errno = errno.trim_ascii_end().strip_suffix(" reading directory block")?;
    Some(match errno {
        "-5" | "-30" => RecordKind::Effect(FsError, Unclear),
        _ => RecordKind::Cause(FsCorruption, Unclear),
    })
}

/// -5 and -30: the journal was aborted.
fn write_pages(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match text.fields {
        [.., "-28" | "-12" | "-122"] => RecordKind::Continuation,
        _ => RecordKind::Effect(FsError, Unclear),
    })
}

fn journal_corrupt(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::new(journal_device(text.device)?, RecordKind::Cause(FsCorruption, Unclear)))
}

/// After the abort, every write is rejected.
fn journal_aborted(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::new(journal_device(text.device)?, RecordKind::Cause(ReadOnly, Unclear)))
}

fn journal_error(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::new(journal_device(text.device)?, RecordKind::Effect(FsError, Unclear)))
}

/// `dm-2-8`: the journal is inode 8 of dm-2.
fn journal_device(journal: &DeviceName) -> Option<DeviceName> {
    let DeviceName::Block(name) = journal else {
        return None;
    };
    let disk = name.rsplit_once('-').filter(|(_, inode)| {
        inode.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with("dm-")
            || name.matches('-').count() > 1
    });
    device_name::parse_block(disk.map_or(name.as_str(), |(disk, _)| disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_about_the_device_is_a_pattern_to_the_records_end() {
        assert_eq!(DEVICE_ERROR_PATTERNS.len(), DEVICE_ERRORS.len());
        assert!(DEVICE_ERRORS.iter().all(|text| text.ends_with('$')));
    }
}
