//! The order of evidence: what to do next, and what all of it means. Pure: the runs so far → the
//! next step.
//!
//! The kernel's own word first; then what holds still; a live run can clear a filesystem but never
//! condemn it; only two frozen runs that show the same can.

mod frozen;
mod live;
mod reason;
#[cfg(test)]
pub mod tests;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::check::{Ballot, End, Filesystem, Mode, Run, Signal, SignalKind, Terms, Verdict};

/// A run that could not do its work is made so often, where nothing moves.
const MOST_TRIES: usize = 2;
/// Two frozen runs that are closer could show the same passing state twice.
const SHORTEST_GAP: Duration = Duration::from_secs(60);

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub verdict: Verdict,
    /// One or two sentences that a person understands: why, and what to do.
    pub reason: String,
    /// Of the run that decided.
    pub mode: Mode,
}

/// What is known of the situation beside the runs.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub filesystem: Filesystem,
    /// Unmounted, ReadOnly or Live, as the mount table says.
    pub mode: Mode,
    pub terms: &'a Terms,
    pub signals: &'a [Signal],
    /// It is a logical volume, and snapshots can be made here.
    pub snapshot: bool,
    /// Why it may not be frozen although the terms allow it (it carries the way back; EBUSY; a slow
    /// syncfs); None while nothing speaks against it.
    pub no_freeze: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the checker once, in this mode. For `Frozen`: probe with syncfs, freeze, run within the
    /// budget, thaw. For `Snapshot`: make one, replay its log.
    Run(Mode),
    /// Not before `until`, then ask again.
    Wait {
        until: Timestamp,
    },
    Done(Outcome),
}

fn done(verdict: Verdict, mode: Mode, reason: String) -> Step {
    Step::Done(Outcome {
        verdict,
        reason,
        mode,
    })
}

/// What comes next.
pub fn next(situation: &Situation<'_>, runs: &[&Run], now: Timestamp) -> Step {
    if let Some(outcome) = by_signals(situation) {
        return Step::Done(outcome);
    }
    if let Some(run) = runs.iter().find(|run| run.end == End::Stopped) {
        return done(
            Verdict::Failed,
            run.mode,
            "The check was stopped before it could tell anything; ask for it again.".to_owned(),
        );
    }
    // A device that leaves the checker hanging is not asked again.
    if let Some(run) = runs.iter().find(|run| matches!(run.end, End::Stuck(_))) {
        let reason = format!(
            "{}. See to the device first; the filesystem cannot be checked as long as it hangs.",
            reason::sentence(&run.why)
        );
        return done(Verdict::Failed, run.mode, reason);
    }
    if situation.mode.is_still() {
        return still(situation, runs, situation.mode).unwrap_or_else(Step::Done);
    }
    if situation.terms.snapshot
        && situation.snapshot
        && !runs
            .iter()
            .any(|run| matches!(run.mode, Mode::Live | Mode::Frozen))
    {
        match still(situation, runs, Mode::Snapshot) {
            Ok(step) => return step,
            Err(_) => {
                // No snapshot could be checked: what can be said of the live filesystem is better
                // than nothing.
            }
        }
    }
    frozen::next(situation, runs, now).unwrap_or_else(|| live::next(situation, runs))
}

fn by_signals(situation: &Situation<'_>) -> Option<Outcome> {
    let of = |kind| situation.signals.iter().find(|signal| signal.kind == kind);
    if let Some(signal) = of(SignalKind::Corrupted) {
        let reason = format!(
            "The kernel itself found this filesystem damaged: {}. Back up what can still be read, unmount it and repair it.",
            reason::quoted(&signal.evidence.text)
        );
        return Some(Outcome {
            verdict: Verdict::Corrupted,
            reason,
            mode: situation.mode,
        });
    }
    let signal = of(SignalKind::Fault)?;
    let reason = format!(
        "The kernel reports trouble beneath this filesystem, and checking it now could make that worse: {}. See to the drive first, then unmount the filesystem and check it.",
        reason::quoted(&signal.evidence.text)
    );
    Some(Outcome {
        verdict: Verdict::Inconclusive,
        reason,
        mode: situation.mode,
    })
}

/// Where nothing moves, the first run that did its work counts. Err: none could.
fn still(situation: &Situation<'_>, runs: &[&Run], mode: Mode) -> Result<Step, Outcome> {
    let runs: Vec<&Run> = runs
        .iter()
        .copied()
        .filter(|run| run.mode == mode)
        .collect();
    if let Some(run) = runs.iter().find(|run| run.ballot != Ballot::Failed) {
        return Ok(Step::Done(stands(situation.filesystem, run)));
    }
    let hopeless = runs.iter().any(|run| run.end == End::TimedOut);
    if runs.len() < MOST_TRIES && !hopeless {
        Ok(Step::Run(mode))
    } else {
        Err(reason::failed(&runs, mode))
    }
}

/// A run of what holds still, as it stands.
fn stands(filesystem: Filesystem, run: &Run) -> Outcome {
    let outcome = |verdict, reason| Outcome {
        verdict,
        reason,
        mode: run.mode,
    };
    if let Some(words) = &run.pending_replay {
        return outcome(
            Verdict::Inconclusive,
            reason::pending(filesystem, run, words),
        );
    }
    match run.ballot {
        Ballot::Clean => outcome(
            Verdict::Clean,
            format!(
                "{} ran through and found nothing ({}).",
                filesystem.checker().0,
                run.mode.name()
            ),
        ),
        Ballot::Findings => {
            let reason = format!(
                "{} while nothing could change ({}). Back up what can still be read, then {}.",
                reason::found(filesystem, run),
                run.mode.name(),
                reason::repair(filesystem)
            );
            outcome(Verdict::Corrupted, reason)
        }
        Ballot::Failed => reason::failed(&[run], run.mode),
    }
}

/// What these runs say, all of them made in one mode: for files of a checker's output. `gap`: the
/// runs were so far apart.
pub fn judge(filesystem: Filesystem, mode: Mode, runs: &[&Run], gap: Duration) -> Outcome {
    let good: Vec<&Run> = runs
        .iter()
        .copied()
        .filter(|run| run.ballot != Ballot::Failed)
        .collect();
    let Some(last) = good.last() else {
        return reason::failed(runs, mode);
    };
    match mode {
        Mode::Live => live::votes(filesystem, &good, live::Left::Nothing),
        Mode::Frozen => {
            let shortest = if gap >= SHORTEST_GAP {
                Duration::ZERO
            } else {
                Duration::MAX
            };
            frozen::agree(filesystem, &good, shortest).unwrap_or_else(|| {
                frozen::once(
                    filesystem,
                    last,
                    "a second frozen run at least 60 s later can confirm it",
                )
            })
        }
        Mode::Snapshot | Mode::ReadOnly | Mode::Unmounted => {
            let clean = good
                .iter()
                .filter(|run| run.ballot == Ballot::Clean)
                .count();
            if clean == 0 || clean == good.len() {
                return good
                    .iter()
                    .find(|run| run.pending_replay.is_some())
                    .map_or_else(|| stands(filesystem, last), |run| stands(filesystem, run));
            }
            let reason = format!(
                "Of {} runs {clean} found nothing, although nothing should have moved between them; check again.",
                good.len()
            );
            Outcome {
                verdict: Verdict::Inconclusive,
                reason,
                mode,
            }
        }
    }
}
