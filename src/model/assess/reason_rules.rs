//! Which rule raises which reason.
//!
//! In: a drive or a volume with the facts and limits. Out: its verdict for one reason. The match in
//! `rule` names every reason, so a reason that no rule raises does not compile.

use crate::assess::input::{DriveInput, VolumeInput};
use crate::assess::{
    checks, drive, duplicate, errors, filesystem, flash, integrity, layers, link, member_fitness,
    merge, mounted, pool, pool_space, raid_member, raid_volume, read_only, redundancy, risk, scrub,
    space, stalls,
};
use diskvitals_finding::Verdict;
use diskvitals_finding::reason::Reason;

type DriveRule = fn(&DriveInput) -> Option<Verdict>;
type VolumeRule = fn(&VolumeInput) -> Option<Verdict>;

enum Rule {
    /// Raised only by SMART: `smart::rules::RULES`.
    Smart,
    /// Merged with the verdict of SMART, if SMART has a rule for the same reason.
    Drive(DriveRule),
    Volume(VolumeRule),
    DriveAndVolume(DriveRule, VolumeRule),
    /// Neither about a drive nor a volume: `sources::incomplete`.
    Source,
}

impl DriveInput<'_> {
    pub(crate) fn verdict(&self, reason: Reason) -> Option<Verdict> {
        let verdict = match rule(reason) {
            Rule::Volume(_) | Rule::Source => return None,
            Rule::Smart => None,
            Rule::Drive(rule) | Rule::DriveAndVolume(rule, _) => rule(self),
        };
        merge(verdict, self.smart.verdict(reason))
    }
}

impl VolumeInput<'_> {
    pub(crate) fn verdict(&self, reason: Reason) -> Option<Verdict> {
        match rule(reason) {
            Rule::Smart | Rule::Drive(_) | Rule::Source => None,
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
        | Reason::DriveReadOnly
        | Reason::Overheating
        | Reason::SelfTestFailed
        | Reason::SelfTestOverdue
        | Reason::FirmwareNotice => Rule::Smart,

        Reason::SpareLow => Rule::Drive(flash::spare_low),
        Reason::WornOut => Rule::Drive(flash::worn_out),
        Reason::DriveMissing => Rule::Drive(drive::missing),
        Reason::DriveOffline => Rule::Drive(drive::offline),
        Reason::DuplicateIdentity => Rule::Drive(duplicate::shares_identity),
        Reason::RaidMemberFailed => Rule::Drive(raid_member::failed),
        Reason::RaidVolumeDegraded => Rule::Drive(raid_volume::degraded),
        Reason::RaidStateUnknown => Rule::Drive(raid_volume::state_unknown),
        Reason::RaidCacheUnprotected => Rule::Drive(raid_volume::cache_unprotected),
        Reason::RaidForeignConfig => Rule::Drive(raid_volume::foreign_configuration),
        Reason::MediaErrors => Rule::Drive(errors::media_errors),
        Reason::IoErrors => Rule::DriveAndVolume(
            |input| input.smart.blame_link(errors::io_errors(input)),
            filesystem::io_errors,
        ),
        Reason::IoTimeouts => Rule::Drive(|input| input.smart.blame_link(errors::timeouts(input))),
        Reason::ControllerResets => Rule::Drive(errors::resets),
        Reason::LinkErrors => {
            Rule::Drive(|input| merge(errors::link_errors(input), link::phy_errors(input)))
        }
        Reason::TimeoutMismatch => Rule::Drive(member_fitness::timeout_mismatch),
        Reason::SmrInArray => Rule::Drive(member_fitness::smr_in_array),
        Reason::LinkDowngraded => Rule::Drive(link::downgraded),
        Reason::SmartUnavailable => Rule::Drive(|input| input.smart.unavailable()),
        Reason::ProbeTimeout => {
            Rule::DriveAndVolume(|input| input.smart.timed_out(), stalls::volume_probe)
        }

        Reason::DeviceMissing => Rule::Volume(mounted::device_missing),
        Reason::StagingNotMounted => Rule::Volume(mounted::staging_not_mounted),
        Reason::NotMounted => Rule::Volume(mounted::not_mounted),
        Reason::NotAccessible => Rule::Volume(mounted::not_accessible),
        Reason::ReadOnly => Rule::Volume(read_only::read_only),
        Reason::FilesystemErrors => Rule::Volume(filesystem::errors),
        Reason::FilesystemCorrupted => Rule::Volume(filesystem::corrupted),
        Reason::FilesystemSuspect => Rule::Volume(checks::suspect),
        Reason::FilesystemShutdown => Rule::Volume(filesystem::shutdown),
        Reason::OutOfSpace => Rule::Volume(space::out_of_space),
        Reason::OutOfInodes => Rule::Volume(space::out_of_inodes),
        Reason::IoStalled => Rule::Volume(stalls::io_stalled),
        Reason::RedundancyLost => Rule::Volume(redundancy::redundancy_lost),
        Reason::RedundancyAtRisk => Rule::Volume(risk::redundancy_at_risk),
        Reason::ArrayMismatch => Rule::Volume(redundancy::array_mismatch),
        Reason::RaidDegraded => Rule::Volume(redundancy::raid_degraded),
        Reason::ScrubOverdue => Rule::Volume(scrub::overdue),
        Reason::ThinPoolFull => Rule::Volume(layers::thin_pool_full),
        Reason::CacheFailed => Rule::Volume(layers::cache_failed),
        Reason::PathsDegraded => Rule::Volume(layers::paths_degraded),
        Reason::PoolDataErrors => Rule::Volume(pool::data_errors),
        Reason::PoolDegraded => Rule::Volume(pool::degraded),
        Reason::PoolErrors => Rule::Drive(pool::member_errors),
        Reason::IntegrityErrors => Rule::Drive(integrity::mismatches),
        Reason::PoolFull => Rule::Volume(pool_space::full),
        Reason::PoolFaulted => Rule::Volume(pool::faulted),
        Reason::PoolSuspended => Rule::Volume(pool::suspended),
        Reason::DriveFailing => Rule::Volume(drive::failing),

        Reason::MonitoringIncomplete => Rule::Source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_finding::reason::ReasonScope;
    use diskvitals_smart::rules::RULES;

    #[test]
    fn the_scope_in_each_row_is_that_of_the_rule() {
        for reason in Reason::ALL {
            let scope = match rule(*reason) {
                Rule::Smart | Rule::Drive(_) => ReasonScope::Drive,
                Rule::Volume(_) => ReasonScope::Volume,
                Rule::DriveAndVolume(..) => ReasonScope::Both,
                Rule::Source => ReasonScope::Source,
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
