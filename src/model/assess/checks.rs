//! Rules about volumes from filesystem checks, and what the kernel's own word means for a check
//! that is to begin.

use jiff::Timestamp;

use crate::model::assess::filesystem;
use crate::model::assess::text::{evidence, raised};
use crate::model::check::{
    Check, CheckVerdict, FilesystemSignal, Mode, Run, RunResult, SignalKind, Weight,
};
use crate::model::facts::{Facts, KnownVolume};
use crate::model::finding::{Evidence, Severity, Status, Verdict};
use crate::model::policy::Policy;

/// Lines of one run that are shown as evidence.
const MAX_EVIDENCE_LINES: usize = 5;
/// EXT4_ERR_EFSBADCRC and EXT4_ERR_EFSCORRUPTED (fs/ext4/ext4.h): what `last_error_errcode` in
/// /sys/fs/ext4/NAME says.
const EXT4_CORRUPTED: [&str; 2] = ["4", "5"];

/// A check has shown that the filesystem is damaged. BAD; DATA_LOSS where structures or data are
/// damaged and not bookkeeping alone. Clears with a later CLEAN check of at least the same
/// strength, or a new filesystem on the device.
pub(crate) fn corrupted(facts: &Facts, known: &KnownVolume) -> Option<Verdict> {
    verdict_of(latest_unrefuted(
        facts.checks_of(known).map(AsRef::as_ref),
        CheckVerdict::Corrupted,
    ))
}

/// Live runs showed the same findings each time. SUSPECT. Clears with any later CLEAN check; a
/// later CORRUPTED one says more.
pub(crate) fn suspect(facts: &Facts, known: &KnownVolume) -> Option<Verdict> {
    let checks = || facts.checks_of(known).map(AsRef::as_ref);
    if latest_unrefuted(checks(), CheckVerdict::Corrupted).is_some() {
        return Some(Verdict::Clear);
    }
    verdict_of(latest_unrefuted(checks(), CheckVerdict::Suspected))
}

/// The same of a device that carries no volume now, by what was checked on it.
pub(crate) fn device(facts: &Facts, name: &str) -> Option<Verdict> {
    let uuid = facts
        .inventory()
        .and_then(|inventory| inventory.devices.get(name))
        .and_then(|device| device.fs_uuid.clone());
    // Another filesystem may be on it by now: only what can be told to be the same counts.
    let same =
        |check: &&Check| check.target.device == name && uuid.is_some() && check.target.uuid == uuid;
    verdict_of(latest_unrefuted(
        facts.checks.all().values().map(AsRef::as_ref).filter(same),
        CheckVerdict::Corrupted,
    ))
}

/// When a check last found it clean where nothing moved: what the kernel said before is over.
pub(crate) fn last_clean_check(facts: &Facts, known: &KnownVolume) -> Option<Timestamp> {
    let clean = |check: &&std::sync::Arc<Check>| {
        check.verdict == Some(CheckVerdict::Clean) && check.mode.at_least(Mode::Frozen)
    };
    facts
        .checks_of(known)
        .filter(clean)
        .filter_map(|check| check.started)
        .max()
}

/// What the kernel says of a mounted filesystem: with any of it nothing is run. The source of each
/// is the finding's own evidence.
pub(crate) fn signals(
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
        // What redundancy has put right is no damage now.
        if kind == SignalKind::Corrupted && raised.severity < Severity::Bad {
            return;
        }
        let proof = raised.evidence.last().cloned();
        signals.push(FilesystemSignal {
            kind,
            evidence: proof.unwrap_or_else(|| evidence("the kernel", now, &raised.message)),
        });
    };
    add(
        SignalKind::Corrupted,
        filesystem::kernel_corrupted(facts, known, policy, now),
    );
    add(SignalKind::Fault, filesystem::shutdown(facts, known));
    add(
        SignalKind::Fault,
        filesystem::errors(facts, known, policy, now),
    );
    add(
        SignalKind::Fault,
        filesystem::io_errors(facts, known, policy, now),
    );
    signals.extend(ext4_error_count(facts, known));
    let emergency = |mount: &&crate::model::volume::VolumeMount| {
        mount
            .super_options
            .iter()
            .any(|option| option == "emergency_ro")
    };
    if let (Some(mount), Some(at)) = (known.facts.mounts.iter().find(emergency), facts.mounts.at())
    {
        let text = format!("{}: {}", mount.path, mount.super_options.join(","));
        signals.push(FilesystemSignal {
            kind: SignalKind::Fault,
            evidence: evidence(crate::model::assess::text::MOUNTINFO, at, text),
        });
    }
    signals
}

/// The superblock's count of errors since it was made or last repaired: e2fsck sets it back.
fn ext4_error_count(facts: &Facts, known: &KnownVolume) -> Option<FilesystemSignal> {
    let memory = facts.filesystem_counters(known, "ext4")?;
    let (_, errors) = memory
        .counters()
        .find(|(name, counter)| *name == "errors_count" && counter.last > 0)?;
    let code = |which: &str| {
        memory
            .details
            .get(&format!("{which}_error_errcode"))
            .map(|code| code.trim().to_owned())
    };
    let corrupted = ["first", "last"]
        .iter()
        .filter_map(|which| code(which))
        .any(|code| EXT4_CORRUPTED.contains(&code.as_str()));
    let kind = if corrupted {
        SignalKind::Corrupted
    } else {
        SignalKind::Fault
    };
    let text = format!(
        "errors_count {}, last_error_errcode {}",
        errors.last,
        code("last").unwrap_or_else(|| "not told".to_owned())
    );
    Some(FilesystemSignal {
        kind,
        evidence: evidence(
            &memory.file,
            errors.last_growth.unwrap_or(errors.since),
            text,
        ),
    })
}

/// The newest check with this verdict that no later CLEAN one of at least its strength takes back.
fn latest_unrefuted<'a>(
    checks: impl Iterator<Item = &'a Check>,
    verdict: CheckVerdict,
) -> Option<&'a Check> {
    let all: Vec<&Check> = checks.filter(|check| check.ended.is_some()).collect();
    let clean = |found: &Check| {
        // Corrupted in passing is the kernel's word, which is no weaker than a frozen run.
        let strength = if found.mode == Mode::Live && verdict == CheckVerdict::Corrupted {
            Mode::Frozen
        } else {
            found.mode
        };
        let later = |check: &&Check| {
            check.verdict == Some(CheckVerdict::Clean) && check.ended > found.ended
        };
        all.iter()
            .copied()
            .filter(later)
            .any(|check| check.mode.at_least(strength))
    };
    let found = all
        .iter()
        .copied()
        .filter(|check| check.verdict == Some(verdict));
    found
        .filter(|check| !clean(check))
        .max_by_key(|check| check.ended)
}

fn verdict_of(check: Option<&Check>) -> Option<Verdict> {
    let Some(check) = check else {
        return Some(Verdict::Clear);
    };
    let sure = check.verdict == Some(CheckVerdict::Corrupted);
    let kernel: Vec<Evidence> = check
        .signals
        .iter()
        .filter(|signal| signal.kind == SignalKind::Corrupted)
        .map(|signal| signal.evidence.clone())
        .collect();
    // Where the kernel has the word, what a checker found meanwhile proves nothing.
    let counts = |run: &&Run| {
        run.mode == check.mode && kernel.is_empty() && run.result == RunResult::Findings
    };
    let deciding: Vec<&Run> = check
        .runs
        .iter()
        .map(AsRef::as_ref)
        .filter(counts)
        .collect();
    let damage = deciding
        .iter()
        .flat_map(|run| &run.problems)
        .any(|flaw| flaw.weight == Weight::Damage);
    let (severity, status) = match (sure, damage) {
        (true, true) => (Severity::Bad, Status::DataLoss),
        (true, false) => (Severity::Bad, Status::Degraded),
        (false, _) => (Severity::Suspect, Status::Degraded),
    };
    let clears = if sure {
        format!(
            "a later check that is {} or stronger finds it clean, or a new filesystem is made",
            check.mode.name()
        )
    } else {
        "a later check finds it clean, or a new filesystem is made".to_owned()
    };
    let proof = if kernel.is_empty() {
        run_evidence(check, &deciding)
    } else {
        kernel
    };
    raised(severity, status, &check.reason, proof, &clears, check.ended)
}

fn run_evidence(check: &Check, deciding: &[&Run]) -> Vec<Evidence> {
    let Some(last) = deciding.last() else {
        return Vec::new();
    };
    let source = format!(
        "{} ({}, check {})",
        last.command,
        check.mode.name(),
        check.id
    );
    let real = last
        .problems
        .iter()
        .any(|flaw| flaw.weight > Weight::Transient);
    let worst = last
        .problems
        .iter()
        .filter(|flaw| !real || flaw.weight > Weight::Transient)
        .take(MAX_EVIDENCE_LINES);
    worst
        .map(|flaw| evidence(source.clone(), last.started, &flaw.text))
        .collect()
}
