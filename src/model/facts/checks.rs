//! Filesystem checks: those that go on and those that are remembered, by id.
//!
//! In: what somebody asks for, what the source reports, what is due. Out: what is wanted of the
//! source. May not enter: what a verdict means for the volume (`assess::checks`), and how a check
//! is conducted (`check::steps`).

mod memory;
mod target;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::model::assess::{Active, signals};
use crate::model::block::LayerState;
use crate::model::check::schedule::due;
use crate::model::check::{
    Ballot, Check, Filesystem, Mode, Origin, Progress, State, Stop, Target, Terms, Verdict, Wanted,
};
use crate::model::dev::DevNo;
use crate::model::facts::{Change, Facts, KnownVolume};
use crate::model::finding::{Severity, Subject};
use crate::model::ids::{CheckId, VolumeId};
use crate::model::kernel::event::Class;
use crate::model::path::HostPath;
use crate::model::policy::Policy;
use crate::model::policy::checks::{CheckPolicy, VolumeTerms};
use crate::model::reason::Reason;

/// Scheduled checks that are begun and not over; others stay due. An admin's are counted apart.
const MOST_SCHEDULED: usize = 4;

/// What somebody wants checked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub what: Named,
    /// Where the node does not know what is on a device.
    pub filesystem: Option<Filesystem>,
    /// None: as the policy says.
    pub runs: Option<u32>,
    pub freeze: bool,
    pub snapshot: bool,
    pub force: bool,
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    Volume(VolumeId),
    /// By kernel name.
    Device(String),
}

/// Why a check is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    NotCheckable(String),
    /// It went between the caller's look and the answer: another look finds it under its new name,
    /// or not at all.
    #[error("{0}: there is no such volume any more")]
    Gone(VolumeId),
    #[error("{what} is being checked already: check {id}")]
    AlreadyRuns { what: String, id: CheckId },
    #[error("{0} checks wait already (checks.max_queued): try again later")]
    TooMany(usize),
    #[error(
        "{what}: {why}; what a check reads makes it worse. With force it is checked all the same"
    )]
    Failing { what: String, why: String },
    #[error(
        "the policy does not allow it for {what}: set {key} to \"on-demand\" in [checks] or in its [[checks.policy]]"
    )]
    NotAllowed { what: String, key: &'static str },
}

/// What must stay as it is while a check goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// All mounts of the filesystem that there were.
    mounts: BTreeSet<HostPath>,
}

impl Facts {
    /// Begins a check, or says why not. It is the source's to run it.
    pub fn start_check(
        &mut self,
        asked: Asked,
        policy: &CheckPolicy,
        active: &dyn Active,
        now: Timestamp,
    ) -> Result<Arc<Check>, Refusal> {
        let target = self.target(&asked.what, asked.filesystem)?;
        let volume = target.volume.as_ref().and_then(|id| self.volumes.get(id));
        let rules = terms_of(policy, volume, &target);
        for (wanted, permission, key) in [
            (asked.freeze, rules.freeze, "freeze"),
            (asked.snapshot, rules.snapshot, "snapshot"),
        ] {
            if wanted && !permission.allows(true, false) {
                return Err(Refusal::NotAllowed {
                    what: target.name,
                    key,
                });
            }
        }
        if !asked.force {
            self.refuse_failing(&target, active)?;
        }
        let terms = Terms {
            runs: asked.runs.unwrap_or(rules.runs),
            // What is forced reads a failing drive: nobody is to wait for that.
            freeze: asked.freeze && !asked.force,
            snapshot: asked.snapshot || rules.snapshot.allows(false, false),
            force: asked.force,
            ..policy.terms(&rules)
        };
        self.begin_check(
            target,
            Origin::Asked(asked.by),
            terms,
            policy.max_queued as usize,
            now,
        )
    }

    /// Checks that are due by themselves now. Nothing is begun on what is failing, or not known
    /// well enough.
    pub fn begin_due_checks(
        &mut self,
        policy: &CheckPolicy,
        active: &dyn Active,
        zone: &TimeZone,
        now: Timestamp,
    ) -> usize {
        let scheduled = policy.interval.is_some()
            || policy
                .policies
                .iter()
                .any(|policy| policy.interval.is_some() || policy.calendar.is_some());
        if !scheduled || !self.settled() {
            return 0;
        }
        let candidates: Vec<(VolumeTerms, VolumeId)> = self
            .volumes
            .values()
            .map(|known| (policy.for_volume(&known.facts), known))
            .filter(|(rules, known)| {
                let Some(schedule) = &rules.schedule else {
                    return false;
                };
                let last = self
                    .checks_of(known)
                    .filter_map(|check| check.ended)
                    .max()
                    .unwrap_or_else(|| self.here_since(known));
                now >= due(schedule, last, known.facts.id.as_str(), policy.jitter, zone)
            })
            .map(|(rules, known)| (rules, known.facts.id.clone()))
            .collect();
        let mut begun = 0;
        for (rules, id) in candidates {
            let Ok(target) = self.target(&Named::Volume(id), None) else {
                continue;
            };
            if self.refuse_failing(&target, active).is_err() {
                continue;
            }
            let (freeze, snapshot) = (
                rules.freeze.allows(false, true),
                rules.snapshot.allows(false, true),
            );
            let terms = Terms {
                freeze,
                snapshot,
                ..policy.terms(&rules)
            };
            match self.begin_check(
                target,
                Origin::Scheduled(rules.policy),
                terms,
                MOST_SCHEDULED,
                now,
            ) {
                Ok(_) => begun += 1,
                Err(Refusal::TooMany(_)) => break,
                // It is being checked already.
                Err(_) => {}
            }
        }
        begun
    }

    /// A volume is seen anew with each boot; its drives are remembered.
    fn here_since(&self, known: &KnownVolume) -> Timestamp {
        let drives = known
            .facts
            .drive_ids
            .iter()
            .filter_map(|id| self.drives.get(id))
            .map(|drive| drive.first_seen);
        drives.min().unwrap_or(known.first_seen)
    }

    fn begin_check(
        &mut self,
        target: Target,
        origin: Origin,
        terms: Terms,
        most: usize,
        now: Timestamp,
    ) -> Result<Arc<Check>, Refusal> {
        let open = || self.checks.values().filter(|check| !check.is_over());
        if let Some(other) = open()
            .find(|check| devices(&check.target).any(|dev| devices(&target).any(|own| own == dev)))
        {
            return Err(Refusal::AlreadyRuns {
                what: target.name,
                id: other.id.clone(),
            });
        }
        let scheduled = matches!(origin, Origin::Scheduled(_));
        let waiting = open()
            .filter(|check| matches!(check.origin, Origin::Scheduled(_)) == scheduled)
            .count();
        if waiting >= most {
            return Err(Refusal::TooMany(waiting));
        }
        let id = CheckId::new(&target.name, now);
        let mounts = target
            .volume
            .as_ref()
            .and_then(|id| self.volumes.get(id))
            .map(mounts)
            .unwrap_or_default();
        let check = Arc::new(Check {
            id: id.clone(),
            mode: target.mode,
            target,
            origin,
            terms,
            asked: now,
            started: None,
            ended: None,
            state: State::Queued {
                why: "it waits for its turn".to_owned(),
            },
            runs: Vec::new(),
            signals: Vec::new(),
            verdict: None,
            reason: String::new(),
            cancelled: false,
        });
        self.check_mounts.insert(id.clone(), Watched { mounts });
        self.remember_check(check.clone());
        Ok(check)
    }

    /// False where there is no such check, or it is over.
    pub fn cancel_check(&mut self, id: &CheckId) -> Option<Arc<Check>> {
        let check = self.checks.get_mut(id).filter(|check| !check.is_over())?;
        Arc::make_mut(check).cancelled = true;
        Some(check.clone())
    }

    pub(super) fn check_progress(&mut self, progress: Progress) -> Change {
        let Some(known) = self
            .checks
            .get(&progress.id)
            .filter(|check| !check.is_over())
        else {
            return Change::Nothing;
        };
        let moved = (known.target.mode != Mode::Live)
            .then(|| self.moved(known))
            .flatten();
        let failed = progress
            .outcome
            .is_some()
            .then(|| self.failed_reads(known, &progress))
            .flatten();
        let Some(check) = self.checks.get_mut(&progress.id) else {
            return Change::Nothing;
        };
        let check = Arc::make_mut(check);
        let begun = !matches!(progress.state, State::Queued { .. });
        if begun && check.started.is_none() {
            check.started = Some(progress.at);
        }
        let before = (check.state.clone(), check.runs.len());
        check.state = progress.state;
        check.runs = progress.runs;
        check.signals = progress.signals;
        if let Some(mode) = check.runs.iter().map(|run| run.mode).max() {
            check.mode = mode;
        }
        if let Some(outcome) = progress.outcome {
            check.state = State::Ended;
            check.ended = Some(progress.at);
            check.mode = outcome.mode;
            (check.verdict, check.reason) = (Some(outcome.verdict), outcome.reason);
            // What was found while nothing was to move counts only if nothing did.
            if let Some(why) = moved.filter(|_| {
                outcome.mode.is_still()
                    && outcome.mode != Mode::Snapshot
                    && outcome.verdict != Verdict::Failed
            }) {
                check.verdict = Some(Verdict::Inconclusive);
                check.reason = format!("{why} while it was checked: check it again");
            }
            if let Some(why) =
                failed.filter(|_| outcome.verdict == Verdict::Corrupted && check.signals.is_empty())
            {
                check.verdict = Some(Verdict::Inconclusive);
                check.reason = why;
            }
            let id = check.id.clone();
            self.check_mounts.remove(&id);
            return Change::Material;
        }
        if before == (check.state.clone(), check.runs.len()) {
            Change::Nothing
        } else {
            Change::Soon
        }
    }

    /// A device beneath failed reads while a checker read it: what it found may be what it could
    /// not read.
    fn failed_reads(&self, check: &Check, progress: &Progress) -> Option<String> {
        let begun = progress
            .runs
            .iter()
            .filter(|run| run.ballot == Ballot::Findings)
            .map(|run| run.started)
            .min()?;
        let target = &check.target;
        let volume = target.volume.clone().map(Subject::Volume);
        let drives = target.drives.iter().cloned().map(Subject::Drive);
        let subjects = drives
            .chain(volume)
            .chain([Subject::Device(target.device.clone())]);
        let memories = subjects.filter_map(|subject| self.errors(&subject));
        let tallies = memories.flat_map(|memory| {
            [Class::Io, Class::Medium, Class::Timeout]
                .into_iter()
                .filter_map(|class| memory.get(class))
        });
        let last = tallies
            .map(|tally| &tally.last)
            .find(|line| line.time >= begun)?;
        let text = crate::model::assess::cut(&last.text, 200);
        Some(format!(
            "the device failed while it was read, so what was found proves nothing: {text}. See to the drive first, then check again"
        ))
    }

    /// Checks that are not over, oldest first.
    pub fn wanted_checks(
        &self,
        policy: &Policy,
        active: &dyn Active,
        now: Timestamp,
    ) -> Vec<Wanted> {
        let mut open: Vec<&Arc<Check>> = self
            .checks
            .values()
            .filter(|check| !check.is_over())
            .collect();
        open.sort_by(|a, b| (a.asked, &a.id).cmp(&(b.asked, &b.id)));
        open.into_iter()
            .map(|check| self.wanted(check, policy, active, now))
            .collect()
    }

    fn wanted(
        &self,
        check: &Check,
        policy: &Policy,
        active: &dyn Active,
        now: Timestamp,
    ) -> Wanted {
        let scheduled = matches!(check.origin, Origin::Scheduled(_));
        let volume = check
            .target
            .volume
            .as_ref()
            .and_then(|id| self.volumes.get(id));
        let mounted = volume.filter(|_| check.target.mode != Mode::Unmounted);
        let mut signals = mounted
            .map(|known| signals(self, known, policy, now))
            .unwrap_or_default();
        if check.terms.force {
            signals.retain(|signal| signal.kind == crate::model::check::SignalKind::Corrupted);
        }
        Wanted {
            id: check.id.clone(),
            target: check.target.clone(),
            terms: check.terms.clone(),
            scheduled,
            signals,
            hold: if scheduled {
                self.rebuilding(check)
            } else {
                None
            },
            stop: self.stop(check, active).map(|why| Stop { why }),
        }
    }

    fn stop(&self, check: &Check, active: &dyn Active) -> Option<String> {
        if check.cancelled {
            return Some("it was cancelled".to_owned());
        }
        // What was well when it was asked for may fail while it waits, and by what it reads.
        let failing = if check.terms.force {
            Ok(())
        } else {
            self.refuse_failing(&check.target, active)
        };
        match failing {
            Err(Refusal::Failing { why, .. }) => Some(why),
            _ => self.moved(check),
        }
    }

    /// How the filesystem is no longer what it was when the check was asked for; nothing is known
    /// of it where the tables cannot be read.
    fn moved(&self, check: &Check) -> Option<String> {
        if self.mounts.value().is_none() || self.inventory.value().is_none() {
            return None;
        }
        let target = &check.target;
        let there = self
            .inventory()
            .and_then(|inventory| inventory.devices.get(&target.device));
        if there.is_none_or(|device| device.dev != target.dev) {
            return Some(format!("{} went away", target.device));
        }
        let on_it = || {
            self.volumes.values().find(|known| {
                known.facts.device.as_ref() == Some(&target.device)
                    && !known.facts.mounts.is_empty()
            })
        };
        let volume = target
            .volume
            .as_ref()
            .map_or_else(on_it, |id| self.volumes.get(id));
        let now = volume.map(|known| (mounts(known), target::mode(known)));
        let (mounted, mode) = now.unwrap_or((BTreeSet::new(), Mode::Unmounted));
        let watched = self.check_mounts.get(&check.id)?;
        if let Some(gone) = watched.mounts.iter().find(|path| !mounted.contains(*path)) {
            return Some(format!("{gone} was unmounted"));
        }
        (mode != target.mode).then(|| match (target.mode, mode) {
            (Mode::Unmounted, _) => "it was mounted".to_owned(),
            (_, Mode::Live) => "it was made writable".to_owned(),
            (_, mode) => format!("it is {} now", mode.name()),
        })
    }

    /// A scheduled check does not make a rebuild slower.
    fn rebuilding(&self, check: &Check) -> Option<String> {
        let devices = check
            .target
            .volume
            .as_ref()
            .and_then(|id| self.volumes.get(id))
            .map(|known| known.facts.devices.clone())?;
        devices
            .iter()
            .find_map(|name| match self.layers.get(name)?.known()? {
                LayerState::Md(md) => match md.sync_action.as_deref() {
                    Some("idle" | "frozen") | None => None,
                    Some(action) => Some(format!("{name} does a {action}")),
                },
                LayerState::DmRaid { sync_action, .. } => match sync_action.as_deref() {
                    Some("idle" | "frozen") | None => None,
                    Some(action) => Some(format!("{name} does a {action}")),
                },
                _ => None,
            })
    }

    fn refuse_failing(&self, target: &Target, active: &dyn Active) -> Result<(), Refusal> {
        let failing = |why: String| {
            Err(Refusal::Failing {
                what: target.name.clone(),
                why,
            })
        };
        for drive in &target.drives {
            let subject = Subject::Drive(drive.clone());
            let bad = active.all().into_iter().find(|(of, reason)| {
                *of == subject && active.severity(of, *reason) == Some(Severity::Bad)
            });
            if let Some((_, reason)) = bad {
                return failing(format!("drive {drive} beneath it has the finding {reason}"));
            }
        }
        let Some(subject) = target.volume.clone().map(Subject::Volume) else {
            return Ok(());
        };
        let stalled = [
            Reason::IoStalled,
            Reason::ProbeTimeout,
            Reason::DeviceMissing,
        ];
        match stalled
            .into_iter()
            .find(|reason| active.severity(&subject, *reason).is_some())
        {
            Some(reason) => failing(format!("it has the finding {reason}")),
            None => Ok(()),
        }
    }
}

fn mounts(known: &KnownVolume) -> BTreeSet<HostPath> {
    known
        .facts
        .mounts
        .iter()
        .map(|mount| mount.path.clone())
        .collect()
}

fn devices(target: &Target) -> impl Iterator<Item = DevNo> {
    std::iter::once(target.dev).chain(target.members.iter().map(|(_, dev)| *dev))
}

fn terms_of(policy: &CheckPolicy, volume: Option<&KnownVolume>, target: &Target) -> VolumeTerms {
    match volume {
        Some(known) => policy.for_volume(&known.facts),
        None => policy.for_names(&[
            HostPath::from(target.name.as_str()),
            HostPath::from(target.device.as_str()),
        ]),
    }
}

#[cfg(test)]
pub(crate) mod tests;
