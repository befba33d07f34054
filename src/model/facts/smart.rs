//! What drives have said of themselves, and the drives that only a RAID controller knows.
//!
//! In: answers of single drives, lists of controllers. Out: a memory a drive, and which drives are
//! to be asked. May not enter: whether something is bad (`smart::rules`, `assess`).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::drive::{DriveFacts, DriveKind, Transport};
use crate::model::facts::{Change, Facts, KnownDrive};
use crate::model::finding::Subject;
use crate::model::ids::DriveId;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::policy::smart::SmartPolicy;
use crate::model::report::{HiddenDrive, SmartStuck, SmartTarget};
use crate::model::smart::memory::{Memory, Metric, Series};
use crate::model::smart::rules::{Said, judge};
use crate::model::smart::{Answer, TestKind};

/// Of one drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SmartFacts {
    /// How the last question ended; None before the first. A drive that sleeps or fails keeps its
    /// memory.
    pub outcome: Option<(Timestamp, Outcome)>,
    pub stuck: Option<SmartStuck>,
    pub self_test: Option<SelfTestAsked>,
    /// Kept in the store.
    pub memory: Arc<Memory>,
    /// What the last answer says of the drive, by the limits in force: worked out when either
    /// changes, and not at each judgement.
    pub said: Arc<Vec<Said>>,
}

impl SmartFacts {
    /// Whether there is news in `new`, beyond the time of the answer, degrees and hours: those are
    /// true in the picture and no change.
    pub fn told_anew(&self, new: &SmartFacts) -> bool {
        let outcome =
            |smart: &SmartFacts| smart.outcome.as_ref().map(|(_, outcome)| outcome.clone());
        let figures = |smart: &SmartFacts| -> Vec<(Metric, Option<u64>)> {
            let moves =
                |metric: &Metric| !matches!(metric, Metric::Temperature | Metric::PowerOnHours);
            let last = |(metric, series): (&Metric, &Series)| {
                (*metric, series.points.last().map(|point| point.value))
            };
            smart
                .memory
                .series
                .iter()
                .filter(|(metric, _)| moves(metric))
                .map(last)
                .collect()
        };
        let report = |smart: &SmartFacts| {
            smart
                .memory
                .last
                .as_ref()
                .map(|(_, report)| (report.passed, report.self_tests.clone()))
        };
        outcome(self) != outcome(new)
            || self.stuck != new.stuck
            || self.self_test != new.self_test
            || self.said != new.said
            || figures(self) != figures(new)
            || report(self) != report(new)
    }

    fn judge(&mut self, policy: &SmartPolicy) {
        self.said = Arc::new(
            self.memory
                .last
                .as_ref()
                .map_or_else(Vec::new, |(_, report)| {
                    judge(report, Some(&self.memory), policy)
                }),
        );
    }
}

/// `Answer` without its report, which is in the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Told,
    Asleep { mode: String },
    NotApplicable { why: String, hint: Option<String> },
    Failed { why: String },
    TimedOut { why: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTestAsked {
    pub kind: TestKind,
    pub at: Timestamp,
    /// The drive's words when it began, else why it did not.
    pub result: Result<String, String>,
}

impl Facts {
    /// What the store remembers, at the start or late: older than anything that was heard since.
    pub(crate) fn restore_smart(&mut self, remembered: Vec<(DriveId, Memory)>) {
        for (drive, memory) in remembered {
            let known = Arc::make_mut(self.smart.entry(drive).or_default());
            if known.memory.last.is_none() {
                known.memory = Arc::new(memory);
            } else {
                Arc::make_mut(&mut known.memory).join(memory);
            }
            known.judge(&self.smart_policy);
        }
    }

    /// The limits in force; another set judges every drive anew.
    pub(crate) fn judge_by(&mut self, policy: &SmartPolicy) {
        if *self.smart_policy == *policy {
            return;
        }
        self.smart_policy = Arc::new(policy.clone());
        for known in self.smart.values_mut() {
            Arc::make_mut(known).judge(&self.smart_policy);
        }
    }

    pub(super) fn smart_answer(&mut self, drive: DriveId, answer: Answer, at: Timestamp) -> Change {
        if !self.drives.contains_key(&drive) {
            return Change::Nothing;
        }
        let slot = self.smart.entry(drive).or_default();
        let before = slot.clone();
        let known = Arc::make_mut(slot);
        known.stuck = None;
        let outcome = match answer {
            Answer::Told(report) => {
                Arc::make_mut(&mut known.memory).take(&report, at);
                known.judge(&self.smart_policy);
                Outcome::Told
            }
            Answer::Asleep { mode } => {
                if known.memory.asleep_since.is_none() {
                    Arc::make_mut(&mut known.memory).asleep_since = Some(at);
                }
                Outcome::Asleep { mode }
            }
            Answer::NotApplicable { why, hint } => Outcome::NotApplicable { why, hint },
            Answer::Failed { why } => Outcome::Failed { why },
            Answer::TimedOut { why } => Outcome::TimedOut { why },
        };
        known.outcome = Some((at, outcome));
        if before.told_anew(known) {
            Change::Material
        } else {
            Change::Figures
        }
    }

    pub(super) fn smart_stuck(&mut self, drive: DriveId, stuck: Option<SmartStuck>) -> Change {
        if !self.drives.contains_key(&drive) {
            return Change::Nothing;
        }
        let known = self.smart.entry(drive).or_default();
        if known.stuck == stuck {
            return Change::Nothing;
        }
        let known = Arc::make_mut(known);
        if let Some(stuck) = &stuck {
            // That its process has gone at last is no answer: it stays unanswered until there is
            // one.
            let why = format!(
                "smartctl had not returned in its time, and could not be killed; it was started at {}",
                stuck.since
            );
            known.outcome = Some((stuck.since, Outcome::TimedOut { why }));
        }
        known.stuck = stuck;
        Change::Material
    }

    pub(super) fn self_test_asked(
        &mut self,
        drive: DriveId,
        kind: TestKind,
        at: Timestamp,
        result: Result<String, String>,
    ) -> Change {
        if !self.drives.contains_key(&drive) {
            return Change::Nothing;
        }
        Arc::make_mut(self.smart.entry(drive).or_default()).self_test =
            Some(SelfTestAsked { kind, at, result });
        Change::Material
    }

    /// A list that failed takes nothing out: the last good one stands, and whether the drives are
    /// well is not known.
    pub(super) fn hidden_drives(
        &mut self,
        controller: String,
        drives: Observation<Vec<HiddenDrive>>,
        now: Timestamp,
    ) -> Change {
        let mut listed = match drives {
            Observation::Ok { value, .. } => value,
            Observation::Failed { error, .. } => {
                let before = self.unlisted.insert(controller, error.clone());
                return if before == Some(error) {
                    Change::Nothing
                } else {
                    Change::Material
                };
            }
            Observation::Unavailable => return Change::Nothing,
        };
        let failed_before = self.unlisted.remove(&controller).is_some();
        for hidden in &mut listed {
            hidden.facts.location.behind = Some(controller.clone());
        }
        if self.hidden.get(&controller) == Some(&listed) {
            return if failed_before {
                Change::Material
            } else {
                Change::Nothing
            };
        }
        self.hidden.insert(controller, listed);
        self.update_drives(now);
        self.update_loads(now);
        Change::Material
    }

    /// What stood behind a controller that is not there any more is gone.
    pub(super) fn controllers(&mut self, there: &[String], now: Timestamp) -> Change {
        let known = self
            .drives
            .values()
            .filter_map(|known| known.facts.location.behind.clone());
        let gone: Vec<String> = known
            .chain(self.hidden.keys().cloned())
            .filter(|controller| !there.contains(controller))
            .collect();
        gone.into_iter()
            .map(|controller| self.hidden_drives(controller, Observation::ok(now, Vec::new()), now))
            .max()
            .unwrap_or(Change::Nothing)
    }

    /// A drive that is not asked has no say; when it is asked again it begins anew.
    pub(super) fn smart_ignored(&mut self, drives: Vec<DriveId>) -> Change {
        let drives: BTreeSet<DriveId> = drives.into_iter().collect();
        if drives == self.smart_ignored {
            return Change::Nothing;
        }
        self.smart.retain(|id, _| !drives.contains(id));
        self.smart_ignored = drives;
        Change::Material
    }

    /// Forgets what was said by drives that are forgotten themselves.
    pub(super) fn forget_smart(&mut self) {
        let drives = &self.drives;
        self.smart.retain(|id, _| drives.contains_key(id));
    }

    /// Drives to be asked, sorted by id. `suspect`: which of them have adverse findings.
    pub fn smart_targets(&self, suspect: &dyn Fn(&DriveId) -> bool) -> Vec<SmartTarget> {
        let target = |known: &KnownDrive| {
            let facts = &known.facts;
            let (device, device_type) = self
                .way_to(facts)
                .filter(|_| known.missing_since.is_none())?;
            let errors = self.errors(&Subject::Drive(facts.id.clone()));
            Some(SmartTarget {
                drive: facts.id.clone(),
                device,
                device_type,
                transport: facts.transport,
                controllers: facts.location.controllers.clone(),
                model: facts.model.clone(),
                serial: facts.serial.clone(),
                asleep: facts.asleep,
                suspect: suspect(&facts.id),
                errors: errors.map_or(0, |memory| memory.incidents()),
                last_answer: self
                    .smart
                    .get(&facts.id)
                    .and_then(|smart| Some(smart.memory.last.as_ref()?.0)),
            })
        };
        self.drives.values().filter_map(target).collect()
    }

    /// How smartctl reaches it; None for what is never asked: what a network, a hypervisor's own
    /// bus or a RAID controller stands in front of.
    fn way_to(&self, drive: &DriveFacts) -> Option<(HostPath, Option<String>)> {
        if let Some(controller) = &drive.location.behind {
            let hidden = self
                .hidden
                .get(controller)?
                .iter()
                .find(|hidden| hidden.facts.id == drive.id)?;
            return Some((hidden.device.clone(), Some(hidden.device_type.clone())));
        }
        let name = match drive.transport {
            Transport::Nvme => drive
                .location
                .controllers
                .first()
                .or(drive.devices.first().map(|device| &device.name))?,
            // A path that works before one that does not.
            Transport::Sata | Transport::Sas | Transport::Scsi | Transport::Usb => {
                let runs = drive
                    .devices
                    .iter()
                    .find(|device| device.state.as_deref() == Some("running"));
                &runs.or(drive.devices.first())?.name
            }
            _ => return None,
        };
        Some((HostPath::new(format!("/dev/{name}")), None))
    }
}

/// Drives behind controllers that no device of the kernel's is: what a controller passes through
/// has a device of its own.
pub(super) fn unseen<'a>(
    hidden: impl Iterator<Item = &'a HiddenDrive>,
    seen: &[DriveFacts],
) -> Vec<&'a DriveFacts> {
    let mut unseen: Vec<&DriveFacts> = Vec::new();
    for drive in hidden.map(|hidden| &hidden.facts) {
        if !seen
            .iter()
            .chain(unseen.iter().copied())
            .any(|known| is_one(known, drive))
        {
            unseen.push(drive);
        }
    }
    unseen
}

/// Two ways to one drive: the same identity, or the same serial number, model and size. A
/// controller may tell the model with its maker before it, and keeps a little of the size for
/// itself only from logical disks, never from what it passes through.
fn is_one(a: &DriveFacts, b: &DriveFacts) -> bool {
    let fold = |text: &Option<String>| {
        text.as_deref()
            .map(|text| text.trim().to_ascii_lowercase())
            .filter(|text| !text.is_empty())
    };
    if a.id == b.id || (a.wwn.is_some() && a.wwn == b.wwn) {
        return true;
    }
    let same_serial = fold(&a.serial).is_some_and(|serial| Some(serial) == fold(&b.serial));
    let same_model = match (fold(&a.model), fold(&b.model)) {
        (Some(a), Some(b)) => a.ends_with(&b) || b.ends_with(&a),
        _ => false,
    };
    same_serial && same_model && a.size_bytes == b.size_bytes
}

/// Whether a drive is one of which people expect SMART data: made of platters or flash, and here.
pub fn is_physical(drive: &DriveFacts) -> bool {
    matches!(
        drive.kind,
        DriveKind::Hdd | DriveKind::Ssd | DriveKind::Nvme
    )
}
