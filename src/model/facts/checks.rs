//! Filesystem checks, running and stored, by id.
//!
//! In: requests, the source's reports, schedules. Out: the checks that the source should run.
//! `assess::checks` decides what a verdict means for the volume, and `check::decision` how a check
//! is run.

mod progress;
mod retention;
mod scrubs;
mod target;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::assess::{ActiveFindings, signals};
use crate::facts::{Facts, KnownVolume};
use crate::policy::Policy;
use diskvitals_finding::Subject;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::{CheckId, VolumeId};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_fscheck::policy::{CheckPolicy, EffectiveCheckPolicy};
use diskvitals_fscheck::schedule::next_due;
use diskvitals_fscheck::{
    Cancellation, Check, CheckOrigin, CheckState, CheckTarget, CheckTerms, DesiredCheck,
    Filesystem, Mode, SignalKind,
};

pub use retention::CheckRecords;

/// Maximum number of active scheduled checks; others stay due. Checks of admins are separate.
const MAX_SCHEDULED: usize = 4;

/// A request to check a filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRequest {
    pub target: RequestedTarget,
    /// Given if the node does not have the type of the filesystem.
    pub filesystem: Option<Filesystem>,
    /// None: as the policy sets.
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

/// Why a check is not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartCheckError {
    #[error("{0}")]
    NotCheckable(String),
    /// The volume was removed between the caller's lookup and this call: another lookup finds it
    /// under its new name, or not at all.
    #[error("{0}: the volume no longer exists")]
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

/// The state that must not change during a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckBaseline {
    /// All mounts of the filesystem at the start.
    mounts: BTreeSet<HostPath>,
}

impl Facts {
    /// Queues a check, which the source runs, or returns the reason for a refusal.
    pub fn start_check(
        &mut self,
        asked: CheckRequest,
        policy: &CheckPolicy,
        active: &ActiveFindings,
        now: Timestamp,
    ) -> Result<Arc<Check>, StartCheckError> {
        let target = self.resolve_target(&asked.target, asked.filesystem)?;
        let volume = target.volume.as_ref().and_then(|id| self.volumes.get(id));
        let rules = effective_policy(policy, volume, &target);
        for (wanted, permission, key) in
            [(asked.freeze, rules.freeze, "freeze"), (asked.snapshot, rules.snapshot, "snapshot")]
        {
            if wanted && !permission.allows(true, false) {
                return Err(StartCheckError::NotAllowed { what: target.name, key });
            }
        }
        if !asked.force {
            self.refuse_failing(&target, active)?;
        }
        let terms = CheckTerms {
            runs: asked.runs.unwrap_or(rules.runs),
            // A forced check reads a failing drive: no writer may wait for that.
            freeze: asked.freeze && !asked.force,
            snapshot: asked.snapshot || rules.snapshot.allows(false, false),
            force: asked.force,
            ..policy.terms(&rules)
        };
        let origin = CheckOrigin::Requested(asked.requested_by);
        self.queue_check(target, origin, terms, policy.max_queued as usize, now)
    }

    /// Queues the checks that are due. No check is queued for a volume that is failing, or whose
    /// state is unknown.
    pub fn queue_due_checks(
        &mut self,
        policy: &CheckPolicy,
        active: &ActiveFindings,
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
            .map(|known| (policy.for_names(&known.facts.names()), known))
            .filter(|(rules, known)| {
                let Some(schedule) = &rules.schedule else {
                    return false;
                };
                let last = self
                    .checks_of(known)
                    .filter_map(|check| check.ended)
                    .max()
                    .unwrap_or_else(|| self.present_since(known));
                // A calendar is about the wall clock.
                let (now, last) = (self.wall_time(now), self.wall_time(last));
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
            let terms = CheckTerms {
                freeze: rules.freeze.allows(false, true),
                snapshot: rules.snapshot.allows(false, true),
                ..policy.terms(&rules)
            };
            let origin = CheckOrigin::Scheduled(rules.policy);
            match self.queue_check(target, origin, terms, MAX_SCHEDULED, now) {
                Ok(_) => begun += 1,
                Err(StartCheckError::QueueFull(_)) => break,
                // The volume is already being checked.
                Err(_) => {}
            }
        }
        begun
    }

    /// `first_seen` of a volume is reset at each boot; its drives are kept.
    fn present_since(&self, known: &KnownVolume) -> Timestamp {
        let drives = known.facts.drive_ids.iter().filter_map(|id| self.drives.get(id));
        drives.map(|drive| drive.first_seen).min().unwrap_or(known.first_seen)
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
        let volume = target.volume.as_ref().and_then(|id| self.volumes.get(id));
        let mounts = volume.map(mounts).unwrap_or_default();
        let check = Arc::new(Check {
            id: id.clone(),
            mode: target.mode,
            target,
            origin,
            terms,
            asked: now,
            started: None,
            ended: None,
            state: CheckState::Queued { why: "it waits for its turn".to_owned() },
            runs: Vec::new(),
            signals: Vec::new(),
            verdict: None,
            reason: String::new(),
            cancelled: false,
            is_scrubbed: false,
        });
        self.checks.baselines.insert(id.clone(), CheckBaseline { mounts });
        self.checks.insert(check.clone());
        Ok(check)
    }

    /// None if there is no active check with this id.
    pub fn cancel_check(&mut self, id: &CheckId) -> Option<Arc<Check>> {
        let check = self.checks.by_id.get_mut(id).filter(|check| !check.is_over())?;
        Arc::make_mut(check).cancelled = true;
        Some(check.clone())
    }

    /// Checks that have not ended, oldest first.
    pub fn desired_checks(
        &self,
        policy: &Policy,
        active: &ActiveFindings,
        now: Timestamp,
    ) -> Vec<DesiredCheck> {
        let mut open: Vec<&Arc<Check>> =
            self.checks.by_id.values().filter(|check| !check.is_over()).collect();
        open.sort_by(|a, b| (a.asked, &a.id).cmp(&(b.asked, &b.id)));
        open.into_iter().map(|check| self.desired_check(check, policy, active, now)).collect()
    }

    fn desired_check(
        &self,
        check: &Check,
        policy: &Policy,
        active: &ActiveFindings,
        now: Timestamp,
    ) -> DesiredCheck {
        let scheduled = matches!(check.origin, CheckOrigin::Scheduled(_));
        let volume = check.target.volume.as_ref().and_then(|id| self.volumes.get(id));
        let mounted = volume.filter(|_| check.target.mode != Mode::Unmounted);
        let signals = mounted.map(|known| signals(self, known, policy, now));
        let mut signals = signals.unwrap_or_default();
        if check.terms.force {
            signals.retain(|signal| signal.kind == SignalKind::Corrupted);
        }
        DesiredCheck {
            id: check.id.clone(),
            target: check.target.clone(),
            terms: check.terms.clone(),
            scheduled,
            signals,
            blocked_by: self.rebuild_in_progress(check).filter(|_| scheduled),
            cancellation: self.stop_cause(check, active).map(|reason| Cancellation { reason }),
        }
    }

    fn stop_cause(&self, check: &Check, active: &ActiveFindings) -> Option<String> {
        if check.cancelled {
            return Some("it was cancelled".to_owned());
        }
        // A target that was healthy at the request may fail while the check waits, or by being
        // read.
        match self.refuse_failing(&check.target, active) {
            Err(StartCheckError::TargetFailing { why, .. }) if !check.terms.force => Some(why),
            _ => self.changed_since_start(check),
        }
    }

    /// Whether a scheduled check must wait for a rebuild, which it would slow down.
    fn rebuild_in_progress(&self, check: &Check) -> Option<String> {
        let volume = self.volumes.get(check.target.volume.as_ref()?)?;
        volume.facts.devices.iter().find_map(|name| {
            let action = self.layer_state(name)?.stack()?.action()?;
            (!matches!(action, "idle" | "frozen")).then(|| format!("{name} does a {action}"))
        })
    }

    fn refuse_failing(
        &self,
        target: &CheckTarget,
        active: &ActiveFindings,
    ) -> Result<(), StartCheckError> {
        let failing =
            |why: String| Err(StartCheckError::TargetFailing { what: target.name.clone(), why });
        for ((subject, reason), finding) in active {
            if let Subject::Drive(drive) = subject
                && target.drives.contains(drive)
                && finding.level.0 == Severity::Bad
            {
                return failing(format!("drive {drive} below it has the finding {reason}"));
            }
        }
        let Some(subject) = target.volume.clone().map(Subject::Volume) else {
            return Ok(());
        };
        let mut stalled = Reason::ALL.iter().rev().filter(|reason| reason.disconnects());
        match stalled.find(|reason| active.contains_key(&(subject.clone(), **reason))) {
            Some(reason) => failing(format!("it has the finding {reason}")),
            None => Ok(()),
        }
    }
}

fn mounts(known: &KnownVolume) -> BTreeSet<HostPath> {
    known.facts.mounts.iter().map(|mount| mount.path.clone()).collect()
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
        Some(known) => policy.for_names(&known.facts.names()),
        None => policy
            .for_names(&[&target.name, &target.device].map(|name| HostPath::from(name.as_str()))),
    }
}

#[cfg(test)]
pub mod tests;
