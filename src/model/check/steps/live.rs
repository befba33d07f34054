//! Runs of a filesystem that is written meanwhile: votes. They can clear it, and at most make it
//! suspected.

use crate::model::check::ballot::filter_f;
use crate::model::check::steps::{Outcome, Situation, Step, reason};
use crate::model::check::{Ballot, End, Filesystem, Flaw, Mode, Run, Verdict};

/// Fewer votes make no suspicion.
pub const FEWEST_VOTES: usize = 3;
/// Runs beyond those wanted that may fail.
const MOST_FAILED: usize = 2;

/// A healthy ext4 that is written shows these in each run: a bitmap is read at another moment than
/// the descriptor that has its checksum.
const MOVING: [&str; 2] = ["block-bitmap-checksum", "inode-bitmap-checksum"];

/// By which e2fsck itself says that counts moved under it.
const MOVED: &str = "WARNING: PROGRAMMING BUG IN E2FSCK!";

fn is_moving(flaw: &Flaw) -> bool {
    MOVING.contains(&flaw.kind.as_str()) || flaw.text.starts_with(MOVED)
}

/// Why there was no frozen run that would have decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was not asked for, or is not allowed.
    NotAllowed,
    Refused(String),
    Nothing,
}

pub fn next(situation: &Situation<'_>, runs: &[&Run]) -> Step {
    let live: Vec<&Run> = runs
        .iter()
        .copied()
        .filter(|run| run.mode == Mode::Live)
        .collect();
    let good: Vec<&Run> = live
        .iter()
        .copied()
        .filter(|run| run.ballot != Ballot::Failed)
        .collect();
    let failed = live.len() - good.len();
    let wanted = usize::try_from(situation.terms.runs)
        .unwrap_or(FEWEST_VOTES)
        .max(FEWEST_VOTES);
    let hopeless = live.iter().any(|run| run.end == End::TimedOut);
    let left = left(situation, runs, &live);
    if good.is_empty() && (failed >= MOST_FAILED || hopeless) {
        return Step::Done(reason::failed(&live, Mode::Live));
    }
    if good.iter().any(|run| run.ballot == Ballot::Clean) {
        return Step::Done(votes(situation.filesystem, &good, left));
    }
    // More of them would say no more on XFS.
    let enough = if situation.filesystem == Filesystem::Xfs {
        1
    } else {
        wanted
    };
    if good.len() >= enough || failed > MOST_FAILED || hopeless && !good.is_empty() {
        return Step::Done(votes(situation.filesystem, &good, left));
    }
    Step::Run(Mode::Live)
}

fn left(situation: &Situation<'_>, runs: &[&Run], live: &[&Run]) -> Left {
    if !situation.terms.freeze {
        return Left::NotAllowed;
    }
    if let Some(why) = situation.no_freeze {
        return Left::Refused(why.to_owned());
    }
    if let Some(run) = runs
        .iter()
        .rev()
        .find(|run| run.mode == Mode::Frozen && run.ballot == Ballot::Failed)
    {
        return Left::Refused(format!("frozen runs could not do their work: {}", run.why));
    }
    let budget = situation.terms.budget;
    match live.iter().map(|run| run.active).min() {
        Some(fastest) if fastest > budget => Left::Refused(format!(
            "a run takes {:.1} s, and writers may be held for {:.1} s",
            fastest.as_secs_f64(),
            budget.as_secs_f64()
        )),
        _ => Left::Nothing,
    }
}

/// What the runs that did their work say together; there is at least one.
pub fn votes(filesystem: Filesystem, good: &[&Run], left: Left) -> Outcome {
    let outcome = |verdict, reason| Outcome {
        verdict,
        reason,
        mode: Mode::Live,
    };
    let checker = filesystem.checker().0;
    if good.iter().any(|run| run.ballot == Ballot::Clean) {
        return outcome(
            Verdict::Clean,
            format!(
                "{checker} ran through the mounted filesystem and found nothing (run {} of {}).",
                good.len(),
                good.len()
            ),
        );
    }
    let todo = match &left {
        Left::NotAllowed => {
            "To know, allow a frozen run (--freeze, if the policy permits it), or unmount the filesystem and check it".to_owned()
        }
        Left::Refused(why) => format!("It was not frozen: {}. To know, unmount it and check it", reason::sentence(why)),
        Left::Nothing => "To know, check it frozen or unmounted".to_owned(),
    };
    let Some(last) = good.last() else {
        return reason::failed(good, Mode::Live);
    };
    let shared: Vec<&Flaw> = shared(good)
        .into_iter()
        .filter(|flaw| !is_moving(flaw))
        .collect();
    let votes = good.len();
    if filesystem != Filesystem::Xfs && votes >= FEWEST_VOTES && !shared.is_empty() {
        let shared: Vec<Flaw> = shared.into_iter().cloned().collect();
        let reason = format!(
            "All of {votes} live runs of {checker} show {}. {todo}.",
            reason::counted(&shared, 0)
        );
        return outcome(Verdict::Suspected, reason);
    }
    let said = if last.flaws.is_empty() && last.pending_replay.is_some() {
        format!(
            "{checker} found only that the log is dirty, as it is while a filesystem is mounted"
        )
    } else if filesystem == Filesystem::Xfs {
        format!(
            "{}, which proves nothing while an XFS is mounted and written",
            reason::found(filesystem, last)
        )
    } else if votes < FEWEST_VOTES {
        format!(
            "{}, and {votes} live runs are too few for a suspicion",
            reason::found(filesystem, last)
        )
    } else {
        format!(
            "{votes} live runs of {checker} found something, but nothing lasting that all of them share: so does a healthy filesystem under load"
        )
    };
    outcome(Verdict::Inconclusive, format!("{said}. {todo}."))
}

/// Flaws that all of them have, without those that come and go on healthy filesystems.
pub fn shared<'a>(runs: &[&'a Run]) -> Vec<&'a Flaw> {
    let Some((first, others)) = runs.split_first() else {
        return Vec::new();
    };
    let real = |run: &'a Run| filter_f(&run.flaws);
    real(first)
        .filter(|flaw| {
            others
                .iter()
                .all(|run| real(run).any(|other| other.is_same(flaw)))
        })
        .collect()
}
