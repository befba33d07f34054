//! What else holds the data of a drive or volume: it decides whether advice begins with a copy.

use crate::advice::{Action, action_of, has_last_copy, volumes_of};
use crate::snapshot::{Drive, Snapshot, Volume};
use crate::volume::Impact;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Cover;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Health, Subject};

pub(super) fn of(snapshot: &Snapshot, subject: &Subject) -> Cover {
    match subject {
        Subject::Drive(id) => match snapshot.drives.get(id) {
            Some(drive) => of_drive(snapshot, drive),
            None => Cover::Unknown,
        },
        Subject::Volume(id) => match snapshot.volumes.get(id) {
            Some(volume) => of_volume(snapshot, volume),
            None => Cover::Unknown,
        },
        Subject::Device(_) | Subject::Source(_) => Cover::Unknown,
    }
}

fn of_drive(snapshot: &Snapshot, drive: &Drive) -> Cover {
    if drive.facts.location.raid_controller.is_some() {
        return Cover::Unknown;
    }
    let volumes = volumes_of(snapshot, drive);
    match (volumes.exposed.is_empty(), volumes.last.is_empty()) {
        (false, _) => Cover::Exposed,
        (true, false) => Cover::Covered,
        (true, true) if !volumes.unknown.is_empty() => Cover::Unknown,
        (true, true) if !volumes.covered.is_empty() => Cover::Covered,
        (true, true) => Cover::Unknown,
    }
}

/// Against the failure of those of its drives that have findings.
fn of_volume(snapshot: &Snapshot, volume: &Volume) -> Cover {
    let endangers = |id: &DriveId| {
        let drive = snapshot.drives.get(id);
        let mut findings = drive.into_iter().flat_map(|drive| &drive.findings);
        findings.any(|id| {
            let finding = snapshot.findings.get(id);
            finding.is_some_and(|it| it.reason.endangers_data_at().contains(&it.severity))
        })
    };
    let is_adverse = |id: &DriveId| {
        let drive = snapshot.drives.get(id);
        drive.is_some_and(|drive| matches!(drive.health, Health::Bad | Health::Suspect))
    };
    let stack = &volume.facts.stack;
    match stack.impact(&endangers).max(stack.impact(&is_adverse)) {
        Impact::Exposed => Cover::Exposed,
        Impact::Covered if has_last_copy(snapshot, volume) => Cover::Last,
        Impact::Covered => Cover::Covered,
        Impact::None | Impact::Unknown => Cover::Unknown,
    }
}

/// Whether the drive of the finding is to be replaced anyway, for a finding that is worse.
pub(super) fn is_replaced_anyway(snapshot: &Snapshot, finding: &Finding) -> bool {
    let Subject::Drive(id) = &finding.subject else {
        return false;
    };
    let drive = snapshot.drives.get(id);
    let others = drive.into_iter().flat_map(|drive| &drive.findings);
    finding.severity == Severity::Suspect
        && action_of(finding) != Action::ReplaceNow
        && others
            .filter_map(|id| snapshot.findings.get(id))
            .any(|other| action_of(other) == Action::ReplaceNow && other.severity == Severity::Bad)
}
