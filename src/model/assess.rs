//! Judgement: which findings the facts raise, clear, or leave undecided now.
//!
//! In: facts, active findings (for hysteresis), the policy, the time. Out: judgements, at most one
//! per subject and reason. Each rule is one function; its doc comment is the specification. Clocks,
//! I/O and logging do not belong here.
//!
//! A rule returns a verdict, or nothing if its source does not apply or has not reported yet: then
//! an active finding stays. `Clear` and `Unknown` are passed on for active findings only.

mod check_signals;
mod checks;
mod counters;
mod drive;
mod drive_failure;
mod duplicate;
mod errors;
mod filesystem;
mod flash;
mod health;
pub(crate) mod input;
mod integrity;
mod layers;
mod link;
mod member_fitness;
mod mounted;
mod pool;
mod pool_space;
mod raid_member;
mod raid_volume;
mod read_only;
mod reason_rules;
mod recorded;
mod redundancy;
pub(crate) mod risk;
pub mod scrub;
mod smart;
mod sources;
mod space;
mod stalls;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::assess::input::{Context, DriveInput, VolumeInput};
use crate::assess::pool_space::PoolRooms;
use crate::assess::risk::Outlook;
use crate::block::LayerState;
use crate::facts::{Facts, KnownVolume};
use crate::policy::Policy;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::{LayerKind, Reason};
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Evidence, Judgement, Subject, Verdict, WitnessKind};
use diskvitals_kernel_log::event::Class;
use diskvitals_text::echo::truncate;

pub use check_signals::signals;
pub(crate) use drive::shares_controller;
pub(crate) use health::health_unknown;
pub use health::{health, is_first_look_outstanding};
pub use sources::shown as shown_source;
#[cfg(test)]
pub(crate) use text::BAD;
pub use text::percent;
pub(crate) use text::{Level, MAX_MESSAGE, format_span, join_limited};

/// What rules know of the active findings.
pub(crate) type ActiveFindings = BTreeMap<(Subject, Reason), ActiveFinding>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveFinding {
    pub(crate) level: Level,
    pub(crate) since: Timestamp,
}

/// Judges everything, in this order: drives, volumes, devices, removed subjects, sources; each by id.
pub fn assess(
    facts: &Facts,
    active: &ActiveFindings,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Judgement> {
    let context = Context { facts, policy, now };
    let mut levels: BTreeMap<&Subject, Vec<(Reason, Level)>> = BTreeMap::new();
    for ((subject, reason), finding) in active {
        levels.entry(subject).or_default().push((*reason, finding.level));
    }
    let mut evaluator = Evaluator { context, facts, active, levels, judgements: Vec::new() };
    evaluator.evaluate_drives();
    let failing = FailingDrives {
        endangering: evaluator.failing_drives(endangers_data),
        troubled: evaluator.failing_drives(|reason, severity| {
            endangers_data(reason, severity) || reason.fails_io()
        }),
        all: evaluator.failing_drives(|_, _| true),
    };
    let pools = pool_space::of_pools(facts);
    for (id, known) in &facts.volumes {
        evaluator.evaluate_volume(&Subject::Volume(id.clone()), known, &failing, &pools);
    }
    evaluator.evaluate_devices(&failing);
    evaluator.evaluate_unclaimed_devices();
    evaluator.evaluate_sources();
    evaluator.judgements
}

/// Merges the verdicts of two sources on one subject and reason. The more severe one counts, and
/// the message and evidence of both are kept. The finding clears when neither source raises it. A
/// source that fails keeps a finding from being cleared.
fn merge(one: Option<Verdict>, other: Option<Verdict>) -> Option<Verdict> {
    match (one, other) {
        (None, verdict) | (verdict, None) => verdict,
        (Some(Verdict::Raised(a)), Some(Verdict::Raised(b))) => {
            let b_is_worse = (b.severity, b.status) > (a.severity, a.status);
            let (mut strong, weak) = if b_is_worse { (b, a) } else { (a, b) };
            strong.status = strong.status.max(weak.status);
            let message = format!("{}; {}", strong.message, weak.message);
            strong.message = truncate(&message, MAX_MESSAGE);
            strong.evidence.extend(weak.evidence);
            if strong.clears_when != weak.clears_when {
                strong.clears_when = format!("{}; and {}", strong.clears_when, weak.clears_when);
            }
            strong.since = strong.since.into_iter().chain(weak.since).min();
            Some(Verdict::Raised(strong))
        }
        (Some(raised @ Verdict::Raised(_)), Some(_))
        | (Some(_), Some(raised @ Verdict::Raised(_))) => Some(raised),
        (Some(unknown @ Verdict::Unknown { .. }), Some(_))
        | (Some(_), Some(unknown @ Verdict::Unknown { .. })) => Some(unknown),
        (Some(Verdict::Clear), Some(Verdict::Clear)) => Some(Verdict::Clear),
    }
}

/// The failure of a drive, as far as its volumes inherit it.
#[derive(Clone, Debug)]
pub(crate) struct DriveFailure {
    reasons: Vec<Reason>,
    level: Level,
    message: String,
    /// It endangers data, and is new or has grown (`risk::is_recent`).
    endangers_recently: bool,
    /// The drive is none of its arrays' members any more, or soon will be none.
    has_left: bool,
}

impl DriveFailure {
    /// Its reasons, if it is BAD, or endangers data and is new or has grown.
    pub(crate) fn alarming(&self) -> Option<String> {
        let is_alarming = self.level.0 == Severity::Bad || self.endangers_recently;
        is_alarming.then(|| text::join_limited(&self.reasons))
    }
}

/// Drives with findings, of which volumes are judged.
struct FailingDrives {
    /// With findings that endanger data now. Wear, heat and other hints for planning do not: volumes
    /// do not follow them.
    endangering: BTreeMap<DriveId, DriveFailure>,
    /// The same, and with findings that make reads and writes wait: they explain what a volume has.
    troubled: BTreeMap<DriveId, DriveFailure>,
    /// With any finding that is not only information.
    all: BTreeMap<DriveId, DriveFailure>,
}

fn endangers_data(reason: Reason, severity: Severity) -> bool {
    reason.endangers_data_at().contains(&severity)
}

struct Evaluator<'a> {
    context: Context<'a>,
    facts: &'a Facts,
    active: &'a ActiveFindings,
    /// `active` by subject, since a dozen rules look up each of hundreds of volumes.
    levels: BTreeMap<&'a Subject, Vec<(Reason, Level)>>,
    judgements: Vec<Judgement>,
}

impl Evaluator<'_> {
    fn level(&self, subject: &Subject, reason: Reason) -> Option<Level> {
        let of_subject = self.levels.get(subject)?;
        of_subject.iter().find_map(|(other, level)| (*other == reason).then_some(*level))
    }

    fn severity(&self, subject: &Subject, reason: Reason) -> Option<Severity> {
        self.level(subject, reason).map(|(severity, _)| severity)
    }

    fn push(&mut self, subject: &Subject, reason: Reason, verdict: Option<Verdict>) {
        let Some(verdict) = verdict else { return };
        // The table of reasons publishes the levels; every test that judges checks it here.
        if let Verdict::Raised(raised) = &verdict {
            debug_assert!(
                reason.levels().contains(&raised.severity),
                "{reason} is {:?}, which its row does not list",
                raised.severity
            );
        }
        let verdict = match verdict {
            Verdict::Raised(mut raised) => {
                for evidence in &mut raised.evidence {
                    evidence.present = self.is_present(evidence);
                }
                Verdict::Raised(raised)
            }
            other => other,
        };
        if matches!(verdict, Verdict::Raised(_)) || self.severity(subject, reason).is_some() {
            let subject = subject.clone();
            self.judgements.push(Judgement { subject, reason, verdict });
        }
    }

    /// Whether evidence of a finding that holds now still holds itself. A record counts if it is of
    /// this boot (`Rebase` leaves none of an earlier one after its start), a state if its source
    /// could be read at the last attempt. Rules use states of layers and probes only while these are
    /// the newest.
    fn is_present(&self, evidence: &Evidence) -> bool {
        let facts = self.facts;
        match evidence.witness {
            WitnessKind::Inventory => facts.inventory.value().is_some(),
            WitnessKind::MountTable => facts.mounts.value().is_some(),
            WitnessKind::Probe | WitnessKind::Layer => true,
            WitnessKind::Other => false,
            record => {
                record.is_record() && facts.booted.is_some_and(|booted| evidence.time > booted)
            }
        }
    }

    fn evaluate_drives(&mut self) {
        for (id, known) in &self.facts.drives {
            let subject = Subject::Drive(id.clone());
            let input = DriveInput::new(self.context, known);
            let has_moved = known.has_just_moved(self.context.now);
            for reason in Reason::ALL {
                let verdict = match input.verdict(*reason) {
                    // It may still prove to be another drive with the same identity.
                    Some(Verdict::Clear) if has_moved && !reason.is_about_presence() => {
                        text::unknown("the drive has just appeared in another place")
                    }
                    verdict => verdict,
                };
                self.push(&subject, *reason, verdict);
            }
        }
    }

    /// Drives with relevant findings that are raised now, or active and not known to be cleared.
    fn failing_drives(
        &self,
        is_relevant: impl Fn(Reason, Severity) -> bool,
    ) -> BTreeMap<DriveId, DriveFailure> {
        let mut failing: BTreeMap<DriveId, DriveFailure> = BTreeMap::new();
        // A verdict of this round counts before older findings: a drive that was missing and is
        // replaced is only INFO.
        let mut decided = BTreeSet::new();
        let mut add = |id: &DriveId, reason: Reason, active: ActiveFinding, message: &str| {
            if active.level.0 > Severity::Info && is_relevant(reason, active.level.0) {
                risk::add(&mut failing, self.context, id, reason, active, message);
            }
        };
        for judgement in &self.judgements {
            let Subject::Drive(id) = &judgement.subject else {
                continue;
            };
            match &judgement.verdict {
                Verdict::Raised(raised) => {
                    let known = self.active.get(&(judgement.subject.clone(), judgement.reason));
                    let since = known.map(|known| known.since).or(raised.since);
                    let since = since.unwrap_or(self.context.now);
                    let level = (raised.severity, raised.status);
                    add(id, judgement.reason, ActiveFinding { level, since }, &raised.message);
                }
                Verdict::Clear => {}
                Verdict::Unknown { .. } => continue,
            }
            decided.insert((id, judgement.reason));
        }
        for ((subject, reason), finding) in self.active {
            if let Subject::Drive(id) = subject
                && !decided.contains(&(id, *reason))
            {
                add(id, *reason, *finding, reason.meaning());
            }
        }
        failing
    }

    fn evaluate_volume(
        &mut self,
        subject: &Subject,
        known: &KnownVolume,
        failing: &FailingDrives,
        pools: &PoolRooms,
    ) {
        let verdict_of = |reason: Reason, failing_drives, has_last_copy| {
            let level = self.level(subject, reason);
            let active = level.map(|(severity, _)| severity);
            let input = VolumeInput {
                context: self.context,
                known,
                active,
                has_last_copy,
                failing_drives,
                drive_findings: &failing.all,
                pools,
            };
            (reason, input.verdict(reason), level)
        };
        let all = Reason::ALL.iter().map(|reason| match reason {
            // Decided when the others are known.
            reason if reason.is_of_drives() => (*reason, None, None),
            reason => verdict_of(*reason, &failing.endangering, false),
        });
        let mut verdicts: drive_failure::Verdicts = all.collect();
        let endangering = match drive_failure::is_in_trouble(&verdicts) {
            true => &failing.troubled,
            false => &failing.endangering,
        };
        let endangering = drive_failure::without_former_members(endangering, known);
        let endangering = endangering.as_ref();
        let has_last_copy = verdicts.iter().any(|(reason, verdict, _)| {
            *reason == Reason::RedundancyLost && matches!(verdict, Some(Verdict::Raised(_)))
        });
        for entry in &mut verdicts {
            if entry.0.is_of_drives() {
                *entry = verdict_of(entry.0, endangering, has_last_copy);
            }
        }
        drive_failure::mark(&mut verdicts, known, endangering);
        pool_space::answer_for_dataset(&mut verdicts, &known.facts);
        for (reason, verdict, _) in verdicts {
            self.push(subject, reason, verdict);
        }
    }

    /// Layers that carry no volume are reported under their own name. A layer whose state query
    /// hangs is always reported under its own name.
    fn evaluate_devices(&mut self, failing: &FailingDrives) {
        let carrying: BTreeSet<&String> =
            self.facts.volumes.values().flat_map(|known| &known.facts.devices).collect();
        for (name, layer) in &self.facts.layers {
            let subject = Subject::Device(name.clone());
            self.push(&subject, Reason::ProbeTimeout, stalls::layer_probe(self.facts, name, layer));
            let one = std::slice::from_ref(name);
            let thin = self.severity(&subject, Reason::ThinPoolFull);
            let pool =
                pool::OF_STATE.map(|reason| (reason, pool::of_devices(self.facts, one, reason)));
            let arrays = [
                (
                    Reason::RaidDegraded,
                    redundancy::of_devices(
                        self.context,
                        &failing.endangering,
                        one,
                        Reason::RaidDegraded,
                    ),
                ),
                (
                    Reason::RedundancyLost,
                    redundancy::of_devices(
                        self.context,
                        &failing.endangering,
                        one,
                        Reason::RedundancyLost,
                    ),
                ),
                (Reason::ThinPoolFull, layers::thin(self.context, one, thin)),
                (Reason::ArrayMismatch, redundancy::mismatches(self.facts, one)),
                (Reason::PathsDegraded, layers::paths(self.facts, one)),
                (Reason::ScrubOverdue, scrub::of_devices(self.context, one)),
            ];
            let is_lost = arrays.iter().any(|(reason, verdict)| {
                *reason == Reason::RedundancyLost && matches!(verdict, Some(Verdict::Raised(_)))
            });
            let outlook = Outlook { context: self.context, drives: &failing.all };
            let stack = layer.state.last_known().and_then(LayerState::stack);
            let is_array =
                stack.is_some_and(|it| matches!(it.kind(), LayerKind::Array | LayerKind::Zpool));
            let risk = is_array.then(|| risk::of_device(&outlook, name, is_lost)).flatten();
            let lost = [
                (Reason::PoolDataErrors, pool::lost_data(self.facts, one)),
                (Reason::RedundancyAtRisk, risk),
            ];
            for (reason, verdict) in arrays.into_iter().chain(pool).chain(lost) {
                let carries = carrying.contains(name);
                self.push(&subject, reason, if carries { Some(Verdict::Clear) } else { verdict });
            }
        }
    }

    /// Devices that carry no volume: their errors in the kernel log, and their checks.
    fn evaluate_unclaimed_devices(&mut self) {
        let unmounted = self.facts.unmounted_errors();
        let mut names: BTreeSet<&String> = unmounted.keys().collect();
        let checks = self.facts.checks.all().values();
        names.extend(checks.map(|check| &check.target.device));
        // Those that have findings may have been mounted or formatted since.
        let subjects = self.facts.kernel.errors.keys();
        let subjects = subjects.chain(self.active.keys().map(|(subject, _)| subject));
        names.extend(subjects.filter_map(|subject| match subject {
            Subject::Device(name) => Some(name),
            Subject::Drive(_) | Subject::Volume(_) | Subject::Source(_) => None,
        }));
        for name in names {
            if self.facts.device(name).is_none() {
                continue;
            }
            let subject = Subject::Device(name.clone());
            let mut verdicts = BTreeMap::from(filesystem::device(self.context, name));
            let mut add = |reason: Reason, verdict: Option<Verdict>| {
                let known = verdicts.remove(&reason).flatten();
                verdicts.insert(reason, merge(known, verdict));
            };
            if let Some(history) = unmounted.get(name) {
                let errors = filesystem::unmounted_errors(self.context, name, history);
                errors.into_iter().for_each(|(reason, it)| add(reason, it));
                if let Some(tally) = history.get(Class::FsCorruption) {
                    let kernel = filesystem::unmounted_corruption(self.context, name, tally);
                    add(Reason::FilesystemCorrupted, kernel);
                }
            }
            add(Reason::FilesystemCorrupted, self.corruption_from_checks(name));
            for (reason, verdict) in verdicts {
                self.push(&subject, reason, verdict);
            }
        }
    }

    fn evaluate_sources(&mut self) {
        for source in Source::ALL {
            let verdict = sources::incomplete(self.facts, source, self.context.now);
            let subject = Subject::Source(source);
            self.push(&subject, Reason::MonitoringIncomplete, verdict);
        }
    }

    /// A finding about the filesystem on a device, mounted or not, belongs to its volume while the
    /// device carries one.
    fn corruption_from_checks(&self, name: &String) -> Option<Verdict> {
        let uuid = self.facts.device_uuid(name);
        let carries = |known: &KnownVolume| {
            let facts = &known.facts;
            // A btrfs is mounted by one of its devices, and may have been checked by another one.
            facts.device.as_ref() == Some(name)
                || (uuid.is_some()
                    && facts.fs_uuid.as_ref() == uuid
                    && facts.devices.contains(name))
        };
        if self.facts.volumes.values().any(carries) {
            match self.facts.awaits_superblock(name) {
                // The volume may have this filesystem or another one.
                true => text::unknown(format!("the superblock of {name} has not been read yet")),
                false => Some(Verdict::Clear),
            }
        } else {
            checks::device(self.facts, name)
        }
    }
}

#[cfg(test)]
pub mod tests;
