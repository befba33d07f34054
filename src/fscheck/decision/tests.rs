mod frozen;
mod laws;

use super::*;
use crate::Filesystem::{Btrfs, Ext4, Xfs};
use crate::{CheckerOutput, Problem, Weight};
use diskvitals_finding::Evidence;

pub fn terms(freeze: bool) -> CheckTerms {
    CheckTerms {
        runs: 3,
        freeze,
        snapshot: false,
        force: false,
        budget: Duration::from_secs(5),
        gap: Duration::from_secs(60),
        timeout: Duration::from_secs(3600),
        memory: 1 << 30,
        bytes_per_second: None,
    }
}

pub fn run(mode: Mode, result: RunResult, flaws: &[(&str, Weight)]) -> Run {
    let flaw = |(kind, weight): &(&str, Weight)| Problem {
        kind: (*kind).to_owned(),
        ids: vec!["7".to_owned()],
        weight: *weight,
        text: format!("Inode 7: {kind}"),
    };
    Run {
        mode,
        started: Timestamp::UNIX_EPOCH,
        duration: Duration::from_secs(2),
        active: Duration::from_secs(2),
        held: None,
        termination: if result == RunResult::Failed {
            Termination::Signal(11)
        } else {
            Termination::Exited(0)
        },
        result,
        failure_reason: if result == RunResult::Failed {
            "e2fsck was ended by signal 11 (SIGSEGV)".to_owned()
        } else {
            String::new()
        },
        checker_error: None,
        problems: flaws.iter().map(flaw).collect(),
        more_problems: 0,
        no_error_found: false,
        pending_replay: None,
        bytes_read: 0,
        peak_memory: None,
        command: String::new(),
        output: CheckerOutput::default(),
        filesystem_uuid: None,
    }
}

const BAD: [(&str, Weight); 1] = [("inode-checksum", Weight::Damage)];

fn clean(mode: Mode) -> Run {
    run(mode, RunResult::Clean, &[])
}

fn bad(mode: Mode) -> Run {
    run(mode, RunResult::Findings, &BAD)
}

fn failed(mode: Mode) -> Run {
    run(mode, RunResult::Failed, &[])
}

fn at(second: i64, run: Run) -> Run {
    Run { started: Timestamp::from_second(second).unwrap(), ..run }
}

fn situation(filesystem: Filesystem, mode: Mode, terms: &CheckTerms) -> DecisionInput<'_> {
    DecisionInput {
        filesystem,
        device: "/dev/sdb1",
        mode,
        terms,
        signals: &[],
        can_snapshot: false,
        freeze_refusal: None,
    }
}

fn decide_after(situation: &DecisionInput<'_>, runs: &[Run]) -> Decision {
    let now = runs.last().map_or(Timestamp::UNIX_EPOCH, |run| run.started);
    decide(situation, &runs.iter().collect::<Vec<_>>(), now)
}

fn verdict(step: Decision) -> (CheckVerdict, String) {
    match step {
        Decision::Done(outcome) => (outcome.verdict, outcome.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_signal_decides_without_a_run() {
    let terms = terms(true);
    let signal = |kind| FilesystemSignal {
        kind,
        evidence: Evidence {
            source: "kernel".to_owned(),
            time: Timestamp::UNIX_EPOCH,
            text: "sdb1: bad inode".to_owned(),
            witness: diskvitals_finding::WitnessKind::Other,
            present: false,
        },
    };
    let both = [signal(SignalKind::Fault), signal(SignalKind::Corrupted)];
    for mode in [Mode::Live, Mode::Unmounted] {
        let told = DecisionInput { signals: &both, ..situation(Ext4, mode, &terms) };
        assert_eq!(verdict(decide_after(&told, &[])).0, CheckVerdict::Corrupted);
        let told = DecisionInput { signals: &both[..1], ..told };
        assert_eq!(verdict(decide_after(&told, &[])).0, CheckVerdict::Inconclusive);
    }
}

#[test]
fn one_run_decides_on_a_quiescent_filesystem() {
    let terms = terms(true);
    for mode in [Mode::Unmounted, Mode::ReadOnly] {
        let still = situation(Xfs, mode, &terms);
        assert_eq!(decide_after(&still, &[]), Decision::Run(mode));
        assert_eq!(verdict(decide_after(&still, &[clean(mode)])).0, CheckVerdict::Clean);
        assert_eq!(verdict(decide_after(&still, &[bad(mode)])).0, CheckVerdict::Corrupted);
        assert_eq!(decide_after(&still, &[failed(mode)]), Decision::Run(mode));
        assert_eq!(
            verdict(decide_after(&still, &[failed(mode), bad(mode)])).0,
            CheckVerdict::Corrupted
        );
        assert_eq!(
            verdict(decide_after(&still, &[failed(mode), failed(mode)])).0,
            CheckVerdict::Failed
        );
    }
}

#[test]
fn a_pending_replay_is_inconclusive() {
    let terms = terms(false);
    for filesystem in [Ext4, Xfs] {
        for one in [clean(Mode::Unmounted), bad(Mode::Unmounted)] {
            let one = Run {
                pending_replay: Some("Warning: skipping journal recovery".to_owned()),
                ..one
            };
            let (verdict, reason) =
                verdict(decide_after(&situation(filesystem, Mode::Unmounted, &terms), &[one]));
            assert_eq!(verdict, CheckVerdict::Inconclusive);
            assert!(reason.contains("mount it once"), "{reason}");
        }
    }
}

#[test]
fn a_snapshot_is_as_good_as_an_unmounted_filesystem() {
    let terms = CheckTerms { snapshot: true, ..terms(false) };
    let live = DecisionInput { can_snapshot: true, ..situation(Xfs, Mode::Live, &terms) };
    assert_eq!(decide_after(&live, &[]), Decision::Run(Mode::Snapshot));
    assert_eq!(verdict(decide_after(&live, &[bad(Mode::Snapshot)])).0, CheckVerdict::Corrupted);
    assert_eq!(verdict(decide_after(&live, &[clean(Mode::Snapshot)])).0, CheckVerdict::Clean);
    assert_eq!(
        decide_after(&live, &[failed(Mode::Snapshot), failed(Mode::Snapshot)]),
        Decision::Run(Mode::Live)
    );
}

#[test]
fn one_clean_live_run_is_clean() {
    let terms = terms(true);
    for filesystem in [Ext4, Xfs, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        assert_eq!(decide_after(&live, &[]), Decision::Run(Mode::Live));
        assert_eq!(verdict(decide_after(&live, &[clean(Mode::Live)])).0, CheckVerdict::Clean);
    }
}

#[test]
fn bitmap_checksums_do_not_make_a_live_ext4_suspected() {
    let terms = terms(false);
    let live = situation(Ext4, Mode::Live, &terms);
    let moving = || {
        run(
            Mode::Live,
            RunResult::Findings,
            &[
                ("inode-bitmap-checksum", Weight::Bookkeeping),
                ("block-bitmap-checksum", Weight::Bookkeeping),
            ],
        )
    };
    assert_eq!(
        verdict(decide_after(&live, &[moving(), moving(), moving()])).0,
        CheckVerdict::Inconclusive
    );
    let mut counts = run(Mode::Live, RunResult::Findings, &BAD);
    assert_eq!(
        verdict(decide_after(&live, &[counts.clone(), counts.clone(), counts.clone()])).0,
        CheckVerdict::Suspected
    );
    counts.problems[0].text = "WARNING: PROGRAMMING BUG IN E2FSCK! OR SOME BONEHEAD (YOU) IS CHECKING A MOUNTED (LIVE) FILESYSTEM.".to_owned();
    assert_eq!(
        verdict(decide_after(&live, &[counts.clone(), counts.clone(), counts])).0,
        CheckVerdict::Inconclusive
    );
    // Frozen they count.
    let frozen = |second| at(second, Run { mode: Mode::Frozen, ..moving() });
    assert_eq!(
        verdict(decide_after(&live, &[moving(), frozen(10), frozen(80)])).0,
        CheckVerdict::Corrupted
    );
}

#[test]
fn agreeing_live_runs_make_ext4_and_btrfs_suspected_never_xfs() {
    let terms = terms(false);
    let runs = [bad(Mode::Live), bad(Mode::Live), bad(Mode::Live)];
    for filesystem in [Ext4, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        assert_eq!(decide_after(&live, &runs[..2]), Decision::Run(Mode::Live));
        assert_eq!(verdict(decide_after(&live, &runs)).0, CheckVerdict::Suspected);
    }
    assert_eq!(
        verdict(decide_after(&situation(Xfs, Mode::Live, &terms), &runs[..1])).0,
        CheckVerdict::Inconclusive
    );
    let ext4 = situation(Ext4, Mode::Live, &terms);
    let moving = [
        run(Mode::Live, RunResult::Findings, &[("a", Weight::Damage)]),
        run(Mode::Live, RunResult::Findings, &[("b", Weight::Damage)]),
        bad(Mode::Live),
    ];
    assert_eq!(verdict(decide_after(&ext4, &moving)).0, CheckVerdict::Inconclusive);
    let transient = || run(Mode::Live, RunResult::Findings, &[("free-blocks", Weight::Transient)]);
    assert_eq!(
        verdict(decide_after(&ext4, &[transient(), transient(), transient()])).0,
        CheckVerdict::Inconclusive
    );
}

#[test]
fn a_stuck_checker_is_not_retried() {
    let terms = terms(true);
    let stuck = Run { termination: Termination::Stuck(None), ..failed(Mode::Live) };
    assert_eq!(
        verdict(decide_after(&situation(Ext4, Mode::Live, &terms), &[stuck])).0,
        CheckVerdict::Failed
    );
}

#[test]
fn reasons_are_sentences() {
    let terms = terms(false);
    let one = |reason: (CheckVerdict, String)| reason.1;
    let flaws = [("a", Weight::Damage), ("b", Weight::Bookkeeping), ("c", Weight::Transient)];
    insta::assert_snapshot!(one(verdict(decide_after(&situation(Ext4, Mode::Unmounted, &terms), &[run(Mode::Unmounted, RunResult::Findings, &flaws)]))), @r##"e2fsck found 3 flaws (1 damage, 1 bookkeeping, 1 also seen on healthy mounted filesystems), the worst of them "Inode 7: a" while nothing could change (unmounted). Back up what can still be read, then repair it: mount and unmount /dev/sdb1 once, which replays its journal; `e2fsck -fn /dev/sdb1` shows what would be changed; `e2fsck -f /dev/sdb1` repairs it; mount it again, which shows the repair to diskvitals."##);
    insta::assert_snapshot!(one(verdict(decide_after(&situation(Xfs, Mode::Live, &terms), &[bad(Mode::Live)]))), @r##"xfs_repair found one flaw (1 damage): "Inode 7: inode-checksum", which proves nothing while an XFS is mounted and written. To know, allow a frozen run (--freeze, if the policy permits it), or unmount the filesystem and check it."##);
    insta::assert_snapshot!(one(verdict(decide_after(&situation(Ext4, Mode::Unmounted, &terms), &[failed(Mode::Unmounted), failed(Mode::Unmounted)]))), @r##"None of 2 runs could do its work: e2fsck was ended by signal 11 (SIGSEGV). This says nothing of the filesystem."##);
    insta::assert_snapshot!(one(verdict(decide_after(&situation(Ext4, Mode::Live, &terms), &[bad(Mode::Live), bad(Mode::Live), bad(Mode::Live)]))), @r##"All of 3 live runs of e2fsck show one flaw (1 damage): "Inode 7: inode-checksum". To know, allow a frozen run (--freeze, if the policy permits it), or unmount the filesystem and check it."##);
}
