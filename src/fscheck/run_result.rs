//! Classifies one run: whether the checker did its work, and whether it found anything. Contains
//! filter F: the problems that a healthy frozen filesystem has.
//!
//! The exit status alone is not sufficient (docs/checks.md): xfs_repair exits with 0 after a bad
//! checksum, and with 1 when it runs out of memory.

#[cfg(test)]
mod tests;

use crate::parse::ParsedOutput;
use crate::{Filesystem, Mode, Problem, RunResult, Termination, Weight};

/// The result of one run, and the reason if it is FAILED (empty otherwise).
pub fn classify_run(
    filesystem: Filesystem,
    mode: Mode,
    parsed: &ParsedOutput,
    end: &Termination,
) -> (RunResult, String) {
    match is_clean(filesystem, mode, parsed, end) {
        Ok(true) => (RunResult::Clean, String::new()),
        Ok(false) => (RunResult::Findings, String::new()),
        Err(failure) => {
            let checker = filesystem.checker().0;
            (RunResult::Failed, format!("{checker} {failure}"))
        }
    }
}

/// Filter F: the problems of a frozen run that are not transient. Only these are real.
pub fn non_transient(problems: &[Problem]) -> impl Iterator<Item = &Problem> {
    problems.iter().filter(|problem| problem.weight > Weight::Transient)
}

/// Why a run is no evidence about the filesystem; continues a sentence that begins with the
/// checker's name.
#[derive(Debug, thiserror::Error)]
enum RunFailure {
    #[error("could not do its work: {0}")]
    CheckerError(String),
    #[error("ended with status {0} before it was through")]
    Incomplete(i32),
    #[error("ended with status {0} and told nothing that it found")]
    NothingReported(i32),
    #[error("crashed: {0}")]
    Crashed(String),
    #[error("was ended by signal {0}{name}", name = signal_name(*.0))]
    Signal(i32),
    #[error("was not through in time")]
    TimedOut,
    #[error("was stopped")]
    Cancelled,
    #[error("hangs in the kernel: the device does not answer")]
    Stuck,
    #[error("hangs in the kernel ({0}): the device does not answer")]
    StuckAt(String),
    #[error("could not be started: {0}")]
    NotStarted(String),
    #[error("ended with status {0} ({bits})", bits = e2fsck_status_text(*.0))]
    E2fsckStatus(i32),
    #[error("ended with status {0}, which it does not use for findings")]
    UnknownStatus(i32),
}

/// Whether the run is clean.
fn is_clean(
    filesystem: Filesystem,
    mode: Mode,
    parsed: &ParsedOutput,
    end: &Termination,
) -> Result<bool, RunFailure> {
    let status = exit_status(end)?;
    if aborted_on_damage(filesystem, mode, status, parsed) {
        return Ok(false);
    }
    if let Some(line) = &parsed.crash {
        return Err(RunFailure::Crashed(line.clone()));
    }
    if let Some(message) = &parsed.failure {
        return Err(RunFailure::CheckerError(message.clone()));
    }
    let errors = errors_left(filesystem, status)? && !parsed.only_harmless_errors;
    if !parsed.complete {
        return Err(RunFailure::Incomplete(status));
    }
    // A mounted XFS usually has a dirty log, which is no finding. If only the log caused the
    // status, nothing was found.
    let dirty_log = filesystem == Filesystem::Xfs && parsed.pending_replay.is_some();
    let nothing = parsed.problems.is_empty() && parsed.more_problems == 0;
    if errors && nothing && !dirty_log {
        return Err(RunFailure::NothingReported(status));
    }
    // What the checker itself does not count as an error, and what the kernel rebuilds, is none.
    let harmless = if says_no_error(parsed, end) { Weight::Bookkeeping } else { Weight::Transient };
    let real = parsed.problems.first().is_some_and(|worst| worst.weight > harmless);
    Ok(match mode {
        Mode::Frozen => !real,
        _ => !real && !errors && !dirty_log,
    })
}

/// Whether the checker's closing statement and its exit status agree that it found no error.
pub fn says_no_error(parsed: &ParsedOutput, end: &Termination) -> bool {
    parsed.no_error_found && parsed.complete && *end == Termination::Exited(0)
}

/// e2fsck found damage and cannot continue (status 12: 4 errors left, 8 operational). On a live
/// filesystem this also happens without damage. If the data does not change, the problems reported
/// until then are real. A failing device and a lack of memory have separate messages.
fn aborted_on_damage(
    filesystem: Filesystem,
    mode: Mode,
    status: i32,
    parsed: &ParsedOutput,
) -> bool {
    let named = |problem: &&Problem| {
        problem.weight == Weight::Damage && !problem.text.starts_with("Error ")
    };
    let aborted = filesystem == Filesystem::Ext4
        && status == 12
        && parsed.failure.as_deref() == Some(crate::parse::E2FSCK_ABORTED);
    aborted && mode != Mode::Live && parsed.problems.iter().any(|problem| named(&problem))
}

fn exit_status(end: &Termination) -> Result<i32, RunFailure> {
    Err(match end {
        Termination::Exited(status) => return Ok(*status),
        Termination::Signal(number) => RunFailure::Signal(*number),
        Termination::TimedOut => RunFailure::TimedOut,
        Termination::Cancelled => RunFailure::Cancelled,
        Termination::Stuck(Some(function)) => RunFailure::StuckAt(function.clone()),
        Termination::Stuck(None) => RunFailure::Stuck,
        Termination::NotStarted(why) => RunFailure::NotStarted(why.clone()),
    })
}

/// Whether the exit status means that errors are left.
fn errors_left(filesystem: Filesystem, status: i32) -> Result<bool, RunFailure> {
    match (filesystem, status) {
        (_, 0) => Ok(false),
        // e2fsck(8): 4 errors left uncorrected; 8 operational, 16 usage, 32 cancelled, 128 library:
        // with any of the latter the run was not completed.
        (Filesystem::Ext4, 4) | (Filesystem::Xfs | Filesystem::Btrfs, 1) => Ok(true),
        (Filesystem::Ext4, status) => Err(RunFailure::E2fsckStatus(status)),
        (_, status) => Err(RunFailure::UnknownStatus(status)),
    }
}

/// The bits of e2fsck's exit status that report a failed run.
fn e2fsck_status_text(status: i32) -> String {
    let bits = [
        (1, "errors corrected"),
        (2, "reboot needed"),
        (8, "operational error"),
        (16, "wrong usage"),
        (32, "cancelled"),
        (128, "library error"),
    ];
    let set: Vec<&str> =
        bits.iter().filter(|(bit, _)| status & bit != 0).map(|(_, text)| *text).collect();
    if set.is_empty() { "unknown".to_owned() } else { set.join(", ") }
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
