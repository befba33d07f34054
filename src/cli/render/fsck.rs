//! The analysis of recorded checker output, for people: the verdict, then each run with its
//! findings.

use diskvitals_analyze::fsck::{FsckAnalysis, FsckFinding, FsckRun};
use diskvitals_fscheck::{CheckVerdict, RunResult, Weight};
use diskvitals_terminal::layout::{counted, heading, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Column, column, plain, table, toned};

const FINDINGS: [Column<FsckFinding>; 3] = [
    column("WEIGHT", 0, 1, |it, _| toned(weight(it.weight))),
    column("KIND", 12, 2, |it, _| plain(&it.kind)),
    column("TEXT", 30, 0, |it, _| plain(&it.text)),
];
/// Maximum number of a run's findings that are shown; JSON has more.
const MAX_FINDINGS: usize = 20;

pub fn text(fsck: &FsckAnalysis, screen: &Screen) -> String {
    let (verdict, tone) = match fsck.verdict {
        CheckVerdict::Clean => ("clean", Tone::Good),
        CheckVerdict::Suspected => ("suspected", Tone::Warning),
        CheckVerdict::Corrupted => ("corrupted", Tone::Critical),
        CheckVerdict::Inconclusive => ("inconclusive", Tone::Warning),
        CheckVerdict::Failed => ("failed", Tone::Warning),
    };
    let runs = counted(fsck.runs.len() as u64, "run");
    let mut text = format!(
        "{}  {} {}, {runs}\n",
        screen.paint(tone, verdict),
        fsck.filesystem,
        fsck.mode.name()
    );
    text.push_str(&wrapped(&fsck.reason, "", screen));
    for run in &fsck.runs {
        text.push('\n');
        text.push_str(&run_text(run, screen));
    }
    for file in &fsck.unreadable {
        let (file, error) = (escape_control(&file.file), escape_control(&file.error));
        text.push_str(&format!("\n{file}: {error}\n"));
    }
    text
}

fn run_text(run: &FsckRun, screen: &Screen) -> String {
    let ballot = match run.ballot {
        RunResult::Clean => "clean",
        RunResult::Findings => "findings",
        RunResult::Failed => "failed",
    };
    let end = match (run.exit_status, run.signal) {
        (Some(status), _) => format!(", exit status {status}"),
        (None, Some(signal)) => format!(", signal {signal}"),
        (None, None) => String::new(),
    };
    let mut text = heading(&format!("{}: {ballot}{end}", escape_control(&run.file)), screen);
    if !run.failure.is_empty() {
        text.push_str(&wrapped(&run.failure, "", screen));
    }
    if let Some(words) = &run.pending_replay {
        text.push_str(&wrapped(words, "", screen));
    }
    text.push_str(&table(&FINDINGS, run.findings.iter().take(MAX_FINDINGS), screen));
    let left = run.findings.len().saturating_sub(MAX_FINDINGS) as u64 + run.more_findings;
    if left > 0 {
        text.push_str(&format!("and {left} more\n"));
    }
    text
}

fn weight(weight: Weight) -> (&'static str, Tone) {
    match weight {
        Weight::Transient => ("transient", Tone::Faint),
        Weight::Bookkeeping => ("bookkeeping", Tone::Warning),
        Weight::Unknown => ("unknown", Tone::Warning),
        Weight::DamagedCopy => ("damaged copy", Tone::Warning),
        Weight::Damage => ("damage", Tone::Critical),
    }
}
