//! Errors that a failure left recorded in a filesystem, and that nothing has repaired: in ext4's
//! superblock, and in the device statistics of btrfs. A mount clears neither.

use jiff::Timestamp;

use crate::assess::counters::changed;
use crate::assess::input::VolumeInput;
use crate::assess::text::{SUSPECT, evidence, join_limited, raised, unknown, volume_name};
use crate::assess::{checks, merge};
use crate::counters::{Counter, CounterHistory, recorded_time};
use crate::facts::{Facts, KnownVolume};
use crate::superblock::ExtState;
use diskvitals_finding::{Evidence, Verdict, WitnessKind};

/// SUSPECT, degraded, until a check or a repair shows that nothing is left of the errors.
pub(crate) fn errors(input: &VolumeInput) -> Option<Verdict> {
    merge(ext4(input), btrfs(input))
}

/// Sources: `errors_count` in sysfs, and the superblock (s_state, s_error_count). Clears when the
/// superblock records no error and is clean, which only e2fsck does, or with a CLEAN check of at
/// least frozen strength after the last error.
fn ext4(input: &VolumeInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    let history = facts.filesystem_counters(known, "ext4");
    let counted = history.and_then(|history| Some((history, errors_count(history)?)));
    let device = known.facts.device.as_deref();
    let state = device.and_then(|name| facts.ext_state(name));
    let errors = counted.map_or(0, |(_, counter)| counter.last);
    let is_repaired = errors == 0 && state.is_none_or(|(_, state)| is_in_order(state));
    if is_repaired {
        if state.is_none()
            && let Some(name) = device.filter(|name| facts.awaits_ext_state(name))
        {
            return unknown(format!(
                "the superblock of {name} has not been read since it was mounted"
            ));
        }
        return (state.is_some() || counted.is_some()).then_some(Verdict::Clear);
    }
    let recorded = Recorded::new(facts, counted, state);
    let is_refuted = checks::last_clean_check(facts, known)
        .map(|clean| facts.wall_time(clean))
        .is_some_and(|clean| recorded.last.is_some_and(|last| clean > last));
    if is_refuted && state.is_none_or(|(_, state)| state.is_valid || !state.has_journal) {
        return Some(Verdict::Clear);
    }
    let what = volume_name(&known.facts);
    let message = match errors.max(state.map_or(0, |(_, state)| u64::from(state.errors))) {
        0 if state.is_some_and(|(_, state)| state.has_errors) => {
            format!("{what} is marked as having errors, and nothing has repaired it")
        }
        0 => format!("{what} is not marked as clean: a check left something unrepaired"),
        1 => format!("{what} has recorded an error{} that nothing has repaired", recorded.times(1)),
        many => format!(
            "{what} has recorded {many} errors{} that nothing has repaired",
            recorded.times(many)
        ),
    };
    let message = message + before_first_sight(facts, known, recorded.last);
    raised(
        SUSPECT,
        message,
        recorded.proof,
        "e2fsck has repaired it and the kernel has mounted it again, or a check while frozen or unmounted finds it clean",
        None,
    )
}

/// Nothing says that something is unrepaired. Without a journal, a mount removes the sign of a clean
/// unmount.
fn is_in_order(state: &ExtState) -> bool {
    !state.has_recorded_errors() && (state.is_valid || !state.has_journal)
}

/// What ext4 has recorded, with the times of the wall clock that it has.
struct Recorded {
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    proof: Vec<Evidence>,
}

impl Recorded {
    fn new(
        facts: &Facts,
        counted: Option<(&CounterHistory, &Counter)>,
        state: Option<(Timestamp, &ExtState)>,
    ) -> Recorded {
        let detail = |name| counted.and_then(|(history, _)| recorded_time(&history.details, name));
        let superblock = state.map(|(_, state)| state);
        let first = superblock.and_then(|state| state.first_error);
        let last = superblock.and_then(|state| state.last_error);
        let (first, last) = (
            first.or_else(|| detail("first_error_time")),
            last.or_else(|| detail("last_error_time")),
        );
        // A record is as old as its last error, not as its reading.
        let recorded_at = last.map(|last| facts.steady_time(last));
        let mut proof = Vec::new();
        if let Some((history, counter)) = counted
            && counter.last > 0
        {
            let mut text = format!("errors_count {}", counter.last);
            for (name, value) in &history.details {
                text.push_str(&format!(", {name} {value}"));
                if let Some(code) = error_code(name, value) {
                    text.push_str(&format!(" ({code})"));
                }
            }
            let at = recorded_at.unwrap_or_else(|| changed(counter));
            proof.push(evidence(WitnessKind::Counter, &history.file, at, text));
        }
        if let Some((at, state)) = state {
            let at = recorded_at.unwrap_or(at);
            proof.push(evidence(WitnessKind::Counter, "superblock", at, superblock_text(state)));
        }
        let unknown_time = || {
            let (_, counter) = counted?;
            (counter.last > 0).then(|| facts.wall_time(changed(counter)))
        };
        Recorded { first, last: last.or_else(unknown_time), proof }
    }

    fn times(&self, count: u64) -> String {
        match (self.first, self.last) {
            (Some(first), Some(last)) if count > 1 && first != last => {
                format!(" (the first at {first:.0}, the last at {last:.0})")
            }
            (Some(at), _) => format!(" (at {at:.0})"),
            _ => String::new(),
        }
    }
}

/// ext4's own numbers, which are not those of errno (fs/ext4/ext4.h, EXT4_ERR_*).
fn error_code(name: &str, value: &str) -> Option<&'static str> {
    const NAMES: [&str; 17] = [
        "UNKNOWN",
        "EIO",
        "ENOMEM",
        "EFSBADCRC",
        "EFSCORRUPTED",
        "ENOSPC",
        "ENOKEY",
        "EROFS",
        "EFBIG",
        "EEXIST",
        "ERANGE",
        "EOVERFLOW",
        "EBUSY",
        "ENOTDIR",
        "ENOTEMPTY",
        "ESHUTDOWN",
        "EFAULT",
    ];
    let code: usize = value.trim().parse().ok()?;
    let is_code = name.ends_with("_error_errcode");
    NAMES.get(code.checked_sub(1)?).copied().filter(|_| is_code)
}

/// As dumpe2fs words it.
fn superblock_text(state: &ExtState) -> String {
    let clean = if state.is_valid { "clean" } else { "not clean" };
    let errors = if state.has_errors { " with errors" } else { "" };
    let time = |time: Option<Timestamp>| match time {
        Some(time) => format!("{time:.0}"),
        None => "never".to_owned(),
    };
    format!(
        "filesystem state: {clean}{errors}; error count: {}; last checked: {}",
        state.errors,
        time(state.last_checked)
    )
}

fn before_first_sight(facts: &Facts, known: &KnownVolume, last: Option<Timestamp>) -> &'static str {
    match last {
        Some(last) if last < facts.wall_time(known.first_seen) => {
            "; they are from before diskvitals first saw it"
        }
        _ => "",
    }
}

fn errors_count(history: &CounterHistory) -> Option<&Counter> {
    let mut counters = history.counters();
    let (_, counter) = counters.find(|(name, _)| *name == "errors_count")?;
    Some(counter)
}

/// Source: the statistics of each member, which btrfs keeps on the disk until they are set to zero
/// (fs/btrfs/volumes.c, struct btrfs_dev_stats_item). Clears when they are zero, or after a scrub of
/// every member that began after the last growth and found nothing: from then on only growth counts.
fn btrfs(input: &VolumeInput) -> Option<Verdict> {
    const ERRORS: [&str; 5] =
        ["write_errs", "read_errs", "flush_errs", "corruption_errs", "generation_errs"];
    let (facts, known) = (input.context.facts, input.known);
    let members: Vec<&CounterHistory> = facts.btrfs_counters(known).collect();
    if members.is_empty() {
        return None;
    }
    let scrubbed = facts.clean_scrub(known);
    let is_left = |counter: &Counter| {
        let is_newer = |scrub| facts.wall_time(changed(counter)) >= scrub;
        counter.last > 0 && scrubbed.is_none_or(is_newer)
    };
    let (mut proof, mut names, mut is_old) = (Vec::new(), Vec::new(), true);
    for history in members {
        let counters = history.counters();
        let left: Vec<_> =
            counters.filter(|(name, counter)| ERRORS.contains(name) && is_left(counter)).collect();
        let Some(at) = left.iter().map(|(_, counter)| changed(counter)).max() else {
            continue;
        };
        is_old &= left.iter().all(|(_, counter)| counter.growth_count == 0);
        let text = left
            .iter()
            .map(|(name, counter)| format!("{name} {}", counter.last))
            .collect::<Vec<_>>()
            .join(", ");
        let member = match history.details.get("devid") {
            Some(id) => format!("device {id}: {text}"),
            None => text.clone(),
        };
        names.push(member);
        proof.push(evidence(WitnessKind::Counter, &history.file, at, text));
    }
    let Some(first) = proof.iter().map(|proof| proof.time).min() else {
        return Some(Verdict::Clear);
    };
    let mut message = format!(
        "{} counts errors of its devices: {}",
        volume_name(&known.facts),
        join_limited(names)
    );
    if is_old {
        let first = facts.wall_text(first);
        message += &format!("; they were counted before diskvitals first read them at {first}");
    }
    raised(
        SUSPECT,
        message,
        proof,
        "a scrub of all its devices after them finds no error, or its statistics are set to zero (`btrfs device stats -z`)",
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_of_ext4_are_named() {
        assert_eq!(error_code("first_error_errcode", "5"), Some("EFSCORRUPTED"));
        assert_eq!(error_code("last_error_errcode", "2\n"), Some("EIO"));
        for (name, value) in
            [("last_error_errcode", "0"), ("last_error_errcode", "99"), ("last_error_line", "5")]
        {
            assert_eq!(error_code(name, value), None, "{name} {value}");
        }
    }
}
