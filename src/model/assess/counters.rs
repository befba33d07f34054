//! Counters that count the same errors as the kernel log, shown beside its records. Each has the time of
//! its last change, so that a finding does not change with each reading.
//!
//! And whether they, or another kind of witness, support what the log says (`proof`): BAD from the log
//! needs two, where there are two.

use jiff::Timestamp;

use crate::assess::input::Context;
use crate::assess::smart::SmartAssessment;
use crate::assess::text::evidence;
use crate::counters::{Counter, CounterHistory};
use crate::facts::kernel_log::second_witness::NO_ANSWER_AFTER;
use crate::facts::{Facts, KnownVolume};
use crate::volume::VolumeFacts;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Evidence, Subject, Verdict, WitnessKind};
use diskvitals_kernel_log::error_history::{ErrorTally, SecondWitness};
use diskvitals_kernel_log::event::{Class, Line, LineOrigin};
use diskvitals_text::duration::elapsed;

/// Adds the counters to the evidence, except those that it quotes already.
pub(crate) fn shown_beside(
    verdict: Option<Verdict>,
    counters: impl IntoIterator<Item = Evidence>,
) -> Option<Verdict> {
    let Some(Verdict::Raised(mut raised)) = verdict else {
        return verdict;
    };
    for counter in counters {
        let is_quoted = |quoted: &Evidence| quoted.text.starts_with(&counter.source);
        if !raised.evidence.iter().any(is_quoted) {
            raised.evidence.push(counter);
        }
    }
    Some(Verdict::Raised(raised))
}

/// The drive's own count of unrecovered errors (NVMe Base 2.0 5.16.1.3, Media and Data Integrity
/// Errors), unless the drive has a finding from that count, which quotes it.
pub(crate) fn of_drive(smart: &SmartAssessment<'_>) -> Option<Evidence> {
    let (source, point) = smart.media_errors()?;
    let text = format!("Media and Data Integrity Errors: {}", point.value);
    Some(evidence(WitnessKind::Smart, source, point.at, text))
}

/// `errors_count` of ext4's superblock (fs/ext4/sysfs.c), or the device statistics of each member
/// of a btrfs (fs/btrfs/sysfs.c), as far as they count errors of this class.
pub(crate) fn of_filesystem(facts: &Facts, known: &KnownVolume, class: Class) -> Vec<Evidence> {
    let statistics: &[&str] = match class {
        Class::FsError => &["read_errs", "write_errs", "flush_errs"],
        Class::FsCorruption => &["corruption_errs", "generation_errs"],
        _ => return Vec::new(),
    };
    let ext4 = facts.filesystem_counters(known, "ext4");
    let ext4 = ext4.and_then(|history| quoted(history, &["errors_count"]));
    ext4.into_iter()
        .chain(facts.btrfs_counters(known).filter_map(|history| quoted(history, statistics)))
        .collect()
}

/// `errors_count 3, …`, at the time of the last change of one of them.
fn quoted(history: &CounterHistory, names: &[&str]) -> Option<Evidence> {
    let counters: Vec<(&str, &Counter)> =
        history.counters().filter(|(name, _)| names.contains(name)).collect();
    let at = counters.iter().map(|(_, counter)| changed(counter)).max()?;
    let text: Vec<String> =
        counters.iter().map(|(name, counter)| format!("{name} {}", counter.last)).collect();
    Some(evidence(WitnessKind::Counter, &history.file, at, text.join(", ")))
}

/// Its last growth, or its first reading.
pub(super) fn changed(counter: &Counter) -> Timestamp {
    counter.last_growth.unwrap_or(counter.since)
}

/// What a verdict of BAD rests on besides the kernel's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    Confirmed,
    /// Nothing else can say it, or it does not answer: a whole record is enough.
    LogAlone,
    /// Only a suspicion, and why.
    Doubted(&'static str),
}

impl Proof {
    /// The severity that it leaves of what the records alone would mean, and what the message says of it.
    pub(super) fn limit(self, severity: Severity) -> (Severity, String) {
        match self {
            Proof::LogAlone if severity == Severity::Bad => (severity, " (log alone)".to_owned()),
            Proof::Doubted(why) => (severity.min(Severity::Suspect), format!(" ({why})")),
            Proof::Confirmed | Proof::LogAlone => (severity, String::new()),
        }
    }
}

/// Whether a second kind of witness supports the records in this tally: a counter, a failed read by a
/// probe, a state in sysfs. `facts::kernel_log::second_witness` has compared them.
pub(super) fn proof(
    context: Context,
    subject: &Subject,
    class: Class,
    tally: &ErrorTally,
) -> Proof {
    let (facts, now) = (context.facts, context.now);
    let is_logged = |line: &Line| line.origin == LineOrigin::KernelLog;
    if tally.second_witness == SecondWitness::Confirmed
        || !is_logged(&tally.first)
        || !is_logged(&tally.last)
        || fails_itself(facts, subject, tally.first.time)
    {
        return Proof::Confirmed;
    }
    let last = tally.last.time;
    let answered_since = match tally.second_witness {
        SecondWitness::Unmoved(at) if at > last => {
            return Proof::Doubted(
                "only the kernel log says so: the counters of such errors have not moved",
            );
        }
        SecondWitness::Unmoved(_) => last,
        // Records that nothing could refute in time are proof, also once there are more of them.
        SecondWitness::Silent | SecondWitness::Confirmed => tally.first.time,
    };
    let is_awaited = elapsed(answered_since, now) < NO_ANSWER_AFTER
        && facts.may_be_refuted(subject, class, tally);
    match is_awaited {
        true => Proof::Doubted(
            "so far only the kernel log says so: the counters of such errors are being read",
        ),
        false => Proof::LogAlone,
    }
}

/// A probe of the volume, or of a volume on the drive, has failed since the first record; or the
/// kernel does not use the drive.
fn fails_itself(facts: &Facts, subject: &Subject, since: Timestamp) -> bool {
    match subject {
        Subject::Volume(id) => {
            facts.volumes.get(id).is_some_and(|known| fails_its_probe(facts, &known.facts, since))
        }
        Subject::Drive(id) => facts.drives.get(id).is_some_and(|known| {
            let mut volumes = known.volumes.iter().filter_map(|id| facts.volumes.get(id));
            known.is_unusable()
                || volumes.any(|volume| fails_its_probe(facts, &volume.facts, since))
        }),
        Subject::Device(_) | Subject::Source(_) => false,
    }
}

pub(super) fn fails_its_probe(facts: &Facts, volume: &VolumeFacts, since: Timestamp) -> bool {
    failed_probe(facts, volume, since).is_some()
}

/// A read by our own probe that has failed since then, or has not returned.
pub(super) fn failed_probe(
    facts: &Facts,
    volume: &VolumeFacts,
    since: Timestamp,
) -> Option<Evidence> {
    volume.mounts.iter().find_map(|mount| {
        let (path, probe) = (&mount.path, facts.probes.get(&mount.path)?);
        if let Some(stuck) = probe.stuck.as_ref().filter(|stuck| stuck.since >= since) {
            let text = "it has not returned";
            return Some(evidence(WitnessKind::Probe, format!("probe {path}"), stuck.since, text));
        }
        let Observation::Ok { at, value } = &probe.result else {
            return None;
        };
        let error = value.readdir.as_ref().err().or(value.statfs.as_ref().err())?;
        let source = format!("{} {path}", error.operation);
        (*at >= since).then(|| evidence(WitnessKind::Probe, source, *at, &error.text))
    })
}
