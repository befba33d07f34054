//! What drives have said of themselves, and the drives that only a RAID controller knows.
//!
//! In: answers of single drives, lists of controllers. Out: a memory a drive, and which drives are
//! to be asked. May not enter: whether something is bad (`smart::rules`, `assess`).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::drive::{DriveFacts, DriveKind, Transport};
use crate::model::facts::{Facts, KnownDrive, Urgency};
use crate::model::finding::Subject;
use crate::model::ids::DriveId;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::policy::smart::SmartPolicy;
use crate::model::smart::history::{Metric, Series, SmartHistory};
use crate::model::smart::rules::{RuleHit, evaluate};
use crate::model::smart::{SelfTestKind, SmartResponse};
use crate::model::source_update::{RaidMemberDrive, SmartTarget, StuckSmartctl};

/// Of one drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SmartFacts {
    /// How the last question ended; None before the first. A drive that sleeps or fails keeps its
    /// memory.
    pub outcome: Option<(Timestamp, SmartOutcome)>,
    pub stuck: Option<StuckSmartctl>,
    pub self_test: Option<SelfTestStart>,
    /// Kept in the store.
    pub history: Arc<SmartHistory>,
    /// What the last answer says of the drive, by the limits in force: worked out when either
    /// changes, and not at each judgement.
    pub rule_hits: Arc<Vec<RuleHit>>,
}

impl SmartFacts {
    /// Whether there is news in `new`, beyond the time of the answer, degrees and hours: those are
    /// true in the picture and no change.
    pub fn has_changed(&self, new: &SmartFacts) -> bool {
        let outcome =
            |smart: &SmartFacts| smart.outcome.as_ref().map(|(_, outcome)| outcome.clone());
        let figures = |smart: &SmartFacts| -> Vec<(Metric, Option<u64>)> {
            let moves =
                |metric: &Metric| !matches!(metric, Metric::Temperature | Metric::PowerOnHours);
            let last = |(metric, series): (&Metric, &Series)| {
                (*metric, series.points.last().map(|point| point.value))
            };
            smart
                .history
                .series
                .iter()
                .filter(|(metric, _)| moves(metric))
                .map(last)
                .collect()
        };
        let report = |smart: &SmartFacts| {
            smart
                .history
                .last
                .as_ref()
                .map(|(_, report)| (report.passed, report.self_tests.clone()))
        };
        outcome(self) != outcome(new)
            || self.stuck != new.stuck
            || self.self_test != new.self_test
            || self.rule_hits != new.rule_hits
            || figures(self) != figures(new)
            || report(self) != report(new)
    }

    fn evaluate(&mut self, policy: &SmartPolicy) {
        self.rule_hits = Arc::new(
            self.history
                .last
                .as_ref()
                .map_or_else(Vec::new, |(_, report)| {
                    evaluate(report, Some(&self.history), policy)
                }),
        );
    }
}

/// `Answer` without its report, which is in the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmartOutcome {
    Report,
    Standby { mode: String },
    NotApplicable { why: String, hint: Option<String> },
    Failed { why: String },
    TimedOut { why: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTestStart {
    pub kind: SelfTestKind,
    pub at: Timestamp,
    /// The drive's words when it began, else why it did not.
    pub result: Result<String, String>,
}

impl Facts {
    /// What the store remembers, at the start or late: older than anything that was heard since.
    pub(crate) fn restore_smart(&mut self, remembered: Vec<(DriveId, SmartHistory)>) {
        for (drive, memory) in remembered {
            let known = Arc::make_mut(self.smart.entry(drive).or_default());
            if known.history.last.is_none() {
                known.history = Arc::new(memory);
            } else {
                Arc::make_mut(&mut known.history).prepend(memory);
            }
            known.evaluate(&self.smart_policy);
        }
    }

    /// The limits in force; another set judges every drive anew.
    pub(crate) fn set_smart_policy(&mut self, policy: &SmartPolicy) {
        if *self.smart_policy == *policy {
            return;
        }
        self.smart_policy = Arc::new(policy.clone());
        for known in self.smart.values_mut() {
            Arc::make_mut(known).evaluate(&self.smart_policy);
        }
    }

    pub(super) fn apply_smart_response(
        &mut self,
        drive: DriveId,
        answer: SmartResponse,
        at: Timestamp,
    ) -> Urgency {
        if !self.drives.contains_key(&drive) {
            return Urgency::Nothing;
        }
        let slot = self.smart.entry(drive).or_default();
        let before = slot.clone();
        let known = Arc::make_mut(slot);
        known.stuck = None;
        let outcome = match answer {
            SmartResponse::Report(report) => {
                Arc::make_mut(&mut known.history).record(&report, at);
                known.evaluate(&self.smart_policy);
                SmartOutcome::Report
            }
            SmartResponse::Standby { mode } => {
                if known.history.asleep_since.is_none() {
                    Arc::make_mut(&mut known.history).asleep_since = Some(at);
                }
                SmartOutcome::Standby { mode }
            }
            SmartResponse::NotApplicable { why, hint } => SmartOutcome::NotApplicable { why, hint },
            SmartResponse::Failed { why } => SmartOutcome::Failed { why },
            SmartResponse::TimedOut { why } => SmartOutcome::TimedOut { why },
        };
        known.outcome = Some((at, outcome));
        if before.has_changed(known) {
            Urgency::Immediate
        } else {
            Urgency::UsageOnly
        }
    }

    pub(super) fn apply_smart_stuck(
        &mut self,
        drive: DriveId,
        stuck: Option<StuckSmartctl>,
    ) -> Urgency {
        if !self.drives.contains_key(&drive) {
            return Urgency::Nothing;
        }
        let known = self.smart.entry(drive).or_default();
        if known.stuck == stuck {
            return Urgency::Nothing;
        }
        let known = Arc::make_mut(known);
        if let Some(stuck) = &stuck {
            // That its process has gone at last is no answer: it stays unanswered until there is
            // one.
            let why = format!(
                "smartctl had not returned in its time, and could not be killed; it was started at {}",
                stuck.since
            );
            known.outcome = Some((stuck.since, SmartOutcome::TimedOut { why }));
        }
        known.stuck = stuck;
        Urgency::Immediate
    }

    pub(super) fn apply_self_test_start(
        &mut self,
        drive: DriveId,
        kind: SelfTestKind,
        at: Timestamp,
        result: Result<String, String>,
    ) -> Urgency {
        if !self.drives.contains_key(&drive) {
            return Urgency::Nothing;
        }
        Arc::make_mut(self.smart.entry(drive).or_default()).self_test =
            Some(SelfTestStart { kind, at, result });
        Urgency::Immediate
    }

    /// A list that failed takes nothing out: the last good one stands, and whether the drives are
    /// well is not known.
    pub(super) fn apply_raid_members(
        &mut self,
        controller: String,
        drives: Observation<Vec<RaidMemberDrive>>,
        now: Timestamp,
    ) -> Urgency {
        let mut listed = match drives {
            Observation::Ok { value, .. } => value,
            Observation::Failed { error, .. } => {
                let before = self.controller_errors.insert(controller, error.clone());
                return if before == Some(error) {
                    Urgency::Nothing
                } else {
                    Urgency::Immediate
                };
            }
            Observation::Unavailable => return Urgency::Nothing,
        };
        let failed_before = self.controller_errors.remove(&controller).is_some();
        for hidden in &mut listed {
            hidden.facts.location.raid_controller = Some(controller.clone());
        }
        if self.raid_members.get(&controller) == Some(&listed) {
            return if failed_before {
                Urgency::Immediate
            } else {
                Urgency::Nothing
            };
        }
        self.raid_members.insert(controller, listed);
        self.update_drives(now);
        self.update_drive_volumes(now);
        Urgency::Immediate
    }

    /// What stood behind a controller that is not there any more is gone.
    pub(super) fn apply_controllers(&mut self, there: &[String], now: Timestamp) -> Urgency {
        let known = self
            .drives
            .values()
            .filter_map(|known| known.facts.location.raid_controller.clone());
        let gone: Vec<String> = known
            .chain(self.raid_members.keys().cloned())
            .filter(|controller| !there.contains(controller))
            .collect();
        gone.into_iter()
            .map(|controller| {
                self.apply_raid_members(controller, Observation::ok(now, Vec::new()), now)
            })
            .max()
            .unwrap_or(Urgency::Nothing)
    }

    /// A drive that is not asked has no say; when it is asked again it begins anew.
    pub(super) fn apply_smart_ignored(&mut self, drives: Vec<DriveId>) -> Urgency {
        let drives: BTreeSet<DriveId> = drives.into_iter().collect();
        if drives == self.smart_ignored {
            return Urgency::Nothing;
        }
        self.smart.retain(|id, _| !drives.contains(id));
        self.smart_ignored = drives;
        Urgency::Immediate
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
                .smartctl_device(facts)
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
                kernel_error_count: errors.map_or(0, |memory| memory.incidents()),
                last_response: self
                    .smart
                    .get(&facts.id)
                    .and_then(|smart| Some(smart.history.last.as_ref()?.0)),
            })
        };
        self.drives.values().filter_map(target).collect()
    }

    /// How smartctl reaches it; None for what is never asked: what a network, a hypervisor's own
    /// bus or a RAID controller stands in front of.
    fn smartctl_device(&self, drive: &DriveFacts) -> Option<(HostPath, Option<String>)> {
        if let Some(controller) = &drive.location.raid_controller {
            let hidden = self
                .raid_members
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
pub(super) fn without_own_device<'a>(
    hidden: impl Iterator<Item = &'a RaidMemberDrive>,
    seen: &[DriveFacts],
) -> Vec<&'a DriveFacts> {
    let mut unseen: Vec<&DriveFacts> = Vec::new();
    for drive in hidden.map(|hidden| &hidden.facts) {
        if !seen
            .iter()
            .chain(unseen.iter().copied())
            .any(|known| is_same_drive(known, drive))
        {
            unseen.push(drive);
        }
    }
    unseen
}

/// Two ways to one drive: the same identity, or the same serial number, model and size. A
/// controller may tell the model with its maker before it, and keeps a little of the size for
/// itself only from logical disks, never from what it passes through.
fn is_same_drive(a: &DriveFacts, b: &DriveFacts) -> bool {
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
