//! What `analyze fsck` answers: one object for all files, each of them the output of one run of a
//! checker.
//!
//! In: files, the filesystem, how it was held, exit statuses. Out: `Fsck`, of a check's shape.
//! Ballots and verdict are the daemon's.

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::analyze::input::Source;
use crate::model::check::parse::{Parsed, Reader};
use crate::model::check::{
    Ballot, End, Filesystem, Flaw, Mode, Run, Verdict, Weight, ballot, steps,
};

/// Files cannot tell when they were made: frozen runs are taken to be as far apart as they must be.
const APART: Duration = Duration::from_secs(60);

/// Exit statuses from 128 are a signal's, as a shell tells them; but e2fsck's own library error is
/// 128 itself.
const SIGNALS: i32 = 128;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{statuses} exit statuses for {files} files: give one for each, or one for all, or none"
    )]
    Statuses { statuses: usize, files: usize },
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fsck {
    pub files: Vec<String>,
    pub filesystem: &'static str,
    #[serde(serialize_with = "mode")]
    pub mode: Mode,
    pub runs: Vec<OfRun>,
    #[serde(serialize_with = "verdict")]
    pub verdict: Verdict,
    pub reason: String,
    /// Files that could not be read; they have no run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfRun {
    pub file: String,
    /// Given, or what the output amounts to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(serialize_with = "ballot_name")]
    pub ballot: Ballot,
    pub findings: Vec<Finding>,
    #[serde(skip_serializing_if = "is_zero")]
    pub more_findings: u64,
    /// Why the ballot is FAILED.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_replay: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub kind: String,
    pub text: String,
    pub ids: Vec<String>,
    #[serde(serialize_with = "weight")]
    pub weight: Weight,
}

#[derive(Clone, Debug, Serialize)]
pub struct Unreadable {
    pub file: String,
    pub error: String,
}

/// Reads the outputs and says what they tell together. `statuses`: one for each file, one for all,
/// or none.
pub fn fsck(
    filesystem: Filesystem,
    mode: Mode,
    statuses: &[i32],
    sources: &[Source],
) -> Result<Fsck, Error> {
    if statuses.len() > 1 && statuses.len() != sources.len() {
        return Err(Error::Statuses {
            statuses: statuses.len(),
            files: sources.len(),
        });
    }
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    for (at, source) in sources.iter().enumerate() {
        let status = statuses.get(at).or(statuses.first()).copied();
        match read(filesystem, source) {
            Ok(parsed) => runs.push((
                source.name(),
                run(filesystem, mode, parsed, status, runs.len()),
            )),
            Err(error) => unreadable.push(Unreadable {
                file: source.name(),
                error: error.to_string(),
            }),
        }
    }
    let all: Vec<&Run> = runs.iter().map(|(_, run)| run).collect();
    let outcome = steps::judge(filesystem, mode, &all, APART);
    Ok(Fsck {
        files: sources.iter().map(Source::name).collect(),
        filesystem: filesystem.name(),
        mode,
        verdict: outcome.verdict,
        reason: outcome.reason,
        runs: runs
            .into_iter()
            .map(|(file, run)| told(file, run))
            .collect(),
        unreadable,
    })
}

fn read(filesystem: Filesystem, source: &Source) -> io::Result<Parsed> {
    let mut lines = source.open()?;
    let mut reader = Reader::new(filesystem);
    while let Some(line) = lines.next()? {
        reader.line(&String::from_utf8_lossy(line));
    }
    Ok(reader.finish())
}

fn run(
    filesystem: Filesystem,
    mode: Mode,
    parsed: Parsed,
    status: Option<i32>,
    number: usize,
) -> Run {
    let end = end(filesystem, &parsed, status);
    let (ballot, why) = ballot::ballot(filesystem, mode, &parsed, &end);
    let later = APART.saturating_mul(u32::try_from(number).unwrap_or(0));
    let started = Timestamp::UNIX_EPOCH
        .checked_add(later)
        .unwrap_or(Timestamp::UNIX_EPOCH);
    Run {
        ballot,
        failure: parsed.failure,
        flaws: parsed.flaws,
        more_flaws: parsed.more_flaws,
        pending_replay: parsed.pending_replay,
        ..Run::failed(mode, started, end, why)
    }
}

/// As it was told; else what such an output ends with when nothing goes wrong.
fn end(filesystem: Filesystem, parsed: &Parsed, status: Option<i32>) -> End {
    let found = filesystem == Filesystem::Xfs && parsed.pending_replay.is_some()
        || ballot::filter_f(&parsed.flaws).next().is_some();
    match status {
        Some(status) if status > SIGNALS && status <= SIGNALS + 64 => End::Signal(status - SIGNALS),
        Some(status) if status < 0 => End::Signal(-status),
        Some(status) => End::Exited(status),
        None if !found => End::Exited(0),
        None => End::Exited(if filesystem == Filesystem::Ext4 { 4 } else { 1 }),
    }
}

fn told(file: String, run: Run) -> OfRun {
    let finding = |flaw: Flaw| Finding {
        kind: flaw.kind,
        text: flaw.text,
        ids: flaw.ids,
        weight: flaw.weight,
    };
    OfRun {
        file,
        exit_status: run.end.exit_status(),
        signal: run.end.signal(),
        ballot: run.ballot,
        findings: run.flaws.into_iter().map(finding).collect(),
        more_findings: run.more_flaws,
        failure: run.why,
        pending_replay: run.pending_replay,
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn mode<S: serde::Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match mode {
        Mode::Live => "MODE_LIVE",
        Mode::Frozen => "MODE_FROZEN",
        Mode::Snapshot => "MODE_SNAPSHOT",
        Mode::ReadOnly => "MODE_READ_ONLY",
        Mode::Unmounted => "MODE_UNMOUNTED",
    })
}

fn verdict<S: serde::Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match verdict {
        Verdict::Clean => "VERDICT_CLEAN",
        Verdict::Suspected => "VERDICT_SUSPECTED",
        Verdict::Corrupted => "VERDICT_CORRUPTED",
        Verdict::Inconclusive => "VERDICT_INCONCLUSIVE",
        Verdict::Failed => "VERDICT_FAILED",
    })
}

fn ballot_name<S: serde::Serializer>(ballot: &Ballot, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match ballot {
        Ballot::Clean => "BALLOT_CLEAN",
        Ballot::Findings => "BALLOT_FINDINGS",
        Ballot::Failed => "BALLOT_FAILED",
    })
}

fn weight<S: serde::Serializer>(weight: &Weight, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match weight {
        Weight::Transient => "WEIGHT_TRANSIENT",
        Weight::Bookkeeping => "WEIGHT_BOOKKEEPING",
        Weight::Damage => "WEIGHT_DAMAGE",
    })
}
