//! Classifies one run: whether the checker did its work, and whether it found anything. Filter F is
//! here: the problems that a healthy frozen filesystem shows.
//!
//! The exit status alone is no result (docs/checks.md): xfs_repair exits with 0 after a bad
//! checksum, and with 1 when it runs out of memory.

#[cfg(test)]
mod tests;

use crate::model::check::parse::ParsedOutput;
use crate::model::check::{Filesystem, Mode, Problem, RunResult, Termination, Weight};

/// The result of one run, and why where it is FAILED (empty otherwise).
pub(crate) fn classify_run(
    filesystem: Filesystem,
    mode: Mode,
    parsed: &ParsedOutput,
    end: &Termination,
) -> (RunResult, String) {
    match is_clean(filesystem, mode, parsed, end) {
        Ok(true) => (RunResult::Clean, String::new()),
        Ok(false) => (RunResult::Findings, String::new()),
        Err(why) => (RunResult::Failed, why),
    }
}

/// Filter F: the problems of a frozen run that are not transient. Only these are real.
pub(crate) fn non_transient(flaws: &[Problem]) -> impl Iterator<Item = &Problem> {
    flaws.iter().filter(|flaw| flaw.weight > Weight::Transient)
}

/// Whether the run is clean. An error: the run failed; says why.
fn is_clean(
    filesystem: Filesystem,
    mode: Mode,
    parsed: &ParsedOutput,
    end: &Termination,
) -> Result<bool, String> {
    let (checker, _) = filesystem.checker();
    let status = exit_status(checker, end)?;
    if aborted_on_damage(filesystem, mode, status, parsed) {
        return Ok(false);
    }
    if let Some(words) = &parsed.failure {
        return Err(format!("{checker} could not do its work: {words}"));
    }
    let errors = errors_left(filesystem, status)?;
    if !parsed.complete {
        return Err(format!(
            "{checker} ended with status {status} before it was through"
        ));
    }
    // A mounted XFS usually has a dirty log, which is no finding. If only the log caused the
    // status, nothing was found.
    let dirty_log = filesystem == Filesystem::Xfs && parsed.pending_replay.is_some();
    let nothing = parsed.problems.is_empty() && parsed.more_problems == 0;
    if errors && nothing && !dirty_log {
        return Err(format!(
            "{checker} ended with status {status} and told nothing that it found"
        ));
    }
    let real = non_transient(&parsed.problems).next().is_some();
    Ok(match mode {
        Mode::Frozen => !real,
        _ => !real && !errors && !dirty_log,
    })
}

/// e2fsck finds damage and then cannot go on because of it (status 12: 4 errors left, 8
/// operational). While writers go on a healthy filesystem makes it do that too; where nothing
/// moves, what it had named by then is so. A device that fails and want of memory have words of
/// their own.
fn aborted_on_damage(
    filesystem: Filesystem,
    mode: Mode,
    status: i32,
    parsed: &ParsedOutput,
) -> bool {
    let named = |flaw: &&Problem| flaw.weight == Weight::Damage && !flaw.text.starts_with("Error ");
    let aborted = filesystem == Filesystem::Ext4
        && status == 12
        && parsed.failure.as_deref() == Some(crate::model::check::parse::E2FSCK_ABORTED);
    aborted && mode != Mode::Live && parsed.problems.iter().any(|flaw| named(&flaw))
}

fn exit_status(checker: &str, end: &Termination) -> Result<i32, String> {
    match end {
        Termination::Exited(status) => Ok(*status),
        Termination::Signal(number) => Err(format!(
            "{checker} was ended by signal {number}{}",
            signal_name(*number)
        )),
        Termination::TimedOut => Err(format!("{checker} was not through in time")),
        Termination::Cancelled => Err(format!("{checker} was stopped")),
        Termination::Stuck(Some(place)) => Err(format!(
            "{checker} hangs in the kernel ({place}): the device does not answer"
        )),
        Termination::Stuck(None) => Err(format!(
            "{checker} hangs in the kernel: the device does not answer"
        )),
        Termination::NotStarted(why) => Err(format!("{checker} could not be started: {why}")),
    }
}

/// Whether the exit status means that errors are left. An error: the status is no result; says why.
fn errors_left(filesystem: Filesystem, status: i32) -> Result<bool, String> {
    match (filesystem, status) {
        (_, 0) => Ok(false),
        // e2fsck(8): 4 errors left uncorrected; 8 operational, 16 usage, 32 cancelled, 128 library:
        // with any of the latter the run was not completed.
        (Filesystem::Ext4, 4) => Ok(true),
        (Filesystem::Ext4, status) => {
            let bits = [
                (1, "errors corrected"),
                (2, "reboot needed"),
                (8, "operational error"),
                (16, "wrong usage"),
                (32, "cancelled"),
                (128, "library error"),
            ];
            let said: Vec<&str> = bits
                .iter()
                .filter(|(bit, _)| status & bit != 0)
                .map(|(_, words)| *words)
                .collect();
            Err(format!(
                "e2fsck ended with status {status} ({})",
                if said.is_empty() {
                    "unknown".to_owned()
                } else {
                    said.join(", ")
                }
            ))
        }
        (Filesystem::Xfs | Filesystem::Btrfs, 1) => Ok(true),
        (filesystem, status) => Err(format!(
            "{} ended with status {status}, which it does not use for findings",
            filesystem.checker().0
        )),
    }
}

fn signal_name(number: i32) -> &'static str {
    match number {
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        31 => " (SIGSYS)",
        _ => "",
    }
}
