//! Rules for btrfs: checksum errors, corrections by redundancy, and device counters.

use crate::device_name;
use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::{DamagedCopies, DeviceName};
use crate::parsed_record::{BlockCopy, MatchedText, ParsedRecord, RecordKind, TopologyUpdate};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, FILESYSTEM, RuleFamily, rules};

/// `BTRFS error (device sda1 state EA): `; without the device if no filesystem is concerned; up to
/// 4.4 also `BTRFS: ` and `BTRFS (device sda1): `; up to 3.13 also `btrfs: ` and `btrfs `.
const BTRFS: RuleFamily = FILESYSTEM.rate_limited().with_prefix(
    "<BTRFS|btrfs>{:}{ <emergency|alert|critical|error|warning|notice|info|debug>}\
     { (device <disk>}{:}{ state <word>}<): |: | >",
);
const SCRUB: RuleFamily = DRIVE.with_prefix("BTRFS info (device <disk>{:}{ state <word>}): ");
/// Up to 3.13 without a colon after the first word; 5.18 had one after the device.
const ERROR: RuleFamily =
    BTRFS.with_prefix("BTRFS{:} error (device <disk>{:}{ state <word>}) in <word>:<dec>: ");

rules! {
    in "fs/btrfs/";
    "btrfs-info": BTRFS.with_prefix("BTRFS info (device <disk>{:}{ state <word>}): "),
        "bdev <path>{ disk>} errs: wr "
        => Ignore,
           "volumes.c btrfs_dev_stat_print_on_load(): counters at mount are of the past; 3.10-6.18";
    "btrfs-scrub": SCRUB, "scrub: started on devid <dec>$"
        => ParseKind(scrub_begun), "scrub.c btrfs_scrub_dev(); 5.4-6.18";
    "btrfs-scrubbed": SCRUB, "scrub: finished on devid <dec> with status: 0$"
        => ParseKind(scrub_done),
           "scrub.c btrfs_scrub_dev(): `not finished` and a status otherwise; 5.4-6.18";
    "btrfs-counters": BTRFS,
        "bdev <path>{ disk>} errs: wr <dec>, rd <dec>, flush <dec>, corrupt <dec>, gen <dec>"
        => Parse(counters), "volumes.c btrfs_dev_stat_print_on_error(); 3.10-6.18";
    "btrfs-lost-page": BTRFS, "lost <page|super block> write due to <IO|I/O> error on <path>"
        => Parse(lost_page), "disk-io.c btrfs_end_super_write(); 3.10-6.18";
    "btrfs-super": BTRFS, "error writing primary super block to device <dec>"
        => Effect(FsError, Unclear), "disk-io.c write_dev_supers(); 4.20-6.18";
    "btrfs-read-only": BTRFS, "{is }forced readonly$"
        => Cause(ReadOnly, Unclear), "super.c, messages.c btrfs_handle_fs_error(); 3.10-6.18";
    "btrfs-csum": BTRFS, "csum failed {root <dec> }ino <dec> <off|extent> <dec> "
        => Parse(data_copy), "btrfs_inode.h btrfs_print_data_csum_error(), inode.c; 3.10-6.18";
    "btrfs-checksum-at": BTRFS, "{scrub: }checksum error at logical <dec> "
        => Parse(scrubbed_copy), "scrub.c scrub_print_warning(); 3.10-6.18";
    "btrfs-verify": BTRFS, "checksum verify failed on {logical }<dec> "
        => Parse(metadata_copy), "disk-io.c; 5.5-6.18";
    "btrfs-verify-old": BTRFS, "<disk> checksum verify failed on <dec> wanted "
        => Cause(FsCorruption, Unclear),
           "disk-io.c csum_tree_block(): with the filesystem's device; 3.10-5.4";
    "btrfs-transid": BTRFS, "parent transid verify failed on {logical }<dec> "
        => Parse(metadata_copy), "disk-io.c verify_parent_transid(); 3.10-6.18";
    "btrfs-transid-old": BTRFS.with_prefix(""),
        "parent transid verify failed on <dec> wanted <dec> found <dec>$"
        => Cause(FsCorruption, Unclear),
           "disk-io.c verify_parent_transid(): without a device; 3.10-3.13";
    "btrfs-tree-start-copy": BTRFS, "bad tree block start, mirror <dec> want <dec> have "
        => Parse(tree_block_of_mirror), "disk-io.c btrfs_validate_extent_buffer(); 5.18-6.18";
    "btrfs-tree-level-copy": BTRFS,
        "bad tree block level, mirror <dec> level <dec> on logical <dec>"
        => Parse(tree_block_of_mirror), "disk-io.c btrfs_validate_extent_buffer(); 5.18-6.18";
    "btrfs-tree-start": BTRFS, "bad tree block start{,} <want |mirror |><dec>"
        => Cause(FsCorruption, Unclear), "disk-io.c btree_readpage_end_io_hook(); 3.10-6.18";
    "btrfs-tree-level": BTRFS, "bad tree block level{,} <mirror |><dec>"
        => Cause(FsCorruption, Unclear), "disk-io.c; 3.10-6.18";
    "btrfs-leaf": BTRFS, "corrupt{ed} leaf<:|,| >"
        => Cause(FsCorruption, Unclear), "tree-checker.c; 3.10-6.18";
    "btrfs-node": BTRFS, "corrupt{ed} node<:|,| >"
        => Cause(FsCorruption, Unclear), "tree-checker.c; 4.14-6.18";
    "btrfs-block": BTRFS, "<level verify failed|bad fsid> on logical <dec> "
        => Parse(metadata_copy),
           "disk-io.c btrfs_verify_level_key(), btrfs_validate_extent_buffer(); 4.18-6.18";
    "btrfs-inconsistent": BTRFS, "<unable to find logical |tree level mismatch detected\
         |tree first key mismatch detected|superblock checksum mismatch\
         |superblock contains fatal errors|super block corruption detected|invalid tree nritems\
         |found a bad chunk map|corrupted chunk tree|mapping failed logical \
         |failed to rebuild valid logical |dev extent physical offset |failed to verify dev extents\
         |failed to recover balance|failed to load root >"
        => Cause(FsCorruption, Unclear), "volumes.c btrfs_get_chunk_map(), \
            disk-io.c btrfs_verify_level_key(), open_ctree(); 3.10-6.18";
    "btrfs-tree-block-scrub": BTRFS, "tree block <dec> mirror <dec> has bad "
        => Parse(scrubbed_tree_block), "scrub.c scrub_verify_one_metadata(); 6.1-6.18";
    "btrfs-supers": BTRFS, "<dec> errors while writing supers$"
        => Effect(FsError, Unclear), "disk-io.c write_all_supers(); 3.10-6.18";
    "btrfs-rebuild": BTRFS, "IO error rebuilding logical <dec> for dev "
        => Effect(FsError, Unclear), "scrub.c scrub_handle_errored_block(); 3.13-6.4";
    "btrfs-block-groups": BTRFS, "failed to read <block groups|log tree>: <dec>$"
        => ParseKind(errno), "disk-io.c open_ctree(); 3.10-6.18";
    "btrfs-device-missing": BTRFS, "devid <dec> uuid <file> is missing$"
        => Effect(Removed, Unclear), "volumes.c btrfs_report_missing_device(); 4.14-6.18";
    "btrfs-tree-block": BTRFS,
        "{block=<dec> }{mirror <dec> }<read|write> time tree block corruption detected"
        => Cause(FsCorruption, Unclear), "disk-io.c; 4.20-6.18";
    "btrfs-header": BTRFS, "{scrub: }{checksum/}header error at logical <dec> "
        => Parse(scrubbed_copy), "scrub.c; 3.10-6.18";
    "btrfs-fixed": BTRFS, "{scrub: }fixed up error at logical <dec> on <dev|mirror> "
        => Parse(fixed), "scrub.c scrub_handle_errored_block(); 3.10-6.18";
    "btrfs-corrected": BTRFS, "read error corrected: ino <dec> off <dec>"
        => Parse(corrected), "bio.c, extent_io.c repair_io_failure(); 3.10-6.18";
    "btrfs-unfixable": BTRFS,
        "{scrub: }unable to fixup (<regular|nodatasum>) error at logical <dec> on <dev|mirror> "
        => Cause(FsCorruption, Unclear), "scrub.c scrub_handle_errored_block(); 3.10-6.18";
    "btrfs-scrub-io": BTRFS, "{scrub: }i/o error at logical <dec> on dev "
        => Effect(FsError, Unclear), "scrub.c scrub_print_warning(); 3.10-6.18";
    "btrfs-errno": ERROR, "errno=<dec>"
        => ParseKind(errno), "super.c, messages.c __btrfs_handle_fs_error(); 3.10-6.18";
    "btrfs-panic": BTRFS, "panic in <word>:<dec>: "
        => ParseKind(panicked), "super.c, messages.c __btrfs_panic(); 3.14-6.18";
    "btrfs-panic-old": BTRFS.with_prefix("BTRFS panic (device <disk>) in "), "<word>:<dec>: "
        => ParseKind(panicked), "super.c __btrfs_panic(); 3.10-3.13";
    "btrfs-aborted": BTRFS, "Transaction aborted (error <dec>)"
        => ParseKind(aborted), "transaction.h, ctree.h btrfs_abort_transaction(); 3.10-6.18";
    "btrfs-old-error": ERROR, "<No space left|IO failure|Readonly filesystem|>"
        => ParseKind(old_error), "super.c __btrfs_std_error(): `…: IO failure`; up to 4.0";
    "btrfs-commit": BTRFS, "Skipping commit of aborted transaction"
        => Continuation, "transaction.c cleanup_transaction(); 3.10-6.18";
    "btrfs-open": BTRFS, "open_ctree failed"
        => Continuation, "super.c btrfs_fill_super(); 3.10-6.18";
    "btrfs-chunk": BTRFS, "failed to read chunk <root|tree>"
        => Effect(FsCorruption, Unclear), "disk-io.c open_ctree(); 3.10-6.18";
    "btrfs-tree-root": BTRFS,
        "<failed to read tree root|couldn't read tree root|couldn't read-tree root>"
        => Effect(FsCorruption, Unclear), "disk-io.c open_ctree(); 3.10-6.18";
    "btrfs-missing": BTRFS, "<too many missing devices, writeable mount is not allowed\
         |writeable mount is not allowed due to too many missing devices\
         |writable mount is not allowed due to too many missing devices>"
        => Effect(Removed, Unclear), "disk-io.c, volumes.c; 3.10-6.18";
}

fn scrub_begun(text: &MatchedText<'_>) -> Option<RecordKind> {
    let member = text.fields.last()?.parse().ok()?;
    Some(RecordKind::Topology(TopologyUpdate::ReadBegun(Some(member))))
}

fn scrub_done(text: &MatchedText<'_>) -> Option<RecordKind> {
    let member = text.fields.last()?.parse().ok()?;
    Some(RecordKind::Topology(TopologyUpdate::ReadDone(Some(member))))
}

/// Printed at an error, not at mount (which prints info): the counters are sums since the
/// filesystem was made.
fn counters(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let [path, write, read, flush, ..] = text.fields else {
        return None;
    };
    let io = [write, read, flush]
        .iter()
        .any(|number| number.parse::<u64>().is_ok_and(|number| number > 0));
    let parsed = ParsedRecord::from_text(
        text,
        if io {
            RecordKind::Effect(FsError, Unclear)
        } else {
            RecordKind::Effect(FsCorruption, Unclear)
        },
    );
    // Each counts damaged copies on one device.
    let parsed = ParsedRecord {
        damaged: if io { DamagedCopies::ALL } else { DamagedCopies::ONE },
        ..parsed
    };
    // `btrfs: bdev /dev/sda1 errs: …`, up to 4.0, does not identify the filesystem.
    // None: a longer name than a device's (`/dev/mapper/luks-…`), or `<missing disk>`.
    match device_name::parse_block_path(path) {
        Some(device) if parsed.device == DeviceName::Unnamed => {
            Some(ParsedRecord { device, ..parsed })
        }
        device => Some(ParsedRecord { other_name: device, ..parsed }),
    }
}

fn lost_page(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        other_name: device_name::parse_block_path(text.fields.last()?),
        ..ParsedRecord::from_text(text, RecordKind::Effect(FsError, Unclear))
    })
}

/// One copy of a block is damaged; whether another one is good, a later record says (`read error
/// corrected`, `unable to fixup`). Without a copy the record does not say which one it is: data
/// before 4.11, metadata before 5.18.
fn damaged_copy(
    text: &MatchedText<'_>,
    damaged: DamagedCopies,
    copy: Option<BlockCopy>,
) -> ParsedRecord {
    ParsedRecord {
        damaged: if copy.is_some() { damaged } else { DamagedCopies::ALL },
        copy,
        ..ParsedRecord::from_text(text, RecordKind::Cause(FsCorruption, Unclear))
    }
}

/// `csum failed root 5 ino 257 off 0 csum 0x1 expected csum 0x2 mirror 1`
fn data_copy(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let [root @ .., inode, _, offset] = text.fields else {
        return None;
    };
    let mirror = text.after.trim_end().rsplit_once(" mirror ");
    let copy = mirror.and_then(|(_, mirror)| block_copy(inode, offset, mirror));
    let copy = copy
        .map(|copy| BlockCopy { root: root.first().and_then(|root| root.parse().ok()), ..copy });
    Some(damaged_copy(text, DamagedCopies::ONE_OF_DATA, copy))
}

/// `parent transid verify failed on logical 30474240 mirror 1 wanted 10 found 8`
fn metadata_copy(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let mirror = text.after.strip_prefix("mirror ");
    let mirror = mirror.and_then(|text| text.split(' ').next());
    let copy = mirror.and_then(|mirror| block_copy("0", text.fields.last()?, mirror));
    Some(damaged_copy(text, DamagedCopies::ONE_OF_METADATA, copy))
}

/// `tree block 30474240 mirror 1 has bad csum`. A scrub reads a bad block again, and numbers its copies
/// from 0 then (scrub_setup_recheck_block(); 6.1 to 6.3): two numbers may be one copy. That no copy is
/// good is said by `unable to fixup`.
fn scrubbed_tree_block(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(copy_without_number(text, DamagedCopies::ONE_OF_METADATA))
}

/// `bad tree block start, mirror 1 want 30474240 have 0`
fn tree_block_of_mirror(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let [mirror, .., logical] = text.fields else {
        return None;
    };
    let copy = block_copy("0", logical, mirror);
    Some(damaged_copy(text, DamagedCopies::ONE_OF_METADATA, copy))
}

/// `checksum error at logical 4096 on dev /dev/sdb, physical 4096: metadata leaf (level 0) in tree 5`
fn scrubbed_copy(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let damaged = match text.after.contains(": metadata ") {
        true => DamagedCopies::ONE_OF_METADATA,
        false => DamagedCopies::ONE_OF_DATA,
    };
    Some(copy_without_number(text, damaged))
}

/// A damaged copy that is told from no other one of its block.
fn copy_without_number(text: &MatchedText<'_>, damaged: DamagedCopies) -> ParsedRecord {
    ParsedRecord { damaged, ..damaged_copy(text, damaged, None) }
}

fn block_copy(inode: &str, offset: &str, mirror: &str) -> Option<BlockCopy> {
    Some(BlockCopy {
        root: None,
        inode: inode.parse().ok()?,
        offset: offset.parse().ok()?,
        mirror: mirror.parse().ok()?,
    })
}

fn fixed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        damaged: DamagedCopies::NONE,
        ..ParsedRecord::from_text(text, RecordKind::Effect(FsCorruption, Unclear))
    })
}

/// `read error corrected: ino 257 off 0 (dev /dev/sdb sector 2056)`
fn corrected(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let [inode, offset] = text.fields else {
        return None;
    };
    Some(ParsedRecord {
        damaged: DamagedCopies::NONE,
        copy: block_copy(inode, offset, "0"),
        ..ParsedRecord::from_text(text, RecordKind::Effect(FsError, Unclear))
    })
}

fn errno(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(kind_of_errno(text.fields.last()?))
}

/// `Inconsistency in ordered tree at offset 4096 (errno=-17 Object already exists)`: the number
/// stands after the kernel's own text.
fn panicked(text: &MatchedText<'_>) -> Option<RecordKind> {
    let (_, code) = text.after.rsplit_once("(errno=")?;
    Some(kind_of_errno(code.split(' ').next()?))
}

/// -28: no space. -5: the underlying device. -30: already read-only. -117, -74, -2, -17: the
/// filesystem's trees contradict each other.
fn kind_of_errno(code: &str) -> RecordKind {
    match code {
        "-28" | "-12" | "-122" => RecordKind::Continuation,
        "-5" | "-30" | "-19" | "-110" => RecordKind::Effect(FsError, Unclear),
        _ => RecordKind::Cause(FsCorruption, Unclear),
    }
}

fn aborted(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match *text.fields.last()? {
        "-28" | "-12" => RecordKind::Continuation,
        "-5" | "-30" => RecordKind::Effect(FsError, Unclear),
        _ => RecordKind::Effect(FsCorruption, Unclear),
    })
}

fn old_error(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match *text.fields.last()? {
        "No space left" => RecordKind::Continuation,
        "IO failure" | "Readonly filesystem" => RecordKind::Effect(FsError, Unclear),
        _ => RecordKind::Cause(FsCorruption, Unclear),
    })
}
