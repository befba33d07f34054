//! SMART readings: the last response of each drive and the history of its values.
//!
//! In: responses of drives. Out: readings and history by drive, and which drives smartctl queries.
//! `assess::smart` judges the readings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::drive::{DriveFacts, DriveKind, Transport};
use crate::facts::{Facts, KnownDrive, Urgency};
use crate::source_update::{SmartTarget, SourceStatus, StuckSmartctl};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;
use diskvitals_smart::history::{SmartHistory, StartedTest, TrendKind};
use diskvitals_smart::{SelfTestKind, SmartOutput, SmartResponse};

/// A start waits for a query that runs.
const ANSWERED_WITHIN: SignedDuration = SignedDuration::from_mins(10);

#[derive(Clone, Debug, Default)]
pub struct SmartReadings {
    /// Drives that have never been queried are absent.
    drives: BTreeMap<DriveId, Arc<SmartFacts>>,
    /// Drives that the configuration excludes.
    ignored: BTreeSet<DriveId>,
    /// When each drive was last found runtime-suspended or idle: not queried.
    left_alone: BTreeMap<DriveId, Timestamp>,
}

/// The readings of one drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SmartFacts {
    /// The result of the last query; None before the first. A drive in standby or with a failed
    /// query keeps its history.
    pub outcome: Option<(Timestamp, SmartOutcome)>,
    pub stuck: Option<StuckSmartctl>,
    pub self_test: Option<SelfTestStart>,
    /// A rotating drive without I/O since its last answer: not queried, so that it can stop turning.
    pub idle: bool,
    /// In memory only: None until smartctl has printed something since the start.
    pub output: Option<Arc<SmartOutput>>,
    /// Kept in the store.
    pub history: Arc<SmartHistory>,
}

/// `SmartResponse` without its report, which is in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmartOutcome {
    Report,
    Standby {
        mode: String,
    },
    NotApplicable {
        why: String,
        hint: Option<String>,
        /// The drive itself says that it has no SMART data; false: smartctl could not ask it.
        said_so: bool,
    },
    Failed {
        why: String,
    },
    TimedOut {
        why: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTestStart {
    pub kind: SelfTestKind,
    pub at: Timestamp,
    /// The drive's response when the test began, otherwise the reason why it did not begin.
    pub result: Result<String, String>,
}

impl SmartReadings {
    pub fn get(&self, drive: &DriveId) -> Option<&Arc<SmartFacts>> {
        self.drives.get(drive)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&DriveId, &Arc<SmartFacts>)> + Clone {
        self.drives.iter()
    }

    pub fn is_ignored(&self, drive: &DriveId) -> bool {
        self.ignored.contains(drive)
    }

    /// When the drive was last found runtime-suspended or idle in this run.
    pub(crate) fn last_left_alone(&self, drive: &DriveId) -> Option<Timestamp> {
        self.left_alone.get(drive).copied()
    }

    pub(super) fn note_left_alone(&mut self, drive: &DriveId, now: Timestamp) {
        self.left_alone.insert(drive.clone(), now);
    }

    /// Restores histories from the store: older than any response since the start.
    pub fn restore(&mut self, remembered: Vec<(DriveId, SmartHistory)>) {
        for (drive, history) in remembered {
            let known = Arc::make_mut(self.drives.entry(drive).or_default());
            if known.history.last.is_none() {
                known.history = Arc::new(history);
            } else {
                Arc::make_mut(&mut known.history).prepend(history);
            }
        }
    }

    /// Of a drive that was queried.
    pub(super) fn record_trend(
        &mut self,
        drive: &DriveId,
        kind: TrendKind,
        value: u64,
        at: Timestamp,
    ) {
        if let Some(smart) = self.drives.get_mut(drive) {
            let value = u32::try_from(value).unwrap_or(u32::MAX);
            Arc::make_mut(&mut Arc::make_mut(smart).history).record_trend(kind, value, at);
        }
    }

    /// Replaces the readings of a drive by earlier ones.
    pub(super) fn put_back(&mut self, drive: &DriveId, before: Option<Arc<SmartFacts>>) {
        match before {
            Some(before) => self.drives.insert(drive.clone(), before),
            None => self.drives.remove(drive),
        };
    }

    /// The readings of a drive that is ignored are dropped.
    pub(super) fn set_ignored(&mut self, drives: Vec<DriveId>) -> Urgency {
        let drives: BTreeSet<DriveId> = drives.into_iter().collect();
        if drives == self.ignored {
            return Urgency::Nothing;
        }
        self.drives.retain(|id, _| !drives.contains(id));
        self.ignored = drives;
        Urgency::Immediate
    }

    /// Drops the readings of drives that are not `known`.
    pub(super) fn retain(&mut self, known: &BTreeMap<DriveId, KnownDrive>) {
        self.drives.retain(|id, _| known.contains_key(id));
        self.left_alone.retain(|id, _| known.contains_key(id));
    }

    pub(super) fn stuck_count(&self) -> usize {
        let stuck = |smart: &&Arc<SmartFacts>| smart.stuck.is_some();
        self.drives.values().filter(stuck).count()
    }
}

impl SmartFacts {
    /// Whether `new` differs in more than the time of the response, temperature, hours and amount
    /// of I/O, which always change.
    pub fn has_changed(&self, new: &SmartFacts) -> bool {
        fn outcome(smart: &SmartFacts) -> Option<&SmartOutcome> {
            smart.outcome.as_ref().map(|(_, outcome)| outcome)
        }
        outcome(self) != outcome(new)
            || self.stuck != new.stuck
            || self.self_test != new.self_test
            || self.idle != new.idle
            || self.history.has_changed(&new.history)
    }

    pub(super) fn apply_response(&mut self, response: SmartResponse, at: Timestamp) -> Urgency {
        let before = self.clone();
        self.stuck = None;
        let outcome = match response {
            SmartResponse::Report(report) => {
                Arc::make_mut(&mut self.history).record(&report, at);
                SmartOutcome::Report
            }
            SmartResponse::Standby { mode } => {
                if self.history.asleep_since.is_none() {
                    Arc::make_mut(&mut self.history).asleep_since = Some(at);
                }
                SmartOutcome::Standby { mode }
            }
            SmartResponse::NotApplicable { why, hint, said_so } => {
                SmartOutcome::NotApplicable { why, hint, said_so }
            }
            SmartResponse::Failed { why } => SmartOutcome::Failed { why },
            SmartResponse::TimedOut { why } => SmartOutcome::TimedOut { why },
        };
        self.outcome = Some((at, outcome));
        if before.has_changed(self) { Urgency::Immediate } else { Urgency::Coalesce }
    }

    pub(super) fn keep_output(&mut self, output: SmartOutput) {
        if self.output.as_ref().is_none_or(|kept| output.replaces(kept)) {
            self.output = Some(Arc::new(output));
        }
    }

    fn set_stuck(&mut self, stuck: Option<StuckSmartctl>) {
        if let Some(stuck) = &stuck {
            // The late end of the process is not a response: the drive stays unresponsive until it
            // responds.
            let why = "smartctl did not return in time and could not be killed".to_owned();
            self.outcome = Some((stuck.since, SmartOutcome::TimedOut { why }));
        }
        self.stuck = stuck;
    }
}

impl SmartFacts {
    /// A test did not begin; a schedule may have asked for it.
    pub(super) fn note_refused(&mut self, kind: SelfTestKind, at: Timestamp, why: &str) {
        let is_this = |started: &StartedTest| {
            started.refused.is_none() && at.duration_since(started.at) < ANSWERED_WITHIN
        };
        if self.history.started.get(&kind).is_some_and(is_this)
            && let Some(started) = Arc::make_mut(&mut self.history).started.get_mut(&kind)
        {
            started.refused = Some(why.to_owned());
        }
    }
}

impl Facts {
    /// The readings of a drive that is still in the list of drives.
    pub(crate) fn smart_of_known(&mut self, drive: &DriveId) -> Option<&mut SmartFacts> {
        self.drives
            .contains_key(drive)
            .then(|| Arc::make_mut(self.smart.drives.entry(drive.clone()).or_default()))
    }

    pub(super) fn apply_smart_stuck(
        &mut self,
        drive: &DriveId,
        stuck: Option<StuckSmartctl>,
    ) -> Urgency {
        let known = self.smart.get(drive).and_then(|smart| smart.stuck.as_ref());
        if known == stuck.as_ref() {
            return Urgency::Nothing;
        }
        self.smart_of_known(drive).map_or(Urgency::Nothing, |smart| {
            smart.set_stuck(stuck);
            Urgency::Immediate
        })
    }

    /// Drives that smartctl queries, sorted by id. `suspect`: which of them have adverse findings.
    pub fn smart_targets(&self, suspect: &dyn Fn(&DriveId) -> bool) -> Vec<SmartTarget> {
        let target = |known: &KnownDrive| {
            let facts = &known.facts;
            let (device, device_type) =
                self.smartctl_device(facts).filter(|_| known.missing_since.is_none())?;
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
                idle: self.smart.get(&facts.id).is_some_and(|smart| smart.idle),
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

    /// Whether the drive should answer smartctl: its kind has SMART, and smartctl can reach it.
    pub(crate) fn expects_smart(&self, drive: &DriveFacts) -> bool {
        // A stick or a card reader is removable, a disk in a USB case is not.
        let is_usb_disk = drive.kind == DriveKind::Usb && !drive.removable;
        (is_physical(drive) || is_usb_disk) && self.is_queried(drive)
    }

    /// A controller's member may not have been listed yet.
    pub(crate) fn is_queried(&self, drive: &DriveFacts) -> bool {
        let is_disabled =
            matches!(self.sources.status(Source::Smart), Some(SourceStatus::Absent(_)));
        !is_disabled
            && !self.smart.is_ignored(&drive.id)
            && (drive.location.raid_controller.is_some() || self.smartctl_device(drive).is_some())
    }

    /// The device that smartctl opens, and its `--device` type. None for drives that are never
    /// queried: those behind a network or a hypervisor's own bus.
    fn smartctl_device(&self, drive: &DriveFacts) -> Option<(HostPath, Option<String>)> {
        if let Some(controller) = &drive.location.raid_controller {
            let member = self.raid_controllers.member(controller, &drive.id)?;
            return Some((member.device.clone(), Some(member.device_type.clone())));
        }
        let name = match drive.transport {
            Transport::Nvme => drive
                .location
                .controllers
                .first()
                .or(drive.devices.first().map(|device| &device.name))?,
            // Working paths come before failed ones.
            Transport::Sata | Transport::Sas | Transport::Scsi | Transport::Usb => {
                let runs =
                    drive.devices.iter().find(|device| device.state.as_deref() == Some("running"));
                &runs.or(drive.devices.first())?.name
            }
            _ => return None,
        };
        Some((HostPath::new(format!("/dev/{name}")), None))
    }
}

/// Whether the drive should have SMART data: it has platters or flash, and is local.
pub(crate) fn is_physical(drive: &DriveFacts) -> bool {
    matches!(drive.kind, DriveKind::Hdd | DriveKind::Ssd | DriveKind::Nvme)
}
