//! Runs with all writers held: two of them, some time apart, that show the same flaw prove it.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::check::parse::ABORTED;
use crate::model::check::steps::{Outcome, SHORTEST_GAP, Situation, Step, live, reason};
use crate::model::check::{Ballot, End, Filesystem, Flaw, Mode, Run, Verdict};

/// Frozen runs that may fail; each of them held the writers.
const MOST_FAILED: usize = 3;

/// None: the live runs have the word.
pub fn next(situation: &Situation<'_>, runs: &[&Run], now: Timestamp) -> Option<Step> {
    let frozen: Vec<&Run> = runs
        .iter()
        .copied()
        .filter(|run| run.mode == Mode::Frozen)
        .collect();
    let good: Vec<&Run> = frozen
        .iter()
        .copied()
        .filter(|run| run.ballot != Ballot::Failed)
        .collect();
    let gap = situation.terms.gap.max(SHORTEST_GAP);
    if let Some(outcome) = agree(situation.filesystem, &good, gap) {
        return Some(Step::Done(outcome));
    }
    let failed = frozen.len() - good.len();
    let refused = refusal(situation, &frozen, failed);
    let Some(first) = good.first() else {
        let tried = refused.is_none() && situation.terms.freeze && is_fit(situation, runs);
        return tried.then(|| not_before(&frozen, gap, now));
    };
    if let Some(why) = refused {
        let todo = format!(
            "it could not be confirmed by a second frozen run ({}): unmount the filesystem and check it",
            reason::sentence(&why)
        );
        return Some(Step::Done(once(situation.filesystem, first, &todo)));
    }
    Some(not_before(&frozen, gap, now))
}

/// Also after one that failed: it may have held the writers for as long as they may be.
fn not_before(frozen: &[&Run], gap: Duration, now: Timestamp) -> Step {
    match frozen.iter().map(|run| later(run.started, gap)).max() {
        Some(until) if now < until => Step::Wait { until },
        Some(_) | None => Step::Run(Mode::Frozen),
    }
}

fn refusal(situation: &Situation<'_>, frozen: &[&Run], failed: usize) -> Option<String> {
    let hopeless = frozen.iter().find(|run| run.end == End::TimedOut);
    match situation.no_freeze {
        Some(why) => Some(why.to_owned()),
        None if failed >= MOST_FAILED || hopeless.is_some() => {
            frozen.last().map(|run| run.why.clone())
        }
        None => None,
    }
}

/// A live run has ended in the time for which writers may be held, and did not clear the
/// filesystem.
fn is_fit(situation: &Situation<'_>, runs: &[&Run]) -> bool {
    let live = || runs.iter().filter(|run| run.mode == Mode::Live);
    // One that gave up at once says nothing of how long the work takes, and of a device with errors
    // only that it has some.
    let worked =
        |run: &Run| run.ballot != Ballot::Failed || has_stumbled(situation.filesystem, run);
    let fits = live().any(|run| worked(run) && run.active <= situation.terms.budget);
    fits && !live().any(|run| run.ballot == Ballot::Clean)
}

/// A checker stumbles over metadata that moves beneath it, which it does not while writers are
/// held: xfs_repair crashes, e2fsck gives up in the midst of what it finds. SIGKILL is no
/// stumbling: it came from outside.
fn has_stumbled(filesystem: Filesystem, run: &Run) -> bool {
    const SIGKILL: i32 = 9;
    match (filesystem, &run.end) {
        (Filesystem::Xfs, End::Signal(number)) => *number != SIGKILL && run.failure.is_none(),
        // Findings, and an operational error: its own words say that it gave up, and nothing else
        // that anything else went wrong.
        (Filesystem::Ext4, End::Exited(12)) => {
            run.failure.as_deref() == Some(ABORTED) && !run.flaws.is_empty()
        }
        _ => false,
    }
}

fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// What the runs that did their work say; None: one more is wanted.
pub fn agree(filesystem: Filesystem, good: &[&Run], gap: Duration) -> Option<Outcome> {
    let outcome = |verdict, reason| {
        Some(Outcome {
            verdict,
            reason,
            mode: Mode::Frozen,
        })
    };
    let checker = filesystem.checker().0;
    let clean = good
        .iter()
        .filter(|run| run.ballot == Ballot::Clean)
        .count();
    let (first, others) = good.split_first()?;
    if clean == good.len() {
        let dropped = first.flaws.len() as u64 + first.more_flaws;
        let but = if dropped > 0 {
            format!(" beyond {dropped} things that healthy mounted filesystems show")
        } else {
            String::new()
        };
        return outcome(
            Verdict::Clean,
            format!("With all writers held {checker} ran through and found nothing{but}."),
        );
    }
    if clean > 0 {
        let reason = format!(
            "Of {} frozen runs {clean} found nothing and the others did. Check again, or unmount the filesystem and check it.",
            good.len()
        );
        return outcome(Verdict::Inconclusive, reason);
    }
    if others.is_empty() {
        return None;
    }
    let pairs = good
        .iter()
        .enumerate()
        .flat_map(|(at, one)| good.iter().skip(at + 1).map(move |other| (*one, *other)));
    let apart = |(one, other): &(&Run, &Run)| {
        gap != Duration::MAX && later(one.started, gap) <= other.started
    };
    let proof = pairs
        .filter(apart)
        .map(|(one, other)| live::shared(&[one, other]))
        .find(|shared| !shared.is_empty());
    let Some(proof) = proof else {
        let why = if gap == Duration::MAX {
            "the frozen runs were less than 60 s apart"
        } else {
            "no flaw was in two frozen runs"
        };
        let last = good.last().unwrap_or(first);
        return Some(once(
            filesystem,
            last,
            &format!("{why}: unmount the filesystem and check it"),
        ));
    };
    let proof: Vec<Flaw> = proof.into_iter().cloned().collect();
    let reason = format!(
        "Two frozen runs of {checker} show the same {}. Back up what can still be read, then {}.",
        reason::counted(&proof, 0),
        reason::repair(filesystem)
    );
    outcome(Verdict::Corrupted, reason)
}

/// Something left once is not proof.
pub fn once(filesystem: Filesystem, run: &Run, todo: &str) -> Outcome {
    let reason = format!(
        "With all writers held {}. This is no proof yet; {todo}.",
        reason::found(filesystem, run)
    );
    Outcome {
        verdict: Verdict::Inconclusive,
        reason,
        mode: Mode::Frozen,
    }
}
