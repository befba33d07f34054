use super::*;
use crate::Filesystem::{Btrfs, Ext4, Xfs};
use crate::parse::tests::{BTRFS_CLEAN, EXT4_CLEAN, XFS_CLEAN, insert_lines, parse};

const ALERT: &str = "ALERT: The filesystem has valuable metadata changes in a log which is being";
const QUIESCENT: [Mode; 3] = [Mode::Unmounted, Mode::ReadOnly, Mode::Snapshot];

fn classify(filesystem: Filesystem, mode: Mode, text: &str, status: i32) -> RunResult {
    classify_run(filesystem, mode, &parse(filesystem, text), &Termination::Exited(status)).0
}

#[test]
fn a_run_without_problems_and_status_0_is_clean_in_every_mode() {
    for mode in [Mode::Live, Mode::Frozen, Mode::Snapshot, Mode::ReadOnly, Mode::Unmounted] {
        for (filesystem, clean) in [(Ext4, EXT4_CLEAN), (Xfs, XFS_CLEAN), (Btrfs, BTRFS_CLEAN)] {
            assert_eq!(classify(filesystem, mode, clean, 0), RunResult::Clean);
        }
    }
}

#[test]
fn status_0_does_not_hide_problems() {
    for (filesystem, clean, found) in [
        (
            Xfs,
            XFS_CLEAN,
            "Metadata CRC error detected at 0x55b6333a0f80, xfs_attr3_leaf block 0x80/0x1000",
        ),
        (Ext4, EXT4_CLEAN, "One or more block group descriptor checksums are invalid.  Fix? no"),
        (
            Btrfs,
            BTRFS_CLEAN,
            "checksum verify failed on 30441472 wanted 0x42cd2901 found 0x4952e4b5",
        ),
    ] {
        for mode in [Mode::Live, Mode::Frozen, Mode::Unmounted] {
            assert_eq!(
                classify(filesystem, mode, &insert_lines(clean, found), 0),
                RunResult::Findings
            );
        }
    }
}

#[test]
fn a_findings_status_without_problems_is_a_failed_run() {
    assert_eq!(classify(Xfs, Mode::Live, XFS_CLEAN, 1), RunResult::Failed);
    assert_eq!(classify(Ext4, Mode::Frozen, EXT4_CLEAN, 4), RunResult::Failed);
    assert_eq!(classify(Btrfs, Mode::Unmounted, BTRFS_CLEAN, 1), RunResult::Failed);
}

#[test]
fn an_e2fsck_aborted_by_damage_has_findings_unless_live() {
    let damaged = "Pass 1: Checking inodes, blocks, and sizes\nInode 1845 passes checks, but checksum does not match inode.  Fix? no\n\ne2fsck: aborted";
    for mode in [Mode::Frozen, Mode::Snapshot, Mode::ReadOnly, Mode::Unmounted] {
        assert_eq!(classify(Ext4, mode, damaged, 12), RunResult::Findings);
    }
    // Healthy ones that are written make it give up too.
    assert_eq!(classify(Ext4, Mode::Live, damaged, 12), RunResult::Failed);
    for status in [8, 4 | 8 | 32, 140] {
        assert_eq!(classify(Ext4, Mode::Frozen, damaged, status), RunResult::Failed, "{status}");
    }
    // What it named is no damage, or it is the device or memory that made it give up.
    let others = [
        "Free blocks count wrong (1, counted=2).  Fix? no\n\ne2fsck: aborted",
        "Error while scanning inodes (1845): Inode checksum does not match inode\ne2fsck: aborted",
        "Inode 7 has an invalid extent\nError reading block 9 (Input/output error).  Ignore error? no\n\ne2fsck: aborted",
        "Inode 7 has an invalid extent\nError allocating block bitmap: Memory allocation failed\ne2fsck: aborted",
    ];
    for text in others {
        assert_eq!(classify(Ext4, Mode::Frozen, text, 12), RunResult::Failed, "{text}");
    }
}

#[test]
fn an_incomplete_run_is_failed_whatever_it_found() {
    let damaged = insert_lines(EXT4_CLEAN, "Inode 7 has an invalid extent");
    for status in [8, 12, 16, 32, 36, 128, 1, 2, 5, 127, -1] {
        assert_eq!(
            classify(Ext4, Mode::Unmounted, &damaged, status),
            RunResult::Failed,
            "{status}"
        );
    }
    for status in [2, 3, 4, 126, 127] {
        assert_eq!(
            classify(Xfs, Mode::Unmounted, XFS_CLEAN, status),
            RunResult::Failed,
            "{status}"
        );
    }
    for (filesystem, clean) in [(Ext4, EXT4_CLEAN), (Xfs, XFS_CLEAN), (Btrfs, BTRFS_CLEAN)] {
        let ends = [
            Termination::Signal(11),
            Termination::TimedOut,
            Termination::Cancelled,
            Termination::Stuck(None),
            Termination::Stuck(Some("io_schedule".to_owned())),
            Termination::NotStarted("no such file".to_owned()),
        ];
        for end in ends {
            let (result, why) =
                classify_run(filesystem, Mode::Frozen, &parse(filesystem, clean), &end);
            assert_eq!(result, RunResult::Failed);
            assert!(!why.is_empty());
        }
        let half = &clean[..clean.len() / 3];
        assert_eq!(classify(filesystem, Mode::Unmounted, half, 0), RunResult::Failed);
        assert_eq!(classify(filesystem, Mode::Unmounted, "", 0), RunResult::Failed);
    }
}

#[test]
fn a_failure_message_outweighs_the_exit_status() {
    let text = insert_lines(XFS_CLEAN, "fatal error -- couldn't initialize XFS library");
    let (result, why) = classify_run(Xfs, Mode::Live, &parse(Xfs, &text), &Termination::Exited(1));
    assert_eq!(
        (result, why.as_str()),
        (
            RunResult::Failed,
            "xfs_repair could not do its work: fatal error -- couldn't initialize XFS library"
        )
    );
}

#[test]
fn transient_problems_are_ignored_in_frozen_runs_only() {
    let text = insert_lines(XFS_CLEAN, &format!("{ALERT}\nsb_ifree 61, counted 60"));
    assert_eq!(classify(Xfs, Mode::Frozen, &text, 1), RunResult::Clean);
    assert_eq!(classify(Xfs, Mode::Live, &text, 1), RunResult::Findings);
    let text = insert_lines(
        EXT4_CLEAN,
        "Inode 35 was part of the orphaned inode list.  IGNORED.\nBlock bitmap differences:  -7\nFix? no",
    );
    assert_eq!(classify(Ext4, Mode::Frozen, &text, 4), RunResult::Clean);
    for mode in QUIESCENT {
        assert_eq!(classify(Ext4, mode, &text, 4), RunResult::Findings);
    }
    let text = insert_lines(
        EXT4_CLEAN,
        "Inode 35 was part of the orphaned inode list.  IGNORED.\nBlock bitmap differences:  +7\nFix? no",
    );
    assert_eq!(classify(Ext4, Mode::Frozen, &text, 4), RunResult::Findings);
}

#[test]
fn stale_totals_that_e2fsck_accepts_are_no_findings() {
    let text = insert_lines(EXT4_CLEAN, "Free blocks count wrong (5, counted=55480).\nFix? no");
    for mode in QUIESCENT {
        assert_eq!(classify(Ext4, mode, &text, 0), RunResult::Clean);
        assert_eq!(classify(Ext4, mode, &text, 4), RunResult::Findings);
    }
}

#[test]
fn a_dirty_log_alone_is_clean_on_a_frozen_xfs_and_nowhere_else() {
    let text = insert_lines(XFS_CLEAN, ALERT);
    assert_eq!(classify(Xfs, Mode::Frozen, &text, 1), RunResult::Clean);
    assert_eq!(classify(Xfs, Mode::Live, &text, 1), RunResult::Findings);
    assert_eq!(classify(Xfs, Mode::Live, &text, 0), RunResult::Findings);
    assert_eq!(classify(Xfs, Mode::Unmounted, &text, 1), RunResult::Findings);
}

#[test]
fn filtering_transient_problems_is_idempotent() {
    let parsed = parse(
        Ext4,
        &insert_lines(
            EXT4_CLEAN,
            "Free blocks count wrong (5, counted=6).\n\nInode 7 has an invalid extent\n\nPadding at end of inode bitmap is not set. Fix? no",
        ),
    );
    let once: Vec<Problem> = non_transient(&parsed.problems).cloned().collect();
    assert_eq!(non_transient(&once).cloned().collect::<Vec<_>>(), once);
    assert_eq!(once.len(), 2);
}
