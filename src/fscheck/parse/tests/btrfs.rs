//! Output of btrfs check: what its closing line outweighs, lines of unknown meaning, damaged
//! copies, crashes. The first texts are public reports with neutral values.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::decision::{CheckOutcome, conclude};
use crate::run_result::says_no_error;
use crate::{CheckVerdict, Run};

const ONE_COPY: &str = "checksum verify failed on 58720256 wanted 0x8f087114 found 0xb87d3f03";
const OTHER_COPY: &str = "checksum verify failed on 58720256 wanted 0x8f087114 found 0x9a6f128e";
const OUTDATED_CACHE: &str = "btrfs: csum mismatch on free space cache\nfailed to load free space cache for block group 30408704";
const CSUMS_WITHOUT_EXTENT: &str = "there are no extents for csum range 31516819456-31516872704\ncsum exists for 31516807168-31521120256 but there is no extent record\nERROR: errors found in csum tree";
const BUG: &str = "check/main.c:4619: add_extent_rec_nolookup: BUG_ON `tmpl->max_size == 0` triggered, value 1\nbtrfs(+0x387f2)[0x55b0053e77f2]\nbtrfs(main+0x94)[0x55b0053c50c4]\n/usr/lib/libc.so.6(__libc_start_main+0xd5)[0x7f5765b35b25]\nAborted";

/// The output with these lines, and a closing line that says that errors were found.
fn with_errors(lines: &str) -> String {
    insert_lines(BTRFS_CLEAN, lines).replace("no error found", "error(s) found")
}

fn without_closing_line(text: &str) -> String {
    let end = text.find("found 917504").unwrap();
    text[..end].to_owned()
}

fn run(mode: Mode, text: &str, status: i32) -> Run {
    let (parsed, end) = (parse(Btrfs, text), Termination::Exited(status));
    let (result, why) = classify_run(Btrfs, mode, &parsed, &end);
    Run {
        result,
        no_error_found: says_no_error(&parsed, &end),
        problems: parsed.problems,
        more_problems: parsed.more_problems,
        ..Run::failed(mode, Timestamp::UNIX_EPOCH, end, why)
    }
}

fn outcome(text: &str, status: i32) -> CheckOutcome {
    let run = run(Mode::Unmounted, text, status);
    conclude(Btrfs, "/dev/sdb1", Mode::Unmounted, &[&run], Duration::ZERO)
}

/// The verdict while unmounted, of two frozen runs and of three live runs.
fn verdicts(text: &str, status: i32) -> [CheckVerdict; 3] {
    let of = |mode, count| {
        let mut run = run(mode, text, status);
        let runs: Vec<Run> = (0..count)
            .map(|minute| {
                run.started = Timestamp::from_second(minute * 60).unwrap();
                run.clone()
            })
            .collect();
        let runs: Vec<&Run> = runs.iter().collect();
        conclude(Btrfs, "/dev/sdb1", mode, &runs, Duration::from_secs(60)).verdict
    };
    [of(Mode::Unmounted, 1), of(Mode::Frozen, 2), of(Mode::Live, 3)]
}

/// Whether the run proves that data is lost.
fn has_damage(text: &str) -> bool {
    let parsed = parse(Btrfs, text);
    parsed.problems.iter().any(|problem| problem.weight == Weight::Damage)
}

#[test]
fn the_closing_line_outweighs_bookkeeping() {
    let text = insert_lines(BTRFS_CLEAN, OUTDATED_CACHE);
    insta::assert_snapshot!(problem_lines(Btrfs, &text), @r"
    Bookkeeping free-space 
    Bookkeeping free-space 30408704
    ");
    assert_eq!(verdicts(&text, 0), [CheckVerdict::Clean; 3]);
    insta::assert_snapshot!(outcome(&text, 0).reason, @"btrfs ran through and found no error, only 2 lines about bookkeeping that the kernel rebuilds (unmounted).");
    for other in [
        "block group 30408704 has wrong amount of free space, free space cache has 4096 block group has 8192",
        "free space inode generation (0) did not match free space cache generation (7)",
        "there is no free space entry for 30408704-30412800",
        "Couldn't find free space inode 1",
        "Counts for qgroup id: 0/5 are different\nour:\t\treferenced 1 referenced compressed 1\ndisk:\t\treferenced 2 referenced compressed 2\ndiff:\t\treferenced -1 referenced compressed -1",
    ] {
        assert_eq!(
            verdicts(&insert_lines(BTRFS_CLEAN, other), 0),
            [CheckVerdict::Clean; 3],
            "{other}"
        );
    }
    // The exit status or the closing line says otherwise.
    for (text, status) in [(&text, 1), (&with_errors(OUTDATED_CACHE), 0)] {
        assert_eq!(outcome(text, status).verdict, CheckVerdict::Corrupted);
    }
}

#[test]
fn checksums_without_an_extent_are_bookkeeping() {
    let text = with_errors(CSUMS_WITHOUT_EXTENT);
    insta::assert_snapshot!(problem_lines(Btrfs, &text), @r"
    Bookkeeping checksum-without-extent 31516819456,31516872704
    Bookkeeping checksum-without-extent 31516807168,31521120256
    ");
    assert_eq!(outcome(&text, 1).verdict, CheckVerdict::Corrupted);
    let reason = outcome(&text, 1).reason;
    assert!(
        reason.contains("only bookkeeping is wrong") && reason.contains("No data is lost"),
        "{reason}"
    );
}

#[test]
fn a_damaged_copy_beside_a_good_one_is_suspected() {
    for copy in [
        ONE_COPY,
        "parent transid verify failed on 58720256 wanted 9 found 7",
        "ERROR: parent transid verify failed on 58720256 wanted 9 found 7",
        "mirror 2 bytenr 58720256 csum 0x11 expected csum 0x22",
    ] {
        let text = insert_lines(BTRFS_CLEAN, copy);
        assert_eq!(parse(Btrfs, &text).problems[0].weight, Weight::DamagedCopy);
        assert_eq!(verdicts(&text, 0), [CheckVerdict::Suspected; 3], "{copy}");
    }
    let reason = outcome(&insert_lines(BTRFS_CLEAN, ONE_COPY), 0).reason;
    assert!(reason.contains("Nothing is lost") && reason.contains("scrub"), "{reason}");
    // An outdated cache beside it changes nothing.
    let both = format!("{ONE_COPY}\n{OUTDATED_CACHE}");
    assert_eq!(outcome(&insert_lines(BTRFS_CLEAN, &both), 0).verdict, CheckVerdict::Suspected);
    // The error that the checker counts is another one.
    let text = with_errors(ONE_COPY);
    assert_eq!(outcome(&text, 1).verdict, CheckVerdict::Corrupted);
    assert!(!has_damage(&text));
}

#[test]
fn a_block_without_a_good_copy_is_damage() {
    let text = with_errors(&format!(
        "{ONE_COPY}\n{OTHER_COPY}\nCsum didn't match\nref mismatch on [13754368 12288] extent item 1, found 0\nbackpointer mismatch on [13754368 12288]\nERROR: errors found in extent allocation tree or chunk allocation"
    ));
    insta::assert_snapshot!(problem_lines(Btrfs, &text), @r"
    Damage checksum-no-good-copy 58720256
    Damage extent-references 13754368,12288
    Damage extent-backpointer 13754368,12288
    ");
    assert_eq!(outcome(&text, 1).verdict, CheckVerdict::Corrupted);
    // A failed checksum outweighs the closing line.
    let text = insert_lines(BTRFS_CLEAN, &format!("{ONE_COPY}\nCsum didn't match"));
    assert_eq!(outcome(&text, 0).verdict, CheckVerdict::Corrupted);
    let transid = "parent transid verify failed on 7 wanted 9 found 7\nparent transid verify failed on 7 wanted 9 found 7\nIgnoring transid failure";
    assert_eq!(problem_lines(Btrfs, &with_errors(transid)), "Damage transid-no-good-copy 7\n");
}

#[test]
fn a_checker_that_cannot_open_the_filesystem_for_a_bad_block_proves_damage() {
    for block in [
        "checksum verify failed on 7 wanted 0x1 found 0x2\nCsum didn't match",
        "parent transid verify failed on 7 wanted 9 found 7",
    ] {
        let text = format!(
            "Opening filesystem to check...\n{block}\nERROR: could not setup extent tree\nERROR: cannot open file system\n"
        );
        assert_eq!(outcome(&text, 1).verdict, CheckVerdict::Corrupted, "{block}");
        assert!(has_damage(&text), "{block}");
    }
    let blank = "Opening filesystem to check...\nERROR: cannot open file system\n";
    assert_eq!(outcome(blank, 1).verdict, CheckVerdict::Failed);
}

#[test]
fn lines_of_unknown_meaning_are_never_clean_and_prove_no_loss() {
    for line in ["gizmo 12 is crooked", "WARNING: gizmo 12 is crooked"] {
        let errors = with_errors(line);
        assert_eq!(
            verdicts(&errors, 1),
            [CheckVerdict::Corrupted, CheckVerdict::Corrupted, CheckVerdict::Suspected]
        );
        assert!(!has_damage(&errors));
        assert_eq!(verdicts(&insert_lines(BTRFS_CLEAN, line), 0), [CheckVerdict::Inconclusive; 3]);
    }
    // No line explains the errors.
    let errors = with_errors("ERROR: errors found in fs roots");
    assert_eq!(problem_lines(Btrfs, &errors), "Unknown errors-found \n");
    assert_eq!(outcome(&errors, 1).verdict, CheckVerdict::Corrupted);
}

#[test]
fn wrong_counts_of_an_inode_lose_no_data() {
    let weight = |line: &str| parse(Btrfs, line).problems[0].weight;
    for line in [
        "root 5 inode 257 errors 400, nbytes wrong",
        "root 5 inode 257 errors 600, dir isize wrong, nbytes wrong",
        "root 5 inode 257 errors 2000, link count wrong",
    ] {
        assert_eq!(weight(line), Weight::Bookkeeping, "{line}");
    }
    for line in [
        "root 5 inode 257 errors 2001, no inode item, link count wrong",
        "root 5 inode 257 errors 80, file extent overlap",
        "root 5 inode 257 errors 4000",
    ] {
        assert_eq!(weight(line), Weight::Damage, "{line}");
    }
}

#[test]
fn no_closing_line_is_no_verdict() {
    for lines in [
        ONE_COPY,
        "ref mismatch on [13754368 12288] extent item 1, found 0",
        CSUMS_WITHOUT_EXTENT,
        "gizmo 12 is crooked",
    ] {
        for status in [0, 1] {
            let text = without_closing_line(&insert_lines(BTRFS_CLEAN, lines));
            assert_eq!(verdicts(&text, status), [CheckVerdict::Failed; 3], "{lines}");
        }
    }
}

#[test]
fn a_checker_that_crashes_is_failed_without_problems() {
    let crashed = without_closing_line(&insert_lines(BTRFS_CLEAN, BUG));
    let before = format!("ref mismatch on [1 2] extent item 1, found 0\n{crashed}");
    // Standard error may come first.
    let apart = format!("{BUG}\n{BTRFS_CLEAN}");
    for text in [&crashed, &before, &apart] {
        assert_eq!(problem_lines(Btrfs, text), "");
        for status in [0, 1, 134] {
            assert_eq!(verdicts(text, status), [CheckVerdict::Failed; 3]);
        }
    }
    let reason = outcome(&crashed, 1).reason;
    assert!(reason.contains("crashed: check/main.c:4619"), "{reason}");
    for (filesystem, line) in [
        (Ext4, "Signal (11) SIGSEGV si_code=SEGV_MAPERR fault addr=0x10"),
        (Xfs, "xfs_repair: rmap.c:1279: fix_inode_reflink_flags: Assertion `x == 0' failed."),
    ] {
        let text = format!("{line}\nsegment(+0x1)[0x2]\n");
        let parsed = parse(filesystem, &text);
        assert!(parsed.problems.is_empty() && parsed.crash.is_some(), "{line}");
    }
}
