//! The next step of a check, and its verdict. In: the runs so far. Out: the next step or the
//! outcome. Pure.
//!
//! The kernel's reports come first, then runs over data that does not change. A live run can clear
//! a filesystem but cannot prove corruption; only two frozen runs with the same problem can.

mod frozen;
mod live;
mod outcome_text;
#[cfg(test)]
pub mod tests;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    CheckTerms, CheckVerdict, Filesystem, FilesystemSignal, Mode, Problem, Run, RunResult,
    SignalKind, Termination, Weight, repair,
};

/// Maximum attempts of a failed run over data that does not change.
const MAX_ATTEMPTS: usize = 2;
/// Minimum gap between two frozen runs: closer runs could find the same transient state.
const MIN_FROZEN_GAP: Duration = Duration::from_secs(60);

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    pub verdict: CheckVerdict,
    /// One or two sentences for people: why, and what to do.
    pub reason: String,
    /// The mode of the run that decided.
    pub mode: Mode,
}

/// The conditions of a check, besides its runs.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    pub filesystem: Filesystem,
    /// `/dev/sdb1`, for the commands of an advice.
    pub device: &'a str,
    /// Unmounted, ReadOnly or Live, from the mount table.
    pub mode: Mode,
    pub terms: &'a CheckTerms,
    pub signals: &'a [FilesystemSignal],
    /// The device is a logical volume, and snapshots can be made.
    pub can_snapshot: bool,
    /// Why the filesystem may not be frozen although the terms allow it (it is needed to thaw;
    /// EBUSY; a slow syncfs).
    pub freeze_refusal: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run the checker once, in this mode. `Frozen`: probe with syncfs, freeze, run within the
    /// budget, thaw. `Snapshot`: make a snapshot, replay its log.
    Run(Mode),
    /// Decide again after `until`.
    Wait {
        until: Timestamp,
    },
    Done(CheckOutcome),
}

impl CheckOutcome {
    pub fn new(verdict: CheckVerdict, mode: Mode, reason: String) -> CheckOutcome {
        CheckOutcome { verdict, reason, mode }
    }
}

fn runs_in_mode<'a>(runs: &[&'a Run], mode: Mode) -> Vec<&'a Run> {
    let runs = runs.iter().copied();
    runs.filter(|run| run.mode == mode).collect()
}

fn completed<'a>(runs: &[&'a Run]) -> Vec<&'a Run> {
    let runs = runs.iter().copied();
    runs.filter(|run| run.result != RunResult::Failed).collect()
}

fn any_timed_out(runs: &[&Run]) -> bool {
    runs.iter().any(|run| run.termination == Termination::TimedOut)
}

/// Chooses the next step.
pub fn decide(situation: &DecisionInput<'_>, runs: &[&Run], now: Timestamp) -> Decision {
    if let Some(outcome) = decide_by_signals(situation) {
        return Decision::Done(outcome);
    }
    if let Some(run) = runs.iter().find(|run| run.termination == Termination::Cancelled) {
        let reason = "The check was stopped before it could tell anything; ask for it again.";
        return Decision::Done(CheckOutcome::new(
            CheckVerdict::Failed,
            run.mode,
            reason.to_owned(),
        ));
    }
    // If a checker hung on a device, the device is not read again.
    if let Some(run) = runs.iter().find(|run| matches!(run.termination, Termination::Stuck(_))) {
        let reason = format!(
            "{}. See to the device first; the filesystem cannot be checked as long as it hangs.",
            outcome_text::without_full_stop(&run.failure_reason)
        );
        return Decision::Done(CheckOutcome::new(CheckVerdict::Failed, run.mode, reason));
    }
    if situation.mode.is_quiescent() {
        return decide_quiescent(situation, runs, situation.mode).unwrap_or_else(Decision::Done);
    }
    if situation.terms.snapshot
        && situation.can_snapshot
        && !runs
            .iter()
            .any(|run| matches!(run.mode, Mode::Live | Mode::Frozen))
        // If no snapshot could be checked, a live run is better than nothing.
        && let Ok(step) = decide_quiescent(situation, runs, Mode::Snapshot)
    {
        return step;
    }
    frozen::decide(situation, runs, now).unwrap_or_else(|| live::decide(situation, runs))
}

fn decide_by_signals(situation: &DecisionInput<'_>) -> Option<CheckOutcome> {
    let of = |kind| situation.signals.iter().find(|signal| signal.kind == kind);
    if let Some(signal) = of(SignalKind::Corrupted) {
        let reason = format!(
            "The kernel itself found this filesystem damaged: {}. Back up what can still be read, unmount it and {}.",
            outcome_text::quoted(&signal.evidence.text),
            repair::sequence(situation.filesystem, situation.device, None)
        );
        return Some(CheckOutcome::new(CheckVerdict::Corrupted, situation.mode, reason));
    }
    let signal = of(SignalKind::Fault)?;
    let reason = format!(
        "The kernel reports trouble beneath this filesystem, and checking it now could make that worse: {}. See to the drive first, then unmount the filesystem and check it.",
        outcome_text::quoted(&signal.evidence.text)
    );
    Some(CheckOutcome::new(CheckVerdict::Inconclusive, situation.mode, reason))
}

/// If the data does not change, the first completed run decides. Error: no run was completed.
fn decide_quiescent(
    situation: &DecisionInput<'_>,
    runs: &[&Run],
    mode: Mode,
) -> Result<Decision, CheckOutcome> {
    let runs = runs_in_mode(runs, mode);
    if let Some(run) = runs.iter().find(|run| run.result != RunResult::Failed) {
        return Ok(Decision::Done(outcome_of_run(situation.filesystem, situation.device, run)));
    }
    if runs.len() < MAX_ATTEMPTS && !any_timed_out(&runs) {
        Ok(Decision::Run(mode))
    } else {
        Err(outcome_text::failed_outcome(&runs, mode))
    }
}

/// The outcome of one run over data that does not change.
fn outcome_of_run(filesystem: Filesystem, device: &str, run: &Run) -> CheckOutcome {
    let outcome = |verdict, reason| CheckOutcome::new(verdict, run.mode, reason);
    if let Some(words) = &run.pending_replay {
        return outcome(
            CheckVerdict::Inconclusive,
            outcome_text::describe_pending_replay(filesystem, run, words),
        );
    }
    match run.result {
        RunResult::Clean => outcome(
            CheckVerdict::Clean,
            format!(
                "{} ran through and found {} ({}).",
                filesystem.checker().0,
                outcome_text::found_in_clean_run(run),
                run.mode.name()
            ),
        ),
        RunResult::Findings => {
            let found = format!(
                "{} while nothing could change ({})",
                outcome_text::describe_run(filesystem, run),
                run.mode.name(),
            );
            let verdict = proven(run.problems.iter(), run.no_error_found);
            outcome(
                verdict,
                outcome_text::conclusion(&found, filesystem, device, verdict, &run.problems),
            )
        }
        RunResult::Failed => outcome_text::failed_outcome(&[run], run.mode),
    }
}

/// What these problems of data that did not change prove. `no_error_found`: the checker's own
/// closing statement. It does not outweigh a failed checksum, and it leaves a line whose meaning is
/// not known undecided.
fn proven<'a>(problems: impl Iterator<Item = &'a Problem>, no_error_found: bool) -> CheckVerdict {
    let worst = problems.map(|problem| problem.weight).max();
    match worst {
        Some(Weight::DamagedCopy) if no_error_found => CheckVerdict::Suspected,
        Some(Weight::Bookkeeping | Weight::Unknown) if no_error_found => CheckVerdict::Inconclusive,
        _ => CheckVerdict::Corrupted,
    }
}

/// The verdict of these runs, all made in one mode: for files with a checker's output. `gap`: the
/// time between the runs.
pub fn conclude(
    filesystem: Filesystem,
    device: &str,
    mode: Mode,
    runs: &[&Run],
    gap: Duration,
) -> CheckOutcome {
    let good = completed(runs);
    let Some(last) = good.last() else {
        return outcome_text::failed_outcome(runs, mode);
    };
    match mode {
        Mode::Live => live::tally_votes(filesystem, &good, live::NotFrozen::NoReason),
        Mode::Frozen => {
            let shortest = if gap >= MIN_FROZEN_GAP { Duration::ZERO } else { Duration::MAX };
            frozen::compare_runs(filesystem, device, &good, shortest).unwrap_or_else(|| {
                frozen::unconfirmed(
                    filesystem,
                    last,
                    "a second frozen run at least 60 s later can confirm it",
                )
            })
        }
        Mode::Snapshot | Mode::ReadOnly | Mode::Unmounted => {
            let clean = good.iter().filter(|run| run.result == RunResult::Clean).count();
            if clean == 0 || clean == good.len() {
                let replay = good.iter().find(|run| run.pending_replay.is_some());
                return outcome_of_run(filesystem, device, replay.unwrap_or(last));
            }
            let reason = format!(
                "Of {} runs {clean} found nothing, although nothing should have moved between them; check again.",
                good.len()
            );
            CheckOutcome::new(CheckVerdict::Inconclusive, mode, reason)
        }
    }
}
