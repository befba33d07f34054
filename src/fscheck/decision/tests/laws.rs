//! Laws of the decision over any runs.

use proptest::prelude::*;

use super::*;

/// No check makes more runs than this, whatever happens.
const MAX_STEPS: usize = 16;

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
    let results =
        proptest::sample::select(vec![RunResult::Clean, RunResult::Findings, RunResult::Failed]);
    (results, kinds, ends, 0_u64..10, any::<bool>()).prop_map(
        |(result, kinds, end, active, pending)| {
            let one = run(Mode::Live, result, &kinds);
            let end = if result == RunResult::Failed { end } else { Termination::Exited(0) };
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
                runs.push(Run { mode, ..at(now, answer) });
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
            prop_assert_eq!(conclude(filesystem, "/dev/sdb1", mode, &runs, Duration::from_secs(60)).verdict, CheckVerdict::Failed);
        }
    }

    #[test]
    fn live_runs_alone_never_give_corrupted(runs in proptest::collection::vec(any_run(), 0..8)) {
        let runs: Vec<&Run> = runs.iter().collect();
        for filesystem in [Ext4, Xfs, Btrfs] {
            let verdict = conclude(filesystem, "/dev/sdb1", Mode::Live, &runs, Duration::from_secs(60)).verdict;
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
        prop_assert_eq!(conclude(filesystem, "/dev/sdb1", Mode::Unmounted, &[&one], Duration::ZERO), outcome);
    }
}
