//! Frozen runs: which are proof, when they are made, and when they are repeated.

use super::*;

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
            Decision::Wait { until: Timestamp::from_second(70).unwrap() }
        );
        assert_eq!(
            decide(&live, &runs.iter().collect::<Vec<_>>(), Timestamp::from_second(70).unwrap()),
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
    let other = run(Mode::Frozen, RunResult::Findings, &[("agf-crc", Weight::Damage)]);
    assert_eq!(
        verdict(decide_after(
            &live,
            &[bad(Mode::Live), at(10, bad(Mode::Frozen)), at(69, bad(Mode::Frozen))]
        ))
        .0,
        CheckVerdict::Inconclusive
    );
    assert_eq!(
        verdict(decide_after(&live, &[bad(Mode::Live), at(10, bad(Mode::Frozen)), at(80, other)]))
            .0,
        CheckVerdict::Inconclusive
    );
    assert_eq!(
        verdict(decide_after(
            &live,
            &[bad(Mode::Live), at(10, bad(Mode::Frozen)), at(80, clean(Mode::Frozen))]
        ))
        .0,
        CheckVerdict::Inconclusive
    );
    assert_eq!(
        verdict(decide_after(&live, &[bad(Mode::Live), at(10, clean(Mode::Frozen))])).0,
        CheckVerdict::Clean
    );
}

#[test]
fn a_frozen_run_needs_a_live_run_within_the_budget() {
    let terms = terms(true);
    let live = situation(Xfs, Mode::Live, &terms);
    let slow = Run { active: Duration::from_secs(6), ..bad(Mode::Live) };
    let (said, reason) = verdict(decide_after(&live, &[slow]));
    assert_eq!(said, CheckVerdict::Inconclusive);
    assert!(reason.contains("6.0 s"), "{reason}");
    assert_eq!(
        decide_after(&live, &[failed(Mode::Live)]),
        Decision::Run(Mode::Frozen),
        "a crash on moving metadata says nothing of a frozen one"
    );
    for end in
        [Termination::TimedOut, Termination::NotStarted("no".to_owned()), Termination::Signal(9)]
    {
        assert_ne!(
            decide_after(&live, &[Run { termination: end, ..failed(Mode::Live) }]),
            Decision::Run(Mode::Frozen)
        );
    }
    let words = Some("xfs_repair: read failed: Input/output error".to_owned());
    assert_ne!(
        decide_after(&live, &[Run { checker_error: words.clone(), ..failed(Mode::Live) }]),
        Decision::Run(Mode::Frozen),
        "the device is sick"
    );
    for filesystem in [Ext4, Btrfs] {
        let live = situation(filesystem, Mode::Live, &terms);
        for end in [Termination::Exited(8), Termination::Signal(11)] {
            let at_once =
                Run { termination: end, active: Duration::from_millis(10), ..failed(Mode::Live) };
            assert_ne!(
                decide_after(&live, std::slice::from_ref(&at_once)),
                Decision::Run(Mode::Frozen),
                "{at_once:?}"
            );
            let sick = Run { checker_error: words.clone(), ..at_once };
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
        Run { checker_error: words, ..aborted.clone() },
        Run { problems: Vec::new(), ..aborted.clone() },
        Run { termination: Termination::Exited(8), ..aborted.clone() },
        Run { active: Duration::from_secs(6), ..aborted },
    ] {
        assert_ne!(
            decide_after(&ext4, std::slice::from_ref(&other)),
            Decision::Run(Mode::Frozen),
            "{other:?}"
        );
    }
    let refused = DecisionInput { freeze_refusal: Some("it carries /var"), ..live };
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
    assert_eq!(verdict(decide_after(&live, &runs)).0, CheckVerdict::Suspected);
    let late =
        vec![bad(Mode::Live), Run { termination: Termination::TimedOut, ..failed(Mode::Frozen) }];
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
    let runs = [bad(Mode::Live), at(10, bad(Mode::Frozen)), at(70, failed(Mode::Frozen))];
    assert_eq!(
        decide_after(&live, &runs),
        Decision::Wait { until: Timestamp::from_second(130).unwrap() }
    );
}
