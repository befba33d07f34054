//! The owner's judge as it is: the model's rules.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::assess::{self, ActiveFindings};
use crate::model::condition;
use crate::model::facts::{Facts, KnownVolume, Urgency};
use crate::model::finding::{Finding, Health, Judgement, Severity, Subject};
use crate::model::ids::DriveId;
use crate::model::ledger::Ledger;
use crate::model::policy::Policy;
use crate::model::probe::ProbeTarget;
use crate::model::reason::Reason;
use crate::model::snapshot::Volume;
use crate::model::snapshot_builder::{StatusRules, VolumeStatus};
use crate::model::source_update::SourceUpdate;
use crate::state::judge::{AssessmentSettings, Judge};

#[derive(Clone, Copy, Debug)]
pub struct ModelJudge;

impl Judge for ModelJudge {
    fn apply(
        &self,
        facts: &mut Facts,
        report: SourceUpdate,
        rules: &AssessmentSettings,
        now: Timestamp,
    ) -> Urgency {
        facts.set_smart_policy(&rules.policy.smart);
        facts.apply(report, &rules.volumes, now)
    }

    fn apply_settings(&self, facts: &mut Facts, rules: &AssessmentSettings) {
        facts.set_smart_policy(&rules.policy.smart);
    }

    fn is_settled(&self, facts: &Facts) -> bool {
        facts.settled()
    }

    fn probe_targets(&self, facts: &Facts) -> Vec<ProbeTarget> {
        facts.probe_targets()
    }

    fn assess(
        &self,
        facts: &Facts,
        ledger: &Ledger,
        policy: &Policy,
        now: Timestamp,
    ) -> Vec<Judgement> {
        assess::assess(facts, ledger, policy, now)
    }

    fn prune_drives(
        &self,
        facts: &mut Facts,
        rules: &AssessmentSettings,
        now: Timestamp,
    ) -> Vec<DriveId> {
        facts.forget_errors(&rules.policy.errors, now);
        facts.forget_missing_drives(rules.policy.forget_missing_after, now)
    }
}

impl ActiveFindings for Ledger {
    fn severity(&self, subject: &Subject, reason: Reason) -> Option<Severity> {
        self.get(subject, reason).map(|finding| finding.severity)
    }

    fn all(&self) -> Vec<(Subject, Reason)> {
        self.active()
            .map(|finding| (finding.subject.clone(), finding.reason))
            .collect()
    }
}

impl StatusRules for ModelJudge {
    fn health_unknown(&self, facts: &Facts, subject: &Subject) -> Option<String> {
        assess::health_unknown(facts, subject)
    }

    fn volume_status(
        &self,
        _: &Facts,
        volume: &KnownVolume,
        findings: &[Arc<Finding>],
        health: Health,
        unknown: Option<(&str, Timestamp)>,
        previous: Option<&Volume>,
    ) -> VolumeStatus {
        let findings: Vec<&Finding> = findings.iter().map(Arc::as_ref).collect();
        let statuses = condition::statuses(volume, &findings);
        let previous = previous.map(|previous| &previous.condition);
        let condition = condition::condition(
            &volume.facts,
            &findings,
            health,
            statuses,
            unknown,
            previous,
        );
        VolumeStatus {
            csi_status: statuses.csi,
            operational_status: statuses.operational,
            usage_status: statuses.usage,
            condition,
        }
    }
}
