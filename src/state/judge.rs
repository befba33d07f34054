//! What the owner asks of the model: the seam at which the rules of judgement are plugged in, and
//! at which its tests plug in their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::model;
use crate::model::facts::kernel_log::LogProgress;
use crate::model::facts::{Facts, KnownDrive, Urgency, counters};
use crate::model::finding::{Judgement, Severity, Subject};
use crate::model::ids::DriveId;
use crate::model::kernel_log::error_history::ErrorHistory;
use crate::model::ledger::{Ledger, RetentionLimits};
use crate::model::observation::Observation;
use crate::model::policy::{Policy, VolumeSettings};
use crate::model::probe::ProbeTarget;
use crate::model::snapshot_builder::StatusRules;
use crate::model::source_update::{SmartTarget, SourceUpdate};

/// Settings that a reload may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssessmentSettings {
    pub policy: Policy,
    /// What counts as a volume.
    pub volumes: VolumeSettings,
    /// How much history is kept.
    pub history: RetentionLimits,
}

pub type SharedAssessmentSettings = Arc<AssessmentSettings>;

pub trait Judge: StatusRules + Send + 'static {
    fn apply(
        &self,
        facts: &mut Facts,
        report: SourceUpdate,
        rules: &AssessmentSettings,
        now: Timestamp,
    ) -> Urgency;

    /// Rules that were changed by a reload, for what is judged when it is heard and not each time.
    fn apply_settings(&self, _facts: &mut Facts, _rules: &AssessmentSettings) {}

    /// The first full picture is there.
    fn is_settled(&self, facts: &Facts) -> bool;

    fn probe_targets(&self, facts: &Facts) -> Vec<ProbeTarget>;

    /// Which drives to ask for their SMART data.
    fn smart_targets(&self, facts: &Facts, ledger: &Ledger) -> Vec<SmartTarget> {
        let adverse = ledger
            .active()
            .filter(|finding| finding.severity > Severity::Info);
        let suspect: BTreeSet<&DriveId> = adverse
            .filter_map(|finding| match &finding.subject {
                Subject::Drive(id) => Some(id),
                Subject::Volume(_) | Subject::Device(_) => None,
            })
            .collect();
        facts.smart_targets(&|drive| suspect.contains(drive))
    }

    fn assess(
        &self,
        facts: &Facts,
        ledger: &Ledger,
        policy: &Policy,
        now: Timestamp,
    ) -> Vec<Judgement>;

    /// Drops drives that have been missing for too long and carried nothing; says which.
    fn prune_drives(
        &self,
        facts: &mut Facts,
        rules: &AssessmentSettings,
        now: Timestamp,
    ) -> Vec<DriveId>;

    /// Drives that the store remembers, at the start or late. What was seen in the meantime counts,
    /// with the remembered beginning.
    fn restore(&self, facts: &mut Facts, drives: Vec<KnownDrive>) {
        for old in drives {
            match facts.drives.get_mut(&old.facts.id) {
                None => drop(facts.drives.insert(old.facts.id.clone(), old)),
                Some(known) => known.first_seen = known.first_seen.min(old.first_seen),
            }
        }
    }

    /// What the store remembers of the kernel's log, at the start or late.
    fn restore_errors(
        &self,
        facts: &mut Facts,
        errors: Vec<(Subject, ErrorHistory)>,
        progress: Option<LogProgress>,
    ) {
        facts.restore_errors(errors, progress);
    }

    /// Counters as they were last read before: what grew meanwhile is seen.
    fn restore_counters(
        &self,
        facts: &mut Facts,
        remembered: Vec<(counters::CounterKey, model::counters::CounterHistory)>,
    ) {
        for (key, memory) in remembered {
            facts
                .counters
                .entry(key)
                .or_insert_with(|| Arc::new(memory));
        }
    }

    /// Known not to be here any more. What could not be read is not gone.
    fn is_removed(&self, facts: &Facts, subject: &Subject) -> bool {
        let Some(inventory) = facts.inventory.value().filter(|_| self.is_settled(facts)) else {
            return false;
        };
        match subject {
            Subject::Drive(id) => !facts.drives.contains_key(id),
            Subject::Device(name) => !inventory.devices.contains_key(name),
            Subject::Volume(id) => {
                let seen = facts.mounts.value().is_some()
                    && !matches!(facts.kubelet, Observation::Failed { .. });
                seen && !facts.volumes.contains_key(id)
            }
        }
    }
}
