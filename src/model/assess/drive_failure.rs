//! Findings of a volume that follow from the failure of a drive below it. They are announced once, as
//! DriveFailing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::assess::text::{INFO, Level, join_limited};
use crate::assess::{DriveFailure, MAX_MESSAGE};
use crate::facts::KnownVolume;
use diskvitals_finding::Verdict;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::{LayerKind, Reason};
use diskvitals_text::echo::truncate;

/// The verdicts on one volume, each with the level of the active finding.
pub(super) type Verdicts = Vec<(Reason, Option<Verdict>, Option<Level>)>;

/// Whether reads or writes of the volume fail or wait. What an array lacks is no such sign: the drives
/// that it lacks endanger data themselves.
pub(super) fn is_in_trouble(verdicts: &Verdicts) -> bool {
    verdicts.iter().any(|(reason, verdict, active)| {
        let holds = match verdict {
            Some(Verdict::Raised(_)) => true,
            Some(Verdict::Clear) => false,
            Some(Verdict::Unknown { .. }) | None => active.is_some(),
        };
        let lacks_members = match reason.layer() {
            Some(LayerKind::Array) => true,
            Some(LayerKind::Zpool) => !reason.is_unreachable(),
            Some(LayerKind::Pool | LayerKind::Paths | LayerKind::Cache | LayerKind::Scrubbed)
            | None => false,
        };
        holds && reason.follows_drive() && !lacks_members
    })
}

/// Without drives that md has taken out of the arrays of the volume, and that have no other finding:
/// they hold nothing of it any more, and RedundancyLost or RaidDegraded says what is left.
pub(super) fn without_former_members<'a>(
    failing: &'a BTreeMap<DriveId, DriveFailure>,
    known: &KnownVolume,
) -> Cow<'a, BTreeMap<DriveId, DriveFailure>> {
    let holding = known.facts.stack.drives();
    let is_former = |id: &DriveId, failure: &DriveFailure| {
        failure.reasons == [Reason::RaidMemberFailed]
            && known.facts.drive_ids.contains(id)
            && !holding.is_empty()
            && !holding.contains(&id)
    };
    if !failing.iter().any(|(id, failure)| is_former(id, failure)) {
        return Cow::Borrowed(failing);
    }
    let mut failing = failing.clone();
    failing.retain(|id, failure| !is_former(id, failure));
    Cow::Owned(failing)
}

/// Marks the findings that follow from the failure of a drive, and gives DriveFailing the worst
/// severity and status among them: it announces them all.
pub(super) fn mark(
    verdicts: &mut Verdicts,
    known: &KnownVolume,
    failing: &BTreeMap<DriveId, DriveFailure>,
) {
    let is_cause = |id: &DriveId| {
        failing.get(id).is_some_and(|failure| failure.reasons.iter().any(|it| it.fails_io()))
    };
    let has_cause = known.facts.drive_ids.iter().any(is_cause);
    let mut worst = INFO;
    let mut present = Vec::new();
    for (reason, verdict, active) in verdicts.iter_mut() {
        let is_of_drives = reason.is_of_drives() && *reason != Reason::DriveFailing;
        if !(is_of_drives || has_cause && reason.follows_drive()) {
            continue;
        }
        let level = match verdict {
            Some(Verdict::Raised(raised)) => {
                raised.of_drive_failure = true;
                Some((raised.severity, raised.status))
            }
            Some(Verdict::Clear) => None,
            Some(Verdict::Unknown { .. }) | None => *active,
        };
        if let Some((severity, status)) = level {
            worst = (worst.0.max(severity), worst.1.max(status));
            present.push(*reason);
        }
    }
    if !has_cause && present.is_empty() {
        return;
    }
    let failing = verdicts.iter_mut().find(|(reason, ..)| *reason == Reason::DriveFailing);
    if let Some((_, Some(Verdict::Raised(raised)), _)) = failing {
        raised.of_drive_failure = true;
        raised.severity = raised.severity.max(worst.0);
        raised.status = raised.status.max(worst.1);
        if !present.is_empty() {
            let message = format!("{}; it also has {}", raised.message, join_limited(present));
            raised.message = truncate(&message, MAX_MESSAGE);
        }
    }
}
