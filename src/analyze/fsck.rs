//! The result of `analyze fsck`: one object for all files; each file is the output of one checker
//! run.
//!
//! In: files, the filesystem, its mode, exit statuses. Out: `FsckAnalysis`, in the format of a
//! check. The daemon's rules determine the results and the verdict.

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::EXIT_UNKNOWN;
use crate::input_source::InputSource;
use diskvitals_fscheck::parse::{OutputParser, ParsedOutput};
use diskvitals_fscheck::{
    CheckVerdict, Filesystem, Mode, Problem, Run, RunResult, Termination, Weight, decision,
    run_result,
};

/// Files do not record when they were made: frozen runs are assumed to be as far apart as required.
const FROZEN_RUN_GAP: Duration = Duration::from_secs(60);

/// Stands for the device in an advice: files do not name it.
const UNNAMED_DEVICE: &str = "DEVICE";

/// Exit statuses from 128 mean a signal, as in a shell; but e2fsck's own library error is
/// 128 itself.
const SIGNAL_STATUS_BASE: i32 = 128;

#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    #[error(
        "{statuses} exit statuses for {files} files: give one for each, or one for all, or none"
    )]
    StatusCount { statuses: usize, files: usize },
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FsckAnalysis {
    pub files: Vec<String>,
    pub filesystem: &'static str,
    #[serde(serialize_with = "serialize_mode")]
    pub mode: Mode,
    pub runs: Vec<FsckRun>,
    #[serde(serialize_with = "serialize_verdict")]
    pub verdict: CheckVerdict,
    pub reason: String,
    /// Files that could not be read; they have no run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FsckRun {
    pub file: String,
    /// Given by the user, or detected from the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(serialize_with = "serialize_result")]
    pub ballot: RunResult,
    pub findings: Vec<FsckFinding>,
    #[serde(skip_serializing_if = "is_zero")]
    pub more_findings: u64,
    /// Why the result is FAILED.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_replay: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FsckFinding {
    pub kind: String,
    pub text: String,
    pub ids: Vec<String>,
    #[serde(serialize_with = "serialize_weight")]
    pub weight: Weight,
}

#[derive(Clone, Debug, Serialize)]
pub struct Unreadable {
    pub file: String,
    pub error: String,
}

impl FsckAnalysis {
    /// 1: a file could not be read; 3: there is no verdict.
    pub fn exit_status(&self) -> u8 {
        match self.verdict {
            _ if !self.unreadable.is_empty() => 1,
            CheckVerdict::Clean | CheckVerdict::Suspected | CheckVerdict::Corrupted => 0,
            CheckVerdict::Inconclusive | CheckVerdict::Failed => EXIT_UNKNOWN,
        }
    }
}

/// Reads the outputs and returns the verdict over all of them. `statuses`: one for each file, one
/// for all, or none.
pub fn fsck(
    filesystem: Filesystem,
    mode: Mode,
    statuses: &[i32],
    sources: &[InputSource],
) -> Result<FsckAnalysis, FsckError> {
    if statuses.len() > 1 && statuses.len() != sources.len() {
        return Err(FsckError::StatusCount { statuses: statuses.len(), files: sources.len() });
    }
    let (mut runs, mut unreadable, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
    for (at, source) in sources.iter().enumerate() {
        let status = statuses.get(at).or(statuses.first()).copied();
        match read(filesystem, source) {
            Ok(parsed) => {
                if !parsed.complete {
                    unfinished.push(source.name());
                }
                let run = run_from_output(filesystem, mode, parsed, status, runs.len());
                runs.push((source.name(), run));
            }
            Err(error) => {
                unreadable.push(Unreadable { file: source.name(), error: error.to_string() })
            }
        }
    }
    let all: Vec<&Run> = runs.iter().map(|(_, run)| run).collect();
    let outcome = decision::conclude(filesystem, UNNAMED_DEVICE, mode, &all, FROZEN_RUN_GAP);
    let no_verdict = matches!(outcome.verdict, CheckVerdict::Failed | CheckVerdict::Inconclusive);
    let reason = match no_verdict && !unfinished.is_empty() {
        true => format!(
            "Unknown: no output of a finished run of {} in {}. {}",
            filesystem.checker().0,
            unfinished.join(", "),
            outcome.reason
        ),
        false => outcome.reason,
    };
    Ok(FsckAnalysis {
        files: sources.iter().map(InputSource::name).collect(),
        filesystem: filesystem.name(),
        mode,
        verdict: outcome.verdict,
        reason,
        runs: runs.into_iter().map(|(file, run)| fsck_run(file, run)).collect(),
        unreadable,
    })
}

fn read(filesystem: Filesystem, source: &InputSource) -> io::Result<ParsedOutput> {
    let mut lines = source.open()?;
    let mut reader = OutputParser::new(filesystem);
    while let Some(line) = lines.next()? {
        reader.push_line(&String::from_utf8_lossy(line));
    }
    Ok(reader.finish())
}

fn run_from_output(
    filesystem: Filesystem,
    mode: Mode,
    parsed: ParsedOutput,
    status: Option<i32>,
    number: usize,
) -> Run {
    let end = termination(filesystem, &parsed, status);
    let (result, why) = run_result::classify_run(filesystem, mode, &parsed, &end);
    let later = FROZEN_RUN_GAP.saturating_mul(u32::try_from(number).unwrap_or(0));
    let started = Timestamp::UNIX_EPOCH.checked_add(later).unwrap_or(Timestamp::UNIX_EPOCH);
    Run {
        result,
        no_error_found: run_result::says_no_error(&parsed, &end),
        checker_error: parsed.failure,
        problems: parsed.problems,
        more_problems: parsed.more_problems,
        pending_replay: parsed.pending_replay,
        ..Run::failed(mode, started, end, why)
    }
}

/// The given status; otherwise the status that a checker with this output usually returns.
fn termination(filesystem: Filesystem, parsed: &ParsedOutput, status: Option<i32>) -> Termination {
    let found = filesystem == Filesystem::Xfs && parsed.pending_replay.is_some()
        || run_result::non_transient(&parsed.problems).next().is_some() && !parsed.no_error_found;
    match status {
        Some(status) if status > SIGNAL_STATUS_BASE && status <= SIGNAL_STATUS_BASE + 64 => {
            Termination::Signal(status - SIGNAL_STATUS_BASE)
        }
        Some(status) if status < 0 => Termination::Signal(-status),
        Some(status) => Termination::Exited(status),
        None if !found => Termination::Exited(0),
        None => Termination::Exited(if filesystem == Filesystem::Ext4 { 4 } else { 1 }),
    }
}

fn fsck_run(file: String, run: Run) -> FsckRun {
    let finding = |problem: Problem| FsckFinding {
        kind: problem.kind,
        text: problem.text,
        ids: problem.ids,
        weight: problem.weight,
    };
    FsckRun {
        file,
        exit_status: run.termination.exit_status(),
        signal: run.termination.signal(),
        ballot: run.result,
        findings: run.problems.into_iter().map(finding).collect(),
        more_findings: run.more_problems,
        failure: run.failure_reason,
        pending_replay: run.pending_replay,
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn serialize_mode<S: Serializer>(mode: &Mode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match mode {
        Mode::Live => "MODE_LIVE",
        Mode::Frozen => "MODE_FROZEN",
        Mode::Snapshot => "MODE_SNAPSHOT",
        Mode::ReadOnly => "MODE_READ_ONLY",
        Mode::Unmounted => "MODE_UNMOUNTED",
    })
}

fn serialize_verdict<S: Serializer>(verdict: &CheckVerdict, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match verdict {
        CheckVerdict::Clean => "VERDICT_CLEAN",
        CheckVerdict::Suspected => "VERDICT_SUSPECTED",
        CheckVerdict::Corrupted => "VERDICT_CORRUPTED",
        CheckVerdict::Inconclusive => "VERDICT_INCONCLUSIVE",
        CheckVerdict::Failed => "VERDICT_FAILED",
    })
}

fn serialize_result<S: Serializer>(ballot: &RunResult, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match ballot {
        RunResult::Clean => "BALLOT_CLEAN",
        RunResult::Findings => "BALLOT_FINDINGS",
        RunResult::Failed => "BALLOT_FAILED",
    })
}

fn serialize_weight<S: Serializer>(weight: &Weight, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match weight {
        Weight::Transient => "WEIGHT_TRANSIENT",
        Weight::Bookkeeping => "WEIGHT_BOOKKEEPING",
        Weight::Unknown => "WEIGHT_UNKNOWN",
        Weight::DamagedCopy => "WEIGHT_DAMAGED_COPY",
        Weight::Damage => "WEIGHT_DAMAGE",
    })
}
