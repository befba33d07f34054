use super::*;
use crate::model::check::Filesystem::{Btrfs, Ext4, Xfs};
use crate::model::check::parse::tests::{BTRFS_CLEAN, EXT4_CLEAN, XFS_CLEAN, read, with};

const ALERT: &str = "ALERT: The filesystem has valuable metadata changes in a log which is being";
const STILL: [Mode; 3] = [Mode::Unmounted, Mode::ReadOnly, Mode::Snapshot];

fn of(filesystem: Filesystem, mode: Mode, text: &str, status: i32) -> Ballot {
    ballot(
        filesystem,
        mode,
        &read(filesystem, text),
        &End::Exited(status),
    )
    .0
}

#[test]
fn nothing_found_and_status_0_is_clean_in_every_mode() {
    for mode in [
        Mode::Live,
        Mode::Frozen,
        Mode::Snapshot,
        Mode::ReadOnly,
        Mode::Unmounted,
    ] {
        for (filesystem, clean) in [(Ext4, EXT4_CLEAN), (Xfs, XFS_CLEAN), (Btrfs, BTRFS_CLEAN)] {
            assert_eq!(of(filesystem, mode, clean, 0), Ballot::Clean);
        }
    }
}

#[test]
fn status_0_does_not_hide_what_was_found() {
    for (filesystem, clean, found) in [
        (
            Xfs,
            XFS_CLEAN,
            "Metadata CRC error detected at 0x55b6333a0f80, xfs_attr3_leaf block 0x80/0x1000",
        ),
        (
            Ext4,
            EXT4_CLEAN,
            "One or more block group descriptor checksums are invalid.  Fix? no",
        ),
        (
            Btrfs,
            BTRFS_CLEAN,
            "checksum verify failed on 30441472 wanted 0x42cd2901 found 0x4952e4b5",
        ),
    ] {
        for mode in [Mode::Live, Mode::Frozen, Mode::Unmounted] {
            assert_eq!(
                of(filesystem, mode, &with(clean, found), 0),
                Ballot::Findings
            );
        }
    }
}

#[test]
fn a_status_that_means_findings_with_none_is_a_failure() {
    assert_eq!(of(Xfs, Mode::Live, XFS_CLEAN, 1), Ballot::Failed);
    assert_eq!(of(Ext4, Mode::Frozen, EXT4_CLEAN, 4), Ballot::Failed);
    assert_eq!(of(Btrfs, Mode::Unmounted, BTRFS_CLEAN, 1), Ballot::Failed);
}

#[test]
fn an_e2fsck_that_gives_up_over_damage_has_found_it_where_nothing_moves() {
    let damaged = "Pass 1: Checking inodes, blocks, and sizes\nInode 1845 passes checks, but checksum does not match inode.  Fix? no\n\ne2fsck: aborted";
    for mode in [
        Mode::Frozen,
        Mode::Snapshot,
        Mode::ReadOnly,
        Mode::Unmounted,
    ] {
        assert_eq!(of(Ext4, mode, damaged, 12), Ballot::Findings);
    }
    // Healthy ones that are written make it give up too.
    assert_eq!(of(Ext4, Mode::Live, damaged, 12), Ballot::Failed);
    for status in [8, 4 | 8 | 32, 140] {
        assert_eq!(
            of(Ext4, Mode::Frozen, damaged, status),
            Ballot::Failed,
            "{status}"
        );
    }
    // What it named is no damage, or it is the device or memory that made it give up.
    let others = [
        "Free blocks count wrong (1, counted=2).  Fix? no\n\ne2fsck: aborted",
        "Error while scanning inodes (1845): Inode checksum does not match inode\ne2fsck: aborted",
        "Inode 7 has an invalid extent\nError reading block 9 (Input/output error).  Ignore error? no\n\ne2fsck: aborted",
        "Inode 7 has an invalid extent\nError allocating block bitmap: Memory allocation failed\ne2fsck: aborted",
    ];
    for text in others {
        assert_eq!(of(Ext4, Mode::Frozen, text, 12), Ballot::Failed, "{text}");
    }
}

#[test]
fn a_checker_that_did_not_do_its_work_fails_whatever_it_found() {
    let damaged = with(EXT4_CLEAN, "Inode 7 has an invalid extent");
    for status in [8, 12, 16, 32, 36, 128, 1, 2, 5, 127, -1] {
        assert_eq!(
            of(Ext4, Mode::Unmounted, &damaged, status),
            Ballot::Failed,
            "{status}"
        );
    }
    for status in [2, 3, 4, 126, 127] {
        assert_eq!(
            of(Xfs, Mode::Unmounted, XFS_CLEAN, status),
            Ballot::Failed,
            "{status}"
        );
    }
    for (filesystem, clean) in [(Ext4, EXT4_CLEAN), (Xfs, XFS_CLEAN), (Btrfs, BTRFS_CLEAN)] {
        let ends = [
            End::Signal(11),
            End::TimedOut,
            End::Stopped,
            End::Stuck(None),
            End::Stuck(Some("io_schedule".to_owned())),
            End::NotStarted("no such file".to_owned()),
        ];
        for end in ends {
            let (ballot, why) = ballot(filesystem, Mode::Frozen, &read(filesystem, clean), &end);
            assert_eq!(ballot, Ballot::Failed);
            assert!(!why.is_empty());
        }
        let half = &clean[..clean.len() / 3];
        assert_eq!(of(filesystem, Mode::Unmounted, half, 0), Ballot::Failed);
        assert_eq!(of(filesystem, Mode::Unmounted, "", 0), Ballot::Failed);
    }
}

#[test]
fn words_of_failure_outweigh_the_status() {
    let text = with(XFS_CLEAN, "fatal error -- couldn't initialize XFS library");
    let (ballot, why) = ballot(Xfs, Mode::Live, &read(Xfs, &text), &End::Exited(1));
    assert_eq!(
        (ballot, why.as_str()),
        (
            Ballot::Failed,
            "xfs_repair could not do its work: fatal error -- couldn't initialize XFS library"
        )
    );
}

#[test]
fn filter_f_holds_for_frozen_runs_only() {
    let text = with(XFS_CLEAN, &format!("{ALERT}\nsb_ifree 61, counted 60"));
    assert_eq!(of(Xfs, Mode::Frozen, &text, 1), Ballot::Clean);
    assert_eq!(of(Xfs, Mode::Live, &text, 1), Ballot::Findings);
    let text = with(
        EXT4_CLEAN,
        "Inode 35 was part of the orphaned inode list.  IGNORED.\nBlock bitmap differences:  -7\nFix? no",
    );
    assert_eq!(of(Ext4, Mode::Frozen, &text, 4), Ballot::Clean);
    for mode in STILL {
        assert_eq!(of(Ext4, mode, &text, 4), Ballot::Findings);
    }
    let text = with(
        EXT4_CLEAN,
        "Inode 35 was part of the orphaned inode list.  IGNORED.\nBlock bitmap differences:  +7\nFix? no",
    );
    assert_eq!(of(Ext4, Mode::Frozen, &text, 4), Ballot::Findings);
}

#[test]
fn totals_that_e2fsck_itself_does_not_mind_are_no_findings() {
    let text = with(
        EXT4_CLEAN,
        "Free blocks count wrong (5, counted=55480).\nFix? no",
    );
    for mode in STILL {
        assert_eq!(of(Ext4, mode, &text, 0), Ballot::Clean);
        assert_eq!(of(Ext4, mode, &text, 4), Ballot::Findings);
    }
}

#[test]
fn a_dirty_log_alone_is_clean_on_a_frozen_xfs_and_nowhere_else() {
    let text = with(XFS_CLEAN, ALERT);
    assert_eq!(of(Xfs, Mode::Frozen, &text, 1), Ballot::Clean);
    assert_eq!(of(Xfs, Mode::Live, &text, 1), Ballot::Findings);
    assert_eq!(of(Xfs, Mode::Live, &text, 0), Ballot::Findings);
    assert_eq!(of(Xfs, Mode::Unmounted, &text, 1), Ballot::Findings);
}

#[test]
fn filtering_twice_is_filtering_once() {
    let parsed = read(
        Ext4,
        &with(
            EXT4_CLEAN,
            "Free blocks count wrong (5, counted=6).\n\nInode 7 has an invalid extent\n\nPadding at end of inode bitmap is not set. Fix? no",
        ),
    );
    let once: Vec<Flaw> = filter_f(&parsed.flaws).cloned().collect();
    assert_eq!(filter_f(&once).cloned().collect::<Vec<_>>(), once);
    assert_eq!(once.len(), 2);
}
