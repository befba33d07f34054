//! Rules about volumes from filesystem checks.

use jiff::Timestamp;

use crate::assess::input::VolumeInput;
use crate::assess::text::{BAD, DATA_LOSS, SUSPECT, evidence, raised, unknown};
use crate::facts::{Facts, KnownVolume};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::{Evidence, Verdict, WitnessKind};
use diskvitals_fscheck::{
    Check, CheckVerdict, Filesystem, Mode, Problem, Run, RunResult, SignalKind, Weight,
};

/// Maximum number of lines of one run that are shown as evidence.
const MAX_EVIDENCE_LINES: usize = 5;

/// A check has shown that the filesystem is damaged. BAD; DATA_LOSS where structures or data are
/// damaged and not only bookkeeping. Clears with a later CLEAN check of at least the same strength,
/// when ext4 is mounted after a repair that its superblock records, or with a new filesystem on the
/// device. SUSPECT where a btrfs has damaged copies beside good ones: clears with a later CLEAN
/// check, or with a later scrub that reads every device without an error.
pub(crate) fn corrupted(facts: &Facts, known: &KnownVolume) -> Option<Verdict> {
    let check = unresolved(facts, known, CheckVerdict::Corrupted).or_else(|| {
        unresolved(facts, known, CheckVerdict::Suspected).filter(|check| has_damaged_copies(check))
    });
    verdict_of(check, known.facts.mounts.first().map(|mount| &mount.path))
}

/// Live runs showed the same findings each time. SUSPECT. Clears with any later CLEAN check, or a
/// repair that ext4 records; a later CORRUPTED one replaces it.
pub(crate) fn suspect(input: &VolumeInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    if unresolved(facts, known, CheckVerdict::Corrupted).is_some() {
        return Some(Verdict::Clear);
    }
    let suspected = unresolved(facts, known, CheckVerdict::Suspected);
    verdict_of(suspected.filter(|check| !has_damaged_copies(check)), None)
}

/// A btrfs check read a good copy of each damaged one.
fn has_damaged_copies(check: &Check) -> bool {
    let mut problems = check.runs.iter().flat_map(|run| &run.problems);
    problems.any(|problem| problem.weight == Weight::DamagedCopy)
}

fn unresolved<'a>(
    facts: &'a Facts,
    known: &'a KnownVolume,
    verdict: CheckVerdict,
) -> Option<&'a Check> {
    let checks = facts.checks_of(known).map(AsRef::as_ref);
    latest_unrefuted(checks, verdict).filter(|check| !is_repaired(facts, known, check))
}

/// ext4 was mounted after a repair that its superblock records: e2fsck ended after the check, and
/// left nothing unrepaired. The time and the count alone do not show that: e2fsck writes both also
/// when somebody answered "no" to its questions, and then it does not mark the filesystem as valid
/// (e2fsck/unix.c). XFS records no repair.
fn is_repaired(facts: &Facts, known: &KnownVolume, check: &Check) -> bool {
    let Some(ended) = check.ended else {
        return false;
    };
    let mounted = known.mounted_since.values().min();
    let state = known.facts.device.as_deref().and_then(|name| facts.ext_state(name));
    let checked = state.and_then(|(_, state)| state.last_checked);
    mounted.is_some_and(|mounted| *mounted > ended)
        && state.is_some_and(|(read, state)| read > ended && state.is_clean_while_mounted())
        && checked.is_some_and(|checked| checked > facts.wall_time(ended))
}

/// The same for a device that carries no volume now, from the checks of the device.
pub(crate) fn device(facts: &Facts, name: &str) -> Option<Verdict> {
    if facts.awaits_superblock(name) {
        return unknown(format!("the superblock of {name} has not been read yet"));
    }
    let latest = |verdict| latest_unrefuted(device_checks(facts, name), verdict);
    verdict_of(
        latest(CheckVerdict::Corrupted)
            .or_else(|| latest(CheckVerdict::Suspected).filter(|check| has_damaged_copies(check))),
        None,
    )
}

/// When a check of at least frozen strength was last clean: earlier kernel reports are resolved.
pub(crate) fn last_clean_check(facts: &Facts, known: &KnownVolume) -> Option<Timestamp> {
    last_clean(facts.checks_of(known).map(AsRef::as_ref))
}

/// The same for a device that carries no volume now.
pub(crate) fn last_clean_device_check(facts: &Facts, name: &str) -> Option<Timestamp> {
    last_clean(device_checks(facts, name))
}

fn last_clean<'a>(checks: impl Iterator<Item = &'a Check>) -> Option<Timestamp> {
    let clean = checks.filter(|check| {
        check.verdict == Some(CheckVerdict::Clean) && check.mode.at_least(Mode::Frozen)
    });
    clean.filter_map(|check| check.started).max()
}

/// Checks of the filesystem that is on the device now, by its UUID.
fn device_checks<'a>(facts: &'a Facts, name: &'a str) -> impl Iterator<Item = &'a Check> {
    let uuid = facts.device_uuid(name);
    let checks = facts.checks.all().values().map(AsRef::as_ref);
    // Another filesystem may be on the device by now: only one that is certainly the same counts.
    checks.filter(move |check: &&Check| {
        check.target.device == name && uuid.is_some() && check.target.uuid.as_ref() == uuid
    })
}

/// The newest check with this verdict that no later CLEAN check of at least its strength refutes,
/// and no later scrub.
fn latest_unrefuted<'a>(
    checks: impl Iterator<Item = &'a Check>,
    verdict: CheckVerdict,
) -> Option<&'a Check> {
    let all: Vec<&Check> = checks.filter(|check| check.ended.is_some()).collect();
    let is_refuted = |found: &Check| {
        // A live check ends CORRUPTED only by the kernel's evidence, which is as strong as a frozen
        // run.
        let strength = if found.mode == Mode::Live && verdict == CheckVerdict::Corrupted {
            Mode::Frozen
        } else {
            found.mode
        };
        all.iter().any(|check| {
            check.verdict == Some(CheckVerdict::Clean)
                && check.ended > found.ended
                && check.mode.at_least(strength)
        })
    };
    all.iter()
        .copied()
        .filter(|check| check.verdict == Some(verdict) && !check.is_scrubbed && !is_refuted(check))
        .max_by_key(|check| check.ended)
}

fn verdict_of(check: Option<&Check>, mount: Option<&HostPath>) -> Option<Verdict> {
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
    // While the kernel reports corruption, a checker's findings prove nothing.
    let runs = check.runs.iter().map(AsRef::as_ref);
    let deciding: Vec<&Run> = runs
        .filter(|run| {
            run.mode == check.mode && kernel.is_empty() && run.result == RunResult::Findings
        })
        .collect();
    let mut problems = deciding.iter().flat_map(|run| &run.problems);
    let level = match (sure, problems.any(|problem| problem.weight == Weight::Damage)) {
        (true, true) => DATA_LOSS,
        (true, false) => BAD,
        (false, _) => SUSPECT,
    };
    let clears = clears_when(check, sure, mount);
    let proof = if kernel.is_empty() { run_evidence(check, &deciding) } else { kernel };
    raised(level, &check.reason, proof, clears, check.ended)
}

fn clears_when(check: &Check, sure: bool, mount: Option<&HostPath>) -> String {
    let strength =
        if sure { format!(" that is {} or stronger", check.mode.name()) } else { String::new() };
    let later = format!("a later check{strength} finds it clean");
    match check.target.filesystem {
        Filesystem::Ext4 => format!(
            "{later}, it is mounted after a repair with e2fsck that its superblock records, or a new filesystem is made"
        ),
        Filesystem::Xfs => format!(
            "{later}, or a new filesystem is made. XFS records no repair: run `diskvitals check {}` after xfs_repair and before it is mounted, or acknowledge the finding",
            check.target.device_path()
        ),
        Filesystem::Btrfs if check.found_only_damaged_copies() => {
            let mount = mount.map_or("MOUNT".to_owned(), ToString::to_string);
            format!(
                "{later}, a scrub that begins after the check reads every device without an error (`btrfs scrub start -B {mount}`), or a new filesystem is made"
            )
        }
        Filesystem::Btrfs => format!("{later}, or a new filesystem is made"),
    }
}

fn run_evidence(check: &Check, deciding: &[&Run]) -> Vec<Evidence> {
    let Some(last) = deciding.last() else {
        return Vec::new();
    };
    let source = format!("{} ({}, check {})", last.command, check.mode.name(), check.id);
    let is_real = |problem: &&Problem| problem.weight > Weight::Transient;
    let real = last.problems.iter().any(|problem| is_real(&problem));
    let worst = last.problems.iter().filter(|problem| !real || is_real(problem));
    worst
        .take(MAX_EVIDENCE_LINES)
        .map(|problem| evidence(WitnessKind::Check, source.clone(), last.started, &problem.text))
        .collect()
}
