//! The owner's judge as it is: the model's rules.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::assess::{self, Active};
use crate::model::condition;
use crate::model::facts::{Change, Facts, KnownVolume};
use crate::model::finding::{Finding, Health, Judgement, Severity, Subject};
use crate::model::ids::DriveId;
use crate::model::ledger::Ledger;
use crate::model::picture::{Standing, Verdicts};
use crate::model::policy::Policy;
use crate::model::probe::ProbeTarget;
use crate::model::reason::Reason;
use crate::model::report::Report;
use crate::model::snapshot::Volume;
use crate::state::judge::{Judge, Rules};

#[derive(Clone, Copy, Debug)]
pub struct Model;

impl Judge for Model {
    fn apply(&self, facts: &mut Facts, report: Report, rules: &Rules, now: Timestamp) -> Change {
        facts.judge_by(&rules.policy.smart);
        facts.apply(report, &rules.volumes, now)
    }

    fn take_rules(&self, facts: &mut Facts, rules: &Rules) {
        facts.judge_by(&rules.policy.smart);
    }

    fn settled(&self, facts: &Facts) -> bool {
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

    fn forget(&self, facts: &mut Facts, rules: &Rules, now: Timestamp) -> Vec<DriveId> {
        facts.forget_errors(&rules.policy.errors, now);
        facts.forget(rules.policy.forget_missing_after, now)
    }
}

impl Active for Ledger {
    fn severity(&self, subject: &Subject, reason: Reason) -> Option<Severity> {
        self.get(subject, reason).map(|finding| finding.severity)
    }

    fn all(&self) -> Vec<(Subject, Reason)> {
        self.active()
            .map(|finding| (finding.subject.clone(), finding.reason))
            .collect()
    }
}

impl Verdicts for Model {
    fn health_unknown(&self, facts: &Facts, subject: &Subject) -> Option<String> {
        assess::health_unknown(facts, subject)
    }

    fn standing(
        &self,
        _: &Facts,
        volume: &KnownVolume,
        findings: &[Arc<Finding>],
        health: Health,
        unknown: Option<(&str, Timestamp)>,
        previous: Option<&Volume>,
    ) -> Standing {
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
        Standing {
            csi_status: statuses.csi,
            operational_status: statuses.operational,
            usage_status: statuses.usage,
            condition,
        }
    }
}
