//! Sources that have been down or limited for a while, and that verdicts rest on: without them, no
//! finding means nothing.

use jiff::{SignedDuration, Timestamp};

use crate::assess::text::{Level, evidence, raised, unknown};
use crate::facts::Facts;
use crate::source_update::SourceStatus;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Status, Verdict, WitnessKind};

/// The upgrade of a package takes less.
const TOLERATED: SignedDuration = SignedDuration::from_mins(10);

/// Nothing is wrong with the data.
const LEVEL: Level = (Severity::Suspect, Status::Information);

/// A source that has been down or limited for ten minutes, if something on the node is judged by it
/// and by nothing else. Clears when the source works, or when nothing depends on it.
pub(super) fn incomplete(facts: &Facts, source: Source, now: Timestamp) -> Option<Verdict> {
    let state = facts.sources.get(source)?;
    let (why, is_down) = match &state.status {
        SourceStatus::Active(_) | SourceStatus::Absent(_) => return Some(Verdict::Clear),
        SourceStatus::Limited(why) => (why, false),
        SourceStatus::Down(why) => (why, true),
    };
    if !facts.settled() {
        return unknown("what is judged by it is not known yet");
    }
    if !is_needed(facts, source, is_down) {
        return Some(Verdict::Clear);
    }
    let since = state.failing_since?;
    if now.duration_since(since) < TOLERATED {
        return unknown(why);
    }
    let label = source.label();
    let message = match is_down {
        true => format!("{label} cannot be read: {why}"),
        false => format!("{label}: only a part can be read: {why}"),
    };
    let proof = vec![evidence(WitnessKind::Other, format!("source {}", source.name()), since, why)];
    let clears = "it can be read completely, or nothing depends on it any longer";
    raised(LEVEL, message, proof, clears, Some(since))
}

/// The status as the node shows it: a source that is down, and that nothing here needs, does not
/// apply.
pub fn shown(facts: &Facts, source: Source, status: &SourceStatus) -> SourceStatus {
    match status {
        SourceStatus::Down(why)
            if source == Source::Smart && facts.settled() && !is_needed(facts, source, true) =>
        {
            SourceStatus::Absent(format!("no drive here has SMART; {why}"))
        }
        status => status.clone(),
    }
}

/// Whether a verdict rests on the source, as far as it does not work. docs/findings.md has the table.
fn is_needed(facts: &Facts, source: Source, is_down: bool) -> bool {
    match source {
        Source::Smart => {
            let mut drives = facts.drives.values();
            let mut any_has_smart =
                || drives.any(|it| it.missing_since.is_none() && facts.expects_smart(&it.facts));
            // A drive at which smartctl hangs has a finding of its own.
            facts.raid_controllers.has_errors() || is_down && any_has_smart()
        }
        // Scans find what no event announced. journald has a copy of the kernel log; what was
        // overwritten makes nothing healthy.
        Source::Udev | Source::KernelLog => is_down,
        Source::Mounts
        | Source::Kubelet
        | Source::Probe
        | Source::DiskStats
        | Source::Layers
        | Source::Counters => true,
        // Counters and the kernel log show the same errors. Without a checker, a filesystem has no
        // verdict of a check.
        Source::FsErrors | Source::Checks => false,
    }
}
