//! Which check goes on when: one a filesystem, so many over the node, the oldest first, and those
//! that were asked for before scheduled ones.
//!
//! Pure but for the time it is given. Knows nothing of runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::model::check::steps::Outcome;
use crate::model::check::{Mode, State, Target, Verdict, Wanted};
use crate::model::dev::DevNo;
use crate::model::ids::CheckId;
use crate::source::checks::conduct::{Said, Told};

/// A scheduled check looks this often whether the node is quiet, and gives up after so long.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Whether a scheduled check may begin, as the load goes.
#[derive(Clone, Debug)]
pub enum Gate {
    Unasked,
    Asking,
    Quiet { until: Instant },
    Busy { again: Instant, why: String },
}

pub enum Stage {
    Queued {
        gate: Gate,
        busy_since: Option<Instant>,
    },
    Conducted {
        said: watch::Receiver<Said>,
        told: watch::Sender<Told>,
    },
}

/// One check that is not over.
pub struct Going {
    pub wanted: Wanted,
    /// In the owner's list, which is by age.
    pub place: usize,
    pub stage: Stage,
    /// What the owner was last told, and when.
    pub told_owner: Option<Said>,
    pub told_at: Instant,
}

impl Going {
    pub fn new(wanted: Wanted, place: usize, at: Instant) -> Going {
        Going {
            wanted,
            place,
            stage: Stage::Queued {
                gate: Gate::Unasked,
                busy_since: None,
            },
            told_owner: None,
            told_at: at,
        }
    }

    /// Those that were asked for first, each by age.
    fn rank(&self) -> (bool, usize) {
        (self.wanted.scheduled, self.place)
    }

    pub fn is_conducted(&self) -> bool {
        matches!(self.stage, Stage::Conducted { .. })
    }

    fn has_turn(&self) -> bool {
        match &self.stage {
            Stage::Queued { .. } => false,
            Stage::Conducted { said, told } => {
                let wants = said.borrow().turn;
                wants.is_some() && wants == told.borrow().granted
            }
        }
    }

    fn wants_turn(&self) -> bool {
        self.is_conducted() && !self.has_turn() && self.said_turn().is_some()
    }

    fn said_turn(&self) -> Option<u64> {
        match &self.stage {
            Stage::Queued { .. } => None,
            Stage::Conducted { said, .. } => said.borrow().turn,
        }
    }
}

/// By which two checks are of one filesystem: all of its block devices.
pub fn devices(target: &Target) -> BTreeSet<DevNo> {
    target
        .members
        .iter()
        .map(|(_, dev)| *dev)
        .chain([target.dev])
        .collect()
}

fn share(one: &Target, other: &Target) -> bool {
    !devices(one).is_disjoint(&devices(other))
}

/// A checker that cannot be killed, and the filesystem that nobody else checks until it has gone.
pub struct Stuck {
    pub devices: BTreeSet<DevNo>,
    pub waiting_in: Option<String>,
    pub since: jiff::Timestamp,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    Begin(CheckId),
    /// To one that goes on already.
    Grant(CheckId),
    /// Look whether the node is quiet enough for it.
    Look(CheckId),
}

#[derive(Default)]
pub struct Queue {
    pub going: BTreeMap<CheckId, Going>,
    /// Over for us, and not yet out of the owner's list.
    pub over: BTreeSet<CheckId>,
    pub stuck: BTreeMap<u64, Stuck>,
}

impl Queue {
    fn in_order(&self) -> Vec<(&CheckId, &Going)> {
        let mut order: Vec<_> = self.going.iter().collect();
        order.sort_by_key(|(id, going)| (going.rank(), *id));
        order
    }

    /// Another check of the same filesystem that has begun.
    fn busy_with(&self, id: &CheckId, target: &Target) -> Option<&CheckId> {
        self.going
            .iter()
            .find(|(other, going)| {
                *other != id && going.is_conducted() && share(&going.wanted.target, target)
            })
            .map(|(id, _)| id)
    }

    /// The first thing to be done; asked again after each. At most `at_once` have a turn.
    pub fn next(&self, at_once: usize, at: Instant) -> Option<Turn> {
        let mut free = at_once
            .max(1)
            .saturating_sub(self.going.values().filter(|going| going.has_turn()).count());
        for (id, going) in self.in_order() {
            if free == 0 {
                return None;
            }
            let Stage::Queued { gate, .. } = &going.stage else {
                if going.wants_turn() {
                    return Some(Turn::Grant(id.clone()));
                }
                continue;
            };
            if going.wanted.hold.is_some() || self.busy_with(id, &going.wanted.target).is_some() {
                continue;
            }
            match gate {
                _ if !going.wanted.scheduled => return Some(Turn::Begin(id.clone())),
                Gate::Quiet { until } if at < *until => return Some(Turn::Begin(id.clone())),
                Gate::Busy { again, .. } if at < *again => {}
                // Its place is kept for as long as it looks: no other one that came later goes
                // before it.
                Gate::Asking => free -= 1,
                Gate::Unasked | Gate::Quiet { .. } | Gate::Busy { .. } => {
                    return Some(Turn::Look(id.clone()));
                }
            }
        }
        None
    }

    /// When something changes by itself: a busy node is looked at again. What is overdue waits for
    /// something else.
    pub fn due(&self, at: Instant) -> Option<Instant> {
        let again = self.going.values().filter_map(|going| match &going.stage {
            Stage::Queued {
                gate: Gate::Busy { again, .. },
                ..
            } => Some(*again),
            Stage::Queued { .. } | Stage::Conducted { .. } => None,
        });
        again.filter(|again| *again > at).min()
    }

    /// Why a check that has not begun has not.
    pub fn why_queued(&self, id: &CheckId, going: &Going, begun: bool) -> String {
        if !begun {
            return "the checkers, and what a daemon before may have left behind, are looked for first".to_owned();
        }
        if let Some(hold) = &going.wanted.hold {
            return hold.clone();
        }
        if let Some(other) = self.busy_with(id, &going.wanted.target) {
            return format!("the check {other} of this filesystem goes on");
        }
        match &going.stage {
            Stage::Queued {
                gate: Gate::Busy { why, .. },
                ..
            } => why.clone(),
            Stage::Queued {
                gate: Gate::Asking, ..
            } => "it looks how busy the node is".to_owned(),
            Stage::Queued { .. } | Stage::Conducted { .. } => {
                "it waits for its turn: other checks go on".to_owned()
            }
        }
    }

    /// Takes what was found of the load; the error: how it ends, having waited for too long.
    pub fn looked(
        &mut self,
        id: &CheckId,
        why: Option<String>,
        at: Instant,
    ) -> Result<(), Outcome> {
        let Some(Going {
            stage: Stage::Queued { gate, busy_since },
            wanted,
            ..
        }) = self.going.get_mut(id)
        else {
            return Ok(());
        };
        let Some(why) = why else {
            (*gate, *busy_since) = (
                Gate::Quiet {
                    until: at + LOOK_EVERY,
                },
                None,
            );
            return Ok(());
        };
        let since = *busy_since.get_or_insert(at);
        if at.saturating_duration_since(since) >= PATIENCE {
            let reason = format!("skipped: for 24 h it could not begin, at last since {why}");
            return Err(Outcome {
                verdict: Verdict::Inconclusive,
                reason,
                mode: wanted.target.mode,
            });
        }
        *gate = Gate::Busy {
            again: at + LOOK_EVERY,
            why,
        };
        Ok(())
    }

    /// How a check of a filesystem ends on which a checker hangs.
    pub fn hung(&self, target: &Target) -> Option<Outcome> {
        let mine = devices(target);
        let stuck = self
            .stuck
            .values()
            .find(|stuck| !stuck.devices.is_disjoint(&mine))?;
        let place = stuck
            .waiting_in
            .as_ref()
            .map(|place| format!(" ({place})"))
            .unwrap_or_default();
        let reason = format!(
            "a checker has hung on this filesystem since {:.0} and cannot be killed{place}: the device does not answer, and until it does nothing else checks it",
            stuck.since
        );
        Some(failed(reason, target.mode))
    }
}

pub fn failed(reason: String, mode: Mode) -> Outcome {
    Outcome {
        verdict: Verdict::Failed,
        reason,
        mode,
    }
}

/// Whether `now` differs from `before` by nothing but the phase of a run.
pub fn only_phase(before: &Said, now: &Said) -> bool {
    let running = |said: &Said| matches!(said.state, State::Running { .. });
    running(before) && running(now) && before.runs == now.runs && before.signals == now.signals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::check::Filesystem;

    #[test]
    fn a_btrfs_is_all_of_its_members() {
        let mut target = crate::source::checks::tests::fake::target("sda1", Filesystem::Btrfs);
        target.members = vec![("sdb1".to_owned(), DevNo::new(8, 17))];
        let mut other = crate::source::checks::tests::fake::target("sdb1", Filesystem::Btrfs);
        other.dev = DevNo::new(8, 17);
        assert!(share(&target, &other));
        other.dev = DevNo::new(8, 33);
        assert!(!share(&target, &other));
    }
}
