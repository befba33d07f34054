//! ext4 and JBD2, XFS, btrfs, and others.

use super::*;

#[test]
fn ext4_and_jbd2_errors() {
    check(&[
        (
            "EXT4-fs error (device sdb1): ext4_lookup:1584: inode #33266878: comm pkg: deleted inode referenced: 33268803",
            "fs-corruption sdb1 unclear",
        ),
        (
            "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
            "fs-error sda1 unclear",
        ),
        (
            "EXT4-fs error (device sda1): __ext4_get_inode_loc:4484: inode #12: block 1058: comm ls: unable to read itable block",
            "fs-error sda1 unclear",
        ),
        (
            "EXT4-fs error (device dm-21) in ext4_reserve_inode_write:5941: Journal has aborted",
            "fs-error dm-21 unclear",
        ),
        (
            "EXT4-fs error (device dm-21) in ext4_dirty_inode:5149: IO failure",
            "fs-error dm-21 unclear",
        ),
        (
            "EXT4-fs error (device sda1) in ext4_free_inode:1: Corrupt filesystem",
            "fs-corruption sda1 unclear",
        ),
        (
            "EXT3-fs error (device sda1): ext3_get_inode_loc: unable to read inode block - inode=1, block=2",
            "fs-error sda1 unclear",
        ),
        ("EXT4-fs (dm-22): Remounting filesystem read-only", "readonly dm-22 unclear"),
        ("EXT4-fs (sdm): I/O error while writing superblock", "fs-error sdm unclear"),
        (
            "EXT4-fs warning (device dm-22): ext4_end_bio:356: I/O error 10 writing to inode 3478024 (offset 0 size 0 starting block 15919078)",
            "fs-error dm-22 unclear",
        ),
        (
            "EXT4-fs warning (device dm-25): ext4_end_bio:370: I/O error 3 writing to inode 378 starting block 151425)",
            "fs-error dm-25 no",
        ),
        ("Aborting journal on device dm-21-8.", "readonly dm-21 unclear"),
        ("Aborting journal on device dm-21.", "readonly dm-21 unclear"),
        ("Aborting journal on device sdm-8.", "readonly sdm unclear"),
        (
            "JBD2: Error -5 detected when updating journal superblock for sdm-8.",
            "fs-error sdm unclear",
        ),
        ("JBD2: I/O error when updating journal superblock for sdm-8.", "fs-error sdm unclear"),
        ("JBD2: Detected IO errors while flushing file data on dm-22-8", "fs-error dm-22 unclear"),
        ("JBD2: Invalid checksum recovering block 5 in log", "fs-corruption unnamed unclear"),
        ("EXT4-fs (mmcblk2p23): error loading journal", "fs-corruption mmcblk2p23 unclear"),
    ]);
}

#[test]
fn ordinary_ext4_messages_are_ignored() {
    check(&[
        ("EXT4-fs (sda1): error count since last fsck: 9", "nothing"),
        ("EXT4-fs (sda1): error count: 9", "nothing"),
        ("EXT4-fs (sda1): initial error at time 1983333333: ext4_lookup:1584: inode 2", "nothing"),
        ("EXT4-fs (sda1): last error at time 1983333333: ext4_lookup:1584: inode 2", "nothing"),
        ("EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro", "nothing"),
        ("EXT4-fs (sda1): mounted filesystem 2a5b r/w with ordered data mode. Quota mode: none.", "nothing"),
        ("EXT4-fs (sda1): recovery complete", "nothing"),
        ("EXT4-fs (sda1): INFO: recovery required on readonly filesystem", "nothing"),
        ("EXT4-fs (sda1): shut down requested (1)", "nothing"),
        (
            "EXT4-fs (sda1): shut down requested (1)
             Aborting journal on device sda1-8.
             EXT4-fs error (device sda1): ext4_journal_check_start:83: comm dd: Detected aborted journal
             EXT4-fs (sda1): Remounting filesystem read-only",
            "nothing",
        ),
        (
            "EXT4-fs (sda1): shut down requested (1)
             EXT4-fs error (device sda1): ext4_lookup:1584: inode #2: comm ls: deleted inode referenced: 12
             EXT4-fs warning (device sda1): ext4_dirblock_csum_verify:1: inode #2: checksum invalid",
            "fs-corruption sda1 unclear",
        ),
        ("EXT4-fs (sda1): shut down requested (1)\nI/O error, dev sda, sector 8 op 0x0:(READ) flags 0x0", "io sda unclear 8"),
        ("EXT4-fs (sda1): 3 orphan inodes deleted", "nothing"),
    ]);
}

#[test]
fn xfs_errors() {
    check(&[
        (
            "XFS: Internal error XFS_WANT_CORRUPTED_RETURN at line 342 of file fs/xfs/xfs_alloc.c.  Caller 0xf4444444f563cb17",
            "fs-corruption unnamed unclear",
        ),
        (
            "XFS (dm-24): Internal error xfs_iunlink_remove at line 2361 of file fs/xfs/xfs_inode.c.  Caller xfs_ifree+0x33/0x130 [xfs]
             XFS (dm-24): Corruption detected. Unmount and run xfs_repair
             XFS (dm-24): xfs_do_force_shutdown(0x1) called from line 1011 of file fs/xfs/xfs_inode.c.  Return address = 05555555e2577046
             XFS (dm-24): I/O Error Detected. Shutting down filesystem
             XFS (dm-24): Please umount the filesystem and rectify the problem(s)",
            "fs-corruption dm-24 unclear; fs-shutdown dm-24 unclear",
        ),
        (
            "XFS (sda1): Corruption of in-memory data (0x8) detected at xfs_trans_cancel+0x133/0x160 [xfs] (fs/xfs/xfs_trans.c:1100).  Shutting down filesystem.",
            "fs-shutdown sda1 unclear",
        ),
        (
            "XFS (sda1): Log I/O Error (0x2) detected at xlog_ioend_work+0x1/0x2 [xfs] (fs/xfs/xfs_log.c:1).  Shutting down filesystem.",
            "fs-shutdown sda1 unclear",
        ),
        (
            "XFS (sda1): Metadata I/O Error (0x1) detected at xfs_trans_read_buf_map+0x1/0x2 (fs/xfs/xfs_trans_buf.c:1).  Shutting down filesystem.",
            "fs-shutdown sda1 unclear",
        ),
        ("XFS (sda1): Filesystem has been shut down due to log error (0x2).", "fs-shutdown sda1 unclear"),
        (
            "XFS (sda1): User initiated shutdown received.\nXFS (sda1): User initiated shutdown (0x10) detected at xfs_fs_goingdown+0x1/0x2 (fs/xfs/xfs_fsops.c:1).  Shutting down filesystem.\nXFS (sda1): log I/O error -5",
            "nothing",
        ),
        (
            "XFS (vda4): metadata I/O error in \"xfs_dquot_disk_read+0x14a/0x220 [xfs]\" at daddr 0x1478 len 8 error 74",
            "fs-corruption vda4 unclear",
        ),
        ("XFS (sdx): metadata I/O error in \"xfs_buf_ioend\" at daddr 0x1 len 8 error 61", "fs-error sdx unclear"),
        ("XFS (sdx): metadata I/O error: block 0x1 (\"xfs_trans_read_buf_map\") error 5 numblks 8", "fs-error sdx unclear"),
        ("XFS (sda1): log I/O error -5", "fs-error sda1 unclear"),
        ("XFS (sda1): writeback error on inode 131, offset 0, sector 91609", "fs-error sda1 unclear"),
        ("XFS (sda1): SB summary counter sanity check failed", "fs-corruption sda1 unclear"),
        (
            "XFS (dm-22): Metadata corruption detected at xfs_inode_buf_verify+0x2b8/0x350 [xfs], xfs_inode block 0xae0ece55",
            "fs-corruption dm-22 unclear",
        ),
        (
            "XFS (sda1): Mounting V5 Filesystem 2a5b\nXFS (sda1): Starting recovery (logdev: internal)\nXFS (sda1): Ending recovery (logdev: internal)",
            "nothing",
        ),
    ]);
}

#[test]
fn btrfs_errors() {
    check(&[
        (
            "BTRFS warning (device sda1): csum failed root 5 ino 257 off 0 csum 0x1 expected csum 0x2 mirror 1",
            "fs-corruption sda1 unclear copies 1 0",
        ),
        (
            "BTRFS error (device sda1): parent transid verify failed on logical 1 mirror 1 wanted 5 found 4",
            "fs-corruption sda1 unclear copies 0 1",
        ),
        ("btrfs: csum failed ino 257 off 0 csum 1 private 2", "fs-corruption unnamed unclear"),
        (
            "BTRFS error (device sda1): bdev /dev/sdb errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
            "fs-error sda1 unclear",
        ),
        (
            "BTRFS error (device md1): bdev /dev/md1 errs: wr 0, rd 0, flush 0, corrupt 41, gen 0",
            "fs-corruption md1 unclear copies 1 1",
        ),
        (
            "BTRFS info (device sda1): bdev /dev/sdb errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
            "nothing",
        ),
        (
            "BTRFS error (device sda1): fixed up error at logical 308028356105 on dev /dev/sda1",
            "fs-corruption sda1 unclear corrected",
        ),
        ("BTRFS info (device sda1 state E): forced readonly", "readonly sda1 unclear"),
        ("BTRFS info (device sda1): forced readonly", "readonly sda1 unclear"),
        ("btrfs is forced readonly", "readonly unnamed unclear"),
        (
            "BTRFS info (device sda1): read error corrected: ino 257 off 0 (dev /dev/sdb sector 2056)",
            "fs-error sda1 unclear corrected",
        ),
        (
            "BTRFS info (device sda1): csum failed ino 257 off 0 csum 1 expected csum 2",
            "fs-corruption sda1 unclear",
        ),
        (
            "BTRFS info (device sda1): fixed up error at logical 308028356105 on dev /dev/sda1",
            "fs-corruption sda1 unclear corrected",
        ),
        (
            "btrfs: bdev /dev/sda1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
            "fs-error sda1 unclear",
        ),
        (
            "BTRFS: bdev /dev/sda1 errs: wr 0, rd 0, flush 0, corrupt 3, gen 0",
            "fs-corruption sda1 unclear copies 1 1",
        ),
        (
            "BTRFS: error (device sda1) in btrfs_commit_transaction:2300: errno=-5 IO failure (Error while writing out transaction)",
            "fs-error sda1 unclear",
        ),
        (
            "BTRFS: error (device sda1 state A) in btrfs_run_delayed_refs:2150: errno=-28 No space left",
            "nothing",
        ),
        (
            "BTRFS critical (device sda1): corrupt leaf: root=5 block=1 slot=1, bad key order",
            "fs-corruption sda1 unclear",
        ),
        ("BTRFS info (device sda1): using crc32c (crc32c-intel) checksum algorithm", "nothing"),
    ]);
}

/// Other records say whether another copy of the block is good.
#[test]
fn damaged_copies_of_a_btrfs_are_counted_by_block() {
    let data = |offset: u32, mirror: u32| {
        format!(
            "BTRFS warning (device sda1): csum failed root 5 ino 257 off {offset} csum 0x1 expected csum 0x2 mirror {mirror}"
        )
    };
    let metadata = |logical: u32, mirror: u32| {
        format!(
            "BTRFS error (device sda1): parent transid verify failed on logical {logical} mirror {mirror} wanted 5 found 4"
        )
    };
    let repaired = |inode: u32, offset: u32| {
        format!(
            "BTRFS info (device sda1): read error corrected: ino {inode} off {offset} (dev /dev/sdb sector 2056)"
        )
    };
    let scrubbed = |logical: u32, mirror: u32| {
        format!(
            "BTRFS warning (device sda1): tree block {logical} mirror {mirror} has bad generation, has 8 want 10"
        )
    };
    let fixed =
        "BTRFS error (device sda1): fixed up error at logical 65536 on dev /dev/sdb physical 65536";
    let unfixable = "BTRFS error (device sda1): unable to fixup (regular) error at logical 65536 on dev /dev/sdb physical 65536";
    let counted =
        "BTRFS error (device sda1): bdev /dev/sdb errs: wr 0, rd 0, flush 0, corrupt 3, gen 0";
    let one = "fs-corruption sda1 unclear copies 1 0";
    let two = format!("{one}; fs-corruption sda1 unclear copies 2 0");
    let cases = [
        (vec![data(0, 1)], one),
        (vec![data(0, 1), data(4096, 2)], one),
        (vec![data(0, 1), data(4096, 1), data(0, 2)], &two),
        (vec![data(0, 1), repaired(257, 0), data(0, 2)], one),
        (vec![data(0, 1), counted.into()], one),
        (vec![counted.into()], "fs-corruption sda1 unclear copies 1 1"),
        // Another file.
        (vec![data(0, 1), data(0, 2).replace("root 5", "root 257")], one),
        // Its counters are of the past: a record that joins decides nothing.
        (
            vec![data(0, 1), counted.replace("rd 0", "rd 7"), data(0, 2)],
            &two.replace("; ", "; fs-error sda1 unclear; "),
        ),
        (
            vec![metadata(65536, 1), repaired(0, 65536), metadata(65536, 2)],
            "fs-corruption sda1 unclear copies 0 1",
        ),
        (
            vec![scrubbed(65536, 2), fixed.into(), scrubbed(81920, 2)],
            "fs-corruption sda1 unclear copies 0 1",
        ),
        // Linux 6.1 to 6.3 number the copies from 0 when they read a bad block again.
        (
            vec![scrubbed(65536, 1), scrubbed(65536, 0), fixed.into()],
            "fs-corruption sda1 unclear copies 0 1",
        ),
        (vec![scrubbed(65536, 2), scrubbed(65536, 1)], "fs-corruption sda1 unclear copies 0 1"),
        (
            vec![scrubbed(65536, 2), unfixable.into(), unfixable.into()],
            "fs-corruption sda1 unclear copies 0 1; fs-corruption sda1 unclear",
        ),
        (
            vec![fixed.into(), unfixable.into()],
            "fs-corruption sda1 unclear corrected; fs-corruption sda1 unclear",
        ),
    ];
    let cases: Vec<(String, &str)> =
        cases.into_iter().map(|(lines, expected)| (lines.join("\n"), expected)).collect();
    let cases: Vec<(&str, &str)> =
        cases.iter().map(|(lines, expected)| (lines.as_str(), *expected)).collect();
    check(&cases);
}
