use proptest::prelude::*;

use super::*;
use crate::model::check::Filesystem::{Btrfs, Ext4, Xfs};
use crate::model::check::{Flaw, Output, Weight};
use crate::model::finding::Evidence;

/// No check makes more runs than this, whatever happens.
const BOUND: usize = 16;

pub fn terms(freeze: bool) -> Terms {
    Terms {
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

pub fn run(mode: Mode, ballot: Ballot, flaws: &[(&str, Weight)]) -> Run {
    let flaw = |(kind, weight): &(&str, Weight)| Flaw {
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
        end: if ballot == Ballot::Failed {
            End::Signal(11)
        } else {
            End::Exited(0)
        },
        ballot,
        why: if ballot == Ballot::Failed {
            "e2fsck was ended by signal 11 (SIGSEGV)".to_owned()
        } else {
            String::new()
        },
        failure: None,
        flaws: flaws.iter().map(flaw).collect(),
        more_flaws: 0,
        pending_replay: None,
        bytes_read: 0,
        peak_memory: 0,
        command: String::new(),
        output: Output::default(),
    }
}

const BAD: [(&str, Weight); 1] = [("inode-checksum", Weight::Damage)];

fn clean(mode: Mode) -> Run {
    run(mode, Ballot::Clean, &[])
}

fn bad(mode: Mode) -> Run {
    run(mode, Ballot::Findings, &BAD)
}

fn failed(mode: Mode) -> Run {
    run(mode, Ballot::Failed, &[])
}

fn at(second: i64, run: Run) -> Run {
    Run {
        started: Timestamp::from_second(second).unwrap(),
        ..run
    }
}

fn situation(filesystem: Filesystem, mode: Mode, terms: &Terms) -> Situation<'_> {
    Situation {
        filesystem,
        mode,
        terms,
        signals: &[],
        snapshot: false,
        no_freeze: None,
    }
}

fn ask(situation: &Situation<'_>, runs: &[Run]) -> Step {
    let now = runs.last().map_or(Timestamp::UNIX_EPOCH, |run| run.started);
    next(situation, &runs.iter().collect::<Vec<_>>(), now)
}

fn verdict(step: Step) -> (Verdict, String) {
    match step {
        Step::Done(outcome) => (outcome.verdict, outcome.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_kernel_says_comes_first_and_nothing_is_run() {
    let terms = terms(true);
    let signal = |kind| Signal {
        kind,
        evidence: Evidence {
            source: "kernel".to_owned(),
            time: Timestamp::UNIX_EPOCH,
            text: "sdb1: bad inode".to_owned(),
        },
    };
    let both = [signal(SignalKind::Fault), signal(SignalKind::Corrupted)];
    for mode in [Mode::Live, Mode::Unmounted] {
        let told = Situation {
            signals: &both,
            ..situation(Ext4, mode, &terms)
        };
        assert_eq!(verdict(ask(&told, &[])).0, Verdict::Corrupted);
        let told = Situation {
            signals: &both[..1],
            ..told
        };
        assert_eq!(verdict(ask(&told, &[])).0, Verdict::Inconclusive);
    }
}

#[test]
fn where_nothing_moves_one_run_counts() {
    let terms = terms(true);
    for mode in [Mode::Unmounted, Mode::ReadOnly] {
        let still = situation(Xfs, mode, &terms);
        assert_eq!(ask(&still, &[]), Step::Run(mode));
        assert_eq!(verdict(ask(&still, &[clean(mode)])).0, Verdict::Clean);
        assert_eq!(verdict(ask(&still, &[bad(mode)])).0, Verdict::Corrupted);
        assert_eq!(ask(&still, &[failed(mode)]), Step::Run(mode));
        assert_eq!(
            verdict(ask(&still, &[failed(mode), bad(mode)])).0,
            Verdict::Corrupted
        );
        assert_eq!(
            verdict(ask(&still, &[failed(mode), failed(mode)])).0,
            Verdict::Failed
        );
    }
}

#[test]
fn what_waits_to_be_replayed_leaves_everything_open() {
    let terms = terms(false);
    for filesystem in [Ext4, Xfs] {
        for one in [clean(Mode::Unmounted), bad(Mode::Unmounted)] {
            let one = Run {
                pending_replay: Some("Warning: skipping journal recovery".to_owned()),
                ..one
            };
            let (verdict, reason) =
                verdict(ask(&situation(filesystem, Mode::Unmounted, &terms), &[one]));
            assert_eq!(verdict, Verdict::Inconclusive);
            assert!(reason.contains("mount it once"), "{reason}");
        }
    }
}

#[test]
fn a_snapshot_is_as_good_as_an_unmounted_filesystem() {
    let terms = Terms {
        snapshot: true,
        ..terms(false)
    };
    let live = Situation {
        snapshot: true,
        ..situation(Xfs, Mode::Live, &terms)
    };
    assert_eq!(ask(&live, &[]), Step::Run(Mode::Snapshot));
    assert_eq!(
        verdict(ask(&live, &[bad(Mode::Snapshot)])).0,
        Verdict::Corrupted
    );
    assert_eq!(
        verdict(ask(&live, &[clean(Mode::Snapshot)])).0,
        Verdict::Clean
    );
    assert_eq!(
        ask(&live, &[failed(Mode::Snapshot), failed(Mode::Snapshot)]),
        Step::Run(Mode::Live)
    );
}

#[test]
fn a_live_run_can_clear_at_once() {
    let terms = terms(true);
    for filesystem in [Ext4, Xfs, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        assert_eq!(ask(&live, &[]), Step::Run(Mode::Live));
        assert_eq!(verdict(ask(&live, &[clean(Mode::Live)])).0, Verdict::Clean);
    }
}

#[test]
fn checksums_of_bitmaps_that_are_written_make_no_live_ext4_suspected() {
    let terms = terms(false);
    let live = situation(Ext4, Mode::Live, &terms);
    let moving = || {
        run(
            Mode::Live,
            Ballot::Findings,
            &[
                ("inode-bitmap-checksum", Weight::Bookkeeping),
                ("block-bitmap-checksum", Weight::Bookkeeping),
            ],
        )
    };
    assert_eq!(
        verdict(ask(&live, &[moving(), moving(), moving()])).0,
        Verdict::Inconclusive
    );
    let mut counts = run(Mode::Live, Ballot::Findings, &BAD);
    assert_eq!(
        verdict(ask(
            &live,
            &[counts.clone(), counts.clone(), counts.clone()]
        ))
        .0,
        Verdict::Suspected
    );
    counts.flaws[0].text = "WARNING: PROGRAMMING BUG IN E2FSCK! OR SOME BONEHEAD (YOU) IS CHECKING A MOUNTED (LIVE) FILESYSTEM.".to_owned();
    assert_eq!(
        verdict(ask(&live, &[counts.clone(), counts.clone(), counts])).0,
        Verdict::Inconclusive
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
        verdict(ask(&live, &[moving(), frozen(10), frozen(80)])).0,
        Verdict::Corrupted
    );
}

#[test]
fn live_votes_make_ext4_and_btrfs_suspected_and_never_xfs() {
    let terms = terms(false);
    let runs = [bad(Mode::Live), bad(Mode::Live), bad(Mode::Live)];
    for filesystem in [Ext4, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        assert_eq!(ask(&live, &runs[..2]), Step::Run(Mode::Live));
        assert_eq!(verdict(ask(&live, &runs)).0, Verdict::Suspected);
    }
    assert_eq!(
        verdict(ask(&situation(Xfs, Mode::Live, &terms), &runs[..1])).0,
        Verdict::Inconclusive
    );
    let ext4 = situation(Ext4, Mode::Live, &terms);
    let moving = [
        run(Mode::Live, Ballot::Findings, &[("a", Weight::Damage)]),
        run(Mode::Live, Ballot::Findings, &[("b", Weight::Damage)]),
        bad(Mode::Live),
    ];
    assert_eq!(verdict(ask(&ext4, &moving)).0, Verdict::Inconclusive);
    let transient = || {
        run(
            Mode::Live,
            Ballot::Findings,
            &[("free-blocks", Weight::Transient)],
        )
    };
    assert_eq!(
        verdict(ask(&ext4, &[transient(), transient(), transient()])).0,
        Verdict::Inconclusive
    );
}

#[test]
fn two_frozen_runs_a_minute_apart_that_show_the_same_are_proof() {
    let terms = terms(true);
    for filesystem in [Ext4, Xfs, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        let mut runs = vec![bad(Mode::Live)];
        assert_eq!(ask(&live, &runs), Step::Run(Mode::Frozen));
        runs.push(at(10, bad(Mode::Frozen)));
        assert_eq!(
            ask(&live, &runs),
            Step::Wait {
                until: Timestamp::from_second(70).unwrap()
            }
        );
        assert_eq!(
            next(
                &live,
                &runs.iter().collect::<Vec<_>>(),
                Timestamp::from_second(70).unwrap()
            ),
            Step::Run(Mode::Frozen)
        );
        runs.push(at(70, bad(Mode::Frozen)));
        let (verdict, reason) = verdict(ask(&live, &runs));
        assert_eq!(verdict, Verdict::Corrupted);
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
        Ballot::Findings,
        &[("agf-crc", Weight::Damage)],
    );
    assert_eq!(
        verdict(ask(
            &live,
            &[
                bad(Mode::Live),
                at(10, bad(Mode::Frozen)),
                at(69, bad(Mode::Frozen))
            ]
        ))
        .0,
        Verdict::Inconclusive
    );
    assert_eq!(
        verdict(ask(
            &live,
            &[bad(Mode::Live), at(10, bad(Mode::Frozen)), at(80, other)]
        ))
        .0,
        Verdict::Inconclusive
    );
    assert_eq!(
        verdict(ask(
            &live,
            &[
                bad(Mode::Live),
                at(10, bad(Mode::Frozen)),
                at(80, clean(Mode::Frozen))
            ]
        ))
        .0,
        Verdict::Inconclusive
    );
    assert_eq!(
        verdict(ask(&live, &[bad(Mode::Live), at(10, clean(Mode::Frozen))])).0,
        Verdict::Clean
    );
}

#[test]
fn it_is_frozen_only_after_a_live_run_that_fitted_the_budget() {
    let terms = terms(true);
    let live = situation(Xfs, Mode::Live, &terms);
    let slow = Run {
        active: Duration::from_secs(6),
        ..bad(Mode::Live)
    };
    let (said, reason) = verdict(ask(&live, &[slow]));
    assert_eq!(said, Verdict::Inconclusive);
    assert!(reason.contains("6.0 s"), "{reason}");
    assert_eq!(
        ask(&live, &[failed(Mode::Live)]),
        Step::Run(Mode::Frozen),
        "a crash on moving metadata says nothing of a frozen one"
    );
    for end in [
        End::TimedOut,
        End::NotStarted("no".to_owned()),
        End::Signal(9),
    ] {
        assert_ne!(
            ask(
                &live,
                &[Run {
                    end,
                    ..failed(Mode::Live)
                }]
            ),
            Step::Run(Mode::Frozen)
        );
    }
    let words = Some("xfs_repair: read failed: Input/output error".to_owned());
    assert_ne!(
        ask(
            &live,
            &[Run {
                failure: words.clone(),
                ..failed(Mode::Live)
            }]
        ),
        Step::Run(Mode::Frozen),
        "the device is sick"
    );
    for filesystem in [Ext4, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        for end in [End::Exited(8), End::Signal(11)] {
            let at_once = Run {
                end,
                active: Duration::from_millis(10),
                ..failed(Mode::Live)
            };
            assert_ne!(
                ask(&live, std::slice::from_ref(&at_once)),
                Step::Run(Mode::Frozen),
                "{at_once:?}"
            );
            let sick = Run {
                failure: words.clone(),
                ..at_once
            };
            assert_ne!(ask(&live, &[sick]), Step::Run(Mode::Frozen));
        }
    }
    let ext4 = situation(Ext4, Mode::Live, &terms);
    let aborted = Run {
        end: End::Exited(12),
        failure: Some("e2fsck: aborted".to_owned()),
        ballot: Ballot::Failed,
        ..bad(Mode::Live)
    };
    assert_eq!(
        ask(&ext4, std::slice::from_ref(&aborted)),
        Step::Run(Mode::Frozen),
        "it gave up over what moves, as on healthy ones under load"
    );
    for other in [
        Run {
            failure: words,
            ..aborted.clone()
        },
        Run {
            flaws: Vec::new(),
            ..aborted.clone()
        },
        Run {
            end: End::Exited(8),
            ..aborted.clone()
        },
        Run {
            active: Duration::from_secs(6),
            ..aborted
        },
    ] {
        assert_ne!(
            ask(&ext4, std::slice::from_ref(&other)),
            Step::Run(Mode::Frozen),
            "{other:?}"
        );
    }
    let refused = Situation {
        no_freeze: Some("it carries /var"),
        ..live
    };
    let (said, reason) = verdict(ask(&refused, &[bad(Mode::Live)]));
    assert_eq!(said, Verdict::Inconclusive);
    assert!(reason.contains("it carries /var"), "{reason}");
}

#[test]
fn frozen_runs_that_fail_are_retried_twice_and_then_the_live_ones_have_the_word() {
    let terms = terms(true);
    let live = situation(Ext4, Mode::Live, &terms);
    let mut runs = vec![bad(Mode::Live)];
    for number in 0..3 {
        let again = Timestamp::from_second(60 * number).unwrap();
        if number > 0 {
            assert_eq!(
                ask(&live, &runs),
                Step::Wait { until: again },
                "it may have held the writers for as long as they may be"
            );
        }
        assert_eq!(
            next(&live, &runs.iter().collect::<Vec<_>>(), again),
            Step::Run(Mode::Frozen)
        );
        runs.push(at(60 * number, failed(Mode::Frozen)));
    }
    for _ in 0..2 {
        assert_eq!(ask(&live, &runs), Step::Run(Mode::Live));
        runs.push(bad(Mode::Live));
    }
    assert_eq!(verdict(ask(&live, &runs)).0, Verdict::Suspected);
    let late = vec![
        bad(Mode::Live),
        Run {
            end: End::TimedOut,
            ..failed(Mode::Frozen)
        },
    ];
    assert_eq!(
        ask(&live, &late),
        Step::Run(Mode::Live),
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
        ask(&live, &runs),
        Step::Wait {
            until: Timestamp::from_second(130).unwrap()
        }
    );
}

#[test]
fn a_hanging_device_is_not_asked_again() {
    let terms = terms(true);
    let stuck = Run {
        end: End::Stuck(None),
        ..failed(Mode::Live)
    };
    assert_eq!(
        verdict(ask(&situation(Ext4, Mode::Live, &terms), &[stuck])).0,
        Verdict::Failed
    );
}

#[test]
fn reasons_are_sentences() {
    let terms = terms(false);
    let one = |reason: (Verdict, String)| reason.1;
    let flaws = [
        ("a", Weight::Damage),
        ("b", Weight::Bookkeeping),
        ("c", Weight::Transient),
    ];
    insta::assert_snapshot!(one(verdict(ask(&situation(Ext4, Mode::Unmounted, &terms), &[run(Mode::Unmounted, Ballot::Findings, &flaws)]))), @r##"e2fsck found 3 flaws (1 damage, 1 bookkeeping, 1 also seen on healthy mounted filesystems), the worst of them "Inode 7: a" while nothing could change (unmounted). Back up what can still be read, then repair the unmounted filesystem with e2fsck -f."##);
    insta::assert_snapshot!(one(verdict(ask(&situation(Xfs, Mode::Live, &terms), &[bad(Mode::Live)]))), @r##"xfs_repair found one flaw (1 damage): "Inode 7: inode-checksum", which proves nothing while an XFS is mounted and written. To know, allow a frozen run (--freeze, if the policy permits it), or unmount the filesystem and check it."##);
    insta::assert_snapshot!(one(verdict(ask(&situation(Ext4, Mode::Unmounted, &terms), &[failed(Mode::Unmounted), failed(Mode::Unmounted)]))), @r##"None of 2 runs could do its work: e2fsck was ended by signal 11 (SIGSEGV). This says nothing of the filesystem."##);
    insta::assert_snapshot!(one(verdict(ask(&situation(Ext4, Mode::Live, &terms), &[bad(Mode::Live), bad(Mode::Live), bad(Mode::Live)]))), @r##"All of 3 live runs of e2fsck show one flaw (1 damage): "Inode 7: inode-checksum". To know, allow a frozen run (--freeze, if the policy permits it), or unmount the filesystem and check it."##);
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
        End::Signal(11),
        End::TimedOut,
        End::Exited(8),
        End::NotStarted("no".to_owned()),
        End::Stuck(None),
        End::Stopped,
    ]);
    let ballots = proptest::sample::select(vec![Ballot::Clean, Ballot::Findings, Ballot::Failed]);
    (ballots, kinds, ends, 0_u64..10, any::<bool>()).prop_map(
        |(ballot, kinds, end, active, pending)| {
            let one = run(Mode::Live, ballot, &kinds);
            let end = if ballot == Ballot::Failed {
                end
            } else {
                End::Exited(0)
            };
            Run {
                active: Duration::from_secs(active),
                end,
                pending_replay: pending.then(|| "log".to_owned()),
                ..one
            }
        },
    )
}

/// Answers all steps with these runs, in whatever mode is asked for; the clock goes on.
fn play(situation: &Situation<'_>, answers: &[Run]) -> (Outcome, Vec<Run>) {
    let (mut runs, mut now) = (Vec::<Run>::new(), 0_i64);
    for step in 0..4 * BOUND {
        match next(
            situation,
            &runs.iter().collect::<Vec<_>>(),
            Timestamp::from_second(now).unwrap(),
        ) {
            Step::Done(outcome) => return (outcome, runs),
            Step::Wait { until } => {
                assert!(until.as_second() > now);
                now = until.as_second();
            }
            Step::Run(mode) => {
                let answer = answers[step % answers.len()].clone();
                runs.push(Run {
                    mode,
                    ..at(now, answer)
                });
                now += 3;
            }
        }
        assert!(runs.len() <= BOUND);
    }
    panic!("it does not end: {runs:?}");
}

proptest! {
    #[test]
    fn every_check_ends_and_says_only_what_its_runs_say(
        answers in proptest::collection::vec(any_run(), 1..12),
        freeze in any::<bool>(), snapshot in any::<bool>(), refused in any::<bool>(),
        mode in proptest::sample::select(vec![Mode::Live, Mode::ReadOnly, Mode::Unmounted]),
        filesystem in proptest::sample::select(vec![Ext4, Xfs, Btrfs]),
    ) {
        let terms = Terms { snapshot, ..terms(freeze) };
        let situation = Situation { snapshot: true, no_freeze: refused.then_some("no"), ..situation(filesystem, mode, &terms) };
        let (outcome, runs) = play(&situation, &answers);
        prop_assert!(!outcome.reason.is_empty());
        let has = |ballot| runs.iter().any(|run| run.ballot == ballot);
        if outcome.verdict == Verdict::Clean {
            prop_assert!(runs.iter().any(|run| run.ballot == Ballot::Clean && run.mode == outcome.mode));
        }
        if matches!(outcome.verdict, Verdict::Corrupted | Verdict::Suspected) {
            prop_assert!(has(Ballot::Findings));
        }
        if outcome.verdict == Verdict::Corrupted {
            let frozen = runs.iter().filter(|run| run.mode == Mode::Frozen && run.ballot == Ballot::Findings).count();
            prop_assert!(outcome.mode.is_still() || frozen >= 2);
        }
        if runs.iter().any(|run| run.mode == Mode::Frozen) {
            prop_assert!(freeze && !refused);
        }
        if !has(Ballot::Clean) && !has(Ballot::Findings) {
            prop_assert_eq!(outcome.verdict, Verdict::Failed);
        }
    }

    #[test]
    fn no_sequence_of_failed_runs_gives_clean_or_corrupted(count in 0_usize..8, found in any::<bool>(), mode in proptest::sample::select(vec![Mode::Live, Mode::Frozen, Mode::ReadOnly, Mode::Unmounted, Mode::Snapshot])) {
        let one = run(mode, Ballot::Failed, if found { &BAD } else { &[] });
        let runs = vec![&one; count];
        for filesystem in [Ext4, Xfs, Btrfs] {
            prop_assert_eq!(judge(filesystem, mode, &runs, Duration::from_secs(60)).verdict, Verdict::Failed);
        }
    }

    #[test]
    fn live_runs_alone_never_give_corrupted(runs in proptest::collection::vec(any_run(), 0..8)) {
        let runs: Vec<&Run> = runs.iter().collect();
        for filesystem in [Ext4, Xfs, Btrfs] {
            let verdict = judge(filesystem, Mode::Live, &runs, Duration::from_secs(60)).verdict;
            prop_assert!(verdict != Verdict::Corrupted);
            prop_assert!(verdict != Verdict::Suspected || filesystem != Xfs);
        }
    }

    /// A file's answer is the daemon's.
    #[test]
    fn judging_is_what_the_steps_come_to(one in any_run(), filesystem in proptest::sample::select(vec![Ext4, Xfs, Btrfs])) {
        prop_assume!(one.ballot != Ballot::Failed);
        let terms = terms(false);
        let one = Run { mode: Mode::Unmounted, ..one };
        let Step::Done(outcome) = next(&situation(filesystem, Mode::Unmounted, &terms), &[&one], Timestamp::UNIX_EPOCH) else { panic!() };
        prop_assert_eq!(judge(filesystem, Mode::Unmounted, &[&one], Duration::ZERO), outcome);
    }
}
