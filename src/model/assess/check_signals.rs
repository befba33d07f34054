//! Which evidence of the kernel about a filesystem keeps a check from starting, or decides it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::assess::counters::changed;
use crate::assess::filesystem;
use crate::assess::input::{Context, VolumeInput};
use crate::assess::text::{MOUNTINFO, evidence};
use crate::counters::{Counter, CounterHistory};
use crate::facts::{Facts, KnownVolume};
use crate::policy::Policy;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Verdict, WitnessKind};
use diskvitals_fscheck::{FilesystemSignal, SignalKind};

/// EXT4_ERR_EFSBADCRC and EXT4_ERR_EFSCORRUPTED (fs/ext4/ext4.h): values of `last_error_errcode` in
/// /sys/fs/ext4/NAME.
const EXT4_CORRUPTED: [&str; 2] = ["4", "5"];

/// Kernel evidence about a mounted filesystem; any of it prevents a check. The source of each
/// signal is the finding's own evidence.
pub fn signals(
    facts: &Facts,
    known: &KnownVolume,
    policy: &Policy,
    now: Timestamp,
) -> Vec<FilesystemSignal> {
    let mut signals = Vec::new();
    let mut add = |kind: SignalKind, verdict: Option<Verdict>| {
        let Some(Verdict::Raised(raised)) = verdict else {
            return;
        };
        // Damage that redundancy has repaired does not count, nor what ext4 has not counted: the check
        // reads the filesystem.
        let is_uncounted = || ext4_errors(facts, known).is_some_and(|(_, errors)| errors.last == 0);
        if kind == SignalKind::Corrupted && (raised.severity < Severity::Bad || is_uncounted()) {
            return;
        }
        let proof = raised.evidence.last().cloned();
        signals.push(FilesystemSignal {
            kind,
            evidence: proof.unwrap_or_else(|| {
                evidence(WitnessKind::Other, "the kernel", now, &raised.message)
            }),
        });
    };
    let input = &VolumeInput {
        context: Context { facts, policy, now },
        known,
        active: None,
        has_last_copy: false,
        failing_drives: &BTreeMap::new(),
        drive_findings: &BTreeMap::new(),
        pools: &BTreeMap::new(),
    };
    add(SignalKind::Corrupted, filesystem::kernel_corrupted(input));
    add(SignalKind::Fault, filesystem::shutdown(input));
    add(SignalKind::Fault, filesystem::logged_errors(input));
    add(SignalKind::Fault, filesystem::io_errors(input));
    signals.extend(ext4_error_count(facts, known));
    let emergency = known.facts.mounts.iter().find(|mount| mount.has_super_option("emergency_ro"));
    if let (Some(mount), Some(at)) = (emergency, facts.mounts.at()) {
        let text = format!("{}: {}", mount.path, mount.super_options.join(","));
        let evidence = evidence(WitnessKind::MountTable, MOUNTINFO, at, text);
        signals.push(FilesystemSignal { kind: SignalKind::Fault, evidence });
    }
    signals
}

/// The superblock's count of errors since mkfs or the last repair: e2fsck resets it.
fn ext4_error_count(facts: &Facts, known: &KnownVolume) -> Option<FilesystemSignal> {
    let (history, errors) = ext4_errors(facts, known).filter(|(_, errors)| errors.last > 0)?;
    let code = |which: &str| Some(history.details.get(&format!("{which}_error_errcode"))?.trim());
    let corrupted = [code("first"), code("last")].into_iter().flatten();
    let kind = if corrupted.into_iter().any(|code| EXT4_CORRUPTED.contains(&code)) {
        SignalKind::Corrupted
    } else {
        SignalKind::Fault
    };
    let last = code("last").unwrap_or("not reported");
    let text = format!("errors_count {}, last_error_errcode {last}", errors.last);
    let at = changed(errors);
    Some(FilesystemSignal {
        kind,
        evidence: evidence(WitnessKind::Counter, &history.file, at, text),
    })
}

fn ext4_errors<'a>(
    facts: &'a Facts,
    known: &KnownVolume,
) -> Option<(&'a CounterHistory, &'a Counter)> {
    let history = facts.filesystem_counters(known, "ext4")?;
    let mut counters = history.counters();
    let (_, errors) = counters.find(|(name, _)| *name == "errors_count")?;
    Some((history, errors))
}
