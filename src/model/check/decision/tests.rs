use proptest::prelude::*;

use super::*;
use crate::model::check::Filesystem::{Btrfs, Ext4, Xfs};
use crate::model::check::{CheckerOutput, Problem, Weight};
use crate::model::finding::Evidence;

/// No check makes more runs than this, whatever happens.
const MAX_STEPS: usize = 16;

pub(crate) fn terms(freeze: bool) -> CheckTerms {
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

pub(crate) fn run(mode: Mode, result: RunResult, flaws: &[(&str, Weight)]) -> Run {
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
        pending_replay: None,
        bytes_read: 0,
        peak_memory: 0,
        command: String::new(),
        output: CheckerOutput::default(),
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
    Run {
        started: Timestamp::from_second(second).unwrap(),
        ..run
    }
}

fn situation(filesystem: Filesystem, mode: Mode, terms: &CheckTerms) -> DecisionInput<'_> {
    DecisionInput {
        filesystem,
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
        },
    };
    let both = [signal(SignalKind::Fault), signal(SignalKind::Corrupted)];
    for mode in [Mode::Live, Mode::Unmounted] {
        let told = DecisionInput {
            signals: &both,
            ..situation(Ext4, mode, &terms)
        };
        assert_eq!(verdict(decide_after(&told, &[])).0, CheckVerdict::Corrupted);
        let told = DecisionInput {
            signals: &both[..1],
            ..told
        };
        assert_eq!(
            verdict(decide_after(&told, &[])).0,
            CheckVerdict::Inconclusive
        );
    }
}

#[test]
fn one_run_decides_on_a_quiescent_filesystem() {
    let terms = terms(true);
    for mode in [Mode::Unmounted, Mode::ReadOnly] {
        let still = situation(Xfs, mode, &terms);
        assert_eq!(decide_after(&still, &[]), Decision::Run(mode));
        assert_eq!(
            verdict(decide_after(&still, &[clean(mode)])).0,
            CheckVerdict::Clean
        );
        assert_eq!(
            verdict(decide_after(&still, &[bad(mode)])).0,
            CheckVerdict::Corrupted
        );
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
            let (verdict, reason) = verdict(decide_after(
                &situation(filesystem, Mode::Unmounted, &terms),
                &[one],
            ));
            assert_eq!(verdict, CheckVerdict::Inconclusive);
            assert!(reason.contains("mount it once"), "{reason}");
        }
    }
}

#[test]
fn a_snapshot_is_as_good_as_an_unmounted_filesystem() {
    let terms = CheckTerms {
        snapshot: true,
        ..terms(false)
    };
    let live = DecisionInput {
        can_snapshot: true,
        ..situation(Xfs, Mode::Live, &terms)
    };
    assert_eq!(decide_after(&live, &[]), Decision::Run(Mode::Snapshot));
    assert_eq!(
        verdict(decide_after(&live, &[bad(Mode::Snapshot)])).0,
        CheckVerdict::Corrupted
    );
    assert_eq!(
        verdict(decide_after(&live, &[clean(Mode::Snapshot)])).0,
        CheckVerdict::Clean
    );
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
        assert_eq!(
            verdict(decide_after(&live, &[clean(Mode::Live)])).0,
            CheckVerdict::Clean
        );
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
        verdict(decide_after(
            &live,
            &[counts.clone(), counts.clone(), counts.clone()]
        ))
        .0,
        CheckVerdict::Suspected
    );
    counts.problems[0].text = "WARNING: PROGRAMMING BUG IN E2FSCK! OR SOME BONEHEAD (YOU) IS CHECKING A MOUNTED (LIVE) FILESYSTEM.".to_owned();
    assert_eq!(
        verdict(decide_after(
            &live,
            &[counts.clone(), counts.clone(), counts]
        ))
        .0,
        CheckVerdict::Inconclusive
    );
    // Frozen they count.
    let frozen = |second| {
        at(
            second,
            Run {
                mode: Mode::Frozen,
                ..moving()
            },
        )
    };
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
        assert_eq!(
            verdict(decide_after(&live, &runs)).0,
            CheckVerdict::Suspected
        );
    }
    assert_eq!(
        verdict(decide_after(
            &situation(Xfs, Mode::Live, &terms),
            &runs[..1]
        ))
        .0,
        CheckVerdict::Inconclusive
    );
    let ext4 = situation(Ext4, Mode::Live, &terms);
    let moving = [
        run(Mode::Live, RunResult::Findings, &[("a", Weight::Damage)]),
        run(Mode::Live, RunResult::Findings, &[("b", Weight::Damage)]),
        bad(Mode::Live),
    ];
    assert_eq!(
        verdict(decide_after(&ext4, &moving)).0,
        CheckVerdict::Inconclusive
    );
    let transient = || {
        run(
            Mode::Live,
            RunResult::Findings,
            &[("free-blocks", Weight::Transient)],
        )
    };
    assert_eq!(
        verdict(decide_after(
            &ext4,
            &[transient(), transient(), transient()]
        ))
        .0,
        CheckVerdict::Inconclusive
    );
}

#[test]
fn two_frozen_runs_a_minute_apart_that_show_the_same_are_proof() {
    let terms = terms(true);
    for filesystem in [Ext4, Xfs, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        let mut runs = vec![bad(Mode::Live)];
        assert_eq!(decide_after(&live, &runs), Decision::Run(Mode::Frozen));
        runs.push(at(10, bad(Mode::Frozen)));
        assert_eq!(
            decide_after(&live, &runs),
            Decision::Wait {
                until: Timestamp::from_second(70).unwrap()
            }
        );
        assert_eq!(
            decide(
                &live,
                &runs.iter().collect::<Vec<_>>(),
                Timestamp::from_second(70).unwrap()
            ),
            Decision::Run(Mode::Frozen)
        );
        runs.push(at(70, bad(Mode::Frozen)));
        let (verdict, reason) = verdict(decide_after(&live, &runs));
        assert_eq!(verdict, CheckVerdict::Corrupted);
        assert!(
            reason.contains("Two frozen runs")
                && reason.contains("1 damage")
                && reason.contains("Inode 7: inode-checksum"),
            "{reason}"
        );
    }
}

#[test]
fn frozen_runs_that_are_too_close_or_differ_prove_nothing() {
    let terms = terms(true);
    let live = situation(Xfs, Mode::Live, &terms);
    let other = run(
        Mode::Frozen,
        RunResult::Findings,
        &[("agf-crc", Weight::Damage)],
    );
    assert_eq!(
        verdict(decide_after(
            &live,
            &[
                bad(Mode::Live),
                at(10, bad(Mode::Frozen)),
                at(69, bad(Mode::Frozen))
            ]
        ))
        .0,
        CheckVerdict::Inconclusive
    );
    assert_eq!(
        verdict(decide_after(
            &live,
            &[bad(Mode::Live), at(10, bad(Mode::Frozen)), at(80, other)]
        ))
        .0,
        CheckVerdict::Inconclusive
    );
    assert_eq!(
        verdict(decide_after(
            &live,
            &[
                bad(Mode::Live),
                at(10, bad(Mode::Frozen)),
                at(80, clean(Mode::Frozen))
            ]
        ))
        .0,
        CheckVerdict::Inconclusive
    );
    assert_eq!(
        verdict(decide_after(
            &live,
            &[bad(Mode::Live), at(10, clean(Mode::Frozen))]
        ))
        .0,
        CheckVerdict::Clean
    );
}

#[test]
fn a_frozen_run_needs_a_live_run_within_the_budget() {
    let terms = terms(true);
    let live = situation(Xfs, Mode::Live, &terms);
    let slow = Run {
        active: Duration::from_secs(6),
        ..bad(Mode::Live)
    };
    let (said, reason) = verdict(decide_after(&live, &[slow]));
    assert_eq!(said, CheckVerdict::Inconclusive);
    assert!(reason.contains("6.0 s"), "{reason}");
    assert_eq!(
        decide_after(&live, &[failed(Mode::Live)]),
        Decision::Run(Mode::Frozen),
        "a crash on moving metadata says nothing of a frozen one"
    );
    for end in [
        Termination::TimedOut,
        Termination::NotStarted("no".to_owned()),
        Termination::Signal(9),
    ] {
        assert_ne!(
            decide_after(
                &live,
                &[Run {
                    termination: end,
                    ..failed(Mode::Live)
                }]
            ),
            Decision::Run(Mode::Frozen)
        );
    }
    let words = Some("xfs_repair: read failed: Input/output error".to_owned());
    assert_ne!(
        decide_after(
            &live,
            &[Run {
                checker_error: words.clone(),
                ..failed(Mode::Live)
            }]
        ),
        Decision::Run(Mode::Frozen),
        "the device is sick"
    );
    for filesystem in [Ext4, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        for end in [Termination::Exited(8), Termination::Signal(11)] {
            let at_once = Run {
                termination: end,
                active: Duration::from_millis(10),
                ..failed(Mode::Live)
            };
            assert_ne!(
                decide_after(&live, std::slice::from_ref(&at_once)),
                Decision::Run(Mode::Frozen),
                "{at_once:?}"
            );
            let sick = Run {
                checker_error: words.clone(),
                ..at_once
            };
            assert_ne!(decide_after(&live, &[sick]), Decision::Run(Mode::Frozen));
        }
    }
    let ext4 = situation(Ext4, Mode::Live, &terms);
    let aborted = Run {
        termination: Termination::Exited(12),
        checker_error: Some("e2fsck: aborted".to_owned()),
        result: RunResult::Failed,
        ..bad(Mode::Live)
    };
    assert_eq!(
        decide_after(&ext4, std::slice::from_ref(&aborted)),
        Decision::Run(Mode::Frozen),
        "it gave up over what moves, as on healthy ones under load"
    );
    for other in [
        Run {
            checker_error: words,
            ..aborted.clone()
        },
        Run {
            problems: Vec::new(),
            ..aborted.clone()
        },
        Run {
            termination: Termination::Exited(8),
            ..aborted.clone()
        },
        Run {
            active: Duration::from_secs(6),
            ..aborted
        },
    ] {
        assert_ne!(
            decide_after(&ext4, std::slice::from_ref(&other)),
            Decision::Run(Mode::Frozen),
            "{other:?}"
        );
    }
    let refused = DecisionInput {
        freeze_refusal: Some("it carries /var"),
        ..live
    };
    let (said, reason) = verdict(decide_after(&refused, &[bad(Mode::Live)]));
    assert_eq!(said, CheckVerdict::Inconclusive);
    assert!(reason.contains("it carries /var"), "{reason}");
}

#[test]
fn failed_frozen_runs_are_retried_twice_then_live_runs_decide() {
    let terms = terms(true);
    let live = situation(Ext4, Mode::Live, &terms);
    let mut runs = vec![bad(Mode::Live)];
    for number in 0..3 {
        let again = Timestamp::from_second(60 * number).unwrap();
        if number > 0 {
            assert_eq!(
                decide_after(&live, &runs),
                Decision::Wait { until: again },
                "it may have held the writers for as long as they may be"
            );
        }
        assert_eq!(
            decide(&live, &runs.iter().collect::<Vec<_>>(), again),
            Decision::Run(Mode::Frozen)
        );
        runs.push(at(60 * number, failed(Mode::Frozen)));
    }
    for _ in 0..2 {
        assert_eq!(decide_after(&live, &runs), Decision::Run(Mode::Live));
        runs.push(bad(Mode::Live));
    }
    assert_eq!(
        verdict(decide_after(&live, &runs)).0,
        CheckVerdict::Suspected
    );
    let late = vec![
        bad(Mode::Live),
        Run {
            termination: Termination::TimedOut,
            ..failed(Mode::Frozen)
        },
    ];
    assert_eq!(
        decide_after(&live, &late),
        Decision::Run(Mode::Live),
        "what once held the writers for the whole budget does not do so again"
    );
}

#[test]
fn a_second_frozen_run_that_failed_is_repeated_only_after_the_gap() {
    let terms = terms(true);
    let live = situation(Ext4, Mode::Live, &terms);
    let runs = [
        bad(Mode::Live),
        at(10, bad(Mode::Frozen)),
        at(70, failed(Mode::Frozen)),
    ];
    assert_eq!(
        decide_after(&live, &runs),
        Decision::Wait {
            until: Timestamp::from_second(130).unwrap()
        }
    );
}

#[test]
fn a_stuck_checker_is_not_retried() {
    let terms = terms(true);
    let stuck = Run {
        termination: Termination::Stuck(None),
        ..failed(Mode::Live)
    };
    assert_eq!(
        verdict(decide_after(&situation(Ext4, Mode::Live, &terms), &[stuck])).0,
        CheckVerdict::Failed
    );
}

#[test]
fn reasons_are_sentences() {
    let terms = terms(false);
    let one = |reason: (CheckVerdict, String)| reason.1;
    let flaws = [
        ("a", Weight::Damage),
        ("b", Weight::Bookkeeping),
        ("c", Weight::Transient),
    ];
    insta::assert_snapshot!(one(verdict(decide_after(&situation(Ext4, Mode::Unmounted, &terms), &[run(Mode::Unmounted, RunResult::Findings, &flaws)]))), @r##"e2fsck found 3 flaws (1 damage, 1 bookkeeping, 1 also seen on healthy mounted filesystems), the worst of them "Inode 7: a" while nothing could change (unmounted). Back up what can still be read, then repair the unmounted filesystem with e2fsck -f."##);
    insta::assert_snapshot!(one(verdict(decide_after(&situation(Xfs, Mode::Live, &terms), &[bad(Mode::Live)]))), @r##"xfs_repair found one flaw (1 damage): "Inode 7: inode-checksum", which proves nothing while an XFS is mounted and written. To know, allow a frozen run (--freeze, if the policy permits it), or unmount the filesystem and check it."##);
    insta::assert_snapshot!(one(verdict(decide_after(&situation(Ext4, Mode::Unmounted, &terms), &[failed(Mode::Unmounted), failed(Mode::Unmounted)]))), @r##"None of 2 runs could do its work: e2fsck was ended by signal 11 (SIGSEGV). This says nothing of the filesystem."##);
    insta::assert_snapshot!(one(verdict(decide_after(&situation(Ext4, Mode::Live, &terms), &[bad(Mode::Live), bad(Mode::Live), bad(Mode::Live)]))), @r##"All of 3 live runs of e2fsck show one flaw (1 damage): "Inode 7: inode-checksum". To know, allow a frozen run (--freeze, if the policy permits it), or unmount the filesystem and check it."##);
}

fn any_run() -> impl Strategy<Value = Run> {
    let kinds = proptest::collection::vec(
        (
            proptest::sample::select(vec!["a", "b", "c"]),
            proptest::sample::select(vec![Weight::Transient, Weight::Bookkeeping, Weight::Damage]),
        ),
        0..4,
    );
    let ends = proptest::sample::select(vec![
        Termination::Signal(11),
        Termination::TimedOut,
        Termination::Exited(8),
        Termination::NotStarted("no".to_owned()),
        Termination::Stuck(None),
        Termination::Cancelled,
    ]);
    let results = proptest::sample::select(vec![
        RunResult::Clean,
        RunResult::Findings,
        RunResult::Failed,
    ]);
    (results, kinds, ends, 0_u64..10, any::<bool>()).prop_map(
        |(result, kinds, end, active, pending)| {
            let one = run(Mode::Live, result, &kinds);
            let end = if result == RunResult::Failed {
                end
            } else {
                Termination::Exited(0)
            };
            Run {
                active: Duration::from_secs(active),
                termination: end,
                pending_replay: pending.then(|| "log".to_owned()),
                ..one
            }
        },
    )
}

/// Answers all steps with these runs, in whatever mode is asked for; the clock goes on.
fn play(situation: &DecisionInput<'_>, answers: &[Run]) -> (CheckOutcome, Vec<Run>) {
    let (mut runs, mut now) = (Vec::<Run>::new(), 0_i64);
    for step in 0..4 * MAX_STEPS {
        match decide(
            situation,
            &runs.iter().collect::<Vec<_>>(),
            Timestamp::from_second(now).unwrap(),
        ) {
            Decision::Done(outcome) => return (outcome, runs),
            Decision::Wait { until } => {
                assert!(until.as_second() > now);
                now = until.as_second();
            }
            Decision::Run(mode) => {
                let answer = answers[step % answers.len()].clone();
                runs.push(Run {
                    mode,
                    ..at(now, answer)
                });
                now += 3;
            }
        }
        assert!(runs.len() <= MAX_STEPS);
    }
    panic!("it does not end: {runs:?}");
}

proptest! {
    #[test]
    fn every_check_ends_with_a_verdict_its_runs_support(
        answers in proptest::collection::vec(any_run(), 1..12),
        freeze in any::<bool>(), snapshot in any::<bool>(), refused in any::<bool>(),
        mode in proptest::sample::select(vec![Mode::Live, Mode::ReadOnly, Mode::Unmounted]),
        filesystem in proptest::sample::select(vec![Ext4, Xfs, Btrfs]),
    ) {
        let terms = CheckTerms { snapshot, ..terms(freeze) };
        let situation = DecisionInput { can_snapshot: true, freeze_refusal: refused.then_some("no"), ..situation(filesystem, mode, &terms) };
        let (outcome, runs) = play(&situation, &answers);
        prop_assert!(!outcome.reason.is_empty());
        let has = |result| runs.iter().any(|run| run.result == result);
        if outcome.verdict == CheckVerdict::Clean {
            prop_assert!(runs.iter().any(|run| run.result == RunResult::Clean && run.mode == outcome.mode));
        }
        if matches!(outcome.verdict, CheckVerdict::Corrupted | CheckVerdict::Suspected) {
            prop_assert!(has(RunResult::Findings));
        }
        if outcome.verdict == CheckVerdict::Corrupted {
            let frozen = runs.iter().filter(|run| run.mode == Mode::Frozen && run.result == RunResult::Findings).count();
            prop_assert!(outcome.mode.is_quiescent() || frozen >= 2);
        }
        if runs.iter().any(|run| run.mode == Mode::Frozen) {
            prop_assert!(freeze && !refused);
        }
        if !has(RunResult::Clean) && !has(RunResult::Findings) {
            prop_assert_eq!(outcome.verdict, CheckVerdict::Failed);
        }
    }

    #[test]
    fn no_sequence_of_failed_runs_gives_clean_or_corrupted(count in 0_usize..8, found in any::<bool>(), mode in proptest::sample::select(vec![Mode::Live, Mode::Frozen, Mode::ReadOnly, Mode::Unmounted, Mode::Snapshot])) {
        let one = run(mode, RunResult::Failed, if found { &BAD } else { &[] });
        let runs = vec![&one; count];
        for filesystem in [Ext4, Xfs, Btrfs] {
            prop_assert_eq!(conclude(filesystem, mode, &runs, Duration::from_secs(60)).verdict, CheckVerdict::Failed);
        }
    }

    #[test]
    fn live_runs_alone_never_give_corrupted(runs in proptest::collection::vec(any_run(), 0..8)) {
        let runs: Vec<&Run> = runs.iter().collect();
        for filesystem in [Ext4, Xfs, Btrfs] {
            let verdict = conclude(filesystem, Mode::Live, &runs, Duration::from_secs(60)).verdict;
            prop_assert!(verdict != CheckVerdict::Corrupted);
            prop_assert!(verdict != CheckVerdict::Suspected || filesystem != Xfs);
        }
    }

    /// A file's answer is the daemon's.
    #[test]
    fn conclude_agrees_with_decide(one in any_run(), filesystem in proptest::sample::select(vec![Ext4, Xfs, Btrfs])) {
        prop_assume!(one.result != RunResult::Failed);
        let terms = terms(false);
        let one = Run { mode: Mode::Unmounted, ..one };
        let Decision::Done(outcome) = decide(&situation(filesystem, Mode::Unmounted, &terms), &[&one], Timestamp::UNIX_EPOCH) else { panic!() };
        prop_assert_eq!(conclude(filesystem, Mode::Unmounted, &[&one], Duration::ZERO), outcome);
    }
}
