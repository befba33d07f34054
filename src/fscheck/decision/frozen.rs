//! Runs with all writers frozen: a problem is proven if two of these runs, some time apart, find
//! it.

use std::time::Duration;

use jiff::Timestamp;

use crate::decision::{
    CheckOutcome, Decision, DecisionInput, MIN_FROZEN_GAP, any_timed_out, completed, live,
    outcome_text, proven, runs_in_mode,
};
use crate::parse::E2FSCK_ABORTED;
use crate::{CheckVerdict, Filesystem, Mode, Problem, Run, RunResult, Termination};

/// Maximum number of failed frozen runs; each of them held the writers.
const MAX_FAILED_RUNS: usize = 3;

/// None: the live runs decide.
pub(crate) fn decide(
    situation: &DecisionInput<'_>,
    runs: &[&Run],
    now: Timestamp,
) -> Option<Decision> {
    let frozen = runs_in_mode(runs, Mode::Frozen);
    let good = completed(&frozen);
    let gap = situation.terms.gap.max(MIN_FROZEN_GAP);
    if let Some(outcome) = compare_runs(situation.filesystem, situation.device, &good, gap) {
        return Some(Decision::Done(outcome));
    }
    let failed = frozen.len() - good.len();
    let refused = refusal(situation, &frozen, failed);
    let Some(first) = good.first() else {
        let tried = refused.is_none() && situation.terms.freeze && fits_budget(situation, runs);
        return tried.then(|| run_after_gap(&frozen, gap, now));
    };
    if let Some(why) = refused {
        let todo = format!(
            "it could not be confirmed by a second frozen run ({}): unmount the filesystem and check it",
            outcome_text::without_full_stop(&why)
        );
        return Some(Decision::Done(unconfirmed(situation.filesystem, first, &todo)));
    }
    Some(run_after_gap(&frozen, gap, now))
}

/// A failed run also requires the gap: it may have held the writers for the whole limit.
fn run_after_gap(frozen: &[&Run], gap: Duration, now: Timestamp) -> Decision {
    match frozen.iter().map(|run| saturating_add(run.started, gap)).max() {
        Some(until) if now < until => Decision::Wait { until },
        Some(_) | None => Decision::Run(Mode::Frozen),
    }
}

fn refusal(situation: &DecisionInput<'_>, frozen: &[&Run], failed: usize) -> Option<String> {
    match situation.freeze_refusal {
        Some(why) => Some(why.to_owned()),
        None if failed >= MAX_FAILED_RUNS || any_timed_out(frozen) => {
            frozen.last().map(|run| run.failure_reason.clone())
        }
        None => None,
    }
}

/// Whether a live run fits the freeze budget and did not clear the filesystem.
fn fits_budget(situation: &DecisionInput<'_>, runs: &[&Run]) -> bool {
    let live = || runs.iter().filter(|run| run.mode == Mode::Live);
    // A run that gave up at once does not show how long the work takes. On a device with errors, it
    // only shows the errors.
    let worked = |run: &Run| {
        run.result != RunResult::Failed || aborted_on_changing_metadata(situation.filesystem, run)
    };
    let fits = live().any(|run| worked(run) && run.active <= situation.terms.budget);
    fits && !live().any(|run| run.result == RunResult::Clean)
}

/// The checker aborted because the metadata changed during the run, which cannot happen while
/// writers are held: xfs_repair crashes, e2fsck gives up between its findings. SIGKILL comes from
/// another process.
fn aborted_on_changing_metadata(filesystem: Filesystem, run: &Run) -> bool {
    const SIGKILL: i32 = 9;
    match (filesystem, &run.termination) {
        (Filesystem::Xfs, Termination::Signal(number)) => {
            *number != SIGKILL && run.checker_error.is_none()
        }
        // Findings and an operational error: the message reports that e2fsck gave up, and no other
        // message reports another error.
        (Filesystem::Ext4, Termination::Exited(12)) => {
            run.checker_error.as_deref() == Some(E2FSCK_ABORTED) && !run.problems.is_empty()
        }
        _ => false,
    }
}

fn saturating_add(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// The verdict of the completed runs; None: another run is needed.
pub(crate) fn compare_runs(
    filesystem: Filesystem,
    device: &str,
    good: &[&Run],
    gap: Duration,
) -> Option<CheckOutcome> {
    let outcome = |verdict, reason| Some(CheckOutcome::new(verdict, Mode::Frozen, reason));
    let checker = filesystem.checker().0;
    let clean = good.iter().filter(|run| run.result == RunResult::Clean).count();
    let (first, others) = good.split_first()?;
    if clean == good.len() {
        let dropped = first.problems.len() as u64 + first.more_problems;
        let but = if first.no_error_found && dropped > 0 {
            format!(" but {}", outcome_text::rebuilt_bookkeeping(first))
        } else if dropped > 0 {
            format!(" beyond {dropped} things that healthy mounted filesystems show")
        } else {
            String::new()
        };
        return outcome(
            CheckVerdict::Clean,
            format!("With all writers held {checker} ran through and found nothing{but}."),
        );
    }
    if clean > 0 {
        let reason = format!(
            "Of {} frozen runs {clean} found nothing and the others did. Check again, or unmount the filesystem and check it.",
            good.len()
        );
        return outcome(CheckVerdict::Inconclusive, reason);
    }
    if others.is_empty() {
        return None;
    }
    let pairs = good
        .iter()
        .enumerate()
        .flat_map(|(at, one)| good.iter().skip(at + 1).map(move |other| (*one, *other)));
    let apart = |(one, other): &(&Run, &Run)| {
        gap != Duration::MAX && saturating_add(one.started, gap) <= other.started
    };
    let proof = pairs
        .filter(apart)
        .map(|(one, other)| {
            let no_error_found = one.no_error_found && other.no_error_found;
            (live::common_problems(&[one, other]), no_error_found)
        })
        .find(|(shared, _)| !shared.is_empty());
    let Some((proof, no_error_found)) = proof else {
        let why = if gap == Duration::MAX {
            "the frozen runs were less than 60 s apart"
        } else {
            "no flaw was in two frozen runs"
        };
        let last = good.last().unwrap_or(first);
        return Some(unconfirmed(
            filesystem,
            last,
            &format!("{why}: unmount the filesystem and check it"),
        ));
    };
    let proof: Vec<Problem> = proof.into_iter().cloned().collect();
    let found = format!(
        "Two frozen runs of {checker} show the same {}",
        outcome_text::describe_problems(&proof, 0),
    );
    let verdict = proven(proof.iter(), no_error_found);
    outcome(verdict, outcome_text::conclusion(&found, filesystem, device, verdict, &proof))
}

/// A problem that only one run found is not proof.
pub(crate) fn unconfirmed(filesystem: Filesystem, run: &Run, todo: &str) -> CheckOutcome {
    let reason = format!(
        "With all writers held {}. This is no proof yet; {todo}.",
        outcome_text::describe_run(filesystem, run)
    );
    CheckOutcome::new(CheckVerdict::Inconclusive, Mode::Frozen, reason)
}
