//! Which rule raises which reason.
//!
//! In: a drive or a volume with the facts and limits. Out: its verdict for one reason. The match in
//! `rule` names every reason: one that nothing can raise does not compile.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::assess::errors::DriveErrorRules;
use crate::model::assess::smart::SmartAssessment;
use crate::model::assess::{
    DriveFailure, checks, drive, filesystem, layers, merge, mounted, read_only, space, stalls,
};
use crate::model::facts::{Facts, KnownDrive, KnownVolume};
use crate::model::finding::{Severity, Verdict};
use crate::model::ids::DriveId;
use crate::model::policy::Policy;
use crate::model::reason::Reason;

type DriveRule = fn(&DriveInput) -> Option<Verdict>;
type VolumeRule = fn(&VolumeInput) -> Option<Verdict>;

enum Rule {
    /// Raised by SMART alone: `smart::rules::RULES`.
    Smart,
    /// Joined with the verdict of SMART, where SMART has a rule for the same reason.
    Drive(DriveRule),
    Volume(VolumeRule),
    DriveAndVolume(DriveRule, VolumeRule),
}

/// One drive, for all its reasons.
pub(crate) struct DriveInput<'a> {
    facts: &'a Facts,
    known: &'a KnownDrive,
    policy: &'a Policy,
    now: Timestamp,
    log: DriveErrorRules<'a>,
    smart: SmartAssessment<'a>,
}

impl<'a> DriveInput<'a> {
    pub(crate) fn new(
        facts: &'a Facts,
        known: &'a KnownDrive,
        policy: &'a Policy,
        now: Timestamp,
    ) -> Self {
        DriveInput {
            facts,
            known,
            policy,
            now,
            log: DriveErrorRules::new(facts, known, policy, now),
            smart: SmartAssessment::new(facts, known, &policy.smart),
        }
    }

    pub(crate) fn verdict(&self, reason: Reason) -> Option<Verdict> {
        let verdict = match rule(reason) {
            Rule::Volume(_) => return None,
            Rule::Smart => None,
            Rule::Drive(rule) | Rule::DriveAndVolume(rule, _) => rule(self),
        };
        merge(verdict, self.smart.verdict(reason))
    }
}

/// One volume, for one reason.
pub(crate) struct VolumeInput<'a> {
    pub facts: &'a Facts,
    pub known: &'a KnownVolume,
    pub policy: &'a Policy,
    pub now: Timestamp,
    /// How severe the active finding of this reason is.
    pub active: Option<Severity>,
    pub failing_drives: &'a BTreeMap<DriveId, DriveFailure>,
}

impl VolumeInput<'_> {
    pub(crate) fn verdict(&self, reason: Reason) -> Option<Verdict> {
        match rule(reason) {
            Rule::Smart | Rule::Drive(_) => None,
            Rule::Volume(rule) | Rule::DriveAndVolume(_, rule) => rule(self),
        }
    }
}

fn rule(reason: Reason) -> Rule {
    match reason {
        Reason::SmartFailing
        | Reason::SmartAttributeFailing
        | Reason::SmartAttributeSuspect
        | Reason::ReallocatedSectors
        | Reason::PendingSectors
        | Reason::SpareLow
        | Reason::WornOut
        | Reason::DriveReadOnly
        | Reason::Overheating
        | Reason::SelfTestFailed
        | Reason::FirmwareNotice => Rule::Smart,

        Reason::DriveMissing => {
            Rule::Drive(|of| drive::missing(of.facts, of.known, of.policy, of.now))
        }
        Reason::DriveOffline => {
            Rule::Drive(|of| drive::offline(of.facts, of.known, of.policy, of.now))
        }
        Reason::MediaErrors => Rule::Drive(|of| of.log.media_errors()),
        Reason::IoErrors => Rule::DriveAndVolume(
            |of| of.smart.blame_link(of.log.io_errors()),
            |of| filesystem::io_errors(of.facts, of.known, of.policy, of.now),
        ),
        Reason::IoTimeouts => Rule::Drive(|of| of.smart.blame_link(of.log.timeouts())),
        Reason::ControllerResets => Rule::Drive(|of| of.log.resets()),
        Reason::LinkErrors => Rule::Drive(|of| of.log.link_errors()),
        Reason::SmartUnavailable => Rule::Drive(|of| of.smart.unavailable()),
        Reason::ProbeTimeout => Rule::DriveAndVolume(
            |of| of.smart.timed_out(),
            |of| stalls::volume_probe(of.facts, of.known),
        ),

        Reason::DeviceMissing => {
            Rule::Volume(|of| mounted::device_missing(of.facts, of.known, of.now))
        }
        Reason::StagingNotMounted => {
            Rule::Volume(|of| mounted::staging_not_mounted(of.facts, of.known, of.policy, of.now))
        }
        Reason::NotMounted => {
            Rule::Volume(|of| mounted::not_mounted(of.facts, of.known, of.policy, of.now))
        }
        Reason::NotAccessible => Rule::Volume(|of| mounted::not_accessible(of.facts, of.known)),
        Reason::ReadOnly => {
            Rule::Volume(|of| read_only::read_only(of.facts, of.known, of.active.is_some()))
        }
        Reason::FilesystemErrors => {
            Rule::Volume(|of| filesystem::errors(of.facts, of.known, of.policy, of.now))
        }
        Reason::FilesystemCorrupted => {
            Rule::Volume(|of| filesystem::corrupted(of.facts, of.known, of.policy, of.now))
        }
        Reason::FilesystemSuspect => Rule::Volume(|of| checks::suspect(of.facts, of.known)),
        Reason::FilesystemShutdown => Rule::Volume(|of| filesystem::shutdown(of.facts, of.known)),
        Reason::OutOfSpace => {
            Rule::Volume(|of| space::out_of_space(of.facts, of.known, of.policy, of.active))
        }
        Reason::OutOfInodes => {
            Rule::Volume(|of| space::out_of_inodes(of.facts, of.known, of.policy, of.active))
        }
        Reason::IoStalled => Rule::Volume(|of| stalls::io_stalled(of.facts, of.known, of.policy)),
        Reason::RaidDegraded => Rule::Volume(|of| layers::raid_degraded(of.facts, &of.known.facts)),
        Reason::ThinPoolFull => Rule::Volume(|of| {
            layers::thin_pool_full(of.facts, &of.known.facts, of.policy, of.active)
        }),
        Reason::PathsDegraded => {
            Rule::Volume(|of| layers::paths_degraded(of.facts, &of.known.facts))
        }
        Reason::DriveFailing => {
            Rule::Volume(|of| drive::failing(of.facts, of.known, of.failing_drives, of.now))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::reason::ReasonScope;
    use crate::model::smart::rules::RULES;

    #[test]
    fn the_scope_in_each_row_is_that_of_the_rule() {
        for reason in Reason::ALL {
            let scope = match rule(*reason) {
                Rule::Smart | Rule::Drive(_) => ReasonScope::Drive,
                Rule::Volume(_) => ReasonScope::Volume,
                Rule::DriveAndVolume(..) => ReasonScope::Both,
            };
            assert_eq!(reason.scope(), scope, "{reason}");
        }
    }

    #[test]
    fn smart_has_a_rule_for_each_reason_that_only_smart_raises() {
        for reason in Reason::ALL {
            if matches!(rule(*reason), Rule::Smart) {
                assert!(RULES.iter().any(|row| row.reason == *reason), "{reason}");
            }
        }
    }

    #[test]
    fn every_smart_rule_has_a_reason_about_drives() {
        for row in RULES {
            assert_ne!(row.reason.scope(), ReasonScope::Volume, "{}", row.reason);
        }
    }
}
