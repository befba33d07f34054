//! Recorded output of e2fsck 1.47, xfs_repair 6.1 and btrfs-progs 6.2 over images that were damaged
//! on purpose.

mod btrfs;
mod laws;

use super::*;
use crate::Filesystem::{Btrfs, Ext4, Xfs};
use crate::run_result::classify_run;
use crate::{Mode, RunResult, Termination, Weight};

pub(crate) const EXT4_CLEAN: &str = "e2fsck 1.47.0 (5-Feb-2023)
Pass 1: Checking inodes, blocks, and sizes
Pass 2: Checking directory structure
Pass 3: Checking directory connectivity
Pass 4: Checking reference counts
Pass 5: Checking group summary information
/dev/vg0/data: 74/16384 files (0.0% non-contiguous), 10056/65536 blocks
";

pub(crate) const XFS_CLEAN: &str = "Cannot get host filesystem geometry.
Repair may fail if there is a sector size mismatch between
the image and the host filesystem.
Phase 1 - find and verify superblock...
Phase 2 - using internal log
        - zero log...
        - scan filesystem freespace and inode maps...
        - found root inode chunk
Phase 3 - for each AG...
        - scan (but don't clear) agi unlinked lists...
        - process known inodes and perform inode discovery...
        - agno = 0
        - process newly discovered inodes...
Phase 4 - check for duplicate blocks...
        - setting up duplicate extent list...
        - check for inodes claiming duplicate blocks...
        - agno = 0
No modify flag set, skipping phase 5
Phase 6 - check inode connectivity...
        - traversing filesystem ...
        - traversal finished ...
        - moving disconnected inodes to lost+found ...
Phase 7 - verify link counts...
No modify flag set, skipping filesystem flush and exiting.
";

pub(crate) const BTRFS_CLEAN: &str = "[1/7] checking root items
[2/7] checking extents
[3/7] checking free space tree
[4/7] checking fs roots
[5/7] checking only csums items (without verifying data)
[6/7] checking root refs
[7/7] checking quota groups skipped (not enabled on this FS)
Opening filesystem to check...
Checking filesystem on /dev/sdb1
UUID: ddcdffe7-bfc5-4ee2-b64a-fbebe282eed6
found 917504 bytes used, no error found
total csum bytes: 720
total tree bytes: 180224
total fs tree bytes: 65536
total extent tree bytes: 16384
btree space waste bytes: 141380
file data blocks allocated: 737280
 referenced 737280
";

pub fn parse(filesystem: Filesystem, text: &str) -> ParsedOutput {
    let mut reader = OutputParser::new(filesystem);
    text.lines().for_each(|line| reader.push_line(line));
    reader.finish()
}

/// `Weight kind id,id` a line.
fn problem_lines(filesystem: Filesystem, text: &str) -> String {
    let parsed = parse(filesystem, text);
    parsed
        .problems
        .iter()
        .map(|flaw| format!("{:?} {} {}\n", flaw.weight, flaw.kind, flaw.ids.join(",")))
        .collect()
}

/// The clean output with these lines in the middle.
pub(crate) fn insert_lines(clean: &str, lines: &str) -> String {
    let middle = clean
        .find("Pass 2")
        .or_else(|| clean.find("Phase 4"))
        .or_else(|| clean.find("[3/7]"))
        .unwrap();
    format!("{}{lines}\n{}", &clean[..middle], &clean[middle..])
}

#[test]
fn a_clean_run_has_no_problems_and_is_complete() {
    for (filesystem, clean) in [(Ext4, EXT4_CLEAN), (Xfs, XFS_CLEAN), (Btrfs, BTRFS_CLEAN)] {
        assert_eq!(
            parse(filesystem, clean),
            ParsedOutput {
                complete: true,
                no_error_found: filesystem == Btrfs,
                ..ParsedOutput::default()
            }
        );
        let mut reader = OutputParser::new(filesystem);
        clean.lines().take(9).for_each(|line| reader.push_line(line));
        assert!(reader.phase().is_some());
        assert!(!reader.finish().complete || filesystem != Xfs);
    }
}

#[test]
fn boilerplate_of_healthy_runs_is_no_problem() {
    let ext4 = "Warning!  /dev/loop0 is mounted.\n/dev/loop0 is mounted.\nInode 12 extent tree (at level 1) could be shorter.  Optimize? no\n\nInode 13 extent tree (at level 2) could be narrower.  Optimize? no\n\n/dev/loop0 was not cleanly unmounted, check forced.";
    assert_eq!(problem_lines(Ext4, &insert_lines(EXT4_CLEAN, ext4)), "");
    let xfs = "        - 18:05:01: scanning filesystem freespace - 4 of 4 allocation groups done\nMemory available for repair (46MB) may not be sufficient.\nAt least 48MB is needed to repair this filesystem efficiently\nIf repair fails due to lack of memory, please\nturn prefetching off (-P) to reduce the memory footprint.";
    assert_eq!(problem_lines(Xfs, &insert_lines(XFS_CLEAN, xfs)), "");
    assert_eq!(
        problem_lines(
            Btrfs,
            &insert_lines(
                BTRFS_CLEAN,
                "WARNING: filesystem mounted, continuing because of --force"
            )
        ),
        ""
    );
}

#[test]
fn ext4_problems_with_their_question_in_the_line_or_the_next() {
    let text = "Inode 35, i_blocks is 18, should be 0.  Fix? no

Inode 35 (/d1/f3) has invalid mode (0170644).
Clear? no

Inode 57 has an invalid extent
\t(logical block 0, invalid physical block 70000000, len 9)
Clear? no

Inode 46 has corrupt extent header.  Clear inode? no

Inode 1768 passes checks, but checksum does not match inode.  Fix? no

Entry 'f3' in /d1 (12) has deleted/unused inode 35.  Clear? no

Entry 'f3' in /d1 (12) has an incorrect filetype (was 1, should be 0).
Fix? no

Inode 35 ref count is 5, should be 1.  Fix? no

Unattached inode 35
Connect to /lost+found? no

Directory inode 12, block #1: directory passes checks but fails checksum.
Fix? no

Multiply-claimed block(s) in inode 464: 3084
One or more block group descriptor checksums are invalid.  Fix? no

Block bitmap differences:  +33618 -(100--200)
Fix? no

Inode bitmap differences: Group 1 inode bitmap does not match checksum.
IGNORED.
";
    insta::assert_snapshot!(problem_lines(Ext4, &insert_lines(EXT4_CLEAN, text)), @r##"
    Damage invalid-mode 35
    Damage invalid-extent 57
    Damage extent-header 46
    Damage inode-checksum 1768
    Damage entry-to-unused-inode f3,/d1,12,35
    Damage unattached-inode 35
    Damage directory-checksum 12,1
    Damage multiply-claimed 464
    Damage group-descriptor-checksum 
    Bookkeeping inode-blocks 35
    Bookkeeping entry-filetype f3,/d1,12
    Bookkeeping inode-links 35
    Bookkeeping inode-bitmap-checksum 1
    Bookkeeping block-bitmap +33618
    Bookkeeping block-bitmap -(100--200)
    "##);
}

#[test]
fn ext4_blocks_only_in_the_bitmap_are_open_files_if_there_are_orphans() {
    let ahead = "Block bitmap differences:  -(4584--4592) -9000\nFix? no\n\nInode bitmap differences:  -35\nFix? no\n";
    let orphans = "Inode 35 was part of the orphaned inode list.  IGNORED.";
    let weights = |text: &str| {
        parse(Ext4, &insert_lines(EXT4_CLEAN, text))
            .problems
            .iter()
            .map(|flaw| flaw.weight)
            .collect::<Vec<_>>()
    };
    assert_eq!(weights(ahead), [Weight::Bookkeeping; 3]);
    assert_eq!(weights(&format!("{ahead}{orphans}")), [Weight::Transient; 4]);
    assert_eq!(
        weights(&format!("{orphans}\n{}", ahead.replace("-9000", "+9000")))[..2],
        [Weight::Bookkeeping; 2]
    );
}

#[test]
fn ext4_transient_problems_are_exactly_these() {
    let text = "Inodes that were part of a corrupted orphan linked list found.  Fix? no

Inode 35 was part of the orphaned inode list.  IGNORED.
Deleted inode 36 has zero dtime.  Fix? no

Orphan file (inode 12) block 3 is not clean.
Clear? no

Free blocks count wrong for group #0 (3265, counted=3305).
Fix? no

Free blocks count wrong (55480, counted=55520).
Fix? no

Free inodes count wrong (5, counted=6).
Fix? no

Directories count wrong for group #1 (5, counted=6).
Fix? no
";
    let parsed = parse(Ext4, &insert_lines(EXT4_CLEAN, text));
    assert_eq!(parsed.problems.len(), 8);
    assert!(parsed.problems.iter().all(|flaw| flaw.weight == Weight::Transient), "{parsed:?}");
    for real in [
        "Orphan file (inode 12) has bad magic",
        "Feature orphan_present is set but orphan file is clean.",
        "Inode 7 is in use, but has dtime set.  Fix? no",
    ] {
        assert_eq!(
            parse(Ext4, &insert_lines(EXT4_CLEAN, real)).problems[0].weight,
            Weight::Damage,
            "{real}"
        );
    }
}

#[test]
fn ext4_using_a_backup_superblock_is_a_problem_and_having_none_a_failure() {
    let lost = "e2fsck 1.47.0 (5-Feb-2023)\next2fs_open2: Bad magic number in super-block\ne2fsck: Superblock invalid, trying backup blocks...\n";
    let parsed = parse(Ext4, &insert_lines(EXT4_CLEAN, lost));
    assert!(
        parsed.failure.is_none()
            && parsed.complete
            && parsed.problems.iter().any(|flaw| flaw.kind == "superblock")
    );
    let parsed = parse(
        Ext4,
        &format!(
            "{lost}e2fsck: Bad magic number in super-block while trying to open /dev/sdb\n\nThe superblock could not be read or does not describe a valid ext2/ext3/ext4\n"
        ),
    );
    assert_eq!(
        parsed.failure.as_deref(),
        Some("e2fsck: Bad magic number in super-block while trying to open /dev/sdb")
    );
}

#[test]
fn ext4_messages_are_recognized_whatever_path_e2fsck_was_called_by() {
    let lost = "/usr/sbin/e2fsck: Superblock invalid, trying backup blocks...";
    assert_eq!(
        problem_lines(Ext4, &insert_lines(EXT4_CLEAN, lost)),
        problem_lines(Ext4, &insert_lines(EXT4_CLEAN, lost.trim_start_matches("/usr/sbin/")))
    );
    for words in [
        "Invalid argument while trying to open /dev/sdb",
        "Attempt to read block from filesystem resulted in short read",
    ] {
        assert_eq!(
            parse(Ext4, &format!("/usr/sbin/e2fsck: {words}")).failure,
            Some(format!("e2fsck: {words}"))
        );
    }
    let name = parse(
        Ext4,
        "Entry '/sbin/e2fsck: aborted' in / (2) has deleted/unused inode 35.  Clear? no",
    );
    assert!(name.failure.is_none() && name.problems.len() == 1);
}

#[test]
fn an_unresponsive_device_is_a_failure_and_no_problem() {
    let failure = |filesystem, text: &str| parse(filesystem, text).failure.is_some();
    assert!(failure(
        Ext4,
        "Error reading block 33 (Input/output error) while reading inode and block bitmaps.  Ignore error? no"
    ));
    assert!(failure(Ext4, "Error reading block 7988 (Invalid argument).  Ignore error? no"));
    assert!(!failure(
        Ext4,
        "Error while iterating over blocks in inode 12: Invalid argument passed to ext2 library"
    ));
    assert!(failure(Ext4, "e2fsck: No such file or directory while trying to open /dev/sdq"));
    assert!(failure(Ext4, "e2fsck: aborted"));
    assert!(failure(Ext4, "Error reading block 33 (Function not implemented).  Ignore error? no"));
    // A name is no message.
    for (filesystem, line) in [
        (Ext4, "Entry 'Function not implemented' in / (2) has deleted/unused inode 12.  Clear? no"),
        (
            Xfs,
            "entry \"Function not implemented\" in directory inode 128 references free inode 131",
        ),
        (Btrfs, "unresolved ref dir 256 index 2 namelen 3 name ERROR: Function not implemented"),
    ] {
        assert!(!failure(filesystem, line), "{line}");
    }
    for words in [
        "xfs_repair: /dev/loop0 contains a mounted and writable filesystem",
        "fatal error -- couldn't initialize XFS library",
        "fatal error -- cannot create worker threads, error = [11] Resource temporarily unavailable",
        "Required memory for repair is greater that the maximum specified",
        "superblock read failed, offset 167772160, size 131072, ag 2, rval 0",
        ".......................Sorry, could not find valid secondary superblock",
        "xfs_repair: read failed: Input/output error",
        "xfs_repair: cannot open /dev/loop0: Function not implemented",
    ] {
        assert!(failure(Xfs, words), "{words}");
    }
    for words in [
        "No valid Btrfs found on /dev/sdb",
        "ERROR: cannot open file system",
        "ERROR: cannot read device /dev/sdb: Function not implemented",
        "ERROR: /dev/sdb is currently mounted, use --force if you really intend to check the filesystem",
    ] {
        assert!(failure(Btrfs, words), "{words}");
    }
    // Taken away in the middle: all that follows is of a block that was not read.
    let gone = "[2/7] checking extents\nError reading 30474240, -1\nError reading 30474240, -1\n\
                bad tree block 30474240, bytenr mismatch, want=30474240, have=0\nERROR: failed to repair root items: Input/output error";
    assert_eq!(
        parse(Btrfs, &insert_lines(BTRFS_CLEAN, gone)).failure.as_deref(),
        Some("Error reading 30474240, -1")
    );
}

#[test]
fn a_file_name_cannot_pass_for_a_checker_message() {
    for name in
        ["x.  Optimize? no", "e2fsck: aborted", "a: 1/2 files (0.0% non-contiguous), 3/4 blocks"]
    {
        let parsed = parse(
            Ext4,
            &format!("Entry '{name}' in / (2) has deleted/unused inode 35.  Clear? no"),
        );
        assert!(
            !parsed.complete && parsed.failure.is_none() && parsed.problems.len() == 1,
            "{name}"
        );
    }
    let parsed = parse(
        Xfs,
        "entry \"fatal error -- x\" in directory inode 131 points to free inode 134, would junk entry",
    );
    assert!(parsed.failure.is_none() && parsed.problems.len() == 1);
}

#[test]
fn a_pending_replay_is_reported_and_is_no_problem() {
    let parsed = parse(
        Ext4,
        &insert_lines(
            EXT4_CLEAN,
            "Warning: skipping journal recovery because doing a read-only filesystem check.",
        ),
    );
    assert!(parsed.pending_replay.is_some() && parsed.problems.is_empty() && parsed.complete);
    let alert = "ALERT: The filesystem has valuable metadata changes in a log which is being\nignored because the -n option was used.  Expect spurious inconsistencies\nwhich may be resolved by first mounting the filesystem to replay the log.";
    let parsed = parse(Xfs, &insert_lines(XFS_CLEAN, alert));
    assert!(parsed.pending_replay.is_some() && parsed.problems.is_empty() && parsed.complete);
}

#[test]
fn progress_lines_of_xfs_repair_change_no_problem() {
    let plain = "Phase 3 - for each AG...\nbad CRC for inode 131\nbad CRC for inode 132, would clear inode 132\n";
    let with_progress = "Phase 3 - for each AG...\n        - 21:27:17: scanning agi unlinked lists - 4 of 4 allocation groups done\nbad CRC for inode 131\nbad CRC for inode 132, \t- 21:27:27: process known inodes and inode discovery - 1 of 2 inodes done\nwould clear inode 132\n";
    let read = |text: &str| {
        let mut parser = OutputParser::new(Filesystem::Xfs);
        text.lines().for_each(|line| parser.push_line(line));
        (parser.permille(), parser.finish())
    };
    let (none, expected) = read(plain);
    let (permille, parsed) = read(with_progress);
    assert_eq!((none, permille), (None, Some(255)));
    assert_eq!(parsed, expected);
    assert_eq!(parsed.problems.len(), 2, "{parsed:?}");
}

#[test]
fn xfs_problems_have_no_addresses_and_are_counted_once_over_all_phases() {
    let text = "Metadata CRC error detected at 0x55b6333a0f80, xfs_agf block 0x28001/0x200
Metadata CRC error detected at 0x56ffffff1230, xfs_agf block 0x28001/0x200
agf has bad CRC for ag 1
agf_freeblks 5, counted 20462 in ag 1
agi_count 1152, counted 64 in ag 1
Metadata corruption detected at 0x56259f5941a6, xfs_inode block 0x80/0x4000
bad CRC for inode 134
bad magic number 0x0 on inode 134
bad CRC for inode 134, would rewrite
bad magic number 0x0 on inode 134, would reset magic number
would have cleared inode 134
bad nblocks 9 for inode 135, would reset to 3
bad inode type 0170000 inode 136
entry \"f3\" at block 0 offset 128 in directory inode 131 references free inode 134
\twould clear inode number in entry at offset 128...
bad hash table for directory inode 131 (no data entry): would rebuild
would have reset inode 137 nlinks from 5 to 1
disconnected inode 140, would move to lost+found";
    insta::assert_snapshot!(problem_lines(Xfs, &insert_lines(XFS_CLEAN, text)), @r##"
    Damage metadata-crc xfs_agf,0x28001/0x200
    Damage agf-crc 1
    Damage metadata-corruption xfs_inode,0x80/0x4000
    Damage inode-crc 134
    Damage inode-magic 0x0,134
    Damage inode-unusable 134
    Damage inode-type 136
    Damage entry-to-free-inode f3,0,128,131,134
    Damage directory-hash 131
    Damage disconnected-inode 140
    Bookkeeping agf-free-blocks 1
    Bookkeeping agi-count 1
    Bookkeeping inode-blocks 135
    Bookkeeping inode-links 137
    "##);
}

#[test]
fn xfs_transient_problems_are_exactly_these() {
    let text = "sb_fdblocks 5, counted 65038
sb_icount 64, counted 128
sb_ifree 61, counted 60
agi unlinked bucket 6 is 134 in ag 0 (inode=134)
Would clear next_unlinked in inode 134
leftover CoW extent (0/123) len 32
disconnected inode 134, would move to lost+found
would have reset inode 134 nlinks from 0 to 1";
    let parsed = parse(Xfs, &insert_lines(XFS_CLEAN, text));
    assert_eq!(parsed.problems.len(), 8);
    assert!(parsed.problems.iter().all(|flaw| flaw.weight == Weight::Transient), "{parsed:?}");
    for real in [
        "disconnected inode 134, would move to lost+found\nwould have reset inode 135 nlinks from 0 to 1",
        "would have reset inode 134 nlinks from 0 to 2",
        "would have reset inode 134 nlinks from 1 to 2",
    ] {
        assert!(
            parse(Xfs, &insert_lines(XFS_CLEAN, real)).problems[0].weight > Weight::Transient,
            "{real}"
        );
    }
}

#[test]
fn xfs_a_lost_superblock_with_a_good_copy_is_a_problem() {
    let text = "Phase 1 - find and verify superblock...\nbad primary superblock - bad magic number !!!\n\nattempting to find secondary superblock...\n.found candidate secondary superblock...\nverified secondary superblock...\nwould write modified primary superblock\nPrimary superblock would have been modified.\nCannot proceed further in no_modify mode.\nExiting now.";
    let parsed = parse(Xfs, text);
    assert!(parsed.complete && parsed.failure.is_none());
    assert_eq!(problem_lines(Xfs, text), "Damage superblock \nDamage superblock-modified \n");
    let blank = "bad primary superblock - bad magic number !!!\n\nattempting to find secondary superblock...\n....Sorry, could not find valid secondary superblock\nExiting now.";
    assert!(parse(Xfs, blank).failure.is_some());
}

/// btrfs-progs 6.16.1 and later on a fresh filesystem of mkfs.btrfs 6.2, with exit status 1.
#[test]
fn btrfs_leftovers_of_mkfs_are_harmless_and_hide_nothing() {
    let leftovers = "Space key logical 1048576 length 4194304 has no corresponding block group\nSpace key logical 5242880 length 8388608 has no corresponding block group";
    let output =
        |lines: &str| insert_lines(BTRFS_CLEAN, lines).replace("no error found", "error(s) found");
    let verdict = |text: &str| {
        let parsed = parse(Btrfs, text);
        [Mode::Unmounted, Mode::Frozen]
            .map(|mode| classify_run(Btrfs, mode, &parsed, &Termination::Exited(1)).0)
    };
    let fresh = output(leftovers);
    insta::assert_snapshot!(problem_lines(Btrfs, &fresh), @r"
    Transient free-space-orphan 1048576,4194304
    Transient free-space-orphan 5242880,8388608
    ");
    assert_eq!(verdict(&fresh), [RunResult::Clean; 2]);

    let elsewhere =
        output("Space key logical 1104150528 length 8388608 has no corresponding block group");
    assert_eq!(
        problem_lines(Btrfs, &elsewhere),
        "Bookkeeping free-space-orphan 1104150528,8388608\n"
    );
    for also in [
        "ERROR: errors found in fs roots",
        "ref mismatch on [13754368 12288] extent item 1, found 0",
        "Space key logical 5242880 length 83886080 has no corresponding block group",
    ] {
        let text = output(&format!("{leftovers}\n{also}"));
        assert_eq!(verdict(&text), [RunResult::Findings; 2], "{also}");
    }
}

#[test]
fn an_unknown_line_is_a_problem_named_by_its_words() {
    assert_eq!(
        problem_lines(Ext4, "Gizmo 12 of '/a b' is 0x1f crooked.  Fix? no"),
        "Damage gizmo-of-is-crooked 12,/a b,0x1f\n"
    );
    assert_eq!(
        problem_lines(Xfs, "gizmo 12 is crooked, would straighten"),
        "Damage gizmo-is-crooked 12\n"
    );
    assert_eq!(problem_lines(Btrfs, "12 34"), "Unknown unknown 12,34\n");
}

#[test]
fn progress_bars_are_no_problem() {
    assert_eq!(
        problem_lines(
            Ext4,
            "/dev/sdb1: |=====       | 40.0%\rPass 2: Checking directory structure"
        ),
        ""
    );
}
