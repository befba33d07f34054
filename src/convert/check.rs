//! Filesystem checks → wire.

use std::io::Read;

use flate2::read::GzDecoder;

use crate::{evidence, text_or_empty, time};
use diskvitals_fscheck::{
    Check, CheckOrigin, CheckState, CheckVerdict, CheckerOutput, MAX_KEPT_OUTPUT, Mode, Problem,
    Run, RunProgress, RunResult, Weight,
};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_wire as wire;

/// Without the checkers' output.
pub fn check(check: &Check) -> wire::Check {
    convert(check, |_| String::new())
}

/// With the checkers' output.
pub fn check_with_output(check: &Check) -> wire::Check {
    convert(check, text)
}

/// The newest check that `of` selects.
pub fn newest_check(snapshot: &Snapshot, of: impl Fn(&Check) -> bool) -> Option<&Check> {
    let all = snapshot.checks.values().map(AsRef::as_ref);
    all.filter(|check| of(check)).max_by_key(|check| (check.asked, &check.id))
}

fn convert(check: &Check, text: impl Fn(&CheckerOutput) -> String) -> wire::Check {
    let (state, phase) = match &check.state {
        CheckState::Queued { why } => (wire::check::State::Queued, why.clone()),
        CheckState::Running { phase, .. } => (wire::check::State::Running, phase.clone()),
        CheckState::Waiting { until, why } => {
            (wire::check::State::Waiting, format!("{why}, until {until}"))
        }
        CheckState::Ended => (wire::check::State::Ended, String::new()),
    };
    let signals = check.signals.iter();
    wire::Check {
        id: check.id.to_string(),
        target: check.target.name.clone(),
        filesystem: check.target.filesystem.name().to_owned(),
        mode: mode(check.mode).into(),
        runs: check.runs.iter().map(|it| run(it, &text)).collect(),
        verdict: check.verdict.map_or(wire::check::Verdict::Unspecified, verdict).into(),
        reason: check.reason.clone(),
        state: state.into(),
        phase,
        asked: Some(time(check.asked)),
        started: check.started.map(time),
        ended: check.ended.map(time),
        volume_id: text_or_empty(&check.target.volume),
        device: check.target.device.clone(),
        uuid: text_or_empty(&check.target.uuid),
        origin: match &check.origin {
            CheckOrigin::Requested(by) => by.clone(),
            CheckOrigin::Scheduled(policy) => format!("schedule {policy}"),
        },
        signals: signals.map(|signal| evidence(&signal.evidence)).collect(),
        freeze: check.terms.freeze,
        cancelled: check.cancelled,
        progress: match &check.state {
            CheckState::Running { progress: Some(run), .. } => Some(progress(run)),
            _ => None,
        },
    }
}

fn progress(run: &RunProgress) -> wire::RunProgress {
    wire::RunProgress {
        started: Some(time(run.started)),
        percent: run.permille.map(|done| u32::from(done / 10)),
        remaining: run.remaining.map(duration),
        last_duration: None,
    }
}

/// The check as it runs now, with how long the last complete run of the same filesystem in the same
/// mode took.
pub fn running_check(snapshot: &Snapshot, check: &Check) -> wire::Check {
    let mut message = self::check(check);
    if let Some(progress) = &mut message.progress {
        let runs_of = |other: &Check| other.target.name == check.target.name;
        let runs = snapshot
            .checks
            .values()
            .filter(|other| runs_of(other))
            .flat_map(|other| &other.runs)
            .filter(|run| run.mode == check.mode && run.result != RunResult::Failed);
        let last = runs.max_by_key(|run| run.started);
        progress.last_duration = last.map(|run| duration(run.duration));
    }
    message
}

fn run(run: &Run, text: &impl Fn(&CheckerOutput) -> String) -> wire::CheckRun {
    wire::CheckRun {
        mode: mode(run.mode).into(),
        started: Some(time(run.started)),
        duration: Some(duration(run.duration)),
        exit_status: run.termination.exit_status(),
        signal: run.termination.signal().unwrap_or(0),
        ballot: match run.result {
            RunResult::Clean => wire::check_run::Ballot::Clean,
            RunResult::Findings => wire::check_run::Ballot::Findings,
            RunResult::Failed => wire::check_run::Ballot::Failed,
        }
        .into(),
        findings: run.problems.iter().map(finding).collect(),
        bytes_read: run.bytes_read,
        failure: run.failure_reason.clone(),
        more_findings: run.more_problems,
        held: run.held.map(duration),
        active: Some(duration(run.active)),
        peak_memory_bytes: run.peak_memory,
        command: run.command.clone(),
        output: text(&run.output),
        output_bytes: run.output.written,
        pending_replay: run.pending_replay.clone().unwrap_or_default(),
    }
}

fn finding(problem: &Problem) -> wire::CheckFinding {
    use wire::check_finding::Weight as Wire;
    let weight = match problem.weight {
        Weight::Transient => Wire::Transient,
        Weight::Bookkeeping => Wire::Bookkeeping,
        Weight::Unknown => Wire::Unknown,
        Weight::DamagedCopy => Wire::DamagedCopy,
        Weight::Damage => Wire::Damage,
    };
    wire::CheckFinding {
        kind: problem.kind.clone(),
        ids: problem.ids.clone(),
        weight: weight.into(),
        text: problem.text.clone(),
    }
}

fn mode(mode: Mode) -> wire::check::Mode {
    match mode {
        Mode::Live => wire::check::Mode::Live,
        Mode::Frozen => wire::check::Mode::Frozen,
        Mode::Snapshot => wire::check::Mode::Snapshot,
        Mode::ReadOnly => wire::check::Mode::ReadOnly,
        Mode::Unmounted => wire::check::Mode::Unmounted,
    }
}

fn verdict(verdict: CheckVerdict) -> wire::check::Verdict {
    match verdict {
        CheckVerdict::Clean => wire::check::Verdict::Clean,
        CheckVerdict::Suspected => wire::check::Verdict::Suspected,
        CheckVerdict::Corrupted => wire::check::Verdict::Corrupted,
        CheckVerdict::Inconclusive => wire::check::Verdict::Inconclusive,
        CheckVerdict::Failed => wire::check::Verdict::Failed,
    }
}

fn duration(duration: std::time::Duration) -> prost_types::Duration {
    // A duration longer than 292 billion years becomes the default.
    prost_types::Duration::try_from(duration).unwrap_or_default()
}

/// The stored output is compressed and bounded. Output that cannot be read is replaced by the
/// error.
fn text(output: &CheckerOutput) -> String {
    if output.gzip.is_empty() {
        return String::new();
    }
    let mut bytes = Vec::new();
    let mut decoder = GzDecoder::new(output.gzip.as_ref()).take(MAX_KEPT_OUTPUT as u64);
    match decoder.read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(what the checker wrote can no longer be read: {error})"),
    }
}
