//! Judgement: which findings the facts raise, clear, or leave undecided, now.
//!
//! In: facts, which findings are active (for hysteresis), the policy, the time. Out: judgements, at
//! most one a subject and reason. One function a rule; its doc comment is the specification. May
//! not enter: clocks, I/O, logging.
//!
//! A rule answers with a verdict, or with nothing where its source does not apply or has not
//! answered yet: then an active finding stays. `Clear` and `Unknown` are passed on for active
//! findings only.

mod checks;
mod drive;
mod errors;
mod filesystem;
mod health;
mod layers;
mod mounted;
mod read_only;
mod reason_rules;
mod smart;
mod space;
mod stalls;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::assess::reason_rules::{DriveInput, VolumeInput};
use crate::model::facts::{Facts, KnownVolume};
use crate::model::finding::{Judgement, Severity, Status, Subject, Verdict};
use crate::model::ids::DriveId;
use crate::model::policy::Policy;
use crate::model::reason::Reason;

pub(crate) use checks::signals;
pub(crate) use health::{health, health_unknown};
pub(crate) use text::{MAX_MESSAGE, truncate};

/// The findings that are active, as the owner of the state has them.
pub(crate) trait ActiveFindings {
    /// How bad the active finding of this subject and reason is; `None` when there is none.
    fn severity(&self, subject: &Subject, reason: Reason) -> Option<Severity>;

    /// All of them: what is about something that is no more is cleared.
    fn all(&self) -> Vec<(Subject, Reason)>;
}

/// No finding is active.
impl ActiveFindings for () {
    fn severity(&self, _: &Subject, _: Reason) -> Option<Severity> {
        None
    }

    fn all(&self) -> Vec<(Subject, Reason)> {
        Vec::new()
    }
}

impl ActiveFindings for BTreeMap<(Subject, Reason), Severity> {
    fn severity(&self, subject: &Subject, reason: Reason) -> Option<Severity> {
        self.get(&(subject.clone(), reason)).copied()
    }

    fn all(&self) -> Vec<(Subject, Reason)> {
        self.keys().cloned().collect()
    }
}

/// Judges everything. Order: drives, volumes, devices, what is no more; each by id.
pub(crate) fn assess(
    facts: &Facts,
    active: &dyn ActiveFindings,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Judgement> {
    let troubled = active
        .all()
        .into_iter()
        .map(|(subject, _)| subject)
        .collect();
    let mut evaluator = Evaluator {
        facts,
        active,
        subjects_with_findings: troubled,
        policy,
        now,
        judgements: Vec::new(),
        existing: BTreeSet::new(),
    };
    evaluator.evaluate_drives();
    let failing = evaluator.failing_drives();
    for (id, known) in &facts.volumes {
        evaluator.evaluate_volume(&Subject::Volume(id.clone()), known, &failing);
    }
    evaluator.evaluate_devices();
    evaluator.evaluate_unclaimed_devices();
    evaluator.clear_removed();
    evaluator.judgements
}

/// Joins the verdicts of two sources on one subject and reason. The more severe one counts, and the
/// message and evidence of both are kept. The finding clears when neither source raises it. A source
/// that cannot answer keeps a finding from being cleared.
fn merge(one: Option<Verdict>, other: Option<Verdict>) -> Option<Verdict> {
    match (one, other) {
        (None, verdict) | (verdict, None) => verdict,
        (Some(Verdict::Raised(a)), Some(Verdict::Raised(b))) => {
            let (mut strong, weak) = if (b.severity, b.status) > (a.severity, a.status) {
                (b, a)
            } else {
                (a, b)
            };
            strong.status = strong.status.max(weak.status);
            strong.message = truncate(
                &format!("{}; {}", strong.message, weak.message),
                MAX_MESSAGE,
            );
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

/// What is wrong with a drive, as far as its volumes inherit it.
#[derive(Clone, Debug)]
struct DriveFailure {
    reasons: Vec<Reason>,
    severity: Severity,
    status: Status,
    message: String,
}

struct Evaluator<'a> {
    facts: &'a Facts,
    active: &'a dyn ActiveFindings,
    /// Subjects of active findings. Few, while each of hundreds of volumes is asked for by a dozen
    /// rules.
    subjects_with_findings: BTreeSet<Subject>,
    policy: &'a Policy,
    now: Timestamp,
    judgements: Vec<Judgement>,
    /// Subjects that exist.
    existing: BTreeSet<Subject>,
}

impl Evaluator<'_> {
    fn severity(&self, subject: &Subject, reason: Reason) -> Option<Severity> {
        if self.subjects_with_findings.contains(subject) {
            self.active.severity(subject, reason)
        } else {
            None
        }
    }

    fn push(&mut self, subject: &Subject, reason: Reason, verdict: Option<Verdict>) {
        let Some(verdict) = verdict else { return };
        // The table tells people how bad it can be: every test that judges anything holds it to
        // that.
        if let Verdict::Raised(raised) = &verdict {
            debug_assert!(
                reason.levels().contains(&raised.severity),
                "{reason} is {:?}, which its row does not say",
                raised.severity
            );
        }
        let tells =
            matches!(verdict, Verdict::Raised(_)) || self.severity(subject, reason).is_some();
        if tells {
            self.judgements.push(Judgement {
                subject: subject.clone(),
                reason,
                verdict,
            });
        }
    }

    fn evaluate_drives(&mut self) {
        for (id, known) in &self.facts.drives {
            let subject = Subject::Drive(id.clone());
            self.existing.insert(subject.clone());
            let input = DriveInput::new(self.facts, known, self.policy, self.now);
            for reason in Reason::ALL {
                self.push(&subject, *reason, input.verdict(*reason));
            }
        }
    }

    /// Raised now, or active and not seen to be over.
    fn failing_drives(&self) -> BTreeMap<DriveId, DriveFailure> {
        let mut failing: BTreeMap<DriveId, DriveFailure> = BTreeMap::new();
        // What has been decided now stands, whatever was active before: a drive that was missed and
        // is replaced is only information.
        let mut decided = BTreeSet::new();
        let mut add =
            |id: &DriveId, reason: Reason, severity: Severity, status: Status, message: &str| {
                if severity == Severity::Info {
                    return;
                }
                let entry = failing.entry(id.clone()).or_insert(DriveFailure {
                    reasons: Vec::new(),
                    severity,
                    status,
                    message: message.to_owned(),
                });
                if !entry.reasons.contains(&reason) {
                    entry.reasons.push(reason);
                }
                if (severity, status) > (entry.severity, entry.status) {
                    (entry.severity, entry.status, entry.message) =
                        (severity, status, message.to_owned());
                }
            };
        for judgement in &self.judgements {
            let Subject::Drive(id) = &judgement.subject else {
                continue;
            };
            match &judgement.verdict {
                Verdict::Raised(raised) => add(
                    id,
                    judgement.reason,
                    raised.severity,
                    raised.status,
                    &raised.message,
                ),
                Verdict::Clear => {}
                Verdict::Unknown { .. } => continue,
            }
            decided.insert((id.clone(), judgement.reason));
        }
        for (subject, reason) in self.active.all() {
            let Subject::Drive(id) = &subject else {
                continue;
            };
            let Some(severity) = self.active.severity(&subject, reason) else {
                continue;
            };
            if !decided.contains(&(id.clone(), reason)) {
                let gone = matches!(reason, Reason::DriveMissing | Reason::DriveOffline);
                let status = if gone {
                    Status::Inaccessible
                } else {
                    Status::Degraded
                };
                add(id, reason, severity, status, reason.meaning());
            }
        }
        failing
    }

    fn evaluate_volume(
        &mut self,
        subject: &Subject,
        known: &KnownVolume,
        failing: &BTreeMap<DriveId, DriveFailure>,
    ) {
        self.existing.insert(subject.clone());
        for reason in Reason::ALL {
            let input = VolumeInput {
                facts: self.facts,
                known,
                policy: self.policy,
                now: self.now,
                active: self.severity(subject, *reason),
                failing_drives: failing,
            };
            self.push(subject, *reason, input.verdict(*reason));
        }
    }

    /// Layers that carry no volume are told of by their own name, and questions about a device that
    /// do not come back in any case.
    fn evaluate_devices(&mut self) {
        let carrying: BTreeSet<&str> = self
            .facts
            .volumes
            .values()
            .flat_map(|known| &known.facts.devices)
            .map(String::as_str)
            .collect();
        for (name, layer) in &self.facts.layers {
            let subject = Subject::Device(name.clone());
            self.existing.insert(subject.clone());
            self.push(
                &subject,
                Reason::ProbeTimeout,
                stalls::layer_probe(name, layer),
            );
            let carries = carrying.contains(name.as_str());
            let alone = |verdict: Option<Verdict>| {
                if carries {
                    Some(Verdict::Clear)
                } else {
                    verdict
                }
            };
            let thin = self.severity(&subject, Reason::ThinPoolFull);
            let judged = [
                (
                    Reason::RaidDegraded,
                    alone(layers::raid(self.facts, std::slice::from_ref(name))),
                ),
                (
                    Reason::ThinPoolFull,
                    alone(layers::thin(
                        self.facts,
                        std::slice::from_ref(name),
                        self.policy,
                        thin,
                    )),
                ),
                (
                    Reason::PathsDegraded,
                    alone(layers::paths(self.facts, std::slice::from_ref(name))),
                ),
            ];
            for (reason, verdict) in judged {
                self.push(&subject, reason, verdict);
            }
        }
    }

    /// Devices of which the kernel's log has spoken and that carry no volume.
    fn evaluate_unclaimed_devices(&mut self) {
        for subject in self.facts.kernel.errors.keys() {
            let Subject::Device(name) = subject else {
                continue;
            };
            if !self
                .facts
                .inventory()
                .is_some_and(|inventory| inventory.devices.contains_key(name))
            {
                continue;
            }
            self.existing.insert(subject.clone());
            for (reason, verdict) in filesystem::device(self.facts, name, self.policy, self.now) {
                let verdict = if reason == Reason::FilesystemCorrupted {
                    merge(verdict, self.corruption_from_checks(name))
                } else {
                    verdict
                };
                self.push(subject, reason, verdict);
            }
        }
        self.evaluate_checked_devices();
    }

    /// Devices that were checked, and of which the log has not spoken.
    fn evaluate_checked_devices(&mut self) {
        let names: BTreeSet<String> = self
            .facts
            .checks
            .all()
            .values()
            .map(|check| check.target.device.clone())
            .collect();
        for name in names {
            let subject = Subject::Device(name.clone());
            let there = self
                .facts
                .inventory()
                .is_some_and(|inventory| inventory.devices.contains_key(&name));
            if self.facts.kernel.errors.contains_key(&subject) || !there {
                continue;
            }
            self.existing.insert(subject.clone());
            self.push(
                &subject,
                Reason::FilesystemCorrupted,
                self.corruption_from_checks(&name),
            );
        }
    }

    /// What was shown of the filesystem on a device, mounted or not, is its volume's matter as long
    /// as it carries one.
    fn corruption_from_checks(&self, name: &str) -> Option<Verdict> {
        let uuid = self
            .facts
            .inventory()
            .and_then(|inventory| inventory.devices.get(name)?.fs_uuid.as_ref());
        let of = |known: &KnownVolume| {
            let facts = &known.facts;
            // A btrfs is mounted by one of its devices, and may have been checked by another.
            facts.device.as_deref() == Some(name)
                || (uuid.is_some()
                    && facts.fs_uuid.as_ref() == uuid
                    && facts.devices.iter().any(|one| one == name))
        };
        if self.facts.volumes.values().any(of) {
            Some(Verdict::Clear)
        } else {
            checks::device(self.facts, name)
        }
    }

    /// What is gone from the facts was taken out by a good answer; but an answer that is still
    /// awaited, or a failed one, takes nothing out.
    fn clear_removed(&mut self) {
        let sure = self.facts.settled()
            && self.facts.inventory.value().is_some()
            && self.facts.mounts.value().is_some()
            && self.facts.kubelet.error().is_none();
        if !sure {
            return;
        }
        for (subject, reason) in self.active.all() {
            // A layer's state is asked for after the scan that names it: until then the device
            // itself is enough to keep its findings.
            let exists = match &subject {
                Subject::Device(name) => self
                    .facts
                    .inventory
                    .value()
                    .is_some_and(|inventory| inventory.devices.contains_key(name)),
                _ => false,
            };
            if !exists && !self.existing.contains(&subject) {
                self.judgements.push(Judgement {
                    subject,
                    reason,
                    verdict: Verdict::Clear,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
