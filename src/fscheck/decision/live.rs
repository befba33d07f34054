//! Runs over a filesystem that is being written: each run is a vote. The votes can clear the
//! filesystem, or at most raise a suspicion.

use crate::decision::{
    CheckOutcome, Decision, DecisionInput, any_timed_out, completed, outcome_text, proven,
    runs_in_mode,
};
use crate::run_result::non_transient;
use crate::{CheckVerdict, Filesystem, Mode, Problem, Run, RunResult};

/// Minimum number of votes for a suspicion.
pub(crate) const MIN_VOTES: usize = 3;
/// Number of additional runs for failed ones.
const MAX_FAILED_RUNS: usize = 2;

/// Problems that each run finds on a healthy ext4 that is being written: e2fsck reads a bitmap at
/// another time than the descriptor that has its checksum.
const LIVE_ARTIFACTS: [&str; 2] = ["block-bitmap-checksum", "inode-bitmap-checksum"];

/// e2fsck's own hint that counts changed while it was reading.
const COUNTS_CHANGED: &str = "WARNING: PROGRAMMING BUG IN E2FSCK!";

fn is_live_artifact(problem: &Problem) -> bool {
    LIVE_ARTIFACTS.contains(&problem.kind.as_str()) || problem.text.starts_with(COUNTS_CHANGED)
}

/// Why no frozen run decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotFrozen {
    /// Not requested, or not allowed.
    NotAllowed,
    Refused(String),
    NoReason,
}

pub(crate) fn decide(situation: &DecisionInput<'_>, runs: &[&Run]) -> Decision {
    let live = runs_in_mode(runs, Mode::Live);
    let good = completed(&live);
    let failed = live.len() - good.len();
    let wanted = usize::try_from(situation.terms.runs).unwrap_or(MIN_VOTES).max(MIN_VOTES);
    let hopeless = any_timed_out(&live);
    let left = why_not_frozen(situation, runs, &live);
    if good.is_empty() && (failed >= MAX_FAILED_RUNS || hopeless) {
        return Decision::Done(outcome_text::failed_outcome(&live, Mode::Live));
    }
    if good.iter().any(|run| run.result == RunResult::Clean) {
        return Decision::Done(tally_votes(situation.filesystem, &good, left));
    }
    // On XFS, more runs add no information.
    let enough = if situation.filesystem == Filesystem::Xfs { 1 } else { wanted };
    if good.len() >= enough || failed > MAX_FAILED_RUNS || hopeless && !good.is_empty() {
        return Decision::Done(tally_votes(situation.filesystem, &good, left));
    }
    Decision::Run(Mode::Live)
}

fn why_not_frozen(situation: &DecisionInput<'_>, runs: &[&Run], live: &[&Run]) -> NotFrozen {
    if !situation.terms.freeze {
        return NotFrozen::NotAllowed;
    }
    if let Some(why) = situation.freeze_refusal {
        return NotFrozen::Refused(why.to_owned());
    }
    if let Some(run) =
        runs.iter().rev().find(|run| run.mode == Mode::Frozen && run.result == RunResult::Failed)
    {
        return NotFrozen::Refused(format!(
            "frozen runs could not do their work: {}",
            run.failure_reason
        ));
    }
    let budget = situation.terms.budget;
    match live.iter().map(|run| run.active).min() {
        Some(fastest) if fastest > budget => NotFrozen::Refused(format!(
            "a run takes {:.1} s, and writers may be held for {:.1} s",
            fastest.as_secs_f64(),
            budget.as_secs_f64()
        )),
        _ => NotFrozen::NoReason,
    }
}

/// The verdict of the completed runs, at least one.
pub(crate) fn tally_votes(filesystem: Filesystem, good: &[&Run], left: NotFrozen) -> CheckOutcome {
    let outcome = |verdict, reason| CheckOutcome::new(verdict, Mode::Live, reason);
    let checker = filesystem.checker().0;
    if good.iter().any(|run| run.result == RunResult::Clean) {
        return outcome(
            CheckVerdict::Clean,
            format!(
                "{checker} ran through the mounted filesystem and found {} (run {} of {}).",
                good.last().map_or_else(
                    || "nothing".to_owned(),
                    |run| outcome_text::found_in_clean_run(run)
                ),
                good.len(),
                good.len()
            ),
        );
    }
    let todo = match &left {
        NotFrozen::NotAllowed => {
            "To know, allow a frozen run (--freeze, if the policy permits it), or unmount the filesystem and check it".to_owned()
        }
        NotFrozen::Refused(why) => format!("It was not frozen: {}. To know, unmount it and check it", outcome_text::without_full_stop(why)),
        NotFrozen::NoReason => "To know, check it frozen or unmounted".to_owned(),
    };
    let Some(last) = good.last() else {
        return outcome_text::failed_outcome(good, Mode::Live);
    };
    let shared: Vec<&Problem> =
        common_problems(good).into_iter().filter(|problem| !is_live_artifact(problem)).collect();
    let no_error_found = good.iter().all(|run| run.no_error_found);
    let suspicious = !shared.is_empty()
        && proven(shared.iter().copied(), no_error_found) != CheckVerdict::Inconclusive;
    let votes = good.len();
    if filesystem != Filesystem::Xfs && votes >= MIN_VOTES && suspicious {
        let shared: Vec<Problem> = shared.into_iter().cloned().collect();
        let reason = format!(
            "All of {votes} live runs of {checker} show {}. {todo}.",
            outcome_text::describe_problems(&shared, 0)
        );
        return outcome(CheckVerdict::Suspected, reason);
    }
    let statement = if last.problems.is_empty() && last.pending_replay.is_some() {
        format!(
            "{checker} found only that the log is dirty, as it is while a filesystem is mounted"
        )
    } else if filesystem == Filesystem::Xfs {
        format!(
            "{}, which proves nothing while an XFS is mounted and written",
            outcome_text::describe_run(filesystem, last)
        )
    } else if votes < MIN_VOTES {
        format!(
            "{}, and {votes} live runs are too few for a suspicion",
            outcome_text::describe_run(filesystem, last)
        )
    } else {
        format!(
            "{votes} live runs of {checker} found something, but nothing lasting that all of them share: so does a healthy filesystem under load"
        )
    };
    outcome(CheckVerdict::Inconclusive, format!("{statement}. {todo}."))
}

/// Problems that all runs found, except those that are transient on healthy filesystems.
pub(crate) fn common_problems<'a>(runs: &[&'a Run]) -> Vec<&'a Problem> {
    let Some((first, others)) = runs.split_first() else {
        return Vec::new();
    };
    let real = |run: &'a Run| non_transient(&run.problems);
    real(first)
        .filter(|problem| {
            others.iter().all(|run| real(run).any(|other| other.is_same_problem(problem)))
        })
        .collect()
}
