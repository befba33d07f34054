//! The input of the rules: one drive or one volume, with the facts and the limits.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::assess::DriveFailure;
use crate::assess::pool_space::PoolRooms;
use crate::assess::smart::SmartAssessment;
use crate::facts::{Facts, KnownDrive, KnownVolume};
use crate::policy::Policy;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::severity::Severity;
use diskvitals_kernel_log::error_history::ErrorHistory;
use diskvitals_smart::policy::DriveSmartPolicy;

/// The input of every rule.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub facts: &'a Facts,
    pub policy: &'a Policy,
    pub now: Timestamp,
}

/// One drive, for all its reasons.
pub(crate) struct DriveInput<'a> {
    pub context: Context<'a>,
    pub known: &'a KnownDrive,
    /// The incidents that the kernel log attributes to it.
    pub errors: Option<&'a ErrorHistory>,
    pub smart: SmartAssessment<'a>,
}

impl<'a> DriveInput<'a> {
    pub(crate) fn new(context: Context<'a>, known: &'a KnownDrive) -> Self {
        let facts = context.facts;
        DriveInput {
            context,
            known,
            errors: facts.errors(&Subject::Drive(known.facts.id.clone())),
            smart: SmartAssessment::new(facts, known, &context.policy.smart),
        }
    }
}

impl DriveInput<'_> {
    /// The limits and exceptions that apply to this drive.
    pub(crate) fn smart_policy(&self) -> DriveSmartPolicy {
        let drive = &self.known.facts;
        self.context.policy.smart.for_drive(drive.model.as_deref(), drive.serial.as_deref())
    }
}

/// One volume, for one reason.
pub(crate) struct VolumeInput<'a> {
    pub context: Context<'a>,
    pub known: &'a KnownVolume,
    /// The severity of the active finding of this reason.
    pub active: Option<Severity>,
    /// An array below it has no redundancy left.
    pub has_last_copy: bool,
    /// Drives with findings that volumes follow.
    pub failing_drives: &'a BTreeMap<DriveId, DriveFailure>,
    /// All findings of drives that are not only information.
    pub drive_findings: &'a BTreeMap<DriveId, DriveFailure>,
    pub pools: &'a PoolRooms<'a>,
}
