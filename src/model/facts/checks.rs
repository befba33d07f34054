//! Filesystem checks: those that go on and those that are remembered, by id.
//!
//! In: what somebody asks for, what the source reports, what is due. Out: what is wanted of the
//! source. May not enter: what a verdict means for the volume (`assess::checks`), and how a check
//! is conducted (`check::steps`).

mod retention;
mod target;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::model::assess::{ActiveFindings, signals};
use crate::model::block::LayerState;
use crate::model::check::schedule::next_due;
use crate::model::check::{
    Cancellation, Check, CheckOrigin, CheckProgress, CheckState, CheckTarget, CheckTerms,
    CheckVerdict, DesiredCheck, Filesystem, Mode, RunResult,
};
use crate::model::dev::DevNo;
use crate::model::facts::{Facts, KnownVolume, Urgency};
use crate::model::finding::{Severity, Subject};
use crate::model::ids::{CheckId, VolumeId};
use crate::model::kernel_log::event::Class;
use crate::model::path::HostPath;
use crate::model::policy::Policy;
use crate::model::policy::checks::{CheckPolicy, EffectiveCheckPolicy};
use crate::model::reason::Reason;

pub(crate) use retention::CheckRecords;

/// Scheduled checks that are begun and not over; others stay due. An admin's are counted apart.
const MAX_SCHEDULED: usize = 4;

/// What somebody wants checked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRequest {
    pub target: RequestedTarget,
    /// Where the node does not know what is on a device.
    pub filesystem: Option<Filesystem>,
    /// None: as the policy says.
    pub runs: Option<u32>,
    pub freeze: bool,
    pub snapshot: bool,
    pub force: bool,
    pub requested_by: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedTarget {
    Volume(VolumeId),
    /// By kernel name.
    Device(String),
}

/// Why a check is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartCheckError {
    #[error("{0}")]
    NotCheckable(String),
    /// It went between the caller's look and the answer: another look finds it under its new name,
    /// or not at all.
    #[error("{0}: there is no such volume any more")]
    VolumeGone(VolumeId),
    #[error("{what} is being checked already: check {id}")]
    AlreadyRunning { what: String, id: CheckId },
    #[error("{0} checks wait already (checks.max_queued): try again later")]
    QueueFull(usize),
    #[error(
        "{what}: {why}; what a check reads makes it worse. With force it is checked all the same"
    )]
    TargetFailing { what: String, why: String },
    #[error(
        "the policy does not allow it for {what}: set {key} to \"on-demand\" in [checks] or in its [[checks.policy]]"
    )]
    NotAllowed { what: String, key: &'static str },
}

/// What must stay as it is while a check goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckBaseline {
    /// All mounts of the filesystem that there were.
    mounts: BTreeSet<HostPath>,
}

impl Facts {
    /// Begins a check, or says why not. It is the source's to run it.
    pub(crate) fn start_check(
        &mut self,
        asked: CheckRequest,
        policy: &CheckPolicy,
        active: &dyn ActiveFindings,
        now: Timestamp,
    ) -> Result<Arc<Check>, StartCheckError> {
        let target = self.resolve_target(&asked.target, asked.filesystem)?;
        let volume = target.volume.as_ref().and_then(|id| self.volumes.get(id));
        let rules = effective_policy(policy, volume, &target);
        for (wanted, permission, key) in [
            (asked.freeze, rules.freeze, "freeze"),
            (asked.snapshot, rules.snapshot, "snapshot"),
        ] {
            if wanted && !permission.allows(true, false) {
                return Err(StartCheckError::NotAllowed {
                    what: target.name,
                    key,
                });
            }
        }
        if !asked.force {
            self.refuse_failing(&target, active)?;
        }
        let terms = CheckTerms {
            runs: asked.runs.unwrap_or(rules.runs),
            // What is forced reads a failing drive: nobody is to wait for that.
            freeze: asked.freeze && !asked.force,
            snapshot: asked.snapshot || rules.snapshot.allows(false, false),
            force: asked.force,
            ..policy.terms(&rules)
        };
        self.queue_check(
            target,
            CheckOrigin::Requested(asked.requested_by),
            terms,
            policy.max_queued as usize,
            now,
        )
    }

    /// Checks that are due by themselves now. Nothing is begun on what is failing, or not known
    /// well enough.
    pub(crate) fn queue_due_checks(
        &mut self,
        policy: &CheckPolicy,
        active: &dyn ActiveFindings,
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
        let candidates: Vec<(EffectiveCheckPolicy, VolumeId)> = self
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
                    .unwrap_or_else(|| self.present_since(known));
                now >= next_due(schedule, last, known.facts.id.as_str(), policy.jitter, zone)
            })
            .map(|(rules, known)| (rules, known.facts.id.clone()))
            .collect();
        let mut begun = 0;
        for (rules, id) in candidates {
            let Ok(target) = self.resolve_target(&RequestedTarget::Volume(id), None) else {
                continue;
            };
            if self.refuse_failing(&target, active).is_err() {
                continue;
            }
            let (freeze, snapshot) = (
                rules.freeze.allows(false, true),
                rules.snapshot.allows(false, true),
            );
            let terms = CheckTerms {
                freeze,
                snapshot,
                ..policy.terms(&rules)
            };
            match self.queue_check(
                target,
                CheckOrigin::Scheduled(rules.policy),
                terms,
                MAX_SCHEDULED,
                now,
            ) {
                Ok(_) => begun += 1,
                Err(StartCheckError::QueueFull(_)) => break,
                // It is being checked already.
                Err(_) => {}
            }
        }
        begun
    }

    /// A volume is seen anew with each boot; its drives are remembered.
    fn present_since(&self, known: &KnownVolume) -> Timestamp {
        let drives = known
            .facts
            .drive_ids
            .iter()
            .filter_map(|id| self.drives.get(id))
            .map(|drive| drive.first_seen);
        drives.min().unwrap_or(known.first_seen)
    }

    fn queue_check(
        &mut self,
        target: CheckTarget,
        origin: CheckOrigin,
        terms: CheckTerms,
        most: usize,
        now: Timestamp,
    ) -> Result<Arc<Check>, StartCheckError> {
        let open = || self.checks.by_id.values().filter(|check| !check.is_over());
        if let Some(other) = open()
            .find(|check| devices(&check.target).any(|dev| devices(&target).any(|own| own == dev)))
        {
            return Err(StartCheckError::AlreadyRunning {
                what: target.name,
                id: other.id.clone(),
            });
        }
        let scheduled = matches!(origin, CheckOrigin::Scheduled(_));
        let waiting = open()
            .filter(|check| matches!(check.origin, CheckOrigin::Scheduled(_)) == scheduled)
            .count();
        if waiting >= most {
            return Err(StartCheckError::QueueFull(waiting));
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
            state: CheckState::Queued {
                why: "it waits for its turn".to_owned(),
            },
            runs: Vec::new(),
            signals: Vec::new(),
            verdict: None,
            reason: String::new(),
            cancelled: false,
        });
        self.checks
            .baselines
            .insert(id.clone(), CheckBaseline { mounts });
        self.checks.insert(check.clone());
        Ok(check)
    }

    /// False where there is no such check, or it is over.
    pub(crate) fn cancel_check(&mut self, id: &CheckId) -> Option<Arc<Check>> {
        let check = self
            .checks
            .by_id
            .get_mut(id)
            .filter(|check| !check.is_over())?;
        Arc::make_mut(check).cancelled = true;
        Some(check.clone())
    }

    pub(super) fn apply_check_progress(&mut self, progress: CheckProgress) -> Urgency {
        let Some(known) = self
            .checks
            .by_id
            .get(&progress.id)
            .filter(|check| !check.is_over())
        else {
            return Urgency::Nothing;
        };
        let moved = (known.target.mode != Mode::Live)
            .then(|| self.changed_since_start(known))
            .flatten();
        let failed = progress
            .outcome
            .is_some()
            .then(|| self.read_error_during(known, &progress))
            .flatten();
        let Some(check) = self.checks.by_id.get_mut(&progress.id) else {
            return Urgency::Nothing;
        };
        let check = Arc::make_mut(check);
        let begun = !matches!(progress.state, CheckState::Queued { .. });
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
            check.state = CheckState::Ended;
            check.ended = Some(progress.at);
            check.mode = outcome.mode;
            (check.verdict, check.reason) = (Some(outcome.verdict), outcome.reason);
            // What was found while nothing was to move counts only if nothing did.
            if let Some(why) = moved.filter(|_| {
                outcome.mode.is_quiescent()
                    && outcome.mode != Mode::Snapshot
                    && outcome.verdict != CheckVerdict::Failed
            }) {
                check.verdict = Some(CheckVerdict::Inconclusive);
                check.reason = format!("{why} while it was checked: check it again");
            }
            if let Some(why) = failed
                .filter(|_| outcome.verdict == CheckVerdict::Corrupted && check.signals.is_empty())
            {
                check.verdict = Some(CheckVerdict::Inconclusive);
                check.reason = why;
            }
            let id = check.id.clone();
            self.checks.baselines.remove(&id);
            return Urgency::Immediate;
        }
        if before == (check.state.clone(), check.runs.len()) {
            Urgency::Nothing
        } else {
            Urgency::Coalesce
        }
    }

    /// A device beneath failed reads while a checker read it: what it found may be what it could
    /// not read.
    fn read_error_during(&self, check: &Check, progress: &CheckProgress) -> Option<String> {
        let begun = progress
            .runs
            .iter()
            .filter(|run| run.result == RunResult::Findings)
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
        let text = crate::model::assess::truncate(&last.text, 200);
        Some(format!(
            "the device failed while it was read, so what was found proves nothing: {text}. See to the drive first, then check again"
        ))
    }

    /// Checks that are not over, oldest first.
    pub(crate) fn desired_checks(
        &self,
        policy: &Policy,
        active: &dyn ActiveFindings,
        now: Timestamp,
    ) -> Vec<DesiredCheck> {
        let mut open: Vec<&Arc<Check>> = self
            .checks
            .by_id
            .values()
            .filter(|check| !check.is_over())
            .collect();
        open.sort_by(|a, b| (a.asked, &a.id).cmp(&(b.asked, &b.id)));
        open.into_iter()
            .map(|check| self.desired_check(check, policy, active, now))
            .collect()
    }

    fn desired_check(
        &self,
        check: &Check,
        policy: &Policy,
        active: &dyn ActiveFindings,
        now: Timestamp,
    ) -> DesiredCheck {
        let scheduled = matches!(check.origin, CheckOrigin::Scheduled(_));
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
        DesiredCheck {
            id: check.id.clone(),
            target: check.target.clone(),
            terms: check.terms.clone(),
            scheduled,
            signals,
            blocked_by: if scheduled {
                self.rebuild_in_progress(check)
            } else {
                None
            },
            cancellation: self
                .stop_cause(check, active)
                .map(|why| Cancellation { reason: why }),
        }
    }

    fn stop_cause(&self, check: &Check, active: &dyn ActiveFindings) -> Option<String> {
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
            Err(StartCheckError::TargetFailing { why, .. }) => Some(why),
            _ => self.changed_since_start(check),
        }
    }

    /// How the filesystem is no longer what it was when the check was asked for; nothing is known
    /// of it where the tables cannot be read.
    fn changed_since_start(&self, check: &Check) -> Option<String> {
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
        let watched = self.checks.baselines.get(&check.id)?;
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
    fn rebuild_in_progress(&self, check: &Check) -> Option<String> {
        let devices = check
            .target
            .volume
            .as_ref()
            .and_then(|id| self.volumes.get(id))
            .map(|known| known.facts.devices.clone())?;
        devices
            .iter()
            .find_map(|name| match self.layers.get(name)?.last_known()? {
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

    fn refuse_failing(
        &self,
        target: &CheckTarget,
        active: &dyn ActiveFindings,
    ) -> Result<(), StartCheckError> {
        let failing = |why: String| {
            Err(StartCheckError::TargetFailing {
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
                return failing(format!("drive {drive} below it has the finding {reason}"));
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

fn devices(target: &CheckTarget) -> impl Iterator<Item = DevNo> {
    std::iter::once(target.dev).chain(target.members.iter().map(|(_, dev)| *dev))
}

fn effective_policy(
    policy: &CheckPolicy,
    volume: Option<&KnownVolume>,
    target: &CheckTarget,
) -> EffectiveCheckPolicy {
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
